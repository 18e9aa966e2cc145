package oauth

import (
	"context"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// Fields of a request that are read.
const (
	fieldSecret = "secret" // digest of the secret in the request's id
	fieldData   = "data"   // a pending as JSON
	// fieldState is here "pending", "approved" or "denied".
)

const requestPending = "pending"

// hold stores a request until a person has decided, and returns its id.
func (s *Server) hold(ctx context.Context, request *pending) (string, error) {
	request.Ends = s.o.Now().Add(RequestLifetime).UnixMilli()
	data, err := json.Marshal(request)
	if err != nil {
		return "", err
	}
	id, secret := newID(), randomBytes(secretBytes)
	key := s.store.requestKey(id)
	err = s.store.ask(ctx, "storing an authorization request", func(ctx context.Context) error {
		_, err := s.o.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, key, fieldSecret, digest(secret), fieldData, data, fieldState, requestPending)
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

	id     string // of the connection that may come of it
	secret []byte
}

// find looks a request up, whatever was decided.
func (s *Server) find(ctx context.Context, requestID string) (held, error) {
	id, secret, ok := parseToken(kindRequest, requestID, secretBytes)
	if !ok {
		return held{}, ErrNoRequest
	}
	var values []any
	err := s.store.ask(ctx, "reading an authorization request", func(ctx context.Context) (err error) {
		values, err = s.o.Redis.HMGet(ctx, s.store.requestKey(id), fieldSecret, fieldData).Result()
		return err
	})
	if err != nil {
		return held{}, err
	}
	text := texts(values)
	if !same(text(0), digest(secret)) {
		return held{}, ErrNoRequest
	}
	h := held{id: id, secret: secret}
	if err := json.Unmarshal([]byte(text(1)), &h.pending); err != nil {
		return held{}, ErrNoRequest
	}
	if !s.o.Now().Before(time.UnixMilli(h.Ends)) || h.Resource != s.resource {
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
	uri, err := parseRedirectURI(h.RedirectURI)
	if err != nil {
		return Request{}, ErrNoRequest
	}
	return Request{
		ID:            id,
		Client:        h.Client,
		RedirectURI:   h.RedirectURI,
		RedirectHost:  uri.display(),
		RedirectLocal: uri.local(),
		Scopes:        known(h.Scopes),
		Resource:      h.Resource,
		ExpiresAt:     time.UnixMilli(h.Ends).UTC(),
	}, nil
}

// Approve lets the client have granted, some of what it asked for, and returns where to send the person: with the code.
// Of several calls at once one wins; a second one by the same account gets the same address as long as the code has
// not been redeemed, whatever it grants. ErrNotOwner, ErrScopes, ErrNoRequest, ErrUnavailable.
func (s *Server) Approve(ctx context.Context, id string, by account.Account, granted scope.Set) (redirect string, err error) {
	if !by.IsOwner() || by.ID == "" || by.BusinessID == "" {
		return "", ErrNotOwner
	}
	h, err := s.find(ctx, id)
	if err != nil {
		return "", err
	}
	if granted.IsZero() || !known(h.Scopes).Contains(granted) {
		return "", ErrScopes
	}
	uri, err := parseRedirectURI(h.RedirectURI)
	if err != nil {
		return "", ErrNoRequest
	}
	now := s.o.Now()
	if err := s.store.enter(ctx, by.BusinessID, h.id, now, now.Add(CodeLifetime)); err != nil {
		return "", err
	}
	// The code follows from the request's secret, which only the person's browser has, and the nonce, which only Redis
	// has: so a second submission gets the same one, and who stole either half gets none.
	nonce := encoding().EncodeToString(randomBytes(secretBytes))
	named := ""
	if h.Named {
		named = h.RedirectURI
	}
	refreshes := "0"
	if h.Client.Refreshes {
		refreshes = "1"
	}
	won, err := s.store.runText(ctx, "approving", s.store.approve,
		[]string{s.store.requestKey(h.id), s.store.grantKey(h.id)},
		nonce, by.ID, milliseconds(CodeLifetime),
		fieldState, stateCode,
		fieldCode, digest(derive(h.secret, "code", nonce)),
		fieldClient, h.Client.ID,
		fieldName, h.Client.Name,
		fieldHost, uri.display(),
		fieldAccount, by.ID,
		fieldBusiness, by.BusinessID,
		fieldScopes, granted.String(),
		fieldResource, h.Resource,
		fieldRedirect, named,
		fieldChallenge, h.Challenge,
		fieldRefreshes, refreshes,
		fieldCreated, millis(now),
		fieldUsed, millis(now),
		fieldEnds, millis(now.Add(CodeLifetime)),
	)
	if err != nil {
		return "", err
	}
	if won == "" {
		return "", ErrNoRequest
	}
	code := format(kindCode, h.id, derive(h.secret, "code", won))
	return s.response(&h.pending, url.Values{"code": {code}}), nil
}

// Deny ends the request and returns where to send the person: with the error access_denied. A second call gets the same
// address for a minute. ErrNoRequest, ErrUnavailable.
func (s *Server) Deny(ctx context.Context, id string) (redirect string, err error) {
	h, err := s.find(ctx, id)
	if err != nil {
		return "", err
	}
	denied, err := s.store.runCount(ctx, "denying", s.store.deny, []string{s.store.requestKey(h.id)}, milliseconds(CodeLifetime))
	if err != nil {
		return "", err
	}
	if denied != 1 {
		return "", ErrNoRequest
	}
	return s.response(&h.pending, url.Values{
		"error": {codeAccessDenied}, "error_description": {"the person has denied the request"},
	}), nil
}
