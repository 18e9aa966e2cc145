package authsigner_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"math/big"
	"regexp"
	"strings"
	"time"
)

// vector is one entry of testdata/vectors.json; its README.md explains every field.
type vector struct {
	Name             string            `json:"name"`
	Clock            int64             `json:"clock"`
	ClockNanoseconds int64             `json:"clock_nanoseconds,omitempty"`
	Method           string            `json:"method"`
	Target           string            `json:"target"`
	Headers          [][2]string       `json:"headers"`
	Body             string            `json:"body,omitempty"`
	BodyBase64       string            `json:"body_base64,omitempty"`
	BodyRepeat       int               `json:"body_repeat,omitempty"`
	Credential       *vectorCredential `json:"credential"`
	SignedWith       string            `json:"signed_with,omitempty"`
	SigningString    string            `json:"signing_string,omitempty"`
	SigningBase64    string            `json:"signing_string_base64,omitempty"`
	Signature        string            `json:"signature,omitempty"`
	Signed           map[string]string `json:"signed,omitempty"`
	Result           string            `json:"result"`
}

type vectorCredential struct {
	PublicKey          string `json:"public_key"`
	PrivateKey         string `json:"private_key"`
	PreviousPrivateKey string `json:"previous_private_key,omitempty"`
	PreviousExpiresAt  string `json:"previous_expires_at,omitempty"`
	Status             string `json:"status"`
}

func (v *vector) body() []byte {
	body := v.Body + string(decodeBase64(v.BodyBase64))
	return []byte(strings.Repeat(body, max(1, v.BodyRepeat)))
}

func decodeBase64(s string) []byte {
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return data
}

const (
	resultOK       = "ok"
	resultMissing  = "MISSING_CREDENTIALS"
	resultExpired  = "REQUEST_EXPIRED"
	resultInvalid  = "INVALID_CREDENTIALS"
	resultInactive = "ACCOUNT_INACTIVE"
	resultTooLarge = "BODY_TOO_LARGE"
)

var (
	referenceDigits = regexp.MustCompile(`\A[0-9]{1,20}\z`)
	// The first three characters are not "sk_".
	referencePublicKey = regexp.MustCompile(`\A([A-Za-rt-z0-9_-][A-Za-z0-9_-]{2}|s[A-Za-jl-z0-9_-][A-Za-z0-9_-]|sk[A-Za-z0-9-])[A-Za-z0-9_-]{5,125}\z`)
	referenceSignature = regexp.MustCompile(`\A[0-9A-Fa-f]{64}\z`)
)

// referenceResult is a second implementation of the rules in testdata/README.md. It shares nothing with the package.
func referenceResult(v *vector) string {
	sole := func(name string) (string, bool) {
		var values []string
		for _, h := range v.Headers {
			if strings.EqualFold(h[0], name) {
				values = append(values, h[1])
			}
		}
		if len(values) != 1 || values[0] == "" {
			return "", false
		}
		return values[0], true
	}
	publicKey, hasKey := sole("x-public-key")
	timestamp, hasTimestamp := sole("x-timestamp")
	signature, hasSignature := sole("x-signature")
	if !hasKey || !hasTimestamp || !hasSignature {
		return resultMissing
	}

	if !referenceDigits.MatchString(timestamp) {
		return resultInvalid
	}
	seconds, _ := new(big.Int).SetString(timestamp, 10)
	distance := new(big.Int).Sub(seconds, big.NewInt(v.Clock))
	if distance.Abs(distance).Cmp(big.NewInt(300)) > 0 {
		return resultExpired
	}

	body := v.body()
	if len(body) > 1048576 {
		return resultTooLarge
	}

	c := v.Credential
	if c == nil || c.PublicKey != publicKey || !referencePublicKey.MatchString(publicKey) {
		return resultInvalid
	}
	if !referenceSignature.MatchString(signature) || strings.Contains(v.Method+v.Target, "\n") {
		return resultInvalid
	}
	secrets := []string{c.PrivateKey}
	if c.PreviousExpiresAt != "" {
		end, err := time.Parse(time.RFC3339, c.PreviousExpiresAt)
		if err != nil {
			panic(err)
		}
		if time.Unix(v.Clock, v.ClockNanoseconds).Before(end) {
			secrets = append(secrets, c.PreviousPrivateKey)
		}
	}
	for _, secret := range secrets {
		if strings.ReplaceAll(secret, "\x00", "") == "" {
			continue
		}
		if hmacHex(secret, timestamp+"\n"+v.Method+"\n"+v.Target+"\n"+string(body)) == strings.ToLower(signature) {
			if c.Status != "active" {
				return resultInactive
			}
			return resultOK
		}
	}
	return resultInvalid
}

// hmacHex signs without the package.
func hmacHex(secret, message string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(message))
	return hex.EncodeToString(h.Sum(nil))
}
