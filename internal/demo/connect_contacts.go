package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// connectContact is a contact with its version.
type connectContact struct {
	contact
	Version int64 `db:"version"`
}

func contactKind() *kindOf[connectContact] {
	return &kindOf[connectContact]{
		one: "contact", many: "contacts", what: "contact", table: "contacts",
		fields: fieldsOf[connectContact](),
		key:    "date_created", id: "id", newest: true,
		search: "first_name || ' ' || coalesce(last_name, '') || ' ' || coalesce(email, '') || ' ' || coalesce(phone_number, '')" +
			" || ' ' || coalesce(country_code || phone_number, '') || ' ' || coalesce(notes, '')",
	}
}

func contactTypes() []string    { return []string{"customer", "lead", "vendor"} }
func contactStatuses() []string { return []string{"active", "inactive"} }

func contactRoutes() []route {
	k := contactKind()
	return []route{
		{method: http.MethodGet, path: "contacts", query: true, serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			q := c.parameters()
			return k.page(ctx, c, q, append(
				equal("contact_status", q.word("status", contactStatuses()...)),
				equal("contact_type", q.word("type", contactTypes()...))...)...)
		}},
		{method: http.MethodPost, path: "contacts", serve: createContact},
		{method: http.MethodGet, path: "contacts/{id}", serve: k.get},
		{method: http.MethodPatch, path: "contacts/{id}", serve: updateContact},
		{method: http.MethodDelete, path: "contacts/{id}", owner: true, serve: deleteContact},
	}
}

// contact reads the members of a contact into r.
func (in *input) contact(r *contact) {
	in.text("first_name", &r.FirstName, line(80))
	in.optText("last_name", &r.LastName, line(80))
	in.optText("email", &r.Email, emailRule())
	digits := patternRule(`\d{4,14}`, "digits only, 4 to 14 of them, or null")
	code := patternRule(`\+[1-9]\d{0,2}`, "+ and 1 to 3 digits, or null")
	in.optText("phone_number", &r.PhoneNumber, digits)
	in.optText("country_code", &r.CountryCode, code)
	in.word("contact_type", &r.Type, contactTypes()...)
	in.word("contact_status", &r.Status, contactStatuses()...)
	in.optText("notes", &r.Notes, lines(4000))
	in.end()
	if len(in.p.all) > 0 {
		return
	}
	switch {
	case r.PhoneNumber != nil && r.CountryCode == nil:
		in.p.add("country_code", "has to be there beside a phone_number", code.what)
	case r.PhoneNumber == nil && r.CountryCode != nil:
		in.p.add("phone_number", "has to be there beside a country_code", digits.what)
	}
}

func createContact(ctx context.Context, c *connectCall) (int, []byte, error) {
	k, now := contactKind(), instant(c.now)
	row := connectContact{Version: 1, contact: contact{
		BusinessID: c.business.ID, Type: "lead", Status: "active", DateCreated: now, DateModified: now,
	}}
	c.input(false).contact(&row.contact)
	if err := c.problems.err(); err != nil {
		return 0, nil, err
	}
	fields := k.fields[1:] // the database gives the id
	if k.fields[0].name != k.id {
		return 0, nil, errors.New("the first field of a contact is not its id")
	}
	if err := c.tx.QueryRowContext(ctx, insertSQL(k.table, fields)+" RETURNING id", values(fields, &row)...).Scan(&row.ID); err != nil {
		return 0, nil, fmt.Errorf("inserting a contact: %w", err)
	}
	return http.StatusCreated, k.answer(&row), nil
}

func updateContact(ctx context.Context, c *connectCall) (int, []byte, error) {
	k := contactKind()
	row, err := k.find(ctx, c, c.path[0])
	if err != nil {
		return 0, nil, err
	}
	c.input(true).contact(&row.contact)
	if err := c.problems.err(); err != nil {
		return 0, nil, err
	}
	row.Version++
	row.DateModified = instant(c.now)
	if err := k.update(ctx, c, row); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, k.answer(row), nil
}

// deleteContact rejects the deletion of contacts that other records refer to.
func deleteContact(ctx context.Context, c *connectCall) (int, []byte, error) {
	k := contactKind()
	row, err := k.find(ctx, c, c.path[0])
	if err != nil {
		return 0, nil, err
	}
	var reasons []string
	for _, reference := range []struct {
		what, from string
		args       []any
	}{
		{"jobs", "jobs WHERE contact_id = ?", nil},
		{"estimates", "estimates WHERE contact_id = ?", nil},
		{"invoices", "invoices WHERE contact_id = ?", nil},
		{
			"appointments to come", "appointments WHERE contact_id = ? AND status IN ('scheduled', 'confirmed') AND starts_at >= ?",
			[]any{instant(c.now)},
		},
	} {
		var n int
		if err := c.tx.QueryRowContext(ctx, "SELECT count(*) FROM "+reference.from,
			append([]any{row.ID}, reference.args...)...).Scan(&n); err != nil {
			return 0, nil, fmt.Errorf("looking for %s: %w", reference.what, err)
		}
		if n > 0 {
			reasons = append(reasons, fmt.Sprintf("%d %s", n, reference.what))
		}
	}
	if len(reasons) > 0 {
		return 0, nil, conflict("The contact cannot be deleted while other records refer to it.",
			detail{"id", "has " + strings.Join(reasons, ", "), "set contact_status to inactive instead"})
	}
	return k.remove(ctx, c, row)
}
