package oauth_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
)

func TestPendingRequestDescribesTheRegisteredClient(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const uri, local = "https://app.example.org/cb", "cursor://anysphere.cursor/cb"
	w := postRegistration(clientWithID(t, s, ""), `{"client_name":"\u200b","redirect_uris":["`+uri+`","`+local+`"]}`)
	var registered struct {
		ID       string `json:"client_id"`
		IssuedAt int64  `json:"client_id_issued_at"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &registered))
	require.Regexp(t, `^gcl_[A-Za-z0-9_-]{22}$`, registered.ID)
	require.InDelta(t, time.Now().Unix(), registered.IssuedAt, 60)
	c := clientWithID(t, s, registered.ID)

	request := pending(t, s, c.Request(challenge(), url.Values{"redirect_uri": {uri}}))
	require.Equal(t, "app.example.org", request.Client.Name, "a client without a name is named by its host")
	require.Equal(t, "app.example.org", request.RedirectHost)
	require.False(t, request.RedirectLocal)
	request = pending(t, s, c.Request(challenge(), url.Values{"redirect_uri": {local}}))
	assert.Equal(t, "cursor:", request.RedirectHost)
	require.True(t, request.RedirectLocal)
	assert.False(t, request.Client.LocalOnly)
}

func TestInvalidRegistrations(t *testing.T) {
	t.Parallel()
	c := clientWithID(t, newServer(t, unlimited), "")
	long := "https://app.example.org/" + strings.Repeat("a", 1024)
	for body, want := range map[string]string{
		``:                      "400 invalid_client_metadata",
		`[]`:                    "400 invalid_client_metadata",
		`null`:                  "400 invalid_redirect_uri",
		`{"redirect_uris":"x"}`: "400 invalid_client_metadata",
		`{"redirect_uris":["https://app.example.org/cb"],"redirect_uris":["https://evil.example/cb"]}`: "400 invalid_client_metadata",
		`{"redirect_uris":["https://app.example.org/cb"],"client_name":7}`:                             "400 invalid_client_metadata",
		"{\"redirect_uris\":[\"https://app.example.org/cb\"],\"client_name\":\"\xff\"}":                "400 invalid_client_metadata",
		`{}`:                   "400 invalid_redirect_uri",
		`{"redirect_uris":[]}`: "400 invalid_redirect_uri",
		`{"redirect_uris":["https://app.example.org/cb", "https://app.example.org/cb#x"]}`:                    "400 invalid_redirect_uri",
		`{"redirect_uris":["` + long + `"]}`:                                                                  "400 invalid_redirect_uri",
		`{"redirect_uris":[` + strings.Repeat(`"https://app.example.org/cb",`, 40) + `"https://a.example/"]}`: "400 invalid_redirect_uri",
		`{"redirect_uris":["https://app.example.org/cb"],"grant_types":["client_credentials"]}`:               "400 invalid_client_metadata",
		`{"redirect_uris":["https://app.example.org/cb"],"grant_types":[]}`:                                   "400 invalid_client_metadata",
		`{"redirect_uris":["https://app.example.org/cb"],"response_types":["token"]}`:                         "400 invalid_client_metadata",
		`{"client_name":"` + strings.Repeat("a", 100<<10) + `"}`:                                              "413 invalid_request",
		strings.Repeat(`{"jwks":`, 12000) + "1" + strings.Repeat("}", 12000):                                  "413 invalid_request",
		strings.Repeat(`[`, 30000) + strings.Repeat("]", 30000):                                               "400 invalid_client_metadata",
	} {
		assert.Equal(t, want, oauthError(t, postRegistration(c, body)), "%.100s", body)
	}
	form := c.Post("/oauth/register", url.Values{"redirect_uris": {"https://app.example.org/cb"}})
	require.Equal(t, "400 invalid_client_metadata", oauthError(t, form))
}

func TestRegistrationsAreRateLimited(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *oauth.Options) {
		o.Limits().Registrations, o.Limits().AllRegistrations = limit(5, time.Hour), limit(12, time.Hour)
	})
	count := func(addresses ...string) (allowed int) {
		for i := range 40 {
			r := httptest.NewRequest(http.MethodPost, "/oauth/register", strings.NewReader(`{"redirect_uris":["https://app.example.org/cb"]}`))
			r.Header.Set("Content-Type", "application/json")
			r.RemoteAddr = addresses[i%len(addresses)]
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if w.Code == http.StatusCreated {
				allowed++
				continue
			}
			assert.Equal(t, "429 too_many_requests", oauthError(t, w))
			require.NotEmpty(t, w.Header().Get("Retry-After"))
			assert.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"))
		}
		return allowed
	}
	assert.Equal(t, 5, count("192.0.2.1:1"), "an address")
	assert.Equal(t, 5, count("[2001:db8::1]:1", "[2001:db8::2]:2", "[2001:db8::ffff:3]:3"), "a network of IPv6 is one subscriber")
	assert.Equal(t, 2, count("192.0.2.2:1", "192.0.2.3:1", "192.0.2.4:1", "192.0.2.5:1"), "and all of them together")
}
