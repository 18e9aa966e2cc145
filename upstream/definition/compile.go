package definition

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// The names of the extensions.
const (
	extTenant  = "x-gatehouse-tenant"
	extPublic  = "x-gatehouse-public"
	extAnswer  = "x-gatehouse-answer"
	extRecords = "x-gatehouse-records"
	extPage    = "x-gatehouse-page"
	extVisible = "x-gatehouse-visible"
	extHidden  = "x-gatehouse-internal"
	extClamp   = "x-gatehouse-clamp"
)

// Members that are read over, wherever they stand.
func isRemark(name string) bool {
	return slices.Contains([]string{"title", "summary", "description", "example", "examples", "externalDocs", "$comment", "tags"}, name)
}

type compiler struct {
	file   string
	root   node
	tenant string // the document's
	faults []error
}

// fault adds a fault, once for all references to a value.
func (c *compiler) fault(n node, message string, args ...any) {
	f := &FaultError{c.file, n.line, n.pointer, fmt.Sprintf(message, args...)}
	if !slices.ContainsFunc(c.faults, func(other error) bool { return other.Error() == f.Error() }) {
		c.faults = append(c.faults, f)
	}
}

// only reports a fault for each member of an object that is not in a list.
func (c *compiler) only(n node, names ...string) {
	if !n.isObject() {
		c.fault(n, "an object is missing")
		return
	}
	var seen []string
	for _, e := range n.entries() {
		switch {
		case slices.Contains(seen, e.name):
			c.fault(e.value, "%s stands here twice", e.name)
		case !slices.Contains(names, e.name) && !isRemark(e.name):
			c.fault(e.value, "%s cannot be enforced here: possible are %s", e.name, strings.Join(names, ", "))
		}
		seen = append(seen, e.name)
	}
}

// resolve follows a local reference. Members beside it are the caller's.
func (c *compiler) resolve(n node) node {
	for range 16 {
		ref := n.get("$ref")
		if ref.Node == nil {
			return n
		}
		rest, ok := strings.CutPrefix(ref.text(), "#/")
		target := c.root
		for name := range strings.SplitSeq(rest, "/") {
			target = target.get(name)
		}
		if !ok || target.Node == nil {
			c.fault(ref, "%s is not a value of this document", ref.text())
			return node{nil, n.pointer, n.line}
		}
		n = target
	}
	c.fault(n, "the references lead in a circle")
	return node{nil, n.pointer, n.line}
}

// integer returns a whole number.
func (c *compiler) integer(n node) int {
	number, err := strconv.Atoi(n.text())
	if err != nil {
		c.fault(n, "a whole number is missing")
	}
	return number
}

// flag returns a truth value, by default false.
func (c *compiler) flag(n node) bool {
	if n.Node != nil && n.text() != "true" && n.text() != "false" {
		c.fault(n, "must be true or false")
	}
	return n.text() == "true"
}

// document compiles the whole document.
func (c *compiler) document() (base string, resources []upstream.Resource) {
	c.only(c.root, "openapi", "info", "servers", "paths", "components", extTenant)
	c.tenant = c.root.get(extTenant).text()
	for _, server := range c.root.get("servers").items() {
		base = server.get("url").text()
	}
	if !strings.HasPrefix(base, "/") || strings.HasSuffix(base, "/") {
		c.fault(c.root.get("servers"), "the URL of the server must be a path such as /api/v1")
	}
	for _, path := range c.root.get("paths").entries() {
		c.only(path.value, "get")
		name := strings.TrimPrefix(path.name, "/")
		if name == "" || strings.ContainsAny(name, "/{}%") {
			c.fault(path.value, "the path must be one segment")
			continue
		}
		resources = append(resources, c.operation(name, path.value.get("get")))
	}
	return base, resources
}

func (c *compiler) operation(name string, n node) upstream.Resource {
	c.only(n, "operationId", "parameters", "responses", extPublic, extAnswer)
	r := upstream.Resource{Name: name, Public: c.flag(n.get(extPublic))}
	if r.Public && !n.get(extAnswer).isObject() {
		c.fault(n.get(extPublic), "needs %s with an object: other responses are for the business of the credential", extAnswer)
	}
	parameters := n.get("parameters").items()
	if len(parameters) > upstream.MaxParams {
		c.fault(n.get("parameters"), "at most %d parameters", upstream.MaxParams)
		return r
	}
	for _, parameter := range parameters {
		r.Params = append(r.Params, c.parameter(c.resolve(parameter)))
	}
	responses := n.get("responses")
	c.only(responses, "200")
	response := responses.get("200")
	c.only(response, "content", extRecords, extPage)
	content := response.get("content")
	c.only(content, "application/json")
	c.only(content.get("application/json"), "schema")
	schema := c.resolve(content.get("application/json").get("schema"))

	if answer := n.get(extAnswer); answer.Node != nil {
		r.ByGateway = true
		if answer.isObject() {
			r.Answer = c.constant(answer)
		} else if answer.text() != "identity" {
			c.fault(answer, "must be identity or an object")
		}
	} else if c.tenant == "" {
		c.fault(n, "an operation without a tenant cannot be protected: %s is missing", extTenant)
	}
	c.envelope(&r, n, response, schema)
	return r
}

// constant returns a JSON object with the members in the order of the document.
func (c *compiler) constant(n node) []byte {
	text := []byte("{")
	for i, e := range n.entries() {
		var value any
		if err := e.value.Decode(&value); err != nil {
			c.fault(e.value, "cannot be read: %v", err)
		}
		name, _ := json.Marshal(e.name) //nolint:errchkjson // a string
		encoded, err := json.Marshal(value)
		if err != nil {
			c.fault(e.value, "is not JSON: %v", err)
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, name...), ':'), encoded...)
	}
	return append(text, '}')
}

// envelope compiles what is around the records of a response, and the records.
func (c *compiler) envelope(r *upstream.Resource, operation, response, schema node) {
	c.only(schema, "type", "required", "properties")
	properties := schema.get("properties").entries()
	if r.ByGateway {
		c.only(response, "content")
		if len(properties) == 1 {
			r.Object = properties[0].name
			schema = c.resolve(properties[0].value)
		}
		r.Fields, r.Internal = c.fields(schema)
		return
	}
	records := response.get(extRecords)
	c.only(records, "in", "order", "at_most")
	in := records.get("in").text()
	for _, e := range properties {
		value := c.resolve(e.value)
		switch {
		case !slices.Contains(schema.get("required").texts(), e.name):
			c.fault(e.value, "members beside the records must be required")
		case e.name != in:
			if r.Envelope != "" {
				c.fault(e.value, "only one member beside the records can be enforced")
			}
			r.Envelope = e.name
			r.Numbers = c.numbers(value)
		case value.get("type").text() == "array":
			r.List = in
			c.only(value, "type", "items", "maxItems")
			c.records(r, operation, records, c.resolve(value.get("items")))
		default:
			r.Object = in
			c.records(r, operation, records, value)
		}
	}
	if r.List == "" && r.Object == "" {
		c.fault(records, "the schema of the response has no member %q", in)
	}
	for _, page := range response.get(extPage).items() {
		c.only(page, "request", "response")
		member, ok := strings.CutPrefix(page.get("response").text(), "/"+r.Envelope+"/")
		if !ok || !slices.ContainsFunc(r.Numbers, func(f upstream.Field) bool { return f.Name == member }) {
			c.fault(page.get("response"), "is not a member beside the records")
		}
		r.Pages = append(r.Pages, upstream.PageCheck{Param: c.number(r, page.get("request")), Member: member})
	}
}

// numbers compiles the numbers about a list.
func (c *compiler) numbers(schema node) (numbers []upstream.Field) {
	c.only(schema, "type", "required", "properties")
	for _, e := range schema.get("properties").entries() {
		c.only(e.value, "type", "minimum")
		if e.value.get("type").text() != "integer" || e.value.get("minimum").text() != "0" || !slices.Contains(schema.get("required").texts(), e.name) {
			c.fault(e.value, "must be a required integer with the minimum 0")
		}
		numbers = append(numbers, upstream.Field{Name: e.name, Kind: upstream.KindInteger, Required: true})
	}
	if len(numbers) > upstream.MaxNumbers {
		c.fault(schema, "at most %d members can be enforced", upstream.MaxNumbers)
	}
	return numbers
}

// number returns the index of a parameter that is a number.
func (c *compiler) number(r *upstream.Resource, n node) int {
	i := slices.IndexFunc(r.Params, func(p upstream.Param) bool { return p.Name == n.text() && p.MaxLength == 0 })
	if i < 0 {
		c.fault(n, "must be a parameter that is an integer")
		return 0
	}
	return i
}

// records compiles the schema of the records.
func (c *compiler) records(r *upstream.Resource, operation, records, schema node) {
	r.Fields, r.Internal = c.fields(schema)
	r.Tenant = c.tenant
	has := func(name string, in ...upstream.Field) bool {
		return slices.ContainsFunc(in, func(f upstream.Field) bool { return f.Name == name })
	}
	if !has(r.Tenant, r.Internal...) {
		c.fault(schema, "the tenant %s must be declared, with %s", r.Tenant, extHidden)
	}
	if r.List == "" {
		c.only(records, "in")
		if visible := schema.get(extVisible); visible.Node != nil {
			c.fault(visible, "is for the records of a list")
		}
		return
	}
	r.AtMost = c.number(r, records.get("at_most"))
	r.Order = records.get("order").texts()
	all := append(slices.Clone(r.Fields), r.Internal...)
	for i, name := range r.Order {
		if !slices.ContainsFunc(all, func(f upstream.Field) bool { return f.Name == name && f.Kind == upstream.KindInstant }) {
			c.fault(records.get("order").items()[i], "must be a declared member with the format utc-date-time")
		}
	}
	if len(r.Order) == 0 {
		c.fault(operation, "an order is missing in %s", extRecords)
	}
	for _, e := range schema.get(extVisible).entries() {
		r.Visible, r.Shown = e.name, e.value.texts()
		if !has(r.Visible, r.Internal...) {
			c.fault(e.value, "must be a declared member with %s", extHidden)
		}
	}
}

func (c *compiler) parameter(n node) upstream.Param {
	c.only(n, "name", "in", "schema", extClamp)
	p := upstream.Param{Name: n.get("name").text()}
	schema := n.get("schema")
	if n.get("in").text() != "query" {
		c.fault(n.get("in"), "must be query")
	}
	switch schema.get("type").text() {
	case "integer":
		c.only(schema, "type", "default", "minimum", "maximum")
		p.Default, p.Min, p.Max = c.integer(schema.get("default")), c.integer(schema.get("minimum")), c.integer(schema.get("maximum"))
		if !c.flag(n.get(extClamp)) {
			c.fault(n, "%s is missing", extClamp)
		}
	case "string":
		c.only(schema, "type", "maxLength", "x-extensible-enum")
		if p.MaxLength = c.integer(schema.get("maxLength")); p.MaxLength < 1 || p.MaxLength > upstream.MaxText {
			c.fault(schema, "maxLength must be 1 to %d", upstream.MaxText)
		}
	default:
		c.fault(schema, "the type must be integer or string")
	}
	return p
}

// fields compiles the members of an object.
func (c *compiler) fields(schema node) (fields, internal []upstream.Field) {
	c.only(schema, "type", "required", "properties", extVisible, extTenant)
	required := schema.get("required").texts()
	properties := schema.get("properties").entries()
	for i, name := range required {
		if !slices.ContainsFunc(properties, func(e entry) bool { return e.name == name }) {
			c.fault(schema.get("required").items()[i], "%s is not declared", name)
		}
	}
	for _, e := range properties {
		f, hidden := c.field(e.name, e.value)
		switch bound := c.resolve(e.value).get("minLength"); {
		case e.name == schema.get(extTenant).text():
			f.Kind = upstream.KindBusiness
		case bound.Node != nil && f.Kind != upstream.KindKey:
			c.fault(bound, "minLength cannot be enforced here")
		}
		switch {
		case hidden:
			f.Required = false // its absence is not a violation, but decides what becomes of the record
			internal = append(internal, f)
		case !slices.Contains(required, e.name):
			c.fault(e.value, "members that are not required cannot be enforced yet")
		default:
			fields = append(fields, f)
		}
	}
	return fields, internal
}

// field compiles one member. Members beside a reference count as well (OpenAPI 3.1).
func (c *compiler) field(name string, n node) (f upstream.Field, hidden bool) {
	schema := c.resolve(n)
	keywords := []string{"type", "format", "minLength", "items", "const", "x-extensible-enum"}
	if schema.Node != n.Node {
		c.only(n, "$ref", extHidden)
		c.only(schema, keywords...)
	} else {
		c.only(schema, append(keywords, extHidden)...)
	}
	hidden = c.flag(n.get(extHidden))
	types := schema.get("type").texts()
	if one := schema.get("type").text(); one != "" {
		types = []string{one}
	}
	f = upstream.Field{Name: name, Required: !slices.Contains(types, "null"), Values: schema.get("x-extensible-enum").texts()}
	types = slices.DeleteFunc(types, func(t string) bool { return t == "null" })
	if constant := schema.get("const").text(); constant != "" { // of an answer of the gateway
		return upstream.Field{Name: name, Values: []string{constant}}, false
	}
	format := schema.get("format").text()
	switch strings.Join(types, " ") {
	case "string":
		kinds := map[string]upstream.Kind{
			"": upstream.KindText, "uuid": upstream.KindUUID, "date": upstream.KindDate, "utc-date-time": upstream.KindInstant,
			"time-of-day": upstream.KindTime, "decimal": upstream.KindDecimal,
		}
		kind, ok := kinds[format]
		if !ok {
			c.fault(schema, "the format %s cannot be enforced", format)
		}
		f.Kind = kind
	case "string integer":
		f.Kind = upstream.KindKey
		if c.integer(schema.get("minLength")) != 1 {
			c.fault(schema, "minLength must be 1")
		}
	case "integer":
		f.Kind = upstream.KindInteger
	case "boolean":
		f.Kind = upstream.KindBool
	case "array":
		items := c.resolve(schema.get("items"))
		if items.get("type").text() == "string" {
			c.only(items, "type")
			f.Kind = upstream.KindTexts
			break
		}
		f.Kind = upstream.KindObjects
		c.only(items, "type", "required", "properties")
		var nested []upstream.Field
		if f.Fields, nested = c.fields(items); nested != nil {
			c.fault(items, "%s is for members of records", extHidden)
		}
	default:
		c.fault(schema, "the type cannot be enforced")
	}
	return f, hidden
}
