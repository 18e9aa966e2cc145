package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	schemakind "github.com/santhosh-tekuri/jsonschema/v6/kind"
	textlanguage "golang.org/x/text/language"
	textmessage "golang.org/x/text/message"
)

// objectRoutes serves a business's own types of records, and the records of these types.
func objectRoutes() []route {
	types := &kind{list: byName(), what: "type of objects", alone: "connect_object_types_alone"}
	typeRoutes := types.reading("object-types", "object_type")
	objects := &kind{
		list: newestFirst(), what: "object", within: "type", search: true, table: "objects", modified: "updated_at", check: checkObject,
		input: schema{{name: "fields", form: object(), required: true}},
	}
	objects.reading("objects", "object")
	// ofType serves a call if the business has the type that the path names first.
	ofType := func(serve handler) handler {
		return func(ctx context.Context, c *connectCall) (int, []byte, error) {
			if _, err := types.find(ctx, c, c.path[0]); err != nil {
				return 0, nil, err
			}
			return serve(ctx, c)
		}
	}
	return []route{
		typeRoutes[0],
		{method: http.MethodGet, path: "object-types/{type}", serve: types.get},
		{method: http.MethodGet, path: "objects/{type}", query: true, serve: ofType(objects.getList)},
		{method: http.MethodPost, path: "objects/{type}", serve: ofType(objects.create)},
		{method: http.MethodGet, path: "objects/{type}/{id}", serve: ofType(objects.get)},
		{method: http.MethodPatch, path: "objects/{type}/{id}", serve: ofType(objects.on(objects.merge))},
		{method: http.MethodDelete, path: "objects/{type}/{id}", owner: true, serve: ofType(objects.on(objects.delete))},
	}
}

// merge serves a JSON Merge Patch (RFC 7396) of an object's fields.
func (k *kind) merge(ctx context.Context, c *connectCall, found listed) (int, []byte, error) {
	v := k.input.read(&c.problems, "", c.body, false)
	if v.text("fields") == "{}" {
		c.problems.add("fields", "has nothing to change", "at least one field")
	}
	if err := c.problems.err(); err != nil {
		return 0, nil, err
	}
	var merged string
	if err := c.tx.QueryRowContext(ctx, "SELECT json_patch(fields, ?) FROM objects WHERE id = ?", v["fields"], found.id).Scan(&merged); err != nil {
		return 0, nil, fmt.Errorf("merging fields: %w", err)
	}
	return k.update(ctx, c, found.id, values{"fields": merged})
}

// checkObject validates the fields against the type's schema.
func checkObject(ctx context.Context, c *connectCall, _ any, v values) error {
	if err := c.problems.err(); err != nil {
		return err
	}
	fields := v.text("fields")
	if len(fields) > maxConnectBody {
		c.problems.add("fields", "would be larger than an object can be", "at most 64 KiB in all")
		return c.problems.err()
	}
	var definition string
	if err := c.tx.QueryRowContext(ctx, "SELECT schema FROM object_types WHERE business_id = ? AND name = ?", c.business.id, c.path[0]).
		Scan(&definition); err != nil {
		return fmt.Errorf("reading a type of objects: %w", err)
	}
	v["type"] = c.path[0]
	return cmp.Or(checkSchema(&c.problems, "fields", definition, fields), c.problems.err())
}

// checkSchema validates a value by a JSON Schema (2020-12) and adds each problem with its path below at. Formats are
// checked, references are not fetched. An error means that the schema is invalid.
func checkSchema(p *problems, at, schema, value string) error {
	const name = "urn:gatehouse:schema"
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiler.UseLoader(jsonschema.SchemeURLLoader{})
	definition, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	v, valueErr := jsonschema.UnmarshalJSON(strings.NewReader(value))
	if err := cmp.Or(err, valueErr); err != nil {
		return fmt.Errorf("reading a schema and its value: %w", err)
	}
	if err := compiler.AddResource(name, definition); err != nil {
		return fmt.Errorf("reading a schema: %w", err)
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		return fmt.Errorf("compiling a schema: %w", err)
	}
	var invalid *jsonschema.ValidationError
	if err := compiled.Validate(v); errors.As(err, &invalid) {
		p.addInvalid(at, compiled, invalid)
		slices.SortStableFunc(p.all, func(a, b detail) int { return cmp.Compare(a.Field, b.Field) })
	} else if err != nil {
		return fmt.Errorf("checking a value: %w", err)
	}
	return nil
}

// addInvalid describes a validation error.
func (p *problems) addInvalid(at string, root *jsonschema.Schema, e *jsonschema.ValidationError) {
	switch e.ErrorKind.(type) {
	case *schemakind.AnyOf, *schemakind.OneOf, *schemakind.Not, *schemakind.Contains:
		// The causes of these are alternatives, of which not all have to hold.
	default:
		for _, cause := range e.Causes {
			p.addInvalid(at, root, cause)
		}
		if len(e.Causes) > 0 {
			return
		}
	}
	var known map[string]*jsonschema.Schema
	if len(e.InstanceLocation) == 0 {
		known = root.Properties
	}
	path := []string{at}
	for _, token := range e.InstanceLocation {
		if _, err := strconv.Atoi(token); err == nil {
			path = append(path, "["+token+"]")
		} else {
			path = append(path, "."+token)
		}
	}
	field := strings.Join(path, "")
	switch k := e.ErrorKind.(type) {
	case *schemakind.Required:
		for _, name := range k.Missing {
			p.add(field+"."+name, "is required", "")
		}
	case *schemakind.AdditionalProperties:
		for _, name := range slices.Sorted(slices.Values(k.Properties)) {
			p.add(field+"."+name, "is not known here", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	case *schemakind.Format:
		p.add(field, "is not of the right form", "the format "+k.Want)
	case *schemakind.Pattern:
		p.add(field, "is not of the right form", "the pattern "+k.Want)
	default:
		p.add(field, "does not match the schema: "+k.LocalizedString(textmessage.NewPrinter(textlanguage.English)), "")
	}
}
