package businesskeys

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	ownerTTL   = 24 * time.Hour
	invalidTTL = time.Minute // of an entry that is not a valid credential

	redisTimeout = 3 * time.Second
)

// owners caches in Redis which business a key belongs to.
type owners struct {
	redis  redis.UniversalClient
	prefix string
}

func (o owners) key(publicKey string) string { return o.prefix + "key:" + publicKey }

// get returns the cached owners of keys, by public key.
func (o owners) get(ctx context.Context, names []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	replies := make([]*redis.StringCmd, len(names))
	_, err := o.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			replies[i] = p.Get(ctx, o.key(name))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("reading the owners of keys: %w", err)
	}
	found := make(map[string]string)
	for i, reply := range replies {
		owner, err := reply.Result()
		switch {
		case err == nil:
			found[names[i]] = owner
		case !errors.Is(err, redis.Nil):
			return nil, fmt.Errorf("reading the owners of keys: %w", err)
		}
	}
	return found, nil
}

// set caches the owners of keys, by public key.
func (o owners) set(ctx context.Context, found map[string]string) error {
	if len(found) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
	defer cancel()
	_, err := o.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for name, owner := range found {
			ttl := ownerTTL
			if owner == "" {
				ttl = invalidTTL
			}
			p.Set(ctx, o.key(name), owner, ttl)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("caching the owners of keys: %w", err)
	}
	return nil
}
