package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"time"

	"github.com/gatehouse-gateway/gatehouse/internal/demo"
)

// upstreamEnv is the environment variable that makes this program run as the data service.
const upstreamEnv = "GATEHOUSE_BENCH_UPSTREAM"

// protocolPath is where the data service responds with the protocol of the request.
const protocolPath = "/protocol"

// serveUpstream serves the data service over http and https, and prints both addresses when it has written the certificate of the
// latter to the file ca.
func serveUpstream(kind, ca string) error {
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
	mux := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == protocolPath {
			_, _ = io.WriteString(w, r.Proto)
			return
		}
		handler.ServeHTTP(w, r)
	})
	cert, err := makeCertificate(ca)
	if err != nil {
		return err
	}
	plain, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	secure, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Println(plain.Addr(), secure.Addr())
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:  log.New(io.Discard, "", 0), // gateways abandon handshakes when wrk ends
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13},
	}
	failed := make(chan error)
	go func() { failed <- srv.Serve(plain) }()
	go func() { failed <- srv.ServeTLS(secure, "", "") }() // with HTTP/2, as clients choose
	return <-failed
}

// makeCertificate creates a certificate that is its own authority, and writes it to the file ca.
func makeCertificate(ca string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("generating a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a certificate: %w", err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, os.WriteFile(ca, cert, 0o600)
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
