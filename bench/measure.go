package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// result is the result of one run of wrk. Latencies are in milliseconds; cpu is the server's CPU time per request in
// microseconds.
type result struct {
	rate, p50, p99, cpu float64
	errors              int
}

// check returns an error unless signed requests get 200 and the gateway rejects unsigned ones.
func (b *bench) check(ctx context.Context) error {
	for _, t := range []struct {
		s      *server
		signed bool
		want   int
	}{{&b.plain, true, 200}, {&b.gatehouse, true, 200}, {&b.gatehouse, false, 401}} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.s.base+b.target, nil)
		if err != nil {
			return fmt.Errorf("building a request: %w", err)
		}
		req.Header.Set("X-Business-Id", b.credential.BusinessID) // plain Caddy passes it on; the gateway sets its own
		if t.signed {
			for name, value := range b.sign() {
				req.Header.Set(name, value)
			}
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return fmt.Errorf("sending a request to %s: %w", t.s.name, err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != t.want {
			return fmt.Errorf("%s (signed: %t) responded with %d %s, want %d: %w", t.s.name, t.signed, res.StatusCode, body, t.want, err)
		}
		if t.want == 200 {
			fmt.Printf("%s responds to %s with %d bytes\n", t.s.name, b.target, len(body))
		}
	}
	return nil
}

// sign returns the headers of a signed request, which are valid for five minutes.
func (b *bench) sign() map[string]string {
	now := time.Now().Unix()
	return map[string]string{
		authsigner.HeaderPublicKey: b.credential.PublicKey,
		authsigner.HeaderTimestamp: strconv.FormatInt(now, 10),
		authsigner.HeaderSignature: authsigner.Sign(b.credential.PrivateKey, now, http.MethodGet, b.target, nil),
	}
}

var (
	rateLine  = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	totalLine = regexp.MustCompile(`(\d+) requests in`)
	quantile  = regexp.MustCompile(`(?m)^\s+(50|99)%\s+([0-9.]+)(us|ms|s)`)
	badStatus = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
	socketErr = regexp.MustCompile(`Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)`)
)

// load runs wrk once.
func (b *bench) load(ctx context.Context, s *server) (result, error) {
	args := []string{
		"-t" + strconv.Itoa(b.threads), "-c" + strconv.Itoa(b.connections), "-d" + b.duration.String(), "--latency",
		"-H", "X-Business-Id: " + b.credential.BusinessID,
	}
	for name, value := range b.sign() {
		args = append(args, "-H", name+": "+value)
	}
	before, err := cpuTime(s.pid)
	if err != nil {
		return result{}, err
	}
	out, err := exec.CommandContext(ctx, "wrk", append(args, s.base+b.target)...).CombinedOutput()
	if err != nil {
		return result{}, fmt.Errorf("running wrk: %w: %s", err, out)
	}
	after, err := cpuTime(s.pid)
	if err != nil {
		return result{}, err
	}
	text := string(out)
	r := result{rate: number(rateLine.FindStringSubmatch(text))}
	if total := number(totalLine.FindStringSubmatch(text)); total > 0 {
		r.cpu = (after - before).Seconds() * 1e6 / total
	}
	for _, m := range quantile.FindAllStringSubmatch(text, -1) {
		ms := number(m[1:]) * map[string]float64{"us": 1e-3, "ms": 1, "s": 1e3}[m[3]]
		if m[1] == "50" {
			r.p50 = ms
		} else {
			r.p99 = ms
		}
	}
	r.errors = int(number(badStatus.FindStringSubmatch(text)))
	if m := socketErr.FindStringSubmatch(text); m != nil {
		for i := 1; i < len(m); i++ {
			n, _ := strconv.Atoi(m[i])
			r.errors += n
		}
	}
	return r, nil
}

// number returns the first group of a match, or 0.
func number(m []string) float64 {
	if len(m) < 2 {
		return 0
	}
	f, _ := strconv.ParseFloat(m[1], 64)
	return f
}

// cpuTime returns the user and system time of a process.
func cpuTime(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading a process's times: %w", err)
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	const utime, stime, hertz = 11, 12, 100 // proc(5), without the first two fields
	u, _ := strconv.Atoi(fields[utime])
	s, _ := strconv.Atoi(fields[stime])
	return time.Duration(u+s) * time.Second / hertz, nil
}

// peakMemory returns a process's peak resident memory in MiB.
func peakMemory(pid int) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading a process's memory: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			return kib / 1024, nil
		}
	}
	return 0, nil
}

func printMachine(o options) {
	fmt.Printf("\n%d CPUs, %s, wrk with %d connections for %s, %d rounds, data service: %s, target %s, hop assertion: %t\n\n",
		runtime.NumCPU(), runtime.Version(), o.connections, o.duration, o.throughputRounds, o.upstream, o.target, o.assertion)
}

// report prints medians, and ratios as medians of the rounds' own ratios.
func report(plain, gatehouse []result, ps, gs *server) error {
	pm, err := peakMemory(ps.pid)
	if err != nil {
		return err
	}
	gm, err := peakMemory(gs.pid)
	if err != nil {
		return err
	}
	of := func(rs []result, f func(result) float64) float64 {
		v := make([]float64, len(rs))
		for i, r := range rs {
			v[i] = f(r)
		}
		return median(v)
	}
	ratio := func(f func(result) float64) float64 {
		v := make([]float64, len(plain))
		for i := range plain {
			v[i] = f(gatehouse[i]) / f(plain[i])
		}
		return median(v)
	}
	rate := func(r result) float64 { return r.rate }
	p50 := func(r result) float64 { return r.p50 }
	p99 := func(r result) float64 { return r.p99 }
	cpu := func(r result) float64 { return r.cpu }
	failed := 0
	for _, r := range slices.Concat(plain, gatehouse) {
		failed += r.errors
	}
	fmt.Printf("\n%-14s %12s %10s %10s %14s %12s\n", "median", "requests/s", "p50 ms", "p99 ms", "CPU µs/req", "peak MiB")
	fmt.Printf("%-14s %12.0f %10.2f %10.2f %14.0f %12.0f\n", ps.name, of(plain, rate), of(plain, p50), of(plain, p99), of(plain, cpu), pm)
	fmt.Printf("%-14s %12.0f %10.2f %10.2f %14.0f %12.0f\n", gs.name, of(gatehouse, rate), of(gatehouse, p50), of(gatehouse, p99), of(gatehouse, cpu), gm)
	fmt.Printf("%-14s %12.2f %10.2f %10.2f %14.2f %12.2f\n", "ratio", ratio(rate), ratio(p50), ratio(p99), ratio(cpu), gm/pm)
	if failed > 0 {
		return fmt.Errorf("%d requests failed: the figures are not valid", failed)
	}
	return nil
}

// reportLatency prints the latency with one connection.
func reportLatency(plain, gatehouse []result) {
	var p, w, ratios []float64
	for i := range plain {
		p, w, ratios = append(p, plain[i].p50), append(w, gatehouse[i].p50), append(ratios, gatehouse[i].p50/plain[i].p50)
	}
	if len(ratios) > 0 {
		fmt.Printf("\n%-14s p50 %.2f ms against %.2f ms, ratio %.2f\n", "median", median(w), median(p), median(ratios))
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// profiled is the duration of the profile.
const profiled = 12 * time.Second

// profileUnderLoad writes a CPU profile of Gatehouse, taken through Caddy's admin API while wrk runs.
func (b *bench) profileUnderLoad(ctx context.Context, name string) error {
	done := make(chan error, 1)
	b.duration = profiled + time.Second
	go func() {
		_, err := b.load(ctx, &b.gatehouse)
		done <- err
	}()
	seconds := int(profiled.Seconds())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", b.gatehouse.admin, seconds), nil)
	if err != nil {
		return fmt.Errorf("building a request: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("taking a profile: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("keeping the profile: %w", err)
	}
	if _, err := io.Copy(f, res.Body); err != nil {
		return fmt.Errorf("keeping the profile: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("keeping the profile: %w", err)
	}
	if err := <-done; err != nil {
		return err
	}
	fmt.Printf("\nprofile: go tool pprof -top %s\n", name)
	return nil
}
