package mcp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// IdempotencyWindow is how long a call that creates something, made again with the same arguments, counts as a retry.
const IdempotencyWindow = 10 * time.Minute

const storeTimeout = 2 * time.Second

//go:embed idempotency.lua
var idempotencyScript string

//go:embed forget.lua
var forgetScript string

// store keeps idempotency keys and pending confirmations in Redis. All keys of a connection are in one slot and expire.
type store struct {
	client redis.UniversalClient
	prefix string
	key    *redis.Script
	forget *redis.Script
}

// newStore returns a store whose keys in Redis begin with prefix.
func newStore(client redis.UniversalClient, prefix string) *store {
	return &store{
		client: client, prefix: prefix + "mcp:", key: redis.NewScript(idempotencyScript), forget: redis.NewScript(forgetScript),
	}
}

func (s *store) callsKey(grantID, area string) string {
	return s.prefix + "calls:{" + grantID + "}:" + area
}

// Key returns the idempotency key of a call. It is the same for the same connection, area and fingerprint within
// IdempotencyWindow of the first call, unless ForgetCreated removed it.
func (s *store) Key(ctx context.Context, grantID, area, fingerprint string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	key, err := s.key.Run(ctx, s.client, []string{s.callsKey(grantID, area)}, fieldOf(fingerprint), rand.Text(),
		IdempotencyWindow.Milliseconds()).Text()
	if err != nil {
		return "", fmt.Errorf("storing an idempotency key: %w", err)
	}
	return key, nil
}

// fieldOf returns the hash field of a fingerprint. The fields of records begin with a space.
func fieldOf(fingerprint string) string {
	digest := sha256.Sum256([]byte(fingerprint))
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

// RecordCreated stores which record the call with the fingerprint and the idempotency key created, and reports whether that was stored
// already.
func (s *store) RecordCreated(ctx context.Context, grantID, area, fingerprint, key, record string) (known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	calls := s.callsKey(grantID, area)
	value := fieldOf(fingerprint) + " " + key
	var before *redis.StringCmd
	_, err = s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		before = p.HGet(ctx, calls, " "+record)
		p.HSet(ctx, calls, " "+record, value)
		p.PExpire(ctx, calls, IdempotencyWindow)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("storing a created record: %w", err)
	}
	return before.Val() == value, nil
}

// ForgetCreated removes the idempotency key of the call that created a record.
func (s *store) ForgetCreated(ctx context.Context, grantID, area, record string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := s.forget.Run(ctx, s.client, []string{s.callsKey(grantID, area)}, " "+record).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("removing an idempotency key: %w", err)
	}
	return nil
}

// CreateConfirmation stores a pending confirmation of subject and returns the secret that the user's response must carry.
func (s *store) CreateConfirmation(ctx context.Context, grantID, subject string, lifetime time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	id := rand.Text()
	if err := s.client.Set(ctx, s.confirmationKey(grantID, id, subject), 1, lifetime).Err(); err != nil {
		return "", fmt.Errorf("storing a confirmation: %w", err)
	}
	return id, nil
}

// ConsumeConfirmation reports whether the confirmation is pending, and removes it: each accepts one response.
func (s *store) ConsumeConfirmation(ctx context.Context, grantID, id, subject string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	n, err := s.client.Del(ctx, s.confirmationKey(grantID, id, subject)).Result()
	if err != nil {
		return false, fmt.Errorf("reading a confirmation: %w", err)
	}
	return n == 1, nil
}

func (s *store) confirmationKey(grantID, id, subject string) string {
	return s.prefix + "question:{" + grantID + "}:" + fieldOf(id+" "+subject)
}
