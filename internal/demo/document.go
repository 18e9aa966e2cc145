package demo

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

const (
	maxSpansOfADay = 6
	maxDates       = 60 // with other hours than their weekday
	maxAreas       = 100
	maxRules       = 50
)

func weekdays() []string {
	return []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
}

// document is what is read as a whole and changed in parts: opening hours, service areas, the receptionist.
type document struct {
	content   string // one JSON object
	version   int64
	updatedAt string
}

// documentRoutes serves the documents. A change replaces one member of one.
func documentRoutes() []route {
	personality := schema{
		{name: "name", form: line(60), required: true},
		{name: "tone", form: word("friendly", "professional", "formal", "warm", "playful")},
		{name: "greeting", form: line(500), required: true},
		{name: "language", form: languageTag(), required: true},
		{name: "instructions", form: lines(4000), nullable: true},
	}
	return []route{
		{method: http.MethodGet, path: "business/hours", serve: getDocument("hours")},
		{method: http.MethodPatch, path: "business/hours", owner: true, serve: changeDocument("hours", "days", changeDays)},
		{method: http.MethodGet, path: "business/service-areas", serve: getDocument("service-areas")},
		{method: http.MethodPatch, path: "business/service-areas", owner: true, serve: changeDocument("service-areas", "service_areas", changeAreas)},
		{method: http.MethodGet, path: "receptionist", serve: getDocument("receptionist")},
		{method: http.MethodPatch, path: "receptionist/rules", owner: true, serve: changeDocument("receptionist", "rules", changeRules)},
		{
			method: http.MethodPatch, path: "receptionist/personality", owner: true,
			serve: changeDocument("receptionist", "personality", func(c *connectCall, v values) values {
				maps.Copy(v, personality.read(&c.problems, "", c.body, true))
				return v
			}),
		},
	}
}

// readDocument returns a document of the business if it has the version that If-Match asks for. One that was never
// written has its defaults and version 0. Hours have the seven weekdays, then the dates that are not past.
func readDocument(ctx context.Context, c *connectCall, name string) (d document, err error) {
	if err := c.tx.QueryRowContext(ctx, `SELECT coalesce(iif(d.name = 'hours', (SELECT json_object('days', json_group_array(json(value)))
			FROM json_each(content, '$.days') WHERE value ->> 'day' >= ?3), content),
		CASE ?2 WHEN 'hours' THEN ?4 WHEN 'service-areas' THEN '{"service_areas":[]}' ELSE json_object('rules', json('[]'),
			'personality', json_object('name', 'Receptionist', 'tone', 'friendly', 'greeting', b.name || ', how can I help?',
			'language', 'en', 'instructions', NULL)) END), coalesce(d.version, 0), coalesce(d.updated_at, b.created_at)
		FROM businesses b LEFT JOIN documents d ON d.business_id = b.id AND d.name = ?2 WHERE b.id = ?1`, c.business.id, name, c.today(),
		`{"days":[{"day":"`+strings.Join(weekdays(), `","spans":[]},{"day":"`)+`","spans":[]}]}`).
		Scan(&d.content, &d.version, &d.updatedAt); err != nil {
		return d, fmt.Errorf("reading the document %s: %w", name, err)
	}
	return d, c.matches(d.version)
}

// answerDocument returns the members of a document behind what it is.
func answerDocument(c *connectCall, name string, d document) []byte {
	b := fmt.Appendf(nil, `{"business_id":%q,"version":%d,"updated_at":%q,%s`, c.business.id, d.version, d.updatedAt, d.content[1:])
	if name == "receptionist" {
		return append(append([]byte(`{"receptionist":`), b...), '}')
	}
	return b
}

func getDocument(name string) handler {
	return func(ctx context.Context, c *connectCall) (int, []byte, error) {
		d, err := readDocument(ctx, c, name)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, answerDocument(c, name, d), nil
	}
}

// today is the date on the business's clocks.
func (c *connectCall) today() string {
	zone, err := time.LoadLocation(c.business.zone)
	if err != nil { // never for a zone that was stored
		zone = time.UTC
	}
	return c.now.In(zone).Format(time.DateOnly)
}

// changeDocument serves a change of a member. change returns its next value, or adds problems.
func changeDocument[T any](name, member string, change func(c *connectCall, present T) T) handler {
	return func(ctx context.Context, c *connectCall) (int, []byte, error) {
		d, err := readDocument(ctx, c, name)
		if err != nil {
			return 0, nil, err
		}
		var content map[string]jsontext.Value
		var present T
		if err := json.Unmarshal([]byte(d.content), &content); err != nil {
			return 0, nil, fmt.Errorf("reading the document %s: %w", name, err)
		}
		if err := json.Unmarshal(content[member], &present); err != nil {
			return 0, nil, fmt.Errorf("reading %s: %w", member, err)
		}
		next, err := json.Marshal(change(c, present), json.Deterministic(true))
		if err := cmp.Or(c.problems.err(), err); err != nil {
			return 0, nil, err
		}
		if err := c.tx.QueryRowContext(ctx, "INSERT INTO documents (business_id, name, content, version, updated_at)"+
			" VALUES (?, ?, json_set(?, '$.' || ?, json(?)), ?, ?) ON CONFLICT DO UPDATE SET"+
			" content = excluded.content, version = excluded.version, updated_at = excluded.updated_at RETURNING content, version, updated_at",
			c.business.id, name, d.content, member, string(next), d.version+1, instant(c.now)).Scan(&d.content, &d.version, &d.updatedAt); err != nil {
			return 0, nil, fmt.Errorf("writing the document %s: %w", name, err)
		}
		return http.StatusOK, answerDocument(c, name, d), nil
	}
}

const twice = "is there twice"

// changeDays sets the hours of the days that the body names. The present ones begin with the weekdays, and dates follow.
func changeDays(c *connectCall, days []values) []values {
	closing := pattern(`([01]\d|2[0-3]):[0-5]\d|24:00`, "HH:MM, after open, up to 24:00")
	span := schema{
		{name: "open", form: pattern(`([01]\d|2[0-3]):[0-5]\d`, "HH:MM from 00:00 to 23:59"), required: true},
		{name: "close", form: closing, required: true},
	}
	isSpan := func(v values) bool { return v.text("open") != "" && v.text("open") < v.text("close") }
	spans := listOf(0, maxSpansOfADay, span, func(p *problems, path string, v values) {
		if end := v.text("close"); end != "" && v.text("open") >= end {
			p.add(path+"close", "is not after open", closing.allowed)
		}
	})
	isWeekday := func(name string) bool { return slices.Contains(weekdays(), name) }
	name := text(10, false, "a weekday, such as monday, or a date, such as 2026-12-24", func(s string) bool {
		_, err := time.Parse(time.DateOnly, s)
		return err == nil || isWeekday(s)
	})
	named := map[string]bool{}
	day := schema{{name: "day", form: name, required: true}, {name: "spans", form: spans, required: true, nullable: true}}
	body := schema{{name: "days", required: true, form: listOf(1, len(weekdays())+maxDates, day, func(p *problems, path string, v values) {
		name := v.text("day")
		given, valid := v["spans"]
		switch {
		case named[name]:
			p.add(path+"day", twice, "each day once")
		case name != "" && name < c.today(): // weekdays sort after dates
			p.add(path+"day", "is past", "a date from "+c.today()+" on")
		case isWeekday(name) && valid && given == nil:
			p.add(path+"spans", "must not be null for a weekday", spans.allowed)
		}
		named[name] = name != ""
		list := v.items("spans")
		for i, v := range list {
			if j := slices.IndexFunc(list[:i], func(o values) bool {
				return isSpan(v) && isSpan(o) && v.text("open") < o.text("close") && o.text("open") < v.text("close")
			}); j >= 0 {
				p.add(fmt.Sprintf("%sspans[%d]", path, i), fmt.Sprintf("overlaps spans[%d]", j), "spans that do not overlap")
			}
		}
		slices.SortFunc(list, func(a, b values) int { return strings.Compare(a.text("open"), b.text("open")) })
	})}}
	in := body.read(&c.problems, "", c.body, false)
	if len(c.problems.all) > 0 {
		return nil
	}
	for _, v := range in.items("days") {
		i := slices.IndexFunc(days, func(d values) bool { return d["day"] == v["day"] })
		switch {
		case v["spans"] == nil && i >= 0:
			days = slices.Delete(days, i, i+1)
		case i >= 0:
			days[i] = v
		case v["spans"] != nil:
			days = append(days, v)
		}
	}
	dates := days[len(weekdays()):]
	c.atMost("days", len(dates), maxDates)
	slices.SortFunc(dates, func(a, b values) int { return strings.Compare(a.text("day"), b.text("day")) })
	return days
}

// changeAreas adds and removes areas, which are known by kind and name.
func changeAreas(c *connectCall, areas []values) []values {
	area := schema{
		{name: "name", form: line(120), required: true},
		{name: "kind", form: word("city", "postal_code", "region"), required: true},
		{name: "radius_km", form: positive(500), nullable: true, absent: true},
	}
	type key struct{ kind, name string }
	keyOf := func(v values) key { return key{v.text("kind"), foldedKey(v.text("name"))} }
	at := func(v values) int {
		k := keyOf(v)
		return slices.IndexFunc(areas, func(a values) bool { return keyOf(a) == k })
	}
	named := map[key]bool{}
	once := func(p *problems, path string, v values) {
		k := keyOf(v)
		if named[k] {
			p.add(path+"name", twice, "each name once within its kind")
		}
		named[k] = k.kind != "" && k.name != ""
	}
	in := schema{
		{name: "add", form: listOf(1, maxAreas, area, func(p *problems, path string, v values) {
			if v["kind"] == "region" && v["radius_km"] != nil {
				p.add(path+"radius_km", "is not for a region", "null, or absent, for a region")
			}
			once(p, path, v)
		})},
		{name: "remove", form: listOf(1, maxAreas, area[:2], func(p *problems, path string, v values) {
			if k := keyOf(v); k.kind != "" && k.name != "" && at(v) < 0 {
				p.add(path+"name", "is of no area of this kind", "an area that is there")
				return
			}
			once(p, path, v)
		})},
	}.read(&c.problems, "", c.body, true)
	if len(c.problems.all) > 0 {
		return nil
	}
	for _, v := range in.items("remove") {
		areas = slices.Delete(areas, at(v), at(v)+1)
	}
	for _, v := range in.items("add") {
		i := at(v)
		if i < 0 {
			i, areas = len(areas), append(areas, values{"radius_km": nil})
		}
		maps.Copy(areas[i], v)
	}
	c.atMost("add", len(areas), maxAreas)
	return areas
}

// changeRules removes, changes and adds rules.
func changeRules(c *connectCall, rules []values) []values {
	const known = "the id of a rule that is there"
	at := func(id any) int { return slices.IndexFunc(rules, func(r values) bool { return r["id"] == id }) }
	named := map[string]bool{}
	once := func(field, id string) {
		if at(id) < 0 {
			c.problems.add(field, "is of no rule", known)
		} else if named[id] {
			c.problems.add(field, twice, "each rule once")
		}
		named[id] = true
	}
	var removed []string
	remove := one("list", fmt.Sprintf("a list of 1 to %d ids", maxRules), "is not such a list", func(v jsontext.Value) (any, bool) {
		err := json.Unmarshal(v, &removed)
		return removed, err == nil && len(removed) > 0 && len(removed) <= maxRules
	})
	place := func(p *problems, path string, v values) {
		if id := v.text("before"); id != "" && (at(id) < 0 || slices.Contains(removed, id) || id == v["id"]) {
			p.add(path+"before", "is of no other rule that stays", known+", stays, and is another one")
		}
	}
	change := schema{
		{name: "id", form: line(maxID), required: true},
		{name: "when", form: line(500), absent: true},
		{name: "then", form: line(500), absent: true},
		{name: "enabled", form: flag(), absent: true},
		{name: "before", form: line(maxID), nullable: true, absent: true},
	}
	add := slices.Clone(change[1:])
	add[0].required, add[1].required = true, true
	add[2].absent, add[2].initial = false, true
	in := schema{
		{name: "remove", form: remove},
		{name: "change", form: listOf(1, maxRules, change, func(p *problems, path string, v values) {
			if id := v.text("id"); id != "" {
				once(path+"id", id)
			}
			place(p, path, v)
			if len(v) == 1 && !slices.ContainsFunc(p.all, func(d detail) bool { return strings.HasPrefix(d.Field, path) }) {
				p.add(strings.TrimSuffix(path, "."), "has nothing to change", "when, then, enabled, before")
			}
		})},
		{name: "add", form: listOf(1, maxRules, add, place)},
	}.read(&c.problems, "", c.body, true)
	valid, _ := in["remove"].([]string)
	for i, id := range valid {
		once(fmt.Sprintf("remove[%d]", i), id)
	}
	if len(c.problems.all) > 0 {
		return nil
	}
	rules = slices.DeleteFunc(rules, func(r values) bool { return slices.Contains(removed, r.text("id")) })
	insert := func(v values, before any) {
		i := at(before)
		if i < 0 {
			i = len(rules)
		}
		delete(v, "before")
		rules = slices.Insert(rules, i, v)
	}
	for _, v := range in.items("change") {
		i := at(v["id"])
		rule := rules[i]
		before, moves := v["before"]
		if maps.Copy(rule, v); moves {
			rules = slices.Delete(rules, i, i+1)
			insert(rule, before)
		}
	}
	for _, v := range in.items("add") {
		v["id"] = uuid.NewString()
		insert(v, v["before"])
	}
	c.atMost("add", len(rules), maxRules)
	return rules
}

// atMost adds a problem if a change would leave too many.
func (c *connectCall) atMost(field string, n, most int) {
	if n > most {
		c.problems.add(field, fmt.Sprintf("would make %d", n), fmt.Sprintf("at most %d in all", most))
	}
}
