package upstream

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// This file reads objects and writes what remains of them to the result.

// object reads an object and writes what remains of it. depth is the object's. It returns hidden if the object must be removed. Until the next
// object is read, the spans of its properties stand beyond the end of k.spans.
func (k *checker) object(s *Schema, depth int, isRecord bool) (span, error) {
	if depth > k.maxDepth {
		return span{}, k.tooDeep()
	}
	k.countTried(2 * len(s.Properties))
	proved, at := k.proved, k.pos
	k.proved = proved || s.tenant >= 0
	start, base, extra, listed := len(k.out), len(k.spans), len(k.extra), len(k.listed)
	before := objectState{start: start, extra: extra, listed: listed, crossTenantRecords: k.report.CrossTenant}
	if s.visible >= 0 {
		before.invalid, before.crossTenant = k.invalid, k.crossTenant
	}
	placed, mark := 0, start
	var err error
	if s.from == nil || k.isRequest || k.op.ByGateway { // request bodies are mapped after the check, and the gateway's own answers are not mapped
		placed, mark, err = k.members(s, depth, isRecord)
	} else {
		err = k.gather(s, depth, isRecord)
	}
	if err != nil {
		return span{}, err
	}
	spans := k.spans[base:]
	k.spans = k.spans[:base]
	remains := k.complete(s, spans, placed, mark, &before)
	switch k.proved = proved; {
	case !remains:
		k.withhold(at)
		return hidden, nil
	case k.isWithheld(at):
		k.note(ruleAlways, s, "", "")
	}
	return span{start, len(k.out), true}, k.checkSize()
}

// objectState is the state of a checker before it reads an object. It is restored if the object is removed.
type objectState struct {
	start, extra, listed, crossTenantRecords int
	invalid, crossTenant                     fault // set only if the object has a visibility: no other object is removed
}

// complete checks the tenant and visibility of an object whose properties have been read, and writes it. It returns false if it must be removed.
func (k *checker) complete(s *Schema, spans []span, placed, mark int, before *objectState) bool {
	switch {
	case s.tenant < 0 && s.visible < 0:
	case k.isRequest:
		k.noteOtherBusiness(s, spans)
	case k.mustRemove(s, spans, before.crossTenant):
		k.out, k.extra, k.invalid, k.crossTenant = k.out[:before.start], k.extra[:before.extra], before.invalid, before.crossTenant
		k.listed = k.listed[:before.listed]
		switch {
		case !k.listing:
		case !k.allViolations:
			k.addViolation(s, "", "is removed: it may not be seen")
		case k.report.CrossTenant > before.crossTenantRecords:
			k.addViolation(s, s.Tenant, OtherBusiness)
		}
		return false
	}
	for i := s.fields; k.listing && !k.isRequest && !k.allViolations && i < len(s.Properties); i++ {
		if p := &s.Properties[i]; p.WriteOnly && !spans[i].isAbsent() {
			k.addViolation(s, p.Name, "is removed: it is writeOnly")
		}
	}
	if s.numbers {
		k.checkNumbers(s, spans)
	}
	if in := k.res.recordsIndex; k.enforce == EnforceTenant && in >= 0 && s == k.res.Body && len(k.spans) == 0 && spans[in].end == 0 && len(k.extra) > before.extra {
		k.note(ruleAlways, s.Properties[in].Schema, s.Properties[in].Name, recordArray) // the records may be in an undocumented member
	}
	further := len(k.extra) > before.extra
	k.writeRemaining(s, spans, placed, mark, before.start, before.extra)
	if k.enforce == EnforceTenant && s.tenant < 0 && k.mustProve(s) && (further || len(k.listed) > before.listed || len(k.listed) == maxViolations) {
		if p := k.missingProof(s, spans); p != nil {
			k.note(ruleAlways, p.Schema, p.Name, "the member "+p.Name+", in which the business is")
		}
	}
	return true
}

// members reads the members of an object and pushes the spans of its properties. Objects and arrays that come in the order of the definition
// are written in place, after the properties before them. The first placed properties are then written, and mark is where they end in k.out.
func (k *checker) members(s *Schema, depth int, isRecord bool) (placed, mark int, err error) {
	begin, base, unknown, previous := k.pos, len(k.spans), k.newNames(), 0
	mark = len(k.out)
	k.spans = slices.Grow(k.spans, len(s.Properties))[:base+len(s.Properties)]
	clear(k.spans[base:])
	k.pos++
	n := 0
	for ; k.next('}', n); n++ {
		i := int(s.follows[previous].Load())
		if i >= len(s.Properties) || s.Properties[i].Schema.Refused == Undocumented || !k.consumeName(s.Properties[i].label) {
			raw := k.name()
			var known bool
			if i, known = s.index[string(k.unquote(raw))]; !known || s.Properties[i].Schema.Refused == Undocumented {
				k.addName(&unknown, raw)
				if err := k.unknownMember(s, raw, depth, isRecord); err != nil {
					return 0, 0, err
				}
				continue
			}
			s.follows[previous].Store(uint32(i)) //nolint:gosec // G115: an index
		}
		p := &s.Properties[i]
		if previous = i + 1; k.spans[base+i].end != 0 {
			if k.listing {
				k.addViolation(p.Schema, p.Name, givenTwice)
			}
			return 0, 0, k.duplicate()
		}
		var first byte // as kind does, which is too large to be inlined
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
			if k.isValidScalar(p.Schema, first, v) {
				continue
			}
			if !p.Internal || first != 'n' {
				k.noteScalar(p.Schema, p.Name, first, v)
			}
		} else if placed, mark, err = k.nested(s, i, base, depth, placed, mark); err != nil {
			return 0, 0, err
		}
		if depth == 1 && !isRecord && !k.trying {
			if err := k.faultError(); err != nil {
				return 0, 0, err
			}
		}
	}
	if k.broken {
		return 0, 0, k.notJSON()
	}
	if unknown.n > 0 {
		if err := k.checkDistinct(unknown, begin); err != nil {
			return 0, 0, err
		}
	}
	k.count(s, nil, n)
	if s.Additional != nil && unknown.n > s.maxFree() {
		k.note(ruleAlways, s, "", describeRange(0, s.maxFree(), "members"))
	}
	return placed, mark, nil
}

// nested reads the value of the i-th property, which is an object, an array or one of several alternatives.
func (k *checker) nested(s *Schema, i, base, depth, placed, mark int) (newPlaced, newMark int, err error) {
	p := &s.Properties[i]
	place := len(k.out) == mark && i < s.fields && !k.outOfOrder(base, placed, i)
	if place {
		k.out = k.appendProperties(k.out, s, k.spans[base:], placed, i)
		placed, mark = i, len(k.out)
		k.out = append(k.out, p.head...)
	}
	valid, listed := k.invalid.schema == nil, len(k.listed)
	var v span
	if depth == 1 && i == k.res.recordsIndex {
		v, err = k.recordsOrRecord(p.Schema, depth)
	} else {
		v, err = k.value(p.Schema, depth)
	}
	prefixPointers(k.listed[listed:], p.Name)
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
	case v.isAbsent():
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

// checkNumbers notes a property that differs from the number of the query that it must equal.
func (k *checker) checkNumbers(s *Schema, spans []span) {
	for i := range s.Properties {
		p, v := &s.Properties[i], spans[i]
		if p.Number == 0 || k.isNull(v) {
			continue
		}
		asked := k.q.Numbers[p.Number-1]
		if k.escaped = strconv.AppendInt(k.escaped[:0], int64(asked), 10); compareNumbers(k.raw(v), k.escaped) != 0 {
			k.note(rulePage, p.Schema, p.Name, "the requested "+k.op.numberName(p.Number)+", "+strconv.Itoa(asked))
			return
		}
	}
}

// appendProperties appends the properties from index from up to index to. Values that follow each other in the body as in the result are copied at
// once. They do if exactly Property.adjacent bytes are between them: the name of the second one cannot be written in fewer bytes, so there
// is no room for anything else.
func (k *checker) appendProperties(out []byte, s *Schema, spans []span, from, to int) []byte {
	for i := from; i < to; {
		first, v := i, spans[i]
		if i++; v.end <= 0 || v.end > len(k.body) || v.result || first == s.tenant || first == s.alsoTenant {
			out = k.appendProperty(out, s, first, v)
			continue
		}
		end := v.end
		for ; i < to && spans[i].start == end+s.Properties[i].adjacent && !spans[i].result && i != s.tenant && i != s.alsoTenant; i++ {
			end = spans[i].end
		}
		out = append(append(out, s.Properties[first].head...), k.body[v.start:end]...)
	}
	return out
}

// appendProperty appends a property. If v is absent, the property is missing.
func (k *checker) appendProperty(out []byte, s *Schema, i int, v span) []byte {
	p := &s.Properties[i]
	switch {
	case v.isAbsent() && !p.Required:
		return out
	case v.isAbsent() && (p.Schema.Types&TypeNull == 0 || k.isRequest):
		rule := ruleMissing
		if s == k.res.Body && i == k.res.recordsIndex {
			rule = ruleAlways
		}
		invalid, listed := k.invalid.schema, len(k.listed)
		k.note(rule, p.Schema, p.Name, k.missing(p.Name))
		k.noteFrom(p, invalid, listed)
		return out
	case v.isAbsent():
		return append(append(out, p.head...), "null"...)
	case (i == s.tenant || i == s.alsoTenant) && !k.isNull(v) && !k.isRequest && !k.allViolations:
		// The same form in every resource, even if the data service uses integers. It cannot fail, because
		// k.business equals a value in the body, which is valid UTF-8.
		out, _ = jsontext.AppendQuote(append(out, p.head...), k.business)
		return out
	case v.result:
		return append(append(out, p.head...), k.out[v.start:v.end]...)
	default:
		return append(append(out, p.head...), k.raw(v)...)
	}
}

// writeRemaining writes the properties after the first placed ones, and further members.
func (k *checker) writeRemaining(s *Schema, spans []span, placed, mark, start, extra int) {
	end := len(k.out) // from mark to here stand objects and arrays that came out of order
	out := append(k.appendProperties(k.out, s, spans, placed, s.fields), k.extra[extra:]...)
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
