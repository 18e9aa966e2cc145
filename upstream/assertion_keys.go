package upstream

import (
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// ParseKeys parses Ed25519 private keys in PEM form: one or more "PRIVATE KEY" blocks (PKCS #8, not encrypted), as written by
// `openssl genpkey -algorithm ed25519`. Other blocks and keys are errors. The error wraps ErrAssertionKeys and contains nothing
// of the keys.
func ParseKeys(text []byte) ([]ed25519.PrivateKey, error) {
	var keys []ed25519.PrivateKey
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "PRIVATE KEY" {
			return nil, fmt.Errorf("%w: PEM block %d is not an unencrypted PRIVATE KEY (PKCS #8)", ErrAssertionKeys, len(keys)+1)
		}
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: PEM block %d is not PKCS #8", ErrAssertionKeys, len(keys)+1)
		}
		key, ok := parsed.(ed25519.PrivateKey)
		if !ok {
			return nil, fmt.Errorf("%w: PEM block %d is not an Ed25519 key", ErrAssertionKeys, len(keys)+1)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: no PEM block", ErrAssertionKeys)
	}
	return keys, nil
}

// KeyID returns the kid of a public key: its RFC 7638 thumbprint (SHA-256, base64url).
func KeyID(key ed25519.PublicKey) (string, error) {
	sum, err := (&jose.JSONWebKey{Key: key}).Thumbprint(crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrAssertionKeys, err)
	}
	return base64.RawURLEncoding.EncodeToString(sum), nil
}
