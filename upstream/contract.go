package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// DefaultMaxResponseSize is the default limit of a response's size in bytes. Check does not enforce it; the code that
	// reads the response does.
	DefaultMaxResponseSize int64 = 8 << 20

	// maxDepth is the maximum nesting depth of objects and arrays in a response, including the outermost.
	maxDepth = 64
)

// Contract checks the responses of data services. The zero value is the strictest configuration. A Contract is safe for
// concurrent use and must not be copied after first use.
type Contract struct {
	// AllowMissingTenant accepts records without their tenant, for data services that cannot send it yet. The gateway then
	// cannot tell whether such records belong to the caller. Records with a tenant are still checked. Default: responses
	// with such records are rejected.
	AllowMissingTenant bool

	// PassUnknownFields lists the resources whose records may keep members that the definition does not have. They follow
	// the documented ones, in the order in which the data service sent them. Internal members such as the tenant, and names
	// that differ from a known one only in case, are always removed. It must not change while the Contract is in use.
	// Default: unknown members are removed.
	PassUnknownFields map[string]bool

	// BasePath is the path under which the API is mounted. It precedes those that URLs of the data service become. Default: none.
	BasePath string

	pool sync.Pool // of *checker
}

// Report describes what Check found in a response, including one that it rejected.
type Report struct {
	Records       int  // records in the result
	CrossTenant   int  // records of another business: removed where visibility filters; elsewhere, the response is rejected
	MissingTenant int  // records without a tenant: kept with AllowMissingTenant; otherwise, the response is rejected
	Unpublished   int  // records that may not be seen, removed
	Surplus       int  // records beyond the number that was asked for, removed where visibility filters
	Reordered     bool // records were not newest first, and were sorted

	Deviations []Deviation // that passed; at most 50
}

// Check checks the body of a data service's response against the definition and appends the result for the caller to dst:
// compact JSON with only the documented members, in the definition's order. res is the operation's response that CheckHeader
// returned, q is the query of the request, and businessID the authenticated business. The caller must have limited the size of
// body. After an error, nothing is appended; the error is a *ContractError, wraps ErrNotVisible if the only record may not be
// seen, or ErrIdentity if businessID is empty.
//
//   - The result is at most twice as large as the body plus 1 MiB, however many members are missing.
//   - The body must be one JSON value (RFC 8259) in UTF-8, with no duplicate names, at most 64 levels deep, and with nothing
//     after it.
//   - Each object that has a tenant must be the authenticated business's, whose ID is a string or an integer. A response with
//     another business's object is rejected; where visibility filters, such an object is removed.
//   - Objects that may not be seen are removed. Their invalid members are ignored.
//   - Members must be as documented. One that is missing becomes null if it is required and may be null, and is left out if it
//     is not required; otherwise the response is rejected.
//   - Lists of records have at most as many as were asked for: others are removed where visibility filters, and rejected elsewhere.
//     They are sorted newest first; the sort is stable, and records without an instant count as oldest.
//
// Check reads the body in one pass of its own, which is faster than a library's. It uses the library jsontext for objects with
// many undocumented members and for strings with escapes. The fuzz tests compare the pass with the library.
func (c *Contract) Check(dst *bytes.Buffer, op *Operation, res *DocumentedResponse, q Query, businessID string, body []byte) (Report, error) {
	if businessID == "" {
		return Report{}, fmt.Errorf("%w: no business", ErrIdentity)
	}
	if res.Body == nil || op.ByGateway && op.Answer == nil {
		return Report{}, fmt.Errorf("checking a response: there is none of a data service for %s", op.ID)
	}
	room := len(body) + 64
	if res.Mapped { // members come in any order, and are put into the definition's
		room += 2 * len(body)
	}
	dst.Grow(room)
	k := c.checker(op, res, q, businessID, body, dst.AvailableBuffer())
	err := k.document()
	report, out := k.report, k.out
	report.Deviations = k.deviations()
	k.release()
	if err != nil {
		return report, err
	}
	dst.Write(out)
	return report, nil
}

// Removed lists what Check removes from a response, at most 50 places, for people who look for the difference between a data service and
// its definition. There are no values in it: of names that the definition does not have, only those that are identifiers.
func (c *Contract) Removed(op *Operation, res *DocumentedResponse, q Query, businessID string, body []byte) []Violation {
	k := c.checker(op, res, q, businessID, body, nil)
	defer k.release()
	k.listing, k.enforce = true, EnforceAll
	_ = k.document() // Check returns it
	return k.listed
}

// The reasons of Violations that a service team must not take for a mistake of form.
const (
	OtherBusiness = "is another business's"
	NoBusiness    = "does not say whose it is"
)

// Violations lists all for which Check rejects a response or removes a record of another business, at most 50 places, for people who look
// for the mistakes of a data service. Check stops at the first. There are no values in it, as in that of Removed.
func (c *Contract) Violations(op *Operation, res *DocumentedResponse, q Query, businessID string, body []byte) []Violation {
	k := c.checker(op, res, q, businessID, body, nil)
	k.listing, k.judging, k.enforce = true, true, EnforceAll
	violated, ok := k.document().(*ContractError) //nolint:errorlint // document returns it as it is
	listed := k.listed
	k.release()
	if !ok && len(listed) == 0 { // Check may reject what a choice or the removal of an object has taken back
		k = c.checker(op, res, q, businessID, body, nil)
		k.enforce = EnforceAll
		violated, ok = k.document().(*ContractError) //nolint:errorlint // as above
		k.release()
	}
	repeated := func(v Violation) bool { return v.Reason == twice }
	if !ok || violated.Expected == noDuplicates && slices.ContainsFunc(listed, repeated) {
		return listed
	}
	return append(listed, res.violation(violated))
}

// violation returns what is wrong with a response as a Violation.
func (r *DocumentedResponse) violation(e *ContractError) Violation {
	in := ""
	if r.Records != nil && (e.Record >= 0 || e.Field != "" || e.Expected == recordArray) {
		in = r.Records.In
	}
	var pointer jsontext.Pointer
	if in != "" {
		pointer = pointer.AppendToken(in)
	}
	if e.Record >= 0 {
		pointer = pointer.AppendToken(strconv.Itoa(e.Record))
	}
	if e.Field != "" && e.Field != in { // otherwise, it is the array itself
		for name := range strings.SplitSeq(e.Field, ".") {
			pointer = pointer.AppendToken(name)
		}
	}
	reason := "expected " + e.Expected
	switch {
	case errors.Is(e, ErrCrossTenantRecord):
		reason = OtherBusiness
	case errors.Is(e, ErrMissingTenant):
		reason = NoBusiness
	}
	return Violation{Pointer: string(pointer), Reason: reason}
}

// CheckAnswer checks an operation's Answer against its response with status 200, and removes what Check would.
func CheckAnswer(op *Operation) error {
	op.compile()
	var out bytes.Buffer
	_, err := new(Contract).Check(&out, op, op.response(http.StatusOK), Query{}, "-", op.Answer)
	op.Answer = out.Bytes()
	return err
}

// span is the position of a value: in the body, or in the result if result is set. The zero span is that of a missing value.
type span struct {
	start, end int
	result     bool
}

// hidden is the span of an object that was removed.
var hidden = span{end: -1} //nolint:gochecknoglobals // a constant

// absent reports whether there is no value, or it was removed.
func (s span) absent() bool { return s.end <= 0 }

// record is a record of a list that has been appended to the result.
type record struct {
	start, end int // in the result, without the preceding comma
	created    moment
}

// checker is the state of one Check.
type checker struct {
	contract *Contract
	op       *Operation
	res      *DocumentedResponse
	q        Query
	business string
	body     []byte
	out      []byte      // the result
	pos      int         // in body
	broken   bool        // the body is not valid JSON; reading has stopped
	brokenAt int         // where
	escapes  bool        // the body contains backslashes
	controls bool        // the body contains control characters, which may be white space
	pass     bool        // keep unknown members of records
	request  bool        // the body is a request's: unknown members are invalid
	enforce  Enforcement // of responses
	listing  bool        // all that is invalid or removed is listed
	judging  bool        // with listing: all that is invalid, of all records, and not what is removed
	trying   bool        // the alternatives of a choice
	strict   bool        // unknown members are invalid
	work     int         // bytes that were read again
	matching matching
	report   Report

	at       int   // index of the record being read, -1 outside of a list of records
	foreign  fault // the first object of another business
	invalid  fault // the first invalid or missing member, of the record if there is one
	listed   []Violation
	ordered  bool // all records so far are newest first
	records  []record
	spans    []span // of the properties of the objects being read
	scratch  []byte // records while they are sorted
	extra    []byte // members that are not properties, of the objects being read
	unquoted []byte
	names    [][]byte // the undocumented ones of the objects being read
	escaped  []byte   // scratch for validating strings with escapes

	converted []byte // values that differ from those in the body
}

// fault is an invalid value. The zero fault is none.
type fault struct {
	schema *Schema
	path   string // of members, such as "schedule.date"
	kind   error  // default: ErrContractViolation
	why    string // what was expected; default: what the schema says
	from   string // where the data service has the value, if it is elsewhere
}

const (
	recordArray  = "an array of records"
	noDuplicates = "no duplicate names in an object"
	twice        = "is given twice"

	// maxPooled is the largest capacity, in bytes, of a buffer that returns to the pool.
	maxPooled = 1 << 20

	// maxWork is how many times the body's size may be read again, for choices and undocumented members, and lessWork what is
	// read again of a small body.
	maxWork, lessWork = 64, 64 << 10
)

// checker returns one for a body, with the buffers of an earlier one. It must be released.
func (c *Contract) checker(op *Operation, res *DocumentedResponse, q Query, business string, body, out []byte) *checker {
	k, _ := c.pool.Get().(*checker)
	if k == nil {
		k = new(checker)
	}
	k.contract, k.op, k.res, k.q, k.business, k.body, k.out = c, op, res, q, business, body, out
	k.pass, k.enforce, k.at, k.ordered = c.PassUnknownFields[op.Resource], op.Enforce, -1, true
	k.matching.left = maxMatching * time.Duration(1+len(body)>>20)
	return k
}

// release returns the checker to the pool, without the request's data.
func (k *checker) release() {
	pool := &k.contract.pool
	clear(k.names[:cap(k.names)])
	*k = checker{
		records:   emptied(k.records, maxPooled/64),
		spans:     emptied(k.spans, maxPooled/64),
		names:     emptied(k.names, maxPooled/64),
		scratch:   emptied(k.scratch, maxPooled),
		extra:     emptied(k.extra, maxPooled),
		unquoted:  emptied(k.unquoted, maxPooled),
		escaped:   emptied(k.escaped, maxPooled),
		converted: emptied(k.converted, maxPooled),
	}
	pool.Put(k)
}

// emptied returns a buffer to use again, or none if its capacity is larger than most.
func emptied[T any](buffer []T, most int) []T {
	if cap(buffer) > most {
		return nil
	}
	return buffer[:0]
}

// violation returns the error for the current record. After abort, it returns notJSON.
func (k *checker) violation(kind error, field, expected string) error {
	if k.broken {
		return k.notJSON()
	}
	if field == k.op.Resource {
		field = "" // the error has the resource's name already
	}
	return &ContractError{Kind: kind, Resource: k.op.Resource, Record: k.at, Field: field, Expected: expected}
}

func (k *checker) tooDeep() error {
	return k.violation(ErrContractViolation, "", "objects and arrays at most "+strconv.Itoa(maxDepth)+" deep")
}

func (k *checker) duplicate() error {
	return k.violation(ErrContractViolation, "", noDuplicates)
}

// again counts bytes that are read again. It bounds the work for a hostile response.
func (k *checker) again(n int) error {
	if k.work += n; k.work > maxWork*len(k.body)+lessWork {
		return k.violation(ErrContractViolation, "", "fewer nested choices and undocumented members")
	}
	return nil
}

// document reads the body.
func (k *checker) document() error {
	k.scan()
	if k.kind(); k.broken {
		return k.notJSON()
	}
	var root span
	var err error
	switch {
	case k.enforce != EnforceAll && k.res.in >= 0 && k.kind() != '{':
		return k.violation(ErrContractViolation, "", "an object with the member "+k.res.Records.In)
	case k.res.from != nil:
		root, err = k.below()
	case k.res.in < 0 && k.res.Records != nil:
		root, err = k.recordsOrRecord(k.res.Body, 0)
	default:
		root, err = k.value(k.res.Body, 0)
	}
	if err == nil {
		err = k.settle()
	}
	switch {
	case err != nil:
		return err
	case k.broken:
		return k.notJSON()
	}
	if k.space(); k.pos < len(k.body) {
		return k.violation(ErrContractViolation, "", "nothing after the JSON document")
	}
	switch {
	case root == hidden:
		return fmt.Errorf("%w: %s", ErrNotVisible, k.op.ID)
	case !root.result:
		k.out = append(k.out, k.body[root.start:root.end]...)
	}
	return nil
}

// settle returns the error for what was noted.
func (k *checker) settle() error {
	if k.broken {
		return k.notJSON()
	}
	f := k.foreign
	if f.schema == nil {
		f = k.invalid
	}
	if f.schema == nil || k.request || k.judging {
		return nil
	}
	if f.kind == nil {
		f.kind = ErrContractViolation
	}
	if f.why == "" {
		f.why = f.schema.expected()
		if s := f.schema; (s.Types&TypeString == 0 || s.Format == FormatText) && (s.Rules != nil || s.Choice != nil) {
			f.why += " as the definition says"
		}
	}
	if f.from != "" {
		f.why += ", from " + f.from
	}
	return k.violation(f.kind, f.path, f.why)
}

// note notes an invalid value, unless it breaks only a rule that is not enforced. name is the member's, if it is one.
func (k *checker) note(rule string, s *Schema, name, why string) {
	if k.passes(rule) {
		k.deviate(rule, name)
		return
	}
	if k.invalid.schema == nil {
		k.invalid = fault{schema: s, path: name, why: why}
	}
	if k.listing {
		k.violate(s, name, why)
	}
}

// recordsOrRecord reads what the definition says are the records. depth is that of the surrounding object.
func (k *checker) recordsOrRecord(s *Schema, depth int) (span, error) {
	if k.res.list {
		return k.list(s, depth+1)
	}
	if k.kind() != '{' { // only null can be valid
		enforce := k.enforce
		k.enforce = EnforceAll
		v, err := k.value(s, depth)
		k.enforce = enforce
		return v, err
	}
	base := len(k.spans)
	v, err := k.object(s, depth+1, true)
	if err == nil {
		err = k.settle()
	}
	if err != nil || v == hidden {
		return v, err
	}
	if err := k.askedFor(k.spans[base : base+len(s.Properties)]); err != nil {
		return v, err
	}
	k.report.Records = 1
	return v, nil
}

// askedFor returns an error if a record is another one than the path asked for.
func (k *checker) askedFor(spans []span) error {
	for i, is := range k.res.is {
		asked := ""
		if is[1] < len(k.q.is) {
			asked = k.q.is[is[1]]
		}
		if name := k.res.Records.Is[i].Property; !k.equals(spans[is[0]], asked) && !k.lets(ruleRecord, name) {
			return k.violation(ErrWrongRecord, name, "the record that was asked for")
		}
	}
	return nil
}

// equals reports whether a string or a number is what a path asked for.
func (k *checker) equals(v span, asked string) bool {
	text := k.text(v)
	if text == nil && !v.absent() && !v.result {
		text = k.raw(v)
	}
	return string(text) == asked
}

// list reads the array of records and writes those to keep, sorted. depth is the array's.
func (k *checker) list(s *Schema, depth int) (span, error) {
	if first := k.kind(); first != '[' {
		if first == 'n' && s.Types&TypeNull != 0 {
			return k.value(s, depth-1)
		}
		return span{}, k.violation(ErrContractViolation, k.res.Records.In, recordArray)
	}
	k.pos++
	begin := len(k.out)
	k.out = append(k.out, '[')
	first, most, filtered, begun := len(k.out), k.res.most(k.q), s.Items.visible >= 0, len(k.listed)
	surplus := false // which passes
	for k.at = 0; k.next(']', k.at); k.at++ {
		if k.kind() != '{' {
			return span{}, k.violation(ErrContractViolation, "", "an object")
		}
		if !filtered && k.at >= most && !k.judging && !surplus {
			surplus = k.lets(ruleRecords, "")
		}
		if !filtered && k.at >= most && !k.judging && !surplus {
			k.at = -1
			return span{}, k.violation(ErrContractViolation, k.res.Records.In, "at most "+k.op.numbered(k.res.Records.AtMost)+" records, "+strconv.Itoa(most))
		}
		if len(k.records) > 0 {
			k.out = append(k.out, ',')
		}
		r := record{start: len(k.out)}
		base := len(k.spans)
		listed := len(k.listed)
		v, err := k.object(s.Items, depth+1, true)
		if len(k.listed) > listed {
			k.item(begun, listed, k.at)
		}
		if err == nil {
			err = k.settle()
		}
		if err != nil {
			return span{}, err
		}
		if v == hidden {
			k.out = k.out[:max(r.start-1, first)]
			continue
		}
		if err := k.askedFor(k.spans[base : base+len(s.Items.Properties)]); err != nil {
			return span{}, err
		}
		known := false
		for _, i := range k.res.order {
			if text := k.text(k.spans[base : base+len(s.Items.Properties)][i]); text != nil {
				r.created, known = parseInstant(text)
				break
			}
		}
		if filtered && !known && len(k.res.order) > 0 && !k.lets(ruleOrder, "") {
			return span{}, k.violation(ErrContractViolation, k.res.Records.Order[0], strings.Join(k.res.Records.Order, " or ")+" in a record that may be seen")
		}
		if n := len(k.records); n > 0 && k.records[n-1].created.compare(r.created) < 0 {
			k.ordered = false
		}
		r.end = len(k.out)
		k.records = append(k.records, r)
	}
	n := k.at
	k.at = -1
	if k.broken {
		return span{}, k.notJSON()
	}
	if k.judging && !filtered && n > most {
		k.violate(s, "", "at most "+k.op.numbered(k.res.Records.AtMost)+" records, "+strconv.Itoa(most))
	}
	if r := s.Rules; r != nil && (n < r.MinItems || r.Unique && !k.distinctRecords()) && !k.lets(ruleItems, "") {
		return span{}, k.violation(ErrContractViolation, k.res.Records.In, "another number of records, or different ones")
	}
	if !k.ordered {
		k.report.Reordered = true
		k.sort(k.out[first:], first)
	}
	k.report.Records = len(k.records)
	if filtered && len(k.records) > most {
		k.report.Surplus = len(k.records) - most
		k.report.Records = most
		k.out = k.out[:first]
		if most > 0 {
			k.out = k.out[:k.records[most-1].end]
		}
	}
	k.out = append(k.out, ']')
	return span{begin, len(k.out), true}, nil
}

// distinctRecords reports whether no record of the list equals another one.
func (k *checker) distinctRecords() bool {
	seen := map[string]bool{}
	for _, r := range k.records {
		seen[canonical(k.out[r.start:r.end])] = true
	}
	return len(k.records) <= maxUnique && len(seen) == len(k.records)
}

// sort sorts the records of a list. They are in region, which begins at offset first of the result.
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

// owner returns the fault of an object that does not belong to the authenticated business. It updates the report.
func (k *checker) owner(s *Schema, spans []span) fault {
	if tenant := spans[s.tenant]; !k.isNull(tenant) || s.TenantIsField {
		f := k.sameBusiness(s, tenant, s.Tenant)
		if f.schema == nil && s.also >= 0 && !k.isNull(spans[s.also]) {
			f = k.sameBusiness(s, spans[s.also], s.AlsoTenant)
		}
		return f
	}
	k.report.MissingTenant++
	if k.contract.AllowMissingTenant {
		return fault{}
	}
	return fault{schema: s, path: s.Tenant, kind: ErrMissingTenant, why: "the ID of the business that the record belongs to"}
}

// isNull reports whether a value is missing or null, or none that could name anything: an object or an array.
func (k *checker) isNull(v span) bool {
	return v.absent() || v.result || typeOf(k.raw(v)[0])&(TypeNull|TypeObject|TypeArray) != 0
}

// sameBusiness returns the fault of a value that is not the authenticated business's ID.
func (k *checker) sameBusiness(s *Schema, v span, name string) fault {
	text := k.text(v)
	if text == nil {
		if k.isNull(v) || !isInteger(k.raw(v)) {
			return fault{schema: s, path: name, kind: ErrContractViolation, why: "the business ID as a string or an integer"}
		}
		text = k.raw(v)
	}
	if string(text) == k.business {
		return fault{}
	}
	k.report.CrossTenant++
	return fault{schema: s, path: name, kind: ErrCrossTenantRecord, why: "the authenticated business"}
}

// object reads an object and writes what leaves of it. depth is the object's. It returns hidden if the object must be removed. The spans of
// its properties follow the end of k.spans until the next object is read.
func (k *checker) object(s *Schema, depth int, isRecord bool) (span, error) {
	if depth > maxDepth {
		return span{}, k.tooDeep()
	}
	start, base, extra, listed := len(k.out), len(k.spans), len(k.extra), len(k.listed)
	before := around{start: start, extra: extra, listed: listed, crossTenant: k.report.CrossTenant}
	if s.visible >= 0 {
		before.invalid, before.foreign = k.invalid, k.foreign
	}
	placed, mark := 0, start
	var err error
	if s.from == nil || k.request || k.op.ByGateway { // a body is mapped when it has been checked, and the gateway's own answer not at all
		placed, mark, err = k.members(s, depth, isRecord)
	} else {
		err = k.gather(s, depth, isRecord)
	}
	if err != nil {
		return span{}, err
	}
	spans := k.spans[base:]
	k.spans = k.spans[:base]
	if !k.complete(s, spans, placed, mark, &before) {
		return hidden, nil
	}
	return span{start, len(k.out), true}, k.checkSize()
}

// around is the state of a checker before it reads an object, without which the object is removed.
type around struct {
	start, extra, listed, crossTenant int
	invalid, foreign                  fault // if its visibility decides
}

// complete writes an object whose properties have been read, as finish does, unless it must be removed.
func (k *checker) complete(s *Schema, spans []span, placed, mark int, before *around) bool {
	switch {
	case s.tenant < 0 && s.visible < 0:
	case k.request:
		k.ownBusiness(s, spans)
	case k.mustGo(s, spans, before.foreign):
		k.out, k.extra, k.invalid, k.foreign = k.out[:before.start], k.extra[:before.extra], before.invalid, before.foreign
		k.listed = k.listed[:before.listed]
		switch {
		case !k.listing:
		case !k.judging:
			k.violate(s, "", "is removed: it may not be seen")
		case k.report.CrossTenant > before.crossTenant:
			k.violate(s, s.Tenant, OtherBusiness)
		}
		return false
	}
	if s.numbers {
		k.checkNumbers(s, spans)
	}
	if in := k.res.in; k.enforce == EnforceTenant && in >= 0 && s == k.res.Body && len(k.spans) == 0 && spans[in].end == 0 && len(k.extra) > before.extra {
		k.note(holds, s.Properties[in].Schema, s.Properties[in].Name, recordArray) // the records may be in what is not documented
	}
	k.finish(s, spans, placed, mark, before.start, before.extra)
	return true
}

// mustGo reports whether an object must be removed: it may not be seen, or it may be removed and is another business's. It notes other faults
// of its tenant and visibility. foreign is what was noted before the object.
func (k *checker) mustGo(s *Schema, spans []span, foreign fault) bool {
	var owner fault
	if s.tenant >= 0 {
		if tenant := k.text(spans[s.tenant]); s.also >= 0 || string(tenant) != k.business { // otherwise, it is as it should be
			owner = k.owner(s, spans)
		}
	}
	switch {
	case owner.kind == ErrCrossTenantRecord && s.visible < 0: //nolint:errorlint // it is not wrapped
		if k.judging {
			k.violate(s, owner.path, OtherBusiness)
		}
		if k.foreign.schema == nil {
			k.foreign = owner
		}
	case owner.kind == ErrCrossTenantRecord, s.visible >= 0 && k.foreign.schema != foreign.schema: //nolint:errorlint // as above
		return true
	case owner.schema != nil:
		k.invalid = owner                                // before everything else, whether the object may be seen or not
		if k.judging && owner.kind == ErrMissingTenant { //nolint:errorlint // it is not wrapped
			k.violate(s, owner.path, NoBusiness)
		} else if k.judging {
			k.violate(s, owner.path, owner.why)
		}
	case s.visible >= 0:
		value := k.text(spans[s.visible])
		if value == nil {
			if k.invalid = (fault{schema: s, path: s.Visible, why: "a string"}); k.judging {
				k.violate(s, s.Visible, "a string")
			}
		} else if !slices.Contains(s.Shown, string(value)) {
			k.report.Unpublished++
			return true
		}
	}
	return false
}

// members reads the members of an object and pushes the spans of its properties. Objects and arrays that come in the order of the definition
// are written in place, after the properties before them: placed is the number of the properties that have been, up to mark.
func (k *checker) members(s *Schema, depth int, isRecord bool) (placed, mark int, err error) {
	begin, base, unknown, previous := k.pos, len(k.spans), k.newNames(), 0
	mark = len(k.out)
	k.spans = slices.Grow(k.spans, len(s.Properties))[:base+len(s.Properties)]
	clear(k.spans[base:])
	k.pos++
	n := 0
	for ; k.next('}', n); n++ {
		i := int(s.follows[previous].Load())
		if i >= len(s.Properties) || !k.named(s.Properties[i].label) {
			raw := k.name()
			var known bool
			if i, known = s.index[string(k.unquote(raw))]; !known {
				k.addName(&unknown, raw)
				if err := k.unknown(s, raw, depth, isRecord); err != nil {
					return 0, 0, err
				}
				continue
			}
			s.follows[previous].Store(uint32(i)) //nolint:gosec // G115: an index
		}
		p := &s.Properties[i]
		if previous = i + 1; k.spans[base+i].end != 0 {
			k.note(holds, p.Schema, p.Name, twice)
			return 0, 0, k.duplicate()
		}
		var first byte // as of kind, which is too large to be inlined
		if k.pos < len(k.body) {
			first = k.body[k.pos]
		}
		if first <= ' ' {
			first = k.kindAfterSpace()
		}
		if start := k.pos; first != '{' && first != '[' && (p.Schema.Choice == nil || first == 'n') {
			v := k.scalar(first, start)
			if k.broken {
				return 0, 0, k.notJSON()
			}
			k.spans[base+i] = v
			if k.isScalar(p.Schema, first, v) {
				continue
			}
			if !p.Internal || first != 'n' {
				k.noteScalar(p.Schema, p.Name, first, v)
			}
		} else if placed, mark, err = k.nested(s, i, base, depth, placed, mark); err != nil {
			return 0, 0, err
		}
		if depth == 1 && !isRecord && !k.trying {
			if err := k.settle(); err != nil {
				return 0, 0, err
			}
		}
	}
	if k.broken {
		return 0, 0, k.notJSON()
	}
	if unknown.n > 0 {
		if err := k.distinct(unknown, begin); err != nil {
			return 0, 0, err
		}
	}
	if r := s.Rules; r != nil && (n < r.MinMembers || r.MaxMembers >= 0 && n > r.MaxMembers) {
		k.note(ruleMembers, s, "", between(r.MinMembers, r.MaxMembers)+" members")
	}
	if s.Additional != nil && unknown.n > maxFree {
		k.note(holds, s, "", between(0, maxFree)+" members")
	}
	return placed, mark, nil
}

// nested reads the value of the i-th property, which is not a scalar or may be one of several.
func (k *checker) nested(s *Schema, i, base, depth, placed, mark int) (newPlaced, newMark int, err error) {
	p := &s.Properties[i]
	place := len(k.out) == mark && i < s.fields && !k.outOfOrder(base, placed, i)
	if place {
		for j := placed; j < i; j++ {
			k.out = k.appendProperty(k.out, s, j, k.spans[base+j])
		}
		placed, mark = i, len(k.out)
		k.out = append(k.out, p.head...)
	}
	valid, listed := k.invalid.schema == nil, len(k.listed)
	var v span
	if depth == 1 && i == k.res.in {
		v, err = k.recordsOrRecord(p.Schema, depth)
	} else {
		v, err = k.value(p.Schema, depth)
	}
	if len(k.listed) > listed {
		k.within(listed, p.Name)
	}
	if err != nil {
		return 0, 0, err
	}
	if valid && k.invalid.schema != nil {
		k.invalid.path = strings.TrimSuffix(p.Name+"."+k.invalid.path, ".")
	}
	k.spans[base+i] = v
	switch {
	case !place:
		return placed, mark, nil
	case v.absent():
		k.out = k.out[:mark]
		return placed, mark, nil
	case !v.result:
		k.out = append(k.out, k.body[v.start:v.end]...)
	}
	return i + 1, len(k.out), nil
}

// outOfOrder reports whether a property before the i-th has not been read yet.
func (k *checker) outOfOrder(base, placed, i int) bool {
	for j := placed; j < i; j++ {
		if k.spans[base+j].end == 0 {
			return true
		}
	}
	return i < placed
}

// checkNumbers notes properties that are not what was asked for.
func (k *checker) checkNumbers(s *Schema, spans []span) {
	for i := range s.Properties {
		p, v := &s.Properties[i], spans[i]
		if p.Number == 0 || k.isNull(v) {
			continue
		}
		asked := k.q.Numbers[p.Number-1]
		if k.escaped = strconv.AppendInt(k.escaped[:0], int64(asked), 10); compareNumbers(k.raw(v), k.escaped) != 0 {
			k.note(rulePage, p.Schema, p.Name, "the requested "+k.op.numbered(p.Number)+", "+strconv.Itoa(asked))
			return
		}
	}
}

// appendProperty appends a property, which is missing if v is absent.
func (k *checker) appendProperty(out []byte, s *Schema, i int, v span) []byte {
	p := &s.Properties[i]
	switch {
	case v.absent() && !p.Required:
		return out
	case v.absent() && (p.Schema.Types&TypeNull == 0 || k.request):
		why := ""
		if k.request {
			why = "is required"
		} else if p.Schema.Types&(TypeObject|TypeArray) != 0 {
			why = "the member " + p.Name
		}
		rule := ruleMissing
		if s == k.res.Body && i == k.res.in {
			rule = holds
		}
		k.note(rule, p.Schema, p.Name, why)
		return out
	case v.absent():
		return append(append(out, p.head...), "null"...)
	case (i == s.tenant || i == s.also) && !k.isNull(v) && !k.request:
		// The same form in every resource, even if the data service uses integers. It cannot fail, because
		// k.business equals a value in the body, which is valid UTF-8.
		out, _ = jsontext.AppendQuote(append(out, p.head...), k.business)
		return out
	case v.result:
		out = append(out, p.head...)
		return append(out, k.out[v.start:v.end]...)
	default:
		return append(append(out, p.head...), k.raw(v)...)
	}
}

// finish writes the properties that have not been written in place, and further members.
func (k *checker) finish(s *Schema, spans []span, placed, mark, start, extra int) {
	end := len(k.out) // up to which objects and arrays stand that have been read out of order
	out := k.out
	for i := placed; i < s.fields; i++ {
		if v := spans[i]; v.end > 0 && !v.result && i != s.tenant && i != s.also {
			out = append(append(out, s.Properties[i].head...), k.raw(v)...)
		} else {
			out = k.appendProperty(out, s, i, v)
		}
	}
	out = append(out, k.extra[extra:]...)
	k.extra = k.extra[:extra]
	if mark < end {
		out = out[:mark+copy(out[mark:], out[end:])]
	}
	if len(out) == start {
		out = append(out, ',')
	}
	out[start] = '{' // instead of the first comma
	out = append(out, '}')
	k.out = out
}
