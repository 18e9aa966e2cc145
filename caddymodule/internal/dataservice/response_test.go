package dataservice

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func compressed(t *testing.T, body string, open func(io.Writer) io.WriteCloser) string {
	t.Helper()
	var b bytes.Buffer
	w := open(&b)
	_, err := io.WriteString(w, body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

// A service may compress although the request accepts only identity. What it sends is decoded, within the limit of a response's size.
func TestCompressedResponsesAreDecodedWithinTheirLimit(t *testing.T) {
	zip := func(body string) string {
		return compressed(t, body, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
	}
	standard := func(body string) string {
		return compressed(t, body, func(w io.Writer) io.WriteCloser {
			e, err := zstd.NewWriter(w)
			require.NoError(t, err)
			return e
		})
	}
	body := `{"events":[` + strings.Repeat(`{"id":1},`, 9000) + `{}]}`
	bomb := strings.Repeat(" ", 9<<20)
	noise := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	random := hex.EncodeToString(noise) // half of its size in zstd
	for name, c := range map[string]struct {
		codings []string
		body    string
		want    string // of the decoded body
		err     error
	}{
		"gzip":                      {[]string{"gzip"}, zip(body), body, nil},
		"gzip in another case":      {[]string{" X-GZip"}, zip(body), body, nil},
		"zstd":                      {[]string{"zstd"}, standard(body), body, nil},
		"identity":                  {[]string{"identity"}, body, body, nil},
		"two gzip members":          {[]string{"gzip"}, zip(body) + zip("x"), body + "x", nil},
		"no body":                   {[]string{"gzip"}, "", "", nil},
		"gzip bomb":                 {[]string{"gzip"}, zip(bomb), "", upstream.ErrResponseTooLarge},
		"gzip bomb in gzip bomb":    {[]string{"gzip"}, zip(zip(bomb)), zip(bomb), nil}, // decoded once
		"zstd, one frame to skip":   {[]string{"zstd"}, standard(body) + "\x50\x2a\x4d\x18\x01\x00\x00\x00x" + standard("x"), body + "x", nil},
		"large zstd":                {[]string{"zstd"}, standard(bomb[:8<<20]), bomb[:8<<20], nil},
		"zstd of a random text":     {[]string{"zstd"}, standard(random), random, nil},
		"cut zstd":                  {[]string{"zstd"}, standard(body)[:40], "", ErrResponseTruncated},
		"zstd bomb":                 {[]string{"zstd"}, standard(bomb), "", upstream.ErrResponseTooLarge},
		"cut gzip":                  {[]string{"gzip"}, zip(body)[:100], "", ErrResponseTruncated},
		"a wrong checksum":          {[]string{"gzip"}, zip(body)[:len(zip(body))-1] + "x", "", ErrResponseTruncated},
		"no gzip":                   {[]string{"gzip"}, body, "", ErrResponseTruncated},
		"bytes after gzip":          {[]string{"gzip"}, zip(body) + "x", "", ErrResponseTruncated},
		"no zstd":                   {[]string{"zstd"}, body, "", ErrResponseTruncated},
		"brotli":                    {[]string{"br"}, "x", "", upstream.ErrContractViolation},
		"two codings":               {[]string{"gzip, gzip"}, zip(zip(body)), "", upstream.ErrContractViolation},
		"two headers":               {[]string{"gzip", "identity"}, zip(body), "", upstream.ErrContractViolation},
		"a zstd window beyond 8 MB": {[]string{"zstd"}, "\x28\xb5\x2f\xfd\x00\x98\x01\x00\x00", "", ErrResponseTruncated},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, []string{"identity"}, r.Header["Accept-Encoding"])
				w.Header()["Content-Encoding"] = c.codings
				_, _ = io.WriteString(w, c.body)
			}))
			t.Cleanup(srv.Close)
			s := loaded(t, `{"handler":"reverse_proxy","upstreams":[{"dial":"`+srv.Listener.Addr().String()+`"}]}`)
			call := call()
			call.Header = http.Header{}
			res, err := s.Do(t.Context(), call)
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
				return
			}
			require.NoError(t, err)
			defer res.Release()
			require.Equal(t, c.want, string(res.Body))
			if len(c.codings) > 0 && c.codings[0] != "identity" {
				require.Empty(t, res.Header["Content-Encoding"])
			}
		})
	}
}

// Most encoders declare a window of 8 MiB, however little they send.
func TestZstdTakesNoMemoryForItsWindow(t *testing.T) {
	body := strings.Repeat(`{"id":1},`, 5000)
	sent := compressed(t, body, func(w io.Writer) io.WriteCloser {
		e, err := zstd.NewWriter(w)
		require.NoError(t, err)
		_, err = io.WriteString(e, "[")
		require.NoError(t, err)
		require.NoError(t, e.Flush()) // so that it does not know the size
		return e
	})
	var header zstd.Header
	require.NoError(t, header.Decode([]byte(sent)))
	require.EqualValues(t, 8<<20, header.WindowSize)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "zstd")
		_, _ = io.WriteString(w, sent)
	}))
	t.Cleanup(srv.Close)
	s := loaded(t, `{"handler":"reverse_proxy","upstreams":[{"dial":"`+srv.Listener.Addr().String()+`"}]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const calls = 10
	for range calls {
		res, err := s.Do(t.Context(), call())
		require.NoError(t, err)
		require.Equal(t, "["+body, string(res.Body))
		res.Release()
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(calls*4<<20))
}

// While a body in zstd is decoded, it counts as sent and as decoded. Afterwards, only what it decodes to is held.
func TestDecodedResponseHoldsNoMemoryForWhatWasSent(t *testing.T) {
	noise := make([]byte, 2<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	text := hex.EncodeToString(noise)
	sent := compressed(t, text, func(w io.Writer) io.WriteCloser {
		e, err := zstd.NewWriter(w)
		require.NoError(t, err)
		return e
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "zstd")
		w.Header().Set("Content-Length", strconv.Itoa(len(sent)))
		_, _ = io.WriteString(w, sent)
	}))
	t.Cleanup(srv.Close)
	s := loaded(t, `{"handler":"reverse_proxy","upstreams":[{"dial":"`+srv.Listener.Addr().String()+`"}]}`)
	call := call()
	call.MaxResponse = int64(len(text))
	res, err := s.Do(t.Context(), call)
	require.NoError(t, err)
	require.Len(t, res.Body, len(text))
	body := weak.Make(&res.Body[0])
	require.LessOrEqual(t, largeResponsesBytes-s.shares.free, int64(cap(res.Body)))
	require.GreaterOrEqual(t, largeResponsesBytes-s.shares.free, int64(len(res.Body)))
	res.Body = nil
	require.Eventually(t, func() bool {
		runtime.GC()
		return body.Value() == nil
	}, patience, time.Millisecond, "the caller may free the body earlier than its memory is given back")
	res.Release()
	require.EqualValues(t, largeResponsesBytes, s.shares.free)
}
