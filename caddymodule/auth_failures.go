package caddymodule

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/explain"
)

const (
	// maxDenials is the number of denied requests that are kept.
	maxDenials = 512

	// maxDenial is the maximum size in bytes of a denied request that is kept.
	maxDenial = 4 << 10
)

// denials keeps the last requests whose credentials were invalid, for `gatehouse explain --id`: without bodies, and with only the
// first eight bytes of each signature. It does not keep requests over a rate limit, so that a client IP can neither push out those
// of others nor cause the cost of reading its signatures. The zero value is ready to use.
type denials struct {
	mu   sync.Mutex
	last [maxDenials]deniedRequest // a ring
	next int
}

type deniedRequest struct {
	id      string
	at      time.Time
	reason  string
	attempt *explain.Attempt
}

// add keeps a denied request instead of the oldest one.
func (d *denials) add(r *http.Request, req *apiRequest, basePath string) {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	header := http.Header{}
	size := len(r.Method) + len(basePath) + len(req.target) + len(r.Host)
	for _, name := range []string{authsigner.HeaderPublicKey, authsigner.HeaderTimestamp, authsigner.HeaderSignature} {
		for _, value := range r.Header[name] {
			header[name] = append(header[name], strings.Clone(value)) // net/http's strings share the memory of the whole header
			size += len(value)
		}
	}
	if size > maxDenial {
		return
	}
	now := time.Now()
	attempt := explain.Read(explain.Request{
		Method: strings.Clone(r.Method), Target: basePath + strings.Clone(req.target), BasePath: basePath, Scheme: scheme,
		Host: strings.Clone(r.Host), Header: header, At: now,
	})
	attempt.BodyLeft = r.ContentLength != 0
	if attempt.PublicKey != req.denial.key {
		attempt.PublicKey = "" // malformed, or a private key
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last[d.next%maxDenials] = deniedRequest{id: req.id, at: now, reason: req.denial.reason, attempt: attempt}
	d.next++
}

func (d *denials) find(id string) (deniedRequest, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range &d.last {
		if r.id == id && r.attempt != nil {
			return r, true
		}
	}
	return deniedRequest{}, false
}
