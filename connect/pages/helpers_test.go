package pages_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/net/html"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/test/accounttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/formtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// shared is the Redis of all tests, in which each has its own prefix.
var shared *redistest.Server

func TestMain(m *testing.M) { redistest.Main(m, &shared) }

// The accounts of two businesses.
const (
	ownerEmail    = "ada@saltbush.example"
	ownerPassword = accounttest.Password
	memberEmail   = "ben@saltbush.example"
	rivalEmail    = "cyd@kestrel.example"
)

var (
	owner = account.Account{
		ID: "acc_ada", Email: ownerEmail, Name: "Ada Okafor", Role: account.RoleOwner,
		Business: account.Business{BusinessID: "biz_salt", BusinessName: "Saltbush Plumbing", BusinessSlug: "saltbush", TimeZone: "Pacific/Kiritimati"},
	}
	member = account.Account{
		ID: "acc_ben", Email: memberEmail, Name: "Ben Ruiz", Role: account.RoleMember,
		Business: account.Business{BusinessID: "biz_salt", BusinessName: "Saltbush Plumbing", BusinessSlug: "saltbush"},
	}
	rival = account.Account{
		ID: "acc_cyd", Email: rivalEmail, Name: "Cyd Park", Role: account.RoleOwner,
		Business: account.Business{BusinessID: "biz_kest", BusinessName: "Kestrel Row", BusinessSlug: "kestrel"},
	}
)

// fakeOAuth is an authorization server in memory.
type fakeOAuth struct {
	issuer   string
	areas    scope.Areas
	requests map[string]oauth.Request
	approved map[string]scope.Set // by request
	denied   map[string]bool
	grants   []oauth.Grant
	down     bool
	lost     bool // replies to changes are lost
	full     bool // the business can have no more connections
	refused  int  // attempts of members to disconnect an app
}

func (f *fakeOAuth) Issuer() string { return f.issuer }

func (f *fakeOAuth) Areas() scope.Areas { return f.areas }

func (f *fakeOAuth) outage() error {
	if f.down {
		return fmt.Errorf("%w: made up", oauth.ErrUnavailable)
	}
	return nil
}

// changed returns the result of a change that was made.
func (f *fakeOAuth) changed() error {
	if f.lost {
		return fmt.Errorf("%w: %w: made up", oauth.ErrOutcomeUnknown, oauth.ErrUnavailable)
	}
	return nil
}

func (f *fakeOAuth) Pending(_ context.Context, id string) (oauth.Request, error) {
	r, ok := f.requests[id]
	if !ok {
		return oauth.Request{}, cmp.Or(f.outage(), oauth.ErrNoRequest)
	}
	return r, f.outage()
}

func (f *fakeOAuth) Approve(ctx context.Context, id string, by account.Account, granted scope.Set) (string, error) {
	r, err := f.Pending(ctx, id)
	switch {
	case err != nil:
		return "", err
	case by.Role != account.RoleOwner:
		return "", oauth.ErrNotOwner
	case granted.IsZero() || !r.Scopes.Contains(granted):
		return "", oauth.ErrScopes
	case f.full:
		return "", oauth.ErrTooManyGrants
	}
	f.approved[id] = granted
	return r.RedirectURI + "?code=made-up&iss=x", f.changed()
}

func (f *fakeOAuth) Deny(ctx context.Context, id string, _ account.Account) (string, error) {
	r, err := f.Pending(ctx, id)
	f.denied[id] = err == nil
	return r.RedirectURI + "?error=access_denied&iss=x", cmp.Or(err, f.changed())
}

func (f *fakeOAuth) Grants(_ context.Context, businessID string) ([]oauth.Grant, error) {
	others := func(g oauth.Grant) bool { return g.BusinessID != businessID }
	return slices.DeleteFunc(slices.Clone(f.grants), others), f.outage()
}

func (f *fakeOAuth) Revoke(_ context.Context, grantID string, by account.Account) error {
	i := slices.IndexFunc(f.grants, func(g oauth.Grant) bool { return g.BusinessID == by.BusinessID && g.ID == grantID })
	if i < 0 {
		return oauth.ErrNoGrant
	}
	if !by.IsOwner() {
		f.refused++
		return oauth.ErrNotOwner
	}
	f.grants = slices.Delete(f.grants, i, i+1)
	return f.changed()
}

func (f *fakeOAuth) Change(_ context.Context, grantID, version string, by account.Account, granted scope.Set, unasked bool) error {
	i := slices.IndexFunc(f.grants, func(g oauth.Grant) bool { return g.BusinessID == by.BusinessID && g.ID == grantID })
	switch {
	case f.down:
		return f.outage()
	case i < 0:
		return oauth.ErrNoGrant
	case !by.IsOwner():
		return oauth.ErrNotOwner
	case granted.IsZero():
		return oauth.ErrScopes
	}
	g := &f.grants[i]
	if unasked = unasked && granted.Runs(); g.Scopes.Equals(granted) && g.Unasked == unasked {
		return nil
	}
	if g.Version != version {
		return oauth.ErrChanged
	}
	g.Scopes, g.Unasked, g.Version = granted, unasked, g.Version+"+"
	return f.changed()
}

// fakeKeys is a key store of several businesses.
type fakeKeys struct {
	keys []fakeKey
	made int
	most int
	now  func() time.Time
	down bool
	lost bool // replies to changes are lost

	inactive bool // all keys are

	attempts map[string]string // the public keys that were issued, by attempt
}

type fakeKey struct {
	pages.Key
	business string
	account  string // that issued it
	private  string
	revoked  bool
}

func (f *fakeKeys) outage() error {
	if f.down {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// changed returns the result of a change that was made.
func (f *fakeKeys) changed(k *fakeKey) (pages.IssuedKey, error) {
	if f.lost {
		return pages.IssuedKey{Key: pages.Key{PublicKey: k.PublicKey}}, fmt.Errorf("%w: made up", pages.ErrOutcomeUnknown)
	}
	return pages.IssuedKey{Key: k.Key, PrivateKey: pages.PrivateKey(k.private)}, nil
}

// find returns the business's key, even if it is revoked.
func (f *fakeKeys) find(businessID, publicKey string) (*fakeKey, error) {
	i := slices.IndexFunc(f.keys, func(k fakeKey) bool { return k.business == businessID && k.PublicKey == publicKey })
	if i < 0 {
		return nil, cmp.Or(f.outage(), pages.ErrNoKey)
	}
	return &f.keys[i], f.outage()
}

// findValid returns the business's key, if it is not revoked.
func (f *fakeKeys) findValid(businessID, publicKey string) (*fakeKey, error) {
	k, err := f.find(businessID, publicKey)
	if err == nil && k.revoked {
		return nil, pages.ErrNoKey
	}
	return k, err
}

func (f *fakeKeys) Get(_ context.Context, businessID, publicKey string) (pages.Key, error) {
	k, err := f.findValid(businessID, publicKey)
	if err != nil {
		return pages.Key{}, err
	}
	return k.Key, nil
}

func (f *fakeKeys) List(_ context.Context, businessID string) (keys []pages.Key, err error) {
	for _, k := range f.all() {
		if k.business == businessID {
			keys = append(keys, k.Key)
		}
	}
	return keys, f.outage()
}

func (f *fakeKeys) Issue(_ context.Context, b account.Business, accountID, attempt string, test bool) (pages.IssuedKey, error) {
	publicKey, done := f.attempts[attempt]
	switch {
	case f.down:
		return pages.IssuedKey{}, f.outage()
	case done:
		return pages.IssuedKey{Key: pages.Key{PublicKey: publicKey}}, pages.ErrAlreadyDone
	case f.inactive:
		return pages.IssuedKey{}, pages.ErrInactive
	case f.most > 0 && len(f.keys) >= f.most:
		return pages.IssuedKey{}, pages.ErrTooManyKeys
	}
	f.made++
	kind := "live"
	if test {
		kind = "test"
	}
	k := fakeKey{
		Key: pages.Key{
			PublicKey: fmt.Sprintf("pk_%s_%024d", kind, f.made), Version: fmt.Sprint("v", f.made), Active: true, Test: test,
		},
		business: b.BusinessID, account: accountID, private: fmt.Sprintf("sk_%s_%043d", kind, f.made),
	}
	f.keys = append(f.keys, k)
	f.attempts[attempt] = k.PublicKey
	return f.changed(&k)
}

func (f *fakeKeys) Rotate(
	_ context.Context, businessID, publicKey, version string, grace time.Duration,
) (pages.IssuedKey, error) {
	k, err := f.findValid(businessID, publicKey)
	switch {
	case err != nil:
		return pages.IssuedKey{}, err
	case k.Version != version, grace > 0 && f.now().Before(k.PreviousUntil), grace < 0 && !f.now().Before(k.PreviousUntil):
		return pages.IssuedKey{}, pages.ErrAlreadyDone
	}
	f.made++
	k.private, k.Version = fmt.Sprintf("sk_live_%043d", f.made), fmt.Sprint("v", f.made)
	if grace > 0 {
		k.PreviousUntil = f.now().Add(grace)
	} else if grace == 0 {
		k.PreviousUntil = time.Time{}
	}
	return f.changed(k)
}

func (f *fakeKeys) Revoke(_ context.Context, businessID, publicKey string) error {
	k, err := f.find(businessID, publicKey)
	if err != nil {
		return err
	}
	if k.revoked {
		return pages.ErrAlreadyDone
	}
	if f.inactive {
		return pages.ErrInactive
	}
	k.revoked = true
	_, err = f.changed(k)
	return err
}

// all returns the keys that are not revoked.
func (f *fakeKeys) all() []fakeKey {
	return slices.DeleteFunc(slices.Clone(f.keys), func(k fakeKey) bool { return k.revoked })
}

// clock is a clock that tests can advance.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

func (c *clock) advance(d time.Duration) { c.offset.Add(int64(d)) }

// world is a server with the pages and their dependencies.
type world struct {
	tb       testing.TB
	url      string
	pages    *pages.Pages
	accounts *accounttest.Service
	oauth    *fakeOAuth
	keys     *fakeKeys
	audit    *audit.Log
	redis    *redis.Client
	prefix   string
	clock    *clock
	logs     *observer.ObservedLogs
}

// fromHeader sets the client address of a request.
const fromHeader = "X-Test-From"

// newWorld starts the pages with changed options.
func newWorld(tb testing.TB, changes ...func(*pages.Options)) *world {
	tb.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	w := &world{
		tb:       tb,
		redis:    shared.Client(tb),
		prefix:   "test:" + strings.ReplaceAll(tb.Name(), "/", ":") + ":",
		clock:    &clock{},
		logs:     logs,
		accounts: accounttest.New(owner, member, rival),
		oauth: &fakeOAuth{
			areas:    connecttest.Areas(tb),
			requests: make(map[string]oauth.Request), approved: make(map[string]scope.Set), denied: make(map[string]bool),
		},
	}
	w.keys = &fakeKeys{now: w.clock.now, attempts: make(map[string]string)}
	var err error
	w.audit, err = audit.New(audit.Options{Redis: w.redis, Prefix: w.prefix, Log: zap.New(core)})
	require.NoError(tb, err)
	server := httptest.NewUnstartedServer(nil)
	w.url = "http://" + server.Listener.Addr().String()
	w.oauth.issuer = w.url
	o := pages.Options{
		OAuth: w.oauth, Accounts: w.accounts, Audit: w.audit, Keys: w.keys, Redis: w.redis, Prefix: w.prefix,
		Name: "Harbour Platform", Log: zap.New(core), Now: w.clock.now,
		ClientAddr: func(r *http.Request) netip.Addr {
			if from := r.Header.Get(fromHeader); from != "" {
				return netip.MustParseAddr(from)
			}
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			require.NoError(tb, err)
			return netip.MustParseAddr(host)
		},
	}
	for _, change := range changes {
		change(&o)
	}
	w.pages, err = pages.New(o)
	require.NoError(tb, err)
	server.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx, _ := requestlog.With(r.Context(), "req-1")
		w.pages.Handler().ServeHTTP(rw, r.WithContext(ctx))
	})
	server.Start()
	tb.Cleanup(server.Close)
	return w
}

// request adds a pending authorization request.
func (w *world) request(id, scopes string, changes ...func(*oauth.Request)) {
	w.tb.Helper()
	set, err := w.oauth.areas.Parse(scopes)
	require.NoError(w.tb, err)
	r := oauth.Request{
		ID: id,
		Client: oauth.Client{
			ID: "https://assistant.example/client.json", Name: "Assistant", Host: "assistant.example",
			RedirectURIs: []string{"https://assistant.example/callback"},
		},
		RedirectURI: "https://assistant.example/callback", RedirectHost: "assistant.example",
		Scopes: set, ExpiresIn: 10 * time.Minute,
	}
	for _, change := range changes {
		change(&r)
	}
	w.oauth.requests[id] = r
}

// browser keeps cookies, follows no redirects, and sends the Origin and Sec-Fetch-Site headers of a form.
type browser struct {
	w    *world
	http *http.Client
	from string // its address; "" for the real one
}

func (w *world) browser() *browser {
	w.tb.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(w.tb, err)
	transport := &http.Transport{}
	w.tb.Cleanup(transport.CloseIdleConnections)
	return &browser{w: w, http: &http.Client{
		Jar: jar, Transport: transport, Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// page is a response with its body.
type page struct {
	*http.Response
	tb   testing.TB
	body string
}

func (b *browser) do(method, path string, form url.Values, header http.Header) *page {
	b.w.tb.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequest(method, b.w.url+path, body)
	require.NoError(b.w.tb, err)
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", b.w.url)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if b.from != "" {
		req.Header.Set(fromHeader, b.from)
	}
	for name, values := range header {
		if values == nil {
			req.Header.Del(name)
			continue
		}
		req.Header[name] = values
	}
	resp, err := b.http.Do(req)
	require.NoError(b.w.tb, err)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	require.NoError(b.w.tb, err)
	return &page{Response: resp, tb: b.w.tb, body: string(data)}
}

func (b *browser) get(path string) *page { return b.do(http.MethodGet, path, nil, nil) }

func (b *browser) post(path string, form url.Values) *page {
	return b.do(http.MethodPost, path, form, nil)
}

// follow follows redirects within this server.
func (b *browser) follow(p *page) *page {
	b.w.tb.Helper()
	for range 5 {
		if p.StatusCode != http.StatusSeeOther {
			return p
		}
		to := strings.TrimPrefix(p.Header.Get("Location"), b.w.url)
		require.True(b.w.tb, strings.HasPrefix(to, "/"), "redirects to another site: %s", to)
		p = b.get(to)
	}
	require.Fail(b.w.tb, "too many redirects")
	return nil
}

// cookie returns the value of the browser's cookie, or "".
func (b *browser) cookie(name string) string {
	b.w.tb.Helper()
	u, err := url.Parse(b.w.url)
	require.NoError(b.w.tb, err)
	for _, c := range b.http.Jar.Cookies(u) {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

func (b *browser) setCookie(name, value string) {
	b.w.tb.Helper()
	u, err := url.Parse(b.w.url)
	require.NoError(b.w.tb, err)
	b.http.Jar.SetCookies(u, []*http.Cookie{{Name: name, Value: value, Path: "/"}})
}

// trySignIn sends the form of the sign-in page.
func (b *browser) trySignIn(email, password string) *page {
	b.w.tb.Helper()
	return b.post(pages.SignInPath, b.get(pages.SignInPath).signInForm(email, password))
}

func (p *page) signInForm(email, password string) url.Values {
	p.tb.Helper()
	form := p.form(pages.SignInPath)
	form.Set("email", email)
	form.Set("password", password)
	return form
}

// guess tries a wrong password from the i-th address.
func (w *world) guess(i int, email string) int {
	w.tb.Helper()
	b := w.browser()
	b.from = fmt.Sprintf("203.0.113.%d", i)
	return b.trySignIn(email, "guess").StatusCode
}

// signOut sends the sign-out form for "here" or "everywhere".
func (b *browser) signOut(where string) *page {
	b.w.tb.Helper()
	form := b.get(pages.SignOutPath).form(pages.SignOutPath)
	form.Set("where", where)
	return b.post(pages.SignOutPath, form)
}

// signIn signs in, which must succeed.
func (w *world) signIn(email string) *browser {
	w.tb.Helper()
	b := w.browser()
	p := b.trySignIn(email, ownerPassword)
	require.Equal(w.tb, http.StatusSeeOther, p.StatusCode, p.body)
	return b
}

// requires fails the test unless the page has the status and shows the texts.
func (p *page) requires(status int, texts ...string) *page {
	p.tb.Helper()
	require.Equal(p.tb, status, p.StatusCode, "%s %s: %s", p.Request.Method, p.Request.URL, p.body)
	for _, text := range texts {
		require.Contains(p.tb, p.text(), text, p.Request.URL)
	}
	return p
}

// lacks requires that the page's HTML does not contain the parts.
func (p *page) lacks(parts ...string) *page {
	p.tb.Helper()
	for _, part := range parts {
		require.NotContains(p.tb, p.body, part, p.Request.URL)
	}
	return p
}

// form returns the fields of the page's first form with this action.
func (p *page) form(action string) url.Values {
	p.tb.Helper()
	forms := formtest.Forms(p.tb, p.body)
	i := slices.IndexFunc(forms, func(f formtest.Form) bool { return f.Action == action })
	require.GreaterOrEqual(p.tb, i, 0, "no form to %s on %s", action, p.body)
	return forms[i].Values
}

// text returns the text of the page with single spaces.
func (p *page) text() string {
	p.tb.Helper()
	doc, err := html.Parse(strings.NewReader(p.body))
	require.NoError(p.tb, err)
	var b strings.Builder
	for n := range doc.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func grant(tb testing.TB, id string, a account.Account, client, scopes string, created, used time.Time) oauth.Grant {
	tb.Helper()
	set, err := connecttest.Areas(tb).Parse(scopes)
	require.NoError(tb, err)
	return oauth.Grant{
		ID: id, ClientID: "https://" + client + ".example/client.json", ClientName: client, ClientHost: client + ".example",
		AccountID: a.ID, BusinessID: a.BusinessID, Scopes: set, CreatedAt: created, LastUsedAt: used,
		ExpiresAt: created.Add(60 * 24 * time.Hour),
	}
}

func (w *world) entries(business string) []audit.Entry {
	w.tb.Helper()
	entries, _, err := w.audit.List(w.tb.Context(), business, "", 100)
	require.NoError(w.tb, err)
	return entries
}

// actions returns a business's entries except those about sessions, newest first.
func (w *world) actions(business string) []audit.Entry {
	w.tb.Helper()
	var out []audit.Entry
	for _, e := range w.entries(business) {
		if !strings.HasPrefix(e.Action, "session.") {
			out = append(out, e)
		}
	}
	return out
}

// withKeys returns a world with keys of two businesses.
func withKeys(t *testing.T, changes ...func(*pages.Options)) *world {
	t.Helper()
	w := newWorld(t, changes...)
	w.keys.keys = []fakeKey{
		{Key: pages.Key{PublicKey: "pk_live_saltbush", Version: "v0", Active: true}, business: owner.BusinessID, private: "sk_old"},
		{Key: pages.Key{PublicKey: "pk_test_kestrel", Version: "v0", Active: true, Test: true}, business: rival.BusinessID, private: "sk_rival"},
	}
	return w
}

// keyForm returns the form of the API page for an action.
func (b *browser) keyForm(action, publicKey string) url.Values {
	b.w.tb.Helper()
	path := pages.KeysPath
	if action != "issue" {
		path += "?" + action + "=" + publicKey
	}
	p := b.get(path)
	require.Equal(b.w.tb, http.StatusOK, p.StatusCode, p.body)
	return p.form(pages.KeysPath)
}

// unchanged requires that the keys are those of withKeys.
func (w *world) unchanged() {
	w.tb.Helper()
	require.Len(w.tb, w.keys.all(), 2)
	require.Equal(w.tb, "sk_old", w.keys.all()[0].private)
	require.Equal(w.tb, "sk_rival", w.keys.all()[1].private)
}
