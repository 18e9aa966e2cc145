package demo

import (
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// seasons are presents all over the year, at odd hours and on holidays too.
func seasons() []time.Time {
	return []time.Time{
		testNow,
		time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2027, 2, 28, 23, 59, 59, 999, time.UTC),
		time.Date(2026, 5, 17, 4, 0, 0, 0, time.FixedZone("", 7*3600)), // a Sunday
		time.Date(2028, 7, 4, 12, 0, 0, 0, time.UTC),
		time.Date(2026, 11, 1, 6, 30, 0, 0, time.UTC), // clocks are set back in America
		time.Date(2030, 12, 25, 18, 0, 0, 0, time.UTC),
	}
}

// seedAt returns a store that has been filled at the given time.
func seedAt(t *testing.T, now time.Time) *store {
	t.Helper()
	st, err := openStore(t.Context(), Memory)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.close()) })
	require.NoError(t, seed(t.Context(), st, now, demoHash, seedFolders()...))
	return st
}

// texts returns the first column of a query.
func texts(t testing.TB, st *store, query string, args ...any) (all []string) {
	t.Helper()
	require.NoError(t, st.read(t.Context(), func(tx *sql.Tx) (err error) {
		all, err = rowsOf(t.Context(), tx, func(s *string) []any { return []any{s} }, query, args...)
		return err
	}), query)
	return all
}

// prices are the columns that estimates and invoices have in common.
const prices = "(SELECT id, subtotal, discount_type, discount_value, discount_amount, tax_rate, tax_amount, total_amount FROM invoices" +
	" UNION ALL SELECT id, subtotal, discount_type, discount_value, discount_amount, tax_rate, tax_amount, total_amount FROM estimates)"

// contradictions find records that disagree with themselves or with others. ?1 is the present.
var contradictions = map[string]string{
	"tax":                       "SELECT id FROM " + prices + " WHERE tax_amount <> ((subtotal - discount_amount) * tax_rate + 5000) / 10000",
	"total":                     "SELECT id FROM " + prices + " WHERE total_amount <> subtotal - discount_amount + tax_amount OR total_amount <= 0",
	"no discount":               "SELECT id FROM " + prices + " WHERE discount_type IS NULL AND (discount_amount <> 0 OR discount_value IS NOT NULL)",
	"discount in percent":       "SELECT id FROM " + prices + " WHERE discount_type = 'percentage' AND discount_amount IS NOT (subtotal * discount_value + 5000) / 10000",
	"fixed discount":            "SELECT id FROM " + prices + " WHERE discount_type = 'fixed' AND discount_amount IS NOT discount_value",
	"only finished work billed": "SELECT i.id FROM invoices i LEFT JOIN jobs j ON j.id = job_id WHERE work_status IS NOT 'completed'",
	"invoice and job":           "SELECT i.id FROM invoices i JOIN jobs j ON j.id = job_id WHERE i.total_amount <> j.total_amount OR i.contact_id <> j.contact_id",
	"voided is unpaid":          "SELECT id FROM invoices WHERE status = 'voided' AND paid_amount <> 0",
	"work billed twice":         "SELECT job_id FROM invoices WHERE status <> 'voided' GROUP BY job_id HAVING count(*) > 1",
	"outstanding":               "SELECT i.id FROM invoices i JOIN jobs j ON j.id = job_id WHERE status <> 'voided' AND outstanding_balance <> j.total_amount - paid_amount",
	"paid in full":              "SELECT id FROM invoices WHERE status <> 'voided' AND (status = 'paid') <> (paid_amount = total_amount)",
	"deposit":                   "SELECT id FROM estimates WHERE deposit_required <> (deposit_amount IS NOT NULL)",
	"approved becomes a job":    "SELECT id FROM estimates WHERE (status = 'approved') <> (job_id IS NOT NULL)",
	"unpaid without a job":      "SELECT id FROM estimates WHERE job_id IS NULL AND (amount_paid <> 0 OR payment_status <> 'unpaid')",
	"estimate and job":          "SELECT e.id FROM estimates e JOIN jobs j ON j.id = job_id WHERE e.total_amount <> j.total_amount OR e.contact_id <> j.contact_id",
	"payments of a job": "SELECT e.id FROM estimates e JOIN jobs j ON j.id = job_id WHERE work_status <> 'cancelled'" +
		" AND amount_paid <> j.total_amount - outstanding_balance",
	"payment status": "SELECT id FROM estimates WHERE payment_status <> CASE amount_paid WHEN 0 THEN 'unpaid' WHEN total_amount THEN 'paid' ELSE 'partial' END",
	"cancelled jobs": "SELECT id FROM jobs WHERE work_status = 'cancelled' AND outstanding_balance <> 0",

	"estimates in order": "SELECT id FROM estimates WHERE created_at > coalesce(sent_at, created_at) OR sent_at > approved_at" +
		" OR created_at > updated_at OR max(updated_at, coalesce(sent_at, ''), coalesce(approved_at, '')) > ?1",
	"draft estimates":  "SELECT id FROM estimates WHERE (status = 'draft') <> (sent_at IS NULL) OR (status = 'draft') <> (expires_at IS NULL)",
	"expiry":           "SELECT id FROM estimates WHERE status = 'sent' AND expires_at < ?1 OR status = 'expired' AND expires_at >= ?1",
	"approval in time": "SELECT id FROM estimates WHERE (status = 'approved') <> (approved_at IS NOT NULL) OR approved_at > expires_at",
	"draft invoices": "SELECT id FROM invoices WHERE (status = 'draft') <> (sent_at IS NULL) OR (status = 'draft') <> (issued_at IS NULL)" +
		" OR (status = 'draft') <> (due_at IS NULL)",
	"invoices in order": "SELECT id FROM invoices WHERE created_at > coalesce(issued_at, created_at) OR issued_at > sent_at OR sent_at > paid_at" +
		" OR max(created_at, coalesce(sent_at, ''), coalesce(paid_at, '')) > updated_at OR updated_at > ?1",
	"paid at":         "SELECT id FROM invoices WHERE (status = 'paid') <> (paid_at IS NOT NULL)",
	"due":             "SELECT id FROM invoices WHERE status IN ('sent', 'viewed') AND due_at < ?1 OR status = 'overdue' AND due_at >= ?1",
	"jobs' times":     "SELECT id FROM jobs WHERE created_at > updated_at OR updated_at > ?1",
	"contacts' times": "SELECT id FROM contacts WHERE date_created > date_modified OR date_modified > ?1",
	"offerings": "SELECT id FROM offerings WHERE created_at > updated_at OR updated_at > ?1" +
		" OR dont_book_appointment <> (appointment_duration IS NULL) OR instr(name, '%')",
	"equipment's times":  "SELECT id FROM equipment WHERE created_at > updated_at OR updated_at > ?1 OR purchase_date > created_at",
	"tracking":           "SELECT id FROM equipment WHERE (tracking_mode = 'individual') <> (serial_number IS NOT NULL) OR tracking_mode = 'individual' AND quantity <> 1",
	"maintenance":        "SELECT id FROM equipment WHERE (maintenance_interval_days IS NULL OR status = 'retired') <> (next_maintenance_date IS NULL)",
	"events' times":      "SELECT id FROM events WHERE created_at > updated_at OR updated_at > ?1 OR created_at > published_at OR published_at > ?1",
	"sessions' times":    "SELECT title FROM events, json_each(schedule) s WHERE value ->> 'start_time' >= value ->> 'end_time'",
	"sessions in order":  "SELECT title FROM events, json_each(schedule) s WHERE value ->> 'date' <= CASE WHEN s.key > 0 THEN schedule ->> format('$[%d].date', s.key - 1) ELSE '' END",
	"announced before":   "SELECT id FROM events WHERE schedule ->> '$[0].date' IS NULL OR schedule ->> '$[0].date' <= substr(published_at, 1, 10)",
	"single-day":         "SELECT id FROM events WHERE (json_array_length(schedule) = 1) <> (type = 'single-day')",
	"places":             "SELECT id FROM events WHERE (location_type = 'virtual') <> (venue IS NULL) OR (location_type = 'virtual') <> (address IS NULL)",
	"links":              "SELECT id FROM events WHERE (location_type = 'in-person') <> (virtual_link IS NULL)",
	"featured images":    "SELECT id FROM events WHERE image_url IS NOT NULL AND (media ->> '$[0].url' IS NOT image_url OR media ->> '$[0].featured' IS NOT 1)",
	"conversations":      "SELECT id FROM conversations WHERE started_at > ?1 OR ended_at IS NULL OR started_at >= ended_at",
	"appointments":       "SELECT id FROM appointments WHERE starts_at >= ends_at OR created_at > ?1",
	"appointments ahead": "SELECT id FROM appointments WHERE ends_at >= ?1 AND status IN ('completed', 'no_show')",

	"job numbers go up":     "SELECT id FROM (SELECT id, job_number AS n, lag(job_number) OVER (PARTITION BY business_id ORDER BY created_at) AS p FROM jobs) WHERE n <= p",
	"invoice numbers go up": "SELECT id FROM (SELECT id, invoice_number AS n, lag(invoice_number) OVER (PARTITION BY business_id ORDER BY created_at) AS p FROM invoices) WHERE n <= p",
	"contacts' ids go up":   "SELECT id FROM (SELECT id, lag(id) OVER (PARTITION BY business_id ORDER BY date_created) AS p FROM contacts) WHERE id <= p",
	"phone numbers":         "SELECT phone_number FROM contacts WHERE phone_number IS NOT NULL GROUP BY business_id, country_code || phone_number HAVING count(*) > 1",
	"addresses":             "SELECT email FROM contacts WHERE email IS NOT NULL AND contact_type <> 'vendor' GROUP BY business_id, email HAVING count(*) > 1",
	"names of offerings":    "SELECT name FROM offerings GROUP BY business_id, name HAVING count(*) > 1",
	"serial numbers":        "SELECT serial_number FROM equipment WHERE serial_number IS NOT NULL GROUP BY business_id, serial_number HAVING count(*) > 1",
	"events' addresses":     "SELECT url FROM events GROUP BY url HAVING count(*) > 1",

	// Of the businesses that are active.
	"events ahead": "SELECT b.name FROM businesses b WHERE account_status = 'active' AND (SELECT count(*) FROM events" +
		" WHERE business_id = b.id AND status = 'published' AND schedule ->> '$[0].date' > substr(?1, 1, 10)) < 10",
	"something recent": "SELECT b.name FROM businesses b WHERE account_status = 'active' AND min(" +
		"(SELECT max(created_at) FROM jobs WHERE business_id = b.id), (SELECT max(created_at) FROM estimates WHERE business_id = b.id)," +
		" (SELECT max(created_at) FROM invoices WHERE business_id = b.id), (SELECT max(date_created) FROM contacts WHERE business_id = b.id)" +
		") <= strftime('%Y-%m-%dT%H:%M:%SZ', ?1, '-8 days')",
}

// states are those of the records of a business, ?1.
const states = "SELECT 'contact ' || contact_type || ' ' || contact_status FROM contacts WHERE business_id = ?1" +
	" UNION SELECT 'job ' || work_status FROM jobs WHERE business_id = ?1" +
	" UNION SELECT 'estimate ' || status FROM estimates WHERE business_id = ?1" +
	" UNION SELECT 'estimate ' || payment_status FROM estimates WHERE business_id = ?1" +
	" UNION SELECT 'invoice ' || status FROM invoices WHERE business_id = ?1" +
	" UNION SELECT 'offering ' || type || ' ' || status FROM offerings WHERE business_id = ?1" +
	" UNION SELECT 'equipment ' || status FROM equipment WHERE business_id = ?1" +
	" UNION SELECT 'event ' || status FROM events WHERE business_id = ?1" +
	" UNION SELECT 'event ' || type FROM events WHERE business_id = ?1" +
	" UNION SELECT 'event ' || location_type FROM events WHERE business_id = ?1" +
	" UNION SELECT 'appointment ' || status FROM appointments WHERE business_id = ?1"

func TestSeedsAgreeAtAnyTimeOfTheYear(t *testing.T) {
	t.Parallel()
	for _, now := range seasons() {
		t.Run(now.Format(time.DateOnly), func(t *testing.T) {
			t.Parallel()
			st := seedAt(t, now)
			for name, query := range contradictions {
				args := []any{instant(now)}
				if !strings.Contains(query, "?1") {
					args = nil
				}
				require.Empty(t, texts(t, st, query, args...), name)
			}
			for _, b := range active() {
				require.Subset(t, texts(t, st, states, b.ID), []string{
					"contact customer active", "contact customer inactive", "contact lead active", "contact lead inactive", "contact vendor active",
					"job draft", "job sent", "job scheduled", "job in_progress", "job completed", "job cancelled",
					"estimate draft", "estimate sent", "estimate approved", "estimate declined", "estimate expired",
					"estimate unpaid", "estimate partial", "estimate paid",
					"invoice draft", "invoice sent", "invoice viewed", "invoice paid", "invoice overdue", "invoice voided",
					"offering service active", "offering service inactive", "offering product active", "offering product inactive",
					"equipment available", "equipment assigned", "equipment maintenance", "equipment retired",
					"event draft", "event published", "event archived", "event single-day", "event multi-day", "event recurring",
					"event in-person", "event virtual", "event hybrid",
					"appointment scheduled", "appointment confirmed", "appointment completed", "appointment cancelled", "appointment no_show",
				})
			}
		})
	}
}

func TestAClosedAccountHasNothingNew(t *testing.T) {
	t.Parallel()
	for _, query := range []string{
		"SELECT id FROM jobs WHERE business_id = ? AND (created_at > ? OR work_status IN ('scheduled', 'in_progress'))",
		"SELECT id FROM contacts WHERE business_id = ? AND date_modified > ?",
	} {
		require.Empty(t, texts(t, shared.store, query, inactive().ID, instant(testNow.AddDate(0, 0, -150))))
	}
}

func TestTheSameTimeGivesTheSameRecords(t *testing.T) {
	t.Parallel()
	dump := func(st *store) (all []string) {
		for _, table := range []string{
			"businesses", "contacts", "jobs", "estimates", "invoices", "offerings", "equipment", "events", "conversations", "calendars", "appointments",
			"faqs", "services", "automations", "object_types", "objects",
		} {
			view, column := "connect_"+table, "record"
			if strings.HasPrefix(table, "o") && table == "offerings" || table == "equipment" || table == "events" {
				view, column = table, "json"
			}
			all = append(all, strings.Join(texts(t, st, "SELECT "+column+" FROM "+view+" ORDER BY business_id, id"), "\n"))
		}
		return append(all, strings.Join(texts(t, st, "SELECT content || updated_at FROM documents ORDER BY business_id, name"), "\n"))
	}
	first := dump(shared.store)
	require.Equal(t, first, dump(seedAt(t, testNow.In(time.FixedZone("elsewhere", -5*3600)))))
	require.NotEqual(t, first[2], dump(seedAt(t, testNow.AddDate(0, 0, 1)))[2], "jobs")
}

func TestStoredRecordsAreThoseOfTheFiles(t *testing.T) {
	t.Parallel()
	decimal := regexp.MustCompile(`^\d+\.\d\d$`)
	for i, b := range Businesses() {
		zone, err := time.LoadLocation(b.TimeZone)
		require.NoError(t, err)
		s := &seeder{folder: seedFolders()[i], businessID: b.ID, today: testNow.In(zone)}
		for _, resource := range append(lists(), "events") {
			rows := s.rows(resource)
			byID := map[string]map[string]any{}
			for _, record := range everything(t, shared, b.ID, resource) {
				byID[jsonID(record["id"])] = record
			}
			require.Len(t, byID, len(rows), resource)
			for _, row := range rows {
				id := strings.Trim(string(row["id"]), `"`)
				record := byID[id]
				require.NotNil(t, record, "%s %v", resource, id)
				for name, v := range row {
					if stored, ok := record[name].(string); ok && !decimal.MatchString(stored) {
						require.Equal(t, unquote(v), stored, "%s %s: %s", resource, id, name)
					}
				}
			}
		}
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
		require.Equal(t, want, resolveTime(text, today), text)
	}
}

func TestNobodyRealCanBeReached(t *testing.T) {
	t.Parallel()
	// Ranges that are kept for fiction: 555-0100 to 555-0199 in North America, and Ofcom's for drama, of which three are used.
	phones := texts(t, shared.store, "SELECT phone FROM businesses UNION ALL SELECT country_code || phone_number FROM contacts WHERE phone_number IS NOT NULL")
	for _, phone := range phones {
		require.Regexp(t, `^(\+1\d{3}55501\d\d|\+44(1614960|1134960|7700900)\d{3})$`, phone)
	}
	const host = `([a-z0-9-]+\.)*(example\.com|[a-z0-9-]+\.test)`
	addresses := texts(t, shared.store, "SELECT email FROM businesses UNION ALL SELECT email FROM contacts WHERE email IS NOT NULL")
	for _, address := range addresses {
		require.Regexp(t, `^[a-z][a-z0-9.]*@`+host+`$`, address)
	}
	urls := regexp.MustCompile(`https?://[^" ]+`).FindAllString(fmt.Sprint(texts(t, shared.store, "SELECT json FROM events")), -1)
	for _, url := range urls {
		require.Regexp(t, `^https?://`+host+`(/.*)?$`, url)
	}
	for _, found := range [][]string{phones, addresses, urls} {
		require.Greater(t, len(found), 200)
	}
}
