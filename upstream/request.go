package upstream

import (
	"fmt"
	"net/http"
	"net/url"
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

// Identity identifies the business and the request to a data service.
type Identity struct {
	BusinessID string // the authenticated business; 1 to 256 bytes of visible ASCII
	RequestID  string // the request ID; 1 to 256 bytes of visible ASCII
	Assertion  string // the result of Asserter.Assert; optional
}

// forwardable reports whether h has the header and it may be forwarded. The name must be canonical. These may be:
//
//   - Accept-Language and User-Agent, given once, at most 256 bytes of visible ASCII and spaces;
//   - Traceparent, given once, in the format of W3C Trace Context version 00; and with it Tracestate, given once, at most 512
//     bytes of visible ASCII, spaces and tabs.
//
// Connection may not: a reverse proxy removes the headers that Connection names, so a caller could otherwise have the gateway's
// identity headers removed.
func forwardable(h http.Header, name string) bool {
	values := h[name]
	if len(values) != 1 {
		return false
	}
	switch name {
	case "Accept-Language", "User-Agent":
		return printable(values[0], maxForwarded, false)
	case "Traceparent":
		return isTraceparent(values[0])
	case "Tracestate":
		return printable(values[0], maxTracestate, true) && forwardable(h, "Traceparent")
	default:
		return false
	}
}

// PrepareRequest returns the request for a data service: the method GET, for HEAD too, so that the same response is checked; the
// resource's path; the clean query; no body; the headers of r that may be forwarded; and the gateway's own headers Accept,
// Accept-Encoding (identity, because a compressed response could expand without limit), X-Request-Id, X-Business-Id and
// X-Gateway-Assertion.
//
// The result shares r's context, Host, peer address and TLS state. r is not modified. The error wraps ErrIdentity.
func PrepareRequest(r *http.Request, res *Resource, q Query, id Identity) (*http.Request, error) {
	if !visible(id.BusinessID) || !visible(id.RequestID) {
		return nil, fmt.Errorf("%w: business ID and request ID must be 1 to 256 bytes of visible ASCII", ErrIdentity)
	}
	out := r.WithContext(r.Context()) // a shallow copy
	out.Method = http.MethodGet
	parts := &struct { // one allocation
		url    url.URL
		values [5]string
	}{
		url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: res.Path, RawQuery: q.Raw},
		[...]string{"application/json", "identity", id.RequestID, id.BusinessID, id.Assertion},
	}
	out.URL = &parts.url
	out.RequestURI = res.Path
	if q.Raw != "" {
		out.RequestURI += "?" + q.Raw
	}
	out.Body, out.GetBody, out.ContentLength = nil, nil, 0
	out.TransferEncoding, out.Trailer, out.Close = nil, nil, false
	out.Form, out.PostForm, out.MultipartForm = nil, nil, nil

	out.Header = make(http.Header, 16) // with room for the headers that a proxy adds
	for _, name := range [...]string{"Accept-Language", "User-Agent", "Traceparent", "Tracestate"} {
		if forwardable(r.Header, name) {
			out.Header[name] = r.Header[name]
		}
	}
	values := parts.values[:]
	out.Header["Accept"] = values[0:1:1]
	out.Header["Accept-Encoding"] = values[1:2:2]
	out.Header[HeaderRequestID] = values[2:3:3]
	out.Header[HeaderBusinessID] = values[3:4:4]
	if id.Assertion != "" {
		out.Header[HeaderAssertion] = values[4:5:5]
	}
	return out, nil
}

// printable reports whether s is at most limit bytes of visible ASCII, spaces and, if allowed, tabs.
func printable(s string, limit int, tabs bool) bool {
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

// visible reports whether s is 1 to 256 bytes of visible ASCII without spaces.
func visible(s string) bool {
	return s != "" && printable(s, maxIdentity, false) && !strings.Contains(s, " ")
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
