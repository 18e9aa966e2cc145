package data

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// members are the members of an object that are decoded, with pointers to their values. Other members are ignored.
type members map[string]any

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (m members) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	if token.Kind() != jsontext.KindBeginObject {
		return errors.New("not an object")
	}
	for d.PeekKind() != jsontext.KindEndObject {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if into, ok := m[name.String()]; ok {
			err = json.UnmarshalDecode(d, into)
		} else {
			err = d.SkipValue()
		}
		if err != nil {
			return err
		}
	}
	_, err = d.ReadToken()
	return err
}

// Page is a page of a list.
type Page[T any] struct {
	Items []T
	Next  string // cursor of the next page; "" at the end
}

// readPage decodes {"<name>":[…],"next_cursor":…}. has reports whether a record may be in the list; nil: any of the business.
func readPage[T Record](response []byte, name, business string, has func(T) bool) (Page[T], error) {
	var p Page[T]
	err := json.Unmarshal(response, &members{name: &p.Items, "next_cursor": &p.Next})
	if err != nil || p.Items == nil || !validCursor(p.Next) {
		return Page[T]{}, upstream.ErrContractViolation
	}
	for _, r := range p.Items {
		if err := check(r, business, has); err != nil {
			return Page[T]{}, err
		}
	}
	return p, nil
}

func validCursor(s string) bool {
	return len(s) <= 512 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// readOne decodes {"<name>":{…}}, or the record itself if there is no name. requested reports whether a record is the one that was asked
// for; nil if a business has only one.
func readOne[T Record](response []byte, name, business string, requested func(T) bool) (T, error) {
	var r, none T
	var into any = &r
	if name != "" {
		into = &members{name: &r}
	}
	if json.Unmarshal(response, into) != nil {
		return none, upstream.ErrContractViolation
	}
	if err := check(r, business, requested); err != nil {
		return none, err
	}
	return r, nil
}

// readDeleted decodes the response to a DELETE, {"deleted":true,"id":…}.
func readDeleted(response []byte, id string) error {
	var deleted bool
	var raw jsontext.Value
	if json.Unmarshal(response, &members{"deleted": &deleted, "id": &raw}) != nil || !deleted {
		return upstream.ErrContractViolation
	}
	if text, err := jsontext.AppendUnquote(nil, raw); string(raw) != id && (err != nil || string(text) != id) {
		return ErrWrongRecord
	}
	return nil
}

// check returns an error if a record does not match the call.
func check[T Record](r T, business string, requested func(T) bool) error {
	switch {
	case string(r.owner()) != business:
		return upstream.ErrCrossTenantRecord
	case requested != nil && !requested(r):
		return ErrWrongRecord
	}
	for _, v := range r.values() {
		if !readable(v) {
			return upstream.ErrContractViolation
		}
	}
	return nil
}

// readable reports whether v is nested at most maxDepth levels and its numbers fit a double (RFC 7493, section 2.2), which all
// parsers can be expected to support.
func readable(v jsontext.Value) bool {
	d := jsontext.NewDecoder(bytes.NewReader(v))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return errors.Is(err, io.EOF) // v is known to be valid JSON
		}
		if token.Kind() == jsontext.KindNumber {
			_, err = token.Float()
		}
		if err != nil || d.StackDepth() > maxDepth {
			return false
		}
	}
}
