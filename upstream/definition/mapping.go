package definition

import (
	"cmp"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// ownHeaders are the headers of a call that a definition must not set: the gateway's own, those of the connection and the body, those that are
// forwarded from callers, those by which services take another method, path or client, and credentials, which do not belong into a document.
//
//nolint:gochecknoglobals // a constant
var ownHeaders = []string{
	"Accept", "Accept-Encoding", "Authorization", "Connection", "Content-", "Cookie", "Expect", "Forwarded", "Host", "Idempotency-Key", "If-",
	"Keep-Alive", "Proxy-", "Te", "Traceparent", "Tracestate", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent", "Via", "X-Business-Id",
	"X-Forwarded-", "X-Gateway-", "X-Request-Id", "X-Public-Key", "X-Signature", "X-Timestamp", "X-Account-Id", "X-Original-", "X-Rewrite-",
	"X-Http-Method", "X-Http-Method-", "X-Method-Override", "X-Real-Ip", "Proxy",
}

// placeholder matches a placeholder such as {business}.
var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// mapping compiles x-gatehouse-upstream of the document and of the operation: how the request to the data service differs from the caller's.
func (c *compiler) mapping(op *upstream.Operation, n *operationNode) {
	m := new(upstream.Mapping)
	unknown := func(e entry) bool { return op.Public && strings.Contains(e.value.text(), "{business}") }
	for _, ext := range []node{c.root.get(extUpstream), n.get(extUpstream)} {
		forAll := ext.in != n.get(extUpstream).in
		switch {
		case ext.Node == nil, forAll && op.ByGateway:
			continue
		case forAll:
			c.allowOnly(ext, "query", "headers", "content_type")
		case op.ByGateway:
			c.fault(ext, "is for operations of a data service")
			continue
		default:
			c.allowOnly(ext, "path", "query", "headers", "content_type")
		}
		if path := ext.get("path"); path.Node != nil {
			m.Path = c.servicePath(op, n, path)
		}
		for _, e := range c.members(ext.get("query")) {
			if forAll && unknown(e) {
				continue
			}
			c.checkBusinessAlone(e.value, e.value.text())
			v := upstream.MappedValue{Name: e.name, Value: c.template(op, n, e.value, true, true)}
			if m.Query = c.setValue(op, m.Query, v, e.value); len(v.Value) > 1 && slices.ContainsFunc(v.Value, func(p upstream.Part) bool { return p.Param > 0 && op.Params[p.Param-1].Exploded }) {
				c.fault(e.value, "a parameter that may be repeated must be the whole value"+adapterHint)
			}
		}
		for _, e := range c.members(ext.get("headers")) {
			if forAll && unknown(e) {
				continue
			}
			name := http.CanonicalHeaderKey(e.name)
			own := func(prefix string) bool {
				return name == prefix || strings.HasSuffix(prefix, "-") && strings.HasPrefix(name, prefix)
			}
			if !httpguts.ValidHeaderFieldName(name) || strings.Contains(name, "_") || slices.ContainsFunc(ownHeaders, own) {
				c.fault(e.value, "the header %s cannot be set by a definition", e.name)
			}
			c.faultIf(strings.ContainsFunc(e.value.text(), func(r rune) bool { return r < ' ' || r > '~' }), e.value, "must be visible ASCII and spaces")
			c.checkBusinessAlone(e.value, e.value.text())
			m.Headers = c.setValue(op, m.Headers, upstream.MappedValue{Name: name, Value: c.template(op, n, e.value, true, false)}, e.value)
		}
		if media := ext.get("content_type"); media.Node != nil {
			if _, params, err := mime.ParseMediaType(c.string(media)); err != nil || len(params) > 0 {
				c.fault(media, "must be a media type without parameters, such as text/html")
			}
			m.ContentType = strings.ToLower(media.text())
		}
	}
	at := n.get(extUpstream)
	if at.Node == nil {
		at = c.root.get(extUpstream)
	}
	c.checkQueryNames(op, m, at)
	for i, p := range op.PathParams {
		uses := func(part upstream.Part) bool { return part.PathParam == i+1 }
		has := func(v upstream.MappedValue) bool { return slices.ContainsFunc(v.Value, uses) }
		if m.Path != nil && !slices.ContainsFunc(m.Path, uses) && !slices.ContainsFunc(m.Query, has) && !slices.ContainsFunc(m.Headers, has) {
			c.warn(at, "the parameter %s of the path does not reach the service", p.Name)
		}
	}
	c.markBusiness(op, n, m)
	if m.Path != nil || m.Query != nil || m.Headers != nil || m.ContentType != "" {
		op.Mapping = m
	}
}

// markBusiness marks the parameters that a service could take for the business, by the caller's name or by the service's: for the tenant field, by the
// name of its member for that, or for a value of the query or a header that is {business}. They must not have a default: it would be refused as
// another business's.
func (c *compiler) markBusiness(op *upstream.Operation, n *operationNode, m *upstream.Mapping) {
	if op.Public || op.Tenant == "" || op.Tenant == upstream.TenantNone {
		return
	}
	tenant := cmp.Or(tenantMember(op.Tenant), tenantMember(c.root.get(extTenant).text()))
	taken := []string{tenant, tenantMember(c.root.get(extTenant).text())}
	for _, path := range c.servicePaths()[tenant] {
		if !c.spend(1) {
			break
		}
		isID := strings.EqualFold(path[len(path)-1], "id") // of a pointer, other names say less: /company/code and the code of anything
		if isID == (len(path) > 1) {
			taken = append(taken, plainPath(path))
		}
	}
	sent := slices.Concat(m.Query, m.Headers)
	for _, v := range sent {
		if v.NamesBusiness() {
			taken = append(taken, v.Name)
		}
	}
	isTaken := func(name string) bool {
		return c.spend(len(taken)) && slices.ContainsFunc(taken, func(other string) bool { return other != "" && mayNameBusiness(name, other) })
	}
	for i := range op.PathParams {
		op.PathParams[i].Business = isTaken(op.PathParams[i].Name)
	}
	for i := range op.Params {
		op.Params[i].Business = isTaken(op.Params[i].Name)
	}
	for _, v := range sent {
		for _, part := range v.Value {
			if part.Param > 0 {
				op.Params[part.Param-1].Business = op.Params[part.Param-1].Business || isTaken(v.Name)
			} else if part.PathParam > 0 {
				op.PathParams[part.PathParam-1].Business = op.PathParams[part.PathParam-1].Business || isTaken(v.Name)
			}
		}
	}
	for _, p := range op.Params {
		c.faultIf(p.Business && !p.Required && len(p.Default) > 0, n.node, "the parameter %s must be the caller's own business, so it cannot have a default: requests without it would be refused", p.Name)
	}
}

// mayNameBusiness reports whether a service could take a parameter for another one that names the business: also businessId and filter[business_id] for
// business_id.
func mayNameBusiness(name, taken string) bool {
	inside := strings.FieldsFunc(plain.Replace(name), func(r rune) bool { return r == '[' || r == ']' })
	other := plainName(taken)
	return mayBeOne(name, taken) || len(inside) > 0 && (mayBeOne(plain.Replace(name), other) || mayBeOne(inside[len(inside)-1], other))
}

// plain removes what may be different in spellings of a name, beside case.
var plain = strings.NewReplacer("_", "", "-", "", ".", "", " ", "") //nolint:gochecknoglobals // a constant

func plainName(name string) string { return cmp.Or(plain.Replace(name), name) }

// plainPath returns the plain name of a member at the end of a path in lower case, with the one before it if it is only id.
func plainPath(names []string) string {
	last := strings.ToLower(plainName(names[len(names)-1]))
	if last == "id" && len(names) > 1 {
		last = strings.ToLower(plainName(names[len(names)-2])) + last
	}
	return last
}

// businessNames returns view.business for the body of an operation: the tenant, the service's names for it in all schemas of the document, and those of
// values of the query that are {business}. There, an id alone is not one of them: too many objects have it.
func (c *compiler) businessNames(op *upstream.Operation) (names string) {
	tenant := tenantMember(c.view.tenant)
	seen := map[string]bool{"": true, "id": true}
	add := func(path []string) {
		if name := plainPath(path); !seen[name] {
			seen[name], names = true, names+"\xff"+name
		}
	}
	var known bool
	if names, known = c.businesses[tenant]; !known && tenant != "" {
		names = "\xff" + plainPath([]string{tenant})
		for _, path := range c.servicePaths()[tenant] {
			add(path)
		}
		c.businesses[tenant] = names
	}
	for _, v := range cmp.Or(op.Mapping, &upstream.Mapping{}).Query {
		if v.NamesBusiness() {
			add([]string{v.Name})
		}
	}
	if !c.spend(len(names)) {
		return ""
	}
	return names
}

// servicePaths returns by the name of a property where the service has it, in all schemas of the document.
func (c *compiler) servicePaths() map[string][][]string {
	if c.paths == nil {
		c.paths = map[string][][]string{}
		c.root.each(func(n node) {
			for _, p := range n.get("properties").entries() {
				from := p.value.get(extFrom)
				if from.isObject() {
					from = from.get("member")
				}
				if text := from.text(); strings.HasPrefix(text, "/") {
					c.paths[p.name] = append(c.paths[p.name], namesIn(text))
				} else if text != "" {
					c.paths[p.name] = append(c.paths[p.name], []string{text})
				}
			}
		})
	}
	return c.paths
}

// setValue replaces the value with the same name, or appends it. Only an operation without a tenant may replace the business by something else.
func (c *compiler) setValue(op *upstream.Operation, all []upstream.MappedValue, v upstream.MappedValue, n node) []upstream.MappedValue {
	if i := slices.IndexFunc(all, func(o upstream.MappedValue) bool { return o.Name == v.Name }); i >= 0 {
		c.faultIf(all[i].NamesBusiness() && !v.NamesBusiness() && op.Tenant != upstream.TenantNone, n, "would replace {business}: give it another name")
		all[i] = v
		return all
	}
	return append(all, v)
}

// checkQueryNames reports a fault if a service could take a parameter that keeps its name for another value of the query, as some do with account_id
// and Account.Id: a caller could otherwise replace that value, such as the business.
func (c *compiler) checkQueryNames(op *upstream.Operation, m *upstream.Mapping, ext node) {
	taken := func(name string, by []upstream.MappedValue) bool {
		return c.spend(len(by)) && slices.ContainsFunc(by, func(v upstream.MappedValue) bool { return mayBeOne(v.Name, name) })
	}
	for i, v := range m.Query {
		c.checkMethod(op, ext, v.Name)
		c.faultIf(taken(v.Name, m.Query[:i]), ext, "services may take two names of the query for one: %s", v.Name)
	}
	for i, p := range op.Params {
		used := slices.ContainsFunc(m.Query, func(v upstream.MappedValue) bool {
			return slices.ContainsFunc(v.Value, func(part upstream.Part) bool {
				return part.Param == i+1 || part.Page > 0 && (p.Number == part.Page || p.Number == part.Size)
			})
		})
		c.faultIf(!used && taken(p.Name, m.Query), ext, "the parameter %s of callers would come beside a value of this name: remove it, in an overlay", p.Name)
	}
}

// checkMethod reports a fault if a service could take a parameter of a read's query for the method.
func (c *compiler) checkMethod(op *upstream.Operation, n node, name string) {
	c.faultIf(op.Read && upstream.NamesMethod(name), n, "services may take the parameter %s for the method, and this operation only reads", name)
}

// mayBeOne reports whether a service could take two names of a query for one, or for a list or object and a part of it, such as tag and tag[]. It does
// not take page[size] for page[number].
func mayBeOne(a, b string) bool {
	segments := func(name string) []string {
		all := strings.Split(strings.ToLower(strings.NewReplacer(".", "_", " ", "_", "-", "_").Replace(name)), "[")
		for i := range all {
			all[i], _, _ = strings.Cut(all[i], "]")
		}
		return all
	}
	own, other := segments(a), segments(b)
	for i := range min(len(own), len(other)) {
		if own[i] != other[i] && own[i] != "" && other[i] != "" { // none is that of any item
			return false
		}
	}
	return true
}

// servicePath compiles the path of a service.
func (c *compiler) servicePath(op *upstream.Operation, n *operationNode, path node) []upstream.Part {
	rest, ok := strings.CutPrefix(c.string(path), "/")
	for segment := range strings.SplitSeq(strings.TrimSuffix(rest, "/"), "/") {
		literal := placeholder.ReplaceAllString(segment, "")
		plain := literal == "" && segment != "" || literalSegment(literal)
		if !ok || !plain || literal != segment && strings.Trim(literal, ".") == "" && literal != "" {
			c.fault(path, "must begin with a slash; each segment must be letters, digits and -._~!$&'()*+,=:@, or have placeholders such as {business}")
			return nil
		}
		c.checkBusinessAlone(path, segment)
	}
	return c.template(op, n, path, false, false)
}

// checkBusinessAlone reports a fault if a text has other placeholders beside {business}: by their values, callers could produce another business's text,
// or have the whole value left out.
func (c *compiler) checkBusinessAlone(value node, text string) {
	several := len(placeholder.FindAllString(text, 2)) > 1
	c.faultIf(several && strings.Contains(text, "{business}"), value, "{business} must be the only placeholder of a segment, a header and a value of the query"+adapterHint)
}

// template compiles a text with placeholders: {business}, and the operation's parameters. Parameters of the query, and {page.offset}, are possible
// only in a query.
func (c *compiler) template(op *upstream.Operation, n *operationNode, value node, mayBeEmpty, query bool) (parts []upstream.Part) {
	text := value.text()
	if c.faultIf(value.isObject() || value.items() != nil || value.Node != nil && value.Tag == "!!null" || text == "" && !mayBeEmpty, value, "must be a string") {
		return nil
	}
	for text != "" {
		literal, rest, found := strings.Cut(text, "{")
		if literal != "" {
			parts = append(parts, upstream.Part{Literal: literal})
		}
		name, after, closed := strings.Cut(rest, "}")
		if c.faultIf(strings.Contains(literal, "}") || found && !closed, value, "unmatched brace") {
			return parts
		}
		if text = after; found {
			parts = append(parts, c.placeholder(op, n, value, name, query))
		}
	}
	return parts
}

func (c *compiler) placeholder(op *upstream.Operation, n *operationNode, value node, name string, query bool) upstream.Part {
	index := func(all []upstream.Param, name string) int {
		return 1 + slices.IndexFunc(all, func(p upstream.Param) bool { return p.Name == name })
	}
	page, isOffset := strings.CutSuffix(name, ".offset")
	switch {
	case name == "business" && op.Public:
		c.fault(value, "the business of an unsigned request is not known")
	case name == "business":
		return upstream.Part{Business: true}
	case index(op.PathParams, name) > 0:
		return upstream.Part{PathParam: index(op.PathParams, name)}
	case query && isOffset && index(op.Params, page) > 0:
		size := node{}
		for _, r := range op.Responses {
			if at := c.resolve(n.responses[r.Status]).get(extRecords).get("at_most"); size.Node == nil && r.Succeeds() {
				size = at
			}
		}
		if c.faultIf(size.Node == nil, value, "{%s} needs the size of a page: at_most in %s", name, extRecords) {
			return upstream.Part{}
		}
		p := &op.Params[index(op.Params, page)-1]
		c.faultIf(p.Number == 0, value, "{%s} needs a parameter that is an integer", name)
		zero := func(text string) bool { return upstream.IsNumber(text) && upstream.CompareNumbers(text, "0") == 0 }
		rules := cmp.Or(p.Schema.Rules, upstream.NewRules())
		fromZero := slices.ContainsFunc(p.Default, zero) || zero(rules.Min) && !rules.MinOpen
		c.faultIf(fromZero, value, "{%s} needs pages that are counted from 1, and %s can be 0%s", name, page, adapterHint)
		if !upstream.IsNumber(rules.Min) || upstream.CompareNumbers(rules.Min, "0") < 0 { // page 0 would be the first one, too
			schema, bounded := *p.Schema, *rules
			bounded.Min, bounded.MinOpen, schema.Rules = "1", false, &bounded
			p.Schema = &schema
			c.warn(value, "%s has a minimum of 1, because pages are counted from 1: say so in its schema", page)
		}
		return upstream.Part{Page: p.Number, Size: c.paramNumber(op, size)}
	case query && index(op.Params, name) > 0:
		return upstream.Part{Param: index(op.Params, name)}
	default:
		c.fault(value, "{%s} is not a placeholder here: must be {business}, a parameter of the path or, in a query, {page.offset} or a parameter of the query%s", name, adapterHint)
	}
	return upstream.Part{}
}
