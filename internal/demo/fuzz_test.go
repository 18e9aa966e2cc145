package demo

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// FuzzConnect sends a text to an operation, as the body of a write or the query of a list. It may be rejected, but must not
// cause an internal error.
func FuzzConnect(f *testing.F) {
	c := sharedCaller(f) // fuzz targets run after the tests, so it may write
	id := func(list, name string) string { return ids(records(f, c.get(list), name))[0] }
	paths := strings.NewReplacer("objects/{type}/{id}", "objects/vehicles/"+id("objects/vehicles", "objects"), "{type}", "vehicles",
		"faqs/{id}", "faqs/"+id("receptionist/faqs", "faqs"), "services/{id}", "services/"+id("receptionist/services", "services"),
		"contacts/{id}", "contacts/"+id("contacts", "contacts"), "automations/{id}", "automations/overdue-reminders")
	operations := slices.DeleteFunc(newConnectAPI(shared).routes, func(rt route) bool {
		return !rt.hasBody() && !rt.query || rt.path == "sign-in" // which takes long on purpose
	})
	for path, text := range map[string]string{
		"contacts": `{"first_name":"a"}`, "business/hours": `{"days":[{"day":"monday","spans":[{"open":"09:00","close":"24:00"}]},{"day":"2030-02-28","spans":null}]}`,
		"business":               `{"time_zone":"Europe/London","website_url":"https://a.example","phone":"+15550100100"}`,
		"business/service-areas": `{"add":[{"name":"a","kind":"city","radius_km":1e-9}],"remove":[{"name":"Madison","kind":"city"}]}`,
		"receptionist/rules":     `{"add":[{"when":"a","then":"b","before":null}],"change":[{"id":"x","enabled":true}],"remove":["x"]}`, "receptionist/faqs": `{"question":"q","answer":"a"}`,
		"receptionist/personality": `{"language":"en"}`, "automations/{id}/runs": `{"input":{},"dry_run":true}`,
		"receptionist/services": `{"name":"n","price":"1.5","bookable":true,"duration_minutes":5}`,
		"objects/{type}":        `{"fields":{"plate":"\u0000","make":"\ud83d\ude00","year":2e3}}`, "objects/{type}/{id}": `{"fields":{"make":null}}`,
		"conversations": "since=0001-01-01T00:00:00%2B23:59&query=%C5%81%20%CC%88&cursor=eyJrIjoiIiwiaSI6IiIsImwiOiIifQ",
		"invoices":      "status=sent,overdue&due_until=2026-01-01T00:00:00Z",
		"appointments":  "contact_id=9223372036854775807&calendar_id='&from=2026-01-01T00:00:00Z&to=9999-12-31T23:59:59.999999999-23:59",
	} {
		for i, rt := range operations {
			if rt.path == path {
				f.Add(uint8(i), text)
			}
		}
	}
	for i := range operations {
		f.Add(uint8(i), "{}")
	}
	f.Fuzz(func(t *testing.T, operation uint8, text string) {
		rt := operations[int(operation)%len(operations)]
		r := httptest.NewRequest(rt.method, "/connect/v1/"+paths.Replace(rt.path), http.NoBody)
		if rt.hasBody() {
			r = httptest.NewRequest(rt.method, r.URL.Path, strings.NewReader(text))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set(HeaderIdempotencyKey, uuid.NewString())
		}
		if rt.query {
			r.URL.RawQuery = text
		}
		r.Header.Set(HeaderBusinessID, owner().BusinessID)
		r.Header.Set(HeaderAccountID, owner().ID)
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, r)
		require.Less(t, w.Code, http.StatusInternalServerError, "%s %s: %s", rt.method, rt.path, w.Body)
		decode(t, w)
	})
}
