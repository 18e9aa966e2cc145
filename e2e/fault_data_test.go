package e2e_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
)

// dataService is a recorder that a test stops and starts again at one address.
type dataService struct {
	recorder
	addr   string
	mu     sync.Mutex
	server *http.Server
}

func startDataService(t *testing.T) *dataService {
	t.Helper()
	d := &dataService{addr: gatewaytest.FreeAddr(t)}
	d.will(load.Data().ServeHTTP)
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

// stop ends it as if its process had died: requests in flight are cut off, and nobody listens.
func (d *dataService) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.server.Close()
}

// rawly has the connection to itself: it writes bytes as they stand, and ends the connection with a reset.
func rawly(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, answer)
		if tcp, ok := conn.(*net.TCPConn); ok && answer == "" {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// nowAndThen makes an expensive answer of one request in n, and a cheap one of the others.
func nowAndThen(n int64, expensive, cheap http.HandlerFunc) http.HandlerFunc {
	var asked atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%n == 1 {
			expensive(w, r)
			return
		}
		cheap(w, r)
	}
}

// endless writes a piece until nobody reads it any more, or a lot has been written.
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

// bomb is a gzip stream of some kilobytes that stands for 32 MiB.
func bomb(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	require.NoError(t, err)
	_, err = io.WriteString(z, `{"canary":"`)
	require.NoError(t, err)
	zeros := bytes.Repeat([]byte("0"), 1<<20)
	for range 32 {
		_, err = z.Write(zeros)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return b.String()
}

// dataFault is one way of a data service to be broken.
type dataFault struct {
	name   string
	answer http.HandlerFunc
	// outcomes are what callers of what it serves may see.
	outcomes []string
}

const (
	failed   = "502 UPSTREAM_FAILED"
	away     = "503 SERVICE_UNAVAILABLE"
	timedOut = "504 UPSTREAM_TIMEOUT"
)

func dataFaults(t *testing.T) []dataFault {
	t.Helper()
	const html = "<html><h1>canary-body at 10.1.2.3</h1></html>"
	zipped := bomb(t)
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	var storm atomic.Int64
	return []dataFault{
		{"refused", nil, []string{away}},
		{"reset before an answer", rawly(""), []string{failed, away}},
		{"closed before an answer", aborts, []string{failed, away}},
		{"reset in the body", abortsInBody, []string{failed}},
		{"fewer bytes than promised", rawly("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"canary-body\":"), []string{failed}},
		{"no HTTP", rawly("canary-banner\r\n220 canary-host ESMTP\r\n"), []string{failed}},
		{"a header that is none", rawly("HTTP/1.1 200 OK\r\ncanary banner\r\n\r\n"), []string{failed}},
		{"a status that is none", rawly("HTTP/1.1 999999 canary\r\n\r\n"), []string{failed}},
		{"endless headers", rawly("HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Canary: canary\r\n", 1<<17)), []string{failed}},
		{"stalls", stalls, []string{timedOut}},
		{"stalls in the body", stallsInBody, []string{timedOut}},
		{"HTML", typed(200, "text/html", html), []string{failed}},
		{"an HTML error", typed(500, "text/html", html), []string{failed}},
		{"HTML said to be JSON", typed(200, "application/json", html), []string{failed}},
		{"JSON said to be text", typed(200, "text/plain", `{"events":[]}`), []string{failed}},
		{"invalid JSON", typed(200, "application/json", `{"events":[{"canary-body":}]}`), []string{failed}},
		{"deep JSON", typed(200, "application/json", `{"events":`+deep+`,"business":`+deep+`}`), []string{failed}},
		{"endlessly deep JSON", nowAndThen(8, endless(`{"events":`, "["), typed(200, "text/html", html)), []string{failed}},
		{"huge JSON", nowAndThen(8, endless(`{"x":"`, "canary-body"), typed(200, "text/html", html)), []string{failed}},
		{"endless records", nowAndThen(8, endless(`{"contacts":[`, `{"id":1},`), typed(200, "text/html", html)), []string{failed}},
		{"a gzip bomb", nowAndThen(8, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, zipped)
		}, typed(200, "text/html", html)), []string{failed}},
		{"a storm of 5xx", func(w http.ResponseWriter, r *http.Request) {
			typed(500+int(storm.Add(1)%12), "application/json", `{"trace":"canary-body goroutine 1 [running]"}`)(w, r)
		}, []string{failed}},
		{"busy", busy, []string{away}},
	}
}

func TestFaultDataServiceResponses(t *testing.T) {
	t.Parallel()
	scale := chaosScale(t)
	each, timeout := 250*time.Millisecond, 5*time.Second
	if scale.long {
		each, timeout = 4*time.Second, 2*time.Second // the machine is this test's alone
	}
	data := startDataService(t)
	w := newWorld(t, nil)
	w.dataURL = data.url()
	callers := w.addKeys(t, 20, 3)
	g := w.start(t, roomyLimits, "timeout "+timeout.String())

	faults := dataFaults(t)
	order, outcomes := []string{"before"}, map[string][]string{"before": {"200"}, "back": {"200"}}
	for _, f := range faults {
		order, outcomes[f.name] = append(order, f.name), f.outcomes
		if f.answer == nil { // the data service ends, and breaks off what it is about to answer
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
			// a request belongs to all the faults between its beginning and its end, and to the one before, as the data
			// service changes a moment after the phase
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
		g.ForgetPeak(t)
		l.Phase(f.name)
		if f.answer == nil {
			data.stop()
			l.Run(each)
			data.run(t)
		} else {
			data.will(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Server", "canary-banner/1.0")
				w.Header().Set("X-Internal-Host", "canary-host.internal")
				f.answer(w, r)
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
		require.Less(t, peak, before+memoryBound, f.name)
	}
	l.Phase("back")
	data.will(load.Data().ServeHTTP)
	l.Run(scale.back)
	r := l.Stop()
	for _, f := range faults {
		seen := r.Phase(f.name).By
		require.True(t, slices.ContainsFunc(f.outcomes, func(o string) bool { return seen[o] > 0 }), "%s: %v", f.name, seen)
	}
	r.Figure(t, fmt.Sprintf("faults=%d resident=%s->%s", len(faults), inMiB(before), inMiB(worst)))
}

func TestFaultHugeResponsesTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	callers, rounds := 48, 1
	if chaosScale(t).long {
		callers, rounds = 256, 4
	}
	// just under the largest answer that is accepted, valid, and nothing in it that is not dropped
	var huge strings.Builder
	data := startDataService(t)
	w := newWorld(t, nil)
	w.dataURL = data.url()
	// as long as it takes on a busy machine
	g := w.start(t, roomyLimits, "timeout 1m")
	huge.WriteString(`{"events":[],"x":[`)
	for huge.Len() < 8<<20-100 {
		huge.WriteString(`{"canary-body":"` + strings.Repeat("x", 1000) + `"},`)
	}
	text := huge.String()[:8<<20-2000]
	text = text[:strings.LastIndexByte(text, ',')] + `]}`
	data.will(typed(200, "application/json", text))
	before, _ := g.Memory(t)
	var served, sentAway atomic.Int64
	c := w.acme
	c.Client = protocolClient(t, false, 0)
	inParallel(callers, callers*rounds, func(int) {
		a, err := c.Try(t.Context(), http.MethodGet, g.URL, "/api/v1/events?count=3", nil)
		switch {
		case err == nil && a.Status == http.StatusOK && a.Body == `{"events":[]}`:
			served.Add(1)
		case err == nil && (a.Status == http.StatusServiceUnavailable || a.Status == http.StatusGatewayTimeout):
			sentAway.Add(1)
		default:
			t.Errorf("%d %s: %v", a.Status, a.Body, err)
		}
	})
	_, peak := g.Memory(t)
	t.Logf("figure: %s at_once=%d responses_of_8MiB=%d served=%d unavailable=%d resident=%s->%s", t.Name(), callers, callers*rounds, served.Load(), sentAway.Load(),
		inMiB(before), inMiB(peak))
	require.Positive(t, served.Load())
	require.Less(t, peak, before+2*memoryBound)
}

func TestFaultOneOfTwoDataServicesStops(t *testing.T) {
	t.Parallel()
	scale := chaosScale(t)
	one, two := startDataService(t), startDataService(t)
	w := newWorld(t, nil)
	w.dataURL = one.url() + " " + two.url()
	callers := w.addKeys(t, 20, 3)
	g := w.roomy(t)
	l := load.Start(t, load.Options{
		Gateways: []*gatewaytest.Gateway{g}, Callers: callers, Rate: 2 * scale.rate,
		Allow: func(s *load.Sample) bool {
			return s.Status == http.StatusOK || s.During("one is dead") && s.Status >= http.StatusInternalServerError // see below
		},
	})
	l.Run(scale.before)
	require.Positive(t, one.count())
	require.Positive(t, two.count(), "both are used")
	type moment struct{ began, ended time.Time }
	var deaths []moment
	for range 2 {
		l.Phase("one is dead")
		began := time.Now()
		two.stop()
		deaths = append(deaths, moment{began, time.Now()})
		l.Run(scale.away)
		l.Phase("both")
		two.run(t)
		l.Run(scale.back)
	}
	r := l.Stop()
	lost := r.Some(func(s *load.Sample) bool { return s.Status != http.StatusOK })
	for _, s := range lost {
		require.True(t, slices.ContainsFunc(deaths, func(m moment) bool { return s.Sent.Before(m.ended) && s.Done.After(m.began) }),
			"%s was not under way when the data service died: %s", s.Target, s.Outcome())
	}
	r.Figure(t, fmt.Sprintf("deaths=%d in_progress_lost=%d", len(deaths), len(lost)))
}
