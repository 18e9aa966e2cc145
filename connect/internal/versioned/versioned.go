// Package versioned adds a format number to the JSON values that the connection server stores in Redis, because gateways of another
// version may read them during an upgrade or after a rollback.
package versioned

import (
	"errors"

	"github.com/go-json-experiment/json"
)

// Format is the format that this version writes, and the newest one that it reads. A value without a number has format 1. Adding
// members that older versions can ignore does not change the format.
const Format = 1

// ErrLater is returned for a value in a newer format, which must be neither used nor changed.
var ErrLater = errors.New("stored by a later version of the gateway, in a format that this one does not know")

// Encode encodes a value as JSON with its format.
func Encode[T any](v T) ([]byte, error) {
	return json.Marshal(struct {
		Format int `json:"format"`
		Value  T   `json:",embed"` //nolint:revive // an option of this library's
	}{Format, v})
}

// Decode decodes a value that Encode has encoded. Its errors are ErrLater and those of package json.
func Decode(data []byte, v any) error {
	var header struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &header); err != nil {
		return err
	}
	if header.Format > Format {
		return ErrLater
	}
	return json.Unmarshal(data, v)
}
