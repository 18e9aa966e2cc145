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
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

const stamps = `"created_at":"2026-03-05T14:30:00Z","updated_at":"2026-03-05T14:30:00Z"`

// record is a response with one record of the caller's business.
func record(name, members string) string {
	return `{"` + name + `":{"business_id":"biz_1",` + members + `}}`
}

func TestWrongRecordIsRejectedWithAnAlarm(t *testing.T) {
	t.Parallel()
	write := data.Write{Key: "k"}
	// drop makes a test of a method that returns a record.
	drop := func(_ any, err error) error { return err }
	for name, test := range map[string]struct {
		ask    func(ctx context.Context, c *data.Client) error
		right  string
		wrong  []string
		writes bool
	}{
		"contact": {
			func(ctx context.Context, c *data.Client) error { return drop(c.Contact(ctx, caller(), 7)) },
			record("contact", `"id":7`),
			[]string{record("contact", `"id":8`), record("contact", `"first_name":"x"`)},
			false,
		},
		"contact, updated": {
			func(ctx context.Context, c *data.Client) error {
				return drop(c.UpdateContact(ctx, caller(), write, 7, data.Patch{}))
			},
			record("contact", `"id":7`),
			[]string{record("contact", `"id":8`)},
			true,
		},
		"contact, deleted": {
			func(ctx context.Context, c *data.Client) error { return c.DeleteContact(ctx, caller(), write, 7) },
			`{"deleted":true,"id":7}`,
			[]string{`{"deleted":true,"id":8}`, `{"deleted":true}`},
			true,
		},
		"conversation": {
			func(ctx context.Context, c *data.Client) error { return drop(c.Conversation(ctx, caller(), "a")) },
			record("conversation", `"id":"a"`),
			[]string{record("conversation", `"id":"A"`)},
			false,
		},
		"appointment": {
			func(ctx context.Context, c *data.Client) error { return drop(c.Appointment(ctx, caller(), "a")) },
			record("appointment", `"id":"a"`),
			[]string{record("appointment", `"id":"b"`)},
			false,
		},
		"FAQ": {
			func(ctx context.Context, c *data.Client) error { return drop(c.FAQ(ctx, caller(), "a")) },
			record("faq", `"id":"a"`),
			[]string{record("faq", `"id":"b"`)},
			false,
		},
		"FAQ, replaced": {
			func(ctx context.Context, c *data.Client) error {
				return drop(c.ReplaceFAQ(ctx, caller(), write, "a", data.Patch{}))
			},
			record("faq", `"id":"a"`),
			[]string{record("faq", `"id":"b"`)},
			true,
		},
		"FAQ, deleted": {
			func(ctx context.Context, c *data.Client) error { return c.DeleteFAQ(ctx, caller(), write, "a") },
			`{"deleted":true,"id":"a"}`,
			[]string{`{"deleted":true,"id":"b"}`},
			true,
		},
		"service": {
			func(ctx context.Context, c *data.Client) error { return drop(c.Service(ctx, caller(), "a")) },
			record("service", `"id":"a"`),
			[]string{record("service", `"id":"b"`)},
			false,
		},
		"service, replaced": {
			func(ctx context.Context, c *data.Client) error {
				return drop(c.ReplaceService(ctx, caller(), write, "a", data.Patch{}))
			},
			record("service", `"id":"a"`),
			[]string{record("service", `"id":"b"`)},
			true,
		},
		"service, deleted": {
			func(ctx context.Context, c *data.Client) error { return c.DeleteService(ctx, caller(), write, "a") },
			`{"deleted":true,"id":"a"}`,
			[]string{`{"deleted":true,"id":"b"}`},
			true,
		},
		"invoice": {
			func(ctx context.Context, c *data.Client) error { return drop(c.Invoice(ctx, caller(), "a")) },
			record("invoice", `"id":"a"`),
			[]string{record("invoice", `"id":"b"`)},
			false,
		},
		"estimate": {
			func(ctx context.Context, c *data.Client) error { return drop(c.Estimate(ctx, caller(), "a")) },
			record("estimate", `"id":"a"`),
			[]string{record("estimate", `"id":"b"`)},
			false,
		},
		"job": {
			func(ctx context.Context, c *data.Client) error { return drop(c.Job(ctx, caller(), "a")) },
			record("job", `"id":"a"`),
			[]string{record("job", `"id":"b"`)},
			false,
		},
		"run": {
			func(ctx context.Context, c *data.Client) error { return drop(c.Run(ctx, caller(), "a")) },
			record("run", `"id":"a"`),
			[]string{record("run", `"id":"b"`)},
			false,
		},
		"run, started": {
			func(ctx context.Context, c *data.Client) error {
				return drop(c.StartRun(ctx, caller(), write, "a", nil))
			},
			record("run", `"id":"r","automation_id":"a"`),
			[]string{record("run", `"id":"a","automation_id":"b"`)},
			true,
		},
		"object type": {
			func(ctx context.Context, c *data.Client) error { return drop(c.ObjectType(ctx, caller(), "pets")) },
			record("object_type", `"name":"pets"`),
			[]string{record("object_type", `"name":"cars"`)},
			false,
		},
		"objects": {
			func(ctx context.Context, c *data.Client) error {
				return drop(c.Objects(ctx, caller(), "pets", data.Search{}))
			},
			`{"objects":[{"business_id":"biz_1","id":"a","type":"pets"}]}`,
			[]string{`{"objects":[{"business_id":"biz_1","id":"a","type":"pets"},{"business_id":"biz_1","id":"b","type":"cars"}]}`},
			false,
		},
		"object": {
			func(ctx context.Context, c *data.Client) error { return drop(c.Object(ctx, caller(), "pets", "a")) },
			record("object", `"id":"a","type":"pets"`),
			[]string{record("object", `"id":"b","type":"pets"`), record("object", `"id":"a","type":"cars"`)},
			false,
		},
		"object, created": {
			func(ctx context.Context, c *data.Client) error {
				return drop(c.CreateObject(ctx, caller(), write, "pets", jsontext.Value("{}")))
			},
			record("object", `"id":"a","type":"pets"`),
			[]string{record("object", `"id":"a","type":"cars"`)},
			true,
		},
		"object, updated": {
			func(ctx context.Context, c *data.Client) error {
				return drop(c.UpdateObject(ctx, caller(), write, "pets", "a", jsontext.Value("{}")))
			},
			record("object", `"id":"a","type":"pets"`),
			[]string{record("object", `"id":"b","type":"pets"`), record("object", `"id":"a","type":"cars"`)},
			true,
		},
		"object, deleted": {
			func(ctx context.Context, c *data.Client) error {
				return c.DeleteObject(ctx, caller(), write, "pets", "a")
			},
			`{"deleted":true,"id":"a"}`,
			[]string{`{"deleted":true,"id":"b"}`},
			true,
		},
		"business": {
			func(ctx context.Context, c *data.Client) error { return drop(c.Business(ctx, caller())) },
			record("business", `"id":"biz_1"`),
			[]string{record("business", `"id":"biz_2"`)},
			false,
		},
		"business, updated": {
			func(ctx context.Context, c *data.Client) error {
				return drop(c.UpdateBusiness(ctx, caller(), write, data.Patch{}))
			},
			record("business", `"id":"biz_1"`),
			[]string{record("business", `"id":"biz_2"`)},
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, logs := serve(t, says(200, test.right))
			require.NoError(t, test.ask(t.Context(), c))
			require.Empty(t, logs.All())
			for _, wrong := range test.wrong {
				c, logs := serve(t, says(200, wrong))
				err := test.ask(t.Context(), c)
				require.ErrorIs(t, err, data.ErrWrongRecord, wrong)
				require.ErrorIs(t, err, data.ErrUnexpected, wrong)
				e, ok := errors.AsType[*data.Error](err)
				require.True(t, ok)
				require.Equal(t, test.writes, e.Uncertain, wrong)
				require.Equal(t, 1, logs.FilterMessageSnippet("ALARM").Len(), wrong)
			}
		})
	}
}

// Text that is hidden in an id does not make it the id that was asked for.
func TestIDsAreComparedBeforeCleaning(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]error{
		record("job", `"id":"a\u200b"`):                             data.ErrWrongRecord,
		record("job", "\"id\":\"a\U000e0041\""):                     data.ErrWrongRecord,
		`{"job":{"business_id":"biz_1\u200b","id":"a"}}`:            data.ErrCrossTenant,
		`{"job":{"business_id":"\u2060biz_1","id":"a"}}`:            data.ErrCrossTenant,
		`{"job":{"business_id\u200b":"biz_1","id":"a"}}`:            data.ErrCrossTenant,
		`{"job":{"business_id":"biz_1","id\u200b":"a","id":"b"}}`:   data.ErrWrongRecord,
		`{"job\u200b":{"business_id":"biz_1","id":"a"}}`:            data.ErrCrossTenant,
		`{"job":{"business_id":"biz_1","id":"a","id\u200b":"b"}}`:   data.ErrUnexpected,
		`{"job":{"business_id":"biz_1","id":"\u0061","name":"ok"}}`: nil,
	} {
		c, _ := serve(t, says(200, body))
		job, err := c.Job(t.Context(), caller(), "a")
		require.ErrorIs(t, err, want, body)
		require.Equal(t, want == nil, job.ID == "a", body)
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
	t.Run("members of records", func(t *testing.T) {
		t.Parallel()
		c, _ := serve(t, says(200, record("contact", `"id":7,"first_name":`+dirty("Ines")+`,"last_name":`+dirty("Halvorsen")+
			`,"notes":`+dirty("two\nlines, \U0001F469\u200d\U0001F527")+`,"contact_status":`+dirty("active"))))
		contact, err := c.Contact(t.Context(), caller(), 7)
		require.NoError(t, err)
		require.Equal(t, "Ines", contact.FirstName)
		require.Equal(t, "Halvorsen", *contact.LastName)
		require.Equal(t, "two\nlines, \U0001F469\u200d\U0001F527", *contact.Notes)
		require.Equal(t, data.ContactStatus("active"), contact.ContactStatus)
	})
	t.Run("lists", func(t *testing.T) {
		t.Parallel()
		one := `{"id":"1","business_id":"biz_1","name":` + dirty("Crew 1") + `}`
		c, _ := serve(t, says(200, `{"calendars":[`+one+`,`+one+`],"next_cursor":"n"}`))
		page, err := c.Calendars(t.Context(), caller(), data.List{})
		require.NoError(t, err)
		require.Len(t, page.Items, 2)
		require.Equal(t, "Crew 1", page.Items[1].Name)
		require.Equal(t, "n", page.Next)
	})
	t.Run("messages", func(t *testing.T) {
		t.Parallel()
		c, _ := serve(t, says(200, record("conversation", `"id":"c","messages":[{"id":"m","text":`+dirty("hi")+`}]`)))
		conversation, err := c.Conversation(t.Context(), caller(), "c")
		require.NoError(t, err)
		require.Equal(t, "hi", conversation.Messages[0].Text)
	})
	t.Run("fields of custom objects", func(t *testing.T) {
		t.Parallel()
		c, _ := serve(t, says(200, record("object", `"id":"a","type":"pets","fields":{`+dirty("name")+`:[`+dirty("Rex")+`]}`)))
		o, err := c.Object(t.Context(), caller(), "pets", "a")
		require.NoError(t, err)
		require.Equal(t, `{"name":["Rex"]}`, string(o.Fields))
	})
	t.Run("runs", func(t *testing.T) {
		t.Parallel()
		c, _ := serve(t, says(200, record("run", `"id":"r","message":`+dirty("4 of 10")+`,"steps":[{"name":`+dirty("Find")+`}],`+
			`"result":{`+dirty("note")+`:`+dirty("done")+`},"error":{"code":`+dirty("FAILED")+`,"message":`+dirty("why")+`}`)))
		run, err := c.Run(t.Context(), caller(), "r")
		require.NoError(t, err)
		require.Equal(t, "4 of 10", *run.Message)
		require.Equal(t, "Find", run.Steps[0].Name)
		require.Equal(t, `{"note":"done"}`, string(run.Result))
		require.Equal(t, data.RunError{Code: "FAILED", Message: "why"}, *run.Error)
	})
	t.Run("schemas", func(t *testing.T) {
		t.Parallel()
		c, _ := serve(t, says(200, record("object_type", `"name":"pets","schema":{"title":`+dirty("Pets")+`}`)))
		kind, err := c.ObjectType(t.Context(), caller(), "pets")
		require.NoError(t, err)
		require.Equal(t, `{"title":"Pets"}`, string(kind.Schema))
	})
	t.Run("errors", func(t *testing.T) {
		t.Parallel()
		c, _ := serve(t, says(409, `{"error":`+dirty("In the\nway.")+`,"code":"CONFLICT","details":[{"field":`+dirty("a\u2028b")+
			`,"problem":`+dirty("is\r\nbad")+`,"allowed":`+dirty("b")+`}]}`))
		_, err := c.Job(t.Context(), caller(), "a")
		e, ok := errors.AsType[*data.Error](err)
		require.True(t, ok)
		require.Equal(t, "In the way.", e.Message)
		require.Equal(t, []data.Detail{{Field: "a b", Problem: "is bad", Allowed: "b"}}, e.Details)
	})
	t.Run("codes", func(t *testing.T) {
		t.Parallel()
		c, _ := serve(t, says(409, `{"error":"x","code":`+dirty("CONFLICT")+`}`))
		_, err := c.Job(t.Context(), caller(), "a")
		require.ErrorIs(t, err, data.ErrUnexpected)
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
		"as documented":                     {object(`"version":1,"fields":{"a":1,"b":-1.5e300},` + stamps), true},
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
			c, _ := serve(t, says(200, test.body))
			read, err := c.Object(t.Context(), caller(), "pets", "a")
			written, failed := c.UpdateObject(t.Context(), caller(), data.Write{Key: "k"}, "pets", "a", jsontext.Value("{}"))
			if test.ok {
				require.NoError(t, err)
				require.NoError(t, failed)
				return
			}
			require.ErrorIs(t, err, data.ErrUnexpected)
			require.Empty(t, read)
			require.ErrorIs(t, failed, data.ErrUnexpected)
			require.Empty(t, written)
			e, ok := errors.AsType[*data.Error](failed)
			require.True(t, ok)
			require.True(t, e.Uncertain)
		})
	}
}

// TestRawMembersAreLimited: what is JSON of the service's own must not be deeper than others can read.
func TestRawMembersAreLimited(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	for name, test := range map[string]struct {
		body string
		ask  func(c *data.Client) error
	}{
		"input schema": {`{"automations":[{"id":"a","business_id":"biz_1","input_schema":` + deep + `}]}`, func(c *data.Client) error {
			_, err := c.Automations(t.Context(), caller(), data.List{})
			return err
		}},
		"input of a run": {record("run", `"id":"r","input":`+deep), func(c *data.Client) error {
			_, err := c.Run(t.Context(), caller(), "r")
			return err
		}},
		"result of a run": {record("run", `"id":"r","result":`+deep), func(c *data.Client) error {
			_, err := c.Run(t.Context(), caller(), "r")
			return err
		}},
		"schema of a type": {record("object_type", `"name":"t","schema":`+deep), func(c *data.Client) error {
			_, err := c.ObjectType(t.Context(), caller(), "t")
			return err
		}},
		"fields in a list": {`{"objects":[{"id":"a","type":"t","business_id":"biz_1","fields":` + deep + `}]}`, func(c *data.Client) error {
			_, err := c.Objects(t.Context(), caller(), "t", data.Search{})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, says(200, test.body))
			require.ErrorIs(t, test.ask(c), data.ErrUnexpected)
			c, _ = serve(t, says(200, strings.Replace(test.body, deep, deep[1:len(deep)-1], 1)))
			require.NoError(t, test.ask(c))
		})
	}
}

// attempts responds with one step after the other and records the deadlines.
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
	return res, err
}

func TestOneDeadlineCoversBothAttempts(t *testing.T) {
	t.Parallel()
	transport := &attempts{steps: []step{{}, {200, record("job", `"id":"a"`)}}}
	c, _ := serve(t, nil, func(o *data.Options) { o.Transport, o.Timeout = transport, time.Hour })
	began := time.Now()
	_, err := c.Job(t.Context(), caller(), "a")
	require.NoError(t, err)
	require.Len(t, transport.deadlines, 2)
	require.Equal(t, transport.deadlines[0], transport.deadlines[1], "the second attempt has only what time the first left")
	require.WithinRange(t, transport.deadlines[0], began.Add(time.Hour), time.Now().Add(time.Hour))
}

func TestRetriedWriteStaysUncertain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status    int
		code      string
		kind      error
		uncertain bool
	}{
		// The key was looked for and not found: the first attempt did nothing.
		{404, "NOT_FOUND", data.ErrNotFound, false},
		{409, "CONFLICT", data.ErrConflict, false},
		{412, "VERSION_MISMATCH", data.ErrVersion, false},
		{422, "INVALID", data.ErrInvalid, false},
		// The service did not come to that.
		{401, "UNAUTHORIZED", data.ErrRefused, true},
		{403, "UNKNOWN_ACCOUNT", data.ErrNoAccount, true},
		{403, "FORBIDDEN", data.ErrForbidden, true},
		{429, "BUSY", data.ErrBusy, true},
		{422, "IDEMPOTENCY_KEY_REUSED", data.ErrKeyReused, true},
		{404, "", data.ErrUnexpected, true},
		{503, "", data.ErrUnavailable, true},
	} {
		for _, first := range []string{"lost", "answered"} {
			t.Run(fmt.Sprintf("%d %s %s", test.status, test.code, first), func(t *testing.T) {
				t.Parallel()
				refused := step{test.status, `{"error":"x","code":"` + test.code + `"}`}
				steps := []step{{}, refused}
				if first == "answered" {
					steps = steps[1:]
				}
				if test.status == 503 {
					steps = append(steps, refused)
				}
				c, _ := serve(t, nil, func(o *data.Options) { o.Transport = &attempts{steps: steps} })
				_, err := c.UpdateContact(t.Context(), caller(), data.Write{Key: "k"}, 7, data.Patch{})
				require.ErrorIs(t, err, test.kind)
				e, ok := errors.AsType[*data.Error](err)
				require.True(t, ok)
				require.Equal(t, test.uncertain && (first == "lost" || test.status == 503), e.Uncertain)
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
			c, logs := serve(t, says(test.status, test.body))
			_, err := c.UpdateContact(t.Context(), caller(), data.Write{Key: "k"}, 7, data.Patch{})
			e, ok := errors.AsType[*data.Error](err)
			require.True(t, ok)
			require.NotContains(t, fmt.Sprintf("%v %s %s %v", err, e.Code, e.Message, e.Details), secret)
			require.False(t, slices.ContainsFunc(logs.All(), func(l observer.LoggedEntry) bool {
				return strings.Contains(fmt.Sprint(l.Message, l.ContextMap()), secret)
			}))
		})
	}
}
