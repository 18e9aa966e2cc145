package definition

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// requestBody publishes the body of an operation.
func (p *publisher) requestBody(n *operationNode) *yaml.Node {
	p.inRequest = true
	defer func() { p.inRequest = false }()
	return p.reference("requestBodies", n.get("requestBody"), func(body node) *yaml.Node {
		body = p.resolve(body)
		content := object()
		documented := p.resolve(body.get("content")).entries()
		for i, media := range mediaTypes(documented) {
			e := documented[i]
			i := slices.IndexFunc(n.op.Body.Kinds, func(kind upstream.BodyKind) bool { return kind.Media == media })
			if i < 0 || member(content, media) != nil { // the first is accepted
				continue
			}
			e.value = p.resolve(e.value)
			publishers := p.valueMembers(e.value)
			if media == mediaPatch {
				publishers["schema"] = func(out *yaml.Node, e entry) { put(out, e.name, p.patch(e.value, n.op.Body.Kinds[i].Schema.Choice)) }
			}
			put(content, media, p.pick(e.value, "", publishers))
		}
		out := p.pick(body, "description required", nil)
		put(out, "content", content)
		return out
	})
}

// patch publishes the schema of a merge patch. If it is a choice that a member decides, only that is required.
func (p *publisher) patch(n node, choice *upstream.Choice) *yaml.Node {
	out, objects := p.schema(p.withoutRequired(n)), 0
	if choice != nil && choice.Discriminator != "" {
		for _, alternative := range choice.Alternatives {
			objects += b2i(alternative.Types&upstream.TypeObject != 0)
		}
	}
	if objects < 2 {
		return out
	}
	required := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Content: []*yaml.Node{text(choice.Discriminator)}}
	return object("allOf", list(out, object("required", required)))
}

// withoutRequired returns the schema of a merge patch, without required members. Several alternatives may match then, so oneOf becomes anyOf. They have
// no names for a discriminator any more, so each has its values.
func (p *publisher) withoutRequired(n node) node {
	if !slices.ContainsFunc(p.parts(true, n), func(part node) bool { return part.get("required").Node != nil }) {
		return n
	}
	all := list()
	for _, part := range p.parts(false, n) {
		out := object()
		for _, e := range part.entries() {
			switch e.name {
			case "required", "$ref", "allOf", "discriminator", "example", "examples":
			case "oneOf", "anyOf":
				alternatives := list()
				for _, alternative := range e.value.items() {
					schema, name := p.withoutRequired(alternative).Node, part.get("discriminator").get("propertyName").text()
					if alternative.get("$ref").Node != nil && name != "" && p.constants(alternative, name) == nil {
						values := list()
						for _, value := range p.decidingValues(part.get("discriminator"), alternative) {
							values.Content = append(values.Content, text(value))
						}
						schema = object("allOf", list(schema, object("properties", object(name, object("enum", values)))))
					}
					alternatives.Content = append(alternatives.Content, schema)
				}
				all.Content = append(all.Content, object("anyOf", alternatives))
			default:
				put(out, e.name, e.value.Node)
			}
		}
		if len(out.Content) > 0 && (part.get("$ref").Node == nil || !p.isOpenAPI30) {
			all.Content = append(all.Content, out)
		}
	}
	return rootNode(object("allOf", all))
}

// differs reports whether a schema has different members in bodies and in responses. Such a schema is published once for each, because in JSON
// Schema, readOnly and writeOnly do not exclude a member, and required holds in both directions.
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
		queue = append(append(queue, p.parts(true, n)...), n.get("items"), n.get("additionalProperties"))
		for _, e := range n.get("properties").entries() {
			queue = append(queue, e.value)
		}
	}
	p.differing[ref] = differs
	return differs
}
