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

// Limits of attempts per sliding window. They are checked before passwords.
const (
	attemptsWindow     = 15 * time.Minute
	attemptsPerAccount = 10 // whether the account exists or not
	attemptsPerDevice  = 10 // for an account, from a browser whose last sign-in was to it
	attemptsPerIP      = 30 // for all accounts

	changesWindow     = time.Hour
	changesPerAccount = 20 // keys issued and rotated
)

//go:embed attempt.lua
var attemptScript string

// attempt is a counted attempt, for refund.
type attempt struct{ key, id string }

// allow counts an attempt if there are fewer than limit in the window. It returns how long to wait, or 0 if it is allowed.
func (s *store) allow(ctx context.Context, name string, limit int, window time.Duration) (counted attempt, wait time.Duration, err error) {
	counted = attempt{key: s.o.Prefix + name, id: newRandom()}
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

// countSignIn counts a sign-in attempt. It returns how long to wait, or 0 if it is allowed, and the attempt that counts against
// the account or device. Anyone who knows an account's address can exhaust its limit. A browser whose last sign-in was to the account
// therefore has a limit of its own, so that the account's user is not locked out.
func (s *store) countSignIn(ctx context.Context, email string, addr netip.Addr, device string) (
	counted attempt, wait time.Duration, err error,
) {
	known, err := s.knownDevice(ctx, email, device)
	if err != nil {
		return attempt{}, 0, err
	}
	// The client IP first: attempts denied to it do not count against the account.
	if _, wait, err = s.allow(ctx, "sign-in:ip:"+clientip.Key(addr), attemptsPerIP, attemptsWindow); err != nil || wait > 0 {
		return attempt{}, wait, err
	}
	if known {
		return s.allow(ctx, "sign-in:device:"+digest(device), attemptsPerDevice, attemptsWindow)
	}
	return s.allow(ctx, "sign-in:account:"+accountDigest(email), attemptsPerAccount, attemptsWindow)
}

// accountDigest identifies the account of an address as typed, in Redis and in logs: all spellings that an accounts service may
// consider equal have the same digest. It is a digest because users also type passwords into this field.
func accountDigest(email string) string { return digest(account.FoldAddress(email))[:32] }

// Known devices: the browsers that have signed in to an account. Each is known to the account that it signed in to last, because
// signing in replaces its cookie.
const (
	deviceAge  = 180 * 24 * time.Hour // since the last sign-in to the account
	maxDevices = 20                   // per account
)

// knownDevice reports whether the last sign-in of device was to the account.
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

// addDevice stores that a browser has signed in to the account, replaces its old cookie and returns the new one's value.
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

// deviceDigest depends on the address exactly as typed: signing in to an account with a similar address must not make a device
// known for this one.
func deviceDigest(email, device string) string {
	return digest(device + " " + strings.TrimSpace(email))
}
