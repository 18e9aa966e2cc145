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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clock is a clock that tests move.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time          { return testNow.Add(time.Duration(c.offset.Load())) }
func (c *clock) advance(d time.Duration) { c.offset.Add(int64(d)) }

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
	again(c, body) // what was answered, not what is

	require.NoError(t, s.Close())
	s = connected(t, path, Options{Now: at.now})
	c = caller(t, s, owner())
	again(c, body)

	for _, other := range [][3]string{
		{"POST", "contacts", `{"first_name":"Once"}`}, {"POST", "receptionist/faqs", body}, {"PATCH", "contacts/1", body}, {"DELETE", "contacts/1", ""},
	} {
		c.refused(http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED", other[0], other[1], other[2], key...)
	}
	// The key is the account's: others may have the same.
	require.Equal(t, http.StatusCreated, caller(t, s, member()).do("POST", "contacts", body, key...).Code)
	require.Equal(t, http.StatusCreated, caller(t, s, stranger()).do("POST", "contacts", body, key...).Code)

	at.advance(23*time.Hour + 59*time.Minute)
	require.Equal(t, "true", c.do("POST", "contacts", body, key...).Header().Get(HeaderReplayed))
	at.advance(2 * time.Minute)
	w := c.do("POST", "contacts", body, key...)
	require.Equal(t, http.StatusCreated, w.Code)
	require.Empty(t, w.Header().Get(HeaderReplayed), "a day is over")
	require.NotEqual(t, first.Body.String(), w.Body.String())
	require.Empty(t, texts(t, s.store, "SELECT key FROM idempotency_keys WHERE created_at < ?", instant(at.now().Add(-24*time.Hour))),
		"nothing is kept for longer than needed")
}

func TestLargeNumbersAreComparedExactly(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	key := []string{HeaderIdempotencyKey, "k"}
	c.ok("POST", "objects/pets", `{"fields":{"name":"A","species":"dog","owner":{"name":"N","contact_id":9007199254740993}}}`, key...)
	c.refused(http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED", "POST", "objects/pets",
		`{"fields":{"name":"A","species":"dog","owner":{"name":"N","contact_id":9007199254740992}}}`, key...)
}

func TestConcurrentRepeatsAreOneWrite(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *Service{"memory": inMemory, "file": inAFile} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := caller(t, open(t), owner())
			var answers [20]*httptest.ResponseRecorder
			var group sync.WaitGroup
			for i := range answers {
				group.Go(func() {
					answers[i] = c.do("POST", "contacts", `{"first_name":"Raced"}`, HeaderIdempotencyKey, "the-same")
				})
			}
			group.Wait()
			fresh := 0
			for _, w := range answers {
				require.Equal(t, http.StatusCreated, w.Code, "%s", w.Body)
				require.Equal(t, answers[0].Body.String(), w.Body.String())
				if w.Header().Get(HeaderReplayed) == "" {
					fresh++
				}
			}
			require.Equal(t, 1, fresh)
			require.Len(t, c.all("contacts?query=raced", 100), 1)
		})
	}
}

func TestARejectedWriteKeepsNoKey(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	key := []string{HeaderIdempotencyKey, "again"}
	c.refused(http.StatusUnprocessableEntity, "INVALID", "POST", "contacts", `{"first_name":""}`, key...)
	c.refused(http.StatusNotFound, "NOT_FOUND", "DELETE", "contacts/1", "", key...)
	made := record(t, c.ok("POST", "contacts", `{"first_name":"Corrected"}`, key...), "contact")

	gone := []string{HeaderIdempotencyKey, "delete"}
	path := "contacts/" + jsonID(made["id"])
	require.Equal(t, map[string]any{"deleted": true, "id": made["id"]}, c.ok("DELETE", path, "", gone...))
	require.Equal(t, map[string]any{"deleted": true, "id": made["id"]}, c.ok("DELETE", path, "", gone...), "a retry learns that it is done")
	c.refused(http.StatusNotFound, "NOT_FOUND", "DELETE", path, "")

	// An answer that was kept is not for someone who may not call any more.
	setStatus(t, s, owner(), "disabled")
	c.refused(http.StatusForbidden, "UNKNOWN_ACCOUNT", "DELETE", path, "", gone...)
	setStatus(t, s, owner(), "active")
	execute(t, s, "UPDATE accounts SET role = 'member' WHERE id = ?", owner().ID)
	c.refused(http.StatusForbidden, "FORBIDDEN", "DELETE", path, "", gone...)
}

func TestEveryWriteNeedsAKey(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for _, rt := range newConnectAPI(shared).routes {
		if !rt.writes() || rt.nobody {
			continue
		}
		path := strings.NewReplacer("{type}", "vehicles", "{id}", "x").Replace(rt.path)
		body := ""
		if rt.hasBody() {
			body = "{}"
		}
		for _, key := range []string{"", "two words", strings.Repeat("k", 256), "schlüssel"} {
			require.Contains(t, c.refused(http.StatusBadRequest, "INVALID_REQUEST", rt.method, path, body, HeaderIdempotencyKey, key), HeaderIdempotencyKey)
		}
	}
}

func TestAnOldVersionIsNotOverwritten(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	faqID := fmt.Sprint(records(t, c.get("receptionist/faqs"), "faqs")[0]["id"])
	serviceID := fmt.Sprint(records(t, c.get("receptionist/services"), "services")[0]["id"])
	objectID := fmt.Sprint(records(t, c.get("objects/pets"), "objects")[0]["id"])
	contactID := jsonID(record(t, c.ok("POST", "contacts", `{"first_name":"V"}`), "contact")["id"])
	for _, w := range []struct{ method, path, body, member string }{
		{"PATCH", "business", `{"name":"N"}`, "business"},
		{"PUT", "business/hours", `{"hours":[]}`, ""},
		{"PUT", "business/service-areas", `{"service_areas":[]}`, ""},
		{"PATCH", "receptionist/personality", `{"name":"N"}`, "receptionist"},
		{"PUT", "receptionist/rules", `{"rules":[]}`, "receptionist"},
		{"PATCH", "contacts/" + contactID, `{"notes":"n"}`, "contact"},
		{"PUT", "receptionist/faqs/" + faqID, `{"question":"Q?","answer":"A"}`, "faq"},
		{"PUT", "receptionist/services/" + serviceID, `{"name":"S"}`, "service"},
		{"PATCH", "objects/pets/" + objectID, `{"fields":{"friendly":true}}`, "object"},
	} {
		version := func(answer map[string]any) string {
			if w.member != "" {
				answer = record(t, answer, w.member)
			}
			return fmt.Sprintf(`"%v"`, answer["version"])
		}
		read := w.path
		if strings.HasPrefix(read, "receptionist/p") || strings.HasPrefix(read, "receptionist/r") {
			read = "receptionist"
		}
		now := version(c.get(read))
		next := version(c.ok(w.method, w.path, w.body, "If-Match", now))
		require.NotEqual(t, now, next, w.path)
		problems := c.refused(http.StatusPreconditionFailed, "VERSION_MISMATCH", w.method, w.path, w.body, "If-Match", now)
		require.Contains(t, problems["If-Match"], "allowed: "+next)
		require.Equal(t, next, version(c.get(read)))
		for _, wrong := range []string{"2", `W/"2"`, "*", `"x"`, `"0"`, `"-1"`, `""`} {
			c.refused(http.StatusBadRequest, "INVALID_REQUEST", w.method, w.path, w.body, "If-Match", wrong)
		}
	}
	for _, path := range []string{"contacts/" + contactID, "receptionist/faqs/" + faqID, "receptionist/services/" + serviceID, "objects/pets/" + objectID} {
		c.refused(http.StatusPreconditionFailed, "VERSION_MISMATCH", "DELETE", path, "", "If-Match", `"1"`)
		c.ok("DELETE", path, "", "If-Match", `"2"`)
	}
	c.refused(http.StatusBadRequest, "INVALID_REQUEST", "POST", "contacts", `{"first_name":"V"}`, "If-Match", `"1"`)
}

func TestOneOfConcurrentWritersToAVersionWins(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, filepath.Join(t.TempDir(), "demo.db"), Options{}), owner())
	id := jsonID(record(t, c.ok("POST", "contacts", `{"first_name":"Fought over"}`), "contact")["id"])
	var codes [10]int
	var group sync.WaitGroup
	for i := range codes {
		group.Go(func() {
			codes[i] = c.do("PATCH", "contacts/"+id, fmt.Sprintf(`{"notes":"writer %d"}`, i), "If-Match", `"1"`).Code
		})
	}
	group.Wait()
	slices.Sort(codes[:])
	require.Equal(t, http.StatusOK, codes[0])
	for _, code := range codes[1:] {
		require.Equal(t, http.StatusPreconditionFailed, code)
	}
	require.InDelta(t, 2, record(t, c.get("contacts/"+id), "contact")["version"], 0)
}

func TestAPatchLeavesOtherFields(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "demo.db")
	s := connected(t, path, Options{})
	c := caller(t, s, owner())
	made := record(t, c.ok("POST", "contacts", `{"first_name":"  Ana  ","last_name":"Lund","email":"ana@example.com","phone_number":"6085550111",
		"country_code":"+1","notes":" line one\r\nline two\t. "}`), "contact")
	require.Equal(t, map[string]any{
		"id": made["id"], "business_id": owner().BusinessID, "first_name": "Ana", "last_name": "Lund", "email": "ana@example.com",
		"phone_number": "6085550111", "country_code": "+1", "contact_type": "lead", "contact_status": "active", "notes": "line one\nline two\t.",
		"date_created": instant(testNow), "date_modified": instant(testNow), "version": 1.0,
	}, made)
	id := "contacts/" + jsonID(made["id"])
	changed := record(t, c.ok("PATCH", id, `{"email":null,"contact_type":"customer"}`), "contact")
	made["email"], made["contact_type"], made["version"] = nil, "customer", 2.0
	require.Equal(t, made, changed)
	changed = record(t, c.ok("PATCH", id, `{"phone_number":null,"country_code":null}`), "contact")
	require.Nil(t, changed["phone_number"])

	require.NoError(t, s.Close())
	s = connected(t, path, Options{})
	c = caller(t, s, owner())
	require.Equal(t, changed, record(t, c.get(id), "contact"), "what was written is there after a restart")
	public := records(t, get(t, s, owner().BusinessID, "/api/v1/contacts?per_page=1"), "contacts")[0]
	delete(changed, "version")
	require.Equal(t, changed, public, "and in the public API, without what is not its own")
}

// TestInvalidInputIsNamed makes the calls of testdata/invalid.txt.
func TestInvalidInputIsNamed(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	id := func(list, name string) string { return jsonID(records(t, c.get(list), name)[0]["id"]) }
	rules := records(t, record(t, c.get("receptionist"), "receptionist"), "rules")
	places := strings.NewReplacer("{contact}", id("contacts", "contacts"), "{faq}", id("receptionist/faqs", "faqs"),
		"{pet}", id("objects/pets", "objects"), "{rule}", fmt.Sprint(rules[0]["id"]))
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
		require.NotContains(t, fmt.Sprint(problems), "xxxx", "what was sent is not sent back")
		for field, problem := range problems {
			if method == "POST" && path == "contacts" || method == "GET" && strings.Contains(path, "status=") && field != "payment_status" {
				require.Contains(t, problem, "allowed: ", field)
			}
		}
	}
	require.Greater(t, calls, 120)
	require.Contains(t, c.invalid("POST", "contacts", `{"first_name":"a","contact_type":"x"}`, "contact_type")["contact_type"], "customer, lead, vendor")
}

func TestErrorsStayShort(t *testing.T) {
	t.Parallel()
	many := strings.Builder{}
	for i := range 200 {
		fmt.Fprintf(&many, `,"%d%s":1`, i, strings.Repeat("é", 100))
	}
	w := sharedCaller(t).do("POST", "contacts", `{"first_name":"a"`+many.String()+`}`)
	require.Equal(t, http.StatusUnprocessableEntity, w.Code)
	require.Less(t, w.Body.Len(), 32<<10, "names are the caller's, and are not sent back whole")
	require.Len(t, records(t, decode(t, w), "details"), maxDetails)
}

func TestAReferencedContactIsNotDeleted(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	invoiced := jsonID(records(t, c.get("invoices?limit=1"), "invoices")[0]["contact_id"])
	problems := c.refused(http.StatusConflict, "CONFLICT", "DELETE", "contacts/"+invoiced, "")
	require.Regexp(t, `\d+ jobs.*\d+ invoices.*inactive instead`, problems["id"])
	c.get("contacts/" + invoiced)

	made := jsonID(record(t, c.ok("POST", "contacts", `{"first_name":"Will go"}`), "contact")["id"])
	appointments := records(t, c.get("appointments?from="+instant(testNow)+"&status=confirmed&limit=1"), "appointments")
	past := records(t, c.get("appointments?to="+instant(testNow)+"&limit=1"), "appointments")
	conversation := records(t, c.get("conversations?limit=1"), "conversations")[0]
	for _, a := range []map[string]any{appointments[0], past[0]} {
		execute(t, s, "UPDATE appointments SET contact_id = ? WHERE id = ?", made, a["id"])
	}
	execute(t, s, "UPDATE conversations SET contact_id = ? WHERE id = ?", made, conversation["id"])
	require.Contains(t, c.refused(http.StatusConflict, "CONFLICT", "DELETE", "contacts/"+made, "")["id"], "1 appointments to come")
	execute(t, s, "UPDATE appointments SET status = 'cancelled' WHERE id = ?", appointments[0]["id"])
	c.ok("DELETE", "contacts/"+made, "")
	left := record(t, c.get("appointments/"+fmt.Sprint(past[0]["id"])), "appointment")
	require.Nil(t, left["contact_id"])
	require.Nil(t, left["contact_name"])
	require.Nil(t, record(t, c.get("conversations/"+fmt.Sprint(conversation["id"])), "conversation")["contact_id"])
	again := record(t, c.ok("POST", "contacts", `{"first_name":"New"}`), "contact")
	require.NotEqual(t, made, jsonID(again["id"]), "an id is not given again")
}

func TestTheBusinessIsPatched(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	before := record(t, c.get("business"), "business")
	after := record(t, c.ok("PATCH", "business", `{"name":"New Name","email":null,"phone":"+442071838750","website_url":"https://münchen.example/path?q=1","time_zone":"Europe/London"}`), "business")
	maps.Copy(before, map[string]any{
		"name": "New Name", "email": nil, "phone": "+442071838750", "website_url": "https://münchen.example/path?q=1", "time_zone": "Europe/London", "version": 2.0,
		"updated_at": instant(testNow),
	})
	require.Equal(t, before, after)
	public := record(t, get(t, s, owner().BusinessID, "/api/v1/business"), "business")
	require.Equal(t, "New Name", public["name"])
	require.NotContains(t, public, "version")
}

func TestHoursAreReplacedAndSorted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "demo.db")
	s := connected(t, path, Options{})
	c := caller(t, s, owner())
	set := c.ok("PUT", "business/hours", `{"hours":[{"day":"sunday","open":"20:00","close":"24:00"},{"day":"monday","open":"13:00","close":"17:00"},{"day":"monday","open":"09:00","close":"13:00"}]}`)
	want := []any{
		map[string]any{"day": "monday", "open": "09:00", "close": "13:00"},
		map[string]any{"day": "monday", "open": "13:00", "close": "17:00"},
		map[string]any{"day": "sunday", "open": "20:00", "close": "24:00"},
	}
	require.Equal(t, map[string]any{"business_id": owner().BusinessID, "version": 2.0, "updated_at": instant(testNow), "hours": want}, set)
	require.NoError(t, s.Close())
	c = caller(t, connected(t, path, Options{}), owner())
	require.Equal(t, set, c.get("business/hours"))
	require.Equal(t, []any{}, c.ok("PUT", "business/hours", `{"hours":[]}`)["hours"])
	require.Equal(t, []any{}, c.get("business/hours")["hours"])
}

func TestServiceAreasAreReplaced(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	set := c.ok("PUT", "business/service-areas", `{"service_areas":[{"name":"Zürich","kind":"city","radius_km":12.5},{"name":"8001","kind":"postal_code"},{"name":"Zürich","kind":"region","radius_km":null}]}`)
	require.Equal(t, []any{
		map[string]any{"name": "Zürich", "kind": "city", "radius_km": 12.5},
		map[string]any{"name": "8001", "kind": "postal_code", "radius_km": nil},
		map[string]any{"name": "Zürich", "kind": "region", "radius_km": nil},
	}, set["service_areas"])
	require.Equal(t, set, c.get("business/service-areas"))
}

func TestThePersonalityIsPatched(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	before := record(t, c.get("receptionist"), "receptionist")
	after := record(t, c.ok("PATCH", "receptionist/personality", `{"tone":"formal","instructions":null,"language":"pt-BR"}`), "receptionist")
	p := record(t, before, "personality")
	p["tone"], p["instructions"], p["language"], before["version"], before["updated_at"] = "formal", nil, "pt-BR", 2.0, instant(testNow)
	require.Equal(t, before, after)
}

func TestRulesAreReplacedAndKeepTheirIDs(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	before := record(t, c.get("receptionist"), "receptionist")["rules"].([]any)
	kept := before[1].(map[string]any)["id"].(string)
	after := record(t, c.ok("PUT", "receptionist/rules", fmt.Sprintf(
		`{"rules":[{"when":"new","then":"do it"},{"id":%q,"when":"old","then":"changed","enabled":false},{"id":null,"when":"n","then":"m"}]}`, kept)), "receptionist")
	rules := after["rules"].([]any)
	require.Len(t, rules, 3)
	require.Equal(t, map[string]any{"id": kept, "when": "old", "then": "changed", "enabled": false}, rules[1])
	require.Equal(t, true, rules[0].(map[string]any)["enabled"])
	require.NotEqual(t, rules[0].(map[string]any)["id"], rules[2].(map[string]any)["id"])
	require.Equal(t, after, record(t, c.get("receptionist"), "receptionist"))
	require.Equal(t, []any{}, record(t, c.ok("PUT", "receptionist/rules", `{"rules":[]}`), "receptionist")["rules"])
}

func TestFAQsAreAddedReplacedAndDeleted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "demo.db")
	s := connected(t, path, Options{})
	c := caller(t, s, owner())
	n := len(c.all("receptionist/faqs", 100))
	w := c.do("POST", "receptionist/faqs", `{"question":"Do you  take cash?","answer":"Yes.\nNo cents."}`)
	require.Equal(t, http.StatusCreated, w.Code)
	made := record(t, decode(t, w), "faq")
	require.Equal(t, true, made["enabled"])
	list := c.all("receptionist/faqs", 4)
	require.Equal(t, made, list[len(list)-1], "the newest comes last")
	id := "receptionist/faqs/" + fmt.Sprint(made["id"])
	replaced := record(t, c.ok("PUT", id, `{"question":"Do you take cash?","answer":"No.","enabled":false}`), "faq")
	require.InDelta(t, 2.0, replaced["version"], 0)
	require.Equal(t, made["created_at"], replaced["created_at"])
	require.Contains(t, c.refused(http.StatusConflict, "CONFLICT", "POST", "receptionist/faqs", `{"question":" DO you take  cash?","answer":"x"}`)["question"], fmt.Sprint(made["id"]))
	other := "receptionist/faqs/" + fmt.Sprint(list[0]["id"])
	c.refused(http.StatusConflict, "CONFLICT", "PUT", other, `{"question":"Do you take cash?","answer":"x"}`)
	caller(t, s, stranger()).ok("POST", "receptionist/faqs", `{"question":"Do you take cash?","answer":"Here, too."}`)
	require.NoError(t, s.Close())
	c = caller(t, connected(t, path, Options{}), owner())
	require.Equal(t, replaced, record(t, c.get(id), "faq"))
	c.ok("DELETE", id, "")
	c.refused(http.StatusNotFound, "NOT_FOUND", "GET", id, "")
	c.refused(http.StatusNotFound, "NOT_FOUND", "PUT", id, `{"question":"q","answer":"a"}`)
	require.Len(t, c.all("receptionist/faqs", 100), n)
}

func TestTheNumberOfFAQsIsLimited(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	execute(t, s, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
		INSERT INTO receptionist_faqs SELECT 'f' || i, ?, 'q' || i, 'q' || i, 'a', 1, 1, '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z' FROM n`, owner().BusinessID)
	require.Contains(t, c.refused(http.StatusConflict, "CONFLICT", "POST", "receptionist/faqs", `{"question":"One more?","answer":"No."}`)["question"], "at most 200")
	caller(t, s, stranger()).ok("POST", "receptionist/faqs", `{"question":"One more?","answer":"Yes."}`)
}

func TestServicesAreAddedReplacedAndDeleted(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	made := record(t, c.ok("POST", "receptionist/services", `{"name":"Tree check","description":"One hour.","duration_minutes":60,"price":"75.5","bookable":true}`), "service")
	require.Equal(t, "75.50", made["price"])
	require.InDelta(t, 60.0, made["duration_minutes"], 0)
	id := "receptionist/services/" + fmt.Sprint(made["id"])
	replaced := record(t, c.ok("PUT", id, `{"name":"Tree check"}`), "service")
	require.Nil(t, replaced["description"])
	require.Nil(t, replaced["price"])
	require.Equal(t, false, replaced["bookable"], "what is absent takes its default")
	for price, kept := range map[string]string{"0": "0.00", "9999999.99": "9999999.99", "007.10": "7.10"} {
		require.Equal(t, kept, record(t, c.ok("PUT", id, fmt.Sprintf(`{"name":"Tree check","price":%q}`, price)), "service")["price"])
	}
	c.refused(http.StatusConflict, "CONFLICT", "POST", "receptionist/services", `{"name":"TREE CHECK"}`)
	c.ok("DELETE", id, "")
	c.refused(http.StatusNotFound, "NOT_FOUND", "DELETE", id, "")
}

func TestAnAbandonedWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/connect/v1/contacts", strings.NewReader(`{"first_name":"Nobody waits"}`))
	for name, value := range map[string]string{
		HeaderBusinessID: owner().BusinessID, HeaderAccountID: owner().ID, HeaderIdempotencyKey: "k", "Content-Type": "application/json",
	} {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Empty(t, c.all("contacts?query=nobody+waits", 10))
	w = c.do("POST", "contacts", `{"first_name":"Nobody waits"}`, HeaderIdempotencyKey, "k")
	require.Equal(t, http.StatusCreated, w.Code)
	require.Empty(t, w.Header().Get(HeaderReplayed))
}
