package e2e_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// This file puts gateways under a steady signed load while something around them is broken, and holds every single
// answer to the contract. What may be answered beside the contract's successes a test states itself (loadOptions.May).

// limitWindow is the span of the contract's limits.
const limitWindow = time.Minute

// keyLimit is the contract's for a key, in limitWindow.
const keyLimit = 60

// chaos is how long and how hard tests of faults run. `make chaos` sets GATEHOUSE_CHAOS=1; otherwise, as in `make test`,
// each runs in a few seconds.
type chaos struct {
	long bool
	// rate is the steady load of a test, in requests a second over all gateways.
	rate int
	// before, away and back are how long a load runs before a fault, with it and after it.
	before, away, back time.Duration
	// redisTimeout is how long a request waits for Redis. It is the gateway's default in the long form, which has the
	// machine for itself; in the short one, beside many other tests, a Redis slower than that need not be broken.
	redisTimeout time.Duration
}

func chaosScale(t *testing.T) chaos {
	t.Helper()
	if os.Getenv("GATEHOUSE_CHAOS") == "1" {
		return chaos{
			long: true, rate: 100, redisTimeout: 50 * time.Millisecond,
			before: 5 * time.Second, away: 15 * time.Second, back: 10 * time.Second,
		}
	}
	return chaos{
		rate: 40, redisTimeout: 250 * time.Millisecond,
		before: 500 * time.Millisecond, away: 1500 * time.Millisecond, back: time.Second,
	}
}

// redis is the option of the block gateway for this scale.
func (c chaos) redis(url string) string {
	return fmt.Sprintf("redis %s {\n\t\t\ttimeout %s\n\t\t}", url, c.redisTimeout)
}

// loadCaller is a caller of a load, and whose records it may see.
type loadCaller struct {
	gatewaytest.Caller
	Business string
}

// loadTargets are the usual targets of a load: what the gateway answers itself, and what data services do.
func loadTargets() []string {
	return []string{
		"/api/v1/events?count=3", "/api/v1/contacts?per_page=2", "/api/v1/me", "/api/v1/invoices?page=2&per_page=2&status=paid",
		"/api/v1/business", "/api/v1/jobs", "/api/v1/status",
	}
}

// stampingData is a data service that writes into every record for whom and for which request it was made, so that an
// answer that goes to anybody else shows. It answers what loadTargets asks for.
func stampingData() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		business := r.Header.Get("X-Business-Id")
		stamp := stampOf(business, r.Header.Get("X-Request-Id"))
		name := strings.TrimPrefix(r.URL.Path, "/api/v1/")
		number := func(parameter string, otherwise int) int {
			if n, err := strconv.Atoi(r.URL.Query().Get(parameter)); err == nil {
				return n
			}
			return otherwise
		}
		var body map[string]any
		switch name {
		case "business":
			body = map[string]any{"business": map[string]any{"id": business, "name": stamp}}
		default:
			var records []map[string]any
			for i := range 2 {
				id := fmt.Sprintf("00000000-0000-4000-8000-%012d", i+1)
				records = append(records, map[string]any{"id": id, "business_id": business, stampField(name): stamp})
				switch name {
				case "contacts":
					records[i]["id"] = i + 1
				case "events":
					records[i]["status"], records[i]["published_at"] = "published", "2026-01-01T00:00:00Z"
				}
			}
			body = map[string]any{name: records}
			if name != "events" {
				body["pagination"] = map[string]any{
					"current_page": number("page", 1), "per_page": number("per_page", 25), "total_items": 50, "total_pages": 25,
				}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Server", "canary-upstream-banner")
		_ = json.NewEncoder(w).Encode(body)
	})
}

func stampOf(business, requestID string) string { return business + " " + requestID }

// stampField is the member of a resource's records that holds the stamp: one of free text.
func stampField(resource string) string {
	switch resource {
	case "contacts":
		return "notes"
	case "equipment", "business":
		return "name"
	case "estimates", "invoices":
		return "title"
	default:
		return "description"
	}
}

// newLoadWorld is a world whose data service stamps its records.
func newLoadWorld(t *testing.T) *world {
	t.Helper()
	return newWorld(t, stampingData())
}

// madeKeys are new credentials, spread evenly over a number of businesses.
func madeKeys(n, businesses int) []*authsigner.Credential {
	keys := make([]*authsigner.Credential, n)
	for i := range keys {
		slug := "load-" + strconv.Itoa(i%businesses)
		keys[i] = &authsigner.Credential{
			PublicKey: "pk_test_" + rand.Text(), PrivateKey: authsigner.Secret(rand.Text()), Status: authsigner.StatusActive,
			BusinessID: "business-of-" + slug, BusinessName: "The business " + slug, BusinessSlug: slug,
		}
	}
	return keys
}

func loadCallers(keys []*authsigner.Credential) []loadCaller {
	callers := make([]loadCaller, len(keys))
	for i, k := range keys {
		callers[i] = loadCaller{gatewaytest.Caller{PublicKey: k.PublicKey, PrivateKey: k.PrivateKey}, k.BusinessID}
	}
	return callers
}

// addKeys makes n keys of several businesses in the world's credential file.
func (w *world) addKeys(t *testing.T, n, businesses int) []loadCaller {
	t.Helper()
	// one file with the old and the new keys: entry by entry would write and sync it n times
	raw, err := os.ReadFile(w.keyFile)
	require.NoError(t, err)
	var content struct {
		Keys map[string]map[string]any `json:"keys"`
	}
	require.NoError(t, json.Unmarshal(raw, &content))
	keys := madeKeys(n, businesses)
	for _, k := range keys {
		content.Keys[k.PublicKey] = k.Record()
	}
	raw, err = json.Marshal(content)
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(name, raw, 0o600))
	require.NoError(t, os.Rename(name, w.keyFile))
	store, err := file.Open(w.keyFile, file.Options{})
	require.NoError(t, err)
	require.NoError(t, store.Close())
	return loadCallers(keys)
}

// loadOptions say what a load is. Callers takes turns on the gateways, and each new round is with the next target.
type loadOptions struct {
	Gateways []*gatewaytest.Gateway
	Callers  []loadCaller
	// Rate is in requests a second over all gateways and callers. Who is to stay under the contract's 60 a minute needs
	// as many callers as requests a second.
	Rate int
	// Targets are asked in turn. Default: loadTargets.
	Targets []string
	// May says why an answer is not allowed; "" if it is. It is asked about answers that are the contract's, and about
	// requests without an answer (sample.Err). It is called by many goroutines. Default: only 200 is allowed.
	May func(s *sample) string
	// Hide are further texts that must be in no answer: addresses of stores, say. Private keys are always looked for.
	Hide []string
	// Conns is how many requests a load has under way at each gateway at most. Default: 64.
	Conns int
	// Addresses is from how many addresses of the loopback interface callers come, each always from the same. Default: 1,
	// which is 127.0.0.1.
	Addresses int
}

// sample is one request of a load and what came of it.
type sample struct {
	// Stream is of which part of the load it is: "" for the load's own callers, or what was given to also.
	Stream string
	// Phase is the load's when the request was due, Ended when it was answered.
	Phase, Ended string
	Gateway      int // the index of the gateway asked
	Key          string
	Target       string
	// Due is when the request should have been sent, Sent when it was, Done when it was answered: what it took counts
	// from when it was due, so that a gateway that holds up the load does not look the better for it.
	Due, Sent, Done time.Time
	Status          int    // 0: no answer
	Code            string // of an error
	Err             error  // why there is no answer
}

// during says whether a phase had begun when the request was answered, and had not ended when it was due.
func (s *sample) during(phases ...string) bool {
	return slices.Contains(phases, s.Phase) || slices.Contains(phases, s.Ended)
}

// outcome is the answer's status and code.
func (s *sample) outcome() string {
	switch {
	case s.Err != nil:
		return "no answer"
	case s.Code != "":
		return strconv.Itoa(s.Status) + " " + s.Code
	}
	return strconv.Itoa(s.Status)
}

// load is a load that is running, or has ended.
type load struct {
	t       *testing.T
	o       loadOptions
	clients [][]*http.Client // for each gateway, for each address
	ctx     context.Context  // ends the streams, each of which is a goroutine
	cancel  context.CancelFunc
	streams sync.WaitGroup
	work    sync.WaitGroup
	due     chan *request
	name    atomic.Pointer[string]
	ended   sync.Once

	mu         sync.Mutex
	phases     []string
	began      map[string]time.Time
	samples    []*sample
	wrong      []string
	wrongs     map[string]int // by phase
	private    []string       // keys that must be in no answer
	signatures []string       // some of the signatures sent
}

// request is one that is due.
type request struct {
	*sample
	caller  loadCaller
	address int
}

// startLoad begins a load, in the phase "before". It is open-loop: requests are sent when they are due, however long
// others take. It ends with the test, or with stop.
func startLoad(t *testing.T, o loadOptions) *load {
	t.Helper()
	require.NotEmpty(t, o.Gateways)
	if o.Conns == 0 {
		o.Conns = 64
	}
	l := &load{t: t, o: o, due: make(chan *request), began: map[string]time.Time{}, wrongs: map[string]int{}}
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(t.Context()))
	for range o.Gateways {
		var clients []*http.Client
		for i := range max(1, o.Addresses) {
			dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(i>>8), byte(i+1))}}
			transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: o.Conns, DisableCompression: true}
			clients = append(clients, &http.Client{
				Transport: transport, Timeout: patience,
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			})
		}
		l.clients = append(l.clients, clients)
	}
	l.phase("before")
	for range o.Conns * len(o.Gateways) {
		l.work.Go(func() {
			for r := range l.due {
				l.send(r)
			}
		})
	}
	t.Cleanup(func() {
		l.end()
		if !t.Failed() {
			return
		}
		for i, g := range o.Gateways {
			t.Logf("what gateway %d has said of its surroundings:", i)
			for line := range strings.Lines(g.Output()) { // a line for each request would hide it
				if !strings.Contains(line, `"msg":"request"`) {
					t.Log(strings.TrimSpace(line))
				}
			}
		}
	})
	if len(o.Callers) > 0 {
		l.also("", o.Callers, o.Rate, o.Targets...)
	}
	return l
}

// also adds a stream of requests to the load, and returns what ends it early.
func (l *load) also(name string, callers []loadCaller, rate int, targets ...string) (cancel func()) {
	l.t.Helper()
	require.NotEmpty(l.t, callers)
	require.Positive(l.t, rate)
	if len(targets) == 0 {
		targets = loadTargets()
	}
	l.mu.Lock()
	for _, c := range callers {
		l.private = append(l.private, c.PrivateKey.Reveal())
	}
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(l.ctx)
	l.streams.Go(func() {
		defer cancel()
		began, gateways := time.Now(), len(l.o.Gateways)
		for i := 0; ; i++ {
			due := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
			if !until(ctx, due) {
				return
			}
			turn := i / gateways % len(callers)
			caller := callers[turn]
			r := &request{&sample{
				Stream: name, Phase: *l.name.Load(), Gateway: i % gateways, Key: caller.PublicKey,
				Target: targets[(i/gateways+i/(gateways*len(callers)))%len(targets)], Due: due,
			}, caller, turn % max(1, l.o.Addresses)}
			select {
			case l.due <- r:
			case <-ctx.Done():
				return
			}
		}
	})
	return cancel
}

// until waits for a moment; false if ctx ends before.
func until(ctx context.Context, at time.Time) bool {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// phase begins a phase: what is due from now on counts there.
func (l *load) phase(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.name.Store(&name)
	if _, ok := l.began[name]; !ok {
		l.phases = append(l.phases, name)
		l.began[name] = time.Now()
	}
}

// during lets the load run for a while.
func (l *load) during(d time.Duration) {
	l.t.Helper()
	require.True(l.t, until(l.t.Context(), time.Now().Add(d)), "the test has ended")
}

// send sends a request and keeps what came of it.
func (l *load) send(r *request) {
	r.Sent = time.Now()
	// a request that has been sent is answered, though the load ends
	c := r.caller.Caller
	c.Client = l.clients[r.Gateway][r.address]
	a, err := c.Try(context.WithoutCancel(l.ctx), http.MethodGet, l.o.Gateways[r.Gateway].URL, r.Target, nil)
	r.Done = time.Now()
	r.Ended = *l.name.Load()
	why := ""
	if err != nil {
		r.Err = err
	} else {
		r.Status = a.Status
		r.Code, err = heldToContract(&a, r.caller.Business)
		if err == nil {
			err = l.revealed(&a)
		}
		if err != nil {
			why = err.Error()
		}
	}
	switch {
	case why != "":
	case l.o.May != nil:
		why = l.o.May(r.sample)
	case r.Status != http.StatusOK:
		why = "only 200 is allowed"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples = append(l.samples, r.sample)
	if a.Request != nil && len(l.samples)%50 == 0 {
		l.signatures = append(l.signatures, a.Request.Header.Get(authsigner.HeaderSignature))
	}
	if why == "" {
		return
	}
	l.wrongs[r.Phase]++
	if len(l.wrong) < 10 {
		l.wrong = append(l.wrong, fmt.Sprintf("%s (%s): due in phase %q, answered in %q after %v by gateway %d, key %s: %s: %s %v %v %v",
			r.Target, r.Stream, r.Phase, r.Ended, r.Done.Sub(r.Due).Round(time.Millisecond), r.Gateway, r.Key, why, r.outcome(), r.Err, a.Header, a.Body))
	}
}

// neverAnswered are in no answer of a gateway, whatever has happened.
func neverAnswered() []string {
	return []string{"goroutine ", "panic", "runtime error", ".go:", "canary", "127.0.0.1", "/tmp/", "vault", "redis"}
}

// revealed searches an answer for what must not be there.
func (l *load) revealed(a *gatewaytest.Answer) error {
	var b strings.Builder
	_ = a.Header.Write(&b)
	b.WriteString(a.Body)
	text := b.String()
	l.mu.Lock()
	private := l.private
	l.mu.Unlock()
	for _, canaries := range [][]string{neverAnswered(), l.o.Hide, private} {
		for _, c := range canaries {
			if strings.Contains(text, c) {
				return fmt.Errorf("a canary has leaked: %q", c)
			}
		}
	}
	return nil
}

// contractErrors are the statuses and codes of the contract's errors (section 3).
func contractErrors() map[string]int {
	return map[string]int{
		"INVALID_PARAMETER": http.StatusBadRequest, "MISSING_CREDENTIALS": http.StatusUnauthorized,
		"REQUEST_EXPIRED": http.StatusUnauthorized, "INVALID_CREDENTIALS": http.StatusUnauthorized,
		"ACCOUNT_INACTIVE": http.StatusForbidden, "NOT_FOUND": http.StatusNotFound,
		"METHOD_NOT_ALLOWED": http.StatusMethodNotAllowed, "BODY_TOO_LARGE": http.StatusRequestEntityTooLarge,
		"RATE_LIMITED": http.StatusTooManyRequests, "INTERNAL": http.StatusInternalServerError,
		"UPSTREAM_FAILED": http.StatusBadGateway, "SERVICE_UNAVAILABLE": http.StatusServiceUnavailable,
		"UPSTREAM_TIMEOUT": http.StatusGatewayTimeout,
	}
}

// heldToContract says what is wrong with an answer, and the code of one that is an error of the contract's. A success
// must hold records of this business and of this very request, as stampingData makes them.
func heldToContract(a *gatewaytest.Answer, business string) (code string, err error) {
	ids := a.Header["X-Request-Id"]
	switch {
	case len(ids) != 1 || ids[0] == "":
		return "", errors.New("not one request id")
	case a.Header.Get("Content-Type") != "application/json":
		return "", errors.New("no JSON by its type")
	case a.Header.Get("Server") != "" || a.Header.Get("Via") != "" || a.Header.Get("X-Powered-By") != "":
		return "", errors.New("a banner")
	}
	if a.Status == http.StatusOK {
		if a.Header.Get("X-Ratelimit-Limit") == "" || a.Header.Get("Ratelimit-Policy") == "" || a.Header.Get("Ratelimit") == "" {
			return "", errors.New("without the limit's state")
		}
		return "", rightRecords(a, business, ids[0])
	}
	var p problem
	decoder := json.NewDecoder(strings.NewReader(a.Body))
	if err := decoder.Decode(&p); err != nil {
		return "", fmt.Errorf("no JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return p.Code, errors.New("more than one JSON value")
	}
	after, _ := strconv.Atoi(a.Header.Get("Retry-After"))
	switch {
	case contractErrors()[p.Code] != a.Status:
		return p.Code, errors.New("no status and code of the contract's table")
	case p.Error == "" || p.RequestID != ids[0]:
		return p.Code, errors.New("no sentence, or another request's id")
	case (a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable) && (after < 1 || after != p.RetryAfter):
		return p.Code, errors.New("no Retry-After, or another than in the body")
	case a.Status == http.StatusTooManyRequests && (p.Message == "" || a.Header.Get("X-Ratelimit-Remaining") != "0"):
		return p.Code, errors.New("not as existing clients read a refusal")
	case a.Status == http.StatusMethodNotAllowed && a.Header.Get("Allow") == "":
		return p.Code, errors.New("no Allow")
	}
	return p.Code, nil
}

// rightRecords says what is wrong with what a success holds.
func rightRecords(a *gatewaytest.Answer, business, requestID string) error {
	var body map[string]json.RawMessage
	if err := json.Unmarshal([]byte(a.Body), &body); err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(a.Request.URL.Opaque, "/api/v1/"), "?")
	stamp := stampOf(business, requestID)
	switch name {
	case "status":
		if string(body["status"]) != `"ok"` {
			return errors.New("another answer than asked for")
		}
		return nil
	case "me", "business":
		var record struct{ ID, Name string }
		if err := json.Unmarshal(body["business"], &record); err != nil {
			return fmt.Errorf("another answer than asked for: %w", err)
		}
		if record.ID != business || name == "business" && record.Name != stamp {
			return errors.New("ANOTHER'S RECORD")
		}
		return nil
	}
	var records []map[string]any
	if err := json.Unmarshal(body[name], &records); err != nil {
		return fmt.Errorf("another answer than asked for: %w", err)
	}
	if len(records) != 2 {
		return fmt.Errorf("%d records and not 2", len(records))
	}
	for _, r := range records {
		if r[stampField(name)] != stamp {
			return errors.New("ANOTHER'S RECORD")
		}
	}
	return nil
}

// end ends the load and waits for what is under way.
func (l *load) end() {
	l.ended.Do(func() {
		l.cancel()
		l.streams.Wait()
		close(l.due)
		l.work.Wait()
		for _, clients := range l.clients {
			for _, c := range clients {
				c.CloseIdleConnections()
			}
		}
	})
}

// stop ends the load, fails the test if an answer was wrong, and searches all that the gateways have written for what
// must not be there.
func (l *load) stop() *loadReport {
	l.t.Helper()
	l.end()
	r := l.report()
	if wrong := r.wrong(); wrong > 0 {
		require.Fail(l.t, "wrong responses", "%d of %d\n%s\nthe first:\n%s", wrong, len(l.samples), r, strings.Join(l.wrong, "\n"))
	}
	secrets := append(slices.Clone(l.private), l.signatures...)
	for _, g := range l.o.Gateways {
		select {
		case <-g.Exited():
			requireNowhere(l.t, g.Output(), secrets...)
			continue
		default:
		}
		requireNowhere(l.t, everything(l.t, g), secrets...)
		requireNowhere(l.t, g.Output(), "goroutine ", "panic", "runtime error", "canary")
		// Caddy's own metrics name its upstreams, to whoever operates it
		metrics := regexp.MustCompile(`(?m)^caddy_reverse_proxy_.*$`).ReplaceAllString(anonymous().Get(l.t, g.AdminURL, "/metrics").Body, "")
		requireNowhere(l.t, metrics, "canary")
		for _, h := range l.o.Hide {
			requireNowhere(l.t, metrics, h)
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			requireNowhere(l.t, anonymous().Get(l.t, g.URL, path).Body, append(neverAnswered(), l.o.Hide...)...)
		}
	}
	return r
}

// loadReport is what a load has found.
type loadReport struct {
	Phases  []phaseReport
	samples []*sample
}

// phaseReport is about what was due in one phase.
type phaseReport struct {
	Name          string
	Requests      int
	By            map[string]int // by status and code; "no answer"
	Wrong         int
	P50, P99, Max time.Duration
}

// report is what the load has found so far.
func (l *load) report() *loadReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &loadReport{samples: slices.Clone(l.samples)}
	for _, name := range l.phases {
		r.Phases = append(r.Phases, phaseOf(name, l.wrongs[name], r.samples))
	}
	return r
}

func phaseOf(name string, wrong int, samples []*sample) phaseReport {
	p := phaseReport{Name: name, By: map[string]int{}, Wrong: wrong}
	var took []time.Duration
	for _, s := range samples {
		if s.Phase == name {
			p.By[s.outcome()]++
			took = append(took, s.Done.Sub(s.Due))
		}
	}
	p.Requests = len(took)
	if len(took) > 0 {
		slices.Sort(took)
		p.P50, p.P99, p.Max = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	}
	return p
}

// phase is the report on a phase; zero if there was none.
func (r *loadReport) phase(name string) phaseReport {
	for _, p := range r.Phases {
		if p.Name == name {
			return p
		}
	}
	return phaseReport{Name: name, By: map[string]int{}}
}

func (r *loadReport) wrong() int {
	n := 0
	for _, p := range r.Phases {
		n += p.Wrong
	}
	return n
}

// some are the samples that a test asks for.
func (r *loadReport) some(wanted func(*sample) bool) []*sample {
	var list []*sample
	for _, s := range r.samples {
		if wanted(s) {
			list = append(list, s)
		}
	}
	return list
}

// admitted says of the samples how many were served by the most generous window of a limit for one caller, told apart by
// name: as many as were certainly within one window of each other.
func (r *loadReport) admitted(callerOf func(*sample) string, wanted func(*sample) bool) (worst int) {
	sent, done := map[string][]time.Time{}, map[string][]time.Time{}
	for _, s := range r.samples {
		if s.Status == http.StatusOK && (wanted == nil || wanted(s)) {
			caller := callerOf(s)
			sent[caller], done[caller] = append(sent[caller], s.Sent), append(done[caller], s.Done)
		}
	}
	for caller := range sent {
		sent, done := sent[caller], done[caller]
		slices.SortFunc(sent, time.Time.Compare)
		slices.SortFunc(done, time.Time.Compare)
		within := 0
		for before, first := range sent {
			// An admission is some moment between the request and its answer, and none takes as long as the window: who
			// had its answer when the window ended, less those who were sent before it began.
			for within < len(done) && done[within].Sub(first) < limitWindow {
				within++
			}
			worst = max(worst, within-before)
		}
	}
	return worst
}

// byGateway tells the callers of each gateway apart, byFleet only callers.
func byGateway(s *sample) string { return strconv.Itoa(s.Gateway) + " " + s.Key }

func byFleet(s *sample) string { return s.Key }

// overLimit is by how many requests any gateway has exceeded the limit of any key in any window.
func (r *loadReport) overLimit() int { return max(0, r.admitted(byGateway, nil)-keyLimit) }

// String is the report in a few lines.
func (r *loadReport) String() string {
	var b strings.Builder
	for _, p := range r.Phases {
		fmt.Fprintf(&b, "%-8s %5d requests, wrong %d, p50 %s, p99 %s, max %s:", p.Name, p.Requests, p.Wrong, inMS(p.P50), inMS(p.P99), inMS(p.Max))
		for _, outcome := range slices.Sorted(maps.Keys(p.By)) {
			fmt.Fprintf(&b, " %s: %d", outcome, p.By[outcome])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// figure writes the line that docs/reliability.md cites; more are further figures, name=value.
func (r *loadReport) figure(t *testing.T, more ...string) {
	t.Helper()
	var p50, p99 []string
	for _, p := range r.Phases {
		p50, p99 = append(p50, p.Name+":"+inMS(p.P50)), append(p99, p.Name+":"+inMS(p.P99))
	}
	t.Logf("figure: %s requests=%d wrong=%d over_limit=%d p50=%s p99=%s %s\n%s", t.Name(), len(r.samples), r.wrong(), r.overLimit(),
		strings.Join(p50, ","), strings.Join(p99, ","), strings.Join(more, " "), r)
}

func inMS(d time.Duration) string {
	return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 1, 64) + "ms"
}

// metric reads the sum of the series of a gateway's metric whose names hold all the parts.
func metric(t *testing.T, g *gatewaytest.Gateway, name string, parts ...string) float64 {
	t.Helper()
	sum := 0.0
	for line := range strings.Lines(anonymous().Get(t, g.AdminURL, "/metrics").Body) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if n, _, _ := strings.Cut(series, "{"); !ok || n != name {
			continue
		}
		if slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(series, p) }) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		require.NoError(t, err, line)
		sum += v
	}
	return sum
}

// TestALoadHoldsEveryAnswerToTheContract holds the load itself to what it promises: what is wrong, it finds.
func TestALoadHoldsEveryAnswerToTheContract(t *testing.T) {
	t.Parallel()
	w := newLoadWorld(t)
	callers := w.addKeys(t, 20, 3)
	l := startLoad(t, loadOptions{Gateways: []*gatewaytest.Gateway{w.gateway(t), w.gateway(t)}, Callers: callers, Rate: 100, Hide: []string{w.redis.Addr}})
	l.during(500 * time.Millisecond)
	require.Eventually(t, func() bool { return l.report().phase("before").Requests > 30 }, patience, 10*time.Millisecond)
	l.phase("after")
	l.during(500 * time.Millisecond)
	r := l.stop()
	require.Positive(t, r.phase("after").Requests, "%s", r)
	require.Equal(t, r.phase("after").Requests, r.phase("after").By["200"], "%s", r)
	require.Zero(t, r.overLimit())

	g := l.o.Gateways[0]
	c := callers[0]
	a := c.Get(t, g.URL, "/api/v1/contacts?per_page=2")
	code, err := heldToContract(&a, c.Business)
	require.NoError(t, err)
	require.Empty(t, code)
	_, err = heldToContract(&a, callers[1].Business)
	require.ErrorContains(t, err, "ANOTHER'S RECORD")
	other := a
	other.Body = strings.ReplaceAll(a.Body, a.Header.Get("X-Request-Id"), "another-request")
	_, err = heldToContract(&other, c.Business)
	require.ErrorContains(t, err, "ANOTHER'S RECORD")
	require.ErrorContains(t, l.revealed(&gatewaytest.Answer{Body: "…" + c.PrivateKey.Reveal()}), "leaked")
	require.ErrorContains(t, l.revealed(&gatewaytest.Answer{Header: http.Header{"X": {w.redis.Addr}}}), "leaked")

	a = anonymous().Get(t, g.URL, "/api/v1/me")
	code, err = heldToContract(&a, "")
	require.NoError(t, err)
	require.Equal(t, "MISSING_CREDENTIALS", code)
	for _, change := range []func(*gatewaytest.Answer){
		func(a *gatewaytest.Answer) { a.Status = http.StatusInternalServerError },
		func(a *gatewaytest.Answer) { a.Body = "<html>" },
		func(a *gatewaytest.Answer) { a.Body += a.Body },
		func(a *gatewaytest.Answer) { a.Header.Set("Server", "Caddy") },
		func(a *gatewaytest.Answer) { a.Header.Del("X-Request-Id") },
		func(a *gatewaytest.Answer) { a.Header.Set("X-Request-Id", "another") },
		func(a *gatewaytest.Answer) { a.Header.Set("Content-Type", "text/html") },
		func(a *gatewaytest.Answer) {
			a.Status, a.Body = http.StatusServiceUnavailable, strings.Replace(a.Body, "MISSING_CREDENTIALS", "SERVICE_UNAVAILABLE", 1)
		},
	} {
		changed := a
		changed.Header = a.Header.Clone()
		change(&changed)
		_, err = heldToContract(&changed, "")
		require.Error(t, err, "%v", changed)
	}

	// the limit is found to be exceeded where it is
	crowd := &loadReport{}
	for i := range 70 {
		at := time.Now().Add(time.Duration(i) * time.Second)
		crowd.samples = append(crowd.samples, &sample{Key: "k", Status: http.StatusOK, Sent: at, Done: at.Add(time.Millisecond)})
	}
	require.Equal(t, keyLimit, crowd.admitted(byFleet, nil))
	crowd.samples = append(crowd.samples, &sample{Key: "k", Status: http.StatusOK, Sent: crowd.samples[30].Sent, Done: crowd.samples[30].Done})
	require.Equal(t, 1, crowd.overLimit())
}
