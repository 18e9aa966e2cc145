package upstream

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// CheckHeader checks the status and header of a data service's response.
//
//   - 200 with Content-Type application/json (charset utf-8 or none) and no Content-Encoding except identity: nil. The body is
//     for Check.
//   - 503 with a valid Retry-After: ErrUpstreamUnavailable.
//   - Everything else: ErrContractViolation. The gateway sends only requests that the contract allows, so even a 404 is not the
//     caller's mistake.
//
// Errors are *ContractError and contain nothing of the response except the status.
func CheckHeader(res *Resource, status int, h http.Header) error {
	refuse := func(kind error, expected string) error {
		return &ContractError{Kind: kind, Resource: res.Name, Record: -1, Expected: expected}
	}
	if status == http.StatusServiceUnavailable {
		// only the syntax matters here, not the current time
		if _, ok := RetryAfter(h, time.Time{}); ok {
			return refuse(ErrUpstreamUnavailable, "status 200, not 503 with Retry-After")
		}
	}
	switch status {
	case http.StatusOK:
	case http.StatusUnauthorized:
		return refuse(ErrContractViolation, "status 200, not 401: the data service rejects the gateway's assertion, or requires one")
	default:
		return refuse(ErrContractViolation, "status 200, not "+strconv.Itoa(status))
	}
	if values := h["Content-Type"]; len(values) != 1 || !isJSON(values[0]) {
		return refuse(ErrContractViolation, "Content-Type application/json")
	}
	for _, v := range h["Content-Encoding"] {
		if v != "" && !strings.EqualFold(v, "identity") {
			return refuse(ErrContractViolation, "no Content-Encoding, because the request accepts only identity")
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

// The range to which RetryAfter clamps.
const (
	MinRetryAfter = time.Second
	MaxRetryAfter = time.Hour
)

// RetryAfter parses the header Retry-After, seconds or an HTTP date. It rounds up to whole seconds and clamps to the range
// MinRetryAfter to MaxRetryAfter. ok is false if there is not exactly one, or if it is invalid.
func RetryAfter(h http.Header, now time.Time) (d time.Duration, ok bool) {
	values := h["Retry-After"]
	if len(values) != 1 || len(values[0]) > 64 {
		return 0, false
	}
	if isDigits(values[0]) {
		seconds, err := strconv.ParseUint(values[0], 10, 32)
		if err != nil {
			return MaxRetryAfter, true // too large for 32 bits
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

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// ForwardHeaders copies the headers that callers may see from a data service's response, src, to dst: Deprecation (RFC 9745) and
// Sunset (RFC 8594), if each is given once, is well formed and is not in dst already. Link is not copied, because it could
// contain an internal address.
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

// isDeprecation reports whether s is a structured field date such as "@1688169599".
func isDeprecation(s string) bool {
	s, ok := strings.CutPrefix(s, "@")
	s = strings.TrimPrefix(s, "-")
	return ok && len(s) <= 15 && isDigits(s)
}
