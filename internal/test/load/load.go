// Package load sends signed requests to gateways at a steady rate and checks every response.
//
// A load is open-loop: a request is sent when it is due, however long others take. A test divides it into phases (before, during
// and after a fault, say), adds streams of other requests, and says which outcomes it allows in which phase. Every response, the
// allowed ones too, must be one of the contract's (Check) and must not reveal a private key, an internal address or a stack trace.
package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
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
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// timeout is how long a request may take. Only a gateway that does not respond reaches it.
const timeout = time.Minute

// Caller is a caller of a load, and the business whose records it may get.
type Caller struct {
	gatewaytest.Caller
	Business string
}

// Options describe a load. Callers take turns on the gateways; each new round is with the next target.
type Options struct {
	Gateways []*gatewaytest.Gateway
	Callers  []Caller
	// Rate is in requests a second over all gateways and callers. Callers that must stay below the contract's 60 a minute
	// have to be as many as requests a second.
	Rate int
	// Targets are requested in turn. Default: Targets.
	Targets []string
	// Allow reports whether an outcome is allowed: a response of the contract, or none (Sample.Err). Several goroutines call
	// it. Default: only 200.
	Allow func(s *Sample) bool
	// Hide are further texts that no response may contain, such as addresses of stores.
	Hide []string
	// Conns is the maximum number of requests in flight at each gateway. Default: 64.
	Conns int
	// Addresses is the number of loopback addresses that callers come from, each always from the same. Default: 1.
	Addresses int
}

// Sample is one request and its outcome.
type Sample struct {
	// Stream is "" for the load's own callers, or the name given to Also.
	Stream string
	// Phase is the load's phase when the request was due, Ended the one when the response arrived.
	Phase, Ended string
	Gateway      int // index in Options.Gateways
	Key          string
	Target       string
	// Due is when the request should have been sent, Sent when it was, Done when the response arrived. Latencies count from Due,
	// so that a gateway that delays the load does not look faster.
	Due, Sent, Done time.Time
	Status          int    // 0: no response
	Code            string // of an error
	Err             error  // why there is no response
}

// During reports whether the request was due, or its response arrived, in one of the phases.
func (s *Sample) During(phases ...string) bool {
	return slices.Contains(phases, s.Phase) || slices.Contains(phases, s.Ended)
}

// Outcome is the response's status and code.
func (s *Sample) Outcome() string {
	switch {
	case s.Err != nil:
		return "no response"
	case s.Code != "":
		return strconv.Itoa(s.Status) + " " + s.Code
	}
	return strconv.Itoa(s.Status)
}

// Load is a load that is running, or has ended.
type Load struct {
	t       *testing.T
	o       Options
	clients [][]*http.Client // for each gateway, for each address
	ctx     context.Context  //nolint:containedctx // it ends the streams, each of which is a goroutine
	cancel  context.CancelFunc
	streams sync.WaitGroup
	work    sync.WaitGroup
	due     chan *request
	current atomic.Pointer[string] // phase
	ended   sync.Once

	mu         sync.Mutex
	phases     []string
	samples    []*Sample
	wrong      []string       // the first few
	wrongs     map[string]int // by phase
	private    []string       // keys that no response may contain
	signatures []string       // some of the signatures sent
}

type request struct {
	*Sample
	caller  Caller
	address int
}

// Start begins a load, in the phase "before". It ends with Stop, or with the test.
func Start(t *testing.T, o Options) *Load {
	t.Helper()
	require.NotEmpty(t, o.Gateways)
	if o.Conns == 0 {
		o.Conns = 64
	}
	if o.Allow == nil {
		o.Allow = func(s *Sample) bool { return s.Status == http.StatusOK }
	}
	l := &Load{t: t, o: o, due: make(chan *request), wrongs: map[string]int{}}
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(t.Context()))
	for range o.Gateways {
		var clients []*http.Client
		for i := range max(1, o.Addresses) {
			dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(i>>8), byte(i+1))}}
			clients = append(clients, &http.Client{
				Transport:     &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: o.Conns, DisableCompression: true},
				Timeout:       timeout,
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			})
		}
		l.clients = append(l.clients, clients)
	}
	l.Phase("before")
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
			t.Logf("log of gateway %d without its requests:", i)
			for line := range strings.Lines(g.Output()) {
				if !strings.Contains(line, `"msg":"request"`) {
					t.Log(strings.TrimSpace(line))
				}
			}
		}
	})
	if len(o.Callers) > 0 {
		l.Also("", o.Callers, o.Rate, o.Targets...)
	}
	return l
}

// Also adds a stream of requests to the load, and returns a function that ends it early.
func (l *Load) Also(stream string, callers []Caller, rate int, targets ...string) (cancel func()) {
	l.t.Helper()
	require.NotEmpty(l.t, callers)
	require.Positive(l.t, rate)
	if len(targets) == 0 {
		targets = Targets()
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
			if !Wait(ctx, due) {
				return
			}
			turn := i / gateways % len(callers)
			caller := callers[turn]
			r := &request{&Sample{
				Stream: stream, Phase: *l.current.Load(), Gateway: i % gateways, Key: caller.PublicKey,
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

// Wait waits until a time. It returns false if ctx ends before.
func Wait(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// Phase begins a phase.
func (l *Load) Phase(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current.Store(&name)
	if !slices.Contains(l.phases, name) {
		l.phases = append(l.phases, name)
	}
}

// Run continues the load for a duration.
func (l *Load) Run(d time.Duration) {
	l.t.Helper()
	require.True(l.t, Wait(l.t.Context(), time.Now().Add(d)), "the test has ended")
}

func (l *Load) send(r *request) {
	r.Sent = time.Now()
	c := r.caller.Caller
	c.Client = l.clients[r.Gateway][r.address]
	// not the load's context, whose end must not cancel a request
	a, err := c.Try(context.WithoutCancel(l.ctx), http.MethodGet, l.o.Gateways[r.Gateway].URL, r.Target, nil)
	r.Done = time.Now()
	r.Ended = *l.current.Load()
	var wrong error
	if err != nil {
		r.Err = err
	} else {
		r.Status = a.Status
		if r.Code, wrong = Check(&a, r.caller.Business); wrong == nil {
			wrong = l.revealed(&a)
		}
	}
	if wrong == nil && !l.o.Allow(r.Sample) {
		wrong = errors.New("this outcome is not allowed")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples = append(l.samples, r.Sample)
	if a.Request != nil && len(l.samples)%50 == 0 {
		l.signatures = append(l.signatures, a.Request.Header.Get(authsigner.HeaderSignature))
	}
	if wrong == nil {
		return
	}
	l.wrongs[r.Phase]++
	if len(l.wrong) < 10 {
		l.wrong = append(l.wrong, fmt.Sprintf("%s (%s): due in phase %q, ended in %q after %v by gateway %d, key %s: %v: %s %v %v %v",
			r.Target, r.Stream, r.Phase, r.Ended, r.Done.Sub(r.Due).Round(time.Millisecond), r.Gateway, r.Key, wrong, r.Outcome(), r.Err, a.Header, a.Body))
	}
}

// never returns texts that no response of a gateway may contain.
func never() []string {
	return []string{"goroutine ", "panic", "runtime error", ".go:", "canary", "127.0.0.1", "/tmp/", "vault", "redis"}
}

// revealed returns an error if a response contains a forbidden text.
func (l *Load) revealed(a *gatewaytest.Response) error {
	text := fmt.Sprint(a.Header, a.Body)
	l.mu.Lock()
	private := l.private
	l.mu.Unlock()
	for _, c := range slices.Concat(never(), l.o.Hide, private) {
		if strings.Contains(text, c) {
			return fmt.Errorf("the response reveals %q", c)
		}
	}
	return nil
}

// end ends the load and waits for the requests in flight.
func (l *Load) end() {
	l.ended.Do(func() {
		l.cancel()
		l.streams.Wait()
		close(l.due)
		l.work.Wait()
		for _, c := range slices.Concat(l.clients...) {
			c.CloseIdleConnections()
		}
	})
}

// Stop ends the load. It fails the test if a response was wrong, or if the gateways show or have written a forbidden text.
func (l *Load) Stop() *Report {
	l.t.Helper()
	l.end()
	r := l.Report()
	if wrong := r.wrong(); wrong > 0 {
		require.Fail(l.t, "wrong responses", "%d of %d\n%s\nthe first:\n%s", wrong, len(l.samples), r, strings.Join(l.wrong, "\n"))
	}
	secrets := slices.Concat(l.private, l.signatures)
	anyone := gatewaytest.Caller{}
	for _, g := range l.o.Gateways {
		if g.Ended() {
			gatewaytest.RequireNowhere(l.t, g.Output(), secrets...)
			continue
		}
		gatewaytest.RequireNowhere(l.t, g.Everything(l.t), secrets...)
		gatewaytest.RequireNowhere(l.t, g.Output(), "goroutine ", "panic", "runtime error", "canary")
		// Caddy's own metrics name its upstreams.
		metrics := regexp.MustCompile(`(?m)^caddy_reverse_proxy_.*$`).ReplaceAllString(anyone.Get(l.t, g.AdminURL, "/metrics").Body, "")
		gatewaytest.RequireNowhere(l.t, metrics, append(l.o.Hide, "canary")...)
		for _, path := range []string{"/healthz", "/readyz"} {
			gatewaytest.RequireNowhere(l.t, anyone.Get(l.t, g.URL, path).Body, append(never(), l.o.Hide...)...)
		}
	}
	return r
}
