package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// invalidationChannel is the Redis channel on which gateways learn that a key has been rotated or revoked. A message
// is the public key, and only makes a gateway ask the credential source again: who can write to Redis can neither make
// a key nor keep a revoked one alive.
const invalidationChannel = "gatehouse:credentials"

const (
	invalidationPing  = 10 * time.Second // without a message for so long, the connection is tried
	invalidationRetry = time.Second
)

// publishInvalidation tells all gateways on the same Redis to ask anew for a key.
func publishInvalidation(ctx context.Context, client redis.UniversalClient, publicKey string) error {
	if err := client.Publish(ctx, invalidationChannel, publicKey).Err(); err != nil {
		return fmt.Errorf("publishing the change of a key: %w", err)
	}
	return nil
}

// invalidation listens on the channel for as long as a credential cache lives.
type invalidation struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func listenForInvalidations(client redis.UniversalClient, cache *authsigner.Cache, report func(event string, err error)) *invalidation {
	ctx, cancel := context.WithCancel(context.Background())
	l := &invalidation{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for reported := false; ; reported = true {
			subscribed, err := receiveInvalidations(ctx, client, cache)
			if ctx.Err() != nil {
				return
			}
			if subscribed || !reported {
				report("push_lost", err) // once for each outage
			}
			select {
			case <-ctx.Done():
			case <-time.After(invalidationRetry):
			}
		}
	}()
	return l
}

// receiveInvalidations runs one subscription until it breaks. What was published before it is not known, so every
// credential that was cached by then is asked for again: also before the first one, since requests do not wait for it.
func receiveInvalidations(ctx context.Context, client redis.UniversalClient, cache *authsigner.Cache) (subscribed bool, err error) {
	sub := client.Subscribe(ctx, invalidationChannel)
	// a read that is under way does not heed the context: closing the subscription ends it
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	defer func() { _ = sub.Close() }() // closing it twice is harmless
	for pinged := false; ; {
		msg, err := sub.ReceiveTimeout(ctx, invalidationPing)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !pinged:
			if err := sub.Ping(ctx); err != nil {
				return subscribed, fmt.Errorf("keeping the subscription alive: %w", err)
			}
			pinged = true // an answer of any kind must come before the next deadline
			continue
		case err != nil:
			return subscribed, fmt.Errorf("listening for changes of keys: %w", err)
		}
		pinged = false
		switch msg := msg.(type) {
		case *redis.Subscription:
			cache.InvalidateAll() // the client may also subscribe again by itself
			subscribed = true
		case *redis.Message:
			cache.Invalidate(msg.Payload)
		}
	}
}

func (l *invalidation) stop() {
	if l != nil {
		l.cancel()
		<-l.done
	}
}
