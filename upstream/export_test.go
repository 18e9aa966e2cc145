package upstream

import "net/http"

// ScrubRequest removes the headers that are not forwarded.
func ScrubRequest(h http.Header) {
	for name := range h {
		if !forwardable(h, name) {
			delete(h, name)
		}
	}
}
