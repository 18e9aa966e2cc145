package mcp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// once is how a call that adds or runs something is done once, however often it is made.
type once struct {
	shown       string // the key as the assistant knows it
	fingerprint string // under which the key is stored; "" if the assistant has named it
	replayed    bool   // the data service had done it before
}

// once gives the idempotency key of a call: the one that the assistant names, or the one that this call was given when it
// was first made a short while ago, or a fresh one. upstream is what the call sends to the data service, which is what it is
// known by: what else is in its arguments makes it no other call. Without the store nothing is done: a call whose response
// was lost would be done twice just when clients repeat.
func (c *toolCall) once(ctx context.Context, named string, upstream ...any) (data.Write, *once, error) {
	o := &once{shown: named}
	if named == "" {
		var err error
		if o.fingerprint, err = c.fingerprint(upstream); err != nil {
			return data.Write{}, nil, err
		}
		// Whether or not anybody waits for the response still: who has gone may come back and ask for the same.
		if o.shown, err = c.server.store.Key(write(ctx), c.grant.ID, c.area(), o.fingerprint); err != nil {
			return data.Write{}, nil, c.unavailable("The gateway cannot make sure at the moment that this is done only once.", err)
		}
	}
	// The data service's keys are the account's: connections and tools must not meet there.
	digest := sha256.Sum256([]byte(c.grant.ID + "\n" + c.tool.name + "\n" + o.shown))
	return data.Write{Key: data.Key(base64.RawURLEncoding.EncodeToString(digest[:])), Replayed: &o.replayed}, o, nil
}

// unavailable is the error of a call that Redis is needed for.
func (c *toolCall) unavailable(sentence string, err error) *toolError {
	return &toolError{code: codeStore, sentence: sentence, done: c.tool.untouched(), next: retrySoon, cause: err}
}

// fresh is how a call is done that may be repeated anyway: a change of what is there.
func fresh(version int64) data.Write { return data.Write{Key: data.Key(rand.Text()), Version: version} }

// remember keeps which record a call made, for forget.
func (c *toolCall) remember(ctx context.Context, o *once, record string) {
	if o.fingerprint == "" || o.replayed {
		return
	}
	if err := c.server.store.Made(write(ctx), c.grant.ID, c.area(), o.fingerprint, record); err != nil {
		c.server.log.Warn("what a call made cannot be remembered", zap.String("tool", c.tool.name),
			zap.String("request_id", c.grant.requestID), zap.Error(err))
	}
}

// forget lets a record that was deleted be made anew.
func (c *toolCall) forget(ctx context.Context, record string) {
	if err := c.server.store.Forget(write(ctx), c.grant.ID, c.area(), record); err != nil {
		c.server.log.Warn("a call cannot be forgotten", zap.String("tool", c.tool.name),
			zap.String("request_id", c.grant.requestID), zap.Error(err))
	}
}

func (c *toolCall) area() string {
	area, _, _ := strings.Cut(c.tool.scope, ":")
	return area
}

// fingerprint is the tool and what it sends upstream, whatever the order of members and white space.
func (c *toolCall) fingerprint(upstream []any) (string, error) {
	sent, err := json.Marshal(upstream, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encoding a call: %w", err)
	}
	value := jsontext.Value(sent)
	if err := value.Format(jsontext.ReorderRawObjects(true)); err != nil {
		return "", fmt.Errorf("encoding a call: %w", err)
	}
	return c.tool.name + string(value), nil
}
