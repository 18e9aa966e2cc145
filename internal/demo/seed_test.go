package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
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

// dataset is the records of one business as they are stored, oldest first.
type dataset struct {
	business      businessRow
	contacts      []contact
	jobs          []job
	estimates     []estimate
	invoices      []invoice
	offerings     []offering
	equipment     []equipment
	events        []event
	conversations []conversation
	appointments  []appointment
}

type seasonal struct {
	name, now string
	data      *dataset
}

// seeded is every business at every season, seeded once for all tests.
var seeded = sync.OnceValues(func() ([]seasonal, error) {
	all := make([]seasonal, len(seasons())*len(Businesses()))
	var group errgroup.Group
	for i, now := range seasons() {
		group.Go(func() error {
			data, err := seedAt(now)
			for j, d := range data {
				all[i*len(data)+j] = seasonal{now.Format(time.DateOnly) + " " + d.business.Slug, instant(now), d}
			}
			return err
		})
	}
	return all, group.Wait()
})

// seedAt fills a database at the given time and reads it.
func seedAt(now time.Time) (all []*dataset, err error) {
	ctx := context.Background()
	st, err := openStore(ctx, Memory)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := seed(ctx, st, now, demoHash, seedFolders()...); err != nil {
		return nil, err
	}
	businesses, err := st.businesses(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range businesses {
		d := &dataset{business: b}
		all = append(all, d)
		if d.events, err = st.eventPage(ctx, b.ID, "", 10000); err != nil {
			return nil, err
		}
		if err := st.read(ctx, func(tx *sql.Tx) error {
			return errors.Join(
				readAll(tx, &d.contacts, "contacts", "date_created", fieldsOf[contact](), b.ID),
				readAll(tx, &d.jobs, "jobs", "created_at", fieldsOf[job](), b.ID),
				readAll(tx, &d.estimates, "estimates", "created_at", fieldsOf[estimate](), b.ID),
				readAll(tx, &d.invoices, "invoices", "created_at", fieldsOf[invoice](), b.ID),
				readAll(tx, &d.offerings, "offerings", "created_at", fieldsOf[offering](), b.ID),
				readAll(tx, &d.equipment, "equipment", "created_at", fieldsOf[equipment](), b.ID),
				readAll(tx, &d.conversations, "connect_conversations", "started_at", fieldsOf[conversation](), b.ID),
				readAll(tx, &d.appointments, "connect_appointments", "starts_at", fieldsOf[appointment](), b.ID))
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func readAll[T any](tx *sql.Tx, to *[]T, table, order string, fields []field[T], businessID string) error {
	rows, err := tx.Query("SELECT "+columns(fields)+" FROM "+table+" WHERE business_id = ? ORDER BY "+order, businessID)
	if err != nil {
		return err
	}
	*to, err = collect(rows, fields, 0)
	return err
}

// atTestTime is every business at testNow.
func atTestTime(t *testing.T) []*dataset {
	t.Helper()
	all, err := seeded()
	require.NoError(t, err)
	require.Equal(t, instant(testNow), all[0].now)
	return []*dataset{all[0].data, all[1].data, all[2].data}
}

// forAll checks every business at every season.
func forAll(t *testing.T, check func(t *testing.T, now string, d *dataset)) {
	t.Helper()
	all, err := seeded()
	require.NoError(t, err)
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			check(t, s.now, s.data)
		})
	}
}

func TestTheSameTimeGivesTheSameRecords(t *testing.T) {
	t.Parallel()
	first := atTestTime(t)
	second, err := seedAt(testNow.In(time.FixedZone("elsewhere", -5*3600)))
	require.NoError(t, err)
	require.Equal(t, first, second)
	later, err := seedAt(testNow.AddDate(0, 0, 1))
	require.NoError(t, err)
	for i := range first {
		require.NotEqual(t, first[i].jobs, later[i].jobs)
		require.Equal(t, first[i].business.ID, later[i].business.ID)
	}
}

func TestTheStoredRecordsAreThoseOfTheFiles(t *testing.T) {
	t.Parallel()
	for i, b := range Businesses() {
		zone, err := time.LoadLocation(b.TimeZone)
		require.NoError(t, err)
		s := &seeder{folder: seedFolders()[i], businessID: b.ID, today: testNow.In(zone)}
		for _, resource := range append(lists(), "events") {
			rows, err := s.read(resource)
			require.NoError(t, err)
			byID := map[string]map[string]any{}
			for _, record := range everything(t, shared, b.ID, resource) {
				byID[jsonID(record["id"])] = record
			}
			require.Len(t, byID, len(rows), resource)
			for _, row := range rows {
				record := byID[fmt.Sprint(row["id"])]
				require.NotNil(t, record, "%s %v", resource, row["id"])
				for name, v := range row {
					if stored, ok := record[name].(string); ok && !regexp.MustCompile(`^\d+\.\d\d$`).MatchString(stored) {
						require.Equal(t, v, stored, "%s %v: %s", resource, row["id"], name)
					}
				}
			}
		}
	}
}

func TestTimesInSeedFilesAreRelativeToTheDayOfTheBusiness(t *testing.T) {
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

func TestEveryStateOccursAtAnyTimeOfTheYear(t *testing.T) {
	t.Parallel()
	forAll(t, func(t *testing.T, _ string, d *dataset) {
		t.Helper()
		if d.business.AccountStatus != AccountActive {
			return
		}
		seen := map[string]int{}
		for _, c := range d.contacts {
			seen["contact "+c.Type+" "+c.Status]++
		}
		for _, j := range d.jobs {
			seen["job "+j.Status]++
		}
		for _, e := range d.estimates {
			seen["estimate "+e.Status]++
			seen["estimate "+e.PaymentStatus]++
		}
		for _, inv := range d.invoices {
			seen["invoice "+inv.Status]++
		}
		for _, o := range d.offerings {
			seen["offering "+o.Type+" "+o.Status]++
		}
		for _, e := range d.equipment {
			seen["equipment "+e.Status]++
		}
		for _, e := range d.events {
			seen["event "+e.Status]++
			seen["event "+e.Type]++
			seen["event "+e.LocationType]++
		}
		for _, state := range []string{
			"contact customer active", "contact customer inactive", "contact lead active", "contact lead inactive", "contact vendor active",
			"job draft", "job sent", "job scheduled", "job in_progress", "job completed", "job cancelled",
			"estimate draft", "estimate sent", "estimate approved", "estimate declined", "estimate expired",
			"estimate unpaid", "estimate partial", "estimate paid",
			"invoice draft", "invoice sent", "invoice viewed", "invoice paid", "invoice overdue", "invoice voided",
			"offering service active", "offering service inactive", "offering product active", "offering product inactive",
			"equipment available", "equipment assigned", "equipment maintenance", "equipment retired",
			"event draft", "event published", "event archived", "event single-day", "event multi-day", "event recurring",
			"event in-person", "event virtual", "event hybrid",
		} {
			require.Positive(t, seen[state], state)
		}
	})
}

// percent returns rate percent of d, rounded half up.
func percent(d, rate decimal) decimal { return (d*rate + 5000) / 10000 }

func requirePriceAddsUp(t *testing.T, p price) {
	t.Helper()
	require.Equal(t, p.Total, p.Subtotal-p.DiscountAmount+p.TaxAmount)
	require.Equal(t, percent(p.Subtotal-p.DiscountAmount, p.TaxRate), p.TaxAmount)
	require.Positive(t, p.Total)
	require.Equal(t, p.DiscountType == nil, p.DiscountValue == nil)
	switch {
	case p.DiscountType == nil:
		require.Zero(t, p.DiscountAmount)
	case *p.DiscountType == "percentage":
		require.Equal(t, percent(p.Subtotal, *p.DiscountValue), p.DiscountAmount)
	default:
		require.Equal(t, "fixed", *p.DiscountType)
		require.Equal(t, *p.DiscountValue, p.DiscountAmount)
	}
}

func TestMoneyAgreesBetweenEstimateJobAndInvoice(t *testing.T) {
	t.Parallel()
	forAll(t, func(t *testing.T, _ string, d *dataset) {
		t.Helper()
		jobs := map[string]*job{}
		for i := range d.jobs {
			jobs[d.jobs[i].ID] = &d.jobs[i]
		}
		billed := map[string]decimal{}
		for _, inv := range d.invoices {
			requirePriceAddsUp(t, inv.price)
			j := jobs[*inv.JobID]
			require.Equal(t, "completed", j.Status, "only finished work is billed")
			require.Equal(t, j.TotalAmount, inv.price.Total)
			require.Equal(t, j.ContactID, inv.ContactID)
			if inv.Status == "voided" {
				require.Zero(t, inv.PaidAmount)
				continue
			}
			require.NotContains(t, billed, j.ID, "work is billed once")
			billed[j.ID] = inv.PaidAmount
			require.Equal(t, j.TotalAmount-inv.PaidAmount, j.OutstandingBalance)
			require.Equal(t, inv.Status == "paid", inv.PaidAmount == inv.price.Total)
		}
		for _, e := range d.estimates {
			requirePriceAddsUp(t, e.price)
			require.Equal(t, e.DepositRequired, e.DepositAmount != nil)
			require.Equal(t, e.Status == "approved", e.JobID != nil)
			if e.JobID == nil {
				require.Zero(t, e.AmountPaid)
				require.Equal(t, "unpaid", e.PaymentStatus)
				continue
			}
			j := jobs[*e.JobID]
			require.Equal(t, j.TotalAmount, e.price.Total)
			require.Equal(t, j.ContactID, e.ContactID)
			if j.Status != "cancelled" {
				require.Equal(t, j.TotalAmount-j.OutstandingBalance, e.AmountPaid)
			}
			switch e.PaymentStatus {
			case "unpaid":
				require.Zero(t, e.AmountPaid)
			case "partial":
				require.Positive(t, e.AmountPaid)
				require.Less(t, e.AmountPaid, e.price.Total)
			default:
				require.Equal(t, e.price.Total, e.AmountPaid)
			}
		}
		for _, j := range d.jobs {
			if j.Status == "cancelled" {
				require.Zero(t, j.OutstandingBalance)
			}
		}
	})
}

// requireOrder holds times, of which some may be absent, to their order.
func requireOrder(t *testing.T, times ...*string) {
	t.Helper()
	last := ""
	for _, at := range times {
		if at != nil {
			require.LessOrEqual(t, last, *at)
			last = *at
		}
	}
}

func TestStatusesAgreeWithTheirTimes(t *testing.T) {
	t.Parallel()
	forAll(t, func(t *testing.T, now string, d *dataset) {
		t.Helper()
		for _, e := range d.estimates {
			requireOrder(t, &e.CreatedAt, e.SentAt, e.ApprovedAt, &now)
			requireOrder(t, &e.CreatedAt, &e.UpdatedAt, &now)
			require.Equal(t, e.Status == "draft", e.SentAt == nil)
			require.Equal(t, e.Status == "draft", e.ExpiresAt == nil)
			require.Equal(t, e.Status == "approved", e.ApprovedAt != nil)
			switch e.Status {
			case "sent":
				require.GreaterOrEqual(t, *e.ExpiresAt, now)
			case "expired":
				require.Less(t, *e.ExpiresAt, now)
			case "approved":
				require.LessOrEqual(t, *e.ApprovedAt, *e.ExpiresAt)
			}
		}
		for _, inv := range d.invoices {
			requireOrder(t, &inv.CreatedAt, inv.IssuedAt, inv.SentAt, inv.PaidAt, &inv.UpdatedAt, &now)
			require.Equal(t, inv.Status == "draft", inv.SentAt == nil)
			require.Equal(t, inv.Status == "draft", inv.IssuedAt == nil)
			require.Equal(t, inv.Status == "draft", inv.DueAt == nil)
			require.Equal(t, inv.Status == "paid", inv.PaidAt != nil)
			switch inv.Status {
			case "sent", "viewed":
				require.GreaterOrEqual(t, *inv.DueAt, now)
			case "overdue":
				require.Less(t, *inv.DueAt, now)
			}
		}
		for _, j := range d.jobs {
			requireOrder(t, &j.CreatedAt, &j.UpdatedAt, &now)
		}
		for _, c := range d.contacts {
			requireOrder(t, &c.DateCreated, &c.DateModified, &now)
		}
		for _, o := range d.offerings {
			requireOrder(t, &o.CreatedAt, &o.UpdatedAt, &now)
			require.Equal(t, o.DontBookAppointment, o.AppointmentDuration == nil)
		}
		for _, e := range d.equipment {
			requireOrder(t, &e.CreatedAt, &e.UpdatedAt, &now)
			requireOrder(t, e.PurchaseDate, &e.CreatedAt)
			require.Equal(t, e.TrackingMode == "individual", e.SerialNumber != nil)
			if e.TrackingMode == "individual" {
				require.EqualValues(t, 1, e.Quantity)
			}
			require.Equal(t, e.MaintenanceIntervalDays == nil || e.Status == "retired", e.NextMaintenanceDate == nil)
		}
		for _, e := range d.events {
			requireOrder(t, &e.CreatedAt, e.PublishedAt, &now)
			requireOrder(t, &e.CreatedAt, &e.UpdatedAt, &now)
			for i, s := range e.Schedule {
				require.Less(t, s.StartTime, s.EndTime)
				if i > 0 {
					require.Greater(t, s.Date, e.Schedule[i-1].Date)
				}
			}
			first := e.Schedule[0].Date
			if e.PublishedAt != nil {
				require.Greater(t, first, (*e.PublishedAt)[:10], "announced before it takes place")
			}
			require.Equal(t, len(e.Schedule) == 1, e.Type == "single-day")
			require.Equal(t, e.LocationType == "virtual", e.Venue == nil)
			require.Equal(t, e.LocationType == "virtual", e.Address == nil)
			require.Equal(t, e.LocationType == "in-person", e.VirtualLink == nil)
			if e.ImageURL != nil {
				require.Equal(t, *e.ImageURL, e.Media[0].URL)
				require.True(t, e.Media[0].Featured)
			}
		}
	})
}

func TestThereIsSomethingComingUpAndSomethingRecent(t *testing.T) {
	t.Parallel()
	forAll(t, func(t *testing.T, now string, d *dataset) {
		t.Helper()
		if d.business.AccountStatus != AccountActive {
			return
		}
		at, err := time.Parse(time.RFC3339, now)
		require.NoError(t, err)
		lastWeek, today := instant(at.AddDate(0, 0, -8)), now[:10]
		ahead := 0
		for _, e := range d.events {
			if e.Status == eventPublished && e.Schedule[0].Date > today {
				ahead++
			}
		}
		require.GreaterOrEqual(t, ahead, 10)
		require.Greater(t, d.jobs[len(d.jobs)-1].CreatedAt, lastWeek)
		require.Greater(t, d.estimates[len(d.estimates)-1].CreatedAt, lastWeek)
		require.Greater(t, d.invoices[len(d.invoices)-1].CreatedAt, lastWeek)
		require.Greater(t, d.contacts[len(d.contacts)-1].DateCreated, lastWeek)
	})
}

func TestAClosedAccountHasNothingNew(t *testing.T) {
	t.Parallel()
	closed := instant(testNow.AddDate(0, 0, -150))
	d := atTestTime(t)[2]
	for _, j := range d.jobs {
		require.LessOrEqual(t, j.CreatedAt, closed)
		require.NotContains(t, []string{"scheduled", "in_progress"}, j.Status)
	}
	for _, c := range d.contacts {
		require.LessOrEqual(t, c.DateModified, closed)
	}
}

func TestNumbersAndNamesAreUniqueAndGoUpWithTime(t *testing.T) {
	t.Parallel()
	forAll(t, func(t *testing.T, _ string, d *dataset) {
		t.Helper()
		seen := map[string]bool{}
		unique := func(what, value string) {
			require.False(t, seen[what+value], "%s %s occurs twice", what, value)
			seen[what+value] = true
		}
		last := ""
		for _, j := range d.jobs {
			unique("job", j.Number)
			require.Greater(t, j.Number, last)
			last = j.Number
		}
		last = ""
		for _, inv := range d.invoices {
			unique("invoice", inv.Number)
			require.Greater(t, inv.Number, last)
			last = inv.Number
		}
		var lastID int64
		for _, c := range d.contacts {
			require.Greater(t, c.ID, lastID)
			lastID = c.ID
			if c.PhoneNumber != nil {
				unique("phone", *c.CountryCode+*c.PhoneNumber)
			}
			if c.Email != nil && c.Type != "vendor" {
				unique("email", *c.Email)
			}
		}
		for _, o := range d.offerings {
			unique("offering", o.Name)
			require.NotContains(t, o.Name, "%")
		}
		for _, e := range d.equipment {
			unique("equipment", e.Number)
			if e.SerialNumber != nil {
				unique("serial", *e.SerialNumber)
			}
		}
		for _, e := range d.events {
			unique("event", e.URL)
		}
	})
}

// Ranges that are kept for fiction: 555-0100 to 555-0199 in North America, and
// Ofcom's for drama, of which three are used.
var fictitious = regexp.MustCompile(`^(\+1\d{3}55501\d\d|\+44(1614960|1134960|7700900)\d{3})$`)

func TestNobodyRealCanBeReached(t *testing.T) {
	t.Parallel()
	host := regexp.MustCompile(`^([a-z0-9-]+\.)*(example\.com|[a-z0-9-]+\.test)$`)
	for _, d := range atTestTime(t) {
		require.Regexp(t, fictitious, *d.business.Phone)
		require.Regexp(t, host, after(*d.business.Email, "@"))
		for _, c := range d.contacts {
			if c.PhoneNumber != nil {
				require.Regexp(t, fictitious, *c.CountryCode+*c.PhoneNumber)
			}
			if c.Email != nil {
				require.Regexp(t, host, after(*c.Email, "@"))
				require.Regexp(t, `^[a-z][a-z0-9.]*$`, strings.Split(*c.Email, "@")[0])
			}
		}
		for _, text := range regexp.MustCompile(`https?://[^/" ]+`).FindAllString(fmt.Sprintf("%+v", d.events), -1) {
			require.Regexp(t, host, after(text, "://"))
		}
		for _, e := range d.events {
			require.Regexp(t, host, strings.Split(after(e.URL, "://"), "/")[0])
			if e.VirtualLink != nil {
				require.Regexp(t, host, strings.Split(after(*e.VirtualLink, "://"), "/")[0])
			}
			for _, m := range e.Media {
				require.Regexp(t, host, strings.Split(after(m.URL, "://"), "/")[0])
			}
		}
	}
}

func after(s, sep string) string {
	_, rest, _ := strings.Cut(s, sep)
	return rest
}

func TestDecimalsHaveTwoPlaces(t *testing.T) {
	t.Parallel()
	for d, want := range map[decimal]string{0: "0.00", 5: "0.05", 50: "0.50", 100: "1.00", 947188: "9471.88", -7: "-0.07", -12345: "-123.45"} {
		require.Equal(t, want, d.String())
	}
	require.Equal(t, decimal(712), percent(12950, 550))
	require.Equal(t, decimal(1), percent(10, 500), "half a cent is rounded up")
	require.Equal(t, decimal(0), percent(9, 500))
}
