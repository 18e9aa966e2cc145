package mcp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// BenchmarkToolCall is one tools/call of contacts_search with 25 contacts over a kept connection on loopback, with the
// rate counted in (an embedded) Redis. It
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
	auditing, err := audit.New(audit.Options{Redis: rdb, Log: zap.NewNop()})
	require.NoError(b, err)
	server, err := mcp.New(mcp.Options{
		Resource: front.URL + "/mcp", Data: client, Audit: auditing, Challenge: challenge{}, Log: zap.NewNop(),
		Redis: rdb, Limiter: mcp.NewLimiter(rdb, "", 100_000_000),
	})
	require.NoError(b, err)
	defer server.Close()
	owner := account.Account{ID: "acc_1", BusinessID: "biz_1", Role: account.RoleOwner}
	grant := oauth.Grant{ID: "g", AccountID: "acc_1", BusinessID: "biz_1", Scopes: scope.Everything()}
	handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.Handler().ServeHTTP(w, r.WithContext(oauth.WithAccount(oauth.WithGrant(r.Context(), grant), owner)))
	})
	for _, era := range []string{modern, legacy} {
		b.Run(era, func(b *testing.B) {
			b.ReportAllocs()
			body := callMessage(era, "contacts_search", object{"limit": 25})
			var took []time.Duration
			for b.Loop() {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, front.URL+"/mcp", strings.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
				r.Header.Set("Authorization", "Bearer x")
				r.Header.Set("Mcp-Protocol-Version", era)
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
