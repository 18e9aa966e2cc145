package upstream_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func TestResourcesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	want := []struct{ name, params, fields string }{
		{"status", "", "status api_version"},
		{"me", "", "id name slug"},
		{"business", "", "id name slug email phone website_url time_zone account_status"},
		{
			"contacts", "page per_page status type", "id first_name last_name email phone_number country_code contact_type " +
				"contact_status notes date_created date_modified",
		},
		{
			"equipment", "page per_page status category", "id equipment_number name serial_number tracking_mode quantity category " +
				"model manufacturer status purchase_date maintenance_interval_days next_maintenance_date created_at updated_at",
		},
		{
			"estimates", "page per_page status payment_status", "id estimate_number title status payment_status subtotal discount_type " +
				"discount_value tax_rate tax_amount total_amount deposit_required deposit_amount amount_paid expires_at sent_at " +
				"approved_at created_at updated_at",
		},
		{
			"invoices", "page per_page status", "id invoice_number title status subtotal discount_type discount_value tax_rate tax_amount " +
				"total_amount paid_amount due_at issued_at sent_at paid_at created_at updated_at",
		},
		{
			"jobs", "page per_page status", "id job_number name description work_status total_amount outstanding_balance lead_source " +
				"created_at updated_at",
		},
		{
			"offerings", "page per_page status", "id name type status description service_details dont_book_appointment " +
				"appointment_duration created_at updated_at",
		},
		{
			"events", "count", "id title description url type schedule schedule.date schedule.start_time schedule.end_time " +
				"location_type venue address virtual_link is_free image_url media media.url media.file_type media.caption media.featured",
		},
	}
	upstream.Resources()[0] = nil // the list is the caller's own
	rs := upstream.Resources()
	require.Len(t, rs, len(want))
	for i, c := range want {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			res := rs[i]
			require.Equal(t, c.name, res.Name)
			require.Equal(t, "/api/v1/"+c.name, res.Path)
			require.Same(t, res, upstream.ByName(c.name))
			require.Equal(t, c.name == "status", res.Public)
			require.Equal(t, c.name == "status" || c.name == "me", res.ByGateway)
			require.Equal(t, strings.HasPrefix(c.params, "page "), res.Paginated)
			names := make([]string, len(res.Params))
			for i, p := range res.Params {
				names[i] = p.Name
			}
			require.Equal(t, c.params, strings.Join(names, " "))
			require.Equal(t, c.fields, strings.Join(allNames("", res.Fields), " "))
			require.LessOrEqual(t, len(res.Params), 4, "more than CleanQuery has room for")
			require.LessOrEqual(t, len(allNames("", res.Fields))+4, 64, "more than Check has bits for")
		})
	}
}

// allNames are the names of fields and, with a dot, of those within them.
func allNames(prefix string, fields []upstream.Field) []string {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, prefix+f.Name)
		names = append(names, allNames(prefix+f.Name+".", f.Fields)...)
	}
	return names
}

func TestPathsMatchWithAnyQuery(t *testing.T) {
	t.Parallel()
	for _, res := range upstream.Resources() {
		for _, query := range []string{"", "count=5", "a=1?b=2", "next=/../%2e%2e", "\xff&%zz"} {
			found, raw, ok := upstream.Match(res.Path + "?" + query)
			require.True(t, ok, query)
			require.Same(t, res, found, query)
			require.Equal(t, query, raw)
		}
		found, raw, ok := upstream.Match(res.Path)
		require.True(t, ok)
		require.Same(t, res, found)
		require.Empty(t, raw)
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
