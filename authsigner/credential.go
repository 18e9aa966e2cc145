package authsigner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Maximum lengths in a credential record, in bytes. Issued values are much shorter.
const (
	maxSecretBytes = 4096
	maxIDBytes     = 255
	maxNameBytes   = 1024
)

// MaxLimit is the maximum of Credential.Limit, in requests per minute.
const MaxLimit = math.MaxInt32

// The field names of a credential record.
const (
	fieldPrivateKey         = "private_key"
	fieldPreviousPrivateKey = "previous_private_key"
	fieldPreviousExpiresAt  = "previous_expires_at"
	fieldBusinessID         = "business_id"
	fieldBusinessName       = "business_name"
	fieldBusinessSlug       = "business_slug"
	fieldStatus             = "status"
	fieldLimit              = "limit"
)

// Status is the state of a business's account.
type Status string

// The states of an account.
const (
	StatusActive   Status = "active"
	StatusInactive Status = "inactive"
)

// Credential is a business's key pair and the business that it belongs to. Credentials are shared by concurrent requests and must
// not be modified or copied; use [Credential.Clone].
type Credential struct {
	PublicKey  string // see ValidPublicKey
	PrivateKey Secret // the HMAC key, its bytes as issued; never empty

	// PreviousPrivateKey, if not empty, is the private key before the last rotation. It is valid until PreviousExpiresAt.
	PreviousPrivateKey Secret
	PreviousExpiresAt  time.Time // UTC; zero if there is no previous private key

	BusinessID   string // visible ASCII, opaque
	BusinessName string // display name, UTF-8
	BusinessSlug string // visible ASCII

	Status Status // only StatusActive may call the API

	// Limit is the key's rate limit in requests per minute, 1 to MaxLimit. Zero means the gateway's default.
	Limit int

	current, previous macs // HMAC states of the two private keys
}

// CredentialSource provides credentials.
type CredentialSource interface {
	// Lookup returns the credential of publicKey, which satisfies ValidPublicKey. The error wraps ErrUnknownKey only if the
	// key certainly does not exist; any other error means that this is not known. The credential must not be modified.
	Lookup(ctx context.Context, publicKey string) (*Credential, error)
}

// ValidPublicKey reports whether s matches ^[A-Za-z0-9_-]{8,128}$. Only such strings are looked up. Issued keys begin with
// pk_live_ or pk_test_, but the prefix is not required.
func ValidPublicKey(s string) bool {
	if len(s) < 8 || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// DecodeCredential decodes a stored record of publicKey. Its fields are:
//
//	private_key           string, required, not empty
//	previous_private_key  string, optional
//	previous_expires_at   RFC 3339, required with previous_private_key
//	business_id           string, required, visible ASCII
//	business_name         string, required, text without control characters
//	business_slug         string, required, visible ASCII
//	status                "active" or "inactive", required
//	limit                 optional integer of at least 1, requests per minute; a JSON number, or a string of digits
//	                      as `vault kv put limit=120` writes it
//
// Null means absent, and so does an empty string in optional fields. Unknown fields are ignored. Errors wrap
// ErrMalformedCredential and name the field, but contain no values. An expired previous private key is kept, but is not valid.
func DecodeCredential(publicKey string, data map[string]any) (*Credential, error) {
	if !ValidPublicKey(publicKey) {
		return nil, malformed("public key", "does not match [A-Za-z0-9_-]{8,128}")
	}
	c := &Credential{PublicKey: publicKey}
	var privateKey, previousKey, previousExpiresAt, status string
	for _, f := range []struct {
		name string
		to   *string
	}{
		{fieldPrivateKey, &privateKey},
		{fieldPreviousPrivateKey, &previousKey},
		{fieldPreviousExpiresAt, &previousExpiresAt},
		{fieldBusinessID, &c.BusinessID},
		{fieldBusinessName, &c.BusinessName},
		{fieldBusinessSlug, &c.BusinessSlug},
		{fieldStatus, &status},
	} {
		switch v := data[f.name].(type) {
		case nil:
		case string:
			*f.to = v
		default:
			return nil, malformed(f.name, fmt.Sprintf("is a %T, not a string", v))
		}
	}
	c.PrivateKey, c.PreviousPrivateKey, c.Status = Secret(privateKey), Secret(previousKey), Status(status)
	if previousExpiresAt != "" {
		at, err := time.Parse(time.RFC3339, previousExpiresAt)
		if err != nil { // err would quote the value
			return nil, malformed(fieldPreviousExpiresAt, "is not an RFC 3339 instant")
		}
		if c.PreviousPrivateKey != "" { // ignore a date without a key
			c.PreviousExpiresAt = at.UTC()
		}
	}
	limit, err := decodeLimit(data[fieldLimit])
	if err != nil {
		return nil, err
	}
	c.Limit = limit
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.warm()
	return c, nil
}

// Validate returns an error unless DecodeCredential would return the same credential. The error wraps ErrMalformedCredential
// and names the first invalid field, but contains no values. Stores call it before they write.
func (c *Credential) Validate() error {
	if !ValidPublicKey(c.PublicKey) {
		return malformed("public key", "does not match [A-Za-z0-9_-]{8,128}")
	}
	if err := checkSecret(fieldPrivateKey, c.PrivateKey); err != nil {
		return err
	}
	if c.PreviousPrivateKey != "" {
		if err := checkSecret(fieldPreviousPrivateKey, c.PreviousPrivateKey); err != nil {
			return err
		}
		if c.PreviousExpiresAt.IsZero() {
			return malformed(fieldPreviousExpiresAt, "is required with "+fieldPreviousPrivateKey)
		}
		if y := c.PreviousExpiresAt.UTC().Year(); y < 0 || y > 9999 {
			return malformed(fieldPreviousExpiresAt, "is not an RFC 3339 instant")
		}
	}
	if err := checkID(fieldBusinessID, c.BusinessID); err != nil {
		return err
	}
	if err := checkName(fieldBusinessName, c.BusinessName); err != nil {
		return err
	}
	if err := checkID(fieldBusinessSlug, c.BusinessSlug); err != nil {
		return err
	}
	switch c.Status {
	case StatusActive, StatusInactive:
	case "":
		return malformed(fieldStatus, "is missing")
	default:
		return malformed(fieldStatus, "must be active or inactive")
	}
	if c.Limit < 0 || c.Limit > MaxLimit {
		return malformed(fieldLimit, "must be an integer from 1 to "+strconv.Itoa(MaxLimit))
	}
	return nil
}

// Record returns the record for DecodeCredential, with its private keys revealed. It is only for stores. Unset optional fields are
// omitted. Values are strings, except for limit, which is an int.
func (c *Credential) Record() map[string]any {
	record := map[string]any{
		fieldPrivateKey:   c.PrivateKey.Reveal(),
		fieldBusinessID:   c.BusinessID,
		fieldBusinessName: c.BusinessName,
		fieldBusinessSlug: c.BusinessSlug,
		fieldStatus:       string(c.Status),
	}
	if c.PreviousPrivateKey != "" {
		record[fieldPreviousPrivateKey] = c.PreviousPrivateKey.Reveal()
		record[fieldPreviousExpiresAt] = c.PreviousExpiresAt.UTC().Format(time.RFC3339Nano)
	}
	if c.Limit != 0 {
		record[fieldLimit] = c.Limit
	}
	return record
}

// Clone returns a copy that may be modified.
func (c *Credential) Clone() *Credential {
	return &Credential{
		PublicKey:          c.PublicKey,
		PrivateKey:         c.PrivateKey,
		PreviousPrivateKey: c.PreviousPrivateKey,
		PreviousExpiresAt:  c.PreviousExpiresAt,
		BusinessID:         c.BusinessID,
		BusinessName:       c.BusinessName,
		BusinessSlug:       c.BusinessSlug,
		Status:             c.Status,
		Limit:              c.Limit,
	}
}

// String returns the public key, business and status.
func (c *Credential) String() string {
	return "credential " + c.PublicKey + " of business " + c.BusinessID + " (" + string(c.Status) + ")"
}

// Format writes the result of String for every verb, so that fmt does not read states used by concurrent requests.
func (c *Credential) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue implements [slog.LogValuer] without secrets.
func (c *Credential) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("public_key", c.PublicKey),
		slog.String("business_id", c.BusinessID),
		slog.String("status", string(c.Status)),
	)
}

func decodeLimit(v any) (int, error) {
	var digits string
	switch v := v.(type) {
	case nil:
		return 0, nil
	case string:
		if v == "" {
			return 0, nil
		}
		digits = v
	case json.Number:
		digits = v.String()
	case int:
		digits = strconv.Itoa(v)
	case int64:
		digits = strconv.FormatInt(v, 10)
	case float64: // encoding/json without UseNumber
		if v != math.Trunc(v) || math.Abs(v) > MaxLimit {
			return 0, malformed(fieldLimit, "must be an integer from 1 to "+strconv.Itoa(MaxLimit))
		}
		digits = strconv.FormatInt(int64(v), 10)
	default:
		return 0, malformed(fieldLimit, fmt.Sprintf("is a %T, not an integer", v))
	}
	n, err := strconv.ParseUint(digits, 10, 31) // rejects signs, spaces, fractions and exponents
	if err != nil || n == 0 {
		return 0, malformed(fieldLimit, "must be an integer from 1 to "+strconv.Itoa(MaxLimit))
	}
	return int(n), nil
}

func checkSecret(field string, s Secret) error {
	switch v := string(s); {
	case v == "":
		return malformed(field, "is missing or empty")
	case len(v) > maxSecretBytes:
		return malformed(field, "is longer than "+strconv.Itoa(maxSecretBytes)+" bytes")
	case v == redacted: // somebody stored a printed Secret
		return malformed(field, "is the placeholder "+redacted+", not a private key")
	case strings.TrimSpace(v) != v: // such as the line feed from `vault kv put private_key=@file`
		return malformed(field, "begins or ends with white space")
	case !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl):
		return malformed(field, "contains control characters or is not UTF-8")
	}
	return nil
}

// checkID is strict because IDs are sent to data services as header values.
func checkID(field, s string) error {
	switch {
	case s == "":
		return malformed(field, "is missing or empty")
	case len(s) > maxIDBytes:
		return malformed(field, "is longer than "+strconv.Itoa(maxIDBytes)+" bytes")
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return malformed(field, "contains characters other than visible ASCII")
		}
	}
	return nil
}

func checkName(field, s string) error {
	switch {
	case strings.TrimSpace(s) == "":
		return malformed(field, "is missing or empty")
	case len(s) > maxNameBytes:
		return malformed(field, "is longer than "+strconv.Itoa(maxNameBytes)+" bytes")
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return malformed(field, "contains control characters or is not UTF-8")
	}
	return nil
}

func malformed(field, what string) error {
	return fmt.Errorf("%w: %s %s", ErrMalformedCredential, field, what)
}
