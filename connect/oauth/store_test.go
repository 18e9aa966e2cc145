package oauth_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// dump reads everything that is in a Redis.
func dump(t testing.TB, client redis.UniversalClient) map[string]string {
	t.Helper()
	ctx := context.Background()
	all := map[string]string{}
	read := func(ctx context.Context, c redis.Cmdable) error {
		keys, err := c.Keys(ctx, "*").Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			switch kind := c.Type(ctx, key).Val(); kind {
			case "string":
				all[key] = c.Get(ctx, key).Val()
			case "hash":
				all[key] = fmt.Sprint(c.HGetAll(ctx, key).Val())
			case "set":
				all[key] = fmt.Sprint(c.SMembers(ctx, key).Val())
			case "list":
				all[key] = fmt.Sprint(c.LRange(ctx, key, 0, -1).Val())
			default:
				return fmt.Errorf("key %s is a %s", key, kind)
			}
		}
		return nil
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		require.NoError(t, cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return read(ctx, c) }))
	} else {
		require.NoError(t, read(ctx, client))
	}
	return all
}

func TestEveryKeyExpiresAndNoTokenIsStored(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	client := clientOf(t, server.Options())
	s := newServer(t, func(o *oauth.Options) {
		o.Redis, o.Prefix = client, ""
		o.Audit = newLog(t, clientOf(t, shared.Options()), prefixOf(t))
		// counters that are there when this looks: of 60 a minute, one is forgotten after a second
		o.Limits.Registrations, o.Limits.AllRegistrations, o.Limits.Authorizations = limit(12, time.Hour), limit(12, time.Hour), limit(12, time.Hour)
		o.Limits.AllAuthorizations = limit(12, time.Hour)
	})
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	waiting := c.Request(challenge, nil)
	id := c.Request(challenge, url.Values{"scope": {"mcp:use"}})
	code := oauthtest.CodeOf(t, c.Approve(id, oauthtest.Owner(), scopes(t, "mcp:use")))
	unredeemed := c.Code(oauthtest.Owner(), challenge, nil)
	tokens := c.Exchange(code, verifier, nil)
	next := c.Refresh(tokens.Refresh, nil)
	require.Equal(t, http.StatusOK, next.Status)

	longest := map[string]time.Duration{
		"client:": oauth.RegistrationLifetime, "business:": oauth.RefreshIdle + time.Hour, "}:request": oauth.RequestLifetime,
		"rate:": time.Hour, "}": oauth.RefreshIdle, "}:attempts": 2 * time.Minute,
	}
	all := dump(t, client)
	require.Len(t, all, 1+1+2+2+2+4, "client, index, requests, connections, their attempts, counters: %v", all)
	for key, value := range all {
		ttl := client.PTTL(ctx, key).Val()
		require.Positive(t, ttl, "%s has no end", key)
		bound, length := time.Duration(0), 0
		for part, lifetime := range longest {
			if strings.Contains(key, part) && len(part) > length {
				bound, length = lifetime, len(part)
			}
		}
		require.LessOrEqual(t, ttl, bound, key)
		require.True(t, strings.HasPrefix(strings.TrimPrefix(key, "rate:"), oauth.DefaultPrefix), key)
		for _, token := range []string{waiting, id, code, unredeemed, tokens.Access, tokens.Refresh, next.Access, next.Refresh} {
			secret := token[strings.Index(token, ".")+1:]
			raw, err := base64.RawURLEncoding.DecodeString(secret)
			require.NoError(t, err)
			require.NotContains(t, value, secret)
			require.NotContains(t, value, string(raw))
			require.NotContains(t, value, hex.EncodeToString(raw))
			require.NotContains(t, value, secret[len(secret)-40:], "nor the part of a refresh token that is its own")
		}
		require.NotContains(t, value, verifier)
	}

	// What has ended leaves nothing but its counters, its client and, for two minutes, the ids of what was attempted.
	grants, err := s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Len(t, grants, 1)
	require.NoError(t, s.Revoke(ctx, grants[0].ID, oauthtest.Owner()))
	all = dump(t, client)
	require.NotContains(t, all, s.GrantKey(grants[0].ID))
	require.NotContains(t, all[s.BusinessKey("biz-1")], grants[0].ID)
}

func TestIndexDropsEndedConnections(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := clientOf(t, shared.Options())
	s := newServer(t, func(o *oauth.Options) { o.Redis = client })
	_, challenge := oauthtest.PKCE()
	c := oauthtest.Register(t, s)
	for range 3 {
		c.Code(oauthtest.Owner(), challenge, nil) // never redeemed
	}
	c.Connect(oauthtest.Owner(), "")
	size := func() int64 { return client.SCard(ctx, s.BusinessKey("biz-1")).Val() }
	require.Equal(t, int64(1), size(), "codes that were not redeemed are not in it")
	grants, err := s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Len(t, grants, 1)
	require.NoError(t, client.Del(ctx, s.GrantKey(grants[0].ID)).Err()) // ran out, or was lost
	grants, err = s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Empty(t, grants)
	require.Zero(t, size(), "what is not there any more leaves when somebody looks")
}

func TestKeysOfAConnectionShareAClusterSlot(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	// a node that is slow with its answer is not taken for lost
	cluster := redistest.StartCluster(t, redistest.WithConfig("cluster-node-timeout", "15000"))
	client := cluster.Client(t)
	servers := []*oauth.Server{}
	prefix := prefixOf(t)
	for range 2 {
		servers = append(servers, newServer(t, func(o *oauth.Options) { o.Redis, o.Prefix = clientOf(t, cluster.Options()), prefix }))
	}
	a, b := servers[0], servers[1]
	c := oauthtest.Register(t, a)
	for range 6 { // connections fall on all nodes
		verifier, challenge := oauthtest.PKCE()
		code := c.Code(oauthtest.Owner(), challenge, nil)
		c.Server, c.Handler = b, b.Handler() // another gateway goes on with it
		tokens := c.Exchange(code, verifier, nil)
		require.Equal(t, http.StatusOK, tokens.Status, tokens.ErrorDescription)
		next := c.Refresh(tokens.Refresh, nil)
		require.Equal(t, http.StatusOK, next.Status)
		require.Equal(t, next.Refresh, c.Refresh(tokens.Refresh, nil).Refresh)
		grant, err := a.Authenticate(ctx, next.Access)
		require.NoError(t, err)
		slot := client.ClusterKeySlot(ctx, a.GrantKey(grant.ID)).Val()
		require.Equal(t, slot, client.ClusterKeySlot(ctx, a.RequestKey(grant.ID)).Val())
	}
	grants, err := a.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Len(t, grants, 6)
	for _, g := range grants {
		slot := client.ClusterKeySlot(ctx, a.GrantKey(g.ID)).Val()
		require.Equal(t, slot, client.ClusterKeySlot(ctx, a.AttemptsKey(g.ID)).Val())
		require.NoError(t, b.Revoke(ctx, g.ID, oauthtest.Owner()))
	}

	// A connection's slot moves while it is used: nothing is lost and nothing is refused.
	tokens := c.Connect(oauthtest.Owner(), "")
	grant, err := a.Authenticate(ctx, tokens.Access)
	require.NoError(t, err)
	slot := int(client.ClusterKeySlot(ctx, a.GrantKey(grant.ID)).Val())
	moved := make(chan error, 1)
	go func() { moved <- cluster.MoveSlot(ctx, slot, (cluster.Owner(slot)+1)%3) }()
	for range 20 {
		_, err := a.Authenticate(ctx, tokens.Access)
		require.NoError(t, err)
		tokens = c.Refresh(tokens.Refresh, nil)
		require.Equal(t, http.StatusOK, tokens.Status, tokens.ErrorDescription)
	}
	require.NoError(t, <-moved)
	_, err = b.Authenticate(ctx, tokens.Access)
	require.NoError(t, err)
}

func TestWorksOnMiniredis(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	embedded := miniredis.RunT(t)
	s := newServer(t, func(o *oauth.Options) {
		o.Redis = clientOf(t, &redis.UniversalOptions{Addrs: []string{embedded.Addr()}})
	})
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "mcp:use")
	next := c.Refresh(tokens.Refresh, nil)
	require.Equal(t, http.StatusOK, next.Status)
	require.Equal(t, next.Access, c.Refresh(tokens.Refresh, nil).Access)
	grant, err := s.Authenticate(ctx, next.Access)
	require.NoError(t, err)
	require.InDelta(t, oauth.RefreshIdle, embedded.TTL(s.GrantKey(grant.ID)), float64(time.Minute))
	grants, err := s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Len(t, grants, 1)
	require.NoError(t, s.Revoke(ctx, grant.ID, oauthtest.Owner()))
	_, err = s.Authenticate(ctx, next.Access)
	require.ErrorIs(t, err, oauth.ErrInvalidToken)
}

// While Redis is away nobody is told that a token is bad: clients would throw it away.
func TestRedisOutageIs503AndNeverInvalidToken(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t, redistest.WithConfig("appendonly", "yes"), redistest.WithConfig("appendfsync", "always"))
	o := server.Options()
	o.MaxRetries, o.DialerRetries = -1, 1 // nothing listens while it is away, which is known at once
	client := clientOf(t, o)
	s := newServer(t, func(o *oauth.Options) { o.Redis = client })
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	waiting := c.Request(challenge, nil)
	code := c.Code(oauthtest.Owner(), challenge, nil)
	tokens := c.Connect(oauthtest.Owner(), "")
	grants, err := s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	protected := s.Protect(http.NotFoundHandler())

	check := func() {
		t.Helper()
		for name, w := range map[string]*httptest.ResponseRecorder{
			"authorize": c.Authorize(challenge, nil),
			"code": c.Post("/oauth/token", url.Values{
				"grant_type": {"authorization_code"}, "client_id": {c.ID}, "code": {code}, "code_verifier": {verifier},
			}),
			"refresh": c.Post("/oauth/token", url.Values{
				"grant_type": {"refresh_token"}, "client_id": {c.ID}, "refresh_token": {tokens.Refresh},
			}),
			"revoke access":  c.Post("/oauth/revoke", url.Values{"token": {tokens.Access}}),
			"revoke refresh": c.Post("/oauth/revoke", url.Values{"token": {tokens.Refresh}}),
			"register":       postRegistration(c, `{"redirect_uris":["https://app.example.org/cb"]}`),
			"call":           call(protected, "Bearer "+tokens.Access),
		} {
			require.Equal(t, http.StatusServiceUnavailable, w.Code, "%s: %s", name, w.Body)
			require.Contains(t, w.Body.String(), `"error":"temporarily_unavailable"`, name)
			require.NotEmpty(t, w.Header().Get("Retry-After"), name)
			require.Empty(t, w.Header().Get("WWW-Authenticate"), name)
			require.Empty(t, w.Header().Get("Location"), name)
			require.NotContains(t, w.Body.String(), server.Addr, "%s names an internal address", name)
		}
		_, err := s.Pending(ctx, waiting)
		require.ErrorIs(t, err, oauth.ErrUnavailable)
		_, err = s.Approve(ctx, waiting, oauthtest.Owner(), scopes(t, "mcp:read"))
		require.ErrorIs(t, err, oauth.ErrUnavailable)
		_, err = s.Deny(ctx, waiting, oauthtest.Owner())
		require.ErrorIs(t, err, oauth.ErrUnavailable)
		_, err = s.Grants(ctx, "biz-1")
		require.ErrorIs(t, err, oauth.ErrUnavailable)
		require.ErrorIs(t, s.Revoke(ctx, grants[0].ID, oauthtest.Owner()), oauth.ErrUnavailable)
		_, err = s.Authenticate(ctx, tokens.Access)
		require.ErrorIs(t, err, oauth.ErrUnavailable)
	}
	require.NoError(t, server.Kill())
	check()
	require.NoError(t, server.Restart())

	// Back again, with what was kept on its disk, everything goes on as if nothing had been.
	require.Eventually(t, func() bool {
		_, err := s.Authenticate(ctx, tokens.Access)
		return err == nil
	}, patience, 20*time.Millisecond)
	require.Equal(t, http.StatusOK, c.Refresh(tokens.Refresh, nil).Status)
	require.Equal(t, http.StatusOK, c.Exchange(code, verifier, nil).Status)

	// A Redis that takes no writes, because it is full or a replica, is away as well.
	require.NoError(t, server.Client(t).ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	w := c.Post("/oauth/token", url.Values{
		"grant_type": {"refresh_token"}, "client_id": {c.ID}, "refresh_token": {tokens.Refresh},
	})
	require.Equal(t, http.StatusServiceUnavailable, w.Code, "%s", w.Body)
}

// A client whose registration was lost with Redis is told so, and not only that its tokens are: it has to register
// before it can ask for an approval.
func TestLostRegistrationIsInvalidClient(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := clientOf(t, shared.Options())
	s := newServer(t, func(o *oauth.Options) { o.Redis = client })
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	grants, err := s.Grants(ctx, "biz-1")
	require.NoError(t, err)

	require.NoError(t, client.Del(ctx, s.ClientKey(c.ID)).Err())
	tokens = c.Refresh(tokens.Refresh, nil)
	require.Equal(t, http.StatusOK, tokens.Status, "a connection does not need the registration it began with")
	require.NoError(t, client.Del(ctx, s.GrantKey(grants[0].ID)).Err())
	lost := c.Refresh(tokens.Refresh, nil)
	require.Equal(t, http.StatusUnauthorized, lost.Status)
	require.Equal(t, "invalid_client", lost.Error)
	verifier, challenge := oauthtest.PKCE()
	require.Equal(t, "invalid_client", c.Exchange("gac_x", verifier, nil).Error)
	w := c.Authorize(challenge, nil)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Empty(t, w.Header().Get("Location"))

	other := oauthtest.Register(t, s)
	require.Equal(t, "invalid_grant", other.Refresh(tokens.Refresh, nil).Error)
}

func TestOnlySuccessfulTokenRequestsExtendARegistration(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := clientOf(t, shared.Options())
	s := newServer(t, func(o *oauth.Options) { o.Redis = client })
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	left := func() time.Duration { return client.PTTL(ctx, s.ClientKey(c.ID)).Val() }
	require.LessOrEqual(t, left(), oauth.UnusedLifetime)
	require.Greater(t, left(), oauth.UnusedLifetime-time.Hour)

	short := func() { require.NoError(t, client.Expire(ctx, s.ClientKey(c.ID), time.Hour).Err()) }
	short()
	code := c.Code(oauthtest.Owner(), challenge, nil)
	for name, attempt := range map[string]func() oauthtest.Tokens{
		"a made-up code":          func() oauthtest.Tokens { return c.Exchange("gac_x", verifier, nil) },
		"another verifier":        func() oauthtest.Tokens { return c.Exchange(code, strings.Repeat("a", 43), nil) },
		"a made-up refresh token": func() oauthtest.Tokens { return c.Refresh("grt_x", nil) },
	} {
		require.Equal(t, "invalid_grant", attempt().Error, name)
	}
	require.LessOrEqual(t, left(), time.Hour, "neither an authorization request nor a failed token request prolongs it")

	tokens := c.Exchange(code, verifier, nil)
	require.Equal(t, http.StatusOK, tokens.Status)
	require.Greater(t, left(), oauth.RegistrationLifetime-time.Hour)
	short()
	require.Equal(t, http.StatusOK, c.Refresh(tokens.Refresh, nil).Status)
	require.Greater(t, left(), oauth.RegistrationLifetime-time.Hour)
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared.Options())
	complete := oauth.Options{
		Issuer: issuer, Redis: client, Accounts: newAccounts(), Audit: newLog(t, client, prefixOf(t)),
	}
	_, err := oauth.New(complete)
	require.NoError(t, err)
	for _, bad := range []string{
		"", "gateway.example.com", "https://gateway.example.com/", "https://gateway.example.com/x", "https://", "https://:8443",
		"https://GATEWAY.example.com", "HTTPS://gateway.example.com", "https://u@gateway.example.com", "https://gateway.example.com:",
		"https://gateway.example.com:443", "http://gateway.example.com", "http://localhost:80", "ftp://gateway.example.com",
		"https://gateway.example.com?x", "https://gateway.example.com#x", "https:gateway.example.com", "http://10.0.0.1",
	} {
		o := complete
		o.Issuer = bad
		_, err := oauth.New(o)
		require.ErrorContains(t, err, "issuer", bad)
	}
	for _, good := range []string{
		"https://gateway.example.com", "https://gateway.example.com:8443", "http://localhost:8080", "http://127.0.0.1:8080",
		"http://[::1]:8080", "http://demo.localhost:8080", "https://[2001:db8::1]",
	} {
		o := complete
		o.Issuer = good
		s, err := oauth.New(o)
		require.NoError(t, err, good)
		require.Equal(t, good, s.Issuer())
		require.Equal(t, good+"/mcp", s.Resource())
	}
	for name, change := range map[string]func(*oauth.Options){
		"no Redis":     func(o *oauth.Options) { o.Redis = nil },
		"no accounts":  func(o *oauth.Options) { o.Accounts = nil },
		"no audit log": func(o *oauth.Options) { o.Audit = nil },
		"braces":       func(o *oauth.Options) { o.Prefix = "a{b}:" },
		"time":         func(o *oauth.Options) { o.Timeout = -1 },
		"approve":      func(o *oauth.Options) { o.ApprovePath = "approve" },
		"resource":     func(o *oauth.Options) { o.ResourcePath = "/" },
		"limit":        func(o *oauth.Options) { o.Limits.Fetches = limit(1, -1) },
		"scheme":       func(o *oauth.Options) { o.ClientSchemes = []string{"cursor", "javascript"} },
	} {
		o := complete
		change(&o)
		_, err := oauth.New(o)
		require.Error(t, err, name)
	}
}
