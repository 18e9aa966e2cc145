package authsigner_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// How FuzzVerify signs a request. A fuzzer would never guess a valid signature.
const (
	signAsGiven   = iota // the fuzzer's own signature
	signCurrent          // with the private key
	signPrevious         // with the previous private key
	signUpperCase        // with the private key, in upper case
	signOneBitOff        // with the private key, one bit changed
	signEmptyKey         // with no key
	signModes
)

// The bits of FuzzVerify's flags.
const (
	flagUnknown  = 1 << iota // the server has no such credential
	flagInactive             // the account is inactive
	flagNoKey                // a header is left out …
	flagNoStamp
	flagNoSignature
	flagTwoKeys // … or given twice
	flagTwoSignatures
	flagOtherKey // the server has the credential under another key
)

// Verify must agree with the reference implementation.
func FuzzVerify(f *testing.F) {
	// A third of the vectors, so that a short run gets beyond the seeds. TestVectorsAgreeWithVerifyAndTheReference runs them all.
	for i, v := range readVectors(f) {
		if i%3 != 0 || v.BodyRepeat > 0 || len(v.Headers) != 3 {
			continue
		}
		c, flags := v.Credential, byte(0)
		if c == nil {
			c, flags = &vectorCredential{PublicKey: vectorKey, PrivateKey: vectorSecret}, flagUnknown
		}
		if c.Status == "inactive" {
			flags |= flagInactive
		}
		f.Add(v.Headers[0][1], v.Headers[1][1], v.Headers[2][1], v.Method, v.Target, v.body(),
			c.PrivateKey, c.PreviousPrivateKey, int64(time.Hour), v.ClockNanoseconds, byte(signAsGiven), flags)
	}
	now := strconv.FormatInt(testClock, 10)
	for mode := range byte(signModes) {
		f.Add(vectorKey, now, "", "GET", meTarget, []byte(nil), vectorSecret, vectorPrevious, int64(1), int64(0), mode, byte(0))
		f.Add(vectorKey, now, "", "GET", meTarget, []byte("x"), "", "\x00", int64(1), int64(0), mode, byte(0))
	}
	for bit := range 8 {
		f.Add(vectorKey, now, "", "GET", meTarget, []byte(nil), vectorSecret, "", int64(0), int64(0), byte(signCurrent), byte(1)<<bit)
	}
	f.Fuzz(func(t *testing.T, key, timestamp, signature, method, target string, body []byte,
		secret, previous string, endsIn, nanos int64, mode, flags byte,
	) {
		v := vector{
			Clock: testClock, ClockNanoseconds: max(nanos, -nanos-1) % 1e9, Method: method, Target: target, Body: string(body),
		}
		if flags&flagUnknown == 0 {
			v.Credential = &vectorCredential{PublicKey: key, PrivateKey: secret, Status: "active"}
			if flags&flagInactive != 0 {
				v.Credential.Status = "inactive"
			}
			if flags&flagOtherKey != 0 {
				v.Credential.PublicKey = "pk_live_of_another_business"
			}
			if endsIn != 0 { // within three centuries of the clock
				end := time.Unix(testClock, 0).Add(time.Duration(endsIn)).UTC()
				v.Credential.PreviousPrivateKey = previous
				v.Credential.PreviousExpiresAt = end.Format(time.RFC3339Nano)
			}
		}
		right := func(secret string) string {
			return hmacHex(secret, timestamp+"\n"+method+"\n"+target+"\n"+string(body))
		}
		switch mode % signModes {
		case signCurrent:
			signature = right(secret)
		case signPrevious:
			signature = right(previous)
		case signUpperCase:
			signature = strings.ToUpper(right(secret))
		case signOneBitOff:
			raw, _ := hex.DecodeString(right(secret))
			raw[int(flags)%len(raw)] ^= 1 << (mode / signModes % 8)
			signature = hex.EncodeToString(raw)
		case signEmptyKey:
			signature = right("")
		}
		add := func(name, value string, absent, twice byte) {
			if flags&absent == 0 {
				v.Headers = append(v.Headers, [2]string{name, value})
			}
			if flags&twice != 0 {
				v.Headers = append(v.Headers, [2]string{name, value})
			}
		}
		add(authsigner.HeaderPublicKey, key, flagNoKey, flagTwoKeys)
		add(authsigner.HeaderTimestamp, timestamp, flagNoStamp, 0)
		add(authsigner.HeaderSignature, signature, flagNoSignature, flagTwoSignatures)

		require.Equal(t, referenceResult(&v), v.verify(t, v.request()))
	})
}

// A signature verifies its own request and no other, whatever was verified before with the same HMAC states: a signing string can be parsed
// in one way only.
func FuzzVerifyTwoRequests(f *testing.F) {
	for _, v := range readVectors(f) {
		if v.BodyRepeat == 0 {
			f.Add(v.Method, v.Target, v.body(), "GET", meTarget, []byte(nil))
		}
	}
	f.Add("GET", "/api/v1/me", []byte("x"), "GET", "/api/v1/me\nx", []byte(nil))
	f.Add("POST", "/api/v1/me", []byte(nil), "POST", "/api/v1/jobs?page=1", []byte("body"))
	f.Add("", "", []byte("\n\n\n"), "\n", "\n", []byte("\n"))
	f.Add("POST", "", []byte("a"), "POST", "a", []byte(""))
	f.Add("PUT", strings.Repeat("/long", 4000), []byte("a"), "PUT", "/short", bytes.Repeat([]byte("b"), 9000))
	v := newVerifier(newCredential(nil))
	f.Fuzz(func(t *testing.T, method, target string, body []byte, otherMethod, otherTarget string, otherBody []byte) {
		type message struct {
			method, target string
			body           []byte
		}
		verify := func(m, signed message) error {
			r := signedRequest(testKey, testSecret, m.method, m.target, m.body)
			r.Header.Set(authsigner.HeaderSignature, authsigner.Sign(testSecret, testClock, signed.method, signed.target, signed.body))
			_, err := v.Verify(r, m.target)
			return err
		}
		a, b := message{method, target, body}, message{otherMethod, otherTarget, otherBody}
		differ := a.method != b.method || a.target != b.target || !bytes.Equal(a.body, b.body)
		lineFeed := func(m message) bool { return strings.Contains(m.method+m.target, "\n") }
		for range 2 {
			for _, pair := range [][2]message{{a, b}, {b, a}} {
				m := pair[0]
				if lineFeed(m) {
					require.Error(t, verify(m, m))
					continue
				}
				require.NoError(t, verify(m, m))
				if differ && !lineFeed(pair[1]) {
					require.Equal(t, authsigner.ErrInvalidCredentials, verify(m, pair[1]))
				}
				parts := bytes.SplitN(authsigner.SigningString(testClock, m.method, m.target, m.body), []byte("\n"), 4)
				require.Equal(t, []string{strconv.FormatInt(testClock, 10), m.method, m.target, string(m.body)},
					[]string{string(parts[0]), string(parts[1]), string(parts[2]), string(parts[3])})
			}
		}
	})
}

// A decoded credential has a public key of the documented pattern, a secret that is not empty, an end for a previous secret, IDs that can
// be header values, and a record that decodes to the same credential.
func FuzzDecodeCredential(f *testing.F) {
	for _, seed := range []map[string]any{
		nil,
		{"limit": 120, "status": "inactive"},
		{"limit": "120"},
		{"private_key": ""},
		{"private_key": nil},
		{"private_key": "\x00"},
		{"previous_private_key": testPreviousSecret, "previous_expires_at": "2100-01-01T00:00:00.123+14:00"},
		{"previous_private_key": testPreviousSecret},
		{"previous_expires_at": "2100-01-01T00:00:00Z"},
		{"previous_expires_at": "0000-01-01T00:00:00+23:59", "previous_private_key": "a"},
		{"business_id": "a\r\nb"},
		{"limit": 1e100},
		{"extra": []any{map[string]any{"deep": nil}}},
	} {
		record, err := json.Marshal(newRecord(seed))
		require.NoError(f, err)
		f.Add(testKey, record)
	}
	for _, v := range readVectors(f) {
		for _, h := range v.Headers {
			if h[0] == authsigner.HeaderPublicKey && len(h[1]) <= 130 {
				f.Add(h[1], []byte(`{}`))
			}
		}
	}
	for _, key := range []string{"../../../etc", "sk_live_0123456789", "sk-live_0123456789", "sj_live_0123456789", "tk_live_0123456789"} {
		f.Add(key, []byte(`{}`))
	}
	f.Add(testKey, []byte(`{"private_key":"a","business_id":"1","business_name":"n","business_slug":"s","status":"active"}`))
	f.Add(testKey, []byte(`null`))
	f.Fuzz(func(t *testing.T, key string, record []byte) {
		require.Equal(t, referencePublicKey.MatchString(key), authsigner.ValidPublicKey(key), "%q", key)
		for _, useNumber := range []bool{true, false} { // Vault's client does, encoding/json does not
			decoder := json.NewDecoder(bytes.NewReader(record))
			if useNumber {
				decoder.UseNumber()
			}
			var data map[string]any
			if decoder.Decode(&data) != nil {
				return
			}
			cred, err := authsigner.DecodeCredential(key, data)
			if err != nil {
				require.ErrorIs(t, err, authsigner.ErrMalformedCredential)
				require.Nil(t, cred)
				continue
			}
			require.NoError(t, cred.Validate())
			require.True(t, authsigner.ValidPublicKey(cred.PublicKey))
			require.Equal(t, data["private_key"], cred.PrivateKey.Reveal())
			require.NotEmpty(t, strings.Trim(cred.PrivateKey.Reveal(), " \t\r\n\x00"))
			require.Equal(t, cred.PreviousPrivateKey == "", cred.PreviousExpiresAt.IsZero())
			require.Contains(t, []authsigner.Status{authsigner.StatusActive, authsigner.StatusInactive}, cred.Status)
			require.GreaterOrEqual(t, cred.Limit, 0)
			require.Regexp(t, `\A[!-~]{1,255}\z`, cred.BusinessID)
			require.Regexp(t, `\A[!-~]{1,255}\z`, cred.BusinessSlug)
			require.NotContains(t, cred.BusinessName, "\n")

			again, err := authsigner.DecodeCredential(key, cred.Record())
			require.NoError(t, err)
			require.Equal(t, cred.Record(), again.Record())

			r := signedRequest(key, "any", http.MethodGet, meTarget, nil)
			r.Header.Set(authsigner.HeaderSignature, hmacHex("", string(authsigner.SigningString(testClock, http.MethodGet, meTarget, nil))))
			_, err = newVerifier(cred).Verify(r, meTarget)
			require.Equal(t, authsigner.ErrInvalidCredentials, err, "the empty secret verified")
		}
	})
}

// For any URL, the transport signs the target that net/http sends, or sends nothing.
func FuzzTransport(f *testing.F) {
	for _, v := range readVectors(f) {
		f.Add("https://api.example.com"+v.Target, v.Method, v.body())
	}
	f.Add("https://api.example.com/api/v1/zoë bar?ä=%zz#x", "POST", []byte("body"))
	f.Add("//host/path", "GET", []byte(nil))
	f.Add("http:opaque", "GET", []byte(nil))
	f.Add("http://[::1]:80/%2e%2e?", "PUT", []byte("\n"))
	v := newVerifier(newCredential(nil))
	f.Fuzz(func(t *testing.T, rawURL, method string, body []byte) {
		if len(body) > 1<<20 {
			return // the verifier's limit
		}
		r, err := http.NewRequestWithContext(t.Context(), method, rawURL, bytes.NewReader(body))
		if err != nil || r.Method == http.MethodConnect {
			return
		}
		if r.URL.Host == "" { // nothing to send it to
			return
		}
		var wire bytes.Buffer
		transport := &authsigner.Transport{
			PublicKey: testKey, PrivateKey: testSecret,
			Now:  func() time.Time { return time.Unix(testClock, 0) },
			Base: roundTripper(func(r *http.Request) (*http.Response, error) { return nil, r.Write(&wire) }),
		}
		if _, err := transport.RoundTrip(r); err != nil || wire.Len() == 0 { //nolint:bodyclose // there is no response
			return
		}
		arrived, err := http.ReadRequest(bufio.NewReader(&wire))
		if err != nil {
			return // net/http rejects what its own client wrote
		}
		_, err = v.Verify(arrived, arrived.RequestURI)
		require.NoError(t, err, "%s %q arrived as %q", method, rawURL, arrived.RequestURI)
		again, err := io.ReadAll(arrived.Body)
		require.NoError(t, err)
		require.Equal(t, string(body), string(again))
	})
}
