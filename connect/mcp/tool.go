package mcp

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	gschema "github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// kind is what a tool does to the account.
type kind string

const (
	reads   kind = "read"
	adds    kind = "add"
	changes kind = "change" // or replace
	deletes kind = "delete" // for good
	runs    kind = "run"    // an automation, which may reach people outside
)

// tool is one MCP tool. tools.json has the exported fields.
type tool struct {
	Name         string            `json:"name"`
	Title        string            `json:"title"`
	Description  string            `json:"description"`
	Scope        string            `json:"scope"`
	Kind         kind              `json:"kind"`
	About        string            `json:"about"` // the kind of record, for errors
	Idempotent   bool              `json:"idempotent"`
	Untrusted    bool              `json:"untrusted"`     // its results contain text from outside the business
	Arguments    map[string]string `json:"arguments"`     // descriptions of arguments that are not in their type's tags
	MinArguments int               `json:"min_arguments"` // the minimum number of arguments
	Example      jsontext.Value    `json:"example"`       // arguments

	function `json:"-"`

	// set by prepare
	in, out  *gschema.Schema
	input    func() (*jsonschema.Schema, error)
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
				code: codeArguments, message: "The arguments cannot be read.", effect: c.tool.notDone(),
				advice: correctAndCall, // not the error, which may quote them
			}
		}
		return f(ctx, c, arguments)
	}}
}

func (t *tool) writes() bool { return t.Kind != reads }

// notDone returns what an error says about a call that was rejected before anything happened.
func (t *tool) notDone() string {
	if t.writes() {
		return nothingDone
	}
	return nothingRead
}

// prepare derives the schemas and the result check.
func (t *tool) prepare() error {
	if t.run == nil {
		return errors.New("no implementation")
	}
	var err error
	if t.in, err = schemaOf(t.argumentsType); err != nil {
		return err
	}
	for name, description := range t.Arguments {
		if t.in.Properties[name] == nil {
			return fmt.Errorf("unknown argument %q", name)
		}
		t.in.Properties[name].Description = description
	}
	if t.MinArguments > 0 {
		t.in.MinProperties = &t.MinArguments
	}
	if t.Example != nil {
		t.in.Examples = []any{t.Example}
	}
	t.defaults = map[string]jsontext.Value{}
	for name, p := range t.in.Properties {
		if p.Default != nil {
			t.defaults[name] = jsontext.Value(p.Default)
		}
	}
	t.input = sync.OnceValues(func() (*jsonschema.Schema, error) { return compile(t.in) })
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
		Name:         t.Name,
		Title:        t.Title,
		Description:  t.Description,
		InputSchema:  t.in,
		OutputSchema: t.out,
		Annotations: &sdk.ToolAnnotations{
			Title:           t.Title,
			ReadOnlyHint:    t.Kind == reads,
			DestructiveHint: new(t.Kind == changes || t.Kind == deletes || t.Kind == runs),
			IdempotentHint:  t.Idempotent || t.Kind == reads,
			OpenWorldHint:   new(t.Kind == runs),
		},
	}
}

// patch returns the arguments as a JSON merge patch, without those named.
func (c *toolCall) patch(without ...string) data.Patch {
	var arguments map[string]jsontext.Value
	_ = json.Unmarshal(c.arguments, &arguments) // cannot fail: handle has read them
	p := data.Patch{}
	for name, value := range arguments {
		if !slices.Contains(without, name) {
			p[name] = value
		}
	}
	return p
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
			code:    codeInvalid,
			message: "The business's data service sent an invalid response. Your arguments are not the cause.",
			effect:  t.doneUnusably(),
			advice:  "Calling again is unlikely to help. Tell the user, with the request id.",
			cause:   err,
		}
	}
	text := string(written)
	if t.Untrusted {
		text = fence(text)
	}
	result := textResult(text)
	result.Structured = written
	return result, nil
}

func (t *tool) doneUnusably() string {
	if t.writes() {
		return "The change was probably made. Check the record before you call again."
	}
	return nothingRead
}
