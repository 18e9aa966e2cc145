package mcp

import (
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
		"calendars_list":      list((*data.Client).Calendars, func(all []data.Calendar, n nextCursor) calendarPage { return calendarPage{all, n} }),
		"appointments_search": list((*data.Client).Appointments, func(all []data.Appointment, n nextCursor) appointmentPage { return appointmentPage{all, n} }),
		"appointments_get":    get((*data.Client).Appointments, func(one data.Appointment) appointmentResult { return appointmentResult{one} }),
	}
}
