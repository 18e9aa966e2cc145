package oauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// lastUsedPrecision is how old Grant.LastUsedAt must be for a use to update it. The first use always does.
const lastUsedPrecision = time.Minute

// Authenticate returns the grant of an access token, and records its use. Unlike Protect, it does not check the account. Its errors
// are ErrInvalidToken and ErrUnavailable.
func (s *Server) Authenticate(ctx context.Context, bearer string) (Grant, error) {
	id, secret, ok := parseToken(kindAccess, bearer, secretBytes)
	if !ok {
		return Grant{}, ErrInvalidToken
	}
	args := []any{accessField(digest(secret)), s.resource, lastUsedPrecision.Milliseconds()}
	for _, field := range grantFields() {
		args = append(args, field)
	}
	reply, err := s.run(ctx, "authenticate", []string{s.grantKey(id)}, args...)
	if err != nil {
		return Grant{}, err
	}
	values, ok := reply.([]any)
	if ok && len(values) == 0 {
		return Grant{}, ErrInvalidToken
	}
	if len(values) != len(grantFields())+2 {
		return Grant{}, unexpectedReply("authenticate", reply)
	}
	rec, ok, err := s.readRecord(id, values[2:])
	if err != nil || !ok {
		return Grant{}, cmp.Or(err, ErrInvalidToken)
	}
	if texts(values)(1) != "" {
		_ = s.addToIndex(ctx, rec.BusinessID, id) // a failover may have lost it
	}
	if own := texts(values)(0); own != wholeGrant {
		rec.Scopes = s.o.Areas.Unpin(own).Narrow(rec.Scopes.Includes)
	}
	if rec.Scopes.IsZero() { // all its scopes are switched off or no longer granted
		return Grant{}, ErrInvalidToken
	}
	return rec.Grant, nil
}

// Grants returns a business's connections, newest first. Its error is ErrUnavailable.
func (s *Server) Grants(ctx context.Context, businessID string) ([]Grant, error) {
	var ids []string
	err := s.command(ctx, "reading the index of connections", func(ctx context.Context) (err error) {
		ids, err = s.o.Redis.SMembers(ctx, s.businessKey(businessID)).Result()
		return err
	})
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	replies := make([]*redis.SliceCmd, len(ids))
	err = s.command(ctx, "reading connections", func(ctx context.Context) error {
		_, err := s.o.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, id := range ids {
				replies[i] = p.HMGet(ctx, s.grantKey(id), grantFields()...)
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
		switch rec, ok, err := s.readRecord(id, replies[i].Val()); {
		case err != nil: // gateways of the later version list it
		case !ok:
			// It has ended: connections are added only while they exist, and IDs are not reused.
			ended = append(ended, id)
		case rec.state == stateLive && rec.BusinessID == businessID && rec.resource == s.resource:
			grants = append(grants, rec.Grant)
		}
	}
	s.removeFromIndex(ctx, businessID, ended...)
	slices.SortFunc(grants, func(a, b Grant) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return grants, nil
}

// checkRoom returns ErrTooManyGrants if a business can have no more connections. Concurrent calls may let a few too many pass.
func (s *Server) checkRoom(ctx context.Context, businessID string) error {
	grants, err := s.Grants(ctx, businessID)
	if err == nil && len(grants) >= maxGrants {
		err = ErrTooManyGrants
	}
	return err
}

// Revoke ends a connection of the account's business, with immediate effect on its tokens. Its errors are ErrNotOwner, ErrNoGrant,
// also if the connection has ended already, and ErrUnavailable, with ErrOutcomeUnknown if it may have ended.
func (s *Server) Revoke(ctx context.Context, grantID string, by account.Account) error {
	e, err := s.ownersEntry(ctx, grantID, by, audit.ConnectionRevoked)
	if err != nil {
		return err
	}
	ended, err := s.end(ctx, e)
	if err == nil && !ended {
		return ErrNoGrant
	}
	return err
}

// Change sets the scopes and Grant.Unasked of a connection of the account's business, with immediate effect on its access tokens.
// Those for which the client asked for fewer scopes get no others. unasked is ignored unless granted has a right to run something.
// version is the Grant.Version that the caller has seen; it is not checked if nothing changes. Its errors are ErrNotOwner, ErrScopes,
// ErrNoGrant, ErrChanged and ErrUnavailable, with ErrOutcomeUnknown if the connection may have been changed.
func (s *Server) Change(ctx context.Context, grantID, version string, by account.Account, granted scope.Set, unasked bool) error {
	e, err := s.ownersEntry(ctx, grantID, by, audit.ConnectionChanged)
	switch {
	case err != nil:
		return err
	case granted.IsZero() || !s.o.Areas.Everything().Contains(granted):
		return ErrScopes
	}
	e.Detail = recorded(granted)
	if unasked = unasked && granted.Runs(); unasked {
		e.Detail += " " + RecordedUnasked
	}
	attempt := newID()
	var outcome string
	_, err = s.change(ctx, e, audit.OutcomeOK, func() (changed bool, err error) {
		outcome, err = s.runText(ctx, []string{outcomeChanged, outcomeSame, outcomeOutdated, outcomeGone}, "change",
			s.grantKeys(grantID), attempt, version, granted.Pin(), unasked)
		return outcome == outcomeChanged, err
	})
	return cmp.Or(err, map[string]error{outcomeOutdated: ErrChanged, outcomeGone: ErrNoGrant}[outcome])
}

// RecordedUnasked follows the scopes in the Detail of a ConnectionChanged audit entry that sets Grant.Unasked.
const RecordedUnasked = "unasked"

// ownersEntry returns an audit entry for a change by an account of a connection of its business. If the account is not an owner, it
// records the denied attempt and returns ErrNotOwner.
func (s *Server) ownersEntry(ctx context.Context, grantID string, by account.Account, action string) (audit.Entry, error) {
	if by.BusinessID == "" || !validID(grantID) {
		return audit.Entry{}, ErrNoGrant
	}
	rec, ok, err := s.loadRecord(ctx, grantID)
	if err == nil && (!ok || rec.BusinessID != by.BusinessID || rec.resource != s.resource) {
		err = ErrNoGrant
	}
	e := s.entry(ctx, rec.Grant, action, "")
	e.AccountID, e.AccountName = by.ID, by.Name
	if err == nil && !by.IsOwner() {
		s.recordDenied(ctx, e, "Not an owner")
		err = ErrNotOwner
	}
	return e, err
}

func (s *Server) recordDenied(ctx context.Context, e audit.Entry, why string) {
	e.Outcome, e.Detail = audit.OutcomeDenied, why
	_ = s.o.Audit.Record(ctx, e) // logs its own failures
}

// end ends the connection of an audit entry and reports whether this call ended it.
func (s *Server) end(ctx context.Context, e audit.Entry) (bool, error) {
	attempt, keys, outcomes := newID(), s.grantKeys(e.GrantID), []string{outcomeEnded, outcomeGone}
	ended, err := s.change(ctx, e, audit.OutcomeOK, func() (bool, error) {
		outcome, err := s.runText(ctx, outcomes, "end", keys, attempt)
		if redis.IsTryAgainError(err) { // in a slot that migrates, a Cluster runs scripts with one key only
			outcome, err = s.runText(ctx, outcomes, "end", keys[:1], attempt)
		}
		return outcome == outcomeEnded, err
	})
	if ended {
		s.removeFromIndex(ctx, e.BusinessID, e.GrantID)
	}
	return ended, err
}

// errAccount is returned if a connection was ended because of the account that approved it.
var errAccount = errors.New("the account may no longer have connections")

// checkAccount looks up the account that approved a connection. If the account does not exist, belongs to another business or
// is no longer an owner, it ends the connection and returns errAccount. Other errors are account.ErrUnavailable and
// ErrUnavailable.
func (s *Server) checkAccount(ctx context.Context, g Grant) (account.Account, error) {
	a, err := s.o.Accounts.Account(ctx, g.AccountID)
	var why string
	switch {
	case errors.Is(err, account.ErrUnknown):
		why = "The approving account no longer exists or may not sign in"
	case err != nil:
		return account.Account{}, err
	case a.BusinessID != g.BusinessID:
		why = "The approving account no longer belongs to the business"
	case !a.IsOwner():
		why = "The approving account is no longer an owner of the business"
	default:
		return a, nil
	}
	if err := s.endWithoutAccount(ctx, g, why); err != nil {
		return account.Account{}, err
	}
	return account.Account{}, errAccount
}

// endWithoutAccount ends a connection that no account has ended.
func (s *Server) endWithoutAccount(ctx context.Context, g Grant, why string) error {
	e := s.entry(ctx, g, audit.ConnectionRevoked, why)
	e.AccountID = ""
	_, err := s.end(ctx, e)
	return err
}

// entry returns an audit entry about a connection on behalf of the account that approved it.
func (s *Server) entry(ctx context.Context, g Grant, action, detail string) audit.Entry {
	return audit.Entry{
		BusinessID: g.BusinessID, AccountID: g.AccountID, GrantID: g.ID, ClientName: g.ClientName, Action: action,
		Target: g.ClientHost, Detail: detail, RequestID: requestlog.ID(ctx),
	}
}

// recorded returns scopes for the audit log, which is read under other configurations too: a published scope is in it only if all
// areas that it covers were granted, including those that are switched off now.
func recorded(scopes scope.Set) string { return scopes.Areas().All().Unpin(scopes.Pin()).String() }

// change begins an audit entry, applies a change and resolves the entry. apply reports whether it changed something; if not, the
// entry is dropped. If the audit log is unavailable, apply is not called and the error is ErrUnavailable. An error of apply is
// wrapped in ErrOutcomeUnknown.
func (s *Server) change(ctx context.Context, e audit.Entry, outcome string, apply func() (bool, error)) (bool, error) {
	c, err := s.o.Audit.Begin(ctx, e)
	if err != nil {
		return false, unavailable("beginning an audit entry", err)
	}
	changed, err := apply()
	switch {
	case err != nil:
		c.Resolve(ctx, audit.OutcomeUnknown)
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	case changed:
		c.Resolve(ctx, outcome)
	default:
		c.Drop(ctx)
	}
	return changed, err
}
