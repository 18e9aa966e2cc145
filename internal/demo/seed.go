package demo

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
	_ "time/tzdata" // a minimal image has no time zones of its own

	"github.com/google/uuid"
)

// profiles are the businesses that a new database is filled with.
func profiles() [businessCount]*profile {
	return [...]*profile{fernhollow(), kestrelRow(), saltbush()}
}

const businessCount = 3

// Businesses gives the accounts that a new database is filled with: two active
// ones, then an inactive one. They are the same at every time.
func Businesses() []Business {
	all := profiles()
	businesses := make([]Business, len(all))
	for i, p := range all {
		businesses[i] = p.business
	}
	return businesses
}

// dataset is the records of one business.
type dataset struct {
	business  businessRow
	contacts  []contact
	jobs      []job
	estimates []estimate
	invoices  []invoice
	offerings []offering
	equipment []equipment
	events    []event
}

// seed fills a database that has no businesses yet, all or nothing.
func seed(ctx context.Context, st *store, now time.Time) error {
	return fill(ctx, st, func() ([]*dataset, error) {
		var all []*dataset
		for i, p := range profiles() {
			d, err := makeUp(p, i, now)
			if err != nil {
				return nil, err
			}
			all = append(all, d)
		}
		return all, nil
	})
}

// fill writes what makeAll gives into a database that has no businesses yet.
func fill(ctx context.Context, st *store, makeAll func() ([]*dataset, error)) error {
	if existing, err := st.businesses(ctx); err != nil || len(existing) > 0 {
		return err
	}
	all, err := makeAll()
	if err != nil {
		return err
	}
	return st.write(ctx, func(tx *sql.Tx) error {
		// Look again, now that nobody else can write: another process may have
		// opened the same file.
		var filled bool
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM businesses)").Scan(&filled); err != nil || filled {
			return err
		}
		for _, d := range all {
			if err := d.insert(ctx, tx, st); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *dataset) insert(ctx context.Context, tx *sql.Tx, st *store) error {
	var sessions []session
	var media []medium
	for i := range d.events {
		sessions = append(sessions, d.events[i].Schedule...)
		media = append(media, d.events[i].Media...)
	}
	// In this order, so that what is referred to is there.
	steps := []func() error{
		func() error { return insert(ctx, tx, "businesses", st.businessFields, []businessRow{d.business}) },
		func() error { return insert(ctx, tx, st.contacts.table, st.contacts.fields, d.contacts) },
		func() error { return insert(ctx, tx, st.jobs.table, st.jobs.fields, d.jobs) },
		func() error { return insert(ctx, tx, st.estimates.table, st.estimates.fields, d.estimates) },
		func() error { return insert(ctx, tx, st.invoices.table, st.invoices.fields, d.invoices) },
		func() error { return insert(ctx, tx, st.offerings.table, st.offerings.fields, d.offerings) },
		func() error { return insert(ctx, tx, st.equipment.table, st.equipment.fields, d.equipment) },
		func() error { return insert(ctx, tx, st.events.table, st.events.fields, d.events) },
		func() error { return insert(ctx, tx, st.sessions.table, st.sessions.fields, sessions) },
		func() error { return insert(ctx, tx, st.media.table, st.media.fields, media) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// seeder makes up the records of one business. It draws from a sequence of its
// own, so that a change to one business leaves the others as they were.
type seeder struct {
	*profile
	*rand.Rand
	index int // of the business

	zone  *time.Location
	now   time.Time // what is due by then is overdue
	start time.Time // when the records begin
	end   time.Time // when people stopped working with them: now, or before

	people  []person // customers and leads, oldest first
	sites   *deck
	numbers map[string]bool
	emails  map[string]bool
	slugs   map[string]bool
	data    dataset
}

func makeUp(p *profile, index int, now time.Time) (*dataset, error) {
	zone, err := time.LoadLocation(p.business.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("making up %s: %w", p.business.Name, err)
	}
	now = now.UTC().Truncate(time.Second)
	s := &seeder{
		profile: p,
		Rand:    rand.New(rand.NewPCG(p.random, 20)), //nolint:gosec // G404: reproducible on purpose, nothing is secret here
		index:   index,
		zone:    zone,
		now:     now,
		start:   now.AddDate(0, 0, -p.foundedAgo),
		end:     now.AddDate(0, 0, -p.closedAgo),
		sites:   &deck{cards: p.siteNotes},
		numbers: map[string]bool{p.business.Phone: true},
		emails:  map[string]bool{},
		slugs:   map[string]bool{},
	}
	s.data.business = businessRow{
		ID: p.business.ID, Name: p.business.Name, Slug: p.business.Slug,
		Email: &p.business.Email, Phone: &p.business.Phone, WebsiteURL: &p.business.WebsiteURL,
		TimeZone: p.business.TimeZone, AccountStatus: p.business.AccountStatus,
		// An hour apart, so that they keep their order.
		CreatedAt: instant(s.start.Add(time.Duration(index-24) * time.Hour)),
		UpdatedAt: instant(s.end),
	}
	s.makeContacts()
	s.makeSales()
	s.finishContacts()
	s.makeOfferings()
	s.makeEquipment()
	s.makeEvents()
	return &s.data, nil
}

// The dice.

func pick[T any](s *seeder, from []T) T { return from[s.IntN(len(from))] }

// deck gives its cards in random order, all of them before the first comes again.
type deck struct{ cards, left []string }

func (d *deck) draw(s *seeder) string {
	if len(d.left) == 0 {
		d.left = slices.Clone(d.cards)
	}
	i := s.IntN(len(d.left))
	card := d.left[i]
	d.left = slices.Delete(d.left, i, i+1)
	return card
}

func (s *seeder) chance(percent int) bool { return s.IntN(100) < percent }

func (s *seeder) in(r span) int { return r.from + s.IntN(r.to-r.from+1) }

// between gives a duration from a up to b.
func (s *seeder) between(a, b time.Duration) time.Duration {
	return a + time.Duration(s.Int64N(int64(b-a)+1))
}

// wait gives a duration that is mostly about mean, and now and then long.
func (s *seeder) wait(mean time.Duration) time.Duration {
	return time.Duration(s.ExpFloat64() * float64(mean))
}

func (s *seeder) uuid() string {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], s.Uint64())
	binary.BigEndian.PutUint64(id[8:], s.Uint64())
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// The calendar.

const day = 24 * time.Hour

// office moves t to office hours: a time of a working day near t.
func (s *seeder) office(t time.Time) time.Time {
	local := t.In(s.zone)
	switch local.Weekday() {
	case time.Sunday:
		local = local.AddDate(0, 0, 1)
	case time.Saturday:
		if s.chance(70) {
			local = local.AddDate(0, 0, -1)
		}
	}
	second := 7*3600 + 1800 + s.IntN(10*3600)
	return time.Date(local.Year(), local.Month(), local.Day(), 0, 0, second, 0, s.zone).UTC()
}

// after gives a time in office hours about d after t.
func (s *seeder) after(t time.Time, d time.Duration) time.Time {
	next := s.office(t.Add(d))
	if !next.After(t) {
		next = t.Add(s.between(3*time.Minute, 50*time.Minute))
	}
	return next
}

// sometime gives a time at which a record was made: business has grown, and a
// quarter of it all is of the last two months.
func (s *seeder) sometime() time.Time {
	span := s.end.Sub(s.start)
	var t time.Time
	if s.chance(25) {
		t = s.end.Add(-s.between(0, 60*day))
	} else {
		t = s.start.Add(time.Duration(math.Pow(s.Float64(), 0.7) * float64(span)))
	}
	return s.notLater(s.office(t))
}

// notLater moves t before the end of the records when it is after it.
func (s *seeder) notLater(t time.Time) time.Time {
	if t.After(s.end) {
		return s.end.Add(-s.between(time.Minute, 3*time.Hour)).Truncate(time.Second)
	}
	return t
}

// follows gives a time in office hours about d after t at which someone came back
// to a record, or t itself when that is still to come.
func (s *seeder) follows(t time.Time, d time.Duration) time.Time {
	if next := s.after(t, d); !next.After(s.end) {
		return next
	}
	return t
}

// endOfDay gives the last second of the local day that is so many days after t.
func (s *seeder) endOfDay(t time.Time, days int) time.Time {
	local := t.In(s.zone)
	return time.Date(local.Year(), local.Month(), local.Day()+days, 23, 59, 59, 0, s.zone).UTC()
}

// morning gives the beginning of work on the working day that is so many days after t.
func (s *seeder) morning(t time.Time, days int) time.Time {
	local := t.In(s.zone).AddDate(0, 0, days)
	if local.Weekday() == time.Sunday {
		local = local.AddDate(0, 0, 1)
	}
	return time.Date(local.Year(), local.Month(), local.Day(), 8, 0, 0, 0, s.zone).UTC()
}

func date(t time.Time) string { return t.Format(time.DateOnly) }

// at is an instant that a record may lack.
func at(t time.Time) *string { return new(instant(t)) }

// oldestFirst orders records by when they were made, as papers are numbered.
func oldestFirst[T any](records []T, created func(*T) string) {
	slices.SortStableFunc(records, func(a, b T) int { return cmp.Compare(created(&a), created(&b)) })
}
