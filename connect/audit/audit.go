// Package audit keeps the audit log of what was done with a business's connections, keys and data: who did it, through
// which client, when, and how it ended. Each entry is written to the process's log, for the operator's own systems, and to
// Redis streams of the business, bounded in length and age, for the owner's page.
//
// An entry about a change is stored as pending before the change is made, and resolved afterwards: no change is without
// an entry, even if the gateway dies in between.
package audit

import (
	"context"
	"crypto/rand"
	_ "embed" // the script
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
)

// The actions. There are no others: Begin and Record refuse what is not in this list.
const (
	ConnectionApproved = "connection.approved" // Target: the client's host; Detail: the scopes
	ConnectionDenied   = "connection.denied"
	ConnectionStarted  = "connection.started" // the client redeemed its code
	ConnectionRevoked  = "connection.revoked"

	KeyIssued  = "key.issued"  // Target: the public key
	KeyRotated = "key.rotated" // Target: the public key; Detail: how long the old secret stays good
	KeyRevoked = "key.revoked" // Target: the public key

	SessionStarted = "session.started" // signed in
	SessionRefused = "session.refused" // wrong credentials, or too many attempts; of no business, so in the log only
	SessionEnded   = "session.ended"   // signed out

	ToolCalled = "tool.called" // a tool that writes; Target: the tool's name
)

// The outcomes.
const (
	OutcomeOK      = "ok"
	OutcomeRefused = "refused" // not allowed, or the person said no
	OutcomeFailed  = "failed"  // allowed, and did not work
	OutcomeUnknown = "unknown" // it was tried, and whether it was done could not be established
)

// Defaults and bounds.
const (
	DefaultPrefix     = "gatehouse:connect:"
	DefaultMaxEntries = 10_000
	DefaultMaxAge     = 400 * 24 * time.Hour // a year, and some time to look back on it

	// ResolveWithin is how long a change may take: an entry that is pending for longer becomes OutcomeUnknown.
	ResolveWithin = 10 * time.Minute

	defaultTimeout = 2 * time.Second
	maxField       = 256 // characters
	maxDetail      = 1024
)

// The errors of this package.
var (
	// ErrUnavailable says that Redis did not store or return entries. A resolved entry that Redis did not store is in the
	// process's log all the same.
	ErrUnavailable = errors.New("the audit log is unavailable")

	// ErrInvalidEntry says that an entry names none of the actions or outcomes.
	ErrInvalidEntry = errors.New("invalid audit entry")

	// ErrBadCursor says that a cursor is not one that List has returned.
	ErrBadCursor = errors.New("invalid cursor of the audit log")
)

// Entry is one record of the audit log. When it is stored, texts become one line without invisible characters, of at most
// 1024 characters (Detail) or 256 (the others).
type Entry struct {
	Time        time.Time `json:"-"`                     // set by Redis: when the entry was resolved, or, if unknown, begun
	BusinessID  string    `json:"business_id,omitempty"` // whose log; "" for what belongs to no business, which is logged only
	AccountID   string    `json:"account_id,omitempty"`  // who did it, or on whose behalf
	AccountName string    `json:"account_name,omitempty"`
	GrantID     string    `json:"grant_id,omitempty"`    // the connection, if it is about one
	ClientName  string    `json:"client_name,omitempty"` // the assistant's name as it calls itself
	Action      string    `json:"action"`                // one of the actions
	Target      string    `json:"target,omitempty"`      // what it was done to
	Outcome     string    `json:"outcome"`               // one of the outcomes
	Detail      string    `json:"detail,omitempty"`      // a sentence for people; never a secret, never what a tool was told
	RequestID   string    `json:"request_id,omitempty"`
}

// Options of a [Log].
type Options struct {
	Redis      redis.UniversalClient // required
	Prefix     string                // of the keys in Redis; default: DefaultPrefix
	MaxEntries int64                 // kept in each stream of a business, about; default: DefaultMaxEntries
	MaxAge     time.Duration         // an entry's; default: DefaultMaxAge
	Timeout    time.Duration         // for Redis to store or return entries; default: 2s
	Log        *zap.Logger           // required: every entry is written to it as well
}

// Log is the audit log of all businesses. It is safe for concurrent use.
//
// Redis holds for each business, in one slot:
//
//	{prefix}audit:{business}:access   stream: connections, keys and sign-ins
//	{prefix}audit:{business}:tools    stream: tool calls, which cannot push out the others
//	{prefix}audit:{business}:pending  hash: entries whose change is being made
type Log struct {
	o      Options
	script *redis.Script
}

//go:embed audit.lua
var script string

// New makes an audit log. It asks Redis nothing yet.
func New(o Options) (*Log, error) {
	if o.Redis == nil || o.Log == nil {
		return nil, errors.New("the audit log needs both Redis and a log")
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = DefaultMaxEntries
	}
	if o.MaxAge <= 0 {
		o.MaxAge = DefaultMaxAge
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	return &Log{o: o, script: redis.NewScript(script)}, nil
}

// Change is a change that is being made. Resolve or Drop ends it; whatever comes first counts.
type Change struct {
	Entry // its fields may be completed until Resolve

	log   *Log
	id    string
	ended atomic.Bool
}

// Begin stores an entry as pending. With an error (ErrUnavailable, ErrInvalidEntry) the change must not be made.
func (l *Log) Begin(ctx context.Context, e Entry) (*Change, error) {
	c := &Change{Entry: e, log: l, id: rand.Text()}
	e.Outcome = OutcomeUnknown // unless it is resolved
	e.clean()
	if !e.valid() || e.BusinessID == "" {
		return nil, ErrInvalidEntry
	}
	if err := l.run(ctx, "begin", c.id, e); err != nil {
		return nil, err
	}
	return c, nil
}

// Resolve says how the change ended. It does not end with ctx: what was done is recorded even if nobody waits for the
// response any more. An entry that cannot be stored is in the process's log, and later in the business's as OutcomeUnknown.
func (c *Change) Resolve(ctx context.Context, outcome string) {
	if c.ended.Swap(true) {
		return
	}
	c.Outcome = outcome
	_ = c.log.store(ctx, c.id, c.Entry) // has written why
}

// Drop removes the entry: nothing was changed, and nothing was refused.
func (c *Change) Drop(ctx context.Context) {
	if c.ended.Swap(true) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.log.o.Timeout)
	defer cancel()
	_ = c.log.run(ctx, "drop", c.id, c.Entry) // it then becomes unknown
}

// Record stores an entry about something that changes nothing, such as a refused attempt. It does not end with the
// caller's context. An error (ErrUnavailable, ErrInvalidEntry) says that Redis does not have the entry; the log has it.
func (l *Log) Record(ctx context.Context, e Entry) error {
	if e.Outcome == "" {
		e.Outcome = OutcomeOK
	}
	return l.store(ctx, rand.Text(), e)
}

func (l *Log) store(ctx context.Context, id string, e Entry) error {
	e.clean()
	l.write(e)
	err := ErrInvalidEntry
	if e.valid() {
		if e.BusinessID == "" {
			return nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.o.Timeout)
		defer cancel()
		err = l.run(ctx, "end", id, e)
	}
	if err != nil {
		l.o.Log.Error("audit entry not stored", zap.String("action", e.Action), zap.String("outcome", e.Outcome),
			zap.String("business_id", e.BusinessID), zap.String("request_id", e.RequestID), zap.Error(err))
	}
	return err
}

// run takes a step of audit.lua, and logs the entries that it has found to be unresolved.
func (l *Log) run(ctx context.Context, step, id string, e Entry) error {
	entry, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("%w: encoding: %w", ErrInvalidEntry, err)
	}
	ctx, cancel := context.WithTimeout(ctx, l.o.Timeout)
	defer cancel()
	keys := []string{l.key(e.BusinessID, "pending"), l.key(e.BusinessID, streamAccess), l.key(e.BusinessID, streamTools)}
	stream := 2
	if streamOf(e.Action) == streamTools {
		stream = 3
	}
	unresolved, err := l.script.Run(ctx, l.o.Redis, keys, step, stream, id, entry, l.o.MaxEntries, l.o.MaxAge.Milliseconds(),
		ResolveWithin.Milliseconds()).StringSlice()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	for _, entry := range unresolved {
		l.write(decode(e.BusinessID, entry))
	}
	return nil
}

// The streams of a business.
const (
	streamAccess = "access"
	streamTools  = "tools"
)

func streamOf(action string) string {
	if strings.HasPrefix(action, "tool.") {
		return streamTools
	}
	return streamAccess
}

// key is a key of a business. Braces in its ID would decide the Cluster slot.
func (l *Log) key(businessID, name string) string {
	return l.o.Prefix + "audit:{" + strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D").Replace(businessID) + "}:" + name
}

// write writes an entry to the process's log.
func (l *Log) write(e Entry) {
	var fields []zap.Field
	for _, f := range e.texts() {
		if *f.value != "" {
			fields = append(fields, zap.String(f.name, *f.value))
		}
	}
	l.o.Log.Info("audit", fields...)
}

func (e *Entry) valid() bool {
	switch e.Action {
	case ConnectionApproved, ConnectionDenied, ConnectionStarted, ConnectionRevoked, KeyIssued, KeyRotated, KeyRevoked, SessionStarted,
		SessionRefused, SessionEnded, ToolCalled:
	default:
		return false
	}
	switch e.Outcome {
	case OutcomeOK, OutcomeRefused, OutcomeFailed, OutcomeUnknown:
		return true
	default:
		return false
	}
}

// texts are the fields with their names in the log.
func (e *Entry) texts() []struct {
	name  string
	value *string
} {
	return []struct {
		name  string
		value *string
	}{
		{"business_id", &e.BusinessID},
		{"account_id", &e.AccountID},
		{"account_name", &e.AccountName},
		{"grant_id", &e.GrantID},
		{"client_name", &e.ClientName},
		{"action", &e.Action},
		{"target", &e.Target},
		{"outcome", &e.Outcome},
		{"detail", &e.Detail},
		{"request_id", &e.RequestID},
	}
}

func (e *Entry) clean() {
	for _, f := range e.texts() {
		bound := maxField
		if f.value == &e.Detail {
			bound = maxDetail
		}
		*f.value = cleantext.Line(*f.value, bound)
	}
}

// decode reads an entry that run has stored. What cannot be read is left out: it is a record of the past, not a command.
func decode(businessID, entry string) Entry {
	var e Entry
	_ = json.Unmarshal([]byte(entry), &e)
	e.BusinessID = businessID
	return e
}
