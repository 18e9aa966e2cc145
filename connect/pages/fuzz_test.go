package pages_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/pages"
)

func FuzzSignInRedirectsOnlyToOwnPages(f *testing.F) {
	for _, s := range []string{
		"", "/settings/api", "/oauth/approve?request=grq_1", "//evil.example", `/\evil.example`, "https://evil.example/settings/api",
		"/settings/api?x#y", "/oauth/approve?request=a&request=b", "%2f", "/settings/api\r\nX: y",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := pages.OwnPage(s)
		u, err := url.Parse("https://api.example.com" + got)
		require.NoError(t, err)
		require.Equal(t, "api.example.com", u.Host)
		require.Contains(t, []string{pages.ConnectionsPath, pages.KeysPath, pages.ActivityPath, pages.ApprovePath}, u.Path)
		require.True(t, strings.HasPrefix(got, u.Path))
		require.NotContains(t, got, "\n")
		require.Equal(t, got, pages.OwnPage(got))
	})
}
