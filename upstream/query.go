package upstream

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxNumbers is the maximum number of integer parameters of a query to which a response can refer.
	MaxNumbers = 8

	// MaxText is the maximum length in bytes of a decoded text in a query.
	MaxText = 1024

	// MaxParamItems is the maximum number of items of an array in a query.
	MaxParamItems = 50

	// maxIgnored is the maximum number of names in Query.Ignored, and maxIgnoredName their maximum length.
	maxIgnored, maxIgnoredName = 8, 64
)

// NamesMethod reports whether services may take a parameter of a query for the method, as WordPress's REST API (_method) and Play do.
func NamesMethod(name string) bool {
	name = strings.ToLower(strings.TrimLeft(name, " "))
	if i := strings.LastIndexByte(name, '['); i > 0 { // a list
		name = name[:i]
	}
	return strings.Trim(name, "._[ ") == "method" && name != "method" || strings.HasPrefix(name, "x-http-method") // as PHP reads it, . is _
}

// Param is a parameter of a query or a path, or a header.
type Param struct {
	Name     string
	Schema   *Schema // of the value, or of an array's items: a string, an integer, a number or a boolean
	Required bool
	MaxBytes int      // of a decoded value
	Array    bool     // the value is a list; only in a query
	Exploded bool     // of an array: each item is sent as name=item; otherwise, commas separate them
	MinItems int      // of an array
	MaxItems int      // of an array
	Unique   bool     // no item of an array equals another one
	Default  []string // the decoded value, or items of an array, if the parameter is not given; empty: none
	Clamp    bool     // a number outside of Min and Max is set to the nearest
	Min, Max int      // with Clamp
	Number   int      // 1 more than the index in Query.Numbers. Default: 0, none
	Business bool     // a service could take it for the business, so it must name the caller's

	Description string // for people and models

	mapped    bool   // the operation's mapping sends it, so that it does not keep its name
	encoded   string // the name and an equals sign
	byDefault string // the encoded Default
}

func (p *Param) compile() {
	p.Schema.compile()
	p.encoded = string(appendEscaped(nil, []byte(p.Name))) + "="
	for i, value := range p.Default {
		switch {
		case i == 0:
			p.byDefault = p.encoded
		case p.Exploded:
			p.byDefault += "&" + p.encoded
		default:
			p.byDefault += ","
		}
		p.byDefault += string(appendEscaped(nil, []byte(value)))
	}
}

// Query is a query returned by CleanQuery.
type Query struct {
	Raw        string          // the query for the data service, without the '?'; empty if there is no parameter
	Numbers    [MaxNumbers]int // the integers, by Param.Number
	Path       string          // the request's path
	Ignored    string          // the names of unknown parameters, for the header X-Ignored-Parameters
	pathValues []string        // values of the path's parameters
}

// CleanQuery checks the parameters of a request's path and query, and returns the query's canonical form: the operation's parameters in
// the order of the definition, with their defaults; RFC 3986 unreserved characters unencoded, and everything else as upper case %XX.
// Unknown parameters are removed, even if their encoding is invalid.
//
// The error is a *ParameterError if a parameter is one of LostParams, or if a known parameter is given twice and is not an exploded array (its name
// may be encoded), has an invalid percent-encoding, is not what its schema allows, or is text that is not UTF-8, contains a control character or is
// longer than MaxBytes. '+' is decoded as a space; ';' is an ordinary character. Empty text of an optional parameter means absent.
//
// CleanQuery is idempotent. It runs in linear time. A query that is canonical already is not copied.
func (op *Operation) CleanQuery(m Match) (Query, error) {
	q := Query{Path: op.Path}
	if len(op.PathParams) > 0 {
		var err error
		if q, err = op.cleanPath(m); err != nil {
			return Query{}, err
		}
	}
	var values [8]string // of the parameters; on the stack for most operations
	var times [8]int
	given, count := values[:], times[:]
	if len(op.Params) > len(values) {
		given, count = make([]string, len(op.Params)), make([]int, len(op.Params))
	}
	var ignored [maxIgnored]string
	unknown := 0
	for rest := m.Query; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		name, value, _ := strings.Cut(pair, "=")
		i := op.param(name)
		if i < 0 {
			for _, lost := range op.LostParams {
				if name, err := url.QueryUnescape(name); err == nil && (name == lost || strings.HasPrefix(name, lost+"[")) {
					return Query{}, badParam(lost, "is not forwarded: without it, the operation would do something else")
				}
			}
			if name, ok := decodeHarmless(name); ok && unknown < maxIgnored && !slices.Contains(ignored[:unknown], name) {
				ignored[unknown] = name
				unknown++
			}
			continue
		}
		if count[i]++; count[i] == 1 {
			given[i] = value
		} else if !op.Params[i].Exploded {
			return Query{}, badParam(op.Params[i].Name, "must be given only once")
		}
	}
	q.Ignored = strings.Join(ignored[:unknown], ", ")

	// Large enough for most queries, so that they stay on the stack.
	var room [1024]byte
	clean := room[:0]
	for i := range op.Params {
		p := &op.Params[i]
		var err error
		switch {
		case count[i] > 0 && p.Exploded:
			clean, err = p.cleanArray(clean, op, i, m.Query)
		case count[i] > 0 && p.Array:
			clean, err = p.cleanArray(clean, op, i, given[i])
		default:
			clean, err = p.clean(clean, &q, given[i], count[i] > 0)
		}
		if err != nil {
			return Query{}, err
		}
	}
	if q.Raw = m.Query; string(clean) != m.Query {
		q.Raw = string(clean)
	}
	return q, nil
}

// CheckBusiness checks that parameters that name a business name the authenticated one. The error is a *ParameterError.
func (op *Operation) CheckBusiness(q Query, business string) error {
	for i := range op.PathParams {
		if p := &op.PathParams[i]; p.Business && q.pathValues[i] != business {
			return badParam(p.Name, notOwnBusiness)
		}
	}
	for i := range op.Params {
		p := &op.Params[i]
		if !p.Business {
			continue
		}
		for pair := range strings.SplitSeq(q.Raw, "&") {
			if strings.HasPrefix(pair, p.encoded) && pair != string(appendEscaped([]byte(p.encoded), []byte(business))) {
				return badParam(p.Name, notOwnBusiness)
			}
		}
	}
	return nil
}

// CheckHeaders checks the request headers that the operation forwards. The error is a *ParameterError if a required one is missing, or if one is
// given twice, has more than 256 bytes or others than visible ASCII and spaces, or is not what its schema allows. It is one, too, if a write has
// If-Match or another condition that the operation does not forward, or a POST or PATCH has an Idempotency-Key: without it, the service would write
// what the caller did not want, or twice. It removes the If-None-Match of a read if that cannot be forwarded.
func (op *Operation) CheckHeaders(h http.Header) error {
	for _, name := range [...]string{"If-Match", "If-None-Match", "If-Unmodified-Since", "Idempotency-Key"} {
		if name == "Idempotency-Key" && op.Method != http.MethodPost && op.Method != http.MethodPatch { // repeating others does no harm
			continue
		}
		if !op.Read && h[name] != nil && !op.Forwards(name) {
			return badParam(name, "is not supported by this operation: leave it out")
		}
	}
	for i := range op.Headers {
		p := &op.Headers[i]
		values := h[p.Name]
		isSent, why := len(values) == 1 && values[0] != "" && isPrintable(values[0], maxForwarded, false), ""
		if isSent {
			why = p.Schema.invalidReason([]byte(values[0]))
		}
		switch {
		case len(values) == 0 && !p.Required:
			continue
		case (!isSent || why != "") && !p.Required && op.Read && p.Name == "If-None-Match": // a cache may send many tags, and take the whole response
			delete(h, p.Name)
			continue
		case len(values) == 0:
			return badParam(p.Name, "is required")
		case len(values) > 1:
			return badParam(p.Name, "must be given only once")
		case !isSent:
			return badParam(p.Name, "must be 1 to "+strconv.Itoa(maxForwarded)+" visible ASCII characters and spaces")
		}
		if why != "" {
			return badParam(p.Name, why)
		}
	}
	return nil
}

// Forwards reports whether a request header is documented and thus forwarded. The name must be canonical.
func (op *Operation) Forwards(name string) bool {
	return slices.ContainsFunc(op.Headers, func(p Param) bool { return p.Name == name })
}

// cleanPath checks the parameters of a path, and returns a query with the path.
func (op *Operation) cleanPath(m Match) (Query, error) {
	var q Query
	path, n := make([]byte, 0, 256), 0
	for rest := op.Path; rest != ""; n++ {
		literal, after, ok := strings.Cut(rest, "{")
		path = append(path, literal...)
		if !ok {
			break
		}
		_, rest, _ = strings.Cut(after, "}")
		p := &op.PathParams[n]
		if why := p.Schema.invalidReason([]byte(m.values[n])); why != "" {
			return q, badParam(p.Name, why)
		}
		path = append(path, url.PathEscape(m.values[n])...)
	}
	q.Path, q.pathValues = string(path), slices.Clone(m.values[:len(op.PathParams)])
	return q, nil
}

// Fill is CleanQuery and CheckBusiness for a call that the gateway makes itself: path has the values of the path's parameters, and query is encoded. The values may
// have the characters that a request target may have there, and : and @. Others are refused, because a proxy or the service may decode the
// path before it matches it, and take %2F or %3F for the end of a segment or of the path. Neither may they make the path of another operation.
func (op *Operation) Fill(path []string, query, business string) (Query, error) {
	m := Match{Query: query}
	for i, value := range path {
		if !isArgument(value) {
			return Query{}, badParam(op.PathParams[i].Name, "must be 1 to 128 letters, digits and -._~:@, and neither . nor ..")
		}
		m.values[i] = value
	}
	q, err := op.CleanQuery(m)
	if err == nil {
		err = op.CheckBusiness(q, business)
	}
	if err != nil || len(path) == 0 {
		return q, err
	}
	p := op.api.find(strings.TrimPrefix(q.Path, op.api.base), &m.values, isArgument)
	if p != nil && (p.Template != strings.TrimPrefix(op.Path, op.api.base) || op.api.leadsElsewhere(p, q.Path, &m.values)) {
		return Query{}, badParam(op.PathParams[len(path)-1].Name, "leads to another operation")
	}
	return q, nil
}

// isArgument reports whether s can be the value of a parameter in a path that the gateway makes itself.
func isArgument(s string) bool { return IsSegment(strings.NewReplacer(":", "_", "@", "_").Replace(s)) }

func badParam(name, reason string) error {
	return &ParameterError{Parameter: name, Reason: name + " " + reason}
}

// param returns the index of the parameter with an encoded name, or -1.
func (op *Operation) param(encoded string) int {
	name, err := url.QueryUnescape(encoded)
	if err != nil {
		return -1
	}
	for i := range op.Params {
		if op.Params[i].Name == name {
			return i
		}
	}
	return -1
}

// decodeHarmless decodes the name of an unknown parameter, and reports whether it is safe in a header and in a log.
func decodeHarmless(encoded string) (name string, ok bool) {
	name, err := url.QueryUnescape(encoded)
	ok = err == nil && name != "" && len(name) <= maxIgnoredName
	for i := 0; ok && i < len(name); i++ {
		ok = isUnreserved(name[i]) || strings.IndexByte("[]$:@", name[i]) >= 0
	}
	return name, ok
}

// clean appends the parameter with its value, or with the default.
func (p *Param) clean(dst []byte, q *Query, value string, given bool) ([]byte, error) {
	var room [MaxText]byte
	var text []byte
	if given {
		var err error
		if text, err = p.decode(room[:0], value); err != nil {
			return nil, err
		}
	}
	optional := len(text) == 0 && !p.Required && p.Schema.Types&TypeString != 0
	switch {
	case !given && p.Required:
		return nil, badParam(p.Name, "is required")
	case (!given || optional) && p.byDefault == "":
		return dst, nil
	case !given || optional:
		if len(dst) > 0 {
			dst = append(dst, '&')
		}
		if p.Number > 0 {
			q.Numbers[p.Number-1], _ = strconv.Atoi(p.Default[0])
		}
		return append(dst, p.byDefault...), nil
	case p.Clamp:
		n, err := p.clampInteger(string(text))
		if err != nil {
			return nil, err
		}
		if p.Number > 0 {
			q.Numbers[p.Number-1] = n
		}
		return strconv.AppendInt(p.appendName(dst), int64(n), 10), nil
	}
	if why := p.Schema.invalidReason(text); why != "" {
		return nil, badParam(p.Name, why)
	}
	if p.Number > 0 {
		q.Numbers[p.Number-1], _ = strconv.Atoi(string(text))
	}
	return appendEscaped(p.appendName(dst), text), nil
}

// cleanArray appends an array. value has its items, separated by commas, which many programs encode; if it is exploded, value is the whole query, in
// which each item is a pair.
func (p *Param) cleanArray(dst []byte, op *Operation, index int, value string) ([]byte, error) {
	separator := "&"
	if !p.Exploded {
		if value == "" && !p.Required {
			return p.clean(dst, nil, "", false)
		}
		separator = ","
		value = strings.ReplaceAll(strings.ReplaceAll(value, "%2C", ","), "%2c", ",") // most services decode the list before they split it
	}
	var room [MaxText]byte
	var seen []string // with Unique
	var item string
	n := 0
	for rest, more := value, true; more; {
		item, rest, more = strings.Cut(rest, separator)
		if p.Exploded {
			var name string
			if name, item, _ = strings.Cut(item, "="); op.param(name) != index {
				continue
			}
		}
		switch {
		case n == p.MaxItems:
			return nil, badParam(p.Name, "must have at most "+strconv.Itoa(p.MaxItems)+" values")
		case n == 0 || p.Exploded:
			dst = p.appendName(dst)
		default:
			dst = append(dst, ',')
		}
		text, err := p.decode(room[:0], item)
		if err != nil {
			return nil, err
		}
		if why := p.Schema.invalidReason(text); why != "" {
			return nil, badParam(p.Name, why)
		}
		if p.Unique {
			key := string(text)
			if p.Schema.Types&TypeString == 0 && IsNumber(key) { // 1.0 is 1
				key = string(parseNumber(text).append(nil))
			}
			if slices.Contains(seen, key) {
				return nil, badParam(p.Name, "must not have the same value twice")
			}
			seen = append(seen, key)
		}
		dst = appendEscaped(dst, text)
		n++
	}
	if n < p.MinItems {
		return nil, badParam(p.Name, "must have at least "+strconv.Itoa(p.MinItems)+" values")
	}
	return dst, nil
}

// clampInteger parses `-?[0-9]+` and clamps it to the bounds of the parameter.
func (p *Param) clampInteger(text string) (int, error) {
	digits, negative := strings.CutPrefix(text, "-")
	if !isDigits(digits) {
		return 0, badParam(p.Name, "must be a whole number")
	}
	n, _ := strconv.Atoi(digits) // the largest int if the number is even larger
	if negative {
		n = -n
	}
	return min(max(n, p.Min), p.Max), nil
}

// isOtherValue reports whether a text is one of the possible numbers or booleans of a schema that also has texts.
func (s *Schema) isOtherValue(text []byte) bool {
	if IsNumber(string(text)) {
		return (s.Types&TypeNumber != 0 || s.Types&TypeInteger != 0 && isInteger(text)) && s.Rules.hasNumber(text)
	}
	return s.Types&TypeBoolean != 0 && (string(text) == "true" || string(text) == "false") && s.Rules.allowsLiteral(text)
}

// InvalidReason returns why a decoded text cannot be the value of a parameter, or "".
func (s *Schema) InvalidReason(text string) string { return s.invalidReason([]byte(text)) }

// invalidReason returns why a text cannot be the value of a parameter, or "".
func (s *Schema) invalidReason(b []byte) string {
	why := "must be "
	switch {
	case s.Types&TypeString != 0:
		if !s.Format.valid(b) {
			if s.Format.valid(bytes.ReplaceAll(b, []byte(" "), []byte("+"))) {
				return why + s.expected() + ", with + encoded as %2B"
			}
			return why + s.expected()
		}
		why = ""
		if s.Rules != nil {
			why = s.Rules.checkText(b)
			if why == "" && s.Types&TypeInteger != 0 && s.Rules.Enum == nil && IsNumber(string(b)) { // a service may take it for a number
				why = s.Rules.checkNumber(b)
			} else if why != "" && s.Rules.Enum != nil && s.isOtherValue(b) {
				why = ""
			}
		}
	case s.Types&TypeBoolean != 0 && (string(b) == "true" || string(b) == "false"):
		if why = ""; s.Rules != nil && !s.Rules.allowsLiteral(b) {
			why = "is not one of the possible values"
		}
	case s.Types&TypeBoolean != 0 && s.Types&(TypeInteger|TypeNumber) == 0:
		return why + "true or false"
	case s.Types&TypeNumber != 0 && (len(b) == 0 || typeOf(b[0]) != TypeInteger|TypeNumber || literalLength(b) < len(b)):
		return why + "a number"
	case s.Types&TypeNumber != 0 && !isModerate(b):
		return why + "one of the " + moderate
	case s.Types&TypeNumber == 0 && !isInteger(b):
		return why + "a whole number"
	case s.Types&TypeNumber == 0 && literalLength(b) < len(b): // some services would read it as octal
		return why + "a whole number without leading zeros"
	default:
		why = ""
		if s.Rules != nil {
			why = s.Rules.checkNumber(b)
		}
	}
	return why
}

// decode appends the decoded value to buf.
func (p *Param) decode(buf []byte, value string) ([]byte, error) {
	most := p.MaxBytes
	if p.Clamp {
		most = len(value) // a number of any length is clamped to a bound
	}
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch c {
		case '+':
			c = ' '
		case '%':
			n, err := strconv.ParseUint(value[i+1:min(i+3, len(value))], 16, 8)
			if i+2 >= len(value) || err != nil {
				return nil, badParam(p.Name, "contains invalid percent-encoding")
			}
			c, i = byte(n), i+2
		}
		if len(buf) == most {
			return nil, badParam(p.Name, "must be at most "+strconv.Itoa(p.MaxBytes)+" bytes long")
		}
		buf = append(buf, c)
	}
	switch {
	case p.Clamp: // clampInteger accepts nothing but digits
		return buf, nil
	case !utf8.Valid(buf):
		return nil, badParam(p.Name, "must be valid UTF-8")
	case bytes.ContainsFunc(buf, unicode.IsControl):
		return nil, badParam(p.Name, "must not contain control characters")
	default:
		return buf, nil
	}
}

// appendName starts the next parameter: "&name=".
func (p *Param) appendName(dst []byte) []byte {
	if len(dst) > 0 {
		dst = append(dst, '&')
	}
	return append(dst, p.encoded...)
}

func isUnreserved(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '-' || c == '.' || c == '_' || c == '~'
}

// appendEscaped percent-encodes everything except RFC 3986's unreserved characters. A space becomes %20, because not all parsers
// decode '+'.
func appendEscaped(dst, text []byte) []byte {
	const hex = "0123456789ABCDEF"
	for _, c := range text {
		if isUnreserved(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		}
	}
	return dst
}
