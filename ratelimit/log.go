package ratelimit

import "slices"

// A window is the in-memory twin of a bucket in Redis: what this gateway has
// admitted, oldest first, under the same rules. Times are microseconds since the
// Fleet began (47 bits, more than four years) and share a word with the count.
type window struct {
	entries []int64
	head    int   // entries before it have left
	total   int   // requests in entries[head:]
	open    int64 // when the newest entry took its first request
}

const (
	countBits = 16
	maxCount  = 1<<countBits - 1
)

func packEntry(at int64, count int) int64 { return at<<countBits | int64(count) }

func entryTime(e int64) int64 { return e >> countBits }

func entryCount(e int64) int { return int(e & maxCount) }

// width is for how long an entry takes requests. A request counts as if it had
// come with the last of its entry, so that the rule holds strictly, and entries
// of a 256th of the span bound the log to some 260, whatever the limit.
func width(limit int, span int64) int64 {
	if limit > 256 {
		return max(1, span/256)
	}
	return 1
}

// newest is the time of the newest entry.
func (w *window) newest() int64 { return entryTime(w.entries[len(w.entries)-1]) }

// oldest is the time of the oldest entry.
func (w *window) oldest() int64 { return entryTime(w.entries[w.head]) }

// prune forgets what has left the span that ends now.
func (w *window) prune(now, span int64) {
	if w.total > 0 && w.newest()+span <= now {
		w.entries, w.head, w.total = w.entries[:0], 0, 0
		return
	}
	for w.total > 0 && w.oldest()+span <= now {
		w.total -= entryCount(w.entries[w.head])
		w.head++
	}
}

// add counts one request. A time before the newest entry is taken for that.
func (w *window) add(now int64, limit int, span int64) {
	if w.total > 0 {
		last := len(w.entries) - 1
		now = max(now, entryTime(w.entries[last]))
		if held := entryCount(w.entries[last]); held < maxCount && now-w.open < width(limit, span) {
			w.entries[last] = packEntry(now, held+1)
			w.total++
			return
		}
	}
	if len(w.entries) == cap(w.entries) && w.head > 0 {
		w.entries = w.entries[:copy(w.entries, w.entries[w.head:])]
		w.head = 0
	}
	w.entries = append(w.entries, packEntry(now, 1))
	w.total++
	w.open = now
}

// retry is the time until one more request fits; 0 if it does now.
func (w *window) retry(now int64, limit int, span int64) int64 {
	excess := w.total - limit
	if excess < 0 {
		return 0
	}
	for _, e := range w.entries[w.head:] {
		excess -= entryCount(e)
		if excess < 0 {
			return max(1, entryTime(e)+span-now)
		}
	}
	return span
}

// reset is the time until the oldest entry leaves; span if there is none.
func (w *window) reset(now, span int64) int64 {
	if w.total == 0 {
		return span
	}
	return max(1, w.oldest()+span-now)
}

// A debt is admissions to enter into Redis: count of them, age microseconds ago.
type debt struct {
	count int
	age   int64
}

// debts lists, oldest first, the requests that came before lost and the newest of
// those that came later.
func (w *window) debts(now, lost int64, newest int) []debt {
	var list []debt
	for i := len(w.entries) - 1; i >= w.head; i-- {
		at, n := entryTime(w.entries[i]), entryCount(w.entries[i])
		if at >= lost {
			n = min(n, newest)
			newest -= n
		}
		if n > 0 {
			list = append(list, debt{n, max(0, now-at)})
		}
	}
	slices.Reverse(list)
	return list
}
