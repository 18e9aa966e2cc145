package losttest

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
)

// Handler wraps a handler so that one of its responses is lost: the handler runs to its end, and the connection is closed
// without a byte of the response. It is safe for concurrent use.
type Handler struct {
	next http.Handler

	mu      sync.Mutex
	lose    int // the response with this number is lost; 0: none
	replies int // responses since Lose, the lost one included
}

// NewHandler returns a handler that loses nothing until Lose is called.
func NewHandler(next http.Handler) *Handler { return &Handler{next: next} }

// Lose has the n-th response, counted from now, lost. 0: none is. It begins the count anew.
func (h *Handler) Lose(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lose, h.replies = n, 0
}

// Replies is how many responses there were since the last Lose, the lost one included.
func (h *Handler) Replies() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.replies
}

// ServeHTTP implements [http.Handler]. Responses are recorded whole before any of it is sent.
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
