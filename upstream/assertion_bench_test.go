package upstream_test

import (
	"context"
	"crypto/ed25519"
	"testing"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func BenchmarkAssert(b *testing.B) {
	a, keys := benchAsserter(b)
	res := upstream.ByName("events")
	b.Run("ed25519 alone", func(b *testing.B) {
		key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
		message := make([]byte, 300)
		b.ReportAllocs()
		for b.Loop() {
			ed25519.Sign(key, message)
		}
	})
	b.Run("assert", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := a.Assert(res, mine, "req-01j9z3"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("verify", func(b *testing.B) {
		token, err := a.Assert(res, mine, "req-01j9z3")
		if err != nil {
			b.Fatal(err)
		}
		v := upstream.AssertionVerifier{Issuer: "https://api.example.com", Audience: "events", Keys: keys}
		v.Now = testClock
		b.ReportAllocs()
		for b.Loop() {
			if _, err := v.VerifyAssertion(context.Background(), token); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchAsserter(tb testing.TB) (*upstream.Asserter, upstream.StaticKeys) {
	tb.Helper()
	a, err := upstream.NewAsserter(upstream.AsserterOptions{
		Issuer: "https://api.example.com", Keys: []ed25519.PrivateKey{testKey(1)}, Now: testClock,
	})
	if err != nil {
		tb.Fatal(err)
	}
	keys, err := upstream.ParseJWKS(a.JWKS())
	if err != nil {
		tb.Fatal(err)
	}
	return a, keys
}
