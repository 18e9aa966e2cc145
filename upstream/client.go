package upstream

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Defaults of a [Client].
const (
	DefaultMaxIdleConns      = 256
	DefaultIdleTimeout       = 2 * time.Minute
	DefaultMaxResponseHeader = 64 << 10 // bytes

	// maxInformational is how many 1xx responses may precede a final one, as in net/http's Transport.
	maxInformational = 5

	writeBufferSize = 4 << 10
	readBufferSize  = 16 << 10
)

// Errors of a [Client], in addition to those of the network and net/http.
var (
	// ErrResponseHeaderTimeout means that no response header arrived within Client.ResponseHeaderTimeout.
	ErrResponseHeaderTimeout = errors.New("the data service sent no response header in time")

	// ErrResponseHeaderTooLarge means that the response header exceeds Client.MaxResponseHeader.
	ErrResponseHeaderTooLarge = errors.New("the data service's response header is too large")

	// ErrUnexpectedInformational means that the data service sent 101 or more than five other 1xx responses.
	ErrUnexpectedInformational = fmt.Errorf("%w: unexpected 1xx response", ErrContractViolation)

	// ErrMaxConns means that all connections that Client.MaxConns allows were in use until the deadline or until the request's
	// context was done, so that no request was sent. It comes with context.DeadlineExceeded or the context's cause.
	ErrMaxConns = errors.New("all connections to the data service are in use")

	// ErrInvalidRequest means that the request cannot be written as HTTP, so that nothing was sent.
	ErrInvalidRequest = errors.New("the request to the data service is invalid")

	// ErrNoTimeLeft means that the deadline had passed before the exchange began, so that nothing was sent. It is a context.DeadlineExceeded.
	ErrNoTimeLeft = fmt.Errorf("no time is left for the exchange with the data service: %w", context.DeadlineExceeded)

	// ErrHandshake means that the TLS handshake failed, so that no request was sent.
	ErrHandshake = errors.New("the TLS handshake with the data service failed")

	// ErrOtherResponse means that the response's X-Request-Id is not that of the request: it is the response to another one.
	ErrOtherResponse = fmt.Errorf("%w: X-Request-Id of another request", ErrContractViolation)
)

// Client sends requests to one address of a data service over HTTP/1.1, in cleartext or over TLS.
//
// Each exchange runs on the goroutine that calls Exchange: it writes the request and reads the
// response with [http.ReadResponse]. This is faster than net/http's Transport, which uses two goroutines for each connection
// (docs/performance.md). But a Client does not read while it writes, so it is only for requests with small bodies. If a write fails, a 4xx or 5xx that
// has arrived is the response: the service did not want the body.
//
// A connection is reused only if it has carried nothing but GET requests, and if nothing has arrived since the end of the last
// response: neither on the socket nor within TLS. The service may close a connection while the next request is on its way, so a
// GET that fails on a reused connection before the first byte of the response is sent once more, on a new connection. All other
// requests use a connection of their own and are sent once.
//
// HTTP/1.1 has nothing that says to which request a response belongs. Bytes that a service sends after the check of a reused
// connection are taken as the next response, unless they have an X-Request-Id: it must be the request's ([ErrOtherResponse]).
//
// A Client is safe for concurrent use and must not be copied after first use. Exchange ignores req.URL's scheme and
// host; the request's Host header is req.Host.
type Client struct {
	// Dial opens a connection to the service, without TLS. Required.
	Dial func(ctx context.Context) (net.Conn, error)

	// TLS returns the configuration of a new connection, for the context of the request that needs it. Default: none, and
	// connections are cleartext.
	TLS func(ctx context.Context) *tls.Config

	// TLSHandshakeTimeout limits a TLS handshake. Default: 0, which means no limit but the request's deadline.
	TLSHandshakeTimeout time.Duration

	// MaxConns is the maximum number of connections, idle ones included. Requests wait for one. Default: 0, which means no
	// limit.
	MaxConns int

	// MaxIdleConns is the maximum number of idle connections. Default: 256. Zero means the default, and a negative value
	// disables reuse.
	MaxIdleConns int

	// AllowIdle reports whether one more connection may become idle, for a limit that clients share. Default: always.
	AllowIdle func() bool

	// IdleTimeout is how long a connection may be idle before it is closed. Default: 2m. Zero means the default.
	IdleTimeout time.Duration

	// MaxResponseHeader is the maximum size of a response's header in bytes, including preceding 1xx responses. Default:
	// 64 KiB. Zero means the default.
	MaxResponseHeader int64

	// ResponseHeaderTimeout limits the time from the end of the request to the end of the response header. Default: 0, which
	// means no limit.
	ResponseHeaderTimeout time.Duration

	// ReadTimeout and WriteTimeout limit each read from and each write to a connection. Defaults: 0, which means no limit.
	ReadTimeout, WriteTimeout time.Duration

	// ReadBuffer is the size of a connection's read buffer in bytes. Default: 16 KiB. Zero means the default.
	ReadBuffer int

	mu     sync.Mutex
	idle   []*clientConn       // the most recently used last
	prune  *time.Timer         // closes idle connections; nil if there are none
	conns  *semaphore.Weighted // of exchanges, if MaxConns is set; nil before the first
	closed bool
}

// clientConn is a connection to a data service. It is owned by one exchange or by Client.idle.
type clientConn struct {
	net.Conn  // the socket, or the TLS connection on it
	client    *Client
	socket    net.Conn
	records   *recordConn   // between socket and TLS; nil for cleartext
	reader    *bufio.Reader // reads from the clientConn itself
	isSilent  func() bool   // reports whether the socket has neither data nor EOF to read
	abort     func()        // aborts the exchange
	idleSince time.Time

	// Of the current exchange:
	ctx         context.Context //nolint:containedctx // an exchange is on one goroutine and reads through bufio
	deadline    time.Time
	limit       int64         // bytes that may still be read
	began       bool          // a byte of the response has arrived
	readErr     error         // of Read; net/http drops it if some of a line had arrived, and calls the line malformed
	wait        time.Duration // limits each read; zero means no limit
	keepWaiting func() bool   // reports whether to go on after wait; nil: no
}

// Read implements io.Reader for reader. It enforces limit and wait.
func (c *clientConn) Read(p []byte) (n int, err error) {
	defer func() { c.readErr = err }()
	if c.limit <= 0 {
		return 0, ErrResponseHeaderTooLarge
	}
	if int64(len(p)) > c.limit {
		p = p[:c.limit]
	}
	var start time.Time
	if c.wait > 0 {
		start = time.Now()
	}
	for {
		if c.wait > 0 {
			if err := c.extend(earlier(c.deadline, time.Now().Add(c.wait))); err != nil {
				return 0, err
			}
		}
		n, err = c.Conn.Read(p)
		c.limit -= int64(n)
		c.began = c.began || n > 0
		if n == 0 && c.keepWaiting != nil && timedOut(err) && !expired(c.deadline) && !c.silentFor(start) && c.keepWaiting() {
			continue
		}
		return n, err
	}
}

// silentFor reports whether the service has sent nothing for Client.ReadTimeout.
func (c *clientConn) silentFor(start time.Time) bool {
	return c.client.ReadTimeout > 0 && time.Since(start) >= c.client.ReadTimeout
}

// Write implements io.Writer. It enforces Client.WriteTimeout.
func (c *clientConn) Write(p []byte) (int, error) {
	if timeout := c.client.WriteTimeout; timeout > 0 {
		_ = c.SetWriteDeadline(earlier(c.deadline, time.Now().Add(timeout)))
		if err := c.ctx.Err(); err != nil {
			return 0, err // as in extend
		}
	}
	return c.Conn.Write(p)
}

// close closes the socket only: to close the TLS connection would send an alert, which can block.
func (c *clientConn) close() { _ = c.socket.Close() }

// isQuiet reports whether nothing has arrived since the last response: not on the socket, and not within TLS.
func (c *clientConn) isQuiet() bool {
	if c.reader.Buffered() > 0 || !c.isSilent() {
		return false
	}
	return c.records == nil || c.records.isQuiet(c.Conn)
}

// earlier returns the earlier of two times, of which the first may be zero.
func earlier(deadline, at time.Time) time.Time {
	if deadline.IsZero() || at.Before(deadline) {
		return at
	}
	return deadline
}

func expired(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

// Exchange sends a request and reads the response's header. The caller must close the response's body; the connection is reused
// if the request is a GET and the body was read to its end. Exchange and reading the body fail at the deadline, unless it is
// zero, and when the request's context is done. Errors may quote the response. The body has the method of [PatientBody].
//
// A deadline is cheaper than a context with a deadline.
func (c *Client) Exchange(req *http.Request, deadline time.Time) (*http.Response, error) {
	if expired(deadline) {
		return nil, ErrNoTimeLeft // idle connections would look closed
	}
	if err := c.begin(req.Context(), deadline); err != nil {
		return nil, err
	}
	began := false
	defer func() {
		if !began { // also after a panic
			c.done()
		}
	}()
	res, err := c.exchange(req, deadline)
	began = err == nil
	return res, err
}

func (c *Client) exchange(req *http.Request, deadline time.Time) (*http.Response, error) {
	if req.Method == http.MethodGet && (req.Body == nil || req.Body == http.NoBody) {
		for conn := c.take(); conn != nil; conn = c.take() {
			if conn.SetDeadline(deadline) != nil || !conn.isQuiet() {
				conn.close()
				continue
			}
			res, err := conn.exchange(req, deadline)
			if err == nil {
				return res, nil
			}
			conn.close()
			if timedOut(err) && !conn.began {
				c.closeIdle(conn.idleSince) // the others may be as dead, such as after a firewall has forgotten them
			}
			if conn.began || req.Context().Err() != nil || timedOut(err) || errors.Is(err, ErrInvalidRequest) {
				return nil, err
			}
			break // the service has closed the connection
		}
	} else {
		if req.Body != nil {
			defer func() { _ = req.Body.Close() }()
		}
		if c.MaxConns > 0 {
			if conn := c.take(); conn != nil { // makes room for the connection of this request
				_ = conn.Conn.Close()
			}
		}
	}
	conn, err := c.dial(req.Context(), deadline)
	if err != nil {
		return nil, err
	}
	if err = conn.SetDeadline(deadline); err == nil {
		var res *http.Response
		if res, err = conn.exchange(req, deadline); err == nil {
			return res, nil
		}
	}
	conn.close()
	return nil, err
}

// begin waits until MaxConns allows another exchange.
func (c *Client) begin(ctx context.Context, deadline time.Time) error {
	if c.MaxConns <= 0 {
		return nil
	}
	c.mu.Lock()
	if c.conns == nil {
		c.conns = semaphore.NewWeighted(int64(c.MaxConns))
	}
	c.mu.Unlock()
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	if c.conns.Acquire(ctx, 1) != nil {
		return fmt.Errorf("%w: %w", ErrMaxConns, context.Cause(ctx))
	}
	return nil
}

// done lets another exchange begin.
func (c *Client) done() {
	if c.MaxConns > 0 {
		c.conns.Release(1)
	}
}

// Idle returns the number of idle connections.
func (c *Client) Idle() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.idle)
}

func timedOut(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	return ok && network.Timeout()
}

func (c *Client) dial(ctx context.Context, deadline time.Time) (*clientConn, error) {
	dialCtx := ctx
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		dialCtx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	socket, err := c.Dial(dialCtx)
	if err != nil {
		return nil, err // not wrapped, so that callers recognise errors before anything was sent
	}
	conn := &clientConn{Conn: socket, client: c, socket: socket, isSilent: silentSocket(socket)}
	if c.TLS != nil {
		conn.records = &recordConn{Conn: socket}
		if conn.Conn, err = c.handshake(dialCtx, conn.records); err != nil {
			_ = socket.Close()
			return nil, fmt.Errorf("%w: %w", ErrHandshake, err)
		}
	}
	conn.abort = func() { _ = socket.SetDeadline(past) }
	conn.reader = bufio.NewReaderSize(conn, cmp.Or(c.ReadBuffer, readBufferSize))
	return conn, nil
}

// handshake returns the TLS connection on a socket.
func (c *Client) handshake(ctx context.Context, socket net.Conn) (*tls.Conn, error) {
	if c.TLSHandshakeTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.TLSHandshakeTimeout)
		defer cancel()
	}
	conn := tls.Client(socket, c.TLS(ctx))
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return conn, nil
}

//nolint:gochecknoglobals // a pool of buffers has no observable state
var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, writeBufferSize) }}

// past is a deadline that aborts all reads and writes of a connection.
var past = time.Unix(1, 0) //nolint:gochecknoglobals // a constant

// exchange sends a request and reads the response's header. The caller must set the deadline before, and close the connection
// after an error.
func (c *clientConn) exchange(req *http.Request, deadline time.Time) (*http.Response, error) {
	ctx := req.Context()
	c.ctx, c.deadline = ctx, deadline
	stop := func() bool { return true } // for a context that is never done
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, c.abort)
	}
	res, err := c.send(req, deadline)
	if err == nil && !respondsTo(res, req) {
		err = ErrOtherResponse
	}
	if err != nil {
		if !stop() || ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	body := &clientBody{inner: res.Body, conn: c, stop: stop, reuse: req.Method == http.MethodGet && !res.Close && !req.Close}
	if res.Body == http.NoBody {
		body.end(true)
		return res, nil
	}
	res.Body = body
	return res, nil
}

// respondsTo reports whether each X-Request-Id of the response, if it has one, is the request's.
func respondsTo(res *http.Response, req *http.Request) bool {
	sent := req.Header[HeaderRequestID]
	for _, id := range res.Header[HeaderRequestID] {
		if len(sent) != 1 || id != sent[0] {
			return false
		}
	}
	return true
}

// send writes a request and reads the header of its final response.
func (c *clientConn) send(req *http.Request, deadline time.Time) (*http.Response, error) {
	c.began, c.readErr, c.limit = false, nil, cmp.Or(c.client.MaxResponseHeader, DefaultMaxResponseHeader)
	c.wait, c.keepWaiting = c.client.ReadTimeout, nil
	w, _ := writers.Get().(*bufio.Writer)
	w.Reset(c)
	err := writeRequest(w, req)
	if err == nil {
		err = w.Flush()
	}
	w.Reset(nil)
	writers.Put(w)
	if err != nil {
		// The service may have refused the request and closed the connection before it had read the body.
		if network, ok := errors.AsType[net.Error](err); ok && !network.Timeout() && c.ctx.Err() == nil {
			if res, e := c.readHeader(req); e == nil && res.StatusCode >= http.StatusBadRequest {
				res.Close, c.limit = true, math.MaxInt64
				return res, nil
			}
		}
		return nil, fmt.Errorf("sending the request: %w", err)
	}
	until := deadline // of the header
	if timeout := c.client.ResponseHeaderTimeout; timeout > 0 {
		until = earlier(deadline, time.Now().Add(timeout))
	}
	if !until.Equal(deadline) {
		if err := c.extend(until); err != nil {
			return nil, err
		}
		c.deadline = until
	}
	res, err := c.readHeader(req)
	c.limit, c.deadline = math.MaxInt64, deadline // the caller limits the body
	switch {
	case until.Equal(deadline):
		return res, err
	case err == nil:
		return res, c.extend(deadline)
	case timedOut(err) && expired(until):
		return nil, fmt.Errorf("%w: %w", ErrResponseHeaderTimeout, err)
	default:
		return nil, err
	}
}

// extend sets the read deadline. If the context is done, it returns an error, because it may have overwritten abort's deadline.
func (c *clientConn) extend(deadline time.Time) error {
	_ = c.SetReadDeadline(deadline)
	return c.ctx.Err() // exchange returns the cause
}

func (c *clientConn) readHeader(req *http.Request) (*http.Response, error) {
	for range maxInformational + 1 {
		res, err := http.ReadResponse(c.reader, req)
		if err != nil && c.readErr != nil {
			err = c.readErr
		}
		switch {
		case errors.Is(err, ErrResponseHeaderTooLarge):
			return nil, ErrResponseHeaderTooLarge
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("reading the response: %w", io.ErrUnexpectedEOF)
		case err != nil:
			return nil, fmt.Errorf("reading the response: %w", err)
		case res.StatusCode < http.StatusContinue: // not a status (RFC 9110, section 15): what follows may not belong to req
			return nil, fmt.Errorf("reading the response: invalid status %03d", res.StatusCode)
		case res.StatusCode == http.StatusSwitchingProtocols:
			return nil, ErrUnexpectedInformational
		case res.StatusCode >= http.StatusOK:
			return res, nil
		}
	}
	return nil, ErrUnexpectedInformational
}

// PatientBody is implemented by the bodies of a [Client]'s responses.
type PatientBody interface {
	// SetPatience calls keepWaiting whenever the service has sent nothing for the given time, and ends the response with a timeout if
	// the result is false.
	SetPatience(timeout time.Duration, keepWaiting func() bool)
}

// SetPatience implements [PatientBody].
func (b *clientBody) SetPatience(timeout time.Duration, keepWaiting func() bool) {
	if own := b.conn.client.ReadTimeout; b.ended || own > 0 && own <= timeout {
		return // after the end, the connection may be another exchange's
	}
	b.conn.wait, b.conn.keepWaiting = timeout, keepWaiting
}

// clientBody is a response's body. At its end, the connection becomes idle.
type clientBody struct {
	inner io.ReadCloser
	conn  *clientConn
	stop  func() bool // stops watching the request's context; false if the context was done
	reuse bool        // neither side has asked to close the connection
	ended bool
	err   error // of the last read
}

// Read implements io.Reader.
func (b *clientBody) Read(p []byte) (int, error) {
	if b.ended {
		return 0, b.err
	}
	n, err := b.inner.Read(p)
	if err != nil {
		b.err = err
		b.end(err == io.EOF) // not errors.Is: a wrapped EOF is a failure
	}
	return n, err
}

// Close implements io.Closer. It does not read the rest of the body.
func (b *clientBody) Close() error {
	if !b.ended {
		b.err = http.ErrBodyReadAfterClose
		b.end(false)
	}
	return nil
}

// end makes the connection idle if it can be reused, and closes it otherwise.
func (b *clientBody) end(complete bool) {
	b.ended = true
	watched := b.stop()
	b.conn.ctx, b.conn.keepWaiting = nil, nil
	if !complete || !watched || !b.reuse || b.conn.reader.Buffered() > 0 || !b.conn.client.put(b.conn) {
		b.conn.close()
	}
	b.conn.client.done()
}

// take returns the most recently used idle connection, or nil if there is none.
func (c *Client) take() *clientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.idle) - 1
	if last < 0 {
		return nil
	}
	conn := c.idle[last]
	c.idle = slices.Delete(c.idle, last, last+1)
	return conn
}

// put adds an idle connection, and reports whether it did.
func (c *Client) put(conn *clientConn) bool {
	if c.AllowIdle != nil && !c.AllowIdle() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.idle) >= cmp.Or(c.MaxIdleConns, DefaultMaxIdleConns) {
		return false
	}
	conn.idleSince = time.Now()
	c.idle = append(c.idle, conn)
	if c.prune == nil {
		c.prune = time.AfterFunc(c.idleTimeout(), c.closeExpired)
	}
	return true
}

func (c *Client) idleTimeout() time.Duration {
	return cmp.Or(max(c.IdleTimeout, 0), DefaultIdleTimeout)
}

// closeExpired closes the connections that have reached IdleTimeout.
func (c *Client) closeExpired() { c.closeIdle(time.Now().Add(-c.idleTimeout())) }

// closeIdle closes the connections that have been idle since a time, and schedules closeExpired for the others.
func (c *Client) closeIdle(since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.prune == nil || c.closed {
		return
	}
	c.idle = slices.DeleteFunc(c.idle, func(conn *clientConn) bool {
		expired := !conn.idleSince.After(since)
		if expired {
			_ = conn.Close()
		}
		return expired
	})
	if len(c.idle) == 0 {
		c.prune.Stop()
		c.prune = nil
		return
	}
	c.prune.Reset(time.Until(c.idle[0].idleSince.Add(c.idleTimeout())))
}

// Close closes idle connections at once, and the others when their exchanges end. It does not wait for them.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.prune != nil {
		c.prune.Stop()
	}
	for _, conn := range c.idle {
		_ = conn.Close()
	}
	c.idle = nil
	return nil
}
