package explain

import (
	"bytes"
	"crypto"
	"crypto/hmac"
	_ "crypto/md5"  //nolint:gosec // to recognise signatures of callers who use it by mistake; nothing is accepted by it
	_ "crypto/sha1" //nolint:gosec // likewise
	"crypto/sha256"
	_ "crypto/sha3"   // so that crypto.Hash knows it, like the others
	_ "crypto/sha512" // likewise
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/encoding/charmap"
)

// lenientBase64 returns what decoders keep that ignore characters outside their alphabet, and text after the last whole byte.
func lenientBase64(s, more string) string {
	s = strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("+/"+more, r) {
			return -1
		}
		return r
	}, s)
	if len(s)%4 == 1 {
		s = s[:len(s)-1]
	}
	return s
}

// macFunc computes a signature.
type macFunc func(secret, message string) []byte

// hmacOf returns a function that computes HMACs. It is not for concurrent use, because it keeps the state of the last key.
func hmacOf(h func() hash.Hash) macFunc {
	var m hash.Hash
	var last string
	return func(secret, message string) []byte {
		if m == nil || secret != last {
			m, last = hmac.New(h, []byte(secret)), secret
		}
		m.Reset()
		_, _ = m.Write([]byte(message))
		return m.Sum(nil)
	}
}

func hashed(h crypto.Hash, s string) []byte {
	m := h.New()
	_, _ = m.Write([]byte(s))
	return m.Sum(nil)
}

// hashes returns the hash functions that callers use.
func hashes() []crypto.Hash {
	return []crypto.Hash{
		crypto.SHA256, crypto.SHA1, crypto.SHA512, crypto.SHA384, crypto.SHA512_256, crypto.SHA3_256, crypto.MD5, crypto.SHA224,
		crypto.SHA3_224, crypto.SHA3_512,
	}
}

func hmacName(h crypto.Hash) string { return "HMAC-" + strings.Replace(h.String(), "SHA-", "SHA", 1) }

// addAlgorithms adds other algorithms whose result has the signature's length.
func (a *Attempt) addAlgorithms(d *dimension) {
	add := func(rarity int, sum macFunc, code string, arguments ...any) {
		d.rarity = rarity
		d.apply(func(p *parts) { p.sum = sum }, code, arguments...)
	}
	hmac256 := hmacOf(sha256.New)
	for _, h := range hashes() {
		if h.Size() != a.size {
			continue
		}
		sum := func(s string) []byte { return hashed(h, s) }
		if h != crypto.SHA256 {
			add(common, hmacOf(h.New), "algorithm", hmacName(h))
		}
		rarity := min(len(d.variants), rare) // of mistakes with a hash function that is not the usual one of this size
		add(rarity, func(secret, message string) []byte { return hmacOf(h.New)(message, secret) }, "algorithm_arguments")
		add(rarity, func(_, message string) []byte { return sum(message) }, "algorithm", "a plain "+h.String()+" hash")
		for i, separator := range []string{"", "\n", ":", "|"} {
			rarity := max(rarity, min(i, rare))
			add(rarity, func(secret, message string) []byte { return sum(secret + separator + message) }, "algorithm", "a plain "+h.String()+" hash")
			add(rarity, func(secret, message string) []byte { return sum(message + separator + secret) }, "algorithm", "a plain "+h.String()+" hash")
		}
		add(rare, func(secret, message string) []byte { return sum(secret + message + secret) }, "algorithm", "a plain "+h.String()+" hash")
		add(rare, func(secret, message string) []byte { return sum(string(sum(secret + message))) }, "algorithm", "a plain "+h.String()+" hash, applied twice")
		add(rare, func(_, message string) []byte { return sum(hex.EncodeToString(sum(message))) }, "algorithm", "a plain "+h.String()+" hash, applied twice")
		add(rare, func(secret, message string) []byte { return sum(string(hmac256(secret, message))) }, "algorithm", h.String()+" of the HMAC")
		add(rare, func(secret, message string) []byte { return sum(hex.EncodeToString(hmac256(secret, message))) }, "algorithm", h.String()+" of the HMAC")
	}
	if a.size == sha256.Size {
		for _, h := range []crypto.Hash{crypto.SHA512, crypto.SHA384} {
			sum := hmacOf(h.New)
			add(rare, func(secret, message string) []byte { return sum(secret, message)[:a.size] }, "algorithm", "a truncated "+hmacName(h))
		}
		for _, encode := range []func([]byte) string{func(b []byte) string { return string(b) }, hex.EncodeToString, base64.StdEncoding.EncodeToString} {
			for _, h := range []crypto.Hash{crypto.SHA256, crypto.MD5, crypto.SHA1} {
				add(rare, func(secret, message string) []byte { return hmac256(secret, encode(hashed(h, message))) }, "algorithm", "HMAC-SHA256 of a hash")
			}
			add(rare, func(secret, message string) []byte { return hmac256(secret, encode(hmac256(secret, message))) }, "algorithm", "HMAC-SHA256 applied twice")
			at, _, _ := parseTimestamp(a.Timestamp)
			for name, text := range map[string]string{"timestamp": a.Timestamp, "public key": a.PublicKey, "date": at.UTC().Format("20060102")} {
				add(rare, func(secret, message string) []byte { return hmac256(encode(hmac256(secret, text)), message) },
					"algorithm", "HMAC-SHA256 with a key derived from the private key and the "+name)
			}
		}
		for _, change := range []struct {
			what string
			of   func(b []byte) []byte
		}{
			{"the bytes in reverse order", func(b []byte) []byte { slices.Reverse(b); return b }},
			{"the digits in reverse order", func(b []byte) []byte {
				digits := []byte(hex.EncodeToString(b))
				slices.Reverse(digits)
				return decodeHex(string(digits))
			}},
			{"bytes swapped in pairs", func(b []byte) []byte { return reorder(b, 2) }},
			{"words in the other byte order", func(b []byte) []byte { return reorder(b, 4) }},
		} {
			add(rare, func(secret, message string) []byte { return change.of(hmac256(secret, message)) }, "signature_encoding", change.what)
		}
	}
	truncated := func(secret, message string) []byte { return hmac256(secret, message)[:a.size] }
	switch {
	case a.unpaddedSize > 0:
		add(common, truncated, "") // Read has found it
		add(common, func(secret, message string) []byte {
			if a.isUnpadded(hmac256(secret, message)) {
				return append(bytes.Clone(a.digest), make([]byte, a.size-len(a.digest))...)
			}
			return nil
		}, "signature_encoding", "hexadecimal digits without leading zeros")
	case a.size < sha256.Size:
		add(common, truncated, "signature_truncated")
		add(rare, func(secret, message string) []byte { return hmac256(secret, message)[sha256.Size-a.size:] }, "signature_truncated")
	}
}

// reorder reverses the bytes of each word of n bytes.
func reorder(b []byte, n int) []byte {
	for word := range slices.Chunk(b, n) {
		slices.Reverse(word)
	}
	return b
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

func hasHashSize(b []byte) bool {
	return slices.ContainsFunc(hashes(), func(h crypto.Hash) bool { return h.Size() == len(b) })
}

// decodeForm decodes a signature that is written neither in hexadecimal digits alone nor in base64, and names the form.
func decodeForm(text string) (digest []byte, form string) {
	unquoted := strings.Trim(strings.TrimPrefix(text, "b"), `"'`)
	literal, _ := strconv.Unquote(`"` + strings.NewReplacer(`"`, `\"`, `\'`, "'").Replace(unquoted) + `"`)
	plain := pathUnescape(text)
	latin, err := charmap.ISO8859_1.NewEncoder().Bytes(decodeHex(text))
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
		{"the hexadecimal digits of text", err == nil && len(latin) < len(text)/2, [][]byte{latin}},
		{"base32", text == strings.ToUpper(text), [][]byte{decodeBase32(text)}},
		{"a decimal number", isDigits(text) && len(text) > 2*sha256.Size && len(text) < 80, [][]byte{decodeDecimal(text)}},
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

func decodeBase32(text string) []byte {
	b, _ := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.TrimRight(strings.ToUpper(text), "="))
	return b
}

func decodeDecimal(text string) []byte {
	n, ok := new(big.Int).SetString(text, 10)
	if !ok || n.BitLen() > 8*sha256.Size {
		return nil
	}
	return n.FillBytes(make([]byte, sha256.Size))
}

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
	var each strings.Builder
	for _, b := range sum {
		each.WriteString(strconv.FormatUint(uint64(b), 16))
	}
	for _, text := range []string{each.String(), strings.TrimLeft(hex.EncodeToString(sum), "0")} {
		if len(text) == a.unpaddedSize && text[:digestKept] == a.unpadded {
			return true
		}
	}
	return false
}
