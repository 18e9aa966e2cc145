package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// readable returns JSON, without hidden characters unless unchanged is set. It returns an error if parsers could read the result
// differently: if it has duplicate names, or a number that exceeds a double (RFC 7493, sections 2.2 and 2.3).
func readable(checked []byte, unchanged bool) (jsontext.Value, error) {
	var cleaned, text []byte
	done := 0 // number of bytes of checked that are already in cleaned
	d := jsontext.NewDecoder(bytes.NewBuffer(checked))
	for {
		var raw jsontext.Value
		var err error
		if kind := d.PeekKind(); kind == jsontext.KindString || kind == jsontext.KindNumber {
			raw, err = d.ReadValue()
		} else {
			_, err = d.ReadToken()
		}
		switch {
		case errors.Is(err, io.EOF) && done == 0:
			return checked, nil
		case errors.Is(err, io.EOF): // check again: cleaning may have made names equal
			return readable(append(cleaned, checked[done:]...), true)
		case err != nil:
			return nil, fmt.Errorf("%w: names that differ in hidden characters only", upstream.ErrContractViolation)
		case raw.Kind() == jsontext.KindNumber:
			if _, err := strconv.ParseFloat(string(raw), 64); err != nil {
				return nil, fmt.Errorf("%w: a number that does not fit a double", upstream.ErrContractViolation)
			}
		case raw.Kind() == jsontext.KindString && !unchanged:
			text, _ = jsontext.AppendUnquote(text[:0], raw) // it is valid
			if clean := cleantext.Text(string(text)); clean != string(text) {
				end := int(d.InputOffset())
				cleaned, _ = jsontext.AppendQuote(append(cleaned, checked[done:end-len(raw)]...), clean)
				done = end
			}
		}
	}
}
