package upstream

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// maxWindow is the maximum window size of a zstd frame in bytes, as in RFC 9659.
const maxWindow = 8 << 20

// ErrContentEncoding is the error of a response whose Content-Encoding is repeated, or not gzip, zstd or identity.
var ErrContentEncoding = fmt.Errorf("%w: the Content-Encoding", ErrContractViolation)

// Decode replaces a body in gzip by one that is decoded as it is read, and sets Uncompressed if the response is compressed. Some services compress
// although the request accepts only identity. The caller must limit the size of the body. The error wraps [ErrContentEncoding].
//
// If whole is not nil, it must be called with the body when that has been read. It returns what the body decodes to, or [ErrResponseTooLarge] if that is
// more than limit bytes. It may allocate 128 KiB more.
func Decode(res *http.Response) (whole func(body []byte, limit int64) ([]byte, error), err error) {
	codings := res.Header["Content-Encoding"]
	if len(codings) == 0 {
		return nil, nil
	}
	if len(codings) > 1 {
		return nil, fmt.Errorf("%w is given more than once", ErrContentEncoding)
	}
	switch strings.ToLower(strings.TrimSpace(codings[0])) {
	case "", "identity":
		return nil, nil
	case "gzip", "x-gzip":
		res.Body, res.ContentLength = &gzipBody{ReadCloser: res.Body}, -1
	case "zstd":
		whole = decodeZstd
	default:
		return nil, fmt.Errorf("%w is not gzip, zstd or identity", ErrContentEncoding)
	}
	res.Uncompressed = true
	delete(res.Header, "Content-Encoding")
	return whole, nil
}

// decodeZstd decodes the body whole, because to decode it as it is read takes the memory of a window. Most encoders declare 8 MiB, however little they
// send.
func decodeZstd(body []byte, limit int64) ([]byte, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, fmt.Errorf("creating a zstd decoder: %w", err)
	}
	defer d.Close()
	const block = 128<<10 + 32 // without room for one, which the decoder may exceed by some bytes, its error would be another
	decoded, err := d.DecodeAll(body, make([]byte, 0, limit+block))
	if int64(len(decoded)) > limit || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, ErrResponseTooLarge
	}
	return decoded, err //nolint:wrapcheck // the caller describes it
}

// gzipBody is a body in gzip that is decoded when it is read.
type gzipBody struct {
	io.ReadCloser

	reader io.Reader
}

// Read implements io.Reader.
func (b *gzipBody) Read(p []byte) (int, error) {
	if b.reader == nil {
		in := bufio.NewReader(b.ReadCloser)
		if _, err := in.Peek(1); err == io.EOF { // without content, as of a response to HEAD
			return 0, io.EOF
		}
		r, err := gzip.NewReader(in)
		if err != nil {
			return 0, err //nolint:wrapcheck // the caller describes it
		}
		b.reader = r
	}
	return b.reader.Read(p) //nolint:wrapcheck // io.EOF must stay as it is
}

// SetPatience implements [PatientBody].
func (b *gzipBody) SetPatience(timeout time.Duration, keepWaiting func() bool) {
	if body, ok := b.ReadCloser.(PatientBody); ok {
		body.SetPatience(timeout, keepWaiting)
	}
}
