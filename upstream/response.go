package upstream

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// CheckHead says from its status and headers what becomes of a data service's answer, before its body is read.
//
//   - 200, Content-Type application/json (charset utf-8 or none), no Content-Encoding but identity: nil, go on with
//     Check.
//   - 503 with a Retry-After that can be read: ErrUpstreamUnavailable, the contract's 503 SERVICE_UNAVAILABLE; for how
//     long RetryAfter says.
//   - Everything else, other 2xx, redirects, 4xx and 5xx alike: ErrNotContract, the contract's 502 UPSTREAM_FAILED. The
//     gateway asks only what the contract allows, so that a 404 of the service is not the caller's mistake.
//
// Errors are *ContractError and hold nothing that was sent but the status.
func CheckHead(res *Resource, status int, h http.Header) error {
	refuse := func(kind error, expected string) error {
		return &ContractError{Kind: kind, Resource: res.Name, Record: -1, Expected: expected}
	}
	if status == http.StatusServiceUnavailable {
		// Whether the instant is still ahead does not matter here.
		if _, ok := RetryAfter(h, time.Time{}); ok {
			return refuse(ErrUpstreamUnavailable, "status 200, not 503 with Retry-After")
		}
	}
	if status != http.StatusOK {
		return refuse(ErrNotContract, "status 200, not "+strconv.Itoa(status))
	}
	if values := h["Content-Type"]; len(values) != 1 || !isJSON(values[0]) {
		return refuse(ErrNotContract, "Content-Type application/json")
	}
	for _, v := range h["Content-Encoding"] {
		if v != "" && !strings.EqualFold(v, "identity") {
			return refuse(ErrNotContract, "no Content-Encoding, as identity was asked for")
		}
	}
	return nil
}

// isJSON reports whether a Content-Type is JSON in UTF-8.
func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != "application/json" {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8")
}

// The bounds into which RetryAfter moves what a data service asks for.
const (
	MinRetryAfter = time.Second
	MaxRetryAfter = time.Hour
)

// RetryAfter reads a data service's Retry-After, seconds or an HTTP date, moved into MinRetryAfter to MaxRetryAfter and
// rounded up to whole seconds. ok is false when there is none, more than one, or one that cannot be read.
func RetryAfter(h http.Header, now time.Time) (d time.Duration, ok bool) {
	values := h["Retry-After"]
	if len(values) != 1 || len(values[0]) > 64 {
		return 0, false
	}
	if isDigits(values[0]) {
		seconds, err := strconv.ParseUint(values[0], 10, 32)
		if err != nil {
			return MaxRetryAfter, true // more digits than make sense
		}
		d = time.Duration(seconds) * time.Second
	} else {
		at, err := http.ParseTime(values[0])
		if err != nil {
			return 0, false
		}
		d = at.Sub(now)
		if d > MaxRetryAfter {
			return MaxRetryAfter, true
		}
		d = (d + time.Second - 1).Truncate(time.Second)
	}
	return min(max(d, MinRetryAfter), MaxRetryAfter), true
}

func isDigits(s string) bool {
	for i := range len(s) {
		if !digit(s[i]) {
			return false
		}
	}
	return s != ""
}

// ForwardHeaders copies from a data service's response header, src, to a caller's, dst, what may travel: Deprecation (RFC
// 9745: "@" and a Unix time) and Sunset (RFC 8594: an HTTP date), each given once and well formed, unless dst has it
// already. Link does not travel, as it could name an internal address; nor do cookies, validators, banners and trailers.
func ForwardHeaders(dst, src http.Header) {
	for _, name := range [...]string{"Deprecation", "Sunset"} {
		values := src[name]
		if _, own := dst[name]; own || len(values) != 1 {
			continue
		}
		if name == "Deprecation" && !isDeprecation(values[0]) {
			continue
		}
		if _, err := http.ParseTime(values[0]); name == "Sunset" && err != nil {
			continue
		}
		dst[name] = values
	}
}

// isDeprecation: a structured field date, "@1688169599".
func isDeprecation(s string) bool {
	s, ok := strings.CutPrefix(s, "@")
	s = strings.TrimPrefix(s, "-")
	return ok && len(s) <= 15 && isDigits(s)
}
