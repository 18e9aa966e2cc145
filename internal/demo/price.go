package demo

// The kinds of discount. The value is a percentage of the subtotal, or an amount.
const (
	discountPercentage = "percentage"
	discountFixed      = "fixed"
)

// price is how an estimate or an invoice adds up:
// subtotal - discount + tax = total, and tax is a percentage of what is left
// after the discount.
type price struct {
	Subtotal       decimal
	DiscountType   *string
	DiscountValue  *decimal
	DiscountAmount decimal
	TaxRate        decimal // percent
	TaxAmount      decimal
	Total          decimal
}

// add computes the amounts from the subtotal, the discount and the tax rate.
func (p *price) add() {
	p.DiscountAmount = 0
	if p.DiscountType != nil && p.DiscountValue != nil {
		p.DiscountAmount = *p.DiscountValue
		if *p.DiscountType == discountPercentage {
			p.DiscountAmount = p.Subtotal.percent(*p.DiscountValue)
		}
		p.DiscountAmount = min(p.DiscountAmount, p.Subtotal)
	}
	net := p.Subtotal - p.DiscountAmount
	p.TaxAmount = net.percent(p.TaxRate)
	p.Total = net + p.TaxAmount
}
