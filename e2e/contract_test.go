package e2e_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/transcript"
)

// replay replays a file of testdata/transcripts against a gateway. "X-Signed-By: acme" becomes the headers of a signed request.
func (w *environment) replay(t *testing.T, name, addr string) {
	t.Helper()
	business := demo.Businesses()[0]
	transcript.Run(t, "testdata/transcripts/"+name+".txtar", addr, map[string]string{
		"acme_id": business.ID, "acme_name": business.Name, "acme_slug": business.Slug, "now": strconv.FormatInt(time.Now().Unix(), 10),
	}, func(request string) string {
		head, body, _ := strings.Cut(request, "\n\n")
		method, rest, _ := strings.Cut(head, " ")
		target, _, _ := strings.Cut(rest, " ")
		for name, c := range map[string]gatewaytest.Caller{"acme": w.acme, "inactive": w.inactive} {
			signed := strings.ReplaceAll(signedLines(c, method, target, strings.TrimSuffix(body, "\n")), "\r\n", "\n")
			request = strings.Replace(request, "X-Signed-By: "+name+"\n", signed, 1)
		}
		return request
	})
}

func TestContractByExample(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	w.replay(t, "contract", w.start(t, highLimits, "deprecated jobs 2027-01-31 2027-07-31 https://docs.example.com/jobs").Addr)
}

func TestCountsAreClamped(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	clamped := map[string]int{
		"0": 1, "-5": 1, "7": 7, "007": 7, "100": 100, "101": 100, "99999999999999999999999999999999999999": 100, "-99999999999999999999999999999": 1,
	}
	for query, most := range map[string]int{"": 10, "?page=two&count=2": 2} { // events have no pages
		list, _ := requireJSON(t, w.acme.Get(t, g.URL, eventsPath+query))["events"].([]any)
		assert.NotEmpty(t, list, query)
		assert.LessOrEqual(t, len(list), most, query)
	}
	for count, most := range clamped {
		list, _ := requireJSON(t, w.acme.Get(t, g.URL, eventsPath+"?count="+count))["events"].([]any)
		assert.NotEmpty(t, list, count)
		assert.LessOrEqual(t, len(list), most, count)
	}
	for _, name := range []string{"contacts", "equipment", "estimates", "invoices", "jobs", "offerings"} {
		queries := map[string]int{"": 25}
		for perPage, want := range clamped {
			queries["?per_page="+perPage] = want
		}
		for query, want := range queries {
			v := requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/"+name+query))
			list, _ := v[name].([]any)
			assert.NotEmpty(t, list, name+query)
			assert.LessOrEqual(t, len(list), want, name+query)
			page, _ := v["pagination"].(map[string]any)
			assert.EqualValues(t, 1, page["current_page"], name+query)
			assert.EqualValues(t, want, page["per_page"], name+query)
		}
		v := requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/"+name+"?page=999999"))
		assert.Equal(t, []any{}, v[name], "not null")
	}
}

func TestInvalidParameterErrorsNameTheParameter(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	for target, parameter := range map[string]string{
		"events?count=abc":             "count",
		"events?count=1.5":             "count",
		"events?count=":                "count",
		"events?count":                 "count",
		"events?count=1&count=2":       "count",
		"events?count=1&%63ount=1":     "count",
		"events?count=%EF%BC%91":       "count", // a full-width digit
		"events?count=1%20":            "count",
		"contacts?page=two":            "page",
		"contacts?per_page=ten":        "per_page",
		"contacts?status=a&status=b":   "status",
		"contacts?status=%FF":          "status",
		"jobs?status=draft&status=":    "status",
		"estimates?payment_status=%00": "payment_status",
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			p := requireProblem(t, w.acme.Get(t, g.URL, "/api/v1/"+target), http.StatusBadRequest, "INVALID_PARAMETER")
			require.Equal(t, parameter, p.Parameter)
			require.Contains(t, strings.ToLower(p.Error), parameter)
		})
	}
}

func TestOtherMethodsAreDeniedWithAllow(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get"} {
		for _, path := range []string{"/api/v1/status", "/api/v1/events", "/api/v1/me", "/healthz", "/readyz"} {
			a := w.acme.Do(t, method, g.URL, path, nil)
			requireProblem(t, a, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
			require.Equal(t, "GET, HEAD", a.Header.Get("Allow"))
		}
		requireProblem(t, w.acme.Do(t, method, g.URL, "/api/v1/nothing", nil), http.StatusNotFound, "NOT_FOUND")
	}
}
