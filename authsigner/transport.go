package authsigner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Transport signs the requests of a calling business: use it as the Transport of an http.Client. It signs each
// request anew when it is sent, redirects included, but refuses to follow one to another scheme or host, where the
// signature would be given to somebody else. It is safe for concurrent use if Base is.
//
// A request's body is read into memory, because it has to be signed before it is sent.
type Transport struct {
	// Base sends the signed request. Default http.DefaultTransport.
	Base http.RoundTripper

	// PublicKey and PrivateKey are the business's, as issued. Both are needed.
	PublicKey  string
	PrivateKey Secret

	// BasePath is the path below which the gateway is mounted, if it is: "/gw" if the API is at
	// https://host/gw/api/v1. It is not signed. Default none.
	BasePath string

	// Now is the caller's clock, which must be within 5 minutes of the gateway's. Default time.Now.
	Now func() time.Time
}

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip signs a copy of the request and sends it. Signing headers that the request already carries are replaced.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	signed, err := t.sign(r)
	if err != nil {
		if r.Body != nil { // a RoundTripper closes the body, failed or not
			_ = r.Body.Close()
		}
		return nil, fmt.Errorf("signing the request: %w", err)
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	return base.RoundTrip(signed)
}

func (t *Transport) sign(r *http.Request) (*http.Request, error) {
	switch {
	case t.PublicKey == "":
		return nil, errors.New("no public key")
	case !t.PrivateKey.usable():
		return nil, errors.New("no private key")
	}
	// Response is the redirect that caused this request, if one did.
	if r.Response != nil && r.Response.Request != nil {
		from := r.Response.Request.URL
		if from.Scheme != r.URL.Scheme || !strings.EqualFold(from.Host, r.URL.Host) {
			return nil, fmt.Errorf("redirected to another host, %s://%s", r.URL.Scheme, r.URL.Host)
		}
	}
	target, err := Target(r.URL, t.BasePath)
	if err != nil {
		return nil, err
	}
	method := r.Method
	if method == "" { // net/http sends GET
		method = http.MethodGet
	}
	signed := r.Clone(r.Context())
	body, err := bufferBody(r, signed)
	if err != nil {
		return nil, err
	}
	now := t.Now
	if now == nil {
		now = time.Now
	}
	timestamp := now().Unix()
	setSole(signed, HeaderPublicKey, t.PublicKey)
	setSole(signed, HeaderTimestamp, strconv.FormatInt(timestamp, 10))
	setSole(signed, HeaderSignature, Sign(t.PrivateKey, timestamp, method, target, body))
	return signed, nil
}

// bufferBody reads and closes r's body and gives signed one of its own that can be sent again.
func bufferBody(r, signed *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the body: %w", err)
	}
	if r.ContentLength > 0 && r.ContentLength != int64(len(body)) {
		return nil, fmt.Errorf("the body has %d bytes, ContentLength says %d", len(body), r.ContentLength)
	}
	if err := r.Body.Close(); err != nil {
		return nil, fmt.Errorf("closing the body: %w", err)
	}
	signed.GetBody = func() (io.ReadCloser, error) {
		if len(body) == 0 {
			return http.NoBody, nil
		}
		return io.NopCloser(bytes.NewReader(body)), nil
	}
	signed.Body, _ = signed.GetBody()
	signed.ContentLength = int64(len(body))
	signed.TransferEncoding = nil
	return body, nil
}

// setSole sets the header, and removes every other spelling of it that would reach the gateway as a second value.
func setSole(r *http.Request, name, value string) {
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	for other := range r.Header {
		if strings.EqualFold(other, name) {
			delete(r.Header, other)
		}
	}
	r.Header[name] = []string{value}
}
