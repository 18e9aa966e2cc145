package definition

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/theory/jsonpath"
	"go.yaml.in/yaml/v3"
)

const (
	shop = `openapi: 3.1.0
paths:
  /orders:
    get:
      operationId: listOrders
      tags: [a, internal]
      parameters:
        - {name: page, in: query}
        - {name: limit, in: query, format: int32}
  /orders/{id}:
    get: {operationId: getOrder, tags: [a]}
    delete: {operationId: deleteOrder, tags: [internal]}
`
	head = "overlay: 1.1.0\ninfo: {title: t, version: v, description: d}\nactions:\n"
)

// overlaid applies an overlay to a document.
func overlaid(t *testing.T, document, text string) (*yaml.Node, []*FaultError) {
	t.Helper()
	return overlaidWithin(t, document, text, maxWork)
}

func overlaidWithin(t *testing.T, document, text string, work int) (*yaml.Node, []*FaultError) {
	t.Helper()
	root, errs := parse("api.yaml", []byte(document))
	require.Empty(t, errs)
	changes, errs := parse("o.yaml", []byte(text))
	require.Empty(t, errs)
	o := overlay{search: search{root: root, workLeft: work}, file: "o.yaml"}
	errs = o.apply(rootNode(changes))
	return root, errs
}

// values writes a value in one line, without tags and lines.
func values(n *yaml.Node) string {
	text := n.Value
	for i, child := range n.Content {
		switch {
		case n.Kind == yaml.MappingNode && i%2 == 1:
			text += ":"
		case i > 0:
			text += " "
		}
		text += values(child)
	}
	switch n.Kind {
	case yaml.MappingNode:
		return "{" + text + "}"
	case yaml.SequenceNode:
		return "[" + text + "]"
	default:
		return text
	}
}

func TestActionsChangeTheDocument(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ document, actions, want string }{
		"objects are merged, scalars replaced":        {"a: {b: 1, c: {d: 2, e: 3}}", "- {target: $.a, update: {b: 4, c: {e: 5, f: 6}, g: {h: 7}}}", "{a:{b:4 c:{d:2 e:5 f:6} g:{h:7}}}"},
		"the root is an object as well":               {"a: 1", "- {target: $, update: {b: {c: 2}}}", "{a:1 b:{c:2}}"},
		"null and false are replaced by objects":      {"a: {b: , c: false}", "- {target: $.a, update: {b: {x: 1}, c: [2]}}", "{a:{b:{x:1} c:[2]}}"},
		"an array gets what an array has":             {"a: [1]", "- {target: $.a, update: [2, {b: 3}]}", "{a:[1 2 {b:3}]}"},
		"an array gets an object":                     {"a: [1]", "- {target: $.a, update: {b: 2}}", "{a:[1 {b:2}]}"},
		"an array gets a scalar":                      {"a: [1]", "- {target: $.a, update: x}", "{a:[1 x]}"},
		"arrays inside of objects are joined":         {"a: {b: [1]}", "- {target: $, update: {a: {b: [2]}}}", "{a:{b:[1 2]}}"},
		"a scalar is replaced by another one":         {"a: {b: 1, c: [x]}", "- {target: $.a.b, update: two}\n- {target: '$.a.c[0]', update: 3}", "{a:{b:two c:[3]}}"},
		"members are removed":                         {"a: {b: 1, c: 2}", "- {target: $.a.b, remove: true}", "{a:{c:2}}"},
		"items are removed":                           {"a: [1, 2, 3, 4]", "- {target: '$.a[0, -1, 0]', remove: true}", "{a:[2 3]}"},
		"all is removed":                              {"a: [1, {b: 2}]\nc: {d: 3}", "- {target: $..*, remove: true}", "{}"},
		"actions follow each other":                   {"a: {b: 1}", "- {target: $.a, remove: true}\n- {target: $, update: {a: {c: [x]}}}\n- {target: $.a.c, update: y}", "{a:{c:[x y]}}"},
		"a target inside of another":                  {"a: {a: {}}", "- {target: $..a, update: {x: [1]}}", "{a:{a:{x:[1]} x:[1]}}"},
		"a target that is selected twice":             {"a: []", "- {target: '$[\"a\", \"a\", *]', update: [1]}", "{a:[1]}"},
		"what an action adds is not its own target":   {"a: {}", "- {target: $..*, update: {b: {}}}", "{a:{b:{}}}"},
		"a description, false and other tools' hints": {"a: {}", "- {target: $.a, description: d, remove: false, x-hint: h, update: {b: 1}}", "{a:{b:1}}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, errs := overlaid(t, test.document, head+test.actions)
			require.Empty(t, errs)
			require.Equal(t, test.want, values(root))
		})
	}
	t.Run("an overlay in JSON", func(t *testing.T) {
		t.Parallel()
		root, errs := overlaid(t, "a: 1", `{"overlay":"1.0.3","info":{"title":"t","version":"1","x-a":1},"extends":"api.yaml","x-b":2,"actions":[{"target":"$","update":{"a":2}}]}`)
		require.Empty(t, errs)
		require.Equal(t, "{a:2}", values(root))
	})
}

func TestWhatAnOverlayAddsHasItsFileAndLine(t *testing.T) {
	t.Parallel()
	root, errs := overlaid(t, "a: &old {x: 1}\nb: {x: 1}\nc: {x: {y: 1}}", head+"- target: $[*]\n  update:\n    z: {y: 3}\n- target: $['a', 'b']\n  update:\n    x:\n      2\n- {target: $.b.z, remove: true}")
	require.Empty(t, errs)
	require.Equal(t, "{a:{x:2 z:{y:3}} b:{x:2} c:{x:{y:1} z:{y:3}}}", values(root))
	a, c := rootNode(root).get("a"), rootNode(root).get("c")
	for name, n := range map[string]*yaml.Node{"a member": a.get("z").Node, "what is in it": a.get("z").get("y").Node, "its name": a.Content[2]} {
		require.Equal(t, "o.yaml", n.Anchor, name)
		require.Equal(t, 6, n.Line, name)
	}
	require.Equal(t, "o.yaml", a.get("x").Anchor)
	require.Equal(t, 10, a.get("x").line())
	for name, n := range map[string]*yaml.Node{"the object": a.Node, "the old name": a.Content[0], "an old value": c.get("x").get("y").Node} {
		require.Empty(t, n.Anchor, name)
	}
	require.NotSame(t, a.get("z").Node, c.get("z").Node, "each object has a copy of its own")
	require.NotSame(t, a.get("z").get("y").Node, c.get("z").get("y").Node)
}

// pointers returns what a target selects, in the order of the document.
func pointers(root *yaml.Node, text string) (all []string, err error) {
	expression, err := parseTarget(text)
	if err != nil {
		return nil, err
	}
	places, err := (&search{root: root, workLeft: maxWork}).find(expression)
	selected := make(map[*yaml.Node]bool)
	for _, p := range places {
		selected[p.Node] = true
	}
	var visit func(node)
	visit = func(n node) {
		if selected[n.Node] {
			all = append(all, n.pointer())
		}
		for _, item := range n.items() {
			visit(item)
		}
		for _, e := range n.entries() {
			visit(e.value)
		}
	}
	visit(rootNode(root))
	return all, err
}

func TestTargetsSelect(t *testing.T) {
	t.Parallel()
	const orders, order = "/paths/~1orders", "/paths/~1orders~1{id}"
	for target, want := range map[string][]string{
		"$":                                     {""},
		"$.paths['/orders/{id}'].get":           {order + "/get"},
		`$.paths["/orders"]['get']`:             {orders + "/get"},
		"$.paths.*.*":                           {orders + "/get", order + "/get", order + "/delete"},
		"$.paths.*['get','delete']":             {orders + "/get", order + "/get", order + "/delete"},
		"$..operationId":                        {orders + "/get/operationId", order + "/get/operationId", order + "/delete/operationId"},
		"$..parameters[0].name":                 {orders + "/get/parameters/0/name"},
		"$..parameters[-1:]":                    {orders + "/get/parameters/1"},
		"$..tags[::-1]":                         {orders + "/get/tags/0", orders + "/get/tags/1", order + "/get/tags/0", order + "/delete/tags/0"},
		"$.paths[?@.delete]":                    {order},
		"$.paths.*[?@.operationId=='getOrder']": {order + "/get"},
		"$.paths.*.*.parameters[?@.name == 'page' && !@.format]":                            {orders + "/get/parameters/0"},
		"$..parameters[?!(@.name=='page') || @.in != 'query']":                              {orders + "/get/parameters/1"},
		"$.paths.*[?@.tags[?@=='internal']]":                                                {orders + "/get", order + "/delete"},
		"$.paths.*[?@.tags[0]==$.paths['/orders'].get.tags[0]]":                             {orders + "/get", order + "/get"},
		`$.paths[?@['a..b'] == 'x,y' || @["c\"..,"] || $['paths']['/orders'].get.tags[-1]]`: {orders, order},
		"$..[?@.name=='page']":                                                              {orders + "/get/parameters/0"},
		"$..*..*..*..*..*..*":                                                               {orders + "/get/parameters/0/name", orders + "/get/parameters/0/in", orders + "/get/parameters/1/name", orders + "/get/parameters/1/in", orders + "/get/parameters/1/format"},
		"$.openapi.x[0]":                                                                    nil,
		"$.paths[0]":                                                                        nil,
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			root, errs := parse("api.yaml", []byte(shop))
			require.Empty(t, errs)
			got, err := pointers(root, target)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, selectedByLibrary(t, root, target), slices.Sorted(slices.Values(got)))
		})
	}
	t.Run("values compare as in JSON", func(t *testing.T) {
		t.Parallel()
		root, errs := parse("f", []byte("[1, 1.0, '1', true, 'true', null, 2001-01-01, 0x10, [1], {a: 1}]"))
		require.Empty(t, errs)
		for target, want := range map[string][]string{
			"$[?@==1]":            {"/0", "/1"},
			"$[?@=='1']":          {"/2"},
			"$[?@==true]":         {"/3"},
			"$[?@==null]":         {"/5"},
			"$[?@=='2001-01-01']": {"/6"},
			"$[?@>1]":             {"/7"},
			"$[?@==$[8]]":         {"/8"},
			"$[?@.a]":             {"/9"},
		} {
			got, err := pointers(root, target)
			require.NoError(t, err)
			require.Equal(t, want, got, target)
		}
	})
}

// selectedByLibrary returns what the library selects from decoded values.
func selectedByLibrary(t *testing.T, root *yaml.Node, target string) []string {
	t.Helper()
	path, err := jsonpath.Parse(target)
	require.NoError(t, err)
	all := make(map[string]bool)
	for _, found := range path.SelectLocated((&search{decoded: map[*yaml.Node]decodedValue{}}).decode(root).value) {
		all[found.Path.Pointer()] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func TestFaultsOfAnOverlayHaveTheirPlace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		overlay string
		want    []string
	}{
		"not an object":    {"[]", []string{"o.yaml:1: : an object is missing", "o.yaml:1: /info: an object is missing", `o.yaml:1: /overlay: the version of the Overlay Specification must be 1.0.0 or 1.1.0, not ""`, "o.yaml:1: /actions: there must be 1 to 1000 actions, not 0"}},
		"nothing but text": {"overlay: 1.2.0\ninfo: {title: t}\nextend: x\nactions: []", []string{"o.yaml:3: /extend: extend is not possible here: must be one of overlay, info, extends, actions", "o.yaml:2: /info/version: must be a non-empty string", `o.yaml:1: /overlay: the version of the Overlay Specification must be 1.0.0 or 1.1.0, not "1.2.0"`, "o.yaml:4: /actions: there must be 1 to 1000 actions, not 0"}},
		"all faults at once": {head + "- {target: $.x, remove: true}\n- {target: '$[', remove: true}\n- 1\n- {target: $.paths, copy: $.x}", []string{
			"o.yaml:4: /actions/0/target: $.x selects nothing",
			`o.yaml:5: /actions/1/target: invalid target "$[": jsonpath: unexpected eof at position 3`,
			"o.yaml:6: /actions/2: an object is missing",
			"o.yaml:7: /actions/3/copy: copy is not possible here: must be one of target, description, update, remove",
			"o.yaml:7: /actions/3: an action must have either update or remove: true",
		}},
		"no target":                         {head + "- {remove: true}", []string{`o.yaml:4: /actions/0/target: invalid target "": jsonpath: unexpected end of input`}},
		"an extension beside the target":    {head + "- {target: $.info, update: {x-a: 1}, x-hint: 1, x-gatehouse-internal: true}", []string{"o.yaml:4: /actions/0/x-gatehouse-internal: x-gatehouse-internal is not possible here: must be one of target, description, update, remove"}},
		"update and remove":                 {head + "- {target: $.paths, update: {a: 1}, remove: true}", []string{"o.yaml:4: /actions/0: an action must have either update or remove: true"}},
		"remove: false":                     {head + "- {target: $.paths, remove: false}", []string{"o.yaml:4: /actions/0: an action must have either update or remove: true"}},
		"remove that is no truth value":     {head + "- {target: $.paths, remove: 'true'}", []string{"o.yaml:4: /actions/0/remove: must be true or false"}},
		"the whole document":                {head + "- {target: $, remove: true}", []string{"o.yaml:4: /actions/0/target: the whole document cannot be removed"}},
		"an update of a scalar in 1.0":      {strings.Replace(head, "1.1.0", "1.0.0", 1) + "- {target: $.openapi, update: 3.1.1}", []string{"o.yaml:4: /actions/0/target: $.openapi selects a value that is not an object or array (from line 1): select what it is in"}},
		"an update of scalars, once":        {head + "- {target: $..operationId, update: {}}", []string{"o.yaml:4: /actions/0/target: $..operationId selects a value that is not an object or array (from line 5): select what it is in"}},
		"an object updated with an array":   {head + "- target: $.paths\n  update: [1]", []string{"o.yaml:5: /actions/0/update: an object (from line 3) can only be updated with an object"}},
		"an object replaced by a scalar":    {head + "- target: $\n  update:\n    paths: 1", []string{"o.yaml:6: /actions/0/update/paths: paths is an object or array (from line 3) that this cannot replace: remove it first"}},
		"an array replaced by an object":    {head + "- {target: $..get, update: {tags: {}}}", []string{"o.yaml:4: /actions/0/update/tags: tags is an object or array (from line 6) that this cannot replace: remove it first"}},
		"a regular expression":              {head + "- {target: '$..[?match(@.name, \"(a*)*b\")]', remove: true}", []string{"o.yaml:4: /actions/0/target: invalid target \"$..[?match(@.name, \\\"(a*)*b\\\")]\": jsonpath: unknown function match() at position 6"}},
		"a filter with ..":                  {head + "- {target: '$..[?!(@..x)]', remove: true}", []string{`o.yaml:4: /actions/0/target: invalid target "$..[?!(@..x)]": in a filter, .. and lists of names are not possible`}},
		"a filter with lists of names":      {head + "- {target: '$[?@[?@[0,1]]]', remove: true}", []string{`o.yaml:4: /actions/0/target: invalid target "$[?@[?@[0,1]]]": in a filter, .. and lists of names are not possible`}},
		"a filter that reads the whole API": {head + "- {target: '$[?!$.*.*]', remove: true}", []string{`o.yaml:4: /actions/0/target: invalid target "$[?!$.*.*]": in a filter, a path that begins with $ can have only names and indexes`}},
		"a filter that reads all names":     {head + "- {target: \"$[?$..x]\", remove: true}", []string{`o.yaml:4: /actions/0/target: invalid target "$[?$..x]": in a filter, a path that begins with $ can have only names and indexes`}},
		"a filter that reads several names": {head + "- {target: \"$[?@.a && $['b']['c','d']]\", remove: true}", []string{`o.yaml:4: /actions/0/target: invalid target "$[?@.a && $['b']['c','d']]": in a filter, a path that begins with $ can have only names and indexes`}},
		"a filter that reads a slice":       {head + "- {target: \"$[?@[?$[0:1]]]\", remove: true}", []string{`o.yaml:4: /actions/0/target: invalid target "$[?@[?$[0:1]]]": in a filter, a path that begins with $ can have only names and indexes`}},
		"a long target":                     {head + "- {target: '$" + strings.Repeat(".a", 500) + "', remove: true}", []string{`o.yaml:4: /actions/0/target: invalid target "$` + strings.Repeat(".a", 49) + `.": more than 1000 bytes`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, errs := overlaid(t, shop, test.overlay)
			require.Equal(t, test.want, faults(t, errs))
		})
	}
	t.Run("at most 100", func(t *testing.T) {
		t.Parallel()
		_, errs := overlaid(t, shop, head+strings.Repeat("- {target: $.x, remove: true}\n", 200))
		require.Len(t, errs, maxFaults)
		_, errs = overlaid(t, shop, head+strings.Repeat("- {target: $, update: {a: 1}}\n", maxActions+1))
		require.Equal(t, []string{"o.yaml:4: /actions: there must be 1 to 1000 actions, not 1001"}, faults(t, errs))
	})
}

// Every overlay ends in a refusal, in bounded time and memory: the timeout of the test is what fails otherwise.
func TestHostileOverlaysAreRefused(t *testing.T) {
	t.Parallel()
	const work = maxWork / 20 // the document is smaller as well: the race detector makes all of this ten times as slow
	wide := "[" + strings.Repeat("{a: b},", maxNodes/60) + "1]"
	for name, test := range map[string]struct{ document, actions, pointer, message string }{
		"an update that doubles the document":  {"a: {}", strings.Repeat("- {target: '$..*', update: {b: {}, c: {}}}\n", 20), "/update", "the document has more than 400000 names and values, 4194304 bytes or 64 levels"},
		"an update that multiplies text":       {"[" + strings.Repeat("{},", 1000) + "{}]", "- {target: '$.*', update: {a: " + strings.Repeat("x", maxText/1000) + "}}", "/update", "4194304 bytes"},
		"an update that deepens the document":  {"a: {}", strings.Repeat("- {target: '$..a', update: {a: {}}}\n", 100), "/update", "64 levels"},
		"an update that is deep itself":        {"a: [[[]]]", "- {target: '$.a[0][0]', update: " + strings.Repeat("[", maxLevels-3) + strings.Repeat("]", maxLevels-3) + "}", "", ""},
		"an update that is one level too deep": {"a: [[[]]]", "- {target: '$.a[0][0]', update: {b: " + strings.Repeat("[", maxLevels-4) + strings.Repeat("]", maxLevels-4) + "}}", "/update", "64 levels"},
		"as many steps as possible":            {wide, "- {target: '$" + strings.Repeat("..*", 300) + "', remove: true}", "/target", "selects nothing"},
		"all selectors at once":                {wide, "- {target: '$..[" + strings.Repeat("*,", 400) + "*]', remove: true}", "/target", "take too long"},
		"all filters at once":                  {wide, "- {target: '$..[?" + strings.Repeat("!@[?@.x]&&", 90) + "@.x]', remove: true}", "/target", "take too long"},
		"nested filters":                       {wide, "- {target: '$" + strings.Repeat("[?@", 240) + strings.Repeat("]", 240) + "', remove: true}", "/target", "take too long"},
		"expensive actions, again and again":   {wide, strings.Repeat("- {target: '$..[?@.c]', remove: true}\n", maxActions), "/target", ""},
		"copies, again and again":              {"[" + strings.Repeat("{a: b},", 2_500) + "1]", strings.Repeat("- {target: '$[?@.a]', update: {a: c}}\n", maxActions), "/target", "take too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, errs := overlaidWithin(t, test.document, head+test.actions, work)
			e := measure(root)
			require.LessOrEqual(t, e.nodes, maxNodes)
			require.LessOrEqual(t, e.text, maxText)
			require.LessOrEqual(t, e.levels, maxLevels)
			all := faults(t, errs)
			if test.pointer == "" {
				require.Empty(t, all)
				return
			}
			require.NotEmpty(t, all)
			require.LessOrEqual(t, len(all), maxFaults)
			require.Contains(t, all[len(all)-1], test.pointer)
			require.Contains(t, all[len(all)-1], test.message)
		})
	}
	t.Run("usual targets on a large document cost little", func(t *testing.T) {
		t.Parallel()
		var document strings.Builder
		document.WriteString("components:\n  schemas:\n")
		for i := range 1200 {
			fmt.Fprintf(&document, "    S%d:\n      properties:\n        created_at: {type: string, format: date}\n", i)
			for j := range 4 {
				fmt.Fprintf(&document, "        m%d: {type: string, description: d}\n", j)
			}
		}
		root, errs := parse("f", []byte(document.String()))
		require.Empty(t, errs)
		require.Greater(t, measure(root).nodes, 40_000)
		for target, selected := range map[string]int{"$..properties.created_at": 1200, "$..[?@.type=='string' && !@.format]": 4800} {
			s := search{root: root, workLeft: maxWork / 50}
			expression, err := parseTarget(target)
			require.NoError(t, err)
			places, err := s.find(expression)
			require.NoError(t, err)
			require.Len(t, places, selected)
		}
	})
}

// FuzzOverlay checks that no document and overlay panic, that targets select what the library selects, and that limits are kept.
func FuzzOverlay(f *testing.F) {
	f.Add(shop, head+"- {target: '$..[?@.name]', update: {a: [1, {b: 2}]}}\n- {target: $..tags, update: x}", "$..parameters[?@.name == 'page' && !@.format]")
	f.Add(`{"a":[1,{"b":[]}],"c":"\ud83d\ude00"}`, `{"overlay":"1.0.0","info":{"title":"t","version":"1"},"actions":[{"target":"$..*","remove":true}]}`, "$[::-1]['a',0,?@[?@==1]]")
	f.Add("a: &x {b: *x}\n<<: 1", head+"- {target: $, update: {a: {c: 1}}}", "$..[?@==$['a'][0]]")
	f.Fuzz(func(t *testing.T, document, overlay, target string) {
		root, errs := parse("api.yaml", []byte(document))
		faults(t, errs)
		changes, errs := parse("o.yaml", []byte(overlay))
		faults(t, errs)
		if root == nil {
			return
		}
		if len(target) < 60 && strings.Count(target, "..") < 3 && measure(root).nodes < 300 {
			if got, err := pointers(root, target); err == nil {
				require.Equal(t, selectedByLibrary(t, root, target), slices.Sorted(slices.Values(got)))
			}
		}
		if changes == nil {
			return
		}
		faults(t, applyOverlay(root, changes, "o.yaml"))
		e := measure(root)
		require.LessOrEqual(t, e.nodes, maxNodes)
		require.LessOrEqual(t, e.text, maxText)
		require.LessOrEqual(t, e.levels, maxLevels)
	})
}
