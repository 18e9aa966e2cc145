// Package authsigner is what a signed request is: the signing string, verification on the server's side, signing
// on the caller's, the credentials of the calling businesses and the sources that they come from.
//
// A signed request carries three headers, each exactly once:
//
//	X-Public-Key   the business's public key, [A-Za-z0-9_-]{8,128}
//	X-Timestamp    Unix time in whole seconds, decimal digits only, at most 20
//	X-Signature    HMAC-SHA256 of the signing string in hex, either case
//
// and the signing string is
//
//	timestamp LF METHOD LF target LF body
//
// keyed with the bytes of the business's private key as issued. The target is the request target as it came over
// the wire, from /api/v1 on, query string included: neither decoded, nor re-ordered, nor cleaned.
//
// A server verifies with [Verifier], over any [CredentialSource], usually behind the [Cache]:
//
//	v := &authsigner.Verifier{Source: source}
//	cred, err := v.Verify(r, r.RequestURI)
//
// A calling business signs with [Transport], an [http.RoundTripper], or with [Sign] if it builds its requests
// itself. Test vectors for clients in other languages are in testdata/vectors.json, explained by the README.md
// beside it.
//
// The package knows net/http and nothing of Caddy.
package authsigner
