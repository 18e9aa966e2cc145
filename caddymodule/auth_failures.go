package caddymodule

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/explain"
)

const (
	// maxAuthFailures is the number of requests that are kept.
	maxAuthFailures = 512

	// maxAuthFailureSize is the maximum size in bytes of a request that is kept.
	maxAuthFailureSize = 4 << 10
)

// authFailure says why the credentials of a request are invalid. Apart from malformed, it is for the log only.
type authFailure struct {
	reason    string // one of a fixed set; "" if it is not about credentials
	malformed string // header that no key could make valid
	key       string // the claimed public key, if it can be logged
	late      int64  // seconds from the timestamp to the clock, if the request has expired
}

// authFailureOf describes an authentication error of a request. cred is the credential of the claimed key; nil if it has none.
func authFailureOf(r *http.Request, err error, cred *authsigner.Credential) authFailure {
	var f authFailure
	key := r.Header.Get(authsigner.HeaderPublicKey)
	if authsigner.ValidPublicKey(key) {
		f.key = key
	}
	switch {
	case errors.Is(err, authsigner.ErrExpired):
		f.reason = "expired"
		if timestamp, err := strconv.ParseInt(r.Header.Get(authsigner.HeaderTimestamp), 10, 64); err == nil {
			f.late = time.Now().Unix() - timestamp
		}
		return f
	case !errors.Is(err, authsigner.ErrInvalidCredentials):
		return f
	}
	switch f.malformed = authsigner.MalformedHeader(r.Header); f.malformed {
	case authsigner.HeaderPublicKey:
		f.reason = "malformed_key"
	case authsigner.HeaderTimestamp:
		f.reason = "malformed_timestamp"
	case authsigner.HeaderSignature:
		f.reason = "malformed_signature"
	default:
		switch {
		case cred == nil:
			f.reason = "unknown_key"
		case cred.Expired(time.Now()):
			f.reason = "expired_key"
		default:
			f.reason = "wrong_signature"
		}
	}
	return f
}

// malformedHeaderError adds to an authentication error which header is malformed.
type malformedHeaderError struct {
	header string
	err    error
}

func (e *malformedHeaderError) Error() string { return e.err.Error() }
func (e *malformedHeaderError) Unwrap() error { return e.err }

// authFailures keeps the last requests whose credentials were invalid, for `gatehouse explain --id`: without bodies, and with only the
// first eight bytes of each signature. It does not keep requests over a rate limit, so that a client IP can neither push out those
// of others nor cause the cost of reading its signatures. The zero value is ready to use.
type authFailures struct {
	mu   sync.Mutex
	last [maxAuthFailures]failedRequest // a ring
	next int
}

type failedRequest struct {
	id      string
	at      time.Time
	reason  string
	attempt *explain.Attempt
}

// add keeps a request instead of the oldest one.
func (f *authFailures) add(r *http.Request, req *signedRequest, basePath string) {
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
	if size > maxAuthFailureSize {
		return
	}
	now := time.Now()
	attempt := explain.Read(explain.Request{
		Method: strings.Clone(r.Method), Target: basePath + strings.Clone(req.target), BasePath: basePath, Scheme: scheme,
		Host: strings.Clone(r.Host), Header: header, At: now,
	})
	attempt.BodyLeft = r.ContentLength != 0
	if attempt.PublicKey != req.failure.key {
		attempt.PublicKey = "" // malformed, or a private key
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last[f.next%maxAuthFailures] = failedRequest{id: req.id, at: now, reason: req.failure.reason, attempt: attempt}
	f.next++
}

func (f *authFailures) find(id string) (failedRequest, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range &f.last {
		if r.id == id && r.attempt != nil {
			return r, true
		}
	}
	return failedRequest{}, false
}
