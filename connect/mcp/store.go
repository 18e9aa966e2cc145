package mcp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// IdempotencyWindow is how long an equal call of a tool that creates or starts something counts as a retry.
const IdempotencyWindow = 10 * time.Minute

const storeTimeout = 2 * time.Second

//go:embed idempotency.lua
var idempotencyScript string

// store keeps idempotency keys and pending confirmations in Redis. All keys of a connection are in one slot, and all have a TTL.
type store struct {
	client redis.UniversalClient
	prefix string
	script *redis.Script
}

// newStore returns a store whose keys in Redis begin with prefix.
func newStore(client redis.UniversalClient, prefix string) *store {
	return &store{client: client, prefix: prefix + "mcp:", script: redis.NewScript(idempotencyScript)}
}

// do executes Redis commands, also after the client has disconnected, because it may retry.
func (s *store) do(ctx context.Context, what string, commands func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := commands(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// run runs a step of idempotency.lua for a connection's calls in an area.
func (s *store) run(ctx context.Context, what, grantID, area, step string, args ...any) (reply string, err error) {
	err = s.do(ctx, what, func(ctx context.Context) (err error) {
		calls, args := s.prefix+"calls:{"+grantID+"}:"+area, append([]any{step, IdempotencyWindow.Milliseconds()}, args...)
		reply, err = s.script.Run(ctx, s.client, []string{calls}, args...).Text()
		return err
	})
	return reply, err
}

// Key returns the idempotency key of a call. It is the same for equal connections, areas and fingerprints within IdempotencyWindow
// of the first call and of each for which Renew was called, unless ForgetCreated has removed it.
func (s *store) Key(ctx context.Context, grantID, area, fingerprint string) (string, error) {
	return s.run(ctx, "storing an idempotency key", grantID, area, "key", hash(fingerprint), rand.Text())
}

// Renew begins IdempotencyWindow again for a call with the idempotency key.
func (s *store) Renew(ctx context.Context, grantID, area, fingerprint, key string) error {
	_, err := s.run(ctx, "renewing an idempotency key", grantID, area, "renew", hash(fingerprint), key)
	return err
}

// RecordCreated stores which record the call with the fingerprint and the idempotency key created, and reports whether it was stored
// before.
func (s *store) RecordCreated(ctx context.Context, grantID, area, fingerprint, key, record string) (known bool, err error) {
	reply, err := s.run(ctx, "storing a created record", grantID, area, "created", hash(fingerprint), key, record, rand.Text())
	return reply == "known", err
}

// ForgetCreated removes the idempotency key of the call that created a record.
func (s *store) ForgetCreated(ctx context.Context, grantID, area, record string) error {
	_, err := s.run(ctx, "removing an idempotency key", grantID, area, "forget", record)
	return err
}

// hash returns the SHA-256 of a text in base64url, such as the field of a fingerprint. Fields of records begin with a space instead.
func hash(text string) string {
	digest := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

// CreateConfirmation stores a pending confirmation of subject and returns its secret ID, which the response must contain.
func (s *store) CreateConfirmation(ctx context.Context, grantID, subject string, lifetime time.Duration) (string, error) {
	id := rand.Text()
	return id, s.do(ctx, "storing a confirmation", func(ctx context.Context) error {
		return s.client.Set(ctx, s.confirmationKey(grantID, id, subject), 1, lifetime).Err()
	})
}

// ConsumeConfirmation reports whether the confirmation is pending, and removes it, so that it is good for one response.
func (s *store) ConsumeConfirmation(ctx context.Context, grantID, id, subject string) (pending bool, err error) {
	err = s.do(ctx, "reading a confirmation", func(ctx context.Context) error {
		n, err := s.client.Del(ctx, s.confirmationKey(grantID, id, subject)).Result()
		pending = n == 1
		return err
	})
	return pending, err
}

func (s *store) confirmationKey(grantID, id, subject string) string {
	return s.prefix + "question:{" + grantID + "}:" + hash(id+" "+subject)
}
