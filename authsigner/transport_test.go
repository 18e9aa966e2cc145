package authsigner_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// newGateway verifies requests below basePath. It responds with 200 and the body, or with 401 and the error.
func newGateway(t *testing.T, basePath string, http2 bool) *httptest.Server {
	t.Helper()
	v := &authsigner.Verifier{Source: memoryStore{testKey: newCredential(nil)}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target, ok := strings.CutPrefix(r.RequestURI, basePath)
		if !ok {
			t.Errorf("%s is not below %s", r.RequestURI, basePath)
		}
		if _, err := v.Verify(r, target); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		switch r.URL.Path {
		case basePath + "/api/v1/moved":
			http.Redirect(w, r, basePath+"/api/v1/me?moved", http.StatusTemporaryRedirect)
		default:
			_, _ = io.Copy(w, r.Body)
		}
	}))
	server.EnableHTTP2 = http2
	if http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server
}

func clientOf(server *httptest.Server, basePath string) *http.Client {
	return &http.Client{Transport: &authsigner.Transport{
		Base: server.Client().Transport, PublicKey: testKey, PrivateKey: testSecret, BasePath: basePath,
	}}
}

func do(t *testing.T, client *http.Client, method, target string, body io.Reader) (status, major int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, body)
	if !assert.NoError(t, err) {
		return 0, 0, ""
	}
	response, err := client.Do(r)
	if !assert.NoError(t, err) {
		return 0, 0, ""
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	assert.NoError(t, err)
	return response.StatusCode, response.ProtoMajor, string(data)
}

func TestVerifierAcceptsWhatTransportSigns(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		for _, basePath := range []string{"", "/gw"} {
			server := newGateway(t, basePath, http2)
			client := clientOf(server, basePath)
			for _, target := range []string{
				"/api/v1/me", "/api/v1/me?", "/api/v1/contacts?b=2&a=1&a=0", "/api/v1/contacts?x=zoë&y=a+b%20c#fragment",
				"/api/v1/a%2Fb/%63;c=d?e=%ff", "/api/v1//contacts/../jobs/", "/api/v1/with space?q=[]{}|",
			} {
				for method, body := range map[string]string{
					http.MethodGet: "", http.MethodHead: "", http.MethodPost: "{\"a\":\"é\"}\n\n", http.MethodPut: strings.Repeat("b", 100_000),
				} {
					status, major, text := do(t, client, method, server.URL+basePath+target, strings.NewReader(body))
					require.Equal(t, http.StatusOK, status, "%s %s: %s", method, target, text)
					require.Equal(t, map[bool]int{false: 1, true: 2}[http2], major)
					if method != http.MethodHead {
						require.Equal(t, body, text)
					}
				}
			}
		}
	}
}

func TestTransportSignsBodiesOfUnknownLength(t *testing.T) {
	t.Parallel()
	server := newGateway(t, "", false)
	status, _, text := do(t, clientOf(server, ""), http.MethodPost, server.URL+meTarget,
		io.MultiReader(strings.NewReader("a stream "), strings.NewReader("of two parts")))
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "a stream of two parts", text)
}

func TestRedirectWithinTheGatewayIsSigned(t *testing.T) {
	t.Parallel()
	server := newGateway(t, "/gw", false)
	client := clientOf(server, "/gw")
	status, _, text := do(t, client, http.MethodPost, server.URL+"/gw/api/v1/moved", strings.NewReader("body"))
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "body", text)
}

// The other host could use the signature for five minutes.
func TestRedirectElsewhereIsNotSigned(t *testing.T) {
	t.Parallel()
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server got %v", r.Header)
	}))
	t.Cleanup(stranger.Close)
	redirecting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, stranger.URL+r.RequestURI, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(redirecting.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, redirecting.URL+meTarget, nil)
	require.NoError(t, err)
	response, err := clientOf(redirecting, "").Do(r)
	if err == nil {
		_ = response.Body.Close()
	}
	require.ErrorContains(t, err, "redirect to another scheme or host")
}

func TestTransportDoesNotModifyTheRequest(t *testing.T) {
	t.Parallel()
	var sent *http.Request
	transport := &authsigner.Transport{
		Base:      roundTripper(func(r *http.Request) (*http.Response, error) { sent = r; return nil, io.EOF }),
		PublicKey: testKey, PrivateKey: testSecret,
		Now: func() time.Time { return time.Unix(testClock, 999_999_999) },
	}
	closed := &bodySpy{Reader: strings.NewReader("body")}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.example.com/api/v1/jobs?a=b", closed)
	require.NoError(t, err)
	r.Header = http.Header{
		"X-Signature": {"stale", "staler"}, "x-signature": {"odd"}, "X-TIMESTAMP": {"1"}, "X-Public-Key": {"pk_live_other"}, "X-Other": {"kept"},
	}
	before := r.Header.Clone()
	_, err = transport.RoundTrip(r) //nolint:bodyclose // there is no response
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, before, r.Header)
	require.Same(t, closed, r.Body)
	require.Equal(t, 1, closed.closed)
	require.NotSame(t, r, sent)

	require.Equal(t, http.Header{
		"X-Other":      {"kept"},
		"X-Public-Key": {testKey},
		"X-Timestamp":  {"1760000000"},
		"X-Signature":  {authsigner.Sign(testSecret, testClock, http.MethodPost, "/api/v1/jobs?a=b", []byte("body"))},
	}, sent.Header, "each of the three exactly once")
	require.EqualValues(t, 4, sent.ContentLength)
	for range 2 { // for net/http's retries
		again, err := sent.GetBody()
		require.NoError(t, err)
		body, err := io.ReadAll(again)
		require.NoError(t, err)
		assert.Equal(t, "body", string(body))
	}
}

func TestTransportSignsARequestWithoutMethodAndHeaders(t *testing.T) {
	t.Parallel()
	server := newGateway(t, "", false)
	u, err := url.Parse(server.URL + meTarget)
	require.NoError(t, err)
	transport := clientOf(server, "").Transport
	response, err := transport.RoundTrip((&http.Request{URL: u}).WithContext(t.Context()))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusOK, response.StatusCode)
}

func TestTransportSendsNothingUnsigned(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for what, test := range map[string]struct {
		change func(*authsigner.Transport, *http.Request)
		want   string
	}{
		"no public key":  {func(s *authsigner.Transport, _ *http.Request) { s.PublicKey = "" }, "public key must not be empty"},
		"no private key": {func(s *authsigner.Transport, _ *http.Request) { s.PrivateKey = "" }, "private key must not be empty"},
		"wrong base":     {func(s *authsigner.Transport, _ *http.Request) { s.BasePath = "/gw" }, "base path"},
		"broken body": {func(_ *authsigner.Transport, r *http.Request) {
			r.Body = &bodySpy{Reader: iotest.ErrReader(broken)}
		}, "broken"},
		"wrong length": {func(_ *authsigner.Transport, r *http.Request) { r.ContentLength = 3 }, "ContentLength"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			transport := &authsigner.Transport{
				Base: roundTripper(func(*http.Request) (*http.Response, error) {
					t.Error("it was sent")
					return nil, io.EOF
				}),
				PublicKey: testKey, PrivateKey: testSecret,
			}
			body := &bodySpy{Reader: strings.NewReader("body")}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.example.com/api/v1/jobs", body)
			require.NoError(t, err)
			test.change(transport, r)
			_, err = transport.RoundTrip(r) //nolint:bodyclose // there is no response
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), testSecret)
			closed, ok := r.Body.(*bodySpy)
			require.True(t, ok)
			assert.Equal(t, 1, closed.closed, "a RoundTripper closes the body even if it fails")
		})
	}
}

func TestTransportIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	server := newGateway(t, "", true)
	client := clientOf(server, "")
	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			for range 20 {
				body := strings.Repeat(string(rune('a'+worker)), 1000*worker)
				status, _, text := do(t, client, http.MethodPost, server.URL+meTarget, strings.NewReader(body))
				assert.Equal(t, http.StatusOK, status)
				assert.Equal(t, body, text)
			}
		})
	}
	wait.Wait()
}
