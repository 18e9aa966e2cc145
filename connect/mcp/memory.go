package mcp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// RepeatWindow is for how long a call that adds something, made again with the same arguments, is taken for the same call.
const RepeatWindow = 10 * time.Minute

// Memory remembers calls that add something or run something, so that one which an assistant repeats because it got no
// answer is not done twice; and holds the secret that binds a person's answer to the question.
type Memory interface {
	// Key returns the idempotency key of a call: the same for the same connection, area and fingerprint within
	// RepeatWindow of the first, unless what it made was forgotten between.
	Key(ctx context.Context, grantID, area, fingerprint string) (string, error)

	// Made remembers which record the call with the fingerprint made.
	Made(ctx context.Context, grantID, area, fingerprint, record string) error

	// Forget forgets the call that made a record: the record is gone, and may be made anew.
	Forget(ctx context.Context, grantID, area, record string) error

	// Secret returns 32 bytes that are the same on every gateway, and known to none but them.
	Secret(ctx context.Context) ([]byte, error)
}

//go:embed remember.lua
var rememberSource string

type redisMemory struct {
	client   redis.UniversalClient
	prefix   string
	remember *redis.Script

	mu     sync.Mutex
	secret []byte
}

// NewMemory makes a memory on Redis. What it remembers of a connection is in the connection's slot and ends by itself.
func NewMemory(client redis.UniversalClient, prefix string) Memory {
	return &redisMemory{client: client, prefix: prefix + "mcp:", remember: redis.NewScript(rememberSource)}
}

func (m *redisMemory) key(grantID, area string) string {
	return m.prefix + "calls:{" + grantID + "}:" + area
}

// Key implements Memory.
func (m *redisMemory) Key(ctx context.Context, grantID, area, fingerprint string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	key, err := m.remember.Run(ctx, m.client, []string{m.key(grantID, area)}, fieldOf(fingerprint), rand.Text(),
		RepeatWindow.Milliseconds()).Text()
	if err != nil {
		return "", fmt.Errorf("remembering a call: %w", err)
	}
	return key, nil
}

// fieldOf is a fingerprint's field; records' fields begin with a space.
func fieldOf(fingerprint string) string {
	digest := sha256.Sum256([]byte(fingerprint))
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

// Made implements Memory.
func (m *redisMemory) Made(ctx context.Context, grantID, area, fingerprint, record string) error {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	key := m.key(grantID, area)
	_, err := m.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, key, " "+record, fieldOf(fingerprint))
		p.PExpire(ctx, key, RepeatWindow)
		return nil
	})
	if err != nil {
		return fmt.Errorf("remembering what a call made: %w", err)
	}
	return nil
}

// Forget implements Memory.
func (m *redisMemory) Forget(ctx context.Context, grantID, area, record string) error {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	key := m.key(grantID, area)
	field, err := m.client.HGet(ctx, key, " "+record).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil
	case err == nil:
		err = m.client.HDel(ctx, key, field, " "+record).Err()
	}
	if err != nil {
		return fmt.Errorf("forgetting a call: %w", err)
	}
	return nil
}

// Secret implements Memory.
func (m *redisMemory) Secret(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.secret != nil {
		return m.secret, nil
	}
	fresh := make([]byte, 32)
	_, _ = rand.Read(fresh) // never fails
	name := m.prefix + "secret"
	if err := m.client.SetArgs(ctx, name, fresh, redis.SetArgs{Mode: "NX"}).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("keeping the secret of questions: %w", err)
	}
	kept, err := m.client.Get(ctx, name).Bytes()
	if err != nil || len(kept) != len(fresh) {
		return nil, fmt.Errorf("reading the secret of questions: %d bytes, %w", len(kept), err)
	}
	m.secret = kept
	return kept, nil
}
