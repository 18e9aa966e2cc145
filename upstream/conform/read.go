package conform

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/google/uuid"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

const (
	maxValues   = 20 // of a parameter
	unusualText = `gatehouse conform é'"%`
)

// probeRead tests an operation that changes nothing.
func (r *run) probeRead(ctx context.Context, op *upstream.Operation) {
	if op.Method != http.MethodGet {
		q, _, ok := r.prepared(ctx, op)
		if !ok {
			return
		}
		x := r.fetch(ctx, q, "")
		if r.probeAssertions(ctx, q); !x.ok() {
			r.skip(op, "the example of its request is not accepted: nothing else was asked")
			return
		}
		if theirs, valid := r.as(q, "B"); valid && r.B != "" && isIsolated(op) && len(q.values) == 0 {
			r.compareLists(x, r.fetch(ctx, theirs, ""))
		}
		r.probeUnknown(ctx, x, nil, false)
		return
	}
	samples, known := r.bind(ctx, op, "A")
	if len(samples) == 0 {
		r.skip(op, "A has no record whose ID could be asked for")
		return
	}
	var first *exchange
	for _, values := range samples {
		x := r.list(ctx, op, values, "A")
		if x == nil {
			r.skip(op, noRequest)
			return
		}
		mayLack := !isRecord(op) && !isList(op) && (x.status == http.StatusNotFound || x.status == http.StatusConflict) // an order without an invoice
		if known && x.isRefused() && !mayLack {
			r.addFinding("record", x, Finding{Expected: "the record, because a list of the business has its ID", Got: fmt.Sprintf("status %d", x.status)})
		}
		r.compareParents(x)
		if first == nil || !first.ok() || x.ok() && len(first.records) == 0 {
			first = x
		}
	}
	if !first.ok() {
		if known && first.status == http.StatusNotFound { // an order without an invoice
			r.probeAssertions(ctx, first.request)
		}
		if s := op.Success(); first.status == http.StatusNotFound && first.refused == nil && len(idParams(op)) == 0 && !strings.Contains(r.examples[op].Target, "?") &&
			s != nil && s.Body != nil && (s.Body.Items != nil || s.Records != nil && s.Records.In != "") {
			r.addFinding("status", first, Finding{Expected: "success for a list of A", Got: "status 404"})
		}
		if ctx.Err() == nil {
			r.skip(op, "its first response is not one of success: nothing else was asked")
		}
		return
	}
	if first.list && len(first.records) == 0 {
		r.skip(op, "A has no records in it: order, pages, filters and isolation are not known")
	} else if first.list {
		for i, record := range first.records {
			isSame := func(other any) bool { return canonical(op, other) == canonical(op, record) }
			if r.id(op, record) != "" && slices.ContainsFunc(first.records[:i], isSame) {
				r.addFinding("paging", first, Finding{Pointer: pointerTo(first, i), Expected: "each record once", Got: "one twice"})
			}
		}
		r.probePages(ctx, first)
	}
	r.probeParameters(ctx, first)
	r.probeConditional(ctx, first)
	r.probeIsolation(ctx, op, samples, known)
	r.probeUnknown(ctx, first, samples[0], known)
	r.probeAssertions(ctx, first.request)
}

// compareParents compares members of records with the parameters of the path that have the same name. Below a record, others may have a number of
// their own, for instance, or be of the same kind and known by that member.
func (r *run) compareParents(x *exchange) {
	for i, p := range idParams(x.op) {
		below := !strings.HasSuffix(path.Clean(x.op.Path), "{"+p.Name+"}")
		for n, record := range x.records {
			members, _ := record.(map[string]any)
			if below && (isKeyName(p.Name) || x.list && members["id"] == nil) {
				continue
			}
			if got := scalar(members[p.Name]); x.ok() && p.Name != "id" && got != "" && p.Schema.InvalidReason(got) == "" && !areAlike(got, x.values[i]) {
				r.addFinding("record", x, Finding{Pointer: pointerTo(x, n, p.Name), Expected: "the " + p.Name + " of the path", Got: "another one"})
				return
			}
		}
	}
}

// isKeyName reports whether many kinds of records have a member of this name, by which they may be known.
func isKeyName(name string) bool {
	return slices.Contains(strings.Fields("code date key name no number ref sku slug"), name)
}

// valuesOf returns values for a parameter, and whether they are all that are documented, so that records may be filtered by them.
func valuesOf(p *upstream.Param) (all []string, filters bool) {
	s := p.Schema
	switch {
	case s.Types&upstream.TypeBoolean != 0:
		return []string{"true", "false"}, true
	case s.Rules != nil && s.Rules.Enum != nil:
		for _, e := range s.Rules.Enum {
			all = append(all, strings.TrimPrefix(e, `"`))
		}
	case s.Known != nil:
		all = slices.Clone(s.Known)
	case s.Types&upstream.TypeString == 0:
		for _, upper := range []bool{false, true} {
			if n := bound(p, upper, 1); p.Schema.InvalidReason(strconv.Itoa(n)) == "" && !slices.Contains(all, strconv.Itoa(n)) {
				all = append(all, strconv.Itoa(n))
			}
		}
		return all, false
	default: // the first one that the format allows
		for _, text := range []string{
			unusualText, "2024-02-29", "2024-02-29T12:30:00Z", "12:30", "12:30:00Z", "12.50", "x@business.example", "https://business.example/", uuid.NewString(),
		} {
			if s.InvalidReason(text) == "" {
				return []string{text}, false
			}
		}
		return nil, false
	}
	return all, true
}

// probeParameters sends requests with values that the definition allows, for each parameter, and compares the pages of the lists that it filters.
func (r *run) probeParameters(ctx context.Context, first *exchange) {
	for i := range first.op.Params {
		p := &first.op.Params[i]
		if p.Name == first.res.Cursor {
			continue
		}
		values, filters := valuesOf(p)
		if filters {
			r.random.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
			values = values[:min(len(values), maxValues)]
		}
		refusable := !filters && mayBeRefused(first, p, len(values))
		seen, isID := r.seenValue(first, p, !filters)
		if seen != "" && isID {
			values, filters, refusable = []string{seen}, true, false
		} else if seen != "" {
			values = append(values, seen)
		}
		filtered := exchange{}
		for _, value := range values {
			q, isSeen := first.request, seen != "" && value == seen
			if q.query = withParam(first.request.query, p.Name, value); isSeen {
				q.ofRecords, q.recordParam = true, p.Name
			}
			q.param, q.mayBeRefused = p.Name, refusable
			x := r.fetch(ctx, q, "parameter")
			if !x.ok() || !first.list {
				continue
			}
			if filters || isSeen {
				r.compareFilter(first, x, p.Name, value, !filters)
				if n := len(x.records); n > len(filtered.records) && n < len(first.records) {
					filtered = *x
				}
			}
			if r.B != "" && isIsolated(x.op) && len(x.values) == 0 {
				r.compareCrossTenant(ctx, first, x, isSeen)
			}
		}
		if filtered.op != nil {
			filtered.mayBeRefused = true // with a cursor, which may stand for the filter
			r.probePages(ctx, &filtered)
		}
	}
}

// mayBeRefused reports whether a service may refuse values of a parameter that the definition allows: they may name nothing, be out of bounds that
// a definition cannot say, or go with another parameter only.
func mayBeRefused(first *exchange, p *upstream.Param, values int) bool {
	return values == 1 || strings.HasSuffix(strings.ToLower(p.Name), "id") || slices.ContainsFunc(first.op.Params, func(other upstream.Param) bool {
		return other.Name != p.Name && other.Schema.Types == p.Schema.Types && other.Schema.Format == p.Schema.Format && p != sizeParam(first.op)
	})
}

// compareCrossTenant looks for records of B in the list that A gets with a value of a parameter. If the value is an ID of A, it also looks for
// records of A in what B gets with it. B may have records of its own with that ID.
func (r *run) compareCrossTenant(ctx context.Context, first, a *exchange, isID bool) {
	own := cmp.Or(r.list(ctx, a.op, nil, "B"), &exchange{})
	has := func(list *exchange) func(any) bool {
		return func(record any) bool { return slices.Contains(r.keys(list), r.key(a.op, record)) }
	}
	theirs, q := *own, a.request
	theirs.records = slices.DeleteFunc(slices.Clone(own.records), has(first))
	if f, found := r.commonRecord(&theirs, a); found {
		f.Expected, f.Got = "records of A", "a record that is in the list of B, and not in that of A"
		r.addFinding("isolation", a, f)
	}
	if q.label = "B"; isID && own.ok() {
		b := r.send(ctx, q)
		if f, found := r.commonRecord(a, b); found && b.ok() && !slices.ContainsFunc(b.records, has(own)) {
			r.addFinding("isolation", b, f)
		}
	}
}

// seenValue returns a value of the records of a list for a parameter of the same name that is an ID or a text, or "". Several records must be unlike
// the text, which must begin with a letter: a list may begin with a date or number.
func (r *run) seenValue(first *exchange, p *upstream.Param, isText bool) (seen string, isID bool) {
	isID = strings.HasSuffix(strings.ToLower(p.Name), "id")
	isText = isText && (p.Schema.Format == upstream.FormatText || p.Schema.Format == upstream.FormatEmail) && // and not how records are shown
		!slices.Contains(strings.Fields("currency format lang language locale order sort time_zone timezone tz unit units version view"), p.Name)
	if !first.list || !isID && !isText {
		return "", isID
	}
	for _, i := range r.random.Perm(len(first.records)) {
		members, _ := first.records[i].(map[string]any)
		value := scalar(members[p.Name])
		isWord := isText && len(value) > 2 && strings.IndexFunc(value, unicode.IsLetter) == 0 && unlike(first, p.Name, value) > 1
		if value != "" && (isID || isWord) && p.Schema.InvalidReason(value) == "" {
			return value, isID
		}
	}
	return "", isID
}

// unlike returns the number of records whose text no search finds by a value: they have none of its words.
func unlike(x *exchange, name, value string) (n int) {
	words := strings.Fields(strings.ToLower(value))
	for _, record := range x.records {
		members, _ := record.(map[string]any)
		text := strings.ToLower(scalar(members[name]))
		if text != "" && !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) || strings.Contains(word, text) }) {
			n++
		}
	}
	return n
}

// compareFilter compares the records of a filtered list with those of the whole list. A search by a text may find it in a longer one or in another
// member: it must find the text itself, and not all records.
func (r *run) compareFilter(first, x *exchange, name, value string, isSearch bool) {
	s := recordSchema(first.op, first.res)
	if s == nil || s.Property(name) == nil || !isPossible(s.Property(name).Schema, value) {
		return
	}
	member := func(record any) any {
		members, _ := record.(map[string]any)
		if got, exists := members[name]; exists || s.Property(name).Schema.Types&upstream.TypeBoolean == 0 {
			return got
		}
		return false // as services say it that leave out what is false
	}
	found := r.keys(x)
	if isSearch && unlike(x, name, value) > 1 && slices.Equal(found, r.keys(first)) {
		r.addFinding("filter", x, Finding{Expected: "records with the text of the parameter " + name, Got: "all records"})
	}
	for i, record := range x.records {
		got := member(record)
		if text := fmt.Sprint(got); !isSearch && text != value && (got == nil || isPossible(s.Property(name).Schema, text)) { // otherwise, it is not valid
			kind, text := describe(got, true)
			r.addFinding("filter", x, Finding{
				Pointer: pointerTo(x, i, name), Expected: "only records with the value of the parameter " + name, Got: "another value: " + kind, Value: text,
			})
			return
		}
	}
	for _, record := range first.records {
		if fmt.Sprint(member(record)) == value && !slices.Contains(found, r.key(x.op, record)) && isWholeList(x) {
			r.addFinding("filter", x, Finding{Expected: "all records with the value of the parameter " + name, Got: "a list without one that the whole list has"})
			return
		}
	}
}

// isPossible reports whether a record's member can have a value, so that a parameter of the same name filters by it.
func isPossible(s *upstream.Schema, value string) bool {
	return (s.Known == nil || slices.Contains(s.Known, value)) && s.InvalidReason(value) == ""
}

// probeConditional sends If-None-Match for a record that has not changed, and compares the ETags of the two businesses.
func (r *run) probeConditional(ctx context.Context, first *exchange) {
	if !first.op.Forwards("If-None-Match") || !first.ok() || !first.res.ETag {
		return
	}
	etag := first.header.Get("Etag")
	if etag == "" {
		r.addFinding("conditional", first, Finding{Expected: "an ETag", Got: "none"})
		return
	}
	q := first.request
	q.header = http.Header{"If-None-Match": {etag}}
	if x := r.sendAndCheck(ctx, q, "conditional"); x.ok() && (x.header.Get("Etag") == etag || reflect.DeepEqual(x.value, first.value)) { // otherwise, it has changed
		r.addFinding("conditional", x, Finding{Expected: "status 304 for If-None-Match with the ETag of the response before", Got: fmt.Sprintf("status %d", x.status)})
	}
	q.header = http.Header{"If-None-Match": {`"gatehouse-conform"`}}
	if x := r.sendAndCheck(ctx, q, "conditional"); x != nil && x.status == http.StatusNotModified {
		r.addFinding("conditional", x, Finding{Expected: "the response, for If-None-Match with an ETag that it never had", Got: "status 304"})
	}
	if r.B == "" || !isIsolated(first.op) || len(idParams(first.op)) > 0 {
		return
	}
	b := r.list(ctx, first.op, nil, "B") // as probeIsolation does
	if !b.ok() || b.target != first.target || b.header.Get("Etag") != etag {
		return
	}
	if own, other := r.forCaller(first), r.forCaller(b); own != nil && other != nil && !bytes.Equal(own, other) {
		r.addFinding("conditional", b, Finding{Expected: "another ETag than A's, because the response is another", Got: "the same one"})
	}
}

// forCaller returns the body that the gateway sends to the caller, or nil if it rejects the response.
func (r *run) forCaller(x *exchange) []byte {
	if x.res.Body == nil {
		return x.body
	}
	var out bytes.Buffer
	if _, err := r.contract.Check(&out, x.op, x.res, x.clean, r.business(x.op, x.label), x.body); err != nil {
		return nil
	}
	return out.Bytes()
}

// probeAssertions sends a request with each of the assertions that the service must reject.
func (r *run) probeAssertions(ctx context.Context, q request) {
	var accepted []*exchange
	for i := range r.wrong {
		q.wrong = &r.wrong[i]
		if x := r.send(ctx, q); x != nil && x.err == nil && x.status != http.StatusUnauthorized && x.status != http.StatusTooManyRequests {
			accepted = append(accepted, x)
		}
	}
	for _, x := range accepted {
		expected := "status 401 for an assertion " + x.wrong.what
		if len(accepted) == len(r.wrong) {
			expected = "status 401 without a right assertion"
		}
		r.addFinding("assertion", x, Finding{Expected: expected, Got: fmt.Sprintf("status %d", x.status)})
	}
}
