package demo

type estimate struct {
	ID              string
	BusinessID      string
	ContactID       int64
	JobID           *string // the job it became
	Number          string
	Title           string
	Status          string
	PaymentStatus   string
	Price           price
	DepositRequired bool
	DepositAmount   *decimal // nil without a required deposit
	AmountPaid      decimal
	ExpiresAt       *string
	SentAt          *string
	ApprovedAt      *string
	CreatedAt       string
	UpdatedAt       string
}

func estimateFields() []field[estimate] {
	type r = estimate
	return []field[r]{
		text("id", func(r *r) *string { return &r.ID }),
		text("business_id", func(r *r) *string { return &r.BusinessID }),
		internal(integer("contact_id", func(r *r) *int64 { return &r.ContactID })),
		internal(optText("job_id", func(r *r) **string { return &r.JobID })),
		text("estimate_number", func(r *r) *string { return &r.Number }),
		text("title", func(r *r) *string { return &r.Title }),
		text("status", func(r *r) *string { return &r.Status }),
		text("payment_status", func(r *r) *string { return &r.PaymentStatus }),
		amount("subtotal", func(r *r) *decimal { return &r.Price.Subtotal }),
		optText("discount_type", func(r *r) **string { return &r.Price.DiscountType }),
		optAmount("discount_value", func(r *r) **decimal { return &r.Price.DiscountValue }),
		internal(amount("discount_amount", func(r *r) *decimal { return &r.Price.DiscountAmount })),
		amount("tax_rate", func(r *r) *decimal { return &r.Price.TaxRate }),
		amount("tax_amount", func(r *r) *decimal { return &r.Price.TaxAmount }),
		amount("total_amount", func(r *r) *decimal { return &r.Price.Total }),
		boolean("deposit_required", func(r *r) *bool { return &r.DepositRequired }),
		optAmount("deposit_amount", func(r *r) **decimal { return &r.DepositAmount }),
		amount("amount_paid", func(r *r) *decimal { return &r.AmountPaid }),
		optText("expires_at", func(r *r) **string { return &r.ExpiresAt }),
		optText("sent_at", func(r *r) **string { return &r.SentAt }),
		optText("approved_at", func(r *r) **string { return &r.ApprovedAt }),
		text("created_at", func(r *r) *string { return &r.CreatedAt }),
		text("updated_at", func(r *r) *string { return &r.UpdatedAt }),
	}
}
