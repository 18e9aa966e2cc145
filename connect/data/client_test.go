package data_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/internal/test/calltest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
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

// call makes a call of an operation of the embedded definition. A write has an idempotency key.
func call(t *testing.T, c *data.Client, operation string, path ...string) (jsontext.Value, error) {
	t.Helper()
	r := data.Request{Operation: connecttest.Operation(t, operation), Path: path}
	if !r.Operation.Read {
		r.Write.Key = "k"
	}
	if r.Operation.Body != nil {
		r.Body, r.Media = []byte("{}"), "application/json"
	}
	return c.Call(t.Context(), caller(), r)
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
		respond(200, connecttest.Record("faq", map[string]any{"id": "a:b@c", "version": 4, "more": 1}))(w, r)
	})
	replayed := false
	replace := connecttest.Operation(t, "replaceFaq")
	sent, media, err := c.Body(replace, "biz_1", []byte(`{"question":"q","answer":"a"}`))
	require.NoError(t, err)
	faq, err := c.Call(t.Context(), caller(), data.Request{
		Operation: replace, Path: []string{"a:b@c"}, Body: sent, Media: media,
		Write: data.Write{Key: "key-1", IfMatch: `"3"`, Replayed: &replayed},
	})
	require.NoError(t, err)
	require.Contains(t, string(faq), `"version":4`)
	require.True(t, replayed)
	got, body := <-requests, <-bodies
	require.Equal(t, "/connect/v1/receptionist/faqs/a:b@c", got.RequestURI)
	require.Equal(t, http.MethodPut, got.Method)
	for name, want := range map[string]string{
		"X-Business-Id": "biz_1", "X-Account-Id": "acc_1", "X-Request-Id": "req_1", "Content-Type": "application/json",
		"Idempotency-Key": "key-1", "If-Match": `"3"`, "Accept-Encoding": "identity",
	} {
		assert.Equal(t, []string{want}, got.Header[name], name)
	}
	require.JSONEq(t, `{"question":"q","answer":"a"}`, string(body))
	assert.NotContains(t, string(faq), "biz_1", "the tenant")
	assert.NotContains(t, string(faq), "more", "what is not documented")
}

func TestBodyThatTheDefinitionDoesNotAllowIsNotSent(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a call was made") })
	for name, body := range map[string]string{
		"not an object": `[]`, "a member is missing": `{"question":"q"}`, "a wrong type": `{"question":"q","answer":1}`,
		"an undocumented member": `{"question":"q","answer":"a","business_id":"biz_2"}`, "twice": `{"question":"q","answer":"a","answer":"b"}`,
		"too long": `{"question":"` + strings.Repeat("x", 301) + `","answer":"a"}`, "not JSON": `{`, "nothing": ``,
	} {
		_, _, err := c.Body(connecttest.Operation(t, "replaceFaq"), "biz_1", []byte(body))
		require.Error(t, err, name)
	}
}

// The issuer's host is not known to a service that is called over TLS.
func TestLocationMayHaveTheServicesOwnAddress(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "things.yaml", Text: []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request, paths: {
		/things: {post: {responses: {"201": {description: "", headers: {Location: {schema: {type: string}}}}}}},
		"/things/{id}": {get: {parameters: [{name: id, in: path, required: true, schema: {type: string}}], responses: {"204": {description: ""}}}}}}`)}, definition.Options{})
	require.NoError(t, err)
	m, _ := d.API.Match("/v1/things")
	var issuer string
	for _, c := range []struct{ host, want string }{
		{"https://data.internal:8443", "/v1/things/5"}, {"http://issuer", "/v1/things/5"}, {"https://evil.example", ""},
	} {
		client, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", strings.Replace(c.host, "issuer", issuer, 1)+"/v1/things/5")
			w.WriteHeader(http.StatusCreated)
		}, func(o *data.Options) {
			do := o.Do
			issuer, o.API, o.Do = o.Host, d.API, func(ctx context.Context, call upstream.Call) (*upstream.Response, error) {
				res, err := do(ctx, call)
				if err == nil {
					res.Hosts[3] = "data.internal:8443"
				}
				return res, err
			}
		})
		var location string
		_, err := client.Call(t.Context(), caller(), data.Request{Operation: m.Path.Operation(http.MethodPost), Write: data.Write{Location: &location}})
		require.NoError(t, err)
		require.Equal(t, c.want, location, c.host)
	}
}

func TestFiltersBecomeQueryParameters(t *testing.T) {
	t.Parallel()
	uris := make(chan string, 1)
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		uris <- r.RequestURI
		respond(200, `{"appointments":[],"next_cursor":"n1"}`)(w, r)
	})
	list := connecttest.Operation(t, "listAppointments")
	page, err := c.Call(t.Context(), caller(), data.Request{
		Operation: list, Query: "calendar_id=c%261&contact_id=7&status=scheduled,confirmed&from=2026-03-05T09%3A00%3A00-05%3A00&limit=10&cursor=abc",
	})
	require.NoError(t, err)
	assert.JSONEq(t, `{"appointments":[],"next_cursor":"n1"}`, string(page))
	got, err := url.Parse(<-uris)
	require.NoError(t, err)
	assert.Equal(t, "/connect/v1/appointments", got.Path)
	assert.Equal(t, url.Values{
		"calendar_id": {"c&1"}, "contact_id": {"7"}, "status": {"scheduled,confirmed"}, "from": {"2026-03-05T09:00:00-05:00"}, "limit": {"10"},
		"cursor": {"abc"},
	}, got.Query())

	for _, bad := range []string{"limit=0", "limit=ten", "status=late", "contact_id=7&contact_id=8", "from=tomorrow"} {
		_, err := c.Call(t.Context(), caller(), data.Request{Operation: list, Query: bad})
		_, ok := errors.AsType[*upstream.ParameterError](err)
		assert.True(t, ok, "%s: %v", bad, err)
		assert.Empty(t, uris, "nothing is sent")
	}
}

func TestIDCannotEscapeThePath(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a call was made") })
	for _, id := range []string{"", ".", "..", "../18", "%2e%2e%2F18", "a/b", "a b", strings.Repeat("x", 200)} {
		_, err := call(t, c, "getJob", id)
		_, ok := errors.AsType[*upstream.ParameterError](err)
		require.True(t, ok, "%q: %v", id, err)
	}
	for _, missing := range []data.Caller{{BusinessID: "biz_1"}, {AccountID: "acc_1"}} {
		_, err := c.Call(t.Context(), missing, data.Request{Operation: connecttest.Operation(t, "getJob"), Path: []string{"a"}})
		require.Error(t, err)
	}
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
			page, err := call(t, c, "listCalendars")
			require.ErrorIs(t, err, upstream.ErrContractViolation)
			assert.Empty(t, page)
		})
	}
	c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"calendars":[]}`) })
	_, err := call(t, c, "listCalendars")
	require.ErrorIs(t, err, upstream.ErrContractViolation)
}

func TestCrossTenantResponseIsRejectedWithAnAlert(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string]string{
		"another": `"business_id":"biz_2",`, "none": "", "an empty one": `"business_id":"",`, "another case": `"business_id":"BIZ_1",`,
		"null": `"business_id":null,`, "a number": `"business_id":1,`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine := `{"id":"1","business_id":"biz_1","name":"Mine","owner_name":null,"time_zone":"UTC"}`
			theirs := `{"id":"2",` + owner + `"name":"Theirs","owner_name":null,"time_zone":"UTC"}`
			c, logs := serve(t, respond(200, `{"calendars":[`+mine+`,`+theirs+`],"next_cursor":null}`))
			page, err := call(t, c, "listCalendars")
			kind, event := upstream.ErrCrossTenantRecord, "cross_tenant"
			if name == "none" || name == "null" {
				kind, event = upstream.ErrMissingTenant, "missing_tenant"
			}
			require.ErrorIs(t, err, kind)
			require.ErrorIs(t, err, upstream.ErrContractViolation)
			assert.Empty(t, page)
			assert.Equal(t, 1, logs.FilterMessage("rejected a data service's response").FilterField(zap.String("event", event)).Len())
			assert.NotContains(t, fmt.Sprint(logs.All()[0].ContextMap()), "Theirs")
		})
	}
	c, logs := serve(t, respond(200, `{"business_id":"biz_2","service_areas":[],"version":1,"updated_at":"2026-03-05T14:30:00Z"}`))
	hours, err := call(t, c, "getServiceAreas")
	require.ErrorIs(t, err, upstream.ErrCrossTenantRecord)
	assert.Empty(t, hours)
	assert.Equal(t, 1, logs.FilterMessage("rejected a data service's response").FilterField(zap.String("event", "cross_tenant")).Len())
}

func TestErrorAboutAnotherBusinessIsRejectedWithAnAlert(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "x.yaml", Text: []byte(`
openapi: 3.1.0
info: {title: Odd, version: "1"}
servers: [{url: /odd}]
x-gatehouse-tenant: account
paths:
  /things:
    get:
      responses:
        "200": {description: It., content: {application/json: {schema: {$ref: "#/components/schemas/Thing"}}}}
        4XX: {description: No., content: {application/json: {schema: {type: object, properties: {error: {type: string}, code: {type: string}, other: {$ref: "#/components/schemas/Thing"}}}}}}
components:
  schemas:
    Thing: {type: object, required: [account], properties: {account: {type: string}, name: {type: string}}}
`)}, definition.Options{})
	require.NoError(t, err)
	for _, status := range []int{403, 404, 409, 422} {
		var reported error
		c, logs := serve(t, respond(status, `{"error":"It is Jane's.","code":"FORBIDDEN","other":{"account":"biz_2","name":"Jane"}}`),
			func(o *data.Options) { o.OnResponse = func(err error) { reported = err } })
		_, err = c.Call(t.Context(), caller(), data.Request{Operation: d.API.Operations()[0]})
		e, ok := errors.AsType[*data.Error](err)
		require.True(t, ok)
		require.ErrorIs(t, err, upstream.ErrCrossTenantRecord, status)
		require.ErrorIs(t, reported, upstream.ErrCrossTenantRecord, status)
		assert.Empty(t, e.Message)
		assert.Equal(t, 1, logs.FilterField(zap.String("event", "cross_tenant")).Len())
		assert.NotContains(t, fmt.Sprint(logs.All()[0].ContextMap()), "Jane")
	}
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
			_, err = call(t, c, "createFaq")
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
	for key, sent := range map[string][]string{"same": {"same", "same"}, "": {""}} { // without a key, a write is not retried
		keys := make(chan string, 10)
		var n atomic.Int64
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			keys <- r.Header.Get("Idempotency-Key")
			if n.Add(1) == 1 {
				panic(http.ErrAbortHandler)
			}
			respond(200, `{"deleted":true,"id":1}`)(w, r)
		})
		_, err := c.Call(t.Context(), caller(), data.Request{
			Operation: connecttest.Operation(t, "deleteContact"), Path: []string{"1"}, Write: data.Write{Key: key},
		})
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
			_, err := call(t, c, "getContact", "7")
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
	_, err := call(t, c, "getBusiness")
	close(leave)
	require.ErrorIs(t, err, data.ErrTimeout)
	require.ErrorIs(t, err, data.ErrUnavailable)
	require.LessOrEqual(t, n.Load(), int64(1))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Call(ctx, caller(), data.Request{Operation: connecttest.Operation(t, "getBusiness")})
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
		"an error of a caller": {422, `{"error":"none","code":"INVALID","details":null}`, nil},
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
			_, _ = call(t, client, "listCalendars")
			require.Len(t, reported, 1)
			require.ErrorIs(t, reported[0], c.want)
		})
	}
}

// The query contains arguments of the tool, which must not be logged.
func TestNetworkErrorDoesNotQuoteTheQuery(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := c.Call(t.Context(), caller(), data.Request{Operation: connecttest.Operation(t, "listCalendars"), Query: "cursor=canary"})
	require.ErrorIs(t, err, data.ErrUnavailable)
	require.ErrorIs(t, err, io.EOF)
	assert.NotContains(t, err.Error(), "canary")
	assert.NotContains(t, err.Error(), "http://")
}
