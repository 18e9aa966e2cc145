package caddymodule

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fill adds chunks until there is an error, which it returns with the bytes before it, and removes the last chunk.
func fill(b *bodies, client bodyKeys, chunk int64) (held int64, err error) {
	for {
		if err = b.add(client, chunk); err != nil {
			b.remove(client, chunk)
			return held, err
		}
		held += chunk
	}
}

func TestClientIPHasABoundedShareOfBodies(t *testing.T) {
	t.Parallel()
	for maxBody, want := range map[int64]int64{0: clientBodies, 1 << 20: clientBodies, 32 << 20: 32 << 20} {
		b := &bodies{maxBody: maxBody}
		held, err := fill(b, bodyKeys{"one"}, 1<<10)
		require.ErrorIs(t, err, errClientBodies)
		assert.Equal(t, want, held)
		b.remove(bodyKeys{"one"}, held)
		assert.Zero(t, b.total)
		assert.Empty(t, b.held)
	}
}

// Client IPs that hold all they can, one after the other, leave room for another.
func TestBodiesOfOthersLeaveRoom(t *testing.T) {
	t.Parallel()
	const whole = (freeShares + 1) * clientBodies
	for attackers, want := range map[int]int64{0: clientBodies, 1: 7 << 20, 8: 3 << 20, 32: 180 << 10, 64: 4 << 10} {
		b := &bodies{}
		for i := range attackers {
			_, _ = fill(b, bodyKeys{fmt.Sprint(i)}, 512)
		}
		held, err := fill(b, bodyKeys{"another"}, 512)
		require.Error(t, err)
		assert.GreaterOrEqual(t, held, want, "%d attackers", attackers)
		assert.LessOrEqual(t, b.total, int64(whole))
	}
}

// A hoster gives a whole /48 to one customer.
func TestBodiesOfANetworkLeaveRoom(t *testing.T) {
	t.Parallel()
	b := &bodies{}
	for i := range 200 {
		_, _ = fill(b, keysOf(netip.MustParseAddr(fmt.Sprintf("2001:db8:7:%x::1", i))), 512)
	}
	require.LessOrEqual(t, b.total, int64(24<<20))
	held, err := fill(b, keysOf(netip.MustParseAddr("2001:db8:8::1")), 512)
	require.Error(t, err)
	require.GreaterOrEqual(t, held, int64(5<<20))
}
