package oauth_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

func postRegistration(c *oauthtest.Client, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/oauth/register", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	return c.Do(r)
}

// register registers a client and returns its id.
func register(t testing.TB, c *oauthtest.Client, body string) string {
	t.Helper()
	w := postRegistration(c, body)
	require.Equal(t, http.StatusCreated, w.Code, "%s", w.Body)
	var answer struct {
		ClientID string `json:"client_id"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	return answer.ClientID
}

func TestRegistrationResponseStatesWhatWasRegistered(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	w := postRegistration(c, `{
		"client_name": "  Claude\u202e\u0000\u200b   Desktop ", "client_uri": "https://claude.example/", "logo_uri": "http://claude.example/l.png",
		"redirect_uris": ["cursor://anysphere.cursor/cb", "https://app.example.org:8443/cb?x=1"],
		"grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
		"response_types": ["code", "token"], "token_endpoint_auth_method": "client_secret_basic", "client_secret": "mine",
		"scope": "whatever", "contacts": ["a@example.org"], "jwks": {"keys": []}, "client_id": "mine"
	}`)
	require.Equal(t, http.StatusCreated, w.Code, "%s", w.Body)
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	var answer map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	id, _ := answer["client_id"].(string)
	require.Regexp(t, `^gcl_[A-Za-z0-9_-]{22}$`, id)
	require.InDelta(t, time.Now().Unix(), answer["client_id_issued_at"], 60)
	delete(answer, "client_id")
	delete(answer, "client_id_issued_at")
	require.Equal(t, map[string]any{
		"client_name": "Claude Desktop", "client_uri": "https://claude.example/",
		"redirect_uris":              []any{"cursor://anysphere.cursor/cb", "https://app.example.org:8443/cb?x=1"},
		"grant_types":                []any{"authorization_code", "refresh_token"},
		"response_types":             []any{"code"},
		"token_endpoint_auth_method": "none",
	}, answer)

	request, err := s.Pending(t.Context(), (&oauthtest.Client{TB: t, Server: s, Handler: s.Handler(), ID: id}).Request(
		challenge(), url.Values{"redirect_uri": {"cursor://anysphere.cursor/cb"}}))
	require.NoError(t, err)
	require.Equal(t, "cursor:", request.RedirectHost)
	require.True(t, request.RedirectLocal)
	require.False(t, request.Client.LocalOnly)
	require.Empty(t, request.Client.LogoURI)
}

func challenge() string {
	_, c := oauthtest.PKCE()
	return c
}

func TestInvalidRegistrations(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *oauth.Options) { o.Limits.Registrations = limit(1000, time.Minute) })
	c := oauthtest.Register(t, s)
	long := "https://app.example.org/" + strings.Repeat("a", 1024)
	for body, code := range map[string]string{
		``:                      "invalid_client_metadata",
		`[]`:                    "invalid_client_metadata",
		`null`:                  "invalid_redirect_uri",
		`{"redirect_uris":"x"}`: "invalid_client_metadata",
		`{"redirect_uris":["https://app.example.org/cb"],"redirect_uris":["https://evil.example/cb"]}`: "invalid_client_metadata",
		`{"redirect_uris":["https://app.example.org/cb"],"client_name":7}`:                             "invalid_client_metadata",
		"{\"redirect_uris\":[\"https://app.example.org/cb\"],\"client_name\":\"\xff\"}":                "invalid_client_metadata",
		`{}`:                   "invalid_redirect_uri",
		`{"redirect_uris":[]}`: "invalid_redirect_uri",
		`{"redirect_uris":["https://app.example.org/cb", "https://app.example.org/cb#x"]}`:                    "invalid_redirect_uri",
		`{"redirect_uris":["` + long + `"]}`:                                                                  "invalid_redirect_uri",
		`{"redirect_uris":[` + strings.Repeat(`"https://app.example.org/cb",`, 40) + `"https://a.example/"]}`: "invalid_redirect_uri",
		`{"redirect_uris":["https://app.example.org/cb"],"grant_types":["client_credentials"]}`:               "invalid_client_metadata",
		`{"redirect_uris":["https://app.example.org/cb"],"grant_types":[]}`:                                   "invalid_client_metadata",
		`{"redirect_uris":["https://app.example.org/cb"],"response_types":["token"]}`:                         "invalid_client_metadata",
	} {
		w := postRegistration(c, body)
		require.Equal(t, http.StatusBadRequest, w.Code, "%s: %s", body, w.Body)
		require.Contains(t, w.Body.String(), `"error":"`+code+`"`, body)
	}
	large := postRegistration(c, `{"client_name":"`+strings.Repeat("a", 100<<10)+`"}`)
	require.Equal(t, http.StatusRequestEntityTooLarge, large.Code)
	deep := postRegistration(c, strings.Repeat(`{"jwks":`, 12000)+"1"+strings.Repeat("}", 12000))
	require.Equal(t, http.StatusRequestEntityTooLarge, deep.Code)
	deep = postRegistration(c, strings.Repeat(`[`, 30000)+strings.Repeat("]", 30000))
	require.Equal(t, http.StatusBadRequest, deep.Code)
	form := c.Post("/oauth/register", url.Values{"redirect_uris": {"https://app.example.org/cb"}})
	require.Equal(t, http.StatusBadRequest, form.Code)
	require.Contains(t, form.Body.String(), "invalid_client_metadata")
}

func TestRegistrationsAreRateLimited(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *oauth.Options) {
		o.Limits.Registrations, o.Limits.AllRegistrations = limit(5, time.Hour), limit(12, time.Hour)
	})
	h := s.Handler()
	from := func(address string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/oauth/register", strings.NewReader(`{"redirect_uris":["https://app.example.org/cb"]}`))
		r.Header.Set("Content-Type", "application/json")
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	count := func(addresses ...string) (admitted int) {
		for i := range 40 {
			w := from(addresses[i%len(addresses)])
			if w.Code == http.StatusCreated {
				admitted++
				continue
			}
			require.Equal(t, http.StatusTooManyRequests, w.Code)
			require.Contains(t, w.Body.String(), `"error":"too_many_requests"`)
			require.NotEmpty(t, w.Header().Get("Retry-After"))
			require.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"))
		}
		return admitted
	}
	require.Equal(t, 5, count("192.0.2.1:1"), "an address")
	require.Equal(t, 5, count("[2001:db8::1]:1", "[2001:db8::2]:2", "[2001:db8::ffff:3]:3"), "a network of IPv6 is one subscriber")
	require.Equal(t, 2, count("192.0.2.2:1", "192.0.2.3:1", "192.0.2.4:1", "192.0.2.5:1"), "and all of them together")
}

func TestClientNamesAreCleaned(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"Claude":                    "Claude",
		"  Claude \t\n Desktop  ":   "Claude Desktop",
		"Zoë’s 助手":                  "Zoë’s 助手",
		"a\u202eb\u2066c\u200bd":    "abcd",
		"\u200b\u3164\u00ad":        "",
		"\x00\x07\x1b[31mred":       "[31mred",
		"bad\xff":                   "bad\ufffd",
		"\U000e0041\U000e0042tags":  "tags",
		strings.Repeat("é", 200):    strings.Repeat("é", 80) + "…",
		strings.Repeat("ab ", 100):  strings.Repeat("ab ", 26) + "ab…",
		"":                          "",
		"<script>alert(1)</script>": "<script>alert(1)</script>",
	} {
		require.Equal(t, want, oauth.CleanName(in), "%q", in)
	}
	s := newServer(t)
	c := oauthtest.Register(t, s)
	c.ID = register(t, c, `{"redirect_uris":["https://app.example.org/cb"],"client_name":"\u200b"}`)
	request, err := s.Pending(t.Context(), c.Request(challenge(), url.Values{"redirect_uri": {"https://app.example.org/cb"}}))
	require.NoError(t, err)
	require.Equal(t, "app.example.org", request.Client.Name, "who gives no name is called by where it is")
	require.Equal(t, "app.example.org", request.RedirectHost)
	require.False(t, request.RedirectLocal)
}
