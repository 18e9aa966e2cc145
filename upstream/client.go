package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"time"
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
	ErrUnexpectedInformational = errors.New("the data service sent an unexpected 1xx response")
)

// Client sends requests to one cleartext HTTP/1.1 address of a data service.
//
// Each exchange runs on the goroutine that calls Exchange: it writes the request with [http.Request.Write] and reads the
// response with [http.ReadResponse]. This is faster than net/http's Transport, which uses two goroutines for each connection
// (docs/performance.md). But a Client does not read while it writes, so it is only for requests with small bodies.
//
// Connections are reused, unless the service has closed the connection or sent data after the end of a response. The service
// may close a connection while the next request is on its way, so a GET or HEAD that fails on a reused connection before the
// first byte of the response is retried once on a new connection. All other requests use a new connection and are sent once.
//
// A Client is safe for concurrent use and must not be copied after first use. Exchange ignores req.URL's scheme and
// host; the request's Host header is req.Host.
type Client struct {
	// Dial opens a connection to the service. Required.
	Dial func(ctx context.Context) (net.Conn, error)

	// MaxIdleConns is the maximum number of idle connections. Default: 256. Zero means the default, and a negative value
	// disables reuse.
	MaxIdleConns int

	// IdleTimeout is how long a connection may be idle before it is closed. Default: 2m. Zero means the default.
	IdleTimeout time.Duration

	// MaxResponseHeader is the maximum size of a response's header in bytes, including preceding 1xx responses. Default:
	// 64 KiB. Zero means the default.
	MaxResponseHeader int64

	// ResponseHeaderTimeout limits the time from the end of the request to the end of the response header. Default: 0, which
	// means no limit.
	ResponseHeaderTimeout time.Duration

	mu     sync.Mutex
	idle   []*clientConn // the most recently used last
	prune  *time.Timer   // closes idle connections; nil if there are none
	closed bool
}

// clientConn is a connection to a data service. It is owned by one exchange or by Client.idle.
type clientConn struct {
	net.Conn
	client *Client
	reader *bufio.Reader // reads from the clientConn itself
	quiet  func() bool   // reports whether the socket has neither data nor EOF to read
	abort  func()        // aborts the exchange
	since  time.Time     // idle since
	limit  int64         // bytes that may still be read
	began  bool          // a byte of the current response has arrived
	hit    bool          // limit was exceeded
}

// Read implements io.Reader for reader. It enforces limit.
func (c *clientConn) Read(p []byte) (int, error) {
	if c.limit <= 0 {
		c.hit = true
		return 0, ErrResponseHeaderTooLarge
	}
	if int64(len(p)) > c.limit {
		p = p[:c.limit]
	}
	n, err := c.Conn.Read(p)
	c.limit -= int64(n)
	c.began = c.began || n > 0
	return n, err
}

// Exchange sends a request and reads the response's header. The caller must close the response's body; the connection is reused
// if the body was read to its end. Exchange and reading the body fail at the deadline, unless it is zero, and when the request's
// context is done. Errors may quote the response.
//
// A deadline is cheaper than a context with a deadline.
func (c *Client) Exchange(req *http.Request, deadline time.Time) (*http.Response, error) {
	replayable := req.Method == http.MethodGet || req.Method == http.MethodHead
	if replayable && (req.Body == nil || req.Body == http.NoBody) {
		for conn := c.take(); conn != nil; conn = c.take() {
			if conn.SetDeadline(deadline) != nil || !conn.quiet() {
				_ = conn.Close()
				continue
			}
			res, err := conn.exchange(req, deadline)
			if err == nil {
				return res, nil
			}
			_ = conn.Close()
			if conn.began || req.Context().Err() != nil || timedOut(err) {
				return nil, err
			}
			break // the service has closed the connection
		}
	} else if req.Body != nil {
		defer func() { _ = req.Body.Close() }()
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
	_ = conn.Close()
	return nil, err
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
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	inner, err := c.Dial(ctx)
	if err != nil {
		return nil, err // not wrapped, so that callers recognise errors before anything was sent
	}
	conn := &clientConn{Conn: inner, client: c, quiet: quietSocket(inner)}
	conn.abort = func() { _ = inner.SetDeadline(past) }
	conn.reader = bufio.NewReaderSize(conn, readBufferSize)
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
	stop := func() bool { return true } // for a context that is never done
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, c.abort)
	}
	res, err := c.send(req, deadline)
	if err != nil {
		if !stop() || ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	body := &clientBody{inner: res.Body, conn: c, stop: stop, reuse: !res.Close && !req.Close}
	if res.Body == http.NoBody {
		body.end(true)
		return res, nil
	}
	res.Body = body
	return res, nil
}

// send writes a request and reads the header of its final response.
func (c *clientConn) send(req *http.Request, deadline time.Time) (*http.Response, error) {
	c.began, c.hit, c.limit = false, false, c.client.MaxResponseHeader
	if c.limit == 0 {
		c.limit = DefaultMaxResponseHeader
	}
	w, _ := writers.Get().(*bufio.Writer)
	w.Reset(c.Conn)
	err := req.Write(w)
	if err == nil {
		err = w.Flush()
	}
	w.Reset(nil)
	writers.Put(w)
	if err != nil {
		return nil, fmt.Errorf("sending the request: %w", err)
	}
	until := deadline // of the header
	if timeout := c.client.ResponseHeaderTimeout; timeout > 0 {
		if at := time.Now().Add(timeout); deadline.IsZero() || at.Before(deadline) {
			until = at
		}
	}
	if !until.Equal(deadline) {
		if err := c.extend(req.Context(), until); err != nil {
			return nil, err
		}
	}
	res, err := c.readHeader(req)
	c.limit = math.MaxInt64 // the caller limits the body
	switch {
	case until.Equal(deadline):
		return res, err
	case err == nil:
		return res, c.extend(req.Context(), deadline)
	case timedOut(err):
		return nil, fmt.Errorf("%w: %w", ErrResponseHeaderTimeout, err)
	default:
		return nil, err
	}
}

// extend sets the read deadline. If the context is done, it returns an error, because it may have overwritten abort's deadline.
func (c *clientConn) extend(ctx context.Context, deadline time.Time) error {
	_ = c.SetReadDeadline(deadline)
	return ctx.Err() // exchange returns the cause
}

func (c *clientConn) readHeader(req *http.Request) (*http.Response, error) {
	for range maxInformational + 1 {
		res, err := http.ReadResponse(c.reader, req)
		switch {
		case err != nil && c.hit:
			return nil, ErrResponseHeaderTooLarge
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("reading the response: %w", io.ErrUnexpectedEOF)
		case err != nil:
			return nil, fmt.Errorf("reading the response: %w", err)
		case res.StatusCode < http.StatusContinue: // not a status (RFC 9110, section 15); what follows may be no response to req
			return nil, fmt.Errorf("reading the response: invalid status %03d", res.StatusCode)
		case res.StatusCode == http.StatusSwitchingProtocols:
			return nil, ErrUnexpectedInformational
		case res.StatusCode >= http.StatusOK:
			return res, nil
		}
	}
	return nil, ErrUnexpectedInformational
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
	if complete && watched && b.reuse && b.conn.reader.Buffered() == 0 && b.conn.client.put(b.conn) {
		return
	}
	_ = b.conn.Close()
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
	c.idle[last] = nil
	c.idle = c.idle[:last]
	return conn
}

// put adds an idle connection, and reports whether it did.
func (c *Client) put(conn *clientConn) bool {
	limit := c.MaxIdleConns
	if limit == 0 {
		limit = DefaultMaxIdleConns
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.idle) >= limit {
		return false
	}
	conn.since = time.Now()
	c.idle = append(c.idle, conn)
	if c.prune == nil {
		c.prune = time.AfterFunc(c.idleTimeout(), c.closeExpired)
	}
	return true
}

func (c *Client) idleTimeout() time.Duration {
	if c.IdleTimeout > 0 {
		return c.IdleTimeout
	}
	return DefaultIdleTimeout
}

// closeExpired closes the connections that have reached IdleTimeout, and schedules its next run.
func (c *Client) closeExpired() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	oldest := time.Now().Add(-c.idleTimeout())
	expired := 0
	for expired < len(c.idle) && !c.idle[expired].since.After(oldest) {
		_ = c.idle[expired].Close()
		expired++
	}
	rest := copy(c.idle, c.idle[expired:])
	clear(c.idle[rest:])
	c.idle = c.idle[:rest]
	if rest == 0 {
		c.prune = nil
		return
	}
	c.prune.Reset(c.idle[0].since.Sub(oldest))
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
