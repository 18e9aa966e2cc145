package netfault

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
)

// Handler wraps a handler and can lose one of its responses: the connection is closed instead when the handler has returned.
// It is safe for concurrent use.
type Handler struct {
	next http.Handler

	mu      sync.Mutex
	lose    int // the number of the response to lose; 0: none
	replies int // since Lose, including the lost one
}

// NewHandler returns a handler that loses no response until Lose is called.
func NewHandler(next http.Handler) *Handler { return &Handler{next: next} }

// Lose loses the n-th response from now on, starting at 1. 0 loses none. It resets Replies.
func (h *Handler) Lose(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lose, h.replies = n, 0
}

// Replies returns the number of responses since Lose, including the lost one.
func (h *Handler) Replies() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.replies
}

// ServeHTTP implements [http.Handler]. A response is sent when it is complete.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	recorded := httptest.NewRecorder()
	h.next.ServeHTTP(recorded, r)
	h.mu.Lock()
	h.replies++
	lost := h.replies == h.lose
	h.mu.Unlock()
	if lost {
		panic(http.ErrAbortHandler) // net/http closes the connection, and logs nothing
	}
	maps.Copy(w.Header(), recorded.Header())
	w.WriteHeader(recorded.Code)
	_, _ = w.Write(recorded.Body.Bytes())
}
