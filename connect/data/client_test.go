package data_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/internal/test/calltest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

func caller() data.Caller {
	return data.Caller{BusinessID: "biz_1", AccountID: "acc_1", RequestID: "req_1"}
}

// serve returns a client of a service with the handler h.
func serve(t *testing.T, h http.HandlerFunc, change ...func(*data.Options)) (*data.Client, *observer.ObservedLogs) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	core, logs := observer.New(zap.DebugLevel)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	o := data.Options{Host: server.Listener.Addr().String(), Do: calltest.Over(transport), Log: zap.New(core)}
	for _, f := range change {
		f(&o)
	}
	c, err := data.New(o)
	require.NoError(t, err)
	return c, logs
}

func respond(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestCallCarriesOnlyTheCallersIdentity(t *testing.T) {
	t.Parallel()
	requests, bodies := make(chan *http.Request, 1), make(chan []byte, 1)
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		requests <- r
		bodies <- body
		w.Header().Set("Idempotency-Replayed", "true")
		respond(200, `{"faq":{"id":"a b/c","business_id":"biz_1","question":"q","answer":"a","enabled":true,"version":4,`+
			`"created_at":"2026-03-05T14:30:00Z","updated_at":"2026-03-05T14:30:00Z","more":1}}`)(w, r)
	})
	replayed := false
	faq, err := c.FAQs().Replace(t.Context(), caller(), data.Write{Key: "key-1", Version: 3, Replayed: &replayed}, "a b/c",
		data.Patch{"question": "q", "answer": "a"})
	require.NoError(t, err)
	require.Equal(t, int64(4), faq.Version)
	require.True(t, replayed)
	got, body := <-requests, <-bodies
	require.Equal(t, "/connect/v1/receptionist/faqs/a%20b%2Fc", got.RequestURI)
	require.Equal(t, http.MethodPut, got.Method)
	for name, want := range map[string]string{
		"X-Business-Id": "biz_1", "X-Account-Id": "acc_1", "X-Request-Id": "req_1",
		"Idempotency-Key": "key-1", "If-Match": `"3"`, "Accept-Encoding": "identity",
	} {
		assert.Equal(t, []string{want}, got.Header[name], name)
	}
	require.JSONEq(t, `{"question":"q","answer":"a"}`, string(body))
	written, err := json.Marshal(faq)
	require.NoError(t, err)
	assert.NotContains(t, string(written), "biz_1")
}

func TestFiltersBecomeQueryParameters(t *testing.T) {
	t.Parallel()
	uris := make(chan string, 1)
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		uris <- r.RequestURI
		respond(200, `{"appointments":[],"next_cursor":"n1"}`)(w, r)
	})
	page, err := c.Appointments().List(t.Context(), caller(), data.AppointmentFilter{
		CalendarID: "c&1", ContactID: 7, From: time.Date(2026, 3, 5, 9, 0, 0, 0, time.FixedZone("", -5*3600)),
		List: data.List{Limit: 10, Cursor: "abc"},
	})
	require.NoError(t, err)
	assert.Equal(t, "n1", page.Next)
	assert.Empty(t, page.Items)
	assert.Equal(t, "/connect/v1/appointments?calendar_id=c%261&contact_id=7&cursor=abc&from=2026-03-05T14%3A00%3A00Z&limit=10", <-uris)
}

func TestIDCannotEscapeThePath(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a call was made") })
	for _, id := range []string{"", ".", ".."} {
		_, err := c.Jobs().Get(t.Context(), caller(), id)
		require.ErrorIs(t, err, data.ErrNotFound)
	}
	_, err := c.Jobs().Get(t.Context(), data.Caller{BusinessID: "biz_1"}, "x")
	require.Error(t, err)
}

func TestUndocumentedResponseIsRejected(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"not JSON":              "<html>",
		"another name":          `{"calendar":[]}`,
		"null for a list":       `{"calendars":null,"next_cursor":null}`,
		"a string for a list":   `{"calendars":"x","next_cursor":null}`,
		"a cursor with a space": `{"calendars":[],"next_cursor":"a b"}`,
		"a long cursor":         `{"calendars":[],"next_cursor":"` + strings.Repeat("x", 513) + `"}`,
		"bad UTF-8":             "{\"calendars\":[],\"next_cursor\":null,\"x\":\"\xff\"}",
		"something after it":    `{"calendars":[],"next_cursor":null}{}`,
		"too long":              `{"calendars":[],"next_cursor":null}` + strings.Repeat(" ", data.MaxResponseSize),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, respond(200, body))
			page, err := c.Calendars().List(t.Context(), caller(), data.List{})
			require.ErrorIs(t, err, upstream.ErrContractViolation)
			assert.Empty(t, page)
		})
	}
	c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"calendars":[]}`) })
	_, err := c.Calendars().List(t.Context(), caller(), data.List{})
	require.ErrorIs(t, err, upstream.ErrContractViolation)
}

func TestCrossTenantResponseIsRejectedWithAnAlert(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string]string{
		"another": `"business_id":"biz_2",`, "none": "", "an empty one": `"business_id":"",`, "another case": `"business_id":"BIZ_1",`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine := `{"id":"1","business_id":"biz_1","name":"Mine","owner_name":null,"time_zone":"UTC"}`
			theirs := `{"id":"2",` + owner + `"name":"Theirs","owner_name":null,"time_zone":"UTC"}`
			c, logs := serve(t, respond(200, `{"calendars":[`+mine+`,`+theirs+`],"next_cursor":null}`))
			page, err := c.Calendars().List(t.Context(), caller(), data.List{})
			require.ErrorIs(t, err, upstream.ErrCrossTenantRecord)
			require.ErrorIs(t, err, upstream.ErrContractViolation)
			assert.Empty(t, page)
			assert.Equal(t, 1, logs.FilterMessage("rejected a data service's response").FilterField(zap.String("event", "cross_tenant")).Len())
			assert.NotContains(t, logs.All()[0].ContextMap(), "Theirs")
		})
	}
	c, logs := serve(t, respond(200, `{"business_id":"biz_2","hours":[],"version":1,"updated_at":"2026-03-05T14:30:00Z"}`))
	hours, err := c.Hours(t.Context(), caller())
	require.ErrorIs(t, err, upstream.ErrCrossTenantRecord)
	assert.Empty(t, hours)
	assert.Equal(t, 1, logs.FilterMessage("rejected a data service's response").FilterField(zap.String("event", "cross_tenant")).Len())
}

func TestErrorTextIsLimited(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ details, want int }{
		"details":          {10, 10},
		"too many details": {40, 32},
		"too large a body": {100, 0}, // is not read to its end, and ignored
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			details := slices.Repeat([]data.Detail{{Field: "f\u0000", Problem: strings.Repeat("ä", 600), Allowed: "a\nb"}}, test.details)
			body, err := json.Marshal(map[string]any{"error": strings.Repeat("x", 5000), "code": "CONFLICT", "details": details})
			require.NoError(t, err)
			c, _ := serve(t, respond(409, string(body)))
			_, err = c.Contacts().Create(t.Context(), caller(), data.Write{Key: "k"}, data.Patch{})
			e, ok := errors.AsType[*data.Error](err)
			require.True(t, ok)
			require.Len(t, e.Details, test.want)
			for _, d := range e.Details {
				assert.LessOrEqual(t, len(d.Problem), 500)
				assert.Equal(t, "f", d.Field)
				assert.Equal(t, "a b", d.Allowed)
			}
			assert.LessOrEqual(t, len(e.Message), 500)
			assert.NotContains(t, err.Error(), "xxx")
		})
	}
}

func TestUndeliveredCallIsRetriedOnce(t *testing.T) {
	t.Parallel()
	for key, sent := range map[data.Key][]string{"same": {"same", "same"}, "": {""}} { // without a key, a write is not retried
		keys := make(chan string, 10)
		var n atomic.Int64
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			keys <- r.Header.Get("Idempotency-Key")
			if n.Add(1) == 1 {
				panic(http.ErrAbortHandler)
			}
			respond(200, `{"deleted":true,"id":1}`)(w, r)
		})
		err := c.Contacts().Delete(t.Context(), caller(), data.Write{Key: key}, "1")
		if key == "" {
			require.ErrorIs(t, err, data.ErrUnavailable)
		} else {
			require.NoError(t, err)
		}
		require.Len(t, keys, len(sent))
		for _, want := range sent {
			assert.Equal(t, want, <-keys)
		}
	}
}

// Reads are retried by the transport, which knows the other addresses of the data service.
func TestReadIsSentOnce(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]http.HandlerFunc{
		"unavailable": respond(503, `{"error":"x","code":"SERVICE_UNAVAILABLE"}`),
		"undelivered": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int64
			c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				sent.Add(1)
				fail(w, r)
			})
			_, err := c.Contacts().Get(t.Context(), caller(), "7")
			require.ErrorIs(t, err, data.ErrUnavailable)
			assert.Equal(t, int64(1), sent.Load())
		})
	}
}

func TestTimeoutIsNotRetried(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	leave := make(chan struct{})
	c, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		n.Add(1)
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	}, func(o *data.Options) { o.Timeout = 250 * time.Millisecond })
	_, err := c.Business(t.Context(), caller())
	close(leave)
	require.ErrorIs(t, err, data.ErrTimeout)
	require.ErrorIs(t, err, data.ErrUnavailable)
	require.LessOrEqual(t, n.Load(), int64(1))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Business(ctx, caller())
	require.ErrorIs(t, err, context.Canceled)
}

func TestMissingOptionIsRejected(t *testing.T) {
	t.Parallel()
	for _, o := range []data.Options{
		{Do: calltest.Over(http.DefaultTransport), Log: zap.NewNop()},
		{Host: "api.example.com", Log: zap.NewNop()},
		{Host: "api.example.com", Do: calltest.Over(http.DefaultTransport)},
	} {
		_, err := data.New(o)
		require.ErrorContains(t, err, "required")
	}
}

func TestResponsesAreReported(t *testing.T) {
	t.Parallel()
	calendar := func(owner string) string {
		return `{"calendars":[{"id":"1","business_id":"` + owner + `","name":"n","owner_name":null,"time_zone":"UTC"}],"next_cursor":null}`
	}
	for name, c := range map[string]struct {
		status int
		body   string
		want   error
	}{
		"valid":                {200, calendar("biz_1"), nil},
		"an error of a caller": {404, `{"error":"none","code":"NOT_FOUND"}`, nil},
		"cross-tenant":         {200, calendar("biz_2"), upstream.ErrCrossTenantRecord},
		"not JSON":             {200, `<`, upstream.ErrContractViolation},
		"refused":              {401, `{}`, data.ErrGatewayRejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var reported []error
			client, _ := serve(t, respond(c.status, c.body), func(o *data.Options) {
				o.OnResponse = func(err error) { reported = append(reported, err) }
			})
			_, _ = client.Calendars().List(t.Context(), caller(), data.List{})
			require.Len(t, reported, 1)
			require.ErrorIs(t, reported[0], c.want)
		})
	}
}

// The query contains arguments of the tool, which must not be logged.
func TestNetworkErrorDoesNotQuoteTheQuery(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := c.Calendars().List(t.Context(), caller(), data.List{Cursor: "canary"})
	require.ErrorIs(t, err, data.ErrUnavailable)
	require.ErrorIs(t, err, io.EOF)
	assert.NotContains(t, err.Error(), "canary")
	assert.NotContains(t, err.Error(), "http://")
}
