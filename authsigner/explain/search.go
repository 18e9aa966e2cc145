package explain

import (
	"cmp"
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed" // of variants.txt
	"fmt"
	"hash"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

const (
	maxPairText   = 4 << 10   // bytes of target and body up to which pairs of mistakes and rare changes of the body are tried
	maxRewritten  = 64 << 10  // bytes of a body up to which it is written in other ways
	maxTried      = 30_000    // HMACs after which a search ends
	maxHashed     = 128 << 20 // bytes of signed strings after which it ends
	maxPrefix     = 4         // segments of a path that may be an API's base path
	minSecretPart = 16        // bytes of a part of a private key that is tried: callers could guess a shorter one, and have it confirmed
)

// parts is what a signature is computed from, by the names that variants.txt uses.
type parts map[string]string

// variant is a way to do one part of signing that differs from the documented one.
type variant struct {
	code        string // of the mistake; empty if the variant is valid too
	arguments   []any  // of the mistake
	part, value string
	common      bool // tried in pairs with other common ones
}

// search tries the variants of signing for one attempt.
type search struct {
	attempt   *Attempt
	right, p  parts // p is the last combination
	functions map[string]func(string) string
	hashes    map[string]crypto.Hash
	seen      map[[2]string]bool // parts and their values
	variants  []variant
	sum       []byte // of the last combination
	tried     int
	hashed    int
}

func newSearch(a *Attempt, cred *authsigner.Credential, now time.Time) *search {
	target, secret := a.signedTarget(), cred.PrivateKey.Reveal()
	path, query, _ := strings.Cut(target, "?")
	hostname, _, _ := strings.Cut(a.Host, ":")
	_, rest, _ := strings.Cut(secret, "_")
	_, random, _ := strings.Cut(rest, "_") // sk_live_ is the prefix of issued keys, and the rest may have more underscores
	s := &search{attempt: a, p: parts{}, functions: functions(), hashes: hashes(), seen: map[[2]string]bool{}, right: parts{
		"timestamp": a.Timestamp, "method": a.Method, "body": string(a.Body), "public_key": a.PublicKey, "issued_public_key": cred.PublicKey,
		"target": target, "path": path, "query": query, "mark": target[len(path):], "scheme": cmp.Or(a.Scheme, "https"), "host": a.Host,
		"hostname": hostname, "base": a.BasePath, "secret": secret, "rest": rest, "random": random,
		"shape": shape("$timestamp\n$method\n$target\n$body"), "separator": "\n", "text": "$joined", "algorithm": "SHA-256 $secret $message",
	}}
	for part, value := range s.right {
		s.seen[[2]string{part, value}] = true
	}
	s.addDocument()
	if previous := cred.PreviousPrivateKey.Reveal(); previous != "" {
		code := "secret_previous"
		if now.IsZero() || now.Before(cred.PreviousExpiresAt) {
			code = "" // still valid
		}
		s.add(true, "secret", previous, code)
	}
	s.addPaths()
	s.addTimestamps()
	s.addQueries()
	reported := []string{"algorithm", "secret", "timestamp", "method", "target", "body", "shape", "separator", "text"}
	slices.SortStableFunc(s.variants, func(v, w variant) int { return slices.Index(reported, v.part) - slices.Index(reported, w.part) })
	return s
}

// add adds a variant, unless it is the right way or was added before.
func (s *search) add(common bool, part, value, code string, arguments ...any) {
	if key := [2]string{part, value}; !s.seen[key] && !(code == "secret_truncated" && len(value) < minSecretPart) {
		s.seen[key] = true
		s.variants = append(s.variants, variant{code, arguments, part, value, common})
	}
}

//go:embed variants.txt
var document string

// addDocument adds the variants of variants.txt.
func (s *search) addDocument() {
	part := ""
	for line := range strings.Lines(document) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) < 4 {
			part = strings.Trim(fields[0], "[]") // or a comment
			continue
		}
		common, code, detail := fields[0] == "common", fields[1], fields[2]
		if size := len(s.attempt.Body); size+len(s.attempt.Target) > maxPairText && !common && (part == "body" || part == "text") ||
			size == 0 && code == "body_newline" || (size == 0 || size > maxRewritten) && code == "body_encoded" {
			continue
		}
		for _, field := range fields[3:] {
			value, err := strconv.Unquote(`"` + strings.ReplaceAll(field, `"`, `\"`) + `"`)
			switch {
			case err != nil:
				panic("invalid format in variants.txt: " + field)
			case part == "shape":
				value = shape(value)
			case part != "text" && part != "algorithm":
				value = s.expand(s.right, value)
			}
			arguments := []any{detail}
			if detail == `"` {
				arguments[0] = fmt.Sprintf("%.80q", value)
			}
			s.add(common, part, value, code, arguments[:min(len(detail), 1)]...)
		}
	}
}

// shape returns a format of the signed string in which the separator can differ.
func shape(format string) string { return strings.ReplaceAll(format, "\n", "$separator") }

// expand replaces the names of parts in a format, and applies functions to them: ${hex:SHA-256:body}. What replaces a name is not
// expanded.
func (s *search) expand(p parts, format string) string {
	var named func(name string) string
	named = func(name string) string {
		function, rest, ok := strings.Cut(name, ":")
		switch {
		case !ok && name == "$":
			return "$"
		case !ok:
			return p[name]
		case strings.HasPrefix(function, "swap|"):
			swap := strings.Split(function, "|")
			return strings.ReplaceAll(named(rest), swap[1], swap[2])
		case function == "HMAC":
			return string(sumOf(hmac.New(sha256.New, []byte(p["secret"])), named(rest)))
		case s.hashes[function] != 0:
			return string(sumOf(s.hashes[function].New(), named(rest)))
		}
		return s.functions[function](named(rest))
	}
	return os.Expand(format, named)
}

// message returns the string that is signed.
func (s *search) message(p parts) string {
	p["joined"] = s.expand(p, p["shape"])
	return s.expand(p, p["text"])
}

func sumOf(h hash.Hash, message string) []byte {
	_, _ = h.Write([]byte(message))
	return h.Sum(nil)
}

// run returns the variants that give the signature: none, one or two.
func (s *search) run(ctx context.Context) (found []variant, ok bool) {
	if s.matches(ctx) {
		return nil, true
	}
	common := slices.DeleteFunc(slices.Clone(s.variants), func(v variant) bool { return !v.common })
	for _, v := range append(common, s.variants...) { // a large body ends the search before all rare ones
		if s.matches(ctx, v) {
			return []variant{v}, true
		}
	}
	if len(s.attempt.Target)+len(s.attempt.Body) > maxPairText {
		return nil, false
	}
	for i, v := range common {
		for _, w := range common[i+1:] {
			if v.part != w.part && s.matches(ctx, v, w) {
				return []variant{v, w}, true
			}
		}
	}
	return nil, false
}

// matches reports whether a combination gives the signature, or a sum that begins with it. The algorithm is a hash function, and the
// formats of the key, if there is one, and of the message.
func (s *search) matches(ctx context.Context, variants ...variant) bool {
	if s.tried >= maxTried || s.hashed >= maxHashed || ctx.Err() != nil {
		return false
	}
	s.tried++
	maps.Copy(s.p, s.right)
	for _, v := range variants {
		s.p[v.part] = v.value
	}
	name, formats, _ := strings.Cut(s.p["algorithm"], " ")
	h := s.hashes[name]
	if h.Size() < s.attempt.size {
		return false
	}
	s.p["message"] = s.message(s.p)
	s.hashed += len(s.p["message"])
	if key, message, ok := strings.Cut(formats, " "); ok {
		s.sum = sumOf(hmac.New(h.New, []byte(s.expand(s.p, key))), s.expand(s.p, message))
	} else {
		s.sum = sumOf(h.New(), s.expand(s.p, formats))
	}
	return subtle.ConstantTimeCompare(s.sum[:digestKept], s.attempt.digest) == 1 && s.attempt.unpaddedSize%2 == 0 || s.attempt.isUnpadded(s.sum)
}
