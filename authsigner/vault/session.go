package vault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/vault/api"
)

const (
	// The exponential backoff between failed logins. It has jitter, so that a fleet does not log in all at once when Vault
	// recovers.
	minBackoff = 250 * time.Millisecond
	maxBackoff = 4 * time.Second

	// forceInterval is the minimum time between logins caused by a 403, because a new login does not help if the policy denies
	// the request.
	forceInterval = 10 * time.Second

	// probedKey is read to find out whether a token may read keys. It need not exist.
	probedKey = "pk_live_login0000000"

	// minRenewInterval is the minimum time between renewals of a configured token.
	minRenewInterval = time.Second
)

// session is the result of a login. It is immutable except for ends and checked.
type session struct {
	client  *api.Client // with the token
	version int         // of the KV engine
	grant   grant
	ends    time.Time                 // expiry of the token, zero if none is known; guarded by Source.mu
	checked atomic.Pointer[time.Time] // when the KV engine still had this version
}

// run logs in, and keeps the source logged in.
func (s *Source) run(ctx context.Context) {
	backoff := minBackoff
	for {
		next, err := s.logIn(ctx)
		if ctx.Err() != nil {
			if next != nil {
				s.revoke(ctx, next)
			}
			break
		}
		old := s.publish(next, err)
		if err != nil {
			s.event(Event{Kind: EventLoginFailed, Err: err})
			if old != nil && old.renewalDue(time.Now()) {
				_, _ = s.renewOnce(ctx, old) // it stays in use until a login succeeds
			}
			if !s.pause(ctx, jittered(backoff)) {
				break
			}
			backoff = min(2*backoff, maxBackoff)
			continue
		}
		s.event(Event{Kind: EventLogin})
		backoff = minBackoff
		if old != nil && old.grant.token != next.grant.token {
			s.revoke(ctx, old)
		}
		if !s.keepAlive(ctx, next) {
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
		s.revoke(ctx, last)
	}
}

// probe asks Vault again after a failed request, because a gateway with few requests would not notice that the outage goes on, or has ended.
func (s *Source) probe(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(jittered(maxBackoff)):
		}
		if s.failed.Load() != nil {
			_, _ = s.find(ctx, probedKey)
		}
	}
}

// logIn logs in and reads the version of the KV engine.
func (s *Source) logIn(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*s.o.Timeout) // it takes up to three requests
	defer cancel()
	// Use a new connection to present a renewed client certificate.
	if s.o.Auth.Cert != nil {
		s.transport.CloseIdleConnections()
	}
	client := s.base.WithNamespace(s.o.Namespace)
	began := time.Now()
	granted, err := s.login(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("logging in to Vault: %w", readable(err))
	}
	client.SetToken(granted.token)
	next := &session{client: client, grant: granted}
	if granted.ttl > 0 {
		next.ends = began.Add(granted.ttl)
	}
	if next.version, err = engineVersion(ctx, client, s.o.Mount, s.o.KVVersion); err != nil {
		s.revoke(ctx, next)
		return nil, fmt.Errorf("logging in to Vault: %w", readable(err))
	}
	if granted.unknown {
		if _, err = s.read(ctx, next, probedKey); statusOf(err) == http.StatusForbidden {
			return nil, fmt.Errorf("logging in to Vault: the token is not valid or may not read keys: %w", readable(err))
		}
	}
	return next, nil
}

// publish stores the result of a login, wakes waiting requests, and returns the previous session.
func (s *Source) publish(next *session, err error) (old *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old = s.session
	if err == nil {
		s.session = next
	}
	s.failure, s.forced = err, false
	select {
	case <-s.again: // this login has fulfilled the request
	default:
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return old
}

// revoke revokes a token that the source has created. If that fails, the token expires by itself.
func (s *Source) revoke(ctx context.Context, old *session) {
	if !old.grant.ours {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(s.o.Timeout, time.Second))
	defer cancel()
	_ = old.client.Auth().Token().RevokeSelfWithContext(ctx, "")
}

// keepAlive renews the session's token as long as possible. It returns true when a new login is needed; the session stays in use
// until then. It returns false when the source is closed.
func (s *Source) keepAlive(ctx context.Context, current *session) bool {
	whole, ttl := current.grant.ttl, current.grant.ttl
	for {
		var due <-chan time.Time // never, if the token does not expire
		if ttl > 0 {
			// at 60 to 70 percent of the TTL, so that a fleet does not renew all at once
			in := time.Duration(float64(ttl) * (0.6 + 0.1*rand.Float64())) //nolint:gosec // not for security
			if !current.grant.ours {
				in = max(in, minRenewInterval)
			}
			due = time.After(in)
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.again:
			return true
		case <-due:
		}
		if !current.grant.renewable {
			return true
		}
		renewed, err := s.renew(ctx, current, time.Now().Add(ttl-time.Duration(0.7*float64(ttl))))
		if err != nil {
			return ctx.Err() == nil
		}
		// Near the token's maximum TTL, renewals get shorter. Then log in again, except with a configured token.
		if renewed <= 0 || current.grant.ours && renewed < whole/2 {
			return true
		}
		ttl = renewed
	}
}

// renew renews the token. It retries until Vault rejects the renewal, the token expires, or a login is requested.
func (s *Source) renew(ctx context.Context, current *session, ends time.Time) (time.Duration, error) {
	backoff := minBackoff
	for {
		ttl, err := s.renewOnce(ctx, current)
		if err == nil || ctx.Err() != nil {
			return ttl, err
		}
		if status := statusOf(err); status >= 400 && status < 429 {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-s.again:
			return 0, err
		case <-time.After(min(jittered(backoff), time.Until(ends))):
		}
		if !time.Now().Before(ends) {
			return 0, err
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// renewOnce tries once to renew the token, and returns its new TTL.
func (s *Source) renewOnce(ctx context.Context, current *session) (time.Duration, error) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	secret, err := current.client.Auth().Token().RenewSelfWithContext(limited, 0)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err == nil && (secret == nil || secret.Auth == nil) {
		err = errors.New("the response has no token")
	}
	if err != nil {
		err = fmt.Errorf("renewing the token: %w", readable(err))
		s.event(Event{Kind: EventRenewalFailed, Err: err})
		return 0, err
	}
	ttl := time.Duration(secret.Auth.LeaseDuration) * time.Second
	s.mu.Lock()
	current.ends = began.Add(ttl)
	s.mu.Unlock()
	s.event(Event{Kind: EventRenewed})
	return ttl, nil
}

// renewalDue reports whether the token should be renewed although a login is due: it is valid, and 60 percent of its TTL have passed,
// or it could end before the next login has failed.
func (c *session) renewalDue(now time.Time) bool {
	left := c.ends.Sub(now)
	return c.grant.renewable && left > 0 && left < max(c.grant.ttl*2/5, 2*maxBackoff)
}

// acquire returns the current session. It waits for the first login to succeed or fail.
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

// replace requests a new login after a 403, and waits for it. It returns nil if there is no new session.
func (s *Source) replace(ctx context.Context, denied *session, why error) *session {
	s.mu.Lock()
	if s.session != denied {
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

// pause waits for d, or until a login is requested. It returns false when the source is closed.
func (s *Source) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.again:
	case <-time.After(d):
	}
	return true
}

// jittered returns a random duration from d/2 to d.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2) } //nolint:gosec // not for security
