package oauth_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// dump returns all data of a Redis.
func dump(t testing.TB, client redis.UniversalClient) map[string]string {
	t.Helper()
	ctx := context.Background()
	all := map[string]string{}
	for _, key := range client.Keys(ctx, "*").Val() {
		switch kind := client.Type(ctx, key).Val(); kind {
		case "string":
			all[key] = client.Get(ctx, key).Val()
		case "hash":
			all[key] = fmt.Sprint(client.HGetAll(ctx, key).Val())
		case "set":
			all[key] = fmt.Sprint(client.SMembers(ctx, key).Val())
		case "list":
			all[key] = fmt.Sprint(client.LRange(ctx, key, 0, -1).Val())
		default:
			require.Fail(t, "unexpected type", "key %s is a %s", key, kind)
		}
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
		slow := limit(12, time.Hour) // so that the counters do not expire before they are checked
		l := o.Limits()
		l.Registrations, l.AllRegistrations, l.Authorizations, l.AllAuthorizations = slow, slow, slow, slow
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
		require.Positive(t, ttl, "%s does not expire", key)
		bound, length := time.Duration(0), 0
		for part, lifetime := range longest {
			if strings.Contains(key, part) && len(part) > length {
				bound, length = lifetime, len(part)
			}
		}
		require.LessOrEqual(t, ttl, bound, key)
		require.True(t, strings.HasPrefix(strings.TrimPrefix(key, "rate:"), audit.DefaultPrefix), key)
		for _, token := range []string{waiting, id, code, unredeemed, tokens.Access, tokens.Refresh, next.Access, next.Refresh} {
			secret := token[strings.Index(token, ".")+1:]
			raw, err := base64.RawURLEncoding.DecodeString(secret)
			require.NoError(t, err)
			assert.NotContains(t, value, secret)
			assert.NotContains(t, value, string(raw))
			assert.NotContains(t, value, hex.EncodeToString(raw))
			assert.NotContains(t, value, secret[len(secret)-40:], "nor the part that only this refresh token has")
		}
		assert.NotContains(t, value, verifier)
	}

	ended := authenticate(t, s, next.Access).ID
	require.NoError(t, s.Revoke(ctx, ended, oauthtest.Owner()))
	all = dump(t, client)
	assert.NotContains(t, all, s.GrantKey(ended))
	assert.NotContains(t, all[s.BusinessKey("biz-1")], ended)
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
	assert.Equal(t, int64(1), size(), "codes that were not redeemed are not in it")
	require.Len(t, grants(t, s), 1)
	require.NoError(t, client.Del(ctx, s.GrantKey(grants(t, s)[0].ID)).Err()) // as if it had expired or been lost
	assert.Empty(t, grants(t, s))
	assert.Zero(t, size(), "a lost connection is removed when the list is read")
}

// In a Cluster, the index is on another node than the connection, and a failover may lose one of them.
func TestUseRestoresALostIndex(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	clock := newClock(t)
	client := clientOf(t, clock.server.Options())
	s := newServer(t, func(o *oauth.Options) { o.Redis = client })
	_, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	for range 2 {
		require.NoError(t, client.Del(ctx, s.BusinessKey("biz-1")).Err())
		require.Empty(t, grants(t, s))
		authenticate(t, s, tokens.Access)
		require.Len(t, grants(t, s), 1)
		require.Positive(t, client.PTTL(ctx, s.BusinessKey("biz-1")).Val())
		clock.Add(time.Minute)
	}
}

// That the scripts work on a Cluster is tested by TestRandomOperationsAgreeWithTheModel.
func TestNoRequestFailsWhileASlotMigrates(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	// a slow node must not be considered failed
	cluster := redistest.StartCluster(t)
	s := newServer(t, func(o *oauth.Options) { o.Redis = clientOf(t, cluster.Options()) })
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	slot := int(cluster.Client(t).ClusterKeySlot(ctx, s.GrantKey(grantID(tokens))).Val())
	moved := make(chan error, 1)
	go func() { moved <- cluster.MoveSlot(ctx, slot, (cluster.Owner(slot)+1)%3) }()
	for range 20 {
		authenticate(t, s, tokens.Access)
		tokens = c.Refresh(tokens.Refresh, nil)
		assert.Equal(t, http.StatusOK, tokens.Status, tokens.ErrorDescription)
	}
	require.NoError(t, <-moved)
	authenticate(t, s, tokens.Access)
	require.NoError(t, s.Revoke(ctx, grantID(tokens), oauthtest.Owner()))
}

// An interrupted reshard leaves a slot open. Redis refuses scripts with several keys there unless all of them exist on one node.
func TestConnectionCanBeEndedWhileItsSlotMigrates(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	for name, migrated := range map[string]bool{"not yet": false, "already": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, func(o *oauth.Options) { o.Redis = clientOf(t, cluster.Options()) })
			c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
			key := s.GrantKey(grantID(tokens))
			slot := int(cluster.Client(t).ClusterKeySlot(t.Context(), key).Val())
			from := cluster.Owner(slot)
			to := (from + 1) % 3
			require.NoError(t, cluster.Client(t).Del(t.Context(), key+":attempts").Err()) // as if they had expired
			require.NoError(t, cluster.OpenSlot(t.Context(), slot, to))
			if migrated {
				host, port, err := net.SplitHostPort(cluster.Nodes[to].Addr)
				require.NoError(t, err)
				require.NoError(t, cluster.Nodes[from].Client(t).Migrate(t.Context(), host, port, key, 0, patience).Err())
			}
			authenticate(t, s, tokens.Access)
			require.Equal(t, http.StatusServiceUnavailable, c.Refresh(tokens.Refresh, nil).Status)
			require.NoError(t, s.Revoke(t.Context(), grantID(tokens), oauthtest.Owner()))
			require.False(t, valid(t, s, tokens.Access))
			require.ErrorIs(t, s.Revoke(t.Context(), grantID(tokens), oauthtest.Owner()), oauth.ErrNoGrant)
			require.Empty(t, grants(t, s))
			require.NoError(t, cluster.MoveSlot(t.Context(), slot, to))
			require.Equal(t, "invalid_grant", c.Refresh(tokens.Refresh, nil).Error)
		})
	}
}

func TestWorksOnMiniredis(t *testing.T) {
	t.Parallel()
	embedded := miniredis.RunT(t)
	s := newServer(t, func(o *oauth.Options) {
		o.Redis = clientOf(t, &redis.UniversalOptions{Addrs: []string{embedded.Addr()}})
	})
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "mcp:use")
	next := c.Refresh(tokens.Refresh, nil)
	require.Equal(t, http.StatusOK, next.Status)
	require.Equal(t, next.Access, c.Refresh(tokens.Refresh, nil).Access)
	grant := authenticate(t, s, next.Access)
	assert.InDelta(t, oauth.RefreshIdle, embedded.TTL(s.GrantKey(grant.ID)), float64(time.Minute))
	require.Len(t, grants(t, s), 1)
	require.NoError(t, s.Revoke(t.Context(), grant.ID, oauthtest.Owner()))
	assert.False(t, valid(t, s, next.Access))
}

// A client would discard a token that is reported as invalid.
func TestRedisOutageIs503AndNeverInvalidToken(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redistest.Start(t, redistest.WithConfig("appendonly", "yes"), redistest.WithConfig("appendfsync", "always"))
	o := server.Options()
	o.MaxRetries, o.DialerRetries = -1, 1 // without Redis, retries are useless
	client := clientOf(t, o)
	s := newServer(t, func(o *oauth.Options) { o.Redis = client })
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	waiting := c.Request(challenge, nil)
	code := c.Code(oauthtest.Owner(), challenge, nil)
	tokens := c.Connect(oauthtest.Owner(), "")
	id := authenticate(t, s, tokens.Access).ID
	refresh := url.Values{"grant_type": {"refresh_token"}, "client_id": {c.ID}, "refresh_token": {tokens.Refresh}}

	require.NoError(t, server.Kill())
	for name, w := range map[string]*httptest.ResponseRecorder{
		"authorize": c.Authorize(challenge, nil),
		"code": c.Post("/oauth/token", url.Values{
			"grant_type": {"authorization_code"}, "client_id": {c.ID}, "code": {code}, "code_verifier": {verifier},
		}),
		"refresh":        c.Post("/oauth/token", refresh),
		"revoke access":  c.Post("/oauth/revoke", url.Values{"token": {tokens.Access}}),
		"revoke refresh": c.Post("/oauth/revoke", url.Values{"token": {tokens.Refresh}}),
		"register":       postRegistration(c, `{"redirect_uris":["https://app.example.org/cb"]}`),
		"call":           call(s, tokens.Access),
	} {
		assert.Equal(t, "503 temporarily_unavailable", oauthError(t, w), name)
		assert.NotEmpty(t, w.Header().Get("Retry-After"), name)
		assert.Empty(t, w.Header().Get("WWW-Authenticate"), name)
		assert.Empty(t, w.Header().Get("Location"), name)
		assert.NotContains(t, w.Body.String(), server.Addr, "%s names an internal address", name)
	}
	for name, do := range map[string]func() error{
		"pending":      func() error { _, err := s.Pending(ctx, waiting); return err },
		"deny":         func() error { _, err := s.Deny(ctx, waiting, oauthtest.Owner()); return err },
		"grants":       func() error { _, err := s.Grants(ctx, "biz-1"); return err },
		"revoke":       func() error { return s.Revoke(ctx, id, oauthtest.Owner()) },
		"authenticate": func() error { _, err := s.Authenticate(ctx, tokens.Access); return err },
	} {
		assert.ErrorIs(t, do(), oauth.ErrUnavailable, name)
	}
	require.NoError(t, server.Restart())

	require.Eventually(t, func() bool {
		_, err := s.Authenticate(ctx, tokens.Access)
		return err == nil
	}, patience, 20*time.Millisecond)
	assert.Equal(t, http.StatusOK, c.Refresh(tokens.Refresh, nil).Status)
	assert.Equal(t, http.StatusOK, c.Exchange(code, verifier, nil).Status)

	// A Redis that rejects writes, because it is full or a replica, is unavailable as well.
	require.NoError(t, server.Client(t).ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	assert.Equal(t, http.StatusServiceUnavailable, c.Post("/oauth/token", refresh).Code)
}

// After a failover, a Redis that was cut off may not know of revocations. A client would discard a token that is reported as invalid.
func TestRedisThatCannotBeWrittenToAcceptsNoToken(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]any{
		"a master without the replicas that it requires": {"CONFIG", "SET", "min-replicas-to-write", "1"},
		"a replica without its master":                   {"REPLICAOF", "127.0.0.1", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := newServer(t, func(o *oauth.Options) { o.Redis = clientOf(t, server.Options()) })
			_, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
			authenticate(t, s, tokens.Access) // within a minute, the next use is not recorded
			require.NoError(t, server.Client(t).Do(t.Context(), command...).Err())
			for _, access := range []string{tokens.Access, tokens.Access[:len(tokens.Access)-4] + "AAAA"} {
				assert.Equal(t, http.StatusServiceUnavailable, call(s, access).Code)
			}
		})
	}
}

// A client whose registration was lost with Redis has to register again before it can ask for an approval.
func TestLostRegistrationIsInvalidClient(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared.Options())
	s := newServer(t, func(o *oauth.Options) { o.Redis = client })
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	id := authenticate(t, s, tokens.Access).ID

	require.NoError(t, client.Del(t.Context(), s.ClientKey(c.ID)).Err())
	tokens = c.Refresh(tokens.Refresh, nil)
	require.Equal(t, http.StatusOK, tokens.Status, "a connection does not need its client's registration")
	require.NoError(t, client.Del(t.Context(), s.GrantKey(id)).Err())
	lost := c.Refresh(tokens.Refresh, nil)
	require.Equal(t, http.StatusBadRequest, lost.Status)
	require.Equal(t, "invalid_client", lost.Error)
	verifier, challenge := oauthtest.PKCE()
	require.Equal(t, "invalid_client", c.Exchange("gac_x", verifier, nil).Error)
	w := c.Authorize(challenge, nil)
	assert.Equal(t, http.StatusBadRequest, w.Code)
	assert.Empty(t, w.Header().Get("Location"))
	assert.Equal(t, "invalid_grant", oauthtest.Register(t, s).Refresh(tokens.Refresh, nil).Error)
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
		assert.Equal(t, "invalid_grant", attempt().Error, name)
	}
	require.LessOrEqual(t, left(), time.Hour, "neither an authorization request nor a failed token request prolongs it")

	tokens := c.Exchange(code, verifier, nil)
	require.Equal(t, http.StatusOK, tokens.Status)
	require.Greater(t, left(), oauth.RegistrationLifetime-time.Hour)
	short()
	assert.Equal(t, http.StatusOK, c.Refresh(tokens.Refresh, nil).Status)
	assert.Greater(t, left(), oauth.RegistrationLifetime-time.Hour)
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	client := clientOf(t, shared.Options())
	complete := oauth.Options{
		Issuer: issuer, Redis: client, Accounts: newAccounts(), Areas: connecttest.Areas(t), Audit: newLog(t, client, prefixOf(t)),
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
		assert.ErrorContains(t, err, "issuer", bad)
	}
	for _, good := range []string{
		"https://gateway.example.com", "https://gateway.example.com:8443", "http://localhost:8080", "http://127.0.0.1:8080",
		"http://[::1]:8080", "http://demo.localhost:8080", "https://[2001:db8::1]",
	} {
		o := complete
		o.Issuer = good
		s, err := oauth.New(o)
		require.NoError(t, err, good)
		assert.Equal(t, good, s.Issuer())
	}
	for name, change := range map[string]func(*oauth.Options){
		"no Redis":     func(o *oauth.Options) { o.Redis = nil },
		"no accounts":  func(o *oauth.Options) { o.Accounts = nil },
		"no areas":     func(o *oauth.Options) { o.Areas = scope.Areas{} },
		"no audit log": func(o *oauth.Options) { o.Audit = nil },
		"braces":       func(o *oauth.Options) { o.Prefix = "a{b}:" },
		"scheme":       func(o *oauth.Options) { o.ClientSchemes = []string{"cursor", "javascript"} },
	} {
		o := complete
		change(&o)
		_, err := oauth.New(o)
		require.Error(t, err, name)
	}
}

// During an upgrade and after a rollback, Redis has what a later version stored, perhaps in a format of its own.
func TestLaterFormatsAreNeitherUsedNorChanged(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	client := clientOf(t, shared.Options())
	s := newServer(t, func(o *oauth.Options) { o.Redis = client })
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	_, challenge := oauthtest.PKCE()
	request := c.Request(challenge, nil)
	later := func(data string) string {
		require.Contains(t, data, `"format":1`)
		return strings.Replace(data, `"format":1`, `"format":2`, 1)
	}

	requestID, _, _ := strings.Cut(request[strings.Index(request, "_")+1:], ".")
	require.NoError(t, client.HSet(ctx, s.RequestKey(requestID), "data", later(client.HGet(ctx, s.RequestKey(requestID), "data").Val())).Err())
	_, err := s.Pending(ctx, request)
	require.ErrorIs(t, err, oauth.ErrUnavailable)

	id := grantID(tokens)
	require.Equal(t, "1", client.HGet(ctx, s.GrantKey(id), "format").Val())
	require.NoError(t, client.HSet(ctx, s.GrantKey(id), "format", "2").Err())
	stored := client.HGetAll(ctx, s.GrantKey(id)).Val()
	_, err = s.Authenticate(ctx, tokens.Access)
	require.ErrorIs(t, err, oauth.ErrUnavailable)
	require.Equal(t, http.StatusServiceUnavailable, c.Refresh(tokens.Refresh, nil).Status)
	require.Equal(t, http.StatusServiceUnavailable, c.Revoke(tokens.Access))
	require.ErrorIs(t, s.Revoke(ctx, id, oauthtest.Owner()), oauth.ErrUnavailable)
	require.ErrorIs(t, s.Change(ctx, id, "", oauthtest.Owner(), scopes(t, "contacts:read"), false), oauth.ErrUnavailable)
	require.Empty(t, grants(t, s))
	require.Equal(t, stored, client.HGetAll(ctx, s.GrantKey(id)).Val())
	require.NoError(t, client.HSet(ctx, s.GrantKey(id), "format", "0").Err())
	_, err = s.Authenticate(ctx, tokens.Access)
	require.NoError(t, err, "an earlier format")
	require.Len(t, grants(t, s), 1, "it is still in the index")

	registration := client.Get(ctx, s.ClientKey(c.ID)).Val()
	require.NoError(t, client.Set(ctx, s.ClientKey(c.ID), later(registration), time.Hour).Err())
	require.Equal(t, http.StatusServiceUnavailable, send(s.Handler(), http.MethodGet, c.AuthorizeURL(challenge, nil), "").Code)
	require.NoError(t, client.Set(ctx, s.ClientKey(c.ID), registration, time.Hour).Err())
	c.Request(challenge, nil)
	require.Equal(t, http.StatusOK, c.Refresh(tokens.Refresh, nil).Status)
}
