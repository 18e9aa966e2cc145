package conform_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream/conform"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// small serves paths with one function: a request gets its status and, unless body is nil, a body.
func small(serve func(r *http.Request, business string) (status int, body any)) http.Handler {
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
		w.Header().Set("Content-Type", "application/json")
		status, body := serve(r, r.Header.Get("X-Business-Id"))
		if w.WriteHeader(status); body != nil {
			_ = json.NewEncoder(w).Encode(body)
		}
	})
}

// object is a JSON object.
type object map[string]any

// conformOf tests services of an API with the businesses 17 and 18, one for each of a few seeds, and returns what is printed. paths is what the
// document has from there on.
func conformOf(t *testing.T, paths string, o conform.Options, service func() http.Handler) (all []string) {
	t.Helper()
	text := "openapi: 3.1.0\ninfo: {title: Small, version: \"1\"}\n" + paths
	d, err := definition.Load(definition.File{Name: "small.yaml", Text: []byte(text)}, definition.Options{})
	require.NoError(t, err)
	o.Definition, o.A, o.B = d, "17", "18"
	for o.Seed = range 10 {
		server := httptest.NewServer(service())
		o.URL = server.URL
		report, err := conform.Run(t.Context(), o)
		server.Close()
		require.NoError(t, err)
		var printed strings.Builder
		require.NoError(t, report.Print(&printed))
		all = append(all, printed.String())
	}
	return all
}

func TestAParameterThatNamesTheBusiness(t *testing.T) {
	t.Parallel()
	const (
		response = `responses: {"200": {description: Orders., content: {application/json: {schema: {type: array, items: {type: object, required: [id, business_id], properties: {id: {type: string}, business_id: {type: string}}}}}}}}`
		optional = "        - {name: business_id, in: query, schema: {type: string}}\n"
		required = `        - {name: business_id, in: query, required: true, schema: {type: string}, example: "17"}` + "\n"
		below    = `        - {name: business_id, in: path, required: true, schema: {type: string}, example: "17"}` + "\n"
		accounts = `
  /accounts:
    get:
      operationId: listAccounts
      responses: {"200": {description: Accounts., content: {application/json: {schema: {type: array, items: {type: object, required: [id, business_id], properties: {id: {type: string}, business_id: {type: string}}}}}}}}`
	)
	for name, c := range map[string]struct{ before, path, parameter string }{
		"in an optional query":         {"", "/orders", optional},
		"in a required query":          {"", "/orders", required},
		"in a path":                    {"", "/accounts/{business_id}/orders", below},
		"in a path, with a list of it": {accounts, "/accounts/{business_id}/orders", below},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			paths := "x-gatehouse-tenant: business_id\npaths:" + c.before + "\n  " + c.path + ":\n    get:\n      operationId: listOrders\n      parameters:\n" + c.parameter + "      " + response
			for _, printed := range conformOf(t, paths, conform.Options{}, func() http.Handler {
				return small(func(r *http.Request, business string) (int, any) {
					switch {
					case business != "17" && business != "18":
						return http.StatusForbidden, nil
					case r.URL.Path == "/accounts":
						return http.StatusOK, []any{object{"id": business, "business_id": business}}
					}
					return http.StatusOK, []any{object{"id": "o-" + business, "business_id": business}}
				})
			}) {
				require.Contains(t, printed, " 0 faults")
			}
		})
	}
}

// itemsDocument is an API with a list of records that name no business. Their names can be sent.
const itemsDocument = `x-gatehouse-tenant: request
paths:
  /items:
    get:
      operationId: listItems
      responses: {"200": {description: Items., content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Item"}}}}}}
    post:
      operationId: addItem
      parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Item"}, example: {name: oak}}}}
      responses:
        "201": {description: The item., content: {application/json: {schema: {$ref: "#/components/schemas/Item"}}}}
        "422": {description: It is refused.}
components:
  schemas:
    Item: {type: object, required: [id, name], properties: {id: {type: integer, readOnly: true}, name: {type: string}, active: {type: boolean}}}
`

// A service whose numbers are everybody's, and which shows one record of 17 to all.
func TestWritingHidesNoLeakInAList(t *testing.T) {
	t.Parallel()
	for _, write := range []bool{false, true} {
		for _, printed := range conformOf(t, itemsDocument, conform.Options{Write: write}, func() http.Handler {
			all := []object{{"id": 1, "name": "a", "of": "17"}, {"id": 2, "name": "b", "of": "18"}}
			answers := map[string]object{}
			return small(func(r *http.Request, business string) (int, any) {
				if business != "17" && business != "18" {
					return http.StatusForbidden, nil
				}
				if r.Method == http.MethodPost {
					made := object{}
					_ = json.NewDecoder(r.Body).Decode(&made)
					key := business + r.Header.Get("Idempotency-Key")
					if answers[key] == nil {
						answers[key] = object{"id": len(all) + 1, "name": made["name"], "of": business}
						all = append(all, answers[key])
					} else if answers[key]["name"] != made["name"] {
						return http.StatusUnprocessableEntity, nil
					}
					return http.StatusCreated, answers[key]
				}
				own := []object{}
				for _, item := range all {
					if item["of"] == business || item["id"] == 1 {
						own = append(own, item)
					}
				}
				return http.StatusOK, own
			})
		}) {
			require.Contains(t, printed, "fault isolation: listItems: GET /items as B\n")
		}
	}
}
