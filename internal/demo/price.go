package demo

// price is how an estimate or an invoice adds up:
// subtotal - discount + tax = total, and tax is a percentage of what is left
// after the discount.
type price struct {
	Subtotal       decimal
	DiscountType   *string // "percentage" of the subtotal, or "fixed"
	DiscountValue  *decimal
	DiscountAmount decimal
	TaxRate        decimal // percent
	TaxAmount      decimal
	Total          decimal
}
