package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/conform"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// breaker breaks the correct service. It can sign assertions as conform does.
type breaker struct {
	http.Handler

	api *upstream.API
	key *upstream.Asserter
}

// wrap returns a service that is broken in one way.
type wrap func(breaker) http.Handler

// held holds a broken service to the definition.
func held(t *testing.T, broken wrap, change func(*conform.Options)) conform.Report {
	t.Helper()
	report, err := conform.Run(t.Context(), started(t, broken, change))
	require.NoError(t, err)
	require.False(t, report.Interrupted)
	return report
}

// started starts a broken service until the end of the test, and returns what is asked of it.
func started(t *testing.T, broken wrap, change func(*conform.Options)) conform.Options {
	t.Helper()
	text, err := os.ReadFile("orders.openapi.yaml")
	require.NoError(t, err)
	overlay, err := os.ReadFile("orders.gatehouse.yaml")
	require.NoError(t, err)
	d, err := definition.Load(definition.File{Name: "orders.openapi.yaml", Text: text}, definition.Options{
		Overlays: []definition.File{{Name: "orders.gatehouse.yaml", Text: overlay}},
	})
	require.NoError(t, err)
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	signer := upstream.AsserterOptions{Issuer: "gatehouse", Keys: []ed25519.PrivateKey{key}}
	keys, err := upstream.NewAsserter(signer)
	require.NoError(t, err)
	keys.AddAudiences(d.API.Resources(true)...)
	published := httptest.NewServer(keys)
	t.Cleanup(published.Close)
	server := httptest.NewServer(broken(breaker{handler(published.URL), d.API, keys}))
	t.Cleanup(server.Close)
	o := conform.Options{Definition: d, URL: server.URL, A: "17", B: "18", Asserter: signer}
	if change != nil {
		change(&o)
	}
	return o
}

func printed(t *testing.T, report conform.Report) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, report.Print(&out))
	return out.String()
}

func TestConformFindsNothingOnACorrectService(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		for _, write := range []bool{false, true} {
			report := held(t, unbroken, func(o *conform.Options) { o.Seed, o.Write = seed, write })
			require.Empty(t, report.Faults, printed(t, report))
			require.Empty(t, report.Hints, printed(t, report))
		}
	}
}

// A server that compresses names the coding of a response without a body, too. The gateway accepts that.
func TestConformAcceptsACodingWithoutABody(t *testing.T) {
	t.Parallel()
	report := held(t, responses("", func(_ *http.Request, w *httptest.ResponseRecorder) {
		if w.Code == http.StatusNotModified {
			w.Header().Set("Content-Encoding", "gzip")
		}
	}), nil)
	require.Empty(t, report.Faults, printed(t, report))
	require.Empty(t, report.Hints, printed(t, report))
}

func unbroken(b breaker) http.Handler { return b }

func TestAServiceThatIgnoresAssertionsIsNamedOnceForEachOperation(t *testing.T) {
	t.Parallel()
	report := held(t, accepts(func(*http.Request, breaker) bool { return true }), nil)
	operations := map[string]bool{}
	for _, f := range report.Faults {
		require.Equal(t, "assertion", f.Rule, printed(t, report))
		require.Equal(t, "status 401 without a right assertion", f.Expected)
		require.False(t, operations[f.Operation])
		operations[f.Operation] = true
	}
	require.Greater(t, len(operations), 5)
}

func TestConformKeepsItsRate(t *testing.T) {
	t.Parallel()
	const rate = 500
	start := time.Now()
	report := held(t, unbroken, func(o *conform.Options) { o.Rate, o.Write = rate, true })
	require.GreaterOrEqual(t, time.Since(start), time.Duration(report.Requests-1)*time.Second/rate)
}

func TestConformThatIsInterruptedReportsWhatItFound(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := started(t, set("GET /v1/customers", "customers", "name", nil), func(o *conform.Options) {
		o.Progress = func(requests int, _ string) {
			if requests == 20 {
				cancel()
			}
		}
	})
	report, err := conform.Run(ctx, o)
	require.NoError(t, err)
	require.True(t, report.Interrupted)
	require.NotEmpty(t, report.Faults)
	for _, f := range report.Faults {
		require.Equal(t, "schema", f.Rule, "what the interruption caused is not a fault")
	}
	require.Equal(t, 21, report.Requests)
	require.Contains(t, printed(t, report), "Interrupted: not everything was asked.")
}

// is reports whether a request is for an operation, by the method and the beginning of its path.
func is(r *http.Request, target string) bool {
	return strings.HasPrefix(r.Method+" "+r.URL.Path, target)
}

// responses changes responses to an operation.
func responses(target string, change func(*http.Request, *httptest.ResponseRecorder)) wrap {
	return func(b breaker) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			recorded := httptest.NewRecorder()
			b.ServeHTTP(recorded, r)
			if is(r, target) && recorded.Code != http.StatusUnauthorized {
				change(r, recorded)
			}
			maps.Copy(w.Header(), recorded.Header())
			w.WriteHeader(recorded.Code)
			_, _ = w.Write(recorded.Body.Bytes())
		})
	}
}

// requests changes requests for an operation before the correct service gets them.
func requests(target string, change func(*http.Request)) wrap {
	return func(b breaker) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if is(r, target) {
				change(r)
			}
			b.ServeHTTP(w, r)
		})
	}
}

// both breaks requests, and then responses.
func both(first, second wrap) wrap {
	return func(b breaker) http.Handler { return second(breaker{first(b), b.api, b.key}) }
}

// query changes the query of requests.
func query(target string, change func(q map[string][]string)) wrap {
	return requests(target, func(r *http.Request) {
		q := r.URL.Query()
		change(q)
		r.URL.RawQuery = q.Encode()
	})
}

// members changes the body of successful responses.
func members(target string, change func(r *http.Request, body map[string]any)) wrap {
	return responses(target, func(r *http.Request, w *httptest.ResponseRecorder) {
		var body map[string]any
		if w.Code/100 != 2 || json.Unmarshal(w.Body.Bytes(), &body) != nil {
			return
		}
		change(r, body)
		text, _ := json.Marshal(body)
		w.Body = bytes.NewBuffer(text)
	})
}

// records changes each record of a list.
func records(target, list string, change func(record map[string]any)) wrap {
	return members(target, func(_ *http.Request, body map[string]any) {
		items, _ := body[list].([]any)
		for _, item := range items {
			if record, ok := item.(map[string]any); ok {
				change(record)
			}
		}
	})
}

// set sets a member of each record.
func set(target, list, name string, value any) wrap {
	return records(target, list, func(record map[string]any) { record[name] = value })
}

// text replaces a text in successful responses.
func text(target, old, replacement string) wrap {
	return responses(target, func(_ *http.Request, w *httptest.ResponseRecorder) {
		w.Body = bytes.NewBufferString(strings.Replace(w.Body.String(), old, replacement, 1))
	})
}

// head sets a header.
func head(target, name, value string) wrap {
	return responses(target, func(_ *http.Request, w *httptest.ResponseRecorder) { w.Header().Set(name, value) })
}

// instead responds to some requests with a status and body of its own.
func instead(target string, when func(*http.Request) bool, status int, media, body string) wrap {
	return responses(target, func(r *http.Request, w *httptest.ResponseRecorder) {
		if when(r) {
			w.Code, w.Body = status, bytes.NewBufferString(body)
			w.Header().Set("Content-Type", media)
		}
	})
}

func always(*http.Request) bool { return true }

// has reports whether a parameter has a value.
func has(name, value string) func(*http.Request) bool {
	return func(r *http.Request) bool { return slices.Contains(r.URL.Query()[name], value) }
}

// claims are those of an assertion, which nobody has verified, and the key ID.
func claims(r *http.Request) map[string]any {
	all := map[string]any{}
	for part := range strings.SplitSeq(r.Header.Get(upstream.HeaderAssertion), ".") {
		if decoded, err := base64.RawURLEncoding.DecodeString(part); err == nil {
			_ = json.Unmarshal(decoded, &all)
		}
	}
	return all
}

// sign gives a request a right assertion for a business.
func (b breaker) sign(r *http.Request, business string) {
	m, ok := b.api.Match(r.URL.RequestURI())
	if !ok {
		return
	}
	op := m.Path.Operation(r.Method)
	r.Header.Set(upstream.HeaderBusinessID, business)
	if token, err := b.key.Assert(op.Resource, op.ID, business, r.Header.Get(upstream.HeaderRequestID)); err == nil {
		r.Header.Set(upstream.HeaderAssertion, token)
	}
}

// accepts breaks the service so that it takes some assertions that are wrong.
func accepts(when func(r *http.Request, b breaker) bool) wrap {
	return func(b breaker) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if when(r, b) {
				b.sign(r, r.Header.Get(upstream.HeaderBusinessID))
			}
			b.ServeHTTP(w, r)
		})
	}
}

// claimed takes assertions with a claim that differs from what it should be.
func claimed(name string, should func(r *http.Request, b breaker) any) wrap {
	return accepts(func(r *http.Request, b breaker) bool {
		got, ok := claims(r)[name]
		return ok && got != should(r, b)
	})
}

func operation(r *http.Request, b breaker) *upstream.Operation {
	if m, ok := b.api.Match(r.URL.RequestURI()); ok {
		return m.Path.Operation(r.Method)
	}
	return &upstream.Operation{}
}

// leaks serves another business's records, as if they were the caller's, if when says so of the response to the caller.
func leaks(target string, when func(status int) bool, business func(own string) string) wrap {
	return func(b breaker) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			own := r.Header.Get(upstream.HeaderBusinessID)
			body := new(bytes.Buffer)
			_, _ = body.ReadFrom(r.Body)
			recorded := b.recorded(r, body.Bytes())
			if is(r, target) && recorded.Code != http.StatusUnauthorized && when(recorded.Code) {
				b.sign(r, business(own))
				recorded = b.recorded(r, body.Bytes())
				recorded.Body = bytes.NewBufferString(strings.ReplaceAll(recorded.Body.String(), `"account":"`+business(own)+`"`, `"account":"`+own+`"`))
			}
			maps.Copy(w.Header(), recorded.Header())
			w.WriteHeader(recorded.Code)
			_, _ = w.Write(recorded.Body.Bytes())
		})
	}
}

// recorded returns the correct service's response to a request.
func (b breaker) recorded(r *http.Request, body []byte) *httptest.ResponseRecorder {
	recorded := httptest.NewRecorder()
	again := r.Clone(r.Context())
	again.Body = http.NoBody
	if len(body) > 0 {
		again.Body = readCloser{bytes.NewReader(body)}
	}
	b.ServeHTTP(recorded, again)
	return recorded
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

func other(own string) string { return map[string]string{"17": "18", "18": "17"}[own] }

// etags ignores conditions: requests have that which holds.
func etags(b breaker) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			get := httptest.NewRequest(http.MethodGet, r.URL.Path, http.NoBody)
			get.Header.Set(upstream.HeaderRequestID, r.Header.Get(upstream.HeaderRequestID))
			b.sign(get, r.Header.Get(upstream.HeaderBusinessID))
			recorded := httptest.NewRecorder()
			b.ServeHTTP(recorded, get)
			r.Header.Set("If-Match", recorded.Header().Get("ETag"))
		}
		b.ServeHTTP(w, r)
	})
}

// races creates two records if two requests with one Idempotency-Key come at a time.
func races(b breaker) http.Handler {
	var mu sync.Mutex
	seen := map[string]chan struct{}{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		mu.Lock()
		second, ok := seen[key]
		if key != "" && !ok {
			seen[key] = make(chan struct{})
		}
		mine := seen[key]
		mu.Unlock()
		switch {
		case key == "":
		case !ok: // waits for another one
			select {
			case <-mine:
			case <-time.After(20 * time.Millisecond):
			}
			mu.Lock()
			seen[key] = nil
			mu.Unlock()
		case second != nil:
			mu.Lock()
			if seen[key] != nil {
				close(seen[key])
				seen[key] = nil
			}
			mu.Unlock()
			r.Header.Set("Idempotency-Key", key+"-2")
		}
		b.ServeHTTP(w, r)
	})
}

// offsets makes cursors of positions, which move when records are added.
func offsets(broken func(offset int) (from, next int)) wrap {
	return func(b breaker) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !is(r, "GET /v1/orders") || r.URL.Path != "/v1/orders" {
				b.ServeHTTP(w, r)
				return
			}
			q := r.URL.Query()
			limit, _ := strconv.Atoi(q.Get("limit"))
			offset, _ := strconv.Atoi(q.Get("cursor"))
			q.Set("limit", "100")
			q.Del("cursor")
			r.URL.RawQuery = q.Encode()
			recorded := httptest.NewRecorder()
			b.ServeHTTP(recorded, r)
			var body struct {
				Orders []any `json:"orders"`
				Next   any   `json:"next_cursor"`
			}
			_ = json.Unmarshal(recorded.Body.Bytes(), &body)
			from, next := broken(offset)
			if all := body.Orders; recorded.Code == http.StatusOK {
				if next += limit; next < len(all) {
					body.Next = strconv.Itoa(next)
				}
				body.Orders = all[min(from, len(all)):min(from+limit, len(all))]
				text, _ := json.Marshal(body)
				recorded.Body = bytes.NewBuffer(text)
			}
			maps.Copy(w.Header(), recorded.Header())
			w.WriteHeader(recorded.Code)
			_, _ = w.Write(recorded.Body.Bytes())
		})
	}
}

// hijacked writes the response to a list byte for byte.
func hijacked(response string) wrap {
	return func(b breaker) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !is(r, "GET /v1/customers") {
				b.ServeHTTP(w, r)
				return
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = conn.Write([]byte(response))
				_ = conn.Close()
			}
		})
	}
}

func TestConformNamesEachWayInWhichAServiceIsBroken(t *testing.T) {
	t.Parallel()
	const customers, customer, orders, order = "GET /v1/customers", "GET /v1/customers/", "GET /v1/orders", "GET /v1/orders/"
	never := func(string) string { return "17" }
	oldestFirst := members(orders, func(_ *http.Request, body map[string]any) {
		if items, ok := body["orders"].([]any); ok {
			slices.Reverse(items)
		}
	})
	broken := []struct {
		name, rule string
		by         wrap
		change     func(*conform.Options)
	}{
		{"a number instead of a string", "schema", set(orders, "orders", "total", 19.9), nil},
		{"a number as a string", "schema", members(customers, func(_ *http.Request, body map[string]any) { body["total"] = "2" }), nil},
		{"an integer as an ID", "schema", set(customers, "customers", "id", 1), nil},
		{"a missing member", "schema", records(customers, "customers", func(c map[string]any) { delete(c, "email") }), nil},
		{"null", "schema", set(customers, "customers", "name", nil), nil},
		{"null instead of a list", "schema", members(customers, func(_ *http.Request, body map[string]any) { body["customers"] = nil }), nil},
		{"an object instead of a list", "schema", members(orders, func(_ *http.Request, body map[string]any) { body["orders"] = map[string]any{} }), nil},
		{"a list instead of an object", "schema", responses(customers, func(_ *http.Request, w *httptest.ResponseRecorder) {
			w.Body = bytes.NewBufferString("[" + w.Body.String() + "]")
		}), nil},
		{"an empty name", "schema", set(customers, "customers", "name", ""), nil},
		{"an unknown value of an enum", "schema", set(orders, "orders", "status", "new"), nil},
		{"a date in another format", "schema", set(orders, "orders", "created", "05.03.2025"), nil},
		{"a date with an offset", "schema", set(orders, "orders", "created", "2025-03-05T10:30:00+01:00"), nil},
		{"an invalid email address", "schema", set(customers, "customers", "email", "ines"), nil},
		{"a decimal with a comma", "schema", set(orders, "orders", "total", "19,90"), nil},
		{"an empty nested list", "schema", set(orders, "orders", "lines", []any{}), nil},
		{"no cursor member", "schema", members(orders, func(_ *http.Request, body map[string]any) { body["next_cursor"] = false }), nil},
		{"a member twice", "json", text(customers, `{"customers"`, `{"page":1,"customers"`), nil},
		{"invalid UTF-8", "json", text(customers, "Ines", "In\xe9s"), nil},
		{"a byte order mark", "json", text(customers, `{"customers"`, "\ufeff{\"customers\""), nil},
		{"half of the body", "json", responses(customers, func(_ *http.Request, w *httptest.ResponseRecorder) { w.Body.Truncate(w.Body.Len() / 2) }), nil},
		{"something after the body", "json", responses(customers, func(_ *http.Request, w *httptest.ResponseRecorder) { w.Body.WriteString("{}") }), nil},
		{"an empty body", "json", responses(customers, func(_ *http.Request, w *httptest.ResponseRecorder) { w.Body.Reset() }), nil},
		{"a Content-Length that is too large", "connection", hijacked("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{}"), nil},
		{"a body that is not chunked", "connection", hijacked("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{}"), nil},
		{"no HTTP", "connection", hijacked("hello\r\n\r\n"), nil},
		{"no response", "connection", hijacked(""), nil},
		{"a response that takes too long", "connection", requests(customers, func(r *http.Request) { <-r.Context().Done() }), func(o *conform.Options) { o.Timeout = 50 * time.Millisecond }},
		{"another Content-Type", "media-type", head(customers, "Content-Type", "text/plain"), nil},
		{"another charset", "media-type", head(customers, "Content-Type", "application/json; charset=latin1"), nil},
		{"an unknown coding", "media-type", head(customers, "Content-Encoding", "br"), nil},
		{"a coding twice", "media-type", responses(customers, func(_ *http.Request, w *httptest.ResponseRecorder) {
			w.Header()["Content-Encoding"] = []string{"identity", "identity"}
		}), nil},
		{"a coding that the body does not have", "media-type", head(customers, "Content-Encoding", "gzip"), nil},
		{"an error in HTML", "media-type", instead(customer, func(r *http.Request) bool { return len(r.URL.Path) > len("/v1/customers/c-1") }, 404, "text/html", "<h1>404</h1>"), nil},
		{"an error with another body", "schema", instead(customer, func(r *http.Request) bool { return len(r.URL.Path) > len("/v1/customers/c-1") }, 404, "application/problem+json", `{"error":"none"}`), nil},
		{"a redirect", "redirect", both(instead(customers, always, 301, "text/html", ""), head(customers, "Location", "/v1/customers/")), nil},
		{"an undocumented status", "status", instead(customers, always, 206, "application/json", "{}"), nil},
		{"no content", "status", instead(orders, always, 204, "", ""), nil},
		{"an error for everything", "status", instead(customers, always, 500, "application/json", "{}"), nil},
		{"an error for the last page", "parameter", instead(customers, has("page", "1000"), 500, "application/json", "{}"), nil},
		{"a smaller bound of pages", "parameter", instead(customers, has("per_page", "100"), 400, "application/json", "{}"), nil},
		{"an error for a filter", "parameter", instead(orders, has("status", "paid"), 500, "application/json", "{}"), nil},
		{"a filter that is ignored", "filter", query(orders, func(q map[string][]string) { delete(q, "status") }), nil},
		{"a filter that loses records", "filter", query(orders, func(q map[string][]string) {
			if len(q["status"]) > 0 {
				q["status"] = []string{"cancelled"}
			}
		}), nil},
		{"oldest first", "order", oldestFirst, nil},
		{"oldest first, and a wrong member in each", "order", both(set(orders, "orders", "total", 19.9), oldestFirst), nil},
		{"a record of another business after 55 with a wrong member", "tenant", members(orders, func(r *http.Request, body map[string]any) {
			items, _ := body["orders"].([]any)
			for i := 0; len(items) > 0 && has("limit", "100")(r) && i < 56; i++ {
				wrong := map[string]any{}
				own, _ := items[0].(map[string]any)
				maps.Copy(wrong, own)
				wrong["id"], wrong["total"], wrong["account"] = fmt.Sprint("o-1", i), 19.9, strconv.Itoa(17+i/55)
				items = append(items, wrong)
			}
			body["orders"] = items
		}), nil},
		{"more records than were asked for", "at-most", query(customers, func(q map[string][]string) { q["per_page"] = []string{"100"} }), nil},
		{"another page than was asked for", "page-echo", query(customers, func(q map[string][]string) { q["page"] = []string{"1"} }), nil},
		{"a total of the page", "paging", members(customers, func(_ *http.Request, body map[string]any) {
			items, _ := body["customers"].([]any)
			body["total"] = len(items)
		}), nil},
		{"the first page for every page", "paging", both(query(customers, func(q map[string][]string) { q["page"] = []string{"1"} }), echo(customers)), nil},
		{"pages that skip a record", "paging", both(query(customers, func(q map[string][]string) {
			if q["page"][0] != "1" {
				q["page"] = []string{plus(q["page"], 1)}
			}
		}), echo(customers)), nil},
		{"the last page past the end", "paging", both(query(customers, func(q map[string][]string) {
			if len(plus(q["page"], 0)) > 1 {
				q["page"] = []string{"2"}
			}
		}), echo(customers)), nil},
		{"a cursor that does not move", "cursor", query(orders, func(q map[string][]string) { delete(q, "cursor") }), nil},
		{"a cursor that skips a record", "cursor", offsets(func(n int) (int, int) { return n + min(n, 1), n }), nil},
		{"a cursor at the end", "cursor", members(orders, func(_ *http.Request, body map[string]any) {
			if body["next_cursor"] == nil {
				body["next_cursor"] = "o-0"
			}
		}), nil},
		{"a record of another business in a list", "tenant", set(orders, "orders", "account", "18"), nil},
		{"a record without its business", "tenant", records(customers, "customers", func(c map[string]any) { delete(c, "account") }), nil},
		{"a record of another business by ID", "tenant", members(customer, func(_ *http.Request, body map[string]any) { body["account"] = "19" }), nil},
		{"the same list for everybody", "isolation", leaks(customers, func(int) bool { return true }, never), nil},
		{"the records that a cursor is of", "isolation", func(b breaker) http.Handler {
			leaky := leaks(orders, func(int) bool { return true }, func(string) string { return "17" })(b)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Has("cursor") {
					leaky.ServeHTTP(w, r)
					return
				}
				b.ServeHTTP(w, r)
			})
		}, nil},
		{"everybody's records by ID", "isolation", leaks(customer, func(status int) bool { return status == 404 }, other), nil},
		{"everybody's records by ID, with their business", "isolation", readable, nil},
		{"another record than was asked for", "record", members(order, func(_ *http.Request, body map[string]any) { body["id"] = "o-9" }), nil},
		{"a record of a list that is not found", "record", instead(order, always, 404, "application/problem+json", `{"title":"none"}`), nil},
		{"a record for every ID", "unknown-id", invented, nil},
		{"an error for an ID that does not exist", "unknown-id", instead(customer, func(r *http.Request) bool { return len(r.URL.Path) > len("/v1/customers/c-1") }, 500, "text/html", ""), nil},
		{"records for an unknown business", "unknown-business", leaks(customers, func(int) bool { return true }, func(own string) string {
			if other(own) == "" {
				return "17"
			}
			return own
		}), nil},
		{"an error for an unknown business", "unknown-business", instead(orders, func(r *http.Request) bool {
			return other(r.Header.Get(upstream.HeaderBusinessID)) == ""
		}, 500, "text/plain", "none"), nil},
		{"a default business", "unknown-business", func(b breaker) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get(upstream.HeaderBusinessID) == "" {
					b.sign(r, "17")
				}
				b.ServeHTTP(w, r)
			})
		}, nil},
		{"a request ID of its own", "request-id", head(customers, "X-Request-Id", "7"), nil},
		{"an ETag without quotes", "header", head(order, "ETag", "1"), nil},
		{"no ETag", "conditional", responses(order, func(_ *http.Request, w *httptest.ResponseRecorder) { w.Header().Del("ETag") }), nil},
		{"If-None-Match ignored", "conditional", requests(order, func(r *http.Request) { r.Header.Del("If-None-Match") }), nil},
		{"401 for right assertions", "assertion", instead(customers, always, 401, "text/plain", ""), nil},
		{"403 for wrong assertions", "assertion", func(b breaker) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				recorded := httptest.NewRecorder()
				if b.ServeHTTP(recorded, r); recorded.Code == http.StatusUnauthorized {
					recorded.Code = http.StatusForbidden
				}
				maps.Copy(w.Header(), recorded.Header())
				w.WriteHeader(recorded.Code)
				_, _ = w.Write(recorded.Body.Bytes())
			})
		}, nil},
		{"requests without an assertion", "assertion", accepts(func(r *http.Request, _ breaker) bool { return r.Header.Get(upstream.HeaderAssertion) == "" }), nil},
		{"forged assertions", "assertion", accepts(func(r *http.Request, b breaker) bool {
			c := claims(r)
			return c["iss"] == "gatehouse" && c["jti"] == r.Header.Get(upstream.HeaderRequestID) && c["op"] == operation(r, b).ID
		}), nil},
		{"assertions of any key", "assertion", accepts(func(r *http.Request, b breaker) bool {
			right, _ := b.key.Assert(upstream.ConnectAudience, "", "1", "1")
			kid, _, _ := strings.Cut(right, ".")
			got, _, _ := strings.Cut(r.Header.Get(upstream.HeaderAssertion), ".")
			return got != "" && got != kid
		}), nil},
		{"expired assertions", "assertion", accepts(func(r *http.Request, _ breaker) bool {
			exp, _ := claims(r)["exp"].(float64)
			return exp > 0 && int64(exp) < time.Now().Unix()
		}), nil},
		{"assertions that have just expired", "assertion", accepts(func(r *http.Request, _ breaker) bool {
			exp, _ := claims(r)["exp"].(float64)
			return exp > 0 && int64(exp) < time.Now().Unix() && int64(exp) > time.Now().Unix()-60
		}), nil},
		{"assertions of no algorithm", "assertion", accepts(func(r *http.Request, _ breaker) bool { return claims(r)["alg"] == "none" }), nil},
		{"assertions of no algorithm, in another case", "assertion", accepts(func(r *http.Request, _ breaker) bool {
			return claims(r)["alg"] != "none" && strings.EqualFold(fmt.Sprint(claims(r)["alg"]), "none")
		}), nil},
		{"assertions without a signature", "assertion", accepts(func(r *http.Request, _ breaker) bool {
			return claims(r)["alg"] == "EdDSA" && strings.HasSuffix(r.Header.Get(upstream.HeaderAssertion), ".")
		}), nil},
		{"assertions signed with the public key", "assertion", accepts(func(r *http.Request, b breaker) bool {
			recorded := httptest.NewRecorder()
			b.key.ServeHTTP(recorded, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			var published struct{ Keys []struct{ X string } }
			_ = json.Unmarshal(recorded.Body.Bytes(), &published)
			public, _ := base64.RawURLEncoding.DecodeString(published.Keys[0].X)
			signed, signature := r.Header.Get(upstream.HeaderAssertion), ""
			if i := strings.LastIndexByte(signed, '.'); i > 0 {
				signed, signature = signed[:i], signed[i+1:]
			}
			mac := hmac.New(sha256.New, public)
			_, _ = mac.Write([]byte(signed))
			return signature == base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
		}), nil},
		{"assertions of another type", "assertion", accepts(func(r *http.Request, _ breaker) bool { return claims(r)["typ"] == "JWT" }), nil},
		{"assertions that are valid for long", "assertion", accepts(func(r *http.Request, _ breaker) bool {
			exp, _ := claims(r)["exp"].(float64)
			iat, _ := claims(r)["iat"].(float64)
			return exp > float64(time.Now().Unix()) && exp-iat > 60
		}), nil},
		{"assertions for no operation", "assertion", accepts(func(r *http.Request, _ breaker) bool {
			c := claims(r)
			return c["sub"] != nil && c["op"] == nil
		}), nil},
		{"assertions for another resource", "assertion", accepts(func(r *http.Request, b breaker) bool {
			return claims(r)["aud"] != operation(r, b).Resource && slices.Contains([]any{"orders", "customers"}, claims(r)["aud"])
		}), nil},
		{"assertions of the future", "assertion", accepts(func(r *http.Request, _ breaker) bool {
			nbf, _ := claims(r)["nbf"].(float64)
			return int64(nbf) > time.Now().Unix()+20
		}), nil},
		{"assertions for another service", "assertion", claimed("aud", func(r *http.Request, b breaker) any { return operation(r, b).Resource }), nil},
		{"assertions of another gateway", "assertion", claimed("iss", func(*http.Request, breaker) any { return "gatehouse" }), nil},
		{"assertions for another business", "assertion", claimed("sub", func(r *http.Request, _ breaker) any { return r.Header.Get(upstream.HeaderBusinessID) }), nil},
		{"assertions for another request", "assertion", claimed("jti", func(r *http.Request, _ breaker) any { return r.Header.Get(upstream.HeaderRequestID) }), nil},
		{"assertions for any operation of the API", "assertion", accepts(func(r *http.Request, b breaker) bool {
			return slices.ContainsFunc(b.api.Operations(), func(op *upstream.Operation) bool { return op.ID == claims(r)["op"] && op != operation(r, b) })
		}), nil},
		{"assertions for another operation", "assertion", claimed("op", func(r *http.Request, b breaker) any { return operation(r, b).ID }), nil},

		{"an undocumented member", "undocumented", set(orders, "orders", "weight", 3), nil},
		{"no X-Request-Id", "no-request-id", responses("", func(_ *http.Request, w *httptest.ResponseRecorder) { w.Header().Del("X-Request-Id") }), nil},
		{"a compressed body", "compressed", responses(customers, func(_ *http.Request, w *httptest.ResponseRecorder) {
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			_, _ = z.Write(w.Body.Bytes())
			_ = z.Close()
			w.Body = &packed
			w.Header().Set("Content-Encoding", "gzip")
		}), nil},

		{"an Idempotency-Key that is ignored", "idempotency", requests("POST", func(r *http.Request) { r.Header.Del("Idempotency-Key") }), writing},
		{"409 for a repeated request", "idempotency", repeated, writing},
		{"a race between two requests with one key", "idempotency", races, writing},
		{"a lost update", "precondition", etags, writing},
		{"no ETag to change a record with", "header", responses(order, func(_ *http.Request, w *httptest.ResponseRecorder) { w.Header().Del("ETag") }), writing},
		{"changes by another business", "isolation", leaks("PATCH", func(status int) bool { return status == 404 }, other), writing},
		{"records that name another business's", "isolation", leaks("POST /v1/orders", func(status int) bool { return status == 422 }, other), writing},
		{"one Idempotency-Key for all businesses", "isolation", sharedKeys, writing},
		{"records that are not listed", "create", hides, writing},
		{"200 for what was created", "status", instead("POST /v1/customers", always, 200, "application/json", "{}"), writing},
		{"another Location", "header", head("POST /v1/customers", "Location", "http://orders.internal/1"), writing},
		{"a created record without a member", "schema", members("POST /v1/customers", func(_ *http.Request, body map[string]any) { delete(body, "name") }), writing},
		{"a created record of another business", "tenant", members("POST /v1/orders", func(_ *http.Request, body map[string]any) { body["account"] = "18" }), writing},
		{"cursors that are positions", "cursor", offsets(func(n int) (int, int) { return n, n }), writing},
	}
	require.GreaterOrEqual(t, len(broken), 40)
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			report := held(t, b.by, b.change)
			named := slices.ContainsFunc(slices.Concat(report.Faults, report.Hints), func(f conform.Finding) bool { return f.Rule == b.rule })
			assert.True(t, named, printed(t, report))
			for _, f := range slices.Concat(report.Faults, report.Hints) {
				assert.NotEmpty(t, f.Fix)
				assert.NotEmpty(t, f.Expected)
				assert.NotEmpty(t, f.Got)
			}
		})
	}
}

func writing(o *conform.Options) { o.Write = true }

// echo sends back the page that was asked for.
func echo(target string) wrap {
	return func(b breaker) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			page, _ := strconv.Atoi(r.URL.Query().Get("page"))
			members(target, func(_ *http.Request, body map[string]any) { body["page"] = page })(b).ServeHTTP(w, r)
		})
	}
}

func plus(values []string, n int) string {
	page, _ := strconv.Atoi(strings.Join(values, ""))
	return strconv.Itoa(page + n)
}

// readable serves a record by its ID, whose ever it is.
func readable(b breaker) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorded := httptest.NewRecorder()
		own := r.Header.Get(upstream.HeaderBusinessID)
		again := r.Clone(r.Context())
		if b.ServeHTTP(recorded, r); is(r, "GET /v1/customers/") && recorded.Code == http.StatusNotFound {
			b.sign(again, other(own))
			recorded = httptest.NewRecorder()
			b.ServeHTTP(recorded, again)
		}
		maps.Copy(w.Header(), recorded.Header())
		w.WriteHeader(recorded.Code)
		_, _ = w.Write(recorded.Body.Bytes())
	})
}

// invented serves a record for every ID.
func invented(b breaker) http.Handler {
	return responses("GET /v1/customers/", func(r *http.Request, w *httptest.ResponseRecorder) {
		if w.Code == http.StatusNotFound {
			text, _ := json.Marshal(customer{ID: strings.TrimPrefix(r.URL.Path, "/v1/customers/"), Account: r.Header.Get(upstream.HeaderBusinessID), Name: "X", Email: "x@x.example"})
			w.Code, w.Body = http.StatusOK, bytes.NewBuffer(text)
			w.Header().Set("Content-Type", "application/json")
		}
	})(b)
}

// repeated rejects the second request with one Idempotency-Key.
func repeated(b breaker) http.Handler {
	var seen sync.Map
	return responses("POST", func(r *http.Request, w *httptest.ResponseRecorder) {
		if _, again := seen.LoadOrStore(r.Header.Get("Idempotency-Key"), true); again && r.Header.Get("Idempotency-Key") != "" {
			w.Code, w.Body = http.StatusConflict, bytes.NewBufferString(`{"title":"again"}`)
			w.Header().Set("Content-Type", "application/problem+json")
		}
	})(b)
}

// sharedKeys repeats the response to an Idempotency-Key for all businesses.
func sharedKeys(b breaker) http.Handler {
	var seen sync.Map
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorded := httptest.NewRecorder()
		key := r.URL.Path + r.Header.Get("Idempotency-Key")
		if first, ok := seen.Load(key); ok && r.Method == http.MethodPost {
			recorded, _ = first.(*httptest.ResponseRecorder)
		} else if b.ServeHTTP(recorded, r); r.Header.Get("Idempotency-Key") != "" && recorded.Code < 300 {
			seen.Store(key, recorded)
		}
		maps.Copy(w.Header(), recorded.Header())
		w.Header().Set(upstream.HeaderRequestID, r.Header.Get(upstream.HeaderRequestID))
		w.WriteHeader(recorded.Code)
		_, _ = w.Write(recorded.Body.Bytes())
	})
}

// hides leaves what was created out of lists.
func hides(b breaker) http.Handler {
	return members("GET /v1/customers", func(_ *http.Request, body map[string]any) {
		items, _ := body["customers"].([]any)
		body["customers"] = slices.DeleteFunc(items, func(item any) bool {
			record, ok := item.(map[string]any)
			return ok && fmt.Sprint(record["name"]) == "example"
		})
	})(b)
}

// TestConformShowsNoValuesUnlessAsked looks for all values of the records of a service in which everything is wrong.
func TestConformShowsNoValuesUnlessAsked(t *testing.T) {
	t.Parallel()
	spoil := records("GET /v1", "customers", func(c map[string]any) {
		c["email"], c["name"], c["secret_name"] = "not-an-address-7391", 7391, "secret-7391"
	})
	spoil = both(spoil, head("GET /v1/orders/", "ETag", "etag-7391"))
	spoil = both(spoil, head("GET /v1/orders", "Content-Type", "text/7391"))
	for _, values := range []bool{false, true} {
		report := held(t, spoil, func(o *conform.Options) { o.ShowValues = values })
		require.NotEmpty(t, report.Faults)
		var encoded bytes.Buffer
		require.NoError(t, report.EncodeJSON(&encoded))
		for _, out := range []string{printed(t, report), encoded.String()} {
			assert.Equal(t, values, strings.Contains(out, "not-an-address-7391"))
			if !values {
				assert.NotRegexp(t, `7391"|c-1|c-2|o-1|o-3|19\.90|example\.com`, strings.ReplaceAll(out, "text/7391", ""))
			}
		}
	}
}
