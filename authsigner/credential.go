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

// The bounds of what a credential record may hold, in bytes. They are far above anything issued and keep an entry
// that was filled with something else from becoming a header or a key.
const (
	maxSecretBytes = 4096
	maxIDBytes     = 255
	maxNameBytes   = 1024
)

// MaxLimit is the highest Limit that a credential may carry, in requests a minute.
const MaxLimit = math.MaxInt32

// The field names of a credential record, one KV entry for each public key.
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

// The states of an account. Whatever is not StatusActive is treated as inactive.
const (
	StatusActive   Status = "active"
	StatusInactive Status = "inactive"
)

// Credential is what the gateway knows about one public key. It is immutable once handed out, because concurrent
// requests share it; [Credential.Clone] makes a copy that may be changed. It must not be copied otherwise.
type Credential struct {
	PublicKey  string // [A-Za-z0-9_-]{8,128}, see ValidPublicKey
	PrivateKey Secret // the HMAC key, its bytes as issued; never empty

	// PreviousPrivateKey, if not empty, is the secret before the last rotation. It verifies as well, as long as the
	// clock is before PreviousExpiresAt.
	PreviousPrivateKey Secret
	PreviousExpiresAt  time.Time // UTC; zero when there is no previous secret

	BusinessID   string // visible ASCII, opaque
	BusinessName string // for people, UTF-8
	BusinessSlug string // visible ASCII

	Status Status // only StatusActive may call

	// Limit is the key's own limit in requests a minute, 1 to MaxLimit; 0 stands for the contract's default.
	Limit int

	current, previous macs // ready HMAC states of the two secrets
}

// CredentialSource finds the credential of a public key.
type CredentialSource interface {
	// Lookup returns the credential of publicKey, which satisfies ValidPublicKey. It returns an error that wraps
	// ErrUnknownKey if it knows for certain that there is no such key, and any other error (ErrUnavailable,
	// ErrMalformedCredential, the context's) if it does not know. The credential is shared: nobody changes it.
	Lookup(ctx context.Context, publicKey string) (*Credential, error)
}

// ValidPublicKey reports whether s may be a public key: ^[A-Za-z0-9_-]{8,128}$. Nothing else ever becomes part of a
// path or of a cache's key. Issued keys start with pk_live_ or pk_test_; the prefix is not required.
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

// DecodeCredential reads the record of publicKey as a store holds it. Its fields:
//
//	private_key           string, required, not empty
//	previous_private_key  string, optional; only with an end
//	previous_expires_at   RFC 3339, the end of previous_private_key
//	business_id           string, required, visible ASCII
//	business_name         string, required, text without control characters
//	business_slug         string, required, visible ASCII
//	status                "active" or "inactive", required
//	limit                 optional integer of at least 1, requests a minute; a JSON number, or its digits as a string
//	                      as `vault kv put limit=120` writes it
//
// Null is the same as absent, and an empty string the same as absent for the optional fields. Fields that it does
// not know are left alone. Everything else is an error that wraps ErrMalformedCredential, names the field and holds
// none of the values. An expired previous secret is kept; it just verifies nothing.
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
		if c.PreviousPrivateKey != "" { // a date left over from a secret that was removed means nothing
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

// Validate says whether the credential is one that DecodeCredential would return: it wraps ErrMalformedCredential,
// names the first field that is wrong, and never quotes a value. Stores call it before they write.
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
			return malformed(fieldPreviousExpiresAt, "is missing, and there is a "+fieldPreviousPrivateKey)
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
		return malformed(fieldStatus, "is neither active nor inactive")
	}
	if c.Limit < 0 || c.Limit > MaxLimit {
		return malformed(fieldLimit, "is not an integer from 1 to "+strconv.Itoa(MaxLimit))
	}
	return nil
}

// Record returns the record that DecodeCredential reads, its secrets revealed: for stores only. Optional fields that
// are not set are left out. Values are strings, and an int for limit.
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

// Clone returns a copy that nobody else holds, for a store's Update to change.
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

// String says which credential it is: its public key, business and status.
func (c *Credential) String() string {
	return "credential " + c.PublicKey + " of business " + c.BusinessID + " (" + string(c.Status) + ")"
}

// Format writes what String returns for every verb. fmt would otherwise print the states that concurrent requests are
// using.
func (c *Credential) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue shows log/slog what may be in a log.
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
			return 0, malformed(fieldLimit, "is not an integer from 1 to "+strconv.Itoa(MaxLimit))
		}
		digits = strconv.FormatInt(int64(v), 10)
	default:
		return 0, malformed(fieldLimit, fmt.Sprintf("is a %T, not an integer", v))
	}
	n, err := strconv.ParseUint(digits, 10, 31) // refuses signs, spaces, fractions and exponents
	if err != nil || n == 0 {
		return 0, malformed(fieldLimit, "is not an integer from 1 to "+strconv.Itoa(MaxLimit))
	}
	return int(n), nil
}

func checkSecret(field string, s Secret) error {
	switch v := string(s); {
	case v == "":
		return malformed(field, "is missing or empty")
	case len(v) > maxSecretBytes:
		return malformed(field, "is longer than "+strconv.Itoa(maxSecretBytes)+" bytes")
	case v == redacted: // somebody wrote back what a Secret shows of itself
		return malformed(field, "is the placeholder of a secret, not a secret")
	case strings.TrimSpace(v) != v: // a line feed out of a file, as `vault kv put private_key=@file` leaves it
		return malformed(field, "begins or ends with white space")
	case !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl):
		return malformed(field, "holds control characters or is not UTF-8")
	}
	return nil
}

// checkID is strict because the ids travel as header values towards the data services.
func checkID(field, s string) error {
	switch {
	case s == "":
		return malformed(field, "is missing or empty")
	case len(s) > maxIDBytes:
		return malformed(field, "is longer than "+strconv.Itoa(maxIDBytes)+" bytes")
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return malformed(field, "holds something else than visible ASCII")
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
		return malformed(field, "holds control characters or is not UTF-8")
	}
	return nil
}

func malformed(field, what string) error {
	return fmt.Errorf("%w: %s %s", ErrMalformedCredential, field, what)
}
