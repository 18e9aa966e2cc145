package ratelimit_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

func TestContractLimits(t *testing.T) {
	t.Parallel()
	ip := netip.MustParseAddr("192.0.2.7")
	counter := func(key, name string, requests int) []ratelimit.Counter {
		return []ratelimit.Counter{{Key: key, Limit: ratelimit.Limit{Name: name, Requests: requests, Window: time.Minute}}}
	}
	for custom, requests := range map[int][2]int{0: {60, 10}, -1: {60, 10}, 600: {600, 600}} {
		group, got := ratelimit.ForKey("pk_live_abcdefgh", ratelimit.KeyLimit(custom))
		require.Equal(t, "pk_live_abcdefgh", group)
		require.Equal(t, counter("pk_live_abcdefgh", "key", requests[0]), got)
		group, got = ratelimit.ForIP(ip, ratelimit.IPLimit(custom))
		assert.Equal(t, "192.0.2.7", group)
		assert.Equal(t, counter("192.0.2.7", "ip", requests[1]), got)
	}
	group, pair := ratelimit.ForUnverified("pk_live_abcdefgh", ip)
	require.Equal(t, "192.0.2.7", group)
	require.Equal(t, append(
		counter("192.0.2.7\x00pk_live_abcdefgh", "unverified-key", 60), counter("192.0.2.7", "unverified-ip", 120)...,
	), pair)
}
