package upstream_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func TestEveryPathOfTheContractMatchesExactly(t *testing.T) {
	t.Parallel()
	want := []string{
		"status", "me", "business", "contacts", "equipment", "estimates", "invoices", "jobs", "offerings", "events",
	}
	got := make([]string, 0, len(want))
	for _, res := range upstream.Resources() {
		got = append(got, res.Name)
		require.Equal(t, "/api/v1/"+res.Name, res.Path)
		require.Same(t, res, upstream.ByName(res.Name))
		for target, query := range map[string]string{
			res.Path:                      "",
			res.Path + "?":                "",
			res.Path + "?count=5":         "count=5",
			res.Path + "?a=1?b=2":         "a=1?b=2",
			res.Path + "?next=/../%2e%2e": "next=/../%2e%2e",
			res.Path + "?\xff&%zz":        "\xff&%zz",
		} {
			found, raw, ok := upstream.Match(target)
			require.True(t, ok, target)
			require.Same(t, res, found, target)
			require.Equal(t, query, raw, target)
		}
	}
	require.Equal(t, want, got)
}

func TestOnlyStatusIsOpenAndOnlyStatusAndMeAreTheGatewaysOwn(t *testing.T) {
	t.Parallel()
	for _, res := range upstream.Resources() {
		require.Equal(t, res.Name == "status", res.Auth == upstream.AuthNone, res.Name)
		require.Equal(t, res.Name == "status" || res.Name == "me", res.ByGateway, res.Name)
		require.Equal(t, res.List != "" && res.Name != "events", res.Paginated, res.Name)
	}
}

func TestParametersAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"status": "", "me": "", "business": "", "events": "count",
		"contacts": "page per_page status type", "equipment": "page per_page status category",
		"estimates": "page per_page status payment_status", "invoices": "page per_page status",
		"jobs": "page per_page status", "offerings": "page per_page status",
	}
	for _, res := range upstream.Resources() {
		var names []string
		for _, p := range res.Params {
			names = append(names, p.Name)
		}
		require.Equal(t, want[res.Name], strings.Join(names, " "), res.Name)
	}
}

func TestPathConfusionNeverMatches(t *testing.T) {
	t.Parallel()
	for _, target := range []string{
		"", "/", "*", "?", "/api", "/api/v1", "/api/v1/", "/api/v1?count=1", "/api/v1/?",
		"/api/v1/Events", "/API/v1/events", "/api/V1/events", "/api/v2/events", "/api/v1/event", "/api/v1/eventss",
		"/api/v1/events/", "/api/v1/events/1", "/api/v1/events//", "//api/v1/events", "/api//v1/events",
		"/api/v1//events", "/./api/v1/events", "/api/v1/./events", "/api/v1/events/.", "/api/v1/events/..",
		"/api/v1/../v1/events", "/api/v1/x/../events", "/api/v1/status/../events", "/api/v1/status/../me",
		"/api/v1/%65vents", "/api/v1/events%20", "/api/v1/events%2f", "/api/v1/events%2F", "/api%2fv1/events",
		"/%61pi/v1/events", "/api/v1/events%3Fcount=1", "/api/v1/events%00", "/api/v1/events\x00", "/api/v1/%2e/events",
		"/api/v1/%2e%2e/v1/events", "/api/v1/events%5c", `\api\v1\events`, `/api/v1\events`, "/api/v1/events\\",
		"/api/v1/events;", "/api/v1/events;count=1", "/api/v1;x/events", "/api/v1/events.", "/api/v1/events.json",
		"/api/v1/events ", " /api/v1/events", "/api/v1/events\t", "/api/v1/events\r\n", "/api/v1/events&count=1",
		"/api/v1/events#", "/api/v1/events#x", "/api/v1/events?#", "/api/v1/events?count=1#x", "/api/v1/#/events",
		"http://api.example.com/api/v1/events", "//api.example.com/api/v1/events", "api.example.com:443",
		"api/v1/events", "/api/v1/еvents" /* Cyrillic е */, "/api/v1/events\u200b", "/api/v1/\xffvents",
		"/api/v1/evénts", "/api/v1/" + strings.Repeat("events/", 10000), "/api/v1/" + strings.Repeat("e", 1<<20),
	} {
		res, raw, ok := upstream.Match(target)
		require.False(t, ok, "%.80q", target)
		require.Nil(t, res, "%.80q", target)
		require.Empty(t, raw, "%.80q", target)
	}
}

// The field lists of the table against those of the design, which docs/data-services.md states too.
func TestFieldsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"status":   "status api_version",
		"me":       "id name slug",
		"business": "id name slug email phone website_url time_zone account_status",
		"events": "id title description url type schedule(date start_time end_time) location_type venue address " +
			"virtual_link is_free image_url media(url file_type caption featured)",
		"contacts": "id first_name last_name email phone_number country_code contact_type contact_status notes " +
			"date_created date_modified",
		"jobs": "id job_number name description work_status total_amount outstanding_balance lead_source created_at " +
			"updated_at",
		"estimates": "id estimate_number title status payment_status subtotal discount_type discount_value tax_rate " +
			"tax_amount total_amount deposit_required deposit_amount amount_paid expires_at sent_at approved_at " +
			"created_at updated_at",
		"invoices": "id invoice_number title status subtotal discount_type discount_value tax_rate tax_amount " +
			"total_amount paid_amount due_at issued_at sent_at paid_at created_at updated_at",
		"offerings": "id name type status description service_details dont_book_appointment appointment_duration " +
			"created_at updated_at",
		"equipment": "id equipment_number name serial_number tracking_mode quantity category model manufacturer status " +
			"purchase_date maintenance_interval_days next_maintenance_date created_at updated_at",
	}
	for _, res := range upstream.Resources() {
		require.Equal(t, want[res.Name], fieldList(res.Fields), res.Name)
	}
}

func fieldList(fields []upstream.Field) string {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		name := f.Name
		if f.Kind == upstream.KindObjects {
			name += "(" + fieldList(f.Fields) + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func TestTheTableFitsTheChecker(t *testing.T) {
	t.Parallel()
	for _, res := range upstream.Resources() {
		require.LessOrEqual(t, len(res.Params), 4, res.Name)
		require.LessOrEqual(t, len(res.Fields)+4, 64, res.Name)
		for _, f := range res.Fields {
			require.LessOrEqual(t, len(f.Fields), 8, f.Name)
			require.NotContains(t, f.Kind.String(), "unknown")
		}
	}
}

func TestTheListOfResourcesCannotBeChangedFromOutside(t *testing.T) {
	t.Parallel()
	rs := upstream.Resources()
	rs[0] = nil
	require.NotNil(t, upstream.Resources()[0])
}

// Every enumeration and field that the page for platform teams documents is the table's, and the other way round.
func TestThePageForPlatformTeamsListsTheFieldsOfTheTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/data-services.md")
	require.NoError(t, err)
	sections := strings.Split(string(text), "\n### ")
	for _, res := range upstream.Resources() {
		if res.ByGateway {
			continue
		}
		at := slices.IndexFunc(sections, func(s string) bool { return strings.HasPrefix(s, "`"+res.Path+"`\n") })
		require.GreaterOrEqual(t, at, 0, "no section for %s", res.Path)
		var documented []string
		for line := range strings.Lines(sections[at]) {
			cells := strings.Split(line, "|")
			if len(cells) < 4 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
				continue
			}
			name := strings.Trim(cells[1], " `")
			documented = append(documented, name)
			f := fieldNamed(res.Fields, name)
			if f == nil {
				continue // an internal member
			}
			for _, value := range f.Values {
				require.Contains(t, cells[3], "`"+value+"`", "%s.%s", res.Name, name)
			}
		}
		for _, name := range allNames("", res.Fields) {
			require.Contains(t, documented, name, res.Name)
		}
	}
}

func fieldNamed(fields []upstream.Field, name string) *upstream.Field {
	head, rest, nested := strings.Cut(name, ".")
	for i := range fields {
		switch {
		case fields[i].Name != head:
		case nested:
			return fieldNamed(fields[i].Fields, rest)
		default:
			return &fields[i]
		}
	}
	return nil
}

func allNames(prefix string, fields []upstream.Field) []string {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, prefix+f.Name)
		names = append(names, allNames(prefix+f.Name+".", f.Fields)...)
	}
	return names
}

func TestMatchDoesNotAllocate(t *testing.T) {
	for _, target := range []string{"/api/v1/events?count=5", "/api/v1/invoices", "/api/v1/nothing?x", "/index.html"} {
		require.Zero(t, testing.AllocsPerRun(100, func() { upstream.Match(target) }), target)
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, target := range []string{"/api/v1/events?count=5", "/api/v1/estimates?page=2&per_page=50", "/api/v1/nothing"} {
		b.Run(target, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				upstream.Match(target)
			}
		})
	}
}
