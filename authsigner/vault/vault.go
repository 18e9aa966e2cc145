// Package vault is a credential source on the KV secrets engine of HashiCorp Vault or OpenBao.
//
//	source, err := vault.New(ctx, vault.Options{
//		Address: "https://vault.internal:8200",
//		Auth:    vault.Auth{AppRole: &vault.AppRole{RoleID: roleID, SecretIDFile: "/run/secrets/vault-secret-id"}},
//	})
//
// Each public key has one secret with the fields of [authsigner.DecodeCredential]. A [Source] does not cache; use it in an
// [authsigner.Cache].
//
// # Login
//
// A Source logs in by token, AppRole, Kubernetes service account or TLS certificate, and renews its token. It logs in again if the
// token cannot be renewed or was revoked. While Vault is unavailable, including at startup, it keeps trying, and lookups return
// [authsigner.ErrUnavailable].
//
// # Policy
//
// With the default mount and path and KV version 2, the gateway needs this policy (without data/ for version 1):
//
//	path "kv/data/gateway/keys/*" { capabilities = ["read"] }
//
// To manage keys, this is needed in addition:
//
//	path "kv/data/gateway/keys/*"     { capabilities = ["create", "read", "update"] }
//	path "kv/metadata/gateway/keys/*" { capabilities = ["delete"] }
//	path "kv/metadata/gateway/keys"   { capabilities = ["list"] }
//
// # Environment
//
// HTTPS_PROXY, HTTP_PROXY and NO_PROXY are used. VAULT_ variables are ignored, but New fails if one is malformed, because Vault's
// client library parses them first.
package vault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// Defaults of [Options].
const (
	DefaultMount   = "kv"
	DefaultPath    = "gateway/keys"
	DefaultTimeout = 2 * time.Second
)

// Options configure a [Source].
type Options struct {
	// Address is the http or https URL of Vault, with the path in front of /v1 if there is one. Required.
	Address string

	// Namespace is sent as X-Vault-Namespace (Vault Enterprise, OpenBao). Default: no namespace.
	Namespace string

	// Mount is the mount path of the KV engine. Default: kv.
	Mount string

	// Path is the path of the secrets below the mount. Default: gateway/keys.
	Path string

	// KVVersion is the version of the KV engine, 1 or 2. Default: 0, which detects it at each login. Another value must match
	// the detected version; it is used as it is if detection is denied.
	KVVersion int

	TLS  TLS  // default: the system's certificate authorities
	Auth Auth // required

	// Timeout limits each request to Vault. Default: 2s. Zero means the default.
	Timeout time.Duration

	// OnEvent, if set, is called for logins, renewals and their failures, one call at a time.
	OnEvent func(Event)
}

// EventKind is the kind of an [Event]: one of a fixed set, suitable as a metric label.
type EventKind string

// The kinds of events.
const (
	EventLogin         EventKind = "login"          // logged in
	EventLoginFailed   EventKind = "login_failed"   // a login failed and will be retried
	EventRenewed       EventKind = "renewed"        // the token was renewed
	EventRenewalFailed EventKind = "renewal_failed" // a renewal failed and will be retried until the token expires
	EventDenied        EventKind = "denied"         // a request got a 403, or a 404 for its path, so a new login follows
)

// Event is an event of a [Source].
type Event struct {
	Kind EventKind
	Err  error // for failures; it may contain addresses and paths of Vault, but no secrets
}

// Source is an authsigner.KeyStore on Vault. It is safe for concurrent use.
//
// After a 403, a request is retried once with a new login, at most every 10 seconds, because the token may have been revoked or its
// policies may have changed. If the token may read another entry, Lookup returns authsigner.ErrDenied without a login. A login also
// follows if the KV engine rejects the path or has another version. Failed logins are retried after 250 ms to 4 s. A
// token is renewed at 60 to 70 percent of its TTL, and replaced before its maximum TTL.
//
// With KV version 2, Create and Update use check-and-set, so concurrent changes are safe. KV version 1 does not have it: the last
// write wins, so only one process should manage its keys.
type Source struct {
	o         Options
	login     loginFunc
	transport *http.Transport
	base      *api.Client // without a token

	cancel context.CancelFunc
	work   sync.WaitGroup
	again  chan struct{} // requests a new login

	mu      sync.Mutex
	session *session      // nil before the first login
	failure error         // of the last login; nil after a success
	changed chan struct{} // closed and replaced after each login attempt
	forced  bool          // a login was requested and has not ended
	forceAt time.Time     // when the next login may be requested

	failed atomic.Pointer[error]  // of the last request; nil if it succeeded
	found  atomic.Pointer[string] // the key whose entry was found last
	events sync.Mutex             // held during calls of OnEvent
}

var _ authsigner.KeyStore = (*Source)(nil)

// errClosed is returned after Close.
var errClosed = errors.New("the Vault source is closed")

// New returns a source, which logs in asynchronously. It returns an error for invalid options, but not if Vault is unavailable. ctx
// applies to New only.
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
		cancel: cancel, again: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	s.work.Go(func() { s.run(running) })
	s.work.Go(func() { s.probe(running) })
	return s, nil
}

// Close stops the source. It revokes the token if the source has created it.
func (s *Source) Close() error {
	s.cancel()
	s.work.Wait()
	s.transport.CloseIdleConnections()
	return nil
}

// Ready returns an error that wraps authsigner.ErrUnavailable if lookups are likely to fail: the source is not logged in, its token
// has expired, or the last request failed. An unknown key is not a failure. After a failure, the source asks Vault by itself until it responds.
func (s *Source) Ready() error {
	s.mu.Lock()
	session, failure := s.session, s.failure
	ended := session != nil && !session.ends.IsZero() && !time.Now().Before(session.ends)
	s.mu.Unlock()
	failed := s.failed.Load()
	switch {
	case session == nil && failure == nil:
		return fmt.Errorf("%w: not logged in to Vault yet", authsigner.ErrUnavailable)
	case failure != nil && (session == nil || ended || failed != nil):
		return unavailable(failure)
	case ended:
		return fmt.Errorf("%w: the Vault token has expired", authsigner.ErrUnavailable)
	case failed != nil:
		return unavailable(keyless(*failed))
	}
	return nil
}

func (o *Options) normalize() error {
	u, err := url.Parse(o.Address)
	switch {
	case o.Address == "":
		return errors.New("address must not be empty")
	case err != nil:
		return errors.New("invalid address: must be an http or https URL") // err would quote it
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("invalid address: must be an http or https URL")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("invalid address: must have only a scheme, a host and a path")
	case o.TLS != TLS{} && u.Scheme != "https":
		return errors.New("TLS settings need an https address")
	}
	o.Address = strings.TrimSuffix(o.Address, "/")
	if strings.HasSuffix(o.Address, "/v1") {
		return errors.New("invalid address: must not end with /v1, which is added to each request")
	}
	o.Mount = cmp.Or(o.Mount, DefaultMount)
	o.Path = cmp.Or(o.Path, DefaultPath)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	err = errors.Join(checkPath("mount", o.Mount), checkPath("path", o.Path))
	if o.Namespace != "" {
		err = errors.Join(err, checkPath("namespace", strings.TrimSuffix(o.Namespace, "/")))
	}
	switch {
	case err != nil:
		return err
	case strings.HasSuffix(o.Mount, "/data"):
		return fmt.Errorf("invalid mount %q: must be without /data, which is added for KV version 2", o.Mount)
	case o.KVVersion < 0 || o.KVVersion > 2:
		return fmt.Errorf("invalid KV version %d: must be 1 or 2", o.KVVersion)
	case o.Timeout < 0:
		return fmt.Errorf("invalid timeout %q: must not be negative", o.Timeout)
	case o.Auth.Cert != nil && (o.TLS.Cert == "" || u.Scheme != "https"):
		return errors.New("auth method cert needs an https address and a TLS client certificate")
	}
	return nil
}

var aSegment = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// checkPath returns an error unless a path consists of safe segments, without dot segments.
func checkPath(what, path string) error {
	for segment := range strings.SplitSeq(path, "/") {
		if strings.Trim(segment, ".") == "" || !aSegment.MatchString(segment) {
			return fmt.Errorf("invalid %s %q: must be segments of letters, digits, '.', '_' and '-' separated by slashes", what, path)
		}
	}
	return nil
}

func (s *Source) event(e Event) {
	if s.o.OnEvent != nil {
		s.events.Lock()
		defer s.events.Unlock()
		s.o.OnEvent(e)
	}
}
