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

func appointmentTools() map[string]function {
	return map[string]function{
		"calendars_list": handle(func(ctx context.Context, c *toolCall, l data.List) (calendarPage, error) {
			page, err := c.data().Calendars().List(ctx, c.caller, l)
			return calendarPage{page.Items, next(page.Next)}, err
		}),
		"appointments_search": handle(func(ctx context.Context, c *toolCall, f data.AppointmentFilter) (appointmentPage, error) {
			page, err := c.data().Appointments().List(ctx, c.caller, f)
			return appointmentPage{page.Items, next(page.Next)}, err
		}),
		"appointments_get": handle(func(ctx context.Context, c *toolCall, a idArguments) (appointmentResult, error) {
			appointment, err := c.data().Appointments().Get(ctx, c.caller, a.ID)
			return appointmentResult{appointment}, err
		}),
	}
}
