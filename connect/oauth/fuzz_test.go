package oauth_test

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
)

// FuzzClientURLs reads URLs of clients as redirect URIs, a registered and a requested one, and as a client_id. A requested URI that matches has the scheme, host, path and query of the registered one and, except on loopback, its port,
// also with the response's parameters.
func FuzzClientURLs(f *testing.F) {
	registered := []string{
		"https://app.example.org/cb", "http://127.0.0.1/callback", "http://localhost:3000/cb?x=1", "http://[::1]/cb",
		"cursor://anysphere.cursor/cb", "com.example.app:/callback",
	}
	requested, tricks := registered, redirectURIs(f).Tricks
	for _, kind := range slices.Sorted(maps.Keys(tricks)) {
		requested = append(requested, tricks[kind]...)
	}
	// Each is paired with only one of the others, so that a short run gets beyond the seeds.
	for i, uri := range requested {
		f.Add(registered[i%len(registered)], uri)
	}
	f.Add("https://localhost/cb", "https://localhost/cb")
	f.Add("unknown://app.example/cb", "unknown://app.example/cb") // a scheme that is not allowed
	for _, id := range []string{
		documentID, "https://claude.example:8443/a/b?c=d", "https://claude.example/%2e%2e/x", "https://a@b/c", "https://a\\@b/c",
		"https://[::1]/c", "https://a/../c", "https://a?/c",
	} {
		f.Add(registered[0], id)
	}
	f.Fuzz(func(t *testing.T, registered, requested string) {
		fuzzDocumentURL(t, requested)
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
		want, got := parse(t, registered), parse(t, requested)
		location := parse(t, oauth.WithParameters(requested, url.Values{"code": {"a&b#c"}, "iss": {issuer}}))
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
		host := strings.ToLower(strings.TrimSuffix(got.Hostname(), "."))
		ip, _ := netip.ParseAddr(host)
		loopback := host == "localhost" || strings.HasSuffix(host, ".localhost") || ip.IsLoopback()
		if want.Scheme == "http" {
			require.True(t, local)
			require.Contains(t, []string{"localhost", "127.0.0.1", "::1"}, got.Hostname())
		} else {
			require.Equal(t, registered, requested)
		}
		require.Equal(t, want.Scheme != "https" || loopback, local)
		require.NotEmpty(t, display)
		require.NotContains(t, requested, "\n")
	})
}

// fuzzDocumentURL requires that a client_id leads to no host other than the one parsed from it.
func fuzzDocumentURL(t *testing.T, id string) {
	t.Helper()
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
}
