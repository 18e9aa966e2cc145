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

// Sign returns the signature of a request in lower-case hex, the value of X-Signature. timestamp is the value of X-Timestamp, Unix
// time in whole seconds. method is in upper case. target is the request target as sent, from /api/v1 on, including the query;
// [Target] returns it. body may be nil. If the secret is empty, Sign returns "", which no server accepts.
func Sign(secret Secret, timestamp int64, method, target string, body []byte) string {
	if !secret.usable() {
		return ""
	}
	h := hmac.New(sha256.New, []byte(secret.Reveal()))
	_, _ = h.Write(SigningString(timestamp, method, target, body)) // hash.Hash never returns an error
	return hex.EncodeToString(h.Sum(nil))
}

// SigningString returns the string to sign: timestamp LF METHOD LF target LF body.
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

// Target returns the request target to sign for u: path and query, escaped as net/http sends them. If the gateway is mounted
// below a path, basePath is that path, such as "/gw" for https://host/gw/api/v1/me; it is not signed. Target returns an error if
// u has no path, or none below basePath.
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
		return "", errors.New("the URL contains a line break")
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
