package upstream_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

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
		m, ok := definition.Public().Match(target)
		assert.False(t, ok, "%.80q", target)
		require.Nil(t, m.Path, "%.80q", target)
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	for _, target := range []string{"/api/v1/events?count=5", "/api/v1/invoices", "/api/v1/nothing?x", "/index.html"} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { definition.Public().Match(target) }), target)
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, target := range []string{"/api/v1/events?count=5", "/api/v1/estimates?page=2&per_page=50", "/api/v1/nothing"} {
		b.Run(target, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				definition.Public().Match(target)
			}
		})
	}
}
