package authsigner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
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
	fieldName               = "name"
	fieldCreatedAt          = "created_at"
	fieldCreatedBy          = "created_by"
	fieldExpiresAt          = "expires_at"
	fieldResources          = "resources"
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

	Name      string    // of the key, for people; may be empty
	CreatedAt time.Time // UTC; zero if unknown
	CreatedBy string    // who issued the key; empty if unknown
	ExpiresAt time.Time // UTC; from then on, the key is treated as unknown; zero if it does not expire

	// Resources are the names of the resources that the key may call. Nil means all; otherwise there is at least one.
	Resources []string

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
//	name                  optional, text without control characters
//	created_at            optional, RFC 3339
//	created_by            optional, text without control characters
//	expires_at            optional, RFC 3339
//	resources             optional, not empty: a JSON array of strings, or a string with commas as
//	                      `vault kv put resources=jobs,contacts` writes it
//
// Null means absent, and so does an empty string in optional fields, except in expires_at and resources, which restrict the key:
// there it is an error. Unknown fields are ignored. Errors wrap
// ErrMalformedCredential and name the field, but contain no values. An expired previous private key is kept, but is not valid.
func DecodeCredential(publicKey string, data map[string]any) (*Credential, error) {
	if !ValidPublicKey(publicKey) {
		return nil, malformed("public key", "does not match [A-Za-z0-9_-]{8,128}")
	}
	c := &Credential{PublicKey: publicKey}
	var privateKey, previousKey, previousExpiresAt, status, createdAt, expiresAt string
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
		{fieldName, &c.Name},
		{fieldCreatedAt, &createdAt},
		{fieldCreatedBy, &c.CreatedBy},
		{fieldExpiresAt, &expiresAt},
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
	for _, f := range []struct {
		name, value string
		to          *time.Time
	}{
		{fieldPreviousExpiresAt, previousExpiresAt, &c.PreviousExpiresAt},
		{fieldCreatedAt, createdAt, &c.CreatedAt},
		{fieldExpiresAt, expiresAt, &c.ExpiresAt},
	} {
		if f.value == "" && (f.name != fieldExpiresAt || data[f.name] == nil) {
			continue
		}
		at, err := time.Parse(time.RFC3339, f.value)
		if err != nil || at.IsZero() { // err would quote the value, and a zero time would mean that it is not set
			return nil, malformed(f.name, notAnInstant)
		}
		*f.to = at.UTC()
	}
	if c.PreviousPrivateKey == "" {
		c.PreviousExpiresAt = time.Time{} // ignore a date without a key
	}
	limit, err := decodeLimit(data[fieldLimit])
	if err != nil {
		return nil, err
	}
	c.Limit = limit
	if c.Resources, err = decodeResources(data[fieldResources]); err != nil {
		return nil, err
	}
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
		if err := checkInstant(fieldPreviousExpiresAt, c.PreviousExpiresAt); err != nil {
			return err
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
	if c.Name != "" {
		if err := checkName(fieldName, c.Name); err != nil {
			return err
		}
	}
	if c.CreatedBy != "" {
		if err := checkName(fieldCreatedBy, c.CreatedBy); err != nil {
			return err
		}
	}
	if err := checkInstant(fieldCreatedAt, c.CreatedAt); err != nil {
		return err
	}
	if err := checkInstant(fieldExpiresAt, c.ExpiresAt); err != nil {
		return err
	}
	if c.Resources != nil && len(c.Resources) == 0 {
		return malformed(fieldResources, "must not be empty")
	}
	for _, name := range c.Resources {
		if err := checkID(fieldResources, name); err != nil {
			return err
		}
		if strings.Contains(name, ",") {
			return malformed(fieldResources, "contains a name with a comma")
		}
	}
	return nil
}

// Expired reports whether the key has expired. It is then treated as unknown.
func (c *Credential) Expired(now time.Time) bool {
	return !c.ExpiresAt.IsZero() && !now.Before(c.ExpiresAt)
}

// MayCall reports whether the key may call a resource.
func (c *Credential) MayCall(resource string) bool {
	return c.Resources == nil || slices.Contains(c.Resources, resource)
}

// Record returns the record for DecodeCredential, with its private keys revealed. It is only for stores. Unset optional fields are
// omitted. Values are strings, except for limit, which is an int, and resources, which is a []string.
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
	if c.Name != "" {
		record[fieldName] = c.Name
	}
	if c.CreatedBy != "" {
		record[fieldCreatedBy] = c.CreatedBy
	}
	if !c.CreatedAt.IsZero() {
		record[fieldCreatedAt] = c.CreatedAt.UTC().Format(time.RFC3339Nano)
	}
	if !c.ExpiresAt.IsZero() {
		record[fieldExpiresAt] = c.ExpiresAt.UTC().Format(time.RFC3339Nano)
	}
	if c.Resources != nil {
		record[fieldResources] = c.Resources
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
		Name:               c.Name,
		CreatedAt:          c.CreatedAt,
		CreatedBy:          c.CreatedBy,
		ExpiresAt:          c.ExpiresAt,
		Resources:          slices.Clone(c.Resources),
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

func decodeResources(v any) ([]string, error) {
	var names []string
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		names = strings.Split(v, ",") // an empty text is one empty name, and invalid
		for i := range names {
			names[i] = strings.TrimSpace(names[i])
		}
	case []string:
		names = append([]string{}, v...)
	case []any:
		names = make([]string, len(v)) // not nil, which would allow all resources
		for i := range v {
			name, ok := v[i].(string)
			if !ok {
				return nil, malformed(fieldResources, fmt.Sprintf("contains a %T, not only strings", v[i]))
			}
			names[i] = name
		}
	default:
		return nil, malformed(fieldResources, fmt.Sprintf("is a %T, not a list of strings", v))
	}
	return names, nil
}

const notAnInstant = "is not an RFC 3339 instant"

// checkInstant accepts the zero time, which means that the field is not set.
func checkInstant(field string, t time.Time) error {
	if y := t.UTC().Year(); y < 0 || y > 9999 {
		return malformed(field, notAnInstant)
	}
	return nil
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
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }):
		return malformed(field, "contains characters other than visible ASCII")
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
