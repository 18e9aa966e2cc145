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
		"account": "accounts/" + owner().ID, "receptionist": "receptionist", "business": "business", "hours": "business/hours",
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
		{"appointments", "status", "status"},
		{"appointments", "calendar_id", "calendar_id"},
		{"invoices", "status", "status"},
		{"estimates", "status", "status"},
		{"estimates", "payment_status", "payment_status"},
		{"jobs", "status", "work_status"},
	} {
		want := map[string][]string{}
		for _, r := range c.all(f.list, 100) {
			v := fmt.Sprint(r[f.member])
			want[v] = append(want[v], jsonID(r["id"]))
		}
		assert.Greater(t, len(want), 1, "%s by %s", f.list, f.parameter)
		for value := range want {
			assert.Equal(t, want[value], ids(c.all(f.list+"?"+f.parameter+"="+value, 100)), "%s by %s=%s", f.list, f.parameter, value)
		}
	}
}

func TestIntervalsAreHalfOpen(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for list, p := range map[string][3]string{"conversations": {"started_at", "since", "until"}, "appointments": {"starts_at", "from", "to"}} {
		all := c.all(list, 100)
		middle, err := time.Parse(time.RFC3339, fmt.Sprint(all[len(all)/2][p[0]]))
		require.NoError(t, err)
		after := len(slices.DeleteFunc(slices.Clone(all), func(r map[string]any) bool { return fmt.Sprint(r[p[0]]) < instant(middle) }))
		for _, at := range []string{
			middle.In(time.FixedZone("", -5*3600)).Format(time.RFC3339),
			middle.Add(-time.Millisecond).Format(time.RFC3339Nano),
		} {
			assert.Len(t, c.all(list+"?"+p[1]+"="+url.QueryEscape(at), 100), after, at)
			assert.Len(t, c.all(list+"?"+p[2]+"="+url.QueryEscape(at), 100), len(all)-after, at)
		}
	}
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
	mine.invalid("GET", "appointments?contact_id="+ids(theirs.all("contacts", 100))[0], "", "contact_id")
	rule := records(t, theirs.one("receptionist", "receptionist"), "rules")[0]["id"]
	mine.invalid("PUT", "receptionist/rules", fmt.Sprintf(`{"rules":[{"id":%q,"when":"a","then":"b"}]}`, rule), "rules[0].id")
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
		"objects/vehicles/", "automation-runs", "automations/weekly-report", "contacts/..", "business/../contacts",
	} {
		c.notFound("GET", path, "")
	}
	for path, allow := range map[string]string{
		"business": "GET, PATCH", "business/hours": "GET, PUT", "contacts": "GET, POST", "contacts/1": "GET, PATCH, DELETE", "sign-in": "POST",
		"accounts/x": "GET", "automations/x/runs": "POST", "receptionist/faqs/x": "GET, PUT, DELETE", "receptionist/rules": "PUT",
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
