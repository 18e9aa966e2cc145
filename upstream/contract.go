package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// DefaultMaxResponseSize is how large an answer of a data service may be, in bytes, where an operator sets nothing
	// else. Check does not bound the size; whoever reads the answer does.
	DefaultMaxResponseSize int64 = 8 << 20

	// MaxDepth is how deep the objects and arrays of an answer may be nested, the outermost counted.
	MaxDepth = 64
)

// Contract is what the answers of data services must meet before a caller sees them. The zero value is the strict
// contract. It is safe for concurrent use and must not be copied after its first use.
type Contract struct {
	// AllowMissingTenant lets records pass that do not carry business_id, for data services that cannot send it yet. The
	// gateway then cannot tell whether they are the caller's. Records that do carry it are still checked. Default:
	// such an answer is refused.
	AllowMissingTenant bool

	// PassUnknownFields names the resources whose records may hold members that the contract does not document; they
	// follow the documented ones, in the upstream's order. Internal members (business_id and the like), and names
	// that differ from a known one by their case only, never pass. Must not change while the Contract is in use.
	// Default: unknown members are dropped.
	PassUnknownFields map[string]bool

	pool sync.Pool // of *checker
}

// Validate reports names in PassUnknownFields that are no resource with an upstream.
func (c *Contract) Validate() error {
	for name := range c.PassUnknownFields {
		if r := ByName(name); r == nil || r.ByGateway {
			return fmt.Errorf("passing unknown fields: %q is not a resource of a data service", name)
		}
	}
	return nil
}

// Report is what Check noticed in an answer, also in one that it refused.
type Report struct {
	Records     int  // records that leave
	Foreign     int  // another business's: left out of /events, refused elsewhere; an alarm
	Unmarked    int  // without business_id: let pass under AllowMissingTenant, refused otherwise
	Unpublished int  // events that are not published, left out
	Surplus     int  // published events beyond count, left out
	Reordered   bool // records were not newest first, and were put in order
}

// Check holds an answer of a data service against the contract and appends to dst what the caller gets: compact JSON
// with the documented members of the documented records, in the contract's order, null where the service sent
// nothing. q is what was asked, businessID the authenticated business, body the service's whole answer of status 200,
// whose size the caller has bounded (DefaultMaxResponseSize). Nothing is appended when there is an error, which is always a
// *ContractError (ErrNotContract, ErrForeignRecord, ErrUnmarkedRecord), or ErrIdentity when businessID is empty.
//
//   - What leaves is at most twice as large as the body and 1 MiB, however many members are missing.
//   - The answer is one JSON object (RFC 8259) in UTF-8, no member name twice in any object, at most MaxDepth deep,
//     nothing after it. It has the resource's list of objects, or its object; and, where the resource has it,
//     `pagination` with the four integers, none negative, for the page that was asked. Other top-level members are
//     dropped.
//   - Each record's business_id is the authenticated business, as a string or an integer. A list or object with
//     another's record is refused as a whole; in /events such a record is left out. For /business the id is the mark.
//   - Fields have their documented kind or are null; the id is never null. Enumerations may hold values that are not
//     documented yet. What is wrong in an event that does not leave does not matter.
//   - /events: each record has the internal member status, and only "published" ones leave, at most q.Count, most
//     recent first by published_at, or created_at where that is null.
//   - Lists: at most per_page records, newest created first; a record without that instant counts as the oldest.
//     Records that come in another order are sorted, those of one instant staying as they were.
//
// One pass over the bytes picks the documented members and holds everything to the JSON grammar on the way; members that
// are not documented, and strings with escapes, are the library jsontext's to judge, and so is the error of an answer
// that is refused. The fuzz tests hold the pass to what the library takes for JSON. Buffers come from a pool. BenchmarkCheck
// (go test -run '^$' -bench Check -cpu 1 ./upstream/) on one core of a shared Xeon: 10 events (9.4 kB) 16 µs, 25 invoices
// (12.5 kB) 26 µs, without an allocation; with the library's pass before ours it was 26 µs and 35 µs.
func (c *Contract) Check(dst *bytes.Buffer, res *Resource, q Query, businessID string, body []byte) (Report, error) {
	if businessID == "" {
		return Report{}, fmt.Errorf("%w: no business", ErrIdentity)
	}
	if res.plan == nil {
		return Report{}, &ContractError{
			Kind: ErrNotContract, Resource: res.Name, Record: -1, Expected: "no upstream for this resource",
		}
	}
	k, _ := c.pool.Get().(*checker)
	if k == nil {
		k = newChecker()
	}
	defer func() {
		k.release()
		c.pool.Put(k)
	}()
	k.start(c, res, q, businessID, body)

	dst.Grow(len(body) + 64)
	out, err := k.answer(dst.AvailableBuffer())
	if err != nil {
		if invalid := k.valid(); invalid != nil {
			return Report{}, invalid // whatever was noticed, this is no answer
		}
		return k.report, err
	}
	dst.Write(out)
	return k.report, nil
}

// span is where a value stands in the body, or in the checker's scratch. The zero span is null.
type span struct {
	start, end int
	scratch    bool
}

// record is a record of a list that stands in the answer already.
type record struct {
	start, end int // in the answer, without the comma before it
	created    moment
}

// checker is the state of one Check.
type checker struct {
	dec *jsontext.Decoder
	src bytes.Buffer // wraps body; the decoder reads a bytes.Buffer in place

	contract *Contract
	res      *Resource
	plan     *plan
	q        Query
	business string
	body     []byte
	pos      int  // in body
	broken   bool // the body is not JSON, and nothing more is read
	escapes  bool // there are backslashes in the body
	controls bool // there are control characters in the body, which may be white space
	pass     bool // unknown fields pass
	report   Report

	at       int     // index of the record being read, -1 outside of the list
	fault    *member // the first member of the record that is not of its kind
	ordered  bool    // all records so far are newest first
	records  []record
	spans    [maxMembers]span
	guess    [2*maxMembers + numPagination]int // which member came at each position in the object before: services keep to one order
	scratch  []byte                            // arrays of objects and of strings, compact
	extra    []byte                            // unknown members that pass
	unquoted []byte
	escaped  []byte // what a string with escapes stands for, to see whether it stands for anything
}

// maxPooled is how large a buffer may be, in bytes, to be kept for the next answer.
const maxPooled = 1 << 20

func newChecker() *checker {
	k := &checker{}
	k.dec = jsontext.NewDecoder(&k.src)
	return k
}

func (k *checker) start(c *Contract, res *Resource, q Query, business string, body []byte) {
	k.contract, k.res, k.plan, k.q, k.business, k.body = c, res, res.plan, q, business, body
	k.pass = c.PassUnknownFields[res.Name]
	k.pos, k.report, k.at, k.fault, k.ordered = 0, Report{}, -1, nil, true
	k.records = k.records[:0]
	clear(k.guess[:])
}

// release lets go of everything that belongs to the request.
func (k *checker) release() {
	k.src = bytes.Buffer{}
	k.dec.Reset(&k.src)
	k.contract, k.res, k.plan, k.business, k.body, k.fault = nil, nil, nil, "", nil, nil
	if cap(k.scratch) > maxPooled {
		k.scratch = nil
	}
	if cap(k.extra) > maxPooled {
		k.extra = nil
	}
	if cap(k.unquoted) > maxPooled {
		k.unquoted = nil
	}
	if cap(k.escaped) > maxPooled {
		k.escaped = nil
	}
	if cap(k.records) > maxPooled/64 {
		k.records = nil
	}
}

// refuse makes the error for what is being read.
func (k *checker) refuse(kind error, field, expected string) error {
	if field == k.res.Name {
		field = "" // the list or the object itself: the error names it already
	}
	return &ContractError{Kind: kind, Resource: k.res.Name, Record: k.at, Field: field, Expected: expected}
}

// maxRecursion is how many objects and arrays an answer may have, in total, before their depth is measured ahead of the
// decoder, whose own limit is 10,000 levels of recursion.
const maxRecursion = 4096

// valid is nil when the body is one JSON object in UTF-8 with nothing after it, and says where it is not. Whether a name
// is there twice does not matter here. It is for the error of an answer that is refused anyway.
func (k *checker) valid() error {
	k.at = -1
	if bytes.Count(k.body, []byte{'{'})+bytes.Count(k.body, []byte{'['}) > maxRecursion && tooDeep(k.body) {
		return k.tooDeep()
	}
	k.src = *bytes.NewBuffer(k.body)
	k.dec.Reset(&k.src, jsontext.AllowDuplicateNames(true))
	v, err := k.dec.ReadValue()
	if err != nil {
		return k.syntax(err)
	}
	if _, err := k.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return k.refuse(ErrNotContract, "", "nothing after the JSON document")
	}
	if v[0] != '{' {
		return k.refuse(ErrNotContract, "", "a JSON object")
	}
	return nil
}

// syntax turns the decoder's error, which quotes what was sent, into one that does not.
func (k *checker) syntax(err error) error {
	expected, where := "valid JSON in UTF-8", k.dec.InputOffset()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		expected = "a complete JSON document"
	}
	if syn, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		where = syn.ByteOffset
	}
	return k.refuse(ErrNotContract, "", expected+" (byte "+strconv.FormatInt(where, 10)+")")
}

func (k *checker) tooDeep() error {
	return k.refuse(ErrNotContract, "", "objects and arrays at most "+strconv.Itoa(MaxDepth)+" deep")
}

func (k *checker) twice() error {
	return k.refuse(ErrNotContract, "", "each member name once in an object")
}

// answer reads the members of the document and appends what the caller gets.
func (k *checker) answer(out []byte) ([]byte, error) {
	content := k.res.List
	if content == "" {
		content = k.res.Object
	}
	out = append(append(append(out, `{"`...), content...), `":`...)
	var pagination [numPagination]span
	var found, foundPagination, unknown bool
	k.survey()
	if k.kind() != '{' {
		return nil, k.refuse(ErrNotContract, "", "a JSON object")
	}
	start := k.pos
	k.pos++
	for n := 0; k.next('}', n); n++ {
		name := k.unquote(k.name())
		var err error
		switch {
		case string(name) == content:
			if found {
				return nil, k.twice()
			}
			found = true
			if k.res.List != "" {
				out, err = k.list(out)
			} else {
				out, err = k.object(out)
			}
		case k.res.Paginated && string(name) == "pagination":
			if foundPagination {
				return nil, k.twice()
			}
			foundPagination = true
			err = k.pagination(pagination[:])
		default:
			unknown = true
			_, err = k.skip(1)
		}
		if err != nil {
			return nil, err
		}
	}
	if k.broken {
		return nil, k.notJSON()
	}
	if unknown {
		if err := k.distinct(start); err != nil {
			return nil, err
		}
	}
	if k.kind() != 0 || k.pos < len(k.body) {
		return nil, k.refuse(ErrNotContract, "", "nothing after the JSON document")
	}
	if !found {
		return nil, k.refuse(ErrNotContract, content, "the member "+content)
	}
	if k.res.Paginated {
		if !foundPagination {
			return nil, k.refuse(ErrNotContract, "pagination", "the member pagination")
		}
		out = append(out, `,"pagination":`...)
		for i := range pagination {
			out = append(out, paginationPlan.members[i].head...)
			out = k.appendSpan(out, pagination[i])
		}
		out = append(out, '}')
	}
	return append(out, '}'), nil
}

// pagination reads the object of that name and compares it with what was asked.
func (k *checker) pagination(spans []span) error {
	if k.kind() != '{' {
		return k.refuse(ErrNotContract, "pagination", "an object")
	}
	k.fault = nil
	seen, err := k.members(paginationPlan, spans, 2)
	if err != nil {
		return err
	}
	k.faultOfMissing(paginationPlan, seen)
	if k.fault != nil {
		return k.refuseFault()
	}
	for i := range spans {
		raw := k.body[spans[i].start:spans[i].end]
		field := paginationPlan.members[i].path
		n, err := strconv.Atoi(string(raw))
		switch {
		case err != nil || n < 0 || raw[0] == '-':
			return k.refuse(ErrNotContract, field, "an integer that is not negative")
		case i == currentPage && n != k.q.Page:
			return k.refuse(ErrNotContract, field, "the page that was asked for, "+strconv.Itoa(k.q.Page))
		case i == perPage && n != k.q.PerPage:
			return k.refuse(ErrNotContract, field, "the per_page that was asked for, "+strconv.Itoa(k.q.PerPage))
		}
	}
	return nil
}

// list reads the array of records, and appends those that leave, in order.
func (k *checker) list(out []byte) ([]byte, error) {
	if k.kind() != '[' {
		return nil, k.refuse(ErrNotContract, k.res.List, "an array of objects")
	}
	k.pos++
	out = append(out, '[')
	first := len(out)
	for k.at = 0; k.next(']', k.at); k.at++ {
		if k.kind() != '{' {
			return nil, k.refuse(ErrNotContract, "", "an object")
		}
		if k.res.Paginated && k.at == k.q.PerPage {
			k.at = -1
			return nil, k.refuse(ErrNotContract, k.res.List, "at most per_page records, "+strconv.Itoa(k.q.PerPage))
		}
		var err error
		if out, err = k.listed(out); err != nil {
			return nil, err
		}
	}
	k.at = -1
	if k.broken {
		return nil, k.notJSON()
	}
	if !k.ordered {
		k.report.Reordered = true
		k.sort(out[first:], first)
	}
	k.report.Records = len(k.records)
	if k.plan.status >= 0 && len(k.records) > k.q.Count {
		k.report.Surplus = len(k.records) - k.q.Count
		k.report.Records = k.q.Count
		out = out[:first]
		if k.q.Count > 0 {
			out = out[:k.records[k.q.Count-1].end]
		}
	}
	return append(out, ']'), nil
}

// sort puts the records of a list, which stand in region at the offset first of the answer, in order.
func (k *checker) sort(region []byte, first int) {
	slices.SortStableFunc(k.records, func(a, b record) int { return b.created.compare(a.created) })
	k.scratch = k.scratch[:0]
	for i := range k.records {
		r := &k.records[i]
		if i > 0 {
			k.scratch = append(k.scratch, ',')
		}
		start := first + len(k.scratch)
		k.scratch = append(k.scratch, region[r.start-first:r.end-first]...)
		r.start, r.end = start, first+len(k.scratch)
	}
	copy(region, k.scratch)
}

// listed reads one record of a list and appends it if it leaves.
func (k *checker) listed(out []byte) ([]byte, error) {
	seen, err := k.read(3)
	if err != nil {
		return nil, err
	}
	events := k.plan.status >= 0
	if err := k.mine(); err != nil {
		if events && errors.Is(err, ErrForeignRecord) {
			return out, nil
		}
		return nil, err
	}
	if events {
		status := k.text(k.spans[k.plan.status])
		if status == nil {
			return nil, k.refuse(ErrNotContract, statusMark, "a string: published, draft or archived")
		}
		if string(status) != publishedStatus {
			k.report.Unpublished++
			return out, nil
		}
	}
	k.faultOfMissing(k.plan, seen)
	if k.fault != nil {
		return nil, k.refuseFault()
	}

	var created moment
	known := false
	for _, i := range k.plan.order {
		if text := k.text(k.spans[i]); text != nil {
			created, known = parseInstant(text)
			break
		}
	}
	if events && !known {
		return nil, k.refuse(ErrNotContract, "published_at", "published_at or created_at of a published event")
	}
	if n := len(k.records); n > 0 {
		out = append(out, ',')
		if k.records[n-1].created.compare(created) < 0 {
			k.ordered = false
		}
	}
	r := record{start: len(out), created: created}
	out = k.appendRecord(out)
	r.end = len(out)
	k.records = append(k.records, r)
	return out, k.grown(len(out))
}

// object reads the one record of a resource without a list.
func (k *checker) object(out []byte) ([]byte, error) {
	if k.kind() != '{' {
		return nil, k.refuse(ErrNotContract, k.res.Object, "an object")
	}
	seen, err := k.read(2)
	if err != nil {
		return nil, err
	}
	if err := k.mine(); err != nil {
		return nil, err
	}
	k.faultOfMissing(k.plan, seen)
	if k.fault != nil {
		return nil, k.refuseFault()
	}
	k.report.Records = 1
	return k.appendRecord(out), nil
}

// read reads the members of a record, an object at a depth, into k.spans.
func (k *checker) read(depth int) (seen uint64, err error) {
	k.fault = nil
	k.scratch, k.extra = k.scratch[:0], k.extra[:0]
	clear(k.spans[:len(k.plan.members)])
	return k.members(k.plan, k.spans[:len(k.plan.members)], depth)
}

// mine is nil when the record that was read is the authenticated business's, and otherwise says why the contract takes
// it for another's. It counts what it finds.
func (k *checker) mine() error {
	mark := k.spans[k.plan.mark]
	if id := k.plan.id; id >= 0 {
		// The record is the business: its id is the mark, and a further mark must not contradict it.
		if err := k.sameBusiness(k.spans[id], k.plan.members[id].path); err != nil || mark == (span{}) {
			return err
		}
	}
	if mark == (span{}) {
		k.report.Unmarked++
		if k.contract.AllowMissingTenant {
			return nil
		}
		return k.refuse(ErrUnmarkedRecord, BusinessMark, "the id of the business that the record belongs to")
	}
	return k.sameBusiness(mark, BusinessMark)
}

// sameBusiness compares a value with the authenticated business's id.
func (k *checker) sameBusiness(s span, field string) error {
	text := k.text(s)
	if text == nil {
		if text = k.body[s.start:s.end]; !isInteger(text) {
			return k.refuse(ErrNotContract, field, KindBusiness.String())
		}
	}
	if string(text) == k.business {
		return nil
	}
	k.report.Foreign++
	return k.refuse(ErrForeignRecord, field, "the authenticated business")
}

func (k *checker) refuseFault() error {
	return k.refuse(ErrNotContract, k.fault.path, k.fault.kind.String())
}

// faultOfMissing notes required members that are not there.
func (k *checker) faultOfMissing(p *plan, seen uint64) {
	if k.fault != nil {
		return
	}
	for i := range p.members {
		if p.members[i].required && seen&(1<<i) == 0 {
			k.fault = &p.members[i]
			return
		}
	}
}

// appendRecord appends the documented members of the record that was read.
func (k *checker) appendRecord(out []byte) []byte {
	for i := range k.plan.fields {
		out = append(out, k.plan.members[i].head...)
		if i == k.plan.id {
			// The same on every endpoint, whatever form the data service keeps it in. It cannot fail but for
			// invalid UTF-8, which no value in the body could have been equal to.
			out, _ = jsontext.AppendQuote(out, k.business)
			continue
		}
		out = k.appendSpan(out, k.spans[i])
	}
	return append(append(out, k.extra...), '}')
}

func (k *checker) appendSpan(out []byte, s span) []byte {
	switch {
	case s.end == 0:
		return append(out, "null"...)
	case s.scratch:
		return append(out, k.scratch[s.start:s.end]...)
	default:
		return append(out, k.body[s.start:s.end]...)
	}
}
