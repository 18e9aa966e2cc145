package oauth_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

// BenchmarkAuthenticate measures the overhead of each tool call: one round trip to a Redis on loopback.
func BenchmarkAuthenticate(b *testing.B) {
	s := newServer(b)
	_, tokens := oauthtest.Connect(b, s, oauthtest.Owner(), "")
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Authenticate(ctx, tokens.Access); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRefresh(b *testing.B) {
	s := newServer(b)
	c, tokens := oauthtest.Connect(b, s, oauthtest.Owner(), "")
	b.ReportAllocs()
	for b.Loop() {
		tokens = c.Refresh(tokens.Refresh, nil)
		require.Equal(b, http.StatusOK, tokens.Status)
	}
}
