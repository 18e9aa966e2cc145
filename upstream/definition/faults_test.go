package definition_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// orders is a definition in which tests change something: line 10 is a parameter, and line 19 a member.
const orders = `openapi: 3.1.0
info: {title: Orders, version: v1}
x-gatehouse-tenant: business_id
paths:
  /orders/{id}:
    get:
      operationId: getOrder
      parameters:
      - {name: id, in: path, required: true, schema: {type: string}}
      - {name: page, in: query, schema: {type: integer, minimum: 1, maximum: 9, default: 1}}
      responses:
        "200":
          content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}
components:
  schemas:
    Order:
      properties:
        business_id: {type: string}
        x: {type: string}
        y: {type: string}
`

const (
	theParameter = `{name: page, in: query, schema: {type: integer, minimum: 1, maximum: 9, default: 1}}`
	theOperation = "operationId: getOrder"
	theResponse  = `content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}`
	theSchema    = `{$ref: "#/components/schemas/Order"}`
	theRecord    = "business_id: {type: string}"

	operationAt = "/paths/~1orders~1{id}/get"
	responseAt  = operationAt + "/responses/200"
	bodyAt      = responseAt + "/content/application~1json/schema"
	recordAt    = "/components/schemas/Order"
)

func load(text string, o definition.Options) (*definition.Definition, error) {
	return definition.Load(definition.File{Name: "api.yaml", Text: []byte(text)}, o)
}

// faultsOf returns the faults of an error, which must have nothing else.
func faultsOf(t *testing.T, err error) []*definition.FaultError {
	t.Helper()
	var failed *definition.LoadError
	require.ErrorAs(t, err, &failed)
	require.NotEmpty(t, failed.Faults)
	return failed.Faults
}

// asJSON returns a text in JSON, in one line.
func asJSON(t testing.TB, text string) string {
	t.Helper()
	var tree any
	require.NoError(t, yaml.Unmarshal([]byte(text), &tree))
	encoded, err := json.Marshal(named(tree))
	require.NoError(t, err)
	return string(encoded)
}

// named returns a tree of YAML in which every name is a string, as in JSON.
func named(tree any) any {
	switch v := tree.(type) {
	case map[any]any:
		all := map[string]any{}
		for name, value := range v {
			all[fmt.Sprint(name)] = named(value)
		}
		return all
	case map[string]any:
		for name, value := range v {
			v[name] = named(value)
		}
	case []any:
		for i, value := range v {
			v[i] = named(value)
		}
	}
	return tree
}

// Each fault has its file, line, pointer and what is possible, in YAML and JSON, and there is no other.
func TestWhatCannotBeEnforcedDoesNotLoad(t *testing.T) {
	t.Parallel()
	type change struct {
		old, replacement string
		line             int
		pointer, message string
	}
	field := func(schema, pointer, message string) change {
		return change{"x: {type: string}", "x: " + schema, 19, recordAt + "/properties/x" + pointer, message}
	}
	parameter := func(text, pointer, message string) change {
		return change{theParameter, text, 10, operationAt + "/parameters/1" + pointer, message}
	}
	operation := func(text, pointer, message string) change {
		return change{theOperation, text, 7, operationAt + pointer, message}
	}
	response := func(text, pointer, message string) change {
		return change{theResponse, text, 13, responseAt + pointer, message}
	}
	list := func(extension string) string {
		return "{" + extension + ", content: {application/json: {schema: {properties: {n: {type: integer}, orders: {type: array, maxItems: 9, items: " +
			theSchema + "}}}}}}"
	}
	kind := func(name string) string {
		return "{properties: {k: {type: string, enum: [" + name + "]}}, required: [k]}"
	}
	_, allPaths, _ := strings.Cut(orders, "paths:\n")
	for name, test := range map[string]change{
		// Keywords.
		"a keyword that looks like another":        field("{type: object, propertyNames: {pattern: a}, additionalProperties: {type: string}}", "/propertyNames", "propertyNames cannot be enforced here: an overlay can remove it, with the target $..[?@.propertyNames].propertyNames and remove: true"),
		"an unknown keyword":                       field("{type: string, maxLenght: 3}", "/maxLenght", "maxLenght cannot be enforced here: did you mean maxLength?"),
		"not":                                      field("{type: string, not: {const: a}}", "/not", "not cannot be enforced"),
		"if":                                       field("{type: string, if: {const: a}}", "/if", "if cannot be enforced"),
		"then":                                     field("{type: string, then: {const: a}}", "/then", "then cannot be enforced"),
		"patternProperties":                        field("{type: object, properties: {a: {type: string}}, patternProperties: {a: {type: string}}}", "/patternProperties", "cannot be enforced"),
		"unevaluatedProperties":                    field("{properties: {a: {type: string}}, unevaluatedProperties: false}", "/unevaluatedProperties", "cannot be enforced"),
		"unevaluatedItems":                         field("{type: array, maxItems: 1, items: {type: string}, unevaluatedItems: false}", "/unevaluatedItems", "cannot be enforced"),
		"contains":                                 field("{type: array, maxItems: 1, items: {type: string}, contains: {const: a}}", "/contains", "cannot be enforced"),
		"prefixItems":                              field("{type: array, maxItems: 1, items: {type: string}, prefixItems: [{type: string}]}", "/prefixItems", "cannot be enforced"),
		"multipleOf":                               field("{type: integer, multipleOf: 2}", "/multipleOf", "cannot be enforced"),
		"dependentRequired":                        field("{properties: {a: {type: string}}, dependentRequired: {a: [b]}}", "/dependentRequired", "cannot be enforced"),
		"propertyNames":                            field("{additionalProperties: {type: string}, propertyNames: {pattern: a}}", "/propertyNames", "cannot be enforced"),
		"a dynamic reference":                      field(`{$dynamicRef: "#x", type: string}`, "/$dynamicRef", "cannot be enforced"),
		"a schema that is true":                    field("true", "", "a schema must be an object"),
		"a schema that is a list":                  field("[]", "", "a schema must be an object"),
		"a schema that says nothing":               field("{}", "", "the type is missing"),
		"a schema without a type":                  field("{maxLength: 3}", "", "the type is missing"),
		"another type":                             field("{type: strng}", "/type", `"strng" is not a type: must be one of string`),
		"one of many types":                        field("{type: [string, nul]}", "/type/1", `"nul" is not a type`),
		"no types":                                 field("{type: []}", "/type", "must be a type or a list of types"),
		"a type that is an object":                 field("{type: {}}", "/type", "must be a type or a list of types"),
		"an array without items":                   field("{type: array}", "", "an array needs items"),
		"an object without properties":             field("{type: object}", "", "an object needs properties or additionalProperties"),
		"an object with empty properties":          field("{type: object, properties: {}}", "", "an object needs properties or additionalProperties"),
		"properties that are a list":               field("{type: object, properties: [], additionalProperties: false}", "/properties", "must be an object"),
		"required that is a text":                  field("{properties: {id: {type: string}}, required: id}", "/required", "must be a list"),
		"required of 3.0's kind":                   field("{type: string, required: true}", "/required", "must be a list"),
		"a required name that is an object":        field("{properties: {id: {type: string}}, required: [{}]}", "/required/0", "must be a string"),
		"a required name that is not declared":     field("{properties: {id: {type: string}}, required: [id, idd]}", "/required/1", "idd is not declared"),
		"items that are a list":                    field("{type: array, maxItems: 1, items: [{type: string}]}", "/items", "a schema must be an object"),
		"additionalProperties that is a text":      field(`{additionalProperties: "x"}`, "/additionalProperties", "must be true or false"),
		"enum that is a text":                      field("{type: string, enum: x}", "/enum", "must be a list"),
		"enum without values":                      field("{type: string, enum: []}", "/enum", "must have 1 to"),
		"enum of objects":                          field("{enum: [{}]}", "/enum/0", "only strings, numbers, true, false and null"),
		"const of an array":                        field("{const: []}", "/const", "only strings, numbers, true, false and null"),
		"enum of another type":                     field("{type: string, enum: [a, 1]}", "/enum/1", "not of the type of the schema"),
		"const of another type":                    field("{type: integer, const: true}", "/const", "not of the type of the schema"),
		"a length that is negative":                field("{type: string, maxLength: -1}", "/maxLength", "must be a whole number"),
		"a length that is a text":                  field(`{type: string, maxLength: "3"}`, "/maxLength", "must be a whole number"),
		"a length with a fraction":                 field("{type: string, minLength: 1.5}", "/minLength", "must be a whole number"),
		"a bound that is a text":                   field(`{type: number, minimum: "3"}`, "/minimum", "must be a number"),
		"a bound that is an object":                field("{type: number, maximum: {}}", "/maximum", "must be a number"),
		"exclusiveMinimum of 3.0":                  field("{type: number, minimum: 3, exclusiveMinimum: true}", "/exclusiveMinimum", "must be a number"),
		"uniqueItems that is a number":             field("{type: array, maxItems: 1, items: {type: string}, uniqueItems: 1}", "/uniqueItems", "must be true or false"),
		"nullable that is a text":                  field(`{type: string, nullable: "true"}`, "/nullable", "must be true or false"),
		"a pattern with a surrogate":               field(`{type: string, pattern: '^\ud83d$'}`, "/pattern", "not one of RE2"),
		"a pattern with a backreference":           field(`{type: string, pattern: '(a)\1'}`, "/pattern", "not one of RE2"),
		"a pattern with a lookahead":               field(`{type: string, pattern: 'a(?=b)'}`, "/pattern", "not one of RE2"),
		"a pattern that is an object":              field("{type: string, pattern: {}}", "/pattern", "must be a string"),
		"a pattern that is long":                   field("{type: string, pattern: "+strings.Repeat("a", 1001)+"}", "/pattern", "longer than 1000 bytes"),
		"a pattern that is expensive":              field("{type: string, pattern: '(a{30}){30}(a{30}){30}(a{30}){30}'}", "/pattern", "too expensive"),
		"a format that is a list":                  field("{type: string, format: [date]}", "/format", "must be a string"),
		"bounds that contradict each other":        field("{type: integer, minimum: 3, maximum: 2}", "", "no value can be valid"),
		"allOf that contradicts itself":            field("{allOf: [{type: string}, {type: integer}]}", "", "no value can be valid"),
		"allOf that contradicts itself, inside":    field("{allOf: [{properties: {m: {type: string}}}, {properties: {m: {properties: {n: {type: string}}}}}]}", "/allOf/1", "no value of m can be valid"),
		"allOf that is an object":                  field("{type: string, allOf: {}}", "/allOf", "must be a list"),
		"allOf without schemas":                    field("{type: string, allOf: []}", "/allOf", "must have at least one schema"),
		"allOf of two choices, one by a member":    field("{allOf: [{oneOf: ["+kind("a")+", "+kind("b")+"], discriminator: {propertyName: k}}, {oneOf: ["+kind("a")+", "+kind("b")+"]}]}", "/allOf/1", "two oneOf or anyOf that allOf combines cannot have a discriminator"),
		"allOf with two formats":                   field("{allOf: [{type: string, format: date}, {type: string, format: uuid}]}", "/allOf/1", "two formats"),
		"allOf in which a name is not declared":    field("{allOf: [{properties: {a: {type: string}}}, {required: [b]}]}", "/allOf/1/required/0", "b is not declared"),
		"oneOf that is an object":                  field("{oneOf: {}}", "/oneOf", "must be a list"),
		"oneOf without alternatives":               field("{oneOf: []}", "/oneOf", "must have 1 to 256 alternatives"),
		"many alternatives":                        field("{oneOf: ["+strings.Repeat("{type: string}, ", 256)+"{type: string}]}", "/oneOf", "must have 1 to 256 alternatives"),
		"nine alternatives":                        field("{oneOf: ["+strings.Repeat("{type: string}, ", 8)+"{type: string}]}", "", "more than 8 alternatives would be tried: add a discriminator"),
		"many choices that hold at once":           field("{oneOf: ["+strings.Repeat("{type: string, minLength: 1}, ", 16)+"{type: string}], anyOf: ["+strings.Repeat("{type: string, maxLength: 1}, ", 16)+"{type: string}]}", "/anyOf", "more than 256 alternatives together"),
		"choices that hold at once":                field("{oneOf: [{type: string, minLength: 1}, {type: string, minLength: 2}, {type: string, minLength: 3}], anyOf: [{type: string, maxLength: 7}, {type: string, maxLength: 8}, {type: string, maxLength: 9}]}", "", "more than 8 alternatives would be tried"),
		"too many attempts":                        field(tries(8, tries(8, tries(2, "{type: string}"))), "/oneOf/0/items/oneOf/0/items", "more than 64 alternatives would be tried"),
		"a discriminator without a name":           field("{oneOf: [{properties: {a: {type: string}}}, {properties: {b: {type: string}}}], discriminator: {}}", "/discriminator", "every alternative must"),
		"a discriminator that is not declared":     field("{oneOf: ["+theSchema+", "+theSchema+"], discriminator: {propertyName: z}}", "/discriminator", `must have the member "z", which is a string`),
		"a discriminator of one side":              field("{oneOf: ["+theSchema+", {writeOnly: true, allOf: ["+theSchema+"]}], discriminator: {propertyName: y}}", "/discriminator", "all alternatives must be readOnly or writeOnly, or none"),
		"a map beside a hidden alternative":        field("{anyOf: [{type: object, additionalProperties: true}, {writeOnly: true, type: object, properties: {pin: {type: string}}}]}", "", "what is readOnly or writeOnly would pass as further members"),
		"a map beside a hidden one, and a text":    field("{anyOf: [{type: string}, {type: object, additionalProperties: true}, {writeOnly: true, type: object, properties: {pin: {type: string}}}]}", "", "what is readOnly or writeOnly would pass as further members"),
		"a map beside an internal member":          field("{anyOf: [{properties: {id: {type: string}, c: {type: string, x-gatehouse-internal: true}}}, {type: object, additionalProperties: true}]}", "", "one alternative has further members, or any JSON, where another one hides something"),
		"a map beside a writeOnly member":          field("{anyOf: [{additionalProperties: {type: string}}, {properties: {id: {type: string}, c: {type: string, writeOnly: true}}}]}", "", "where another one hides something"),
		"a map beside a hidden one further below":  field("{anyOf: [{properties: {d: {type: array, maxItems: 1, items: {properties: {c: {type: string, writeOnly: true}}}}}}, {properties: {d: {type: array, maxItems: 1, items: {additionalProperties: true}}}}]}", "", "where another one hides something"),
		"lists of maps and of hidden members":      field("{anyOf: [{type: array, maxItems: 1, items: {properties: {c: {type: string, writeOnly: true}}}}, {type: array, maxItems: 1, items: {additionalProperties: true}}]}", "", "where another one hides something"),
		"a map beside what is removed":             field("{anyOf: [{properties: {s: {type: string}}, required: [s], x-gatehouse-visible: {s: [a]}}, {additionalProperties: true}]}", "", "where another one hides something"),
		"a body's map beside a readOnly member":    {"    get:", "    post:\n      requestBody: {content: {application/json: {schema: {anyOf: [{properties: {c: {type: string, readOnly: true}, d: {type: string}}}, {additionalProperties: true}]}}}}\n      responses: {\"204\": {}}\n    get:", 7, "/paths/~1orders~1{id}/post/requestBody/content/application~1json/schema", "where another one hides something"},
		"a body's map beside an internal member":   {"    get:", "    post:\n      requestBody: {content: {application/json: {schema: {anyOf: [{properties: {c: {type: string, x-gatehouse-internal: true}, d: {type: string}}}, {additionalProperties: true}]}}}}\n      responses: {\"204\": {}}\n    get:", 7, "/paths/~1orders~1{id}/post/requestBody/content/application~1json/schema", "where another one hides something"},
		"a reference to nothing":                   field(`{$ref: "#/components/schemas/Nothing"}`, "/$ref", "is not a value of this document"),
		"a reference to a file":                    field(`{$ref: "./order.yaml#/Order"}`, "/$ref", "bundler, such as `redocly bundle`"),
		"a reference to a server":                  field(`{$ref: "https://example.com/order.json"}`, "/$ref", "bundler"),
		"a reference that is an object":            field("{$ref: {}}", "/$ref", "is not in this document"),
		"a keyword beside a reference":             field(`{$ref: "#/components/schemas/Order", oneof: []}`, "/oneof", "oneof cannot be enforced here"),
		"an extension that is misspelt":            field("{type: string, x-gatehouse-internl: true}", "/x-gatehouse-internl", "cannot be enforced here: did you mean x-gatehouse-internal?"),
		"internal that is a text":                  field(`{type: string, x-gatehouse-internal: "true"}`, "/x-gatehouse-internal", "must be true or false"),
		"internal on items":                        field("{type: array, maxItems: 1, items: {type: string, x-gatehouse-internal: true}}", "/items/x-gatehouse-internal", "is for the place of the member"),
		"internal beside a reference of items":     field("{type: array, maxItems: 1, items: {$ref: '#/components/schemas/Order', x-gatehouse-internal: true}}", "/items/x-gatehouse-internal", "is for the place of the member"),
		"internal beside a reference in allOf":     field("{allOf: [{$ref: '#/components/schemas/Order', x-gatehouse-internal: true}]}", "/allOf/0/x-gatehouse-internal", "is for the place of the member"),
		"internal where another one refers":        {"y: {type: string}", `y: {type: string, x-gatehouse-internal: true}` + "\n        z: {$ref: '#/components/schemas/Order/properties/y'}", 20, recordAt + "/properties/y/x-gatehouse-internal", "is for the place of the member"},
		"internal where one before refers":         {"y: {type: string}", `z: {$ref: '#/components/schemas/Order/properties/y'}` + "\n        y: {type: string, x-gatehouse-internal: true}", 21, recordAt + "/properties/y/x-gatehouse-internal", "is for the place of the member"},
		"untrusted where another one refers":       {"y: {type: string}", `y: {type: string, x-gatehouse-untrusted: true}` + "\n        z: {minLength: 1, $ref: '#/components/schemas/Order/properties/y'}", 20, recordAt + "/properties/y/x-gatehouse-untrusted", "is for the place of the member"},
		"a place where another one refers":         {"y: {type: string}", `y: {type: string, x-gatehouse-from: yy}` + "\n        z: {allOf: [{$ref: '#/components/schemas/Order/properties/y'}]}", 20, recordAt + "/properties/y/x-gatehouse-from", "is for the place of the member"},
		"possible values that exclude a constant":  field("{type: string, enum: [a], const: b}", "", "no value can be valid: its rules contradict each other"),
		"possible values of which none is in both": field("{allOf: [{type: string, enum: [a]}, {enum: [b]}]}", "", "no value can be valid"),
		"null of a type without it":                field("{type: string, enum: [null]}", "", "no value can be valid"),
		"open bounds that are equal":               field("{type: number, minimum: 5, exclusiveMaximum: 5}", "", "no value can be valid: its rules contradict each other"),
		"a member of no side":                      field("{type: string, readOnly: true, writeOnly: true}", "", "cannot be readOnly and writeOnly: no request and no response would have it"),
		"visible without values":                   field("{properties: {s: {type: string}}, required: [s], x-gatehouse-visible: {s: []}}", "/x-gatehouse-visible", "must be one member with a list of values"),
		"visible with two members":                 field("{properties: {s: {type: string}}, required: [s], x-gatehouse-visible: {s: [a], t: [a]}}", "/x-gatehouse-visible", "must be one member with a list of values"),
		"visible that is a text":                   field("{properties: {s: {type: string}}, x-gatehouse-visible: s}", "/x-gatehouse-visible", "must be one member with a list of values"),
		"visible by a member that is missing":      field("{properties: {s: {type: string}}, x-gatehouse-visible: {t: [a]}}", "", "t must be a declared member"),
		"visible by a member that is optional":     field("{properties: {s: {type: string}}, x-gatehouse-visible: {s: [a]}}", "", "s must be a declared member, required"),
		"visible by a number":                      field("{properties: {s: {type: integer}}, required: [s], x-gatehouse-visible: {s: [a]}}", "", "s must be a declared member, required and a string"),
		"visible by a value that it cannot have":   field("{properties: {s: {type: string, enum: [published, draft]}}, required: [s], x-gatehouse-visible: {s: [publised]}}", "", "x-gatehouse-visible: no value of s is one of these"),
		"visible by two schemas that differ":       field("{allOf: [{properties: {s: {type: string}}, required: [s], x-gatehouse-visible: {s: [a]}}, {properties: {}, x-gatehouse-visible: {s: [b]}}]}", "", "x-gatehouse-visible: no value of s is one of these"),
		"a tenant of a schema that is missing":     field("{properties: {s: {type: string}}, x-gatehouse-tenant: t}", "", "the tenant t must be declared"),
		"a tenant that is a boolean":               field("{properties: {s: {type: boolean}}, x-gatehouse-tenant: s}", "", "the tenant s must be a string or an integer"),
		"a tenant that is a list":                  field("{properties: {s: {type: string}}, x-gatehouse-tenant: [s]}", "/x-gatehouse-tenant", "must be a string"),
		"a tenant of one alternative":              field("{oneOf: [{properties: {business_id: {type: string}, k: {const: a}}, required: [k]}, {properties: {k: {const: b}}, required: [k]}]}", "", "every alternative must declare the tenant, or none"),
		"a visibility of one alternative":          field("{anyOf: [{properties: {st: {type: string}}}, {x-gatehouse-visible: {st: [open]}, required: [st], properties: {st: {type: string}, n: {type: string}}}]}", "", "every alternative must have the same x-gatehouse-visible, or none"),
		"a visibility beside no member":            field("{oneOf: [{properties: {n: {type: string}}}, {x-gatehouse-visible: {st: [open]}, required: [st], properties: {st: {type: string}}}]}", "", "every alternative must have the same x-gatehouse-visible, or none"),
		"a visibility beside other values":         field("{anyOf: [{x-gatehouse-visible: {st: [open, draft]}, required: [st], properties: {st: {type: string}}}, {x-gatehouse-visible: {st: [open]}, required: [st], properties: {st: {type: string}}}]}", "", "every alternative must have the same x-gatehouse-visible, or none"),
		"a visibility beside a nested choice":      field("{anyOf: [{oneOf: [{properties: {st: {type: string}}}, {properties: {k: {type: string}}}]}, {x-gatehouse-visible: {st: [open]}, required: [st], properties: {st: {type: string}}}]}", "", "every alternative must have the same x-gatehouse-visible, or none"),
		"a tenant of the items of one alternative": field("{oneOf: [{type: array, items: {properties: {business_id: {type: string}}}}, {anyOf: [{type: array, items: {properties: {n: {type: string}}}}, {type: string}]}]}", "", "every alternative must declare the tenant, or none"),
		"a tenant of the items of lists of one":    field("{oneOf: [{type: array, items: {type: array, items: {properties: {business_id: {type: string}}}}}, {type: array, items: {type: [array, string], items: {properties: {n: {type: string}}}}}]}", "", "every alternative must declare the tenant, or none"),
		"a visibility of the items of one":         field("{anyOf: [{type: array, items: {oneOf: [{properties: {st: {type: string}}}, {type: string}]}}, {type: array, items: {x-gatehouse-visible: {st: [open]}, required: [st], properties: {st: {type: string}}}}]}", "", "every alternative must have the same x-gatehouse-visible, or none"),
		"a tenant of one alternative, nested":      field("{oneOf: [{properties: {business_id: {type: string}}}, {anyOf: [{properties: {business_id: {type: string}}}, {properties: {k: {type: string}}}]}]}", "/oneOf/1", "every alternative must declare the tenant"),
		"a tenant in a member of one alternative":  field("{oneOf: [{properties: {o: {properties: {business_id: {type: string}}}}}, {properties: {o: {properties: {n: {type: string}}}}}]}", "", "an object in one alternative declares the tenant, and the one in its place in another alternative does not"),
		"a tenant in lists and maps of one":        field("{oneOf: [{properties: {l: {type: array, items: {additionalProperties: {properties: {business_id: {type: string}}}}}}}, {properties: {l: {type: array, items: {properties: {m: {properties: {n: {type: string}}}}}}}}]}", "", "an object in one alternative declares the tenant"),
		"a tenant in a choice in one alternative":  field("{oneOf: [{properties: {o: {anyOf: [{type: string}, {properties: {business_id: {type: string}}}]}}}, {properties: {o: {properties: {n: {type: string}}}}}]}", "", "an object in one alternative declares the tenant"),
		"a visibility in a member of one":          field("{anyOf: [{properties: {o: {properties: {st: {type: string}}}}}, {properties: {o: {x-gatehouse-visible: {st: [open]}, required: [st], properties: {st: {type: string}}}}}]}", "", "an object in one alternative has another x-gatehouse-visible than the one in its place"),
		"other values in a member of one":          field("{anyOf: [{properties: {o: {x-gatehouse-visible: {st: [a, open]}, required: [st], properties: {st: {type: string}}}}}, {properties: {o: {x-gatehouse-visible: {st: [open]}, required: [st], properties: {st: {type: string}}}}}]}", "", "an object in one alternative has another x-gatehouse-visible than the one in its place"),
		"a visibility by a service's other name":   field("{anyOf: [{properties: {o: {properties: {open: {type: string, x-gatehouse-from: st}}}}}, {properties: {o: {x-gatehouse-visible: {st: [open]}, required: [st], properties: {st: {type: string}}}}}]}", "", "an object in one alternative has another x-gatehouse-visible than the one in its place"),
		"a visibility by no member of one":         field("{anyOf: [{properties: {o: {properties: {st: {type: string}}}}}, {properties: {o: {x-gatehouse-visible: {z: [open]}, properties: {st: {type: string}}}}}]}", "/anyOf/1/properties/o", "z must be a declared member"),
		"extensible enum that is a text":           field("{type: string, x-extensible-enum: a}", "/x-extensible-enum", "must be a list"),
		"a member that waits for itself":           {"x: {type: string}", "x: {allOf: [{$ref: \"#/components/schemas/Order/properties/x\"}, {type: string}]}", 19, recordAt + "/properties/x/allOf/1", "circular"},
		"references in a circle":                   field(`{$ref: "#/components/schemas/Order/properties/x"}`, "", "circular"),
		"a member that is its only alternative":    field(`{oneOf: [{$ref: "#/components/schemas/Order/properties/x"}]}`, "", "circular"),
		"a member that is one of its alternative":  field(`{oneOf: [{$ref: "#/components/schemas/Order/properties/x"}, {type: string}]}`, "", "circular"),

		// Parameters.
		"a cookie":                         parameter("{name: c, in: cookie, schema: {type: string}}", "/in", "must be one of query, path or header"),
		"another method for callers":       parameter("{name: _method, in: query, schema: {type: string}}", "", "services may take the parameter _method for the method, and this operation only reads"),
		"a parameter without a name":       parameter("{in: query, schema: {type: string}}", "", "needs a name"),
		"a parameter without a place":      parameter("{name: c, schema: {type: string}}", "/in", "must be one of query, path or header"),
		"a parameter that is a text":       parameter("page", "", "an object is missing"),
		"a required object":                parameter("{name: c, in: query, required: true, style: deepObject, schema: {properties: {a: {type: string}}}}", "", "is required, and can only be a string"),
		"a required choice":                parameter("{name: c, in: query, required: true, schema: {oneOf: [{type: string}, {type: integer}]}}", "", "is required, and can only be a string"),
		"another idempotency key":          parameter("{name: x-idempotency-key, in: header, required: true, schema: {type: string}}", "", "the header x-idempotency-key is required, but callers can only send it as Idempotency-Key: rename the parameter in an overlay, and let header_up of the upstream set x-idempotency-key from it"),
		"a request ID that is a key":       parameter("{name: Repeatability-Request-ID, in: header, required: true, schema: {type: string}}", "", "but callers can only send it as Idempotency-Key"),
		"a required header":                parameter("{name: X-Api-Key, in: header, required: true, schema: {type: string}}", "", "only these are forwarded: Idempotency-Key"),
		"required that is not a flag":      parameter("{name: c, in: query, required: yes please, schema: {type: string}}", "/required", "must be true or false"),
		"an unknown member of a parameter": parameter("{name: c, in: query, schema: {type: string}, type: string}", "/type", "type cannot be enforced here"),
		"a parameter that the path lacks":  parameter("{name: c, in: path, required: true, schema: {type: string}}", "", "the path has no parameter {c}"),
		"a parameter of 3.0's path twice":  parameter("{name: id, in: path, required: true, schema: {type: string}}", "", "duplicate parameter id"),
		"clamp without bounds":             parameter("{name: c, in: query, x-gatehouse-clamp: true, schema: {type: integer}}", "/x-gatehouse-clamp", "needs an integer with minimum and maximum"),
		"clamp with one bound":             parameter("{name: c, in: query, x-gatehouse-clamp: true, schema: {type: integer, minimum: 1}}", "/x-gatehouse-clamp", "needs minimum and maximum"),
		"clamp of an exclusive bound":      parameter("{name: c, in: query, x-gatehouse-clamp: true, schema: {type: integer, minimum: 1, exclusiveMaximum: 5}}", "/x-gatehouse-clamp", "needs an integer with minimum and maximum"),
		"clamp of a text":                  parameter("{name: c, in: query, x-gatehouse-clamp: true, schema: {type: string}}", "/x-gatehouse-clamp", "needs an integer with minimum and maximum"),
		"clamp of a header":                parameter("{name: If-Match, in: header, x-gatehouse-clamp: true, schema: {type: string}}", "/x-gatehouse-clamp", "is for parameters of the query"),
		"a default that is not valid":      parameter("{name: c, in: query, schema: {type: integer, maximum: 5, default: 6}}", "/schema/default", "the default is too large"),
		"a default of another kind":        parameter("{name: c, in: query, schema: {type: integer, default: [1]}}", "/schema/default", "the default must be a string"),
		"an array's default of one value":  parameter("{name: c, in: query, schema: {type: array, items: {type: string}, default: a}}", "/schema/default", "must be a list"),
		"possible values that contradict":  parameter("{name: c, in: query, schema: {type: string, enum: [a], const: b}}", "/schema", "no value can be valid"),
		"bounds that contradict":           parameter("{name: c, in: query, schema: {type: integer, minimum: 3, maximum: 2}}", "/schema", "no value can be valid"),
		"fewer items than many":            parameter("{name: c, in: query, schema: {type: array, minItems: 51, items: {type: string}}}", "/schema", "no value can be valid"),
		"a default with an item twice":     parameter("{name: c, in: query, schema: {type: array, uniqueItems: true, items: {type: string}, default: [a, b, a]}}", "/schema/default", "has the same item twice"),
		"a fault in a parameter's schema":  parameter("{name: c, in: query, schema: {type: string, minLenght: 2}}", "/schema/minLenght", "cannot be enforced here"),
		"a header twice, in another case":  {theParameter, theParameter + "\n      - {name: If-Match, in: header, schema: {type: string}}\n      - {name: if-match, in: header, schema: {type: string}}", 12, operationAt + "/parameters/3", "duplicate parameter if-match"},
		"a parameter twice":                {theParameter, theParameter + "\n      - " + theParameter, 11, operationAt + "/parameters/2", "duplicate parameter page"},
		"a parameter of a path twice":      {"    get:\n", "    parameters: [{name: a, in: query, schema: {type: string}}, {name: a, in: query, schema: {type: integer}}]\n    get:\n", 6, "/paths/~1orders~1{id}/parameters/1", "duplicate parameter a"},
		"parameters that are an object":    {"- {name: id, in: path, required: true, schema: {type: string}}\n      - " + theParameter, "  {}", 9, operationAt + "/parameters", "must be a list"},
		"a path's parameter of a kind":     {"{name: id, in: path, required: true, schema: {type: string}}", "{name: id, in: path, required: true, schema: {type: array, items: {type: string}}}", 9, operationAt + "/parameters/0", "must be a string, an integer, a number or a boolean"},

		"a path's parameter with colons":  {"name: id, in: path, required: true, schema: {type: string}", "name: id, in: path, required: true, schema: {type: string, format: date-time}", 9, operationAt + "/parameters/0", "no value can be in a path, where callers may send 1 to 128 letters, digits and -._~ only"},
		"a path's parameter with slashes": {"name: id, in: path, required: true, schema: {type: string}", "name: id, in: path, required: true, schema: {type: string, enum: [a b, c/d, ..]}", 9, operationAt + "/parameters/0", "no value can be in a path"},
		"a path's parameter that is long": {"name: id, in: path, required: true, schema: {type: string}", "name: id, in: path, required: true, schema: {type: string, minLength: 129}", 9, operationAt + "/parameters/0", "no value can be in a path"},

		// Operations and paths.
		"a path parameter that is not declared":     {"{name: id, in: path", "{name: it, in: path", 7, operationAt, "the parameter id of the path is not declared"},
		"another method than those that are served": {"    get:", "    options:", 7, "/paths/~1orders~1{id}/options", "OPTIONS cannot be served: must be one of GET, POST, PUT, PATCH, DELETE"},
		"HEAD alone":                              {"    get:", "    head:", 7, "/paths/~1orders~1{id}/head", "HEAD cannot be served"},
		"a read that is no POST":                  operation("x-gatehouse-read: true", "/x-gatehouse-read", "is for POST"),
		"a step of enforcement that is none":      operation("x-gatehouse-enforce: none", "/x-gatehouse-enforce", "must be one of tenant, members, all"),
		"steps of enforcement":                    operation("x-gatehouse-enforce: [tenant]", "/x-gatehouse-enforce", "must be one of tenant, members, all"),
		"an answer that is not enforced":          {theOperation, "x-gatehouse-answer: {x: a}\n      x-gatehouse-enforce: all", 8, operationAt + "/x-gatehouse-enforce", "the gateway answers this operation itself"},
		"a body that is a form":                   {"    get:", "    post:\n      requestBody: {content: {application/x-www-form-urlencoded: {schema: {type: object}}}}", 7, "/paths/~1orders~1{id}/post/requestBody/content/application~1x-www-form-urlencoded", "cannot be enforced: must be application/json or application/merge-patch+json"},
		"a body of JSON:API":                      {"    get:", "    post:\n      requestBody: {content: {application/vnd.api+json: {schema: {type: object}}}}", 7, "/paths/~1orders~1{id}/post/requestBody/content/application~1vnd.api+json", "must be application/json or application/merge-patch+json. If the service takes it as application/json, add that in an overlay"},
		"a body without a media type":             {"    get:", "    post:\n      requestBody: {required: true}", 7, "/paths/~1orders~1{id}/post/requestBody/content", "a media type is missing"},
		"a body with an unknown member":           {"    get:", "    post:\n      requestBody: {schema: {}, content: {application/json: {schema: {type: string}}}}", 7, "/paths/~1orders~1{id}/post/requestBody/schema", "schema cannot be enforced here"},
		"a body's schema that cannot be enforced": {"    get:", "    post:\n      requestBody: {content: {application/json: {schema: {type: string, not: {}}}}}", 7, "/paths/~1orders~1{id}/post/requestBody/content/application~1json/schema/not", "not cannot be enforced here"},
		"a body that is readOnly":                 {"    get:", "    post:\n      requestBody: {content: {application/json: {schema: {type: array, maxItems: 1, items: {type: string, readOnly: true}}}}}", 7, "/paths/~1orders~1{id}/post/requestBody", "is readOnly: no body would be accepted"},
		"an answer that is writeOnly":             response("content: {application/json: {schema: {allOf: ["+theSchema+", {writeOnly: true}]}}}", "/content", "is writeOnly: nothing of it may leave"),
		"a body of GET":                           {theOperation, theOperation + "\n      requestBody: {required: true, content: {application/json: {schema: {type: object}}}}", 8, operationAt + "/requestBody", "GET has no body"},
		"an operation that is elsewhere":          {"    get:", "    post: {$ref: \"orders.yaml#/post\"}\n    get:", 6, "/paths/~1orders~1{id}/post/$ref", "bundler, such as `redocly bundle`"},
		"an operation that is another one":        {"    get:", "    post: {$ref: \"#/paths/~1orders~1{id}/get\"}\n    get:", 6, "/paths/~1orders~1{id}/post/$ref", "an operation cannot be referred to"},
		"another method":                          {"    get:", "    query: {}\n    get:", 6, "/paths/~1orders~1{id}/query", "query cannot be enforced here: must be one of "},
		"an unknown member of an operation":       operation("operationID: a", "/operationID", "operationID cannot be enforced here"),
		"an operation's name that is a list":      operation("operationId: []", "/operationId", "must be a string"),
		"tags that are a text":                    operation("tags: a", "/tags", "must be a list"),
		"a path without a slash":                  {"  /orders/{id}:", "  orders/{id}:", 6, "/paths/orders~1{id}", "must begin with a slash"},
		"a path with half a parameter":            {"  /orders/{id}:", "  /orders/{id}/a{b}:", 6, "/paths/~1orders~1{id}~1a{b}", "each segment of a path must be"},
		"a path with an empty segment":            {"  /orders/{id}:", "  /orders//{id}:", 6, "/paths/~1orders~1~1{id}", "each segment of a path must be"},
		"a path that ends in two slashes":         {"  /orders/{id}:", "  /orders/{id}//:", 6, "/paths/~1orders~1{id}~1~1", "each segment of a path must be"},
		"a path of a slash alone":                 {"  /orders/{id}:", "  /:", 6, "/paths/~1", "each segment of a path must be"},
		"a path with dots":                        {"  /orders/{id}:", "  /orders/../{id}:", 6, "/paths/~1orders~1..~1{id}", "each segment of a path must be"},
		"a path with an escape":                   {"  /orders/{id}:", "  /order%20s/{id}:", 6, "/paths/~1order%20s~1{id}", "each segment of a path must be"},
		"a path without a resource":               {"  /orders/{id}:", "  /{id}:", 6, "/paths/~1{id}", "the first segment of a path names the resource"},
		"a path with a parameter twice":           {"  /orders/{id}:", "  /orders/{id}/a/{id}:", 6, "/paths/~1orders~1{id}~1a~1{id}", "the parameter {id} twice"},
		"the same template twice":                 {"components:", "  /orders/{no}:\n    get:\n      parameters: [{name: no, in: path, required: true, schema: {type: string}}]\n      responses: {\"204\": {}}\ncomponents:", 15, "/paths/~1orders~1{no}", "/orders/{id} and /orders/{no} are the same path"},
		"an operation's name twice":               {"components:", "  /z:\n    get:\n      operationId: getOrder\n      responses: {\"204\": {}}\ncomponents:", 16, "/paths/~1z/get/operationId", "getOrder is the name of two operations: give this one another, or that in line "},
		"paths that are a list":                   {allPaths, "  []\n", 5, "/paths", "must be an object"},
		"a path that is elsewhere":                {"components:", "  /a: {$ref: \"a.yaml\"}\ncomponents:", 14, "/paths/~1a/$ref", "bundler"},
		"no tenant":                               {"x-gatehouse-tenant: business_id", "tags: []", 7, operationAt, "x-gatehouse-tenant is missing"},
		"a tenant that is an object":              operation("x-gatehouse-tenant: {}", "/x-gatehouse-tenant", "must be a string"),
		"a tenant that is not declared":           operation("x-gatehouse-tenant: company_id", "", "no object of the successful response declares the tenant company_id: declare it, or give the operation x-gatehouse-tenant: request or none"),
		"public records":                          operation("x-gatehouse-public: true", "/x-gatehouse-public", "needs x-gatehouse-answer, or x-gatehouse-tenant: none"),
		"public that is a text":                   operation(`x-gatehouse-public: "no"`, "/x-gatehouse-public", "must be true or false"),
		"deprecated since":                        operation("x-gatehouse-deprecated: {since: 2026-01-01}", "/x-gatehouse-deprecated", "needs deprecated: true"),
		"deprecated without a date":               {theOperation, "deprecated: true\n      x-gatehouse-deprecated: {link: \"https://a.example\"}", 8, operationAt + "/x-gatehouse-deprecated", "since is missing"},
		"deprecated by a date that is none":       {theOperation, "deprecated: true\n      x-gatehouse-deprecated: {since: 2026-01-01, sunset: soon}", 8, operationAt + "/x-gatehouse-deprecated/sunset", "must be a date such as"},
		"deprecated after its sunset":             {theOperation, "deprecated: true\n      x-gatehouse-deprecated: {since: 2027-01-01, sunset: 2026-12-31}", 8, operationAt + "/x-gatehouse-deprecated/sunset", "the sunset must not be before the deprecation"},
		"deprecated with another member":          {theOperation, "deprecated: true\n      x-gatehouse-deprecated: {since: 2026-01-01, until: x}", 8, operationAt + "/x-gatehouse-deprecated/until", "must be one of since, sunset, link"},
		"deprecated with a header in the link":    {theOperation, "deprecated: true\n      x-gatehouse-deprecated: {since: 2026-01-01, link: \"https://a.example>; x\"}", 8, operationAt + "/x-gatehouse-deprecated/link", "must be the URL of a page"},
		"an answer that is another word":          operation("x-gatehouse-answer: key", "/x-gatehouse-answer", "must be identity or an object"),
		"an answer that is public and a business": {theOperation, "x-gatehouse-public: true\n      x-gatehouse-answer: identity", 8, operationAt + "/x-gatehouse-answer", "has no identity"},
		"an answer with other members":            operation("x-gatehouse-answer: identity", "/x-gatehouse-answer", "must have one object, with the members id, name and slug"),
		"an answer that the schema refuses":       operation("x-gatehouse-answer: {x: 1}", "/x-gatehouse-answer", "does not match the schema"),
		"unchecked that is a text":                operation("x-gatehouse-unchecked: application/pdf", "/x-gatehouse-unchecked", "must be a list"),
		"unchecked JSON":                          {theOperation, "x-gatehouse-tenant: request\n      x-gatehouse-unchecked: [application/json]", 8, operationAt + "/x-gatehouse-unchecked/0", "application/json is always checked: give it a schema"},
		"unchecked of no response":                {theOperation, "x-gatehouse-tenant: request\n      x-gatehouse-unchecked: [application/pdf]", 8, operationAt + "/x-gatehouse-unchecked/0", "no response has the media type application/pdf"},

		// Responses.
		"responses that are a list":                {"responses:\n        \"200\":\n          " + theResponse, "responses: []", 11, operationAt + "/responses", "must be an object"},
		"no successful response":                   {`"200":`, `"404":`, 7, operationAt, "a successful response is missing: document it, such as 200 or 204"},
		"only a default response":                  {`"200":`, `default:`, 7, operationAt, "a successful response is missing"},
		"a range of status codes twice":            {`"200":`, "2XX: {description: x}\n        2xx:", 14, operationAt + "/responses/2xx", "is documented above in another case"},
		"a status code that is none":               {`"200":`, "\"204\": {}\n        \"2000\":", 14, operationAt + "/responses/2000", `"2000" is not a status code`},
		"XML alone":                                response("content: {application/xml: {schema: {type: string}}}", "/content/application~1xml", "application/xml cannot be enforced: use application/json"),
		"a form alone":                             response("content: {application/x-www-form-urlencoded: {schema: {type: string}}}", "/content/application~1x-www-form-urlencoded", "cannot be enforced"),
		"a stream":                                 response("content: {text/event-stream: {schema: {type: string}}}", "/content/text~1event-stream", "text/event-stream cannot be enforced: a stream cannot pass. Leave the operation out, or serve it with gatehouse_auth"),
		"a media type that is none":                response(`content: {"a b": {}}`, "/content/a b", "is not a media type"),
		"a response without a schema":              response("content: {application/json: {}}", "/content/application~1json/schema", "the schema is missing"),
		"content that is a list":                   response("content: []", "/content", "must be an object"),
		"headers that are a list":                  response("headers: []", "/headers", "must be an object"),
		"an unknown member of a response":          response("schema: {}", "/schema", "must be one of content, headers"),
		"a response that is elsewhere":             {"\"200\":\n          " + theResponse, "\"200\": {$ref: \"#/components/responses/Order\"}", 12, responseAt + "/$ref", "is not a value of this document"},
		"what stands beside a reference":           {"\"200\":\n          " + theResponse, "\"200\": {$ref: \"#/components/schemas/Order/properties/x/example\", content: {}}", 12, responseAt + "/content", "content would not hold, because OpenAPI ignores members beside $ref"},
		"content that is elsewhere":                response(`content: {$ref: "content.yaml"}`, "/content/$ref", "bundler, such as `redocly bundle`"),
		"a media type that is elsewhere":           response(`content: {application/json: {$ref: "#/components/mediaTypes/Order"}}`, "/content/application~1json/$ref", "is not a value of this document"),
		"records that are a text":                  response("{x-gatehouse-records: orders, "+theResponse+"}", "/x-gatehouse-records", "an object is missing"),
		"records without a body":                   response("x-gatehouse-records: {}", "/x-gatehouse-records", "the response has no body that is checked"),
		"records of a refusal":                     response("content: {}\n        \"404\": {x-gatehouse-records: {}}", "", ""),
		"records where nothing is":                 response("{x-gatehouse-records: {in: order}, "+theResponse+"}", "/x-gatehouse-records", `has no member "order"`),
		"records that are texts":                   response("{x-gatehouse-records: {in: x}, "+theResponse+"}", "/x-gatehouse-records", "the records must be objects"),
		"records that are a choice":                response(`{x-gatehouse-records: {}, content: {application/json: {schema: {oneOf: [`+theSchema+`, `+theSchema+`]}}}}`, "/x-gatehouse-records", "not a choice (oneOf, anyOf): leave x-gatehouse-records out"),
		"records with another member":              response("{x-gatehouse-records: {at: x}, "+theResponse+"}", "/x-gatehouse-records/at", "must be one of in, from, order, at_most, is"),
		"an order of one record":                   response("{x-gatehouse-records: {order: [x]}, "+theResponse+"}", "/x-gatehouse-records", "order and at_most are for lists"),
		"an order that is a text":                  response(list("x-gatehouse-records: {in: orders, order: x}"), "/x-gatehouse-records/order", "must be a list"),
		"an order by a text":                       response(list("x-gatehouse-records: {in: orders, order: [x]}"), "/x-gatehouse-records/order/0", "format utc-date-time"),
		"at most as many as nothing says":          response(list("x-gatehouse-records: {in: orders, at_most: count}"), "/x-gatehouse-records/at_most", "must be a parameter that is an integer"),
		"at most as many as a number":              response(list("x-gatehouse-records: {in: orders, at_most: 5}"), "/x-gatehouse-records/at_most", "must be a parameter that is an integer"),
		"the one that was asked for, by no member": response("{x-gatehouse-records: {is: {z: id}}, "+theResponse+"}", "/x-gatehouse-records/is", "z is not a declared member"),
		"the one that was asked for, by the query": response("{x-gatehouse-records: {is: {x: page}}, "+theResponse+"}", "/x-gatehouse-records/is/x", "is not a parameter of the path"),
		"the one that was asked for, as a text":    response("{x-gatehouse-records: {is: x}, "+theResponse+"}", "/x-gatehouse-records/is", "must be an object"),
		"pages that are an object":                 response(list("x-gatehouse-page: {request: page, response: /n}"), "/x-gatehouse-page", "must be a list"),
		"a page that nothing asks for":             response(list("x-gatehouse-page: [{request: count, response: /n}]"), "/x-gatehouse-page/0/request", "must be a parameter that is an integer"),
		"a page that nothing says":                 response(list("x-gatehouse-page: [{request: page, response: /m}]"), "/x-gatehouse-page/0/response", "is not a member of the response: must be the JSON Pointer of a declared one, such as /pagination/page"),
		"a page without a place":                   response(list("x-gatehouse-page: [{request: page}]"), "/x-gatehouse-page/0/response", "is not a member of the response"),
		"a page that is a list":                    response(list("x-gatehouse-page: [{request: page, response: /orders}]"), "/x-gatehouse-page/0/response", "must be an integer"),
		"a cursor that is a list":                  response(list("x-gatehouse-page: [{cursor: page, response: /orders}]"), "/x-gatehouse-page/0/response", "must be a string or an integer"),
		"a cursor that nothing asks for":           response(list("x-gatehouse-page: [{cursor: next, response: /n}]"), "/x-gatehouse-page/0/cursor", "is not a parameter"),
		"a body in which nobody owns anything":     response("content: {application/json: {schema: {type: string}}}", "", ""),

		// The document.
		"version 2.0":                      {"openapi: 3.1.0", `swagger: "2.0"`, 1, "/swagger", "OpenAPI 2.0 (Swagger) is not possible: convert the document"},
		"version 3.2":                      {"openapi: 3.1.0", "openapi: 3.2.0", 1, "/openapi", `"3.2.0" is not a possible version of OpenAPI: must be 3.0 or 3.1`},
		"a version that is a number":       {"openapi: 3.1.0", "openapi: 3.1", 1, "/openapi", `"3.1" is not a possible version of OpenAPI: must be 3.0 or 3.1 with a third number, such as 3.0.3 or 3.1.0`},
		"an unknown member":                {"openapi: 3.1.0", "openapi: 3.1.0\npathes: {}", 2, "/pathes", "pathes cannot be enforced here"},
		"a server with a variable":         {"paths:", "servers: [{url: \"https://a.example/{version}\"}]\npaths:", 4, "/servers/0/url", "the path of the server must be one such as /api/v1"},
		"a server's path without a slash":  {"paths:", "servers: [{url: api/v1}]\npaths:", 4, "/servers/0/url", "the path of the server must be"},
		"a server's path with dots":        {"paths:", "servers: [{url: /api/..}]\npaths:", 4, "/servers/0/url", "the path of the server must be"},
		"servers that are an object":       {"paths:", "servers: {url: /api}\npaths:", 4, "/servers", "must be a list"},
		"a document's tenant that is none": {"x-gatehouse-tenant: business_id", "x-gatehouse-tenant: [a]", 3, "/x-gatehouse-tenant", "must be a string"},
	} {
		switch name { // what is said of the whole operation
		case "records of a refusal":
			test.line, test.pointer, test.message = 14, operationAt+"/responses/404/x-gatehouse-records", "is for the successful responses"
		case "a body in which nobody owns anything":
			test.line, test.pointer, test.message = 7, operationAt, "no object of the successful response declares the tenant business_id"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, orders, test.old)
			text := strings.Replace(orders, test.old, test.replacement, 1)
			for form, text := range map[string]string{"YAML": text, "JSON": asJSON(t, text)} {
				d, err := load(text, definition.Options{})
				require.Error(t, err, form)
				require.Nil(t, d, "nothing loads")
				var found *definition.FaultError
				for _, fault := range faultsOf(t, err) {
					if fault.Pointer == test.pointer && strings.Contains(fault.Message, test.message) {
						found = fault
					}
				}
				require.NotNil(t, found, "%s: %v", form, err)
				require.Equal(t, "api.yaml", found.File)
				if form == "YAML" {
					require.Equal(t, test.line, found.Line, err)
				}
				require.LessOrEqual(t, len(faultsOf(t, err)), 3, "%s: what follows from a fault is not another one: %v", form, err)
			}
		})
	}
}

func TestFaultsOfOpenAPI30(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ schema, pointer, message string }{
		"exclusiveMinimum of 3.1":              {"{type: number, exclusiveMinimum: 3}", "/exclusiveMinimum", "must be true or false"},
		"an extension beside a reference":      {`{$ref: "#/components/schemas/Order", x-gatehouse-tenant: y}`, "/x-gatehouse-tenant", "put both into allOf"},
		"a side beside a reference in allOf":   {`{allOf: [{$ref: "#/components/schemas/Order", writeOnly: true}]}`, "/allOf/0/writeOnly", "put both into allOf"},
		"a misspelling beside a reference":     {`{$ref: "#/components/schemas/Order", x-gatehouse-visable: {y: [a]}}`, "/x-gatehouse-visable", "put both into allOf"},
		"a keyword that 3.0 does not have":     {"{type: string, $anchor: x}", "/$anchor", "cannot be enforced"},
		"a schema that is XML's":               {"{type: string, xml: {attribute: true}}", "/xml", "cannot be enforced"},
		"an unknown keyword in an alternative": {"{oneOf: [{type: string, mx: 1}, {type: integer}]}", "/oneOf/0/mx", "cannot be enforced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(strings.Replace(orders, "3.1.0", "3.0.3", 1), "x: {type: string}", "x: "+test.schema, 1)
			_, err := load(text, definition.Options{})
			all := faultsOf(t, err)
			require.Len(t, all, 1, err)
			require.Equal(t, recordAt+"/properties/x"+test.pointer, all[0].Pointer)
			require.Equal(t, 19, all[0].Line)
			require.Contains(t, all[0].Message, test.message)
		})
	}
}

// What is said of a faulty path or reference once is not said again of what follows from it.
func TestWhatFollowsFromAFaultIsNotAFault(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ old, replacement, pointer string }{
		"a parameter in a part of a segment": {"/orders/{id}:", "/orders/{id}.json:", "/paths/~1orders~1{id}.json"},
		"a path like another one":            {"components:", "  /orders/{id}#all:\n    get: {parameters: [{name: id, in: path, required: true, schema: {type: string}}], responses: {\"204\": {description: \"\"}}}\ncomponents:", "/paths/~1orders~1{id}#all"},
		"possible values that are objects":   {"x: {type: string}", "x: {type: string, enum: [{}]}", recordAt + "/properties/x/enum/0"},
		"possible values of no other type":   {"x: {type: string}", "x: {enum: [{}]}", recordAt + "/properties/x/enum/0"},
		"a parameter that is elsewhere":      {"{name: id, in: path, required: true, schema: {type: string}}", `{$ref: "parameters.yaml#/id"}`, operationAt + "/parameters/0/$ref"},
		"an operation that is elsewhere":     {"    get:", "    delete: {$ref: \"orders.yaml#/delete\"}\n    get:", "/paths/~1orders~1{id}/delete/$ref"},
		"records without a tenant":           {"x-gatehouse-tenant: business_id", "x-gatehouse-upstream: {headers: {X-A: a}}", operationAt},
		"records that are elsewhere":         {theSchema, `{$ref: "order.yaml"}`, bodyAt + "/$ref"},
		"a list of records elsewhere":        {theSchema, `{type: array, maxItems: 5, items: {$ref: "#/components/schemas/Orders"}}`, bodyAt + "/items/$ref"},
		"a member that is elsewhere":         {"x-gatehouse-records: {}\n          " + theResponse, `content: {application/json: {schema: {properties: {order: {$ref: "#/components/schemas/Orders"}}}}}`, bodyAt + "/properties/order/$ref"},
		"OpenAPI 2.0":                        {"openapi: 3.1.0", `swagger: "2.0"`, "/swagger"},
		"too many alternatives":              {"x: {type: string}", "x: {oneOf: [" + strings.Repeat("{type: string}, ", 256) + "{type: string}]}", recordAt + "/properties/x/oneOf"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(orders, theResponse, "x-gatehouse-records: {}\n          "+theResponse, 1)
			require.Contains(t, text, test.old)
			_, err := load(strings.Replace(text, test.old, test.replacement, 1), definition.Options{})
			all := faultsOf(t, err)
			require.Len(t, all, 1, err)
			require.Equal(t, test.pointer, all[0].Pointer)
		})
	}
}

// Faults of places that have nothing to do with each other come at once, in the order of the lines, and nothing is said twice.
func TestAllFaultsOfADocumentComeAtOnce(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("openapi: 3.1.0", "openapi: 4.0.0", "in: query", "in: cookie", "business_id: {type: string}", "business_id: {type: strin}",
		"x: {type: string}", "x: {not: {}, type: string, maxLength: x}").Replace(orders)
	_, err := load(text, definition.Options{})
	var places []string
	for _, fault := range faultsOf(t, err) {
		places = append(places, fmt.Sprint(fault.Line, " ", fault.Pointer))
	}
	require.Equal(t, []string{
		"1 /openapi", "10 " + operationAt + "/parameters/1/in", "18 " + recordAt + "/properties/business_id/type",
		"19 " + recordAt + "/properties/x/not", "19 " + recordAt + "/properties/x/maxLength",
	}, places)
}

func TestFaultsOfAnOverlayHaveItsFileAndLine(t *testing.T) {
	t.Parallel()
	const head = "overlay: 1.0.0\ninfo: {title: T, version: v1}\nactions:\n"
	for name, test := range map[string]struct {
		actions, pointer, message string
		line                      int
		file                      string
	}{
		"a target that selects nothing":          {"- {target: '$.nothing', remove: true}", "/actions/0/target", "selects nothing", 4, "overlay.yaml"},
		"a target that is invalid":               {"- {target: '$[', remove: true}", "/actions/0/target", "invalid target", 4, "overlay.yaml"},
		"neither update nor remove":              {"- {target: $.paths}", "/actions/0", "must have either", 4, "overlay.yaml"},
		"a keyword that it adds":                 {"- target: $.components.schemas.Order.properties.x\n  update:\n    multipleOf: 2", recordAt + "/properties/x/multipleOf", "multipleOf cannot be enforced", 6, "overlay.yaml"},
		"what is missing in what it adds":        {"- target: $.components.schemas.Order.properties\n  update:\n    z:\n      type: array", recordAt + "/properties/z", "an array needs items", 7, "overlay.yaml"},
		"a parameter without a name":             {"- target: $.paths['/orders/{id}'].get\n  update:\n    parameters:\n    - in: query", operationAt + "/parameters/2", "needs a name", 7, "overlay.yaml"},
		"what is missing in the document":        {"- {target: $.components.schemas.Order.properties.x.type, remove: true}", recordAt + "/properties/x", "the type is missing", 19, "api.yaml"},
		"a member that the document has renamed": {"- target: $.components.schemas.Order\n  update:\n    properties:\n      margin:\n        x-gatehouse-internal: true", recordAt + "/properties/margin", "only the overlay has this schema", 8, "overlay.yaml"},
		"a place that is missing":                {"- target: $.paths['/orders/{id}'].get.responses['200'].content['application/json']\n  update:\n    schema:\n      $ref:\n        '#/x'", bodyAt + "/$ref", "is not a value of this document", 8, "overlay.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(orders, definition.Options{Overlays: []definition.File{{Name: "overlay.yaml", Text: []byte(head + test.actions)}}})
			all := faultsOf(t, err)
			require.Equal(t, test.pointer, all[0].Pointer, err)
			require.Contains(t, all[0].Message, test.message)
			require.Equal(t, fmt.Sprint(test.file, ":", test.line), fmt.Sprint(all[0].File, ":", all[0].Line))
			require.Len(t, all, 1, err)
		})
	}
}

func TestKeywordsThatAreNotEnforcedCanBeRemoved(t *testing.T) {
	t.Parallel()
	for _, keyword := range []string{"not", "if", "then", "else", "multipleOf", "patternProperties", "propertyNames", "contains", "prefixItems", "dependentRequired"} {
		text := strings.Replace(orders, "x: {type: string}", "x: {type: array, items: {type: integer, "+keyword+": {minimum: 3}}}", 1)
		_, err := load(text, definition.Options{})
		require.ErrorContains(t, err, keyword+" cannot be enforced here: an overlay can remove it, with the target ")
		_, target, _ := strings.Cut(err.Error(), "the target ")
		target, _, _ = strings.Cut(target, " and ")
		overlay := "{overlay: 1.0.0, info: {title: T, version: v1}, actions: [{target: '" + target + "', remove: true}]}"
		_, err = load(text, definition.Options{Overlays: []definition.File{{Name: "overlay.yaml", Text: []byte(overlay)}}})
		require.NoError(t, err, overlay)
	}
}

// A bad operation names itself, and so does each that refers to a bad schema; the others load.
func TestFaultyOperationsAreNamedWithWhichTheRestLoads(t *testing.T) {
	t.Parallel()
	const text = `openapi: 3.1.0
info: {title: T, version: v1}
x-gatehouse-tenant: business_id
paths:
  /good:
    get: {operationId: good, tags: [a], responses: {"200": {$ref: "#/components/responses/Good"}}}
  /deep:
    get: {operationId: deep, tags: [b], responses: {"200": {$ref: "#/components/responses/Deep"}}}
  /also:
    get: {operationId: also, tags: [b], responses: {"200": {$ref: "#/components/responses/Deep"}}}
    options: {operationId: write, responses: {"204": {}}}
  /cookie:
    parameters: [{name: c, in: cookie}]
    get: {responses: {"200": {$ref: "#/components/responses/Good"}}}
components:
  responses:
    Good: {content: {application/json: {schema: {properties: {business_id: {type: string}}}}}}
    Deep: {content: {application/json: {schema: {allOf: [{$ref: "#/components/schemas/Middle"}, {properties: {business_id: {type: string}}}]}}}}
  schemas:
    Middle: {properties: {a: {type: array, maxItems: 1, items: {$ref: "#/components/schemas/Bad"}}}}
    Bad: {type: string, multipleOf: 3}
`
	_, err := load(text, definition.Options{})
	var failed *definition.LoadError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, []string{"deep", "also", "write", "get_cookie"}, failed.Except)

	_, err = load(text, definition.Options{Except: []string{"b", "write"}})
	var more *definition.LoadError
	require.ErrorAs(t, err, &more)
	require.Equal(t, []string{"b", "write", "get_cookie"}, more.Except, "what is excepted already stays so")
	require.Equal(t, 1, more.Rest)

	_, err = load(strings.Replace(text, "tags: [a]", "tags: [deep]", 1), definition.Options{Except: []string{"also", "write"}})
	require.ErrorAs(t, err, &more)
	require.Empty(t, more.Except, "deep is also a tag: nothing would be left")

	for name, o := range map[string]definition.Options{
		"except as it is named": {Except: failed.Except}, "except by tag": {Except: []string{"b", "write", "get_cookie"}},
		"only by ID": {Only: []string{"good"}}, "only by tag": {Only: []string{"a"}}, "only and except": {Only: []string{"a", "b"}, Except: []string{"b"}},
	} {
		d, err := load(text, o)
		require.NoError(t, err, name)
		require.Len(t, d.API.Operations(), 1, name)
		published, err := d.Published(definition.PublishOptions{})
		require.NoError(t, err, name)
		require.NotContains(t, string(published), "multipleOf", name)
	}
	for name, o := range map[string]definition.Options{
		"an unknown name": {Only: []string{"good", "nothing"}}, "an unknown exception": {Except: []string{"nothing"}}, "everything": {Except: []string{"good", "b", "write", "get_cookie"}},
	} {
		_, err := load(text, o)
		require.ErrorAs(t, err, &failed, name)
		require.Empty(t, failed.Except, name)
	}
}

// What only or except leaves out is not a fault, whatever its path is. What they select is, and so is a path of which nothing is known.
func TestPathsThatAreNotSelectedAreNotFaults(t *testing.T) {
	t.Parallel()
	const query, elsewhere = "  /a:\n    query: {}\n    post: {operationId: addA, responses: {\"204\": {}}}\n", "  /b: {$ref: \"b.yaml\"}\n"
	only := definition.Options{Only: []string{"getOrder"}}
	for name, c := range map[string]struct {
		paths   string
		o       definition.Options
		pointer string
	}{
		"another method":                          {query, only, ""},
		"another method, by except":               {query, definition.Options{Except: []string{"addA"}}, ""},
		"another method beside what is selected":  {query, definition.Options{Only: []string{"addA"}}, "/paths/~1a/query"},
		"another method alone":                    {"  /a: {query: {}}\n", only, ""},
		"another method alone, of the whole":      {"  /a: {query: {}}\n", definition.Options{}, "/paths/~1a/query"},
		"another method alone, beside except":     {"  /a: {query: {}}\n" + "  /c: {get: {responses: {\"204\": {}}}}\n", definition.Options{Except: []string{"get_c"}}, "/paths/~1a/query"},
		"a path that is elsewhere":                {elsewhere, only, ""},
		"a path that is elsewhere, of the whole":  {elsewhere, definition.Options{}, "/paths/~1b/$ref"},
		"a path that is elsewhere, beside except": {elsewhere + query, definition.Options{Except: []string{"addA"}}, "/paths/~1b/$ref"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := load(strings.Replace(orders, "components:", c.paths+"components:", 1), c.o)
			if c.pointer != "" {
				require.Equal(t, c.pointer, faultsOf(t, err)[0].Pointer)
				return
			}
			require.NoError(t, err)
			require.Len(t, d.API.Operations(), 1)
			require.Equal(t, c.paths == elsewhere, contains(d.Warnings, "b.yaml"))
		})
	}
	_, err := load(strings.Replace(orders, "components:", query+"components:", 1), definition.Options{})
	var failed *definition.LoadError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, []string{"addA"}, failed.Except)
}

// tries returns a choice of n arrays that have to be tried.
func tries(n int, items string) string {
	return "{oneOf: [{type: array, maxItems: 1, items: " + items + "}" + strings.Repeat(", {type: array, maxItems: 1, items: {type: string}}", n-1) + "]}"
}

// A version without its third number is one fault, and does not make others of what is right in OpenAPI 3.0.
func TestAVersionWithoutItsThirdNumberIsOneFault(t *testing.T) {
	t.Parallel()
	_, err := load(strings.NewReplacer("openapi: 3.1.0", "openapi: 3.0", "x: {type: string}", "x: {type: integer, nullable: true, minimum: 0, exclusiveMinimum: true}").Replace(orders), definition.Options{})
	require.Len(t, faultsOf(t, err), 1, err)
}

// An extension that stands one level too high would do nothing.
func TestExtensionsWhereNothingReadsThemDoNotLoad(t *testing.T) {
	t.Parallel()
	const document = `{openapi: 3.1.0, info: {title: x, version: "1", INFO: 1}, tags: [{name: a, TAG: {title: A}}], servers: [{url: /v1, SERVER: 1}], x-gatehouse-tenant: none,
		components: {COMPONENTS: 1, schemas: {SCHEMAS: {type: string}}}, paths: {PATHS: 1, /a: {get: {responses: {RESPONSES: 1, "204": {description: x},
		"404": {headers: {ETag: {HEADER: 1}}, content: {CONTENT: 1, application/json: {schema: {type: string}}}}, "500": {SKIPPED: 1}}}}}}`
	const responses = "/paths/~1a/get/responses/"
	places := map[string]string{
		"INFO": "/info/", "TAG": "/tags/0/", "SERVER": "/servers/0/", "COMPONENTS": "/components/", "SCHEMAS": "/components/schemas/", "PATHS": "/paths/", "RESPONSES": responses,
		"HEADER": responses + "404/headers/ETag/", "CONTENT": responses + "404/content/", "SKIPPED": responses + "500/",
	}
	for place, want := range places {
		for extension, ok := range map[string]bool{"x-other-" + strings.ToLower(place): true, "x-gatehouse-internal": false, "x-gatehouse-area": place == "TAG"} {
			text := strings.ReplaceAll(document, place+":", extension+":")
			for other := range places {
				text = strings.ReplaceAll(text, other+":", "x-"+other+":")
			}
			d, err := load(text, definition.Options{})
			if ok {
				require.NoError(t, err)
				require.Empty(t, d.Warnings)
			} else {
				require.ErrorContains(t, err, want+extension+": ")
			}
		}
	}
}

func TestVisibilityOfAlternativesThatAreDecidedLoads(t *testing.T) {
	t.Parallel()
	for _, choice := range []string{
		`{oneOf: [{required: [k], properties: {k: {const: a}, st: {type: string}}}, {x-gatehouse-visible: {st: [open]}, required: [k, st], properties: {k: {const: b}, st: {type: string}}}]}`,
		`{anyOf: [{x-gatehouse-visible: {st: [open]}, required: [st], properties: {st: {type: string}}}, {type: "null"}]}`,
	} {
		_, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: request, paths: {/a: {get: {responses: {"200": {description: x, content: {application/json: {schema: `+choice+`}}}}}}}}`, definition.Options{})
		require.NoError(t, err)
	}
}

// A caller who sends one of any names as a filter must not change everything.
func TestWriteWithParametersOfAnyNameDoesNotLoad(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]string{"delete": "its members can have any name", "get": ""} {
		for _, schema := range []string{
			`{type: object, additionalProperties: {type: string}}`, `{anyOf: [{type: object, additionalProperties: true}, {type: "null"}]}`,
			`{type: [object, string], additionalProperties: {type: string}}`, `{oneOf: [{anyOf: [{type: object, additionalProperties: {type: string}}, {type: integer}]}, {type: string}]}`,
		} {
			_, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: request, paths: {/a: {`+method+`: {parameters: [{name: filter, in: query, schema: `+schema+`}],
				responses: {"204": {description: x}}}}}}`, definition.Options{})
			if want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, want)
			}
		}
	}
}
