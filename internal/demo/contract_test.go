package demo

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// kind is what a member of a record may hold. A question mark allows null, and
// demands that some record has it, as natural data would.
type kind string

var kinds = map[kind]func(any) bool{
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

// oneOf is a kind of fixed words, all of which occur.
func oneOf(words ...string) map[string]bool {
	set := map[string]bool{}
	for _, w := range words {
		set[w] = true
	}
	return set
}

// The fields of the contract, and beside them the service's own.
func contractFields() map[string]map[string]any {
	return map[string]map[string]any{
		"contacts": {
			"id": kind("integer"), "first_name": kind("text"), "last_name": kind("text?"), "email": kind("text?"),
			"phone_number": kind("text?"), "country_code": kind("text?"),
			"contact_type": oneOf("customer", "lead", "vendor"), "contact_status": oneOf("active", "inactive"),
			"notes": kind("text?"), "date_created": kind("instant"), "date_modified": kind("instant"),
			"business_id": kind("uuid"),
		},
		"jobs": {
			"id": kind("uuid"), "job_number": kind("text"), "name": kind("text"), "description": kind("text?"),
			"work_status":  oneOf("draft", "sent", "scheduled", "in_progress", "completed", "cancelled"),
			"total_amount": kind("money"), "outstanding_balance": kind("money"), "lead_source": kind("text?"),
			"created_at": kind("instant"), "updated_at": kind("instant"),
			"business_id": kind("uuid"),
		},
		"estimates": {
			"id": kind("uuid"), "estimate_number": kind("text"), "title": kind("text"),
			"status":         oneOf("draft", "sent", "approved", "declined", "expired"),
			"payment_status": oneOf("unpaid", "partial", "paid"),
			"subtotal":       kind("money"), "discount_type": kind("text?"), "discount_value": kind("money?"),
			"tax_rate": kind("money"), "tax_amount": kind("money"), "total_amount": kind("money"),
			"deposit_required": kind("boolean"), "deposit_amount": kind("money?"), "amount_paid": kind("money"),
			"expires_at": kind("instant?"), "sent_at": kind("instant?"), "approved_at": kind("instant?"),
			"created_at": kind("instant"), "updated_at": kind("instant"),
			"business_id": kind("uuid"),
		},
		"invoices": {
			"id": kind("uuid"), "invoice_number": kind("text"), "title": kind("text"),
			"status":   oneOf("draft", "sent", "viewed", "paid", "overdue", "voided"),
			"subtotal": kind("money"), "discount_type": kind("text?"), "discount_value": kind("money?"),
			"tax_rate": kind("money"), "tax_amount": kind("money"), "total_amount": kind("money"), "paid_amount": kind("money"),
			"due_at": kind("instant?"), "issued_at": kind("instant?"), "sent_at": kind("instant?"), "paid_at": kind("instant?"),
			"created_at": kind("instant"), "updated_at": kind("instant"),
			"business_id": kind("uuid"),
		},
		"offerings": {
			"id": kind("uuid"), "name": kind("text"), "type": oneOf("service", "product"), "status": oneOf("active", "inactive"),
			"description": kind("text?"), "service_details": kind("texts"),
			"dont_book_appointment": kind("boolean"), "appointment_duration": kind("integer?"),
			"created_at": kind("instant"), "updated_at": kind("instant"),
			"business_id": kind("uuid"),
		},
		"equipment": {
			"id": kind("uuid"), "equipment_number": kind("text"), "name": kind("text"), "serial_number": kind("text?"),
			"tracking_mode": oneOf("individual", "bulk"), "quantity": kind("integer"), "category": kind("text"),
			"model": kind("text?"), "manufacturer": kind("text"),
			"status":        oneOf("available", "assigned", "maintenance", "retired"),
			"purchase_date": kind("date?"), "maintenance_interval_days": kind("integer?"), "next_maintenance_date": kind("date?"),
			"created_at": kind("instant"), "updated_at": kind("instant"),
			"business_id": kind("uuid"),
		},
		"events": {
			"id": kind("uuid"), "title": kind("text"), "description": kind("text?"), "url": kind("url"),
			"type": oneOf("single-day", "multi-day", "recurring"), "schedule": kind("list"),
			"location_type": oneOf("in-person", "virtual", "hybrid"), "venue": kind("text?"), "address": kind("text?"),
			"virtual_link": kind("url?"), "is_free": kind("boolean"), "image_url": kind("url?"), "media": kind("list"),
			"business_id": kind("uuid"), "status": oneOf("draft", "published", "archived"),
			"published_at": kind("instant?"), "created_at": kind("instant"),
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
			case kind:
				if v == nil {
					require.Equal(t, byte('?'), shape[len(shape)-1], "%s is null", name)
					seen[nil]++
					continue
				}
				is := kinds[kind(regexp.MustCompile(`\?$`).ReplaceAllString(string(shape), ""))]
				require.True(t, is(v), "%s is %v, not %s", name, v, shape)
				seen["value"]++
			}
		}
		switch shape := shape.(type) {
		case map[string]bool:
			require.Len(t, seen, len(shape), "%s has only %v", name, seen)
		case kind:
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
		requireShape(t, map[string]any{"date": kind("date"), "start_time": kind("time"), "end_time": kind("time")}, schedule)
		requireShape(t, map[string]any{
			"url": kind("url"), "file_type": oneOf("image", "video", "document"), "caption": kind("text?"), "featured": kind("boolean"),
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
