package ratelimit

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
)

// askGCRA asks redis_rate about each bucket in turn. Several buckets are looked
// at first and charged only if all would admit one; between the two another
// request may get ahead, and then the buckets before the one that refuses have
// been charged for nothing. Each question is a round trip of its own.
func (f *Fleet) askGCRA(ctx context.Context, l *lane, o *op, states []State, charge bool) error {
	done, err := l.breaker.Allow()
	if err != nil {
		return err
	}
	f.stats.asked.Add(1)
	inner, cancel := context.WithTimeout(ctx, f.o.Timeout)
	defer cancel()
	err = f.takeGCRA(inner, o, states, charge)
	switch {
	case err == nil:
		done(nil)
	case ctx.Err() != nil:
		done(errGone)
	default:
		l.cause.Store(&err)
		done(err)
	}
	return err
}

func (f *Fleet) takeGCRA(ctx context.Context, o *op, states []State, charge bool) error {
	if len(o.buckets) > 1 || !charge {
		refused := false
		for i := range o.buckets {
			if err := f.oneGCRA(ctx, o, i, 0, states); err != nil {
				return err
			}
			refused = refused || states[i].RetryAfter > 0
		}
		if refused || !charge {
			return nil
		}
	}
	for i := range o.buckets {
		if err := f.oneGCRA(ctx, o, i, 1, states); err != nil {
			return err
		}
		if states[i].RetryAfter > 0 {
			return nil
		}
	}
	return nil
}

func (f *Fleet) oneGCRA(ctx context.Context, o *op, i, n int, states []State) error {
	limit := o.buckets[i].Limit
	key := redisKey(f.o.Prefix, o.tag, limit.Name, &o.ids[i])
	rate := redis_rate.Limit{Rate: limit.Requests, Burst: limit.Requests, Period: limit.Window}
	interval := limit.Window / time.Duration(limit.Requests)
	f.stats.flights.Add(1)
	r, err := f.gcra.AllowN(ctx, key, rate, n)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what it is about
	}
	if r.ResetAfter > limit.Window+interval {
		if r, err = f.fillGCRA(ctx, key, rate); err != nil {
			return err
		}
	}
	states[i] = stateGCRA(limit, r.ResetAfter)
	if r.Allowed < n || n == 0 && states[i].Remaining == 0 {
		s := &states[i]
		s.Remaining = 0
		s.RetryAfter = max(time.Microsecond, r.ResetAfter-limit.Window+interval)
	}
	return nil
}

// fillGCRA makes a bucket that is further ahead of Redis's clock than it can be, because the clock was set back, a full
// one, of which the first unit is free after one interval. redis_rate would refuse until the clock is where it was.
func (f *Fleet) fillGCRA(ctx context.Context, key string, rate redis_rate.Limit) (*redis_rate.Result, error) {
	f.stats.flights.Add(2)
	if err := f.gcra.Reset(ctx, key); err != nil {
		return nil, err //nolint:wrapcheck // the caller says what it is about
	}
	r, err := f.gcra.AllowN(ctx, key, rate, rate.Burst)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what it is about
	}
	r.Allowed = 0 // to whoever asked
	return r, nil
}

// stateGCRA derives the state from how far ahead of the clock the bucket is: one
// interval for each unit that is used, the newest of them begun.
func stateGCRA(limit Limit, ahead time.Duration) State {
	s := State{Limit: limit, Remaining: limit.Requests, Reset: limit.Window}
	interval := limit.Window / time.Duration(limit.Requests)
	// redis_rate calculates in floating point seconds.
	if ahead -= time.Microsecond; ahead > 0 {
		used := int(ahead / interval)
		s.Remaining = max(0, limit.Requests-used-1)
		s.Reset = ahead - time.Duration(used)*interval + time.Microsecond
	}
	return s
}
