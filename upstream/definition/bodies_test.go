package definition_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

const bodiesDocument = `
openapi: 3.1.0
info: {title: Bodies, version: "1"}
x-gatehouse-tenant: business_id
paths:
  /orders:
    post:
      operationId: createOrder
      requestBody: {$ref: "#/components/requestBodies/Order"}
      responses: {"204": {description: Done}}
    delete: {operationId: deleteOrders, responses: {"204": {description: Done}}}
    put:
      operationId: replaceOrder
      requestBody: {content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}}
      responses: {"204": {description: Done}}
    patch:
      operationId: changeOrder
      requestBody:
        required: true
        content:
          application/merge-patch+json: {schema: {$ref: "#/components/schemas/Order"}}
          application/xml: {schema: {type: string}}
      responses: {"204": {description: Done}}
  /payments:
    post:
      requestBody: {required: true, content: {application/json: {schema: {oneOf: [{$ref: "#/components/schemas/Card"}, {$ref: "#/components/schemas/Cash"}]}}}}
      responses: {"204": {description: Done}}
    patch:
      requestBody: {required: true, content: {application/merge-patch+json: {schema: {oneOf: [{$ref: "#/components/schemas/Card"}, {$ref: "#/components/schemas/Cash"}]}}}}
      responses: {"204": {description: Done}}
components:
  requestBodies:
    Order: {required: true, description: x, content: {"application/json": {schema: {$ref: "#/components/schemas/Order"}}}}
  schemas:
    Id: {type: string, readOnly: true}
    Audit: {type: object, required: [by], properties: {by: {type: string, readOnly: true}, note: {type: string}}}
    Order:
      required: [id, number, state, secret, business_id]
      allOf:
        - {$ref: "#/components/schemas/Audit"}
        - type: object
          properties:
            id: {$ref: "#/components/schemas/Id"}
            business_id: {type: integer}
            created: {type: string, format: date-time, readOnly: true}
            score: {type: integer, x-gatehouse-internal: true}
            number: {type: [string, "null"], minLength: 2, maxLength: 5}
            state: {enum: [open, paid]}
            secret: {type: string, writeOnly: true}
            amount: {type: number, minimum: 0}
            count: {type: integer}
            paid: {type: boolean}
            when: {type: string, format: date}
            tags: {type: array, maxItems: 3, uniqueItems: true, items: {type: string, minLength: 1}}
            lines: {type: array, items: {type: object, required: [sku], properties: {sku: {type: string}, id: {type: integer, readOnly: true}, price: {type: number, default: 5}}}}
            labels: {type: object, properties: {Main: {type: string}}, additionalProperties: {type: string, maxLength: 3}}
            extra: {type: object, additionalProperties: true}
            nothing: {type: "null"}
            address: {type: [object, "null"], required: [city], properties: {city: {type: string}, street: {type: string}}}
        - type: object
          properties: {id: {type: string}, by: {type: string}}
    Card: {type: object, required: [kind, number], properties: {kind: {const: card}, number: {type: string}, code: {type: string, readOnly: true}}}
    Cash: {type: object, required: [kind, amount], properties: {kind: {const: cash}, amount: {type: number}, code: {type: string}}}
`

// checkBody returns what the data service gets, or the violations as "pointer reason", and the media type.
func checkBody(t testing.TB, method, path, contentType, body string) (sent, media string, err error) {
	t.Helper()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(bodiesDocument)}, definition.Options{})
	require.NoError(t, err)
	m, ok := d.API.Match(path)
	require.True(t, ok)
	var out bytes.Buffer
	media, err = new(upstream.Contract).CheckBody(&out, m.Path.Operation(method), http.Header{"Content-Type": {contentType}}, "17", []byte(body))
	return out.String(), media, err
}

func violations(err error) (all []string) {
	if invalid, ok := errors.AsType[*upstream.BodyError](err); ok {
		for _, v := range invalid.Violations {
			all = append(all, strings.TrimSpace(v.Pointer+" "+v.Reason))
		}
	}
	return all
}

// valid is a body of createOrder, with further members.
func valid(more string) string {
	return `{"number":"A1","state":"open","secret":"s","business_id":17` + more + `}`
}

func TestDataServicesGetTheBodyThatWasChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, want string }{
		"compact, in the definition's order": {
			" {\n \"secret\" : \"s\", \"state\":\"open\",\"number\":\"A1\" , \"business_id\": 17, \"note\":\"n\"}\t\n",
			`{"note":"n","business_id":17,"number":"A1","state":"open","secret":"s"}`,
		},
		"strings are encoded again":          {valid(`,"n\u006fte":"\u0041\/\n\u00fc\ud83d\ude00\u001f"`), `{"note":"A/\nü😀\u001f","business_id":17,"number":"A1","state":"open","secret":"s"}`},
		"the business as a string":           {`{"number":"A1","state":"open","secret":"s","business_id":"17"}`, `{"business_id":"17","number":"A1","state":"open","secret":"s"}`},
		"null where the type has it":         {`{"number":null,"state":"open","secret":"s","business_id":17,"address":null}`, `{"business_id":17,"number":null,"state":"open","secret":"s","address":null}`},
		"numbers as they were written":       {valid(`,"amount":12.50,"count":-0`), `{"business_id":17,"number":"A1","state":"open","secret":"s","amount":12.50,"count":-0}`},
		"a number with an exponent":          {valid(`,"amount":1.5E+3`), `{"business_id":17,"number":"A1","state":"open","secret":"s","amount":1.5E+3}`},
		"defaults are not filled in":         {valid(`,"lines":[{"sku":"a"}]`), `{"business_id":17,"number":"A1","state":"open","secret":"s","lines":[{"sku":"a"}]}`},
		"maps, with names encoded again":     {valid(`,"labels":{"\u0061":"x","Main":"y","b":"z"}`), `{"business_id":17,"number":"A1","state":"open","secret":"s","labels":{"Main":"y","a":"x","b":"z"}}`},
		"free JSON":                          {valid(`,"extra":{"a":[1,{"b":"\u0062"}],"c":null}`), `{"business_id":17,"number":"A1","state":"open","secret":"s","extra":{"a":[1,{"b":"b"}],"c":null}}`},
		"objects out of the documents order": {valid(`,"address":{"street":"x","city":"y"},"lines":[{"price":1,"sku":"a"},{"sku":"b"}],"amount":1`), `{"business_id":17,"number":"A1","state":"open","secret":"s","amount":1,"lines":[{"sku":"a","price":1},{"sku":"b"}],"address":{"city":"y","street":"x"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent, media, err := checkBody(t, http.MethodPost, "/orders", "application/json; charset=UTF-8", c.body)
			require.NoError(t, err)
			require.Equal(t, c.want, sent)
			require.Equal(t, "application/json", media)
		})
	}
}

func TestInvalidBodiesAreListedByPointerAndReason(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70)
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"nothing":              {"", []string{"is required"}},
		"no JSON":              {"number=A1", []string{"expected a complete JSON document (byte 9)"}},
		"not UTF-8":            {valid(",\"note\":\"\xff\""), []string{"expected valid JSON in UTF-8 (byte 68)"}},
		"a byte order mark":    {"\ufeff" + valid(""), []string{"expected valid JSON in UTF-8 (byte 0)"}},
		"half a document":      {`{"number":"A`, []string{"expected a complete JSON document (byte 12)"}},
		"two documents":        {valid("") + valid(""), []string{"expected nothing after the JSON document"}},
		"a comment":            {valid("/*x*/"), []string{"expected valid JSON in UTF-8 (byte 57)"}},
		"a comma too many":     {valid(","), []string{"expected valid JSON in UTF-8 (byte 60)"}},
		"other quotes":         {`{'number': 1}`, []string{"expected valid JSON in UTF-8 (byte 1)"}},
		"more wrong than JSON": {valid(`,"admin":1,"count":"x","note":tru`), []string{"expected valid JSON in UTF-8 (byte 89)"}},
		"a lone surrogate":     {valid(`,"note":"\ud800"`), []string{"expected valid JSON in UTF-8 (byte 67)"}},
		"a control character":  {valid(",\"note\":\"a\nb\""), []string{"expected valid JSON in UTF-8 (byte 67)"}},
		"not an object":        {`[]`, []string{"expected an object"}},
		"null":                 {`null`, []string{"expected an object"}},
		"all that is missing":  {`{}`, []string{"/business_id is required", "/number is required", "/state is required", "/secret is required"}},
		"what is missing although it may be null": {`{"state":"open","secret":"s","business_id":17}`, []string{"/number is required"}},

		// mass assignment
		"an undocumented member":       {valid(`,"admin":true`), []string{"/admin is not a documented member"}},
		"an undocumented one, nested":  {valid(`,"lines":[{"sku":"a"},{"sku":"b","cost":{"x":1}}]`), []string{"/lines/1/cost is not a documented member"}},
		"one that is internal":         {valid(`,"score":1`), []string{"/score is not a documented member"}},
		"an internal one as null":      {valid(`,"score":null`), []string{"/score is not a documented member"}},
		"one that is read-only":        {valid(`,"created":"2026-01-01T00:00:00Z"`), []string{"/created is read-only"}},
		"a read-only one as an object": {valid(`,"created":{"a":{}}`), []string{"/created is read-only"}},
		"a read-only one as null":      {valid(`,"created":null`), []string{"/created is read-only"}},
		"read-only by a reference":     {valid(`,"id":"x"`), []string{"/id is read-only"}},
		"read-only in one part":        {valid(`,"by":"x"`), []string{"/by is read-only"}},
		"read-only in a list":          {valid(`,"lines":[{"sku":"a","id":1}]`), []string{"/lines/0/id is read-only"}},
		"another case":                 {valid(`,"Number":"B2"`), []string{"/Number is not a documented member"}},
		"another case in a map":        {valid(`,"labels":{"main":"x"}`), []string{"/labels/main is not a documented member"}},
		"a name with an escape":        {valid(`,"st\u0061te":"paid"`), []string{"/state is given twice"}},
		"a member twice":               {valid(`,"number":"B2"`), []string{"/number is given twice"}},
		"a member twice, nested":       {valid(`,"lines":[{"sku":"a","sku":"b"}]`), []string{"/lines/0/sku is given twice"}},
		"a name of a map twice":        {valid(`,"labels":{"a":"x","\u0061":"y"}`), []string{"expected no duplicate names in an object"}},
		"names of free JSON twice":     {valid(`,"extra":{"a":{"b":1,"b":2}}`), []string{"expected no duplicate names in an object"}},
		"pointers are escaped":         {valid(`,"a/b~c":1`), []string{"/a~1b~0c is not a documented member"}},
		"long names are cut":           {valid(`,"` + strings.Repeat("x", 300) + `":1`), []string{"/" + strings.Repeat("x", 64) + "… is not a documented member"}},
		"another business":             {`{"number":"A1","state":"open","secret":"s","business_id":18}`, []string{"/business_id is not your own business"}},
		"another business, as a text":  {`{"number":"A1","state":"open","secret":"s","business_id":"018"}`, []string{"/business_id is not your own business"}},
		"no business":                  {`{"number":"A1","state":"open","secret":"s","business_id":null}`, []string{"/business_id expected a string or an integer of at most 18 digits", "/business_id is not your own business"}},

		// values
		"another type":               {valid(`,"paid":"true"`), []string{"/paid expected true or false"}},
		"an object for a text":       {valid(`,"note":{"$ne":null}`), []string{"/note expected a string"}},
		"a list for a text":          {valid(`,"note":["x"]`), []string{"/note expected a string"}},
		"a text for null":            {valid(`,"nothing":"x"`), []string{"/nothing expected null"}},
		"null for a text":            {valid(`,"note":null`), []string{"/note expected a string"}},
		"too short":                  {`{"number":"ü","state":"open","secret":"s","business_id":17}`, []string{"/number is too short"}},
		"too long":                   {`{"number":"üüüüüü","state":"open","secret":"s","business_id":17}`, []string{"/number is too long"}},
		"none of the values":         {`{"number":"A1","state":"lost","secret":"s","business_id":17}`, []string{"/state is not one of the possible values"}},
		"another format":             {valid(`,"when":"2026-02-30"`), []string{"/when expected a date, YYYY-MM-DD"}},
		"too small":                  {valid(`,"amount":-1`), []string{"/amount is too small"}},
		"minus zero":                 {valid(`,"amount":-0`), []string{"/amount is too small"}},
		"a text for a number":        {valid(`,"amount":"1"`), []string{"/amount expected a number"}},
		"a fraction":                 {valid(`,"count":1.0`), []string{"/count expected an integer of at most 18 digits"}},
		"an exponent":                {valid(`,"count":1e2`), []string{"/count expected an integer of at most 18 digits"}},
		"a huge integer":             {valid(`,"count":1000000000000000000`), []string{"/count expected an integer of at most 18 digits"}},
		"a number in a text":         {valid(`,"count":"1"`), []string{"/count expected an integer of at most 18 digits"}},
		"a huge number":              {valid(`,"amount":1e309`), []string{"/amount expected numbers of at most 64 characters, between -1e308 and 1e308"}},
		"a long number":              {valid(`,"amount":0.` + strings.Repeat("1", 63)), []string{"/amount expected numbers of at most 64 characters, between -1e308 and 1e308"}},
		"zero with a huge exponent":  {valid(`,"amount":0e99999`), []string{"/amount expected numbers of at most 64 characters, between -1e308 and 1e308"}},
		"a huge number in free JSON": {valid(`,"extra":{"a":["1e999\"",1e999]}`), []string{"/extra/a expected numbers of at most 64 characters, between -1e308 and 1e308"}},
		"hexadecimal":                {valid(`,"count":0x10`), []string{"expected valid JSON in UTF-8 (byte 68)"}},
		"a plus sign":                {valid(`,"count":+1`), []string{"expected valid JSON in UTF-8 (byte 68)"}},
		"a leading zero":             {valid(`,"count":017`), []string{"expected valid JSON in UTF-8 (byte 68)"}},
		"no number":                  {valid(`,"amount":NaN`), []string{"expected valid JSON in UTF-8 (byte 69)"}},
		"too many items":             {valid(`,"tags":["a","b","c","d"]`), []string{"/tags expected at most 3 items"}},
		"what is after the last":     {valid(`,"tags":["a","b","c",1,{"a":[2]}]`), []string{"/tags expected at most 3 items"}},
		"the same item twice":        {valid(`,"tags":["a","\u0061"]`), []string{"/tags expected different items"}},
		"an invalid item":            {valid(`,"tags":["a",""]`), []string{"/tags/1 is too short"}},
		"an invalid value of a map":  {valid(`,"labels":{"a b":"long"}`), []string{"/labels/a b is too long"}},
		"a required member, nested":  {valid(`,"address":{}`), []string{"/address/city is required"}},
		"too deep":                   {valid(`,"extra":` + deep), []string{"expected objects and arrays at most 48 deep"}},
		"everything at once": {
			`{"number":1,"state":2,"secret":3,"business_id":17,"lines":[{"sku":1},{}],"x":1}`,
			[]string{"/number expected a string", "/state expected a string", "/secret expected a string", "/lines/0/sku expected a string", "/lines/1/sku is required", "/x is not a documented member"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent, _, err := checkBody(t, http.MethodPost, "/orders", "application/json", c.body)
			require.ErrorIs(t, err, upstream.ErrInvalidBody)
			require.Equal(t, c.want, violations(err))
			require.Empty(t, sent)
		})
	}
}

func TestAtMostFiftyViolationsAreListed(t *testing.T) {
	t.Parallel()
	_, _, err := checkBody(t, http.MethodPost, "/orders", "application/json", valid(`,"extra":`+strings.Repeat("9", 9)+`,"lines":[`+strings.Repeat("1,", 100_000)+`1]`))
	all := violations(err)
	require.Len(t, all, 50)
	require.Equal(t, "/lines/48 expected an object", all[49])
	text, err := json.Marshal(upstream.Violation{Pointer: "/a", Reason: "b"})
	require.NoError(t, err)
	require.JSONEq(t, `{"pointer":"/a","reason":"b"}`, string(text))
}

// A pattern of which a text may be at many places at once would take minutes for a body of 1 MiB.
func TestExpensivePatternsTakeBoundedTime(t *testing.T) {
	t.Parallel()
	text := strings.Replace(bodiesDocument, "count: {type: integer}", `count: {type: array, items: {type: string, pattern: ".{1,900}b$"}}`, 1)
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(text)}, definition.Options{})
	require.NoError(t, err)
	m, _ := d.API.Match("/orders")
	for name, c := range map[string]struct {
		length, items int
		want          string
	}{
		"long texts":  {60_000, 16, "/count/15 is too expensive to check"},
		"short texts": {4000, 240, "/count/49 is too expensive to check"},
		"one text":    {500, 1, "/count/0 does not have the required form"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			long := `"` + strings.Repeat("ü", c.length/2) + `"`
			var out bytes.Buffer
			_, err := new(upstream.Contract).CheckBody(&out, m.Path.Operation(http.MethodPost), http.Header{"Content-Type": {"application/json"}}, "17",
				[]byte(valid(`,"count":[`+strings.Repeat(long+",", c.items-1)+long+`]`)))
			all := violations(err)
			require.Equal(t, c.want, all[len(all)-1])
		})
	}
}

// A value is not compared with each of the possible ones: a body of 1 MiB would take a minute otherwise.
func TestManyPossibleValuesCostLittle(t *testing.T) {
	t.Parallel()
	var values, bodies strings.Builder
	for i := range 9_990 {
		fmt.Fprintf(&values, "%d.5, ", i)
	}
	load := func(values string) *upstream.API {
		text := strings.Replace(bodiesDocument, "count: {type: integer}", "count: {type: array, maxItems: 1000000, items: {enum: ["+values+"100e1, true]}}", 1)
		d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(text)}, definition.Options{})
		require.NoError(t, err)
		return d.API
	}
	many, few := load(values.String()), load("0.5, 5.5, 998.5, 9989.5, ")
	for _, value := range []string{"9989.5", "1000", "9.985e2", "0.0055E3", "true"} {
		bodies.WriteString(strings.Repeat(value+",", 40_000))
	}
	check := func(api *upstream.API, last string) error {
		var out bytes.Buffer
		m, _ := api.Match("/orders")
		_, err := new(upstream.Contract).CheckBody(&out, m.Path.Operation(http.MethodPost), http.Header{"Content-Type": {"application/json"}}, "17", []byte(valid(`,"count":[`+bodies.String()+last+`]`)))
		return err
	}
	fastest := func(api *upstream.API) time.Duration { // of three, because the machine may be busy
		least := time.Duration(math.MaxInt64)
		for range 3 {
			start := time.Now()
			require.NoError(t, check(api, "0.50"))
			least = min(least, time.Since(start))
		}
		return least
	}
	require.Less(t, fastest(many), 50*fastest(few), "for 2,000 times as many values")
	for _, other := range []string{"-0.5", "0.05", "10000.5", "1", "false", "-0", "5e-2"} {
		require.Equal(t, []string{"/count/200000 is not one of the possible values"}, violations(check(many, other)), other)
	}
}

func TestMergePatchesHaveNoRequiredMembersOfTheirOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path, body, want string
		violations       []string
	}{
		"one member":                           {"/orders", `{"number":null}`, `{"number":null}`, nil},
		"none":                                 {"/orders", `{}`, `{}`, nil},
		"null where the type does not have it": {"/orders", `{"state":null}`, "", []string{"/state expected a string"}},
		"a nested object's required member":    {"/orders", `{"address":{"street":"x"}}`, "", []string{"/address/city is required"}},
		"a read-only member":                   {"/orders", `{"created":null}`, "", []string{"/created is read-only"}},
		"the business is taken away":           {"/orders", `{"business_id":null}`, "", []string{"/business_id expected a string or an integer of at most 18 digits", "/business_id is not your own business"}},
		"an alternative's member":              {"/payments", `{"kind":"cash","amount":5}`, `{"kind":"cash","amount":5}`, nil},
		"an alternative's other members":       {"/payments", `{"kind":"cash"}`, `{"kind":"cash"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent, media, err := checkBody(t, http.MethodPatch, c.path, "application/merge-patch+json", c.body)
			require.Equal(t, c.violations, violations(err))
			if require.Equal(t, c.want, sent); c.violations == nil {
				require.NoError(t, err)
				require.Equal(t, "application/merge-patch+json", media)
			}
		})
	}
}

func TestAChoiceOfABodyIsOneAlternativeWhole(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"the first":                       {`{"kind":"card","number":"1"}`, nil},
		"the second":                      {`{"kind":"cash","amount":1,"code":"x"}`, nil},
		"the members of the other":        {`{"kind":"card","number":"1","amount":1}`, []string{"/amount is not a documented member"}},
		"what only the other may set":     {`{"kind":"card","number":"1","code":"x"}`, []string{"/code is read-only"}},
		"valid for the other":             {`{"kind":"card","amount":1}`, []string{"/amount is not a documented member", "/number is required"}},
		"neither":                         {`{"kind":"cheque","amount":1}`, []string{"/kind is not one of the possible values"}},
		"neither, as null":                {`{"kind":null}`, []string{"/kind is not one of the possible values"}},
		"neither, as an empty text":       {`{"kind":""}`, []string{"/kind is not one of the possible values"}},
		"both in a list":                  {`{"kind":["card","cash"]}`, []string{"/kind is not one of the possible values"}},
		"no kind":                         {`{"amount":1}`, []string{"/kind is required"}},
		"nothing":                         {`{}`, []string{"/kind is required"}},
		"a list":                          {`[]`, []string{"expected one of the alternatives"}},
		"the deciding member comes twice": {`{"kind":"card","number":"1","kind":"cash"}`, []string{"/kind is given twice"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent, _, err := checkBody(t, http.MethodPost, "/payments", "application/json", c.body)
			if require.Equal(t, c.want, violations(err)); c.want == nil {
				require.NoError(t, err)
				require.Equal(t, c.body, sent)
			}
		})
	}
}

func TestBoundsOfOneAreInTheSingular(t *testing.T) {
	t.Parallel()
	for schema, c := range map[string]struct{ body, want string }{
		`{type: array, minItems: 1, maxItems: 9, items: {type: integer}}`:                                            {`[]`, "expected 1 to 9 items"},
		`{type: array, maxItems: 1, items: {type: integer}}`:                                                         {`[1,2]`, "expected at most 1 item"},
		`{type: array, minItems: 1, maxItems: 1, items: {type: integer}}`:                                            {`[]`, "expected 1 item"},
		`{type: object, minProperties: 1, properties: {a: {type: integer}}}`:                                         {`{}`, "expected at least 1 member"},
		`{type: object, minProperties: 2, properties: {a: {type: integer}, b: {type: integer}, c: {type: integer}}}`: {`{"a":1}`, "expected at least 2 members"},
		`{type: object, maxProperties: 1, additionalProperties: {type: integer}}`:                                    {`{"a":1,"b":1}`, "expected at most 1 member"},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: none, paths: {/x: {post: {
				requestBody: {content: {application/json: {schema: `+schema+`}}}, responses: {"204": {description: ""}}}}}}`, definition.Options{})
			require.NoError(t, err)
			m, _ := d.API.Match("/x")
			_, err = new(upstream.Contract).CheckBody(new(bytes.Buffer), m.Path.Operation(http.MethodPost), http.Header{"Content-Type": {"application/json"}}, "17", []byte(c.body))
			require.Equal(t, []string{c.want}, violations(err))
		})
	}
}

// What is readOnly is never accepted, and what is writeOnly never leaves, wherever the document says it.
func TestOnlyOneSideSeesAMemberWhereverTheDocumentSaysSo(t *testing.T) {
	t.Parallel()
	const text = `
openapi: 3.1.0
info: {title: x, version: "1"}
x-gatehouse-tenant: none
paths:
  /x:
    post:
      requestBody: {content: {application/json: {schema: {$ref: "#/components/schemas/Body"}}}}
      responses: {"200": {description: "", content: {application/json: {schema: {$ref: "#/components/schemas/Body"}}}}}
components:
  schemas:
    Body: {type: object, required: [p], properties: {p: SCHEMA}}
    Id: {type: string, SIDE: true}
    Text: {type: string}
    Null: {type: "null"}
    Choice: {SIDE: true, oneOf: [{type: string}, {type: integer}]}
    Beside: {$ref: "#/components/schemas/Text", SIDE: true}
`
	for name, c := range map[string]struct{ schema, body, reason string }{
		"in an alternative beside null":  {`{oneOf: [{$ref: "#/components/schemas/Id"}, {type: "null"}]}`, `{"p":"secret"}`, "is read-only"},
		"null of such a choice":          {`{oneOf: [{$ref: "#/components/schemas/Id"}, {type: "null"}]}`, `{"p":null}`, "is read-only"},
		"beside a reference to null":     {`{oneOf: [{$ref: "#/components/schemas/Id"}, {$ref: "#/components/schemas/Null"}]}`, `{"p":"secret"}`, "is read-only"},
		"beside a constant null":         {`{oneOf: [{$ref: "#/components/schemas/Id"}, {enum: [null]}]}`, `{"p":"secret"}`, "is read-only"},
		"in all alternatives":            {`{oneOf: [{$ref: "#/components/schemas/Id"}, {type: integer, SIDE: true}]}`, `{"p":1}`, "is read-only"},
		"of a choice that is referred":   {`{$ref: "#/components/schemas/Choice"}`, `{"p":"secret"}`, "is read-only"},
		"of a choice in an allOf":        {`{allOf: [{$ref: "#/components/schemas/Choice"}]}`, `{"p":"secret"}`, "is read-only"},
		"in a part of a choice":          {`{oneOf: [{type: string}, {type: integer}], allOf: [{SIDE: true}]}`, `{"p":"secret"}`, "is read-only"},
		"beside a reference elsewhere":   {`{$ref: "#/components/schemas/Beside"}`, `{"p":"secret"}`, "is read-only"},
		"beside a reference in an allOf": {`{allOf: [{$ref: "#/components/schemas/Text", SIDE: true}]}`, `{"p":"secret"}`, "is read-only"},
		"on the items of a list":         {`{type: array, maxItems: 9, items: {$ref: "#/components/schemas/Id"}}`, `{"p":["secret"]}`, "is read-only"},
		"in one alternative":             {`{oneOf: [{$ref: "#/components/schemas/Id"}, {type: boolean}]}`, `{"p":"secret"}`, "expected true or false"},
		"in one of several alternatives": {`{oneOf: [{$ref: "#/components/schemas/Id"}, {type: boolean}, {type: integer}]}`, `{"p":"secret"}`, "expected one of the alternatives"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, side := range []string{"readOnly", "writeOnly"} {
				d, err := load(strings.NewReplacer("SCHEMA", strings.ReplaceAll(c.schema, "SIDE", side), "SIDE", side).Replace(text), definition.Options{})
				require.NoError(t, err)
				m, _ := d.API.Match("/x")
				op := m.Path.Operation(http.MethodPost)
				var out bytes.Buffer
				if side == "readOnly" {
					_, err = new(upstream.Contract).CheckBody(&out, op, http.Header{"Content-Type": {"application/json"}}, "17", []byte(c.body))
					require.Equal(t, []string{"/p " + c.reason}, violations(err))
				} else {
					_, err = new(upstream.Contract).Check(&out, op, &op.Responses[0], upstream.Query{}, "17", []byte(c.body))
					require.Equal(t, c.reason == "is read-only", err == nil, "an alternative that does not count does not fit")
				}
				require.NotContains(t, out.String(), "p")
			}
		})
	}
}

// Of two arrays in each other, one is hidden, and the other because of it, whichever is met first.
func TestOnlyOneSideSeesArraysInACircle(t *testing.T) {
	t.Parallel()
	for _, members := range []string{"a: A, b: B", "b: B, a: A"} {
		d, err := load(`
openapi: 3.1.0
x-gatehouse-tenant: none
paths:
  /x: {get: {responses: {"200": {content: {application/json: {schema: {type: object, properties: {`+
			regexp.MustCompile(`[AB]`).ReplaceAllString(members, `{$$ref: "#/components/schemas/$0"}`)+`}}}}}}}}
components:
  schemas:
    A: {type: array, maxItems: 3, items: {$ref: "#/components/schemas/B"}, allOf: [{writeOnly: true}]}
    B: {type: array, maxItems: 3, items: {$ref: "#/components/schemas/A"}}
`, definition.Options{})
		require.NoError(t, err)
		op := d.API.Operations()[0]
		var out bytes.Buffer
		_, err = new(upstream.Contract).Check(&out, op, &op.Responses[0], upstream.Query{}, "17", []byte(`{"a":[[]],"b":[[]]}`))
		require.NoError(t, err)
		require.JSONEq(t, `{}`, out.String())
	}
}

// A member that only one schema declares is one of the further members of another schema that must hold.
func TestOnlyOneSideSeesTheFurtherMembersOfAnotherSchema(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"[DECLARED, FURTHER]", "[FURTHER, DECLARED]"} {
		for _, side := range []string{"readOnly", "writeOnly"} {
			d, err := load(strings.NewReplacer("ORDER", strings.NewReplacer("DECLARED", "{properties: {a: {type: string}}}",
				"FURTHER", "{properties: {b: {type: string}}, additionalProperties: {type: string, "+side+": true}}").Replace(order)).Replace(`
openapi: 3.1.0
x-gatehouse-tenant: none
paths:
  /x:
    post:
      requestBody: {content: {application/json: {schema: {allOf: ORDER}}}}
      responses: {"200": {content: {application/json: {schema: {allOf: ORDER}}}}}
`), definition.Options{})
			require.NoError(t, err)
			op := d.API.Operations()[0]
			var out bytes.Buffer
			if side == "readOnly" {
				_, err = new(upstream.Contract).CheckBody(&out, op, http.Header{"Content-Type": {"application/json"}}, "17", []byte(`{"a":"x","b":"y"}`))
				require.Equal(t, []string{"/a is read-only"}, violations(err))
			} else {
				_, err = new(upstream.Contract).Check(&out, op, &op.Responses[0], upstream.Query{}, "17", []byte(`{"a":"x","b":"y","c":"z"}`))
				require.NoError(t, err)
				require.JSONEq(t, `{"b":"y"}`, out.String())
			}
		}
	}
}

// Which business calls is known, even if the records of an operation do not say whose they are.
func TestBodiesNameTheOwnBusinessWhateverTheTenantOfTheResponse(t *testing.T) {
	t.Parallel()
	for extension, checked := range map[string]bool{"x-gatehouse-tenant: request": true, "x-gatehouse-tenant: none": true, "x-gatehouse-tenant: none\n      x-gatehouse-public: true": false} {
		d, err := load(strings.Replace(bodiesDocument, "operationId: createOrder", "operationId: createOrder\n      "+extension, 1), definition.Options{})
		require.NoError(t, err)
		m, _ := d.API.Match("/orders")
		check := func(body string) error {
			_, err := new(upstream.Contract).CheckBody(new(bytes.Buffer), m.Path.Operation(http.MethodPost), http.Header{"Content-Type": {"application/json"}}, "17", []byte(body))
			return err
		}
		require.NoError(t, check(valid("")), extension)
		if err = check(strings.Replace(valid(""), "17", "18", 1)); checked {
			require.Equal(t, []string{"/business_id is not your own business"}, violations(err), extension)
		} else {
			require.NoError(t, err, "nobody knows whose request it is")
		}
	}
}

// A service that takes all members of a body as they are would make the record another business's.
func TestFurtherMembersNameTheOwnBusiness(t *testing.T) {
	t.Parallel()
	const schema = `{type: object, properties: {sku: {type: string}, n: {type: object, properties: {a: {type: string}}, additionalProperties: true}, m: {type: object, additionalProperties: true},
		o: {type: object, properties: {a: {type: string}}, additionalProperties: {type: [string, integer]}}}, additionalProperties: true}`
	text := strings.Replace(bodiesDocument, `requestBody: {$ref: "#/components/requestBodies/Order"}`, "requestBody: {content: {application/json: {schema: "+schema+"}}}", 1)
	d, err := load(text, definition.Options{})
	require.NoError(t, err)
	require.Contains(t, warnings(d), "callers may send any JSON here, and it is not checked")
	m, _ := d.API.Match("/orders")
	for body, want := range map[string][]string{
		`{"sku":"a","business_id":"17","x":1,"":2}`: nil,
		`{"Business_Id":17}`:                        nil,
		`{"m":{"business_id":"18"}}`:                nil, // a value of its own, and not the record's
		`{"business_id":"18"}`:                      {"/business_id is not your own business"},
		`{"Business_ID":null}`:                      {"/Business_ID is not your own business"},
		`{"business\u005fid":{"id":17}}`:            {"/business_id is not your own business"},
		`{"n":{"business_id":18}}`:                  {"/n/business_id is not your own business"},
		`{"o":{"a":"x","business_id":"18"}}`:        {"/o/business_id is not your own business"},
		`{"o":{"a":"x","businessId":17,"b":"18"}}`:  nil,
		`{"businessId":"17"}`:                       nil, // services bind other spellings, too
		`{"businessId":"18"}`:                       {"/businessId is not your own business"},
		`{"business-id":18,"BUSINESS.ID":18}`:       {"/business-id is not your own business", "/BUSINESS.ID is not your own business"},
		`{"n":{"bu\u017finessID":[17]}}`:            {"/n/buſinessID is not your own business"},
		`{"business_ids":18,"business":18,"id":18}`: nil,
	} {
		_, err := new(upstream.Contract).CheckBody(new(bytes.Buffer), m.Path.Operation(http.MethodPost), http.Header{"Content-Type": {"application/json"}}, "17", []byte(body))
		require.Equal(t, want, violations(err), body)
		require.Equal(t, want == nil, err == nil, body)
	}
}

// A service takes what it gets by its own names: by that of the member from which the tenant comes, and by that of a value that is the business.
func TestBodiesNameTheOwnBusinessByTheNamesOfTheService(t *testing.T) {
	t.Parallel()
	const document = `{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: business,
		x-gatehouse-upstream: {query: {firm_no: "{business}", state: open}, headers: {X-Customer: "{business}"}}, paths: {/orders: {
		post: {requestBody: {content: {MEDIA: {schema: {type: object, SCHEMA}}}}, TENANT responses: {"204": {description: x}}},
		get: {responses: {"200": {description: x, content: {application/json: {schema: {type: array, items: {type: object, properties: {business: {type: string, x-gatehouse-from: FROM}}}}}}}}}}}}`
	const further = `properties: {title: {type: string}, n: {type: object, properties: {a: {type: string}}, additionalProperties: true}, m: {type: object, additionalProperties: true}}, additionalProperties: true`
	const declared = `properties: {owner: {type: [string, "null"], x-gatehouse-from: account_id}, to: {type: object, properties: {ref: {type: string, x-gatehouse-from: /of/accountId}}},
		lines: {type: array, items: {type: object, properties: {firmNo: {type: integer}, id: {type: integer}}}}, account.id: {type: string, readOnly: true}, customer: {type: string}}`
	const choice = `properties: {account: {anyOf: [{type: string}, {type: integer}, {type: object, additionalProperties: true}]}, firm_no: {type: object, properties: {a: {type: string}}}}`
	for name, c := range map[string]struct{ schema, from, body, sent, want string }{
		"a further member":                         {further, "account_id", `{"title":"x","account_id":"18"}`, "", "/account_id is not your own business"},
		"its own":                                  {further, "account_id", `{"title":"x","accountId":17}`, `{"title":"x","accountId":17}`, ""},
		"in another spelling":                      {further, "{member: account_id}", `{"Account-ID":{"id":17}}`, "", "/Account-ID is not your own business"},
		"a further member further inside":          {further, "account_id", `{"n":{"accountId":null}}`, "", "/n/accountId is not your own business"},
		"a value of its own":                       {further, "account_id", `{"m":{"account_id":18}}`, `{"m":{"account_id":18}}`, ""},
		"the name in the query":                    {further, "account_id", `{"firmNo":[17]}`, "", "/firmNo is not your own business"},
		"the name of a header, or of other values": {further, "account_id", `{"X-Customer":18,"customer":18,"state":18}`, `{"X-Customer":18,"customer":18,"state":18}`, ""},
		"the tenant's own name":                    {further, "account_id", `{"Business":18}`, "", "/Business is not your own business"},
		"the end of a pointer":                     {further, "/meta/account_id", `{"account_id":18}`, "", "/account_id is not your own business"},
		"the end of a pointer that says little":    {further, "/account/id", `{"accountId":18}`, "", "/accountId is not your own business"},
		"an id":                                    {further, "/account/id", `{"id":18}`, `{"id":18}`, ""},
		"an id that the tenant comes from":         {further, "id", `{"id":18}`, `{"id":18}`, ""},
		"a declared member":                        {declared, "account_id", `{"owner":"18"}`, "", "/owner is not your own business"},
		"a second declared member":                 {`properties: {business: {type: string}, owner: {type: string, x-gatehouse-from: account_id}}`, "account_id", `{"business":"17","owner":"18"}`, "", "/owner is not your own business"},
		"a declared member of its own":             {declared, "account_id", `{"owner":"17","customer":"18"}`, `{"account_id":"17","customer":"18"}`, ""},
		"a declared member that is null":           {declared, "account_id", `{"owner":null}`, "", "/owner is not your own business"},
		"a declared member of an object":           {declared, "account_id", `{"to":{"ref":"18"}}`, "", "/to/ref is not your own business"},
		"a declared member of an item":             {declared, "account_id", `{"lines":[{"firmNo":17,"id":18},{"firmNo":18}]}`, "", "/lines/1/firmNo is not your own business"},
		"a member that is read-only":               {declared, "account_id", `{"account.id":"17"}`, "", "/account.id is read-only"},
		"other names":                              {declared, "firm", `{"owner":"18","to":{"ref":"18"}}`, `{"account_id":"18","of":{"accountId":"18"}}`, ""},
		"a choice":                                 {choice, "account", `{"account":"18"}`, "", "/account is not your own business"},
		"another alternative":                      {choice, "account", `{"account":{"id":17}}`, "", "/account is not your own business"},
		"the right alternative":                    {choice, "account", `{"account":17}`, `{"account":17}`, ""},
		"a member that cannot be an ID":            {choice, "firm", `{"account":"18","firm_no":{"a":"x"}}`, `{"account":"18","firm_no":{"a":"x"}}`, ""},
	} {
		for _, media := range []string{"application/json", "application/merge-patch+json"} {
			for tenant, checked := range map[string]bool{"": true, "x-gatehouse-tenant: request,": true, "x-gatehouse-tenant: none,": true, "x-gatehouse-tenant: none, x-gatehouse-public: true,": false} {
				d, err := load(strings.NewReplacer("MEDIA", media, "SCHEMA", c.schema, "TENANT", tenant, "FROM", c.from).Replace(document), definition.Options{})
				require.NoError(t, err, name)
				m, _ := d.API.Match("/orders")
				var out bytes.Buffer
				_, err = new(upstream.Contract).CheckBody(&out, m.Path.Operation(http.MethodPost), http.Header{"Content-Type": {media}}, "17", []byte(c.body))
				switch {
				case c.want != "" && (checked || strings.HasSuffix(c.want, "read-only")):
					require.Equal(t, []string{c.want}, violations(err), "%s, %s, %s", name, media, tenant)
				default:
					require.NoError(t, err, "%s, %s, %s", name, media, tenant)
					require.True(t, c.want != "" || c.sent == out.String(), "%s: %s", name, out.String())
				}
			}
		}
	}
	_, err := load(strings.NewReplacer("MEDIA", "application/json", "SCHEMA", "properties: {a: {type: string, x-gatehouse-from: account_id}, firmNo: {type: string}, business: {type: string}}", "TENANT", "", "FROM", "account_id").Replace(document), definition.Options{})
	require.ErrorContains(t, err, "the service could take business, a and firmNo for the business: remove one of them")
}

func TestOnlyDocumentedMediaTypesAreAccepted(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(bodiesDocument)}, definition.Options{})
	require.NoError(t, err)
	require.Len(t, d.Warnings, 3, "application/xml is left out, the lines of an order have no bound, and extra is any JSON: %v", d.Warnings)
	m, _ := d.API.Match("/orders")
	for name, c := range map[string]struct {
		method   string
		header   http.Header
		body     string
		accepted bool
	}{
		"JSON":                         {http.MethodPut, http.Header{"Content-Type": {"application/json"}}, valid(""), true},
		"in upper case":                {http.MethodPut, http.Header{"Content-Type": {"Application/JSON; Charset=\"utf-8\""}}, valid(""), true},
		"not compressed, it says":      {http.MethodPut, http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"identity"}}, valid(""), true},
		"nothing where it is optional": {http.MethodPut, http.Header{}, "", true},
		"nothing where there is none":  {http.MethodDelete, http.Header{"Content-Type": {"text/plain"}}, "", true},
		"a merge patch":                {http.MethodPatch, http.Header{"Content-Type": {"application/merge-patch+json;charset=utf-8"}}, "{}", true},
		"JSON for a merge patch":       {http.MethodPatch, http.Header{"Content-Type": {"application/json"}}, "{}", false},
		"a merge patch for JSON":       {http.MethodPut, http.Header{"Content-Type": {"application/merge-patch+json"}}, valid(""), false},
		"what is left out":             {http.MethodPatch, http.Header{"Content-Type": {"application/xml"}}, "{}", false},
		"no type":                      {http.MethodPut, http.Header{}, valid(""), false},
		"two types":                    {http.MethodPut, http.Header{"Content-Type": {"application/json", "application/json"}}, valid(""), false},
		"a list of types":              {http.MethodPut, http.Header{"Content-Type": {"application/json, text/plain"}}, valid(""), false},
		"a form":                       {http.MethodPut, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, valid(""), false},
		"another JSON":                 {http.MethodPut, http.Header{"Content-Type": {"application/problem+json"}}, valid(""), false},
		"another charset":              {http.MethodPut, http.Header{"Content-Type": {"application/json; charset=utf-16"}}, valid(""), false},
		"compressed":                   {http.MethodPut, http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, valid(""), false},
		"compressed twice":             {http.MethodPut, http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"identity", "gzip"}}, valid(""), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			_, err := new(upstream.Contract).CheckBody(&out, m.Path.Operation(c.method), c.header, "17", []byte(c.body))
			if c.accepted {
				require.NoError(t, err)
				return
			}
			var refused *upstream.MediaTypeError
			require.ErrorAs(t, err, &refused)
			require.Len(t, refused.Accepted, 1)
		})
	}
	t.Run("a body where none is documented", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		_, err := new(upstream.Contract).CheckBody(&out, m.Path.Operation(http.MethodDelete), http.Header{"Content-Type": {"application/json"}}, "17", []byte(" "))
		require.Equal(t, []string{"must be empty: this operation takes no body"}, violations(err))
	})
}

// FuzzCheckBody begins with the bodies of the tests of this file. What is accepted has the value that was sent, and is accepted again as it is.
func FuzzCheckBody(f *testing.F) {
	d, err := load(bodiesDocument, definition.Options{})
	require.NoError(f, err)
	var bodies []*reply
	for _, op := range d.API.Operations() {
		for _, kind := range op.Body.All() {
			bodies = append(bodies, &reply{op: op, media: kind.Media})
		}
	}
	require.Len(f, bodies, 5)
	source, err := os.ReadFile("bodies_test.go")
	require.NoError(f, err)
	for _, match := range regexp.MustCompile("(valid\\()?`([^`]*)`").FindAllSubmatch(source, -1) {
		body := string(match[2])
		if len(match[1]) > 0 {
			body = valid(body)
		}
		for i := range bodies {
			f.Add(uint8(i), []byte(strings.ReplaceAll(body, `"business_id":17`, `"business_id":`+tenantID)))
		}
	}
	contract := new(upstream.Contract)
	f.Fuzz(func(t *testing.T, n uint8, body []byte) {
		b := bodies[int(n)%len(bodies)]
		out, err := checkedBody(contract, b, body)
		if err != nil {
			require.Empty(t, badViolations(err, body))
		}
		if err != nil || len(body) == 0 { // some bodies may be absent
			require.Empty(t, out)
			return
		}
		require.True(t, jsontext.Value(body).IsValid(), "a duplicate name, or no JSON")
		require.Equal(t, decode(body), decode(out))
		again, err := checkedBody(contract, b, out)
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
	})
}

func TestWritesAreTold(t *testing.T) {
	t.Parallel()
	const text = `{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: none, paths: {/x: {
		get: {responses: {"204": {description: ""}}}, post: {responses: {"204": {description: ""}}},
		put: {responses: {"204": {description: ""}}}, patch: {responses: {"204": {description: ""}}}, delete: {responses: {"204": {description: ""}}}},
		/search: {post: {x-gatehouse-read: true, responses: {"204": {description: ""}}}}}}`
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(text)}, definition.Options{})
	require.NoError(t, err)
	var reads []string
	for _, op := range d.API.Operations() {
		if op.Read {
			reads = append(reads, fmt.Sprint(op.Method, " ", op.Path))
		}
	}
	require.Equal(t, []string{"GET /x", "POST /search"}, reads)
	require.Equal(t, "GET, HEAD, POST, PUT, PATCH, DELETE", d.API.Paths()[0].Allow)
}

func TestInternalMembersOfABodyCannotBeToldFromUnknownOnes(t *testing.T) {
	t.Parallel()
	for _, more := range []string{
		`,"score":1`, `,"score":null`, `,"score":{"a":1,"b":[]}`, `,"score":[{"a":1}]`, `,"score":{"a":1,"a":2}`, `,"score":1,"score":1`, `,"score":1,"note":1,"score":"x","count":"x"`,
		`,"score":null,"score":null`, `,"score":{},"score":[{}],"state":"x"`, `,"sc\u006fre":1,"score":2,"unknown":1`, `,"score":1,"state":"x","score":1,"score":1,"lines":[{}]`,
		`,"score":1,"score":1,"number":"B2"`, `,"score":1,"score":1,"extra":{"a":1,"a":1}`, `,"score":1,"score":1,`,
	} {
		_, _, err := checkBody(t, http.MethodPost, "/orders", "application/json", valid(more))
		_, _, unknown := checkBody(t, http.MethodPost, "/orders", "application/json", valid(strings.ReplaceAll(strings.ReplaceAll(more, "score", "other"), `sc\u006fre`, "other")))
		require.Error(t, err)
		require.Equal(t, strings.ReplaceAll(strings.Join(violations(unknown), ", "), "other", "score"), strings.Join(violations(err), ", "), more)
	}
}

// Otherwise, one caller could make every list that has the record unreadable.
func TestWhatABodyStoresFitsIntoAList(t *testing.T) {
	t.Parallel()
	const note = `{type: object, properties: {business_id: {type: string}, note: {type: object, additionalProperties: true}}}`
	d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: business_id, paths: {/notes: {
		post: {requestBody: {required: true, content: {application/json: {schema: `+note+`}}}, responses: {"204": {description: x}}},
		get: {responses: {"200": {description: x, x-gatehouse-records: {in: notes, from: /response/data/items}, content: {application/json: {schema: {type: object, properties: {notes: {type: array, items: `+note+`}}}}}}}}}}}`, definition.Options{})
	require.NoError(t, err)
	read, query := operationOf(t, d, http.MethodGet, "/notes")
	write, _ := operationOf(t, d, http.MethodPost, "/notes")
	h := http.Header{"Content-Type": {"application/json"}}
	res, err := read.CheckHeader(http.StatusOK, h, false)
	require.NoError(t, err)
	deepest := 0
	for levels := 1; levels < 100; levels++ {
		body := `{"business_id":"17","note":` + strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels+1)
		if _, err = new(upstream.Contract).CheckBody(new(bytes.Buffer), write, h, "17", []byte(body)); err != nil {
			require.Equal(t, []string{"expected objects and arrays at most 48 deep"}, violations(err))
			continue
		}
		deepest = 1 + levels
		_, err = new(upstream.Contract).Check(new(bytes.Buffer), read, res, query, "17", []byte(`{"response":{"data":{"items":[`+body+`]}}}`))
		require.NoError(t, err, deepest)
	}
	require.Equal(t, 48, deepest)
}

// A kilobyte of JSON, as callers send it. Only an array whose items must differ costs allocations.
// checkOneKilobyte returns a function that checks a body of 1 kB with these further members, and the size of the body.
func checkOneKilobyte(t testing.TB, more string) (check func(), size int) {
	t.Helper()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(bodiesDocument)}, definition.Options{})
	require.NoError(t, err)
	m, _ := d.API.Match("/orders")
	op, h, contract := m.Path.Operation(http.MethodPost), http.Header{"Content-Type": {"application/json"}}, new(upstream.Contract)
	lines := strings.Repeat(`,{"sku":"0190f3a2-7c4b-7d11","price":129.95}`, 19)
	body := []byte(valid(`,"note":"Please ring twice","when":"2026-03-05","amount":2599.00,"count":20,"lines":[` + lines[1:] + `]` + more))
	var out bytes.Buffer
	return func() {
		out.Reset()
		if _, err := contract.CheckBody(&out, op, h, "17", body); err != nil {
			t.Fatal(err)
		}
	}, len(body)
}

// The race detector makes pools forget some of what is returned to them, so the fewest allocations count.
func TestCheckBodyDoesNotAllocate(t *testing.T) {
	check, _ := checkOneKilobyte(t, "")
	least := 1e9
	for range 50 {
		least = min(least, testing.AllocsPerRun(1, check))
	}
	require.Zero(t, least)
}

func BenchmarkCheckBody(b *testing.B) {
	for name, more := range map[string]string{"lines": "", "lines and different tags": `,"tags":["a","b"]`} {
		b.Run(name, func(b *testing.B) {
			check, size := checkOneKilobyte(b, more)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				check()
			}
		})
	}
}

func TestWhatIsRemovedFromResponsesIsListedWithoutValues(t *testing.T) {
	t.Parallel()
	const text = `{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: business_id, paths: {/x: {get: {responses: {"200": {description: "", x-gatehouse-records: {in: all},
		content: {application/json: {schema: {type: object, properties: {all: {type: array, maxItems: 9, items: {type: object, required: [status], x-gatehouse-visible: {status: [open]},
		properties: {business_id: {type: string}, status: {type: string}, n: {type: object, properties: {a: {type: integer}}},
		by: {anyOf: [{type: object, properties: {a: {type: string}}}, {type: object, properties: {b: {type: string}}, required: [b]}]}, m: {type: object, additionalProperties: {type: object, properties: {a: {type: integer}}}}}}}}}}}}}}}}}`
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(text)}, definition.Options{})
	require.NoError(t, err)
	m, _ := d.API.Match("/x")
	op := m.Path.Operation(http.MethodGet)
	res, err := op.CheckHeader(http.StatusOK, http.Header{"Content-Type": {"application/json"}}, false)
	require.NoError(t, err)
	const body = `{"debug":"secret","all":[{"business_id":"17","status":"open","cost":1,"n":{"a":1,"a secret":2},"by":{"a":"x","b":1,"c":2},"m":{"secret":{"b":1}}},
		{"business_id":"17","status":"draft","secret":1},{"business_id":"17","status":"open","n":{"a":"secret"}}]}`
	var removed []string
	for _, v := range new(upstream.Contract).Removed(op, res, upstream.Query{}, "17", []byte(body)) {
		removed = append(removed, v.Pointer+" "+v.Reason)
	}
	require.Equal(t, []string{
		"/debug is removed: it is not documented", "/all/0/cost is removed: it is not documented", "/all/0/n/* is removed: it is not documented",
		"/all/0/by/b is removed: the alternatives with it do not fit", "/all/0/by/c is removed: it is not documented",
		"/all/0/m/*/b is removed: it is not documented", "/all/1 is removed: it may not be seen", "/all/2/n/a expected an integer of at most 18 digits",
	}, removed)
}
