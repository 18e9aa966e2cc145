package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	fast "github.com/go-json-experiment/json"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// kind is what a tool does to the account. The last two may ask the person or tell of their progress; the others must not, as
// most of their calls have no session to do it in.
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
	run         func(ctx context.Context, c *call, arguments json.RawMessage) (*outcome, error)

	// set by prepare
	input, output *jsonschema.Schema
	quick         *shape   // of the output, nil if there is none
	arguments     []string // their names, in the schema's order
}

// outcome is what a tool that did its work has to say.
type outcome struct {
	value     any    // the structured content
	target    string // what it was done to, for the audit trail
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
			t.arguments = append(t.arguments, fmt.Sprint(properties[j]))
		}
	}
	return nil
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
func handle[A any](f func(ctx context.Context, c *call, arguments A) (*outcome, error)) func(
	context.Context, *call, json.RawMessage,
) (*outcome, error) {
	return func(ctx context.Context, c *call, raw json.RawMessage) (*outcome, error) {
		var arguments A
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &arguments); err != nil {
				return nil, &toolError{
					code: codeArguments, sentence: "The arguments cannot be read.", done: c.tool.untouched(),
					next: correctAndCall, cause: err,
				}
			}
		}
		return f(ctx, c, arguments)
	}
}

// members are arguments as they were sent: what is absent stays out, null is null.
type members map[string]json.RawMessage

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
func (t *tool) success(o *outcome) (*sdk.CallToolResult, error) {
	written, err := fast.Marshal(o.value)
	if err != nil {
		return nil, fmt.Errorf("writing what %s answers: %w", t.name, err)
	}
	written = withoutHidden(written)
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
	return &sdk.CallToolResult{
		Content:           []sdk.Content{&sdk.TextContent{Text: text}},
		StructuredContent: json.RawMessage(written),
	}, nil
}

// checkOutput returns why an answer does not meet the output schema.
func (t *tool) checkOutput(written []byte) error {
	if t.quick != nil && t.quick.fits(written) {
		return nil
	}
	var doc any
	if err := fast.Unmarshal(written, &doc); err != nil {
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
