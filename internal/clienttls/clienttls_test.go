package clienttls

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// write writes a new self-signed certificate and its key, and returns the certificate.
func write(t *testing.T, cert, key string) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "gateway"}, NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600))
	return der
}

func TestRenewedClientCertificateIsPresented(t *testing.T) {
	t.Parallel()
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	first := write(t, cert, key)
	config, err := Config(cert, cert, key, "redis.internal")
	require.NoError(t, err)
	require.Equal(t, "redis.internal", config.ServerName)
	presented, err := config.GetClientCertificate(nil)
	require.NoError(t, err)
	require.Equal(t, first, presented.Certificate[0])

	renewed := write(t, cert, key)
	presented, err = config.GetClientCertificate(nil)
	require.NoError(t, err)
	assert.Equal(t, renewed, presented.Certificate[0])
}

func TestInvalidFilesAreErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, text, missing := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "text"), filepath.Join(dir, "missing")
	write(t, cert, key)
	require.NoError(t, os.WriteFile(text, []byte("no certificate"), 0o600))
	for name, c := range map[string]struct{ ca, cert, key string }{
		"no CA file":             {ca: missing},
		"no certificate in it":   {ca: text},
		"certificate, no key":    {cert: cert},
		"key, no certificate":    {key: key},
		"key of another content": {cert: cert, key: text},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Config(c.ca, c.cert, c.key, "")
			require.Error(t, err)
		})
	}
}
