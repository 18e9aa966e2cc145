package data_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// docs/data-services.md refers to examples/connect. The demo's service is compared with the same files.
func TestClientReadsTheExamples(t *testing.T) {
	t.Parallel()
	const dir = "../../examples/connect"
	by := data.Caller{BusinessID: "biz_7f3a9c21", AccountID: "acc_51c0e7", RequestID: "req_1"}
	calls := map[string]func(c *data.Client) error{
		"business":      func(c *data.Client) error { return drop(c.Business(t.Context(), by)) },
		"hours":         func(c *data.Client) error { return drop(c.Hours(t.Context(), by)) },
		"service_areas": func(c *data.Client) error { return drop(c.ServiceAreas(t.Context(), by)) },
		"contacts":      func(c *data.Client) error { return drop(c.Contacts().List(t.Context(), by, data.ContactFilter{})) },
		"conversations": func(c *data.Client) error {
			return drop(c.Conversations().List(t.Context(), by, data.ConversationFilter{}))
		},
		"conversation": func(c *data.Client) error {
			return drop(c.Conversations().Get(t.Context(), by, "c3b1a3de-5a0e-4e0c-a5a8-0d3c5c3f9f01"))
		},
		"calendars": func(c *data.Client) error { return drop(c.Calendars().List(t.Context(), by, data.List{})) },
		"appointments": func(c *data.Client) error {
			return drop(c.Appointments().List(t.Context(), by, data.AppointmentFilter{}))
		},
		"receptionist": func(c *data.Client) error { return drop(c.Receptionist(t.Context(), by)) },
		"faqs":         func(c *data.Client) error { return drop(c.FAQs().List(t.Context(), by, data.Search{})) },
		"services":     func(c *data.Client) error { return drop(c.Services().List(t.Context(), by, data.Search{})) },
		"invoice": func(c *data.Client) error {
			return drop(c.Invoices().Get(t.Context(), by, "8e0b64f4-52f7-4c57-9d6e-0c7f3a2b9d10"))
		},
		"estimate": func(c *data.Client) error {
			return drop(c.Estimates().Get(t.Context(), by, "0c4d1f7a-3d5b-4a58-8f39-3c0f0f4a9a71"))
		},
		"job": func(c *data.Client) error {
			return drop(c.Jobs().Get(t.Context(), by, "0190f3a2-7c4b-7d11-9e55-0000000003e8"))
		},
		"automations": func(c *data.Client) error { return drop(c.Automations().List(t.Context(), by, data.List{})) },
		"run": func(c *data.Client) error {
			return drop(c.StartRun(t.Context(), by, data.Write{Key: "k"}, "overdue-reminders", jsontext.Value("{}")))
		},
		"object_type": func(c *data.Client) error { return drop(c.ObjectType(t.Context(), by, "vehicles")) },
		"objects":     func(c *data.Client) error { return drop(c.Objects("vehicles").List(t.Context(), by, data.Search{})) },
		"error": func(c *data.Client) error {
			err := drop(c.Contacts().Create(t.Context(), by, data.Write{Key: "k"}, data.Patch{}))
			require.Len(t, requireError(t, err, data.ErrInvalid).Details, 2)
			return nil
		},
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, len(calls)+1, "an account is read by package account")
	for name, call := range calls {
		text, err := os.ReadFile(filepath.Join(dir, name+".json"))
		require.NoError(t, err)
		status := http.StatusOK
		if name == "error" {
			status = http.StatusUnprocessableEntity
		}
		c, _ := serve(t, respond(status, string(text)))
		require.NoError(t, call(c), name)
		if strings.Contains(string(text), by.BusinessID) {
			foreign, _ := serve(t, respond(status, strings.ReplaceAll(string(text), by.BusinessID, "biz_other")))
			require.Error(t, call(foreign), name)
		}
	}
}
