package oauth_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/accounttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/losttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

// flow is a connection at some step, with what the next steps need.
type flow struct {
	t                       *testing.T
	server                  *oauth.Server
	accounts                *accounttest.Service
	client                  *oauthtest.Client
	verifier, request, code string
	first, tokens           oauthtest.Tokens // from the code; current
	grant                   oauth.Grant
	revoked                 string
}

func (f *flow) register() { f.client = oauthtest.Register(f.t, f.server) }

func (f *flow) authorize() {
	f.register()
	var challenge string
	f.verifier, challenge = oauthtest.PKCE()
	f.request = f.client.Request(challenge, nil)
}

func (f *flow) approve() {
	f.authorize()
	f.code = oauthtest.CodeOf(f.t, f.client.Approve(f.request, oauthtest.Owner(), scopes(f.t, "mcp:read")))
}

func (f *flow) redeem() {
	f.approve()
	f.tokens = f.client.Exchange(f.code, f.verifier, nil)
	require.Equal(f.t, http.StatusOK, f.tokens.Status)
	f.first = f.tokens
	f.grant = authenticate(f.t, f.server, f.first.Access)
}

func (f *flow) closeAccounts() {
	f.redeem()
	f.accounts.Remove("acc-1")
}

func (f *flow) call() string { return statusText(call(f.server, f.tokens.Access).Code) }

func (f *flow) refresh(times int) {
	for range times {
		f.tokens = f.client.Refresh(f.tokens.Refresh, nil)
		require.Equal(f.t, http.StatusOK, f.tokens.Status)
	}
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

// active reports whether the connection is active, by its access token and by the list.
func (f *flow) active() bool {
	f.t.Helper()
	active := valid(f.t, f.server, f.tokens.Access)
	require.Equal(f.t, active, len(grants(f.t, f.server)) == 1, "the list and the token agree")
	return active
}

// step is an operation on a flow of its own.
type step struct {
	before func(f *flow)
	do     func(f *flow) string // returns the result
	want   string
	again  string   // the result if it is repeated
	log    []string // the audit log afterwards
	active bool     // whether the connection is active afterwards
}

func steps() map[string]step {
	approve := func(f *flow) string {
		_, err := f.server.Approve(f.t.Context(), f.request, oauthtest.Owner(), scopes(f.t, "mcp:read"))
		return errorResult(err)
	}
	deny := func(f *flow) string {
		_, err := f.server.Deny(f.t.Context(), f.request, oauthtest.Owner())
		return errorResult(err)
	}
	exchange := func(f *flow) string {
		tokens := f.client.Exchange(f.code, f.verifier, nil)
		if tokens.Status == http.StatusOK {
			f.tokens = tokens
		}
		return tokenResult(tokens)
	}
	use := func(f *flow, refresh string) string {
		tokens := f.client.Refresh(refresh, nil)
		if tokens.Status == http.StatusOK && f.revoked == "" {
			f.tokens = tokens
		}
		return tokenResult(tokens)
	}
	connected := []string{"approved", "started"}
	return map[string]step{
		"register": {
			before: func(*flow) {},
			do: func(f *flow) string {
				return statusText(postRegistration(clientWithID(f.t, f.server, ""), `{"redirect_uris":["https://a.example/"]}`).Code)
			},
			want: "Created", again: "Created",
		},
		"authorize": {
			before: (*flow).register,
			do:     func(f *flow) string { return statusText(f.client.Authorize(challenge(), nil).Code) },
			want:   "See Other", again: "See Other",
		},
		"approve": {before: (*flow).authorize, do: approve, want: "done", again: "done", log: []string{"approved"}},
		"deny":    {before: (*flow).authorize, do: deny, want: "done", again: "done", log: []string{"denied/denied"}},
		"redeem": {
			before: (*flow).approve, do: exchange, want: "tokens", again: "invalid_grant", log: append(connected, replayed),
		},
		"replay": {
			before: (*flow).redeem, do: exchange, want: "invalid_grant", again: "invalid_grant", log: append(connected, replayed),
		},
		"refresh": {
			before: (*flow).redeem, do: func(f *flow) string { return use(f, f.first.Refresh) },
			want: "tokens", again: "tokens", log: connected, active: true,
		},
		"repeat a refresh for the last time": {
			before: func(f *flow) {
				f.redeem()
				for range oauth.MaxRepeats {
					require.Equal(f.t, "tokens", use(f, f.first.Refresh))
				}
			},
			do:   func(f *flow) string { return use(f, f.first.Refresh) },
			want: "tokens", again: "invalid_grant", log: connected, active: true,
		},
		"reuse": {
			before: func(f *flow) { f.redeem(); f.refresh(2) },
			do:     func(f *flow) string { return use(f, f.first.Refresh) },
			want:   "invalid_grant", again: "invalid_grant", log: append(connected, reused),
		},
		"disconnect": {
			before: (*flow).redeem,
			do: func(f *flow) string {
				return errorResult(f.server.Revoke(f.t.Context(), f.grant.ID, oauthtest.Owner()))
			},
			want: "done", again: oauth.ErrNoGrant.Error(), log: append(connected, "revoked"),
		},
		"revoke the refresh token": {
			before: (*flow).redeem, do: func(f *flow) string { return statusText(f.client.Revoke(f.tokens.Refresh)) },
			want: "OK", again: "OK", log: append(connected, revokedByApp),
		},
		"revoke an access token": {
			before: func(f *flow) { f.redeem(); f.refresh(1); f.revoked = f.tokens.Access; f.tokens = f.first },
			do:     func(f *flow) string { return statusText(f.client.Revoke(f.revoked)) },
			want:   "OK", again: "OK", log: connected, active: true,
		},
		"call without the account": {
			before: (*flow).closeAccounts, do: (*flow).call, want: "Unauthorized", again: "Unauthorized", log: append(connected, unknown),
		},
		"refresh without the account": {
			before: (*flow).closeAccounts, do: func(f *flow) string { return use(f, f.tokens.Refresh) },
			want: "invalid_grant", again: "invalid_grant", log: append(connected, unknown),
		},
		"call": {before: (*flow).redeem, do: (*flow).call, want: "Not Found", again: "Not Found", log: connected, active: true},
	}
}

// Each reply of Redis in each step is lost in turn, with and without retries by the Redis client. The tokens, the list and the
// audit log must agree with the response, and a repetition must change nothing.
func TestLostRedisReplyDoesNotChangeTheOutcome(t *testing.T) {
	t.Parallel()
	for name, s := range steps() {
		for retries, retried := range map[int]string{3: "with retries", -1: "without retries"} {
			t.Run(name+", "+retried, func(t *testing.T) {
				t.Parallel()
				proxy := losttest.NewRedis(t, shared.Addr)
				client := clientOf(t, &redis.UniversalOptions{Addrs: []string{proxy.Addr()}, MaxRetries: retries})
				replies := loseReply(t, s, proxy, client, 0)
				require.Positive(t, replies)
				for n := 1; n <= replies; n++ {
					loseReply(t, s, proxy, client, n)
				}
			})
		}
	}
}

// loseReply runs a step, loses its n-th reply and returns the number of replies.
func loseReply(t *testing.T, s step, proxy *losttest.Redis, client redis.UniversalClient, n int) int {
	t.Helper()
	known := newAccounts()
	f := &flow{t: t, accounts: known}
	f.server = newServer(t, unlimited, func(o *oauth.Options) {
		o.Redis, o.Prefix, o.Accounts = client, fmt.Sprintf("%s%d:", prefixOf(t), n), known
	})
	s.before(f)
	what := fmt.Sprintf("reply %d", n)
	proxy.Lose(n)
	got := s.do(f)
	replies := proxy.Replies()
	proxy.Lose(0)
	if got == "temporarily_unavailable" && n > 0 {
		got = s.do(f) // as the response asked
	}
	require.Equal(t, s.want, got, what)
	if s.log != nil || s.active {
		require.Equal(t, s.again, s.do(f), "%s, repeated", what)
		require.Equal(t, s.log, recorded(t, f.server), what)
	}
	if f.first.Access != "" || f.tokens.Access != "" {
		require.Equal(t, s.active, f.active(), what)
	}
	if f.revoked != "" {
		require.False(t, valid(t, f.server, f.revoked), what)
		again := f.client.Refresh(f.first.Refresh, nil)
		require.Equal(t, f.revoked, again.Access, what)
		require.Equal(t, 1, again.ExpiresIn, what)
		require.False(t, valid(t, f.server, again.Access), "%s: a repeated refresh does not restore it", what)
	}
	require.NotContains(t, fmt.Sprint(recorded(t, f.server)), "unknown", what)
	return replies
}

func TestRevocationWithoutReplyIsAuditedAsUnknown(t *testing.T) {
	t.Parallel()
	proxy := losttest.NewRedis(t, shared.Addr)
	direct, prefix := clientOf(t, shared.Options()), prefixOf(t)
	s := newServer(t, func(o *oauth.Options) {
		o.Redis = clientOf(t, &redis.UniversalOptions{Addrs: []string{proxy.Addr()}, MaxRetries: -1})
		o.Prefix, o.Audit = prefix, newLog(t, direct, prefix)
	})
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	require.Equal(t, http.StatusOK, c.Revoke(tokens.Refresh)) // loads the script
	tokens = c.Connect(oauthtest.Owner(), "")
	grant := authenticate(t, s, tokens.Access)
	proxy.LoseFrom(2) // the first reply contains the connection
	require.ErrorIs(t, s.Revoke(t.Context(), grant.ID, oauthtest.Owner()), oauth.ErrUnavailable)
	proxy.Lose(0)
	require.Equal(t, []string{"approved", "started", "revoked/unknown"}, recorded(t, s)[3:])
	require.False(t, valid(t, s, tokens.Access))
	require.ErrorIs(t, s.Revoke(t.Context(), grant.ID, oauthtest.Owner()), oauth.ErrNoGrant)
	require.Len(t, recorded(t, s), 6, "no entry without a change")
}

func TestNoChangeWithoutAuditEntry(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	proxy := losttest.NewRedis(t, shared.Addr)
	s := newServer(t, func(o *oauth.Options) {
		o.Audit = newLog(t, clientOf(t, &redis.UniversalOptions{Addrs: []string{proxy.Addr()}, MaxRetries: -1}), prefixOf(t))
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
	require.ErrorIs(t, s.Revoke(ctx, grant.ID, oauthtest.Owner()), oauth.ErrUnavailable)
	require.Equal(t, "temporarily_unavailable", c.Exchange(code, verifier, nil).Error)
	require.Equal(t, "temporarily_unavailable", c.Refresh(old.Refresh, nil).Error, "reuse")
	require.Equal(t, http.StatusServiceUnavailable, c.Revoke(tokens.Refresh))
	proxy.Lose(0)
	require.True(t, valid(t, s, tokens.Access))
	require.Equal(t, http.StatusOK, c.Exchange(code, verifier, nil).Status)
	_, err = s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "mcp:read"))
	require.NoError(t, err)
}
