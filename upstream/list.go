package upstream

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// This file reads the record or the records of a response, and checks their number and order and that they are what was asked for.

// record is a record of a list that has been appended to the result.
type record struct {
	start, end int // in the result, without the preceding comma
	created    moment
}

// recordsOrRecord reads the value in which the definition says the records are: a list, or one record. depth is that of the surrounding object.
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
		err = k.faultError()
	}
	switch {
	case err != nil:
		return v, err
	case v == hidden:
		return v, fmt.Errorf("%w: %s", ErrNotVisible, k.op.ID)
	}
	if err := k.checkRecord(s, k.spans[base:base+len(s.Properties)]); err != nil {
		return v, err
	}
	k.report.Records = 1
	return v, nil
}

// checkRecord returns an error if a record does not have the properties that the path asked for.
func (k *checker) checkRecord(s *Schema, spans []span) error {
	for i, is := range k.res.isIndexes {
		asked := ""
		if is[1] < len(k.q.pathValues) {
			asked = k.q.pathValues[is[1]]
		}
		name, expected := k.res.Records.Is[i].Property, "the record that was asked for"
		if !k.equals(spans[is[0]], s.Properties[is[0]].Schema.Format, asked) && !k.tolerate(ruleRecord, name, expected) {
			return k.violation(ErrWrongRecord, name, expected)
		}
	}
	return nil
}

// equals reports whether a string or a number is what a path asked for: a number or a UUID in any spelling.
func (k *checker) equals(v span, f Format, asked string) bool {
	text := k.text(v)
	switch {
	case text == nil && !v.isAbsent() && !v.result:
		raw := k.raw(v)
		return string(raw) == asked || IsNumber(asked) && IsNumber(string(raw)) && compareNumbers(raw, []byte(asked)) == 0
	case f == FormatUUID:
		return strings.EqualFold(string(text), asked)
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
	first, maxRecords, filtered, listedBefore := len(k.out), k.res.maxRecords(k.q), s.Items.visible >= 0, len(k.listed)
	surplus := false // more records than allowed have passed
	for k.recordIndex = 0; k.next(']', k.recordIndex); k.recordIndex++ {
		if k.kind() != '{' {
			return span{}, k.violation(ErrContractViolation, "", "an object")
		}
		if !filtered && k.recordIndex >= maxRecords && !k.allViolations && !surplus {
			if surplus = k.tolerate(ruleRecords, "", ""); !surplus {
				k.recordIndex = -1
				return span{}, k.violation(ErrContractViolation, k.res.Records.In, k.atMost(maxRecords))
			}
		}
		if len(k.records) > 0 {
			k.out = append(k.out, ',')
		}
		r := record{start: len(k.out)}
		base := len(k.spans)
		listed := len(k.listed)
		v, err := k.object(s.Items, depth+1, true)
		if err == nil {
			err = k.faultError()
		}
		if err == nil && v != hidden {
			r.created, err = k.checkListed(s.Items, k.spans[base:base+len(s.Items.Properties)])
		}
		if len(k.listed) > listed {
			k.completePointers(listedBefore, listed, k.recordIndex)
		}
		switch {
		case err != nil:
			return span{}, err
		case v == hidden:
			k.out = k.out[:max(r.start-1, first)]
			continue
		}
		if n := len(k.records); n > 0 && k.records[n-1].created.compare(r.created) < 0 {
			k.ordered = false
		}
		r.end = len(k.out)
		k.records = append(k.records, r)
	}
	n := k.recordIndex
	k.recordIndex = -1
	if k.broken {
		return span{}, k.notJSON()
	}
	if k.allViolations && len(k.records) > maxRecords {
		k.addViolation(s, "", k.atMost(maxRecords))
	}
	const otherItems = "another number of records, or different ones"
	if r := s.Rules; r != nil && (n < r.MinItems || r.Unique && !k.distinctRecords()) && !k.tolerate(ruleItems, "", otherItems) {
		return span{}, k.violation(ErrContractViolation, k.res.Records.In, otherItems)
	}
	ofOrder := func(v Violation) bool { return slices.Contains(k.res.Records.Order, path.Base(v.Pointer)) }
	if !k.ordered && k.allViolations && !slices.ContainsFunc(k.listed[listedBefore:], ofOrder) { // otherwise, the order is not known
		k.addViolation(s, "", "newest first by "+strings.Join(k.res.Records.Order, " or "))
	}
	if !k.ordered && !k.allViolations {
		k.report.Reordered = true
		k.sort(k.out[first:], first)
	}
	k.report.Records = len(k.records)
	if filtered && len(k.records) > maxRecords {
		k.report.Surplus = len(k.records) - maxRecords
		k.report.Records = maxRecords
		k.out = k.out[:first]
		if maxRecords > 0 {
			k.out = k.out[:k.records[maxRecords-1].end]
		}
	}
	k.out = append(k.out, ']')
	return span{begin, len(k.out), true}, nil
}

// checkListed checks a record of a list, and returns when it was created.
func (k *checker) checkListed(s *Schema, spans []span) (created moment, err error) {
	if err := k.checkRecord(s, spans); err != nil {
		return created, err
	}
	known := false
	for _, i := range k.res.order {
		if text := k.text(spans[i]); text != nil {
			created, known = parseInstant(text)
			break
		}
	}
	if s.visible >= 0 && !known && len(k.res.order) > 0 {
		name, expected := k.res.Records.Order[0], strings.Join(k.res.Records.Order, " or ")+" in a record that may be seen"
		if !k.tolerate(ruleOrder, name, expected) {
			return created, k.violation(ErrContractViolation, name, expected)
		}
	}
	return created, nil
}

// atMost says how many records a list may have.
func (k *checker) atMost(most int) string {
	return "at most " + k.op.numberName(k.res.Records.AtMost) + " records, " + strconv.Itoa(most)
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
