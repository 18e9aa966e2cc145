// Package authsigner implements signed requests: signing, verification, and the credentials of calling businesses.
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
// The HMAC key is the business's private key, its bytes as issued. The target is the request target as sent, from /api/v1 on,
// including the query; it is not decoded or normalised.
//
// A server verifies requests with a [Verifier], which finds credentials in a [CredentialSource], usually a [Cache]:
//
//	v := &authsigner.Verifier{Source: source}
//	cred, err := v.Verify(r, r.RequestURI)
//
// A caller signs with [Transport], an [http.RoundTripper], or with [Sign]. Test vectors for clients in other languages are in
// testdata/vectors.json; testdata/README.md explains them.
package authsigner
