package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// The documented way by hand (authsigner/testdata/README.md): nothing but a shell, openssl and curl.
const shellClient = `set -eu
timestamp=$(date +%s)
signature=$(printf '%s\n%s\n%s\n%s' "$timestamp" "$METHOD" "$TARGET" "$BODY" |
  openssl dgst -sha256 -hmac "$GATEHOUSE_SECRET" | sed 's/^.* //')
set -- --silent --show-error --max-time 20 --path-as-is --globoff "$PROTOCOL"
if [ "$METHOD" = HEAD ]; then set -- "$@" --head; else set -- "$@" --request "$METHOD"; fi
if [ -n "$BODY" ]; then set -- "$@" --data-binary "$BODY"; fi
curl "$@" --output "$OUT" --write-out '%{http_code} %{http_version}' \
  --header "X-Public-Key: $GATEHOUSE_KEY" --header "X-Timestamp: $timestamp" --header "X-Signature: $signature" \
  "$URL$TARGET"
`

// oddTargets are served, and each is signed as it goes over the wire.
var oddTargets = []string{
	"/api/v1/me",
	"/api/v1/me?",
	"/api/v1/invoices?page=2&per_page=7&status=paid",
	"/api/v1/contacts?type=%63ustomer&unknown=%c3%ab+%2B&&",
	"/api/v1/events?count=3&next=https://example.com/api/v1/me?x=[1]",
	"/api/v1/status?a=b",
}

func TestABusinessSignsWithOpensslAndCallsWithCurl(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.roomy(t)
	script := filepath.Join(t.TempDir(), "call.sh")
	require.NoError(t, os.WriteFile(script, []byte(shellClient), 0o600))
	call := func(protocol, method, target, body, secret string) (status, version, answer string) {
		out := filepath.Join(t.TempDir(), "answer")
		cmd := exec.CommandContext(t.Context(), "sh", script)
		cmd.Env = append(os.Environ(), "GATEHOUSE_KEY="+w.acme.PublicKey, "GATEHOUSE_SECRET="+secret, "URL="+g.URL, "OUT="+out,
			"PROTOCOL="+protocol, "METHOD="+method, "TARGET="+target, "BODY="+body)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		written, err := cmd.Output()
		require.NoError(t, err, "%s %s: %s", method, target, stderr.String())
		b, err := os.ReadFile(out)
		require.NoError(t, err)
		status, version, _ = strings.Cut(string(written), " ")
		return status, version, string(b)
	}
	secret := w.acme.PrivateKey.Reveal()
	for protocol, wantVersion := range map[string]string{"--http1.1": "1.1", "--http2-prior-knowledge": "2"} {
		for _, target := range oddTargets {
			status, version, answer := call(protocol, "GET", target, "", secret)
			require.Equal(t, "200", status, "%s %s: %s", protocol, target, answer)
			require.Equal(t, wantVersion, version)
			require.True(t, json.Valid([]byte(answer)), answer)
		}
		status, _, answer := call(protocol, "GET", "/api/v1/me", `{"a body":"on a GET, Zoë"}`, secret)
		require.Equal(t, "200", status, answer)
		status, _, _ = call(protocol, "HEAD", "/api/v1/jobs?per_page=3", "", secret)
		require.Equal(t, "200", status)
		status, _, answer = call(protocol, "GET", "/api/v1/me", "", "not the secret")
		require.Equal(t, "401", status)
		require.Contains(t, answer, "INVALID_CREDENTIALS")
	}
}

// The same with what Node brings along: its crypto, fetch, http and http2.
const nodeClient = `
const crypto = require('node:crypto'), http = require('node:http'), http2 = require('node:http2');
const {URL_BASE: base, GATEHOUSE_KEY: key, GATEHOUSE_SECRET: secret} = process.env;
const {targets, body} = JSON.parse(process.env.CASES);
function sign(method, target, body) {
  const timestamp = Math.floor(Date.now() / 1000).toString();
  const signature = crypto.createHmac('sha256', secret)
    .update(timestamp + '\n' + method + '\n' + target + '\n').update(body).digest('hex');
  return {'X-Public-Key': key, 'X-Timestamp': timestamp, 'X-Signature': signature};
}
async function withFetch(target) {
  const url = new URL(base + target);
  // what fetch sends is what the URL says, not what was written: so that is signed
  const res = await fetch(url, {headers: sign('GET', url.pathname + url.search, '')});
  return {how: 'fetch', target, status: res.status, body: await res.text()};
}
function withHTTP(target, body) {
  return new Promise((resolve, reject) => {
    const {hostname, port} = new URL(base);
    const headers = sign('GET', target, body);
    if (body) headers['Content-Length'] = Buffer.byteLength(body);
    const req = http.request({hostname, port, path: target, method: 'GET', headers}, res => {
      let text = '';
      res.setEncoding('utf8').on('data', d => text += d)
        .on('end', () => resolve({how: 'http', target, status: res.statusCode, body: text}));
    });
    req.on('error', reject).end(body);
  });
}
function withHTTP2(session, target, body) {
  return new Promise((resolve, reject) => {
    const req = session.request({':method': 'GET', ':path': target, ...sign('GET', target, body)}, {endStream: !body});
    let status, text = '';
    req.setEncoding('utf8').on('response', h => status = h[':status']).on('data', d => text += d)
      .on('end', () => resolve({how: 'http2', target, status, body: text})).on('error', reject);
    if (body) req.end(body);
  });
}
(async () => {
  const all = [];
  for (const target of targets) all.push(await withFetch(target), await withHTTP(target, ''));
  all.push(await withHTTP('/api/v1/me', body));
  const session = http2.connect(base);
  for (const target of targets) all.push(await withHTTP2(session, target, ''));
  all.push(await withHTTP2(session, '/api/v1/me', body));
  session.close();
  process.stdout.write(JSON.stringify(all));
})().catch(err => { console.error(err); process.exit(1); });
`

func TestABusinessSignsWithNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.roomy(t)
	cases, err := json.Marshal(map[string]any{"targets": oddTargets, "body": `{"a body":"on a GET, Zoë"}`})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--input-type=commonjs", "-")
	cmd.Stdin = strings.NewReader(nodeClient)
	cmd.Env = append(os.Environ(), "URL_BASE="+g.URL, "GATEHOUSE_KEY="+w.acme.PublicKey,
		"GATEHOUSE_SECRET="+w.acme.PrivateKey.Reveal(), "CASES="+string(cases))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", stderr.String())
	var answers []struct {
		How, Target, Body string
		Status            int
	}
	require.NoError(t, json.Unmarshal(out, &answers))
	require.Len(t, answers, 3*len(oddTargets)+2)
	for _, a := range answers {
		require.Equal(t, http.StatusOK, a.Status, "%s %s: %s", a.How, a.Target, a.Body)
		require.True(t, json.Valid([]byte(a.Body)))
	}
}

// callAsBusiness calls with the Go signer over a transport and holds the answers to a protocol.
func callAsBusiness(t *testing.T, w *world, base string, rt http.RoundTripper, protocol string) {
	t.Helper()
	client := &http.Client{
		Timeout:   patience,
		Transport: &authsigner.Transport{Base: rt, PublicKey: w.acme.PublicKey, PrivateKey: w.acme.PrivateKey},
	}
	for _, target := range append([]string{"/api/v1/business"}, oddTargets...) {
		for _, body := range []string{"", "a body on a GET"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+target, strings.NewReader(body))
			require.NoError(t, err)
			res, err := client.Do(req)
			require.NoError(t, err, "%s %s", protocol, target)
			text, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, http.StatusOK, res.StatusCode, "%s %s: %s", protocol, target, text)
			require.Equal(t, protocol, res.Proto)
			require.Equal(t, strconv.Itoa(len(text)), res.Header.Get("Content-Length"))
		}
	}
	// and what the key does not sign is refused over this protocol too
	client.Transport = rt
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/v1/me", http.NoBody)
	require.NoError(t, err)
	req.Header = rubbish(w.acme.PublicKey)
	res, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusUnauthorized, res.StatusCode)
}

// overPlaintext is a transport for one of the protocols without TLS.
func overPlaintext(t *testing.T, http2 bool) *http.Transport {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func TestABusinessCallsWithTheGoTransportOverHTTP1AndHTTP2(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.roomy(t)
	callAsBusiness(t, w, g.URL, overPlaintext(t, false), "HTTP/1.1")
	callAsBusiness(t, w, g.URL, overPlaintext(t, true), "HTTP/2.0")
}

// secure is a gateway that serves HTTPS with a certificate of Caddy's internal CA, which it returns.
func (w *world) secure(t *testing.T) (*gatewaytest.Gateway, *x509.CertPool) {
	t.Helper()
	o := w.options("limits {\n\t\t\tper_key 1000000\n\t\t\tper_ip 1000000\n\t\t}", "")
	g := gatewaytest.New(t, o)
	text := o.Caddyfile(g.Addr, strings.TrimPrefix(g.AdminURL, "http://"))
	_, port, _ := strings.Cut(g.Addr, ":")
	for from, to := range map[string]string{
		"auto_https off":           "auto_https disable_redirects\n\tskip_install_trust",
		"protocols h1 h2 h2c":      "protocols h1 h2 h3",
		"http://:" + port + " {\n": "https://localhost:" + port + " {\n\ttls internal\n",
	} {
		require.Equal(t, 1, strings.Count(text, from), from)
		text = strings.Replace(text, from, to, 1)
	}
	g.Write(t, text)
	g.Run(t)
	g.URL = "https://localhost:" + port
	var root []byte
	require.Eventually(t, func() bool {
		var err error
		root, err = os.ReadFile(filepath.Join(g.Dir, "caddy", "pki", "authorities", "local", "root.crt"))
		return err == nil
	}, patience, 20*time.Millisecond)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(root))
	// the certificate comes a moment after the port
	require.Eventually(t, func() bool {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: pool}}).DialContext(t.Context(), "tcp", "localhost:"+port)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, patience, 20*time.Millisecond)
	return g, pool
}

func TestABusinessCallsOverTLSWithHTTP1HTTP2AndHTTP3(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g, pool := w.secure(t)
	for _, http2 := range []bool{false, true} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, Protocols: new(http.Protocols)}
		t.Cleanup(tr.CloseIdleConnections)
		tr.Protocols.SetHTTP1(!http2)
		tr.Protocols.SetHTTP2(http2)
		callAsBusiness(t, w, g.URL, tr, map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2])
	}
	h3 := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(func() { require.NoError(t, h3.Close()) })
	callAsBusiness(t, w, g.URL, h3, "HTTP/3.0")
}
