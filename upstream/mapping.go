package upstream

import (
	"fmt"
	"math"
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

	escaped string // Literal as it stands in a query
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
		for j := range v.Value {
			p := &v.Value[j]
			p.escaped = string(appendEscaped(nil, []byte(p.Literal)))
			for k := range op.Params {
				op.Params[k].mapped = op.Params[k].mapped || p.Param == k+1 || p.Page > 0 && (op.Params[k].Number == p.Page || op.Params[k].Number == p.Size)
			}
		}
	}
}

// NamesBusiness reports whether the mapping puts the business's ID into the path, the query or a header of the request.
func (m *Mapping) NamesBusiness() bool {
	if m == nil {
		return false
	}
	names := func(parts []Part) bool { return slices.ContainsFunc(parts, func(p Part) bool { return p.Business }) }
	value := func(v MappedValue) bool { return names(v.Value) }
	return names(m.Path) || slices.ContainsFunc(m.Query, value) || slices.ContainsFunc(m.Headers, value)
}

// apply changes a call as the operation's mapping says.
func (m *Mapping) apply(c *Call, op *Operation, q Query) {
	if m.Path != nil {
		var path strings.Builder
		for _, p := range m.Path {
			switch {
			case p.Business && !isSegment(c.BusinessID):
				c.invalid = fmt.Errorf("%w: the business ID cannot be part of the path that the definition has for %s", ErrIdentity, op.ID)
			case p.Business:
				path.WriteString(c.BusinessID)
			case p.PathParam > 0:
				path.WriteString(op.pathValue(q.Path, p.PathParam-1))
			default:
				path.WriteString(p.Literal)
			}
		}
		c.Path = path.String()
	}
	if len(m.Query) > 0 {
		c.Query = m.query(c, op, q)
	}
	for _, h := range m.Headers {
		var value strings.Builder
		for _, p := range h.Value {
			switch {
			case p.Business:
				value.WriteString(c.BusinessID)
			case p.PathParam > 0:
				value.WriteString(op.pathValue(q.Path, p.PathParam-1))
			default:
				value.WriteString(p.Literal)
			}
		}
		c.Header[h.Name] = []string{value.String()}
	}
}

// pathValue returns the value of a parameter in a path of the operation. Parameters are whole segments.
func (op *Operation) pathValue(path string, index int) string {
	template, name := op.Path, "{"+op.PathParams[index].Name+"}"
	for template != "" {
		var segment, value string
		segment, template, _ = strings.Cut(template, "/")
		if value, path, _ = strings.Cut(path, "/"); segment == name {
			return value
		}
	}
	return ""
}

// query returns the query for the service. A value with a parameter that the caller did not send is left out.
func (m *Mapping) query(c *Call, op *Operation, q Query) string {
	var out []byte
	add := func(name string) {
		if len(out) > 0 {
			out = append(out, '&')
		}
		out = append(out, name...)
	}
	for _, v := range m.Query {
		if len(v.Value) == 1 && v.Value[0].Param > 0 && op.Params[v.Value[0].Param-1].Exploded { // sent as often as it came
			for pair := range strings.SplitSeq(q.Raw, "&") {
				if value, ok := strings.CutPrefix(pair, op.Params[v.Value[0].Param-1].encoded); ok {
					add(v.encoded + value)
				}
			}
			continue
		}
		value, complete := "", true
		for _, p := range v.Value {
			switch {
			case p.Business:
				value += string(appendEscaped(nil, []byte(c.BusinessID)))
			case p.PathParam > 0: // escaped, because a tool's argument may have : and @, see Fill
				value += string(appendEscaped(nil, []byte(q.pathValues[p.PathParam-1])))
			case p.Page > 0:
				value += strconv.Itoa(offset(q.Numbers[p.Page-1], q.Numbers[p.Size-1]))
			case p.Param > 0:
				sent, ok := op.Params[p.Param-1].valueIn(q.Raw)
				value, complete = value+sent, complete && ok
			default:
				value += p.escaped
			}
		}
		if complete {
			add(v.encoded + value)
		}
	}
	for pair := range strings.SplitSeq(q.Raw, "&") {
		for i := range op.Params {
			if p := &op.Params[i]; !p.mapped && strings.HasPrefix(pair, p.encoded) {
				add(pair)
			}
		}
	}
	return string(out)
}

// valueIn returns the encoded value of a parameter in a canonical query.
func (p *Param) valueIn(query string) (value string, ok bool) {
	for pair := range strings.SplitSeq(query, "&") {
		if value, ok = strings.CutPrefix(pair, p.encoded); ok {
			return value, true
		}
	}
	return "", false
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
