package upstream

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// writeRequest writes a request in origin form (RFC 9112, section 3.2.1), its headers in alphabetical order. It is faster than
// http.Request.Write, and rejects invalid values that http.Request.Write would correct. A body must have a ContentLength.
func writeRequest(w *bufio.Writer, req *http.Request) error {
	target, host := req.URL.RequestURI(), withoutZone(req.Host)
	if !httpguts.ValidHeaderFieldName(req.Method) || !validTarget(target) || host == "" || !httpguts.ValidHostHeader(host) {
		return fmt.Errorf("%w: its method, target or host is invalid", ErrInvalidRequest)
	}
	b := append(append(append(w.AvailableBuffer(), req.Method...), ' '), target...)
	b = appendHeader(append(b, " HTTP/1.1\r\n"...), "Host", host)
	var array [32]string // on the stack
	names := array[:0]
	for name := range req.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			continue // they follow from Host, Body and ContentLength of the request
		}
		for _, value := range req.Header[name] {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
				return fmt.Errorf("%w: the value or the name of its header %q is invalid", ErrInvalidRequest, name)
			}
			b = appendHeader(b, name, value)
		}
	}
	if req.Close {
		b = appendHeader(b, "Connection", "close")
	}
	hasBody := req.Body != nil && req.Body != http.NoBody
	if hasBody || req.Method == http.MethodPost || req.Method == http.MethodPut || req.Method == http.MethodPatch { // RFC 9110, section 8.6
		b = appendHeader(b, "Content-Length", strconv.FormatInt(req.ContentLength, 10))
	}
	if _, err := w.Write(append(b, "\r\n"...)); err != nil || !hasBody {
		return err
	}
	n, err := io.Copy(w, req.Body)
	if err == nil && n != req.ContentLength {
		err = fmt.Errorf("the body has %d bytes, not %d", n, req.ContentLength)
	}
	return err
}

func appendHeader(b []byte, name, value string) []byte {
	return append(append(append(append(b, name...), ": "...), value...), "\r\n"...)
}

func validTarget(s string) bool {
	return strings.HasPrefix(s, "/") && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// withoutZone removes the zone of an IPv6 address, which is of no use to others (RFC 6874, section 4).
func withoutZone(host string) string {
	if zone, end := strings.IndexByte(host, '%'), strings.LastIndexByte(host, ']'); zone >= 0 && zone < end {
		return host[:zone] + host[end:]
	}
	return host
}
