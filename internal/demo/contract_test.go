package demo

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// is is what a member of a record may hold. A question mark allows null, and
// demands that some record has it, as natural data would.
type is string

var kinds = map[is]func(any) bool{
	"text":    func(v any) bool { s, ok := v.(string); return ok && s != "" },
	"uuid":    matches(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`),
	"money":   matches(`\d+\.\d\d`),
	"instant": matches(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`),
	"date":    matches(`\d{4}-\d\d-\d\d`),
	"time":    matches(`\d\d:\d\d`),
	"url":     matches(`https://[a-z0-9.-]+\.(example\.com|test)(/\S*)?`),
	"integer": func(v any) bool { f, ok := v.(float64); return ok && f == float64(int64(f)) },
	"boolean": func(v any) bool { _, ok := v.(bool); return ok },
	"texts": func(v any) bool {
		list, ok := v.([]any)
		return ok && !slices.ContainsFunc(list, func(v any) bool { s, ok := v.(string); return !ok || s == "" })
	},
	"list": func(v any) bool { _, ok := v.([]any); return ok },
}

func matches(pattern string) func(any) bool {
	re := regexp.MustCompile(`^(?:` + pattern + `)$`)
	return func(v any) bool { s, ok := v.(string); return ok && re.MatchString(s) }
}

// enum is a kind of fixed words, all of which occur.
func enum(values ...string) map[string]bool {
	set := map[string]bool{}
	for _, w := range values {
		set[w] = true
	}
	return set
}

// The fields of the contract, and beside them the service's own.
func contractFields() map[string]map[string]any {
	return map[string]map[string]any{
		"contacts": {
			"id": is("integer"), "first_name": is("text"), "last_name": is("text?"), "email": is("text?"),
			"phone_number": is("text?"), "country_code": is("text?"),
			"contact_type": enum("customer", "lead", "vendor"), "contact_status": enum("active", "inactive"),
			"notes": is("text?"), "date_created": is("instant"), "date_modified": is("instant"),
			"business_id": is("uuid"),
		},
		"jobs": {
			"id": is("uuid"), "job_number": is("text"), "name": is("text"), "description": is("text?"),
			"work_status":  enum("draft", "sent", "scheduled", "in_progress", "completed", "cancelled"),
			"total_amount": is("money"), "outstanding_balance": is("money"), "lead_source": is("text?"),
			"created_at": is("instant"), "updated_at": is("instant"),
			"business_id": is("uuid"),
		},
		"estimates": {
			"id": is("uuid"), "estimate_number": is("text"), "title": is("text"),
			"status":         enum("draft", "sent", "approved", "declined", "expired"),
			"payment_status": enum("unpaid", "partial", "paid"),
			"subtotal":       is("money"), "discount_type": is("text?"), "discount_value": is("money?"),
			"tax_rate": is("money"), "tax_amount": is("money"), "total_amount": is("money"),
			"deposit_required": is("boolean"), "deposit_amount": is("money?"), "amount_paid": is("money"),
			"expires_at": is("instant?"), "sent_at": is("instant?"), "approved_at": is("instant?"),
			"created_at": is("instant"), "updated_at": is("instant"),
			"business_id": is("uuid"),
		},
		"invoices": {
			"id": is("uuid"), "invoice_number": is("text"), "title": is("text"),
			"status":   enum("draft", "sent", "viewed", "paid", "overdue", "voided"),
			"subtotal": is("money"), "discount_type": is("text?"), "discount_value": is("money?"),
			"tax_rate": is("money"), "tax_amount": is("money"), "total_amount": is("money"), "paid_amount": is("money"),
			"due_at": is("instant?"), "issued_at": is("instant?"), "sent_at": is("instant?"), "paid_at": is("instant?"),
			"created_at": is("instant"), "updated_at": is("instant"),
			"business_id": is("uuid"),
		},
		"offerings": {
			"id": is("uuid"), "name": is("text"), "type": enum("service", "product"), "status": enum("active", "inactive"),
			"description": is("text?"), "service_details": is("texts"),
			"dont_book_appointment": is("boolean"), "appointment_duration": is("integer?"),
			"created_at": is("instant"), "updated_at": is("instant"),
			"business_id": is("uuid"),
		},
		"equipment": {
			"id": is("uuid"), "equipment_number": is("text"), "name": is("text"), "serial_number": is("text?"),
			"tracking_mode": enum("individual", "bulk"), "quantity": is("integer"), "category": is("text"),
			"model": is("text?"), "manufacturer": is("text"),
			"status":        enum("available", "assigned", "maintenance", "retired"),
			"purchase_date": is("date?"), "maintenance_interval_days": is("integer?"), "next_maintenance_date": is("date?"),
			"created_at": is("instant"), "updated_at": is("instant"),
			"business_id": is("uuid"),
		},
		"events": {
			"id": is("uuid"), "title": is("text"), "description": is("text?"), "url": is("url"),
			"type": enum("single-day", "multi-day", "recurring"), "schedule": is("list"),
			"location_type": enum("in-person", "virtual", "hybrid"), "venue": is("text?"), "address": is("text?"),
			"virtual_link": is("url?"), "is_free": is("boolean"), "image_url": is("url?"), "media": is("list"),
			"business_id": is("uuid"), "status": enum("draft", "published", "archived"),
			"published_at": is("instant?"), "created_at": is("instant"),
		},
	}
}

// requireShape holds records to their fields: exactly these members, of these
// kinds, with every word and every possible null occurring somewhere.
func requireShape(t *testing.T, fields map[string]any, all []map[string]any) {
	t.Helper()
	require.NotEmpty(t, all)
	wanted := slices.Sorted(maps.Keys(fields))
	for _, record := range all {
		require.Equal(t, wanted, slices.Sorted(maps.Keys(record)))
	}
	for name, shape := range fields {
		seen := map[any]int{}
		for _, record := range all {
			v := record[name]
			switch shape := shape.(type) {
			case map[string]bool:
				word, ok := v.(string)
				require.True(t, ok && shape[word], "%s is %v", name, v)
				seen[word]++
			case is:
				if v == nil {
					require.Equal(t, byte('?'), shape[len(shape)-1], "%s is null", name)
					seen[nil]++
					continue
				}
				matches := kinds[is(regexp.MustCompile(`\?$`).ReplaceAllString(string(shape), ""))]
				require.True(t, matches(v), "%s is %v, not %s", name, v, shape)
				seen["value"]++
			}
		}
		switch shape := shape.(type) {
		case map[string]bool:
			require.Len(t, seen, len(shape), "%s has only %v", name, seen)
		case is:
			require.Positive(t, seen["value"], "%s never has a value", name)
			if shape[len(shape)-1] == '?' {
				require.Positive(t, seen[nil], "%s is never null", name)
			}
		}
	}
}

func TestEveryRecordHasExactlyTheContractsFieldsAndTheServicesOwn(t *testing.T) {
	t.Parallel()
	for resource, fields := range contractFields() {
		for _, b := range active() {
			t.Run(resource+" of "+b.Slug, func(t *testing.T) {
				t.Parallel()
				all := everything(t, shared, b.ID, resource)
				require.GreaterOrEqual(t, len(all), 200, "a few hundred records")
				requireShape(t, fields, all)
			})
		}
	}
}

func TestSchedulesAndMediaHaveTheContractsFields(t *testing.T) {
	t.Parallel()
	for _, b := range active() {
		var schedule, media []map[string]any // several of each in an event
		for _, e := range everything(t, shared, b.ID, "events") {
			sessions := records(t, e, "schedule")
			require.NotEmpty(t, sessions)
			schedule = append(schedule, sessions...)
			media = append(media, records(t, e, "media")...)
		}
		require.GreaterOrEqual(t, len(media), 200)
		requireShape(t, map[string]any{"date": is("date"), "start_time": is("time"), "end_time": is("time")}, schedule)
		requireShape(t, map[string]any{
			"url": is("url"), "file_type": enum("image", "video", "document"), "caption": is("text?"), "featured": is("boolean"),
		}, media)
	}
}

func TestBusinessIsAnsweredWithTheContractsFields(t *testing.T) {
	t.Parallel()
	for _, b := range Businesses() {
		require.Equal(t, map[string]any{"business": map[string]any{
			"id": b.ID, "name": b.Name, "slug": b.Slug, "email": b.Email, "phone": b.Phone,
			"website_url": b.WebsiteURL, "time_zone": b.TimeZone, "account_status": b.AccountStatus,
			"business_id": b.ID,
		}}, get(t, shared, b.ID, "/api/v1/business"))
	}
	require.Equal(t, AccountActive, active()[0].AccountStatus)
	require.Equal(t, AccountActive, active()[1].AccountStatus)
	require.Equal(t, AccountInactive, inactive().AccountStatus)

	stored, err := shared.Businesses(t.Context())
	require.NoError(t, err)
	require.Equal(t, Businesses(), stored)
}

func TestTheInactiveBusinessHasRecordsOfEverything(t *testing.T) {
	t.Parallel()
	for resource := range contractFields() {
		require.GreaterOrEqual(t, len(everything(t, shared, inactive().ID, resource)), 20, resource)
	}
}

func TestEverythingStartsWithTheNewest(t *testing.T) {
	t.Parallel()
	for resource := range contractFields() {
		created := "created_at"
		if resource == "contacts" {
			created = "date_created"
		}
		for _, b := range active() {
			last := "9999"
			for _, record := range everything(t, shared, b.ID, resource) {
				if resource == "events" {
					continue
				}
				at := fmt.Sprint(record[created])
				require.LessOrEqual(t, at, last, "%s of %s", resource, b.Slug)
				last = at
			}
		}
	}
}
