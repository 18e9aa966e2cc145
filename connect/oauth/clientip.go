package oauth

import (
	"net/http"
	"net/netip"

	"github.com/gatehouse-gateway/gatehouse/internal/clientip"
)

// peerIPKey returns the rate limit key of the peer's address.
func peerIPKey(r *http.Request) string {
	ap, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero Addr if it is invalid
	return clientip.Key(ap.Addr())
}
