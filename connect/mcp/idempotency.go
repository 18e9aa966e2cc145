package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// idempotency is the idempotency key of a call that creates or runs something.
type idempotency struct {
	key         string // the key as the assistant knows it
	fingerprint string // under which the key is stored; "" if the assistant supplied the key
	replayed    bool   // the data service had executed the call before
}

// idempotentWrite returns the write options with the call's idempotency key: the supplied one, or else the one that the store
// has for the same call within IdempotencyWindow, or a new one. Two calls are the same if the tool and what is sent to the
// data service are equal. If the store is unavailable, the call fails, because a retry could not be recognised.
func (c *toolCall) idempotentWrite(ctx context.Context, supplied string, sent ...any) (data.Write, *idempotency, error) {
	o := &idempotency{key: supplied}
	if supplied == "" {
		var err error
		if o.fingerprint, err = c.fingerprint(sent); err != nil {
			return data.Write{}, nil, err
		}
		// A client that has disconnected may retry, so its key is stored all the same.
		if o.key, err = c.server.store.Key(context.WithoutCancel(ctx), c.grant.ID, c.area(), o.fingerprint); err != nil {
			return data.Write{}, nil, c.unavailable("The gateway cannot currently guarantee that this is done only once.", err)
		}
	}
	// The data service scopes keys to the account; hashing keeps those of different connections and tools apart.
	digest := sha256.Sum256([]byte(c.grant.ID + "\n" + c.tool.Name + "\n" + o.key))
	return data.Write{Key: data.Key(base64.RawURLEncoding.EncodeToString(digest[:])), Replayed: &o.replayed}, o, nil
}

// appendTo adds to a result whether the call was a retry, and its key.
func (i *idempotency) appendTo(content jsontext.Value) jsontext.Value {
	return with(with(content, "repeated", i.replayed), "idempotency_key", i.key)
}

// unavailable returns the error of a call that needs Redis.
func (c *toolCall) unavailable(message string, err error) *toolError {
	return &toolError{code: codeStore, message: message, effect: c.tool.notDone(), advice: callAgainLater, cause: err}
}

// recordCreated stores which record a call created, for forgetCreated. If it is stored already, the call was a retry, even if the data
// service does not say so.
func (c *toolCall) recordCreated(ctx context.Context, i *idempotency, record string) {
	if i.fingerprint == "" || i.replayed {
		return
	}
	known, err := c.server.store.RecordCreated(context.WithoutCancel(ctx), c.grant.ID, c.area(), i.fingerprint, i.key, record)
	i.replayed = known
	if err != nil {
		c.server.log.Warn("storing a created record failed", zap.String("tool", c.tool.Name),
			zap.String("request_id", c.requestID), zap.Error(err))
	}
}

// forgetCreated removes the idempotency key of the call that created a record, so that a deleted record can be created again.
func (c *toolCall) forgetCreated(ctx context.Context, record string) {
	if err := c.server.store.ForgetCreated(context.WithoutCancel(ctx), c.grant.ID, c.area(), record); err != nil {
		c.server.log.Warn("removing an idempotency key failed", zap.String("tool", c.tool.Name),
			zap.String("request_id", c.requestID), zap.Error(err))
	}
}

func (c *toolCall) area() string {
	area, _, _ := strings.Cut(c.tool.scope, ":")
	return area
}

// fingerprint returns the tool's name and the canonical JSON of what it sends to the data service.
func (c *toolCall) fingerprint(sent []any) (string, error) {
	encoded, err := json.Marshal(sent, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encoding a call: %w", err)
	}
	value := jsontext.Value(encoded)
	if err := value.Format(jsontext.ReorderRawObjects(true)); err != nil {
		return "", fmt.Errorf("encoding a call: %w", err)
	}
	return c.tool.Name + string(value), nil
}
