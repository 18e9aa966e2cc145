// Package authsigner signs and verifies HTTP requests with HMAC-SHA256, and manages the key pairs of the businesses that send them.
//
// A signed request has three headers, each exactly once:
//
//	X-Public-Key   the business's public key, [A-Za-z0-9_-]{8,128}
//	X-Timestamp    Unix time in whole seconds, decimal digits only, at most 20
//	X-Signature    HMAC-SHA256 of the signing string in hex, either case
//
// and the signing string is
//
//	timestamp LF METHOD LF target LF body
//
// The HMAC key is the business's private key, its bytes as issued. The target is the request target as sent, from /api/v1 on,
// including the query; it is not decoded or normalised. A request is valid for [MaxSkew] before and after its timestamp.
//
// # Signing
//
// [Transport] is an [http.RoundTripper] that signs the requests of an [http.Client]. [Sign] returns a signature.
//
// # Verifying
//
// A [Verifier] authenticates requests. It gets credentials from a [CredentialSource], usually a [Cache] of a source in the packages
// vault or file:
//
//	cache, err := authsigner.NewCache(source, authsigner.CacheOptions{})
//	v := &authsigner.Verifier{Source: cache}
//	cred, err := v.Verify(r, r.RequestURI)
//
// # Keys
//
// [Issue], [Rotate] and [Revoke] change the key pairs of a [KeyStore]. [Cache.Invalidate] makes a cache use the change at once, and
// otherwise it does so when its TTL ends.
//
// # Other languages
//
// testdata/vectors.json has test vectors for other implementations; testdata/README.md explains them.
package authsigner
