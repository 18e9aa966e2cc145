package oauth

import (
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

//go:embed common.lua
var commonScript string

//go:embed approve.lua
var approveScript string

//go:embed deny.lua
var denyScript string

//go:embed redeem.lua
var redeemScript string

//go:embed refresh.lua
var refreshScript string

//go:embed end.lua
var endScript string

//go:embed revoke.lua
var revokeScript string

//go:embed authenticate.lua
var authenticateScript string

// store runs commands and scripts in Redis. Its errors wrap ErrUnavailable.
type store struct {
	client  redis.UniversalClient
	prefix  string
	timeout time.Duration

	approve, deny, redeem, refresh, end, revoke, authenticate *redis.Script
}

func newStore(o *Options) *store {
	script := func(source string) *redis.Script { return redis.NewScript(commonScript + source) }
	return &store{
		client:       o.Redis,
		prefix:       o.Prefix,
		timeout:      o.Timeout,
		approve:      script(approveScript),
		deny:         script(denyScript),
		redeem:       script(redeemScript),
		refresh:      script(refreshScript),
		end:          script(endScript),
		revoke:       script(revokeScript),
		authenticate: script(authenticateScript),
	}
}

func (s *store) grantKey(id string) string        { return s.prefix + "{" + id + "}" }
func (s *store) requestKey(id string) string      { return s.prefix + "{" + id + "}:request" }
func (s *store) attemptsKey(id string) string     { return s.prefix + "{" + id + "}:attempts" }
func (s *store) businessKey(id string) string     { return s.prefix + "business:" + id }
func (s *store) clientKey(id string) string       { return s.prefix + "client:" + id }
func (s *store) documentKey(digest string) string { return s.prefix + "document:" + digest }

func unavailable(doing string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, doing, err)
}

// keys returns the keys of the scripts that approve, redeem and end a connection.
func (s *store) keys(id string) []string {
	return []string{s.grantKey(id), s.requestKey(id), s.attemptsKey(id)}
}

// run runs a script and retries it once if it fails; running a script again with the same arguments is safe. It ignores the
// cancellation of ctx, so that the audit log records the actual outcome.
func (s *store) run(ctx context.Context, doing string, script *redis.Script, keys []string, args ...any) (any, error) {
	ctx = context.WithoutCancel(ctx)
	var err error
	for range 2 {
		var reply any
		if reply, err = s.runOnce(ctx, script, keys, args); err == nil {
			return reply, nil
		}
	}
	return nil, unavailable(doing, err)
}

func (s *store) runOnce(ctx context.Context, script *redis.Script, keys []string, args []any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return script.Run(ctx, s.client, keys, args...).Result()
}

// runList is run for a script that returns a list; ok is false if it has fewer than n values.
func (s *store) runList(
	ctx context.Context, n int, doing string, script *redis.Script, keys []string, args ...any,
) (values []any, ok bool, err error) {
	reply, err := s.run(ctx, doing, script, keys, args...)
	values, _ = reply.([]any)
	return values, len(values) >= n, err
}

// command runs a Redis command with the timeout. It returns redis.Nil for a missing value.
func (s *store) command(ctx context.Context, doing string, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := run(ctx)
	if err == nil || errors.Is(err, redis.Nil) {
		return err
	}
	return unavailable(doing, err)
}

// States of a connection.
const (
	stateCode = "code" // approved, code not redeemed
	stateLive = "live"
)

// Fields of a connection. In addition each access token is a field "a:<digest>" with its expiry and scopes, or without scopes
// if it was revoked.
const (
	fieldClient    = "client"    // id
	fieldName      = "name"      // of the client
	fieldHost      = "host"      // Request.RedirectHost
	fieldAccount   = "account"   // id
	fieldBusiness  = "business"  // id
	fieldScopes    = "scopes"    // granted
	fieldResource  = "resource"  // the audience
	fieldCreated   = "created"   // when it was approved; all times are Unix milliseconds of Redis's clock
	fieldUsed      = "used"      // when it was last used, to a minute
	fieldEnds      = "ends"      // when it expires unless refreshed, like the key's TTL
	fieldState     = "state"     // stateCode or stateLive
	fieldCode      = "code"      // digest
	fieldRedirect  = "redirect"  // redirect_uri of the authorization request, or ""
	fieldChallenge = "challenge" // S256
	fieldRefreshes = "refreshes" // "1" if the client uses refresh tokens
	fieldFamily    = "family"    // digest of the refresh token family
	fieldCurrent   = "current"   // digest of the refresh token
	fieldPrevious  = "previous"  // digest of the previous refresh token
	fieldNonce     = "nonce"     // of the last refresh, see derive
)

func accessField(digest string) string { return "a:" + digest }

// grantFields returns the fields of a Grant, in the order of readGrant.
func grantFields() []string {
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
	access                           string
}

// readGrant decodes the values of grantFields; ok is false if there is no such connection.
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
		Scopes:     scope.Unpin(text(5)),
		CreatedAt:  unixMilli(text(7)),
		LastUsedAt: unixMilli(text(8)),
		ExpiresAt:  unixMilli(text(9)),
	}
	rec.resource, rec.state = text(6), text(10)
	return rec, true
}

// load reads a connection, and optionally the field of an access token.
func (s *store) load(ctx context.Context, id string, access ...string) (record, bool, error) {
	fields := append(grantFields(), fieldCode, fieldRedirect, fieldChallenge, fieldRefreshes, fieldFamily, fieldCurrent,
		fieldPrevious, fieldNonce)
	var values []any
	err := s.command(ctx, "reading a connection", func(ctx context.Context) (err error) {
		values, err = s.client.HMGet(ctx, s.grantKey(id), append(fields, access...)...).Result()
		return err
	})
	if err != nil {
		return record{}, false, err
	}
	rec, ok := readGrant(id, values)
	if !ok {
		return record{}, false, nil
	}
	text := texts(values[len(grantFields()):])
	rec.code, rec.redirect, rec.challenge, rec.refreshes = text(0), text(1), text(2), text(3) == "1"
	rec.family, rec.current, rec.previous, rec.nonce = text(4), text(5), text(6), text(7)
	rec.access = text(8)
	return rec, true, nil
}

// addToIndex adds a connection to the business's index. It has to be called before the connection becomes live or is extended,
// because people cannot end connections that they do not see.
func (s *store) addToIndex(ctx context.Context, businessID, id string) error {
	key := s.businessKey(businessID)
	return s.command(ctx, "adding a connection to the index", func(ctx context.Context) error {
		_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.SAdd(ctx, key, id)
			p.PExpire(ctx, key, RefreshIdle+time.Hour) // each refresh adds the connection again
			return nil
		})
		return err
	})
}

// removeFromIndex removes connections that have ended from the index. If it fails, the next Grants call tries again.
func (s *store) removeFromIndex(ctx context.Context, businessID string, ids ...any) {
	if len(ids) == 0 {
		return
	}
	_ = s.command(ctx, "removing connections from the index", func(ctx context.Context) error {
		return s.client.SRem(ctx, s.businessKey(businessID), ids...).Err()
	})
}

// texts returns an accessor for the strings in a reply; missing ones are "".
func texts(values []any) func(i int) string {
	return func(i int) string {
		if i >= len(values) {
			return ""
		}
		text, _ := values[i].(string)
		return text
	}
}

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(1, d.Milliseconds()), 10)
}

// unixMilli parses a Unix time in milliseconds; invalid ones are the zero time.
func unixMilli(s string) time.Time {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
