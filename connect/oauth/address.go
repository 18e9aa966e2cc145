package oauth

import (
	"net/http"
	"net/netip"

	"github.com/gatehouse-gateway/gatehouse/internal/clientip"
)

// peerAddress returns the rate limit key of the peer's address.
func peerAddress(r *http.Request) string {
	ap, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero Addr if it is not one
	return clientip.Key(ap.Addr())
}
