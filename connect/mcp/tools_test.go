package mcp_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/demo" //nolint:depguard // the service that the tools are for
)

func TestEveryToolIsListedWithSchemasAndHints(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	eachRevision(t, func(t *testing.T, revision string) {
		t.Helper()
		listed, err := s.connect(revision, "bearer", nil).ListTools(t.Context(), nil)
		require.NoError(t, err)
		want := strings.Fields(`
			business_get business_update business_hours_set service_areas_set
			contacts_search contacts_get contacts_create contacts_update contacts_delete
			conversations_search conversations_get
			calendars_list appointments_search appointments_get
			receptionist_get receptionist_faqs_list receptionist_services_list receptionist_personality_update
			receptionist_rules_update receptionist_faq_upsert receptionist_service_upsert receptionist_faq_delete
			receptionist_service_delete
			invoices_search invoices_get estimates_search estimates_get jobs_search jobs_get
			automations_list automations_run_get automations_run
			object_types_list object_type_get objects_search objects_get objects_create objects_update objects_delete`)
		var names []string
		for _, tool := range listed.Tools {
			names = append(names, tool.Name)
			require.NotEmpty(t, tool.Title, tool.Name)
			require.Greater(t, len(tool.Description), 7, tool.Name)
			requireHints(t, tool)
			for _, schema := range []any{tool.InputSchema, tool.OutputSchema} {
				require.Equal(t, "object", schema.(object)["type"], tool.Name)
				require.Contains(t, schema, "properties", "%s: some clients require it", tool.Name)
			}
		}
		require.ElementsMatch(t, want, names)
		require.LessOrEqual(t, len(names), 39)
	})
}

// requireHints requires the hints that are not the protocol's defaults: destructive, not idempotent, open world.
func requireHints(t *testing.T, tool *sdk.Tool) {
	t.Helper()
	h := tool.Annotations
	require.NotNil(t, h, tool.Name)
	kind := tool.Name[strings.LastIndexByte(tool.Name, '_')+1:]
	reads := kind == "get" || kind == "search" || kind == "list"
	require.Equal(t, reads, h.ReadOnlyHint, tool.Name)
	if kind == "create" {
		require.False(t, *h.DestructiveHint, tool.Name)
	} else {
		require.Nil(t, h.DestructiveHint, tool.Name)
	}
	repeatable := (kind == "update" || kind == "set" || kind == "delete") && tool.Name != "receptionist_rules_update"
	require.Equal(t, repeatable, h.IdempotentHint, tool.Name)
	if kind == "run" {
		require.Nil(t, h.OpenWorldHint, tool.Name)
	} else {
		require.False(t, *h.OpenWorldHint, tool.Name)
	}
}

func TestReadToolsReturnRecordsOfTheDataService(t *testing.T) {
	t.Parallel()
	s := newSetup(t, fresh(t, demo.Options{})) // in the shared one, other tests delete the newest records
	eachRevision(t, func(t *testing.T, revision string) {
		t.Helper()
		c := s.connect(revision, "bearer", nil)
		business := call(t, c, "business_get", nil)["business"].(object)
		require.NotEmpty(t, business["name"])

		contact := first(t, call(t, c, "contacts_search", object{"limit": 3}), "contacts")
		same := call(t, c, "contacts_get", object{"id": contact["id"]})["contact"].(object)
		require.Equal(t, contact["first_name"], same["first_name"])

		conversation := first(t, call(t, c, "conversations_search", object{"limit": 5}), "conversations")
		read := call(t, c, "conversations_get", object{"id": conversation["id"], "message_limit": 1})
		require.Len(t, read["messages"], 1)
		require.Equal(t, "m1", read["next_message_cursor"])
		rest := call(t, c, "conversations_get", object{"id": conversation["id"], "message_cursor": "m1"})
		require.Len(t, rest["messages"], int(read["conversation"].(object)["message_count"].(float64))-1)
		require.Nil(t, rest["next_message_cursor"])

		calendar := first(t, call(t, c, "calendars_list", nil), "calendars")
		appointment := first(t, call(t, c, "appointments_search", object{
			"calendar_id": calendar["id"], "from": "2020-01-01T00:00:00+02:00",
		}), "appointments")
		require.Equal(t, appointment["title"],
			call(t, c, "appointments_get", object{"id": appointment["id"]})["appointment"].(object)["title"])

		require.NotEmpty(t, call(t, c, "receptionist_get", nil)["receptionist"].(object)["personality"])
		require.NotEmpty(t, first(t, call(t, c, "receptionist_faqs_list", nil), "faqs")["question"])
		require.NotEmpty(t, first(t, call(t, c, "receptionist_services_list", nil), "services")["name"])

		for list, one := range map[string]string{"invoices": "invoice", "estimates": "estimate", "jobs": "job"} {
			record := first(t, call(t, c, list+"_search", object{"limit": 2}), list)
			assert.Equal(t, record["id"], call(t, c, list+"_get", object{"id": record["id"]})[one].(object)["id"])
		}
		require.NotEmpty(t, first(t, call(t, c, "automations_list", nil), "automations")["input_schema"])

		kind := first(t, call(t, c, "object_types_list", nil), "object_types")
		require.NotEmpty(t, call(t, c, "object_type_get", object{"type": kind["name"]})["object_type"].(object)["schema"])
		o := first(t, call(t, c, "objects_search", object{"type": kind["name"]}), "objects")
		require.Equal(t, o["fields"],
			call(t, c, "objects_get", object{"type": kind["name"], "id": o["id"]})["object"].(object)["fields"])
	})
}

func TestListsArePaginatedByCursor(t *testing.T) {
	t.Parallel()
	c := newSetup(t, shared).connect(modern, "bearer", nil)
	arguments := object{"limit": 7, "status": "active"}
	one := call(t, c, "contacts_search", arguments)
	arguments["cursor"] = one["next_cursor"]
	two := call(t, c, "contacts_search", arguments)
	require.NotEqual(t, one["contacts"], two["contacts"])
	require.Len(t, two["contacts"], 7)
	arguments["status"] = "inactive"
	fails(t, c, "contacts_search", arguments, "INVALID_ARGUMENTS", "cursor")
}

func TestContactsAreCreatedUpdatedAndDeleted(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	c := s.connect(modern, "bearer", nil)
	created := call(t, c, "contacts_create", object{
		"first_name": "Oda", "last_name": "Brandvold", "country_code": "+47", "phone_number": "22334455", "notes": "Two\nlines.",
	})
	require.Equal(t, false, created["repeated"])
	contact := created["contact"].(object)
	require.Equal(t, "lead", contact["contact_type"])

	updated := call(t, c, "contacts_update", object{
		"id": contact["id"], "contact_type": "customer", "clear": "notes", "if_version": contact["version"],
	})["contact"].(object)
	require.Equal(t, "customer", updated["contact_type"])
	require.Nil(t, updated["notes"])
	require.Equal(t, "Brandvold", updated["last_name"])

	fails(t, c, "contacts_update", object{"id": contact["id"], "last_name": "X", "if_version": contact["version"]},
		"CHANGED_MEANWHILE", "Nothing was changed")

	fails(t, c, "contacts_delete", object{"id": contact["id"]}, "CONFIRMATION_NEEDED", "Oda Brandvold", "Nothing was changed")
	gone := confirmed(t, c, "contacts_delete", object{"id": contact["id"]})
	require.Equal(t, true, gone["deleted"])
	fails(t, c, "contacts_get", object{"id": contact["id"]}, "NOT_FOUND")
	fails(t, c, "contacts_delete", object{"id": contact["id"]}, "NOT_FOUND")
}

func TestBusinessHoursAndAreasAreChanged(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	s.allow("other", s.other, "mcp:write")
	c := s.connect(legacy, "other", nil)
	before := call(t, c, "business_get", nil)
	business := call(t, c, "business_update", object{"clear": "website_url", "phone": "+441632960123"})["business"].(object)
	require.Nil(t, business["website_url"])
	require.Equal(t, "+441632960123", business["phone"])
	require.Equal(t, before["business"].(object)["name"], business["name"])

	spans := []any{object{"open": "13:30", "close": "24:00"}, object{"open": "09:00", "close": "12:30"}}
	set := call(t, c, "business_hours_set", object{"days": []any{object{"day": "tuesday", "spans": spans}}})
	require.Equal(t, object{"day": "tuesday", "spans": []any{spans[1], spans[0]}}, set["days"].([]any)[1])
	fails(t, c, "business_hours_set", object{"days": []any{object{"day": "someday", "spans": []any{object{"open": "9", "close": "17:00"}}}}},
		"days[0].day", "days[0].spans[0].open", "HH:MM")
	areas := call(t, c, "service_areas_set", object{"add": []any{
		object{"name": "Madison", "kind": "city", "radius_km": 25.5}, object{"name": "Dane County", "kind": "region"},
	}})
	had := len(before["service_areas"].(object)["service_areas"].([]any))
	require.Len(t, areas["service_areas"], had+2)
	after := call(t, c, "business_get", nil)
	assert.Equal(t, set["days"], after["hours"].(object)["days"])
	assert.Equal(t, areas["service_areas"], after["service_areas"].(object)["service_areas"])
	gone := confirmed(t, c, "service_areas_set", object{"remove": []any{object{"name": "madison", "kind": "city"}}})
	assert.Len(t, gone["service_areas"], had+1)
}

func TestReceptionistIsConfigured(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	s.allow("other", s.other, "mcp:write")
	c := s.connect(modern, "other", nil)
	changed := call(t, c, "receptionist_personality_update", object{"tone": "warm", "clear": []any{"instructions"}})["receptionist"].(object)
	require.Equal(t, "warm", changed["personality"].(object)["tone"])
	fails(t, c, "receptionist_personality_update", object{"tone": "rude"}, "formal, friendly, playful, professional, warm")

	rulesOf := func(content object) []any { return content["receptionist"].(object)["rules"].([]any) }
	had := len(rulesOf(call(t, c, "receptionist_get", nil)))
	rules := rulesOf(call(t, c, "receptionist_rules_update", object{"add": []any{
		object{"when": "it floods", "then": "transfer to the emergency number"},
		object{"when": "a salesman calls", "then": "say goodbye", "enabled": false},
	}}))
	require.Len(t, rules, had+2)
	flood, salesman := rules[had].(object), rules[had+1].(object)
	require.Equal(t, true, flood["enabled"])
	kept := rulesOf(confirmed(t, c, "receptionist_rules_update", object{
		"remove": []any{flood["id"]}, "change": []any{object{"id": salesman["id"], "then": "be polite"}},
	}))
	require.Len(t, kept, had+1)
	salesman["then"] = "be polite"
	require.Equal(t, salesman, kept[had])
	fails(t, c, "receptionist_rules_update", object{"change": []any{object{"id": "nope", "when": "x"}}}, "change[0].id")

	faq := call(t, c, "receptionist_faq_upsert", object{"question": "Do you work at night?", "answer": "No."})["faq"].(object)
	fails(t, c, "receptionist_faq_upsert", object{"question": "do you work at NIGHT?", "answer": "Maybe."}, "CONFLICT")
	replaced := call(t, c, "receptionist_faq_upsert", object{
		"id": faq["id"], "question": "Do you work at night?", "answer": "In emergencies.", "if_version": faq["version"],
	})["faq"].(object)
	require.Equal(t, faq["id"], replaced["id"])
	require.Equal(t, "In emergencies.", replaced["answer"])
	require.Equal(t, true, confirmed(t, c, "receptionist_faq_delete", object{"id": faq["id"]})["deleted"])

	service := call(t, c, "receptionist_service_upsert", object{
		"name": "Gutter cleaning", "duration_minutes": 60, "price": "80.50", "bookable": true,
	})["service"].(object)
	require.Equal(t, "80.50", service["price"])
	fails(t, c, "receptionist_service_upsert", object{"id": service["id"], "clear": []any{"duration_minutes"}}, "duration_minutes")
	fails(t, c, "receptionist_service_upsert", object{"name": "x", "if_version": 3}, "if_version")
	require.Equal(t, true, confirmed(t, c, "receptionist_service_delete", object{"id": service["id"]})["deleted"])
}

func TestCustomObjectsMustMatchTheirTypesSchema(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	c := s.connect(modern, "bearer", nil)
	fails(t, c, "objects_create", object{"type": "vehicles", "fields": object{"year": "1990"}}, "INVALID_ARGUMENTS", "fields.year", "fields.plate")
	example := first(t, call(t, c, "objects_search", object{"type": "vehicles"}), "objects")
	fields := example["fields"].(object)
	fields["plate"] = "NEW 77"
	made := call(t, c, "objects_create", object{"type": "vehicles", "fields": fields})["object"].(object)
	changed := call(t, c, "objects_update", object{
		"type": "vehicles", "id": made["id"], "fields": object{"plate": "NEW 78"},
	})["object"].(object)
	require.Equal(t, "NEW 78", changed["fields"].(object)["plate"])
	fails(t, c, "objects_update", object{"type": "vehicles", "id": made["id"], "fields": object{"plate": nil}}, "plate")
	require.Equal(t, true, confirmed(t, c, "objects_delete",
		object{"type": "vehicles", "id": made["id"]})["deleted"])
	fails(t, c, "objects_get", object{"type": "vehicles", "id": made["id"]}, "NOT_FOUND")
	fails(t, c, "object_type_get", object{"type": "spaceships"}, "NOT_FOUND")
	fails(t, c, "objects_search", object{"type": "spaceships"}, "NOT_FOUND")
	fails(t, c, "objects_search", object{"type": "../contacts"}, "type")
}

func TestInvalidArgumentsAreReportedWithAllowedValues(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	c := s.connect(modern, "bearer", nil)
	for _, test := range []struct {
		tool      string
		arguments object
		parts     []string
	}{
		{"contacts_search", object{"status": "late"}, []string{"status", "active, inactive", "Nothing was read"}},
		{"contacts_search", object{"limit": 101}, []string{"limit", "too large", "1 to 100"}},
		{"contacts_search", object{"limit": 0}, []string{"limit", "too small", "1 to 100"}},
		{"contacts_search", object{"limit": "ten"}, []string{"limit", "integer"}},
		{"contacts_search", object{"name": "x"}, []string{"name is not an argument", "query, status, type, since, until, limit, cursor, fields"}},
		{"contacts_get", object{}, []string{"id is required"}},
		{"contacts_get", object{"id": "ten"}, []string{"id", "integer"}},
		{"contacts_create", object{"last_name": "X", "email": "nope"}, []string{
			"first_name is required", "email is not valid (allowed: an email address)", "Nothing was changed",
		}},
		{"contacts_create", object{"first_name": "A", "phone_number": "5550123"}, []string{"country_code", "Nothing was changed"}},
		{"contacts_update", object{"id": 1}, []string{"INVALID_ARGUMENTS"}},
		{"appointments_search", object{"from": "tomorrow"}, []string{"from", "RFC 3339"}},
		{"appointments_search", object{"calendar_id": "nope"}, []string{"calendar_id"}},
		{"objects_create", object{"type": "pets"}, []string{"fields is required"}},
		{"automations_run", object{"automation_id": "x", "wait_seconds": 46}, []string{"wait_seconds", "too large", "0 to 45"}},
		{"jobs_get", object{"id": "no such job"}, []string{"id"}},
		{"jobs_get", object{"id": ".."}, []string{"id must be 1 to 128 letters"}},
		{"conversations_get", object{"id": "c", "message_cursor": "x1"}, []string{"message_cursor"}},
	} {
		fails(t, c, test.tool, test.arguments, test.parts...)
	}
}

func TestWrongIDsAndValuesAreExplained(t *testing.T) {
	t.Parallel()
	c := newSetup(t, shared).connect(modern, "bearer", nil)
	for _, test := range []struct {
		tool      string
		arguments object
		part      string
		not       string
	}{
		{"automations_run", object{"automation_id": "overdue"}, "overdue-reminders", ""},
		{"invoices_search", object{"status": "unpaid"}, "status[0] is not one of the possible values (allowed: draft", "did you mean"},
		{"invoices_search", object{"status": "viewd"}, "did you mean viewed?", ""},
		{"appointments_search", object{"calendar_id": "Crew 2"}, "The id of the appointments' calendar.", ""},
		{"receptionist_rules_update", object{"remove": []any{"2"}}, "INVALID_ARGUMENTS", "Ask the user"},
		{"receptionist_rules_update", object{"remove": []any{"2"}}, "remove[0] is not an id of the record's (allowed: ", "CONFIRMATION_NEEDED"},
	} {
		text := fails(t, c, test.tool, test.arguments, test.part)
		if test.not != "" {
			assert.NotContains(t, text, test.not)
		}
	}
}

func TestStructuredContentIsAlsoReturnedAsText(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	eachRevision(t, func(t *testing.T, revision string) {
		t.Helper()
		c := s.connect(revision, "bearer", nil)
		notes := "<b>\"quoted\"</b> & \\\n</script>"
		created := call(t, c, "contacts_create", object{"first_name": "Zoë </td>", "notes": notes, "last_name": revision})
		require.Equal(t, notes, created["contact"].(object)["notes"])
		for _, tool := range []string{"jobs_search", "contacts_search"} {
			res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: object{"limit": 2}})
			require.NoError(t, err)
			structured, err := json.Marshal(res.StructuredContent)
			require.NoError(t, err)
			assert.JSONEq(t, string(structured), textOf(res))
			require.Len(t, res.Content, 1)
		}
	})
}

// The list is read by models in every conversation, and by clients whenever they connect.
func TestListOfToolsIsSmall(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	list := strings.Replace(callMessage(modern, "", object{}), `"tools/call"`, `"tools/list"`, 1)
	plain := s.post("bearer", modern, list, func(r *http.Request) { r.Header.Set("Accept-Encoding", "identity") })
	require.Equal(t, http.StatusOK, plain.StatusCode, plain.Text)
	require.Contains(t, plain.Text, `"tools":[{"name":"business_get"`)
	assert.LessOrEqual(t, len(plain.Text), 32_500)
	assert.NotRegexp(t, `\b[45][0-9]{2}\b`, plain.Text, "a status code says nothing to an assistant")
	packed := s.post("bearer", modern, list, func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") })
	require.Equal(t, "gzip", packed.Header.Get("Content-Encoding"))
	assert.LessOrEqual(t, len(packed.Text), 10_000)
	unpacked, err := gzip.NewReader(strings.NewReader(packed.Text))
	require.NoError(t, err)
	unpacked.Multistream(false) // not all clients read a second member
	text, err := io.ReadAll(unpacked)
	require.NoError(t, err)
	assert.Equal(t, plain.Text, string(text))
	t.Logf("%d bytes, %d with gzip", len(plain.Text), len(packed.Text))
}
