// Command bench holds the whole job (verify, exact limit in a real Redis, rewrite, proxy, check of the answer) against
// plain Caddy: the same binary, the same data service, a reverse_proxy without our handlers. Both run at once on
// loopback and are loaded in turn, so that a machine whose speed drifts does so for both.
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
	flag.IntVar(&o.throughputRounds, "rounds", 20, "rounds, each of one run against plain Caddy and one against the whole job")
	flag.IntVar(&o.latencyRounds, "latency-rounds", 10, "rounds with one connection, after the others")
	flag.DurationVar(&o.duration, "duration", 2*time.Second, "length of a run: short, so that both servers see the same machine")
	flag.IntVar(&o.connections, "connections", 64, "wrk's connections")
	flag.IntVar(&o.threads, "threads", 1, "wrk's threads")
	flag.StringVar(&o.upstream, "upstream", "demo", `data service: "demo" (internal/demo on SQLite) or "canned" (one constant answer, the harshest case)`)
	flag.StringVar(&o.target, "target", "/api/v1/events?count=10", "request target")
	flag.BoolVar(&o.assertion, "assertion", false, "sign a hop assertion for each request as well")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of the whole job under load to this file, after the rounds")
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
		return fmt.Errorf("making a folder: %w", err)
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
	plain, whole, err := b.rounds(ctx, o.throughputRounds)
	if err != nil {
		return err
	}
	if err := report(plain, whole, &b.plain, &b.whole); err != nil {
		return err
	}
	// what a request takes that waits for no other
	b.connections = 1
	fmt.Printf("\nat one connection\n")
	if plain, whole, err = b.rounds(ctx, o.latencyRounds); err != nil {
		return err
	}
	reportLatency(plain, whole)
	if o.profile != "" {
		b.connections = o.connections
		return b.profileUnderLoad(ctx, o.profile)
	}
	return nil
}

// rounds loads both servers so many times, in turn.
func (b *bench) rounds(ctx context.Context, rounds int) (plain, whole []result, err error) {
	fmt.Printf("%-6s %-10s %12s %10s %10s %14s %12s\n", "round", "", "requests/s", "p50 ms", "p99 ms", "CPU µs/req", "errors")
	for i := range rounds {
		// who goes first changes with each round
		order := []*server{&b.plain, &b.whole}
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
				whole = append(whole, r)
			}
		}
	}
	return plain, whole, nil
}
