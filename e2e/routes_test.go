package e2e_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// A read through gatehouse_auth may have a body too.
const (
	shopPath = "/shop/orders"
	// orderPath is one of an API that is served from its own document.
	orderPath = "/v1/orders/o-1"
	// searchPath is an operation of the same API with a body.
	searchPath = "/v1/orders/search"
	searchBody = `{"text": "a body as long as the smallest of the others"}`
	shopBody   = `{"a body as long": "as the smallest of the others"}`
)

// operationCase is a request to one operation of the gateway. Add a line for a new operation, and all tests of this file attack it.
type operationCase struct {
	name    string // of the operation in logs and metrics
	host    string // Host; "" is a host that is not served
	method  string
	target  string
	signer  gatewaytest.Caller // signs it, if it has a public key
	fields  []field
	body    string // empty if the operation reads no body
	length  string // the Content-Length of a body that is not sent, if it matters
	status  int    // of the response to this request
	format  func(gatewaytest.Response) bool
	oneHost bool // the operation is for one host only
}

// The formats of errors.
func contractJSON(a gatewaytest.Response) bool {
	var p problem
	return json.Unmarshal([]byte(a.Body), &p) == nil && p.Code != "" && p.RequestID == a.Header.Get("X-Request-Id")
}

func oauthJSON(a gatewaytest.Response) bool {
	var p map[string]string
	return json.Unmarshal([]byte(a.Body), &p) == nil && p["error"] != "" && p["code"] == ""
}

func jsonRPC(a gatewaytest.Response) bool {
	var p struct {
		JSONRPC string `json:"jsonrpc"`
		Error   struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	return json.Unmarshal([]byte(a.Body), &p) == nil && p.JSONRPC == "2.0" && p.Error.Message != ""
}

func htmlPage(a gatewaytest.Response) bool {
	return strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") && strings.Contains(a.Body, "<title>") &&
		a.Header.Get("Content-Security-Policy") != ""
}

// operations returns requests to all operations of the gateway. own is the connection server's host, token an access token for it. acme calls
// the built-in API, shop the protected route and the API of its own document.
func operations(own, token string, acme, shop gatewaytest.Caller) []operationCase {
	const message = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	form := []field{{"Content-Type", "application/x-www-form-urlencoded"}}
	page := operationCase{name: "pages", host: own, method: "GET", status: 200, format: htmlPage, oneHost: true}
	at := func(c operationCase, method, target string, status int) operationCase {
		c.method, c.target, c.status = method, target, status
		return c
	}
	metadata := operationCase{name: "metadata", host: own, method: "GET", status: 200, format: oauthJSON, oneHost: true}
	api := operationCase{host: apiHost, method: "GET", format: contractJSON}
	named := func(c operationCase, name string) operationCase { c.name = name; return c }
	mcp := operationCase{
		name: "mcp", host: own, method: "POST", target: "/mcp", body: message, status: 200, format: jsonRPC, oneHost: true,
		fields: []field{
			{"Authorization", "Bearer " + token},
			{"Content-Type", "application/json"},
			{"Accept", "application/json, text/event-stream"},
			{"Mcp-Protocol-Version", "2025-11-25"},
		},
	}
	anonymous := mcp
	anonymous.fields, anonymous.status, anonymous.format = mcp.fields[1:], 401, oauthJSON
	opened := anonymous
	opened.method, opened.body, opened.fields, opened.status, opened.format = "GET", "", []field{{"Accept", "text/html"}}, 200, htmlPage
	events := named(at(api, "GET", eventsPath, 200), "listEvents")
	events.signer = acme
	read := named(at(api, "GET", shopPath, 200), "any")
	read.signer, read.body = shop, shopBody
	order := named(at(api, "GET", orderPath, 200), "store/getOrder")
	order.signer = shop
	searched := named(at(api, "POST", searchPath, 200), "store/searchOrders")
	searched.signer, searched.fields, searched.body = shop, []field{{"Content-Type", "application/json"}}, searchBody
	all := []operationCase{
		searched, named(at(api, "PATCH", orderPath, 401), "store/changeOrder"),
		order, named(at(api, "POST", orderPath, 405), "store/getOrder"),
		named(at(api, "GET", "/v1/nothing", 404), "none"),
		named(at(api, "GET", "/api/v1/status", 200), "getStatus"),
		events,
		named(at(api, "GET", "/api/v1/me", 401), "getMe"),
		named(at(api, "POST", "/api/v1/status", 405), "getStatus"),
		named(at(api, "GET", "/api/v1/nothing", 404), "none"),
		named(at(api, "GET", "/elsewhere", 404), "none"),
		named(at(api, "GET", "/docs", 200), "docs"),
		named(at(api, "GET", "/docs/openapi.yaml", 200), "docs"),
		named(at(api, "POST", "/docs", 405), "docs"),
		named(at(api, "GET", "/healthz", 200), "health"),
		named(at(api, "GET", "/readyz", 200), "ready"),
		named(at(api, "POST", "/healthz", 405), "health"),
		named(at(api, "GET", "/.well-known/gatehouse-jwks.json", 200), "jwks"),
		read, named(at(api, "POST", shopPath, 401), "any"),
		mcp, anonymous, opened,
		at(metadata, "GET", "/.well-known/oauth-protected-resource", 200),
		at(metadata, "GET", "/.well-known/oauth-protected-resource/mcp", 200),
		at(metadata, "GET", "/.well-known/oauth-authorization-server", 200),
		at(metadata, "GET", "/.well-known/openid-configuration", 200),
		{name: "authorize", host: own, method: "GET", target: "/oauth/authorize", fields: []field{{"Accept", "text/html"}}, status: 400, format: htmlPage, oneHost: true},
		{name: "token", host: own, method: "POST", target: "/oauth/token", fields: form, body: "grant_type=refresh_token&client_id=x&refresh_token=x", status: 400, format: oauthJSON, oneHost: true},
		{name: "revoke", host: own, method: "POST", target: "/oauth/revoke", fields: form, body: "token=x&client_id=x", status: 200, format: oauthJSON, oneHost: true},
		{name: "register", host: own, method: "POST", target: "/oauth/register", fields: []field{{"Content-Type", "application/json"}}, body: `{"redirect_uris":["gopher://x"]}`, status: 400, format: oauthJSON, oneHost: true},
		at(page, "GET", "/", 200),
		at(page, "GET", "/sign-in", 200),
		{name: "pages", host: own, method: "POST", target: "/sign-in", fields: form, body: "email=x&password=y", status: 403, format: htmlPage, oneHost: true},
		at(page, "GET", "/sign-out", 303),
		at(page, "GET", "/oauth/approve", 404),
		at(page, "GET", "/settings", 303),
		at(page, "GET", "/settings/connected-apps", 303),
		at(page, "GET", "/settings/api", 303),
		at(page, "GET", "/settings/activity", 303),
		at(page, "GET", "/settings/nowhere", 404),
		named(at(page, "GET", "/assets/nothing.css", 404), "assets"),
		named(at(api, "OPTIONS", "*", 404), "none"),
		{name: "none", method: "OPTIONS", target: "*", status: 404, format: contractJSON},
		{name: "none", method: "GET", target: "/", status: 404, format: contractJSON},
		{name: "none", method: "POST", target: "/mcp", status: 404, format: contractJSON},
		{name: "none", method: "POST", target: "/oauth/token", fields: form, status: 404, format: contractJSON},
		{name: "none", method: "GET", target: "/api/v1/status", status: 404, format: contractJSON},
	}
	for i := range all {
		all[i] = all[i].signed()
	}
	return all
}

// signed returns the case with a signature of this moment, for subtests that may begin minutes later.
func (c operationCase) signed() operationCase {
	if c.signer.PublicKey == "" {
		return c
	}
	fields := signedFields(c.signer, c.method, c.target, c.body)
	for _, f := range c.fields {
		if !slices.ContainsFunc(fields, func(signature field) bool { return signature.name == f.name }) {
			fields = append(fields, f)
		}
	}
	c.fields = fields
	return c
}

// String names the case, without the connection server's port, which is another one in each run.
func (c operationCase) String() string {
	host := "connect"
	switch c.host {
	case apiHost:
		host = "api"
	case "":
		host = "unserved"
	}
	return c.method + " " + host + c.target
}

// route is the name of its route in logs and metrics.
func (c operationCase) route() string {
	switch {
	case c.oneHost:
		return "connect"
	case c.host == "":
		return "errors"
	case c.name == "health", c.name == "ready":
		return "health"
	case c.name == "jwks":
		return "jwks"
	case c.target == shopPath:
		return "shop"
	}
	return "api"
}

func (c operationCase) hostOr(other string) string {
	if c.host == "" {
		return other
	}
	return c.host
}

// head returns the request line and the headers, without the framing of a body and the empty line.
func (c operationCase) head() string {
	return c.method + " " + c.target + " HTTP/1.1\r\nHost: " + c.hostOr("unserved.example") + "\r\n" + linesOf(c.fields)
}

func (c operationCase) framed() string {
	if c.body == "" {
		return c.head() + "\r\n"
	}
	return c.head() + "Content-Length: " + strconv.Itoa(len(c.body)) + "\r\n\r\n" + c.body
}

// routeGateway is a gateway with all routes, and a catch-all for other hosts.
type routeGateway struct {
	*attack
	operations []operationCase
}

// newRouteGateway starts a gateway with all routes. api is put into gatehouse_api.
func newRouteGateway(t *testing.T, api string) *routeGateway {
	t.Helper()
	data, connect := &recorder{}, demoService(t).Handler()
	w := newEnvironment(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/connect/") {
			connect.ServeHTTP(rw, r)
			return
		}
		data.ServeHTTP(rw, r)
	}))
	f := &routeGateway{attack: &attack{environment: w, data: data}}
	shop := w.issue(t, authsigner.IssueOptions{BusinessID: w.acmeID, Resources: []string{"shop", "store"}})
	o := w.options(highLimits+"\n\t\tassertion "+writeAssertionKey(t), "docs_path /docs\n\t\t"+api)
	o.Servers = "timeouts {\n\t\t\tread_body_idle 10m\n\t\t}" // the gateway's own timeouts are tested
	f.g = gatewaytest.New(t, o)
	const removed = "request_header -X-Business-Id"
	site := func(issuer string) string {
		return removed + "\n\trespond /plain plain\n\tgatehouse_jwks\n\tgatehouse_connect {\n\t\tissuer " + issuer + "\n\t\tupstream " + w.dataURL + "\n\t\tmanage_keys\n\t\thome_page\n\t}\n\t" +
			"handle /shop/* {\n\t\tgatehouse_auth shop {\n\t\t\tbase_path /shop\n\t\t}\n\t\treverse_proxy " + strings.TrimPrefix(w.dataURL, "http://") + "\n\t}\n\t" +
			"gatehouse_api /v1/* {\n\t\tdefinition store " + shopDefinition + "\n\t\tupstream " + w.dataURL + "\n\t\t" + api + "\n\t}\n\t" + o.Site
	}
	secure := gatewaytest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(f.g.Addr)
	_, securePort, _ := net.SplitHostPort(secure)
	all := o
	all.CA = true
	all.Site = removed + "\n\tgatehouse_errors\n\thandle_errors {\n\t\tgatehouse_errors\n\t}"
	all.Extra = "http://127.0.0.1:" + port + ", http://" + apiHost + ":" + port + " {\n\t" + site(f.g.URL) + "\n}\n" +
		"https://" + apiHost + ":" + securePort + " {\n\ttls internal\n\t" + site("https://"+apiHost) + "\n}\n"
	startWith(t, f.g, all)
	f.h3 = newH3Client(t, secure, f.g.Roots(t, secure, apiHost))

	owner := newBrowser(t, f.g.URL)
	owner.signIn(accountOf(t, w.acmeID, demo.RoleOwner))
	a := register(t, f.g.URL, "Test Assistant")
	a.connect(t, owner, "mcp:read")
	f.operations = operations(f.g.Addr, a.Access, w.acme, shop)
	return f
}

// operation is the first case of an operation.
func (f *routeGateway) operation(name string) operationCase {
	return f.operations[slices.IndexFunc(f.operations, func(c operationCase) bool { return c.name == name })]
}

// Every operation works: the attacks below would prove nothing if their requests were rejected for another reason.
//
//nolint:tparallel // the gateway is stopped after the subtests
func TestRoutesRespondWithRequestIDAndOneLogLine(t *testing.T) {
	t.Parallel()
	f := newRouteGateway(t, "")
	seen := map[string]bool{}
	var logged []string
	for _, c := range f.operations {
		t.Run(c.String(), func(t *testing.T) {
			c := c.signed()
			responses, closed := converse(t, f.g.Addr, c.framed()+lastRequest, c.method)
			require.True(t, closed)
			keep := c.status != http.StatusUnauthorized || c.body == ""
			require.Len(t, responses, map[bool]int{true: 2, false: 1}[keep], "the next request on the connection")
			over := map[string]gatewaytest.Response{overHTTP1: responses[0]}
			fields := lowerCase(c.fields)
			over[overHTTP2] = dialH2(t, f.g.Addr).do(c.body, append(pseudo("http", c.method, c.hostOr("unserved.example"), c.target), fields...)...)
			if c.oneHost && !strings.Contains(fmt.Sprint(c.fields), "Bearer") || c.host == apiHost {
				over[overHTTP3] = f.h3.do(c.body, append(h3Request(c.method, c.target), fields...)...)
			}
			for wire, a := range over {
				assert.Equal(t, c.status, a.Status, "%s: %s", wire, a.Body)
				assert.Len(t, a.Header.Values("X-Request-Id"), 1, wire)
				assert.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"), wire)
				assert.Empty(t, a.Header.Values("Server"), wire)
				if wire != overHTTP1 {
					assert.Empty(t, a.Header.Values("Connection"), "malformed over %s", wire)
				}
				if a.Status >= 400 {
					assert.True(t, c.format(a), "%s: %s", wire, a.Body)
				}
				id := a.Header.Get("X-Request-Id")
				assert.False(t, seen[id], "a unique request ID")
				seen[id] = true
				if c.name != "health" && c.name != "ready" { // logged at level debug
					line := logLineOf(t, f.g, id)
					logged = append(logged, id)
					assert.Equal(t, c.route(), line.Route, wire)
					assert.Equal(t, c.name, line.Operation, wire)
					assert.Equal(t, c.status, line.Status, wire)
				}
			}
		})
	}
	body := anonymous().Get(t, f.g.AdminURL, "/metrics").Body
	for _, c := range f.operations {
		assert.Contains(t, body, fmt.Sprintf(`operation=%q,route=%q,status="%d"`, c.name, c.route(), c.status))
	}
	requireOneLogLineEach(t, f.g, logged...)
}

// framings are header lines that some servers read as chunked and others do not.
var framings = []string{
	"Transfer-Encoding: chunked", "transfer-encoding: chunked", "Transfer-Encoding: CHUNKED", "Transfer-Encoding:chunked",
	"Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked ", "Transfer-Encoding:\r\n chunked", "Transfer-Encoding: chun\r\n ked",
	"Transfer-Encoding : chunked", " Transfer-Encoding: chunked", "Transfer-Encoding\t: chunked", "Transfer-Encoding: xchunked",
	"Transfer-Encoding: chunkedx", "Transfer-Encoding: x chunked", "Transfer-Encoding: identity", "Transfer-Encoding: ",
	`Transfer-Encoding: "chunked"`, "Transfer-Encoding: 'chunked'", "Transfer-Encoding: chunked;q=1", "Transfer-Encoding: ,chunked",
	"Transfer-Encoding: chunked,", "Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity, chunked",
	"Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
	"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
	"Transfer-Encoding: x\r\nTransfer-Encoding: chunked", "Transfer-Encoding:\x0bchunked", "Transfer-Encoding: chunked\x0b",
	"Transfer-Encoding: chunked\x00", "Transfer-Encoding:\x00chunked", "Transfer-Encoding: \xe1\x9a\x80chunked", "X: x\nTransfer-Encoding: chunked",
	"X: x\rTransfer-Encoding: chunked", "Transfer-Encoding\r\n: chunked", "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
	"Connection: Content-Length\r\nTransfer-Encoding: chunked", "X: x\r\n Transfer-Encoding: chunked", "X: x\r\n\tContent-Length: 0",
	"Connection: Content-Length",
}

// foldedFramings returns header fields in several lines, of which a proxy may read the last as the framing of a body of n bytes. net/http
// reads it as a part of the value before: there is no body.
func foldedFramings(n int) []string {
	length := fmt.Sprint("Content-Length: ", n)
	lines := []string{"X: x\r\n Transfer-Encoding: chunked", "Accept: */*\r\n\ttransfer-encoding:chunked"}
	for _, fold := range []string{
		"X: x\r\n ", "X:\r\n ", "X: x\n ", "X: x\r\n\t", "X: x\r\n \t \t", "X: x\r\n y\r\n ", "X: x\r\n \r\n ", "X: x\r\nX: y\r\n ", "User-Agent: x-\r\n ",
		"X-Public-Key: x\r\n ", "Cookie: a=b\r\n ", "Connection: x\r\n ", "X: content-\r\n x-",
		"X_Y: x\r\n ", "X.Y: x\r\n ", // which Caddy deletes before any handler
		"X-Business-Id: x\r\n ", // which request_header deletes on the sites of these tests
	} {
		lines = append(lines, fold+length, fold+strings.ToLower(length), fold+strings.Replace(strings.ToUpper(length), ":", " \t:", 1))
	}
	return lines
}

// A proxy that frames by Content-Length would send a second response to another caller. So there is at most one response, and the
// connection ends, for every operation and host.
//
//nolint:tparallel // the subtests share a data service
func TestBodiesAreNeverReadAsRequests(t *testing.T) {
	t.Parallel()
	f := newRouteGateway(t, "")
	hidden := f.hidden()
	events := f.operation("listEvents")
	events.fields = signedFields(f.acme, "GET", eventsPath, hidden) // as if the hidden request were the body
	clte := "0\r\n\r\n" + hidden
	size := fmt.Sprintf("%x\r\n", len(hidden))
	tecl := size + hidden + "\r\n0\r\n\r\n"
	attempts := 0
	attack := func(t *testing.T, method, what, request string, most int) {
		t.Helper()
		attempts++
		responses, closed := converse(t, f.g.Addr, request+lastRequest, method)
		assert.True(t, closed, "%q", what)
		assert.LessOrEqual(t, len(responses), most, "%q", what)
		f.requireNothingSmuggled(t, what)
	}
	fold := func(t *testing.T, c operationCase) {
		t.Helper()
		for _, lines := range foldedFramings(len(hidden)) {
			rest := hidden
			if strings.Contains(strings.ToLower(lines), "chunked") {
				rest = tecl
			}
			attack(t, c.method, lines, c.head()+lines+"\r\n\r\n"+rest, 1)
		}
		// net/http takes the host of an absolute target and removes the header field
		for _, origin := range []string{"", "http://" + c.hostOr("unserved.example")} {
			lines := "Host:\r\n Content-Length:" + strconv.Itoa(len(hidden))
			attack(t, c.method, origin+lines, c.method+" "+origin+c.target+" HTTP/1.1\r\n"+lines+"\r\n"+linesOf(c.fields)+"\r\n"+hidden, 1)
		}
	}
	t.Run("a handler of Caddy", func(t *testing.T) { fold(t, operationCase{host: apiHost, method: "GET", target: "/plain"}) })
	for i, c := range append(f.operations, events) {
		t.Run(fmt.Sprint(i, " ", c), func(t *testing.T) {
			if i < len(f.operations) {
				c = c.signed()
			}
			attack := func(what, request string, most int) {
				t.Helper()
				attack(t, c.method, what, request, most)
			}
			for _, line := range framings {
				for _, a := range []struct {
					body   string
					length int
				}{{clte, len(clte)}, {tecl, len(size)}, {c.body + hidden, len(c.body)}} {
					if a.length == 0 {
						continue // without a declared length, the hidden request is a pipelined one
					}
					what := fmt.Sprintf("%s\r\nContent-Length: %d\r\n\r\n%s", line, a.length, a.body)
					attack(what, c.head()+what, 1)
				}
			}
			fold(t, c)
			// an HTTP/1.0 proxy may not have understood Transfer-Encoding
			old := strings.Replace(c.head(), "HTTP/1.1", "HTTP/1.0", 1) + "Connection: keep-alive\r\n"
			attack("1.0 chunked", old+"Transfer-Encoding: chunked\r\n\r\n"+clte, 1)
			attack("1.0 both", old+"Transfer-Encoding: chunked\r\nContent-Length: "+strconv.Itoa(len(clte))+"\r\n\r\n"+clte, 1)
			// the preface of HTTP/2, with other headers
			attack("PRI", "PRI * HTTP/2.0\r\nHost: "+c.hostOr("unserved.example")+"\r\nTransfer-Encoding: chunked\r\nContent-Length: "+
				strconv.Itoa(len(clte))+"\r\n\r\n"+clte, 1)
			// an unread body, larger than net/http discards
			for _, fill := range []int{0, 300 << 10} {
				body := strings.Repeat("x", fill) + hidden
				attack(fmt.Sprint("unread ", fill), c.head()+"Content-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body, 2)
			}
		})
	}
	t.Logf("%d attempts on %d operations", attempts, len(f.operations))
}

// A response that does not depend on the body is sent before it arrives, over each protocol. Then the connection is closed, because the
// rest of the body is not a request.
func TestRoutesDoNotWaitForUnneededBodies(t *testing.T) {
	t.Parallel()
	f := newRouteGateway(t, "")
	events := f.operation("listEvents")
	expired, tooLarge, unsigned := events, events, events
	expired.fields, expired.status = signedAt(f.acme, time.Now().Add(-1000*time.Second), "GET", eventsPath, ""), http.StatusUnauthorized
	tooLarge.status, tooLarge.length = http.StatusRequestEntityTooLarge, "1048577"
	unsigned.fields, unsigned.status = nil, http.StatusUnauthorized
	for i, c := range append(f.operations, expired, tooLarge, unsigned) {
		switch {
		case (c.name == "listEvents" || strings.HasPrefix(c.name, "store/")) && c.status == http.StatusOK:
			continue // its signature covers the body: see TestSlowSignedBodyTimesOut
		case c.name == "mcp" && c.status == http.StatusOK, c.name == "register":
			continue // they need their bodies: see TestBodiesHaveADeadlineAndAMaximumSize
		case c.body != "" && c.name != "mcp":
			c.fields, c.status = []field{{"Content-Type", "text/plain"}}, 0 // rejected because of the headers
		}
		if c.length == "" {
			c.length = "50000"
		}
		t.Run(fmt.Sprint(i, " ", c), func(t *testing.T) {
			t.Parallel()
			if c.status == http.StatusRequestEntityTooLarge { // the subtest may begin minutes later
				c.fields = signedFields(f.acme, "GET", eventsPath, "")
			}
			requireEarly := func(t *testing.T, a gatewaytest.Response) {
				t.Helper()
				require.GreaterOrEqual(t, a.Status, 200)
				if c.status != 0 {
					require.Equal(t, c.status, a.Status, a.Body)
					require.True(t, a.Status < 400 || c.format(a), a.Body)
				}
			}
			for how, rest := range map[string]string{
				"expect":  "Expect: 100-continue\r\nContent-Length: " + c.length + "\r\n\r\n",
				"nothing": "Content-Length: " + c.length + "\r\n\r\n",
				"chunked": "Transfer-Encoding: chunked\r\n\r\n5000\r\n",
				"trickle": "Content-Length: " + c.length + "\r\n\r\n",
			} {
				if how == "chunked" && c.length != "50000" {
					continue // its length is not declared
				}
				beforeTheBody(t, how, func() {
					conn := dial(t, f.g.Addr, c.head()+rest)
					if how == "trickle" {
						defer trickle(conn)()
					}
					a, err := readResponse(conn.r, c.method)
					require.NoError(t, err, how)
					requireEarly(t, a)
					require.Equal(t, "close", a.Header.Get("Connection"), how)
					if c.host == apiHost && c.status >= 400 { // the others use the same code
						conn.requireClosed(t)
					}
					_ = conn.Close() // the gateway would wait a little for the rest
				})
			}
			h3 := newH3Client(t, f.h3.addr, f.h3.tls.RootCAs)
			for _, expect := range [][]field{nil, {{"expect", "100-continue"}}} {
				fields := append(append(lowerCase(c.fields), field{"content-length", c.length}), expect...)
				beforeTheBody(t, "over HTTP/2", func() {
					h2 := dialH2(t, f.g.Addr)
					id, err := h2.open(false, append(pseudo("http", c.method, c.hostOr("unserved.example"), c.target), fields...)...)
					require.NoError(t, err)
					requireEarly(t, h2.read(id))
				})
				if c.host == "" || strings.Contains(fmt.Sprint(c.fields), "Bearer") {
					continue
				}
				beforeTheBody(t, "over HTTP/3", func() {
					a, err := h3.exchange(h3Headers(append(h3Request(c.method, c.target), fields...)...), false)
					require.NoError(t, err)
					requireEarly(t, a)
				})
			}
		})
	}
}

// A body that does not arrive times out, by default after 10 s; one that is too large is rejected.
func TestBodiesHaveADeadlineAndAMaximumSize(t *testing.T) {
	t.Parallel()
	f := newRouteGateway(t, "")
	operations := slices.DeleteFunc(f.operations, func(c operationCase) bool {
		return c.body == "" || c.name == "mcp" && c.status == http.StatusUnauthorized
	})
	var slow sync.WaitGroup
	for _, c := range operations {
		c = c.signed()
		start := time.Now()
		d := dial(t, f.g.Addr, c.head()+"Content-Length: 5000\r\n\r\n")
		require.NoError(t, d.SetDeadline(start.Add(3*patience)))
		slow.Go(func() {
			stop := trickle(d)
			a, err := readResponse(d.r, c.method)
			stop()
			assert.NoError(t, err, "%s", c)
			assert.GreaterOrEqual(t, time.Since(start), 9*time.Second, "%s", c)
			assert.Contains(t, []int{400, 403, 408}, a.Status, "%s", c)
			_, err = io.Copy(io.Discard, d.r)
			assert.False(t, isTimeout(err), "the connection is still open: %s", c)
		})
	}
	for _, c := range operations {
		large := c.signed().head() + "Content-Length: 100000000\r\n\r\n" + strings.Repeat("x", 1<<20)
		responses, closed := converse(t, f.g.Addr, large, c.method)
		require.True(t, closed)
		require.Len(t, responses, 1)
		assert.Equal(t, http.StatusRequestEntityTooLarge, responses[0].Status, responses[0].Body)
	}
	slow.Wait()
}

// The host is that of the Host header or of an absolute-form target (RFC 9112, section 3.2.2). Operations for one host reject other hosts in
// their own format.
//
//nolint:tparallel // the subtests share a gateway and are short
func TestRoutesServeOnlyTheirHosts(t *testing.T) {
	t.Parallel()
	f := newRouteGateway(t, "")
	for _, c := range f.operations {
		t.Run(c.String(), func(t *testing.T) {
			c := c.signed()
			absolute := c
			absolute.target = "http://" + c.hostOr("unserved.example") + c.target
			if c.name != "listEvents" && !strings.HasPrefix(c.name, "store/") && c.name != "any" && c.target != "*" { // the signature covers the origin form: see TestAbsoluteFormIsSignedAsOriginForm
				absolute.host = "other.example" // ignored
				responses, _ := converse(t, f.g.Addr, absolute.framed()+lastRequest, c.method)
				require.NotEmpty(t, responses)
				assert.Equal(t, c.status, responses[0].Status, "absolute form: %s", responses[0].Body)
			}
			if !c.oneHost {
				return
			}
			// even on a site for all hosts, the connection server serves only its own
			for _, host := range []string{apiHost, apiHost + ":80", "127.0.0.1", c.host + ".", c.host + "@" + apiHost} {
				other := c
				other.host = host
				responses, closed := converse(t, f.g.Addr, other.framed()+lastRequest, c.method)
				require.True(t, closed)
				require.NotEmpty(t, responses)
				a := responses[0]
				assert.Contains(t, []int{http.StatusMisdirectedRequest, http.StatusNotFound, http.StatusBadRequest}, a.Status, "%s: %s", host, a.Body)
				assert.Empty(t, a.Header.Get("Set-Cookie"))
				if a.Status == http.StatusMisdirectedRequest {
					format := c.format
					if c.name == "mcp" {
						format = jsonRPC
					}
					assert.True(t, format(a), "%s: %s", host, a.Body)
				}
				if host == apiHost && c.target == "/" {
					assert.True(t, contractJSON(a), "the next handler responds: %s", a.Body)
				} else if host == apiHost {
					assert.Equal(t, http.StatusMisdirectedRequest, a.Status, a.Body)
				}
			}
		})
	}
}

// Bodies arrive before their requests can be authenticated and counted. So the bytes that a client IP has in progress are bounded, over all
// operations and HTTP versions together, and other client IPs are served meanwhile.
func TestUnfinishedBodiesOfOneClientIPTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	const (
		each   = 60      // over each HTTP version
		size   = 1 << 20 // of a body
		most   = 8       // bodies that a client IP may have in progress
		memory = 128 << 20
	)
	f := newRouteGateway(t, "body_timeout 10m")
	attackers, others := f.callersFrom(t, "127.0.0.1"), f.callersFrom(t, "127.0.0.2")
	for _, c := range others {
		requireJSON(t, c.Do(t, "GET", c.url, eventsPath, []byte("the key is cached")))
	}
	before, _ := f.g.Memory(t)
	other := func() (gatewaytest.Response, error) {
		return others[overHTTP1].Try(t.Context(), http.MethodGet, others[overHTTP1].url, eventsPath, nil)
	}
	alone := timesOf(t, nil, other)

	ctx, end := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	t.Cleanup(func() {
		end()
		sending.Wait()
	})
	var refused atomic.Int64
	unfinished := strings.Repeat("x", size-1)
	for wire, c := range attackers {
		for range each {
			sending.Go(func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+eventsPath, newUnfinishedBody(ctx, unfinished))
				if !assert.NoError(t, err) {
					return
				}
				req.ContentLength, req.Header = size, headerOf(signedFields(f.acme, "GET", eventsPath, "another body"))
				res, err := c.Client.Do(req)
				switch {
				case ctx.Err() != nil:
					return
				case err == nil:
					assert.Equal(t, http.StatusTooManyRequests, res.StatusCode, wire)
					assert.NotEmpty(t, res.Header.Get("Retry-After"), wire)
					_ = res.Body.Close()
				default: // a client that is still writing may not read the response
					assert.Equal(t, overHTTP1, wire, "%s", err)
				}
				refused.Add(1)
			})
		}
	}
	require.Eventually(t, func() bool { return refused.Load() >= int64(len(attackers)*each-most) }, patience, 10*time.Millisecond)
	_, peak := f.g.Memory(t)
	t.Logf("figure: %s bodies=%d resident=%s->%s others=%s->%s", t.Name(), len(attackers)*each, inMiB(before), inMiB(peak), median(alone), median(timesOf(t, nil, other)))
	assert.Less(t, peak, before+memory)

	// Others, ever smaller, take what is left, until not even a few bytes are.
	var rest []*rawConn
	exhaust := func() {
		for _, chunk := range []string{unfinished, unfinished[:64<<10], unfinished[:4<<10], unfinished[:16]} {
			head := "GET " + eventsPath + " HTTP/1.1\r\nHost: " + apiHost + "\r\n"
			length := func(n int) string { return "Content-Length: " + strconv.Itoa(n) + "\r\n\r\n" }
			whole := head + signedLines(f.acme, "GET", eventsPath, chunk) + length(len(chunk)) + chunk
			for raw(t, f.g.Addr, whole+lastRequest).Status != http.StatusTooManyRequests {
				conn := dial(t, f.g.Addr, head+signedLines(f.acme, "GET", eventsPath, "another body")+length(len(chunk)+1))
				_, _ = io.WriteString(conn, chunk) // it may be refused
				rest = append(rest, conn)
			}
		}
	}
	events := f.operation("listEvents")
	events.body, events.format = strings.Repeat("x", 1<<10), contractJSON
	for _, c := range append(f.operations, events) {
		if c.body == "" || c.name == "mcp" && c.status == http.StatusUnauthorized {
			continue
		}
		var a gatewaytest.Response
		for start := time.Now(); a.Status != http.StatusTooManyRequests; { // a body may have been refused, and others not yet
			require.Less(t, time.Since(start), patience, "%s: %s", c, a.Body)
			exhaust()
			a = raw(t, f.g.Addr, c.signed().framed()+lastRequest)
		}
		assert.True(t, c.format(a), a.Body)
		assert.NotEmpty(t, a.Header.Get("Retry-After"), c)
		line := logLineOf(t, f.g, a.Header.Get("X-Request-Id"))
		assert.Equal(t, c.name, line.Operation)
		assert.Equal(t, "RATE_LIMITED", line.Code)
	}
	for _, c := range others {
		requireJSON(t, c.Do(t, "GET", c.url, eventsPath, []byte(unfinished)))
	}
	requireJSON(t, attackers[overHTTP1].Get(t, f.g.URL, eventsPath)) // without a body

	end()
	for _, conn := range rest {
		_ = conn.Close()
	}
	for wire, c := range attackers {
		require.Eventually(t, func() bool {
			a, err := c.Try(t.Context(), "GET", c.url, eventsPath, []byte(unfinished))
			return err == nil && a.Status == http.StatusOK
		}, patience, 10*time.Millisecond, "the bytes are not in progress any more: %s", wire)
	}
}

// A client can block a response, and with it the operation, by granting no window. Until then, the gateway holds what arrives of a body that
// the operation does not read: a bounded part, for a connection.
func TestUnreadBodiesOverHTTP2TakeBoundedMemory(t *testing.T) {
	t.Parallel()
	const connections, most = 200, 256 << 10
	f := newRouteGateway(t, "")
	before, _ := f.g.Memory(t)
	for range connections {
		c := dialH2(t, f.g.Addr)
		require.NoError(t, c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
		id, err := c.open(false, pseudo("http", "GET", apiHost, "/docs")...)
		require.NoError(t, err)
		require.LessOrEqual(t, c.fill(id), most)
	}
	_, peak := f.g.Memory(t)
	t.Logf("figure: %s connections=%d resident=%s->%s", t.Name(), connections, inMiB(before), inMiB(peak))
}

// wireCaller calls over one HTTP version.
type wireCaller struct {
	gatewaytest.Caller
	url string
}

// callersFrom returns callers with a loopback address, by HTTP version.
func (s *attack) callersFrom(t *testing.T, ip string) map[string]wireCaller {
	t.Helper()
	callers := map[string]wireCaller{}
	add := func(wire, url string, transport http.RoundTripper) {
		c := wireCaller{s.acme, url}
		c.Client = &http.Client{Transport: transport}
		callers[wire] = c
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	for wire, http2 := range map[string]bool{overHTTP1: false, overHTTP2: true} {
		transport := &http.Transport{Protocols: new(http.Protocols), DialContext: dialer.DialContext}
		transport.Protocols.SetHTTP1(!http2)
		transport.Protocols.SetUnencryptedHTTP2(http2)
		t.Cleanup(transport.CloseIdleConnections)
		add(wire, s.g.URL, transport)
	}
	socket, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", net.JoinHostPort(ip, "0"))
	require.NoError(t, err)
	to, err := net.ResolveUDPAddr("udp", s.h3.addr)
	require.NoError(t, err)
	dialFrom := &quic.Transport{Conn: socket}
	transport := &http3.Transport{
		TLSClientConfig: s.h3.tls,
		Dial: func(ctx context.Context, _ string, tls *tls.Config, o *quic.Config) (*quic.Conn, error) {
			return dialFrom.DialEarly(ctx, to, tls, o)
		},
	}
	t.Cleanup(func() {
		require.NoError(t, transport.Close())
		require.NoError(t, dialFrom.Close())
		_ = socket.Close()
	})
	add(overHTTP3, "https://"+apiHost, transport)
	return callers
}

// unfinishedBody is a body whose end does not arrive: Read waits until the body is closed or its context ends.
type unfinishedBody struct {
	sent   *strings.Reader
	closed chan struct{}
	close  func()
}

func newUnfinishedBody(ctx context.Context, sent string) *unfinishedBody {
	closed := make(chan struct{})
	b := &unfinishedBody{strings.NewReader(sent), closed, sync.OnceFunc(func() { close(closed) })}
	context.AfterFunc(ctx, b.close)
	return b
}

func (b *unfinishedBody) Read(p []byte) (int, error) {
	if n, _ := b.sent.Read(p); n > 0 {
		return n, nil
	}
	<-b.closed
	return 0, io.ErrUnexpectedEOF
}

func (b *unfinishedBody) Close() error {
	b.close()
	return nil
}
