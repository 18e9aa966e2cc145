package upstream

import (
	"fmt"
	"net/http"
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
	for name, values := range h {
		keep := len(values) == 1
		switch {
		case !keep:
		case name == "Accept-Language", name == "User-Agent":
			keep = printable(values[0], maxForwarded, false)
		case name == "Traceparent":
			keep = isTraceparent(values[0])
		case name == "Tracestate":
			parent := h["Traceparent"]
			keep = printable(values[0], maxTracestate, true) && len(parent) == 1 && isTraceparent(parent[0])
		default:
			keep = false
		}
		if !keep {
			delete(h, name)
		}
	}
}

// PrepareRequest makes of a caller's request the one that a data service gets: GET (the caller's HEAD, too, so that
// the same answer is checked), the resource's path, the clean query, no body and no trailers, the headers that
// ScrubRequest leaves, and the gateway's own: Accept, Accept-Encoding (identity: the answer is read here, and a
// compressed one could grow without bound), X-Request-Id, X-Business-Id and X-Gateway-Assertion. It changes r; the Host
// and the peer's address stay as they are for the reverse proxy, which adds X-Forwarded-* and Via of its own.
//
// The error is ErrIdentity; r is as it was then.
func PrepareRequest(r *http.Request, res *Resource, q Query, id Identity) error {
	if !visible(id.BusinessID) || !visible(id.RequestID) {
		return fmt.Errorf("%w: the business's or the request's id is empty, too long or not visible ASCII", ErrIdentity)
	}
	r.Method = http.MethodGet
	r.URL.Path, r.URL.RawPath = res.Path, ""
	r.URL.RawQuery, r.URL.ForceQuery = q.Raw, false
	r.URL.Opaque, r.URL.Fragment, r.URL.RawFragment = "", "", ""
	r.RequestURI = res.Path
	if q.Raw != "" {
		r.RequestURI += "?" + q.Raw
	}
	r.Body, r.GetBody, r.ContentLength = http.NoBody, nil, 0
	r.TransferEncoding, r.Trailer = nil, nil
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	ScrubRequest(r.Header)
	values := [...]string{"application/json", "identity", id.RequestID, id.BusinessID, id.Assertion}
	set := func(name string, i int) { r.Header[name] = values[i : i+1 : i+1] }
	set("Accept", 0)
	set("Accept-Encoding", 1)
	set(HeaderRequestID, 2)
	set(HeaderBusinessID, 3)
	if id.Assertion != "" {
		set(HeaderAssertion, 4)
	}
	return nil
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
