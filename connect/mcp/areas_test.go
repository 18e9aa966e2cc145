package mcp_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
)

// toolsOf returns the tools of an area, and the paths below /connect/v1/ that they request.
func toolsOf(t *testing.T, area string) (tools, paths []string) {
	t.Helper()
	of := map[string][2]string{
		"business":      {"business_get business_update business_hours_set service_areas_set", "business"},
		"contacts":      {"contacts_search contacts_get contacts_create contacts_update contacts_delete", "contacts"},
		"conversations": {"conversations_search conversations_get", "conversations"},
		"appointments":  {"calendars_list appointments_search appointments_get", "calendars appointments"},
		"receptionist": {
			"receptionist_get receptionist_faqs_list receptionist_services_list receptionist_personality_update receptionist_rules_update " +
				"receptionist_faq_upsert receptionist_service_upsert receptionist_faq_delete receptionist_service_delete", "receptionist",
		},
		"sales":       {"invoices_search invoices_get estimates_search estimates_get jobs_search jobs_get", "invoices estimates jobs"},
		"automations": {"automations_list automations_run_get automations_run", "automations automation-runs"},
		"objects":     {"object_types_list object_type_get objects_search objects_get objects_create objects_update objects_delete", "object"},
	}[area]
	require.NotEmpty(t, of[0], area)
	return strings.Fields(of[0]), strings.Fields(of[1])
}

// without starts a server without areas. Its connection "bearer" was approved for everything before they were switched off.
func without(t *testing.T, names ...string) *setup {
	t.Helper()
	areas, err := connecttest.Areas(t).Without(names...)
	require.NoError(t, err)
	return newSetup(t, shared, func(o *mcp.Options) { o.Areas = areas })
}

func TestToolsOfASwitchedOffAreaAreUnknown(t *testing.T) {
	t.Parallel()
	for _, area := range connecttest.Areas(t).List() {
		t.Run(area.Name, func(t *testing.T) {
			t.Parallel()
			s := without(t, area.Name)
			gone, paths := toolsOf(t, area.Name)
			for _, tool := range gone {
				assert.NotContains(t, s.server.ToolNames(), tool)
			}
			for _, revision := range []string{modern, legacy} {
				session := s.connect(revision, "bearer", nil)
				listed, err := session.ListTools(t.Context(), nil)
				require.NoError(t, err)
				require.NotEmpty(t, listed.Tools)
				shown, err := json.Marshal([]any{listed.Tools, session.InitializeResult()})
				require.NoError(t, err)
				for _, tool := range gone {
					assert.NotContains(t, string(shown), tool, "neither listed nor named in a description or the instructions")
				}
				assert.NotContains(t, string(shown), area.Noun+",", "in the list of areas")
				for _, cursor := range []string{"", "invented", listed.NextCursor} {
					page := s.post("bearer", revision, listMessage(revision, cursor))
					assert.NotContains(t, page.Text, `"`+gone[0]+`"`, cursor)
				}

				const invented = "invented_tool"
				want := s.post("bearer", revision, callMessage(revision, invented, object{}))
				for _, tool := range gone {
					got := s.post("bearer", revision, callMessage(revision, tool, object{"id": "1", "confirm": true}))
					assert.Equal(t, want.StatusCode, got.StatusCode, tool)
					assert.Equal(t, strings.ReplaceAll(want.Text, invented, tool), got.Text, "the same as for a tool that never existed")
					assert.Empty(t, got.Header.Get("WWW-Authenticate"))
				}
				readEverything(t, session, listed.Tools)
			}
			assert.Empty(t, s.entries(), "not even a denied call of a tool that writes")
			for _, path := range paths {
				for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete} {
					assert.Zero(t, s.upstream.count(method, "/connect/v1/"+path), "%s %s: no other tool asks for the area's records", method, path)
				}
			}
		})
	}
}

// readEverything calls all tools that read and need no argument.
func readEverything(t *testing.T, session *sdk.ClientSession, tools []*sdk.Tool) {
	t.Helper()
	n := 0
	for _, tool := range tools {
		required, _ := tool.InputSchema.(object)["required"].([]any)
		if tool.Annotations.ReadOnlyHint && len(required) == 0 {
			call(t, session, tool.Name, nil)
			n++
		}
	}
	assert.GreaterOrEqual(t, n, 8)
}

// listMessage returns a tools/list of a revision.
func listMessage(revision, cursor string) string {
	params := object{}
	if cursor != "" {
		params["cursor"] = cursor
	}
	var whole struct {
		Params struct {
			Meta json.RawMessage `json:"_meta,omitempty"`
		} `json:"params"`
	}
	if err := json.Unmarshal([]byte(callMessage(revision, "", nil)), &whole); err == nil && whole.Params.Meta != nil {
		params["_meta"] = whole.Params.Meta
	}
	body, err := json.Marshal(object{"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": params})
	if err != nil {
		panic(err)
	}
	return string(body)
}

func TestInstructionsListTheAreas(t *testing.T) {
	t.Parallel()
	text := newSetup(t, shared).connect(modern, "bearer", nil).InitializeResult().Instructions
	assert.NotContains(t, text, "in UTC", "services may send any offset")
	assert.True(t, strings.HasPrefix(text, "These tools work in one business's account: its profile, contacts, the conversations of its AI receptionist, "+
		"appointments, the setup of its AI receptionist, invoices, estimates, jobs, automations, custom objects. Only tools"), text)

	text = without(t, "conversations", "receptionist", "automations", "business", "objects").connect(modern, "bearer", nil).InitializeResult().Instructions
	assert.True(t, strings.HasPrefix(text, "These tools work in one business's account: contacts, appointments, invoices, estimates, jobs. Only tools"), text)
	for _, word := range []string{"receptionist", "automation", "conversations", "{"} {
		assert.NotContains(t, text, word)
	}
}

// A question asked before a reload must not be answered after it.
func TestConfirmationOfASwitchedOffToolDeletesNothing(t *testing.T) {
	t.Parallel()
	before, after := newSetup(t, shared), without(t, "contacts")
	id := create(t, before, "Stays")
	deletion := strings.Replace(callMessage(modern, "contacts_delete", object{"id": id}),
		`"io.modelcontextprotocol/clientCapabilities":{}`, `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`, 1)
	asked := before.post("bearer", modern, deletion)
	state := regexp.MustCompile(`"requestState":"([^"]*)"`).FindStringSubmatch(asked.Text)
	question := regexp.MustCompile(`"inputRequests":\{("[^"]*"):`).FindStringSubmatch(asked.Text)
	require.True(t, state != nil && question != nil, asked.Text)
	answer := strings.Replace(deletion, `"params":{`, `"params":{"requestState":"`+state[1]+`","inputResponses":{`+question[1]+
		`:{"action":"accept","content":{"confirm":true}}},`, 1)

	assert.Contains(t, after.post("bearer", modern, answer).Text, `unknown tool`)
	assert.Zero(t, after.upstream.count(http.MethodDelete, ""))
	require.Equal(t, 1, found(t, before, "Stays"))
	require.Equal(t, http.StatusOK, before.post("bearer", modern, answer).StatusCode)
	require.Zero(t, found(t, before, "Stays"), "the answer itself is good")
}

func TestToolsOfSomeAreasOnly(t *testing.T) {
	t.Parallel()
	var rest []string
	for _, a := range connecttest.Areas(t).List() {
		if a.Name != "sales" {
			rest = append(rest, a.Name)
		}
	}
	s := without(t, rest...)
	want, _ := toolsOf(t, "sales")
	slices.Sort(want)
	assert.Equal(t, want, s.server.ToolNames())
}
