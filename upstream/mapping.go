package upstream

import (
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Mapping says how the request to a data service differs from the caller's, for services that have other paths and names.
type Mapping struct {
	Path        []Part        // with the service's own base path; nil: the operation's path
	Query       []MappedValue // values of the service's query; parameters that are in none of them keep their names
	Headers     []MappedValue // by their canonical names
	ContentType string        // a media type that counts as JSON in responses of the service; empty: none

	reverse      *regexp.Regexp // with Path: matches a path of the service, and captures its placeholders
	placeholders []Part
}

// MappedValue is a parameter of the query, or a header.
type MappedValue struct {
	Name  string
	Value []Part

	encoded string // the name and an equals sign
}

// Part is a part of a path or of a value: a text, the business's ID, or what the caller sent.
type Part struct {
	Literal    string // of characters that need no escaping in a path
	Business   bool
	PathParam  int // 1 more than the index in Operation.PathParams
	Param      int // 1 more than the index in Operation.Params
	Page, Size int // the offset of a page: 1 more than the indexes in Query.Numbers of its number and its size
}

func (m *Mapping) compile(op *Operation) {
	if m == nil {
		return
	}
	if m.Path != nil {
		m.compileReverse()
	}
	for i := range m.Query {
		v := &m.Query[i]
		v.encoded = string(appendEscaped(nil, []byte(v.Name))) + "="
		for _, p := range v.Value {
			for k := range op.Params {
				op.Params[k].mapped = op.Params[k].mapped || p.Param == k+1 || p.Page > 0 && (op.Params[k].Number == p.Page || op.Params[k].Number == p.Size)
			}
		}
	}
}

// NamesBusiness reports whether the mapping puts the business's ID into the path, the query or a header of the request.
func (m *Mapping) NamesBusiness() bool {
	return m != nil && (nameBusiness(m.Path) || slices.ContainsFunc(slices.Concat(m.Query, m.Headers), MappedValue.NamesBusiness))
}

// NamesBusiness reports whether the business's ID is in the value.
func (v MappedValue) NamesBusiness() bool { return nameBusiness(v.Value) }

func nameBusiness(parts []Part) bool {
	return slices.ContainsFunc(parts, func(p Part) bool { return p.Business })
}

// documents reports whether a query of the service has only parameters that callers know by the same names, or any others, and values that the
// mapping adds for the business.
func (op *Operation) documents(query, business string, q Query, others bool) bool {
	sent, err := url.ParseQuery(query)
	for name, values := range sent {
		known := others || slices.ContainsFunc(op.Params, func(p Param) bool { return p.Name == name })
		for i := 0; op.Mapping != nil && i < len(op.Mapping.Query); i++ {
			v := op.Mapping.Query[i]
			same := known && len(v.Value) == 1 && v.Value[0].Param > 0 && op.Params[v.Value[0].Param-1].Name == name // page: "{page}"
			if strings.EqualFold(name, v.Name) && !same {
				own := join(v.Value, &Call{BusinessID: business}, q) // what comes from parameters of the query is missing: it differs
				known = !slices.ContainsFunc(values, func(value string) bool { return value != own })
			}
		}
		if !known {
			return false
		}
	}
	return err == nil
}

// apply changes a call as the operation's mapping says.
func (m *Mapping) apply(c *Call, op *Operation, q Query) {
	switch {
	case nameBusiness(m.Path) && !IsSegment(c.BusinessID):
		c.invalid = fmt.Errorf("%w: the business ID cannot be part of the path that the definition has for %s", ErrIdentity, op.ID)
	case m.Path != nil:
		c.Path = join(m.Path, c, q)
	}
	if len(m.Query) > 0 {
		c.Query = m.query(c, op, q)
	}
	for _, h := range m.Headers {
		c.Header[h.Name] = []string{join(h.Value, c, q)}
	}
}

// join returns the text of parts without parameters of the query.
func join(parts []Part, c *Call, q Query) (text string) {
	for _, p := range parts {
		text += p.text(c, q)
	}
	return text
}

// text returns what a part stands for that is not a parameter of the query. A path needs no escapes: see Match and Fill.
func (p *Part) text(c *Call, q Query) string {
	switch {
	case p.Business:
		return c.BusinessID
	case p.PathParam > 0:
		return q.pathValues[p.PathParam-1]
	default:
		return p.Literal
	}
}

// query returns the query for the service. A value with a parameter that the caller did not send is left out.
func (m *Mapping) query(c *Call, op *Operation, q Query) string {
	var out []string
	sent := strings.Split(q.Raw, "&")
	for _, v := range m.Query {
		values := []string{v.encoded} // several if the value is a repeated parameter, none if one was not sent
		for _, p := range v.Value {
			var longer []string
			for _, value := range values {
				switch {
				case p.Page > 0:
					longer = append(longer, value+strconv.Itoa(offset(q.Numbers[p.Page-1], q.Numbers[p.Size-1])))
				case p.Param > 0:
					for _, pair := range sent {
						if text, ok := strings.CutPrefix(pair, op.Params[p.Param-1].encoded); ok {
							longer = append(longer, value+text)
						}
					}
				default:
					longer = append(longer, string(appendEscaped([]byte(value), []byte(p.text(c, q)))))
				}
			}
			values = longer
		}
		out = append(out, values...)
	}
	for _, pair := range sent {
		for i := range op.Params {
			if p := &op.Params[i]; !p.mapped && strings.HasPrefix(pair, p.encoded) {
				out = append(out, pair)
			}
		}
	}
	return strings.Join(out, "&")
}

// offset returns the number of records before a page, at most the largest int.
func offset(page, size int) int {
	if page <= 1 || size <= 0 {
		return 0
	}
	if page-1 > math.MaxInt/size {
		return math.MaxInt
	}
	return (page - 1) * size
}

// treatsAsJSON reports whether a Content-Type counts as JSON because of m.ContentType.
func (m *Mapping) treatsAsJSON(contentType string) bool {
	return m.ContentType != "" && isJSON(contentType, []string{m.ContentType})
}
