package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"time"

	"github.com/gatehouse-gateway/gatehouse/internal/demo"
)

// upstreamEnv is the environment variable that makes this program run as the data service, which prints its address.
const upstreamEnv = "GATEHOUSE_BENCH_UPSTREAM"

func serveUpstream(kind string) error {
	ctx := context.Background()
	data, err := demo.Open(ctx, demo.Memory, demo.Options{})
	if err != nil {
		return fmt.Errorf("opening the demo data service: %w", err)
	}
	defer func() { _ = data.Close() }()
	var handler http.Handler
	switch kind {
	case "demo":
		handler = data.Handler()
	case "canned":
		handler = canned(data.Handler())
	default:
		return errors.New(`-upstream must be "demo" or "canned"`)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Println(ln.Addr())
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	return srv.Serve(ln)
}

// canned repeats the first response of h to each target.
func canned(h http.Handler) http.Handler {
	answers := make(chan map[string]*httptest.ResponseRecorder, 1)
	answers <- map[string]*httptest.ResponseRecorder{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := <-answers
		rec := m[r.RequestURI]
		if rec == nil {
			rec = httptest.NewRecorder()
			r.Header.Set("X-Business-Id", demo.Businesses()[0].ID)
			h.ServeHTTP(rec, r)
			m[r.RequestURI] = rec
		}
		answers <- m
		w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
		w.Header().Set("Content-Length", strconv.Itoa(rec.Body.Len()))
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	})
}

// business returns the business whose key signs the requests.
func business() demo.Business { return demo.Businesses()[0] }

// environment returns this process's environment with extra.
func environment(extra ...string) []string { return append(os.Environ(), extra...) }
