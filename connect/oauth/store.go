package oauth

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/versioned"
)

//go:embed *.lua
var scriptFiles embed.FS

// readScripts returns the scripts by name, each after the code of common.lua.
func readScripts() map[string]*redis.Script {
	scripts := make(map[string]*redis.Script)
	common, _ := scriptFiles.ReadFile("common.lua") // embedded files can always be read
	files, _ := scriptFiles.ReadDir(".")
	for _, file := range files {
		source, _ := scriptFiles.ReadFile(file.Name())
		scripts[strings.TrimSuffix(file.Name(), ".lua")] = redis.NewScript(string(common) + string(source))
	}
	return scripts
}

func (s *Server) grantKey(id string) string        { return s.o.Prefix + "{" + id + "}" }
func (s *Server) requestKey(id string) string      { return s.o.Prefix + "{" + id + "}:request" }
func (s *Server) attemptsKey(id string) string     { return s.o.Prefix + "{" + id + "}:attempts" }
func (s *Server) businessKey(id string) string     { return s.o.Prefix + "business:" + id }
func (s *Server) clientKey(id string) string       { return s.o.Prefix + "client:" + id }
func (s *Server) documentKey(digest string) string { return s.o.Prefix + "document:" + digest }

// grantKeys returns KEYS of the scripts that approve, redeem, change and end a connection.
func (s *Server) grantKeys(id string) []string {
	return []string{s.grantKey(id), s.requestKey(id), s.attemptsKey(id)}
}

func unavailable(doing string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, doing, err)
}

// command runs a Redis command with the timeout. Its errors are redis.Nil for a missing value and ErrUnavailable.
func (s *Server) command(ctx context.Context, doing string, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.timeout)
	defer cancel()
	err := run(ctx)
	if err == nil || errors.Is(err, redis.Nil) {
		return err
	}
	return unavailable(doing, err)
}

// run runs a script and retries it once if it fails: the scripts are idempotent for the same arguments. It ignores the cancellation
// of ctx, so that the audit log records the actual outcome. Its error is ErrUnavailable.
func (s *Server) run(ctx context.Context, script string, keys []string, args ...any) (reply any, err error) {
	ctx = context.WithoutCancel(ctx)
	for range 2 {
		err = s.command(ctx, "running "+script+".lua", func(ctx context.Context) (err error) {
			reply, err = s.scripts[script].Run(ctx, s.o.Redis, keys, args...).Result()
			return err
		})
		if err == nil {
			return reply, nil
		}
	}
	return nil, err
}

// runText runs a script that replies with one of outcomes or, if outcomes is nil, with any text.
func (s *Server) runText(ctx context.Context, outcomes []string, script string, keys []string, args ...any) (string, error) {
	reply, err := s.run(ctx, script, keys, args...)
	text, ok := reply.(string)
	if err == nil && (!ok || outcomes != nil && !slices.Contains(outcomes, text)) {
		err = unexpectedReply(script, reply)
	}
	return text, err
}

// Replies of change.lua, end.lua, redeem.lua and refresh.lua.
const (
	outcomeChanged   = "changed"
	outcomeSame      = "same" // nothing to change
	outcomeEnded     = "ended"
	outcomeRedeemed  = "redeemed"
	outcomeRefreshed = "refreshed"
	outcomeUsed      = "used"     // another attempt redeemed the code
	outcomeReused    = "reused"   // a refresh token that has been rotated and is past its grace period
	outcomeOverused  = "overused" // the previous refresh token was repeated more than maxRepeats times
	outcomeOutdated  = "outdated" // a concurrent request has changed the nonce or the scopes
	outcomeGone      = "gone"     // no such code or connection
)

// unexpectedReply returns ErrUnavailable: at invalid_grant or invalid_token, clients would discard their tokens.
func unexpectedReply(script string, reply any) error {
	return unavailable("running "+script+".lua", fmt.Errorf("unexpected reply of type %T", reply))
}

// States of a connection.
const (
	stateCode = "code" // approved, the code was not redeemed
	stateLive = "live"
)

// Fields of a connection. In addition, each access token is a field "a:<digest>" with its expiry and scopes: wholeGrant, those that
// the client asked for if it asked for fewer, or none if the token was revoked.
const (
	fieldFormat    = "format"    // versioned.Format
	fieldClient    = "client"    // id
	fieldName      = "name"      // of the client
	fieldHost      = "host"      // Request.RedirectHost
	fieldAccount   = "account"   // id
	fieldBusiness  = "business"  // id
	fieldScopes    = "scopes"    // granted ones, from scope.Set.Pin
	fieldUnasked   = "unasked"   // "1": Grant.Unasked
	fieldVersion   = "version"   // when an owner last changed the scopes or fieldUnasked, strictly increasing; or ""
	fieldTold      = "told"      // the scopes in the client's last token response, if they have changed since
	fieldWasTold   = "was_told"  // fieldTold before the last rotation, if it was set
	fieldResource  = "resource"  // the audience
	fieldCreated   = "created"   // when it was approved; all times are Unix milliseconds of Redis's clock
	fieldUsed      = "used"      // when it was last used, accurate to a minute
	fieldEnds      = "ends"      // when it expires unless a token is refreshed, as does the key
	fieldState     = "state"     // stateCode or stateLive
	fieldCode      = "code"      // digest
	fieldRedirect  = "redirect"  // redirect_uri of the authorization request, or ""
	fieldChallenge = "challenge" // code_challenge (S256)
	fieldRefreshes = "refreshes" // "1" if the client uses refresh tokens
	fieldFamily    = "family"    // digest of the refresh token family
	fieldCurrent   = "current"   // digest of the refresh token
	fieldPrevious  = "previous"  // digest of the previous refresh token
	fieldNonce     = "nonce"     // of the last rotation; see derive
)

// wholeGrant is stored for an access token that has all scopes of its connection, as they are at each use.
const wholeGrant = "*"

func accessField(digest string) string { return "a:" + digest }

// grantFields returns the fields of a Grant, in the order in which readRecord takes them.
func grantFields() []string {
	return []string{
		fieldClient, fieldName, fieldHost, fieldAccount, fieldBusiness, fieldScopes, fieldResource, fieldCreated, fieldUsed,
		fieldEnds, fieldState, fieldUnasked, fieldVersion, fieldFormat,
	}
}

// record is a connection as it is stored in Redis.
type record struct {
	Grant

	granted                          string // fieldScopes, also with areas that are switched off
	told, wasTold                    string // fieldTold, or else granted; fieldWasTold
	resource, state                  string
	code, redirect, challenge        string
	refreshes                        bool
	family, current, previous, nonce string
	access                           string // the access token's field, if asked for
}

// readRecord decodes the values of grantFields, and optionally of loadRecord's other fields. ok is false if there is no such
// connection. The error is ErrUnavailable if a later version has stored it in a newer format.
func (s *Server) readRecord(id string, values []any) (rec record, ok bool, err error) {
	text := texts(values)
	rec = record{
		Grant: Grant{
			ID:         id,
			ClientID:   text(0),
			ClientName: text(1),
			ClientHost: text(2),
			AccountID:  text(3),
			BusinessID: text(4),
			Scopes:     s.o.Areas.Unpin(text(5)),
			CreatedAt:  unixMilli(text(7)),
			LastUsedAt: unixMilli(text(8)),
			ExpiresAt:  unixMilli(text(9)),
			Unasked:    text(11) == "1",
			Version:    text(12),
			ChangedAt:  unixMilli(text(12)),
		},
		granted: text(5), resource: text(6), state: text(10),
		code: text(14), redirect: text(15), challenge: text(16), refreshes: text(17) == "1",
		family: text(18), current: text(19), previous: text(20), nonce: text(21), told: cmp.Or(text(22), text(5)),
		wasTold: text(23), access: text(24),
	}
	if format, err := strconv.Atoi(cmp.Or(text(13), "1")); err != nil || format > versioned.Format {
		return record{}, false, unavailable("reading a connection", versioned.ErrLater)
	}
	return rec, rec.ClientID != "" && rec.BusinessID != "", nil
}

// loadRecord reads a connection, and optionally the field of an access token: see accessField.
func (s *Server) loadRecord(ctx context.Context, id string, access ...string) (rec record, ok bool, err error) {
	fields := append(grantFields(), fieldCode, fieldRedirect, fieldChallenge, fieldRefreshes, fieldFamily, fieldCurrent,
		fieldPrevious, fieldNonce, fieldTold, fieldWasTold)
	err = s.command(ctx, "reading a connection", func(ctx context.Context) error {
		values, err := s.o.Redis.HMGet(ctx, s.grantKey(id), append(fields, access...)...).Result()
		if err == nil {
			rec, ok, err = s.readRecord(id, values)
		}
		return err
	})
	return rec, ok, err
}

// addToIndex adds a connection to the business's index. It must be called before the connection becomes live or is extended,
// because users can only end connections that are listed. Authenticate calls it again.
func (s *Server) addToIndex(ctx context.Context, businessID, id string) error {
	key := s.businessKey(businessID)
	return s.command(ctx, "adding a connection to the index", func(ctx context.Context) error {
		_, err := s.o.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.SAdd(ctx, key, id)
			p.PExpire(ctx, key, refreshIdle+time.Hour) // longer than a connection lasts without a refresh, which adds it again
			return nil
		})
		return err
	})
}

// removeFromIndex removes ended connections from the index. If it fails, the next call of Grants tries again.
func (s *Server) removeFromIndex(ctx context.Context, businessID string, ids ...any) {
	if len(ids) == 0 {
		return
	}
	_ = s.command(ctx, "removing connections from the index", func(ctx context.Context) error {
		return s.o.Redis.SRem(ctx, s.businessKey(businessID), ids...).Err()
	})
}

// texts returns an accessor for the strings in a reply; missing ones are "".
func texts(values []any) func(i int) string {
	return func(i int) (text string) {
		if i < len(values) {
			text, _ = values[i].(string)
		}
		return text
	}
}

// unixMilli parses a Unix time in milliseconds. It returns the zero time if s is invalid.
func unixMilli(s string) time.Time {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
