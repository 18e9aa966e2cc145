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

// Fields of a request that are read.
const (
	fieldSecret      = "secret"       // digest of the secret in the request's id
	fieldData        = "data"         // a pending as JSON
	fieldClientState = "client_state" // what the client wants back, byte for byte
	// fieldState is here "pending", "approved" or "denied".
)

const requestPending = "pending"

// hold stores a request until a person has decided, and returns its id.
func (s *Server) hold(ctx context.Context, request *pending) (string, error) {
	data, err := json.Marshal(request)
	if err != nil {
		return "", err
	}
	id, secret := newID(), randomBytes(secretBytes)
	key := s.store.requestKey(id)
	err = s.store.ask(ctx, "storing an authorization request", func(ctx context.Context) error {
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

// held is a request that was found again.
type held struct {
	pending

	id       string // of the connection that may come of it
	secret   []byte
	uri      redirectURI
	scopes   scope.Set // asked for
	decision string    // requestPending, or what was decided
	left     time.Duration
}

// find looks a request up, whatever was decided.
func (s *Server) find(ctx context.Context, requestID string) (held, error) {
	id, secret, ok := parseToken(kindRequest, requestID, secretBytes)
	if !ok {
		return held{}, ErrNoRequest
	}
	var values *redis.SliceCmd
	var left *redis.DurationCmd
	err := s.store.ask(ctx, "reading an authorization request", func(ctx context.Context) error {
		_, err := s.o.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			key := s.store.requestKey(id)
			values = p.HMGet(ctx, key, fieldSecret, fieldData, fieldClientState, fieldState)
			left = p.PTTL(ctx, key)
			return nil
		})
		return err
	})
	if err != nil {
		return held{}, err
	}
	text := texts(values.Val())
	if !same(text(0), digest(secret)) {
		return held{}, ErrNoRequest
	}
	h := held{id: id, secret: secret, decision: text(3), left: max(0, left.Val())}
	if err := json.Unmarshal([]byte(text(1)), &h.pending); err != nil || h.Resource != s.resource {
		return held{}, ErrNoRequest
	}
	h.State = text(2)
	if h.uri, err = parseRedirectURI(h.RedirectURI); err != nil {
		return held{}, ErrNoRequest
	}
	if h.scopes, err = scope.Parse(h.Scopes); err != nil {
		return held{}, ErrNoRequest
	}
	return h, nil
}

// Pending returns a request that waits for a decision; also one that was decided less than a minute ago and whose code
// was not redeemed, so that a second submission of the same form finds what the first did. ErrNoRequest, ErrUnavailable.
func (s *Server) Pending(ctx context.Context, id string) (Request, error) {
	h, err := s.find(ctx, id)
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

// Decision is what holds of a request after [Server.Approve] or [Server.Deny].
type Decision struct {
	Redirect string    // where to send the person
	GrantID  string    // of the connection; "" if the request was denied
	Scopes   scope.Set // that the connection has, which a call that was not the first has not decided
	Decided  bool      // by this call
}

// Approve lets the client have granted, some of what it asked for; the person is sent back with the code. Of several
// calls at once one decides; a second one by the same account gets the same address as long as the code has not been
// redeemed, whatever it grants. The audit log has an entry of the one that has decided. ErrNotOwner, ErrScopes,
// ErrNoRequest, ErrUnavailable.
func (s *Server) Approve(ctx context.Context, id string, by account.Account, granted scope.Set) (Decision, error) {
	h, err := s.find(ctx, id)
	if err != nil {
		return Decision{}, err
	}
	e := s.decisionEntry(ctx, &h, by, audit.ConnectionApproved)
	if !by.IsOwner() || by.ID == "" || by.BusinessID == "" {
		e.Outcome, e.Detail = audit.OutcomeRefused, "Not an owner"
		_ = s.o.Audit.Record(ctx, e) // it reports failures itself, and nothing was changed
		return Decision{}, ErrNotOwner
	}
	if granted.IsZero() || !h.scopes.Contains(granted) {
		return Decision{}, ErrScopes
	}
	// The code follows from the request's secret, which only the person's browser has, and the attempt, which only Redis
	// has: so a second submission gets the same one, and who stole either half gets none.
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

// Deny ends the request; the person is sent back with the error access_denied. A second call gets the same address for a
// minute. The audit log has an entry of the one that has decided. ErrNoRequest, ErrUnavailable.
func (s *Server) Deny(ctx context.Context, id string, by account.Account) (Decision, error) {
	h, err := s.find(ctx, id)
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
		d.Decided, err = s.change(ctx, s.decisionEntry(ctx, &h, by, audit.ConnectionDenied), audit.OutcomeRefused, deny)
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

// decisionEntry is about a person's decision.
func (s *Server) decisionEntry(ctx context.Context, h *held, by account.Account, action string) audit.Entry {
	e := s.entry(ctx, Grant{
		ClientName: h.Client.Name, ClientHost: h.uri.display(), AccountID: by.ID, BusinessID: by.BusinessID,
	}, action, "")
	e.AccountName = by.DisplayName()
	return e
}
