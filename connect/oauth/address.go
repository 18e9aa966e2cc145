package oauth

import (
	"net/http"
	"net/netip"
)

// peerAddress is the address that a request came from: of IPv6 the /64 that a subscriber has, since everybody has many
// addresses in it.
func peerAddress(r *http.Request) string {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	prefix, err := ip.Prefix(64)
	if err != nil {
		return ip.String()
	}
	return prefix.String()
}
