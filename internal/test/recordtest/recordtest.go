// Package recordtest records the output of processes and events, for tests that read them at the same time.
package recordtest

import (
	"bytes"
	"slices"
	"sync"
)

// Output collects the output of a process.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

// String returns all output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Tail returns the last n bytes of the output.
func (o *Output) Tail(n int) string {
	s := o.String()
	return s[max(0, len(s)-n):]
}

// Events collects events.
type Events[E any] struct {
	mu   sync.Mutex
	list []E
}

// Add appends an event.
func (e *Events[E]) Add(event E) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, event)
}

// All returns the events so far.
func (e *Events[E]) All() []E {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

// Count returns how many of the events so far match.
func (e *Events[E]) Count(match func(E) bool) int {
	n := 0
	for _, event := range e.All() {
		if match(event) {
			n++
		}
	}
	return n
}
