// Command bench compares gatehouse_api with its defaults and a real Redis to plain Caddy, which is the same binary with a
// reverse_proxy to the same data service. Both run on loopback and are loaded alternately, so that changes in the machine's
// speed affect both.
//
//	make bench
//	make bench BENCH_FLAGS="-rounds 10 -upstream canned"
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

// options are the command's flags.
type options struct {
	throughputRounds int
	latencyRounds    int
	duration         time.Duration
	connections      int
	threads          int
	upstream         string
	target           string
	assertion        bool
	profile          string
	tracing          string
}

func main() {
	if kind := os.Getenv(upstreamEnv); kind != "" {
		if err := serveUpstream(kind); err != nil {
			fmt.Fprintln(os.Stderr, "bench upstream:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.IntVar(&o.throughputRounds, "rounds", 20, "rounds, each with one run against plain Caddy and one against Gatehouse")
	flag.IntVar(&o.latencyRounds, "latency-rounds", 10, "further rounds, with one connection")
	flag.DurationVar(&o.duration, "duration", 2*time.Second, "duration of a run; short runs reduce the effect of changes in the machine's speed")
	flag.IntVar(&o.connections, "connections", 64, "wrk's connections")
	flag.IntVar(&o.threads, "threads", 1, "wrk's threads")
	flag.StringVar(&o.upstream, "upstream", "demo", `data service: "demo" (internal/demo on SQLite) or "canned" (constant responses, the worst case)`)
	flag.StringVar(&o.target, "target", "/api/v1/events?count=10", "request target")
	flag.BoolVar(&o.assertion, "assertion", false, "sign a hop assertion for each request as well")
	flag.StringVar(&o.tracing, "tracing", "", "compare Gatehouse that traces requests whose {uuid} matches this `regexp` to Gatehouse without tracing, instead of to plain Caddy")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of Gatehouse under load to this `file`, after the rounds")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:gocritic // exitAfterDefer: stop has nothing left to undo
	}
}

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "gatehouse-bench-")
	if err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	fmt.Println("building the binary")
	binary := filepath.Join(dir, "gatehouse")
	if err := build(ctx, binary); err != nil {
		return err
	}
	var p processes
	defer p.stop()
	b, err := start(ctx, &p, o, dir, binary)
	if err != nil {
		return err
	}
	if err := b.check(ctx); err != nil {
		return err
	}
	printMachine(o)
	plain, gatehouse, err := b.rounds(ctx, o.throughputRounds)
	if err != nil {
		return err
	}
	if err := report(plain, gatehouse, &b.plain, &b.gatehouse); err != nil {
		return err
	}
	b.connections = 1 // so that no request waits for another
	fmt.Printf("\nwith one connection\n")
	if plain, gatehouse, err = b.rounds(ctx, o.latencyRounds); err != nil {
		return err
	}
	reportLatency(plain, gatehouse)
	if o.profile != "" {
		b.connections = o.connections
		return b.profileUnderLoad(ctx, o.profile)
	}
	return nil
}

// rounds loads both servers alternately.
func (b *bench) rounds(ctx context.Context, rounds int) (plain, gatehouse []result, err error) {
	fmt.Printf("%-6s %-10s %12s %10s %10s %14s %12s\n", "round", "", "requests/s", "p50 ms", "p99 ms", "CPU µs/req", "errors")
	for i := range rounds {
		order := []*server{&b.plain, &b.gatehouse} // reversed in every second round
		if i%2 == 1 {
			order[0], order[1] = order[1], order[0]
		}
		for _, s := range order {
			r, err := b.load(ctx, s)
			if err != nil {
				return nil, nil, err
			}
			fmt.Printf("%-6d %-10s %12.0f %10.2f %10.2f %14.0f %12d\n", i+1, s.name, r.rate, r.p50, r.p99, r.cpu, r.errors)
			if s == &b.plain {
				plain = append(plain, r)
			} else {
				gatehouse = append(gatehouse, r)
			}
		}
	}
	return plain, gatehouse, nil
}
