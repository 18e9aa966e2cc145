package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// readable returns JSON without hidden characters, unless it stays unchanged. It returns an error if parsers could read it differently: if
// two names of an object are the same then, or a number does not fit a double (RFC 7493, sections 2.2 and 2.3).
func readable(checked []byte, unchanged bool) (jsontext.Value, error) {
	content := jsontext.Value(checked)
	if !unchanged {
		content = cleantext.JSON(checked)
	}
	d := jsontext.NewDecoder(bytes.NewReader(content))
	for {
		token, err := d.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return content, nil
		case err != nil:
			return nil, fmt.Errorf("%w: names that differ in hidden characters only", upstream.ErrContractViolation)
		case token.Kind() != jsontext.KindNumber:
			continue
		}
		if _, err := strconv.ParseFloat(token.String(), 64); err != nil {
			return nil, fmt.Errorf("%w: a number that does not fit a double", upstream.ErrContractViolation)
		}
	}
}
