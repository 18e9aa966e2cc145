package oauth_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// longest is the largest redirect URI.
func longest(prefix string) string { return prefix + strings.Repeat("a", 1024-len(prefix)) }

// What those whom nobody knows can have Redis hold at most, by the sizes that a Redis reports of the largest of each and by
// the limits: docs/connect.md states the sums.
func TestUnauthenticatedRequestsCannotFillRedis(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	web := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		id := "https://" + r.Host + r.URL.RequestURI()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document(id, map[string]any{
			"client_name": strings.Repeat("\U0001f600\"", 40), "client_uri": nil,
			"redirect_uris": []string{longest("https://app.example.org/1"), longest("https://app.example.org/2"), longest("https://app.example.org/3")[:480]},
		}))
	})
	client := clientOf(t, redistest.Start(t).Options())
	s := newServer(t, withDocuments(web), func(o *oauth.Options) {
		o.Redis, o.Audit = client, newLog(t, clientOf(t, shared.Options()), prefixOf(t))
	})
	c := clientWithID(t, s, "https://claude.example/"+strings.Repeat("c", 1024-len("https://claude.example/")))
	id := c.Request(challenge(), url.Values{
		"redirect_uri": {longest("https://app.example.org/1")}, "state": {strings.Repeat("\x00\"", 1024)},
		"scope": {strings.Join(scope.Everything().Names(), " ") + " " + strings.Join(allScopes(), " ")},
	})
	redirects := make([]string, 4)
	for i := range redirects {
		redirects[i] = longest("https://app.example.org/" + string(rune('a'+i)))
	}
	redirects[3] = redirects[3][:400]
	body, err := json.Marshal(map[string]any{"client_name": strings.Repeat("\"\U0001f600", 40), "redirect_uris": redirects})
	require.NoError(t, err)
	registered := register(t, c, string(body))

	size := func(pattern string) int64 {
		keys := client.Keys(ctx, pattern).Val()
		require.Len(t, keys, 1, pattern)
		n, err := client.MemoryUsage(ctx, keys[0], 0).Result()
		require.NoError(t, err)
		return n
	}
	most := func(limit redis_rate.Limit, lifetime time.Duration) int64 {
		return int64(limit.Burst) + int64(limit.Rate)*int64(lifetime)/int64(limit.Period)
	}
	limits := s.Limits()
	var one, all int64
	for name, held := range map[string]struct {
		size     int64
		one, all redis_rate.Limit
		lifetime time.Duration
	}{
		"requests":      {size("*" + id[4:26] + "*"), limits.Authorizations, limits.AllAuthorizations, oauth.RequestLifetime},
		"registrations": {size("*client:" + registered), limits.Registrations, limits.AllRegistrations, oauth.UnusedLifetime},
		"documents":     {size("*document:*"), limits.Fetches, limits.AllFetches, time.Hour},
	} {
		one += held.size * most(held.one, held.lifetime)
		all += held.size * most(held.all, held.lifetime)
		t.Logf("%s: %d bytes, %d of an address (%.1f MB), %d of all (%.1f MB)", name, held.size, most(held.one, held.lifetime),
			float64(held.size*most(held.one, held.lifetime))/1e6, most(held.all, held.lifetime),
			float64(held.size*most(held.all, held.lifetime))/1e6)
	}
	require.Less(t, one, int64(10e6), "of one address")
	require.Less(t, all, int64(260e6), "of all together")
}

// allScopes are the scopes of all areas.
func allScopes() []string {
	var all []string
	for _, a := range scope.Areas() {
		for _, verb := range scope.Verbs() {
			if scope.Everything().Includes(a, verb) {
				all = append(all, a.Scope(verb))
			}
		}
	}
	return all
}

func TestOversizedInputIsRejected(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *oauth.Options) { o.Limits.Registrations = limit(1000, time.Minute) })
	c := oauthtest.Register(t, s)
	list := func(n, length int) string {
		uris := make([]string, n)
		for i := range uris {
			uris[i] = longest("https://app.example.org/" + string(rune('a'+i)))[:length]
		}
		body, err := json.Marshal(map[string]any{"redirect_uris": uris})
		require.NoError(t, err)
		return string(body)
	}
	require.Equal(t, http.StatusCreated, postRegistration(c, list(16, 200)).Code)
	require.Equal(t, http.StatusCreated, postRegistration(c, list(3, 1024)).Code)
	for body, code := range map[string]string{
		list(17, 30):   "invalid_redirect_uri",
		list(4, 1024):  "invalid_client_metadata",
		list(16, 1000): "invalid_client_metadata",
	} {
		w := postRegistration(c, body)
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), `"error":"`+code+`"`)
	}
	require.NotEmpty(t, c.Request(challenge(), url.Values{"state": {strings.Repeat("a", 2048)}}))
	w := c.Authorize(challenge(), url.Values{"state": {strings.Repeat("a", 2049)}})
	require.Contains(t, w.Header().Get("Location"), "error=invalid_request")

	// A state comes back byte for byte, whatever it is.
	for _, state := range []string{"\x00\xff\"\\", "ü€😀", " "} {
		u, err := url.Parse(c.Approve(c.Request(challenge(), url.Values{"state": {state}}), oauthtest.Owner(), scopes(t, "mcp:read")))
		require.NoError(t, err)
		require.Equal(t, state, u.Query().Get("state"))
	}
}

func TestGlobalLimitsOfAuthorizationsAndFetches(t *testing.T) {
	t.Parallel()
	web := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document("https://"+r.Host+r.URL.Path, nil))
	})
	address := ""
	s := newServer(t, withDocuments(web), func(o *oauth.Options) {
		o.Limits.AllAuthorizations, o.Limits.AllFetches = limit(3, time.Hour), limit(2, time.Hour)
		o.ClientIPKey = func(*http.Request) string { return address }
	})
	ask := func(id, from string, change url.Values) int {
		address = from
		return clientWithID(t, s, id).Authorize(challenge(), change).Code
	}
	require.Equal(t, http.StatusSeeOther, ask("https://claude.example/1", "a", nil))
	for range 5 {
		require.Equal(t, http.StatusSeeOther, ask("https://claude.example/1", "a", url.Values{"scope": {"x"}}), "an error by redirect")
	}
	require.Equal(t, http.StatusSeeOther, ask("https://claude.example/2", "b", nil), "what was not in order has not counted")
	require.Equal(t, http.StatusTooManyRequests, ask("https://claude.example/3", "c", nil), "a third document")
	require.Equal(t, http.StatusSeeOther, ask("https://claude.example/1", "d", nil))
	require.Equal(t, http.StatusTooManyRequests, ask("https://claude.example/1", "e", nil), "a fourth request")
	require.Equal(t, int32(2), web.fetched.Load())
}
