package account

import (
	"context"
	"fmt"
	"time"

	"github.com/maypok86/otter/v2"
)

// CacheTTL is how long a [Cache] keeps an account: so long may an account that is gone, moved or demoted go on.
const CacheTTL = 15 * time.Second

const maxCached = 10_000

// Cache asks for accounts and keeps them for CacheTTL, so that a call of an assistant costs one call to the data service
// instead of two. Errors are not kept. It is safe for concurrent use.
type Cache struct {
	find  func(ctx context.Context, id string) (Account, error)
	cache *otter.Cache[string, Account]
}

// NewCache makes a cache in front of find, which is [Service.Account]. The caller closes it.
func NewCache(find func(ctx context.Context, id string) (Account, error)) (*Cache, error) {
	cache, err := otter.New(&otter.Options[string, Account]{
		MaximumSize: maxCached, ExpiryCalculator: otter.ExpiryWriting[string, Account](CacheTTL),
	})
	if err != nil {
		return nil, fmt.Errorf("making the cache of accounts: %w", err)
	}
	return &Cache{find: find, cache: cache}, nil
}

// Account returns an account as it was at most CacheTTL ago, or the error of the service.
func (c *Cache) Account(ctx context.Context, id string) (Account, error) {
	// Callers that come together share one call; the first one's departure must not fail the others'.
	return c.cache.Get(context.WithoutCancel(ctx), id, otter.LoaderFunc[string, Account](c.find))
}

// Close stops the cache's goroutines.
func (c *Cache) Close() { c.cache.StopAllGoroutines() }
