package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// checkedDocument is a definition whose tools are what a test says in them.
const checkedDocument = `openapi: 3.1.0
info: {title: Animals, version: "1"}
servers: [{url: /v1}]
x-gatehouse-tenant: request
tags: [{name: animals}]
paths:
  /animals:
    get:
      operationId: listAnimals
      tags: [animals]
      x-gatehouse-tool: {LIST}
      responses:
        "200":
          description: Animals.
          content: {application/json: {schema: {type: array, maxItems: 9, items: {$ref: "#/components/schemas/Animal"}}}}
    post:
      operationId: addAnimal
      tags: [animals]
      x-gatehouse-tool: {ADD}
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Animal"}}}}
      responses:
        "201": {description: An animal., content: {application/json: {schema: {$ref: "#/components/schemas/Animal"}}}}
components:
  schemas:
    Animal: {type: object, required: [id], properties: {id: {type: string}, name: {type: string}}}
`

// runAPICheck runs `gatehouse api check` for a document with what its tools say, and returns what it prints and whether its exit status was 0.
func runAPICheck(t *testing.T, list, add string, args ...string) (stdout, stderr string, ok bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "animals.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.NewReplacer("LIST", list, "ADD", add).Replace(checkedDocument)), 0o600))
	cmd := apiCheckCommand()
	cmd.SilenceErrors = true
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(append([]string{file}, args...))
	err := cmd.Execute()
	return strings.ReplaceAll(out.String(), file, "animals.yaml"), errs.String(), err == nil
}

func TestAPICheckFindsTheFaultsOfTools(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ list, add, says string }{
		"an unknown field":       {"fields: [nam]", "", "animals.yaml:11: error of a tool: is not a member of the records (/paths/~1animals/get/x-gatehouse-tool/fields/0)"},
		"an unknown replacement": {"", "replace: nope", "animals.yaml:19: error of a tool: is not an operation"},
		"an unknown risk":        {"", "risk: persons", "animals.yaml:19: error of a tool: must be people"},
		"a name of two":          {"name: animals", "name: animals", "animals.yaml:19: error of a tool: animals is the name of two tools"},
		"an unknown kind":        {"", "kind: start", "animals.yaml:19: error of a tool: must be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, ok := runAPICheck(t, c.list, c.add)
			assert.False(t, ok)
			assert.Contains(t, stdout, c.says)
			assert.Contains(t, stderr, "the definition loads for gatehouse_api, but not for gatehouse_connect: 1 error")
		})
	}
	t.Run("all at once", func(t *testing.T) {
		t.Parallel()
		_, stderr, _ := runAPICheck(t, "fields: [nam]", "risk: persons, kind: start")
		assert.Contains(t, stderr, ": 3 errors")
	})
	t.Run("which only a server of tools finds", func(t *testing.T) {
		t.Parallel()
		_, stderr, ok := runAPICheck(t, "handler: nothing", "arguments: {id: name}")
		assert.False(t, ok)
		assert.Contains(t, stderr, "the definition loads for gatehouse_api, but not for gatehouse_connect:\ntool list_animals: unknown handler \"nothing\"")
		assert.Contains(t, stderr, "\ntool add_animal: two arguments are called name: say another name under arguments")
	})
	t.Run("not of those that are not served", func(t *testing.T) {
		t.Parallel()
		stdout, stderr, ok := runAPICheck(t, "", "risk: persons", "--only", "listAnimals")
		require.True(t, ok, stdout+stderr)
		assert.Equal(t, "The definition loads: 1 operation below /v1/, 1 tool, 0 warnings.\n", stdout)
	})
}

// Following the printed line neither brings earlier errors back nor leaves out operations that work.
func TestAPICheckPrintsTheWholeLineAndWhereItBelongs(t *testing.T) {
	t.Parallel()
	stdout, _, ok := runAPICheck(t, "", "risk: persons")
	require.False(t, ok)
	assert.Contains(t, stdout, "\nThe rest loads (1 operation). Put this line into the block of the definition of gatehouse_connect; the flag --except has commas:\n\n  except addAnimal\n")
	file := filepath.Join(t.TempDir(), "api.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{openapi: 3.1.0, info: {title: x, version: '1'}, x-gatehouse-tenant: none, paths: {
		/a: {get: {operationId: good, responses: {"204": {}}}, post: {operationId: bad, responses: {}}, put: {operationId: worse, responses: {}}}}}`), 0o600))
	cmd := apiCheckCommand()
	cmd.SilenceErrors = true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs([]string{file, "--except", "bad"})
	require.Error(t, cmd.Execute())
	assert.Contains(t, out.String(), "\nThe rest loads (1 operation). Put this line into the block of the definition of gatehouse_api; the flag --except has commas:\n\n  except bad worse\n")
}

// A script that reads the list must not take warnings for operations.
func TestAPICheckListsOperationsAlone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "api.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: none, paths: {/a: {get: {operationId: a, servers: [{url: /v2}], responses: {"204": {}}}}}}`), 0o600))
	cmd := apiCheckCommand()
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs([]string{file, "--list"})
	require.NoError(t, cmd.Execute())
	assert.Regexp(t, `^OPERATION .*\na .*\n$`, out.String())
	assert.Contains(t, errs.String(), "api.yaml:1: warning: ")
}

// Who reads the list of a document sees which objects are compared with the business, and that those beside them are not.
func TestAPICheckSaysWhereTheTenantIsCompared(t *testing.T) {
	t.Parallel()
	const (
		order = `{type: object, properties: {id: {type: string}, account: {type: string}}}`
		lines = `{type: array, maxItems: 9, items: {type: object, properties: {sku: {type: string}}}}`
	)
	for name, c := range map[string]struct{ schema, want string }{
		"the response":           {`{type: object, properties: {account: {type: string}, lines: ` + lines + `}}`, "account of the response"},
		"a list":                 {`{type: array, maxItems: 9, items: ` + order + `}`, "account of every item"},
		"a list in an envelope":  {`{type: object, properties: {orders: {type: array, maxItems: 9, items: ` + order + `}}}`, "account of /orders/*"},
		"two lists":              {`{type: object, properties: {orders: {type: array, maxItems: 9, items: ` + order + `}, drafts: {type: array, maxItems: 9, items: ` + order + `}}}`, "account of /orders/*, /drafts/*"},
		"records by their names": {`{type: object, additionalProperties: ` + order + `}`, "account of every item"},
		"alternatives":           {`{oneOf: [` + order + `, {type: array, maxItems: 9, items: ` + order + `}]}`, "account of the response, every item"},
		"an object beside lists": {`{type: object, required: [meta], properties: {meta: ` + order + `, lines: ` + lines + `}}`, "account of /meta, not of every record"},
		"a list beside lists":    {`{type: object, properties: {orders: {type: array, maxItems: 9, items: ` + order + `}, lines: ` + lines + `}}`, "account of /orders/*, not of every record"},
		"an object of a record":  {`{type: object, properties: {id: {type: string}, customer: ` + order + `}}`, "account of /customer, not of every record"},
		"many objects":           {`{type: object, required: [a], properties: {a: ` + order + `, b: ` + order + `, c: ` + order + `, d: ` + order + `, e: ` + order + `}}`, "account of /a, /b, /c, /d, …"},
		"a record in itself":     {`{type: object, required: [a], properties: {parent: {$ref: "#/paths/~1a/get/responses/200/content/application~1json/schema"}, a: ` + order + `}}`, "account of /a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, strings.TrimSpace(lastColumn(t, `x-gatehouse-tenant: account, paths: {/a: {get: {responses: {"200": {description: x, content: {application/json: {schema: `+c.schema+`}}}}}}}`)))
		})
	}
	require.Equal(t, "the data service alone, which is told the business in X-Business-Id only",
		strings.TrimSpace(lastColumn(t, `x-gatehouse-tenant: account, paths: {/a: {delete: {responses: {"204": {description: x}}}}}`)))
}

func TestAPICheckShowsWhatIsMapped(t *testing.T) {
	t.Parallel()
	const responses = `responses: {"200": {description: x, content: {application/json: {schema: {type: object, properties: {account: {type: string, x-gatehouse-from: FROM}}}}}}}`
	const document = `x-gatehouse-tenant: account, paths: {"/orders/{id}": {get: {operationId: a, x-gatehouse-upstream: UPSTREAM,
		parameters: [{name: id, in: path, required: true, schema: {type: string}}], ` + responses + `}}}`
	list := func(upstream, from string) string {
		return listed(t, strings.NewReplacer("UPSTREAM", upstream, "FROM", from).Replace(document))
	}
	assert.Contains(t, list(`{path: "/admin/{business}/export/{id}.json"}`, "owner"), "  GET /orders/{id} → /admin/{business}/export/{id}.json  ")
	assert.Contains(t, list(`{query: {a: b}}`, "owner"), "  GET /orders/{id}  ")
	assert.Contains(t, list("{}", "owner"), "  account of the response\n")
	assert.Contains(t, list("{}", "{member: owner, values: {victim: attacker}}"), "  account of the response (values changed)\n")
}

// A document of a team must not look signed and checked where it is not.
func TestAPICheckPrintsColumnsThatADocumentCannotImitate(t *testing.T) {
	t.Parallel()
	list := listed(t, `x-gatehouse-tenant: none, paths: {/a: {get: {operationId: "a  GET /a\ta  signed \u00a0\u2003\u2800 per_key  account`+strings.Repeat(" ", 200)+`", responses: {"204": {}}}}}`)
	assert.Contains(t, list, "\na GET /a a signed per_key account  GET /a   a         signed   per_key  nothing: the operation has no tenant\n")
	list = listed(t, `x-gatehouse-tenant: none, paths: {/a: {get: {operationId: "`+strings.Repeat("a", 1000)+`", responses: {"204": {}}}}}`)
	assert.Less(t, len(list), 1000)
}

// lastColumn returns what the list says keeps businesses apart, for a document with one operation.
func lastColumn(t *testing.T, document string) string {
	t.Helper()
	head, row, _ := strings.Cut(listed(t, document), "\n")
	require.Equal(t, 1, strings.Count(row, "\n"), row)
	return row[strings.Index(head, "BUSINESSES"):]
}

// listed returns the list of a document's operations.
func listed(t *testing.T, document string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "api.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, `+document+`}`), 0o600))
	cmd := apiCheckCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs([]string{file, "--list"})
	require.NoError(t, cmd.Execute())
	return out.String()
}

func TestAPICheckRefusesNamesThatTheGatewayRefuses(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Shop", "connect"} {
		_, stderr, ok := runAPICheck(t, "", "risk: people", "--name", name)
		assert.False(t, ok, name)
		assert.Contains(t, stderr, `invalid name "`+name+`" of an API`)
	}
}

// What cannot be read, or would take away a bound, says why.
func TestAPICheckSaysWhyADocumentCannotBeRead(t *testing.T) {
	t.Parallel()
	large := filepath.Join(t.TempDir(), "large.yaml")
	require.NoError(t, os.WriteFile(large, nil, 0o600))
	require.NoError(t, os.Truncate(large, 6<<20))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a pipe":                      {[]string{"/dev/stdin"}, "reading a definition: /dev/stdin is not a regular file: save the document to one"},
		"a directory":                 {[]string{filepath.Dir(large)}, "is not a regular file"},
		"a large file":                {[]string{large}, "large.yaml has 6291456 bytes, and 4 MiB are possible: remove what is not served, with a tool such as redocly bundle --remove-unused-components"},
		"fewer items than none":       {[]string{large, "--max-items", "-5"}, "invalid max_items -5: must not be negative"},
		"fewer of the built-in API's": {[]string{"--max-items", "-5"}, "max_items need a file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			cmd := apiCheckCommand()
			cmd.SilenceErrors = true
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			cmd.SetArgs(c.args)
			require.Error(t, cmd.Execute())
			assert.Contains(t, out.String(), c.want)
		})
	}
}

// A variable that is not set must not mean everything, the built-in API, or the credential file of another gateway.
func TestEmptyNamesAreRefused(t *testing.T) {
	t.Parallel()
	keys := &cobra.Command{Use: "keys"}
	configureKeys(keys)
	for name, c := range map[string]struct {
		cmd  *cobra.Command
		args []string
		want string
	}{
		"a document":        {apiCheckCommand(), []string{""}, "the name of the document is empty"},
		"what is published": {apiPublishCommand(), []string{"--only", ""}, "--only is empty"},
		"what is left out":  {apiDocsCommand(), []string{"--except="}, "--except is empty"},
		"a credential file": {keys, []string{"list", "--file", ""}, "--file is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			c.cmd.SilenceErrors, c.cmd.SilenceUsage = true, true
			c.cmd.SetOut(&out)
			c.cmd.SetErr(&out)
			c.cmd.SetArgs(c.args)
			require.Error(t, c.cmd.Execute())
			assert.Contains(t, out.String(), c.want)
		})
	}
}

func TestAPICheckSaysHowManyToolsThereAre(t *testing.T) {
	t.Parallel()
	stdout, stderr, ok := runAPICheck(t, "", "risk: people")
	require.True(t, ok, stdout+stderr)
	require.Equal(t, "The definition loads: 2 operations below /v1/, 2 tools, 0 warnings.\n", stdout)
}

func TestAPIPublishTakesWhatCallersOfOneGatewayHaveToKnow(t *testing.T) {
	t.Parallel()
	publish := func(args ...string) (string, error) {
		cmd := apiPublishCommand()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(args)
		err := cmd.Execute()
		return out.String(), err
	}
	text, err := publish("--base-url", "https://api.shop.example/gw", "--per-key", "7", "--per-ip", "3")
	require.NoError(t, err)
	assert.Contains(t, text, "default: https://api.shop.example/gw")
	assert.Contains(t, text, "7 requests a minute for each public key")
	text, err = publish("--base-url", "api.shop.example")
	require.Error(t, err)
	assert.Contains(t, text, "invalid base URL")
}

// A document may come from somebody else: its names must neither change what the terminal shows, nor what a line that it prints means.
func TestNamesOfADocumentAreHarmlessInATerminal(t *testing.T) {
	t.Parallel()
	run := func(cmd *cobra.Command, document string) string {
		file := filepath.Join(t.TempDir(), "api.yaml")
		require.NoError(t, os.WriteFile(file, []byte("{openapi: 3.1.0, info: {title: x, version: '1'}, x-gatehouse-tenant: none, paths: {"+document+"}}"), 0o600))
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs([]string{file})
		_ = cmd.Execute()
		return out.String()
	}
	const schema = `responses: {"200": {description: "", content: {application/json: {schema: {type: object, properties: {a: {type: string}}}}}}}`
	out := run(apiCheckCommand(), `/a: {get: {operationId: "List all", responses: {}}}, /b: {get: {operationId: "b\n  except nothing", `+schema+`}}, /c: {get: {operationId: 'say "x"', responses: {}}}`)
	require.Contains(t, out, `  except "List all" "say \"x\""`)
	require.Equal(t, 1, strings.Count(out, "\n  except "))
	for _, cmd := range []*cobra.Command{apiCheckCommand(), apiPublishCommand(), apiDocsCommand()} {
		out := run(cmd, `/a: {get: {responses: {"200": {description: "", content: {application/json: {schema: {"\e[2J\e]0;x\a": 1, type: object}}}}}}}`)
		require.NotContains(t, out, "\x1b")
		require.Contains(t, out, `\u001b[2J`)
	}
	out = run(apiCheckCommand(), `/a: {get: {operationId: 获取订单, `+schema+`}}`)
	require.NotContains(t, out, "docs_path")
	require.Contains(t, run(apiPublishCommand(), `/a: {get: {operationId: 获取订单, `+schema+`}}`), "获取订单")
	missing := strings.Replace(schema, "application/json: {", `application/json: {examples: {x: {$ref: "#/components/examples/x"}}, `, 1)
	require.Contains(t, run(apiCheckCommand(), "/a: {get: {"+missing+"}}"), "warning: it does not load with docs_path: publishing: #/components/examples/x is not a value of the definition")
}
