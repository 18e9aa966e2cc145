package demo

type offering struct {
	ID                  string
	BusinessID          string
	Name                string
	Type                string
	Status              string
	Description         *string
	ServiceDetails      string // a JSON array of strings
	DontBookAppointment bool
	AppointmentDuration *int64 // minutes; nil where nothing is booked
	CreatedAt           string
	UpdatedAt           string
}

func offeringFields() []field[offering] {
	type r = offering
	return []field[r]{
		text("id", func(r *r) *string { return &r.ID }),
		text("business_id", func(r *r) *string { return &r.BusinessID }),
		text("name", func(r *r) *string { return &r.Name }),
		text("type", func(r *r) *string { return &r.Type }),
		text("status", func(r *r) *string { return &r.Status }),
		optText("description", func(r *r) **string { return &r.Description }),
		raw("service_details", func(r *r) *string { return &r.ServiceDetails }),
		boolean("dont_book_appointment", func(r *r) *bool { return &r.DontBookAppointment }),
		optInteger("appointment_duration", func(r *r) **int64 { return &r.AppointmentDuration }),
		text("created_at", func(r *r) *string { return &r.CreatedAt }),
		text("updated_at", func(r *r) *string { return &r.UpdatedAt }),
	}
}
