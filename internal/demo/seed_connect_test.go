package demo

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheSameTimeGivesAssistantsTheSameRecords(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	for _, a := range []Account{owner(), stranger()} {
		first, second := caller(t, shared, a), caller(t, s, a)
		for _, list := range connectLists {
			if list == "objects/pets" && a == stranger() {
				continue
			}
			require.Equal(t, first.all(list, 100), second.all(list, 100), list)
		}
		for _, document := range []string{"business", "business/hours", "business/service-areas", "receptionist"} {
			require.Equal(t, first.get(document), second.get(document), document)
		}
	}
}

func TestTheSeedsCanBeAtAnyTimeOfTheYear(t *testing.T) {
	t.Parallel()
	forAll(t, func(t *testing.T, now string, d *dataset) {
		t.Helper()
		for _, v := range d.conversations {
			require.LessOrEqual(t, v.StartedAt, now)
			require.Less(t, v.StartedAt, *v.EndedAt)
		}
		seen := map[string]int{}
		for _, a := range d.appointments {
			require.Less(t, a.StartsAt, a.EndsAt)
			require.LessOrEqual(t, a.CreatedAt, now)
			seen[a.Status]++
			if a.EndsAt >= now {
				require.NotContains(t, []string{appointmentCompleted, appointmentNoShow}, a.Status)
			}
		}
		if d.business.AccountStatus == AccountActive {
			require.Len(t, seen, 5, "%v", seen)
		}
	})
}

func TestTheSeedsAreWhatAssistantsCouldHaveWritten(t *testing.T) {
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
			_, err := compileSchema(asJSON(t, automation["input_schema"]))
			require.NoError(t, err)
		}
	}
}

func TestStrangersHaveWrittenWhatMustNotBeObeyed(t *testing.T) {
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

func TestADatabaseOfTheVersionBeforeGetsWhatAssistantsNeed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "demo.db")
	// As the version before has left it.
	script, err := migrationFiles.ReadFile("migrations/0001_resources.sql")
	require.NoError(t, err)
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), string(script)+fmt.Sprintf("; PRAGMA user_version = 1; PRAGMA application_id = %d", applicationID))
	require.NoError(t, err)
	require.NoError(t, inTx(t.Context(), db, func(tx *sql.Tx) error {
		for i, b := range Businesses() {
			zone, err := time.LoadLocation(b.TimeZone)
			if err != nil {
				return err
			}
			s := &seeder{tx: tx, folder: seedFolders()[i], businessID: b.ID, today: testNow.In(zone)}
			if err := s.insert(t.Context(), []string{"businesses", "contacts"}); err != nil {
				return err
			}
		}
		// Some contacts of the seed files are not in this database.
		if _, err := tx.ExecContext(t.Context(), "DELETE FROM contacts WHERE business_id = ? AND id NOT IN"+
			" (SELECT id FROM contacts WHERE business_id = ? ORDER BY id LIMIT 30)", owner().BusinessID, owner().BusinessID); err != nil {
			return err
		}
		_, err := tx.ExecContext(t.Context(), "UPDATE businesses SET name = 'Renamed since' WHERE id = ?", owner().BusinessID)
		return err
	}))
	require.NoError(t, db.Close())

	for range 2 { // the second start adds nothing more
		s, err := Open(t.Context(), path, Options{Now: func() time.Time { return testNow.AddDate(0, 2, 0) }})
		require.NoError(t, err)
		c := caller(t, s, owner())
		business := record(t, c.get("business"), "business")
		require.Equal(t, "Renamed since", business["name"])
		require.InDelta(t, 1, business["version"], 0)
		require.Len(t, c.all("contacts", 100), 30)
		require.Len(t, c.all("conversations", 100), 62)
		require.Len(t, c.all("automations", 100), 4)
		require.NotEmpty(t, c.all("appointments", 100))
		require.NoError(t, s.Close())
	}
}

func TestABusinessThatNobodyHasSetUpIsServedAllTheSame(t *testing.T) {
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
