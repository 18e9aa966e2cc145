package upstream

import (
	"bytes"
	"cmp"
	"strconv"
)

// This file checks the formats of scalar values: of decoded JSON strings and of JSON numbers.

// maxIntegerDigits keeps integers within 64 bits.
const maxIntegerDigits = 18

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// parseInteger returns the value of a JSON number, if it matches -?[0-9]{1,18}.
func parseInteger(s []byte) (n int64, ok bool) {
	negative := len(s) > 0 && s[0] == '-'
	if negative {
		s = s[1:]
	}
	for _, c := range s {
		if !isDigit(c) {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	if negative {
		n = -n
	}
	return n, len(s) > 0 && len(s) <= maxIntegerDigits
}

func isInteger(s []byte) bool {
	_, ok := parseInteger(s)
	return ok
}

// literalLength returns the length of the number, true, false or null at the start of s (RFC 8259, sections 3 and 6).
func literalLength(s []byte) int {
	start := b2i(len(s) > 0 && s[0] == '-')
	n := countDigits(s[start:])
	if n == 0 {
		for _, word := range [...]string{"true", "false", "null"} {
			if string(s[:min(len(word), len(s))]) == word {
				return len(word)
			}
		}
		return 0
	}
	if s[start] == '0' {
		n = 1
	}
	n += start
	if n < len(s) && s[n] == '.' {
		if fraction := countDigits(s[n+1:]); fraction > 0 {
			n += 1 + fraction
		}
	}
	if n < len(s) && s[n]|0x20 == 'e' {
		sign := b2i(n+1 < len(s) && (s[n+1] == '+' || s[n+1] == '-'))
		if exponent := countDigits(s[n+1+sign:]); exponent > 0 {
			n += 1 + sign + exponent
		}
	}
	return n
}

// countDigits returns the number of decimal digits at the start of s.
func countDigits(s []byte) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

// isDecimal reports whether s matches -?[0-9]+(\.[0-9]+)?
func isDecimal(s []byte) bool {
	if len(s) > 0 && s[0] == '-' {
		s = s[1:]
	}
	whole := countDigits(s)
	if whole == 0 || whole == len(s) {
		return whole > 0
	}
	fraction := s[whole+1:]
	return s[whole] == '.' && len(fraction) > 0 && countDigits(fraction) == len(fraction)
}

// isUUID reports whether s is a UUID of any version, in either case.
func isUUID(s []byte) bool {
	if len(s) != 36 {
		return false
	}
	for i, c := range s {
		isHyphen := i == 8 || i == 13 || i == 18 || i == 23
		if isHyphen != (c == '-') || !isHyphen && !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return true
}

// parseTwoDigits parses two digits. It returns 255 if they are invalid.
func parseTwoDigits(s []byte) uint8 {
	if !isDigit(s[0]) || !isDigit(s[1]) {
		return 255
	}
	return (s[0]-'0')*10 + s[1] - '0'
}

// parseDate parses YYYY-MM-DD into a number that increases with the date.
func parseDate(s []byte) (n uint64, ok bool) {
	if len(s) != 10 || s[4] != '-' || s[7] != '-' {
		return 0, false
	}
	c, y, m, d := parseTwoDigits(s), parseTwoDigits(s[2:]), parseTwoDigits(s[5:]), parseTwoDigits(s[8:])
	if c > 99 || y > 99 || m < 1 || m > 12 || d < 1 {
		return 0, false
	}
	days := [...]uint8{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}[m-1]
	if m == 2 && y%4 == 0 && (y != 0 || c%4 == 0) { // a leap year
		days = 29
	}
	return ((uint64(c)*100+uint64(y))*12+uint64(m))*31 + uint64(d), d <= days
}

// valid reports whether a text has the format.
func (f Format) valid(text []byte) bool {
	ok := true
	switch f {
	case FormatUUID:
		ok = isUUID(text)
	case FormatDate:
		_, ok = parseDate(text)
	case FormatDateTime:
		ok = isDateTime(text)
	case FormatInstant:
		_, ok = parseInstant(text)
	case FormatTime:
		ok = isTime(text)
	case FormatTimeOfDay:
		ok = isTimeOfDay(text)
	case FormatDecimal:
		ok = isDecimal(text)
	case FormatEmail:
		ok = isEmail(text)
	case FormatURI:
		ok = isURI(text)
	}
	return ok
}

// isDateTime reports whether s is a date and a time with an offset (RFC 3339, section 5.6).
func isDateTime(s []byte) bool {
	if len(s) < len("2006-01-02T") || s[10] != 'T' && s[10] != 't' {
		return false
	}
	_, ok := parseDate(s[:10])
	return ok && isTime(s[11:])
}

// isTime reports whether s is a full-time of RFC 3339, section 5.6, with leap seconds.
func isTime(s []byte) bool {
	if len(s) < len("15:04:05Z") || s[2] != ':' || s[5] != ':' || parseTwoDigits(s) > 23 || parseTwoDigits(s[3:]) > 59 || parseTwoDigits(s[6:]) > 60 {
		return false
	}
	if s = s[8:]; s[0] == '.' {
		n := countDigits(s[1:])
		if s = s[1+n:]; n == 0 {
			return false
		}
	}
	switch len(s) {
	case 1:
		return s[0] == 'Z' || s[0] == 'z'
	case len("+01:00"):
		return (s[0] == '+' || s[0] == '-') && isTimeOfDay(s[1:])
	}
	return false
}

// isEmail reports whether s has one @, and text without spaces and control characters on both sides of it.
func isEmail(s []byte) bool {
	at := bytes.IndexByte(s, '@')
	return at > 0 && at < len(s)-1 && bytes.IndexByte(s[at+1:], '@') < 0 && !bytes.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// isURI reports whether s is a scheme, a colon and characters that RFC 3986 allows.
func isURI(s []byte) bool {
	scheme, rest, ok := bytes.Cut(s, []byte(":"))
	if !ok || len(scheme) == 0 || len(rest) == 0 || !isLetter(scheme[0]) {
		return false
	}
	for _, c := range scheme {
		if !isLetter(c) && !isDigit(c) && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	for _, c := range rest {
		if c <= ' ' || c >= 0x7f || bytes.IndexByte([]byte(`"<>\^{|}`+"`"), c) >= 0 {
			return false
		}
	}
	return true
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// compareNumbers compares two JSON numbers exactly. It returns a negative number if a is less than b, 0 if they are equal, and otherwise a
// positive number.
func compareNumbers(a, b []byte) int {
	x, y := parseNumber(a), parseNumber(b)
	if c := cmp.Compare(x.sign, y.sign); c != 0 || x.sign == 0 {
		return c
	}
	c := cmp.Compare(x.point, y.point)
	for i := 0; c == 0 && (i < len(x.whole)+len(x.fraction) || i < len(y.whole)+len(y.fraction)); i++ {
		c = cmp.Compare(x.at(i), y.at(i))
	}
	return c * x.sign
}

// decimal is a number: 0.dddd times 10 to the power of point, where the digits are those of whole and fraction and the first is not 0.
type decimal struct {
	sign, point     int
	whole, fraction []byte
}

// at returns the i-th digit.
func (d *decimal) at(i int) byte {
	switch {
	case i < len(d.whole):
		return d.whole[i]
	case i-len(d.whole) < len(d.fraction):
		return d.fraction[i-len(d.whole)]
	default:
		return '0'
	}
}

// append appends the number in a canonical form: equal numbers have the same text.
func (d decimal) append(text []byte) []byte {
	if d.sign < 0 {
		text = append(text, '-')
	}
	digits := len(d.whole) + len(d.fraction)
	for digits > 0 && d.at(digits-1) == '0' {
		digits--
	}
	for i := range digits {
		text = append(text, d.at(i))
	}
	return strconv.AppendInt(append(text, 'e'), int64(d.point), 10)
}

// parseNumber parses a JSON number. It does not allocate, however large the exponent.
func parseNumber(s []byte) (d decimal) {
	if d.sign = 1; s[0] == '-' {
		d.sign, s = -1, s[1:]
	}
	mantissa, exponent := s, []byte(nil)
	if i := bytes.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent = s[:i], s[i+1:]
	}
	d.whole, d.fraction, _ = bytes.Cut(mantissa, []byte("."))
	d.whole = bytes.TrimLeft(d.whole, "0")
	d.point = len(d.whole)
	if len(d.whole) == 0 {
		trimmed := bytes.TrimLeft(d.fraction, "0")
		d.point -= len(d.fraction) - len(trimmed)
		d.fraction = trimmed
	}
	if len(bytes.Trim(d.whole, "0"))+len(bytes.Trim(d.fraction, "0")) == 0 {
		return decimal{}
	}
	power, sign := 0, 1
	for _, c := range exponent {
		switch {
		case c == '-':
			sign = -1
		case isDigit(c) && power < 1<<40: // far beyond the length of any number
			power = power*10 + int(c-'0')
		}
	}
	d.point += power * sign
	return d
}

// isTimeOfDay reports whether s is a time of day, 00:00 to 23:59.
func isTimeOfDay(s []byte) bool {
	return len(s) == 5 && s[2] == ':' && parseTwoDigits(s) < 24 && parseTwoDigits(s[3:]) < 60
}

// moment is an instant in UTC. It can only be compared: second counts all months as 31 days.
type moment struct {
	second uint64
	nano   uint32
}

// compare returns a negative number if m is earlier than o, 0 if they are equal, and otherwise a positive number.
func (m moment) compare(o moment) int {
	return cmp.Or(cmp.Compare(m.second, o.second), cmp.Compare(m.nano, o.nano))
}

// parseInstant parses an RFC 3339 timestamp in UTC ("Z" or "+00:00"), with at most nine decimals of a second. Like most parsers,
// it rejects leap seconds.
func parseInstant(s []byte) (m moment, ok bool) {
	const seconds = len("2006-01-02T15:04:05")
	if len(s) < seconds+1 || s[10] != 'T' || s[13] != ':' || s[16] != ':' {
		return moment{}, false
	}
	day, ok := parseDate(s[:10])
	hour, minute, second := parseTwoDigits(s[11:]), parseTwoDigits(s[14:]), parseTwoDigits(s[17:])
	if !ok || hour > 23 || minute > 59 || second > 59 {
		return moment{}, false
	}
	m.second = day*86400 + uint64(hour)*3600 + uint64(minute)*60 + uint64(second)
	s = s[seconds:]
	if s[0] == '.' {
		scale, i := uint32(100_000_000), 1
		for ; i < len(s) && isDigit(s[i]); i++ {
			if i > 9 {
				return moment{}, false
			}
			m.nano += uint32(s[i]-'0') * scale
			scale /= 10
		}
		if i == 1 {
			return moment{}, false
		}
		s = s[i:]
	}
	return m, string(s) == "Z" || string(s) == "+00:00"
}

// IsNumber reports whether a text is a number as in JSON.
func IsNumber(s string) bool {
	return s != "" && typeOf(s[0]) == TypeInteger|TypeNumber && literalLength([]byte(s)) == len(s)
}

// CompareNumbers compares two numbers as in JSON exactly. It returns a negative number if a is less than b, 0 if they are equal, and
// otherwise a positive number.
func CompareNumbers(a, b string) int { return compareNumbers([]byte(a), []byte(b)) }

// isModerate reports whether a number is one that every program can read: at most 64 characters, a short exponent, and neither too
// large nor too small for a double.
func isModerate(number []byte) bool {
	i := bytes.IndexAny(number, "eE")
	if i < 0 || len(number) > maxNumber {
		return len(number) <= maxNumber
	}
	d := parseNumber(number)
	return len(bytes.TrimLeft(number[i+1:], "+-")) <= 3 && d.point <= 308 && d.point >= -308
}
