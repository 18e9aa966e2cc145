package mcp

import (
	"context"
	"time"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

func appointmentStatuses() node {
	return oneOf("scheduled", "confirmed", "completed", "cancelled", "no_show")
}

func appointmentSchema() node {
	return object(
		must("id", id()), must("calendar_id", id()), must("calendar_name", free(255)), must("contact_id", contactID().orNull()),
		must("contact_name", words(512)), must("title", free(1000)), must("notes", words(20_000)), must("location", words(1000)),
		must("starts_at", instant()), must("ends_at", instant()), must("status", appointmentStatuses()),
		must("booked_by", oneOf("receptionist", "staff", "online")), must("created_at", instant()), must("updated_at", instant()),
	)
}

type appointmentSearch struct {
	listArguments

	CalendarID string    `json:"calendar_id"`
	ContactID  int64     `json:"contact_id"`
	Status     string    `json:"status"`
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
}

func appointmentTools() []*tool {
	return []*tool{
		{
			name:        "calendars_list",
			title:       "List calendars",
			description: "The calendars in which the business's appointments stand: crews, rooms, people.",
			scope:       "appointments:read", about: "calendar",
			in: object(may("limit", limitArgument()), may("cursor", cursorArgument())),
			out: part("calendars", object(
				must("id", id()), must("name", free(255)), must("owner_name", words(255)), must("time_zone", free(64)),
			)),
			run: handle(func(ctx context.Context, c *toolCall, a listArguments) (*outcome, error) {
				page, err := c.data().Calendars(ctx, c.by, a.list())
				return listed("calendars", page, err)
			}),
		},
		{
			name:  "appointments_search",
			title: "Search appointments",
			description: "Find appointments across all calendars, the earliest first. For what is to come send from with the present " +
				"time; for one day send from and to. Times in answers are UTC: convert them to the business's time zone.",
			scope: "appointments:read", about: "appointment",
			in: object(
				may("from", instant().because("Only appointments that start at this instant or later.").
					example("2026-03-10T00:00:00-05:00")),
				may("to", instant().because("Only appointments that start before this instant.")),
				may("calendar_id", idArgument("calendar", "calendars_list")),
				may("contact_id", contactArgument()),
				may("status", appointmentStatuses()),
				may("limit", limitArgument()), may("cursor", cursorArgument()),
			),
			out: part("appointments", appointmentSchema()),
			run: handle(func(ctx context.Context, c *toolCall, a appointmentSearch) (*outcome, error) {
				page, err := c.data().Appointments(ctx, c.by, data.AppointmentFilter{
					CalendarID: a.CalendarID, ContactID: a.ContactID, Status: a.Status, From: a.From, To: a.To, List: a.list(),
				})
				return listed("appointments", page, err)
			}),
		},
		{
			name:        "appointments_get",
			title:       "Get appointment",
			description: "One appointment with its notes and place.",
			scope:       "appointments:read", about: "appointment",
			in:  object(must("id", idArgument("appointment", "appointments_search"))),
			out: object(must("appointment", appointmentSchema())),
			run: handle(func(ctx context.Context, c *toolCall, a idArguments) (*outcome, error) {
				appointment, err := c.data().Appointment(ctx, c.by, a.ID)
				return found("appointment", appointment, err)
			}),
		},
	}
}
