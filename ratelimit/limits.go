package ratelimit

import (
	"net/netip"
	"time"

	"github.com/gatehouse-gateway/gatehouse/internal/clientip"
)

// Limits of the public contract, in requests per minute.
const (
	keyRequests           = 60
	ipRequests            = 10
	unverifiedKeyRequests = 60
	unverifiedIPRequests  = 120
)

// Names of the contract's limits in the response headers. They are part of the public API.
const (
	PolicyKey           = "key"
	PolicyIP            = "ip"
	PolicyUnverifiedKey = "unverified-key"
	PolicyUnverifiedIP  = "unverified-ip"
)

// KeyLimit returns the limit of an authenticated public key: requests per minute, or the contract's 60 if requests is not
// positive.
func KeyLimit(requests int) Limit { return perMinute(PolicyKey, requests, keyRequests) }

// IPLimit returns the limit of a client IP for requests without a key: requests per minute, or the contract's 10 if requests
// is not positive.
func IPLimit(requests int) Limit { return perMinute(PolicyIP, requests, ipRequests) }

// ForKey returns the counter of an authenticated request and its group.
func ForKey(publicKey string, limit Limit) (group string, counters []Counter) {
	return publicKey, []Counter{{Key: publicKey, Limit: limit}}
}

// ForIP returns the counter of a request without a key and its group. Limits count an IPv4 address by itself and an IPv6 address
// by its /64; all invalid addresses share a counter.
func ForIP(ip netip.Addr, limit Limit) (group string, counters []Counter) {
	key := clientip.Key(ip)
	return key, []Counter{{Key: key, Limit: limit}}
}

// ForUnverified returns the counters of a request that names a key but could not be authenticated: one for the pair of key
// and client IP (60 per minute), and one for the client IP with all keys (120 per minute). Such requests never count against
// the limit of the key itself. While Peek denies the second one, keys that this client IP names need not be looked up.
func ForUnverified(publicKey string, ip netip.Addr) (group string, counters []Counter) {
	group, all := ForIP(ip, perMinute(PolicyUnverifiedIP, 0, unverifiedIPRequests))
	// An IP contains no NUL, so different pairs have different keys.
	pair := Counter{Key: group + "\x00" + publicKey, Limit: perMinute(PolicyUnverifiedKey, 0, unverifiedKeyRequests)}
	return group, append([]Counter{pair}, all...)
}

func perMinute(name string, requests, standard int) Limit {
	if requests <= 0 {
		requests = standard
	}
	return Limit{Name: name, Requests: requests, Window: time.Minute}
}
