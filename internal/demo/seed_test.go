package demo

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// contradictions find records that disagree with others or with the present, ?1. The schema checks the rest.
var contradictions = map[string]string{
	"invoice and job":         "SELECT i.id FROM invoices i JOIN jobs j ON j.id = job_id WHERE i.total_amount <> j.total_amount OR i.contact_id <> j.contact_id",
	"estimate and job":        "SELECT e.id FROM estimates e JOIN jobs j ON j.id = job_id WHERE e.total_amount <> j.total_amount OR e.contact_id <> j.contact_id",
	"outstanding":             "SELECT i.id FROM invoices i JOIN jobs j ON j.id = job_id WHERE status <> 'voided' AND outstanding_balance <> j.total_amount - paid_amount",
	"paid in full":            "SELECT id FROM invoices WHERE status <> 'voided' AND (status = 'paid') <> (paid_amount = total_amount)",
	"due invoices":            "SELECT id FROM invoices WHERE status IN ('sent', 'viewed') AND due_at < ?1 OR status = 'overdue' AND due_at >= ?1",
	"expired estimates":       "SELECT id FROM estimates WHERE status = 'sent' AND expires_at < ?1 OR status = 'expired' AND expires_at >= ?1",
	"estimates of the future": "SELECT id FROM estimates WHERE max(created_at, updated_at, coalesce(sent_at, ''), coalesce(approved_at, '')) > ?1",
	"invoices of the future":  "SELECT id FROM invoices WHERE max(created_at, updated_at, coalesce(sent_at, ''), coalesce(paid_at, '')) > ?1",
	"jobs of the future":      "SELECT id FROM jobs WHERE created_at > updated_at OR updated_at > ?1",
	"events of the future":    "SELECT id FROM events WHERE created_at > published_at OR published_at > ?1",
	"contacts of the future":  "SELECT id FROM contacts WHERE date_created > date_modified OR date_modified > ?1",
	"conversations":           "SELECT id FROM conversations WHERE started_at > ?1 OR started_at >= ended_at",
	"appointments ahead":      "SELECT id FROM appointments WHERE ends_at >= ?1 AND status IN ('completed', 'no_show')",
	"events ahead": "SELECT b.name FROM businesses b WHERE account_status = 'active' AND (SELECT count(*) FROM events" +
		" WHERE business_id = b.id AND status = 'published' AND schedule ->> '$[0].date' > substr(?1, 1, 10)) < 10",
	"nothing recent": "SELECT b.name FROM businesses b WHERE account_status = 'active' AND min(" +
		"(SELECT max(created_at) FROM jobs WHERE business_id = b.id), (SELECT max(created_at) FROM invoices WHERE business_id = b.id)" +
		") <= strftime('%Y-%m-%dT%H:%M:%SZ', ?1, '-8 days')",
}

func TestSeedsAgreeAtAnyTimeOfTheYear(t *testing.T) {
	t.Parallel()
	for _, now := range []time.Time{
		testNow,
		time.Date(2027, 2, 28, 23, 59, 59, 999, time.UTC),
		time.Date(2026, 11, 1, 6, 30, 0, 0, time.UTC), // clocks are set back in America
	} {
		t.Run(now.Format(time.DateOnly), func(t *testing.T) {
			t.Parallel()
			s := shared
			if !now.Equal(testNow) {
				s = opened(t, now)
			}
			for name, query := range contradictions {
				assert.Empty(t, texts(t, s, query+map[bool]string{true: "", false: " AND ?1 > ''"}[strings.Contains(query, "?1")], instant(now)), name)
			}
		})
	}
}

func TestSeedTimesAreRelativeToTheDayOfTheBusiness(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("America/Chicago")
	require.NoError(t, err)
	today := time.Date(2026, 3, 9, 2, 0, 0, 0, time.UTC).In(zone) // the evening of the 8th, when clocks were set forward
	for text, want := range map[string]string{
		"-1d 09:00:00": "2026-03-07T15:00:00Z", "+0d 23:59:59": "2026-03-09T04:59:59Z", "+1d 09:00:00": "2026-03-09T14:00:00Z",
		"-8d": "2026-02-28", "+30d": "2026-04-07", "-1d9": "-1d9", "+1": "+1", "d": "d", "10 days": "10 days",
	} {
		assert.Equal(t, want, resolveTime(text, today), text)
	}
}

func TestNobodyRealCanBeReached(t *testing.T) {
	t.Parallel()
	const host = `([a-z0-9-]+\.)*(example\.com|[a-z0-9-]+\.test)`
	urls := regexp.MustCompile(`https?://[^" ]+`).FindAllString(fmt.Sprint(texts(t, shared, "SELECT json FROM events")), -1)
	for pattern, found := range map[string][]string{
		// Ranges that are kept for fiction: 555-0100 to 555-0199 in North America, and Ofcom's for drama, of which three are used.
		`^(\+1\d{3}55501\d\d|\+44(1614960|1134960|7700900)\d{3})$`: texts(t, shared,
			"SELECT phone FROM businesses UNION ALL SELECT country_code || phone_number FROM contacts WHERE phone_number IS NOT NULL"),
		`^[a-z][a-z0-9.]*@` + host + `$`: texts(t, shared,
			"SELECT email FROM businesses UNION ALL SELECT email FROM contacts WHERE email IS NOT NULL"),
		`^https?://` + host + `(/.*)?$`: urls,
	} {
		assert.Greater(t, len(found), 200)
		for _, text := range found {
			assert.Regexp(t, pattern, text)
		}
	}
}

func TestSeedsAreValidInput(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	for _, a := range []Account{owner(), stranger()} {
		c := caller(t, s, a)
		for _, list := range []string{"receptionist/faqs", "receptionist/services"} {
			for _, r := range c.all(list, 100) {
				path := list + "/" + fmt.Sprint(r["id"])
				for _, name := range []string{"id", "business_id", "version", "created_at", "updated_at"} {
					delete(r, name)
				}
				c.ok("PUT", path, asJSON(t, r))
			}
		}
		days, areas := c.get("business/hours")["days"], c.get("business/service-areas")["service_areas"]
		assert.Equal(t, days, c.ok("PATCH", "business/hours", asJSON(t, map[string]any{"days": days}))["days"])
		assert.Equal(t, areas, c.ok("PATCH", "business/service-areas", asJSON(t, map[string]any{"add": areas}))["service_areas"])
		receptionist := c.one("receptionist", "receptionist")
		c.ok("PATCH", "receptionist/personality", asJSON(t, receptionist["personality"]))
		c.ok("PATCH", "receptionist/rules", asJSON(t, map[string]any{"change": receptionist["rules"]}))
		for _, k := range c.all("object-types", 100) {
			list := "objects/" + fmt.Sprint(k["name"])
			for _, o := range c.all(list, 100) {
				c.ok("POST", list, asJSON(t, map[string]any{"fields": o["fields"]}))
			}
		}
	}
}

func TestSeedsHavePromptInjections(t *testing.T) {
	t.Parallel()
	for _, a := range []Account{owner(), stranger()} {
		c := caller(t, shared, a)
		found := ids(c.all("conversations?query=ignore+all+previous+instructions", 10))
		require.Len(t, found, 1)
		assert.Contains(t, fmt.Sprint(c.get("conversations/"+found[0])), "contacts_delete", "they are served unchanged")
		assert.Contains(t, ids(records(t, c.get("conversations"), "conversations")), found[0], "on the first page")
		assert.NotEmpty(t, c.all("conversations?query=tool_result", 10))
	}
}

func TestABusinessWithoutRecordsIsServed(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	execute(t, s, `INSERT INTO businesses (id, name, slug, time_zone, account_status, created_at, updated_at)
		VALUES ('bare', 'Bare', 'bare', 'Europe/London', 'active', '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z')`)
	execute(t, s, `INSERT INTO accounts (id, business_id, email, name, role, status, password_hash, created_at)
		VALUES ('bare-owner', 'bare', 'o@bare.example.com', 'O', 'owner', 'active', '', '2026-01-01T00:00:00Z')`)
	c := caller(t, s, Account{ID: "bare-owner", BusinessID: "bare"})
	for _, list := range connectLists[:len(connectLists)-2] {
		assert.Empty(t, c.all(list, 10), list)
	}
	for i, day := range records(t, c.get("business/hours"), "days") {
		assert.Equal(t, map[string]any{"day": weekdays()[i], "spans": []any{}}, day)
	}
	assert.Empty(t, c.get("business/service-areas")["service_areas"])
	r := c.one("receptionist", "receptionist")
	assert.Equal(t, []any{}, r["rules"])
	assert.InDelta(t, 0, r["version"], 0)
	changed := record(t, c.ok("PATCH", "receptionist/personality", `{"tone":"formal"}`), "receptionist")
	assert.InDelta(t, 1, changed["version"], 0)
	assert.Contains(t, record(t, changed, "personality")["greeting"], "Bare")
}
