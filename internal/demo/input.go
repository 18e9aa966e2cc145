package demo

import (
	"fmt"
	"maps"
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
	Field   string  `json:"field"`   // the path of the member, or the name of the parameter or header
	Problem string  `json:"problem"` // completes a sentence that begins with the field
	Allowed *string `json:"allowed"` // what is accepted
}

func newDetail(field, problem, allowed string) detail {
	d := detail{Field: field, Problem: problem}
	if allowed != "" {
		d.Allowed = &allowed
	}
	return d
}

// problems collects everything that is wrong with a request.
type problems struct{ all []detail }

// Limits of an error response. A field's name comes from the request and may have any length.
const (
	maxDetails = 30
	maxField   = 100
	maxProblem = 500
	maxID      = 100
)

func (p *problems) add(field, problem, allowed string) {
	if len(p.all) < maxDetails {
		p.all = append(p.all, newDetail(shorten(field, maxField), shorten(problem, maxProblem), shorten(allowed, maxProblem)))
	}
}

// unknown adds the given names that are not known.
func (p *problems) unknown(path string, given, known []string) {
	slices.Sort(given)
	for _, name := range given {
		if !slices.Contains(known, name) {
			p.add(path+name, "is not known here", strings.Join(known, ", "))
		}
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
	return newError(http.StatusUnprocessableEntity, "INVALID", "The request has fields that cannot be accepted.", p.all...)
}

func conflict(message, field, problem, allowed string) error {
	return newError(http.StatusConflict, "CONFLICT", message, newDetail(field, problem, allowed))
}

// values are the members of an input as they are stored.
type values map[string]any

func (v values) text(name string) string {
	s, _ := v[name].(string)
	return s
}

func (v values) items(name string) []values {
	items, _ := v[name].([]values)
	return items
}

// field describes a member of an input. One that is not required may be missing.
type field struct {
	name string
	form
	required bool
	nullable bool
	absent   bool // if it is missing, it is not among the values
	initial  any  // its value if it is missing, unless absent is set
}

// form is what a value has to be.
type form struct {
	kind    string // of JSON; "": any
	allowed string
	parse   func(jsontext.Value) (value any, problem string)
	each    func(p *problems, path string, item jsontext.Value) values // of a list, reads its items
}

// check returns the value to store, or what is wrong with it.
func (m *field) check(v jsontext.Value) (value any, problem string) {
	kinds := map[jsontext.Kind]string{'"': "text", '0': "number", 't': "boolean", 'f': "boolean", '[': "list", '{': "object"}
	switch {
	case m.kind == "":
		return m.parse(v)
	case v.Kind() == 'n' && m.nullable:
		return nil, ""
	case v.Kind() == 'n':
		return nil, "must not be null"
	case kinds[v.Kind()] != m.kind:
		return nil, "is not a " + m.kind
	}
	return m.parse(v)
}

// schema describes a JSON object.
type schema []field

// read returns the members of an object that are valid, and the initial values of those that are missing. In a partial
// object nothing is required, but that there is something to change.
func (s schema) read(p *problems, path string, object jsontext.Value, partial bool) values {
	var given map[string]jsontext.Value
	if object.Kind() != '{' || json.Unmarshal(object, &given) != nil {
		p.add(strings.TrimSuffix(path, "."), "is not an object", "an object")
		return values{}
	}
	read, known := values{}, make([]string, len(s))
	for i := range s {
		m := &s[i]
		known[i] = m.name
		v, ok := given[m.name]
		switch {
		case !ok && partial:
			continue
		case !ok && m.required:
			p.add(path+m.name, "is required", m.allowed)
			continue
		case !ok:
			if !m.absent {
				read[m.name] = m.initial
			}
			continue
		}
		value, problem := m.check(v)
		if problem != "" {
			p.add(path+m.name, problem, m.allowed)
			continue
		}
		if list, ok := value.([]jsontext.Value); ok {
			items := []values{}
			for i, item := range list {
				items = append(items, m.each(p, fmt.Sprintf("%s%s[%d].", path, m.name, i), item))
			}
			value = items
		}
		read[m.name] = value
	}
	p.unknown(path, slices.Collect(maps.Keys(given)), known)
	if partial && len(given) == 0 {
		p.add("body", "has nothing to change", strings.Join(known, ", "))
	}
	return read
}

// text is a text of 1 to most characters without surrounding white space, on one line unless lines is set.
func text(most int, lines bool, allowed string, valid func(string) bool) form {
	control := func(c rune) bool {
		return unicode.IsControl(c) && (!lines || c != '\n' && c != '\t') || c == '\u2028' || c == '\u2029'
	}
	return form{kind: "text", allowed: allowed, parse: func(v jsontext.Value) (any, string) {
		s := strings.TrimSpace(unquote(v))
		if lines {
			s = strings.ReplaceAll(s, "\r\n", "\n")
		}
		switch n := utf8.RuneCountInString(s); {
		case n == 0:
			return nil, "must not be empty"
		case n > most:
			return nil, fmt.Sprintf("is %d characters long", n)
		case strings.ContainsFunc(s, control):
			return nil, "has control characters or line breaks that are not allowed"
		case valid != nil && !valid(s):
			return nil, "is not of the right form"
		}
		return s, ""
	}}
}

// unquote returns the text of a JSON string that is known to be valid.
func unquote(v jsontext.Value) string {
	b, _ := jsontext.AppendUnquote(nil, v)
	return string(b)
}

func line(n int) form {
	return text(n, false, fmt.Sprintf("1 to %d characters on one line", n), nil)
}

func lines(n int) form {
	return text(n, true, fmt.Sprintf("1 to %d characters, several lines", n), nil)
}

func email() form {
	return text(254, false, "an e-mail address of at most 254 characters", func(s string) bool {
		a, err := mail.ParseAddress(s)
		return err == nil && a.Name == "" && a.Address == s && !strings.ContainsAny(s, " <>\"")
	})
}

func pattern(expression, allowed string) form {
	return text(100, false, allowed, regexp.MustCompile(`^(?:`+expression+`)$`).MatchString)
}

func webAddress() form {
	return text(2000, false, "an https:// or http:// address of at most 2000 characters", func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil &&
			!strings.ContainsFunc(s, unicode.IsSpace)
	})
}

func timeZone() form {
	return text(60, false, "an IANA time zone, such as Europe/London", func(s string) bool {
		_, err := time.LoadLocation(s)
		return err == nil && s != "Local"
	})
}

func languageTag() form {
	return text(35, false, "a BCP 47 language tag, such as en-GB", func(s string) bool {
		_, err := language.Parse(s)
		return err == nil && !strings.Contains(s, "_")
	})
}

// one is a form that has only one problem.
func one(kind, allowed, problem string, parse func(jsontext.Value) (value any, ok bool)) form {
	return form{kind: kind, allowed: allowed, parse: func(v jsontext.Value) (any, string) {
		if value, ok := parse(v); ok {
			return value, ""
		}
		return nil, problem
	}}
}

func word(words ...string) form {
	return one("text", strings.Join(words, ", "), "is not one of the allowed values", func(v jsontext.Value) (any, bool) {
		return unquote(v), slices.Contains(words, unquote(v))
	})
}

// wordList is a list of words, separated by commas. It is stored as a JSON array in the order of the words.
func wordList(words ...string) form {
	allowed := "one or more, separated by commas, of " + strings.Join(words, ", ")
	return one("text", allowed, "has a value that is not allowed", func(v jsontext.Value) (any, bool) {
		given := strings.Split(unquote(v), ",")
		unknown := slices.ContainsFunc(given, func(w string) bool { return !slices.Contains(words, w) })
		slices.Sort(given)
		list, err := json.Marshal(slices.Compact(given))
		return string(list), err == nil && !unknown
	})
}

func flag() form {
	return one("boolean", "true, false", "", func(v jsontext.Value) (any, bool) { return v.Kind() == 't', true })
}

func object() form {
	return one("object", "an object", "", func(v jsontext.Value) (any, bool) { return compact(v), true })
}

func integer(from, until int64) form {
	allowed := fmt.Sprintf("a whole number from %d to %d, or null", from, until)
	return one("number", allowed, "is out of range or not whole", func(v jsontext.Value) (any, bool) {
		n, err := strconv.ParseInt(string(v), 10, 64)
		return n, err == nil && n >= from && n <= until
	})
}

func positive(most float64) form {
	allowed := fmt.Sprintf("a number above 0, at most %g, or null", most)
	return one("number", allowed, "is out of range", func(v jsontext.Value) (any, bool) {
		n, err := strconv.ParseFloat(string(v), 64)
		return n, err == nil && n > 0 && n <= most
	})
}

// money is an amount with up to seven digits and at most two decimals. It is stored in hundredths.
func money() form {
	const allowed = `money in a text, such as "120.00", from 0 to 9999999.99 with at most two decimals, or null`
	valid := regexp.MustCompile(`^\d{1,7}(\.\d{1,2})?$`)
	return one("text", allowed, "is not an amount of money that is allowed", func(v jsontext.Value) (any, bool) {
		whole, cents, _ := strings.Cut(unquote(v), ".")
		n, err := strconv.ParseInt(whole+(cents + "00")[:2], 10, 64)
		return n, err == nil && valid.MatchString(unquote(v))
	})
}

// compact removes white space from valid JSON.
func compact(v jsontext.Value) string {
	v = v.Clone()
	_ = v.Compact()
	return string(v)
}

// listOf is a list of objects. check finds what is wrong with an object as a whole.
func listOf(least, most int, s schema, check func(p *problems, path string, item values)) form {
	return form{
		kind: "list", allowed: fmt.Sprintf("a list of %d to %d objects", least, most),
		parse: func(v jsontext.Value) (any, string) {
			var items []jsontext.Value
			if err := json.Unmarshal(v, &items); err != nil || len(items) < least || len(items) > most {
				return nil, fmt.Sprintf("has %d entries", len(items))
			}
			return items, ""
		},
		each: func(p *problems, path string, item jsontext.Value) values {
			read := s.read(p, path, item, false)
			check(p, path, read)
			return read
		},
	}
}

// integerText is a positive integer in a text, as in a query string.
func integerText(most int64) form {
	return one("text", fmt.Sprintf("a whole number from 1 to %d", most), "is not a whole number in range", func(v jsontext.Value) (any, bool) {
		n, err := strconv.ParseInt(unquote(v), 10, 64)
		return n, err == nil && n >= 1 && n <= most
	})
}

// moment is a time. It is stored as instant formats it. Fractions of a second are rounded up, as stored times have none.
func moment() form {
	return one("text", "RFC 3339, such as 2026-03-05T09:30:00-05:00", "is not an instant", func(v jsontext.Value) (any, bool) {
		t, err := time.Parse(time.RFC3339, unquote(v))
		return instant(t.Add(time.Second - 1).Truncate(time.Second)), err == nil && t.Year() >= 1 && t.Year() <= 9998
	})
}
