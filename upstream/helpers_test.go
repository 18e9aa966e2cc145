package upstream_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// The authenticated business of the tests, and another.
const (
	mine   = "biz_7f3a"
	theirs = "biz_9c1e"
)

// patience limits each wait. It is long because other tests use the processors too.
const patience = time.Minute

func testClock() time.Time { return time.Date(2026, 3, 5, 14, 30, 0, 0, time.UTC) }

// object is a JSON object whose members keep their order.
type object []member

type member struct{ name, value string } // value is JSON

func parse(text string) object {
	d := jsontext.NewDecoder(strings.NewReader(text))
	var o object
	for {
		token, err := d.ReadToken()
		if err != nil {
			panic(err)
		}
		switch token.Kind() {
		case '{':
		case '}':
			return o
		default:
			name := token.String()
			value, err := d.ReadValue()
			if err != nil {
				panic(err)
			}
			o = append(o, member{name, string(value)})
		}
	}
}

// with returns a copy with other values, given as names and JSON. New members are appended.
func (o object) with(members ...string) object {
	c := slices.Clone(o)
	for m := range slices.Chunk(members, 2) {
		if i := slices.IndexFunc(c, func(p member) bool { return p.name == m[0] }); i >= 0 {
			c[i].value = m[1]
		} else {
			c = append(c, member{m[0], m[1]})
		}
	}
	return c
}

func (o object) without(names ...string) object {
	return slices.DeleteFunc(slices.Clone(o), func(m member) bool { return slices.Contains(names, m.name) })
}

func (o object) String() string {
	texts := make([]string, len(o))
	for i, m := range o {
		texts[i] = quoted(m.name) + ":" + m.value
	}
	return "{" + strings.Join(texts, ",") + "}"
}

// audiences returns the names of the contract's resources.
func audiences() (names []string) {
	for _, res := range resources() {
		names = append(names, res.Name)
	}
	return names
}

// query returns a query with the values of the parameters that are numbers.
func query(numbers ...int) (q upstream.Query) {
	copy(q.Numbers[:], numbers)
	return q
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

// instant is i hours before testClock: records made for rising i are newest first.
func instant(i int) string {
	return quoted(testClock().Add(-time.Duration(i) * time.Hour).Format(time.RFC3339))
}

func uuid(i int) string { return quoted(fmt.Sprintf("0190f3a2-7c4b-7d11-9e55-%012x", i)) }

// event is a published event as a data service sends it.
func event(i int) object {
	return parse(`{"id":0,"business_id":"biz_7f3a","status":"published","published_at":null,"created_at":null,
		"title":"Spring workshop: caring for old timber frames",
		"description":"An afternoon in the yard. We look at joints, at rot and at what can be mended without replacing the beam; bring gloves. Coffee and cake are on us, and there is room for twelve people.",
		"url":"https://www.example.com/events/spring-workshop","type":"multi-day",
		"schedule":[{"date":"2026-04-11","start_time":"09:00","end_time":"16:30"},{"date":"2026-04-12","start_time":"09:00","end_time":"12:00"}],
		"location_type":"in-person","venue":"The Old Yard","address":"12 Harbour Street, Lübeck","virtual_link":null,"is_free":false,
		"image_url":"https://cdn.example.com/i/9f/spring.jpg",
		"media":[{"url":"https://cdn.example.com/i/9f/yard.jpg","file_type":"image","caption":"The yard in spring","featured":true}]}`,
	).with("id", uuid(i), "published_at", instant(i), "created_at", instant(i+24))
}

// invoice is an invoice as a data service sends it.
func invoice(i int) object {
	return parse(`{"id":0,"business_id":"biz_7f3a","invoice_number":"INV-10500","title":"Roof repair, second part","status":"sent",
		"subtotal":"8724.00","discount_type":"percent","discount_value":"5.00","tax_rate":"8.25","tax_amount":"747.88",
		"total_amount":"9471.88","paid_amount":"0.00","due_at":"2026-04-04T14:30:00Z","issued_at":null,"sent_at":null,"paid_at":null,
		"created_at":null,"updated_at":null}`,
	).with("id", uuid(i), "issued_at", instant(i), "sent_at", instant(i), "created_at", instant(i), "updated_at", instant(i))
}

// contact is a contact as a data service sends it.
func contact(i int) object {
	return parse(`{"id":0,"business_id":"biz_7f3a","first_name":"Ada","last_name":"Lindqvist","email":"ada.lindqvist@example.com",
		"phone_number":"5550142","country_code":"+46","contact_type":"customer","contact_status":"active","notes":null,
		"date_created":null,"date_modified":null}`,
	).with("id", fmt.Sprint(4000+i), "date_created", instant(i), "date_modified", instant(i))
}

// bare is a record with only what every record needs.
func bare(i int) object {
	return object{{"id", uuid(i)}, {"business_id", quoted(mine)}, {"created_at", instant(i)}}
}

// records makes n records, newest first.
func records(n int, one func(int) object) []object {
	out := make([]object, n)
	for i := range out {
		out[i] = one(i)
	}
	return out
}

func array(records ...object) string {
	texts := make([]string, len(records))
	for i, r := range records {
		texts[i] = r.String()
	}
	return "[" + strings.Join(texts, ",") + "]"
}

// response is a data service's response with a list of records: page 1 of 25 if the resource is paginated.
func response(resource string, rs ...object) string {
	if resource == "events" {
		return `{"events":` + array(rs...) + `}`
	}
	return fmt.Sprintf(`{%q:%s,"pagination":{"current_page":1,"per_page":25,"total_items":%d,"total_pages":1}}`,
		resource, array(rs...), len(rs))
}

// check runs Check for the business mine and checks what is promised for every response.
func check(t testing.TB, c *upstream.Contract, resource, query, body string) (string, upstream.Report, error) {
	t.Helper()
	res := byName(resource)
	q, err := res.CleanQuery(query)
	require.NoError(t, err)
	given := []byte(body)
	dst := bytes.NewBufferString("before")
	report, err := res.check(c, dst, q, mine, given)
	require.Equal(t, body, string(given), "the caller's body has changed")
	out, kept := strings.CutPrefix(dst.String(), "before")
	require.True(t, kept, "what was in dst has changed")
	if err != nil {
		require.ErrorIs(t, err, upstream.ErrContractViolation)
		require.Empty(t, out, "a result in spite of the error")
		var cerr *upstream.ContractError
		require.ErrorAs(t, err, &cerr)
		require.Equal(t, resource, cerr.Resource)
		return "", report, err
	}
	require.True(t, json.Valid([]byte(out)), out)
	return out, report, nil
}

// decode reads a JSON object with the standard library.
func decode(t testing.TB, text []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var doc map[string]any
	require.NoError(t, d.Decode(&doc))
	return doc
}

func asArray(v any) []any {
	a, _ := v.([]any)
	return a
}

func asObject(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

const issuer = "https://api.example.com"

// testKey is a key that is the same in every run.
func testKey(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func publicKey(n byte) ed25519.PublicKey {
	return ed25519.PublicKey(testKey(n)[ed25519.SeedSize:])
}

func kidOf(t testing.TB, n byte) string {
	t.Helper()
	kid, err := upstream.KeyID(publicKey(n))
	require.NoError(t, err)
	return kid
}

// asserter signs with testKey(1), unless keys names others.
func asserter(t testing.TB, keys ...byte) *upstream.Asserter {
	t.Helper()
	if len(keys) == 0 {
		keys = []byte{1}
	}
	o := upstream.AsserterOptions{Audiences: audiences(), Issuer: issuer, Now: testClock}
	for _, n := range keys {
		o.Keys = append(o.Keys, testKey(n))
	}
	a, err := upstream.NewAsserter(o)
	require.NoError(t, err)
	return a
}

// jwks returns the key set that an Asserter publishes.
func jwks(a *upstream.Asserter) []byte {
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/keys", http.NoBody))
	return w.Body.Bytes()
}

// verifier accepts assertions signed with some of the test keys, by default testKey(1).
func verifier(t testing.TB, audience string, keys ...byte) *upstream.AssertionVerifier {
	t.Helper()
	if len(keys) == 0 {
		keys = []byte{1}
	}
	known := upstream.StaticKeys{}
	for _, n := range keys {
		known[kidOf(t, n)] = publicKey(n)
	}
	return &upstream.AssertionVerifier{Issuer: issuer, Audience: audience, Keys: known, Now: testClock}
}

// assertion returns an assertion for the business mine and the request req-1.
func assertion(t testing.TB, a *upstream.Asserter, resource string) string {
	t.Helper()
	token, err := a.Assert(resource, "", mine, "req-1")
	require.NoError(t, err)
	return token
}
