package demo

import (
	"cmp"
	"fmt"
	"net/http"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/language"
)

// detail describes what is wrong with a field, parameter or header.
type detail struct {
	Field   string `db:"field"`            // the path of the member, or the name of the parameter or header
	Problem string `db:"problem"`          // completes a sentence that begins with the field
	Allowed string `db:"allowed,optional"` // what is accepted; "": null
}

// problems collects everything that is wrong with a request.
type problems struct{ all []detail }

// Limits of an error response. A field's name comes from the request and may have any length.
const (
	maxDetails = 30
	maxField   = 100
	maxProblem = 500
)

func (p *problems) add(field, problem, allowed string) {
	if len(p.all) < maxDetails {
		p.all = append(p.all, detail{shorten(field, maxField), shorten(problem, maxProblem), shorten(allowed, maxProblem)})
	}
}

func shorten(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// err returns the error that lists the problems, or nil if there are none.
func (p *problems) err() error {
	if len(p.all) == 0 {
		return nil
	}
	return &httpError{
		Status: http.StatusUnprocessableEntity, Code: "INVALID",
		Message: "The request has fields that cannot be accepted.", Details: p.all,
	}
}

func conflict(message string, details ...detail) error {
	return &httpError{Status: http.StatusConflict, Code: "CONFLICT", Message: message, Details: details}
}

func notFound(what string) error {
	return newError(http.StatusNotFound, "NOT_FOUND", "The business has no such "+what+".")
}

// input reads the members of a JSON object. Its methods leave the destination unchanged if a member is missing or
// invalid.
type input struct {
	members map[string]jsontext.Value
	known   []string
	path    string // of the object, with its dot; "": the body
	partial bool   // a PATCH: nothing is required
	p       *problems
}

// input returns the body of the request. No member is required if partial is set.
func (c *connectCall) input(partial bool) *input {
	in := &input{partial: partial, p: &c.problems}
	// The body is known to be an object.
	if err := json.Unmarshal(c.body, &in.members); err != nil {
		in.p.add("body", "cannot be read", "one JSON object")
	}
	return in
}

func (in *input) take(name string) (jsontext.Value, bool) {
	in.known = append(in.known, name)
	v, ok := in.members[name]
	return v, ok
}

// end rejects unknown members, and a partial update without members.
func (in *input) end() {
	known := strings.Join(in.known, ", ")
	var unknown []string
	for name := range in.members {
		if !slices.Contains(in.known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		in.p.add(in.path+name, "is not known here", known)
	}
	if in.partial && len(in.members) == 0 {
		in.p.add(cmp.Or(strings.TrimSuffix(in.path, "."), "body"), "has nothing to change", known)
	}
}

// done ends the input and returns the error that lists all problems.
func (in *input) done() error {
	in.end()
	return in.p.err()
}

func (in *input) missing(name, allowed string) {
	if !in.partial {
		in.p.add(in.path+name, "is required", allowed)
	}
}

// textRule describes a valid text: 1 to max characters without surrounding white space, on one line unless lines is
// set.
type textRule struct {
	max   int
	lines bool
	valid func(string) bool // nil: whatever it says
	what  string            // what is allowed, where valid says so
}

func (r textRule) allowed() string {
	switch {
	case r.what != "":
		return r.what
	case r.lines:
		return fmt.Sprintf("1 to %d characters, several lines", r.max)
	default:
		return fmt.Sprintf("1 to %d characters on one line", r.max)
	}
}

// clean returns the text to store, or what is wrong with it.
func (r textRule) clean(s string) (clean, problem string) {
	s = strings.TrimSpace(s)
	if r.lines {
		s = strings.ReplaceAll(s, "\r\n", "\n")
	}
	control := func(c rune) bool {
		return unicode.IsControl(c) && (!r.lines || c != '\n' && c != '\t') || c == '\u2028' || c == '\u2029'
	}
	switch n := utf8.RuneCountInString(s); {
	case n == 0:
		return "", "must not be empty"
	case n > r.max:
		return "", fmt.Sprintf("is %d characters long", n)
	case strings.ContainsFunc(s, control):
		return "", "has control characters or line breaks that are not allowed"
	case r.valid != nil && !r.valid(s):
		return "", "is not of the right form"
	}
	return s, ""
}

func line(n int) textRule  { return textRule{max: n} }
func lines(n int) textRule { return textRule{max: n, lines: true} }

func emailRule() textRule {
	return textRule{max: 254, what: "an e-mail address of at most 254 characters", valid: func(s string) bool {
		a, err := mail.ParseAddress(s)
		return err == nil && a.Name == "" && a.Address == s && !strings.ContainsAny(s, " <>\"")
	}}
}

func patternRule(pattern, what string) textRule {
	re := regexp.MustCompile(`^(?:` + pattern + `)$`)
	return textRule{max: 100, what: what, valid: re.MatchString}
}

func urlRule() textRule {
	return textRule{max: 2000, what: "an https:// or http:// address of at most 2000 characters", valid: func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil &&
			!strings.ContainsFunc(s, unicode.IsSpace)
	}}
}

func timeZoneRule() textRule {
	return textRule{max: 60, what: "an IANA time zone, such as Europe/London", valid: func(s string) bool {
		_, err := time.LoadLocation(s)
		return err == nil && s != "Local"
	}}
}

func languageRule() textRule {
	return textRule{max: 35, what: "a BCP 47 language tag, such as en-GB", valid: func(s string) bool {
		_, err := language.Parse(s)
		return err == nil && !strings.Contains(s, "_")
	}}
}

func (in *input) readText(name string, v jsontext.Value, r textRule) (string, bool) {
	if v.Kind() != '"' {
		in.wrongKind(name, v, "text", r.allowed())
		return "", false
	}
	var s string
	if err := json.Unmarshal(v, &s); err != nil {
		in.p.add(in.path+name, "cannot be read", r.allowed())
		return "", false
	}
	s, problem := r.clean(s)
	if problem != "" {
		in.p.add(in.path+name, problem, r.allowed())
	}
	return s, problem == ""
}

func (in *input) wrongKind(name string, v jsontext.Value, wanted, allowed string) {
	if v.Kind() == 'n' {
		in.p.add(in.path+name, "must not be null", allowed)
		return
	}
	in.p.add(in.path+name, "is not a "+wanted, allowed)
}

// text reads a required text.
func (in *input) text(name string, to *string, r textRule) {
	v, ok := in.take(name)
	if !ok {
		in.missing(name, r.allowed())
		return
	}
	if s, ok := in.readText(name, v, r); ok {
		*to = s
	}
}

// optText reads a text that may be null.
func (in *input) optText(name string, to **string, r textRule) {
	v, ok := in.take(name)
	switch {
	case !ok:
	case v.Kind() == 'n':
		*to = nil
	default:
		if s, ok := in.readText(name, v, r); ok {
			*to = &s
		}
	}
}

// word reads an enum value. The destination holds the default.
func (in *input) word(name string, to *string, words ...string) {
	v, ok := in.take(name)
	if !ok {
		return
	}
	allowed := strings.Join(words, ", ")
	var s string
	switch {
	case v.Kind() != '"' || json.Unmarshal(v, &s) != nil:
		in.wrongKind(name, v, "text", allowed)
	case !slices.Contains(words, s):
		in.p.add(in.path+name, "is not one of the allowed values", allowed)
	default:
		*to = s
	}
}

// flag reads a boolean. The destination holds the default.
func (in *input) flag(name string, to *bool) {
	v, ok := in.take(name)
	switch {
	case !ok:
	case v.Kind() == 't':
		*to = true
	case v.Kind() == 'f':
		*to = false
	default:
		in.wrongKind(name, v, "boolean", "true, false")
	}
}

// optional reads a value that may be null. kind is that of its JSON, wanted the kind's name.
func optional[T any](in *input, name string, to **T, kind jsontext.Kind, wanted, allowed, problem string, parse func(jsontext.Value) (T, bool)) {
	v, ok := in.take(name)
	switch {
	case !ok:
	case v.Kind() == 'n':
		*to = nil
	case v.Kind() != kind:
		in.wrongKind(name, v, wanted, allowed)
	default:
		parsed, ok := parse(v)
		if !ok {
			in.p.add(in.path+name, problem, allowed)
			return
		}
		*to = &parsed
	}
}

// optInteger reads an integer that may be null.
func (in *input) optInteger(name string, to **int64, from, until int64) {
	allowed := fmt.Sprintf("a whole number from %d to %d, or null", from, until)
	optional(in, name, to, '0', "number", allowed, "is out of range or not whole", func(v jsontext.Value) (int64, bool) {
		n, err := strconv.ParseInt(string(v), 10, 64)
		return n, err == nil && n >= from && n <= until
	})
}

// optNumber reads a positive number that may be null.
func (in *input) optNumber(name string, to **float64, most float64) {
	allowed := fmt.Sprintf("a number above 0, at most %g, or null", most)
	optional(in, name, to, '0', "number", allowed, "is out of range", func(v jsontext.Value) (float64, bool) {
		n, err := strconv.ParseFloat(string(v), 64)
		return n, err == nil && n > 0 && n <= most
	})
}

// optMoney reads an amount of money that may be null.
func (in *input) optMoney(name string, to **decimal) {
	const allowed = `money in a text, such as "120.00", from 0 to 9999999.99 with at most two decimals, or null`
	optional(in, name, to, '"', "text", allowed, "is not an amount of money that is allowed", func(v jsontext.Value) (decimal, bool) {
		var s string
		if json.Unmarshal(v, &s) != nil {
			return 0, false
		}
		return parseMoney(s)
	})
}

// parseMoney parses up to seven digits and at most two decimals.
func parseMoney(s string) (decimal, bool) {
	whole, cents, point := strings.Cut(s, ".")
	if whole == "" || len(whole) > 7 || len(cents) > 2 || point && cents == "" || strings.ContainsAny(s, "+-") {
		return 0, false
	}
	n, err := strconv.ParseInt(whole+(cents + "00")[:2], 10, 64)
	return decimal(n), err == nil
}

// objects reads a required list of objects and calls read for each.
func (in *input) objects(name string, most int, read func(item *input, i int)) {
	allowed := fmt.Sprintf("a list of at most %d objects", most)
	v, ok := in.take(name)
	if !ok {
		in.missing(name, allowed)
		return
	}
	var items []jsontext.Value
	if v.Kind() != '[' || json.Unmarshal(v, &items) != nil {
		in.wrongKind(name, v, "list", allowed)
		return
	}
	if len(items) > most {
		in.p.add(in.path+name, fmt.Sprintf("has %d entries", len(items)), allowed)
		return
	}
	for i, v := range items {
		item := &input{path: fmt.Sprintf("%s%s[%d].", in.path, name, i), p: in.p}
		if v.Kind() != '{' || json.Unmarshal(v, &item.members) != nil {
			in.p.add(strings.TrimSuffix(item.path, "."), "is not an object", "an object")
			continue
		}
		read(item, i)
		item.end()
	}
}

// object reads an object. A missing optional object is "{}".
func (in *input) object(name string, required bool) jsontext.Value {
	v, ok := in.take(name)
	switch {
	case !ok && required:
		in.p.add(in.path+name, "is required", "an object")
	case !ok:
	case v.Kind() != '{':
		in.wrongKind(name, v, "object", "an object")
	default:
		return v
	}
	return jsontext.Value("{}")
}

// parameters reads a query string.
type parameters struct {
	values url.Values
	known  []string
	p      *problems
}

func (c *connectCall) parameters() *parameters { return &parameters{values: c.query, p: &c.problems} }

// end rejects unknown parameters.
func (q *parameters) end() {
	var unknown []string
	for name := range q.values {
		if !slices.Contains(q.known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		q.p.add(name, "is not known here", strings.Join(q.known, ", "))
	}
}

// text returns a text parameter, "" if it is missing.
func (q *parameters) text(name string, most int) string {
	q.known = append(q.known, name)
	values := q.values[name]
	allowed := fmt.Sprintf("1 to %d characters, once", most)
	switch {
	case len(values) == 0:
		return ""
	case len(values) > 1:
		q.p.add(name, "is given more than once", allowed)
		return ""
	}
	s := values[0]
	if n := utf8.RuneCountInString(s); n == 0 || n > most || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		q.p.add(name, "is empty, too long or not readable", allowed)
		return ""
	}
	return s
}

func (q *parameters) word(name string, words ...string) string {
	s := q.text(name, 100)
	if s != "" && !slices.Contains(words, s) {
		q.p.add(name, "is not one of the allowed values", strings.Join(words, ", "))
		return ""
	}
	return s
}

// integer returns a positive integer parameter, absent if it is missing or invalid.
func (q *parameters) integer(name string, absent, until int64) int64 {
	s := q.text(name, 100)
	if s == "" {
		return absent
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || n > until {
		q.p.add(name, "is not a whole number in range", fmt.Sprintf("a whole number from 1 to %d", until))
		return absent
	}
	return n
}

// instant returns a time parameter as the database stores it, "" if it is missing. Fractions of a second are rounded
// up, as stored times have none.
func (q *parameters) instant(name string) string {
	s := q.text(name, 100)
	if s == "" {
		return ""
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.Year() < 1 || t.Year() > 9998 {
		q.p.add(name, "is not an instant", "RFC 3339, such as 2026-03-05T09:30:00-05:00")
		return ""
	}
	if whole := t.Truncate(time.Second); !whole.Equal(t) {
		t = whole.Add(time.Second)
	}
	return instant(t)
}
