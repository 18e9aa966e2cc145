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

// upstreamEnv, in the environment of this program, makes it the data service instead. It prints its address.
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

// canned asks h once for each target and repeats the answer ever after.
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

// business is the demo's first, for whom the requests are signed.
func business() demo.Business { return demo.Businesses()[0] }

// environment is this process's, without what would make a child a data service, and with extra.
func environment(extra ...string) []string { return append(os.Environ(), extra...) }
