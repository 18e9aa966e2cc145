package upstream

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"
)

// StaticKeys are public keys by their kid: a KeySource for tests and for keys that are handed over by hand.
type StaticKeys map[string]ed25519.PublicKey

// Key finds a key.
func (s StaticKeys) Key(_ context.Context, kid string) (ed25519.PublicKey, error) {
	if key, ok := s[kid]; ok {
		return key, nil
	}
	return nil, ErrUnknownAssertionKey
}

// ParseJWKS reads a JSON Web Key Set as the gateway publishes it. Keys that are not for verifying Ed25519 signatures
// are passed over. The error is ErrAssertionKeys, also when no key is left.
func ParseJWKS(text []byte) (StaticKeys, error) {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("%w: no JSON Web Key Set", ErrAssertionKeys)
	}
	keys := make(StaticKeys)
	for _, k := range set.Keys {
		key, ok := k.Key.(ed25519.PublicKey)
		if !ok || k.KeyID == "" || k.Use != "" && k.Use != "sig" || k.Algorithm != "" && k.Algorithm != string(jose.EdDSA) {
			continue
		}
		keys[k.KeyID] = key
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: no Ed25519 key in the set", ErrAssertionKeys)
	}
	return keys, nil
}

// The timing of RemoteKeys.
const (
	keysFresh    = 5 * time.Minute  // read again after
	keysUsable   = time.Hour        // trusted while the gateway cannot be asked
	keysInterval = 10 * time.Second // between two readings, whatever kids turn up
	keysTimeout  = 5 * time.Second
	maxJWKS      = 64 << 10 // bytes
)

// RemoteKeys reads the gateway's keys from its JWKS: at first use, in the background when they are older than five
// minutes, and when an unknown kid turns up, but never more often than every ten seconds. While the gateway does not answer, keys that were
// read go on for an hour. It is safe for concurrent use and must not be copied.
type RemoteKeys struct {
	// URL is the gateway's JWKS: "https://api.example.com/.well-known/gateway-jwks.json". Required.
	URL string

	// Client sends the requests. Default: a client with a timeout of five seconds that follows no redirects.
	Client *http.Client

	// Now is the clock. Default: time.Now.
	Now func() time.Time

	flight singleflight.Group
	mu     sync.Mutex
	keys   StaticKeys
	readAt time.Time // the last success
	tried  time.Time // the last attempt
	err    error     // of the last attempt
}

// Key finds a key.
func (s *RemoteKeys) Key(ctx context.Context, kid string) (ed25519.PublicKey, error) {
	key, found, due := s.look(kid)
	if !due {
		return s.verdict(key, found)
	}
	done := s.flight.DoChan("", func() (any, error) {
		// Not the request's context: others wait for the same answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTimeout)
		defer cancel()
		s.refresh(ctx)
		return struct{}{}, nil
	})
	if found {
		return key, nil // the keys are read again beside the request
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the gateway's keys: %w", ctx.Err())
	case <-done:
	}
	key, found, _ = s.look(kid)
	return s.verdict(key, found)
}

func (s *RemoteKeys) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// look finds a key in what is there, and says whether the keys are to be read again first.
func (s *RemoteKeys) look(kid string) (key ed25519.PublicKey, found, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	key, found = s.keys[kid]
	stale := now.Sub(s.readAt) >= keysFresh
	due = (!found || stale) && now.Sub(s.tried) >= keysInterval
	if now.Sub(s.readAt) >= keysUsable {
		key, found = nil, false
	}
	return key, found, due
}

// verdict tells a key that is not there from keys that could not be read.
func (s *RemoteKeys) verdict(key ed25519.PublicKey, found bool) (ed25519.PublicKey, error) {
	if found {
		return key, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, fmt.Errorf("reading the gateway's keys: %w", s.err)
	}
	return nil, ErrUnknownAssertionKey
}

func (s *RemoteKeys) refresh(ctx context.Context) {
	keys, err := s.fetch(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried, s.err = s.now(), err
	if err == nil {
		s.keys, s.readAt = maps.Clone(keys), s.tried
	}
}

func (s *RemoteKeys) fetch(ctx context.Context) (StaticKeys, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody) //nolint:gosec // the operator's address
	if err != nil {
		return nil, err
	}
	client := s.Client
	if client == nil {
		client = &http.Client{
			Timeout:       keysTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	resp, err := client.Do(req) //nolint:gosec // the operator's address
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxJWKS+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxJWKS {
		return nil, errors.New("the key set is too large")
	}
	return ParseJWKS(text)
}
