package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// tool is a tool of the definition, prepared for calls.
type tool struct {
	*definition.Tool
	scope     string
	about     string              // the kind of record, in words, for errors and the audit log
	brief     *upstream.Operation // Operation with the default fields
	arguments *upstream.Operation // its body is the object of all arguments
	slots     []slot              // of the arguments that are sent to the data service
	names     []string            // of all arguments
	clears    map[string]string   // what the argument clear may name: by argument, the member of the body
	fields    []string            // that the caller may ask for; nil: none
	key       bool                // retries are recognised by an idempotency key
	untrusted bool                // its results contain text from outside the business
	handler   handler
	declared  map[bool][]byte // the declaration in tools/list, as JSON, with an output schema or without
}

// slot says which part of the request to the data service an argument becomes.
type slot struct {
	argument string
	path     bool            // the next path parameter
	query    *upstream.Param // a query parameter
	body     string          // a member of the body; "*": the body
}

// handler is the implementation of a tool that a definition cannot describe.
type handler struct {
	arguments []upstream.Property // besides those of the operation
	run       func(ctx context.Context, c *toolCall) (jsontext.Value, error)
	result    map[string]any // properties of the output schema, besides those of the operation
}

// Arguments of tools, besides those of their operations. The instructions explain them. Not all clients show these to the model, which might make
// up an idempotency key, and so do something twice: it has a description.
const (
	argFields         = "fields"
	argClear          = "clear"
	argIfVersion      = "if_version"
	argIdempotencyKey = "idempotency_key"
	argConfirm        = "confirm"
	argID             = "id" // the usual name of a record's ID
)

func (t *tool) writes() bool { return t.Kind != definition.KindRead }

// notDone returns the effect of a call that was rejected before it had any.
func (t *tool) notDone() string {
	if t.writes() {
		return nothingDone
	}
	return nothingRead
}

// Check returns an error with a line for each tool of a definition that a server cannot provide.
func Check(d *definition.Definition) error {
	_, err := newTools(d, scope.New(d.Areas))
	return err
}

// newTools prepares the tools that the areas have, by name.
func newTools(d *definition.Definition, areas scope.Areas) (map[string]*tool, error) {
	tools, everything := map[string]*tool{}, areas.Everything()
	verbs := map[string]string{definition.KindRead: scope.VerbRead, definition.KindRun: scope.VerbRun}
	described := map[*upstream.Schema]bool{}
	var faults []error
	for _, byRecord := range []bool{true, false} { // first tools that get one record: their output schemas describe it
		for _, says := range d.Tools {
			if res := says.Operation.Success(); byRecord != (says.Kind == definition.KindRead && !res.IsList()) {
				continue
			}
			t := &tool{Tool: says}
			if t.scope = says.Area + ":" + cmp.Or(verbs[says.Kind], scope.VerbWrite); !everything.Allows(t.scope) {
				continue
			}
			if err := t.prepare(described, d.Instructions); err != nil {
				faults = append(faults, fmt.Errorf("tool %s: %w", says.Name, err))
			}
			tools[t.Name] = t
		}
	}
	return tools, errors.Join(faults...)
}

// prepare compiles the arguments and the declaration. described has the records that output schemas have already, explained the instructions.
func (t *tool) prepare(described map[*upstream.Schema]bool, explained string) error {
	op, res := t.Operation, t.Operation.Success()
	if t.Handler != "" {
		if t.handler = handlers()[t.Handler]; t.handler.run == nil {
			return fmt.Errorf("unknown handler %q: must be one of %s", t.Handler, strings.Join(slices.Sorted(maps.Keys(handlers())), ", "))
		}
	}
	t.brief, t.about = op, aboutOf(op)
	if t.Fields != nil {
		t.brief, t.fields = op.WithProperties(t.Fields), fieldsOf(op)
	}
	for _, one := range append([]*upstream.Operation{op}, t.With...) {
		for i := range one.Responses {
			r := &one.Responses[i]
			t.untrusted = t.untrusted || r.Succeeds() && hasUntrusted(r.Body, map[*upstream.Schema]bool{})
		}
	}
	t.key = (t.Kind == definition.KindCreate || t.Kind == definition.KindRun || t.upserts()) && op.Forwards("Idempotency-Key")
	input := &upstream.Schema{Types: upstream.TypeObject}
	for _, a := range append(t.sent(), t.own()...) {
		if input.Property(a.Name) != nil || !definition.IsArgument(a.Name) { // the other one has its possible name
			return fmt.Errorf("two arguments are called %s: say another name under arguments", a.Name)
		}
		input.Properties = append(input.Properties, a.Property)
		t.names = append(t.names, a.Name)
		if a.slot != (slot{}) {
			a.argument = a.Name
			t.slots = append(t.slots, a.slot)
		}
	}
	t.arguments = &upstream.Operation{
		ID: t.Name, Method: http.MethodPost, Path: "/" + t.Name,
		Body: &upstream.RequestBody{Required: true, Kinds: []upstream.BodyKind{{Media: "application/json", Schema: input}}},
	}
	upstream.NewAPI("", "", []*upstream.Operation{t.arguments})
	t.declare(input, t.shared(res, explained), described)
	return nil
}

// argument is an argument of a tool. Its slot is empty if it is for the gateway.
type argument struct {
	upstream.Property
	slot
}

// sent returns the arguments that are sent to the data service: of the path, the body and the query, in this order. Those that may be left out
// are not null: clients send null for all that the model does not mean, and drop the types of what may be null. It sets t.clears.
func (t *tool) sent() (all []argument) {
	t.clears = map[string]string{}
	keeps := slices.Contains([]string{http.MethodPatch, http.MethodPut}, t.changes().Method) // what is not sent
	add := func(p upstream.Property, s slot) {
		// If a path parameter and a body member have the same name, t.Arguments renames the parameter.
		other, ok := t.Arguments[p.Name]
		if ok && (s.path || !slices.ContainsFunc(all, func(a argument) bool { return a.Name == other })) {
			p.Name = other
		}
		if types := p.Schema.Types &^ upstream.TypeNull; s.body != "" && s.body != "*" && !p.Required && types != 0 && types != p.Schema.Types && !p.Schema.FreeJSON() {
			bare := *p.Schema
			bare.Types, p.Schema = types, &bare
			if keeps {
				t.clears[p.Name] = s.body
			}
		}
		all = append(all, argument{p, s})
	}
	path, body := t.changes().PathParams, t.changes().Body
	for i, p := range path {
		created := t.upserts() && i == len(path)-1
		add(upstream.Property{Name: p.Name, Schema: p.Schema, Required: !created, Description: p.Description}, slot{path: true})
	}
	if body != nil {
		s := body.Kinds[0].Schema
		whole := s.Choice != nil || s.Additional != nil || s.Types&upstream.TypeObject == 0
		if whole {
			add(upstream.Property{Name: "body", Schema: s, Required: body.Required}, slot{body: "*"})
		}
		for _, p := range s.Properties {
			if whole || p.Schema.Refused != "" || p.Name == s.Tenant || p.Name == s.AlsoTenant {
				continue
			}
			p.From, p.Part, p.Number, p.Required = nil, false, 0, p.Required && t.Replace == nil
			add(p, slot{body: p.Name})
		}
	}
	for i := range t.Operation.Params {
		p := &t.Operation.Params[i]
		s := p.Schema
		if p.Array {
			s = listOf(s, p.MinItems, p.MaxItems)
		}
		query := upstream.Property{Name: p.Name, Schema: s, Required: p.Required, Description: p.Description}
		if p.Array && p.Default != nil {
			query.Default = lenient(s, encode(p.Default))
		} else if len(p.Default) > 0 {
			query.Default = lenient(s, encode(p.Default[0]))
		}
		add(query, slot{query: p})
	}
	return all
}

// own returns the arguments for the gateway.
func (t *tool) own() (all []argument) {
	add := func(name string, s *upstream.Schema, description string) {
		all = append(all, argument{Property: upstream.Property{Name: name, Schema: s, Description: description}})
	}
	for _, p := range t.handler.arguments {
		all = append(all, argument{Property: p})
	}
	if t.fields != nil {
		add(argFields, namesOf(t.fields, 1), "")
	}
	if len(t.clears) > 0 {
		add(argClear, namesOf(slices.Collect(maps.Keys(t.clears)), 0), "To empty.")
	}
	if len(t.Version) > 0 && t.Kind == definition.KindUpdate {
		version := textOf(1, 128) // an empty one would be ignored
		if s := t.Operation.Success().Body.At(t.Version); s != nil {
			version.Types = s.Types &^ upstream.TypeNull
		}
		add(argIfVersion, version, "")
	}
	if t.key {
		add(argIdempotencyKey, textOf(8, 100), "Only to do it twice.")
	}
	if t.asks() {
		add(argConfirm, textOf(1, 128), "")
	}
	return all
}

// asks reports whether calls of the tool may need confirmation by the user.
func (t *tool) asks() bool { return t.Confirm != nil || t.Kind == definition.KindDelete || t.People }

func textOf(least, most int) *upstream.Schema {
	s := &upstream.Schema{Types: upstream.TypeString, Rules: upstream.NewRules()}
	s.Rules.MinLength, s.Rules.MaxLength = least, cmp.Or(most, s.Rules.MaxLength)
	return s
}

func listOf(s *upstream.Schema, least, most int) *upstream.Schema {
	list := &upstream.Schema{Types: upstream.TypeArray, Items: s, Rules: upstream.NewRules()}
	list.Rules.MinItems, list.Rules.MaxItems = least, most
	return list
}

// namesOf returns the schema of a list of at least some of the names, each once.
func namesOf(all []string, least int) *upstream.Schema {
	name := textOf(0, 0)
	for _, one := range slices.Sorted(slices.Values(all)) {
		name.Rules.Enum = append(name.Rules.Enum, `"`+one)
	}
	return listOf(name, least, len(all))
}

// fieldsOf returns the names of the fields that an operation's records can have.
func fieldsOf(op *upstream.Operation) (names []string) {
	for _, p := range op.Record().Properties {
		if !p.Internal {
			names = append(names, p.Name)
		}
	}
	return names
}

// aboutOf names what an operation is about: its record, or else what the last path parameter identifies, or the resource.
func aboutOf(op *upstream.Operation) string {
	name := op.Resource
	if res := op.Success(); res.Records != nil && res.Records.In != "" && !res.IsList() {
		name = res.Records.In
	} else if len(op.PathParams) > 0 {
		name = collectionOf(op)
	}
	return spaced(name)
}

// namedBy names what the last path parameter of the tool's operation identifies: the record, or the parent in which one is created.
func (t *tool) namedBy() string {
	op, n := t.Operation, len(t.Operation.PathParams)
	if n == 0 || strings.HasSuffix(path.Base(op.Path), "}") && t.Kind != definition.KindCreate && !op.Success().IsList() {
		return t.about
	}
	if name := op.PathParams[n-1].Name; name != argID && !strings.HasSuffix(name, "_id") {
		return spaced(name)
	}
	return spaced(collectionOf(op))
}

// collectionOf returns the last fixed segment before a path's last parameter, without a plural s.
func collectionOf(op *upstream.Operation) string {
	segments := strings.Split(op.Path[:strings.LastIndex(op.Path, "/{")], "/")
	fixed := slices.DeleteFunc(segments, func(segment string) bool { return strings.HasPrefix(segment, "{") })
	return strings.TrimSuffix(fixed[len(fixed)-1], "s")
}

func spaced(name string) string { return strings.NewReplacer("_", " ", "-", " ").Replace(name) }

// hasUntrusted reports whether a schema has a member with text from outside, at any depth.
func hasUntrusted(s *upstream.Schema, seen map[*upstream.Schema]bool) bool {
	if s == nil || seen[s] {
		return false
	}
	seen[s] = true
	return slices.ContainsFunc(s.Properties, func(p upstream.Property) bool {
		return !p.Internal && (p.As != "" || hasUntrusted(p.Schema, seen))
	}) || hasUntrusted(s.Items, seen) || hasUntrusted(s.Additional, seen) ||
		s.Choice != nil && slices.ContainsFunc(s.Choice.Alternatives, func(a *upstream.Schema) bool { return hasUntrusted(a, seen) })
}

// declare sets the tool's declaration in tools/list, which costs the model tokens. It omits descriptions that the instructions have for
// all tools, hints with the protocol's default, and what clients do not need of schemas: errors explain violations in words.
func (t *tool) declare(input *upstream.Schema, shared []string, described map[*upstream.Schema]bool) {
	in := shape(input, 0, true)
	for _, name := range shared {
		if p, ok := in["properties"].(map[string]any)[name].(map[string]any); ok {
			delete(p, "description")
			if items, ok := p["items"].(map[string]any); ok {
				delete(items, "enum")
			}
		}
	}
	d := declaration{Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: in, OutputSchema: t.outputSchema(described)}
	// The protocol's defaults are readOnlyHint false, destructiveHint true, idempotentHint false and openWorldHint true.
	switch d.Annotations = map[string]bool{}; {
	case !t.writes():
		d.Annotations["readOnlyHint"] = true
	case t.Kind == definition.KindCreate:
		d.Annotations["destructiveHint"] = false
	case t.Idempotent:
		d.Annotations["idempotentHint"] = true
	}
	if !t.People {
		d.Annotations["openWorldHint"] = false
	}
	t.declared = map[bool][]byte{true: encode(d)}
	d.OutputSchema = nil
	t.declared[false] = encode(d)
}

// shared returns the names of arguments that the instructions explain for all tools: cursor, fields and, if the definition's do, limit.
func (t *tool) shared(res *upstream.DocumentedResponse, explained string) []string {
	names := []string{res.Cursor}
	if t.fields != nil { // else it may be an argument of the operation
		names = append(names, argFields)
	}
	if res.Records != nil && res.Records.AtMost > 0 {
		for _, p := range t.Operation.Params {
			if p.Number == res.Records.AtMost && strings.Contains(explained, `"`+p.Name+`"`) {
				names = append(names, p.Name)
			}
		}
	}
	return names
}
