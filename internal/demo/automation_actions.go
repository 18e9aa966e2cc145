package demo

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// action is the code of an automation.
type action struct {
	steps []string
	do    func(context.Context, *execution) error
}

// The actions by their names in the database.
const (
	actionOverdueReminders = "overdue-reminders"
	actionAppointments     = "appointment-confirmations"
	actionEstimates        = "estimate-follow-ups"
	actionWeeklyReport     = "weekly-report"
)

// The steps of the actions that send messages.
const (
	stepFind  = "Find whom to write to"
	stepWrite = "Write the messages"
	stepSum   = "Sum up"
)

func actions() map[string]action {
	mailing := []string{stepFind, stepWrite, stepSum}
	return map[string]action{
		actionOverdueReminders: {mailing, remindOfInvoices},
		actionAppointments:     {mailing, confirmAppointments},
		actionEstimates:        {mailing, followUpEstimates},
		actionWeeklyReport: {
			[]string{"Contacts and conversations", "Appointments and jobs", "Money"}, reportOnTheWeek,
		},
	}
}

func plannedSteps(name string) []step {
	steps := []step{}
	for _, s := range actions()[name].steps {
		steps = append(steps, step{Name: s, Status: stepPending})
	}
	return steps
}

// candidate is a person to write to about an invoice, an estimate or an appointment.
type candidate struct {
	SubjectID string
	ContactID *int64
	Name      string
	Email     *string
	About     string // the paper's number, or the appointment's title
	Title     string
	Open      decimal // money that is due
	At        string  // due, sent or beginning then
	Recent    bool    // was written to about it not long ago
}

// mailing is an action that sends messages.
type mailing struct {
	kind   string // in the outbox
	query  string // gives the candidates, without Recent
	args   []any
	quiet  time.Duration // for how long nobody is written to about the same again
	dryRun bool
	write  func(*candidate) (subject, body string)
}

// letter is a message in the result of a run.
type letter struct {
	SubjectID   string `json:"subject_id"`
	About       string `json:"about"`
	ContactID   *int64 `json:"contact_id"`
	ContactName string `json:"contact_name"`
	Subject     string `json:"subject"`
	Amount      string `json:"amount,omitzero"`
	At          string `json:"at"`
}

// mailed is the result of a mailing.
type mailed struct {
	DryRun         bool     `json:"dry_run"`
	Found          int      `json:"found"`
	Written        int      `json:"written"`
	WithoutAddress int      `json:"skipped_without_address"`
	WrittenBefore  int      `json:"skipped_written_recently"`
	Amount         string   `json:"amount"`   // of what was written about
	Messages       []letter `json:"messages"` // the first hundred
}

const maxLetters = 100

func (m *mailing) run(ctx context.Context, e *execution) error {
	if err := e.begin(ctx, stepFind, 2); err != nil {
		return err
	}
	all, err := m.candidates(ctx, e)
	if err != nil {
		return err
	}
	result := &mailed{DryRun: m.dryRun, Found: len(all), Amount: decimal(0).String(), Messages: []letter{}}
	e.result = result
	if err := e.tell(ctx, 10, fmt.Sprintf("%d found", len(all)), nil); err != nil {
		return err
	}
	if err := e.begin(ctx, stepWrite, 10); err != nil {
		return err
	}
	var amount decimal
	for i := range all {
		e.rest(ctx)
		to, before := &all[i], *result
		var do func(*sql.Tx) error
		switch {
		case to.Email == nil:
			result.WithoutAddress++
		case to.Recent:
			result.WrittenBefore++
		default:
			subject, body := m.write(to)
			if !m.dryRun {
				do = func(tx *sql.Tx) error { return e.post(ctx, tx, m.kind, to, subject, body) }
			}
			amount += to.Open
			result.add(to, subject, amount)
		}
		message := fmt.Sprintf("%d of %d done, %d messages written", i+1, len(all), result.Written)
		if err := e.tell(ctx, 10+int64(85*(i+1)/len(all)), message, do); err != nil {
			*result = before // the result says what is done, and this is not
			return err
		}
	}
	if err := e.begin(ctx, stepSum, 97); err != nil {
		return err
	}
	written := "written"
	if m.dryRun {
		written = "would be written"
	}
	return e.tell(ctx, 99, fmt.Sprintf("%d found; %d messages %s, %d without an e-mail address, %d written to not long ago",
		result.Found, result.Written, written, result.WithoutAddress, result.WrittenBefore), nil)
}

func (r *mailed) add(to *candidate, subject string, amount decimal) {
	r.Written++
	r.Amount = amount.String()
	if len(r.Messages) == maxLetters {
		return
	}
	l := letter{SubjectID: to.SubjectID, About: to.About, ContactID: to.ContactID, ContactName: to.Name, Subject: subject, At: to.At}
	if to.Open > 0 {
		l.Amount = to.Open.String()
	}
	r.Messages = append(r.Messages, l)
}

func (m *mailing) candidates(ctx context.Context, e *execution) (all []candidate, err error) {
	since := instant(e.now().Add(-m.quiet))
	err = e.st.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT q.*, EXISTS (SELECT 1 FROM outbox o WHERE o.business_id = ? AND o.kind = ?"+
			" AND o.subject_id = q.subject_id AND o.created_at >= ?) FROM ("+m.query+") q ORDER BY 7, 1",
			append([]any{e.run.BusinessID, m.kind, since}, m.args...)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var c candidate
			if err := rows.Scan(&c.SubjectID, &c.ContactID, &c.Name, &c.Email, &c.About, &c.Title, &c.At, &c.Open, &c.Recent); err != nil {
				return err
			}
			all = append(all, c)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("finding whom to write to: %w", err)
	}
	return all, nil
}

// post inserts a message into the outbox.
func (e *execution) post(ctx context.Context, tx *sql.Tx, kind string, to *candidate, subject, body string) error {
	if _, err := tx.ExecContext(context.WithoutCancel(ctx), "INSERT INTO outbox"+
		" (id, business_id, run_id, kind, subject_id, contact_id, recipient, subject, body, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		uuid.NewString(), e.run.BusinessID, e.run.ID, kind, to.SubjectID, to.ContactID, *to.Email, subject, body, instant(e.now())); err != nil {
		return fmt.Errorf("writing a message: %w", err)
	}
	return nil
}

// mailingInput is the input of the actions that send messages, valid by the automation's schema, which also has the
// defaults.
type mailingInput struct {
	MinimumDaysOverdue int  `json:"minimum_days_overdue"`
	DaysAhead          int  `json:"days_ahead"`
	OlderThanDays      int  `json:"older_than_days"`
	DryRun             bool `json:"dry_run"`
}

func (e *execution) input() (in mailingInput, err error) {
	in = mailingInput{DaysAhead: 2, OlderThanDays: 7}
	if err := json.Unmarshal([]byte(e.run.Input), &in); err != nil {
		return in, fmt.Errorf("reading the input of a run: %w", err)
	}
	return in, nil
}

const contactNameSQL = "c.first_name || coalesce(' ' || c.last_name, '')"

func remindOfInvoices(ctx context.Context, e *execution) error {
	in, err := e.input()
	if err != nil {
		return err
	}
	now := e.now()
	m := &mailing{
		kind: "invoice_reminder", quiet: 7 * day, dryRun: in.DryRun,
		query: "SELECT i.id AS subject_id, i.contact_id, " + contactNameSQL + ", c.email, i.invoice_number, i.title, i.due_at," +
			" i.total_amount - i.paid_amount FROM invoices i JOIN contacts c ON c.id = i.contact_id WHERE i.business_id = ?" +
			" AND i.status IN ('sent', 'viewed', 'overdue') AND i.paid_amount < i.total_amount AND i.due_at < ?",
		args: []any{e.run.BusinessID, instant(now.Add(-time.Duration(in.MinimumDaysOverdue) * day))},
		write: func(c *candidate) (string, string) {
			return "Reminder: invoice " + c.About, fmt.Sprintf(
				"Dear %s,\n\nour invoice %s (%s) was due on %s. %s are still open. If you have paid in the meantime, please forget about this.\n\n%s",
				c.Name, c.About, c.Title, c.At[:10], c.Open, e.business.Name)
		},
	}
	return m.run(ctx, e)
}

func confirmAppointments(ctx context.Context, e *execution) error {
	in, err := e.input()
	if err != nil {
		return err
	}
	now := e.now()
	zone, err := time.LoadLocation(e.business.TimeZone)
	if err != nil {
		return fmt.Errorf("the time zone of the business: %w", err)
	}
	m := &mailing{
		kind: "appointment_confirmation", quiet: 30 * day, dryRun: in.DryRun,
		query: "SELECT a.id AS subject_id, a.contact_id, " + contactNameSQL + ", c.email, a.title AS number, a.title, a.starts_at, 0" +
			" FROM appointments a JOIN contacts c ON c.id = a.contact_id WHERE a.business_id = ?" +
			" AND a.status = 'scheduled' AND a.starts_at >= ? AND a.starts_at < ?",
		args: []any{e.run.BusinessID, instant(now), instant(now.Add(time.Duration(in.DaysAhead) * day))},
		write: func(c *candidate) (string, string) {
			when := c.At
			if t, err := time.Parse(time.RFC3339, c.At); err == nil {
				when = t.In(zone).Format("Monday, 2 January, 15:04")
			}
			return "Please confirm: " + c.About, fmt.Sprintf("Dear %s,\n\nwe have you down for %q on %s. Is that right?\n\n%s",
				c.Name, c.Title, when, e.business.Name)
		},
	}
	return m.run(ctx, e)
}

func followUpEstimates(ctx context.Context, e *execution) error {
	in, err := e.input()
	if err != nil {
		return err
	}
	m := &mailing{
		kind: "estimate_follow_up", quiet: 14 * day, dryRun: in.DryRun,
		query: "SELECT s.id AS subject_id, s.contact_id, " + contactNameSQL + ", c.email, s.estimate_number, s.title, s.sent_at," +
			" s.total_amount FROM estimates s JOIN contacts c ON c.id = s.contact_id WHERE s.business_id = ?" +
			" AND s.status = 'sent' AND s.sent_at < ?",
		args: []any{e.run.BusinessID, instant(e.now().Add(-time.Duration(in.OlderThanDays) * day))},
		write: func(c *candidate) (string, string) {
			return "Our estimate " + c.About, fmt.Sprintf(
				"Dear %s,\n\non %s we sent you our estimate %s (%s) over %s. Is there anything that you would like to know about it?\n\n%s",
				c.Name, c.At[:10], c.About, c.Title, c.Open, e.business.Name)
		},
	}
	return m.run(ctx, e)
}

// weekly is the result of the weekly report.
type weekly struct {
	Since            string `json:"since"`
	Until            string `json:"until"`
	NewContacts      int64  `json:"new_contacts"`
	Conversations    int64  `json:"conversations"`
	Booked           int64  `json:"appointments_booked_by_receptionist"`
	Appointments     int64  `json:"appointments_completed"`
	NoShows          int64  `json:"no_shows"`
	NewJobs          int64  `json:"new_jobs"`
	Invoiced         string `json:"invoiced"`
	Paid             string `json:"paid"`
	OverdueInvoices  int64  `json:"overdue_invoices"`
	OverdueAmount    string `json:"overdue_amount"`
	EstimatesWaiting int64  `json:"estimates_waiting_for_an_answer"`
}

func reportOnTheWeek(ctx context.Context, e *execution) error {
	until := e.now()
	from, to := instant(until.Add(-7*day)), instant(until)
	report := &weekly{Since: from, Until: to}
	e.result = report
	var invoiced, paid, overdue decimal
	for i, part := range [][]struct {
		into  any
		query string // the business, from, to
	}{
		{
			{&report.NewContacts, "SELECT count(*) FROM contacts WHERE business_id = ? AND date_created >= ? AND date_created < ?"},
			{&report.Conversations, "SELECT count(*) FROM conversations WHERE business_id = ? AND started_at >= ? AND started_at < ?"},
			{&report.Booked, "SELECT count(*) FROM appointments WHERE business_id = ? AND created_at >= ? AND created_at < ? AND booked_by = 'receptionist'"},
		},
		{
			{&report.Appointments, "SELECT count(*) FROM appointments WHERE business_id = ? AND starts_at >= ? AND starts_at < ? AND status = 'completed'"},
			{&report.NoShows, "SELECT count(*) FROM appointments WHERE business_id = ? AND starts_at >= ? AND starts_at < ? AND status = 'no_show'"},
			{&report.NewJobs, "SELECT count(*) FROM jobs WHERE business_id = ? AND created_at >= ? AND created_at < ?"},
		},
		{
			{&invoiced, "SELECT coalesce(sum(total_amount), 0) FROM invoices WHERE business_id = ? AND issued_at >= ? AND issued_at < ?"},
			{&paid, "SELECT coalesce(sum(paid_amount), 0) FROM invoices WHERE business_id = ? AND paid_at >= ? AND paid_at < ?"},
			{&report.OverdueInvoices, "SELECT count(*) FROM invoices WHERE business_id = ? AND due_at < max(?, ?) AND status IN ('sent', 'viewed', 'overdue')"},
			{&overdue, "SELECT coalesce(sum(total_amount - paid_amount), 0) FROM invoices WHERE business_id = ? AND due_at < max(?, ?) AND status IN ('sent', 'viewed', 'overdue')"},
			{&report.EstimatesWaiting, "SELECT count(*) FROM estimates WHERE business_id = ? AND created_at < max(?, ?) AND status = 'sent'"},
		},
	} {
		if err := e.begin(ctx, actions()[actionWeeklyReport].steps[i], int64(5+30*i)); err != nil {
			return err
		}
		e.rest(ctx)
		if err := e.st.read(ctx, func(tx *sql.Tx) error {
			for _, q := range part {
				if err := tx.QueryRowContext(ctx, q.query, e.run.BusinessID, from, to).Scan(q.into); err != nil {
					return fmt.Errorf("reporting: %w", err)
				}
			}
			return nil
		}); err != nil {
			return err
		}
		report.Invoiced, report.Paid, report.OverdueAmount = invoiced.String(), paid.String(), overdue.String()
		if err := e.tell(ctx, int64(30*(i+1)), fmt.Sprintf("%d of 3 parts done", i+1), nil); err != nil {
			return err
		}
	}
	return nil
}
