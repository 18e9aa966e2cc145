package audit

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxPage     = 100
	defaultPage = 25
	batch       = 500 // entries per read of a stream
)

// List returns a page of a business's entries, newest first, optionally of some actions only. cursor is the previous page's
// next, or "" for the first page; next is "" at the end. limit is clamped to 1 to 100; 0 means 25. Its errors are ErrBadCursor
// and ErrUnavailable.
func (l *Log) List(ctx context.Context, businessID, cursor string, limit int, actions ...string) (
	entries []Entry, next string, err error,
) {
	limit = min(max(cmp.Or(limit, defaultPage), 1), maxPage)
	if businessID == "" {
		return nil, "", nil
	}
	readers, ok := l.readers(businessID, cursor, actions)
	if !ok {
		return nil, "", ErrBadCursor
	}
	ctx, cancel := context.WithTimeout(ctx, l.o.Timeout)
	defer cancel()
	if err := l.run(ctx, "sweep", "", Entry{BusinessID: businessID}); err != nil {
		return nil, "", fmt.Errorf("listing: %w", err)
	}
	entries = make([]Entry, 0, limit)
	for {
		var newest *reader
		for _, r := range readers {
			if err := r.fill(ctx, l); err != nil {
				return nil, "", fmt.Errorf("%w: listing: %w", ErrUnavailable, err)
			}
			if len(r.batch) > 0 && (newest == nil || newest.batch[0].before(r.batch[0])) {
				newest = r
			}
		}
		switch {
		case newest == nil:
			return entries, "", nil
		case len(entries) == limit:
			return entries, readers[0].at + "." + readers[1].at, nil
		}
		entries = append(entries, newest.batch[0].Entry)
		newest.at, newest.batch = newest.batch[0].id, newest.batch[1:]
	}
}

// reader reads a stream, newest first.
type reader struct {
	business string
	key      string
	actions  []string // empty: all
	at       string   // ID of the last returned entry; "" at the beginning
	read     string   // ID of the last entry read
	batch    []stored // read but not returned
	end      bool
}

type stored struct {
	Entry

	id string // in its stream: milliseconds and a number
}

func (s stored) before(other stored) bool {
	a, b := parseID(s.id), parseID(other.id)
	return slices.Compare(a[:], b[:]) < 0
}

func parseID(id string) (parts [2]uint64) {
	ms, number, _ := strings.Cut(id, "-")
	parts[0], _ = strconv.ParseUint(ms, 10, 64)
	parts[1], _ = strconv.ParseUint(number, 10, 64)
	return parts
}

// position is the pattern of a reader's position in a cursor.
const position = `([0-9]{1,19}-[0-9]{1,19})?`

// readers returns the readers of both streams. A stream without any of the actions is not read.
func (l *Log) readers(businessID, cursor string, actions []string) ([2]*reader, bool) {
	var readers [2]*reader
	at := []string{"", ""}
	if cursor != "" {
		if ok, err := regexp.MatchString("^"+position+`\.`+position+"$", cursor); !ok || err != nil {
			return readers, false
		}
		at = strings.Split(cursor, ".")
	}
	for i, name := range []string{streamAccess, streamTools} {
		readers[i] = &reader{
			business: businessID, key: l.key(businessID, name), actions: actions, at: at[i], read: at[i],
			end: len(actions) > 0 && !slices.ContainsFunc(actions, func(a string) bool { return streamOf(a) == name }),
		}
	}
	return readers, true
}

// fill reads until the batch has an entry or the stream ends.
func (r *reader) fill(ctx context.Context, l *Log) error {
	for len(r.batch) == 0 && !r.end {
		from := "+"
		if r.read != "" {
			from = "(" + r.read
		}
		messages, err := l.o.Redis.XRevRangeN(ctx, r.key, from, "-", batch).Result()
		if err != nil {
			return err
		}
		for _, m := range messages {
			r.read = m.ID
			if e := r.decode(m); len(r.actions) == 0 || slices.Contains(r.actions, e.Action) {
				r.batch = append(r.batch, stored{e, m.ID})
			}
		}
		r.end = len(messages) < batch
	}
	return nil
}

// decode decodes an entry with its time.
func (r *reader) decode(m redis.XMessage) Entry {
	entry, _ := m.Values["entry"].(string)
	e := decode(r.business, entry)
	text, _ := m.Values["time"].(string)
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		e.Time = time.UnixMilli(ms).UTC()
	}
	return e
}
