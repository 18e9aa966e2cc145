package netfault

import (
	"maps"
	"net/http"
	"net/http/httptest"
)

// Handler wraps a handler and can lose one of its responses: the connection is closed instead when the handler has returned.
// It is safe for concurrent use.
type Handler struct {
	loss

	next http.Handler
}

// NewHandler returns a handler that loses no response until Lose is called.
func NewHandler(next http.Handler) *Handler { return &Handler{next: next} }

// ServeHTTP implements [http.Handler]. A response is sent when it is complete.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	recorded := httptest.NewRecorder()
	h.next.ServeHTTP(recorded, r)
	if h.loses() {
		panic(http.ErrAbortHandler) // net/http closes the connection, and logs nothing
	}
	maps.Copy(w.Header(), recorded.Header())
	w.WriteHeader(recorded.Code)
	_, _ = w.Write(recorded.Body.Bytes())
}
