package mcp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/demo" //nolint:depguard // the service that the tools are for
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// boats has members of bodies that may be null, with another name, and as an object.
const boats = `
  /boats:
    post:
      tags: [things]
      operationId: createBoat
      x-gatehouse-tool: {}
      parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/NewBoat"}}}}
      responses:
        "204": {description: It is there.}
  /boats/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: string}}]
    get:
      tags: [things]
      operationId: getBoat
      x-gatehouse-tool: {}
      responses:
        "200":
          description: The boat.
          headers: {ETag: {schema: {type: string}}}
          content: {application/json: {schema: {$ref: "#/components/schemas/Boat"}}}
    patch:
      tags: [things]
      operationId: changeBoat
      x-gatehouse-tool: {risk: people, arguments: {note: remark}, does: Changed the boat}
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Boat"}}}}
      responses:
        "204": {description: It is changed.}
    put:
      tags: [things]
      operationId: replaceBoat
      x-gatehouse-tool: {}
      parameters: [{name: If-Match, in: header, required: true, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Boat"}}}}
      responses:
        "204": {description: It is changed.}
        "412": {description: It has changed.}
components:
  schemas:
    Berth: {type: object, properties: {pier: {type: string}, place: {type: [integer, "null"]}}}
    Boat:
      type: object
      properties:
        name: {type: string}
        note: {type: [string, "null"], maxLength: 20}
        berth: {anyOf: [{$ref: "#/components/schemas/Berth"}, {type: "null"}]}
    NewBoat:
      type: object
      required: [name, note]
      properties: {name: {type: string}, note: {type: [string, "null"]}}
`

func TestClearEmptiesWhatItNames(t *testing.T) {
	t.Parallel()
	s, service := newOdd(t, boats, map[string]func(string) (int, string){
		"GET /odd/boats/7":   always(200, `{"name":"Alma","note":"Leaks.","berth":{"pier":"A","place":5}}`),
		"PATCH /odd/boats/7": always(204, ""), "PUT /odd/boats/7": always(204, ""), "POST /odd/boats": always(204, ""),
	})
	service.headers.Set("ETag", `"v1"`)
	yes := &user{action: "accept", content: object{"confirm": true}}
	c := s.connect(modern, "bearer", yes.options())
	for name, test := range map[string]struct {
		tool      string
		arguments object
		want      string
	}{
		"a member with another name": {"change_boat", object{"clear": []any{"remark"}, "name": "B"}, `{"name":"B","note":null}`},
		"one that is an object":      {"change_boat", object{"clear": "berth"}, `{"berth":null}`},
		"null is not sent":           {"change_boat", object{"name": "B", "remark": nil, "berth": nil}, `{"name":"B"}`},
		"null in an object is sent":  {"change_boat", object{"berth": object{"place": nil}}, `{"berth":{"place":null}}`},
		"null that is required":      {"create_boat", object{"name": "B", "note": nil}, `{"name":"B","note":null}`},
		"a replacement":              {"replace_boat", object{"clear": []any{"note"}}, `{"name":"Alma","note":null,"berth":{"pier":"A","place":5}}`},
		"a replacement that keeps":   {"replace_boat", object{"note": nil, "berth": object{"pier": "B"}}, `{"name":"Alma","note":"Leaks.","berth":{"pier":"B","place":5}}`},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // they share the service's requests
			if test.tool != "create_boat" {
				test.arguments["id"] = "7"
			}
			service.requests()
			succeeds(t, c, test.tool, test.arguments)
			requests := service.requests()
			_, body, _ := strings.Cut(requests[len(requests)-1], "{")
			assert.JSONEq(t, test.want, "{"+body)
		})
	}
	service.requests()
	for name, test := range map[string]struct {
		tool      string
		arguments object
		says      []string
	}{
		"with a value":           {"change_boat", object{"id": "7", "clear": []any{"remark"}, "remark": "x"}, []string{"clear names remark, which also has a value"}},
		"with a value inside":    {"change_boat", object{"id": "7", "clear": []any{"berth"}, "berth": object{"pier": "A"}}, []string{"clear names berth, which also has a value"}},
		"what must not be empty": {"change_boat", object{"id": "7", "clear": []any{"name"}}, []string{"clear[0] is not one of the possible values", "(allowed: berth, remark)"}},
		"the service's name":     {"change_boat", object{"id": "7", "clear": []any{"note"}}, []string{"clear[0] is not one of the possible values"}},
		"nothing":                {"change_boat", object{"id": "7", "clear": []any{}, "remark": nil}, []string{"contains no change", "clear"}},
		"of a creation":          {"create_boat", object{"name": "B", "clear": []any{"note"}}, []string{"clear is not an argument"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fails(t, c, test.tool, test.arguments, append(test.says, "INVALID_ARGUMENTS")...)
		})
	}
}

// What a person is asked, and what the activity page says, has what is emptied.
func TestClearedMembersAreInQuestionsAndTheActivity(t *testing.T) {
	t.Parallel()
	s, service := newOdd(t, boats, map[string]func(string) (int, string){"PATCH /odd/boats/7": always(204, "")})
	yes := &user{action: "accept", content: object{"confirm": true}}
	succeeds(t, s.connect(modern, "bearer", yes.options()), "change_boat", object{"id": "7", "clear": []any{"remark", "berth"}, "name": "B"})
	require.Len(t, yes.asked, 1)
	assert.Equal(t, `Change boat "7" and empty remark, berth? It may write to people outside the business. With: "{'berth':null,'name':'B','remark':null}"`, yes.asked[0].Message)
	assert.Len(t, service.requests(), 1)
	entries := s.entries()
	assert.Equal(t, "Changed the boat and emptied remark, berth", entries[len(entries)-1].Sentence)
	assert.Equal(t, audit.OutcomeOK, entries[len(entries)-1].Outcome)
}

// A strict client sends null for every argument that the model does not mean, if the schema allows it.
func TestNullLosesNothing(t *testing.T) {
	t.Parallel()
	s := newSetup(t, fresh(t, demo.Options{}))
	c := s.connect(modern, "bearer", nil)
	contact := call(t, c, "contacts_create", object{"first_name": "Strict", "last_name": "Mode", "email": "strict@mode.example", "notes": "Kept."})["contact"].(object)
	call(t, c, "contacts_update", object{"id": contact["id"], "first_name": "Renamed", "last_name": nil, "email": nil, "notes": nil, "phone_number": nil, "country_code": nil, "clear": nil})
	now := call(t, c, "contacts_get", object{"id": contact["id"]})["contact"].(object)
	contact["first_name"] = "Renamed"
	for _, name := range []string{"version", "date_modified"} {
		delete(contact, name)
		delete(now, name)
	}
	assert.Equal(t, contact, now)
	fails(t, c, "contacts_update", object{"id": contact["id"], "notes": nil}, "contains no change", "clear")
}

func TestMemberCalledClearNeedsAnotherName(t *testing.T) {
	t.Parallel()
	for arguments, valid := range map[string]bool{"": false, ", arguments: {clear: sky}": true} {
		d, err := definition.Load(definition.File{Name: "odd.yaml", Text: fmt.Appendf(nil, odd+`
  /days/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: string}}]
    patch:
      tags: [things]
      operationId: changeDay
      x-gatehouse-tool: {name: day%s}
      requestBody: {required: true, content: {application/json: {schema: {type: object, properties: {clear: {type: boolean}, note: {type: [string, "null"]}}}}}}
      responses: {"204": {description: It is changed.}}
`, arguments)}, definition.Options{Tools: true})
		require.NoError(t, err)
		require.NotEmpty(t, scope.New(d.Areas).List())
		if err = mcp.Check(d); valid {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, "two arguments are called clear: say another name under arguments")
		}
	}
}
