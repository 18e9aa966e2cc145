package demo

import (
	"context"
	"database/sql"
	_ "embed" // for the letters
	"fmt"
	"net/http"
	"strings"
	"text/template"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

const (
	day         = 24 * time.Hour
	stepWriting = "Write the messages"
)

func automationRoutes(wake func()) []route {
	automations, runs := &kind{list: byName()}, &kind{}
	run := runs.reading("runs", "run")[1]
	run.path = "automation-runs/{id}"
	return append(automations.reading("automations", "automation"), run, route{
		method: http.MethodPost, path: "automations/{id}/runs", after: wake,
		serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			if _, err := automations.find(ctx, c, c.path[0]); err != nil {
				return 0, nil, err
			}
			id, err := startRun(ctx, c, c.path[0])
			if err != nil {
				return 0, nil, err
			}
			return runs.answer(ctx, c, http.StatusAccepted, id)
		},
	})
}

// startRun queues a run of an automation. The runner starts it when the transaction is committed.
func startRun(ctx context.Context, c *connectCall, automation string) (id any, err error) {
	in := schema{
		{name: "input", form: object(), initial: "{}"}, {name: "dry_run", form: flag(), initial: false},
	}.read(&c.problems, "", c.body, false)
	if err := c.problems.err(); err != nil {
		return nil, err
	}
	var action, inputSchema string
	var enabled bool
	var other *string // run that has not finished
	if err := c.tx.QueryRowContext(ctx, "SELECT action, enabled, input_schema, (SELECT id FROM automation_runs r WHERE r.business_id = a.business_id"+
		" AND automation_id = a.id AND status IN ('queued', 'running')) FROM automations a WHERE business_id = ? AND id = ?",
		c.business.id, automation).Scan(&action, &enabled, &inputSchema, &other); err != nil {
		return nil, fmt.Errorf("reading an automation: %w", err)
	}
	if err := checkSchema(&c.problems, "input", inputSchema, in.text("input")); err != nil {
		return nil, err
	}
	if err := c.problems.err(); err != nil {
		return nil, err
	}
	if !enabled {
		return nil, conflict("The automation is switched off.", "id", "is not enabled", "automations with enabled: true")
	}
	if other != nil {
		return nil, conflict("The automation is running already: wait for that run.", "id", "has a run that has not finished", *other)
	}
	steps, err := json.Marshal(plannedSteps(action, in["dry_run"] == true))
	if err != nil {
		return nil, fmt.Errorf("planning a run: %w", err)
	}
	return insert(ctx, c.tx, "automation_runs", values{
		"id": uuid.NewString(), "business_id": c.business.id, "automation_id": automation, "status": runQueued, "steps": string(steps),
		"input": in["input"], "dry_run": in["dry_run"], "started_by": c.account.id, "created_at": instant(c.now),
	})
}

// action is the code of an automation.
type action struct {
	steps []string
	do    func(context.Context, *execution) error
}

// actions are named as in the database.
func actions() map[string]action {
	steps := []string{"Find whom to write to", stepWriting, "Sum up"}
	// The candidates of each are people about something with its number or title, a time at, and money that is due.
	invoices := mailing{
		kind: "invoice_reminder", quiet: 7 * day, days: "minimum_days_overdue",
		query: "SELECT i.id AS subject_id, contact_id, p.name, email, invoice_number AS about, title, due_at AS at, total_amount - paid_amount AS open" +
			" FROM invoices i JOIN people p ON p.id = contact_id WHERE business_id = ?1 AND status IN ('sent', 'viewed', 'overdue')" +
			" AND paid_amount < total_amount",
	}
	appointments := mailing{
		kind: "appointment_confirmation", quiet: 30 * day, days: "days_ahead", initial: 2, ahead: true,
		query: "SELECT a.id AS subject_id, contact_id, p.name, email, title AS about, title, starts_at AS at, 0 AS open" +
			" FROM appointments a JOIN people p ON p.id = contact_id WHERE business_id = ?1 AND status = 'scheduled'",
	}
	estimates := mailing{
		kind: "estimate_follow_up", quiet: 14 * day, days: "older_than_days", initial: 7,
		query: "SELECT e.id AS subject_id, contact_id, p.name, email, estimate_number AS about, title, sent_at AS at, total_amount AS open" +
			" FROM estimates e JOIN people p ON p.id = contact_id WHERE business_id = ?1 AND status = 'sent'",
	}
	return map[string]action{
		"overdue-reminders":         {steps, invoices.run},
		"appointment-confirmations": {steps, appointments.run},
		"estimate-follow-ups":       {steps, estimates.run},
		"weekly-report":             {[]string{"Contacts and conversations", "Appointments and jobs", "Money"}, reportOnTheWeek},
	}
}

func plannedSteps(name string, dryRun bool) []step {
	steps := []step{}
	for _, s := range actions()[name].steps {
		if dryRun && s == stepWriting {
			s = "Prepare the messages"
		}
		steps = append(steps, step{Name: s, Status: stepPending})
	}
	return steps
}

// mailing is an action that sends messages.
type mailing struct {
	kind    string        // in the outbox and of the letter
	quiet   time.Duration // for how long nobody is written to about the same again
	query   string        // gives the candidates of a business
	days    string        // the member of the input that says how old they have to be, or how far ahead they may be
	initial float64       // its value if it is missing, as in the automation's schema
	ahead   bool          // whether it asks for times that are not over
}

// candidate is a person to write to. The letter uses what is exported.
type candidate struct {
	subjectID, at                                    string
	contactID                                        *int64
	email                                            *string
	open                                             int64
	recent                                           bool // was written to about it not long ago
	Name, About, Title, Date, When, Amount, Business string
}

// mailed is the result of a mailing.
type mailed struct {
	DryRun         bool     `json:"dry_run"`
	Found          int      `json:"found"`
	Written        int      `json:"written"`
	WouldBeWritten int      `json:"would_be_written,omitzero"` // of a dry run
	WithoutAddress int      `json:"skipped_without_address"`
	WrittenBefore  int      `json:"skipped_written_recently"`
	Amount         string   `json:"amount"`   // of what these are about
	Messages       []values `json:"messages"` // the first hundred
}

//go:embed letters.tmpl
var letters string

func (m *mailing) run(ctx context.Context, e *execution) error {
	in := map[string]any{m.days: m.initial}
	if err := json.Unmarshal([]byte(e.input), &in); err != nil {
		return fmt.Errorf("reading the input of a run: %w", err)
	}
	days, _ := in[m.days].(float64) // a number by the schema of the input
	templates, err := template.New("").Parse(letters)
	if err != nil {
		return fmt.Errorf("reading the letters: %w", err)
	}
	if err := e.begin(ctx, 0, 2); err != nil {
		return err
	}
	all, err := m.candidates(ctx, e, time.Duration(days)*day)
	if err != nil {
		return fmt.Errorf("finding whom to write to: %w", err)
	}
	result := &mailed{DryRun: e.dryRun, Found: len(all), Amount: decimal(0), Messages: []values{}}
	e.result = result
	count, written := &result.Written, "written"
	if e.dryRun {
		count, written = &result.WouldBeWritten, "would be written"
	}
	if err := e.tell(ctx, 10, fmt.Sprintf("%d found", len(all)), nil); err != nil {
		return err
	}
	if err := e.begin(ctx, 1, 10); err != nil {
		return err
	}
	var sum int64
	for i := range all {
		e.rest(ctx)
		to, before := &all[i], *result
		var post func(*sql.Tx) error
		switch {
		case to.email == nil:
			result.WithoutAddress++
		case to.recent:
			result.WrittenBefore++
		default:
			var text strings.Builder
			if err := templates.ExecuteTemplate(&text, m.kind, to); err != nil {
				return fmt.Errorf("writing a letter: %w", err)
			}
			subject, body, _ := strings.Cut(text.String(), "\n")
			if !e.dryRun {
				post = func(tx *sql.Tx) error {
					_, err := insert(context.WithoutCancel(ctx), tx, "outbox", values{
						"id": uuid.NewString(), "business_id": e.businessID, "run_id": e.id, "kind": m.kind, "subject_id": to.subjectID,
						"contact_id": to.contactID, "recipient": *to.email, "subject": subject, "body": body, "created_at": instant(e.now()),
					})
					return err
				}
			}
			sum += to.open
			*count++
			result.add(to, subject, sum)
		}
		message := fmt.Sprintf("%d of %d done, %d messages %s", i+1, len(all), *count, written)
		if err := e.tell(ctx, 10+int64(85*(i+1)/len(all)), message, post); err != nil {
			*result = before // the result says what is done, and this is not
			return err
		}
	}
	if err := e.begin(ctx, 2, 97); err != nil {
		return err
	}
	return e.tell(ctx, 99, fmt.Sprintf("%d found; %d messages %s, %d without an e-mail address, %d written to not long ago",
		result.Found, *count, written, result.WithoutAddress, result.WrittenBefore), nil)
}

func (r *mailed) add(to *candidate, subject string, sum int64) {
	r.Amount = decimal(sum)
	if len(r.Messages) == 100 {
		return
	}
	message := values{
		"subject_id": to.subjectID, "about": to.About, "contact_id": to.contactID, "contact_name": to.Name, "subject": subject, "at": to.at,
	}
	if to.open > 0 {
		message["amount"] = to.Amount
	}
	r.Messages = append(r.Messages, message)
}

func (m *mailing) candidates(ctx context.Context, e *execution, distance time.Duration) (all []candidate, err error) {
	now := e.now()
	from, until := "", now.Add(-distance)
	if m.ahead {
		from, until = instant(now), now.Add(distance)
	}
	dest := func(c *candidate) []any {
		return []any{&c.subjectID, &c.contactID, &c.Name, &c.email, &c.About, &c.Title, &c.at, &c.open, &c.recent}
	}
	err = e.st.read(ctx, func(tx *sql.Tx) error {
		all, err = rowsOf(ctx, tx, dest, "SELECT subject_id, contact_id, name, email, about, title, at, open, EXISTS ("+
			"SELECT 1 FROM outbox o WHERE o.business_id = ?1 AND kind = ?2 AND o.subject_id = q.subject_id AND created_at >= ?3)"+
			" FROM ("+m.query+") q WHERE at >= ?4 AND at < ?5 ORDER BY at, subject_id",
			e.businessID, m.kind, instant(now.Add(-m.quiet)), from, instant(until))
		return err
	})
	for i := range all {
		c := &all[i]
		c.Business, c.Amount, c.Date, c.When = e.businessName, decimal(c.open), c.at[:len(time.DateOnly)], c.at
		if t, err := time.Parse(time.RFC3339, c.at); err == nil {
			c.When = t.In(e.zone).Format("Monday, 2 January, 15:04")
		}
	}
	return all, err
}

// reportOnTheWeek counts what has happened in seven days: one query for each step, with the business, from and until.
func reportOnTheWeek(ctx context.Context, e *execution) error {
	until := e.now()
	from := until.Add(-7 * day)
	report := fmt.Sprintf(`{"since":%q,"until":%q}`, instant(from), instant(until))
	for i, query := range []string{
		`SELECT json_object(
			'new_contacts', (SELECT count(*) FROM contacts WHERE business_id = ?1 AND date_created >= ?2 AND date_created < ?3),
			'conversations', (SELECT count(*) FROM conversations WHERE business_id = ?1 AND started_at >= ?2 AND started_at < ?3),
			'appointments_booked_by_receptionist', (SELECT count(*) FROM appointments
				WHERE business_id = ?1 AND created_at >= ?2 AND created_at < ?3 AND booked_by = 'receptionist'))`,
		`SELECT json_object(
			'appointments_completed', count(*) FILTER (WHERE status = 'completed'), 'no_shows', count(*) FILTER (WHERE status = 'no_show'),
			'new_jobs', (SELECT count(*) FROM jobs WHERE business_id = ?1 AND created_at >= ?2 AND created_at < ?3))
			FROM appointments WHERE business_id = ?1 AND starts_at >= ?2 AND starts_at < ?3`,
		`SELECT json_object(
			'invoiced', decimal(invoiced), 'paid', decimal(paid),
			'overdue_invoices', overdue_invoices, 'overdue_amount', decimal(overdue),
			'estimates_waiting_for_an_answer', (SELECT count(*) FROM estimates WHERE business_id = ?1 AND created_at < ?3 AND status = 'sent'))
			FROM (SELECT sum(total_amount) FILTER (WHERE issued_at >= ?2 AND issued_at < ?3) AS invoiced,
				sum(paid_amount) FILTER (WHERE paid_at >= ?2 AND paid_at < ?3) AS paid,
				count(*) FILTER (WHERE due_at < ?3 AND status IN ('sent', 'viewed', 'overdue')) AS overdue_invoices,
				sum(total_amount - paid_amount) FILTER (WHERE due_at < ?3 AND status IN ('sent', 'viewed', 'overdue')) AS overdue
				FROM invoices WHERE business_id = ?1)`,
	} {
		if err := e.begin(ctx, i, int64(5+30*i)); err != nil {
			return err
		}
		e.rest(ctx)
		var part string
		if err := e.st.read(ctx, func(tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, query, e.businessID, instant(from), instant(until)).Scan(&part)
		}); err != nil {
			return fmt.Errorf("reporting: %w", err)
		}
		report = report[:len(report)-1] + "," + part[1:]
		e.result = jsontext.Value(report)
		if err := e.tell(ctx, int64(30*(i+1)), fmt.Sprintf("%d of 3 parts done", i+1), nil); err != nil {
			return err
		}
	}
	return nil
}
