package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// once is how a call that adds or runs something is done once, however often it is made.
type once struct {
	shown    string // the key as the assistant knows it
	recalled bool   // the key is kept in memory, under the call's fingerprint
	replayed bool   // the data service had done it before
}

// key is the argument that names a call.
func keyArgument() node {
	return node{
		"type", "string", "minLength", 8, "maxLength", 100, "pattern", "^[\\x21-\\x7e]+$",
		"description", "Names this one call. Leave it out normally: the same call with the same arguments within 10 minutes is " +
			"then taken for a repetition and gives the first result again. To do the same thing deliberately twice, give a " +
			"key of your own that you have not used before.",
		"examples",
		[]string{"reminders-2026-03-05-second"},
	}
}

// once gives the idempotency key of a call: the one that the assistant names, or the one that this call with these
// arguments was given when it was first made a short while ago, or a fresh one.
func (c *call) once(ctx context.Context, named string) (data.Write, *once) {
	o := &once{shown: named}
	if named == "" {
		var err error
		// Whether or not anybody waits for the answer still: who has gone may come back and ask for the same.
		if o.shown, err = c.server.o.Memory.Key(write(ctx), c.grant.ID, c.area(), c.fingerprint()); err != nil {
			// Doing it is worth more than being sure that it is not done twice.
			c.server.log.Warn("a call cannot be remembered", zap.String("tool", c.tool.name),
				zap.String("request_id", c.grant.requestID), zap.Error(err))
			o.shown = rand.Text()
		}
		o.recalled = err == nil
	}
	// The data service's keys are the account's: connections and tools must not meet there.
	digest := sha256.Sum256([]byte(c.grant.ID + "\n" + c.tool.name + "\n" + o.shown))
	return data.Write{Key: data.Key(base64.RawURLEncoding.EncodeToString(digest[:])), Replayed: &o.replayed}, o
}

// fresh is how a call is done that may be repeated anyway: a change of what is there.
func fresh(version int64) data.Write { return data.Write{Key: data.Key(rand.Text()), Version: version} }

// remember keeps which record a call made, for forget.
func (c *call) remember(ctx context.Context, o *once, record string) {
	if !o.recalled || o.replayed {
		return
	}
	if err := c.server.o.Memory.Made(write(ctx), c.grant.ID, c.area(), c.fingerprint(), record); err != nil {
		c.server.log.Warn("what a call made cannot be remembered", zap.String("tool", c.tool.name),
			zap.String("request_id", c.grant.requestID), zap.Error(err))
	}
}

// forget lets a record that was deleted be made anew.
func (c *call) forget(ctx context.Context, record string) {
	if err := c.server.o.Memory.Forget(write(ctx), c.grant.ID, c.area(), record); err != nil {
		c.server.log.Warn("a call cannot be forgotten", zap.String("tool", c.tool.name),
			zap.String("request_id", c.grant.requestID), zap.Error(err))
	}
}

func (c *call) area() string {
	area, _, _ := strings.Cut(c.tool.scope, ":")
	return area
}

// fingerprint is the tool and its arguments, whatever their order and white space.
func (c *call) fingerprint() string {
	d := json.NewDecoder(bytes.NewReader(c.request.Params.Arguments))
	d.UseNumber()
	var arguments any
	if d.Decode(&arguments) != nil {
		return c.tool.name + string(c.request.Params.Arguments)
	}
	canonical, err := json.Marshal(arguments)
	if err != nil {
		return c.tool.name + string(c.request.Params.Arguments)
	}
	return c.tool.name + string(canonical)
}
