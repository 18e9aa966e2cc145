package demo

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
)

// testNow is the present of the tests: a Wednesday in September.
var testNow = time.Date(2026, 9, 16, 15, 30, 0, 0, time.UTC)

// clock is a clock that tests move. It starts at testNow.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time          { return testNow.Add(time.Duration(c.offset.Load())) }
func (c *clock) advance(d time.Duration) { c.offset.Add(int64(d)) }

// patience bounds every wait, also on a busy machine.
const patience = time.Minute

// shared is a service in memory for the tests that only read.
var shared *Service

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if shared, err = Open(context.Background(), Memory, Options{Now: new(clock).now}); err != nil {
			fmt.Fprintln(os.Stderr, "opening the shared service:", err)
			return 1
		}
		code := m.Run()
		if err := shared.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "closing the shared service:", err)
			return 1
		}
		return leaktest.Check(code)
	}())
}

// connected opens a service with the records of the two active businesses in a file, Memory, or, if path is "", a file of its
// own. An existing file keeps its records. The service is closed at the end of the test.
func connected(t testing.TB, path string, o Options) *Service {
	t.Helper()
	s := prepared(t, path, o)
	s.runner.start()
	return s
}

// prepared is connected, with automations that do not run until the test starts the runner.
func prepared(t testing.TB, path string, o Options) *Service {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "demo.db")
	}
	if _, err := os.Stat(path); err != nil && path != Memory {
		content, err := templateFile()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, content, 0o600))
	}
	st, err := openStore(t.Context(), path)
	require.NoError(t, err)
	if path == Memory {
		require.NoError(t, fillActive(st))
	}
	if o.Now == nil {
		o.Now = new(clock).now
	}
	s := newService(st, o)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// templateFile is a database that nobody has used yet.
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
	if err := errors.Join(fillActive(st), st.close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func fillActive(st *store) error {
	return seed(context.Background(), st, testNow, seedFolders()[:2]...)
}

// execute changes the database, and texts returns the first column of a query.
func execute(t testing.TB, s *Service, statement string, args ...any) {
	t.Helper()
	require.NoError(t, s.store.write(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), statement, args...)
		return err
	}), statement)
}

func texts(t testing.TB, s *Service, query string, args ...any) (all []string) {
	t.Helper()
	require.NoError(t, s.store.read(t.Context(), func(tx *sql.Tx) (err error) {
		all, err = rowsOf(t.Context(), tx, func(s *string) []any { return []any{s} }, query, args...)
		return err
	}), query)
	return all
}

// The seeded businesses, and the accounts of most tests: two of the first business, and the owner of the second.
func active() []Business { return Businesses()[:2] }
func inactive() Business { return Businesses()[2] }
func owner() Account     { return Accounts()[0] }
func member() Account    { return Accounts()[1] }
func stranger() Account  { return Accounts()[2] }

// call sends a request to the public API for a business.
func call(t testing.TB, s *Service, businessID, target string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
	r.Header.Set(HeaderBusinessID, businessID)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// get returns the JSON of a successful response of the public API.
func get(t testing.TB, s *Service, businessID, target string) map[string]any {
	t.Helper()
	w := call(t, s, businessID, "/api/v1/"+target)
	require.Equal(t, http.StatusOK, w.Code, "%s: %s", target, w.Body)
	return decode(t, w)
}

func requireError(t testing.TB, w *httptest.ResponseRecorder, status int, code string) map[string]any {
	t.Helper()
	require.Equal(t, status, w.Code, "%s", w.Body)
	body := decode(t, w)
	require.Equal(t, code, body["code"])
	return body
}

func decode(t testing.TB, w *httptest.ResponseRecorder) (body map[string]any) {
	t.Helper()
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body), "%s", w.Body)
	return body
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// records returns a member that is a list of objects.
func records(t testing.TB, body map[string]any, name string) []map[string]any {
	t.Helper()
	list, ok := body[name].([]any)
	require.True(t, ok, "%s is %T", name, body[name])
	all := make([]map[string]any, len(list))
	for i := range list {
		all[i], ok = list[i].(map[string]any)
		require.True(t, ok)
	}
	return all
}

// record returns a member that is an object.
func record(t testing.TB, body map[string]any, name string) map[string]any {
	t.Helper()
	r, ok := body[name].(map[string]any)
	require.True(t, ok, "%s of %v", name, body)
	return r
}

// jsonID returns an id as it stands in a path.
func jsonID(id any) string {
	if n, ok := id.(float64); ok {
		return fmt.Sprint(int64(n))
	}
	return fmt.Sprint(id)
}

func ids(list []map[string]any) (all []string) {
	for _, r := range list {
		all = append(all, jsonID(r["id"]))
	}
	return all
}

// as makes the calls of an account to /connect/v1.
type as struct {
	testing.TB
	handler http.Handler
	account Account
}

func caller(t testing.TB, s *Service, a Account) *as {
	t.Helper()
	return &as{t, s.Handler(), a}
}

// sharedCaller reads from the shared service.
func sharedCaller(t testing.TB) *as {
	t.Helper()
	return caller(t, shared, owner())
}

// do makes a call. header lists names and values; an empty value removes a header.
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
	require.Equal(c, "no-store", w.Header().Get("Cache-Control"))
	return w
}

// ok makes a call that must succeed.
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

// one reads a record, and made creates one.
func (c *as) one(path, name string) map[string]any { c.Helper(); return record(c, c.get(path), name) }

func (c *as) made(path, name, body string) map[string]any {
	c.Helper()
	w := c.do(http.MethodPost, path, body)
	require.Equal(c, http.StatusCreated, w.Code, "%s: %s", path, w.Body)
	return record(c, decode(c, w), name)
}

// rejected makes a call that must be rejected, and returns the problem with each field, with what is allowed.
func (c *as) rejected(status int, code, method, path, body string, header ...string) map[string]string {
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

func (c *as) notFound(method, path, body string) {
	c.Helper()
	c.rejected(http.StatusNotFound, "NOT_FOUND", method, path, body)
}

// invalid makes a call that must be rejected for the named fields and no others.
func (c *as) invalid(method, path, body string, fields ...string) map[string]string {
	c.Helper()
	problems := c.rejected(http.StatusUnprocessableEntity, "INVALID", method, path, body)
	var named []string
	for field := range problems {
		named = append(named, field)
	}
	require.ElementsMatch(c, fields, named, "%s %s: %v", path, body, problems)
	return problems
}

// all returns a list from its first part to its last.
func (c *as) all(path string, limit int) (found []map[string]any) {
	c.Helper()
	base, query, _ := strings.Cut(path, "?")
	name := strings.ReplaceAll(base[strings.LastIndexByte(base, '/')+1:], "-", "_")
	if strings.HasPrefix(base, "objects/") {
		name = "objects"
	}
	v, err := url.ParseQuery(query)
	require.NoError(c, err)
	v.Set("limit", fmt.Sprint(limit))
	for {
		answer := c.get(base + "?" + v.Encode())
		part := records(c, answer, name)
		found = append(found, part...)
		next, more := answer["next_cursor"].(string)
		if !more {
			require.Contains(c, answer, "next_cursor")
			require.LessOrEqual(c, len(part), limit)
			return found
		}
		require.Len(c, part, limit)
		require.LessOrEqual(c, len(next), 512)
		v.Set("cursor", next)
	}
}

var connectLists = []string{
	"contacts", "conversations", "calendars", "appointments", "receptionist/faqs", "receptionist/services",
	"invoices", "estimates", "jobs", "automations", "object-types", "objects/vehicles", "objects/pets",
}

// writes are the operations that need an idempotency key, by method and path, with records that do not exist.
func writes(t testing.TB, each func(rt route, path, body string)) {
	t.Helper()
	n := 0
	for _, rt := range newConnectAPI(shared).routes {
		if !rt.writes() || rt.nobody {
			continue
		}
		n++
		body := ""
		if rt.hasBody() {
			body = "{}"
		}
		each(rt, strings.NewReplacer("{type}", "vehicles", "{id}", "x").Replace(rt.path), body)
	}
	require.Greater(t, n, 15)
}

// concurrently makes calls at once, and returns the responses.
func concurrently(n int, do func(i int) *httptest.ResponseRecorder) []*httptest.ResponseRecorder {
	all := make([]*httptest.ResponseRecorder, n)
	var group sync.WaitGroup
	for i := range all {
		group.Go(func() { all[i] = do(i) })
	}
	group.Wait()
	return all
}

// codes returns the status codes of responses, sorted.
func codes(all []*httptest.ResponseRecorder) (codes []int) {
	for _, w := range all {
		codes = append(codes, w.Code)
	}
	slices.Sort(codes)
	return codes
}
