package upstream

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Conversion says how the data service's value of a property is converted. Null stays null.
type Conversion uint8

// The conversions: what the data service has, and what callers see.
const (
	ConvertNone      Conversion = iota
	ConvertCents                // an integer, in hundredths: 1250 is "12.50", or 12.50 where the definition has a number
	ConvertUnix                 // an integer, in seconds since 1970: an instant, or a date where the definition has that format
	ConvertUnixMilli            // the same in milliseconds
	ConvertString               // a number: its text
	ConvertNumber               // the text of a number: the number
	ConvertURL                  // a URL: the path of the operation under which callers find it, or null if there is none
)

// Conversions returns the names of the conversions in a definition.
func Conversions() []string {
	return []string{ConvertCents: "cents", ConvertUnix: "unix", ConvertUnixMilli: "unix-ms", ConvertString: "string", ConvertNumber: "number", ConvertURL: "url"}
}

// raw returns a value that is not in the result, as it was sent or converted.
func (k *checker) raw(v span) []byte {
	if v.start < len(k.body) {
		return k.body[v.start:v.end]
	}
	return k.converted[v.start-len(k.body) : v.end-len(k.body)]
}

// convertedFrom returns the span of k.converted from start on. Positions beyond the end of the body mean k.converted.
func (k *checker) convertedFrom(start int) span {
	return span{start: len(k.body) + start, end: len(k.body) + len(k.converted)}
}

// convert appends the value of a property to k.converted. raw is the data service's. If it cannot be converted, convert returns what was
// expected.
func (k *checker) convert(p *Property, raw []byte) (expected string) {
	text := raw
	if raw[0] == '"' {
		text = k.unquote(raw)
	}
	f, s, isText, isNumber := p.From, p.Schema, raw[0] == '"', typeOf(raw[0]) == TypeInteger|TypeNumber
	switch {
	case f.Values != nil:
		value, known := f.Values[string(text)]
		if !known || raw[0] == '{' || raw[0] == '[' {
			return "one of the values that the definition has a value for"
		}
		k.converted = append(k.converted, value...)
	case f.Pages != "", f.As == ConvertCents, f.As == ConvertUnix, f.As == ConvertUnixMilli:
		if number, ok := parseInteger(text); ok {
			return k.convertInteger(f, s, number)
		}
		return "an integer of at most 18 digits"
	case f.As == ConvertString && isText, f.As == ConvertNumber && isNumber:
		k.converted = append(k.converted, raw...)
	case f.As == ConvertString && isNumber:
		k.converted = append(append(append(k.converted, '"'), raw...), '"')
	case f.As == ConvertNumber && isText && IsNumber(string(text)):
		k.converted = append(k.converted, text...)
	case f.As == ConvertURL && isText:
		if path := k.callerPath(string(text)); path == "" {
			k.converted = append(k.converted, "null"...)
		} else {
			k.converted, _ = jsontext.AppendQuote(k.converted, path) // it is ASCII
		}
	case f.As == ConvertURL:
		return "a URL in a string"
	default:
		return "a number, or the text of one"
	}
	return ""
}

// The seconds since 1970 at the beginning of the year 0 and at the end of the year 9999.
const minUnix, maxUnix = -62167219200, 253402300799

// convertInteger appends the value that an integer of the data service becomes.
func (k *checker) convertInteger(f *Source, s *Schema, number int64) (expected string) {
	out := k.converted
	switch {
	case f.Pages != "":
		size := int64(max(k.queryNumber(f.Pages), 1))
		out = strconv.AppendInt(out, number/size+int64(b2i(number%size > 0)), 10)
	case f.As == ConvertCents:
		quoted := s.Types&TypeString != 0
		if quoted {
			out = append(out, '"')
		}
		if number < 0 {
			out, number = append(out, '-'), -number
		}
		out = append(strconv.AppendInt(out, number/100, 10), '.', byte('0'+number/10%10), byte('0'+number%10))
		if quoted {
			out = append(out, '"')
		}
	default:
		at, least, most := time.Unix(number, 0), int64(minUnix), int64(maxUnix)
		if f.As == ConvertUnixMilli {
			at, least, most = time.UnixMilli(number), least*1000, most*1000+999
		}
		if number < least || number > most {
			return "an instant between the years 0 and 9999"
		}
		layout := time.RFC3339Nano
		if s.Format == FormatDate {
			layout = time.DateOnly
		}
		out = append(at.UTC().AppendFormat(append(out, '"'), layout), '"')
	}
	k.converted = out
	return ""
}

// convertBack appends the data service's value of a property of a body to dst. raw is valid JSON, and valid for the property. If it cannot be
// converted, convertBack returns what was expected.
func (p *Property) convertBack(dst, raw []byte) (out []byte, expected string) {
	f := p.From
	if f == nil || !f.converts() || raw[0] == 'n' {
		return append(dst, raw...), ""
	}
	text := string(raw)
	if raw[0] == '"' {
		unquoted, _ := jsontext.AppendUnquote(nil, raw) // it is valid
		text = string(unquoted)
	}
	switch f.As {
	case ConvertCents:
		whole, fraction, _ := strings.Cut(text, ".")
		fraction = strings.TrimRight(fraction, "0")
		cents, err := strconv.ParseInt(whole+(fraction + "00")[:max(2, len(fraction))], 10, 64)
		if err != nil || len(fraction) > 2 || !isDigits(strings.TrimPrefix(whole, "-")) || cents <= -1e18 || cents >= 1e18 {
			return dst, "a decimal number with at most two decimals and 16 digits before them"
		}
		return strconv.AppendInt(dst, cents, 10), ""
	case ConvertUnix, ConvertUnixMilli:
		layout, unit := time.RFC3339Nano, time.Second
		if p.Schema.Format == FormatDate {
			layout = time.DateOnly
		}
		if f.As == ConvertUnixMilli {
			unit = time.Millisecond
		}
		at, err := time.Parse(layout, strings.ToUpper(text))
		switch {
		case err != nil || at.Unix() < minUnix || at.Unix() > maxUnix || at.Nanosecond()%int(unit) != 0:
			return dst, "an instant between the years 0 and 9999 in UTC, without a leap second or parts of a " + map[bool]string{true: "second", false: "millisecond"}[unit == time.Second]
		case f.As == ConvertUnixMilli:
			return strconv.AppendInt(dst, at.UnixMilli(), 10), ""
		default:
			return strconv.AppendInt(dst, at.Unix(), 10), ""
		}
	case ConvertString:
		if !IsNumber(text) || !isModerate([]byte(text)) {
			return dst, "the text of a number"
		}
		return append(dst, text...), ""
	case ConvertNumber:
		if !IsNumber(text) { // a tenant may be any string, whatever type is documented
			return dst, "a number"
		}
		return append(append(append(dst, '"'), text...), '"'), ""
	default:
		value, known := f.ReverseValues[text]
		if !known && isNumber(string(raw)) { // such as 1.0 for 1
			for published, sent := range f.ReverseValues {
				if IsNumber(published) && compareNumbers(raw, []byte(published)) == 0 {
					value, known = sent, true
				}
			}
		}
		if !known {
			return dst, "one of the values that the data service has"
		}
		return append(dst, value...), ""
	}
}

// callerPath returns the path under which callers find a URL of the data service, or "". Which host the URL names does not matter, because the
// path leads to the gateway.
func (k *checker) callerPath(target string) string {
	if k.op.api == nil {
		return ""
	}
	own := k.op.api.callerPath(target, k.business, func() bool { return k.countWork(len(target)) == nil })
	if own == "" {
		return ""
	}
	return k.contract.BasePath + own
}

// callerPath returns the path of the operation that is mapped to a URL of the data service, or the URL's own path and documented parameters if
// an operation has it. It returns "" if there is none, or if mayLookUp does not allow another look-up.
func (a *API) callerPath(target, business string, mayLookUp func() bool) string {
	u, err := url.Parse(target)
	if err != nil || u.Opaque != "" || u.Fragment != "" {
		return ""
	}
	path, mapped := u.EscapedPath(), ""
	for _, op := range a.mapped {
		if !strings.HasPrefix(path, op.Mapping.Path[0].Literal) {
			continue
		}
		if !mayLookUp() {
			return ""
		}
		if own := op.Mapping.callerPath(op, path, business); own != "" && (u.RawQuery == "" || op.Method == http.MethodGet && op.Mapping.Query == nil && op.documents(u.RawQuery, business, Query{}, false)) {
			mapped = own + "?" + u.RawQuery
			break
		}
	}
	if own := a.cleanTarget(cmp.Or(mapped, u.RequestURI()), business); isPrintable(own, maxForwarded, false) {
		return own
	}
	return ""
}

// callerPath returns the operation's path for a path of the data service, or "" if that does not match or names another business.
func (m *Mapping) callerPath(op *Operation, path, business string) string {
	found := m.reverse.FindStringSubmatch(path)
	if found == nil {
		return ""
	}
	var values [MaxPathParams]string
	for i, p := range m.placeholders {
		value := found[i+1]
		if p.Business && value != business || p.PathParam > 0 && (!IsSegment(value) || values[p.PathParam-1] != "" && values[p.PathParam-1] != value) {
			return ""
		}
		if p.PathParam > 0 {
			values[p.PathParam-1] = value
		}
	}
	own := op.Path
	for i, p := range op.PathParams {
		if values[i] == "" {
			return ""
		}
		own = strings.Replace(own, "{"+p.Name+"}", values[i], 1)
	}
	return own
}

// compileReverse compiles the regular expression that finds the values of the placeholders in a path of the data service.
func (m *Mapping) compileReverse() {
	var pattern strings.Builder
	for _, p := range m.Path {
		if p.Business || p.PathParam > 0 {
			pattern.WriteString("([^/]+)")
			m.placeholders = append(m.placeholders, p)
		} else {
			pattern.WriteString(regexp.QuoteMeta(p.Literal))
		}
	}
	m.reverse = regexp.MustCompile("^" + pattern.String() + "$")
}
