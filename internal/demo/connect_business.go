package demo

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// connectBusiness is a business as /connect/v1 shows it.
type connectBusiness struct {
	businessRow
	Version int64 `db:"version"`
}

// findBusiness returns a business, or sql.ErrNoRows.
func findBusiness(ctx context.Context, tx *sql.Tx, id string) (row connectBusiness, err error) {
	fields := fieldsOf[connectBusiness]()
	err = tx.QueryRowContext(ctx, "SELECT "+columns(fields)+" FROM businesses WHERE id = ?", id).Scan(destinations(fields, &row)...)
	return row, err
}

func businessRoutes() []route {
	return slices.Concat([]route{
		{method: http.MethodGet, path: "business", serve: func(_ context.Context, c *connectCall) (int, []byte, error) {
			return http.StatusOK, appendBusiness(&c.business), nil
		}},
		{method: http.MethodPatch, path: "business", owner: true, serve: updateBusiness},
	}, documentRoutes("hours", "hours", readHours), documentRoutes("service-areas", "service_areas", readServiceAreas))
}

// documentRoutes serves a document of the business. read reads a new one from the body.
func documentRoutes[T any](name, member string, read func(*input) T) []route {
	return []route{
		{method: http.MethodGet, path: "business/" + name, serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			d, err := readDocument[T](ctx, c, name)
			if err != nil {
				return 0, nil, err
			}
			return answerDocument(c, &d, member)
		}},
		{method: http.MethodPut, path: "business/" + name, owner: true, serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			d, err := readDocument[T](ctx, c, name)
			if err != nil {
				return 0, nil, err
			}
			d.Content = read(c.input(false))
			if err := c.problems.err(); err != nil {
				return 0, nil, err
			}
			if err := d.write(ctx, c, name); err != nil {
				return 0, nil, err
			}
			return answerDocument(c, &d, member)
		}},
	}
}

func appendBusiness(row *connectBusiness) []byte {
	b := appendRecord([]byte(`{"business":`), shown(fieldsOf[connectBusiness](), "updated_at"), row)
	b = append(b[:len(b)-1], `,"business_id":`...)
	return append(appendString(b, row.ID), "}}"...)
}

func updateBusiness(ctx context.Context, c *connectCall) (int, []byte, error) {
	if err := c.matches(c.business.Version); err != nil {
		return 0, nil, err
	}
	row, in := c.business, c.input(true)
	in.text("name", &row.Name, line(120))
	in.optText("email", &row.Email, emailRule())
	in.optText("phone", &row.Phone, patternRule(`\+[1-9]\d{6,14}`, "E.164: + and 7 to 15 digits"))
	in.optText("website_url", &row.WebsiteURL, urlRule())
	in.text("time_zone", &row.TimeZone, timeZoneRule())
	if err := in.done(); err != nil {
		return 0, nil, err
	}
	row.Version++
	row.UpdatedAt = instant(c.now)
	if _, err := c.tx.ExecContext(ctx, "UPDATE businesses SET name = ?, email = ?, phone = ?, website_url = ?, time_zone = ?,"+
		" version = ?, updated_at = ? WHERE id = ?",
		row.Name, row.Email, row.Phone, row.WebsiteURL, row.TimeZone, row.Version, row.UpdatedAt, row.ID); err != nil {
		return 0, nil, fmt.Errorf("updating a business: %w", err)
	}
	return http.StatusOK, appendBusiness(&row), nil
}

// document is a value that is read and written as a whole.
type document[T any] struct {
	Content   T
	Version   int64
	UpdatedAt string
}

// readDocument returns a document of the business if it has the version that If-Match asks for. A document that was
// never written is empty and has version 0.
func readDocument[T any](ctx context.Context, c *connectCall, name string) (d document[T], err error) {
	var content string
	err = c.tx.QueryRowContext(ctx, "SELECT content, version, updated_at FROM documents WHERE business_id = ? AND name = ?",
		c.business.ID, name).Scan(&content, &d.Version, &d.UpdatedAt)
	if errors.Is(err, sql.ErrNoRows) {
		d.UpdatedAt = c.business.CreatedAt
		return d, c.matches(0)
	}
	if err != nil {
		return d, fmt.Errorf("reading the document %s: %w", name, err)
	}
	if err := json.Unmarshal([]byte(content), &d.Content); err != nil {
		return d, fmt.Errorf("reading the document %s: %w", name, err)
	}
	return d, c.matches(d.Version)
}

// write stores a document under its next version.
func (d *document[T]) write(ctx context.Context, c *connectCall, name string) error {
	d.Version++
	d.UpdatedAt = instant(c.now)
	content, err := json.Marshal(d.Content)
	if err != nil {
		return fmt.Errorf("writing the document %s: %w", name, err)
	}
	if _, err := c.tx.ExecContext(ctx, "INSERT INTO documents (business_id, name, content, version, updated_at) VALUES (?, ?, ?, ?, ?)"+
		" ON CONFLICT DO UPDATE SET content = excluded.content, version = excluded.version, updated_at = excluded.updated_at",
		c.business.ID, name, string(content), d.Version, d.UpdatedAt); err != nil {
		return fmt.Errorf("writing the document %s: %w", name, err)
	}
	return nil
}

// answerDocument returns the response with a document.
func answerDocument[T any](c *connectCall, d *document[T], member string) (int, []byte, error) {
	content, err := json.Marshal(d.Content)
	if err != nil {
		return 0, nil, fmt.Errorf("writing %s: %w", member, err)
	}
	b := d.appendHead([]byte(`{`), c)
	b = append(b, `,"`+member+`":`...)
	return http.StatusOK, append(append(b, content...), '}'), nil
}

func (d *document[T]) appendHead(b []byte, c *connectCall) []byte {
	b = appendString(append(b, `"business_id":`...), c.business.ID)
	b = strconv.AppendInt(append(b, `,"version":`...), d.Version, 10)
	return appendString(append(b, `,"updated_at":`...), d.UpdatedAt)
}

// openSpan is a span of opening hours in the business's time zone.
type openSpan struct {
	Day   string `json:"day"`
	Open  string `json:"open"`
	Close string `json:"close"`
}

const maxSpansOfADay = 6

func days() []string {
	return []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
}

func readHours(in *input) []openSpan {
	spans := []openSpan{}
	openTime := patternRule(`([01]\d|2[0-3]):[0-5]\d`, "HH:MM from 00:00 to 23:59")
	closeTime := patternRule(`([01]\d|2[0-3]):[0-5]\d|24:00`, "HH:MM, after open, up to 24:00")
	in.objects("hours", len(days())*maxSpansOfADay, func(item *input, _ int) {
		var s openSpan
		item.word("day", &s.Day, days()...)
		if _, ok := item.members["day"]; !ok {
			item.missing("day", strings.Join(days(), ", "))
		}
		item.text("open", &s.Open, openTime)
		item.text("close", &s.Close, closeTime)
		if s.Open != "" && s.Close != "" && s.Open >= s.Close {
			item.p.add(item.path+"close", "is not after open", closeTime.what)
		}
		spans = append(spans, s)
	})
	if in.done() == nil {
		checkSpans(in.p, spans)
	}
	slices.SortFunc(spans, compareSpans)
	return spans
}

func compareSpans(a, b openSpan) int {
	return cmp.Or(cmp.Compare(slices.Index(days(), a.Day), slices.Index(days(), b.Day)), cmp.Compare(a.Open, b.Open))
}

// checkSpans rejects overlapping spans, and too many on one day.
func checkSpans(p *problems, spans []openSpan) {
	count := map[string]int{}
	for i, s := range spans {
		if count[s.Day]++; count[s.Day] == maxSpansOfADay+1 {
			p.add(fmt.Sprintf("hours[%d].day", i), "has too many spans", fmt.Sprintf("at most %d spans a day", maxSpansOfADay))
		}
		for j, other := range spans[:i] {
			if s.Day == other.Day && s.Open < other.Close && other.Open < s.Close {
				p.add(fmt.Sprintf("hours[%d]", i), fmt.Sprintf("overlaps hours[%d]", j), "spans of a day that do not overlap")
				break
			}
		}
	}
}

// serviceArea is a place where the business works.
type serviceArea struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`
	RadiusKM *float64 `json:"radius_km"`
}

const (
	maxServiceAreas = 100
	maxRadiusKM     = 500
	areaRegion      = "region"
)

func areaKinds() []string { return []string{"city", "postal_code", areaRegion} }

func readServiceAreas(in *input) []serviceArea {
	areas := []serviceArea{}
	taken := map[[2]string]bool{}
	in.objects("service_areas", maxServiceAreas, func(item *input, _ int) {
		var a serviceArea
		item.text("name", &a.Name, line(120))
		item.word("kind", &a.Kind, areaKinds()...)
		if _, ok := item.members["kind"]; !ok {
			item.missing("kind", strings.Join(areaKinds(), ", "))
		}
		item.optNumber("radius_km", &a.RadiusKM, maxRadiusKM)
		if a.Kind == areaRegion && a.RadiusKM != nil {
			item.p.add(item.path+"radius_km", "is not for a region", "null, or absent, for a region")
		}
		key := [2]string{a.Kind, foldedKey(a.Name)}
		if a.Name != "" && taken[key] {
			item.p.add(item.path+"name", "is there twice", "each name once within its kind")
		}
		taken[key] = true
		areas = append(areas, a)
	})
	in.end()
	return areas
}
