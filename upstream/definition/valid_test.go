package definition_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// answer checks a response of the first operation with a status, for the business b.
func answer(t testing.TB, d *definition.Definition, target string, status int, body string) (string, error) {
	t.Helper()
	m, ok := d.API.Match(target)
	require.True(t, ok, target)
	op := m.Path.Operation(http.MethodGet)
	q, err := op.CleanQuery(m)
	require.NoError(t, err)
	res, err := op.CheckHeader(status, http.Header{"Content-Type": {"application/json"}}, false)
	require.NoError(t, err)
	return checked(op, res, q, body)
}

// What loads means the same as in OpenAPI: these values pass, as they are or as the text after =>, and the others are rejected.
func TestSchemasAcceptTheirValuesAndNoOthers(t *testing.T) {
	t.Parallel()
	const (
		old  = "3.0.3"
		both = ""
		cat  = "Cat: {properties: {kind: {type: string}, lives: {type: integer}}, required: [kind, lives]}\n    "
		dog  = "Dog: {properties: {kind: {type: string}, tail: {type: string}}, required: [kind, tail]}\n    "
		pets = `{oneOf: [{$ref: "#/components/schemas/Cat"}, {$ref: "#/components/schemas/Dog"}]`
		tree = `Tree: {type: object, properties: {v: {type: integer}, kids: {type: array, maxItems: 9, items: {$ref: "#/components/schemas/Tree"}}}}` + "\n    "
	)
	for name, test := range map[string]struct {
		version, schemas, schema string
		good, bad                []string
	}{
		"a text":                       {both, "", "{type: string}", []string{`"a"`, `""`, `"\u00e9"`}, []string{"1", "null", "true", "{}", "[]", `"`}},
		"an integer":                   {both, "", "{type: integer}", []string{"0", "-5", "999999999999999999"}, []string{"1.0", "1e2", "1000000000000000000", `"1"`, "01"}},
		"a number":                     {both, "", "{type: number}", []string{"0", "1.50", "1e2", "-0.1E-3"}, []string{`"1"`, "NaN", ".5", "1."}},
		"a truth value":                {both, "", "{type: boolean}", []string{"true", "false"}, []string{`"true"`, "0", "True"}},
		"null alone":                   {"3.1.0", "", `{type: "null"}`, []string{"null"}, []string{"0", `""`}},
		"null as YAML's":               {"3.1.0", "", `{type: [string, null]}`, []string{"null", `"a"`}, []string{"0"}},
		"several types":                {"3.1.0", "", `{type: [string, integer]}`, []string{`"a"`, "1"}, []string{"1.5", "null", "true"}},
		"nullable of 3.0":              {old, "", `{type: string, nullable: true, maxLength: 2}`, []string{"null", `"ab"`}, []string{`"abc"`}},
		"null among the values of 3.0": {old, "", `{type: string, nullable: true, enum: [a, null]}`, []string{"null", `"a"`}, []string{`"b"`, `"null"`}},
		"null among the values of a type without it": {both, "", `{type: string, enum: [a, null]}`, []string{`"a"`}, []string{"null", `"null"`}},
		"nullable in 3.1":   {"3.1.0", "", `{type: string, nullable: true}`, []string{"null", `"ab"`}, []string{"1"}},
		"not nullable":      {old, "", `{type: string, nullable: false}`, []string{`"ab"`}, []string{"null"}},
		"enum":              {both, "", `{type: string, enum: [b, a, "1", c, c]}`, []string{`"a"`, `"1"`, `"\u0062"`}, []string{`"d"`, "1", `"A"`, `""`}},
		"enum of numbers":   {both, "", `{type: number, enum: [1, 2.50]}`, []string{"1", "1.0", "2.5", "10e-1"}, []string{"2", `"1"`}},
		"enum of booleans":  {both, "", `{type: boolean, enum: [true]}`, []string{"true"}, []string{"false"}},
		"enum without type": {both, "", `{enum: [a, 1, true]}`, []string{`"a"`, "1", "true"}, []string{`"1"`, "false", "null", "{}"}},
		"enum beside a type that has none of its values": {"3.1.0", "", `{type: [string, array], items: {type: string}, enum: [asc, desc]}`, []string{`"asc"`}, []string{`["asc"]`, `["x"]`, "[]"}},
		"a pattern with escapes of ECMA-262":             {both, "", `{type: string, pattern: '^[\u0041-\u005A]\u00e9?\\u0041$'}`, []string{`"A\\u0041"`, `"Z\u00e9\\u0041"`}, []string{`"A"`, `"a\\u0041"`, `"AA"`}},
		"something, or null, as pydantic writes it":      {"3.1.0", "", `{anyOf: [{type: integer, minimum: 1}, {type: "null"}]}`, []string{"5", "null"}, []string{"0", `"5"`}},
		"one of two, or null":                            {"3.1.0", "", `{anyOf: [{type: integer}, {type: "null"}, {type: boolean}]}`, []string{"5", "null", "true"}, []string{`"5"`}},
		"null, and null":                                 {"3.1.0", "", `{anyOf: [{type: "null"}, {type: "null"}]}`, []string{"null"}, []string{"0"}},
		"enum with null":                                 {"3.1.0", "", `{type: [string, "null"], enum: [a, null]}`, []string{`"a"`, "null"}, []string{`"b"`}},
		"enum of null":                                   {"3.1.0", "", `{type: [string, "null"], enum: [null]}`, []string{"null"}, []string{`""`, `"null"`}},
		"enum without null":                              {"3.1.0", "", `{type: [string, "null"], enum: [a]}`, []string{`"a"`, "null"}, []string{`"b"`}},
		"a large enum":                                   {both, "", `{type: string, enum: [` + strings.Join(numbered("v%d", 1000), ", ") + `]}`, []string{`"v0"`, `"v999"`, `"v500"`}, []string{`"v1000"`, `"v"`, `""`, `"w"`}},
		"const":                                          {"3.1.0", "", `{const: a}`, []string{`"a"`}, []string{`"b"`, "null"}},
		"const and enum":                                 {"3.1.0", "", `{type: string, enum: [a, b], const: b}`, []string{`"b"`}, []string{`"a"`}},
		"const null":                                     {"3.1.0", "", `{const: null}`, []string{"null"}, []string{`"a"`, "0"}},
		"extensible enum":                                {both, "", `{type: string, x-extensible-enum: [a]}`, []string{`"a"`, `"b"`}, []string{"1"}},

		"lengths in characters": {both, "", "{type: string, minLength: 2, maxLength: 3}", []string{`"äö"`, `"😀😀😀"`, `"\ud83d\ude00a"`}, []string{`"ä"`, `"abcd"`, `"\u0061"`}},
		"a pattern":             {both, "", "{type: string, pattern: '^[a-z]+$'}", []string{`"abc"`, `"\u0061"`}, []string{`"aB"`, `""`}},
		"a pattern inside":      {both, "", "{type: string, pattern: 'b'}", []string{`"abc"`}, []string{`"ac"`}},
		"a uuid":                {both, "", "{type: string, format: uuid}", []string{`"0190f3a2-7c4b-7d11-9e55-000000000001"`}, []string{`"0190f3a27c4b7d119e55000000000001"`, `""`}},
		"a date":                {both, "", "{type: string, format: date}", []string{`"2024-02-29"`}, []string{`"2023-02-29"`, `"2024-2-29"`, `"2024-02-29T00:00:00Z"`}},
		"a date and time":       {both, "", "{type: string, format: date-time}", []string{`"2024-02-29T23:59:60.5+01:00"`}, []string{`"2024-02-29"`, `"2024-02-29T23:59:00"`}},
		"a time in UTC":         {both, "", "{type: string, format: utc-date-time}", []string{`"2024-02-29T23:59:59Z"`}, []string{`"2024-02-29T23:59:59+01:00"`}},
		"a time":                {both, "", "{type: string, format: time}", []string{`"23:59:59Z"`}, []string{`"23:59"`}},
		"a time of day":         {both, "", "{type: string, format: time-of-day}", []string{`"23:59"`}, []string{`"24:00"`, `"23:59:59Z"`}},
		"a decimal":             {both, "", "{type: string, format: decimal}", []string{`"-12.50"`}, []string{`"1e2"`, "12.5", `".5"`}},
		"an email address":      {both, "", "{type: string, format: email}", []string{`"a@b"`}, []string{`"a"`, `"a@b@c"`}},
		"a URI":                 {both, "", "{type: string, format: uri}", []string{`"https://a.example/b?c"`}, []string{`"/b"`, `"a b:c"`}},
		"int32":                 {both, "", "{type: integer, format: int32}", []string{"2147483647", "-2147483648"}, []string{"2147483648", "-2147483649"}},
		"int32 with a bound":    {both, "", "{type: integer, format: int32, minimum: 0, maximum: 3000000000}", []string{"2147483647", "0"}, []string{"2147483648", "-1"}},
		"an unknown format":     {both, "", "{type: string, format: phone}", []string{`"anything"`}, []string{"1"}},
		"bounds":                {both, "", "{type: number, minimum: 0.1, maximum: 1e2}", []string{"0.1", "0.10", "100", "1E2", "1e+2", "10e-2"}, []string{"0.0999999999999999999999", "100.0000000000000000000001", "-1", "1e400"}},
		"large bounds":          {both, "", "{type: integer, maximum: 9007199254740993}", []string{"9007199254740993"}, []string{"9007199254740994"}},
		"exclusive in 3.0":      {old, "", "{type: integer, minimum: 1, exclusiveMinimum: true, maximum: 5, exclusiveMaximum: true}", []string{"2", "4"}, []string{"1", "5"}},
		"not exclusive in 3.0":  {old, "", "{type: integer, minimum: 1, exclusiveMinimum: false}", []string{"1"}, []string{"0"}},
		"exclusive in 3.1":      {"3.1.0", "", "{type: number, exclusiveMinimum: 1, exclusiveMaximum: 5}", []string{"1.01", "4.9"}, []string{"1", "5", "5.0"}},
		"both kinds of bounds":  {"3.1.0", "", "{type: integer, minimum: 1, exclusiveMinimum: 1, maximum: 3, exclusiveMaximum: 9}", []string{"2", "3"}, []string{"1", "4"}},

		"an array":               {both, "", "{type: array, minItems: 1, maxItems: 2, items: {type: integer}}", []string{"[ 1 ]=>[1]", "[1,2]"}, []string{"[]", "[1,2,3]", `["a"]`, "null", "{}"}},
		"an array without type":  {both, "", "{maxItems: 2, items: {type: integer}}", []string{"[1]"}, []string{"1", "{}"}},
		"different items":        {both, "", "{type: array, maxItems: 9, uniqueItems: true, items: {type: number}}", []string{"[1,2]", "[9007199254740992,9007199254740993]"}, []string{"[1,2,1]", "[1.5,15e-1]"}},
		"different objects":      {both, "", "{type: array, maxItems: 9, uniqueItems: true, items: {properties: {a: {type: integer}, b: {type: integer}}}}", []string{`[{"a":1},{"b":1}]`}, []string{`[{"a":1,"b":2},{"b":2,"a":1}]`, `[{"a":1,"z":1},{"a":1,"z":2}]`}},
		"a list without a bound": {both, "", "{type: array, items: {type: integer}}", []string{"[" + strings.Repeat("1,", 999) + "1]"}, []string{"[" + strings.Repeat("1,", 1000) + "1]"}},

		"an object": {both, "", "{properties: {a: {type: integer}, b: {type: string}}, required: [a]}", []string{
			`{"a":1}`, `{ "b" : "x" , "a" : 1 }=>{"a":1,"b":"x"}`, `{"z":{"q":[1]},"a":1,"A":2}=>{"a":1}`,
		}, []string{"{}", `{"b":"x"}`, `{"a":null}`, `{"a":1,"a":1}`, `{"a":1,"b":null}`, `{"a":1,"z":1,"z":2}`, "[]"}},
		"a nullable member that is required": {both, "", "{properties: {a: {type: string, nullable: true}, b: {type: string, nullable: true}}, required: [a]}", []string{`{}=>{"a":null}`, `{"b":null}=>{"a":null,"b":null}`}, nil},
		"members of different counts":        {both, "", "{properties: {a: {type: integer}, b: {type: integer}, c: {type: integer}}, minProperties: 1, maxProperties: 2}", []string{`{"a":1}`, `{"a":1,"c":2}`}, []string{"{}", `{"a":1,"b":2,"c":3}`}},
		"no further members":                 {both, "", "{properties: {a: {type: integer}}, additionalProperties: false}", []string{`{"a":1,"b":2}=>{"a":1}`}, []string{`{"a":"x"}`}},
		"a map":                              {both, "", "{type: object, additionalProperties: {type: integer}}", []string{"{}", `{"z":1,"a":2}`}, []string{`{"a":"x"}`, `{"a":1,"a":1}`, "[]"}},
		"a large map":                        {both, "", "{type: object, additionalProperties: {type: integer}}", []string{wide(1000)}, []string{wide(1001)}},
		"a larger map":                       {both, "", "{type: object, additionalProperties: {type: integer}, maxProperties: 2000}", []string{wide(2000)}, []string{wide(2001)}},
		"larger free JSON":                   {both, "", "{type: object, additionalProperties: true, maxProperties: 2000}", []string{wide(2000)}, []string{wide(2001)}},
		"a map of objects":                   {both, "", "{additionalProperties: {properties: {a: {type: integer}}}}", []string{`{"k":{"a":1,"b":2}}=>{"k":{"a":1}}`}, []string{`{"k":{"a":"x"}}`}},
		"members and a map":                  {both, "", "{properties: {a: {type: string}}, additionalProperties: {type: integer}}", []string{`{"b":1,"a":"x"}=>{"a":"x","b":1}`, `{"A":1}=>{}`}, []string{`{"a":1}`, `{"b":"x"}`}},
		"free JSON":                          {both, "", "{type: object, additionalProperties: true}", []string{`{ "a": [ 1, {"b": null} ] }=>{"a":[1,{"b":null}]}`, "{}"}, []string{"1", "[]", `{"a":1,"a":2}`}},
		"free JSON that says something":      {both, "", "{type: object, additionalProperties: {description: Anything.}}", []string{`{"a":[1]}`}, []string{"1"}},
		"a member with an empty name":        {both, "", `{properties: {"": {type: string}, a: {type: integer}}}`, []string{`{"":"x","a":1}`, `{"a":1}`}, []string{`{"":1}`}},
		"a list of members without a name":   {both, "", `{type: array, maxItems: 3, items: {properties: {"": {type: string}}}}`, []string{`[{"":"x"},{}]`}, []string{`[{"":1}]`}},
		"nested objects":                     {both, "", "{properties: {a: {properties: {b: {properties: {c: {type: integer}}, required: [c]}}, required: [b]}}, required: [a]}", []string{`{"a":{"b":{"c":1,"d":1},"d":1},"d":1}=>{"a":{"b":{"c":1}}}`}, []string{`{"a":{"b":{}}}`, `{"a":{}}`, "{}"}},
		"writeOnly":                          {both, "", "{properties: {a: {type: string}, secret: {type: string, writeOnly: true}}, required: [a, secret]}", []string{`{"secret":"s","a":"x"}=>{"a":"x"}`, `{"a":"x"}`, `{"a":"x","secret":{"b":1}}=>{"a":"x"}`}, nil},
		"writeOnly behind a reference":       {both, "Secret: {type: string, writeOnly: true}\n    ", `{properties: {a: {type: string}, secret: {$ref: "#/components/schemas/Secret"}, also: {allOf: [{$ref: "#/components/schemas/Secret"}, {maxLength: 3}]}}}`, []string{`{"secret":"s","also":"s","a":"x"}=>{"a":"x"}`}, nil},
		"readOnly":                           {both, "", "{properties: {a: {type: string, readOnly: true}}}", []string{`{"a":"x"}`}, []string{`{"a":1}`}},
		"internal":                           {both, "", "{properties: {a: {type: string}, i: {type: integer, x-gatehouse-internal: true}}, required: [a, i]}", []string{`{"i":1,"a":"x"}=>{"a":"x"}`, `{"a":"x","i":null}=>{"a":"x"}`}, []string{`{"i":"s","a":"x"}`}},

		"allOf": {both, "", "{allOf: [{properties: {a: {type: integer}}}, {required: [a, b], properties: {b: {type: string}}}]}", []string{
			`{"a":1,"b":"x"}`,
		}, []string{`{"a":1}`, `{"b":"x"}`, `{"a":"x","b":"x"}`}},
		"allOf of one member":                     {both, "", "{allOf: [{properties: {a: {type: string, minLength: 2}}}, {properties: {a: {maxLength: 3}}}, {properties: {a: {pattern: '^x'}}}]}", []string{`{"a":"xy"}`}, []string{`{"a":"x"}`, `{"a":"xyzz"}`, `{"a":"ay"}`, `{"a":1}`}},
		"allOf of texts":                          {both, "", "{allOf: [{type: string, enum: [a, b]}, {enum: [b, c]}]}", []string{`"b"`}, []string{`"a"`, `"c"`}},
		"allOf of texts, or null":                 {"3.1.0", "", "{allOf: [{type: [string, 'null'], enum: [a, null]}, {enum: [b, null]}]}", []string{"null"}, []string{`"a"`, `"b"`}},
		"allOf of a choice and one of its values": {"3.1.0", "", "{allOf: [{oneOf: [{properties: {k: {const: a}, v: {type: integer}}, required: [k]}, {properties: {k: {const: b}}, required: [k]}]}, {properties: {k: {const: a}}}]}", []string{`{"k":"a","v":1}`}, []string{`{"k":"b"}`, "{}"}},
		"open bounds beside texts":                {"3.1.0", "", "{type: [string, integer], minimum: 5, exclusiveMaximum: 5}", []string{`"a"`}, []string{"5"}},
		"allOf of bounds":                         {both, "", "{allOf: [{type: number, minimum: 1, maximum: 5}, {minimum: 2, maximum: 9}]}", []string{"2", "5"}, []string{"1", "6"}},
		"allOf of open bounds":                    {"3.1.0", "", "{allOf: [{type: number, minimum: 1, maximum: 5}, {exclusiveMinimum: 1, maximum: 5}]}", []string{"2", "5"}, []string{"1", "6"}},
		"allOf of arrays":                         {both, "", "{allOf: [{type: array, maxItems: 3, items: {type: integer}}, {maxItems: 2, items: {minimum: 5}}]}", []string{"[5,6]"}, []string{"[1]", "[5,6,7]"}},
		"allOf with a map":                        {both, "", "{allOf: [{properties: {a: {type: string}}}, {additionalProperties: {type: string, maxLength: 2}}]}", []string{`{"a":"x","b":"y"}`}, []string{`{"a":"xyz"}`, `{"b":"xyz"}`, `{"b":1}`}},
		"allOf beside members":                    {both, "Base: {properties: {a: {type: integer}}, required: [a]}\n    ", `{properties: {b: {type: integer}}, required: [b], allOf: [{$ref: "#/components/schemas/Base"}]}`, []string{`{"a":1,"b":2}=>{"b":2,"a":1}`}, []string{`{"b":2}`, `{"a":1}`}},
		"nullable allOf":                          {old, "Base: {properties: {a: {type: integer}}, required: [a]}\n    ", `{nullable: true, allOf: [{$ref: "#/components/schemas/Base"}]}`, []string{"null", `{"a":1}`}, []string{"{}", "1"}},
		"nullable allOf, with type":               {old, "Base: {properties: {a: {type: integer}}, required: [a]}\n    ", `{type: object, nullable: true, allOf: [{$ref: "#/components/schemas/Base"}]}`, []string{"null", `{"a":1}`}, []string{"{}", "1"}},
		"allOf of a choice":                       {both, "", "{allOf: [{oneOf: [{properties: {a: {type: integer}}, required: [a]}, {properties: {b: {type: integer}}, required: [b]}]}, {properties: {c: {type: integer}}, required: [c]}]}", []string{`{"a":1,"c":2}`, `{"b":1,"c":2}`}, []string{`{"a":1}`, `{"c":2}`}},

		"beside a reference in 3.1":      {"3.1.0", "S: {type: string, minLength: 2}\n    ", `{$ref: "#/components/schemas/S", maxLength: 3, description: Short.}`, []string{`"ab"`, `"abc"`}, []string{`"a"`, `"abcd"`}},
		"beside a chain of references":   {"3.1.0", "S: {type: string, minLength: 2}\n    T: {$ref: \"#/components/schemas/S\", maxLength: 3}\n    U: {$ref: \"#/components/schemas/T\"}\n    ", `{$ref: "#/components/schemas/U", pattern: b}`, []string{`"ab"`, `"abc"`}, []string{`"b"`, `"abcd"`, `"aa"`}},
		"members beside a reference":     {"3.1.0", "S: {properties: {a: {type: integer}}}\n    ", `{$ref: "#/components/schemas/S", properties: {b: {type: integer}}, required: [a, b]}`, []string{`{"b":1,"a":2}=>{"a":2,"b":1}`}, []string{`{"a":1}`, `{"b":1}`}},
		"null beside a reference":        {"3.1.0", "S: {type: string}\n    ", `{oneOf: [{$ref: "#/components/schemas/S"}, {type: "null"}]}`, []string{`"a"`, "null"}, []string{"1"}},
		"ignored beside a reference":     {old, "S: {type: string, minLength: 2}\n    ", `{$ref: "#/components/schemas/S", maxLength: 3, nullable: true}`, []string{`"abcd"`}, []string{`"a"`, "null"}},
		"a schema that has schemas":      {both, "", `{type: object, properties: {a: {$ref: "#/components/schemas/Order/properties/x/$defs/Count"}}, $defs: {Count: {type: integer}}, definitions: {Unused: {not: {}}}}`, []string{`{"a":1}`}, []string{`{"a":"x"}`}},
		"any JSON":                       {"3.1.0", "Any: {type: [object, array, string, number, boolean, \"null\"], additionalProperties: true, items: {$ref: \"#/components/schemas/Any\"}}\n    ", `{$ref: "#/components/schemas/Any"}`, []string{"1.5", "null", `[1,["a",{"b":[null]}]]`, `{"a":{"b":1}}`}, []string{`{"a":1,"a":2}`, "[1,]"}},
		"a name with special characters": {both, "\"a/b~c d\": {type: integer}\n    ", `{$ref: "#/components/schemas/a~1b~0c%20d"}`, []string{"1"}, []string{`"a"`}},

		"a tree":                         {both, tree, `{$ref: "#/components/schemas/Tree"}`, []string{`{"v":1,"kids":[{"v":2,"kids":[],"z":1},{}]}=>{"v":1,"kids":[{"v":2,"kids":[]},{}]}`}, []string{`{"kids":[{"kids":[{"v":"x"}]}]}`}},
		"a list of nullable parents":     {old, "Node: {type: object, properties: {v: {type: integer}, up: {nullable: true, allOf: [{$ref: \"#/components/schemas/Node\"}]}}, required: [v]}\n    ", `{$ref: "#/components/schemas/Node"}`, []string{`{"v":1,"up":{"v":2,"up":null}}`}, []string{`{"v":1,"up":{}}`, `{"v":1,"up":{"v":1,"up":1}}`}},
		"nullable parents with a type":   {old, "Node: {type: object, properties: {v: {type: integer}, up: {type: object, nullable: true, allOf: [{$ref: \"#/components/schemas/Node\"}]}}, required: [v]}\n    ", `{$ref: "#/components/schemas/Node"}`, []string{`{"v":1,"up":{"v":2,"up":null}}`}, []string{`{"v":1,"up":{}}`, `{"v":1,"up":{"v":1,"up":1}}`}},
		"parents and a member more":      {both, "Node: {type: object, properties: {v: {type: integer}, up: {allOf: [{$ref: \"#/components/schemas/Node\"}, {properties: {w: {type: integer}}, required: [w]}]}}, required: [v]}\n    ", `{$ref: "#/components/schemas/Node"}`, []string{`{"v":1,"up":{"v":2,"w":3}}`, `{"v":1,"up":{"v":2,"up":{"v":1,"w":1},"w":3}}`}, []string{`{"v":1,"up":{"v":2}}`, `{"v":1,"up":{"v":2,"up":{"v":1},"w":3}}`}},
		"two that refer to each other":   {both, "A: {properties: {b: {$ref: \"#/components/schemas/B\"}}}\n    B: {allOf: [{properties: {n: {type: integer}}}, {properties: {a: {$ref: \"#/components/schemas/A\"}}}]}\n    ", `{$ref: "#/components/schemas/A"}`, []string{`{"b":{"n":1,"a":{"b":{"n":2}}}}`}, []string{`{"b":{"n":1,"a":{"b":{"n":"x"}}}}`}},
		"a choice that refers to itself": {both, "E: {oneOf: [{type: integer}, {type: array, maxItems: 9, items: {$ref: \"#/components/schemas/E\"}}]}\n    ", `{$ref: "#/components/schemas/E"}`, []string{"1", "[1,[2,[]]]"}, []string{`[1,["a"]]`, `"a"`}},

		"by a discriminator":                 {both, cat + dog, pets + ", discriminator: {propertyName: kind}}", []string{`{"kind":"Cat","lives":9,"tail":"x"}=>{"kind":"Cat","lives":9}`, `{"tail":"x","kind":"\u0044og"}=>{"kind":"\u0044og","tail":"x"}`}, []string{`{"kind":"Dog","lives":9}`, `{"kind":"Cow","lives":9,"tail":"x"}`, `{"lives":9}`, `{"kind":1,"lives":1}`, "null"}},
		"by a discriminator with a mapping":  {both, cat + dog, pets + `, discriminator: {propertyName: kind, mapping: {c: "#/components/schemas/Cat", d: Dog, hound: Dog}}}`, []string{`{"kind":"c","lives":9}`, `{"kind":"d","tail":"x"}`, `{"kind":"hound","tail":"x"}`}, []string{`{"kind":"c","tail":"x"}`, `{"kind":"Cat","lives":9}`}},
		"by a constant":                      {"3.1.0", "", "{oneOf: [{properties: {k: {const: a}, v: {type: integer}}, required: [k]}, {properties: {k: {const: b}, w: {type: integer}}, required: [k]}]}", []string{`{"k":"a","v":1,"w":2}=>{"k":"a","v":1}`, `{"w":2,"v":1,"k":"b"}=>{"k":"b","w":2}`}, []string{`{"k":"c"}`, "{}", `{"k":"a","v":"x"}`}},
		"by a constant of one value":         {old, "", "{oneOf: [{properties: {k: {type: string, enum: [a]}, v: {type: integer}}, required: [k]}, {properties: {k: {type: string, enum: [b]}}, required: [k]}]}", []string{`{"k":"a","v":1}`, `{"k":"b","v":1}=>{"k":"b"}`}, []string{`{"k":"c"}`}},
		"by the values of an enum":           {"3.1.0", "", "{oneOf: [" + strings.Join(numbered(`{properties: {k: {enum: [a%d, b%[1]d]}, v%[1]d: {type: integer}}, required: [k]}`, 9), ", ") + "]}", []string{`{"k":"a0","v0":1,"v1":2}=>{"k":"a0","v0":1}`, `{"v8":1,"k":"b8","v1":2}=>{"k":"b8","v8":1}`}, []string{`{"k":"c"}`, "{}", `{"k":"b8","v8":"x"}`}},
		"by values of which two share one":   {"3.1.0", "", "{oneOf: [{properties: {k: {enum: [a, b]}, v: {type: integer}}, required: [k, v]}, {properties: {k: {enum: [b, c]}, w: {type: integer}}, required: [k, w]}]}", []string{`{"k":"b","v":1}`, `{"w":1,"k":"b"}=>{"k":"b","w":1}`}, []string{`{"k":"c","v":1}`, `{"k":"a","w":1}`}},
		"by a constant integer":              {"3.1.0", "", "{oneOf: [{properties: {k: {type: integer, const: 1}, v: {type: integer}}, required: [k]}, {properties: {w: {type: integer}, k: {type: integer, enum: [20]}}, required: [k]}]}", []string{`{"k":1,"v":1,"w":2}=>{"k":1,"v":1}`, `{"w":2,"v":1,"k":20}=>{"w":2,"k":20}`}, []string{`{"k":2}`, "{}", `{"k":"1"}`, `{"k":1.0}`, `{"k":[1]}`, `{"k":1,"v":"x"}`}},
		"by a constant of many":              {"3.1.0", "", "{oneOf: [" + strings.Join(numbered(`{properties: {k: {const: "%d"}, v%[1]d: {type: integer}}, required: [k]}`, 256), ", ") + "]}", []string{`{"k":"0","v0":1}`, `{"v255":1,"v1":2,"k":"255"}=>{"k":"255","v255":1}`}, []string{`{"k":"256"}`, `{"k":0}`, "1", "{}"}},
		"by an optional discriminator":       {both, "", `{oneOf: [{$ref: "#/components/schemas/Order/properties/x/x-a"}, {$ref: "#/components/schemas/Order/properties/x/x-b"}], discriminator: {propertyName: k, mapping: {a: "#/components/schemas/Order/properties/x/x-a", b: "#/components/schemas/Order/properties/x/x-b"}}, x-a: {properties: {k: {type: string, enum: [a], default: a}, v: {type: integer}}}, x-b: {properties: {k: {type: string, enum: [b]}, w: {type: integer}}}}`, []string{`{"k":"a","v":1,"w":2}=>{"k":"a","v":1}`, `{"k":"b","w":2}`}, []string{`{"v":1}`, "{}", `{"k":"c"}`, `{"k":null,"v":1}`}},
		"by a discriminator with constants":  {both, "Cat: {properties: {kind: {type: string, enum: [cat]}, lives: {type: integer}}, required: [kind]}\n    ", `{oneOf: [{$ref: "#/components/schemas/Cat"}, {properties: {kind: {type: string, enum: [dog]}, tail: {type: string}}, required: [kind]}], discriminator: {propertyName: kind}}`, []string{`{"kind":"cat","lives":9}`, `{"kind":"dog","tail":"x","lives":9}=>{"kind":"dog","tail":"x"}`}, []string{`{"kind":"Cat","lives":9}`, "{}"}},
		"by a discriminator of many values":  {both, "Cat: {properties: {kind: {type: string, enum: [lion, tiger]}, lives: {type: integer}}, required: [kind]}\n    Dog: {properties: {kind: {type: string, enum: [hound, wolf]}, tail: {type: string}}, required: [kind]}\n    ", pets + `, discriminator: {propertyName: kind, mapping: {hound: Dog}}}`, []string{`{"kind":"lion","lives":9}`, `{"kind":"tiger","lives":9,"tail":"x"}=>{"kind":"tiger","lives":9}`, `{"kind":"wolf","tail":"x"}`, `{"kind":"hound","tail":"x"}`}, []string{`{"kind":"Cat","lives":9}`, `{"kind":"Dog"}`, "{}", `{"kind":"cow"}`}},
		"values that are described":          {"3.1.0", "", "{oneOf: [{const: a, description: An a.}, {type: integer, const: 1}, {enum: [b, true], deprecated: true}]}", []string{`"a"`, "1", `"b"`, "true"}, []string{`"1"`, "2", "false", "null", "{}", `"c"`}},
		"many values that are described":     {"3.1.0", "", "{type: integer, oneOf: [" + strings.Join(numbered("{const: %d, title: V}", 200), ", ") + "]}", []string{"0", "199"}, []string{"200", `"1"`, "null"}},
		"values that are described, or null": {"3.1.0", "", `{anyOf: [{const: a}, {const: b}, {type: "null"}]}`, []string{`"a"`, "null"}, []string{`"c"`, `"null"`}},
		"by type":                            {both, "", "{anyOf: [{type: string, maxLength: 2}, {type: integer}, {type: array, maxItems: 1, items: {type: boolean}}, {properties: {a: {type: integer}}}]}", []string{`"ab"`, "1", "[true]", `{"a":1,"b":1}=>{"a":1}`}, []string{`"abc"`, "1.5", "[1]", "null", "true", `{"a":"x"}`}},
		"integer beside number":              {both, "", "{oneOf: [{type: integer, maximum: 5}, {type: number, minimum: 100}]}", []string{"5", "100.5", "100"}, []string{"6", "5.5"}},
		"an object without members":          {both, "", "{type: object, properties: {}, additionalProperties: false}", []string{"{}", `{"a":1}=>{}`}, []string{"[]"}},
		"tried, strictly first":              {both, "", "{oneOf: [{properties: {a: {type: integer}}}, {properties: {a: {type: integer}, b: {type: integer}}}]}", []string{`{"a":1}`, `{"a":1,"b":2}`, `{"b":2}`, `{"a":1,"b":2,"c":3}=>{"a":1,"b":2}`, `{"c":3}=>{}`}, []string{`{"a":"x"}`}},
		"tried, without unknown members":     {both, "", "{oneOf: [{properties: {a: {type: integer}}, required: [a]}, {properties: {b: {type: integer}}, required: [b]}]}", []string{`{"b":2,"c":3}=>{"b":2}`, `{"a":1,"b":"x"}=>{"a":1}`, `{"b":2,"a":1}=>{"a":1}`}, []string{"{}", `{"c":1}`}},
		"tried, its base first":              {both, "", "{anyOf: [{properties: {type: {type: string}}}, {properties: {type: {type: string}, last4: {type: string}, of: {properties: {n: {type: integer}}}}}]}", []string{`{"type":"card","last4":"4","links":[]}=>{"type":"card","last4":"4"}`, `{"type":"card","links":[]}=>{"type":"card"}`, `{"links":[],"of":{"n":1,"last4":"4"}}=>{"of":{"n":1}}`, `{"type":"card","last4":4}=>{"type":"card"}`}, []string{`{"type":4}`}},
		"tried, one that requires nothing":   {both, "", "{anyOf: [{properties: {vat: {type: string}}}, {properties: {first: {type: string}, born: {type: string}}, required: [first]}]}", []string{`{"first":"A","born":"2000","new":1}=>{"first":"A","born":"2000"}`, `{"vat":"1","new":1}=>{"vat":"1"}`, `{"first":"A","vat":"1"}=>{"vat":"1"}`}, []string{`{"vat":1}`}},
		"tried, one with what others hide":   {both, "", "{anyOf: [{properties: {a: {type: string}}}, {properties: {b: {type: string}, c: {type: string, x-gatehouse-internal: true}}}]}", []string{`{"a":"x","c":"y"}=>{"a":"x"}`, `{"b":"x","c":"y","z":1}=>{"b":"x"}`}, nil},
		"texts that are tried":               {both, "", "{anyOf: [{type: string, format: date}, {type: string, enum: [never]}]}", []string{`"2026-01-01"`, `"never"`}, []string{`"soon"`, "1"}},
		"a choice in a choice":               {both, "", "{oneOf: [{type: string}, {anyOf: [{type: integer}, {properties: {a: {anyOf: [{type: integer}, {type: boolean}]}}}]}]}", []string{`"a"`, "1", `{"a":true}`}, []string{`{"a":"x"}`, "1.5"}},
		"tried in what is tried":             {both, "", "{oneOf: [{properties: {x: {oneOf: [{properties: {p: {type: integer}}, required: [p]}, {properties: {q: {type: integer}}, required: [q]}]}}, required: [x]}, {properties: {y: {type: integer}}, required: [y]}]}", []string{`{"x":{"q":1,"z":1},"z":1}=>{"x":{"q":1}}`, `{"y":1,"x":{}}=>{"y":1}`}, []string{`{"x":{}}`}},
		"an alternative that is a choice":    {both, "", "{anyOf: [{properties: {a: {type: string}}}, {oneOf: [{properties: {b: {type: integer}}, required: [b]}, {properties: {c: {type: integer}}, required: [c]}]}]}", []string{`{"a":"x","z":1}=>{"a":"x"}`, `{"c":1,"z":1}=>{"c":1}`, `{"b":1,"c":1}=>{"b":1}`, `{"a":"x","c":1,"z":1}=>{"a":"x"}`}, []string{`{"a":1}`}},
		"or null":                            {"3.1.0", cat, `{oneOf: [{$ref: "#/components/schemas/Cat"}, {type: "null"}]}`, []string{"null", `{"kind":"a","lives":1}`}, []string{"{}", "1"}},
		"a nullable choice of 3.0":           {old, cat + dog, pets + ", nullable: true, discriminator: {propertyName: kind}}", []string{"null", `{"kind":"Cat","lives":9}`}, []string{`{"kind":"Dog","lives":9}`}},
		"what stands beside a choice":        {both, "", "{type: object, properties: {c: {type: integer}}, required: [c], oneOf: [{properties: {a: {type: integer}}, required: [a]}, {properties: {b: {type: integer}}, required: [b]}]}", []string{`{"a":1,"c":2}=>{"c":2,"a":1}`, `{"b":1,"c":2}=>{"c":2,"b":1}`}, []string{`{"a":1}`, `{"c":1}`}},
		"names that every alternative needs": {both, "", "{required: [a], oneOf: [{properties: {a: {type: integer}}}, {properties: {a: {type: string}}}]}", []string{`{"a":1}`, `{"a":"x"}`}, []string{"{}"}},
		"one alternative":                    {both, "", "{oneOf: [{type: string}]}", []string{`"a"`}, []string{"1", "null"}},
		"two choices that hold":              {both, "", "{oneOf: [{type: string, maxLength: 3}, {type: integer}], anyOf: [{type: string, minLength: 2}, {type: integer, minimum: 5}]}", []string{`"ab"`, "5"}, []string{`"a"`, "4", `"abcd"`}},

		"two choices that may be null":      {old, "", "{allOf: [{nullable: true, oneOf: [{type: string}, {type: integer}]}, {oneOf: [{type: string, nullable: true}, {type: integer}]}]}", []string{"null", `"a"`, "1"}, []string{"true"}},
		"a choice of which nothing is left": {both, "", "{allOf: [{oneOf: [{type: string}, {oneOf: [{type: integer}, {type: boolean}]}]}, {oneOf: [{type: string}, {type: boolean}]}]}", []string{`"a"`, "true"}, []string{"1"}},
		"numbers in two forms":              {both, "", "{allOf: [{enum: [1.0, 2.50, 3, 20]}, {enum: [1, 2.5, 4, 20.0]}]}", []string{"1", "1.0", "2.5", "20"}, []string{"3", "4"}},

		"the business of a nested object":        {both, "Of: {properties: {business_id: {type: integer}, a: {type: string}}}\n    ", `{$ref: "#/components/schemas/Of"}`, []string{`{"business_id":"b","a":"x"}`}, []string{`{"business_id":"c"}`, `{"business_id":1}`, `{"a":"x"}`, `{"business_id":null}`}},
		"the business of a member said twice":    {both, "", "{allOf: [{properties: {o: {properties: {business_id: {type: string}}}}}, {properties: {o: {properties: {a: {type: integer}}}}}]}", []string{`{"o":{"business_id":"b","a":1}}`}, []string{`{"o":{"business_id":"c"}}`, `{"o":{"a":1}}`}},
		"the business of items said twice":       {both, "", "{allOf: [{type: array, maxItems: 3, items: {properties: {business_id: {type: string}}}}, {items: {properties: {a: {type: integer}}}}]}", []string{`[{"business_id":"b","a":1}]`}, []string{`[{"business_id":"c"}]`, `[{"a":1}]`}},
		"the business beside a reference":        {"3.1.0", "S: {properties: {o: {properties: {business_id: {type: string}}}}}\n    ", `{$ref: "#/components/schemas/S", properties: {o: {minProperties: 1}}}`, []string{`{"o":{"business_id":"b"}}`}, []string{`{"o":{"business_id":"c"}}`}},
		"the business of alternatives":           {both, "", "{oneOf: [{properties: {business_id: {type: string}, a: {type: integer}}, required: [a]}, {properties: {business_id: {type: string}, b: {type: integer}}, required: [b]}]}", []string{`{"business_id":"b","b":1}`}, []string{`{"business_id":"c","b":1}`, `{"b":1}`}},
		"the business by another name":           {both, "", "{properties: {owner: {type: string}}, required: [owner], x-gatehouse-tenant: owner}", []string{`{"owner":"b"}`}, []string{`{"owner":"c"}`, "{}"}},
		"what may be seen":                       {both, "", "{type: array, maxItems: 5, items: {properties: {s: {type: string}}, required: [s], x-gatehouse-visible: {s: [yes, also]}}}", []string{`[{"s":"yes"},{"s":"no"},{"s":"also"}]=>[{"s":"yes"},{"s":"also"}]`, `[{"s":"no"}]=>[]`}, []string{`[{}]`, `[{"s":1}]`}},
		"what may be seen of a choice":           {both, "", "{type: array, maxItems: 5, items: {allOf: [{properties: {s: {type: string}}, required: [s], x-gatehouse-visible: {s: [yes, also]}}, {oneOf: [{properties: {s: {enum: [yes]}}}, {properties: {s: {enum: [no]}}}]}]}}", []string{`[{"s":"yes"},{"s":"no"}]=>[{"s":"yes"}]`}, nil},
		"dates and numbers that YAML would read": {both, "", `{type: string, enum: [2026-01-01, "1", "true", "null"]}`, []string{`"2026-01-01"`, `"1"`, `"true"`, `"null"`}, []string{"1", "true", "null"}},
	} {
		versions := []string{test.version}
		if test.version == both {
			versions = []string{old, "3.1.0"}
		}
		for _, version := range versions {
			t.Run(name+" in "+version[:3], func(t *testing.T) {
				t.Parallel()
				text := strings.NewReplacer("3.1.0", version, "x: {type: string}", "x: "+test.schema, "schemas:\n    ", "schemas:\n    "+test.schemas).Replace(orders)
				d, err := load(text, definition.Options{})
				require.NoError(t, err)
				_, err = d.Published(definition.PublishOptions{})
				require.NoError(t, err)
				for _, value := range test.good {
					in, out, changed := strings.Cut(value, "=>")
					if !changed {
						out = in
					}
					got, err := answer(t, d, "/orders/1", 200, `{"business_id":"b","x":`+in+"}")
					require.NoError(t, err, "%.100s", in)
					require.Equal(t, `{"business_id":"b","x":`+out+"}", got)
				}
				for _, value := range test.bad {
					got, err := answer(t, d, "/orders/1", 200, `{"business_id":"b","x":`+value+"}")
					require.ErrorIs(t, err, upstream.ErrContractViolation, "%.100s", value)
					require.Empty(t, got)
				}
			})
		}
	}
}

// numbered returns n texts with a number in each.
func numbered(format string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return all
}

func checked(op *upstream.Operation, res *upstream.DocumentedResponse, q upstream.Query, body string) (string, error) {
	var out bytes.Buffer
	_, err := new(upstream.Contract).Check(&out, op, res, q, "b", []byte(body))
	return out.String(), err
}

// pydantic writes an optional member as anyOf with null.
func TestMembersThatMayBeNullNameTheTenantAndTheOrder(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(`
openapi: 3.1.0
info: {title: Orders, version: "1"}
servers: [{url: /v1}]
x-gatehouse-tenant: account_id
paths:
  /orders:
    get:
      operationId: listOrders
      responses:
        "200":
          description: Orders.
          x-gatehouse-records: {in: orders, order: [created_at]}
          content: {application/json: {schema: {type: object, properties: {orders: {anyOf: [{type: array, items: {$ref: "#/components/schemas/Order"}}, {type: "null"}]}}}}}
components:
  schemas:
    Order:
      type: object
      properties:
        account_id: {anyOf: [{type: string}, {type: "null"}]}
        created_at: {anyOf: [{type: string, format: utc-date-time}, {type: "null"}]}
`)}, definition.Options{})
	require.NoError(t, err)
	const sorted = `{"orders":[{"account_id":"b","created_at":"2027-01-02T00:00:00Z"},{"account_id":"b","created_at":"2027-01-01T00:00:00Z"}]}`
	for body, want := range map[string]string{
		sorted:            sorted,
		`{"orders":null}`: `{"orders":null}`,
		`{"orders":[{"account_id":"b","created_at":"2027-01-01T00:00:00Z"},{"account_id":"b","created_at":"2027-01-02T00:00:00Z"}]}`: sorted,
		`{"orders":[{"account_id":"c","created_at":"2027-01-02T00:00:00Z"}]}`:                                                        "",
		`{"orders":[{"account_id":null,"created_at":null}]}`:                                                                         "",
	} {
		out, err := answer(t, d, "/v1/orders", http.StatusOK, body)
		require.Equal(t, want == "", err != nil, body)
		if want != "" {
			require.Equal(t, want, out)
		}
	}
}
