package upstream

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// headerRoom is the number of headers that a call has room for: as many as fit into a map of 16 slots.
const headerRoom = 14

// Call is one exchange with a data service, whoever the caller is: a program with a signed request, a tool, or a page that
// signs a user in.
type Call struct {
	// BusinessID is the only business whose data may be returned, or "-" if it is not known yet. RequestID is the request ID, as
	// in the response to the caller and in the log. Each is 1 to 256 bytes of visible ASCII. Required.
	BusinessID, RequestID string

	// Share names the key, business, account or client IP that the exchange counts against. Each may have a limited number of exchanges in progress.
	// Default: none, and the exchange is not limited.
	Share string

	// Resource is a resource of an API or ConnectAudience: the audience of the hop assertion and the label of metrics. Required.
	Resource string

	// Operation is the ID of the API's operation, for the hop assertion. Default: none.
	Operation string

	// Method, Path and Query are those of the request. The path is escaped and absolute; the query is encoded and has no '?'.
	// Method and Path are required.
	Method, Path, Query string

	// Host is the Host header. Required.
	Host string

	// Header holds the headers besides those that NewRequest sets. It belongs to the call: NewRequest adds to it.
	Header http.Header

	// Body is the request's body. Default: none. BodyType is its media type. Default: application/json.
	Body     []byte
	BodyType string

	accept  string // the header Accept; empty: application/json
	invalid error  // why NewRequest fails

	// Deadline ends the call, retries included. Required.
	Deadline time.Time

	// MaxResponse is the maximum size of the response's body in bytes. Required.
	MaxResponse int64
}

// Response is the response to a [Call], whose body has been read whole.
type Response struct {
	Status int
	Header http.Header
	Body   []byte // valid until Release

	// Address is the address that sent the response.
	Address string

	// Hosts are those under which the service was called, of which some may be empty: its address, the host of the call, and Host and X-Forwarded-Host
	// as they were sent.
	Hosts [4]string

	// Free frees what the response holds. Default: nothing.
	Free func()
}

// Release frees the response, which must not be used afterwards. It must be called once.
func (r *Response) Release() {
	if r.Free != nil {
		r.Free()
	}
}

// NewCall returns the call for a request to the API. It has the operation's method (GET for HEAD, too, so that the same response is checked), the
// path and the clean query, changed as the operation's mapping says, and those headers of r that may be forwarded. CheckHeaders must have
// accepted r. Body, Share, Deadline and MaxResponse are left to the caller. r is not modified.
func NewCall(r *http.Request, op *Operation, q Query, businessID, requestID string) Call {
	c := Call{
		BusinessID: businessID, RequestID: requestID, Resource: op.Resource, Operation: op.ID,
		Method: op.Method, Path: q.Path, Query: q.Raw, Host: r.Host,
		Header: make(http.Header, headerRoom), accept: op.accept,
	}
	for i := range op.Headers {
		if name := op.Headers[i].Name; len(r.Header[name]) == 1 {
			c.Header[name] = r.Header[name]
		}
	}
	for _, name := range [...]string{"Accept-Language", "User-Agent", "Traceparent", "Tracestate"} {
		if isForwardable(r.Header, name) {
			c.Header[name] = r.Header[name]
		}
	}
	if op.Mapping != nil {
		op.Mapping.apply(&c, op, q)
	}
	return c
}

// NewRequest returns the HTTP request of a call, with the gateway's own headers: Accept (application/json, after the media types of successful
// responses without it), Accept-Encoding (identity, because a compressed response could expand without limit), X-Request-Id, X-Business-Id,
// X-Gateway-Assertion if there is an assertion, and Content-Type if there is a body. The error wraps ErrIdentity if an ID is invalid.
func (c *Call) NewRequest(ctx context.Context, assertion string) (*http.Request, error) {
	if !isVisibleASCII(c.BusinessID) || !isVisibleASCII(c.RequestID) {
		return nil, fmt.Errorf("%w: business ID and request ID must be 1 to 256 bytes of visible ASCII", ErrIdentity)
	}
	if c.invalid != nil {
		return nil, c.invalid
	}
	path, err := url.PathUnescape(c.Path)
	if err != nil {
		return nil, fmt.Errorf("invalid path of a call: %w", err)
	}
	parts := &struct { // one allocation
		url    url.URL
		values [6]string
	}{
		url.URL{Path: path, RawPath: c.Path, RawQuery: c.Query},
		[...]string{cmp.Or(c.accept, "application/json"), "identity", c.RequestID, c.BusinessID, assertion, cmp.Or(c.BodyType, "application/json")},
	}
	if c.Header == nil {
		c.Header = make(http.Header, headerRoom)
	}
	h, values := c.Header, parts.values[:]
	h["Accept"], h["Accept-Encoding"] = values[0:1:1], values[1:2:2]
	h[HeaderRequestID], h[HeaderBusinessID] = values[2:3:3], values[3:4:4]
	delete(h, HeaderAssertion)
	if assertion != "" {
		h[HeaderAssertion] = values[4:5:5]
	}
	req := new(http.Request).WithContext(ctx)
	req.Method, req.URL, req.Host, req.Header, req.RequestURI = c.Method, &parts.url, c.Host, h, c.Path
	req.Proto, req.ProtoMajor, req.ProtoMinor = "HTTP/1.1", 1, 1
	if c.Query != "" {
		req.RequestURI += "?" + c.Query
	}
	if c.Body != nil {
		h["Content-Type"] = values[5:6:6]
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(c.Body)), int64(len(c.Body))
	}
	return req, nil
}

// CallError is the error of a call that tried an address.
type CallError struct {
	Address string // the last one that was tried
	Err     error
}

// Error returns the text of Err.
func (e *CallError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *CallError) Unwrap() error { return e.Err }
