package definition

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// outline writes a value in one line, with the kind of each scalar, its line, and no escapes.
func outline(n *yaml.Node) string {
	var parts []string
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			parts = append(parts, n.Content[i].Value+":"+outline(n.Content[i+1]))
		}
		return "{" + strings.Join(parts, " ") + "}"
	case yaml.SequenceNode:
		for _, item := range n.Content {
			parts = append(parts, outline(item))
		}
		return "[" + strings.Join(parts, " ") + "]"
	default:
		return fmt.Sprintf("%s%s@%d", strings.TrimPrefix(n.Tag, "!!"), "="+n.Value, n.Line)
	}
}

func faults(t *testing.T, errs []*FaultError) (all []string) {
	t.Helper()
	for _, fault := range errs {
		require.Positive(t, fault.Line)
		all = append(all, fault.Error())
	}
	return all
}

func TestDocumentsAreReadWithTheirLines(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"YAML":                                {"a: 1\nb:\n  - x\n  - 1.5\n  - true\n  -\n", "{a:int=1@1 b:[str=x@3 float=1.5@4 bool=true@5 null=@6]}"},
		"JSON":                                {"{\n\t\"a\": 1,\n\t\"b\": [\"x\", 1.5,\n\ttrue, null\n\t],\n\t\"c\": {}}", `{a:int=1@2 b:[str=x@3 float=1.5@3 bool=true@4 null=null@4] c:{}}`},
		"JSON that yaml.v3 refuses":           {`{"a":"\/\ud83d\ude00","` + strings.Repeat("k", maxName) + "\"\n:\"\u007f\"}", "{a:str=/😀@1 " + strings.Repeat("k", maxName) + ":str=\u007f@2}"},
		"JSON with names that look like YAML": {`{"<<":{"null":"~","2001-01-01":"2001-01-01"}}`, "{<<:{null:str=~@1 2001-01-01:str=2001-01-01@1}}"},
		"almost JSON, which is YAML":          {"{\"a\": 1, b: 'x',}", "{a:int=1@1 b:str=x@1}"},
		"a byte order mark":                   {"\ufeff{\"a\":\"\\/\"}", "{a:str=/@1}"},
		"names that look like numbers":        {"200: a\n4.5: b\ntrue: c\nnull: d\n2001-01-01: e\n", "{200:str=a@1 4.5:str=b@2 true:str=c@3 null:str=d@4 2001-01-01:str=e@5}"},
		"dates are texts":                     {"a: 2001-01-01", "{a:str=2001-01-01@1}"},
		"<< is a name where it is quoted":     {"'<<': <<", "{<<:str=<<@1}"},
		"an anchor that nothing refers to":    {"a: &x 1", "{a:int=1@1}"},
		"an explicit text":                    {"a: !!str 1", "{a:str=1@1}"},
		"markers of one document":             {"---\na: 1\n...\n", "{a:int=1@2}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, errs := parse("api.yaml", []byte(test.text))
			require.Empty(t, errs)
			require.Equal(t, test.want, outline(root))
			var check func(*yaml.Node)
			check = func(n *yaml.Node) {
				for i, child := range n.Content {
					assert.Positive(t, child.Line)
					assert.True(t, n.Kind != yaml.MappingNode || i%2 == 1 || child.Tag == "!!str", "a name is a text")
					check(child)
				}
			}
			check(root)
		})
	}
}

func TestWhatCannotBeReadIsRefusedWithItsPlace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"nothing":             {"", []string{"f:1: : the document is empty"}},
		"only a comment":      {"# nothing\n", []string{"f:1: : the document is empty"}},
		"invalid YAML":        {"a: 1\nb: [\n", []string{"f:2: : invalid YAML: did not find expected node content"}},
		"invalid JSON":        {"{\"a\": 1,\n\"b\": }}", []string{"f:2: : invalid YAML: did not find expected <document start>"}},
		"braces in a flow":    {"a: 1\nb: {c: a{d}e}\nc: 1", []string{"f:2: : invalid YAML: did not find expected ',' or '}'"}},
		"a control character": {"a: 1\nb: \x01", []string{"f:2: : invalid YAML: control characters are not allowed"}},
		"invalid UTF-8":       {"a: 1\nb: \xff\n", []string{"f:2: : the text is not valid UTF-8"}},
		"UTF-16":              {"\xff\xfea\x00", []string{"f:1: : the text is not valid UTF-8"}},
		"two documents":       {"a: 1\n---\nb: 1\n", []string{"f:2: : a second document begins here: one is possible"}},
		"two JSON documents":  {"{}\n{}", []string{"f:2: : invalid YAML: did not find expected <document start>"}},
		"names that stand twice, all of them": {"a: 1\nb: {x: 1, x: 2}\na: 2\n200: x\n'200': y\na: 3", []string{
			"f:2: /b/x: duplicate member x: first in line 2",
			"f:3: /a: duplicate member a: first in line 1",
			"f:5: /200: duplicate member 200: first in line 4",
			"f:6: /a: duplicate member a: first in line 1",
		}},
		"names that stand twice in JSON": {"{\"a\": [{\"b/c\": 1,\n\"b/c\": 2}]}", []string{"f:2: /a/0/b~1c: duplicate member b/c: first in line 1"}},
		"aliases": {"a: &x 1\nb: *x\nc: [*x]\n*x : 1\n", []string{
			"f:2: /b: an alias is not possible: write the value itself, as yq 'explode(.)' does, or yq -y . of Debian and Ubuntu, or $ref",
			"f:3: /c/0: an alias is not possible: write the value itself, as yq 'explode(.)' does, or yq -y . of Debian and Ubuntu, or $ref",
			"f:4: /x: an alias is not possible: write the value itself, as yq 'explode(.)' does, or yq -y . of Debian and Ubuntu, or $ref",
		}},
		"a merge key":         {"a:\n  <<: {b: 1}\n", []string{"f:2: /a/<<: << is not possible: write the members themselves"}},
		"an object as a name": {"? {a: 1}\n: x\n? [a]\n: y", []string{"f:1: : member names must be strings", "f:3: : member names must be strings"}},
		"no name":             {"a:\n  ?\n  : 1", []string{"f:2: /a: member names must be strings"}},
		"a long name":         {"a:\n  ? " + strings.Repeat("k", maxName+1) + "\n  : x", []string{"f:2: /a: a name has 1025 bytes: at most 1024 are possible"}},
		"a tag that another program reads": {"a: !include b.yaml\nb: !!int '1'\nc: !!set {x}", []string{
			"f:1: /a: the tag !include is not possible: only !!str is",
			"f:2: /b: the tag !!int is not possible: only !!str is",
			"f:3: /c: the tag !!set is not possible: only !!str is",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, errs := parse("f", []byte(test.text))
			require.Nil(t, root)
			require.Equal(t, test.want, faults(t, errs))
		})
	}
}

// Every text ends in a refusal, in bounded time and memory: the timeout of the test is what fails otherwise.
func TestHostileDocumentsAreRefused(t *testing.T) {
	t.Parallel()
	fill := func(unit string) string { return strings.Repeat(unit, maxText/len(unit)) }
	bomb := "a0: &a0 [x, x]\n"
	for i := range 50 {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	for name, test := range map[string]struct{ text, message string }{
		"more text than is possible":         {strings.Repeat("a", maxText+1), "at most 4194304 are possible"},
		"10 MB of invalid UTF-8":             {strings.Repeat("\xff", 10_000_000), "at most 4194304 are possible"},
		"brackets":                           {strings.Repeat("[", 2<<20), "exceeded max depth"},
		"brackets in JSON":                   {strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "inside each other"},
		"braces":                             {fill("{a: "), "exceeded max depth"},
		"dashes":                             {fill("- "), "exceeded max depth"},
		"65 levels":                          {strings.Repeat("[", maxLevels+1) + strings.Repeat("]", maxLevels+1), "more than 64"},
		"a bomb of aliases":                  {bomb, "an alias is not possible"},
		"many aliases":                       {"- &a b\n" + fill("- *a\n")[:maxText/4], "an alias is not possible"},
		"more values than are possible":      {fill("- #\n")[:maxText/2], "more than 400000 names and values"},
		"more JSON values than are possible": {"[" + strings.Repeat("[],", maxText/8) + "1]", "more than 400000 names and values"},
		"names without values":               {"{" + strings.Repeat("a,", maxText/16) + "}", "duplicate member"},
		"directives":                         {strings.Repeat("%TAG !a! b\n", maxText/11), "%TAG occurs more than"},
		"documents":                          {fill("--- a\n"), "a second document"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, errs := parse("f", []byte(test.text))
			require.Nil(t, root)
			all := faults(t, errs)
			require.NotEmpty(t, all)
			require.LessOrEqual(t, len(all), maxFaults)
			require.Contains(t, all[0], test.message)
		})
	}
	t.Run("64 levels are read", func(t *testing.T) {
		t.Parallel()
		_, errs := parse("f", []byte(strings.Repeat("[", maxLevels)+"1"+strings.Repeat("]", maxLevels)))
		require.Empty(t, errs)
	})
	t.Run("400,000 names and values are read", func(t *testing.T) {
		t.Parallel()
		_, errs := parse("f", []byte("["+strings.Repeat("1,", maxNodes-2)+"1]"))
		require.Empty(t, errs)
	})
}

func BenchmarkParse(b *testing.B) {
	for name, text := range map[string]string{
		"public":     string(publicText),
		"comments":   strings.Repeat("- #\n", maxText/4),
		"JSON":       "[" + strings.Repeat("[],", maxText/3-2) + "1]",
		"duplicates": "{" + strings.Repeat("a,", maxText/2-2) + "}",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = parse("f", []byte(text))
			}
		})
	}
}
