package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

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
	// AllowMissingTenant accepts records without business_id, for data services that cannot send it yet. The gateway then
	// cannot tell whether such records belong to the caller. Records with business_id are still checked. Default: responses
	// with such records are rejected.
	AllowMissingTenant bool

	// PassUnknownFields lists the resources whose records may keep members that the contract does not define. They follow
	// the documented ones, in the order in which the data service sent them. Internal members such as business_id, and names
	// that differ from a known one only in case, are always removed. It must not change while the Contract is in use.
	// Default: unknown members are removed.
	PassUnknownFields map[string]bool

	pool sync.Pool // of *checker
}

// Report describes what Check found in a response, including one that it rejected.
type Report struct {
	Records       int  // records in the result
	CrossTenant   int  // records of another business: removed from /events; elsewhere, the response is rejected
	MissingTenant int  // records without business_id: kept with AllowMissingTenant; otherwise, the response is rejected
	Unpublished   int  // unpublished events, removed
	Surplus       int  // published events beyond count, removed
	Reordered     bool // records were not newest first, and were sorted
}

// Check checks the body of a data service's 200 response against the contract and appends the result for the caller to dst:
// compact JSON with only the documented members, in the contract's order, and null for missing ones. q is the query of the
// request, and businessID the authenticated business. The caller must have limited the size of body. After an error, nothing
// is appended; the error is a *ContractError, or wraps ErrIdentity if businessID is empty. Check must not be called for a
// resource that the gateway serves itself, which is an error too.
//
//   - The result is at most twice as large as the body plus 1 MiB, however many members are missing.
//   - The body must be one JSON object (RFC 8259) in UTF-8, with no duplicate names, at most 64 levels deep, and with nothing
//     after it. It must contain the resource's list or object, and the object `pagination` if the resource has it, with four
//     non-negative integers, for the requested page. Other top-level members are removed.
//   - Each record's business_id must be the authenticated business, as a string or an integer. A response with another
//     business's record is rejected; from /events, such a record is removed. In /business, id is the tenant field.
//   - Fields must have their documented kind or be null; an id must not be null. Enumerations may have undocumented values.
//     Invalid fields of removed events are ignored.
//   - /events: each record must have the internal member status. Only published events are kept, at most q.Count, most recent
//     first by published_at, or by created_at if that is null.
//   - Lists must have at most per_page records. They are sorted newest first by their creation; the sort is stable, and records
//     without that instant count as oldest.
//
// Check reads the body in one pass of its own, which is faster than a library's. It uses the library jsontext for undocumented
// members and for strings with escapes. The fuzz tests compare the pass with the library.
func (c *Contract) Check(dst *bytes.Buffer, res *Resource, q Query, businessID string, body []byte) (Report, error) {
	if businessID == "" {
		return Report{}, fmt.Errorf("%w: no business", ErrIdentity)
	}
	if res.schema == nil {
		return Report{}, fmt.Errorf("checking a response: %s is served by the gateway itself", res.Name)
	}
	k, _ := c.pool.Get().(*checker)
	if k == nil {
		k = new(checker)
	}
	defer func() {
		k.release()
		c.pool.Put(k)
	}()
	k.start(c, res, q, businessID, body)

	dst.Grow(len(body) + 64)
	out, err := k.document(dst.AvailableBuffer())
	if err != nil {
		return k.report, err
	}
	dst.Write(out)
	return k.report, nil
}

// span is the position of a value in the body, or in the checker's scratch. The zero span is null.
type span struct {
	start, end int
	scratch    bool
}

// record is a record of a list that has been appended to the result.
type record struct {
	start, end int // in the result, without the preceding comma
	created    moment
}

// checker is the state of one Check.
type checker struct {
	contract *Contract
	res      *Resource
	schema   *schema
	q        Query
	business string
	body     []byte
	pos      int  // in body
	broken   bool // the body is not valid JSON; reading has stopped
	brokenAt int  // where
	escapes  bool // the body contains backslashes
	controls bool // the body contains control characters, which may be white space
	pass     bool // keep unknown fields
	report   Report

	at       int     // index of the record being read, -1 outside of the list
	invalid  *member // the first invalid or missing member of the record
	ordered  bool    // all records so far are newest first
	records  []record
	spans    [maxMembers]span
	guess    [2*maxMembers + MaxNumbers]int // the member at each position of the previous object, as services usually keep one order
	scratch  []byte                         // arrays of objects and of strings, compact
	extra    []byte                         // unknown members to keep
	unquoted []byte
	escaped  []byte // scratch for validating strings with escapes
}

// maxPooled is the largest capacity, in bytes, of a buffer that returns to the pool.
const maxPooled = 1 << 20

func (k *checker) start(c *Contract, res *Resource, q Query, business string, body []byte) {
	k.contract, k.res, k.schema, k.q, k.business, k.body = c, res, res.schema, q, business, body
	k.pass = c.PassUnknownFields[res.Name]
	k.pos, k.report, k.at, k.invalid, k.ordered = 0, Report{}, -1, nil, true
	k.records = k.records[:0]
	clear(k.guess[:])
}

// release drops all references to the request's data and frees large buffers.
func (k *checker) release() {
	k.contract, k.res, k.schema, k.business, k.body, k.invalid = nil, nil, nil, "", nil, nil
	for _, buffer := range [...]*[]byte{&k.scratch, &k.extra, &k.unquoted, &k.escaped} {
		if cap(*buffer) > maxPooled {
			*buffer = nil
		}
	}
	if cap(k.records) > maxPooled/64 {
		k.records = nil
	}
}

// violation returns the error for the current record. After abort, it returns notJSON.
func (k *checker) violation(kind error, field, expected string) error {
	if k.broken {
		return k.notJSON()
	}
	if field == k.res.Name {
		field = "" // the error has the resource's name already
	}
	return &ContractError{Kind: kind, Resource: k.res.Name, Record: k.at, Field: field, Expected: expected}
}

func (k *checker) tooDeep() error {
	return k.violation(ErrContractViolation, "", "objects and arrays at most "+strconv.Itoa(maxDepth)+" deep")
}

func (k *checker) duplicate() error {
	return k.violation(ErrContractViolation, "", "no duplicate names in an object")
}

// document reads the members of the document and appends the result.
func (k *checker) document(out []byte) ([]byte, error) {
	content := k.res.List
	if content == "" {
		content = k.res.Object
	}
	out = append(append(append(out, `{"`...), content...), `":`...)
	var numbers [MaxNumbers]span
	var found, foundEnvelope, unknown bool
	k.scan()
	if k.broken || k.kind() != '{' {
		return nil, k.violation(ErrContractViolation, "", "a JSON object")
	}
	start := k.pos
	k.pos++
	for n := 0; k.next('}', n); n++ {
		name := k.unquote(k.name())
		var err error
		switch {
		case string(name) == content:
			if found {
				return nil, k.duplicate()
			}
			found = true
			if k.res.List != "" {
				out, err = k.list(out)
			} else {
				out, err = k.object(out)
			}
		case k.res.envelope != nil && string(name) == k.res.Envelope:
			if foundEnvelope {
				return nil, k.duplicate()
			}
			foundEnvelope = true
			err = k.envelope(numbers[:len(k.res.Numbers)])
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
	if k.space(); k.pos < len(k.body) {
		return nil, k.violation(ErrContractViolation, "", "nothing after the JSON document")
	}
	if !found {
		return nil, k.violation(ErrContractViolation, content, "the member "+content)
	}
	if k.res.envelope != nil {
		if !foundEnvelope {
			return nil, k.violation(ErrContractViolation, k.res.Envelope, "the member "+k.res.Envelope)
		}
		out = append(append(append(out, `,"`...), k.res.Envelope...), `":`...)
		for i := range k.res.envelope.members {
			out = append(out, k.res.envelope.members[i].head...)
			out = k.appendSpan(out, numbers[i])
		}
		out = append(out, '}')
	}
	return append(out, '}'), nil
}

// envelope reads the object with numbers about a list, and compares it with the query.
func (k *checker) envelope(spans []span) error {
	if k.kind() != '{' {
		return k.violation(ErrContractViolation, k.res.Envelope, "an object")
	}
	k.invalid = nil
	schema := k.res.envelope
	seen, err := k.members(schema, spans, 2)
	if err != nil {
		return err
	}
	k.checkRequired(schema, seen)
	if k.invalid != nil {
		return k.invalidMember()
	}
	for i := range spans {
		raw := k.body[spans[i].start:spans[i].end]
		n, err := strconv.Atoi(string(raw))
		if err != nil || n < 0 || raw[0] == '-' {
			return k.violation(ErrContractViolation, schema.members[i].path, "a non-negative integer")
		}
		for _, page := range k.res.Pages {
			if asked := k.q.Numbers[page.Param]; schema.index[page.Member] == i && n != asked {
				return k.violation(ErrContractViolation, schema.members[i].path, "the requested "+k.res.Params[page.Param].Name+", "+strconv.Itoa(asked))
			}
		}
	}
	return nil
}

// list reads the array of records and appends those to keep, sorted.
func (k *checker) list(out []byte) ([]byte, error) {
	if k.kind() != '[' {
		return nil, k.violation(ErrContractViolation, k.res.List, "an array of objects")
	}
	k.pos++
	out = append(out, '[')
	first, most := len(out), k.q.Numbers[k.res.AtMost]
	for k.at = 0; k.next(']', k.at); k.at++ {
		if k.kind() != '{' {
			return nil, k.violation(ErrContractViolation, "", "an object")
		}
		if k.schema.visible < 0 && k.at == most {
			k.at = -1
			return nil, k.violation(ErrContractViolation, k.res.List, "at most "+k.res.Params[k.res.AtMost].Name+" records, "+strconv.Itoa(most))
		}
		var err error
		if out, err = k.listRecord(out); err != nil {
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
	if k.schema.visible >= 0 && len(k.records) > most {
		k.report.Surplus = len(k.records) - most
		k.report.Records = most
		out = out[:first]
		if most > 0 {
			out = out[:k.records[most-1].end]
		}
	}
	return append(out, ']'), nil
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

// listRecord reads one record of a list and appends it unless it must be removed.
func (k *checker) listRecord(out []byte) ([]byte, error) {
	seen, err := k.read(3)
	if err != nil {
		return nil, err
	}
	filtered := k.schema.visible >= 0
	if err := k.checkTenant(); err != nil {
		if filtered && errors.Is(err, ErrCrossTenantRecord) {
			return out, nil
		}
		return nil, err
	}
	if filtered {
		value := k.text(k.spans[k.schema.visible])
		if value == nil {
			return nil, k.violation(ErrContractViolation, k.res.Visible, "a string")
		}
		if !slices.Contains(k.res.Shown, string(value)) {
			k.report.Unpublished++
			return out, nil
		}
	}
	k.checkRequired(k.schema, seen)
	if k.invalid != nil {
		return nil, k.invalidMember()
	}

	var created moment
	known := false
	for _, i := range k.schema.order {
		if text := k.text(k.spans[i]); text != nil {
			created, known = parseInstant(text)
			break
		}
	}
	if filtered && !known {
		return nil, k.violation(ErrContractViolation, k.res.Order[0], strings.Join(k.res.Order, " or ")+" in a record that may be seen")
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
	return out, k.checkSize(len(out))
}

// object reads the record of a resource without a list and appends it.
func (k *checker) object(out []byte) ([]byte, error) {
	if k.kind() != '{' {
		return nil, k.violation(ErrContractViolation, k.res.Object, "an object")
	}
	seen, err := k.read(2)
	if err != nil {
		return nil, err
	}
	if err := k.checkTenant(); err != nil {
		return nil, err
	}
	k.checkRequired(k.schema, seen)
	if k.invalid != nil {
		return nil, k.invalidMember()
	}
	k.report.Records = 1
	return k.appendRecord(out), nil
}

// read reads the members of a record into k.spans. depth is the record's.
func (k *checker) read(depth int) (seen uint64, err error) {
	k.invalid = nil
	k.scratch, k.extra = k.scratch[:0], k.extra[:0]
	clear(k.spans[:len(k.schema.members)])
	return k.members(k.schema, k.spans[:len(k.schema.members)], depth)
}

// checkTenant returns an error unless the record belongs to the authenticated business. It updates the report.
func (k *checker) checkTenant() error {
	tenant := k.spans[k.schema.tenant]
	if id := k.schema.id; id >= 0 {
		// The record is the business: its id is the tenant field. If it has business_id too, both must match.
		if err := k.sameBusiness(k.spans[id], k.schema.members[id].path); err != nil || tenant == (span{}) {
			return err
		}
	}
	if tenant == (span{}) {
		k.report.MissingTenant++
		if k.contract.AllowMissingTenant {
			return nil
		}
		return k.violation(ErrMissingTenant, k.res.Tenant, "the ID of the business that the record belongs to")
	}
	return k.sameBusiness(tenant, k.res.Tenant)
}

// sameBusiness returns an error unless a value is the authenticated business's ID.
func (k *checker) sameBusiness(s span, field string) error {
	text := k.text(s)
	if text == nil {
		if text = k.body[s.start:s.end]; !isInteger(text) {
			return k.violation(ErrContractViolation, field, KindBusiness.String())
		}
	}
	if string(text) == k.business {
		return nil
	}
	k.report.CrossTenant++
	return k.violation(ErrCrossTenantRecord, field, "the authenticated business")
}

func (k *checker) invalidMember() error {
	return k.violation(ErrContractViolation, k.invalid.path, k.invalid.kind.String())
}

// checkRequired records the first missing required member in k.invalid, unless it is set already.
func (k *checker) checkRequired(p *schema, seen uint64) {
	if k.invalid != nil {
		return
	}
	for i := range p.members {
		if p.members[i].required && seen&(1<<i) == 0 {
			k.invalid = &p.members[i]
			return
		}
	}
}

// appendRecord appends the documented members of the current record.
func (k *checker) appendRecord(out []byte) []byte {
	for i := range k.schema.fields {
		out = append(out, k.schema.members[i].head...)
		if i == k.schema.id {
			// The same form in every resource, even if the data service uses integers. It cannot fail, because
			// k.business equals a value in the body, which is valid UTF-8.
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
