package data_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// docs/data-services.md refers to examples/connect. The demo's service is compared with the same files.
func TestClientReadsTheExamples(t *testing.T) {
	t.Parallel()
	const dir = "../../examples/connect"
	by := data.Caller{BusinessID: "biz_7f3a9c21", AccountID: "acc_51c0e7", RequestID: "req_1"}
	calls := map[string]data.Request{}
	for name, of := range map[string][]string{
		"business": {"getBusiness"}, "days": {"getHours"}, "service_areas": {"getServiceAreas"}, "contacts": {"listContacts"},
		"conversations": {"listConversations"}, "conversation": {"getConversation", "c3b1a3de-5a0e-4e0c-a5a8-0d3c5c3f9f01"},
		"calendars": {"listCalendars"}, "appointments": {"listAppointments"}, "receptionist": {"getReceptionist"}, "faqs": {"listFaqs"},
		"services": {"listServices"}, "invoice": {"getInvoice", "8e0b64f4-52f7-4c57-9d6e-0c7f3a2b9d10"},
		"estimate": {"getEstimate", "0c4d1f7a-3d5b-4a58-8f39-3c0f0f4a9a71"}, "job": {"getJob", "0190f3a2-7c4b-7d11-9e55-0000000003e8"},
		"automations": {"listAutomations"}, "run": {"startRun", "overdue-reminders"}, "object_type": {"getObjectType", "vehicles"},
		"objects": {"listObjects", "vehicles"}, "error": {"createContact"},
	} {
		calls[name] = data.Request{Operation: connecttest.Operation(t, of[0]), Path: of[1:]}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, len(calls)+1, "an account is read by package account")
	for name, request := range calls {
		text, err := os.ReadFile(filepath.Join(dir, name+".json"))
		require.NoError(t, err)
		status := request.Operation.Success().Status
		if name == "error" {
			status = http.StatusUnprocessableEntity
		}
		c, _ := serve(t, respond(status, string(text)))
		content, err := c.Call(t.Context(), by, request)
		if name == "error" {
			require.Len(t, requireError(t, err, data.ErrInvalid).Details, 2)
			continue
		}
		require.NoError(t, err, name)
		require.NotContains(t, string(content), by.BusinessID, name)
		foreign, _ := serve(t, respond(status, strings.ReplaceAll(string(text), by.BusinessID, "biz_other")))
		_, err = foreign.Call(t.Context(), by, request)
		require.ErrorIs(t, err, upstream.ErrCrossTenantRecord, name)
	}
}
