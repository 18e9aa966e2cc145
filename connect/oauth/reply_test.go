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

	for _, reply := range []any{nil, int64(1), "mcp:read", []any{"mcp:read"}} {
		during(reply, func() {
			assert.Equal(t, http.StatusServiceUnavailable, call(s, tokens.Access).Code, "%#v", reply)
		})
	}
	assert.Equal(t, http.StatusNotFound, call(s, tokens.Access).Code)
}
