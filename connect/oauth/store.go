package oauth

import (
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

//go:embed approve.lua
var approveScript string

//go:embed deny.lua
var denyScript string

//go:embed redeem.lua
var redeemScript string

//go:embed refresh.lua
var refreshScript string

//go:embed index.lua
var indexScript string

//go:embed end.lua
var endScript string

//go:embed touch.lua
var touchScript string

// store is Redis as this package uses it. Every error is an ErrUnavailable.
type store struct {
	client  redis.UniversalClient
	prefix  string
	timeout time.Duration

	approve, deny, redeem, refresh, index, end, touch *redis.Script
}

func newStore(o *Options) *store {
	return &store{
		client:  o.Redis,
		prefix:  o.Prefix,
		timeout: o.Timeout,
		approve: redis.NewScript(approveScript),
		deny:    redis.NewScript(denyScript),
		redeem:  redis.NewScript(redeemScript),
		refresh: redis.NewScript(refreshScript),
		index:   redis.NewScript(indexScript),
		end:     redis.NewScript(endScript),
		touch:   redis.NewScript(touchScript),
	}
}

func (s *store) grantKey(id string) string        { return s.prefix + "{" + id + "}" }
func (s *store) requestKey(id string) string      { return s.prefix + "{" + id + "}:request" }
func (s *store) businessKey(id string) string     { return s.prefix + "business:" + id }
func (s *store) clientKey(id string) string       { return s.prefix + "client:" + id }
func (s *store) documentKey(digest string) string { return s.prefix + "document:" + digest }

func unavailable(doing string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, doing, err)
}

// run executes a script. If no answer came it is tried once more, while the caller still waits: all scripts may be run
// again with the same arguments.
func (s *store) run(ctx context.Context, doing string, script *redis.Script, keys []string, args ...any) (any, error) {
	var err error
	for range 2 {
		var reply any
		if reply, err = s.runOnce(ctx, script, keys, args); err == nil || errors.Is(err, redis.Nil) {
			return reply, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, unavailable(doing, err)
}

func (s *store) runOnce(ctx context.Context, script *redis.Script, keys []string, args []any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return script.Run(ctx, s.client, keys, args...).Result()
}

func (s *store) runText(ctx context.Context, doing string, script *redis.Script, keys []string, args ...any) (string, error) {
	reply, err := s.run(ctx, doing, script, keys, args...)
	text, _ := reply.(string)
	return text, err
}

func (s *store) runCount(ctx context.Context, doing string, script *redis.Script, keys []string, args ...any) (int64, error) {
	reply, err := s.run(ctx, doing, script, keys, args...)
	n, _ := reply.(int64)
	return n, err
}

// ask runs one command within the deadline. A missing value is redis.Nil.
func (s *store) ask(ctx context.Context, doing string, command func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := command(ctx)
	if err == nil || errors.Is(err, redis.Nil) {
		return err
	}
	return unavailable(doing, err)
}

// The states of a connection.
const (
	stateCode = "code" // approved, and its code not redeemed
	stateLive = "live"
)

// The fields of a connection that are read. Access tokens are fields as well: "a:" and the digest, with their end and
// their scopes.
const (
	fieldClient    = "client"    // id
	fieldName      = "name"      // of the client
	fieldHost      = "host"      // where the person was sent back to
	fieldAccount   = "account"   // id
	fieldBusiness  = "business"  // id
	fieldScopes    = "scopes"    // granted
	fieldResource  = "resource"  // the audience
	fieldCreated   = "created"   // when it was approved
	fieldUsed      = "used"      // when it was last used, to a minute
	fieldEnds      = "ends"      // when it ends unless it is refreshed
	fieldState     = "state"     // stateCode or stateLive
	fieldCode      = "code"      // digest
	fieldRedirect  = "redirect"  // URI in the authorization request; "" if it named none
	fieldChallenge = "challenge" // S256
	fieldRefreshes = "refreshes" // "1" if the client uses refresh tokens
	fieldFamily    = "family"    // digest of what its refresh tokens have in common
	fieldCurrent   = "current"   // digest of the refresh token
	fieldPrevious  = "previous"  // digest of the one before
	fieldNonce     = "nonce"     // of the last use, see derive
)

func accessField(digest string) string { return "a:" + digest }

// shown are the fields of a Grant, in the order of readGrant.
func shown() []string {
	return []string{
		fieldClient, fieldName, fieldHost, fieldAccount, fieldBusiness, fieldScopes, fieldResource, fieldCreated, fieldUsed,
		fieldEnds, fieldState,
	}
}

// record is a connection as it is stored.
type record struct {
	Grant

	resource, state                  string
	code, redirect, challenge        string
	refreshes                        bool
	family, current, previous, nonce string
}

// readGrant reads the fields of shown; ok is false if there is no such connection.
func readGrant(id string, values []any) (rec record, ok bool) {
	text := texts(values)
	if text(0) == "" || text(4) == "" {
		return record{}, false
	}
	rec.Grant = Grant{
		ID:         id,
		ClientID:   text(0),
		ClientName: text(1),
		ClientHost: text(2),
		AccountID:  text(3),
		BusinessID: text(4),
		Scopes:     known(text(5)),
		CreatedAt:  moment(text(7)),
		LastUsedAt: moment(text(8)),
		ExpiresAt:  moment(text(9)),
	}
	rec.resource, rec.state = text(6), text(10)
	return rec, true
}

// load reads a connection with all that is needed to redeem its code or to refresh it.
func (s *store) load(ctx context.Context, id string) (record, bool, error) {
	fields := append(shown(), fieldCode, fieldRedirect, fieldChallenge, fieldRefreshes, fieldFamily, fieldCurrent,
		fieldPrevious, fieldNonce)
	var values []any
	err := s.ask(ctx, "reading a connection", func(ctx context.Context) (err error) {
		values, err = s.client.HMGet(ctx, s.grantKey(id), fields...).Result()
		return err
	})
	if err != nil {
		return record{}, false, err
	}
	rec, ok := readGrant(id, values)
	if !ok {
		return record{}, false, nil
	}
	text := texts(values[len(shown()):])
	rec.code, rec.redirect, rec.challenge, rec.refreshes = text(0), text(1), text(2), text(3) == "1"
	rec.family, rec.current, rec.previous, rec.nonce = text(4), text(5), text(6), text(7)
	return rec, true, nil
}

// enter makes sure that the business's index names the connection until ends. It comes before what it is about: a
// connection that a person cannot see is one that nobody can end.
func (s *store) enter(ctx context.Context, businessID, id string, now, ends time.Time) error {
	_, err := s.run(ctx, "entering a connection into the index", s.index, []string{s.businessKey(businessID)},
		id, millis(ends), millis(now), milliseconds(ends.Sub(now)+time.Hour))
	return err
}

// endIf ends a connection if its field has the value, and says whether it did.
func (s *store) endIf(ctx context.Context, id, field, value string) (bool, error) {
	n, err := s.runCount(ctx, "ending a connection", s.end, []string{s.grantKey(id), s.requestKey(id)}, field, value)
	return n == 1, err
}

// leave takes connections that have ended out of the index. What is left behind is found by the next who looks.
func (s *store) leave(ctx context.Context, businessID string, ids ...any) {
	if len(ids) == 0 {
		return
	}
	_ = s.ask(ctx, "taking connections out of the index", func(ctx context.Context) error {
		return s.client.ZRem(ctx, s.businessKey(businessID), ids...).Err()
	})
}

// known reads scopes that were stored. A name that this version does not know any more gives nothing.
func known(scopes string) scope.Set {
	set, err := scope.Parse(scopes)
	if err == nil {
		return set
	}
	var names []string
	for name := range strings.FieldsSeq(scopes) {
		if _, err := scope.Parse(name); err == nil {
			names = append(names, name)
		}
	}
	set, _ = scope.Parse(strings.Join(names, " "))
	return set
}

func texts(values []any) func(i int) string {
	return func(i int) string {
		text, _ := values[i].(string)
		return text
	}
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(1, d.Milliseconds()), 10)
}

// moment is the inverse of millis; the zero time for anything else.
func moment(s string) time.Time {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
