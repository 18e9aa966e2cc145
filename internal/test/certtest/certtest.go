// Package certtest issues certificates for tests.
package certtest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// CA is the certificate authority of a test.
type CA struct {
	Path string // of its certificate, PEM

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

// NewCA creates an authority, whose files are removed after the test.
func NewCA(tb testing.TB) *CA {
	tb.Helper()
	ca := &CA{dir: tb.TempDir()}
	ca.Path, _ = ca.issue(tb, "ca", &x509.Certificate{KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true})
	return ca
}

// ServerCert issues a certificate for 127.0.0.1, ::1 and localhost and returns the paths of the PEM files.
func (ca *CA) ServerCert(tb testing.TB) (cert, key string) {
	tb.Helper()
	return ca.issue(tb, "localhost", &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// OCSPCert issues a server certificate whose OCSP responder is at url. Its file also has the authority's certificate.
func (ca *CA) OCSPCert(tb testing.TB, url string) (cert, key string) {
	tb.Helper()
	cert, key = ca.issue(tb, "ocsp.test", &x509.Certificate{OCSPServer: []string{url}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	leaf, err := os.ReadFile(cert)
	require.NoError(tb, err)
	issuer, err := os.ReadFile(ca.Path)
	require.NoError(tb, err)
	require.NoError(tb, os.WriteFile(cert, append(leaf, issuer...), 0o600))
	return cert, key
}

// ClientCert issues a certificate to sign in with and returns the paths of the PEM files. Issuing one of the same
// name again replaces the files.
func (ca *CA) ClientCert(tb testing.TB, name string) (cert, key string) {
	tb.Helper()
	return ca.issue(tb, name, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

// ClientTLS returns a configuration that trusts this authority and no other.
func (ca *CA) ClientTLS() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
}

// issue issues a certificate. The first one is the authority's own.
func (ca *CA) issue(tb testing.TB, name string, template *x509.Certificate) (certPath, keyPath string) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	require.NoError(tb, err)
	template.Subject, template.DNSNames = pkix.Name{CommonName: name}, []string{name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	template.KeyUsage |= x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, cmp.Or(ca.cert, template), key.Public(), cmp.Or(ca.key, key))
	require.NoError(tb, err)
	if ca.cert == nil {
		ca.key = key
		ca.cert, err = x509.ParseCertificate(der)
		require.NoError(tb, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(tb, err)
	certPath, keyPath = filepath.Join(ca.dir, name+".pem"), filepath.Join(ca.dir, name+"-key.pem")
	require.NoError(tb, os.WriteFile(certPath, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(tb, os.WriteFile(keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	return certPath, keyPath
}
