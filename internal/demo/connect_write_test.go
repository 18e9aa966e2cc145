package demo

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestARepeatedWriteIsDoneOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "demo.db")
	var at clock
	s := connected(t, path, Options{Now: at.now})
	c := caller(t, s, owner())
	key := []string{HeaderIdempotencyKey, "key-1"}
	body := `{"first_name":"Once","notes":"n","contact_type":"customer"}`
	first := c.do("POST", "contacts", body, key...)
	require.Equal(t, http.StatusCreated, first.Code)
	require.Empty(t, first.Header().Get(HeaderReplayed))
	again := func(c *as, body string) {
		t.Helper()
		w := c.do("POST", "contacts", body, key...)
		require.Equal(t, http.StatusCreated, w.Code)
		require.Equal(t, first.Body.String(), w.Body.String())
		require.Equal(t, "true", w.Header().Get(HeaderReplayed))
		require.Len(t, c.all("contacts?query=once", 100), 1)
	}
	again(c, body)
	again(c, ` { "contact_type" : "customer", "notes":"\u006e", "first_name":"Once" } `)
	c.ok("PATCH", "contacts/"+jsonID(record(t, decode(t, first), "contact")["id"]), `{"notes":"changed since"}`)
	again(c, body)

	require.NoError(t, s.Close())
	s = connected(t, path, Options{Now: at.now})
	c = caller(t, s, owner())
	again(c, body)

	for _, other := range [][3]string{
		{"POST", "contacts", `{"first_name":"Once"}`}, {"POST", "receptionist/faqs", body}, {"PATCH", "contacts/1", body}, {"DELETE", "contacts/1", ""},
	} {
		c.rejected(http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED", other[0], other[1], other[2], key...)
	}
	for _, a := range []Account{member(), stranger()} { // have keys of their own
		w := caller(t, s, a).do("POST", "contacts", body, key...)
		assert.Equal(t, http.StatusCreated, w.Code)
		assert.Empty(t, w.Header().Get(HeaderReplayed))
	}

	at.advance(23*time.Hour + 59*time.Minute)
	require.Equal(t, "true", c.do("POST", "contacts", body, key...).Header().Get(HeaderReplayed))
	at.advance(2 * time.Minute)
	w := c.do("POST", "contacts", body, key...)
	assert.Empty(t, w.Header().Get(HeaderReplayed), "a day is over")
	assert.NotEqual(t, first.Body.String(), w.Body.String())
	require.Len(t, texts(t, s, "SELECT key FROM idempotency_keys"), 1, "expired responses are deleted")
}

func TestRepeatsCompareLargeNumbersExactly(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	pet := func(n int) string {
		return fmt.Sprintf(`{"fields":{"name":"A","species":"dog","owner":{"name":"N","contact_id":%d}}}`, n)
	}
	c.ok("POST", "objects/pets", pet(9007199254740993), HeaderIdempotencyKey, "k")
	c.rejected(http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED", "POST", "objects/pets", pet(9007199254740992), HeaderIdempotencyKey, "k")
}

func TestConcurrentWritesAreDoneOnceEach(t *testing.T) {
	t.Parallel()
	for _, path := range []string{Memory, ""} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			c := caller(t, connected(t, path, Options{}), owner())
			repeats := concurrently(20, func(int) *httptest.ResponseRecorder {
				return c.do("POST", "contacts", `{"first_name":"Raced"}`, HeaderIdempotencyKey, "the-same")
			})
			fresh := 0
			for _, w := range repeats {
				require.Equal(t, http.StatusCreated, w.Code, "%s", w.Body)
				require.Equal(t, repeats[0].Body.String(), w.Body.String())
				if w.Header().Get(HeaderReplayed) == "" {
					fresh++
				}
			}
			require.Equal(t, 1, fresh)

			others := concurrently(20, func(i int) *httptest.ResponseRecorder {
				if i%2 == 1 {
					return c.do("GET", "contacts?query=raced", "")
				}
				return c.do("POST", "contacts", `{"first_name":"Raced"}`)
			})
			assert.Equal(t, slices.Concat(slices.Repeat([]int{200}, 10), slices.Repeat([]int{201}, 10)), codes(others))
			require.Len(t, c.all("contacts?query=raced", 100), 11)
		})
	}
}

func TestARejectedWriteKeepsNoKey(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	key := []string{HeaderIdempotencyKey, "again"}
	c.rejected(http.StatusUnprocessableEntity, "INVALID", "POST", "contacts", `{"first_name":""}`, key...)
	c.rejected(http.StatusNotFound, "NOT_FOUND", "DELETE", "contacts/1", "", key...)
	made := record(t, c.ok("POST", "contacts", `{"first_name":"Corrected"}`, key...), "contact")

	gone := []string{HeaderIdempotencyKey, "delete"}
	path := "contacts/" + jsonID(made["id"])
	for range 2 { // the retry learns that it is done
		assert.Equal(t, map[string]any{"deleted": true, "id": made["id"]}, c.ok("DELETE", path, "", gone...))
	}
	c.notFound("DELETE", path, "")

	// A stored response is returned only to callers that are still allowed to make the call.
	execute(t, s, "UPDATE accounts SET role = 'member' WHERE id = ?", owner().ID)
	c.rejected(http.StatusForbidden, "FORBIDDEN", "DELETE", path, "", gone...)
	execute(t, s, "UPDATE accounts SET status = 'disabled' WHERE id = ?", owner().ID)
	c.rejected(http.StatusForbidden, "UNKNOWN_ACCOUNT", "DELETE", path, "", gone...)
}

func TestEveryWriteNeedsAKey(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	writes(t, func(rt route, path, body string) {
		for _, key := range []string{"", "two words", strings.Repeat("k", 256), "schlüssel"} {
			problems := c.rejected(http.StatusBadRequest, "INVALID_REQUEST", rt.method, path, body, HeaderIdempotencyKey, key)
			assert.Contains(t, problems, HeaderIdempotencyKey)
		}
	})
}

func TestAnOldVersionIsNotOverwritten(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	faq := "receptionist/faqs/" + ids(c.all("receptionist/faqs", 100))[0]
	service := "receptionist/services/" + ids(c.all("receptionist/services", 100))[0]
	pet := "objects/pets/" + ids(c.all("objects/pets", 100))[0]
	contact := "contacts/" + jsonID(c.made("contacts", "contact", `{"first_name":"V"}`)["id"])
	for _, w := range []struct{ method, path, body, read string }{
		{"PATCH", "business", `{"name":"N"}`, "business"},
		{"PUT", "business/hours", `{"hours":[]}`, "business/hours"},
		{"PUT", "business/service-areas", `{"service_areas":[]}`, "business/service-areas"},
		{"PATCH", "receptionist/personality", `{"name":"N"}`, "receptionist"},
		{"PUT", "receptionist/rules", `{"rules":[]}`, "receptionist"},
		{"PATCH", contact, `{"notes":"n"}`, contact},
		{"PUT", faq, `{"question":"Q?","answer":"A"}`, faq},
		{"PUT", service, `{"name":"S"}`, service},
		{"PATCH", pet, `{"fields":{"friendly":true}}`, pet},
	} {
		version := func(answer map[string]any) string {
			for _, one := range answer {
				if one, ok := one.(map[string]any); ok && one["version"] != nil {
					answer = one
				}
			}
			return fmt.Sprintf(`"%v"`, answer["version"])
		}
		now := version(c.get(w.read))
		next := version(c.ok(w.method, w.path, w.body, "If-Match", now))
		require.NotEqual(t, now, next, w.path)
		problems := c.rejected(http.StatusPreconditionFailed, "VERSION_MISMATCH", w.method, w.path, w.body, "If-Match", now)
		require.Contains(t, problems["If-Match"], "allowed: "+next)
		require.Equal(t, next, version(c.get(w.read)))
		for _, wrong := range []string{"2", `W/"2"`, "*", `"x"`, `"0"`, `"-1"`, `""`} {
			c.rejected(http.StatusBadRequest, "INVALID_REQUEST", w.method, w.path, w.body, "If-Match", wrong)
		}
	}
	for _, path := range []string{contact, faq, service, pet} {
		c.rejected(http.StatusPreconditionFailed, "VERSION_MISMATCH", "DELETE", path, "", "If-Match", `"1"`)
		c.ok("DELETE", path, "", "If-Match", `"2"`)
	}
	c.rejected(http.StatusBadRequest, "INVALID_REQUEST", "POST", "contacts", `{"first_name":"V"}`, "If-Match", `"1"`)
}

func TestOneOfConcurrentWritersToAVersionWins(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	contact := "contacts/" + jsonID(c.made("contacts", "contact", `{"first_name":"Fought over"}`)["id"])
	all := concurrently(10, func(i int) *httptest.ResponseRecorder {
		return c.do("PATCH", contact, fmt.Sprintf(`{"notes":"writer %d"}`, i), "If-Match", `"1"`)
	})
	assert.Equal(t, append([]int{http.StatusOK}, slices.Repeat([]int{http.StatusPreconditionFailed}, 9)...), codes(all))
	assert.InDelta(t, 2, c.one(contact, "contact")["version"], 0)
}

func TestAPatchLeavesOtherFields(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "demo.db")
	s := connected(t, path, Options{})
	c := caller(t, s, owner())
	made := c.made("contacts", "contact", `{"first_name":"  Ana  ","last_name":"Lund","email":"ana@example.com","phone_number":"6085550111",
		"country_code":"+1","notes":" line one\r\nline two\t. "}`)
	require.Equal(t, map[string]any{
		"id": made["id"], "business_id": owner().BusinessID, "first_name": "Ana", "last_name": "Lund", "email": "ana@example.com",
		"phone_number": "6085550111", "country_code": "+1", "contact_type": "lead", "contact_status": "active", "notes": "line one\nline two\t.",
		"date_created": instant(testNow), "date_modified": instant(testNow), "version": 1.0,
	}, made)
	id := "contacts/" + jsonID(made["id"])
	made["email"], made["contact_type"], made["version"] = nil, "customer", 2.0
	require.Equal(t, made, record(t, c.ok("PATCH", id, `{"email":null,"contact_type":"customer"}`), "contact"))

	require.NoError(t, s.Close())
	s = connected(t, path, Options{})
	require.Equal(t, made, caller(t, s, owner()).one(id, "contact"), "after a restart")
	delete(made, "version")
	require.Equal(t, made, records(t, get(t, s, owner().BusinessID, "contacts?per_page=1"), "contacts")[0], "in the public API")
}

// TestInvalidInputIsNamed makes the calls of testdata/invalid.txt.
func TestInvalidInputIsNamed(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	places := strings.NewReplacer("{contact}", ids(c.all("contacts", 100))[0], "{faq}", ids(c.all("receptionist/faqs", 100))[0],
		"{pet}", ids(c.all("objects/pets", 100))[0], "{rule}", ids(records(t, c.one("receptionist", "receptionist"), "rules"))[0])
	repeated := regexp.MustCompile(`<([^<>]+)\*(\d+)>`)
	text, err := os.ReadFile("testdata/invalid.txt")
	require.NoError(t, err)
	var method, path string
	calls := 0
	for line := range strings.Lines(string(text)) {
		line = places.Replace(strings.TrimSpace(repeated.ReplaceAllStringFunc(line, func(s string) string {
			m := repeated.FindStringSubmatch(s)
			n, err := strconv.Atoi(m[2])
			require.NoError(t, err)
			return strings.Repeat(m[1], n)
		})))
		body, fields, isCall := strings.Cut(line, "=> ")
		if !isCall {
			if words := strings.Fields(line); len(words) == 2 {
				method, path = words[0], words[1]
			}
			continue
		}
		calls++
		problems := c.invalid(method, path, strings.TrimSpace(body), strings.Fields(fields)...)
		assert.NotContains(t, fmt.Sprint(problems), "xxxx", "input is not echoed")
	}
	require.Greater(t, calls, 120)
}

func TestProblemsSayWhatIsAllowed(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for _, call := range []struct {
		path, body string
		want       map[string]string
	}{
		{"contacts", `{"contact_type":"x","first_name":"","x":1}`, map[string]string{
			"first_name":   "must not be empty; allowed: 1 to 80 characters on one line",
			"contact_type": "is not one of the allowed values; allowed: customer, lead, vendor",
			"x":            "is not known here; allowed: first_name, last_name, email, phone_number, country_code, contact_type, contact_status, notes",
		}},
		{"objects/vehicles", `{"fields":{"plate":"A","year":"1990","status":"gone","next_inspection":"soon","colour":"red"}}`, map[string]string{
			"fields.plate":           "does not match the schema: minLength: got 1, want 2",
			"fields.make":            "is required",
			"fields.year":            "does not match the schema: got string, want integer",
			"fields.status":          "does not match the schema: value must be one of 'in_service', 'workshop', 'sold'",
			"fields.next_inspection": "is not of the right form; allowed: the format date",
			"fields.colour":          "is not known here; allowed: assigned_to, make, model, next_inspection, odometer_miles, plate, status, year",
		}},
	} {
		assert.Equal(t, call.want, c.rejected(http.StatusUnprocessableEntity, "INVALID", "POST", call.path, call.body))
	}
}

func TestErrorsStayShort(t *testing.T) {
	t.Parallel()
	many := strings.Builder{}
	for i := range 200 {
		fmt.Fprintf(&many, `,"%d%s":1`, i, strings.Repeat("é", 100))
	}
	w := sharedCaller(t).do("POST", "contacts", `{"first_name":"a"`+many.String()+`}`)
	assert.Equal(t, http.StatusUnprocessableEntity, w.Code)
	assert.Less(t, w.Body.Len(), 32<<10)
	require.Len(t, records(t, decode(t, w), "details"), maxDetails)
}

func TestAReferencedContactIsNotDeleted(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	invoiced := "contacts/" + jsonID(records(t, c.get("invoices?limit=1"), "invoices")[0]["contact_id"])
	problems := c.rejected(http.StatusConflict, "CONFLICT", "DELETE", invoiced, "")
	require.Regexp(t, `\d+ jobs.*\d+ invoices.*inactive instead`, problems["id"])
	c.get(invoiced)

	made := c.made("contacts", "contact", `{"first_name":"Will go"}`)["id"]
	booked := "appointments/" + ids(records(t, c.get("appointments?from="+instant(testNow)+"&status=confirmed&limit=1"), "appointments"))[0]
	execute(t, s, "UPDATE appointments SET contact_id = ? WHERE id = ?", made, strings.TrimPrefix(booked, "appointments/"))
	require.Contains(t, c.rejected(http.StatusConflict, "CONFLICT", "DELETE", "contacts/"+jsonID(made), "")["id"], "1 appointments to come")
	execute(t, s, "UPDATE appointments SET status = 'cancelled' WHERE contact_id = ?", made)
	c.ok("DELETE", "contacts/"+jsonID(made), "")
	left := c.one(booked, "appointment")
	require.Nil(t, left["contact_id"])
	require.Nil(t, left["contact_name"])
	assert.NotEqual(t, made, c.made("contacts", "contact", `{"first_name":"New"}`)["id"], "an id is not used again")
}

// TestTheBusinessAndItsDocumentsAreChanged makes the changes of everything that is neither created nor deleted.
func TestTheBusinessAndItsDocumentsAreChanged(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	rules := records(t, c.one("receptionist", "receptionist"), "rules")
	kept := fmt.Sprint(rules[1]["id"])
	for _, change := range []struct {
		method, path, read, body string
		want                     map[string]any // the members that are changed
	}{
		{
			"PATCH", "business", "business",
			`{"name":"New Name","email":null,"phone":"+442071838750","website_url":"https://münchen.example/path?q=1","time_zone":"Europe/London"}`,
			map[string]any{
				"name": "New Name", "email": nil, "phone": "+442071838750", "website_url": "https://münchen.example/path?q=1", "time_zone": "Europe/London",
			},
		},
		{
			"PUT", "business/hours", "business/hours",
			`{"hours":[{"day":"sunday","open":"20:00","close":"24:00"},{"day":"monday","open":"13:00","close":"17:00"},{"day":"monday","open":"09:00","close":"13:00"}]}`,
			map[string]any{"hours": []any{
				map[string]any{"day": "monday", "open": "09:00", "close": "13:00"},
				map[string]any{"day": "monday", "open": "13:00", "close": "17:00"},
				map[string]any{"day": "sunday", "open": "20:00", "close": "24:00"},
			}},
		},
		{"PUT", "business/hours", "business/hours", `{"hours":[]}`, map[string]any{"hours": []any{}}},
		{
			"PUT", "business/service-areas", "business/service-areas",
			`{"service_areas":[{"name":"Zürich","kind":"city","radius_km":12.5},{"name":"Zürich","kind":"region","radius_km":null}]}`,
			map[string]any{"service_areas": []any{
				map[string]any{"name": "Zürich", "kind": "city", "radius_km": 12.5},
				map[string]any{"name": "Zürich", "kind": "region", "radius_km": nil},
			}},
		},
		{
			"PATCH", "receptionist/personality", "receptionist", `{"tone":"formal","instructions":null,"language":"pt-BR"}`,
			map[string]any{"personality": map[string]any{"tone": "formal", "instructions": nil, "language": "pt-BR"}},
		},
		{
			"PUT", "receptionist/rules", "receptionist", `{"rules":[{"id":"` + kept + `","when":"old","then":"changed","enabled":false}]}`,
			map[string]any{"rules": []any{map[string]any{"id": kept, "when": "old", "then": "changed", "enabled": false}}},
		},
	} {
		member := func(answer map[string]any) map[string]any {
			if !strings.Contains(change.read, "/") {
				return record(t, answer, change.read)
			}
			return answer
		}
		want := member(c.get(change.read))
		want["version"], want["updated_at"] = want["version"].(float64)+1, instant(testNow)
		for name, value := range change.want {
			if merged, ok := want[name].(map[string]any); ok {
				maps.Copy(merged, value.(map[string]any))
				continue
			}
			want[name] = value
		}
		assert.Equal(t, want, member(c.ok(change.method, change.path, change.body)), change.path)
		assert.Equal(t, want, member(c.get(change.read)), change.path)
	}
	require.Equal(t, "New Name", record(t, get(t, s, owner().BusinessID, "business"), "business")["name"])

	added := records(t, record(t, c.ok("PUT", "receptionist/rules",
		`{"rules":[{"when":"a","then":"b"},{"id":"`+kept+`","when":"c","then":"d"},{"id":null,"when":"e","then":"f"}]}`), "receptionist"), "rules")
	assert.Equal(t, true, added[0]["enabled"])
	assert.Equal(t, kept, added[1]["id"])
	assert.NotEqual(t, added[0]["id"], added[2]["id"])
}

func TestFAQsAreAddedReplacedAndDeleted(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	made := c.made("receptionist/faqs", "faq", `{"question":"Do you  take cash?","answer":"Yes.\nNo cents."}`)
	require.Equal(t, true, made["enabled"])
	list := c.all("receptionist/faqs", 100)
	require.Equal(t, made, list[len(list)-1])
	id := "receptionist/faqs/" + fmt.Sprint(made["id"])
	replaced := record(t, c.ok("PUT", id, `{"question":"Do you take cash?","answer":"No.","enabled":false}`), "faq")
	require.InDelta(t, 2.0, replaced["version"], 0)
	require.Equal(t, made["created_at"], replaced["created_at"])
	problems := c.rejected(http.StatusConflict, "CONFLICT", "POST", "receptionist/faqs", `{"question":" DO you take  cash?","answer":"x"}`)
	require.Contains(t, problems["question"], fmt.Sprint(made["id"]))
	c.rejected(http.StatusConflict, "CONFLICT", "PUT", "receptionist/faqs/"+ids(list)[0], `{"question":"Do you take cash?","answer":"x"}`)
	caller(t, s, stranger()).made("receptionist/faqs", "faq", `{"question":"Do you take cash?","answer":"Here, too."}`)
	require.Equal(t, replaced, c.one(id, "faq"))
	c.ok("DELETE", id, "")
	c.notFound("GET", id, "")
	c.notFound("PUT", id, `{"question":"q","answer":"a"}`)

	execute(t, s, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
		INSERT INTO receptionist_faqs SELECT 'f' || i, ?, 'q' || i, 'a', 1, 1, '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z' FROM n`, owner().BusinessID)
	problems = c.rejected(http.StatusConflict, "CONFLICT", "POST", "receptionist/faqs", `{"question":"One more?","answer":"No."}`)
	require.Contains(t, problems["question"], "at most 200")
	caller(t, s, stranger()).made("receptionist/faqs", "faq", `{"question":"One more?","answer":"Yes."}`)
}

func TestServicesAreAddedReplacedAndDeleted(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	made := c.made("receptionist/services", "service", `{"name":"Tree check","description":"One hour.","duration_minutes":60,"price":"75.5","bookable":true}`)
	require.Equal(t, "75.50", made["price"])
	require.InDelta(t, 60.0, made["duration_minutes"], 0)
	id := "receptionist/services/" + fmt.Sprint(made["id"])
	replaced := record(t, c.ok("PUT", id, `{"name":"Tree check"}`), "service")
	require.Equal(t, []any{nil, nil, false}, []any{replaced["description"], replaced["price"], replaced["bookable"]}, "absent members take their defaults")
	for price, kept := range map[string]string{"0": "0.00", "9999999.99": "9999999.99", "007.10": "7.10"} {
		assert.Equal(t, kept, record(t, c.ok("PUT", id, fmt.Sprintf(`{"name":"Tree check","price":%q}`, price)), "service")["price"])
	}
	c.rejected(http.StatusConflict, "CONFLICT", "POST", "receptionist/services", `{"name":"TREE CHECK"}`)
	c.ok("DELETE", id, "")
	c.notFound("DELETE", id, "")
}

func TestAnAbandonedWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/connect/v1/contacts", strings.NewReader(`{"first_name":"Nobody waits"}`))
	r.Header = http.Header{
		HeaderBusinessID: {owner().BusinessID}, HeaderAccountID: {owner().ID}, HeaderIdempotencyKey: {"k"}, "Content-Type": {"application/json"},
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	requireError(t, w, http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE")
	require.Empty(t, c.all("contacts?query=nobody+waits", 10))
	w = c.do("POST", "contacts", `{"first_name":"Nobody waits"}`, HeaderIdempotencyKey, "k")
	assert.Equal(t, http.StatusCreated, w.Code)
	assert.Empty(t, w.Header().Get(HeaderReplayed))
}
