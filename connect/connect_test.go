package connect_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func unused(context.Context, upstream.Call) (*upstream.Response, error) {
	return nil, errors.New("not expected")
}

// A script of another origin must not learn from a challenge where to get a token.
func TestMCPOriginIsCheckedOnceAndBeforeTheToken(t *testing.T) {
	t.Parallel()
	const issuer = "http://localhost"
	s, err := connect.New(connect.Options{
		Issuer: issuer, Redis: redistest.Start(t).Client(t), Do: unused, Log: zap.NewNop(),
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	for _, test := range []struct {
		method, origin string
		status         int
	}{
		{http.MethodPost, issuer, http.StatusUnauthorized},
		{http.MethodPost, "https://other.example", http.StatusForbidden},
		{http.MethodOptions, issuer, http.StatusUnauthorized},
		{http.MethodOptions, "https://other.example", http.StatusForbidden},
	} {
		t.Run(test.method+" from "+test.origin, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(test.method, issuer+oauth.ResourcePath, http.NoBody)
			r.Header.Set("Origin", test.origin)
			w := httptest.NewRecorder()
			s.Operation(oauth.ResourcePath).ServeHTTP(w, r)
			assert.Equal(t, test.status, w.Code)
			assert.Equal(t, []string{"Origin"}, w.Header().Values("Vary"))
			assert.Equal(t, test.status == http.StatusUnauthorized, w.Header().Get("WWW-Authenticate") != "")
		})
	}
}

// Whoever opens the endpoint in a browser is told what it is; programs get what they always got.
func TestMCPEndpointIsAPageForBrowsersOnly(t *testing.T) {
	t.Parallel()
	const issuer = "http://localhost:8080"
	s, err := connect.New(connect.Options{Issuer: issuer, Redis: redistest.Start(t).Client(t), Do: unused, Log: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	for name, test := range map[string]struct {
		header http.Header
		status int
		kind   string
	}{
		"a browser":              {http.Header{"Accept": {"text/html,*/*;q=0.8"}}, http.StatusOK, "text/html; charset=utf-8"},
		"a browser with a token": {http.Header{"Accept": {"text/html,*/*;q=0.8"}, "Authorization": {"Bearer x"}}, http.StatusUnauthorized, "application/json"},
		"a script of a page": {
			http.Header{"Accept": {"text/html"}, "Origin": {"https://other.example"}}, http.StatusForbidden, "application/json",
		},
		"an MCP client":      {http.Header{"Accept": {"text/event-stream"}}, http.StatusUnauthorized, "application/json"},
		"another program":    {http.Header{"Accept": {"*/*"}}, http.StatusUnauthorized, "application/json"},
		"one without Accept": {http.Header{}, http.StatusUnauthorized, "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodGet, issuer+oauth.ResourcePath, http.NoBody)
			r.Header = test.header
			w := httptest.NewRecorder()
			s.Operation(oauth.ResourcePath).ServeHTTP(w, r)
			assert.Equal(t, test.status, w.Code)
			assert.Equal(t, test.kind, w.Header().Get("Content-Type"))
			assert.Equal(t, test.status == http.StatusUnauthorized, w.Header().Get("WWW-Authenticate") != "")
			if test.status == http.StatusOK {
				assert.Equal(t, []string{"Origin", "Accept, Authorization"}, w.Header().Values("Vary"))
				assert.Contains(t, w.Body.String(), "localhost</bdi>", "the name is the host by default")
				return
			}
			assert.Equal(t, []string{"Origin"}, w.Header().Values("Vary"))
		})
	}
}

func TestInvalidIssuerIsRejected(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	for _, issuer := range []string{"", "api.example.com", "https://", "ftp://api.example.com", "https://api.example.com/x", "https://a b"} {
		_, err := connect.New(connect.Options{
			Issuer: issuer, Redis: client, Do: unused, Log: zap.NewNop(),
		})
		require.ErrorContains(t, err, "invalid issuer", issuer)
	}
}

func TestCallsAboutAccountsHaveTheTimeoutOfTheDirective(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	for name, timeout := range map[string]time.Duration{"configured": time.Hour, "default": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deadlines := make(chan time.Time, 1)
			const issuer = "http://localhost"
			s, err := connect.New(connect.Options{
				Issuer: issuer, Redis: client, Timeout: timeout, Log: zap.NewNop(),
				Do: func(_ context.Context, call upstream.Call) (*upstream.Response, error) {
					deadlines <- call.Deadline
					return nil, errors.New("made up")
				},
			})
			require.NoError(t, err)
			t.Cleanup(s.Close)

			form := httptest.NewRecorder()
			s.Operation(pages.SignInPath).ServeHTTP(form, httptest.NewRequest(http.MethodGet, issuer+pages.SignInPath, http.NoBody))
			token := regexp.MustCompile(`name="csrf" value="([^"]*)"`).FindStringSubmatch(form.Body.String())
			require.NotNil(t, token)
			fields := url.Values{"csrf": {token[1]}, "email": {"ada@saltbush.example"}, "password": {"made up"}}
			req := httptest.NewRequest(http.MethodPost, issuer+pages.SignInPath, strings.NewReader(fields.Encode()))
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			for _, cookie := range form.Result().Cookies() {
				req.AddCookie(cookie)
			}
			rec := httptest.NewRecorder()
			before := time.Now()
			s.Operation(pages.SignInPath).ServeHTTP(rec, req)
			after := time.Now()
			require.Equal(t, http.StatusServiceUnavailable, rec.Code)
			if timeout == 0 {
				timeout = data.DefaultTimeout
			}
			require.Len(t, deadlines, 1)
			deadline := <-deadlines
			assert.False(t, deadline.Before(before.Add(timeout)))
			assert.False(t, deadline.After(after.Add(timeout)))
		})
	}
}
