package upstream

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"
)

// StaticKeys is a fixed KeySource: public keys by kid.
type StaticKeys map[string]ed25519.PublicKey

// Key implements KeySource.
func (s StaticKeys) Key(_ context.Context, kid string) (ed25519.PublicKey, error) {
	if key, ok := s[kid]; ok {
		return key, nil
	}
	return nil, ErrUnknownAssertionKey
}

// parseJWKS parses a JSON Web Key Set. It ignores keys that are not for Ed25519 signatures. The error wraps ErrAssertionKeys,
// also if no key is left.
func parseJWKS(text []byte) (StaticKeys, error) {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("%w: not a JSON Web Key Set", ErrAssertionKeys)
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
	keysFresh    = 5 * time.Minute  // age at which keys are fetched again
	keysUsable   = time.Hour        // maximum age of keys while they cannot be fetched
	keysInterval = 10 * time.Second // minimum time between fetches
	keysTimeout  = 5 * time.Second
	maxJWKS      = 64 << 10 // bytes
)

// RemoteKeys is a KeySource that fetches the gateway's keys from its JWKS: at first use, in the background when they are five minutes old,
// and before a request when they are ten minutes old or its kid is unknown, but at most every ten seconds. While the JWKS cannot be fetched,
// keys remain valid for an hour. It is safe for concurrent use and must not be copied.
type RemoteKeys struct {
	// URL is the URL of the JWKS, such as "https://api.example.com/.well-known/gatehouse-jwks.json". Required.
	URL string

	// Now is the clock. Default: time.Now.
	Now func() time.Time

	fetches singleflight.Group
	mu      sync.Mutex
	keys    StaticKeys
	readAt  time.Time // the last success
	tried   time.Time // the last attempt
	err     error     // of the last attempt
}

// Key implements KeySource.
func (s *RemoteKeys) Key(ctx context.Context, kid string) (ed25519.PublicKey, error) {
	key, due, err := s.lookup(kid)
	if !due {
		return key, err
	}
	done := s.fetches.DoChan("", func() (any, error) {
		// A fetch may have ended between the lookup above and this call.
		if _, due, _ := s.lookup(kid); due {
			// Not canceled with the request's context, because other requests wait for the same fetch.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTimeout)
			defer cancel()
			keys, err := s.fetch(ctx)
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.tried, s.err = s.now(), err; err == nil {
				s.keys, s.readAt = keys, s.tried
			}
		}
		return struct{}{}, nil
	})
	if err == nil {
		return key, nil // the keys are refreshed in the background
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the gateway's keys: %w", ctx.Err())
	case <-done:
	}
	key, _, err = s.lookup(kid)
	return key, err
}

func (s *RemoteKeys) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// lookup returns a cached key, or an error that distinguishes an unknown key from a failed fetch. It reports whether the keys are
// due to be fetched.
func (s *RemoteKeys) lookup(kid string) (key ed25519.PublicKey, due bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	key, found := s.keys[kid]
	age := now.Sub(s.readAt)
	due = (!found || age >= keysFresh) && now.Sub(s.tried) >= keysInterval
	switch {
	// Keys that no request has refreshed for long are fetched before one is accepted: it may have been replaced because it leaked.
	case found && age < keysUsable && (age < 2*keysFresh || s.err != nil || !due):
		return key, due, nil
	case s.err != nil:
		return nil, due, fmt.Errorf("fetching the gateway's keys: %w", s.err)
	default:
		return nil, due, ErrUnknownAssertionKey
	}
}

func (s *RemoteKeys) fetch(ctx context.Context) (StaticKeys, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody) //nolint:gosec // the operator's address
	if err != nil {
		return nil, err
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
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
		return nil, fmt.Errorf("the key set is larger than %d bytes", maxJWKS)
	}
	return parseJWKS(text)
}
