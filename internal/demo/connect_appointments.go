package demo

import (
	"context"
	"math"
	"net/http"
)

type calendar struct {
	ID         string  `db:"id"`
	BusinessID string  `db:"business_id"`
	Name       string  `db:"name"`
	OwnerName  *string `db:"owner_name"`
	TimeZone   string  `db:"time_zone"`
}

func calendarKind() *kindOf[calendar] {
	return &kindOf[calendar]{
		one: "calendar", many: "calendars", what: "calendar", table: "calendars", key: "name", id: "id",
		fields: fieldsOf[calendar](),
	}
}

type appointment struct {
	ID           string  `db:"id"`
	BusinessID   string  `db:"business_id"`
	CalendarID   string  `db:"calendar_id"`
	CalendarName string  `db:"calendar_name"` // by the view
	ContactID    *int64  `db:"contact_id"`
	ContactName  *string `db:"contact_name"` // by the view
	Title        string  `db:"title"`
	Notes        *string `db:"notes"`
	Location     *string `db:"location"`
	StartsAt     string  `db:"starts_at"`
	EndsAt       string  `db:"ends_at"`
	Status       string  `db:"status"`
	BookedBy     string  `db:"booked_by"` // "receptionist", "staff" or "online"
	CreatedAt    string  `db:"created_at"`
	UpdatedAt    string  `db:"updated_at"`
}

// The states of an appointment.
const (
	appointmentScheduled = "scheduled"
	appointmentConfirmed = "confirmed"
	appointmentCompleted = "completed"
	appointmentCancelled = "cancelled"
	appointmentNoShow    = "no_show"
)

func appointmentKind() *kindOf[appointment] {
	return &kindOf[appointment]{
		one: "appointment", many: "appointments", what: "appointment", table: "connect_appointments", key: "starts_at", id: "id",
		fields: fieldsOf[appointment](),
	}
}

func appointmentRoutes() []route {
	k, calendars := appointmentKind(), calendarKind()
	return []route{
		{method: http.MethodGet, path: "calendars", query: true, serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			return calendars.page(ctx, c, c.parameters())
		}},
		{method: http.MethodGet, path: "appointments", query: true, serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
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
