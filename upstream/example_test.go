package upstream_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// A data service that only serves requests from the gateway.
func Example_dataService() {
	asserter, err := upstream.NewAsserter(upstream.AsserterOptions{
		Issuer: "gatehouse", Keys: []ed25519.PrivateKey{ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))},
	})
	if err != nil {
		panic(err)
	}
	published := http.NewServeMux()
	published.Handle("/.well-known/gatehouse-jwks.json", asserter)
	server := httptest.NewServer(published)
	defer server.Close()
	gateway := server.URL

	writeContacts := func(w http.ResponseWriter, _ *http.Request, business string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"contacts":[{"id":1,"business_id":%q}],`, business)
		fmt.Fprint(w, `"pagination":{"current_page":1,"per_page":25,"total_items":1,"total_pages":1}}`)
	}

	keys := &upstream.RemoteKeys{URL: gateway + "/.well-known/gatehouse-jwks.json"}
	contacts := &upstream.AssertionVerifier{Issuer: "gatehouse", Audience: "contacts", Keys: keys}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/contacts", func(w http.ResponseWriter, r *http.Request) {
		assertion, err := contacts.VerifyRequest(r)
		switch {
		case errors.Is(err, upstream.ErrInvalidAssertion):
			http.Error(w, "not from the gateway", http.StatusUnauthorized)
			return
		case err != nil: // the keys cannot be read
			w.Header().Set("Retry-After", "5")
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		writeContacts(w, r, assertion.BusinessID)
	})

	// The gateway does this with a signed request for the first page of contacts.
	res, raw, _ := upstream.Match("/api/v1/contacts?page=1")
	q, err := res.CleanQuery(raw)
	if err != nil {
		panic(err)
	}
	token, err := asserter.Assert(res.Name, "biz_7f3a9c21", "req-1")
	if err != nil {
		panic(err)
	}
	r, err := upstream.PrepareRequest(httptest.NewRequest(http.MethodGet, "/api/v1/contacts?page=1", http.NoBody), res, q,
		upstream.Identity{BusinessID: "biz_7f3a9c21", RequestID: "req-1", Assertion: token})
	if err != nil {
		panic(err)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	var response bytes.Buffer
	report, err := new(upstream.Contract).Check(&response, res, q, "biz_7f3a9c21", w.Body.Bytes())
	fmt.Println(w.Code, report.Records, err)

	// An attacker on the network sends the assertion for another business.
	r.Header.Set("X-Business-Id", "biz_0b54e6aa")
	w = httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	fmt.Println(w.Code)

	// Output:
	// 200 1 <nil>
	// 401
}
