package upstream

import "net/http"

// ParseJWKS parses a JSON Web Key Set as RemoteKeys does.
func ParseJWKS(text []byte) (StaticKeys, error) { return parseJWKS(text) }

// ScrubRequest removes the headers that are not forwarded.
func ScrubRequest(h http.Header) {
	for name := range h {
		if !forwardable(h, name) {
			delete(h, name)
		}
	}
}
