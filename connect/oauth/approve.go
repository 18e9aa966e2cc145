package oauth

import (
	"context"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// Fields of an authorization request in Redis, besides fieldState, which is "pending", "approved" or "denied".
const (
	fieldSecret      = "secret"       // digest of the secret in the request's ID
	fieldData        = "data"         // a pending as JSON
	fieldClientState = "client_state" // the state parameter
)

const requestPending = "pending"

// storeRequest stores a request until a person decides, and returns its ID.
func (s *Server) storeRequest(ctx context.Context, request *pending) (string, error) {
	data, err := json.Marshal(request)
	if err != nil {
		return "", err
	}
	id, secret := newID(), randomBytes(secretBytes)
	key := s.store.requestKey(id)
	err = s.store.command(ctx, "storing an authorization request", func(ctx context.Context) error {
		_, err := s.o.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, key, fieldSecret, digest(secret), fieldData, data, fieldClientState, request.State,
				fieldState, requestPending)
			p.PExpire(ctx, key, RequestLifetime)
			return nil
		})
		return err
	})
	if err != nil {
		return "", err
	}
	return format(kindRequest, id, secret), nil
}

// storedRequest is a request read from Redis.
type storedRequest struct {
	pending

	id       string // also of the connection, if it is approved
	secret   []byte
	uri      redirectURI
	scopes   scope.Set // requested
	decision string    // requestPending, "approved" or "denied"
	left     time.Duration
}

// loadRequest reads a request, decided or not.
func (s *Server) loadRequest(ctx context.Context, requestID string) (storedRequest, error) {
	id, secret, ok := parseToken(kindRequest, requestID, secretBytes)
	if !ok {
		return storedRequest{}, ErrNoRequest
	}
	var values *redis.SliceCmd
	var left *redis.DurationCmd
	err := s.store.command(ctx, "reading an authorization request", func(ctx context.Context) error {
		_, err := s.o.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			key := s.store.requestKey(id)
			values = p.HMGet(ctx, key, fieldSecret, fieldData, fieldClientState, fieldState)
			left = p.PTTL(ctx, key)
			return nil
		})
		return err
	})
	if err != nil {
		return storedRequest{}, err
	}
	text := texts(values.Val())
	if !constantTimeEqual(text(0), digest(secret)) {
		return storedRequest{}, ErrNoRequest
	}
	h := storedRequest{id: id, secret: secret, decision: text(3), left: max(0, left.Val())}
	if err := json.Unmarshal([]byte(text(1)), &h.pending); err != nil || h.Resource != s.resource {
		return storedRequest{}, ErrNoRequest
	}
	h.State = text(2)
	if h.uri, err = parseRedirectURI(h.RedirectURI); err != nil {
		return storedRequest{}, ErrNoRequest
	}
	if h.scopes, err = scope.Parse(h.Scopes); err != nil {
		return storedRequest{}, ErrNoRequest
	}
	return h, nil
}

// Pending returns a request that waits for a decision. It also returns one that was decided less than a minute ago and whose
// code was not redeemed, so that the form can be submitted twice. Its errors are ErrNoRequest and ErrUnavailable.
func (s *Server) Pending(ctx context.Context, id string) (Request, error) {
	h, err := s.loadRequest(ctx, id)
	if err != nil {
		return Request{}, err
	}
	return Request{
		ID:            id,
		Client:        h.Client,
		RedirectURI:   h.RedirectURI,
		RedirectHost:  h.uri.display(),
		RedirectLocal: h.uri.local(),
		Scopes:        h.scopes,
		Resource:      h.Resource,
		ExpiresIn:     h.left,
	}, nil
}

// Decision is the outcome of [Server.Approve] or [Server.Deny].
type Decision struct {
	Redirect string    // where to redirect the person
	GrantID  string    // of the connection; "" if the request was denied
	Scopes   scope.Set // of the connection, as granted by the first call
	Decided  bool      // by this call
}

// Approve grants the client a subset of the scopes that it requested. The first of several calls decides and is audited; a
// further call by the same account gets the same redirect until the code is redeemed, whatever scopes it grants. Its errors are
// ErrNotOwner, ErrScopes, ErrNoRequest and ErrUnavailable.
func (s *Server) Approve(ctx context.Context, id string, by account.Account, granted scope.Set) (Decision, error) {
	h, err := s.loadRequest(ctx, id)
	if err != nil {
		return Decision{}, err
	}
	e := s.decisionEntry(ctx, &h, by, audit.ConnectionApproved)
	if !by.IsOwner() || by.ID == "" || by.BusinessID == "" {
		e.Outcome, e.Detail = audit.OutcomeDenied, "Not an owner"
		_ = s.o.Audit.Record(ctx, e) // logs its own failures
		return Decision{}, ErrNotOwner
	}
	if granted.IsZero() || !h.scopes.Contains(granted) {
		return Decision{}, ErrScopes
	}
	// The code is derived from the request's secret, which only the person's browser has, and the attempt, which only Redis
	// has. A second submission gets the same code, and either half alone is useless to a thief.
	attempt := encoding().EncodeToString(randomBytes(secretBytes))
	named := ""
	if h.Named {
		named = h.RedirectURI
	}
	refreshes := "0"
	if h.Client.Refreshes {
		refreshes = "1"
	}
	var won, scopes string
	approve := func() (bool, error) {
		values, ok, err := s.store.runList(ctx, 2, "approving", s.store.approve, s.store.keys(h.id),
			attempt, by.ID, milliseconds(CodeLifetime),
			fieldState, stateCode,
			fieldCode, digest(derive(h.secret, "code", attempt)),
			fieldClient, h.Client.ID,
			fieldName, h.Client.Name,
			fieldHost, h.uri.display(),
			fieldAccount, by.ID,
			fieldBusiness, by.BusinessID,
			fieldScopes, granted.Pin(),
			fieldResource, h.Resource,
			fieldRedirect, named,
			fieldChallenge, h.Challenge,
			fieldRefreshes, refreshes,
		)
		if ok {
			won, scopes = texts(values)(0), texts(values)(1)
		}
		return won == attempt, err
	}
	d := Decision{GrantID: h.id, Scopes: granted}
	if h.decision == requestPending {
		e.GrantID, e.Detail = h.id, granted.String()
		d.Decided, err = s.change(ctx, e, audit.OutcomeOK, approve)
	} else {
		_, err = approve()
	}
	switch {
	case err != nil:
		return Decision{}, err
	case won == "":
		return Decision{}, ErrNoRequest
	case !d.Decided:
		d.Scopes = scope.Unpin(scopes)
	}
	d.Redirect = s.response(&h.pending, url.Values{"code": {format(kindCode, h.id, derive(h.secret, "code", won))}})
	return d, nil
}

// Deny ends the request with the error access_denied. The first of several calls is audited; a further one gets the same
// redirect for a minute. Its errors are ErrNoRequest and ErrUnavailable.
func (s *Server) Deny(ctx context.Context, id string, by account.Account) (Decision, error) {
	h, err := s.loadRequest(ctx, id)
	if err != nil {
		return Decision{}, err
	}
	attempt, won := newID(), ""
	deny := func() (bool, error) {
		reply, err := s.store.run(ctx, "denying", s.store.deny, []string{s.store.requestKey(h.id)},
			attempt, milliseconds(CodeLifetime))
		won, _ = reply.(string)
		return won == attempt, err
	}
	var d Decision
	if h.decision == requestPending {
		d.Decided, err = s.change(ctx, s.decisionEntry(ctx, &h, by, audit.ConnectionDenied), audit.OutcomeDenied, deny)
	} else {
		_, err = deny()
	}
	switch {
	case err != nil:
		return Decision{}, err
	case won == "":
		return Decision{}, ErrNoRequest
	}
	d.Redirect = s.response(&h.pending, url.Values{
		"error": {codeAccessDenied}, "error_description": {"the person has denied the request"},
	})
	return d, nil
}

// decisionEntry returns the audit entry of a person's decision.
func (s *Server) decisionEntry(ctx context.Context, h *storedRequest, by account.Account, action string) audit.Entry {
	e := s.entry(ctx, Grant{
		ClientName: h.Client.Name, ClientHost: h.uri.display(), AccountID: by.ID, BusinessID: by.BusinessID,
	}, action, "")
	e.AccountName = by.DisplayName()
	return e
}
