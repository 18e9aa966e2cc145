// Package clientip says which requests come from one client.
package clientip

import (
	"iter"
	"net/http"
	"net/netip"
)

// Key returns the key under which requests from a are counted together: an IPv4 address by itself, also when it is mapped into
// IPv6; an IPv6 address by its /64, which is what one customer of a network has, without a zone. All invalid addresses share
// "unknown".
func Key(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	switch {
	case !a.IsValid():
		return "unknown"
	case a.Is4():
		return a.String()
	}
	return netip.PrefixFrom(a, 64).Masked().String()
}

// NetworkTimes is how many times the limit of one client an IPv6 /48 has.
const NetworkTimes = 4

// Keys returns the keys under which an unauthenticated request from a is counted, each with how many times the limit of one client
// it has: [Key] once, and for an IPv6 address its /48 four times. Hosters and tunnel brokers give a whole /48, which is 65,536 keys,
// to one customer; other networks have several customers in one.
func Keys(a netip.Addr) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		if a = a.Unmap().WithZone(""); yield(Key(a), 1) && a.Is6() {
			yield(netip.PrefixFrom(a, 48).Masked().String(), NetworkTimes)
		}
	}
}

// Peer returns the address of a request's peer, or the zero Addr if it has none.
func Peer(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}
