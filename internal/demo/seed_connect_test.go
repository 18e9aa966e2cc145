package demo

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSeedsAreValidInput(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	for _, a := range []Account{owner(), stranger()} {
		c := caller(t, s, a)
		for _, list := range []string{"receptionist/faqs", "receptionist/services"} {
			for _, r := range c.all(list, 100) {
				body := roundTrip(t, r)
				for _, name := range []string{"id", "business_id", "version", "created_at", "updated_at"} {
					delete(body, name)
				}
				c.ok("PUT", list+"/"+fmt.Sprint(r["id"]), asJSON(t, body))
			}
		}
		for _, document := range []string{"hours", "service-areas"} {
			member := strings.ReplaceAll(document, "-", "_")
			got := c.get("business/" + document)
			require.Equal(t, got[member], c.ok("PUT", "business/"+document, asJSON(t, map[string]any{member: got[member]}))[member])
		}
		receptionist := record(t, c.get("receptionist"), "receptionist")
		c.ok("PATCH", "receptionist/personality", asJSON(t, receptionist["personality"]))
		c.ok("PUT", "receptionist/rules", asJSON(t, map[string]any{"rules": receptionist["rules"]}))
		for _, k := range c.all("object-types", 100) {
			list := "objects/" + fmt.Sprint(k["name"])
			for _, o := range c.all(list, 100) {
				c.ok("POST", list, asJSON(t, map[string]any{"fields": o["fields"]}))
			}
		}
		for _, automation := range c.all("automations", 100) {
			require.NoError(t, checkSchema(new(problems), "", asJSON(t, automation["input_schema"]), "{}"))
		}
	}
}

func TestSeedsHavePromptInjections(t *testing.T) {
	t.Parallel()
	for _, a := range []Account{owner(), stranger()} {
		c := caller(t, shared, a)
		found := c.all("conversations?query=ignore+all+previous+instructions", 10)
		require.Len(t, found, 1)
		text := fmt.Sprint(c.get("conversations/" + fmt.Sprint(found[0]["id"])))
		require.Contains(t, text, "contacts_delete", "it is given as it is")
		require.Contains(t, ids(records(t, c.get("conversations"), "conversations")), fmt.Sprint(found[0]["id"]), "and is on the first page")
		require.NotEmpty(t, c.all("conversations?query=tool_result", 10))
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

func TestABusinessWithoutRecordsIsServed(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	execute(t, s, `INSERT INTO businesses (id, name, slug, time_zone, account_status, created_at, updated_at)
		VALUES ('bare', 'Bare', 'bare', 'Europe/London', 'active', '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z')`)
	execute(t, s, `INSERT INTO accounts (id, business_id, email, email_key, name, role, status, password_hash, created_at)
		VALUES ('bare-owner', 'bare', 'o@bare.example.com', 'o@bare.example.com', 'O', 'owner', 'active', '', '2026-01-01T00:00:00Z')`)
	c := caller(t, s, Account{ID: "bare-owner", BusinessID: "bare"})
	for _, list := range []string{"contacts", "conversations", "calendars", "appointments", "receptionist/faqs", "invoices", "automations", "object-types"} {
		require.Empty(t, c.all(list, 10), list)
	}
	require.Equal(t, []any{}, c.get("business/hours")["hours"])
	require.Equal(t, []any{}, c.get("business/service-areas")["service_areas"])
	r := record(t, c.get("receptionist"), "receptionist")
	require.Equal(t, []any{}, r["rules"])
	require.InDelta(t, 0, r["version"], 0)
	require.Contains(t, record(t, r, "personality")["greeting"], "Bare")
	changed := record(t, c.ok("PATCH", "receptionist/personality", `{"tone":"formal"}`), "receptionist")
	require.InDelta(t, 1, changed["version"], 0)
	require.Contains(t, record(t, changed, "personality")["greeting"], "Bare")
	c.ok("PUT", "business/hours", `{"hours":[{"day":"monday","open":"09:00","close":"10:00"}]}`)
}
