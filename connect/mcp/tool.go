package mcp

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	gschema "github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// kind is what a tool does to the account.
type kind int

const (
	reads kind = iota
	adds
	changes // or replaces
	deletes // for good
	runs    // an automation, which may reach people outside
)

// tool is one MCP tool.
type tool struct {
	name         string
	title        string
	description  string
	scope        string
	kind         kind
	idempotent   bool
	untrusted    bool              // its results contain text from outside the business
	about        string            // the kind of record, for errors: "contact"
	arguments    map[string]string // descriptions of arguments that are not in their type's tags
	minArguments int               // so many arguments have to be given
	example      string            // arguments, JSON
	function

	// set by prepare
	in, out  *gschema.Schema
	input    *jsonschema.Schema
	check    check                     // of results
	defaults map[string]jsontext.Value // of arguments
}

// function is a tool's implementation with the types that its schemas are derived from.
type function struct {
	argumentsType, resultType reflect.Type
	run                       func(ctx context.Context, c *toolCall) (any, error)
}

// handle makes a function of f, which gets valid arguments and returns the structured content.
func handle[A, R any](f func(ctx context.Context, c *toolCall, arguments A) (R, error)) function {
	return function{reflect.TypeFor[A](), reflect.TypeFor[R](), func(ctx context.Context, c *toolCall) (any, error) {
		var arguments A
		if err := json.Unmarshal(c.arguments, &arguments); err != nil {
			return nil, &toolError{
				code: codeArguments, sentence: "The arguments cannot be read.", done: c.tool.notDone(),
				next: correctAndCall, // not the error, which may quote them
			}
		}
		return f(ctx, c, arguments)
	}}
}

func (t *tool) writes() bool { return t.kind != reads }

// notDone returns what an error says about a call that was refused before anything happened.
func (t *tool) notDone() string {
	if t.writes() {
		return nothingDone
	}
	return nothingRead
}

// prepare derives the schemas and the result check.
func (t *tool) prepare() error {
	var err error
	if t.in, err = schemaOf(t.argumentsType); err != nil {
		return err
	}
	for name, description := range t.arguments {
		if t.in.Properties[name] == nil {
			return fmt.Errorf("unknown argument %q", name)
		}
		t.in.Properties[name].Description = description
	}
	if t.minArguments > 0 {
		t.in.MinProperties = &t.minArguments
	}
	if t.example != "" {
		t.in.Examples = []any{jsontext.Value(t.example)}
	}
	t.defaults = map[string]jsontext.Value{}
	for name, p := range t.in.Properties {
		if p.Default != nil {
			t.defaults[name] = jsontext.Value(p.Default)
		}
	}
	if t.input, err = compile(t.name+".input.json", t.in); err != nil {
		return err
	}
	if t.out, err = schemaOf(t.resultType); err != nil {
		return err
	}
	t.check, err = checkOf(t.out, t.resultType)
	return err
}

// withDefaults adds the defaults of absent arguments, so that a call that states a default has the same fingerprint.
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

// declaration returns the tool as tools/list shows it.
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

// patch returns the arguments as a JSON merge patch, without those named.
func (c *toolCall) patch(without ...string) (data.Patch, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(c.arguments, &members); err != nil {
		return nil, fmt.Errorf("reading the arguments: %w", err)
	}
	patch := data.Patch{}
	for name, value := range members {
		if !slices.Contains(without, name) {
			patch[name] = value
		}
	}
	return patch, nil
}

// success returns the result with the structured content, which must match the output schema because clients check it.
func (t *tool) success(content any) (*callResult, error) {
	err := t.check(reflect.ValueOf(content))
	var written jsontext.Value
	if err == nil {
		written, err = json.Marshal(content)
	}
	if err != nil {
		return nil, &toolError{
			code:     codeInvalid,
			sentence: "The business's data service sent an invalid response. This is not the fault of your arguments.",
			done:     t.doneUnusably(),
			next:     "Calling again is unlikely to help; tell the person, with the request id.",
			cause:    err,
		}
	}
	text := string(written)
	if t.untrusted {
		text = fence(text)
	}
	result := textResult(text)
	result.Structured = written
	return result, nil
}

func (t *tool) doneUnusably() string {
	if t.writes() {
		return "The change was probably made: look before you call again."
	}
	return nothingRead
}
