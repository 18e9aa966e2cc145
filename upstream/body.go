package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
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

	// moderate describes the numbers that a request may contain.
	moderate = "numbers of at most 64 characters, between -1e308 and 1e308"

	// Undocumented is Schema.Refused of internal members, and the reason to refuse members that are not in the definition: callers see no difference.
	Undocumented = "is not a documented member"

	// ReadOnly is Schema.Refused of members that only responses have.
	ReadOnly = "is read-only"
)

// RequestBody describes the bodies that an operation accepts.
type RequestBody struct {
	Required bool
	Kinds    []BodyKind // at least one
	Business [][]byte   // the names by which a service could take a further member for the business, without _, -, . and spaces
}

// BodyKind is a media type of a body with its schema.
type BodyKind struct {
	Media  string // "application/json" or "application/merge-patch+json"
	Schema *Schema
	Mapped bool // a property may have a Source

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
		b.Kinds[i].as = DocumentedResponse{Body: kind.Schema, recordsIndex: -1}
	}
}

// CheckBody checks the body of a request, and appends the body for the data service to dst: compact JSON with the members in the
// definition's order, strings encoded again, and numbers as they were written. h is the header of the request, and businessID the
// authenticated business. It returns the media type, which is empty if there is no body. The caller must have limited the size of body.
// After an error, nothing is appended; the error is a *BodyError or a *MediaTypeError.
//
//   - A body is invalid if the operation takes none, and an empty one is if a body is required.
//   - The body must be one JSON value (RFC 8259) in UTF-8, with no duplicate names, at most 48 levels deep, and with nothing after it.
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
	dst.Grow(2*len(body) + 64) // with room to bring members into the definition's order
	k := c.newChecker(op, &kind.as, Query{}, businessID, body, dst.AvailableBuffer())
	k.isRequest, k.listing, k.strict, k.passUnknown, k.enforce, k.maxDepth = true, true, true, false, EnforceAll, maxBodyDepth
	if err = k.document(); err == nil && k.escapes {
		// It cannot fail, because the strings have been validated.
		formatted, _ := jsontext.AppendFormat(k.out, k.out)
		k.out = formatted[len(k.out):]
	}
	out, listed, broken := k.out, k.listed, k.broken // if the body is not JSON, that is all that is reported
	k.release()
	if violated, ok := errors.AsType[*ContractError](err); ok && (broken || len(listed) == 0) {
		listed = []Violation{{Reason: "expected " + violated.Expected}}
	}
	if err == nil && len(listed) == 0 && kind.Mapped {
		u := unmapper{body: jsontext.NewDecoder(bytes.NewReader(out))}
		out = u.value(nil, kind.Schema)
		listed = u.violations
	}
	if len(listed) > 0 {
		return "", &BodyError{listed}
	}
	dst.Write(out)
	return kind.Media, err
}

// kind returns the kind of body that the headers declare, or nil if it is not accepted.
func (b *RequestBody) kind(h http.Header) *BodyKind {
	types, encodings := h["Content-Type"], h["Content-Encoding"]
	if len(types) != 1 || len(encodings) > 1 || len(encodings) == 1 && encodings[0] != "" && !strings.EqualFold(encodings[0], "identity") {
		return nil
	}
	return find(b.Kinds, func(kind *BodyKind) bool {
		return (kind.Media == "application/json" || mediaType(types[0]) != "application/json") && isJSON(types[0], []string{kind.Media})
	})
}
