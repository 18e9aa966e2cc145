package ratelimit

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Algorithm selects how a limit is enforced.
type Algorithm string

// Values of Algorithm.
const (
	// Exact never allows more than Limit.Requests in any interval of length Limit.Window.
	Exact Algorithm = "exact"
	// GCRA is redis_rate's leaky bucket: a burst of Limit.Requests that refills evenly over Limit.Window. It is smoother and
	// takes a fixed, small amount of Redis memory per counter, but a full burst and the refill can pass within one window: a
	// limit of 60 per minute allows up to 119 requests in the first minute. During an outage each gateway enforces it
	// locally, and what is allowed then is not synced to Redis afterwards.
	GCRA Algorithm = "gcra"
)

// OnOutage selects what happens while Redis is unavailable.
type OnOutage string

// Values of OnOutage.
const (
	// OnOutageLocal enforces limits on each gateway by its local window.
	OnOutageLocal OnOutage = "local"
	// OnOutageDeny returns ErrUnavailable.
	OnOutageDeny OnOutage = "deny"
	// OnOutageAllow allows every request and counts it.
	OnOutageAllow OnOutage = "allow"
)

// Defaults of Options.
const (
	DefaultPrefix        = "gatehouse:limit:"
	defaultTimeout       = 50 * time.Millisecond
	defaultMaxFailures   = 3
	defaultProbeInterval = time.Second
	defaultMaxEntries    = 65536
)

// Options configure a Limiter. The zero value selects the defaults.
type Options struct {
	// Algorithm is Exact or GCRA. Default: Exact.
	Algorithm Algorithm

	// OnOutage is OnOutageLocal, OnOutageDeny or OnOutageAllow. Default: OnOutageLocal.
	OnOutage OnOutage

	// Prefix is the prefix of every key in Redis. It must not contain braces. Fleets that share limits must use the same
	// prefix. Default: DefaultPrefix.
	Prefix string

	// Timeout is how long a round trip to Redis may take, and how long a request may wait in the queue for one. A request
	// can therefore wait for almost twice as long. As soon as round trips fail, none waits longer than Timeout in total.
	// Default: 50ms.
	Timeout time.Duration

	// MaxFailures is the number of consecutive failed round trips after which Redis is unavailable. Redis is also
	// unavailable after at least half of 20 or more round trips within 10 s failed. Default: 3.
	MaxFailures int

	// ProbeInterval is the interval of background probes while Redis is unavailable. Default: 1s.
	ProbeInterval time.Duration

	// MaxEntries bounds the local windows of each policy (with GCRA, of all policies together). Above the bound, windows with
	// the lowest share of their limit in use are evicted first; with GCRA, those used least. While Redis is available,
	// eviction loses nothing. During an outage, requests that an evicted window had counted no longer count. Default: 65,536.
	MaxEntries int

	// Now is the clock of the local windows. Only differences between its times matter; the monotonic clock is used if they
	// have one. Default: time.Now.
	Now func() time.Time

	// OnEvent, if set, is called when an outage begins or ends, and for similar events. Calls may be concurrent, and never
	// delay a request.
	OnEvent func(Event)
}

// EventKind is the kind of an Event.
type EventKind string

// Values of EventKind.
const (
	// EventUnavailable is the beginning of an outage: Options.OnOutage decides from now on.
	EventUnavailable EventKind = "unavailable"
	// EventShared is the end of an outage: limits are shared by the fleet again.
	EventShared EventKind = "shared"
	// EventDataLost means that Redis lost requests that it had stored. Each gateway sends its own again.
	EventDataLost EventKind = "data_lost"
	// EventOverloaded means that most requests of the last ProbeInterval were decided locally although Redis is available,
	// because it did not respond in time. EventOverloadEnded is the end of that.
	EventOverloaded    EventKind = "overloaded"
	EventOverloadEnded EventKind = "overload_ended"
)

// Event reports a change that operators should know about.
type Event struct {
	Kind EventKind
	// Cause is the failure that began the outage. It may contain the address of Redis.
	Cause error
	// Shard is the shard that the outage concerns, from 0 to Shards-1. A Redis that is not a Cluster has only one.
	Shard, Shards int
	// Duration is how long the outage lasted, and Synced the number of requests that this gateway synced after it. They are
	// set if Kind is EventShared.
	Duration time.Duration
	Synced   int
}

func (o *Options) emit(e Event) {
	if o.OnEvent != nil {
		o.OnEvent(e)
	}
}

func (o *Options) complete() error {
	o.Algorithm = cmp.Or(o.Algorithm, Exact)
	o.OnOutage = cmp.Or(o.OnOutage, OnOutageLocal)
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.MaxFailures = cmp.Or(o.MaxFailures, defaultMaxFailures)
	o.ProbeInterval = cmp.Or(o.ProbeInterval, defaultProbeInterval)
	o.MaxEntries = cmp.Or(o.MaxEntries, defaultMaxEntries)
	if o.Now == nil {
		o.Now = time.Now
	}
	switch {
	case o.Algorithm != Exact && o.Algorithm != GCRA:
		return fmt.Errorf("invalid algorithm %q: must be %q or %q", o.Algorithm, Exact, GCRA)
	case o.OnOutage != OnOutageLocal && o.OnOutage != OnOutageDeny && o.OnOutage != OnOutageAllow:
		return fmt.Errorf("invalid on_outage %q: must be %q, %q or %q", o.OnOutage, OnOutageLocal, OnOutageDeny, OnOutageAllow)
	case strings.ContainsAny(o.Prefix, "{}"):
		return fmt.Errorf("invalid prefix %q: must not contain braces, which would determine the Cluster slot", o.Prefix)
	case o.Timeout < 0:
		return fmt.Errorf("invalid timeout %v: must not be negative", o.Timeout)
	case o.MaxFailures < 0:
		return fmt.Errorf("invalid number of failures %d: must not be negative", o.MaxFailures)
	case o.ProbeInterval < 0:
		return fmt.Errorf("invalid probe interval %v: must not be negative", o.ProbeInterval)
	case o.MaxEntries < 0:
		return fmt.Errorf("invalid number of entries %d: must not be negative", o.MaxEntries)
	}
	return nil
}

// obeysDeadlines reports whether the client respects context deadlines, as far as its type allows to find out.
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
