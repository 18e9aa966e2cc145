package upstream

import (
	"bytes"
	"io"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// This file checks values against their schema. An invalid value is noted and is not an error yet, because the object that it is in may be
// removed, or another alternative of a choice may fit.

// typeOf returns the types that a value with a first byte can have.
func typeOf(first byte) Types {
	switch first {
	case '"':
		return TypeString
	case '{':
		return TypeObject
	case '[':
		return TypeArray
	case 'n':
		return TypeNull
	case 't', 'f':
		return TypeBoolean
	default:
		return TypeInteger | TypeNumber
	}
}

// value reads a value. depth is that of the surrounding object or array.
func (k *checker) value(s *Schema, depth int) (span, error) {
	first, start := k.kind(), k.pos
	switch {
	case s.Choice != nil && first != 'n':
		return k.choose(s, depth)
	case first == '{' && s.free || first == '[' && s.free:
		return k.freeJSON(s, depth)
	case first == '{' && s.Types&TypeObject != 0:
		return k.object(s, depth+1, false)
	case first == '[' && s.Types&TypeArray != 0:
		return k.array(s, depth+1)
	case first == '{' || first == '[':
		k.note(k.ruleUnlessGuarded(s, ruleType), s, "", "")
		return k.skip(depth)
	}
	v := k.scalar(first, start)
	if k.broken {
		return v, k.notJSON()
	}
	if !k.isValidScalar(s, first, v) {
		k.noteScalar(s, "", first, v)
	}
	return v, nil
}

// scalar reads a value that is neither an object nor an array.
func (k *checker) scalar(first byte, start int) span {
	if first == '"' {
		k.string()
	} else {
		k.literal()
	}
	return span{start: start, end: k.pos}
}

// isValidScalar reports whether a value that is neither an object nor an array is valid. first is its first byte.
func (k *checker) isValidScalar(s *Schema, first byte, v span) bool {
	if k.trying && s.Rules != nil {
		k.work += workOfMember + workOfPattern*len(s.Rules.Patterns)
	}
	if first == '"' {
		if s.Types&TypeString == 0 || s.Format != FormatText && !s.Format.valid(k.text(v)) {
			return false
		}
		if s.Rules == nil || s.nonEmpty && v.end-v.start > len(`""`) {
			return true
		}
		if s.Rules.Patterns == nil {
			return s.Rules.checkLengthAndEnum(k.text(v)) == ""
		}
		return k.checkText(s.Rules, k.text(v)) == ""
	}
	switch t := typeOf(first); {
	case t&s.Types == 0:
		return false
	case t != TypeInteger|TypeNumber:
		return s.Rules == nil || s.Rules.allowsLiteral(k.raw(v))
	case s.Types&TypeNumber == 0 && !isInteger(k.raw(v)), k.isRequest && !isModerate(k.raw(v)):
		return false
	default:
		return s.Rules == nil || s.Rules.checkNumber(k.raw(v)) == ""
	}
}

// array reads an array and writes it. depth is the array's.
func (k *checker) array(s *Schema, depth int) (span, error) {
	if depth > k.maxDepth {
		return span{}, k.tooDeep()
	}
	k.pos++
	start, kept, n := len(k.out), 0, 0
	k.out = append(k.out, '[')
	listedBefore := len(k.listed)
	var items []string
	for ; k.next(']', n); n++ {
		if r := s.Rules; k.isRequest && r != nil && r.MaxItems >= 0 && n >= r.MaxItems { // the array is invalid
			if _, err := k.skip(depth); err != nil {
				return span{}, err
			}
			continue
		}
		before := len(k.out)
		if kept > 0 {
			k.out = append(k.out, ',')
		}
		from, listed := len(k.out), len(k.listed)
		v, err := k.value(s.Items, depth)
		if len(k.listed) > listed {
			k.completePointers(listedBefore, listed, n)
		}
		switch {
		case err != nil:
			return span{}, err
		case v == hidden:
			k.out = k.out[:before]
			continue
		case !v.result:
			k.out = append(k.out[:from], k.body[v.start:v.end]...)
		}
		kept++
		if s.Rules != nil && s.Rules.Unique && n <= maxUnique {
			items = append(items, canonical(k.out[from:]))
			k.countTried(workOfPattern + 8*(len(k.out)-from))
		}
	}
	if k.broken {
		return span{}, k.notJSON()
	}
	k.out = append(k.out, ']')
	if r := s.Rules; r != nil && (n < r.MinItems || r.MaxItems >= 0 && n > r.MaxItems) {
		k.note(ruleItems, s, "", describeRange(r.MinItems, r.MaxItems, "items"))
	}
	if slices.Sort(items); n > maxUnique && items != nil || len(slices.Compact(items)) < len(items) {
		k.note(ruleItems, s, "", "different items")
	}
	return span{start, len(k.out), true}, k.checkSize()
}

// canonical returns a JSON value in a form in which equal values are equal. Unlike in RFC 8785, numbers are as exact as they were written.
func canonical(value []byte) string {
	v := jsontext.Value(bytes.Clone(value))
	// It cannot fail, because the value has been validated.
	_ = v.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	text := make([]byte, 0, len(v))
	for token := range tokens(v) {
		if token[0] == '-' || isDigit(token[0]) {
			text = parseNumber(token).append(text)
		} else {
			text = append(text, token...)
		}
	}
	return string(text)
}

// tokens yields the strings, the numbers and all other bytes of a valid JSON value.
func tokens(value []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := 0; i < len(value); {
			end := i + 1
			switch {
			case value[i] == '"':
				for ; value[end] != '"'; end++ {
					if value[end] == '\\' {
						end++
					}
				}
				end++
			case value[i] == '-' || isDigit(value[i]):
				for end < len(value) && !isDelimiter(value[end]) {
					end++
				}
			}
			if !yield(value[i:end]) {
				return
			}
			i = end
		}
	}
}

// freeJSON reads an object or array of free JSON and writes it. depth is that of the surrounding object.
func (k *checker) freeJSON(s *Schema, depth int) (span, error) {
	v, err := k.skip(depth)
	if err != nil {
		return v, err
	}
	start := len(k.out)
	// It cannot fail, because the value has been validated.
	k.out, _ = jsontext.AppendFormat(k.out, k.body[v.start:v.end])
	members, isModerateJSON := 0, true
	for token := range tokens(k.out[start:]) {
		members += b2i(token[0] == ':')
		isModerateJSON = isModerateJSON && (token[0] != '-' && !isDigit(token[0]) || isModerate(token))
	}
	if members > s.maxFree() {
		k.note(ruleAlways, s, "", describeRange(0, s.maxFree(), "members"))
	}
	if k.isRequest && !isModerateJSON {
		k.note(ruleAlways, s, "", moderate)
	}
	return span{start, len(k.out), true}, nil
}

// attempt is how an alternative of a choice is read.
type attempt struct {
	trying bool // alternatives are being tried
	strict bool // unknown members are invalid
	inner  bool // within an object that has such alternatives: the first one that fits is taken, because each level multiplies the work

	published map[string]bool // what alternatives publish
	objects   int             // the depth of their objects
	lost      int             // how many published members of the object were removed
}

// choiceState is the part of a checker's state that is restored when an alternative does not fit.
type choiceState struct {
	pos, out, spans, extra, converted int
	report                            Report
	attempt
}

// choose reads a value that is one of several alternatives.
func (k *checker) choose(s *Schema, depth int) (span, error) {
	if s.Withheld && k.enforce == EnforceTenant { // what fits no alternative may be meant for one that was left out because it must not leave
		k.enforce = EnforceMembers
		defer func() { k.enforce = EnforceTenant }()
	}
	first, start := k.kind(), k.pos
	k.countTried(len(s.Choice.Alternatives) / 4)
	var fitting [MaxTried]*Schema
	n := 0
	for _, alternative := range s.Choice.Alternatives {
		if alternative.Types&typeOf(first) != 0 {
			if n < len(fitting) { // if there are more, a member decides
				fitting[n] = alternative
			}
			n++
		}
	}
	rule, name, why := ruleType, "", "" // if none fits
	if n > 1 && first == '{' && s.Choice.Discriminator != "" {
		value, found, err := k.decidingValue(s.Choice.Discriminator)
		if err != nil {
			return span{}, err
		}
		fitting[0], n = s.Choice.Values[value], 1
		if fitting[0] == nil {
			n, rule, name = 0, ruleChoice, s.Choice.Discriminator
			if why = k.missing(name); found {
				why = k.reason("is not one of the possible values", "one of the documented values")
			}
		}
	}
	switch n {
	case 0:
		if first == '{' || first == '[' || k.mustProve(s) {
			rule = k.ruleUnlessGuarded(s, rule)
		}
		k.note(rule, s, name, why)
		return k.skip(depth)
	case 1:
		return k.value(fitting[0], depth)
	}
	invalid, listed := k.invalid, len(k.listed)
	before := choiceState{k.pos, len(k.out), len(k.spans), len(k.extra), len(k.converted), k.report, k.attempt}
	own := attempt{trying: true, published: s.Choice.names, objects: depth + 1}
	own.inner = before.trying && (before.inner || before.objects != own.objects)
	if before.objects == own.objects { // s is itself an alternative
		own.published = before.published
	}
	var makeshift *Schema // fits, but loses some of the members that alternatives publish, and no other one loses fewer
	fewest := 0
	crossTenantRecords := 0 // the most that an alternative had: kept, whichever one fits
	for i := 0; i < 2*n || i == 2*n && makeshift != nil; i++ {
		if i == n && before.strict {
			break // an outer choice is being tried with unknown members forbidden
		}
		alternative := fitting[i%n]
		if i == 2*n {
			alternative = makeshift
		}
		own.strict = i < n
		k.attempt, k.invalid = own, fault{}
		v, err := k.value(alternative, depth)
		lost, unlisted := k.lost, k.allViolations && k.report.CrossTenant < crossTenantRecords
		k.attempt, crossTenantRecords = before.attempt, max(crossTenantRecords, k.report.CrossTenant)
		k.report.CrossTenant = crossTenantRecords
		if err == nil {
			err = k.countWork(k.pos - start)
		}
		if err != nil {
			return span{}, err
		}
		if k.invalid.schema == nil {
			isCostly := k.work > (maxWork*len(k.body)+workAllowance)/4 // to be finished, the body needs what is left
			if lost == 0 || i == 2*n || own.inner || isCostly {
				if k.invalid = invalid; before.objects == own.objects {
					k.lost += lost
				}
				if unlisted { // it is in a member that only another alternative has
					k.addViolation(s, "", OtherBusiness)
				}
				k.forgetWithheld(start)
				return v, nil
			}
			if makeshift == nil || lost < fewest {
				makeshift, fewest = alternative, lost
			}
		}
		k.listed = k.listed[:listed]
		k.pos, k.out, k.spans, k.extra, k.report = before.pos, k.out[:before.out], k.spans[:before.spans], k.extra[:before.extra], before.report
		k.converted = k.converted[:before.converted]
	}
	k.invalid, k.report.CrossTenant = invalid, crossTenantRecords
	if rule = ruleChoice; first == '{' || first == '[' || k.mustProve(s) {
		rule = k.ruleUnlessGuarded(s, rule)
	}
	k.note(rule, s, "", "")
	v, err := k.skip(depth)
	k.forgetWithheld(start)
	return v, err
}

// withhold keeps an object that an alternative has removed from leaving by another one. at is where it begins in the body.
func (k *checker) withhold(at int) {
	if !k.trying {
		return
	}
	if k.withheld == nil {
		k.withheld = make([]byte, len(k.body)/8+1)
	}
	k.withheld[at/8] |= 1 << (at % 8)
}

// isWithheld reports whether an alternative has removed the object that begins at a position, and another one is being tried.
func (k *checker) isWithheld(at int) bool {
	return k.trying && k.withheld != nil && k.withheld[at/8]&(1<<(at%8)) != 0
}

// forgetWithheld ends a choice that is not in another one: its value may be read again, for a property with the same source.
func (k *checker) forgetWithheld(start int) {
	if !k.trying && k.withheld != nil {
		clear(k.withheld[start/8 : k.pos/8+1])
	}
}

// decidingValue looks ahead in the next object, and returns the value of the member that decides between the alternatives, if it is there.
func (k *checker) decidingValue(name string) (value string, found bool, err error) {
	start := k.pos
	k.pos++
	for n := 0; k.next('}', n); n++ {
		if found = string(k.unquote(k.name())) == name; found {
			switch start := k.pos; k.kind() {
			case '"':
				value = string(k.unquote(k.string()))
			case '{', '[':
			default:
				k.literal()
				value = string(k.body[start:k.pos])
			}
			break
		}
		if _, err := k.skip(0); err != nil { // the depth is checked when the object is read
			return "", false, err
		}
	}
	if k.broken {
		return "", false, k.notJSON()
	}
	if err := k.countWork(k.pos - start); err != nil {
		return "", false, err
	}
	k.pos = start
	return value, found, nil
}

// unknownMember reads a member that is not a property. It removes the member, or keeps it in k.extra. depth is that of the object.
func (k *checker) unknownMember(s *Schema, rawName []byte, depth int, isRecord bool) error {
	start := len(k.out)
	var v span
	var err error
	listed := len(k.listed)
	k.countTried(2 * workOfMember)
	switch {
	case s.Additional != nil:
		v, err = k.value(s.Additional, depth)
		if len(k.listed) > listed {
			prefixPointers(k.listed[listed:], k.undocumented(rawName, true))
		}
	case isRecord && k.passUnknown && !s.Withheld && !k.hides:
		v, err = k.freeJSON(AnyJSON(), depth)
	case k.enforce == EnforceTenant && !k.strict && !k.hides && !s.Withheld && !s.isReserved(k.unquote(rawName)):
		if v, err = k.freeJSON(AnyJSON(), depth); err == nil && !s.hasSimilarName(k.unquote(rawName)) {
			k.addToList(ruleUndocumented, k.undocumented(rawName, false))
		}
	default:
		why := "is removed: it is not documented"
		if depth == k.objects && k.published[string(k.unquote(rawName))] {
			k.lost, why = k.lost+1, "is removed: the alternatives with it do not fit"
		}
		switch {
		case k.isRequest:
			k.note(ruleAlways, s, k.undocumented(rawName, false), Undocumented)
		case k.strict:
			k.note(ruleAlways, s, "", "no undocumented members")
		case k.listing && !k.allViolations:
			k.addViolation(s, k.undocumented(rawName, false), why)
		}
		_, err = k.skip(depth)
		return err
	}
	if similar := err == nil && s.hasSimilarName(k.unquote(rawName)); similar && k.isRequest {
		k.note(ruleAlways, s, k.undocumented(rawName, false), Undocumented)
	} else if err == nil && k.isRequest && k.maySetTenant(s, rawName, depth) && k.checkBusinessID(s, v, "").schema != nil {
		k.note(ruleAlways, s, k.undocumented(rawName, false), notOwnBusiness)
	} else if err == nil && !v.isAbsent() && !similar {
		k.extra = append(append(append(k.extra, ','), rawName...), ':')
		if v.result {
			k.extra = append(k.extra, k.out[v.start:v.end]...)
		} else {
			k.extra = append(k.extra, k.body[v.start:v.end]...)
		}
	}
	k.out = k.out[:start]
	return err
}

// maySetTenant reports whether a service could take a further member of a request for the one that names the business.
func (k *checker) maySetTenant(s *Schema, rawName []byte, depth int) bool {
	if len(k.op.Body.Business) == 0 || depth > 1 && len(s.Properties) == 0 {
		return false
	}
	var room [64]byte
	name := k.unquote(rawName)
	plain := slices.DeleteFunc(append(room[:0], name...), func(c byte) bool { return strings.IndexByte("_-. ", c) >= 0 })
	return slices.ContainsFunc(k.op.Body.Business, func(other []byte) bool { return bytes.EqualFold(plain, other) || bytes.EqualFold(name, other) })
}

// isReserved reports whether a name is that of a member which must not leave, or only after a check, in another alternative of a choice.
func (s *Schema) isReserved(name []byte) bool {
	return s.reservedNames != nil && s.reservedNames[strings.ToLower(string(name))]
}

// hasSimilarName reports whether a name equals that of a property, ignoring case. Case-insensitive readers would confuse the two.
func (s *Schema) hasSimilarName(name []byte) bool {
	for i := range s.Properties {
		if strings.EqualFold(s.Properties[i].Name, string(name)) {
			return true
		}
	}
	sent := func(b *branch) bool { return strings.EqualFold(b.label, label(string(name))) }
	return s.from != nil && slices.ContainsFunc(s.from.tree.children, sent) // the data service's names count, too
}

// IsValidScalar reports whether a JSON value that is neither an object nor an array is valid.
func (s *Schema) IsValidScalar(scalar string) bool {
	k := checker{body: []byte(scalar), escapes: true, matcher: patternMatcher{left: maxMatching}}
	return k.isValidScalar(s, scalar[0], span{end: len(scalar)})
}

// checkText returns which rule a parameter's value breaks, or "". It is at most MaxText bytes long, so patterns need no time limit.
func (r *Rules) checkText(text []byte) string {
	why := r.checkLengthAndEnum(text)
	for i := 0; why == "" && i < len(r.Patterns); i++ {
		if !r.Patterns[i].MatchString(string(text)) { // Match would move the texts of all parameters to the heap
			why = mismatch
		}
	}
	return why
}

// mismatch is why a string that does not match a pattern is invalid.
const mismatch = "does not have the required form"

// checkText returns which rule a string in a body breaks, or "".
func (k *checker) checkText(r *Rules, text []byte) string {
	why := r.checkLengthAndEnum(text)
	for i := 0; why == "" && i < len(r.Patterns); i++ {
		switch {
		case len(text) > maxMatched:
			why = mismatch
		case k.matcher.match(r.Patterns[i], text):
		case k.matcher.left < 0:
			why = "is too expensive to check"
		default:
			why = mismatch
		}
	}
	return why
}

// checkLengthAndEnum returns which rule a string breaks, not counting patterns, or "".
func (r *Rules) checkLengthAndEnum(text []byte) string {
	if len(text) < utf8.UTFMax*r.MinLength || r.MaxLength >= 0 && len(text) > r.MaxLength { // otherwise, the number of bytes suffices
		switch n := utf8.RuneCount(text); {
		case n < r.MinLength:
			return "is too short"
		case r.MaxLength >= 0 && n > r.MaxLength:
			return "is too long"
		}
	}
	if r.Enum != nil && !r.hasText(text) {
		return "is not one of the possible values"
	}
	return ""
}

const (
	// maxMatching is how long matching the patterns of one body may take, for each MiB begun. RE2 matches in linear time, but a long text can
	// still take minutes: up to 100 ns for each character and each position in the pattern that is possible there. Usual patterns take 13 ms
	// for 1 MiB of short texts.
	maxMatching = time.Second

	// Texts shorter than shortText are matched without a look at the clock. Longer ones than longText are stopped when time is used up.
	shortText, longText = 32, 4 << 10
)

// patternMatcher limits the time for patterns. As an io.RuneReader, it returns the characters of the text that is being matched.
type patternMatcher struct {
	left    time.Duration // negative: it is used up
	text    []byte
	n       int
	started time.Time
}

// match reports whether a text matches a pattern. It returns false if no time is left.
func (m *patternMatcher) match(pattern *regexp.Regexp, text []byte) (matches bool) {
	switch {
	case m.left < 0:
		return false
	case len(text) < shortText:
		return pattern.Match(text)
	}
	m.started = time.Now()
	if len(text) <= longText {
		matches = pattern.Match(text)
	} else {
		m.text, m.n = text, 0
		matches = pattern.MatchReader(m)
		m.text = nil
	}
	m.left -= time.Since(m.started)
	return matches && m.left >= 0
}

// ReadRune implements io.RuneReader. It ends the text when no time is left.
func (m *patternMatcher) ReadRune() (r rune, size int, err error) {
	if m.n++; len(m.text) == 0 || m.n%256 == 0 && time.Since(m.started) > m.left {
		return 0, 0, io.EOF
	}
	r, size = utf8.DecodeRune(m.text)
	m.text = m.text[size:]
	return r, size, nil
}

// hasText reports whether a string is one of the possible values, which are sorted.
func (r *Rules) hasText(text []byte) bool {
	low, high := 0, len(r.Enum)
	for low < high {
		middle := (low + high) / 2
		switch e := r.Enum[middle]; {
		case e[0] != '"' || e[1:] > string(text): // strings come first, because a quote sorts before numbers, true and false
			high = middle
		case e[1:] == string(text):
			return true
		default:
			low = middle + 1
		}
	}
	return false
}

// checkNumber returns which rule a JSON number breaks, or "".
func (r *Rules) checkNumber(number []byte) string {
	if r.Min != "" {
		if c := compareNumbers(number, []byte(r.Min)); c < 0 || c == 0 && r.MinOpen || number[0] == '-' && r.Min[0] != '-' { // -0 too
			return "is too small"
		}
	}
	if r.Max != "" {
		if c := compareNumbers(number, []byte(r.Max)); c > 0 || c == 0 && r.MaxOpen {
			return "is too large"
		}
	}
	if r.Enum != nil && !r.hasNumber(number) {
		return "is not one of the possible values"
	}
	return ""
}

// hasNumber reports whether a JSON number is one of the possible values. If compile has not run yet, it compares each of them.
func (r *Rules) hasNumber(number []byte) bool {
	if r.numbers != nil {
		var room [2 * maxNumber]byte
		return r.numbers[string(parseNumber(number).append(room[:0]))]
	}
	return slices.ContainsFunc(r.Enum, func(e string) bool { return isNumber(e) && compareNumbers(number, []byte(e)) == 0 })
}

// isNumber reports whether a possible value is a number.
func isNumber(e string) bool { return typeOf(e[0]) == TypeInteger|TypeNumber }

// allowsLiteral reports whether true, false or null is one of the possible values. Null always is: its type has been checked.
func (r *Rules) allowsLiteral(text []byte) bool {
	if r.Enum == nil || text[0] == 'n' {
		return true
	}
	_, found := slices.BinarySearch(r.Enum, string(text))
	return found
}

// compile sorts the possible values and makes a set of the numbers, so that look-ups take the same time with many values.
func (r *Rules) compile() {
	slices.Sort(r.Enum)
	for _, e := range r.Enum {
		if isNumber(e) {
			if r.numbers == nil {
				r.numbers = make(map[string]bool, len(r.Enum))
			}
			r.numbers[string(parseNumber([]byte(e)).append(nil))] = true
		}
	}
}
