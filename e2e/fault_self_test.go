package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// memoryBound is the maximum by which a gateway's memory may grow during a fault.
const memoryBound = 256 << 20

// descriptors returns the number of a gateway's descriptors without pooled connections to Redis and to data services. A machine
// that stalls for a second makes the gateway open more of those, which it keeps until they have been idle for minutes.
func descriptors(t *testing.T, g *gatewaytest.Gateway) int {
	t.Helper()
	pooled := g.Metric(t, "gatehouse_redis_connections") + g.Metric(t, "gatehouse_upstream_connections")
	return g.Descriptors(t) - int(pooled)
}

// connections returns the number of gateway connections to Redis, and of those that are subscribed.
func connections(t *testing.T, redis *redistest.Server) (all, listening int) {
	t.Helper()
	list, err := redis.Client(t).ClientList(t.Context()).Result()
	require.NoError(t, err)
	for l := range strings.Lines(list) {
		if !strings.Contains(l, "name=gatehouse") {
			continue
		}
		all++
		if strings.Contains(l, " sub=1 ") {
			listening++
		}
	}
	return all, listening
}

// series returns the number of time series of a gateway, including Caddy's and Go's.
func series(t *testing.T, g *gatewaytest.Gateway) (n int) {
	t.Helper()
	for line := range strings.Lines(anonymous().Get(t, g.AdminURL, "/metrics").Body) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

func inMiB(bytes int64) string { return strconv.FormatInt(bytes>>20, 10) + "MiB" }

// clientLoad sends requests from concurrent callers, each of which waits for a response before its next request.
type clientLoad struct {
	t   *testing.T
	w   *environment
	g   *gatewaytest.Gateway
	ctx context.Context // stops the callers

	wg     sync.WaitGroup
	served atomic.Int64
	closed atomic.Int64 // connections closed by the gateway when a request was sent
	reset  atomic.Int64 // connections that could not be made

	mu    sync.Mutex
	wrong []string
}

func (c *clientLoad) reportf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wrong) < 10 {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

// pause limits the load of a caller.
func (c *clientLoad) pause() { load.Wait(c.ctx, time.Now().Add(2*time.Millisecond)) }

// refused reports whether a connection could not be made, and counts it.
func (c *clientLoad) refused(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		return false
	}
	c.reset.Add(1)
	return true
}

// call adds callers that use a client.
func (c *clientLoad) call(callers int, name string, client *http.Client) {
	caller := c.w.acme
	caller.Client = client
	targets := load.Targets()
	for i := range callers {
		c.wg.Go(func() {
			for n := i; c.ctx.Err() == nil; n++ {
				try := func() (gatewaytest.Response, error) {
					return caller.Try(context.WithoutCancel(c.ctx), http.MethodGet, c.g.URL, targets[n%len(targets)], nil)
				}
				a, err := try()
				if c.refused(err) {
					a, err = try()
				}
				if err == nil && a.Status != http.StatusOK {
					err = fmt.Errorf("%d %s", a.Status, a.Body)
				}
				if err == nil {
					_, err = load.Check(&a, c.w.acmeID)
				}
				if err != nil {
					c.reportf("%s, request %d: %v", name, n, err)
				}
				c.served.Add(1)
				c.pause()
			}
		})
	}
}

// keepAlive adds callers with one connection each, which they reuse until it is closed. A request on a closed connection is counted and
// repeated on a new one, where it must succeed: a server may close an idle connection at any time (RFC 9112, section 9.5). A response
// that begins must end.
func (c *clientLoad) keepAlive(callers int) {
	for range callers {
		c.wg.Go(func() {
			for c.ctx.Err() == nil {
				conn, err := net.DialTimeout("tcp", c.g.Addr, patience)
				if err != nil {
					if !c.refused(err) {
						c.reportf("keep-alive: %v", err)
					}
					continue
				}
				c.sendUntilClosed(conn)
				_ = conn.Close()
			}
		})
	}
}

// sendUntilClosed sends one request after the other over a connection until it is closed.
func (c *clientLoad) sendUntilClosed(conn net.Conn) {
	r := bufio.NewReader(conn)
	for n := 0; c.ctx.Err() == nil; n++ {
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, err := io.WriteString(conn, "GET /api/v1/me HTTP/1.1\r\nHost: x\r\n"+signedLines(c.w.acme, "GET", "/api/v1/me", "")+"\r\n")
		if err == nil {
			_, err = r.Peek(1)
		}
		if err != nil {
			if n == 0 {
				c.reportf("keep-alive: the first request of a connection: %v", err)
			}
			c.closed.Add(1)
			return
		}
		a, err := readResponse(r, http.MethodGet)
		if err != nil || a.Status != http.StatusOK {
			c.reportf("keep-alive: %d %s: %v", a.Status, a.Body, err)
			return
		}
		c.served.Add(1)
		c.pause()
		if a.Header.Get("Connection") == "close" {
			return
		}
	}
}

func TestFaultReloadsWithOwnSocketLoseNoConnection(t *testing.T) {
	t.Parallel()
	// Caddy opens a new listener and closes the old one. The kernel resets connections that were not accepted by then, unless
	// tcp_migrate_req is set.
	if !gatewaytest.InOwnNetwork(t, "net.ipv4.tcp_migrate_req=1") {
		return
	}
	reloadUnderLoad(t, false)
}

func TestFaultReloadsWithInheritedSocketLoseNoConnection(t *testing.T) {
	t.Parallel()
	reloadUnderLoad(t, true)
}

// reloadUnderLoad reloads a gateway many times. With its own socket, the kernel may lose a handshake that ends on one processor while
// another one closes the listener: one connection per hundred reloads is allowed, whose request is sent again. An inherited socket
// stays open, and no connection may be lost.
func reloadUnderLoad(t *testing.T, inherited bool) {
	t.Helper()
	scale := chaosScale(t)
	reloads := 30
	if scale.long {
		reloads = 1000
	}
	allowed := int64(max(1, reloads/100))
	if inherited {
		allowed = 0
	}
	const pool = 6
	w := newEnvironment(t, load.Data())
	callers := w.addKeys(t, 20, 3)
	o := w.options(highLimits, "")
	o.Global = strings.Replace(o.Global, w.redisLine(), "redis "+w.redis.URL()+" {\n\t\t\ttimeout 1s\n\t\t\tpool_size 6\n\t\t}", 1)
	// a request in flight at a reload may leave a connection to the data service open until keepalive ends
	o.Site = strings.Replace(o.Site, "upstream "+w.dataURL, "upstream "+w.dataURL+" {\n\t\t\ttransport http {\n\t\t\t\tkeepalive 2s\n\t\t\t}\n\t\t}", 1)
	if inherited {
		o.Site = "bind fd/3\n\t" + o.Site
	}
	g := gatewaytest.New(t, o)
	if inherited {
		g.InheritSocket(t)
	}
	// On a busy machine, a client may send its request, and get the response, seconds after it has connected.
	patient := strings.NewReplacer("gatehouse_drain\n", "gatehouse_drain {\n\t\t\t\twait 10s\n\t\t\t}\n", "grace_period 5s", "grace_period 1m")
	g.Write(t, patient.Replace(configOf(t, g)))
	g.Run(t)
	requireReady(t, g) // an inherited socket accepts connections before the gateway serves

	for _, target := range load.Targets() { // each has its own time series after its first response
		require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, target).Status)
	}
	require.Equal(t, http.StatusOK, anonymous().Get(t, g.URL, "/healthz").Status)

	c := &clientLoad{t: t, w: w, g: g}
	once, http2 := onceClient(), protocolClient(t, true, 0)
	var slowest time.Duration
	// reload reloads the gateway n times under load. The load has ended when it returns, because what it uses depends on the machine.
	reload := func(n int) *load.Report {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		c.ctx = ctx
		steady := load.Start(t, load.Options{
			Gateways: []*gatewaytest.Gateway{g}, Callers: callers, Rate: scale.rate,
			Allow: func(s *load.Sample) bool {
				return s.Status == http.StatusOK || c.refused(s.Err)
			},
		})
		c.call(3, "a connection for each request", once)
		c.call(1, "HTTP/2", http2)
		c.keepAlive(2)
		for i := range n {
			before := c.served.Load()
			began := time.Now()
			if i%100 == 0 {
				g.Reload(t) // by the command, as an operator does
			} else {
				g.Load(t)
				slowest = max(slowest, time.Since(began))
			}
			require.Eventually(t, func() bool { return c.served.Load() > before }, patience, time.Millisecond)
		}
		stop()
		c.wg.Wait()
		http2.CloseIdleConnections()
		return steady.Stop()
	}
	warmUp := min(reloads/3, 100) // one-time allocations are done
	reload(warmUp)
	first, firstSeries := atRest(t, g), series(t, g)
	report := reload(reloads - warmUp)
	require.Empty(t, c.wrong)
	require.LessOrEqual(t, c.reset.Load(), allowed, "handshakes that were reset")

	const slack = 5 // less than one for each reload
	requireNoGrowth := func(what string, first float64, now func() int) (n int) {
		t.Helper()
		if !assert.Eventually(t, func() bool { n = now(); return n <= int(first)+slack }, patience, 100*time.Millisecond) {
			require.Fail(t, what+" grow with reloads", "%.0f at first, %d after %d: %s", first, n, reloads-warmUp,
				anonymous().Get(t, g.AdminURL, "/debug/pprof/goroutine?debug=1").Body)
		}
		return n
	}
	after := requireNoGrowth("goroutines", first.goroutines, func() int { return int(g.Metric(t, "go_goroutines")) })
	open := requireNoGrowth("descriptors", first.descriptors, func() int { return descriptors(t, g) })
	require.LessOrEqual(t, series(t, g), firstSeries+20, "collectors")
	memory, _ := g.Memory(t)
	require.LessOrEqual(t, memory, first.resident+memoryBound)
	// Redis notices a replaced connection shortly after.
	requireConnections := func(pool int) {
		t.Helper()
		if !assert.Eventually(t, func() bool {
			all, listening := connections(t, w.redis)
			return listening == 1 && all <= pool+1
		}, patience, 50*time.Millisecond) {
			all, listening := connections(t, w.redis)
			require.Fail(t, "unexpected number of connections to Redis", "%d, %d of them subscribed", all, listening)
		}
	}
	requireConnections(pool)
	require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/me").Status)
	report.Figure(t, fmt.Sprintf("reloads=%d slowest_reload=%s more_requests=%d failed=%d handshakes_reset=%d "+
		"idle_connections_closed_under_a_request=%d goroutines=%.0f->%d descriptors=%.0f->%d resident=%s->%s series=%d->%d",
		reloads, load.MS(slowest), c.served.Load(), len(c.wrong), c.reset.Load(), c.closed.Load(),
		first.goroutines, after, first.descriptors, open, inMiB(first.resident), inMiB(memory), firstSeries, series(t, g)))

	// changed settings create new clients, and the old ones are closed
	config, err := os.ReadFile(g.Config)
	require.NoError(t, err)
	g.Write(t, strings.Replace(string(config), "pool_size 6", "pool_size 5", 1))
	g.Reload(t)
	require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/me").Status)
	requireConnections(pool - 1)
}

// Until load balancers have noticed that a gateway is about to stop, they send it requests.
func TestShutdownDelayAcceptsConnectionsAndIsNotReady(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	o := w.options("", "")
	o.Global += "\n\tshutdown_delay 10m"
	g := gatewaytest.Start(t, o)
	requireReady(t, g)
	g.Signal(t, syscall.SIGTERM)
	requireLogged(t, g, "shutdown scheduled")
	conn := dial(t, g.Addr, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	a, err := readResponse(conn.r, http.MethodGet)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.Status)
	ready := anonymous().Get(t, g.URL, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, ready.Status)
	require.JSONEq(t, `{"status":"stopping","checks":{"credentials":"ok","limits":"ok"}}`, ready.Body)
	require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, "/api/v1/me").Status)
	g.Kill(t)
}

func TestFaultSIGTERMFinishesRequestsInFlight(t *testing.T) {
	t.Parallel()
	const inFlight = 60
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	var arrived atomic.Int64
	data := load.Data()
	w := newEnvironment(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		<-hold
		data.ServeHTTP(w, r)
	}))
	t.Cleanup(release)
	g := gatewaytest.New(t, w.options(highLimits, ""))
	config, err := os.ReadFile(g.Config)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(config), "grace_period 5s"))
	g.Write(t, strings.Replace(string(config), "grace_period 5s", "grace_period 1m", 1)) // for a busy machine
	g.Run(t)
	clients := []*http.Client{protocolClient(t, false, 0), protocolClient(t, true, 0)}

	responses := make(chan error, inFlight)
	for i := range inFlight {
		go func() {
			caller := w.acme
			caller.Client = clients[i%2]
			a, err := caller.Try(t.Context(), http.MethodGet, g.URL, "/api/v1/events?count=3", nil)
			if err == nil && a.Status != http.StatusOK {
				err = fmt.Errorf("%d %s", a.Status, a.Body)
			}
			if err == nil {
				_, err = load.Check(&a, w.acmeID)
			}
			responses <- err
		}()
	}
	require.Eventually(t, func() bool { return arrived.Load() == inFlight }, patience, 10*time.Millisecond)
	began := time.Now()
	g.Signal(t, syscall.SIGTERM)
	require.Eventually(t, func() bool {
		conn, err := net.DialTimeout("tcp", g.Addr, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, patience, 10*time.Millisecond, "new connections are accepted")
	refusedAfter := time.Since(began)
	require.Empty(t, responses, "a request in flight has ended")
	release()
	for range inFlight {
		require.NoError(t, <-responses)
	}
	require.Zero(t, g.ExitCode(t))
	t.Logf("figure: %s in_progress=%d answered=%d new_connections_refused_after=%s ended_after=%s exit=0", t.Name(), inFlight, inFlight,
		load.MS(refusedAfter), load.MS(time.Since(began)))
}

func TestFaultKillAndRestartKeepLimits(t *testing.T) {
	t.Parallel()
	scale := chaosScale(t)
	w := newEnvironment(t, load.Data())
	callers, spent, greedy := w.addKeys(t, 2*scale.rate, 5), w.addKeys(t, windowAttempts, 1), w.addKeys(t, 1, 1)
	g := w.gateway(t)
	l := load.Start(t, load.Options{
		Gateways: []*gatewaytest.Gateway{g}, Callers: callers, Rate: scale.rate,
		Allow: func(s *load.Sample) bool {
			return s.Err != nil && s.During("outage") || successOrLimited(s)
		},
	})
	l.Also("greedy", greedy, load.KeyLimit)
	l.Run(scale.before)
	var back time.Duration
	withinWindow(t, func(attempt int) func() {
		caller := spent[attempt].Caller
		requireServed(t, g, caller, load.KeyLimit)
		l.Phase("outage")
		g.Kill(t)
		began := time.Now()
		g.Run(t)
		waitForStatus(t, http.StatusOK, w.other, g)
		back = time.Since(began)
		a := caller.Get(t, g.URL, "/api/v1/me")
		return func() { requireProblem(t, a, http.StatusTooManyRequests, "RATE_LIMITED") }
	})
	l.Phase("back")
	l.Run(scale.after)
	r := l.Stop()
	require.Zero(t, r.OverLimit(), "the limits are in Redis")
	r.Figure(t, "serving_again_after="+load.MS(back))
}

func TestFaultFileDescriptorsExhausted(t *testing.T) {
	t.Parallel()
	scale := chaosScale(t)
	idle := 600
	if scale.long {
		idle = 3000
	}
	const spare = 100
	w := newEnvironment(t, load.Data())
	callers := w.addKeys(t, 20, 3)
	g := w.unlimited(t)
	l := load.Start(t, load.Options{
		Gateways: []*gatewaytest.Gateway{g}, Callers: callers, Rate: scale.rate, Conns: 16,
		Allow: func(s *load.Sample) bool {
			return s.Status == http.StatusOK ||
				s.During("exhausted") && (s.Err != nil || s.Status == http.StatusBadGateway || s.Status == http.StatusServiceUnavailable)
		},
	})
	l.Run(scale.before)
	before, _ := g.Memory(t)
	limit := g.Descriptors(t) + spare
	g.LimitDescriptors(t, limit)
	l.Phase("exhausted")
	var conns []*rawConn
	for range idle {
		conns = append(conns, dial(t, g.Addr, ""))
	}
	require.Eventually(t, func() bool { return g.Descriptors(t) >= limit-2 }, patience, 10*time.Millisecond)
	l.Run(scale.outage)
	_, peak := g.Memory(t)
	require.False(t, g.Ended(), "the gateway has ended")
	began := time.Now()
	for _, c := range conns {
		_ = c.Close()
	}
	require.Eventually(t, func() bool {
		caller := anonymous()
		caller.Client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience / 4}
		a, err := caller.Send(t.Context(), http.MethodGet, g.URL, "/healthz", nil, nil)
		return err == nil && a.Status == http.StatusOK
	}, patience, 10*time.Millisecond)
	recovered := time.Since(began)
	// connections in the backlog are accepted only now, and closed after that
	require.Eventually(t, func() bool { return g.Descriptors(t) < limit-spare/2 }, patience, 10*time.Millisecond)
	l.Phase("back")
	l.Run(scale.after)
	r := l.Stop()
	require.Less(t, peak, before+memoryBound)
	require.LessOrEqual(t, g.Descriptors(t), limit)
	r.Figure(t, fmt.Sprintf("descriptors=%d idle_connections=%d recovered_after=%s resident=%s->%s", limit, idle, load.MS(recovered),
		inMiB(before), inMiB(peak)))
}

// slowCallers are slow connections of one kind, and how the gateway ended them.
type slowCallers struct {
	wg        sync.WaitGroup
	responses atomic.Int64
	ended     atomic.Int64 // by the gateway
	mu        sync.Mutex
	statuses  map[string]int
	longest   time.Duration
}

// trickle opens n connections. On each it sends the beginning and then a piece every second, and reads up to the given number of bytes
// every second, until the gateway closes it or ctx ends.
func (s *slowCallers) trickle(ctx context.Context, addr string, n, read int, beginning func(i int) string, piece string) {
	// The gateway's timeouts start with the connection. Only a few are opened at a time, so that on a busy machine none waits for the
	// others before it sends its beginning.
	making := make(chan struct{}, 16)
	for i := range n {
		s.wg.Go(func() {
			making <- struct{}{}
			first := beginning(i)
			conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", addr)
			began := time.Now()
			if err == nil {
				if tcp, ok := conn.(*net.TCPConn); ok {
					_ = tcp.SetReadBuffer(1 << 10)
				}
				_, err = io.WriteString(conn, first)
			}
			<-making
			if conn != nil {
				defer func() { _ = conn.Close() }()
			}
			if err != nil {
				s.note(err.Error(), 0)
				return
			}
			response, buffer := "", make([]byte, read)
			for ctx.Err() == nil {
				next := time.Now().Add(time.Second)
				_ = conn.SetDeadline(next)
				n, err := conn.Read(buffer)
				if n > 0 && response == "" {
					response, _, _ = strings.Cut(string(buffer[:n]), "\r\n")
					s.responses.Add(1)
				}
				if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					s.note(response, time.Since(began))
					return
				}
				if !load.Wait(ctx, next) {
					return
				}
				// a write that times out on a busy machine would not be the gateway's doing
				_ = conn.SetDeadline(time.Now().Add(patience))
				if _, err := io.WriteString(conn, piece); err != nil {
					// on a busy machine, the response may have arrived since, and the connection ended
					if n, _ := conn.Read(buffer); n > 0 && response == "" {
						response, _, _ = strings.Cut(string(buffer[:n]), "\r\n")
						s.responses.Add(1)
					}
					s.note(response, time.Since(began))
					return
				}
			}
		})
	}
}

func (s *slowCallers) note(response string, after time.Duration) {
	s.ended.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.statuses == nil {
		s.statuses = map[string]int{}
	}
	s.statuses[response]++
	s.longest = max(s.longest, after)
}

func TestFaultHalfClosedClientGetsNoEmptySuccess(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, http.HandlerFunc(stalls))
	g := w.unlimited(t)
	conn := dial(t, g.Addr, "GET /api/v1/events HTTP/1.1\r\nHost: x\r\n"+signedLines(w.acme, "GET", "/api/v1/events", "")+"\r\n")
	half, ok := conn.Conn.(*net.TCPConn)
	require.True(t, ok)
	require.NoError(t, half.CloseWrite())
	a, err := readResponse(conn.r, http.MethodGet)
	require.NoError(t, err)
	requireProblem(t, a, http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE")
	require.Equal(t, "CLIENT_CLOSED_REQUEST", logLineOf(t, g, a.Header.Get("X-Request-Id")).Code)
}

func TestFaultThousandsOfSlowClients(t *testing.T) {
	t.Parallel()
	scale := chaosScale(t)
	each, header, body, write := 350, 4*time.Second, 6*time.Second, 20*time.Second
	if scale.long { // as in the Caddyfile of the repository
		each, header, body, write = 1000, 5*time.Second, 15*time.Second, 30*time.Second
	}
	const perConnection = 160 << 10 // including a page of 100 records, 50 kB
	data := load.Data()
	note := strings.Repeat("n", 400)
	var page strings.Builder
	w := newEnvironment(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/offerings" {
			data.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, page.String())
	}))
	page.WriteString(`{"offerings":[`)
	for i := range 100 {
		if i > 0 {
			page.WriteByte(',')
		}
		fmt.Fprintf(&page, `{"id":"00000000-0000-4000-8000-%012d","business_id":%q,"description":%q}`, i, w.acmeID, note)
	}
	page.WriteString(`],"pagination":{"current_page":1,"per_page":100,"total_items":100,"total_pages":1}}`)
	o := w.options(highLimits, "timeout 30s\n\t\tbody_timeout "+body.String())
	o.Servers = fmt.Sprintf("timeouts {\n\t\t\tread_header %s\n\t\t\tread_body %s\n\t\t\twrite %s\n\t\t\tidle 2m\n\t\t}", header, body, write)
	callers := w.addKeys(t, 20, 3)
	g := gatewaytest.Start(t, o)

	l := load.Start(t, load.Options{Gateways: []*gatewaytest.Gateway{g}, Callers: callers, Rate: scale.rate})
	l.Run(scale.before)
	before, _ := g.Memory(t)
	l.Phase("slow")
	ctx, stop := context.WithCancel(t.Context())
	var headers, bodies, readers slowCallers
	headers.trickle(ctx, g.Addr, each, 512, func(int) string { return "GET /api/v1/me HTTP/1.1\r\nHost: x\r\n" }, "X-Slow: 1\r\n")
	bodies.trickle(ctx, g.Addr, each, 512, func(int) string {
		return "GET /api/v1/me HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n" +
			signedLines(w.acme, "GET", "/api/v1/me", strings.Repeat("b", 1000)) + "\r\n"
	}, "b")
	readers.trickle(ctx, g.Addr, each, 16, func(int) string {
		const target = "/api/v1/offerings?per_page=100"
		return "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + signedLines(w.acme, "GET", target, "") + "\r\n"
	}, "")
	require.Eventually(t, func() bool { return headers.ended.Load() == int64(each) && bodies.ended.Load() == int64(each) },
		3*patience, 50*time.Millisecond, "slow headers and bodies are not ended")
	require.Eventually(t, func() bool { return readers.responses.Load() == int64(each) }, 3*patience, 50*time.Millisecond)
	l.Run(scale.outage)
	_, peak := g.Memory(t)
	l.Phase("back")
	stop()
	headers.wg.Wait()
	bodies.wg.Wait()
	readers.wg.Wait()
	l.Run(scale.after)
	r := l.Stop()
	require.Less(t, peak, before+int64(3*each)*perConnection)
	for response := range bodies.statuses {
		// unverified requests count against the client IP
		assert.Contains(t, []string{"HTTP/1.1 408 Request Timeout", "HTTP/1.1 429 Too Many Requests"}, response)
	}
	for response := range headers.statuses {
		assert.Contains(t, []string{"", "HTTP/1.1 408 Request Timeout"}, response)
	}
	r.Figure(t, fmt.Sprintf("slow_headers=%d ended_within=%s slow_bodies=%d answered_within=%s %v slow_readers=%d resident=%s->%s",
		each, load.MS(headers.longest), each, load.MS(bodies.longest), bodies.statuses, each, inMiB(before), inMiB(peak)))
}

func TestFaultRedisClockStepped(t *testing.T) {
	t.Parallel()
	const step = 10 * time.Minute
	w := newEnvironment(t, nil)
	clock := redistest.Start(t, redistest.WithClock())
	third := w.addKeys(t, 1, 1)[0].Caller
	o := w.options("", "")
	o.Global = strings.Replace(o.Global, w.redis.URL(), clock.URL(), 1)
	g := gatewaytest.Start(t, o)
	requireLimited := func(c gatewaytest.Caller) {
		t.Helper()
		a := c.Get(t, g.URL, "/api/v1/me")
		p := requireProblem(t, a, http.StatusTooManyRequests, "RATE_LIMITED")
		require.LessOrEqual(t, p.RetryAfter, 60, "Retry-After contains the step")
	}
	requireServed(t, g, w.acme, load.KeyLimit)
	requireServed(t, g, w.other, load.KeyLimit/2)
	requireLimited(w.acme)
	for _, offset := range []time.Duration{-step, -2 * step} { // back, twice
		require.NoError(t, clock.StepClock(offset))
		requireLimited(w.acme)
	}
	requireServed(t, g, w.other, load.KeyLimit/2)
	requireLimited(w.other)

	// Ahead: all windows end at once. A caller gains at most one more limit, once.
	requireServed(t, g, third, load.KeyLimit/2)
	require.NoError(t, clock.StepClock(step))
	allowed := load.KeyLimit / 2
	for allowed <= 2*load.KeyLimit && third.Get(t, g.URL, "/api/v1/me").Status == http.StatusOK {
		allowed++
	}
	require.GreaterOrEqual(t, allowed, load.KeyLimit)
	require.LessOrEqual(t, allowed, 2*load.KeyLimit)
	requireLimited(third)
	require.NoError(t, clock.StepClock(0)) // back to the machine's
	requireLimited(third)
	requireCheck(t, g, "limits", true) // on a busy machine, Redis may seem unavailable briefly
	t.Logf("figure: %s back=2 lost_limits_back=0 ahead=1 allowed_of_60=%d (at most %d)", t.Name(), allowed, 2*load.KeyLimit)
}
