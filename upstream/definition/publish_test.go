package definition_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/internal/test/openapitest"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

var update = flag.Bool("update", false, "write the published documents into docs/openapi.yaml and testdata/publish")

// publish returns the published document of a definition, with the operations of these IDs, or with all of them.
func publish(t *testing.T, text string, only ...string) string {
	t.Helper()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(text)}, definition.Options{Only: only})
	require.NoError(t, err)
	got, err := d.Published(definition.PublishOptions{})
	require.NoError(t, err)
	return string(got)
}

// requirePublished compares the published document of a definition with a file, and checks that it is OpenAPI 3.1.
func requirePublished(t *testing.T, definition, file string, only ...string) (string, *openapitest.Document) {
	t.Helper()
	text, err := os.ReadFile(definition)
	require.NoError(t, err)
	got := publish(t, string(text), only...)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "go test ./upstream/definition -update writes it")
	doc, err := openapitest.Load([]byte(got))
	require.NoError(t, err)

	require.Equal(t, got, publish(t, string(text), only...))
	var tree struct {
		Components map[string]map[string]any `yaml:"components"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(got), &tree))
	delete(tree.Components, "securitySchemes")
	for kind, components := range tree.Components {
		for name := range components {
			assert.Contains(t, got, `"#/components/`+kind+"/"+name+`"`, "nothing refers to it")
		}
	}
	return got, doc
}

func TestDocumentOfThePublicContractIsPublished(t *testing.T) {
	t.Parallel()
	_, doc := requirePublished(t, "public.yaml", "../../docs/openapi.yaml")
	require.NoError(t, doc.Examples())
}

// The golden file has the details.
func TestDocumentInOpenAPI30IsConverted(t *testing.T) {
	t.Parallel()
	got, _ := requirePublished(t, "testdata/publish/legacy.yaml", "testdata/publish/legacy.published.yaml",
		"listOrders", "getOrder", "getPeople", "headPeople", "get_me")
	require.NotContains(t, strings.ToLower(got), "secret")
	require.Contains(t, got, "GatewayNotFoundError", "the definition has a schema NotFoundError")
	for _, extension := range regexp.MustCompile(`(?m)[ {"]x-[a-z-]+"?:`).FindAllString("\n"+got, -1) {
		assert.Contains(t, []string{" x-extensible-enum:"}, extension)
	}

	doc, err := openapi3.NewLoader().LoadFromData([]byte(got))
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context())) // with its examples
}

// The golden file has the details.
func TestRequestBodiesArePublished(t *testing.T) {
	t.Parallel()
	got, _ := requirePublished(t, "testdata/publish/writes.yaml", "testdata/publish/writes.published.yaml",
		"listOrders", "createOrder", "replaceOrder", "changeOrder", "deleteOrder", "searchOrders", "countVisit", "listVisitors", "changePayment", "createPayment")
	require.NotContains(t, got, "SECRET")
	doc, err := openapi3.NewLoader().LoadFromData([]byte(got))
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context())) // with its examples

	operation := func(method, path string) *openapi3.Operation {
		item := doc.Paths.Value(path)
		require.NotNil(t, item, path)
		return item.GetOperation(method)
	}
	codes := func(o *openapi3.Operation, status string) (all []string) {
		response := o.Responses.Value(status)
		if response == nil {
			return nil
		}
		for queue := (openapi3.SchemaRefs{response.Value.Content.Get("application/json").Schema}); len(queue) > 0; queue = queue[1:] {
			schema := queue[0].Value
			queue = append(append(queue, schema.OneOf...), schema.AnyOf...)
			if code := schema.Properties["code"]; code != nil {
				all = append(all, code.Value.Const.(string))
			} else if schema.Properties["title"] != nil {
				all = append(all, "documented")
			}
		}
		slices.Sort(all)
		return all
	}
	badBody := []string{"BAD_REQUEST", "INVALID_BODY"}
	mediaType, replayed, writes := []string{"BAD_REQUEST", "UNSUPPORTED_MEDIA_TYPE"}, []string{"BAD_REQUEST", "REPLAYED"}, "WRITE_NOT_ALLOWED"
	for name, c := range map[string]struct {
		method, path             string
		body                     []string
		on400, on409, on415      []string
		write, tooLarge, notMade bool
	}{
		"a GET":                  {method: "GET", path: "/orders", tooLarge: true},
		"a HEAD":                 {method: "HEAD", path: "/orders", tooLarge: true},
		"a body and a parameter": {"POST", "/orders", []string{"application/json"}, []string{"BAD_REQUEST", "INVALID_BODY", "INVALID_PARAMETER", "documented"}, []string{"BAD_REQUEST", "REPLAYED", "documented"}, mediaType, true, true, true},
		"a shared body":          {"PUT", "/orders/{id}", []string{"application/json"}, []string{"BAD_REQUEST", "INVALID_BODY", "INVALID_PARAMETER"}, replayed, mediaType, true, true, true},
		"a merge patch":          {"PATCH", "/orders/{id}", []string{"application/json", "application/merge-patch+json"}, []string{"BAD_REQUEST", "INVALID_BODY", "INVALID_PARAMETER"}, replayed, mediaType, true, true, true},
		"no body":                {"DELETE", "/orders/{id}", nil, []string{"BAD_REQUEST", "INVALID_BODY", "INVALID_PARAMETER"}, replayed, nil, true, true, true},
		"a POST that only reads": {"POST", "/orders/search", []string{"application/json"}, badBody, nil, mediaType, false, true, false},
		"a write for anyone":     {"POST", "/visits", []string{"application/json"}, []string{"BAD_REQUEST", "INVALID_BODY", "INVALID_PARAMETER"}, nil, mediaType, false, true, true},
	} {
		o := operation(c.method, c.path)
		require.NotNil(t, o, name)
		var body []string
		if o.RequestBody != nil {
			body = slices.Sorted(maps.Keys(o.RequestBody.Value.Content))
		}
		assert.Equal(t, c.body, body, name)
		assert.Equal(t, c.on400, codes(o, "400"), name)
		assert.Equal(t, c.on409, codes(o, "409"), name)
		assert.Equal(t, c.on415, codes(o, "415"), name)
		assert.Equal(t, c.write, slices.Contains(codes(o, "403"), writes), name)
		assert.Equal(t, c.tooLarge, o.Responses.Value("413") != nil, name)
		failed := o.Responses.Value("502").Value.Content.Get("application/json").Schema.Value
		assert.Equal(t, c.notMade, failed.Properties["detail"] != nil, name)
	}

	require.Nil(t, doc.Paths.Value("/orders/{id}").Head)
	for name, want := range map[string][]string{"Base": {"created", "id"}, "BaseBody": {"pin"}} {
		base := doc.Components.Schemas[name].Value
		require.Equal(t, want, slices.Sorted(maps.Keys(base.Properties)))
		for _, member := range base.Properties {
			require.True(t, member.Value.ReadOnly || member.Value.WriteOnly)
		}
	}
	for choice, card := range map[string]string{"Payment": "Card", "PaymentBody": "CardBody"} {
		mapping := doc.Components.Schemas[choice].Value.Discriminator.Mapping
		require.Equal(t, "#/components/schemas/"+card, mapping["card"].Ref, mapping)
	}
	order, payment := doc.Components.RequestBodies["Patch"].Value, operation("PATCH", "/payments").RequestBody.Value
	for body, valid := range map[string]bool{
		`{}`: true, `{"total":"2"}`: true, `{"total":2}`: false, `{"customer":{}}`: false,
		`{"kind":"cash"}`: true, `{"kind":"cash","amount":5}`: true, `{"kind":"cash","amount":"5"}`: false, `{"kind":"credit"}`: false,
		`{"number":"without a kind"}`: false,
	} {
		patch := order
		if strings.Contains(body, "kind") {
			patch = payment
		}
		var value any
		require.NoError(t, json.Unmarshal([]byte(body), &value))
		schema := patch.Content["application/merge-patch+json"].Schema.Value
		require.Equal(t, valid, schema.VisitJSON(value, openapi3.VisitAsRequest()) == nil, body)
	}
	require.Contains(t, got, "## Writes\n")

	text, err := os.ReadFile("testdata/publish/writes.yaml")
	require.NoError(t, err)
	got = publish(t, string(text), "searchOrders")
	require.Contains(t, got, "## Bodies\n")
	for _, written := range []string{"## Writes", "REPLAYED", "WRITE_NOT_ALLOWED", "GET, HEAD"} {
		assert.Equal(t, -1, strings.Index(got, written), "only where something is written: %s", written)
	}
	got = publish(t, string(text), "listOrders", "listVisitors")
	for _, other := range []string{"## Bodies", "requestBod", "writeOnly", "pin", "INVALID_BODY", "UNSUPPORTED"} {
		assert.Equal(t, -1, strings.Index(got, other), "only where there are bodies: %s", other)
	}
}

// A definition in JSON is published as the same document.
func TestDefinitionInJSONIsPublished(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/publish/legacy.yaml")
	require.NoError(t, err)
	var tree, want, got map[string]any
	require.NoError(t, yaml.Unmarshal(regexp.MustCompile(`(?m)^( +)(\d+):`).ReplaceAll(text, []byte(`$1"$2":`)), &tree))
	encoded, err := json.Marshal(tree)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal([]byte(publish(t, string(encoded))), &got))
	require.NoError(t, yaml.Unmarshal([]byte(publish(t, string(text))), &want))
	delete(want["info"].(map[string]any), "version")
	delete(got["info"].(map[string]any), "version")
	names := func(doc map[string]any) any { // JSON's members are in another order, on which the names of what would have the same depend
		delete(doc["components"].(map[string]any), "responses")
		raw, err := json.Marshal(doc)
		require.NoError(t, err)
		return regexp.MustCompile(`(responses/[A-Za-z_]+)\d*|(headPeople)(Headers)+`).ReplaceAllString(string(raw), "$1$2")
	}
	require.Equal(t, names(want), names(got))
}

const small = `
openapi: 3.1.0
info: {title: Small, version: v1}
servers: [{url: /}]
x-gatehouse-tenant: none
paths:
  /reports/{day}:
    get:
      operationId: downloadReport
      x-gatehouse-unchecked: [application/pdf]
      parameters: [{name: day, in: path, schema: {type: string, format: date}}]
      responses:
        "200":
          description: A report.
          content: {application/pdf: {schema: {type: string, format: binary}}}
  /notes:
    post:
      operationId: addNote
      responses: {"204": {description: It is added.}}
`

func TestUncheckedMediaTypesAndOtherMethodsArePublished(t *testing.T) {
	t.Parallel()
	got := publish(t, small)
	doc, err := openapi3.NewLoader().LoadFromData([]byte(got))
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	require.Equal(t, "{base_url}", doc.Servers[0].URL)
	report := doc.Paths.Value("/reports/{day}")
	require.Equal(t, []string{"application/pdf"}, slices.Collect(maps.Keys(report.Get.Responses.Value("200").Value.Content)))
	require.Empty(t, report.Get.Parameters[0].Value.Schema.Value.Pattern, "the format is stricter")
	require.True(t, report.Get.Parameters[0].Value.Required, "as every parameter of a path")
	require.NotNil(t, report.Head)
	require.Nil(t, doc.Paths.Value("/notes").Head)
	require.Empty(t, doc.Paths.Value("/notes").Post.Responses.Value("204").Value.Content)
	require.Empty(t, doc.Components.Headers["Allow"].Value.Schema.Value.Const, "POST is allowed somewhere")

	got = publish(t, small, "downloadReport")
	require.NotContains(t, got, "/notes")
	require.Contains(t, got, "GET, HEAD")
}

// Content, and a media type of it, may be elsewhere in the document.
func TestContentThatIsElsewhereIsPublished(t *testing.T) {
	t.Parallel()
	const text = `openapi: 3.1.0
info: {title: Notes, version: "1"}
x-gatehouse-tenant: none
paths:
  /notes:
    post:
      operationId: addNote
      requestBody: {content: {$ref: "#/components/x-content/Note"}}
      responses: {"201": {description: It is added., content: {$ref: "#/components/x-content/Note"}}}
components:
  x-content: {Note: {application/json: {$ref: "#/components/mediaTypes/Note"}}}
  mediaTypes: {Note: {schema: {type: object, properties: {text: {type: string}}}}}
`
	doc, err := openapi3.NewLoader().LoadFromData([]byte(publish(t, text)))
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	op := doc.Paths.Value("/notes").Post
	require.Contains(t, op.RequestBody.Value.Content["application/json"].Schema.Value.Properties, "text")
	require.Contains(t, op.Responses.Value("201").Value.Content["application/json"].Schema.Value.Properties, "text")
}

// Generated clients match whole texts, or at the start, where JSON Schema searches: openapi-generator's with re.match in Python, others with
// Java's @Pattern.
func TestPatternsOfMembersAreAnchored(t *testing.T) {
	t.Parallel()
	common, err := os.ReadFile("published.yaml")
	require.NoError(t, err)
	rules, rest, _ := strings.Cut(string(common), "\ncomponents:\n")
	_, schemas, _ := strings.Cut(rest, "\n  schemas:\n")
	patterns := regexp.MustCompile(`pattern: '?([^'\n]*)`).FindAllStringSubmatch(rules+schemas, -1)
	require.Greater(t, len(patterns), 5)
	for _, p := range patterns {
		assert.Regexp(t, `^\^.*\$$`, p[1])
	}
}

// openapi-generator drops a constant without a type, and then cannot tell the errors of one status apart.
func TestPublishedConstantsOfTheGatewayHaveTypes(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"published.yaml", "public.yaml"} {
		common, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.NotRegexp(t, `(?m)(\{|^ *)(const|enum):`, string(common))
		assert.Contains(t, string(common), "type: string, const: ")
	}
}

// The values of a published discriminator are those that the gateway accepts. Without names of its alternatives, there is none.
func TestDiscriminatorsOfConstantsArePublished(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{oneOf: [{$ref: "#/components/schemas/Cat"}, {$ref: "#/components/schemas/dog"}, {type: "null"}], discriminator: {propertyName: kind}}`:      `{propertyName: kind, mapping: {cat: "#/components/schemas/Cat", dog: "#/components/schemas/dog"}}`,
		`{oneOf: [{$ref: "#/components/schemas/Cat"}, {$ref: "#/components/schemas/dog"}], discriminator: {propertyName: kind, mapping: {cat: Cat}}}`: `{propertyName: kind, mapping: {cat: "#/components/schemas/Cat", dog: "#/components/schemas/dog"}}`,
		`{oneOf: [{properties: {kind: {const: cat}}, required: [kind]}], discriminator: {propertyName: kind, mapping: {cat: "#/nowhere"}}}`:           `null`,
	} {
		const text = `openapi: 3.1.0
info: {title: Pets, version: "1"}
x-gatehouse-tenant: none
paths: {/pet: {get: {operationId: getPet, responses: {"200": {description: A pet., content: {application/json: {schema: SCHEMA}}}}}}}
components:
  schemas:
    Cat: {allOf: [{properties: {kind: {type: string, enum: [cat]}, lives: {type: integer}}, required: [kind]}]}
    dog: {properties: {kind: {const: dog}, tail: {type: string}}, required: [kind]}
`
		d, err := load(strings.Replace(text, "SCHEMA", schema, 1), definition.Options{})
		require.NoError(t, err, schema)
		got, err := d.Published(definition.PublishOptions{})
		require.NoError(t, err, schema)
		var published struct {
			Components struct {
				Responses map[string]struct {
					Content map[string]struct{ Schema map[string]any }
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(got, &published))
		encoded, err := yaml.Marshal(published.Components.Responses["Pet"].Content["application/json"].Schema["discriminator"])
		require.NoError(t, err)
		require.YAMLEq(t, want, string(encoded), schema)
	}
}

// In a published document, null is valid where the gateway lets it pass.
func TestNullableSchemasThatConsistOfOthersArePublished(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ version, schema string }{
		"allOf":           {"3.0.3", `{nullable: true, description: A, allOf: [{$ref: "#/components/schemas/Base"}]}`},
		"allOf, typed":    {"3.0.3", `{type: object, nullable: true, allOf: [{$ref: "#/components/schemas/Base"}]}`},
		"allOf and more":  {"3.0.3", `{nullable: true, allOf: [{$ref: "#/components/schemas/Base"}], properties: {b: {type: string}}}`},
		"oneOf":           {"3.0.3", `{nullable: true, oneOf: [{$ref: "#/components/schemas/Base"}, {type: string}]}`},
		"a discriminator": {"3.0.3", `{nullable: true, anyOf: [{$ref: "#/components/schemas/Base"}], discriminator: {propertyName: a}}`},
		"a reference":     {"3.1.0", `{nullable: true, $ref: "#/components/schemas/Base"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema, got := publishedMember(t, test.version, test.schema)
			for value, valid := range map[string]bool{`null`: true, `{"a":"b"}`: true, `{}`: false, `1`: false, `[]`: false} {
				instance, err := jsonschema.UnmarshalJSON(strings.NewReader(`{"x":` + value + `}`))
				require.NoError(t, err)
				require.Equal(t, valid, schema.Validate(instance) == nil, "%s\n%s", value, got)
			}
		})
	}
}

// publishedMember returns the published schema of an object with a member x, and the document.
func publishedMember(t *testing.T, version, schema string) (*jsonschema.Schema, string) {
	t.Helper()
	got := publish(t, `
openapi: `+version+`
info: {title: X, version: "1"}
x-gatehouse-tenant: none
paths:
  /x:
    get:
      operationId: getX
      responses: {"200": {description: X, content: {application/json: {schema: {$ref: "#/components/schemas/X"}}}}}
components:
  schemas:
    Base: {type: object, required: [a], properties: {a: {type: string}}}
    X: {type: object, required: [x], properties: {x: `+schema+`}}
`)
	tree, err := jsonschema.UnmarshalJSON(strings.NewReader(asJSON(t, got)))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("urn:x", tree))
	compiled, err := c.Compile("urn:x#/components/schemas/X")
	require.NoError(t, err)
	return compiled, got
}

// In a published document, those values are valid that the gateway lets pass.
func TestTypesArePublishedAsTheyAreEnforced(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ version, schema, good, bad string }{
		"a constant or null":                 {"3.1.0", `{type: [string, "null"], const: a}`, `["a", null]`, `["b", 1]`},
		"a constant or null of 3.0":          {"3.0.3", `{type: string, const: a, nullable: true}`, `["a", null]`, `["b", 1]`},
		"values or null without a type":      {"3.0.3", `{enum: [a, 1], nullable: true}`, `["a", 1, null]`, `["b", 2]`},
		"a constant or null without a type":  {"3.1.0", `{const: a, nullable: true}`, `["a", null]`, `["b", 1]`},
		"values or null":                     {"3.1.0", `{type: [string, "null"], enum: [a]}`, `["a", null]`, `["b", 1]`},
		"null alone":                         {"3.1.0", `{type: [string, "null"], const: null}`, `[null]`, `["null"]`},
		"a constant":                         {"3.1.0", `{const: a}`, `["a"]`, `[null]`},
		"items alone":                        {"3.1.0", `{items: {type: string}}`, `[[], ["a"]]`, `["a", {}, null]`},
		"items alone, or null":               {"3.0.3", `{items: {type: string}, nullable: true}`, `[[], null]`, `["a", {}]`},
		"additionalProperties alone":         {"3.1.0", `{additionalProperties: {type: string}}`, `[{}, {"a": "b"}]`, `["a", [], null]`},
		"additionalProperties alone, or not": {"3.0.3", `{additionalProperties: true, nullable: true}`, `[{"a": 1}, null]`, `["a", []]`},
		"values with items":                  {"3.1.0", `{enum: [a], items: {type: string}}`, `["a"]`, `["b", []]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema, got := publishedMember(t, test.version, test.schema)
			for values, valid := range map[string]bool{test.good: true, test.bad: false} {
				all, err := jsonschema.UnmarshalJSON(strings.NewReader(values))
				require.NoError(t, err)
				for _, value := range all.([]any) {
					require.Equal(t, valid, schema.Validate(map[string]any{"x": value}) == nil, "%v\n%s", value, got)
				}
			}
			d, err := load(strings.Replace(strings.Replace(orders, "3.1.0", test.version, 1), "x: {type: string}", "x: "+test.schema, 1), definition.Options{})
			require.NoError(t, err)
			for values, valid := range map[string]bool{test.good: true, test.bad: false} {
				var all []json.RawMessage
				require.NoError(t, json.Unmarshal([]byte(values), &all))
				for _, value := range all {
					_, err = answer(t, d, "/orders/1", 200, `{"business_id":"b","x":`+string(value)+`}`)
					require.Equal(t, valid, err == nil, "%s %v", value, err)
				}
			}
		})
	}
}

func TestDocumentSaysWhatCallersOfOneGatewayHaveToKnow(t *testing.T) {
	t.Parallel()
	d := definition.PublicDefinition()
	for url, possible := range map[string]bool{
		"https://api.shop.example": true, "http://[::1]:8080/gw": true,
		"https://api.shop.example/": false, "https://api.shop.example/gw/": false, "api.shop.example": false, "ftp://api.shop.example": false,
		"https://": false, "https:///gw": false, "https://a@api.shop.example": false, "https://api.shop.example?x": false,
		"https://api.shop.example#x": false, "https://{host}": false, "https://a b": false,
	} {
		got, err := d.Published(definition.PublishOptions{BaseURL: url, PerKey: 7, PerIP: 3})
		if !possible {
			require.ErrorContains(t, err, "invalid base URL", url)
			continue
		}
		require.NoError(t, err, url)
		require.Contains(t, string(got), "default: "+url+"\n")
		require.Contains(t, string(got), "7 requests a minute for each public key, and without one 3 a minute")
	}
}

// A merge patch needs the member that decides between alternatives, and no other one.
func TestWhatDecidesIsRequiredInAPublishedMergePatch(t *testing.T) {
	t.Parallel()
	const card, cash = `{type: object, required: [kind, n], properties: {kind: {const: card}, n: {type: string}}}`, `{type: object, required: [kind], properties: {kind: {const: cash}}}`
	for schema, required := range map[string]bool{
		`{oneOf: [` + card + `, ` + cash + `]}`:                      true,
		`{oneOf: [` + card + `, {type: "null"}]}`:                    false,
		`{oneOf: [` + card + `, {type: string}]}`:                    false,
		`{anyOf: [` + card + `, {properties: {n: {type: string}}}]}`: false,
	} {
		got := publish(t, strings.Replace(orders, "    get:", "    parameters: [{name: id, in: path, required: true, schema: {type: string}}]\n    patch:\n      requestBody: {content: {application/merge-patch+json: {schema: "+
			schema+"}}}\n      responses: {\"204\": {}}\n    get:", 1))
		_, patch, _ := strings.Cut(got, "application/merge-patch+json:")
		patch, _, _ = strings.Cut(patch, "responses:")
		require.Equal(t, required, strings.Contains(patch, "required: [kind]"), patch)
		require.NotContains(t, patch, "kind, n")
	}
}

// Names of ranges may be in any case. What is enforced for one is published, and default does not count beside 4xx.
func TestTheRangeThatIsEnforcedIsPublished(t *testing.T) {
	t.Parallel()
	problem := func(name string) string {
		return "{content: {application/json: {schema: {properties: {" + name + ": {type: string}}}}}}"
	}
	text := strings.Replace(orders, `"200":`, "4xx: "+problem("inRange")+"\n        default: "+problem("ofDefault")+"\n        \"200\":", 1)
	got := publish(t, text)
	require.Contains(t, got, "inRange")
	require.NotContains(t, got, "ofDefault")
	d, err := load(text, definition.Options{})
	require.NoError(t, err)
	enforced, err := answer(t, d, "/orders/1", 409, `{"inRange":"a","ofDefault":"b"}`)
	require.NoError(t, err)
	require.Equal(t, `{"inRange":"a"}`, enforced)
}

// Without the discriminator, a value is not accepted, whether or not its schema requires it. FastAPI does not require one with a default.
func TestDiscriminatorIsRequiredInThePublishedDocument(t *testing.T) {
	t.Parallel()
	const book, game, cd = `{properties: {kind: {enum: [book, ebook], default: book}, n: {type: string}}, required: [n]}`, `{properties: {kind: {const: game}}}`, `{properties: {kind: {const: cd}}, required: [kind]}`
	const by = `, discriminator: {propertyName: kind}}`
	for schema, want := range map[string][]string{
		`{oneOf: [` + book + `, ` + game + `]` + by:                                                                   {"kind"},
		`{anyOf: [` + cd + `, ` + game + `, {type: "null"}]` + by:                                                     {"kind"},
		`{properties: {of: {type: string}}, required: [of], oneOf: [` + book + `, ` + game + `]` + by:                 {"of", "kind"},
		`{properties: {of: {type: string}}, required: [kind], oneOf: [` + book + `, ` + game + `]` + by:               {"kind"},
		`{oneOf: [` + cd + `, ` + strings.Replace(cd, "cd", "lp", 1) + `]` + by:                                       nil,
		`{oneOf: [` + game + `, {type: "null"}]` + by:                                                                 nil,
		`{oneOf: [` + game + `, {type: string}]` + by:                                                                 nil,
		`{oneOf: [` + strings.ReplaceAll(game+`, `+book, "kind: {", "kind: {x-gatehouse-internal: true, ") + `]` + by: nil,
	} {
		var got struct {
			Components struct {
				Schemas map[string]struct {
					Properties map[string]struct{ Required []string }
				}
			}
		}
		text := publish(t, strings.Replace(orders, "x: {type: string}", "x: "+schema, 1))
		require.NoError(t, yaml.Unmarshal([]byte(text), &got))
		require.Equal(t, want, got.Components.Schemas["Order"].Properties["x"].Required, "%s\n%s", schema, text)
	}
}

// Of several JSON media types, the schema of the first one is enforced.
func TestTheSchemaOfTheFirstJSONIsPublishedForAll(t *testing.T) {
	t.Parallel()
	got := publish(t, strings.Replace(orders, theResponse, `content: {application/json: {schema: {$ref: "#/components/schemas/Order"}},
            application/problem+json: {schema: {type: object, properties: {z: {type: string}}}, example: {z: a, x: b}}}`, 1))
	require.NotRegexp(t, `\bz:`, got)
	require.NotRegexp(t, `\bx: b`, got, "it is an example of another schema")
	require.Equal(t, 2, strings.Count(got, `schema: {$ref: "#/components/schemas/Order"}`), got)
}

// Where a text or a number belongs, an object is not published: nobody has looked for what is internal in it.
func TestObjectsInThePlaceOfTextsAreNotPublished(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"title: Small", "version: v1", "description: A report."} {
		name, _, _ := strings.Cut(place, ":")
		got := publish(t, strings.Replace(small, place, name+": {secret: x}", 1))
		require.NotContains(t, got, "secret", place)
	}
}

func TestNotModifiedIsPublishedWhereItCanBeAsked(t *testing.T) {
	t.Parallel()
	const document = `{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: request, paths: {/o: {get: {PARAMETERSresponses: {"200": {description: ok, headers: {ETag: {schema: {type: string}}}}}}}}}`
	require.NotContains(t, publish(t, strings.Replace(document, "PARAMETERS", "", 1)), "304")
	require.Contains(t, publish(t, strings.Replace(document, "PARAMETERS", "parameters: [{name: If-None-Match, in: header, schema: {type: string}}], ", 1)),
		`"304": {$ref: "#/components/responses/NotModified"}`)
}

// Some tools write examples as texts with JSON.
func TestExamplesInTextsArePublishedWithoutHiddenMembers(t *testing.T) {
	t.Parallel()
	got := publish(t, strings.Replace(small, `{"204": {description: It is added.}}`, `{"200": {description: "", content: {application/json: {schema: {type: object, properties: {
		a: {type: string}, b: {type: string, x-gatehouse-internal: true}}}, example: '{"a": "{\"b\": 1}", "b": "secret"}'}}}}`, 1))
	require.NotContains(t, got, "secret")
	require.Contains(t, got, `example: {a: "{\"b\": 1}"}`)
	got = publish(t, strings.Replace(small, `{"204": {description: It is added.}}`, `{"200": {description: "", content: {application/json: {schema: {type: [object, string], properties: {
		a: {type: string}, b: {type: string, x-gatehouse-internal: true}}, enum: ["1"]}, examples: {cut: {value: '{"a": "x", "b": "secret", ...'}}}}}}`, 1))
	require.NotContains(t, got, "secret")
	require.Contains(t, got, `enum: ["1"]`)
}

// A part of a schema is published where it stands, or as a component that others use, too. Neither may show what is hidden beside it.
func TestWhatIsHiddenBesideAPartIsNotPublished(t *testing.T) {
	t.Parallel()
	const base = `Base: {type: object, required: [id, margin], properties: {id: {type: string}, margin: {type: string, description: ours, example: "12.40"}}, example: {id: o-1, margin: "12.40"}}`
	const hides = `properties: {margin: {x-gatehouse-internal: true}}`
	for name, c := range map[string]struct{ order, others, want string }{
		"a reference in allOf":         {`{allOf: [{$ref: "#/components/schemas/Base"}], ` + hides + `}`, "", `example: {id: o-1}`},
		"beside allOf":                 {`{allOf: [{$ref: "#/components/schemas/Base"}, {type: object, ` + hides + `}]}`, "", `required: [id]`},
		"beside the reference":         {`{$ref: "#/components/schemas/Base", ` + hides + `}`, "", `required: [id]`},
		"a reference to a reference":   {`{allOf: [{$ref: "#/components/schemas/Again"}], ` + hides + `}`, `Again: {$ref: "#/components/schemas/Base"}`, `required: [id]`},
		"a part of the referred one":   {`{allOf: [{$ref: "#/components/schemas/Again"}], ` + hides + `}`, `Again: {allOf: [{$ref: "#/components/schemas/Base"}, {type: object, required: [margin], properties: {note: {type: string}}}]}`, `note: {type: string}`},
		"an example beside":            {`{allOf: [{type: object, properties: {id: {type: string}, margin: {type: string}}, example: {id: o-1, margin: "1"}}, {type: object, ` + hides + `}]}`, "", `example: {id: o-1}`},
		"what decides between several": {`{oneOf: [{$ref: "#/components/schemas/A"}, {$ref: "#/components/schemas/B"}], discriminator: {propertyName: margin, mapping: {internal-a: "#/components/schemas/A"}}}`, `A: {type: object, properties: {margin: {const: internal-a, x-gatehouse-internal: true}, a: {type: string}}}, B: {type: object, properties: {margin: {const: internal-b, x-gatehouse-internal: true}, b: {type: string}}}`, `b: {type: string}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			components := "Order: " + c.order + ", " + base
			if c.others != "" {
				components += ", " + c.others
			}
			got := publish(t, `{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: request, paths: {/o: {get: {responses: {"200": {description: "", content: {application/json: {
				schema: {$ref: "#/components/schemas/Order"}}}}}}}}, components: {schemas: {`+components+`}}}`)
			require.NotContains(t, got, "margin")
			require.NotContains(t, got, "internal-")
			require.Contains(t, got, c.want)
		})
	}
	got := publish(t, `{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: request, paths: {/o: {get: {responses: {"200": {description: "", content: {application/json: {
		schema: {allOf: [{$ref: "#/components/schemas/Base"}], properties: {note: {type: string, x-gatehouse-internal: true}}}}}}}}}}, components: {schemas: {`+base+`}}}`)
	require.Contains(t, got, `$ref: "#/components/schemas/Base"`, "nothing of it is hidden")
}

// Each of a row of schemas has the next one twice.
func TestWhatIsHiddenBesideManyPartsIsPublishedSoon(t *testing.T) {
	t.Parallel()
	const levels = 40
	schemas := []string{fmt.Sprintf(`S%d: {type: object, properties: {id: {type: string}, margin: {type: string}}}`, levels)}
	for i := range levels {
		schemas = append(schemas, fmt.Sprintf(`S%d: {allOf: [{$ref: "#/components/schemas/S%d"}, {$ref: "#/components/schemas/S%d"}]}`, i, i+1, i+1))
	}
	got := publish(t, `{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: request, paths: {/o: {get: {responses: {"200": {description: "", content: {application/json: {
		schema: {allOf: [{$ref: "#/components/schemas/S0"}], properties: {margin: {x-gatehouse-internal: true}}}}}}}}}}, components: {schemas: {`+strings.Join(schemas, ", ")+`}}}`)
	require.NotContains(t, got, "margin")
	require.Contains(t, got, fmt.Sprintf("S%dPart:", levels))
}

// The alternatives of a page builder's blocks have blocks in them, so that each level of an example had more schemas than the one around it.
func TestExamplesOfNestedChoicesArePublishedSoon(t *testing.T) {
	t.Parallel()
	const kinds, levels = 40, 12
	var refs, schemas []string
	for i := range kinds {
		refs = append(refs, fmt.Sprintf(`{$ref: "#/components/schemas/B%d"}`, i))
		schemas = append(schemas, fmt.Sprintf(`B%d: {type: object, required: [kind], properties: {kind: {const: B%d}, children: {type: array, maxItems: 9, items: {$ref: "#/components/schemas/Block"}}}}`, i, i))
	}
	example := `{kind: B0}`
	for range levels {
		example = `{kind: B1, children: [` + example + `]}`
	}
	got := publish(t, `{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: request, paths: {/o: {get: {responses: {"200": {description: "", content: {application/json: {
		schema: {$ref: "#/components/schemas/Block"}, example: `+example+`}}}}}}}, components: {schemas: {Block: {oneOf: [`+strings.Join(refs, ", ")+`], discriminator: {propertyName: kind}}, `+
		strings.Join(schemas, ", ")+`}}}`)
	require.Contains(t, got, "kind: B0")
}

// Nothing else than publishing follows references in examples.
func TestReferencesToNothingAreReported(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]string{
		"#/components/examples/Nothing":     "#/components/examples/Nothing is not a value",
		"#/paths/~1notes/post/parameters/0": "is not a value",
		"#/components/examples/%":           "is not a value",
		"#/components/examples/Loop":        "circular",
	} {
		d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(strings.Replace(small, "format: date}", `format: date}, examples: {x: {$ref: "`+ref+`"}}`, 1) + `
components: {examples: {Loop: {$ref: "#/components/examples/Loop"}}}`)}, definition.Options{})
		require.NoError(t, err, ref)
		_, err = d.Published(definition.PublishOptions{})
		require.ErrorContains(t, err, want)
	}
}

func TestExamplesInOtherFilesAreLeftOut(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(strings.Replace(small, "format: date}",
		`format: date}, examples: {x: {$ref: "examples/x.json"}, y: {value: "2026-01-31"}}`, 1))}, definition.Options{})
	require.NoError(t, err)
	published, err := d.Published(definition.PublishOptions{})
	require.NoError(t, err)
	require.NotContains(t, string(published), "x.json")
	require.Contains(t, string(published), "2026-01-31")
}

// As the compiler understands it, readOnly may be said of the items of a list, or of all alternatives but null.
func TestWhatABodyRefusesIsNotPublishedInIt(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: none, paths: {/x: {post: {
		requestBody: {content: {application/json: {schema: {$ref: "#/components/schemas/A"}}}},
		responses: {"200": {description: "", content: {application/json: {schema: {$ref: "#/components/schemas/A"}}}}}}}},
		components: {schemas: {Id: {type: string, readOnly: true}, A: {type: object, properties: {own: {type: string},
			reference: {$ref: "#/components/schemas/Id"}, choice: {oneOf: [{$ref: "#/components/schemas/Id"}, {type: "null"}]},
			items: {type: array, maxItems: 3, items: {$ref: "#/components/schemas/Id"}}, all: {allOf: [{$ref: "#/components/schemas/Id"}]},
			same: {oneOf: [{$ref: "#/components/schemas/Id"}, {allOf: [{items: {$ref: "#/components/schemas/Id"}}]}, {items: {$ref: "#/components/schemas/Id"}}]},
			some: {oneOf: [{$ref: "#/components/schemas/Id"}, {type: integer}]}, map: {type: object, additionalProperties: {type: string, readOnly: true}, properties: {m: {type: string}}}}}}}}`)}, definition.Options{})
	require.NoError(t, err)
	text, err := d.Published(definition.PublishOptions{})
	require.NoError(t, err)
	doc, err := openapi3.NewLoader().LoadFromData(text)
	require.NoError(t, err)
	response, body := doc.Components.Schemas["A"].Value.Properties, doc.Components.Schemas["ABody"].Value.Properties
	require.Len(t, response, 8)
	require.Len(t, body, 3)
	require.Len(t, response["some"].Value.OneOf, 2)
	require.Len(t, body["some"].Value.OneOf, 1)
	require.NotNil(t, response["map"].Value.AdditionalProperties.Schema)
	require.Nil(t, body["map"].Value.AdditionalProperties.Schema)
}

func TestPublishedTextNamesThePathThatIsSigned(t *testing.T) {
	t.Parallel()
	for server, first := range map[string]string{"https://x.example": "from `/` on", "https://x.example/v1": "from `/v1` on"} {
		d, err := definition.Load(definition.File{Name: "x.yaml", Text: []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: "` + server + `"}],
			x-gatehouse-tenant: none, paths: {/hours: {get: {responses: {"204": {description: Done.}}}}}}`)}, definition.Options{})
		require.NoError(t, err)
		published, err := d.Published(definition.PublishOptions{})
		require.NoError(t, err)
		require.Contains(t, string(published), first)
	}
}
