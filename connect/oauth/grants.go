package oauth

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// usedEvery is how exactly Grant.LastUsedAt is kept after the first use.
const usedEvery = time.Minute

// Authenticate returns the connection that an access token is for. It does not ask whether the account still is an
// owner's: Protect does. ErrInvalidToken, ErrUnavailable.
func (s *Server) Authenticate(ctx context.Context, bearer string) (Grant, error) {
	id, secret, ok := parseToken(kindAccess, bearer, secretBytes)
	if !ok {
		return Grant{}, ErrInvalidToken
	}
	args := []any{accessField(digest(secret)), s.resource, milliseconds(usedEvery)}
	for _, field := range shown() {
		args = append(args, field)
	}
	values, ok, err := s.store.runList(ctx, len(shown())+1, "checking an access token", s.store.authenticate,
		[]string{s.store.grantKey(id)}, args...)
	if err != nil {
		return Grant{}, err
	}
	if !ok {
		return Grant{}, ErrInvalidToken
	}
	rec, ok := readGrant(id, values)
	if !ok {
		return Grant{}, ErrInvalidToken
	}
	rec.Scopes = scope.Unpin(texts(values)(len(shown())))
	return rec.Grant, nil
}

// Grants returns a business's connections, the newest first. ErrUnavailable.
func (s *Server) Grants(ctx context.Context, businessID string) ([]Grant, error) {
	var ids []string
	err := s.store.ask(ctx, "reading the index of connections", func(ctx context.Context) (err error) {
		ids, err = s.o.Redis.SMembers(ctx, s.store.businessKey(businessID)).Result()
		return err
	})
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	replies := make([]*redis.SliceCmd, len(ids))
	err = s.store.ask(ctx, "reading connections", func(ctx context.Context) error {
		_, err := s.o.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, id := range ids {
				replies[i] = p.HMGet(ctx, s.store.grantKey(id), shown()...)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	var ended []any
	grants := make([]Grant, 0, len(ids))
	for i, id := range ids {
		switch rec, ok := readGrant(id, replies[i].Val()); {
		case !ok:
			// It does not come back: a connection is entered while it exists, and its id is used once.
			ended = append(ended, id)
		case rec.state == stateLive && rec.BusinessID == businessID && rec.resource == s.resource:
			grants = append(grants, rec.Grant)
		}
	}
	s.store.leave(ctx, businessID, ended...)
	slices.SortFunc(grants, func(a, b Grant) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return grants, nil
}

// Revoke ends a connection of the account's business: the next call with any of its tokens is refused. ErrNoGrant, also
// for another business's and if somebody else has just ended it; ErrUnavailable.
func (s *Server) Revoke(ctx context.Context, grantID string, by account.Account) error {
	if by.BusinessID == "" || !validID(grantID) {
		return ErrNoGrant
	}
	rec, ok, err := s.store.load(ctx, grantID)
	if err != nil {
		return err
	}
	if !ok || rec.BusinessID != by.BusinessID {
		return ErrNoGrant
	}
	e := s.entry(ctx, rec.Grant, audit.ConnectionRevoked, "")
	e.AccountID, e.AccountName = by.ID, by.DisplayName()
	ended, err := s.end(ctx, e)
	if err == nil && !ended {
		return ErrNoGrant
	}
	return err
}

// end ends the connection of an audit entry, and reports whether this call did.
func (s *Server) end(ctx context.Context, e audit.Entry) (bool, error) {
	attempt := newID()
	ended, err := s.change(ctx, e, audit.OutcomeOK, func() (bool, error) {
		reply, err := s.store.run(ctx, "ending a connection", s.store.end, s.store.keys(e.GrantID), attempt, e.BusinessID)
		return reply == int64(1), err
	})
	if ended {
		s.store.leave(ctx, e.BusinessID, e.GrantID)
	}
	return ended, err
}

// errAccount says that a connection was ended because of its account.
var errAccount = errors.New("the account may not have connections any more")

// checkAccount asks for the account that has approved a connection. If it is gone, has moved to another business or is
// not an owner any more, the connection ends. errAccount, account.ErrUnavailable, ErrUnavailable.
func (s *Server) checkAccount(ctx context.Context, g Grant) (account.Account, error) {
	a, err := s.o.Accounts.Account(ctx, g.AccountID)
	var why string
	switch {
	case errors.Is(err, account.ErrUnknown):
		why = "The account that approved it does not exist any more or may not sign in"
	case err != nil:
		return account.Account{}, err
	case a.BusinessID != g.BusinessID:
		why = "The account that approved it does not belong to the business any more"
	case !a.IsOwner():
		why = "The account that approved it is not an owner of the business any more"
	default:
		return a, nil
	}
	if _, err := s.end(ctx, s.entry(ctx, g, audit.ConnectionRevoked, why)); err != nil {
		return account.Account{}, err
	}
	return account.Account{}, errAccount
}

// entry is about something that happens to a connection, in the name of the account that has approved it.
func (s *Server) entry(ctx context.Context, g Grant, action, detail string) audit.Entry {
	return audit.Entry{
		BusinessID: g.BusinessID, AccountID: g.AccountID, GrantID: g.ID, ClientName: g.ClientName, Action: action,
		Target: g.ClientHost, Detail: detail, RequestID: s.o.RequestID(ctx),
	}
}

// change makes a change between the two halves of its audit entry. apply reports whether it has changed something; if not,
// there is no entry. Without a place for the entry nothing is changed: ErrUnavailable.
func (s *Server) change(ctx context.Context, e audit.Entry, outcome string, apply func() (bool, error)) (bool, error) {
	c, err := s.o.Audit.Begin(ctx, e)
	if err != nil {
		return false, unavailable("beginning an audit entry", err)
	}
	changed, err := apply()
	switch {
	case err != nil:
		c.Resolve(ctx, audit.OutcomeUnknown)
	case changed:
		c.Resolve(ctx, outcome)
	default:
		c.Drop(ctx)
	}
	return changed, err
}
