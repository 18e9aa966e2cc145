package demo

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// person is a customer or a lead while its story is made up.
type person struct {
	contact int // index in the dataset
	created time.Time
	last    time.Time // when something last happened
	buyer   bool
}

func (s *seeder) makeContacts() {
	type draft struct {
		contact
		created time.Time
		vendor  bool
	}
	drafts := make([]draft, s.profile.contacts)
	for i := range drafts {
		d := &drafts[i]
		d.created = s.sometime()
		if i < 20 {
			// The first customers, so that the first sales have someone to go to.
			d.created = s.office(s.start.Add(s.between(0, 9*day)))
		}
		d.vendor = s.chance(7)
		d.contact = s.person()
		if d.vendor {
			s.makeVendor(&d.contact)
		}
		d.DateCreated = instant(d.created)
		d.DateModified = d.DateCreated
	}
	oldestFirst(drafts, func(d *draft) string { return d.DateCreated })

	// The platform counts contacts across its businesses: each sees gaps.
	id := int64(10400 + s.index)
	for i := range drafts {
		d := &drafts[i]
		id += int64(businessCount * (1 + s.IntN(5)))
		d.ID = id
		d.BusinessID = s.business.ID
		s.data.contacts = append(s.data.contacts, d.contact)
		if !d.vendor {
			s.people = append(s.people, person{contact: i, created: d.created, last: d.created})
		}
	}
}

func (s *seeder) person() contact {
	c := contact{FirstName: pick(s, s.firstNames), Status: "active", Type: "lead"}
	if !s.chance(3) {
		c.LastName = new(pick(s, s.lastNames))
	}
	if !s.chance(10) {
		c.Email = new(s.email(c.FirstName, orEmpty(c.LastName)))
	}
	if c.Email == nil || !s.chance(8) {
		c.CountryCode = new(s.dialling)
		c.PhoneNumber = new(s.phone())
	}
	return c
}

func (s *seeder) makeVendor(c *contact) {
	firm := pick(s, s.vendorFirms)
	c.Type = "vendor"
	if c.LastName == nil {
		c.LastName = new(pick(s, s.lastNames))
	}
	c.Email = new(mailName(c.FirstName) + "." + mailName(*c.LastName) + "@" + firm.host)
	c.Notes = new(firm.name + ", " + firm.trade + ". " + pick(s, s.vendorNotes))
	if s.chance(12) {
		c.Status = "inactive"
	}
}

func (s *seeder) phone() string {
	for {
		block := pick(s, s.phones)
		n := fmt.Sprintf("%s%0*d", block.prefix, block.digits, block.from+s.IntN(block.count))
		if key := s.dialling + n; !s.numbers[key] {
			s.numbers[key] = true
			return n
		}
	}
}

func (s *seeder) email(first, last string) string {
	first, last = mailName(first), mailName(last)
	local := first
	if last != "" {
		usual := first + "." + last
		local = pick(s, []string{usual, usual, usual, usual, first[:1] + last, last + "." + first})
	}
	if s.chance(12) {
		local += strconv.Itoa(60 + s.IntN(40))
	}
	host := pick(s, []string{"example.com", "mail.example.com", "home.example.com", "inbox.test", "post.test"})
	address := local + "@" + host
	for n := 2; s.emails[address]; n++ {
		address = local + strconv.Itoa(n) + "@" + host
	}
	s.emails[address] = true
	return address
}

// mailName writes a name as people do in a mail address.
func mailName(name string) string {
	plain := strings.NewReplacer("á", "a", "é", "e", "ë", "e", "í", "i", "ó", "o", "ö", "o", "ø", "o", "â", "a", "ł", "l", "ñ", "n")
	return strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && unicode.IsLetter(r) {
			return r
		}
		return -1
	}, plain.Replace(strings.ToLower(name)))
}

// customer gives someone who was known at a time, rather someone new.
func (s *seeder) customer(t time.Time) *person {
	known := 0
	for known < len(s.people) && !s.people[known].created.After(t) {
		known++
	}
	known = max(known, 1)
	u := s.Float64()
	back := int(u * u * float64(min(known, 140)))
	return &s.people[known-1-back]
}

// finishContacts says of everyone what the sales have made of them.
func (s *seeder) finishContacts() {
	aboutLeads, aboutCustomers := &deck{cards: s.leadNotes}, &deck{cards: s.customerNotes}
	for i := range s.people {
		p := &s.people[i]
		c := &s.data.contacts[p.contact]
		quiet := s.end.Sub(p.last)
		notes := aboutLeads
		inactive := quiet > 150*day && s.chance(55)
		if p.buyer {
			c.Type = "customer"
			notes = aboutCustomers
			inactive = quiet > 330*day && s.chance(60)
		}
		if inactive {
			c.Status = "inactive"
			p.last = s.follows(p.last, s.between(90*day, quiet))
		}
		if s.chance(45) {
			note := notes.draw(s)
			if s.chance(40) {
				note += " " + notes.draw(s)
			}
			c.Notes = &note
		}
		if s.chance(25) {
			p.last = s.follows(p.last, s.wait(10*day))
		}
		c.DateModified = instant(p.last)
	}
}
