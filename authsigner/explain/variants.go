package explain

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// addTimestamps adds other timestamps.
func (s *search) addTimestamps() {
	at := s.attempt.sentAt
	if at.IsZero() {
		return
	}
	common := true
	add := func(all ...string) {
		for _, text := range all {
			s.add(common, "timestamp", text, "timestamp_other", strconv.Quote(text))
		}
	}
	seconds, utc := at.Unix(), at.UTC()
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	add(number(seconds), number(seconds+1), number(seconds-1), number(at.UnixMilli()), utc.Format("2006-01-02T15:04:05.000Z"), utc.Format(time.RFC3339))
	common = false
	add(number(at.UnixMicro()), number(at.UnixNano()), number(seconds)+".0", strconv.Quote(number(seconds)), "")
	for _, layout := range append(timestampLayouts(), time.UnixDate, "2006-01-02T15:04:05-07:00", "20060102", "20060102150405") {
		add(utc.Format(layout))
	}
	add(fmt.Sprint(float64(seconds)), fmt.Sprintf("%E", float64(seconds)), strconv.FormatInt(seconds, 16))
	for milli := range int64(1000) { // the header was rounded, the signed timestamp was not
		exact := time.UnixMilli(seconds*1000 + milli).UTC()
		fraction := fmt.Sprintf("%d.%03d", seconds, milli)
		add(number(seconds*1000+milli), fraction, strings.TrimRight(fraction, "0"), exact.Format("2006-01-02T15:04:05.000Z"))
	}
	for off := range int64(15 * 60) { // the clock was read twice, or a signature was kept
		add(number(seconds-off), number(seconds+off))
	}
	for zone := range int64(24 * 4) { // local time taken for UTC
		add(number(seconds+(zone+1)*15*60), number(seconds-(zone+1)*15*60))
	}
}

// addPaths adds targets without their first segments, which may be the API's base path, and with a slash more or less.
func (s *search) addPaths() {
	path, target := s.right["path"], s.right["target"]
	for i, segments := 1, 0; i < len(path) && segments < maxPrefix; i++ {
		if path[i] != '/' {
			continue
		}
		segments++
		s.add(true, "target", target[i:], "path_prefix_missing")
		for _, other := range []string{path[i:], pathUnescape(target[i:]), target[i+1:]} {
			s.add(false, "target", other, "path_prefix_missing")
		}
		s.add(false, "target", target[:i]+"/"+target[i:], "path_slash", "it has two instead of one")
	}
	s.add(true, "target", strings.TrimPrefix(target, "/"), "path_slash", "it begins without one")
}

// addQueries adds targets with another query.
func (s *search) addQueries() {
	path, query, hasQuery := strings.Cut(s.right["target"], "?")
	if !hasQuery {
		return
	}
	add := func(common bool, pairs []string, code string, arguments ...any) {
		target := path
		if len(pairs) > 0 {
			target += "?" + strings.Join(pairs, "&")
		}
		s.add(common, "target", target, code, arguments...)
	}
	pairs := strings.Split(query, "&")
	few := min(len(pairs), 8) // the sender of the request chooses how many there are; the API has fewer
	sorted := slices.Sorted(slices.Values(pairs))
	add(true, sorted, "query_order")
	if values, err := url.ParseQuery(query); err == nil {
		add(true, []string{values.Encode()}, "query_encoded", "sorted, with + for a space")
		add(true, []string{strings.ReplaceAll(values.Encode(), "+", "%20")}, "query_encoded", "sorted, with %20 for a space")
	}
	kept := slices.DeleteFunc(slices.Clone(pairs), func(p string) bool { return strings.HasSuffix(p, "=") || !strings.Contains(p, "=") })
	add(true, kept, "query_encoded", "without empty values")
	slices.Reverse(sorted)
	add(true, sorted, "query_order")
	for i, p := range pairs[:few] {
		name, value, _ := strings.Cut(p, "=")
		quoted := fmt.Sprintf("%.80q", name)
		what := "without " + quoted
		if slices.Contains(pairs[i+1:], p) {
			what = "with the repeated " + quoted + " only once"
		}
		add(true, slices.Delete(slices.Clone(pairs), i, i+1), "query_encoded", what)
		if n, err := strconv.Atoi(value); err == nil {
			for _, other := range []string{strconv.Itoa(n - 1), strconv.Itoa(n + 1), "0", "1", value + ".0", "'" + value + "'", `"` + value + `"`} {
				changed := slices.Clone(pairs)
				changed[i] = name + "=" + other
				add(false, changed, "query_encoded", "with another "+quoted)
			}
		}
	}
	for i := range few {
		add(false, pairs[:i], "query_encoded", "without several parameters")
		add(false, pairs[i:], "query_encoded", "without several parameters")
		add(false, slices.Concat(pairs[i:], pairs[:i]), "query_order")
	}
}
