package definition

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// publishedText is what all published documents have in common.
//
//go:embed published.yaml
var publishedText []byte

// Publish returns the published document, in YAML: what callers may see of a definition, and what is the same for all definitions
// (published.yaml). The root is the value of a definition without faults, after overlays. An operation is published if served reports true
// for its method, such as GET, and its path below the base path, such as /orders/{id}. HEAD is published beside every GET.
//
// Members are published by an allow-list: what is not in it stays inside.
func Publish(root *yaml.Node, served func(method, path string) bool) ([]byte, error) {
	var common yaml.Node
	if err := yaml.Unmarshal(publishedText, &common); err != nil {
		return nil, fmt.Errorf("reading published.yaml: %w", err)
	}
	p := &publisher{
		root: at(root), common: at(common.Content[0]), own: map[string]*yaml.Node{}, ours: map[string]*yaml.Node{},
		names: map[string]string{}, texts: map[string]string{}, positions: map[*yaml.Node]map[string]int{},
		differing: map[string]bool{},
	}
	for _, kind := range componentKinds() {
		p.own[kind], p.ours[kind] = object(), object()
	}
	p.rules = p.common.get("rules")
	doc := p.document(served)
	if p.err != nil {
		return nil, fmt.Errorf("publishing: %w", p.err)
	}
	layOut(doc)
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(doc); err != nil {
		return nil, fmt.Errorf("publishing: %w", err)
	}
	return text.Bytes(), nil
}

type publisher struct {
	root, common, rules node
	positions           map[*yaml.Node]map[string]int // see find
	base                string                        // path
	own, ours           map[string]*yaml.Node         // components that are referred to, of the definition and of published.yaml, by kind
	names               map[string]string             // of the definition's components, by kind and reference
	texts               map[string]string             // of responses, by name
	ids                 []string                      // operation IDs that are in use
	tenant              string                        // the member that names the business, for the operation that is being published
	others, writes      bool                          // an operation is not a GET; an operation changes something
	sent                bool                          // what is being published is of a request body
	differing           map[string]bool               // see differs, by reference
	err                 error                         // the first one
}

// members says how members of an object are published.
type members map[string]func(out *yaml.Node, e entry)

// pick publishes members of an object in their order: those of a list as they are, others as members says.
func (p *publisher) pick(n node, list string, others members) *yaml.Node {
	out := object()
	if n.isObject() {
		out.Style = n.Style
	}
	for _, e := range n.entries() {
		if publish := others[e.name]; publish != nil {
			publish(out, e)
		} else if slices.Contains(strings.Fields(list), e.name) {
			if value := plain(e.value); value != nil {
				put(out, e.name, value)
			}
		}
	}
	return out
}

func componentKinds() []string {
	return []string{"parameters", "headers", "requestBodies", "responses", "schemas"}
}

func (p *publisher) document(served func(method, path string) bool) *yaml.Node {
	_, p.base, _ = strings.Cut(strings.Replace(p.root.get("servers").member("0").get("url").text(), "://", "", 1), "/")
	p.base = strings.TrimRight("/"+p.base, "/")
	paths, tags := p.paths(served)
	other := p.our(p.common.get("x-other-requests"))
	info := p.pick(p.root.get("info"), "title version summary description", members{"license": func(out *yaml.Node, e entry) {
		put(out, e.name, p.pick(e.value, "name identifier url", nil))
	}})
	if version := member(info, "version"); version != nil {
		version.Tag = "!!str" // also if it is written as a number
	}
	description := p.our(p.common.get("info").get("description"))
	for name, is := range map[string]bool{"bodies": p.others, "writes": p.writes} {
		added := ""
		if is {
			added = p.rules.get(name).text()
		}
		description.Value = strings.Replace(description.Value, "{"+name+"}", added, 1)
	}
	if own := member(info, "description"); own != nil {
		description.Value = strings.TrimRight(own.Value, "\n") + "\n\n" + description.Value
	}
	put(info, "description", description)
	if p.others {
		put(member(p.ours["headers"], p.ourName("headers", "Allow")), "schema", p.our(p.rules.get("allow")))
	}
	components := object("securitySchemes", p.our(p.common.get("components").get("securitySchemes")))
	for _, kind := range componentKinds() {
		all := object()
		for _, e := range slices.Concat(p.root.get("components").get(kind).entries(), at(p.own[kind]).entries()) {
			if value := member(p.own[kind], e.name); value != nil {
				put(all, e.name, value)
			}
		}
		for _, e := range p.common.get("components").get(kind).entries() {
			if name := p.ourName(kind, e.name); member(p.ours[kind], name) != nil {
				put(all, name, member(p.ours[kind], name))
			}
		}
		if len(all.Content) > 0 {
			put(components, kind, all)
		}
	}
	doc := object("openapi", p.our(p.common.get("openapi")), "info", info, "servers", p.our(p.common.get("servers")),
		"security", p.our(p.common.get("security")))
	if len(tags.Content) > 0 {
		put(doc, "tags", tags)
	}
	put(doc, "paths", paths)
	put(doc, "components", components)
	put(doc, "x-other-requests", other)
	return doc
}

func (p *publisher) paths(served func(method, path string) bool) (paths, tags *yaml.Node) {
	paths, tags = object(), list()
	all := p.root.get("paths").entries()
	for i, path := range all {
		all[i].value = p.resolve(path.value)
		for _, operation := range all[i].value.entries() {
			p.ids = append(p.ids, operation.value.get("operationId").text())
		}
	}
	var used []string
	for _, path := range all {
		item := object()
		for _, e := range path.value.entries() {
			method := strings.ToUpper(e.name)
			isHead := e.name == "head" && path.value.get("get").Node != nil // the gateway's own, of the GET
			if isHead || !slices.Contains([]string{"get", "head", "put", "post", "patch", "delete"}, e.name) || !served(method, path.name) {
				continue
			}
			operation := p.operation(e.name, path, e.value)
			put(item, e.name, operation)
			used = append(used, e.value.get("tags").texts()...)
			if e.name == "get" {
				put(item, "head", p.head(operation))
			}
		}
		if len(item.Content) > 0 {
			put(paths, path.name, item)
		}
	}
	for _, tag := range p.root.get("tags").items() {
		if slices.Contains(used, tag.get("name").text()) {
			tags.Content = append(tags.Content, p.pick(tag, "name description", nil))
		}
	}
	return paths, tags
}

func (p *publisher) operation(method string, path entry, n node) *yaml.Node {
	p.tenant = p.root.get(extTenant).text()
	if tenant := n.get(extTenant).text(); tenant == "request" || tenant == "none" {
		p.tenant = ""
	} else if tenant != "" {
		p.tenant = tenant
	}
	out := p.pick(n, "tags operationId summary description deprecated", nil)
	signed, kinds := n.get(extPublic).text() != "true", []string{"every"}
	if !signed {
		put(out, "security", list())
	}
	parameters := list()
	for _, parameter := range p.parameters(path.value, n) {
		parameters.Content = append(parameters.Content, p.reference("parameters", parameter, p.parameter))
		if kinds = append(kinds, "parameters"); p.resolve(parameter).get("in").text() == "path" {
			kinds = append(kinds, "path_parameters")
		}
	}
	if len(parameters.Content) > 0 {
		put(out, "parameters", parameters)
	}
	isRead, body := method == "get" || method == "head", (*yaml.Node)(nil)
	if !isRead {
		body = p.requestBody(n.get("requestBody"))
	}
	if body != nil {
		put(out, "requestBody", body)
	}
	byService := n.get(extAnswer).Node == nil
	for _, kind := range []string{"signed", "data", "signed_data"} {
		if (signed || kind == "data") && (byService || kind == "signed") {
			kinds = append(kinds, kind)
		}
	}
	if !isRead {
		kinds = p.otherKinds(kinds, method == "post" && n.get(extRead).text() == "true", body != nil, signed, byService)
	}
	name := n.get("operationId").text()
	switch {
	case name == "":
		name = unusual.ReplaceAllString(method+path.name, "_")
	case method == "get":
		name = noun(name)
	}
	put(out, "responses", p.responses(n, name, kinds))
	return out
}

// head returns the HEAD beside a GET.
func (p *publisher) head(get *yaml.Node) *yaml.Node {
	rules, out := p.rules.get("head"), object()
	for name := range strings.FieldsSeq("tags operationId summary description deprecated security parameters responses") {
		value := member(get, name)
		switch {
		case name == "description":
			value = p.our(rules.get(name))
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

// responses publishes those of an operation that reach callers, and adds ours.
func (p *publisher) responses(n node, name string, kinds []string) *yaml.Node {
	ours, own := map[string]node{}, map[string]node{}
	for _, kind := range kinds {
		for _, e := range p.rules.get("errors").get(kind).entries() {
			ours[e.name] = e.value
		}
	}
	ourAlone := []string{"401", "407", "429"} // a data service's do not leave
	for _, e := range n.get("responses").entries() {
		status := strings.Replace(e.name, "default", "4XX", 1) // a specific 4XX wins below
		byService := strings.HasPrefix(status, "4") && !slices.Contains(ourAlone, status) && n.get(extAnswer).Node == nil
		if (byService || strings.HasPrefix(status, "2")) && (status == e.name || n.get("responses").get(status).Node == nil) {
			own[status] = e.value
		}
	}
	out := object()
	all := maps.Clone(ours)
	maps.Copy(all, own)
	for _, status := range slices.Sorted(maps.Keys(all)) {
		response, common := own[status], ours[status]
		if strings.HasPrefix(status, "4") {
			if common.Node == nil {
				common = ours["4XX"]
			}
			if response.Node == nil && !slices.Contains(ourAlone, status) {
				response = own["4XX"]
			}
		}
		if response.Node == nil {
			put(out, status, p.our(common))
			continue
		}
		wanted, shared := strings.CutPrefix(response.get("$ref").text(), "#/components/responses/")
		if !shared {
			wanted = name + strings.TrimPrefix(status, "200")
		}
		put(out, status, p.hoist(wanted, p.response(n, p.resolve(response), common)))
	}
	return out
}

// response publishes a response. Ours may have the same status: then it is one or the other.
func (p *publisher) response(operation, n, common node) *yaml.Node {
	common = find(p.common, common.get("$ref").text(), p.positions)
	headers, content := object(), object()
	add := func(all node, replace bool) {
		for _, e := range all.entries() {
			if replace || member(headers, e.name) == nil {
				put(headers, e.name, p.our(e.value))
			}
		}
	}
	add(common.get("headers"), true)
	add(p.rules.get("headers").get("every"), false)
	if operation.get(extPublic).text() != "true" {
		add(p.rules.get("headers").get("signed"), false)
	}
	for _, e := range n.get("headers").entries() {
		for _, name := range []string{"ETag", "Location", "Retry-After"} {
			if strings.EqualFold(name, e.name) {
				put(headers, name, p.pick(p.resolve(e.value), "description deprecated", p.valued(p.resolve(e.value))))
				add(p.rules.get("headers").get("with_"+name), true)
			}
		}
	}
	unchecked := append(operation.get("x-gatehouse-unchecked").texts(), operation.get("x-gatehouse-unchecked").text())
	for _, e := range n.get("content").entries() {
		name, _, _ := strings.Cut(strings.ToLower(e.name), ";")
		if name = strings.TrimSpace(name); name == "application/json" || strings.HasSuffix(name, "+json") || slices.Contains(unchecked, name) {
			put(content, name, p.pick(e.value, "", p.valued(e.value)))
		}
	}
	if media := common.get("content").get("application/json"); media.Node != nil {
		put(content, "application/json", either(member(content, "application/json"), p.our(media)))
	}
	description, added := strings.TrimSpace(n.get("description").text()), common.get("description").text()
	if description != "" && added != "" && !strings.ContainsAny(description[len(description)-1:], ".!?:") {
		description += "." // what follows is a sentence, too
	}
	description += " " + added
	out := object("description", text(strings.TrimSpace(description)), "headers", headers)
	if len(content.Content) > 0 {
		put(out, "content", content)
	}
	return out
}
