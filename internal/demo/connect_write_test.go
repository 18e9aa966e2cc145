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
		{"PATCH", "business/hours", `{"days":[{"day":"monday","spans":[]}]}`, "business/hours"},
		{"PATCH", "business/service-areas", `{"add":[{"name":"A","kind":"city"}]}`, "business/service-areas"},
		{"PATCH", "receptionist/personality", `{"name":"N"}`, "receptionist"},
		{"PATCH", "receptionist/rules", `{"add":[{"when":"a","then":"b"}]}`, "receptionist"},
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
	require.Len(t, rules, 4)
	changed := maps.Clone(rules[1])
	changed["then"] = "changed"
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
			"PATCH", "receptionist/personality", "receptionist", `{"tone":"formal","instructions":null,"language":"pt-BR"}`,
			map[string]any{"personality": map[string]any{"tone": "formal", "instructions": nil, "language": "pt-BR"}},
		},
		{
			"PATCH", "receptionist/rules", "receptionist", `{"change":[{"id":"` + fmt.Sprint(rules[1]["id"]) + `","then":"changed"}]}`,
			map[string]any{"rules": []any{rules[0], changed, rules[2], rules[3]}},
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
}

// changes makes changes one after the other, and compares what they leave with what is served then.
func (c *as) changes(path, read, member string, show func(map[string]any) string, steps ...[2]string) {
	c.Helper()
	shown := func(answer map[string]any) string {
		if read == "receptionist" {
			answer = record(c, answer, read)
		}
		var all []string
		for _, r := range records(c, answer, member) {
			all = append(all, show(r))
		}
		return strings.Join(all, ", ")
	}
	for _, step := range steps {
		body, want := step[0], step[1]
		assert.Equal(c, want, shown(c.ok("PATCH", path, body)), body)
		assert.Equal(c, want, shown(c.get(read)), body)
	}
}

func TestDaysThatAreNotNamedKeepTheirHours(t *testing.T) {
	t.Parallel()
	var at clock
	s := connected(t, "", Options{Now: at.now})
	execute(t, s, "UPDATE businesses SET time_zone = 'Asia/Tokyo' WHERE id = ?", owner().BusinessID) // where it is the 17th
	execute(t, s, "DELETE FROM documents WHERE name = 'hours'")
	c := caller(t, s, owner())
	show := func(r map[string]any) string {
		text := fmt.Sprint(r["day"])
		for _, span := range records(t, r, "spans") {
			text += fmt.Sprintf(" %v-%v", span["open"], span["close"])
		}
		return text
	}
	const rest = ", wednesday, thursday, friday, saturday, sunday 20:00-24:00"
	c.invalid("PATCH", "business/hours", `{"days":[{"day":"2026-09-16","spans":[]}]}`, "days[0].day")
	c.changes(
		"business/hours", "business/hours", "days", show,
		[2]string{
			`{"days":[{"day":"sunday","spans":[{"open":"20:00","close":"24:00"}]},{"day":"monday","spans":[{"open":"13:00","close":"17:00"},{"open":"09:00","close":"13:00"}]}]}`,
			"monday 09:00-13:00 13:00-17:00, tuesday" + rest,
		},
		[2]string{`{"days":[{"day":"tuesday","spans":[{"open":"00:00","close":"24:00"}]}]}`, "monday 09:00-13:00 13:00-17:00, tuesday 00:00-24:00" + rest},
		[2]string{
			`{"days":[{"day":"2026-12-24","spans":[{"open":"09:00","close":"12:00"}]},{"day":"2026-09-17","spans":[]},{"day":"2030-01-01","spans":null}]}`,
			"monday 09:00-13:00 13:00-17:00, tuesday 00:00-24:00" + rest + ", 2026-09-17, 2026-12-24 09:00-12:00",
		},
		[2]string{
			`{"days":[{"day":"2026-12-24","spans":[]},{"day":"2026-12-01","spans":[]},{"day":"monday","spans":[]}]}`,
			"monday, tuesday 00:00-24:00" + rest + ", 2026-09-17, 2026-12-01, 2026-12-24",
		},
		[2]string{`{"days":[{"day":"2026-12-01","spans":null}]}`, "monday, tuesday 00:00-24:00" + rest + ", 2026-09-17, 2026-12-24"},
	)
	at.advance(day)
	assert.NotContains(t, asJSON(t, c.get("business/hours")), "2026-09-17", "past dates are dropped")
	c.invalid("PATCH", "business/hours", `{"days":[{"day":"2026-09-17","spans":null}]}`, "days[0].day")

	dates := func(n int) string {
		var days []string
		for i := range n {
			days = append(days, fmt.Sprintf(`{"day":%q,"spans":[]}`, testNow.AddDate(1, 0, i).Format(time.DateOnly)))
		}
		return `{"days":[` + strings.Join(days, ",") + "]}"
	}
	c.invalid("PATCH", "business/hours", dates(60), "days") // with the 24th of December
	require.Len(t, c.ok("PATCH", "business/hours", dates(59))["days"], 7+60)
	require.Len(t, c.ok("PATCH", "business/hours", dates(1))["days"], 7+60)
	assert.NotContains(t, texts(t, s, "SELECT content FROM documents WHERE name = 'hours'")[0], "2026-09-17")
}

func TestAreasThatAreNotNamedStay(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	show := func(r map[string]any) string { return fmt.Sprintf("%v %v %v", r["kind"], r["name"], r["radius_km"]) }
	c.changes(
		"business/service-areas", "business/service-areas", "service_areas", show,
		[2]string{
			`{"add":[{"name":"Zürich","kind":"city","radius_km":12.5},{"name":"Zürich","kind":"region"}]}`,
			"city Madison 25, city Verona 10, postal_code 53593 <nil>, region Dane County <nil>, city Zürich 12.5, region Zürich <nil>",
		},
		[2]string{
			`{"remove":[{"name":" dane  county ","kind":"region"},{"name":"53593","kind":"postal_code"}],"add":[{"name":"madison","kind":"city","radius_km":30}]}`,
			"city madison 30, city Verona 10, city Zürich 12.5, region Zürich <nil>",
		},
		[2]string{`{"add":[{"name":"ZURICH","kind":"city"}]}`, "city madison 30, city Verona 10, city ZURICH 12.5, region Zürich <nil>"},
		[2]string{`{"add":[{"name":"Verona","kind":"city","radius_km":null}]}`, "city madison 30, city Verona <nil>, city ZURICH 12.5, region Zürich <nil>"},
		[2]string{`{"remove":[{"name":"Madison","kind":"city"}]}`, "city Verona <nil>, city ZURICH 12.5, region Zürich <nil>"},
	)
	var many []string
	for i := range 97 {
		many = append(many, fmt.Sprintf(`{"name":"%d","kind":"postal_code"}`, i))
	}
	require.Len(t, c.ok("PATCH", "business/service-areas", `{"add":[`+strings.Join(many, ",")+"]}")["service_areas"], 100)
	c.invalid("PATCH", "business/service-areas", `{"add":[{"name":"one more","kind":"city"}]}`, "add")
	c.ok("PATCH", "business/service-areas", `{"add":[{"name":"one more","kind":"city"}],"remove":[{"name":"96","kind":"postal_code"}]}`)
	c.ok("PATCH", "business/service-areas", `{"add":[`+strings.Join(many[:96], ",")+"]}") // all of them are there
}

func TestRulesThatAreNotNamedStay(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	execute(t, s, `UPDATE documents SET content = json_set(content, '$.rules', json(?)) WHERE name = 'receptionist'`, `[
		{"id":"A","when":"a","then":"1","enabled":true},{"id":"B","when":"b","then":"2","enabled":true},{"id":"C","when":"c","then":"3","enabled":false}]`)
	c := caller(t, s, owner())
	show := func(r map[string]any) string {
		text := fmt.Sprintf("%v %v", r["when"], r["then"])
		return text + map[any]string{false: " off"}[r["enabled"]]
	}
	c.changes(
		"receptionist/rules", "receptionist", "rules", show,
		[2]string{`{"add":[{"when":"d","then":"4"}]}`, "a 1, b 2, c 3 off, d 4"},
		[2]string{`{"change":[{"id":"B","enabled":false},{"id":"C","when":"C","enabled":true}]}`, "a 1, b 2 off, C 3, d 4"},
		[2]string{`{"change":[{"id":"C","before":"A"}]}`, "C 3, a 1, b 2 off, d 4"},
		[2]string{`{"change":[{"id":"C","before":null},{"id":"A","then":"one","before":"C"}]}`, "b 2 off, d 4, a one, C 3"},
		[2]string{
			`{"remove":["A"],"change":[{"id":"C","before":"B"}],"add":[{"when":"e","then":"5","before":"B","enabled":false},{"when":"f","then":"6","before":"B"},{"when":"g","then":"7","before":null}]}`,
			"C 3, e 5 off, f 6, b 2 off, d 4, g 7",
		},
		[2]string{`{"remove":["B","C"]}`, "e 5 off, f 6, d 4, g 7"},
	)
	rules := records(t, c.one("receptionist", "receptionist"), "rules")
	assert.Len(t, slices.Compact(slices.Sorted(slices.Values(ids(rules)))), 4)
	require.Equal(t, "fernhollow"[:4], strings.ToLower(fmt.Sprint(record(t, c.one("receptionist", "receptionist"), "personality")["name"])), "the personality stays")

	more := strings.TrimSuffix(strings.Repeat(`{"when":"a","then":"b"},`, 46), ",")
	c.ok("PATCH", "receptionist/rules", `{"add":[`+more+`]}`)
	c.invalid("PATCH", "receptionist/rules", `{"add":[{"when":"a","then":"b"}]}`, "add")
	c.ok("PATCH", "receptionist/rules", `{"remove":["`+ids(rules)[0]+`"],"add":[{"when":"a","then":"b"}]}`)
}

func TestARepeatedUpdateOfADocumentIsDoneOnce(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	for path, body := range map[string]string{
		"business/hours": `{"days":[{"day":"monday","spans":[]}]}`, "business/service-areas": `{"remove":[{"name":"Madison","kind":"city"}]}`,
		"receptionist/rules": `{"add":[{"when":"a","then":"b"}]}`,
	} {
		key := []string{HeaderIdempotencyKey, path}
		first := c.do("PATCH", path, body, key...)
		require.Equal(t, http.StatusOK, first.Code, "%s", first.Body)
		again := c.do("PATCH", path, body, key...)
		assert.Equal(t, first.Body.String(), again.Body.String())
		assert.Equal(t, "true", again.Header().Get(HeaderReplayed))
	}
	assert.Len(t, records(t, c.one("receptionist", "receptionist"), "rules"), 5)
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
