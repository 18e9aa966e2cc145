package dataservice

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Errors of [Service.Do], besides the request context's, upstream.ErrTooManyCalls, upstream.ErrInvalidRequest and
// upstream.ErrResponseTooLarge. A timeout is also a net.Error or context.DeadlineExceeded.
var (
	// ErrUnreachable means that no address is available, or that connecting to one failed.
	ErrUnreachable = errors.New("no address of the data service is available")

	// ErrExchange means that the exchange failed after a connection was opened.
	ErrExchange = errors.New("the exchange with the data service failed")

	// ErrResponseTruncated means that the response's body ended early. It comes with ErrExchange.
	ErrResponseTruncated = errors.New("the data service's response ended early")

	// errNoMemory means that other large responses took up the memory until the deadline.
	errNoMemory = errors.New("timed out while waiting for memory for a large response")
)

// exchangeError is the error of a failed exchange with a data service. Its text is safe to log: net/http quotes malformed
// responses in its errors, so the text is hidden unless the error is known to come from the gateway, the network or TLS.
type exchangeError struct{ err error }

func (e *exchangeError) Error() string {
	for _, known := range []error{
		io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded, upstream.ErrHandshake, upstream.ErrOtherResponse,
		upstream.ErrResponseHeaderTooLarge, upstream.ErrUnexpectedInformational, upstream.ErrResponseHeaderTimeout,
	} {
		if errors.Is(e.err, known) {
			return e.err.Error()
		}
	}
	var (
		dial        reverseproxy.DialError
		network     net.Error
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
	)
	if errors.As(e.err, &dial) || errors.As(e.err, &network) || errors.As(e.err, &certificate) || errors.As(e.err, &record) {
		return e.err.Error()
	}
	return "the data service's response is not valid HTTP (details are not logged because they may quote the response)"
}

func (e *exchangeError) Unwrap() []error {
	if _, ok := errors.AsType[reverseproxy.DialError](e.err); ok {
		return []error{ErrUnreachable, e.err}
	}
	return []error{ErrExchange, e.err}
}

// Unsent reports whether an error of Do means that no data service has received the request.
func Unsent(err error) bool {
	return slices.ContainsFunc([]error{
		ErrUnreachable, upstream.ErrTooManyCalls, upstream.ErrHandshake, upstream.ErrMaxConns, upstream.ErrInvalidRequest,
		upstream.ErrNoTimeLeft,
	}, func(target error) bool { return errors.Is(err, target) })
}
