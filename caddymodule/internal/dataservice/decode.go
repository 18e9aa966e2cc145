package dataservice

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// maxWindow is the most memory in bytes that a zstd frame may ask for.
const maxWindow = 8 << 20

// decode lets the body of a response that is compressed, although the request accepts only identity, be read decoded. Limits of its size are
// those of the decoded body. The error wraps upstream.ErrContractViolation.
func decode(res *http.Response) error {
	codings := res.Header["Content-Encoding"]
	if len(codings) == 0 {
		return nil
	}
	refuse := func(why string) error {
		return fmt.Errorf("%w: the Content-Encoding %s", upstream.ErrContractViolation, why)
	}
	if len(codings) > 1 {
		return refuse("is given more than once")
	}
	body := &decoded{ReadCloser: res.Body}
	switch coding := strings.ToLower(strings.TrimSpace(codings[0])); coding {
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
		return refuse("is none of gzip, zstd and identity")
	}
	res.Body, res.ContentLength = body, -1
	delete(res.Header, "Content-Encoding")
	return nil
}

// decoded is a body that is decoded when it is read.
type decoded struct {
	io.ReadCloser

	open   func(io.Reader) (io.Reader, error)
	reader io.Reader
	end    func()
}

// Read implements io.Reader.
func (d *decoded) Read(p []byte) (int, error) {
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
func (d *decoded) Close() error {
	if d.end != nil {
		d.end()
	}
	return d.ReadCloser.Close() //nolint:wrapcheck // the error of the body itself
}

// asSent returns a body as it is sent.
func asSent(body io.ReadCloser) io.ReadCloser {
	if d, ok := body.(*decoded); ok {
		return d.ReadCloser
	}
	return body
}
