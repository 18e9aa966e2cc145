package mcp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

func TestASessionEndsWhenItIsNotUsedForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		var s sessions
		s.init(10, idle)
		opened, err := sdk.NewServer(&sdk.Implementation{Name: "test"}, nil).
			Connect(t.Context(), &sdk.StreamableServerTransport{SessionID: "s"}, nil)
		require.NoError(t, err)
		require.True(t, s.add("g", opened))
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}

		pass(idle - 1)
		s.use("another connection", "s")()
		s.use("g", "another session")()
		over, too := s.use("g", "s"), s.use("g", "s")
		pass(10 * idle)
		over()
		pass(10 * idle)
		require.True(t, s.has("g", "s"), "a request is under way")
		require.False(t, s.has("another connection", "s"))
		too()
		pass(idle - 1)
		require.True(t, s.has("g", "s"))
		late := s.use("g", "s")
		late()
		pass(idle - 1)
		require.True(t, s.has("g", "s"))
		pass(1)
		require.False(t, s.has("g", "s"))
		require.Empty(t, s.grants)
		require.NoError(t, opened.Wait())

		opened, err = sdk.NewServer(&sdk.Implementation{Name: "test"}, nil).
			Connect(t.Context(), &sdk.StreamableServerTransport{SessionID: "s"}, nil)
		require.NoError(t, err)
		require.True(t, s.add("g", opened))
		over = s.use("g", "s")
		require.NoError(t, opened.Close()) // by its client, while a request of it is under way
		synctest.Wait()
		require.False(t, s.has("g", "s"))
		over()
	})
}

func TestASessionThatItsClientEndsIsOverAtOnce(t *testing.T) {
	t.Parallel()
	var s sessions
	s.init(10, time.Minute)
	opened, err := sdk.NewServer(&sdk.Implementation{Name: "test"}, nil).
		Connect(t.Context(), &sdk.StreamableServerTransport{SessionID: "s"}, nil)
	require.NoError(t, err)
	require.True(t, s.add("g", opened))
	s.end("s")
	// whenever the transport comes to close it: the client may have its answer before that is noticed here
	require.False(t, s.has("g", "s"))
	require.True(t, s.hasEnded("s"))
	require.NoError(t, opened.Close())
}

// answering is a data service that gives every call the same answer.
type answering string

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(string(a))),
	}, nil
}

func TestASessionIsKeptByCallsThatTheSDKDoesNotSee(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		client, err := data.New(data.Options{
			BaseURL: "http://data.internal", Transport: answering(`{"contacts":[],"next_cursor":null}`), Log: zap.NewNop(),
		})
		require.NoError(t, err)
		s, err := New(Options{
			Resource: "http://example.com/mcp", Data: client, Accounts: always{}, Limiter: always{}, Log: zap.NewNop(),
			Audit: struct{ Auditor }{}, Challenge: struct{ Challenger }{}, Memory: struct{ Memory }{},
			AccountTTL: -1, SessionIdle: idle,
		})
		require.NoError(t, err)
		post := func(session, body string) *httptest.ResponseRecorder {
			r := ordinaryRequest(t, "2025-11-25")
			r.Header.Set("Authorization", "Bearer x")
			r.Header.Set(headerSession, session)
			r.Body = io.NopCloser(strings.NewReader(body))
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r.WithContext(oauth.WithGrant(r.Context(), oauth.Grant{
				ID: "g", BusinessID: "b", AccountID: "a", Scopes: scope.Everything(),
			})))
			require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
			return w
		}
		began := post("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
			`"capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}}`)
		id := began.Header().Get(headerSession)
		require.True(t, s.sessions.has("g", id), "%s", began.Body)

		require.NotNil(t, s.direct(ordinaryRequest(t, "2025-11-25"), []byte(ordinary)), "the SDK does not see it")
		for range 5 {
			<-time.After(idle - 1)
			synctest.Wait()
			require.Contains(t, post(id, ordinary).Body.String(), `"contacts":[]`)
		}
		<-time.After(idle - 1)
		synctest.Wait()
		require.True(t, s.sessions.has("g", id))
		<-time.After(1)
		synctest.Wait()
		require.False(t, s.sessions.has("g", id), "nothing else has kept it")
		require.NoError(t, s.Close())
	})
}
