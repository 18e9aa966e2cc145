package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
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
	about     string              // the kind of record, for errors and the audit log
	brief     *upstream.Operation // Operation with the default fields
	arguments *upstream.Operation // whose body has all arguments
	slots     []slot              // of the arguments that are sent
	names     []string            // of all arguments
	fields    []string            // that the caller may ask for, nil if it may not
	key       bool                // a retry is recognised: see idempotentWrite
	untrusted bool                // its results contain text from outside the business
	handler   handler
	declared  []byte // in tools/list
}

// slot is where an argument goes.
type slot struct {
	argument string
	path     bool            // the next parameter of the path
	query    *upstream.Param // a parameter of the query
	body     string          // a member of the body; "*": the body
}

// handler is the implementation of a tool that a definition cannot describe.
type handler struct {
	arguments []upstream.Property // besides those of the operation
	run       func(ctx context.Context, c *toolCall) (jsontext.Value, error)
	result    map[string]any // properties of the output schema, besides those of the operation
}

// Arguments of tools, besides those of their operations. The instructions explain them.
const (
	argFields         = "fields"
	argIfVersion      = "if_version"
	argIdempotencyKey = "idempotency_key"
	argConfirm        = "confirm"
	argID             = "id" // the usual name of a record's
)

func (t *tool) writes() bool { return t.Kind != definition.KindRead }

// notDone returns what an error says about a call that was rejected before anything happened.
func (t *tool) notDone() string {
	if t.writes() {
		return nothingDone
	}
	return nothingRead
}

// Check returns why a server cannot have the tools of a definition: a line for each.
func Check(d *definition.Definition) error {
	_, err := newTools(d, scope.New(d.Areas))
	return err
}

// newTools prepares the tools of the areas, by name.
func newTools(d *definition.Definition, areas scope.Areas) (map[string]*tool, error) {
	tools, everything := map[string]*tool{}, areas.Everything()
	described := map[*upstream.Schema]bool{}
	var faults []error
	for _, byRecord := range []bool{true, false} { // the shape of a record stands in the tool that gets one
		for _, says := range d.Tools {
			if res := says.Operation.Success(); byRecord != (says.Kind == definition.KindRead && !res.IsList()) {
				continue
			}
			t := &tool{Tool: says}
			if t.scope = says.Area + ":" + verbOf(says.Kind); !everything.Allows(t.scope) {
				continue
			}
			if err := t.prepare(described); err != nil {
				faults = append(faults, fmt.Errorf("tool %s: %w", says.Name, err))
			}
			tools[t.Name] = t
		}
	}
	return tools, errors.Join(faults...)
}

func verbOf(kind string) string {
	switch kind {
	case definition.KindRead:
		return scope.VerbRead
	case definition.KindRun:
		return scope.VerbRun
	}
	return scope.VerbWrite
}

// prepare compiles the arguments, and what tools/list shows.
func (t *tool) prepare(described map[*upstream.Schema]bool) error {
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
			t.untrusted = t.untrusted || (r.Status == 2 || r.Status/100 == 2) && hasUntrusted(r.Body, map[*upstream.Schema]bool{})
		}
	}
	t.key = (t.Kind == definition.KindCreate || t.Kind == definition.KindRun || t.upserts()) && op.Forwards("Idempotency-Key")
	input := &upstream.Schema{Types: upstream.TypeObject}
	for _, a := range append(t.sent(), t.own()...) {
		if input.Property(a.Name) != nil {
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
	t.declare(input, res, described)
	return nil
}

// argument is an argument of a tool. Its slot is empty if it is for the gateway.
type argument struct {
	upstream.Property
	slot
}

// sent returns the arguments that are sent: those of the path, the body and the query.
func (t *tool) sent() (all []argument) {
	add := func(p upstream.Property, s slot) {
		// Of a parameter of the path and a member of the body with one name, the parameter gets the other.
		other, ok := t.Arguments[p.Name]
		if ok && (s.path || !slices.ContainsFunc(all, func(a argument) bool { return a.Name == other })) {
			p.Name = other
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
	add := func(name string, s *upstream.Schema) {
		all = append(all, argument{Property: upstream.Property{Name: name, Schema: s}})
	}
	for _, p := range t.handler.arguments {
		all = append(all, argument{Property: p})
	}
	if t.fields != nil {
		names := textOf(0, 0)
		for _, name := range t.fields {
			names.Rules.Enum = append(names.Rules.Enum, `"`+name)
		}
		slices.Sort(names.Rules.Enum)
		add(argFields, listOf(names, 1, len(t.fields)))
	}
	if len(t.Version) > 0 && t.Kind == definition.KindUpdate {
		version := textOf(1, 128) // an empty one would be none
		if s := t.Operation.Success().Body.At(t.Version); s != nil {
			version.Types = s.Types &^ upstream.TypeNull
		}
		add(argIfVersion, version)
	}
	if t.key {
		add(argIdempotencyKey, textOf(8, 100))
	}
	if t.asks() {
		add(argConfirm, textOf(1, 128))
	}
	return all
}

// asks reports whether a person may be asked before the tool does something.
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

// fieldsOf returns the names of the fields that records can have.
func fieldsOf(op *upstream.Operation) (names []string) {
	for _, p := range op.Record().Properties {
		if !p.Internal {
			names = append(names, p.Name)
		}
	}
	return names
}

// aboutOf names what an operation is about: the record, or what its last parameter stands for.
func aboutOf(op *upstream.Operation) string {
	name := op.Resource
	if res := op.Success(); res.Records != nil && res.Records.In != "" && !res.IsList() {
		name = res.Records.In
	} else if len(op.PathParams) > 0 {
		name = collectionOf(op)
	}
	return spaced(name)
}

// namedBy returns what the last parameter of the path of a tool's operation stands for: the record, or that in which one is created.
func (t *tool) namedBy() string {
	op, n := t.Operation, len(t.Operation.PathParams)
	if n == 0 || strings.HasSuffix(op.Path, "}") && t.Kind != definition.KindCreate && !op.Success().IsList() {
		return t.about
	}
	if name := op.PathParams[n-1].Name; name != argID && !strings.HasSuffix(name, "_id") {
		return spaced(name)
	}
	return spaced(collectionOf(op))
}

// collectionOf returns the last fixed segment before the last parameter of a path, without a plural's s.
func collectionOf(op *upstream.Operation) string {
	segments := strings.Split(op.Path[:strings.LastIndex(op.Path, "/{")], "/")
	fixed := slices.DeleteFunc(segments, func(segment string) bool { return strings.HasPrefix(segment, "{") })
	return strings.TrimSuffix(fixed[len(fixed)-1], "s")
}

func spaced(name string) string { return strings.NewReplacer("_", " ", "-", " ").Replace(name) }

// hasUntrusted reports whether a member below a schema is text from outside.
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

// declare sets how tools/list shows the tool. Descriptions and hints that say what goes without saying are left out, and output schemas say
// no more than clients need: what a schema does not say, an error says in words.
func (t *tool) declare(input *upstream.Schema, res *upstream.DocumentedResponse, described map[*upstream.Schema]bool) {
	in := shape(input, 0, true)
	for _, shared := range t.shared(res) {
		if p, ok := in["properties"].(map[string]any)[shared].(map[string]any); ok {
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
	case t.Kind != definition.KindRun:
		d.Annotations["idempotentHint"] = true
	}
	if !t.People {
		d.Annotations["openWorldHint"] = false
	}
	t.declared = encode(d)
}

// shared returns the arguments that the instructions explain for all tools.
func (t *tool) shared(res *upstream.DocumentedResponse) []string {
	names := []string{res.Cursor}
	if t.fields != nil { // otherwise, it may be one of the operation's own
		names = append(names, argFields)
	}
	if res.Records != nil && res.Records.AtMost > 0 {
		for _, p := range t.Operation.Params {
			if p.Number == res.Records.AtMost {
				names = append(names, p.Name)
			}
		}
	}
	return names
}
