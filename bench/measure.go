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
	"time"

	"github.com/prometheus/procfs"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// The figures of a run. CPU time, allocations and memory are those of the server or the client that is measured.
const (
	rate   = iota // requests per second
	p50           // in milliseconds
	p99           // in milliseconds
	cpu           // user and system time per request in microseconds
	allocs        // per request; only of clients
	peak          // resident memory in MiB, so far; only of servers
	figures
)

// result is the result of one run. A figure that was not measured is 0.
type result [figures]float64

// names are the figures' names in the output.
var names = [figures]string{"requests/s", "p50 ms", "p99 ms", "CPU µs/req", "allocs/req", "peak MiB"}

// check waits until a signed request gets 200. It returns an error unless Gatehouse then rejects unsigned ones, and plain Caddy
// calls the data service over its protocol.
func (b *bench) check(ctx context.Context, s *server) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	body, err := s.get(ctx, b.target, b.sign(), http.StatusOK)
	for err != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not start: %w", s.name, err)
		case <-time.After(20 * time.Millisecond):
			body, err = s.get(ctx, b.target, b.sign(), http.StatusOK)
		}
	}
	fmt.Printf("%s responds to %s with %d bytes\n", s.name, b.target, len(body))
	if s.protocol == "" {
		_, err := s.get(ctx, b.target, nil, http.StatusUnauthorized)
		return err
	}
	protocol, err := s.get(ctx, protocolPath, nil, http.StatusOK)
	if err == nil && protocol != s.protocol {
		return fmt.Errorf("%s called the data service over %s, want %s", s.name, protocol, s.protocol)
	}
	return err
}

// get returns the body of a response, which must have the status.
func (s *server) get(ctx context.Context, target string, header map[string]string, want int) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+target, nil)
	if err != nil {
		return "", fmt.Errorf("building a request: %w", err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("sending a request to %s: %w", s.name, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != want {
		err = fmt.Errorf("want %d", want)
	}
	if err != nil {
		return "", fmt.Errorf("%s responded to %s with %d %s: %w", s.name, target, res.StatusCode, body, err)
	}
	return string(body), nil
}

// sign returns the headers of a signed request, which are valid for five minutes. Plain Caddy passes X-Business-Id on; the gateway
// sets its own.
func (b *bench) sign() map[string]string {
	now := time.Now().Unix()
	return map[string]string{
		"X-Business-Id":            b.credential.BusinessID,
		authsigner.HeaderPublicKey: b.credential.PublicKey,
		authsigner.HeaderTimestamp: strconv.FormatInt(now, 10),
		authsigner.HeaderSignature: authsigner.Sign(b.credential.PrivateKey, now, http.MethodGet, b.target, nil),
	}
}

var (
	rateLine  = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	totalLine = regexp.MustCompile(`(\d+) requests in`)
	quantile  = regexp.MustCompile(`(?m)^\s+(?:50|99)%\s+([0-9.]+)(us|ms|s)`)
	badStatus = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
	socketErr = regexp.MustCompile(`Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)`)
)

// load runs wrk once.
func (b *bench) load(ctx context.Context, s *server, connections int, duration time.Duration) (result, error) {
	args := []string{"-t" + strconv.Itoa(b.threads), "-c" + strconv.Itoa(connections), fmt.Sprintf("-d%.0fs", duration.Seconds()), "--latency"}
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
	failed := number(badStatus.FindStringSubmatch(text))
	if m := socketErr.FindStringSubmatch(text); m != nil {
		for i := range m {
			failed += number(m[i:])
		}
	}
	total := number(totalLine.FindStringSubmatch(text))
	if failed > 0 || total == 0 {
		return result{}, fmt.Errorf("%.0f requests failed, so the figures are not valid: %s", failed, text)
	}
	r := result{rate: number(rateLine.FindStringSubmatch(text)), cpu: (after - before).Seconds() * 1e6 / total}
	for i, m := range quantile.FindAllStringSubmatch(text, -1) {
		r[p50+i] = number(m) * map[string]float64{"us": 1e-3, "ms": 1, "s": 1e3}[m[2]]
	}
	r[peak], err = peakMemory(s.pid)
	return r, err
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
	var stat procfs.ProcStat
	proc, err := procfs.NewProc(pid)
	if err == nil {
		stat, err = proc.Stat()
	}
	if err != nil {
		return 0, fmt.Errorf("reading a process's times: %w", err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}

// peakMemory returns a process's peak resident memory in MiB.
func peakMemory(pid int) (float64, error) {
	var status procfs.ProcStatus
	proc, err := procfs.NewProc(pid)
	if err == nil {
		status, err = proc.NewStatus()
	}
	if err != nil {
		return 0, fmt.Errorf("reading a process's memory: %w", err)
	}
	return float64(status.VmHWM) / (1 << 20), nil
}

func printMachine(o options) {
	fmt.Printf("\n%d CPUs, %s, %d connections for %s, %d rounds, data service: %s, target %s, hop assertion: %t\n\n",
		runtime.NumCPU(), runtime.Version(), o.connections, o.duration, o.throughputRounds, o.upstream, o.target, o.assertion)
}

func printHeader(title string) {
	fmt.Printf("%-24s", title)
	for _, name := range names {
		fmt.Printf(" %12s", name)
	}
	fmt.Println()
}

func printRow(title string, r result) {
	fmt.Printf("%-24s", title)
	for _, f := range r {
		switch {
		case f == 0:
			fmt.Printf(" %12s", "-")
		case f < 100:
			fmt.Printf(" %12.2f", f)
		default:
			fmt.Printf(" %12.0f", f)
		}
	}
	fmt.Println()
}

// report prints the medians of the rounds, and then median, minimum and maximum of the rounds' own ratios.
func (b *bench) report(throughput, latency [][]result) {
	fmt.Println()
	printHeader("median")
	for i, v := range b.variants {
		printRow(v.name, medians(throughput[i]))
	}
	for i, v := range b.variants {
		printRow(v.name+", 1 conn.", medians(latency[i]))
	}
	fmt.Printf("\n%-64s %8s %8s %8s\n", "ratio", "median", "min", "max")
	for _, pair := range b.pairs {
		name := b.variants[pair[0]].name + " to " + b.variants[pair[1]].name + ", "
		for figure := range figures {
			printRatio(name+names[figure], figure, throughput[pair[0]], throughput[pair[1]])
		}
		printRatio(name+names[p50]+" with one connection", p50, latency[pair[0]], latency[pair[1]])
	}
}

// printRatio prints the ratio of a figure, unless it was not measured.
func printRatio(name string, figure int, ours, others []result) {
	var ratios []float64
	for i := range ours {
		if others[i][figure] > 0 {
			ratios = append(ratios, ours[i][figure]/others[i][figure])
		}
	}
	if len(ratios) > 0 {
		fmt.Printf("%-64s %8.2f %8.2f %8.2f\n", name, median(ratios), slices.Min(ratios), slices.Max(ratios))
	}
}

func medians(rounds []result) (m result) {
	for figure := range m {
		var values []float64
		for _, r := range rounds {
			values = append(values, r[figure])
		}
		m[figure] = median(values)
	}
	return m
}

func median(v []float64) float64 {
	slices.Sort(v)
	if n := len(v); n == 0 {
		return 0
	} else if n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// profiled is the duration of the profile.
const profiled = 12 * time.Second

// profileUnderLoad writes a CPU profile of the last variant, taken through Caddy's admin API while wrk runs.
func (b *bench) profileUnderLoad(ctx context.Context, name string) error {
	done := make(chan error, 1)
	go func() {
		_, err := b.load(ctx, b.last, b.connections, profiled+time.Second)
		done <- err
	}()
	seconds := int(profiled.Seconds())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", b.last.admin, seconds), nil)
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
