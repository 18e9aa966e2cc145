package upstream

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxViolations is the maximum number of violations in a BodyError.
	maxViolations = 50

	// maxPointed is the maximum length in bytes of a name in the pointer of a violation. Longer ones are cut.
	maxPointed = 64

	// maxNumber is the maximum length in bytes of a number in a request.
	maxNumber = 64

	// moderate is what a number in a request must be.
	moderate = "numbers of at most 64 characters, between -1e308 and 1e308"

	// Undocumented is Schema.Refused of a member that callers must not know, and the reason for members that the definition does not have.
	Undocumented = "is not a documented member"

	// ReadOnly is Schema.Refused of a member that only responses have.
	ReadOnly = "is read-only"
)

// RequestBody is what the body of an operation's requests may be.
type RequestBody struct {
	Required bool
	Kinds    []BodyKind // at least one
}

// BodyKind is a media type of a body, and what it may be.
type BodyKind struct {
	Media  string // "application/json" or "application/merge-patch+json"
	Schema *Schema
	Mapped bool // a member may be elsewhere at the data service: see Source

	as DocumentedResponse
}

// All returns the kinds, none if b is nil.
func (b *RequestBody) All() []BodyKind {
	if b == nil {
		return nil
	}
	return b.Kinds
}

func (b *RequestBody) compile() {
	for i, kind := range b.All() {
		kind.Schema.compile()
		b.Kinds[i].as = DocumentedResponse{Body: kind.Schema, in: -1}
	}
}

// CheckBody checks the body of a request, and appends the body for the data service to dst: compact JSON with the members in the
// definition's order, strings encoded again, and numbers as they were written. h is the header of the request, and businessID the
// authenticated business. It returns the media type, which is empty if there is no body. The caller must have limited the size of body.
// After an error, nothing is appended; the error is a *BodyError or a *MediaTypeError.
//
//   - A body of an operation without one is invalid. So is an empty one if it is required.
//   - The body must be one JSON value (RFC 8259) in UTF-8, with no duplicate names, at most 64 levels deep, and with nothing after it.
//   - Members must be as documented. None is added, and one that the definition does not have, or that is read-only, is invalid.
//   - A number has at most 64 characters, an exponent of at most three digits, and is 0 or, without its sign, from 1e-309 to below 1e308. An
//     integer has at most 18 digits and neither fraction nor exponent.
//   - The member that names the business must name the authenticated one.
//   - Members that the data service has elsewhere are moved there, and converted.
func (c *Contract) CheckBody(dst *bytes.Buffer, op *Operation, h http.Header, businessID string, body []byte) (media string, err error) {
	invalid := func(reason string) (string, error) { return "", &BodyError{[]Violation{{Reason: reason}}} }
	switch {
	case businessID == "":
		return "", fmt.Errorf("%w: no business", ErrIdentity)
	case op.Body == nil && len(body) > 0:
		return invalid("must be empty: this operation takes no body")
	case op.Body == nil, len(body) == 0 && !op.Body.Required:
		return "", nil
	case len(body) == 0:
		return invalid("is required")
	}
	kind := op.Body.kind(h)
	if kind == nil {
		refused := new(MediaTypeError)
		for _, kind := range op.Body.Kinds {
			refused.Accepted = append(refused.Accepted, kind.Media)
		}
		return "", refused
	}
	dst.Grow(2*len(body) + 64) // members come in any order, and are put into the definition's
	k := c.checker(op, &kind.as, Query{}, businessID, body, dst.AvailableBuffer())
	k.request, k.listing, k.strict, k.pass, k.enforce = true, true, true, false, EnforceAll
	if err = k.document(); err == nil && k.escapes {
		// It cannot fail, because the strings have been validated.
		formatted, _ := jsontext.AppendFormat(k.out, k.out)
		k.out = formatted[len(k.out):]
	}
	out, listed, broken := k.out, k.listed, k.broken // of what is not JSON, only that is said
	k.release()
	if violated, ok := err.(*ContractError); ok && (broken || len(listed) == 0) { //nolint:errorlint // document returns it as it is
		listed = []Violation{{Reason: "expected " + violated.Expected}}
	}
	if err == nil && len(listed) == 0 && kind.Mapped {
		var u unmapper
		out = u.value(nil, kind.Schema, out, "")
		listed = u.violations[:min(len(u.violations), maxViolations)]
	}
	if len(listed) > 0 {
		return "", &BodyError{listed}
	}
	dst.Write(out)
	return kind.Media, err
}

// kind returns the kind of a body with a header, or nil if it is not accepted.
func (b *RequestBody) kind(h http.Header) *BodyKind {
	types, encodings := h["Content-Type"], h["Content-Encoding"]
	if len(types) != 1 || len(encodings) > 1 || len(encodings) == 1 && encodings[0] != "" && !strings.EqualFold(encodings[0], "identity") {
		return nil
	}
	i := slices.IndexFunc(b.Kinds, func(kind BodyKind) bool {
		return (kind.Media == "application/json" || mediaType(types[0]) != "application/json") && isJSON(types[0], []string{kind.Media})
	})
	if i < 0 {
		return nil
	}
	return &b.Kinds[i]
}

// violate lists an invalid value, unless many are listed already.
func (k *checker) violate(s *Schema, name, why string) {
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
	k.listed = append(k.listed, Violation{Reason: why})
	if name != "" {
		k.within(len(k.listed)-1, name)
	}
}

// within adds the name of what they are in to the pointers of the violations from the given one on.
func (k *checker) within(from int, name string) {
	for i := from; i < len(k.listed); i++ {
		switch {
		case !k.request && !isIdentifier(name):
			name = "*" // it may be a value
		case len(name) > maxPointed:
			name = strings.ToValidUTF8(name[:maxPointed], "") + "…"
		}
		k.listed[i].Pointer = "/" + pointerEscaper.Replace(name) + k.listed[i].Pointer
	}
}

// isIdentifier reports whether a name is at most 64 letters, digits, hyphens and underscores.
func isIdentifier(name string) bool {
	for i := range len(name) {
		if c := name[i]; !letter(c) && !digit(c) && c != '-' && c != '_' {
			return false
		}
	}
	return len(name) <= maxPointed
}

//nolint:gochecknoglobals // a constant
var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// noteScalar notes an invalid value that is neither an object nor an array.
func (k *checker) noteScalar(s *Schema, name string, first byte, v span) {
	why := ""
	if number := k.raw(v); k.request && s.Types&typeOf(first) != 0 {
		switch {
		case first == '"' && s.Format.valid(k.text(v)) && s.Rules != nil:
			why = k.breaks(s.Rules, k.text(v))
		case first == '"':
		case typeOf(first) != TypeInteger|TypeNumber:
			why = "is not one of the possible values"
		case s.Types&TypeNumber == 0 && !isInteger(number):
		case !isModerate(number):
			why = moderate
		case s.Rules != nil:
			why = s.Rules.number(number)
		}
	}
	k.note(k.ruleOf(s, first, v), s, name, why)
}

// ownBusiness notes members that name another business than the authenticated one.
func (k *checker) ownBusiness(s *Schema, spans []span) {
	for _, i := range [...]int{s.tenant, s.also} {
		if i < 0 || spans[i].absent() {
			continue
		}
		if p := &s.Properties[i]; p.Schema.Refused == "" && k.sameBusiness(s, spans[i], p.Name).schema != nil {
			k.note(holds, p.Schema, p.Name, "is not your own business")
		}
	}
}

// between describes a number of items or members. A maximum below 0 is none.
func between(least, most int) string {
	switch {
	case most < 0:
		return "at least " + strconv.Itoa(least)
	case least == 0:
		return "at most " + strconv.Itoa(most)
	default:
		return strconv.Itoa(least) + " to " + strconv.Itoa(most)
	}
}

// isModerate reports whether a number is one that every program can read: at most 64 characters, a short exponent, and neither too
// large nor too small for a double.
func isModerate(number []byte) bool {
	i := bytes.IndexAny(number, "eE")
	if i < 0 || len(number) > maxNumber {
		return len(number) <= maxNumber
	}
	d := parseNumber(number)
	return len(bytes.TrimLeft(number[i+1:], "+-")) <= 3 && d.point <= 308 && d.point >= -308
}

// numbersAreModerate reports whether all numbers in a valid JSON value are moderate.
func numbersAreModerate(value []byte) bool {
	for i := 0; i < len(value); i++ {
		start := i
		switch c := value[i]; {
		case c == '"':
			for i++; value[i] != '"'; i++ {
				if value[i] == '\\' {
					i++
				}
			}
		case c == '-' || digit(c):
			for i+1 < len(value) && !isDelimiter(value[i+1]) {
				i++
			}
			if !isModerate(value[start : i+1]) {
				return false
			}
		}
	}
	return true
}
