package data_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/internal/test/calltest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// record returns a response with one record of the caller's business.
func record(name, members string) string {
	return `{"` + name + `":{"business_id":"biz_1",` + members + `}}`
}

// drop returns only the error.
func drop(_ any, err error) error { return err }

// requireError requires an error of a kind, and returns it.
func requireError(t *testing.T, err, kind error) *data.Error {
	t.Helper()
	require.ErrorIs(t, err, kind)
	e, ok := errors.AsType[*data.Error](err)
	require.True(t, ok)
	return e
}

func TestWrongRecordIsRejectedWithAnAlert(t *testing.T) {
	t.Parallel()
	type client struct {
		*data.Client
		context.Context
	}
	by, w, patch := caller(), data.Write{Key: "k"}, data.Patch{}
	// Each call requests the contact 7, the type pets, the record a, or the business biz_1.
	for name, test := range map[string]struct {
		call         func(c client) error
		record       string // "" for the response to a deletion
		right, wrong string // members
	}{
		"read contact":            {func(c client) error { return drop(c.Contacts().Get(c, by, "7")) }, "contact", `"id":7`, `"id":8`},
		"read contact, no ID":     {func(c client) error { return drop(c.Contacts().Get(c, by, "7")) }, "contact", `"id":7`, `"first_name":"x"`},
		"update contact":          {func(c client) error { return drop(c.Contacts().Update(c, by, w, "7", patch)) }, "contact", `"id":7`, `"id":8`},
		"delete contact":          {func(c client) error { return c.Contacts().Delete(c, by, w, "7") }, "", `"id":7`, `"id":8`},
		"delete contact, no ID":   {func(c client) error { return c.Contacts().Delete(c, by, w, "7") }, "", `"id":7`, `"x":1`},
		"replace FAQ":             {func(c client) error { return drop(c.FAQs().Replace(c, by, w, "a", patch)) }, "faq", `"id":"a"`, `"id":"b"`},
		"start run":               {func(c client) error { return drop(c.StartRun(c, by, w, "a", jsontext.Value("{}"))) }, "run", `"id":"r","automation_id":"a"`, `"id":"a","automation_id":"b"`},
		"read object type":        {func(c client) error { return drop(c.ObjectType(c, by, "pets")) }, "object_type", `"name":"pets"`, `"name":"cars"`},
		"read object":             {func(c client) error { return drop(c.Objects("pets").Get(c, by, "a")) }, "object", `"id":"a","type":"pets"`, `"id":"b","type":"pets"`},
		"read object of a type":   {func(c client) error { return drop(c.Objects("pets").Get(c, by, "a")) }, "object", `"id":"a","type":"pets"`, `"id":"a","type":"cars"`},
		"create object":           {func(c client) error { return drop(c.Objects("pets").Create(c, by, w, patch)) }, "object", `"id":"a","type":"pets"`, `"id":"a","type":"cars"`},
		"update object":           {func(c client) error { return drop(c.Objects("pets").Update(c, by, w, "a", data.Patch{})) }, "object", `"id":"a","type":"pets"`, `"id":"b","type":"pets"`},
		"update object of a type": {func(c client) error { return drop(c.Objects("pets").Update(c, by, w, "a", data.Patch{})) }, "object", `"id":"a","type":"pets"`, `"id":"a","type":"cars"`},
		"delete object":           {func(c client) error { return c.Objects("pets").Delete(c, by, w, "a") }, "", `"id":"a"`, `"id":"b"`},
		"read objects":            {func(c client) error { return drop(c.Objects("pets").List(c, by, data.Search{})) }, "objects", `"id":"a","type":"pets"`, `"id":"b","type":"cars"`},
		"read business":           {func(c client) error { return drop(c.Business(c, by)) }, "business", `"id":"biz_1"`, `"id":"biz_2"`},
		"update business":         {func(c client) error { return drop(c.UpdateBusiness(c, by, w, patch)) }, "business", `"id":"biz_1"`, `"id":"biz_2"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			right, wrong := record(test.record, test.right), record(test.record, test.wrong)
			switch test.record {
			case "":
				right, wrong = `{"deleted":true,`+test.right+`}`, `{"deleted":true,`+test.wrong+`}`
			case "objects":
				list := `{"objects":[{"business_id":"biz_1",` + test.right + `}`
				right, wrong = list+`]}`, list+`,{"business_id":"biz_1",`+test.wrong+`}]}`
			}
			c, logs := serve(t, respond(200, right))
			require.NoError(t, test.call(client{c, t.Context()}))
			require.Empty(t, logs.All())
			c, logs = serve(t, respond(200, wrong))
			e := requireError(t, test.call(client{c, t.Context()}), data.ErrWrongRecord)
			require.ErrorIs(t, e, upstream.ErrContractViolation)
			assert.Equal(t, !strings.HasPrefix(name, "read"), e.Uncertain)
			assert.Equal(t, 1, logs.FilterMessage("rejected a data service's response").FilterField(zap.String("event", "wrong_record")).Len())
		})
	}
}

// An id that equals the requested one only without its hidden characters is another id.
func TestIDsAreComparedBeforeCleaning(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]error{
		record("job", `"id":"a\u200b"`):                             data.ErrWrongRecord,
		record("job", "\"id\":\"a\U000e0041\""):                     data.ErrWrongRecord,
		`{"job":{"business_id":"biz_1\u200b","id":"a"}}`:            upstream.ErrCrossTenantRecord,
		`{"job":{"business_id":"\u2060biz_1","id":"a"}}`:            upstream.ErrCrossTenantRecord,
		`{"job":{"business_id\u200b":"biz_1","id":"a"}}`:            upstream.ErrCrossTenantRecord,
		`{"job":{"business_id":"biz_1","id\u200b":"a","id":"b"}}`:   data.ErrWrongRecord,
		`{"job\u200b":{"business_id":"biz_1","id":"a"}}`:            upstream.ErrCrossTenantRecord,
		`{"job":{"business_id":"biz_1","id":"a","id\u200b":"b"}}`:   upstream.ErrContractViolation,
		`{"job":{"business_id":"biz_1","id":"\u0061","name":"ok"}}`: nil,
	} {
		c, _ := serve(t, respond(200, body))
		job, err := c.Jobs().Get(t.Context(), caller(), "a")
		require.ErrorIs(t, err, want, body)
		assert.Equal(t, want == nil, job.ID == "a", body)
	}
}

func TestHiddenCharactersAreRemovedFromResponses(t *testing.T) {
	t.Parallel()
	const hidden = "\u202e\u200b\u00ad\ufe01\U000e0041\u2063\u3164\x07\x1b"
	dirty := func(s string) string {
		quoted, err := json.Marshal(hidden + s + hidden)
		require.NoError(t, err)
		return string(quoted)
	}
	for name, test := range map[string]struct {
		body string
		read func(ctx context.Context, c *data.Client) (any, error)
		want []string // parts of the result as JSON
	}{
		"members of records": {
			record("contact", `"id":7,"first_name":`+dirty("Ines")+`,"last_name":`+dirty("Halvorsen")+
				`,"notes":`+dirty("two\nlines, \U0001F469\u200d\U0001F527")+`,"contact_status":`+dirty("active")),
			func(ctx context.Context, c *data.Client) (any, error) { return c.Contacts().Get(ctx, caller(), "7") },
			[]string{`"first_name":"Ines","last_name":"Halvorsen",`, `"contact_status":"active","notes":"two\nlines, 👩‍🔧"`},
		},
		"lists": {
			`{"calendars":[{"id":"1","business_id":"biz_1","name":"Crew 1"},{"id":"1","business_id":"biz_1","name":` + dirty("Crew 2") +
				`}],"next_cursor":"n"}`,
			func(ctx context.Context, c *data.Client) (any, error) {
				return c.Calendars().List(ctx, caller(), data.List{})
			},
			[]string{`"name":"Crew 1"`, `"name":"Crew 2"`, `"Next":"n"`},
		},
		"fields of custom objects": {
			record("object", `"id":"a","type":"pets","fields":{`+dirty("name")+`:[`+dirty("Rex")+`]}`),
			func(ctx context.Context, c *data.Client) (any, error) {
				return c.Objects("pets").Get(ctx, caller(), "a")
			},
			[]string{`"fields":{"name":["Rex"]}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, respond(200, test.body))
			got, err := test.read(t.Context(), c)
			require.NoError(t, err)
			text, err := json.Marshal(got)
			require.NoError(t, err)
			for _, part := range test.want {
				assert.Contains(t, string(text), part)
			}
			require.False(t, strings.ContainsAny(string(text), hidden))
		})
	}
	t.Run("errors", func(t *testing.T) {
		t.Parallel()
		c, _ := serve(t, respond(409, `{"error":`+dirty("In the\nway.")+`,"code":"CONFLICT","details":[{"field":`+dirty("a\u2028b")+
			`,"problem":`+dirty("is\r\nbad")+`,"allowed":`+dirty("b")+`}]}`))
		_, err := c.Jobs().Get(t.Context(), caller(), "a")
		e := requireError(t, err, data.ErrConflict)
		assert.Equal(t, "In the way.", e.Message)
		assert.Equal(t, []data.Detail{{Field: "a b", Problem: "is bad", Allowed: "b"}}, e.Details)
	})
	t.Run("control characters in codes", func(t *testing.T) {
		t.Parallel()
		c, _ := serve(t, respond(409, `{"error":"x","code":`+dirty("CONFLICT")+`}`))
		_, err := c.Jobs().Get(t.Context(), caller(), "a")
		require.ErrorIs(t, err, upstream.ErrContractViolation)
		require.NotErrorIs(t, err, data.ErrConflict)
	})
}

func TestAmbiguousResponseIsRejected(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	object := func(members string) string { return record("object", `"id":"a","type":"pets",`+members) }
	for name, test := range map[string]struct {
		body string
		ok   bool
	}{
		"as documented":                     {object(`"version":1,"fields":{"a":1,"b":-1.5e300},"created_at":"2026-03-05T14:30:00Z"`), true},
		"a record twice":                    {`{"object":{"business_id":"biz_1","id":"a","type":"pets"},"object":{"business_id":"biz_1","id":"a","type":"pets"}}`, false},
		"an id twice":                       {object(`"id":"a"`), false},
		"an id twice, one escaped":          {object(`"\u0069d":"b"`), false},
		"a business twice":                  {object(`"business_id":"biz_1"`), false},
		"an unknown member twice":           {object(`"more":1,"more":2`), false},
		"a member of an unknown one twice":  {object(`"more":{"a":1,"a":2}`), false},
		"a field twice":                     {object(`"fields":{"a":1,"a":2}`), false},
		"a field twice, deep":               {object(`"fields":{"a":[{"b":1,"b":1}]}`), false},
		"fields that only hid a difference": {object(`"fields":{"a":1,"a\u200b":2}`), false},
		"fields that only hid it, deep":     {object("\"fields\":{\"x\":[{\"a\u00ad\":1,\"\U000e0041a\":2}]}"), false},
		"members that only hid it":          {object(`"version":1,"version\ufeff":2`), false},
		"a version above 64 bits":           {object(`"version":9223372036854775808`), false},
		"a version with a fraction":         {object(`"version":1.5`), false},
		"a version with an exponent":        {object(`"version":1e2`), false},
		"a version in a string":             {object(`"version":"1"`), false},
		"a number above a double":           {object(`"fields":{"a":[1e400]}`), false},
		"a number of 400 digits":            {object(`"fields":{"a":-1` + strings.Repeat("0", 400) + `}`), false},
		"fields nested 64 deep":             {object(`"fields":` + deep(64)), true},
		"fields nested 65 deep":             {object(`"fields":` + deep(65)), false},
		"fields nested 100,000 deep":        {object(`"fields":` + deep(100_000)), false},
		"arrays nested 100,000 deep":        {object(`"more":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)), false},
		"not a number":                      {object(`"fields":{"a":NaN}`), false},
		"half a surrogate pair":             {object(`"fields":{"a":"\ud800"}`), false},
		"names in another case":             {`{"object":{"BUSINESS_ID":"biz_1","ID":"a","type":"pets"}}`, false},
		"null":                              {`null`, false},
		"null for a record":                 {`{"object":null}`, false},
		"a list for a record":               {`{"object":[]}`, false},
		"nothing":                           {``, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, respond(200, test.body))
			read, err := c.Objects("pets").Get(t.Context(), caller(), "a")
			written, failed := c.Objects("pets").Update(t.Context(), caller(), data.Write{Key: "k"}, "a", data.Patch{})
			if test.ok {
				require.NoError(t, err)
				require.NoError(t, failed)
				return
			}
			require.ErrorIs(t, err, upstream.ErrContractViolation)
			assert.Empty(t, read)
			require.True(t, requireError(t, failed, upstream.ErrContractViolation).Uncertain)
			assert.Empty(t, written)
		})
	}
}

func TestRawMembersAreLimited(t *testing.T) {
	t.Parallel()
	run := func(ctx context.Context, c *data.Client) error { return drop(c.Run(ctx, caller(), "r")) }
	for name, test := range map[string]struct {
		body string // with "deep" for the member
		ask  func(ctx context.Context, c *data.Client) error
	}{
		"input schema": {`{"automations":[{"id":"a","business_id":"biz_1","input_schema":"deep"}]}`, func(ctx context.Context, c *data.Client) error {
			return drop(c.Automations().List(ctx, caller(), data.List{}))
		}},
		"input of a run":  {record("run", `"id":"r","input":"deep"`), run},
		"result of a run": {record("run", `"id":"r","result":"deep"`), run},
		"schema of a type": {record("object_type", `"name":"t","schema":"deep"`), func(ctx context.Context, c *data.Client) error {
			return drop(c.ObjectType(ctx, caller(), "t"))
		}},
		"fields in a list": {`{"objects":[{"id":"a","type":"t","business_id":"biz_1","fields":"deep"}]}`, func(ctx context.Context, c *data.Client) error {
			return drop(c.Objects("t").List(ctx, caller(), data.Search{}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for depth, want := range map[int]error{64: nil, 65: upstream.ErrContractViolation} {
				deep := strings.Repeat("[", depth) + strings.Repeat("]", depth)
				c, _ := serve(t, respond(200, strings.Replace(test.body, `"deep"`, deep, 1)))
				require.ErrorIs(t, test.ask(t.Context(), c), want)
			}
		})
	}
}

// attempts responds with its steps in turn and records the deadlines.
type attempts struct {
	deadlines []time.Time
	steps     []step
}

// step is a response; with status 0 the connection breaks.
type step struct {
	status int
	body   string
}

func (a *attempts) RoundTrip(r *http.Request) (*http.Response, error) {
	at, _ := r.Context().Deadline()
	a.deadlines = append(a.deadlines, at)
	next := a.steps[0]
	a.steps = a.steps[1:]
	if next.status == 0 {
		return nil, errors.New("connection reset by peer")
	}
	res, err := canned{[]byte(next.body)}.RoundTrip(r)
	res.StatusCode = next.status
	res.Header.Set("Retry-After", "7")
	res.Header.Set("Location", "http://127.0.0.1:1/")
	return res, err
}

func TestOneDeadlineCoversBothAttempts(t *testing.T) {
	t.Parallel()
	transport := &attempts{steps: []step{{}, {200, record("contact", `"id":7`)}}}
	c, _ := serve(t, nil, func(o *data.Options) { o.Do, o.Timeout = calltest.Over(transport), time.Hour })
	began := time.Now()
	_, err := c.Contacts().Update(t.Context(), caller(), data.Write{Key: "k"}, "7", data.Patch{})
	require.NoError(t, err)
	require.Len(t, transport.deadlines, 2)
	assert.Equal(t, transport.deadlines[0], transport.deadlines[1], "the second attempt has no more time")
	assert.WithinRange(t, transport.deadlines[0], began.Add(time.Hour), time.Now().Add(time.Hour))
}

// A write whose first attempt was lost stays uncertain unless the response to the second proves that nothing was done.
func TestErrorsOfWritesAreMapped(t *testing.T) {
	t.Parallel()
	const uncertain, retried, never = "uncertain", "uncertain after a retry", "certain"
	for _, test := range []struct {
		status int
		body   string // or a code
		kind   error
		done   string
	}{
		{404, "NOT_FOUND", data.ErrNotFound, never},
		{409, "CONFLICT", data.ErrConflict, never},
		{412, "VERSION_MISMATCH", data.ErrVersion, never},
		{422, "INVALID", data.ErrInvalid, never},
		{400, "INVALID_REQUEST", data.ErrInvalid, never},
		{413, "BODY_TOO_LARGE", data.ErrInvalid, never},
		// The service responds so before it looks up the key.
		{422, "IDEMPOTENCY_KEY_REUSED", data.ErrKeyReused, retried},
		{403, "FORBIDDEN", data.ErrForbidden, retried},
		{403, "UNKNOWN_ACCOUNT", data.ErrNoAccount, retried},
		{403, `<html>a proxy's</html>`, data.ErrGatewayRejected, retried},
		{401, "UNAUTHORIZED", data.ErrGatewayRejected, retried},
		{405, "METHOD_NOT_ALLOWED", upstream.ErrContractViolation, retried},
		{404, `no such page`, upstream.ErrContractViolation, retried},
		{404, `{"error":"x","code":""}`, upstream.ErrContractViolation, retried},
		{429, "BUSY", data.ErrBusy, retried},
		{500, "INTERNAL", data.ErrUnavailable, uncertain},
		{503, `down`, data.ErrUnavailable, uncertain},
		{503, `{"error":"x","code":""}`, data.ErrUnavailable, uncertain},
		{504, `slow`, data.ErrTimeout, uncertain},
		{302, ``, upstream.ErrContractViolation, uncertain}, // the request may have been executed before the redirect
	} {
		body := test.body
		if strings.ToUpper(body) == body && body != "" {
			body = `{"error":"x","code":"` + body + `"}`
		}
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %s, first lost %t", test.status, test.body, lost), func(t *testing.T) {
				t.Parallel()
				transport := &attempts{steps: []step{{}, {test.status, body}, {test.status, body}}}
				if !lost {
					transport.steps = transport.steps[1:]
				}
				c, _ := serve(t, nil, func(o *data.Options) { o.Do = calltest.Over(transport) })
				_, err := c.Contacts().Update(t.Context(), caller(), data.Write{Key: "k"}, "7", data.Patch{})
				e := requireError(t, err, test.kind)
				assert.Equal(t, test.done == uncertain || test.done == retried && lost, e.Uncertain)
				assert.Equal(t, 7*time.Second, e.RetryAfter)
			})
		}
	}
}

func TestErrorContainsOnlyDocumentedParts(t *testing.T) {
	t.Parallel()
	const secret = "Jane of biz_2"
	for name, test := range map[string]struct {
		status int
		body   string
	}{
		"records in an error":      {409, `{"error":"In the way.","code":"CONFLICT","contact":{"business_id":"biz_2","first_name":"` + secret + `"}}`},
		"records for details":      {422, `{"error":"x","code":"INVALID","details":[{"business_id":"biz_2","first_name":"` + secret + `"}]}`},
		"a record instead":         {404, `{"contact":{"business_id":"biz_2","first_name":"` + secret + `"}}`},
		"a sentence without code":  {409, `{"error":"` + secret + `"}`},
		"a sentence for a code":    {409, `{"error":"` + secret + `","code":"` + secret + `"}`},
		"codes twice":              {409, `{"error":"` + secret + `","code":"CONFLICT","code":"CONFLICT"}`},
		"a stack trace":            {500, "goroutine 1 [running]: " + secret},
		"a page in place of a run": {502, "<html>" + secret},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, logs := serve(t, respond(test.status, test.body))
			_, err := c.Contacts().Update(t.Context(), caller(), data.Write{Key: "k"}, "7", data.Patch{})
			e, ok := errors.AsType[*data.Error](err)
			require.True(t, ok)
			assert.NotContains(t, fmt.Sprintf("%v %s %s %v", err, e.Code, e.Message, e.Details), secret)
			assert.False(t, slices.ContainsFunc(logs.All(), func(l observer.LoggedEntry) bool {
				return strings.Contains(fmt.Sprint(l.Message, l.ContextMap()), secret)
			}))
		})
	}
}
