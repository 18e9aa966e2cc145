package upstream_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func TestQueriesAreClampedAndStatedAnew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ resource, raw, clean string }{
		// Defaults are always stated.
		{"events", "", "count=10"},
		{"contacts", "", "page=1&per_page=25"},
		{"invoices", "page=3", "page=3&per_page=25"},
		// The table's order, whatever the caller's.
		{"contacts", "type=lead&status=active&per_page=5&page=2", "page=2&per_page=5&status=active&type=lead"},
		// Clamping, never rejecting.
		{"events", "count=0", "count=1"},
		{"events", "count=-5", "count=1"},
		{"events", "count=-0", "count=1"},
		{"events", "count=1", "count=1"},
		{"events", "count=100", "count=100"},
		{"events", "count=101", "count=100"},
		{"events", "count=007", "count=7"},
		{"events", "count=" + strings.Repeat("0", 500) + "12", "count=12"},
		{"events", "count=9223372036854775808", "count=100"},
		{"events", "count=18446744073709551617", "count=100"},
		{"events", "count=-18446744073709551617", "count=1"},
		{"events", "count=" + strings.Repeat("9", 100_000), "count=100"},
		{"events", "count=-" + strings.Repeat("9", 100_000), "count=1"},
		{"jobs", "page=0", "page=1&per_page=25"},
		{"jobs", "page=-1", "page=1&per_page=25"},
		{"jobs", "page=2147483647", "page=2147483647&per_page=25"},
		{"jobs", "page=2147483648", "page=2147483647&per_page=25"},
		{"jobs", "page=4294967297", "page=2147483647&per_page=25"},
		{"jobs", "per_page=0", "page=1&per_page=1"},
		{"jobs", "per_page=1000", "page=1&per_page=100"},
		// Percent-encoding in names and values.
		{"events", "%63ount=%35", "count=5"},
		{"events", "%63%6F%75%6e%74=%2D%31", "count=1"},
		{"equipment", "category=hand+tools", "page=1&per_page=25&category=hand%20tools"},
		{"equipment", "category=hand%20tools", "page=1&per_page=25&category=hand%20tools"},
		{"equipment", "category=%c3%a4%2F%26%3d%2B", "page=1&per_page=25&category=%C3%A4%2F%26%3D%2B"},
		{"equipment", "category=\xc3\xa4", "page=1&per_page=25&category=%C3%A4"},
		{"equipment", "category=%61-._~", "page=1&per_page=25&category=a-._~"},
		{"equipment", "category=a=b", "page=1&per_page=25&category=a%3Db"},
		{"equipment", "category=a;b?c/d", "page=1&per_page=25&category=a%3Bb%3Fc%2Fd"},
		{"jobs", "status=../../admin%3fx", "page=1&per_page=25&status=..%2F..%2Fadmin%3Fx"},
		// An empty filter is none.
		{"contacts", "status=&type", "page=1&per_page=25"},
		{"contacts", "status=" + strings.Repeat("%C3%A4", 64), "page=1&per_page=25&status=" + strings.Repeat("%C3%A4", 64)},
		// What the table does not have is dropped whatever it holds.
		{"events", "page=two", "count=10"},
		{"events", "business_id=b2&status=draft&count=3&limit=5", "count=3"},
		{"events", "&&&count=3&&", "count=3"},
		{"events", "x=%zz&%=1&%4=2&=&==&;&count=3&\xff=\xff", "count=3"},
		{"events", "Count=5&COUNT=6&count%20=7&+count=8&count[]=9&count%00=1", "count=10"},
		{"events", "coun%7=5&count%=6&count%7", "count=10"},
		{"jobs", "per-page=5&perpage=6&status;=1", "page=1&per_page=25"},
		// Resources without parameters have no query.
		{"business", "page=1&count=5&%zz", ""},
		{"me", "x", ""},
		{"status", "count=abc", ""},
	} {
		q, err := upstream.ByName(c.resource).CleanQuery(c.raw)
		require.NoError(t, err, "%s?%.80s", c.resource, c.raw)
		require.Equal(t, c.clean, q.Raw, "%s?%.80s", c.resource, c.raw)
		again, err := upstream.ByName(c.resource).CleanQuery(q.Raw)
		require.NoError(t, err)
		require.Equal(t, q, again)
	}
}

func TestNumbersOfTheCleanQueryAreStatedInTheResult(t *testing.T) {
	t.Parallel()
	q, err := upstream.ByName("jobs").CleanQuery("per_page=500&page=7&count=3")
	require.NoError(t, err)
	require.Equal(t, upstream.Query{Raw: "page=7&per_page=100", Page: 7, PerPage: 100}, q)
	q, err = upstream.ByName("events").CleanQuery("count=55&page=2")
	require.NoError(t, err)
	require.Equal(t, upstream.Query{Raw: "count=55", Count: 55}, q)
}

func TestWhatCannotBeReadNamesTheParameter(t *testing.T) {
	t.Parallel()
	const whole, once, broken = "must be a whole number", "must be given only once", "holds a malformed percent-encoding"
	for _, c := range []struct{ resource, raw, parameter, reason string }{
		{"events", "count=abc", "count", whole},
		{"events", "count=1.5", "count", whole},
		{"events", "count=", "count", whole},
		{"events", "count", "count", whole},
		{"events", "count=-", "count", whole},
		{"events", "count=--5", "count", whole},
		{"events", "count=5-", "count", whole},
		{"events", "count=+5", "count", whole},
		{"events", "count=%2B5", "count", whole},
		{"events", "count=%205", "count", whole},
		{"events", "count=5+", "count", whole},
		{"events", "count=5%0a", "count", whole},
		{"events", "count=5%00", "count", whole},
		{"events", "count=1e2", "count", whole},
		{"events", "count=0x10", "count", whole},
		{"events", "count=1_000", "count", whole},
		{"events", "count=1,000", "count", whole},
		{"events", "count=٥", "count", whole},
		{"events", "count=%D9%A5", "count", whole},
		{"events", "count=５", "count", whole},
		{"events", "count=−5", "count", whole},
		{"events", "count=5;page=1", "count", whole},
		{"events", "count=true", "count", whole},
		{"events", "count=NaN", "count", whole},
		{"events", "count==5", "count", whole},
		{"events", "count=" + strings.Repeat("9", 1000) + "x", "count", whole},
		{"events", "count=5%", "count", broken},
		{"events", "count=%3", "count", broken},
		{"events", "count=%3g", "count", broken},
		{"events", "count=%u0035", "count", broken},
		{"jobs", "page=two", "page", whole},
		{"jobs", "page=1&per_page=ten", "per_page", whole},
		{"events", "count=5&count=5", "count", once},
		{"events", "count=5&%63ount=6", "count", once},
		{"events", "count=abc&count=5", "count", once},
		{"events", "count&count", "count", once},
		{"jobs", "status=&status=draft", "status", once},
		{"jobs", "page=1&x=2&status=a&%70age=2", "page", once},
		{"jobs", "status=%", "status", broken},
		{"jobs", "status=100%zz", "status", broken},
		{"jobs", "status=%ff", "status", "must be valid UTF-8"},
		{"jobs", "status=\xc3", "status", "must be valid UTF-8"},
		{"jobs", "status=%ed%a0%80", "status", "must be valid UTF-8"},
		{"jobs", "status=%c0%af", "status", "must be valid UTF-8"},
		{"jobs", "status=a%00", "status", "must not hold control characters"},
		{"jobs", "status=a%0d%0aX-Business-Id:%20b2", "status", "must not hold control characters"},
		{"jobs", "status=%7f", "status", "must not hold control characters"},
		{"jobs", "status=%c2%85", "status", "must not hold control characters"},
		{"contacts", "type=" + strings.Repeat("a", 129), "type", "must be at most 128 bytes long"},
		{"contacts", "type=" + strings.Repeat("%61", 129), "type", "must be at most 128 bytes long"},
		{"contacts", "type=" + strings.Repeat("a", 1<<20), "type", "must be at most 128 bytes long"},
		{"estimates", "payment_status=%", "payment_status", broken},
	} {
		q, err := upstream.ByName(c.resource).CleanQuery(c.raw)
		require.ErrorIs(t, err, upstream.ErrInvalidParameter, "%s?%.80s", c.resource, c.raw)
		var perr *upstream.ParameterError
		require.ErrorAs(t, err, &perr)
		require.Equal(t, c.parameter, perr.Parameter, "%s?%.80s", c.resource, c.raw)
		require.Equal(t, c.parameter+" "+c.reason, err.Error(), "%s?%.80s", c.resource, c.raw)
		require.Zero(t, q)
	}
}

func TestThousandsOfParametersAndVeryLongNamesStayCheap(t *testing.T) {
	t.Parallel()
	res := upstream.ByName("estimates")
	for name, raw := range map[string]string{
		"many parameters":  strings.Repeat("a=b&", 1<<20),
		"many near misses": strings.Repeat("payment_statu%=b&", 1<<18),
		"one long name":    strings.Repeat("payment_status", 1<<18) + "=1",
		"long escapes":     strings.Repeat("%70", 1<<20) + "=1",
		"ampersands":       strings.Repeat("&", 1<<22),
	} {
		start := time.Now()
		q, err := res.CleanQuery(raw)
		require.NoError(t, err, name)
		require.Equal(t, "page=1&per_page=25", q.Raw, name)
		// Some milliseconds, tens of them with the race detector; anything quadratic would take minutes.
		require.Less(t, time.Since(start), time.Minute, name)
	}
}

// The standard library's reader, which every Go data service uses, must see in the clean query what we mean by it.
func TestAnIndependentReaderUnderstandsTheForwardedQuery(t *testing.T) {
	t.Parallel()
	text := "50% off; \"naïve\" & co. + more/less?#…"
	q, err := upstream.ByName("equipment").CleanQuery("category=" + url.QueryEscape(text) + "&per_page=3")
	require.NoError(t, err)
	values, err := url.ParseQuery(q.Raw)
	require.NoError(t, err)
	require.Equal(t, url.Values{"page": {"1"}, "per_page": {"3"}, "category": {text}}, values)
}

func TestACleanQueryIsReturnedWithoutAllocation(t *testing.T) {
	for _, c := range cleanQueries {
		res := upstream.ByName(c.resource)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if _, err := res.CleanQuery(c.raw); err != nil {
				panic(err)
			}
		}), c.raw)
	}
}

var cleanQueries = []struct{ resource, raw string }{
	{"events", "count=10"},
	{"invoices", "page=2&per_page=50&status=overdue"},
	{"estimates", "page=1&per_page=100&status=" + strings.Repeat("%C3%A4", 64) + "&payment_status=" + strings.Repeat("%20", 128)},
	{"business", "anything"},
}

func BenchmarkCleanQuery(b *testing.B) {
	for i, c := range append(cleanQueries, struct{ resource, raw string }{"events", "utm=x&count=500"}) {
		b.Run(fmt.Sprintf("%d %s", i, c.resource), func(b *testing.B) {
			res := upstream.ByName(c.resource)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := res.CleanQuery(c.raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
