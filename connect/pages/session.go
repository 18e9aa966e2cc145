package pages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/internal/versioned"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
)

// call runs Redis commands with a timeout. doing describes them in the error.
func call(ctx context.Context, doing string, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// session is the session of a signed-in user.
type session struct {
	id      string // the cookie's value, and the secret of form tokens
	account account.Account
}

// token returns a form token.
func (s *session) token(purpose string) string { return newToken(s.id, purpose) }

// store keeps sessions, known devices and attempts in Redis:
//
//	{prefix}session:{sha256 of the id}  a record, until the idle timeout or the maximum age
//	{prefix}sessions:{account id}       the account's generation; sessions of another one have ended
//	{prefix}devices:{account digest}    digests of the account's known devices, newest first
//	{prefix}sign-in:…, {prefix}keys:…   sorted set of attempt IDs within the window, by time
//
// They may be in different Cluster slots, so every command uses only one key.
type store struct {
	o       Options
	attempt *redis.Script
}

// record is a session as it is stored in Redis.
type record struct {
	Issuer     string `json:"issuer,omitempty"` // "" in sessions of earlier versions, which end within SessionMax
	AccountID  string `json:"account_id"`
	BusinessID string `json:"business_id"`
	Generation string `json:"generation"`
	Started    int64  `json:"started"`           // Unix time in milliseconds
	Devices    string `json:"devices,omitempty"` // accountDigest of the address as typed; see knownDevice
}

func (s *store) sessionKey(id string) string         { return s.o.Prefix + "session:" + digest(id) }
func (s *store) generationKey(account string) string { return s.o.Prefix + "sessions:" + account }
func (s *store) devicesKey(digest string) string     { return s.o.Prefix + "devices:" + digest }

// keepGeneration is the TTL of a generation, which must exceed that of its sessions.
func (s *store) keepGeneration() time.Duration { return s.o.SessionMax + time.Hour }

// startSession begins a session and returns its ID.
func (s *store) startSession(ctx context.Context, a account.Account, email string) (id string, err error) {
	// Each command is idempotent, because a Redis client with retries sends it again if its reply is lost.
	err = call(ctx, "beginning a session", func(ctx context.Context) error {
		key := s.generationKey(a.ID)
		if err := s.o.Redis.SetNX(ctx, key, newRandom(), s.keepGeneration()).Err(); err != nil {
			return err
		}
		generation, err := s.o.Redis.GetEx(ctx, key, s.keepGeneration()).Result()
		if err != nil {
			return err
		}
		value, err := versioned.Encode(record{
			Issuer: s.o.OAuth.Issuer(), AccountID: a.ID, BusinessID: a.BusinessID, Generation: generation,
			Started: s.o.Now().UnixMilli(), Devices: accountDigest(email),
		})
		if err != nil {
			return err
		}
		id = newRandom()
		return s.o.Redis.Set(ctx, s.sessionKey(id), value, min(s.o.SessionIdle, s.o.SessionMax)).Err()
	})
	return id, err
}

// findSession returns a session's record and restarts its idle timeout. ok is false if this issuer has no such session.
func (s *store) findSession(ctx context.Context, id string) (rec record, ok bool, err error) {
	if !wellFormed(id) {
		return record{}, false, nil
	}
	err = call(ctx, "looking up a session", func(ctx context.Context) error {
		value, err := s.o.Redis.Get(ctx, s.sessionKey(id)).Bytes()
		if err != nil {
			return err
		}
		switch err := versioned.Decode(value, &rec); {
		case errors.Is(err, versioned.ErrLater):
			return err
		case err != nil:
			return redis.Nil
		case rec.Issuer != "" && rec.Issuer != s.o.OAuth.Issuer():
			return nil // it stays valid there
		}
		generation, err := s.o.Redis.Get(ctx, s.generationKey(rec.AccountID)).Result()
		if err != nil {
			return err
		}
		left := time.UnixMilli(rec.Started).Add(s.o.SessionMax).Sub(s.o.Now())
		if left <= 0 || generation != rec.Generation {
			return redis.Nil
		}
		ok = true
		return s.o.Redis.PExpire(ctx, s.sessionKey(id), min(s.o.SessionIdle, left)).Err()
	})
	if errors.Is(err, redis.Nil) {
		return record{}, false, s.endSession(ctx, id)
	}
	return rec, ok && err == nil, err
}

// endSession ends a session, if it exists.
func (s *store) endSession(ctx context.Context, id string) error {
	if !wellFormed(id) {
		return nil
	}
	return call(ctx, "ending a session", func(ctx context.Context) error { return s.o.Redis.Del(ctx, s.sessionKey(id)).Err() })
}

// endSessions removes the known devices of rec's account and ends its sessions, also those being started concurrently. The sessions
// end last, because the user needs one to try again if this fails.
func (s *store) endSessions(ctx context.Context, rec record) error {
	return call(ctx, "ending an account's sessions", func(ctx context.Context) error {
		if err := s.o.Redis.Del(ctx, s.devicesKey(rec.Devices)).Err(); err != nil {
			return err
		}
		return s.o.Redis.Del(ctx, s.generationKey(rec.AccountID)).Err() // which works while Redis's memory is full
	})
}

// session returns the request's session, or nil if there is none. Its error is a *pageError.
func (p *Pages) session(r *http.Request) (*session, error) {
	ctx := r.Context()
	id := p.cookies.get(r, sessionCookie)
	rec, ok, err := p.store.findSession(ctx, id)
	var a account.Account
	if ok {
		a, err = p.o.Accounts.Account(ctx, rec.AccountID)
	}
	switch {
	case errors.Is(err, account.ErrUnknown):
		err = p.store.endSessions(ctx, rec)
	case !ok, err != nil:
	case a.BusinessID != rec.BusinessID:
		err = p.store.endSession(ctx, id)
	default:
		requestlog.From(ctx).Add(func(f *requestlog.Fields) { f.BusinessID = a.BusinessID })
		return &session{id: id, account: a}, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	return nil, nil
}

// check returns an error page unless the form has a valid token for purpose. link is the URL of the page with the form.
func (s *session) check(r *http.Request, purpose, link string) error {
	if checkToken(s.id, purpose, r.PostForm.Get(tokenField)) {
		return nil
	}
	return forged(nil).withLink(link, "Open the page again")
}

// forAccount returns a handler for signed-in users or, unless what is "", for owners only: see ownerOnly.
func (p *Pages) forAccount(what string, serve func(http.ResponseWriter, *http.Request, *session) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		s, err := p.signedIn(w, r, r.URL.Path)
		if err == nil && what != "" {
			err = ownerOnly(s.account, what)
		}
		if err != nil {
			return err
		}
		return serve(w, r, s)
	}
}

// signedIn returns the request's session, or else an error that redirects to the sign-in page, which then redirects to back. The page says
// that a form of a session that has ended changed nothing.
func (p *Pages) signedIn(w http.ResponseWriter, r *http.Request, back string) (*session, error) {
	s, err := p.session(r)
	switch {
	case err != nil || s != nil:
		return s, err
	case r.Method == http.MethodPost:
		return nil, p.done(w, noticeSessionEnded, signInURL(back))
	}
	return nil, &redirectError{to: signInURL(back)}
}
