package e2e_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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

func TestOtherMethodsAreDeniedWithAllow(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get"} {
		for _, path := range []string{"/api/v1/status", "/api/v1/events", "/api/v1/me", "/healthz", "/readyz"} {
			a := w.acme.Do(t, method, g.URL, path, nil)
			requireProblem(t, a, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
			assert.Equal(t, "GET, HEAD", a.Header.Get("Allow"))
		}
		requireProblem(t, w.acme.Do(t, method, g.URL, "/api/v1/nothing", nil), http.StatusNotFound, "NOT_FOUND")
	}
}
