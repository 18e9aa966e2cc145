package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// previous is the commit whose binary is the previous version's: 0.1.0.
const previous = "15f03bcf4e030016462855ea26ad46658e7bd000"

// rollingFleet is three gateways behind a load balancer, in front of a service that records what it was asked to do.
type rollingFleet struct {
	*vaultEnvironment
	balancer *gatewaytest.Gateway
	gateways [3]*gatewaytest.Gateway
	options  gatewaytest.Options
	old      string // the previous binary

	mu     sync.Mutex
	served map[string]int  // requests of the API, by business
	writes map[string]bool // the IDs of requests that add a contact
}

// record returns the data service, for the connection server the demo's, which is recorded.
func (f *rollingFleet) record(demo, api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connect := strings.HasPrefix(r.URL.Path, "/connect/")
		f.mu.Lock()
		if !connect {
			f.served[r.Header.Get("X-Business-Id")]++
		} else if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/contacts") {
			f.writes[r.Header.Get("X-Request-Id")] = true
		}
		f.mu.Unlock()
		if connect {
			demo.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

func startRollingFleet(t *testing.T) *rollingFleet {
	t.Helper()
	f := &rollingFleet{old: gatewaytest.BinaryOf(t, previous), served: map[string]int{}, writes: map[string]bool{}}
	w := newEnvironment(t, f.record(demoService(t).Handler(), load.Data()))
	w.redis = redistest.Start(t, redistest.WithConfig("appendonly", "yes")) // as docs/connect.md requires
	f.vaultEnvironment = vaultIn(t, w, vaulttest.Options{})

	o := w.options("", "")
	f.balancer = gatewaytest.New(t, o)
	f.options = f.vaultEnvironment.options("")
	f.options.Global = strings.ReplaceAll(f.options.Global, f.proxy.URL, f.vault.Addr) + "\n\tshutdown_delay 4s"
	f.options.Servers = trustLoopback
	f.options.Site = w.connectSite(f.balancer) + f.options.Site
	var addrs []string
	for i := range f.gateways {
		f.gateways[i] = gatewaytest.New(t, f.options)
		addrs = append(addrs, f.gateways[i].Addr)
		f.run(t, i, f.old)
	}
	o.Site = "header {\n\t\t-Server\n\t\t-Via\n\t\tdefer\n\t}\n\treverse_proxy " + strings.Join(addrs, " ") +
		" {\n\t\thealth_uri /readyz\n\t\thealth_interval 100ms\n\t\tlb_policy round_robin\n\t}"
	startWith(t, f.balancer, o)
	return f
}

// run starts a gateway with a binary and waits until it is ready.
func (f *rollingFleet) run(t *testing.T, i int, binary string) {
	t.Helper()
	g := f.gateways[i]
	g.Binary = binary
	startWith(t, g, f.options)
	requireReady(t, g)
}

// replace replaces a gateway under load, as docs/upgrading.md says.
func (f *rollingFleet) replace(t *testing.T, i int, binary string) {
	t.Helper()
	g := f.gateways[i]
	g.Signal(t, syscall.SIGTERM)
	require.Zero(t, g.ExitCode(t))
	f.run(t, i, binary)
	require.Eventually(t, func() bool {
		return g.Metric(t, "gatehouse_requests_total", `route="api"`) > 0 && g.Metric(t, "gatehouse_requests_total", `operation="mcp"`) > 0
	}, patience, 50*time.Millisecond, "the load balancer sends it nothing")
}

// greedyKey adds a key of a business of its own, whose requests the service counts.
func (f *rollingFleet) greedyKey(t *testing.T, business string) load.Caller {
	t.Helper()
	key := load.NewKeys(1, 1)[0]
	key.BusinessID = business
	f.put(t, key.PublicKey, key.Record())
	return load.Callers([]*authsigner.Credential{key})[0]
}

// writer adds contacts through the load balancer, one after the other, until it is stopped.
type writer struct {
	a             *assistant
	outage        atomic.Bool // Redis may be unavailable: then a call may be refused, and is repeated
	done, refused atomic.Int64
}

func (w *writer) run(t *testing.T, stop <-chan struct{}) {
	t.Helper()
	for i := 0; ; {
		outage := w.outage.Load()
		status, text, err := w.a.post(context.WithoutCancel(t.Context()), onceClient(), "2025-11-25", "contacts_create",
			fmt.Sprintf(`{"name":"contacts_create","arguments":{"first_name":"Upgrade","last_name":"N%04d"}}`, i))
		unavailable := status == http.StatusServiceUnavailable || strings.Contains(text, `"isError":true`)
		switch {
		case err == nil && status == http.StatusOK && !unavailable:
			w.done.Add(1)
			i++
		case err == nil && unavailable && (outage || w.outage.Load()):
			w.refused.Add(1)
		default:
			assert.Fail(t, "a lost request", "%d %s %v", status, text, err)
			return
		}
		select {
		case <-stop:
			return
		case <-time.After(600 * time.Millisecond): // a connection has 120 requests a minute
		}
	}
}

// auditEntries returns the request IDs in a business's audit entries of tool calls, and how many are not resolved.
func (f *rollingFleet) auditEntries(t *testing.T, business string) (requests map[string]bool, pending int) {
	t.Helper()
	client, prefix := f.redis.Client(t), "gatehouse:connect:audit:{"+business+"}:"
	var entries []string
	stream, err := client.XRange(t.Context(), prefix+"tool.called", "-", "+").Result()
	require.NoError(t, err)
	for _, m := range stream {
		entry, ok := m.Values["entry"].(string)
		require.True(t, ok)
		entries = append(entries, entry)
	}
	unresolved, err := client.HGetAll(t.Context(), prefix+"pending").Result()
	require.NoError(t, err)
	for _, value := range unresolved {
		_, entry, _ := strings.Cut(value, " ")
		entries = append(entries, entry)
	}
	requests = map[string]bool{}
	for _, entry := range entries {
		var e struct {
			RequestID string `json:"request_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(entry), &e))
		requests[e.RequestID] = true
	}
	return requests, len(unresolved)
}

// Three gateways are replaced by those of this version and back, one after the other, under load; Redis is restarted while there are
// both. No request is lost, no limit is exceeded, nobody has to sign in or connect again, and the audit log is complete.
func TestFleetIsUpgradedAndRolledBackUnderLoad(t *testing.T) {
	t.Parallel()
	c, f := chaosScale(t), startRollingFleet(t)
	now := gatewaytest.Binary(t)
	base := f.balancer.URL
	accepted := func(c gatewaytest.Caller) {
		t.Helper()
		require.Equal(t, http.StatusOK, c.Get(t, base, "/api/v1/me").Status)
	}
	issue := func(binary string) gatewaytest.Caller {
		t.Helper()
		v := keysOf(t, f.keys, binary, "issue", "--business-id", "b-1", "--business-name", "Shop", "--business-slug", "shop")
		return gatewaytest.Caller{PublicKey: v.PublicKey, PrivateKey: authsigner.Secret(v.PrivateKey)}
	}
	create := `{"first_name":"Ada","last_name":"` + t.Name() + `"}`
	repeat := func(a *assistant, want string) {
		t.Helper()
		status, response := a.call(t, "contacts_create", create)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, string(response.Result.StructuredContent), want)
	}

	// everything begins with the previous version
	owner := f.owner(t, f.balancer)
	write := &writer{a: approved(t, owner, "mcp:use", "contacts:write")}
	first, pending := approved(t, owner, "mcp:use", "contacts:write"), register(t, base, "Pending Assistant")
	repeat(first, `"repeated":false`)
	form := owner.open(pending.authorizeURL("mcp:read"))
	newKey, oldKey := issue(now), issue(f.old)
	accepted(newKey)

	greedy := []load.Caller{f.greedyKey(t, "greedy-0"), f.greedyKey(t, "greedy-1"), f.greedyKey(t, "greedy-2")}
	l := load.Start(t, load.Options{
		Gateways: []*gatewaytest.Gateway{f.balancer}, Callers: f.addKeys(t, 2*c.rate, 5), Rate: c.rate, Allow: successOrLimited,
	})
	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() { write.run(t, stop) })
	ended := sync.OnceFunc(func() {
		close(stop)
		writing.Wait()
	})
	t.Cleanup(ended)
	reachesLimit := func(c load.Caller) {
		t.Helper()
		require.Eventually(t, func() bool {
			return len(l.Report().Some(func(s *load.Sample) bool {
				return s.Key == c.PublicKey && s.Status == http.StatusTooManyRequests
			})) > 0
		}, patience, 50*time.Millisecond)
	}
	endGreedy := l.Also("greedy", greedy[:1], 20, "/api/v1/contacts?per_page=2")
	all := []*assistant{first}
	stillConnected := func() {
		t.Helper()
		for _, a := range all {
			status, err := a.refresh(t)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status)
			status, _ = a.call(t, "business_get", `{}`)
			require.Equal(t, http.StatusOK, status)
		}
		at := owner.open("/settings/connected-apps")
		require.Equal(t, "/settings/connected-apps", at.URL.Path, "signed in")
		require.Equal(t, 1+len(all), strings.Count(at.Text, ">Disconnect"), at.Text)
	}
	stillConnected()
	l.Run(c.before)

	l.Phase("forward")
	f.replace(t, 0, now)
	stillConnected()
	f.replace(t, 1, now)
	stillConnected()
	reachesLimit(greedy[0])
	endGreedy()

	l.Phase("restart")
	endGreedy = l.Also("greedy while Redis restarts", greedy[1:2], 20, "/api/v1/contacts?per_page=2")
	write.outage.Store(true)
	require.NoError(t, f.redis.Stop())
	for _, g := range f.gateways {
		requireCheck(t, g, "limits", false)
	}
	require.Eventually(t, func() bool { return write.refused.Load() > 0 }, patience, 50*time.Millisecond)
	require.NoError(t, f.redis.Restart())
	for _, g := range f.gateways {
		requireCheck(t, g, "limits", true)
	}
	again := write.done.Load()
	require.Eventually(t, func() bool { return write.done.Load() >= again+int64(2*len(f.gateways)) }, patience, 50*time.Millisecond)
	write.outage.Store(false)
	reachesLimit(greedy[1])
	endGreedy()
	l.Phase("forward")
	stillConnected()
	l.Also("greedy", greedy[2:], 20, "/api/v1/contacts?per_page=2")
	f.replace(t, 2, now)

	l.Phase("upgraded")
	stillConnected()
	answer := owner.send(form, "request", url.Values{"decision": {"approve"}})
	require.NotNil(t, answer.Redirect, answer.Text)
	pending.redeem(t, answer.Redirect.Query().Get("code"))
	second := approved(t, owner, "mcp:use", "contacts:write")
	repeat(second, `"repeated":false`)
	repeat(first, `"repeated":true`)
	all = append(all, second, pending)
	stillConnected()
	accepted(newKey)
	accepted(oldKey)
	l.Run(c.before)
	late := register(t, base, "Late Assistant")
	form = owner.open(late.authorizeURL("mcp:read"))

	l.Phase("back")
	for i := range f.gateways {
		f.replace(t, i, f.old)
		stillConnected()
	}
	answer = owner.send(form, "request", url.Values{"decision": {"approve"}})
	require.NotNil(t, answer.Redirect, answer.Text)
	late.redeem(t, answer.Redirect.Query().Get("code"))
	repeat(second, `"repeated":true`)
	accepted(newKey)
	accepted(oldKey)
	reachesLimit(greedy[2])
	ended()
	report := l.Stop()
	for _, g := range f.gateways {
		g.Kill(t) // without the delay
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	var allowed []int
	for _, g := range greedy {
		served := func(s *load.Sample) bool { return s.Key == g.PublicKey && s.Status == http.StatusOK }
		require.Len(t, report.Some(served), f.served[g.Business], "as many as the data service has counted")
		allowed = append(allowed, report.Allowed(load.ByFleet, served))
	}
	require.LessOrEqual(t, max(allowed[0], allowed[2]), load.KeyLimit, "%s", report)
	require.LessOrEqual(t, allowed[1], len(f.gateways)*load.KeyLimit, "while Redis restarts, each gateway enforces the limit")
	entries, unresolved := f.auditEntries(t, f.acmeID)
	for request := range f.writes {
		require.Contains(t, entries, request, "a write without an audit entry")
	}
	require.GreaterOrEqual(t, len(f.writes), int(write.done.Load()))
	report.Figure(t, fmt.Sprintf("replaced=6 fleet_allowed=%v writes=%d refused_while_redis_restarts=%d without_audit_entry=0 unresolved=%d connections_ended=0",
		allowed, len(f.writes), write.refused.Load(), unresolved))
}

// A signed write that one version has accepted is not accepted by the other.
func TestSignedWriteIsAcceptedOnceByBothVersions(t *testing.T) {
	t.Parallel()
	p := newProtected(t)
	o := p.options(highLimits, "")
	o.Site = "gatehouse_auth shop\n\treverse_proxy " + strings.TrimPrefix(p.dataURL, "http://")
	old, now := gatewaytest.New(t, o), gatewaytest.Start(t, o)
	old.Binary = gatewaytest.BinaryOf(t, previous)
	startWith(t, old, o)
	for _, order := range [][2]*gatewaytest.Gateway{{old, now}, {now, old}} {
		target := "/orders?" + order[0].Addr // each write needs a signature of its own
		write := "POST " + target + " HTTP/1.1\r\nHost: x\r\n" + signedLines(p.writes, "POST", target, "") + "\r\n" + lastRequest
		require.Equal(t, 200, raw(t, order[0].Addr, write).Status)
		requireProblem(t, raw(t, order[1].Addr, write), http.StatusConflict, "REPLAYED")
	}
	require.Equal(t, 2, p.data.count())
}

// Either version reads what the other one has written in a credential file, and changes it.
func TestCredentialFileIsSharedWithThePreviousVersion(t *testing.T) {
	t.Parallel()
	old, now := gatewaytest.BinaryOf(t, previous), gatewaytest.Binary(t)
	k := keysCLI{source: []string{"--file", newKeyFile(t)}}
	for _, binaries := range [][2]string{{now, old}, {old, now}} {
		key := keysOf(t, k, binaries[0], "issue", "--business-id", "b-1", "--business-name", "Shop", "--business-slug", "shop", "--limit", "7").PublicKey
		for _, args := range [][]string{{"show"}, {"update", "--resources", "jobs"}, {"rotate", "--grace", "1h"}} {
			keysOf(t, k, binaries[1], slices.Insert(args, 1, key)...)
			require.Equal(t, key, keysOf(t, k, binaries[0], "show", key).PublicKey)
		}
	}
	content, err := os.ReadFile(k.source[1])
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(content), `"format": 1`))
	require.Equal(t, 2, strings.Count(string(content), `"previous_private_key"`))
	require.Equal(t, 2, strings.Count(string(content), `"limit": 7`))
}

// keysOf runs `gatehouse keys` of a binary.
func keysOf(t *testing.T, k keysCLI, binary string, args ...string) (v issued) {
	t.Helper()
	o, err := tryCLI(t.Context(), t.TempDir(), binary, k.env, slices.Concat([]string{"keys"}, args, k.source, []string{"--json"})...)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(o.requireOK(t).stdout), &v))
	return v
}
