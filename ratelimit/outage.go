package ratelimit

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/script"
)

// decideOnOutage decides about a request as OnOutage says. With mayBeCounted, Redis may have counted it.
func (s *shard) decideOnOutage(r *request, cause error, mayBeCounted bool) {
	r.err = cause
	if s.limiter.o.OnOutage == OnOutageDeny && !mayBeCounted {
		r.cancel()
		return
	}
	r.decideLocally(s.limiter.o.OnOutage == OnOutageAllow, mayBeCounted, s.limiter.o.Timeout)
	s.unsynced.Store(true)
}

// decideLocally decides by the local windows, or, with force, allows the request. Pending requests count like allowed ones:
// a denial because of them lasts for retry, by when they have their replies. With mayBeCounted, Redis may have counted this
// request, so it is counted here even if it is denied.
func (r *request) decideLocally(force, mayBeCounted bool, retry time.Duration) {
	now := r.lock()
	defer r.unlock()
	r.by = ByLocal
	if !r.count {
		for i := range r.counters {
			r.states[i] = r.find(i, now).state(r.counters[i].Limit, now)
			if force {
				r.states[i].RetryAfter = 0
			}
		}
		return
	}
	r.clearPending(now)
	var windows [MaxCounters]*localWindow
	allowed := true
	for i := range r.counters {
		w := r.findOrCreate(i, now)
		windows[i] = w
		s := w.state(r.counters[i].Limit, now)
		if s.RetryAfter == 0 && w.Total()+int(w.pending) >= s.Limit.Requests {
			s.Remaining, s.RetryAfter = 0, retry
		}
		allowed = allowed && s.RetryAfter == 0
		r.states[i] = s
	}
	allowed = allowed || force
	for i, w := range windows[:len(r.counters)] {
		if allowed || mayBeCounted {
			w.add(now)
		}
		if allowed {
			r.states[i] = w.state(r.counters[i].Limit, now)
			r.states[i].RetryAfter = 0
		}
		r.dropIfIdle(i, w, now)
	}
}

// recoverFromOutage probes Redis until it is available and all requests are synced.
func (s *shard) recoverFromOutage() {
	l := s.limiter
	began, cause := time.Now(), s.breaker.Cause()
	s.synced.Store(0)
	s.emit(Event{Kind: EventUnavailable, Cause: cause})
	for shared := false; !shared; {
		// Jitter keeps the fleet's gateways from reconnecting at the same moment.
		if !l.sleep(l.o.ProbeInterval * time.Duration(90+s.random(20)) / 100) {
			return
		}
		s.syncing <- struct{}{}
		ctx, cancel := context.WithTimeout(l.ctx, l.o.Timeout)
		err := s.probeOnce(ctx)
		cancel()
		s.breaker.ProbeDone(err)
		if err == nil {
			// Requests are decided locally during a sync too, though fewer each time.
			for range 3 {
				if err = s.sync(false); err != nil || !s.unsynced.Load() {
					break
				}
			}
			s.breaker.SyncDone(err)
			if shared = err == nil; shared {
				s.emit(Event{Kind: EventShared, Cause: cause, Duration: time.Since(began), Synced: int(s.synced.Load())})
				_ = s.sync(true) // those decided during the last sync; on error they stay unsynced
			}
		}
		<-s.syncing
	}
}

// probeOnce checks that Redis can count requests, which a read-only replica, a lack of memory or a missing permission
// prevents. Then it checks for data loss.
func (s *shard) probeOnce(ctx context.Context) error {
	c := &script.Call{Number: s.limiter.nextNumber(), Count: true, N: 1}
	c.Counters[0] = s.probe
	runScript(ctx, s.syncRunner, []*script.Call{c})
	if c.Err != nil {
		return fmt.Errorf("running the script: %w", c.Err)
	}
	return s.checkForDataLoss(ctx)
}
