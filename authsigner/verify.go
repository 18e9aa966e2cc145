package authsigner

// The three headers of a signed request, each exactly once.
const (
	HeaderPublicKey = "X-Public-Key"
	HeaderTimestamp = "X-Timestamp"
	HeaderSignature = "X-Signature"
)
