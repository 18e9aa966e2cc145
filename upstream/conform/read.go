package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

const (
	maxSamples  = 2   // of records of a list that are asked for
	maxValues   = 5   // of a parameter
	maxListed   = 100 // records of a list
	maxFollowed = 10  // cursors
	unlikely    = `gatehouse conform é'"%`
)

// probeRead asks for everything about an operation that changes nothing.
func (r *run) probeRead(ctx context.Context, op *upstream.Operation) {
	if op.Method != http.MethodGet {
		r.probeQuestion(ctx, op)
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
			r.skip(op, "no request for it could be made")
			return
		}
		if known && x.status/100 == 4 && x.status != http.StatusUnauthorized {
			r.find("record", x, Finding{Expected: "the record, because a list of the business has its ID", Got: fmt.Sprintf("status %d", x.status)})
		}
		if first == nil || !first.ok() {
			first = x
		}
	}
	if !first.ok() {
		if ctx.Err() == nil {
			r.skip(op, "its first response is not one of success: nothing else was asked")
		}
		return
	}
	if first.list && len(first.records) == 0 && !known {
		r.skip(op, "A has no records in it: order, pages, filters and isolation are not known")
	} else if first.list {
		r.probePages(ctx, first)
	}
	r.probeParameters(ctx, first)
	r.probeConditional(ctx, first)
	r.probeIsolation(ctx, op, samples, known)
	r.probeUnknown(ctx, first, samples[0])
	r.probeAssertions(ctx, first.request)
}

// probeQuestion asks by POST, which must change nothing.
func (r *run) probeQuestion(ctx context.Context, op *upstream.Operation) {
	q, ok := r.example(ctx, op, "A")
	if !ok {
		r.skip(op, "no request for it could be made")
		return
	}
	r.fetch(ctx, q, "")
	r.probeAssertions(ctx, q)
}

// example returns the request that the reference shows, with IDs that lists have.
func (r *run) example(ctx context.Context, op *upstream.Operation, label string) (request, bool) {
	q := request{op: op, label: label, header: http.Header{}}
	sample := r.examples[op]
	_, q.query, _ = strings.Cut(sample.Target, "?")
	bindings, known := r.bind(ctx, op, label)
	if len(bindings) == 0 {
		return q, false
	}
	q.values, q.ofRecords = bindings[0], known
	for _, h := range sample.Headers {
		q.header.Set(h.Name, h.Value)
	}
	if sample.Body == "" {
		return q, true
	}
	var body any
	if json.Unmarshal([]byte(sample.Body), &body) != nil {
		return q, false
	}
	if members, ok := body.(map[string]any); ok {
		for name, value := range members {
			if _, text := value.(string); text {
				if id, known := r.idFor(ctx, name, label); known {
					members[name], q.refers = id, true
				}
			}
		}
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return q, false
	}
	var out bytes.Buffer
	_, err = r.contract.CheckBody(&out, op, http.Header{"Content-Type": {op.Body.Kinds[0].Media}}, r.business(op, label), encoded)
	q.body = out.Bytes()
	return q, err == nil
}

// idFor returns the ID of a record of the business for a member that is called like a parameter of a path, and like an ID: a name or a type
// would be one of the record itself.
func (r *run) idFor(ctx context.Context, name, label string) (id string, known bool) {
	isID := func(suffix string) bool { return strings.HasSuffix(strings.ToLower(name), suffix) }
	if !slices.ContainsFunc([]string{"id", "key", "no", "number", "ref"}, isID) {
		return "", false
	}
	for _, op := range r.operations {
		if len(op.PathParams) != 1 || op.PathParams[0].Name != name || op.Method != http.MethodGet {
			continue
		}
		if bindings, known := r.bind(ctx, op, label); known {
			return bindings[0][0], true
		}
	}
	return "", false
}

// list returns the exchange for an operation with as many records as possible, or for what the service accepts.
func (r *run) list(ctx context.Context, op *upstream.Operation, values []string, label string) *exchange {
	q := r.listRequest(op, values, label)
	large := q.query
	_, q.query, _ = strings.Cut(r.examples[op].Target, "?")
	x := r.fetch(ctx, q, "")
	if !x.ok() || q.query == large {
		return x
	}
	q.query = large
	if larger := r.fetch(ctx, q, "parameter"); larger.ok() {
		return larger
	}
	return x
}

func (r *run) listRequest(op *upstream.Operation, values []string, label string) request {
	_, query, _ := strings.Cut(r.examples[op].Target, "?")
	if size := sizeOf(op); size != nil {
		query = with(query, size.Name, strconv.Itoa(min(bound(size, true, maxListed), maxListed)))
	}
	return request{op: op, label: label, values: values, query: query, ofRecords: len(values) > 0}
}

// with returns a query with a parameter.
func with(query, name, value string) string {
	values, _ := url.ParseQuery(query)
	values.Set(name, value)
	return values.Encode()
}

// sizeOf returns the parameter that bounds the number of records of a list, or nil.
func sizeOf(op *upstream.Operation) *upstream.Param {
	for i := range op.Responses {
		if records := op.Responses[i].Records; records != nil && records.AtMost > 0 {
			return numbered(op, records.AtMost)
		}
	}
	return nil
}

func numbered(op *upstream.Operation, number int) *upstream.Param {
	i := slices.IndexFunc(op.Params, func(p upstream.Param) bool { return p.Number == number })
	if i < 0 {
		return nil
	}
	return &op.Params[i]
}

// bound returns the minimum or maximum of a parameter, or a default.
func bound(p *upstream.Param, upper bool, byDefault int) int {
	text := ""
	switch rules := p.Schema.Rules; {
	case p.Clamp && upper:
		return p.Max
	case p.Clamp:
		return p.Min
	case rules != nil && upper:
		text = rules.Max
	case rules != nil:
		text = rules.Min
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return byDefault
	case upper && p.Schema.Rules.MaxOpen:
		n--
	case !upper && p.Schema.Rules.MinOpen:
		n++
	}
	return n
}

// bind returns values for the parameters of an operation's path: IDs of records that lists of the business have, if they are known, and
// otherwise those of the example.
func (r *run) bind(ctx context.Context, op *upstream.Operation, label string) (all [][]string, known bool) {
	if len(op.PathParams) == 0 {
		return [][]string{nil}, false
	}
	all = [][]string{{}}
	for i, p := range op.PathParams {
		before, _, _ := strings.Cut(op.Path, "/{"+p.Name+"}")
		list := r.listAt(before)
		var longer [][]string
		for _, values := range all {
			if list == nil || len(list.PathParams) != i {
				break
			}
			x := r.list(ctx, list, values, label)
			if x == nil {
				continue
			}
			var ids []string
			for _, record := range x.records {
				if id := r.id(list, record); id != "" && p.Schema.Accepts(id) == "" {
					ids = append(ids, id)
				}
			}
			for _, position := range r.random.Perm(len(ids))[:min(len(ids), maxSamples)] {
				longer = append(longer, append(slices.Clone(values), ids[position]))
			}
		}
		if all = longer; len(all) == 0 {
			break
		}
	}
	if len(all) > 0 {
		return all[:min(len(all), maxSamples)], true
	}
	path, _, _ := strings.Cut(r.examples[op].Target, "?")
	values, segments := []string(nil), strings.Split(path, "/")
	for i, name := range strings.Split(op.Path, "/") {
		if strings.HasPrefix(name, "{") && i < len(segments) {
			values = append(values, segments[i])
		}
	}
	if len(values) != len(op.PathParams) || label != "A" {
		return nil, false
	}
	return [][]string{values}, false
}

// listAt returns the operation that lists what is at a path, or nil.
func (r *run) listAt(path string) *upstream.Operation {
	for _, op := range r.operations {
		if op.Path == path && op.Method == http.MethodGet {
			return op
		}
	}
	return nil
}

// id returns the ID of a record of a list, or "".
func (r *run) id(list *upstream.Operation, record any) string {
	name := "id"
	for _, op := range r.operations {
		rest, below := strings.CutPrefix(op.Path, list.Path+"/{")
		if !below || strings.Contains(rest, "/") {
			continue
		}
		for _, res := range op.Responses {
			if res.Records == nil {
				continue
			}
			for _, is := range res.Records.Is {
				if rest == is.Param+"}" {
					name = is.Property
				}
			}
		}
	}
	members, _ := record.(map[string]any)
	return scalar(members[name])
}

// key returns what records of a list are compared by: the ID, or everything.
func (r *run) key(op *upstream.Operation, record any) string {
	if id := r.id(op, record); id != "" {
		return id
	}
	return canonical(op, record)
}

func (r *run) keys(x *exchange) (all []string) {
	for _, record := range x.records {
		all = append(all, r.key(x.op, record))
	}
	return all
}

// canonical returns a record as JSON without the member that names its business.
func canonical(op *upstream.Operation, record any) string {
	if members, ok := record.(map[string]any); ok {
		rest := map[string]any{}
		for name, value := range members {
			if name != op.Tenant || name == "id" {
				rest[name] = value
			}
		}
		record = rest
	}
	encoded, _ := json.Marshal(record) //nolint:errchkjson // it was decoded from JSON
	return string(encoded)
}

// values returns values of a parameter, and whether records may be filtered by them.
func (r *run) values(p *upstream.Param) (all []string, filters bool) {
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
			if n := bound(p, upper, 1); p.Schema.Accepts(strconv.Itoa(n)) == "" && !slices.Contains(all, strconv.Itoa(n)) {
				all = append(all, strconv.Itoa(n))
			}
		}
		return all, false
	default:
		return []string{unlikely}, false
	}
	r.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), maxValues)], true
}

// probeParameters asks with values of each parameter that the definition allows.
func (r *run) probeParameters(ctx context.Context, first *exchange) {
	for i := range first.op.Params {
		p := &first.op.Params[i]
		if p.Name == first.res.Cursor {
			continue
		}
		values, filters := r.values(p)
		for _, value := range values {
			q := first.request
			q.query = with(first.request.query, p.Name, value)
			x := r.fetch(ctx, q, "parameter")
			if x == nil || !x.ok() || !filters || !first.list {
				continue
			}
			r.compareFilter(first, x, p.Name, value)
		}
	}
}

// compareFilter compares the records of a filtered list with those of the whole list.
func (r *run) compareFilter(first, x *exchange, name, value string) {
	if s := recordSchema(first.res); s == nil || s.Property(name) == nil || !possible(s.Property(name).Schema, value) {
		return
	}
	member := func(record any) string {
		members, _ := record.(map[string]any)
		return fmt.Sprint(members[name])
	}
	for i, record := range x.records {
		if got := member(record); got != value {
			kind, text := describe(got, true)
			r.find("filter", x, Finding{
				Pointer: pointerTo(x, i, name), Expected: "only records with the value of the parameter " + name, Got: "another value: " + kind, Value: text,
			})
			return
		}
	}
	found := r.keys(x)
	for _, record := range first.records {
		if member(record) == value && !slices.Contains(found, r.key(x.op, record)) && complete(x) {
			r.find("filter", x, Finding{Expected: "all records with the value of the parameter " + name, Got: "a list without one that the whole list has"})
			return
		}
	}
}

// complete reports whether a list, which is a response of success, has fewer records than were asked for, so that no page follows.
func complete(x *exchange) bool {
	if x.res.Records == nil || x.res.Records.AtMost == 0 {
		return x.res.Cursor == ""
	}
	return len(x.records) < x.clean.Numbers[x.res.Records.AtMost-1]
}

// whole reports whether no record follows those of a list, which is a response of success.
func whole(x *exchange) bool {
	return complete(x) || x.res.Cursor != "" && nextCursor(x) == ""
}

// possible reports whether a record's member can have a value, so that a parameter of the same name filters by it.
func possible(s *upstream.Schema, value string) bool {
	return (s.Known == nil || slices.Contains(s.Known, value)) && s.Accepts(value) == ""
}

// recordSchema returns the schema of a list's records.
func recordSchema(res *upstream.DocumentedResponse) *upstream.Schema {
	s := res.Body
	if in := recordsIn(res); in != "" {
		s = s.Property(in).Schema
	}
	return s.Items
}

func pointerTo(x *exchange, record int, name string) string {
	var pointer jsontext.Pointer
	if in := recordsIn(x.res); in != "" {
		pointer = pointer.AppendToken(in)
	}
	return string(pointer.AppendToken(strconv.Itoa(record)).AppendToken(name))
}

// pageOf returns the parameter that says which page is asked for, and whether it counts records instead of pages.
func pageOf(x *exchange) (page *upstream.Param, offset bool) {
	var echoed func(s *upstream.Schema, depth int) *upstream.Param
	echoed = func(s *upstream.Schema, depth int) *upstream.Param {
		for i := range s.Properties {
			p := &s.Properties[i]
			if asked := numbered(x.op, p.Number); p.Number > 0 && p.Number != x.res.Records.AtMost && asked != nil {
				return asked
			}
			if found := echoed(p.Schema, depth+1); depth < 4 && found != nil {
				return found
			}
		}
		return nil
	}
	if page = echoed(x.res.Body, 0); page != nil {
		offset = strings.Contains(page.Name, "offset") || strings.Contains(page.Name, "skip") || strings.Contains(page.Name, "start")
	}
	return page, offset
}

// probePages compares pages with the whole list.
func (r *run) probePages(ctx context.Context, first *exchange) {
	size := sizeOf(first.op)
	if first.res.Records == nil || size == nil {
		return
	}
	all, least := r.keys(first), max(bound(size, false, 1), 1)
	small := first.request
	small.query = with(small.query, size.Name, strconv.Itoa(least))
	if first.res.Cursor != "" {
		r.probeCursors(ctx, first, all, size)
	}
	page, offset := pageOf(first)
	if page == nil {
		return
	}
	start := bound(page, false, 1)
	if len(all) < 2*least {
		r.skip(first.op, "paging: A has too few records for two pages")
	} else {
		k := r.random.IntN(min(len(all)/least-1, 3))
		var got []string
		var last *exchange
		for n := k; n < k+2; n++ {
			number := start + n
			if offset {
				number = start + n*least
			}
			q := small
			q.query = with(q.query, page.Name, strconv.Itoa(number))
			if last = r.fetch(ctx, q, ""); last == nil || !last.ok() {
				return
			}
			got = append(got, r.keys(last)...)
		}
		want := all[k*least : (k+2)*least]
		switch sorted := slices.Sorted(slices.Values(got)); {
		case slices.Equal(got, want), len(got) > 2*least: // too many are another rule's
		case len(slices.Compact(sorted)) < len(got):
			r.find("paging", last, Finding{Expected: "other records than on the page before", Got: "a record that was on it"})
		default:
			r.find("paging", last, Finding{Expected: "the records that follow those of the page before in the whole list", Got: "others"})
		}
	}
	q := small
	q.query = with(q.query, page.Name, strconv.Itoa(min(bound(page, true, 1_000_000), 1_000_000)))
	if x := r.fetch(ctx, q, "parameter"); x != nil && x.ok() && len(x.records) > 0 && len(all) < 1000 && complete(first) {
		r.find("paging", x, Finding{Expected: "an empty list past the end", Got: fmt.Sprintf("%d records", len(x.records))})
	}
}

// probeCursors follows cursors through a list.
func (r *run) probeCursors(ctx context.Context, first *exchange, all []string, size *upstream.Param) {
	q := first.request
	q.query = with(q.query, size.Name, strconv.Itoa(max(bound(size, false, 1), (len(all)+4)/5)))
	whole := nextCursor(first) == ""
	got, done := r.follow(ctx, q, func(int) {})
	switch {
	case got.err != "":
		r.find("cursor", got.last, Finding{Expected: "records and a cursor that no page before had", Got: got.err})
	case done && whole && !slices.Equal(got.keys, all), !slices.Equal(got.keys[:min(len(got.keys), len(all))], all[:min(len(got.keys), len(all))]):
		r.find("cursor", got.last, Finding{Expected: "the records of the whole list, in its order", Got: fmt.Sprintf("other ones: %d instead of %d", len(got.keys), len(all))})
	case !done && whole && got.last.ok():
		r.find("cursor", got.last, Finding{Expected: "no cursor at the end of the list", Got: "one more"})
	}
}

// followed is what pages that follow each other have.
type followed struct {
	keys []string
	last *exchange
	err  string
}

// follow reads pages by their cursors. between is called before each but the first.
func (r *run) follow(ctx context.Context, q request, between func(page int)) (got followed, done bool) {
	for n := range maxFollowed {
		if n > 0 {
			between(n)
		}
		x := r.ask(ctx, q, "")
		if x == nil {
			return got, false
		}
		if got.last = x; !x.ok() {
			return got, false
		}
		for _, key := range r.keys(x) {
			if slices.Contains(got.keys, key) {
				got.err = "a record that was on a page before"
				return got, true
			}
			got.keys = append(got.keys, key)
		}
		next := nextCursor(x)
		if next == "" {
			return got, true
		}
		if with(q.query, x.res.Cursor, next) == q.query {
			got.err = "the same cursor again"
			return got, true
		}
		q.query, q.cursor, q.ofRecords = with(q.query, x.res.Cursor, next), x.res.Cursor, true
	}
	return got, false
}

// nextCursor returns the cursor of the next page, or "".
func nextCursor(x *exchange) string {
	var pointer jsontext.Pointer
	for _, name := range x.res.Next {
		pointer = pointer.AppendToken(name)
	}
	value, _ := at(x.value, string(pointer))
	return scalar(value)
}

// probeConditional asks again for what has not changed.
func (r *run) probeConditional(ctx context.Context, first *exchange) {
	if !first.op.Forwards("If-None-Match") || !first.ok() || !first.res.ETag {
		return
	}
	etag := first.header.Get("Etag")
	if etag == "" {
		r.find("conditional", first, Finding{Expected: "an ETag", Got: "none"})
		return
	}
	q := first.request
	q.header = http.Header{"If-None-Match": {etag}}
	r.mustNotSucceed(ctx, q, "conditional", "status 304 for If-None-Match with the ETag of the response before")
}

// apart reports whether businesses are kept apart in an operation.
func apart(op *upstream.Operation) bool { return !op.Public && op.Tenant != upstream.TenantNone }

// probeIsolation compares what the two businesses get.
func (r *run) probeIsolation(ctx context.Context, op *upstream.Operation, samples [][]string, known bool) {
	if r.B == "" || !apart(op) {
		return
	}
	if len(op.PathParams) == 0 {
		if a, b := r.list(ctx, op, nil, "A"), r.list(ctx, op, nil, "B"); a != nil && b != nil {
			if f, found := r.commonRecord(a, b); found {
				r.common = append(r.common, common{b, f, r.ownIDs(a, b)})
			}
		}
		return
	}
	if !known {
		return
	}
	before, _, _ := strings.Cut(op.Path, "/{")
	own := r.list(ctx, r.listAt(before), nil, "B")
	for _, values := range samples {
		if slices.Contains(r.keys(own), values[0]) {
			r.skip(op, sameID)
			continue
		}
		a := r.list(ctx, op, values, "A")
		q := a.request
		q.label = "B"
		if b := r.fetch(ctx, q, "isolation"); b != nil {
			if f, found := r.commonRecord(a, b); found {
				r.find("isolation", b, f)
			}
		}
	}
}

const sameID = "isolation: A and B have records with the same ID"

// common is a record that is the same in the lists of both businesses. It is a leak, unless each of them has its own.
type common struct {
	x       *exchange // of B
	finding Finding
	own     bool
}

// commonRecord returns the finding about a record with an ID that A gets, and B too.
func (r *run) commonRecord(a, b *exchange) (f Finding, found bool) {
	records := map[string]bool{}
	for _, record := range a.records {
		if text := canonical(a.op, record); r.id(a.op, record) != "" {
			records[text] = true
		}
	}
	for i, record := range b.records {
		if records[canonical(b.op, record)] {
			f = Finding{Expected: "records of B", Got: "a record that A gets, too"}
			if b.list {
				f.Pointer = strings.TrimSuffix(pointerTo(b, i, ""), "/")
			}
			return f, true
		}
	}
	return f, false
}

// ownIDs reports whether each business has IDs of its own in a list, such as numbers from 1: one that both have is of different records, B has
// none twice, and B lacks one of A's, so that it does not get the records of both.
func (r *run) ownIDs(a, b *exchange) bool {
	theirs, differ, lacks := map[string]string{}, false, false
	for _, record := range b.records {
		id := r.id(b.op, record)
		if _, twice := theirs[id]; twice {
			return false
		}
		theirs[id] = canonical(b.op, record)
	}
	for _, record := range a.records {
		other, both := theirs[r.id(a.op, record)]
		differ = differ || both && other != canonical(a.op, record)
		lacks = lacks || !both
	}
	return differ && lacks && whole(b)
}

// reportCommon adds the findings about records that both businesses have, unless each of them has its own: it has its own IDs, or B did not
// get what A created.
func (r *run) reportCommon() {
	for _, c := range r.common {
		if c.own || r.scoped[c.x.op] {
			r.skip(c.x.op, sameID)
		} else {
			r.find("isolation", c.x, c.finding)
		}
	}
}

// probeUnknown asks for an ID that does not exist, and for businesses that do not.
func (r *run) probeUnknown(ctx context.Context, first *exchange, values []string) {
	if n := len(values); n > 0 {
		q := first.request
		if q.values = slices.Clone(values); r.invent(&first.op.PathParams[n-1], &q.values[n-1]) {
			x := r.fetch(ctx, q, "unknown-id")
			if x != nil && x.ok() && (!x.list || len(x.records) > 0) {
				r.find("unknown-id", x, Finding{Expected: "status 404 for an ID that does not exist", Got: fmt.Sprintf("status %d", x.status)})
			}
		}
	}
	if !apart(first.op) {
		return
	}
	ask := func(q request, expected string, mayBeEmpty bool) {
		x := r.send(ctx, q)
		if x != nil && x.err == nil && x.status/100 == 2 && (!mayBeEmpty || len(x.records) > 0) {
			x.label = "nobody"
			r.find("unknown-business", x, Finding{Expected: expected, Got: fmt.Sprintf("status %d, and records: %d", x.status, len(x.records))})
		}
	}
	without, unknown := first.request, first.request
	if !first.op.Mapping.NamesBusiness() { // otherwise, the service knows the business from elsewhere
		without.change = func(req *http.Request) { req.Header.Del(upstream.HeaderBusinessID) }
		ask(without, "a status from 400 for a request without X-Business-Id", false)
	}
	unknown.label = "unknown"
	ask(unknown, "no records for a business that does not exist", true)
}

// invent replaces an ID by one that probably does not exist, and reports whether it could.
func (r *run) invent(p *upstream.Param, id *string) bool {
	digits := func(n int) string {
		text := strconv.Itoa(1 + r.random.IntN(9))
		for len(text) < n {
			text += strconv.Itoa(r.random.IntN(10))
		}
		return text
	}
	stem := strings.TrimRight(*id, "0123456789")
	for _, candidate := range []string{
		uuid.NewString(), stem + digits(9), stem + digits(max(len(*id)-len(stem), 1)), digits(9), "gatehouse-conform-" + digits(9),
	} {
		if _, err := uuid.Parse(*id); err != nil && len(candidate) == 36 && candidate[8] == '-' {
			continue // the service has other IDs
		}
		if p.Schema.Accepts(candidate) == "" && candidate != *id {
			*id = candidate
			return true
		}
	}
	return false
}

// probeAssertions makes a request with assertions that the service must reject.
func (r *run) probeAssertions(ctx context.Context, q request) {
	for i := range r.wrong {
		if q.wrong = &r.wrong[i]; q.wrong.what == otherOperation && !r.writes {
			continue // nothing can be changed by it
		}
		x := r.send(ctx, q)
		if x == nil || x.err != nil || x.status == http.StatusUnauthorized {
			continue
		}
		r.find("assertion", x, Finding{Expected: "status 401 for an assertion " + q.wrong.what, Got: fmt.Sprintf("status %d", x.status)})
	}
}
