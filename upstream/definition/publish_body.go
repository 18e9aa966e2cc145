package definition

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// requestBody publishes the body of an operation, or returns nil if the operation takes none.
func (p *publisher) requestBody(n node) *yaml.Node {
	p.sent = true
	defer func() { p.sent = false }()
	publish := func(n node) *yaml.Node {
		n = p.resolve(n)
		content := object()
		for _, e := range n.get("content").entries() {
			media, _, _ := strings.Cut(strings.ToLower(e.name), ";")
			how := p.valued(e.value)
			switch media = strings.TrimSpace(media); media {
			case "application/merge-patch+json":
				how["schema"] = func(out *yaml.Node, e entry) { put(out, e.name, p.schema(p.optional(e.value))) }
				fallthrough
			case "application/json":
				put(content, media, p.pick(e.value, "", how))
			}
		}
		out := p.pick(n, "description required", nil)
		put(out, "content", content)
		return out
	}
	if len(member(publish(n), "content").Content) == 0 {
		return nil
	}
	return p.reference("requestBodies", n, publish)
}

// optional returns the schema of a merge patch: none of its members is required. Then several alternatives may hold, so it has anyOf.
func (p *publisher) optional(n node) node {
	if !slices.ContainsFunc(p.parts(n, true), func(part node) bool { return part.get("required").Node != nil }) {
		return n
	}
	all := list()
	for _, part := range p.parts(n, false) {
		out := object()
		for _, e := range part.entries() {
			switch e.name {
			case "required", "$ref", "allOf", "discriminator", "example", "examples":
			case "oneOf", "anyOf":
				alternatives := list()
				for _, alternative := range e.value.items() {
					alternatives.Content = append(alternatives.Content, p.optional(alternative).Node)
				}
				all.Content = append(all.Content, object("anyOf", alternatives))
			default:
				put(out, e.name, e.value.Node)
			}
		}
		if len(out.Content) > 0 && (part.get("$ref").Node == nil || !p.isV30()) {
			all.Content = append(all.Content, out)
		}
	}
	return at(object("allOf", all))
}

// otherKinds completes what an operation is that is not a GET: see rules.errors.
func (p *publisher) otherKinds(kinds []string, isRead, hasBody, signed, byService bool) []string {
	p.others, p.writes = true, p.writes || !isRead
	for _, kind := range []struct {
		name string
		is   bool
	}{
		{"body", true},
		{"body_or_parameters", slices.Contains(kinds, "parameters")},
		{"documented_body", hasBody},
		{"write_of_data", !isRead && byService},
		{"signed_write", !isRead && signed},
	} {
		if kind.is {
			kinds = append(kinds, kind.name)
		}
	}
	return kinds
}

// differs reports whether a schema is another one in a body than in a response: a member is only in one of them. Then each is published,
// because readOnly and writeOnly mean nothing to those who only know JSON Schema, and required means the same everywhere.
func (p *publisher) differs(ref string) bool {
	differs, known := p.differing[ref]
	if known {
		return differs
	}
	seen := map[*yaml.Node]bool{}
	for queue := []node{p.target(ref)}; len(queue) > 0 && !differs; queue = queue[1:] {
		n := queue[0]
		if !n.isObject() || seen[n.Node] {
			continue
		}
		seen[n.Node] = true
		differs = n.get("readOnly").text() == "true" || n.get("writeOnly").text() == "true"
		queue = append(append(queue, p.parts(n, true)...), n.get("items"), n.get("additionalProperties"))
		for _, e := range n.get("properties").entries() {
			queue = append(queue, e.value)
		}
	}
	p.differing[ref] = differs
	return differs
}
