package upstream

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// This file notes what is wrong with a body, and where.

// fault is an invalid value. The zero fault is none.
type fault struct {
	schema *Schema
	path   string // of members, such as "schedule.date"
	kind   error  // default: ErrContractViolation
	why    string // what was expected; default: what the schema says
	from   string // where the data service has the value, if that is another place
}

// violation returns the error for the current record. After abort, it returns notJSON.
func (k *checker) violation(kind error, field, expected string) error {
	if k.broken {
		return k.notJSON()
	}
	if field == k.op.Resource {
		field = "" // the error has the resource's name already
	}
	return &ContractError{Kind: kind, Resource: k.op.Resource, Record: k.recordIndex, Field: field, Expected: expected}
}

func (k *checker) tooDeep() error {
	return k.violation(ErrContractViolation, "", "objects and arrays at most "+strconv.Itoa(k.maxDepth)+" deep")
}

func (k *checker) duplicate() error { return k.violation(ErrContractViolation, "", noDuplicates) }

// countWork counts bytes that are read again, or other work. It bounds what a hostile body costs.
func (k *checker) countWork(n int) error {
	if k.work += n; k.work > maxWork*len(k.body)+workAllowance {
		return k.violation(ErrContractViolation, "", "fewer nested choices and undocumented members")
	}
	return nil
}

// countTried counts what reading a value costs beyond its bytes, if that is a part of an alternative that is tried.
func (k *checker) countTried(n int) {
	if k.trying {
		k.work += n
	}
}

// faultError returns the error for the fault that was noted, or nil. For requests, and with allViolations, it leaves faults to the list.
func (k *checker) faultError() error {
	if k.broken {
		return k.notJSON()
	}
	f := k.crossTenant
	if f.schema == nil {
		f = k.invalid
	}
	if f.schema == nil || k.isRequest || k.allViolations {
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
		k.addToList(rule, name)
		return
	}
	if k.invalid.schema == nil {
		k.invalid = fault{schema: s, path: name, why: why}
	}
	k.countTried(workOfMember)
	if k.listing && (!k.isRequest || !k.trying) { // otherwise, the alternative does not fit
		k.addViolation(s, name, why)
	}
}

// addViolation lists an invalid value, unless many are listed already.
func (k *checker) addViolation(s *Schema, name, why string) {
	if len(k.listed) == maxViolations {
		return
	}
	if why == "" {
		why = s.Refused
	}
	if why == "" && s.Choice != nil {
		why = "one of the alternatives"
	}
	if why == "" {
		why = s.expected()
	}
	if !strings.HasPrefix(why, "is ") && !strings.HasPrefix(why, "does ") {
		why = "expected " + why
	}
	k.addToList(why, name)
}

// prefixPointers prefixes the pointers of violations with the name of the member or item that they are in.
func prefixPointers(listed []Violation, name string) {
	for i := range listed {
		listed[i].Pointer = string(jsontext.Pointer("").AppendToken(name)) + listed[i].Pointer
	}
}

// undocumented returns the name of a member that the definition does not have, for pointers. In a response, it may be a value: keys of maps are.
func (k *checker) undocumented(rawName []byte, isKey bool) string {
	name := string(k.unquote(rawName))
	switch {
	case k.isRequest:
		return cutName(name)
	case isKey || !isIdentifier(name):
		return "*"
	}
	return name
}

// cutName returns at most the first maxPointed bytes of a name.
func cutName(name string) string {
	if len(name) > maxPointed {
		name = strings.ToValidUTF8(name[:maxPointed], "") + "…"
	}
	return name
}

// isIdentifier reports whether a name has at most 64 letters, underscores and, after the first, three digits. Others are often values, such as IDs.
func isIdentifier(name string) bool {
	digits := 0
	for i := range len(name) {
		switch c := name[i]; {
		case isDigit(c) && i > 0 && digits < 3:
			digits++
		case !isLetter(c) && c != '_':
			return false
		}
	}
	return len(name) <= maxPointed
}

// noteScalar notes an invalid value that is neither an object nor an array.
func (k *checker) noteScalar(s *Schema, name string, first byte, v span) {
	why := ""
	if number := k.raw(v); (k.isRequest || k.allViolations) && s.Types&typeOf(first) != 0 {
		switch {
		case first == '"' && s.Format.valid(k.text(v)) && s.Rules != nil:
			why = k.checkText(s.Rules, k.text(v))
		case first == '"':
		case typeOf(first) != TypeInteger|TypeNumber:
			why = "is not one of the possible values"
		case s.Types&TypeNumber == 0 && !isInteger(number):
		case !isModerate(number):
			why = moderate
		case s.Rules != nil:
			why = s.Rules.checkNumber(number)
		}
	}
	k.note(k.ruleOf(s, first, v), s, name, why)
}

// reason returns why a value is invalid: in a request for callers, in a response what was expected.
func (k *checker) reason(request, expected string) string {
	if k.isRequest {
		return request
	}
	return expected
}

// missing returns why an object without a member is invalid.
func (k *checker) missing(name string) string { return k.reason("is required", "the member "+name) }

// describeRange describes a permitted number of items or members. A negative maximum means that there is none.
func describeRange(least, most int, what string) string {
	if most == 1 || most < 0 && least == 1 {
		what = strings.TrimSuffix(what, "s")
	}
	switch {
	case most < 0:
		return "at least " + strconv.Itoa(least) + " " + what
	case least == 0:
		return "at most " + strconv.Itoa(most) + " " + what
	case least == most:
		return strconv.Itoa(least) + " " + what
	default:
		return strconv.Itoa(least) + " to " + strconv.Itoa(most) + " " + what
	}
}
