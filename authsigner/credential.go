package authsigner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
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

// recordFormat is the format of records that this version writes, and the last one that it reads. Within a format, fields may be
// added that earlier versions can ignore without allowing more.
const recordFormat = 1

// maxLimit is the maximum of Credential.Limit, in requests per minute.
const maxLimit = math.MaxInt32

// What is wrong with a value, in more than one place.
const (
	notAPublicKey = "must match [A-Za-z0-9_-]{8,128} and not begin with " + PrivateKeyPrefix + ", as private keys do"
	integerRange  = "must be an integer from 1 to 2147483647"
	notATimestamp = "is not an RFC 3339 timestamp"
)

// Status is the state of a business's account.
type Status string

// The states of an account.
const (
	StatusActive   Status = "active"
	StatusInactive Status = "inactive"
)

// Credential is a business's key pair and the business that it belongs to. Credentials are shared by concurrent requests and must
// not be modified or copied; use [UpdateRecord].
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

	// Limit is the key's rate limit in requests per minute, 1 to 2147483647. Zero means the gateway's default.
	Limit int

	Name      string    // display name of the key; may be empty
	CreatedAt time.Time // UTC; zero if unknown
	CreatedBy string    // who issued the key; empty if unknown
	ExpiresAt time.Time // UTC; from then on, the key is treated as unknown; zero if it does not expire

	// Resources are what the key may call: see MayCall. Nil means the whole API that has no name; otherwise there is at least one.
	Resources []string

	// Write allows requests that may change data. Default: false, the key reads.
	Write bool

	current, previous macs // HMAC states of the two private keys
}

// CredentialSource provides credentials.
type CredentialSource interface {
	// Lookup returns the credential of publicKey, which satisfies ValidPublicKey. The error wraps ErrUnknownKey only if the
	// key certainly does not exist; any other error means that this is not known. The credential must not be modified.
	Lookup(ctx context.Context, publicKey string) (*Credential, error)
}

// PrivateKeyPrefix begins every private key that [Issue] and [Rotate] create. No public key begins with it.
const PrivateKeyPrefix = "sk_"

// PrintableKey returns the name of a credential as it may be printed. A private key that stands in place of a public one is shortened to
// its prefix.
func PrintableKey(name string) string {
	if strings.HasPrefix(name, PrivateKeyPrefix) {
		return PrivateKeyPrefix + "…"
	}
	return name
}

// ValidPublicKey reports whether s matches ^[A-Za-z0-9_-]{8,128}$ and does not begin with PrivateKeyPrefix. Only such strings are
// looked up: a private key that was sent by mistake would otherwise become part of a request to the credential source, which may
// record it. Issued keys begin with pk_live_ or pk_test_, but no prefix is required.
func ValidPublicKey(s string) bool {
	return wellFormedKey(s) && !strings.HasPrefix(s, PrivateKeyPrefix)
}

// wellFormedKey reports whether s matches ^[A-Za-z0-9_-]{8,128}$.
func wellFormedKey(s string) bool {
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
//	format                optional, 1: the version of this list; as limit
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
//	write                 optional: true or false, or as a string, as `vault kv put write=true` writes it
//
// Null means absent, and so does an empty string in optional fields, except in expires_at and resources, which restrict the key:
// there it is an error. Unknown fields are ignored, but a record with a later format, which a later version of Gatehouse has written,
// is malformed. Errors wrap ErrMalformedCredential and name the field, but contain no values. An
// expired previous private key is kept, but is not valid.
func DecodeCredential(publicKey string, data map[string]any) (*Credential, error) {
	if !ValidPublicKey(publicKey) {
		return nil, malformed("public key", notAPublicKey)
	}
	if format, err := decodeInteger(fieldFormat, data[fieldFormat]); err != nil {
		return nil, err
	} else if format > recordFormat {
		return nil, malformed(fieldFormat, "is that of a later version of Gatehouse")
	}
	c := &Credential{PublicKey: publicKey}
	for _, f := range c.texts() {
		text, err := decodeText(f.name, data[f.name])
		if err != nil {
			return nil, err
		}
		*f.value = text
	}
	for _, f := range c.timestamps() {
		text, err := decodeText(f.name, data[f.name])
		if err != nil {
			return nil, err
		}
		if text == "" && (f.value != &c.ExpiresAt || data[f.name] == nil) {
			continue
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil || at.IsZero() { // err would quote the value, and a zero time would mean that it is not set
			return nil, malformed(f.name, notATimestamp)
		}
		*f.value = at.UTC()
	}
	if c.PreviousPrivateKey == "" {
		c.PreviousExpiresAt = time.Time{} // ignore a date without a key
	}
	var err error
	if c.Limit, err = decodeInteger(fieldLimit, data[fieldLimit]); err != nil {
		return nil, err
	}
	if c.Resources, err = decodeResources(data[fieldResources]); err != nil {
		return nil, err
	}
	if c.Write, err = decodeWrite(data[fieldWrite]); err != nil {
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
		return malformed("public key", notAPublicKey)
	}
	for _, f := range c.texts() {
		if f.optional && *f.value == "" {
			continue
		}
		if problem := f.check(*f.value); problem != "" {
			return malformed(f.name, problem)
		}
	}
	if c.PreviousPrivateKey != "" && c.PreviousExpiresAt.IsZero() {
		return malformed("previous_expires_at", "is required with previous_private_key")
	}
	for _, f := range c.timestamps() {
		if y := f.value.UTC().Year(); y < 0 || y > 9999 {
			return malformed(f.name, notATimestamp)
		}
	}
	if c.Limit < 0 || c.Limit > maxLimit {
		return malformed(fieldLimit, integerRange)
	}
	if c.Resources != nil && len(c.Resources) == 0 {
		return malformed(fieldResources, "must not be empty")
	}
	for _, name := range c.Resources {
		if problem := checkID(name); problem != "" {
			return malformed(fieldResources, problem)
		}
		if strings.Contains(name, ",") {
			return malformed(fieldResources, "contains a name with a comma")
		}
	}
	return nil
}

// textField is a field of a record that is a string.
type textField struct {
	name     string
	value    *string
	check    func(string) (problem string)
	optional bool
}

// texts returns the record's fields that are strings.
func (c *Credential) texts() []textField {
	return []textField{
		{"private_key", (*string)(&c.PrivateKey), checkSecret, false},
		{"previous_private_key", (*string)(&c.PreviousPrivateKey), checkSecret, true},
		{"business_id", &c.BusinessID, checkBusinessID, false},
		{"business_name", &c.BusinessName, checkName, false},
		{"business_slug", &c.BusinessSlug, checkID, false},
		{"status", (*string)(&c.Status), checkStatus, false},
		{"name", &c.Name, checkName, true},
		{"created_by", &c.CreatedBy, checkName, true},
	}
}

// timestampField is a field of a record that is an RFC 3339 timestamp. All are optional; the zero time means that it is not set.
type timestampField struct {
	name  string
	value *time.Time
}

// timestamps returns the record's fields that are timestamps.
func (c *Credential) timestamps() []timestampField {
	return []timestampField{
		{"previous_expires_at", &c.PreviousExpiresAt}, {"created_at", &c.CreatedAt}, {"expires_at", &c.ExpiresAt},
	}
}

// The record's other fields.
const (
	fieldFormat    = "format"
	fieldLimit     = "limit"
	fieldResources = "resources"
	fieldWrite     = "write"
)

// Expired reports whether the key has expired. It is then treated as unknown.
func (c *Credential) Expired(now time.Time) bool {
	return !c.ExpiresAt.IsZero() && !now.Before(c.ExpiresAt)
}

// MayCall reports whether the key may call a resource of an API. Of the API without a name, it may call those in Resources, or all
// if that is nil. An API with a name must be in Resources: "shop" for all of it, or "shop/orders" for one resource.
func (c *Credential) MayCall(api, resource string) bool {
	if api == "" {
		return c.Resources == nil || slices.Contains(c.Resources, resource)
	}
	return slices.Contains(c.Resources, api) || slices.Contains(c.Resources, api+"/"+resource)
}

// IsFor reports whether the key may call anything of an API with a name, such as what the gateway answers itself.
func (c *Credential) IsFor(api string) bool {
	return slices.ContainsFunc(c.Resources, func(r string) bool { return r == api || strings.HasPrefix(r, api+"/") })
}

// Record returns the record for DecodeCredential, with its private keys revealed. It is only for stores. Unset optional fields are
// omitted. Values are strings, except for format and limit, which are ints, resources, which is a []string, and write, which is a bool.
func (c *Credential) Record() map[string]any {
	record := map[string]any{fieldFormat: recordFormat}
	for _, f := range c.texts() {
		if *f.value != "" || !f.optional {
			record[f.name] = *f.value
		}
	}
	for _, f := range c.timestamps() {
		if !f.value.IsZero() {
			record[f.name] = f.value.UTC().Format(time.RFC3339Nano)
		}
	}
	if c.Limit != 0 {
		record[fieldLimit] = c.Limit
	}
	if c.Resources != nil {
		record[fieldResources] = c.Resources
	}
	if c.Write {
		record[fieldWrite] = true
	}
	return record
}

// RecordFields returns the names of the fields that DecodeCredential reads.
func RecordFields() []string {
	names := []string{fieldFormat, fieldLimit, fieldResources, fieldWrite}
	c := new(Credential)
	for _, f := range c.texts() {
		names = append(names, f.name)
	}
	for _, f := range c.timestamps() {
		names = append(names, f.name)
	}
	return names
}

// UpdateRecord changes the credential of a record, and returns it with its new record, which has the unknown fields of the old one.
// change may modify the credential, except for its public key. Stores implement [KeyStore.Update] with it. If the record is
// malformed, the error wraps ErrUnavailable; an error of change is returned unwrapped.
func UpdateRecord(
	publicKey string, record map[string]any, change func(*Credential) error,
) (*Credential, map[string]any, error) {
	cred, err := DecodeCredential(publicKey, record)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := change(cred); err != nil {
		return nil, nil, err
	}
	if cred.PublicKey != publicKey {
		return nil, nil, errors.New("the public key must not change")
	}
	stored, err := DecodeCredential(publicKey, cred.Record()) // normalised as a lookup would
	if err != nil {
		return nil, nil, err
	}
	merged := maps.Clone(record)
	for _, name := range RecordFields() {
		delete(merged, name)
	}
	maps.Copy(merged, stored.Record())
	return stored, merged, nil
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

// decodeText decodes a string that may be absent.
func decodeText(field string, v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	default:
		return "", malformed(field, fmt.Sprintf("is a %T, not a string", v))
	}
}

// decodeInteger decodes an integer from 1 to 2147483647 that may be absent.
func decodeInteger(field string, v any) (int, error) {
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
		if v != math.Trunc(v) || math.Abs(v) > maxLimit {
			return 0, malformed(field, integerRange)
		}
		digits = strconv.FormatInt(int64(v), 10)
	default:
		return 0, malformed(field, fmt.Sprintf("is a %T, not an integer", v))
	}
	n, err := strconv.ParseUint(digits, 10, 31) // rejects signs, spaces, fractions and exponents
	if err != nil || n == 0 {
		return 0, malformed(field, integerRange)
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

func decodeWrite(v any) (bool, error) {
	switch v {
	case nil, "", false, "false":
		return false, nil
	case true, "true":
		return true, nil
	}
	return false, malformed(fieldWrite, "must be true or false")
}

func checkSecret(s string) string {
	switch {
	case s == "":
		return "is missing or empty"
	case len(s) > maxSecretBytes:
		return "is longer than " + strconv.Itoa(maxSecretBytes) + " bytes"
	case s == redacted: // somebody stored a printed Secret
		return "is the placeholder " + redacted + ", not a private key"
	case strings.TrimSpace(s) != s: // such as the line feed from `vault kv put private_key=@file`
		return "begins or ends with white space"
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return "contains control characters or is not UTF-8"
	}
	return ""
}

func checkBusinessID(s string) string {
	if s == "-" {
		return `is "-", which means to data services that the business is not known`
	}
	return checkID(s)
}

// checkID is strict because IDs are sent to data services as header values.
func checkID(s string) string {
	switch {
	case s == "":
		return "is missing or empty"
	case len(s) > maxIDBytes:
		return "is longer than " + strconv.Itoa(maxIDBytes) + " bytes"
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "contains characters other than visible ASCII"
	}
	return ""
}

func checkName(s string) string {
	switch {
	case strings.TrimSpace(s) == "":
		return "is missing or empty"
	case len(s) > maxNameBytes:
		return "is longer than " + strconv.Itoa(maxNameBytes) + " bytes"
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return "contains control characters or is not UTF-8"
	}
	return ""
}

func checkStatus(s string) string {
	switch Status(s) {
	case StatusActive, StatusInactive:
		return ""
	case "":
		return "is missing"
	default:
		return "must be active or inactive"
	}
}

func malformed(field, what string) error {
	return fmt.Errorf("%w: %s %s", ErrMalformedCredential, field, what)
}
