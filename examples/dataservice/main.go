// Command dataservice is a minimal data service for Gatehouse: it serves /api/v1/contacts from memory for the business that
// the gateway authenticated. docs/data-services.md describes the whole protocol.
//
//	dataservice -listen localhost:8081 -gateway http://localhost:8080
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// contact has some of the fields that the contract documents. The gateway sends the others as null.
type contact struct {
	ID         int       `json:"id"`
	BusinessID string    `json:"business_id"` // checked by the gateway, never sent to callers
	FirstName  string    `json:"first_name"`
	Type       string    `json:"contact_type"`
	Status     string    `json:"contact_status"`
	Created    time.Time `json:"date_created"`
}

var contacts = []contact{ // stands in for a database
	{1, "biz_1", "Ines", "customer", "active", time.Date(2026, 3, 5, 14, 30, 0, 0, time.UTC)},
	{2, "biz_1", "Ravi", "lead", "active", time.Date(2026, 4, 1, 9, 0, 0, 0, time.UTC)},
	{3, "biz_2", "Maud", "customer", "inactive", time.Date(2026, 4, 2, 9, 0, 0, 0, time.UTC)},
}

func main() {
	listen := flag.String("listen", "localhost:8081", "address to serve on")
	gateway := flag.String("gateway", "http://localhost:8080", "URL of a gateway, which publishes its signing keys there")
	flag.Parse()
	server := &http.Server{Addr: *listen, Handler: handler(*gateway), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

func handler(gateway string) http.Handler {
	// Only requests that a gateway has signed are served. Issuer is the option issuer of the gateway's assertion block.
	verifier := &upstream.AssertionVerifier{
		Issuer: "gatehouse", Audience: "contacts",
		Keys: &upstream.RemoteKeys{URL: gateway + "/.well-known/gatehouse-jwks.json"},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/contacts", func(w http.ResponseWriter, r *http.Request) {
		assertion, err := verifier.VerifyRequest(r)
		switch {
		case errors.Is(err, upstream.ErrInvalidAssertion):
			http.Error(w, "not from the gateway", http.StatusUnauthorized)
			return
		case err != nil: // the keys cannot be read
			w.Header().Set("Retry-After", "5")
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("X-Request-Id", assertion.RequestID) // says to which request the response belongs
		serveContacts(w, r, assertion.BusinessID)
	})
	return mux
}

// serveContacts sends one page of the business's contacts, newest first. The gateway has validated the query: page and
// per_page are always there and in range.
func serveContacts(w http.ResponseWriter, r *http.Request, business string) {
	q := r.URL.Query()
	page, _ := strconv.Atoi(q.Get("page"))
	perPage, _ := strconv.Atoi(q.Get("per_page"))
	found := []contact{}
	for _, c := range contacts {
		if c.BusinessID == business && matches(q.Get("status"), c.Status) && matches(q.Get("type"), c.Type) {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b contact) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.ID, a.ID)) })
	total, pages := len(found), (len(found)+perPage-1)/perPage
	from := total // a page past the end is empty
	if page <= pages {
		from = (page - 1) * perPage
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // fails if the gateway has disconnected
		"contacts":   found[from:min(from+perPage, total)],
		"pagination": map[string]int{"current_page": page, "per_page": perPage, "total_items": total, "total_pages": pages},
	})
}

func matches(filter, value string) bool { return filter == "" || filter == value }
