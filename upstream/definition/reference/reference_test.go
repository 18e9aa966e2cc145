package reference_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"golang.org/x/net/html"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition/reference"
)

// parse reads a document.
func parse(t *testing.T, text string) *yaml.Node {
	t.Helper()
	var document yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(text), &document))
	return document.Content[0]
}

// render renders the page of a document, and requires what holds for every page.
func render(t *testing.T, published string) (page string, root *html.Node) {
	t.Helper()
	out, err := reference.Render(parse(t, published), "docs/openapi.yaml")
	require.NoError(t, err)
	root, err = html.Parse(strings.NewReader(string(out)))
	require.NoError(t, err)
	requireHarmless(t, root)
	requireLinksResolve(t, root)
	return string(out), root
}

// renderPaths renders the reference of a definition with these paths.
func renderPaths(t *testing.T, paths string) (page string, root *html.Node) {
	t.Helper()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(`
openapi: 3.1.0
info: {title: API, version: "1"}
x-gatehouse-tenant: none
paths:` + paths)}, definition.Options{})
	require.NoError(t, err)
	return renderDefinition(t, d)
}

// renderDefinition renders the reference of a definition. It must be that of the published document as callers read it.
func renderDefinition(t *testing.T, d *definition.Definition) (page string, root *html.Node) {
	t.Helper()
	document, err := d.PublishedDocument(definition.PublishOptions{})
	require.NoError(t, err)
	out, err := reference.Render(document, "docs/openapi.yaml")
	require.NoError(t, err)
	published, err := definition.Encode(document)
	require.NoError(t, err)
	page, root = render(t, string(published))
	require.Equal(t, page, string(out))
	return page, root
}

// requireHarmless requires that a page has no elements and attributes but those that it needs, and that its links lead to itself, to the
// web and to the published document.
func requireHarmless(t *testing.T, root *html.Node) {
	t.Helper()
	elements := strings.Fields("html head meta title link style body a header svg path span fieldset legend input label nav main section div " +
		"h1 h2 h3 h4 h5 h6 p ul ol li b code pre em strong blockquote hr br table thead tbody tr th td")
	attributes := map[string]string{
		"meta": "charset name content http-equiv", "link": "rel type href", "a": "class href aria-label", "input": "type name id checked",
		"label": "for", "svg": "class viewbox width height aria-hidden focusable", "path": "fill-rule d", "html": "lang", "nav": "id aria-label",
		"main": "id tabindex", "td": "align", "th": "align", "pre": "tabindex", "ol": "start", "header": "class id",
	}
	classes := regexp.MustCompile(`^[A-Za-z -]+$`)
	for n := range root.Descendants() {
		if n.Type == html.CommentNode {
			require.Equal(t, " raw HTML omitted ", n.Data)
		}
		if n.Type != html.ElementNode {
			continue
		}
		require.Contains(t, elements, n.Data)
		for _, a := range n.Attr {
			allowed := strings.Fields(attributes[n.Data] + " class id")
			require.Contains(t, allowed, strings.ToLower(a.Key), n.Data)
			switch a.Key {
			case "class":
				require.Regexp(t, classes, a.Val)
			case "href":
				ours := strings.HasPrefix(a.Val, "#") || a.Val == "docs/openapi.yaml" || n.Data == "link" && strings.HasPrefix(a.Val, "data:image/svg+xml;base64,")
				require.True(t, ours || regexp.MustCompile(`^(?i:https?)://`).MatchString(a.Val), "%s leads to %s", n.Data, a.Val)
			}
		}
	}
}

// requireLinksResolve requires that IDs are unique, that every link within the page has one, and that every heading in the text can be
// linked to.
func requireLinksResolve(t *testing.T, root *html.Node) {
	t.Helper()
	var ids, links []string
	for n := range root.Descendants() {
		for _, a := range n.Attr {
			target, within := strings.CutPrefix(a.Val, "#")
			switch {
			case a.Key == "id":
				ids = append(ids, a.Val)
			case a.Key == "href" && within:
				links = append(links, target)
			}
		}
	}
	slices.Sort(ids)
	require.Equal(t, slices.Compact(slices.Clone(ids)), ids, "IDs are unique")
	for _, target := range links {
		decoded, err := url.PathUnescape(target) // as browsers do
		require.NoError(t, err)
		require.Contains(t, ids, decoded)
	}
}

// text returns what a reader of a page sees.
func text(root *html.Node) string {
	var all strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode && n.Parent.Data != "style" {
			all.WriteString(n.Data)
		}
	}
	return all.String()
}

// sections returns the texts of the sections of a page by the IDs of their headings.
func sections(root *html.Node) map[string]string {
	all := map[string]string{}
	for n := range root.Descendants() {
		for _, a := range n.Attr {
			if (n.Data == "h2" || n.Data == "h3") && a.Key == "id" {
				all[a.Val] = text(n.Parent.Parent)
			}
		}
	}
	return all
}

func TestReferenceOfThePublicContract(t *testing.T) {
	t.Parallel()
	published, err := os.ReadFile("../../../docs/openapi.yaml")
	require.NoError(t, err)
	page, root := render(t, string(published))
	seen := text(root)
	for _, expected := range []string{
		"Read access to one business's data", "https://api.example.com/api/v1", "60 requests a minute for each public key", "GET/api/v1/invoices",
		"X-Signature", "RATE_LIMITED", "retry_after", "Only invoices whose status is this", "total_pages", "HEAD is accepted wherever GET is",
		"which other users of the same machine can see",
	} {
		assert.Contains(t, strings.ReplaceAll(seen, "GET /", "GET/"), expected)
	}
	for id := range strings.FieldsSeq("Signing Limits Paths errors authentication listInvoices object-Pagination RATE_LIMITED other-requests") {
		assert.Contains(t, page, ` id="`+id+`"`)
	}
	assert.NotContains(t, page, "headInvoices", "HEAD is not listed beside GET")
	assert.Contains(t, page, "sha256-", "the policy names the one style sheet")
	again, err := reference.Render(parse(t, string(published)), "docs/openapi.yaml")
	require.NoError(t, err)
	assert.Equal(t, page, string(again), "the same document has the same page")
}

func TestNothingUnpublishedIsInTheReference(t *testing.T) {
	t.Parallel()
	legacy, err := os.ReadFile("../testdata/publish/legacy.yaml")
	require.NoError(t, err)
	published, err := os.ReadFile("../testdata/publish/legacy.published.yaml")
	require.NoError(t, err)
	page, root := render(t, string(published))
	assert.NotContains(t, page, "x-gatehouse")
	word := regexp.MustCompile(`[A-Za-z][A-Za-z0-9_]{5,}`)
	known := map[string]bool{}
	for _, w := range word.FindAllString(string(published), -1) {
		known[strings.ToLower(w)] = true
	}
	ours, err := os.ReadFile("reference.html")
	require.NoError(t, err)
	seen, unpublished := text(root), 0
	for _, w := range word.FindAllString(string(legacy), -1) {
		if w = strings.ToLower(w); !known[w] && !strings.Contains(strings.ToLower(string(ours)), w) {
			unpublished++
			assert.NotRegexp(t, `(?i)\b`+w+`\b`, seen)
		}
	}
	assert.Greater(t, unpublished, 40)
}

// hostile are texts that must stay texts, wherever they stand in a document.
var hostile = map[string]string{
	"a script":                  `<script>alert(1)</script>`,
	"an image":                  `<img src=x onerror=alert(1)> ![x](https://evil.example/x.png) ![x](javascript:alert(1))`,
	"links":                     "[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](data:text/html,x) [d](vbscript:x) [e](file:///etc/passwd) [f](//evil.example) [g](/x) [h](mailto:a@b.example) [i](#main)",
	"autolinks":                 "<javascript:alert(1)> <data:text/html,x> <a@b.example> <ftp://x.example>",
	"references":                "[a][x] [x]\n\n[x]: javascript:alert(1) \"title\"",
	"entities":                  `[a](&#106;avascript:alert(1)) [b](java&Tab;script:alert(1)) [c](https&colon;//x) &lt;script&gt; &#60;script&#62;`,
	"a control character":       "[a](\x01javascript:alert(1)) [b](java\tscript:x)",
	"quotes in a link":          `[a](https://x.example/"onmouseover="alert(1)) <https://x.example/'onclick='x'>`,
	"a title with quotes":       `[a](https://x.example "x\" onmouseover=\"alert(1)")`,
	"an end of an attribute":    `"><svg onload=alert(1)> '><b onclick=x> onfocus=alert(1) autofocus`,
	"an end of an element":      `</style></title></code></pre></section><iframe src=javascript:alert(1)></iframe><base href=//x><form action=x><object data=x>`,
	"a block of HTML":           "<div onclick=alert(1)>\n\n*x*\n\n</div>\n\n<!-- --><style>*{display:none}</style>",
	"code with a language":      "```\" onmouseover=x class=\"top\n<script>alert(1)</script>\n```\n\n~~~<x>\n~~~",
	"headings of the page":      "# main\n\n## top\n\n# errors\n\n# <script>\n\n# [x](javascript:x)\n\n#\n\nmain\n====",
	"a template":                `{{.Title}} {{define "x"}} <?php ?> ${x} ]]> <![CDATA[`,
	"a change of the direction": "\u202e\u2066 \u200b",
	"a table":                   "| a | <script>alert(1)</script> |\n| :-: | --- |\n| [b](javascript:alert(1)) | ![x](x) `\\|` <b onclick=x> |",
	"a wide table":              strings.Repeat("|a", 4000) + "\n" + strings.Repeat("|-", 4000) + strings.Repeat("\n|", 8000), // each row would have 4000 cells
	"deep quotes":               strings.Repeat(">", 5000) + " x",
	"deep lists":                strings.Repeat("- ", 5000) + "x",
	"deep numbers":              strings.Repeat("1. ", 5000) + "x",
	"long":                      strings.Repeat("[*_`!<", 10000),
	"deep brackets":             strings.Repeat("[", 20000) + strings.Repeat("](x)", 5000),
	"deep emphasis":             strings.Repeat("*a **b ", 5000) + strings.Repeat("** *", 5000),
}

func TestTextsOfADocumentStayTexts(t *testing.T) {
	t.Parallel()
	for name, attack := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			quoted, err := json.Marshal(attack)
			require.NoError(t, err)
			name, err := json.Marshal(attack[:min(len(attack), 160)]) // names are shorter than 1024 bytes
			require.NoError(t, err)
			document := strings.ReplaceAll(everywhere, `"ATTACK":`, string(name)+":")
			_, root := render(t, strings.ReplaceAll(document, `"ATTACK"`, string(quoted)))
			if strings.Contains(attack, "alert(1)") {
				assert.Contains(t, text(root), "alert(1)", "it is shown where it is a name")
			}
		})
	}
}

func TestHeadingsAreListedWithoutMarkupAndLinkedInAnyScript(t *testing.T) {
	t.Parallel()
	_, root := render(t, `{"openapi": "3.1.1", "info": {"title": "x", "description": "# Using `+"`ETag`"+` ([RFC 9110](https://rfc.example)), *always*\n\n# Заказы\n\n# 订单"}, "paths": {}}`)
	var listed []string
	for n := range root.Descendants() {
		for _, a := range n.Attr {
			if target, ok := strings.CutPrefix(a.Val, "#"); ok && a.Key == "href" && n.Data == "a" && n.Parent.Data == "li" {
				decoded, err := url.PathUnescape(target)
				require.NoError(t, err)
				listed = append(listed, decoded+": "+text(n))
			}
		}
	}
	require.Equal(t, []string{"Using-ETag-RFC-9110-always: Using ETag (RFC 9110), always", "Заказы: Заказы", "订单: 订单"}, listed[1:4])
}

func TestTablesInDescriptionsAreTables(t *testing.T) {
	t.Parallel()
	page, root := render(t, `{"openapi": "3.1.1", "info": {"title": "x", "description": "| what | how |\n| :-- | --: |\n| `+"`a` \\\\| *b*"+` | <script>alert(1)</script> [c](javascript:d) |\n| e |"}, "paths": {}}`)
	assert.Contains(t, page, `<th align="right">how</th>`, "a style would be against the page's own policy")
	var cells []string
	for n := range root.Descendants() {
		if n.Data == "td" {
			cells = append(cells, text(n))
		}
	}
	assert.Equal(t, []string{"a | b", "alert(1) c", "e", ""}, cells)
}

func TestTextsThatAreTooLongAreShownAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	written := strings.Repeat("first line\n\n  * second <line>\n", 2000)
	quoted, err := json.Marshal(written)
	require.NoError(t, err)
	_, root := render(t, `{"openapi": "3.1.1", "info": {"title": "x", "description": `+string(quoted)+`}, "paths": {}}`)
	for n := range root.Descendants() {
		if n.Data == "pre" && text(n) == written {
			return
		}
	}
	t.Error("its line breaks are lost")
}

// everywhere is a document with a text in every place.
const everywhere = `{"openapi": "3.1.1", "info": {"title": "ATTACK", "version": "ATTACK", "summary": "ATTACK", "description": "ATTACK"},
"servers": [{"url": "{base_url}/v1", "variables": {"base_url": {"default": "ATTACK", "description": "ATTACK"}}}],
"tags": [{"name": "ATTACK", "description": "ATTACK"}], "security": [{"x": []}],
"paths": {"/ATTACK/{id}": {"x": {}}, "/things/{id}": {
	"get": {"operationId": "ATTACK", "tags": ["ATTACK"], "summary": "ATTACK", "description": "ATTACK", "deprecated": true,
		"parameters": [{"name": "ATTACK", "in": "query", "required": true, "description": "ATTACK", "example": "ATTACK", "schema": {"type": "string", "enum": ["ATTACK"], "pattern": "ATTACK", "default": "ATTACK", "format": "ATTACK"}},
			{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}, "example": "ATTACK"}],
		"responses": {"200": {"$ref": "#/components/responses/R"}, "400": {"$ref": "#/components/responses/E"}, "404": {"description": "ATTACK", "content": {"ATTACK": {}}}}},
	"post": {"summary": "ATTACK", "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ATTACK"}, "example": {"ATTACK": "ATTACK"}}}}, "responses": {"201": {"$ref": "#/components/responses/R"}}}}},
"components": {
	"securitySchemes": {"x": {"type": "apiKey", "in": "header", "name": "ATTACK", "description": "ATTACK"}},
	"responses": {
		"R": {"description": "ATTACK", "headers": {"ATTACK": {"description": "ATTACK", "schema": {"const": "ATTACK"}}}, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/S"}, "example": {"ATTACK": ["ATTACK"]}}}},
		"E": {"description": "ATTACK", "content": {"application/json": {"schema": {"properties": {"code": {"const": "ATTACK"}, "ATTACK": {"description": "ATTACK"}}}, "example": {"code": "ATTACK", "error": "ATTACK"}}}}},
	"schemas": {
		"ATTACK": {"properties": {"ATTACK": {"type": "string"}}},
		"S": {"title": "ATTACK", "description": "ATTACK", "type": "object", "required": ["ATTACK"], "properties": {"ATTACK": {"type": "ATTACK", "title": "ATTACK", "description": "ATTACK"},
			"n": {"oneOf": [{"title": "ATTACK", "$ref": "#/components/schemas/S"}, {"type": "array", "items": {"$ref": "#/components/schemas/S"}}]}}}}},
"x-other-requests": {"ATTACK": {"description": "ATTACK", "responses": {"404": {"$ref": "#/components/responses/E"}}}}}`

func TestSchemasThatReferToThemselvesEnd(t *testing.T) {
	t.Parallel()
	members := func(n int, schema string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"m%d": %s`, i, schema))
		}
		return strings.Join(all, ", ")
	}
	self := `{"$ref": "#/components/schemas/A"}`
	chain := `"A": {"oneOf": [{"$ref": "#/components/schemas/C0"}]}`
	for i := range 50 {
		next := fmt.Sprintf(`{"$ref": "#/components/schemas/C%d"}`, i+1)
		chain += fmt.Sprintf(`, "C%d": {"anyOf": [%s, %s]}`, i, next, next)
	}
	for name, schemas := range map[string]string{
		"an object in itself":                 `"A": {"type": "object", "properties": {"a": ` + self + `}}`,
		"a required array of it":              `"A": {"type": "object", "required": ["a"], "properties": {"a": {"type": "array", "minItems": 1, "items": ` + self + `}}}`,
		"an array of itself":                  `"A": {"type": "array", "minItems": 1, "items": ` + self + `}`,
		"a map of itself":                     `"A": {"type": "object", "additionalProperties": ` + self + `}`,
		"a choice of itself":                  `"A": {"oneOf": [` + self + `, {"type": "array", "items": ` + self + `}]}`,
		"a choice of two of it":               `"A": {"oneOf": [` + self + `, ` + self + `, {"oneOf": [` + self + `, ` + self + `]}]}`,
		"2^63 characters":                     `"A": {"type": "string", "minLength": 9223372036854775807}`,
		"2^63 repetitions":                    `"A": {"type": "string", "minLength": 9223372036854775807, "pattern": "^((a+)+|(b{1000})*){9}$"}`,
		"2^50 choices":                        chain + `, "C50": {"type": "string"}`,
		"two of each other":                   `"A": {"properties": {"b": {"$ref": "#/components/schemas/B"}}}, "B": {"properties": {"a": ` + self + `}}`,
		"itself, by all":                      `"A": {"allOf": [` + self + `, {"properties": {"x": {"type": "string"}}}]}`,
		"a member that is it, by all of it":   `"A": {"properties": {"a": {"description": "x", "allOf": [` + self + `]}}}`,
		"a member that is more, by all of it": `"A": {"properties": {"a": {"allOf": [` + self + `, {"properties": {"x": {"type": "string"}}}]}}}`,
		"a reference to itself":               `"A": ` + self,
		"hundreds of itself":                  `"A": {"type": "object", "properties": {` + members(300, self) + `}}`,
		"hundreds, all of it":                 `"A": {"type": "object", "required": ["m0", "m1", "m2"], "properties": {` + members(300, `{"type": "array", "minItems": 1, "items": `+self+`}`) + `}}`,
		"a reference to nothing":              `"A": {"properties": {"x": {"$ref": "#/components/schemas/Nothing"}}}`,
		"a value that is no shape":            `"A": true`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, _ := render(t, `{"openapi": "3.1.1", "info": {"title": "x"}, "servers": [{"url": "{base_url}/v1"}], "paths": {"/a": {"post": {"operationId": "o",
				"requestBody": {"content": {"application/json": {"schema": `+self+`}}},
				"responses": {"200": {"description": "x", "content": {"application/json": {"schema": `+self+`}}}}}}}, "components": {"schemas": {`+schemas+`}}}`)
			assert.Less(t, len(page), 1_000_000)
		})
	}
}

func TestBodiesShowWhatTheirSideSends(t *testing.T) {
	t.Parallel()
	published, err := os.ReadFile("../testdata/publish/writes.published.yaml")
	require.NoError(t, err)
	page, root := render(t, string(published))
	sections := sections(root)
	assert.Contains(t, sections["object-OrderBody"], "pin")
	assert.Contains(t, sections["object-OrderBody"], "customer object required")
	assert.NotContains(t, sections["object-OrderBody"], "created")
	assert.Contains(t, sections["object-Order"], "created")
	assert.NotContains(t, sections["object-Order"], "pin")
	assert.Contains(t, sections["createOrder"], `"pin": "1234"`)
	assert.Contains(t, sections["createOrder"], "key=$(openssl rand -hex 16)\n", "a developer who copies it must not get the first order again")
	assert.Equal(t, 2, strings.Count(sections["createOrder"], "Idempotency-Key: $key"), "in shell and PHP")
	assert.Contains(t, sections["changeOrder"], "application/merge-patch+json")
	assert.Contains(t, sections["createOrder"], "REPLAYED", "the gateway's errors beside those of the service")
	assert.NotContains(t, page, "object-ReplayedError", "errors have their own place")
}

// described returns what the page says about a schema, which an operation has as the member m of its response.
func described(t *testing.T, schema string) string {
	t.Helper()
	_, root := render(t, `{"openapi": "3.1.1", "info": {"title": "x"}, "servers": [{"url": "{base_url}/v1"}], "paths": {"/a": {"get": {"operationId": "o", "responses": {
		"200": {"description": "x", "content": {"application/json": {"schema": {"type": "object", "required": ["m"], "properties": {"m": `+schema+`}}}}},
		"202": {"description": "x", "content": {"text/plain": {"schema": {"$ref": "#/components/schemas/Order"}}}},
		"203": {"description": "x", "content": {"text/plain": {"schema": {"$ref": "#/components/schemas/Order"}}}}}}}},
		"components": {"schemas": {
			"Order": {"type": "object", "description": "An order.", "properties": {"id": {"type": "string"}}},
			"Once": {"type": "object", "properties": {"id": {"type": "string", "maxLength": 7}}},
			"Status": {"type": "string", "description": "Its status.", "deprecated": true, "enum": ["open", "paid"]},
			"Kind": {"type": "string", "x-extensible-enum": ["a"], "pattern": "^[a-z]+$", "maxLength": 9}}}}`)
	for n := range root.Descendants() {
		if n.Data == "li" && n.Parent.Attr != nil && n.Parent.Attr[0].Val == "fields" {
			return strings.Join(strings.Fields(text(n)), " ")
		}
	}
	return ""
}

func TestNullableSchemasAreDescribedWhole(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ schema, want string }{
		"values":                          {`{"anyOf": [{"$ref": "#/components/schemas/Status"}, {"type": "null"}]}`, "m string or null deprecatedIts status. One of: open, paid"},
		"constraints":                     {`{"anyOf": [{"$ref": "#/components/schemas/Kind"}, {"type": "null"}]}`, "m string or null Known values; others may be added: a at most 9 characters · pattern ^[a-z]+$"},
		"a text and a default of its own": {`{"description": "Mine.", "default": "open", "anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/Status"}]}`, "m string or null deprecatedMine. One of: open, paid default open"},
		"all of one":                      {`{"anyOf": [{"allOf": [{"$ref": "#/components/schemas/Status"}]}, {"type": "null"}]}`, "m string or null deprecatedIts status. One of: open, paid"},
		"one that allows null itself":     {`{"anyOf": [{"type": ["string", "null"], "maxLength": 3}, {"type": "null"}]}`, "m string or null at most 3 characters"},
		"types":                           {`{"anyOf": [{"type": ["string", "integer"]}, {"type": "null"}]}`, "m string or integer or null"},
		"types without alternatives":      {`{"type": ["string", "integer", "null"]}`, "m string, integer or null"},
		"types without null":              {`{"type": ["string", "integer", "boolean"]}`, "m string, integer or boolean"},
		"the type beside it":              {`{"type": ["string", "null"], "anyOf": [{"maxLength": 3}, {"type": "null"}]}`, "m string or null at most 3 characters"},
		"an object in place":              {`{"anyOf": [{"$ref": "#/components/schemas/Once"}, {"type": "null"}]}`, "m object or null id string optional at most 7 characters"},
		"an object with a section":        {`{"anyOf": [{"$ref": "#/components/schemas/Order"}, {"type": "null"}]}`, "m Order or nullAn order."},
		"that object and a text":          {`{"type": ["object", "null"], "description": "Mine.", "allOf": [{"$ref": "#/components/schemas/Order"}]}`, "m Order or nullMine."},
		"an object or a text":             {`{"type": ["string", "object", "null"], "allOf": [{"$ref": "#/components/schemas/Order"}]}`, "m string, Order or nullAn order."},
		"an array of such objects":        {`{"type": ["array", "null"], "items": {"$ref": "#/components/schemas/Order"}}`, "m array of Order or null"},
		"that array as an alternative":    {`{"anyOf": [{"type": "array", "maxItems": 3, "items": {"$ref": "#/components/schemas/Order"}}, {"type": "null"}]}`, "m array of Order or null at most 3 items"},
		"an array of objects or null":     {`{"type": "array", "items": {"anyOf": [{"$ref": "#/components/schemas/Order"}, {"type": "null"}]}}`, "m array of (Order or null)"},
		"an array of texts or null":       {`{"type": ["array", "null"], "items": {"type": ["string", "null"], "format": "date"}}`, "m array of (string (date) or null) or null"},
		"an array or a text":              {`{"type": ["array", "string"], "items": {"$ref": "#/components/schemas/Order"}}`, "m array of Order or string"},
		"a map of objects":                {`{"type": ["object", "null"], "additionalProperties": {"$ref": "#/components/schemas/Order"}}`, "m map of texts to Order or null"},
		"null alone":                      {`{"type": "null"}`, "m null"},
		"null among several":              {`{"oneOf": [{"$ref": "#/components/schemas/Order"}, {"type": "integer"}, {"type": "null"}]}`, "m One of these: OrderAn order. integer null"},
		"several alternatives":            {`{"type": ["object", "null"], "anyOf": [{"$ref": "#/components/schemas/Order"}, {"$ref": "#/components/schemas/Once"}, {"type": "null"}]}`, "m object or null One of these: OrderAn order. Once object id string optional at most 7 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, described(t, c.schema))
		})
	}
}

// The errors of a service are in its own media type, beside the gateway's. What it says of them does not explain the gateway's codes.
func TestErrorsOfAServiceAreShownBesideThoseOfTheGateway(t *testing.T) {
	t.Parallel()
	_, root := renderPaths(t, `
  /orders:
    post:
      operationId: createOrder
      responses:
        "204": {description: Done}
        "409":
          description: The slot is taken
          content: {application/problem+json: {schema: {type: object, properties: {balance: {type: integer}}}}}
        "422": {description: There is no such customer.}
        default:
          description: What went wrong.
          content: {application/problem+json: {schema: {type: object, properties: {title: {type: string}}}}}
`)
	shown := sections(root)
	for _, want := range []string{"application/problem+json", "balance integer", "The slot is taken The request was received before", "REPLAYED", "What went wrong. The request cannot be served"} {
		assert.Contains(t, strings.Join(strings.Fields(shown["createOrder"]), " "), want)
	}
	assert.NotContains(t, shown["createOrder"], "There is no such customer. The", "the gateway has no other text for this status")
	explained := map[string]string{}
	for n := range root.Descendants() {
		if n.Data == "h3" && n.Parent.Data == "section" {
			explained[n.Attr[0].Val] = text(n.Parent)
		}
	}
	for code, want := range map[string]string{
		"REPLAYED": "The request was received before", "BAD_REQUEST": "The request cannot be served", "INVALID_PARAMETER": "The body or a parameter", "NOT_FOUND": "There is no such path",
	} {
		assert.Contains(t, explained[code], want)
		assert.NotRegexp(t, "slot|customer|What went wrong", explained[code])
	}
}

// A default response is published for each status of errors.
func TestExamplesOfResponsesAreShownOnce(t *testing.T) {
	t.Parallel()
	_, root := renderPaths(t, `
  /orders:
    get:
      operationId: listOrders
      responses:
        "200": {description: x, content: {application/json: {schema: {type: object, properties: {n: {type: integer}}}}}}
        "409": {description: x, content: {application/problem+json: {schema: {type: object, properties: {left: {type: integer}}}}}}
        default: {description: x, content: {application/problem+json: {schema: {type: object, properties: {title: {type: string}}}}}}
`)
	var panels []string
	for n := range root.Descendants() {
		if n.Data == "h4" && strings.HasPrefix(text(n), "Response ") && len(n.Parent.Attr) > 0 && n.Parent.Attr[0].Val == "panel" {
			panels = append(panels, text(n.Parent))
		}
	}
	require.Equal(t, []string{`Response 200{"n": 1}`, `Response 403, 408, 413, 4XX{"title": "example"}`, `Response 409{"left": 1}`}, panels)
}

// Only errors of the gateway, which are JSON, are told by a constant code.
func TestBodiesWithAConstantCodeAreShown(t *testing.T) {
	t.Parallel()
	page, root := renderPaths(t, `
  /vouchers:
    post:
      operationId: createVoucher
      requestBody:
        content: {application/json: {schema: {type: object, properties: {code: {const: WELCOME}, sent: {type: integer}}}}}
      responses:
        "200":
          description: Done
          content:
            application/json:
              schema:
                oneOf:
                  - {type: object, required: [code], properties: {code: {const: HALF}, half: {type: integer}}}
                  - {type: object, required: [code], properties: {code: {const: FULL}, full: {type: integer}}}
        "201":
          description: Created
          content: {application/json: {schema: {type: object, properties: {code: {const: MADE}, made: {type: integer}}}}}
        "409":
          description: None is left
          content: {application/problem+json: {schema: {type: object, properties: {code: {const: OUT_OF_STOCK}, left: {type: integer}}}}}
`)
	shown := strings.Join(strings.Fields(text(root)), " ")
	for name, want := range map[string]string{
		"request": "always WELCOME sent integer", "alternatives": "always FULL full integer", "response": "always MADE made integer", "error of the service": "always OUT_OF_STOCK left integer",
	} {
		assert.Contains(t, shown, want, name)
	}
	for _, code := range []string{"WELCOME", "HALF", "FULL", "MADE", "OUT_OF_STOCK"} {
		assert.NotContains(t, page, `id="`+code+`"`, "it is not an error of the gateway")
	}
	assert.Contains(t, page, `id="REPLAYED"`)
}

func TestHeadersThatDifferAreDescribedWithTheirOperation(t *testing.T) {
	t.Parallel()
	tagged := `{description: x, headers: {ETag: {required: true, schema: {type: string}}}, content: {application/json: {schema: {type: object, additionalProperties: true}}}}`
	_, root := renderPaths(t, `
  /a: {get: {operationId: getTagged, responses: {"200": `+tagged+`, "400": {description: x, content: {application/problem+json: {schema: {type: object, additionalProperties: true}}}}}}}
  /b: {get: {operationId: getFirst, responses: {"200": {description: x, content: {application/json: {schema: {type: object, additionalProperties: true}}}}}}}
  /c: {get: {operationId: getSecond, responses: {"200": {description: x, content: {application/json: {schema: {type: object, additionalProperties: true}}}}}}}
`)
	shown := sections(root)
	assert.Contains(t, shown["getTagged"], "private, no-cache")
	assert.Contains(t, shown["response-headers"], "always no-store", "what most have is common to them")
	assert.NotContains(t, shown["response-headers"], "private, no-cache")
	assert.NotContains(t, shown["getTagged"], "RateLimit", "those of errors differ in nothing but their presence")
	for _, operation := range []string{"getFirst", "getSecond"} {
		assert.NotContains(t, shown[operation], "Cache-Control")
	}
}

func TestDocumentsThatAreNone(t *testing.T) {
	t.Parallel()
	for name, document := range map[string]string{"a text": "x", "no members": "{}", "paths are a list": "paths: [1]"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := reference.Render(parse(t, document), "")
			require.NoError(t, err)
		})
	}
}

func TestReferenceOfADefinitionIsThatOfItsPublishedDocument(t *testing.T) {
	t.Parallel()
	page, _ := renderDefinition(t, definition.PublicDefinition())
	assert.Contains(t, page, "listInvoices")
}

// Each example on the page is a request that the gateway accepts.
func TestExamplesOfRequestsAreValid(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(`
openapi: 3.1.0
info: {title: API, version: "1"}
servers: [{url: /v1}]
x-gatehouse-tenant: request
paths:
  /orders:search:
    post:
      x-gatehouse-read: true
      parameters: [{name: at, in: query, required: true, schema: {type: string, format: utc-date-time}},
        {name: ids, in: query, required: true, schema: {type: array, minItems: 2, items: {type: integer, exclusiveMinimum: 4}}}]
      requestBody: {required: true, content: {application/json: {schema: {type: object, required: [due, lines, share, to], properties: {
        due: {type: string, format: utc-date-time}, to: {type: string, format: email, pattern: "@business[.]example$"},
        lines: {type: array, minItems: 3, items: {type: string, minLength: 9}}, share: {type: number, exclusiveMaximum: 0.5}}}}}}
      responses: {"204": {description: x}}
  /me/@self/$count/(x)!*'/{id}:
    patch:
      parameters: [{name: id, in: path, required: true, schema: {type: string, pattern: '^[\u006f]-[0-9]{4}$'}},
        {name: If-Match, in: header, required: true, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {type: object, required: [kind], oneOf: [
        {type: object, properties: {note: {type: string}, kind: {const: a}}}, {type: object, properties: {kind: {const: b}}}]}}}}
      responses: {"204": {description: x}}
`)}, definition.Options{})
	require.NoError(t, err)
	requests := acceptedRequests(t, d)
	require.Len(t, requests, 2)
	require.Contains(t, requests[1].Headers, reference.Header{Name: "If-Match", Value: `"the-ETag-of-the-GET"`}, "a tag has quotation marks")
}

// acceptedRequests returns the examples of requests of a definition. The gateway must accept each.
func acceptedRequests(t *testing.T, d *definition.Definition) []reference.Request {
	t.Helper()
	published, err := d.PublishedDocument(definition.PublishOptions{})
	require.NoError(t, err)
	requests := reference.Requests(published)
	for _, r := range requests {
		m, ok := d.API.Match(r.Target)
		require.True(t, ok, r.Target)
		op := m.Path.Operation(r.Method)
		_, err := op.CleanQuery(m)
		require.NoError(t, err, r.Target)
		h := http.Header{}
		for _, header := range r.Headers {
			h.Set(header.Name, header.Value)
		}
		_, err = new(upstream.Contract).CheckBody(new(bytes.Buffer), op, h, "17", []byte(r.Body))
		require.NoError(t, err, r.Body)
	}
	return requests
}

// Frameworks generate inheritance in these forms.
func TestExamplesOfAlternativesAndPartsAreValid(t *testing.T) {
	t.Parallel()
	const (
		pet   = `Pet: {type: object, required: [species, name], properties: {species: {type: string}, name: {type: string}, id: {type: string, readOnly: true}}}`
		dog   = `Dog: {allOf: [{$ref: "#/components/schemas/Pet"}, {properties: {species: {const: dog}, breed: {type: string}}}]}`
		cat   = `Cat: {allOf: [{$ref: "#/components/schemas/Pet"}, {properties: {species: {const: cat}, indoor: {type: boolean}}}]}`
		card  = `Card: {allOf: [{$ref: "#/components/schemas/Pet"}, {type: object, required: [no], properties: {no: {type: string, writeOnly: true}}}]}`
		cash  = `Cash: {allOf: [{$ref: "#/components/schemas/Pet"}, {type: object, properties: {till: {type: integer}}}]}`
		pets  = `oneOf: [{$ref: "#/components/schemas/Dog"}, {$ref: "#/components/schemas/Cat"}]`
		means = `oneOf: [{$ref: "#/components/schemas/Card"}, {$ref: "#/components/schemas/Cash"}]`
		by    = `, discriminator: {propertyName: species`
		cards = `, mapping: {visa: "#/components/schemas/Card", master: Card, till: Cash}`
	)
	twice := func(first, second string) string {
		return `{type: object, required: [m], allOf: [{properties: {m: ` + first + `}}, {properties: {m: ` + second + `}}]}`
	}
	several := func(items string) string {
		return `{type: object, required: [m], properties: {m: {type: array, minItems: 3, uniqueItems: true, items: ` + items + `}}}`
	}
	for name, c := range map[string]struct {
		schema string
		shown  []string // on the page
		sent   string   // in the request
	}{
		"a constant of each":         {`{` + pets + by + `}}`, []string{"DogBody object if species is dog", "species string required always dog", "CatBody object if species is cat"}, `"species": "dog"`},
		"constants alone":            {`{` + pets + `}`, []string{"DogBody object species string required always dog", "CatBody object"}, `"species": "dog"`},
		"names of schemas":           {`{` + means + by + `}}`, []string{"CardBody object if species is Card", "CashBody object if species is Cash"}, `"species": "Card"`},
		"a mapping":                  {`{` + means + by + cards + `}}`, []string{"CardBody object if species is visa · or master", "CashBody object if species is till"}, `"species": "visa"`},
		"a mapping of one of them":   {`{` + means + by + `, mapping: {till: Cash}}}`, []string{"CardBody object if species is Card", "CashBody object if species is till"}, `"species": "Card"`},
		"members beside them":        {`{type: object, required: [species, n], properties: {species: {type: string}, n: {type: integer}}, ` + means + by + cards + `}}`, []string{"if species is visa"}, `"n": 1`},
		"a member with alternatives": {`{type: object, required: [m], properties: {m: {type: array, minItems: 1, items: {` + means + by + cards + `}}}}}`, []string{"if species is visa"}, `"species": "visa"`},
		"an example of the base":     {`{example: {species: cat, name: Tom}, ` + pets + by + `}}`, []string{"if species is dog"}, `"name": "Tom"`},
		"an example of a part": {`{allOf: [{type: object, required: [m, n], properties: {m: {type: string}, n: {type: string}}, example: {m: a, n: x}},
			{type: object, required: [o], properties: {m: {const: b}, o: {type: string}}}]}`, []string{"always b"}, `"m": "b"`},

		"fewer values, later":     {twice(`{type: string, enum: [a, b, c], default: a}`, `{enum: [c]}`), []string{"One of: c "}, `"c"`},
		"fewer values, before":    {twice(`{type: string, enum: [c]}`, `{type: string, enum: [a, b, c], example: a}`), []string{"One of: c "}, `"c"`},
		"bounds, later":           {twice(`{type: integer, minimum: 1, maximum: 99, description: One.}`, `{minimum: 12}`), []string{"One. 12 to 99"}, `12`},
		"bounds, before":          {twice(`{type: integer, minimum: 12}`, `{type: integer, minimum: 1, maximum: 99}`), []string{"12 to 99"}, `12`},
		"lengths":                 {twice(`{type: string, maxLength: 20}`, `{minLength: 12, maxLength: 30}`), []string{"12 to 20 characters"}, `"example-exam"`},
		"the same object":         {twice(`{$ref: "#/components/schemas/Dog"}`, `{$ref: "#/components/schemas/Dog"}`), []string{"m DogBody required"}, `"species": "dog"`},
		"a member more is needed": {twice(`{$ref: "#/components/schemas/Dog"}`, `{required: [breed]}`), []string{"breed string required"}, `"breed"`},

		"values":   {several(`{type: string, enum: [mon, tue, wed]}`), nil, `"mon", "tue", "wed"`},
		"texts":    {several(`{type: string, maxLength: 8}`), nil, `"example"`},
		"short":    {several(`{type: string, maxLength: 2, minLength: 2}`), nil, ``},
		"numbers":  {several(`{type: integer, maximum: 7}`), nil, `7`},
		"from 5":   {several(`{type: number, exclusiveMinimum: 5}`), nil, `6`},
		"dates":    {several(`{type: string, format: date}`), nil, `2027`},
		"UUIDs":    {several(`{type: string, format: uuid}`), nil, ``},
		"patterns": {several(`{type: string, pattern: "^p-[0-9]{2}$"}`), nil, `"p-11"`},
		"objects":  {several(`{type: object, required: [id, on], properties: {id: {type: integer}, on: {type: boolean}}}`), nil, `"id"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(`
openapi: 3.1.0
info: {title: API, version: "1"}
x-gatehouse-tenant: none
paths:
  /pets:
    post: {operationId: create, requestBody: {required: true, content: {application/json: {schema: ` + c.schema + `}}}, responses: {"204": {description: x}}}
    patch: {operationId: change, requestBody: {required: true, content: {application/merge-patch+json: {schema: ` + c.schema + `}}}, responses: {"204": {description: x}}}
components: {schemas: {` + strings.Join([]string{pet, dog, cat, card, cash}, ", ") + `}}`)}, definition.Options{})
			require.NoError(t, err)
			requests := acceptedRequests(t, d)
			assert.Contains(t, requests[0].Body, c.sent)
			_, root := renderDefinition(t, d)
			shown := strings.Join(strings.Fields(sections(root)["create"]), " ")
			for _, want := range c.shown {
				assert.Contains(t, shown, want)
			}
		})
	}
}
