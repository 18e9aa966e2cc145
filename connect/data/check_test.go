package data_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/internal/test/calltest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

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
	type members = map[string]any
	deletion := func(id string) string { return `{"deleted":true` + id + `}` }
	// Each call requests the contact 7, the type pets, the record a, or the business biz_1.
	for name, test := range map[string]struct {
		call         []string
		right, wrong string
	}{
		"a contact":                       {[]string{"getContact", "7"}, connecttest.Record("contact", nil), connecttest.Record("contact", members{"id": 8})},
		"an updated contact":              {[]string{"updateContact", "7"}, connecttest.Record("contact", nil), connecttest.Record("contact", members{"id": 8})},
		"a deleted contact":               {[]string{"deleteContact", "7"}, deletion(`,"id":7`), deletion(`,"id":8`)},
		"a replaced question":             {[]string{"replaceFaq", "a"}, connecttest.Record("faq", nil), connecttest.Record("faq", members{"id": "b"})},
		"a run of an automation":          {[]string{"startRun", "a1"}, connecttest.Record("run", nil), connecttest.Record("run", members{"automation_id": "b"})},
		"a type":                          {[]string{"getObjectType", "pets"}, connecttest.Record("object_type", nil), connecttest.Record("object_type", members{"name": "cars"})},
		"an object":                       {[]string{"getObject", "pets", "a"}, connecttest.Record("object", nil), connecttest.Record("object", members{"id": "b"})},
		"an object of a type":             {[]string{"getObject", "pets", "a"}, connecttest.Record("object", nil), connecttest.Record("object", members{"type": "cars"})},
		"a created object of a type":      {[]string{"createObject", "pets"}, connecttest.Record("object", nil), connecttest.Record("object", members{"type": "cars"})},
		"an updated object":               {[]string{"updateObject", "pets", "a"}, connecttest.Record("object", nil), connecttest.Record("object", members{"id": "b"})},
		"an updated object of a type":     {[]string{"updateObject", "pets", "a"}, connecttest.Record("object", nil), connecttest.Record("object", members{"type": "cars"})},
		"a deleted object":                {[]string{"deleteObject", "pets", "a"}, deletion(`,"id":"a"`), deletion(`,"id":"b"`)},
		"objects of a type":               {[]string{"listObjects", "pets"}, connecttest.List("objects", "object", nil), connecttest.List("objects", "object", nil, members{"id": "b", "type": "cars"})},
		"the business, of another one":    {[]string{"getBusiness"}, connecttest.Record("business", nil), connecttest.Record("business", members{"id": "biz_2"})},
		"the business, changed, likewise": {[]string{"updateBusiness"}, connecttest.Record("business", nil), connecttest.Record("business", members{"id": "biz_2"})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := connecttest.Operation(t, test.call[0])
			c, logs := serve(t, respond(op.Success().Status, test.right))
			_, err := call(t, c, test.call[0], test.call[1:]...)
			require.NoError(t, err)
			require.Empty(t, logs.All())
			c, logs = serve(t, respond(op.Success().Status, test.wrong))
			content, err := call(t, c, test.call[0], test.call[1:]...)
			kind, event := upstream.ErrWrongRecord, "wrong_record"
			if strings.HasPrefix(name, "the business") {
				kind, event = upstream.ErrCrossTenantRecord, "cross_tenant"
			}
			e := requireError(t, err, kind)
			require.ErrorIs(t, e, upstream.ErrContractViolation)
			assert.Empty(t, content)
			assert.Equal(t, !op.Read, e.Uncertain)
			assert.Equal(t, 1, logs.FilterMessage("rejected a data service's response").FilterField(zap.String("event", event)).Len())
		})
	}
}

func TestDeletionOfAnUnnamedRecordIsRejected(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"deleted":true}`, `{"deleted":true,"id":null}`, `{"deleted":false,"id":7}`, `{"id":7}`, `{}`, `null`} {
		c, _ := serve(t, respond(200, body))
		_, err := call(t, c, "deleteContact", "7")
		assert.True(t, requireError(t, err, upstream.ErrContractViolation).Uncertain, body)
	}
}

// An id that equals the requested one only without its hidden characters is another id.
func TestIDsAreComparedBeforeCleaning(t *testing.T) {
	t.Parallel()
	job := func(from, to string) string {
		body := connecttest.Record("job", nil)
		require.Contains(t, body, from)
		return strings.Replace(body, from, to, 1)
	}
	for body, want := range map[string]error{
		job(`"id":"a"`, `"id":"a\u200b"`):             upstream.ErrWrongRecord,
		job(`"id":"a"`, "\"id\":\"a\U000e0041\""):     upstream.ErrWrongRecord,
		job(`:"biz_1"`, `:"biz_1\u200b"`):             upstream.ErrCrossTenantRecord,
		job(`:"biz_1"`, `:"\u2060biz_1"`):             upstream.ErrCrossTenantRecord,
		job(`"business_id":`, `"business_id\u200b":`): upstream.ErrContractViolation,
		job(`"id":"a"`, `"id\u200b":"a","id":"b"`):    upstream.ErrWrongRecord,
		job(`"job":`, `"job\u200b":`):                 upstream.ErrContractViolation,
		job(`"id":"a"`, `"id":"\u0061"`):              nil,
	} {
		c, _ := serve(t, respond(200, body))
		content, err := call(t, c, "getJob", "a")
		require.ErrorIs(t, err, want, body)
		assert.Equal(t, want == nil, len(content) > 0, body)
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
	marked := func(body string) string {
		for _, text := range []string{"Ines", "Halvorsen", "two\nlines, \U0001F469\u200d\U0001F527", "Crew 2", "name", "Rex"} {
			body = strings.ReplaceAll(body, `"dirty `+strings.ReplaceAll(text, "\n", `\n`)+`"`, dirty(text))
		}
		return body
	}
	type members = map[string]any
	for name, test := range map[string]struct {
		body string
		call []string
		want []string // parts of the result
	}{
		"members of records": {
			connecttest.Record("contact", members{
				"first_name": "dirty Ines", "last_name": "dirty Halvorsen", "notes": "dirty two\nlines, \U0001F469\u200d\U0001F527",
			}),
			[]string{"getContact", "7"},
			[]string{`"first_name":"Ines"`, `"last_name":"Halvorsen"`, `"notes":"two\nlines, 👩‍🔧"`},
		},
		"lists": {
			connecttest.List("calendars", "calendar", nil, members{"name": "dirty Crew 2"}),
			[]string{"listCalendars"},
			[]string{`"name":"Crew 1"`, `"name":"Crew 2"`},
		},
		"free JSON": {
			connecttest.Record("object", members{"fields": members{"dirty name": []any{"dirty Rex"}}}),
			[]string{"getObject", "pets", "a"},
			[]string{`"fields":{"name":["Rex"]}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, respond(200, marked(test.body)))
			content, err := call(t, c, test.call[0], test.call[1:]...)
			require.NoError(t, err)
			for _, part := range test.want {
				assert.Contains(t, string(content), part)
			}
			require.False(t, strings.ContainsAny(string(content), hidden))
			require.NotContains(t, string(content), "dirty")
		})
	}
	t.Run("errors", func(t *testing.T) {
		t.Parallel()
		c, _ := serve(t, respond(409, `{"error":`+dirty("In the\nway.")+`,"code":"CONFLICT","details":[{"field":`+dirty("a\u2028b")+
			`,"problem":`+dirty("is\r\nbad")+`,"allowed":`+dirty("b")+`}]}`))
		_, err := call(t, c, "createFaq")
		e := requireError(t, err, data.ErrConflict)
		assert.Equal(t, "In the way.", e.Message)
		assert.Equal(t, []data.Detail{{Field: "a b", Problem: "is bad", Allowed: "b"}}, e.Details)
	})
	t.Run("control characters in codes", func(t *testing.T) {
		t.Parallel()
		c, _ := serve(t, respond(409, `{"error":"x","code":`+dirty("CONFLICT")+`,"details":null}`))
		_, err := call(t, c, "createFaq")
		require.ErrorIs(t, err, upstream.ErrContractViolation)
		require.NotErrorIs(t, err, data.ErrConflict)
	})
}

func TestAmbiguousResponseIsRejected(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	object := func(members string) string { // the same member twice, or another one
		body := strings.TrimSuffix(connecttest.Record("object", map[string]any{"fields": connecttest.Absent, "version": connecttest.Absent}), "}}")
		for name, value := range map[string]string{"fields": `{}`, "version": `1`} {
			if !strings.Contains(members, `"`+name+`":`) {
				body += `,"` + name + `":` + value
			}
		}
		return body + "," + members + "}}"
	}
	for name, test := range map[string]struct {
		body string
		ok   bool
	}{
		"as documented":                      {object(`"version":1,"fields":{"a":1,"b":-1.5e300}`), true},
		"a record twice":                     {strings.TrimSuffix(object(`"version":1`), "}") + "," + strings.TrimPrefix(object(`"version":1`), "{"), false},
		"an id twice":                        {object(`"id":"a"`), false},
		"an id twice, one escaped":           {object(`"\u0069d":"b"`), false},
		"a business twice":                   {object(`"business_id":"biz_1"`), false},
		"an unknown member twice":            {object(`"more":1,"more":2`), false},
		"a member of an unknown one twice":   {object(`"more":{"a":1,"a":2}`), false},
		"a field twice":                      {object(`"fields":{"a":1,"a":2}`), false},
		"a field twice, deep":                {object(`"fields":{"a":[{"b":1,"b":1}]}`), false},
		"fields that only hid a difference":  {object(`"fields":{"a":1,"a\u200b":2}`), false},
		"fields that only hid it, deep":      {object("\"fields\":{\"x\":[{\"a\u00ad\":1,\"\U000e0041a\":2}]}"), false},
		"an unknown member that only hid it": {object(`"version":1,"version\ufeff":2`), true},
		"a version above 64 bits":            {object(`"version":9223372036854775808`), false},
		"a version with a fraction":          {object(`"version":1.5`), false},
		"a version in a string":              {object(`"version":"1"`), false},
		"a number above a double":            {object(`"fields":{"a":[1e400]}`), false},
		"a number of 400 digits":             {object(`"fields":{"a":-1` + strings.Repeat("0", 400) + `}`), false},
		"64 levels":                          {object(`"fields":` + deep(62)), true},
		"65 levels":                          {object(`"fields":` + deep(63)), false},
		"fields nested 100,000 deep":         {object(`"fields":` + deep(100_000)), false},
		"arrays nested 100,000 deep":         {object(`"more":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)), false},
		"not a number":                       {object(`"fields":{"a":NaN}`), false},
		"half a surrogate pair":              {object(`"fields":{"a":"\ud800"}`), false},
		"names in another case":              {strings.ReplaceAll(object(`"version":1`), "business_id", "BUSINESS_ID"), false},
		"null":                               {`null`, false},
		"null for a record":                  {`{"object":null}`, false},
		"a list for a record":                {`{"object":[]}`, false},
		"nothing":                            {``, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, respond(200, test.body))
			read, err := call(t, c, "getObject", "pets", "a")
			written, failed := call(t, c, "updateObject", "pets", "a")
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

func TestFreeJSONIsLimited(t *testing.T) {
	t.Parallel()
	type members = map[string]any
	free := members{"free": 1}
	for name, test := range map[string]struct {
		body string // with free
		call []string
	}{
		"input schema":     {connecttest.List("automations", "automation", members{"input_schema": free}), []string{"listAutomations"}},
		"input of a run":   {connecttest.Record("run", members{"input": free}), []string{"getRun", "r1"}},
		"result of a run":  {connecttest.Record("run", members{"result": free}), []string{"getRun", "r1"}},
		"schema of a type": {connecttest.Record("object_type", members{"schema": free}), []string{"getObjectType", "pets"}},
		"fields in a list": {connecttest.List("objects", "object", members{"fields": free}), []string{"listObjects", "pets"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, test.body, `{"free":1}`)
			for member, ok := range map[string]bool{
				`{"a":[1.5e300,-2e-400,0.1]}`: true, `{"a":[1e400]}`: false, `{"a":-1e309}`: false, `{"a":{"b":1` + strings.Repeat("0", 400) + `}}`: false,
				`{"a":"1e400"}`: true, `{"a\u200b":1,"a":2}`: false, `{"a":[{"b":1,"b\u00ad":1}]}`: false,
				strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60): true, strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64): false,
			} {
				c, _ := serve(t, respond(200, strings.Replace(test.body, `{"free":1}`, member, 1)))
				content, err := call(t, c, test.call[0], test.call[1:]...)
				if ok {
					require.NoError(t, err, member)
					continue
				}
				require.ErrorIs(t, err, upstream.ErrContractViolation, member)
				require.Empty(t, content)
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
	transport := &attempts{steps: []step{{}, {200, connecttest.Record("contact", nil)}}}
	c, _ := serve(t, nil, func(o *data.Options) { o.Do, o.Timeout = calltest.Over(transport), time.Hour })
	began := time.Now()
	_, err := call(t, c, "updateContact", "7")
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
		{412, "VERSION_MISMATCH", data.ErrVersion, retried}, // a service may look at the version before the key
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
			body = `{"error":"x","code":"` + body + `","details":null}`
		}
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %s, first lost %t", test.status, test.body, lost), func(t *testing.T) {
				t.Parallel()
				transport := &attempts{steps: []step{{}, {test.status, body}, {test.status, body}}}
				if !lost {
					transport.steps = transport.steps[1:]
				}
				c, _ := serve(t, nil, func(o *data.Options) { o.Do = calltest.Over(transport) })
				_, err := call(t, c, "replaceFaq", "a")
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
			_, err := call(t, c, "deleteContact", "7")
			e, ok := errors.AsType[*data.Error](err)
			require.True(t, ok)
			assert.NotContains(t, fmt.Sprintf("%v %s %s %v", err, e.Code, e.Message, e.Details), secret)
			assert.False(t, slices.ContainsFunc(logs.All(), func(l observer.LoggedEntry) bool {
				return strings.Contains(fmt.Sprint(l.Message, l.ContextMap()), secret)
			}))
		})
	}
}
