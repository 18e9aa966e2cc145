package demo

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// kinds are what a member of a record may hold.
var kinds = map[string]func(any) bool{
	"text":    func(v any) bool { s, ok := v.(string); return ok && s != "" },
	"uuid":    matches(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`),
	"money":   matches(`\d+\.\d\d`),
	"instant": matches(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`),
	"date":    matches(`\d{4}-\d\d-\d\d`),
	"time":    matches(`\d\d:\d\d`),
	"url":     matches(`https://[a-z0-9.-]+\.(example\.com|test)(/\S*)?`),
	"integer": func(v any) bool { f, ok := v.(float64); return ok && f == float64(int64(f)) },
	"boolean": func(v any) bool { _, ok := v.(bool); return ok },
	"texts": func(v any) bool {
		list, ok := v.([]any)
		return ok && !slices.ContainsFunc(list, func(v any) bool { s, ok := v.(string); return !ok || s == "" })
	},
	"list": func(v any) bool { _, ok := v.([]any); return ok },
}

func matches(pattern string) func(any) bool {
	re := regexp.MustCompile(`^(?:` + pattern + `)$`)
	return func(v any) bool { s, ok := v.(string); return ok && re.MatchString(s) }
}

// contractFields reads testdata/fields.txt: the kinds of the members of each resource.
func contractFields(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/fields.txt")
	require.NoError(t, err)
	all := map[string]map[string]string{}
	for _, block := range strings.Split(string(text), "\n\n")[1:] {
		name, fields, _ := strings.Cut(strings.TrimSpace(block), "\n")
		all[name] = map[string]string{}
		for field := range strings.SplitSeq(strings.ReplaceAll(fields, "\n", ", "), ", ") {
			member, kind, _ := strings.Cut(field, " ")
			all[name][member] = kind
		}
	}
	return all
}

// resourceNames are those of the lists and of the events.
func resourceNames() []string { return append(lists(), "events") }

// requireShape holds records to their fields: exactly these members, of these kinds, with every word and every possible
// null occurring somewhere.
func requireShape(t *testing.T, fields map[string]string, all []map[string]any) {
	t.Helper()
	require.NotEmpty(t, all)
	for _, record := range all {
		require.ElementsMatch(t, slices.Collect(maps.Keys(fields)), slices.Collect(maps.Keys(record)))
	}
	for name, kind := range fields {
		seen := map[any]int{}
		kind, nullable := strings.CutSuffix(kind, "?")
		is, words := kinds[kind], strings.Split(kind, "|")
		for _, record := range all {
			switch v := record[name]; {
			case v == nil:
				require.True(t, nullable, "%s is null", name)
				seen[nil]++
			case is != nil:
				require.True(t, is(v), "%s is %v, not %s", name, v, kind)
				seen[kind]++
			default:
				require.Contains(t, words, v, name)
				seen[v]++
			}
		}
		if nullable {
			words = append(words, "null")
		}
		require.Len(t, seen, len(words), "%s has only %v", name, seen)
	}
}

func TestRecordsHaveExactlyTheContractsFields(t *testing.T) {
	t.Parallel()
	for _, resource := range resourceNames() {
		for _, b := range active() {
			t.Run(resource+" of "+b.Slug, func(t *testing.T) {
				t.Parallel()
				all := everything(t, shared, b.ID, resource)
				require.GreaterOrEqual(t, len(all), 200, "a few hundred records")
				requireShape(t, contractFields(t)[resource], all)
			})
		}
	}
}

func TestSchedulesAndMediaHaveTheContractsFields(t *testing.T) {
	t.Parallel()
	for _, b := range active() {
		var schedule, media []map[string]any // several of each in an event
		for _, e := range everything(t, shared, b.ID, "events") {
			sessions := records(t, e, "schedule")
			require.NotEmpty(t, sessions)
			schedule = append(schedule, sessions...)
			media = append(media, records(t, e, "media")...)
		}
		require.GreaterOrEqual(t, len(media), 200)
		requireShape(t, contractFields(t)["schedule"], schedule)
		requireShape(t, contractFields(t)["media"], media)
	}
}

func TestTheBusinessHasTheContractsFields(t *testing.T) {
	t.Parallel()
	for _, b := range Businesses() {
		require.Equal(t, map[string]any{"business": map[string]any{
			"id": b.ID, "name": b.Name, "slug": b.Slug, "email": b.Email, "phone": b.Phone,
			"website_url": b.WebsiteURL, "time_zone": b.TimeZone, "account_status": b.AccountStatus,
			"business_id": b.ID,
		}}, get(t, shared, b.ID, "/api/v1/business"))
	}
	require.Equal(t, AccountActive, active()[0].AccountStatus)
	require.Equal(t, AccountActive, active()[1].AccountStatus)
	require.Equal(t, AccountInactive, inactive().AccountStatus)

	stored, err := shared.Businesses(t.Context())
	require.NoError(t, err)
	require.Equal(t, Businesses(), stored)
}

func TestTheInactiveBusinessHasRecordsOfEverything(t *testing.T) {
	t.Parallel()
	for _, resource := range resourceNames() {
		require.GreaterOrEqual(t, len(everything(t, shared, inactive().ID, resource)), 20, resource)
	}
}

func TestListsStartWithTheNewest(t *testing.T) {
	t.Parallel()
	for _, resource := range lists() {
		for _, b := range active() {
			last := "9999"
			for _, record := range everything(t, shared, b.ID, resource) {
				at := fmt.Sprint(cmp.Or(record["created_at"], record["date_created"]))
				require.LessOrEqual(t, at, last, "%s of %s", resource, b.Slug)
				last = at
			}
		}
	}
}
