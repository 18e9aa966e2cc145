package demo

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
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

// madeUp is every business at every season, made up once for all tests.
var madeUp = sync.OnceValues(func() (all []seasonal, err error) {
	for _, now := range seasons() {
		for i, p := range profiles() {
			d, err := makeUp(p, i, now)
			if err != nil {
				return nil, err
			}
			all = append(all, seasonal{now.Format(time.DateOnly) + " " + p.business.Slug, instant(now), d})
		}
	}
	return all, nil
})

type seasonal struct {
	name, now string
	data      *dataset
}

// forAll checks every business at every season.
func forAll(t *testing.T, check func(t *testing.T, now string, d *dataset)) {
	t.Helper()
	all, err := madeUp()
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
	for i := range profiles() {
		first, err := makeUp(profiles()[i], i, testNow)
		require.NoError(t, err)
		second, err := makeUp(profiles()[i], i, testNow.In(time.FixedZone("elsewhere", -5*3600)))
		require.NoError(t, err)
		require.Equal(t, first, second)
		later, err := makeUp(profiles()[i], i, testNow.AddDate(0, 0, 1))
		require.NoError(t, err)
		require.NotEqual(t, first.jobs, later.jobs)
		require.Equal(t, first.business.ID, later.business.ID)
	}
}

func TestTheStoredRecordsAreTheMadeUpOnes(t *testing.T) {
	t.Parallel()
	for i, p := range profiles() {
		d, err := makeUp(p, i, testNow)
		require.NoError(t, err)
		requireStored(t, p, "contacts", contactFields(), d.contacts)
		requireStored(t, p, "equipment", equipmentFields(), d.equipment)
		requireStored(t, p, "estimates", estimateFields(), d.estimates)
		requireStored(t, p, "invoices", invoiceFields(), d.invoices)
		requireStored(t, p, "jobs", jobFields(), d.jobs)
		requireStored(t, p, "offerings", offeringFields(), d.offerings)
		events := everyEvent(t, shared, p.business.ID)
		require.Len(t, events, len(d.events))
		byID := map[string]*event{}
		for i := range d.events {
			byID[d.events[i].ID] = &d.events[i]
		}
		for i := range events {
			require.Equal(t, byID[events[i].ID], &events[i])
		}
	}
}

func requireStored[T any](t *testing.T, p *profile, resource string, fields []field[T], made []T) {
	t.Helper()
	stored := everything(t, shared, p.business.ID, resource)
	require.Len(t, stored, len(made))
	byID := map[any]map[string]any{}
	for _, record := range stored {
		byID[record["id"]] = record
	}
	for i := range made {
		var record map[string]any
		require.NoError(t, json.Unmarshal(appendRecord(nil, fields, &made[i]), &record))
		require.Equal(t, record, byID[record["id"]])
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

func requirePriceAddsUp(t *testing.T, p price) {
	t.Helper()
	require.Equal(t, p.Total, p.Subtotal-p.DiscountAmount+p.TaxAmount)
	require.Equal(t, (p.Subtotal - p.DiscountAmount).percent(p.TaxRate), p.TaxAmount)
	require.Positive(t, p.Total)
	require.Equal(t, p.DiscountType == nil, p.DiscountValue == nil)
	switch {
	case p.DiscountType == nil:
		require.Zero(t, p.DiscountAmount)
	case *p.DiscountType == discountPercentage:
		require.Equal(t, p.Subtotal.percent(*p.DiscountValue), p.DiscountAmount)
	default:
		require.Equal(t, discountFixed, *p.DiscountType)
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
			requirePriceAddsUp(t, inv.Price)
			j := jobs[*inv.JobID]
			require.Equal(t, "completed", j.Status, "only finished work is billed")
			require.Equal(t, j.TotalAmount, inv.Price.Total)
			require.Equal(t, j.ContactID, inv.ContactID)
			if inv.Status == "voided" {
				require.Zero(t, inv.PaidAmount)
				continue
			}
			require.NotContains(t, billed, j.ID, "work is billed once")
			billed[j.ID] = inv.PaidAmount
			require.Equal(t, j.TotalAmount-inv.PaidAmount, j.OutstandingBalance)
			require.Equal(t, inv.Status == "paid", inv.PaidAmount == inv.Price.Total)
		}
		for _, e := range d.estimates {
			requirePriceAddsUp(t, e.Price)
			require.Equal(t, e.DepositRequired, e.DepositAmount != nil)
			require.Equal(t, e.Status == "approved", e.JobID != nil)
			if e.JobID == nil {
				require.Zero(t, e.AmountPaid)
				require.Equal(t, "unpaid", e.PaymentStatus)
				continue
			}
			j := jobs[*e.JobID]
			require.Equal(t, j.TotalAmount, e.Price.Total)
			require.Equal(t, j.ContactID, e.ContactID)
			if j.Status != "cancelled" {
				require.Equal(t, j.TotalAmount-j.OutstandingBalance, e.AmountPaid)
			}
			switch e.PaymentStatus {
			case "unpaid":
				require.Zero(t, e.AmountPaid)
			case "partial":
				require.Positive(t, e.AmountPaid)
				require.Less(t, e.AmountPaid, e.Price.Total)
			default:
				require.Equal(t, e.Price.Total, e.AmountPaid)
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
	closed := instant(testNow.AddDate(0, 0, -saltbush().closedAgo))
	d, err := makeUp(saltbush(), 2, testNow)
	require.NoError(t, err)
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
	for i, p := range profiles() {
		require.Regexp(t, fictitious, p.business.Phone)
		require.Regexp(t, host, after(p.business.Email, "@"))
		d, err := makeUp(p, i, testNow)
		require.NoError(t, err)
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
	require.Equal(t, decimal(712), decimal(12950).percent(550))
	require.Equal(t, decimal(1), decimal(10).percent(500), "half a cent is rounded up")
	require.Equal(t, decimal(0), decimal(9).percent(500))
}
