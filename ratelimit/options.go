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
	// 60 a minute admit up to 119 in the first. In an outage each gateway holds it by itself, and what is allowed
	// meanwhile is not entered into Redis afterwards.
	GCRA Algorithm = "gcra"
)

// Policy is what to do while Redis cannot be asked.
type Policy string

// The policies.
const (
	// Local has each gateway hold the limits by itself, exactly.
	Local Policy = "local"
	// Deny returns ErrUnavailable.
	Deny Policy = "deny"
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

// Options configure a Limiter. The zero value means the defaults.
type Options struct {
	// Algorithm is Exact (the default) or GCRA.
	Algorithm Algorithm
	// OnOutage is Local (the default), Deny or Allow.
	OnOutage Policy
	// Prefix begins every key in Redis; "" means DefaultPrefix. It holds neither
	// brace. Fleets that share limits have the same one.
	Prefix string
	// Timeout is how long a round trip to Redis may take, and how long a request may wait in the queue for one; 0 means
	// 50 ms. So a request can wait for almost twice as long; from the first round trip that fails on, none waits longer than
	// this in all.
	Timeout time.Duration
	// MaxFailures is after how many failed round trips in a row Redis is not asked
	// any more (or after half of 20 and more within 10 s); 0 means 3.
	MaxFailures int
	// ProbeInterval is how often it is tried then, in the background, whether
	// Redis is back; 0 means 1 s.
	ProbeInterval time.Duration
	// MaxEntries bounds the local windows of each policy, with GCRA of all policies together; 0 means 65,536. Above the bound
	// those are forgotten that have used the least of their limit, with GCRA those that were used least: nothing is lost while
	// Redis answers, and in an outage their callers may use that again.
	MaxEntries int
	// Now is the clock of the local windows; nil means time.Now. Only differences count, by the monotonic clock where there is
	// one.
	Now func() time.Time
	// OnEvent, if set, is told of outages and the like. Calls may be concurrent, and are never on a request's path.
	OnEvent func(Event)
}

// EventKind says what an Event is about.
type EventKind string

// The kinds of events.
const (
	// Unavailable is the beginning of an outage: Redis is not asked any more, and Options.OnOutage decides.
	Unavailable EventKind = "unavailable"
	// Shared is its end: the limits are the fleet's again.
	Shared EventKind = "shared"
	// DataLost says that Redis does not have requests that it had. Each gateway tells it of its own.
	DataLost EventKind = "data_lost"
	// Overloaded says that of the requests of the last ProbeInterval most had no answer in time although Redis answers, so that
	// this gateway decided by itself. OverloadEnded is the end of that.
	Overloaded    EventKind = "overloaded"
	OverloadEnded EventKind = "overload_ended"
)

// Event is something that operators want to know.
type Event struct {
	Kind EventKind
	// Cause is the failure that began the outage. It may name Redis's address.
	Cause error
	// Part and Parts say which part of Redis an outage is about: 0 of 1, or for a Cluster one of its equal ranges of slots.
	Part, Parts int
	// Lasted is the time since the beginning, and Synced how many requests of this gateway Redis was told of; of Shared.
	Lasted time.Duration
	Synced int
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
		return fmt.Errorf("algorithm %q: must be %q or %q", o.Algorithm, Exact, GCRA)
	case o.OnOutage != Local && o.OnOutage != Deny && o.OnOutage != Allow:
		return fmt.Errorf("policy for outages %q: must be %q, %q or %q", o.OnOutage, Local, Deny, Allow)
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

// TuneClient sets what a Limiter needs of its client, where the options leave it open: deadlines of contexts are obeyed, failed
// commands are not sent again (a request does not wait that long), a dead server is noticed within a second and answers are not
// awaited for longer than that, and all commands share one pool of connections, so that those that Ping has opened serve the
// first request.
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
