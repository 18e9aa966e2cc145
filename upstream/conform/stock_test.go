package conform_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream/conform"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// stockDocument is an API whose products have an ID and an article number, name their business in bodies, and are counted from page 0.
const stockDocument = `
openapi: 3.1.0
info: {title: Stock, version: "1"}
paths:
  /products:
    get:
      operationId: listProducts
      x-gatehouse-tenant: account
      parameters:
        - {name: page, in: query, schema: {type: integer, maximum: 10, default: 0}}
        - {name: size, in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 20}}
        - {name: active, in: query, schema: {type: boolean}}
        - {name: maker_id, in: query, schema: {type: integer, minimum: 1}}
      responses:
        "200":
          description: Products.
          x-gatehouse-records: {in: products, at_most: size}
          x-gatehouse-page: [{request: page, response: /page}]
          content:
            application/json:
              schema:
                type: object
                required: [products, page]
                properties:
                  products: {type: array, items: {$ref: "#/components/schemas/Product"}}
                  page: {type: integer}
        "422": {description: The maker is unknown.}
    post:
      operationId: addProduct
      x-gatehouse-tenant: account
      parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Product"}, example: {name: zip, account: x}}}}
      responses: {"201": {description: The product., content: {application/json: {schema: {$ref: "#/components/schemas/Product"}}}}, "422": {description: The key came with another body.}}
  /products/{sku}:
    parameters: [{name: sku, in: path, required: true, schema: {type: string, pattern: "^sku-[0-9]+$"}}]
    get:
      operationId: getProduct
      x-gatehouse-tenant: account
      responses:
        "200": {description: The product., headers: {ETag: {schema: {type: string}}}, content: {application/json: {schema: {$ref: "#/components/schemas/Product"}}}}
    put:
      operationId: changeProduct
      x-gatehouse-tenant: account
      parameters: [{name: If-Match, in: header, required: true, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Product"}, example: {name: zap, account: x, sku: sku-1, tags: [new]}}}}
      responses: {"204": {description: It is changed.}}
  /products/{sku}/parts:
    get:
      operationId: listParts
      x-gatehouse-tenant: request
      parameters: [{name: sku, in: path, required: true, schema: {type: string, pattern: "^sku-[0-9]+$"}}]
      responses: {"200": {description: Parts., content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Part"}}}}}}
  /products/{sku}/parts/{part}:
    get:
      operationId: getPart
      x-gatehouse-tenant: request
      parameters:
        - {name: sku, in: path, required: true, schema: {type: string, pattern: "^sku-[0-9]+$"}}
        - {name: part, in: path, required: true, schema: {type: string}}
      responses: {"200": {description: A part., content: {application/json: {schema: {$ref: "#/components/schemas/Part"}}}}}
  /makers: # which only what is below them can be asked for, by their codes
    get:
      operationId: listMakers
      x-gatehouse-tenant: request
      responses: {"200": {description: Makers., content: {application/json: {schema: {type: array, items: {type: object, required: [id, code], properties: {id: {type: integer}, code: {type: string}}}}}}}}
  /makers/{code}/sheet:
    get:
      operationId: getSheet
      x-gatehouse-tenant: request
      parameters: [{name: code, in: path, required: true, schema: {type: string, pattern: "^m-[0-9]+$"}}]
      responses: {"200": {description: A sheet., content: {application/json: {schema: {type: object, required: [text], properties: {text: {type: string}}}}}}}
  /days/{day}:
    get:
      operationId: getDay
      x-gatehouse-tenant: request
      parameters: [{name: day, in: path, required: true, schema: {type: string, format: date}, example: "2027-01-31"}]
      responses: {"200": {description: A day., content: {application/json: {schema: {type: object, properties: {day: {type: string, format: date}}}}}}}
components:
  schemas:
    Part: {type: object, required: [id], properties: {id: {type: string}, sku: {type: string}}} # its own
    Product:
      type: object
      required: [name, account]
      properties: {id: {type: integer, readOnly: true}, sku: {type: string}, name: {type: string}, account: {type: string}, active: {type: boolean}, "@type": {type: string}, password: {type: string, writeOnly: true}, tags: {type: array, items: {type: string}}, prices: {$ref: "#/components/schemas/Prices"}}
    Prices: {type: object, additionalProperties: {type: object, properties: {amount: {type: string}}}}
`

// phone is a value of the service that is the name of a member.
const phone = "p731199990007"

type product struct {
	ID      int    `json:"id"`
	SKU     string `json:"sku"`
	Name    string `json:"name"`
	Account string `json:"account"`
	Active  bool   `json:"active,omitempty"`
	Type    any    `json:"@type,omitempty"`
	Prices  any    `json:"prices,omitempty"`
	Tags    []any  `json:"tags,omitempty"`
	Secret  string `json:"password,omitempty"`
	Parts   any    `json:"parts,omitempty"`
	version int
	sent    string // the name with which it was created
}

// stock is a service of the document, with 25 products of each business.
func stock(way string) http.Handler {
	var mu sync.Mutex
	var all []*product
	way, foreign := strings.CutSuffix(way, " foreign") // each business may change all products
	created, sent, perBusiness := map[string]*product{}, 0, 25
	if way == "many" {
		perBusiness = 60
	}
	add := func(account, name string, active bool) *product {
		n := 500 + len(all)
		p := &product{ID: n, SKU: fmt.Sprint("sku-", 2*n), Name: name, Account: account, Active: active, version: 1}
		if way == "names" {
			p.Type, p.Prices = 7, map[string]any{phone: map[string]any{"amount": 7, phone: 7}}
		}
		if way == "natural" {
			p.Parts = []any{map[string]string{"sku": "sku-1"}}
		}
		if way == "writeOnly" {
			p.Secret = phone
		}
		all = append(all, p)
		return p
	}
	for i := range 2 * perBusiness {
		add(fmt.Sprint(1001+i%2), fmt.Sprintf("item %03d", i), i%3 == 0)
	}
	mux := http.NewServeMux()
	handle := func(pattern string, serve func(r *http.Request, account string, p *product) (int, any, http.Header)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			account := r.Header.Get("X-Business-Id")
			i := slices.IndexFunc(all, func(p *product) bool {
				return p.SKU == r.PathValue("sku") && (p.Account == account || foreign && r.Method == http.MethodPut)
			})
			status, body, header := http.StatusNotFound, any(nil), http.Header(nil)
			switch {
			case account != "1001" && account != "1002":
				status = http.StatusForbidden
			case i >= 0:
				status, body, header = serve(r, account, all[i])
			case r.PathValue("sku") == "":
				status, body, header = serve(r, account, nil)
			}
			maps.Copy(w.Header(), header)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
			if w.WriteHeader(status); body != nil {
				_ = json.NewEncoder(w).Encode(body)
			}
		})
	}
	handle("GET /products", func(r *http.Request, account string, _ *product) (int, any, http.Header) {
		if maker := r.FormValue("maker_id"); maker != "" {
			return 422, nil, nil
		}
		own := []*product{}
		for _, p := range all {
			if active := r.FormValue("active"); p.Account == account && (active == "" || active == strconv.FormatBool(p.Active)) {
				own = append(own, p)
			}
		}
		slices.SortStableFunc(own, func(a, b *product) int { return cmp.Compare(a.Name, b.Name) })
		page, _ := strconv.Atoi(r.FormValue("page"))
		size, _ := strconv.Atoi(r.FormValue("size"))
		from := min(page*size, len(own))
		return 200, map[string]any{"products": own[from:min(from+size, len(own))], "page": page}, nil
	})
	handle("POST /products", func(r *http.Request, account string, _ *product) (int, any, http.Header) {
		var made product
		_ = json.NewDecoder(r.Body).Decode(&made)
		key := account + r.Header.Get("Idempotency-Key")
		if made.Account != account {
			return 403, nil, nil
		}
		if way == "key" && created[map[string]string{"1001": "1002", "1002": "1001"}[account]+r.Header.Get("Idempotency-Key")] != nil {
			return 409, nil, nil
		}
		switch {
		case way == "upsert":
			created[key] = all[slices.IndexFunc(all, func(p *product) bool { return p.Account == account })]
		case created[key] == nil:
			created[key] = add(account, made.Name, false)
			created[key].sent = made.Name
		case created[key].sent != made.Name:
			return 422, nil, nil
		}
		return 201, created[key], nil
	})
	etag := func(p *product) string {
		sent++
		switch way {
		case "weak":
			return `W/"` + strconv.Itoa(p.version) + `"`
		case "one etag":
			return `"1"`
		case "unstable":
			return strconv.Quote(strconv.Itoa(sent))
		}
		return strconv.Quote(strconv.Itoa(p.version))
	}
	handle("GET /products/{sku}", func(_ *http.Request, _ string, p *product) (int, any, http.Header) {
		return 200, p, http.Header{"Etag": {etag(p)}}
	})
	handle("PUT /products/{sku}", func(r *http.Request, account string, p *product) (int, any, http.Header) {
		var changed product
		before := p.Tags
		_ = json.NewDecoder(r.Body).Decode(&changed)
		switch {
		case way == "upsert":
			panic("conform changes a record that it did not create")
		case !foreign && r.Header.Get("If-Match") != etag(p) || way == "another version":
			return 412, nil, nil
		case changed.SKU != p.SKU || changed.Account != account:
			return 400, nil, nil
		}
		p.Name = changed.Name
		p.Tags = changed.Tags
		switch p.version++; way {
		case "appends":
			p.Tags = slices.Concat(before, changed.Tags)
		case "inserts":
			add(account, p.Name, false)
		}
		return 204, nil, nil
	})
	part := func(p *product) map[string]string { return map[string]string{"id": p.SKU + "-part", "sku": "sku-7"} }
	handle("GET /products/{sku}/parts", func(_ *http.Request, _ string, p *product) (int, any, http.Header) {
		if way == "no parts" {
			return 200, []any{}, nil
		}
		return 200, []any{part(p)}, nil
	})
	handle("GET /products/{sku}/parts/{part}", func(r *http.Request, _ string, p *product) (int, any, http.Header) {
		for _, other := range all {
			if found := part(other); found["id"] == r.PathValue("part") && (other == p || way == "part") {
				return 200, found, nil
			}
		}
		return 404, nil, nil
	})
	handle("GET /makers", func(_ *http.Request, account string, _ *product) (int, any, http.Header) {
		return 200, []any{map[string]any{"id": 1, "code": "m-" + account}}, nil
	})
	handle("GET /makers/{code}/sheet", func(r *http.Request, account string, _ *product) (int, any, http.Header) {
		if r.PathValue("code") != "m-"+account {
			return 404, nil, nil
		}
		return 200, map[string]string{"text": "of " + account}, nil
	})
	handle("GET /days/{day}", func(r *http.Request, _ string, _ *product) (int, any, http.Header) {
		return 200, map[string]string{"day": r.PathValue("day")}, nil
	})
	return mux
}

func TestConformKnowsNaturalKeysAndVersions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ way, want string }{
		"a usual service":                                {},
		"a new record that is on the second page":        {way: "many"},
		"a documented name of any form":                  {way: "names", want: "/products/0/@type\n  expected a string\n  got      a whole number of 1 digits"},
		"a key of a map, which may be a value":           {way: "names", want: "/products/0/prices/*/amount\n  expected a string\n  got      another value, or none"},
		"a creation that returns an existing record":     {way: "upsert", want: "skipped addProduct: its response has a record that existed before"},
		"a weak ETag":                                    {way: "weak", want: "hint weak-etag: getProduct: GET /products/{sku} as A"},
		"another ETag in each response":                  {way: "unstable", want: "expected the same ETag while the record stays the same"},
		"a weak ETag, and a PUT by any business":         {way: "weak foreign", want: "fault isolation: changeProduct"},
		"another ETag, and a PUT by any business":        {way: "unstable foreign", want: "fault isolation: changeProduct"},
		"a current ETag that is refused":                 {way: "another version", want: "expected the change, for an If-Match with the current version"},
		"409 for an Idempotency-Key of another business": {way: "key", want: "fault isolation: addProduct: POST /products as B\n  expected a record of B, although A sent the same Idempotency-Key\n  got      status 409"},
		"empty lists below records":                      {way: "no parts", want: "skipped listParts: A has no records in it"},
		"a writeOnly member in responses":                {way: "writeOnly", want: "hint undocumented: listProducts: GET /products as A\n  at       /products/0/password\n  expected no member that is writeOnly"},
		"an ETag that stays when the record is changed":  {way: "one etag", want: "fault conditional: getProduct: GET /products/{sku} as A\n  expected another ETag"},
		"a PUT that appends":                             {way: "appends", want: "fault idempotency: getProduct: GET /products/{sku} as A\n  at       /tags"},
		"a PUT that adds a record":                       {way: "inserts", want: "fault idempotency: listProducts"},
		"another business's part below one's own SKUs":   {way: "part", want: "fault isolation: getPart: GET /products/{sku}/parts/{part} as B"},
		"records without an ID, with records inside":     {way: "natural"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := stockDocument
			if c.way == "natural" {
				text = strings.Replace(text, `format: date}, example`, `pattern: "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}, example`, 1)
				text = strings.Replace(text, "{id: {type: integer, readOnly: true}, sku", "{parts: {type: array, items: {type: object, properties: {sku: {type: string}}}}, sku", 1)
			}
			d, err := definition.Load(definition.File{Name: "stock.yaml", Text: []byte(text)}, definition.Options{})
			require.NoError(t, err)
			for seed := range uint64(10) {
				service := httptest.NewServer(stock(c.way))
				report, err := conform.Run(t.Context(), conform.Options{Definition: d, URL: service.URL, A: "1001", B: "1002", Write: true, Seed: seed})
				service.Close()
				require.NoError(t, err)
				var printed strings.Builder
				require.NoError(t, report.Print(&printed))
				require.Contains(t, printed.String(), c.want)
				require.NotContains(t, printed.String(), phone)
				require.Equal(t, !strings.Contains(c.want, "expected") && !strings.Contains(c.want, "fault ") || strings.HasPrefix(c.want, "hint"), len(report.Faults) == 0, printed.String())
				if c.want == "" {
					require.NotContains(t, printed.String(), "Product: no ") // all writes are tried
				}
			}
		})
	}
}
