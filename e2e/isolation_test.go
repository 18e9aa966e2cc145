package e2e_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
)

func TestFaultBusinessesNeverGetEachOthersRecords(t *testing.T) {
	t.Parallel()
	total := 2_000
	if chaosScale(t).long {
		total = 100_000
	}
	// the data service responds to one request in fifty of each business with the other's records
	const callers, connections, mixups = 16, 4, 50
	others := map[string]string{}
	data := load.Data()
	w := newEnvironment(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("status") == "mixup" {
			r.Header.Set("X-Business-Id", others[r.Header.Get("X-Business-Id")])
		}
		data.ServeHTTP(w, r)
	}))
	others[w.acmeID], others[w.otherID] = w.otherID, w.acmeID
	g := w.unlimited(t)

	// both businesses' requests share the connections: few of HTTP/1.1, and one of HTTP/2
	clients := []*http.Client{protocolClient(t, false, connections), protocolClient(t, true, 1)}
	var right, stopped atomic.Int64
	targets := load.Targets()
	ask := func(n int) string {
		caller, id := w.acme, w.acmeID
		if n%2 == 0 {
			caller, id = w.other, w.otherID
		}
		caller.Client = clients[n/2%len(clients)]
		target, mixup := targets[n/4%len(targets)], n%mixups < 2
		if mixup {
			target = "/api/v1/contacts?status=mixup&per_page=" + strconv.Itoa(1+n%97)
		}
		a, err := caller.Try(t.Context(), http.MethodGet, g.URL, target, nil)
		if err != nil {
			return fmt.Sprintf("%s: %v", target, err)
		}
		code, err := load.Check(&a, id)
		switch {
		case err != nil:
			return fmt.Sprintf("%s of %s: %v: %d %s", target, id, err, a.Status, a.Body)
		case mixup && (code != "UPSTREAM_FAILED" || strings.Contains(a.Body, w.acmeID) || strings.Contains(a.Body, w.otherID)):
			return fmt.Sprintf("%s: another business's records: %d %s", target, a.Status, a.Body)
		case mixup:
			stopped.Add(1)
		case a.Status != http.StatusOK:
			return fmt.Sprintf("%s: %d %s", target, a.Status, a.Body)
		default:
			right.Add(1)
		}
		return ""
	}
	inParallel(callers, total, func(n int) {
		if why := ask(n); why != "" {
			t.Error(why)
		}
	})
	require.False(t, t.Failed())
	require.EqualValues(t, total, right.Load()+stopped.Load())
	require.Positive(t, stopped.Load())
	require.Equal(t, stopped.Load(), int64(g.Metric(t, "gatehouse_upstream_responses_total", `outcome="cross_tenant"`)), "each is counted")
	t.Logf("figure: %s requests=%d wrong=0 rejected=%d", t.Name(), total, stopped.Load())
}
