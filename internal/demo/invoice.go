package demo

type invoice struct {
	ID         string
	BusinessID string
	ContactID  int64
	JobID      *string
	Number     string
	Title      string
	Status     string
	Price      price
	PaidAmount decimal
	DueAt      *string
	IssuedAt   *string
	SentAt     *string
	PaidAt     *string // when it was paid in full
	CreatedAt  string
	UpdatedAt  string
}

func invoiceFields() []field[invoice] {
	type r = invoice
	return []field[r]{
		text("id", func(r *r) *string { return &r.ID }),
		text("business_id", func(r *r) *string { return &r.BusinessID }),
		internal(integer("contact_id", func(r *r) *int64 { return &r.ContactID })),
		internal(optText("job_id", func(r *r) **string { return &r.JobID })),
		text("invoice_number", func(r *r) *string { return &r.Number }),
		text("title", func(r *r) *string { return &r.Title }),
		text("status", func(r *r) *string { return &r.Status }),
		amount("subtotal", func(r *r) *decimal { return &r.Price.Subtotal }),
		optText("discount_type", func(r *r) **string { return &r.Price.DiscountType }),
		optAmount("discount_value", func(r *r) **decimal { return &r.Price.DiscountValue }),
		internal(amount("discount_amount", func(r *r) *decimal { return &r.Price.DiscountAmount })),
		amount("tax_rate", func(r *r) *decimal { return &r.Price.TaxRate }),
		amount("tax_amount", func(r *r) *decimal { return &r.Price.TaxAmount }),
		amount("total_amount", func(r *r) *decimal { return &r.Price.Total }),
		amount("paid_amount", func(r *r) *decimal { return &r.PaidAmount }),
		optText("due_at", func(r *r) **string { return &r.DueAt }),
		optText("issued_at", func(r *r) **string { return &r.IssuedAt }),
		optText("sent_at", func(r *r) **string { return &r.SentAt }),
		optText("paid_at", func(r *r) **string { return &r.PaidAt }),
		text("created_at", func(r *r) *string { return &r.CreatedAt }),
		text("updated_at", func(r *r) *string { return &r.UpdatedAt }),
	}
}
