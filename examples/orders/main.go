// Command orders is the data service of docs/your-own-api.md: orders, customers and shipments in memory, behind a gateway that serves
// orders.openapi.yaml. It shows what a service owes the gateway's callers: it serves only requests that a gateway has signed, each business
// its own records, the same response to a write that is repeated with its Idempotency-Key, and no change to a record that has changed.
//
//	orders -listen localhost:8081 -gateway http://localhost:8080
package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func main() {
	listen := flag.String("listen", "localhost:8081", "address to serve on")
	gateway := flag.String("gateway", "http://localhost:8080", "URL of a gateway, which publishes its signing keys there")
	flag.Parse()
	server := &http.Server{Addr: *listen, Handler: handler(*gateway), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// handler has an endpoint for each operation of the API, by operationId. The gateway has checked paths, parameters and bodies: no body has
// a member that is read-only or internal.
func handler(gateway string) http.Handler {
	s := newService(gateway)
	mux := http.NewServeMux()
	for pattern, e := range map[string]endpoint{
		"GET /v1/customers":                    {"customers", "listCustomers", s.listCustomers},
		"POST /v1/customers":                   {"customers", "createCustomer", s.createCustomer},
		"GET /v1/customers/{id}":               {"customers", "getCustomer", s.getCustomer},
		"GET /v1/orders":                       {"orders", "listOrders", s.listOrders},
		"POST /v1/orders":                      {"orders", "createOrder", s.createOrder},
		"GET /v1/orders/{order_id}":            {"orders", "getOrder", s.getOrder},
		"PATCH /v1/orders/{order_id}":          {"orders", "changeOrder", s.changeOrder},
		"GET /v1/orders/{order_id}/shipments":  {"orders", "listShipments", s.listShipments},
		"POST /v1/orders/{order_id}/shipments": {"orders", "createShipment", s.createShipment},
		"POST /v1/quotes":                      {"quotes", "createQuote", s.createQuote},
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, e) })
	}
	for pattern, do := range map[string]func(call) response{"POST /connect/v1/sign-in": signIn, "GET /connect/v1/accounts/{id}": account} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, endpoint{audience: "connect", do: do}) })
	}
	return mux
}

type endpoint struct {
	audience  string // the first segment of the path below /v1
	operation string
	do        func(call) response
}

// call is a request of a business. Its account is the business that the gateway authenticated.
type call struct {
	*http.Request

	account string
	body    []byte
}

type response struct {
	status int
	header map[string]string
	body   any // nil: none
}

func problem(status int, title string) response {
	return response{status, map[string]string{"Content-Type": "application/problem+json"}, map[string]string{"title": title}}
}

// serve serves a request that a gateway has made for this operation.
func (s *service) serve(w http.ResponseWriter, r *http.Request, e endpoint) {
	// Issuer is the option issuer of the gateway's assertion block.
	verifier := &upstream.AssertionVerifier{Issuer: "gatehouse", Audience: e.audience, Keys: s.keys}
	if r.Header.Get("X-Account-Id") != "" { // the tool of an assistant, on behalf of this account
		verifier.Audience = "connect"
	}
	assertion, err := verifier.VerifyRequest(r)
	switch {
	case errors.Is(err, upstream.ErrInvalidAssertion), err == nil && assertion.Operation != e.operation:
		http.Error(w, "not from the gateway, or not for this", http.StatusUnauthorized)
		return
	case err != nil: // the keys cannot be read
		w.Header().Set("Retry-After", "5")
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("X-Request-Id", assertion.RequestID) // says to which request the response belongs
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, "the body did not arrive", http.StatusBadRequest)
		return
	}
	s.mu.Lock() // stands in for a transaction
	defer s.mu.Unlock()
	answer := s.once(call{r, assertion.BusinessID, body}, e)
	w.Header().Set("Content-Type", "application/json")
	for name, value := range answer.header {
		w.Header().Set(name, value)
	}
	if r.Header.Get("If-None-Match") == answer.header["ETag"] && answer.status == http.StatusOK && answer.header["ETag"] != "" {
		answer.status = http.StatusNotModified
	}
	w.WriteHeader(answer.status)
	if answer.status != http.StatusNotModified {
		_ = json.NewEncoder(w).Encode(answer.body) // fails if the gateway has disconnected
	}
}

// once does what a request asks for, unless a request with the same Idempotency-Key has done it: then its response is sent again.
func (s *service) once(c call, e endpoint) response {
	key := c.Header.Get("Idempotency-Key")
	if key == "" {
		return e.do(c)
	}
	key = c.account + " " + e.operation + " " + key
	what := sha256.Sum256([]byte(c.URL.Path + "\n" + string(c.body)))
	if done, ok := s.done[key]; ok {
		if done.what != what {
			return problem(http.StatusConflict, "This Idempotency-Key was used for something else.")
		}
		return done.response
	}
	answer := e.do(c)
	if answer.status < http.StatusBadRequest {
		s.done[key] = attempt{what, answer} // in a database, with the change, for 24 hours
	}
	return answer
}

type attempt struct {
	what [sha256.Size]byte
	response
}

// signIn and account are what every connection server calls: whose account is it, and may it still sign in? A real service compares with a
// hash of the password.
func signIn(c call) response {
	var sent struct{ Email, Password string }
	if err := json.Unmarshal(c.body, &sent); err != nil || sent.Email != "ines@example.com" || sent.Password != "correct horse battery staple" {
		return response{http.StatusUnauthorized, nil, map[string]string{"error": "wrong address or password", "code": "INVALID_CREDENTIALS"}}
	}
	return ines()
}

func account(c call) response {
	if c.PathValue("id") != "ines" {
		return response{http.StatusNotFound, nil, map[string]string{"error": "no such account", "code": "NOT_FOUND"}}
	}
	return ines()
}

func ines() response {
	return response{http.StatusOK, nil, map[string]any{"account": map[string]any{
		"id": "ines", "email": "ines@example.com", "name": "Ines", "role": "owner",
		"business": map[string]string{"id": "17", "name": "Ines's shop", "slug": "ines"},
	}}}
}

// The records. Account is checked by the gateway, and never sent to callers.
type (
	customer struct {
		ID      string    `json:"id"`
		Account string    `json:"account"`
		Name    string    `json:"name"`
		Email   string    `json:"email"`
		Created time.Time `json:"created"`
	}
	line struct {
		SKU      string `json:"sku"`
		Quantity int    `json:"quantity"`
	}
	order struct {
		ID         string    `json:"id"`
		Account    string    `json:"account"`
		CustomerID string    `json:"customer_id"`
		Lines      []line    `json:"lines"`
		Note       *string   `json:"note"`
		Status     string    `json:"status"`
		Total      string    `json:"total"`
		Created    time.Time `json:"created"`
		Margin     string    `json:"margin"`

		version int
	}
	shipment struct {
		ID             string    `json:"id"`
		Account        string    `json:"account"`
		OrderID        string    `json:"order_id"`
		Carrier        string    `json:"carrier"`
		TrackingNumber string    `json:"tracking_number"`
		Created        time.Time `json:"created"`
	}
)

func (o *order) etag() string { return `"` + strconv.Itoa(o.version) + `"` }

// service has the records, the newest last.
type service struct {
	keys *upstream.RemoteKeys

	mu        sync.Mutex
	customers []customer
	orders    []order
	shipments []shipment
	done      map[string]attempt
}

func newService(gateway string) *service {
	day := func(n int) time.Time { return time.Date(2025, 3, n, 9, 30, 0, 0, time.UTC) }
	return &service{
		keys: &upstream.RemoteKeys{URL: gateway + "/.well-known/gatehouse-jwks.json"}, done: map[string]attempt{},
		customers: []customer{
			{"c-1", "17", "Ines", "ines@example.com", day(1)},
			{"c-2", "17", "Ravi", "ravi@example.com", day(2)},
			{"c-3", "18", "Maud", "maud@example.com", day(3)},
		},
		orders: []order{
			{"o-1", "17", "c-1", []line{{"A-1", 1}}, nil, "paid", "19.90", day(4), "7.00", 1},
			{"o-2", "18", "c-3", []line{{"B-2", 3}}, nil, "open", "15.00", day(5), "2.00", 1},
			{"o-3", "17", "c-2", []line{{"A-1", 1}, {"B-2", 1}}, nil, "open", "24.90", day(6), "8.00", 1},
		},
	}
}

// prices returns the prices of the articles, in cents.
func prices() map[string]int { return map[string]int{"A-1": 1990, "B-2": 500} }

// total returns the price of an order, or a problem.
func total(lines []line) (string, *response) {
	cents := 0
	for _, l := range lines {
		price, ok := prices()[l.SKU]
		if !ok {
			impossible := problem(http.StatusUnprocessableEntity, "There is no article "+l.SKU+".")
			return "", &impossible
		}
		cents += price * l.Quantity
	}
	return fmt.Sprintf("%d.%02d", cents/100, cents%100), nil
}

func (s *service) listCustomers(c call) response {
	own := []customer{}
	for _, x := range slices.Backward(s.customers) {
		if x.Account == c.account {
			own = append(own, x)
		}
	}
	page, _ := strconv.Atoi(c.FormValue("page")) // the gateway has filled in the defaults
	perPage, _ := strconv.Atoi(c.FormValue("per_page"))
	from := min((page-1)*perPage, len(own))
	return response{http.StatusOK, nil, map[string]any{
		"customers": own[from:min(from+perPage, len(own))], "page": page, "total": len(own),
	}}
}

func (s *service) getCustomer(c call) response {
	for _, x := range s.customers {
		if x.ID == c.PathValue("id") && x.Account == c.account {
			return response{http.StatusOK, nil, x}
		}
	}
	return problem(http.StatusNotFound, "There is no such customer.")
}

func (s *service) createCustomer(c call) response {
	x := customer{ID: "c-" + strconv.Itoa(len(s.customers)+1), Account: c.account, Created: now()}
	if err := json.Unmarshal(c.body, &x); err != nil {
		return problem(http.StatusBadRequest, "The body cannot be read.")
	}
	s.customers = append(s.customers, x)
	return response{http.StatusCreated, map[string]string{"Location": "/v1/customers/" + x.ID}, x}
}

// listOrders sends some orders. The cursor is the ID of the last one before them.
func (s *service) listOrders(c call) response {
	_ = c.ParseForm()
	limit, _ := strconv.Atoi(c.Form.Get("limit"))
	cursor, states, found := c.Form.Get("cursor"), c.Form["status"], []order{}
	after := cursor == ""
	for _, x := range slices.Backward(s.orders) {
		if after && x.Account == c.account && (len(states) == 0 || slices.Contains(states, x.Status)) {
			found = append(found, x)
		}
		after = after || x.ID == cursor
	}
	var next any
	if len(found) > limit {
		found = found[:limit]
		next = found[limit-1].ID
	}
	return response{http.StatusOK, nil, map[string]any{"orders": found, "next_cursor": next}}
}

// find returns an order of the business, or nil: another business's is as if it were not there.
func (s *service) find(c call) *order {
	i := slices.IndexFunc(s.orders, func(x order) bool { return x.ID == c.PathValue("order_id") && x.Account == c.account })
	if i < 0 {
		return nil
	}
	return &s.orders[i]
}

func noOrder() response { return problem(http.StatusNotFound, "There is no such order.") }

func (s *service) getOrder(c call) response {
	o := s.find(c)
	if o == nil {
		return noOrder()
	}
	return response{http.StatusOK, map[string]string{"ETag": o.etag()}, *o}
}

func (s *service) createOrder(c call) response {
	x := order{ID: "o-" + strconv.Itoa(len(s.orders)+1), Account: c.account, Status: "open", Created: now(), Margin: "0.00", version: 1}
	if err := json.Unmarshal(c.body, &x); err != nil {
		return problem(http.StatusBadRequest, "The body cannot be read.")
	}
	if !slices.ContainsFunc(s.customers, func(k customer) bool { return k.ID == x.CustomerID && k.Account == c.account }) {
		return problem(http.StatusUnprocessableEntity, "There is no customer "+x.CustomerID+".")
	}
	price, impossible := total(x.Lines)
	if impossible != nil {
		return *impossible
	}
	x.Total = price
	s.orders = append(s.orders, x)
	return response{http.StatusCreated, map[string]string{"ETag": x.etag(), "Location": "/v1/orders/" + x.ID}, x}
}

// changeOrder applies a merge patch to the order that the caller has seen.
func (s *service) changeOrder(c call) response {
	o := s.find(c)
	switch {
	case o == nil:
		return noOrder()
	case c.Header.Get("If-Match") != o.etag():
		return problem(http.StatusPreconditionFailed, "The order was changed in the meantime.")
	}
	changed := *o
	if err := json.Unmarshal(c.body, &changed); err != nil { // null removes the note, and what is absent stays
		return problem(http.StatusBadRequest, "The body cannot be read.")
	}
	changed.version++
	*o = changed
	return response{http.StatusOK, map[string]string{"ETag": o.etag()}, *o}
}

func (s *service) listShipments(c call) response {
	o := s.find(c)
	if o == nil {
		return noOrder()
	}
	own := []shipment{} // never null
	for _, x := range s.shipments {
		if x.OrderID == o.ID {
			own = append(own, x)
		}
	}
	return response{http.StatusOK, nil, map[string]any{"shipments": own}}
}

func (s *service) createShipment(c call) response {
	o := s.find(c)
	switch {
	case o == nil:
		return noOrder()
	case o.Status != "paid":
		return problem(http.StatusConflict, "The order is "+o.Status+", and not paid.")
	}
	x := shipment{ID: "s-" + strconv.Itoa(len(s.shipments)+1), Account: c.account, OrderID: o.ID, Created: now()}
	if err := json.Unmarshal(c.body, &x); err != nil {
		return problem(http.StatusBadRequest, "The body cannot be read.")
	}
	s.shipments = append(s.shipments, x)
	return response{http.StatusCreated, nil, x}
}

func (s *service) createQuote(c call) response {
	var asked struct{ Lines []line }
	if err := json.Unmarshal(c.body, &asked); err != nil {
		return problem(http.StatusBadRequest, "The body cannot be read.")
	}
	price, impossible := total(asked.Lines)
	if impossible != nil {
		return *impossible
	}
	return response{http.StatusOK, nil, map[string]string{"total": price}}
}

// now returns the time as the API has it, in UTC.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
