package demo

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFiltersMatchExactly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		resource, parameter, member string
		values                      []string // none: those that occur
	}{
		{"contacts", "status", "contact_status", []string{"active", "inactive"}},
		{"contacts", "type", "contact_type", []string{"customer", "lead", "vendor"}},
		{"equipment", "status", "status", []string{"available", "assigned", "maintenance", "retired"}},
		{"equipment", "category", "category", nil},
		{"estimates", "status", "status", []string{"draft", "sent", "approved", "declined", "expired"}},
		{"estimates", "payment_status", "payment_status", []string{"unpaid", "partial", "paid"}},
		{"invoices", "status", "status", []string{"draft", "sent", "viewed", "paid", "overdue", "voided"}},
		{"jobs", "status", "work_status", []string{"draft", "sent", "scheduled", "in_progress", "completed", "cancelled"}},
		{"offerings", "status", "status", []string{"active", "inactive"}},
	} {
		t.Run(c.resource+" by "+c.parameter, func(t *testing.T) {
			t.Parallel()
			b := active()[0]
			count := map[string]int{}
			for _, record := range everything(t, shared, b.ID, c.resource) {
				count[fmt.Sprint(record[c.member])]++
			}
			if c.values == nil {
				for value := range count {
					c.values = append(c.values, value)
				}
				require.Greater(t, len(c.values), 4)
			}
			require.Len(t, count, len(c.values))
			for _, value := range c.values {
				body := get(t, shared, b.ID, "/api/v1/"+c.resource+"?per_page=100&"+c.parameter+"="+value)
				require.Equal(t, count[value], total(t, body), value)
				list := records(t, body, c.resource)
				require.Len(t, list, min(count[value], 100))
				for _, record := range list {
					require.Equal(t, value, record[c.member])
				}
			}
			for _, nothing := range []string{"no-such-value", "ACTIVE", "'%20OR%201=1%20--", "%25"} {
				body := get(t, shared, b.ID, "/api/v1/"+c.resource+"?"+c.parameter+"="+nothing)
				require.Equal(t, []any{}, body[c.resource])
				require.Equal(t, pagination(1, 25, 0, 0), body["pagination"])
			}
			body := get(t, shared, b.ID, "/api/v1/"+c.resource+"?"+c.parameter+"=")
			require.Equal(t, len(everything(t, shared, b.ID, c.resource)), total(t, body), "an empty value does not filter")
		})
	}
}

func TestTwoFiltersBothCount(t *testing.T) {
	t.Parallel()
	b := active()[1]
	want := 0
	for _, c := range everything(t, shared, b.ID, "contacts") {
		if c["contact_status"] == "inactive" && c["contact_type"] == "lead" {
			want++
		}
	}
	require.Positive(t, want)
	require.Equal(t, want, total(t, get(t, shared, b.ID, "/api/v1/contacts?type=lead&status=inactive")))

	want = 0
	for _, e := range everything(t, shared, b.ID, "estimates") {
		if e["status"] == "approved" && e["payment_status"] == "paid" {
			want++
		}
	}
	require.Positive(t, want)
	require.Equal(t, want, total(t, get(t, shared, b.ID, "/api/v1/estimates?payment_status=paid&status=approved")))
	require.Zero(t, total(t, get(t, shared, b.ID, "/api/v1/estimates?payment_status=paid&status=draft")))
}

func TestPagesHaveNoGapsOrRepeats(t *testing.T) {
	t.Parallel()
	b := active()[0]
	for _, resource := range lists() {
		all := everything(t, shared, b.ID, resource)
		var paged []map[string]any
		for page := 1; len(paged) < len(all); page++ {
			body := get(t, shared, b.ID, fmt.Sprintf("/api/v1/%s?per_page=7&page=%d", resource, page))
			require.Equal(t, pagination(page, 7, len(all), (len(all)+6)/7), body["pagination"])
			list := records(t, body, resource)
			require.Len(t, list, min(7, len(all)-len(paged)))
			paged = append(paged, list...)
		}
		require.Equal(t, all, paged, resource)
		ids := map[any]bool{}
		for _, record := range paged {
			ids[record["id"]] = true
		}
		require.Len(t, ids, len(all), resource)
	}
}

func TestPageAndSizeAreClamped(t *testing.T) {
	t.Parallel()
	b := active()[0]
	n := len(everything(t, shared, b.ID, "jobs"))
	pages := func(size int) int { return (n + size - 1) / size }
	huge := "9223372036854775808000"
	for query, want := range map[string]map[string]any{
		"":                           pagination(1, 25, n, pages(25)),
		"?page=2":                    pagination(2, 25, n, pages(25)),
		"?page=0":                    pagination(1, 25, n, pages(25)),
		"?page=-3":                   pagination(1, 25, n, pages(25)),
		"?page=-" + huge:             pagination(1, 25, n, pages(25)),
		"?per_page=1":                pagination(1, 1, n, n),
		"?per_page=0":                pagination(1, 1, n, n),
		"?per_page=-5":               pagination(1, 1, n, n),
		"?per_page=100":              pagination(1, 100, n, pages(100)),
		"?per_page=101":              pagination(1, 100, n, pages(100)),
		"?per_page=" + huge:          pagination(1, 100, n, pages(100)),
		"?per_page=%2B9":             pagination(1, 9, n, pages(9)),
		"?per_page=007":              pagination(1, 7, n, pages(7)),
		"?unknown=1&unknown=2&x=%20": pagination(1, 25, n, pages(25)),
	} {
		body := get(t, shared, b.ID, "/api/v1/jobs"+query)
		require.Equal(t, want, body["pagination"], query)
		require.Len(t, records(t, body, "jobs"), int(want["per_page"].(float64)), query)
	}
}

func TestAPagePastTheEndIsEmpty(t *testing.T) {
	t.Parallel()
	b := active()[0]
	for _, resource := range lists() {
		n := len(everything(t, shared, b.ID, resource))
		last := (n + 24) / 25
		require.Len(t, records(t, get(t, shared, b.ID, fmt.Sprintf("/api/v1/%s?page=%d", resource, last)), resource), n-25*(last-1))
		for _, page := range []int{last + 1, 100000, math.MaxInt64} {
			body := get(t, shared, b.ID, fmt.Sprintf("/api/v1/%s?page=%d", resource, page))
			require.Equal(t, []any{}, body[resource])
			require.Equal(t, pagination(page, 25, n, last), body["pagination"])
		}
		body := get(t, shared, b.ID, "/api/v1/"+resource+"?per_page=100&page=9223372036854775807000")
		require.Equal(t, []any{}, body[resource])
		require.Equal(t, n, total(t, body))
	}
}

func TestInvalidPublicParametersAreNamed(t *testing.T) {
	t.Parallel()
	for target, parameter := range map[string]string{
		"/api/v1/contacts?page=two":                         "page",
		"/api/v1/contacts?page=":                            "page",
		"/api/v1/contacts?page=1.5":                         "page",
		"/api/v1/contacts?page=1e3":                         "page",
		"/api/v1/contacts?page=%201":                        "page",
		"/api/v1/contacts?page=1_000":                       "page",
		"/api/v1/contacts?page=0x10":                        "page",
		"/api/v1/contacts?page=%D9%A1":                      "page",
		"/api/v1/contacts?page=1&page=1":                    "page",
		"/api/v1/contacts?per_page=abc":                     "per_page",
		"/api/v1/contacts?per_page=5&per_page=6":            "per_page",
		"/api/v1/contacts?status=active&status=active":      "status",
		"/api/v1/contacts?type=lead&type=":                  "type",
		"/api/v1/equipment?category=mower&category=a":       "category",
		"/api/v1/estimates?payment_status=&payment_status=": "payment_status",
		"/api/v1/events?count=abc":                          "count",
		"/api/v1/events?count=":                             "count",
		"/api/v1/events?count=1&count=2":                    "count",
		"/api/v1/events?status=draft&status=all":            "status",
	} {
		w := call(t, shared, active()[0].ID, target)
		require.Equal(t, http.StatusBadRequest, w.Code, target)
		body := decode(t, w)
		require.Equal(t, "INVALID_PARAMETER", body["code"], target)
		require.Equal(t, parameter, body["parameter"], target)
		require.Contains(t, body["error"], parameter)
	}
	for _, target := range []string{"/api/v1/contacts?page=1;per_page=2", "/api/v1/contacts?%zz=1"} {
		w := call(t, shared, active()[0].ID, target)
		requireError(t, w, http.StatusBadRequest, "INVALID_PARAMETER")
	}
}

func TestEventsAreTheNewestPublishedOnes(t *testing.T) {
	t.Parallel()
	for _, b := range active() {
		published := 0
		for _, e := range everything(t, shared, b.ID, "events") {
			if e["status"] == "published" {
				published++
			}
		}
		require.Greater(t, published, 100, "so that count can reach its bound")
		for query, want := range map[string]int{
			"": 10, "?count=1": 1, "?count=37": 37, "?count=100": 100,
			"?count=0": 1, "?count=-5": 1, "?count=101": 100, "?count=99999999999999999999999": 100,
		} {
			list := records(t, get(t, shared, b.ID, "/api/v1/events"+query), "events")
			require.Len(t, list, want, query)
			last := instant(testNow)
			for _, e := range list {
				require.Equal(t, "published", e["status"])
				require.LessOrEqual(t, e["published_at"], last, "most recently published first, none in the future")
				last, _ = e["published_at"].(string)
			}
		}
	}
}

func TestOtherEventsOnlyOnRequest(t *testing.T) {
	t.Parallel()
	b := active()[0]
	for _, status := range []string{"draft", "published", "archived"} {
		list := records(t, get(t, shared, b.ID, "/api/v1/events?count=100&status="+status), "events")
		require.Greater(t, len(list), 25)
		for _, e := range list {
			require.Equal(t, status, e["status"])
			if status == "draft" {
				require.Nil(t, e["published_at"])
			}
		}
	}
	all := everything(t, shared, b.ID, "events")
	seen := map[any]int{}
	sorted := slices.IsSortedFunc(all, func(x, y map[string]any) int {
		px, _ := x["published_at"].(string)
		py, _ := y["published_at"].(string)
		return strings.Compare(py, px)
	})
	require.True(t, sorted, "what never was published comes last")
	for _, e := range all {
		seen[e["status"]]++
	}
	require.Len(t, seen, 3)
	require.Len(t, records(t, get(t, shared, b.ID, "/api/v1/events?status=all&count=100"), "events"), 100)
	require.Equal(t, []any{}, get(t, shared, b.ID, "/api/v1/events?status=none")["events"])
}

func TestNoBusinessSeesAnothersRecords(t *testing.T) {
	t.Parallel()
	owner := map[any]string{}
	for _, resource := range resourceNames() {
		for _, b := range Businesses() {
			for _, record := range everything(t, shared, b.ID, resource) {
				require.Equal(t, b.ID, record["business_id"], resource)
				id := fmt.Sprint(resource, record["id"])
				require.Empty(t, owner[id])
				owner[id] = b.ID
			}
		}
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
		"none":           {nil, http.StatusBadRequest, "MISSING_BUSINESS"},
		"empty":          {[]string{""}, http.StatusBadRequest, "MISSING_BUSINESS"},
		"two":            {[]string{known, active()[1].ID}, http.StatusBadRequest, "MISSING_BUSINESS"},
		"twice the same": {[]string{known, known}, http.StatusBadRequest, "MISSING_BUSINESS"},
		"unknown":        {[]string{"00000000-0000-4000-8000-000000000000"}, http.StatusForbidden, "UNKNOWN_BUSINESS"},
		"a slug":         {[]string{active()[0].Slug}, http.StatusForbidden, "UNKNOWN_BUSINESS"},
		"other case":     {[]string{strings.ToUpper(known)}, http.StatusForbidden, "UNKNOWN_BUSINESS"},
		"a list":         {[]string{known + ", " + active()[1].ID}, http.StatusForbidden, "UNKNOWN_BUSINESS"},
		"SQL":            {[]string{"' OR ''='"}, http.StatusForbidden, "UNKNOWN_BUSINESS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, resource := range append(lists(), "business", "events") {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/"+resource, http.NoBody)
				if c.ids != nil {
					r.Header[HeaderBusinessID] = c.ids
				}
				w := httptest.NewRecorder()
				shared.Handler().ServeHTTP(w, r)
				require.Equal(t, c.status, w.Code, resource)
				require.Equal(t, c.code, decode(t, w)["code"])
			}
		})
	}
}

func TestAuthorizeComesFirstAndItsErrorIsNotSent(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	s := small(t, Memory, Options{
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		Authorize: func(r *http.Request) error {
			if r.Header.Get("X-Assertion") != "good" {
				return errors.New("the assertion's audience is payroll")
			}
			return nil
		},
	})
	w := call(t, s, inactive().ID, "/api/v1/jobs?page=two")
	requireError(t, w, http.StatusUnauthorized, "UNAUTHORIZED")
	require.NotContains(t, w.Body.String(), "payroll")
	require.Contains(t, logged.String(), "payroll")

	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/jobs", http.NoBody)
	r.Header.Set(HeaderBusinessID, inactive().ID)
	r.Header.Set("X-Assertion", "good")
	w = httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)

	require.Equal(t, http.StatusOK, call(t, s, "", "/healthz").Code, "health needs no assertion")
}

func TestPathsMatchExactly(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"/", "/api/v1", "/api/v1/", "/api/v1/me", "/api/v1/status", "/api/v1/jobs/", "/api/v1//jobs", "//api/v1/jobs",
		"/api/v1/./jobs", "/api/v1/x/../jobs", "/API/v1/jobs", "/api/v1/Jobs", "/api/v2/jobs", "/healthz/", "/api/v1/jobs;a=b",
	} {
		w := call(t, shared, active()[0].ID, path)
		requireError(t, w, http.StatusNotFound, "NOT_FOUND")
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
		defer resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("Allow"), resp.ContentLength
	}
	for _, path := range []string{"/api/v1/jobs", "/healthz"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"} {
			status, allow, _ := do(method, path)
			require.Equal(t, http.StatusMethodNotAllowed, status)
			require.Equal(t, "GET, HEAD", allow)
		}
		status, _, head := do(http.MethodHead, path)
		require.Equal(t, http.StatusOK, status)
		_, _, full := do(http.MethodGet, path)
		require.Equal(t, full, head)
		require.Positive(t, full, "the length is known beforehand")
	}
}

func TestAClosedServiceAnswersWith503(t *testing.T) {
	t.Parallel()
	s := small(t, Memory, Options{})
	require.Equal(t, http.StatusOK, call(t, s, "", "/healthz").Code)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "closing twice does no harm")
	for _, path := range []string{"/healthz", "/api/v1/business", "/api/v1/jobs", "/api/v1/events"} {
		w := call(t, s, active()[0].ID, path)
		requireError(t, w, http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE")
	}
}
