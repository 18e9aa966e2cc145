package definition

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/internal/similar"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// The media types of JSON, and the range of all media types (RFC 9110, section 12.5.1).
const mediaJSON, mediaPatch, anyMedia = "application/json", "application/merge-patch+json", "*/*"

// The possible dialects of schemas (OpenAPI 3.1, section 4.8.24.5): that of JSON Schema 2020-12, and versions of OpenAPI's own.
const dialect2020, dialectOAS = "https://json-schema.org/draft/2020-12/schema", "https://spec.openapis.org/oas/3.1/dialect/"

// maxAmbiguous is the maximum number of segments of a path where both a literal and a parameter are possible.
const maxAmbiguous = 8

// Methods of operations, request headers that reach the data service, response headers that reach the caller, where documented, and our extensions.
//
//nolint:gochecknoglobals // constants
var (
	methods         = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"} // of OpenAPI
	servedMethods   = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	requestHeaders  = []string{"Idempotency-Key", "If-Match", "If-None-Match", "Accept-Language"}
	responseHeaders = []string{"ETag", "Location"}

	extensions = []string{
		extTenant, extPublic, extAnswer, extRecords, extPage, extVisible, extInternal, extClamp, extUnchecked, extDeprecated, extRead, extUpstream,
		extEnforce, extFrom, extTool, extArea, extInstruct, extUntrusted,
	}
)

// compile compiles the selected operations: first all schemas, which may refer to each other, then what needs complete schemas.
func (c *compiler) compile(selected func(*operationNode) bool) (base string, all []*operationNode) {
	version := c.root.get("openapi")
	if swagger := c.root.get("swagger"); swagger.Node != nil && version.Node == nil {
		c.fault(swagger, "OpenAPI 2.0 (Swagger) is not possible: convert the document to 3.0 or 3.1")
		return "", nil
	}
	c.allowOnly(c.root, "openapi", "jsonSchemaDialect", "info", "servers", "paths", "components", "security", "webhooks", extTenant, extUpstream, extInstruct)
	if dialect := c.root.get("jsonSchemaDialect"); dialect.Node != nil && !strings.HasPrefix(dialect.text(), dialectOAS) && dialect.text() != dialect2020 {
		c.fault(dialect, "is not a possible dialect: must be %s, or begin with %s", dialect2020, dialectOAS)
	}
	if !strings.HasPrefix(version.text(), "3.0.") && !strings.HasPrefix(version.text(), "3.1.") {
		c.fault(version, "%q is not a possible version of OpenAPI: must be 3.0 or 3.1 with a third number, such as 3.0.3 or 3.1.0", version.text())
	}
	base = c.base()
	c.members(c.root.get("paths"))
	c.checkExtensions()
	c.string(c.root.get(extTenant))
	all = slices.DeleteFunc(c.operations(), func(n *operationNode) bool { return !selected(n) })
	for _, n := range all {
		c.checkPathItem(n.item)
	}
	c.checkTemplates(all)
	ids := map[string]int{} // their lines
	for _, n := range all {
		c.faultIf(ids[n.id] > 0, n.get("operationId"), "%s is the name of two operations: give this one another, or that in line %d", n.id, ids[n.id])
		ids[n.id] = n.get("operationId").line()
		c.operation(base, n)
	}
	c.resolvePostponed()
	for _, n := range all {
		for i := range n.op.Responses {
			c.finish(n.op.Responses[i].Body)
		}
		for _, kind := range n.op.Body.All() {
			c.finish(kind.Schema)
		}
	}
	for _, s := range c.choices {
		if c.infos[s].finished {
			c.decide(s)
		}
	}
	namesBusiness := func(n *operationNode) bool { return n.op.Mapping.NamesBusiness() }
	for _, n := range all {
		if c.finishOperation(n); n.op.TrustsService() && !namesBusiness(n) && slices.ContainsFunc(all, namesBusiness) {
			c.warn(n.node, "only X-Business-Id tells the service the business, and other operations have {business} in %s", extUpstream)
		}
	}
	for _, n := range all {
		if answer := n.get(extAnswer); answer.Node != nil {
			c.answer(n.op, answer)
		}
	}
	if c.o.Tools && len(c.faults) == 0 {
		c.makeTools(all)
	}
	c.faultIf(len(all) == 0 && len(c.faults) == 0, c.root.get("paths"), "no operation is served")
	return base, all
}

// checkExtensions reports extensions of ours where nothing reads them, such as one level too high, and warns of names that look like one.
func (c *compiler) checkExtensions() {
	components := c.root.get("components")
	places := slices.Concat([]node{c.root.get("info"), c.root.get("paths"), components}, c.root.get("servers").items())
	for _, e := range components.entries() {
		places = append(places, e.value)
	}
	for _, n := range places {
		c.noExtensions(n, "")
	}
	for _, tag := range c.root.get("tags").items() {
		c.noExtensions(tag, extArea)
	}
	known := map[string]bool{}
	c.root.each(func(n node) {
		for _, e := range n.entries() {
			switch {
			case !strings.HasPrefix(e.name, "x-") || strings.HasPrefix(e.name, extPrefix) || known[e.name] || !c.spend(20):
			case strings.ContainsFunc(e.name, func(r rune) bool { return r > unicode.MaxASCII }):
				c.warn(e.value, "%s is ignored: it has characters beyond ASCII, with which a name can look like %s…", e.name, extPrefix)
			case similar.Nearest(e.name, extensions) != "":
				c.warn(e.value, "%s is ignored: did you mean %s?", e.name, similar.Nearest(e.name, extensions))
			default:
				known[e.name] = true
			}
		}
	})
}

// noExtensions reports extensions of ours in an object that may have one at most.
func (c *compiler) noExtensions(n node, possible string) {
	for _, e := range n.entries() {
		c.faultIf(strings.HasPrefix(e.name, extPrefix) && e.name != possible, e.value, "%s has no effect here: put it into the operation, schema, parameter or response that it is for", e.name)
	}
}

// base returns the path of the first server.
func (c *compiler) base() string {
	all := c.list(c.root.get("servers"))
	if len(all) == 0 {
		return ""
	}
	url := all[0].get("url")
	path := serverPath(url.text())
	for _, other := range all[1:] {
		if serverPath(other.get("url").text()) != path {
			c.warn(other, "is ignored: the path of the first server holds for all operations")
		}
	}
	if path == "" {
		return ""
	}
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if c.faultIf(path[0] != '/' || !literalSegment(segment), url, "the path of the server must be one such as /api/v1, without variables: an overlay can replace it, with the target $.servers[0] and update: {url: /api/v1}") {
			break
		}
	}
	return path
}

// serverPath returns the path of a server's URL, without a slash at its end.
func serverPath(url string) string {
	if _, rest, ok := strings.Cut(url, "://"); ok {
		_, path, _ := strings.Cut(rest, "/")
		url = "/" + path
	}
	return strings.TrimSuffix(url, "/")
}

// literalSegment reports whether s can be a segment of a path as it is.
func literalSegment(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,=:@"
	return s != "" && s != "." && s != ".." && strings.Trim(s, allowed) == ""
}

// operationNode is an operation of a document.
type operationNode struct {
	node
	id, method, path string
	item             node // the path item
	op               *upstream.Operation
	parameters       []node       // parameters that are not ignored, or references to them; those of the path item come first
	responses        map[int]node // responses or references to them, by status
}

// operations returns all operations of the document.
func (c *compiler) operations() (all []*operationNode) {
	for _, path := range c.root.get("paths").entries() {
		if strings.HasPrefix(path.name, "x-") {
			continue
		}
		item, faults, others := path.value, len(c.faults), len(all)
		if item.get("$ref").Node != nil {
			c.allowOnly(item, "$ref") // operations beside it would be ignored
			if item = c.resolve(item); item.Node == nil {
				if len(c.o.Only) > 0 { // nothing of it is selected
					c.warnings, c.faults = append(c.warnings, c.faults[faults:]...), c.faults[:faults]
				}
				continue
			}
		}
		for _, e := range item.entries() {
			switch {
			case !slices.Contains(methods, e.name):
				continue
			case e.name == "head" && item.get("get").Node != nil:
				c.warn(e.value, "is ignored: HEAD gets the response of GET, without the body")
				continue
			}
			n := &operationNode{node: e.value, method: strings.ToUpper(e.name), path: path.name, item: item}
			if n.id = e.value.get("operationId").text(); n.id == "" {
				n.id = e.name + strings.NewReplacer("{", "", "}", "", "/", "_").Replace(path.name)
			}
			all = append(all, n)
		}
		if len(all) == others && len(c.o.Only) == 0 {
			c.checkPathItem(item)
		}
	}
	return all
}

// checkPathItem reports what else is in the path of an operation that is served.
func (c *compiler) checkPathItem(item node) {
	faults := len(c.faults)
	c.allowOnly(item, append(methods, "parameters", "servers")...)
	c.faulty[item.Node] = c.faulty[item.Node] || len(c.faults) > faults
}

// checkTemplates checks the templates of all paths for what makes matching them ambiguous.
func (c *compiler) checkTemplates(all []*operationNode) {
	paths := map[string]string{}    // by their form, in which {} stands for every parameter
	literals := map[string]string{} // a path that goes on with a literal, by what precedes it
	parameters := map[string]bool{} // whether a path goes on with a parameter, by what precedes it
	form := func(n *operationNode) string {
		segments := strings.Split(n.path, "/")
		for i, segment := range segments {
			if strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "}") {
				segments[i] = "{}"
			}
		}
		return strings.Join(segments, "/")
	}
	for _, n := range all {
		path := form(n)
		if other := paths[path]; other != "" && other != n.path {
			c.fault(n.item, "%s and %s are the same path", other, n.path)
		}
		paths[path] = n.path
		for i := range path {
			if strings.HasPrefix(path[i:], "/{}") {
				parameters[path[:i]] = true
			} else if path[i] == '/' && i < len(path)-1 {
				literals[path[:i]] = n.path
			}
		}
	}
	for _, n := range all {
		ambiguous, path := 0, form(n)
		for i := range path {
			literal := literals[path[:i]]
			if path[i] != '/' || literal == "" || !parameters[path[:i]] {
				continue
			}
			if ambiguous++; strings.HasPrefix(path[i:], "/{}") {
				c.warn(n.item, "the literal path wins where both match: %s", literal)
			}
		}
		c.faultIf(ambiguous > maxAmbiguous, n.item, "at more than %d segments, a literal and a parameter are possible", maxAmbiguous)
	}
}

// operation compiles one operation. What needs complete schemas is left to finishOperation.
func (c *compiler) operation(base string, n *operationNode) {
	if ref := n.get("$ref"); ref.Node != nil {
		if n.op = new(upstream.Operation); c.follow(n.node).Node != nil {
			c.fault(ref, "an operation cannot be referred to: write it here, or refer to its whole path")
		}
		return
	}
	c.allowOnly(n.node, "operationId", "parameters", "responses", "security", "deprecated", "callbacks", "requestBody", "servers",
		extPublic, extAnswer, extTenant, extUnchecked, extDeprecated, extRead, extUpstream, extEnforce, extTool)
	op := &upstream.Operation{ID: n.id, Method: n.method, Path: base + n.path, Public: c.flag(n.get(extPublic))}
	n.op = op
	c.string(n.get("operationId"))
	c.strings(n.get("tags"))
	op.Resource, _, _ = strings.Cut(strings.TrimPrefix(n.path, "/"), "/")
	if c.o.Name != "" {
		op.Resource = c.o.Name + "/" + op.Resource
	}
	for _, servers := range []node{n.get("servers"), n.item.get("servers")} {
		if servers.Node != nil {
			c.warn(servers, "is ignored: the path of the document's first server holds for all operations")
		}
	}
	if c.faultIf(!slices.Contains(servedMethods, n.method), n.node, "%s cannot be served: must be one of %s", n.method, strings.Join(servedMethods, ", ")) {
		return
	}
	read := n.get(extRead)
	op.Read = n.method == http.MethodGet || c.flag(read)
	c.faultIf(read.Node != nil && n.method != http.MethodPost, read, "is for POST only: GET always reads, and all other methods write")
	if op.Rights = fmt.Sprint(op.Resource, " ", op.Read, op.Public); c.o.Tools {
		op.Rights += fmt.Sprintf(" %q", areaOf(n))
		if n.get(extTool).Node != nil {
			op.Rights += n.id
		}
	}
	c.view = view{tenant: c.root.get(extTenant).text()}
	if tenant := n.get(extTenant); tenant.Node != nil {
		c.view.tenant = c.string(tenant)
	}
	op.ByGateway = n.get(extAnswer).Node != nil
	switch {
	case op.ByGateway && n.method != http.MethodGet:
		c.fault(n.get(extAnswer), "is for GET")
	case op.ByGateway:
		c.view.tenant = upstream.TenantNone // there is no record
	case c.view.tenant == "":
		c.fault(n.node, "an operation without a tenant cannot be protected: %s is missing, here or for the document", extTenant)
	case op.Public && c.view.tenant != upstream.TenantNone:
		c.fault(n.get(extPublic), "needs %s, or %s: none, because the business of an unsigned request is not known", extAnswer, extTenant)
	default:
		op.Tenant = c.view.tenant
	}
	c.enforcement(op, n.get(extEnforce))
	c.path(op, n)
	c.parameters(op, n)
	c.responses(op, n)
	c.mapping(op, n)
	c.requestBody(op, n.get("requestBody"))
	if m := op.Mapping; m != nil { // it says itself what the service gets
		op.LostParams = slices.DeleteFunc(op.LostParams, func(name string) bool {
			return slices.ContainsFunc(m.Query, func(v upstream.MappedValue) bool { return v.Name == name })
		})
	}
	c.deprecation(op, n)
}

// enforcement compiles which deviations of responses pass. The gateway's own answers have none.
func (c *compiler) enforcement(op *upstream.Operation, n node) {
	switch {
	case op.ByGateway && n.Node != nil:
		c.fault(n, "is for the responses of data services: the gateway answers this operation itself")
	case n.Node != nil:
		c.faultIf(op.Enforce.UnmarshalText([]byte(n.text())) != nil, n, "must be one of %s", strings.Join(upstream.Enforcements(), ", "))
	case !op.ByGateway:
		op.Enforce = c.o.Enforce
	}
	if c.o.Tools {
		op.Enforce = upstream.EnforceAll
	}
}

// path checks the template of a path.
func (c *compiler) path(op *upstream.Operation, n *operationNode) {
	if c.faultIf(!strings.HasPrefix(n.path, "/"), n.item, "the path must begin with a slash") {
		return
	}
	for segment := range strings.SplitSeq(strings.TrimSuffix(n.path[1:], "/"), "/") { // some frameworks end all paths with a slash
		name, isParameter := strings.CutPrefix(segment, "{")
		switch {
		case isParameter && strings.HasSuffix(name, "}") && len(name) > 1 && !strings.ContainsAny(name[:len(name)-1], "{}"):
			name = name[:len(name)-1]
			c.faultIf(slices.ContainsFunc(op.PathParams, func(p upstream.Param) bool { return p.Name == name }), n.item, "the path has the parameter {%s} twice", name)
			op.PathParams = append(op.PathParams, upstream.Param{Name: name})
		case !literalSegment(segment):
			c.fault(n.item, "each segment of a path must be a parameter such as {id}, or letters, digits and -._~!$&'()*+,=:@; a slash may follow the last one. Or write the operation under another path, with this one in %s", extUpstream)
		}
	}
	c.faultIf(strings.HasPrefix(n.path, "/{"), n.item, "the first segment of a path names the resource, and cannot be a parameter: write the operation under another path, with this one in %s", extUpstream)
	if len(op.PathParams) > upstream.MaxPathParams {
		c.fault(n.item, "at most %d parameters of a path", upstream.MaxPathParams)
		op.PathParams = op.PathParams[:upstream.MaxPathParams]
	}
}

// parameters compiles the parameters of an operation and of its path.
func (c *compiler) parameters(op *upstream.Operation, n *operationNode) {
	seen, complete := map[string]int{}, true
	own := c.list(n.get("parameters"))
	var ofPath, ofOperation []node
	for i, reference := range slices.Concat(own, c.list(n.item.get("parameters"))) {
		p := c.resolve(reference)
		if p.Node == nil {
			complete = false
			continue
		}
		name, in := p.get("name").text(), p.get("in").text()
		key := in + " " + name
		if in == "header" {
			key = in + " " + http.CanonicalHeaderKey(name)
		}
		if first, ok := seen[key]; ok { // that of the operation replaces that of the path
			c.faultIf((first < len(own)) == (i < len(own)), reference, "duplicate parameter %s", name)
			continue
		}
		seen[key] = i
		switch forwarded := c.parameter(op, n, p, name, in); {
		case forwarded && i < len(own):
			ofOperation = append(ofOperation, reference)
		case forwarded:
			ofPath = append(ofPath, reference)
		}
	}
	n.parameters = slices.Concat(ofPath, ofOperation)
	for _, p := range op.PathParams {
		c.faultIf(p.Schema == nil && complete, n.node, "the parameter %s of the path is not declared", p.Name)
	}
	op.PathParams = slices.DeleteFunc(op.PathParams, func(p upstream.Param) bool { return p.Schema == nil })
}

// parameter compiles a parameter, and reports whether it is used. Others are ignored.
func (c *compiler) parameter(op *upstream.Operation, n *operationNode, p node, name, in string) bool {
	c.allowOnly(p, "name", "in", "required", "schema", "content", "style", "explode", "allowReserved", "allowEmptyValue", "deprecated", extClamp)
	required := c.flag(p.get("required"))
	if clamp := p.get(extClamp); clamp.Node != nil && in != "query" {
		c.fault(clamp, "is for parameters of the query")
	}
	if c.faultIf(name == "", p, "a parameter needs a name") {
		return false
	}
	switch in {
	case "header":
		switch canonical := http.CanonicalHeaderKey(name); {
		case slices.Contains([]string{"Accept", "Content-Type", "Authorization"}, canonical): // OpenAPI says to ignore these
		case canonical == "Accept-Language" && !required: // forwarded by every operation
			return true
		case canonical == "If-Match" && op.Read:
			c.warn(p, "the header %s is not forwarded: 412 would tell of a record that the caller may not see", name)
		case slices.Contains(requestHeaders, canonical):
			own := c.compileParam(p, canonical, required)
			if c.faultIf(own == nil || own.Array, p, "a header must be a string, an integer, a number or a boolean") {
				return false
			}
			op.Headers = append(op.Headers, *own)
			return true
		case c.sendsHeader(op, n, canonical): // itself
		case required && (strings.Contains(canonical, "Idempot") || canonical == "Repeatability-Request-Id" || canonical == "Paypal-Request-Id"):
			c.fault(p, "the header %s is required, but callers can only send it as Idempotency-Key: rename the parameter in an overlay, and let header_up of the upstream set %[1]s from it", name)
		case required:
			c.fault(p, "the header %s is required, but only these are forwarded: %s. If the service needs it, set it with %s", name, strings.Join(requestHeaders, ", "), extUpstream)
		default:
			c.warn(p, "the header %s is not forwarded", name)
		}
		return false
	case "path":
		i := slices.IndexFunc(op.PathParams, func(own upstream.Param) bool { return own.Name == name })
		if i < 0 {
			if !strings.Contains(op.Path, "{"+name+"}") { // otherwise, it is only a part of a segment, which is a fault already
				c.fault(p, "the path has no parameter {%s}", name)
			}
			return false
		}
		own := c.compileParam(p, name, true)
		if own == nil || own.Array {
			c.fault(p, "a parameter of a path must be a string, an integer, a number or a boolean")
			own = &upstream.Param{Name: name, Schema: upstream.AnyJSON()}
		}
		c.checkSegment(p, own.Schema)
		op.PathParams[i] = *own
		return true
	case "query":
		c.checkMethod(op, p, name)
	default:
		c.fault(p.get("in"), "%q cannot be enforced: must be one of query, path or header", in)
		return false
	}
	own := c.compileParam(p, name, required)
	switch {
	case own == nil && required:
		c.fault(p, "the parameter %s is required, and can only be a string, an integer, a number, a boolean or an array of them in form style", name)
	case own == nil:
		c.warn(p, "the parameter %s is treated as unknown: only strings, integers, numbers, booleans and arrays of them in form style are checked", name)
		if !op.Read {
			op.LostParams = append(append(op.LostParams, name), c.membersInQuery(p)...)
		}
	default:
		for _, p := range op.Params {
			own.Number = max(own.Number, p.Number)
		}
		if !own.Array && own.Schema.Types&(upstream.TypeInteger|upstream.TypeNumber|upstream.TypeString|upstream.TypeBoolean) == upstream.TypeInteger &&
			own.Number < upstream.MaxNumbers {
			own.Number++
		} else {
			own.Number = 0
		}
		op.Params = append(op.Params, *own)
	}
	return own != nil
}

// checkSegment reports a fault if no value of a path's parameter can be a segment, and warns of documented values that cannot. Assistants may send others.
func (c *compiler) checkSegment(p node, s *upstream.Schema) {
	values := constants(&upstream.Property{Schema: s})
	others := slices.DeleteFunc(append([]string{p.get("example").text(), p.get("schema").get("example").text()}, values...), func(value string) bool {
		return value == "" || upstream.IsSegment(value)
	})
	formats := []upstream.Format{upstream.FormatDateTime, upstream.FormatInstant, upstream.FormatTime, upstream.FormatTimeOfDay, upstream.FormatEmail, upstream.FormatURI}
	never := slices.Contains(formats, s.Format) || values != nil && !slices.ContainsFunc(values, upstream.IsSegment) || s.Rules != nil && s.Rules.MinLength > 128
	switch {
	case c.o.Tools:
	case never && s.Types == upstream.TypeString:
		c.fault(p, "no value can be in a path, where callers may send 1 to 128 letters, digits and -._~ only")
	case len(others) > 0:
		c.warn(p, "%q cannot be in a path: it gets 404", others[0])
	}
}

// sendsHeader reports whether the gateway sends a header to the service itself, so that callers need not.
func (c *compiler) sendsHeader(op *upstream.Operation, n *operationNode, name string) bool {
	if name == "X-Business-Id" || name == "X-Request-Id" {
		return !op.ByGateway
	}
	return slices.ContainsFunc([]node{c.root.get(extUpstream), n.get(extUpstream)}, func(ext node) bool {
		return slices.ContainsFunc(ext.get("headers").entries(), func(e entry) bool {
			return http.CanonicalHeaderKey(e.name) == name && !(op.Public && strings.Contains(e.value.text(), "{business}"))
		})
	})
}

// membersInQuery returns the members that an object in form style is sent as, without its own name.
func (c *compiler) membersInQuery(p node) (names []string) {
	style, explode := p.get("style").text(), p.get("explode")
	if p.get("schema").Node == nil || style != "" && style != "form" || explode.Node != nil && !c.flag(explode) {
		return nil
	}
	for _, s := range c.leaves([]*upstream.Schema{c.schema(p.get("schema"))}, upstream.TypeObject) {
		c.faultIf(s.Additional != nil, p, "its members can have any name, and the operation would do something else without them: list them as parameters, or as members of an object")
		for _, member := range s.Properties {
			names = append(names, member.Name)
		}
	}
	return names
}

// compileParam compiles the schema of a parameter. It returns nil if a parameter of this kind cannot be enforced.
func (c *compiler) compileParam(p node, name string, required bool) *upstream.Param {
	n := p.get("schema")
	style := p.get("style").text()
	if n.Node == nil || p.get("content").Node != nil || style != "" && style != "form" && style != "simple" {
		return nil
	}
	s := withoutNull(c.schema(n))
	if c.infos[s] == nil || c.infos[s].active {
		return nil
	}
	param := &upstream.Param{Name: name, Required: required, MaxBytes: upstream.MaxText, Description: oneLine(p.get("description").text())}
	if s.Choice == nil && s.Types&^upstream.TypeNull == upstream.TypeArray && s.Items != nil {
		explode := p.get("explode")
		param.Array, param.Exploded = true, explode.Node == nil || c.flag(explode)
		param.MaxItems = upstream.MaxParamItems
		if s.Rules != nil {
			param.MinItems = s.Rules.MinItems
			if s.Rules.MaxItems >= 0 {
				param.MaxItems = min(s.Rules.MaxItems, upstream.MaxParamItems)
			}
			param.Unique = s.Rules.Unique
		}
		s = withoutNull(s.Items)
	}
	const scalars = upstream.TypeString | upstream.TypeInteger | upstream.TypeNumber | upstream.TypeBoolean
	if s.Choice != nil || s.Types&^upstream.TypeNull&^scalars != 0 || s.Types&scalars == 0 || c.infos[s] == nil || c.infos[s].active {
		return nil
	}
	c.faultIf(isContradictory(s) || hasNoValue(s) || param.MinItems > param.MaxItems, n, "no value can be valid: its rules contradict each other")
	if param.Schema = s; c.o.byteLengths && s.Rules != nil && s.Rules.MaxLength >= 0 {
		param.MaxBytes = min(s.Rules.MaxLength, upstream.MaxText)
	}
	if clamp := p.get(extClamp); c.flag(clamp) {
		param.Clamp = true
		if s.Types&scalars != upstream.TypeInteger || s.Rules == nil || param.Array || s.Rules.MinOpen || s.Rules.MaxOpen {
			c.fault(clamp, "needs an integer with minimum and maximum")
			return param
		}
		var err1, err2 error
		param.Min, err1 = strconv.Atoi(s.Rules.Min)
		if param.Max, err2 = strconv.Atoi(s.Rules.Max); err1 != nil || err2 != nil {
			c.fault(clamp, "needs minimum and maximum, which are integers")
			return param
		}
	}
	c.defaults(param, n)
	return param
}

// withoutNull returns the only alternative of a choice that is not null: no text of a query is null. FastAPI writes such choices.
func withoutNull(s *upstream.Schema) *upstream.Schema {
	for range maxNested {
		if s.Choice == nil {
			break
		}
		others := slices.DeleteFunc(slices.Clone(s.Choice.Alternatives), func(a *upstream.Schema) bool { return a.Types == upstream.TypeNull })
		if len(others) != 1 {
			break
		}
		s = others[0]
	}
	return s
}

// defaults compiles the default of a parameter, which must be valid.
func (c *compiler) defaults(p *upstream.Param, n node) {
	value := n.get("default")
	for i := 0; value.Node == nil && n.get("$ref").Node != nil && i < maxReferences; i++ {
		n = c.follow(n)
		value = n.get("default")
	}
	switch {
	case value.Node == nil || value.Tag == "!!null":
	case p.Array:
		if p.Default = c.strings(value); len(p.Default) < p.MinItems || len(p.Default) > p.MaxItems {
			c.fault(value, "the default has another number of items than the schema allows")
		} else if p.Unique && len(slices.Compact(slices.Sorted(slices.Values(p.Default)))) < len(p.Default) {
			c.fault(value, "the default has the same item twice")
		}
	case value.Kind != yaml.ScalarNode:
		c.fault(value, "the default must be a string, a number, true or false")
	case value.text() != "":
		p.Default = []string{value.text()}
	}
	for _, text := range p.Default {
		if why := p.Schema.InvalidReason(text); why != "" {
			c.fault(value, "the default %s", why)
		}
	}
}

// requestBody compiles the bodies that an operation accepts.
func (c *compiler) requestBody(op *upstream.Operation, n node) {
	if n.Node == nil {
		return
	}
	reference := n
	if n = c.resolve(n); n.Node == nil {
		return
	}
	if op.Method == http.MethodGet {
		if !c.faultIf(c.flag(n.get("required")), reference, "GET has no body") {
			c.warn(reference, "is ignored: GET has no body")
		}
		return
	}
	c.allowOnly(n, "content", "required")
	op.Body = &upstream.RequestBody{Required: c.flag(n.get("required"))}
	defer func(before view) { c.view = before }(c.view)
	if c.view.request = true; !op.Public && tenantMember(c.view.tenant) == "" { // the business is known, whatever the records say
		c.view.tenant = c.root.get(extTenant).text()
	}
	c.view.business = c.businessNames(op)
	op.Body.Business = bytes.Split([]byte(c.view.business), []byte{0xff})[1:]
	isPossible := func(e entry) bool { return e.name == mediaJSON || e.name == mediaPatch }
	content := c.content(n)
	for _, e := range content {
		switch {
		case slices.ContainsFunc(op.Body.Kinds, func(kind upstream.BodyKind) bool { return kind.Media == e.name }):
			c.warn(e.value, "is taken for the first %s of this body", e.name)
		case isPossible(e):
			c.allowOnly(e.value, "schema", "encoding")
			c.faultIf(c.hidden(e.value.get("schema"), true), reference, "is readOnly: no body would be accepted")
			op.Body.Kinds = append(op.Body.Kinds, upstream.BodyKind{Media: e.name, Schema: c.schema(e.value.get("schema"))})
		case slices.ContainsFunc(content, isPossible):
			c.warn(e.value, "%s is not accepted: must be %s or %s", e.name, mediaJSON, mediaPatch)
		case isJSON(e.name):
			c.fault(e.value, "%s cannot be enforced: must be %s or %s. If the service takes it as %[2]s, add that in an overlay", e.name, mediaJSON, mediaPatch)
		default:
			c.fault(e.value, "%s cannot be enforced: must be %s or %s", e.name, mediaJSON, mediaPatch)
		}
	}
	c.faultIf(len(n.get("content").entries()) == 0, n.get("content"), "a media type is missing")
}

// content returns the entries of content, named by media types without parameters.
func (c *compiler) content(n node) []entry {
	content := c.resolve(n.get("content"))
	c.noExtensions(content, "")
	all := slices.DeleteFunc(c.members(content), func(e entry) bool { return strings.HasPrefix(e.name, "x-") && !strings.Contains(e.name, "/") })
	for i, media := range mediaTypes(all) {
		switch e := all[i]; {
		case media == "":
			c.fault(e.value, "%q is not a media type", e.name)
		case media == mediaJSON && strings.HasPrefix(e.name, anyMedia):
			c.warn(e.value, "%s is read as %s", anyMedia, mediaJSON)
		}
		all[i].name, all[i].value = media, c.resolve(all[i].value)
	}
	return slices.DeleteFunc(all, func(e entry) bool { return e.name == "" || e.value.Node == nil })
}

// mediaTypes returns the media types of content, in lower case and without parameters, and "" for what is not one. The range of all media
// types is JSON's, unless JSON stands beside it: springdoc writes it for what a controller returns.
func mediaTypes(content []entry) []string {
	all := make([]string, len(content))
	for i, e := range content {
		if media, _, err := mime.ParseMediaType(e.name); err == nil {
			all[i] = media
		}
	}
	if i := slices.Index(all, anyMedia); i >= 0 && !slices.ContainsFunc(all, isJSON) {
		all[i] = mediaJSON
	}
	return all
}

func isJSON(media string) bool { return media == mediaJSON || strings.HasSuffix(media, "+json") }

// partialSchema returns the schema of a merge patch, which has no required members (RFC 7396). In nested objects, members stay required.
func (c *compiler) partialSchema(s *upstream.Schema) *upstream.Schema {
	if s.FreeJSON() {
		return s
	}
	if own := c.partials[s]; own != nil {
		return own
	}
	own := c.clone(s)
	c.partials[s] = own
	own.Properties = slices.Clone(s.Properties)
	for i := range own.Properties {
		own.Properties[i].Required = false
	}
	if s.Choice != nil {
		choice := *s.Choice
		choice.Alternatives, choice.Values = nil, maps.Clone(s.Choice.Values)
		for _, alternative := range s.Choice.Alternatives {
			patch := c.partialSchema(alternative)
			choice.Alternatives = append(choice.Alternatives, patch)
			for value, of := range choice.Values {
				if of == alternative {
					choice.Values[value] = patch
				}
			}
		}
		own.Choice = &choice
	}
	return own
}

// deprecation compiles when an operation was deprecated and will be removed.
func (c *compiler) deprecation(op *upstream.Operation, n *operationNode) {
	d := n.get(extDeprecated)
	deprecated := c.flag(n.get("deprecated"))
	if d.Node == nil {
		return
	}
	c.allowOnly(d, "since", "sunset", "link")
	c.faultIf(!deprecated, d, "needs deprecated: true")
	since, sunset := c.time(d.get("since")), c.time(d.get("sunset"))
	if c.faultIf(since.IsZero(), d, "since is missing") {
		return
	}
	c.faultIf(!sunset.IsZero() && sunset.Before(since), d.get("sunset"), "the sunset must not be before the deprecation")
	link := c.string(d.get("link"))
	if uri := (upstream.Schema{Types: upstream.TypeString, Format: upstream.FormatURI}); link != "" && uri.InvalidReason(link) != "" {
		c.fault(d.get("link"), "must be the URL of a page")
	}
	op.Deprecated = upstream.DeprecationHeaders(since, sunset, link)
}

// time returns a date or a time, by default the zero one.
func (c *compiler) time(n node) time.Time {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, n.text()); err == nil {
			return at
		}
	}
	c.faultIf(n.Node != nil, n, "must be a date such as 2027-01-31 or a time such as 2027-01-31T12:00:00Z")
	return time.Time{}
}

// responses compiles the documented responses.
func (c *compiler) responses(op *upstream.Operation, n *operationNode) {
	list := n.get(extUnchecked)
	unchecked := c.strings(list)
	c.faultIf(list.Node != nil && len(unchecked) == 0, list, "must be a list of media types, such as [application/pdf]")
	success, all := false, n.get("responses")
	n.responses = map[int]node{}
	isClientError := func(e entry) bool { return strings.EqualFold(e.name, "4XX") }
	c.noExtensions(all, "")
	for _, e := range c.members(all) {
		status, err := strconv.Atoi(e.name)
		switch name := strings.ToUpper(e.name); {
		case strings.HasPrefix(e.name, "x-"):
			continue
		case name == "DEFAULT" && !slices.ContainsFunc(all.entries(), isClientError), name == "4XX":
			status = 4
		case name == "2XX":
			status, success = 2, true
		case name == "DEFAULT" || name == "1XX" || name == "3XX" || name == "5XX":
			c.noExtensions(e.value, "")
			continue
		case err != nil || len(e.name) != 3 || status < 100 || status > 599:
			c.fault(e.value, "%q is not a status code", e.name)
			continue
		case status >= 200 && status < 300:
			success = true
		case status < 400 || status >= 500 || status == http.StatusUnauthorized || status == http.StatusProxyAuthRequired:
			c.noExtensions(e.value, "")
			if status > 300 && status < 400 && status != http.StatusNotModified {
				c.warn(e.value, "becomes 502: redirects do not reach callers. Let an adapter send what they lead to, or serve the path with gatehouse_auth")
			}
			continue // not forwarded as documented: see Operation.CheckHeader
		}
		if c.faultIf(n.responses[status].Node != nil, e.value, "is documented above in another case") {
			continue
		}
		if value := c.resolve(e.value); value.Node != nil {
			n.responses[status] = e.value
			op.Responses = append(op.Responses, c.response(value, status, unchecked))
		}
	}
	c.faultIf(!success, n.node, "a successful response is missing: document it, such as 200 or 204")
	items := list.items()
	for i, media := range unchecked {
		used := slices.ContainsFunc(op.Responses, func(r upstream.DocumentedResponse) bool { return slices.Contains(r.Unchecked, media) })
		c.faultIf(!used, items[i], "no response has the media type %s", media)
		c.faultIf(isJSON(media), items[i], "%s is always checked: give it a schema", media)
	}
	// Exact codes come before ranges.
	slices.SortStableFunc(op.Responses, func(a, b upstream.DocumentedResponse) int {
		return cmp.Compare(b2i(a.Status < 10), b2i(b.Status < 10))
	})
}

func b2i(b bool) int { return map[bool]int{true: 1}[b] }

func (c *compiler) response(n node, status int, unchecked []string) upstream.DocumentedResponse {
	c.allowOnly(n, "content", "headers", "links", extRecords, extPage)
	r := upstream.DocumentedResponse{Status: status}
	for _, e := range c.members(n.get("headers")) {
		c.noExtensions(e.value, "")
		switch name := http.CanonicalHeaderKey(e.name); {
		case name == "Etag":
			r.ETag = true
		case name == "Location":
			r.Location = true
		case name == "Content-Type", name == upstream.HeaderRequestID: // the gateway sends its own
		case name == "Content-Disposition" && unchecked != nil: // of a body that is passed on
		case name == "Retry-After" && (status == http.StatusTooManyRequests || status == 4): // leaves with 429
		default:
			c.warn(e.value, "the header %s does not reach callers: must be one of %s", e.name, strings.Join(responseHeaders, ", "))
		}
	}
	content := c.content(n)
	for _, e := range content {
		switch media := e.name; {
		case status == http.StatusNoContent || status == http.StatusResetContent:
			c.warn(e.value, "does not reach callers: a response with status %d has no body", status)
		case slices.Contains(unchecked, media):
			if r.Unchecked = append(r.Unchecked, media); slices.ContainsFunc(content, func(e entry) bool { return e.name == mediaJSON }) {
				c.warn(e.value, "the service is asked for %s: it must choose %s by something else, such as a parameter", mediaJSON, media)
			}
		case !isJSON(media):
			if hasJSON := slices.ContainsFunc(content, func(e entry) bool { return isJSON(e.name) }); !hasJSON && (media == "text/event-stream" || media == "multipart/x-mixed-replace") {
				c.fault(e.value, "%s cannot be enforced: a stream cannot pass. Leave the operation out, or serve it with gatehouse_auth", media)
			} else if !hasJSON {
				c.fault(e.value, "%s cannot be enforced: use application/json, or let it pass with %s", media, extUnchecked)
			} else {
				c.warn(e.value, "%s does not reach callers", media)
			}
		case r.Body != nil:
			c.warn(e.value, "is checked against the schema of the first JSON media type of this response, and loses other members: remove the version that the service must not send")
			r.Media = append(r.Media, media)
		default:
			c.allowOnly(e.value, "schema", "encoding")
			c.faultIf(c.hidden(e.value.get("schema"), false), n.get("content"), "is writeOnly: nothing of it may leave")
			r.Body, r.Media = c.schema(e.value.get("schema")), []string{media}
		}
	}
	return r
}

// finishOperation compiles and checks what needs complete schemas.
func (c *compiler) finishOperation(n *operationNode) {
	op := n.op
	for i, kind := range op.Body.All() {
		op.Body.Kinds[i].Mapped = c.usesFrom
		if c.checkNesting(kind.Schema, 1); c.usesFrom {
			c.checkSources(op, kind.Schema)
		}
		if kind.Media == mediaPatch {
			op.Body.Kinds[i].Schema = c.partialSchema(kind.Schema)
		}
	}
	byRecord := !op.ByGateway && tenantMember(op.Tenant) != ""
	for i := range op.Responses {
		r := &op.Responses[i]
		response := c.resolve(n.responses[r.Status])
		success := r.Succeeds()
		c.checkNesting(r.Body, 1)
		for _, extension := range []node{response.get(extRecords), response.get(extPage)} {
			switch {
			case extension.Node == nil:
			case !success || op.ByGateway:
				c.fault(extension, "is for the successful responses of data services")
			case r.Body == nil:
				c.fault(extension, "the response has no body that is checked")
			}
		}
		if success && r.Body != nil && !op.ByGateway {
			c.records(op, r, response.get(extRecords))
		}
		r.Body = c.mapResponse(op, r, response.get(extRecords))
		if success && r.Body != nil && !op.ByGateway {
			r.Body = c.pages(op, r, response.get(extPage))
		}
		c.faultIf(byRecord && r.Unchecked != nil, n.get(extUnchecked), "what is not checked needs %s: request, or none", extTenant)
		if !byRecord || !success || r.Body == nil || r.Body.FreeJSON() {
			continue
		}
		switch {
		case r.Records == nil && !c.hasTenant(r.Body, map[*upstream.Schema]bool{}):
			c.fault(n.node, "no object of the successful response declares the tenant %s: declare it, or give the operation %s: request or none", op.Tenant, extTenant)
		case r.Records == nil && !c.declaresTenant(r.Body, true, 0):
			op.TenantInside = true
			c.warn(n.node, "only objects inside the records declare the tenant %s: a record without them is not checked. Declare it in the record, or require such an object", op.Tenant)
		default:
			c.checkLists(op, n.node, r.Body, "", 0)
		}
	}
}

// checkLists warns of lists, and of maps, around which no object has the tenant, and whose objects need not have it: another member of the envelope
// has it. pointer leads to s, which is not an item itself.
func (c *compiler) checkLists(op *upstream.Operation, n node, s *upstream.Schema, pointer string, depth int) {
	if s == nil || depth > maxNames || !c.spend(1) || s.Tenant != "" || c.broken[s] {
		return
	}
	if s.Choice != nil {
		for _, a := range s.Choice.Alternatives {
			c.checkLists(op, n, a, pointer, depth+1)
		}
	}
	for _, items := range []*upstream.Schema{s.Items, s.Additional} {
		item := items
		for item != nil && item.Items != nil && c.spend(1) {
			item = item.Items
		}
		if item != nil && item.Types&upstream.TypeObject != 0 && !c.declaresTenant(items, false, depth+1) {
			op.TenantInside = true
			c.warn(n, "the items of %s do not declare the tenant %s, so they are not checked", pointer, op.Tenant)
		}
	}
	for _, p := range s.Properties {
		if !p.Internal {
			c.checkLists(op, n, p.Schema, pointer+"/"+p.Name, depth+1)
		}
	}
}

// hasTenant reports whether an object below a schema has a tenant.
func (c *compiler) hasTenant(s *upstream.Schema, seen map[*upstream.Schema]bool) bool {
	if s == nil || seen[s] || !c.spend(1) {
		return false
	}
	seen[s] = true
	if s.Tenant != "" || c.broken[s] || c.hasTenant(s.Items, seen) || c.hasTenant(s.Additional, seen) {
		return true
	}
	for i := range s.Properties {
		if !s.Properties[i].Internal && c.hasTenant(s.Properties[i].Schema, seen) {
			return true
		}
	}
	return s.Choice != nil && slices.ContainsFunc(s.Choice.Alternatives, func(a *upstream.Schema) bool { return c.hasTenant(a, seen) })
}

// declaresTenant reports whether a tenant is checked for all records of a schema: in each, or in an object that it must have. Around the records may
// be an envelope, at which a list of them suffices. depth is the number of schemas around s.
func (c *compiler) declaresTenant(s *upstream.Schema, envelope bool, depth int) bool {
	switch {
	case s == nil || depth > maxNames || !c.spend(1):
		return false
	case s.Tenant != "" || c.broken[s]:
		return true
	case s.Choice != nil:
		return !slices.ContainsFunc(s.Choice.Alternatives, func(a *upstream.Schema) bool { return !c.declaresTenant(a, envelope, depth+1) })
	case c.declaresTenant(s.Items, false, depth+1) || envelope && c.declaresTenant(s.Additional, false, depth+1):
		return true
	}
	return slices.ContainsFunc(s.Properties, func(p upstream.Property) bool {
		isList := p.Schema.Types&upstream.TypeArray != 0
		return !p.Internal && (envelope && isList || p.Required && !isList && p.Schema.Types&upstream.TypeNull == 0) && c.declaresTenant(p.Schema, envelope && !isList, depth+1)
	})
}

// records compiles x-gatehouse-records: where the records of a response are, and how they are compared with what was asked for.
func (c *compiler) records(op *upstream.Operation, result *upstream.DocumentedResponse, n node) {
	if n.Node == nil {
		return
	}
	c.allowOnly(n, "in", "from", "order", "at_most", "is")
	r := &upstream.Records{In: c.string(n.get("in")), Most: c.o.MaxItems, Order: c.strings(n.get("order"))}
	result.Records = r
	if at := n.get("at_most"); at.Node != nil {
		r.AtMost = c.paramNumber(op, at)
	}
	for _, e := range c.members(n.get("is")) {
		r.Is = append(r.Is, upstream.Is{Property: e.name, Param: e.value.text()})
		c.faultIf(!slices.ContainsFunc(op.PathParams, func(p upstream.Param) bool { return p.Name == e.value.text() }), e.value, "is not a parameter of the path")
	}
	list := result.Body
	if c.broken[list] {
		return
	}
	if r.In != "" {
		p := list.Property(r.In)
		if c.faultIf(p == nil || p.Internal, n, "the schema of the response has no member %q", r.In) {
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
	case c.broken[record]:
		return
	case record.Choice != nil || record.Types&upstream.TypeObject == 0 || record.FreeJSON():
		c.fault(n, "the records must be objects with members of their own, not a choice (oneOf, anyOf): leave %s out. The tenant and visibility are checked without it", extRecords)
		return
	case !isList && (len(r.Order) > 0 || r.AtMost > 0):
		c.fault(n, "order and at_most are for lists")
	case tenantMember(op.Tenant) != "" && record.Tenant == "":
		c.fault(n, "the records must declare the tenant %s", op.Tenant)
	}
	for i, name := range r.Order {
		if p := record.Property(name); p == nil || p.Schema.Format != upstream.FormatInstant {
			c.fault(n.get("order").items()[i], "must be a declared member with the format utc-date-time")
		}
	}
	for _, is := range r.Is {
		c.faultIf(record.Property(is.Property) == nil, n.get("is"), "%s is not a declared member", is.Property)
	}
}

// paramNumber returns Param.Number of a parameter that is an integer.
func (c *compiler) paramNumber(op *upstream.Operation, n node) int {
	if number := numberOf(op, n.text()); number > 0 {
		return number
	}
	c.fault(n, "must be a parameter that is an integer, and required or with a default; one of the first %d of the operation", upstream.MaxNumbers)
	return 0
}

// numberOf returns Param.Number of a parameter that every request has as an integer, or 0.
func numberOf(op *upstream.Operation, name string) int {
	for _, p := range op.Params {
		if p.Name == name && (p.Required || p.Default != nil) {
			return p.Number
		}
	}
	return 0
}

// pages compiles x-gatehouse-page. It returns a copy of the response's schema with the comparisons, which hold for this operation alone.
func (c *compiler) pages(op *upstream.Operation, r *upstream.DocumentedResponse, pages node) *upstream.Schema {
	if pages.Node == nil {
		return r.Body
	}
	own := *r.Body
	for _, page := range c.list(pages) {
		c.page(op, &own, page)
		if cursor := page.get("cursor"); cursor.Node != nil {
			r.Cursor, r.Next = cursor.text(), namesIn(page.get("response").text())
		}
	}
	return &own
}

func (c *compiler) page(op *upstream.Operation, body *upstream.Schema, page node) {
	number := 0
	if cursor := page.get("cursor"); cursor.Node != nil {
		c.allowOnly(page, "cursor", "response")
		c.faultIf(!slices.ContainsFunc(op.Params, func(p upstream.Param) bool { return p.Name == cursor.text() }), cursor, "is not a parameter")
	} else {
		c.allowOnly(page, "request", "response")
		number = c.paramNumber(op, page.get("request"))
	}
	s := body
	names := namesIn(page.get("response").text())
	for i, name := range names {
		at := slices.IndexFunc(s.Properties, func(p upstream.Property) bool { return p.Name == name && !p.Internal })
		if c.faultIf(at < 0, page.get("response"), "is not a member of the response: must be the JSON Pointer of a declared one, such as /pagination/page") {
			return
		}
		s.Properties = slices.Clone(s.Properties)
		p := &s.Properties[at]
		if i == len(names)-1 {
			p.Number = number
			c.faultIf(number > 0 && p.Schema.Types&^upstream.TypeNull != upstream.TypeInteger, page.get("response"), "must be an integer")
			isCursor := p.Schema.Types&(upstream.TypeString|upstream.TypeInteger) != 0
			c.faultIf(page.get("cursor").Node != nil && !isCursor, page.get("response"), "must be a string or an integer")
			return
		}
		own := *p.Schema
		s, p.Schema = &own, &own
	}
}

// answer compiles x-gatehouse-answer.
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
		op.StaticBody = c.encodeJSON(n)
		if len(c.faults) > 0 {
			return // the schema may be incomplete
		}
		if err := upstream.CheckStaticBody(op); err != nil {
			c.fault(n, "does not match the schema: %v", err)
		}
	case n.text() != "identity":
		c.fault(n, "must be identity or an object")
	case op.Public:
		c.fault(n, "an operation that is public has no identity")
	case len(body.Properties) != 1 || len(body.Properties[0].Schema.Properties) == 0 ||
		slices.ContainsFunc(body.Properties[0].Schema.Properties, func(p upstream.Property) bool {
			return !slices.Contains([]string{"id", "name", "slug"}, p.Name) || p.Schema.Types&upstream.TypeString == 0
		}):
		c.fault(n, "the response must have one object, with the members id, name and slug")
	}
}

// encodeJSON returns a value as JSON.
func (c *compiler) encodeJSON(n node) []byte {
	var value any
	if err := n.Decode(&value); err != nil {
		c.fault(n, "cannot be read: %v", err)
	}
	text, err := json.Marshal(value)
	c.faultIf(err != nil, n, "is not JSON: %v", err)
	return text
}

// unbounded is the value of Options.MaxItems with which arrays have no bound.
const unbounded = math.MaxInt
