package vaulttest

import (
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
	key := newKey(tb)
	template := &x509.Certificate{
		SerialNumber:          newSerial(tb),
		Subject:               pkix.Name{CommonName: "vaulttest CA"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(tb, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(tb, err)
	ca := &CA{cert: cert, key: key, dir: tb.TempDir()}
	ca.Path = writePEM(tb, filepath.Join(ca.dir, "ca.pem"), "CERTIFICATE", der)
	return ca
}

// ServerCert issues a certificate for 127.0.0.1, ::1 and localhost and returns the paths of the PEM files.
func (ca *CA) ServerCert(tb testing.TB) (cert, key string) {
	tb.Helper()
	return ca.issue(tb, "server", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "localhost"},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// ClientCert issues a certificate to sign in with and returns the paths of the PEM files. Issuing one of the same
// name again replaces the files.
func (ca *CA) ClientCert(tb testing.TB, name string) (cert, key string) {
	tb.Helper()
	return ca.issue(tb, "client-"+name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// ClientTLS returns a configuration that trusts this authority and no other.
func (ca *CA) ClientTLS() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
}

func (ca *CA) issue(tb testing.TB, name string, template *x509.Certificate) (certPath, keyPath string) {
	tb.Helper()
	key := newKey(tb)
	template.SerialNumber = newSerial(tb)
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(24 * time.Hour)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	require.NoError(tb, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(tb, err)
	return writePEM(tb, filepath.Join(ca.dir, name+".pem"), "CERTIFICATE", der),
		writePEM(tb, filepath.Join(ca.dir, name+"-key.pem"), "PRIVATE KEY", keyDER)
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	return key
}

func newSerial(tb testing.TB) *big.Int {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	require.NoError(tb, err)
	return serial
}

func writePEM(tb testing.TB, path, kind string, der []byte) string {
	tb.Helper()
	data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	require.NoError(tb, os.WriteFile(path, data, 0o600))
	return path
}
