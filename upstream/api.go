package upstream

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// API is a set of operations, with what their requests and responses may contain. It is immutable.
type API struct {
	name  string
	base  string // "/api/v1"
	paths []*Path
	exact map[string]*Path // paths without parameters, without the base path
	tree  node

	places node // of all paths, with those at the service and those that are left out

	mapped []*Operation // GETs with another path at the data service
}

// Path is a path of an API.
type Path struct {
	Template   string       // without the base path, such as "/orders/{id}"
	Operations []*Operation // one for each method, in the order of the definition
	Allow      string       // the value of the header Allow

	destinations []destination // of its parameters, where places are
}

// Operation is a method and path of an API. It is shared by all requests and must not be changed once it is part of an API.
type Operation struct {
	ID       string // unique in the API; in logs, metrics and assertions
	Method   string
	Path     string // with the base path and parameters, such as "/api/v1/orders/{id}"
	Resource string // the first segment below the base path, preceded by the API's name and a slash if it has one

	// Rights say what callers need: no value of a path's parameter leads to an operation of the same method with other rights.
	Rights string

	Public     bool   // anyone may call it; otherwise, requests must be signed by an active business
	Read       bool   // it changes nothing
	ByGateway  bool   // the gateway responds itself, without a data service
	StaticBody []byte // with ByGateway: the body of every response; nil: the credential's business

	// Tenant says how businesses are kept apart: the name of the property of each record that names its business, TenantByService or
	// TenantNone. Empty: the gateway responds itself.
	Tenant string

	TenantInside bool // not all records need have the tenant, only objects inside or beside them

	Params     []Param      // of the query, in the order in which they are forwarded
	PathParams []Param      // in the order of the path
	Headers    []Param      // headers that are forwarded, by their canonical names
	Body       *RequestBody // nil: requests have none
	Responses  []DocumentedResponse
	Mapping    *Mapping    // nil: none
	Deprecated http.Header // the headers Deprecation, Sunset and Link
	Enforce    Enforcement // which deviations of responses pass

	// LostParams are the parameters of a write's query that are documented but cannot be forwarded: a request must not have them.
	LostParams []string

	accept string // the header Accept of calls
	sample string
	api    *API
}

// TrustsService says whether nothing in successful responses shows whose they are, so that the data service alone keeps businesses apart.
func (op *Operation) TrustsService() bool {
	checked := func(r DocumentedResponse) bool { return r.Succeeds() && r.Body != nil && !r.Body.FreeJSON() }
	return op.Tenant == TenantByService || op.Tenant != "" && op.Tenant != TenantNone && !slices.ContainsFunc(op.Responses, checked)
}

// Other values of Operation.Tenant.
const (
	TenantByService = "request" // the data service is told the business and trusted to answer for it alone
	TenantNone      = "none"    // records have no tenant
)

// DocumentedResponse is a response of an operation.
type DocumentedResponse struct {
	Status    int      // 2 or 4: every 2xx or 4xx status without a response of its own
	Body      *Schema  // nil: there is no body, or only media types of Unchecked
	Media     []string // the documented media types of Body: application/json, or others that end in +json
	Unchecked []string // media types whose bodies are forwarded without a check
	Records   *Records // nil: the definition does not say where the records are
	Location  bool     // the header Location is forwarded
	ETag      bool     // the header ETag is forwarded
	Cursor    string   // the query parameter that takes the cursor of the next page; empty: none
	Next      []string // with Cursor: the path of member names to the next cursor

	Mapped bool // a property may have a Source

	// From is the path of member names that leads to the body in the data service's response. Default: the body is the whole response.
	From []string

	from         *sources // with From
	recordsIndex int      // index of the property with the records, -1: none
	isIndexes    [][2]int // for each of Records.Is, the indexes of the property and of the path parameter
	list         bool     // the records are an array
	order        []int    // indexes of the properties by which they are sorted
}

// Records says where the record or the records of a response are.
type Records struct {
	In     string   // the property of the body; empty: the body itself
	Order  []string // the properties by which a list is sorted, newest first; the first that is not null is used
	AtMost int      // 1 more than the index in Query.Numbers of the maximum that was asked for. Default: 0, only Most holds
	Most   int      // the maximum number of records, whatever was asked for
	Is     []Is     // properties that must equal a parameter of the path
}

// Is requires a property of a record to equal a parameter of the path.
type Is struct{ Property, Param string }

// NewAPI compiles operations whose paths are below a base path such as "/api/v1". name is the API's, or empty. leftOut has the paths of operations
// that are left out, with base, and those at the service: no value of a parameter leads there.
func NewAPI(name, base string, operations []*Operation, leftOut ...string) *API {
	a := &API{name: name, base: base, exact: map[string]*Path{}}
	byTemplate := map[string]*Path{}
	for _, op := range operations {
		template := strings.TrimPrefix(op.Path, base)
		p := byTemplate[template]
		if p == nil {
			p = &Path{Template: template}
			byTemplate[template] = p
			a.paths = append(a.paths, p)
			if strings.Contains(template, "{") {
				a.tree.add(strings.Split(template[1:], "/")).path = p
			} else {
				a.exact[template] = p
			}
		}
		p.Operations = append(p.Operations, op)
		if p.Allow != "" {
			p.Allow += ", "
		}
		if p.Allow += op.Method; op.Method == http.MethodGet {
			p.Allow += ", HEAD"
		}
		op.compile()
		if op.api = a; op.Method == http.MethodGet && op.Mapping != nil && op.Mapping.Path != nil {
			a.mapped = append(a.mapped, op)
		}
	}
	atService := func(op *Operation) string {
		if op.Mapping == nil || op.Mapping.Path == nil {
			return ""
		}
		return join(op.Mapping.Path, &Call{BusinessID: "{}"}, Query{pathValues: slices.Repeat([]string{"{}"}, MaxPathParams)})
	}
	for _, path := range leftOut {
		a.addPlace(path, nil)
	}
	for _, op := range operations {
		a.addPlace(op.Path, op)
		a.addPlace(atService(op), op)
	}
	for _, p := range a.paths {
		a.addDestination(p, base+p.Template, nil)
		for _, op := range p.Operations {
			a.addDestination(p, atService(op), op)
		}
	}
	a.addSamples(leftOut)
	guard(operations)
	return a
}

// Success returns the first successful response, or nil.
func (op *Operation) Success() *DocumentedResponse {
	return find(op.Responses, (*DocumentedResponse).Succeeds)
}

// find returns the first element for which match returns true, or nil.
func find[T any](all []T, match func(*T) bool) *T {
	for i := range all {
		if match(&all[i]) {
			return &all[i]
		}
	}
	return nil
}

// Record returns the schema of a record in the first successful response: of an item if it is a list, and of the body if the definition does not
// say where the records are. It returns nil if there is no body.
func (op *Operation) Record() *Schema {
	r := op.Success()
	if r == nil || r.Body == nil {
		return nil
	}
	s := r.Body
	if r.Records != nil && r.Records.In != "" {
		s = s.Property(r.Records.In).Schema
	}
	if s.Types&TypeArray != 0 && s.Items != nil {
		s = s.Items
	}
	return s
}

// WithProperties returns a copy of the operation whose responses have records with only the named properties.
func (op *Operation) WithProperties(names []string) *Operation {
	own := *op
	own.Responses = slices.Clone(op.Responses)
	for i := range own.Responses {
		r := &own.Responses[i]
		if r.Records == nil || r.Records.In != "" && r.Body.Property(r.Records.In) == nil {
			continue
		}
		r.Body = r.Body.cloneUncompiled()
		record := r.Body
		if r.Records.In != "" {
			p := record.Property(r.Records.In)
			p.Schema = p.Schema.cloneUncompiled()
			record = p.Schema
		}
		if record.Types&TypeArray != 0 && record.Items != nil {
			record.Items = record.Items.cloneUncompiled()
			record = record.Items
		}
		for i := range record.Properties {
			p := &record.Properties[i]
			if p.Internal = p.Internal || !slices.Contains(names, p.Name); p.Internal {
				p.Required = false
			}
		}
		slices.SortStableFunc(record.Properties, func(a, b Property) int { return b2i(a.Internal) - b2i(b.Internal) })
	}
	own.compileResponses()
	return &own
}

// cloneUncompiled returns a copy of a schema that can be changed, and must then be compiled.
func (s *Schema) cloneUncompiled() *Schema {
	own := *s
	own.Properties, own.index, own.fields, own.from, own.numbers = slices.Clone(s.Properties), nil, 0, nil, false
	return &own
}

// NeedsNoParams reports whether the operation is a GET that can be called without parameters.
func (op *Operation) NeedsNoParams() bool {
	return op.Method == http.MethodGet && len(op.PathParams) == 0 && !slices.ContainsFunc(op.Params, func(p Param) bool { return p.Required })
}

// Unchecked reports whether bodies of some responses are forwarded without a check.
func (op *Operation) Unchecked() bool {
	return slices.ContainsFunc(op.Responses, func(r DocumentedResponse) bool { return r.Unchecked != nil })
}

// MayHide reports whether some responses are about records that are only for another business, or may not be seen.
func (op *Operation) MayHide() bool {
	return slices.ContainsFunc(op.Responses, func(r DocumentedResponse) bool { return r.Body != nil && (r.Body.hasTenant || r.Body.filters) })
}

// Sample returns a path of the operation, with a number for each parameter.
func (op *Operation) Sample() string { return op.sample }

// addSamples sets the samples of all operations. The number in them is not a literal segment of any path, so each matches its own path only.
func (a *API) addSamples(templates []string) {
	literals := map[string]bool{}
	for _, p := range a.paths {
		templates = append(templates, p.Template)
	}
	for _, template := range templates {
		for segment := range strings.SplitSeq(template, "/") {
			literals[segment] = true
		}
	}
	n := 1
	for literals[strconv.Itoa(n)] {
		n++
	}
	for _, op := range a.Operations() {
		op.sample = op.Path
		for _, p := range op.PathParams {
			op.sample = strings.Replace(op.sample, "{"+p.Name+"}", strconv.Itoa(n), 1)
		}
	}
}

func (op *Operation) compile() {
	for _, params := range [...][]Param{op.Params, op.PathParams, op.Headers} {
		for i := range params {
			params[i].compile()
		}
	}
	op.Body.compile()
	op.Mapping.compile(op)
	op.compileResponses()
}

func (op *Operation) compileResponses() {
	var accept []string
	for i := range op.Responses {
		r := &op.Responses[i]
		if first := r.Media[:min(1, len(r.Media))]; r.Succeeds() && !slices.Contains(first, "application/json") { // some services would respond with 406
			accept = slices.Concat(accept, r.Unchecked, first) // the body is checked against the schema of the first
		}
		r.recordsIndex = -1
		r.Body.compile()
		if r.From != nil {
			whole := &Schema{Properties: []Property{{Schema: r.Body, HoldsRecords: true, From: &Source{Names: r.From, Pointer: true}}}}
			whole.compileSources()
			r.from = whole.from
		}
		if r.Records == nil {
			continue
		}
		records := r.Body
		if r.Records.In != "" {
			r.recordsIndex = r.Body.index[r.Records.In]
			records = r.Body.Properties[r.recordsIndex].Schema
		}
		if r.list = records.Types&TypeArray != 0; r.list {
			records = records.Items
		}
		r.order, r.isIndexes = nil, nil
		for _, name := range r.Records.Order {
			r.order = append(r.order, records.index[name])
		}
		for _, is := range r.Records.Is {
			param := slices.IndexFunc(op.PathParams, func(p Param) bool { return p.Name == is.Param })
			r.isIndexes = append(r.isIndexes, [2]int{records.index[is.Property], param})
		}
	}
	op.accept = strings.Join(append(accept, "application/json"), ", ")
}

// Succeeds reports whether the status is successful (RFC 9110, section 15.3), or the range 2XX.
func (r *DocumentedResponse) Succeeds() bool { return r.Status == 2 || r.Status/100 == 2 }

// IsList reports whether the records are a list.
func (r *DocumentedResponse) IsList() bool { return r.list }

// maxRecords returns the maximum number of records in a list.
func (r *DocumentedResponse) maxRecords(q Query) int {
	if r.Records.AtMost > 0 {
		return min(q.Numbers[r.Records.AtMost-1], r.Records.Most)
	}
	return r.Records.Most
}

// numberName returns the name of the parameter with a Number, or that of the option that limits lists without one.
func (op *Operation) numberName(number int) string {
	for _, p := range op.Params {
		if p.Number > 0 && p.Number == number {
			return p.Name
		}
	}
	return "max_items"
}

// Name returns the name of the API, or "" for the one without a name.
func (a *API) Name() string { return a.name }

// Base returns the path below which all operations are, such as "/api/v1".
func (a *API) Base() string { return a.base }

// Paths returns all paths in the order of the definition.
func (a *API) Paths() []*Path { return slices.Clone(a.paths) }

// Operations returns all operations in the order of the definition.
func (a *API) Operations() (all []*Operation) {
	for _, p := range a.paths {
		all = append(all, p.Operations...)
	}
	return all
}

// Resources returns the names of all resources, or with served, only of those that data services serve.
func (a *API) Resources(served bool) (names []string) {
	for _, op := range a.Operations() {
		if !slices.Contains(names, op.Resource) && !(served && op.ByGateway) {
			names = append(names, op.Resource)
		}
	}
	return names
}

// Operation returns the operation of a method, or nil. HEAD is answered as GET.
func (p *Path) Operation(method string) *Operation {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, op := range p.Operations {
		if op.Method == method {
			return op
		}
	}
	return nil
}

// MaxPathParams is the maximum number of parameters of a path.
const MaxPathParams = 8

// Match is the result of API.Match.
type Match struct {
	Path   *Path
	Query  string                // the raw query, as sent
	values [MaxPathParams]string // of the path's parameters
}

// Match returns the path of a request target in origin form, as sent. The path must equal the target's byte for byte: nothing is
// decoded or normalised. A parameter is a whole segment of 1 to 128 unreserved characters (RFC 3986, section 2.3) and neither "."
// nor "..".
func (a *API) Match(target string) (m Match, ok bool) {
	path, query, _ := strings.Cut(target, "?")
	if len(path) <= len(a.base) || path[:len(a.base)] != a.base || path[len(a.base)] != '/' {
		return m, false
	}
	path = path[len(a.base):]
	// A request target must not have a fragment (RFC 9112, section 3.2). Parsers disagree about targets with one.
	if strings.IndexByte(query, '#') >= 0 {
		return m, false
	}
	m.Query, m.Path = query, a.find(path, &m.values, IsSegment)
	return m, m.Path != nil && !a.leadsElsewhere(m.Path, target[:len(a.base)+len(path)], &m.values)
}

// find returns the path of a target below the base path, or nil. fits says what the value of a parameter can be.
func (a *API) find(path string, values *[MaxPathParams]string, fits func(string) bool) *Path {
	if p := a.exact[path]; p != nil {
		return p
	}
	return a.tree.find(path[1:], values, 0, fits)
}

// cleanTarget returns a target that matches an operation as callers may have it. It returns "" for other targets, if the query has a parameter that
// the path's GET does not document, because without it the target may be another page, unless the path ends with the ID of one record, and if the
// target names another business: in a parameter, also of a path that has no GET, or in the query under the name that the mapping gives it. Links of
// public operations may name any business: "-" is none.
func (a *API) cleanTarget(target, business string) string {
	m, ok := a.Match(target)
	if !ok {
		return ""
	}
	path, query, _ := strings.Cut(target, "?")
	get := m.Path.Operation(http.MethodGet)
	isOthers := func(op *Operation, q Query) bool { return business != "-" && op.CheckBusiness(q, business) != nil }
	for _, op := range m.Path.Operations {
		if (get == nil || op == get) && isOthers(op, Query{pathValues: m.values[:]}) {
			return ""
		}
	}
	if query != "" && get != nil {
		q, err := get.CleanQuery(m)
		if err != nil || isOthers(get, q) || !get.documents(query, business, q, strings.HasSuffix(get.Path, "}")) {
			return ""
		}
		if q.Raw != "" {
			path += "?" + q.Raw
		}
	}
	return path
}

// node is a segment of the paths with parameters.
type node struct {
	literal   map[string]*node
	parameter *node
	path      *Path   // that ends here
	places    []place // that end here
}

func (n *node) add(segments []string) (end *node) {
	for _, segment := range segments {
		next := n.literal[segment]
		if strings.Contains(segment, "{") {
			n.parameter = cmp.Or(n.parameter, new(node))
			next = n.parameter
		} else if next == nil {
			if n.literal == nil {
				n.literal = map[string]*node{}
			}
			next = new(node)
			n.literal[segment] = next
		}
		n = next
	}
	return n
}

// find returns the path of the rest of a target. A literal segment wins, and if the rest does not fit, the parameter is tried: package
// definition bounds how often that can happen.
func (n *node) find(rest string, values *[MaxPathParams]string, depth int, fits func(string) bool) *Path {
	segment, rest, more := strings.Cut(rest, "/")
	for _, next := range [...]*node{n.literal[segment], n.parameter} {
		if next == nil {
			continue
		}
		at := depth
		if next == n.parameter {
			if at == MaxPathParams || !fits(segment) {
				return nil
			}
			values[at] = segment
			at++
		}
		found := next.path
		if more {
			found = next.find(rest, values, at, fits)
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// maxSegment is the maximum length of a parameter in a path.
const maxSegment = 128

// IsSegment reports whether s can be the value of a parameter in a path.
func IsSegment(s string) bool {
	if s == "" || len(s) > maxSegment || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		if !isUnreserved(s[i]) {
			return false
		}
	}
	return true
}
