package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
)

// testNow is the present of the tests: a Wednesday in September.
var testNow = time.Date(2026, 9, 16, 15, 30, 0, 0, time.UTC)

func atTestNow() time.Time { return testNow }

// shared is a service in memory for the tests that only read.
var shared *Service

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if shared, err = Open(context.Background(), Memory, Options{Now: atTestNow}); err != nil {
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

// active and inactive are the seeded businesses.
func active() []Business { return Businesses()[:2] }
func inactive() Business { return Businesses()[2] }

// small opens a service with the records of the smallest business only, which is
// quick under the race detector too. It is closed at the end of the test.
func small(t *testing.T, path string, o Options) *Service {
	t.Helper()
	st, err := openStore(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.close()) })
	require.NoError(t, fillSmall(t.Context(), st))
	return newService(st, o)
}

// fillSmall fills a database with the records of the smallest business.
func fillSmall(ctx context.Context, st *store) error {
	return seed(ctx, st, testNow, demoHash, "saltbush")
}

// call sends a request for a business.
func call(t testing.TB, s *Service, businessID, target string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, target, http.NoBody)
	r.Header.Set(HeaderBusinessID, businessID)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// get gives the JSON of an answer that has to be 200.
func get(t testing.TB, s *Service, businessID, target string) map[string]any {
	t.Helper()
	w := call(t, s, businessID, target)
	require.Equal(t, http.StatusOK, w.Code, "%s: %s", target, w.Body)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	return decode(t, w)
}

func requireError(t testing.TB, w *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	require.Equal(t, status, w.Code, "%s", w.Body)
	require.Equal(t, code, decode(t, w)["code"])
}

func decode(t testing.TB, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var body map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body), "%s", w.Body)
	return body
}

// records gives the list in an answer.
func records(t testing.TB, body map[string]any, resource string) []map[string]any {
	t.Helper()
	list, ok := body[resource].([]any)
	require.True(t, ok, "%s is %T", resource, body[resource])
	all := make([]map[string]any, len(list))
	for i := range list {
		all[i], ok = list[i].(map[string]any)
		require.True(t, ok)
	}
	return all
}

// total gives the number of items on all pages of an answer.
func total(t testing.TB, body map[string]any) int {
	t.Helper()
	return int(record(t, body, "pagination")["total_items"].(float64))
}

// pagination is the member of that name.
func pagination(page, perPage, items, pages int) map[string]any {
	return map[string]any{
		"current_page": float64(page), "per_page": float64(perPage),
		"total_items": float64(items), "total_pages": float64(pages),
	}
}

// everything gives all records of a resource, page by page, events in all states.
func everything(t testing.TB, s *Service, businessID, resource string) []map[string]any {
	t.Helper()
	if s != shared {
		return readEverything(t, s, businessID, resource)
	}
	key := businessID + resource
	if kept, ok := sharedRecords.Load(key); ok {
		all, ok := kept.([]map[string]any)
		require.True(t, ok)
		return all
	}
	all := readEverything(t, s, businessID, resource)
	sharedRecords.Store(key, all)
	return all
}

// sharedRecords keeps what everything has read of the shared service.
var sharedRecords sync.Map

func readEverything(t testing.TB, s *Service, businessID, resource string) (all []map[string]any) {
	t.Helper()
	if resource == "events" { // more than the 100 that a response can have
		for _, text := range texts(t, s.store, "SELECT json FROM events WHERE business_id = ? ORDER BY published_at DESC, created_at DESC, id DESC", businessID) {
			var e map[string]any
			require.NoError(t, json.Unmarshal([]byte(text), &e))
			all = append(all, e)
		}
		return all
	}
	for page := 1; ; page++ {
		body := get(t, s, businessID, fmt.Sprintf("/api/v1/%s?per_page=100&page=%d", resource, page))
		list := records(t, body, resource)
		if len(list) == 0 {
			require.Len(t, all, total(t, body))
			return all
		}
		all = append(all, list...)
	}
}

// lists are the resources that come in pages.
func lists() []string {
	return []string{"contacts", "equipment", "estimates", "invoices", "jobs", "offerings"}
}
