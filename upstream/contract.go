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

	// maxBodyDepth is that of a request, with room for what is around the record in a response.
	maxBodyDepth = 48
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

	// BasePath is the path under which the API is mounted. It precedes the paths that replace URLs of the data service. Default: none.
	BasePath string

	pool sync.Pool // of *checker
}

// Report describes what Check found in a response, including one that it rejected.
type Report struct {
	Records       int  // records in the result
	CrossTenant   int  // records of another business: removed where visibility filters; elsewhere, the response is rejected
	MissingTenant int  // records without a tenant: kept with AllowMissingTenant; otherwise, the response is rejected
	Unpublished   int  // records that were removed because they may not be seen
	Surplus       int  // records that were removed because fewer were asked for; only where visibility filters
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
//   - The body must be one JSON value (RFC 8259) in UTF-8, with no duplicate names, at most 64 levels deep, and with nothing after it.
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
	if res.Body == nil || op.ByGateway && op.StaticBody == nil {
		return Report{}, fmt.Errorf("checking a response: there is none of a data service for %s", op.ID)
	}
	room := len(body) + 64
	if res.Mapped { // members are brought into the definition's order
		room += 2 * len(body)
	}
	dst.Grow(room)
	k := c.newChecker(op, res, q, businessID, body, dst.AvailableBuffer())
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

// Removed lists what Check removes from a response, at most 50 places, for people who compare a data service with its definition. It contains
// no values, and * for the keys of maps and for undocumented names that are not identifiers.
func (c *Contract) Removed(op *Operation, res *DocumentedResponse, q Query, businessID string, body []byte) []Violation {
	k := c.newChecker(op, res, q, businessID, body, nil)
	defer k.release()
	k.listing, k.enforce = true, EnforceAll
	_ = k.document() // Check reports the error
	return k.listed
}

// The reasons of Violations that are about the tenant. All others are about the form of a response.
const (
	OtherBusiness = "is another business's"
	NoBusiness    = "does not say whose it is"
)

// Violations lists everything for which Check rejects a response, removes another business's or a surplus record, or sorts the records, at most 50
// places, for people who look for mistakes in a data service. Unlike Check, it does not stop at the first. Like Removed, it contains no values.
//
// The result has the form of Check's, for programs that look for more mistakes. Invalid values, other businesses and the order are in it as the data
// service sent them, but not what may not be seen. It is nil if the body is not JSON, or if what it is about is missing or must be removed.
func (c *Contract) Violations(op *Operation, res *DocumentedResponse, q Query, businessID string, body []byte) (listed []Violation, result []byte) {
	k := c.newChecker(op, res, q, businessID, body, nil)
	k.listing, k.allViolations, k.enforce = true, true, EnforceAll
	err := k.document()
	if listed = k.listed; err == nil {
		result = k.out
	}
	violated, ok := errors.AsType[*ContractError](err)
	k.release()
	if !ok && len(listed) == 0 { // a choice or a removed object may have dropped what Check rejects
		k = c.newChecker(op, res, q, businessID, body, nil)
		k.enforce = EnforceAll
		violated, ok = errors.AsType[*ContractError](k.document())
		k.release()
	}
	repeated := func(v Violation) bool { return v.Reason == givenTwice }
	if !ok || violated.Expected == noDuplicates && slices.ContainsFunc(listed, repeated) {
		return listed, result
	}
	return append(listed, res.violation(violated)), result
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

// CheckStaticBody checks an operation's StaticBody against its response with status 200, and replaces it with what Check lets pass.
func CheckStaticBody(op *Operation) error {
	op.compile()
	var out bytes.Buffer
	_, err := new(Contract).Check(&out, op, op.response(http.StatusOK), Query{}, "-", op.StaticBody)
	op.StaticBody = out.Bytes()
	return err
}

// span is the position of a value: in the body, or in the result if result is set. The zero span is that of a missing value.
type span struct {
	start, end int
	result     bool
}

// hidden is the span of an object that was removed.
var hidden = span{end: -1} //nolint:gochecknoglobals // a constant

// isAbsent reports whether there is no value, or it was removed.
func (s span) isAbsent() bool { return s.end <= 0 }

// checker is the state of one Check.
type checker struct {
	contract      *Contract
	op            *Operation
	res           *DocumentedResponse
	q             Query
	business      string
	body          []byte
	out           []byte      // the result
	pos           int         // in body
	maxDepth      int         // of objects and arrays
	broken        bool        // the body is not valid JSON; reading has stopped
	brokenAt      int         // where
	escapes       bool        // the body contains backslashes
	controls      bool        // the body contains control characters, which may be white space
	passUnknown   bool        // keep unknown members of records
	isRequest     bool        // the body is a request's: unknown members are invalid
	enforce       Enforcement // of responses
	listing       bool        // all that is invalid or removed is listed
	allViolations bool        // with listing: what is invalid is listed for all records, what is removed is not
	proved        bool        // the tenant of what is around a value has been checked, or need not be
	attempt
	withheld []byte // a bit for each position of the body, set where an object is that an alternative removed
	hides    bool   // what is read has something inside that must not leave, maybe by another name
	work     int    // of choices and undocumented members, in about the time in which a byte is read
	matcher  patternMatcher
	report   Report

	recordIndex int   // index of the record being read, -1 outside of a list of records
	crossTenant fault // the first object of another business
	invalid     fault // the first invalid or missing member, of the record if there is one
	listed      []Violation
	ordered     bool // all records so far are newest first
	records     []record
	spans       []span // of the properties of the objects being read
	scratch     []byte // records while they are sorted
	extra       []byte // members that are not properties, of the objects being read
	unquoted    []byte
	names       [][]byte // undocumented names of the objects being read
	escaped     []byte   // scratch for validating strings with escapes

	converted []byte // values that differ from those in the body
}

const (
	recordArray  = "an array of records"
	noDuplicates = "no duplicate names in an object"
	givenTwice   = "is given twice"

	// maxPooled is the largest capacity, in bytes, of a buffer that returns to the pool.
	maxPooled = 1 << 20

	// Choices and undocumented members of a body of n bytes may take maxWork*n + workAllowance of work: a byte that is read again is 1, and what takes
	// longer is more. 64 alternatives can be tried for each byte of a usual body. workAllowance leaves room for small bodies.
	maxWork, workAllowance    = 128, 256 << 10
	workOfValue, workOfMember = 16, 12 // of an object or array, and of each member or item
	workOfPattern             = 40     // also of an item that must differ from others
)

// newChecker returns a checker for a body, which may have the buffers of an earlier one. It must be released.
func (c *Contract) newChecker(op *Operation, res *DocumentedResponse, q Query, business string, body, out []byte) *checker {
	k, _ := c.pool.Get().(*checker)
	if k == nil {
		k = new(checker)
	}
	k.contract, k.op, k.res, k.q, k.business, k.body, k.out = c, op, res, q, business, body, out
	k.passUnknown, k.enforce, k.recordIndex, k.ordered = c.PassUnknownFields[op.Resource], op.Enforce, -1, true
	k.proved = c.AllowMissingTenant || res.Records != nil || !res.Succeeds() || op.Tenant == TenantByService || op.Tenant == TenantNone
	k.maxDepth, k.matcher.left = maxDepth, maxMatching*time.Duration(1+len(body)>>20)
	return k
}

// release returns the checker to the pool, without the request's data.
func (k *checker) release() {
	pool := &k.contract.pool
	clear(k.names[:cap(k.names)])
	*k = checker{
		records:   reuse(k.records, maxPooled/64),
		spans:     reuse(k.spans, maxPooled/64),
		names:     reuse(k.names, maxPooled/64),
		scratch:   reuse(k.scratch, maxPooled),
		extra:     reuse(k.extra, maxPooled),
		unquoted:  reuse(k.unquoted, maxPooled),
		escaped:   reuse(k.escaped, maxPooled),
		converted: reuse(k.converted, maxPooled),
	}
	pool.Put(k)
}

// reuse returns a buffer to use again, or none if its capacity is larger than most.
func reuse[T any](buffer []T, most int) []T {
	if cap(buffer) > most {
		return nil
	}
	return buffer[:0]
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
	case k.enforce != EnforceAll && k.res.recordsIndex >= 0 && k.kind() != '{':
		return k.violation(ErrContractViolation, "", "an object with the member "+k.res.Records.In)
	case k.res.from != nil:
		root, err = k.wrappedBody()
	case k.res.recordsIndex < 0 && k.res.Records != nil:
		root, err = k.recordsOrRecord(k.res.Body, 0)
	default:
		root, err = k.value(k.res.Body, 0)
	}
	if err == nil {
		err = k.faultError()
	}
	if err != nil {
		return err
	}
	if k.skipSpace(); k.pos < len(k.body) {
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
