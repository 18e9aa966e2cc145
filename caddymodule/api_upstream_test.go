package caddymodule

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// The memory of a large response is counted once until its caller has read it. Until then, there is one copy of it.
func TestCheckedResponseIsHeldOnce(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	text := bytes.Repeat([]byte("a"), size)
	for name, room := range map[string]int{"with other names": 3 * size, "with the same": size + 64} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, checked := &upstream.Response{Body: text}, new(bytes.Buffer)
			checked.Grow(room)
			checked.Write(text)
			compact(got, checked)
			require.Nil(t, got.Body)
			require.Equal(t, text, checked.Bytes())
			require.LessOrEqual(t, checked.Cap(), size+size/4)
		})
	}
	got, checked := &upstream.Response{Body: text[:9]}, bytes.NewBuffer(make([]byte, 0, 999))
	compact(got, checked)
	require.NotNil(t, got.Body)
	require.Equal(t, 999, checked.Cap(), "small ones are used again")
}

// A browser asks for a password only if it is told to.
func TestChallengeOfAnotherHandlerStays(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{`Basic realm="restricted"`: `Basic realm="restricted"`, "": `HMAC-SHA256 realm="gatehouse", headers="X-Public-Key X-Timestamp X-Signature"`} {
		w := httptest.NewRecorder()
		if set != "" {
			w.Header().Set("Www-Authenticate", set)
		}
		problem{Status: http.StatusUnauthorized}.write(w, "", "")
		require.Equal(t, []string{want}, w.Header().Values("Www-Authenticate"))
	}
}

// A service that insists on https behind proxies would redirect every call of a gateway behind a load balancer that ends TLS.
func TestServicesAreToldTheHostAndSchemeOfATrustedProxy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		trusted     bool
		host, proto []string
		want        [2]string
	}{
		"a trusted proxy":            {true, []string{"api.example.com"}, []string{"https"}, [2]string{"api.example.com", "https"}},
		"the last value":             {true, []string{"evil.example", "api.example.com"}, []string{"http", "https"}, [2]string{"api.example.com", "https"}},
		"only the scheme":            {true, nil, []string{"https"}, [2]string{"gw.internal", "https"}},
		"empty values":               {true, []string{""}, []string{""}, [2]string{"gw.internal", "http"}},
		"values that cannot be sent": {true, []string{"é"}, []string{"https\x7f"}, [2]string{"gw.internal", "http"}},
		"no proxy":                   {false, []string{"evil.example"}, []string{"https"}, [2]string{"gw.internal", "http"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodGet, "http://gw.internal/", http.NoBody)
			r = r.WithContext(context.WithValue(r.Context(), caddyhttp.VarsCtxKey, map[string]any{caddyhttp.TrustedProxyVarKey: tc.trusted}))
			r.Header["X-Forwarded-Host"], r.Header["X-Forwarded-Proto"] = tc.host, tc.proto
			sent := http.Header{}
			setForwarded(sent, r, netip.MustParseAddr("198.51.100.7"))
			require.Equal(t, []string{tc.want[0]}, sent["X-Forwarded-Host"])
			require.Equal(t, []string{tc.want[1]}, sent["X-Forwarded-Proto"])
		})
	}
}
