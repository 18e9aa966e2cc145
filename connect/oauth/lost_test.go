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

// flow is a connection on its way, with everything that its steps need.
type flow struct {
	t                       *testing.T
	server                  *oauth.Server
	accounts                *accounttest.Service
	client                  *oauthtest.Client
	verifier, request, code string
	first, tokens           oauthtest.Tokens // those of the code, and the current ones
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

// told is what a token request was told.
func told(tokens oauthtest.Tokens) string {
	if tokens.Status != http.StatusOK {
		return tokens.Error
	}
	return "tokens"
}

func toldError(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, oauth.ErrUnavailable):
		return "temporarily_unavailable"
	}
	return err.Error()
}

func toldDecision(d oauth.Decision, err error) string {
	if err == nil && !d.Decided {
		return "decided before"
	}
	return toldError(err)
}

func statusText(code int) string {
	if code == http.StatusServiceUnavailable {
		return "temporarily_unavailable"
	}
	return http.StatusText(code)
}

// live reports whether the connection is live, by its access token and by the list.
func (f *flow) live() bool {
	f.t.Helper()
	live := valid(f.t, f.server, f.tokens.Access)
	require.Equal(f.t, live, len(grants(f.t, f.server)) == 1, "the list and the token agree")
	return live
}

// step is one thing that somebody does, on a flow of its own.
type step struct {
	before func(f *flow)
	do     func(f *flow) string // what they are told
	told   string
	again  string   // what they are told if they do it once more
	log    []string // what the audit log then says
	live   bool     // whether the connection then is
}

func steps() map[string]step {
	approve := func(f *flow) string {
		return toldDecision(f.server.Approve(f.t.Context(), f.request, oauthtest.Owner(), scopes(f.t, "mcp:read")))
	}
	deny := func(f *flow) string { return toldDecision(f.server.Deny(f.t.Context(), f.request, oauthtest.Owner())) }
	exchange := func(f *flow) string {
		tokens := f.client.Exchange(f.code, f.verifier, nil)
		if tokens.Status == http.StatusOK {
			f.tokens = tokens
		}
		return told(tokens)
	}
	use := func(f *flow, refresh string) string {
		tokens := f.client.Refresh(refresh, nil)
		if tokens.Status == http.StatusOK && f.revoked == "" {
			f.tokens = tokens
		}
		return told(tokens)
	}
	connected := []string{"approved", "started"}
	return map[string]step{
		"register": {
			before: func(*flow) {},
			do: func(f *flow) string {
				return statusText(postRegistration(clientWithID(f.t, f.server, ""), `{"redirect_uris":["https://a.example/"]}`).Code)
			},
			told: "Created", again: "Created",
		},
		"authorize": {
			before: (*flow).register,
			do:     func(f *flow) string { return statusText(f.client.Authorize(challenge(), nil).Code) },
			told:   "See Other", again: "See Other",
		},
		"approve": {before: (*flow).authorize, do: approve, told: "done", again: "decided before", log: []string{"approved"}},
		"deny":    {before: (*flow).authorize, do: deny, told: "done", again: "decided before", log: []string{"denied/denied"}},
		"redeem": {
			before: (*flow).approve, do: exchange, told: "tokens", again: "invalid_grant", log: append(connected, replayed),
		},
		"replay": {
			before: (*flow).redeem, do: exchange, told: "invalid_grant", again: "invalid_grant", log: append(connected, replayed),
		},
		"refresh": {
			before: (*flow).redeem, do: func(f *flow) string { return use(f, f.first.Refresh) },
			told: "tokens", again: "tokens", log: connected, live: true,
		},
		"repeat the last refresh that is answered": {
			before: func(f *flow) {
				f.redeem()
				for range oauth.MaxRepeats {
					require.Equal(f.t, "tokens", use(f, f.first.Refresh))
				}
			},
			do:   func(f *flow) string { return use(f, f.first.Refresh) },
			told: "tokens", again: "invalid_grant", log: connected, live: true,
		},
		"reuse": {
			before: func(f *flow) { f.redeem(); f.refresh(2) },
			do:     func(f *flow) string { return use(f, f.first.Refresh) },
			told:   "invalid_grant", again: "invalid_grant", log: append(connected, reused),
		},
		"disconnect": {
			before: (*flow).redeem,
			do:     func(f *flow) string { return toldError(f.server.Revoke(f.t.Context(), f.grant.ID, oauthtest.Owner())) },
			told:   "done", again: oauth.ErrNoGrant.Error(), log: append(connected, "revoked"),
		},
		"give the refresh token back": {
			before: (*flow).redeem, do: func(f *flow) string { return statusText(f.client.Revoke(f.tokens.Refresh)) },
			told: "OK", again: "OK", log: append(connected, givenBack),
		},
		"give an access token back": {
			before: func(f *flow) { f.redeem(); f.refresh(1); f.revoked = f.tokens.Access; f.tokens = f.first },
			do:     func(f *flow) string { return statusText(f.client.Revoke(f.revoked)) },
			told:   "OK", again: "OK", log: connected, live: true,
		},
		"call without the account": {
			before: (*flow).closeAccounts, do: (*flow).call, told: "Unauthorized", again: "Unauthorized", log: append(connected, unknown),
		},
		"refresh without the account": {
			before: (*flow).closeAccounts, do: func(f *flow) string { return use(f, f.tokens.Refresh) },
			told: "invalid_grant", again: "invalid_grant", log: append(connected, unknown),
		},
		"call": {before: (*flow).redeem, do: (*flow).call, told: "Not Found", again: "Not Found", log: connected, live: true},
	}
}

// Each reply of Redis in each step is lost in turn, with and without retries by the Redis client. Afterwards the tokens, the list
// and the audit log agree with the response, and repeating the step is harmless.
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

// loseReply has the n-th reply in a step lost, and returns how many there were.
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
		got = s.do(f) // it was told to come again
	}
	require.Equal(t, s.told, got, what)
	if s.log != nil || s.live {
		require.Equal(t, s.again, s.do(f), "%s, and again", what)
		require.Equal(t, s.log, recorded(t, f.server), what)
	}
	if f.first.Access != "" || f.tokens.Access != "" {
		require.Equal(t, s.live, f.live(), what)
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
	require.Equal(t, http.StatusOK, c.Revoke(tokens.Refresh)) // Redis knows the script from now on
	tokens = c.Connect(oauthtest.Owner(), "")
	grant := authenticate(t, s, tokens.Access)
	proxy.LoseFrom(2) // the first has the connection to end
	require.ErrorIs(t, s.Revoke(t.Context(), grant.ID, oauthtest.Owner()), oauth.ErrUnavailable)
	proxy.Lose(0)
	require.Equal(t, []string{"approved", "started", "revoked/unknown"}, recorded(t, s)[3:])
	require.False(t, valid(t, s, tokens.Access))
	require.ErrorIs(t, s.Revoke(t.Context(), grant.ID, oauthtest.Owner()), oauth.ErrNoGrant)
	require.Len(t, recorded(t, s), 6, "what changes nothing is not recorded")
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
	d, err := s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "mcp:read"))
	require.NoError(t, err)
	require.True(t, d.Decided)
}
