package caddymodule

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReplacedCAFileIsAChangedSetting(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	vault := &VaultSource{TLS: &TLSConfig{CA: ca}}
	load := func(content []byte) (*App, any) {
		require.NoError(t, os.WriteFile(ca, content, 0o600))
		a := &App{Redis: &RedisConfig{URLs: []string{"rediss://127.0.0.1:1"}, TLS: &TLSConfig{CA: ca}}} // refuses connections
		t.Cleanup(func() { assert.NoError(t, a.Cleanup()) })
		require.NoError(t, a.OpenRedis())
		require.NoError(t, a.acquireLimiter())
		return a, vault.Settings()
	}
	first, firstVault := load(cert)
	same, sameVault := load(cert)
	assert.Same(t, first.redis, same.redis)
	assert.Same(t, first.limiter, same.limiter)
	assert.Equal(t, firstVault, sameVault)
	replaced, replacedVault := load(append(cert, cert...))
	assert.NotSame(t, first.redis, replaced.redis)
	assert.NotSame(t, first.limiter, replaced.limiter, "it would use the closed client")
	assert.NotEqual(t, firstVault, replacedVault)
}
