package oauth_test

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
)

func FuzzMatchRedirect(f *testing.F) {
	registered := registeredRedirects()
	// Each is paired with only one of the others, so that a short run gets beyond the seeds.
	for i, requested := range requestedRedirects(f) {
		f.Add(registered[i%len(registered)], requested)
	}
	f.Add("unknown://app.example/cb", "unknown://app.example/cb") // a scheme that is not allowed
	f.Fuzz(requireMatchingIsExact)
}

func TestMatchingRedirectURILeadsToTheRegisteredHost(t *testing.T) {
	t.Parallel()
	for _, registered := range registeredRedirects() {
		for _, requested := range requestedRedirects(t) {
			requireMatchingIsExact(t, registered, requested)
		}
	}
}

// registeredRedirects returns a redirect URI of each form that may be registered.
func registeredRedirects() []string {
	return []string{
		"https://app.example.org/cb", "http://127.0.0.1/callback", "http://localhost:3000/cb?x=1", "http://[::1]/cb",
		"cursor://anysphere.cursor/cb", "com.example.app:/callback",
	}
}

// requestedRedirects returns redirect URIs that a client may send.
func requestedRedirects(t testing.TB) []string {
	t.Helper()
	all, tricks := registeredRedirects(), redirectURIs(t).Tricks
	for _, kind := range slices.Sorted(maps.Keys(tricks)) {
		all = append(all, tricks[kind]...)
	}
	return all
}

// requireMatchingIsExact requires that a requested URI that matches has the scheme, host, path and query of the registered one
// and, except on loopback, its port, also with the response's parameters.
func requireMatchingIsExact(t *testing.T, registered, requested string) {
	t.Helper()
	if _, _, err := oauth.CheckRedirectURI(registered); err != nil {
		return // it cannot be registered
	}
	display, local, err := oauth.CheckRedirectURI(requested)
	if err != nil {
		require.False(t, oauth.MatchRedirect([]string{registered}, requested))
		return
	}
	if !oauth.MatchRedirect([]string{registered}, requested) {
		return
	}
	want, err := url.Parse(registered)
	require.NoError(t, err)
	got, err := url.Parse(requested)
	require.NoError(t, err)
	location, err := url.Parse(oauth.WithParameters(requested, url.Values{"code": {"a&b#c"}, "iss": {issuer}}))
	require.NoError(t, err)
	for _, u := range []*url.URL{got, location} {
		require.Equal(t, want.Scheme, u.Scheme)
		require.Equal(t, want.Hostname(), u.Hostname())
		require.Equal(t, want.EscapedPath(), u.EscapedPath())
		require.Nil(t, u.User)
		require.Empty(t, u.Fragment)
		if want.Scheme != "http" {
			require.Equal(t, want.Host, u.Host)
		}
	}
	require.Equal(t, want.RawQuery, got.RawQuery)
	require.True(t, strings.HasPrefix(location.RawQuery, want.RawQuery))
	if values, err := url.ParseQuery(location.RawQuery); err == nil && !want.Query().Has("code") {
		require.Equal(t, "a&b#c", values.Get("code"))
	}
	if want.Scheme == "http" {
		require.True(t, local)
		require.Contains(t, []string{"localhost", "127.0.0.1", "::1"}, got.Hostname())
	} else {
		require.Equal(t, registered, requested)
	}
	require.Equal(t, want.Scheme == "https", !local)
	require.NotEmpty(t, display)
	require.NotContains(t, requested, "\n")
}

func FuzzDocumentURL(f *testing.F) {
	for _, id := range []string{
		documentID, "https://claude.example:8443/a/b?c=d", "https://claude.example/%2e%2e/x", "https://a@b/c", "https://a\\@b/c",
		"https://[::1]/c", "https://a/../c", "https://a?/c",
	} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if oauth.ValidDocumentURL(id) != nil {
			return
		}
		u, err := url.Parse(id)
		require.NoError(t, err)
		require.Equal(t, "https", u.Scheme)
		require.Nil(t, u.User)
		require.Empty(t, u.Fragment)
		require.True(t, strings.HasPrefix(id, "https://"+u.Host+"/"))
		require.NotContains(t, u.Path, "/../")
	})
}

func FuzzCleanName(f *testing.F) {
	for _, name := range []string{"Claude", "a\u202eb", "\xff", strings.Repeat("é", 100), "a \u00a0 b", "\u3164"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		clean := oauth.CleanName(name)
		require.LessOrEqual(t, len([]rune(clean)), 81)
		require.Equal(t, strings.TrimSpace(clean), clean)
		require.False(t, strings.ContainsFunc(clean, func(r rune) bool {
			return r < ' ' || r == 0x7f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200b
		}))
		require.Equal(t, strings.TrimSuffix(clean, "…"), strings.TrimSuffix(oauth.CleanName(clean), "…"), "cleaning twice changes nothing")
	})
}
