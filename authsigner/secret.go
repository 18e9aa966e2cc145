package authsigner

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// redacted is the printed form of a Secret.
const redacted = "[redacted]"

// Secret is a private key. It is printed, logged and encoded as "[redacted]" by fmt, slog, zap, JSON and text encoders; Reveal
// returns its bytes. An empty Secret never verifies. A Secret must not be used as a map key, because encoding/json does not call
// MarshalJSON for string keys.
type Secret string

// Reveal returns the secret.
func (s Secret) Reveal() string { return string(s) }

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// Format writes "[redacted]" for every verb, including those that do not call String.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalJSON returns the JSON string "[redacted]".
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText returns "[redacted]".
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns "[redacted]" to log/slog.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// usable reports whether the secret may verify anything. HMAC pads its key with zero bytes, so a key of nothing but
// zero bytes is the empty key under another name.
func (s Secret) usable() bool { return strings.Trim(string(s), "\x00") != "" }
