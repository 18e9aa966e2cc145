package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// observedShop is the shop's API while it is observed.
type observedShop struct {
	*environment
	g      *gatewaytest.Gateway
	data   *recorder
	caller gatewaytest.Caller
	extra  string // an overlay
}

// observeShop serves the shop with enforce tenant, but for getOrder, of which members are enforced, and recentOrder, of which all is.
func observeShop(t *testing.T) *observedShop {
	t.Helper()
	s := &observedShop{data: &recorder{}, extra: filepath.Join(t.TempDir(), "enforce.yaml")}
	s.environment = newEnvironment(t, s.data)
	s.caller = s.issue(t, authsigner.IssueOptions{BusinessID: "17", Resources: []string{"shop"}})
	require.NoError(t, os.WriteFile(s.extra, []byte(`overlay: 1.0.0
info: {title: What is enforced, version: "1"}
actions:
  - {target: "$.paths['/orders/{id}'].get", update: {x-gatehouse-enforce: members}}
  - {target: "$.paths['/orders/recent'].get", update: {x-gatehouse-enforce: all}}
`), 0o600))
	s.g = gatewaytest.Start(t, s.options("tenant"))
	return s
}

func (s *observedShop) options(enforce string) gatewaytest.Options {
	o := s.environment.options(highLimits, "")
	o.Global += "\n\tdebug"
	definition := strings.Replace(shopDefinition, "except", "overlay "+s.extra+"\n\t\t\tenforce "+enforce+"\n\t\t\texcept", 1)
	o.Site = fmt.Sprintf("gatehouse_health\n\tgatehouse_api {\n\t\tdefinition shop %s\n\t\tupstream %s\n\t}", definition, s.dataURL)
	return o
}

// drift returns what gatehouse api drift lists of an operation, as "pointer rule", and what it prints.
func (s *observedShop) drift(t *testing.T, operation string) (counts map[string]int64, drift caddymodule.OperationDrift, text string) {
	t.Helper()
	address := strings.TrimPrefix(s.g.AdminURL, "http://")
	var all caddymodule.Drift
	out := cli(t, nil, "api", "drift", "--address", address, "--json", "--operation", operation).requireOK(t).stdout
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	require.Len(t, all.Operations, 1)
	counts = map[string]int64{}
	for _, e := range all.Operations[0].Entries {
		counts[e.Pointer+" "+e.Rule] += e.Count
	}
	return counts, all.Operations[0], out + cli(t, nil, "api", "drift", "--address", address, "--operation", operation).requireOK(t).stdout
}

// A service lies in many ways. While it is observed, its responses pass, and drift says where and in which way they deviate, and nothing of
// what they contain.
func TestDriftNamesPlantedFaultsAndNoValue(t *testing.T) {
	t.Parallel()
	s := observeShop(t)
	answer := func(body string) { s.data.setResponse(respondWith(200, "application/json", body)) }
	began := time.Now().Add(-time.Second)

	orders := []string{
		`{"id":"o-1","account":"17","total":959595.25,"canaryMargin":"canary-1"}`,
		`{"id":"o-2","account":17}`,
		`{"id":"o-3","account":"17","total":"canary-2","note":731199990007,"canary name <b>":{"canary inner":"canary-3"}}`,
		`{"id":"o-4","account":"17","total":"1","payment":{"kind":"card","last4":"canary-4"}}`,
		`{"id":"o-5","account":"17","total":"1","parent":{"id":"o-6","account":"17","total":[731199990008]}}`,
	}
	answer(`{"data":[` + strings.Join(orders, ",") + `],"next":731199990009}`)
	for range 2 {
		a := s.caller.Get(t, s.g.URL, "/v1/orders?limit=5")
		require.Equal(t, 200, a.Status, a.Body)
		for _, part := range []string{`959595.25`, `"canaryMargin":"canary-1"`, `"canary-2"`, `canary-3`, `canary-4`, `[731199990008]`, `731199990009`} {
			require.Contains(t, a.Body, part)
		}
		require.NotContains(t, a.Body, "account", "internal members never leave")
	}
	counts, listed, printed := s.drift(t, "listOrders")
	require.Equal(t, map[string]int64{
		"/data/*/total type": 2, "/data/*/total missing": 2, "/data/*/total format": 2, "/data/*/note type": 2, "/data/*/canaryMargin undocumented": 2,
		"/data/*/* undocumented": 2, "/data/*/payment/last4 length": 2, "/data/*/parent/total type": 2, "/next type": 2,
	}, counts)
	require.EqualValues(t, 2, listed.Responses)
	require.Equal(t, "shop/listOrders", listed.Label())
	require.Equal(t, "tenant", listed.Enforce.String())
	for _, e := range listed.Entries {
		require.False(t, e.FirstSeen.Before(began.Truncate(time.Second)), e)
		require.False(t, e.LastSeen.Before(e.FirstSeen), e)
	}

	// More records than were asked for.
	answer(`{"data":[` + goodOrder + "," + goodOrder + `]}`)
	require.Equal(t, 200, s.caller.Get(t, s.g.URL, "/v1/orders?limit=1").Status)
	counts, _, _ = s.drift(t, "shop/listOrders")
	require.Positive(t, counts["/data records"], counts)

	// Where members are enforced, only values of the right type pass, and what is undocumented is removed.
	answer(`{"id":"o-1","account":"17","total":"canary-5","canaryMargin":"canary-6","payment":{"kind":"card","last4":"canary-7"}}`)
	a := s.caller.Get(t, s.g.URL, "/v1/orders/o-1")
	require.Equal(t, 200, a.Status, a.Body)
	require.JSONEq(t, `{"id":"o-1","total":"canary-5","payment":{"kind":"card","last4":"canary-7"}}`, a.Body)
	answer(`{"id":"o-1","account":"17","total":959595.25}`)
	requireProblem(t, s.caller.Get(t, s.g.URL, "/v1/orders/o-1"), 502, "UPSTREAM_FAILED")
	counts, listed, more := s.drift(t, "getOrder")
	require.Equal(t, map[string]int64{"/total format": 1, "/payment/last4 length": 1}, counts)
	require.Equal(t, "members", listed.Enforce.String())
	require.EqualValues(t, 1, listed.Responses, "what was rejected did not pass")

	// Where all is enforced, nothing passes, and nothing is listed.
	answer(`{"id":"o-1","account":"17","total":"canary-8"}`)
	requireProblem(t, s.caller.Get(t, s.g.URL, "/v1/orders/recent"), 502, "UPSTREAM_FAILED")
	cli(t, nil, "api", "drift", "--address", strings.TrimPrefix(s.g.AdminURL, "http://"), "--operation", "recentOrder").requireError(t, "everything of it is enforced")

	// What always holds.
	for name, body := range map[string]string{
		"another business's order":        `{"data":[` + goodOrder + `,{"id":"o-2","account":"18","total":"1"}]}`,
		"another business's order within": `{"data":[{"id":"o-1","account":"17","total":1,"parent":{"id":"o-2","account":"18","total":"1"}}]}`,
		"an order without its business":   `{"data":[{"id":"o-2","total":"1"}]}`,
		"no list of orders":               `{"data":{"id":"o-1"}}`,
		"a name twice":                    `{"data":[{"id":"o-1","account":"17","total":"1","total":"2"}]}`,
		"not JSON":                        `{"data":[`,
	} {
		answer(body)
		requireProblem(t, s.caller.Get(t, s.g.URL, "/v1/orders"), 502, "UPSTREAM_FAILED")
		require.NotEmpty(t, name)
	}
	s.data.setResponse(respondWith(200, "text/html", `{"data":[]}`))
	requireProblem(t, s.caller.Get(t, s.g.URL, "/v1/orders"), 502, "UPSTREAM_FAILED")

	require.InDelta(t, 2, s.g.Metric(t, "gatehouse_api_deviations_total", `operation="shop/listOrders"`, `rule="missing"`), 0)
	require.Positive(t, s.g.Metric(t, "gatehouse_api_deviations_total", `operation="shop/getOrder"`, `rule="format"`))
	everything := s.g.Everything(t)
	require.Contains(t, everything, "response deviates from the definition")
	require.Contains(t, everything, "/data/*/payment/last4")
	require.Contains(t, everything, `"enforce_members":["shop/getOrder"]`)
	gatewaytest.RequireNowhere(t, everything+printed+more, "canary-", "canary name", "canary inner", "959595.25", "731199990008", "731199990009", "731199990007", "o-1\"")
}

// A reload keeps what was seen, unless it changes the definition or its option enforce.
func TestDriftSurvivesReloads(t *testing.T) {
	t.Parallel()
	s := observeShop(t)
	s.data.setResponse(respondWith(200, "application/json", `{"data":[{"id":"o-1","account":"17","total":1}]}`))
	require.Equal(t, 200, s.caller.Get(t, s.g.URL, "/v1/orders").Status)
	s.g.Reload(t)
	require.Equal(t, 200, s.caller.Get(t, s.g.URL, "/v1/orders").Status)
	counts, _, _ := s.drift(t, "listOrders")
	require.Equal(t, map[string]int64{"/data/*/total type": 2}, counts)

	address := strings.TrimPrefix(s.g.AdminURL, "http://")
	s.g.Write(t, s.options("members").Caddyfile(s.g.Addr, address))
	s.g.Reload(t)
	counts, listed, _ := s.drift(t, "listOrders")
	require.Empty(t, counts)
	require.Equal(t, "members", listed.Enforce.String())
	require.Equal(t, http.StatusBadGateway, s.caller.Get(t, s.g.URL, "/v1/orders").Status)

	require.NoError(t, os.Remove(s.extra))
	require.NoError(t, os.WriteFile(s.extra, []byte("overlay: 1.0.0\ninfo: {title: Nothing, version: '1'}\nactions: [{target: $.info, update: {title: Shop}}]\n"), 0o600))
	s.g.Write(t, s.options("all").Caddyfile(s.g.Addr, address))
	s.g.Reload(t)
	require.Equal(t, "Everything is enforced: no response may deviate from its definition.\n", cli(t, nil, "api", "drift", "--address", address).requireOK(t).stdout)
}
