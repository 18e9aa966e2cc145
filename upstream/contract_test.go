package upstream_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func TestResponsesOfTheGatewayItselfAreNotChecked(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"status": "upstream response violates the contract: status: expected the member status",
		"me":     "checking a response: there is none of a data service for getMe",
	} {
		var dst bytes.Buffer
		_, err := byName(name).check(new(upstream.Contract), &dst, upstream.Query{}, "biz_7f3a", []byte(`{"business":{"id":"biz_7f3a"}}`))
		require.EqualError(t, err, want)
		assert.Zero(t, dst.Len())
	}
}

// testdata/responses.json has bodies, each with the result or a part of the error. Results are compared byte for byte,
// because the order of members and the absence of white space are promised.
func TestResponsesAreRewrittenOrRejected(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/responses.json")
	require.NoError(t, err)
	var cases []struct {
		Name, Resource, Query, Error string
		Body, Result                 json.RawMessage
	}
	require.NoError(t, json.Unmarshal(text, &cases))
	for _, c := range cases {
		t.Run(c.Resource+" "+c.Name+c.Error, func(t *testing.T) {
			t.Parallel()
			out, report, err := check(t, &upstream.Contract{}, c.Resource, c.Query, string(c.Body))
			if c.Error != "" {
				require.ErrorContains(t, err, c.Error)
				require.NotErrorIs(t, err, upstream.ErrCrossTenantRecord)
				return
			}
			require.NoError(t, err)
			var want bytes.Buffer
			require.NoError(t, json.Compact(&want, c.Result))
			assert.Equal(t, want.String(), out)
			assert.Equal(t, upstream.Report{Records: report.Records}, report)
		})
	}
}

func TestPagesAreFullAtMost(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"equipment", "estimates", "invoices", "jobs", "offerings"} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			out, report, err := check(t, &upstream.Contract{}, resource, "", response(resource, records(25, bare)...))
			require.NoError(t, err)
			require.Equal(t, upstream.Report{Records: 25}, report)
			require.Len(t, decode(t, []byte(out))[resource], 25)
			_, _, err = check(t, &upstream.Contract{}, resource, "", response(resource, records(26, bare)...))
			require.EqualError(t, err, "upstream response violates the contract: "+resource+": expected at most per_page records, 25")
		})
	}
}

// idsIn returns the IDs of the records of a result, as JSON.
func idsIn(t *testing.T, resource, out string) []string {
	t.Helper()
	ids := []string{}
	for _, r := range asArray(decode(t, []byte(out))[resource]) {
		id, err := json.Marshal(asObject(r)["id"])
		require.NoError(t, err)
		ids = append(ids, string(id))
	}
	return ids
}

func TestCrossTenantRecordIsRejectedOrRemoved(t *testing.T) {
	t.Parallel()
	for name, tenant := range map[string]string{
		"another": quoted(theirs), "longer": quoted(mine + "0"), "shorter": quoted(mine[:4]), "empty": `""`,
		"other case": quoted(strings.ToUpper(mine)), "number": "7", "padded": quoted(" " + mine), "escaped": `"biz\u005f9c1e"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lenient := &upstream.Contract{AllowMissingTenant: true}
			rs := records(5, invoice)
			rs[3] = rs[3].with("business_id", tenant)
			_, report, err := check(t, lenient, "invoices", "", response("invoices", rs...))
			require.ErrorIs(t, err, upstream.ErrCrossTenantRecord)
			require.Equal(t, 1, report.CrossTenant)
			require.EqualError(t, err, "upstream response violates the contract: cross-tenant record: invoices: record 3: "+
				"business_id: expected the authenticated business")

			rs = records(5, event)
			rs[3] = rs[3].with("business_id", tenant)
			body := response("events", rs...)
			for _, body := range []string{body, strings.ReplaceAll(body, `"business_id"`, `"business\u005Fid"`)} {
				out, report, err := check(t, lenient, "events", "", body)
				require.NoError(t, err)
				assert.Equal(t, []string{uuid(0), uuid(1), uuid(2), uuid(4)}, idsIn(t, "events", out))
				assert.Equal(t, upstream.Report{Records: 4, CrossTenant: 1}, report)
			}
		})
	}
	for name, business := range map[string]string{
		"business":                  `{"id":"biz_9c1e"}`,
		"business, number":          `{"id":3}`,
		"business with business_id": `{"id":"biz_7f3a","business_id":"biz_9c1e"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, report, err := check(t, &upstream.Contract{AllowMissingTenant: true}, "business", "", `{"business":`+business+`}`)
			require.ErrorIs(t, err, upstream.ErrCrossTenantRecord)
			assert.Equal(t, 1, report.CrossTenant)
		})
	}
}

func TestTenantFieldIsAStringOrAnInteger(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		business, tenant string
		ok               bool
	}{
		{"42", "42", true},
		{"7", `"7"`, true},
		{mine, `"biz\u005f7f3a"`, true},
		{"a/b", `"a\/b"`, true},
		{"-1", "-1", true},
		{"42", "42.0", false},
		{"4", "4e0", false},
		{"true", "true", false},
		{"042", "42", false},
		{"{}", "{}", false},
		{"[]", "[42]", false},
		{"", `""`, false},
	} {
		t.Run(c.business+" "+c.tenant, func(t *testing.T) {
			t.Parallel()
			contract := upstream.Contract{AllowMissingTenant: true}
			body := response("contacts", contact(0).with("business_id", c.tenant))
			var dst bytes.Buffer
			_, err := byName("contacts").check(&contract, &dst, query(1, 25), c.business, []byte(body))
			switch {
			case c.ok:
				require.NoError(t, err)
			case c.business == "":
				require.ErrorIs(t, err, upstream.ErrIdentity)
				require.Zero(t, dst.Len())
			default:
				require.ErrorIs(t, err, upstream.ErrContractViolation)
				require.Zero(t, dst.Len())
			}
		})
	}
	t.Run("business", func(t *testing.T) {
		t.Parallel()
		var dst bytes.Buffer
		_, err := byName("business").check(new(upstream.Contract), &dst, upstream.Query{}, "42", []byte(`{"business":{"id":42}}`))
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(dst.String(), `{"business":{"id":"42",`), "callers get a string, as from /me")
	})
}

func TestMissingTenantIsRejectedUnlessAllowed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(object) object{
		"absent": func(o object) object { return o.without("business_id") },
		"null":   func(o object) object { return o.with("business_id", "null") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := change(contact(0))
			_, report, err := check(t, &upstream.Contract{}, "contacts", "", response("contacts", contact(1), r))
			require.ErrorIs(t, err, upstream.ErrMissingTenant)
			require.Equal(t, 1, report.MissingTenant)
			require.ErrorContains(t, err, "contacts: record 1: business_id")
			_, report, err = check(t, &upstream.Contract{AllowMissingTenant: true}, "contacts", "", response("contacts", r))
			require.NoError(t, err)
			require.Equal(t, upstream.Report{Records: 1, MissingTenant: 1}, report)
			_, _, err = check(t, &upstream.Contract{}, "events", "", response("events", change(event(0))))
			require.ErrorIs(t, err, upstream.ErrMissingTenant)
		})
	}
}

// The result's records are named by their index in the response.
func TestRecordsAreFilteredSortedAndCounted(t *testing.T) {
	t.Parallel()
	unpublished := records(8, event)
	for i, status := range []string{`"draft"`, `"archived"`, `"Published"`, `"published "`, `""`, `"publi\u0073hed"`} {
		unpublished[i] = unpublished[i].with("status", status)
	}
	// Invalid members of an event that is removed do not matter.
	unpublished[0] = unpublished[0].with("title", "17", "id", "null", "published_at", `"soon"`)

	events := records(30, event)
	events[2], events[28] = events[28], events[2]
	events[4] = events[4].with("status", `"draft"`)
	events[5] = events[5].without("published_at")                                 // created a day earlier than published
	events[6] = events[6].with("published_at", "null", "created_at", instant(-1)) // the most recent of all
	invoices := records(9, invoice)
	for i, created := range []string{
		`"2026-01-01T00:00:00Z"`, `"2026-01-01T00:00:00.000000001Z"`, `"2024-02-29T00:00:00Z"`, "null", `"2026-01-01T00:00:00.0Z"`,
		`"2026-01-31T23:59:59+00:00"`, "", `"2026-02-01T00:00:00Z"`, `"2026-01-01T00:00:00.000\u002b00:00"`,
	} {
		invoices[i] = invoices[i].without("created_at")
		if created != "" {
			invoices[i] = invoices[i].with("created_at", created)
		}
	}
	contacts := records(3, contact)
	slices.Reverse(contacts)
	mixed := records(6, event)
	for i := 1; i < len(mixed); i += 2 {
		slices.Reverse(mixed[i])
	}
	for name, c := range map[string]struct {
		resource, query string
		records         []object
		want            []int
		report          upstream.Report
	}{
		"only published events": {"events", "", unpublished, []int{5, 6, 7}, upstream.Report{Records: 3, Unpublished: 5}},
		"most recent events": {
			"events", "count=5", events,
			[]int{6, 0, 1, 28, 3},
			upstream.Report{Records: 5, Unpublished: 1, Surplus: 24, Reordered: true},
		},
		"at most count events":   {"events", "count=3", records(4, event), []int{0, 1, 2}, upstream.Report{Records: 3, Surplus: 1}},
		"any order of members":   {"events", "", mixed, []int{0, 1, 2, 3, 4, 5}, upstream.Report{Records: 6}},
		"newest created, stable": {"invoices", "", invoices, []int{7, 5, 1, 0, 4, 8, 2, 3, 6}, upstream.Report{Records: 9, Reordered: true}},
		"newest by date_created": {"contacts", "", contacts, []int{2, 1, 0}, upstream.Report{Records: 3, Reordered: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, report, err := check(t, &upstream.Contract{}, c.resource, c.query, response(c.resource, c.records...))
			require.NoError(t, err)
			want := make([]string, len(c.want))
			for i, n := range c.want {
				at := slices.IndexFunc(c.records[n], func(m member) bool { return m.name == "id" })
				want[i] = c.records[n][at].value
			}
			assert.Equal(t, want, idsIn(t, c.resource, out))
			assert.Equal(t, c.report, report)
		})
	}
	t.Run("any order of members, same bytes", func(t *testing.T) {
		t.Parallel()
		want, _, err := check(t, &upstream.Contract{}, "events", "", response("events", records(6, event)...))
		require.NoError(t, err)
		got, _, err := check(t, &upstream.Contract{}, "events", "", response("events", mixed...))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	})
}

func TestEventsNeedStatusAndInstant(t *testing.T) {
	t.Parallel()
	const status = "events: record 1: status: expected a string"
	for name, c := range map[string]struct {
		event object
		want  string
	}{
		"null status":      {event(1).with("status", "null"), status},
		"boolean status":   {event(1).with("status", "true"), status},
		"number as status": {event(1).with("status", "1"), status},
		"array as status":  {event(1).with("status", `["published"]`), status},
		"object as status": {event(1).with("status", `{"published":true}`), status},
		"no status":        {event(1).without("status"), status},
		"no instant":       {event(1).without("published_at", "created_at"), "published_at or created_at"},
		"invalid instant":  {event(1).with("published_at", `"soon"`), "events: record 1: published_at: expected an instant"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := check(t, &upstream.Contract{}, "events", "", response("events", event(0), c.event))
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestFieldsHaveTheirDocumentedKind(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/kinds.json")
	require.NoError(t, err)
	var cases []struct {
		Resource, Field string
		Valid, Invalid  []json.RawMessage
	}
	require.NoError(t, json.Unmarshal(text, &cases))
	one := map[string]func(int) object{"contacts": contact, "events": event, "invoices": invoice, "equipment": bare, "offerings": bare}
	for _, c := range cases {
		send := func(t *testing.T, value json.RawMessage) (string, error) {
			t.Helper()
			out, _, err := check(t, &upstream.Contract{}, c.Resource, "",
				response(c.Resource, one[c.Resource](0).with(c.Field, string(value))))
			return out, err
		}
		for _, value := range c.Valid {
			t.Run(fmt.Sprintf("%s.%s allows %s", c.Resource, c.Field, value), func(t *testing.T) {
				t.Parallel()
				out, err := send(t, value)
				require.NoError(t, err)
				left := asObject(asArray(decode(t, []byte(out))[c.Resource])[0])[c.Field]
				require.Equal(t, withoutNulls(decode(t, []byte(`{"v":`+string(value)+`}`))["v"]), withoutNulls(left))
			})
		}
		for _, value := range c.Invalid {
			t.Run(fmt.Sprintf("%s.%s rejects %s", c.Resource, c.Field, value), func(t *testing.T) {
				t.Parallel()
				_, err := send(t, value)
				require.ErrorContains(t, err, c.Resource+": record 0: "+c.Field)
			})
		}
	}
}

// withoutNulls removes the members that are null, which Check adds, from an array's objects.
func withoutNulls(v any) any {
	for _, element := range asArray(v) {
		maps.DeleteFunc(asObject(element), func(_ string, v any) bool { return v == nil })
	}
	return v
}

func TestInvalidJSONIsRejectedAndNotQuoted(t *testing.T) {
	t.Parallel()
	const canary = "canary-10.0.0.7"
	good := response("events", event(0).with("title", quoted(canary), canary, `"x"`))
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
		"duplicate in record":   response("events", append(event(0), member{"status", `"draft"`})),
		"duplicate tenant":      response("events", append(event(0), member{"business_id", quoted(theirs)})),
		"duplicate in schedule": response("events", event(0).with("schedule", `[{"date":null,"date":null}]`)),
		"list is null":          `{"events":null}`, "list is an object": `{"events":{}}`, "list of nulls": `{"events":[null]}`,
		"list of lists": `{"events":[[]]}`, "list of strings": `{"events":["` + canary + `"]}`, "no list": `{"event":[]}`,
		"list in other case": `{"Events":[]}`,
	}
	reject := func(t *testing.T, body string) {
		t.Helper()
		_, _, err := check(t, &upstream.Contract{}, "events", "", body)
		require.Error(t, err)
		require.NotContains(t, err.Error(), canary)
		require.Less(t, len(err.Error()), 200)
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reject(t, body)
		})
	}
	for i := range len(good) {
		reject(t, good[:i])
	}
	for body, want := range map[string]string{
		`{"business":{"id":"biz_7f3a"},"x":1e}`: "expected valid JSON in UTF-8 (byte 34)",
		"{\"business\":{\"id\":\"\xff\"}}":      "expected valid JSON in UTF-8 (byte 19)",
		`{"business":{"id":"biz_7f3a"},`:        "expected a complete JSON document (byte 30)",
		"":                                      "expected a complete JSON document (byte 0)",
	} {
		_, _, err := check(t, &upstream.Contract{}, "business", "", body)
		require.ErrorContains(t, err, want)
	}
}

// Not parallel: it measures the stacks of the process.
func TestDeepNestingIsRejectedCheaply(t *testing.T) {
	const levels = 10_000
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	objects := strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
	open := strings.Repeat(`[{"a":`, 1<<16)
	for _, deep := range []string{nested(levels), objects, open} {
		for _, body := range []string{
			deep, `{"x":` + deep + `,"events":[]}`, `{` + deep + `:1}`, `{"events":` + deep + `}`, `{"events":[` + deep + `]}`,
			`{"events":[{"x":` + deep + `}]}`, `{"events":[{"title":` + deep + `}]}`, `{"events":[{"schedule":` + deep + `}]}`,
			`{"events":[{"schedule":[{"date":` + deep + `}]}]}`, `{"events":[{"business_id":` + deep + `}]}`,
		} {
			for _, c := range []*upstream.Contract{{}, {PassUnknownFields: map[string]bool{"events": true}}} {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, _, err := check(t, c, "events", "", body)
				runtime.ReadMemStats(&after)
				require.Error(t, err)
				assert.Less(t, after.StackInuse, before.StackInuse+16<<20)
			}
		}
	}
	_, _, err := check(t, &upstream.Contract{}, "events", "", `{"x":`+nested(63)+`,"events":[]}`)
	require.NoError(t, err)
	_, _, err = check(t, &upstream.Contract{}, "events", "", `{"x":`+nested(64)+`,"events":[]}`)
	require.ErrorContains(t, err, "at most 64 deep")
}

func TestUnknownFieldsPassIfAllowed(t *testing.T) {
	t.Parallel()
	pass := func(resource string) *upstream.Contract {
		return &upstream.Contract{PassUnknownFields: map[string]bool{resource: true}}
	}
	t.Run("contacts", func(t *testing.T) {
		t.Parallel()
		body := response("contacts", contact(0).without("notes").with("vip", "true", "tags", `[ "a", {"b" : 1} ]`, "notes_x", `"\/"`,
			"Business_ID", `"x"`, "FIRST_NAME", `"x"`, "BUSINESS_ID", `"y"`))
		body = strings.NewReplacer("notes_x", `note\u0073_x`, `"pagination":{`, `"top":1,"pagination":{"x":1,`).Replace(body)
		out, _, err := check(t, pass("contacts"), "contacts", "", body)
		require.NoError(t, err)
		assert.Contains(t, out, `"date_modified":"2026-03-05T14:30:00Z","vip":true,"tags":["a",{"b":1}],"note\u0073_x":"/"}],"pagination":{"c`)
		assert.NotContains(t, strings.ToLower(out), "business_id")
		assert.NotContains(t, out, "FIRST_NAME")
		assert.NotContains(t, out, "top")
		assert.NotContains(t, out, `"x"`)
	})
	t.Run("events", func(t *testing.T) {
		t.Parallel()
		body := response("events", event(0).with("colour", `"red"`))
		out, _, err := check(t, pass("events"), "events", "", body)
		require.NoError(t, err)
		require.Contains(t, out, `"colour":"red"`)
		for _, internal := range []string{`"status"`, `"published_at"`, `"created_at"`, `"business_id"`} {
			assert.NotContains(t, out, internal)
		}
		out, _, err = check(t, pass("contacts"), "events", "", body)
		require.NoError(t, err)
		assert.NotContains(t, out, "colour", "of a resource that is not listed")
	})
}

func TestConcurrentChecksDoNotMix(t *testing.T) {
	t.Parallel()
	var c upstream.Contract
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			business, other := fmt.Sprintf("biz_%d", worker), quoted(fmt.Sprintf("biz_%d", worker+1))
			for i := range 200 {
				body := response("events", event(i).with("business_id", quoted(business), "venue", quoted(business)),
					event(i+1).with("business_id", other))
				broken := i%3 == 0
				if broken {
					body = body[:len(body)/2]
				}
				var dst bytes.Buffer
				_, err := byName("events").check(&c, &dst, query(10), business, []byte(body))
				if broken != (err != nil) {
					t.Errorf("broken: %t, error: %v", broken, err)
				}
				own, all := strings.Count(dst.String(), `"venue":"`+business+`"`), strings.Count(dst.String(), `"venue"`)
				if !broken && (own != 1 || all != 1) {
					t.Errorf("%d of %d events are of %s: %s", own, all, business, dst.String())
				}
			}
		})
	}
	wg.Wait()
}

func TestSmallResponsesDoNotGrowLarge(t *testing.T) {
	t.Parallel()
	empty := "[" + strings.Repeat("{},", 1<<20) + "{}]"
	for name, body := range map[string]string{
		"one event": response("events", event(0).with("media", empty)),
		"a draft":   response("events", event(0).with("media", empty, "status", `"draft"`)),
		"events": response("events", records(400, func(i int) object {
			return event(i).with("media", "["+strings.Repeat("{},", 2000)+"{}]")
		})...),
		"unknown names": `{"x":{` + strings.Repeat(`"":0,`, 1<<20) + `"y":1},"events":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := check(t, &upstream.Contract{}, "events", "", body)
			require.Error(t, err)
		})
	}
	t.Run("minimal events pass", func(t *testing.T) {
		t.Parallel()
		minimal := records(1000, func(i int) object { return bare(i).with("status", `"published"`) })
		_, _, err := check(t, &upstream.Contract{}, "events", "count=100", response("events", minimal...))
		require.NoError(t, err)
	})
}

func TestLargeResponsesTakeLinearTime(t *testing.T) {
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
		"drafts":      response("events", records(1000, func(i int) object { return event(i).with("status", `"draft"`) })...),
		"reversed":    response("events", records(1000, func(i int) object { return event(1000 - i) })...),
	} {
		start := time.Now()
		_, _, err := check(t, &upstream.Contract{AllowMissingTenant: true}, "events", "count=100", body)
		assert.Equal(t, name == "names", err != nil, "%s: %v", name, err)
		// At most a second with the race detector; quadratic time would be minutes.
		assert.Less(t, time.Since(start), time.Minute, name)
	}
}

// Each body is truncated, or a byte is removed, inserted or replaced, at each of its bytes.
func TestResponseBrokenAtAnyByteIsRejected(t *testing.T) {
	t.Parallel()
	var pretty bytes.Buffer
	require.NoError(t, json.Indent(&pretty, []byte(response("events", event(0))), "", "\t"))
	const odd = "\x00\t \x1f\x80\xc3\"\\/{}[],:+-.01eEnu"
	for name, c := range map[string]struct{ resource, body, odd string }{
		"events":        {"events", response("events", event(0)), odd},
		"pretty events": {"events", pretty.String(), "\x00\t \x1f\"{,:"}, // the others have no white space
		"contacts":      {"contacts", response("contacts", contact(0)), odd},
		"escapes": {"contacts", strings.Replace(response("contacts", contact(0)), `{"`,
			`{"x":"\u00e4\ud83d\ude00\n","y":[-0.5e+3,{"z":[true,null,"\\"]}],"`, 2), odd},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := byName(c.resource)
			q, err := res.CleanQuery("")
			require.NoError(t, err)
			var contract upstream.Contract
			var dst bytes.Buffer
			var body []byte
			try := func(parts ...string) error {
				dst.Reset()
				body = body[:0]
				for _, p := range parts {
					body = append(body, p...)
				}
				_, err := res.check(&contract, &dst, q, mine, body)
				requireLibraryAgrees(t, body, err)
				return err
			}
			require.NoError(t, try(c.body))
			for at := range len(c.body) + 1 {
				before, after := c.body[:at], c.body[at:]
				next := after[min(1, len(after)):]
				_ = try(before)       // cut off
				_ = try(before, next) // one byte less
				for i := range len(c.odd) {
					_ = try(before, c.odd[i:i+1], after) // one more
					_ = try(before, c.odd[i:i+1], next)  // another
				}
			}
		})
	}
}

// The race detector makes pools forget some of what is returned to them, so the fewest allocations count.
func TestCheckDoesNotAllocate(t *testing.T) {
	res, body, least := byName("contacts"), []byte(response("contacts", records(25, contact)...)), 1e9
	q, err := res.CleanQuery("")
	require.NoError(t, err)
	var c upstream.Contract
	var dst bytes.Buffer
	for range 50 {
		least = min(least, testing.AllocsPerRun(1, func() {
			dst.Reset()
			_, err = res.check(&c, &dst, q, mine, body)
		}))
		require.NoError(t, err)
	}
	require.Zero(t, least)
}

func BenchmarkCheck(b *testing.B) {
	unordered := records(25, invoice)
	unordered[3], unordered[20] = unordered[20], unordered[3]
	for _, bm := range []struct{ name, resource, body string }{
		{"10 events", "events", response("events", records(10, event)...)},
		{"25 invoices", "invoices", response("invoices", records(25, invoice)...)},
		{"25 contacts", "contacts", response("contacts", records(25, contact)...)},
		{"25 invoices unordered", "invoices", response("invoices", unordered...)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			res, body := byName(bm.resource), []byte(bm.body)
			q, err := res.CleanQuery("")
			require.NoError(b, err)
			var c upstream.Contract
			var dst bytes.Buffer
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				dst.Reset()
				if _, err := res.check(&c, &dst, q, mine, body); err != nil {
					b.Fatal(err)
				}
			}
		})
		// The minimum for a check built on jsontext, as a baseline.
		b.Run(bm.name+", jsontext's tokens only", func(b *testing.B) {
			body, d := []byte(bm.body), jsontext.NewDecoder(new(bytes.Buffer))
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				d.Reset(bytes.NewReader(body))
				for {
					if _, err := d.ReadToken(); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// Two undocumented members of one name could be read as either, however many members there are, and wherever the two are.
func TestUndocumentedNamesThatAreTheSameAreFound(t *testing.T) {
	t.Parallel()
	names := func(n int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`"n%d":1`, i)
		}
		return all
	}
	for _, n := range []int{1, 2, 15, 16, 17, 40} {
		for _, again := range []string{`"n0":2`, fmt.Sprintf(`"n%d":2`, n-1), `"\u006e0":2`} {
			for _, in := range []string{`%s`, `"x":{%s}`, `"x":[[{"y":{%s}}]]`} {
				body := func(members ...string) string {
					return `{` + fmt.Sprintf(in, strings.Join(append(names(n), members...), ",")) + `,"events":[],"z":"\n"}`
				}
				_, _, err := check(t, &upstream.Contract{}, "events", "", body())
				require.NoError(t, err)
				_, _, err = check(t, &upstream.Contract{}, "events", "", body(`"N0":2`))
				require.NoError(t, err, "another case is another name")
				_, _, err = check(t, &upstream.Contract{}, "events", "", body(again))
				require.ErrorContains(t, err, "expected no duplicate names in an object", body(again))
			}
		}
	}
}
