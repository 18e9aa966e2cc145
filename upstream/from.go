package upstream

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
)

// Source says where a data service that uses other names has a property. It is read from there in responses, and written there in bodies.
type Source struct {
	// Names is the path of names to the member. With Pointer, it begins at the record, at the item of the innermost array or map, or
	// at the response. Otherwise, it is one name: that of a member of the same object.
	Names   []string
	Pointer bool

	Param string // not empty: the value is this integer parameter of the query
	Pages string // not empty: the member is a number of records, and the value the number of pages; this parameter of the query is a page's size

	As            Conversion
	Values        map[string]string // not nil: what values become: JSON scalars by the service's text or literal
	ReverseValues map[string]string // the service's JSON scalars by the texts and literals of Values
}

// converts reports whether the member's value is converted.
func (f *Source) converts() bool { return f.As != ConvertNone || f.Values != nil || f.Pages != "" }

// branch is a member of an object of the data service from which properties are made, or at the root of the tree, that object itself.
type branch struct {
	label      string // `"name":`
	slot       int    // index of its span
	sharesSlot bool   // it has one target, which neither holds records nor is a choice, and no children: it shares the target's slot
	hasHidden  bool   // something in it must not leave, so undocumented members of it never pass
	targets    []target
	children   []*branch       // members inside it from which properties are made
	index      map[string]int  // of children, by name
	follows    []atomic.Uint32 // as in Schema
}

// target is a property that is made from a member.
type target struct {
	slot     int
	property *Property
	converts bool     // the value is converted
	internal bool     // the property, or a part that it is in
	decides  bool     // whether the object may leave: its tenant, or what makes it visible
	valid    bool     // package definition or add has made sure that converted values are valid, unless they are null
	in       []string // the names of the parts that it is in
	names    []string // in, and its own name
}

// part is a property whose value is an object that the data service does not have. Its properties are made from other members.
type part struct {
	target
	first int // slot of its first property
}

// sources says from which members of the data service an object's properties are made. While the object is read, it has slots spans: those of
// its properties, of the parts' properties, and of branches.
type sources struct {
	tree         branch
	parts        []part   // inner ones before those that they are in
	queryTargets []target // values of the request
	slots        int

	concealed []string // those of the schema and of the parts
}

// compileSources sets s.from, unless the data service has all properties where they are published.
func (s *Schema) compileSources() {
	if s.Concealed == nil && !slices.ContainsFunc(s.Properties, func(p Property) bool { return p.From != nil || p.Part }) {
		return
	}
	s.from = &sources{slots: len(s.Properties), concealed: slices.Clone(s.Concealed)}
	for i := range s.Properties {
		s.from.add(i, &s.Properties[i], nil, false, s.Tenant, s.AlsoTenant, s.Visible)
	}
	slices.Reverse(s.from.parts)
	for _, pointer := range s.from.concealed {
		at := &s.from.tree
		for name := range jsontext.Pointer(pointer).Tokens() {
			at = at.member(name)
			at.hasHidden = true
		}
	}
	s.from.assignSlots(&s.from.tree)
}

// add adds a property with a slot. in has the names of the parts that it is in; internal says whether one of them is. deciding are the names of those
// that decide whether the object may leave.
func (f *sources) add(slot int, p *Property, in []string, internal bool, deciding ...string) {
	t := target{
		slot: slot, property: p, internal: internal || p.Internal, decides: slices.Contains(deciding, p.Name),
		in: in, names: append(slices.Clip(in), p.Name),
	}
	if from := p.From; from != nil {
		t.converts = from.converts()
		switch from.As {
		case ConvertCents, ConvertUnix, ConvertUnixMilli:
			t.valid = p.Schema.Rules == nil
		case ConvertNone:
			t.valid = from.Values != nil
			for _, value := range from.Values {
				t.valid = t.valid && p.Schema.IsValidScalar(value) && !strings.Contains(value, `\`)
			}
		}
	}
	if p.HoldsRecords && p.Name == "" {
		t.names = nil // it is the whole body
	}
	switch {
	case p.Part:
		own := part{t, f.slots}
		f.slots += len(p.Schema.Properties)
		f.parts = append(f.parts, own)
		f.concealed = append(f.concealed, p.Schema.Concealed...)
		for i := range p.Schema.Properties {
			f.add(own.first+i, &p.Schema.Properties[i], t.names, t.internal, p.Schema.Tenant, p.Schema.AlsoTenant, p.Schema.Visible)
		}
	case p.From == nil && len(in) > 0: // it is not in this direction: readOnly, writeOnly or internal
	case p.From != nil && p.From.Param != "":
		f.queryTargets = append(f.queryTargets, t)
	default:
		at := &f.tree
		names := []string{p.Name}
		if p.From != nil {
			names = p.From.Names
		}
		for _, name := range names {
			at = at.member(name)
		}
		at.targets = append(at.targets, t)
	}
}

// member returns the branch of a member of b, and adds it if it is new.
func (b *branch) member(name string) *branch {
	if i, ok := b.index[name]; ok {
		return b.children[i]
	}
	if b.index == nil {
		b.index = map[string]int{}
	}
	b.index[name] = len(b.children)
	b.children = append(b.children, &branch{label: label(name)})
	return b.children[len(b.children)-1]
}

// assignSlots gives all branches below b a slot.
func (f *sources) assignSlots(b *branch) {
	b.follows = make([]atomic.Uint32, len(b.children)+1)
	for i, child := range b.children {
		b.follows[i].Store(uint32(i))
		if t := child.targets; len(t) == 1 && child.children == nil && !t[0].property.HoldsRecords && t[0].property.Schema.Choice == nil {
			child.sharesSlot, child.slot = true, t[0].slot
		} else {
			child.slot = f.slots
			f.slots++
		}
		f.assignSlots(child)
	}
}

// markHidden sets hasHidden for all branches below b, and reports whether anything below b must not leave. around says whether something of what b is in
// must not.
func (b *branch) markHidden(around bool) (hides bool) {
	for _, child := range b.children {
		own := slices.ContainsFunc(child.targets, func(t target) bool { return t.internal || t.property.Schema.guarded })
		inner := child.markHidden(around || own || child.hasHidden)
		child.hasHidden = child.hasHidden || around || inner || own && len(child.targets) > 1
		hides = hides || inner || own
	}
	return hides
}

// gather reads an object whose properties have sources, and pushes their spans.
func (k *checker) gather(s *Schema, depth int, isRecord bool) error {
	base := len(k.spans)
	k.spans = slices.Grow(k.spans, s.from.slots)[:base+s.from.slots]
	clear(k.spans[base:])
	kept, err := k.branch(&s.from.tree, s, base, depth, isRecord)
	if err != nil {
		return err
	}
	for i := range s.from.queryTargets {
		t := &s.from.queryTargets[i]
		start := len(k.converted)
		k.converted = strconv.AppendInt(k.converted, int64(k.queryNumber(t.property.From.Param)), 10)
		v := k.convertedFrom(start)
		if k.spans[base+t.slot] = v; !k.isValidScalar(t.property.Schema, '0', v) {
			k.noteAt(t, '0', v)
		}
	}
	for i := range s.from.parts {
		p := &s.from.parts[i]
		spans := k.spans[base+p.first:][:len(p.property.Schema.Properties)]
		if !slices.ContainsFunc(spans, func(v span) bool { return v != span{} }) {
			continue
		}
		invalid := k.invalid.schema
		before := objectState{len(k.out), len(k.extra), len(k.listed), k.report.CrossTenant, k.invalid, k.crossTenant}
		k.count(p.property.Schema, spans, 0)
		if k.spans[base+p.slot] = hidden; k.complete(p.property.Schema, spans, 0, before.start, &before) {
			k.spans[base+p.slot] = span{before.start, len(k.out), true}
		}
		k.prefixFaults(p.names, invalid, before.listed)
	}
	k.count(s, k.spans[base:][:len(s.Properties)], kept)
	return nil
}

// count notes a violation if an object has too few or too many members: properties with a span, and further ones.
func (k *checker) count(s *Schema, spans []span, further int) {
	r := s.Rules
	if r == nil {
		return
	}
	for _, v := range spans {
		further += b2i(!v.isAbsent())
	}
	if further < r.MinMembers || r.MaxMembers >= 0 && further > r.MaxMembers {
		k.note(ruleMembers, s, "", describeRange(r.MinMembers, r.MaxMembers, "members"))
	}
}

// branch reads an object of the data service. At the root of the tree, s is the schema of the object that is made from it. Inside, s is nil and
// members from which no property is made are skipped. branch returns how many further members were kept.
func (k *checker) branch(b *branch, s *Schema, base, depth int, isRecord bool) (kept int, err error) {
	if depth > k.maxDepth {
		return 0, k.tooDeep()
	}
	begin, unknown, previous := k.pos, k.newNames(), 0
	k.pos++
	for n := 0; k.next('}', n); n++ {
		i := int(b.follows[previous].Load())
		if i >= len(b.children) || !k.consumeName(b.children[i].label) {
			raw := k.name()
			var known bool
			if i, known = b.index[string(k.unquote(raw))]; !known {
				if k.addName(&unknown, raw); s == nil {
					_, err = k.skip(depth)
				} else {
					extra := len(k.extra)
					err = k.unknownMember(s, raw, depth, isRecord)
					kept += b2i(len(k.extra) > extra)
				}
				if err != nil {
					return 0, err
				}
				continue
			}
			b.follows[previous].Store(uint32(i)) //nolint:gosec // G115: an index
		}
		child := b.children[i]
		if previous = i + 1; k.spans[base+child.slot].end != 0 {
			if k.listing {
				k.addViolation(AnyJSON(), strings.Trim(child.label, `":`), givenTwice)
			}
			return 0, k.duplicate()
		}
		if first, start := k.kind(), k.pos; child.sharesSlot && first != '{' && first != '[' {
			t, v := &child.targets[0], k.scalar(first, start)
			if t.converts || k.broken || !k.isValidScalar(t.property.Schema, first, v) {
				if v, err = k.targetScalar(t, first, v); err != nil {
					return 0, err
				}
			}
			k.spans[base+child.slot] = v
			continue
		}
		if err := k.member(child, base, depth); err != nil {
			return 0, err
		}
	}
	if k.broken {
		return 0, k.notJSON()
	}
	if unknown.n > 0 {
		err = k.checkDistinct(unknown, begin)
	}
	if s != nil && s.Additional != nil && unknown.n > s.maxFree() {
		k.note(ruleAlways, s, "", describeRange(0, s.maxFree(), "members"))
	}
	return kept, err
}

// member reads a member of an object of the data service, once for each property that is made from it.
func (k *checker) member(b *branch, base, depth int) error {
	first, start, times := k.kind(), k.pos, 0
	if b.children != nil && first == '{' {
		if _, err := k.branch(b, nil, base, depth+1, false); err != nil {
			return err
		}
		times++
	}
	if hides := k.hides; b.hasHidden && !hides {
		k.hides = true // what is undocumented in one property may be what another must not show
		defer func() { k.hides = hides }()
	}
	for i := range b.targets {
		t := &b.targets[i]
		if times++; times > 1 {
			if err := k.countWork(k.pos - start); err != nil {
				return err
			}
			k.pos = start
		}
		v, err := k.targetValue(t, first, depth)
		if err != nil {
			return err
		}
		k.spans[base+t.slot] = v
	}
	if times == 0 {
		if _, err := k.skip(depth); err != nil {
			return err
		}
	}
	if !b.sharesSlot {
		k.spans[base+b.slot] = span{start: start, end: k.pos}
	}
	return nil
}

// targetValue reads the next value as the value of a property.
func (k *checker) targetValue(t *target, first byte, depth int) (v span, err error) {
	p := t.property
	isObject := first == '{' || first == '['
	switch {
	case !isObject && !p.HoldsRecords && (p.Schema.Choice == nil || first == 'n'):
		v = k.scalar(first, k.pos)
		return k.targetScalar(t, first, v)
	case t.converts:
		if v, err = k.skip(depth); err == nil {
			return k.targetScalar(t, first, v)
		}
		return v, err
	}
	invalid, listed := k.invalid.schema, len(k.listed)
	if p.HoldsRecords {
		v, err = k.recordsOrRecord(p.Schema, depth)
	} else {
		v, err = k.value(p.Schema, depth)
	}
	if e, ok := errors.AsType[*ContractError](err); ok && e.Expected == recordArray && p.From != nil {
		e.Expected += ", from " + p.From.location()
	}
	k.noteFrom(t.property, invalid, listed)
	k.prefixFaults(t.names, invalid, listed)
	return v, err
}

// targetScalar converts and checks a value that has been read, and returns the span of the property's value.
func (k *checker) targetScalar(t *target, first byte, v span) (span, error) {
	if k.broken {
		return v, k.notJSON()
	}
	p := t.property
	if t.converts && first != 'n' {
		converted := len(k.converted)
		if expected := k.convert(p, k.body[v.start:v.end]); expected != "" {
			invalid, listed := k.invalid.schema, len(k.listed)
			k.note(ruleAlways, p.Schema, p.Name, expected)
			k.noteFrom(t.property, invalid, listed)
			if k.prefixFaults(t.in, invalid, listed); k.allViolations && !t.decides { // the result shows what was sent
				return v, nil
			}
			k.converted = append(k.converted, "null"...) // it must not count as a tenant or visibility
			return k.convertedFrom(converted), nil
		}
		if v = k.convertedFrom(converted); len(k.converted) > 2*len(k.body)+1<<20 {
			return v, k.violation(ErrContractViolation, "", "a result at most twice the body's size: converted values are too long")
		}
		if first = k.raw(v)[0]; t.valid && first != 'n' {
			return v, nil
		}
		k.escapes = k.escapes || bytes.IndexByte(k.raw(v), '\\') >= 0 // the body may have none
	}
	if !k.isValidScalar(p.Schema, first, v) && (!p.Internal || first != 'n') {
		k.noteAt(t, first, v)
	}
	return v, nil
}

// noteFrom adds the data service's name for a property to what was noted since invalid and listed, for readers who know only the service.
func (k *checker) noteFrom(p *Property, invalid *Schema, listed int) {
	from := p.From
	if from == nil || from.Names == nil {
		return
	}
	if invalid == nil && k.invalid.schema != nil && k.invalid.from == "" {
		k.invalid.from = from.location()
	}
	for i := listed; i < len(k.listed); i++ {
		if k.listed[i].From == "" {
			k.listed[i].From = from.location()
		}
	}
}

// location returns where the value is: a name, or a JSON Pointer.
func (f *Source) location() string {
	if !f.Pointer {
		return f.Names[0]
	}
	var place jsontext.Pointer
	for _, name := range f.Names {
		place = place.AppendToken(name)
	}
	return string(place)
}

// prefixFaults adds the names of the objects that a value is in to what was noted of it since invalid and listed.
func (k *checker) prefixFaults(names []string, invalid *Schema, listed int) {
	for _, name := range slices.Backward(names) {
		if invalid == nil && k.invalid.schema != nil {
			k.invalid.path = strings.TrimSuffix(name+"."+k.invalid.path, ".")
		}
		prefixPointers(k.listed[listed:], name)
	}
}

// noteAt notes an invalid scalar of a property.
func (k *checker) noteAt(t *target, first byte, v span) {
	invalid, listed := k.invalid.schema, len(k.listed)
	k.noteScalar(t.property.Schema, t.property.Name, first, v)
	k.noteFrom(t.property, invalid, listed)
	k.prefixFaults(t.in, invalid, listed)
}

// wrappedBody reads a response whose body is at DocumentedResponse.From.
func (k *checker) wrappedBody() (span, error) {
	if k.kind() != '{' {
		return span{}, k.violation(ErrContractViolation, "", "an object, in which the body is")
	}
	base := len(k.spans)
	k.spans = slices.Grow(k.spans, k.res.from.slots)[:base+k.res.from.slots]
	clear(k.spans[base:])
	_, err := k.branch(&k.res.from.tree, nil, base, 1, false)
	root := k.spans[base]
	k.spans = k.spans[:base]
	if err == nil && root.end == 0 {
		err = k.violation(ErrContractViolation, "", "the member /"+strings.Join(k.res.From, "/"))
	}
	return root, err
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// queryNumber returns the value of an integer parameter of the query.
func (k *checker) queryNumber(name string) int {
	for i := range k.op.Params {
		if p := &k.op.Params[i]; p.Name == name && p.Number > 0 {
			return k.q.Numbers[p.Number-1]
		}
	}
	return 0
}
