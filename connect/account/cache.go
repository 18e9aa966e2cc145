package account

import (
	"context"
	"time"

	"github.com/maypok86/otter/v2"
)

// CacheTTL is how long a [Cache] keeps an account, and so the maximum delay until a closed or demoted account loses access.
const CacheTTL = 15 * time.Second

const maxCached = 10_000 // accounts

// Cache looks up accounts and caches them for CacheTTL, so that a tool call takes one data service call instead of two. Errors
// are not cached. It is safe for concurrent use.
type Cache struct {
	find  func(ctx context.Context, id string) (Account, error)
	cache *otter.Cache[string, Account]
}

// NewCache returns a cache in front of find, which is [Service.Account]. The caller must close it.
func NewCache(find func(ctx context.Context, id string) (Account, error)) *Cache {
	return &Cache{find: find, cache: otter.Must(&otter.Options[string, Account]{
		MaximumSize: maxCached, ExpiryCalculator: otter.ExpiryWriting[string, Account](CacheTTL),
	})}
}

// Account returns an account as it was at most CacheTTL ago, or the service's error.
func (c *Cache) Account(ctx context.Context, id string) (Account, error) {
	// Concurrent callers share one call, which must not be cancelled with the first caller's request.
	return c.cache.Get(context.WithoutCancel(ctx), id, otter.LoaderFunc[string, Account](c.find))
}

// Close stops the cache's goroutines.
func (c *Cache) Close() { c.cache.StopAllGoroutines() }
