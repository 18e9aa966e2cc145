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
)

// List returns a page of a business's entries, newest first, of the given actions or, if there are none, of all. cursor is the
// previous page's next, or "" for the first page; next is "" at the end. limit is clamped to 1 to 100; 0 means 25. Its errors are
// ErrBadCursor and ErrUnavailable.
func (l *Log) List(ctx context.Context, businessID, cursor string, limit int, actions ...string) (entries []Entry, next string, err error) {
	limit = min(max(cmp.Or(limit, defaultPage), 1), maxPage)
	if businessID == "" {
		return nil, "", nil
	}
	// A cursor is the stream ID of the last returned entry and the index of its stream, which orders entries with the same ID.
	id, last := "", 0
	if cursor != "" {
		m := regexp.MustCompile(`^([1-9][0-9]{0,18}-[0-9]{1,19})\.([0-9]{1,2})$`).FindStringSubmatch(cursor)
		if m == nil {
			return nil, "", ErrBadCursor
		}
		id = m[1]
		last, _ = strconv.Atoi(m[2])
	}
	ctx, cancel := context.WithTimeout(ctx, l.o.Timeout)
	defer cancel()
	if err := l.run(ctx, "sweep", "", Entry{BusinessID: businessID}, streams()...); err != nil {
		return nil, "", fmt.Errorf("listing: %w", err)
	}
	replies := make(map[int]*redis.XMessageSliceCmd)
	_, err = l.o.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range streams() {
			from := "(" + id
			switch {
			case len(actions) > 0 && !slices.Contains(actions, strings.TrimSuffix(name, deniedSuffix)):
				continue
			case cursor == "":
				from = "+"
			case i > last:
				from = id
			}
			replies[i] = p.XRevRangeN(ctx, l.key(businessID, name), from, "-", int64(limit)+1)
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("%w: listing: %w", ErrUnavailable, err)
	}
	var found []stored
	for stream, reply := range replies {
		for _, m := range reply.Val() {
			found = append(found, stored{m, stream})
		}
	}
	slices.SortFunc(found, func(s, other stored) int { // newest first
		a, b := parseID(s.ID), parseID(other.ID)
		return cmp.Or(slices.Compare(b[:], a[:]), cmp.Compare(s.stream, other.stream))
	})
	if len(found) > limit {
		found = found[:limit]
		next = fmt.Sprintf("%s.%d", found[limit-1].ID, found[limit-1].stream)
	}
	for _, s := range found {
		entries = append(entries, s.entry(businessID))
	}
	return entries, next, nil
}

// stored is an entry in Redis, with the index of its stream in streams.
type stored struct {
	redis.XMessage

	stream int
}

// parseID parses the ID of a stream entry: milliseconds, a hyphen and a sequence number.
func parseID(id string) (parts [2]uint64) {
	ms, number, _ := strings.Cut(id, "-")
	parts[0], _ = strconv.ParseUint(ms, 10, 64)
	parts[1], _ = strconv.ParseUint(number, 10, 64)
	return parts
}

// entry decodes the entry and sets its time.
func (s stored) entry(businessID string) Entry {
	text, _ := s.Values["entry"].(string)
	e := decode(businessID, text)
	at, _ := s.Values["time"].(string)
	if ms, err := strconv.ParseInt(at, 10, 64); err == nil {
		e.Time = time.UnixMilli(ms).UTC()
	}
	return e
}
