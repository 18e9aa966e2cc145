package authsigner_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// vectorCase says how one vector differs from a plain signed GET /api/v1/me. What is signed and what is sent differ
// only where the case says so.
type vectorCase struct {
	name    string
	verdict string

	method, target string // as sent; default GET, /api/v1/me
	body           string
	repeat         int

	at        int64  // the request's timestamp, relative to the clock
	timestamp string // as sent and signed, instead of at
	nanos     int64  // the clock's fraction

	secret string // that signs; default the private key
	cred   func(*vectorCredential)
	absent bool              // the gateway knows no credential
	hash   func() hash.Hash  // default SHA-256
	sign   func(*signedPart) // changes what is signed, after what is sent was taken
	sent   func(*sentPart)   // changes what is sent, after it was signed
}

// signedPart is the four parts of the signing string.
type signedPart struct{ timestamp, method, target, body string }

// sentPart is what a forger can change of a signed request.
type sentPart struct {
	key, timestamp, signature string
	headers                   [][2]string // instead of the three
}

const (
	vectorKey      = "pk_live_3f8Zk1q0Tn_w-7Yd"
	vectorSecret   = "made_up_8GmYwq3cVn5tB2xKzR7pLd0hJf4sWu6e"
	vectorPrevious = "made_up_Qe1rT9yU3iO5pA7sD2fG4hJ6kL8zX0cV"
	vectorBodyMax  = 1 << 20
)

func (c *vectorCase) vector() vector {
	v := vector{
		Name: c.name, Verdict: c.verdict, Clock: testClock, ClockNanoseconds: c.nanos,
		Method: "GET", Target: "/api/v1/me", BodyRepeat: c.repeat,
		Credential: &vectorCredential{PublicKey: vectorKey, PrivateKey: vectorSecret, Status: "active"},
	}
	if c.method != "" {
		v.Method = c.method
	}
	if c.target != "" {
		v.Target = c.target
	}
	if utf8.ValidString(c.body) {
		v.Body = c.body
	} else {
		v.BodyBase64 = base64.StdEncoding.EncodeToString([]byte(c.body))
	}
	if c.cred != nil {
		c.cred(v.Credential)
	}

	part := signedPart{strconv.FormatInt(testClock+c.at, 10), v.Method, v.Target, string(v.body())}
	if c.timestamp != "" {
		part.timestamp = c.timestamp
	}
	sent := sentPart{key: v.Credential.PublicKey, timestamp: part.timestamp}
	if c.sign != nil {
		c.sign(&part)
	}
	secret, with := v.Credential.PrivateKey, "private_key"
	if c.secret != "" {
		secret = c.secret
		if secret == v.Credential.PreviousPrivateKey {
			with = "previous_private_key"
		}
	}
	newHash := c.hash
	if newHash == nil {
		newHash = sha256.New
	}
	message := part.timestamp + "\n" + part.method + "\n" + part.target + "\n" + part.body
	h := hmac.New(newHash, []byte(secret))
	h.Write([]byte(message))
	sent.signature = hex.EncodeToString(h.Sum(nil))
	if c.verdict == verdictOK || c.verdict == verdictInactive {
		v.SignedWith, v.Signature = with, sent.signature
		switch {
		case v.BodyRepeat > 0: // a megabyte that says nothing
		case utf8.ValidString(message):
			v.SigningString = message
		default:
			v.SigningBase64 = base64.StdEncoding.EncodeToString([]byte(message))
		}
	}
	if c.sent != nil {
		c.sent(&sent)
	}
	v.Headers = sent.headers
	if v.Headers == nil {
		v.Headers = [][2]string{
			{"X-Public-Key", sent.key}, {"X-Timestamp", sent.timestamp}, {"X-Signature", sent.signature},
		}
	}
	if c.absent {
		v.Credential = nil
	}
	return v
}

// The ways to change a case.

func sentKey(key string) func(*sentPart) { return func(s *sentPart) { s.key = key } }

func sentTimestamp(timestamp string) func(*sentPart) {
	return func(s *sentPart) { s.timestamp = timestamp }
}

func sentSignature(f func(string) string) func(*sentPart) {
	return func(s *sentPart) { s.signature = f(s.signature) }
}

// sentHeaders names headers by k, t and s; the values are those of the request.
func sentHeaders(f func(k, t, s string) [][2]string) func(*sentPart) {
	return func(p *sentPart) { p.headers = f(p.key, p.timestamp, p.signature) }
}

// rotated gives the credential a previous secret that ends so many seconds after the clock.
func rotated(endsIn time.Duration) func(*vectorCredential) {
	return func(c *vectorCredential) {
		c.PreviousPrivateKey = vectorPrevious
		c.PreviousExpiresAt = time.Unix(testClock, 0).Add(endsIn).UTC().Format(time.RFC3339Nano)
	}
}

func publicKeyOf(length int) func(*vectorCredential) {
	return func(c *vectorCredential) { c.PublicKey = strings.Repeat("k", length) }
}

// vectorCases are the vectors, in the file's order. The verdicts are written by hand from the documented rules.
func vectorCases() []vectorCase {
	digits := func(zero rune) string {
		return strings.Map(func(r rune) rune { return zero + r - '0' }, strconv.FormatInt(testClock, 10))
	}
	upper := sentSignature(strings.ToUpper)
	cut := func(s string) string { return s[:len(s)-1] }
	headers := func(name string, f func(k, t, s string) [][2]string) vectorCase {
		return vectorCase{name: name, verdict: verdictMissing, sent: sentHeaders(f)}
	}
	ok := func(name, target string) vectorCase {
		return vectorCase{name: "target: " + name, verdict: verdictOK, target: target}
	}
	// signedAs is a request whose target was changed after it was signed.
	signedAs := func(name, signed, sent string) vectorCase {
		return vectorCase{
			name: "target: " + name, verdict: verdictInvalid, target: sent,
			sign: func(p *signedPart) { p.target = signed },
		}
	}
	badTimestamp := func(name, timestamp string) vectorCase {
		return vectorCase{name: "timestamp: " + name, verdict: verdictInvalid, timestamp: timestamp}
	}
	badSignature := func(name string, f func(string) string) vectorCase {
		return vectorCase{name: "signature: " + name, verdict: verdictInvalid, sent: sentSignature(f)}
	}
	badKey := func(name, key string) vectorCase {
		return vectorCase{
			name: "key: " + name, verdict: verdictInvalid,
			cred: func(c *vectorCredential) { c.PublicKey = key },
		}
	}
	const invoices = "/api/v1/invoices?page=2&per_page=50&status=paid"
	now := strconv.FormatInt(testClock, 10)

	return []vectorCase{
		// Requests that are right.
		{name: "plain GET", verdict: verdictOK},
		{name: "plain HEAD", verdict: verdictOK, method: "HEAD"},
		{name: "POST with a JSON body", verdict: verdictOK, method: "POST", body: `{"name":"Zoë","n":1}`},
		{name: "signature in upper case", verdict: verdictOK, sent: upper},
		{name: "signature in mixed case", verdict: verdictOK, sent: sentSignature(func(s string) string {
			return strings.ToUpper(s[:32]) + s[32:]
		})},
		{name: "header names in lower case", verdict: verdictOK, sent: sentHeaders(func(k, t, s string) [][2]string {
			return [][2]string{{"x-public-key", k}, {"x-timestamp", t}, {"x-signature", s}}
		})},
		{
			name: "header names in odd case and another order", verdict: verdictOK,
			sent: sentHeaders(func(k, t, s string) [][2]string {
				return [][2]string{{"X-SIGNATURE", s}, {"x-Timestamp", t}, {"X-pUBLIC-kEY", k}}
			}),
		},
		{
			name: "other headers that look similar are other headers", verdict: verdictOK,
			sent: sentHeaders(func(k, t, s string) [][2]string {
				return [][2]string{
					{"X-Public-Key", k},
					{"X-Timestamp", t},
					{"X-Signature", s},
					{"X_Public_Key", "pk_live_somebody_else"},
					{"X-Signature-2", "00"},
					{"X.Timestamp", "1"},
				}
			}),
		},
		{name: "shortest public key", verdict: verdictOK, cred: publicKeyOf(8)},
		{name: "longest public key", verdict: verdictOK, cred: publicKeyOf(128)},
		{
			name: "public key without a prefix", verdict: verdictOK,
			cred: func(c *vectorCredential) { c.PublicKey = "-_AZaz09" },
		},
		{
			name: "private key longer than a SHA-256 block", verdict: verdictOK,
			cred: func(c *vectorCredential) { c.PrivateKey = strings.Repeat("long secret ", 20) + "." },
		},
		{
			name: "private key of a block exactly", verdict: verdictOK,
			cred: func(c *vectorCredential) { c.PrivateKey = strings.Repeat("0123456789abcdef", 4) },
		},
		{
			name: "private key that looks like hex is used as text", verdict: verdictOK,
			cred: func(c *vectorCredential) { c.PrivateKey = "00ff00ff00ff00ff00ff00ff00ff00ff" },
		},
		{
			name: "private key that looks like base64 is used as text", verdict: verdictOK,
			cred: func(c *vectorCredential) { c.PrivateKey = "c2VjcmV0IGtleSBvZiBhIGJ1c2luZXNz==" },
		},
		{
			name: "private key with characters outside ASCII is its UTF-8 bytes", verdict: verdictOK,
			cred: func(c *vectorCredential) { c.PrivateKey = "schlüssel-ключ-鍵-🔑" },
		},

		// Targets are signed as sent, whatever they look like.
		ok("query", invoices),
		ok("query in another order is another target", "/api/v1/invoices?status=paid&per_page=50&page=2"),
		ok("empty query keeps its question mark", "/api/v1/contacts?"),
		ok("two question marks", "/api/v1/contacts??"),
		ok("question mark in the query", "/api/v1/contacts?type=a?b"),
		ok("parameter without a value", "/api/v1/contacts?page"),
		ok("parameter with an empty value", "/api/v1/contacts?page="),
		ok("parameter without a name", "/api/v1/contacts?=1"),
		ok("repeated parameter", "/api/v1/contacts?page=1&page=2"),
		ok("doubled and trailing ampersands", "/api/v1/contacts?&&page=1&&per_page=2&"),
		ok("semicolons", "/api/v1/contacts;v=1?page=1;per_page=2"),
		ok("plus is a plus", "/api/v1/contacts?type=a+b"),
		ok("encoded space", "/api/v1/contacts?type=a%20b"),
		ok("encoded plus", "/api/v1/contacts?type=a%2Bb"),
		ok("percent escapes in lower case", "/api/v1/contacts?type=%c3%ab"),
		ok("percent escapes in upper case", "/api/v1/contacts?type=%C3%AB"),
		ok("needless escapes", "/api/v1/%63ontacts?%70age=1"),
		ok("escaped slash", "/api/v1%2Fcontacts"),
		ok("double escape", "/api/v1/contacts?type=%252B"),
		ok("escapes outside the basic plane", "/api/v1/contacts?type=%F0%9F%94%91"),
		ok("escape of no UTF-8", "/api/v1/contacts?type=%ff%fe"),
		ok("percent sign that escapes nothing, in the query", "/api/v1/contacts?type=100%"),
		ok("brackets and braces in the query", "/api/v1/contacts?filter[type]={lead}|[]"),
		ok("sub-delimiters", "/api/v1/contacts?a=!$'()*,&b=:@/-._~"),
		ok("doubled slashes", "/api/v1//contacts"),
		ok("trailing slash", "/api/v1/contacts/"),
		ok("dot segments", "/api/v1/./jobs/../contacts"),
		ok("escaped dot segments", "/api/v1/%2e%2e/contacts"),
		ok("upper case path", "/API/V1/CONTACTS"),
		ok("a path that is no endpoint", "/api/v1/nothing-here"),
		ok("the bare prefix", "/api/v1"),
		ok("a URL in the query", "/api/v1/contacts?type=https://example.com/api/v1/me?x=1"),
		ok("many parameters", "/api/v1/contacts?"+manyParameters(200)),
		ok("number far past 64 bits", "/api/v1/events?count=99999999999999999999999999"),

		// A target that is not the signed one, byte for byte, even if it means the same.
		signedAs("another query order than signed", invoices, "/api/v1/invoices?per_page=50&page=2&status=paid"),
		signedAs("parameter added", "/api/v1/contacts", "/api/v1/contacts?page=2"),
		signedAs("parameter removed", "/api/v1/contacts?page=2", "/api/v1/contacts"),
		signedAs("parameter changed", "/api/v1/contacts?page=2", "/api/v1/contacts?page=3"),
		signedAs("question mark added", "/api/v1/contacts", "/api/v1/contacts?"),
		signedAs("question mark removed", "/api/v1/contacts?", "/api/v1/contacts"),
		signedAs("path changed", "/api/v1/contacts", "/api/v1/invoices"),
		signedAs("signed without the query", "/api/v1/contacts", "/api/v1/contacts?page=1"),
		signedAs("signed decoded, sent escaped", "/api/v1/contacts?type=a b", "/api/v1/contacts?type=a%20b"),
		signedAs("signed with plus, sent with %20", "/api/v1/contacts?type=a+b", "/api/v1/contacts?type=a%20b"),
		signedAs("signed with escapes in the other case", "/api/v1/contacts?type=%C3%AB", "/api/v1/contacts?type=%c3%ab"),
		signedAs("signed clean, sent with dot segments", "/api/v1/contacts", "/api/v1/./contacts"),
		signedAs("signed clean, sent with doubled slashes", "/api/v1/contacts", "/api/v1//contacts"),
		signedAs("signed without the trailing slash", "/api/v1/contacts", "/api/v1/contacts/"),
		signedAs("signed in lower case, sent in upper case", "/api/v1/contacts", "/api/v1/CONTACTS"),
		signedAs("signed without the prefix", "/contacts", "/api/v1/contacts"),
		signedAs("signed with scheme and host", "https://api.example.com/api/v1/contacts", "/api/v1/contacts"),
		signedAs("signed with the fragment", "/api/v1/contacts#top", "/api/v1/contacts"),

		// Methods.
		{
			name: "method: another than signed", verdict: verdictInvalid, method: "HEAD",
			sign: func(p *signedPart) { p.method = "GET" },
		},
		{
			name: "method: GET signed, POST sent", verdict: verdictInvalid, method: "POST",
			sign: func(p *signedPart) { p.method = "GET" },
		},
		{
			name: "method: signed in lower case", verdict: verdictInvalid,
			sign: func(p *signedPart) { p.method = "get" },
		},
		{
			name: "method: override headers count for nothing", verdict: verdictInvalid, method: "POST",
			sign: func(p *signedPart) { p.method = "GET" },
			sent: sentHeaders(func(k, t, s string) [][2]string {
				return [][2]string{
					{"X-Public-Key", k}, {"X-Timestamp", t}, {"X-Signature", s}, {"X-HTTP-Method-Override", "GET"},
				}
			}),
		},

		// Bodies.
		{name: "body: on a GET", verdict: verdictOK, body: "a body nobody asked for"},
		{name: "body: line feeds", verdict: verdictOK, method: "POST", body: "\n\na\nb\n"},
		{name: "body: CR LF is not LF", verdict: verdictOK, method: "POST", body: "a\r\nb\r\n"},
		{
			name: "body: looks like a signing string", verdict: verdictOK, method: "POST",
			body: now + "\nGET\n/api/v1/me\n",
		},
		{name: "body: binary", verdict: verdictOK, method: "POST", body: "\x00\x01\xfe\xff\x80\n\x00"},
		{name: "body: UTF-8 with a byte order mark", verdict: verdictOK, method: "POST", body: "\ufeff{\"a\":\"é\"}"},
		{name: "body: one zero byte", verdict: verdictOK, method: "POST", body: "\x00"},
		{name: "body: as large as is allowed", verdict: verdictOK, method: "POST", body: "a", repeat: vectorBodyMax},
		{name: "body: a byte larger than is allowed", verdict: verdictTooLarge, method: "POST", body: "a", repeat: vectorBodyMax + 1},
		{
			name: "body: too large under an unknown key", verdict: verdictTooLarge, method: "POST", body: "a",
			repeat: vectorBodyMax + 1, absent: true,
		},
		{
			name: "body: too large under a wrong signature", verdict: verdictTooLarge, method: "POST", body: "a",
			repeat: vectorBodyMax + 1, secret: "a guess",
		},
		{
			name: "body: too large and expired is expired", verdict: verdictExpired, method: "POST", body: "a",
			repeat: vectorBodyMax + 1, at: -301,
		},
		{
			name: "body: swapped after signing", verdict: verdictInvalid, method: "POST", body: `{"amount":"9000.00"}`,
			sign: func(p *signedPart) { p.body = `{"amount":"90.00"}` },
		},
		{
			name: "body: removed after signing", verdict: verdictInvalid, method: "POST",
			sign: func(p *signedPart) { p.body = `{"amount":"90.00"}` },
		},
		{
			name: "body: added after signing", verdict: verdictInvalid, method: "POST", body: "{}",
			sign: func(p *signedPart) { p.body = "" },
		},
		{
			name: "body: a line feed added after signing", verdict: verdictInvalid, method: "POST", body: "{}\n",
			sign: func(p *signedPart) { p.body = "{}" },
		},
		{
			name: "body: re-formatted after signing", verdict: verdictInvalid, method: "POST", body: `{"a": 1}`,
			sign: func(p *signedPart) { p.body = `{"a":1}` },
		},
		{
			name: "body: its hash signed instead of it", verdict: verdictInvalid, method: "POST", body: "{}",
			sign: func(p *signedPart) {
				sum := sha256.Sum256([]byte(p.body))
				p.body = hex.EncodeToString(sum[:])
			},
		},

		// The signing string's own form.
		{
			name: "signing string: a line feed after an empty body", verdict: verdictInvalid,
			sign: func(p *signedPart) { p.body = "\n" },
		},
		{
			name: "signing string: CR LF between the parts", verdict: verdictInvalid,
			sign: func(p *signedPart) { p.timestamp += "\r"; p.method += "\r"; p.target += "\r" },
		},
		{
			name: "signing string: parts exchanged", verdict: verdictInvalid,
			sign: func(p *signedPart) { p.timestamp, p.method = p.method, p.timestamp },
		},
		{
			name: "signing string: a part of the body moved into the target", verdict: verdictInvalid,
			target: "/api/v1/me\nextra", sign: func(p *signedPart) { p.target, p.body = "/api/v1/me", "extra\n" },
		},
		{name: "signing string: a line feed in the target", verdict: verdictInvalid, target: "/api/v1/me\n/api/v1/jobs"},
		{name: "signing string: a line feed in the method", verdict: verdictInvalid, method: "GET\n"},

		// Timestamps.
		{name: "timestamp: 299 s old", verdict: verdictOK, at: -299},
		{name: "timestamp: 300 s old", verdict: verdictOK, at: -300},
		{name: "timestamp: 300 s old at the very end of the server's second", verdict: verdictOK, at: -300, nanos: 999_999_999},
		{name: "timestamp: 301 s old", verdict: verdictExpired, at: -301},
		{name: "timestamp: 299 s ahead", verdict: verdictOK, at: 299},
		{name: "timestamp: 300 s ahead", verdict: verdictOK, at: 300},
		{name: "timestamp: 301 s ahead", verdict: verdictExpired, at: 301},
		{name: "timestamp: 301 s ahead at the very end of the server's second", verdict: verdictExpired, at: 301, nanos: 999_999_999},
		{name: "timestamp: zero", verdict: verdictExpired, timestamp: "0"},
		{name: "timestamp: a day old", verdict: verdictExpired, at: -86400},
		{name: "timestamp: in milliseconds", verdict: verdictExpired, timestamp: now + "000"},
		{name: "timestamp: in nanoseconds", verdict: verdictExpired, timestamp: now + "000000000"},
		{name: "timestamp: of 64 bits", verdict: verdictExpired, timestamp: "18446744073709551615"},
		{name: "timestamp: that wraps round 64 bits to now", verdict: verdictExpired, timestamp: "18446744075469551616"},
		{name: "timestamp: that wraps round a signed 64 bits", verdict: verdictExpired, timestamp: "09223372036854775808"},
		{name: "timestamp: 20 digits", verdict: verdictExpired, timestamp: strings.Repeat("9", 20)},
		{name: "timestamp: leading zeros", verdict: verdictOK, timestamp: "0000000000" + now},
		badTimestamp("21 digits", strings.Repeat("9", 21)),
		badTimestamp("leading zeros beyond 20 digits", "00000000000"+now),
		badTimestamp("4 KiB of digits", strings.Repeat("1", 4096)),
		badTimestamp("negative", "-"+now),
		badTimestamp("signed", "+"+now),
		badTimestamp("leading space", " "+now),
		badTimestamp("trailing space", now+" "),
		badTimestamp("inner space", now[:5]+" "+now[5:]),
		badTimestamp("leading tab", "\t"+now),
		badTimestamp("fractional", now+".0"),
		badTimestamp("fractional with a comma", now+",5"),
		badTimestamp("exponent", "1.76e9"),
		badTimestamp("hexadecimal", "0x68e77800"),
		badTimestamp("hexadecimal without a prefix", "68e77800"),
		badTimestamp("underscores", "1_760_000_000"),
		badTimestamp("RFC 3339", "2025-10-09T08:53:20Z"),
		badTimestamp("a list of two", now+", "+now),
		badTimestamp("Arabic-Indic digits", digits('٠')),
		badTimestamp("Devanagari digits", digits('०')),
		badTimestamp("full-width digits", digits('０')),
		badTimestamp("NUL at the end", now+"\x00"),
		badTimestamp("no number", "now"),
		{name: "timestamp: changed after signing", verdict: verdictInvalid, sent: sentTimestamp(strconv.FormatInt(testClock+1, 10))},
		{name: "timestamp: a zero put before it after signing", verdict: verdictInvalid, sent: sentTimestamp("0" + now)},
		{name: "timestamp: malformed under an unknown key", verdict: verdictInvalid, timestamp: "x", absent: true},
		{name: "timestamp: expired under an unknown key", verdict: verdictExpired, at: -301, absent: true},
		{name: "timestamp: expired under a wrong signature", verdict: verdictExpired, at: -301, secret: "a guess"},

		// Signatures.
		badSignature("of zeros", func(string) string { return strings.Repeat("0", 64) }),
		badSignature("last digit changed", func(s string) string { return cut(s) + string("10"[btoi(s[63] == '1')]) }),
		badSignature("first digit changed", func(s string) string { return string("10"[btoi(s[0] == '1')]) + s[1:] }),
		badSignature("truncated by a digit", cut),
		badSignature("truncated by a byte", func(s string) string { return s[:62] }),
		badSignature("truncated to half", func(s string) string { return s[:32] }),
		badSignature("one digit", func(s string) string { return s[:1] }),
		badSignature("extended by a digit", func(s string) string { return s + "0" }),
		badSignature("extended by a byte", func(s string) string { return s + "00" }),
		badSignature("twice", func(s string) string { return s + s }),
		badSignature("a list of two", func(s string) string { return s + ", " + s }),
		badSignature("leading space", func(s string) string { return " " + s }),
		badSignature("with 0x", func(s string) string { return "0x" + s }),
		badSignature("with 0x, of the same length", func(s string) string { return "0x" + s[2:] }),
		badSignature("with an algorithm before it", func(s string) string { return "sha256=" + s }),
		badSignature("in base64", func(s string) string {
			raw, _ := hex.DecodeString(s)
			return base64.StdEncoding.EncodeToString(raw)
		}),
		badSignature("with a letter past f", func(s string) string { return cut(s) + "g" }),
		badSignature("with a full-width digit", func(s string) string { return s[:61] + "０" }),
		badSignature("with a NUL", func(s string) string { return cut(s) + "\x00" }),
		badSignature("reversed", func(s string) string {
			b := []byte(s)
			for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
				b[i], b[j] = b[j], b[i]
			}
			return string(b)
		}),
		badSignature("4 KiB of digits", func(s string) string { return strings.Repeat(s, 64) }),
		{name: "signature: SHA-1", verdict: verdictInvalid, hash: sha1.New},
		{name: "signature: SHA-224", verdict: verdictInvalid, hash: sha256.New224},
		{name: "signature: SHA-512", verdict: verdictInvalid, hash: sha512.New},
		{name: "signature: SHA-512/256, of the same length", verdict: verdictInvalid, hash: sha512.New512_256},
		{name: "signature: SHA-256 without a key", verdict: verdictInvalid, sent: func(s *sentPart) {
			sum := sha256.Sum256([]byte(vectorSecret + s.timestamp + "\nGET\n/api/v1/me\n"))
			s.signature = hex.EncodeToString(sum[:])
		}},
		{name: "signature: with another secret", verdict: verdictInvalid, secret: "made_up_of_somebody_else"},
		{name: "signature: with the secret cut by a byte", verdict: verdictInvalid, secret: vectorSecret[:len(vectorSecret)-1]},
		{name: "signature: with the secret and a line feed", verdict: verdictInvalid, secret: vectorSecret + "\n"},
		{name: "signature: with the secret in upper case", verdict: verdictInvalid, secret: strings.ToUpper(vectorSecret)},
		{name: "signature: with the public key as the secret", verdict: verdictInvalid, secret: vectorKey},
		{name: "signature: with the empty secret", verdict: verdictInvalid, secret: "\x00"},
		{
			name: "signature: of another request", verdict: verdictInvalid,
			sign: func(p *signedPart) { *p = signedPart{now, "GET", "/api/v1/jobs", ""} },
		},

		// Public keys.
		{name: "key: unknown", verdict: verdictInvalid, absent: true},
		{name: "key: of another business", verdict: verdictInvalid, sent: sentKey("pk_live_4f8Zk1q0Tn_w-7Yd")},
		{name: "key: in another case", verdict: verdictInvalid, sent: sentKey(strings.ToUpper(vectorKey))},
		{name: "key: a list of two", verdict: verdictInvalid, sent: sentKey(vectorKey + ", " + vectorKey)},
		badKey("too short", "pk_live"),
		badKey("too long", strings.Repeat("k", 129)),
		badKey("4 KiB", strings.Repeat("k", 4096)),
		badKey("path traversal", "../../../sys/auth/token"),
		badKey("path traversal behind a key", vectorKey+"/../pk_live_of_another"),
		badKey("slash", "pk_live/12345678"),
		badKey("escaped slash", "pk_live_%2f..%2f12345678"),
		badKey("backslash", `pk_live_..\12345678`),
		badKey("NUL", "pk_live_12345678\x00"),
		badKey("dots", "........"),
		badKey("space", "pk_live_1234 5678"),
		badKey("trailing space", "pk_live_12345678 "),
		badKey("line feed", "pk_live_12345678\n"),
		badKey("glob", "pk_live_*"),
		badKey("letters outside ASCII", "pk_live_zoë12345"),
		badKey("a Kelvin sign for a k", "p\u212a_live_12345678"),

		// Headers that are not there exactly once.
		headers("headers: none", func(_, _, _ string) [][2]string { return [][2]string{} }),
		headers("headers: no public key", func(_, t, s string) [][2]string {
			return [][2]string{{"X-Timestamp", t}, {"X-Signature", s}}
		}),
		headers("headers: no timestamp", func(k, _, s string) [][2]string {
			return [][2]string{{"X-Public-Key", k}, {"X-Signature", s}}
		}),
		headers("headers: no signature", func(k, t, _ string) [][2]string {
			return [][2]string{{"X-Public-Key", k}, {"X-Timestamp", t}}
		}),
		headers("headers: empty public key", func(_, t, s string) [][2]string {
			return [][2]string{{"X-Public-Key", ""}, {"X-Timestamp", t}, {"X-Signature", s}}
		}),
		headers("headers: empty timestamp", func(k, _, s string) [][2]string {
			return [][2]string{{"X-Public-Key", k}, {"X-Timestamp", ""}, {"X-Signature", s}}
		}),
		headers("headers: empty signature", func(k, t, _ string) [][2]string {
			return [][2]string{{"X-Public-Key", k}, {"X-Timestamp", t}, {"X-Signature", ""}}
		}),
		headers("headers: public key twice, the same", func(k, t, s string) [][2]string {
			return [][2]string{{"X-Public-Key", k}, {"X-Public-Key", k}, {"X-Timestamp", t}, {"X-Signature", s}}
		}),
		headers("headers: public key twice, another one first", func(k, t, s string) [][2]string {
			return [][2]string{{"X-Public-Key", "pk_live_another_one"}, {"X-Public-Key", k}, {"X-Timestamp", t}, {"X-Signature", s}}
		}),
		headers("headers: public key twice, the second empty", func(k, t, s string) [][2]string {
			return [][2]string{{"X-Public-Key", k}, {"X-Timestamp", t}, {"X-Signature", s}, {"X-Public-Key", ""}}
		}),
		headers("headers: timestamp twice", func(k, t, s string) [][2]string {
			return [][2]string{{"X-Public-Key", k}, {"X-Timestamp", t}, {"X-Timestamp", t}, {"X-Signature", s}}
		}),
		headers("headers: signature twice, in other case of the name", func(k, t, s string) [][2]string {
			return [][2]string{{"X-Public-Key", k}, {"X-Timestamp", t}, {"X-Signature", s}, {"x-signature", s}}
		}),
		headers("headers: underscores for dashes", func(k, t, s string) [][2]string {
			return [][2]string{{"X_Public_Key", k}, {"X_Timestamp", t}, {"X_Signature", s}}
		}),
		headers("headers: dots for dashes", func(k, t, s string) [][2]string {
			return [][2]string{{"X.Public.Key", k}, {"X.Timestamp", t}, {"X.Signature", s}}
		}),
		{
			name: "headers: missing comes before expired", verdict: verdictMissing, at: -301,
			sent: sentHeaders(func(k, t, _ string) [][2]string { return [][2]string{{"X-Public-Key", k}, {"X-Timestamp", t}} }),
		},

		// Rotation.
		{name: "rotation: the current secret", verdict: verdictOK, cred: rotated(time.Hour)},
		{name: "rotation: the previous secret", verdict: verdictOK, cred: rotated(time.Hour), secret: vectorPrevious},
		{name: "rotation: the previous secret a second before its end", verdict: verdictOK, cred: rotated(time.Second), secret: vectorPrevious},
		{
			name: "rotation: the previous secret a nanosecond before its end", verdict: verdictOK,
			cred: rotated(time.Second), nanos: 999_999_999, secret: vectorPrevious,
		},
		{name: "rotation: the previous secret at its end", verdict: verdictInvalid, cred: rotated(0), secret: vectorPrevious},
		{name: "rotation: the previous secret after its end", verdict: verdictInvalid, cred: rotated(-time.Hour), secret: vectorPrevious},
		{name: "rotation: the current secret after the previous one's end", verdict: verdictOK, cred: rotated(-time.Hour)},
		{name: "rotation: a third secret", verdict: verdictInvalid, cred: rotated(time.Hour), secret: "made_up_of_last_year"},
		{name: "rotation: a secret that is not the previous one of any", verdict: verdictInvalid, secret: vectorPrevious},
		{
			name: "rotation: an end in another time zone", verdict: verdictOK, secret: vectorPrevious,
			cred: func(c *vectorCredential) {
				c.PreviousPrivateKey = vectorPrevious
				c.PreviousExpiresAt = time.Unix(testClock+60, 0).In(time.FixedZone("", -7*3600)).Format(time.RFC3339)
			},
		},

		// Accounts.
		{name: "account: inactive", verdict: verdictInactive, cred: inactive},
		{
			name: "account: inactive, by the previous secret", verdict: verdictInactive, secret: vectorPrevious,
			cred: func(c *vectorCredential) { rotated(time.Hour)(c); inactive(c) },
		},
		{name: "account: inactive, with a body", verdict: verdictInactive, method: "POST", body: "{}", cred: inactive},
		{name: "account: inactive, wrong signature", verdict: verdictInvalid, secret: "a guess", cred: inactive},
		{name: "account: inactive, expired", verdict: verdictExpired, at: 301, cred: inactive},
	}
}

func inactive(c *vectorCredential) { c.Status = "inactive" }

func manyParameters(n int) string {
	parameters := make([]string, n)
	for i := range parameters {
		parameters[i] = "p" + strconv.Itoa(i) + "=" + strconv.Itoa(i*i)
	}
	return strings.Join(parameters, "&")
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
