package dataservice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// maxPooledBody is the largest capacity, in bytes, of a body's buffer that is reused.
const maxPooledBody = 32 << 10

// response is a response with the buffer of its body. It is pooled.
type response struct {
	upstream.Response
	body    bytes.Buffer
	limited io.LimitedReader // scratch

	service  *Service
	business string
	memory   memory // of service.shares
	maxSize  int64  // of the body

	fairTime time.Duration // in which an address should respond, at least: half of the call's time
	latency  time.Duration // of the last attempt, to the end of the response's header
}

func (s *Service) newResponse() *response {
	r := &response{service: s}
	r.Free = func() {
		r.drop()
		r.Header, r.Body, r.Address, r.Hosts, r.business = nil, nil, "", [len(r.Hosts)]string{}, ""
		s.responses.Put(r)
	}
	return r
}

// drop empties the body, and gives back its memory if it is large.
func (r *response) drop() {
	r.body.Reset()
	if r.body.Cap() > maxPooledBody {
		r.body = bytes.Buffer{}
	}
	if r.memory.held > 0 {
		r.service.shares.releaseMemory(&r.memory, 0)
	}
}

// read reads a response into r. After an error, r has no body.
func (r *response) read(ctx context.Context, deadline time.Time, res *http.Response) error {
	r.Status, r.Header = res.StatusCode, res.Header
	r.drop() // the body of an earlier attempt
	decode, err := upstream.Decode(res)
	if err != nil {
		return err
	}
	if n := res.ContentLength; n > r.maxSize {
		return upstream.ErrResponseTooLarge
	} else if n > 0 && n <= largeResponse {
		r.body.Grow(int(n) + bytes.MinRead) // so that reading it does not grow the buffer
	}
	// Grow to the next limit in one step: doubling the buffer would take four times as much memory.
	n, err := r.readUpTo(res.Body, min(r.maxSize, maxPooledBody)+1)
	if limit := min(r.maxSize, largeResponse); err == nil && n > maxPooledBody && n <= limit {
		r.body.Grow(int(limit+1-n) + bytes.MinRead)
		n, err = r.readUpTo(res.Body, limit+1-n)
	}
	if err == nil && n > largeResponse && n <= r.maxSize {
		size := r.maxSize
		if res.ContentLength >= n {
			size = res.ContentLength
		}
		claim := size
		if decode != nil {
			claim += r.maxSize
		}
		for limit := int64(0); err == nil && n > limit && n <= size; {
			if err := r.acquireMemory(ctx, deadline, claim); err != nil {
				r.drop()
				return err
			}
			if body, ok := res.Body.(upstream.PatientBody); ok {
				body.SetPatience(stallTimeout, func() bool { return !r.service.shares.isContended() })
			}
			if limit = size; r.memory.held < r.memory.claim {
				limit = min(size, r.memory.held)
			}
			grown := make([]byte, n, limit+1+bytes.MinRead) // Grow would take twice as much
			copy(grown, r.body.Bytes())
			r.body = *bytes.NewBuffer(grown)
			n, err = r.readUpTo(res.Body, limit+1-n)
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrResponseTruncated, &exchangeError{err})
	case n > r.maxSize:
		err = upstream.ErrResponseTooLarge
	case decode != nil && n > 0:
		err = r.decode(ctx, deadline, decode)
	}
	if err != nil {
		r.drop()
		return err
	}
	if keep := min(r.memory.held, int64(r.body.Cap())); keep > 0 { // a body in zstd was decoded into a buffer of its own
		if used := int64(r.body.Len()); keep > 2*used { // the service did not say how much it would be
			r.body = *bytes.NewBuffer(bytes.Clone(r.body.Bytes()))
			keep = used
		}
		r.service.shares.releaseMemory(&r.memory, keep)
		r.Body, r.body = r.body.Bytes(), bytes.Buffer{} // the caller decides how long it exists
		return nil
	}
	r.Body = r.body.Bytes()
	return nil
}

// decode decodes the body. A large body that was read has the memory for it already.
func (r *response) decode(ctx context.Context, deadline time.Time, decode func(body []byte, limit int64) ([]byte, error)) error {
	for _, limit := range []int64{maxPooledBody, largeResponse, r.maxSize} {
		limit = min(limit, r.maxSize)
		for limit > largeResponse && (r.memory.claim == 0 || r.memory.held < r.memory.claim) {
			if err := r.acquireMemory(ctx, deadline, limit); err != nil {
				return err
			}
		}
		decoded, err := decode(r.body.Bytes(), limit)
		switch {
		case err == nil:
			r.body = *bytes.NewBuffer(decoded)
			return nil
		case !errors.Is(err, upstream.ErrResponseTooLarge):
			return fmt.Errorf("%w: %w", ErrResponseTruncated, &exchangeError{err})
		}
	}
	return upstream.ErrResponseTooLarge
}

// readUpTo reads up to n more bytes and returns the length of the body.
func (r *response) readUpTo(body io.Reader, n int64) (int64, error) {
	r.limited = io.LimitedReader{R: body, N: n}
	_, err := r.body.ReadFrom(&r.limited)
	r.limited.R = nil
	return int64(r.body.Len()), err
}

// acquireMemory waits until a large response may be read, or read on.
func (r *response) acquireMemory(ctx context.Context, deadline time.Time, size int64) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	r.memory.service, r.memory.business = r.service, r.business
	if err := r.service.shares.acquireMemory(ctx, &r.memory, min(size, largeResponsesBytes)); err != nil {
		return fmt.Errorf("%w: %w", errNoMemory, err)
	}
	return nil
}
