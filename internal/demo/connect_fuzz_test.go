package demo

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func fuzzed(f *testing.F) *Service {
	f.Helper()
	s, err := Open(f.Context(), Memory, Options{Now: atTestNow})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, s.Close()) })
	return s
}

// FuzzConnectWrites sends anything to every call that takes a body: it may be
// accepted or refused, and is never a fault of the service.
func FuzzConnectWrites(f *testing.F) {
	for _, body := range []string{
		`{}`, `{"first_name":"a"}`, `{"hours":[{"day":"monday","open":"09:00","close":"24:00"}]}`, `{"service_areas":[{"name":"a","kind":"city","radius_km":1e-9}]}`,
		`{"rules":[{"id":null,"when":"a","then":"b"}]}`, `{"question":"q","answer":"a"}`, `{"name":"n","price":"1.5","bookable":true,"duration_minutes":5}`,
		`{"input":{"dry_run":true}}`, `{"fields":{"plate":"AB","make":"M","year":2e3}}`, `{"fields":{"owner":{"name":null}}}`, `{"email":"a@b.example","password":"x"}`,
		`{"time_zone":"Europe/London","website_url":"https://a.example","language":"en"}`, `{"a":{"b":[1,{"c":null}]}}`, `{"fields":{"plate":"\u0000","make":"\ud83d\ude00"}}`,
	} {
		f.Add(body)
	}
	s := fuzzed(f)
	c := caller(f, s, owner())
	id := func(list, name string) string { return jsonID(records(f, c.get(list), name)[0]["id"]) }
	paths := strings.NewReplacer("objects/{type}/{id}", "objects/vehicles/"+id("objects/vehicles", "objects"), "{type}", "vehicles",
		"faqs/{id}", "faqs/"+id("receptionist/faqs", "faqs"), "services/{id}", "services/"+id("receptionist/services", "services"),
		"contacts/{id}", "contacts/"+id("contacts", "contacts"), "automations/{id}", "automations/overdue-reminders")
	handler := s.Handler()
	f.Fuzz(func(t *testing.T, body string) {
		for _, rt := range newConnectAPI(s).routes {
			if !rt.hasBody() {
				continue
			}
			r := httptest.NewRequest(rt.method, "/connect/v1/"+paths.Replace(rt.path), strings.NewReader(body))
			r.Header.Set(HeaderBusinessID, owner().BusinessID)
			r.Header.Set(HeaderAccountID, owner().ID)
			r.Header.Set(HeaderIdempotencyKey, uuid.NewString())
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			require.Less(t, w.Code, http.StatusInternalServerError, "%s %s: %s", rt.method, rt.path, w.Body)
			decode(t, w)
		}
	})
}

// FuzzConnectQueries puts anything into the query of every list.
func FuzzConnectQueries(f *testing.F) {
	for _, query := range []string{
		"", "limit=1&query=a+b&cursor=eyJrIjoiIiwiaSI6IiIsImwiOiIifQ", "from=2026-01-01T00:00:00Z&to=9999-12-31T23:59:59.999999999-23:59", "query=%C5%81%20%CC%88",
		"contact_id=9223372036854775807&calendar_id='", "since=0001-01-01T00:00:00%2B23:59", "status=active&type=lead", "query=%ff%fe", "%zz", "a;b", "query=%EF%BF%BE",
	} {
		f.Add(query)
	}
	s := fuzzed(f)
	handler := s.Handler()
	f.Fuzz(func(t *testing.T, query string) {
		for _, list := range connectLists {
			r := httptest.NewRequest(http.MethodGet, "/connect/v1/"+list, http.NoBody)
			r.URL.RawQuery = query
			r.Header.Set(HeaderBusinessID, owner().BusinessID)
			r.Header.Set(HeaderAccountID, owner().ID)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			require.Less(t, w.Code, http.StatusInternalServerError, "%s?%s: %s", list, query, w.Body)
			decode(t, w)
		}
	})
}
