// Package openapitest checks responses of the gateway against the OpenAPI document of its public API, docs/openapi.yaml.
//
//	resp, err := client.Do(req)
//	body, err := io.ReadAll(resp.Body)
//	openapitest.Check(t, req, resp, body)
//
// The document allows members that later versions may add, but the check does not: a member, a header, a status or an error
// code that the document does not define is an error.
package openapitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// otherRequests is the document's extension for the responses to requests without an operation.
const otherRequests = "x-other-requests"

// schemaURL is the name of the document for the schema compiler. It is never fetched.
const schemaURL = "gatehouse:openapi"

// Document is an OpenAPI 3.1 document. It is safe for concurrent use.
type Document struct {
	doc   *openapi3.T
	other map[string]*openapi3.Responses // the extension, by the kind of request

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by JSON pointer
}

// Load reads a document in YAML or JSON and checks that it is valid OpenAPI 3.1.
func Load(text []byte) (*Document, error) {
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("reading the document: %w", err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		return nil, fmt.Errorf("reading the document: it is of OpenAPI %s, not 3.1", doc.OpenAPI)
	}
	// The examples are checked by Examples.
	if err := doc.Validate(context.Background(), openapi3.DisableExamplesValidation()); err != nil {
		return nil, fmt.Errorf("the document is not OpenAPI 3.1: %w", err)
	}
	d := &Document{doc: doc, schemas: map[string]*jsonschema.Schema{}}
	if err := d.loadOther(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", otherRequests, err)
	}
	if err := d.loadSchemas(text); err != nil {
		return nil, fmt.Errorf("reading the schemas: %w", err)
	}
	return d, nil
}

// loadOther reads the extension, whose references the loader does not resolve.
func (d *Document) loadOther() error {
	raw, err := json.Marshal(d.doc.Extensions[otherRequests])
	if err != nil {
		return err
	}
	var kinds map[string]struct {
		Responses map[string]openapi3.Ref `json:"responses"`
	}
	if err := json.Unmarshal(raw, &kinds); err != nil {
		return err
	}
	d.other = make(map[string]*openapi3.Responses, len(kinds))
	for kind, k := range kinds {
		responses := new(openapi3.Responses)
		for status, ref := range k.Responses {
			target := d.doc.Components.Responses[strings.TrimPrefix(ref.Ref, "#/components/responses/")]
			if target == nil {
				return fmt.Errorf("%s %s: there is no response %q", kind, status, ref.Ref)
			}
			responses.Set(status, &openapi3.ResponseRef{Ref: ref.Ref, Value: target.Value})
		}
		d.other[kind] = responses
	}
	for _, kind := range []string{"other-method", "other-path"} {
		if d.other[kind].Len() == 0 {
			return fmt.Errorf("nothing is said of %q", kind)
		}
	}
	return nil
}

// loadSchemas compiles the document as JSON Schema 2020-12. Objects that list their members allow no others.
func (d *Document) loadSchemas(text []byte) error {
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return err
	}
	root, ok := tree.(map[string]any)
	if !ok {
		return errors.New("the document is no object")
	}
	components, _ := root["components"].(map[string]any)
	closeObjects(components["schemas"])
	raw, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	resource, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	if err != nil {
		return err
	}
	d.compiler = jsonschema.NewCompiler()
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	d.compiler.UseLoader(jsonschema.SchemeURLLoader{}) // the document has no external references
	return d.compiler.AddResource(schemaURL, resource)
}

// closeObjects forbids additional members in objects that list their members.
func closeObjects(v any) {
	switch v := v.(type) {
	case map[string]any:
		_, lists := v["properties"].(map[string]any)
		_, said := v["additionalProperties"]
		if lists && !said {
			v["additionalProperties"] = false
		}
		for _, child := range v {
			closeObjects(child)
		}
	case []any:
		for _, child := range v {
			closeObjects(child)
		}
	}
}

// schema compiles the schema at a JSON pointer into the document, once.
func (d *Document) schema(pointer string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s, ok := d.schemas[pointer]; ok {
		return s, nil
	}
	s, err := d.compiler.Compile(schemaURL + pointer)
	if err != nil {
		return nil, fmt.Errorf("the document's schema at %s: %w", pointer, err)
	}
	d.schemas[pointer] = s
	return s, nil
}

// described is a response as the document describes it.
type described struct {
	pointer  string // such as "#/components/responses/Me"
	response *openapi3.Response
	signed   bool // the operation needs a signature
}

// find returns the response of a status to a request. The path is below /api/v1, without the query.
func (d *Document) find(method, path string, status int) (described, error) {
	responses, signed, what := d.other["other-path"], false, "a path that is not in it"
	if item := d.doc.Paths.Value(path); item != nil {
		responses, what = d.other["other-method"], "another method of "+path
		if op := item.GetOperation(method); op != nil {
			responses, what = op.Responses, method+" "+path
			security := op.Security
			if security == nil {
				security = &d.doc.Security
			}
			signed = len(*security) > 0
		}
	}
	for _, key := range []string{strconv.Itoa(status), strconv.Itoa(status/100) + "XX", "default"} {
		if ref := responses.Value(key); ref != nil {
			if ref.Ref == "" {
				return described{}, fmt.Errorf("the document's response %s of %s is not a reference to its components", key, what)
			}
			return described{pointer: ref.Ref, response: ref.Value, signed: signed}, nil
		}
	}
	return described{}, fmt.Errorf("the document has no status %d for %s", status, what)
}

// Operations lists the operations of the document, such as "GET /me".
func (d *Document) Operations() []string {
	var list []string
	for path, item := range d.doc.Paths.Map() {
		for method := range item.Operations() {
			list = append(list, method+" "+path)
		}
	}
	slices.Sort(list)
	return list
}

// Examples validates every example of the document against its schema.
func (d *Document) Examples() error {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(d.doc.Components.Responses)) {
		pointer := "#/components/responses/" + name
		media := d.doc.Components.Responses[name].Value.Content["application/json"]
		if media == nil {
			faults = append(faults, fmt.Errorf("%s has no application/json", pointer))
			continue
		}
		examples := map[string]any{}
		if media.Example != nil {
			examples["example"] = media.Example
		}
		for name, ref := range media.Examples {
			examples[name] = ref.Value.Value
		}
		if len(examples) == 0 {
			faults = append(faults, fmt.Errorf("%s has no example", pointer))
		}
		for name, example := range examples {
			raw, err := json.Marshal(example)
			if err != nil {
				faults = append(faults, fmt.Errorf("%s: example %s: %w", pointer, name, err))
				continue
			}
			if err := d.checkBody(pointer, raw); err != nil {
				faults = append(faults, fmt.Errorf("%s: example %s: %w", pointer, name, err))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.doc.Components.Headers)) {
		header := d.doc.Components.Headers[name].Value
		if header.Example == nil {
			continue
		}
		value, isText := header.Example.(string)
		if !isText {
			raw, err := json.Marshal(header.Example)
			if err != nil {
				faults = append(faults, fmt.Errorf("example of the header %s: %w", name, err))
				continue
			}
			value = string(raw)
		}
		if err := d.checkHeader("#/components/headers/"+name, value); err != nil {
			faults = append(faults, fmt.Errorf("example of the header %s: %w", name, err))
		}
	}
	return errors.Join(faults...)
}

func statusText(status int) string { return strconv.Itoa(status) + " " + http.StatusText(status) }
