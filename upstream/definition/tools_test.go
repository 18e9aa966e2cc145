package definition_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// withTools is a definition with tools. «…» are places for what a test changes.
const withTools = `openapi: 3.1.0
info: {title: Notes, version: "1"}
servers: [{url: /v1}]
x-gatehouse-tenant: account
tags: [{name: notes, description: Notes about customers.}]
paths:
  /notes:
    get:
      operationId: listNotes
      tags: [notes]
      summary: List notes
      x-gatehouse-tool: {«list»}
      responses:
        "200":
          description: Notes.
          x-gatehouse-records: {in: notes}
          content: {application/json: {schema: {type: object, properties: {notes: {type: array, items: {$ref: "#/components/schemas/Note"}}}}}}
    post:
      operationId: createNote
      tags: [«area»notes]
      summary: Add a note
      x-gatehouse-tool: {name: notes_save, version: /version, replace: replaceNote«save»}
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Content"}}}}
      responses:
        "201": {description: A note., content: {application/json: {schema: {$ref: "#/components/schemas/Note"}}}}
  /notes/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: string}}]
    «get»:
      operationId: getNote
      tags: [«get area»notes]
      responses:
        "200": {description: A note., content: {application/json: {schema: {$ref: "#/components/schemas/Note"}}}}
    put:
      operationId: replaceNote
      tags: [notes]
      parameters: [{name: «If-Match», in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Content"}}}}
      responses:
        "200": {description: A note., content: {application/json: {schema: {$ref: "#/components/schemas/Note"}}}}
    delete:
      operationId: deleteNote
      tags: [notes]
      x-gatehouse-tenant: request
      x-gatehouse-tool: {does: "Deleted the note {title}", confirm: {read: getNote, text: "the note {title}"«confirm»}}
      responses: {"204": {description: It is gone.}}
components:
  schemas:
    Note:
      type: object
      required: [id, account, title]
      properties:
        id: {type: string}
        account: {type: string}
        version: {type: integer}
        title: {type: string}
        said: {type: string, x-gatehouse-untrusted: true}
        lines: {type: array, items: {type: object, properties: {text: {type: string«line»}}}}
    Content:
      type: object
      required: [title]
      properties:
        title: {type: string, description: What it is about.}
        lines: {type: array, items: {type: object, properties: {text: {type: string}«content line»}}}«content»
`

// changed returns withTools with changes by place.
func changed(changes map[string]string) string {
	text := withTools
	for place, initial := range map[string]string{"get": "get", "If-Match": "If-Match"} {
		if _, ok := changes[place]; !ok {
			text = strings.ReplaceAll(text, "«"+place+"»", initial)
		}
	}
	for place, change := range changes {
		text = strings.ReplaceAll(text, "«"+place+"»", change)
	}
	for _, place := range []string{"list", "area", "get area", "save", "confirm", "line", "content line", "content"} {
		text = strings.ReplaceAll(text, "«"+place+"»", "")
	}
	return text
}

func loadTools(text string) (*definition.Definition, error) {
	return definition.Load(definition.File{Name: "notes.yaml", Text: []byte(text)}, definition.Options{Tools: true})
}

func TestToolsFollowFromTheirOperations(t *testing.T) {
	t.Parallel()
	d, err := loadTools(changed(nil))
	require.NoError(t, err)
	require.Len(t, d.Tools, 3)
	list, save, remove := d.Tools[0], d.Tools[1], d.Tools[2]
	assert.Equal(t, "list_notes", list.Name)
	assert.Equal(t, "List notes", list.Title)
	assert.Equal(t, "List notes", list.Description)
	assert.Equal(t, definition.KindRead, list.Kind)
	assert.Equal(t, definition.KindUpdate, save.Kind, "it adds or changes")
	assert.Equal(t, "replaceNote", save.Replace.ID)
	assert.Equal(t, "getNote", save.Read.ID)
	assert.Equal(t, definition.KindDelete, remove.Kind)
	assert.Equal(t, []definition.Area{{
		Name: "notes", Title: "Notes", Noun: "notes about customers", Read: "See notes about customers",
		Write: "Add, change and delete notes about customers",
	}}, d.Areas)
	note := list.Operation.Success().Body.Property("notes").Schema.Items
	assert.True(t, note.Property("account").Internal, "whose it is goes without saying")
	assert.Equal(t, "untrusted_said", note.Property("said").As)

	text := strings.Replace(changed(nil), "description: Notes about customers.}", "x-gatehouse-area: {title: Remarks, noun: your notes, write: Write notes}}", 1)
	d, err = loadTools(text)
	require.NoError(t, err)
	assert.Equal(t, []definition.Area{{Name: "notes", Title: "Remarks", Noun: "your notes", Read: "See your notes", Write: "Write notes"}}, d.Areas)
}

// A PUT writes the whole record, also as a tool of its own.
func TestToolForAPUTIsAReplacement(t *testing.T) {
	t.Parallel()
	text := func(of string, changes map[string]string) string {
		return strings.Replace(changed(changes), "      operationId: replaceNote\n", "      operationId: replaceNote\n      x-gatehouse-tool: {"+of+"}\n", 1)
	}
	d, err := loadTools(text("version: /version", nil))
	require.NoError(t, err)
	require.Equal(t, "replaceNote", d.Tools[2].Operation.ID)
	assert.Equal(t, d.Tools[2].Operation, d.Tools[2].Replace)
	assert.Equal(t, "getNote", d.Tools[2].Read.ID)
	_, err = loadTools(text("", nil))
	require.ErrorContains(t, err, "replaceNote replaces: without If-Match and a version")
	_, err = loadTools(strings.ReplaceAll(text("version: /version", map[string]string{"content": "\n        pin: {type: string}"}), ", replace: replaceNote", ""))
	require.ErrorContains(t, err, "replaceNote replaces what cannot be read as it was written: pin, which is not in the record")
}

func TestWhatAToolCannotBeIsAFault(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		changes map[string]string
		says    string
	}{
		"an unknown member":                        {map[string]string{"list": "nam: x"}, "nam cannot be enforced here"},
		"a name with a space":                      {map[string]string{"list": "name: 'my notes'"}, "is not a possible name of a tool"},
		"a name that is taken":                     {map[string]string{"list": "name: notes_save"}, "is the name of two tools"},
		"a kind that does not exist":               {map[string]string{"list": "kind: look"}, "must be read for an operation that reads"},
		"a list that deletes":                      {map[string]string{"list": "kind: delete"}, "must be read for an operation that reads"},
		"a list that writes to people":             {map[string]string{"list": "risk: people"}, "of an operation that writes"},
		"a list that adds":                         {map[string]string{"list": "adds: true"}, "must be true, of an operation that updates"},
		"a change that does not add":               {map[string]string{"save": ", adds: false"}, "must be true, of an operation that updates"},
		"an unknown risk":                          {map[string]string{"save": ", risk: high"}, "must be people"},
		"a field that records do not have":         {map[string]string{"list": "fields: [id, subject]"}, "is not a member of the records"},
		"a sentence about an unknown member":       {map[string]string{"save": ", does: 'Saved {subject}'"}, "{subject} is neither a member"},
		"a sentence with text from outside":        {map[string]string{"save": ", does: 'Saved {said}'"}, "is text from outside"},
		"a question about an unknown operation":    {map[string]string{"list": "confirm: {read: getNothing}"}, "is not an operation"},
		"a question with an unknown member":        {map[string]string{"confirm": ", when: x"}, "when cannot be enforced here"},
		"joins with the same name":                 {map[string]string{"list": "with: [listNotes, listNotes]"}, "ends as the path of another one"},
		"joins with a record":                      {map[string]string{"list": "with: [getNote]"}, "without parameters in its path"},
		"a question that changes something":        {map[string]string{"save": ", confirm: {read: replaceNote}"}, "must read, by no parameters but"},
		"a question about another record":          {map[string]string{"list": "confirm: {read: getNote}"}, "must read, by no parameters but"},
		"a deletion that is asked about sometimes": {map[string]string{"confirm": ", if: title"}, "a deletion is always confirmed"},
		"a deletion without a question":            {map[string]string{"confirm": ", unless: title"}, "a deletion is always confirmed"},
		"a question about another area":            {map[string]string{"get area": "others, "}, "no tool makes the calls of another area"},
		"a replacement of what another area reads": {map[string]string{"get area": "others, "}, "a GET of the same path and area"},
		"a version without If-Match":               {map[string]string{"list": "version: /version"}, "needs the header If-Match"},
		"a tag that is not declared":               {map[string]string{"area": "others, "}, "a tool needs a tag that the document declares"},
		"a replacement without If-Match":           {map[string]string{"If-Match": "Accept-Language"}, "PATCH is required"},
		"a replacement of what is not read":        {map[string]string{"get": "post"}, "PATCH is required"},
		"a replacement with a member of its own":   {map[string]string{"content": "\n        pin: {type: string}"}, "replaces what cannot be read"},
		"a replacement with a secret in a list":    {map[string]string{"content line": ", pin: {type: string, writeOnly: true}"}, "replaces what cannot be read"},
		"a replacement with a map":                 {map[string]string{"content": "\n      additionalProperties: {type: string}"}, "replaces what cannot be read"},
		"a replacement with a map in a list":       {map[string]string{"content line": "}, additionalProperties: {type: string"}, "replaces what cannot be read"},
		"an argument for nothing":                  {map[string]string{"list": "arguments: {subject: about}"}, "subject is neither a parameter nor"},
		"a question with an unknown argument":      {map[string]string{"save": ", confirm: {if: subject}"}, "subject is not an argument"},
		"no question with a member of the record":  {map[string]string{"save": ", confirm: {unless: said}"}, "said is not an argument"},
		"a replacement with outsiders' text in it": {map[string]string{"line": ", x-gatehouse-untrusted: true"}, "replaces what cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := loadTools(changed(fault.changes))
			require.ErrorContains(t, err, fault.says)
			require.ErrorContains(t, err, "notes.yaml:")
		})
	}
	for name, content := range map[string]string{
		"in a list":         `{type: object, properties: {title: {type: string}, lines: {type: array, items: {type: object, required: [account], properties: {account: {type: string}}}}}}`,
		"in a map":          `{type: object, required: [account], properties: {account: {type: string}}, additionalProperties: {type: string}}`,
		"in one of several": `{oneOf: [{type: object, required: [account], properties: {account: {type: string}}}, {type: string}]}`,
	} {
		text := strings.Replace(changed(nil), "{name: notes_save, version: /version, replace: replaceNote}", "{}", 1)
		_, err := loadTools(strings.Replace(text, `schema: {$ref: "#/components/schemas/Content"}`, "schema: "+content, 1))
		require.ErrorContains(t, err, "the body of createNote requires the ID of the business in", name)
		_, err = loadTools(strings.Replace(text, `schema: {$ref: "#/components/schemas/Content"}`, "schema: "+strings.ReplaceAll(content, "required: [account], ", ""), 1))
		require.NoError(t, err, name)
	}
	for says, change := range map[string][2]string{
		"the body of replaceNote has no pin: a record could not be created with it": {`schema: {$ref: "#/components/schemas/Content"}`, "schema: {type: object, properties: {title: {type: string}, pin: {type: string}}}"},
		"replaceNote requires a parameter of the query, which is not an argument":   {"parameters: [{name: If-Match", "parameters: [{name: why, in: query, required: true, schema: {type: string}}, {name: If-Match"},
	} {
		for _, method := range []string{"    put:", "    patch:"} {
			text := strings.Replace(strings.Replace(changed(nil), "    put:", method, 1), change[0], change[1], 1)
			_, err := loadTools(text)
			require.ErrorContains(t, err, says)
		}
	}
	unlimited := strings.NewReplacer("        version: {type: integer}\n", "        version: {type: integer}\n        limit: {type: [integer, 'null']}\n",
		"        title: {type: string, description: What it is about.}\n", "        title: {type: string}\n        limit: {type: integer, default: 10}\n").Replace(changed(nil))
	_, err := loadTools(unlimited)
	require.ErrorContains(t, err, "limit, whose null cannot be written", "it would become 10")
	_, err = loadTools(strings.Replace(unlimited, ", default: 10", "", 1))
	require.NoError(t, err)
	hiding := strings.Replace(changed(nil), "lines: {type: array, items: {", "lines: {type: array, items: {required: [text], x-gatehouse-visible: {text: [shown]}, ", 1)
	_, err = loadTools(hiding)
	require.ErrorContains(t, err, "replaces what cannot be read", "hidden items would be lost")
	for says, change := range map[string][2]string{
		"must be read for an operation that reads, delete for DELETE": {"{does: \"Deleted", "{kind: update, does: \"Deleted"},
		"is not in the response of getNote":                           {"version: /version", "version: /note/version"},
		"title, of which several values become one":                   {"        title: {type: string}\n        said", "        title: {type: string, enum: [a], x-gatehouse-from: {member: t, values: {A: a, B: a}}}\n        said"},
		"title, which can have another type in the record":            {"        title: {type: string}\n        said", "        title: {type: [integer, string]}\n        said"},
		"title, whose null cannot be written":                         {"        title: {type: string}\n        said", "        title: {type: [string, 'null']}\n        said"},
		"day, of which several values become one": {
			"        title: {type: string, description: What it is about.}",
			"        title: {type: string}\n        day: {type: string, format: date}\n    Unused: {}",
		},
	} {
		text := strings.Replace(changed(nil), change[0], change[1], 1)
		text = strings.Replace(text, "        said:", "        day: {type: string, format: date, x-gatehouse-from: {member: at, as: unix}}\n        said:", 1)
		_, err := loadTools(strings.Replace(text, "    Unused: {}\n", "", 1))
		require.ErrorContains(t, err, says)
	}
	twice := strings.Replace(changed(nil), "        lines: {type: array, items: {type: object", "        others: {type: array, items: {type: object, properties: {id: {type: string}}}}\n        lines: {type: array, items: {type: object", 1)
	twice = strings.Replace(twice, "        title: {type: string, description: What it is about.}\n        lines: {type: array, items: {type: object, properties: {text: {type: string}}}}",
		"        title: {type: string}\n        lines: {type: array, items: {$ref: \"#/components/schemas/Line\"}}\n        others: {type: array, items: {$ref: \"#/components/schemas/Line\"}}\n    Line: {type: object, properties: {text: {type: string}}}", 1)
	_, err = loadTools(twice)
	require.ErrorContains(t, err, "replaces what cannot be read", "the same schema, of which one member is not read")
	bound := strings.Replace(changed(nil), "      summary: Add a note\n", "      summary: Add a note\n      parameters: [{name: If-Match, in: header, required: true, schema: {type: string}}]\n", 1)
	_, err = loadTools(strings.Replace(strings.Replace(bound, "version: /version, replace: replaceNote", "", 1), "    get:\n      operationId: listNotes", "    put:\n      operationId: listNotes", 1))
	require.ErrorContains(t, err, "requires If-Match, which nothing gives")
	answered := strings.Replace(changed(nil), "operationId: listNotes", "operationId: listNotes\n      x-gatehouse-answer: {notes: []}", 1)
	_, err = loadTools(strings.Replace(answered, "          x-gatehouse-records: {in: notes}\n", "", 1))
	require.ErrorContains(t, err, "the gateway responds to this operation itself")
	nameless := strings.NewReplacer("tags: [notes]", "tags: []", "tags: [{name: notes, ", "tags: [{")
	_, err = loadTools(nameless.Replace(changed(nil)))
	require.ErrorContains(t, err, "a tool needs a tag that the document declares")
	_, err = loadTools(strings.ReplaceAll(changed(nil), "x-gatehouse-tool", "x-tool"))
	require.ErrorContains(t, err, "0 operations have x-gatehouse-tool")
}

// For callers of an API, the extensions for tools mean nothing.
func TestToolsDoNotChangeAnAPI(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "notes.yaml", Text: []byte(changed(nil))}, definition.Options{})
	require.NoError(t, err)
	assert.Empty(t, d.Tools)
	for _, op := range d.API.Operations() {
		if op.ID == "getNote" {
			assert.False(t, op.Success().Body.Property("account").Internal)
			assert.Empty(t, op.Success().Body.Property("said").As)
		}
	}
}

// What writes to people is known where no tools are compiled, and where they would not be.
func TestMarksOfToolsAreThoseOfTheOperationsThatTheyCall(t *testing.T) {
	t.Parallel()
	for name, tools := range map[string]bool{"an API": false, "tools": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := definition.File{Name: "notes.yaml", Text: []byte(changed(map[string]string{"save": ", risk: people"}))}
			d, err := definition.Load(file, definition.Options{Tools: tools})
			require.NoError(t, err)
			assert.Equal(t, map[string]definition.Mark{
				"listNotes": {Tool: true}, "createNote": {Tool: true, People: true, Version: "/version"},
				"replaceNote": {People: true, Version: "/version"}, "deleteNote": {Tool: true},
			}, d.Marks)
		})
	}
	d, err := definition.Load(definition.File{Name: "notes.yaml", Text: []byte(changed(map[string]string{"save": ", risk: persons"}))}, definition.Options{})
	require.NoError(t, err)
	assert.True(t, d.Marks["createNote"].People, "a risk that is misspelled is one")
}

const oneTool = `
openapi: 3.1.0
info: {title: Shop, version: "1"}
servers: [{url: /shop}]
x-gatehouse-tenant: shop
tags: [{name: NAME, description: Über orders.}]
paths:
  /orders:
    get:
      tags: [NAME]
      operationId: listOrders
      summary: Orders
      x-gatehouse-tool: {}
      responses:
        "200":
          description: Orders.
          content: {application/json: {schema: {type: object, properties: {shop: {type: string}}}}}
`

// An area's name is a part of scopes (RFC 6749, section 3.3), and mcp stands for everything in them.
func TestAreasHaveNamesThatScopesCanHave(t *testing.T) {
	t.Parallel()
	load := func(name string) (*definition.Definition, error) {
		file := definition.File{Name: "shop.yaml", Text: []byte(strings.ReplaceAll(oneTool, "NAME", name))}
		return definition.Load(file, definition.Options{Tools: true})
	}
	for _, name := range []string{"orders", "Orders", "custom-objects", "v1.orders"} {
		d, err := load(name)
		require.NoError(t, err, name)
		assert.Equal(t, name, d.Areas[0].Name)
		assert.Equal(t, "über orders", d.Areas[0].Noun)
	}
	for _, name := range []string{"mcp", `"a b"`, `"a:b"`, "é", `"a\"b"`, "-"} {
		_, err := load(name)
		require.ErrorContains(t, err, "/tags/0/name: is not a possible name of an area", name)
	}
}

// An overlay appends to a list, so it is easily written: which of the two an area's name means would be left to chance.
func TestAreasAreNotDescribedTwice(t *testing.T) {
	t.Parallel()
	file := definition.File{Name: "shop.yaml", Text: []byte(strings.ReplaceAll(oneTool, "NAME", "orders"))}
	overlay := definition.File{Name: "areas.yaml", Text: []byte(`
overlay: 1.0.0
info: {title: Areas, version: "1"}
actions: [{target: $, update: {tags: [{name: orders, x-gatehouse-area: {title: Sales}}]}}]
`)}
	_, err := definition.Load(file, definition.Options{Tools: true, Overlays: []definition.File{overlay}})
	require.ErrorContains(t, err, "orders is the name of two tags. An overlay changes the first one with the target $.tags[?@.name == 'orders']")
	overlay.Text = []byte(strings.Replace(string(overlay.Text), "target: $, update: {tags: [{name: orders, x-gatehouse-area: {title: Sales}}]}", `target: "$.tags[?@.name == 'orders']", update: {x-gatehouse-area: {title: Sales}}`, 1))
	d, err := definition.Load(file, definition.Options{Tools: true, Overlays: []definition.File{overlay}})
	require.NoError(t, err)
	require.Equal(t, "Sales", d.Areas[0].Title)
}

// Models' APIs take letters, digits, _, . and - only, and reject the tools of a whole conversation otherwise.
func TestArgumentsHavePossibleNames(t *testing.T) {
	t.Parallel()
	load := func(says, parameters string) (*definition.Definition, error) {
		text := strings.Replace(strings.ReplaceAll(oneTool, "NAME", "orders"), "x-gatehouse-tool: {}", "x-gatehouse-tool: {"+says+"}\n      parameters: ["+parameters+"]", 1)
		return definition.Load(definition.File{Name: "shop.yaml", Text: []byte(text)}, definition.Options{Tools: true})
	}
	query := func(name string) string { return "{name: '" + name + "', in: query, schema: {type: string}}" }
	d, err := load(`arguments: {"@type": kind}`, query("filter[status]")+","+query("$top")+","+query("@type")+","+query("page.size")+","+query("StartTime>"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"filter[status]": "filter_status", "$top": "top", "@type": "kind", "StartTime>": "StartTime"}, d.Tools[0].Arguments)
	_, err = load("", query("status[]")+","+query("status"))
	require.ErrorContains(t, err, "two arguments are called status: name one of them under arguments")
	_, err = load("", query("$"))
	require.ErrorContains(t, err, `"" cannot be the name of an argument`)
	_, err = load("", query(strings.Repeat("a", 65)))
	require.ErrorContains(t, err, "cannot be the name of an argument: under arguments, give it one of up to 64")
	_, err = load("arguments: {x: 'y z'}", query("x"))
	require.ErrorContains(t, err, `"y z" cannot be the name of an argument`)
}

func TestLongNamesAndDescriptionsOfToolsAreWarnedOf(t *testing.T) {
	t.Parallel()
	load := func(says string) []string {
		text := strings.Replace(strings.ReplaceAll(oneTool, "NAME", "orders"), "x-gatehouse-tool: {}", says, 1)
		d, err := definition.Load(definition.File{Name: "shop.yaml", Text: []byte(text)}, definition.Options{Tools: true})
		require.NoError(t, err)
		all := []string{d.Tools[0].Description}
		for _, w := range d.Warnings {
			all = append(all, w.Error())
		}
		return all
	}
	require.Equal(t, []string{"What it is."}, load("description: \"What it is.\\n\\nAnd in detail.\"\n      x-gatehouse-tool: {}"), "the first paragraph")
	long := load("x-gatehouse-tool: {name: " + strings.Repeat("a", 46) + ", description: " + strings.Repeat("b", 1025) + "}")
	require.Len(t, long, 3)
	require.Contains(t, strings.Join(long, "\n"), "more than 1024 characters")
	require.Contains(t, strings.Join(long, "\n"), "more than 45 characters")
}
