package clientip_test

import (
	"maps"
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/clientip"
)

func TestKeyOfAPeer(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"192.0.2.7:1234": "192.0.2.7", "[::ffff:192.0.2.7]:80": "192.0.2.7", "[::ffff:c000:207%x]:80": "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64", "[2001:db8:1:2::]:80": "2001:db8:1:2::/64",
		"[2001:db8:1:3::]:80": "2001:db8:1:3::/64", "[fe80::1%eth0]:80": "fe80::/64", "[::1]:80": "::/64",
		"@": "unknown", "": "unknown",
	} {
		t.Run(remote, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, want, clientip.Key(clientip.Peer(&http.Request{RemoteAddr: remote})))
		})
	}
}

func TestKeysOfAClientAndItsNetwork(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]map[string]int{
		"192.0.2.7":           {"192.0.2.7": 1},
		"::ffff:192.0.2.7":    {"192.0.2.7": 1},
		"2001:db8:1:2::3%en0": {"2001:db8:1:2::/64": 1, "2001:db8:1::/48": 4},
	} {
		require.Equal(t, want, maps.Collect(clientip.Keys(netip.MustParseAddr(addr))), addr)
	}
	require.Equal(t, map[string]int{"unknown": 1}, maps.Collect(clientip.Keys(netip.Addr{})))
	for range clientip.Keys(netip.MustParseAddr("2001:db8::")) {
		break
	}
}
