package mcp_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/internal/demo" //nolint:depguard // the service that the tools are for
)

// task is a request of testdata/tasks.yaml, which explains the members.
type task struct {
	Request string
	Client  string
	Calls   []map[string]any
	Answer  []string
	Finds   map[string]int
	Changes map[string]any
}

// step is a call of a task.
type step struct {
	tool      string
	arguments object
	fails     string
}

const (
	clientAsks    = "asks"
	keyFails      = "fails"
	maxCallsOfOne = 4 // of a task
)

// readTasks returns the tasks, as JSON has their values.
func readTasks(t *testing.T) (tasks []task) {
	t.Helper()
	content, err := os.ReadFile("testdata/tasks.yaml")
	require.NoError(t, err)
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&tasks))
	for i := range tasks {
		tasks[i].Changes = asJSON(t, tasks[i].Changes).(map[string]any)
		for j := range tasks[i].Calls {
			tasks[i].Calls[j] = asJSON(t, tasks[i].Calls[j]).(object)
		}
	}
	return tasks
}

func asJSON(t *testing.T, v any) (same any) {
	t.Helper()
	encoded, err := json.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(encoded, &same))
	if same == nil {
		return object(nil)
	}
	return same
}

// steps returns the calls of a task.
func (k *task) steps(t *testing.T) (all []step) {
	t.Helper()
	for _, c := range k.Calls {
		s := step{}
		for name, value := range c {
			if name == keyFails {
				s.fails = value.(string)
				continue
			}
			require.Empty(t, s.tool, "two tools in one call: %v", c)
			s.tool, s.arguments = name, value.(object)
		}
		all = append(all, s)
	}
	return all
}

// TestTasks makes the calls of each task against the demo. Whatever a task writes, nothing else in the business may change.
func TestTasks(t *testing.T) {
	t.Parallel()
	tasks := readTasks(t)
	require.GreaterOrEqual(t, len(tasks), 60)
	reading := newSetup(t, fresh(t, demo.Options{}))
	tools := listedTools(t, reading)
	used := map[string]bool{}
	requests := map[string]bool{}
	for _, k := range tasks {
		require.False(t, requests[k.Request], "twice: %s", k.Request)
		requests[k.Request] = true
		require.LessOrEqual(t, len(k.Calls), maxCallsOfOne, k.Request)
		writes := false
		for _, s := range k.steps(t) {
			require.Contains(t, tools, s.tool, k.Request)
			used[s.tool] = true
			writes = writes || !tools[s.tool].reads
		}
		require.Equal(t, writes, k.Changes != nil, "%s: say under changes what changes", k.Request)
		t.Run(k.Request, func(t *testing.T) {
			t.Parallel()
			if !writes {
				k.run(t, reading, tools, nil)
				return
			}
			service := fresh(t, demo.Options{Pace: time.Millisecond})
			s := newSetup(t, service)
			before := snapshot(t, service, s.owner, nil)
			values := k.run(t, s, tools, before)
			after := snapshot(t, service, s.owner, before)
			assert.Equal(t, values.resolve(t, k.Changes), changed(before, after))
		})
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(tools)), slices.Collect(maps.Keys(used)), "every tool is in a task")
}

// listedTool is what a client knows of a tool.
type listedTool struct {
	reads     bool
	arguments *jsonschema.Schema
}

// listedTools returns the tools that are listed, by name. The schemas of their arguments permit only documented members, at any depth.
func listedTools(t *testing.T, s *setup) map[string]listedTool {
	t.Helper()
	listed, err := s.connect(modern, "bearer", nil).ListTools(t.Context(), nil)
	require.NoError(t, err)
	tools := map[string]listedTool{}
	for _, tool := range listed.Tools {
		closeSchema(tool.InputSchema)
		compiler := jsonschema.NewCompiler()
		require.NoError(t, compiler.AddResource(tool.Name, tool.InputSchema))
		compiled, err := compiler.Compile(tool.Name)
		require.NoError(t, err)
		tools[tool.Name] = listedTool{reads: tool.Annotations.ReadOnlyHint, arguments: compiled}
	}
	return tools
}

// closeSchema rejects further members, wherever a schema does not allow them.
func closeSchema(v any) {
	s, ok := v.(object)
	if !ok {
		return
	}
	if properties, ok := s["properties"].(object); ok && s["additionalProperties"] == nil {
		s["additionalProperties"] = false
		for _, p := range properties {
			closeSchema(p)
		}
	}
	closeSchema(s["items"])
	alternatives, _ := s["anyOf"].([]any)
	for _, one := range alternatives {
		closeSchema(one)
	}
}

// run makes the calls of a task, and checks the answer.
func (k *task) run(t *testing.T, s *setup, tools map[string]listedTool, before []listedRecord) *values {
	t.Helper()
	var o *sdk.ClientOptions
	if k.Client == clientAsks {
		o = (&user{action: "accept", content: object{"confirm": true}}).options()
	} else {
		require.Empty(t, k.Client)
		s.mu.Lock()
		g := s.grants["bearer"]
		g.Unasked = true // the owner permits runs that write to people
		s.grants["bearer"] = g
		s.mu.Unlock()
	}
	c := s.connect(modern, "bearer", o)
	v := &values{now: time.Now(), before: before}
	var last string
	for _, step := range k.steps(t) {
		arguments := v.resolve(t, step.arguments).(object)
		require.NoError(t, tools[step.tool].arguments.Validate(asJSON(t, arguments)), "%s %v", step.tool, arguments)
		if step.fails != "" {
			last = fails(t, c, step.tool, arguments, "Error "+step.fails+": ")
			if found := confirmToken.FindStringSubmatch(last); found != nil {
				v.token = found[1]
			}
			continue
		}
		content := call(t, c, step.tool, arguments)
		v.results = append(v.results, content)
		encoded, err := json.Marshal(content)
		require.NoError(t, err)
		last = string(encoded)
	}
	k.check(t, v, last)
	return v
}

// check requires that the last result has what was asked for.
func (k *task) check(t *testing.T, v *values, last string) {
	t.Helper()
	for _, part := range k.Answer {
		var sorted any
		if json.Unmarshal([]byte(part), &sorted) == nil { // members in the same order
			encoded, err := json.Marshal(sorted)
			require.NoError(t, err)
			part = string(encoded)
		}
		assert.Contains(t, last, part)
	}
	for name, n := range k.Finds {
		assert.Len(t, v.results[len(v.results)-1][name], n, last)
	}
}

// values are what braces in tasks stand for.
type values struct {
	results []object // of the calls so far
	token   string
	now     time.Time
	before  []listedRecord
}

var (
	inBraces = regexp.MustCompile(`\{[^{}"]+\}`)
	relative = regexp.MustCompile(`^(now|today|date)(?:([+-][0-9]+)d)?$`)
	selector = regexp.MustCompile(`^([a-z_]+)((?:\[[^\]]+\])*)$`)
)

// resolve returns JSON with the values of what is in braces.
func (v *values) resolve(t *testing.T, in any) any {
	t.Helper()
	switch in := in.(type) {
	case string:
		if inBraces.FindString(in) == in && in != "" {
			return v.value(t, in[1:len(in)-1])
		}
		return inBraces.ReplaceAllStringFunc(in, func(name string) string { return fmt.Sprint(v.value(t, name[1:len(name)-1])) })
	case []any:
		out := make([]any, 0, len(in))
		for _, one := range in {
			out = append(out, v.resolve(t, one))
		}
		return out
	case map[string]any:
		out := object{}
		for name, one := range in {
			out[v.resolve(t, name).(string)] = v.resolve(t, one)
		}
		return out
	}
	return in
}

// value returns what a name in braces stands for.
func (v *values) value(t *testing.T, name string) any {
	t.Helper()
	zone, err := time.LoadLocation("America/Chicago")
	require.NoError(t, err)
	now := v.now.In(zone)
	today := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, zone)
	if day, ok := strings.CutPrefix(name, "date "); ok {
		return v.next(t, today, day)
	}
	if name == "token" {
		require.NotEmpty(t, v.token)
		return v.token
	}
	if found := relative.FindStringSubmatch(name); found != nil {
		days, err := strconv.Atoi(cmp.Or(found[2], "0"))
		require.NoError(t, err)
		switch found[1] {
		case "now":
			return now.AddDate(0, 0, days).Format(time.RFC3339)
		case "today":
			return today.AddDate(0, 0, days).Format(time.RFC3339)
		}
		return today.AddDate(0, 0, days).Format(time.DateOnly)
	}
	path := strings.Split(name, ".")
	for _, result := range slices.Backward(v.results) {
		if first, _, _ := strings.Cut(path[0], "["); result[first] != nil {
			return follow(t, result, path)
		}
	}
	require.Fail(t, "no result has it", name)
	return nil
}

// next returns the next date with a month and day which has no hours of its own: on two days of a year, one of the demo's has.
func (v *values) next(t *testing.T, today time.Time, day string) string {
	t.Helper()
	for year := today.Year(); ; year++ {
		date := fmt.Sprintf("%d-%s", year, day)
		if date >= today.Format(time.DateOnly) && !slices.ContainsFunc(v.before, func(r listedRecord) bool { return r.name == "hours "+date }) {
			return date
		}
	}
}

// follow returns the value at a path such as contacts[0].id.
func follow(t *testing.T, v any, path []string) any {
	t.Helper()
	for _, segment := range path {
		found := selector.FindStringSubmatch(segment)
		require.NotNil(t, found, segment)
		v = v.(object)[found[1]]
		for index := range strings.SplitSeq(strings.Trim(found[2], "[]"), "][") {
			if index != "" {
				v = pick(t, v.([]any), index)
			}
		}
	}
	return v
}

// pick returns the item with an index, or the one whose member has a value.
func pick(t *testing.T, items []any, index string) any {
	t.Helper()
	if i, err := strconv.Atoi(index); err == nil {
		require.Less(t, i, len(items), "found too few")
		return items[i]
	}
	name, value, _ := strings.Cut(index, "=")
	for _, item := range items {
		if item.(object)[name] == value {
			return item
		}
	}
	require.Fail(t, "none has "+index)
	return nil
}

// listedRecord is a record of the business, or a part of one that can be changed alone.
type listedRecord struct {
	name    string
	id      string // by which the record is known again, whatever its name
	members object
}

// volatile are members that change with every change.
var volatile = []string{"id", "business_id", "version", "created_at", "updated_at", "date_created", "date_modified"}

// snapshot returns all that tools can write, from the data service itself. Records that are in a snapshot before have the same names.
func snapshot(t *testing.T, service *demo.Service, owner demo.Account, before []listedRecord) (all []listedRecord) {
	t.Helper()
	names := map[string]string{}
	for _, r := range before {
		names[r.id] = r.name
	}
	taken := map[string]bool{}
	add := func(id, name string, members object) {
		if known, ok := names[id]; ok {
			name = known
		} else if taken[name] {
			name += " " + id
		}
		taken[name] = true
		members = maps.Clone(members)
		maps.DeleteFunc(members, func(member string, _ any) bool { return slices.Contains(volatile, member) })
		all = append(all, listedRecord{name, id, members})
	}
	get := func(path string) object { return readDemo(t, service, owner, path) }
	list := func(path, name string) []any { return listDemo(t, service, owner, path, name) }
	add("business", "business", get("/business")["business"].(object))
	for _, day := range get("/business/hours")["days"].([]any) {
		add("hours "+day.(object)["day"].(string), "hours "+day.(object)["day"].(string), object{"spans": day.(object)["spans"]})
	}
	for _, area := range get("/business/service-areas")["service_areas"].([]any) {
		add("area "+area.(object)["name"].(string), "area "+area.(object)["name"].(string), area.(object))
	}
	receptionist := get("/receptionist")["receptionist"].(object)
	add("personality", "personality", receptionist["personality"].(object))
	number, order := 0, []any{}
	for _, r := range before {
		number += strings.Count(r.name, "rule ")
	}
	for _, rule := range receptionist["rules"].([]any) {
		id := rule.(object)["id"].(string)
		if names[id] == "" {
			number++
		}
		add(id, fmt.Sprintf("rule %d", number), rule.(object))
		at, err := strconv.Atoi(strings.TrimPrefix(all[len(all)-1].name, "rule "))
		require.NoError(t, err)
		order = append(order, float64(at))
	}
	add("rules", "rules", object{"order": order})
	for _, of := range []struct{ path, list, kind, label string }{
		{"/receptionist/faqs", "faqs", "question", "question"},
		{"/receptionist/services", "services", "service", "name"},
	} {
		for _, r := range list(of.path, of.list) {
			add(r.(object)["id"].(string), of.kind+" "+r.(object)[of.label].(string), r.(object))
		}
	}
	for _, r := range list("/contacts", "contacts") {
		last, _ := r.(object)["last_name"].(string)
		first, _ := r.(object)["first_name"].(string)
		add(fmt.Sprint(r.(object)["id"]), strings.TrimSpace("contact "+first+" "+last), r.(object))
	}
	for _, kind := range list("/object-types", "object_types") {
		name := kind.(object)["name"].(string)
		for _, r := range list("/objects/"+name, "objects") {
			fields := r.(object)["fields"].(object)
			label := cmp.Or(fields["plate"], fields["name"])
			add(r.(object)["id"].(string), fmt.Sprint(name, " ", label), fields)
		}
	}
	for _, r := range list("/automations", "automations") {
		r := r.(object)
		last, _ := r["last_run"].(object)
		r["last_run"] = last["status"]
		add(r["id"].(string), fmt.Sprint("automation ", r["id"]), r)
	}
	return all
}

// readDemo reads from the data service as the connection server does.
func readDemo(t *testing.T, service *demo.Service, owner demo.Account, path string) (content object) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/connect/v1"+path, nil)
	r.Header.Set(demo.HeaderBusinessID, owner.BusinessID)
	r.Header.Set(demo.HeaderAccountID, owner.ID)
	w := httptest.NewRecorder()
	service.Handler().ServeHTTP(w, r)
	body, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, w.Code, "%s: %s", path, body)
	require.NoError(t, json.Unmarshal(body, &content))
	return content
}

// listDemo reads all records of a list.
func listDemo(t *testing.T, service *demo.Service, owner demo.Account, path, name string) (records []any) {
	t.Helper()
	for cursor := ""; ; {
		page := readDemo(t, service, owner, path+"?limit=100"+cursor)
		records = append(records, page[name].([]any)...)
		next, ok := page["next_cursor"].(string)
		if !ok {
			return records
		}
		cursor = "&cursor=" + next
	}
}

// changed returns what differs between two snapshots, as tasks say it.
func changed(before, after []listedRecord) object {
	byName := func(records []listedRecord) map[string]object {
		all := map[string]object{}
		for _, r := range records {
			all[r.name] = r.members
		}
		return all
	}
	old, present := byName(before), byName(after)
	keepOrder(old, present)
	changes := object{}
	for name, was := range old {
		is, ok := present[name]
		if !ok {
			changes[name] = "deleted"
			continue
		}
		different := object{}
		for _, member := range slices.Concat(slices.Collect(maps.Keys(was)), slices.Collect(maps.Keys(is))) {
			if !reflect.DeepEqual(was[member], is[member]) {
				different[member] = is[member]
			}
		}
		if len(different) > 0 {
			changes[name] = different
		}
	}
	for name, is := range present {
		if _, ok := old[name]; !ok {
			is = maps.Clone(is)
			maps.DeleteFunc(is, func(_ string, value any) bool { return value == nil })
			changes[name] = is
		}
	}
	return changes
}

// keepOrder removes deleted rules from the order of before, and adds those that come last, which is where new ones go.
func keepOrder(old, present map[string]object) {
	is := present["rules"]["order"].([]any)
	was := slices.DeleteFunc(slices.Clone(old["rules"]["order"].([]any)), func(n any) bool { return !slices.Contains(is, n) })
	for _, n := range is {
		if !slices.Contains(was, n) {
			was = append(was, n)
		}
	}
	old["rules"] = object{"order": was}
}
