package ratelimit

import (
	"net/netip"
	"time"
)

// The public contract's numbers: requests a minute.
const (
	DefaultKeyRequests        = 60
	DefaultAddressRequests    = 10
	UnverifiedKeyRequests     = 60
	UnverifiedAddressRequests = 120
)

// The names of the contract's limits in the response headers.
const (
	PolicyKey               = "key"
	PolicyAddress           = "address"
	PolicyUnverifiedKey     = "unverified-key"
	PolicyUnverifiedAddress = "unverified-address"
)

// KeyLimit is the limit of a public key for those who can sign for it: requests
// a minute, or the contract's 60 if requests is not above 0.
func KeyLimit(requests int) Limit {
	return perMinute(PolicyKey, requests, DefaultKeyRequests)
}

// AddressLimit is the limit of an address that names no key: requests a minute,
// or the contract's 10 if requests is not above 0.
func AddressLimit(requests int) Limit {
	return perMinute(PolicyAddress, requests, DefaultAddressRequests)
}

// ForKey is the bucket of a request whose signature was verified, and its group.
func ForKey(publicKey string, limit Limit) (group string, bucket Bucket) {
	return publicKey, Bucket{Key: publicKey, Limit: limit}
}

// ForAddress is the bucket of a request that names no key, and its group. The
// address is AddressKey's.
func ForAddress(address string, limit Limit) (group string, bucket Bucket) {
	return address, Bucket{Key: address, Limit: limit}
}

// ForUnverified are the buckets of a request that names a key but could not be
// verified: 60 a minute for the key and address, and 120 a minute for the
// address over all the keys that it names. Both are its sender's: neither
// touches the budget of the key's owner. The address is AddressKey's.
func ForUnverified(publicKey, address string) (group string, buckets []Bucket) {
	return address, []Bucket{
		// The address holds no NUL, so that no two pairs give the same key.
		{Key: address + "\x00" + publicKey, Limit: perMinute(PolicyUnverifiedKey, 0, UnverifiedKeyRequests)},
		UnverifiedAddress(address),
	}
}

// UnverifiedAddress is the second bucket of ForUnverified by itself. While Peek denies it, credentials that its sender names
// need not be looked up.
func UnverifiedAddress(address string) Bucket {
	return Bucket{Key: address, Limit: perMinute(PolicyUnverifiedAddress, 0, UnverifiedAddressRequests)}
}

// AddressKey is the address as limits count it: an IPv4 address by itself, also
// when it is mapped into IPv6; an IPv6 address by its /64, which is what one
// customer holds, without a zone. All invalid addresses share "unknown".
func AddressKey(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if !a.IsValid() {
		return "unknown"
	}
	if a.Is4() {
		return a.String()
	}
	prefix, err := a.Prefix(64)
	if err != nil { // not for an IPv6 address
		return a.String()
	}
	return prefix.String()
}

func perMinute(name string, requests, standard int) Limit {
	if requests <= 0 {
		requests = standard
	}
	return Limit{Name: name, Requests: requests, Window: time.Minute}
}
