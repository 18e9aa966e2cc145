package netfault

import (
	"iter"
	"sync"
	"testing"
)

// Lossy is a [Handler] or a [RedisProxy].
type Lossy interface {
	Lose(n int)
	Replies() int
}

// loss says which reply is lost.
type loss struct {
	mu      sync.Mutex
	replies int  // since Lose
	lose    int  // the reply to lose; 0: none
	rest    bool // also lose all later ones
}

// Lose loses the n-th reply from now on, starting at 1, and closes its connection. 0 loses none. It resets Replies.
func (l *loss) Lose(n int) { l.set(n, false) }

func (l *loss) set(n int, rest bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replies, l.lose, l.rest = 0, n, rest
}

// Replies returns the number of replies since Lose, including lost ones.
func (l *loss) Replies() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replies
}

// loses counts a reply and reports whether it is lost.
func (l *loss) loses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replies++
	return l.replies == l.lose || l.rest && l.replies > l.lose
}

// LoseEach yields n = 1, 2, … with a function that runs a step whose n-th reply is lost and that must succeed, until no step
// receives n replies.
func LoseEach(tb testing.TB, from Lossy) iter.Seq2[int, func(step func() error)] {
	tb.Helper()
	return func(yield func(int, func(step func() error)) bool) {
		for n, lost := 1, true; lost; n++ {
			if n == 40 {
				tb.Fatal("a step receives too many replies")
			}
			lost = false
			lose := func(step func() error) {
				tb.Helper()
				from.Lose(n)
				err := step()
				lost = lost || from.Replies() >= n
				from.Lose(0)
				if err != nil {
					tb.Fatalf("reply %d lost: %v", n, err)
				}
			}
			if !yield(n, lose) {
				return
			}
		}
	}
}
