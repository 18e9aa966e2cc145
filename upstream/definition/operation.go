package definition

import (
	"cmp"
	"encoding/json"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// maxAmbiguous is the maximum number of segments of a path at which a literal and a parameter are possible.
const maxAmbiguous = 8

// Request headers that reach the data service, and response headers that reach the caller, where documented.
//
//nolint:gochecknoglobals // constants
var (
	requestHeaders  = []string{"Idempotency-Key", "If-Match", "If-None-Match", "Accept-Language"}
	responseHeaders = []string{"Etag", "Location", "Retry-After"}
)

// document compiles the whole document, or the operations that selected names.
func (c *compiler) document(selected func(*operationNode) bool) (base string, operations []*upstream.Operation) {
	c.only(c.root, "openapi", "info", "servers", "paths", "components", "security", "webhooks", extTenant)
	version := c.root.get("openapi")
	c.old = strings.HasPrefix(version.text(), "3.0.")
	if !c.old && !strings.HasPrefix(version.text(), "3.1.") {
		c.fault(version, "the version must be 3.0 or 3.1")
	}
	base = c.base()
	all := c.operations()
	c.templates(all)
	ids := map[string]bool{}
	for _, n := range all {
		if n.id == "" || !selected(n) {
			continue
		}
		if ids[n.id] {
			c.fault(n.get("operationId"), "%s is the name of two operations", n.id)
		}
		ids[n.id] = true
		operations = append(operations, c.operation(base, n))
	}
	if len(operations) == 0 && len(c.faults) == 0 {
		c.fault(c.root.get("paths"), "no operation is served")
	}
	return base, operations
}

// base returns the path of the first server.
func (c *compiler) base() string {
	servers := c.root.get("servers")
	url := servers.member("0").get("url")
	path := url.text()
	if _, rest, ok := strings.Cut(path, "://"); ok {
		if _, path, ok = strings.Cut(rest, "/"); ok {
			path = "/" + path
		}
	}
	path = strings.TrimSuffix(path, "/")
	if path == "" {
		return ""
	}
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if path[0] != '/' || !literalSegment(segment) {
			c.fault(url, "the path of the server must be one such as /api/v1")
			break
		}
	}
	return path
}

// literalSegment reports whether s can be a segment of a path as it is.
func literalSegment(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,=:@"
	return s != "" && s != "." && s != ".." && strings.Trim(s, allowed) == ""
}

// operationNode is an operation of a document, before it is compiled.
type operationNode struct {
	node
	id, method, path string
	item             node // of the path
}

// operations returns all operations of the document.
func (c *compiler) operations() (all []*operationNode) {
	for _, path := range c.root.get("paths").entries() {
		if strings.HasPrefix(path.name, "x-") {
			continue
		}
		item := c.resolve(path.value)
		c.only(item, "get", "put", "post", "delete", "options", "head", "patch", "trace", "parameters", "servers")
		for _, e := range item.entries() {
			if !slices.Contains([]string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}, e.name) {
				continue
			}
			n := &operationNode{node: e.value, method: strings.ToUpper(e.name), path: path.name, item: item}
			if n.id = e.value.get("operationId").text(); n.id == "" {
				n.id = e.name + strings.NewReplacer("{", "", "}", "").Replace(strings.ReplaceAll(path.name, "/", "_"))
			}
			all = append(all, n)
		}
	}
	return all
}

// tags returns the operation's tags.
func (n *operationNode) tags() []string { return n.get("tags").texts() }

// templates checks the templates of all paths for what makes matching them ambiguous.
func (c *compiler) templates(all []*operationNode) {
	literal, parameter := map[string]string{}, map[string]string{} // by what is before the segment: a path
	same := map[string]string{}
	for _, n := range all {
		prefix := ""
		for segment := range strings.SplitSeq(n.path, "/") {
			if strings.HasPrefix(segment, "{") {
				parameter[prefix] = n.path
				segment = "{}"
			} else {
				literal[prefix] = n.path
			}
			prefix += "/" + segment
		}
		if other, ok := same[prefix]; ok && other != n.path {
			c.fault(n.item, "%s and %s are the same path", other, n.path)
		}
		same[prefix] = n.path
	}
	for _, n := range all {
		prefix, ambiguous := "", 0
		for segment := range strings.SplitSeq(n.path, "/") {
			if literal[prefix] != "" && parameter[prefix] != "" {
				if ambiguous++; strings.HasPrefix(segment, "{") {
					c.warn(n.item, "the literal path wins where both match: %s", literal[prefix])
				}
			}
			if strings.HasPrefix(segment, "{") {
				segment = "{}"
			}
			prefix += "/" + segment
		}
		if ambiguous > maxAmbiguous {
			c.fault(n.item, "at more than %d segments, a literal and a parameter are possible", maxAmbiguous)
		}
	}
}

// operation compiles one operation.
func (c *compiler) operation(base string, n *operationNode) *upstream.Operation {
	c.only(n.node, "operationId", "parameters", "responses", "security", "deprecated", "callbacks", "requestBody", "servers",
		extPublic, extAnswer, extTenant, extUnchecked, extDeprecated)
	op := &upstream.Operation{ID: n.id, Method: n.method, Path: base + n.path, Public: c.flag(n.get(extPublic)), Read: true}
	op.Resource, _, _ = strings.Cut(strings.TrimPrefix(n.path, "/"), "/")
	if c.o.Name != "" {
		op.Resource = c.o.Name + "/" + op.Resource
	}
	if n.method != http.MethodGet {
		c.fault(n.node, "%s cannot be served: only GET, which HEAD is answered as", n.method)
		return op
	}
	if body := n.get("requestBody"); body.Node != nil {
		c.fault(body, "GET has no body")
	}
	c.tenant = c.root.get(extTenant).text()
	if tenant := n.get(extTenant); tenant.Node != nil {
		c.tenant = tenant.text()
	}
	answer := n.get(extAnswer)
	op.ByGateway = answer.Node != nil
	switch {
	case op.ByGateway:
	case c.tenant == "":
		c.fault(n.node, "an operation without a tenant cannot be protected: %s is missing, here or for the document", extTenant)
	case op.Public && c.tenant != upstream.TenantNone:
		c.fault(n.get(extPublic), "needs %s, or %s: none, because the business of an unsigned request is not known", extAnswer, extTenant)
	default:
		op.Tenant = c.tenant
	}
	c.path(op, n)
	c.parameters(op, n)
	c.responses(op, n)
	c.deprecation(op, n)
	c.settle()
	best := map[*upstream.Schema]int{}
	for i := range op.Responses {
		c.nesting(op.Responses[i].Body, 1, best)
	}
	c.afterwards(op, n)
	if op.ByGateway {
		c.answer(op, answer)
	}
	return op
}

// path checks the template of a path.
func (c *compiler) path(op *upstream.Operation, n *operationNode) {
	if !strings.HasPrefix(n.path, "/") {
		c.fault(n.item, "the path must begin with a slash")
		return
	}
	for segment := range strings.SplitSeq(n.path[1:], "/") {
		name, isParameter := strings.CutPrefix(segment, "{")
		switch {
		case isParameter && strings.HasSuffix(name, "}") && len(name) > 1 && !strings.ContainsAny(name[:len(name)-1], "{}"):
			op.PathParams = append(op.PathParams, upstream.Param{Name: name[:len(name)-1]})
		case !literalSegment(segment):
			c.fault(n.item, "each segment of a path must be a parameter such as {id}, or letters, digits and -._~!$&'()*+,=:@")
		}
	}
	if len(op.PathParams) > upstream.MaxPathParams {
		c.fault(n.item, "at most %d parameters of a path", upstream.MaxPathParams)
		op.PathParams = op.PathParams[:upstream.MaxPathParams]
	}
}

// parameters compiles the parameters of an operation and of its path.
func (c *compiler) parameters(op *upstream.Operation, n *operationNode) {
	seen := map[string]bool{}
	own := n.get("parameters").items()
	count := len(own)
	for i, reference := range slices.Concat(own, n.item.get("parameters").items()) {
		p := c.resolve(reference)
		if p.Node == nil {
			continue
		}
		name, in := p.get("name").text(), p.get("in").text()
		if key := in + " " + name; seen[key] {
			if i < count {
				c.fault(reference, "the parameter %s stands here twice", name)
			}
			continue // that of the operation replaces that of the path
		}
		seen[in+" "+name] = true
		c.parameter(op, p, name, in)
	}
	// Parameters of a path come after those of the operation, but the order of forwarding does not matter to anyone.
	for _, p := range op.PathParams {
		if p.Schema == nil {
			c.fault(n.node, "the parameter %s of the path is not declared", p.Name)
		}
	}
	op.PathParams = slices.DeleteFunc(op.PathParams, func(p upstream.Param) bool { return p.Schema == nil })
}

func (c *compiler) parameter(op *upstream.Operation, p node, name, in string) {
	c.only(p, "name", "in", "required", "schema", "content", "style", "explode", "allowReserved", "allowEmptyValue", "deprecated", extClamp)
	required := c.flag(p.get("required"))
	if name == "" {
		c.fault(p, "a parameter needs a name")
		return
	}
	switch in {
	case "header":
		switch canonical := http.CanonicalHeaderKey(name); {
		case slices.Contains([]string{"Accept", "Content-Type", "Authorization"}, canonical): // ignored, says OpenAPI
		case slices.Contains(requestHeaders, canonical):
			op.Headers = append(op.Headers, canonical)
		case required:
			c.fault(p, "the header %s is required, but only these are forwarded: %s", name, strings.Join(requestHeaders, ", "))
		default:
			c.warn(p, "the header %s is not forwarded", name)
		}
		return
	case "path":
		i := slices.IndexFunc(op.PathParams, func(own upstream.Param) bool { return own.Name == name })
		if i < 0 {
			c.fault(p, "the path has no parameter {%s}", name)
			return
		}
		if own := c.value(p, name, true); own != nil && !own.Array {
			op.PathParams[i] = *own
		} else {
			c.fault(p, "a parameter of a path must be a string, an integer, a number or a boolean")
			op.PathParams[i].Schema = upstream.AnyJSON()
		}
		return
	case "query":
	default:
		c.fault(p.get("in"), "%q cannot be enforced: possible are query, path and header", in)
		return
	}
	own := c.value(p, name, required)
	switch {
	case own == nil && required:
		c.fault(p, "the parameter %s is required, and can only be a string, an integer, a number, a boolean or an array of them in form style", name)
	case own == nil:
		c.warn(p, "the parameter %s is treated as unknown: only strings, integers, numbers, booleans and arrays of them in form style are checked", name)
	default:
		for _, p := range op.Params {
			if own.Number = max(own.Number, p.Number); p.Name == name {
				return
			}
		}
		if !own.Array && own.Schema.Types&(upstream.TypeInteger|upstream.TypeNumber|upstream.TypeString|upstream.TypeBoolean) == upstream.TypeInteger &&
			own.Number < upstream.MaxNumbers {
			own.Number++
		} else {
			own.Number = 0
		}
		op.Params = append(op.Params, *own)
	}
}

// value compiles the schema of a parameter. It returns nil if the parameter is of another kind than those that are enforced.
func (c *compiler) value(p node, name string, required bool) *upstream.Param {
	n := p.get("schema")
	style := p.get("style").text()
	if n.Node == nil || p.get("content").Node != nil || style != "" && style != "form" && style != "simple" {
		return nil
	}
	s := c.schema(n)
	param := &upstream.Param{Name: name, Required: required, MaxBytes: upstream.MaxText}
	if s.Choice == nil && s.Types&^upstream.TypeNull == upstream.TypeArray && s.Items != nil {
		explode := p.get("explode")
		param.Array, param.Exploded = true, explode.Node == nil || c.flag(explode)
		param.MaxItems = upstream.MaxParamItems
		if s.Rules != nil {
			param.MinItems = s.Rules.MinItems
			if s.Rules.MaxItems >= 0 {
				param.MaxItems = min(s.Rules.MaxItems, upstream.MaxParamItems)
			}
		}
		s = s.Items
	}
	const scalars = upstream.TypeString | upstream.TypeInteger | upstream.TypeNumber | upstream.TypeBoolean
	if s.Choice != nil || s.Types&^upstream.TypeNull&^scalars != 0 || s.Types&scalars == 0 || s.FreeJSON() {
		return nil
	}
	if param.Schema = s; c.o.byteLengths && s.Rules != nil && s.Rules.MaxLength >= 0 {
		param.MaxBytes = min(s.Rules.MaxLength, upstream.MaxText)
	}
	if c.flag(p.get(extClamp)) {
		param.Clamp = true
		if s.Types&scalars != upstream.TypeInteger || s.Rules == nil || param.Array {
			c.fault(p.get(extClamp), "needs an integer with minimum and maximum")
			return param
		}
		param.Min, param.Max = c.integer(n, s.Rules.Min), c.integer(n, s.Rules.Max)
	}
	c.defaults(param, n)
	return param
}

func (c *compiler) integer(n node, text string) int {
	number, err := strconv.Atoi(text)
	if err != nil {
		c.fault(n, "needs minimum and maximum, which are integers")
	}
	return number
}

// defaults compiles the default of a parameter, which must be valid.
func (c *compiler) defaults(p *upstream.Param, n node) {
	value := n.get("default")
	if value.Node == nil {
		value = c.follow(n).get("default")
	}
	switch {
	case value.Node == nil:
	case p.Array:
		p.Default = value.texts()
	case value.text() != "":
		p.Default = []string{value.text()}
	}
	for _, text := range p.Default {
		if why := p.Schema.Accepts(text); why != "" {
			c.fault(value, "the default %s", why)
		}
	}
}

// deprecation compiles when an operation was deprecated and will be removed.
func (c *compiler) deprecation(op *upstream.Operation, n *operationNode) {
	d := n.get(extDeprecated)
	deprecated := c.flag(n.get("deprecated"))
	if d.Node == nil {
		return
	}
	c.only(d, "since", "sunset", "link")
	if !deprecated {
		c.fault(d, "needs deprecated: true")
	}
	var times [2]time.Time
	for i, name := range []string{"since", "sunset"} {
		value := d.get(name)
		if value.Node == nil {
			continue
		}
		at, err := time.Parse(time.DateOnly, value.text())
		if err != nil {
			if at, err = time.Parse(time.RFC3339, value.text()); err != nil {
				c.fault(value, "must be a date such as 2027-01-31 or a time such as 2027-01-31T12:00:00Z")
			}
		}
		times[i] = at
	}
	if times[0].IsZero() {
		c.fault(d, "since is missing")
		return
	}
	op.Deprecated = upstream.DeprecationHeaders(times[0], times[1], d.get("link").text())
}

// responses compiles the documented responses.
func (c *compiler) responses(op *upstream.Operation, n *operationNode) {
	var unchecked []string
	for _, media := range n.get(extUnchecked).items() {
		unchecked = append(unchecked, media.text())
	}
	if u := n.get(extUnchecked); u.Node != nil && len(unchecked) == 0 {
		c.fault(u, "must be a list of media types")
	}
	success, all := false, n.get("responses")
	for _, e := range all.entries() {
		status, err := strconv.Atoi(e.name)
		switch name := strings.ToUpper(e.name); {
		case strings.HasPrefix(e.name, "x-"):
			continue
		case name == "DEFAULT" && all.get("4XX").Node == nil, name == "4XX":
			status = 4
		case name == "2XX":
			status, success = 2, true
		case name == "DEFAULT" || name == "1XX" || name == "3XX" || name == "5XX":
			continue
		case err != nil || len(e.name) != 3 || status < 100 || status > 599:
			c.fault(e.value, "%q is not a status code", e.name)
			continue
		case status >= 200 && status < 300:
			success = true
		case status < 400 || status >= 500 || status == http.StatusUnauthorized || status == http.StatusProxyAuthRequired:
			continue // another response leaves instead, whatever the data service sends
		}
		op.Responses = append(op.Responses, c.response(op, c.resolve(e.value), status, unchecked))
	}
	if !success {
		c.fault(n.node, "a successful response is missing")
	}
	// Exact codes come before ranges.
	slices.SortStableFunc(op.Responses, func(a, b upstream.DocumentedResponse) int {
		return cmp.Compare(b2i(a.Status < 10), b2i(b.Status < 10))
	})
}

func b2i(b bool) int { return map[bool]int{true: 1}[b] }

func (c *compiler) response(op *upstream.Operation, n node, status int, unchecked []string) upstream.DocumentedResponse {
	c.only(n, "content", "headers", "links", extRecords, extPage)
	r := upstream.DocumentedResponse{Status: status}
	for _, e := range n.get("headers").entries() {
		switch name := http.CanonicalHeaderKey(e.name); {
		case name == "Etag":
			r.ETag = true
		case name == "Location":
			r.Location = true
		case name == "Retry-After" || name == "Content-Type":
		default:
			c.warn(e.value, "the header %s does not leave: possible are %s", e.name, strings.Join(responseHeaders, ", "))
		}
	}
	var schema node
	for _, e := range n.get("content").entries() {
		media, _, err := mime.ParseMediaType(e.name)
		switch {
		case err != nil:
			c.fault(e.value, "%q is not a media type", e.name)
		case slices.Contains(unchecked, media):
			r.Unchecked = append(r.Unchecked, media)
		case media != "application/json" && !strings.HasSuffix(media, "+json"):
			if n.get("content").get("application/json").Node == nil {
				c.fault(e.value, "%s cannot be enforced: possible are application/json, and other types with %s", e.name, extUnchecked)
			} else {
				c.warn(e.value, "%s does not leave", e.name)
			}
		case r.Body != nil:
			c.warn(e.value, "is taken for the first JSON of this response")
		default:
			c.only(e.value, "schema", "encoding")
			schema = e.value.get("schema")
			r.Body, r.PlusJSON = c.used(schema), media != "application/json"
		}
	}
	if status >= 200 && status < 300 && !op.ByGateway {
		c.records(op, &r, n, schema)
	} else if records := n.get(extRecords); records.Node != nil {
		c.fault(records, "is for the successful responses of data services")
	}
	return r
}

// afterwards checks what can be said only when the schemas of an operation are complete.
func (c *compiler) afterwards(op *upstream.Operation, n *operationNode) {
	for _, check := range c.checks {
		check()
	}
	c.checks = nil
	if op.Tenant == "" || op.Tenant == upstream.TenantByService || op.Tenant == upstream.TenantNone {
		return
	}
	for i := range op.Responses {
		r := &op.Responses[i]
		if r.Status/100 != 2 && r.Status != 2 || r.Body == nil || r.Records != nil {
			continue
		}
		if r.Unchecked != nil {
			c.fault(n.get(extUnchecked), "what is not checked needs %s: request, or none", extTenant)
		}
		if !owned(r.Body, map[*upstream.Schema]bool{}) {
			c.fault(n.node, "no object of the successful response declares the tenant %s", op.Tenant)
		}
	}
}

// owned reports whether an object below a schema has a tenant.
func owned(s *upstream.Schema, seen map[*upstream.Schema]bool) bool {
	if s == nil || seen[s] {
		return false
	}
	seen[s] = true
	if s.Tenant != "" || owned(s.Items, seen) || owned(s.Additional, seen) {
		return true
	}
	for i := range s.Properties {
		if !s.Properties[i].Internal && owned(s.Properties[i].Schema, seen) {
			return true
		}
	}
	return s.Choice != nil && slices.ContainsFunc(s.Choice.Alternatives, func(a *upstream.Schema) bool { return owned(a, seen) })
}

// records compiles where the records of a response are, and how they are compared with what was asked for.
func (c *compiler) records(op *upstream.Operation, r *upstream.DocumentedResponse, n, schema node) {
	records, pages := n.get(extRecords), n.get(extPage)
	if r.Body == nil || records.Node == nil && pages.Node == nil {
		if records.Node != nil || pages.Node != nil {
			c.fault(n, "the response has no body that is checked")
		}
		return
	}
	if pages.Node != nil {
		r.Body = c.pages(op, r.Body, pages)
	}
	if records.Node == nil {
		return
	}
	c.only(records, "in", "order", "at_most", "is")
	r.Records = &upstream.Records{In: records.get("in").text(), Most: c.o.MaxItems}
	if at := records.get("at_most"); at.Node != nil {
		r.Records.AtMost = c.numbered(op, at)
	}
	r.Records.Order = records.get("order").texts()
	for i, e := range records.get("is").entries() {
		if r.Records.Is, r.Records.IsFrom = e.name, e.value.text(); i > 0 {
			c.fault(e.value, "only one member can be compared")
		}
		if !slices.ContainsFunc(op.PathParams, func(p upstream.Param) bool { return p.Name == r.Records.IsFrom }) {
			c.fault(e.value, "is not a parameter of the path")
		}
	}
	result := r.Records
	body := r.Body
	c.checks = append(c.checks, func() { c.checkRecords(op, body, result, records) })
}

// checkRecords checks where the records are.
func (c *compiler) checkRecords(op *upstream.Operation, body *upstream.Schema, r *upstream.Records, n node) {
	list := body
	if r.In != "" {
		p := body.Property(r.In)
		if p == nil || p.Internal {
			c.fault(n, "the schema of the response has no member %q", r.In)
			return
		}
		list = p.Schema
	}
	record, isList := list, list.Choice == nil && list.Types&upstream.TypeArray != 0 && list.Items != nil
	if isList {
		record = list.Items
		if list.Rules != nil && list.Rules.MaxItems >= 0 {
			r.Most = min(r.Most, list.Rules.MaxItems)
		}
	}
	switch {
	case record.Choice != nil || record.Types&upstream.TypeObject == 0 || record.FreeJSON():
		c.fault(n, "the records must be objects with members of their own")
		return
	case !isList && (len(r.Order) > 0 || r.AtMost > 0):
		c.fault(n, "order and at_most are for lists")
	case isList && r.Is != "":
		c.fault(n.get("is"), "is for one record")
	case op.Tenant != upstream.TenantByService && op.Tenant != upstream.TenantNone && record.Tenant == "":
		c.fault(n, "the records must declare the tenant %s", op.Tenant)
	}
	for i, name := range r.Order {
		if p := record.Property(name); p == nil || p.Schema.Format != upstream.FormatInstant {
			c.fault(n.get("order").items()[i], "must be a declared member with the format utc-date-time")
		}
	}
	if r.Is != "" && record.Property(r.Is) == nil {
		c.fault(n.get("is"), "%s is not a declared member", r.Is)
	}
}

// numbered returns Param.Number of a parameter that is an integer.
func (c *compiler) numbered(op *upstream.Operation, n node) int {
	for _, p := range op.Params {
		if p.Name == n.text() && p.Number > 0 && (p.Required || p.Default != nil) {
			return p.Number
		}
	}
	c.fault(n, "must be a parameter that is an integer, and required or with a default; one of the first %d of the operation", upstream.MaxNumbers)
	return 0
}

// pages returns the schema of a response with the comparisons of x-gatehouse-page: it is of this operation alone.
func (c *compiler) pages(op *upstream.Operation, body *upstream.Schema, pages node) *upstream.Schema {
	own := *body
	c.about[&own] = &about{node: pages, typed: true, shaped: true}
	c.checks = append(c.checks, func() {
		about := *c.about[body]
		own, *c.about[&own] = *body, about
		for _, page := range pages.items() {
			c.page(op, &own, page)
		}
	})
	return &own
}

func (c *compiler) page(op *upstream.Operation, body *upstream.Schema, page node) {
	asked := page.get("request")
	number := 0
	if cursor := page.get("cursor"); cursor.Node != nil {
		c.only(page, "cursor", "response")
		if !slices.ContainsFunc(op.Params, func(p upstream.Param) bool { return p.Name == cursor.text() }) {
			c.fault(cursor, "is not a parameter")
		}
	} else {
		c.only(page, "request", "response")
		number = c.numbered(op, asked)
	}
	s := body
	names := strings.Split(strings.TrimPrefix(page.get("response").text(), "/"), "/")
	for i, name := range names {
		at := slices.IndexFunc(s.Properties, func(p upstream.Property) bool { return p.Name == name && !p.Internal })
		if at < 0 {
			c.fault(page.get("response"), "is not a member of the response")
			return
		}
		s.Properties = slices.Clone(s.Properties)
		p := &s.Properties[at]
		if i == len(names)-1 {
			if p.Number = number; number > 0 && p.Schema.Types&^upstream.TypeNull != upstream.TypeInteger {
				c.fault(page.get("response"), "must be an integer")
			}
			return
		}
		own := *p.Schema
		c.about[&own], p.Schema = c.about[p.Schema], &own
		s = &own
	}
}

// answer compiles the answer of the gateway itself.
func (c *compiler) answer(op *upstream.Operation, n node) {
	var body *upstream.Schema
	for i := range op.Responses {
		if op.Responses[i].Status == http.StatusOK {
			body = op.Responses[i].Body
		}
	}
	switch {
	case body == nil:
		c.fault(n, "needs a response with status 200 and a JSON body")
	case n.isObject():
		op.Answer = c.constant(n)
		if err := upstream.CheckAnswer(op); err != nil {
			c.fault(n, "does not match the schema: %v", err)
		}
	case n.text() != "identity":
		c.fault(n, "must be identity or an object")
	case op.Public:
		c.fault(n, "an operation that is public has no identity")
	case len(body.Properties) != 1 || slices.ContainsFunc(body.Properties[0].Schema.Properties, func(p upstream.Property) bool {
		return !slices.Contains([]string{"id", "name", "slug"}, p.Name)
	}):
		c.fault(n, "the response must have one object, with the members id, name and slug")
	}
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

// unbounded is the value of Options.MaxItems with which arrays have no bound.
const unbounded = math.MaxInt
