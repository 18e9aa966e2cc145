package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/script"
)

// MaxCounters is the maximum number of counters of a request.
const MaxCounters = script.MaxCounters

// Bounds of a Limit.
const (
	MaxRequests = 1<<24 - 1
	MinWindow   = time.Millisecond
	MaxWindow   = 10 * 24 * time.Hour
)

var (
	// ErrInvalid is returned for a limit out of bounds, and for no counters, more than MaxCounters or the same counter twice.
	// Nothing was counted.
	ErrInvalid = errors.New("invalid limit")

	// ErrUnavailable is returned if Redis is unavailable and Options.OnOutage is OnOutageDeny. It wraps the cause, which may
	// contain the address of Redis and must not be shown to callers.
	ErrUnavailable = errors.New("rate limits unavailable")

	// ErrClosed is returned after Limiter.Close.
	ErrClosed = errors.New("rate limiter closed")
)

// Limit is the maximum number of requests in any interval of length Window. With Algorithm GCRA it is a burst that refills
// over Window.
type Limit struct {
	// Name identifies the policy in response headers, for example "key", in printable ASCII. Names must come from the
	// operator, never from a caller, and there may be at most 64. Limits with different names or windows never share a
	// counter.
	Name string
	// Requests is from 1 to MaxRequests. It may change between calls for the same counter: requests that were allowed before
	// still count.
	Requests int
	// Window is from MinWindow to MaxWindow, in whole microseconds.
	Window time.Duration
}

func (l Limit) validate() error {
	switch {
	case l.Name == "":
		return fmt.Errorf("%w: missing name", ErrInvalid)
	case strings.ContainsFunc(l.Name, func(r rune) bool { return r < ' ' || r > '~' }):
		return fmt.Errorf("%w %q: the name must be printable ASCII", ErrInvalid, l.Name)
	case l.Requests < 1 || l.Requests > MaxRequests:
		return fmt.Errorf("%w %q: invalid number of requests %d: must be from 1 to %d", ErrInvalid, l.Name, l.Requests, MaxRequests)
	case l.Window < MinWindow || l.Window > MaxWindow || l.Window%time.Microsecond != 0:
		return fmt.Errorf("%w %q: invalid window %v: must be from %v to %v in whole microseconds",
			ErrInvalid, l.Name, l.Window, MinWindow, MaxWindow)
	}
	return nil
}

// Counter counts the requests of one rate limit key under one limit.
type Counter struct {
	// Key identifies who the request counts against. It may contain text controlled by a caller: only its hash is stored or
	// sent.
	Key   string
	Limit Limit
}

// Decider says where a decision was made.
type Decider string

// Values of Decider.
const (
	// ByRedis is a decision of Redis for the whole fleet.
	ByRedis Decider = "redis"
	// ByLocal is a decision of this gateway alone, because Redis was unavailable or did not respond in time.
	ByLocal Decider = "local"
	// ByMemory is a denial without a round trip to Redis: Redis denied the counter earlier and the retry time has not come,
	// or the local window is full.
	ByMemory Decider = "memory"
)

// State is the state of a counter after the decision.
type State struct {
	Limit Limit
	// Remaining is the number of further requests that would be allowed now. If Result.By is ByMemory or ByLocal, it takes
	// only this gateway's requests into account.
	Remaining int
	// Reset is the time until Remaining next increases; Limit.Window if no request is counted.
	Reset time.Duration
	// RetryAfter is the time until the counter allows another request; 0 if it did not deny this one. With ByLocal, the
	// actual time can be up to Options.Timeout longer.
	RetryAfter time.Duration
}

// Result is the decision about a request. To observe limits without enforcing them, ignore Allowed. A denied request is not
// counted, unless Redis did not respond and may have counted it.
type Result struct {
	Allowed bool
	// States has one entry for each counter, in the order of the arguments.
	States []State
	// RetryAfter is the time until all counters allow another request; 0 if Allowed.
	RetryAfter time.Duration
	By         Decider

	// Accepted is the ID of the request that AllowOnce accepted with this request's MAC: its own, or that of the request before
	// which this one repeats. It is zero if this is not known: if Redis did not decide, or by its clock after Once.Until, and with GCRA.
	Accepted [IDSize]byte
}

// IDSize is the length of a request's ID, in bytes.
const IDSize = script.IDSize

// Once identifies a request that must be accepted only once.
type Once struct {
	// MAC is the same for each repetition of the request, and for no other: a part of its signature's bytes.
	MAC [16]byte
	// ID differs from those of all other requests, repetitions included. It must not be zero.
	ID [IDSize]byte
	// Until, in whole seconds, is the same for each repetition too. Redis remembers the request until then, and accepts it until a second
	// before, so that its clock alone decides, however long a gateway keeps a repetition back.
	Until time.Time
}

// Limiter decides whether requests may pass. It is safe for concurrent use.
type Limiter interface {
	// Allow counts the request in all counters or in none. All counters of a group are stored in the same Redis Cluster slot;
	// a counter must always be used with the same group. An error means that there is no decision: ctx was cancelled, or the
	// error is ErrInvalid, ErrUnavailable or ErrClosed.
	Allow(ctx context.Context, group string, counters ...Counter) (Result, error)
	// AllowOnce is Allow for a request that must be accepted only once. Redis remembers it, unless it is denied or forgotten.
	// A repetition is counted. The caller must deny requests for which Result.Accepted is not their own ID.
	AllowOnce(ctx context.Context, group string, once Once, counters ...Counter) (Result, error)
	// Forget lets a request that AllowOnce has accepted, and that was not carried out, be accepted again. It forgets no other one with its
	// MAC. After an error, it may still be remembered.
	Forget(ctx context.Context, group string, once Once) error
	// Peek returns what Allow would, without counting the request.
	Peek(ctx context.Context, group string, counters ...Counter) (Result, error)
	// Ping checks that every shard of Redis can serve the limiter, and resyncs requests that Redis lost. It waits until ctx
	// is done or the client times out, regardless of Options.Timeout.
	Ping(ctx context.Context) error
	// Unavailable returns why Redis, or one of its shards, is unavailable; nil if none is.
	Unavailable() error
	// Stats returns the limiter's counters and gauges.
	Stats() Stats
	// Close stops the background goroutines and waits for them. It does not close the client.
	Close() error
}

// Stats holds counters since New, except for Queue.
type Stats struct {
	// RoundTrips is the number of round trips to Redis that decided about requests.
	RoundTrips uint64
	// Queue is the number of requests that wait for a round trip now. Waits counts requests that have waited, and Waited is
	// their total waiting time. With GCRA requests do not wait for each other, and all three are 0.
	Queue  int
	Waits  uint64
	Waited time.Duration
}

// New returns a Limiter that uses client. Close the client after the Limiter. New does not connect: an unreachable Redis is
// an outage like any other; see Limiter.Ping. New returns an error if the client ignores context deadlines
// (ContextTimeoutEnabled). With GCRA, a client that retries commands can count a request twice.
//
// After a failover, a [redis.ClusterClient] finds the new master only when it reloads its slot table: call ReloadState when a node
// cannot be reached, as the gateway's client does, or the outage lasts for up to a minute longer.
func New(client redis.UniversalClient, o Options) (Limiter, error) {
	if client == nil {
		return nil, errors.New("creating rate limiter: no Redis client given")
	}
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("creating rate limiter: %w", err)
	}
	if !obeysDeadlines(client) {
		return nil, errors.New("creating rate limiter: the Redis client ignores context deadlines: set ContextTimeoutEnabled")
	}
	if o.Algorithm == GCRA {
		return newGCRA(client, o), nil
	}
	return newExact(backendOf(client), o), nil
}

// Tightest returns the state that a caller has to respect: after a denial the one with the longest RetryAfter, otherwise the
// one with the fewest Remaining. Without any states it returns the zero State.
func (r Result) Tightest() State {
	var tightest State
	for i, s := range r.States {
		switch {
		case i == 0,
			s.RetryAfter > tightest.RetryAfter,
			s.RetryAfter == tightest.RetryAfter && s.Remaining < tightest.Remaining,
			s.RetryAfter == tightest.RetryAfter && s.Remaining == tightest.Remaining && s.Reset > tightest.Reset:
			tightest = s
		}
	}
	return tightest
}

// finish derives the decision from the states.
func (r *Result) finish(by Decider) {
	r.By = by
	r.RetryAfter = 0
	for _, s := range r.States {
		r.RetryAfter = max(r.RetryAfter, s.RetryAfter)
	}
	r.Allowed = r.RetryAfter == 0
}
