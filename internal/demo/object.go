package demo

import (
	"bytes"
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"
	schemakind "github.com/santhosh-tekuri/jsonschema/v6/kind"
	textlanguage "golang.org/x/text/language"
	textmessage "golang.org/x/text/message"
)

// objectType is one of a business's own types of records.
type objectType struct {
	Name        string  `db:"name"` // unique within the business
	BusinessID  string  `db:"business_id"`
	Title       string  `db:"title"`
	Description *string `db:"description"`
	Schema      string  `db:"schema,json"`  // JSON Schema of the fields
	ObjectCount int64   `db:"object_count"` // by the view
}

// objectTypeKind describes the list, which omits the schemas.
func objectTypeKind() *kindOf[objectType] {
	fields := fieldsOf[objectType]()
	for i := range fields {
		fields[i].hidden = fields[i].name == "schema"
	}
	return &kindOf[objectType]{
		one: "object_type", many: "object_types", what: "type of objects", table: "connect_object_types", fields: fields,
		key: "name", id: "name",
	}
}

// object is a record of an objectType.
type object struct {
	ID         string `db:"id"`
	BusinessID string `db:"business_id"`
	Type       string `db:"type"`
	Fields     string `db:"fields,json"`          // JSON
	SearchText string `db:"search_text" json:"-"` // what words are looked for in, folded
	Version    int64  `db:"version"`
	CreatedAt  string `db:"created_at"`
	UpdatedAt  string `db:"updated_at"`
}

func objectKind() *kindOf[object] {
	return &kindOf[object]{
		one: "object", many: "objects", what: "object", table: "objects", key: "created_at", id: "id", newest: true,
		search: "search_text",
		fields: fieldsOf[object](),
	}
}

func objectRoutes() []route {
	types, single, k := objectTypeKind(), objectTypeKind(), objectKind()
	single.fields = shown(single.fields, "schema")
	return []route{
		{method: http.MethodGet, path: "object-types", query: true, serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			return types.page(ctx, c, c.parameters())
		}},
		{method: http.MethodGet, path: "object-types/{name}", serve: single.get},
		{method: http.MethodGet, path: "objects/{type}", query: true, serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			t, err := types.find(ctx, c, c.path[0])
			if err != nil {
				return 0, nil, err
			}
			return k.page(ctx, c, c.parameters(), filter{"type = ?", t.Name})
		}},
		{method: http.MethodPost, path: "objects/{type}", serve: createObject},
		{method: http.MethodGet, path: "objects/{type}/{id}", serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			_, row, err := findObject(ctx, c)
			if err != nil {
				return 0, nil, err
			}
			return http.StatusOK, k.answer(row), nil
		}},
		{method: http.MethodPatch, path: "objects/{type}/{id}", serve: updateObject},
		{method: http.MethodDelete, path: "objects/{type}/{id}", owner: true, serve: deleteObject},
	}
}

// findObject returns the type and the object that the path names.
func findObject(ctx context.Context, c *connectCall) (*objectType, *object, error) {
	t, err := objectTypeKind().find(ctx, c, c.path[0])
	if err != nil {
		return nil, nil, err
	}
	row, err := objectKind().find(ctx, c, c.path[1], filter{"type = ?", t.Name})
	if err != nil {
		return nil, nil, err
	}
	return t, row, nil
}

func createObject(ctx context.Context, c *connectCall) (int, []byte, error) {
	t, err := objectTypeKind().find(ctx, c, c.path[0])
	if err != nil {
		return 0, nil, err
	}
	in := c.input(false)
	given := in.object("fields", true)
	if err := in.done(); err != nil {
		return 0, nil, err
	}
	k, now := objectKind(), instant(c.now)
	row := object{
		ID: uuid.NewString(), BusinessID: c.business.ID, Type: t.Name, Fields: string(compact(given)), Version: 1, CreatedAt: now, UpdatedAt: now,
	}
	if err := row.check(c, t); err != nil {
		return 0, nil, err
	}
	if err := insert(ctx, c.tx, k.table, k.fields, []object{row}); err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, k.answer(&row), nil
}

func updateObject(ctx context.Context, c *connectCall) (int, []byte, error) {
	t, row, err := findObject(ctx, c)
	if err != nil {
		return 0, nil, err
	}
	in := c.input(false)
	change := in.object("fields", true)
	in.end()
	if len(c.problems.all) == 0 && len(compact(change)) == len("{}") {
		in.p.add("fields", "has nothing to change", "at least one field")
	}
	if err := c.problems.err(); err != nil {
		return 0, nil, err
	}
	merged, err := mergePatch(row.Fields, change)
	if err != nil {
		return 0, nil, err
	}
	row.Fields = merged
	if err := row.check(c, t); err != nil {
		return 0, nil, err
	}
	row.Version++
	row.UpdatedAt = instant(c.now)
	k := objectKind()
	if err := k.update(ctx, c, row); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, k.answer(row), nil
}

func deleteObject(ctx context.Context, c *connectCall) (int, []byte, error) {
	_, row, err := findObject(ctx, c)
	if err != nil {
		return 0, nil, err
	}
	return objectKind().remove(ctx, c, row)
}

// check validates the fields against the type's schema and updates the search text.
func (o *object) check(c *connectCall, t *objectType) error {
	if len(o.Fields) > maxConnectBody {
		c.problems.add("fields", "would be larger than an object can be", "at most 64 KiB in all")
		return c.problems.err()
	}
	if err := checkSchema(&c.problems, "fields", t.Schema, []byte(o.Fields)); err != nil {
		return err
	}
	o.SearchText = searchText(o.Fields)
	return c.problems.err()
}

// searchText returns the strings and numbers in a JSON value.
func searchText(value string) string {
	var words []string
	d := jsontext.NewDecoder(strings.NewReader(value))
	for {
		// The names of members are not searched.
		kind, names := d.StackIndex(d.StackDepth())
		isName := kind == '{' && names%2 == 0
		token, err := d.ReadToken()
		if err != nil {
			return fold(strings.Join(words, " "))
		}
		if k := token.Kind(); k == '"' && !isName || k == '0' {
			words = append(words, token.String())
		}
	}
}

// mergePatch applies a JSON Merge Patch (RFC 7396).
func mergePatch(target string, patch []byte) (string, error) {
	var t, p any
	for _, part := range []struct {
		from string
		into *any
	}{{target, &t}, {string(patch), &p}} {
		d := stdjson.NewDecoder(strings.NewReader(part.from))
		d.UseNumber() // a number stays what it is
		if err := d.Decode(part.into); err != nil {
			return "", fmt.Errorf("merging fields: %w", err)
		}
	}
	var b bytes.Buffer
	e := stdjson.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(merge(t, p)); err != nil {
		return "", fmt.Errorf("merging fields: %w", err)
	}
	return strings.TrimSpace(b.String()), nil
}

func merge(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	for name, value := range p {
		if value == nil {
			delete(t, name)
			continue
		}
		t[name] = merge(t[name], value)
	}
	return t
}

// compileSchema compiles a JSON Schema (2020-12). Formats are checked; references are not fetched.
func compileSchema(schema string) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("reading a schema: %w", err)
	}
	const name = "urn:gatehouse:schema"
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiler.UseLoader(jsonschema.SchemeURLLoader{})
	if err := compiler.AddResource(name, doc); err != nil {
		return nil, fmt.Errorf("reading a schema: %w", err)
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("compiling a schema: %w", err)
	}
	return compiled, nil
}

// checkSchema validates a value and adds each problem with its path below at. An error means that the schema is
// invalid.
func checkSchema(p *problems, at, schema string, value []byte) error {
	compiled, err := compileSchema(schema)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return fmt.Errorf("reading a value: %w", err)
	}
	var invalid *jsonschema.ValidationError
	if err := compiled.Validate(v); errors.As(err, &invalid) {
		s := schemaProblems{p: p, at: at, root: compiled}
		s.add(invalid)
		slices.SortStableFunc(p.all, func(a, b detail) int { return cmp.Compare(a.Field, b.Field) })
	} else if err != nil {
		return fmt.Errorf("checking a value: %w", err)
	}
	return nil
}

// schemaProblems describes validation errors.
type schemaProblems struct {
	p    *problems
	at   string
	root *jsonschema.Schema
}

func (s *schemaProblems) add(e *jsonschema.ValidationError) {
	// The causes of these are alternatives, of which not all have to hold.
	switch e.ErrorKind.(type) {
	case *schemakind.AnyOf, *schemakind.OneOf, *schemakind.Not, *schemakind.Contains:
	default:
		if len(e.Causes) > 0 {
			for _, cause := range e.Causes {
				s.add(cause)
			}
			return
		}
	}
	path := strings.Builder{}
	path.WriteString(s.at)
	for _, token := range e.InstanceLocation {
		if _, err := strconv.Atoi(token); err == nil {
			path.WriteString("[" + token + "]")
		} else {
			path.WriteString("." + token)
		}
	}
	field := path.String()
	switch k := e.ErrorKind.(type) {
	case *schemakind.Required:
		for _, name := range k.Missing {
			s.p.add(field+"."+name, "is required", s.propertyKind(e, name))
		}
	case *schemakind.AdditionalProperties:
		for _, name := range slices.Sorted(slices.Values(k.Properties)) {
			s.p.add(field+"."+name, "is not known here", strings.Join(s.properties(e), ", "))
		}
	case *schemakind.Type:
		s.p.add(field, "is of the kind "+k.Got, strings.Join(k.Want, " or "))
	case *schemakind.Enum:
		var words []string
		for _, w := range k.Want {
			words = append(words, fmt.Sprint(w))
		}
		s.p.add(field, "is not one of the allowed values", strings.Join(words, ", "))
	case *schemakind.MinLength:
		s.p.add(field, fmt.Sprintf("is %d characters long", k.Got), fmt.Sprintf("at least %d characters", k.Want))
	case *schemakind.MaxLength:
		s.p.add(field, fmt.Sprintf("is %d characters long", k.Got), fmt.Sprintf("at most %d characters", k.Want))
	case *schemakind.Minimum:
		s.p.add(field, "is too small", "at least "+k.Want.RatString())
	case *schemakind.Maximum:
		s.p.add(field, "is too large", "at most "+k.Want.RatString())
	case *schemakind.Pattern:
		s.p.add(field, "is not of the right form", "the pattern "+k.Want)
	case *schemakind.Format:
		s.p.add(field, "is not of the right form", "the format "+k.Want)
	case *schemakind.MaxItems:
		s.p.add(field, fmt.Sprintf("has %d entries", k.Got), fmt.Sprintf("at most %d", k.Want))
	default:
		s.p.add(field, "does not meet the schema: "+k.LocalizedString(textmessage.NewPrinter(textlanguage.English)), "")
	}
}

// object returns the schema of the object that an error is about, if it is the whole value.
func (s *schemaProblems) object(e *jsonschema.ValidationError) *jsonschema.Schema {
	if len(e.InstanceLocation) == 0 {
		return s.root
	}
	return nil
}

func (s *schemaProblems) properties(e *jsonschema.ValidationError) []string {
	var names []string
	if schema := s.object(e); schema != nil {
		for name := range schema.Properties {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *schemaProblems) propertyKind(e *jsonschema.ValidationError, name string) string {
	schema := s.object(e)
	if schema == nil || schema.Properties[name] == nil {
		return ""
	}
	property := schema.Properties[name]
	if property.Enum != nil {
		var words []string
		for _, w := range property.Enum.Values {
			words = append(words, fmt.Sprint(w))
		}
		return strings.Join(words, ", ")
	}
	if property.Types != nil {
		return strings.Join(property.Types.ToStrings(), " or ")
	}
	return ""
}
