package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// connected opens a service with the records of the two active businesses. It is closed at the end of the test. A file that exists
// is opened as it is; "" is one of the test's own.
func connected(t *testing.T, path string, o Options) *Service {
	t.Helper()
	s := prepared(t, path, o)
	s.runner.start()
	return s
}

// prepared is connected without automations being run.
func prepared(t *testing.T, path string, o Options) *Service {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "demo.db")
	}
	if _, err := os.Stat(path); err != nil {
		content, err := templateFile()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, content, 0o600))
	}
	st, err := openStore(t.Context(), path)
	require.NoError(t, err)
	return serving(t, st, o)
}

// inMemory is connected in memory indeed.
func inMemory(t *testing.T) *Service {
	t.Helper()
	st, err := openStore(t.Context(), Memory)
	require.NoError(t, err)
	require.NoError(t, fillActive(t.Context(), st))
	s := serving(t, st, Options{})
	s.runner.start()
	return s
}

func inAFile(t *testing.T) *Service {
	t.Helper()
	return connected(t, "", Options{})
}

func serving(t *testing.T, st *store, o Options) *Service {
	t.Helper()
	if o.Now == nil {
		o.Now = atTestNow
	}
	s := newService(st, o)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// templateFile is the file of a service before anybody has used it.
var templateFile = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "demo-template-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "demo.db")
	st, err := openStore(context.Background(), path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(fillActive(context.Background(), st), st.close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// fillActive fills a database with the records of the two active businesses.
func fillActive(ctx context.Context, st *store) error {
	return seed(ctx, st, testNow, demoHash, "fernhollow", "kestrelrow")
}

// demoHash is hashPassword, once for each password: it costs on purpose.
func demoHash(password string) string {
	hash, _ := demoHashes.LoadOrStore(password, sync.OnceValue(func() string { return hashPassword(password) }))
	return hash.(func() string)()
}

var demoHashes sync.Map

// The accounts of the tests: of the first business, and an owner of the second.
func owner() Account    { return Accounts()[0] }
func member() Account   { return Accounts()[1] }
func stranger() Account { return Accounts()[2] }

// as makes the calls of an account.
type as struct {
	testing.TB
	handler http.Handler
	account Account
}

func caller(t testing.TB, s *Service, a Account) *as {
	t.Helper()
	return &as{t, s.Handler(), a}
}

// do makes a call. header lists names and values; an empty value takes a header out.
func (c *as) do(method, path, body string, header ...string) *httptest.ResponseRecorder {
	c.Helper()
	r := httptest.NewRequestWithContext(context.Background(), method, "/connect/v1/"+path, strings.NewReader(body))
	r.Header.Set(HeaderBusinessID, c.account.BusinessID)
	r.Header.Set(HeaderAccountID, c.account.ID)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if method != http.MethodGet {
		r.Header.Set(HeaderIdempotencyKey, uuid.NewString())
	}
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i+1] == "" {
			r.Header.Del(header[i])
		}
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	require.Equal(c, "application/json", w.Header().Get("Content-Type"))
	require.Equal(c, "no-store", w.Header().Get("Cache-Control"))
	return w
}

// ok makes a call that has to succeed.
func (c *as) ok(method, path, body string, header ...string) map[string]any {
	c.Helper()
	w := c.do(method, path, body, header...)
	require.Equal(c, 2, w.Code/100, "%s %s: %s", method, path, w.Body)
	return decode(c, w)
}

func (c *as) get(path string) map[string]any {
	c.Helper()
	return c.ok(http.MethodGet, path, "")
}

// refused makes a call that has to be refused so, and gives its details: the
// problem with each field.
func (c *as) refused(status int, code, method, path, body string, header ...string) map[string]string {
	c.Helper()
	w := c.do(method, path, body, header...)
	require.Equal(c, status, w.Code, "%s %s %s: %s", method, path, body, w.Body)
	var answer struct {
		Error, Code string
		Details     []struct {
			Field, Problem string
			Allowed        *string
		}
	}
	require.NoError(c, json.Unmarshal(w.Body.Bytes(), &answer))
	require.Equal(c, code, answer.Code, "%s", w.Body)
	require.NotEmpty(c, answer.Error)
	problems := map[string]string{}
	for _, d := range answer.Details {
		require.NotEmpty(c, d.Problem)
		if d.Allowed != nil {
			require.NotEmpty(c, *d.Allowed)
			d.Problem += "; allowed: " + *d.Allowed
		}
		require.NotContains(c, problems, d.Field)
		problems[d.Field] = d.Problem
	}
	if code == "INVALID" || code == "CONFLICT" || code == "VERSION_MISMATCH" {
		require.NotEmpty(c, problems)
	}
	return problems
}

// invalid makes a call whose named fields, and no others, cannot be accepted.
func (c *as) invalid(method, path, body string, fields ...string) map[string]string {
	c.Helper()
	problems := c.refused(http.StatusUnprocessableEntity, "INVALID", method, path, body)
	require.ElementsMatch(c, fields, slices.Collect(maps.Keys(problems)), "%s %s: %v", path, body, problems)
	return problems
}

// record gives the member of an answer, or of a record, that is an object.
func record(t testing.TB, answer map[string]any, name string) map[string]any {
	t.Helper()
	r, ok := answer[name].(map[string]any)
	require.True(t, ok, "%s of %v", name, answer)
	return r
}

// all gives a list from its first part to its last.
func (c *as) all(path string, limit int) []map[string]any {
	c.Helper()
	name := path[strings.LastIndexByte(strings.Split(path, "?")[0], '/')+1:]
	name, query, _ := strings.Cut(name, "?")
	if strings.HasPrefix(path, "objects/") {
		name = "objects"
	}
	name = strings.ReplaceAll(name, "-", "_")
	base, _, _ := strings.Cut(path, "?")
	var found []map[string]any
	for cursor := ""; ; {
		v, err := url.ParseQuery(query)
		require.NoError(c, err)
		v.Set("limit", fmt.Sprint(limit))
		if cursor != "" {
			v.Set("cursor", cursor)
		}
		answer := c.get(base + "?" + v.Encode())
		part := records(c, answer, name)
		require.LessOrEqual(c, len(part), limit)
		found = append(found, part...)
		next, more := answer["next_cursor"].(string)
		if !more {
			require.Contains(c, answer, "next_cursor")
			require.Nil(c, answer["next_cursor"])
			return found
		}
		require.Len(c, part, limit)
		require.LessOrEqual(c, len(next), 512)
		cursor = next
	}
}

// sharedCaller reads from the shared service.
func sharedCaller(t testing.TB) *as {
	t.Helper()
	return caller(t, shared, owner())
}

var connectLists = []string{
	"contacts", "conversations", "calendars", "appointments", "receptionist/faqs", "receptionist/services",
	"invoices", "estimates", "jobs", "automations", "object-types", "objects/vehicles", "objects/pets",
}

func dataServicesPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "data-services.md"))
	require.NoError(t, err)
	_, part, found := strings.Cut(string(text), "## What the connection server asks\n")
	require.True(t, found)
	return part
}

func TestCallsAreThoseOfTheDocumentation(t *testing.T) {
	t.Parallel()
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z]+) /connect/v1/([^`]+)` \\| [^|]+ \\|([^|]*)\\|$").FindAllStringSubmatch(dataServicesPage(t), -1) {
		documented[m[1]+" "+m[2]] = strings.TrimSpace(m[3])
	}
	served := map[string]string{}
	for _, rt := range newConnectAPI(shared).routes {
		who := "all"
		switch {
		case rt.owner:
			who = "owner"
		case rt.nobody:
			who = ""
		}
		served[rt.method+" "+rt.path] = who
	}
	require.Equal(t, documented, served)
}

func TestDocumentedExamplesHaveTheMembersOfResponses(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	run := finished(t, c, record(t, c.ok("POST", "automations/weekly-report/runs", "{}"), "run")["id"])
	require.Equal(t, runSucceeded, run["status"])
	conversation := fmt.Sprint(records(t, c.get("conversations"), "conversations")[0]["id"])
	message := records(t, record(t, c.get("conversations/"+conversation), "conversation"), "messages")[0]
	answers := map[string]map[string]any{
		"account": caller(t, s, owner()).get("accounts/" + owner().ID),
		"run":     {"run": run}, "receptionist": c.get("receptionist"), "business": c.get("business"),
		"hours": c.get("business/hours"), "service_areas": c.get("business/service-areas"),
		"object_type": c.get("object-types/vehicles"), "invoice": {"invoice": records(t, c.get("invoices"), "invoices")[0]},
		"objects": {"objects": records(t, c.get("objects/vehicles"), "objects"), "next_cursor": nil}, "text": message,
		"error": decode(t, c.do("POST", "contacts", `{"contact_type":"x","phone_number":"1"}`)),
		"automations": {
			"automations": slices.DeleteFunc(records(t, c.get("automations"), "automations"), func(a map[string]any) bool { return a["last_run"] == nil }),
			"next_cursor": nil,
		},
	}
	for _, name := range []string{"contacts", "conversations", "calendars", "appointments"} {
		answers[name] = c.get(name)
	}
	answers["faqs"], answers["services"] = c.get("receptionist/faqs"), c.get("receptionist/services")

	seen := map[string]bool{}
	for _, m := range regexp.MustCompile("(?s)```json connect\n(.*?)```\n").FindAllStringSubmatch(dataServicesPage(t), -1) {
		var example map[string]any
		require.NoError(t, json.Unmarshal([]byte(m[1]), &example), m[1])
		for name, answer := range answers {
			if _, ok := example[name]; ok && !(name == "text" && len(example) != 4) {
				requireMembers(t, name, example, roundTrip(t, answer))
				seen[name] = true
			}
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(answers)), slices.Collect(maps.Keys(seen)))
}

// roundTrip writes and reads a value as JSON.
func roundTrip(t *testing.T, v map[string]any) (out map[string]any) {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &out))
	return out
}

// requireMembers compares the names of members. What a business makes up itself
// is let be: the fields of objects, their schemas, inputs and results.
func requireMembers(t *testing.T, path string, example, answer any) {
	t.Helper()
	switch example := example.(type) {
	case map[string]any:
		answer, ok := answer.(map[string]any)
		require.True(t, ok, path)
		require.ElementsMatch(t, slices.Collect(maps.Keys(example)), slices.Collect(maps.Keys(answer)), path)
		for name := range example {
			if slices.Contains([]string{"fields", "schema", "input_schema", "input", "result", "error"}, name) {
				continue
			}
			if example[name] != nil && answer[name] != nil {
				requireMembers(t, path+"."+name, example[name], answer[name])
			}
		}
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

func TestConnectRecordsCarryTheirBusiness(t *testing.T) {
	t.Parallel()
	for _, a := range []Account{owner(), stranger()} {
		c := caller(t, shared, a)
		for _, list := range connectLists {
			if list == "objects/pets" && a == stranger() {
				continue
			}
			all := c.all(list, 100)
			require.NotEmpty(t, all, list)
			for _, r := range all {
				require.Equal(t, a.BusinessID, r["business_id"], list)
			}
			if r, ok := all[0]["id"]; ok && !strings.HasPrefix(list, "calendars") && list != "automations" {
				one := c.get(fmt.Sprintf("%s/%v", list, jsonID(r)))
				require.Len(t, one, 1)
				for _, single := range one {
					require.Equal(t, a.BusinessID, single.(map[string]any)["business_id"], list)
					require.Equal(t, r, single.(map[string]any)["id"], list)
				}
			}
		}
	}
}

// jsonID writes an id as it stands in a path.
func jsonID(id any) string {
	if n, ok := id.(float64); ok {
		return fmt.Sprint(int64(n))
	}
	return fmt.Sprint(id)
}

func TestPartsOfAListHaveNoGapsOrRepeats(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for _, list := range connectLists {
		t.Run(list, func(t *testing.T) {
			t.Parallel()
			whole := c.all(list, 100)
			require.Equal(t, whole, c.all(list, 7))
			require.Equal(t, whole, c.all(list, 1+len(whole)%97))
		})
	}
}

func TestConnectListsAreInTheDocumentedOrder(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for list, by := range map[string]string{
		"contacts": "-date_created", "conversations": "-started_at", "calendars": "name", "appointments": "starts_at",
		"receptionist/faqs": "created_at", "receptionist/services": "created_at", "invoices": "-created_at", "estimates": "-created_at",
		"jobs": "-created_at", "automations": "name", "object-types": "name", "objects/vehicles": "-created_at",
	} {
		column, newest := strings.CutPrefix(by, "-")
		var keys []string
		for _, r := range c.all(list, 100) {
			keys = append(keys, fmt.Sprint(r[column]))
		}
		if newest {
			slices.Reverse(keys)
		}
		require.True(t, slices.IsSorted(keys), list)
	}
}

func TestACursorSurvivesInsertsAndDeletes(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	var mine []string
	for i := range 9 {
		r := record(t, c.ok("POST", "objects/vehicles", fmt.Sprintf(`{"fields":{"plate":"AB %d","make":"Same second"}}`, i)), "object")
		mine = append(mine, fmt.Sprint(r["id"]))
	}
	before := c.all("objects/vehicles", 100)
	first := c.get("objects/vehicles?limit=5")
	page := records(t, first, "objects")
	// The one that the cursor stands on goes, one that has been seen goes, a new one comes.
	c.ok("DELETE", "objects/vehicles/"+fmt.Sprint(page[4]["id"]), "")
	c.ok("DELETE", "objects/vehicles/"+fmt.Sprint(page[1]["id"]), "")
	c.ok("POST", "objects/vehicles", `{"fields":{"plate":"NEW","make":"Newer"}}`)
	rest := records(t, c.get("objects/vehicles?limit=100&cursor="+first["next_cursor"].(string)), "objects")
	seen := append(slices.Clone(page), rest...)
	for _, r := range before {
		n := 0
		for _, s := range seen {
			if s["id"] == r["id"] {
				n++
			}
		}
		require.Equal(t, 1, n, "%v", r)
	}
	require.Subset(t, ids(before), mine)
}

func ids(list []map[string]any) (all []string) {
	for _, r := range list {
		all = append(all, fmt.Sprint(r["id"]))
	}
	return all
}

func TestACursorIsBoundToItsList(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	cursor := c.get("contacts?limit=2&status=active")["next_cursor"].(string)
	c.get("contacts?limit=9&status=active&cursor=" + cursor) // another limit is fine
	for _, path := range []string{
		"contacts?cursor=" + cursor, "contacts?status=inactive&cursor=" + cursor, "jobs?cursor=" + cursor,
		"contacts?status=active&query=a&cursor=" + cursor, "contacts?cursor=abc", "contacts?cursor=%00", "contacts?cursor=",
		"contacts?cursor=" + strings.Repeat("a", 600), "contacts?cursor=bnVsbA", "contacts?cursor=W10",
	} {
		c.invalid("GET", path, "", "cursor")
	}
	caller(t, shared, stranger()).invalid("GET", "contacts?limit=2&status=active&cursor="+cursor, "", "cursor")
	caller(t, shared, member()).get("contacts?limit=2&status=active&cursor=" + cursor)
}

func TestInvalidParametersAreNamed(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for _, list := range connectLists {
		for _, query := range []string{"limit=0", "limit=101", "limit=x", "limit=1.5", "limit=", "limit=1&limit=2", "limit=99999999999999999999"} {
			c.invalid("GET", list+"?"+query, "", "limit")
		}
		c.invalid("GET", list+"?nonsense=1&more=2", "", "nonsense", "more")
	}
	c.refused(http.StatusBadRequest, "INVALID_REQUEST", "GET", "contacts?query=%zz", "")
}

func TestSearchIgnoresCaseAndAccents(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	made := record(t, c.ok("POST", "contacts", `{"first_name":"Zoë","last_name":"Łukasz-Ångström","email":"z@example.com","phone_number":"6085550100","country_code":"+1","notes":"Straße 5\nGate's code 100%_x"}`), "contact")
	for _, query := range []string{
		"zoe", "ZOË", "zoë angstrom", "lukasz", "ÅNGSTRÖM Zoe", "z@example.com", "+16085550100", "6085550100", "strasse", "gate's", "100%_x", "  zoe   5 ",
	} {
		found := c.all("contacts?query="+url.QueryEscape(query), 100)
		require.Contains(t, ids(found), jsonID(made["id"]), query)
	}
	for _, query := range []string{"zoe nobody", "100%x", "'; DROP TABLE contacts --", "_____________", "%%"} {
		require.NotContains(t, ids(c.all("contacts?query="+url.QueryEscape(query), 100)), jsonID(made["id"]), query)
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
		count := map[string][]string{}
		for _, r := range c.all(f.list, 100) {
			v := fmt.Sprint(r[f.member])
			count[v] = append(count[v], jsonID(r["id"]))
		}
		require.Greater(t, len(count), 1, "%s by %s", f.list, f.parameter)
		for value, want := range count {
			var got []string
			for _, r := range c.all(f.list+"?"+f.parameter+"="+value, 100) {
				got = append(got, jsonID(r["id"]))
			}
			require.Equal(t, want, got, "%s by %s=%s", f.list, f.parameter, value)
		}
	}
}

func TestIntervalsAreHalfOpen(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for list, p := range map[string][3]string{"conversations": {"started_at", "since", "until"}, "appointments": {"starts_at", "from", "to"}} {
		all := c.all(list, 100)
		at := fmt.Sprint(all[len(all)/2][p[0]])
		instant, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		elsewhere := url.QueryEscape(instant.In(time.FixedZone("", -5*3600)).Format(time.RFC3339))
		var from, before int
		for _, r := range all {
			if fmt.Sprint(r[p[0]]) >= at {
				from++
			} else {
				before++
			}
		}
		require.Len(t, c.all(list+"?"+p[1]+"="+elsewhere, 100), from, list)
		require.Len(t, c.all(list+"?"+p[2]+"="+elsewhere, 100), before, list)
		fraction := url.QueryEscape(instant.Add(-time.Millisecond).Format(time.RFC3339Nano))
		require.Len(t, c.all(list+"?"+p[1]+"="+fraction, 100), from, list)
		require.Len(t, c.all(list+"?"+p[2]+"="+fraction, 100), before, list)
	}
}

func TestRecordsOfAnotherBusinessAreNotFound(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	mine, theirs := caller(t, s, owner()), caller(t, s, stranger())
	run := record(t, theirs.ok("POST", "automations/weekly-report/runs", "{}"), "run")
	finished(t, theirs, run["id"])
	bodies := map[string]string{
		"contacts": `{"first_name":"Mine"}`, "receptionist/faqs": `{"question":"Mine?","answer":"No."}`,
		"receptionist/services": `{"name":"Mine"}`, "objects/vehicles": `{"fields":{"make":"Mine"}}`,
	}
	for _, list := range []string{
		"contacts", "conversations", "appointments", "receptionist/faqs", "receptionist/services", "invoices", "estimates", "jobs", "objects/vehicles",
	} {
		before := theirs.all(list, 100)
		path := list + "/" + jsonID(before[0]["id"])
		mine.refused(http.StatusNotFound, "NOT_FOUND", "GET", path, "")
		theirs.get(path)
		if body, writes := bodies[list]; writes {
			method := "PATCH"
			if strings.HasPrefix(list, "receptionist") {
				method = "PUT"
			}
			mine.refused(http.StatusNotFound, "NOT_FOUND", method, path, body)
			mine.refused(http.StatusNotFound, "NOT_FOUND", "DELETE", path, "")
		}
		require.Equal(t, before, theirs.all(list, 100))
	}
	mine.refused(http.StatusNotFound, "NOT_FOUND", "GET", "automation-runs/"+fmt.Sprint(run["id"]), "")
	mine.refused(http.StatusNotFound, "NOT_FOUND", "GET", "object-types/boilers", "")
	mine.refused(http.StatusNotFound, "NOT_FOUND", "GET", "objects/boilers", "")
	mine.refused(http.StatusNotFound, "NOT_FOUND", "POST", "objects/boilers", `{"fields":{"make":"x","serial_number":"ABCD"}}`)
	mine.invalid("GET", "appointments?calendar_id="+fmt.Sprint(theirs.all("calendars", 100)[0]["id"]), "", "calendar_id")
	mine.invalid("GET", "appointments?contact_id="+jsonID(theirs.all("contacts", 100)[0]["id"]), "", "contact_id")
	rules := record(t, theirs.get("receptionist"), "receptionist")["rules"].([]any)
	mine.invalid("PUT", "receptionist/rules", fmt.Sprintf(`{"rules":[{"id":%q,"when":"a","then":"b"}]}`, rules[0].(map[string]any)["id"]), "rules[0].id")
}

func TestOnlyAccountsOfTheBusinessAreServed(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	for _, list := range connectLists {
		for _, h := range []string{HeaderBusinessID, HeaderAccountID} {
			require.Contains(t, c.refused(http.StatusBadRequest, "INVALID_REQUEST", "GET", list, "", h, ""), h)
			c.refused(http.StatusBadRequest, "INVALID_REQUEST", "GET", list, "", h, "with space")
		}
		c.refused(http.StatusForbidden, "UNKNOWN_BUSINESS", "GET", list, "", HeaderBusinessID, uuid.NewString())
		c.refused(http.StatusForbidden, "UNKNOWN_BUSINESS", "GET", list, "", HeaderBusinessID, NoBusiness)
		c.refused(http.StatusForbidden, "UNKNOWN_ACCOUNT", "GET", list, "", HeaderAccountID, uuid.NewString())
		c.refused(http.StatusForbidden, "UNKNOWN_ACCOUNT", "GET", list, "", HeaderAccountID, stranger().ID)
		c.refused(http.StatusForbidden, "UNKNOWN_ACCOUNT", "GET", list, "", HeaderBusinessID, stranger().BusinessID)
	}
	caller(t, shared, Accounts()[4]).refused(http.StatusForbidden, "ACCOUNT_INACTIVE", "GET", "business", "")

	twice := httptest.NewRequest(http.MethodGet, "/connect/v1/business", http.NoBody)
	twice.Header.Set(HeaderAccountID, owner().ID)
	twice.Header[HeaderBusinessID] = []string{owner().BusinessID, stranger().BusinessID}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, twice)
	require.Equal(t, http.StatusBadRequest, w.Code)

	setStatus(t, s, owner(), "disabled")
	c.refused(http.StatusForbidden, "UNKNOWN_ACCOUNT", "GET", "business", "")
	caller(t, s, member()).get("business")
}

func setStatus(t *testing.T, s *Service, a Account, status string) {
	t.Helper()
	execute(t, s, "UPDATE accounts SET status = ? WHERE id = ?", status, a.ID)
}

func execute(t *testing.T, s *Service, statement string, args ...any) {
	t.Helper()
	require.NoError(t, s.store.use(func() error {
		_, err := s.store.writer.ExecContext(t.Context(), statement, args...)
		return err
	}))
}

func TestMembersCannotMakeOwnersCalls(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, member())
	for _, rt := range newConnectAPI(s).routes {
		if !rt.owner {
			continue
		}
		path := strings.NewReplacer("{type}", "vehicles", "{id}", "whatever").Replace(rt.path)
		body := ""
		if rt.hasBody() {
			body = "{not even json"
		}
		c.refused(http.StatusForbidden, "FORBIDDEN", rt.method, path, body)
	}
	contact := record(t, c.ok("POST", "contacts", `{"first_name":"By a member"}`), "contact")
	c.refused(http.StatusForbidden, "FORBIDDEN", "DELETE", "contacts/"+jsonID(contact["id"]), "")
	c.get("contacts/" + jsonID(contact["id"]))
	caller(t, s, owner()).ok("DELETE", "contacts/"+jsonID(contact["id"]), "")
}

func TestTheAssertionIsVerifiedFirst(t *testing.T) {
	t.Parallel()
	st, err := openStore(t.Context(), Memory)
	require.NoError(t, err)
	var asked []string
	s := newService(st, Options{Authorize: func(r *http.Request) error {
		asked = append(asked, r.URL.Path)
		return errForTests
	}})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c := caller(t, s, owner())
	for _, path := range []string{"business", "sign-in", "accounts/x", "no/such/path"} {
		w := c.do("POST", path, "{broken")
		requireError(t, w, http.StatusUnauthorized, "UNAUTHORIZED")
		require.NotContains(t, w.Body.String(), errForTests.Error())
	}
	require.Equal(t, []string{"/connect/v1/business", "/connect/v1/sign-in", "/connect/v1/accounts/x", "/connect/v1/no/such/path"}, asked)
}

type testError string

func (e testError) Error() string { return string(e) }

const errForTests = testError("not from the gateway, says the test")

func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for _, path := range []string{
		"", "nothing", "contacts/", "contacts//", "/contacts", "contacts/1/more", "Contacts", "accounts", "accounts/", "sign-in/", "objects", "objects/",
		"objects/vehicles/", "automation-runs", "automations/weekly-report", "receptionist/personality/x", "contacts/..", "business/../contacts",
	} {
		w := c.do("GET", path, "")
		requireError(t, w, http.StatusNotFound, "NOT_FOUND")
	}
	for path, allow := range map[string]string{
		"business": "GET, PATCH", "business/hours": "GET, PUT", "contacts": "GET, POST", "contacts/1": "GET, PATCH, DELETE", "sign-in": "POST",
		"accounts/x": "GET", "automations/x/runs": "POST", "receptionist/faqs/x": "GET, PUT, DELETE", "receptionist/rules": "PUT",
	} {
		w := c.do("BREW", path, "")
		require.Equal(t, http.StatusMethodNotAllowed, w.Code, path)
		require.Equal(t, allow, w.Header().Get("Allow"), path)
		require.Equal(t, http.StatusMethodNotAllowed, c.do("HEAD", path, "").Code)
	}
	for _, id := range []string{"0", "-1", "x", "99999999999999999999", "1.0", "%20", "'--", "%00", "%ff", strings.Repeat("9", 300)} {
		c.refused(http.StatusNotFound, "NOT_FOUND", "GET", "contacts/"+id, "")
		c.refused(http.StatusNotFound, "NOT_FOUND", "GET", "invoices/"+id, "")
		c.refused(http.StatusNotFound, "NOT_FOUND", "GET", "objects/vehicles/"+id, "")
	}
}

func TestABodyMustBeOneJSONObject(t *testing.T) {
	t.Parallel()
	c := sharedCaller(t)
	for _, body := range []string{
		"{", "[]", "null", `"x"`, "1", "{} {}", `{"first_name":"a","first_name":"b"}`, "{\"first_name\":\"\xff\"}", `{"first_name":"\ud800"}`,
		"\ufeff{}", `{"a":{"b":1,"b":2}}`, "{'a':1}", `{"first_name":"a",}`,
	} {
		c.refused(http.StatusBadRequest, "INVALID_REQUEST", "POST", "contacts", body)
		c.refused(http.StatusBadRequest, "INVALID_REQUEST", "POST", "sign-in", body)
	}
	c.refused(http.StatusBadRequest, "INVALID_REQUEST", "POST", "contacts", "", "Content-Type", "application/json")
	for _, media := range []string{"", "text/plain", "application/json-patch+json", "application/x-www-form-urlencoded", "nonsense/"} {
		c.refused(http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "POST", "contacts", `{"first_name":"a"}`, "Content-Type", media)
	}
	large := `{"first_name":"a","notes":"` + strings.Repeat("x", 70_000) + `"}`
	c.refused(http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE", "POST", "contacts", large)
	c.refused(http.StatusBadRequest, "INVALID_REQUEST", "GET", "contacts", "{}")
	c.refused(http.StatusBadRequest, "INVALID_REQUEST", "DELETE", "contacts/1", "{}")
	c.refused(http.StatusBadRequest, "INVALID_REQUEST", "POST", "contacts?dry=1", `{"first_name":"a"}`)
}

func TestAClosedServiceAnswersConnectCallsWith503(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	require.NoError(t, s.Close())
	c := caller(t, s, owner())
	for _, w := range []*httptest.ResponseRecorder{
		c.do("GET", "contacts", ""), c.do("POST", "contacts", `{"first_name":"x"}`), c.do("GET", "accounts/x", ""),
		c.do("POST", "sign-in", `{"email":"a@b.example","password":"x"}`),
	} {
		requireError(t, w, http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE")
		require.NotEmpty(t, w.Header().Get("Retry-After"))
	}
}

func TestConcurrentReadsAndWrites(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *Service{"memory": inMemory, "file": inAFile} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := caller(t, open(t), owner())
			before := len(c.all("contacts", 100))
			var group sync.WaitGroup
			for i := range 8 {
				group.Go(func() {
					for j := range 5 {
						w := c.do("POST", "contacts", fmt.Sprintf(`{"first_name":"Racer %d %d"}`, i, j))
						if w.Code != http.StatusCreated {
							panic(w.Body.String())
						}
						if w := c.do("GET", "contacts?query=racer", ""); w.Code != http.StatusOK {
							panic(w.Body.String())
						}
					}
				})
			}
			group.Wait()
			require.Len(t, c.all("contacts", 100), before+40)
			require.Len(t, c.all("contacts?query=racer", 9), 40)
		})
	}
}
