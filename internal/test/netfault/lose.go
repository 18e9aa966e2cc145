package netfault

import (
	"iter"
	"testing"
)

// Lossy is a [Handler] or a [RedisProxy].
type Lossy interface {
	Lose(n int)
	Replies() int
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
