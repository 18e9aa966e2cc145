package definition_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// elsewhere loads a definition with one schema, for responses, and for bodies if they have one.
func elsewhere(t *testing.T, step upstream.Enforcement, properties string, withBody bool) *definition.Definition {
	t.Helper()
	body := ""
	if withBody {
		body = `requestBody: {content: {application/json: {schema: {$ref: "#/components/schemas/S"}}, application/merge-patch+json: {schema: {$ref: "#/components/schemas/S"}}}},`
	}
	d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: account, paths: {/a: {post: {
		parameters: [{name: page, in: query, schema: {type: integer, default: 1}}],
		`+body+` responses: {"200": {description: "", x-gatehouse-records: {}, content: {application/json: {schema: {$ref: "#/components/schemas/S"}}}}}}}},
		components: {schemas: {S: {type: object, properties: {account: {type: string}, `+properties+`}}}}}`, definition.Options{Enforce: step})
	require.NoError(t, err)
	return d
}

func TestBodiesOfDefinitionsWithMappingAreSent(t *testing.T) {
	t.Parallel()
	const part = `name: {type: string, x-gatehouse-from: nm}, c: {type: [object, "null"], properties: {n: {type: [string, "null"], x-gatehouse-from: /cust/nm},
		credit: {type: [integer, "null"], readOnly: true, x-gatehouse-from: /cust/credit}, role: {type: string, x-gatehouse-internal: true, x-gatehouse-from: /staff/role},
		all: {type: object, additionalProperties: true, readOnly: true, x-gatehouse-from: /cust}, address: {type: [object, "null"], properties: {zip: {type: [string, "null"], x-gatehouse-from: /cust/zip}}}}}`
	const choice = `name: {type: string, x-gatehouse-from: nm}, pay: {oneOf: [{type: object, required: [card], properties: {card: {type: string}}},
		{type: object, required: [iban], properties: {iban: {type: string}}}, {type: array, maxItems: 2, items: {type: string}}]}`
	const values = `s: {enum: ["R&D", 'a"b', "x\ny"], x-gatehouse-from: {member: st, values: {1: "R&D", 2: 'a"b', 3: "x\ny", "<4>": "R&D"}}}`
	const further = `l: {type: array, maxItems: 2, items: {type: object, additionalProperties: true, properties: {n: {type: string},
		o: {type: object, readOnly: true, properties: {a: {type: string, x-gatehouse-from: /own/a}}},
		i: {type: object, x-gatehouse-internal: true, properties: {c: {type: string, x-gatehouse-from: /costs/net}}}}}}`
	for name, c := range map[string]struct{ properties, media, body, want string }{
		"a member that is not known":      {further, "json", `{"l":[{"n":"x","other":{"a":"1"}}]}`, `{"l":[{"n":"x","other":{"a":"1"}}]}`},
		"a readOnly part by its place":    {further, "json", `{"l":[{"n":"x","own":{"a":"1"}}]}`, ""},
		"an internal part by its place":   {further, "json", `{"l":[{"n":"x","Costs":1}]}`, ""},
		"one of several objects":          {choice, "json", `{"name":"x","pay":{"card":"1"}}`, `{"nm":"x","pay":{"card":"1"}}`},
		"another one":                     {choice, "json", `{"pay":{"iban":"1"}}`, `{"pay":{"iban":"1"}}`},
		"a list instead":                  {choice, "json", `{"pay":["x"]}`, `{"pay":["x"]}`},
		"a part that is removed":          {part, "merge-patch+json", `{"c":null}`, `{"cust":{"nm":null,"zip":null}}`},
		"a part of it":                    {part, "merge-patch+json", `{"c":{"address":null}}`, `{"cust":{"zip":null}}`},
		"a value with a quotation mark":   {values, "json", `{"s":"a\"b"}`, `{"st":2}`},
		"a value with an ampersand":       {values, "json", `{"s":"R&D"}`, `{"st":1}`},
		"a tenant that is sent as a text": {`c: {type: object, properties: {account: {type: integer, x-gatehouse-from: {member: acc, as: number}}}}`, "json", `{"c":{"account":"17"}}`, `{"c":{"acc":"17"}}`},
		"a text where a number is sent":   {`c: {type: [string, number], x-gatehouse-from: {member: cc, as: number}}`, "json", `{"c":"x"}`, ""},
		"an amount that has no digits":    {`c: {type: string, x-gatehouse-from: {member: cc, as: cents}}`, "json", `{"c":"-"}`, ""},
		"an amount that is empty":         {`c: {type: string, x-gatehouse-from: {member: cc, as: cents}}`, "json", `{"c":""}`, ""},
		"a readOnly member of a request":  {`c: {type: object, properties: {n: {type: string, x-gatehouse-from: /nn}, p: {type: integer, readOnly: true, x-gatehouse-from: {parameter: page}}}}`, "json", `{"c":{"n":"x"}}`, `{"nn":"x"}`},
		"a readOnly part of a part":       {`c: {type: object, properties: {n: {type: string, x-gatehouse-from: /nn}, p: {type: object, readOnly: true, properties: {q: {type: string, x-gatehouse-from: /qq}}}}}`, "json", `{"c":{"n":"x"}}`, `{"nn":"x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op, _ := operationOf(t, elsewhere(t, upstream.EnforceAll, c.properties, true), http.MethodPost, "/v1/a")
			var out bytes.Buffer
			_, err := new(upstream.Contract).CheckBody(&out, op, http.Header{"Content-Type": {"application/" + c.media}}, "17", []byte(c.body))
			require.Equal(t, c.want == "", err != nil, err)
			require.Equal(t, c.want, out.String())
		})
	}
	op, _ := operationOf(t, elsewhere(t, upstream.EnforceAll, `m: {type: object, additionalProperties: {type: object, properties: {c: {type: string, x-gatehouse-from: {member: cc, as: cents}}}}}`, true), http.MethodPost, "/v1/a")
	_, err := new(upstream.Contract).CheckBody(new(bytes.Buffer), op, http.Header{"Content-Type": {"application/json"}}, "17", []byte(`{"m":{"`+strings.Repeat("x", 100)+`":{"c":"x"}}}`))
	require.ErrorContains(t, err, "/m/*/c expected a decimal number")
	violations, ok := errors.AsType[*upstream.BodyError](err)
	require.True(t, ok)
	require.Equal(t, "/m/"+strings.Repeat("x", 64)+"…/c", violations.Violations[0].Pointer)
	op, q := operationOf(t, elsewhere(t, upstream.EnforceAll, values, true), http.MethodPost, "/v1/a")
	for sent, want := range map[string]string{`1`: `"R&D"`, `2`: `"a\"b"`, `3`: `"x\ny"`, `"<4>"`: `"R&D"`} {
		var out bytes.Buffer
		_, err := new(upstream.Contract).Check(&out, op, &op.Responses[0], q, "17", []byte(`{"account":"17","st":`+sent+`}`))
		require.NoError(t, err)
		require.Equal(t, `{"account":"17","s":`+want+`}`, out.String())
	}
}

// What a hidden member is inside of is looked for in choices, too, which may lead in a circle.
func TestHiddenMembersInCirclesOfChoicesDoNotLoad(t *testing.T) {
	t.Parallel()
	_, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: none, paths: {/a: {get: {responses: {"200": {description: "", content: {application/json: {schema: {
		properties: {h: {type: string, x-gatehouse-internal: true, x-gatehouse-from: /c/z}, c: {$ref: "#/components/schemas/C"}}}}}}}}}},
		components: {schemas: {C: {oneOf: [{$ref: "#/components/schemas/D"}, {type: string}]}, D: {oneOf: [{$ref: "#/components/schemas/C"}, {type: integer}]}}}}`, definition.Options{})
	require.ErrorContains(t, err, "or are circular")
}

// A mapped body is read once, however deep it is, and no pointers are made of its names. Both would take memory.
func TestMappedBodiesCostLittle(t *testing.T) { //nolint:paralleltest // it measures the whole process
	const nested = 21
	var maps, members strings.Builder
	for i := range 70 {
		fmt.Fprintf(&members, `"%d":{},`, i)
	}
	for i := range 900 {
		fmt.Fprintf(&maps, `"%d":{"c":{%s"last":{"t":"x"}}},`, i, members.String())
	}
	body := "{" + strings.Repeat(`"c":{"`+strings.Repeat("x", 18_000)+`":{`, nested) + `"c":{` + maps.String() + `"last":{}}` + strings.Repeat("}}", nested) + "}"
	d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: none, paths: {/a: {post: {
		requestBody: {content: {application/json: {schema: {$ref: "#/components/schemas/N"}}}}, responses: {"204": {description: ""}}}}},
		components: {schemas: {N: {type: object, properties: {t: {type: string, x-gatehouse-from: tt}, c: {type: object, additionalProperties: {$ref: "#/components/schemas/N"}}}}}}}`, definition.Options{})
	require.NoError(t, err)
	op, _ := operationOf(t, d, http.MethodPost, "/v1/a")
	var out bytes.Buffer
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = new(upstream.Contract).CheckBody(&out, op, http.Header{"Content-Type": {"application/json"}}, "17", []byte(body))
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(500*len(body)))
}

// Where something is hidden, everything else may deviate as elsewhere.
func TestDeviationsPassBesideHiddenMembers(t *testing.T) {
	t.Parallel()
	op, q := operationOf(t, elsewhere(t, upstream.EnforceTenant, `customer: {type: object, required: [name, city], properties: {name: {type: string}, city: {type: string}}},
		score: {type: string, x-gatehouse-internal: true, x-gatehouse-from: /customer/score}`, false), http.MethodPost, "/v1/a")
	var out bytes.Buffer
	report, err := new(upstream.Contract).Check(&out, op, &op.Responses[0], q, "17", []byte(`{"account":"17","customer":{"name":5,"score":"secret","x":"secret"}}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"account":"17","customer":{"name":5}}`, out.String())
	require.Equal(t, []upstream.Deviation{{Pointer: "/customer/name", Rule: "type", Count: 1}, {Pointer: "/customer/city", Rule: "missing", Count: 1}}, report.Deviations)
	_, err = new(upstream.Contract).Check(&out, op, &op.Responses[0], q, "17", []byte(`{"account":"17","customer":[{"score":"secret"}]}`))
	require.ErrorIs(t, err, upstream.ErrContractViolation, "it may have what must not leave")
}

// Nothing that is writeOnly or internal leaves by its name at the data service, however much passes.
func TestWhatMustNotLeaveDoesNotLeaveByAnotherName(t *testing.T) {
	t.Parallel()
	const name = `name: {type: string, x-gatehouse-from: nm}, `
	for title, c := range map[string]struct{ properties, body string }{
		"a writeOnly object without a place":            {name + `card: {type: object, writeOnly: true, properties: {number: {type: string, x-gatehouse-from: /cc/number}}}`, `"cc":{"number":"secret"}`},
		"one with nothing else that is mapped":          {`card: {type: object, writeOnly: true, properties: {number: {type: string, x-gatehouse-from: /cc/number}}}`, `"CC":{"number":"secret"}`},
		"one that is referred to":                       {`card: {$ref: "#/components/schemas/S/properties/other"}, other: {type: object, writeOnly: true, allOf: [{type: object, properties: {number: {type: string, x-gatehouse-from: /cc/number}}}]}`, `"cc":{"number":"secret"}`},
		"one that may be null":                          {`card: {writeOnly: true, anyOf: [{type: object, properties: {number: {type: string, x-gatehouse-from: /cc/number}}}, {type: "null"}]}`, `"cc":{"number":"secret"}`},
		"one of two objects":                            {name + `card: {writeOnly: true, oneOf: [{type: object, properties: {iban: {type: string}}}, {type: object, properties: {number: {type: string, x-gatehouse-from: /cc/number}}}]}`, `"cc":{"number":"secret"}`},
		"one in another":                                {name + `c: {type: object, properties: {n: {type: string, x-gatehouse-from: /nn}, card: {type: object, writeOnly: true, properties: {number: {type: string, x-gatehouse-from: {member: /cc/number, as: string}}}}}}`, `"nn":"x","cc":{"number":"secret"}`},
		"one in a member that leaves":                   {`cust: {type: object, properties: {n: {type: string}}}, card: {type: object, writeOnly: true, properties: {number: {type: string, x-gatehouse-from: /cust/number}}}`, `"cust":{"n":"x","number":"secret"}`},
		"an internal member of one that leaves":         {`cust: {type: object, properties: {n: {type: string}}}, score: {type: string, x-gatehouse-internal: true, x-gatehouse-from: /cust/score}`, `"cust":{"n":"x","score":"secret"}`},
		"one of an internal object":                     {`cust: {type: object, properties: {n: {type: string}}}, audit: {type: object, x-gatehouse-internal: true, properties: {score: {type: string, x-gatehouse-from: /cust/score}}}`, `"cust":{"n":"x","score":"secret"}`},
		"one of an internal object, in a text":          {`cust: {type: string}, audit: {type: object, x-gatehouse-internal: true, properties: {in: {type: object, properties: {score: {type: string, x-gatehouse-from: /cust/score}}}}}`, `"cust":{"n":"x","score":"secret"}`},
		"one of an object of which a part is published": {`c: {type: object, properties: {d: {type: object, properties: {n: {type: string}, pin: {type: string, writeOnly: true}}}}}, d: {type: object, x-gatehouse-from: /c/d, properties: {n: {type: string}}}`, `"c":{"d":{"n":"x","pin":"secret"}}`},
		"one of an object with pointers of its own":     {`cust: {type: object, x-gatehouse-from: c, properties: {n: {type: string, x-gatehouse-from: /nm}, score: {type: string, x-gatehouse-internal: true, x-gatehouse-from: /deep/score}}}, deep: {type: object, x-gatehouse-from: /c/deep, properties: {city: {type: string}}}`, `"c":{"nm":"x","deep":{"city":"y","score":"secret"}}`},
		"a part of an internal object":                  {`raw: {type: object, x-gatehouse-internal: true, x-gatehouse-from: c, properties: {score: {type: string}}}, info: {type: object, x-gatehouse-from: /c/info, properties: {city: {type: string}}}`, `"c":{"info":{"city":"y","score":"secret"}}`},
		"a writeOnly object deeper in one that leaves":  {`card: {type: object, writeOnly: true, properties: {number: {type: string, x-gatehouse-from: /payment/card/number}}}, card_summary: {type: object, x-gatehouse-from: /payment/card, properties: {brand: {type: string}}}`, `"payment":{"card":{"brand":"v","number":"secret"}}`},
		"one of a text that is an object":               {`cust: {type: string}, score: {type: string, x-gatehouse-internal: true, x-gatehouse-from: /cust/score}`, `"cust":{"n":"x","score":"secret"}`},
		"a member that becomes two":                     {`a: {type: object, properties: {n: {type: string, writeOnly: true}}, x-gatehouse-from: x}, b: {type: string, x-gatehouse-from: x}`, `"x":{"n":"secret"}`},
		"values of a map":                               {`m: {type: object, properties: {n: {type: string}}, additionalProperties: {type: string, writeOnly: true}}`, `"m":{"n":"x","pin":"secret"}`},
		"an alternative":                                {`v: {oneOf: [{type: string}, {type: object, writeOnly: true, properties: {pin: {type: string}}}]}`, `"v":{"pin":"secret"}`},
		"an alternative of objects":                     {`v: {oneOf: [{type: object, properties: {n: {type: string}}}, {type: object, writeOnly: true, required: [pin], properties: {pin: {type: string}}}]}`, `"v":{"pin":"secret"}`},
		"an alternative of several objects":             {`v: {oneOf: [{type: object, properties: {n: {type: string}}}, {type: object, properties: {o: {type: string}}}, {type: object, writeOnly: true, properties: {pin: {type: string}}}]}`, `"v":{"pin":"secret"}`},
		"an internal member of another object":          {`v: {oneOf: [{type: object, properties: {n: {type: string}}}, {type: object, required: [b], properties: {b: {type: string}, pin: {type: string, x-gatehouse-internal: true}}}]}`, `"v":{"n":"x","PIN":"secret"}`},
		"one of an object with another constant":        {`v: {oneOf: [{type: object, required: [k], properties: {k: {const: x}}}, {type: object, required: [k], properties: {k: {const: y}, pin: {type: string, x-gatehouse-internal: true, x-gatehouse-from: p}}}]}`, `"v":{"k":"x","p":"secret"}`},
		"an internal member of an object in another":    {`v: {oneOf: [{type: object, required: [k], properties: {k: {const: x}, d: {type: object, properties: {n: {type: string}}}}}, {type: object, required: [k], properties: {k: {const: y}, d: {type: object, properties: {pin: {type: string, x-gatehouse-internal: true}}}}}]}`, `"v":{"k":"x","d":{"n":"x","pin":"secret"}}`},
		"one of an item in another":                     {`v: {anyOf: [{type: object, properties: {d: {type: array, maxItems: 2, items: {type: object, properties: {n: {type: string}}}}}}, {type: object, properties: {b: {type: integer}, d: {type: array, maxItems: 2, items: {type: object, properties: {pin: {type: string, writeOnly: true}}}}}}]}`, `"v":{"b":"x","d":[{"pin":"secret"}]}`},
		"an object that is a text in another":           {`v: {oneOf: [{type: object, required: [k], properties: {k: {const: x}, d: {type: string}}}, {type: object, required: [k], properties: {k: {const: y}, d: {type: object, properties: {pin: {type: string, writeOnly: true}}}}}]}`, `"v":{"k":"x","d":{"pin":"secret"}}`},
		"values of a map of another object":             {`v: {oneOf: [{type: object, required: [k], properties: {k: {const: x}}}, {type: object, required: [k], properties: {k: {const: y}}, additionalProperties: {type: string, writeOnly: true}}]}`, `"v":{"k":"x","pin":"secret"}`},
		"another business's object of another object":   {`v: {oneOf: [{type: object, required: [o], properties: {o: {type: object, properties: {account: {type: string}}}}}, {type: object, properties: {n: {type: string}}}]}`, `"v":{"o":[{"account":"secret"}],"n":"x"}`},
		"an alternative of texts":                       {`v: {oneOf: [{type: integer}, {type: string, writeOnly: true}]}`, `"v":"secret"`},
		"a writeOnly member with another's place":       {name + `pin: {type: string, writeOnly: true, x-gatehouse-from: /x/pin}, x: {type: object, properties: {n: {type: string}}}`, `"x":{"pin":"secret"}`},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			for _, step := range []upstream.Enforcement{upstream.EnforceAll, upstream.EnforceMembers, upstream.EnforceTenant} {
				op, q := operationOf(t, elsewhere(t, step, c.properties, false), http.MethodPost, "/v1/a")
				for _, contract := range []*upstream.Contract{{}, {PassUnknownFields: map[string]bool{"a": true}}} {
					var out bytes.Buffer
					_, _ = contract.Check(&out, op, &op.Responses[0], q, "17", []byte(`{"account":"17",`+c.body+`}`))
					require.NotContains(t, out.String(), "secret", step)
				}
			}
		})
	}
}

// What unknown fields of records pass, at any step, is not what a hidden member has around the records.
func TestUnknownFieldsAreNotHiddenMembers(t *testing.T) {
	t.Parallel()
	for _, step := range []upstream.Enforcement{upstream.EnforceAll, upstream.EnforceMembers, upstream.EnforceTenant} {
		d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: account, paths: {/a: {get: {responses: {"200": {description: "",
			x-gatehouse-records: {in: orders, from: /data/items}, content: {application/json: {schema: {type: object, properties: {
			raw: {type: object, x-gatehouse-internal: true, x-gatehouse-from: data, properties: {n: {type: integer}}},
			orders: {type: array, maxItems: 9, items: {type: object, properties: {account: {type: string}}}}}}}}}}}}}}`, definition.Options{Enforce: step})
		require.NoError(t, err)
		op, q := operationOf(t, d, http.MethodGet, "/v1/a")
		var out bytes.Buffer
		_, err = (&upstream.Contract{PassUnknownFields: map[string]bool{"a": true}}).Check(&out, op, &op.Responses[0], q, "17", []byte(`{"data":{"items":[{"account":"17","pin":"secret"}]}}`))
		require.NoError(t, err)
		require.Equal(t, `{"orders":[{"account":"17"}]}`, out.String(), step)
	}
}

// A service may send back what only bodies have, and it is not taken for one of the further members.
func TestWhatDoesNotLeaveIsNotChecked(t *testing.T) {
	t.Parallel()
	op, q := operationOf(t, elsewhere(t, upstream.EnforceAll, `l: {type: array, maxItems: 2, items: {type: object, additionalProperties: {type: integer},
		properties: {card: {type: object, writeOnly: true, properties: {number: {type: string, x-gatehouse-from: /cc/number}}}}}}`, false), http.MethodPost, "/v1/a")
	var out bytes.Buffer
	_, err := new(upstream.Contract).Check(&out, op, &op.Responses[0], q, "17", []byte(`{"account":"17","l":[{"cc":{"number":"1"},"n":1}]}`))
	require.NoError(t, err)
	require.Equal(t, `{"account":"17","l":[{"n":1}]}`, out.String())
}

func TestPartsAreCounted(t *testing.T) {
	t.Parallel()
	op, q := operationOf(t, elsewhere(t, upstream.EnforceAll, `c: {type: object, minProperties: 2, properties: {n: {type: string, x-gatehouse-from: /nn}, o: {type: string, x-gatehouse-from: /oo}}}`, false), http.MethodPost, "/v1/a")
	var out bytes.Buffer
	_, err := new(upstream.Contract).Check(&out, op, &op.Responses[0], q, "17", []byte(`{"account":"17","nn":"x"}`))
	require.ErrorContains(t, err, "c: expected at least 2 members")
}

// A component such as a customer, which is a record of its own, can be an object inside another record.
func TestPointersBeginAtAnObjectWithAPlaceOfItsOwn(t *testing.T) {
	t.Parallel()
	op, q := operationOf(t, elsewhere(t, upstream.EnforceAll, `customer: {type: [object, "null"], x-gatehouse-from: /Bill/CUST, properties: {
		name: {type: string, x-gatehouse-from: NM}, contact: {type: object, properties: {email: {type: string, x-gatehouse-from: /Contact/MAIL}}}}}`, true), http.MethodPost, "/v1/a")
	for theirs, ours := range map[string]string{
		`{"account":"17","Bill":{"CUST":{"NM":"A","Contact":{"MAIL":"a@b"}}}}`: `{"account":"17","customer":{"name":"A","contact":{"email":"a@b"}}}`,
		`{"account":"17","Bill":{"CUST":{"NM":"A"}}}`:                          `{"account":"17","customer":{"name":"A"}}`,
		`{"account":"17","Bill":{"CUST":null}}`:                                `{"account":"17","customer":null}`,
		`{"account":"17"}`:                                                     `{"account":"17"}`,
	} {
		var out, body bytes.Buffer
		_, err := new(upstream.Contract).Check(&out, op, &op.Responses[0], q, "17", []byte(theirs))
		require.NoError(t, err)
		require.JSONEq(t, ours, out.String())
		_, err = new(upstream.Contract).CheckBody(&body, op, http.Header{"Content-Type": {"application/json"}}, "17", []byte(ours))
		require.NoError(t, err)
		require.JSONEq(t, theirs, body.String())
	}
	_, err := new(upstream.Contract).Check(new(bytes.Buffer), op, &op.Responses[0], q, "17", []byte(`{"account":"17","Bill":{"CUST":{"Contact":{"MAIL":5}}}}`))
	require.ErrorContains(t, err, "customer.contact.email")
}

// What cannot be converted says neither whose an object is nor whether it may be seen.
func TestVisibilityThatCannotBeConvertedIsInvalid(t *testing.T) {
	t.Parallel()
	op, q := operationOf(t, elsewhere(t, upstream.EnforceTenant, `l: {type: array, maxItems: 3, items: {type: object, required: [st], x-gatehouse-visible: {st: [open]},
		properties: {st: {type: string, x-gatehouse-from: {member: s, values: {O: open, C: closed}}}}}}`, false), http.MethodPost, "/v1/a")
	for value, want := range map[string]string{"O": `[{"st":"open"}]`, "C": `[]`, "open": "", "X": ""} {
		var out bytes.Buffer
		_, err := new(upstream.Contract).Check(&out, op, &op.Responses[0], q, "17", []byte(`{"account":"17","l":[{"s":"`+value+`"}]}`))
		require.Equal(t, want == "", err != nil, value)
		require.Contains(t, out.String(), want)
	}
}

func TestAnswersOfTheGatewayAreNotMapped(t *testing.T) {
	t.Parallel()
	d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: none, paths: {/own: {get: {x-gatehouse-answer: {a: b}, responses: {"200": {description: "",
		content: {application/json: {schema: {type: object, required: [a], properties: {a: {type: string, x-gatehouse-from: theirs}}}}}}}}}}}`, definition.Options{})
	require.NoError(t, err)
	require.JSONEq(t, `{"a":"b"}`, string(d.API.Operations()[0].StaticBody))
}

// What callers send would be compared with themselves.
func TestATenantThatCallersSendDoesNotLoad(t *testing.T) {
	t.Parallel()
	for _, from := range []string{`{parameter: acc}`, `{pages: [/total, acc]}`} {
		_, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: account, paths: {/a: {get: {parameters: [{name: acc, in: query, schema: {type: integer, minimum: 1, default: 5}}], responses: {"200": {
			description: "", content: {application/json: {schema: {type: object, properties: {id: {type: string}, account: {type: integer, x-gatehouse-from: `+from+`}}}}}}}}}}}`, definition.Options{})
		require.ErrorContains(t, err, "the tenant account must be what the service sends", from)
	}
}

// Records that are elsewhere than the definition says are not checked for their tenant, so nothing undocumented passes without them.
func TestRecordsElsewhereDoNotPass(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"", ", from: /items/all"} {
		d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: account, paths: {/a: {get: {responses: {"200": {description: "", x-gatehouse-records: {in: orders`+from+`},
			content: {application/json: {schema: {type: object, properties: {n: {type: integer}, orders: {type: [array, "null"], items: {type: object, properties: {account: {type: string}}}}}}}}}}}}}}`, definition.Options{Enforce: upstream.EnforceTenant})
		require.NoError(t, err)
		op, q := operationOf(t, d, http.MethodGet, "/v1/a")
		for body, passes := range map[string]bool{`{"data":[{"account":"18"}]}`: false, `{}`: true, `{"n":1}`: true} {
			var out bytes.Buffer
			_, err = new(upstream.Contract).Check(&out, op, &op.Responses[0], q, "17", []byte(body))
			require.Equal(t, passes, err == nil, "%s %v", strings.TrimSpace(body), err)
		}
	}
}
