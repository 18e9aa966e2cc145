package mcp_test

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clinic is a definition without any of the habits of the embedded one: few keys, no texts for questions, patterns and alternatives.
const clinic = `
  /animals:
    get:
      tags: [things]
      operationId: listAnimals
      x-gatehouse-tool: {fields: [id]}
      parameters:
        - {name: species, in: query, schema: {type: array, maxItems: 3, items: {type: string, enum: [dog, cat]}}}
        - {name: age, in: query, schema: {type: integer, minimum: 1}}
        - {name: weight, in: query, schema: {type: number, exclusiveMinimum: 0, maximum: 900}}
      responses:
        "200":
          description: Animals.
          x-gatehouse-records: {in: animals}
          content: {application/json: {schema: {type: object, properties: {animals: {type: array, maxItems: 10, items: {$ref: "#/components/schemas/Animal"}}}}}}
    post:
      tags: [things]
      operationId: createAnimal
      x-gatehouse-tool: {risk: people}
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/AnimalContent"}}}}
      responses: {"204": {description: It is there.}}
  /animals/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: integer}}]
    patch:
      tags: [things]
      operationId: changeAnimal
      x-gatehouse-tool: {risk: people}
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/AnimalContent"}}}}
      responses: {"204": {description: It is changed.}, "412": {description: It has changed.}}
    delete:
      tags: [things]
      operationId: deleteAnimal
      x-gatehouse-tool: {}
      responses: {"204": {description: It is gone.}}
  /animals/{id}/photo:
    parameters: [{name: id, in: path, required: true, schema: {type: integer}}]
    delete:
      tags: [things]
      operationId: deletePhoto
      x-gatehouse-tool: {risk: people}
      parameters: [{name: note, in: query, schema: {type: string, maxLength: 100}}]
      responses: {"204": {description: It is gone.}}
  /animals/{id}/call:
    parameters: [{name: id, in: path, required: true, schema: {type: integer}}]
    post:
      tags: [things]
      operationId: callOwner
      x-gatehouse-tool: {kind: run}
      responses: {"204": {description: It is under way.}}
  /animals/{id}/payments:
    parameters: [{name: id, in: path, required: true, schema: {type: integer}}]
    post:
      tags: [things]
      operationId: payBill
      x-gatehouse-tool: {kind: update}
      parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
      responses: {"204": {description: It is paid.}}
  /animals/{id}/shots:
    parameters: [{name: id, in: path, required: true, schema: {type: integer}}]
    patch:
      tags: [things]
      operationId: changeShots
      x-gatehouse-tool: {adds: true}
      requestBody: {required: true, content: {application/json: {schema: {type: object, properties: {add: {type: array, maxItems: 9, items: {type: string}}}}}}}
      responses: {"204": {description: They are changed.}}
  /animals/{id}/visits:
    parameters: [{name: id, in: path, required: true, schema: {type: integer}}]
    post:
      tags: [things]
      operationId: createVisit
      x-gatehouse-tool: {confirm: {if: at}}
      parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {type: object, properties: {at: {type: string}}}}}}
      responses: {"204": {description: It is there.}}
components:
  schemas:
    AnimalContent:
      type: object
      properties:
        chip: {type: string, minLength: 15, maxLength: 15}
        country: {type: string, enum: [AA, AB, AC, AD, AE, AF, AG, AH, AI, AJ, AK, AL, AM, AN, AO, AP, AQ, AR, AS, AT, AU, AV, AW, AX, AY, AZ, BA, BB]}
        code: {type: string, pattern: '^AN-[0-9]{4}$'}
        fed: {type: string, pattern: '^([01][0-9]|2[0-3]):[0-5][0-9]$', description: HH:MM.}
        days: {type: object, properties: {id: {type: integer, readOnly: true}, sunday: {type: boolean}, monday: {type: boolean}}}
        owner:
          oneOf:
            - {type: object, required: [kind], properties: {kind: {type: string}, first_name: {type: string}}}
            - {type: object, required: [kind, company], properties: {kind: {type: string}, company: {type: string, pattern: x}}}
        food: {$ref: "#/components/schemas/Food"}
        paid: {discriminator: {propertyName: by, mapping: {card: "#/components/schemas/Card", bank: "#/components/schemas/Bank"}}, oneOf: [{$ref: "#/components/schemas/Card"}, {$ref: "#/components/schemas/Bank"}]}
    Food: {oneOf: [{type: string}, {type: array, maxItems: 3, items: {$ref: "#/components/schemas/Food"}}, {type: "null"}]}
    Card: {type: object, required: [by], properties: {by: {type: string}, number: {type: string}}}
    Bank: {type: object, required: [by], properties: {by: {type: string}, iban: {type: string}}}
    Animal:
      type: object
      properties: {id: {type: integer}, owner_notes: {type: string, x-gatehouse-untrusted: true}}
`

func newClinic(t *testing.T) (*setup, *service) {
	t.Helper()
	return newOdd(t, clinic, map[string]func(string) (int, string){
		"GET /odd/animals": always(200, `{"animals":[{"id":17,"owner_notes":"Bites."}]}`), "POST /odd/animals": always(504, ""),
		"PATCH /odd/animals/17": always(504, ""), "POST /odd/animals/17/call": always(504, ""), "POST /odd/animals/17/visits": always(504, ""),
		"POST /odd/animals/17/payments": always(504, ""), "PATCH /odd/animals/17/shots": always(504, ""),
	})
}

func TestOnlyWhatIsSafeToRepeatIsCalledSafe(t *testing.T) {
	t.Parallel()
	s, _ := newClinic(t)
	for name, test := range map[string]struct {
		tool      string
		arguments object
		says, not string
	}{
		"a creation without a key": {"create_animal", object{"code": "AN-1234"}, "Calling again may do it twice. Read or list", "safe"},
		"a run without a key":      {"call_owner", object{"id": 17}, "Calling again may do it twice. Read or list", "safe"},
		"a creation with a key":    {"create_visit", object{"id": 17, "at": "ten"}, "with the same arguments is safe until 10 minutes after the first of these calls. After that, it may do it twice", "Calling again may"},
		"a POST that changes":      {"pay_bill", object{"id": 17}, "Calling again may do it twice. Read or list", "safe"},
		"a change that adds":       {"change_shots", object{"id": 17, "add": []any{"rabies"}}, "Calling again may do it twice. Read or list", "safe"},
		"a change":                 {"change_animal", object{"id": 17, "code": "AN-1234"}, "Calling again later with the same arguments is safe.", "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			yes := &user{action: "accept", content: object{"confirm": true}}
			text := fails(t, s.connect(modern, "bearer", yes.options()), test.tool, test.arguments, "may or may not have been made", test.says)
			assert.NotContains(t, text, test.not)
		})
	}
}

func TestChangeOfARecordThatHasChangedSaysSo(t *testing.T) {
	t.Parallel()
	s, service := newClinic(t)
	service.answers["PATCH /odd/animals/17"] = always(412, "")
	yes := &user{action: "accept", content: object{"confirm": true}}
	c := s.connect(modern, "bearer", yes.options())
	fails(t, c, "change_animal", object{"id": 17, "code": "AN-1234"}, "CHANGED_MEANWHILE: This has changed since you read it.")
}

func TestQuestionSaysWhatIsDoneToWhat(t *testing.T) {
	t.Parallel()
	s, service := newClinic(t)
	for path := range service.answers {
		service.answers[path] = always(204, "")
	}
	service.answers["DELETE /odd/animals/17"], service.answers["DELETE /odd/animals/17/photo"] = always(204, ""), always(204, "")
	const people, unsent = " It may write to people outside the business.", "What is sent to people cannot be taken back."
	for name, test := range map[string]struct {
		tool            string
		arguments       object
		question, final string
	}{
		"a creation":                {"create_animal", object{"code": "AN-1234"}, "Add to animals?" + people + ` With: "{'code':'AN-1234'}"`, unsent},
		"a long creation":           {"create_animal", object{"owner": object{"kind": strings.Repeat("a", 600)}}, "Add to animals?" + people + ` With: "{'owner':{'kind':'` + strings.Repeat("a", 582) + `…" (21 more characters)`, unsent},
		"a creation below a record": {"create_visit", object{"id": 17, "at": "ten"}, `Add to visits of animal "17": at "ten"?`, ""},
		"a change":                  {"change_animal", object{"id": 17, "code": "AN-1234"}, `Change animal "17"?` + people + ` With: "{'code':'AN-1234'}"`, unsent},
		"a deletion":                {"delete_animal", object{"id": 17}, `Delete animal "17" for good?`, "This cannot be undone."},
		"a text in the query":       {"delete_photo", object{"id": 17, "note": "Grüße aus 東京 & co"}, `Delete photo of animal "17" for good?` + people + ` With: "{'note':'Grüße aus 東京 & co'}"`, "This cannot be undone."},
		"a deletion of a part":      {"delete_photo", object{"id": 17}, `Delete photo of animal "17" for good?` + people, "This cannot be undone."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			yes := &user{action: "accept", content: object{"confirm": true}}
			succeeds(t, s.connect(modern, "bearer", yes.options()), test.tool, test.arguments)
			require.Len(t, yes.asked, 1)
			assert.Equal(t, test.question, yes.asked[0].Message)
			form, err := json.Marshal(yes.asked[0].RequestedSchema)
			require.NoError(t, err)
			assert.Equal(t, test.final != "", strings.Contains(string(form), "description"), string(form))
			assert.Contains(t, string(form), test.final)
		})
	}
	t.Run("by a client that cannot ask", func(t *testing.T) {
		t.Parallel()
		c := s.connect(modern, "bearer", nil)
		text := fails(t, c, "create_visit", object{"id": 17, "at": "ten"}, "CONFIRMATION_NEEDED", "The user must agree first")
		assert.NotContains(t, text, "undone")
		fails(t, c, "delete_animal", object{"id": 17}, "CONFIRMATION_NEEDED", "This cannot be undone.", "The user must agree first")
	})
}

func TestAlternativesAreShown(t *testing.T) {
	t.Parallel()
	s, _ := newClinic(t)
	c := s.connect(modern, "bearer", nil)
	all, err := c.ListTools(t.Context(), &sdk.ListToolsParams{})
	require.NoError(t, err)
	shown := map[string]string{}
	for _, tool := range all.Tools {
		if tool.Name == "change_animal" {
			for name, p := range tool.InputSchema.(object)["properties"].(object) {
				text, err := json.Marshal(p)
				require.NoError(t, err)
				shown[name] = string(text)
			}
		}
	}
	t.Run("objects", func(t *testing.T) {
		t.Parallel()
		assert.JSONEq(t, `{"anyOf":[
			{"type":"object","required":["kind"],"properties":{"kind":{"type":"string"},"first_name":{"type":"string"}}},
			{"type":"object","required":["kind","company"],"properties":{"kind":{"type":"string"},"company":{"type":"string"}}}]}`, shown["owner"])
		fails(t, c, "change_animal", object{"id": 17, "owner": object{"kind": 5}}, "owner is not valid (allowed: ", "first_name", "company")
	})
	t.Run("by a discriminator", func(t *testing.T) {
		t.Parallel()
		assert.JSONEq(t, `{"anyOf":[
			{"type":"object","required":["by"],"properties":{"by":{"type":"string","enum":["card"]},"number":{"type":"string"}}},
			{"type":"object","required":["by"],"properties":{"by":{"type":"string","enum":["bank"]},"iban":{"type":"string"}}}]}`, shown["paid"])
		fails(t, c, "change_animal", object{"id": 17, "paid": object{"by": "cash"}}, "paid.by is not one of the possible values (allowed: bank, card)")
		fails(t, c, "change_animal", object{"id": 17, "paid": object{"number": "1"}}, "paid.by is required (allowed: bank, card)")
	})
	t.Run("of themselves", func(t *testing.T) {
		t.Parallel()
		assert.True(t, strings.HasPrefix(shown["food"], `{"anyOf":[{"type":"string"},{"items":{"anyOf":[{"type":"string"},{"items":`), shown["food"])
		assert.Equal(t, 2, strings.Count(shown["food"], `{"type":"null"}`), shown["food"])
	})
}

func TestErrorSaysWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	s, service := newClinic(t)
	c := s.connect(modern, "bearer", nil)
	for name, test := range map[string]struct {
		tool      string
		arguments object
		says      string
	}{
		"a length":               {"create_animal", object{"chip": "1"}, "chip is too short (allowed: 15 characters)"},
		"a pattern":              {"create_animal", object{"code": "17"}, "code does not have the required form (allowed: text that matches ^AN-[0-9]{4}$)"},
		"a pattern in words":     {"create_animal", object{"fed": "9"}, "[0-5][0-9]$; HH:MM.)"},
		"a minimum":              {"list_animals", object{"age": 0}, "age is too small (allowed: 1 or more)"},
		"an open minimum":        {"list_animals", object{"weight": 0}, "weight is too small (allowed: 0 to 900, exclusive)"},
		"another case":           {"list_animals", object{"species": []any{"Dog"}}, "did you mean dog?"},
		"a misspelt argument":    {"list_animals", object{"specis": []any{"dog"}}, "specis is not an argument: did you mean species?"},
		"one of many":            {"create_animal", object{"country": "XX"}, "(allowed: AA, AB, AC, AD, AE, AF, AG, AH, AI, AJ, AK, AL, AM, AN, AO, AP, AQ, AR, AS, AT and 8 more)"},
		"a misspelt nested name": {"create_animal", object{"days": object{"Sunday": true}}, "days.Sunday is not an argument: did you mean sunday? (allowed: monday, sunday)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fails(t, c, test.tool, test.arguments, "INVALID_ARGUMENTS", test.says)
		})
	}
	assert.Empty(t, service.requests())
}

func TestFieldIsTakenByTheNameThatResultsHave(t *testing.T) {
	t.Parallel()
	s, _ := newClinic(t)
	c := s.connect(modern, "bearer", nil)
	animals := succeeds(t, c, "list_animals", object{"fields": []any{"untrusted_owner_notes"}})["animals"].([]any)
	assert.Equal(t, object{"id": 17.0, "untrusted_owner_notes": "Bites."}, animals[0])
	fails(t, c, "list_animals", object{"fields": []any{"untrusted_nothing"}}, "INVALID_ARGUMENTS")
}
