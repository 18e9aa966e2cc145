// Package window implements the exact sliding window as a data structure without I/O, clock or locks.
//
// Times are microseconds since an arbitrary start and must be below 1<<47 (four years). The caller passes the window's
// length, the same one each time, and the limit, which may differ between calls.
package window

import "slices"

// Window is a log of requests, oldest first. A request counts from its time on, for the window's length. The zero value is an
// empty window.
type Window struct {
	entries []int64 // packed time and count
	open    int64   // when the first request was added to the newest entry
	head    int32   // entries before it have expired
	total   int32   // requests in entries[head:]
}

// Entry is a number of requests that count from the same time on.
type Entry struct {
	At    int64
	Count int
}

const (
	countBits = 16
	maxCount  = 1<<countBits - 1
	// parts is the number of parts that the window is divided into if the limit is higher than that, or if the log has more
	// than twice as many entries because more was allowed. It bounds the log. All requests of a part count from the time of
	// its last one, so that none expires early.
	parts = 256
)

func pack(at int64, count int) int64 { return at<<countBits | int64(count) }

func timeOf(e int64) int64 { return e >> countBits }

func countOf(e int64) int { return int(e & maxCount) }

// width returns for how long the newest entry accepts further requests.
func (w *Window) width(limit int, length int64) int64 {
	if limit > parts || len(w.entries)-int(w.head) > 2*parts {
		return max(1, length/parts)
	}
	return 1
}

// Total returns the number of requests in the window, as of the last Prune.
func (w *Window) Total() int { return int(w.total) }

// Newest returns the time of the newest request. The window must not be empty.
func (w *Window) Newest() int64 { return timeOf(w.entries[len(w.entries)-1]) }

// Before returns the time of the newest request other than the newest n; false if there is none.
func (w *Window) Before(n int) (int64, bool) {
	for i := len(w.entries) - 1; i >= int(w.head); i-- {
		if n -= countOf(w.entries[i]); n < 0 {
			return timeOf(w.entries[i]), true
		}
	}
	return 0, false
}

// Prune removes requests that have expired at now.
func (w *Window) Prune(now, length int64) {
	if w.total > 0 && w.Newest()+length <= now {
		w.entries, w.head, w.total = w.entries[:0], 0, 0
		return
	}
	for w.total > 0 && timeOf(w.entries[w.head])+length <= now {
		w.total -= int32(countOf(w.entries[w.head])) //nolint:gosec // 16 bits
		w.head++
	}
}

// Add counts one request. If now is before the newest request's time, that time is used instead.
func (w *Window) Add(now int64, limit int, length int64) {
	if w.total > 0 {
		last := len(w.entries) - 1
		now = max(now, timeOf(w.entries[last]))
		if held := countOf(w.entries[last]); held < maxCount && now-w.open < w.width(limit, length) {
			w.entries[last] = pack(now, held+1)
			w.total++
			return
		}
	}
	if len(w.entries) == cap(w.entries) && w.head > 0 {
		w.entries = w.entries[:copy(w.entries, w.entries[w.head:])]
		w.head = 0
	}
	w.entries = append(w.entries, pack(now, 1))
	w.total++
	w.open = now
}

// Retry returns the time until another request fits; 0 if it fits now.
func (w *Window) Retry(now int64, limit int, length int64) int64 {
	excess := int(w.total) - limit
	if excess < 0 {
		return 0
	}
	for _, e := range w.entries[w.head:] {
		excess -= countOf(e)
		if excess < 0 {
			return max(1, timeOf(e)+length-now)
		}
	}
	return length
}

// Reset returns the time until the oldest request expires; length if the window is empty.
func (w *Window) Reset(now, length int64) int64 {
	if w.total == 0 {
		return length
	}
	return max(1, timeOf(w.entries[w.head])+length-now)
}

// Last returns the newest n requests, oldest first.
func (w *Window) Last(n int) []Entry {
	if n <= 0 {
		return nil
	}
	var list []Entry
	for i := len(w.entries) - 1; i >= int(w.head) && n > 0; i-- {
		e := Entry{timeOf(w.entries[i]), min(n, countOf(w.entries[i]))}
		n -= e.Count
		list = append(list, e)
	}
	slices.Reverse(list)
	return list
}
