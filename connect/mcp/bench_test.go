package mcp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// BenchmarkToolCall is one tools/call of contacts_search with 25 contacts over a kept connection on loopback, with the
// rate counted in (an embedded) Redis: an ordinary call, and one with a member that means nothing, which the SDK serves. It
// reports what the gateway adds to the data service's own time, which the benchmark's transport measures and takes away: the
// median and the 99th percentile.
func BenchmarkToolCall(b *testing.B) {
	contact := `{"id":10403,"business_id":"biz_1","first_name":"Ines","last_name":"Halvorsen","email":"ines@example.com",` +
		`"phone_number":"6085550123","country_code":"+1","contact_type":"customer","contact_status":"active",` +
		`"notes":"Gate on the north side sticks.","date_created":"2026-03-05T14:30:00Z",` +
		`"date_modified":"2026-03-05T14:30:00Z","version":1}`
	page := `{"contacts":[` + strings.Repeat(contact+",", 24) + contact + `],"next_cursor":null}`
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, page)
	}))
	defer backend.Close()
	measured := &stopwatch{}
	client, err := data.New(data.Options{BaseURL: backend.URL, Transport: measured, Log: zap.NewNop()})
	require.NoError(b, err)
	memory := miniredis.RunT(b)
	rdb := redis.NewClient(&redis.Options{Addr: memory.Addr()})
	defer rdb.Close()
	var handler http.Handler
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	defer front.Close()
	known := &people{known: map[string]account.Account{"acc_1": {ID: "acc_1", BusinessID: "biz_1", Role: account.RoleOwner}}}
	server, err := mcp.New(mcp.Options{
		Resource: front.URL + "/mcp", Data: client, Accounts: known, Audit: &trail{}, Challenge: challenge{}, Log: zap.NewNop(),
		Redis: rdb, Limiter: mcp.NewLimiter(rdb, "", 100_000_000),
	})
	require.NoError(b, err)
	defer server.Close()
	grant := oauth.Grant{ID: "g", AccountID: "acc_1", BusinessID: "biz_1", Scopes: scope.Everything()}
	handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.Handler().ServeHTTP(w, r.WithContext(oauth.WithGrant(r.Context(), grant)))
	})
	for _, way := range []struct {
		era, name, params string
	}{
		{modern, "ordinary", `"params":{`},
		{modern, "by the SDK", `"params":{"means":"nothing",`},
		{legacy, "ordinary", `"params":{`},
		{legacy, "by the SDK", `"params":{"means":"nothing",`},
	} {
		b.Run(way.era+"/"+way.name, func(b *testing.B) {
			b.ReportAllocs()
			body := strings.Replace(callMessage(way.era, "contacts_search", object{"limit": 25}), `"params":{`, way.params, 1)
			var took []time.Duration
			for b.Loop() {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, front.URL+"/mcp", strings.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
				r.Header.Set("Authorization", "Bearer x")
				r.Header.Set("Mcp-Protocol-Version", way.era)
				r.Header.Set("Mcp-Method", "tools/call")
				r.Header.Set("Mcp-Name", "contacts_search")
				before := measured.total
				began := time.Now()
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				answer, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				took = append(took, time.Since(began)-(measured.total-before))
				if err != nil || !strings.Contains(string(answer), "Halvorsen") {
					b.Fatalf("%v: %s", err, answer)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-added-p50")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-added-p99")
		})
	}
}

// stopwatch adds up the time of calls, which the benchmark makes one after the other.
type stopwatch struct{ total time.Duration }

func (s *stopwatch) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	res, err := http.DefaultTransport.RoundTrip(r)
	s.total += time.Since(began)
	return res, err
}

// BenchmarkKeptSessions says what a session costs that is kept for a client of an older revision: bytes of heap and
// goroutines.
func BenchmarkKeptSessions(b *testing.B) {
	client, err := data.New(data.Options{BaseURL: "http://127.0.0.1:1", Log: zap.NewNop()})
	require.NoError(b, err)
	var handler http.Handler
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	defer front.Close()
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(b).Addr()})
	defer rdb.Close()
	server, err := mcp.New(mcp.Options{
		Resource: front.URL + "/mcp", Data: client, Accounts: &people{}, Audit: &trail{}, Challenge: challenge{}, Log: zap.NewNop(),
		Redis: rdb, Limiter: mcp.NewLimiter(rdb, "", 100_000_000), MaxSessions: 1 << 30,
	})
	require.NoError(b, err)
	defer server.Close()
	handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		grant := oauth.Grant{ID: r.Header.Get("X-Test-Grant"), AccountID: "a", BusinessID: "b", Scopes: scope.Everything()}
		server.Handler().ServeHTTP(w, r.WithContext(oauth.WithGrant(r.Context(), grant)))
	})
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}}`
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	kept := 0
	for b.Loop() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, front.URL+"/mcp", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Authorization", "Bearer x")
		r.Header.Set("X-Test-Grant", strconv.Itoa(kept))
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.Header.Get("Mcp-Session-Id") == "" {
			b.Fatal("no session")
		}
		kept++
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapInuse-before.HeapInuse)/1024/float64(kept), "KiB/session")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/float64(kept), "goroutines/session")
}
