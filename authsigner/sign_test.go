package authsigner_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// The signatures were computed by printf … | openssl dgst -sha256 -hmac ….
func TestSignAgreesWithOpenSSL(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "8f10dd8e9a3630bf8152fd4fcc00ae259b139ccbe325cc1368a80b398233c5a1",
		authsigner.Sign("correct horse battery staple", 1_760_000_000, http.MethodGet, "/api/v1/invoices?page=2", nil))
	assert.Equal(t, "e76785e0c2cc7bfdadc6a77a0dc66b6133997babbb523d199c93fc62809de107",
		authsigner.Sign("correct horse battery staple", 1_760_000_000, http.MethodPost, "/api/v1/jobs", []byte("{\"a\":\"é\"}\n")))
}

func TestEmptySecretSignsNothing(t *testing.T) {
	t.Parallel()
	assert.Empty(t, authsigner.Sign("", testClock, http.MethodGet, meTarget, nil))
	assert.Empty(t, authsigner.Sign("\x00", testClock, http.MethodGet, meTarget, nil))
}

func TestTargetIsWhatIsSent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ url, base, want string }{
		{"https://api.example.com/api/v1/me", "", "/api/v1/me"},
		{"https://api.example.com/api/v1/me?", "", "/api/v1/me?"},
		{"https://api.example.com/api/v1/me#top", "", "/api/v1/me"},
		{"https://api.example.com/api/v1/me?a=b#top", "", "/api/v1/me?a=b"},
		{"https://user:pass@api.example.com:8443/api/v1/me", "", "/api/v1/me"},
		{"https://api.example.com", "", "/"},
		{"https://api.example.com?a=b", "", "/?a=b"},
		{"https://api.example.com/api/v1/a%2fb?x=%c3%ab+%20;&&", "", "/api/v1/a%2fb?x=%c3%ab+%20;&&"},
		{"https://api.example.com/api/v1/zoë?x=zoë", "", "/api/v1/zo%C3%AB?x=zoë"},
		{"https://api.example.com/api/v1/a b", "", "/api/v1/a%20b"},
		{"https://api.example.com//api/v1/../me", "", "//api/v1/../me"},
		{"/api/v1/me", "", "/api/v1/me"},
		{"https://api.example.com/gw/api/v1/me?a=b", "/gw", "/api/v1/me?a=b"},
		{"https://api.example.com/gw/api/v1/me", "/gw/", "/api/v1/me"},
		{"https://api.example.com/a/b/api/v1/me", "/a/b", "/api/v1/me"},
		{"https://api.example.com/gw/gw/api/v1/me", "/gw", "/gw/api/v1/me"},
		{"https://api.example.com/api/v1/me", "/", "/api/v1/me"},
	} {
		u, err := url.Parse(test.url)
		require.NoError(t, err)
		got, err := authsigner.Target(u, test.base)
		require.NoError(t, err, test.url)
		assert.Equal(t, test.want, got, test.url)
	}
	got, err := authsigner.Target(&url.URL{Scheme: "https", Host: "h", Opaque: "//api.example.com/api/v1/%6de", RawQuery: "a=b"}, "")
	require.NoError(t, err)
	assert.Equal(t, "/api/v1/%6de?a=b", got)
}

func TestTargetRejectsURLs(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		url  url.URL
		base string
	}{
		"not below the base":      {url.URL{Scheme: "https", Host: "h", Path: "/api/v1/me"}, "/gw"},
		"the base and more":       {url.URL{Scheme: "https", Host: "h", Path: "/gwx/api/v1/me"}, "/gw"},
		"the base alone":          {url.URL{Scheme: "https", Host: "h", Path: "/gw"}, "/gw"},
		"opaque without a path":   {url.URL{Scheme: "mailto", Opaque: "a@b"}, ""},
		"opaque host alone":       {url.URL{Scheme: "https", Opaque: "//h"}, ""},
		"a line break in a query": {url.URL{Scheme: "https", Host: "h", Path: "/", RawQuery: "a\nb"}, ""},
	} {
		_, err := authsigner.Target(&test.url, test.base)
		assert.Error(t, err, what)
	}
}
