package ratelimit

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Algorithm is a way to hold a limit.
type Algorithm string

// The algorithms.
const (
	// Exact admits no more than Limit.Requests in any span of Limit.Window.
	Exact Algorithm = "exact"
	// GCRA is redis_rate's leaky bucket: a burst of Limit.Requests that refills
	// evenly over Limit.Window. It is smoother and takes a fixed 70 bytes or so of
	// Redis for a caller, but a full burst and the refill can pass in one window:
	// 60 a minute admit up to 119 in the first. See Fleet for what it does not do.
	GCRA Algorithm = "gcra"
)

// Policy is what to do while Redis cannot be asked.
type Policy string

// The policies.
const (
	// Local has each gateway hold the limits by itself, exactly.
	Local Policy = "local"
	// Refuse returns ErrUnavailable.
	Refuse Policy = "refuse"
	// Allow admits everything, and counts it.
	Allow Policy = "allow"
)

// Defaults of Options.
const (
	DefaultPrefix        = "gatehouse:rl:"
	DefaultTimeout       = 50 * time.Millisecond
	DefaultMaxFailures   = 3
	DefaultProbeInterval = time.Second
	DefaultMaxEntries    = 65536
)

// Options configure a Fleet. The zero value means the defaults.
type Options struct {
	// Algorithm is Exact (the default) or GCRA.
	Algorithm Algorithm
	// OnOutage is Local (the default), Refuse or Allow.
	OnOutage Policy
	// Prefix begins every key in Redis; "" means DefaultPrefix. It holds neither
	// brace. Fleets that share limits have the same one.
	Prefix string
	// Timeout is how long a round trip to Redis may take, and how long a request
	// may wait for its turn to join one; 0 means 50 ms. So on a machine that is
	// short of time itself a request can wait for almost twice as long; from the
	// first round trip that fails on, none waits longer than this in all.
	Timeout time.Duration
	// MaxFailures is after how many failed round trips in a row Redis is not asked
	// any more (or after half of 20 and more within 10 s); 0 means 3.
	MaxFailures int
	// ProbeInterval is how often it is tried then, in the background, whether
	// Redis is back; 0 means 1 s.
	ProbeInterval time.Duration
	// MaxEntries bounds the callers remembered in memory for each policy; 0 means
	// 65,536. A caller of whom 1 request is remembered takes about 170 bytes, one
	// with 10 about 280, one with 60 about 670. Above the bound those are forgotten who have used the
	// least of their limit: nothing is lost while Redis answers, and in an outage
	// they may use that little again.
	MaxEntries int
	// Now is the clock behind the memory; nil means time.Now. Only differences
	// count, by the monotonic clock where there is one.
	Now func() time.Time
	// OnEvent, if set, is told of outages, one call at a time for each part of
	// Redis and never on a request's path.
	OnEvent func(Event)
}

// Event is the beginning or the end of an outage.
type Event struct {
	// Down says that Redis is not asked any more, and false that it is again.
	Down bool
	// Cause is the failure that began the outage. It may name Redis's address.
	Cause error
	// Lasted is the time since the beginning; 0 there.
	Lasted time.Duration
	// Part and Parts say which part of Redis it is about: 0 of 1, or for a Cluster
	// one of its equal ranges of slots.
	Part, Parts int
	// Settled is, at the end, how many admissions of this gateway were entered
	// into Redis that it had not known of.
	Settled int
}

func (o *Options) complete() error {
	if o.Algorithm == "" {
		o.Algorithm = Exact
	}
	if o.OnOutage == "" {
		o.OnOutage = Local
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxFailures == 0 {
		o.MaxFailures = DefaultMaxFailures
	}
	if o.ProbeInterval == 0 {
		o.ProbeInterval = DefaultProbeInterval
	}
	if o.MaxEntries == 0 {
		o.MaxEntries = DefaultMaxEntries
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	switch {
	case o.Algorithm != Exact && o.Algorithm != GCRA:
		return fmt.Errorf("algorithm %q: allowed are %q and %q", o.Algorithm, Exact, GCRA)
	case o.OnOutage != Local && o.OnOutage != Refuse && o.OnOutage != Allow:
		return fmt.Errorf("policy for outages %q: allowed are %q, %q and %q", o.OnOutage, Local, Refuse, Allow)
	case strings.ContainsAny(o.Prefix, "{}"):
		return fmt.Errorf("prefix %q: braces would decide the Cluster slot", o.Prefix)
	case o.Timeout < 0:
		return fmt.Errorf("timeout %v is negative", o.Timeout)
	case o.MaxFailures < 0:
		return fmt.Errorf("number of failures %d is negative", o.MaxFailures)
	case o.ProbeInterval < 0:
		return fmt.Errorf("interval of probes %v is negative", o.ProbeInterval)
	case o.MaxEntries < 0:
		return fmt.Errorf("number of entries %d is negative", o.MaxEntries)
	}
	return nil
}

// TuneClient sets what a Fleet needs of its client, where the options leave it
// open: deadlines of contexts are obeyed, nothing is retried behind the Fleet's
// back (a charge could be made twice), a dead server is noticed within a second
// and answers are not awaited for longer than that, and all commands share one
// pool of connections, so that what Ping has opened serves the first request.
func TuneClient(o *redis.UniversalOptions) {
	const patience = time.Second
	o.ContextTimeoutEnabled = true
	if o.MaxRetries == 0 {
		o.MaxRetries = -1
	}
	if o.DialerRetries == 0 {
		o.DialerRetries = 1
	}
	if o.PipelinePoolSize == 0 {
		o.PipelinePoolSize = -1
	}
	for _, d := range []*time.Duration{&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout} {
		if *d == 0 {
			*d = patience
		}
	}
}

// obeysDeadlines says whether the client's calls end with their context, as far
// as that can be seen.
func obeysDeadlines(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return c.Options().ContextTimeoutEnabled
	}
	return true
}
