package upstream_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

func TestAllViolationsOfAResponseAreListed(t *testing.T) {
	t.Parallel()
	op, res, q := operationOf(t, "/api/v1/contacts?per_page=3")
	body := `{"contacts":[
		{"id":"one","business_id":"b1","email":7,"date_created":"2026-03-05"},
		{"id":2,"business_id":"b2","notes":[]},
		{"id":3,"x":{"id":3}},
		{"id":4,"business_id":{}}
	],"pagination":{"current_page":2,"per_page":3,"total_items":-1}}`
	found := map[string]string{}
	listed, result := new(upstream.Contract).Violations(op, res, q, "b1", []byte(body))
	for _, v := range listed {
		found[v.Pointer] = v.Reason
	}
	assert.Equal(t, map[string]string{
		"/contacts/0/id":           "expected an integer of at most 18 digits",
		"/contacts/0/email":        "expected a string",
		"/contacts/0/date_created": "expected an instant, RFC 3339 in UTC",
		"/contacts/1/business_id":  upstream.OtherBusiness,
		"/contacts/1/notes":        "expected a string",
		"/contacts/2/business_id":  upstream.NoBusiness, // of the last one, too
		"/contacts/3/business_id":  "expected a string or an integer of at most 18 digits",
		"/contacts":                "expected at most per_page records, 3",
		"/pagination/current_page": "expected the requested page, 1",
		"/pagination/total_items":  found["/pagination/total_items"],
		"/pagination/total_pages":  found["/pagination/total_pages"],
	}, found)
	assert.Regexp(t, `^{"contacts":\[{"id":"one",[^x]*"email":7,[^x]*{"id":2,[^x]*"notes":\[\],[^x]*{"id":3,[^x]*{"id":4,[^x]*"total_items":-1}}$`, string(result), "values as they were sent, documented members only")
}

// TestViolationsAreWhatCheckRejects compares the list with Check, for a valid response and all that differ from it in a member.
func TestViolationsAreWhatCheckRejects(t *testing.T) {
	t.Parallel()
	op, res, q := operationOf(t, "/api/v1/events?count=2")
	event := map[string]any{
		"id": 1, "business_id": "b1", "status": "published", "published_at": "2026-03-05T14:30:00Z", "created_at": nil, "title": "T",
	}
	values := []any{nil, 1, "b1", "b2", "draft", true, []any{}, map[string]any{}, "2026-03-05T14:30:00Z"}
	for name := range event {
		for _, value := range values {
			changed := maps.Clone(event)
			changed[name] = value
			body, err := json.Marshal(map[string]any{"events": []any{event, changed}})
			require.NoError(t, err)
			var c upstream.Contract
			report, err := c.Check(new(bytes.Buffer), op, res, q, "b1", body)
			listed, _ := c.Violations(op, res, q, "b1", body)
			assert.Equal(t, err != nil || report.CrossTenant > 0 || report.Reordered, len(listed) > 0, "%s: %v: %v", body, err, listed)
		}
	}
	for body, reason := range map[string]string{
		`{"events":[]`: "expected a complete JSON document (byte 12)", `{"events":[],"events":[]}`: "is given twice", `{"x":1,"x":2}`: "expected no duplicate names in an object",
		"[]": "expected an object", `{"events":{}}`: "expected an array of records", "{\"events\":[]}\xff": "expected valid JSON in UTF-8 (byte 13)",
	} {
		listed, _ := new(upstream.Contract).Violations(op, res, q, "b1", []byte(body))
		if assert.NotEmpty(t, listed, body) {
			assert.Equal(t, reason, listed[0].Reason)
		}
	}
}

func operationOf(t *testing.T, target string) (*upstream.Operation, *upstream.DocumentedResponse, upstream.Query) {
	t.Helper()
	m, ok := definition.Public().Match(target)
	require.True(t, ok)
	op := m.Path.Operations[0]
	q, err := op.CleanQuery(m)
	require.NoError(t, err)
	for i := range op.Responses {
		if op.Responses[i].Status == 200 {
			return op, &op.Responses[i], q
		}
	}
	require.Fail(t, "there is no response with status 200")
	return nil, nil, q
}

// The log must not have what a caller sends, and names in a body may be values.
func TestErrorOfABodyHasNoNamesThatMayBeValues(t *testing.T) {
	t.Parallel()
	for pointer, want := range map[string]string{
		"/lines/0/price":                     "/lines/*/price",
		"/quantities/jane.doe@example.com":   "/quantities/*",
		"/sk_live_9aF3kQ71xZ2mB8":            "/*",
		"/address/postal_code":               "/address/postal_code",
		"":                                   "",
		"/a~1b/" + strings.Repeat("n", 65):   "/*/*",
		"/customers/0190f3a2-7c4b-7d11/name": "/customers/*/name",
	} {
		err := &upstream.BodyError{Violations: []upstream.Violation{{Pointer: pointer, Reason: "is missing"}}}
		require.EqualError(t, err, strings.TrimRight("invalid request body: "+want, " ")+" is missing", pointer)
	}
}
