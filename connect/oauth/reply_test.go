package oauth_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// An invalid_grant or invalid_token would make clients discard tokens that are valid.
func TestUnexpectedReplyOfScriptEndsNoConnection(t *testing.T) {
	t.Parallel()
	var madeUp atomic.Pointer[any] // the reply to scripts, instead of Redis's
	s := newServer(t, func(o *oauth.Options) {
		o.Prefix = prefixOf(t)
		o.Audit = newLog(t, clientOf(t, shared.Options()), o.Prefix)
		o.Redis = clientOf(t, shared.Options())
		o.Redis.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			script, ok := cmd.(*redis.Cmd)
			if reply := madeUp.Load(); ok && reply != nil {
				script.SetVal(*reply)
				return nil
			}
			return next(ctx, cmd)
		}))
	})
	c := oauthtest.Register(t, s)
	verifier, challenged := oauthtest.PKCE()
	code := c.Code(oauthtest.Owner(), challenged, nil)
	during := func(reply any, do func()) {
		madeUp.Store(&reply)
		do()
		madeUp.Store(nil)
	}

	for _, reply := range []any{nil, int64(1), "unheard-of", []any{"redeemed"}} {
		during(reply, func() {
			response := c.Exchange(code, verifier, nil)
			assert.Equal(t, http.StatusServiceUnavailable, response.Status, "%#v", reply)
			assert.Equal(t, "temporarily_unavailable", response.Error, "%#v", reply)
		})
	}
	tokens := c.Exchange(code, verifier, nil)
	require.Equal(t, http.StatusOK, tokens.Status)

	for _, reply := range []any{
		nil, int64(1), "refreshed", []any{}, []any{"unheard-of"}, []any{"refreshed"}, []any{"refreshed", "60000"}, []any{"outdated"},
	} {
		during(reply, func() {
			response := c.Refresh(tokens.Refresh, nil)
			assert.Equal(t, http.StatusServiceUnavailable, response.Status, "%#v", reply)
			assert.Equal(t, "temporarily_unavailable", response.Error, "%#v", reply)
		})
	}
	tokens = c.Refresh(tokens.Refresh, nil)
	require.Equal(t, http.StatusOK, tokens.Status)

	for _, reply := range []any{nil, "OK", []any{int64(1)}} {
		during(reply, func() {
			assert.Equal(t, http.StatusServiceUnavailable, c.Revoke(tokens.Refresh), "%#v", reply)
			assert.Equal(t, http.StatusServiceUnavailable, c.Revoke(tokens.Access), "%#v", reply)
		})
	}
	id := c.Request(challenged, nil)
	for _, reply := range []any{nil, int64(1), []any{"x"}} {
		during(reply, func() {
			_, err := s.Approve(t.Context(), id, oauthtest.Owner(), scopes(t, "mcp:read"))
			assert.ErrorIs(t, err, oauth.ErrOutcomeUnknown, "%#v", reply)
		})
	}

	g := authenticate(t, s, tokens.Access)
	for _, reply := range []any{nil, int64(1), "unheard-of"} {
		during(reply, func() {
			err := s.Change(t.Context(), g.ID, g.Version, oauthtest.Owner(), scopes(t, "mcp:read"), false)
			assert.ErrorIs(t, err, oauth.ErrOutcomeUnknown, "%#v", reply)
		})
	}

	for _, reply := range []any{nil, int64(1), "mcp:read", []any{"mcp:read"}} {
		during(reply, func() {
			assert.Equal(t, http.StatusServiceUnavailable, call(s, tokens.Access).Code, "%#v", reply)
		})
	}
	assert.Equal(t, http.StatusNotFound, call(s, tokens.Access).Code)
}
