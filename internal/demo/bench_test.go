package demo

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
)

func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		s, err := Open(context.Background(), Memory, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRequest measures a request inside the service, without the network.
func BenchmarkRequest(b *testing.B) {
	s, err := Open(context.Background(), Memory, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	h := s.Handler()
	business := Businesses()[0].ID
	for _, target := range []string{"business", "contacts", "contacts?status=active&type=lead", "contacts?per_page=100", "equipment", "estimates", "invoices", "jobs", "jobs?page=9", "offerings", "events", "events?count=100"} {
		b.Run(target, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/api/v1/"+target, nil)
				r.Header.Set(HeaderBusinessID, business)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
				b.SetBytes(int64(w.Body.Len()))
			}
		})
	}
}
