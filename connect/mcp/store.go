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

// RepeatWindow is for how long a call that adds something, made again with the same arguments, is taken for the same call.
const RepeatWindow = 10 * time.Minute

// storeTimeout is how long a call waits for the store. Without it, nothing is added, run or asked.
const storeTimeout = 2 * time.Second

//go:embed remember.lua
var rememberSource string

// Store keeps in Redis the idempotency keys of calls that add or run something, so that a call which an assistant repeats
// because it got no response is done once, and the questions that persons are asked. All that it keeps of a connection is in
// the connection's slot and expires.
type Store struct {
	client   redis.UniversalClient
	prefix   string
	remember *redis.Script
}

// NewStore makes a store. prefix begins the names of its keys.
func NewStore(client redis.UniversalClient, prefix string) *Store {
	return &Store{client: client, prefix: prefix + "mcp:", remember: redis.NewScript(rememberSource)}
}

func (s *Store) key(grantID, area string) string {
	return s.prefix + "calls:{" + grantID + "}:" + area
}

// Key returns the idempotency key of a call: the same for the same connection, area and fingerprint within RepeatWindow of
// the first, unless what it made was forgotten between.
func (s *Store) Key(ctx context.Context, grantID, area, fingerprint string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	key, err := s.remember.Run(ctx, s.client, []string{s.key(grantID, area)}, fieldOf(fingerprint), rand.Text(),
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

// Made stores which record the call with the fingerprint made.
func (s *Store) Made(ctx context.Context, grantID, area, fingerprint, record string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	key := s.key(grantID, area)
	_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, key, " "+record, fieldOf(fingerprint))
		p.PExpire(ctx, key, RepeatWindow)
		return nil
	})
	if err != nil {
		return fmt.Errorf("remembering what a call made: %w", err)
	}
	return nil
}

// Forget removes the call that made a record: the record is gone, and may be made anew.
func (s *Store) Forget(ctx context.Context, grantID, area, record string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	key := s.key(grantID, area)
	field, err := s.client.HGet(ctx, key, " "+record).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil
	case err == nil:
		err = s.client.HDel(ctx, key, field, " "+record).Err()
	}
	if err != nil {
		return fmt.Errorf("forgetting a call: %w", err)
	}
	return nil
}

// Ask stores a question about subject, and returns the secret that its answer has to come with.
func (s *Store) Ask(ctx context.Context, grantID, subject string, lifetime time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	id := rand.Text()
	if err := s.client.Set(ctx, s.question(grantID, id, subject), 1, lifetime).Err(); err != nil {
		return "", fmt.Errorf("storing a question: %w", err)
	}
	return id, nil
}

// Answered reports whether there is such a question about subject, and removes it: each is answered once, whatever the answer
// is.
func (s *Store) Answered(ctx context.Context, grantID, id, subject string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	n, err := s.client.Del(ctx, s.question(grantID, id, subject)).Result()
	if err != nil {
		return false, fmt.Errorf("reading a question: %w", err)
	}
	return n == 1, nil
}

func (s *Store) question(grantID, id, subject string) string {
	return s.prefix + "question:{" + grantID + "}:" + fieldOf(id+" "+subject)
}
