// Package explain finds out why the signature of a request is wrong. It tries the mistakes that programs are known to make, alone
// and in pairs, until one of them gives the signature that was sent.
//
//	r, err := explain.Parse(capture, os.Getenv) // such as the output of curl -v
//	result := explain.Read(r).Explain(ctx, cred, time.Now())
//	for _, m := range result.Mistakes {
//		fmt.Println(m.What, m.Fix)
//	}
//
// The work of a search is bounded. It does not try short parts of a private key, because callers could guess one and have the guess
// confirmed. An [Attempt] can be kept for a later explanation: it has only the beginning of the signature, so it cannot be
// replayed.
package explain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

const (
	// digestKept is how many bytes of a signature are compared and kept: enough to recognise a signature, too few to repeat
	// a request.
	digestKept = 8

	// minDigits is the minimum number of hexadecimal digits of a signature that lacks its leading zeros.
	minDigits = 48

	// maxPairText is the size in bytes of target and body up to which pairs of mistakes are tried.
	maxPairText = 4 << 10

	// maxTried bounds the work of a search: it is the maximum number of HMACs. An unexplained request of usual size needs fewer.
	maxTried = 60_000

	// maxHashed bounds the work for requests with large bodies: it is the number of bytes after which a search ends.
	maxHashed = 256 << 20

	// maxSkew is how far a timestamp may be from the server's clock.
	maxSkew = authsigner.MaxSkew

	// maxClock is how far a clock can be off. A number further away is not Unix time in seconds.
	maxClock = 10 * 365 * 24 * time.Hour
)

// Request is a request as it was sent.
type Request struct {
	Method   string
	Target   string      // request target as sent: path and query
	BasePath string      // the beginning of Target that is not signed, such as "/gw"; empty if there is none
	Scheme   string      // http or https; empty if not known
	Host     string      // value of the Host header; empty if not known
	Header   http.Header // with canonical names
	Body     []byte
	Skipped  int       // number of signed requests before this one in the capture
	At       time.Time // when the request arrived; zero if not known, then the timestamp's age is not judged
}

// Attempt is what is needed to explain a request, without its full signature. It can be kept.
type Attempt struct {
	Request // without Header

	PublicKey string // as sent
	Timestamp string // as sent

	// BodyLeft is true if there was a body that has not been kept.
	BodyLeft bool

	// Mistakes are those that the headers show by themselves.
	Mistakes []Mistake

	digest []byte // the beginning of the signature
	size   int    // length of the whole signature in bytes; 0 if there is none

	shown string // string that the signature shows instead of signing it

	// unpadded is the beginning of hexadecimal digits that are too few, perhaps because leading zeros are missing, and
	// unpaddedSize is their number.
	unpadded     string
	unpaddedSize int
}

// Mistake is something that is wrong with a request.
type Mistake struct {
	Code string `json:"code"` // see Kinds
	What string `json:"what"` // a sentence: what is wrong with this request
	Fix  string `json:"fix"`  // a sentence: what to do
}

// Result is the explanation of a request.
type Result struct {
	// Verified is true if the request is signed correctly.
	Verified bool `json:"verified"`

	// Mistakes are those that were found, in the order in which to correct them.
	Mistakes []Mistake `json:"mistakes"`

	// Complete is true if the signature is that of the request with these mistakes, and nothing else is wrong.
	Complete bool `json:"complete"`

	// Searched is true if everything that a signature is computed from is known, so that one that no mistake gives is wrong in
	// another way.
	Searched bool `json:"searched"`

	// Signed is the string that was signed, if Complete.
	Signed string `json:"-"`
}

// Read inspects the form of a request's headers.
func Read(r Request) *Attempt {
	a := &Attempt{Request: r}
	a.Header, a.BasePath = nil, strings.TrimRight(r.BasePath, "/")
	sole := func(name string) string {
		values := r.Header[name]
		if len(values) == 0 || values[0] == "" {
			a.found(mistake("missing_header", name, sentInstead(r.Header, name)))
			return ""
		}
		first, rest, _ := strings.Cut(values[0], ",") // a proxy joins repeated headers
		if strings.TrimSpace(rest) != first {
			first = values[0]
		}
		if len(values) > 1 || first != values[0] {
			a.found(mistake("repeated_header", name))
		}
		return first
	}
	a.PublicKey = sole(authsigner.HeaderPublicKey)
	a.Timestamp = sole(authsigner.HeaderTimestamp)
	signature := sole(authsigner.HeaderSignature)
	switch {
	case strings.HasPrefix(a.PublicKey, authsigner.PrivateKeyPrefix):
		a.found(mistake("keys_swapped"))
	case a.PublicKey != "" && !authsigner.ValidPublicKey(a.PublicKey):
		a.found(mistake("malformed_public_key"))
	}
	if a.Timestamp != "" {
		a.readTimestamp(r.At)
	}
	if signature != "" {
		a.readSignature(signature)
	}
	return a
}

func (a *Attempt) found(m Mistake) { a.Mistakes = append(a.Mistakes, m) }

// sentInstead returns a note about another header that probably carries name's value, or "".
func sentInstead(h http.Header, name string) string {
	words := map[string][]string{
		authsigner.HeaderPublicKey: {"publickey", "apikey", "keyid", "accesskey", "clientid"},
		authsigner.HeaderTimestamp: {"timestamp", "date"},
		authsigner.HeaderSignature: {"signature", "authorization", "hmac"},
	}
	for _, sent := range slices.Sorted(maps.Keys(h)) {
		plain := strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(sent))
		isOther := func(word string) bool { return strings.Contains(plain, word) }
		if len(sent) <= maxQuoted && sent != name && slices.ContainsFunc(words[name], isOther) {
			return fmt.Sprintf(", but %q was sent", sent)
		}
	}
	return ""
}

// parseTimestamp returns the time that a timestamp in any known unit or format means, and the code and unit of the mistake, if it is one.
func parseTimestamp(timestamp string) (t time.Time, code, unit string) {
	text := strings.TrimSpace(timestamp)
	whole, fraction, isFraction := strings.Cut(text, ".")
	if n, err := strconv.ParseInt(whole, 10, 64); err == nil && isDigits(whole) && (!isFraction || isDigits(fraction)) {
		digits := len(strings.TrimLeft(whole, "0"))
		if t, err := time.Parse("20060102150405", whole); err == nil && !isFraction && t.Year() < 2100 {
			return t, "timestamp_date", ""
		}
		switch {
		case digits == 18 && n > unixEpochTicks:
			return time.Unix((n-unixEpochTicks)/1e7, (n-unixEpochTicks)%1e7*100), "timestamp_unit", "in .NET ticks"
		case digits == 18:
			return time.Unix((n-unixEpochFileTime)/1e7, (n-unixEpochFileTime)%1e7*100), "timestamp_unit", "a Windows file time"
		case digits >= 18:
			return time.Unix(0, n), "timestamp_unit", "in nanoseconds"
		case digits >= 15:
			return time.UnixMicro(n), "timestamp_unit", "in microseconds"
		case digits >= 12:
			return time.UnixMilli(n), "timestamp_unit", "in milliseconds"
		case isFraction:
			return time.Unix(n, 0), "timestamp_fraction", ""
		case text != timestamp:
			return time.Unix(n, 0), "timestamp_malformed", ""
		}
		return time.Unix(n, 0), "", ""
	}
	text, _, _ = strings.Cut(text, " (")              // the time zone's name in JavaScript
	text, _, _ = strings.Cut(text, " m=")             // the monotonic clock in Go
	text, _, _ = strings.Cut(text, "[")               // the time zone's name in Java
	for _, layout := range append(timestampLayouts(), // and those of time objects that are converted to text
		"Mon Jan 02 2006 15:04:05 GMT-0700", "2006-01-02 15:04:05 -0700 MST", "2006-01-02 15:04:05 -0700", time.UnixDate, time.ANSIC,
		"01/02/2006 15:04:05", "02.01.2006 15:04:05", time.DateOnly,
	) {
		if t, err := time.Parse(layout, text); err == nil {
			return t, "timestamp_date", ""
		}
	}
	return time.Time{}, "timestamp_malformed", ""
}

// The Unix epoch in the units of 100 ns that .NET counts from the year 1, and Windows from 1601.
const (
	unixEpochTicks    = 621355968000000000
	unixEpochFileTime = 116444736000000000
)

// timestampLayouts returns the formats in which programs write the time.
func timestampLayouts() []string {
	return []string{
		time.RFC3339Nano, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05Z07:00", time.DateTime,
		"20060102T150405Z", http.TimeFormat, time.RFC1123Z, time.RFC1123,
	}
}

// maxQuoted is the length in bytes up to which other text of a request is quoted.
const maxQuoted = 20

// maxTimestamp is the length in bytes up to which a timestamp is quoted, and more than that of any format. A longer one may be a
// private key or a signature in the wrong header.
const maxTimestamp = 40

func quoteTimestamp(s string) string {
	if len(s) > maxTimestamp || strings.Contains(s, authsigner.PrivateKeyPrefix) {
		return fmt.Sprintf("of %d bytes", len(s))
	}
	return strconv.Quote(s)
}

func (a *Attempt) readTimestamp(at time.Time) {
	t, code, unit := parseTimestamp(a.Timestamp)
	switch code {
	case "":
	case "timestamp_unit":
		a.found(mistake(code, quoteTimestamp(a.Timestamp), unit))
	default:
		a.found(mistake(code, quoteTimestamp(a.Timestamp)))
	}
	if t.IsZero() || at.IsZero() || code == "timestamp_malformed" {
		return
	}
	switch off := at.Truncate(time.Second).Sub(t.Truncate(time.Second)); {
	case off.Abs() > maxClock:
		if code == "" {
			a.found(mistake("wrong_clock", "more than ten years away from"))
		}
	case off > maxSkew:
		a.found(mistake("wrong_clock", off.String()+" behind"))
	case off < -maxSkew:
		a.found(mistake("wrong_clock", (-off).String()+" ahead of"))
	}
}

// The texts that programs send by mistake instead of a signature.
var (
	anObject    = regexp.MustCompile(`^<.*>$|^\[B@|\[object |^System\.|^function|^\(.*=>|^#<|^%!|javax\.crypto`)
	aVariable   = regexp.MustCompile(`^[$%{<]|\$\{|\{\{`)
	notSet      = regexp.MustCompile(`^(undefined|null|NULL|None|nil|NaN|false|true|0|1)$`)
	fromOpenssl = regexp.MustCompile(`stdin\)=$`)
)

// notSignature describes a value sent in place of a signature, if it is a known one.
func notSignature(text string) string {
	switch {
	case len(text) > 200:
		return ""
	case anObject.MatchString(text):
		return ": it is the text of an object; send its hexadecimal digits"
	case aVariable.MatchString(text):
		return ": it is the name of a variable that was not replaced"
	case notSet.MatchString(text):
		return ": it is a value that is not set"
	case fromOpenssl.MatchString(text):
		return ": it is only what openssl prints before the signature"
	}
	return ""
}

// readSignature decodes a signature in any of the forms that programs send.
func (a *Attempt) readSignature(signature string) {
	text := strings.TrimSpace(signature)
	switch {
	case strings.Contains(text, authsigner.PrivateKeyPrefix):
		a.found(mistake("signature_key", "private", " Replace the key pair, because the private key has been sent."))
		return
	case text == a.PublicKey:
		a.found(mistake("signature_key", "public", ""))
		return
	}
	fields := strings.Fields(text)
	if joined := strings.Join(fields, ""); len(fields) > 1 && len(fields[0]) > 2 &&
		(len(decodeHex(joined)) == sha256.Size || len(fields[0]) == 76 && decodeBase64(joined) != nil) {
		text = joined
	}
	if text != signature {
		a.found(mistake("signature_whitespace"))
	}
	if rest, ok := strings.CutPrefix(strings.ToLower(text), "0x"); ok {
		a.found(mistake("signature_prefixed"))
		text = rest
	}
	short := aNegativeByte.ReplaceAllString(text, "$1")
	extended := isHex(short) && len(text) > 2*sha256.Size && len(short) <= 2*sha256.Size
	if extended {
		a.found(mistake("signature_encoding", "bytes with their sign extended"))
		text = short
	}
	digest, form := decodeForm(text)
	switch {
	case form != "":
		a.found(mistake("signature_encoding", form))
	case isHex(text) && len(text) >= minDigits && len(text) < 2*sha256.Size:
		if !extended {
			a.found(mistake("signature_truncated"))
		}
		a.unpadded, a.unpaddedSize = strings.ToLower(text[:digestKept]), len(text)
		digest, _ = hex.DecodeString(text[:len(text)/2*2])
	default:
		if digest = a.decodePlain(text); digest == nil {
			a.found(mistake("signature_malformed", notSignature(text)))
			return
		}
	}
	if a.Timestamp != "" && bytes.HasPrefix(digest, []byte(a.Timestamp+"\n")) {
		a.found(mistake("signature_message"))
		a.shown = string(digest[:max(0, len(digest)-sha256.Size)])
	}
	a.size = len(digest)
	a.digest = bytes.Clone(digest[:min(digestKept, len(digest))])
}

// decodePlain decodes hexadecimal digits or base64, which may follow other text.
func (a *Attempt) decodePlain(text string) []byte {
	if digest := decodeHex(text); digest != nil {
		return digest
	}
	for _, field := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" =,:;*", r) }) {
		if digest := decodeHex(field); hasHashSize(digest) {
			a.found(mistake("signature_prefixed"))
			return digest
		}
	}
	if i := strings.LastIndexAny(strings.TrimRight(text, "="), "= ,:"); i >= 0 && decodeBase64(text[i+1:]) != nil {
		a.found(mistake("signature_prefixed"))
		text = text[i+1:]
	}
	digest := decodeBase64(text)
	if inner := decodeHex(strings.TrimSpace(string(digest))); inner != nil {
		digest = inner
	}
	if !hasHashSize(digest) {
		return nil
	}
	a.found(mistake("signature_base64"))
	return digest
}

// ToSign returns the string that should have been signed. Its timestamp is in whole seconds if X-Timestamp is another form of it.
func (a *Attempt) ToSign() string {
	timestamp := a.Timestamp
	if t, code, _ := parseTimestamp(timestamp); code != "" && !t.IsZero() {
		timestamp = strconv.FormatInt(t.Unix(), 10)
	}
	return a.message(timestamp)
}

func (a *Attempt) message(timestamp string) string {
	return strings.Join([]string{timestamp, a.Method, a.signedTarget(), string(a.Body)}, "\n")
}

// Explain searches for the mistakes that give the attempt's signature with the private keys of cred, which may be nil if the key
// is not known. If now is zero, neither the key nor its previous private key counts as expired. If ctx ends first, the result is
// incomplete.
func (a *Attempt) Explain(ctx context.Context, cred *authsigner.Credential, now time.Time) Result {
	res := Result{Mistakes: append([]Mistake{}, a.Mistakes...)} // not nil, which JSON would write as null
	if cred != nil && cred.Expired(now) {
		res.Mistakes = append(res.Mistakes, mistake("key_expired", cred.ExpiresAt.Format(time.RFC3339)))
	}
	if cred == nil || a.BodyLeft || len(a.digest) < digestKept {
		return res
	}
	swapped := a.PublicKey == cred.PrivateKey.Reveal()
	if swapped && !strings.HasPrefix(a.PublicKey, authsigner.PrivateKeyPrefix) { // Read recognises only issued private keys
		res.Mistakes = append([]Mistake{mistake("keys_swapped")}, res.Mistakes...)
	}
	res.Searched = a.Timestamp != "" && !slices.ContainsFunc(res.Mistakes, func(m Mistake) bool { return m.Code == "keys_swapped" })
	if a.shown != "" {
		res.Complete, res.Signed = a.shown == a.message(a.Timestamp), a.shown
		return res
	}
	s := newSearch(a, cred, now)
	found, ok := s.run(ctx)
	if !ok {
		return res
	}
	res.Complete = true
	if a.size < sha256.Size && len(found) > 0 && found[0].code == "algorithm" { // a whole signature of a shorter algorithm
		res.Mistakes = slices.DeleteFunc(res.Mistakes, func(m Mistake) bool { return m.Code == "signature_truncated" })
	}
	for _, v := range found {
		if v.code != "" && !(swapped && v.code == "secret_public_key") {
			res.Mistakes = append(res.Mistakes, mistake(v.code, v.arguments...))
		}
	}
	res.Verified = len(res.Mistakes) == 0
	res.Signed = strings.ReplaceAll(s.p.message(), s.right.secret, "[private key]")
	return res
}

// The rarities of variants. Two variants are a pair of mistakes if the sum of their rarities is at most 1.
const (
	common = iota // tried in pairs with common and rare ones
	rare          // tried in pairs with common ones
	alone         // not tried in pairs
)

// variant is a way to do one part of signing that differs from the documented one.
type variant struct {
	code      string // of the mistake; empty if the variant is valid too
	arguments []any  // of the mistake
	apply     func(p *parts)
	rarity    int
}

// parts is what a signature is computed from.
type parts struct {
	timestamp, method, target, body string
	publicKey, secret               string
	scheme, host, base              string
	shape                           string              // format of the signed string, see message
	separator                       string              // in place of each line feed of shape
	text                            func(string) string // changes the signed string
	encode                          func(string) string // encodes the signed string and the key
	sum                             func(secret, message string) []byte
}

// search tries combinations of variants for one attempt.
type search struct {
	attempt *Attempt
	right   parts
	dims    [][]variant // of a pair, at most one is from each
	p       parts       // of the last combination
	tried   int
	hashed  int // bytes
}

// run returns the variants that give the signature: none, one or two.
func (s *search) run(ctx context.Context) (found []variant, ok bool) {
	if s.matches() {
		return nil, true
	}
	for _, dim := range s.dims {
		for _, v := range dim {
			if ctx.Err() != nil {
				return nil, false
			}
			if s.matches(v) {
				return []variant{v}, true
			}
		}
	}
	if len(s.attempt.Target)+len(s.attempt.Body) > maxPairText {
		return nil, false
	}
	tiers := map[int][][]variant{common: make([][]variant, len(s.dims)), rare: make([][]variant, len(s.dims))}
	for i, dim := range s.dims {
		for _, v := range dim {
			if v.rarity < alone {
				tiers[v.rarity][i] = append(tiers[v.rarity][i], v)
			}
		}
	}
	for _, pair := range [][2]int{{common, common}, {common, rare}, {rare, common}} {
		for i, dim := range tiers[pair[0]] {
			for _, v := range dim {
				if ctx.Err() != nil || s.tried >= maxTried {
					return nil, false
				}
				for _, other := range tiers[pair[1]][i+1:] {
					for _, w := range other {
						if s.matches(v, w) {
							return []variant{v, w}, true
						}
					}
				}
			}
		}
	}
	return nil, false
}

// matches reports whether a combination gives the signature.
func (s *search) matches(variants ...variant) bool {
	if s.tried >= maxTried || s.hashed >= maxHashed {
		return false
	}
	s.tried++
	s.p = s.right
	for _, v := range variants {
		v.apply(&s.p)
	}
	message := s.p.encode(s.p.message())
	s.hashed += len(message)
	sum := s.p.sum(s.p.encode(s.p.secret), message)
	return len(sum) == s.attempt.size && subtle.ConstantTimeCompare(sum[:digestKept], s.attempt.digest) == 1
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
