package ratelimit_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

func TestIPKey(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"192.0.2.7":                 "192.0.2.7",
		"::ffff:192.0.2.7":          "192.0.2.7",
		"::ffff:c000:207":           "192.0.2.7",
		"2001:db8:1:2:3:4:5:6":      "2001:db8:1:2::/64",
		"2001:db8:1:2::":            "2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::1":      "2001:db8:1:2::/64",
		"2001:db8:1:3::":            "2001:db8:1:3::/64",
		"fe80::1%eth0":              "fe80::/64",
		"fe80::2%eth1":              "fe80::/64",
		"::1":                       "::/64",
		"::ffff:192.0.2.7%whatever": "192.0.2.7",
	} {
		require.Equal(t, want, ratelimit.IPKey(netip.MustParseAddr(addr)), addr)
	}
	require.Equal(t, "unknown", ratelimit.IPKey(netip.Addr{}))
}

func TestContractLimits(t *testing.T) {
	t.Parallel()
	minute := func(name string, n int) ratelimit.Limit {
		return ratelimit.Limit{Name: name, Requests: n, Window: time.Minute}
	}
	require.Equal(t, minute("key", 60), ratelimit.KeyLimit(0))
	require.Equal(t, minute("key", 60), ratelimit.KeyLimit(-1))
	require.Equal(t, minute("key", 600), ratelimit.KeyLimit(600))
	require.Equal(t, minute("address", 10), ratelimit.IPLimit(0))
	require.Equal(t, minute("address", 20), ratelimit.IPLimit(20))

	group, buckets := ratelimit.ForUnverified("pk_live_abcdefgh", "192.0.2.7")
	require.Equal(t, "192.0.2.7", group)
	require.Len(t, buckets, 2)
	require.Equal(t, minute("unverified-key", 60), buckets[0].Limit)
	require.Equal(t, minute("unverified-address", 120), buckets[1].Limit)
	require.Equal(t, ratelimit.UnverifiedIP("192.0.2.7"), buckets[1])
	_, other := ratelimit.ForUnverified("pk_live_other123", "192.0.2.7")
	require.NotEqual(t, buckets[0], other[0])
	require.Equal(t, buckets[1], other[1])

	group, bucket := ratelimit.ForKey("pk_live_abcdefgh", ratelimit.KeyLimit(0))
	require.Equal(t, "pk_live_abcdefgh", group)
	require.Equal(t, ratelimit.Bucket{Key: "pk_live_abcdefgh", Limit: ratelimit.KeyLimit(0)}, bucket)
	group, bucket = ratelimit.ForIP("192.0.2.7", ratelimit.IPLimit(0))
	require.Equal(t, "192.0.2.7", group)
	require.Equal(t, ratelimit.Bucket{Key: "192.0.2.7", Limit: ratelimit.IPLimit(0)}, bucket)
}
