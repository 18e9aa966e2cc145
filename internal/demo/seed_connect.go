package demo

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// connectProfile is what the records of one business that only /connect/v1 serves
// are drawn from. All of it is invented, like a profile's.
type connectProfile struct {
	base         *profile
	accounts     []Account
	hours        []openSpan
	areas        []serviceArea
	receptionist receptionist
	faqs         [][2]string
	offers       []bookable
	calendars    []calendar
	visits       []visit
	scripts      []script
	letters      []script // each comes once, a few days before the end
	places       []string
	types        []typeProfile
}

// visit is a kind of appointment.
type visit struct {
	title   string
	minutes int
	notes   string
}

// script is how a conversation goes. In its texts {name} is the caller's first
// name, {greeting} the receptionist's, {place} an address, {day} a day to come.
type script struct {
	channel, outcome, summary string
	stranger                  bool   // nobody of the contacts
	name, address             string // of a stranger whose name matters
	lines                     []said
}

type said struct{ from, text string }

// typeProfile is a type of objects with its objects, oldest first.
type typeProfile struct {
	objectType
	objects []map[string]any
}

func connectProfiles() []*connectProfile {
	return []*connectProfile{fernhollowConnect(), kestrelRowConnect(), saltbushConnect()}
}

// connectSet is the records of one business that only /connect/v1 serves.
type connectSet struct {
	accounts      []accountRow
	hours         document[[]openSpan]
	areas         document[[]serviceArea]
	receptionist  document[receptionist]
	faqs          []faq
	services      []bookable
	calendars     []calendar
	appointments  []appointment
	conversations []conversation
	messages      []message
	automations   []automation
	types         []objectType
	objects       []object
}

// seedConnect gives the demo's businesses what /connect/v1 needs, where they have
// none of it yet: a new database, or one of an earlier version. hash gives what is
// kept of a password.
func seedConnect(ctx context.Context, st *store, now time.Time, hash func(string) string) error {
	for i, p := range connectProfiles() {
		contacts, missing, err := contactsWithoutConnect(ctx, st, p.base.business.ID)
		if err != nil {
			return err
		}
		if !missing {
			continue
		}
		set, err := p.makeUpConnect(i, contacts, now, hash)
		if err != nil {
			return fmt.Errorf("making up %s: %w", p.base.business.Name, err)
		}
		if err := st.write(ctx, func(tx *sql.Tx) error {
			// Look again, now that nobody else can write.
			if missing, err := lacksConnect(ctx, tx, p.base.business.ID); err != nil || !missing {
				return err
			}
			return set.insert(ctx, tx, p.base.business.ID)
		}); err != nil {
			return err
		}
	}
	return nil
}

// lacksConnect says whether there is the business without the accounts that it is
// given with all the rest.
func lacksConnect(ctx context.Context, tx *sql.Tx, businessID string) (missing bool, err error) {
	err = tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM businesses WHERE id = ?1)"+
		" AND NOT EXISTS (SELECT 1 FROM accounts WHERE business_id = ?1)", businessID).Scan(&missing)
	return missing, err
}

func contactsWithoutConnect(ctx context.Context, st *store, businessID string) (contacts []contact, missing bool, err error) {
	err = st.read(ctx, func(tx *sql.Tx) error {
		if missing, err = lacksConnect(ctx, tx, businessID); err != nil || !missing {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT "+columns(contactFields())+
			" FROM contacts WHERE business_id = ? AND contact_type <> 'vendor' ORDER BY id", businessID)
		if err != nil {
			return err
		}
		contacts, err = collect(rows, contactFields(), 0)
		return err
	})
	return contacts, missing, err
}

func (d *connectSet) insert(ctx context.Context, tx *sql.Tx, businessID string) error {
	steps := []func() error{
		func() error { return insert(ctx, tx, "accounts", accountFields(), d.accounts) },
		func() error { return insertDocument(ctx, tx, businessID, documentHours, &d.hours) },
		func() error { return insertDocument(ctx, tx, businessID, documentServiceAreas, &d.areas) },
		func() error { return insertDocument(ctx, tx, businessID, documentReceptionist, &d.receptionist) },
		func() error { return insert(ctx, tx, "receptionist_faqs", faqFields(), d.faqs) },
		func() error { return insert(ctx, tx, "receptionist_services", serviceFields(), d.services) },
		func() error { return insert(ctx, tx, "calendars", calendarKind().fields, d.calendars) },
		func() error { return insert(ctx, tx, "appointments", appointmentFields(), d.appointments) },
		func() error { return insert(ctx, tx, "conversations", conversationFields(), d.conversations) },
		func() error { return insert(ctx, tx, "messages", messageFields(), d.messages) },
		func() error { return insert(ctx, tx, "automations", automationFields(), d.automations) },
		func() error { return insert(ctx, tx, "object_types", objectTypeFields(), d.types) },
		func() error { return insert(ctx, tx, "objects", objectKind().fields, d.objects) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// connectSeeder makes up a connectSet. Its dice are the seeder's, thrown in a
// sequence of their own.
type connectSeeder struct {
	*connectProfile
	seeder

	contacts []contact
	set      connectSet
}

func (p *connectProfile) makeUpConnect(index int, contacts []contact, now time.Time, hash func(string) string) (*connectSet, error) {
	zone, err := time.LoadLocation(p.base.business.TimeZone)
	if err != nil {
		return nil, err
	}
	now = now.UTC().Truncate(time.Second)
	s := &connectSeeder{connectProfile: p, contacts: contacts, seeder: seeder{
		profile: p.base,
		Rand:    rand.New(rand.NewPCG(p.base.random, 41)), //nolint:gosec // G404: reproducible on purpose; passwords do not come from here
		index:   index, zone: zone, now: now,
		start: now.AddDate(0, 0, -p.base.foundedAgo), end: now.AddDate(0, 0, -p.base.closedAgo),
	}}
	s.makeAccounts(hash)
	s.makeDocuments()
	s.makeReceptionistLists()
	s.makeCalendars()
	s.makeConversations()
	s.makeAutomations()
	return &s.set, s.makeObjects()
}

func (s *connectSeeder) makeAccounts(hash func(string) string) {
	for i, a := range s.accounts {
		s.set.accounts = append(s.set.accounts, accountRow{
			ID: a.ID, BusinessID: a.BusinessID, Email: a.Email, EmailKey: fold(a.Email), Name: a.Name, Role: a.Role,
			Status: accountEnabled, PasswordHash: hash(a.Password), CreatedAt: instant(s.start.AddDate(0, i, 0)),
		})
	}
}

func (s *connectSeeder) makeDocuments() {
	at := instant(s.office(s.start.Add(3 * day)))
	s.set.hours = document[[]openSpan]{s.hours, 1, at}
	s.set.areas = document[[]serviceArea]{s.areas, 1, at}
	r := s.connectProfile.receptionist
	r.Rules = slices.Clone(r.Rules)
	for i := range r.Rules {
		r.Rules[i].ID = s.uuid()
	}
	s.set.receptionist = document[receptionist]{r, 1, instant(s.office(s.end.AddDate(0, 0, -40)))}
}

func (s *connectSeeder) makeReceptionistLists() {
	made := s.office(s.end.AddDate(0, 0, -200))
	head := func(key string) head {
		made = made.Add(s.between(40*time.Second, 9*time.Minute)).Truncate(time.Second)
		return head{ID: s.uuid(), BusinessID: s.business.ID, Key: foldedKey(key), Version: 1, CreatedAt: instant(made), UpdatedAt: instant(made)}
	}
	for i, f := range s.faqs {
		s.set.faqs = append(s.set.faqs, faq{head: head(f[0]), Question: f[0], Answer: f[1], Enabled: i != len(s.faqs)-1})
	}
	for _, b := range s.offers {
		b.head = head(b.Name)
		s.set.services = append(s.set.services, b)
	}
}

func (s *connectSeeder) someone() *contact {
	if len(s.contacts) == 0 {
		return nil
	}
	return &s.contacts[s.IntN(len(s.contacts))]
}

// makeCalendars fills the working days from two months back to five weeks on.
func (s *connectSeeder) makeCalendars() {
	for _, c := range s.calendars {
		c.ID, c.BusinessID, c.TimeZone = s.uuid(), s.business.ID, s.business.TimeZone
		s.set.calendars = append(s.set.calendars, c)
		for offset := -60; offset <= 35; offset++ {
			local := s.end.In(s.zone).AddDate(0, 0, offset)
			if local.Weekday() == time.Saturday || local.Weekday() == time.Sunday {
				continue
			}
			start := time.Date(local.Year(), local.Month(), local.Day(), 8, 0, 0, 0, s.zone)
			full := 70
			if offset > 10 {
				full = 25 // the weeks to come fill up yet
			}
			for start.Hour() < 16 {
				v := pick(s.dice(), s.visits)
				end := start.Add(time.Duration(v.minutes) * time.Minute)
				if s.chance(full) {
					s.set.appointments = append(s.set.appointments, s.appointment(&c, &v, start, end))
				}
				start = end.Add(30 * time.Minute)
			}
		}
	}
}

func (s *connectSeeder) dice() *seeder { return &s.seeder }

func (s *connectSeeder) appointment(c *calendar, v *visit, start, end time.Time) appointment {
	created := s.office(start.Add(-s.between(2*day, 20*day)))
	if created.After(s.end) {
		created = s.end.Add(-s.between(time.Hour, 5*day))
	}
	created = created.Truncate(time.Second)
	a := appointment{
		ID: s.uuid(), BusinessID: s.business.ID, CalendarID: c.ID, Title: v.title, Location: new(pick(s.dice(), s.connectProfile.places)),
		StartsAt: instant(start), EndsAt: instant(end), BookedBy: pick(s.dice(), []string{"receptionist", "receptionist", "staff", "online"}),
		CreatedAt: instant(created), UpdatedAt: instant(created),
	}
	if v.notes != "" && s.chance(50) {
		a.Notes = &v.notes
	}
	if who := s.someone(); who != nil {
		a.ContactID = &who.ID
	}
	switch past := end.Before(s.now); {
	case s.chance(7):
		a.Status = appointmentCancelled
	case past && s.chance(5):
		a.Status = appointmentNoShow
	case past:
		a.Status = appointmentCompleted
	case s.chance(45):
		a.Status = appointmentConfirmed
	default:
		a.Status = appointmentScheduled
	}
	if end.Before(s.end) {
		a.UpdatedAt = instant(end)
	}
	return a
}

const conversationsOfABusiness = 60

func (s *connectSeeder) makeConversations() {
	for range conversationsOfABusiness {
		sc := pick(s.dice(), s.scripts)
		back := time.Duration(s.Float64() * s.Float64() * float64(150*day))
		s.converse(&sc, s.office(s.end.Add(-day-back)))
	}
	for i := range s.letters {
		s.converse(&s.letters[i], s.office(s.end.AddDate(0, 0, -2-2*i)))
	}
	slices.SortStableFunc(s.set.conversations, func(a, b conversation) int { return strings.Compare(a.StartedAt, b.StartedAt) })
}

func (s *connectSeeder) converse(sc *script, start time.Time) {
	if start.After(s.end) {
		start = s.end.Add(-s.between(time.Hour, day))
	}
	start = start.Truncate(time.Second)
	v := conversation{
		ID: s.uuid(), BusinessID: s.business.ID, Channel: sc.channel, StartedAt: instant(start), Outcome: sc.outcome,
	}
	first := "there"
	switch who := s.someone(); {
	case !sc.stranger && who != nil:
		v.ContactID = &who.ID
		name := strings.TrimSpace(who.FirstName + " " + orEmpty(who.LastName))
		first, v.CallerName = who.FirstName, &name
		if who.PhoneNumber != nil {
			v.CallerAddress = new(*who.CountryCode + *who.PhoneNumber)
		}
		if sc.channel == "email" || sc.channel == "chat" || v.CallerAddress == nil {
			v.CallerAddress = who.Email
		}
	case sc.address != "":
		v.CallerAddress = &sc.address
	case sc.channel == "call" || sc.channel == "sms":
		block := pick(s.dice(), s.phones)
		v.CallerAddress = new(fmt.Sprintf("%s%s%0*d", s.dialling, block.prefix, block.digits, block.from+s.IntN(block.count)))
	}
	if sc.name != "" {
		first, v.CallerName = sc.name, &sc.name
	}
	fill := strings.NewReplacer(
		"{name}", first, "{greeting}", s.connectProfile.receptionist.Personality.Greeting, "{place}", pick(s.dice(), s.places),
		"{day}", pick(s.dice(), []string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday"}))
	at := start
	for i, l := range sc.lines {
		if i > 0 {
			switch sc.channel {
			case "email":
				at = at.Add(s.between(20*time.Minute, 5*time.Hour))
			case "sms":
				at = at.Add(s.between(time.Minute, 20*time.Minute))
			default:
				at = at.Add(s.between(4*time.Second, 25*time.Second))
			}
		}
		s.set.messages = append(s.set.messages, message{
			ConversationID: v.ID, Position: int64(i), ID: fmt.Sprintf("m-%d", i+1), At: instant(at), From: l.from, Text: fill.Replace(l.text),
		})
	}
	v.EndedAt = new(instant(at.Add(s.between(2*time.Second, 20*time.Second))))
	if sc.summary != "" {
		v.Summary = new(fill.Replace(sc.summary))
	}
	s.set.conversations = append(s.set.conversations, v)
}

func (s *connectSeeder) makeAutomations() {
	const dryRun = `"dry_run":{"type":"boolean","default":false,"description":"Only say what would be written, write nothing."}`
	integer := func(name, description string, from, until, absent int) string {
		return fmt.Sprintf(`%q:{"type":"integer","minimum":%d,"maximum":%d,"default":%d,"description":%q},`, name, from, until, absent, description)
	}
	schema := func(properties string) string {
		return `{"type":"object","additionalProperties":false,"properties":{` + properties + `}}`
	}
	for _, a := range []automation{
		{
			Action: actionOverdueReminders, Name: "Send overdue reminders", Enabled: true,
			Description: "Writes a reminder for every unpaid invoice past its due date, unless there was one in the last seven days.",
			InputSchema: schema(integer("minimum_days_overdue", "Only invoices that are overdue for longer than this.", 0, 365, 0) + dryRun),
		},
		{
			Action: actionAppointments, Name: "Ask for confirmation of appointments", Enabled: true,
			Description: "Asks the customers of scheduled appointments in the days to come to confirm them, once each.",
			InputSchema: schema(integer("days_ahead", "How many days to look ahead.", 1, 14, 2) + dryRun),
		},
		{
			Action: actionEstimates, Name: "Follow up on estimates", Enabled: s.business.AccountStatus == AccountActive && s.index == 0,
			Description: "Asks customers who have not answered an estimate whether there are questions, at most every two weeks.",
			InputSchema: schema(integer("older_than_days", "Only estimates sent longer ago than this.", 1, 120, 7) + dryRun),
		},
		{
			Action: actionWeeklyReport, Name: "Report on the week", Enabled: true,
			Description: "Counts what the last seven days have brought. Writes to nobody.", InputSchema: schema(""),
		},
	} {
		a.ID, a.BusinessID = a.Action, s.business.ID
		s.set.automations = append(s.set.automations, a)
	}
}

func (s *connectSeeder) makeObjects() error {
	for _, t := range s.types {
		t.BusinessID = s.business.ID
		s.set.types = append(s.set.types, t.objectType)
		made := s.office(s.end.AddDate(0, 0, -90))
		for _, fields := range t.objects {
			text, err := json.Marshal(fields)
			if err != nil {
				return err
			}
			made = made.Add(s.between(3*time.Minute, 5*day)).Truncate(time.Second)
			s.set.objects = append(s.set.objects, object{
				ID: s.uuid(), BusinessID: s.business.ID, Type: t.Name, Fields: string(text), SearchText: searchText(string(text)),
				Version: 1, CreatedAt: instant(made), UpdatedAt: instant(made),
			})
		}
	}
	return nil
}

// weekdays are the same spans from Monday to Friday.
func weekdays(spans ...[2]string) (all []openSpan) {
	for _, d := range days()[:5] {
		for _, s := range spans {
			all = append(all, openSpan{d, s[0], s[1]})
		}
	}
	return all
}

// objectSchema is a JSON Schema for the fields of an object.
func objectSchema(required []string, properties string) string {
	names, err := json.Marshal(required)
	if err != nil { // never for texts
		return ""
	}
	return `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","additionalProperties":false,"required":` +
		string(names) + `,"properties":{` + properties + `}}`
}
