package demo

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// onlyMembers is the check of a kind whose members are valid each for itself.
func onlyMembers(_ context.Context, c *connectCall, _ any, _ values) error { return c.problems.err() }

// reading completes a kind and returns the routes of its list and of its records.
func (k *kind) reading(path, one string) []route {
	k.one, k.what = one, cmp.Or(k.what, one)
	k.name = strings.ReplaceAll(path[strings.LastIndexByte(path, '/')+1:], "-", "_")
	k.from, k.record = "connect_"+k.name, "record"
	return []route{
		{method: http.MethodGet, path: path, query: true, serve: k.getList},
		{method: http.MethodGet, path: path + "/{id}", serve: k.get},
	}
}

func byName() list      { return list{order: []string{"name", "id"}} }
func newestFirst() list { return list{order: []string{"created_at", "id"}, newest: true} }

// recordRoutes serves the records that can only be read.
func recordRoutes() []route {
	ofContact := belonging("contact_id", "contacts")
	conversations := &kind{
		list: list{order: []string{"started_at", "id"}, newest: true}, search: true, alone: "connect_conversations_alone",
		filters: append(sinceUntil("started_at"), oneOf("channel", "channel", "call", "sms", "chat", "email"), ofContact,
			anyOf("outcome", "outcome", "answered", "appointment_booked", "message_taken", "transferred", "abandoned")),
	}
	appointments := &kind{list: list{order: []string{"starts_at", "id"}}, ahead: "starts_at", filters: []filter{
		anyOf("status", "status", "scheduled", "confirmed", "completed", "cancelled", "no_show"), since("from", "starts_at"), before("to", "starts_at", "from"),
		belonging("calendar_id", "calendars"), ofContact,
	}}
	invoices := &kind{list: newestFirst(), search: true, filters: append(sinceUntil("coalesce(issued_at, created_at)"), ofContact,
		anyOf("status", "status", "draft", "sent", "viewed", "paid", "overdue", "voided"), since("due_from", "due_at"), before("due_until", "due_at", "due_from"))}
	estimates := &kind{list: newestFirst(), search: true, filters: append(sinceUntil("created_at"), ofContact,
		anyOf("status", "status", "draft", "sent", "approved", "declined", "expired"), oneOf("payment_status", "payment_status", "unpaid", "partial", "paid"))}
	jobs := &kind{list: newestFirst(), search: true, filters: append(sinceUntil("created_at"), ofContact,
		anyOf("status", "work_status", "draft", "sent", "scheduled", "in_progress", "completed", "cancelled"))}
	calendars := &kind{list: byName()}
	return slices.Concat(conversations.reading("conversations", "conversation"), calendars.reading("calendars", "calendar")[:1],
		appointments.reading("appointments", "appointment"), invoices.reading("invoices", "invoice"),
		estimates.reading("estimates", "estimate"), jobs.reading("jobs", "job"))
}

// businessRoutes serves the business itself.
func businessRoutes() []route {
	k := &kind{
		list: list{from: "connect_businesses"}, one: "business", what: "business", table: "businesses", modified: "updated_at", check: onlyMembers,
		input: schema{
			{name: "name", form: line(120), required: true},
			{name: "email", form: email(), nullable: true},
			{name: "phone", form: pattern(`\+[1-9]\d{6,14}`, "E.164: + and 7 to 15 digits"), nullable: true},
			{name: "website_url", form: webAddress(), nullable: true},
			{name: "time_zone", form: timeZone(), required: true},
		},
	}
	of := func(serve handler) handler {
		return func(ctx context.Context, c *connectCall) (int, []byte, error) {
			c.path = []string{c.business.id}
			return serve(ctx, c)
		}
	}
	return []route{
		{method: http.MethodGet, path: "business", serve: of(k.get)},
		{method: http.MethodPatch, path: "business", owner: true, serve: of(k.on(k.patch))},
	}
}

func contactRoutes() []route {
	types, statuses := []string{"customer", "lead", "vendor"}, []string{"active", "inactive"}
	digits := pattern(`\d{4,14}`, "digits only, 4 to 14 of them, or null")
	code := pattern(`\+[1-9]\d{0,2}`, "+ and 1 to 3 digits, or null")
	k := &kind{
		list: list{order: []string{"date_created", "id"}, newest: true}, search: true,
		filters: append(sinceUntil("date_created"), oneOf("status", "contact_status", statuses...), oneOf("type", "contact_type", types...)),
		table:   "contacts", numbered: true, modified: "date_modified",
		input: schema{
			{name: "first_name", form: line(80), required: true},
			{name: "last_name", form: line(80), nullable: true},
			{name: "email", form: email(), nullable: true},
			{name: "phone_number", form: digits, nullable: true},
			{name: "country_code", form: code, nullable: true},
			{name: "contact_type", form: word(types...), initial: "lead"},
			{name: "contact_status", form: word(statuses...), initial: "active"},
			{name: "notes", form: lines(4000), nullable: true},
		},
		check: func(_ context.Context, c *connectCall, _ any, v values) error {
			if err := c.problems.err(); err != nil {
				return err
			}
			switch {
			case v["phone_number"] != nil && v["country_code"] == nil:
				c.problems.add("country_code", "has to be there beside a phone_number", code.allowed)
			case v["phone_number"] == nil && v["country_code"] != nil:
				c.problems.add("phone_number", "has to be there beside a country_code", digits.allowed)
			}
			return c.problems.err()
		},
	}
	return append(k.reading("contacts", "contact"),
		route{method: http.MethodPost, path: "contacts", serve: k.create},
		route{method: http.MethodPatch, path: "contacts/{id}", serve: k.on(k.patch)},
		route{method: http.MethodDelete, path: "contacts/{id}", owner: true, serve: k.on(k.deleteContact)})
}

// deleteContact rejects the deletion of contacts that other records refer to.
func (k *kind) deleteContact(ctx context.Context, c *connectCall, found listed) (int, []byte, error) {
	var reasons string
	if err := c.tx.QueryRowContext(ctx, `SELECT concat_ws(', ',
		(SELECT count(*) || ' jobs' FROM jobs WHERE contact_id = ?1 HAVING count(*) > 0),
		(SELECT count(*) || ' estimates' FROM estimates WHERE contact_id = ?1 HAVING count(*) > 0),
		(SELECT count(*) || ' invoices' FROM invoices WHERE contact_id = ?1 HAVING count(*) > 0),
		(SELECT count(*) || ' appointments to come' FROM appointments WHERE contact_id = ?1
			AND status IN ('scheduled', 'confirmed') AND starts_at >= ?2 HAVING count(*) > 0))`, found.id, instant(c.now)).Scan(&reasons); err != nil {
		return 0, nil, fmt.Errorf("counting what refers to a contact: %w", err)
	}
	if reasons != "" {
		return 0, nil, conflict("The contact cannot be deleted while other records refer to it.",
			"id", "has "+reasons, "set contact_status to inactive instead")
	}
	return k.delete(ctx, c, found)
}

// receptionistRoutes serves what the receptionist knows: answers and services, which are replaced whole.
func receptionistRoutes() []route {
	faqs := &kind{
		what: "question", table: "receptionist_faqs", check: unique("question", "receptionist_faqs", 200),
		input: schema{
			{name: "question", form: line(300), required: true},
			{name: "answer", form: lines(2000), required: true},
			{name: "enabled", form: flag(), initial: true},
		},
	}
	noTwin := unique("name", "receptionist_services", 200)
	services := &kind{
		table: "receptionist_services",
		input: schema{
			{name: "name", form: line(120), required: true},
			{name: "description", form: lines(2000), nullable: true},
			{name: "duration_minutes", form: integer(5, 1440), nullable: true},
			{name: "price", form: money(), nullable: true},
			{name: "bookable", form: flag(), initial: false},
		},
		check: func(ctx context.Context, c *connectCall, id any, v values) error {
			if duration, valid := v["duration_minutes"]; v["bookable"] == true && valid && duration == nil {
				c.problems.add("duration_minutes", "is required where bookable is true", "a whole number from 5 to 1440")
			}
			return noTwin(ctx, c, id, v)
		},
	}
	return append(faqs.replacing("faqs", "faq"), services.replacing("services", "service")...)
}

// replacing completes a kind whose records are replaced whole, and returns all its routes.
func (k *kind) replacing(name, one string) []route {
	path := "receptionist/" + name
	k.list, k.search, k.modified = list{order: []string{"created_at", "id"}}, true, "updated_at"
	return append(k.reading(path, one),
		route{method: http.MethodPost, path: path, serve: k.create},
		route{method: http.MethodPut, path: path + "/{id}", serve: k.on(k.replace)},
		route{method: http.MethodDelete, path: path + "/{id}", owner: true, serve: k.on(k.delete)})
}

// unique returns the check that no other record has the same text, whatever its case, and that there are not too many.
func unique(name, table string, most int) func(context.Context, *connectCall, any, values) error {
	return func(ctx context.Context, c *connectCall, id any, v values) error {
		if err := c.problems.err(); err != nil {
			return err
		}
		var other *string
		var n int
		if err := c.tx.QueryRowContext(ctx, "SELECT (SELECT id FROM "+table+" WHERE business_id = ?1 AND lookup_key = ?2 AND id IS NOT ?3),"+
			" (SELECT count(*) FROM "+table+" WHERE business_id = ?1)", c.business.id, foldedKey(v.text(name)), id).Scan(&other, &n); err != nil {
			return fmt.Errorf("looking for the same %s: %w", name, err)
		}
		if other != nil {
			return conflict("There is one with the same "+name+" already.",
				name, "is that of another one, whose id is "+*other, "one that no other has; or change the other one")
		}
		if id == nil && n >= most {
			return conflict("There is no room for another one.",
				name, fmt.Sprintf("would be number %d", n+1), fmt.Sprintf("at most %d; delete or replace one", most))
		}
		return nil
	}
}
