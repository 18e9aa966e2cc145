package mcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
)

const maxAccounts = 10_000

// accounts finds who a connection belongs to, and remembers it for a moment: a call of an assistant costs one call to the
// data service, not two. What is remembered is an account that is there; that one is gone is asked for each time.
type accounts struct {
	service Accounts
	cache   *otter.Cache[string, account.Account]
}

func newAccounts(service Accounts, ttl time.Duration) (*accounts, error) {
	a := &accounts{service: service}
	if ttl < 0 {
		return a, nil
	}
	var err error
	a.cache, err = otter.New(&otter.Options[string, account.Account]{
		MaximumSize: maxAccounts, ExpiryCalculator: otter.ExpiryWriting[string, account.Account](ttl),
	})
	if err != nil {
		return nil, fmt.Errorf("making the cache of accounts: %w", err)
	}
	return a, nil
}

// close ends what keeps the cache clean.
func (a *accounts) close() {
	if a.cache != nil {
		a.cache.StopAllGoroutines()
	}
}

func (a *accounts) find(ctx context.Context, id string) (account.Account, error) {
	if a.cache == nil {
		return a.service.Account(ctx, id)
	}
	// Callers that come together share one call; the first one's departure must not fail the others'.
	return a.cache.Get(context.WithoutCancel(ctx), id, otter.LoaderFunc[string, account.Account](a.service.Account))
}

// check returns the account behind a connection, or why the connection may do nothing any more. The connection was
// approved by an owner of its business: a person who has left it, or is no owner now, cannot go on through it.
func (a *accounts) check(ctx context.Context, g grantOf) (account.Account, *toolError) {
	found, err := a.find(ctx, g.AccountID)
	refused := &toolError{
		code: codeAccount, next: "Calling again will not help; an owner of the business has to connect the assistant anew.",
		cause: err,
	}
	switch {
	case errors.Is(err, account.ErrUnknown):
		refused.sentence = "The account that approved this connection does not exist any more, or may not sign in."
	case err != nil:
		return account.Account{}, &toolError{
			code: codeUnavailable, sentence: "The service that knows the business's accounts cannot be reached at the moment.",
			next: retrySoon, cause: err,
		}
	case found.BusinessID != g.BusinessID:
		refused.sentence = "The account that approved this connection does not belong to the business any more."
	case !found.IsOwner():
		refused.sentence = "The person who approved this connection is not an owner of the business any more."
	default:
		return found, nil
	}
	return account.Account{}, refused
}
