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

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
)

// soakTime returns the duration of the soak test: SOAK, which `make soak` sets, or a few seconds.
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

// soakSample is the resource usage of a gateway at one time.
type soakSample struct {
	at                      time.Time
	resident                int64
	goroutines, descriptors float64
}

// takeSample takes a sample.
func takeSample(t *testing.T, g *gatewaytest.Gateway) soakSample {
	t.Helper()
	resident, _ := g.Memory(t)
	return soakSample{time.Now(), resident, g.Metric(t, "go_goroutines"), float64(descriptors(t, g))}
}

// atRest returns the least goroutines and descriptors of a gateway without requests, once ten samples in a row have not had fewer. Its usage
// under load depends on how fast the machine is.
func atRest(t *testing.T, g *gatewaytest.Gateway) soakSample {
	t.Helper()
	least := takeSample(t, g)
	for more := 0; more < 10; more++ {
		require.True(t, load.Wait(t.Context(), time.Now().Add(20*time.Millisecond)))
		s := takeSample(t, g)
		if s.goroutines < least.goroutines || s.descriptors < least.descriptors {
			more = 0
		}
		least.goroutines, least.descriptors = min(least.goroutines, s.goroutines), min(least.descriptors, s.descriptors)
	}
	return least
}

// growth returns the rise of the values' linear regression from the first sample to the last.
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

// forge sends requests with invented keys from another client IP.
func forge(ctx context.Context, g *gatewaytest.Gateway, every time.Duration) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	defer transport.CloseIdleConnections()
	forger := gatewaytest.Caller{Client: &http.Client{Transport: transport, Timeout: patience}}
	for i := 0; load.Wait(ctx, time.Now().Add(every)); i++ {
		// only the load's responses are tested
		_, _ = forger.Send(ctx, http.MethodGet, g.URL, "/api/v1/me", invalidSignature("pk_live_forged_"+strconv.Itoa(i)), nil)
	}
}

func TestSoakMemoryStaysFlat(t *testing.T) {
	t.Parallel()
	duration, rate := soakTime(t), 40
	w := newEnvironment(t, load.Data())
	// callers stay below their limits, except for one
	callers := w.addKeys(t, 4*rate, 7)
	greedy := w.addKeys(t, 1, 1)
	g := w.gateway(t)
	// begin starts the load; end stops it.
	begin := func() (l *load.Load, end func()) {
		l = load.Start(t, load.Options{
			Gateways: []*gatewaytest.Gateway{g}, Callers: callers, Rate: rate,
			Allow: func(s *load.Sample) bool {
				switch s.Stream {
				case "greedy":
					return s.Status == http.StatusOK || s.Code == "RATE_LIMITED"
				case "unknown paths":
					return s.Code == "NOT_FOUND"
				case "bad parameters":
					return s.Code == "INVALID_PARAMETER"
				}
				return s.Status == http.StatusOK
			},
		})
		l.Also("greedy", greedy, 20) // beyond its limit even in a few seconds
		l.Also("unknown paths", callers[:rate], 2, "/api/v1/nothing", "/api/v1/me/", "/api/v1//events")
		l.Also("bad parameters", callers[rate:2*rate], 2, "/api/v1/events?count=many", "/api/v1/contacts?page=1&page=2")
		ctx, stop := context.WithCancel(t.Context())
		forged := make(chan struct{})
		go func() {
			defer close(forged)
			forge(ctx, g, time.Second)
		}()
		return l, func() { stop(); <-forged }
	}
	l, end := begin()
	l.Run(duration / 8)
	end()
	l.Stop()
	before := atRest(t, g)

	l, end = begin()
	defer func() { end() }()
	interval := max(duration/200, 100*time.Millisecond)
	var samples []soakSample
	for began, next := time.Now(), time.Now(); time.Since(began) < duration; next = next.Add(interval) {
		require.True(t, load.Wait(t.Context(), next))
		samples = append(samples, takeSample(t, g))
	}
	end()
	r := l.Stop()
	half := samples[len(samples)/2:]
	memory := growth(half, func(s soakSample) float64 { return float64(s.resident) })
	running := growth(half, func(s soakSample) float64 { return s.goroutines })
	open := growth(half, func(s soakSample) float64 { return s.descriptors })
	_, peak := g.Memory(t)
	after := atRest(t, g)
	r.Figure(t, fmt.Sprintf("lasted=%s samples=%d resident=%s->%s most=%s growth_in_the_second_half: memory=%.1fMiB goroutines=%.1f descriptors=%.1f "+
		"at_rest: goroutines=%.0f->%.0f descriptors=%.0f->%.0f", duration, len(samples), inMiB(samples[0].resident),
		inMiB(samples[len(samples)-1].resident), inMiB(peak), memory/(1<<20), running, open, before.goroutines, after.goroutines,
		before.descriptors, after.descriptors))
	require.Zero(t, r.OverLimit())
	require.Less(t, after.goroutines, before.goroutines+24, "goroutines at rest")
	require.Less(t, after.descriptors, before.descriptors+24, "descriptors at rest")
	if os.Getenv("SOAK") == "" { // a few seconds show no trend
		require.Less(t, peak, before.resident+memoryBound, "memory")
	} else {
		require.Less(t, memory, float64(24<<20), "memory")
		require.Less(t, running, 24.0, "goroutines")
		require.Less(t, open, 24.0, "descriptors")
	}
}
