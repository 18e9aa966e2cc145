// Package clientip says which requests come from one client.
package clientip

import (
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

// Peer returns the address of a request's peer, or the zero Addr if it has none.
func Peer(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}
