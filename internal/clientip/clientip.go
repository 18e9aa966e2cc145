// Package clientip says which requests come from one client.
package clientip

import "net/netip"

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
