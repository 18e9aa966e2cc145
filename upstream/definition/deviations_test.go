package definition_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

const observed = `
openapi: 3.1.0
info: {title: x, version: "1"}
servers: [{url: /v1}]
x-gatehouse-tenant: account
paths:
  /orders:
    get:
      operationId: listOrders
      parameters: [{name: limit, in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 3}}, {name: page, in: query, schema: {type: integer, default: 1}}]
      responses:
        "200":
          description: ""
          x-gatehouse-records: {in: orders, order: [created], at_most: limit}
          x-gatehouse-page: [{request: page, response: /page}]
          content: {application/json: {schema: {type: object, required: [orders], properties: {orders: {type: array, maxItems: 100, items: {$ref: "#/components/schemas/Order"}}, page: {type: integer}}}}}
  /orders/{id}:
    get:
      operationId: getOrder
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      responses:
        "200":
          description: ""
          x-gatehouse-records: {is: {id: id}}
          content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}
  /orders/{order}/notes:
    get:
      operationId: listNotes
      parameters: [{name: order, in: path, required: true, schema: {type: string}}]
      responses:
        "200":
          description: ""
          x-gatehouse-records: {in: notes, is: {order: order}}
          content: {application/json: {schema: {type: object, required: [notes], properties: {notes: {type: array, maxItems: 9, items: {type: object, properties: {order: {type: string}, account: {type: string}}}}}}}}
components:
  schemas:
    Order:
      type: object
      required: [id, account, status]
      properties:
        id: {type: string}
        account: {type: string}
        status: {enum: [open, paid]}
        created: {type: [string, "null"], format: utc-date-time}
        code: {type: string, pattern: "^[A-Z]+$", maxLength: 5}
        count: {type: integer, minimum: 1}
        note: {type: string}
        "@type": {type: string}
        "LONG": {type: string}
        secret: {type: string, x-gatehouse-internal: true}
        password: {type: string, writeOnly: true}
        tags: {type: array, maxItems: 2, uniqueItems: true, items: {type: string}}
        buyer: {type: object, required: [name], properties: {account: {type: string}, name: {type: string}}}
        lines: {type: array, maxItems: 9, items: {type: object, properties: {account: {type: string}, sku: {type: string}}}}
        address: {type: object, minProperties: 1, properties: {street: {type: string}, zip: {type: string}}}
        labels: {type: object, additionalProperties: {type: string, maxLength: 3}}
        payment: {oneOf: [{type: object, required: [card], properties: {card: {type: string}}}, {type: object, required: [iban], properties: {iban: {type: string}}}]}
`

var long = strings.Repeat("long_", 20)

// observedAnswer checks a response with a step of enforcement.
func observedAnswer(t *testing.T, step upstream.Enforcement, target, body string) (string, []upstream.Deviation, error) {
	t.Helper()
	text := strings.Replace(observed, "LONG", long, 1)
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(text)}, definition.Options{Enforce: step})
	require.NoError(t, err)
	op, q := operationOf(t, d, http.MethodGet, target)
	var out bytes.Buffer
	report, err := new(upstream.Contract).Check(&out, op, &op.Responses[0], q, "a", []byte(body))
	return out.String(), report.Deviations, err
}

func TestDeviationsPassAndAreListed(t *testing.T) {
	t.Parallel()
	const all, members, tenant = upstream.EnforceAll, upstream.EnforceMembers, upstream.EnforceTenant
	for name, c := range map[string]struct {
		member string
		from   upstream.Enforcement // the first step with which it passes
		want   upstream.Deviation
		out    string // default: as the member
	}{
		"a value that is not possible":    {`"status":"new"`, members, upstream.Deviation{Pointer: "/status", Rule: "enum"}, ""},
		"a wrong format":                  {`"created":"yesterday"`, members, upstream.Deviation{Pointer: "/created", Rule: "format"}, ""},
		"a wrong pattern":                 {`"code":"abc"`, members, upstream.Deviation{Pointer: "/code", Rule: "pattern"}, ""},
		"a text that is too long":         {`"code":"ABCDEF"`, members, upstream.Deviation{Pointer: "/code", Rule: "length"}, ""},
		"a number that is too small":      {`"count":0`, members, upstream.Deviation{Pointer: "/count", Rule: "bounds"}, ""},
		"too many items":                  {`"tags":["a","b","c"]`, members, upstream.Deviation{Pointer: "/tags", Rule: "items"}, ""},
		"items that are the same":         {`"tags":["a","a"]`, members, upstream.Deviation{Pointer: "/tags", Rule: "items"}, ""},
		"too few members":                 {`"address":{}`, members, upstream.Deviation{Pointer: "/address", Rule: "members"}, ""},
		"values of a map":                 {`"labels":{"k":"long","l":"longer","m":"x"}`, members, upstream.Deviation{Pointer: "/labels/*", Rule: "length", Count: 2}, ""},
		"another type":                    {`"note":1`, tenant, upstream.Deviation{Pointer: "/note", Rule: "type"}, ""},
		"an object instead of a text":     {`"note":{"a":[1]}`, tenant, upstream.Deviation{Pointer: "/note", Rule: "type"}, ""},
		"a text instead of an object":     {`"address":"x"`, tenant, upstream.Deviation{Pointer: "/address", Rule: "type"}, ""},
		"a list instead of an object":     {`"address":["x"]`, tenant, upstream.Deviation{Pointer: "/address", Rule: "type"}, ""},
		"a text instead of a record":      {`"buyer":"x"`, tenant, upstream.Deviation{Pointer: "/buyer", Rule: "type"}, ""},
		"a fraction":                      {`"count":1.5`, tenant, upstream.Deviation{Pointer: "/count", Rule: "type"}, ""},
		"null":                            {`"note":null`, tenant, upstream.Deviation{Pointer: "/note", Rule: "type"}, ""},
		"types of items":                  {`"tags":[1,2]`, tenant, upstream.Deviation{Pointer: "/tags/*", Rule: "type", Count: 2}, ""},
		"a missing member of an object":   {`"buyer":{"account":"a"}`, tenant, upstream.Deviation{Pointer: "/buyer/name", Rule: "missing"}, ""},
		"no alternative":                  {`"payment":{"cash":true}`, tenant, upstream.Deviation{Pointer: "/payment", Rule: "choice"}, ""},
		"an undocumented member":          {`"extra":{"a":1}`, tenant, upstream.Deviation{Pointer: "/extra", Rule: "undocumented"}, ""},
		"a documented name of any form":   {`"@type":1`, tenant, upstream.Deviation{Pointer: "/@type", Rule: "type"}, ""},
		"a long documented name":          {`"` + long + `":1`, tenant, upstream.Deviation{Pointer: "/" + long, Rule: "type"}, ""},
		"one whose name could be a value": {`"x@y.z":1`, tenant, upstream.Deviation{Pointer: "/*", Rule: "undocumented"}, ""},
		"names that could be IDs":         {`"731199990007":1,"a1b2c3d4":1,"A-1":1`, tenant, upstream.Deviation{Pointer: "/*", Rule: "undocumented", Count: 3}, ""},
		"one in an object":                {`"address":{"zip":"1","extra":1}`, tenant, upstream.Deviation{Pointer: "/address/extra", Rule: "undocumented"}, ""},
		"one in an alternative":           {`"payment":{"card":"1","extra":1}`, tenant, upstream.Deviation{Pointer: "/payment/extra", Rule: "undocumented"}, ""},
		"internal members do not leave":   {`"secret":"s","SECRET":2,"password":{"a":1}`, tenant, upstream.Deviation{}, `-`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record := `{"id":"7","account":"a",` + c.member
			if !bytes.Contains([]byte(c.member), []byte(`"status"`)) {
				record = `{"id":"7","account":"a","status":"open",` + c.member
			}
			for _, step := range []upstream.Enforcement{all, members, tenant} {
				out, deviations, err := observedAnswer(t, step, "/v1/orders/7", record+"}")
				undocumented := c.want.Rule == "undocumented" || c.out != ""
				switch {
				case c.out != "":
					if step == tenant {
						require.NoError(t, err)
						require.Empty(t, deviations)
						require.Equal(t, `{"id":"7","account":"a","status":"open"}`, out)
					}
				case step < c.from && !undocumented:
					require.ErrorIs(t, err, upstream.ErrContractViolation, step)
				case step < c.from:
					require.NoError(t, err)
					require.Empty(t, deviations)
					require.NotContains(t, out, "extra")
				default:
					require.NoError(t, err, step)
					want := c.want
					want.Count = max(want.Count, 1)
					require.Equal(t, []upstream.Deviation{want}, deviations)
					require.JSONEq(t, record+"}", out)
				}
			}
			if c.out != "" {
				return
			}
			out, deviations, err := observedAnswer(t, tenant, "/v1/orders", `{"orders":[`+record+`},`+record+`}],"page":1}`)
			require.NoError(t, err)
			require.Equal(t, []upstream.Deviation{{Pointer: "/orders/*" + c.want.Pointer, Rule: c.want.Rule, Count: 2 * max(c.want.Count, 1)}}, deviations)
			require.Contains(t, out, record)
		})
	}
	for name, c := range map[string]struct {
		target, body string
		want         upstream.Deviation
	}{
		"a missing member":   {"/v1/orders/7", `{"id":"7","account":"a"}`, upstream.Deviation{Pointer: "/status", Rule: "missing", Count: 1}},
		"another record":     {"/v1/orders/7", `{"id":"8","account":"a","status":"open"}`, upstream.Deviation{Pointer: "/id", Rule: "record", Count: 1}},
		"one in a list":      {"/v1/orders/7/notes", `{"notes":[{"order":"7","account":"a"},{"order":"8","account":"a"}]}`, upstream.Deviation{Pointer: "/notes/*/order", Rule: "record", Count: 1}},
		"too many records":   {"/v1/orders?limit=1", `{"orders":[{"id":"7","account":"a","status":"open"},{"id":"8","account":"a","status":"open"},{"id":"9","account":"a","status":"open"}]}`, upstream.Deviation{Pointer: "/orders", Rule: "records", Count: 1}},
		"another page":       {"/v1/orders?page=2", `{"orders":[],"page":1}`, upstream.Deviation{Pointer: "/page", Rule: "page", Count: 1}},
		"an envelope's type": {"/v1/orders?page=2", `{"orders":[],"page":"2"}`, upstream.Deviation{Pointer: "/page", Rule: "type", Count: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := observedAnswer(t, all, c.target, c.body)
			require.ErrorIs(t, err, upstream.ErrContractViolation)
			out, deviations, err := observedAnswer(t, tenant, c.target, c.body)
			require.NoError(t, err)
			require.Contains(t, deviations, c.want)
			require.Equal(t, c.body, out)
		})
	}
}

func TestWhatAlwaysHoldsIsEnforced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		target, body string
		want         error
	}{
		"another business":                          {"/v1/orders/7", `{"id":"7","account":"b","status":"open"}`, upstream.ErrCrossTenantRecord},
		"another business in an object":             {"/v1/orders/7", `{"id":"7","account":"a","status":"open","buyer":{"account":"b","name":"x"}}`, upstream.ErrCrossTenantRecord},
		"another business in an item":               {"/v1/orders/7", `{"id":"7","account":"a","status":"open","lines":[{"account":"b"}]}`, upstream.ErrCrossTenantRecord},
		"no business":                               {"/v1/orders/7", `{"id":"7","status":"open"}`, upstream.ErrContractViolation},
		"a business of another type":                {"/v1/orders/7", `{"id":"7","account":["a"],"status":"open"}`, upstream.ErrContractViolation},
		"a list where an object has a tenant":       {"/v1/orders/7", `{"id":"7","account":"a","status":"open","buyer":[{"account":"b","name":"x"}]}`, upstream.ErrContractViolation},
		"an object where a list has tenants":        {"/v1/orders/7", `{"id":"7","account":"a","status":"open","lines":{"account":"b"}}`, upstream.ErrContractViolation},
		"lists where an item has a tenant":          {"/v1/orders/7", `{"id":"7","account":"a","status":"open","lines":[[{"account":"b"}]]}`, upstream.ErrContractViolation},
		"a list instead of a record":                {"/v1/orders/7", `[{"id":"7","account":"b","status":"open"}]`, upstream.ErrContractViolation},
		"a text instead of a record":                {"/v1/orders/7", `"x"`, upstream.ErrContractViolation},
		"null instead of a record":                  {"/v1/orders/7", `null`, upstream.ErrContractViolation},
		"a record instead of a list":                {"/v1/orders", `{"orders":{"id":"7","account":"b","status":"open"}}`, upstream.ErrContractViolation},
		"records elsewhere":                         {"/v1/orders", `{"data":[{"id":"7","account":"b","status":"open"}]}`, upstream.ErrContractViolation},
		"records that are the response":             {"/v1/orders", `[{"id":"7","account":"b","status":"open"}]`, upstream.ErrContractViolation},
		"a text instead of a response":              {"/v1/orders", `"x"`, upstream.ErrContractViolation},
		"a record that is a text":                   {"/v1/orders", `{"orders":["x"]}`, upstream.ErrContractViolation},
		"a record that is a list":                   {"/v1/orders", `{"orders":[[{"id":"7","account":"b"}]]}`, upstream.ErrContractViolation},
		"a member twice":                            {"/v1/orders/7", `{"id":"7","account":"a","status":"open","note":1,"note":2}`, upstream.ErrContractViolation},
		"an undocumented member twice":              {"/v1/orders/7", `{"id":"7","account":"a","status":"open","x":1,"x":2}`, upstream.ErrContractViolation},
		"a member twice in an undocumented one":     {"/v1/orders/7", `{"id":"7","account":"a","status":"open","x":{"y":1,"y":2}}`, upstream.ErrContractViolation},
		"a member twice in one of another type":     {"/v1/orders/7", `{"id":"7","account":"a","status":"open","note":{"y":1,"y":2}}`, upstream.ErrContractViolation},
		"something that is not JSON":                {"/v1/orders/7", `{"id":"7","account":"a","status":"open","note":01}`, upstream.ErrContractViolation},
		"the tenant in another case, with another":  {"/v1/orders/7", `{"id":"7","account":"b","Account":"a","status":"open"}`, upstream.ErrCrossTenantRecord},
		"more nesting than is possible":             {"/v1/orders/7", `{"id":"7","account":"a","status":"open","x":` + deep(70) + `}`, upstream.ErrContractViolation},
		"more nesting instead of a text":            {"/v1/orders/7", `{"id":"7","account":"a","status":"open","note":` + deep(70) + `}`, upstream.ErrContractViolation},
		"more undocumented members than are let by": {"/v1/orders/7", `{"id":"7","account":"a","status":"open","x":` + wide(1001) + `}`, upstream.ErrContractViolation},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, step := range []upstream.Enforcement{upstream.EnforceAll, upstream.EnforceMembers, upstream.EnforceTenant} {
				_, _, err := observedAnswer(t, step, c.target, c.body)
				if step == upstream.EnforceTenant || c.want == upstream.ErrCrossTenantRecord { //nolint:errorlint // a constant of the test
					require.ErrorIs(t, err, c.want, step)
				}
			}
		})
	}
}

// Without x-gatehouse-records, the tenant may be anywhere in a response. Other deviations pass, but none that hides whose the response is.
func TestTenantIsProvedAtEveryStep(t *testing.T) {
	t.Parallel()
	const (
		customer = `{type: object, properties: {account: {type: string}, name: {type: string}}}`
		other    = `"from":{"account":"b"}`
	)
	envelope := `{type: object, properties: {page: {type: integer}, data: {type: array, items: ` + customer + `}}}`
	order := `{type: object, required: [customer], properties: {id: {type: string}, customer: ` + customer + `}}`
	optional := strings.Replace(order, "required: [customer], ", "", 1)
	either := `{type: object, required: [by], properties: {by: {oneOf: [` + customer + `, {type: array, items: ` + customer + `}]}}}`
	wrapped := `{type: object, required: [order], properties: {order: ` + order + `}}`
	own := `{type: object, properties: {account: {type: string}, more: {type: object, required: [by], properties: {by: ` + customer + `}}}}`
	for name, c := range map[string]struct {
		schema, body string
		passes       bool
	}{
		"the object is missing":                       {order, `{"id":"7"}`, false},
		"the object is null":                          {order, `{"id":"7","customer":null}`, false},
		"the object is a text":                        {order, `{"id":"7","customer":"c"}`, false},
		"the object is elsewhere":                     {order, `{"id":"7",` + other + `}`, false},
		"the object is there":                         {order, `{"id":7,"customer":{"account":"a"},` + other + `}`, true},
		"the object around it is missing":             {wrapped, `{` + other + `}`, false},
		"the object in another one is missing":        {wrapped, `{"order":{` + other + `}}`, false},
		"the object may be missing":                   {optional, `{"id":"7"}`, true},
		"another one instead of it":                   {optional, `{"id":"7",` + other + `}`, false},
		"another one instead of it and of a text":     {optional, `{"id":{"account":"b"}}`, false},
		"the list is missing":                         {envelope, `{}`, true},
		"the list is empty":                           {envelope, `{"page":"1","data":[],"total":0}`, true},
		"the list is a text":                          {envelope, `{"data":"x"}`, false},
		"the list is elsewhere":                       {envelope, `{"items":[{"account":"b"}]}`, false},
		"the list is null, and elsewhere":             {envelope, `{"data":null,"items":[{"account":"b"}]}`, false},
		"an item is a text":                           {envelope, `{"data":["x"]}`, false},
		"an item is null":                             {envelope, `{"data":[null]}`, false},
		"a text instead of a response":                {envelope, `"x"`, false},
		"null instead of a response":                  {order, `null`, false},
		"a text instead of alternatives":              {either, `{"by":"x"}`, false},
		"no alternative":                              {either, `{}`, false},
		"an alternative":                              {either, `{"by":[{"account":"a","name":1}]}`, true},
		"an object in one that has the tenant itself": {own, `{"account":"a","more":{"x":1}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			document := func(tenant, status string) string {
				return `{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: account, paths: {/a: {get: {` + tenant +
					`responses: {"200": {content: {application/json: {schema: ` + customer + `}}}, "` + status + `": {content: {application/json: {schema: ` + c.schema + `}}}}}}}}`
			}
			check := func(document string, status int, contract *upstream.Contract) error {
				d, err := load(document, definition.Options{Enforce: upstream.EnforceTenant})
				require.NoError(t, err)
				op := d.API.Operations()[0]
				res, err := op.CheckHeader(status, http.Header{"Content-Type": {"application/json"}}, false)
				require.NoError(t, err)
				_, err = contract.Check(new(bytes.Buffer), op, res, upstream.Query{}, "a", []byte(c.body))
				return err
			}
			if err := check(document("", "201"), 201, new(upstream.Contract)); c.passes {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, upstream.ErrContractViolation)
			}
			require.NoError(t, check(document("", "409"), 409, new(upstream.Contract)), "an error is nobody's")
			require.NoError(t, check(document("", "201"), 201, &upstream.Contract{AllowMissingTenant: true}))
			require.NoError(t, check(document("x-gatehouse-tenant: request, ", "201"), 201, new(upstream.Contract)))
		})
	}
}

// Its team knows the service's names.
func TestDeviationsNameWhereTheServiceHasAMember(t *testing.T) {
	t.Parallel()
	d, err := load(legacy, definition.Options{Enforce: upstream.EnforceTenant})
	require.NoError(t, err)
	op, q := operationOf(t, d, http.MethodGet, "/v1/invoices")
	report, err := new(upstream.Contract).Check(new(bytes.Buffer), op, &op.Responses[0], q, "17",
		[]byte(`{"data":{"items":[{"invoice_no":1,"cust":{"nm":1}},{"st":"O","cust":{"contact":{"mail":"m"}},"note":1}]},"meta":{"total":1}}`))
	require.NoError(t, err)
	require.ElementsMatch(t, []upstream.Deviation{
		{Pointer: "/invoices/*/status", Rule: "missing", Count: 1, From: "st"},
		{Pointer: "/invoices/*/customer/name", Rule: "type", Count: 1, From: "/cust/nm"},
		{Pointer: "/invoices/*/id", Rule: "missing", Count: 1, From: "invoice_no"},
		{Pointer: "/invoices/*/customer/name", Rule: "missing", Count: 1, From: "/cust/nm"},
		{Pointer: "/invoices/*/note", Rule: "type", Count: 1, From: "/data/items"},
	}, report.Deviations)
}

func TestDeviationsHaveABound(t *testing.T) {
	t.Parallel()
	_, deviations, err := observedAnswer(t, upstream.EnforceTenant, "/v1/orders/7", `{"id":"7","account":"a","status":"open",`+wide(500)[1:])
	require.NoError(t, err)
	require.Len(t, deviations, 50)
}

// deep returns lists in each other, and wide an object with many members.
func deep(n int) string {
	return string(bytes.Repeat([]byte("["), n)) + string(bytes.Repeat([]byte("]"), n))
}

func wide(n int) string {
	text := []byte("{")
	for i := range n {
		text = append(text, `"m`...)
		for j := i; ; j /= 26 {
			text = append(text, byte('a'+j%26))
			if j < 26 {
				break
			}
		}
		text = append(text, `":1,`...)
	}
	return string(text[:len(text)-1]) + "}"
}
