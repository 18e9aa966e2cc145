package data

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// readable returns JSON without hidden characters, unless it stays unchanged. It returns an error if parsers could read it differently: if two names of an object are
// the same then, or a number does not fit a double (RFC 7493, sections 2.2 and 2.3).
func readable(checked []byte, unchanged bool) (jsontext.Value, error) {
	content := jsontext.Value(checked)
	if !unchanged {
		content = cleantext.JSON(checked)
	}
	switch {
	case !bytes.Equal(content, checked) && !content.IsValid():
		return nil, fmt.Errorf("%w: names that differ in hidden characters only", upstream.ErrContractViolation)
	case !fitDoubles(content):
		return nil, fmt.Errorf("%w: a number that does not fit a double", upstream.ErrContractViolation)
	}
	return content, nil
}

// fitDoubles reports whether the numbers in JSON fit a double.
func fitDoubles(v []byte) bool {
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case c == '"':
			for i++; i < len(v) && v[i] != '"'; i++ {
				if v[i] == '\\' {
					i++
				}
			}
		case c == '-' || c >= '0' && c <= '9':
			number := v[i : i+1]
			for i+1 < len(v) && bytes.IndexByte([]byte("+-.0123456789eE"), v[i+1]) >= 0 {
				i++
				number = number[:len(number)+1]
			}
			if len(number) > 300 || bytes.ContainsAny(number, "eE") {
				if _, err := strconv.ParseFloat(string(number), 64); err != nil {
					return false
				}
			}
		}
	}
	return true
}
