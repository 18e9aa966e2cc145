package ratelimit

import (
	"net/netip"
	"time"

	"github.com/gatehouse-gateway/gatehouse/internal/clientip"
)

// Limits of the public contract, in requests per minute.
const (
	DefaultKeyRequests    = 60
	DefaultIPRequests     = 10
	UnverifiedKeyRequests = 60
	UnverifiedIPRequests  = 120
)

// Names of the contract's limits in the response headers. They are part of the public API.
const (
	PolicyKey           = "key"
	PolicyIP            = "address"
	PolicyUnverifiedKey = "unverified-key"
	PolicyUnverifiedIP  = "unverified-address"
)

// KeyLimit returns the limit of an authenticated public key: requests per minute, or the contract's 60 if requests is not
// positive.
func KeyLimit(requests int) Limit {
	return perMinute(PolicyKey, requests, DefaultKeyRequests)
}

// IPLimit returns the limit of a client IP for requests without a key: requests per minute, or the contract's 10 if requests
// is not positive.
func IPLimit(requests int) Limit {
	return perMinute(PolicyIP, requests, DefaultIPRequests)
}

// ForKey returns the bucket of an authenticated request and its group.
func ForKey(publicKey string, limit Limit) (group string, bucket Bucket) {
	return publicKey, Bucket{Key: publicKey, Limit: limit}
}

// ForIP returns the bucket of a request without a key and its group. ip is the result of IPKey.
func ForIP(ip string, limit Limit) (group string, bucket Bucket) {
	return ip, Bucket{Key: ip, Limit: limit}
}

// ForUnverified returns the buckets of a request that names a key but could not be authenticated: one for the pair of key
// and client IP (60 per minute), and one for the client IP with all keys (120 per minute). Such requests never count against
// the limit of the key itself. ip is the result of IPKey.
func ForUnverified(publicKey, ip string) (group string, buckets []Bucket) {
	return ip, []Bucket{
		// An IP contains no NUL, so different pairs have different keys.
		{Key: ip + "\x00" + publicKey, Limit: perMinute(PolicyUnverifiedKey, 0, UnverifiedKeyRequests)},
		UnverifiedIP(ip),
	}
}

// UnverifiedIP returns the second bucket of ForUnverified. While Peek denies it, credentials of keys that this client IP
// names need not be looked up.
func UnverifiedIP(ip string) Bucket {
	return Bucket{Key: ip, Limit: perMinute(PolicyUnverifiedIP, 0, UnverifiedIPRequests)}
}

// IPKey is the client IP as limits count it: an IPv4 address by itself, an IPv6 address by its /64. All invalid addresses share
// "unknown".
func IPKey(a netip.Addr) string { return clientip.Key(a) }

func perMinute(name string, requests, standard int) Limit {
	if requests <= 0 {
		requests = standard
	}
	return Limit{Name: name, Requests: requests, Window: time.Minute}
}
