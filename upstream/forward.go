package upstream

import (
	"net/http"
	"strings"
)

// The identity headers of a request to a data service. Those sent by callers are removed.
const (
	HeaderRequestID  = "X-Request-Id"        // the request ID, as in the response to the caller and in the log
	HeaderBusinessID = "X-Business-Id"       // the only business whose data may be returned
	HeaderAssertion  = "X-Gateway-Assertion" // the proof of both, see Asserter; optional
)

// Limits in bytes.
const (
	maxForwarded  = 256 // Accept-Language, User-Agent
	maxTracestate = 512 // the minimum that W3C Trace Context requires intermediaries to forward
	maxIdentity   = 256
)

// isForwardable reports whether h has the header and it may be forwarded. The name must be canonical. These may be:
//
//   - Accept-Language and User-Agent, given once, at most 256 bytes of visible ASCII and spaces;
//   - Traceparent, given once, in the format of W3C Trace Context version 00; and with it Tracestate, given once, at most 512
//     bytes of visible ASCII, spaces and tabs.
//
// Connection may not: a reverse proxy removes the headers that Connection names, so a caller could otherwise have the gateway's
// identity headers removed.
func isForwardable(h http.Header, name string) bool {
	switch values := h[name]; {
	case len(values) != 1:
	case name == "Accept-Language", name == "User-Agent":
		return isPrintable(values[0], maxForwarded, false)
	case name == "Traceparent":
		return isTraceparent(values[0])
	case name == "Tracestate":
		return isPrintable(values[0], maxTracestate, true) && isForwardable(h, "Traceparent")
	}
	return false
}

// isPrintable reports whether s is at most limit bytes of visible ASCII, spaces and, if allowed, tabs.
func isPrintable(s string, limit int, tabs bool) bool {
	if len(s) > limit {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < ' ' || c > '~') && (c != '\t' || !tabs) {
			return false
		}
	}
	return true
}

// isVisibleASCII reports whether s is 1 to 256 bytes of visible ASCII without spaces.
func isVisibleASCII(s string) bool {
	return s != "" && isPrintable(s, maxIdentity, false) && !strings.Contains(s, " ")
}

// isTraceparent reports whether s is 00-<32 hex>-<16 hex>-<2 hex> in lower case, with neither ID all zeros.
func isTraceparent(s string) bool {
	const traceID, parentID, flags, end = 3, 36, 53, 55
	if len(s) != end || s[:traceID] != "00-" || s[parentID-1] != '-' || s[flags-1] != '-' {
		return false
	}
	only := func(chars, s string) bool { return strings.Trim(s, chars) == "" }
	const lowerHex = "0123456789abcdef"
	return only(lowerHex, s[traceID:parentID-1]) && only(lowerHex, s[parentID:flags-1]) && only(lowerHex, s[flags:]) &&
		!only("0", s[traceID:parentID-1]) && !only("0", s[parentID:flags-1])
}
