package demo

import (
	"context"
	"math"
	"net/http"
)

type calendar struct {
	ID         string
	BusinessID string
	Name       string
	OwnerName  *string
	TimeZone   string
}

func calendarKind() *kindOf[calendar] {
	type r = calendar
	return &kindOf[r]{
		one: "calendar", many: "calendars", what: "calendar", table: "calendars", key: "name", id: "id",
		fields: []field[r]{
			text("id", func(r *r) *string { return &r.ID }),
			text("business_id", func(r *r) *string { return &r.BusinessID }),
			text("name", func(r *r) *string { return &r.Name }),
			optText("owner_name", func(r *r) **string { return &r.OwnerName }),
			text("time_zone", func(r *r) *string { return &r.TimeZone }),
		},
	}
}

type appointment struct {
	ID           string
	BusinessID   string
	CalendarID   string
	CalendarName string // by the view
	ContactID    *int64
	ContactName  *string // by the view
	Title        string
	Notes        *string
	Location     *string
	StartsAt     string
	EndsAt       string
	Status       string
	BookedBy     string // "receptionist", "staff" or "online"
	CreatedAt    string
	UpdatedAt    string
}

// The states of an appointment.
const (
	appointmentScheduled = "scheduled"
	appointmentConfirmed = "confirmed"
	appointmentCompleted = "completed"
	appointmentCancelled = "cancelled"
	appointmentNoShow    = "no_show"
)

func appointmentFields() []field[appointment] {
	type r = appointment
	return []field[r]{
		text("id", func(r *r) *string { return &r.ID }),
		text("business_id", func(r *r) *string { return &r.BusinessID }),
		text("calendar_id", func(r *r) *string { return &r.CalendarID }),
		optInteger("contact_id", func(r *r) **int64 { return &r.ContactID }),
		text("title", func(r *r) *string { return &r.Title }),
		optText("notes", func(r *r) **string { return &r.Notes }),
		optText("location", func(r *r) **string { return &r.Location }),
		text("starts_at", func(r *r) *string { return &r.StartsAt }),
		text("ends_at", func(r *r) *string { return &r.EndsAt }),
		text("status", func(r *r) *string { return &r.Status }),
		text("booked_by", func(r *r) *string { return &r.BookedBy }),
		text("created_at", func(r *r) *string { return &r.CreatedAt }),
		text("updated_at", func(r *r) *string { return &r.UpdatedAt }),
	}
}

func appointmentKind() *kindOf[appointment] {
	type r = appointment
	return &kindOf[r]{
		one: "appointment", many: "appointments", what: "appointment", table: "connect_appointments", key: "starts_at", id: "id",
		fields: append(appointmentFields(),
			text("calendar_name", func(r *r) *string { return &r.CalendarName }),
			optText("contact_name", func(r *r) **string { return &r.ContactName })),
	}
}

func appointmentRoutes() []route {
	k, calendars := appointmentKind(), calendarKind()
	return []route{
		{method: http.MethodGet, path: "calendars", serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			return calendars.page(ctx, c, c.parameters())
		}},
		{method: http.MethodGet, path: "appointments", serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			filters, q, err := appointmentFilters(ctx, c)
			if err != nil {
				return 0, nil, err
			}
			return k.page(ctx, c, q, filters...)
		}},
		{method: http.MethodGet, path: "appointments/{id}", serve: k.get},
	}
}

func appointmentFilters(ctx context.Context, c *connectCall) ([]filter, *parameters, error) {
	q := c.parameters()
	filters := equal("status", q.word("status", appointmentScheduled, appointmentConfirmed, appointmentCompleted,
		appointmentCancelled, appointmentNoShow))
	filters = append(filters, between(q, "starts_at", "from", "to")...)
	if id := q.text("calendar_id", 100); id != "" {
		filters = append(filters, filter{"calendar_id = ?", id})
		found, err := c.exists(ctx, "calendars", id)
		if err != nil {
			return nil, nil, err
		}
		if !found {
			q.p.add("calendar_id", "is none of the business's calendars", "an id of the calendars' list")
		}
	}
	if id := q.integer("contact_id", 0, math.MaxInt64); id != 0 {
		filters = append(filters, filter{"contact_id = ?", id})
		found, err := c.exists(ctx, "contacts", id)
		if err != nil {
			return nil, nil, err
		}
		if !found {
			q.p.add("contact_id", "is none of the business's contacts", "an id of the contacts' list")
		}
	}
	return filters, q, nil
}
