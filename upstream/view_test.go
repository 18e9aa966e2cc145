package upstream_test

import (
	"bytes"
	"net/http"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// resource is an operation of the public contract, and what the tests know of its response: the records, and the object with numbers
// beside them.
type resource struct {
	*upstream.Operation
	match                        upstream.Match
	Name, List, Object, Envelope string
	Fields                       []field
	AtMost                       int // index in Query.Numbers
	documented                   *upstream.DocumentedResponse
}

// field is a documented member of a record.
type field struct {
	Name   string
	Kind   kind
	Values []string
	Fields []field
}

type kind int

const (
	kindText kind = iota
	kindKey
	kindUUID
	kindInteger
	kindBool
	kindDecimal
	kindInstant
	kindDate
	kindTime
	kindTexts
	kindObjects
	kindBusiness
)

func byName(name string) *resource {
	m, ok := definition.Public().Match(definition.Public().Base() + "/" + name)
	if !ok {
		return nil
	}
	op := m.Path.Operation(http.MethodGet)
	r := &resource{Operation: op, match: m, Name: name, documented: &op.Responses[0]}
	if r.documented.Records == nil {
		return r
	}
	for _, p := range r.documented.Body.Properties {
		switch {
		case p.Name != r.documented.Records.In:
			r.Envelope = p.Name
		case p.Schema.Items != nil:
			r.List, r.Fields, r.AtMost = p.Name, fieldsOf(p.Schema.Items), r.documented.Records.AtMost-1
		default:
			r.Object, r.Fields = p.Name, fieldsOf(p.Schema)
		}
	}
	return r
}

func fieldsOf(s *upstream.Schema) (fields []field) {
	for _, p := range s.Properties {
		if p.Internal {
			continue
		}
		f := field{Name: p.Name, Values: p.Schema.Known}
		switch t := p.Schema.Types &^ upstream.TypeNull; {
		case p.Name == s.Tenant:
			f.Kind = kindBusiness
		case t == upstream.TypeString|upstream.TypeInteger:
			f.Kind = kindKey
		case t == upstream.TypeInteger:
			f.Kind = kindInteger
		case t == upstream.TypeBoolean:
			f.Kind = kindBool
		case t == upstream.TypeArray && p.Schema.Items.Types == upstream.TypeString:
			f.Kind = kindTexts
		case t == upstream.TypeArray:
			f.Kind, f.Fields = kindObjects, fieldsOf(p.Schema.Items)
		default:
			f.Kind = map[upstream.Format]kind{
				upstream.FormatUUID: kindUUID, upstream.FormatDecimal: kindDecimal, upstream.FormatInstant: kindInstant,
				upstream.FormatDate: kindDate, upstream.FormatTimeOfDay: kindTime,
			}[p.Schema.Format]
		}
		fields = append(fields, f)
	}
	return fields
}

// resources returns those of the public contract.
func resources() (all []*resource) {
	for _, name := range definition.Public().Resources(false) {
		all = append(all, byName(name))
	}
	return all
}

// CleanQuery cleans a query of the resource.
func (r *resource) CleanQuery(raw string) (upstream.Query, error) {
	m := r.match
	m.Query = raw
	return r.Operation.CleanQuery(m)
}

func (r *resource) check(c *upstream.Contract, dst *bytes.Buffer, q upstream.Query, business string, body []byte) (upstream.Report, error) {
	return c.Check(dst, r.Operation, r.documented, q, business, body)
}

func (r *resource) checkHeader(status int, h http.Header) error {
	_, err := r.CheckHeader(status, h, false)
	return err
}
