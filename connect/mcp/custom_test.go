package mcp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/test/calltest"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// shop is the definition of a service that has nothing in common with the embedded one: tenants, IDs and versions have other names, versions
// are entity tags, and a change requires one.
const shop = `
openapi: 3.1.0
info: {title: Shop, version: "1"}
servers: [{url: /shop}]
x-gatehouse-tenant: shop
tags: [{name: orders, description: Orders of customers.}]
paths:
  /orders:
    get:
      tags: [orders]
      operationId: listOrders
      summary: Orders
      x-gatehouse-tool: {fields: [number, state]}
      parameters:
        - {name: state, in: query, schema: {type: array, maxItems: 3, items: {type: string, enum: [open, sent]}}}
        - {name: gift, in: query, schema: {type: boolean}}
        - {name: labels, in: query, explode: false, schema: {type: array, maxItems: 3, items: {type: string, maxLength: 20}}}
      responses:
        "200":
          description: Orders.
          x-gatehouse-records: {in: orders}
          content: {application/json: {schema: {type: object, required: [orders], properties: {orders: {type: array, maxItems: 10, items: {$ref: "#/components/schemas/Order"}}}}}}
    post:
      tags: [orders]
      operationId: createOrder
      summary: Save order
      x-gatehouse-tool: {name: order_save, replace: replaceOrder, does: "Saved the order {number}"}
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/OrderContent"}}}}
      responses:
        "201":
          description: The order.
          content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}
  /orders/{number}:
    parameters: [{name: number, in: path, required: true, schema: {type: integer, minimum: 1, maximum: 999}}]
    get:
      tags: [orders]
      operationId: getOrder
      summary: Order
      x-gatehouse-tool: {}
      responses:
        "200":
          description: The order.
          headers: {ETag: {schema: {type: string}}}
          x-gatehouse-records: {is: {number: number}}
          content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}
        "404": {description: There is none.}
    put:
      tags: [orders]
      operationId: replaceOrder
      summary: Replace
      parameters: [{name: If-Match, in: header, required: true, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/OrderContent"}}}}
      responses:
        "200":
          description: The order.
          x-gatehouse-records: {is: {number: number}}
          content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}
        "404": {description: There is none.}
        "412": {description: It has changed.}
    patch:
      tags: [orders]
      operationId: changeOrder
      summary: Change order
      x-gatehouse-tool: {does: "Changed the order {number}"}
      parameters: [{name: If-Match, in: header, required: true, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {type: object, properties: {state: {$ref: "#/components/schemas/State"}, remark: {type: string}}}}}}
      responses:
        "200":
          description: The order.
          x-gatehouse-records: {is: {number: number}}
          content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}
        "412": {description: It has changed.}
    delete:
      tags: [orders]
      operationId: cancelOrder
      summary: Cancel order
      x-gatehouse-tool: {risk: people, confirm: {read: getOrder, text: "the order {number}, {state}"}}
      x-gatehouse-tenant: request
      responses:
        "204": {description: It is cancelled.}
        "404": {description: There is none.}
  /labels:
    patch:
      tags: [orders]
      operationId: setLabels
      summary: Set labels
      x-gatehouse-tool: {}
      x-gatehouse-tenant: request
      requestBody: {required: true, content: {application/json: {schema: {type: object, maxProperties: 3, additionalProperties: {type: string, maxLength: 5}}}}}
      responses:
        "204": {description: They are set.}
components:
  schemas:
    State: {type: string, enum: [open, sent]}
    OrderContent:
      type: object
      required: [state]
      properties:
        state: {$ref: "#/components/schemas/State"}
        remark: {type: [string, "null"]}
        fields: {type: array, maxItems: 3, items: {type: integer}}
    Order:
      type: object
      required: [number, shop, state]
      properties:
        number: {type: integer}
        shop: {type: string}
        state: {$ref: "#/components/schemas/State"}
        remark: {type: [string, "null"], x-gatehouse-untrusted: true}
        fields: {type: array, maxItems: 3, items: {type: integer}}
        customer: {type: string, x-gatehouse-untrusted: true}
`

// shopService is a service with one order, the number 7.
type shopService struct {
	sync.Mutex

	shop  string
	order map[string]any
	tag   int
	seen  []string
	races int // changes by others, each before a write

	refuses string // the problem with which it refuses every PATCH; "" for none
}

func (s *shopService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Lock()
	defer s.Unlock()
	body, _ := io.ReadAll(r.Body)
	s.seen = append(s.seen, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", r.Method, r.RequestURI, r.Header.Get("If-Match"), r.Header.Get("Idempotency-Key"), body)))
	respond := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("ETag", fmt.Sprintf(`W/"v%d"`, s.tag))
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	if r.Method != http.MethodGet && s.races > 0 {
		s.races--
		s.tag++
		s.order["fields"] = []int{s.tag}
	}
	writes := r.Method == http.MethodPut || r.Method == http.MethodPatch && r.URL.Path != "/shop/labels"
	switch {
	case s.refuses != "" && r.Method == http.MethodPatch:
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, s.refuses)
		return
	case writes && r.Header.Get("If-Match") != fmt.Sprintf(`W/"v%d"`, s.tag):
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	case writes:
		s.tag++
		if r.Method == http.MethodPut {
			s.order = map[string]any{"number": 7, "shop": s.shop, "customer": "Eve"}
		}
		_ = json.Unmarshal(body, &s.order)
	case r.Method == http.MethodDelete, r.URL.Path == "/shop/labels":
		w.WriteHeader(http.StatusNoContent)
		return
	}
	switch {
	case r.Method == http.MethodPost:
		respond(201, s.order)
	case strings.HasPrefix(r.RequestURI, "/shop/orders/7"):
		respond(200, s.order)
	default:
		respond(200, map[string]any{"orders": []any{s.order}})
	}
}

// newShop returns a server with the definition shop, in which of each two of changes the first is replaced by the second.
func newShop(t *testing.T, changes ...string) (*setup, *shopService) {
	t.Helper()
	text := strings.NewReplacer(changes...).Replace(shop)
	d, err := definition.Load(definition.File{Name: "shop.yaml", Text: []byte(text)}, definition.Options{Tools: true})
	require.NoError(t, err)
	service := &shopService{tag: 1}
	backend := httptest.NewServer(service)
	t.Cleanup(backend.Close)
	s := newSetup(t, shared, func(o *mcp.Options) {
		o.Definition, o.Areas = d, scope.New(d.Areas)
		client, err := data.New(data.Options{Host: backend.Listener.Addr().String(), Do: calltest.Over(http.DefaultTransport), Log: zap.NewNop()})
		require.NoError(t, err)
		o.Data = client
	})
	everything, err := scope.New(d.Areas).Parse("mcp:use")
	require.NoError(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.grants["bearer"]
	g.Scopes = everything
	s.grants["bearer"] = g
	service.shop = s.owner.BusinessID
	service.order = map[string]any{"number": 7, "shop": service.shop, "state": "open", "remark": "Ring twice.", "fields": []int{1}, "customer": "Eve"}
	return s, service
}

func (s *shopService) requests() []string {
	s.Lock()
	defer s.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

func TestToolsOfAnotherDefinition(t *testing.T) {
	t.Parallel()
	s, service := newShop(t)
	c := s.connect(modern, "bearer", nil)
	require.ElementsMatch(t, []string{"list_orders", "order_save", "get_order", "change_order", "cancel_order", "set_labels"}, s.server.ToolNames())

	// A list, with an exploded array, and without the tenant.
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "list_orders", Arguments: object{"state": []any{"open", "sent"}, "gift": "true"}})
	require.NoError(t, err)
	require.False(t, res.IsError, textOf(res))
	assert.Equal(t, []any{object{"number": 7.0, "state": "open"}}, res.StructuredContent.(object)["orders"])
	assert.Equal(t, []string{"GET /shop/orders?state=open&state=sent&gift=true"}, service.requests())

	// A list whose items are separated by commas.
	for labels, want := range map[string]string{`["new","a b"]`: "", `["Smith, John"]`: "labels has an item that is empty or has a comma", `[""]`: "labels has an item that is empty or has a comma"} {
		res, err = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "list_orders", Arguments: json.RawMessage(`{"labels":` + labels + `}`)})
		require.NoError(t, err)
		require.Equal(t, want != "", res.IsError, textOf(res))
		require.Contains(t, textOf(res), want)
	}
	require.Equal(t, []string{"GET /shop/orders?labels=new,a%20b"}, service.requests(), "a filter that cannot be sent must not be left out")

	// A record that is not in a member of its own.
	res, err = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "get_order", Arguments: object{"number": "7"}})
	require.NoError(t, err)
	require.False(t, res.IsError, textOf(res))
	order := res.StructuredContent.(object)
	assert.Equal(t, "Eve", order["untrusted_customer"])
	assert.Equal(t, "Ring twice.", order["untrusted_remark"])
	assert.NotContains(t, order, "shop")
	service.requests()

	// A PATCH that requires If-Match gets the tag that was read.
	res, err = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "change_order", Arguments: object{"number": 7, "remark": "Knock."}})
	require.NoError(t, err)
	require.False(t, res.IsError, textOf(res))
	assert.Equal(t, []string{"GET /shop/orders/7", `PATCH /shop/orders/7 W/"v1"  {"remark":"Knock."}`}, service.requests())

	// A PUT keeps what is not mentioned, also what another caller changes meanwhile.
	service.races = 2
	res, err = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "order_save", Arguments: object{"number": 7, "state": "sent"}})
	require.NoError(t, err)
	require.False(t, res.IsError, textOf(res))
	seen := service.requests()
	require.Len(t, seen, 6)
	assert.Equal(t, `PUT /shop/orders/7 W/"v4"  {"state":"sent","remark":"Knock.","fields":[4]}`, seen[5])
	entries := s.entries()
	assert.Equal(t, "Saved the order 7", entries[len(entries)-1].Sentence)

	// A creation.
	res, err = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "order_save", Arguments: object{"state": "open", "fields": []any{3}}})
	require.NoError(t, err)
	require.False(t, res.IsError, textOf(res))
	assert.Equal(t, []string{`POST /shop/orders   {"state":"open","fields":[3]}`}, service.requests())
	fails(t, c, "order_save", object{"remark": "x"}, "INVALID_ARGUMENTS", "state", "required")
	fails(t, c, "order_save", object{"number": 0, "state": "open"}, "INVALID_ARGUMENTS")
	fails(t, c, "order_save", object{"number": 7}, "contains no change")
	fails(t, c, "change_order", object{"number": 7}, "contains no change")
	service.requests()

	// A body that is a map is one argument. There is nothing in the response.
	res, err = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "set_labels", Arguments: object{"body": object{"a": "b", "c": 7}}})
	require.NoError(t, err)
	require.False(t, res.IsError, textOf(res))
	assert.Equal(t, []string{`PATCH /shop/labels   {"a":"b","c":"7"}`}, service.requests())
	fails(t, c, "set_labels", object{"body": object{"a": "too long"}}, "INVALID_ARGUMENTS", "body.a")
	fails(t, c, "set_labels", object{"a": "b"}, "INVALID_ARGUMENTS", "The arguments of set_labels are: body")
	assert.Empty(t, service.requests())

	// A deletion that writes to people, with a response without a body.
	// No page allows it without asking: that is for what is started.
	s.mu.Lock()
	g := s.grants["bearer"]
	g.Unasked = true
	s.grants["bearer"] = g
	s.mu.Unlock()
	_, err = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "cancel_order", Arguments: object{"number": 7}})
	refused, ok := errors.AsType[*jsonrpc.Error](err)
	require.True(t, ok, "%v", err)
	assert.EqualValues(t, sdk.CodeMissingRequiredClientCapabilities, refused.Code)
	assert.JSONEq(t, `{"requiredCapabilities":{"elicitation":{"form":{}}}}`, string(refused.Data))
	assert.Contains(t, refused.Message, "takes a client that can ask")
	older := s.connect(legacy, "bearer", nil)
	assert.NotContains(t, fails(t, older, "cancel_order", object{"number": 7}, "CONFIRMATION_NEEDED", "takes a client that can ask"), "/settings")
	yes := &user{action: "accept", content: object{"confirm": true}}
	res, err = s.connect(modern, "bearer", yes.options()).CallTool(t.Context(), &sdk.CallToolParams{Name: "cancel_order", Arguments: object{"number": 7}})
	require.NoError(t, err)
	require.False(t, res.IsError, textOf(res))
	assert.Equal(t, true, res.StructuredContent.(object)["deleted"])
	assert.Equal(t, `Delete the order "7, sent" for good? It may write to people outside the business.`, yes.asked[0].Message)
}

// A tool may be a PUT itself. It writes the whole record, and what an object in it has.
func TestToolForAPUTKeepsWhatIsNotMentioned(t *testing.T) {
	t.Parallel()
	s, service := newShop(
		t, "{name: order_save, replace: replaceOrder,", "{name: order_save,", "      operationId: replaceOrder", "      operationId: replaceOrder\n      x-gatehouse-tool: {}",
		"fields: {type: array, maxItems: 3, items: {type: integer}}", "fields: {type: array, maxItems: 3, items: {type: integer}}\n        gift: {$ref: \"#/components/schemas/Gift\"}",
		"    State: ", "    Gift: {type: object, properties: {text: {type: string}, by: {type: object, properties: {name: {type: string}, id: {type: integer}}}}}\n    State: ",
	)
	c := s.connect(modern, "bearer", nil)
	service.order["gift"] = object{"text": "Yours", "by": object{"name": "Ann", "id": 1}}
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "replace_order", Arguments: object{"number": 7, "gift": object{"by": object{"name": "Zoe"}}}})
	require.NoError(t, err)
	require.False(t, res.IsError, textOf(res))
	assert.Equal(t, []string{
		"GET /shop/orders/7",
		`PUT /shop/orders/7 W/"v1"  {"state":"open","remark":"Ring twice.","fields":[1],"gift":{"text":"Yours","by":{"name":"Zoe","id":1}}}`,
	}, service.requests())
	fails(t, c, "replace_order", object{"state": "open"}, "INVALID_ARGUMENTS", "number", "required")
	fails(t, c, "replace_order", object{"number": 7}, "contains no change")
	assert.Empty(t, service.requests())
}

// There may be one record only, without a parameter in its path.
func TestPUTOfTheOnlyRecordIsAskedAbout(t *testing.T) {
	t.Parallel()
	s, service := newShop(t, "  /labels:\n", `  /orders/7/summary:
    get:
      tags: [orders]
      operationId: getSummary
      x-gatehouse-tenant: request
      responses:
        "200": {description: It., headers: {ETag: {schema: {type: string}}}, content: {application/json: {schema: {$ref: "#/components/schemas/OrderContent"}}}}
    put:
      tags: [orders]
      operationId: putSummary
      x-gatehouse-tool: {confirm: {if: remark}}
      x-gatehouse-tenant: request
      parameters: [{name: If-Match, in: header, required: true, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/OrderContent"}}}}
      responses:
        "200": {description: It., content: {application/json: {schema: {$ref: "#/components/schemas/OrderContent"}}}}
  /labels:
`)
	c := s.connect(modern, "bearer", nil)
	change := object{"remark": "Knock."}
	text := fails(t, c, "put_summary", change, "CONFIRMATION_NEEDED")
	assert.Contains(t, text, "Change ")
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "put_summary", Arguments: with(change, "confirm", asked(t, c, "put_summary", change))})
	require.NoError(t, err)
	require.False(t, res.IsError, textOf(res))
	requests := service.requests()
	assert.Equal(t, `PUT /shop/orders/7/summary W/"v1"  {"state":"open","remark":"Knock.","fields":[1]}`, requests[len(requests)-1])
}

func TestProblemThatIsDocumentedIsToldToTheModel(t *testing.T) {
	t.Parallel()
	const documented = `"422": {description: No., content: {application/problem+json: {schema: {type: object, properties: {title: {type: string}, detail: {type: string}}}}}}`
	s, service := newShop(t, `        "412": {description: It has changed.}
    delete:`, `        "412": {description: It has changed.}
        `+documented+`
    delete:`)
	c := s.connect(modern, "bearer", nil)
	for problem, says := range map[string]string{
		`{"title":"Invalid","detail":"Nobody lives there."}`: "The business's data service rejected these arguments. Nobody lives there.",
		`{"title":"Nobody lives there."}`:                    "The business's data service rejected these arguments. Nobody lives there.",
		`{"type":"about:blank"}`:                             "The business's data service rejected these arguments.",
	} {
		service.Lock()
		service.refuses = problem
		service.Unlock()
		fails(t, c, "change_order", object{"number": 7, "remark": "x"}, "INVALID_ARGUMENTS", says)
	}
	s, service = newShop(t)
	service.refuses = `{"title":"Internal: db-7"}`
	text := fails(t, s.connect(modern, "bearer", nil), "change_order", object{"number": 7, "remark": "x"}, "DATA_SERVICE_INVALID_RESPONSE")
	assert.NotContains(t, text, "db-7", "what is not documented reaches nobody")
}

func TestRecordsOfAnotherTenantAreRejectedWithAnyDefinition(t *testing.T) {
	t.Parallel()
	s, service := newShop(t)
	c := s.connect(modern, "bearer", nil)
	service.order["shop"] = s.other.BusinessID
	for tool, arguments := range map[string]object{
		"list_orders": {}, "get_order": {"number": 7}, "change_order": {"number": 7, "remark": "x"}, "order_save": {"number": 7, "remark": "x"},
	} {
		fails(t, c, tool, arguments, "DATA_SERVICE_INVALID_RESPONSE")
	}
	assert.NotContains(t, strings.Join(service.requests(), "\n"), "P", "nothing is written if the read shows another tenant's record")
}

// Operations may have parameters with the names of the gateway's own arguments.
func TestParametersMayHaveTheNamesOfTheGatewaysArguments(t *testing.T) {
	t.Parallel()
	s, service := newShop(
		t,
		"{fields: [number, state]}", "{}",
		"- {name: gift, in: query, schema: {type: boolean}}",
		"- {name: fields, in: query, schema: {type: array, maxItems: 3, items: {type: string, maxLength: 9}}}",
		"remark: {type: string}}", "remark: {type: string}, if_version: {type: string}, idempotency_key: {type: string}}",
		"{risk: people, confirm:", "{arguments: {confirm: sure}, confirm:",
		"      operationId: cancelOrder", "      operationId: cancelOrder\n      parameters: [{name: confirm, in: query, schema: {type: boolean}}]",
	)
	c := s.connect(modern, "bearer", nil)
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "list_orders", Arguments: object{"fields": []any{"state"}}})
	require.NoError(t, err)
	require.False(t, res.IsError, textOf(res))
	assert.Equal(t, []string{"GET /shop/orders?fields=state"}, service.requests())

	res, err = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "change_order", Arguments: object{"number": 7, "if_version": "3", "idempotency_key": "k"}})
	require.NoError(t, err)
	require.False(t, res.IsError, textOf(res))
	assert.Equal(t, `PATCH /shop/orders/7 W/"v1"  {"if_version":"3","idempotency_key":"k"}`, service.requests()[1])

	order := object{"number": 7, "sure": true}
	token := asked(t, c, "cancel_order", order)
	fails(t, c, "cancel_order", object{"number": 7, "sure": false, "confirm": token}, "CONFIRMATION_NEEDED")
	res, err = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "cancel_order", Arguments: with(order, "confirm", token)})
	require.NoError(t, err)
	require.False(t, res.IsError, textOf(res))
	requests := service.requests()
	assert.Equal(t, "DELETE /shop/orders/7?confirm=true", requests[len(requests)-1])
}

func TestQueryIsSentBesideABodyThatIsOneArgument(t *testing.T) {
	t.Parallel()
	s, service := newShop(t, "      operationId: setLabels", "      operationId: setLabels\n      parameters: [{name: of, in: query, required: true, schema: {type: string, maxLength: 9}}]")
	c := s.connect(modern, "bearer", nil)
	fails(t, c, "set_labels", object{"body": object{"a": "b"}}, "INVALID_ARGUMENTS", "of")
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "set_labels", Arguments: object{"body": object{"a": "b"}, "of": "gifts"}})
	require.NoError(t, err)
	require.False(t, res.IsError, textOf(res))
	assert.Equal(t, []string{`PATCH /shop/labels?of=gifts   {"a":"b"}`}, service.requests())
}

func TestCreationsThatDifferInTheirQueryAreDifferent(t *testing.T) {
	t.Parallel()
	s, service := newShop(
		t, ", replace: replaceOrder, does:", ", does:", "      operationId: createOrder", "      operationId: createOrder\n      parameters: "+
			"[{name: of, in: query, schema: {type: string, maxLength: 9}}, {name: Idempotency-Key, in: header, schema: {type: string}}]",
	)
	c := s.connect(modern, "bearer", nil)
	keys := map[string]bool{}
	for _, of := range []string{"a", "b", "a"} {
		res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "order_save", Arguments: object{"state": "open", "of": of}})
		require.NoError(t, err)
		require.False(t, res.IsError, textOf(res))
		keys[strings.Fields(service.requests()[0])[2]] = true
	}
	assert.Len(t, keys, 2)
}

// What a person agreed to is done to the record that they were told of, and to no other state of it.
func TestConfirmedChangeIsMadeToTheRecordAsItWas(t *testing.T) {
	t.Parallel()
	s, service := newShop(
		t, "{name: order_save, replace: replaceOrder,", `{name: order_save, replace: replaceOrder, confirm: {read: getOrder, text: "the order {number}, {state}"},`,
		`{does: "Changed the order {number}"}`, `{confirm: {read: getOrder, text: "the order {number}, {state}"}}`,
	)
	c := s.connect(modern, "bearer", nil)
	for _, tool := range []string{"order_save", "change_order"} {
		change := object{"number": 7, "state": "sent"}
		token := asked(t, c, tool, change)
		service.races = 1 // after the record was read once more
		fails(t, c, tool, with(change, "confirm", token), "CHANGED_MEANWHILE")
		res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: with(change, "confirm", asked(t, c, tool, change))})
		require.NoError(t, err)
		require.False(t, res.IsError, textOf(res))
	}
}
