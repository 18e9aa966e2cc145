package conform

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// isIsolated reports whether an operation must keep businesses apart.
func isIsolated(op *upstream.Operation) bool { return !op.Public && op.Tenant != upstream.TenantNone }

// probeIsolation compares what the two businesses get.
func (r *run) probeIsolation(ctx context.Context, op *upstream.Operation, samples [][]string, known bool) {
	if r.B == "" || !isIsolated(op) {
		return
	}
	if len(idParams(op)) == 0 {
		q, known := r.cursors[op]
		a, b := r.list(ctx, op, nil, "A"), r.list(ctx, op, nil, "B")
		common := r.compareLists(a, b)
		if !common && !r.raced && len(r.keys(a)) > 0 && len(r.keys(b)) > 0 {
			r.raced = true
			r.probeAtOnce(ctx, a, b)
		}
		if !common && known {
			q.label = "B"
			x := r.send(ctx, q)
			if f, found := r.commonRecord(r.list(ctx, op, nil, "A"), x); found {
				r.addFinding("isolation", x, f)
			}
		}
		return
	}
	var own *exchange
	if known {
		own = r.list(ctx, r.listOf(op, 0), nil, "B")
	} else if !isAsked(r.list(ctx, op, samples[0], "A")) {
		r.skip(op, "isolation: no list has the IDs of its path")
		return
	}
	for _, values := range samples {
		if slices.Contains(r.keys(own), values[0]) && (mayCoincide(values[0]) || !isIsolated(own.op)) {
			r.skip(op, sameID)
			continue
		}
		a := r.list(ctx, op, values, "A")
		q := a.request
		q.label = "B"
		r.probeBelowOwn(ctx, a, q)
		b := r.fetch(ctx, q, "isolation")
		switch f, found := r.commonRecord(a, b); {
		case found && known:
			r.addFinding("isolation", b, f)
		case found:
			r.addFinding("shared-record", b, Finding{Pointer: f.Pointer, Expected: unlisted, Got: f.Got})
		case !b.ok() || !own.ok() || !isWholeList(own):
		case b.res.Unchecked != nil && a.ok(), b.record() != nil && r.id(own.op, b.record()) == values[0]:
			r.addFinding("isolation", b, Finding{Expected: "a status from 400 for a record of A, and for what belongs to it", Got: fmt.Sprintf("status %d", b.status)})
		}
	}
}

// isAsked reports whether a response is the record that a path identifies. Others, such as a day, may be the same for all.
func isAsked(x *exchange) bool {
	record, n := x.record(), len(x.values)
	return record != nil && n > 0 && isRecord(x.op) && (x.res.Records != nil && len(x.res.Records.Is) > 0 || scalar(record["id"]) == x.values[n-1])
}

const unlisted = "another record, or none: no list says whose this one is"

// probeAtOnce lets lists of A and B race, because a service may keep the business of a request where others find it.
func (r *run) probeAtOnce(ctx context.Context, a, b *exchange) {
	for _, x := range r.race(ctx, slices.Repeat([]request{a.request, b.request}, 2*racingRequests)) {
		other := map[string]*exchange{"A": b, "B": a}[x.label]
		if f, found := r.commonRecord(other, x); found {
			f.Expected, f.Got = "records of "+x.label, "one of "+other.label+", which asked at the same time"
			r.addFinding("isolation", x, f)
		}
	}
}

// probeBelowOwn asks for a record of A as if it were in a record of B: q is B's request with the IDs of A.
func (r *run) probeBelowOwn(ctx context.Context, a *exchange, q request) {
	last := len(q.values) - 1
	if last < 1 {
		return
	}
	theirs, known := r.bind(ctx, q.op, "B")
	list := r.listOf(q.op, last)
	if !known || list == nil {
		return
	}
	own := r.list(ctx, list, theirs[0][:last], "B")
	if !own.ok() || !isWholeList(own) || slices.Contains(r.keys(own), q.values[last]) {
		return
	}
	q.values = append(slices.Clone(theirs[0][:last]), q.values[last])
	b := r.fetch(ctx, q, "isolation")
	if f, found := r.commonRecord(a, b); found {
		r.addFinding("isolation", b, f)
	}
}

// mayCoincide reports whether an ID may be that of a record of A, and of another one of B.
func mayCoincide(id string) bool {
	_, err := uuid.Parse(id)
	return err != nil
}

const sameID = "isolation: A and B have records with the same ID, or may have some"

// sharedRecord is a record that both businesses have in a list. It is a leak, unless each of them has one of its own that is the same.
type sharedRecord struct {
	x         *exchange // of B
	finding   Finding
	hasOwnIDs bool
	isCopy    bool // all records of B are also those of A, as in test data
}

// commonRecord returns a finding about a record that both A and B get. Records without an ID count only if the request had one.
func (r *run) commonRecord(a, b *exchange) (f Finding, found bool) {
	a, b = cmp.Or(a, &exchange{}), cmp.Or(b, &exchange{}) // nil: a parameter names the business, and not this one
	records := map[string]bool{}
	for _, record := range a.records {
		if len(a.values) > 0 || r.id(a.op, record) != "" { // settings, for example, may be the same by default
			records[canonical(a.op, record)] = true
		}
	}
	for i, record := range b.records {
		if records[canonical(b.op, record)] {
			return Finding{Pointer: pointerTo(b, i), Expected: "records of B", Got: "a record that A gets, too"}, true
		}
	}
	return f, false
}

// compareLists reports whether a record is in both businesses' lists, and keeps it for the end.
func (r *run) compareLists(a, b *exchange) bool {
	f, found := r.commonRecord(a, b)
	if found {
		own, copied := r.ownIDs(a, b)
		r.common = append(r.common, sharedRecord{b, f, own, copied})
	}
	return found
}

// ownIDs reports whether each business has IDs of its own in a list, such as numbers from 1. Then one ID belongs to different records of A and B.
// B must have no ID twice and lack one of A's: otherwise, it may get the records of both. copied means that A has all records of B.
func (r *run) ownIDs(a, b *exchange) (own, copied bool) {
	theirs, equal, differ, lacks := map[string]string{}, 0, false, false
	for _, record := range b.records {
		theirs[r.id(b.op, record)] = canonical(b.op, record)
	}
	for _, record := range a.records {
		other, both := theirs[r.id(a.op, record)]
		if lacks = lacks || !both; both && other == canonical(a.op, record) {
			equal++
		} else if both {
			differ = true
		}
	}
	return differ && lacks && len(theirs) == len(b.records) && isWholeList(b), equal == len(b.records)
}

// reportCommon adds the findings about records that both businesses get. It adds none for a list in which each has IDs of its own, or in which B
// has a copy of A's and did not get what A created.
func (r *run) reportCommon() {
	for _, c := range r.common {
		if (c.hasOwnIDs || c.isCopy && (r.scoped[c.x.op] || c.x.op.Method != http.MethodGet && len(r.scoped) > 0)) && mayCoincide(r.keys(c.x)[0]) {
			r.skip(c.x.op, sameID)
		} else {
			r.addFinding("isolation", c.x, c.finding)
		}
	}
}

// probeUnknown sends requests with an ID that does not exist, without a business, and for a business that does not exist.
func (r *run) probeUnknown(ctx context.Context, first *exchange, values []string, known bool) {
	n := len(values)
	isOfA := known && isIsolated(first.op) && isIsolated(r.listOf(first.op, 0))           // otherwise, there may be one for each business, such as counts
	if n > 0 && (known || idParams(first.op)[n-1].Schema.Format == upstream.FormatUUID) { // any date, year or email may exist
		q, p := first.request, idParams(first.op)[n-1]
		var ids []string
		if list := r.listOf(first.op, n-1); list != nil {
			ids = r.keys(r.list(ctx, list, values[:n-1], "A"))
		}
		isUnknown := func(id string) bool { return p.Schema.InvalidReason(id) == "" && !slices.Contains(ids, id) }
		if unknown, ok := r.invent(values[n-1], isUnknown); ok {
			q.values = append(slices.Clone(values[:n-1]), unknown)
			x := r.fetch(ctx, q, "unknown-id")
			if x != nil && x.ok() && (!x.list || len(x.records) > 0) {
				r.addFinding("unknown-id", x, Finding{Expected: "status 404 for an ID that does not exist", Got: fmt.Sprintf("status %d", x.status)})
			}
			if r.B != "" && n == 1 && isOfA {
				r.compareExistence(ctx, r.list(ctx, first.op, values, "A").request, q)
			}
		}
	}
	if !isIsolated(first.op) {
		return
	}
	ask := func(q request, expected string) {
		x := cmp.Or(r.send(ctx, q), &exchange{})
		f, isCommon := r.commonRecord(first, x)
		switch x.label = "nobody"; {
		case x.err != nil, x.status/100 == 5:
			r.checkResponse(ctx, x, "unknown-business")
		case x.status/100 == 2 && (isCommon && len(q.values) == 0 || (x.list || isOfA) && len(x.records) > 0 || isOfA && x.ok() && x.res.Unchecked != nil):
			r.addFinding("unknown-business", x, Finding{Expected: expected, Got: fmt.Sprintf("status %d, and records: %d", x.status, len(x.records))})
		case isCommon && !known && isAsked(first):
			r.addFinding("shared-record", x, Finding{Pointer: f.Pointer, Expected: unlisted, Got: f.Got})
		}
	}
	without := first.request
	unknown, _ := r.as(without, "unknown")
	if !first.op.Mapping.NamesBusiness() && bytes.Equal(unknown.body, without.body) && r.target(unknown) == r.target(without) { // otherwise, another part of the request names the business
		without.change = func(req *http.Request) { req.Header.Del(upstream.HeaderBusinessID) }
		ask(without, "no records for a request without X-Business-Id")
	}
	ask(unknown, "no records for a business that does not exist")
}

// compareExistence compares what B gets for the ID of a record of A and for one that does not exist. The IDs must have a form that is invented well:
// one that is malformed may get another response.
func (r *run) compareExistence(ctx context.Context, ofA, unknown request) {
	ofA.label, unknown.label = "B", "B"
	stem := strings.TrimRight(ofA.values[0], "0123456789")
	if mayCoincide(ofA.values[0]) && (stem == ofA.values[0] || strings.ContainsAny(stem, "0123456789")) {
		return
	}
	a, none := r.fetch(ctx, ofA, "isolation"), r.fetch(ctx, unknown, "unknown-id")
	code := func(x *exchange) string {
		value, _ := at(x.value, "code")
		return scalar(value)
	}
	if a.isRefused() && none.isRefused() && none.status == http.StatusNotFound && (a.status != none.status || code(a) != code(none)) {
		r.addFinding("isolation", a, Finding{Expected: "the same response as for an ID that does not exist", Got: fmt.Sprintf("another one, with status %d", a.status)})
	}
}

// invent returns an ID in the form of another one that probably does not exist, if one is possible.
func (r *run) invent(like string, isPossible func(id string) bool) (id string, ok bool) {
	digits := func(n int) string {
		text := strconv.Itoa(1 + r.random.IntN(9))
		if n > 9 {
			text = "1" // with it, 10 digits fit into 32 bits, and 19 into 64
		}
		for len(text) < n {
			text += strconv.Itoa(r.random.IntN(10))
		}
		return text
	}
	stem := strings.TrimRight(like, "0123456789")
	candidates := []string{"gatehouse-conform-" + digits(9), digits(9)} // the last one that fits is taken
	for n := range max(9, len(like)-len(stem)) {
		candidates = append(candidates, stem+digits(n+1))
	}
	if !mayCoincide(like) { // otherwise, the service has other IDs
		candidates = append(candidates, "6d1c8a3b-e210-4f5e-9a41-0e1f2a3b4c5d")
	}
	for _, candidate := range slices.Backward(candidates) {
		if candidate != like && isPossible(candidate) {
			return candidate, true
		}
	}
	return "", false
}
