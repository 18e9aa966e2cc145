// Package explain finds out why the signature of a request is wrong. It tries the mistakes that programs are known to make, one at a
// time and the usual ones in pairs, until the result is the signature that was sent.
//
//	r, err := explain.Parse(capture) // such as a request as a proxy logs it
//	result := explain.Read(r).Explain(ctx, cred, time.Now())
//	for _, m := range result.Mistakes {
//		fmt.Println(m.What, m.Fix)
//	}
//
// A capture may come from a stranger: it is only data, and the work of a search is bounded. The search does not try short parts of a
// private key, because callers could guess one and have the guess confirmed. An [Attempt] can be kept for a later explanation: it has
// only the beginning of the signature, so it cannot be replayed.
package explain

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

const (
	maxClock = 10 * 365 * 24 * time.Hour // how far a clock can be off; a number further away is not Unix time in seconds

	// The lengths in bytes up to which headers are quoted. A longer timestamp may be a private key or a signature in the wrong header.
	maxQuoted    = 20
	maxTimestamp = 40
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
	At       time.Time // when the request arrived; zero if not known, then an old timestamp is not a mistake
}

// Attempt is what is needed to explain a request, without its full signature. It can be kept.
type Attempt struct {
	Request             // without Header
	PublicKey string    // as sent
	Timestamp string    // as sent
	BodyLeft  bool      // there was a body that has not been kept
	Mistakes  []Mistake // those that the headers show by themselves

	sentAt   time.Time // what Timestamp means; zero if it is not known
	timeCode string    // of the mistake in its form, or ""
	digest   []byte    // the beginning of the signature
	size     int       // length of the whole signature in bytes; 0 if there is none
	shown    string    // string that the signature shows instead of signing it

	// The beginning of hexadecimal digits that are too few, perhaps because leading zeros are missing, and their number.
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
	Verified bool      `json:"verified"` // the request is signed correctly
	Mistakes []Mistake `json:"mistakes"` // those that were found, in the order in which to correct them
	Complete bool      `json:"complete"` // the signature is that of the request with these mistakes, and nothing else is wrong
	Signed   string    `json:"-"`        // the string that was signed, if Complete

	// Searched is true if everything that a signature is computed from is known, so that one that no mistake gives is wrong in
	// another way.
	Searched bool `json:"searched"`
}

// Read inspects the form of a request's headers.
func Read(r Request) *Attempt {
	a := &Attempt{Request: r}
	a.Header, a.BasePath = nil, strings.TrimRight(r.BasePath, "/")
	sole := func(name string) string {
		values := r.Header[name]
		if len(values) == 0 || values[0] == "" {
			a.found("missing_header", name, sentInstead(r.Header, name))
			return ""
		}
		first, rest, _ := strings.Cut(values[0], ",") // a proxy joins repeated headers
		if strings.TrimSpace(rest) != first {
			first = values[0]
		}
		if len(values) > 1 || first != values[0] {
			a.found("repeated_header", name)
		}
		return first
	}
	a.PublicKey = sole(authsigner.HeaderPublicKey)
	a.Timestamp = sole(authsigner.HeaderTimestamp)
	signature := sole(authsigner.HeaderSignature)
	switch {
	case strings.HasPrefix(a.PublicKey, authsigner.PrivateKeyPrefix):
		a.found("keys_swapped")
	case a.PublicKey != "" && !authsigner.ValidPublicKey(a.PublicKey):
		a.found("malformed_public_key")
	}
	if a.Timestamp != "" {
		a.readTimestamp()
	}
	if signature != "" {
		a.readSignature(signature)
	}
	return a
}

func (a *Attempt) found(code string, arguments ...any) {
	a.Mistakes = append(a.Mistakes, mistake(code, arguments...))
}

// sentInstead returns a note about another header that probably carries name's value, or "".
func sentInstead(h http.Header, name string) string {
	similar := map[string]string{
		authsigner.HeaderPublicKey: "publickey apikey keyid accesskey clientid", authsigner.HeaderTimestamp: "timestamp date",
		authsigner.HeaderSignature: "signature authorization hmac",
	}
	for _, sent := range slices.Sorted(maps.Keys(h)) {
		plain := strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(sent))
		isOther := func(word string) bool { return strings.Contains(plain, word) }
		if len(sent) <= maxQuoted && sent != name && slices.ContainsFunc(strings.Fields(similar[name]), isOther) {
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

// unixEpochTicks is the Unix epoch in the units of 100 ns that .NET counts from the year 1.
const unixEpochTicks = 621355968000000000

// timestampLayouts returns the formats in which programs write the time.
func timestampLayouts() []string {
	return []string{
		time.RFC3339Nano, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05Z07:00", time.DateTime,
		"20060102T150405Z", http.TimeFormat, time.RFC1123Z, time.RFC1123,
	}
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func (a *Attempt) readTimestamp() {
	var unit string
	quoted := strconv.Quote(a.Timestamp)
	if len(a.Timestamp) > maxTimestamp || strings.Contains(a.Timestamp, authsigner.PrivateKeyPrefix) {
		quoted = fmt.Sprintf("of %d bytes", len(a.Timestamp))
	}
	switch a.sentAt, a.timeCode, unit = parseTimestamp(a.Timestamp); a.timeCode {
	case "":
	case "timestamp_unit":
		a.found(a.timeCode, quoted, unit)
	default:
		a.found(a.timeCode, quoted)
	}
	if a.sentAt.IsZero() || a.At.IsZero() || a.timeCode == "timestamp_malformed" {
		return
	}
	switch late := a.behind(a.At); {
	case late.Abs() > maxClock && a.timeCode != "": // the unit or format that was assumed may be another one
	case late.Abs() > maxClock:
		a.found("wrong_clock", "more than ten years away from")
	case late > authsigner.MaxSkew:
		a.found("wrong_clock", late.String()+" behind")
	case late < -authsigner.MaxSkew:
		a.found("wrong_clock", (-late).String()+" ahead of")
	}
}

func (a *Attempt) behind(now time.Time) time.Duration {
	return now.Truncate(time.Second).Sub(a.sentAt.Truncate(time.Second))
}

// Behind returns how far the timestamp is behind a clock; negative if it is ahead. The gateway rejects a request as expired if it is
// further away than [authsigner.MaxSkew]. It returns false if the timestamp is not Unix time in whole seconds.
func (a *Attempt) Behind(now time.Time) (time.Duration, bool) {
	return a.behind(now), a.Timestamp != "" && a.timeCode == ""
}

// ToSign returns the string that should have been signed. Its timestamp is in whole seconds if X-Timestamp is another form of it.
func (a *Attempt) ToSign() string {
	if a.timeCode != "" && !a.sentAt.IsZero() {
		return a.message(strconv.FormatInt(a.sentAt.Unix(), 10))
	}
	return a.message(a.Timestamp)
}

func (a *Attempt) message(timestamp string) string {
	return strings.Join([]string{timestamp, a.Method, a.signedTarget(), string(a.Body)}, "\n")
}

// signedTarget returns the target without the path under which the gateway is mounted.
func (a *Attempt) signedTarget() string {
	if rest, ok := strings.CutPrefix(a.Target, a.BasePath); ok && strings.HasPrefix(rest, "/") {
		return rest
	}
	return a.Target
}

// Explain searches for the mistakes that give the attempt's signature with the private keys of cred, which may be nil if the key
// is not known. If now is zero, neither the key nor its previous private key counts as expired. If ctx ends first, the result is
// incomplete.
func (a *Attempt) Explain(ctx context.Context, cred *authsigner.Credential, now time.Time) Result {
	res := Result{Mistakes: append([]Mistake{}, a.Mistakes...)} // not nil, which JSON would write as null
	if cred != nil && cred.Expired(now) {
		res.Mistakes = append(res.Mistakes, mistake("key_expired", cred.ExpiresAt.UTC().Format(time.RFC3339)))
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
	for _, v := range found {
		switch {
		case v.code == "", swapped && v.code == "secret_public_key":
			continue
		case v.part == "algorithm": // its signatures may have fewer digits
			res.Mistakes = slices.DeleteFunc(res.Mistakes, func(m Mistake) bool { return m.Code == "signature_truncated" })
		}
		res.Mistakes = append(res.Mistakes, mistake(v.code, v.arguments...))
	}
	switch {
	case !bytes.HasPrefix(s.sum, a.digest):
		res.Mistakes = append(res.Mistakes, mistake("signature_encoding", "hexadecimal digits without leading zeros"))
	case s.p["algorithm"] == s.right["algorithm"] && a.size < len(s.sum) && a.unpaddedSize == 0:
		res.Mistakes = append(res.Mistakes, mistake("signature_truncated"))
	}
	res.Verified = len(res.Mistakes) == 0
	res.Signed = strings.ReplaceAll(s.message(s.p), s.right["secret"], "[private key]")
	return res
}
