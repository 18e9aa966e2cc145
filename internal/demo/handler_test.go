package demo

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"            //nolint:depguard // the gateway's check of responses
	"github.com/gatehouse-gateway/gatehouse/upstream/definition" //nolint:depguard // the public contract
)

// lists are the resources with pages.
var lists = []string{"contacts", "equipment", "estimates", "invoices", "jobs", "offerings"}

// pagination is the member of that name.
func pagination(page, perPage, items int) map[string]any {
	return map[string]any{
		"current_page": float64(page), "per_page": float64(perPage),
		"total_items": float64(items), "total_pages": float64((items + perPage - 1) / perPage),
	}
}

// count counts the records of a resource in its table.
func count(t testing.TB, resource, businessID, condition string) (n int) {
	t.Helper()
	_, err := fmt.Sscan(texts(t, shared, "SELECT count(*) FROM "+resource+" WHERE business_id = ? AND "+condition, businessID)[0], &n)
	require.NoError(t, err)
	return n
}

// TestResponsesMeetTheContract reads every record through the gateway's check, which rejects records of other businesses,
// missing members and wrong types, and reports an order that is not the contract's.
func TestResponsesMeetTheContract(t *testing.T) {
	t.Parallel()
	for _, b := range Businesses() {
		for _, res := range definition.Public().Operations() {
			if res.ByGateway {
				continue
			}
			t.Run(b.Slug+" "+res.Resource, func(t *testing.T) {
				t.Parallel()
				read := map[string]bool{}
				for page := 1; ; page++ {
					raw := fmt.Sprintf("count=100&per_page=70&page=%d", page)
					q, err := res.CleanQuery(upstream.Match{Query: raw})
					require.NoError(t, err)
					w := call(t, shared, b.ID, res.Path+"?"+q.Raw)
					require.Equal(t, http.StatusOK, w.Code)
					var checked bytes.Buffer
					report, err := new(upstream.Contract).Check(&checked, res, &res.Responses[0], q, b.ID, w.Body.Bytes())
					require.NoError(t, err)
					assert.Equal(t, upstream.Report{Records: report.Records}, report)
					if r := res.Responses[0]; !r.IsList() || len(res.Params) == 1 {
						if res.Resource == "events" {
							assert.Equal(t, min(count(t, "events", b.ID, "status = 'published'"), 100), report.Records)
						}
						return
					}
					for _, id := range ids(records(t, decode(t, w), res.Resource)) {
						assert.False(t, read[id], "%s is on two pages", id)
						read[id] = true
					}
					if report.Records == 0 {
						assert.Len(t, read, count(t, res.Resource, b.ID, "true"))
						return
					}
				}
			})
		}
	}
}

func TestFiltersMatchExactly(t *testing.T) {
	t.Parallel()
	b := active()[0].ID
	for _, c := range [][3]string{ // the resource, the parameter, the member
		{"contacts", "status", "contact_status"},
		{"contacts", "type", "contact_type"},
		{"equipment", "status", "status"},
		{"equipment", "category", "category"},
		{"estimates", "status", "status"},
		{"estimates", "payment_status", "payment_status"},
		{"invoices", "status", "status"},
		{"jobs", "status", "work_status"},
		{"offerings", "status", "status"},
		{"events", "status", "status"}, // draft and archived are for the gateway's tests
	} {
		resource, parameter, member := c[0], c[1], c[2]
		values := texts(t, shared, "SELECT DISTINCT "+member+" FROM "+resource+" WHERE business_id = ?", b)
		assert.Greater(t, len(values), 1, "%s by %s", resource, parameter)
		for _, value := range values {
			body := get(t, shared, b, resource+"?count=100&per_page=100&"+parameter+"="+value)
			n := count(t, resource, b, member+" = '"+value+"'")
			assert.Len(t, records(t, body, resource), min(n, 100), value)
			for _, r := range records(t, body, resource) {
				assert.Equal(t, value, r[member])
			}
			if resource != "events" {
				assert.Equal(t, pagination(1, 100, n), body["pagination"])
			}
		}
		for _, nothing := range []string{"no-such-value", "ACTIVE", "'%20OR%201=1%20--", "%25"} {
			assert.Empty(t, get(t, shared, b, resource+"?"+parameter+"="+nothing)[resource], nothing)
		}
		if resource != "events" {
			assert.Equal(t, get(t, shared, b, resource), get(t, shared, b, resource+"?"+parameter+"="), "an empty value does not filter")
		}
	}
	n := count(t, "contacts", b, "contact_status = 'inactive' AND contact_type = 'lead'")
	assert.Positive(t, n)
	assert.Equal(t, pagination(1, 25, n), get(t, shared, b, "contacts?type=lead&status=inactive")["pagination"])
	require.Len(t, records(t, get(t, shared, b, "events?status=all&count=100"), "events"), 100)
}

func TestNumbersAreClamped(t *testing.T) {
	t.Parallel()
	b := active()[0].ID
	n := count(t, "jobs", b, "true")
	huge := "9223372036854775808000"
	for query, want := range map[string]map[string]any{
		"":                   pagination(1, 25, n),
		"?page=2":            pagination(2, 25, n),
		"?page=0":            pagination(1, 25, n),
		"?page=-" + huge:     pagination(1, 25, n),
		"?page=100000":       pagination(100000, 25, n),
		"?page=" + huge:      pagination(math.MaxInt64, 25, n),
		"?per_page=1":        pagination(1, 1, n),
		"?per_page=-5":       pagination(1, 1, n),
		"?per_page=101":      pagination(1, 100, n),
		"?per_page=" + huge:  pagination(1, 100, n),
		"?per_page=%2B9":     pagination(1, 9, n),
		"?per_page=007":      pagination(1, 7, n),
		"?unknown=1&x=1&x=2": pagination(1, 25, n),
	} {
		body := get(t, shared, b, "jobs"+query)
		assert.Equal(t, want, body["pagination"], query)
		from := (want["current_page"].(float64) - 1) * want["per_page"].(float64)
		assert.Len(t, records(t, body, "jobs"), int(max(0, min(want["per_page"].(float64), float64(n)-from))), query)
	}
	for query, want := range map[string]int{"": 10, "?count=37": 37, "?count=-5": 1, "?count=101": 100, "?count=" + huge: 100} {
		assert.Len(t, records(t, get(t, shared, b, "events"+query), "events"), want, query)
	}
}

func TestInvalidPublicParametersAreNamed(t *testing.T) {
	t.Parallel()
	for target, parameter := range map[string]string{
		"contacts?page=two":                         "page",
		"contacts?page=":                            "page",
		"contacts?page=1.5":                         "page",
		"contacts?page=%201":                        "page",
		"contacts?page=0x10":                        "page",
		"contacts?page=1&page=1":                    "page",
		"contacts?per_page=5&per_page=6":            "per_page",
		"contacts?status=active&status=active":      "status",
		"contacts?type=lead&type=":                  "type",
		"equipment?category=mower&category=a":       "category",
		"estimates?payment_status=&payment_status=": "payment_status",
		"events?count=abc":                          "count",
		"events?count=1&count=2":                    "count",
	} {
		body := requireError(t, call(t, shared, active()[0].ID, "/api/v1/"+target), http.StatusBadRequest, "INVALID_PARAMETER")
		assert.Equal(t, parameter, body["parameter"], target)
		assert.Contains(t, body["error"], parameter)
	}
	for _, target := range []string{"/api/v1/contacts?page=1;per_page=2", "/api/v1/contacts?%zz=1"} {
		requireError(t, call(t, shared, active()[0].ID, target), http.StatusBadRequest, "INVALID_PARAMETER")
	}
}

func TestARequestNeedsOneKnownBusiness(t *testing.T) {
	t.Parallel()
	known := active()[0].ID
	for name, c := range map[string]struct {
		ids    []string
		status int
		code   string
	}{
		"none":       {nil, http.StatusBadRequest, "MISSING_BUSINESS"},
		"empty":      {[]string{""}, http.StatusBadRequest, "MISSING_BUSINESS"},
		"twice":      {[]string{known, known}, http.StatusBadRequest, "MISSING_BUSINESS"},
		"unknown":    {[]string{"00000000-0000-4000-8000-000000000000"}, http.StatusForbidden, "UNKNOWN_BUSINESS"},
		"a slug":     {[]string{active()[0].Slug}, http.StatusForbidden, "UNKNOWN_BUSINESS"},
		"other case": {[]string{strings.ToUpper(known)}, http.StatusForbidden, "UNKNOWN_BUSINESS"},
		"a list":     {[]string{known + ", " + active()[1].ID}, http.StatusForbidden, "UNKNOWN_BUSINESS"},
		"SQL":        {[]string{"' OR ''='"}, http.StatusForbidden, "UNKNOWN_BUSINESS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, resource := range append([]string{"business", "events"}, lists...) {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/"+resource, http.NoBody)
				if c.ids != nil {
					r.Header[HeaderBusinessID] = c.ids
				}
				w := httptest.NewRecorder()
				shared.Handler().ServeHTTP(w, r)
				requireError(t, w, c.status, c.code)
			}
		})
	}
}

func TestAuthorizeComesFirstAndItsErrorIsNotSent(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	allowed := false
	s := prepared(t, "", Options{
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		Authorize: func(*http.Request) error {
			if !allowed {
				return errors.New("the assertion's audience is payroll")
			}
			return nil
		},
	})
	w := call(t, s, active()[0].ID, "/api/v1/jobs?page=two")
	requireError(t, w, http.StatusUnauthorized, "UNAUTHORIZED")
	require.NotContains(t, w.Body.String(), "payroll")
	require.Contains(t, logged.String(), "payroll")
	require.Equal(t, http.StatusOK, call(t, s, "", "/healthz").Code, "health needs no assertion")
	allowed = true
	get(t, s, active()[0].ID, "jobs")
}

func TestAnInternalErrorDoesNotRevealTheCause(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	s := prepared(t, "", Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	execute(t, s, "DROP VIEW connect_calendars")
	w := caller(t, s, owner()).do("GET", "calendars", "")
	requireError(t, w, http.StatusInternalServerError, "INTERNAL")
	assert.NotContains(t, w.Body.String(), "connect_calendars")
	assert.Contains(t, logged.String(), "connect_calendars")
}

func TestPathsMatchExactly(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"/", "/api/v1", "/api/v1/", "/api/v1/me", "/api/v1/status", "/api/v1/jobs/", "/api/v1//jobs", "//api/v1/jobs",
		"/api/v1/./jobs", "/api/v1/x/../jobs", "/API/v1/jobs", "/api/v1/Jobs", "/api/v2/jobs", "/healthz/", "/api/v1/jobs;a=b",
	} {
		requireError(t, call(t, shared, active()[0].ID, path), http.StatusNotFound, "NOT_FOUND")
	}
}

func TestOnlyGetAndHeadAreAllowed(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(shared.Handler())
	defer server.Close()
	do := func(method, path string) (status int, allow string, length int64) {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, http.NoBody)
		require.NoError(t, err)
		r.Header.Set(HeaderBusinessID, active()[0].ID)
		resp, err := server.Client().Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode, resp.Header.Get("Allow"), resp.ContentLength
	}
	for _, path := range []string{"/api/v1/jobs", "/healthz"} {
		for _, method := range []string{"POST", "DELETE", "OPTIONS", "BREW"} {
			status, allow, _ := do(method, path)
			assert.Equal(t, http.StatusMethodNotAllowed, status)
			assert.Equal(t, "GET, HEAD", allow)
		}
		status, _, head := do(http.MethodHead, path)
		require.Equal(t, http.StatusOK, status)
		_, _, full := do(http.MethodGet, path)
		assert.Equal(t, full, head)
		assert.Positive(t, full)
	}
}

func TestAClosedServiceAnswersWith503(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	require.Equal(t, http.StatusOK, call(t, s, "", "/healthz").Code)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "closing twice does no harm")
	c := caller(t, s, owner())
	for _, w := range []*httptest.ResponseRecorder{
		call(t, s, "", "/healthz"), call(t, s, active()[0].ID, "/api/v1/business"), call(t, s, active()[0].ID, "/api/v1/events"),
		c.do("GET", "contacts", ""), c.do("POST", "contacts", `{"first_name":"x"}`), c.do("GET", "accounts/x", ""),
	} {
		requireError(t, w, http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE")
		assert.NotEmpty(t, w.Header().Get("Retry-After"))
	}
}
