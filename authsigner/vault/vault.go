// Package vault keeps the credentials of the calling businesses in a KV secrets engine of HashiCorp Vault, or of
// OpenBao: one entry for each public key, by the fields of authsigner.DecodeCredential.
//
// A [Source] signs in by token, AppRole, Kubernetes service account or TLS certificate, renews its token before it
// ends, and signs in anew when renewal is over, is refused, or the token turns out to be revoked. Vault may be away
// when it is made and at any time after: it keeps trying, and answers authsigner.ErrUnavailable meanwhile. It caches
// nothing; that is authsigner.Cache's part.
//
// What the gateway needs, for the default mount and path and KV version 2, is this policy; for version 1 without data/:
//
//	path "kv/data/gateway/keys/*" { capabilities = ["read"] }
//
// and whoever manages keys needs
//
//	path "kv/data/gateway/keys/*"     { capabilities = ["create", "read", "update"] }
//	path "kv/metadata/gateway/keys/*" { capabilities = ["delete"] }
//	path "kv/metadata/gateway/keys"   { capabilities = ["list"] }
//
// The environment's VAULT_ variables are not used: the whole configuration is in [Options]. (A malformed one among
// them makes New fail all the same, as Vault's client library looks at them first.) HTTPS_PROXY, HTTP_PROXY and
// NO_PROXY are heeded as everywhere.
package vault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// The defaults of [Options].
const (
	DefaultMount   = "kv"
	DefaultPath    = "gateway/keys"
	DefaultTimeout = 2 * time.Second
)

// Options say where the credentials are and how to sign in. Address and one method of Auth are required.
type Options struct {
	// Address is the URL of Vault, http or https, possibly with a path in front of /v1. No user, query or fragment.
	Address string

	// Namespace is sent as X-Vault-Namespace with every request, sign-in included (Vault Enterprise, OpenBao).
	Namespace string

	// Mount is where the KV engine is mounted. Default "kv".
	Mount string

	// Path is the folder of the entries in it. Default "gateway/keys".
	Path string

	// KVVersion is the engine's version, 1 or 2. 0: Vault is asked at each sign-in. If it is set, Vault is asked all
	// the same, and a difference is an error; only if Vault refuses to say is the value relied on.
	KVVersion int

	TLS  TLS
	Auth Auth

	// Timeout bounds each request to Vault, unless the caller's context ends earlier. Default 2 s.
	Timeout time.Duration

	// OnEvent, if set, is told of sign-ins and renewals and their failures, one call at a time.
	OnEvent func(Event)
}

// EventKind says what an [Event] is about; a bounded set, good as a metric's label.
type EventKind string

// What a source reports.
const (
	EventLogin         EventKind = "login"          // signed in; TTL says for how long, 0 for ever
	EventLoginFailed   EventKind = "login_failed"   // could not; it tries again by itself
	EventRenewed       EventKind = "renewed"        // the token was renewed, for TTL
	EventRenewalFailed EventKind = "renewal_failed" // it was not: tried again while it lives, then a new sign-in
	EventDenied        EventKind = "denied"         // a request was refused (403), so the token may have been revoked: a new sign-in
)

// Event is one thing that happened between the source and Vault.
type Event struct {
	Kind EventKind
	TTL  time.Duration // of EventLogin, EventRenewed
	Err  error         // of the failures; holds addresses and paths of Vault, never a token or secret
}

// Source is an authsigner.KeyStore over Vault. It is safe for concurrent use.
//
// A request that Vault refuses (403) is repeated once with a new sign-in, since the token may have been revoked or its
// role changed; that happens every 10 s at most. Sign-ins that fail are tried again after 250 ms at first and 4 s at
// most. A token is renewed at 60 to 70 percent of its time, and replaced in time when it nears its maximum.
//
// With KV version 2, Create and Update use check-and-set: of two who change a key at the same time, one starts over.
// KV version 1 has nothing of the kind: there the last one wins, so that only one process should manage its keys.
type Source struct {
	o         Options
	login     loginFunc
	transport *http.Transport
	base      *api.Client // without a token

	cancel context.CancelFunc
	done   chan struct{}
	again  chan struct{} // asks for a new sign-in

	mu      sync.Mutex
	session *session      // the current one; nil before the first
	failure error         // of the last sign-in; nil after a success
	changed chan struct{} // closed and replaced whenever a sign-in has ended
	forced  bool          // a sign-in was asked for and has not ended
	forceAt time.Time     // when one may be asked for again

	last   atomic.Pointer[outcome]
	events sync.Mutex // held while OnEvent is told
}

var _ authsigner.KeyStore = (*Source)(nil)

// outcome is how a request ended.
type outcome struct {
	at  time.Time
	err error
}

// errClosed is what is answered after Close.
var errClosed = errors.New("the Vault source is closed")

// New returns a source and begins to sign in, in the background. It returns an error for a configuration that cannot
// work, never because Vault does not answer. ctx bounds New only.
func New(ctx context.Context, o Options) (*Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := o.normalize(); err != nil {
		return nil, fmt.Errorf("configuring Vault: %w", err)
	}
	login, err := o.Auth.method()
	if err != nil {
		return nil, fmt.Errorf("configuring Vault: %w", err)
	}
	transport, err := newTransport(o)
	if err != nil {
		return nil, fmt.Errorf("configuring Vault: %w", err)
	}
	base, err := newClient(o, transport)
	if err != nil {
		return nil, fmt.Errorf("configuring Vault: %w", err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Source{
		o: o, login: login, transport: transport, base: base,
		cancel: cancel, done: make(chan struct{}), again: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	go s.run(running)
	return s, nil
}

// Close signs off, if the source has signed in with more than a given token, and ends everything.
func (s *Source) Close() error {
	s.cancel()
	<-s.done
	s.transport.CloseIdleConnections()
	return nil
}

// Ready says why look-ups are expected to fail: the source has not signed in, its token has ended, or the last request,
// within the last 10 s, failed. A key that does not exist is no failure. The error wraps authsigner.ErrUnavailable.
func (s *Source) Ready() error {
	s.mu.Lock()
	session, failure := s.session, s.failure
	now := time.Now()
	ended := session != nil && !session.ends.IsZero() && !now.Before(session.ends)
	s.mu.Unlock()
	switch {
	case session == nil && failure == nil:
		return fmt.Errorf("%w: not signed in to Vault yet", authsigner.ErrUnavailable)
	case failure != nil && (session == nil || ended):
		return unavailable(failure)
	case ended:
		return fmt.Errorf("%w: the token has ended", authsigner.ErrUnavailable)
	}
	if last := s.last.Load(); last != nil && last.err != nil && now.Sub(last.at) < failureCounts {
		return unavailable(keyless(last.err))
	}
	return nil
}

// failureCounts is how long a failed request is held against the source, which may have no other for a while.
const failureCounts = 10 * time.Second

func (o *Options) normalize() error {
	u, err := url.Parse(o.Address)
	switch {
	case o.Address == "":
		return errors.New("the address is missing")
	case err != nil:
		return errors.New("the address is not a URL") // err would quote it
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("the address is not an http or https URL")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("the address has more than a scheme, a host and a path")
	case o.TLS != TLS{} && u.Scheme != "https":
		return errors.New("there are TLS settings, and the address is not https")
	}
	o.Address = strings.TrimSuffix(o.Address, "/")
	if o.Mount == "" {
		o.Mount = DefaultMount
	}
	if o.Path == "" {
		o.Path = DefaultPath
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	switch {
	case !validPath(o.Mount):
		return fmt.Errorf("the mount %q is not segments of letters, digits, '.', '_' and '-' between slashes", o.Mount)
	case !validPath(o.Path):
		return fmt.Errorf("the path %q is not segments of letters, digits, '.', '_' and '-' between slashes", o.Path)
	case o.Namespace != "" && !validPath(strings.TrimSuffix(o.Namespace, "/")):
		return fmt.Errorf("the namespace %q is not segments of letters, digits, '.', '_' and '-' between slashes", o.Namespace)
	case o.KVVersion < 0 || o.KVVersion > 2:
		return fmt.Errorf("the KV version %d is neither 1 nor 2", o.KVVersion)
	case o.Timeout < 0:
		return fmt.Errorf("the timeout %s is negative", o.Timeout)
	case o.Auth.Cert != nil && (o.TLS.Cert == "" || u.Scheme != "https"):
		return errors.New("sign-in by certificate needs an https address, and the certificate and its key in the TLS settings")
	}
	return nil
}

// validPath accepts what can be joined with slashes and stays what it is.
func validPath(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if strings.Trim(segment, ".") == "" {
			return false
		}
		for _, c := range []byte(segment) {
			switch {
			case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
			default:
				return false
			}
		}
	}
	return true
}

func (s *Source) event(e Event) {
	if s.o.OnEvent != nil {
		s.events.Lock()
		defer s.events.Unlock()
		s.o.OnEvent(e)
	}
}
