package caddymodule

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// AssertionConfig configures the hop assertion. All gateways of a fleet need the same keys.
type AssertionConfig struct {
	// KeyFiles are files with one Ed25519 private key each (PEM, PKCS #8). The first key signs; all are published. To rotate
	// a key, append the new one; move it to the front once data services have fetched it (they may cache the published keys
	// for 5 minutes); remove the old one after TTL. Placeholders are resolved. Required.
	KeyFiles []string `json:"key_files"`

	// Issuer is the value of the claim "iss". Placeholders are resolved. Default: gatehouse.
	Issuer string `json:"issuer,omitempty"`

	// AudiencePrefix precedes the resource's name in the claim "aud". Placeholders are resolved. Default: no prefix.
	AudiencePrefix string `json:"audience_prefix,omitempty"`

	// TTL is how long an assertion is valid, in whole seconds, at most 60s. Default: 30s. Zero means the default.
	TTL caddy.Duration `json:"ttl,omitempty"`
}

const defaultAssertionIssuer = "gatehouse"

func (c *AssertionConfig) asserter(repl *caddy.Replacer) (*upstream.Asserter, error) {
	o := upstream.AsserterOptions{
		Issuer: c.Issuer, AudiencePrefix: c.AudiencePrefix, TTL: time.Duration(c.TTL),
	}
	if err := resolve(repl, &o.Issuer, &o.AudiencePrefix); err != nil {
		return nil, err
	}
	o.Issuer = cmp.Or(o.Issuer, defaultAssertionIssuer)
	for _, name := range c.KeyFiles {
		if err := resolve(repl, &name); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading a signing key: %w", err)
		}
		keys, err := upstream.ParseKeys(text)
		if err != nil {
			return nil, fmt.Errorf("reading the signing key %s: %w", name, err)
		}
		o.Keys = append(o.Keys, keys...)
	}
	return upstream.NewAsserter(o)
}
