package e2e_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/prometheus/procfs"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/certtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// sizing measures what a gateway, its Redis and its Vault spend.
type sizing struct {
	*vaultEnvironment
	t      *testing.T
	g      *gatewaytest.Gateway
	tls    string // the gateway's address with TLS
	ca     *certtest.CA
	client *redis.Client
	kept   *http.Client // keeps its connections
	caller []gatewaytest.Caller
	rows   []string // of the second table
	// scale
	keys, connections, assistants, requests, rounds int
	steady                                          time.Duration
}

const (
	smallTarget   = "/api/v1/me"
	listTarget    = "/api/v1/invoices?per_page=25"
	stalledTarget = "/api/v1/contacts?per_page=1"
)

// TestSizing measures what operators multiply. With GATEHOUSE_SIZING, which `make sizing` sets, it writes the tables of docs/sizing.md
// to that file. Otherwise it only requires that this works, and that the page has the same rows.
func TestSizing(t *testing.T) {
	t.Parallel()
	s := &sizing{t: t, keys: 20, connections: 10, assistants: 2, requests: 40, rounds: 1, steady: time.Second}
	file := os.Getenv("GATEHOUSE_SIZING")
	if file != "" {
		s.keys, s.connections, s.assistants, s.requests, s.rounds, s.steady = 2000, 500, 50, 2000, 6, 20*time.Second
	}
	var stalled atomic.Int64
	released, data := make(chan struct{}), demoService(t).Handler()
	release := sync.OnceFunc(func() { close(released) })
	s.vaultEnvironment = vaultIn(t, newEnvironment(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("per_page") == "1" {
			stalled.Add(1)
			<-released
		}
		data.ServeHTTP(w, r)
	})), vaulttest.Options{})
	t.Cleanup(release)
	s.client = s.redis.Client(t)
	s.ca = certtest.NewCA(t)
	cert, key := s.ca.ServerCert(t)
	o := s.options(highLimits)
	o.Global += "\n\tlog {\n\t\toutput file " + t.TempDir() + "/gateway.log {\n\t\t\troll_disabled\n\t\t}\n\t}"
	o.Site = strings.Replace(o.Site, "gatehouse_api {", "gatehouse_api {\n\t\ttimeout 1m", 1)
	s.tls = "https://" + gatewaytest.FreeAddr(t)
	o.Extra = s.tls + " {\n\ttls " + cert + " " + key + "\n\t" + o.Site + "\n}"
	s.g = s.startConnect(t, o)
	requireReady(t, s.g)
	s.kept, s.caller = s.newClient(true), s.issueKeys(100, 0)

	s.measureMemory(func() bool { return stalled.Load() == int64(s.connections) }, release)
	requests := s.measureRequests()
	s.g.Stop(t)
	s.measureVault()

	var b strings.Builder
	fmt.Fprintf(&b, "| request | CPU µs | requests/s per core | Redis trips | Redis CPU µs | bytes to Redis | bytes from Redis |\n|---|---|---|---|---|---|---|\n")
	for _, r := range requests {
		fmt.Fprintf(&b, "| %s | %.0f | %.0f | %.2f | %.0f | %.0f | %.0f |\n", r.name, r.spent[0], 1e6/r.spent[0], r.spent[2], r.spent[1], r.spent[3], r.spent[4])
	}
	slices.Sort(s.rows)
	fmt.Fprintf(&b, "\n| what | each |\n|---|---|\n%s", strings.Join(s.rows, ""))
	if file != "" {
		require.NoError(t, os.WriteFile(file, []byte(s.machine()+"\n"+b.String()), 0o644))
	}
	page, err := os.ReadFile("../docs/sizing.md")
	require.NoError(t, err)
	firstCells := regexp.MustCompile(`(?m)^\| ([^|]+) \|`)
	assert.Equal(t, firstCells.FindAllString(b.String(), -1), firstCells.FindAllString(string(page), -1), "the rows of docs/sizing.md")
}

// measureMemory measures the memory of the gateway, and that of the limits in Redis. stalled reports whether all requests of
// stalledTarget have reached the data service, and release lets it respond.
func (s *sizing) measureMemory(stalled func() bool, release func()) {
	s.t.Helper()
	limited := s.issueKeys(s.keys, 60)
	s.run(s.requests, 32, s.get(s.kept, s.g.URL, s.caller, listTarget, http.StatusOK)) // opens connections
	resident, _ := s.g.Memory(s.t)
	s.row("Gateway: resident at rest", float64(resident))
	memory, stored, sent := s.live(), s.stored("limit:*"), 0
	for _, more := range []int{1, 59} {
		s.run(more*s.keys, 32, s.get(s.kept, s.g.URL, limited, smallTarget, http.StatusOK))
		sent += more
		name := fmt.Sprintf("key, requests in the last minute: %d", sent)
		s.row("Gateway: "+name, (s.live()-memory)/float64(s.keys))
		s.row("Redis: "+name, (s.stored("limit:*")-stored)/float64(s.keys))
	}
	// open sends a request on a connection of its own.
	open := func(base, target string) func(int) error {
		return func(i int) error { return s.get(s.newClient(true), base, s.caller, target, http.StatusOK)(i) }
	}
	for _, base := range []string{s.g.URL, s.tls} {
		memory = s.live()
		s.run(s.connections, 32, open(base, smallTarget))
		scheme, _, _ := strings.Cut(base, ":")
		s.row("Gateway: idle connection, "+scheme, (s.live()-memory)/float64(s.connections))
	}
	memory = s.live()
	done := make(chan error, s.connections)
	go inParallel(s.connections, s.connections, func(i int) { done <- open(s.g.URL, stalledTarget)(i) })
	require.Eventually(s.t, stalled, patience, 10*time.Millisecond)
	s.row("Gateway: request in progress, with its two connections", (s.live()-memory)/float64(s.connections))
	release()
	for range s.connections {
		require.NoError(s.t, <-done)
	}
}

// measureRequests measures the CPU time of requests and what goes to Redis, and the memory there that tool calls need.
func (s *sizing) measureRequests() []*sizedRequest {
	s.t.Helper()
	owner := s.owner(s.t, s.g)
	first := register(s.t, s.g.URL, "Test Assistant")
	assistants := make([]*assistant, s.assistants)
	for i := range assistants {
		a := *first
		a.verifier = rand.Text() + rand.Text()
		a.connect(s.t, owner, "mcp:read contacts:write", "contacts:write")
		assistants[i] = &a
	}
	s.row("Redis: connection of an assistant", s.stored("connect:{*}")/float64(s.assistants))
	s.row("Redis: signed-in user", s.stored("connect:session*"))

	tool := func(name, arguments string) func(int) error {
		return func(i int) error {
			text, err := assistants[i%len(assistants)].modern(s.t.Context(), s.kept, name, strings.ReplaceAll(arguments, "$", rand.Text()))
			if err == nil && (!strings.Contains(text, `"structuredContent"`) || strings.Contains(text, `"isError":true`)) {
				err = fmt.Errorf("%s: %s", name, text)
			}
			return err
		}
	}
	n, limited := s.requests, s.issueKeys(1, 1)
	requests := []*sizedRequest{
		{name: "`/me`", n: 2 * n, workers: 32, send: s.get(s.kept, s.g.URL, s.caller, smallTarget, http.StatusOK)},
		{name: "`/me`, one at a time", n: n, workers: 1, send: s.get(s.kept, s.g.URL, s.caller, smallTarget, http.StatusOK)},
		{name: "25 invoices", n: n, workers: 32, send: s.get(s.kept, s.g.URL, s.caller, listTarget, http.StatusOK)},
		{name: "25 invoices over TLS", n: n, workers: 32, send: s.get(s.kept, s.tls, s.caller, listTarget, http.StatusOK)},
		{name: "new TLS connection, besides its request", n: n, workers: 32, send: s.get(s.newClient(false), s.tls, s.caller, listTarget, http.StatusOK)},
		// one of them is allowed each minute
		{name: "request over the limit (429)", n: n, workers: 32, send: s.get(s.kept, s.g.URL, limited, smallTarget, http.StatusTooManyRequests, http.StatusOK)},
		// no more than the 120 a minute of each connection
		{name: "tool call that lists 25 invoices", n: n / 4, workers: 4, send: tool("invoices_search", `{"limit":25}`)},
		{name: "tool call that adds a contact", n: n / 4, workers: 4, send: tool("contacts_create", `{"first_name":"Ines $"}`)},
	}
	entries, calls := s.stored("connect:audit:*"), s.stored("connect:mcp:calls:*")
	for range s.rounds {
		for _, r := range requests {
			before := s.spent()
			s.run(r.n, r.workers, r.send)
			for i, after := range s.spent() {
				r.spent[i] += (after - before[i]) / float64(s.rounds*r.n)
			}
		}
	}
	requests[4].spent = [5]float64{requests[4].spent[0] - requests[3].spent[0]}
	added := float64(s.rounds * n / 4)
	s.row("Redis: entry of the audit log", (s.stored("connect:audit:*")-entries)/added)
	s.row("Redis: tool call that adds, in the last 10 minutes", (s.stored("connect:mcp:calls:*")-calls)/added)
	_, peak := s.g.Memory(s.t)
	s.row("Gateway: resident at most, in this run", float64(peak))
	return requests
}

// measureVault counts what a gateway asks Vault, with shorter times than the defaults.
func (s *sizing) measureVault() {
	s.t.Helper()
	const keys, tokenTTL = 20, 5 * time.Second
	ttl := s.steady / 10
	s.vault.AppRole(s.t, "gateway", vaulttest.ReadPolicy, map[string]any{"token_ttl": tokenTTL.String()})
	logins := s.asked("/login")
	g := s.gateway(s.t, fmt.Sprintf("%s\n\t\tcache {\n\t\t\tttl %s\n\t\t\t%s\n\t\t}", highLimits, ttl, longVaultTimeout))
	requireReady(s.t, g)
	use := func() { s.run(keys, 4, s.get(s.kept, g.URL, s.caller[:keys], smallTarget, http.StatusOK)) }
	use()
	reads, began := s.asked("/gateway/keys/"), time.Now()
	for time.Since(began) < s.steady {
		use()
		load.Wait(s.t.Context(), time.Now().Add(ttl/20))
	}
	took := time.Since(began)
	count := func(name string, n float64) { s.rows = append(s.rows, fmt.Sprintf("| Vault: %s | %.2f |\n", name, n)) }
	count("logins of a gateway at its start", s.asked("/login")-logins)
	count("reads of a key in use, per `ttl`", (s.asked("/gateway/keys/")-reads)/keys*ttl.Seconds()/took.Seconds())
	count("renewals of a token, per `token_ttl`", s.asked("/renew-self")*tokenTTL.Seconds()/took.Seconds())
}

// newClient returns a client that keeps connections or makes one for each request.
func (s *sizing) newClient(keep bool) *http.Client {
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: s.ca.ClientTLS(), MaxIdleConnsPerHost: 1000, DisableKeepAlives: !keep}}
	s.t.Cleanup(c.CloseIdleConnections)
	return c
}

// get returns a function that sends a signed GET of one of the callers, which must get one of the statuses.
func (s *sizing) get(client *http.Client, base string, callers []gatewaytest.Caller, target string, statuses ...int) func(i int) error {
	return func(i int) error {
		c := callers[i%len(callers)]
		c.Client = client
		a, err := c.Try(s.t.Context(), http.MethodGet, base, target, nil)
		if err == nil && !slices.Contains(statuses, a.Status) {
			err = fmt.Errorf("%s: status %d, want %d", target, a.Status, statuses)
		}
		return err
	}
}

// sizedRequest is a kind of requests.
type sizedRequest struct {
	name       string
	n, workers int // of each run
	send       func(i int) error
	spent      [5]float64 // by a request, as the method spent returns it
}

// spent returns what was spent so far: the CPU time of the gateway and of Redis in microseconds, and how often and how many bytes Redis
// has received and sent.
func (s *sizing) spent() (spent [5]float64) {
	s.t.Helper()
	info := s.client.InfoMap(s.t.Context(), "stats")
	require.NoError(s.t, info.Err())
	for i, name := range []string{"total_reads_processed", "total_net_input_bytes", "total_net_output_bytes"} {
		n, err := strconv.ParseFloat(info.Item("Stats", name), 64)
		require.NoError(s.t, err)
		spent[2+i] = n
	}
	spent[0] = float64(processorTime(s.t, s.g.Pid()).Microseconds())
	spent[1] = float64(processorTime(s.t, s.redis.Pid()).Microseconds())
	return spent
}

// asked returns how many requests to Vault have a target with a part.
func (s *sizing) asked(part string) (n float64) {
	for _, target := range s.proxy.targets() {
		if strings.Contains(target, part) {
			n++
		}
	}
	return n
}

// machine describes where and when this is measured.
func (s *sizing) machine() string {
	s.t.Helper()
	fs, err := procfs.NewDefaultFS()
	require.NoError(s.t, err)
	cpus, err := fs.CPUInfo()
	require.NoError(s.t, err)
	vault, err := s.vault.Client(s.t).Sys().HealthWithContext(s.t.Context())
	require.NoError(s.t, err)
	return fmt.Sprintf("%s, %d CPUs (%s), %s, Redis %s, Vault %s\n", time.Now().Format(time.DateOnly), len(cpus), cpus[0].ModelName,
		runtime.Version(), s.client.InfoMap(s.t.Context(), "server").Item("Server", "redis_version"), vault.Version)
}

// issueKeys adds keys of acme to Vault. A limit of 0 is highLimits.
func (s *sizing) issueKeys(n, limit int) []gatewaytest.Caller {
	s.t.Helper()
	callers := make([]gatewaytest.Caller, n)
	for i, k := range load.NewKeys(n, 1) {
		k.BusinessID, k.Limit = s.acmeID, limit
		s.put(s.t, k.PublicKey, k.Record())
		callers[i] = gatewaytest.Caller{PublicKey: k.PublicKey, PrivateKey: k.PrivateKey}
	}
	return callers
}

// run sends n requests.
func (s *sizing) run(n, workers int, send func(i int) error) {
	s.t.Helper()
	failed := make(chan error, n)
	inParallel(workers, n, func(i int) { failed <- send(i) })
	close(failed)
	for err := range failed {
		require.NoError(s.t, err)
	}
}

// live returns the size of what the gateway keeps on its heap and its stacks.
func (s *sizing) live() float64 {
	s.t.Helper()
	for range 2 { // a sync.Pool keeps its values for one more collection
		require.Equal(s.t, http.StatusOK, anonymous().Get(s.t, s.g.AdminURL, "/debug/pprof/heap?gc=1").Status)
	}
	return s.g.Metric(s.t, "go_memstats_heap_alloc_bytes") + s.g.Metric(s.t, "go_memstats_stack_inuse_bytes")
}

// stored returns the size of keys in Redis.
func (s *sizing) stored(pattern string) (sum float64) {
	s.t.Helper()
	keys := s.client.Scan(s.t.Context(), 0, "gatehouse:"+pattern, 1000).Iterator()
	for keys.Next(s.t.Context()) {
		n, err := s.client.MemoryUsage(s.t.Context(), keys.Val(), 0).Result()
		if !errors.Is(err, redis.Nil) { // it has expired
			require.NoError(s.t, err)
		}
		sum += float64(n)
	}
	require.NoError(s.t, keys.Err())
	return sum
}

// row adds a row with a size to the second table.
func (s *sizing) row(name string, bytes float64) {
	s.rows = append(s.rows, fmt.Sprintf("| %s | %s |\n", name, humanize.Bytes(uint64(max(0, bytes)))))
}
