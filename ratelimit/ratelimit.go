package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/script"
)

// MaxBuckets is how many buckets one request may be charged to.
const MaxBuckets = script.MaxBuckets

// Bounds of a Limit.
const (
	MaxRequests = 1<<24 - 1
	MinWindow   = time.Millisecond
	MaxWindow   = 10 * 24 * time.Hour
)

var (
	// ErrInvalid is returned for a limit outside the bounds, for no bucket, for
	// more than MaxBuckets and for the same bucket twice. Nothing was charged.
	ErrInvalid = errors.New("invalid limit")

	// ErrUnavailable is returned when Redis cannot be asked and Options.OnOutage
	// is Deny. It wraps the cause, which may name Redis's address: for the log,
	// not for a caller.
	ErrUnavailable = errors.New("rate limits unavailable")

	// ErrClosed is returned after Limiter.Close.
	ErrClosed = errors.New("rate limiter closed")
)

// Limit is a rule: in no span of Window are more than Requests admitted (with
// Algorithm GCRA: a burst of Requests, refilled over Window).
type Limit struct {
	// Name is the policy's name in the response headers, for example "key". Names
	// are few and chosen by the operator, never by a caller. Two limits of
	// different names or windows never share a bucket, whatever its key.
	Name string
	// Requests is from 1 to MaxRequests. It may differ from call to call for the
	// same bucket (an override): what was admitted before keeps counting.
	Requests int
	// Window is from MinWindow to MaxWindow, in whole microseconds.
	Window time.Duration
}

func (l Limit) validate() error {
	switch {
	case l.Name == "":
		return fmt.Errorf("%w: it has no name", ErrInvalid)
	case l.Requests < 1 || l.Requests > MaxRequests:
		return fmt.Errorf("%w %q: %d requests, must be 1 to %d", ErrInvalid, l.Name, l.Requests, MaxRequests)
	case l.Window < MinWindow || l.Window > MaxWindow || l.Window%time.Microsecond != 0:
		return fmt.Errorf("%w %q: window %v, must be %v to %v in whole microseconds",
			ErrInvalid, l.Name, l.Window, MinWindow, MaxWindow)
	}
	return nil
}

// Bucket is what a request is counted in.
type Bucket struct {
	// Key says whose budget it is. It is opaque and may hold text that a caller
	// controls: only its hash travels and is kept.
	Key   string
	Limit Limit
}

// Decider says where a result comes from.
type Decider string

// The deciders.
const (
	// ByRedis is the shared decision of the fleet.
	ByRedis Decider = "redis"
	// ByLocal is this gateway's own decision because Redis could not be asked, or did not answer in time.
	ByLocal Decider = "local"
	// ByMemory is a denial for which Redis was not asked: it had denied this bucket until a moment that has not come yet, or
	// the requests that this gateway alone has allowed fill the limit.
	ByMemory Decider = "memory"
)

// State is a bucket after the decision.
type State struct {
	Limit Limit
	// Remaining is how many more requests the bucket would admit now. Where Result.By is ByMemory or ByLocal it knows of this
	// gateway's requests only.
	Remaining int
	// Reset is the time until the next unit comes back; Limit.Window if nothing is used.
	Reset time.Duration
	// RetryAfter is the time until the bucket admits one request again; 0 if it would have admitted this one. Limits of which
	// this gateway decides by itself can admit one up to Options.Timeout later.
	RetryAfter time.Duration
}

// Result is the decision about a request. To observe only (a shadow mode), let the request pass and report Allowed. A denied request is not counted anywhere, unless Redis did not answer and may have counted it.
type Result struct {
	Allowed bool
	// States has one entry for each bucket, in their order.
	States []State
	// RetryAfter is the time until all denying buckets admit one; 0 if Allowed.
	RetryAfter time.Duration
	By         Decider
}

// Limiter decides whether a request may pass, for a fleet of gateways that share a Redis. Its methods may be called from many
// goroutines.
type Limiter interface {
	// Allow charges every bucket by one or none at all. group names the Redis Cluster slot that the buckets share; a bucket is
	// always used with the same group. An error means that there is no decision: the context was cancelled, or one of
	// ErrInvalid, ErrUnavailable and ErrClosed.
	Allow(ctx context.Context, group string, buckets ...Bucket) (Result, error)
	// Peek says what Allow would, charging nothing.
	Peek(ctx context.Context, group string, buckets ...Bucket) (Result, error)
	// Ping tries out every part of Redis, as it is done after an outage, and says what keeps the shared limits from working,
	// if anything does. It waits until ctx is done or the client gives up, whatever Options.Timeout.
	Ping(ctx context.Context) error
	// Unavailable is the cause of an outage that Redis, or a part of it, is in; nil if there is none.
	Unavailable() error
	// Stats returns figures.
	Stats() Stats
	// KeyName is the bucket's key in Redis, for whoever has to look one up.
	KeyName(group string, b Bucket) string
	// Close ends the background work and waits for it. It does not close the client.
	Close() error
}

// Stats are a Limiter's figures since its beginning, and its state.
type Stats struct {
	// Asked is the number of requests that Redis was asked about, and RoundTrips in how many round trips.
	Asked, RoundTrips uint64
	// Outages is how often Redis, or a part of it, became unavailable; Down how many of its Parts are unavailable now.
	Outages     uint64
	Down, Parts int
	// Losses is how often Redis was found to have lost data.
	Losses uint64
	// Entries is the number of local windows, and Evicted how many were forgotten for want of room.
	Entries int
	Evicted uint64
	// Queue is how many requests wait for a round trip now. Waited is for how long Waits requests have waited, altogether.
	Queue  int
	Waits  uint64
	Waited time.Duration
}

// New returns a Limiter on a client, which stays the caller's to close, after the Limiter. It asks nothing yet: an
// unreachable Redis is an outage like any other (see Limiter.Ping). A client that does not obey the deadlines of contexts is
// an error; see TuneClient.
func New(client redis.UniversalClient, o Options) (Limiter, error) {
	if client == nil {
		return nil, errors.New("rate limits need a Redis client")
	}
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("rate limits: %w", err)
	}
	if !obeysDeadlines(client) {
		return nil, errors.New("rate limits: the Redis client ignores the deadlines of contexts: set ContextTimeoutEnabled")
	}
	if o.Algorithm == GCRA {
		return newGCRA(client, o), nil
	}
	return newExact(storeOf(client), o), nil
}

// Tightest is the state that a caller has to heed: of a refusal the one that
// lasts longest, else the one with the least remaining. It is the zero State if
// there are none.
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
