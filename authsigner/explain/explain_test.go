package explain_test

import (
	"context"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/explain"
)

const (
	publicKey  = "pk_live_0123456789"
	privateKey = "sk_live_8GmYwq3cVn5tB2xKzR7pLd0hJf4sWu6e"
	target     = "/api/v1/equipment?category=Power%20tools&page=2"
	body       = `{"b":1,"a":"ü/x"}`
)

var sentAt = time.Unix(1760000000, 0)

// program is a caller's program: what it sends, and what it signs instead.
type program struct {
	method, target, body, base          string
	timestamp, public                   string // headers
	signedTime, signedMethod, signedURL string
	signedBody                          *string
	secret, issued                      string
	message                             func(timestamp, method, target, body string) string
	algorithm                           func(secret, message string) []byte
	encode                              func(sum []byte) string
	header                              func(h http.Header)
	cred                                func(c *authsigner.Credential)
	at                                  time.Time
}

func lines(parts ...string) string { return strings.Join(parts, "\n") }

func mac(h func() hash.Hash) func(secret, message string) []byte {
	return func(secret, message string) []byte {
		m := hmac.New(h, []byte(secret))
		_, _ = m.Write([]byte(message))
		return m.Sum(nil)
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// request returns the request that the program sends, and the credential of its key.
func (p program) request() (explain.Request, *authsigner.Credential) {
	p.method, p.target = or(p.method, "GET"), or(p.target, target)
	p.timestamp, p.public, p.secret = or(p.timestamp, "1760000000"), or(p.public, publicKey), or(p.secret, privateKey)
	signedBody := p.body
	if p.signedBody != nil {
		signedBody = *p.signedBody
	}
	if p.message == nil {
		p.message = func(timestamp, method, target, body string) string { return lines(timestamp, method, target, body) }
	}
	if p.algorithm == nil {
		p.algorithm = mac(sha256.New)
	}
	if p.encode == nil {
		p.encode = hex.EncodeToString
	}
	message := p.message(or(p.signedTime, p.timestamp), or(p.signedMethod, p.method), or(p.signedURL, p.target), signedBody)
	h := http.Header{
		authsigner.HeaderPublicKey: {p.public}, authsigner.HeaderTimestamp: {p.timestamp},
		authsigner.HeaderSignature: {p.encode(p.algorithm(p.secret, message))},
	}
	if p.header != nil {
		p.header(h)
	}
	cred := &authsigner.Credential{PublicKey: publicKey, PrivateKey: authsigner.Secret(or(p.issued, privateKey))}
	if p.cred != nil {
		p.cred(cred)
	}
	if p.at.IsZero() {
		p.at = sentAt
	}
	return explain.Request{
		Method: p.method, Target: p.base + p.target, BasePath: p.base, Scheme: "https", Host: "api.example.com", Header: h,
		Body: []byte(p.body), At: p.at,
	}, cred
}

func codes(res explain.Result) []string {
	var all []string
	for _, m := range res.Mistakes {
		all = append(all, m.Code)
	}
	return all
}

type example struct {
	name string
	program
	codes []string
}

// joined is a program that joins the parts in another way.
func joined(message func(timestamp, method, target, body string) string) program {
	return program{message: message}
}

func examples() []example {
	return append(textExamples(), []example{
		{"right with upper-case hex", program{encode: func(b []byte) string { return strings.ToUpper(hex.EncodeToString(b)) }}, nil},
		{"right with the previous key", program{secret: "previous", cred: func(c *authsigner.Credential) {
			c.PreviousPrivateKey, c.PreviousExpiresAt = "previous", sentAt.Add(time.Hour)
		}}, nil},
		{"exactly 300 s late", program{at: sentAt.Add(300 * time.Second)}, nil},

		{"no timestamp", program{header: func(h http.Header) { h.Del(authsigner.HeaderTimestamp) }}, []string{"missing_header"}},
		{"no headers", program{header: func(h http.Header) { clear(h) }}, []string{"missing_header", "missing_header", "missing_header"}},
		{"signature twice", program{header: func(h http.Header) { h.Add(authsigner.HeaderSignature, "x") }}, []string{"repeated_header"}},
		{"signature twice, joined by a proxy", program{encode: func(b []byte) string { return hex.EncodeToString(b) + ", " + hex.EncodeToString(b) }}, []string{"repeated_header"}},
		{"301 s late", program{at: sentAt.Add(301 * time.Second)}, []string{"wrong_clock"}},

		{"printf's format", joined(func(a, b, c, _ string) string { before, _, _ := strings.Cut(lines(a, b, c), "%"); return before }), []string{"text_encoded"}},
		{"PHP's json_encode", joined(func(a, b, c, d string) string {
			return `{"timestamp":` + a + `,"method":"` + b + `","path":"` + strings.ReplaceAll(c, "/", `\/`) + `","body":"` + d + `"}`
		}), []string{"newline_missing"}},
		{"Go's json.Marshal of a map", joined(func(a, b, c, d string) string {
			text, _ := json.Marshal(map[string]string{"timestamp": a, "method": b, "path": c, "body": d})
			return string(text)
		}), []string{"newline_missing"}},

		{"private key hashed", program{secret: string(sum(sha256.New, privateKey))}, []string{"secret_hashed"}},
		{"previous key after its end", program{secret: "previous", cred: func(c *authsigner.Credential) {
			c.PreviousPrivateKey, c.PreviousExpiresAt = "previous", sentAt.Add(-time.Hour)
		}}, []string{"secret_previous"}},
		{"expired key", program{cred: func(c *authsigner.Credential) { c.ExpiresAt = sentAt }}, []string{"key_expired"}},
		{"expired key, and SHA-1", program{algorithm: mac(sha1.New), cred: func(c *authsigner.Credential) { c.ExpiresAt = sentAt }}, []string{"key_expired", "algorithm"}},
		{"no private key", program{algorithm: func(_, message string) []byte { return mac(sha256.New)("", message) }}, []string{"secret_empty"}},

		{"SHA-1", program{algorithm: mac(sha1.New)}, []string{"algorithm"}},
		{"SHA-512", program{algorithm: mac(sha512.New)}, []string{"algorithm"}},
		{"SHA-224", program{algorithm: mac(sha256.New224)}, []string{"algorithm"}},
		{"SHA3-512", program{algorithm: mac(func() hash.Hash { return sha3.New512() })}, []string{"algorithm"}},
		{"MD5", program{algorithm: mac(md5.New)}, []string{"algorithm"}},
		{"plain SHA-256", program{algorithm: func(secret, message string) []byte { return sum(sha256.New, secret+message) }}, []string{"algorithm"}},
		{"arguments swapped", program{algorithm: func(secret, message string) []byte { return mac(sha256.New)(message, secret) }}, []string{"algorithm_arguments"}},
		{"HMAC-SHA512, truncated", program{algorithm: func(secret, message string) []byte { return mac(sha512.New)(secret, message)[:32] }}, []string{"algorithm"}},
		{"HMAC of an HMAC", program{algorithm: func(secret, message string) []byte {
			return mac(sha256.New)(secret, string(mac(sha256.New)(secret, message)))
		}}, []string{"algorithm"}},
		{"derived key", program{algorithm: func(secret, message string) []byte {
			return mac(sha256.New)(string(mac(sha256.New)(secret, "1760000000")), message)
		}}, []string{"algorithm"}},
		{"HMAC of a hash", program{algorithm: func(secret, message string) []byte {
			return mac(sha256.New)(secret, hex.EncodeToString(sum(sha256.New, message)))
		}}, []string{"algorithm"}},
		{"Go's Sum(message)", program{algorithm: func(secret, message string) []byte {
			return hmac.New(sha256.New, []byte(secret)).Sum([]byte(message))
		}}, []string{"signature_message"}},
		{"string in base64", joined(func(a, b, c, d string) string { return base64.StdEncoding.EncodeToString([]byte(lines(a, b, c, d))) }), []string{"text_encoded"}},
		{"UTF-16 message", program{algorithm: func(secret, message string) []byte { return mac(sha256.New)(secret, wide(message)) }}, []string{"text_utf16"}},
		{"UTF-16", program{algorithm: func(secret, message string) []byte { return mac(sha256.New)(wide(secret), wide(message)) }}, []string{"text_utf16"}},

		{"base64", program{encode: base64.StdEncoding.EncodeToString}, []string{"signature_base64"}},
		{"private key as the signature", program{encode: func([]byte) string { return privateKey }}, []string{"signature_key"}},
		{"public key as the signature", program{encode: func([]byte) string { return publicKey }}, []string{"signature_key"}},
		{"base64 of hex and a line feed", program{encode: func(b []byte) string { return base64.StdEncoding.EncodeToString([]byte(hex.EncodeToString(b) + "\n")) }}, []string{"signature_base64"}},
		{"percent-encoded base64", program{encode: func(b []byte) string { return url.QueryEscape(base64.StdEncoding.EncodeToString(b)) }}, []string{"signature_encoding"}},
		{"Node's Buffer as JSON", program{encode: func(b []byte) string {
			return `{"type":"Buffer","data":` + strings.ReplaceAll(fmt.Sprint(b), " ", ",") + "}"
		}}, []string{"signature_encoding"}},
		{"Python's bytes", program{encode: func(b []byte) string { return "b'" + eachByte(`\x%02x`, false)(b) + "'" }}, []string{"signature_encoding"}},
		{"sha256sum's output", program{encode: func(b []byte) string { return hex.EncodeToString(b) + "  -" }}, []string{"signature_prefixed"}},
		{"base64 of hex", program{encode: func(b []byte) string { return base64.StdEncoding.EncodeToString([]byte(hex.EncodeToString(b))) }}, []string{"signature_base64"}},
		{"base64url", program{encode: base64.RawURLEncoding.EncodeToString}, []string{"signature_base64"}},
		{"sha256=", program{encode: func(b []byte) string { return "sha256=" + hex.EncodeToString(b) }}, []string{"signature_prefixed"}},
		{"openssl's output", program{encode: func(b []byte) string { return "SHA2-256(stdin)= " + hex.EncodeToString(b) }}, []string{"signature_prefixed"}},
		{"0x", program{encode: func(b []byte) string { return "0x" + hex.EncodeToString(b) }}, []string{"signature_prefixed"}},
		{"line feed behind the signature", program{encode: func(b []byte) string { return hex.EncodeToString(b) + "\n" }}, []string{"signature_whitespace"}},
		{"wrapped by xxd", program{encode: func(b []byte) string { return hex.EncodeToString(b[:30]) + " " + hex.EncodeToString(b[30:]) }}, []string{"signature_whitespace"}},
		{"truncated", program{encode: func(b []byte) string { return hex.EncodeToString(b[:31]) }}, []string{"signature_truncated"}},

		{"too short with leading zeros missing", leadingZero(func(b []byte) string { return strings.TrimLeft(hex.EncodeToString(b), "0") }), []string{"signature_truncated", "signature_encoding"}},
		{"each byte without its leading zero", leadingZero(eachByte("%x", false)), []string{"signature_truncated", "signature_encoding"}},
		{"each byte with its sign extended", program{encode: eachByte("%02x", true)}, []string{"signature_encoding"}},
		{"BitConverter", program{encode: func(b []byte) string { return strings.ReplaceAll(fmt.Sprintf("% X", b), " ", "-") }}, []string{"signature_encoding"}},
		{"fmt.Sprint of bytes", program{encode: func(b []byte) string { return fmt.Sprint(b) }}, []string{"signature_encoding"}},
		{"Python's bytes literal", program{encode: func(b []byte) string { return "b'" + base64.StdEncoding.EncodeToString(b) + "'" }}, []string{"signature_encoding"}},
		{"hex twice", program{encode: func(b []byte) string { return hex.EncodeToString([]byte(hex.EncodeToString(b))) }}, []string{"signature_encoding"}},
		{"hex of base64", program{encode: func(b []byte) string { return hex.EncodeToString([]byte(base64.StdEncoding.EncodeToString(b))) }}, []string{"signature_encoding"}},

		{"base64, and in milliseconds", program{timestamp: "1760000000123", encode: base64.StdEncoding.EncodeToString}, []string{"timestamp_unit", "signature_base64"}},
		{"SHA-1, and no query", program{algorithm: mac(sha1.New), signedURL: "/api/v1/equipment"}, []string{"algorithm", "path_query_missing"}},
	}...)
}

// textExamples returns those of testdata/examples.txt.
func textExamples() (all []example) {
	data, err := os.ReadFile("testdata/examples.txt")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(data)) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(columns) < 2 {
			continue
		}
		e := example{name: columns[1], codes: append([]string(nil), strings.Fields(columns[0])...)}
		for _, change := range columns[2:] {
			name, text, _ := strings.Cut(change, "=")
			text, err := strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`)
			if err != nil {
				panic("invalid text in examples.txt: " + change)
			}
			e.set(name, text)
		}
		all = append(all, e)
	}
	return all
}

// set makes a change of examples.txt. It panics if the name is unknown.
func (p *program) set(name, text string) {
	expand := func(parts map[string]string) string {
		parts["public_key"], parts["private_key"], parts["$"] = publicKey, privateKey, "$"
		return os.Expand(text, func(name string) string { return parts[name] })
	}
	switch name {
	case "message":
		p.message = func(timestamp, method, target, body string) string {
			return expand(map[string]string{"timestamp": timestamp, "method": method, "target": target, "body": body})
		}
	case "signed_body":
		p.signedBody = new(expand(map[string]string{}))
	default:
		*map[string]*string{
			"method": &p.method, "target": &p.target, "body": &p.body, "base": &p.base, "timestamp": &p.timestamp, "public_key": &p.public,
			"signed_timestamp": &p.signedTime, "signed_method": &p.signedMethod, "signed_target": &p.signedURL, "private_key": &p.secret,
			"issued_private_key": &p.issued,
		}[name] = expand(map[string]string{})
	}
}

// leadingZero is a program whose signature has a byte below 16 first, and others.
func leadingZero(encode func([]byte) string) program {
	for page := range 1000 {
		t := fmt.Sprintf("/api/v1/jobs?page=%d", page)
		if mac(sha256.New)(privateKey, lines("1760000000", "GET", t, ""))[0] < 16 {
			return program{target: t, encode: encode}
		}
	}
	panic("no such signature")
}

// eachByte prints bytes one by one, with their sign extended to 32 bits or not.
func eachByte(format string, signed bool) func([]byte) string {
	return func(b []byte) string {
		var text strings.Builder
		for _, c := range b {
			n := uint32(c)
			if signed && c > 127 {
				n |= 0xffffff00
			}
			fmt.Fprintf(&text, format, n)
		}
		return text.String()
	}
}

func sum(h func() hash.Hash, s string) []byte {
	m := h()
	_, _ = m.Write([]byte(s))
	return m.Sum(nil)
}

// wide encodes text as .NET's Encoding.Unicode does.
func wide(s string) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(s)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return string(b)
}

// Headers that show a mistake which makes the signature impossible to explain.
var incomplete = []string{"missing_header", "timestamp_malformed", "signature_malformed", "signature_key"}

func TestKnownMistakesAreFound(t *testing.T) {
	t.Parallel()
	for _, e := range examples() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			r, cred := e.request()
			res := explain.Read(r).Explain(context.Background(), cred, sentAt)
			require.Equal(t, e.codes, codes(res), "%+v", res.Mistakes)
			require.Equal(t, len(e.codes) == 0, res.Verified)
			if !slices.ContainsFunc(e.codes, func(code string) bool { return slices.Contains(incomplete, code) }) {
				require.True(t, res.Complete)
			}
			require.NotContains(t, res.Signed, privateKey)
			for _, m := range res.Mistakes {
				assert.NotContains(t, m.What+m.Fix, "%!")
				assert.NotContains(t, m.What+m.Fix, privateKey)
			}
		})
	}
}

func TestEveryKindOfMistakeHasAnExample(t *testing.T) {
	t.Parallel()
	found := map[string]bool{"signature_malformed": true} // TestUnknownMistakesAreNotGuessed
	for _, e := range examples() {
		for _, code := range e.codes {
			found[code] = true
		}
	}
	for _, k := range explain.Kinds() {
		assert.True(t, found[k.Code], k.Code)
	}
}

func TestUnknownMistakesAreNotGuessed(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]program{
		"another private key": {secret: "something else"},
		"random signature":    {encode: func([]byte) string { return strings.Repeat("5a", 32) }},
		"large body":          {method: "POST", body: strings.Repeat("x", 1<<20), secret: "something else"},
		// or else each character could be guessed by itself
		"a few characters of the private key": {secret: "6e", issued: "sk_live_8GmYwq3cVn5tB2xKzR7pLd0h_6e"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, cred := p.request()
			res := explain.Read(r).Explain(context.Background(), cred, sentAt)
			assert.Empty(t, res.Mistakes)
			assert.False(t, res.Verified)
			assert.False(t, res.Complete)
		})
	}
	for name, signature := range map[string]string{"a word": "signature", "too short": "abcd"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, cred := program{encode: func([]byte) string { return signature }}.request()
			res := explain.Read(r).Explain(context.Background(), cred, sentAt)
			require.Equal(t, []string{"signature_malformed"}, codes(res))
		})
	}
	t.Run("unknown key", func(t *testing.T) {
		t.Parallel()
		r, _ := program{}.request()
		require.False(t, explain.Read(r).Explain(context.Background(), nil, sentAt).Verified)
	})
}

func TestValuesInTheWrongHeaderAreNotQuoted(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"signature": strings.Repeat("5a", 32), "private key": privateKey, "short private key": "sk_test_x",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, cred := program{timestamp: value}.request()
			res := explain.Read(r).Explain(context.Background(), cred, sentAt)
			assert.Equal(t, []string{"timestamp_malformed"}, codes(res))
			assert.NotContains(t, res.Mistakes[0].What, value)
		})
	}
}

func TestSearchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, cred := program{secret: privateKey + "\n", signedMethod: "get"}.request()
	require.False(t, explain.Read(r).Explain(ctx, cred, sentAt).Complete)
}

// The cost of a search is bounded, and does not grow with the number of parameters, which the sender of the request chooses.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	tried := func(p program) int {
		p.secret = "something else"
		r, cred := p.request()
		return explain.Read(r).Tried(cred, sentAt)
	}
	for name, p := range map[string]program{
		"usual":            {},
		"no query":         {target: "/api/v1/me"},
		"body":             {method: "POST", body: body},
		"many characters":  {target: "/api/v1/equipment?category=Caf%C3%A9%20%26+Bar&page=2&per_page=25&status=a,b"},
		"many parameters":  {target: "/api/v1/jobs?page=1" + strings.Repeat("&a=b", 500)},
		"SHA-1's length":   {algorithm: mac(sha1.New)},
		"too short":        {encode: func(b []byte) string { return hex.EncodeToString(b[:30]) }},
		"below a base URL": {base: "/gw"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Less(t, tried(p), explain.MaxTried, "the search has ended before everything was tried")
		})
	}
}

func TestMistakesAreNamedExactly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		program
		what string
	}{
		"another header":     {program{header: func(h http.Header) { h["X-Signature "] = h["X-Signature"]; delete(h, "X-Signature") }}, `, but "X-Signature " was sent.`},
		"Authorization":      {program{header: func(h http.Header) { h["Authorization"] = h["X-Signature"]; delete(h, "X-Signature") }}, `, but "Authorization" was sent.`},
		"ticks":              {program{timestamp: "638955968000000000"}, "is in .NET ticks."},
		"nothing signed":     {joined(func(_, _, _, d string) string { return d }), "lacks everything but the body."},
		"SHA3-256":           {program{algorithm: mac(func() hash.Hash { return sha3.New256() })}, "HMAC-SHA3-256 instead"},
		"UTF-16 message":     {program{algorithm: func(secret, message string) []byte { return mac(sha256.New)(secret, wide(message)) }}, "The string was encoded"},
		"repeated parameter": {program{target: "/api/v1/jobs?page=2&page=2", signedURL: "/api/v1/jobs?page=2"}, `with the repeated "page" only once.`},
		"far from the clock": {program{timestamp: "781692800"}, "more than ten years away from the server's clock: the gateway rejects the request as expired."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, cred := c.request()
			res := explain.Read(r).Explain(context.Background(), cred, sentAt)
			require.Len(t, res.Mistakes, 1)
			assert.Contains(t, res.Mistakes[0].What, c.what)
		})
	}
}

// The string to sign has whole seconds, also if the header has another form of the time.
func TestStringToSignHasWholeSeconds(t *testing.T) {
	t.Parallel()
	for _, timestamp := range []string{"1760000000123", "1760000000.5", "2025-10-09T08:53:20Z", "638955968000000000", "1760000000"} {
		r, _ := program{timestamp: timestamp}.request()
		assert.Equal(t, lines("1760000000", "GET", target, ""), explain.Read(r).ToSign(), timestamp)
	}
}
