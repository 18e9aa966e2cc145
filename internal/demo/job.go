package demo

type job struct {
	ID                 string
	BusinessID         string
	ContactID          int64
	Number             string
	Name               string
	Description        *string
	Status             string
	TotalAmount        decimal
	OutstandingBalance decimal // nothing is outstanding of a cancelled job
	LeadSource         *string
	CreatedAt          string
	UpdatedAt          string
}

func jobFields() []field[job] {
	type r = job
	return []field[r]{
		text("id", func(r *r) *string { return &r.ID }),
		text("business_id", func(r *r) *string { return &r.BusinessID }),
		internal(integer("contact_id", func(r *r) *int64 { return &r.ContactID })),
		text("job_number", func(r *r) *string { return &r.Number }),
		text("name", func(r *r) *string { return &r.Name }),
		optText("description", func(r *r) **string { return &r.Description }),
		text("work_status", func(r *r) *string { return &r.Status }),
		amount("total_amount", func(r *r) *decimal { return &r.TotalAmount }),
		amount("outstanding_balance", func(r *r) *decimal { return &r.OutstandingBalance }),
		optText("lead_source", func(r *r) **string { return &r.LeadSource }),
		text("created_at", func(r *r) *string { return &r.CreatedAt }),
		text("updated_at", func(r *r) *string { return &r.UpdatedAt }),
	}
}
