package e2e_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// dataService is a recorder that a test can stop, and start again at the same address.
type dataService struct {
	recorder
	addr   string
	mu     sync.Mutex
	server *http.Server
}

func startDataService(t *testing.T) *dataService {
	t.Helper()
	d := &dataService{addr: gatewaytest.FreeAddr(t)}
	d.setResponse(load.Data().ServeHTTP)
	d.run(t)
	t.Cleanup(d.stop)
	return d
}

func (d *dataService) url() string { return "http://" + d.addr }

func (d *dataService) run(t *testing.T) {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", d.addr)
	require.NoError(t, err)
	server := &http.Server{Handler: &d.recorder, ReadHeaderTimeout: patience}
	d.mu.Lock()
	d.server = server
	d.mu.Unlock()
	go func() { _ = server.Serve(ln) }()
}

// stop closes all connections and the listener, like a process that was killed.
func (d *dataService) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.server.Close()
}

// rawResponse writes bytes and closes the connection; without bytes, it resets the connection.
func rawResponse(response string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, response)
		if tcp, ok := conn.(*net.TCPConn); ok && response == "" {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// everyNth gives one request in n the expensive response, and the others the cheap one.
func everyNth(n int64, expensive, cheap http.HandlerFunc) http.HandlerFunc {
	var asked atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%n == 1 {
			expensive(w, r)
			return
		}
		cheap(w, r)
	}
}

// endless writes a piece repeatedly until the client disconnects or 256 MiB are written.
func endless(beginning, piece string) http.HandlerFunc {
	many := strings.Repeat(piece, 64<<10/len(piece))
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, err := io.WriteString(w, beginning)
		for n := 0; err == nil && n < 256<<20; n += len(many) {
			_, err = io.WriteString(w, many)
		}
	}
}

// gzipBomb returns a gzip stream of some kilobytes that decompresses to 32 MiB.
func gzipBomb(t *testing.T) string {
	t.Helper()
	compressed := func(text string) string {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		require.NoError(t, err)
		_, err = io.WriteString(z, text)
		require.NoError(t, err)
		require.NoError(t, z.Close())
		return b.String()
	}
	// Concatenated gzip streams are one stream (RFC 1952, section 2.2). Compressing all 32 MiB would take seconds.
	return compressed(`{"canary":"`) + strings.Repeat(compressed(strings.Repeat("0", 1<<20)), 32)
}

// dataFault is one fault of a data service.
type dataFault struct {
	name     string
	response http.HandlerFunc
	// outcomes are the outcomes that callers of its resources may see.
	outcomes []string
}

const (
	failed      = "502 UPSTREAM_FAILED"
	unavailable = "503 SERVICE_UNAVAILABLE"
	timedOut    = "504 UPSTREAM_TIMEOUT"
)

func dataFaults(t *testing.T) []dataFault {
	t.Helper()
	const html = "<html><h1>canary-body at 10.1.2.3</h1></html>"
	zipped := gzipBomb(t)
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	var storm atomic.Int64
	return []dataFault{
		{"refused", nil, []string{unavailable}},
		{"reset before a response", rawResponse(""), []string{failed, unavailable}},
		{"closed before a response", aborts, []string{failed, unavailable}},
		{"reset in the body", abortsInBody, []string{failed}},
		{"fewer bytes than promised", rawResponse("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"canary-body\":"), []string{failed}},
		{"not HTTP", rawResponse("canary-banner\r\n220 canary-host ESMTP\r\n"), []string{failed}},
		{"an invalid header", rawResponse("HTTP/1.1 200 OK\r\ncanary banner\r\n\r\n"), []string{failed}},
		{"an invalid status", rawResponse("HTTP/1.1 999999 canary\r\n\r\n"), []string{failed}},
		{"endless headers", rawResponse("HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Canary: canary\r\n", 1<<17)), []string{failed}},
		{"stalls", stalls, []string{timedOut}},
		{"stalls in the body", stallsInBody, []string{timedOut}},
		{"HTML", respondWith(200, "text/html", html), []string{failed}},
		{"an HTML error", respondWith(500, "text/html", html), []string{failed}},
		{"HTML said to be JSON", respondWith(200, "application/json", html), []string{failed}},
		{"JSON said to be text", respondWith(200, "text/plain", `{"events":[]}`), []string{failed}},
		{"invalid JSON", respondWith(200, "application/json", `{"events":[{"canary-body":}]}`), []string{failed}},
		{"deep JSON", respondWith(200, "application/json", `{"events":`+deep+`,"business":`+deep+`}`), []string{failed}},
		{"endlessly deep JSON", everyNth(8, endless(`{"events":`, "["), respondWith(200, "text/html", html)), []string{failed}},
		{"huge JSON", everyNth(8, endless(`{"x":"`, "canary-body"), respondWith(200, "text/html", html)), []string{failed}},
		{"endless records", everyNth(8, endless(`{"contacts":[`, `{"id":1},`), respondWith(200, "text/html", html)), []string{failed}},
		{"a gzip bomb", everyNth(8, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, zipped)
		}, respondWith(200, "text/html", html)), []string{failed}},
		{"a storm of 5xx", func(w http.ResponseWriter, r *http.Request) {
			respondWith(500+int(storm.Add(1)%12), "application/json", `{"trace":"canary-body goroutine 1 [running]"}`)(w, r)
		}, []string{failed}},
		{"busy", busy, []string{unavailable}},
	}
}

func TestFaultDataServiceResponses(t *testing.T) {
	t.Parallel()
	scale := chaosScale(t)
	each, timeout := 250*time.Millisecond, 5*time.Second
	if scale.long {
		each, timeout = 4*time.Second, 2*time.Second // no other test runs
	}
	data := startDataService(t)
	w := newEnvironment(t, nil)
	w.dataURL = data.url()
	callers := w.addKeys(t, 20, 3)
	g := w.start(t, highLimits, "timeout "+timeout.String())

	faults := dataFaults(t)
	order, outcomes := []string{"before"}, map[string][]string{"before": {"200"}, "back": {"200"}}
	for _, f := range faults {
		order, outcomes[f.name] = append(order, f.name), f.outcomes
		if f.response == nil { // the data service stops during responses, too
			outcomes[f.name] = append(slices.Clone(f.outcomes), failed)
		}
	}
	order = append(order, "back")
	l := load.Start(t, load.Options{
		Gateways: []*gatewaytest.Gateway{g}, Callers: callers, Rate: scale.rate, Conns: 256, Hide: []string{"10.1.2.3", "ESMTP"},
		Allow: func(s *load.Sample) bool {
			if strings.HasSuffix(s.Target, "/me") || strings.HasSuffix(s.Target, "/status") { // the gateway itself responds
				return s.Status == http.StatusOK
			}
			// A request belongs to all faults between its start and its end, and to the one before, because the data service
			// changes shortly after the phase.
			from, to := slices.Index(order, s.Phase), slices.Index(order, s.Ended)
			for _, name := range order[max(0, from-1) : to+1] {
				if slices.Contains(outcomes[name], s.Outcome()) {
					return true
				}
			}
			return s.Outcome() == timedOut && s.Phase != "before" && s.Phase != "back" // some faults keep the machine busy
		},
	})
	l.Run(scale.before)
	before, _ := g.Memory(t)
	var worst int64
	for _, f := range faults {
		g.ResetPeak(t)
		l.Phase(f.name)
		if f.response == nil {
			data.stop()
			l.Run(each)
			require.Eventually(t, func() bool {
				return len(l.Report().Some(func(s *load.Sample) bool { return s.Phase == f.name && s.Outcome() == unavailable })) > 0
			}, patience, 10*time.Millisecond)
			data.run(t)
		} else {
			data.setResponse(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Server", "canary-banner/1.0")
				w.Header().Set("X-Internal-Host", "canary-host.internal")
				f.response(w, r)
			})
			asked := data.count()
			l.Run(each)
			require.Eventually(t, func() bool { return data.count() > asked+2 }, patience, 10*time.Millisecond)
		}
		_, peak := g.Memory(t)
		worst = max(worst, peak)
		if peak > before+memoryBound/4 {
			t.Logf("%s: %s resident, %s at most", f.name, inMiB(before), inMiB(peak))
		}
		assert.Less(t, peak, before+memoryBound, f.name)
	}
	l.Phase("back")
	data.setResponse(load.Data().ServeHTTP)
	l.Run(scale.after)
	r := l.Stop()
	for i, f := range faults {
		// on a busy machine, those that meet a fault may all have been due before it
		seen := r.Some(func(s *load.Sample) bool {
			from, to := slices.Index(order, s.Phase), slices.Index(order, s.Ended)
			return from <= i+1 && i+1 <= to && slices.Contains(f.outcomes, s.Outcome())
		})
		assert.NotEmpty(t, seen, f.name)
	}
	r.Figure(t, fmt.Sprintf("faults=%d resident=%s->%s", len(faults), inMiB(before), inMiB(worst)))
}

func TestFaultHugeResponsesTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"http": false, "https": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testHugeResponses(t, secure)
		})
	}
}

func testHugeResponses(t *testing.T, secure bool) {
	t.Helper()
	callers, rounds, bound := 48, 1, int64(memoryBound) // of 384 MiB
	if chaosScale(t).long {
		callers, rounds, bound = 256, 4, 2*memoryBound // of 2 GiB
	}
	// valid, just below the maximum response size, and consisting of fields that are dropped
	var huge strings.Builder
	data := &recorder{}
	server := httptest.NewUnstartedServer(data)
	w := newEnvironment(t, nil)
	if secure {
		server.StartTLS()
		w.dataURL = server.URL + " {\n\t\t\ttransport http {\n\t\t\t\ttls_insecure_skip_verify\n\t\t\t}\n\t\t}"
	} else {
		server.Start()
		w.dataURL = server.URL
	}
	t.Cleanup(server.Close)
	g := w.start(t, highLimits, "timeout 1m")
	huge.WriteString(`{"events":[],"x":[`)
	for huge.Len() < 8<<20-100 {
		huge.WriteString(`{"canary-body":"` + strings.Repeat("x", 1000) + `"},`)
	}
	text := huge.String()[:8<<20-2000]
	text = text[:strings.LastIndexByte(text, ',')] + `]}`
	data.setResponse(func(out http.ResponseWriter, r *http.Request) {
		body := text
		if r.Header.Get(upstream.HeaderBusinessID) == w.otherID {
			body = `{"events":[]}`
		}
		respondWith(200, "application/json", body)(out, r)
	})
	before, _ := g.Memory(t)
	other := func() (gatewaytest.Response, error) {
		return w.other.Try(t.Context(), http.MethodGet, g.URL, "/api/v1/events?count=3", nil)
	}
	alone := timesOf(t, nil, other)
	var served, unavailable atomic.Int64
	c := w.acme
	c.Client = protocolClient(t, false, 0)
	ended := make(chan struct{})
	beside := make(chan []time.Duration, 1)
	go func() { beside <- timesOf(t, ended, other) }()
	inParallel(callers, callers*rounds, func(int) {
		a, err := c.Try(t.Context(), http.MethodGet, g.URL, "/api/v1/events?count=3", nil)
		switch {
		case err == nil && a.Status == http.StatusOK && a.Body == `{"events":[]}`:
			served.Add(1)
		case err == nil && (a.Status == http.StatusServiceUnavailable || a.Status == http.StatusGatewayTimeout):
			unavailable.Add(1)
		default:
			t.Errorf("%d %s: %v", a.Status, a.Body, err)
		}
	})
	close(ended)
	noticed := <-beside
	_, peak := g.Memory(t)
	t.Logf("figure: %s at_once=%d responses_of_8MiB=%d served=%d unavailable=%d resident=%s->%s others=%s->%s, at most %s, of %d", t.Name(), callers, callers*rounds,
		served.Load(), unavailable.Load(), inMiB(before), inMiB(peak), median(alone), median(noticed), slices.Max(noticed), len(noticed))
	assert.Positive(t, served.Load())
	assert.Less(t, peak, before+bound)
}

// timesOf repeats a request, 50 times or until end is closed, and returns how long each took. All must be served.
func timesOf(t *testing.T, end <-chan struct{}, send func() (gatewaytest.Response, error)) (took []time.Duration) {
	t.Helper()
	for {
		start := time.Now()
		a, err := send()
		took = append(took, time.Since(start))
		if err != nil || a.Status != http.StatusOK {
			t.Errorf("%d %s: %v", a.Status, a.Body, err)
			return took
		}
		select {
		case <-end:
			return took
		default:
			if end == nil && len(took) == 50 {
				return took
			}
		}
	}
}

func TestFaultOneOfTwoDataServicesStops(t *testing.T) {
	t.Parallel()
	scale := chaosScale(t)
	one, two := startDataService(t), startDataService(t)
	w := newEnvironment(t, nil)
	w.dataURL = one.url() + " " + two.url()
	callers := w.addKeys(t, 20, 3)
	g := w.unlimited(t)
	l := load.Start(t, load.Options{
		Gateways: []*gatewaytest.Gateway{g}, Callers: callers, Rate: 2 * scale.rate,
		Allow: func(s *load.Sample) bool {
			return s.Status == http.StatusOK || s.During("one stopped") && s.Status >= http.StatusInternalServerError // see below
		},
	})
	l.Run(scale.before)
	require.Eventually(t, func() bool { return one.count() > 0 && two.count() > 0 }, patience, 10*time.Millisecond, "both addresses are used")
	type moment struct{ began, ended time.Time }
	var stops []moment
	for range 2 {
		l.Phase("one stopped")
		began := time.Now()
		two.stop()
		stops = append(stops, moment{began, time.Now()})
		l.Run(scale.outage)
		l.Phase("both")
		two.run(t)
		l.Run(scale.after)
	}
	r := l.Stop()
	lost := r.Some(func(s *load.Sample) bool { return s.Status != http.StatusOK })
	for _, s := range lost {
		assert.True(t, slices.ContainsFunc(stops, func(m moment) bool { return s.Sent.Before(m.ended) && s.Done.After(m.began) }),
			"%s was not in flight when the data service stopped: %s", s.Target, s.Outcome())
	}
	r.Figure(t, fmt.Sprintf("stops=%d in_progress_lost=%d", len(stops), len(lost)))
}
