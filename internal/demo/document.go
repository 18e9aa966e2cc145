package demo

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

const maxSpansOfADay = 6

// document is what is read and written as a whole: opening hours, service areas, the receptionist.
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
		{method: http.MethodPut, path: "business/hours", owner: true, serve: changeDocument("hours", "hours", readHours)},
		{method: http.MethodGet, path: "business/service-areas", serve: getDocument("service-areas")},
		{method: http.MethodPut, path: "business/service-areas", owner: true, serve: changeDocument("service-areas", "service_areas", readServiceAreas)},
		{method: http.MethodGet, path: "receptionist", serve: getDocument("receptionist")},
		{method: http.MethodPut, path: "receptionist/rules", owner: true, serve: changeDocument("receptionist", "rules", readRules)},
		{
			method: http.MethodPatch, path: "receptionist/personality", owner: true,
			serve: changeDocument("receptionist", "personality", func(c *connectCall, present jsontext.Value) ([]byte, error) {
				var v values
				if err := json.Unmarshal(present, &v); err != nil {
					return nil, fmt.Errorf("reading the personality: %w", err)
				}
				maps.Copy(v, personality.read(&c.problems, "", c.body, true))
				return json.Marshal(v, json.Deterministic(true))
			}),
		},
	}
}

// readDocument returns a document of the business if it has the version that If-Match asks for. One that was never
// written has its defaults and version 0.
func readDocument(ctx context.Context, c *connectCall, name string) (d document, err error) {
	if err := c.tx.QueryRowContext(ctx, `SELECT coalesce(content, CASE ?2 WHEN 'hours' THEN '{"hours":[]}' WHEN 'service-areas' THEN '{"service_areas":[]}'
		ELSE json_object('personality', json_object('name', 'Receptionist', 'tone', 'friendly', 'greeting', b.name || ', how can I help?',
			'language', 'en', 'instructions', NULL), 'rules', json('[]')) END), coalesce(d.version, 0), coalesce(d.updated_at, b.created_at)
		FROM businesses b LEFT JOIN documents d ON d.business_id = b.id AND d.name = ?2 WHERE b.id = ?1`, c.business.id, name).
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

// changeDocument serves a change of a member, whose next value read makes from the body and the present one.
func changeDocument(name, member string, read func(c *connectCall, present jsontext.Value) ([]byte, error)) handler {
	return func(ctx context.Context, c *connectCall) (int, []byte, error) {
		d, err := readDocument(ctx, c, name)
		if err != nil {
			return 0, nil, err
		}
		var content map[string]jsontext.Value
		if err := json.Unmarshal([]byte(d.content), &content); err != nil {
			return 0, nil, fmt.Errorf("reading the document %s: %w", name, err)
		}
		next, err := read(c, content[member])
		if err := cmp.Or(err, c.problems.err()); err != nil {
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

// readItems reads a body that is a list of objects, and returns them as they are stored.
func readItems(c *connectCall, name string, most int, item schema, check func(p *problems, path string, v values)) []values {
	body := schema{{name: name, form: listOf(most, item, check), required: true}}
	items, _ := body.read(&c.problems, "", c.body, false)[name].([]values)
	return items
}

func readHours(c *connectCall, _ jsontext.Value) ([]byte, error) {
	days := []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
	closing := pattern(`([01]\d|2[0-3]):[0-5]\d|24:00`, "HH:MM, after open, up to 24:00")
	span := schema{
		{name: "day", form: word(days...), required: true},
		{name: "open", form: pattern(`([01]\d|2[0-3]):[0-5]\d`, "HH:MM from 00:00 to 23:59"), required: true},
		{name: "close", form: closing, required: true},
	}
	spans := readItems(c, "hours", len(days)*maxSpansOfADay, span, func(p *problems, path string, v values) {
		if end := v.text("close"); end != "" && v.text("open") >= end {
			p.add(path+"close", "is not after open", closing.allowed)
		}
	})
	if len(c.problems.all) > 0 {
		return nil, nil
	}
	count := map[string]int{}
	for i, v := range spans {
		day := v.text("day")
		if count[day]++; count[day] == maxSpansOfADay+1 {
			c.problems.add(fmt.Sprintf("hours[%d].day", i), "has too many spans", fmt.Sprintf("at most %d spans a day", maxSpansOfADay))
		}
		if j := slices.IndexFunc(spans[:i], func(o values) bool {
			return o.text("day") == day && v.text("open") < o.text("close") && o.text("open") < v.text("close")
		}); j >= 0 {
			c.problems.add(fmt.Sprintf("hours[%d]", i), fmt.Sprintf("overlaps hours[%d]", j), "spans of a day that do not overlap")
		}
	}
	slices.SortFunc(spans, func(a, b values) int {
		return cmp.Or(slices.Index(days, a.text("day"))-slices.Index(days, b.text("day")), strings.Compare(a.text("open"), b.text("open")))
	})
	return json.Marshal(spans, json.Deterministic(true))
}

func readServiceAreas(c *connectCall, _ jsontext.Value) ([]byte, error) {
	area := schema{
		{name: "name", form: line(120), required: true},
		{name: "kind", form: word("city", "postal_code", "region"), required: true},
		{name: "radius_km", form: positive(500), nullable: true},
	}
	taken := map[[2]string]bool{}
	areas := readItems(c, "service_areas", 100, area, func(p *problems, path string, v values) {
		if v["kind"] == "region" && v["radius_km"] != nil {
			p.add(path+"radius_km", "is not for a region", "null, or absent, for a region")
		}
		key := [2]string{v.text("kind"), foldedKey(v.text("name"))}
		if key[1] != "" && taken[key] {
			p.add(path+"name", "is there twice", "each name once within its kind")
		}
		taken[key] = true
	})
	return json.Marshal(areas, json.Deterministic(true))
}

// readRules keeps the IDs of rules that are there.
func readRules(c *connectCall, present jsontext.Value) ([]byte, error) {
	var before []values
	if err := json.Unmarshal(present, &before); err != nil {
		return nil, fmt.Errorf("reading the rules: %w", err)
	}
	free := map[string]bool{}
	for _, v := range before {
		free[v.text("id")] = true
	}
	rule := schema{
		{name: "id", form: line(100), nullable: true},
		{name: "when", form: line(500), required: true},
		{name: "then", form: line(500), required: true},
		{name: "enabled", form: flag(), initial: true},
	}
	rules := readItems(c, "rules", 50, rule, func(p *problems, path string, v values) {
		id := v.text("id")
		if id == "" {
			v["id"] = uuid.NewString()
		} else if !free[id] {
			p.add(path+"id", "is of no rule that is there, or is given twice", "the id of a rule that is there, or none for a new one")
		}
		free[id] = false
	})
	return json.Marshal(rules, json.Deterministic(true))
}
