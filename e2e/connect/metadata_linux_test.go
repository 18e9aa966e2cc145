package connect_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// publicAddress is an address that a gateway fetches from. Tests use it in their own network namespace.
const publicAddress = "93.184.215.14"

// documents serves metadata documents over HTTPS and counts requests. Gateways trust its certificate with env.
type documents struct {
	url   string
	env   []string
	asked atomic.Int32
}

// serveDocuments serves on every path a document whose client_name is the query parameter name.
func serveDocuments(t *testing.T, address string) *documents {
	t.Helper()
	d := &documents{}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(address, "0"))
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"client_id":%q,"client_name":%q,"redirect_uris":["http://127.0.0.1/callback"],`+
			`"grant_types":["authorization_code","refresh_token"],"response_types":["code"],"token_endpoint_auth_method":"none"}`,
			d.url+r.URL.RequestURI(), r.URL.Query().Get("name"))
	}))
	require.NoError(t, server.Listener.Close())
	server.Listener = ln
	cert, file := certificate(t, address)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	server.StartTLS()
	t.Cleanup(server.Close)
	d.url = "https://" + ln.Addr().String()
	d.env = []string{"SSL_CERT_FILE=" + file}
	return d
}

// certificate returns a certificate for an address, and a file to trust it.
func certificate(t *testing.T, address string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "documents"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, IPAddresses: []net.IP{net.ParseIP(address)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "documents.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// addAddress adds an address to the loopback interface.
func addAddress(t *testing.T, address string) {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(socket)) }()
	request, err := unix.NewIfreq("lo:1")
	require.NoError(t, err)
	require.NoError(t, request.SetInet4Addr(net.ParseIP(address).To4()))
	require.NoError(t, unix.IoctlIfreq(socket, unix.SIOCSIFADDR, request))
}

func TestClientMetadataDocuments(t *testing.T) {
	if !gatewaytest.InOwnNetwork(t) {
		return
	}
	addAddress(t, publicAddress)
	d := serveDocuments(t, publicAddress)
	w := start(t, options{env: d.env})
	drive(t, w, "sdk1.mjs", "CLIENT_METADATA_URL="+d.url+"/client.json?name=First+SDK")
	require.EqualValues(t, 1, d.asked.Load(), "the document is cached")
	drive(t, w, "sdk2.mjs", "MCP_ERA=2026-07-28", "CLIENT_METADATA_URL="+d.url+"/client.json?name=Second+SDK%2C+2026-07-28")
	require.EqualValues(t, 2, d.asked.Load())
}

func TestMetadataDocumentsAreNotFetchedFromLoopback(t *testing.T) {
	t.Parallel()
	d := serveDocuments(t, "127.0.0.1")
	w := start(t, options{env: d.env})
	back := "http://127.0.0.1:1234/callback"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/oauth/authorize?"+url.Values{
		"client_id": {d.url + "/client.json"}, "redirect_uri": {back}, "response_type": {"code"},
		"code_challenge": {"E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"}, "code_challenge_method": {"S256"},
	}.Encode(), http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Accept", "text/html")
	res, err := client().Do(req)
	require.NoError(t, err)
	page, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, http.StatusBadRequest, res.StatusCode, "%s", page)
	assert.Empty(t, res.Header.Get("Location"))
	assert.Contains(t, res.Header.Get("Content-Type"), "text/html")
	assert.Zero(t, d.asked.Load())
}
