package docs_test

import (
	"bytes"
	"cmp"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// Documents as frameworks generate them: FastAPI with pydantic, drf-spectacular, springdoc, ASP.NET Core, NestJS and Scramble.
const (
	ofFastAPI = `{"openapi":"3.1.0","info":{"title":"FastAPI","version":"0.1.0"},"paths":{
"/api/v1/orders/":{"get":{"tags":["orders"],"summary":"List Orders","operationId":"list_orders_api_v1_orders__get",
  "parameters":[{"name":"limit","in":"query","required":false,"schema":{"anyOf":[{"type":"integer","maximum":100},{"type":"null"}],"title":"Limit"}},
    {"name":"if-none-match","in":"header","required":false,"schema":{"anyOf":[{"type":"string"},{"type":"null"}],"title":"If-None-Match"}}],"responses":{
  "200":{"description":"Successful Response","content":{"application/json":{"schema":{},"examples":{"none":{"value":[]}}}}},
  "422":{"description":"Validation Error","content":{"application/json":{"schema":{"$ref":"#/components/schemas/HTTPValidationError"}}}}}}},
"/api/v1/orders/{order_id}":{"get":{"tags":["orders"],"summary":"Get Order","operationId":"get_order_api_v1_orders__order_id__get",
  "parameters":[{"name":"order_id","in":"path","required":true,"schema":{"type":"integer","title":"Order Id"}}],"responses":{
  "200":{"description":"Successful Response","content":{"application/json":{"schema":{"$ref":"#/components/schemas/Order"}}}},
  "422":{"description":"Validation Error","content":{"application/json":{"schema":{"$ref":"#/components/schemas/HTTPValidationError"}}}}}}}},
"components":{"schemas":{
"HTTPValidationError":{"properties":{"detail":{"items":{"$ref":"#/components/schemas/ValidationError"},"type":"array","title":"Detail"}},"type":"object","title":"HTTPValidationError"},
"Order":{"properties":{"id":{"type":"integer","title":"Id"},"total":{"type":"string","pattern":"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$","title":"Total"},
  "tags":{"items":{},"type":"array","title":"Tags"},"note":{"anyOf":[{"type":"string"},{"type":"null"}],"title":"Note"}},"type":"object","required":["id","total"],"title":"Order"},
"ValidationError":{"properties":{"loc":{"items":{"anyOf":[{"type":"string"},{"type":"integer"}]},"type":"array","title":"Location"},"msg":{"type":"string","title":"Message"},
  "type":{"type":"string","title":"Error Type"},"input":{"title":"Input"},"ctx":{"type":"object","title":"Context"}},"type":"object","required":["loc","msg","type"],"title":"ValidationError"}}}}`

	ofDjango = `openapi: 3.0.3
info: {title: Shop, version: 1.0.0}
paths:
  /api/orders/:
    get:
      operationId: orders_list
      parameters: [{name: page, required: false, in: query, description: A page number within the paginated result set., schema: {type: integer}}]
      tags: [orders]
      security: [{tokenAuth: []}]
      responses: {'200': {content: {application/json: {schema: {$ref: '#/components/schemas/PaginatedOrderList'}}}, description: ''}}
    post:
      operationId: orders_create
      tags: [orders]
      requestBody:
        content:
          application/json: {schema: {$ref: '#/components/schemas/Order'}}
          application/x-www-form-urlencoded: {schema: {$ref: '#/components/schemas/Order'}}
          multipart/form-data: {schema: {$ref: '#/components/schemas/Order'}}
        required: true
      responses: {'201': {content: {application/json: {schema: {$ref: '#/components/schemas/Order'}}}, description: ''}}
  /api/orders/{id}/:
    get:
      operationId: orders_retrieve
      parameters: [{in: path, name: id, schema: {type: integer}, description: A unique integer value identifying this order., required: true}]
      responses: {'200': {content: {application/json: {schema: {$ref: '#/components/schemas/Order'}}}, description: ''}}
components:
  schemas:
    NullEnum: {enum: [null]}
    Order:
      type: object
      properties:
        id: {type: integer, readOnly: true}
        total: {type: string, format: decimal, pattern: '^-?\d{0,8}(?:\.\d{0,2})?$'}
        extra: {}
        at: {type: string, format: time}
        status: {nullable: true, oneOf: [{$ref: '#/components/schemas/StatusEnum'}, {$ref: '#/components/schemas/NullEnum'}]}
      required: [id, total]
    PaginatedOrderList:
      type: object
      required: [count, results]
      properties:
        count: {type: integer, example: 123}
        next: {type: string, nullable: true, format: uri, example: 'http://api.example.org/accounts/?page=4'}
        previous: {type: string, nullable: true, format: uri, example: 'http://api.example.org/accounts/?page=2'}
        results: {type: array, items: {$ref: '#/components/schemas/Order'}}
    StatusEnum: {enum: [open, paid], type: string, description: '* ` + "`open`" + ` - Open'}
`

	ofSpring = `{"openapi":"3.0.1","info":{"title":"OpenAPI definition","version":"v0"},"servers":[{"url":"http://localhost:8080","description":"Generated server url"}],"paths":{
"/orders/{id}":{"get":{"tags":["order-controller"],"operationId":"get","parameters":[{"name":"id","in":"path","required":true,"schema":{"type":"integer","format":"int64"}}],
  "responses":{"200":{"description":"OK","content":{"*/*":{"schema":{"$ref":"#/components/schemas/Order"}}}},
    "404":{"description":"Not Found","content":{"*/*":{"schema":{"$ref":"#/components/schemas/ProblemDetail"},"examples":{"missing":{"value":{"status":404}}}}}},
    "409":{"description":"Conflict","content":{"*/*":{"schema":{},"example":"conflict"}}}}}}},
"components":{"schemas":{"Order":{"type":"object","properties":{"id":{"type":"integer","format":"int64"},"attributes":{"type":"object","additionalProperties":{"type":"object"}},"extra":{}}},
"ProblemDetail":{"type":"object","properties":{"type":{"type":"string","format":"uri"},"title":{"type":"string"},"status":{"type":"integer","format":"int32"},"detail":{"type":"string"},
  "instance":{"type":"string","format":"uri"},"properties":{"type":"object","additionalProperties":{"type":"object"}}}}}}}`

	ofDotNET = `{"openapi":"3.1.1","info":{"title":"Shop | v1","version":"1.0.0"},"servers":[{"url":"http://localhost:5000/"}],"paths":{"/orders":{"get":{"tags":["Shop"],
  "parameters":[{"name":"pageSize","in":"query","schema":{"pattern":"^-?(?:0|[1-9]\\d*)$","type":["integer","string"],"format":"int32","minimum":1,"maximum":100,"default":20}}],
  "responses":{"200":{"description":"OK","content":{"application/json":{"schema":{"type":"array","items":{"$ref":"#/components/schemas/Order"}}}},"x-gatehouse-records":{"at_most":"pageSize"}}}}}},
"components":{"schemas":{"Order":{"required":["id","quantity"],"type":"object","properties":{"id":{"pattern":"^-?(?:0|[1-9]\\d*)$","type":["integer","string"],"format":"int32"},
  "quantity":{"pattern":"^-?(?:0|[1-9]\\d*)$","type":["null","integer","string"],"format":"int64"}}}}}}`

	ofNestJS = `{"openapi":"3.0.0","info":{"title":"Shop","version":"1.0"},"paths":{"/orders":{"get":{"operationId":"OrdersController_findAll","tags":["Orders"],
  "parameters":[{"name":"limit","required":true,"in":"query","schema":{"type":"number"}}],
  "responses":{"200":{"description":"","content":{"application/json":{"schema":{"type":"array","items":{"$ref":"#/components/schemas/Order"}}}},"x-gatehouse-records":{"at_most":"limit"}}}}}},
"components":{"schemas":{"Order":{"type":"object","properties":{"id":{"type":"number"}},"required":["id"]}}}}`

	ofLaravel = `{"openapi":"3.1.0","info":{"title":"Laravel","version":"0.0.1"},"servers":[{"url":"http://localhost/api"}],"paths":{"/orders":{"get":{"operationId":"order.index","tags":["Order"],
  "parameters":[{"name":"page","in":"query","schema":{"type":"integer"}},{"name":"per_page","in":"query","schema":{"type":"integer"}}],
  "responses":{"200":{"description":"Paginated set of OrderResource","content":{"application/json":{"schema":{"type":"object","properties":{"data":{"type":"array","items":{"$ref":"#/components/schemas/OrderResource"}},
    "links":{"type":"object","properties":{"first":{"type":["string","null"]},"last":{"type":["string","null"]},"prev":{"type":["string","null"]},"next":{"type":["string","null"]}},"required":["first","last","prev","next"]},
    "meta":{"type":"object","properties":{"current_page":{"type":"integer","minimum":1},"links":{"type":"array","items":{"type":"object","properties":{"url":{"type":["string","null"]},"label":{"type":"string"},"active":{"type":"boolean"}},"required":["url","label","active"]}},
      "path":{"type":["string","null"]},"per_page":{"type":"integer"}},"required":["current_page","links","path","per_page"]}},"required":["data","links","meta"]}}}}}}}},
"components":{"schemas":{"OrderResource":{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"],"title":"OrderResource"}}}}`
)

// Documents of other styles: actions of Google's, derived schemas of NSwag's, and JSON:API.
const (
	ofActions = `
openapi: 3.0.3
info: {title: Orders, version: "1"}
paths:
  /v1/orders/{id}:cancel:
    post: {operationId: cancel, parameters: [{name: id, in: path, required: true, schema: {type: string}}], responses: {"200": {$ref: "#/components/responses/Order"}}}
components:
  responses: {Order: {description: ok, content: {application/json: {schema: {type: object, required: [id], properties: {id: {type: string}}}}}}}
`
	ofDerived = `
openapi: 3.0.0
info: {title: Payments, version: "1"}
paths:
  /payments:
    get: {operationId: list, responses: {"200": {description: ok, content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Payment"}}}}}}}
components:
  schemas:
    Payment: {required: [type], type: object, properties: {type: {type: string}}, discriminator: {propertyName: type, mapping: {card: "#/components/schemas/CardPayment", sepa: "#/components/schemas/SepaPayment"}}}
    CardPayment: {allOf: [{$ref: "#/components/schemas/Payment"}, {type: object, properties: {last4: {type: string}}}]}
    SepaPayment: {allOf: [{$ref: "#/components/schemas/Payment"}, {type: object, properties: {iban: {type: string}}}]}
`
	ofJSONAPI = `
openapi: 3.0.3
info: {title: Articles, version: "1"}
paths:
  /articles:
    get:
      operationId: listArticles
      parameters:
        - {name: "page[size]", in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 10}}
        - {name: "fields[articles]", in: query, explode: false, schema: {type: array, items: {type: string}}}
      responses:
        "200":
          description: ok
          x-gatehouse-records: {in: data, at_most: "page[size]"}
          content: {application/vnd.api+json: {schema: {type: object, required: [data], properties: {data: {type: array, items: {$ref: "#/components/schemas/Article"}}, included: {type: array, items: {$ref: "#/components/schemas/Person"}}}}}}
    post:
      operationId: createArticle
      requestBody: {required: true, content: {application/vnd.api+json: {schema: {type: object, required: [data], properties: {data: {type: object, required: [attributes], properties: {attributes: {$ref: "#/components/schemas/Attributes"}}}}}}}}
      responses: {"201": {description: created, content: {application/vnd.api+json: {schema: {$ref: "#/components/schemas/ArticleDocument"}}}}}
components:
  schemas:
    Attributes: {type: object, properties: {title: {type: string}, tenant-id: {type: string, readOnly: true}}}
    Article: {type: object, required: [id, attributes], properties: {id: {type: string}, attributes: {$ref: "#/components/schemas/Attributes"}}}
    ArticleDocument: {type: object, required: [data], properties: {data: {$ref: "#/components/schemas/Article"}}}
    Person: {type: object, required: [id, attributes], properties: {id: {type: string}, attributes: {type: object, properties: {name: {type: string}, tenant-id: {type: string}}}}}
`
)

// What the page says of documents of frameworks holds: with its overlays, they load, and their services' responses pass.
func TestDocumentsOfFrameworksLoadWithTheOverlaysOnTheirPage(t *testing.T) {
	t.Parallel()
	overlays := map[string]string{"tenant": "overlay: 1.0.0\ninfo: {title: Tenant, version: '1'}\nactions: [{target: $, update: {x-gatehouse-tenant: request}}]\n"}
	for _, b := range blocks(t, "frameworks.md") {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(b.text), "# "), "\n")
		overlays[strings.TrimSuffix(name, ".gatehouse.yaml")] = b.text
	}
	// Of open.gatehouse.yaml, a document needs only the actions that select something.
	before, actions, _ := strings.Cut(overlays["open"], "  # Members")
	actions = "  # Members" + actions
	only := func(keep ...string) string {
		text := before
		for part := range strings.SplitSeq(strings.ReplaceAll(actions, "\n  # ", "\n\x00  # "), "\x00") {
			for _, name := range keep {
				if strings.HasPrefix(part, "  # "+name) {
					text += part
				}
			}
		}
		return text
	}
	const foreign = "rejected"
	ofSpringOverlays := []string{only("Members", "Bodies", "Objects"), overlays["problems"]}
	for name, test := range map[string]struct {
		document string
		overlays []string
		missing  string // what the document lacks without them
		target   string // of a GET, or a POST
		status   int
		body     string
		want     string
	}{
		"FastAPI, any body": {ofFastAPI, []string{overlays["open"], overlays["decimal"]}, "the type is missing", "/api/v1/orders/?limit=5", 200, `[{"a":[1]}]`, `[{"a":[1]}]`},
		"FastAPI, an error": {ofFastAPI, []string{overlays["open"], overlays["decimal"]}, "the pattern is not one of RE2", "/api/v1/orders/", 422, `{"detail":[{"loc":["query",1],"msg":"m","type":"t","input":{"a":1},"ctx":{"b":null}}]}`, ""},
		"FastAPI, a record": {ofFastAPI, []string{overlays["open"], overlays["decimal"]}, "an object needs properties", "/api/v1/orders/7", 200, `{"id":7,"total":"-12.50","tags":["a",1],"note":null,"secret":1}`, `{"id":7,"total":"-12.50","tags":["a",1],"note":null}`},
		"Django, a page":    {ofDjango, []string{only("Members"), overlays["pages"], overlays["times"]}, "the type is missing", "/api/orders/?page=2", 200, `{"count":1,"next":"http://orders.internal:8000/api/orders/?page=3","previous":null,"results":[{"id":1,"total":"1.00","extra":{"a":[]},"at":"10:30:00","status":null}]}`, `{"count":1,"next":"/api/orders/?page=3","previous":null,"results":[{"id":1,"total":"1.00","extra":{"a":[]},"at":"10:30:00","status":null}]}`},
		".NET, records":     {ofDotNET, []string{overlays["integers"]}, "must be a parameter that is an integer", "/orders?pageSize=5", 200, `[{"id":7,"quantity":null}]`, ""},
		"NestJS, records":   {ofNestJS, []string{overlays["pagesize"]}, "must be a parameter that is an integer", "/orders?limit=5", 200, `[{"id":7}]`, ""},
		"Laravel, a page": {
			ofLaravel,
			[]string{overlays["paginator"]},
			"", "/api/orders?page=1", 200,
			`{"data":[{"id":7}],"links":{"first":"http://shop.internal/api/orders?page=1","last":"http://shop.internal/api/orders?page=2","prev":null,"next":"http://shop.internal/api/orders?page=2"},"meta":{"current_page":1,"links":[{"url":null,"label":"Previous","active":false},{"url":"http://shop.internal/api/orders?page=1","label":"1","active":true}],"path":"http://shop.internal/api/orders","per_page":15}}`,
			`{"data":[{"id":7}],"links":{"first":"/api/orders?page=1","last":"/api/orders?page=2","prev":null,"next":"/api/orders?page=2"},"meta":{"current_page":1,"links":[{"url":null,"label":"Previous","active":false},{"url":"/api/orders?page=1","label":"1","active":true}],"per_page":15}}`,
		},
		"Spring, an object": {ofSpring, ofSpringOverlays, "an object needs properties", "/orders/7", 200, `{"id":7,"attributes":{"a":{"b":1}},"extra":[1],"secret":1}`, `{"id":7,"attributes":{"a":{"b":1}},"extra":[1]}`},
		"Spring, a problem": {ofSpring, ofSpringOverlays, "an object needs properties", "/orders/7", 404, `{"type":"about:blank","title":"Not Found","status":404,"instance":"/orders/7"}`, ""},
		"actions":           {ofActions, []string{overlays["actions"]}, "each segment of a path must be a parameter", "/v1/orders/7/cancel", 200, `{"id":"7"}`, ""},
		"derived":           {ofDerived, []string{overlays["derived"]}, "", "/payments", 200, `[{"type":"card","last4":"1881"},{"type":"sepa","iban":"x","last4":"y"}]`, `[{"type":"card","last4":"1881"},{"type":"sepa","iban":"x"}]`},
		"JSON:API, a list": {
			ofJSONAPI,
			[]string{overlays["jsonapi"]},
			"cannot be enforced", "/articles?page[size]=2", 200,
			`{"data":[{"id":"1","attributes":{"title":"t","tenant-id":"b"}}],"included":[{"id":"2","attributes":{"name":"n","tenant-id":"b"}}]}`,
			"",
		},
		"JSON:API, another business's author": {
			ofJSONAPI,
			[]string{overlays["jsonapi"]},
			"cannot be enforced", "/articles", 200,
			`{"data":[],"included":[{"id":"2","attributes":{"name":"n","tenant-id":"c"}}]}`,
			foreign,
		},
		"Spring, any error": {ofSpring, ofSpringOverlays, "an object needs properties", "/orders/7", 409, `{"a":"b"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			load := func(overlays ...string) (*definition.Definition, error) {
				o := definition.Options{}
				for _, text := range overlays {
					o.Overlays = append(o.Overlays, definition.File{Name: "overlay.yaml", Text: []byte(text)})
				}
				return definition.Load(definition.File{Name: "api.yaml", Text: []byte(test.document)}, o)
			}
			_, err := load(overlays["tenant"])
			if test.missing != "" {
				require.ErrorContains(t, err, test.missing)
			}
			d, err := load(append(test.overlays, overlays["tenant"])...)
			require.NoError(t, err)
			published, err := d.Published(definition.PublishOptions{})
			require.NoError(t, err)
			require.NotContains(t, string(published), "$ref: {}", "an action updates examples")
			m, ok := d.API.Match(test.target)
			require.True(t, ok)
			op := cmp.Or(m.Path.Operation(http.MethodGet), m.Path.Operation(http.MethodPost))
			q, err := op.CleanQuery(m)
			require.NoError(t, err)
			require.Empty(t, q.Ignored)
			res, err := op.CheckHeader(test.status, http.Header{"Content-Type": {"application/json"}}, false)
			require.NoError(t, err)
			var out bytes.Buffer
			_, err = new(upstream.Contract).Check(&out, op, res, q, "b", []byte(test.body))
			if test.want == foreign {
				require.ErrorIs(t, err, upstream.ErrCrossTenantRecord)
				return
			}
			require.NoError(t, err)
			if test.want == "" {
				test.want = test.body
			}
			require.Equal(t, test.want, out.String())
		})
	}
}
