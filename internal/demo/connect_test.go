package demo

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// noBusiness is the X-Business-Id of calls that belong to no business yet.
const noBusiness = "-"

// The calls are those of connect/definition.yaml, and who may make them is what docs/data-services.md says.
func TestCallsAreThoseOfTheDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "connect", "definition.yaml"))
	require.NoError(t, err)
	var document struct {
		Servers []struct{ URL string }
		Paths   map[string]map[string]any
	}
	require.NoError(t, yaml.Unmarshal(text, &document))
	require.Len(t, document.Servers, 1)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "data-services.md"))
	require.NoError(t, err)
	_, rules, found := strings.Cut(string(page), "\n### Who may\n")
	require.True(t, found)
	rules, _, _ = strings.Cut(rules, "\n### ")
	who := map[string]string{}
	for line := range strings.Lines(rules) {
		rule := map[bool]string{true: "owner"}[strings.HasPrefix(line, "| owners only |")]
		for _, id := range regexp.MustCompile("`([a-z][A-Za-z]+)`").FindAllStringSubmatch(line, -1) {
			require.NotContains(t, who, id[1])
			who[id[1]] = rule
		}
	}
	want, served := map[string]string{}, map[string]string{}
	for path, operations := range document.Paths {
		for method, operation := range operations {
			if operation, ok := operation.(map[string]any); ok { // not the parameters of the path
				id := fmt.Sprint(operation["operationId"])
				rule, named := who[id]
				if !named {
					rule = "all"
				}
				delete(who, id)
				want[strings.ToUpper(method)+" "+document.Servers[0].URL+path] = rule
			}
		}
	}
	require.Empty(t, who)
	for _, rt := range newConnectAPI(shared).routes {
		rule := "all"
		switch {
		case rt.owner:
			rule = "owner"
		case rt.nobody:
			rule = ""
		}
		served[rt.method+" "+connectPrefix+rt.path] = rule
	}
	require.Equal(t, want, served)
}

// The names of the examples are those of their members, which docs/data-services.md refers to.
func TestResponsesHaveTheMembersOfDocumentedExamples(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	run := c.finished(c.start("weekly-report", "{}"))
	automations := slices.DeleteFunc(records(t, c.get("automations"), "automations"), func(a map[string]any) bool { return a["last_run"] == nil })
	answers := map[string]any{
		"run":         map[string]any{"run": run},
		"automations": map[string]any{"automations": automations, "next_cursor": nil},
		"error":       decode(t, c.do("POST", "contacts", `{"contact_type":"x","phone_number":"1"}`)),
	}
	for name, path := range map[string]string{
		"account": "accounts/" + owner().ID, "receptionist": "receptionist", "business": "business", "days": "business/hours",
		"service_areas": "business/service-areas", "object_type": "object-types/vehicles", "objects": "objects/vehicles",
		"contacts": "contacts", "conversations": "conversations", "calendars": "calendars", "appointments": "appointments",
		"faqs": "receptionist/faqs", "services": "receptionist/services",
	} {
		answers[name] = c.get(path)
	}
	for _, name := range []string{"conversation", "invoice", "estimate", "job"} {
		answers[name] = c.get(name + "s/" + ids(records(t, c.get(name+"s"), name+"s"))[0])
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "examples", "connect", "*.json"))
	require.NoError(t, err)
	require.Len(t, files, len(answers))
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var example map[string]any
		require.NoError(t, json.Unmarshal(text, &example), file)
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		require.Contains(t, example, name, file)
		require.Contains(t, answers, name)
		var read any
		require.NoError(t, json.Unmarshal([]byte(asJSON(t, answers[name])), &read))
		requireMembers(t, name, example, read)
	}
}

// requireMembers compares the names of members, except for those that a business defines itself: the fields of objects, their
// schemas, inputs and results.
func requireMembers(t *testing.T, path string, example, answer any) {
	t.Helper()
	switch example := example.(type) {
	case map[string]any:
		answer, ok := answer.(map[string]any)
		require.True(t, ok, path)
		for name := range example {
			require.Contains(t, answer, name, path)
			own := slices.Contains([]string{"fields", "schema", "input_schema", "input", "result", "error"}, name)
			if !own && example[name] != nil && answer[name] != nil {
				requireMembers(t, path+"."+name, example[name], answer[name])
			}
		}
		require.Len(t, answer, len(example), path)
	case []any:
		answer, ok := answer.([]any)
		require.True(t, ok, path)
		if len(example) > 0 {
			require.NotEmpty(t, answer, path)
			requireMembers(t, path+"[0]", example[0], answer[0])
		}
	default:
		require.IsType(t, example, answer, path)
	}
}

func TestListsHaveNoGapsOrRepeatsInTheDocumentedOrder(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for _, list := range connectLists {
		t.Run(list, func(t *testing.T) {
			t.Parallel()
			whole := c.all(list, 100)
			require.NotEmpty(t, whole)
			assert.Equal(t, ids(whole), ids(c.all(list, 1+len(whole)%17)))
			seen := map[any]bool{}
			sorted := slices.IsSortedFunc(whole, func(a, b map[string]any) int {
				for _, by := range []string{"starts_at", "started_at", "date_created", "created_at", "name"} {
					if a[by] != nil {
						order := strings.Compare(fmt.Sprint(a[by]), fmt.Sprint(b[by]))
						if by == "starts_at" || by == "name" || strings.HasPrefix(list, "receptionist/") {
							return order
						}
						return -order
					}
				}
				return 0
			})
			assert.True(t, sorted)
			for _, r := range whole {
				assert.Equal(t, owner().BusinessID, r["business_id"])
				seen[cmp.Or(r["id"], r["name"])] = true
			}
			assert.Len(t, seen, len(whole))
		})
	}
}

func TestACursorSurvivesInsertsAndDeletes(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	for i := range 9 {
		c.made("objects/vehicles", "object", fmt.Sprintf(`{"fields":{"plate":"AB %d","make":"Same second"}}`, i))
	}
	before := ids(c.all("objects/vehicles", 100))
	first := c.get("objects/vehicles?limit=5")
	page := ids(records(t, first, "objects"))
	// The record at the cursor is deleted, and one that has been read; a new one comes.
	c.ok("DELETE", "objects/vehicles/"+page[4], "")
	c.ok("DELETE", "objects/vehicles/"+page[1], "")
	added := fmt.Sprint(c.made("objects/vehicles", "object", `{"fields":{"plate":"NEW","make":"Newer"}}`)["id"])
	rest := ids(records(t, c.get("objects/vehicles?limit=100&cursor="+first["next_cursor"].(string)), "objects"))
	rest = slices.DeleteFunc(rest, func(id string) bool { return id == added }) // may be on either side of the cursor
	require.Equal(t, before, append(page, rest...))
}

func TestACursorIsBoundToItsList(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	cursor := c.get("contacts?limit=2&status=active")["next_cursor"].(string)
	c.get("contacts?limit=9&status=active&cursor=" + cursor)
	caller(t, shared, member()).get("contacts?limit=2&status=active&cursor=" + cursor)
	caller(t, shared, stranger()).invalid("GET", "contacts?limit=2&status=active&cursor="+cursor, "", "cursor")
	for _, path := range []string{
		"contacts?cursor=" + cursor, "contacts?status=inactive&cursor=" + cursor, "jobs?cursor=" + cursor,
		"contacts?status=active&query=a&cursor=" + cursor, "contacts?cursor=abc", "contacts?cursor=%00", "contacts?cursor=",
		"contacts?cursor=" + strings.Repeat("a", 600), "contacts?cursor=bnVsbA", "contacts?cursor=W10",
	} {
		c.invalid("GET", path, "", "cursor")
	}
}

func TestInvalidParametersOfEveryListAreNamed(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for _, list := range connectLists {
		for _, query := range []string{"limit=0", "limit=101", "limit=1.5", "limit=", "limit=1&limit=2", "limit=99999999999999999999"} {
			c.invalid("GET", list+"?"+query, "", "limit")
		}
		c.invalid("GET", list+"?nonsense=1&more=2", "", "nonsense", "more")
	}
	for _, query := range []string{"%zz", "%ff"} {
		c.rejected(http.StatusBadRequest, "INVALID_REQUEST", "GET", "contacts?query="+query, "")
	}
}

func TestSearchIgnoresCaseAndAccents(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	made := jsonID(c.made("contacts", "contact", `{"first_name":"Zoë","last_name":"Łukasz-Ångström","email":"z@example.com",
		"phone_number":"6085550100","country_code":"+1","notes":"Straße 5\nGate's code 100%_x"}`)["id"])
	for query, found := range map[string]bool{
		"zoe": true, "ZOË": true, "lukasz": true, "ÅNGSTRÖM Zoe": true, "z@example.com": true, "+16085550100": true, "6085550100": true,
		"strasse": true, "gate's": true, "100%_x": true, "  zoe   5 ": true,
		"zoe nobody": false, "100%x": false, "'; DROP TABLE contacts --": false, "_____________": false, "%%": false,
	} {
		assert.Equal(t, found, slices.Contains(ids(c.all("contacts?query="+url.QueryEscape(query), 100)), made), query)
	}
}

func TestConnectFiltersMatchExactly(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for _, f := range []struct{ list, parameter, member string }{
		{"contacts", "status", "contact_status"},
		{"contacts", "type", "contact_type"},
		{"conversations", "channel", "channel"},
		{"conversations", "outcome", "outcome"},
		{"conversations", "contact_id", "contact_id"},
		{"appointments", "status", "status"},
		{"appointments", "calendar_id", "calendar_id"},
		{"appointments", "contact_id", "contact_id"},
		{"invoices", "status", "status"},
		{"invoices", "contact_id", "contact_id"},
		{"estimates", "status", "status"},
		{"estimates", "payment_status", "payment_status"},
		{"estimates", "contact_id", "contact_id"},
		{"jobs", "status", "work_status"},
		{"jobs", "contact_id", "contact_id"},
	} {
		want := map[string][]string{}
		for _, r := range c.all(f.list, 100) {
			if v := jsonID(r[f.member]); r[f.member] != nil {
				want[v] = append(want[v], jsonID(r["id"]))
			}
		}
		assert.Greater(t, len(want), 1, "%s by %s", f.list, f.parameter)
		for value := range want {
			assert.Equal(t, want[value], ids(c.all(f.list+"?"+f.parameter+"="+value, 100)), "%s by %s=%s", f.list, f.parameter, value)
		}
	}
}

func TestFiltersTakeSeveralValues(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for list, f := range map[string][3]string{ // the members, and two values
		"conversations?outcome=": {"outcome", "answered", "abandoned"}, "appointments?status=": {"status", "scheduled", "cancelled"},
		"invoices?status=": {"status", "paid", "overdue"}, "estimates?status=": {"status", "sent", "draft"}, "jobs?status=": {"work_status", "draft", "completed"},
	} {
		name, _, _ := strings.Cut(list, "?")
		want := slices.DeleteFunc(c.all(name, 100), func(r map[string]any) bool { return r[f[0]] != f[1] && r[f[0]] != f[2] })
		require.NotEmpty(t, want)
		assert.Equal(t, ids(want), ids(c.all(list+f[1]+","+f[2], 100)), list)
		assert.Equal(t, ids(want), ids(c.all(list+f[2]+"%2C"+f[1]+","+f[2], 7)), list)
	}
	cursor := fmt.Sprint(c.get("invoices?limit=1&status=paid,overdue")["next_cursor"])
	c.get("invoices?limit=1&status=overdue,paid&cursor=" + cursor)
	c.invalid("GET", "invoices?limit=1&status=paid&cursor="+cursor, "", "cursor")
}

func TestAppointmentsAreThoseToComeUnlessTimesAreGiven(t *testing.T) {
	t.Parallel()
	var at clock
	c := caller(t, connected(t, "", Options{Now: at.now}), owner())
	all := c.all("appointments?from=2000-01-01T00:00:00Z", 100)
	toCome := slices.DeleteFunc(slices.Clone(all), func(r map[string]any) bool { return fmt.Sprint(r["starts_at"]) < instant(testNow) })
	require.NotEmpty(t, toCome)
	require.Less(t, len(toCome), len(all))
	want := ids(toCome)
	assert.Equal(t, want, ids(c.all("appointments", 7)))
	assert.Equal(t, want, ids(c.all("appointments?to=2030-01-01T00:00:00Z", 100)))
	assert.Equal(t, ids(all[:len(all)-len(toCome)]), ids(c.all("appointments?to="+instant(testNow), 100)))
	assert.Equal(t, want[:1], ids(c.all("appointments?to="+instant(testNow.Add(time.Second)), 100)), "it begins now")

	first := c.get("appointments?limit=2")
	at.advance(time.Second)
	rest := c.get("appointments?limit=2&cursor=" + fmt.Sprint(first["next_cursor"]))
	assert.Equal(t, want[:4], append(ids(records(t, first, "appointments")), ids(records(t, rest, "appointments"))...), "a cursor outlives the instant")
}

func TestIntervalsAreHalfOpen(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for _, p := range []struct{ list, since, until, member string }{
		{"conversations", "since", "until", "started_at"},
		{"appointments", "from", "to", "starts_at"},
		{"contacts", "since", "until", "date_created"},
		{"invoices", "since", "until", "issued_at"},
		{"invoices", "due_from", "due_until", "due_at"},
		{"estimates", "since", "until", "created_at"},
		{"jobs", "since", "until", "created_at"},
	} {
		list := p.list + "?"
		if p.list == "appointments" {
			list += "calendar_id=" + fmt.Sprint(c.all("calendars", 100)[0]["id"]) + "&"
		}
		all := c.all(list+p.since+"=2000-01-01T00:00:00Z", 100)
		require.NotEmpty(t, all)
		at := func(r map[string]any) string {
			if p.member == "issued_at" && r[p.member] == nil {
				return fmt.Sprint(r["created_at"])
			}
			return fmt.Sprint(r[p.member])
		}
		slices.SortFunc(all, func(a, b map[string]any) int { return strings.Compare(at(a), at(b)) })
		middle, err := time.Parse(time.RFC3339, at(all[len(all)/3]))
		require.NoError(t, err)
		after := len(slices.DeleteFunc(slices.Clone(all), func(r map[string]any) bool { return at(r) < instant(middle) }))
		for _, at := range []string{
			middle.In(time.FixedZone("", -5*3600)).Format(time.RFC3339),
			middle.Add(-time.Millisecond).Format(time.RFC3339Nano),
		} {
			assert.Len(t, c.all(list+p.since+"="+url.QueryEscape(at), 100), after, list+at)
			assert.Len(t, c.all(list+p.until+"="+url.QueryEscape(at), 100), len(all)-after, list+at)
		}
	}
	drafts := c.all("invoices?status=draft&since=2000-01-01T00:00:00Z", 100)
	require.NotEmpty(t, drafts)
	require.Nil(t, drafts[0]["issued_at"], "drafts count by when they were created")
}

func TestRecordsOfAnotherBusinessAreNotFound(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	mine, theirs := caller(t, s, owner()), caller(t, s, stranger())
	for list, write := range map[string][2]string{
		"contacts": {"PATCH", `{"first_name":"Mine"}`}, "receptionist/faqs": {"PUT", `{"question":"Mine?","answer":"No."}`},
		"receptionist/services": {"PUT", `{"name":"Mine"}`}, "objects/vehicles": {"PATCH", `{"fields":{"make":"Mine"}}`},
		"conversations": {}, "appointments": {}, "invoices": {}, "estimates": {}, "jobs": {},
	} {
		path := list + "/" + ids(theirs.all(list, 100))[0]
		before := theirs.get(path)
		mine.notFound("GET", path, "")
		if write[0] != "" {
			mine.notFound(write[0], path, write[1])
			mine.notFound("DELETE", path, "")
		}
		assert.Equal(t, before, theirs.get(path))
	}
	mine.notFound("GET", "automation-runs/"+fmt.Sprint(theirs.start("weekly-report", "{}")), "")
	mine.notFound("GET", "object-types/boilers", "")
	mine.notFound("GET", "objects/boilers", "")
	mine.notFound("POST", "objects/boilers", `{"fields":{"make":"x","serial_number":"ABCD"}}`)
	mine.invalid("GET", "appointments?calendar_id="+fmt.Sprint(theirs.all("calendars", 100)[0]["id"]), "", "calendar_id")
	for _, list := range []string{"appointments", "conversations", "invoices", "estimates", "jobs"} {
		mine.invalid("GET", list+"?contact_id="+ids(theirs.all("contacts", 100))[0], "", "contact_id")
	}
	rule := fmt.Sprint(records(t, theirs.one("receptionist", "receptionist"), "rules")[0]["id"])
	mine.invalid("PATCH", "receptionist/rules", `{"change":[{"id":"`+rule+`","when":"a"}],"remove":["`+rule+`"],"add":[{"when":"a","then":"b","before":"`+rule+`"}]}`,
		"change[0].id", "remove[0]", "add[0].before")
}

func TestOnlyAccountsOfTheBusinessAreServed(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for _, path := range []string{"business", "contacts", "objects/vehicles"} {
		for _, h := range []string{HeaderBusinessID, HeaderAccountID} {
			require.Contains(t, c.rejected(http.StatusBadRequest, "INVALID_REQUEST", "GET", path, "", h, ""), h)
			c.rejected(http.StatusBadRequest, "INVALID_REQUEST", "GET", path, "", h, "with space")
		}
		c.rejected(http.StatusForbidden, "UNKNOWN_BUSINESS", "GET", path, "", HeaderBusinessID, uuid.NewString())
		c.rejected(http.StatusForbidden, "UNKNOWN_BUSINESS", "GET", path, "", HeaderBusinessID, noBusiness)
		c.rejected(http.StatusForbidden, "UNKNOWN_ACCOUNT", "GET", path, "", HeaderAccountID, uuid.NewString())
		c.rejected(http.StatusForbidden, "UNKNOWN_ACCOUNT", "GET", path, "", HeaderAccountID, stranger().ID)
		c.rejected(http.StatusForbidden, "UNKNOWN_ACCOUNT", "GET", path, "", HeaderBusinessID, stranger().BusinessID)
	}
	caller(t, shared, Accounts()[4]).rejected(http.StatusForbidden, "ACCOUNT_INACTIVE", "GET", "business", "")

	twice := httptest.NewRequest(http.MethodGet, "/connect/v1/business", http.NoBody)
	twice.Header = http.Header{HeaderAccountID: {owner().ID}, HeaderBusinessID: {owner().BusinessID, stranger().BusinessID}}
	w := httptest.NewRecorder()
	shared.Handler().ServeHTTP(w, twice)
	requireError(t, w, http.StatusBadRequest, "INVALID_REQUEST")
}

func TestMembersCannotMakeOwnersCalls(t *testing.T) {
	t.Parallel()
	c := caller(t, shared, member())
	writes(t, func(rt route, path, body string) {
		if rt.owner {
			if body != "" {
				body = "{not even json"
			}
			c.rejected(http.StatusForbidden, "FORBIDDEN", rt.method, path, body)
		}
	})
}

func TestTheAssertionIsVerifiedFirst(t *testing.T) {
	t.Parallel()
	st, err := openStore(t.Context(), Memory)
	require.NoError(t, err)
	var asked []string
	s := newService(st, Options{Authorize: func(r *http.Request) error {
		asked = append(asked, r.URL.Path)
		return errors.New("not from the gateway, says the test")
	}})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c := caller(t, s, owner())
	for _, path := range []string{"business", "sign-in", "accounts/x", "no/such/path"} {
		w := c.do("POST", path, "{broken")
		requireError(t, w, http.StatusUnauthorized, "UNAUTHORIZED")
		assert.NotContains(t, w.Body.String(), "says the test")
	}
	require.Len(t, asked, 4)
}

func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for _, path := range []string{
		"", "nothing", "contacts/", "contacts//", "/contacts", "contacts/1/more", "Contacts", "accounts", "accounts/", "sign-in/", "objects",
		"objects/vehicles/", "automation-runs", "automations/nothing", "contacts/..", "business/../contacts",
	} {
		c.notFound("GET", path, "")
	}
	for path, allow := range map[string]string{
		"business": "GET, PATCH", "business/hours": "GET, PATCH", "contacts": "GET, POST", "contacts/1": "GET, PATCH, DELETE", "sign-in": "POST",
		"accounts/x": "GET", "automations/x/runs": "POST", "receptionist/faqs/x": "GET, PUT, DELETE", "receptionist/rules": "PATCH",
	} {
		for _, method := range []string{"BREW", "HEAD"} {
			w := c.do(method, path, "")
			assert.Equal(t, http.StatusMethodNotAllowed, w.Code, path)
			assert.Equal(t, allow, w.Header().Get("Allow"), path)
		}
	}
	for _, id := range []string{"0", "-1", "x", "99999999999999999999", "1.0", "%20", "'--", "%00", "%ff", strings.Repeat("9", 300)} {
		for _, list := range []string{"contacts/", "invoices/", "objects/vehicles/"} {
			c.notFound("GET", list+id, "")
		}
	}
}

func TestABodyMustBeOneJSONObject(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for _, body := range []string{
		"{", "[]", "null", `"x"`, "1", "{} {}", `{"first_name":"a","first_name":"b"}`, "{\"first_name\":\"\xff\"}", `{"first_name":"\ud800"}`,
		"\ufeff{}", `{"a":{"b":1,"b":2}}`, "{'a':1}", `{"first_name":"a",}`,
	} {
		c.rejected(http.StatusBadRequest, "INVALID_REQUEST", "POST", "contacts", body)
		c.rejected(http.StatusBadRequest, "INVALID_REQUEST", "POST", "sign-in", body)
	}
	c.rejected(http.StatusBadRequest, "INVALID_REQUEST", "POST", "contacts", "", "Content-Type", "application/json")
	for _, media := range []string{"", "text/plain", "application/json-patch+json", "nonsense/"} {
		c.rejected(http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "POST", "contacts", `{"first_name":"a"}`, "Content-Type", media)
	}
	large := `{"first_name":"a","notes":"` + strings.Repeat("x", 70_000) + `"}`
	c.rejected(http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE", "POST", "contacts", large)
	c.rejected(http.StatusBadRequest, "INVALID_REQUEST", "GET", "contacts", "{}")
	c.rejected(http.StatusBadRequest, "INVALID_REQUEST", "DELETE", "contacts/1", "{}")
	c.rejected(http.StatusBadRequest, "INVALID_REQUEST", "POST", "contacts?dry=1", `{"first_name":"a"}`)
}
