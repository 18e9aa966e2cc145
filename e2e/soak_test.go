package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/gatewaytest"
)

// soakTime is how long the soak runs: what the environment variable SOAK says, which `make soak` sets.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("SOAK")
	if text == "" {
		return 8 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err, "SOAK is a duration such as 30m")
	require.Positive(t, d)
	return d
}

// soakSample is what a gateway takes at one moment.
type soakSample struct {
	at                      time.Time
	resident                int64
	goroutines, descriptors float64
}

// growth is by how much the straight line that fits the values best rises from the first sample to the last.
func growth(samples []soakSample, value func(soakSample) float64) float64 {
	var meanX, meanY float64
	for _, s := range samples {
		meanX += s.at.Sub(samples[0].at).Seconds() / float64(len(samples))
		meanY += value(s) / float64(len(samples))
	}
	var xy, xx float64
	for _, s := range samples {
		x := s.at.Sub(samples[0].at).Seconds() - meanX
		xy += x * (value(s) - meanY)
		xx += x * x
	}
	return xy / xx * samples[len(samples)-1].at.Sub(samples[0].at).Seconds()
}

// forge sends requests that name keys and are not signed, each for a key of its own, from an address of its own.
func forge(ctx context.Context, g *gatewaytest.Gateway, every time.Duration) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	defer transport.CloseIdleConnections()
	forger := gatewaytest.Caller{Client: &http.Client{Transport: transport, Timeout: patience}}
	for i := 0; until(ctx, time.Now().Add(every)); i++ {
		// whatever comes of it is the load's business, which goes on beside it
		_, _ = forger.Send(ctx, http.MethodGet, g.URL, "/api/v1/me", rubbish("pk_live_forged_"+strconv.Itoa(i)), nil)
	}
}

func TestSoakTakesNoMoreMemoryAsTimeGoesOn(t *testing.T) {
	t.Parallel()
	duration, rate := soakTime(t), 40
	w := newLoadWorld(t)
	// a caller asks once in 2 s or less often, but for one who is refused most of the time
	callers := w.addKeys(t, 4*rate, 7)
	greedy := w.addKeys(t, 1, 1)
	g := w.gateway(t)
	l := startLoad(t, loadOptions{
		Gateways: []*gatewaytest.Gateway{g}, Callers: callers, Rate: rate,
		May: func(s *sample) string {
			switch {
			case s.Status == http.StatusOK && s.Stream != "unknown paths":
			case s.Stream == "greedy" && s.Code == "RATE_LIMITED":
			case s.Stream == "unknown paths" && s.Code == "NOT_FOUND":
			case s.Stream == "bad parameters" && s.Code == "INVALID_PARAMETER":
			default:
				return "not what this stream is to be answered"
			}
			return ""
		},
	})
	l.also("greedy", greedy, 5)
	l.also("unknown paths", callers[:rate], 2, "/api/v1/nothing", "/api/v1/me/", "/api/v1//events")
	l.also("bad parameters", callers[rate:2*rate], 2, "/api/v1/events?count=many", "/api/v1/contacts?page=1&page=2")
	ctx, stop := context.WithCancel(t.Context())
	forged := make(chan struct{})
	go func() {
		defer close(forged)
		forge(ctx, g, time.Second)
	}()
	defer func() { stop(); <-forged }()

	interval := max(duration/200, 50*time.Millisecond)
	var samples []soakSample
	for began, next := time.Now(), time.Now(); time.Since(began) < duration; next = next.Add(interval) {
		require.True(t, until(t.Context(), next))
		resident, _ := g.Memory(t)
		samples = append(samples, soakSample{time.Now(), resident, metric(t, g, "go_goroutines"), float64(g.Descriptors(t))})
	}
	stop()
	<-forged
	r := l.stop()
	half := samples[len(samples)/2:]
	memory := growth(half, func(s soakSample) float64 { return float64(s.resident) })
	running := growth(half, func(s soakSample) float64 { return s.goroutines })
	open := growth(half, func(s soakSample) float64 { return s.descriptors })
	_, peak := g.Memory(t)
	r.figure(t, fmt.Sprintf("lasted=%s samples=%d resident=%s->%s most=%s growth_in_the_second_half: memory=%.1fMiB goroutines=%.1f descriptors=%.1f",
		duration, len(samples), inMiB(samples[0].resident), inMiB(samples[len(samples)-1].resident), inMiB(peak), memory/(1<<20), running, open))
	require.Zero(t, r.overLimit())
	require.Less(t, memory, float64(24<<20), "memory")
	require.Less(t, running, 24.0, "goroutines")
	require.Less(t, open, 24.0, "descriptors")
}
