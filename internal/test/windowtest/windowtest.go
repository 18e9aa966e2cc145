// Package windowtest is the naive sliding window, with which tests compare the real ones. Times are microseconds.
package windowtest

import (
	"math/rand/v2"
	"slices"
)

// Model keeps the time of every request, oldest first.
type Model struct{ At []int64 }

// State is the state of a window. Retry is 0 if another request fits.
type State struct {
	Remaining    int
	Reset, Retry int64
}

// Add counts a request.
func (m *Model) Add(at int64) {
	i, _ := slices.BinarySearch(m.At, at+1)
	m.At = slices.Insert(m.At, i, at)
}

// Inside returns the requests that have not expired at now.
func (m *Model) Inside(now, span int64) []int64 {
	i, _ := slices.BinarySearch(m.At, now-span+1)
	return m.At[i:]
}

// State returns the state of the window at now.
func (m *Model) State(now, span int64, limit int) State {
	inside := m.Inside(now, span)
	s := State{Remaining: max(0, limit-len(inside)), Reset: span}
	if len(inside) > 0 {
		s.Reset = inside[0] + span - now
	}
	if excess := len(inside) - limit; excess >= 0 {
		s.Retry = inside[excess] + span - now
	}
	return s
}

// NextTime returns a random time from now on: the same, a little or much later, or when a request expires.
func NextTime(r *rand.Rand, now, span int64, models []Model) int64 {
	switch r.IntN(10) {
	case 0:
		return now + r.Int64N(span+span/2)
	case 1:
		return now
	case 2:
		m := models[r.IntN(len(models))]
		if len(m.At) == 0 {
			return now
		}
		return max(now, m.At[r.IntN(len(m.At))]+span-r.Int64N(2))
	default:
		return now + r.Int64N(span/8)
	}
}
