package account_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/internal/test/calltest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

const response = `{"account": {"id": "acc_1", "email": "ada@saltbush.example", "name": "Ada Okafor", "role": "owner", "more": 1,
	"business": {"id": "biz_1", "name": "Saltbush Plumbing", "slug": "saltbush"}}}`

var ada = account.Account{
	ID: "acc_1", Email: "ada@saltbush.example", Name: "Ada Okafor", Role: account.RoleOwner,
	Business: account.Business{BusinessID: "biz_1", BusinessName: "Saltbush Plumbing", BusinessSlug: "saltbush"},
}

// serve starts an accounts service and returns a client for it.
func serve(t *testing.T, handler http.HandlerFunc, changes ...func(*data.Options)) *account.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	o := data.Options{
		Host: server.Listener.Addr().String(), Do: calltest.Over(transport), Timeout: time.Minute,
		Log: zap.NewNop(),
	}
	for _, change := range changes {
		change(&o)
	}
	c, err := account.NewClient(o)
	require.NoError(t, err)
	return c
}

// request returns the context of a request with the ID req-7.
func request(t *testing.T) context.Context {
	t.Helper()
	ctx, _ := requestlog.With(t.Context(), "req-7")
	return ctx
}

// replaced returns response with one text replaced.
func replaced(from, to string) string { return strings.Replace(response, from, to, 1) }

// respond returns a handler with one response.
func respond(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// A person could otherwise ask for pages until the accounts service serves nobody else.
func TestCallsForOneAccountHaveOneShare(t *testing.T) {
	t.Parallel()
	var shares []string
	c := serve(t, respond(http.StatusOK, response), func(o *data.Options) {
		do := o.Do
		o.Do = func(ctx context.Context, call upstream.Call) (*upstream.Response, error) {
			shares = append(shares, call.Share)
			return do(ctx, call)
		}
	})
	_, err := c.Account(request(t), "acc_1")
	require.NoError(t, err)
	_, err = c.SignIn(request(t), "ada@saltbush.example", "secret")
	require.NoError(t, err)
	require.Equal(t, []string{"/accounts/acc_1", ""}, shares)
}

func TestRequestsAreAsDocumented(t *testing.T) {
	t.Parallel()
	requests, bodies := make(chan *http.Request, 1), make(chan string, 1)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		requests <- r
		bodies <- string(body)
		_, _ = io.WriteString(w, response)
	})
	a, err := c.SignIn(request(t), "ada@saltbush.example", `p"äss`)
	require.NoError(t, err)
	require.Equal(t, ada, a)
	require.True(t, a.IsOwner())
	signIn := <-requests
	require.Equal(t, "POST /connect/v1/sign-in", signIn.Method+" "+signIn.RequestURI)
	require.Equal(t, "application/json", signIn.Header.Get("Content-Type"))
	require.JSONEq(t, `{"email": "ada@saltbush.example", "password": "p\"äss"}`, <-bodies)
	a, err = c.Account(request(t), "acc_1")
	require.NoError(t, err)
	require.Equal(t, ada, a)
	read := <-requests
	require.Equal(t, "GET /connect/v1/accounts/acc_1", read.Method+" "+read.RequestURI)
	require.Empty(t, <-bodies)
	for _, r := range []*http.Request{signIn, read} {
		assert.Equal(t, []string{"-"}, r.Header["X-Business-Id"])
		assert.Equal(t, []string{"req-7"}, r.Header["X-Request-Id"])
		assert.NotContains(t, r.Header, "X-Account-Id")
		assert.NotContains(t, r.Header, "Idempotency-Key")
	}
}

func TestErrorResponses(t *testing.T) {
	t.Parallel()
	code := func(code string) string { return `{"error": "No.", "code": "` + code + `"}` }
	for _, test := range []struct {
		status          int
		body            string
		signIn, account error
	}{
		{401, code("INVALID_CREDENTIALS"), account.ErrWrongCredentials, account.ErrUnavailable},
		{422, code("INVALID"), account.ErrWrongCredentials, account.ErrUnavailable},
		{404, code("NOT_FOUND"), account.ErrUnavailable, account.ErrUnknown},
		// A response to a wrong URL or a rejected assertion, or that of a proxy, proves nothing about an account.
		{404, "<h1>Not found</h1>", account.ErrUnavailable, account.ErrUnavailable},
		{401, code("UNAUTHORIZED"), account.ErrUnavailable, account.ErrUnavailable},
		{401, "", account.ErrUnavailable, account.ErrUnavailable},
		{400, code("INVALID_REQUEST"), account.ErrUnavailable, account.ErrUnavailable},
		{403, code("FORBIDDEN"), account.ErrUnavailable, account.ErrUnavailable},
		{429, code("BUSY"), account.ErrUnavailable, account.ErrUnavailable},
		{500, code("INTERNAL"), account.ErrUnavailable, account.ErrUnavailable},
		{503, code("INVALID_CREDENTIALS"), account.ErrUnavailable, account.ErrUnavailable},
		{204, "", account.ErrUnavailable, account.ErrUnavailable},
		{302, response, account.ErrUnavailable, account.ErrUnavailable},
	} {
		var counted []error
		c := serve(t, respond(test.status, test.body), func(o *data.Options) {
			o.OnResponse = func(err error) { counted = append(counted, err) }
		})
		_, err := c.SignIn(request(t), "ada@saltbush.example", "secret-password")
		require.ErrorIs(t, err, test.signIn, "sign-in: %d %s", test.status, test.body)
		require.NotContains(t, err.Error(), "secret-password")
		_, err = c.Account(request(t), "acc_1")
		require.ErrorIs(t, err, test.account, "account: %d %s", test.status, test.body)
		var want []error
		for _, err := range []error{test.signIn, test.account} {
			switch {
			case err != account.ErrUnavailable: //nolint:errorlint // the test's own
				want = append(want, nil)
			case test.status == http.StatusTooManyRequests, test.status >= http.StatusInternalServerError:
				want = append(want, upstream.ErrUpstreamUnavailable)
			default:
				want = append(want, upstream.ErrContractViolation)
			}
		}
		require.Equal(t, want, counted, "%d %s", test.status, test.body)
	}
}

func TestSignInFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	_, err := c.SignIn(request(t), "ada@saltbush.example", "p")
	require.ErrorIs(t, err, account.ErrUnavailable)
	assert.Equal(t, int32(1), requests.Load())
}

func TestInvalidAccountIsRejected(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		"", "null", "{}", "[]", `{"account": null}`, response + "x", strings.Repeat(" ", 64<<10) + response,
		replaced(`"acc_1"`, `""`), replaced(`"acc_1"`, `"a b"`), replaced(`"acc_1"`, `7`), replaced(`acc_1`, strings.Repeat("a", 256)),
		replaced(`acc_1`, `a\nb`), replaced(`"ada@saltbush.example"`, `""`), replaced(`ada@saltbush.example`, `a\u0000b`),
		replaced(`Ada Okafor`, `a\u001bb`), replaced(`biz_1`, ``), replaced(`biz_1`, `bïz`), replaced(`"saltbush"`, `""`),
		replaced(`Saltbush Plumbing`, ``), replaced(`Saltbush Plumbing`, strings.Repeat("a", 1025)), replaced(`"business"`, `"company"`),
		replaced(`biz_1`, `-`), replaced(`"business": {`, `"business": null, "company": {`),
		replaced(`"id": "biz_1"`, `"id": "biz_1", "id": "biz_2"`), replaced(`Saltbush`, "\xff"),
	} {
		var counted []error
		_, err := serve(t, respond(http.StatusOK, body), func(o *data.Options) {
			o.OnResponse = func(err error) { counted = append(counted, err) }
		}).SignIn(request(t), "ada@saltbush.example", "p")
		require.ErrorIs(t, err, account.ErrUnavailable, body)
		require.Len(t, counted, 1, body)
		require.ErrorIs(t, counted[0], upstream.ErrContractViolation, body)
	}
	var counted []error
	a, err := serve(t, respond(http.StatusOK, replaced(`"Ada Okafor"`, `null`)), func(o *data.Options) {
		o.OnResponse = func(err error) { counted = append(counted, err) }
	}).Account(request(t), "acc_1")
	require.NoError(t, err)
	require.Equal(t, []error{nil}, counted)
	assert.Equal(t, a.Email, a.DisplayName())
}

func TestUnknownRoleIsMember(t *testing.T) {
	t.Parallel()
	for _, role := range []string{`"member"`, `"Owner"`, `"OWNER"`, `"admin"`, `""`, `null`} {
		a, err := serve(t, respond(http.StatusOK, replaced(`"owner"`, role))).Account(request(t), "acc_1")
		require.NoError(t, err)
		assert.Equal(t, account.RoleMember, a.Role, role)
		assert.False(t, a.IsOwner())
	}
}

// A surplus response on a connection, or a service or proxy that mixes up responses, must not sign a user in as somebody else.
func TestResponseAboutAnotherAccountIsRejected(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *account.Client) error{
		"sign-in": func(ctx context.Context, c *account.Client) error {
			_, err := c.SignIn(ctx, "eve@saltbush.example", "wrong-password")
			return err
		},
		"sign-in with a similar address": func(ctx context.Context, c *account.Client) error {
			_, err := c.SignIn(ctx, "ada@saltbush.example.net", "wrong-password")
			return err
		},
		"lookup": func(ctx context.Context, c *account.Client) error {
			_, err := c.Account(ctx, "acc_2")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zap.DebugLevel)
			var reported []error
			c := serve(t, respond(http.StatusOK, response), func(o *data.Options) {
				o.Log, o.OnResponse = zap.New(core), func(err error) { reported = append(reported, err) }
			})
			err := call(request(t), c)
			require.ErrorIs(t, err, account.ErrWrongAccount)
			require.ErrorIs(t, err, account.ErrUnavailable)
			require.Equal(t, []error{err}, reported)
			lines := logs.FilterField(zap.String("event", "wrong_account")).FilterLevelExact(zap.ErrorLevel).All()
			require.Len(t, lines, 1)
			fields := lines[0].ContextMap()
			assert.Equal(t, "req-7", fields["request_id"])
			assert.Equal(t, "acc_1", fields["received_account"])
			assert.Equal(t, "biz_1", fields["received_business"])
			for _, secret := range []string{"wrong-password", "saltbush.example", "Ada"} {
				assert.NotContains(t, err.Error()+fmt.Sprint(fields), secret)
			}
		})
	}
}

func TestSpellingsOfTheAddressAreTheSameAccount(t *testing.T) {
	t.Parallel()
	c := serve(t, respond(http.StatusOK, response))
	for _, typed := range []string{"Ada@Saltbush.EXAMPLE", " ada@saltbush.example ", "ａｄａ@saltbush.example", "adá@saltbush.example"} {
		a, err := c.SignIn(request(t), typed, "p")
		require.NoError(t, err, typed)
		assert.Equal(t, ada, a)
	}
}

func TestIDCannotEscapeThePath(t *testing.T) {
	t.Parallel()
	paths := make(chan string, 10)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		paths <- r.RequestURI
		respond(http.StatusNotFound, `{"code": "NOT_FOUND"}`)(w, r)
	})
	for id, want := range map[string]string{
		"../sign-in": "/connect/v1/accounts/..%2Fsign-in",
		"a?b=c":      "/connect/v1/accounts/a%3Fb=c",
		"a%2fb":      "/connect/v1/accounts/a%252fb",
	} {
		_, err := c.Account(request(t), id)
		require.ErrorIs(t, err, account.ErrUnknown)
		assert.Equal(t, want, <-paths)
	}
	for _, id := range []string{"", "a b", "a\nb", "ä", strings.Repeat("a", 256)} {
		_, err := c.Account(request(t), id)
		require.ErrorIs(t, err, account.ErrUnknown)
	}
	require.Empty(t, paths, "an invalid id is not requested")
}

func TestTimeoutIsUnavailable(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	c := serve(t, func(http.ResponseWriter, *http.Request) { <-release },
		func(o *data.Options) { o.Timeout = 50 * time.Millisecond })
	t.Cleanup(func() { close(release) }) // before the server is closed
	_, err := c.SignIn(request(t), "ada@saltbush.example", "p")
	require.ErrorIs(t, err, account.ErrUnavailable)

	ctx, cancel := context.WithCancel(request(t))
	cancel()
	_, err = c.Account(ctx, "acc_1")
	require.ErrorIs(t, err, account.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
}

func TestMissingOptionIsRejected(t *testing.T) {
	t.Parallel()
	for _, remove := range []func(*data.Options){
		func(o *data.Options) { o.Host = "" },
		func(o *data.Options) { o.Do = nil },
		func(o *data.Options) { o.Timeout = 0 },
		func(o *data.Options) { o.Log = nil },
	} {
		o := data.Options{
			Host: "api.example.com", Do: calltest.Over(http.DefaultTransport), Timeout: time.Second, Log: zap.NewNop(),
		}
		remove(&o)
		_, err := account.NewClient(o)
		require.ErrorContains(t, err, "required")
	}
}
