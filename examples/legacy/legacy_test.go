package legacy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/processtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/recordtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	patience = time.Minute
	password = "moneypenny"
)

// platform is a directory with the files of the example, changed only in their addresses, and the programs that use them.
type platform struct {
	dir     string
	gateway *gatewaytest.Gateway
	prelude string // of each script
	redis   string
	options string // further ones of the definition

	service, adapter string // URLs
}

func newPlatform(t *testing.T) *platform {
	t.Helper()
	p := &platform{dir: t.TempDir(), redis: redistest.Start(t).Addr}
	p.gateway = gatewaytest.New(t, gatewaytest.Options{Env: []string{"BILLING_PASSWORD=" + password}})
	p.prelude = "export HOME=" + p.dir + " PATH=" + p.dir + ":$PATH\ncd " + p.dir + "\n"
	require.NoError(t, os.Symlink(gatewaytest.Binary(t), filepath.Join(p.dir, "gatehouse")))
	p.copy(t, "billing.openapi.yaml", func(text string) string { return text })
	p.copy(t, "billing.gatehouse.yaml", func(text string) string { return text })
	return p
}

func (p *platform) copy(t *testing.T, name string, change func(string) string) {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, name), []byte(change(string(text))), 0o600))
}

// program starts a program, which runs until the end of the test. ready reports whether it serves.
func program(t *testing.T, ready func(output string) bool, env []string, path string, args ...string) {
	t.Helper()
	var out recordtest.Output
	cmd := exec.CommandContext(context.Background(), path, args...) // not the test's context: it is ended below
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &out, &out
	process, err := processtest.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		process.Kill()
		if t.Failed() {
			t.Logf("what %s wrote:\n%s", path, out.Tail(16<<10))
		}
	})
	require.Eventually(t, func() bool { return process.Ended() || ready(out.String()) }, patience, 10*time.Millisecond)
	require.False(t, process.Ended(), out.String())
}

// serve starts a program of the example on a free port, and returns its URL.
func serve(t *testing.T, name string, env []string, flags ...string) string {
	t.Helper()
	addr := gatewaytest.FreeAddr(t)
	listens := func(string) bool {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", addr)
		return err == nil && conn.Close() == nil
	}
	program(t, listens, env, gatewaytest.Program(t, "./examples/legacy/"+name), append([]string{"-listen", addr}, flags...)...)
	return "http://" + addr
}

// sh runs a script in the directory, and returns what it prints.
func (p *platform) sh(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	script = strings.NewReplacer("http://localhost:8080", p.gateway.URL, "http://localhost:8081", p.service, "http://localhost:8082", p.adapter).Replace(script)
	out, err := exec.CommandContext(ctx, "sh", "-c", p.prelude+script).CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); !failed { // as grep may
		require.NoError(t, err)
	}
	return string(out)
}

// issue issues a key to a business, and returns it with what is printed.
func (p *platform) issue(t *testing.T, command string) (gatewaytest.Caller, string) {
	t.Helper()
	out := p.sh(t, command)
	public, private := regexp.MustCompile(`pk_live_\S+`).FindString(out), regexp.MustCompile(`sk_live_\S+`).FindString(out)
	require.NotEmpty(t, public, out)
	require.NotEmpty(t, private, out)
	return gatewaytest.Caller{PublicKey: public, PrivateKey: authsigner.Secret(private)}, out
}

// run starts the gateway with the Caddyfile of the example.
func (p *platform) run(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("Caddyfile")
	require.NoError(t, err)
	text = []byte(strings.NewReplacer(
		"overlay billing.gatehouse.yaml", "overlay billing.gatehouse.yaml\n"+p.options,
		"{\n\tgatehouse {", "{\n\tadmin "+strings.TrimPrefix(p.gateway.AdminURL, "http://")+"\n\tgatehouse {",
		"localhost:6379", p.redis, "http://localhost:8080", p.gateway.URL, "http://localhost:8082", p.adapter,
	).Replace(string(text)))
	absolute := regexp.MustCompile(`\b(keys\.json|billing\.\w+\.yaml)`).ReplaceAllString(string(text), p.dir+"/$1")
	p.gateway.Write(t, gatewaytest.WaitForRedis(absolute))
	p.gateway.Run(t)
	t.Cleanup(func() { p.gateway.Stop(t) })
}

// tryOut starts the demo with the page's command, and takes over the lines that are to be pasted.
func (p *platform) tryOut(t *testing.T, command string) {
	t.Helper()
	addr, shown := gatewaytest.FreeAddr(t), ""
	args := strings.Fields(regexp.MustCompile(`billing\.\w+\.yaml`).ReplaceAllString(strings.ReplaceAll(command, "http://localhost:8082", p.adapter), p.dir+"/$0"))
	program(t, func(output string) bool { shown = output; return strings.Contains(output, "Ctrl-C stops it") }, []string{"TMPDIR=" + t.TempDir()},
		gatewaytest.Program(t, "./cmd/gatehouse-demo"), append(args[1:], "--listen", addr)...)
	for line := range strings.Lines(shown) {
		if strings.HasPrefix(line, "export ") || strings.HasPrefix(line, "signed() ") {
			p.prelude += line
		}
	}
	_, requests, _ := strings.Cut(shown, "\nsigned ")
	requests, _, _ = strings.Cut("signed "+requests, "\n# 3.")
	statuses := regexp.MustCompile(`(?m)^HTTP/1.1 (\d+)`).FindAllStringSubmatch(p.sh(t, requests), -1)
	var got []string
	for _, status := range statuses {
		got = append(got, status[1])
	}
	require.Equal(t, strings.Fields("200 200 200 200 200 200 200"), got, "conform has paid no invoice") // in the document's order, reads first
}

// Each command of the page prints what the page shows. … stands for any text.
func TestALegacyServiceAsItIs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/legacy.md")
	require.NoError(t, err)
	p := newPlatform(t)
	overlay, err := os.ReadFile("billing.gatehouse.yaml")
	require.NoError(t, err)
	var caller gatewaytest.Caller
	scripts, commands := 0, 0
	for _, block := range regexp.MustCompile("(?s)```(sh|console|yaml)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		switch {
		case block[1] == "yaml":
			for line := range strings.Lines(block[2]) {
				require.Contains(t, string(overlay), strings.TrimSpace(line))
			}
			continue
		case block[1] == "sh":
			scripts++
			switch text := block[2]; scripts {
			case 1:
				require.Equal(t, "make build\nexport PATH=$PWD/bin:$PATH\ncd examples/legacy\ngo run ./service &\n", text)
				p.service = serve(t, "service", nil)
			case 2:
				require.Equal(t, "go run ./adapter &\n", text)
				p.adapter = serve(t, "adapter", nil, "-service", p.service)
			case 3:
				p.tryOut(t, text)
			case 4:
				require.Equal(t, "export BILLING_PASSWORD="+password+"\ngo run ./service &\ngo run ./adapter &\ngatehouse run 2> gatehouse.log &\n", text)
				p.service = serve(t, "service", []string{"BILLING_PASSWORD=" + password})
				p.adapter = serve(t, "adapter", nil, "-service", p.service)
				p.run(t)
			default:
				p.prelude += strings.NewReplacer("pk_live_…", caller.PublicKey, "sk_live_…", caller.PrivateKey.Reveal()).Replace(text)
			}
			continue
		}
		for _, part := range strings.Split("\n"+block[2], "\n$ ")[1:] {
			command, want, _ := strings.Cut(strings.TrimSpace(part), "\n")
			pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(want), "…", `[^\n]*`) + "$")
			var got string
			if strings.Contains(command, "keys issue") {
				caller, got = p.issue(t, command)
			} else {
				got = strings.ReplaceAll(p.sh(t, command), "\r", "")
			}
			got = strings.TrimSpace(got)
			require.Regexp(t, pattern, got, command)
			commands++
		}
	}
	require.Equal(t, 5, scripts)
	require.Equal(t, 13, commands)
}

// The document is one as platforms have it, and the service is one as it was before there was a gateway.
func TestOnlyTheOverlayKnowsBothSides(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("billing.openapi.yaml")
	require.NoError(t, err)
	require.NotContains(t, string(document), "x-")
	require.NotRegexp(t, `gatehouse|CENTS|Result|/v2/`, string(document))
	parsed, err := openapi3.NewLoader().LoadFromData(document)
	require.NoError(t, err)
	require.Equal(t, 6, parsed.Paths.Len())
	for name, lines := range map[string]int{"service": 250, "adapter": 120} {
		source, err := os.ReadFile(name + "/main.go")
		require.NoError(t, err)
		require.NotRegexp(t, `X-Business|X-Gateway|gatehouse-gateway`, string(source))
		require.LessOrEqual(t, bytes.Count(source, []byte("\n")), lines)
	}
}

// answer is a response of the service.
type answer struct {
	status int
	header http.Header
	body   string
}

// tamperer stands before the service, notes the requests, and changes the responses.
type tamperer struct {
	mu     sync.Mutex
	seen   []string
	change func(*answer) // nil: nothing
}

func (m *tamperer) serve(t *testing.T, service string) string {
	t.Helper()
	target, err := url.Parse(service)
	require.NoError(t, err)
	transport := &http.Transport{}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.seen = append(m.seen, r.In.Method+" "+r.In.RequestURI)
		},
		ModifyResponse: func(response *http.Response) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.change == nil {
				return nil
			}
			body, err := io.ReadAll(response.Body)
			if err != nil {
				return err
			}
			a := answer{response.StatusCode, response.Header, string(body)}
			m.change(&a)
			response.StatusCode = a.status
			response.Body = io.NopCloser(strings.NewReader(a.body))
			response.Header.Set("Content-Length", strconv.Itoa(len(a.body)))
			return nil
		},
	})
	t.Cleanup(func() {
		proxy.Close()
		transport.CloseIdleConnections()
	})
	return proxy.URL
}

// during makes requests while responses are changed, and returns what the service was asked.
func (m *tamperer) during(change func(*answer), do func()) []string {
	m.mu.Lock()
	m.seen, m.change = nil, change
	m.mu.Unlock()
	do()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen
}

// legacy is the whole example: gateway, adapter and service, with something before the service.
type legacy struct {
	*platform
	tamperer

	own, other, none gatewaytest.Caller
}

func newLegacy(t *testing.T, options string, change func(document string) string) *legacy {
	t.Helper()
	l := &legacy{platform: newPlatform(t)}
	l.options = options
	l.copy(t, "billing.openapi.yaml", change)
	l.service = serve(t, "service", []string{"BILLING_PASSWORD=" + password})
	l.adapter = serve(t, "adapter", nil, "-service", l.tamperer.serve(t, l.service))
	const issue = "gatehouse keys issue --file keys.json --write --business-name x --business-slug x --business-id "
	l.own, _ = l.issue(t, issue+"17")
	l.other, _ = l.issue(t, issue+"18")
	l.none, _ = l.issue(t, issue+"99")
	l.run(t)
	return l
}

// send sends a signed request with further headers.
func (l *legacy) send(t *testing.T, caller gatewaytest.Caller, method, target, body string) gatewaytest.Response {
	t.Helper()
	now := time.Now().Unix()
	header := http.Header{
		"Content-Type": {"application/json"}, "X-Business-Id": {"18"}, "X-Account": {"18"}, "X-Billing-Password": {"guessed"},
		authsigner.HeaderPublicKey: {caller.PublicKey}, authsigner.HeaderTimestamp: {strconv.FormatInt(now, 10)},
		authsigner.HeaderSignature: {authsigner.Sign(caller.PrivateKey, now, method, target, []byte(body))},
	}
	a, err := caller.Send(t.Context(), method, l.gateway.URL, target, header, []byte(body))
	require.NoError(t, err)
	return a
}

// strangers are texts of account 18, and of what no caller may see.
var strangers = regexp.MustCompile(`Maud|Otto|Harbour|maud@|"00000(02|04|06|08|10|12)"|corp\.example|MARGIN|RATING|` + password)

// The service itself gives everybody everything. The gateway asks it only for the caller's account, in the caller's words only what the
// definition lets pass, whether or not the document says what IDs look like.
func TestAnotherAccountCannotBeReachedThroughTheGateway(t *testing.T) {
	t.Parallel()
	pattern := regexp.MustCompile(`, pattern: "\^\[[^"]*\$"`)
	for name, change := range map[string]func(string) string{
		"as it is":             func(text string) string { return text },
		"without forms of IDs": func(text string) string { return pattern.ReplaceAllString(text, "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLegacy(t, "", change)
			foreign := l.sh(t, "curl -s -H 'X-Billing-Password: "+password+"' '"+l.service+"/v2/accounts/17/InvoiceList?ACCT=18&limit=1'")
			require.Contains(t, foreign, "Harbour Books", "the attacks would succeed at the service")
			for _, target := range []string{
				"/v1/invoices/0000002", "/v1/invoices/0000002.json", "/v1/invoices/0000002.json?x=", "/v1/invoices/0000002.json%3fx=", "/v1/invoices/0000002.json%23",
				"/v1/invoices/../18/Invoice/0000002", "/v1/invoices/..%2f18%2fInvoice%2f0000002", "/v1/invoices/%2e%2e%2f%2e%2e%2f18%2fInvoice%2f0000002",
				"/v1/invoices/%2e%2e", "/v1/invoices/..", "/v1/invoices/%2e%2e/pdf", "/v1/invoices/../../18/InvoiceList", "/v1/invoices/..;/18", "/v1/invoices/0000002;ACCT=18",
				"/v1/invoices/0000002%00", "/v1/invoices/0000002?ACCT=18", "/v1/invoices/0000002/pdf", "/v1/invoices/0000002/pdf?ACCT=18", "/v1/customers/4", "/v1/customers/4?ACCT=18",
				"/v1/customers/..%2f..%2f18%2fCustomer%2f4", "/v2/accounts/18/InvoiceList", "/v2/accounts/17/InvoiceList?ACCT=18", "/v1/accounts/18/InvoiceList", "/v1/InvoiceList",
				"/v1//invoices/0000002", "/v1/./invoices", "/v1/invoices/{business}", "/v1/invoices/%7bbusiness%7d",
				"/v1/invoices?status=open%26ACCT%3d18", "/v1/invoices?status=1", "/v1/invoices?status=open&status=paid", "/v1/invoices?per_page=51", "/v1/invoices?page=1&page=2",
				"/v1/invoices?page=-1", "/v1/invoices?per_page=0",
			} {
				seen := l.during(nil, func() {
					a := l.send(t, l.own, http.MethodGet, target, "")
					assert.Contains(t, []int{http.StatusBadRequest, http.StatusNotFound}, a.Status, "%s: %s", target, a.Body)
					assert.NotRegexp(t, strangers, a.Body, target)
				})
				for _, asked := range seen {
					assert.Regexp(t, `^GET /v2/accounts/17/(Invoice|Customer)/[0-9a-z.]+\.(json|pdf)$`, asked, target)
				}
			}
			for _, query := range []string{
				"?ACCT=18", "?account=18&business=18&business_id=18&accounts=18", "?offset=5&limit=1000&st=9", "?OFFSET=5", "?st[]=9&offset[0]=1", "?a=b;ACCT=18", "?%41CCT=18", "?page=1&ACCT=18",
			} {
				seen := l.during(nil, func() {
					a := l.send(t, l.own, http.MethodGet, "/v1/invoices"+query, "")
					assert.Contains(t, []int{http.StatusOK, http.StatusBadRequest}, a.Status, "%s: %s", query, a.Body)
					assert.NotRegexp(t, strangers, a.Body, query)
				})
				for _, asked := range seen {
					assert.Equal(t, "GET /v2/accounts/17/InvoiceList?offset=0&limit=10", asked, query)
				}
			}
			seen := l.during(nil, func() {
				a := l.send(t, l.own, http.MethodPost, "/v1/invoices/0000001/payments?ACCT=18&REF=x", `{"amount":"1.00","method":"card","paid_on":"2025-04-01","reference":"a"}`)
				assert.Equal(t, http.StatusOK, a.Status, a.Body)
				a = l.send(t, l.own, http.MethodPost, "/v1/invoices/0000002/payments", `{"amount":"1.00","method":"card","paid_on":"2025-04-01","reference":"b"}`)
				assert.Equal(t, http.StatusNotFound, a.Status, a.Body)
				a = l.send(t, l.other, http.MethodGet, "/v1/invoices/0000002", "")
				assert.Equal(t, http.StatusOK, a.Status, a.Body)
			})
			require.Equal(t, []string{"POST /v2/accounts/17/Invoice/0000001/Payment", "POST /v2/accounts/17/Invoice/0000002/Payment", "GET /v2/accounts/18/Invoice/0000002.json"}, seen)
			for _, target := range []string{"/v1/invoices", "/v1/invoices/0000001", "/v1/customers"} { // its account does not exist
				require.Equal(t, http.StatusBadGateway, l.send(t, l.none, http.MethodGet, target, "").Status, target)
			}
			gatewaytest.RequireNowhere(t, l.gateway.Everything(t), password, "Harbour Books", "maud@")
		})
	}
}

// The service takes any member that its rows have, and the account of the back office.
func TestMembersByTheNamesOfTheServiceAreRefused(t *testing.T) {
	t.Parallel()
	l := newLegacy(t, "", func(text string) string { return text })
	const (
		payment  = `{"amount":"1.00","method":"card","paid_on":"2025-04-01","reference":"m"`
		customer = `{"name":"Kim","kind":"person","email":"kim@example.com","address":{"street":"a","postal_code":"b","city":"c"},"credit_limit":"1.00"`
	)
	for _, c := range []struct{ target, body, pointer string }{
		{"/v1/invoices/0000001/payments", payment + `,"ACCT":"18"}`, "/ACCT"},
		{"/v1/invoices/0000001/payments", payment + `,"acct":"18"}`, "/acct"},
		{"/v1/invoices/0000001/payments", payment + `,"AMT_CENTS":1}`, "/AMT_CENTS"},
		{"/v1/invoices/0000001/payments", payment + `,"\u0041CCT":"18"}`, "/ACCT"},
		{"/v1/invoices/0000001/payments", payment + `,"id":"0000001"}`, "/id"},
		{"/v1/invoices/0000001/payments", payment + `,"PAY_NO":"0000001"}`, "/PAY_NO"},
		{"/v1/invoices/0000001/payments", strings.Replace(payment, "1.00", "1.005", 1) + `}`, "/amount"},
		{"/v1/invoices/0000001/payments", strings.Replace(payment, `"card"`, `"2"`, 1) + `}`, "/method"},
		{"/v1/invoices/0000001/payments", strings.Replace(payment, `"card"`, `2`, 1) + `}`, "/method"},
		{"/v1/invoices/0000001/payments", strings.Replace(payment, `"2025-04-01"`, `1743465600`, 1) + `}`, "/paid_on"},
		{"/v1/customers", customer + `,"RATING":"A"}`, "/RATING"},
		{"/v1/customers", customer + `,"CREDIT_CENTS":1}`, "/CREDIT_CENTS"},
		{"/v1/customers", customer + `,"Contact":{"MAIL":"x"}}`, "/Contact"},
		{"/v1/customers", customer + `,"STREET":"x"}`, "/STREET"},
		{"/v1/customers", customer + `,"customer_since":"2009-01-01"}`, "/customer_since"},
		{"/v1/customers", strings.Replace(customer, `"city":"c"`, `"city":"c","CITY":"d"`, 1) + `}`, "/address/CITY"},
	} {
		seen := l.during(nil, func() {
			a := l.send(t, l.own, http.MethodPost, c.target, c.body)
			assert.Equal(t, http.StatusBadRequest, a.Status, c.body)
			assert.Contains(t, a.Body, `"pointer":"`+c.pointer+`"`, c.body)
		})
		assert.Empty(t, seen, c.body)
	}
	a := l.send(t, l.own, http.MethodPost, "/v1/customers", customer+`,"phone":"1"}`)
	require.Equal(t, http.StatusOK, a.Status, a.Body)
	require.Regexp(t, `^{"id":"21","name":"Kim","kind":"person","email":"kim@example.com","phone":"1","address":{"street":"a","postal_code":"b","city":"c"},`+
		`"credit_limit":"1.00","customer_since":"20..-..-.."}$`, a.Body)
}

func TestBrokenResponsesOfTheServiceDoNotLeave(t *testing.T) {
	t.Parallel()
	l := newLegacy(t, "", func(text string) string { return text })
	replace := func(old, with string) func(*answer) {
		return func(a *answer) { a.body = strings.Replace(a.body, old, with, 1) }
	}
	body := func(text string) func(*answer) { return func(a *answer) { a.body = text } }
	header := func(name, value string) func(*answer) {
		return func(a *answer) { a.header.Set(name, value) }
	}
	const page = "<html><body>ORA-00942 s3cret</body></html>"
	for name, c := range map[string]struct {
		target string
		change func(*answer)
	}{
		"a code that the table does not have":      {"/v1/invoices", replace(`"ST":1`, `"ST":7`)},
		"a code as another number":                 {"/v1/invoices", replace(`"ST":1`, `"ST":1.0`)},
		"a code that is a list":                    {"/v1/invoices", replace(`"ST":1`, `"ST":[1]`)},
		"neither Y nor N":                          {"/v1/invoices", replace(`"DUNNED":"Y"`, `"DUNNED":"y"`)},
		"a Total that is a word":                   {"/v1/invoices", replace(`"Total":"6"`, `"Total":"six"`)},
		"a Total that is an object":                {"/v1/invoices", replace(`"Total":"6"`, `"Total":{"s3cret":1}`)},
		"a Total that is huge":                     {"/v1/invoices", replace(`"Total":"6"`, `"Total":"99999999999999999999"`)},
		"a Total that is padded":                   {"/v1/invoices", replace(`"Total":"6"`, `"Total":"006"`)},
		"a Total that is missing":                  {"/v1/invoices", replace(`,"Total":"6"`, ``)},
		"a Total twice":                            {"/v1/invoices", replace(`"Total":"6"`, `"Total":"6","Total":"7"`)},
		"rows twice":                               {"/v1/invoices", replace(`"Total":"6"`, `"Total":"6","Rows":[]`)},
		"cents with a point":                       {"/v1/invoices", replace(`"000021890"`, `"218.90"`)},
		"cents that are null":                      {"/v1/invoices", replace(`"000021890"`, `null`)},
		"a quantity that is padded":                {"/v1/invoices", replace(`"QTY":"11"`, `"QTY":"011"`)},
		"a page of HTML with status 200":           {"/v1/invoices", body(page)},
		"a page of HTML instead of a record":       {"/v1/invoices/0000001", body(page)},
		"a page of HTML instead of a PDF":          {"/v1/invoices/0000001/pdf", func(a *answer) { a.header.Set("Content-Type", "text/html"); a.body = page }},
		"an error that is the platform's":          {"/v1/invoices/0000001", body(`{"Error":{"Code":"10","Text":"s3cret"}}`)},
		"an error of no code":                      {"/v1/invoices/0000001", body(`{"Error":"s3cret"}`)},
		"an empty response":                        {"/v1/invoices/0000001", body("")},
		"another record than was asked for":        {"/v1/invoices/0000001", replace(`"0000001"`, `"0000003"`)},
		"a record without its name":                {"/v1/customers/1", replace(`"CUST_NM"`, `"Cust_Nm"`)},
		"a record in the list's place":             {"/v1/customers/1", replace(`"Row"`, `"Rows"`)},
		"a redirect":                               {"/v1/customers", func(a *answer) { a.status = 302; a.header.Set("Location", "/") }},
		"an undocumented status":                   {"/v1/customers", func(a *answer) { a.status = 203 }},
		"JSON in another charset":                  {"/v1/customers", header("Content-Type", "text/html; charset=iso-8859-1")},
		"JSON that is called something else again": {"/v1/customers", header("Content-Type", "text/plain")},
	} {
		l.during(c.change, func() {
			a := l.send(t, l.own, http.MethodGet, c.target, "")
			assert.Equal(t, http.StatusBadGateway, a.Status, "%s: %s", name, a.Body)
			assert.Contains(t, a.Body, `"code":"UPSTREAM_FAILED"`, name)
			assert.NotRegexp(t, `s3cret|Ines|Corner`, a.Body, name)
		})
	}
	for url, want := range map[string]string{
		"http://billing1.corp.example:8010/v2/accounts/17/Invoice/0000001.pdf":    `"/v1/invoices/0000001/pdf"`,
		"https://elsewhere.corp.example/v2/accounts/17/Invoice/0000001.json":      `"/v1/invoices/0000001"`,
		"http://billing1.corp.example:8010/v2/accounts/18/Invoice/0000001.pdf":    `null`,
		"http://billing1.corp.example/v2/accounts/17/Invoice/../../18/x.pdf":      `null`,
		"http://billing1.corp.example/v2/accounts/17/Invoice/0000001.pdf?ACCT=18": `null`,
		"//corp.example/admin":        `null`,
		"javascript:corp.example":     `null`,
		"\\\\\\\\corp.example\\\\pdf": `null`,
	} {
		doc := "http://billing1.corp.example:8010/v2/accounts/17/Invoice/0000001.pdf"
		l.during(replace(doc, url), func() {
			a := l.send(t, l.own, http.MethodGet, "/v1/invoices/0000001", "")
			assert.Equal(t, http.StatusOK, a.Status, a.Body)
			assert.Contains(t, a.Body, `"pdf_url":`+want+`,`, url)
			assert.NotRegexp(t, strangers, a.Body, url)
		})
	}
	// A page is sorted by the gateway.
	l.during(replace(`"CREATED":1741944600`, `"CREATED":1`), func() {
		require.Regexp(t, `^{"invoices":\[{"id":"0000009".*"id":"0000011"`, l.send(t, l.own, http.MethodGet, "/v1/invoices", "").Body)
	})
	// What a service adds does not leave, wherever it adds it, and neither do its headers.
	l.during(func(a *answer) {
		a.header.Set("Server", "s3cret")
		a.header.Set("Set-Cookie", "s3cret=1")
		a.header.Set("Location", "http://s3cret.corp.example/")
		a.body = strings.ReplaceAll(a.body, `{"`, `{"s3cret":{"s3cret":["s3cret"]},"`)
	}, func() {
		for _, target := range []string{"/v1/invoices", "/v1/invoices/0000001", "/v1/customers", "/v1/customers/1"} {
			a := l.send(t, l.own, http.MethodGet, target, "")
			assert.Equal(t, http.StatusOK, a.Status, a.Body)
			assert.NotRegexp(t, `s3cret|corp\.example`, a.Body)
			for name, values := range a.Header {
				assert.NotContains(t, strings.Join(values, " "), "s3cret", name)
			}
		}
	})
	gatewaytest.RequireNowhere(t, l.gateway.Everything(t), "s3cret", password)
}

// What cannot be mapped is 502 however little is enforced, and a body is checked in full.
func TestObservedMappingLetsNothingPassThatItCannotConvert(t *testing.T) {
	t.Parallel()
	l := newLegacy(t, "enforce tenant", func(text string) string { return text })
	for old, with := range map[string]string{
		`"ST":1`: `"ST":7`, `"DUNNED":"Y"`: `"DUNNED":1`, `"Total":"6"`: `"Total":"six"`, `"000021890"`: `"free"`, `"DOC":"http`: `"DOC":{"http":1},"x":"`,
	} {
		l.during(func(a *answer) { a.body = strings.Replace(a.body, old, with, 1) }, func() {
			a := l.send(t, l.own, http.MethodGet, "/v1/invoices", "")
			assert.Equal(t, http.StatusBadGateway, a.Status, "%s: %s", with, a.Body)
		})
	}
	l.during(nil, func() {
		a := l.send(t, l.own, http.MethodGet, "/v1/invoices/0000001", "")
		assert.Equal(t, http.StatusOK, a.Status, a.Body)
		assert.Contains(t, a.Body, `"MARGIN_CENTS":700`, "as documented")
		assert.NotRegexp(t, `corp\.example|AMT_CENTS|CUST_NM|DOC"|"ST"`, a.Body)
		a = l.send(t, l.own, http.MethodPost, "/v1/invoices/0000001/payments", `{"amount":"1.00","method":"card","paid_on":"2025-04-01","reference":"a","ACCT":"18"}`)
		assert.Equal(t, http.StatusBadRequest, a.Status, a.Body)
		for _, target := range []string{"/v1/invoices/0000002", "/v1/invoices/..%2f18"} {
			assert.Equal(t, http.StatusNotFound, l.send(t, l.own, http.MethodGet, target, "").Status, target)
		}
	})
}

func TestAdapterChangesOnlyWhatADefinitionCannotSay(t *testing.T) {
	t.Parallel()
	service := serve(t, "service", nil)
	adapter := serve(t, "adapter", nil, "-service", service)
	get := func(base, target string) string {
		a := gatewaytest.Caller{}.Get(t, base, target)
		return strconv.Itoa(a.Status) + " " + a.Header.Get("Content-Type") + " " + a.Body
	}
	for target, want := range map[string]string{ // want is the target that the service would be asked for, or the response
		"/v2/accounts/17/InvoiceList?limit=9":                "/v2/accounts/17/InvoiceList?limit=9",
		"/v2/accounts/17/InvoiceList?limit=9&st=1":           "/v2/accounts/17/InvoiceList?limit=9&st=1",
		"/v2/accounts/17/InvoiceList?limit=9&st=paid":        "/v2/accounts/17/InvoiceList?limit=9&st=2",
		"/v2/accounts/17/InvoiceList?limit=9&st=other":       "/v2/accounts/17/InvoiceList?limit=9&st=other",
		"/v2/accounts/17/Invoice/0000001.pdf":                "/v2/accounts/17/Invoice/0000001.pdf",
		"/v2/accounts/17/Customer/1.json":                    "/v2/accounts/17/Customer/1.json",
		"/v2/accounts/17/Customer/4.json":                    `404 application/problem+json {"title":"NO CUSTOMER"}`,
		"/v2/accounts/99/InvoiceList":                        "/v2/accounts/99/InvoiceList",
		"/elsewhere":                                         "/elsewhere",
		"/v2/accounts/17/InvoiceList?limit=9&st=paid&offset": "/v2/accounts/17/InvoiceList?limit=9&st=2&offset",
	} {
		if strings.HasPrefix(want, "/") {
			want = get(service, want)
		}
		assert.Equal(t, want, get(adapter, target), target)
	}
}
