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

// legacy is a service that calls everything by another name than the definition.
const legacy = `
openapi: 3.1.0
info: {title: x, version: "1"}
servers: [{url: /v1}]
x-gatehouse-tenant: request
paths:
  /invoices:
    get:
      operationId: listInvoices
      x-gatehouse-upstream: {path: "/v2/accounts/{business}/invoices", query: {offset: "{page.offset}", limit: "{per_page}"}}
      parameters:
        - {name: page, in: query, schema: {type: integer, minimum: 1, default: 1}}
        - {name: per_page, in: query, schema: {type: integer, minimum: 1, maximum: 100, default: 25}}
      responses:
        "200":
          description: ""
          x-gatehouse-records: {in: invoices, from: /data/items, order: [created_at], at_most: per_page}
          x-gatehouse-page: [{request: page, response: /pagination/current_page}]
          content: {application/json: {schema: {$ref: "#/components/schemas/InvoicePage"}}}
    post:
      operationId: createInvoice
      x-gatehouse-upstream: {path: "/v2/accounts/{business}/invoices"}
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Invoice"}}, application/merge-patch+json: {schema: {$ref: "#/components/schemas/Invoice"}}}}
      responses:
        "201": {description: "", x-gatehouse-records: {from: /data}, content: {application/json: {schema: {$ref: "#/components/schemas/Invoice"}}}}
  /invoices/{id}:
    get:
      operationId: getInvoice
      x-gatehouse-upstream: {path: "/v2/accounts/{business}/invoices/{id}.json"}
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      responses:
        "200": {description: "", x-gatehouse-records: {from: /data, is: {id: id}}, content: {application/json: {schema: {$ref: "#/components/schemas/Invoice"}}}}
components:
  schemas:
    InvoicePage:
      type: object
      required: [invoices, pagination]
      properties:
        invoices: {type: array, maxItems: 100, items: {$ref: "#/components/schemas/Invoice"}}
        pagination: {$ref: "#/components/schemas/Pagination"}
    Pagination:
      type: object
      required: [current_page, next_cursor]
      properties:
        current_page: {type: integer, x-gatehouse-from: {parameter: page}}
        total_items: {type: integer, x-gatehouse-from: /meta/total}
        total_pages: {type: integer, x-gatehouse-from: {pages: [/meta/total, per_page]}}
        next_cursor: {type: [string, "null"], x-gatehouse-from: /meta/next}
    Invoice:
      type: object
      required: [id, customer, status]
      properties:
        id: {type: string, x-gatehouse-from: {member: invoice_no, as: string}}
        number: {type: integer, readOnly: true, x-gatehouse-from: {member: serial, as: number}}
        customer:
          type: object
          required: [name]
          properties:
            name: {type: string, maxLength: 20, x-gatehouse-from: /cust/nm}
            email: {type: [string, "null"], x-gatehouse-from: /cust/contact/mail}
        total_amount: {type: string, format: decimal, x-gatehouse-from: {member: total_cents, as: cents}}
        discount: {type: number, x-gatehouse-from: {member: disc_cents, as: cents}}
        created_at: {type: string, format: utc-date-time, x-gatehouse-from: {member: created, as: unix}}
        ends_at: {type: string, format: date-time, x-gatehouse-from: {member: ends, as: unix}}
        due: {type: string, format: date, x-gatehouse-from: {member: due_ms, as: unix-ms}}
        status: {enum: [open, paid, unknown], x-gatehouse-from: {member: st, values: {O: open, P: paid, 9: unknown}}}
        active: {type: boolean, x-gatehouse-from: {member: act, values: {"Y": true, "N": false}}}
        locked: {enum: ["yes", "no"], x-gatehouse-from: {member: lck, values: {true: "yes", false: "no"}}}
        level: {enum: [low, high, "true"], x-gatehouse-from: {member: lvl, values: {"1": low, 2: high, "true": "true"}}}
        pdf_url: {type: [string, "null"], readOnly: true, x-gatehouse-from: {member: pdf, as: url}}
        card: {type: string, writeOnly: true, x-gatehouse-from: cc_no}
        lines:
          type: array
          maxItems: 10
          items: {type: object, required: [sku], properties: {sku: {type: string, x-gatehouse-from: /product/code}, count: {type: integer, x-gatehouse-from: qty}}}
        note: {type: string}
`

func loadLegacy(t *testing.T) *definition.Definition {
	t.Helper()
	d, err := definition.Load(definition.File{Name: "legacy.yaml", Text: []byte(legacy)}, definition.Options{})
	require.NoError(t, err)
	return d
}

func operationOf(t *testing.T, d *definition.Definition, method, target string) (*upstream.Operation, upstream.Query) {
	t.Helper()
	m, ok := d.API.Match(target)
	require.True(t, ok)
	op := m.Path.Operation(method)
	q, err := op.CleanQuery(m)
	require.NoError(t, err)
	return op, q
}

func legacyAnswer(t *testing.T, d *definition.Definition, target, body string) (string, error) {
	t.Helper()
	op, q := operationOf(t, d, http.MethodGet, target)
	var out bytes.Buffer
	_, err := (&upstream.Contract{BasePath: "/gw"}).Check(&out, op, &op.Responses[0], q, "17", []byte(body))
	return out.String(), err
}

const legacyInvoice = `{"invoice_no":7,"serial":"0","cust":{"nm":"A","contact":{"mail":"a@b"}},"total_cents":-1205,"disc_cents":5,"created":1700000000,"due_ms":1700000000123,` +
	`"st":"O","act":"Y","pdf":"https://internal:8443/v2/accounts/17/invoices/7.json","cc_no":"4111","lines":[{"product":{"code":"x","secret":1},"qty":2}],"internal":{"a":1}}`

const publishedInvoice = `{"id":"7","number":0,"customer":{"name":"A","email":"a@b"},"total_amount":"-12.05","discount":0.05,"created_at":"2023-11-14T22:13:20Z",` +
	`"due":"2023-11-14","status":"open","active":true,"pdf_url":"/gw/v1/invoices/7","lines":[{"sku":"x","count":2}]}`

func TestMembersComeFromWhereTheDataServiceHasThem(t *testing.T) {
	t.Parallel()
	d := loadLegacy(t)
	for name, c := range map[string]struct{ target, body, want string }{
		"a record": {"/v1/invoices/7", `{"ok":true,"data":` + legacyInvoice + `}`, publishedInvoice},
		"a list, its envelope and its order": {
			"/v1/invoices?page=2&per_page=2",
			`{"meta":{"total":5,"next":"abc"},"data":{"took":3,"items":[{"invoice_no":1,"cust":{"nm":"B"},"st":9,"created":1},` + legacyInvoice + `]}}`,
			`{"invoices":[` + publishedInvoice + `,{"id":"1","customer":{"name":"B"},"created_at":"1970-01-01T00:00:01Z","status":"unknown"}],` +
				`"pagination":{"current_page":2,"total_items":5,"total_pages":3,"next_cursor":"abc"}}`,
		},
		"what is missing is left out": {
			"/v1/invoices", `{"data":{"items":[]}}`, `{"invoices":[],"pagination":{"current_page":1,"next_cursor":null}}`,
		},
		"an envelope that is null":        {"/v1/invoices", `{"data":{"items":[]},"meta":null}`, `{"invoices":[],"pagination":{"current_page":1,"next_cursor":null}}`},
		"values as texts":                 {"/v1/invoices/7", `{"data":{"invoice_no":"7","cust":{"nm":"A"},"total_cents":"1","created":"0","st":"9"}}`, `{"id":"7","customer":{"name":"A"},"total_amount":"0.01","created_at":"1970-01-01T00:00:00Z","status":"unknown"}`},
		"a URL of another service":        {"/v1/invoices/7", `{"data":{"invoice_no":"7","cust":{"nm":"A"},"st":"O","pdf":"https://internal/admin"}}`, `{"id":"7","customer":{"name":"A"},"status":"open","pdf_url":null}`},
		"a URL of another business":       {"/v1/invoices/7", `{"data":{"invoice_no":"7","cust":{"nm":"A"},"st":"O","pdf":"/v2/accounts/18/invoices/7.json"}}`, `{"id":"7","customer":{"name":"A"},"status":"open","pdf_url":null}`},
		"a URL with another parameter":    {"/v1/invoices/7", `{"data":{"invoice_no":"7","cust":{"nm":"A"},"st":"O","pdf":"/v2/accounts/17/invoices/..%2F7.json"}}`, `{"id":"7","customer":{"name":"A"},"status":"open","pdf_url":null}`},
		"a URL under its own path":        {"/v1/invoices/7", `{"data":{"invoice_no":"7","cust":{"nm":"A"},"st":"O","pdf":"http://x/v1/invoices/8"}}`, `{"id":"7","customer":{"name":"A"},"status":"open","pdf_url":"/gw/v1/invoices/8"}`},
		"a URL with a query":              {"/v1/invoices/7", `{"data":{"invoice_no":"7","cust":{"nm":"A"},"st":"O","pdf":"http://x/v1/invoices?page=2"}}`, `{"id":"7","customer":{"name":"A"},"status":"open","pdf_url":"/gw/v1/invoices?page=2&per_page=25"}`},
		"a URL with an unknown parameter": {"/v1/invoices/7", `{"data":{"invoice_no":"7","cust":{"nm":"A"},"st":"O","pdf":"http://x/v1/invoices?token=secret&page=2"}}`, `{"id":"7","customer":{"name":"A"},"status":"open","pdf_url":null}`},
		"a URL with an invalid query":     {"/v1/invoices/7", `{"data":{"invoice_no":"7","cust":{"nm":"A"},"st":"O","pdf":"http://x/v1/invoices?page=secret"}}`, `{"id":"7","customer":{"name":"A"},"status":"open","pdf_url":null}`},
		"a member with a published name":  {"/v1/invoices/7", `{"data":{"invoice_no":7,"cust":{"nm":"A"},"st":"O","status":"paid","customer":{"name":"X"},"id":"9"}}`, `{"id":"7","customer":{"name":"A"},"status":"open"}`},
		"names in escapes":                {"/v1/invoices/7", `{"d\u0061ta":{"invoice\u005fno":7,"cust":{"n\u006d":"A"},"st":"\u004f"}}`, `{"id":"7","customer":{"name":"A"},"status":"open"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := legacyAnswer(t, d, c.target, c.body)
			require.NoError(t, err)
			require.Equal(t, c.want, out)
		})
	}
}

func TestMappedResponsesAreCheckedAgainstTheDefinition(t *testing.T) {
	t.Parallel()
	d := loadLegacy(t)
	for name, c := range map[string]struct{ body, want string }{
		"a number that is no integer":          {`"total_cents":1.5`, " total_amount: expected an integer of at most 18 digits"},
		"a number that is too long":            {`"total_cents":1234567890123456789`, " total_amount: expected an integer of at most 18 digits, from total_cents"},
		"an instant after all years":           {`"created":999999999999999999`, " created_at: expected an instant between the years 0 and 9999"},
		"an unknown value":                     {`"act":"X"`, " active: expected one of the values that the definition has a value for"},
		"an object instead of a value":         {`"act":{"Y":1}`, " active: expected one of the values that the definition has a value for"},
		"a value that is not valid":            {`"lines":[{"product":{"code":1}}]`, " lines.sku: expected a string"},
		"a part that is not valid":             {`"cust":{"nm":"A name of more than twenty letters"}`, " customer.name: expected a string as the definition says"},
		"a part that is missing":               {`"cust":{"contact":{"mail":"x"}}`, " customer.name: expected the member name, from /cust/nm"},
		"a member that is missing":             {`"st2":1`, " status: expected the member status, from st"},
		"one of an item":                       {`"lines":[{"product":{"kode":"x"}}]`, " lines.sku: expected the member sku, from /product/code"},
		"a part that is no object":             {`"cust":"A"`, " customer"},
		"a conversion of null where it is not": {`"total_cents":null`, " total_amount: expected a decimal number"},
		"a member twice":                       {`"total_cents":1,"total_cents":2`, "expected no duplicate names in an object"},
		"a member of a part twice":             {`"cust":{"nm":"A","nm":"B"}`, "expected no duplicate names in an object"},
		"an unknown member twice":              {`"x":1,"x":2`, "expected no duplicate names in an object"},
		"something that is not JSON":           {`"total_cents":01`, "expected valid JSON"},
		"not JSON in what is not published":    {`"x":{"y":01}`, "expected valid JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record := `{"invoice_no":7,` + c.body
			if c.body != `"st2":1` {
				record += `,"st":"O"`
			}
			if !bytes.Contains([]byte(c.body), []byte(`"cust"`)) {
				record += `,"cust":{"nm":"A"}`
			}
			_, err := legacyAnswer(t, d, "/v1/invoices/7", `{"data":`+record+`}}`)
			require.ErrorContains(t, err, c.want)
			_, err = legacyAnswer(t, d, "/v1/invoices", `{"data":{"items":[`+record+`}]}}`)
			require.ErrorContains(t, err, c.want)
		})
	}
	for name, body := range map[string]string{
		"no records": `{"data":{}}`, "records that are no list": `{"data":{"items":{}}}`, "a list that is nothing": `{"data":null}`, "a list alone": `[]`,
		"records at another place": `{"data":{"invoices":[]},"items":[],"invoices":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := legacyAnswer(t, d, "/v1/invoices", body)
			require.ErrorIs(t, err, upstream.ErrContractViolation)
			if body != `[]` {
				require.ErrorContains(t, err, ", from /data/items")
			}
		})
	}
	const one = `{from: /data, is: {id: id}}, content: {application/json: {schema: `
	optional := strings.NewReplacer("required: [invoices, pagination]", "required: [pagination]",
		one+`{$ref: "#/components/schemas/Invoice"}`, strings.Replace(one, "from", "in: invoice, from", 1)+`{type: object, properties: {invoice: {$ref: "#/components/schemas/Invoice"}}}`)
	for _, step := range []upstream.Enforcement{upstream.EnforceAll, upstream.EnforceMembers, upstream.EnforceTenant} {
		d, err := load(optional.Replace(legacy), definition.Options{Enforce: step})
		require.NoError(t, err)
		for _, body := range []string{`{"Error":{"Code":"99"}}`, `{"data":null}`, `{}`} {
			for _, target := range []string{"/v1/invoices", "/v1/invoices/7"} {
				_, err = legacyAnswer(t, d, target, body)
				require.ErrorIs(t, err, upstream.ErrContractViolation, "%s %s", step, body)
			}
		}
	}
	nullable, err := load(strings.Replace(optional.Replace(legacy), "{type: array, maxItems: 100, items", "{type: [array, \"null\"], maxItems: 100, items", 1), definition.Options{})
	require.NoError(t, err)
	out, err := legacyAnswer(t, nullable, "/v1/invoices", `{"data":{}}`)
	require.NoError(t, err, "a list that may be null need not be there")
	require.Equal(t, `{"pagination":{"current_page":1,"next_cursor":null}}`, out)
	for name, body := range map[string]string{"another record": `{"data":{"invoice_no":8,"st":"O","cust":{"nm":"A"}}}`, "no record": `{"ok":true}`, "a record alone": legacyInvoice, "text": `"x"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := legacyAnswer(t, d, "/v1/invoices/7", body)
			require.ErrorIs(t, err, upstream.ErrContractViolation)
		})
	}
}

// Pointers lead to where callers would see a member, also if the response is one member of what the service sends.
func TestWhatIsRemovedOfMappedResponsesIsListed(t *testing.T) {
	t.Parallel()
	d := loadLegacy(t)
	for target, want := range map[string]string{"/v1/invoices/7": "/internal", "/v1/invoices": "/invoices/0/internal"} {
		op, q := operationOf(t, d, http.MethodGet, target)
		body := `{"data":` + legacyInvoice + `}`
		if target == "/v1/invoices" {
			body = `{"data":{"items":[` + legacyInvoice + `]}}`
		}
		removed := new(upstream.Contract).Removed(op, &op.Responses[0], q, "17", []byte(body))
		pointers := make([]string, len(removed))
		for i, v := range removed {
			pointers[i] = v.Pointer
		}
		require.Contains(t, pointers, want)
		require.NotContains(t, strings.Join(pointers, " "), "//")
	}
}

func TestBodiesAreMappedBack(t *testing.T) {
	t.Parallel()
	d := loadLegacy(t)
	op, _ := operationOf(t, d, http.MethodPost, "/v1/invoices")
	body := func(media, text string) (string, error) {
		var out bytes.Buffer
		_, err := new(upstream.Contract).CheckBody(&out, op, http.Header{"Content-Type": {media}}, "17", []byte(text))
		return out.String(), err
	}
	for name, c := range map[string]struct{ media, body, want string }{
		"all members": {
			"application/json", `{"note":"n","lines":[{"count":2,"sku":"x"}],"card":"4111","active":false,"status":"unknown","due":"2023-11-14","created_at":"2023-11-14T22:13:20.000Z",` +
				`"discount":0.5,"total_amount":"-12.050","customer":{"email":"a@b","name":"A"},"id":"7"}`,
			`{"invoice_no":7,"cust":{"nm":"A","contact":{"mail":"a@b"}},"total_cents":-1205,"disc_cents":50,"created":1700000000,"due_ms":1699920000000,"st":9,"act":"N",` +
				`"cc_no":"4111","lines":[{"product":{"code":"x"},"qty":2}],"note":"n"}`,
		},
		"booleans and texts":   {"application/merge-patch+json", `{"locked":"no","level":"low"}`, `{"lck":false,"lvl":"1"}`},
		"numbers":              {"application/merge-patch+json", `{"locked":"yes","level":"high"}`, `{"lck":true,"lvl":2}`},
		"what is in quotes":    {"application/merge-patch+json", `{"level":"true"}`, `{"lvl":"true"}`},
		"the required ones":    {"application/json", `{"id":"7","customer":{"name":"A"},"status":"open"}`, `{"invoice_no":7,"cust":{"nm":"A"},"st":"O"}`},
		"a patch":              {"application/merge-patch+json", `{"status":"paid"}`, `{"st":"P"}`},
		"a patch of a part":    {"application/merge-patch+json", `{"customer":{"name":"A","email":null}}`, `{"cust":{"nm":"A","contact":{"mail":null}}}`},
		"a patch with nothing": {"application/merge-patch+json", `{}`, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := body(c.media, c.body)
			require.NoError(t, err)
			require.JSONEq(t, c.want, out)
			require.Equal(t, c.want, out)
		})
	}
	for name, c := range map[string]struct{ member, want string }{
		"a name of the data service":       {`"st":"P"`, "/st is not a documented member"},
		"another case of it":               {`"ST":"P"`, "/ST is not a documented member"},
		"an object of the data service":    {`"cust":{"nm":"B"}`, "/cust is not a documented member"},
		"one inside a part":                {`"customer":{"name":"A","nm":"B"}`, "/customer/nm is not a documented member"},
		"more than two decimals":           {`"total_amount":"1.005"`, "/total_amount expected a decimal number with at most two decimals"},
		"too many digits":                  {`"total_amount":"12345678901234567.00"`, "/total_amount expected a decimal number with at most two decimals"},
		"an exponent":                      {`"discount":1e2`, "/discount expected a decimal number with at most two decimals"},
		"a part of a second":               {`"created_at":"2023-11-14T22:13:20.5Z"`, "/created_at expected an instant between the years 0 and 9999 in UTC, without a leap second or parts of a second"},
		"an instant after the year 9999":   {`"ends_at":"9999-12-31T23:59:59-05:00"`, "/ends_at expected an instant between the years 0 and 9999 in UTC, without a leap second or parts of a second"},
		"a text that is no number":         {`"id":"x"`, "/id expected the text of a number"},
		"a number beyond what can be read": {`"id":"1e999"`, "/id expected the text of a number"},
		"what only responses have":         {`"pdf_url":"/x"`, "/pdf_url is read-only"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := `{` + c.member
			for _, required := range [][2]string{{`"id"`, `"7"`}, {`"customer"`, `{"name":"A"}`}, {`"status"`, `"open"`}} {
				if !bytes.Contains([]byte(c.member), []byte(required[0])) {
					text += "," + required[0] + ":" + required[1]
				}
			}
			_, err := body("application/json", text+"}")
			var violations *upstream.BodyError
			require.ErrorAs(t, err, &violations)
			require.Contains(t, violations.Violations[0].Pointer+" "+violations.Violations[0].Reason, c.want)
		})
	}
}

// A number is the same in every notation.
func TestNumbersAreMappedBackByTheirValue(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request, paths: {/a: {post: {
		parameters: [{name: Idempotency-Key, in: header, required: true, schema: {type: string}}],
		requestBody: {content: {application/json: {schema: {type: object, properties: {level: {enum: [1, 2.5], x-gatehouse-from: {member: lv, values: {LOW: 1, HIGH: 2.5}}}}}}}},
		responses: {"204": {description: ""}}}}}}`)}, definition.Options{})
	require.NoError(t, err)
	op, _ := operationOf(t, d, http.MethodPost, "/v1/a")
	for number, want := range map[string]string{"1": "LOW", "1.0": "LOW", "10e-1": "LOW", "2.5": "HIGH", "2.50": "HIGH", "25E-1": "HIGH"} {
		var out bytes.Buffer
		_, err := new(upstream.Contract).CheckBody(&out, op, http.Header{"Content-Type": {"application/json"}}, "17", []byte(`{"level":`+number+`}`))
		require.NoError(t, err, number)
		require.Equal(t, `{"lv":"`+want+`"}`, out.String(), number)
	}
}

func TestMembersThatCannotBeMappedDoNotLoad(t *testing.T) {
	t.Parallel()
	load := func(records, schema, more string) error {
		text := `{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request, paths: {/a: {post: {
			parameters: [{name: page, in: query, schema: {type: integer, default: 1}}, {name: size, in: query, schema: {type: integer}}],
			` + more + ` responses: {"200": {description: "", x-gatehouse-records: ` + records + `, content: {application/json: {schema: ` + schema + `}}}}}}}}`
		_, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(text)}, definition.Options{})
		return err
	}
	member := func(schema string) string { return `{type: object, properties: {a: ` + schema + `}}` }
	body := func(schema string) string {
		return `requestBody: {content: {application/json: {schema: {type: object, properties: ` + schema + `}}}},`
	}
	plain := member(`{type: string}`)
	const cost = `{type: object, properties: {sku: {type: string}, cost: {type: string, x-gatehouse-internal: true}}}`
	items := func(schema string) string {
		return `{type: array, x-gatehouse-from: /cart/lines, items: ` + schema + `}`
	}
	cart := func(lines string) string {
		return `{type: object, properties: {cart: {type: object, additionalProperties: true}, lines: ` + lines + `}}`
	}
	for name, c := range map[string]struct{ schema, body, want string }{
		"nothing":                                      {member(`{type: string, x-gatehouse-from: {as: cents}}`), "", "must be one of a member, a pointer, a parameter and pages"},
		"two places":                                   {member(`{type: string, x-gatehouse-from: {member: a, parameter: page}}`), "", "must be one of a member"},
		"two conversions":                              {member(`{type: string, x-gatehouse-from: {member: a, as: string, values: {a: b}}}`), "", "only one of parameter, pages, as and values is possible"},
		"an expression":                                {member(`{type: string, x-gatehouse-from: {template: "a + b"}}`), "", "template cannot be enforced here"},
		"an unknown conversion":                        {member(`{type: string, x-gatehouse-from: {member: a, as: upper}}`), "", "must be one of cents, unix, unix-ms, string, number, url: what this cannot do is for an adapter in front of the service"},
		"a value for null":                             {member(`{enum: [draft, open], x-gatehouse-from: {member: a, values: {null: draft, 1: open}}}`), "", "null stays null, and cannot become another value"},
		"an empty conversion":                          {member(`{type: string, x-gatehouse-from: {member: a, as: ""}}`), "", "must be one of cents"},
		"an empty name":                                {member(`{type: string, x-gatehouse-from: /a//b}`), "", "must have 1 to 8 names, none of them empty"},
		"a long pointer":                               {member(`{type: string, x-gatehouse-from: /1/2/3/4/5/6/7/8/9}`), "", "must have 1 to 8 names"},
		"an unknown parameter":                         {member(`{type: integer, x-gatehouse-from: {parameter: pages}}`), "", "pages must be a parameter of post_a that is an integer"},
		"a parameter without a default":                {member(`{type: integer, x-gatehouse-from: {parameter: size}}`), "", "size must be a parameter"},
		"pages without a size":                         {member(`{type: integer, x-gatehouse-from: {pages: [/total]}}`), "", "must be the place of a number of records, and the parameter"},
		"a parameter as text":                          {member(`{type: string, x-gatehouse-from: {parameter: page}}`), "", "must be an integer"},
		"cents in a boolean":                           {member(`{type: boolean, x-gatehouse-from: {member: a, as: cents}}`), "", "must be a string with the format decimal, or a number"},
		"seconds without a format":                     {member(`{type: string, x-gatehouse-from: {member: a, as: unix}}`), "", "must be a string with the format utc-date-time"},
		"a URL that cannot be null":                    {member(`{type: string, x-gatehouse-from: {member: a, as: url}}`), "", "or null, which a URL becomes"},
		"a value that is not valid":                    {member(`{enum: [open], x-gatehouse-from: {member: a, values: {O: closed}}}`), "", `"O" becomes "closed", which is not valid here`},
		"a value of another type":                      {member(`{type: string, x-gatehouse-from: {member: a, values: {O: 1}}}`), "", `"O" becomes 1, which is not valid here`},
		"a value that is an object":                    {member(`{type: string, x-gatehouse-from: {member: a, values: {O: {}}}}`), "", "must be a string, a number, true, false or null"},
		"no values":                                    {member(`{type: string, x-gatehouse-from: {member: a, values: {}}}`), "", "must be an object: the service's values, and ours"},
		"a conversion of several":                      {member(`{oneOf: [{type: string}, {type: integer}], x-gatehouse-from: {member: a, as: string}}`), "", "must be a string"},
		"not the place of a member":                    {`{type: object, x-gatehouse-from: a, properties: {a: {type: string}}}`, "", "is for the place of the member"},
		"a part with a member":                         {member(`{type: object, properties: {b: {type: string, x-gatehouse-from: /b}, c: {type: string, x-gatehouse-from: c}}}`), "", "every member must come from a pointer or a parameter: c does not; if the service has such an object, say so by an x-gatehouse-from of its own"},
		"a part with further members":                  {member(`{type: object, additionalProperties: true, properties: {b: {type: string, x-gatehouse-from: /b}}}`), "", "cannot have further members"},
		"pointers in a choice":                         {member(`{oneOf: [{type: object, properties: {b: {type: string, x-gatehouse-from: /b}}}, {type: object, properties: {c: {type: string}}}]}`), "", "is in one of several objects"},
		"pointers beside a text":                       {member(`{oneOf: [{type: object, properties: {b: {type: string, x-gatehouse-from: /b}}}, {type: string}]}`), "", "is one of several schemas, and pointers of its members begin outside"},
		"what decides a choice":                        {`{oneOf: [{type: object, required: [k], properties: {k: {const: x, x-gatehouse-from: z}}}, {type: object, required: [k], properties: {k: {const: y}}}]}`, "", "decides which of several objects it is"},
		"two rules":                                    {`{allOf: [{type: object, properties: {a: {type: string, x-gatehouse-from: b}}}, {type: object, properties: {a: {type: string, x-gatehouse-from: c}}}]}`, "", "have different x-gatehouse-from for a"},
		"an internal member in any JSON":               {`{type: object, properties: {a: {type: object, additionalProperties: true}, b: {type: string, x-gatehouse-internal: true, x-gatehouse-from: /a/b}}}`, "", "b would be among the further members of a"},
		"a writeOnly object deeper in it":              {`{type: object, properties: {a: {type: object, x-gatehouse-from: x, properties: {c: {type: object, x-gatehouse-from: y, additionalProperties: {type: string}}}}, b: {type: object, writeOnly: true, properties: {d: {type: string, x-gatehouse-from: /x/y/b}}}}}`, "", "a hidden member would be among the further members of a"},
		"a writeOnly object in free JSON of an object": {`{type: object, properties: {cc: {type: object, properties: {info: {type: object, additionalProperties: true}}}, card: {type: object, writeOnly: true, properties: {number: {type: string, x-gatehouse-from: /cc/info/number}}}}}`, "", "a hidden member would be among the further members of cc"},
		"one deeper in it":                             {`{type: object, properties: {a: {type: object, x-gatehouse-from: x, properties: {c: {type: object, x-gatehouse-from: y, additionalProperties: {type: string}}}}, b: {type: string, writeOnly: true, x-gatehouse-from: /x/y/b}}}`, "", "b would be among the further members of a"},
		"a writeOnly object in a map":                  {`{type: object, properties: {a: {type: object, additionalProperties: {type: string}}, b: {type: object, writeOnly: true, properties: {c: {type: string, x-gatehouse-from: /a/b}}}}}`, "", "a hidden member would be among the further members of a"},
		"a member that becomes any JSON":               {`{type: object, properties: {a: {type: object, additionalProperties: true, x-gatehouse-from: x}, b: {type: object, x-gatehouse-from: x, properties: {c: {type: object, properties: {d: {type: string, writeOnly: true}}}}}}}`, "", "b would be among the further members of a"},
		"an internal member of an item":                {cart(items(cost)), "", "lines would be among the further members of cart"},
		"a writeOnly one of an item":                   {cart(items(`{type: object, properties: {sku: {type: string}, cost: {type: string, writeOnly: true}}}`)), "", "lines would be among the further members of cart"},
		"writeOnly further members":                    {cart(items(`{type: object, properties: {sku: {type: string}}, additionalProperties: {type: string, writeOnly: true}}`)), "", "lines would be among the further members of cart"},
		"a hidden object of an item":                   {cart(items(`{type: object, properties: {sku: {type: string}, c: {type: object, writeOnly: true, properties: {d: {type: string, x-gatehouse-from: /cost/net}}}}}`)), "", "lines would be among the further members of cart"},
		"items that are removed":                       {cart(items(`{type: object, required: [s], x-gatehouse-visible: {s: [open]}, properties: {s: {type: string}}}`)), "", "lines would be among the further members of cart"},
		"an internal member of a map":                  {cart(`{type: object, x-gatehouse-from: /cart/lines, additionalProperties: ` + cost + `}`), "", "lines would be among the further members of cart"},
		"an internal member of a choice":               {cart(`{x-gatehouse-from: /cart/lines, anyOf: [` + cost + `, {type: "null"}]}`), "", "lines would be among the further members of cart"},
		"a writeOnly alternative":                      {cart(items(`{oneOf: [{type: integer}, {type: string, writeOnly: true}]}`)), "", "lines would be among the further members of cart"},
		"one deep in circles":                          {cart(items(`{type: object, properties: {a: {properties: {a: {properties: {a: {properties: {a: {properties: {a: {properties: {a: {properties: {a: {properties: {a: ` + cost + `}}}}}}}}}}}}}}}}`)), "", "lines would be among the further members of cart"},
		"an item of a list of any JSON":                {`{type: object, properties: {a: {type: array, x-gatehouse-from: l, items: {type: object, additionalProperties: true}}, b: {type: array, x-gatehouse-from: l, items: ` + cost + `}}}`, "", "b would be among the further members of a"},
		"a value of a map of any JSON":                 {`{type: object, properties: {a: {type: object, x-gatehouse-from: l, properties: {x: {type: object, additionalProperties: true}}}, b: {type: object, x-gatehouse-from: l, additionalProperties: ` + cost + `}}}`, "", "b would be among the further members of a"},
		"an item that has other names":                 {`{type: object, properties: {a: {type: array, x-gatehouse-from: l, items: {type: object, properties: {p: {type: object, additionalProperties: true, x-gatehouse-from: /c/p}}}}, b: {type: array, x-gatehouse-from: l, items: {type: object, properties: {d: {type: object, x-gatehouse-from: /c, properties: {p: ` + cost + `}}}}}}}`, "", "b would be among the further members of a"},
		"any JSON inside of it":                        {`{type: object, properties: {a: {type: object, additionalProperties: true, x-gatehouse-from: /cart/line}, cart: {type: object, properties: {line: ` + cost + `}}}}`, "", "cart would be among the further members of a"},
		"the second of one place":                      {`{type: object, properties: {c: {type: object, properties: {x: {type: string, x-gatehouse-from: l}, y: {type: object, additionalProperties: true, x-gatehouse-from: l}}}, b: {type: object, x-gatehouse-from: /c/l, properties: {d: {type: string, x-gatehouse-internal: true}}}}}`, "", "b would be among the further members of c"},
		"an internal object in a part":                 {`{type: object, properties: {a: {type: object, additionalProperties: true}, b: {type: object, x-gatehouse-internal: true, properties: {c: {type: string, x-gatehouse-from: /a/b}}}}}`, "", "c would be among the further members of a"},
		"a body's readOnly member in it":               {plain, body(`{a: {type: object, additionalProperties: true}, b: {type: string, readOnly: true, x-gatehouse-from: /a/b}}`), "b would be among the further members of a"},
		"a body's internal object in it":               {plain, body(`{a: {type: object, additionalProperties: true}, b: {type: object, x-gatehouse-internal: true, properties: {c: {type: string, x-gatehouse-from: /a/b}}}}`), "a hidden member would be among the further members of a"},
		"a body's parameter":                           {plain, body(`{a: {type: integer, x-gatehouse-from: {parameter: page}}}`), "is for responses: in a body, the member must be readOnly"},
		"a body's URL":                                 {plain, body(`{a: {type: [string, "null"], x-gatehouse-from: {member: b, as: url}}}`), "is for responses"},
		"a body with a place twice":                    {plain, body(`{a: {type: string, x-gatehouse-from: b}, b: {type: string}}`), "two members of a body would be sent at /b"},
		"a body with a place in a place":               {plain, body(`{a: {type: string, x-gatehouse-from: /b/c}, b: {type: object, properties: {d: {type: string}}}}`), "two members of a body would be sent at /b"},
		"a body's choice of lists":                     {plain, body(`{a: {oneOf: [{type: array, maxItems: 1, items: {type: object, properties: {b: {type: string, x-gatehouse-from: d}}}}, {type: array, minItems: 2, items: {type: string}}]}}`), "and in a body not even that"},
		"a body's choice":                              {plain, body(`{a: {oneOf: [{type: object, properties: {b: {type: string, x-gatehouse-from: d}}}, {type: object, properties: {c: {type: string}}}]}}`), "and in a body not even that"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, load("{}", c.schema, c.body), c.want)
		})
	}
	t.Run("an object in itself", func(t *testing.T) {
		t.Parallel()
		text := `{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request, paths: {/a: {get: {responses: {"200": {description: "",
			content: {application/json: {schema: {$ref: "#/components/schemas/N"}}}}}}}}, components: {schemas: {N: {type: object, properties: {a: {type: string, x-gatehouse-from: /b},
			n: {$ref: "#/components/schemas/N"}, m: {$ref: "#/components/schemas/N"}}}}}}`
		_, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(text)}, definition.Options{})
		require.ErrorContains(t, err, "more than 8 objects in each other that the data service does not have, or a circle of them")
		text = strings.Replace(text, `schema: {$ref: "#/components/schemas/N"}`, `schema: {properties: {a: {type: array, items: {$ref: "#/components/schemas/N"}}, b: {type: array, x-gatehouse-from: a, items: {properties: {c: {type: string, x-gatehouse-internal: true}}}}}}`, 1)
		_, err = definition.Load(definition.File{Name: "api.yaml", Text: []byte(text)}, definition.Options{})
		require.ErrorContains(t, err, "more than 8 objects in each other")
		require.NotContains(t, err.Error(), "too large")
	})
	require.NoError(t, load("{}", `{type: object, properties: {a: {type: object, additionalProperties: true, properties: {b: {type: string, x-gatehouse-internal: true}}}, c: {type: string, x-gatehouse-internal: true, x-gatehouse-from: /a/b}}}`, ""))
	require.NoError(t, load("{}", member(`{type: string, x-gatehouse-from: "/x~1y/a~0b"}`), body(`{a: {type: integer, readOnly: true, x-gatehouse-from: {parameter: page}}}`)))
	require.NoError(t, load("{}", plain, body(`{a: {type: object, properties: {b: {type: string, x-gatehouse-from: /x}, c: {type: integer, readOnly: true, x-gatehouse-from: {parameter: page}}}}}`)))
	require.ErrorContains(t, load(`{from: []}`, plain, ""), "must be a string")
	require.ErrorContains(t, load(`{in: lines, from: /cart/all}`, strings.Replace(cart(items(cost)), "x-gatehouse-from: /cart/lines, ", "", 1), ""), "lines would be among the further members of cart")
	require.NoError(t, load("{}", cart(items(`{type: object, properties: {sku: {type: string}}}`)), ""), "nothing of it is hidden")
	require.NoError(t, load("{}", strings.Replace(cart(items(cost)), "additionalProperties: true", "properties: {lines: {type: array, items: {type: object, properties: {sku: {type: string}}}}}", 1), ""))
}

func TestNothingOfAMappedMemberIsPublished(t *testing.T) {
	t.Parallel()
	published, err := loadLegacy(t).Published(definition.PublishOptions{})
	require.NoError(t, err)
	for _, internal := range []string{"invoice_no", "total_cents", "/meta", "/v2", "x-gatehouse", "cc_no"} {
		require.NotContains(t, string(published), internal)
	}
}

// Members that stand next to each other may be copied together. They must have the names that are published, and nothing may leave between them.
func TestNeighboursLeaveUnderTheirOwnNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ ab, cd, body, want string }{
		"as they are":                     {"", "", `{"ab":1,"cd":2,"ef":3}`, `{"ab":1,"cd":2,"ef":3}`},
		"in another order":                {"", "", `{"cd":2,"ab":1,"ef":3}`, `{"ab":1,"cd":2,"ef":3}`},
		"each with the other's name":      {", x-gatehouse-from: cd", ", x-gatehouse-from: ab", `{"ab":2,"cd":1,"ef":3}`, `{"ab":1,"cd":2,"ef":3}`},
		"one with a name of equal length": {"", ", x-gatehouse-from: zz", `{"ab":1,"zz":2,"ef":3}`, `{"ab":1,"cd":2,"ef":3}`},
		"one inside an object":            {", x-gatehouse-from: /x/ab", "", `{"x":{"ab":1},"cd":2,"ef":3}`, `{"ab":1,"cd":2,"ef":3}`},
		"an undocumented one between":     {"", "", `{"ab":1,"":9,"cd":2,"ef":3}`, `{"ab":1,"cd":2,"ef":3}`},
		"spaces between":                  {"", "", `{"ab":1 ,"cd":2, "ef" : 3}`, `{"ab":1,"cd":2,"ef":3}`},
		"an escaped name":                 {"", "", `{"ab":1,"\u0063d":2,"ef":3}`, `{"ab":1,"cd":2,"ef":3}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}],
				x-gatehouse-tenant: request, paths: {/a: {get: {responses: {"200": {description: "", content: {application/json: {schema: {type: object, properties: {
				ab: {type: integer` + c.ab + `}, cd: {type: integer` + c.cd + `}, ef: {type: integer}}}}}}}}}}}`)}, definition.Options{})
			require.NoError(t, err)
			m, _ := d.API.Match("/v1/a")
			op := m.Path.Operation(http.MethodGet)
			var out bytes.Buffer
			_, err = new(upstream.Contract).Check(&out, op, &op.Responses[0], upstream.Query{}, "17", []byte(c.body))
			require.NoError(t, err)
			require.Equal(t, c.want, out.String())
		})
	}
}

// BenchmarkMapped checks lists of 25 records: one that needs no mapping, one whose members have other names, and one that is also converted.
func BenchmarkMapped(b *testing.B) {
	document := func(name, at, total, created, from, records string) string {
		return `{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request, paths: {/invoices: {get: {
			parameters: [{name: page, in: query, schema: {type: integer, default: 1}}],
			responses: {"200": {description: "", x-gatehouse-records: {in: invoices` + records + `, order: [created_at]}, content: {application/json: {schema: {type: object, properties: {
			invoices: {type: array, maxItems: 100, items: {type: object, properties: {id: {type: string` + from + `}, name: {type: string` + name + `}, email: {type: string` + at + `},
			status: {enum: [open, paid]}, total: {type: string, format: decimal` + total + `}, created_at: {type: string, format: utc-date-time` + created + `},
			lines: {type: array, maxItems: 10, items: {type: object, properties: {sku: {type: string}, count: {type: integer}}}}}}},
			total_items: {type: integer}}}}}}}}}}}`
	}
	page := func(records, number, current, total, pages, next, customer, amount, created, status, pdf string) string {
		return `{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request, paths: {/invoices: {get: {
			parameters: [{name: page, in: query, schema: {type: integer, default: 1}}, {name: per_page, in: query, schema: {type: integer, default: 25}}],
			responses: {"200": {description: "", x-gatehouse-records: {in: invoices` + records + `, order: [created_at]}, content: {application/json: {schema: {type: object, properties: {
			invoices: {type: array, maxItems: 100, items: {type: object, properties: {id: {type: string}, invoice_number: {type: string` + number + `}, customer_name: {type: string` + customer + `},
			total_amount: {type: string, format: decimal` + amount + `}, created_at: {type: string, format: utc-date-time` + created + `}, status: {enum: [open, paid]` + status + `},
			pdf_url: {type: [string, "null"]` + pdf + `}, lines: {type: array, maxItems: 10, items: {type: object, properties: {sku: {type: string}, count: {type: integer}}}}}}},
			pagination: {type: object, properties: {current_page: {type: integer` + current + `}, total_items: {type: integer` + total + `},
			total_pages: {type: integer` + pages + `}, next_cursor: {type: [string, "null"]` + next + `}}}}}}}}}}}}}`
	}
	const published = `{"id":"8f14e45f","invoice_number":"2023-0017","customer_name":"A name of some length","total_amount":"1205.50","created_at":"2023-11-14T22:13:20Z","status":"open","pdf_url":null,"lines":[{"sku":"a-1","count":2},{"sku":"b-22","count":1}]}`
	const record = `{"id":"8f14e45f","name":"A name of some length","email":"someone@example.com","status":"open","total":"1205.50","created_at":"2023-11-14T22:13:20Z","lines":[{"sku":"a-1","count":2},{"sku":"b-22","count":1}]}`
	rename := strings.NewReplacer(`"id"`, `"no"`, `"name"`, `"nm"`, `"email"`, `"mail"`)
	convert := strings.NewReplacer(`"1205.50"`, `120550`, `"2023-11-14T22:13:20Z"`, `1700000000`)
	list := func(record string) string { return strings.TrimSuffix(strings.Repeat(record+",", 25), ",") }
	for _, c := range []struct{ name, document, body string }{
		{"none", document("", "", "", "", "", ""), `{"invoices":[` + list(record) + `],"total_items":25}`},
		{"names", document(", x-gatehouse-from: nm", ", x-gatehouse-from: mail", "", "", ", x-gatehouse-from: no", ", from: /data"), `{"data":[` + list(rename.Replace(record)) + `],"total_items":25}`},
		{
			"conversions",
			document(", x-gatehouse-from: nm", ", x-gatehouse-from: mail", ", x-gatehouse-from: {member: total, as: cents}", ", x-gatehouse-from: {member: created_at, as: unix}", ", x-gatehouse-from: no", ", from: /data/items"),
			`{"data":{"items":[` + list(convert.Replace(rename.Replace(record))) + `]},"total_items":25}`,
		},
		{"page/none", page("", "", "", "", "", "", "", "", "", "", ""), `{"invoices":[` + list(published) + `],"pagination":{"current_page":1,"total_items":25,"total_pages":1,"next_cursor":null}}`},
		{
			"page/all",
			page(", from: /data/items", ", x-gatehouse-from: invoice_no", ", x-gatehouse-from: {parameter: page}", ", x-gatehouse-from: /meta/total", ", x-gatehouse-from: {pages: [/meta/total, per_page]}", ", x-gatehouse-from: /meta/next", ", x-gatehouse-from: /customer/name",
				", x-gatehouse-from: {member: total_cents, as: cents}", ", x-gatehouse-from: {member: created, as: unix}", ", x-gatehouse-from: {member: st, values: {O: open, P: paid}}", ", x-gatehouse-from: {member: pdf, as: url}"),
			`{"data":{"items":[` + list(`{"id":"8f14e45f","invoice_no":"2023-0017","customer":{"name":"A name of some length"},"total_cents":120550,"created":1700000000,"st":"O","pdf":null,"lines":[{"sku":"a-1","count":2},{"sku":"b-22","count":1}]}`) + `]},"meta":{"total":25,"next":null}}`,
		},
	} {
		d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(c.document)}, definition.Options{})
		require.NoError(b, err)
		m, _ := d.API.Match("/v1/invoices")
		op := m.Path.Operation(http.MethodGet)
		q, err := op.CleanQuery(m)
		require.NoError(b, err)
		b.Run(c.name, func(b *testing.B) {
			var out bytes.Buffer
			contract := new(upstream.Contract)
			body := []byte(c.body)
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				out.Reset()
				if _, err := contract.Check(&out, op, &op.Responses[0], q, "17", body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
