package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxBuckets is how many buckets one Take may charge.
const MaxBuckets = 8

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
	// is Refuse. It wraps the cause, which may name Redis's address: for the log,
	// not for a caller.
	ErrUnavailable = errors.New("rate limits unavailable")

	// ErrClosed is returned after Fleet.Close.
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
		return fmt.Errorf("%w %q: %d requests, allowed are 1 to %d", ErrInvalid, l.Name, l.Requests, MaxRequests)
	case l.Window < MinWindow || l.Window > MaxWindow || l.Window%time.Microsecond != 0:
		return fmt.Errorf("%w %q: window %v, allowed are %v to %v in whole microseconds",
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

// Decider says who came to a verdict.
type Decider string

// The deciders.
const (
	// ByRedis is the shared verdict of the fleet.
	ByRedis Decider = "redis"
	// ByLocal is this gateway's own verdict because Redis could not be asked.
	ByLocal Decider = "local"
	// ByMemory is a refusal for which Redis was not asked: it had refused this
	// bucket until a moment that has not come yet, or the admissions of this
	// gateway alone fill the limit.
	ByMemory Decider = "memory"
)

// State is a bucket after the verdict.
type State struct {
	Limit Limit
	// Remaining is how many more requests the bucket would admit now. Where
	// Result.By is ByMemory or ByLocal it knows of this gateway's admissions only.
	Remaining int
	// Reset is the time until the next unit comes back; Limit.Window if nothing
	// is used.
	Reset time.Duration
	// RetryAfter is the time until the bucket admits one request again; 0 if it
	// would have admitted this one.
	RetryAfter time.Duration
}

// Result is the verdict on a request. Whoever only wants to observe (a shadow
// mode) lets the request pass and reports Allowed; a refused request is not
// counted anywhere.
type Result struct {
	Allowed bool
	// States has one entry for each bucket, in their order.
	States []State
	// RetryAfter is the time until all refusing buckets admit one; 0 if Allowed.
	RetryAfter time.Duration
	By         Decider
}

// Limiter decides whether a request may pass.
type Limiter interface {
	// Take charges every bucket by one or none at all. group names the Redis
	// Cluster slot that the buckets share; a bucket is always used with the same
	// group. An error means that there is no verdict: the context was cancelled,
	// or one of ErrInvalid, ErrUnavailable and ErrClosed.
	Take(ctx context.Context, group string, buckets ...Bucket) (Result, error)
	// Peek says what Take would, charging nothing.
	Peek(ctx context.Context, group string, buckets ...Bucket) (Result, error)
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

// finish derives the verdict from the states.
func (r *Result) finish(by Decider) {
	r.By = by
	r.RetryAfter = 0
	for _, s := range r.States {
		r.RetryAfter = max(r.RetryAfter, s.RetryAfter)
	}
	r.Allowed = r.RetryAfter == 0
}
