package mcp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/internal/demo" //nolint:depguard // the service that the tools are for
	"github.com/gatehouse-gateway/gatehouse/internal/test/calltest"
	contract "github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// These tests hold connect/definition.yaml equal to the client of its calls: the tools, and the client for accounts. Neither is told what
// the other does. The requests that the client makes to the demo's data service, and the responses that it accepts, are compared with what
// the document allows.

// exchange is a request of the client and the response, and what the document says about them.
type exchange struct {
	op       *contract.Operation
	match    contract.Match
	query    contract.Query
	business string
	target   string
	header   http.Header // of the request
	body     []byte      // of the request
	refused  error       // why the document does not allow the request
	status   int
	response []byte
}

func (e *exchange) key() string { return e.op.Method + " " + e.target }

// described is the document, and the exchanges that were recorded.
type described struct {
	*testing.T

	api      *contract.API
	contract contract.Contract

	mu       sync.Mutex
	recorded []*exchange
	answer   func(*exchange) bool // sets status and response; if it returns false, the request is sent
}

func describe(t *testing.T) *described {
	t.Helper()
	const name = "../definition.yaml"
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	d, err := definition.Load(definition.File{Name: name, Text: text}, definition.Options{})
	require.NoError(t, err)
	return &described{T: t, api: d.API}
}

// RoundTrip implements http.RoundTripper.
func (d *described) RoundTrip(r *http.Request) (*http.Response, error) {
	e := &exchange{target: r.URL.RequestURI(), header: r.Header.Clone(), business: r.Header.Get("X-Business-Id")}
	if r.Body != nil {
		var err error
		if e.body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(e.body))
	}
	if e.refused = d.checkRequest(r.Method, e); e.op == nil {
		e.op = new(contract.Operation)
	}
	d.mu.Lock()
	d.recorded = append(d.recorded, e)
	answer := d.answer
	d.mu.Unlock()
	if answer != nil && answer(e) {
		return response(e.status, "application/json", string(e.response)), nil
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	e.status = res.StatusCode
	e.response, err = io.ReadAll(res.Body)
	res.Body = io.NopCloser(bytes.NewReader(e.response))
	return res, err
}

// checkRequest checks a request by the document, and requires that nothing of it is lost.
func (d *described) checkRequest(method string, e *exchange) error {
	m, ok := d.api.Match(e.target)
	if !ok || m.Path.Operation(method) == nil {
		return errors.New("is not an operation of the document")
	}
	e.match, e.op = m, m.Path.Operation(method)
	var err error
	if e.query, err = e.op.CleanQuery(m); err != nil {
		return err
	}
	given, _ := url.ParseQuery(m.Query)
	allowed, _ := url.ParseQuery(e.query.Raw)
	if given.Get("limit") == "" {
		allowed.Del("limit")
	}
	if e.query.Ignored != "" || given.Encode() != allowed.Encode() {
		return fmt.Errorf("parameters %q, of which the document allows %q", given, allowed)
	}
	if err := e.op.CheckHeaders(e.header); err != nil {
		return err
	}
	for _, name := range []string{"Idempotency-Key", "If-Match"} {
		if e.header[name] != nil && !slices.ContainsFunc(e.op.Headers, func(p contract.Param) bool { return p.Name == name }) {
			return fmt.Errorf("the header %s is not in the document", name)
		}
	}
	return d.checkBody(e, e.body)
}

func (d *described) checkBody(e *exchange, body []byte) error {
	var out bytes.Buffer
	_, err := d.contract.CheckBody(&out, e.op, http.Header{"Content-Type": {"application/json"}}, e.business, body)
	return err
}

// check checks a response by the document. A status that has no body for the caller is accepted.
func (d *described) check(e *exchange, status int, body []byte) error {
	res, err := e.op.CheckHeader(status, http.Header{"Content-Type": {"application/json"}}, false)
	if _, ok := errors.AsType[*contract.StatusError](err); ok {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = d.contract.Check(new(bytes.Buffer), e.op, res, e.query, e.business, body)
	return err
}

// during records the exchanges of a call, which may be answered.
func (d *described) during(answer func(*exchange) bool, call func()) []*exchange {
	d.mu.Lock()
	d.recorded, d.answer = nil, answer
	d.mu.Unlock()
	call()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.recorded
}

// driver makes the client's calls.
type driver struct {
	*described
	setup    *setup
	session  *sdk.ClientSession
	accounts *account.Client
}

func drive(t *testing.T) *driver {
	t.Helper()
	d := describe(t)
	s := newSetup(t, fresh(t, demo.Options{}))
	s.upstream.breakWith(d.RoundTrip)
	backend := httptest.NewServer(shared.Handler())
	t.Cleanup(backend.Close)
	accounts, err := account.NewClient(account.ClientOptions{
		Host: backend.Listener.Addr().String(), Do: calltest.Over(d), Timeout: patience, Log: zap.NewNop(),
	})
	require.NoError(t, err)
	return &driver{d, s, s.connect(modern, "bearer", nil), accounts}
}

// made is a call of the client that succeeded.
type made struct {
	name      string
	arguments object
	exchanges []*exchange
	again     func() (accepted bool) // repeats it, and returns whether the client accepts the response
}

// tool calls a tool with the demo's service, which must succeed.
func (d *driver) tool(name string, arguments object) (*made, object) {
	d.Helper()
	m := &made{name: name, arguments: arguments}
	var content object
	m.exchanges = d.during(nil, func() {
		res, err := d.session.CallTool(d.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
		require.NoError(d, err)
		require.False(d, res.IsError, "%s: %s", name, textOf(res))
		content, _ = res.StructuredContent.(object)
	})
	m.again = func() bool {
		accepted, _ := d.accepts(name, arguments)
		return accepted
	}
	return m, content
}

// accepts calls a tool, and returns whether it accepts the response, and the arguments.
func (d *driver) accepts(name string, arguments object) (response, request bool) {
	res, err := d.session.CallTool(d.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	if !assert.NoError(d, err) {
		return false, false
	}
	text := textOf(res)
	return !res.IsError || !strings.HasPrefix(text, "Error DATA_SERVICE_INVALID_RESPONSE"),
		!res.IsError || !strings.HasPrefix(text, "Error INVALID_ARGUMENTS")
}

// all makes every call of the client.
func (d *driver) all() (all []*made) {
	d.Helper()
	tool := func(name string, arguments object) object {
		d.Helper()
		m, content := d.tool(name, arguments)
		all = append(all, m)
		return content
	}
	one := func(content object, name string) object { return content[name].(object) }
	id := func(list, name string) any { return first(d.T, tool(list, object{"limit": 2}), name)["id"] }

	tool("business_get", nil)
	tool("business_update", object{
		"name": "Fernhollow", "email": nil, "phone": "+12025550143", "website_url": "https://fernhollow.example/", "time_zone": "Europe/London",
		"if_version": 1,
	})
	hours := tool("business_hours_set", object{"hours": []any{object{"day": "monday", "open": "09:00", "close": "24:00"}}})
	tool("business_hours_set", object{"hours": []any{}, "if_version": hours["version"]})
	tool("business_hours_set", object{"hours": []any{object{"day": "monday", "open": "09:00", "close": "24:00"}}})
	areas := tool("service_areas_set", object{"service_areas": []any{object{"name": "Dane", "kind": "region"}}})
	tool("service_areas_set", object{
		"service_areas": []any{object{"name": "Madison", "kind": "city", "radius_km": 2.5}}, "if_version": areas["version"],
	})

	contact := one(tool("contacts_create", object{
		"first_name": "Ines", "last_name": "Halvorsen", "email": "ines@example.com", "phone_number": "6085550123", "country_code": "+1",
		"contact_type": "vendor", "contact_status": "inactive", "notes": "Two\nlines.",
	}), "contact")
	tool("contacts_search", object{"query": "ines", "status": "inactive", "type": "vendor", "limit": 7})
	tool("contacts_search", object{"cursor": tool("contacts_search", object{"limit": 2})["next_cursor"], "limit": 3})
	tool("contacts_get", object{"id": contact["id"]})
	tool("contacts_update", object{
		"id": contact["id"], "first_name": "I", "last_name": nil, "email": nil, "phone_number": nil, "country_code": nil,
		"contact_type": "lead", "contact_status": "active", "notes": nil, "if_version": contact["version"],
	})
	tool("contacts_delete", object{"id": contact["id"], "confirm": true})

	tool("conversations_search", object{
		"query": "water", "channel": "call", "since": "2026-01-01T00:00:00+02:00", "until": "2026-12-01T00:00:00.5Z", "limit": 5,
	})
	tool("conversations_search", object{"cursor": tool("conversations_search", object{"limit": 2})["next_cursor"]})
	tool("conversations_get", object{"id": id("conversations_search", "conversations")})
	calendar := id("calendars_list", "calendars")
	tool("calendars_list", object{"cursor": tool("calendars_list", object{"limit": 1})["next_cursor"]})
	with := first(d.T, tool("appointments_search", object{"limit": 1}), "appointments")
	tool("appointments_search", object{
		"from": "2020-01-01T00:00:00Z", "to": "2030-01-01T00:00:00Z", "calendar_id": calendar, "contact_id": with["contact_id"],
		"status": "no_show", "limit": 5,
	})
	tool("appointments_search", object{"cursor": tool("appointments_search", object{"limit": 2})["next_cursor"]})
	tool("appointments_get", object{"id": with["id"]})

	receptionist := one(tool("receptionist_get", nil), "receptionist")
	receptionist = one(tool("receptionist_personality_update", object{
		"name": "Fern", "tone": "warm", "greeting": "Hello.", "language": "en-GB", "instructions": "None.", "if_version": receptionist["version"],
	}), "receptionist")
	rules := one(tool("receptionist_rules_update", object{
		"rules": []any{object{"when": "it floods", "then": "transfer"}}, "if_version": receptionist["version"],
	}), "receptionist")["rules"]
	tool("receptionist_rules_update", object{"rules": rules})
	receptionistContent := map[string]object{
		"faq":     {"question": "Do you work at night?", "answer": "No.", "enabled": false},
		"service": {"name": "Gutter cleaning", "description": "All of it.", "duration_minutes": 60, "price": "80.50", "bookable": true},
	}
	for _, name := range slices.Sorted(maps.Keys(receptionistContent)) {
		content := receptionistContent[name]
		created := one(tool("receptionist_"+name+"_upsert", content), name)
		replacement := maps.Clone(content)
		replacement["id"], replacement["if_version"] = created["id"], created["version"]
		tool("receptionist_"+name+"_upsert", replacement)
		list := "receptionist_" + name + "s_list"
		tool(list, object{"query": "at", "limit": 3})
		tool(list, object{"cursor": tool(list, object{"limit": 1})["next_cursor"]})
		tool("receptionist_"+name+"_delete", object{"id": created["id"], "confirm": true})
	}

	salesFilters := map[string]object{
		"invoice": {"query": "I", "status": "paid"}, "estimate": {"query": "E", "status": "sent", "payment_status": "unpaid"},
		"job": {"query": "J", "status": "completed"},
	}
	for _, list := range slices.Sorted(maps.Keys(salesFilters)) {
		tool(list+"s_search", salesFilters[list])
		tool(list+"s_search", object{"cursor": tool(list+"s_search", object{"limit": 2})["next_cursor"]})
		tool(list+"s_get", object{"id": id(list+"s_search", list+"s")})
	}

	run := one(tool("automations_run", object{"automation_id": "overdue-reminders", "input": object{"dry_run": true}, "wait_seconds": 0}), "run")
	tool("automations_run_get", object{"id": run["id"]})
	tool("automations_list", object{"cursor": tool("automations_list", object{"limit": 1})["next_cursor"], "limit": 2})
	tool("automations_list", nil)

	tool("object_types_list", nil)
	tool("object_types_list", object{"cursor": tool("object_types_list", object{"limit": 1})["next_cursor"]})
	tool("object_type_get", object{"type": "vehicles"})
	tool("objects_search", object{"type": "vehicles", "query": "a", "limit": 3})
	tool("objects_search", object{"type": "vehicles", "cursor": tool("objects_search", object{"type": "vehicles", "limit": 2})["next_cursor"]})
	vehicle := one(tool("objects_create", object{"type": "vehicles", "fields": object{"plate": "NEW 77", "make": "Calder"}}), "object")
	tool("objects_get", object{"type": "vehicles", "id": vehicle["id"]})
	tool("objects_update", object{"type": "vehicles", "id": vehicle["id"], "fields": object{"plate": "NEW 78"}, "if_version": vehicle["version"]})
	tool("objects_delete", object{"type": "vehicles", "id": vehicle["id"], "confirm": true})

	ctx, _ := requestlog.With(d.Context(), "definition")
	for name, call := range map[string]func() error{
		"sign-in": func() error {
			_, err := d.accounts.SignIn(ctx, d.setup.owner.Email, demo.Accounts()[0].Password)
			return err
		},
		"account": func() error { _, err := d.accounts.Account(ctx, d.setup.owner.ID); return err },
	} {
		m := &made{name: name}
		m.exchanges = d.during(nil, func() { require.NoError(d, call()) })
		m.again = func() bool { return !errors.Is(call(), account.ErrUnavailable) }
		all = append(all, m)
	}
	return all
}

func TestEveryCallOfTheClientIsInTheDefinition(t *testing.T) {
	t.Parallel()
	d := drive(t)
	type use struct{ parameters, headers, members map[string]bool }
	used := map[string]use{}
	for _, m := range d.all() {
		for _, e := range m.exchanges {
			require.NoError(t, e.refused, "%s: %s %s", m.name, e.key(), e.body)
			u, ok := used[e.op.ID]
			if !ok {
				u = use{map[string]bool{}, map[string]bool{}, map[string]bool{}}
				used[e.op.ID] = u
			}
			query, err := url.ParseQuery(e.match.Query)
			require.NoError(t, err)
			for name := range query {
				u.parameters[name] = true
			}
			for _, name := range []string{"Idempotency-Key", "If-Match"} {
				if e.header[name] != nil {
					u.headers[name] = true
				}
			}
			if len(e.body) > 0 {
				var body any
				require.NoError(t, json.Unmarshal(e.body, &body))
				names(u.members, "", e.op.Body.Kinds[0].Schema, body)
			}
			// What the service responds is as the document says, and all of it is.
			require.NoError(t, d.check(e, e.status, e.response), "%s: %s", e.op.ID, e.response)
			res, err := e.op.CheckHeader(e.status, http.Header{"Content-Type": {"application/json"}}, false)
			require.NoError(t, err)
			for _, removed := range d.contract.Removed(e.op, res, e.query, e.business, e.response) {
				assert.Equal(t, "/run/started_by", removed.Pointer, "%s %s", e.op.ID, removed.Reason) // which the client does not read
			}
		}
	}
	for _, op := range d.api.Operations() {
		u := used[op.ID]
		parameters, headers, members := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, p := range op.Params {
			parameters[p.Name] = true
		}
		for _, p := range op.Headers {
			headers[p.Name] = true
		}
		for _, kind := range op.Body.All() {
			documented(members, "", kind.Schema)
		}
		assert.Equal(t, use{parameters, headers, members}, u, op.ID)
	}
	assert.Len(t, used, len(d.api.Operations()))
}

// names adds the names of the members of a body, in paths. Those of free JSON are not the document's.
func names(into map[string]bool, path string, s *contract.Schema, v any) {
	switch v := v.(type) {
	case object:
		for name, value := range v {
			if p := s.Property(name); p != nil {
				into[path+"/"+name] = true
				names(into, path+"/"+name, p.Schema, value)
			}
		}
	case []any:
		for _, item := range v {
			names(into, path, s.Items, item)
		}
	}
}

// documented adds the names of the members that a schema has.
func documented(into map[string]bool, path string, s *contract.Schema) {
	for i := range s.Properties {
		p := &s.Properties[i]
		into[path+"/"+p.Name] = true
		documented(into, path+"/"+p.Name, p.Schema)
	}
	if s.Items != nil {
		documented(into, path, s.Items)
	}
}

// difference is a response about which the document and the client may disagree, and why. Everything else is a mistake in one of them.
type difference struct {
	why     string
	accepts string // who accepts it
	is      func(op *contract.Operation, c change) bool
}

const document, client = "the document", "the client"

func differences() []difference {
	return []difference{
		{
			"A record without an id cannot be asked for. The client takes an absent id in a list, or of what was created, for an empty one.", client,
			func(op *contract.Operation, c change) bool {
				id := strings.HasSuffix(c.pointer, "/id") || op.ID == "listObjectTypes" && strings.HasSuffix(c.pointer, "/name")
				whole := strings.HasSuffix(c.pointer, "/rules/0")
				return id && (c.what == dropped || c.what == "null") || whole && (c.what == "null" || c.what == "{}")
			},
		},
		{
			"A list has at most limit records. The client allows 100, whatever the limit.", client,
			func(op *contract.Operation, c change) bool {
				records := op.Responses[0].Records
				return records != nil && records.AtMost > 0 && c.pointer == "/"+records.In
			},
		},
		{
			"A conversation has at most 500 messages. The client reads any number.", client,
			func(_ *contract.Operation, c change) bool { return c.pointer == "/conversation/messages" },
		},
		{
			"A question or service is read alone only before it is deleted, when the client checks its types but not its bounds.", client,
			func(op *contract.Operation, _ change) bool { return op.ID == "getFaq" || op.ID == "getService" },
		},
		{
			"The language compares one member with the path, and none of lists: the type of an object is not compared where its id is.", document,
			func(op *contract.Operation, c change) bool {
				return op.Resource == "objects" && strings.HasSuffix(c.pointer, "/type")
			},
		},
		{
			"The language cannot say that the address is the one that was sent.", document,
			func(op *contract.Operation, c change) bool { return op.ID == "signIn" && c.pointer == "/account/email" },
		},
		{
			"The language counts characters, and the client for accounts bytes.", document,
			func(op *contract.Operation, c change) bool {
				return op.Tenant == contract.TenantNone && strings.HasPrefix(c.what, `"é`)
			},
		},
		{
			"An error has at most 1,000 details, which are objects. The client reads any number, and takes null for an empty one.", client,
			func(_ *contract.Operation, c change) bool {
				return c.status >= 400 && (c.pointer == "/details" || c.pointer == "/details/0" && c.what == "null")
			},
		},
		{
			"Of an error of the calls for accounts, the client reads only the code.", client,
			func(op *contract.Operation, c change) bool {
				return op.Tenant == contract.TenantNone && c.pointer == "/error"
			},
		},
		{
			"The language has no 401 of a service, which otherwise means that it rejects the gateway.", client,
			func(op *contract.Operation, c change) bool {
				return op.ID == "signIn" && c.status == http.StatusUnauthorized
			},
		},
		{
			"The language leaves the body of 429 to the gateway. The client for accounts treats it as an outage.", document,
			func(op *contract.Operation, c change) bool {
				return op.ID == "signIn" && c.status == http.StatusTooManyRequests
			},
		},
	}
}

// change is a change of a response.
type change struct {
	status  int
	pointer string
	what    string
	body    []byte
}

const dropped = "is missing"

// changes returns a body with each member changed in several ways, of each list only in the first item. Values at the bounds of a schema are
// in it once for all bodies, which known is for.
func changes(seed string, s *contract.Schema, body []byte, known map[*contract.Schema]bool) (all []change) {
	var root any
	if json.Unmarshal(body, &root) != nil {
		panic("not JSON")
	}
	add := func(pointer, what string) {
		text, err := json.Marshal(root)
		if err != nil {
			panic(err)
		}
		all = append(all, change{0, pointer, what, text})
	}
	var walk func(pointer string, s *contract.Schema, v any, set func(any))
	walk = func(pointer string, s *contract.Schema, v any, set func(any)) {
		values := others(seed + pointer)
		if !known[s] {
			values = append(values, atBounds(s, v)...)
		}
		known[s] = true
		for _, value := range values {
			set(value)
			text, _ := json.Marshal(value)
			add(pointer, string(text[:min(len(text), 40)]))
		}
		set(v)
		switch v := v.(type) {
		case object:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				p := s.Property(name)
				if p == nil {
					continue
				}
				value := v[name]
				delete(v, name)
				add(pointer+"/"+name, dropped)
				v[name] = value
				walk(pointer+"/"+name, p.Schema, value, func(value any) { v[name] = value })
			}
			if !s.FreeJSON() && s.Additional == nil {
				v["more"] = object{"business_id": "x"}
				add(pointer+"/more", "is added")
				delete(v, "more")
			}
		case []any:
			if len(v) > 0 {
				walk(pointer+"/0", s.Items, v[0], func(value any) { v[0] = value })
			}
		}
	}
	walk("", s, root, func(value any) { root = value })
	return all
}

// others returns null, and two values of other types, which are always the same for a seed.
func others(seed string) []any {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed))
	random := rand.New(rand.NewPCG(1, h.Sum64()))
	kinds := []any{true, "x", 7, 1.5, []any{}, object{}}
	random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	return append(kinds[:2], nil)
}

// atBounds returns values at and beyond the bounds of a schema.
func atBounds(s *contract.Schema, v any) (all []any) {
	r := s.Rules
	if r == nil {
		return nil
	}
	list, _ := v.([]any)
	switch {
	case s.Types&contract.TypeString != 0 && r.MaxLength >= 0:
		all = append(all, strings.Repeat("é", r.MaxLength), strings.Repeat("x", r.MaxLength), strings.Repeat("x", r.MaxLength+1), "", " ", "x y", "\t")
	case s.Types&contract.TypeString != 0:
		all = append(all, "", " ", "x", "24:00", "23:59", "99:99")
	case s.Types&(contract.TypeInteger|contract.TypeNumber) != 0:
		for _, bound := range []string{r.Min, r.Max} {
			n, err := strconv.ParseInt(bound, 10, 64)
			if err == nil {
				all = append(all, n-1, n, n+1)
			}
		}
		all = append(all, 0, 0.5)
	case len(list) > 0 && r.MaxItems >= 0:
		most := slices.Repeat(list[:1], r.MaxItems)
		all = append(all, most, append(most, list[0]))
	}
	for _, e := range r.Enum {
		if text, ok := strings.CutPrefix(e, `"`); ok {
			all = append(all, text, strings.ToUpper(text))
		}
	}
	return all
}

func TestTheDefinitionAcceptsWhatTheClientAccepts(t *testing.T) {
	t.Parallel()
	d := drive(t)
	done, differs := map[string]bool{}, differences()
	found := make([]bool, len(differs))
	bounds, deleted := map[*contract.Schema]bool{}, map[*contract.Schema]bool{} // what is read before it is deleted is checked less
	for _, m := range d.all() {
		for _, e := range m.exchanges {
			if done[e.op.ID] || bytes.Contains(e.response, []byte(`":[],"next_cursor"`)) {
				continue
			}
			done[e.op.ID] = true
			known := bounds
			if strings.HasSuffix(m.name, "_delete") {
				known = deleted
			}
			for _, c := range responses(e, known) {
				accepted, failed := d.accepted(m, e, c), d.check(e, c.status, c.body)
				if accepted == (failed == nil) {
					continue
				}
				who := map[bool]string{true: client, false: document}[accepted]
				i := slices.IndexFunc(differs, func(k difference) bool { return k.accepts == who && k.is(e.op, c) })
				if assert.GreaterOrEqual(t, i, 0, "%s (%s) with %d: %s %s: only %s accepts it: %v", e.op.ID, m.name, c.status, c.pointer, c.what, who, failed) {
					found[i] = true
				}
			}
		}
	}
	assert.Len(t, done, len(d.api.Operations()))
	for i, k := range differs {
		assert.True(t, found[i], "there is no such difference: %s", k.why)
	}
}

// responses returns changed responses: that of success, and the documented errors.
func responses(e *exchange, known map[*contract.Schema]bool) (all []change) {
	for _, r := range e.op.Responses {
		body := e.response
		if r.Status != e.status {
			if known[r.Body] {
				continue // the errors are the same everywhere
			}
			code := map[int]string{
				http.StatusBadRequest: "INVALID_REQUEST", http.StatusForbidden: "FORBIDDEN", http.StatusNotFound: "NOT_FOUND",
				http.StatusConflict: "CONFLICT", http.StatusPreconditionFailed: "VERSION_MISMATCH",
				http.StatusRequestEntityTooLarge: "BODY_TOO_LARGE", http.StatusUnprocessableEntity: "INVALID",
				http.StatusTooManyRequests: "BUSY",
			}[r.Status]
			body = fmt.Appendf(nil, `{"error":"No.","code":%q,"details":[{"field":"a","problem":"is bad","allowed":"b"}]}`, code)
		}
		of := changes(fmt.Sprint(e.op.ID, r.Status), r.Body, body, known)
		for i := range of {
			of[i].status = r.Status
		}
		all = append(all, of...)
	}
	if e.op.ID == "signIn" {
		all = append(all, change{status: http.StatusUnauthorized, body: []byte(`{"error":"No.","code":"INVALID_CREDENTIALS"}`)})
	}
	return all
}

// accepted repeats a call with a changed response to one of its requests, and returns whether the client accepts it.
func (d *driver) accepted(m *made, e *exchange, c change) (accepted bool) {
	d.Helper()
	d.during(func(x *exchange) bool {
		i := slices.IndexFunc(m.exchanges, func(before *exchange) bool { return before.key() == x.key() })
		if !assert.GreaterOrEqual(d, i, 0, "%s: another request: %s", m.name, x.key()) {
			return false
		}
		if x.status, x.response = m.exchanges[i].status, m.exchanges[i].response; x.key() == e.key() {
			x.status, x.response = c.status, c.body
		}
		return true
	}, func() { accepted = m.again() })
	return accepted
}

// The arguments of a tool become parameters and bodies. What the tool accepts, the document must accept as a request, and what it rejects,
// the document must reject.
func TestTheDefinitionBoundsRequestsAsTheToolsDo(t *testing.T) {
	t.Parallel()
	d := drive(t)
	known := map[*contract.Schema]bool{}
	tried := 0
	try := func(m *made, arguments object, refused func() error, what string) {
		tried++
		var valid bool
		sent := d.during(func(x *exchange) bool {
			x.status, x.response = http.StatusConflict, []byte(`{"error":"No.","code":"CONFLICT"}`)
			return true
		}, func() { _, valid = d.accepts(m.name, arguments) })
		if !assert.Equal(t, valid, len(sent) > 0, "%s: %s", m.name, what) {
			return
		}
		if valid {
			assert.NoError(t, sent[0].refused, "%s: %s: only the tool accepts it", m.name, what)
			return
		}
		assert.Error(t, refused(), "%s: %s: only the document accepts it", m.name, what)
	}
	for _, m := range d.all() {
		if m.arguments == nil || len(m.exchanges) != 1 {
			continue
		}
		e := m.exchanges[0]
		for _, p := range e.op.Params {
			if known[p.Schema] && p.Name != "query" {
				continue
			}
			known[p.Schema] = true
			for _, value := range append(atBounds(p.Schema, nil), "2026-02-30T00:00:00Z") {
				text := fmt.Sprint(value)
				_, isText := value.(string)
				if isText != (p.Schema.Types&contract.TypeString != 0) || text == "" { // an empty parameter is absent
					continue
				}
				if p.Name == "query" && strings.TrimSpace(text) == "" {
					continue // the language has no control characters in parameters
				}
				arguments := maps.Clone(m.arguments)
				arguments[p.Name] = value
				try(m, arguments, func() error {
					query, _ := url.ParseQuery(e.match.Query)
					query.Set(p.Name, text)
					path, _, _ := strings.Cut(e.target, "?")
					return d.checkRequest(e.op.Method, &exchange{target: path + "?" + query.Encode(), business: e.business})
				}, p.Name+" "+text[:min(len(text), 40)])
			}
		}
		if len(e.body) == 0 {
			continue
		}
		for _, c := range changes(e.op.ID, e.op.Body.Kinds[0].Schema, e.body, known) {
			var before, after object
			require.NoError(t, json.Unmarshal(e.body, &before))
			if json.Unmarshal(c.body, &after) != nil || after == nil {
				continue // a tool always has an object
			}
			arguments := maps.Clone(m.arguments)
			maps.DeleteFunc(arguments, func(name string, _ any) bool { return before[name] != nil || m.arguments[name] == nil })
			if maps.Copy(arguments, after); len(after) == 0 {
				delete(arguments, "if_version") // which some tools count as a change
			}
			try(m, arguments, func() error { return d.checkBody(e, c.body) }, c.pointer+" "+c.what)
		}
	}
	assert.Greater(t, tried, 500)
}

// The ids of records have the characters of a segment of a path. A tool takes others too, for which the document has no request.
func TestIDsInPathsAreSegments(t *testing.T) {
	t.Parallel()
	d := drive(t)
	for id, refused := range map[string]bool{"a-b_c.d~1": false, "a:b": true, "a/b": true, "a%20b": true} {
		sent := d.during(nil, func() { d.accepts("jobs_get", object{"id": id}) })
		require.Len(t, sent, 1)
		assert.Equal(t, refused, sent[0].refused != nil, id)
	}
}

// What the language counts or compares in another way than the client. These values are on one side of a difference each.
func TestTheDefinitionAndTheClientDifferInThese(t *testing.T) {
	t.Parallel()
	d := drive(t)
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	made := map[string]*made{}
	for _, m := range d.all() {
		made[m.name] = m
	}
	for _, test := range []struct {
		why, tool, member, value string
		status                   int
		accepts                  string
	}{
		{"The client takes every status of success.", "contacts_get", "notes", "null", http.StatusNonAuthoritativeInfo, client},
		{"The client removes invisible characters first.", "contacts_get", "contact_type", `"lead\u200b"`, http.StatusOK, client},
		{"RFC 3339 has leap seconds.", "contacts_get", "date_created", `"2026-03-05T14:30:60Z"`, http.StatusOK, document},
		{"RFC 3339 has lower case.", "contacts_get", "date_created", `"2026-03-05t14:30:00z"`, http.StatusOK, document},
		{"Free JSON has numbers of any size.", "objects_get", "fields", `{"a":1e400}`, http.StatusOK, document},
		{"The levels of a whole response are counted.", "objects_get", "fields", deep(63), http.StatusOK, client},
		{"Free JSON has at most 1,000 members.", "objects_get", "fields", manyMembers(), http.StatusOK, client},
	} {
		m := made[test.tool]
		e := m.exchanges[0]
		var whole map[string]map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(e.response, &whole))
		for _, record := range whole {
			require.Contains(t, record, test.member)
			record[test.member] = json.RawMessage(test.value)
		}
		body, err := json.Marshal(whole)
		require.NoError(t, err)
		accepted := d.accepted(m, e, change{status: test.status, body: body})
		assert.Equal(t, test.accepts == client, accepted, test.why)
		assert.Equal(t, test.accepts == document, d.check(e, test.status, body) == nil, test.why)
	}
}

func manyMembers() string {
	var members []string
	for i := range 1001 {
		members = append(members, fmt.Sprintf(`"m%d":1`, i))
	}
	return "{" + strings.Join(members, ",") + "}"
}
