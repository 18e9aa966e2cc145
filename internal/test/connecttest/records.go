package connecttest

import (
	"encoding/json"
	"maps"
)

// Business is the business of [Record].
const Business = "biz_1"

// Record returns a response with a record of a kind, such as {"contact":{…}}: complete, of [Business], and with some members instead. A
// member that is Absent is left out.
func Record(kind string, instead map[string]any) string {
	text, err := json.Marshal(map[string]any{kind: members(kind, instead)})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// List returns a page of a list with a record for each of its members instead.
func List(name, kind string, instead ...map[string]any) string {
	list := []any{}
	for _, one := range instead {
		list = append(list, members(kind, one))
	}
	text, err := json.Marshal(map[string]any{name: list, "next_cursor": nil})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Absent stands for a member that a record does not have.
const Absent = "(absent)"

func members(kind string, instead map[string]any) map[string]any {
	const when = "2026-03-05T14:30:00Z"
	r := map[string]map[string]any{
		"business": {
			"id": Business, "name": "Fern", "slug": "fern", "email": nil, "phone": nil, "website_url": nil, "time_zone": "UTC",
			"account_status": "active", "version": 1, "updated_at": when,
		},
		"contact": {
			"id": 7, "first_name": "Ines", "last_name": nil, "email": nil, "phone_number": nil, "country_code": nil, "contact_type": "lead",
			"contact_status": "active", "notes": nil, "date_created": when, "date_modified": when, "version": 1,
		},
		"calendar": {"id": "1", "name": "Crew 1", "owner_name": nil, "time_zone": "UTC"},
		"faq":      {"id": "a", "question": "Do you?", "answer": "Yes.", "enabled": true, "version": 1, "created_at": when, "updated_at": when},
		"service": {
			"id": "a", "name": "Repairs", "description": nil, "duration_minutes": nil, "price": nil, "bookable": false, "version": 1,
			"created_at": when, "updated_at": when,
		},
		"job": {
			"id": "a", "job_number": nil, "name": nil, "description": nil, "work_status": "draft", "contact_id": nil, "contact_name": nil,
			"total_amount": nil, "outstanding_balance": nil, "lead_source": nil, "created_at": when, "updated_at": when,
		},
		"object": {"id": "a", "type": "pets", "fields": map[string]any{}, "version": 1, "created_at": when, "updated_at": when},
		"object_type": {
			"name": "pets", "title": nil, "description": nil, "object_count": 1, "schema": map[string]any{},
		},
		"automation": {
			"id": "a1", "name": "Report", "description": nil, "enabled": true, "writes_to_people": false, "input_schema": map[string]any{},
			"last_run": nil,
		},
		"run": {
			"id": "r1", "automation_id": "a1", "status": "queued", "dry_run": false, "progress": 0, "message": nil, "steps": []any{},
			"created_at": when, "started_at": nil, "finished_at": nil, "error": nil,
		},
		"conversation": {
			"id": "c1", "channel": "sms", "contact_id": nil, "caller_name": nil, "caller_address": nil, "started_at": when, "ended_at": nil,
			"outcome": "answered", "summary": nil, "message_count": 0,
		},
	}[kind]
	if r == nil {
		panic("no such kind of record: " + kind)
	}
	r["business_id"] = Business
	maps.Copy(r, instead)
	maps.DeleteFunc(r, func(_ string, value any) bool { text, ok := value.(string); return ok && text == Absent })
	return r
}
