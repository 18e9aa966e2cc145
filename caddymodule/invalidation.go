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

// invalidationChannel is the Redis channel for rotated and revoked keys. A message is a public key. It only makes gateways look
// the key up again, so a forged message can neither create a key nor keep a revoked one valid.
const invalidationChannel = "gatehouse:credentials"

// eventInvalidationLost is the credential event of a subscription that failed or ended: invalidations may be lost until the next.
const eventInvalidationLost = "invalidation_lost"

const (
	invalidationTimeout = 3 * time.Second
	invalidationPing    = 10 * time.Second // ping the connection after this time without a message
	invalidationRetry   = time.Second
)

// publishInvalidation makes all gateways on the same Redis look up a key again. It works after ctx has ended too.
func publishInvalidation(ctx context.Context, client redis.UniversalClient, publicKey string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), invalidationTimeout)
	defer cancel()
	if err := client.Publish(ctx, invalidationChannel, publicKey).Err(); err != nil {
		return fmt.Errorf("publishing an invalidation: %w", err)
	}
	return nil
}

// Invalidate makes running gateways look up a key again, and reports whether it could notify them. It works after ctx has ended too.
func (a *App) Invalidate(ctx context.Context, publicKey string) bool {
	return a.redis != nil && publishInvalidation(ctx, a.redis.client, publicKey) == nil
}

// invalidationListener is a subscription to invalidationChannel for a credential cache.
type invalidationListener struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func listenForInvalidations(client redis.UniversalClient, cache *authsigner.Cache, report func(event string, err error)) *invalidationListener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &invalidationListener{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for reported := false; ; reported = true {
			subscribed, err := receiveInvalidations(ctx, client, cache)
			if ctx.Err() != nil {
				return
			}
			if subscribed || !reported {
				report(eventInvalidationLost, err) // once for each outage
			}
			select {
			case <-ctx.Done():
			case <-time.After(invalidationRetry):
			}
		}
	}()
	return l
}

// receiveInvalidations runs one subscription until it fails. Messages published before it are lost, so it invalidates all
// cached credentials when it begins, the first time too, because requests do not wait for the subscription.
func receiveInvalidations(ctx context.Context, client redis.UniversalClient, cache *authsigner.Cache) (subscribed bool, err error) {
	sub := client.Subscribe(ctx, invalidationChannel)
	// reads ignore the context: closing the subscription ends them
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	defer func() { _ = sub.Close() }() // closing it twice is harmless
	for pinged := false; ; {
		msg, err := sub.ReceiveTimeout(ctx, invalidationPing)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !pinged:
			if err := sub.Ping(ctx); err != nil {
				return subscribed, fmt.Errorf("keeping the subscription alive: %w", err)
			}
			pinged = true // any message must arrive before the next deadline
			continue
		case err != nil:
			return subscribed, fmt.Errorf("receiving invalidations: %w", err)
		}
		pinged = false
		switch msg := msg.(type) {
		case *redis.Subscription:
			cache.InvalidateAll() // also after the client has resubscribed by itself
			subscribed = true
		case *redis.Message:
			cache.Invalidate(msg.Payload)
		}
	}
}

func (l *invalidationListener) stop() {
	if l != nil {
		l.cancel()
		<-l.done
	}
}
