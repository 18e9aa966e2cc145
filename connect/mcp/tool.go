package mcp

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// kind is what a tool does to the account.
type kind int

const (
	reads   kind = iota
	adds         // creates something, and leaves what is there
	changes      // changes or replaces what is there
	deletes      // removes something for good
	runs         // has something done, which may reach the world outside
)

// tool is one tool, before and after it is registered.
type tool struct {
	name        string
	title       string
	description string
	scope       string // what a connection needs for it
	kind        kind
	idempotent  bool   // doing it twice with the same arguments is as good as once
	about       string // the kind of record, for errors: "contact"
	in, out     node
	run         func(ctx context.Context, c *toolCall, arguments jsontext.Value) (*outcome, error)

	// set by prepare
	input, output *jsonschema.Schema
	quick         *shape                    // of the output, nil if there is none
	arguments     []string                  // their names, in the schema's order
	defaults      map[string]jsontext.Value // of arguments
}

// outcome is what a tool that did its work has to say.
type outcome struct {
	value     any    // the structured content
	target    string // what it was done to, for the audit log
	untrusted bool   // the value holds strangers' texts
	refused   bool   // the person said no: nothing was done
	input     *inputNeeded
}

func (t *tool) writes() bool { return t.kind != reads }

// untouched says that a call was turned away before anything happened.
func (t *tool) untouched() string {
	if t.writes() {
		return nothingDone
	}
	return nothingRead
}

// prepare compiles the schemas.
func (t *tool) prepare() error {
	var err error
	if t.input, err = compile(t.name+".input.json", t.in); err != nil {
		return err
	}
	if t.output, err = compile(t.name+".output.json", t.out); err != nil {
		return err
	}
	t.quick = shapeOf(t.output)
	for i := 0; i+1 < len(t.in); i += 2 {
		properties, ok := t.in[i+1].(node)
		if t.in[i] != "properties" || !ok {
			continue
		}
		for j := 0; j+1 < len(properties); j += 2 {
			name := fmt.Sprint(properties[j])
			t.arguments = append(t.arguments, name)
			if err := t.readDefault(name, properties[j+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tool) readDefault(name string, schema any) error {
	n, _ := schema.(node)
	for i := 0; i+1 < len(n); i += 2 {
		if n[i] != "default" {
			continue
		}
		value, err := json.Marshal(n[i+1])
		if err != nil {
			return fmt.Errorf("encoding the default of %s: %w", name, err)
		}
		if t.defaults == nil {
			t.defaults = map[string]jsontext.Value{}
		}
		t.defaults[name] = value
	}
	return nil
}

// withDefaults returns arguments with the defaults of those that are absent: a call that spells a default out is the same call.
func (t *tool) withDefaults(arguments jsontext.Value) (jsontext.Value, error) {
	if len(t.defaults) == 0 {
		return arguments, nil
	}
	var given map[string]jsontext.Value
	if err := json.Unmarshal(arguments, &given); err != nil {
		return nil, fmt.Errorf("reading arguments: %w", err)
	}
	for name, value := range t.defaults {
		if _, ok := given[name]; !ok {
			given[name] = value
		}
	}
	all, err := json.Marshal(given)
	if err != nil {
		return nil, fmt.Errorf("encoding arguments: %w", err)
	}
	return all, nil
}

// declaration is the tool as clients see it.
func (t *tool) declaration() *sdk.Tool {
	return &sdk.Tool{
		Name:         t.name,
		Title:        t.title,
		Description:  t.description,
		InputSchema:  t.in,
		OutputSchema: t.out,
		Annotations: &sdk.ToolAnnotations{
			Title:           t.title,
			ReadOnlyHint:    t.kind == reads,
			DestructiveHint: new(t.kind == changes || t.kind == deletes || t.kind == runs),
			IdempotentHint:  t.idempotent || t.kind == reads,
			OpenWorldHint:   new(t.kind == runs),
		},
	}
}

// handle makes a tool's run of a function with typed arguments. They have met the input schema.
func handle[A any](f func(ctx context.Context, c *toolCall, arguments A) (*outcome, error)) func(
	context.Context, *toolCall, jsontext.Value,
) (*outcome, error) {
	return func(ctx context.Context, c *toolCall, raw jsontext.Value) (*outcome, error) {
		var arguments A
		if err := json.Unmarshal(raw, &arguments); err != nil {
			return nil, &toolError{
				code: codeArguments, sentence: "The arguments cannot be read.", done: c.tool.untouched(),
				next: correctAndCall, cause: err,
			}
		}
		return f(ctx, c, arguments)
	}
}

// members are arguments as they were sent: what is absent stays out, null is null.
type members map[string]jsontext.Value

// except returns the members without some.
func (m members) except(names ...string) map[string]any {
	rest := map[string]any{}
	for name, v := range m {
		if !slices.Contains(names, name) {
			rest[name] = v
		}
	}
	return rest
}

// read reads one member, if it is there.
func (m members) read(name string, into any) error {
	v, ok := m[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(v, into); err != nil {
		return fmt.Errorf("reading the argument %s: %w", name, err)
	}
	return nil
}

// success makes a tool's result of its outcome. The structured content has to meet the output schema: clients check it.
func (t *tool) success(o *outcome) (*callResult, error) {
	written, err := json.Marshal(o.value)
	if err != nil {
		return nil, fmt.Errorf("writing what %s answers: %w", t.name, err)
	}
	if err := t.checkOutput(written); err != nil {
		return nil, &toolError{
			code:     codeUnusable,
			sentence: "The business's data service gave an answer that cannot be used. This is not the fault of your arguments.",
			done:     t.doneUnusably(),
			next:     "Calling again is unlikely to help; tell the person, with the request id.",
			cause:    err,
		}
	}
	text := string(written)
	if o.untrusted {
		text = fence(text)
	}
	result := textResult(text)
	result.Structured = written
	return result, nil
}

// checkOutput returns why an answer does not meet the output schema.
func (t *tool) checkOutput(written []byte) error {
	if t.quick != nil && t.quick.fits(written) {
		return nil
	}
	var doc any
	if err := json.Unmarshal(written, &doc); err != nil {
		return fmt.Errorf("reading what %s answers: %w", t.name, err)
	}
	return t.output.Validate(doc)
}

func (t *tool) doneUnusably() string {
	if t.writes() {
		return "The change was probably made: look before you call again."
	}
	return nothingRead
}
