package demo

type contact struct {
	ID           int64
	BusinessID   string
	FirstName    string
	LastName     *string
	Email        *string
	PhoneNumber  *string // national significant number, digits only
	CountryCode  *string // calling code with its plus sign; with a number only
	Type         string
	Status       string
	Notes        *string
	DateCreated  string
	DateModified string
}

func contactFields() []field[contact] {
	type r = contact
	return []field[r]{
		integer("id", func(r *r) *int64 { return &r.ID }),
		text("business_id", func(r *r) *string { return &r.BusinessID }),
		text("first_name", func(r *r) *string { return &r.FirstName }),
		optText("last_name", func(r *r) **string { return &r.LastName }),
		optText("email", func(r *r) **string { return &r.Email }),
		optText("phone_number", func(r *r) **string { return &r.PhoneNumber }),
		optText("country_code", func(r *r) **string { return &r.CountryCode }),
		text("contact_type", func(r *r) *string { return &r.Type }),
		text("contact_status", func(r *r) *string { return &r.Status }),
		optText("notes", func(r *r) **string { return &r.Notes }),
		text("date_created", func(r *r) *string { return &r.DateCreated }),
		text("date_modified", func(r *r) *string { return &r.DateModified }),
	}
}
