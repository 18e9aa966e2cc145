package definition_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// schemas returns a definition with these components, in which x is one.
func schemas(x string, components ...string) string {
	return strings.NewReplacer("x: {type: string}", "x: "+x, "schemas:\n", "schemas:\n    "+strings.Join(components, "\n    ")+"\n").Replace(orders)
}

func ref(name string) string { return `{$ref: "#/components/schemas/` + name + `"}` }

// chain returns n components, each with the name of the next one in it.
func chain(n int, format string) (all []string) {
	for i := range n {
		next := ref(fmt.Sprint("S", i+1))
		all = append(all, fmt.Sprintf("S%d: ", i)+strings.ReplaceAll(format, "NEXT", next))
	}
	return append(all, fmt.Sprintf("S%d: {type: string}", n))
}

func contains(all []*definition.FaultError, message string) bool {
	for _, fault := range all {
		if strings.Contains(fault.Message, message) {
			return true
		}
	}
	return false
}

// rings returns two rings of schemas, of which each member refers to the next.
func rings(lengths ...int) (all []string) {
	for ring, n := range lengths {
		for i := range n {
			all = append(all, fmt.Sprintf("%c%d: {properties: {next: %s, v%d: {type: string}}}", 'A'+ring, i, ref(fmt.Sprintf("%c%d", 'A'+ring, (i+1)%n)), i))
		}
	}
	return all
}

// ambiguousScalar returns paths in which a literal and a parameter are possible at n segments.
func ambiguousScalar(n int) string {
	var text strings.Builder
	for i := range n {
		for _, last := range []string{"{p}", "b"} {
			declared := ""
			if last == "{p}" {
				declared = "parameters: [{name: p, in: path, schema: {type: string}}], "
			}
			fmt.Fprintf(&text, "  /a%s/%s: {get: {%sx-gatehouse-tenant: none, responses: {\"204\": {}}}}\n", strings.Repeat("/b", i), last, declared)
		}
	}
	return text.String()
}

// What is large without being hostile loads, and what grows in a schema does not grow in the answer.
func TestLargeDefinitionsLoad(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"an exponential allOf": schemas(ref("S0"), chain(60, "{allOf: [NEXT, NEXT]}")...),
		"an exponential allOf of members": schemas(ref("S0"), append(chain(60, "{allOf: ["+ref("P")+", {properties: {a: NEXT}}, {properties: {a: NEXT}}]}"),
			"P: {properties: {b: {type: string}}}")...),
		"a chain of allOf":           schemas(ref("S0"), chain(1_000, "{allOf: [NEXT, {maxLength: 9}]}")...),
		"many properties":            schemas("{properties: {" + strings.Join(numbered("a%d: {type: string}", 50_000), ", ") + "}}"),
		"an enum of 10,000 values":   schemas("{type: string, enum: [" + strings.Join(numbered("a%d", 10_000), ", ") + "]}"),
		"the same pattern, often":    schemas("{properties: {" + strings.Join(numbered("a%d: {type: string, pattern: '^[a-z]{1,300}$'}", 10_000), ", ") + "}}"),
		"a ring":                     schemas(ref("A0"), rings(2_000)...),
		"two rings of equal lengths": schemas("{allOf: ["+ref("A0")+", "+ref("B0")+"]}", rings(200, 200)...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := load(text, definition.Options{})
			require.NoError(t, err)
			require.Len(t, d.API.Operations(), 1)
		})
	}
}

// An answer is read in time that is bounded by its size, however deep and ambiguous the schema is.
func TestHostileAnswersEndInAnError(t *testing.T) {
	t.Parallel()
	deep := func(n int, before, inner, after string) string {
		return strings.Repeat(before, n) + inner + strings.Repeat(after, n)
	}
	tree := schemas(ref("T"), "T: {properties: {a: "+ref("T")+", k: {type: array, maxItems: 9, items: "+ref("T")+"}}}")
	kinds := schemas(ref("N"), "N: {oneOf: ["+ref("L")+", "+ref("R")+"], discriminator: {propertyName: k}}",
		"L: {properties: {n: "+ref("N")+", k: {type: string}}, required: [k]}", "R: {properties: {n: "+ref("N")+", k: {type: string}}, required: [k]}")
	inner := "{type: array, items: {oneOf: [" + strings.Join(numbered("{properties: {c%d: {type: integer}}, required: [c%[1]d]}", 8), ", ") + "]}}"
	tried := schemas("{oneOf: [" + strings.Join(numbered("{properties: {a: "+inner+", b%d: {type: integer}}, required: [b%[1]d]}", 8), ", ") + "]}")
	for name, test := range map[string]struct {
		text, good, bad, message string
	}{
		"64 levels":                {tree, deep(62, `{"a":`, "{}", "}"), deep(63, `{"a":`, "{}", "}"), "at most 64 deep"},
		"64 levels of kinds":       {kinds, deep(62, `{"n":`, `{"k":"L"}`, `,"k":"R"}`), deep(64, `{"n":`, `{"k":"L"}`, `,"k":"R"}`), "at most 64 deep"},
		"64 levels of the unknown": {tree, `{"z":` + deep(62, "[", "", "]") + "}", `{"z":` + deep(64, "[", "", "]") + "}", "at most 64 deep"},
		"all alternatives fail":    {tried, `{"a":[{"c7":1}],"b7":1}`, `{"a":[` + strings.Repeat(`{"d":"`+strings.Repeat("x", 200)+`"},`, 990) + `{"d":1}],"b":1}`, "fewer nested choices"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := load(test.text, definition.Options{})
			require.NoError(t, err)
			_, err = answer(t, d, "/orders/1", 200, `{"business_id":"b","x":`+test.good+"}")
			require.NoError(t, err)
			_, err = answer(t, d, "/orders/1", 200, `{"business_id":"b","x":`+test.bad+"}")
			require.ErrorIs(t, err, upstream.ErrContractViolation)
			require.ErrorContains(t, err, test.message)
		})
	}
}

// hostileBodies returns an operation for each of some definitions, and bodies of a size that cost as much as possible there: each of their many small values is
// read with up to 64 combinations of alternatives, of which none fits.
func hostileBodies(t testing.TB, size int) map[string]hostileBody {
	t.Helper()
	oneOf := func(member string, value string) string {
		return "{oneOf: [" + strings.Join(numbered("{type: object, properties: {a: "+value+", "+member+"%d: {type: integer}}, required: ["+member+"%[1]d]}", 8), ", ") + "]}"
	}
	all := map[string]hostileBody{}
	for name, test := range map[string][2]string{ // the schema of an item, and an item
		"objects without what is required": {"{properties: {" + strings.Join(numbered("p%d: {type: string}", 30), ", ") + "}, required: [" + strings.Join(numbered("p%d", 30), ", ") + "]}", "{}"},
		"objects with many properties":     {"{properties: {" + strings.Join(numbered("p%d: {type: string}", 50), ", ") + "}}", "{}"},
		"lists of different items":         {"{type: array, maxItems: 3, uniqueItems: true, items: {type: integer}}", "[1]"},
		"maps":                             {"{additionalProperties: {type: integer}}", `{"a":1}`},
		"numbers":                          {"{type: integer}", "1"},
		"objects":                          {"{properties: {id: {type: string, format: uuid}, name: {type: string}, price: {type: number}}}", "{}"},
		"texts with a pattern":             {"{type: string, pattern: '^[0-9]+$'}", `"1"`},
		"texts that should be numbers":     {"{type: integer}", `""`},
	} {
		schema := oneOf("b", oneOf("c", "{type: array, maxItems: 1000000, items: "+test[0]+"}"))
		d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: none, paths: {/x: {post: {
			requestBody: {required: true, content: {application/json: {schema: `+schema+`}}},
			responses: {"200": {content: {application/json: {schema: `+schema+`}}}}}}}}`, definition.Options{})
		require.NoError(t, err)
		items := strings.Repeat(","+test[1], 1+size/(1+len(test[1])))
		all[name] = hostileBody{d.API.Operations()[0], `{"a":{"a":[` + items[1:] + `]}}`}
	}
	return all
}

type hostileBody struct {
	op   *upstream.Operation
	body string
}

func (b hostileBody) checkAsRequest() error {
	_, err := new(upstream.Contract).CheckBody(new(bytes.Buffer), b.op, http.Header{"Content-Type": {"application/json"}}, "b", []byte(b.body))
	return err
}

// However often the values of a body would have to be read, its size bounds the work.
func TestWorkOfChoicesIsBounded(t *testing.T) {
	t.Parallel()
	for name, b := range hostileBodies(t, 63<<10) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, []string{"expected fewer nested choices and undocumented members"}, violations(b.checkAsRequest()))
			_, err := checked(b.op, &b.op.Responses[0], upstream.Query{}, b.body)
			require.ErrorContains(t, err, "fewer nested choices and undocumented members")
		})
	}
}

// A usual body passes, even if each of its values fits only the last of 64 combinations of alternatives.
func TestUsualBodiesMayNeedAllAlternatives(t *testing.T) {
	t.Parallel()
	const item = `{"id":"0190f3a2-7c4b-7d11-8000-000000000000","name":"a name as usual","price":129.95}`
	b := hostileBodies(t, 0)["objects"]
	b.body = `{"a":{"a":[` + strings.Repeat(item+",", 10_000) + item + `],"c7":1},"b7":1}`
	require.NoError(t, b.checkAsRequest())
}

func BenchmarkHostileChoices(b *testing.B) {
	for name, hostile := range hostileBodies(b, 63<<10) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(hostile.body)))
			for b.Loop() {
				require.Error(b, hostile.checkAsRequest())
			}
		})
	}
}

// Paths that overlap as much as a definition may are found, and nothing else is.
func TestOverlappingPathsAreFound(t *testing.T) {
	t.Parallel()
	d, err := load(strings.Replace(orders, "components:", ambiguousScalar(8)+strings.Join(numbered("  /x/%d/{id}: {get: {parameters: [{name: id, in: path, schema: {type: string}}], x-gatehouse-tenant: none, responses: {\"204\": {}}}}\n", 1000), "")+"components:", 1), definition.Options{})
	require.NoError(t, err)
	for _, op := range d.API.Operations() {
		m, ok := d.API.Match(op.Sample())
		require.True(t, ok)
		require.Same(t, op, m.Path.Operation(http.MethodGet), op.Sample())
	}
	for _, target := range []string{"/a" + strings.Repeat("/b", 8) + "/c", "/a" + strings.Repeat("/c", 8), "/x/1000/1", "/x/1", "/a"} {
		_, ok := d.API.Match(target)
		require.False(t, ok, target)
	}
}

// large returns a definition of about 900 kB with 200 operations and 40,000 names and values.
func large() string {
	var text strings.Builder
	text.WriteString("openapi: 3.1.0\ninfo: {title: Large, version: v1}\nx-gatehouse-tenant: business_id\npaths:\n")
	description := strings.Repeat("What this is about, in the words of the platform. ", 3)
	for i := range 200 {
		fmt.Fprintf(&text, `  /resource%d/{id}:
    get:
      operationId: get%d
      description: %s
      parameters:
      - {name: id, in: path, required: true, schema: {type: string, format: uuid}}
      - {name: status, in: query, schema: {type: string, enum: [open, shut]}}
      - {name: page, in: query, schema: {type: integer, minimum: 1, default: 1}}
      responses:
        "200": {content: {application/json: {schema: {$ref: "#/components/schemas/Resource%d"}}}}
        "404": {content: {application/json: {schema: {$ref: "#/components/schemas/Error"}}}}
`, i, i, description, i)
	}
	text.WriteString("components:\n  schemas:\n    Error: {properties: {code: {type: string}, message: {type: string}}, required: [code]}\n")
	for i := range 200 {
		fmt.Fprintf(&text, "    Resource%d:\n      type: object\n      required: [business_id, f0]\n      properties:\n        business_id: {type: string}\n", i)
		for j := range 12 {
			fmt.Fprintf(&text, "        f%d:\n          type: [string, 'null']\n          description: %s\n          maxLength: %d\n", j, description, 10+j)
		}
		for j := range 3 {
			fmt.Fprintf(&text, "        r%d: {type: array, maxItems: 100, items: {$ref: \"#/components/schemas/Resource%d\"}}\n", j, (i*7+j*31)%200)
			fmt.Fprintf(&text, "        o%d: {description: '%s', allOf: [{$ref: \"#/components/schemas/Error\"}, {properties: {n%d: {type: integer, minimum: 0}, t%d: {type: string, pattern: '^[a-z]+$'}}}]}\n", j, description, j, j)
		}
	}
	return text.String()
}

func TestDefinitionOfManyOperationsLoads(t *testing.T) {
	t.Parallel()
	text := large()
	require.InDelta(t, 900_000, len(text), 100_000)
	d, err := load(text, definition.Options{})
	require.NoError(t, err)
	require.Len(t, d.API.Operations(), 200)

	// One fault in what all refer to: none is left.
	_, err = load(strings.Replace(text, "required: [code]", "required: [cod]", 1), definition.Options{})
	var failed *definition.LoadError
	require.ErrorAs(t, err, &failed)
	require.Len(t, failed.Faults, 1)
	require.Empty(t, failed.Except)
}

func BenchmarkLoadOfManyOperations(b *testing.B) {
	text := large()
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := load(text, definition.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// seeds are documents and overlays from which fuzzing begins.
func seeds(t testing.TB) [][2]string {
	t.Helper()
	const overlay = "overlay: 1.0.0\ninfo: {title: T, version: v}\nactions:\n- {target: "
	return [][2]string{
		{orders, ""},
		{asJSON(t, orders), overlay + "$..x, update: {a: 1}}\n"},
		{strings.Replace(orders, "3.1.0", "3.0.0", 1), overlay + "'$.paths.*.get', update: {x-gatehouse-tenant: request}}\n"},
		{schemas("{oneOf: ["+ref("A")+", "+ref("B")+"], discriminator: {propertyName: k, mapping: {a: A}}, nullable: true}",
			"A: {properties: {k: {const: a}, n: {allOf: ["+ref("A")+", {required: [k]}]}}, required: [k]}", "B: {properties: {k: {type: string, enum: [b]}}, required: [k]}"), ""},
		{strings.Replace(orders, theResponse, orderList+"x-gatehouse-records: {in: orders, at_most: page}, x-gatehouse-page: [{request: page, response: /page}]}", 1), ""},
		{strings.Replace(orders, theOperation, "deprecated: true\n      x-gatehouse-deprecated: {since: 2026-01-01, link: 'https://a.example'}\n      x-gatehouse-answer: {x: a}", 1), ""},
		{strings.Replace(orders, "components:\n", recent, 1), ""},
	}
}

// FuzzLoad: a definition loads, and can be published and called, or each fault has its place.
func FuzzLoad(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, text, overlay string) {
		if len(text)+len(overlay) <= 64<<10 { // larger ones have tests of their own
			requireLoaded(t, text, overlay)
		}
	})
}

// FuzzLoadOfChangedDocuments puts values of some documents in the place of others.
func FuzzLoadOfChangedDocuments(f *testing.F) {
	for i := range uint64(500) {
		f.Add(i)
	}
	texts := []string{bodiesDocument}
	for _, name := range []string{"legacy", "writes"} {
		text, err := os.ReadFile("testdata/publish/" + name + ".yaml")
		require.NoError(f, err)
		texts = append(texts, string(text))
	}
	for _, seed := range seeds(f) {
		texts = append(texts, seed[0])
	}
	f.Fuzz(func(t *testing.T, number uint64) {
		random := rand.New(rand.NewPCG(number, 0))
		values := func(text string) (root *yaml.Node, all []*yaml.Node) {
			var document yaml.Node
			require.NoError(t, yaml.Unmarshal([]byte(text), &document))
			for queue := document.Content; len(queue) > 0; queue = queue[1:] {
				for i, n := range queue[0].Content {
					queue = append(queue, n)
					if queue[0].Kind != yaml.MappingNode || i%2 == 1 || random.IntN(10) == 0 {
						all = append(all, n)
					}
				}
			}
			return document.Content[0], all
		}
		root, places := values(texts[random.IntN(len(texts))])
		for range 1 + random.IntN(4) {
			_, others := values(texts[random.IntN(len(texts))])
			*places[random.IntN(len(places))] = *others[random.IntN(len(others))]
		}
		text, err := yaml.Marshal(root)
		require.NoError(t, err)
		requireLoaded(t, string(text), "")
	})
}

// requireLoaded loads a definition, or checks what is said of why it does not load.
func requireLoaded(t *testing.T, text, overlay string) {
	t.Helper()
	o := definition.Options{}
	if overlay != "" {
		o.Overlays = []definition.File{{Name: "overlay.yaml", Text: []byte(overlay)}}
	}
	d, err := load(text, o)
	if err != nil {
		var failed *definition.LoadError
		require.ErrorAs(t, err, &failed)
		require.NotEmpty(t, failed.Faults)
		for _, fault := range append(failed.Faults, failed.Warnings...) {
			require.Contains(t, []string{"api.yaml", "overlay.yaml"}, fault.File)
			require.Positive(t, fault.Line, fault)
			require.True(t, fault.Pointer == "" || fault.Pointer[0] == '/', fault)
			require.NotEmpty(t, fault.Message)
		}
		if len(failed.Except) > 0 {
			o.Except = failed.Except
			_, err = load(text, o)
			require.NoError(t, err, "%q", failed.Except)
		}
		return
	}
	published, err := d.Published(definition.PublishOptions{})
	require.NoError(t, err)
	require.NotRegexp(t, `(?m)^[ -]*"?x-gatehouse-[a-z]+"?:`, string(published))
	for _, op := range d.API.Operations() {
		m, ok := d.API.Match(op.Sample())
		require.True(t, ok, op.Sample())
		require.Same(t, op, m.Path.Operation(op.Method), op.Sample())
		q, err := op.CleanQuery(m)
		for i := range op.Responses {
			if err == nil && op.Responses[i].Body != nil && !op.ByGateway {
				for _, body := range []string{"{}", "[]", `{"business_id":"b","x":{"k":"a"},"orders":[{"business_id":"b"}]}`} {
					_, _ = checked(op, &op.Responses[i], q, body)
				}
			}
		}
	}
}
