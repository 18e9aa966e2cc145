package pages_test

import (
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/pages"
)

func FuzzCleanReturnsOneVisibleLine(f *testing.F) {
	for _, s := range []string{"", "Assistant", "a\u202eb", "\xff", " \t\n ", "Z\u0300\u0301\u0302\u0303", strings.Repeat("x y", 100), "\u3164", "é́"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := pages.Clean(s, pages.MaxLabel)
		require.True(t, utf8.ValidString(got))
		require.LessOrEqual(t, utf8.RuneCountInString(got), pages.MaxLabel+1)
		require.Equal(t, strings.TrimSpace(got), got)
		require.NotContains(t, got, "  ")
		for _, r := range got {
			visible := r == '\u200c' || r == '\u200d' || unicode.Is(unicode.Prepended_Concatenation_Mark, r) // which some scripts need
			require.False(t, unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) && !visible, "%q", r)
		}
		if utf8.RuneCountInString(got) <= pages.MaxLabel {
			require.Equal(t, got, pages.Clean(got, pages.MaxLabel), "cleaning twice changes nothing")
		}
	})
}

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
