package pages

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

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
		devices, err := s.redis.LRange(ctx, s.devicesKey(accountDigest(email)), 0, -1).Result()
		known = slices.Contains(devices, deviceDigest(email, device))
		return err
	})
	return known, err
}

// addDevice stores that a browser has signed in to the account, replaces its old cookie and returns the new one's value. So
// a device is known only to the account that it signed in to last.
func (s *store) addDevice(ctx context.Context, email, old string) (string, error) {
	device := newRandom()
	key := s.devicesKey(accountDigest(email))
	err := call(ctx, "storing a device", func(ctx context.Context) error {
		_, err := s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
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
