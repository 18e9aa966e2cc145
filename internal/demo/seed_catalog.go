package demo

import (
	"fmt"
	"time"
)

func (s *seeder) makeOfferings() {
	for _, kind := range []struct {
		name    string
		entries []catalogEntry
	}{{"service", s.services}, {"product", s.products}} {
		for i := range kind.entries {
			e := &kind.entries[i]
			// The variants of an entry came into the catalogue together.
			created := s.start.Add(s.between(2*day, 40*day))
			if s.chance(45) {
				created = s.start.Add(s.between(40*day, s.end.Sub(s.start)-5*day))
			}
			created = s.office(created)
			variants := e.variants
			if len(variants) == 0 {
				variants = []variant{{}}
			}
			for _, v := range variants {
				created = created.Add(s.between(40*time.Second, 6*time.Minute))
				s.data.offerings = append(s.data.offerings, s.offering(kind.name, e, v, created))
			}
		}
	}
	oldestFirst(s.data.offerings, func(o *offering) string { return o.CreatedAt })
}

func (s *seeder) offering(kind string, e *catalogEntry, v variant, created time.Time) offering {
	o := offering{
		ID:             s.uuid(),
		BusinessID:     s.business.ID,
		Name:           e.name,
		Type:           kind,
		Status:         "active",
		Description:    &e.description,
		ServiceDetails: jsonTexts(e.details),
		CreatedAt:      instant(created),
		UpdatedAt:      instant(created),
	}
	if v.name != "" {
		o.Name = fmt.Sprintf(e.name, v.name)
	}
	if s.chance(7) {
		o.Description = nil
	}
	minutes := int64(e.minutes)
	if v.minutes > 0 {
		minutes = int64(v.minutes)
	}
	if minutes > 0 {
		o.AppointmentDuration = &minutes
	} else {
		o.DontBookAppointment = true
	}
	if s.chance(60) {
		// Prices and wording are gone over now and then.
		if changed := s.office(created.Add(s.between(20*day, 400*day))); changed.Before(s.end) {
			o.UpdatedAt = instant(changed)
			if s.chance(18) {
				o.Status = "inactive"
			}
		}
	}
	return o
}

func jsonTexts(texts []string) string {
	b := []byte{'['}
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, text)
	}
	return string(append(b, ']'))
}

func (s *seeder) makeEquipment() {
	for i := range s.kit {
		for range s.kit[i].units {
			s.data.equipment = append(s.data.equipment, s.piece(&s.kit[i]))
		}
	}
	oldestFirst(s.data.equipment, func(e *equipment) string { return e.CreatedAt })
	for i := range s.data.equipment {
		s.data.equipment[i].Number = fmt.Sprintf(s.papers.equipment, i+1)
	}
}

func (s *seeder) piece(k *kit) equipment {
	created := s.sometime()
	if s.chance(40) {
		// What was there when the records began.
		created = s.office(s.start.Add(s.between(time.Hour, 6*day)))
	}
	e := equipment{
		ID:           s.uuid(),
		BusinessID:   s.business.ID,
		Name:         k.name,
		TrackingMode: "bulk",
		Quantity:     int64(s.in(k.quantity)),
		Category:     k.category,
		Status:       "available",
		CreatedAt:    instant(created),
	}
	if k.maker != "" {
		e.Manufacturer = &k.maker
	}
	if k.model != "" {
		e.Model = &k.model
	}
	bought := created.In(s.zone).AddDate(0, 0, -s.IntN(20))
	if created.Before(s.start.Add(7 * day)) {
		bought = bought.AddDate(0, 0, -s.IntN(1500))
	}
	if !s.chance(8) {
		e.PurchaseDate = new(date(bought))
	}
	changed := s.follows(created, s.between(day, 200*day))
	if k.serial != "" {
		e.TrackingMode, e.Quantity = "individual", 1
		e.SerialNumber = new(s.serial(k, bought))
		if s.chance(48) {
			e.Status = "assigned"
			changed = maxTime(created, s.notLater(s.office(s.end.Add(-s.between(0, 30*day)))))
		}
	}
	if age := s.end.Sub(bought); age > 900*day && s.chance(22) {
		e.Status = "retired"
	}
	if k.interval > 0 {
		interval := int64(k.interval)
		e.MaintenanceIntervalDays = &interval
		if e.Status != "retired" {
			done := int(s.end.Sub(bought)/day) / k.interval
			next := bought.AddDate(0, 0, (done+1)*k.interval)
			switch {
			case s.chance(7):
				e.Status = "maintenance"
				next = s.end.In(s.zone).AddDate(0, 0, -s.IntN(6))
				changed = maxTime(created, s.notLater(s.office(s.end.Add(-s.between(0, 4*day)))))
			case s.chance(4):
				next = s.end.In(s.zone).AddDate(0, 0, -1-s.IntN(12)) // overdue
			}
			e.NextMaintenanceDate = new(date(next))
		}
	}
	e.UpdatedAt = instant(maxTime(created, changed))
	return e
}

func (s *seeder) serial(k *kit, made time.Time) string {
	const letters = "ABCDEFGHJKLMNPRSTUVWXYZ"
	return fmt.Sprintf("%s%02d%c-%05d%s", k.serial, made.Year()%100, letters[int(made.Month())-1],
		s.IntN(100000), string(letters[s.IntN(len(letters))]))
}
