package mcp

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// idempotency is the idempotency key of a call that creates or starts something.
type idempotency struct {
	key         string // the key as the assistant knows it
	fingerprint string // under which the key is stored; "" if the assistant supplied the key
	replayed    bool   // the data service had executed the call before
	location    string // data.Write.Location
}

// sendOnce calls the operation with the call's idempotency key: the one that the assistant sent, or else the one that the store has for
// an equal call within IdempotencyWindow, or a new one. Calls are equal if their tools and their requests to the data service are. If
// the store is unavailable, the call fails, because a retry could not be recognised.
func (c *toolCall) sendOnce(ctx context.Context) (content jsontext.Value, o *idempotency, err error) {
	c.addDefaults()
	o = &idempotency{key: c.args.text(argIdempotencyKey)}
	if o.key == "" {
		o.fingerprint = c.tool.Name + string(canonical(encode([]any{c.args.path, c.args.query, c.args.body})))
		if o.key, err = c.server.store.Key(ctx, c.grant.ID, c.tool.Area, o.fingerprint); err != nil {
			return nil, nil, c.unavailable("The gateway cannot currently guarantee that this is done only once.", err)
		}
	}
	// To the data service, keys belong to an account. The hash separates those of its connections and their tools.
	key := hash(c.grant.ID + "\n" + c.tool.Name + "\n" + o.key)
	content, err = c.send(context.WithoutCancel(ctx), c.tool.Operation,
		data.Write{Key: key, IfMatch: c.ifMatch, Replayed: &o.replayed, Location: &o.location})
	if e, ok := errors.AsType[*data.Error](err); ok && e.Uncertain && o.fingerprint != "" { // it may have been executed just now
		c.warn("renewing an idempotency key failed", c.server.store.Renew(ctx, c.grant.ID, c.tool.Area, o.fingerprint, o.key))
	}
	return content, o, err
}

// appendTo adds to a result whether the call was a retry, and the key.
func (i *idempotency) appendTo(content jsontext.Value) jsontext.Value {
	if i.replayed {
		content = with(content, "repeated_hint", "Nothing was done now: this is the result of an earlier, identical call. To do it again on purpose, send a new idempotency_key.")
	}
	return with(with(content, "repeated", i.replayed), "idempotency_key", i.key)
}

// unavailable returns the error for a call that needs Redis.
func (c *toolCall) unavailable(message string, err error) *toolError {
	return &toolError{code: codeStore, message: message, effect: c.tool.notDone(), advice: callAgainLater, cause: err}
}

// recordCreated stores which record a call created, so that an equal call can create it again after it was deleted. If it was stored
// before, the call was a retry, even if the data service does not say so.
func (c *toolCall) recordCreated(ctx context.Context, i *idempotency, record string) {
	if i.fingerprint == "" || i.replayed {
		return
	}
	var err error
	i.replayed, err = c.server.store.RecordCreated(ctx, c.grant.ID, c.tool.Area, i.fingerprint, i.key, record)
	c.warn("storing a created record failed", err)
}

// addDefaults adds the documented defaults to the body, so that a call that sends a default equals one that omits it.
func (c *toolCall) addDefaults() {
	if c.args.body == nil {
		return
	}
	for _, p := range c.tool.Operation.Body.Kinds[0].Schema.Properties {
		if _, ok := c.args.body[p.Name]; !ok && p.Default != nil && p.Schema.Refused == "" {
			c.args.body[p.Name] = p.Default
		}
	}
}
