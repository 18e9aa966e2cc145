package upstream

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// maxWindow is the maximum window size of a zstd frame in bytes, and so bounds its memory.
const maxWindow = 8 << 20

// ErrContentEncoding is the error of a response whose Content-Encoding is repeated, or not gzip, zstd or identity.
var ErrContentEncoding = fmt.Errorf("%w: the Content-Encoding", ErrContractViolation)

// Decode replaces a compressed body by one that is decoded as it is read, and sets Uncompressed. Some services compress although the request
// accepts only identity. The caller must limit the size of the decoded body. The error wraps [ErrContentEncoding].
func Decode(res *http.Response) error {
	codings := res.Header["Content-Encoding"]
	if len(codings) == 0 {
		return nil
	}
	if len(codings) > 1 {
		return fmt.Errorf("%w is given more than once", ErrContentEncoding)
	}
	body := &decodedBody{ReadCloser: res.Body}
	switch strings.ToLower(strings.TrimSpace(codings[0])) {
	case "", "identity":
		return nil
	case "gzip", "x-gzip":
		body.open = func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }
	case "zstd":
		body.open = func(r io.Reader) (io.Reader, error) {
			d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
			if err != nil {
				return nil, err
			}
			body.end = d.Close
			return d, nil
		}
	default:
		return fmt.Errorf("%w is not gzip, zstd or identity", ErrContentEncoding)
	}
	res.Body, res.ContentLength, res.Uncompressed = body, -1, true
	delete(res.Header, "Content-Encoding")
	return nil
}

// decodedBody is a body that is decoded when it is read.
type decodedBody struct {
	io.ReadCloser

	open   func(io.Reader) (io.Reader, error)
	reader io.Reader
	end    func()
}

// Read implements io.Reader.
func (d *decodedBody) Read(p []byte) (int, error) {
	if d.reader == nil {
		in := bufio.NewReader(d.ReadCloser)
		if _, err := in.Peek(1); err == io.EOF { // without content, as of a response to HEAD
			return 0, io.EOF
		}
		r, err := d.open(in)
		if err != nil {
			return 0, err
		}
		d.reader = r
	}
	return d.reader.Read(p) //nolint:wrapcheck // io.EOF must stay as it is
}

// Close implements io.Closer.
func (d *decodedBody) Close() error {
	if d.end != nil {
		d.end()
	}
	return d.ReadCloser.Close() //nolint:wrapcheck // the error of the body itself
}

// SetPatience implements [PatientBody].
func (d *decodedBody) SetPatience(timeout time.Duration, keepWaiting func() bool) {
	if body, ok := d.ReadCloser.(PatientBody); ok {
		body.SetPatience(timeout, keepWaiting)
	}
}
