package authsigner

import (
	"errors"
	"fmt"
)

// Errors of [Verifier.Verify]. Each error that it returns wraps exactly one of them, or [ErrUnavailable].
var (
	// ErrMissingCredentials means that one of the three headers is absent, empty, or given more than once. The error's
	// text names it.
	ErrMissingCredentials = errors.New("the headers " +
		HeaderPublicKey + ", " + HeaderTimestamp + " and " + HeaderSignature + " must each be given exactly once")

	// ErrExpired means that the timestamp is too far from the server's clock, in either direction.
	ErrExpired = errors.New("the request's timestamp is too far from the server's clock")

	// ErrInvalidCredentials means that the key is unknown or has expired, the signature is wrong or malformed, or the timestamp is
	// malformed. It is returned unwrapped, so that it does not reveal which.
	ErrInvalidCredentials = errors.New("invalid public key or signature")

	// ErrAccountInactive means that the signature is valid but the account is not active.
	ErrAccountInactive = errors.New("the account is not active")

	// ErrBodyTooLarge means that the body, or its Content-Length, is larger than Verifier.MaxBody.
	ErrBodyTooLarge = errors.New("the request body is too large")

	// ErrBodyUnreadable means that the body is incomplete or did not arrive in time.
	ErrBodyUnreadable = errors.New("reading the request body failed")
)

// Errors of a [CredentialSource].
var (
	// ErrUnknownKey means that the key does not exist. It must not be used for outages, denied access or malformed entries.
	ErrUnknownKey = errors.New("unknown key")

	// ErrUnavailable means that the source could not be reached or returned an unusable response.
	ErrUnavailable = errors.New("credential source unavailable")

	// ErrDenied means that the source may not read this key's entry, although it may read others. It wraps ErrUnavailable, but
	// says nothing about other keys.
	ErrDenied = fmt.Errorf("%w: access to the entry is denied", ErrUnavailable)

	// ErrMalformedCredential means that an entry exists but is not a valid credential. The error's text names the field and
	// never contains a value.
	ErrMalformedCredential = errors.New("malformed credential")
)
