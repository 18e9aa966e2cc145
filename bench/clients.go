package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// exchange sends a request and returns the response, and what must be called when its body has been read.
type exchange func(req *http.Request, deadline time.Time) (*http.Response, func(), error)

// addClients adds net/http's Transport and upstream.Client as variants, in the way in which the gateway uses a client: with a
// context that can end and with a deadline for each exchange.
func (b *bench) addClients(ctx context.Context, scheme, address, ca string) error {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return fmt.Errorf("reading the data service's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}

	transport := &http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: upstream.DefaultMaxIdleConns}
	theirs := func(req *http.Request, deadline time.Time) (*http.Response, func(), error) {
		ctx, cancel := context.WithDeadline(req.Context(), deadline)
		res, err := transport.RoundTrip(req.WithContext(ctx))
		return res, cancel, err
	}

	_, host, _ := strings.Cut(address, "://")
	client := &upstream.Client{
		Dial: func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", host) },
	}
	if scheme == "https" {
		name, _, _ := net.SplitHostPort(host)
		own := config.Clone()
		own.ServerName, own.NextProtos = name, []string{"http/1.1"}
		client.TLS = func(context.Context) *tls.Config { return own }
	}
	ours := func(req *http.Request, deadline time.Time) (*http.Response, func(), error) {
		res, err := client.Exchange(req, deadline)
		return res, func() {}, err
	}

	for _, c := range []struct {
		name string
		do   exchange
	}{{"transport-" + scheme, theirs}, {"client-" + scheme, ours}} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+b.target, nil)
		if err != nil {
			return fmt.Errorf("building a request: %w", err)
		}
		req.Header = http.Header{
			"Accept": {"application/json"}, "Accept-Encoding": {"identity"}, "User-Agent": {""}, "Via": {"1.1 Caddy"},
			"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {host}, "X-Forwarded-Proto": {scheme},
			"X-Business-Id": {business().ID}, "X-Request-Id": {"00000000-0000-4000-8000-000000000000"},
		}
		b.variants = append(b.variants, variant{c.name, func(ctx context.Context, connections int, duration time.Duration) (result, error) {
			return loadClient(ctx, c.do, req, connections, duration)
		}})
	}
	return nil
}

// loadClient sends requests from as many goroutines as there are connections. CPU time and allocations are those of this process.
func loadClient(ctx context.Context, do exchange, req *http.Request, connections int, duration time.Duration) (result, error) {
	before, start := usage(), time.Now()
	var (
		mu    sync.Mutex
		times []time.Duration
		errs  []error
		wg    sync.WaitGroup
	)
	for range connections {
		wg.Go(func() {
			own, err := repeat(ctx, do, req, start.Add(duration))
			mu.Lock()
			defer mu.Unlock()
			times, errs = append(times, own...), append(errs, err)
		})
	}
	wg.Wait()
	took, after, n := time.Since(start), usage(), float64(len(times))
	slices.Sort(times)
	at := func(quantile int) float64 { return times[len(times)*quantile/100].Seconds() * 1e3 }
	if err := errors.Join(errs...); err != nil {
		return result{}, err
	}
	return result{
		rate: n / took.Seconds(), p50: at(50), p99: at(99),
		cpu: (after.cpu - before.cpu).Seconds() * 1e6 / n, allocs: float64(after.mallocs-before.mallocs) / n,
	}, nil
}

// repeat sends a request again and again, and returns how long each exchange took.
func repeat(ctx context.Context, do exchange, req *http.Request, until time.Time) (times []time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req = req.WithContext(ctx)
	var body bytes.Buffer
	for start := time.Now(); start.Before(until); {
		res, done, err := do(req, start.Add(10*time.Second))
		if err != nil {
			return nil, err
		}
		body.Reset()
		_, err = body.ReadFrom(res.Body)
		_ = res.Body.Close()
		done()
		if err != nil || res.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("the data service responded with %d: %w", res.StatusCode, err)
		}
		now := time.Now()
		times = append(times, now.Sub(start))
		start = now
	}
	return times, nil
}

type used struct {
	cpu     time.Duration
	mallocs uint64
}

// usage returns the CPU time and the number of allocations of this process so far.
func usage() (u used) {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r) // cannot fail
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return used{time.Duration(r.Utime.Nano() + r.Stime.Nano()), m.Mallocs}
}
