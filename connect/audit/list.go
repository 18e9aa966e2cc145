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
	batch       = 100 // entries per read of a stream
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
		if err := l.fill(ctx, readers); err != nil {
			return nil, "", fmt.Errorf("%w: listing: %w", ErrUnavailable, err)
		}
		var newest *reader
		for _, r := range readers {
			if len(r.batch) > 0 && (newest == nil || newest.batch[0].before(r.batch[0])) {
				newest = r
			}
		}
		switch {
		case newest == nil:
			return entries, "", nil
		case len(entries) == limit:
			return entries, next, nil
		}
		entries = append(entries, newest.batch[0].Entry)
		next = fmt.Sprintf("%s.%d", newest.batch[0].id, newest.number)
		newest.batch = newest.batch[1:]
	}
}

// reader reads a stream, newest first.
type reader struct {
	business string
	key      string
	number   int      // of the stream, by which entries with the same ID in different streams are ordered
	actions  []string // empty: all
	from     string   // where to continue, as an argument of XREVRANGE
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

// readers returns the readers of the streams that can have the actions. A cursor is the ID of the last returned entry and the
// number of its stream.
func (l *Log) readers(businessID, cursor string, actions []string) (readers []*reader, ok bool) {
	id, last := "", 0
	if cursor != "" {
		m := regexp.MustCompile(`^([0-9]{1,19}-[0-9]{1,19})\.([0-9]{1,2})$`).FindStringSubmatch(cursor)
		if m == nil {
			return nil, false
		}
		id = m[1]
		last, _ = strconv.Atoi(m[2])
	}
	for i, name := range streams() {
		action := strings.TrimSuffix(name, deniedSuffix)
		if name == oldStreamTools {
			action = ToolCalled
		}
		if len(actions) > 0 && name != oldStreamAccess && !slices.Contains(actions, action) {
			continue
		}
		r := &reader{business: businessID, key: l.key(businessID, name), number: i, actions: actions, from: "+"}
		switch {
		case cursor != "" && i > last: // an entry with the same ID comes after the cursor's
			r.from = id
		case cursor != "":
			r.from = "(" + id
		}
		readers = append(readers, r)
	}
	return readers, true
}

// fill reads until each reader's batch has an entry or its stream ends.
func (l *Log) fill(ctx context.Context, readers []*reader) error {
	for {
		empty := slices.DeleteFunc(slices.Clone(readers), func(r *reader) bool { return len(r.batch) > 0 || r.end })
		if len(empty) == 0 {
			return nil
		}
		replies := make([]*redis.XMessageSliceCmd, len(empty))
		_, err := l.o.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, r := range empty {
				replies[i] = p.XRevRangeN(ctx, r.key, r.from, "-", batch)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, r := range empty {
			r.add(replies[i].Val())
		}
	}
}

// add adds entries that were read to the batch.
func (r *reader) add(messages []redis.XMessage) {
	for _, m := range messages {
		r.from = "(" + m.ID
		if e := r.decode(m); len(r.actions) == 0 || slices.Contains(r.actions, e.Action) {
			r.batch = append(r.batch, stored{e, m.ID})
		}
	}
	r.end = len(messages) < batch
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
