package e2e_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
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

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
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
	Verdict    string
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

// hmacOf signs a message without package authsigner.
func hmacOf(secret, message string) string {
	mac := hmac.New(sha256.New, []byte(secret))
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
	root, err := gatewaytest.Root()
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
	signature := hmacOf(secret, timestamp+"\n"+v.Method+"\n"+v.Target+"\n"+string(v.body(t)))
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
		result := v.Verdict
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
				require.Regexp(t, `"(unverified-key|address)"`, policy, v.Name)
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
