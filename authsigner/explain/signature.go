package explain

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

const (
	digestKept = 8  // bytes of a signature that are compared and kept: enough to recognise it, too few to repeat a request
	minDigits  = 48 // of a signature in hexadecimal digits that lacks its leading zeros
)

// readSignature decodes a signature in any of the forms that programs send.
func (a *Attempt) readSignature(signature string) {
	text := strings.TrimSpace(signature)
	switch {
	case strings.Contains(text, authsigner.PrivateKeyPrefix):
		a.found("signature_key", "private", " Replace the key pair, because the private key has been sent.")
		return
	case text == a.PublicKey:
		a.found("signature_key", "public", "")
		return
	}
	fields := strings.Fields(text)
	if joined := strings.Join(fields, ""); len(fields) > 1 && len(fields[0]) > 2 &&
		(len(decodeHex(joined)) == sha256.Size || len(fields[0]) == 76 && decodeBase64(joined) != nil) {
		text = joined
	}
	if text != signature {
		a.found("signature_whitespace")
	}
	digest, form := decodeForm(text)
	switch {
	case form != "":
		a.found("signature_encoding", form)
	case isHex(text) && len(text) >= minDigits && len(text) < 2*sha256.Size:
		a.found("signature_truncated")
		a.unpadded, a.unpaddedSize = strings.ToLower(text[:digestKept]), len(text)
		digest, _ = hex.DecodeString(text[:len(text)/2*2])
	default:
		if digest = a.decodePlain(text); digest == nil {
			a.found("signature_malformed")
			return
		}
	}
	if a.Timestamp != "" && bytes.HasPrefix(digest, []byte(a.Timestamp+"\n")) {
		a.found("signature_message")
		a.shown = string(digest[:max(0, len(digest)-sha256.Size)])
	}
	a.size = len(digest)
	a.digest = bytes.Clone(digest[:min(digestKept, len(digest))])
}

// decodePlain decodes hexadecimal digits or base64, which may follow other text.
func (a *Attempt) decodePlain(text string) []byte {
	if digest := decodeHex(text); digest != nil {
		return digest
	}
	for _, field := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" =,:;*x", r) }) {
		if digest := decodeHex(field); hasHashSize(digest) {
			a.found("signature_prefixed")
			return digest
		}
	}
	if i := strings.LastIndexAny(strings.TrimRight(text, "="), "= ,:"); i >= 0 && decodeBase64(text[i+1:]) != nil {
		a.found("signature_prefixed")
		text = text[i+1:]
	}
	digest := decodeBase64(text)
	if inner := decodeHex(strings.TrimSpace(string(digest))); inner != nil {
		digest = inner
	}
	if !hasHashSize(digest) {
		return nil
	}
	a.found("signature_base64")
	return digest
}

// decodeForm decodes a signature that is written neither in hexadecimal digits alone nor in base64, and names the form.
func decodeForm(text string) (digest []byte, form string) {
	unquoted := strings.Trim(strings.TrimPrefix(text, "b"), `"'`)
	literal, _ := strconv.Unquote(`"` + strings.NewReplacer(`"`, `\"`, `\'`, "'").Replace(unquoted) + `"`)
	plain := pathUnescape(text)
	for _, c := range []struct {
		form    string
		applies bool
		digests [][]byte
	}{
		{"text in quotation marks", len(unquoted) < len(text)-1, [][]byte{decodeHex(unquoted), decodeBase64(unquoted), []byte(literal)}},
		{"percent-encoded text", plain != text, [][]byte{decodeHex(plain), decodeBase64(plain), []byte(plain)}},
		{"digits with separators", len(text)%3 == 2 && strings.ContainsAny(text, "-: "), [][]byte{decodeHex(strings.NewReplacer("-", "", ":", "", " ", "").Replace(text))}},
		{"the hexadecimal digits of hexadecimal digits", true, [][]byte{decodeHex(string(decodeHex(text)))}},
		{"the hexadecimal digits of base64", true, [][]byte{decodeBase64(string(decodeHex(text)))}},
		{"bytes with their sign extended", aNegativeByte.MatchString(text), [][]byte{decodeHex(aNegativeByte.ReplaceAllString(text, "$1"))}},
		{"decimal numbers", true, [][]byte{decodeNumbers(text)}},
	} {
		for _, digest := range c.digests {
			if c.applies && hasHashSize(digest) {
				return digest, c.form
			}
		}
	}
	return nil, ""
}

func isHex(s string) bool {
	return s != "" && strings.Trim(strings.ToLower(s), "0123456789abcdef") == ""
}

func decodeHex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) < digestKept {
		return nil
	}
	return b
}

// decodeBase64 decodes the standard and the URL alphabet, with and without padding and line feeds.
func decodeBase64(s string) []byte {
	s = strings.TrimRight(strings.NewReplacer("\n", "", "\r", "", "-", "+", "_", "/").Replace(s), "=")
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil || len(b) < 16 {
		return nil
	}
	return b
}

func hasHashSize(b []byte) bool { return slices.Contains([]int{16, 20, 28, 32, 48, 64}, len(b)) }

func decodeNumbers(text string) (digest []byte) {
	text = text[strings.LastIndex(text, "[")+1:]
	for _, number := range strings.FieldsFunc(strings.Trim(text, "]{}()"), func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.Atoi(number)
		if err != nil || n < -128 || n > 255 {
			return nil
		}
		digest = append(digest, byte(n)) // -128 to -1 are the signed bytes of Java
	}
	return digest
}

// aNegativeByte is a byte as Java's Integer.toHexString writes it, with its sign extended.
var aNegativeByte = regexp.MustCompile(`(?i)f{6}([89a-f].)`)

// isUnpadded reports whether the attempt's digits are those of sum without leading zeros: of the whole number, or of each byte.
func (a *Attempt) isUnpadded(sum []byte) bool {
	if a.unpaddedSize == 0 {
		return false
	}
	var each strings.Builder
	for _, b := range sum {
		each.WriteString(strconv.FormatUint(uint64(b), 16))
	}
	whole := strings.TrimLeft(hex.EncodeToString(sum), "0")
	return each.Len() == a.unpaddedSize && strings.HasPrefix(each.String(), a.unpadded) ||
		len(whole) == a.unpaddedSize && strings.HasPrefix(whole, a.unpadded)
}
