package authsigner

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"strconv"
	"strings"
)

// Sign returns the signature of a request in lower-case hex: what X-Signature carries. The timestamp is Unix time in
// whole seconds and must be what X-Timestamp carries in decimal digits; the method is as sent, in upper case; the
// target is the request target as it goes over the wire, from /api/v1 on, query string included ([Target] finds it);
// the body may be nil. An empty secret signs nothing: the result is empty, which no server accepts.
func Sign(secret Secret, timestamp int64, method, target string, body []byte) string {
	if !secret.usable() {
		return ""
	}
	h := hmac.New(sha256.New, []byte(secret.Reveal()))
	_, _ = h.Write(SigningString(timestamp, method, target, body)) // a hash never returns an error
	return hex.EncodeToString(h.Sum(nil))
}

// SigningString returns what is signed: timestamp LF METHOD LF target LF body.
func SigningString(timestamp int64, method, target string, body []byte) []byte {
	s := make([]byte, 0, len("-9223372036854775808\n\n\n")+len(method)+len(target)+len(body))
	s = strconv.AppendInt(s, timestamp, 10)
	s = append(s, '\n')
	s = append(s, method...)
	s = append(s, '\n')
	s = append(s, target...)
	s = append(s, '\n')
	return append(s, body...)
}

// Target returns the request target that net/http sends for u and a gateway signs: path and query, escaped exactly
// as they go over the wire, without the fragment. If the gateway is mounted below a path, basePath names it ("/gw"
// for https://host/gw/api/v1/me) and is taken off. It is an error if u has no such target.
func Target(u *url.URL, basePath string) (string, error) {
	target := u.RequestURI()
	if !strings.HasPrefix(target, "/") { // an opaque URL: scheme://host/path
		_, rest, ok := strings.Cut(target, "://")
		slash := strings.IndexByte(rest, '/')
		if !ok || slash < 0 {
			return "", errors.New("the URL has no path")
		}
		target = rest[slash:]
	}
	if strings.ContainsAny(target, "\r\n") {
		return "", errors.New("the URL holds a line break")
	}
	if basePath = strings.TrimRight(basePath, "/"); basePath != "" {
		rest, ok := strings.CutPrefix(target, basePath)
		if !ok || !strings.HasPrefix(rest, "/") {
			return "", errors.New("the URL's path is not below the base path")
		}
		target = rest
	}
	return target, nil
}
