package upstream_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func TestQueriesAreCleaned(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("%C3%A4", 64)
	for _, c := range []struct{ resource, raw, clean string }{
		// Defaults are always stated.
		{"events", "", "count=10"},
		{"contacts", "", "page=1&per_page=25"},
		{"invoices", "page=3", "page=3&per_page=25"},
		// Parameters have the contract's order.
		{"contacts", "type=lead&status=active&per_page=5&page=2", "page=2&per_page=5&status=active&type=lead"},
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
		// An empty filter is absent.
		{"contacts", "status=&type", "page=1&per_page=25"},
		{"contacts", "status=" + long, "page=1&per_page=25&status=" + long},
		// Unknown parameters are dropped, whatever they contain.
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
		t.Run(c.resource+"?"+c.raw, func(t *testing.T) {
			t.Parallel()
			requireClean(t, c.resource, c.raw, c.clean)
		})
	}
}

func requireClean(t *testing.T, resource, raw, clean string) {
	t.Helper()
	q, err := byName(resource).CleanQuery(raw)
	require.NoError(t, err)
	require.Equal(t, clean, q.Raw)
	again, err := byName(resource).CleanQuery(q.Raw)
	require.NoError(t, err)
	q.Ignored = ""
	require.Equal(t, q, again, "cleaned twice")
}

func TestNumbersAreClamped(t *testing.T) {
	t.Parallel()
	nines := strings.Repeat("9", 100_000)
	for _, c := range []struct {
		resource, parameter, clean string
		numbers                    map[string]string
	}{
		{"events", "count", "count=%s", map[string]string{
			"0": "1", "-5": "1", "-0": "1", "1": "1", "100": "100", "101": "100", "007": "7", strings.Repeat("0", 500) + "12": "12",
			"9223372036854775808": "100", "18446744073709551617": "100", "-18446744073709551617": "1", nines: "100", "-" + nines: "1",
		}},
		{"jobs", "page", "page=%s&per_page=25", map[string]string{
			"0": "1", "-1": "1", "2147483647": "2147483647", "2147483648": "2147483647", "4294967297": "2147483647",
		}},
		{"jobs", "per_page", "page=1&per_page=%s", map[string]string{"0": "1", "1000": "100"}},
	} {
		for given, clamped := range c.numbers {
			t.Run(fmt.Sprintf("%s=%.40s", c.parameter, given), func(t *testing.T) {
				t.Parallel()
				requireClean(t, c.resource, c.parameter+"="+given, fmt.Sprintf(c.clean, clamped))
			})
		}
	}
}

func TestQueryHasTheNumbers(t *testing.T) {
	t.Parallel()
	q, err := byName("jobs").CleanQuery("per_page=500&page=7&count=3")
	require.NoError(t, err)
	require.Equal(t, upstream.Query{Raw: "page=7&per_page=100", Numbers: query(7, 100).Numbers, Path: "/api/v1/jobs", Ignored: "count"}, q)
	q, err = byName("events").CleanQuery("count=55&page=2")
	require.NoError(t, err)
	assert.Equal(t, upstream.Query{Raw: "count=55", Numbers: query(55).Numbers, Path: "/api/v1/events", Ignored: "page"}, q)
}

func TestInvalidParametersAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		resource, want string // the error begins with the parameter
		queries        []string
	}{
		{"events", "count must be a whole number", []string{
			"count=abc", "count=1.5", "count=", "count", "count=-", "count=--5", "count=5-", "count=+5", "count=%2B5", "count=%205",
			"count=5+", "count=5%0a", "count=5%00", "count=1e2", "count=0x10", "count=1_000", "count=1,000", "count=٥", "count=%D9%A5",
			"count=５", "count=−5", "count=5;page=1", "count=true", "count=NaN", "count==5", "count=" + strings.Repeat("9", 1000) + "x",
		}},
		{"events", "count contains invalid percent-encoding", []string{"count=5%", "count=%3", "count=%3g", "count=%u0035"}},
		{"events", "count must be given only once", []string{"count=5&count=5", "count=5&%63ount=6", "count=abc&count=5", "count&count"}},
		{"jobs", "page must be a whole number", []string{"page=two"}},
		{"jobs", "page must be given only once", []string{"page=1&x=2&status=a&%70age=2"}},
		{"jobs", "per_page must be a whole number", []string{"page=1&per_page=ten"}},
		{"jobs", "status must be given only once", []string{"status=&status=draft"}},
		{"jobs", "status contains invalid percent-encoding", []string{"status=%", "status=100%zz"}},
		{"jobs", "status must be valid UTF-8", []string{"status=%ff", "status=\xc3", "status=%ed%a0%80", "status=%c0%af"}},
		{"jobs", "status must not contain control characters", []string{
			"status=a%00", "status=a%0d%0aX-Business-Id:%20b2", "status=%7f", "status=%c2%85",
		}},
		{"contacts", "type must be at most 128 bytes long", []string{
			"type=" + strings.Repeat("a", 129), "type=" + strings.Repeat("%61", 129), "type=" + strings.Repeat("a", 1<<20),
		}},
		{"estimates", "payment_status contains invalid percent-encoding", []string{"payment_status=%"}},
	} {
		for _, raw := range c.queries {
			t.Run(fmt.Sprintf("%s?%.80s", c.resource, raw), func(t *testing.T) {
				t.Parallel()
				q, err := byName(c.resource).CleanQuery(raw)
				require.ErrorIs(t, err, upstream.ErrInvalidParameter)
				require.EqualError(t, err, c.want)
				var perr *upstream.ParameterError
				require.ErrorAs(t, err, &perr)
				require.True(t, strings.HasPrefix(c.want, perr.Parameter+" "), perr.Parameter)
				assert.Zero(t, q)
			})
		}
	}
}

// cleanQueries are returned unchanged.
func cleanQueries() [][2]string {
	return [][2]string{
		{"events", "count=10"},
		{"invoices", "page=2&per_page=50&status=overdue"},
		{"estimates", "page=1&per_page=100&status=" + strings.Repeat("%C3%A4", 64) + "&payment_status=" + strings.Repeat("%20", 128)},
		{"business", "anything"},
	}
}

func TestCleanQueryDoesNotAllocate(t *testing.T) {
	for _, c := range cleanQueries() {
		res := byName(c[0])
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			if _, err := res.CleanQuery(c[1]); err != nil {
				panic(err)
			}
		}), c[1])
	}
}

func BenchmarkCleanQuery(b *testing.B) {
	for i, c := range append(cleanQueries(), [2]string{"events", "utm=x&count=500"}) {
		b.Run(fmt.Sprintf("%d %s", i, c[0]), func(b *testing.B) {
			res := byName(c[0])
			b.ReportAllocs()
			for b.Loop() {
				if _, err := res.CleanQuery(c[1]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
