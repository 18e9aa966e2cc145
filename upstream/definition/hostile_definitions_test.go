//go:build !race

package definition_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// Whatever a document says, loading ends in bounded time and memory, with an answer: the test's timeout is what fails otherwise. There is
// nothing concurrent in it: the race detector would only make it ten times as slow.
func TestHostileDefinitionsEndInAFault(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "order.yaml")
	require.NoError(t, os.WriteFile(file, []byte("type: string\n"), 0o600))
	x := schemas
	for name, test := range map[string]struct{ text, message string }{
		"10 MB":                                    {orders + "# " + strings.Repeat("a", 10_000_000), "at most 4194304 are possible"},
		"a reference to itself":                    {x(ref("A"), "A: "+ref("A")), "circular"},
		"a circle of references":                   {x(ref("A"), "A: "+ref("B"), "B: "+ref("C"), "C: "+ref("A")), "circular"},
		"allOf of itself":                          {x(ref("A"), "A: {allOf: ["+ref("A")+"]}"), "circular"},
		"allOf of itself and more":                 {x(ref("A"), "A: {allOf: ["+ref("A")+", {properties: {a: {type: string}}}]}"), "circular"},
		"allOf in a circle":                        {x(ref("A"), "A: {allOf: ["+ref("B")+", {required: [a]}]}", "B: {allOf: ["+ref("C")+", {required: [b]}]}", "C: {allOf: ["+ref("A")+", {required: [c]}]}"), "circular"},
		"allOf in a circle through a choice":       {x(ref("A"), "A: {type: object, oneOf: ["+ref("B")+", {properties: {a: {type: string}}}]}", "B: {allOf: ["+ref("A")+", {required: [b]}]}"), "circular"},
		"choices in a circle":                      {x(ref("A"), "A: {oneOf: ["+ref("B")+", {type: string}]}", "B: {anyOf: ["+ref("A")+", {type: integer}]}"), "circular"},
		"choices in a circle, and something more":  {x("{allOf: ["+ref("A")+", {minLength: 3}]}", "A: {oneOf: ["+ref("B")+", {type: string}]}", "B: {anyOf: ["+ref("A")+", {type: string}]}"), "circular"},
		"choices in a circle that others wait for": {x(ref("A"), "A: {allOf: [{const: a}, {anyOf: [{$ref: \"#/components/schemas/A\", pattern: a}, "+ref("A")+"]}], anyOf: [{const: true}, {minimum: 0, anyOf: [{type: array}, {const: 1}]}, "+ref("A")+"]}"), "too large"},
		"a circle beside references":               {x(ref("A"), `A: {$ref: "#/components/schemas/B", minLength: 1}`, `B: {$ref: "#/components/schemas/A", maxLength: 1}`), "circular"},
		"nullable of itself":                       {x(ref("A"), "A: {nullable: true, allOf: ["+ref("A")+"]}"), "circular"},
		"a parameter of itself":                    {strings.Replace(orders, theParameter, `{$ref: "#/paths/~1orders~1{id}/get/parameters/1"}`, 1), "circular"},
		"a response of itself":                     {strings.Replace(orders, theResponse, `$ref: "#/paths/~1orders~1{id}/get/responses/200"`, 1), "circular"},
		"a path of itself":                         {strings.Replace(orders, "components:", "  /a: {$ref: \"#/paths/~1a\"}\ncomponents:", 1), "circular"},
		"a long chain":                             {x(ref("S0"), chain(20_000, "{type: array, maxItems: 1, items: NEXT}")...), "refer to each other in a row"},
		"a long chain of allOf":                    {x(ref("S0"), chain(20_000, "{allOf: [NEXT]}")...), "in a row"},
		"a long chain of references":               {x(ref("S0"), chain(20_000, "NEXT")...), "circular"},
		"a long chain beside references":           {x(ref("S0"), chain(20_000, "{minLength: 1, allOf: [NEXT]}")...), "in a row"},
		"choices of choices":                       {x(ref("S0"), chain(4_000, "{oneOf: [NEXT, {type: integer}]}")...), "are nested more than"},
		"choices that double":                      {x(ref("S0"), chain(4_000, "{oneOf: [NEXT, {anyOf: [NEXT]}]}")...), "are nested more than"},
		"choices that are tried below each other":  {x(ref("S0"), chain(2_000, "{oneOf: [{properties: {a: NEXT}}, {properties: {a: NEXT, b: NEXT}}]}")...), "more than 64 alternatives would be tried"},
		"a tree that is tried":                     {x(ref("A"), "A: {oneOf: [{properties: {a: "+ref("A")+"}}, {properties: {b: "+ref("A")+"}}]}"), "more than 64 alternatives would be tried"},
		"allOf of two rings of different lengths":  {x("{allOf: ["+ref("A0")+", "+ref("B0")+"]}", rings(1021, 1019)...), "too large"},
		"members that are merged again and again":  {x(ref("S0"), append(chain(3_000, "{allOf: [NEXT, {required: [a1]}, "+ref("Wide")+"]}"), "Wide: {properties: {"+strings.Join(numbered("a%d: {type: string}", 3_000), ", ")+"}}")...), "too large"},
		"a tenant for each operation":              {strings.Replace(x(ref("Wide"), "Wide: {properties: {"+strings.Join(numbered("a%d: {properties: {business_id: {type: string}}}", 3_000), ", ")+"}}"), "components:", strings.Join(numbered("  /o%d: {get: {x-gatehouse-tenant: t%[1]d, responses: {\"200\": {"+theResponse+"}}}}\n", 2_000), "")+"components:", 1), "too large"},
		"many names of the business":               {strings.Replace(x("{properties: {business_id: {type: string}}}", numbered("S%d: {properties: {business_id: {x-gatehouse-from: n%[1]d}}}", 4_000)...), "components:", strings.Join(numbered("  /o%d: {post: {requestBody: {content: {application/json: {schema: {properties: {a: {type: string}}}}}}, x-gatehouse-tenant: request, responses: {\"204\": {}}}}\n", 2_000), "")+"components:", 1), "too large"},
		"many patterns":                            {x("{properties: {" + strings.Join(numbered("a%d: {type: string, pattern: '(a{900})(b|%[1]d)'}", 5_000), ", ") + "}}"), "too expensive together"},
		"many patterns that are refused":           {x("{properties: {" + strings.Join(numbered("a%d: {type: string, pattern: '(a{900})(b{900})(c{900})(d{900})%[1]d'}", 5_000), ", ") + "}}"), "too expensive"},
		"a large enum":                             {x("{type: string, enum: [" + strings.Join(numbered("a%d", 100_000), ", ") + "]}"), "must have 1 to 10000 values"},
		"faults everywhere":                        {x("{properties: {" + strings.Join(numbered("a%d: {typo: 1}", 60_000), ", ") + "}}"), "cannot be enforced"},
		"a reference to a file that is there":      {x(`{$ref: "` + file + `"}`), "is not in this document"},
		"a reference to a file by its URL":         {x(`{$ref: "file://` + file + `#/type"}`), "is not in this document"},
		"references that climb":                    {x(`{$ref: "#/../components/schemas/Order"}`), "is not a value of this document"},
		"an escape that is none":                   {x(`{$ref: "#/components/%zz/~2"}`), "is not a value of this document"},
		"a path of many ambiguous segments":        {strings.Replace(orders, "components:", ambiguousScalar(9)+"components:", 1), "at more than 8 segments"},
		"a path of many parameters":                {strings.Replace(orders, "/orders/{id}:", "/orders/{id}"+strings.Join(numbered("/{p%d}", 9), "")+":", 1), "at most 8 parameters of a path"},
		"the same faults in very many operations":  {strings.Replace(orders, "components:", strings.Join(numbered(`  /o%d: {get: {responses: {"200": {`+strings.Replace(theResponse, "Order", "Bad", 1)+`}}}}`+"\n", 5_000), "")+"components:", 1), "is not a value"},
		"very many operations of one large schema": {strings.Replace(x(ref("S0"), chain(3_000, "{properties: {business_id: {type: string}, n: NEXT}}")...), "components:", strings.Join(numbered(`  /o%d: {get: {responses: {"200": {content: {application/json: {schema: {properties: {x: `+ref("S0")+`, typo: {typo: 1}}}}}}}}}`+"\n", 5_000), "")+"components:", 1), "typo cannot be enforced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(test.text, definition.Options{})
			all := faultsOf(t, err)
			require.LessOrEqual(t, len(all), 1000)
			require.True(t, contains(all, test.message), "%.2000s", all[0].Error())
			for _, fault := range all {
				require.Positive(t, fault.Line)
			}
		})
	}
}
