// Package audit keeps the trail of what was done with a business's connections and keys: who, through which client, what,
// when, and how it ended. Each entry goes to the log, for the operator's own systems, and to a Redis stream of the
// business, bounded in length and age, for the owner's page.
package audit

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// The actions. There are no others: Record refuses what is not in this list.
const (
	ConnectionApproved = "connection.approved" // Target: the client's host; Detail: the scopes
	ConnectionDenied   = "connection.denied"
	ConnectionStarted  = "connection.started" // the client redeemed its code
	ConnectionRevoked  = "connection.revoked"
	KeyIssued          = "key.issued"      // Target: the public key
	KeyRotated         = "key.rotated"     // Target: the public key; Detail: how long the old secret stays good
	KeyRevoked         = "key.revoked"     // Target: the public key
	SessionStarted     = "session.started" // signed in
	SessionRefused     = "session.refused" // wrong credentials, or too many attempts; known to the log only
	SessionEnded       = "session.ended"   // signed out
	ToolCalled         = "tool.called"     // a tool that writes; Target: the tool's name
)

// The outcomes.
const (
	OutcomeOK      = "ok"
	OutcomeRefused = "refused" // not allowed, or the person said no
	OutcomeFailed  = "failed"  // allowed, and did not work
)

// Defaults and bounds.
const (
	DefaultPrefix     = "gatehouse:connect:"
	DefaultMaxEntries = 10_000
	DefaultMaxAge     = 400 * 24 * time.Hour // a year, and some time to look back on it

	defaultTimeout = 2 * time.Second
	maxField       = 256 // bytes
	maxDetail      = 1024
	maxPage        = 100
	defaultPage    = 25
	maxBatch       = 500 // entries that are looked through at once
)

// The errors of this package.
var (
	// ErrUnavailable says that the trail could not be written or read. An entry that could not be written is in the
	// log all the same.
	ErrUnavailable = errors.New("the audit trail is unavailable")

	// ErrInvalidEntry says that an entry names none of the actions or outcomes.
	ErrInvalidEntry = errors.New("not an audit entry")

	// ErrBadCursor says that a cursor is not one that List has returned.
	ErrBadCursor = errors.New("not a cursor of the audit trail")
)

// Entry is one record of the trail. Texts are bounded when they are recorded: 1024 bytes for Detail, 256 for the others,
// and hold no control characters.
type Entry struct {
	Time        time.Time // UTC, to the millisecond; zero: the time of recording
	BusinessID  string    // whose trail; "" for what belongs to no business, which is logged only
	AccountID   string    // who did it, or on whose behalf
	AccountName string
	GrantID     string // the connection, if it is about one
	ClientName  string // the assistant's name as it calls itself
	Action      string // one of the actions
	Target      string // what it was done to
	Outcome     string // one of the outcomes; "": OutcomeOK
	Detail      string // a sentence for people; never a secret, never what a tool was told
	RequestID   string
}

// Options of a [Trail].
type Options struct {
	Redis      redis.UniversalClient // required
	Prefix     string                // of the keys in Redis; default: DefaultPrefix
	MaxEntries int64                 // kept for each business, about; default: DefaultMaxEntries
	MaxAge     time.Duration         // an entry's; default: DefaultMaxAge
	Timeout    time.Duration         // for Redis to take or give entries; default: 2s
	Log        *zap.Logger           // required: it is half of the trail
	Now        func() time.Time      // default: time.Now
}

// Trail is the audit trail of all businesses. It is safe for concurrent use.
type Trail struct {
	redis      redis.UniversalClient
	prefix     string
	maxEntries int64
	maxAge     time.Duration
	timeout    time.Duration
	log        *zap.Logger
	now        func() time.Time
}

// New makes a trail.
func New(o Options) (*Trail, error) {
	if o.Redis == nil || o.Log == nil {
		return nil, errors.New("the audit trail needs both Redis and a log")
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
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Trail{
		redis: o.Redis, prefix: o.Prefix + "audit:", maxEntries: o.MaxEntries, maxAge: o.MaxAge, timeout: o.Timeout,
		log: o.Log, now: o.Now,
	}, nil
}

// Record writes an entry to the log and then to the business's stream. It does not end with the caller's context: what
// was done is recorded even if nobody waits for the answer any more. An error (ErrUnavailable, ErrInvalidEntry) says
// that the stream does not have the entry; the log has it in any case.
func (t *Trail) Record(ctx context.Context, e Entry) error {
	if e.Time.IsZero() {
		e.Time = t.now()
	}
	e.Time = e.Time.UTC().Truncate(time.Millisecond)
	if e.Outcome == "" {
		e.Outcome = OutcomeOK
	}
	e.clean()
	t.log.Info("audit", e.logFields()...)
	if !e.valid() {
		t.log.Error("audit entry not stored", zap.String("action", e.Action), zap.String("outcome", e.Outcome),
			zap.String("request_id", e.RequestID), zap.Error(ErrInvalidEntry))
		return ErrInvalidEntry
	}
	if e.BusinessID == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.timeout)
	defer cancel()
	key := t.key(e.BusinessID)
	_, err := t.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.XAdd(ctx, &redis.XAddArgs{Stream: key, MaxLen: t.maxEntries, Approx: true, Values: e.values()})
		p.XTrimMinIDApprox(ctx, key, t.oldest(), 0)
		p.PExpire(ctx, key, t.maxAge)
		return nil
	})
	if err != nil {
		t.log.Error("audit entry not stored", zap.String("action", e.Action), zap.String("business_id", e.BusinessID),
			zap.String("request_id", e.RequestID), zap.Error(err))
		return fmt.Errorf("%w: recording: %w", ErrUnavailable, err)
	}
	return nil
}

// List returns a business's entries, newest first: the first page for an empty cursor, and otherwise the one after that
// which returned the cursor. Where actions are given, it returns entries of these only. limit is clamped into 1 to 100 and
// is 25 if it is 0. next is empty at the end. It fails with ErrBadCursor or ErrUnavailable.
func (t *Trail) List(ctx context.Context, businessID, cursor string, limit int, actions ...string) (
	entries []Entry, next string, err error,
) {
	if limit == 0 {
		limit = defaultPage
	}
	limit = min(max(limit, 1), maxPage)
	from := "+"
	if cursor != "" {
		if !validCursor(cursor) {
			return nil, "", ErrBadCursor
		}
		from = "(" + cursor
	}
	batch := limit + 1
	if len(actions) > 0 {
		batch = maxBatch
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	entries = make([]Entry, 0, limit)
	for last := ""; ; {
		messages, err := t.redis.XRevRangeN(ctx, t.key(businessID), from, t.oldest(), int64(batch)).Result()
		if err != nil {
			return nil, "", fmt.Errorf("%w: listing: %w", ErrUnavailable, err)
		}
		for _, m := range messages {
			e := readEntry(businessID, m)
			if len(actions) > 0 && !slices.Contains(actions, e.Action) {
				continue
			}
			if len(entries) == limit { // there is one more
				return entries, last, nil
			}
			entries, last = append(entries, e), m.ID
		}
		if len(messages) < batch {
			return entries, "", nil
		}
		from = "(" + messages[len(messages)-1].ID
	}
}

func (t *Trail) key(businessID string) string { return t.prefix + businessID }

// oldest is the id of the stream before which everything is too old.
func (t *Trail) oldest() string {
	return strconv.FormatInt(max(t.now().Add(-t.maxAge).UnixMilli(), 0), 10)
}

// cursorForm is that of a stream's ids.
const cursorForm = `^[0-9]{1,19}-[0-9]{1,19}$`

func validCursor(s string) bool {
	ok, err := regexp.MatchString(cursorForm, s)
	return ok && err == nil
}

func (e *Entry) valid() bool {
	switch e.Action {
	case ConnectionApproved, ConnectionDenied, ConnectionStarted, ConnectionRevoked, KeyIssued, KeyRotated, KeyRevoked, SessionStarted,
		SessionRefused, SessionEnded, ToolCalled:
	default:
		return false
	}
	switch e.Outcome {
	case OutcomeOK, OutcomeRefused, OutcomeFailed:
		return true
	default:
		return false
	}
}

// texts are the fields as they are stored.
func (e *Entry) texts() []struct {
	name  string
	value *string
} {
	return []struct {
		name  string
		value *string
	}{
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
		*f.value = cleanText(*f.value, bound)
	}
}

func (e *Entry) logFields() []zap.Field {
	fields := []zap.Field{zap.Time("time", e.Time)}
	if e.BusinessID != "" {
		fields = append(fields, zap.String("business_id", e.BusinessID))
	}
	for _, f := range e.texts() {
		if *f.value != "" {
			fields = append(fields, zap.String(f.name, *f.value))
		}
	}
	return fields
}

func (e *Entry) values() []string {
	values := []string{"time", strconv.FormatInt(e.Time.UnixMilli(), 10)}
	for _, f := range e.texts() {
		if *f.value != "" {
			values = append(values, f.name, *f.value)
		}
	}
	return values
}

// readEntry reads what values wrote. What cannot be read is left out: it is a record of the past, not a command.
func readEntry(businessID string, m redis.XMessage) Entry {
	e := Entry{BusinessID: businessID}
	text := func(name string) string {
		s, _ := m.Values[name].(string)
		return s
	}
	for _, f := range e.texts() {
		*f.value = text(f.name)
	}
	ms, err := strconv.ParseInt(text("time"), 10, 64)
	if err != nil { // the id of an entry begins with when it was stored
		stored, _, _ := strings.Cut(m.ID, "-")
		ms, err = strconv.ParseInt(stored, 10, 64)
	}
	if err == nil {
		e.Time = time.UnixMilli(ms).UTC()
	}
	return e
}
