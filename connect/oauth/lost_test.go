package oauth_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/netfault"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

// Each reply of Redis in each step is lost in turn, with and without retries by the Redis client. The responses, the tokens, the
// list and the audit log must agree, and a repetition must change nothing.
func TestLostRedisReplyDoesNotChangeTheOutcome(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"with retries": 3, "without retries": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := netfault.NewRedisProxy(t, shared.Addr)
			client := clientOf(t, &redis.UniversalOptions{Addrs: []string{proxy.Addr}, MaxRetries: retries})
			loseReplies(t, client, 0, func(step func() error) { require.NoError(t, step()) })
			for n, lose := range netfault.LoseEach(t, proxy) {
				loseReplies(t, client, n, lose)
			}
		})
	}
}

// loseReplies runs each step of several connections with lose, which loses its n-th reply, or none if n is 0.
func loseReplies(t *testing.T, client redis.UniversalClient, n int, lose func(step func() error)) {
	t.Helper()
	known := newAccounts()
	s := newServer(t, unlimited, func(o *oauth.Options) {
		o.Redis, o.Prefix, o.Accounts = client, fmt.Sprintf("%s%d:", prefixOf(t), n), known
	})
	step := func(want string, do func() string) {
		t.Helper()
		var got string
		lose(func() error { got = do(); return nil })
		if got == "temporarily_unavailable" && n > 0 {
			got = do() // as the response asked
		}
		require.Equal(t, want, got, "reply %d", n)
	}
	// logged requires further entries in the audit log, and that the connection of a token is active or not.
	var log []string
	logged := func(access string, active bool, entries ...string) {
		t.Helper()
		log = append(log, entries...)
		require.Equal(t, log, recorded(t, s), "reply %d", n)
		require.Equal(t, active, access != "" && valid(t, s, access), "reply %d", n)
		require.Equal(t, active, len(grants(t, s)) == 1, "reply %d", n)
	}

	step("Created", func() string {
		return statusText(postRegistration(clientWithID(t, s, ""), `{"redirect_uris":["https://a.example/"]}`).Code)
	})
	c := oauthtest.Register(t, s)
	step("See Other", func() string { return statusText(c.Authorize(challenge(), nil).Code) })
	verifier, challenged := oauthtest.PKCE()
	id := c.Request(challenged, nil)
	deny := func() string {
		_, err := s.Deny(t.Context(), id, oauthtest.Owner())
		return errorResult(err)
	}
	step("done", deny)
	require.Equal(t, "done", deny())
	logged("", false, "denied/denied")

	id = c.Request(challenged, nil)
	var redirect string
	approve := func() (result string) {
		var err error
		redirect, err = s.Approve(t.Context(), id, oauthtest.Owner(), scopes(t, "mcp:read"))
		return errorResult(err)
	}
	step("done", approve)
	code := oauthtest.CodeOf(t, redirect)
	require.Equal(t, "done", approve())
	require.Equal(t, code, oauthtest.CodeOf(t, redirect))
	logged("", false, "approved")

	var first, second oauthtest.Tokens
	exchange := func() string {
		first = c.Exchange(code, verifier, nil)
		return tokenResult(first)
	}
	refresh := func() string {
		second = c.Refresh(first.Refresh, nil)
		return tokenResult(second)
	}
	step("tokens", exchange)
	logged(first.Access, true, "started")
	step("Not Found", func() string { return statusText(call(s, first.Access).Code) })
	change := func() string {
		return errorResult(s.Change(t.Context(), grantID(first), "", oauthtest.Owner(), scopes(t, "mcp:read contacts:write"), true))
	}
	step("done", change)
	require.Equal(t, "done", change())
	logged(first.Access, true, "changed")
	require.True(t, authenticate(t, s, first.Access).Scopes.Allows("contacts:write"))
	step("tokens", refresh)
	successor := second
	require.Equal(t, "tokens", refresh())
	require.Equal(t, successor.Refresh, second.Refresh)
	logged(second.Access, true)
	for range 2 {
		step("OK", func() string { return statusText(c.Revoke(successor.Access)) })
		logged(first.Access, true)
		require.False(t, valid(t, s, successor.Access))
	}
	for range oauth.MaxRepeats - 2 {
		require.Equal(t, "tokens", refresh())
		require.False(t, valid(t, s, second.Access), "a repeated refresh does not restore it")
	}
	step("tokens", refresh)
	require.Equal(t, "too_many_requests", refresh(), "each repetition is counted once")
	require.Equal(t, http.StatusOK, c.Refresh(successor.Refresh, nil).Status)
	logged(first.Access, true)
	access := first.Access
	step("invalid_grant", refresh)
	require.Equal(t, "invalid_grant", refresh())
	logged(access, false, reused)

	code = c.Code(oauthtest.Owner(), challenged, nil)
	require.Equal(t, "tokens", exchange())
	access = first.Access
	step("invalid_grant", exchange)
	require.Equal(t, "invalid_grant", exchange())
	logged(access, false, "approved", "started", replayed)

	for _, end := range []struct {
		do          func(oauthtest.Tokens) string
		want, again string
		entry       string
		closed      bool // the account
	}{
		{
			do: func(tokens oauthtest.Tokens) string {
				return errorResult(s.Revoke(t.Context(), grantID(tokens), oauthtest.Owner()))
			},
			want: "done", again: oauth.ErrNoGrant.Error(), entry: "revoked",
		},
		{
			do:   func(tokens oauthtest.Tokens) string { return statusText(c.Revoke(tokens.Refresh)) },
			want: "OK", again: "OK", entry: revokedByApp,
		},
		{
			do:   func(tokens oauthtest.Tokens) string { return statusText(call(s, tokens.Access).Code) },
			want: "Unauthorized", again: "Unauthorized", entry: unknown, closed: true,
		},
		{
			do:   func(tokens oauthtest.Tokens) string { return tokenResult(c.Refresh(tokens.Refresh, nil)) },
			want: "invalid_grant", again: "invalid_grant", entry: unknown, closed: true,
		},
	} {
		tokens := c.Connect(oauthtest.Owner(), "")
		if end.closed {
			known.Remove("acc-1")
		}
		step(end.want, func() string { return end.do(tokens) })
		require.Equal(t, end.again, end.do(tokens))
		logged(tokens.Access, false, "approved", "started", end.entry)
		known.Put(oauthtest.Owner())
	}
}

// grantID returns the connection's ID, which is a part of its tokens.
func grantID(tokens oauthtest.Tokens) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(tokens.Access, "gat_"), ".")
	return id
}

// tokenResult returns the result of a token request.
func tokenResult(tokens oauthtest.Tokens) string {
	if tokens.Status != http.StatusOK {
		return tokens.Error
	}
	return "tokens"
}

func errorResult(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, oauth.ErrUnavailable):
		return "temporarily_unavailable"
	}
	return err.Error()
}

func statusText(code int) string {
	if code == http.StatusServiceUnavailable {
		return "temporarily_unavailable"
	}
	return http.StatusText(code)
}

// newServerThroughProxy returns a server whose replies from Redis can be lost, except those of its audit log.
func newServerThroughProxy(t *testing.T) (*oauth.Server, *netfault.RedisProxy) {
	t.Helper()
	proxy := netfault.NewRedisProxy(t, shared.Addr)
	direct, prefix := clientOf(t, shared.Options()), prefixOf(t)
	return newServer(t, func(o *oauth.Options) {
		o.Redis = clientOf(t, &redis.UniversalOptions{Addrs: []string{proxy.Addr}, MaxRetries: -1})
		o.Prefix, o.Audit = prefix, newLog(t, direct, prefix)
	}), proxy
}

func TestRevocationWithoutReplyIsAuditedAsUnknown(t *testing.T) {
	t.Parallel()
	s, proxy := newServerThroughProxy(t)
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	require.Equal(t, http.StatusOK, c.Revoke(tokens.Refresh)) // loads the script
	tokens = c.Connect(oauthtest.Owner(), "")
	grant := authenticate(t, s, tokens.Access)
	proxy.LoseFrom(2) // the first reply contains the connection
	err := s.Revoke(t.Context(), grant.ID, oauthtest.Owner())
	require.ErrorIs(t, err, oauth.ErrUnavailable)
	require.ErrorIs(t, err, oauth.ErrOutcomeUnknown)
	proxy.Lose(0)
	assert.Equal(t, []string{"approved", "started", "revoked/unknown"}, recorded(t, s)[3:])
	assert.False(t, valid(t, s, tokens.Access))
	require.ErrorIs(t, s.Revoke(t.Context(), grant.ID, oauthtest.Owner()), oauth.ErrNoGrant)
	require.Len(t, recorded(t, s), 6, "no entry without a change")
}

func TestDecisionWithoutReplyIsAuditedAsUnknown(t *testing.T) {
	t.Parallel()
	s, proxy := newServerThroughProxy(t)
	c := oauthtest.Register(t, s)
	_, challenged := oauthtest.PKCE()
	approve := func(id string) (string, error) {
		return s.Approve(t.Context(), id, oauthtest.Owner(), scopes(t, "mcp:read"))
	}
	deny := func(id string) (string, error) { return s.Deny(t.Context(), id, oauthtest.Owner()) }
	// The first two replies contain the request, the third one of an approval the business's connections.
	for from, decide := range map[int]func(id string) (string, error){4: approve, 3: deny} {
		_, err := decide(c.Request(challenged, nil)) // loads the script
		require.NoError(t, err)
		id := c.Request(challenged, nil)
		proxy.LoseFrom(from)
		_, err = decide(id)
		proxy.Lose(0)
		require.ErrorIs(t, err, oauth.ErrUnavailable)
		require.ErrorIs(t, err, oauth.ErrOutcomeUnknown)
		_, err = decide(id)
		require.NoError(t, err)
	}
	require.ElementsMatch(t, []string{"approved", "approved/unknown", "denied/denied", "denied/unknown"}, recorded(t, s))
}

func TestNoChangeWithoutAuditEntry(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	proxy := netfault.NewRedisProxy(t, shared.Addr)
	s := newServer(t, func(o *oauth.Options) {
		o.Audit = newLog(t, clientOf(t, &redis.UniversalOptions{Addrs: []string{proxy.Addr}, MaxRetries: -1}), prefixOf(t))
	})
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	old := tokens
	for range 2 {
		tokens = c.Refresh(tokens.Refresh, nil)
	}
	verifier, challenged := oauthtest.PKCE()
	code, id := c.Code(oauthtest.Owner(), challenged, nil), c.Request(challenged, nil)
	grant := authenticate(t, s, tokens.Access)
	proxy.LoseFrom(1)
	_, err := s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "mcp:read"))
	require.ErrorIs(t, err, oauth.ErrUnavailable)
	_, err = s.Deny(ctx, id, oauthtest.Owner())
	require.ErrorIs(t, err, oauth.ErrUnavailable)
	err = s.Revoke(ctx, grant.ID, oauthtest.Owner())
	require.ErrorIs(t, err, oauth.ErrUnavailable)
	require.NotErrorIs(t, err, oauth.ErrOutcomeUnknown)
	require.Equal(t, "temporarily_unavailable", c.Exchange(code, verifier, nil).Error)
	require.Equal(t, "temporarily_unavailable", c.Refresh(old.Refresh, nil).Error, "reuse")
	require.Equal(t, http.StatusServiceUnavailable, c.Revoke(tokens.Refresh))
	proxy.Lose(0)
	require.True(t, valid(t, s, tokens.Access))
	require.Equal(t, http.StatusOK, c.Exchange(code, verifier, nil).Status)
	_, err = s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "mcp:read"))
	require.NoError(t, err)
}
