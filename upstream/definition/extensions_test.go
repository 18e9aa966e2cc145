package definition_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

const schemaFile = "../../docs/definition.schema.json"

// withPlaces is a definition with a place for each extension: «clamp» for x-gatehouse-clamp. What else the extension needs is there.
const withPlaces = `openapi: 3.1.0
info: {title: Orders, version: "1"}
servers: [{url: /v1}]
tags: [{name: orders, «area»}]
«tenant»
«instructions»
«upstream headers»
paths:
  /orders:
    get:
      operationId: listOrders
      parameters:
      - {name: limit, in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 10}, «clamp»}
      - {name: page, in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 1}}
      - {name: cursor, in: query, schema: {type: string}}
      deprecated: true
      «deprecated»
      «enforce»
      «tool»
      «upstream path»
      responses:
        "200":
          description: Orders.
          «records in»«sized»
          «page»
          content:
            application/json:
              schema:
                properties:
                  orders: {type: array, items: {$ref: "#/components/schemas/Order"}}
                  pagination: {type: object, properties: {page: {type: integer}}}
                  next: {type: string}
                  asked: {type: integer, «from "parameter"»}
                  total: {type: integer, «from "pages"»}
  /orders/{order_id}:
    get:
      operationId: getOrder
      parameters: [{name: order_id, in: path, required: true, schema: {type: string}}]
      responses:
        "200":
          description: An order.
          «records is»
          content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}
  /orders/search:
    post:
      operationId: searchOrders
      «read»
      responses:
        "200": {description: Orders., content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Order"}}}}}
  /orders/invoice:
    get:
      operationId: getInvoice
      x-gatehouse-tenant: request
      «unchecked»
      responses: {"200": {description: A PDF., content: {application/json: {schema: {type: string}}, application/pdf: {}}}}
  /status:
    get:
      operationId: getStatus
      x-gatehouse-tenant: none
      «public»
      «answer {»
      responses:
        "200": {description: Fine., content: {application/json: {schema: {type: object, properties: {status: {type: string}}}}}}
  /me:
    get:
      operationId: getMe
      x-gatehouse-tenant: none
      «answer "»
      responses:
        "200": {description: You., content: {application/json: {schema: {type: object, properties: {business: {type: object, properties: {id: {type: string}}}}}}}}
components:
  schemas:
    Order:
      type: object
      required: [id, status]
      «visible»
      properties:
        id: {type: string}
        account: {type: string}
        status: {type: string}
        created: {type: string, format: utc-date-time}
        score: {type: integer, «internal»}
        note: {type: string, «untrusted»}
        number: {type: string, «from invoice_no»}
        buyer: {type: string, «from customer»}
        amount: {type: string, format: decimal, «from cents»}
        state: {type: string, «from "values"»}
`

// schemaVisit puts an extension in its place, and removes the other places, or returns "" if it has none.
func schemaVisit(t *testing.T, name string, example any) string {
	t.Helper()
	encoded, err := json.Marshal(example)
	require.NoError(t, err)
	text := withPlaces
	for _, place := range regexp.MustCompile(`«(\w+)( [^»]+)?»`).FindAllStringSubmatch(withPlaces, -1) {
		extension, with := "", strings.TrimSpace(place[2]) // of several places, that for values with this text
		switch {
		case place[1] == "sized" && name == "upstream": // {page.offset} needs the size of a page
			extension = "x-gatehouse-records: {in: orders, at_most: limit}"
		case place[1] == name && strings.Contains(string(encoded), with):
			extension = "x-gatehouse-" + name + ": " + string(encoded)
		case place[1] == "tenant":
			extension = "x-gatehouse-tenant: account"
		}
		text = strings.Replace(text, place[0], extension, 1)
	}
	if !strings.Contains(text, "x-gatehouse-"+name+": "+string(encoded)) {
		return ""
	}
	return strings.ReplaceAll(text, ", }", "}")
}

// extensionSchema returns the JSON Schema of the extensions, as text and compiled.
func extensionSchema(t *testing.T) (schema struct {
	Defs map[string]struct {
		Description string `json:"description"`
		Examples    []any  `json:"examples"`
	} `json:"$defs"`
}, valid func(document any) error,
) {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &schema))
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("urn:schema", tree))
	compiled, err := c.Compile("urn:schema")
	require.NoError(t, err)
	return schema, compiled.Validate
}

// tree returns a document as JSON has it.
func tree(t *testing.T, text string) any {
	t.Helper()
	tree, err := jsonschema.UnmarshalJSON(strings.NewReader(asJSON(t, text)))
	require.NoError(t, err)
	return tree
}

// Another tool's extension is ignored, so that a misspelt one of ours hides or checks nothing.
func TestNamesThatLookLikeAnExtensionCauseAWarning(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"x-gatehosue-internal": "did you mean x-gatehouse-internal?", "x-gatehouse_internal": "did you mean x-gatehouse-internal?",
		"x-gateway-internal": "did you mean x-gatehouse-internal?", "x-gate-visible": "did you mean x-gatehouse-visible?", "x-gatehose-from": "did you mean x-gatehouse-from?",
		"x-gateh\u043euse-internal": "characters beyond ASCII", "x-g\u0430t\u0435h\u043eus\u0435-\u0456nt\u0435rn\u0430l": "characters beyond ASCII", "x-gate\u200bhouse-internal": "characters beyond ASCII",
		"x-internal": "", "x-nullable": "", "x-enum-varnames": "", "x-go-type": "", "x-google-backend": "", "x-google-management": "",
		"x-amazon-apigateway-integration": "", "x-ms-visibility": "", "x-kong-name": "", "x-tyk-api-gateway": "", "x-readme": "", "x-stoplight": "", "x-speakeasy-name-override": "",
		"x-kubernetes-group-version-kind": "", "x-apisix-upstream": "", "x-zuplo-route": "", "x-oapi-codegen-extra-tags": "", "x-displayName": "", "x-tagGroups": "", "x-page": "", "x-gitbook-page": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for place, text := range map[string][]string{
				"a member": {"x: {type: string", "x: {\"" + name + "\": true, type: string"}, "the document": {"paths:", "\"" + name + "\": true\npaths:"},
			} {
				says := warnings(loaded(t, definition.Options{}, text...))
				require.Equal(t, want != "", strings.Contains(says, name+" is ignored: ") && strings.Contains(says, want), "%s: %s", place, says)
				require.Equal(t, want != "", strings.Contains(says, "is ignored: "), "%s: %s", place, says)
			}
		})
	}
}

// The extensions of the compiler, of the schema for editors and of the page are the same, and each example of the schema loads.
func TestSchemaForEditorsHasAllExtensions(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("definition.go")
	require.NoError(t, err)
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^\text\w+ += extPrefix \+ "([a-z]+)"$`).FindAllStringSubmatch(string(source), -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	require.Contains(t, names, "tenant")
	page, err := os.ReadFile("../../docs/definition.md")
	require.NoError(t, err)
	schema, valid := extensionSchema(t)
	var described []string
	for name := range schema.Defs {
		if name != "value" {
			described = append(described, name)
		}
	}
	slices.Sort(described)
	require.Equal(t, names, described)
	for _, name := range names {
		extension := schema.Defs[name]
		assert.Regexp(t, `^On a.*\.$|^On the .*\.$`, extension.Description, name)
		assert.Positive(t, bytes.Index(page, []byte("\n| `x-gatehouse-"+name+":")), "docs/definition.md has no row for %s", name)
		require.NotEmpty(t, extension.Examples, name)
		for _, example := range extension.Examples {
			text := schemaVisit(t, name, example)
			require.NotEmpty(t, text, "%s: %v has no place", name, example)
			require.NoError(t, valid(tree(t, text)), "%s: %v", name, example)
			_, err := load(text, definition.Options{})
			assert.NoError(t, err, "%s: %v", name, example)
		}
		assert.Error(t, valid(map[string]any{"x-gatehouse-" + name: json.Number("5")}), "%s: 5", name)
	}
	require.Error(t, valid(map[string]any{"paths": []any{map[string]any{"x-gatehouse-publik": true}}}))
}

// The schema accepts the definitions and overlays of this repository.
func TestDefinitionsAndOverlaysMatchTheSchemaForEditors(t *testing.T) {
	t.Parallel()
	_, valid := extensionSchema(t)
	for _, file := range []string{"public.yaml", "../../e2e/testdata/shop/openapi.yaml", "../../e2e/testdata/shop/overlay.yaml", "../../examples/orders/orders.openapi.yaml", "../../examples/orders/orders.gatehouse.yaml", "../../examples/legacy/billing.openapi.yaml", "../../examples/legacy/billing.gatehouse.yaml"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, valid(tree(t, string(text))), file)
		wrong := strings.ReplaceAll(string(text), "x-gatehouse-tenant", "x-gatehouse-tennant")
		if wrong != string(text) {
			require.Error(t, valid(tree(t, wrong)), file)
		}
	}
	require.Error(t, valid(tree(t, "actions: [{target: $, update: {x-gatehouse-page: {}}}]")))
}
