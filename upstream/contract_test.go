package upstream_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// check runs Check as the gateway does, for the query given, and makes sure of what holds for every answer.
func check(t testing.TB, c *upstream.Contract, resource, query string, body []byte) (string, upstream.Report, error) {
	t.Helper()
	res := upstream.ByName(resource)
	q, err := res.CleanQuery(query)
	require.NoError(t, err)
	before := bytes.Clone(body)
	dst := bytes.NewBufferString("before")
	report, err := c.Check(dst, res, q, mine, body)
	require.Equal(t, before, body, "the body is the caller's")
	out, kept := strings.CutPrefix(dst.String(), "before")
	require.True(t, kept, "what stood in dst")
	if err != nil {
		require.Empty(t, out, "nothing leaves with an error")
		var cerr *upstream.ContractError
		require.ErrorAs(t, err, &cerr)
		require.Equal(t, resource, cerr.Resource)
		return "", report, err
	}
	require.True(t, json.Valid([]byte(out)), out)
	return out, report, nil
}

// exactly compares byte for byte: the order of members is promised, and that there is no white space.
func exactly(t *testing.T, want, got string) {
	t.Helper()
	require.Equal(t, want, got)
}

// ids are the ids of an answer's records in order.
func ids(t *testing.T, list, answer string) []string {
	t.Helper()
	var doc map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(answer), &doc))
	var rs []struct{ ID json.RawMessage }
	require.NoError(t, json.Unmarshal(doc[list], &rs))
	out := make([]string, 0, len(rs))
	for _, r := range rs {
		out = append(out, string(r.ID))
	}
	return out
}

func TestOnlyDocumentedFieldsLeaveInTheContractsOrder(t *testing.T) {
	t.Parallel()
	r := append(object{{"internal_margin", `"0.41"`}, {"created_by", `{"user":[1,{"email":"x@y"}]}`}}, contact(0)...)
	body := []byte(`{"debug":{"host":"10.0.0.7"},"contacts":` + array(r) + `,"trace":[[1]],"pagination":{"total_pages":1,` +
		`"next":"http://10.0.0.7/2","total_items":1,"per_page":25,"current_page":1},"took_ms":3}`)
	out, report, err := check(t, &upstream.Contract{}, "contacts", "", body)
	require.NoError(t, err)
	exactly(t, `{"contacts":[{"id":4000,"first_name":"Ada","last_name":"Lindqvist",`+
		`"email":"ada.lindqvist@example.com","phone_number":"5550142","country_code":"+46","contact_type":"customer",`+
		`"contact_status":"active","notes":null,"date_created":"2026-03-05T14:30:00Z",`+
		`"date_modified":"2026-03-05T14:30:00Z"}],`+
		`"pagination":{"current_page":1,"per_page":25,"total_items":1,"total_pages":1}}`, out)
	require.Equal(t, upstream.Report{Records: 1}, report)
}

func TestMissingFieldsLeaveAsNull(t *testing.T) {
	t.Parallel()
	body := page("offerings", object{{"business_id", quoted(mine)}, {"id", "7"}})
	out, _, err := check(t, &upstream.Contract{}, "offerings", "", body)
	require.NoError(t, err)
	require.Contains(t, out, `{"id":7,"name":null,"type":null,"status":null,"description":null,"service_details":null,`+
		`"dont_book_appointment":null,"appointment_duration":null,"created_at":null,"updated_at":null}`)

	body = eventsAnswer(event(0).with("schedule", `[ {"start_time" : "09:00", "room":"B2"} ]`).without("media"))
	out, _, err = check(t, &upstream.Contract{}, "events", "", body)
	require.NoError(t, err)
	require.Contains(t, out, `"schedule":[{"date":null,"start_time":"09:00","end_time":null}]`)
	require.Contains(t, out, `"media":null`)
}

func TestEveryListTakesItsOwnRecords(t *testing.T) {
	t.Parallel()
	common := func(i int) object {
		return object{{"business_id", quoted(mine)}, {"id", uuid(i)}, {"created_at", instant(i)}}
	}
	for _, resource := range []string{"equipment", "estimates", "invoices", "jobs", "offerings"} {
		out, report, err := check(t, &upstream.Contract{}, resource, "", page(resource, records(25, common)...))
		require.NoError(t, err, resource)
		require.Equal(t, upstream.Report{Records: 25}, report, resource)
		require.Len(t, ids(t, resource, out), 25)
	}
	out, _, err := check(t, &upstream.Contract{}, "jobs", "page=9&per_page=7",
		[]byte(`{"jobs":[],"pagination":{"current_page":9,"per_page":7,"total_items":3,"total_pages":1}}`))
	require.NoError(t, err, "past the end")
	exactly(t, `{"jobs":[],"pagination":{"current_page":9,"per_page":7,"total_items":3,"total_pages":1}}`, out)
}

func TestAnotherBusinesssRecordIsStoppedAndReported(t *testing.T) {
	t.Parallel()
	for name, mark := range map[string]string{
		"another": quoted(theirs), "longer": quoted(mine + "0"), "shorter": quoted(mine[:4]), "empty": `""`,
		"other case": quoted(strings.ToUpper(mine)), "number": "7", "padded": quoted(" " + mine), "escaped": `"biz\u005f9c1e"`,
	} {
		rs := records(5, invoice)
		rs[3] = rs[3].with("business_id", mark)
		_, report, err := check(t, &upstream.Contract{AllowMissingTenant: true}, "invoices", "", page("invoices", rs...))
		require.ErrorIs(t, err, upstream.ErrCrossTenantRecord, name)
		require.ErrorIs(t, err, upstream.ErrContractViolation, name)
		require.Equal(t, 1, report.CrossTenant, name)
		require.Equal(t, "upstream response violates the contract: cross-tenant record: invoices: record 3: "+
			"business_id: expected the authenticated business", err.Error())

		es := records(5, event)
		es[3] = es[3].with("business_id", mark)
		out, report, err := check(t, &upstream.Contract{AllowMissingTenant: true}, "events", "", eventsAnswer(es...))
		require.NoError(t, err, name)
		require.Equal(t, []string{uuid(0), uuid(1), uuid(2), uuid(4)}, ids(t, "events", out), name)
		require.Equal(t, upstream.Report{Records: 4, CrossTenant: 1}, report, name)
	}
}

func TestTheMarkMayBeAnIntegerOrEscaped(t *testing.T) {
	t.Parallel()
	res := upstream.ByName("contacts")
	q, err := res.CleanQuery("")
	require.NoError(t, err)
	var c upstream.Contract
	for business, mark := range map[string]string{"42": "42", "7": `"7"`, mine: `"biz\u005f7f3a"`, "a/b": `"a\/b"`, "-1": "-1"} {
		var dst bytes.Buffer
		_, err := c.Check(&dst, res, q, business, page("contacts", contact(0).with("business_id", mark)))
		require.NoError(t, err, "%s %s", business, mark)
	}
	for business, mark := range map[string]string{"42": "42.0", "4": "4e0", "true": "true", "042": "42", "{}": "{}", "[]": "[42]"} {
		var dst bytes.Buffer
		_, err := c.Check(&dst, res, q, business, page("contacts", contact(0).with("business_id", mark)))
		require.ErrorIs(t, err, upstream.ErrContractViolation, "%s %s", business, mark)
		require.Zero(t, dst.Len())
	}
}

func TestARecordWithoutAMarkIsRefusedUnlessTheOperatorAllowsIt(t *testing.T) {
	t.Parallel()
	for _, r := range []object{contact(0).without("business_id"), contact(0).with("business_id", "null")} {
		body := page("contacts", contact(1), r)
		_, report, err := check(t, &upstream.Contract{}, "contacts", "", body)
		require.ErrorIs(t, err, upstream.ErrMissingTenant)
		require.ErrorIs(t, err, upstream.ErrContractViolation)
		require.Equal(t, 1, report.MissingTenant)
		require.Contains(t, err.Error(), "contacts: record 1: business_id")
		_, report, err = check(t, &upstream.Contract{AllowMissingTenant: true}, "contacts", "", page("contacts", r))
		require.NoError(t, err)
		require.Equal(t, upstream.Report{Records: 1, MissingTenant: 1}, report)
	}
	_, _, err := check(t, &upstream.Contract{}, "events", "", eventsAnswer(event(0).without("business_id")))
	require.ErrorIs(t, err, upstream.ErrMissingTenant, "also in events")
}

func TestAnOwnerIsNeverGuessedFromAnEmptyBusiness(t *testing.T) {
	t.Parallel()
	res := upstream.ByName("contacts")
	var dst bytes.Buffer
	_, err := (&upstream.Contract{AllowMissingTenant: true}).Check(&dst, res, upstream.Query{Page: 1, PerPage: 25}, "",
		page("contacts", contact(0).with("business_id", `""`)))
	require.ErrorIs(t, err, upstream.ErrIdentity)
	require.Zero(t, dst.Len())
}

func TestTheBusinessIsTheAuthenticatedOne(t *testing.T) {
	t.Parallel()
	business := object{
		{"id", quoted(mine)},
		{"name", `"Old Yard"`},
		{"slug", `"old-yard"`},
		{"email", "null"},
		{"phone", `"1"`},
		{"website_url", `""`},
		{"time_zone", `"Europe/Stockholm"`},
		{"account_status", `"active"`},
		{"plan", `"gold"`},
	}
	answer := func(b object) []byte { return []byte(`{"business":` + b.String() + `}`) }
	for _, b := range []object{business, business.with("business_id", quoted(mine)), business.with("id", `"biz\u005f7f3a"`)} {
		out, report, err := check(t, &upstream.Contract{}, "business", "", answer(b))
		require.NoError(t, err)
		exactly(t, `{"business":{"id":"biz_7f3a","name":"Old Yard","slug":"old-yard","email":null,"phone":"1",`+
			`"website_url":"","time_zone":"Europe/Stockholm","account_status":"active"}}`, out)
		require.Equal(t, upstream.Report{Records: 1}, report)
	}
	for _, b := range []object{
		business.with("id", quoted(theirs)), business.with("id", "3"), business.with("business_id", quoted(theirs)),
	} {
		_, report, err := check(t, &upstream.Contract{AllowMissingTenant: true}, "business", "", answer(b))
		require.ErrorIs(t, err, upstream.ErrCrossTenantRecord)
		require.Equal(t, 1, report.CrossTenant)
	}
	for body, where := range map[string]string{
		string(answer(business.without("id"))):      "id: expected",
		string(answer(business.with("id", "null"))): "id: expected",
		string(answer(business.with("id", "[]"))):   "id: expected",
		string(answer(business.with("name", "7"))):  "name: expected a string",
		`{"business":null}`:                         "business: expected an object",
		`{"business":[` + business.String() + `]}`:  "business: expected an object",
		`{}`:              "business: expected the member business",
		business.String(): "business: expected the member business",
		`{"business":` + business.String() + `,"x":1e}`: "valid JSON",
	} {
		_, _, err := check(t, &upstream.Contract{AllowMissingTenant: true}, "business", "", []byte(body))
		require.ErrorIs(t, err, upstream.ErrContractViolation, body)
		require.NotErrorIs(t, err, upstream.ErrCrossTenantRecord, body)
		require.ErrorContains(t, err, where, body)
	}
	// The id leaves as the string that /me answers with, also when the service keeps integers.
	var dst bytes.Buffer
	_, err := (&upstream.Contract{}).Check(&dst, upstream.ByName("business"), upstream.Query{}, "42", answer(business.with("id", "42")))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(dst.String(), `{"business":{"id":"42",`))
}

func TestDraftsAndArchivedEventsNeverLeave(t *testing.T) {
	t.Parallel()
	es := records(8, event)
	for i, status := range []string{`"draft"`, `"archived"`, `"Published"`, `"published "`, `""`, `"publi\u0073hed"`} {
		es[i] = es[i].with("status", status)
	}
	// What is wrong in an event that does not leave does not matter.
	es[0] = es[0].with("title", "17").with("id", "null").with("published_at", `"soon"`)
	out, report, err := check(t, &upstream.Contract{}, "events", "", eventsAnswer(es...))
	require.NoError(t, err)
	require.Equal(t, []string{uuid(5), uuid(6), uuid(7)}, ids(t, "events", out), "an escaped published is published")
	require.Equal(t, upstream.Report{Records: 3, Unpublished: 5}, report)
	for _, status := range []string{"null", "true", "1", `["published"]`, `{"published":true}`} {
		_, _, err := check(t, &upstream.Contract{}, "events", "", eventsAnswer(event(0), event(1).with("status", status)))
		require.ErrorIs(t, err, upstream.ErrContractViolation, status)
		require.ErrorContains(t, err, "events: record 1: status: expected a string", status)
	}
	_, _, err = check(t, &upstream.Contract{}, "events", "", eventsAnswer(event(0).without("status")))
	require.ErrorIs(t, err, upstream.ErrContractViolation)
}

func TestEventsAreMostRecentFirstAndNeverMoreThanCount(t *testing.T) {
	t.Parallel()
	es := records(30, event)
	es[2], es[28] = es[28], es[2]
	es[4] = es[4].with("status", `"draft"`)
	es[5] = es[5].without("published_at")                                      // created a day earlier than published
	es[6] = es[6].with("published_at", "null").with("created_at", instant(-1)) // the most recent of all
	out, report, err := check(t, &upstream.Contract{}, "events", "count=5", eventsAnswer(es...))
	require.NoError(t, err)
	require.Equal(t, []string{uuid(6), uuid(0), uuid(1), uuid(2), uuid(3)}, ids(t, "events", out))
	require.Equal(t, upstream.Report{Records: 5, Unpublished: 1, Surplus: 24, Reordered: true}, report)

	out, report, err = check(t, &upstream.Contract{}, "events", "count=3", eventsAnswer(records(4, event)...))
	require.NoError(t, err)
	require.Equal(t, []string{uuid(0), uuid(1), uuid(2)}, ids(t, "events", out))
	require.Equal(t, upstream.Report{Records: 3, Surplus: 1}, report)

	out, report, err = check(t, &upstream.Contract{}, "events", "count=5", eventsAnswer())
	require.NoError(t, err)
	exactly(t, `{"events":[]}`, out)
	require.Zero(t, report)

	_, _, err = check(t, &upstream.Contract{}, "events", "",
		eventsAnswer(event(0).without("published_at").without("created_at")))
	require.ErrorContains(t, err, "published_at or created_at")
	require.ErrorIs(t, err, upstream.ErrContractViolation)
}

func TestListsAreNewestCreatedFirstAndStable(t *testing.T) {
	t.Parallel()
	at := func(i int, created string) object { return invoice(i).with("created_at", quoted(created)) }
	rs := []object{
		at(0, "2026-01-01T00:00:00Z"), at(1, "2026-01-01T00:00:00.000000001Z"), at(2, "2026-02-29T00:00:00Z"),
	}
	_, _, err := check(t, &upstream.Contract{}, "invoices", "", page("invoices", rs...))
	require.ErrorContains(t, err, "created_at: expected an instant", "2026 is no leap year")
	rs = []object{
		at(0, "2026-01-01T00:00:00Z"), at(1, "2026-01-01T00:00:00.000000001Z"), at(2, "2024-02-29T00:00:00Z"),
		invoice(3).with("created_at", "null"), at(4, "2026-01-01T00:00:00.0Z"), at(5, "2026-01-31T23:59:59+00:00"),
		invoice(6).without("created_at"), at(7, "2026-02-01T00:00:00Z"), at(8, "2026-01-01T00:00:00.000\\u002b00:00"),
	}
	rs[8] = invoice(8).with("created_at", `"2026-01-01T00:00:00.000\u002b00:00"`)
	out, report, err := check(t, &upstream.Contract{}, "invoices", "", page("invoices", rs...))
	require.NoError(t, err)
	want := make([]string, 0, len(rs))
	for _, i := range []int{7, 5, 1, 0, 4, 8, 2, 3, 6} {
		want = append(want, uuid(i))
	}
	require.Equal(t, want, ids(t, "invoices", out))
	require.Equal(t, upstream.Report{Records: 9, Reordered: true}, report)

	cs := records(3, contact)
	cs[0], cs[2] = cs[2], cs[0]
	out, report, err = check(t, &upstream.Contract{}, "contacts", "", page("contacts", cs...))
	require.NoError(t, err)
	require.Equal(t, []string{"4000", "4001", "4002"}, ids(t, "contacts", out))
	require.True(t, report.Reordered)
}

func TestMoreRecordsThanAPageHoldsAreRefused(t *testing.T) {
	t.Parallel()
	body := []byte(`{"jobs":` + array(records(4, func(i int) object {
		return object{{"id", uuid(i)}, {"business_id", quoted(mine)}}
	})...) + `,"pagination":{"current_page":1,"per_page":3,"total_items":4,"total_pages":2}}`)
	_, _, err := check(t, &upstream.Contract{}, "jobs", "per_page=3", body)
	require.ErrorIs(t, err, upstream.ErrContractViolation)
	require.Equal(t, "upstream response violates the contract: jobs: expected at most per_page records, 3", err.Error())
}

func TestPaginationIsWhatWasAsked(t *testing.T) {
	t.Parallel()
	for pagination, where := range map[string]string{
		`{"current_page":2,"per_page":25,"total_items":0,"total_pages":0}`:                   "pagination.current_page: expected the requested page, 1",
		`{"current_page":1,"per_page":24,"total_items":0,"total_pages":0}`:                   "pagination.per_page: expected the requested per_page",
		`{"current_page":1,"per_page":25,"total_items":-1,"total_pages":0}`:                  "pagination.total_items: expected a non-negative integer",
		`{"current_page":1,"per_page":25,"total_items":0,"total_pages":-0}`:                  "pagination.total_pages",
		`{"current_page":1,"per_page":25,"total_items":0.0,"total_pages":0}`:                 "pagination.total_items",
		`{"current_page":1,"per_page":25,"total_items":1e3,"total_pages":0}`:                 "pagination.total_items",
		`{"current_page":1,"per_page":25,"total_items":9999999999999999999,"total_pages":0}`: "pagination.total_items",
		`{"current_page":"1","per_page":25,"total_items":0,"total_pages":0}`:                 "pagination.current_page",
		`{"current_page":1,"per_page":25,"total_items":null,"total_pages":0}`:                "pagination.total_items",
		`{"current_page":1,"per_page":25,"total_items":0}`:                                   "pagination.total_pages",
		`{"current_page":1,"per_page":25,"total_items":0,"total_pages":[]}`:                  "pagination.total_pages",
		`{}`:   "pagination.current_page",
		`null`: "pagination: expected an object",
		`[]`:   "pagination: expected an object",
	} {
		_, _, err := check(t, &upstream.Contract{}, "jobs", "", []byte(`{"jobs":[],"pagination":`+pagination+`}`))
		require.ErrorIs(t, err, upstream.ErrContractViolation, pagination)
		require.ErrorContains(t, err, where, pagination)
	}
	_, _, err := check(t, &upstream.Contract{}, "jobs", "", []byte(`{"jobs":[]}`))
	require.ErrorContains(t, err, "pagination: expected the member pagination")
	out, _, err := check(t, &upstream.Contract{}, "events", "", []byte(`{"pagination":7,"events":[]}`))
	require.NoError(t, err, "events have none")
	exactly(t, `{"events":[]}`, out)
}

func TestEachKindAdmitsItsFormsAndNoOthers(t *testing.T) {
	t.Parallel()
	text := []string{`""`, `"x"`, `"\ud83d\ude00"`, `"<script>"`, `"\u0000"`}
	notText := []string{"1", "true", "[]", "{}", `["x"]`}
	for _, c := range []struct {
		resource, field string
		one             func(int) object
		good, bad       []string
	}{
		{"contacts", "notes", contact, text, notText},
		{"contacts", "contact_type", contact, append(text, `"partner"`), notText}, // enumerations may grow
		{"contacts", "id", contact, []string{"0", "-1", "999999999999999999"}, []string{
			"null", `"1"`, "1.0", "1e1", "1000000000000000000", "true", "[1]",
		}},
		{"invoices", "id", invoice, []string{"1", `"x"`, uuid(1)}, []string{"null", `""`, "1.5", "true", "{}"}},
		{"invoices", "invoice_number", invoice, []string{"1042", `"INV-1"`, "null"}, []string{"1.5", `""`, "false"}},
		{"events", "id", event, []string{uuid(1), `"0190F3A2-7C4B-7D11-9E55-00000000000A"`, `"0190f3a2\u002d7c4b-7d11-9e55-00000000000a"`}, []string{
			"null", `""`, "7", `"0190f3a27c4b7d119e5500000000000a"`, `"0190f3a2-7c4b-7d11-9e55-00000000000g"`,
			`"{0190f3a2-7c4b-7d11-9e55-00000000000}"`, `"0190f3a2-7c4b-7d11-9e55-00000000000"`,
			`"0190f3a27-c4b-7d11-9e55-00000000000a"`, `" 0190f3a2-7c4b-7d11-9e55-0000000000a"`,
		}},
		{"events", "is_free", event, []string{"true", "false", "null"}, []string{"0", `"true"`, `""`, "[]"}},
		{"invoices", "total_amount", invoice, []string{
			`"0"`, `"9471.88"`, `"-12.50"`, `"0.123456789"`, `"100000000000000000000000.01"`, "null", `"1\u002e50"`,
		}, []string{
			"9471.88", "1", `""`, `"."`, `".5"`, `"5."`, `"+5"`, `"1,50"`, `"1e3"`, `"$5"`, `" 5"`, `"5 "`, `"-"`, `"--5"`,
			`"1.2.3"`, `"NaN"`, `"٥"`, `"5.x"`,
		}},
		{"invoices", "due_at", invoice, []string{
			`"2026-03-05T14:30:00Z"`, `"2026-03-05T14:30:00.5Z"`, `"2026-03-05T14:30:00.123456789Z"`,
			`"2026-03-05T14:30:00+00:00"`, `"2026-03-05T14:30:00\u002B00:00"`, `"2000-02-29T23:59:59Z"`, "null",
		}, []string{
			`""`, `"2026-03-05"`, `"2026-03-05T14:30:00"`, `"2026-03-05 14:30:00Z"`, `"2026-03-05t14:30:00z"`,
			`"2026-03-05T14:30Z"`, `"2026-03-05T14:30:00+01:00"`, `"2026-03-05T14:30:00-00:00"`, `"2026-03-05T24:00:00Z"`,
			`"2026-03-05T14:60:00Z"`, `"2026-03-05T23:59:60Z"`, `"2026-13-05T14:30:00Z"`, `"2026-00-05T14:30:00Z"`,
			`"2026-04-31T14:30:00Z"`, `"2026-02-29T00:00:00Z"`, `"1900-02-29T00:00:00Z"`, `"2026-03-05T14:30:00.Z"`,
			`"2026-03-05T14:30:00.1234567890Z"`, `"2026-03-05T14:30:00ZZ"`, `"2026-3-5T14:30:00Z"`, "1772721000", `"-026-03-05T14:30:00Z"`,
		}},
		{
			"equipment", "purchase_date", bare,
			[]string{`"2024-02-29"`, `"0001-01-01"`, "null"},
			[]string{`"2026-02-29"`, `"2026-2-9"`, `"05.03.2026"`, `"2026-03-05T00:00:00Z"`, `""`, "20260305", `"2026-03-32"`, `"2026-03-00"`, `"20x6-03-05"`},
		},
		{
			"equipment", "quantity", bare,
			[]string{"0", "-3", "null"},
			[]string{`"3"`, "3.5", "3e2", "true", "9999999999999999999"},
		},
		{
			"offerings", "service_details", bare,
			[]string{"[]", `["a"]`, `[ "a" , "\u00e4" ]`, "null"},
			[]string{`"a"`, "[1]", `["a",null]`, `["a",["b"]]`, `[{"a":1}]`, "{}"},
		},
		{"events", "schedule", event, []string{"[]", "[{}]", `[{"date":"2026-04-11","start_time":"00:00","end_time":"23:59"},{"date":null}]`, "null"}, []string{
			"{}", `""`, "[1]", "[null]", "[[]]", `[{"date":"soon"}]`, `[{"start_time":"24:00"}]`, `[{"start_time":"9:00"}]`,
			`[{"start_time":"09:60"}]`, `[{"start_time":"09:00:00"}]`, `[{"end_time":900}]`, `[{"date":{}}]`, `[{},"x"]`,
		}},
		{"events", "media", event, []string{"[]", `[{"url":"","file_type":"video","caption":null,"featured":false}]`}, []string{
			`[{"featured":"yes"}]`, `[{"url":1}]`, `[{"caption":["x"]}]`, "true",
		}},
	} {
		for _, value := range c.good {
			rec := c.one(0).with(c.field, value)
			out, _, err := check(t, &upstream.Contract{}, c.resource, "", answerOf(c.resource, rec))
			require.NoError(t, err, "%s.%s = %s", c.resource, c.field, value)
			require.JSONEq(t, memberOf(t, rec.String(), c.field, false), memberOf(t, out, c.field, true), "%s.%s", c.resource, c.field)
		}
		for _, value := range c.bad {
			_, _, err := check(t, &upstream.Contract{}, c.resource, "", answerOf(c.resource, c.one(0).with(c.field, value)))
			require.ErrorIs(t, err, upstream.ErrContractViolation, "%s.%s = %s", c.resource, c.field, value)
			require.ErrorContains(t, err, c.resource+": record 0: "+c.field, "%s.%s = %s", c.resource, c.field, value)
		}
	}
}

func bare(int) object { return object{{"id", "1"}, {"business_id", quoted(mine)}} }

func answerOf(resource string, rs ...object) []byte {
	if resource == "events" {
		return eventsAnswer(rs...)
	}
	return page(resource, rs...)
}

// memberOf is a member's value, null for those that Check adds to nested objects left out; of the first record when
// text is an answer.
func memberOf(t *testing.T, text, name string, answer bool) string {
	t.Helper()
	var doc map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &doc))
	if answer {
		for key, list := range doc {
			if rs, ok := list.([]any); ok && key != "pagination" {
				doc = asObject(rs[0])
			}
		}
	}
	value := doc[name]
	if list, ok := value.([]any); ok {
		for _, element := range list {
			maps.DeleteFunc(asObject(element), func(_ string, v any) bool { return v == nil })
		}
	}
	encoded, err := json.Marshal(value)
	require.NoError(t, err)
	return string(encoded)
}

func asArray(v any) []any {
	a, _ := v.([]any)
	return a
}

func asObject(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func TestBrokenJSONIsRefusedWithoutQuotingIt(t *testing.T) {
	t.Parallel()
	const canary = "canary-10.0.0.7"
	good := string(eventsAnswer(event(0).with("title", quoted(canary)).with(canary, `"x"`)))
	bodies := map[string]string{
		"empty": "", "spaces": " \r\n\t", "html": "<html><h1>" + canary + "</h1></html>", "text": canary, "null": "null",
		"array": "[" + good + "]", "string": quoted(canary), "number": "7", "bom": "\ufeff" + good, "NaN": `{"events":[NaN]}`,
		"trailing brace": good + "}", "trailing document": good + good, "trailing text": good + canary, "trailing NUL": good + "\x00",
		"comment": "/* x */" + good, "trailing comma": `{"events":[],}`, "comma in array": `{"events":[{},]}`,
		"single quotes": `{'events':[]}`, "no quotes": `{events:[]}`, "number as name": `{1:2}`, "array as name": `{["` + canary + `"]:2}`,
		"object as name": `{{"` + canary + `":1}:2}`, "no colon": `{"events" []}`, "two colons": `{"events"::[]}`,
		"no comma": `{"a":1 "events":[]}`, "bad escape": `{"events":[],"x":"\q"}`, "bad unicode escape": `{"events":[],"x":"\u12g4"}`,
		"lone surrogate": `{"events":[],"x":"\ud800"}`, "control character": "{\"events\":[],\"x\":\"\n\"}",
		"invalid utf-8": "{\"events\":[],\"x\":\"\xff\"}", "overlong utf-8": "{\"events\":[],\"x\":\"\xc0\xaf\"}",
		"invalid utf-8 in a name": "{\"events\":[],\"\xff\":1}", "leading zero": `{"events":[],"x":01}`, "hex": `{"events":[],"x":0x1}`,
		"duplicate member": `{"events":[],"events":[]}`, "duplicate unknown": `{"events":[],"x":1,"x":2}`,
		"duplicate escaped": `{"events":[],"\u0065vents":[]}`, "duplicate nested": `{"events":[],"x":[{"` + canary + `":1,"` + canary + `":2}]}`,
		"duplicate in record":   string(eventsAnswer(append(event(0), pair{"status", `"draft"`}))),
		"duplicate mark":        string(eventsAnswer(append(event(0), pair{"business_id", quoted(theirs)}))),
		"duplicate in schedule": string(eventsAnswer(event(0).with("schedule", `[{"date":null,"date":null}]`))),
		"list is null":          `{"events":null}`, "list is an object": `{"events":{}}`, "list of nulls": `{"events":[null]}`,
		"list of lists": `{"events":[[]]}`, "list of strings": `{"events":["` + canary + `"]}`, "no list": `{"event":[]}`,
		"list in other case": `{"Events":[]}`,
	}
	for i := range len(good) {
		bodies[fmt.Sprintf("cut off at %d", i)] = good[:i]
	}
	for name, body := range bodies {
		_, _, err := check(t, &upstream.Contract{}, "events", "", []byte(body))
		require.ErrorIs(t, err, upstream.ErrContractViolation, name)
		require.NotContains(t, err.Error(), canary, name)
		require.Less(t, len(err.Error()), 200, name)
	}
}

func TestTenThousandLevelsCostNeitherStackNorMemory(t *testing.T) {
	t.Parallel()
	const levels = 10_000
	arrays := strings.Repeat("[", levels) + strings.Repeat("]", levels)
	objects := strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
	open := strings.Repeat(`[{"a":`, 1<<16)
	for _, deep := range []string{arrays, objects, open} {
		for _, body := range []string{
			deep, `{"x":` + deep + `,"events":[]}`, `{` + deep + `:1}`, `{"events":` + deep + `}`, `{"events":[` + deep + `]}`,
			`{"events":[{"x":` + deep + `}]}`, `{"events":[{"title":` + deep + `}]}`, `{"events":[{"schedule":` + deep + `}]}`,
			`{"events":[{"schedule":[{"date":` + deep + `}]}]}`, `{"events":[{"business_id":` + deep + `}]}`,
		} {
			for _, c := range []*upstream.Contract{{}, {PassUnknownFields: map[string]bool{"events": true}}} {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, _, err := check(t, c, "events", "", []byte(body))
				runtime.ReadMemStats(&after)
				require.ErrorIs(t, err, upstream.ErrContractViolation)
				require.Less(t, after.StackInuse, before.StackInuse+16<<20)
			}
		}
	}
	deepest := strings.Repeat("[", upstream.MaxDepth-1) + strings.Repeat("]", upstream.MaxDepth-1)
	_, _, err := check(t, &upstream.Contract{}, "events", "", []byte(`{"x":`+deepest+`,"events":[]}`))
	require.NoError(t, err)
	_, _, err = check(t, &upstream.Contract{}, "events", "", []byte(`{"x":[`+deepest+`],"events":[]}`))
	require.ErrorContains(t, err, "at most 64 deep")
}

func TestUnknownFieldsPassWhereTheOperatorSaysSo(t *testing.T) {
	t.Parallel()
	r := contact(0).without("notes").with("vip", "true").with("tags", `[ "a", {"b" : 1} ]`).with("note\\u0073_x", `"\/"`).
		with("Business_ID", `"x"`).with("FIRST_NAME", `"x"`).with("BUSINESS_ID", `"y"`)
	c := &upstream.Contract{PassUnknownFields: map[string]bool{"contacts": true}}
	require.NoError(t, c.Validate())
	out, _, err := check(t, c, "contacts", "", []byte(`{"top":1,"contacts":[`+strings.ReplaceAll(r.String(), `\\u`, `\u`)+
		`],"pagination":{"current_page":1,"per_page":25,"total_items":1,"total_pages":1,"x":1}}`))
	require.NoError(t, err)
	require.Contains(t, out, `"date_modified":"2026-03-05T14:30:00Z","vip":true,"tags":["a",{"b":1}],"note\u0073_x":"/"}],"pagination"`)
	require.NotContains(t, strings.ToLower(out), "business_id")
	require.NotContains(t, out, "FIRST_NAME")
	require.NotContains(t, out, "top")

	for _, internal := range []string{`"status"`, `"published_at"`, `"created_at"`, `"business_id"`} {
		c := &upstream.Contract{PassUnknownFields: map[string]bool{"events": true}}
		out, _, err := check(t, c, "events", "", eventsAnswer(event(0).with("colour", `"red"`)))
		require.NoError(t, err)
		require.Contains(t, out, `"colour":"red"`)
		require.NotContains(t, out, internal)
	}
	out, _, err = check(t, c, "events", "", eventsAnswer(event(0).with("colour", `"red"`)))
	require.NoError(t, err)
	require.NotContains(t, out, "colour", "only the resources that are named")

	for _, name := range []string{"me", "status", "Events", ""} {
		require.Error(t, (&upstream.Contract{PassUnknownFields: map[string]bool{name: true}}).Validate(), name)
	}
}

func TestTheOrderOfMembersDoesNotMatter(t *testing.T) {
	t.Parallel()
	forward, backward := records(6, event), records(6, event)
	for i := range backward {
		if i%2 == 0 {
			continue
		}
		for a, b := 0, len(backward[i])-1; a < b; a, b = a+1, b-1 {
			backward[i][a], backward[i][b] = backward[i][b], backward[i][a]
		}
	}
	one, _, err := check(t, &upstream.Contract{}, "events", "", eventsAnswer(forward...))
	require.NoError(t, err)
	two, _, err := check(t, &upstream.Contract{}, "events", "", eventsAnswer(backward...))
	require.NoError(t, err)
	require.Equal(t, one, two)

	pagination := `"pagination":{"current_page":1,"per_page":25,"total_items":1,"total_pages":1}`
	one, _, err = check(t, &upstream.Contract{}, "contacts", "", []byte(`{`+pagination+`,"contacts":`+array(contact(0))+`}`))
	require.NoError(t, err)
	two, _, err = check(t, &upstream.Contract{}, "contacts", "", page("contacts", contact(0)))
	require.NoError(t, err)
	require.Equal(t, one, two)
}

func TestNamesMayBeEscaped(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(string(eventsAnswer(event(0).with("business_id", quoted(theirs)), event(1))), `"business_id"`, `"business\u005Fid"`)
	text = strings.ReplaceAll(strings.ReplaceAll(text, `"events"`, `"\u0065vents"`), `"title"`, `"titl\u0065"`)
	out, report, err := check(t, &upstream.Contract{}, "events", "", []byte(text))
	require.NoError(t, err)
	require.Equal(t, upstream.Report{Records: 1, CrossTenant: 1}, report)
	require.Contains(t, out, `"title":"Spring`)
}

func TestAnswersOfTheGatewaysOwnResourcesHaveNoUpstream(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"status", "me"} {
		_, _, err := check(t, &upstream.Contract{}, resource, "", []byte(`{"business":{"id":"biz_7f3a"}}`))
		require.ErrorIs(t, err, upstream.ErrContractViolation)
	}
}

func TestConcurrentAnswersDoNotMix(t *testing.T) {
	t.Parallel()
	var c upstream.Contract
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			business := fmt.Sprintf("biz_%d", worker)
			res := upstream.ByName("events")
			for i := range 200 {
				body := eventsAnswer(event(i).with("business_id", quoted(business)).with("venue", quoted(business)),
					event(i+1).with("business_id", quoted(fmt.Sprintf("biz_%d", worker+1))))
				if i%3 == 0 {
					body = body[:len(body)/2] // a broken one in between
				}
				var dst bytes.Buffer
				_, err := c.Check(&dst, res, upstream.Query{Count: 10}, business, body)
				if i%3 == 0 {
					if err == nil {
						t.Error("broken answer passed")
					}
					continue
				}
				if err != nil || strings.Count(dst.String(), `"venue":"`+business+`"`) != 1 || strings.Count(dst.String(), `"venue"`) != 1 {
					t.Errorf("%v %s", err, dst.String())
				}
			}
		})
	}
	wg.Wait()
}

func TestSmallAnswersDoNotGrowLarge(t *testing.T) {
	t.Parallel()
	empty := "[" + strings.Repeat("{},", 1<<20) + "{}]"
	for name, body := range map[string][]byte{
		"one event": eventsAnswer(event(0).with("media", empty)),
		"a draft":   eventsAnswer(event(0).with("media", empty).with("status", `"draft"`)),
		"events": eventsAnswer(records(400, func(i int) object {
			return event(i).with("media", "["+strings.Repeat("{},", 2000)+"{}]")
		})...),
		"unknown names": []byte(`{"x":{` + strings.Repeat(`"":0,`, 1<<20) + `"y":1},"events":[]}`),
	} {
		_, _, err := check(t, &upstream.Contract{}, "events", "", body)
		require.ErrorIs(t, err, upstream.ErrContractViolation, name)
	}
	// Records that say no more than they must are no attack.
	minimal := records(1000, func(i int) object {
		return object{{"id", uuid(i)}, {"business_id", quoted(mine)}, {"status", `"published"`}, {"published_at", instant(i)}}
	})
	_, _, err := check(t, &upstream.Contract{}, "events", "count=100", eventsAnswer(minimal...))
	require.NoError(t, err)
}

func TestHugeAnswersAreLinear(t *testing.T) {
	t.Parallel()
	var names strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&names, `"m%d":0,`, i)
	}
	for name, body := range map[string]string{
		"names":       `{"events":[{` + names.String() + `"x":1}]}`,
		"top names":   `{` + names.String() + `"events":[]}`,
		"long string": `{"x":"` + strings.Repeat("\\u0061", 1<<19) + `","events":[]}`,
		"long number": `{"x":` + strings.Repeat("9", 1<<21) + `,"events":[]}`,
		"drafts":      string(eventsAnswer(records(1000, func(i int) object { return event(i).with("status", `"draft"`) })...)),
		"reversed":    string(eventsAnswer(records(1000, func(i int) object { return event(1000 - i) })...)),
	} {
		start := time.Now()
		res := upstream.ByName("events")
		var dst bytes.Buffer
		_, err := (&upstream.Contract{AllowMissingTenant: true}).Check(&dst, res, upstream.Query{Count: 100}, mine, []byte(body))
		if name == "names" {
			require.ErrorIs(t, err, upstream.ErrContractViolation)
		} else {
			require.NoError(t, err, name)
		}
		// A second at most, with the race detector; anything quadratic would take minutes.
		require.Less(t, time.Since(start), time.Minute, name)
	}
}

// What is read is read in one pass with the search for the documented members, so that no byte of an answer may go
// without the grammar's check. An answer is broken at each of its bytes in turn, in the ways in which JSON breaks.
func TestAnAnswerBrokenAtAnyByteIsRefused(t *testing.T) {
	t.Parallel()
	pretty := bytes.NewBuffer(nil)
	require.NoError(t, json.Indent(pretty, eventsAnswer(records(1, event)...), "", "\t"))
	for name, answer := range map[string]struct {
		resource string
		body     []byte
	}{
		"events":        {"events", eventsAnswer(records(1, event)...)},
		"pretty events": {"events", pretty.Bytes()},
		"contacts":      {"contacts", page("contacts", records(1, contact)...)},
		"escapes": {"contacts", bytes.Replace(page("contacts", records(1, contact)...), []byte(`{"`),
			[]byte(`{"x":"\u00e4\ud83d\ude00\n","y":[-0.5e+3,{"z":[true,null,"\\"]}],"`), 2)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := upstream.ByName(answer.resource)
			q, err := res.CleanQuery("")
			require.NoError(t, err)
			var c upstream.Contract
			var dst bytes.Buffer
			check := func(body []byte) error {
				dst.Reset()
				_, err := c.Check(&dst, res, q, mine, body)
				return err
			}
			require.NoError(t, check(answer.body))
			odd := []byte("\x00\t \x1f\x80\xc3\"\\/{}[],:+-.01eEnu")
			if name == "pretty events" {
				odd = []byte("\x00\t \x1f\"{,:") // what the others are not tried with is white space
			}
			body := make([]byte, 0, len(answer.body)+1)
			for at := range len(answer.body) + 1 {
				requireLibraryAgrees(t, answer.body[:at], check(answer.body[:at])) // cut off
				for _, b := range odd {
					body = append(append(append(body[:0], answer.body[:at]...), b), answer.body[at:]...) // one more
					requireLibraryAgrees(t, body, check(body))
					if at < len(answer.body) {
						body = append(append(append(body[:0], answer.body[:at]...), b), answer.body[at+1:]...) // another
						requireLibraryAgrees(t, body, check(body))
					}
				}
				if at < len(answer.body) {
					body = append(append(body[:0], answer.body[:at]...), answer.body[at+1:]...) // one less
					requireLibraryAgrees(t, body, check(body))
				}
			}
		})
	}
}
