package e2e_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/contacttest"
)

// The latency that the gateway adds to a tool call on a kept connection: the time of the call less that of the data service. It is
// reported, not asserted.
func TestFleetOfOneToolCallLatency(t *testing.T) {
	t.Parallel()
	connections, calls := 1, 3
	if chaosScale(t).long {
		connections, calls = 9, 100 // of 120 a minute for each; 54 connections, of 60 a minute from an address
	}
	var inService atomic.Int64 // nanoseconds in the data service
	data := demoService(t).Handler()
	w, g := connectedTo(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		began := time.Now()
		one := contacttest.Contact(r.Header.Get("X-Business-Id"), "Ines", "Gate on the north side sticks.")
		switch r.URL.Path {
		case "/connect/v1/contacts":
			if r.Method == http.MethodPost {
				respondWith(http.StatusCreated, "application/json", `{"contact":`+one+`}`)(rw, r)
				break
			}
			respondWith(http.StatusOK, "application/json", contacttest.Page(one, 25))(rw, r)
		case "/connect/v1/contacts/10403":
			respondWith(http.StatusOK, "application/json", `{"contact":`+one+`}`)(rw, r)
		default:
			data.ServeHTTP(rw, r)
		}
		inService.Add(int64(time.Since(began)))
	}), "")
	owner := w.owner(t, g)
	first := register(t, g.URL, "Test Assistant")
	client := protocolClient(t, false, 0)
	for _, tc := range []struct {
		name, tool, arguments string // each $ becomes a random word in each call
		ask                   func(a *assistant, ctx context.Context, c *http.Client, tool, arguments string) (string, error)
	}{
		{"one contact, 2025-11-25", "contacts_get", `{"id":10403}`, (*assistant).raw},
		{"one contact, 2026-07-28", "contacts_get", `{"id":10403}`, (*assistant).modern},
		{"25 contacts, 2025-11-25", "contacts_search", `{"limit":25}`, (*assistant).raw},
		{"25 contacts, 2026-07-28", "contacts_search", `{"limit":25}`, (*assistant).modern},
		{"create a contact, 2025-11-25", "contacts_create", `{"first_name":"Ines $"}`, (*assistant).raw},
		{"create a contact, 2026-07-28", "contacts_create", `{"first_name":"Ines $"}`, (*assistant).modern},
	} {
		var took []time.Duration
		for range connections {
			a := *first
			a.verifier = rand.Text() + rand.Text()
			a.connect(t, owner, "mcp:read contacts:write", "contacts:write")
			for i := range calls {
				arguments := strings.ReplaceAll(tc.arguments, "$", rand.Text())
				before, began := inService.Load(), time.Now()
				text, err := tc.ask(&a, t.Context(), client, tc.tool, arguments)
				d := time.Since(began) - time.Duration(inService.Load()-before)
				require.NoError(t, err)
				require.Contains(t, text, "Halvorsen")
				if i > 0 { // the first call of a connection also looks up its account
					took = append(took, d)
				}
			}
		}
		slices.Sort(took)
		t.Logf("figure: %s: %d calls, wrong responses: 0; the gateway adds p50=%s p90=%s p99=%s", tc.name, len(took),
			took[len(took)/2].Round(time.Microsecond), took[len(took)*90/100].Round(time.Microsecond),
			took[len(took)*99/100].Round(time.Microsecond))
	}
}
