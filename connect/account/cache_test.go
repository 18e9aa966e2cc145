package account_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
)

func TestAccountsAreCachedAndErrorsAreNot(t *testing.T) {
	t.Parallel()
	var lookups atomic.Int32
	var result atomic.Pointer[error]
	c := account.NewCache(func(_ context.Context, id string) (account.Account, error) {
		lookups.Add(1)
		if err := result.Load(); err != nil {
			return account.Account{}, *err
		}
		return account.Account{ID: id}, nil
	})
	t.Cleanup(c.Close)
	ctx := t.Context()
	for i, want := range []error{account.ErrUnknown, fmt.Errorf("%w: made up", account.ErrUnavailable), account.ErrUnknown} {
		result.Store(&want)
		_, err := c.Account(ctx, "acc_1")
		require.ErrorIs(t, err, want)
		assert.Equal(t, int32(i+1), lookups.Load(), "errors are not cached")
	}
	result.Store(nil)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err := c.Account(gone, "acc_1")
	require.NoError(t, err, "a canceled request does not cancel the lookup")
	for range 3 {
		a, err := c.Account(ctx, "acc_1")
		require.NoError(t, err)
		assert.Equal(t, "acc_1", a.ID)
	}
	require.Equal(t, int32(4), lookups.Load(), "accounts are cached")
	_, err = c.Account(ctx, "acc_2")
	require.NoError(t, err)
	assert.Equal(t, int32(5), lookups.Load())
}
