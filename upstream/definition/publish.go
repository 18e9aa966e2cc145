package definition

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// publishedText is the part that all published documents have in common.
//
//go:embed published.yaml
var publishedText []byte

// exampleURL is the base URL in published.yaml.
const exampleURL = "https://api.example.com"

// PublishOptions are what callers of one gateway have to know. Zero values are the contract's.
type PublishOptions struct {
	// BaseURL is what precedes the base path in the URLs of callers: an origin, and a path if the gateway is mounted below one.
	// Default: "https://api.example.com", an example.
	BaseURL string

	PerKey, PerIP int // limits, in requests a minute. Default: 60 and 10
}

// Check returns an error if the base URL is not possible.
func (o PublishOptions) Check() error {
	u, err := url.Parse(o.BaseURL)
	if o.BaseURL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.Opaque != "" ||
		strings.ContainsAny(o.BaseURL, "?#{}") || strings.HasSuffix(u.Path, "/")) {
		return fmt.Errorf("invalid base URL %q: must be an origin such as https://api.example.com, and may have a path, without a slash at the end", o.BaseURL)
	}
	return nil
}

// Published returns the document for callers, in YAML.
func (d *Definition) Published(o PublishOptions) ([]byte, error) {
	doc, err := d.PublishedDocument(o)
	if err != nil {
		return nil, err
	}
	return Encode(doc)
}

// Encode returns a published document in YAML.
func Encode(doc *yaml.Node) ([]byte, error) {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(doc); err != nil {
		return nil, fmt.Errorf("publishing: %w", err)
	}
	return text.Bytes(), nil
}

// PublishedDocument returns the document for callers: the parts of the definition that they may see, and what is the same for all
// definitions (published.yaml). HEAD is published beside every GET.
//
// Members are published by an allow-list: others are left out.
func (d *Definition) PublishedDocument(o PublishOptions) (*yaml.Node, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	var common yaml.Node
	if err := yaml.Unmarshal(publishedText, &common); err != nil {
		return nil, fmt.Errorf("reading published.yaml: %w", err)
	}
	p := &publisher{
		document: newDocument(d.root), operations: d.operations, common: newDocument(rootNode(copyOf(common.Content[0]))),
		components: map[string]*yaml.Node{}, commonComponents: map[string]*yaml.Node{}, names: map[string]string{},
		differing: map[string]bool{},
		values: strings.NewReplacer(exampleURL, cmp.Or(o.BaseURL, exampleURL), "{base_path}", d.API.Base(),
			"{first_path}", cmp.Or(d.API.Base(), "/"), "{max_items}", strconv.Itoa(d.maxItems), "{per_key}", strconv.Itoa(cmp.Or(o.PerKey, 60)), "{per_ip}", strconv.Itoa(cmp.Or(o.PerIP, 10))),
	}
	for _, kind := range componentKinds() {
		p.components[kind], p.commonComponents[kind] = object(), object()
	}
	p.rules = p.common.root.get("rules")
	doc := p.published()
	if p.err != nil {
		return nil, fmt.Errorf("publishing: %w", p.err)
	}
	layOut(doc)
	return doc, nil
}

type publisher struct {
	document // of the definition

	operations                   []*operationNode
	common                       document
	rules                        node                  // rules of common
	values                       *strings.Replacer     // of placeholders in common
	components, commonComponents map[string]*yaml.Node // published components, of the definition and of published.yaml, by kind
	names                        map[string]string     // published names of the definition's components, by kind and reference
	ids                          []string              // operation IDs that are in use
	tenant                       string                // the member that names the business, for the operation that is being published
	hasNonGet, hasWrites         bool                  // an operation is not a GET; an operation changes something
	inRequest                    bool                  // a request body is being published
	differing                    map[string]bool       // see differs, by reference
	err                          error                 // the first one
}

// memberPublishers says how members of an object are published.
type memberPublishers map[string]func(out *yaml.Node, e entry)

// pick publishes members of an object in their order: those in list as they are, and those in others with their function.
func (p *publisher) pick(n node, list string, others memberPublishers) *yaml.Node {
	out := object()
	if n.isObject() {
		out.Style = n.Style
	}
	for _, e := range n.entries() {
		if publish := others[e.name]; publish != nil {
			publish(out, e)
		} else if slices.Contains(strings.Fields(list), e.name) {
			if value := copyPlain(e.value); value != nil {
				put(out, e.name, value)
			}
		}
	}
	return out
}

func componentKinds() []string {
	return []string{"parameters", "headers", "requestBodies", "responses", "schemas"}
}

func (p *publisher) published() *yaml.Node {
	paths, tags := p.paths()
	common := p.common.root
	other := p.publishCommon(common.get("x-other-requests"))
	info := p.pick(p.root.get("info"), "title version summary description", memberPublishers{"license": func(out *yaml.Node, e entry) {
		put(out, e.name, p.pick(e.value, "name identifier url", nil))
	}})
	if version := member(info, "version"); version != nil {
		version.Tag = "!!str" // also if it is written as a number
	}
	description := p.publishCommon(common.get("info").get("description"))
	for name, is := range map[string]bool{"bodies": p.hasNonGet, "writes": p.hasWrites} {
		added := ""
		if is {
			added = p.values.Replace(p.rules.get(name).text())
		}
		description.Value = strings.Replace(description.Value, "{"+name+"}", added, 1)
	}
	if own := member(info, "description"); own != nil {
		description.Value = strings.TrimRight(own.Value, "\n") + "\n\n" + description.Value
	}
	put(info, "description", description)
	if p.hasNonGet {
		put(member(p.commonComponents["headers"], p.commonName("headers", "Allow")), "schema", p.publishCommon(p.rules.get("allow")))
	}
	components := object("securitySchemes", p.publishCommon(common.get("components").get("securitySchemes")))
	for _, kind := range componentKinds() {
		all := object()
		for _, e := range slices.Concat(p.root.get("components").get(kind).entries(), rootNode(p.components[kind]).entries()) {
			if value := member(p.components[kind], e.name); value != nil {
				put(all, e.name, value)
			}
		}
		for _, e := range common.get("components").get(kind).entries() {
			if name := p.commonName(kind, e.name); member(p.commonComponents[kind], name) != nil {
				put(all, name, member(p.commonComponents[kind], name))
			}
		}
		if len(all.Content) > 0 {
			put(components, kind, all)
		}
	}
	doc := object("openapi", p.publishCommon(common.get("openapi")), "info", info, "servers", p.publishCommon(common.get("servers")),
		"security", p.publishCommon(common.get("security")))
	if len(tags.Content) > 0 {
		put(doc, "tags", tags)
	}
	put(doc, "paths", paths)
	put(doc, "components", components)
	put(doc, "x-other-requests", other)
	return doc
}

func (p *publisher) paths() (paths, tags *yaml.Node) {
	paths, tags = object(), list()
	for _, n := range p.operations {
		p.ids = append(p.ids, n.get("operationId").text())
	}
	var used []string
	var item *yaml.Node
	for i, n := range p.operations {
		if i == 0 || n.path != p.operations[i-1].path {
			item = object()
			paths.Content = append(paths.Content, text(n.path), item)
		}
		operation := p.operation(n)
		put(item, strings.ToLower(n.method), operation)
		if n.method == http.MethodGet {
			put(item, "head", p.head(operation))
		}
		used = append(used, n.get("tags").texts()...)
	}
	for _, tag := range p.root.get("tags").items() {
		if slices.Contains(used, tag.get("name").text()) {
			tags.Content = append(tags.Content, p.pick(tag, "name description", nil))
		}
	}
	return paths, tags
}

func (p *publisher) operation(n *operationNode) *yaml.Node {
	op := n.op
	p.tenant = tenantMember(op.Tenant)
	out := p.pick(n.node, "tags operationId summary description deprecated", nil)
	if op.Public {
		put(out, "security", list())
	}
	parameters := list()
	for _, parameter := range n.parameters {
		parameters.Content = append(parameters.Content, p.reference("parameters", parameter, p.parameter))
	}
	if len(parameters.Content) > 0 {
		put(out, "parameters", parameters)
	}
	if op.Body != nil {
		put(out, "requestBody", p.requestBody(n))
	}
	name := n.get("operationId").text()
	switch {
	case name == "":
		name = unusualCharacters.ReplaceAllString(strings.ToLower(n.method)+n.path, "_")
	case n.method == http.MethodGet:
		name = noun(name)
	}
	put(out, "responses", p.responses(n, name))
	return out
}

// errorKinds returns the kinds of an operation by which rules.errors of published.yaml lists errors.
func (p *publisher) errorKinds(n *operationNode) (names []string) {
	op := n.op
	signed, byService, isGet := !op.Public, !op.ByGateway, n.method == http.MethodGet
	p.hasNonGet, p.hasWrites = p.hasNonGet || !isGet, p.hasWrites || !op.Read
	for _, kind := range []struct {
		name string
		is   bool
	}{
		{"every", true},
		{"parameters", len(n.parameters) > 0},
		{"path_parameters", len(op.PathParams) > 0},
		{"conditional", isGet && byService && op.Forwards("If-None-Match")},
		{"signed", signed},
		{"data", byService},
		{"signed_data", signed && (byService || strings.Contains(op.Resource, "/"))}, // with the name of an API
		{"body", !isGet},
		{"body_or_parameters", !isGet && len(n.parameters) > 0 || !op.Read},
		{"documented_body", op.Body != nil},
		{"write_of_record", !op.Read && byService && (op.Body != nil || len(op.PathParams) > 0)},
		{"write_of_data", !op.Read && byService},
		{"signed_write", !op.Read && signed},
	} {
		if kind.is {
			names = append(names, kind.name)
		}
	}
	return names
}

// head returns the HEAD beside a GET.
func (p *publisher) head(get *yaml.Node) *yaml.Node {
	rules, out := p.rules.get("head"), object()
	for name := range strings.FieldsSeq("tags operationId summary description deprecated security parameters responses") {
		value := member(get, name)
		switch {
		case name == "description":
			value = p.publishCommon(rules.get(name))
		case value == nil:
			continue
		case name == "summary":
			value = text(value.Value + rules.get(name).text())
		case name == "operationId":
			id := "head" + noun(value.Value)
			for slices.Contains(p.ids, id) {
				id += "Headers"
			}
			p.ids = append(p.ids, id)
			value = text(id)
		}
		put(out, name, value)
	}
	return out
}

// responses publishes the responses of an operation that reach callers, and adds the gateway's own.
func (p *publisher) responses(n *operationNode, name string) *yaml.Node {
	ours, own, all := map[string]node{}, map[string]*upstream.DocumentedResponse{}, map[string]bool{}
	for _, kind := range p.errorKinds(n) {
		for _, e := range p.rules.get("errors").get(kind).entries() {
			ours[e.name], all[e.name] = e.value, true
		}
	}
	ourAlone := []string{"401", "407", "429"} // a data service's are not forwarded
	for i := range n.op.Responses {
		r := &n.op.Responses[i]
		status := strconv.Itoa(r.Status)
		if r.Status < 10 {
			status += "XX"
		}
		if !slices.Contains(ourAlone, status) && (status[0] == '2' || !n.op.ByGateway) {
			own[status], all[status] = r, true
		}
	}
	out := object()
	for _, status := range slices.Sorted(maps.Keys(all)) {
		response, common := own[status], ours[status]
		said := p.common.lookup(common.get("$ref").text()).get("description").text()
		if strings.HasPrefix(status, "4") {
			if common.Node == nil {
				common = ours["4XX"]
			}
			if response == nil && !slices.Contains(ourAlone, status) {
				response = own["4XX"]
			}
		}
		if response == nil {
			put(out, status, p.publishCommon(common))
			continue
		}
		documented := n.responses[response.Status]
		wanted, shared := strings.CutPrefix(documented.get("$ref").text(), "#/components/responses/")
		if !shared {
			wanted = name + strings.TrimPrefix(status, "200")
		}
		put(out, status, p.hoist(wanted, p.response(n.op, response, p.resolve(documented), common, said)))
	}
	return out
}

// response publishes a response. common is the gateway's own with the same status, if there is one: then the body is either. said is the description of
// that status, and the last paragraph of the published one.
func (p *publisher) response(op *upstream.Operation, r *upstream.DocumentedResponse, n, common node, said string) *yaml.Node {
	common = p.common.lookup(common.get("$ref").text())
	headers, content := object(), object()
	add := func(all node, replace bool) {
		for _, e := range all.entries() {
			if replace || member(headers, e.name) == nil {
				put(headers, e.name, p.publishCommon(e.value))
			}
		}
	}
	add(common.get("headers"), true)
	add(p.rules.get("headers").get("every"), false)
	if !op.Public {
		add(p.rules.get("headers").get("signed"), false)
	}
	for _, e := range n.get("headers").entries() {
		for _, name := range responseHeaders {
			if strings.EqualFold(name, e.name) {
				put(headers, name, p.pick(p.resolve(e.value), "description deprecated", p.valueMembers(p.resolve(e.value))))
				add(p.rules.get("headers").get("with_"+name), true)
			}
		}
	}
	var first node // its schema is enforced for all JSON
	documented := p.resolve(n.get("content")).entries()
	for i, media := range mediaTypes(documented) {
		value := p.resolve(documented[i].value)
		switch {
		case slices.Contains(r.Media, media):
			first = cmp.Or(first, value)
			if schema := first.get("schema"); value != first && value.get("schema").get("$ref").text() != cmp.Or(schema.get("$ref").text(), "-") {
				value = rootNode(object("schema", schema.Node)) // without examples, which are of another schema
			}
			put(content, media, p.pick(value, "", p.valueMembers(value)))
		case slices.Contains(r.Unchecked, media):
			put(content, media, p.pick(value, "", p.valueMembers(value)))
		}
	}
	if media := common.get("content").get(mediaJSON); media.Node != nil {
		put(content, mediaJSON, mergeMedia(member(content, mediaJSON), p.publishCommon(media)))
	}
	description := strings.TrimSpace(strings.TrimSpace(n.get("description").text()) + "\n\n" + said)
	out := object("description", text(cmp.Or(description, common.get("description").text())), "headers", headers)
	if len(content.Content) > 0 {
		put(out, "content", content)
	}
	return out
}
