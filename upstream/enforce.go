package upstream

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Enforcement says which deviations of responses from the definition pass.
//
// Whatever it is, these hold: the checks of requests, tenant and visibility, the removal of internal and writeOnly members, sizes, JSON's
// syntax and depth, media types, status codes and headers, that the records are where they are said to be, and that what is mapped can be
// converted.
type Enforcement uint8

// The steps of enforcement.
const (
	EnforceAll     Enforcement = iota // none pass
	EnforceMembers                    // possible values, formats, patterns, lengths, bounds and numbers of items and records may deviate
	EnforceTenant                     // all deviations pass, undocumented members too
)

// Deviation is a way in which a response deviated from the definition and passed. It has no values in it.
type Deviation struct {
	Pointer string `json:"pointer"` // JSON Pointer of the member; * stands for each item of an array, and for a name that is not an identifier
	Rule    string `json:"rule"`    // such as "type", "format" or "undocumented"
	Count   int    `json:"count"`   // how often, in this response
}

// Enforcements returns the names of the steps, from the first to the last.
func Enforcements() []string { return []string{"tenant", "members", "all"} }

// String returns the name of the step.
func (e Enforcement) String() string { return Enforcements()[EnforceTenant-min(e, EnforceTenant)] }

// MarshalText implements encoding.TextMarshaler.
func (e Enforcement) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *Enforcement) UnmarshalText(text []byte) error {
	for step := range EnforceTenant + 1 {
		if step.String() == string(text) {
			*e = step
			return nil
		}
	}
	return fmt.Errorf("invalid enforce %q: must be one of %s", text, strings.Join(Enforcements(), ", "))
}

// The rules of Deviation.
const (
	holds = "" // what is always enforced

	ruleType         = "type"
	ruleMissing      = "missing"
	ruleUndocumented = "undocumented"
	ruleEnum         = "enum"
	ruleFormat       = "format"
	rulePattern      = "pattern"
	ruleLength       = "length"
	ruleBounds       = "bounds"  // of a number
	ruleItems        = "items"   // their number, or that they differ
	ruleMembers      = "members" // their number
	ruleChoice       = "choice"  // no alternative fits
	ruleRecords      = "records" // more than were asked for
	ruleRecord       = "record"  // not the one that was asked for
	rulePage         = "page"    // not the one that was asked for
	ruleOrder        = "order"   // it does not say when it was created
)

// DeviationRules returns all rules of deviations.
func DeviationRules() []string {
	return append([]string{ruleType, ruleMissing, ruleUndocumented, ruleChoice, ruleRecord, rulePage, ruleOrder}, soft...)
}

// soft are the rules that EnforceMembers does not enforce.
//
//nolint:gochecknoglobals // a constant
var soft = []string{ruleEnum, ruleFormat, rulePattern, ruleLength, ruleBounds, ruleItems, ruleMembers, ruleRecords}

// passes reports whether a value that breaks a rule passes. While alternatives of a choice are tried, none does.
func (k *checker) passes(rule string) bool {
	return k.enforce != EnforceAll && rule != holds && !k.trying && (k.enforce == EnforceTenant || slices.Contains(soft, rule))
}

// lets reports whether something that breaks a rule passes, and lists it.
func (k *checker) lets(rule, name string) bool {
	if !k.passes(rule) {
		return false
	}
	k.deviate(rule, name)
	return true
}

// deviate lists a deviation, unless many are listed already.
func (k *checker) deviate(rule, name string) {
	if len(k.listed) == maxViolations {
		return
	}
	if k.listed = append(k.listed, Violation{Reason: rule}); name != "" {
		k.within(len(k.listed)-1, name)
	}
}

// item adds the index of an item of an array to what was listed of it. Deviations of all items of an array, which are listed from begun on,
// are one.
func (k *checker) item(begun, listed, n int) {
	if k.enforce == EnforceAll {
		k.within(listed, strconv.Itoa(n))
		return
	}
	k.within(listed, "*")
	k.listed = merge(k.listed[:listed], begun, k.listed[listed:])
}

// merge appends violations to others, of which they may be the rest. One that is among the others from an offset on is counted there.
func merge(all []Violation, from int, more []Violation) []Violation {
	for _, v := range more {
		v.times = max(v.times, 1)
		if i := slices.IndexFunc(all[from:], func(o Violation) bool { return o.Pointer == v.Pointer && o.Reason == v.Reason }); i >= 0 {
			all[from+i].times += v.times
		} else {
			all = append(all, v)
		}
	}
	return all
}

// deviations returns what passed.
func (k *checker) deviations() (all []Deviation) {
	if k.enforce == EnforceAll {
		return nil
	}
	for _, v := range merge(k.listed[:0], 0, k.listed) {
		all = append(all, Deviation{v.Pointer, v.Reason, v.times})
	}
	return all
}

// ruleOf returns the rule that an invalid scalar breaks.
func (k *checker) ruleOf(s *Schema, first byte, v span) string {
	t := typeOf(first)
	switch {
	case k.enforce == EnforceAll, s.Withheld:
		return holds
	case s.Refused != "", t&s.Types == 0, t == TypeInteger|TypeNumber && s.Types&TypeNumber == 0 && !isInteger(k.raw(v)):
		return ruleType
	case t == TypeString && !s.Format.valid(k.text(v)):
		return ruleFormat
	case t == TypeString && s.Rules.Enum != nil && !s.Rules.hasText(k.text(v)), t == TypeBoolean, t == TypeNull:
		return ruleEnum
	case t == TypeString && s.Rules.unmatched(k.text(v)) != "":
		return ruleLength
	case t == TypeString:
		return rulePattern
	case s.Rules.Enum != nil && !s.Rules.hasNumber(k.raw(v)):
		return ruleEnum
	default:
		return ruleBounds
	}
}

// unguarded returns a rule that an object or array may break, or none if its members may be others' or must not leave.
func (s *Schema) unguarded(rule string) string {
	if s.guarded {
		return holds
	}
	return rule
}

// guard finds out below which schemas of responses objects are checked for their tenant, or something is removed.
func guard(operations []*Operation) {
	parents := map[*Schema][]*Schema{}
	var guarded []*Schema
	var visit func(s, parent *Schema)
	visit = func(s, parent *Schema) {
		if s == nil {
			return
		}
		all, seen := parents[s]
		if parents[s] = append(all, parent); seen {
			return
		}
		isInternal := func(p Property) bool { return p.Internal }
		if s.Tenant != "" || s.Visible != "" || s.Withheld || s.Concealed != nil || slices.ContainsFunc(s.Properties, isInternal) {
			guarded = append(guarded, s)
		}
		visit(s.Items, s)
		visit(s.Additional, s)
		for i := range s.Properties {
			visit(s.Properties[i].Schema, s)
		}
		if s.Choice != nil {
			for _, alternative := range s.Choice.Alternatives {
				visit(alternative, s)
			}
		}
	}
	for _, op := range operations {
		for i := range op.Responses {
			visit(op.Responses[i].Body, nil)
		}
	}
	for len(guarded) > 0 {
		s := guarded[0]
		if guarded = guarded[1:]; s != nil && !s.guarded {
			s.guarded = true
			guarded = append(guarded, parents[s]...)
		}
	}
	withhold(parents)
	for s := range parents {
		if s.from != nil {
			s.from.tree.mix()
		}
	}
}

// withhold lets nothing pass below a choice as undocumented, or as a value of another type, that may be meant for another alternative: members
// with the name of one that is internal or guarded, wherever that is. What this removes without need is little.
func withhold(all map[*Schema][]*Schema) {
	names, further := map[string]bool{}, false // in lower case, also those of the data service
	choices := map[*Schema]bool{}              // with an alternative that is Withheld, or without
	for s := range all {
		if further = further || s.Withheld; s.Choice != nil && s.guarded {
			choices[s] = slices.ContainsFunc(s.Choice.Alternatives, func(a *Schema) bool { return a.Withheld })
		}
		for i := range s.Properties {
			if p := &s.Properties[i]; p.Internal || p.Schema.guarded {
				names[strings.ToLower(p.Name)], names[strings.ToLower(p.sent())] = true, true
			}
		}
	}
	seen, guarded := map[*Schema]bool{}, map[*Schema]bool{}
	var below func(s *Schema)
	below = func(s *Schema) {
		if s == nil || seen[s] {
			return
		}
		seen[s], s.siblings = true, names
		s.Additional.guard(further, guarded)
		for i := range s.Properties {
			p := &s.Properties[i]
			if names[strings.ToLower(p.Name)] || names[strings.ToLower(p.sent())] {
				p.Schema.guard(further, guarded)
			}
			below(p.Schema)
		}
		below(s.Items)
		below(s.Additional)
		if s.Choice != nil {
			for _, alternative := range s.Choice.Alternatives {
				below(alternative)
			}
		}
	}
	for s, withheld := range choices {
		s.guard(withheld, guarded)
		below(s)
	}
}

// guard guards a schema and what its values consist of, but for properties; further says whether it is Withheld, too.
func (s *Schema) guard(further bool, done map[*Schema]bool) {
	if s == nil || done[s] && (s.Withheld || !further) {
		return
	}
	done[s], s.guarded, s.Withheld = true, true, s.Withheld || further
	s.Items.guard(further, done)
	s.Additional.guard(further, done)
	if s.Choice != nil {
		for _, alternative := range s.Choice.Alternatives {
			alternative.guard(further, done)
		}
	}
}

// sent returns the name of the member, in the same object of the data service, in which the property is.
func (p *Property) sent() string {
	if p.From != nil && p.From.Names != nil {
		return p.From.Names[0]
	}
	return p.Name
}
