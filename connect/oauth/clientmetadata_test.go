package oauth_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"code.dny.dev/ssrf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/dnstest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

// site is a web server for all host names.
type site struct {
	*httptest.Server

	fetched atomic.Int32
}

func newSite(t testing.TB, serve http.HandlerFunc) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fetched.Add(1)
		serve(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// serveDocument responds with a metadata document of the requested URL.
func serveDocument(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(document("https://"+r.Host+r.URL.RequestURI(), nil))
}

// transport connects to the site for every host name.
func (s *site) transport() http.RoundTripper {
	return &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, s.Listener.Addr().String())
		},
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}
}

func document(id string, change map[string]any) []byte {
	m := map[string]any{
		"client_id": id, "client_name": "Claude", "client_uri": "https://claude.example", "token_endpoint_auth_method": "none",
		"redirect_uris": []string{oauthtest.Callback, "https://claude.example/cb", "javascript:alert(1)"},
		"grant_types":   []string{"authorization_code", "refresh_token", "urn:example:unheard-of"},
		"jwks_uri":      "https://claude.example/keys", "unknown": map[string]any{"a": 1},
	}
	maps.Copy(m, change)
	data, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return data
}

const documentID = "https://claude.example/oauth/client.json"

func withDocuments(s *site) func(*oauth.Options) {
	return func(o *oauth.Options) { o.SetTransport(s.transport()) }
}

func TestClientIsReadFromItsMetadataDocument(t *testing.T) {
	t.Parallel()
	web := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "claude.example", r.Host)
		assert.Equal(t, "application/json", r.Header.Get("Accept"))
		assert.Empty(t, r.Header.Get("Cookie"))
		serveDocument(w, r)
	})
	s := newServer(t, withDocuments(web))
	c := clientWithID(t, s, documentID)
	verifier, challenged := oauthtest.PKCE()
	id := c.Request(challenged, url.Values{"redirect_uri": {"http://127.0.0.1:5555/callback"}})
	request := pending(t, s, id)
	require.Equal(t, oauth.Client{
		ID: documentID, Name: "Claude", Host: "claude.example", Refreshes: true,
	}, request.Client)
	code := oauthtest.CodeOf(t, c.Approve(id, oauthtest.Owner(), request.Scopes))
	tokens := c.Exchange(code, verifier, url.Values{"redirect_uri": {"http://127.0.0.1:5555/callback"}})
	require.Equal(t, http.StatusOK, tokens.Status)
	require.Equal(t, http.StatusOK, c.Refresh(tokens.Refresh, nil).Status)
	c.Request(challenged, nil)
	require.Equal(t, int32(1), web.fetched.Load(), "fetched once")
	w := c.Authorize(challenged, url.Values{"redirect_uri": {"javascript:alert(1)"}})
	require.Empty(t, w.Header().Get("Location"), "invalid redirect URIs of a document are ignored")
}

func TestDocumentWithLoopbackRedirectsOnlyIsLocal(t *testing.T) {
	t.Parallel()
	web := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/oauth-client+json")
		_, _ = w.Write(document(documentID, map[string]any{"redirect_uris": []string{"http://localhost/callback", oauthtest.Callback}}))
	})
	s := newServer(t, withDocuments(web))
	request := pending(t, s, clientWithID(t, s, documentID).Request(challenge(), nil))
	require.True(t, request.Client.LocalOnly, "any program on this machine could impersonate it")
}

func TestConcurrentRequestsShareOneDocumentFetch(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	web := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		serveDocument(w, r)
	})
	s := newServer(t, withDocuments(web), func(o *oauth.Options) { o.Limits().Fetches = limit(100, time.Minute) })
	c := clientWithID(t, s, documentID)
	started := make(chan struct{}, racers)
	go func() {
		for range racers {
			<-started
		}
		close(release)
	}()
	for _, w := range atOnce(racers, func(int) *httptest.ResponseRecorder {
		started <- struct{}{}
		return c.Authorize(challenge(), nil)
	}) {
		assert.Equal(t, http.StatusSeeOther, w.Code, "%s", w.Body)
	}
	require.Equal(t, int32(1), web.fetched.Load())
}

func TestInvalidDocumentIsRejected(t *testing.T) {
	t.Parallel()
	var respond http.HandlerFunc
	web := newSite(t, func(w http.ResponseWriter, r *http.Request) { respond(w, r) })
	s := newServer(t, withDocuments(web), unlimited)
	send := func(status int, contentType string, body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Location", "https://claude.example/other.json")
			w.Header().Set("Cache-Control", "max-age=3600")
			w.WriteHeader(status)
			_, _ = w.Write(body)
		}
	}
	with := func(change map[string]any) http.HandlerFunc {
		return send(http.StatusOK, "application/json", document(documentID, change))
	}
	for name, bad := range map[string]http.HandlerFunc{
		"another client_id":        with(map[string]any{"client_id": "https://claude.example/oauth/client.json?"}),
		"no client_id":             with(map[string]any{"client_id": nil}),
		"a secret":                 with(map[string]any{"client_secret": "s"}),
		"a secret's method":        with(map[string]any{"token_endpoint_auth_method": "client_secret_post"}),
		"no redirect_uris":         with(map[string]any{"redirect_uris": nil}),
		"useless redirect_uris":    with(map[string]any{"redirect_uris": []string{"javascript:alert(1)", "http://app.example.org/"}}),
		"too many redirect_uris":   with(map[string]any{"redirect_uris": make([]string, 100)}),
		"a name that is a number":  with(map[string]any{"client_name": 7}),
		"other grants only":        with(map[string]any{"grant_types": []string{"client_credentials"}}),
		"too large":                with(map[string]any{"padding": strings.Repeat("a", 64<<10)}),
		"not JSON":                 send(200, "application/json", []byte("<html>")),
		"HTML by its type":         send(200, "text/html", document(documentID, nil)),
		"no type":                  send(200, "", document(documentID, nil)),
		"not found":                send(404, "application/json", document(documentID, nil)),
		"an error":                 send(500, "application/json", document(documentID, nil)),
		"not quite":                send(206, "application/json", document(documentID, nil)),
		"moved":                    send(301, "application/json", document(documentID, nil)),
		"found":                    send(302, "application/json", document(documentID, nil)),
		"temporarily elsewhere":    send(307, "application/json", document(documentID, nil)),
		"it ends in the middle":    send(200, "application/json", document(documentID, nil)[:100]),
		"a member twice":           send(200, "application/json", []byte(`{"client_id":"`+documentID+`","client_id":"`+documentID+`","redirect_uris":["`+oauthtest.Callback+`"]}`)),
		"it breaks the connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		respond = bad
		before := web.fetched.Load()
		w := clientWithID(t, s, documentID).Authorize(challenge(), nil)
		assert.Equal(t, "400 invalid_client", oauthError(t, w), name)
		assert.Empty(t, w.Header().Get("Location"), name)
		assert.Equal(t, before+1, web.fetched.Load(), "%s: no redirect is followed, and errors are not cached", name)
	}
	respond = serveDocument
	require.NotEmpty(t, clientWithID(t, s, documentID).Request(challenge(), nil))
}

func TestSlowDocumentFetchTimesOut(t *testing.T) {
	t.Parallel()
	web := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		trickle := time.NewTicker(10 * time.Millisecond)
		defer trickle.Stop()
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte(" "))
			_ = http.NewResponseController(w).Flush()
			<-trickle.C
		}
	})
	c := clientWithID(t, newServer(t, withDocuments(web)), documentID)
	began := time.Now()
	assert.Equal(t, http.StatusBadRequest, c.Authorize(challenge(), nil).Code)
	assert.Less(t, time.Since(began), time.Minute)
}

func TestInvalidDocumentURLIsRejected(t *testing.T) {
	t.Parallel()
	web := newSite(t, serveDocument)
	s := newServer(t, withDocuments(web))
	for _, bad := range []string{
		"http://claude.example/c.json", "https://claude.example", "https://claude.example/", "https://claude.example/c.json#f",
		"https://u@claude.example/c.json", "https://u:p@claude.example/c.json", "https://claude.example/../c.json",
		"https://claude.example/a/./c.json", "https://claude.example/%2e%2e/c.json", "https:///c.json", "https://:443/c.json",
		"https://claude.example?c.json", "https://claude.example/c json", "https://claude.example\\c.json", "https://claude..example/c.json",
		"https://claude.example/" + strings.Repeat("a", 2000), "HTTPS://claude.example/c.json", "https://claude.example:x/c.json",
		"https://clаude.example/c.json", "file:///etc/passwd", "gopher://claude.example/c", "https://%63laude.example/c.json",
		"https://" + strings.Repeat("a", 64) + ".example/c", "https://" + strings.Repeat("claude.", 36) + "example/c",
	} {
		w := clientWithID(t, s, bad).Authorize(challenge(), nil)
		assert.Equal(t, http.StatusBadRequest, w.Code, bad)
		assert.Empty(t, w.Header().Get("Location"), bad)
	}
	require.Zero(t, web.fetched.Load())
	for _, good := range []string{"https://claude.example/c", "https://claude.example:8443/a/b.json", "https://claude.example/c?v=1", "https://[2001:db8::1]/c"} {
		require.NoError(t, oauth.ValidDocumentURL(good), good)
	}
}

func TestDocumentFetchesAreRateLimitedAndCachedOnesAreNot(t *testing.T) {
	t.Parallel()
	web := newSite(t, serveDocument)
	s := newServer(t, withDocuments(web), func(o *oauth.Options) { o.Limits().Fetches = limit(3, time.Hour) })
	for i, want := range []int{303, 303, 303, 429, 429, 429} {
		w := clientWithID(t, s, fmt.Sprintf("https://claude.example/%d", i)).Authorize(challenge(), nil)
		assert.Equal(t, want, w.Code, "%s", w.Body)
	}
	assert.Equal(t, int32(3), web.fetched.Load())
	assert.Equal(t, http.StatusSeeOther, clientWithID(t, s, "https://claude.example/0").Authorize(challenge(), nil).Code)
}

func TestDocumentCachingFollowsHeadersWithinLimits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		header http.Header
		want   time.Duration
	}{
		{nil, time.Hour},
		{http.Header{"Cache-Control": {"max-age=1200"}}, 20 * time.Minute},
		{http.Header{"Cache-Control": {"public, Max-Age=\"1200\", must-revalidate"}}, 20 * time.Minute},
		{http.Header{"Cache-Control": {"max-age=7200, s-maxage=600"}}, 10 * time.Minute},
		{http.Header{"Cache-Control": {"max-age=7200"}, "Age": {"6000"}}, 20 * time.Minute},
		{http.Header{"Cache-Control": {"max-age=31536000"}}, time.Hour},
		{http.Header{"Cache-Control": {"max-age=99999999999999999999"}}, time.Hour},
		{http.Header{"Cache-Control": {"max-age=0"}}, time.Minute},
		{http.Header{"Cache-Control": {"max-age=-5"}}, time.Minute},
		{http.Header{"Cache-Control": {"no-store"}}, time.Minute},
		{http.Header{"Cache-Control": {"no-cache, max-age=7200"}}, time.Minute},
		{http.Header{"Cache-Control": {"private, max-age=7200"}}, time.Minute},
		{http.Header{"Expires": {"Sat, 21 Nov 2026 14:00:00 GMT"}}, time.Minute},
		{http.Header{"Expires": {"Sat, 21 Nov 2026 14:00:00 GMT"}, "Date": {"Sat, 21 Nov 2026 13:30:00 GMT"}}, 30 * time.Minute},
		{http.Header{"Expires": {"0"}}, time.Minute},
		{http.Header{"Expires": {"Sat, 21 Nov 2026 14:00:00 GMT"}, "Cache-Control": {"max-age=600"}}, 10 * time.Minute},
	} {
		assert.Equal(t, test.want, oauth.Freshness(test.header), "%v", test.header)
	}
}

func TestExpiredDocumentIsFetchedAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	web := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=600")
		serveDocument(w, r)
	})
	client := clientOf(t, shared.Options())
	prefix := prefixOf(t)
	s := newServer(t, withDocuments(web), func(o *oauth.Options) { o.Redis, o.Prefix = client, prefix })
	c := clientWithID(t, s, documentID)
	c.Request(challenge(), nil)
	keys := client.Keys(ctx, prefix+"document:*").Val()
	require.Len(t, keys, 1)
	require.InDelta(t, 10*time.Minute, client.TTL(ctx, keys[0]).Val(), float64(time.Minute))
	require.NoError(t, client.Del(ctx, keys[0]).Err())
	c.Request(challenge(), nil)
	require.Equal(t, int32(2), web.fetched.Load())
	require.NoError(t, client.Set(ctx, keys[0], "of another version", 0).Err())
	c.Request(challenge(), nil)
	require.Equal(t, int32(3), web.fetched.Load())
}

// SSRF: no client_id and no DNS record of its host leads to a connection to a private address.
func TestDocumentsAreFetchedFromPublicAddressesOnly(t *testing.T) {
	t.Parallel()
	inside := newSite(t, serveDocument)
	port := inside.Listener.Addr().(*net.TCPAddr).Port
	s := newServer(t, unlimited)
	var addresses struct{ Hosts, Private, Public []string }
	raw, err := os.ReadFile("testdata/addresses.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &addresses))
	for _, host := range addresses.Hosts {
		id := "https://" + host + ":" + strconv.Itoa(port) + "/c.json"
		w := clientWithID(t, s, id).Authorize(challenge(), nil)
		assert.Equal(t, http.StatusBadRequest, w.Code, "%s: %s", host, w.Body)
		assert.NotContains(t, w.Body.String(), "prohibited", "the response does not disclose the reason")
		assert.Empty(t, w.Header().Get("Location"))
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
			response, err := s.Documents().Get(id)
			if response != nil {
				_ = response.Body.Close()
			}
			require.ErrorIs(t, err, ssrf.ErrProhibitedIP, host)
		}
	}
	require.Zero(t, inside.fetched.Load())

	dialer := oauth.PublicDialer()
	check := func(address string) error {
		network := "tcp4"
		if strings.Contains(address, ":") {
			network = "tcp6"
		}
		return dialer.Control(network, net.JoinHostPort(address, "443"), nil)
	}
	for _, inner := range addresses.Private {
		require.ErrorIs(t, check(inner), ssrf.ErrProhibitedIP, inner)
	}
	for _, public := range addresses.Public {
		require.NoError(t, check(public), public)
	}
}

// rebinder is a DNS server that responds to the first query with a public address, and then with a loopback address.
func rebinder(t testing.TB) (*net.Resolver, *atomic.Int32) {
	t.Helper()
	asked := &atomic.Int32{}
	server := dnstest.Start(t, func(m *dnsmessage.Message) bool {
		if m.Questions[0].Type == dnsmessage.TypeA {
			address := [4]byte{93, 184, 216, 34}
			if asked.Add(1) > 1 {
				address = [4]byte{127, 0, 0, 1}
			}
			dnstest.Answer(m, address)
		}
		return true
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp4", server)
	}}, asked
}

// DNS rebinding: the checked address is the one that is dialled. There is no second query.
func TestDNSRebindingCannotReachPrivateAddresses(t *testing.T) {
	t.Parallel()
	inside := newSite(t, func(http.ResponseWriter, *http.Request) {})
	resolver, asked := rebinder(t)
	dialer := oauth.PublicDialer()
	dialer.Resolver = resolver
	guard := dialer.Control
	var dialled, rejected []string
	dialer.Control = func(network, address string, c syscall.RawConn) error {
		if err := guard(network, address, c); err != nil {
			rejected = append(rejected, address)
			return err
		}
		dialled = append(dialled, address)
		return fmt.Errorf("this test does not leave the machine: %s", address)
	}
	s := newServer(t, func(o *oauth.Options) { o.SetTransport(oauth.PublicTransport(dialer)) })
	c := clientWithID(t, s, fmt.Sprintf("https://rebind.example:%d/c.json", inside.Listener.Addr().(*net.TCPAddr).Port))
	for range 3 {
		w := c.Authorize(challenge(), nil)
		assert.Equal(t, http.StatusBadRequest, w.Code, "%s", w.Body)
	}
	assert.Equal(t, int32(3), asked.Load(), "a name is resolved once for each fetch")
	require.Len(t, dialled, 1)
	assert.Contains(t, dialled[0], "93.184.216.34")
	require.Len(t, rejected, 2)
	assert.Contains(t, rejected[0], "127.0.0.1")
	assert.Zero(t, inside.fetched.Load())
}
