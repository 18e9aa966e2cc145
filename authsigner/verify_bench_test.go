package authsigner_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// BenchmarkBareHMAC is the baseline: the same message, signed and written as hex with crypto/hmac alone.
func BenchmarkBareHMAC(b *testing.B) {
	key := []byte(testSecret)
	message := authsigner.SigningString(testClock, http.MethodGet, meTarget, nil)
	var out [2 * sha256.Size]byte
	b.ReportAllocs()
	for b.Loop() {
		h := hmac.New(sha256.New, key)
		h.Write(message)
		hex.Encode(out[:], h.Sum(nil))
	}
}

// BenchmarkVerify must stay within 3 times BenchmarkBareHMAC and, without a body, must not allocate.
func BenchmarkVerify(b *testing.B) {
	v := newVerifier(rotatingCredential())
	for _, bench := range bodilessRequests() {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(bench.r, meTarget); err != bench.want { //nolint:errorlint // errors.Is would be part of the measurement
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("in parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			r := get(testSecret)
			for pb.Next() {
				if _, err := v.Verify(r, meTarget); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	for _, size := range []int{1 << 10, 1 << 16, 1 << 20} {
		b.Run("body of "+strconv.Itoa(size), func(b *testing.B) {
			body := bytes.Repeat([]byte("a"), size)
			r := signedRequest(testKey, testSecret, http.MethodPost, meTarget, body)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				r.Body = io.NopCloser(bytes.NewReader(body))
				if _, err := v.Verify(r, meTarget); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
