package authsigner

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// redacted is what a Secret shows of itself, in every form.
const redacted = "[redacted]"

// Secret is a private key. However it is printed, logged or encoded (fmt with any verb, slog, zap, JSON, text) it
// shows "[redacted]"; Reveal is the one way to its bytes. An empty Secret is no secret: it verifies nothing. It must
// not be the key of a map: encoding/json writes such keys as they are.
type Secret string

var (
	_ fmt.Formatter  = Secret("")
	_ fmt.GoStringer = Secret("")
	_ fmt.Stringer   = Secret("")
	_ json.Marshaler = Secret("")
	_ slog.LogValuer = Secret("")
	_ interface {
		MarshalText() ([]byte, error)
	} = Secret("")
)

// Reveal returns the secret itself, for signing and for the stores that keep it.
func (s Secret) Reveal() string { return string(s) }

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// GoString returns "[redacted]", so that %#v shows nothing either.
func (Secret) GoString() string { return redacted }

// Format writes "[redacted]" for every verb, those included (%x, %q, %d) that would not ask String.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalJSON returns the JSON string "[redacted]".
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText returns "[redacted]"; encoders of XML, YAML and TOML use it.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns "[redacted]" to log/slog.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// usable reports whether the secret may verify anything. HMAC pads its key with zero bytes, so a key of nothing but
// zero bytes is the empty key under another name.
func (s Secret) usable() bool { return strings.Trim(string(s), "\x00") != "" }
