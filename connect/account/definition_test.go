package account_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// These tests hold connect/definition.yaml equal to this package's client: the requests that it makes, and the responses that it accepts.

// accountCall is a call of the client, and the operation that describes it.
type accountCall struct {
	operation string
	path      []string
	make      func(t *testing.T, c *account.Client) error
}

func accountCalls() []accountCall {
	return []accountCall{
		{"signIn", nil, func(t *testing.T, c *account.Client) error {
			t.Helper()
			_, err := c.SignIn(request(t), ada.Email, "correct horse")
			return err
		}},
		{"getAccount", []string{ada.ID}, func(t *testing.T, c *account.Client) error {
			t.Helper()
			_, err := c.Account(request(t), ada.ID)
			return err
		}},
	}
}

func TestRequestsAreInTheDefinition(t *testing.T) {
	t.Parallel()
	for _, call := range accountCalls() {
		t.Run(call.operation, func(t *testing.T) {
			t.Parallel()
			op := connecttest.Operation(t, call.operation)
			seen := make(chan error, 1)
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				seen <- func() error {
					m, ok := connecttest.Definition(t).API.Match(r.RequestURI)
					if !ok || m.Path.Operation(r.Method) != op {
						return fmt.Errorf("%s %s is another operation", r.Method, r.RequestURI)
					}
					if _, err := op.CleanQuery(m); err != nil {
						return err
					}
					if err := op.CheckHeaders(r.Header); err != nil || op.Body == nil {
						return err
					}
					var body bytes.Buffer
					if _, err := body.ReadFrom(r.Body); err != nil {
						return err
					}
					_, err := new(upstream.Contract).CheckBody(new(bytes.Buffer), op, r.Header, "-", body.Bytes())
					return err
				}()
				respond(http.StatusOK, response)(w, r)
			})
			require.NoError(t, call.make(t, c))
			require.NoError(t, <-seen)
		})
	}
}

// variation is a response with a change.
type variation struct {
	status  int
	pointer string
	what    string
	body    []byte
}

// variations returns a response with each of its members missing, and with other values.
func variations(t *testing.T, status int, s *upstream.Schema, body string) (all []variation) {
	t.Helper()
	var root any
	require.NoError(t, json.Unmarshal([]byte(body), &root))
	add := func(pointer, what string) {
		text, err := json.Marshal(root)
		require.NoError(t, err)
		all = append(all, variation{status, pointer, what, text})
	}
	var walk func(pointer string, s *upstream.Schema, v any, set func(any))
	walk = func(pointer string, s *upstream.Schema, v any, set func(any)) {
		values := []any{nil, true, 7, 1.5, "x", "", " ", "x y", "\t", []any{}, map[string]any{}}
		if s.Rules != nil && s.Rules.MaxLength > 0 {
			values = append(values, strings.Repeat("é", s.Rules.MaxLength), strings.Repeat("x", s.Rules.MaxLength), strings.Repeat("x", s.Rules.MaxLength+1))
		}
		for _, value := range values {
			set(value)
			text, err := json.Marshal(value)
			require.NoError(t, err)
			add(pointer, string(text[:min(len(text), 40)]))
		}
		set(v)
		members, ok := v.(map[string]any)
		if !ok {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			p := s.Property(name)
			if p == nil {
				continue
			}
			value := members[name]
			delete(members, name)
			add(pointer+"/"+name, "is missing")
			members[name] = value
			walk(pointer+"/"+name, p.Schema, value, func(value any) { members[name] = value })
		}
		members["added"] = map[string]any{"id": "x"}
		add(pointer+"/added", "is added")
		delete(members, "added")
	}
	walk("", s, root, func(value any) { root = value })
	return all
}

// disagreement is a response about which the definition and the client may disagree.
type disagreement struct {
	why      string
	byClient bool // the client accepts it, and the definition does not
	is       func(op string, v variation) bool
	seen     bool
}

func TestClientAcceptsTheResponsesOfTheDefinition(t *testing.T) {
	t.Parallel()
	disagreements := []*disagreement{
		{why: "The language cannot say that the address is the one that was sent.", is: func(op string, v variation) bool {
			return op == "signIn" && v.pointer == "/account/email"
		}},
		{why: "The language counts characters, and the client bytes.", is: func(_ string, v variation) bool { return strings.HasPrefix(v.what, `"é`) }},
		{why: "Of an error, the client reads only the code.", byClient: true, is: func(_ string, v variation) bool {
			return v.status >= 400 && v.pointer == "/error"
		}},
		{why: "The language has no 401 of a service, which otherwise means that it rejects the gateway.", byClient: true, is: func(op string, v variation) bool {
			return op == "signIn" && v.status == http.StatusUnauthorized
		}},
		{why: "The language leaves the body of 429 to the gateway. The client treats it as an outage.", is: func(op string, v variation) bool {
			return op == "signIn" && v.status == http.StatusTooManyRequests
		}},
	}
	tried := 0
	for _, call := range accountCalls() {
		op := connecttest.Operation(t, call.operation)
		q, err := op.Fill(call.path, "", "17")
		require.NoError(t, err)
		var all []variation
		for _, r := range op.Responses {
			body := response
			if r.Status != http.StatusOK {
				code := map[int]string{http.StatusNotFound: "NOT_FOUND", http.StatusUnprocessableEntity: "INVALID", http.StatusTooManyRequests: "BUSY"}[r.Status]
				body = fmt.Sprintf(`{"error":"No.","code":%q}`, code)
			}
			all = append(all, variations(t, r.Status, r.Body, body)...)
		}
		if call.operation == "signIn" {
			all = append(all, variation{status: http.StatusUnauthorized, body: []byte(`{"error":"No.","code":"INVALID_CREDENTIALS"}`)})
		}
		now := make(chan variation, 1)
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			v := <-now
			respond(v.status, string(v.body))(w, r)
		})
		for _, v := range all {
			tried++
			now <- v
			byClient := !errors.Is(call.make(t, c), account.ErrUnavailable)
			if byClient == (check(op, q, v) == nil) {
				continue
			}
			i := slices.IndexFunc(disagreements, func(d *disagreement) bool { return d.byClient == byClient && d.is(call.operation, v) })
			if assert.GreaterOrEqual(t, i, 0, "%s with %d: %s %s: the client accepts it: %t", call.operation, v.status, v.pointer, v.what, byClient) {
				disagreements[i].seen = true
			}
		}
	}
	assert.Greater(t, tried, 200)
	for _, d := range disagreements {
		assert.True(t, d.seen, "there is no such disagreement: %s", d.why)
	}
}

// check checks a response by the definition. A status that has no body for the caller is accepted.
func check(op *upstream.Operation, q upstream.Query, v variation) error {
	res, err := op.CheckHeader(v.status, http.Header{"Content-Type": {"application/json"}}, false)
	if _, ok := errors.AsType[*upstream.StatusError](err); ok {
		return nil
	}
	if err == nil {
		_, err = new(upstream.Contract).Check(new(bytes.Buffer), op, res, q, "-", v.body)
	}
	return err
}
