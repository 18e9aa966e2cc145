package e2e_test

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/processtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// wireVector is a published test vector (authsigner/testdata/README.md).
type wireVector struct {
	Name             string
	Clock            int64
	ClockNanoseconds int64 `json:"clock_nanoseconds"`
	Method, Target   string
	Headers          [][2]string
	Body             string
	BodyBase64       string `json:"body_base64"`
	BodyRepeat       int    `json:"body_repeat"`
	Credential       *struct {
		PublicKey          string `json:"public_key"`
		PrivateKey         string `json:"private_key"`
		Status             string
		PreviousPrivateKey string `json:"previous_private_key"`
		PreviousExpiresAt  string `json:"previous_expires_at"`
	}
	SignedWith string `json:"signed_with"`
	Signature  string
	Result     string
}

func (v *wireVector) body(t *testing.T) []byte {
	t.Helper()
	if v.BodyBase64 != "" {
		b, err := base64.StdEncoding.DecodeString(v.BodyBase64)
		require.NoError(t, err)
		return b
	}
	return []byte(strings.Repeat(v.Body, max(1, v.BodyRepeat)))
}

// hmacOf signs a message with a hash.
func hmacOf(h func() hash.Hash, secret, message string) string {
	mac := hmac.New(h, []byte(secret))
	_, _ = io.WriteString(mac, message)
	return hex.EncodeToString(mac.Sum(nil))
}

// withSignature returns the three signing headers.
func withSignature(key, timestamp, signature string) []field {
	return []field{{authsigner.HeaderPublicKey, key}, {authsigner.HeaderTimestamp, timestamp}, {authsigner.HeaderSignature, signature}}
}

// standardKey is the public key of most vectors. As their credentials differ, each gets its own instead; the signature does not cover it.
const standardKey = "pk_live_3f8Zk1q0Tn_w-7Yd"

// nearClock matches the Unix seconds in a timestamp header, valid or not.
var nearClock = regexp.MustCompile(`17[56]\d{7}`)

// readWireVectors reads the vectors and adds their credentials to the credential file.
func readWireVectors(t *testing.T, w *environment) []*wireVector {
	t.Helper()
	root, err := processtest.Root()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "authsigner", "testdata", "vectors.json"))
	require.NoError(t, err)
	var all struct{ Vectors []*wireVector }
	require.NoError(t, json.Unmarshal(text, &all))
	require.GreaterOrEqual(t, len(all.Vectors), 200)
	store, err := file.Open(w.keyFile, file.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	now := time.Now()
	for i, v := range all.Vectors {
		c := v.Credential
		if c == nil {
			continue
		}
		if c.PublicKey == standardKey {
			own := fmt.Sprintf("pk_live_vector_%03d_%s", i, "w-7Yd")
			c.PublicKey = own
			for j := range v.Headers {
				v.Headers[j][1] = strings.ReplaceAll(v.Headers[j][1], standardKey, own)
			}
		}
		if !authsigner.ValidPublicKey(c.PublicKey) {
			continue // stores reject it
		}
		cred := &authsigner.Credential{
			PublicKey: c.PublicKey, PrivateKey: authsigner.Secret(c.PrivateKey), PreviousPrivateKey: authsigner.Secret(c.PreviousPrivateKey),
			BusinessID: w.acmeID, BusinessName: "Vector", BusinessSlug: "vector", Status: authsigner.Status(c.Status),
		}
		if c.PreviousExpiresAt != "" {
			at, err := time.Parse(time.RFC3339, c.PreviousExpiresAt)
			require.NoError(t, err)
			// an hour before or after the clock, as in the vector; package authsigner tests the exact time
			cred.PreviousExpiresAt = now.Add(-time.Hour)
			if at.After(time.Unix(v.Clock, v.ClockNanoseconds)) {
				cred.PreviousExpiresAt = now.Add(time.Hour)
			}
		}
		require.NoError(t, store.Create(t.Context(), cred), v.Name)
	}
	return all.Vectors
}

// lines returns the vector's headers at another clock, signed again if the signature is valid or only the timestamp is invalid.
func (v *wireVector) lines(t *testing.T, now int64) []field {
	t.Helper()
	var fields []field
	timestamp := ""
	for _, h := range v.Headers {
		value := h[1]
		if strings.EqualFold(h[0], authsigner.HeaderTimestamp) {
			value = nearClock.ReplaceAllStringFunc(value, func(digits string) string {
				n, err := strconv.ParseInt(digits, 10, 64)
				require.NoError(t, err)
				if len(value) == 13 || len(value) == 19 { // milliseconds and nanoseconds are not changed
					return digits
				}
				return strconv.FormatInt(n-v.Clock+now, 10)
			})
			timestamp = value
		}
		fields = append(fields, field{h[0], value})
	}
	var secret string
	switch {
	case v.SignedWith == "previous_private_key":
		secret = v.Credential.PreviousPrivateKey
	case v.SignedWith != "", strings.HasPrefix(v.Name, "timestamp: ") && v.Credential != nil && !strings.Contains(v.Name, "after signing") && !strings.Contains(v.Name, "wrong"):
		secret = v.Credential.PrivateKey
	default:
		return fields
	}
	signature := hmacOf(sha256.New, secret, timestamp+"\n"+v.Method+"\n"+v.Target+"\n"+string(v.body(t)))
	for i, f := range fields {
		if strings.EqualFold(f.name, authsigner.HeaderSignature) {
			if f.value == strings.ToUpper(f.value) {
				signature = strings.ToUpper(signature)
			}
			fields[i].value = signature
		}
	}
	return fields
}

// undeliverable reports whether HTTP cannot carry the vector.
func (v *wireVector) undeliverable() bool {
	control := func(s string) bool {
		return strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\t' })
	}
	broken := control(v.Method) || control(v.Target)
	for _, h := range v.Headers {
		broken = broken || control(h[1])
	}
	return broken
}

// A request with a valid signature counts against its key, whatever the response to its path and method; where the resource is served,
// the response is tested too.
func TestPublishedVectorsOverTheWire(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, &recorder{})
	vectors := readWireVectors(t, w)
	g := w.behindProxy(t, highLimits, "")
	var from clientIPs
	for i, v := range vectors {
		var (
			a    gatewaytest.Response
			body = v.body(t)
		)
		for { // again if the second has changed between signing and the response
			now := time.Now().Unix()
			var b strings.Builder
			fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: api.example.com\r\n%s", v.Method, v.Target, linesOf(from.from(v.lines(t, now))))
			switch {
			case len(body) == 0:
				b.WriteString("\r\n")
			case i%2 == 0:
				fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
			default:
				fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
			}
			responses, _ := converse(t, g.Addr, b.String()+lastRequest, v.Method)
			a = gatewaytest.Response{}
			if len(responses) > 0 {
				a = responses[0]
			}
			if time.Now().Unix() == now {
				break
			}
		}
		if v.undeliverable() {
			require.NotEqual(t, http.StatusOK, a.Status, v.Name)
			require.NotContains(t, a.Header.Get("RateLimit-Policy"), `"key"`, v.Name)
			continue
		}
		result := v.Result
		for _, h := range v.Headers {
			if h[1] != strings.TrimSpace(h[1]) && v.Credential != nil {
				result = "" // HTTP removes spaces around a value: another request arrives
			}
		}
		if rest, ok := strings.CutPrefix(v.Target, "/api/v1"); !ok || !strings.HasPrefix(rest+"/", "/") && rest[0] != '?' {
			requireProblem(t, a, http.StatusNotFound, "NOT_FOUND") // not below the API: not counted
			continue
		}
		policy := a.Header.Get("RateLimit-Policy")
		switch result {
		case "":
			require.NotZero(t, a.Status, v.Name)
		case "ok", "ACCOUNT_INACTIVE":
			require.Contains(t, policy, `"key"`, "%s: %d %s", v.Name, a.Status, a.Body)
		default:
			require.NotContains(t, policy, `"key"`, "%s: %d %s", v.Name, a.Status, a.Body)
			if result == "MISSING_CREDENTIALS" {
				require.Regexp(t, `"(unverified-key|ip)"`, policy, v.Name)
			} else {
				require.Contains(t, policy, `"unverified-key"`, v.Name)
			}
		}
		if v.Target == "/api/v1/me" && v.Method == http.MethodGet && result != "" {
			if result == "ok" {
				requireJSON(t, a)
				continue
			}
			var p problem
			require.NoError(t, json.Unmarshal([]byte(a.Body), &p), "%s: %s", v.Name, a.Body)
			require.Equal(t, result, p.Code, v.Name)
		}
	}
}

// Signatures and keys that are invalid at any time, computed for the current one.
func TestForgedSignaturesAreRejected(t *testing.T) {
	t.Parallel()
	w := newAttack(t, trustLoopback, "", "")
	const target = eventsPath + "?count=3&x=1"
	secret := w.acme.PrivateKey.Reveal()
	sum := hmacOf
	for protocol, send := range w.over {
		now := time.Now().Unix()
		ts := strconv.FormatInt(now, 10)
		message := ts + "\nGET\n" + target + "\n"
		right := sum(sha256.New, secret, message)
		try := func(key, timestamp, signature string) gatewaytest.Response {
			return send("GET", target, w.from(withSignature(key, timestamp, signature)))
		}
		require.Equal(t, http.StatusOK, try(w.acme.PublicKey, ts, right).Status)
		require.Equal(t, http.StatusOK, try(w.acme.PublicKey, ts, strings.ToUpper(right)).Status)
		reached := w.data.count()
		plain := sha256.Sum256([]byte(message))
		withKey := sha256.Sum256([]byte(secret + message))
		signatures := map[string]string{
			"truncated by a digit": right[:63], "truncated by a byte": right[:62], "half": right[:32], "one digit": right[:1],
			"extended by a digit": right + "0", "extended by a byte": right + "00", "twice": right + right, "list": right + "," + right, "quoted": `"` + right + `"`,
			"algorithm before it": "sha256=" + right, "v1": "v1=" + right, "base64": base64.StdEncoding.EncodeToString([]byte(right)), "0x": "0x" + right, "0x of the same length": "0x" + right[2:],
			"inner space": right[:32] + " " + right[33:], "zeros": strings.Repeat("0", 64), "effs": strings.Repeat("f", 64), "gees": strings.Repeat("g", 64), "none": "none", "null": "null",
			"md5": sum(md5.New, secret, message), "sha1": sum(sha1.New, secret, message), "sha224": sum(sha256.New224, secret, message), "sha384": sum(sha512.New384, secret, message),
			"sha512": sum(sha512.New, secret, message), "sha512/256": sum(sha512.New512_256, secret, message), "no hmac": hex.EncodeToString(plain[:]), "key before the message": hex.EncodeToString(withKey[:]),
			"empty secret": sum(sha256.New, "", message), "public key as the secret": sum(sha256.New, w.acme.PublicKey, message), "another's secret": sum(sha256.New, w.other.PrivateKey.Reveal(), message),
			"secret cut": sum(sha256.New, secret[:len(secret)-1], message), "secret and a line feed": sum(sha256.New, secret+"\n", message), "zero secret": sum(sha256.New, strings.Repeat("\x00", 64), message),
			"line feed at the end": sum(sha256.New, secret, message+"\n"), "no last line feed": sum(sha256.New, secret, strings.TrimSuffix(message, "\n")), "CR LF": sum(sha256.New, secret, strings.ReplaceAll(message, "\n", "\r\n")),
			"POST": sum(sha256.New, secret, ts+"\nPOST\n"+target+"\n"), "get": sum(sha256.New, secret, ts+"\nget\n"+target+"\n"), "HEAD": sum(sha256.New, secret, ts+"\nHEAD\n"+target+"\n"),
			"another query order": sum(sha256.New, secret, ts+"\nGET\n"+eventsPath+"?x=1&count=3\n"), "without the query": sum(sha256.New, secret, ts+"\nGET\n"+eventsPath+"\n"),
			"forwarded target": sum(sha256.New, secret, ts+"\nGET\n"+eventsPath+"?count=3\n"), "with the host": sum(sha256.New, secret, ts+"\nGET\nhttp://api.example.com"+target+"\n"),
			"another second": sum(sha256.New, secret, strconv.FormatInt(now-1, 10)+"\nGET\n"+target+"\n"), "with a body": sum(sha256.New, secret, message+"{}"),
		}
		for i := range 64 { // each digit
			digit := byte('0')
			if right[i] == '0' {
				digit = '1'
			}
			signatures["digit "+strconv.Itoa(i)] = right[:i] + string(digit) + right[i+1:]
		}
		for name, signature := range signatures {
			a := try(w.acme.PublicKey, ts, signature)
			require.Equal(t, http.StatusUnauthorized, a.Status, "%s, %s: %s", protocol, name, a.Body)
			requireProblem(t, a, http.StatusUnauthorized, "INVALID_CREDENTIALS")
		}
		for name, key := range map[string]string{
			"another's": w.other.PublicKey, "another case": strings.ToUpper(w.acme.PublicKey), "extended": w.acme.PublicKey + "x", "cut": w.acme.PublicKey[:len(w.acme.PublicKey)-1],
			"path": "../" + w.acme.PublicKey, "path behind": w.acme.PublicKey + "/../" + w.acme.PublicKey, "encoded path": "%2e%2e%2f" + w.acme.PublicKey, "encoded NUL": w.acme.PublicKey + "%00", "slash": w.acme.PublicKey + "/",
			"backslash": `..\` + w.acme.PublicKey, "encoded": "%70" + w.acme.PublicKey[1:], "4 KiB": strings.Repeat("k", 4096), "129": strings.Repeat("k", 129), "short": "k", "glob": w.acme.PublicKey[:8] + "*", "dots": "........",
			"list": w.acme.PublicKey + "," + w.acme.PublicKey, "quoted": `"` + w.acme.PublicKey + `"`, "metadata": w.acme.PublicKey + "/metadata", "query": w.acme.PublicKey + "?version=1", "no UTF-8": w.acme.PublicKey + "\xff",
		} {
			a := try(key, ts, right)
			require.Equal(t, http.StatusUnauthorized, a.Status, "%s, key: %s: %s", protocol, name, a.Body)
			requireProblem(t, a, http.StatusUnauthorized, "INVALID_CREDENTIALS")
		}
		assert.Equal(t, reached, w.data.count())
	}
	gatewaytest.RequireNowhere(t, w.g.Output(), secret, w.other.PrivateKey.Reveal())
}

// 300 s to either side are accepted, 301 s are not, and only decimal digits.
func TestOnlyTimestampsWithinFiveMinutesPass(t *testing.T) {
	t.Parallel()
	w := newAttack(t, trustLoopback, "", "")
	for protocol, send := range w.over {
		at := func(write func(now int64) string) gatewaytest.Response {
			for {
				now := time.Now().Unix()
				ts := write(now)
				signature := hmacOf(sha256.New, w.acme.PrivateKey.Reveal(), ts+"\nGET\n/api/v1/me\n")
				a := send("GET", "/api/v1/me", w.from(withSignature(w.acme.PublicKey, ts, signature)))
				if time.Now().Unix() == now {
					return a
				}
			}
		}
		for _, offset := range []int64{0, 1, 299, 300, 301, 302, 3600, 1 << 33} {
			for _, sign := range []int64{1, -1} {
				a := at(func(now int64) string { return strconv.FormatInt(max(0, now+sign*offset), 10) })
				if offset <= 300 {
					require.Equal(t, http.StatusOK, a.Status, "%s %d: %s", protocol, sign*offset, a.Body)
					continue
				}
				p := requireProblem(t, a, http.StatusUnauthorized, "REQUEST_EXPIRED")
				assert.InDelta(t, time.Now().Unix(), p.ServerTime, 60)
			}
		}
		for name, write := range map[string]func(now int64) string{
			"negative":      written("-%d"),
			"plus":          written("+%d"),
			"fraction":      written("%d.0"),
			"comma":         written("%d,0"),
			"exponent":      written("%de0"),
			"hex":           written("0x%x"),
			"octal":         written("0o%o"),
			"underscore":    func(now int64) string { return fmt.Sprintf("%d_%03d", now/1000, now%1000) },
			"inner space":   func(now int64) string { return fmt.Sprintf("%d %03d", now/1000, now%1000) },
			"inner tab":     func(now int64) string { return fmt.Sprintf("%d\t%03d", now/1000, now%1000) },
			"21 digits":     written("%021d"),
			"4 KiB":         written("%04096d"),
			"list":          written("%[1]d, %[1]d"),
			"RFC 3339":      func(now int64) string { return time.Unix(now, 0).UTC().Format(time.RFC3339) },
			"HTTP date":     func(now int64) string { return time.Unix(now, 0).UTC().Format(http.TimeFormat) },
			"Arabic digits": func(now int64) string { return otherDigits(now, '\u0660') },
			"full width":    func(now int64) string { return otherDigits(now, '\uff10') },
			"superscript":   func(now int64) string { return fmt.Sprintf("%d\u00b2", now/10) },
			"word":          func(int64) string { return "now" },
		} {
			a := at(write)
			require.Equal(t, http.StatusUnauthorized, a.Status, "%s, %s", protocol, name)
			requireProblem(t, a, http.StatusUnauthorized, "INVALID_CREDENTIALS")
		}
		// in smaller units, and far from now
		for _, ts := range []string{"%d000", "%d000000", "%d000000000", "18446744073709551615", "99999999999999999999", "0"} {
			requireProblem(t, at(written(ts)), http.StatusUnauthorized, "REQUEST_EXPIRED")
		}
	}
}

// written returns a timestamp in a format, or the text itself.
func written(format string) func(now int64) string {
	return func(now int64) string {
		if !strings.Contains(format, "%") {
			return format
		}
		return fmt.Sprintf(format, now)
	}
}

func otherDigits(n int64, zero rune) string {
	return strings.Map(func(r rune) rune { return zero + r - '0' }, strconv.FormatInt(n, 10))
}

func TestSignatureIsValidForItsRequestOnly(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newEnvironment(t, data)
	g := w.behindProxy(t, "limits {\n\t\t\tper_key 1000000\n\t\t}", "")
	var from clientIPs
	use := func(method, target, sent string, signed []field) gatewaytest.Response {
		a, err := anonymous().Send(t.Context(), method, g.URL, target, headerOf(from.from(signed)), []byte(sent))
		require.NoError(t, err)
		return a
	}
	const target = eventsPath + "?count=3&x=1"
	signed := signedFields(w.acme, "GET", target, "a body")
	require.Equal(t, http.StatusOK, use("GET", target, "a body", signed).Status)
	before := data.count()
	for _, body := range []string{"", "a bodY", "a body\n", " a body", "a body\x00", "a", strings.Repeat("a body", 1000)} {
		requireProblem(t, use("GET", target, body, signed), http.StatusUnauthorized, "INVALID_CREDENTIALS")
	}
	for _, other := range []string{eventsPath + "?x=1&count=3", eventsPath + "?count=3", eventsPath + "?count=4&x=1", target + "&", "/api/v1/contacts?count=3&x=1"} {
		requireProblem(t, use("GET", other, "a body", signed), http.StatusUnauthorized, "INVALID_CREDENTIALS")
	}
	require.Equal(t, http.StatusUnauthorized, use("HEAD", target, "a body", signed).Status)
	// text cannot move between the target and the body
	requireProblem(t, use("GET", "/api/v1/me", "", signedFields(w.acme, "GET", "/api/v1", "/me")), http.StatusUnauthorized, "INVALID_CREDENTIALS")
	requireProblem(t, use("GET", "/api/v1/me", "x", signedFields(w.acme, "GET", "/api/v1/mex", "")), http.StatusUnauthorized, "INVALID_CREDENTIALS")
	require.Equal(t, before, data.count())
}

// With either credential source, the responses are identical byte for byte, except for request ID and clock.
func TestUnknownKeyAndWrongSignatureGetIdenticalResponses(t *testing.T) {
	t.Parallel()
	w := newVaultEnvironment(t, vaulttest.Options{})
	vault := w.options("")
	vault.Servers = trustLoopback
	var from clientIPs
	for source, g := range map[string]*gatewaytest.Gateway{"file": w.behindProxy(t, "", ""), "Vault": gatewaytest.Start(t, vault)} {
		requireReady(t, g)
		known := w.acme.PublicKey
		if source == "Vault" {
			known = w.keys.issue(t).PublicKey
		}
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			requireUnknownAsWrong(t, g, &from, known, w.inactive.PublicKey, w.other.PublicKey)
		})
	}
}

func requireUnknownAsWrong(t *testing.T, g *gatewaytest.Gateway, from *clientIPs, known, inactive, another string) {
	t.Helper()
	varies := regexp.MustCompile(`(?i)(x-request-id: |"request_id":"|date: |ratelimit-reset: |"server_time":)[^"\r\n]+`)
	exchange := func(method, target, body string, signature []field) string {
		conn := dial(t, g.Addr, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n%s",
			method, target, len(body), linesOf(from.from(signature)), body))
		b, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.NotEmpty(t, b)
		return varies.ReplaceAllString(string(b), "$1…")
	}
	now := time.Now().Unix()
	ts, wrong := strconv.FormatInt(now, 10), strings.Repeat("ab", 32)
	for _, tc := range []struct{ method, target, timestamp, body, status string }{
		{"GET", "/api/v1/me", ts, "", "401"},
		{"HEAD", "/api/v1/me", ts, "", "401"},
		{"GET", "/api/v1/events?count=x", ts, "", "401"},
		{"GET", "/api/v1/jobs", ts, "a body", "401"},
		{"GET", "/api/v1/me", ts, strings.Repeat("x", 1<<20+1), "413"},
		{"GET", "/api/v1/me", strconv.FormatInt(now-1000, 10), "", "401"},
		{"GET", "/api/v1/me", "x", "", "401"},
		{"POST", "/api/v1/me", ts, "", "405"},
		{"GET", "/api/v1/nothing", ts, "", "404"},
		{"GET", "/api/v1/status", ts, "", "200"},
	} {
		long := strings.Repeat("k", 4096)
		// A response may depend on the form of the headers, but not on the key.
		for form, pairs := range map[string][][2]string{
			"well-formed": {
				{known, wrong},
				{"pk_live_nobody_has_this_one", wrong},
				{"pk_live_nobody_has_this_one", wrong},
				{"pk_test_nor_this_one", wrong},
				{"sk_live_a_private_key_by_mistake", wrong},
				{inactive, wrong},
				{another, wrong},
			},
			"malformed signature": {{known, "x"}, {"pk_live_nobody_has_this_one", "x"}, {inactive, "x"}, {another, "x"}},
			"malformed key":       {{"../x", wrong}, {long, wrong}, {"x", "x"}},
		} {
			want := exchange(tc.method, tc.target, tc.body, withSignature(pairs[0][0], tc.timestamp, pairs[0][1]))
			require.True(t, strings.HasPrefix(want, "HTTP/1.1 "+tc.status), want)
			for _, c := range pairs[1:] {
				require.Equal(t, want, exchange(tc.method, tc.target, tc.body, withSignature(c[0], tc.timestamp, c[1])), "%s: %.40s: %s %s", form, c[0], tc.method, tc.target)
			}
		}
	}
}

// The gateway may read its whole Vault, which contains a credential outside the configured path whose private key the attacker knows. No
// spelling of its path as a public key leads to it, and Vault is asked only for valid public keys.
func TestInvalidPublicKeysAreNotLookedUpInVault(t *testing.T) {
	t.Parallel()
	w := newVaultEnvironment(t, vaulttest.Options{})
	client := w.vault.Client(t)
	require.NoError(t, client.Sys().PutPolicyWithContext(t.Context(), "gateway", `path "*" { capabilities = ["read", "list", "update"] }`))
	attacker := gatewaytest.Caller{PublicKey: "pk_live_of_the_attacker", PrivateKey: "known_to_the_attacker"}
	decoy := map[string]any{
		"private_key": attacker.PrivateKey.Reveal(), "business_id": w.otherID, "business_name": "Other", "business_slug": "other", "status": "active",
	}
	for _, path := range []string{"kv/data/gateway/" + attacker.PublicKey, "kv/data/" + attacker.PublicKey, "kv/data/gateway/keys/deeper/" + attacker.PublicKey} {
		_, err := client.Logical().WriteWithContext(t.Context(), path, map[string]any{"data": decoy})
		require.NoError(t, err)
	}
	o := w.options(highLimits)
	o.Servers = trustLoopback
	attack := &attack{environment: w.environment}
	attack.serve(t, o)
	all, from := attack.over, &attack.clientIPs
	requireReady(t, attack.g)
	name := attacker.PublicKey
	for protocol, send := range all {
		for _, key := range []string{
			"../" + name, "..%2f" + name, "%2e%2e/" + name, "%2e%2e%2f" + name, "%252e%252e%252f" + name, `..\` + name, "..%5c" + name, "./../" + name,
			"x/../../" + name, "deeper/" + name, "deeper%2f" + name, "/" + name, "//" + name, "../../" + name, "../../data/" + name, "keys/../../" + name, "..;/" + name,
			"../" + name + "?version=1", "../" + name + "#", "../" + name + "\x00", "../" + name + "%00", "\x00" + name, name + "/..", name + "/", name + "%2f", name + "?list=true", name + "#x", name + ";x",
			"../../../sys/seal-status", "../../../../v1/sys/mounts", "..%2f..%2f..%2fauth%2ftoken%2flookup-self", "*", "+", ".", "..", "~", strings.Repeat(".", 64), strings.Repeat("../", 1365),
			strings.Repeat("a", 129), strings.Repeat("a", 4096), strings.Repeat("a", 4000) + "/../../" + name, strings.Repeat("%2e%2e%2f", 400) + name, "\xc0\xae\xc0\xae/" + name, "\uff0e\uff0e\uff0f" + name, name + "\u200b",
			`{"key":"` + name + `"}`, "{{" + name + "}}", "${" + name + "}", "{env.TEST_ROLE_ID}", "{file." + w.secretIDFile + "}", "`id`", name + "\t", "\"" + name + "\"", "sk_live_of_the_attacker",
		} {
			forged := attacker
			forged.PublicKey = key
			a := send("GET", "/api/v1/me", from.from(signedFields(forged, "GET", "/api/v1/me", "")))
			if a.Status == 0 || a.Status == http.StatusBadRequest && !strings.HasPrefix(a.Body, "{") {
				continue // HTTP does not allow this header
			}
			require.Equal(t, http.StatusUnauthorized, a.Status, "%s %.80q: %s", protocol, key, a.Body)
			requireProblem(t, a, http.StatusUnauthorized, "INVALID_CREDENTIALS")
		}
	}
	// a valid public key is looked up only below the configured path
	requireProblem(t, all[overHTTP1]("GET", "/api/v1/me", from.from(signedFields(attacker, "GET", "/api/v1/me", ""))), http.StatusUnauthorized, "INVALID_CREDENTIALS")
	asked := w.proxy.targets()
	require.Contains(t, asked, "GET /v1/kv/data/gateway/keys/"+name)
	own := regexp.MustCompile(`^((PUT|POST) /v1/auth/approle/login|GET /v1/sys/internal/ui/mounts/kv|(GET|PUT|POST) /v1/auth/token/(lookup|renew)-self|GET /v1/kv/data/gateway/keys/[A-Za-z0-9_-]{8,128})$`)
	lookups := map[string]bool{}
	for _, target := range asked {
		require.Regexp(t, own, target)
		if strings.Contains(target, "/gateway/keys/") {
			lookups[target] = true
		}
	}
	require.Len(t, lookups, 1, "%v", lookups)
}

// An entry without a private key verifies nothing, in a file and in Vault.
func TestEmptyPrivateKeyVerifiesNothing(t *testing.T) {
	t.Parallel()
	w := newVaultEnvironment(t, vaulttest.Options{})
	client := w.vault.Client(t)
	keys := map[string]map[string]any{}
	for i, secret := range []any{"", "\x00", strings.Repeat("\x00", 64), " ", "\n", "[redacted]", nil, []any{}, map[string]any{}, 0, false} {
		keys[fmt.Sprintf("pk_live_without_secret_%d", i)] = map[string]any{
			"private_key": secret, "business_id": w.acmeID, "business_name": "None", "business_slug": "none", "status": "active",
		}
	}
	keys["pk_live_with_an_old_one"] = map[string]any{
		"private_key": "made_up_and_good", "previous_private_key": "", "previous_expires_at": "2100-01-01T00:00:00Z",
		"business_id": w.acmeID, "business_name": "None", "business_slug": "none", "status": "active",
	}
	content, err := json.Marshal(map[string]any{"keys": keys})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.keyFile, content, 0o600))
	for key, entry := range keys {
		_, err := client.Logical().WriteWithContext(t.Context(), "kv/data/gateway/keys/"+key, map[string]any{"data": entry})
		require.NoError(t, err)
		_, err = client.Logical().WriteWithContext(t.Context(), "kv1/gateway/keys/"+key, entry)
		require.NoError(t, err)
	}
	second := w.options(highLimits)
	w.setMount(t, "kv1")
	for store, o := range map[string]gatewaytest.Options{"file": w.environment.options(highLimits, ""), "kv2": second, "kv1": w.options(highLimits)} {
		o.Servers = trustLoopback
		g := gatewaytest.Start(t, o)
		requireReady(t, g)
		var from clientIPs
		send := wires(t, g, nil)[overHTTP1]
		for key := range keys {
			ts := strconv.FormatInt(time.Now().Unix(), 10)
			for _, secret := range []string{"", "\x00", " ", "\n", "[redacted]", "null", "0", "false", "[]", "{}", "map[]", "<nil>", key} {
				a := send("GET", "/api/v1/me", from.from(withSignature(key, ts, hmacOf(sha256.New, secret, ts+"\nGET\n/api/v1/me\n"))))
				assert.Contains(t, []int{http.StatusUnauthorized, http.StatusServiceUnavailable}, a.Status, "%s, %s, %q: %s", store, key, secret, a.Body)
				assert.NotContains(t, a.Header.Get("RateLimit-Policy"), `"key"`)
			}
			// an empty public key
			requireProblem(t, send("GET", "/api/v1/me", from.from(withSignature("", ts, strings.Repeat("0", 64)))), http.StatusUnauthorized, "MISSING_CREDENTIALS")
		}
		good := gatewaytest.Caller{PublicKey: "pk_live_with_an_old_one", PrivateKey: "made_up_and_good"}
		assert.Equal(t, http.StatusOK, good.Get(t, g.URL, "/api/v1/me").Status, store)
	}
}
