package oauth_test

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// longest returns a redirect URI of the maximum length.
func longest(prefix string) string { return prefix + strings.Repeat("a", 1024-len(prefix)) }

// metadata returns a registration with redirect URIs of the given lengths.
func metadata(t *testing.T, name string, lengths ...int) string {
	t.Helper()
	var uris []string
	for i, length := range lengths {
		uris = append(uris, longest("https://app.example.org/" + string(rune('a'+i)))[:length])
	}
	body, err := json.Marshal(map[string]any{"client_name": name, "redirect_uris": uris})
	require.NoError(t, err)
	return string(body)
}

// The maximum sizes in Redis and the limits add up to the sums in docs/connect.md.
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
		"scope": {strings.Join(connecttest.Areas(t).Everything().Names(), " ") + " " + strings.Join(allScopes(t), " ")},
	})
	registered := register(t, s, metadata(t, strings.Repeat("\"\U0001f600", 40), 1024, 1024, 1024, 400)).ID

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
	limits := new(oauth.Options).Limits()
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
		if name == "registrations" {
			one += held.size * most(held.one, held.lifetime) // by pages
			all += held.size * most(limits.PageRegistrations, held.lifetime)
		}
		t.Logf("%s: %d bytes, %d of an address, %d of all", name, held.size, most(held.one, held.lifetime), most(held.all, held.lifetime))
	}
	assert.Less(t, one, int64(13e6), "of one address")
	assert.Less(t, all, int64(260e6), "of all together")
}

// A /48 is 65,536 client IPs, and often one customer's.
func TestNetworksAreRateLimited(t *testing.T) {
	t.Parallel()
	var address netip.Addr
	s := newServer(t, func(o *oauth.Options) {
		unlimited(o)
		o.Limits().Authorizations, o.Limits().Registrations = limit(2, time.Hour), limit(3, time.Hour)
		o.ClientAddr = func(*http.Request) netip.Addr { return address }
	})
	c := oauthtest.Register(t, s)
	for _, test := range []struct {
		ask  func() int
		most int
	}{
		{func() int { return c.Authorize(challenge(), nil).Code }, 4 * 2},
		{func() int { return postRegistration(c, `{"redirect_uris":["https://a.example/"]}`).Code }, 4 * 3},
	} {
		for i := range test.most + 8 {
			address = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 1, 0, byte(i)})
			assert.Equal(t, i >= test.most, test.ask() == http.StatusTooManyRequests, "%s is the %dth", address, i+1)
		}
		address = netip.MustParseAddr("2001:db8:2::1")
		assert.NotEqual(t, http.StatusTooManyRequests, test.ask(), "another network")
		for i := range byte(40) {
			address = netip.AddrFrom4([4]byte{192, 0, 2, i})
			require.NotEqual(t, http.StatusTooManyRequests, test.ask(), "IPv4 addresses have no network")
		}
	}
}

// A replica that is promoted may have an earlier clock.
func TestClockSetBackDeniesForOneIntervalOnly(t *testing.T) {
	t.Parallel()
	c, address := newClock(t), netip.MustParseAddr("192.0.2.1")
	s := newServer(t, withClock(c), func(o *oauth.Options) {
		unlimited(o)
		o.Limits().AllAuthorizations = limit(3, 3*time.Hour)
		o.ClientAddr = func(*http.Request) netip.Addr { return address }
	})
	client := oauthtest.Register(t, s)
	authorize := func() (int, string) {
		w := client.Authorize(challenge(), nil)
		return w.Code, w.Header().Get("Retry-After")
	}
	code, _ := authorize()
	require.Equal(t, http.StatusSeeOther, code)
	c.Add(-24 * time.Hour)
	address = address.Next() // or the limit of the client IP denies the first request
	code, retry := authorize()
	require.Equal(t, http.StatusTooManyRequests, code)
	require.Equal(t, "3600", retry)
	c.Add(time.Hour)
	code, _ = authorize()
	require.Equal(t, http.StatusSeeOther, code)
	code, _ = authorize()
	require.Equal(t, http.StatusTooManyRequests, code, "nobody gains requests")
}

// A page could use up the limits with the client IPs of its visitors.
func TestPagesCannotUseUpTheLimits(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *oauth.Options) {
		unlimited(o)
		o.Limits().Authorizations, o.Limits().AllAuthorizations = limit(2, time.Hour), limit(2, time.Hour)
		o.Limits().AllRegistrations, o.Limits().PageRegistrations = limit(3, time.Hour), limit(2, time.Hour)
		o.Limits().Registrations = limit(4, time.Hour)
	})
	c := oauthtest.Register(t, s)
	for _, headers := range [][]string{
		{"Sec-Fetch-Dest: image"},
		{"Sec-Fetch-Dest: empty"},
		{"Sec-Fetch-Dest: iframe"},
		{"Sec-Fetch-Dest: script"},
		{"Sec-Fetch-Dest: object"},
		// Speculation rules load it like a page.
		{"Sec-Fetch-Dest: document", "Sec-Fetch-Mode: navigate", "Sec-Purpose: prefetch"},
		{"Sec-Fetch-Dest: document", "Sec-Fetch-Mode: navigate", "Sec-Purpose: prefetch;prerender"},
		{"Sec-Fetch-Dest: document", "Purpose: prefetch"},
	} {
		w := send(s.Handler(), http.MethodGet, c.AuthorizeURL(challenge(), nil), "", headers...)
		assert.Equal(t, "400 invalid_request", oauthError(t, w), headers)
	}
	for _, header := range []string{"Sec-Fetch-Dest: document", "Accept: */*"} {
		assert.Equal(t, http.StatusSeeOther, send(s.Handler(), http.MethodGet, c.AuthorizeURL(challenge(), nil), "", header).Code)
	}
	const body = `{"redirect_uris":["https://a.example/"]}`
	for i := range 4 {
		w := send(s.Handler(), http.MethodPost, "/oauth/register", body, "Content-Type: application/json", "Origin: https://evil.example")
		assert.Equal(t, i >= 2, w.Code == http.StatusTooManyRequests, i)
	}
	for i := range 3 {
		assert.Equal(t, i >= 2, postRegistration(c, body).Code == http.StatusTooManyRequests, i)
	}
}

// allScopes returns the scopes of all areas.
func allScopes(t testing.TB) []string {
	t.Helper()
	var all []string
	for _, a := range connecttest.Areas(t).List() {
		for _, verb := range scope.Verbs() {
			if connecttest.Areas(t).Everything().Includes(a, verb) {
				all = append(all, a.Scope(verb))
			}
		}
	}
	return all
}

func TestOversizedInputIsRejected(t *testing.T) {
	t.Parallel()
	s := newServer(t, unlimited)
	c := oauthtest.Register(t, s)
	for _, test := range []struct {
		number, length int
		want           string
	}{
		{16, 200, "201 "},
		{3, 1024, "201 "},
		{17, 30, "400 invalid_redirect_uri"},
		{4, 1024, "400 invalid_client_metadata"},
		{16, 1000, "400 invalid_client_metadata"},
	} {
		w := postRegistration(c, metadata(t, "", slices.Repeat([]int{test.length}, test.number)...))
		assert.Equal(t, test.want, oauthError(t, w), test)
	}
	require.NotEmpty(t, c.Request(challenge(), url.Values{"state": {strings.Repeat("a", 2048)}}))
	w := c.Authorize(challenge(), url.Values{"state": {strings.Repeat("a", 2049)}})
	require.Contains(t, w.Header().Get("Location"), "error=invalid_request")

	// A state is returned byte for byte.
	for _, state := range []string{"\x00\xff\"\\", "ü€😀", " "} {
		redirect := c.Approve(c.Request(challenge(), url.Values{"state": {state}}), oauthtest.Owner(), scopes(t, "mcp:read"))
		assert.Equal(t, state, parse(t, redirect).Query().Get("state"))
	}
}

func TestAuthorizationsAndFetchesAreRateLimited(t *testing.T) {
	t.Parallel()
	web := newSite(t, serveDocument)
	var address netip.Addr
	s := newServer(t, withDocuments(web), func(o *oauth.Options) {
		o.Limits().AllAuthorizations, o.Limits().AllFetches = limit(3, time.Hour), limit(2, time.Hour)
		o.Limits().Authorizations = limit(7, time.Hour)
		o.ClientAddr = func(*http.Request) netip.Addr { return address }
	})
	ask := func(id, from string, change url.Values) int {
		address = netip.MustParseAddr("2001:db8:" + from + "::")
		return clientWithID(t, s, id).Authorize(challenge(), change).Code
	}
	require.Equal(t, http.StatusSeeOther, ask("https://claude.example/1", "a", nil))
	for range 5 {
		assert.Equal(t, http.StatusSeeOther, ask("https://claude.example/1", "a", url.Values{"scope": {"x"}}), "an error by redirect")
	}
	require.Equal(t, http.StatusSeeOther, ask("https://claude.example/2", "b", nil), "invalid requests have not counted")
	require.Equal(t, http.StatusTooManyRequests, ask("https://claude.example/3", "c", nil), "a third document")
	require.Equal(t, http.StatusSeeOther, ask("https://claude.example/1", "d", nil))
	require.Equal(t, http.StatusTooManyRequests, ask("https://claude.example/1", "e", nil), "a fourth request")
	require.Equal(t, int32(2), web.fetched.Load())

	require.Equal(t, http.StatusSeeOther, ask("https://claude.example/1", "a", url.Values{"scope": {"x"}}), "the seventh of an address")
	address = netip.MustParseAddr("2001:db8:a::")
	rejected := clientWithID(t, s, "https://claude.example/1").Authorize(challenge(), url.Values{"scope": {"x"}})
	assert.Equal(t, "429 too_many_requests", oauthError(t, rejected))
	require.NotEmpty(t, rejected.Header().Get("Retry-After"))
	assert.Empty(t, rejected.Header().Get("Location"))
}
