package vault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/vault/api"
)

const (
	// The waits between sign-ins that fail: they double, and half of each is left to chance, so that a fleet whose
	// Vault is back does not come all at once.
	minBackoff = 250 * time.Millisecond
	maxBackoff = 4 * time.Second

	// forceInterval is how often a refused request may cause a sign-in: the token was revoked, or else the policy
	// simply does not allow it, which no sign-in helps against.
	forceInterval = 10 * time.Second

	// minHold is how long a token that was given, and not made by a sign-in, is kept before it is looked at again.
	minHold = time.Second
)

// session is what a sign-in has made possible. But for ends it does not change once others see it.
type session struct {
	client  *api.Client // with the token
	version int         // of the KV engine
	grant   grant
	ends    time.Time // when the token ends, as far as is known; zero: never. Under Source.mu
}

// run keeps the source signed in.
func (s *Source) run(ctx context.Context) {
	defer close(s.done)
	backoff := minBackoff
	for {
		next, err := s.signIn(ctx)
		if ctx.Err() != nil {
			if next != nil {
				s.signOff(ctx, next)
			}
			break
		}
		old := s.settle(next, err)
		if err != nil {
			s.event(Event{Kind: EventLoginFailed, Err: err})
			if !s.pause(ctx, jittered(backoff)) {
				break
			}
			backoff = min(2*backoff, maxBackoff)
			continue
		}
		s.event(Event{Kind: EventLogin, TTL: next.grant.ttl})
		backoff = minBackoff
		if old != nil && old.grant.token != next.grant.token {
			s.signOff(ctx, old)
		}
		if !s.hold(ctx, next) {
			break
		}
	}
	s.mu.Lock()
	last := s.session
	s.session, s.failure = nil, errClosed
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	if last != nil {
		s.signOff(ctx, last)
	}
}

// signIn signs in and finds out what look-ups need to know.
func (s *Source) signIn(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.o.Timeout) // it takes two requests
	defer cancel()
	// A certificate is shown when a connection is made, and may have been replaced since.
	if s.o.Auth.Cert != nil {
		s.transport.CloseIdleConnections()
	}
	client := s.base.WithNamespace(s.o.Namespace)
	began := time.Now()
	granted, err := s.login(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("signing in to Vault: %w", readable(err))
	}
	client.SetToken(granted.token)
	next := &session{client: client, grant: granted}
	if granted.ttl > 0 {
		next.ends = began.Add(granted.ttl)
	}
	if next.version, err = engineVersion(ctx, client, s.o.Mount, s.o.KVVersion); err != nil {
		s.signOff(ctx, next)
		return nil, fmt.Errorf("signing in to Vault: %w", readable(err))
	}
	return next, nil
}

// settle makes the outcome of a sign-in known and returns the session before.
func (s *Source) settle(next *session, err error) (old *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old = s.session
	if err == nil {
		s.session = next
	}
	s.failure, s.forced = err, false
	select {
	case <-s.again: // this was it
	default:
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return old
}

// signOff revokes a token that was made for the source, so that none is left behind in Vault. If it cannot be, it ends
// by itself.
func (s *Source) signOff(ctx context.Context, old *session) {
	if !old.grant.ours {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(s.o.Timeout, time.Second))
	defer cancel()
	_ = old.client.Auth().Token().RevokeSelfWithContext(ctx, "")
}

// hold renews the session's token for as long as that is possible, and returns true when it is time to sign in anew.
// The session stays in use until then and on, until there is a new one.
func (s *Source) hold(ctx context.Context, current *session) bool {
	whole, ttl := current.grant.ttl, current.grant.ttl
	for {
		if ttl > 0 {
			// Between 60 and 70 percent of its time, so that a fleet that was started at once does not renew at once.
			in := time.Duration(float64(ttl) * (0.6 + 0.1*rand.Float64())) //nolint:gosec // not for security
			if !current.grant.ours {
				in = max(in, minHold)
			}
			timer := time.NewTimer(in)
			select {
			case <-ctx.Done():
				timer.Stop()
				return false
			case <-s.again:
				timer.Stop()
				return true
			case <-timer.C:
			}
		} else {
			select {
			case <-ctx.Done():
				return false
			case <-s.again:
				return true
			}
		}
		if !current.grant.renewable {
			return true
		}
		renewed, err := s.renew(ctx, current, time.Now().Add(ttl-time.Duration(0.7*float64(ttl))))
		if err != nil {
			return ctx.Err() == nil
		}
		// When the token nears the longest that it may live, each renewal brings less. A token that is to be used as
		// long as possible is held on to; otherwise a new one costs no more.
		if renewed <= 0 || current.grant.ours && renewed < whole/2 {
			return true
		}
		ttl = renewed
	}
}

// renew tries until it works, Vault refuses, or the token has ended.
func (s *Source) renew(ctx context.Context, current *session, ends time.Time) (time.Duration, error) {
	backoff := minBackoff
	for {
		began := time.Now()
		secret, err := s.renewOnce(ctx, current)
		if err == nil && (secret == nil || secret.Auth == nil) {
			err = errors.New("no token in the answer")
		}
		if err == nil {
			ttl := time.Duration(secret.Auth.LeaseDuration) * time.Second
			s.prolong(current, began.Add(ttl))
			s.event(Event{Kind: EventRenewed, TTL: ttl})
			return ttl, nil
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		err = fmt.Errorf("renewing the token: %w", readable(err))
		s.event(Event{Kind: EventRenewalFailed, Err: err})
		if status := statusOf(err); status >= 400 && status < 429 {
			return 0, err
		}
		if !s.pause(ctx, min(jittered(backoff), time.Until(ends))) || !time.Now().Before(ends) {
			return 0, err
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

func (s *Source) renewOnce(ctx context.Context, current *session) (*api.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	return current.client.Auth().Token().RenewSelfWithContext(ctx, 0)
}

// prolong notes that the token lives longer.
func (s *Source) prolong(current *session, ends time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	current.ends = ends
}

// acquire returns the current session. Before the first sign-in has ended it waits for that.
func (s *Source) acquire(ctx context.Context) (*session, error) {
	s.mu.Lock()
	session, failure, changed := s.session, s.failure, s.changed
	s.mu.Unlock()
	if session == nil && failure == nil {
		select {
		case <-ctx.Done():
			return nil, unavailable(context.Cause(ctx))
		case <-changed:
		}
		s.mu.Lock()
		session, failure = s.session, s.failure
		s.mu.Unlock()
	}
	if session == nil {
		return nil, unavailable(failure)
	}
	return session, nil
}

// replace asks for a sign-in because a request of the session was refused, and waits for its end. It returns nil if
// there is no new session to try with.
func (s *Source) replace(ctx context.Context, refused *session, why error) *session {
	s.mu.Lock()
	if s.session == nil || s.session.grant.token != refused.grant.token {
		defer s.mu.Unlock()
		return s.session
	}
	now := time.Now()
	ask := !s.forced && !now.Before(s.forceAt)
	if ask {
		s.forced, s.forceAt = true, now.Add(forceInterval)
	}
	forced, changed := s.forced, s.changed
	s.mu.Unlock()
	if !forced {
		return nil
	}
	if ask {
		s.event(Event{Kind: EventDenied, Err: why})
		select {
		case s.again <- struct{}{}:
		default:
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case <-changed:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil || s.session == nil {
		return nil
	}
	return s.session
}

// pause waits, less long if a sign-in is asked for. It returns false when the source is closed.
func (s *Source) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-s.again:
	case <-timer.C:
	}
	return true
}

// jittered leaves half of d to chance.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2) } //nolint:gosec // not for security
