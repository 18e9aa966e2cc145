package authsigner

import "errors"

// The verdicts of [Verifier.Verify]. Exactly one of them (or [ErrUnavailable]) is in the chain of each error that it
// returns; tell them apart with errors.Is.
var (
	// ErrMissingCredentials says that one of the three headers is absent, empty, or given more than once. The error
	// returned is a *[HeaderError] that names the header.
	ErrMissingCredentials = errors.New("the request does not carry each of " +
		HeaderPublicKey + ", " + HeaderTimestamp + " and " + HeaderSignature + " exactly once")

	// ErrExpired says that the timestamp is well formed and too far from the server's clock, on either side.
	ErrExpired = errors.New("the request's timestamp is too far from the server's clock")

	// ErrInvalidCredentials says that the key is unknown, the signature is wrong or malformed, or the timestamp is
	// malformed. It is returned bare: which of them it was is not to be had from it.
	ErrInvalidCredentials = errors.New("the public key or the signature is not valid")

	// ErrAccountInactive says that the signature is right and the account is not active.
	ErrAccountInactive = errors.New("the account is not active")

	// ErrBodyTooLarge says that the body is, or is declared to be, larger than Verifier.MaxBody.
	ErrBodyTooLarge = errors.New("the request body is too large")

	// ErrBodyUnreadable says that the body broke off, or did not arrive in time.
	ErrBodyUnreadable = errors.New("the request body cannot be read")
)

// What a [CredentialSource] has to say when it has no credential to give.
var (
	// ErrUnknownKey says that the source knows for certain that there is no such key. It is never used for an
	// outage, a refusal, or an entry that cannot be read.
	ErrUnknownKey = errors.New("no such key")

	// ErrUnavailable says that the source could not be asked, or did not give an answer that can be used.
	ErrUnavailable = errors.New("the source of credentials is unavailable")

	// ErrMalformedCredential says that an entry exists and is not a credential: a field is missing, empty, or of
	// the wrong type. Its text names the field and never holds a value.
	ErrMalformedCredential = errors.New("malformed credential")
)

// HeaderError says which of the three headers is not there exactly once. It wraps [ErrMissingCredentials].
type HeaderError struct {
	Header   string // the header's canonical name
	Repeated bool   // given more than once; otherwise absent or empty
}

// Error names the header and what is wrong with it.
func (e *HeaderError) Error() string {
	if e.Repeated {
		return "the " + e.Header + " header is given more than once"
	}
	return "the " + e.Header + " header is missing"
}

// Unwrap makes errors.Is(err, ErrMissingCredentials) true.
func (e *HeaderError) Unwrap() error { return ErrMissingCredentials }
