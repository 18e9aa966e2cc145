package businesskeys

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

const (
	lockTTL   = 30 * time.Second // for a gateway that dies
	lockRetry = 50 * time.Millisecond
)

// unlockScript deletes a lock that still has the holder's value.
const unlockScript = `if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0`

func (m *Manager) lockKey(businessID string) string { return m.o.Prefix + "issuing:" + businessID }

// lock waits until no other gateway or request issues a key for the business. The returned context ends before the lock expires.
func (m *Manager) lock(ctx context.Context, businessID string) (locked context.Context, unlock func(), err error) {
	key, mine := m.lockKey(businessID), rand.Text()
	for {
		expires := time.Now().Add(lockTTL) // or later, by Redis's clock
		// SET NX PX; if its reply was lost and it is sent again, only GET shows that the lock is ours.
		if err := m.o.Redis.SetNX(ctx, key, mine, lockTTL).Err(); err != nil {
			m.unlock(ctx, key, mine)
			return nil, nil, fmt.Errorf("waiting to issue a key: %w", err)
		}
		holder, err := m.o.Redis.Get(ctx, key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			m.unlock(ctx, key, mine)
			return nil, nil, fmt.Errorf("waiting to issue a key: %w", err)
		}
		if holder == mine {
			locked, cancel := context.WithDeadline(ctx, expires)
			return locked, func() {
				cancel()
				m.unlock(ctx, key, mine)
			}, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("waiting to issue a key: %w", context.Cause(ctx))
		case <-time.After(lockRetry):
		}
	}
}

// unlock deletes the lock, unless it has expired and another holder has it.
func (m *Manager) unlock(ctx context.Context, key, mine string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
	defer cancel()
	if err := redis.NewScript(unlockScript).Run(ctx, m.o.Redis, []string{key}, mine).Err(); err != nil {
		m.o.Log.Warn("releasing the lock for issuing keys failed, it will expire on its own",
			zap.Duration("in", lockTTL), zap.Error(err))
	}
}
