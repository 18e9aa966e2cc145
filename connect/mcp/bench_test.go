package mcp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/internal/demo" //nolint:depguard // the service that the tools are for
	"github.com/gatehouse-gateway/gatehouse/internal/test/calltest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/contacttest"
)

// BenchmarkToolCall calls contacts_search with 25 contacts over a persistent connection on loopback, with an embedded Redis. It reports
// the median and the 99th percentile of the latency that the gateway adds to the data service's own.
func BenchmarkToolCall(b *testing.B) {
	page := contacttest.Page(contacttest.Contact("biz_1", "Ines", "Gate on the north side sticks."), 25)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, page)
	}))
	defer backend.Close()
	measured := &stopwatch{}
	client, err := data.New(data.Options{Host: backend.Listener.Addr().String(), Do: calltest.Over(measured), Log: zap.NewNop()})
	require.NoError(b, err)
	s := newSetup(b, shared, func(o *mcp.Options) { o.Data = client })
	s.server.SetRate(100_000_000)
	s.allow("bearer", demo.Account{ID: "acc_1", BusinessID: "biz_1", Role: "owner"}, "mcp:use")
	s.accounts.Put(account.Account{ID: "acc_1", Role: account.RoleOwner, Business: account.Business{BusinessID: "biz_1"}})
	for _, revision := range []string{modern, legacy} {
		b.Run(revision, func(b *testing.B) {
			b.ReportAllocs()
			body := callMessage(revision, "contacts_search", object{"limit": 25})
			var took []time.Duration
			for b.Loop() {
				r := s.message(b.Context(), revision, body)
				r.Header.Set("Authorization", "Bearer bearer")
				before := measured.total
				began := time.Now()
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				took = append(took, time.Since(began)-(measured.total-before))
				if err != nil || !strings.Contains(string(body), "Halvorsen") {
					b.Fatalf("%v: %s", err, body)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-added-p50")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-added-p99")
		})
	}
}

// stopwatch adds up the time of sequential calls.
type stopwatch struct{ total time.Duration }

func (s *stopwatch) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	res, err := http.DefaultTransport.RoundTrip(r)
	s.total += time.Since(began)
	return res, err
}

// BenchmarkToolList lists the tools of a connection that may use all of them.
func BenchmarkToolList(b *testing.B) {
	s := newSetup(b, shared)
	s.server.SetRate(100_000_000)
	for _, revision := range []string{modern, legacy} {
		b.Run(revision, func(b *testing.B) {
			b.ReportAllocs()
			body := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
			if revision == modern {
				body = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modern +
					`","io.modelcontextprotocol/clientCapabilities":{}}}}`
			}
			for b.Loop() {
				r := s.message(b.Context(), revision, body)
				r.Header.Set("Authorization", "Bearer bearer")
				r.Header.Set("Mcp-Method", "tools/list")
				r.Header.Del("Mcp-Name")
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				list, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err != nil || !strings.Contains(string(list), "objects_delete") {
					b.Fatalf("%v: %.500s", err, list)
				}
			}
		})
	}
}
