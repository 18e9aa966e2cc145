package pages

import (
	"context"
	_ "embed"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/internal/clientip"
)

// Limits of attempts per sliding window. Those of sign-ins are checked before the password.
const (
	attemptsWindow     = 15 * time.Minute
	attemptsPerAccount = 10 // whether the account exists or not
	attemptsPerDevice  = 10 // for an account, from one browser whose last sign-in was to it
	attemptsPerIP      = 30 // for all accounts together

	changesWindow     = time.Hour
	changesPerAccount = 20 // keys issued and rotated

	attemptChars = 11 // of an attempt's ID: the attempts of one limit must differ
)

//go:embed attempt.lua
var attemptScript string

// attempt identifies a counted attempt, for refund.
type attempt struct{ key, id string }

// allow counts an attempt unless there were limit in the window already. It returns how long to wait, or 0 if it is allowed.
func (s *store) allow(ctx context.Context, name string, limit int, window time.Duration) (counted attempt, wait time.Duration, err error) {
	counted = attempt{key: s.o.Prefix + name, id: newRandom()[:attemptChars]}
	err = call(ctx, "counting an attempt", func(ctx context.Context) error {
		ms, err := s.attempt.Run(ctx, s.o.Redis, []string{counted.key}, window.Milliseconds(), limit, counted.id).Int64()
		wait = time.Duration(ms) * time.Millisecond
		return err
	})
	return counted, wait, err
}

// refund removes a counted attempt from its limit.
func (s *store) refund(ctx context.Context, counted attempt) error {
	return call(ctx, "removing an attempt from its limit", func(ctx context.Context) error {
		return s.o.Redis.ZRem(ctx, counted.key, counted.id).Err()
	})
}

// countSignIn counts a sign-in attempt. It returns how long to wait, or 0 if it is allowed, and the attempt that counts against the
// account or device. Anyone who knows the address of an account can exhaust its limit. A browser whose last sign-in was to the account
// has a limit of its own, so that this does not lock the account's user out.
func (s *store) countSignIn(ctx context.Context, email string, addr netip.Addr, device string) (counted attempt, wait time.Duration, err error) {
	known, err := s.knownDevice(ctx, email, device)
	if err != nil {
		return attempt{}, 0, err
	}
	// Check the client IP first, so that attempts denied to it do not count against the account.
	for key, times := range clientip.Keys(addr) {
		if _, wait, err = s.allow(ctx, "sign-in:ip:"+key, times*attemptsPerIP, attemptsWindow); err != nil || wait > 0 {
			return attempt{}, wait, err
		}
	}
	if known {
		return s.allow(ctx, "sign-in:device:"+digest(device), attemptsPerDevice, attemptsWindow)
	}
	return s.allow(ctx, "sign-in:account:"+accountDigest(email), attemptsPerAccount, attemptsWindow)
}

// accountDigest identifies the account of an address as typed, in Redis and in logs. All spellings that an accounts service may treat
// as equal have the same digest. It is a digest because users also type passwords into this field.
func accountDigest(email string) string { return digest(account.FoldAddress(email))[:32] }

// Known devices are the browsers that have signed in to an account. Signing in to another account replaces the cookie, so that a
// browser is known for one account only.
const (
	deviceAge  = 180 * 24 * time.Hour // since the last sign-in
	maxDevices = 20                   // per account
)

// knownDevice reports whether the last sign-in with the device cookie's browser was to the account.
func (s *store) knownDevice(ctx context.Context, email, device string) (known bool, err error) {
	if !wellFormed(device) {
		return false, nil
	}
	err = call(ctx, "looking up a device", func(ctx context.Context) error {
		devices, err := s.o.Redis.LRange(ctx, s.devicesKey(accountDigest(email)), 0, -1).Result()
		known = slices.Contains(devices, deviceDigest(email, device))
		return err
	})
	return known, err
}

// addDevice stores a new device for the account, instead of the one with the cookie old, and returns its cookie's value.
func (s *store) addDevice(ctx context.Context, email, old string) (string, error) {
	device := newRandom()
	key := s.devicesKey(accountDigest(email))
	err := call(ctx, "storing a device", func(ctx context.Context) error {
		_, err := s.o.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.LRem(ctx, key, 0, deviceDigest(email, old))
			p.LPush(ctx, key, deviceDigest(email, device))
			p.LTrim(ctx, key, 0, maxDevices-1)
			p.PExpire(ctx, key, deviceAge)
			return nil
		})
		return err
	})
	return device, err
}

// deviceDigest depends on the address exactly as typed, unlike accountDigest: a sign-in to an account with a similar address must not
// make a device known for this one.
func deviceDigest(email, device string) string {
	return digest(device + " " + strings.TrimSpace(email))
}
