package e2e_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFaultTwoBusinessesCallAtOnceAndNoAnswerIsTheWrongOnes(t *testing.T) {
	t.Parallel()
	total := 2_000
	if chaosScale(t).long {
		total = 100_000
	}
	// one request in fifty, of each business, is answered with the other's records
	const callers, connections, mixups = 16, 4, 50
	others := map[string]string{}
	stamping := stampingData()
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("status") == "mixup" {
			r.Header.Set("X-Business-Id", others[r.Header.Get("X-Business-Id")])
		}
		stamping.ServeHTTP(w, r)
	}))
	others[w.acmeID], others[w.otherID] = w.otherID, w.acmeID
	g := w.roomy(t)

	// both businesses' requests share the connections: few of HTTP/1.1, and one of HTTP/2
	one := &http.Transport{MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections}
	two := &http.Transport{MaxConnsPerHost: 1, Protocols: new(http.Protocols)}
	two.Protocols.SetUnencryptedHTTP2(true)
	clients := []*http.Client{{Transport: one, Timeout: patience}, {Transport: two, Timeout: patience}}
	t.Cleanup(one.CloseIdleConnections)
	t.Cleanup(two.CloseIdleConnections)

	var (
		wg             sync.WaitGroup
		next           atomic.Int64
		right, stopped atomic.Int64
		mu             sync.Mutex
		wrong          []string
	)
	targets := loadTargets()
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
		code, err := heldToContract(&a, id)
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
	for range callers {
		wg.Go(func() {
			for {
				n := int(next.Add(1))
				if n > total {
					return
				}
				if why := ask(n); why != "" {
					mu.Lock()
					wrong = append(wrong, why)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	require.Empty(t, wrong)
	require.EqualValues(t, total, right.Load()+stopped.Load())
	require.Positive(t, stopped.Load())
	require.Equal(t, stopped.Load(), int64(metric(t, g, "gatehouse_upstream_responses_total", `outcome="cross_tenant"`)), "each is alarmed")
	t.Logf("figure: %s requests=%d wrong=%d rejected_with_alarm=%d", t.Name(), total, len(wrong), stopped.Load())
}
