// Package audit is the audit log of a business's connections, keys and data: who did what, through which client, when, and with
// what outcome. Each entry is written to the process log for the operator, and to a Redis stream for the owners' activity page.
// Each business has a stream for each kind of entry, limited in length and age.
//
// The entry of a change is stored as pending before the change is made and resolved afterwards, so that every change has an entry
// even if the gateway crashes in between. Times are Redis's.
package audit

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed" // the script
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/versioned"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

// Actions. Begin and Record reject others.
const (
	ConnectionApproved = "connection.approved" // Target: the client's host; Detail: the scopes
	ConnectionDenied   = "connection.denied"
	ConnectionStarted  = "connection.started" // the client redeemed its code
	ConnectionRevoked  = "connection.revoked"
	ConnectionChanged  = "connection.changed" // an owner changed what it may do; Detail: the new scopes

	KeyIssued  = "key.issued"  // Target: the public key
	KeyRotated = "key.rotated" // Target: the public key; Detail: how long the old private key keeps working
	KeyRevoked = "key.revoked" // Target: the public key

	SessionStarted = "session.started" // signed in
	SessionDenied  = "session.denied"  // wrong credentials; without a business, so in the process log only
	SessionEnded   = "session.ended"   // signed out

	ToolCalled = "tool.called" // a tool that writes; Target: the tool's name
)

// Outcomes.
const (
	OutcomeOK      = "ok"
	OutcomeDenied  = "denied" // not allowed, or declined by the user
	OutcomeFailed  = "failed"
	OutcomeUnknown = "unknown" // attempted, but the result is not known
)

// Defaults and limits.
const (
	DefaultPrefix     = "gatehouse:connect:"
	DefaultMaxEntries = 10_000
	DefaultMaxAge     = 400 * 24 * time.Hour // a year and a month

	// ResolveWithin is the maximum duration of a change. An entry that is pending for longer becomes OutcomeUnknown when the
	// next change with its action begins or ends, or when entries are listed.
	ResolveWithin = 10 * time.Minute

	defaultTimeout = 2 * time.Second
	maxField       = 256  // characters
	maxDetail      = 1024 // characters
)

// Errors of a [Log]. Resolved entries are in the process log even if Redis does not store them.
var (
	ErrUnavailable  = errors.New("the audit log is unavailable")    // Redis failed; the error wraps the cause
	ErrInvalidEntry = errors.New("invalid audit entry")             // with an unknown action or outcome
	ErrBadCursor    = errors.New("invalid cursor of the audit log") // not one that List returned
)

// Entry is one entry of the audit log. Before it is stored, each text becomes one line without invisible characters, of at most
// 1024 (Detail) or 256 characters.
type Entry struct {
	Time        time.Time `json:"-"`                     // when it was resolved, or begun if the outcome is unknown; set by List
	BusinessID  string    `json:"business_id,omitempty"` // if "", the entry is written to the process log only
	AccountID   string    `json:"account_id,omitempty"`  // who did it, or on whose behalf
	AccountName string    `json:"account_name,omitempty"`
	GrantID     string    `json:"grant_id,omitempty"`    // the connection, if any
	ClientName  string    `json:"client_name,omitempty"` // from the client's metadata
	Action      string    `json:"action"`
	Target      string    `json:"target,omitempty"` // what was affected
	Outcome     string    `json:"outcome"`
	Detail      string    `json:"detail,omitempty"`   // for readers of the activity page; never a secret or a tool's arguments
	Sentence    string    `json:"sentence,omitempty"` // what was done, in words
	RequestID   string    `json:"request_id,omitempty"`
}

// Options of a [Log].
type Options struct {
	Redis      redis.UniversalClient // required
	Prefix     string                // of the keys in Redis; default: DefaultPrefix
	MaxEntries int64                 // approximate maximum length of a stream, a tenth for denied attempts; default: DefaultMaxEntries
	MaxAge     time.Duration         // of an entry; default: DefaultMaxAge
	Timeout    time.Duration         // of a Redis call; default: 2s
	Log        *zap.Logger           // gets every entry; required
}

// Log is the audit log of all businesses. It is safe for concurrent use.
//
// Redis holds for each business, in one slot:
//
//	{prefix}audit:{business}:{action}         stream: the entries of an action
//	{prefix}audit:{business}:{action}:denied  stream: denied attempts at it
//	{prefix}audit:{business}:pending          hash: pending entries
//
// An account that repeats one kind of entry can therefore not displace entries of another kind.
type Log struct {
	o      Options
	script *redis.Script
}

//go:embed audit.lua
var script string

// New returns an audit log. It does not contact Redis.
func New(o Options) (*Log, error) {
	if o.Redis == nil || o.Log == nil {
		return nil, errors.New("audit log: Redis and Log are required")
	}
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.MaxEntries = cmp.Or(o.MaxEntries, DefaultMaxEntries)
	o.MaxAge = cmp.Or(o.MaxAge, DefaultMaxAge)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	return &Log{o: o, script: redis.NewScript(script)}, nil
}

// Change is a pending change. The first call of Resolve or Drop ends it.
type Change struct {
	Entry // fields may be set until Resolve

	log   *Log
	id    string
	ended atomic.Bool
}

// Begin stores an entry as pending. If it returns an error (ErrUnavailable, ErrInvalidEntry), the change must not be made.
func (l *Log) Begin(ctx context.Context, e Entry) (*Change, error) {
	c := &Change{Entry: e, log: l, id: rand.Text()}
	e.Outcome = OutcomeUnknown // in case it is never resolved
	e.clean()
	if !e.valid() || e.BusinessID == "" {
		return nil, ErrInvalidEntry
	}
	if err := l.run(ctx, "begin", c.id, e, streamOf(e)); err != nil {
		return nil, err
	}
	return c, nil
}

// Resolve stores the change's outcome. It ignores ctx's cancellation, so that a change is recorded even if the client has
// disconnected. If it fails, the outcome is in the process log, and the business's log later has OutcomeUnknown.
func (c *Change) Resolve(ctx context.Context, outcome string) {
	if c.ended.Swap(true) {
		return
	}
	c.Outcome = outcome
	_ = c.log.store(ctx, c.id, c.Entry) // logs its own failures
}

// Drop removes the entry of a change that was not made.
func (c *Change) Drop(ctx context.Context) {
	if c.ended.Swap(true) {
		return
	}
	_ = c.log.run(context.WithoutCancel(ctx), "drop", c.id, c.Entry, streamOf(c.Entry)) // if it fails, the entry becomes OutcomeUnknown
}

// Record stores an entry that is not about a change, such as a denied attempt. It ignores ctx's cancellation. If it returns an
// error (ErrUnavailable, ErrInvalidEntry), the entry is in the process log only.
func (l *Log) Record(ctx context.Context, e Entry) error {
	e.Outcome = cmp.Or(e.Outcome, OutcomeOK)
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
		err = l.run(context.WithoutCancel(ctx), "end", id, e, streamOf(e))
	}
	if err != nil {
		l.o.Log.Error("audit entry not stored", zap.String("action", e.Action), zap.String("outcome", e.Outcome),
			zap.String("business", e.BusinessID), zap.String("request_id", e.RequestID), zap.Error(err))
	}
	return err
}

// run runs a step of audit.lua with the given streams, and logs the pending entries that the script resolved as unknown.
func (l *Log) run(ctx context.Context, step, id string, e Entry, streams ...string) error {
	entry, err := versioned.Encode(e)
	if err != nil {
		return fmt.Errorf("%w: encoding: %w", ErrInvalidEntry, err)
	}
	ctx, cancel := context.WithTimeout(ctx, l.o.Timeout)
	defer cancel()
	keys := []string{l.key(e.BusinessID, "pending")}
	for _, name := range streams {
		keys = append(keys, l.key(e.BusinessID, name))
	}
	length := l.o.MaxEntries
	if e.Outcome == OutcomeDenied {
		length = max(1, length/10)
	}
	unresolved, err := l.script.Run(ctx, l.o.Redis, keys, step, id, entry, length, l.o.MaxAge.Milliseconds(),
		ResolveWithin.Milliseconds(), l.o.MaxEntries).StringSlice()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	for _, entry := range unresolved {
		l.write(decode(e.BusinessID, entry))
	}
	return nil
}

// deniedSuffix ends the name of a stream of denied attempts.
const deniedSuffix = ":denied"

// actions returns all actions. New ones must go last, because List's cursors contain the number of a stream.
func actions() []string {
	return []string{
		ConnectionApproved, ConnectionDenied, ConnectionStarted, ConnectionRevoked, KeyIssued, KeyRotated, KeyRevoked, SessionStarted,
		SessionDenied, SessionEnded, ToolCalled, ConnectionChanged,
	}
}

// streams returns the names of a business's streams, in the order in which List returns entries with the same ID.
func streams() (names []string) {
	for _, a := range actions() {
		names = append(names, a, a+deniedSuffix)
	}
	return names
}

// streamOf returns the name of the stream of an entry.
func streamOf(e Entry) string {
	if e.Outcome == OutcomeDenied {
		return e.Action + deniedSuffix
	}
	return e.Action
}

// key returns a key of a business. It escapes braces in the ID, which would change the hash tag.
func (l *Log) key(businessID, name string) string {
	return l.o.Prefix + "audit:{" + strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D").Replace(businessID) + "}:" + name
}

// write writes an entry to the process log.
func (l *Log) write(e Entry) {
	var fields []zap.Field
	for _, f := range e.texts() {
		if *f.value != "" && f.value != &e.Sentence { // which contains names from records
			fields = append(fields, zap.String(f.name, *f.value))
		}
	}
	l.o.Log.Info("audit", fields...)
}

func (e *Entry) valid() bool {
	outcomes := []string{OutcomeOK, OutcomeDenied, OutcomeFailed, OutcomeUnknown}
	return slices.Contains(actions(), e.Action) && slices.Contains(outcomes, e.Outcome)
}

// textField is a field of an Entry with its name in the process log.
type textField struct {
	name  string
	value *string
}

func (e *Entry) texts() []textField {
	return []textField{
		{"business", &e.BusinessID},
		{"account_id", &e.AccountID},
		{"account_name", &e.AccountName},
		{"grant_id", &e.GrantID},
		{"client_name", &e.ClientName},
		{"action", &e.Action},
		{cmp.Or(map[string]string{SessionStarted: "client_ip", SessionDenied: "client_ip"}[e.Action], "target"), &e.Target},
		{"outcome", &e.Outcome},
		{"detail", &e.Detail},
		{"sentence", &e.Sentence},
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

// decode decodes a stored entry. Invalid fields stay empty.
func decode(businessID, entry string) Entry {
	var e Entry
	if errors.Is(versioned.Decode([]byte(entry), &e), versioned.ErrLater) {
		e.Action = "Recorded by a later version of the gateway"
	}
	e.BusinessID = businessID
	return e
}
