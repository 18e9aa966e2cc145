package e2e_test

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// patience is how long tests wait for a condition.
const patience = 2 * time.Minute

// environment is the environment of a gateway: a Redis, a data service, and the keys of two active businesses and an inactive one.
type environment struct {
	redis   *redistest.Server
	data    *httptest.Server
	dataURL string
	keyFile string

	acme, other, inactive gatewaytest.Caller
	acmeID, otherID       string
}

// newEnvironment starts a Redis and a data service, by default the demo's.
func newEnvironment(t *testing.T, data http.Handler) *environment {
	t.Helper()
	w := &environment{redis: redistest.Start(t), keyFile: filepath.Join(t.TempDir(), "keys.json")}
	if data == nil {
		data = demoService(t).Handler()
	}
	w.data = httptest.NewServer(data)
	w.dataURL = w.data.URL
	t.Cleanup(w.data.Close)

	for i, b := range demo.Businesses() {
		caller := w.issue(t, authsigner.IssueOptions{BusinessID: b.ID, BusinessName: b.Name, BusinessSlug: b.Slug})
		switch {
		case b.AccountStatus != demo.AccountActive:
			w.inactive = caller
			store := w.keys(t)
			_, err := store.Update(t.Context(), caller.PublicKey, func(c *authsigner.Credential) error {
				c.Status = authsigner.StatusInactive
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, store.Close())
		case i == 0:
			w.acme, w.acmeID = caller, b.ID
		default:
			w.other, w.otherID = caller, b.ID
		}
	}
	require.NotEmpty(t, w.acme.PublicKey)
	require.NotEmpty(t, w.other.PublicKey)
	require.NotEmpty(t, w.inactive.PublicKey)
	return w
}

// keys opens the credential file.
func (w *environment) keys(t *testing.T) *file.Source {
	t.Helper()
	store, err := file.Open(w.keyFile, file.Options{Create: true})
	require.NoError(t, err)
	return store
}

// issue adds a key to the credential file.
func (w *environment) issue(t *testing.T, o authsigner.IssueOptions) gatewaytest.Caller {
	t.Helper()
	store := w.keys(t)
	defer func() { require.NoError(t, store.Close()) }()
	o.BusinessName, o.BusinessSlug, o.Test = cmp.Or(o.BusinessName, "Corner Shop"), cmp.Or(o.BusinessSlug, "corner-shop"), true
	cred, err := authsigner.Issue(t.Context(), store, o)
	require.NoError(t, err)
	return gatewaytest.Caller{PublicKey: cred.PublicKey, PrivateKey: cred.PrivateKey}
}

// demoService returns the demo data service that all tests share, because filling its database takes seconds. Tests may add records.
func demoService(t *testing.T) *demo.Service {
	t.Helper()
	data, err := sharedDemo()
	require.NoError(t, err)
	return data
}

var sharedDemo = sync.OnceValues(func() (*demo.Service, error) {
	return demo.Open(context.Background(), demo.Memory, demo.Options{})
})

// addKeys adds n keys of several businesses to the credential file.
func (w *environment) addKeys(t *testing.T, n, businesses int) []load.Caller {
	t.Helper()
	// a store would sync the file n times
	raw, err := os.ReadFile(w.keyFile)
	require.NoError(t, err)
	var content struct {
		Keys map[string]map[string]any `json:"keys"`
	}
	require.NoError(t, json.Unmarshal(raw, &content))
	keys := load.NewKeys(n, businesses)
	for _, k := range keys {
		content.Keys[k.PublicKey] = k.Record()
	}
	raw, err = json.Marshal(content)
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(name, raw, 0o600))
	require.NoError(t, os.Rename(name, w.keyFile))
	return load.Callers(keys)
}

// options are the usual gateway's; app and api are put into the blocks gatehouse and gatehouse_api.
func (w *environment) options(app, api string) gatewaytest.Options {
	return gatewaytest.Options{
		Global: fmt.Sprintf("gatehouse {\n\t\t%s\n\t\tcredentials file %s\n\t\t%s\n\t}", w.redisLine(), w.keyFile, app),
		Site:   fmt.Sprintf("gatehouse_health\n\tgatehouse_api {\n\t\tupstream %s\n\t\t%s\n\t}", w.dataURL, api),
	}
}

// redisLine is the usual gateway's option redis.
func (w *environment) redisLine() string {
	return "redis " + w.redis.URL() + " {\n\t\t\t" + longRedisTimeout + "\n\t\t}"
}

const (
	// longRedisTimeout replaces the default timeout of 50 ms, which a busy machine exceeds.
	longRedisTimeout = "timeout 5s"
	// highLimits are limits that no test reaches.
	highLimits = "limits {\n\t\t\tper_key 1000000\n\t\t\tper_ip 1000000\n\t\t\tin_flight 1000\n\t\t}"
	// trustLoopback trusts X-Forwarded-For of proxies on this machine.
	trustLoopback = "trusted_proxies static 127.0.0.1/32\n\t\ttrusted_proxies_strict"
)

// start starts a gateway with options.
func (w *environment) start(t *testing.T, app, api string) *gatewaytest.Gateway {
	t.Helper()
	return gatewaytest.Start(t, w.options(app, api))
}

// gateway starts the usual gateway.
func (w *environment) gateway(t *testing.T) *gatewaytest.Gateway {
	t.Helper()
	return w.start(t, "", "")
}

// unlimited starts a gateway with highLimits.
func (w *environment) unlimited(t *testing.T) *gatewaytest.Gateway {
	t.Helper()
	return w.start(t, highLimits, "")
}

// behindProxy starts a gateway that takes the client IP from a proxy on this machine.
func (w *environment) behindProxy(t *testing.T, app, api string) *gatewaytest.Gateway {
	t.Helper()
	o := w.options(app, api)
	o.Servers = trustLoopback
	return gatewaytest.Start(t, o)
}

// startWith starts a gateway of gatewaytest.New with other options.
func startWith(t *testing.T, g *gatewaytest.Gateway, o gatewaytest.Options) {
	t.Helper()
	g.Write(t, o.Caddyfile(g.Addr, strings.TrimPrefix(g.AdminURL, "http://")))
	g.Run(t)
}

// recorder is a data service that records requests. Its default response is an empty list of events.
type recorder struct {
	mu       sync.Mutex
	requests []*http.Request
	response http.HandlerFunc
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.requests = append(r.requests, req.Clone(req.Context()))
	response := r.response
	r.mu.Unlock()
	if response == nil {
		body := `{"events":[]}`
		if req.URL.Path == orderPath {
			body = `{"id":"o-1","account":"` + req.Header.Get("X-Business-Id") + `","total":"9.50"}`
		}
		if req.URL.Path == searchPath {
			body = "[]"
		}
		response = respondWith(http.StatusOK, "application/json", body)
	}
	response(w, req)
}

// setResponse sets the response; nil is the default.
func (r *recorder) setResponse(response http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.response = response
}

// all returns the requests so far.
func (r *recorder) all() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

func (r *recorder) count() int { return len(r.all()) }

func (r *recorder) last(t *testing.T) *http.Request {
	t.Helper()
	all := r.all()
	require.NotEmpty(t, all)
	return all[len(all)-1]
}

// respondWith responds with a body and its content type.
func respondWith(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// aborts ends the connection without a response.
func aborts(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// stalls never responds.
func stalls(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// busy responds 503 with Retry-After.
func busy(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", "7")
	w.WriteHeader(http.StatusServiceUnavailable)
}

func stallsInBody(w http.ResponseWriter, r *http.Request) {
	respondWith(http.StatusOK, "application/json", `{"events":[`)(w, r)
	_ = http.NewResponseController(w).Flush()
	stalls(w, r)
}

func abortsInBody(w http.ResponseWriter, r *http.Request) {
	respondWith(http.StatusOK, "application/json", `{"events":[`)(w, r)
	_ = http.NewResponseController(w).Flush()
	aborts(w, r)
}

// anonymous calls without a key.
func anonymous() gatewaytest.Caller { return gatewaytest.Caller{} }

// send sends a GET with exactly these headers.
func send(t *testing.T, g *gatewaytest.Gateway, target string, h http.Header) gatewaytest.Response {
	t.Helper()
	a, err := anonymous().Send(t.Context(), http.MethodGet, g.URL, target, h, nil)
	require.NoError(t, err)
	return a
}

// invalidSignature returns signing headers for a key with an invalid signature.
func invalidSignature(key string) http.Header {
	h := headerOf(signedFields(gatewaytest.Caller{PublicKey: key}, "", "", ""))
	h.Set(authsigner.HeaderSignature, strings.Repeat("ab", 32))
	return h
}

// withClientIP adds the client IP as a proxy sends it.
func withClientIP(address string, h http.Header) http.Header {
	h = h.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("X-Forwarded-For", address)
	return h
}

// clientIPs gives each request its own client IP, so that limits per client IP do not apply.
type clientIPs struct{ n atomic.Uint32 }

func (v *clientIPs) address() string {
	n := v.n.Add(1)
	return fmt.Sprintf("10.%d.%d.%d", n>>16&0xff, n>>8&0xff, n&0xff)
}

// from adds a new client IP as a proxy sends it.
func (v *clientIPs) from(fields []field) []field {
	return append(append([]field{}, fields...), field{"X-Forwarded-For", v.address()})
}

// statuses counts the statuses of n responses.
func statuses(n int, request func(i int) gatewaytest.Response) map[int]int {
	counts := map[int]int{}
	for i := range n {
		counts[request(i).Status]++
	}
	return counts
}

// requireServed sends n requests, which must succeed.
func requireServed(t *testing.T, g *gatewaytest.Gateway, c gatewaytest.Caller, n int) {
	t.Helper()
	for i := range n {
		a := c.Get(t, g.URL, "/api/v1/me")
		require.Equal(t, http.StatusOK, a.Status, "request %d: %s", i+1, a.Body)
	}
}

// windowAttempts is how often withinWindow sends at most.
const windowAttempts = 5

// withinWindow calls send until it took less than the limit's window, and then verifies. On a slow machine, the first requests leave the
// window before the last are sent, which are therefore allowed. Each attempt needs a new key or client IP.
func withinWindow(t *testing.T, send func(attempt int) (verify func())) {
	t.Helper()
	for attempt := range windowAttempts {
		began := time.Now()
		verify := send(attempt)
		took := time.Since(began)
		if took < load.Window {
			verify()
			return
		}
		t.Logf("attempt %d took %s, longer than the limit's window", attempt+1, took)
	}
	require.Fail(t, "the machine is too slow", "for requests within %s", load.Window)
}

// inParallel calls f with 0 to n-1 in a number of goroutines.
func inParallel(workers, n int, f func(i int)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// protocolClient returns a client for HTTP/1.1 or HTTP/2 without TLS, with at most conns connections (0: any number).
func protocolClient(t *testing.T, http2 bool, conns int) *http.Client {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols), MaxConnsPerHost: conns, MaxIdleConnsPerHost: max(conns, 1000)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 2 * patience}
}

// problem is the body of an error.
type problem struct {
	Error      string `json:"error"`
	Code       string `json:"code"`
	RequestID  string `json:"request_id"`
	Parameter  string `json:"parameter"`
	Detail     string `json:"detail"`
	Message    string `json:"message"`
	RetryAfter int    `json:"retry_after"`
	ServerTime int64  `json:"server_time"`
}

// requireProblem requires an error of the contract.
func requireProblem(t *testing.T, a gatewaytest.Response, status int, code string) problem {
	t.Helper()
	require.Equal(t, status, a.Status, "body: %s", a.Body)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	var p problem
	require.NoError(t, json.Unmarshal([]byte(a.Body), &p), "body: %q", a.Body)
	require.Equal(t, code, p.Code)
	require.NotEmpty(t, p.Error)
	require.NotEmpty(t, p.RequestID)
	require.Equal(t, []string{p.RequestID}, a.Header["X-Request-Id"])
	require.Empty(t, a.Header.Get("Server"))
	if status == http.StatusUnauthorized {
		require.NotEmpty(t, a.Header.Get("WWW-Authenticate"))
	}
	return p
}

// requireJSON requires a success, and decodes it.
func requireJSON(t *testing.T, a gatewaytest.Response) map[string]any {
	t.Helper()
	require.Equal(t, http.StatusOK, a.Status, "body: %s", a.Body)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.NotEmpty(t, a.Header.Get("X-Request-Id"))
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.Body), &v), "body: %q", a.Body)
	return v
}

// requireReady waits until the gateway is ready.
func requireReady(t *testing.T, g *gatewaytest.Gateway) {
	t.Helper()
	require.Eventually(t, func() bool {
		return anonymous().Get(t, g.URL, "/readyz").Body == `{"status":"ok","checks":{"credentials":"ok","limits":"ok"}}`
	}, patience, 50*time.Millisecond, "not ready")
}

// checkOK reports whether a check of the gateway, credentials or limits, is ok. This takes far less time than reading the metrics.
func checkOK(t *testing.T, g *gatewaytest.Gateway, check string) bool {
	t.Helper()
	return strings.Contains(anonymous().Get(t, g.AdminURL, "/gatehouse/ready").Body, `"`+check+`":"ok"`)
}

// requireCheck waits until a check is ok or not.
func requireCheck(t *testing.T, g *gatewaytest.Gateway, check string, ok bool) {
	t.Helper()
	require.Eventually(t, func() bool { return checkOK(t, g, check) == ok }, 2*patience, 25*time.Millisecond, "%s: %t", check, ok)
}

// requireLogged waits until the log contains a text, which may be written after the response.
func requireLogged(t *testing.T, g *gatewaytest.Gateway, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(g.Output(), text) }, patience, 10*time.Millisecond, "%q is not in the log", text)
}

// writeAssertionKey makes a signing key for the hop assertion and returns its file.
func writeAssertionKey(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "hop.pem")
	require.NoError(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	return name
}
