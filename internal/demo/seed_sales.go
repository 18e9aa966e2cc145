package demo

import (
	"fmt"
	"slices"
	"time"
)

// sale is one piece of business from the first request to the last payment.
type sale struct {
	work    *work
	who     *person
	source  *string
	price   price
	deposit decimal   // that was paid, 0 if none was asked for
	paid    decimal   // in all
	paidAt  time.Time // the last payment
}

func (s *seeder) makeSales() {
	// The first sale is later than the first customers.
	first := s.office(s.start.Add(12 * day))
	for range s.profile.estimates {
		s.quotedSale(maxTime(s.sometime(), first.Add(s.between(0, 5*day))))
	}
	for range s.directJobs {
		s.directSale(maxTime(s.sometime(), first.Add(s.between(0, 5*day))))
	}
	s.currentSales()
	s.numberPapers()
}

// currentSales adds what would be on the desk of a business that is open today,
// which chance alone may leave out.
func (s *seeder) currentSales() {
	if s.closedAgo > 0 {
		return
	}
	for i := range 5 {
		// Under way: begun yesterday or the day before, with days to go.
		created := s.office(s.now.AddDate(0, 0, -9-2*i))
		sl := s.newSale(created, true)
		s.schedule(sl, created, s.morning(s.now, -2-i%2), s.now.Add(s.between(20*time.Hour, 96*time.Hour)), nil)
	}
	for i, status := range []string{"draft", "draft", "sent", "viewed"} {
		// Done the day before yesterday or yesterday, and not paid yet.
		created := s.office(s.now.AddDate(0, 0, -12-i))
		finished := s.morning(s.now, -2).Add(s.between(2*time.Hour, 4*time.Hour))
		sl := s.newSale(created, true)
		sl.who.buyer = true
		j := s.addJob(sl, created, "completed", finished)
		inv := s.newInvoice(sl, j, finished.Add(s.between(5*time.Minute, 40*time.Minute)))
		if status != "draft" {
			s.issue(&inv, finished.Add(s.between(42*time.Minute, 80*time.Minute)))
			inv.Status = status
		}
		s.data.invoices = append(s.data.invoices, inv)
	}
	for i := range 4 {
		created := s.notLater(s.office(s.now.AddDate(0, 0, -i)))
		sl := s.newSale(created, true)
		s.addJob(sl, created, []string{"draft", "sent"}[i%2], created)
		created = s.notLater(s.office(s.now.AddDate(0, 0, -i)))
		sl = s.newSale(created, true)
		e := s.newEstimate(sl, created)
		if i%2 == 1 {
			s.sendEstimate(&e, created, s.notLater(s.after(created, time.Hour)))
		}
		s.data.estimates = append(s.data.estimates, e)
	}
}

// newSale finds someone who wants some work of the season, with a quote or without.
func (s *seeder) newSale(created time.Time, quoted bool) *sale {
	month := int(created.In(s.zone).AddDate(0, 0, 10).Month())
	var season []*work
	for i := range s.works {
		if w := &s.works[i]; w.months.has(month) && (w.order == byQuote || !quoted) {
			season = append(season, w)
		}
	}
	sl := &sale{work: pick(s, season), who: s.customer(created)}
	s.touch(sl, created)
	if !s.chance(22) {
		sl.source = new(pick(s, s.leadSources))
	}
	sl.price = s.priceOf(sl.work)
	return sl
}

// touch notes that something happened with a sale's customer.
func (s *seeder) touch(sl *sale, t time.Time) {
	if t.After(sl.who.last) {
		sl.who.last = t
	}
}

func (s *seeder) priceOf(w *work) price {
	labour := decimal(s.in(w.quarters)) * pick(s, s.hourlyRates) / 4
	material := decimal(s.in(w.material)) * 100
	if material > 0 {
		// Shelf prices do not come out even.
		material += decimal(pick(s, []int{0, 0, 20, 40, 49, 50, 75, 80, 90, 95, 98, 99}))
	}
	p := price{Subtotal: labour + material, TaxRate: s.taxRate}
	if s.chance(17) {
		if fixed := pick(s, s.discounts); s.chance(50) && fixed*4 < p.Subtotal {
			p.DiscountType, p.DiscountValue = new(discountFixed), &fixed
		} else {
			p.DiscountType, p.DiscountValue = new(discountPercentage), new(pick(s, []decimal{500, 500, 750, 1000, 1500}))
		}
	}
	p.add()
	return p
}

// quotedSale begins with an estimate.
func (s *seeder) quotedSale(created time.Time) {
	sl := s.newSale(created, true)
	e := s.newEstimate(sl, created)
	defer func() { s.data.estimates = append(s.data.estimates, e) }()

	sent := s.after(created, s.wait(9*time.Hour))
	if sent.After(s.end) || s.chance(2) {
		return
	}
	s.sendEstimate(&e, created, sent)
	s.touch(sl, sent)

	answer := s.after(sent, s.wait(5*day))
	outcome := s.IntN(100)
	switch {
	case outcome >= 85 || answer.After(s.end) || instant(answer) > *e.ExpiresAt: // no answer, or not yet
		if *e.ExpiresAt < instant(s.now) {
			e.Status = "expired"
			e.UpdatedAt = *e.ExpiresAt
		}
	case outcome >= 66:
		e.Status = "declined"
		e.UpdatedAt = instant(answer)
		s.touch(sl, answer)
	default:
		e.Status = "approved"
		e.ApprovedAt = at(answer)
		e.UpdatedAt = instant(answer)
		s.touch(sl, answer)
		if e.DepositRequired {
			if paid := s.after(answer, s.wait(day)); !paid.After(s.end) {
				sl.deposit = *e.DepositAmount
				sl.paid, sl.paidAt = sl.deposit, paid
			}
		}
		created := maxTime(answer, s.notLater(s.after(answer, s.wait(5*time.Hour))))
		s.schedule(sl, created, time.Time{}, time.Time{}, &e)
		e.AmountPaid = sl.paid
		e.UpdatedAt = max(e.UpdatedAt, instant(sl.paidAt))
		switch {
		case sl.paid == 0:
		case sl.paid < e.Price.Total:
			e.PaymentStatus = "partial"
		default:
			e.PaymentStatus = "paid"
		}
	}
}

func (s *seeder) newEstimate(sl *sale, created time.Time) estimate {
	e := estimate{
		ID:            s.uuid(),
		BusinessID:    s.business.ID,
		ContactID:     s.data.contacts[sl.who.contact].ID,
		Title:         sl.work.title,
		Status:        "draft",
		PaymentStatus: "unpaid",
		Price:         sl.price,
		CreatedAt:     instant(created),
		UpdatedAt:     instant(created),
	}
	if e.Price.Total >= s.depositFrom {
		e.DepositRequired = true
		// In whole units: nobody asks for a deposit with cents.
		e.DepositAmount = new(e.Price.Total.percent(pick(s, []decimal{2500, 3000, 5000})) / 100 * 100)
	}
	return e
}

func (s *seeder) sendEstimate(e *estimate, created, sent time.Time) {
	if sent.Before(created) {
		sent = created
	}
	e.Status = "sent"
	e.SentAt = at(sent)
	e.ExpiresAt = at(s.endOfDay(sent, pick(s, []int{14, 30, 30, 30, 45})))
	e.UpdatedAt = *e.SentAt
}

// directSale is a job without an estimate.
func (s *seeder) directSale(created time.Time) {
	sl := s.newSale(created, false)
	sent := s.after(created, s.wait(8*time.Hour))
	agreed := s.after(sent, s.wait(20*time.Hour))
	switch {
	case sl.work.order == callOut:
		begin := created.Add(s.between(40*time.Minute, 4*time.Hour))
		s.schedule(sl, created, begin, begin.Add(s.between(time.Hour, 5*time.Hour)), nil)
	case sent.After(s.end) || s.chance(1):
		s.addJob(sl, created, "draft", created)
	case agreed.After(s.end):
		s.addJob(sl, created, "sent", sent)
	default:
		s.schedule(sl, created, time.Time{}, time.Time{}, nil)
	}
}

// schedule makes the job of a sale and takes it as far as time has gone. The
// times of the work are drawn where they are not given.
func (s *seeder) schedule(sl *sale, created, begin, finish time.Time, e *estimate) {
	if begin.IsZero() {
		ahead := span{2, 26}
		if sl.work.days == 1 {
			ahead = span{1, 12}
		}
		begin = s.morning(created, s.in(ahead))
		finish = begin.AddDate(0, 0, sl.work.days-1).Add(s.between(2*time.Hour, 9*time.Hour))
	}
	sl.who.buyer = true

	cancelled := s.after(created, s.wait(3*day))
	isCancelled := s.chance(7) && cancelled.Before(begin) && !cancelled.After(s.end)
	if s.closedAgo > 0 {
		// What was planned for after the end did not happen, and what was under
		// way was brought to one.
		if begin.After(s.end) {
			isCancelled, cancelled = true, s.end
		}
		if finish.After(s.end) {
			finish = s.end
		}
	}

	var j *job
	switch {
	case isCancelled:
		// The deposit has been given back.
		sl.paid, sl.paidAt = 0, cancelled
		j = s.addJob(sl, created, "cancelled", cancelled)
	case begin.After(s.end):
		j = s.addJob(sl, created, "scheduled", s.follows(created, s.wait(day)))
	case finish.After(s.end):
		j = s.addJob(sl, created, "in_progress", begin)
	default:
		j = s.addJob(sl, created, "completed", finish)
		s.bill(sl, j, finish)
	}
	if e != nil {
		e.JobID = &j.ID
	}
	// Payments may have come in since the job was made.
	if j.Status == "cancelled" {
		j.OutstandingBalance = 0
	} else {
		j.OutstandingBalance = sl.price.Total - sl.paid
	}
	j.UpdatedAt = max(j.UpdatedAt, instant(sl.paidAt))
}

// addJob adds a job to the data. The pointer to it is good until the next one.
func (s *seeder) addJob(sl *sale, created time.Time, status string, updated time.Time) *job {
	name := sl.work.title + " – " + s.calledBy(sl.who)
	j := job{
		ID:                 s.uuid(),
		BusinessID:         s.business.ID,
		ContactID:          s.data.contacts[sl.who.contact].ID,
		Name:               name,
		Status:             status,
		TotalAmount:        sl.price.Total,
		OutstandingBalance: sl.price.Total - sl.paid,
		LeadSource:         sl.source,
		CreatedAt:          instant(created),
		UpdatedAt:          instant(maxTime(created, updated)),
	}
	if !s.chance(9) {
		description := sl.work.description
		if s.chance(40) {
			description += " " + s.sites.draw(s)
		}
		j.Description = &description
	}
	s.touch(sl, updated)
	s.data.jobs = append(s.data.jobs, j)
	return &s.data.jobs[len(s.data.jobs)-1]
}

// calledBy is what the business calls a customer on its papers.
func (s *seeder) calledBy(p *person) string {
	c := &s.data.contacts[p.contact]
	if c.LastName != nil {
		return *c.LastName
	}
	return c.FirstName
}

// bill makes the invoice of finished work, and follows its payment.
func (s *seeder) bill(sl *sale, j *job, finished time.Time) {
	created := s.after(finished, s.wait(20*time.Hour))
	if created.After(s.end) {
		return
	}
	if s.chance(3) {
		// Made out wrongly, voided and made again.
		wrong := s.newInvoice(sl, j, created)
		sent := s.after(created, time.Hour)
		voided := s.after(sent, s.wait(day))
		if !voided.After(s.end) {
			s.issue(&wrong, sent)
			wrong.Status = "voided"
			wrong.PaidAmount = 0
			wrong.UpdatedAt = instant(voided)
			s.data.invoices = append(s.data.invoices, wrong)
			created = voided.Add(s.between(2*time.Minute, 20*time.Minute))
			if created.After(s.end) {
				return
			}
		}
	}

	inv := s.newInvoice(sl, j, created)
	defer func() { s.data.invoices = append(s.data.invoices, inv) }()
	sent := s.after(created, s.wait(5*time.Hour))
	if sent.After(s.end) || s.chance(1) {
		return
	}
	s.issue(&inv, sent)
	s.touch(sl, sent)

	last := sent
	if viewed := sent.Add(s.wait(20 * time.Hour)); s.chance(80) && !viewed.After(s.end) {
		inv.Status = "viewed"
		last = maxTime(last, viewed)
	}
	paid := maxTime(last.Add(time.Minute), s.after(sent, s.wait(9*day)))
	if !paid.After(s.end) {
		longAgo := s.end.Sub(sent) > 100*day
		switch {
		case s.chance(93) || longAgo && s.chance(80):
			inv.Status = "paid"
			inv.PaidAmount = inv.Price.Total
			inv.PaidAt = at(paid)
			last, sl.paidAt = paid, paid
		case s.chance(30):
			inv.PaidAmount += (inv.Price.Total - inv.PaidAmount) / 2 / 100 * 100
			last, sl.paidAt = paid, paid
		}
	}
	sl.paid = inv.PaidAmount
	if inv.Status != "paid" && *inv.DueAt < instant(s.now) {
		inv.Status = "overdue"
	}
	s.touch(sl, last)
	inv.UpdatedAt = instant(last)
	if inv.Status == "overdue" && *inv.DueAt > inv.UpdatedAt {
		inv.UpdatedAt = *inv.DueAt
	}
}

func (s *seeder) newInvoice(sl *sale, j *job, created time.Time) invoice {
	return invoice{
		ID:         s.uuid(),
		BusinessID: s.business.ID,
		ContactID:  j.ContactID,
		JobID:      new(j.ID),
		Title:      sl.work.title,
		Status:     "draft",
		Price:      sl.price,
		PaidAmount: sl.deposit,
		CreatedAt:  instant(created),
		UpdatedAt:  instant(created),
	}
}

func (s *seeder) issue(inv *invoice, sent time.Time) {
	inv.Status = "sent"
	inv.IssuedAt = new(max(inv.CreatedAt, instant(sent.Add(-s.between(0, 90*time.Second)))))
	inv.SentAt = at(sent)
	inv.DueAt = at(s.endOfDay(sent, pick(s, s.termDays)))
	inv.UpdatedAt = *inv.SentAt
}

// numberPapers gives jobs, estimates and invoices their numbers, as they were made.
func (s *seeder) numberPapers() {
	oldestFirst(s.data.jobs, func(j *job) string { return j.CreatedAt })
	for i := range s.data.jobs {
		s.data.jobs[i].Number = fmt.Sprintf(s.papers.job, s.papers.first+i)
	}
	oldestFirst(s.data.estimates, func(e *estimate) string { return e.CreatedAt })
	for i := range s.data.estimates {
		s.data.estimates[i].Number = fmt.Sprintf(s.papers.estimate, s.papers.first+i)
	}
	oldestFirst(s.data.invoices, func(inv *invoice) string { return inv.CreatedAt })
	for i := range s.data.invoices {
		s.data.invoices[i].Number = fmt.Sprintf(s.papers.invoice, s.papers.first+i)
	}
}

func maxTime(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}
