package upstream

import (
	"fmt"
	"net/http"
	"net/url"
)

// The headers by which the gateway speaks to a data service. A caller's own are always removed.
const (
	HeaderRequestID  = "X-Request-Id"        // the id in the caller's answer and in the gateway's log
	HeaderBusinessID = "X-Business-Id"       // the authenticated business: answer for this one and no other
	HeaderAssertion  = "X-Gateway-Assertion" // the proof of both, see Asserter; absent without one
)

// Bounds on what travels on of a caller's headers, in bytes.
const (
	maxForwarded  = 256 // Accept-Language, User-Agent
	maxTracestate = 512 // the least that W3C Trace Context asks intermediaries to keep
	maxIdentity   = 256
)

// Identity is on whose behalf, and as which request, a data service is asked.
type Identity struct {
	BusinessID string // the authenticated business; visible ASCII, at most 256 bytes
	RequestID  string // the request's id; visible ASCII, at most 256 bytes
	Assertion  string // what Asserter.Assert made for this request; empty when the operator has no Asserter
}

// ScrubRequest removes from a caller's headers everything that is not on a short list. What stays:
//
//   - Accept-Language and User-Agent, given once, at most 256 bytes of visible ASCII and spaces;
//   - Traceparent as W3C Trace Context version 00 writes it, given once; and with it Tracestate, given once, at most
//     512 bytes of visible ASCII, spaces and tabs.
//
// Everything else goes, known or not: credentials (the three signing headers, Authorization, Cookie), identity and
// assertion headers a caller may have forged in whatever spelling, X-Forwarded-*, Forwarded and X-Real-Ip, method
// overrides, conditions (If-*), Range, Expect, TE, Accept-Encoding, and whatever describes a body.
//
// Connection goes as well. A reverse proxy removes the headers that Connection nominates before it sends a request on,
// also those that handlers before it have set, so that a caller could have the gateway's own identity headers taken
// away. With Connection gone nothing is nominated.
func ScrubRequest(h http.Header) {
	for name := range h {
		if !travels(h, name) {
			delete(h, name)
		}
	}
}

// travels reports whether a header of the caller's is there and may travel on. It looks at the exact name: other
// spellings are other headers, and none of them is on the list.
func travels(h http.Header, name string) bool {
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
		return printable(values[0], maxTracestate, true) && travels(h, "Traceparent")
	default:
		return false
	}
}

// PrepareRequest makes of a caller's request the one that a data service gets: GET (for the caller's HEAD, too, so that
// the same answer is checked), the resource's path, the clean query, no body and no trailers, of the headers what
// ScrubRequest leaves, and the gateway's own: Accept, Accept-Encoding (identity: the answer is read here, and a
// compressed one could grow without bound), X-Request-Id, X-Business-Id and X-Gateway-Assertion.
//
// The result shares r's context, Host, peer address and TLS state, to which a proxy adds X-Forwarded-* and Via. r itself stays as it is: a server reads its method again when it writes the answer to a HEAD.
//
// The error is ErrIdentity.
func PrepareRequest(r *http.Request, res *Resource, q Query, id Identity) (*http.Request, error) {
	if !visible(id.BusinessID) || !visible(id.RequestID) {
		return nil, fmt.Errorf("%w: the business's or the request's id is empty, too long or not visible ASCII", ErrIdentity)
	}
	out := r.WithContext(r.Context()) // a shallow copy
	out.Method = http.MethodGet
	parts := &struct { // in one piece of memory
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

	out.Header = make(http.Header, 16) // with room for a proxy's
	for _, name := range [...]string{"Accept-Language", "User-Agent", "Traceparent", "Tracestate"} {
		if travels(r.Header, name) {
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

// printable reports whether s is at most limit bytes of visible ASCII and spaces, and tabs where they are allowed.
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
	if s == "" || len(s) > maxIdentity {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// isTraceparent: 00-<32 hex>-<16 hex>-<2 hex>, lower case, neither id all zeros.
func isTraceparent(s string) bool {
	const traceID, parentID, flags, end = 3, 36, 53, 55
	if len(s) != end || s[:traceID] != "00-" || s[parentID-1] != '-' || s[flags-1] != '-' {
		return false
	}
	return lowerHex(s[traceID:parentID-1]) && lowerHex(s[parentID:flags-1]) && lowerHex(s[flags:]) &&
		!zeros(s[traceID:parentID-1]) && !zeros(s[parentID:flags-1])
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if _, ok := unhex(s[i]); !ok || s[i] >= 'A' && s[i] <= 'F' {
			return false
		}
	}
	return true
}

func zeros(s string) bool {
	for i := range len(s) {
		if s[i] != '0' {
			return false
		}
	}
	return true
}
