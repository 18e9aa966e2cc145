package mcp

import (
	"context"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

type calendarPage struct {
	Calendars []data.Calendar `json:"calendars" maxItems:"100"`
	nextCursor
}

type appointmentPage struct {
	Appointments []data.Appointment `json:"appointments" maxItems:"100"`
	nextCursor
}

type appointmentResult struct {
	Appointment data.Appointment `json:"appointment"`
}

func appointmentTools() []*tool {
	return []*tool{
		{
			name:        "calendars_list",
			title:       "List calendars",
			description: "The calendars of the business's appointments: crews, rooms, people.",
			scope:       "appointments:read", about: "calendar",
			arguments: listing(""),
			function: handle(func(ctx context.Context, c *toolCall, l data.List) (calendarPage, error) {
				page, err := c.data().Calendars(ctx, c.by, l)
				return calendarPage{page.Items, next(page.Next)}, err
			}),
		},
		{
			name:  "appointments_search",
			title: "Search appointments",
			description: "Find appointments across all calendars, the earliest first. For future appointments, send the current time " +
				"as from; for one day, send from and to. Times in results are UTC: convert them to the business's time zone.",
			scope: "appointments:read", about: "appointment",
			arguments: map[string]string{
				"cursor": aboutCursor, "calendar_id": theID("calendar", "calendars_list"),
				"contact_id": "The contact's id, as contacts_search gives it.",
			},
			function: handle(func(ctx context.Context, c *toolCall, f data.AppointmentFilter) (appointmentPage, error) {
				page, err := c.data().Appointments(ctx, c.by, f)
				return appointmentPage{page.Items, next(page.Next)}, err
			}),
		},
		{
			name:        "appointments_get",
			title:       "Get appointment",
			description: "One appointment with its notes and place.",
			scope:       "appointments:read", about: "appointment",
			arguments: naming("appointment", "appointments_search"),
			function: handle(func(ctx context.Context, c *toolCall, a idArguments) (appointmentResult, error) {
				appointment, err := c.data().Appointment(ctx, c.by, a.ID)
				return appointmentResult{appointment}, err
			}),
		},
	}
}
