package authsigner

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Transport is an [http.RoundTripper] that signs requests. It signs redirected requests too, but fails for redirects to another
// scheme or host, which must not get a signature. It is safe for concurrent use if Base is.
//
// Transport reads a request's body into memory to sign it.
type Transport struct {
	// Base sends the signed request. Default: http.DefaultTransport.
	Base http.RoundTripper

	// PublicKey and PrivateKey are the key pair as issued. Required.
	PublicKey  string
	PrivateKey Secret

	// BasePath is the path below which the gateway is mounted, such as "/gw" for https://host/gw/api/v1. It is not signed.
	// Default: none.
	BasePath string

	// Now is the clock, which must be within 5 minutes of the gateway's. Default: time.Now.
	Now func() time.Time
}

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip signs a copy of the request and sends it. It replaces existing signing headers.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	signed, err := t.sign(r)
	if err != nil {
		if r.Body != nil { // a RoundTripper closes the body, failed or not
			_ = r.Body.Close()
		}
		return nil, fmt.Errorf("signing the request: %w", err)
	}
	return cmp.Or(t.Base, http.DefaultTransport).RoundTrip(signed)
}

func (t *Transport) sign(r *http.Request) (*http.Request, error) {
	switch {
	case t.PublicKey == "":
		return nil, errors.New("public key must not be empty")
	case !t.PrivateKey.usable():
		return nil, errors.New("private key must not be empty")
	}
	// Response is the redirect that caused this request, if any.
	if r.Response != nil && r.Response.Request != nil {
		from := r.Response.Request.URL
		if from.Scheme != r.URL.Scheme || !strings.EqualFold(from.Host, r.URL.Host) {
			return nil, fmt.Errorf("redirect to another scheme or host, %s://%s", r.URL.Scheme, r.URL.Host)
		}
	}
	target, err := Target(r.URL, t.BasePath)
	if err != nil {
		return nil, err
	}
	method := cmp.Or(r.Method, http.MethodGet) // as net/http sends it
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

// bufferBody reads and closes r's body, and sets a replayable body on signed.
func bufferBody(r, signed *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the body: %w", err)
	}
	if r.ContentLength > 0 && r.ContentLength != int64(len(body)) {
		return nil, fmt.Errorf("the body has %d bytes, but ContentLength is %d", len(body), r.ContentLength)
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

// setSole sets the header and removes all other spellings of it, which the gateway would see as further values.
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
