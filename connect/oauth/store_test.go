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
	"github.com/gatehouse-gateway/gatehouse/internal/oauthtest"
	"github.com/gatehouse-gateway/gatehouse/internal/redistest"
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
			case "zset":
				all[key] = fmt.Sprint(c.ZRangeWithScores(ctx, key, 0, -1).Val())
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

func TestNothingIsKeptForeverAndNoTokenIsKeptAtAll(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	client := clientOf(t, server.Options())
	s := newServer(t, func(o *oauth.Options) {
		o.Redis, o.Prefix = client, ""
		// counters that are there when this looks: of 120 a minute, one is forgotten after half a second
		o.Limits.Registrations, o.Limits.AllRegistrations, o.Limits.Authorizations = limit(12, time.Hour), limit(12, time.Hour), limit(12, time.Hour)
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
		"rate:": time.Hour, "}": oauth.RefreshIdle,
	}
	all := dump(t, client)
	require.Len(t, all, 1+1+2+2+3, "client, index, requests, connections, counters: %v", all)
	for key, value := range all {
		ttl := client.PTTL(ctx, key).Val()
		require.Positive(t, ttl, "%s has no end", key)
		bound := time.Duration(0)
		for part, lifetime := range longest {
			if strings.Contains(key, part) {
				bound = max(bound, lifetime)
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

	// What has ended leaves nothing but its counters and its client.
	grants, err := s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Len(t, grants, 1)
	require.NoError(t, s.Revoke(ctx, "biz-1", grants[0].ID))
	all = dump(t, client)
	require.NotContains(t, all, s.GrantKey(grants[0].ID))
	require.NotContains(t, all[s.BusinessKey("biz-1")], grants[0].ID)
}

func TestTheIndexForgetsWhatHasEnded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	now := newClock()
	client := clientOf(t, shared.Options())
	s := newServer(t, withClock(now), func(o *oauth.Options) { o.Redis = client })
	_, challenge := oauthtest.PKCE()
	c := oauthtest.Register(t, s)
	for range 3 {
		c.Code(oauthtest.Owner(), challenge, nil) // never redeemed
	}
	tokens := c.Connect(oauthtest.Owner(), "")
	size := func() int64 { return client.ZCard(ctx, s.BusinessKey("biz-1")).Val() }
	require.Equal(t, int64(4), size())
	now.Add(oauth.CodeLifetime)
	require.Equal(t, http.StatusOK, c.Refresh(tokens.Refresh, nil).Status)
	require.Equal(t, int64(1), size(), "codes that were not redeemed leave with the next change")
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
	n, err := b.RevokeAccount(ctx, "biz-1", "acc-1")
	require.NoError(t, err)
	require.Equal(t, 6, n)

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

func TestItRunsOnTheEmbeddedStandIn(t *testing.T) {
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
	require.NoError(t, s.Revoke(ctx, "biz-1", grant.ID))
	_, err = s.Authenticate(ctx, next.Access)
	require.ErrorIs(t, err, oauth.ErrInvalidToken)
}

// While Redis is away nobody is told that a token is bad: clients would throw it away.
func TestRedisAwayIs503AndNeverInvalid(t *testing.T) {
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
		_, err = s.Deny(ctx, waiting)
		require.ErrorIs(t, err, oauth.ErrUnavailable)
		_, err = s.Grants(ctx, "biz-1")
		require.ErrorIs(t, err, oauth.ErrUnavailable)
		require.ErrorIs(t, s.Revoke(ctx, "biz-1", grants[0].ID), oauth.ErrUnavailable)
		_, err = s.RevokeAccount(ctx, "biz-1", "acc-1")
		require.ErrorIs(t, err, oauth.ErrUnavailable)
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
func TestALostRegistrationIsToldApartFromALostConnection(t *testing.T) {
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

func TestARegistrationLivesAsLongAsItIsUsed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := clientOf(t, shared.Options())
	s := newServer(t, func(o *oauth.Options) { o.Redis = client })
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	_, challenge := oauthtest.PKCE()
	for name, use := range map[string]func(){
		"authorizing": func() { c.Request(challenge, nil) },
		"refreshing":  func() { require.Equal(t, http.StatusOK, c.Refresh(tokens.Refresh, nil).Status) },
	} {
		require.NoError(t, client.Expire(ctx, s.ClientKey(c.ID), time.Hour).Err())
		use()
		require.Greater(t, client.TTL(ctx, s.ClientKey(c.ID)).Val(), oauth.RegistrationLifetime-time.Hour, name)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared.Options())
	for _, bad := range []string{
		"", "gateway.example.com", "https://gateway.example.com/", "https://gateway.example.com/x", "https://", "https://:8443",
		"https://GATEWAY.example.com", "HTTPS://gateway.example.com", "https://u@gateway.example.com", "https://gateway.example.com:",
		"https://gateway.example.com:443", "http://gateway.example.com", "http://localhost:80", "ftp://gateway.example.com",
		"https://gateway.example.com?x", "https://gateway.example.com#x", "https:gateway.example.com", "http://10.0.0.1",
	} {
		_, err := oauth.New(oauth.Options{Issuer: bad, Redis: client})
		require.Error(t, err, bad)
	}
	for _, good := range []string{
		"https://gateway.example.com", "https://gateway.example.com:8443", "http://localhost:8080", "http://127.0.0.1:8080",
		"http://[::1]:8080", "http://demo.localhost:8080", "https://[2001:db8::1]",
	} {
		s, err := oauth.New(oauth.Options{Issuer: good, Redis: client})
		require.NoError(t, err, good)
		require.Equal(t, good, s.Issuer())
		require.Equal(t, good+"/mcp", s.Resource())
	}
	for name, o := range map[string]oauth.Options{
		"no Redis": {}, "braces": {Redis: client, Prefix: "a{b}:"}, "time": {Redis: client, Timeout: -1},
		"approve": {Redis: client, ApprovePath: "approve"}, "resource": {Redis: client, ResourcePath: "/"},
		"limit": {Redis: client, Limits: oauth.Limits{Fetches: limit(1, -1)}},
	} {
		o.Issuer = issuer
		_, err := oauth.New(o)
		require.Error(t, err, name)
	}
}
