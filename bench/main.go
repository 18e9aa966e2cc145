// Command bench compares gatehouse_api with its defaults and a real Redis to plain Caddy, which is the same binary with a
// reverse_proxy to the same data service, over http and over https. All run on loopback and are loaded in turn, so that changes
// in the machine's speed affect all of them.
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
	"time"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// options are the command's flags.
type options struct {
	throughputRounds int
	latencyRounds    int
	duration         time.Duration
	connections      int
	threads          int
	upstream         string
	schemes          string
	clients          bool
	target           string
	assertion        bool
	profile          string
	tracing          string
}

func main() {
	if kind := os.Getenv(upstreamEnv); kind != "" {
		if err := serveUpstream(kind, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "bench upstream:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.IntVar(&o.throughputRounds, "rounds", 12, "rounds, each with one run of each variant")
	flag.IntVar(&o.latencyRounds, "latency-rounds", 8, "further rounds, with one connection")
	flag.DurationVar(&o.duration, "duration", 2*time.Second, "duration of a run, in whole seconds except with -clients; short runs reduce the effect of changes in the machine's speed")
	flag.IntVar(&o.connections, "connections", 64, "connections of wrk, or concurrent exchanges of a client")
	flag.IntVar(&o.threads, "threads", 1, "wrk's threads")
	flag.StringVar(&o.upstream, "upstream", "demo", `data service: "demo" (internal/demo on SQLite) or "canned" (constant responses, the worst case)`)
	flag.StringVar(&o.schemes, "schemes", "http,https", `how to call the data service: "http", "https" or both`)
	flag.BoolVar(&o.clients, "clients", false, "compare upstream.Client to net/http's Transport, both without a gateway and over HTTP/1.1, instead")
	flag.StringVar(&o.target, "target", "/api/v1/events?count=10", "request target")
	flag.BoolVar(&o.assertion, "assertion", false, "sign a hop assertion for each request as well")
	flag.StringVar(&o.tracing, "tracing", "", "compare Gatehouse that traces requests whose {uuid} matches this `regexp` to Gatehouse without tracing, instead of to plain Caddy")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of the last variant under load to this `file`, after the rounds")
	flag.Parse()
	if o.clients && o.profile != "" {
		fmt.Fprintln(os.Stderr, "bench: -profile is for servers, not for -clients")
		os.Exit(2)
	}

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

	var p processes
	defer p.stop()
	b := &bench{options: o}
	if err := b.start(ctx, &p, dir); err != nil {
		return err
	}
	printMachine(o)
	throughput, err := b.rounds(ctx, o.throughputRounds, o.connections)
	if err != nil {
		return err
	}
	fmt.Printf("\nwith one connection\n") // no request waits for another
	latency, err := b.rounds(ctx, o.latencyRounds, 1)
	if err != nil {
		return err
	}
	b.report(throughput, latency)
	if o.profile != "" {
		return b.profileUnderLoad(ctx, o.profile)
	}
	return nil
}

// bench is a running benchmark.
type bench struct {
	options
	credential *authsigner.Credential
	variants   []variant
	pairs      [][2]int // of variants: the ratio of the first to the second is reported
	last       *server  // the last variant, unless that is a client
}

// variant is what is measured.
type variant struct {
	name string
	load func(ctx context.Context, connections int, duration time.Duration) (result, error)
}

// rounds loads all variants in turn and returns the results of each.
func (b *bench) rounds(ctx context.Context, rounds, connections int) ([][]result, error) {
	results := make([][]result, len(b.variants))
	printHeader("round")
	for round := range rounds {
		for i := range b.variants {
			if round%2 == 1 {
				i = len(b.variants) - 1 - i // reversed in every second round
			}
			r, err := b.variants[i].load(ctx, connections, b.duration)
			if err != nil {
				return nil, fmt.Errorf("loading %s: %w", b.variants[i].name, err)
			}
			results[i] = append(results[i], r)
			printRow(fmt.Sprintf("%d %s", round+1, b.variants[i].name), r)
		}
	}
	return results, nil
}
