// Package versioned marks what the connection server keeps in Redis with the version of its format. Gateways of another version may
// read it, during an upgrade and after a rollback.
package versioned

import (
	"errors"

	"github.com/go-json-experiment/json"
)

// Format is the format that this version writes, and the last one that it reads. What has none is of format 1. Within a format, members
// may be added that earlier versions can ignore.
const Format = 1

// ErrLater is returned for what must be neither used nor changed.
var ErrLater = errors.New("stored by a later version of the gateway, in a format that this one does not know")

// Encode encodes a value as JSON with its format.
func Encode[T any](v T) ([]byte, error) {
	return json.Marshal(struct {
		Format int `json:"format"`
		Value  T   `json:",embed"` //nolint:revive // an option of this library's
	}{Format, v})
}

// Decode decodes JSON that Encode has encoded. Its errors include ErrLater.
func Decode(data []byte, v any) error {
	var mark struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &mark); err != nil {
		return err
	}
	if mark.Format > Format {
		return ErrLater
	}
	return json.Unmarshal(data, v)
}
