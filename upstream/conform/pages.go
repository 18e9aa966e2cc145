package conform

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// maxFollowed is the maximum number of cursors of a list that are followed.
const maxFollowed = 10

// sizeParam returns the parameter with the maximum number of records of a list, or nil.
func sizeParam(op *upstream.Operation) *upstream.Param {
	for i := range op.Responses {
		if records := op.Responses[i].Records; records != nil && records.AtMost > 0 {
			return paramByNumber(op, records.AtMost)
		}
	}
	return nil
}

func paramByNumber(op *upstream.Operation, number int) *upstream.Param {
	i := slices.IndexFunc(op.Params, func(p upstream.Param) bool { return p.Number == number })
	if i < 0 {
		return nil
	}
	return &op.Params[i]
}

// bound returns the minimum or maximum of a parameter, or a default.
func bound(p *upstream.Param, upper bool, byDefault int) int {
	rules := cmp.Or(p.Schema.Rules, upstream.NewRules())
	text, open, inside := rules.Min, rules.MinOpen, 1
	if upper {
		text, open, inside = rules.Max, rules.MaxOpen, -1
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return byDefault
	case open:
		return n + inside
	}
	return n
}

// isWholeList reports whether no page follows a list: its cursor says so, or it has fewer records than were asked for or, if that is not known,
// no parameter could choose a page. x must be ok.
func isWholeList(x *exchange) bool {
	switch {
	case x.res.Cursor != "":
		return nextCursor(x) == ""
	case x.res.Records != nil && x.res.Records.AtMost > 0:
		return len(x.records) < x.clean.Numbers[x.res.Records.AtMost-1]
	}
	return !slices.ContainsFunc(x.op.Params, func(p upstream.Param) bool { return p.Schema.Types&upstream.TypeInteger != 0 })
}

// pageParam returns the parameter that selects a page, and whether it is an offset, which counts records instead of pages.
func pageParam(x *exchange) (page *upstream.Param, offset bool) {
	var echoed func(s *upstream.Schema, depth int) *upstream.Param
	echoed = func(s *upstream.Schema, depth int) *upstream.Param {
		for i := range s.Properties {
			p := &s.Properties[i]
			if asked := paramByNumber(x.op, p.Number); p.Number > 0 && asked != nil && asked != sizeParam(x.op) {
				return asked
			}
			if depth < 4 {
				if found := echoed(p.Schema, depth+1); found != nil {
					return found
				}
			}
		}
		return nil
	}
	if x.op.Mapping != nil {
		for _, v := range x.op.Mapping.Query {
			for _, part := range v.Value {
				if part.Page > 0 { // the gateway makes an offset of it
					return paramByNumber(x.op, part.Page), false
				}
			}
		}
	}
	if x.res.Body == nil {
		return nil, false
	}
	if page = echoed(x.res.Body, 0); page != nil {
		contains := func(part string) bool { return strings.Contains(strings.ToLower(page.Name), part) }
		offset = slices.ContainsFunc([]string{"offset", "skip", "start", "from", "first", "position"}, contains)
	}
	return page, offset
}

// probePages compares pages with the whole list.
func (r *run) probePages(ctx context.Context, first *exchange) {
	size := sizeParam(first.op)
	if first.res.Records == nil {
		return
	}
	all := r.keys(first)
	if first.res.Cursor != "" && (size != nil || nextCursor(first) != "") {
		r.probeCursors(ctx, first, all)
	}
	page, offset := pageParam(first)
	if size == nil || page == nil {
		return
	}
	least, small := max(bound(size, false, 1), 1), first.request
	if !offset && len(page.Default) == 0 && bound(page, false, -1) < 0 {
		r.skip(first.op, "paging: pages may be counted from 0 or 1: give the parameter "+page.Name+" a minimum or a default")
		return
	}
	start := bound(page, false, 1)
	if offset || len(page.Default) > 0 && page.Default[0] == "0" {
		start = bound(page, false, 0)
	}
	if two := max(least, 2); len(all) >= 2*two && two <= bound(size, true, two) { // with pages of one record, an offset looks like a page number
		least = two
	}
	small.query = withParam(small.query, size.Name, strconv.Itoa(least))
	step, end := map[bool]int{false: 1, true: least}[offset], min(bound(page, true, 1_000_000), 1_000_000)
	if len(all) < 2*least {
		if !first.mayBeRefused { // a filtered list
			r.skip(first.op, "paging: A has too few records for two pages")
		}
	} else {
		k := len(all)/least - 2
		if isWholeList(first) { // its last page may have fewer records
			k = (len(all)-1)/least - 1
		}
		k = max(0, min(k, (end-start)/step-1))
		var got []string
		var last *exchange
		ofAll, _ := total(first)
		for n := k; n < k+2; n++ {
			q := small
			q.query = withParam(q.query, page.Name, strconv.Itoa(start+n*step))
			if last = r.fetch(ctx, q, ""); last == nil || !last.ok() {
				return
			}
			got = append(got, r.keys(last)...)
			count, name := total(last)
			isOfPage := count == len(last.records) && count < len(all) && ofAll == len(all)
			if isOfPage || count >= 0 && name != "total" && isWholeList(first) && !first.mayBeRefused && count != len(all) {
				r.addFinding("paging", last, Finding{Expected: "the number of all records as " + name, Got: "another one"})
			}
		}
		want := all[k*least : min((k+2)*least, len(all))]
		switch sorted := slices.Sorted(slices.Values(got)); {
		case slices.Equal(got, want), len(got) > 2*least: // too many records are reported by the rule at-most
		case len(slices.Compact(sorted)) < len(got):
			r.addFinding("paging", last, Finding{Expected: "other records than on the page before", Got: "a record that was on it"})
		default:
			r.addFinding("paging", last, Finding{Expected: "the records that follow those of the page before in the whole list", Got: "others"})
		}
	}
	if isWholeList(first) {
		q := first.request
		if len(all) <= least {
			q = small
		}
		number := start + 1
		if offset {
			number = start + len(all)
		}
		q.query = withParam(q.query, page.Name, strconv.Itoa(number))
		if x := r.fetch(ctx, q, ""); x.ok() && slices.ContainsFunc(r.keys(x), func(key string) bool { return !slices.Contains(all, key) }) {
			r.addFinding("paging", x, Finding{
				Expected: "no more records than the whole list has", Got: fmt.Sprintf("%d more", len(x.records)),
			})
		}
	}
	q := small
	q.query, q.param, q.mayBeRefused = withParam(q.query, page.Name, strconv.Itoa(end)), page.Name, true
	if x := r.fetch(ctx, q, "parameter"); x.ok() && len(x.records) > 0 && (end-start)/step*least >= len(all) && isWholeList(first) {
		r.addFinding("paging", x, Finding{Expected: "an empty list past the end", Got: fmt.Sprintf("%d records", len(x.records))})
	}
}

// total returns the number of all records that a response states, and its name. If the name is only total, it may be another number.
func total(x *exchange) (n int, name string) {
	body, _ := x.value.(map[string]any)
	for _, in := range append(slices.Sorted(maps.Keys(body)), "") {
		members, isPart := body[in].(map[string]any)
		if !isPart && in == "" {
			members = body
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			n, err := strconv.Atoi(scalar(members[name]))
			if err == nil && slices.Contains(strings.Fields("total totalcount totalitems totalrecords"), strings.ToLower(strings.ReplaceAll(name, "_", ""))) {
				return n, name
			}
		}
	}
	return -1, ""
}

// probeCursors follows cursors through a list.
func (r *run) probeCursors(ctx context.Context, first *exchange, all []string) {
	isWhole := nextCursor(first) == ""
	got, done := r.follow(ctx, first.request, len(all), func(int) {})
	isNext := got.last != nil && got.last.recordParam == first.res.Cursor
	if isNext && !first.mayBeRefused {
		r.cursors[first.op] = got.last.request
	}
	switch {
	case got.err != "":
		r.addFinding("cursor", got.last, Finding{Expected: "records and a cursor that no page before had", Got: got.err})
	case done && isWhole && !slices.Equal(got.keys, all), !slices.Equal(got.keys[:min(len(got.keys), len(all))], all[:min(len(got.keys), len(all))]):
		r.addFinding("cursor", got.last, Finding{Expected: "the records of the whole list, in its order", Got: fmt.Sprintf("other ones: %d instead of %d", len(got.keys), len(all))})
	case isNext && got.last.isRefused() && !first.mayBeRefused:
		r.addFinding("cursor", got.last, Finding{Expected: "records for the cursor that the service sent", Got: fmt.Sprintf("status %d", got.last.status)})
	case !done && isWhole && got.last.ok() && len(got.keys) >= len(all): // otherwise, pages are shorter than asked for
		r.addFinding("cursor", got.last, Finding{Expected: "no cursor at the end of the list", Got: "one more"})
	}
}

// followResult is the result of following cursors: the keys of all records, the last page, and what was wrong.
type followResult struct {
	keys []string
	last *exchange
	err  string
}

// follow reads pages by their cursors, until it is done with the list: about five, if their size can be chosen. It calls between before each page
// but the first.
func (r *run) follow(ctx context.Context, q request, records int, between func(page int)) (got followResult, done bool) {
	if size := sizeParam(q.op); size != nil {
		q.query = withParam(q.query, size.Name, strconv.Itoa(max(bound(size, false, 1), (records+4)/5)))
	}
	for n := range maxFollowed {
		if n > 0 {
			between(n)
		}
		x := r.sendAndCheck(ctx, q, "")
		if x == nil && n > 0 {
			got.err = "a cursor that its parameter does not allow"
		}
		if got.last = cmp.Or(x, got.last); !x.ok() {
			return got, false
		}
		for i, key := range r.keys(x) {
			if slices.Contains(got.keys, key) && r.id(x.op, x.records[i]) != "" {
				got.err = "a record that was on a page before"
				return got, true
			}
			got.keys = append(got.keys, key)
		}
		next := nextCursor(x)
		if next == "" {
			return got, true
		}
		if withParam(q.query, x.res.Cursor, next) == q.query {
			got.err = "the same cursor again"
			return got, true
		}
		q.query, q.recordParam, q.ofRecords = withParam(q.query, x.res.Cursor, next), x.res.Cursor, true
	}
	return got, false
}

// nextCursor returns the cursor of the next page, or "".
func nextCursor(x *exchange) string {
	value, _ := at(x.value, x.res.Next...)
	return scalar(value)
}
