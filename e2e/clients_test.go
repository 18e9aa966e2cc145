package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// unusualTargets are served; each is signed as it is sent.
var unusualTargets = []string{
	"/api/v1/me",
	"/api/v1/me?",
	"/api/v1/invoices?page=2&per_page=7&status=paid",
	"/api/v1/contacts?type=%63ustomer&unknown=%c3%ab+%2B&&",
	"/api/v1/events?count=3&next=https://example.com/api/v1/me?x=[1]",
	"/api/v1/status?a=b",
}

func TestOpensslAndCurlClient(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	call := func(protocol, method, target, body, secret string) (status, version, response string) {
		out := filepath.Join(t.TempDir(), "response")
		cmd := exec.CommandContext(t.Context(), "sh", "testdata/clients/call.sh")
		cmd.Env = append(os.Environ(), "GATEHOUSE_KEY="+w.acme.PublicKey, "GATEHOUSE_SECRET="+secret, "URL="+g.URL, "OUT="+out,
			"PROTOCOL="+protocol, "METHOD="+method, "TARGET="+target, "BODY="+body)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		written, err := cmd.Output()
		require.NoError(t, err, "%s %s: %s", method, target, stderr.String())
		b, err := os.ReadFile(out)
		require.NoError(t, err)
		status, version, _ = strings.Cut(string(written), " ")
		return status, version, string(b)
	}
	secret := w.acme.PrivateKey.Reveal()
	for protocol, wantVersion := range map[string]string{"--http1.1": "1.1", "--http2-prior-knowledge": "2"} {
		for _, target := range unusualTargets {
			status, version, response := call(protocol, "GET", target, "", secret)
			assert.Equal(t, "200", status, "%s %s: %s", protocol, target, response)
			assert.Equal(t, wantVersion, version)
			assert.True(t, json.Valid([]byte(response)), response)
		}
		status, _, response := call(protocol, "GET", "/api/v1/me", `{"a body":"on a GET, Zoë"}`, secret)
		require.Equal(t, "200", status, response)
		status, _, _ = call(protocol, "HEAD", "/api/v1/jobs?per_page=3", "", secret)
		require.Equal(t, "200", status)
		status, _, response = call(protocol, "GET", "/api/v1/me", "", "not the secret")
		assert.Equal(t, "401", status)
		assert.Contains(t, response, "INVALID_CREDENTIALS")
	}
}

func TestNodeClient(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	cases, err := json.Marshal(map[string]any{"targets": unusualTargets, "body": `{"a body":"on a GET, Zoë"}`})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "testdata/clients/call.js")
	cmd.Env = append(os.Environ(), "URL_BASE="+g.URL, "GATEHOUSE_KEY="+w.acme.PublicKey,
		"GATEHOUSE_SECRET="+w.acme.PrivateKey.Reveal(), "CASES="+string(cases))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", stderr.String())
	var responses []struct {
		How, Target, Body string
		Status            int
	}
	require.NoError(t, json.Unmarshal(out, &responses))
	require.Len(t, responses, 3*len(unusualTargets)+2)
	for _, a := range responses {
		assert.Equal(t, http.StatusOK, a.Status, "%s %s: %s", a.How, a.Target, a.Body)
		assert.True(t, json.Valid([]byte(a.Body)))
	}
}

// callAsBusiness calls with the Go signer over a transport and requires that responses use the protocol.
func callAsBusiness(t *testing.T, w *environment, base string, rt http.RoundTripper, protocol string) {
	t.Helper()
	client := &http.Client{
		Timeout:   patience,
		Transport: &authsigner.Transport{Base: rt, PublicKey: w.acme.PublicKey, PrivateKey: w.acme.PrivateKey},
	}
	for _, target := range append([]string{"/api/v1/business"}, unusualTargets...) {
		for _, body := range []string{"", "a body on a GET"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+target, strings.NewReader(body))
			require.NoError(t, err)
			res, err := client.Do(req)
			require.NoError(t, err, "%s %s", protocol, target)
			text, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, http.StatusOK, res.StatusCode, "%s %s: %s", protocol, target, text)
			require.Equal(t, protocol, res.Proto)
			require.Equal(t, strconv.Itoa(len(text)), res.Header.Get("Content-Length"))
		}
	}
	// an invalid signature is rejected over this protocol too
	client.Transport = rt
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/v1/me", http.NoBody)
	require.NoError(t, err)
	req.Header = invalidSignature(w.acme.PublicKey)
	res, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusUnauthorized, res.StatusCode)
}

func TestGoTransportOverEveryProtocol(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	callAsBusiness(t, w, g.URL, protocolClient(t, false, 0).Transport, "HTTP/1.1")
	callAsBusiness(t, w, g.URL, protocolClient(t, true, 0).Transport, "HTTP/2.0")

	o := w.options(highLimits, "")
	o.CA, o.Host = true, "https://localhost"
	secure := gatewaytest.Start(t, o)
	base := "https://localhost" + secure.Addr[strings.IndexByte(secure.Addr, ':'):]
	trust := &tls.Config{RootCAs: secure.Roots(t, secure.Addr, "localhost")}
	for protocol, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		tr := &http.Transport{TLSClientConfig: trust.Clone(), Protocols: new(http.Protocols)}
		t.Cleanup(tr.CloseIdleConnections)
		tr.Protocols.SetHTTP1(!http2)
		tr.Protocols.SetHTTP2(http2)
		callAsBusiness(t, w, base, tr, protocol)
	}
	h3 := &http3.Transport{TLSClientConfig: trust}
	t.Cleanup(func() { require.NoError(t, h3.Close()) })
	callAsBusiness(t, w, base, h3, "HTTP/3.0")
}
