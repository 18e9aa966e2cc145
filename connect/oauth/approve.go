package oauth

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/internal/versioned"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// Fields of an authorization request in Redis, besides fieldState, which is "pending", "approved" or "denied".
const (
	fieldSecret      = "secret"       // digest of the secret in the request's ID
	fieldData        = "data"         // pending as JSON
	fieldClientState = "client_state" // the state parameter
)

// pending is an authorization request as it is stored in Redis.
type pending struct {
	Request

	Named     bool   `json:"named"` // redirect_uri was present, so the token request must repeat it
	State     string `json:"-"`     // in fieldClientState, because JSON escapes could take six bytes for one
	Requested string `json:"scopes"`
	Resource  string `json:"resource"`
	Challenge string `json:"challenge"`

	id       string // in keys of Redis; becomes that of the connection
	secret   []byte // the secret part of ID
	loopback bool   // the redirect URI is a loopback one
}

// setRedirectURI sets the redirect URI and the fields that are derived from it.
func (p *pending) setRedirectURI(raw string, u redirectURI) {
	p.RedirectURI, p.RedirectHost, p.RedirectLocal, p.loopback = raw, u.display(), u.local(), u.loopback != ""
}

// storeRequest stores a request until the user decides, and returns its ID.
func (s *Server) storeRequest(ctx context.Context, request *pending) (string, error) {
	data, err := versioned.Encode(*request)
	if err != nil {
		return "", err
	}
	id, secret := newID(), randomBytes(secretBytes)
	key := s.requestKey(id)
	err = s.command(ctx, "storing an authorization request", func(ctx context.Context) error {
		_, err := s.o.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, key, fieldSecret, digest(secret), fieldData, data, fieldClientState, request.State, fieldState, "pending")
			p.PExpire(ctx, key, requestLifetime)
			return nil
		})
		return err
	})
	return format(kindRequest, id, secret), err
}

// loadRequest reads a request, decided or not. Its errors are ErrNoRequest and ErrUnavailable.
func (s *Server) loadRequest(ctx context.Context, requestID string) (*pending, error) {
	id, secret, ok := parseToken(kindRequest, requestID, secretBytes)
	if !ok {
		return nil, ErrNoRequest
	}
	var values *redis.SliceCmd
	var left *redis.DurationCmd
	err := s.command(ctx, "reading an authorization request", func(ctx context.Context) error {
		_, err := s.o.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			key := s.requestKey(id)
			values = p.HMGet(ctx, key, fieldSecret, fieldData, fieldClientState)
			left = p.PTTL(ctx, key)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	text := texts(values.Val())
	if !constantTimeEqual(text(0), digest(secret)) {
		return nil, ErrNoRequest
	}
	h := &pending{id: id, secret: secret}
	switch err := versioned.Decode([]byte(text(1)), h); {
	case errors.Is(err, versioned.ErrLater):
		return nil, unavailable("reading an authorization request", err)
	case err != nil || h.Resource != s.resource:
		return nil, ErrNoRequest
	}
	u, err := parseRedirectURI(h.RedirectURI)
	scopes, unknown := s.o.Areas.Parse(h.Requested)
	if err != nil || unknown != nil {
		return nil, ErrNoRequest
	}
	h.setRedirectURI(h.RedirectURI, u)
	h.Scopes = scopes
	h.ID, h.State, h.ExpiresIn = requestID, text(2), max(0, left.Val())
	return h, nil
}

// Pending returns a request that waits for a decision. It also returns one that was decided less than a minute ago and whose code
// was not redeemed, so that submitting the form twice is harmless. Its errors are ErrNoRequest and ErrUnavailable.
func (s *Server) Pending(ctx context.Context, id string) (Request, error) {
	h, err := s.loadRequest(ctx, id)
	if err != nil {
		return Request{}, err
	}
	return h.Request, nil
}

// Approve grants the client a subset of the scopes that it requested, and returns the URL to redirect the user to. Until the code is
// redeemed or expires, another call by the same account returns the same URL, and the connection gets the scopes of the last one. Each
// call that changes something is audited. Its errors are ErrNotOwner, ErrScopes, ErrTooManyGrants, ErrNoRequest and ErrUnavailable, with
// ErrOutcomeUnknown if it may have been approved.
func (s *Server) Approve(ctx context.Context, id string, by account.Account, granted scope.Set) (redirect string, err error) {
	h, err := s.loadRequest(ctx, id)
	if err != nil {
		return "", err
	}
	e := s.decisionEntry(ctx, h, by, audit.ConnectionApproved)
	if !by.IsOwner() || by.ID == "" || by.BusinessID == "" {
		s.recordDenied(ctx, e, "Not an owner")
		return "", ErrNotOwner
	}
	if granted.IsZero() || !h.Scopes.Contains(granted) {
		return "", ErrScopes
	}
	if err := s.checkRoom(ctx, by.BusinessID); err != nil {
		if errors.Is(err, ErrTooManyGrants) {
			s.recordDenied(ctx, e, "The business has reached the maximum number of connected apps")
		}
		return "", err
	}
	named := ""
	if h.Named {
		named = h.RedirectURI
	}
	// The code is derived from the request's secret, which only the user's browser has, and the attempt, which only Redis has.
	// A second submission can thus return the same code, although neither half alone reveals it.
	attempt := encoding().EncodeToString(randomBytes(secretBytes))
	e.GrantID, e.Detail = h.id, recorded(granted)
	won, err := s.decide(ctx, e, audit.OutcomeOK, "approve", s.grantKeys(h.id), attempt, by.ID,
		codeLifetime.Milliseconds(), granted.Pin(),
		fieldFormat, versioned.Format,
		fieldState, stateCode,
		fieldCode, digest(derive(h.secret, "code", attempt)),
		fieldClient, h.Client.ID,
		fieldName, h.Client.Name,
		fieldHost, h.RedirectHost,
		fieldAccount, by.ID,
		fieldBusiness, by.BusinessID,
		fieldResource, h.Resource,
		fieldRedirect, named,
		fieldChallenge, h.Challenge,
		fieldRefreshes, h.Client.Refreshes,
	)
	if err != nil {
		return "", err
	}
	return s.response(h, url.Values{"code": {format(kindCode, h.id, derive(h.secret, "code", won))}}), nil
}

// Deny denies the request, and returns the URL to redirect the user to, with the error access_denied. It also denies one that the
// account has approved, until the code is redeemed. The first call is audited; another one returns the same URL for a minute. Its
// errors are ErrNoRequest and ErrUnavailable, with ErrOutcomeUnknown if it may have been denied.
func (s *Server) Deny(ctx context.Context, id string, by account.Account) (redirect string, err error) {
	h, err := s.loadRequest(ctx, id)
	if err != nil {
		return "", err
	}
	e, attempt := s.decisionEntry(ctx, h, by, audit.ConnectionDenied), newID()
	if _, err = s.decide(ctx, e, audit.OutcomeDenied, "deny", s.grantKeys(h.id), attempt, by.ID, codeLifetime.Milliseconds()); err != nil {
		return "", err
	}
	return s.response(h, url.Values{"error": {codeAccessDenied}, "error_description": {"the user denied the request"}}), nil
}

// decide runs the script of a decision and returns the attempt from which the code is derived. The decision is audited unless it
// changed nothing.
func (s *Server) decide(ctx context.Context, e audit.Entry, outcome, script string, keys []string, args ...any) (attempt string, err error) {
	_, err = s.change(ctx, e, outcome, func() (bool, error) {
		reply, err := s.runText(ctx, nil, script, keys, args...)
		var again bool
		attempt, again = strings.CutSuffix(reply, " again")
		return attempt != "" && !again, err
	})
	if err == nil && attempt == "" {
		err = ErrNoRequest
	}
	return attempt, err
}

// decisionEntry returns the audit entry of a user's decision on a request.
func (s *Server) decisionEntry(ctx context.Context, h *pending, by account.Account, action string) audit.Entry {
	g := Grant{ClientName: h.Client.Name, ClientHost: h.RedirectHost, AccountID: by.ID, BusinessID: by.BusinessID}
	e := s.entry(ctx, g, action, "")
	e.AccountName = by.Name
	return e
}
