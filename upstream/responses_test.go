package upstream_test

import (
	"fmt"
	"strings"
	"time"
)

// The business of the tests, and another.
const (
	mine   = "biz_7f3a"
	theirs = "biz_9c1e"
)

// object is a JSON object whose members keep their order.
type object []pair

type pair struct {
	name  string
	value any // a JSON text for string, "null" for nil, an array for []object
}

// with returns a copy in which a member has another value; it is added at the end if it is new.
func (o object) with(name, value string) object {
	c := append(object(nil), o...)
	for i := range c {
		if c[i].name == name {
			c[i].value = value
			return c
		}
	}
	return append(c, pair{name, value})
}

// without returns a copy that lacks a member.
func (o object) without(name string) object {
	var c object
	for _, p := range o {
		if p.name != name {
			c = append(c, p)
		}
	}
	return c
}

func (o object) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, p := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%v", p.name, p.value)
	}
	b.WriteByte('}')
	return b.String()
}

func array(records ...object) string {
	texts := make([]string, len(records))
	for i, r := range records {
		texts[i] = r.String()
	}
	return "[" + strings.Join(texts, ",") + "]"
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

// instant is a moment in the tests' past, later for lower i: records made for rising i are newest first.
func instant(i int) string {
	return quoted(time.Date(2026, 3, 5, 14, 30, 0, 0, time.UTC).Add(-time.Duration(i) * time.Hour).Format(time.RFC3339))
}

func uuid(i int) string { return quoted(fmt.Sprintf("0190f3a2-7c4b-7d11-9e55-%012x", i)) }

// event is a published event as a data service sends it.
func event(i int) object {
	return object{
		{"id", uuid(i)},
		{"business_id", quoted(mine)},
		{"status", `"published"`},
		{"published_at", instant(i)},
		{"created_at", instant(i + 24)},
		{"title", quoted(fmt.Sprintf("Spring workshop %d: caring for old timber frames", i))},
		{"description", quoted("An afternoon in the yard. We look at joints, at rot and at what can be mended without " +
			"replacing the beam; bring gloves. Coffee and cake are on us, and there is room for twelve people.")},
		{"url", quoted(fmt.Sprintf("https://www.example.com/events/spring-workshop-%d", i))},
		{"type", `"multi-day"`},
		{"schedule", array(
			object{{"date", `"2026-04-11"`}, {"start_time", `"09:00"`}, {"end_time", `"16:30"`}},
			object{{"date", `"2026-04-12"`}, {"start_time", `"09:00"`}, {"end_time", `"12:00"`}},
		)},
		{"location_type", `"in-person"`},
		{"venue", `"The Old Yard"`},
		{"address", `"12 Harbour Street, Lübeck"`},
		{"virtual_link", "null"},
		{"is_free", "false"},
		{"image_url", `"https://cdn.example.com/i/9f/spring.jpg"`},
		{"media", array(
			object{
				{"url", `"https://cdn.example.com/i/9f/yard.jpg"`},
				{"file_type", `"image"`},
				{"caption", `"The yard in spring"`},
				{"featured", "true"},
			},
		)},
	}
}

// invoice is an invoice as a data service sends it.
func invoice(i int) object {
	return object{
		{"id", uuid(i)},
		{"business_id", quoted(mine)},
		{"invoice_number", quoted(fmt.Sprintf("INV-%05d", 10500-i))},
		{"title", `"Roof repair, second part"`},
		{"status", `"sent"`},
		{"subtotal", `"8724.00"`},
		{"discount_type", `"percent"`},
		{"discount_value", `"5.00"`},
		{"tax_rate", `"8.25"`},
		{"tax_amount", `"747.88"`},
		{"total_amount", `"9471.88"`},
		{"paid_amount", `"0.00"`},
		{"due_at", instant(i - 720)},
		{"issued_at", instant(i)},
		{"sent_at", instant(i)},
		{"paid_at", "null"},
		{"created_at", instant(i)},
		{"updated_at", instant(i)},
	}
}

// contact is a contact as a data service sends it.
func contact(i int) object {
	return object{
		{"id", fmt.Sprint(4000 + i)},
		{"business_id", quoted(mine)},
		{"first_name", `"Ada"`},
		{"last_name", `"Lindqvist"`},
		{"email", `"ada.lindqvist@example.com"`},
		{"phone_number", `"5550142"`},
		{"country_code", `"+46"`},
		{"contact_type", `"customer"`},
		{"contact_status", `"active"`},
		{"notes", "null"},
		{"date_created", instant(i)},
		{"date_modified", instant(i)},
	}
}

// records makes n records, newest first.
func records(n int, one func(int) object) []object {
	out := make([]object, n)
	for i := range out {
		out[i] = one(i)
	}
	return out
}

func eventsAnswer(rs ...object) []byte { return []byte(`{"events":` + array(rs...) + `}`) }

// page is a paginated answer for page 1 of 25.
func page(list string, rs ...object) []byte {
	return []byte(`{"` + list + `":` + array(rs...) + `,"pagination":{"current_page":1,"per_page":25,"total_items":` +
		fmt.Sprint(len(rs)) + `,"total_pages":1}}`)
}
