package mcp_test

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/internal/demo" //nolint:depguard // the service that the tools are for
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// before calls a function before the requests with a method are sent, for as long as it returns true.
func (s *setup) before(method string, f func(*http.Request) bool) {
	var mu sync.Mutex
	active := true
	s.upstream.breakWith(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == method && active {
			active = f(r)
		}
		return nil, nil // is sent on
	})
}

// newFAQ adds a question and returns it.
func newFAQ(t *testing.T, s *setup, question string) object {
	t.Helper()
	return call(t, s.connect(modern, "bearer", nil), "receptionist_faq_upsert", object{"question": question, "answer": "As before.", "enabled": false})["faq"].(object)
}

func TestReplacementKeepsWhatAnotherCallerChangesMeanwhile(t *testing.T) {
	t.Parallel()
	service := fresh(t, demo.Options{})
	s, other := newSetup(t, service), newSetup(t, service)
	c, rival := s.connect(modern, "bearer", nil), other.connect(modern, "bearer", nil)
	for name, times := range map[string]int{"once": 1, "twice": 2} {
		faq := newFAQ(t, s, "Raced "+name+"?")
		left := times
		s.before(http.MethodPut, func(*http.Request) bool {
			left--
			call(t, rival, "receptionist_faq_upsert", object{"id": faq["id"], "answer": strings.Repeat("Better.", times-left)})
			return left > 0
		})
		changed := call(t, c, "receptionist_faq_upsert", object{"id": faq["id"], "enabled": true})["faq"].(object)
		require.Equal(t, true, changed["enabled"])
		require.Equal(t, strings.Repeat("Better.", times), changed["answer"])
		require.Equal(t, faq["question"], changed["question"])
	}
}

func TestConcurrentReplacementsOfDifferentMembersBothSurvive(t *testing.T) {
	t.Parallel()
	s := newSetup(t, fresh(t, demo.Options{}))
	for range 5 {
		faq := newFAQ(t, s, "Concurrent "+rand.Text()[:8]+"?")
		changes := []object{{"answer": "Changed."}, {"enabled": true}, {"question": "Also changed " + rand.Text()[:8] + "?"}}
		var group sync.WaitGroup
		for _, change := range changes {
			c := s.connect(modern, "bearer", nil)
			group.Go(func() {
				res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "receptionist_faq_upsert", Arguments: with(change, "id", faq["id"])})
				if assert.NoError(t, err) {
					assert.False(t, res.IsError, textOf(res))
				}
			})
		}
		group.Wait()
		now := faqWith(t, s, faq["id"])
		for _, change := range changes {
			for name, value := range change {
				assert.Equal(t, value, now[name], name)
			}
		}
	}
}

func faqWith(t *testing.T, s *setup, id any) object {
	t.Helper()
	c := s.connect(modern, "bearer", nil)
	cursor := any(nil)
	for {
		page := call(t, c, "receptionist_faqs_list", object{"limit": 100, "cursor": cursor})
		for _, faq := range page["faqs"].([]any) {
			if faq.(object)["id"] == id {
				return faq.(object)
			}
		}
		cursor = page["next_cursor"]
		require.NotNil(t, cursor, "no such question")
	}
}

func TestReplacementGivesUpIfTheRecordKeepsChanging(t *testing.T) {
	t.Parallel()
	service := fresh(t, demo.Options{})
	s, other := newSetup(t, service), newSetup(t, service)
	c, rival := s.connect(modern, "bearer", nil), other.connect(modern, "bearer", nil)
	faq := newFAQ(t, s, "Contended?")
	answers := 0
	s.before(http.MethodPut, func(*http.Request) bool {
		answers++
		call(t, rival, "receptionist_faq_upsert", object{"id": faq["id"], "answer": strings.Repeat("x", answers)})
		return true
	})
	fails(t, c, "receptionist_faq_upsert", object{"id": faq["id"], "enabled": true}, "CHANGED_MEANWHILE", "Nothing was changed")
	require.Equal(t, 3, s.upstream.count(http.MethodPut, ""))
	now := faqWith(t, s, faq["id"])
	assert.Equal(t, false, now["enabled"])
	assert.Equal(t, "xxx", now["answer"])
	entries := s.entries()
	assert.Equal(t, audit.OutcomeFailed, entries[len(entries)-1].Outcome)
}

func TestReplacementOfAnOldVersionChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSetup(t, fresh(t, demo.Options{}))
	c := s.connect(modern, "bearer", nil)
	faq := newFAQ(t, s, "Versioned?")
	old := faq["version"]
	newer := call(t, c, "receptionist_faq_upsert", object{"id": faq["id"], "answer": "Newer.", "if_version": old})["faq"].(object)
	puts := s.upstream.count(http.MethodPut, "")
	fails(t, c, "receptionist_faq_upsert", object{"id": faq["id"], "enabled": true, "if_version": old}, "CHANGED_MEANWHILE", "Nothing was changed")
	require.Equal(t, puts, s.upstream.count(http.MethodPut, ""), "nor is it tried with another version")
	for _, wrong := range []any{0, -1, 99, 1.5, "x", object{}} {
		fails(t, c, "receptionist_faq_upsert", object{"id": faq["id"], "enabled": true, "if_version": wrong}, "Nothing was changed")
		fails(t, c, "receptionist_personality_update", object{"name": "Eve", "if_version": wrong}, "Nothing was changed")
	}
	said := fails(t, c, "receptionist_personality_update", object{"name": "Eve", "if_version": 0}, "if_version is not a version of this record")
	require.NotContains(t, said, "If-Match", "an assistant knows no headers")
	require.Equal(t, newer, faqWith(t, s, faq["id"]))
	fails(t, c, "receptionist_faq_upsert", object{"question": "q", "answer": "a", "if_version": 1}, "if_version", "requires id")
	fails(t, c, "receptionist_faq_upsert", object{"id": faq["id"]}, "contains no change")
	fails(t, c, "receptionist_faq_upsert", object{"id": faq["id"], "enabled": nil}, "contains no change")
	fails(t, c, "receptionist_faq_upsert", object{"question": "q"}, "answer", "required")
}

func TestLostReplyToAReplacement(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lost int // replies to PUT
		ok   bool
	}{"once": {1, true}, "also to the repetition": {2, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, fresh(t, demo.Options{}))
			c := s.connect(modern, "bearer", nil)
			faq := newFAQ(t, s, "Lost?")
			left := test.lost
			s.upstream.breakWith(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodPut || left == 0 {
					return nil, nil
				}
				left--
				res, err := http.DefaultTransport.RoundTrip(r)
				if err == nil {
					_ = res.Body.Close()
				}
				return nil, errBroken
			})
			arguments := object{"id": faq["id"], "answer": "After the loss."}
			if test.ok {
				call(t, c, "receptionist_faq_upsert", arguments)
			} else {
				fails(t, c, "receptionist_faq_upsert", arguments, "may or may not have been made")
				entries := s.entries()
				assert.Equal(t, audit.OutcomeUnknown, entries[len(entries)-1].Outcome)
				call(t, c, "receptionist_faq_upsert", arguments) // harms nothing
			}
			now := faqWith(t, s, faq["id"])
			for _, member := range []string{"version", "updated_at", "answer"} {
				delete(now, member)
				delete(faq, member)
			}
			assert.Equal(t, faq, now)
		})
	}
}

// What is written back is what was read, and not what an assistant sees of it.
func TestReplacementWritesBackHiddenCharacters(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	const question = "Do you ❤\ufe0f caf\u00e9s\u00ad, in\u2028lines?"
	put := make(chan object, 1)
	s.upstream.breakWith(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPut {
			var sent object
			if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
				return nil, err
			}
			put <- sent
			assert.Equal(t, []string{`"7"`}, r.Header["If-Match"])
		}
		body := connecttest.Record("faq", object{"question": question, "version": 7})
		return response(200, "application/json", strings.ReplaceAll(body, connecttest.Business, s.owner.BusinessID)), nil
	})
	shown := call(t, s.connect(modern, "bearer", nil), "receptionist_faq_upsert", object{"id": "a", "enabled": false})["faq"].(object)
	assert.Equal(t, object{"question": question, "answer": "Yes.", "enabled": false}, <-put)
	assert.Equal(t, "Do you ❤ cafés, in\nlines?", shown["question"])
}

// A record of another business, or another record, must not be merged with the caller's change.
func TestReplacementOfAWrongRecordIsRejected(t *testing.T) {
	t.Parallel()
	for name, instead := range map[string]object{
		"of another business": {"business_id": "biz_2"}, "of none": {"business_id": connecttest.Absent}, "another": {"id": "b"},
		"without a version": {"version": connecttest.Absent}, "with a null for a version": {"version": nil},
		"without a member": {"answer": connecttest.Absent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, shared)
			s.respond(200, "application/json", connecttest.Record("faq", instead))
			fails(t, s.connect(modern, "bearer", nil), "receptionist_faq_upsert", object{"id": "a", "enabled": false},
				"DATA_SERVICE_INVALID_RESPONSE", "Nothing was changed")
			assert.Zero(t, s.upstream.count(http.MethodPut, ""))
		})
	}
}

// Of every tool that updates, each member is changed alone. All others stay.
func TestNoUpdateLosesAMemberThatItDoesNotMention(t *testing.T) {
	t.Parallel()
	s := newSetup(t, fresh(t, demo.Options{}))
	c := s.connect(modern, "bearer", nil)
	contact := call(t, c, "contacts_create", object{
		"first_name": "Ada", "last_name": "Berg", "email": "ada@example.com", "phone_number": "6085550123", "country_code": "+1",
		"contact_type": "customer", "contact_status": "active", "notes": "Two\nlines.",
	})["contact"].(object)
	call(t, c, "receptionist_personality_update", object{"instructions": "Be brief."})
	faq := newFAQ(t, s, "Kept?")
	offering := call(t, c, "receptionist_service_upsert", object{
		"name": "Kept", "description": "All of it.", "duration_minutes": 60, "price": "80.50", "bookable": true,
	})["service"].(object)
	vehicle := call(t, c, "objects_create", object{"type": "vehicles", "fields": object{"plate": "KEPT 1", "make": "Calder", "year": 2020}})["object"].(object)
	call(t, c, "service_areas_set", object{"add": []any{object{"name": "Kept", "kind": "city", "radius_km": 5}}})
	rules := call(t, c, "receptionist_rules_update", object{"add": []any{object{"when": "first", "then": "one"}, object{"when": "second", "then": "two"}}})
	added := rules["receptionist"].(object)["rules"].([]any)
	rule := added[len(added)-2].(object)

	get := func(tool string, arguments object, names ...string) func() object {
		return func() object {
			content := call(t, c, tool, arguments)
			for _, name := range names {
				content = content[name].(object)
			}
			return content
		}
	}
	type update struct {
		base    object          // arguments
		read    func() object   // the record
		changes []object        // arguments, one by one
		inside  map[string]bool // members that are changed in parts: looked at below
	}
	updates := map[string]update{
		"business_update": {object{}, get("business_get", nil, "business"), []object{
			{"name": "Renamed"},
			{"email": "new@example.com"},
			{"phone": "+12025550143"},
			{"website_url": "https://new.example/"},
			{"time_zone": "Europe/Oslo"},
			{"clear": []any{"email"}},
			{"clear": []any{"phone"}},
			{"clear": []any{"website_url"}},
		}, nil},
		"business_hours_set": {object{}, get("business_get", nil, "hours"), []object{{"days": []any{object{"day": "sunday", "spans": []any{object{"open": "10:00", "close": "11:00"}}}}}}, map[string]bool{"days": true}},
		"service_areas_set":  {object{}, get("business_get", nil, "service_areas"), []object{{"add": []any{object{"name": "Added", "kind": "region"}}}}, map[string]bool{"service_areas": true}},
		"contacts_update": {object{"id": contact["id"]}, get("contacts_get", object{"id": contact["id"]}, "contact"), []object{
			{"first_name": "A"},
			{"last_name": "B"},
			{"email": "b@example.com"},
			{"phone_number": "6085550199", "country_code": "+1"},
			{"contact_type": "lead"},
			{"contact_status": "inactive"},
			{"notes": "N"},
			{"clear": []any{"last_name"}},
			{"clear": []any{"email"}},
			{"clear": []any{"notes"}},
			{"clear": []any{"phone_number", "country_code"}},
		}, nil},
		"receptionist_personality_update": {object{}, get("receptionist_get", nil, "receptionist", "personality"), []object{
			{"name": "Eve"}, {"tone": "formal"}, {"greeting": "Hi."}, {"language": "nb"}, {"instructions": "None."}, {"clear": []any{"instructions"}},
		}, nil},
		"receptionist_rules_update": {object{}, get("receptionist_get", nil, "receptionist"), []object{
			{"add": []any{object{"when": "third", "then": "three"}}},
			{"change": []any{object{"id": rule["id"], "enabled": false}}},
			{"change": []any{object{"id": rule["id"], "when": "firstly"}}},
		}, map[string]bool{"rules": true}},
		"receptionist_faq_upsert": {object{"id": faq["id"]}, func() object { return faqWith(t, s, faq["id"]) }, []object{
			{"question": "Kept still?"}, {"answer": "Certainly."}, {"enabled": true},
		}, nil},
		"receptionist_service_upsert": {object{"id": offering["id"]}, func() object {
			return first(t, call(t, c, "receptionist_services_list", object{"query": "kept"}), "services")
		}, []object{
			{"name": "Kept well"},
			{"description": "Nothing."},
			{"duration_minutes": 90},
			{"price": "1.00"},
			{"bookable": false},
			{"clear": []any{"description"}},
			{"clear": []any{"price"}},
			{"clear": []any{"duration_minutes"}},
		}, nil},
		"objects_update": {object{"type": "vehicles", "id": vehicle["id"]}, get("objects_get", object{"type": "vehicles", "id": vehicle["id"]}, "object", "fields"), []object{
			{"fields": object{"plate": "KEPT 2"}}, {"fields": object{"year": 2021}}, {"fields": object{"year": nil}},
		}, nil},
	}
	for _, tool := range connecttest.Definition(t).Tools {
		if tool.Kind == definition.KindUpdate {
			require.Contains(t, updates, tool.Name, "a tool that is not tested")
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(updates)) {
		u := updates[tool]
		for _, change := range u.changes {
			was := u.read()
			arguments := maps.Clone(u.base)
			maps.Copy(arguments, change)
			call(t, c, tool, arguments)
			now := u.read()
			if fields, ok := change["fields"].(object); ok {
				change = fields
			}
			if names, ok := change["clear"].([]any); ok {
				change = object{}
				for _, name := range names {
					change[name.(string)] = nil
				}
			}
			require.NotEqual(t, was, now, "%s %v changes nothing", tool, change)
			for name, value := range was {
				switch named, ok := change[name]; {
				case name == "version", name == "updated_at", name == "date_modified", u.inside[name]:
				case ok && named == nil && now[name] == nil:
				case ok:
					require.Equal(t, toJSON(t, named), toJSON(t, now[name]), "%s %v: %s", tool, change, name)
				default:
					require.Equal(t, value, now[name], "%s %v: %s", tool, change, name)
				}
			}
			for name := range u.inside {
				requireOneChange(t, was[name].([]any), now[name].([]any), tool)
			}
		}
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// requireOneChange requires that at most one item of a list was changed or added, and none is gone.
func requireOneChange(t *testing.T, was, now []any, tool string) {
	t.Helper()
	require.GreaterOrEqual(t, len(now), len(was), tool)
	known := map[string]bool{}
	for _, item := range was {
		known[toJSON(t, item)] = true
	}
	var differ []string
	for _, item := range now {
		if !known[toJSON(t, item)] {
			differ = append(differ, toJSON(t, item))
		}
	}
	require.Len(t, differ, 1, tool)
}

// A PUT has all that the service may not lose; a PATCH has nothing that was not said.
func TestUpdatesSendNothingThatWasNotSaid(t *testing.T) {
	t.Parallel()
	s := newSetup(t, fresh(t, demo.Options{}))
	c := s.connect(modern, "bearer", nil)
	id := create(t, s, "Sent")
	bodies := make(chan string, 1)
	s.before(http.MethodPatch, func(r *http.Request) bool {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		bodies <- string(body)
		return true
	})
	for _, test := range []struct {
		tool      string
		arguments object
		want      string
	}{
		{"contacts_update", object{"id": id, "clear": []any{"notes"}, "first_name": nil, "email": nil}, `{"notes":null}`},
		{"business_update", object{"name": "N", "email": "null@example.com"}, `{"name":"N","email":"null@example.com"}`},
		{"receptionist_rules_update", object{"add": object{"when": "w", "then": "t"}}, `{"add":[{"when":"w","then":"t"}]}`},
	} {
		call(t, c, test.tool, test.arguments)
		assert.JSONEq(t, test.want, <-bodies)
	}
}
