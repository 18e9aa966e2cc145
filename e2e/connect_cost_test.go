package e2e_test

import (
	"crypto/rand"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the gateway adds to a tool's call, one after the other over a kept connection: the time from sending the call to
// having read its answer, less what the data service took for its part of it. The time is reported and not asserted.
func TestFleetOfOneShowsWhatTheGatewayAddsToAToolsCall(t *testing.T) {
	t.Parallel()
	connections, calls := 2, 20
	if chaosScale(t).long {
		connections, calls = 20, 100 // of 120 a minute for each
	}
	var own atomic.Int64 // nanoseconds, of calls that are made one after the other
	contact := `{"id":10403,"business_id":"%s","first_name":"Ines","last_name":"Halvorsen","email":"ines@example.com",` +
		`"phone_number":"6085550123","country_code":"+1","contact_type":"customer","contact_status":"active",` +
		`"notes":"Gate on the north side sticks.","date_created":"2026-03-05T14:30:00Z",` +
		`"date_modified":"2026-03-05T14:30:00Z","version":1}`
	data := demoService(t).Handler()
	w, g := connectedTo(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		began := time.Now()
		if r.URL.Path == "/connect/v1/contacts" {
			one := strings.Replace(contact, "%s", r.Header.Get("X-Business-Id"), 1)
			rw.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(rw, `{"contacts":[`+strings.Repeat(one+",", 24)+one+`],"next_cursor":null}`)
		} else {
			data.ServeHTTP(rw, r)
		}
		own.Add(int64(time.Since(began)))
	}), "")
	owner := newPerson(t, g.URL)
	owner.signIn(accountOf(t, w.acmeID, "owner"))
	first := register(t, g.URL, "Test Assistant")
	client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
	t.Cleanup(client.CloseIdleConnections)
	for name, ask := range map[string]func(a *assistant) (string, error){
		"25 contacts, 2025-11-25": func(a *assistant) (string, error) {
			return a.raw(t.Context(), client, "contacts_search", `{"limit":25}`)
		},
		"25 contacts, 2026-07-28": func(a *assistant) (string, error) {
			return a.modern(t.Context(), client, "contacts_search", `{"limit":25}`)
		},
	} {
		var took []time.Duration
		for range connections {
			a := *first
			a.verifier = rand.Text() + rand.Text()
			a.connect(t, owner, "mcp:read")
			for i := range calls {
				before, began := own.Load(), time.Now()
				text, err := ask(&a)
				d := time.Since(began) - time.Duration(own.Load()-before)
				require.NoError(t, err)
				require.Contains(t, text, "Halvorsen")
				if i > 0 { // the first is the first of its connection, whose account has to be asked for
					took = append(took, d)
				}
			}
		}
		slices.Sort(took)
		t.Logf("figure: %s: %d calls, wrong answers: 0; the gateway adds p50=%s p90=%s p99=%s", name, len(took),
			took[len(took)/2].Round(time.Microsecond), took[len(took)*90/100].Round(time.Microsecond),
			took[len(took)*99/100].Round(time.Microsecond))
	}
}
