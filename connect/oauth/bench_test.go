package oauth_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

// BenchmarkAuthenticate measures the overhead of each tool call: one round trip to a Redis on loopback.
func BenchmarkAuthenticate(b *testing.B) {
	s := newServer(b)
	_, tokens := oauthtest.Connect(b, s, oauthtest.Owner(), "")
	ctx := context.Background()
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Authenticate(ctx, tokens.Access); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(16)
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if _, err := s.Authenticate(ctx, tokens.Access); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("malformed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Authenticate(ctx, "gat_"+tokens.Access); err == nil {
				b.Fatal("accepted")
			}
		}
	})
}

// BenchmarkAThousandConnections uses the tokens of 1,000 connections in turn from 32 goroutines, and lists the connections.
func BenchmarkAThousandConnections(b *testing.B) {
	s := newServer(b, func(o *oauth.Options) { o.Limits.Authorizations = limit(1<<20, 1e9) })
	c := oauthtest.Register(b, s)
	all := make([]string, 1000)
	for i := range all {
		all[i] = c.Connect(oauthtest.Owner(), "mcp:use").Access
	}
	ctx := context.Background()
	b.Run("used", func(b *testing.B) {
		var next atomic.Int64
		b.SetParallelism(16)
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if _, err := s.Authenticate(ctx, all[next.Add(1)%1000]); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("listed", func(b *testing.B) {
		for b.Loop() {
			grants, err := s.Grants(ctx, "biz-1")
			if err != nil || len(grants) != len(all) {
				b.Fatal(len(grants), err)
			}
		}
	})
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
