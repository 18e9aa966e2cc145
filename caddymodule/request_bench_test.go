package caddymodule_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// BenchmarkRequest counts the allocations of the whole path of one signed request: Caddy's server, the gateway with a real
// Redis, and the exchange with a data service. The client and the data service share the process and allocate nothing.
// plain is Caddy's reverse_proxy alone.
//
//	go test -run '^$' -bench Request -benchmem ./caddymodule
func BenchmarkRequest(b *testing.B) {
	redis := redistest.Start(b)
	keys := filepath.Join(b.TempDir(), "keys.json")
	store, err := file.Open(keys, file.Options{Create: true})
	require.NoError(b, err)
	business := demo.Businesses()[0]
	credential, err := authsigner.Issue(b.Context(), store, authsigner.IssueOptions{BusinessID: business.ID, BusinessName: business.Name, BusinessSlug: business.Slug, Test: true})
	require.NoError(b, err)
	require.NoError(b, store.Close())

	const target = "/api/v1/events?count=10"
	data := cannedService(b, target, business.ID)
	plain, whole := gatewaytest.FreeAddr(b), gatewaytest.FreeAddr(b)
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(fmt.Appendf(nil, `{
		admin off
		persist_config off
		auto_https off
		log {
			level ERROR
		}
		gatehouse {
			redis %s
			credentials file %s
			limits {
				per_key 16000000
			}
		}
	}
	http://%s {
		reverse_proxy %s
	}
	http://%s {
		gatehouse_api {
			upstream %s
		}
	}`, redis.URL(), keys, plain, data, whole, data), nil)
	require.NoError(b, err)
	require.NoError(b, caddy.Load(config, true))
	b.Cleanup(func() { require.NoError(b, caddy.Stop()) })

	for _, to := range []struct{ name, addr string }{{"plain", plain}, {"whole", whole}} {
		b.Run(to.name, func(b *testing.B) {
			conn, err := net.Dial("tcp", to.addr)
			require.NoError(b, err)
			defer func() { require.NoError(b, conn.Close()) }()
			now := time.Now().Unix()
			request := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nX-Public-Key: %s\r\nX-Timestamp: %d\r\nX-Signature: %s\r\n\r\n", target, to.addr,
				credential.PublicKey, now, authsigner.Sign(credential.PrivateKey, now, http.MethodGet, target, nil))
			r := bufio.NewReaderSize(conn, 64<<10)
			ask := func() {
				if _, err := conn.Write(request); err != nil {
					b.Fatal(err)
				}
				length := 0
				for {
					line, err := r.ReadSlice('\n')
					if err != nil {
						b.Fatal(err)
					}
					if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
						for _, c := range bytes.TrimSpace(value) {
							length = 10*length + int(c-'0')
						}
					}
					if len(line) == 2 {
						break
					}
				}
				if _, err := r.Discard(length); err != nil || length < 1000 {
					b.Fatal(length, err)
				}
			}
			for range 100 {
				ask()
			}
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
		})
	}
}

// cannedService is a data service that repeats one response, and allocates nothing.
func cannedService(b *testing.B, target, businessID string) string {
	b.Helper()
	service, err := demo.Open(b.Context(), demo.Memory, demo.Options{})
	require.NoError(b, err)
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, target, http.NoBody)
	req.Header.Set("X-Business-Id", businessID)
	service.Handler().ServeHTTP(rec, req)
	require.NoError(b, service.Close())
	response := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(rec.Body.Len()) + "\r\n\r\n" + rec.Body.String())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	b.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				r := bufio.NewReader(conn)
				for {
					line, err := r.ReadSlice('\n')
					if err != nil {
						return
					}
					if len(line) == 2 {
						if _, err := conn.Write(response); err != nil {
							return
						}
					}
				}
			}()
		}
	}()
	return ln.Addr().String()
}
