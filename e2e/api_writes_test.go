package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// writeShop is a shop whose data service keeps the bodies that reach it.
type writeShop struct {
	*shopAPI

	mu     sync.Mutex
	bodies []string
}

func serveWriteShop(t *testing.T, app string) *writeShop {
	t.Helper()
	return &writeShop{shopAPI: serveShop(t, app)}
}

// responds lets the data service respond, and keeps the request's body.
func (s *writeShop) responds(status int, body string, header ...string) {
	s.data.setResponse(func(w http.ResponseWriter, r *http.Request) {
		got, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.bodies = append(s.bodies, string(got))
		s.mu.Unlock()
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		if body != "" {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

func (s *writeShop) lastBody(t *testing.T) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotEmpty(t, s.bodies)
	return s.bodies[len(s.bodies)-1]
}

// write sends a request with a body over a protocol.
func (s *writeShop) write(t *testing.T, protocol, method, target, body string, fields []field) gatewaytest.Response {
	t.Helper()
	switch fields = append(fields, field{"content-length", strconv.Itoa(len(body))}); protocol {
	case overHTTP2:
		return dialH2(t, s.g.Addr).do(body, append(h2Request(method, target), lowerCase(fields)...)...)
	case overHTTP3:
		return s.h3.do(body, append(h3Request(method, target), lowerCase(fields)...)...)
	}
	return raw(t, s.g.Addr, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s", method, target, apiHost, linesOf(fields), body)+lastRequest)
}

func jsonBody(by gatewaytest.Caller, method, target, body string, more ...field) []field {
	return append(append(signedFields(by, method, target, body), field{"content-type", "application/json"}), more...)
}

const newOrder = `{ "note" : "caf\u00e9", "total":"9.50" }`

//nolint:tparallel // the subtests share a data service
func TestWritesReachTheDataServiceAsTheyWereChecked(t *testing.T) {
	t.Parallel()
	s := serveWriteShop(t, "assertion "+writeAssertionKey(t)+" {\n\t\t\tissuer https://api.example.com\n\t\t}\n\t\t"+highLimits)
	for i, protocol := range []string{overHTTP1, overHTTP2, overHTTP3} {
		key := fmt.Sprint("order-no-", i)
		s.responds(201, `{"id":"o-1","account":17,"total":"9.50","cost":"5"}`, "Location", "/v1/orders/o-1")
		body := strings.Replace(newOrder, "caf", "caf"+key, 1) // so that each is another write
		a := s.write(t, protocol, "POST", "/v1/orders", body, jsonBody(s.writer, "POST", "/v1/orders", body, field{"idempotency-key", key}, field{"x-business-id", "18"}, field{"x-http-method-override", "DELETE"}))
		require.Equal(t, 201, a.Status, a.Body)
		require.Equal(t, `{"id":"o-1","total":"9.50"}`, a.Body)
		require.Equal(t, "/v1/orders/o-1", a.Header.Get("Location"))
		require.Equal(t, `{"total":"9.50","note":"caf`+key+`é"}`, s.lastBody(t))
		got := s.data.last(t)
		require.Equal(t, "POST", got.Method)
		require.Equal(t, []string{key}, got.Header["Idempotency-Key"])
		require.Equal(t, []string{"17"}, got.Header["X-Business-Id"])
		require.Equal(t, []string{"application/json"}, got.Header["Content-Type"])
		require.Equal(t, int64(len(s.lastBody(t))), got.ContentLength)
		require.Empty(t, got.Header["X-Http-Method-Override"])
		claims, err := base64.RawURLEncoding.DecodeString(strings.Split(got.Header.Get("X-Gateway-Assertion"), ".")[1])
		require.NoError(t, err)
		require.Contains(t, string(claims), `"op":"createOrder"`)
	}
	t.Run("a merge patch", func(t *testing.T) {
		s.responds(200, goodOrder, "Etag", `"v2"`)
		const target, patch = "/v1/orders/o-1", `{"note":null}`
		a := s.write(t, overHTTP1, "PATCH", target, patch, append(signedFields(s.writer, "PATCH", target, patch), field{"Content-Type", "application/merge-patch+json"}, field{"If-Match", `"v1"`}))
		require.Equal(t, 200, a.Status, a.Body)
		require.Equal(t, `"v2"`, a.Header.Get("Etag"))
		require.Equal(t, []string{"application/merge-patch+json"}, s.data.last(t).Header["Content-Type"])
		require.Equal(t, []string{`"v1"`}, s.data.last(t).Header["If-Match"])
		require.Equal(t, patch, s.lastBody(t))
	})
	t.Run("without a body", func(t *testing.T) {
		s.responds(204, "")
		for _, method := range []string{"POST", "DELETE"} {
			a := s.write(t, overHTTP1, method, "/v1/orders/o-1/shipments", "", signedFields(s.writer, method, "/v1/orders/o-1/shipments", ""))
			require.Equal(t, 204, a.Status, a.Body)
			require.Empty(t, s.lastBody(t))
			require.Empty(t, s.data.last(t).Header["Content-Type"])
		}
	})
	t.Run("what the data service refuses", func(t *testing.T) {
		for status, code := range map[int]string{404: "NOT_FOUND", 409: "BAD_REQUEST", 422: "BAD_REQUEST"} {
			s.responds(status, `{"secret":1}`)
			body := fmt.Sprintf(`{"total":"%d"}`, status)
			a := s.write(t, overHTTP1, "POST", "/v1/orders", body, jsonBody(s.writer, "POST", "/v1/orders", body))
			require.Empty(t, requireProblem(t, a, status, code).Detail)
			require.NotContains(t, a.Body, "secret")
		}
		const target, patch = "/v1/orders/o-1", `{"note":"x"}`
		s.responds(409, `{"order":`+strings.Replace(goodOrder, "17", "18", 1)+`}`, "Content-Type", "application/problem+json")
		a := s.write(t, overHTTP1, "PATCH", target, patch, append(signedFields(s.writer, "PATCH", target, patch), field{"Content-Type", "application/merge-patch+json"}, field{"If-Match", `"v1"`}))
		require.Equal(t, maybeDone+".", requireProblem(t, a, 502, "UPSTREAM_FAILED").Detail, "another business's order")
	})
}

// maybeDone is the beginning of what callers are told.
const maybeDone = "The change may have been made. Find out before you send it again"

// twoAddresses starts two data services, and returns their URLs and the transport of the configuration.
func twoAddresses(t *testing.T, scheme string, handler http.Handler) (urls, transport string) {
	t.Helper()
	for range 2 {
		server := httptest.NewUnstartedServer(handler)
		if scheme == "http" {
			server.Start()
		} else {
			server.StartTLS()
			ca := filepath.Join(t.TempDir(), "ca.pem")
			require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
			transport = "transport http {\n\t\t\t\ttls_trust_pool file " + ca + "\n\t\t\t\ttls_server_name example.com\n\t\t\t}"
		}
		t.Cleanup(server.Close)
		urls += " " + server.URL
	}
	return urls, transport
}

//nolint:tparallel // the subtests share a data service
func TestRefusedWritesNeverReachTheDataService(t *testing.T) {
	t.Parallel()
	s := serveWriteShop(t, highLimits)
	s.responds(201, goodOrder)
	type violation struct{ Pointer, Reason string }
	order := func(body string) (string, string, string, []field) {
		return "POST", "/v1/orders", body, jsonBody(s.writer, "POST", "/v1/orders", body)
	}
	patch := func(body string, more ...field) (string, string, string, []field) {
		fields := append(signedFields(s.writer, "PATCH", "/v1/orders/o-1", body), field{"Content-Type", "application/merge-patch+json"})
		return "PATCH", "/v1/orders/o-1", body, append(fields, more...)
	}
	header := func(name, value string) func() (string, string, string, []field) {
		return func() (string, string, string, []field) {
			return "POST", "/v1/orders", newOrder, append(signedFields(s.writer, "POST", "/v1/orders", newOrder), field{name, value})
		}
	}
	by := func(caller gatewaytest.Caller) func() (string, string, string, []field) {
		return func() (string, string, string, []field) {
			return "POST", "/v1/orders", newOrder, jsonBody(caller, "POST", "/v1/orders", newOrder)
		}
	}
	body := func(body string) func() (string, string, string, []field) {
		return func() (string, string, string, []field) { return order(body) }
	}
	for name, c := range map[string]struct {
		request    func() (method, target, body string, fields []field)
		status     int
		code       string
		violations []violation
	}{
		"members that nobody may set": {body(`{"total":"1","id":"o-9","account":"18","admin":true}`), 400, "INVALID_BODY", []violation{{"/id", "is read-only"}, {"/account", "is not a documented member"}, {"/admin", "is not a documented member"}}},
		"nested ones":                 {body(`{"total":"1","parent":{"total":"1","account":"17"}}`), 400, "INVALID_BODY", []violation{{"/parent/account", "is not a documented member"}}},
		"a member twice":              {body(`{"total":"1","tot\u0061l":"2"}`), 400, "INVALID_BODY", []violation{{"/total", "is given twice"}}},
		"another alternative":         {body(`{"total":"1","payment":{"kind":"card","iban":"x"}}`), 400, "INVALID_BODY", []violation{{"/payment/iban", "is not a documented member"}, {"/payment/last4", "is required"}}},
		"nothing":                     {body(""), 400, "INVALID_BODY", []violation{{"", "is required"}}},
		"an array":                    {body("[]"), 400, "INVALID_BODY", []violation{{"", "expected an object"}}},
		"a form":                      {header("Content-Type", "application/x-www-form-urlencoded"), 415, "UNSUPPORTED_MEDIA_TYPE", nil},
		"no type":                     {header("X-Type", "application/json"), 415, "UNSUPPORTED_MEDIA_TYPE", nil},
		"a compressed body": {func() (string, string, string, []field) {
			return "POST", "/v1/orders", newOrder, jsonBody(s.writer, "POST", "/v1/orders", newOrder, field{"Content-Encoding", "gzip"})
		}, 415, "UNSUPPORTED_MEDIA_TYPE", nil},
		"two idempotency keys": {func() (string, string, string, []field) {
			return "POST", "/v1/orders", newOrder, jsonBody(s.writer, "POST", "/v1/orders", newOrder, field{"Idempotency-Key", "key-no-1"}, field{"Idempotency-Key", "key-no-2"})
		}, 400, "INVALID_PARAMETER", nil},
		"a long idempotency key": {func() (string, string, string, []field) {
			return "POST", "/v1/orders", newOrder, jsonBody(s.writer, "POST", "/v1/orders", newOrder, field{"Idempotency-Key", strings.Repeat("k", 257)})
		}, 400, "INVALID_PARAMETER", nil},
		"a short idempotency key": {func() (string, string, string, []field) {
			return "POST", "/v1/orders", newOrder, jsonBody(s.writer, "POST", "/v1/orders", newOrder, field{"Idempotency-Key", "short"})
		}, 400, "INVALID_PARAMETER", nil},
		"a condition that is not documented": {func() (string, string, string, []field) {
			return "POST", "/v1/orders", newOrder, jsonBody(s.writer, "POST", "/v1/orders", newOrder, field{"If-Match", `"1"`})
		}, 400, "INVALID_PARAMETER", nil},
		"an idempotency key that is not documented": {func() (string, string, string, []field) {
			const target = "/v1/orders/o-1/shipments"
			return "POST", target, "", append(signedFields(s.writer, "POST", target, ""), field{"Idempotency-Key", "key-no-1"})
		}, 400, "INVALID_PARAMETER", nil},
		"no version where it is required": {func() (string, string, string, []field) { return patch(`{"note":"x"}`) }, 400, "INVALID_PARAMETER", nil},
		"a patch that takes away":         {func() (string, string, string, []field) { return patch(`{"total":null}`, field{"If-Match", `"1"`}) }, 400, "INVALID_BODY", []violation{{"/total", `expected a decimal number in a string, such as "12.50"`}}},
		"a body where none is documented": {func() (string, string, string, []field) {
			return "DELETE", "/v1/orders/o-1/shipments", "{}", jsonBody(s.writer, "DELETE", "/v1/orders/o-1/shipments", "{}")
		}, 400, "INVALID_BODY", []violation{{"", "must be empty: this operation takes no body"}}},
		"a key that may only read": {by(s.all), 403, "WRITE_NOT_ALLOWED", nil},
		"a key of another API":     {by(s.none), 403, "FORBIDDEN", nil},
		"nobody": {func() (string, string, string, []field) {
			return "POST", "/v1/orders", newOrder, []field{{"Content-Type", "application/json"}}
		}, 401, "MISSING_CREDENTIALS", nil},
		"another body than was signed": {func() (string, string, string, []field) {
			return "POST", "/v1/orders", newOrder, jsonBody(s.writer, "POST", "/v1/orders", newOrder+" ")
		}, 401, "INVALID_CREDENTIALS", nil},
		"another method than was signed": {func() (string, string, string, []field) {
			return "POST", "/v1/orders/o-1/shipments", "", signedFields(s.writer, "DELETE", "/v1/orders/o-1/shipments", "")
		}, 401, "INVALID_CREDENTIALS", nil},
		"a method that is not documented": {func() (string, string, string, []field) {
			return "PUT", "/v1/orders", newOrder, jsonBody(s.writer, "PUT", "/v1/orders", newOrder)
		}, 405, "METHOD_NOT_ALLOWED", nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := s.data.count()
			method, target, body, fields := c.request()
			for _, protocol := range []string{overHTTP1, overHTTP1, overHTTP2, overHTTP3} { // what is refused is not a replay the second time
				a := s.write(t, protocol, method, target, body, fields)
				requireProblem(t, a, c.status, c.code)
				var p struct{ Violations []violation }
				require.NoError(t, json.Unmarshal([]byte(a.Body), &p))
				require.Equal(t, c.violations, p.Violations)
			}
			require.Equal(t, n, s.data.count())
		})
	}
	t.Run("what only reads needs no right to write, and may be repeated", func(t *testing.T) {
		s.responds(200, "["+goodOrder+"]")
		const search = `{"text":"x"}`
		fields := jsonBody(s.all, "POST", "/v1/orders/search", search)
		for range 2 {
			require.Equal(t, `[{"id":"o-1","total":"9.50"}]`, s.write(t, overHTTP1, "POST", "/v1/orders/search", search, fields).Body)
		}
	})
	t.Run("anyone may call what is public", func(t *testing.T) {
		s.responds(204, "")
		json := []field{{"Content-Type", "application/json"}}
		require.Equal(t, 204, s.write(t, overHTTP1, "POST", "/v1/news", `{"email":"a@b.example"}`, json).Status)
		require.Equal(t, `{"email":"a@b.example"}`, s.lastBody(t))
		n := s.data.count()
		requireProblem(t, s.write(t, overHTTP1, "POST", "/v1/news", `{"email":"a"}`, json), 400, "INVALID_BODY")
		requireProblem(t, s.write(t, overHTTP1, "POST", "/v1/news", `{"email":"`+strings.Repeat("a", 2<<20)+`"}`, json), 413, "BODY_TOO_LARGE")
		require.Equal(t, n, s.data.count())
	})
	t.Run("a public operation has no business, even if the request is signed", func(t *testing.T) {
		s.responds(204, "")
		const body = `{"email":"a@b.example"}`
		for _, caller := range []gatewaytest.Caller{s.writer, s.writer, s.all, s.none} { // once more; may only read; of another API
			require.Equal(t, 204, s.write(t, overHTTP1, "POST", "/v1/news", body, jsonBody(caller, "POST", "/v1/news", body)).Status)
			require.Equal(t, []string{"-"}, s.data.last(t).Header["X-Business-Id"])
		}
	})
}

//nolint:tparallel // the subtests share a data service
func TestASignedWriteOfAnAPIIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	s := serveWriteShop(t, highLimits)
	s.responds(201, goodOrder)
	fields := jsonBody(s.writer, "POST", "/v1/orders", newOrder)
	first := s.write(t, overHTTP1, "POST", "/v1/orders", newOrder, fields)
	require.Equal(t, 201, first.Status, first.Body)
	n := s.data.count()
	for _, protocol := range []string{overHTTP1, overHTTP2, overHTTP3} {
		a := s.write(t, protocol, "POST", "/v1/orders", newOrder, fields)
		require.NotContains(t, requireProblem(t, a, 409, "REPLAYED").Detail, "Idempotency-Key", "it had none")
		require.Contains(t, a.Body, `"original_request_id":"`+first.Header.Get("X-Request-Id")+`"`)
	}
	require.Equal(t, n, s.data.count())

	with := func(redis *redistest.Server, limits string) *gatewaytest.Gateway {
		o := s.options(limits, "")
		o.Global = strings.Replace(o.Global, s.redis.URL(), redis.URL(), 1)
		o.Site = "gatehouse_api /v1/* {\n\t\tdefinition shop " + shopDefinition + "\n\t\tupstream " + s.dataURL + "\n\t}"
		return gatewaytest.Start(t, o)
	}
	t.Run("allow_replayed_writes accepts repetitions while Redis is down", func(t *testing.T) {
		redis := redistest.Start(t, redistest.WithConfig("appendonly", "yes"), redistest.WithConfig("appendfsync", "always"))
		g := with(redis, strings.Replace(highLimits, "{", "{\n\t\t\tallow_replayed_writes", 1))
		fields := jsonBody(s.writer, "POST", "/v1/orders", newOrder)
		send := func() gatewaytest.Response {
			a, err := s.writer.Send(t.Context(), http.MethodPost, g.URL, "/v1/orders", headerOf(fields), []byte(newOrder))
			require.NoError(t, err)
			return a
		}
		n := s.data.count()
		require.Equal(t, 201, send().Status)
		requireProblem(t, send(), 409, "REPLAYED")
		require.NoError(t, redis.Kill())
		for range 2 {
			require.Equal(t, 201, send().Status)
		}
		require.Equal(t, n+3, s.data.count())
		require.NoError(t, redis.Restart())
		require.Eventually(t, func() bool { return send().Status == 409 }, patience, 10*time.Millisecond)
	})
	t.Run("without Redis, none is", func(t *testing.T) {
		redis := redistest.Start(t)
		g := with(redis, highLimits)
		require.NoError(t, redis.Kill())
		require.Eventually(t, func() bool {
			a := s.writer.Do(t, "DELETE", g.URL, "/v1/orders/o-1/shipments", nil)
			return a.Status == 503 && strings.Contains(a.Body, "This request was not carried out")
		}, patience, 100*time.Millisecond)
		n := s.data.count()
		s.responds(200, `{"data":[]}`)
		require.Equal(t, 200, s.writer.Get(t, g.URL, "/v1/orders").Status, "reads go on")
		require.Equal(t, n+1, s.data.count())
	})
}

// A caller that takes 404 for "nothing happened" would make the change again.
func TestAWriteWhoseRecordMayNotBeSeenIsNotFoundWithADetail(t *testing.T) {
	t.Parallel()
	s := serveWriteShop(t, highLimits)
	overlay := filepath.Join(t.TempDir(), "overlay.yaml")
	require.NoError(t, os.WriteFile(overlay, []byte(`overlay: 1.0.0
info: {title: Visibility, version: "1"}
actions: [{target: $.components.schemas.Order, update: {x-gatehouse-visible: {id: [o-2]}}}]
`), 0o600))
	o := s.options(highLimits, "")
	o.Site = "gatehouse_api /v1/* {\n\t\tdefinition shop " + strings.Replace(shopDefinition, "except", "overlay "+overlay+"\n\t\t\texcept", 1) + "\n\t\tupstream " + s.dataURL + "\n\t}"
	g := gatewaytest.Start(t, o)
	s.responds(201, goodOrder)
	a, err := s.writer.Send(t.Context(), http.MethodPost, g.URL, "/v1/orders", headerOf(jsonBody(s.writer, "POST", "/v1/orders", newOrder)), []byte(newOrder))
	require.NoError(t, err)
	require.Equal(t, "The change may have been made. You cannot see the record.", requireProblem(t, a, 404, "NOT_FOUND").Detail)
	s.responds(200, goodOrder)
	require.Empty(t, requireProblem(t, s.writer.Get(t, g.URL, "/v1/orders/o-1"), 404, "NOT_FOUND").Detail, "it changes nothing")
}

// In shadow mode, writes beyond the limit are served, and are accepted once all the same.
func TestShadowModeServesWritesOnce(t *testing.T) {
	t.Parallel()
	s := serveWriteShop(t, "limits {\n\t\t\tshadow\n\t\t\tper_key 1\n\t\t}")
	s.responds(201, goodOrder)
	for i := range 3 {
		body := fmt.Sprintf(`{"total":"%d"}`, i)
		fields := jsonBody(s.writer, "POST", "/v1/orders", body, field{"Idempotency-Key", fmt.Sprint("key-number-", i)})
		require.Equal(t, 201, s.write(t, overHTTP1, "POST", "/v1/orders", body, fields).Status)
		require.Contains(t, requireProblem(t, s.write(t, overHTTP1, "POST", "/v1/orders", body, fields), 409, "REPLAYED").Detail, "repeat the Idempotency-Key")
	}
	require.Equal(t, 3, s.data.count())
}

// The check of a body can take long. Who is over the limit cannot have the gateway make it.
func TestLargeBodiesBeyondTheLimitAreNotChecked(t *testing.T) {
	t.Parallel()
	s := serveWriteShop(t, highLimits)
	definition := filepath.Join(t.TempDir(), "slow.yaml")
	require.NoError(t, os.WriteFile(definition, []byte(`
openapi: 3.1.0
info: {title: Slow, version: "1"}
servers: [{url: https://slow.internal/v1}]
x-gatehouse-tenant: none
paths:
  /texts:
    post:
      operationId: addTexts
      requestBody: {content: {application/json: {schema: {type: array, items: {type: string, pattern: '.{1,500}b$'}}}}}
      responses: {"204": {description: Done}}
`), 0o600))
	o := s.options("limits {\n\t\t\tper_key 1\n\t\t}", "")
	o.Site = "gatehouse_api /v1/* {\n\t\tdefinition shop " + definition + "\n\t\tupstream " + s.dataURL + "\n\t}"
	g := gatewaytest.Start(t, o)
	text := strings.Repeat("a", 64_000)
	body := `["` + text + strings.Repeat(`","`+text, 7) + `"]`
	post := func() (status int, took time.Duration) { // of the gateway's processor
		before := processorTime(t, g.Pid())
		status = raw(t, g.Addr, fmt.Sprintf("POST /v1/texts HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n%s\r\n%s", apiHost, len(body), linesOf(jsonBody(s.writer, "POST", "/v1/texts", body)), body)+lastRequest).Status
		return status, processorTime(t, g.Pid()) - before
	}
	status, checked := post()
	require.Equal(t, 400, status)
	for range 3 {
		status, took := post()
		require.Equal(t, 429, status)
		require.Less(t, took, checked/2)
	}
}

func TestAHalfClosedClientLearnsThatItsWriteMayHaveBeenMade(t *testing.T) {
	t.Parallel()
	s := serveWriteShop(t, highLimits)
	s.data.setResponse(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise, it does not notice that the gateway leaves
		stalls(w, r)
	})
	const target, body = "/v1/orders", `{"total":"9.50"}`
	n := s.data.count()
	conn := dial(t, s.g.Addr, "POST "+target+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body))+
		"\r\n"+signedLines(s.writer, "POST", target, body)+"\r\n"+body)
	half, ok := conn.Conn.(*net.TCPConn)
	require.True(t, ok)
	require.Eventually(t, func() bool { return s.data.count() > n }, patience, time.Millisecond)
	require.NoError(t, half.CloseWrite())
	a, err := readResponse(conn.r, http.MethodPost)
	require.NoError(t, err)
	requireProblem(t, a, http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE")
	require.Contains(t, a.Body, "The change may have been made.")
}

// A data service that ends the exchange at any point gets a write once, on plain and TLS connections, although another address is healthy.
//
//nolint:tparallel // the subtests share a data service
func TestNothingRepeatsAWrite(t *testing.T) {
	t.Parallel()
	var got atomic.Int64
	var how atomic.Pointer[func(net.Conn)]
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		got.Add(1)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		(*how.Load())(conn)
		_ = conn.Close()
	})
	w := newEnvironment(t, nil)
	writer := w.issue(t, authsigner.IssueOptions{BusinessID: "17", Resources: []string{"shop"}, Write: true})
	n := 0 // each is another write
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			addresses, trust := twoAddresses(t, scheme, handler)
			o := w.options(highLimits, "")
			site := func(timeout string) string {
				return "gatehouse_api /v1/* {\n\t\tdefinition shop " + shopDefinition + "\n\t\ttimeout " + timeout + "\n\t\tupstream " + addresses + " {\n\t\t\tlb_retries 3\n\t\t\tlb_try_duration 5s\n\t\t\tfail_duration 0s\n\t\t\t" + trust + "\n\t\t}\n\t}"
			}
			impatient := gatewaytest.FreeAddr(t)
			o.Site, o.Extra = site("1m"), "http://"+impatient+" {\n\t"+site("2s")+"\n}\n"
			g := gatewaytest.Start(t, o)
			for name, end := range map[string]struct {
				how    func(net.Conn)
				status int
			}{
				"no response":   {func(net.Conn) {}, 502},
				"half a header": {func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 20") }, 502},
				"half a body": {func(c net.Conn) {
					_, _ = io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
				}, 502},
				"an error":      {func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n") }, 502},
				"a bad gateway": {func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n") }, 502},
				"a redirect": {func(c net.Conn) {
					_, _ = io.WriteString(c, "HTTP/1.1 307 No\r\nLocation: /v1/orders\r\nContent-Length: 0\r\n\r\n")
				}, 502},
				"an invalid body": {func(c net.Conn) {
					_, _ = io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
				}, 502},
				"silence": {func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }, 504},
			} {
				t.Run(name, func(t *testing.T) {
					how.Store(&end.how)
					for _, method := range []string{"POST", "DELETE"} {
						n++
						got.Store(0)
						target, body := fmt.Sprintf("/v1/orders/o-%d/shipments", n), ""
						if method == "POST" {
							target, body = "/v1/orders", fmt.Sprintf(`{"total":"%d"}`, n)
						}
						header := headerOf(append(signedFields(writer, method, target, body), field{"Content-Type", "application/json"}))
						if n%4 < 2 {
							header.Set("Idempotency-Key", fmt.Sprint("key-number-", n))
						}
						url := g.URL
						if end.status == http.StatusGatewayTimeout {
							url = "http://" + impatient
						}
						a, err := writer.Send(t.Context(), method, url, target, header, []byte(body))
						require.NoError(t, err)
						p := requireProblem(t, a, end.status, map[int]string{502: "UPSTREAM_FAILED", 504: "UPSTREAM_TIMEOUT"}[end.status])
						advice := "."
						if method == "POST" && n%4 < 2 { // DELETE knows none
							advice = ", or repeat it with the same Idempotency-Key."
						}
						require.Equal(t, maybeDone+advice, p.Detail)
						require.EqualValues(t, 1, got.Load())
					}
				})
			}
		})
	}
	t.Run("what was not sent was not done", func(t *testing.T) {
		o := w.options(highLimits, "")
		o.Site = "gatehouse_api /v1/* {\n\t\tdefinition shop " + shopDefinition + "\n\t\tupstream http://" + gatewaytest.FreeAddr(t) + "\n\t}"
		g := gatewaytest.Start(t, o)
		p := requireProblem(t, writer.Do(t, "DELETE", g.URL, "/v1/orders/o-1/shipments", nil), 503, "SERVICE_UNAVAILABLE")
		require.Empty(t, p.Detail)
	})
}
