package pages

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// How many attempts there may be. What is over is refused before any password is looked at.
const (
	attemptsWindow     = 15 * time.Minute
	attemptsPerAccount = 10 // by whomever, whether the account exists or not
	attemptsPerDevice  = 10 // for an account, from a browser that has signed in to it before
	attemptsPerAddress = 30 // for whatever account

	changesWindow     = time.Hour
	changesPerAccount = 20 // keys issued and rotated

	deviceAge = 180 * 24 * time.Hour
)

// attempts limits attempts to sign in, and changes of keys. In Redis, beside what the limiter keeps:
//
//	{prefix}device:{sha256 of the cookie}  the digest of the account's address
//
// An account's budget can be used up by anybody who knows the address. So that this does not lock its owner out, a browser
// that has signed in to the account before has a budget of its own there.
type attempts struct {
	limiter Limiter
	redis   redis.UniversalClient
	prefix  string
}

// signIn counts an attempt. It returns how long to wait, 0 if the attempt may be made. account is what forgive takes.
func (a attempts) signIn(ctx context.Context, email string, addr netip.Addr, device string) (wait time.Duration, account string,
	err error,
) {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	who := accountDigest(email)
	account, limit := "account:"+who, attemptsPerAccount
	known, err := a.knows(ctx, device, who)
	if err != nil {
		return 0, "", err
	}
	if known {
		account, limit = "device:"+digest(device), attemptsPerDevice
	}
	for _, b := range []struct {
		key   string
		limit int
	}{
		// The sender first: what it is refused for its own sake costs the account nothing.
		{"address:" + addressKey(addr), attemptsPerAddress},
		{account, limit},
	} {
		r, err := a.limiter.Allow(ctx, a.key("sign-in:"+b.key),
			redis_rate.Limit{Rate: b.limit, Burst: b.limit, Period: attemptsWindow})
		if err != nil {
			return 0, "", fmt.Errorf("counting an attempt to sign in: %w", err)
		}
		if r.Allowed == 0 {
			return max(r.RetryAfter, time.Second), account, nil
		}
	}
	return 0, account, nil
}

// forgive forgets an account's attempts once one has succeeded. The sender's stay: it may have an account of its own.
func (a attempts) forgive(ctx context.Context, account string) error {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	if err := a.limiter.Reset(ctx, a.key("sign-in:"+account)); err != nil {
		return fmt.Errorf("forgetting attempts to sign in: %w", err)
	}
	return nil
}

// change counts a change of keys by an account. It returns how long to wait, 0 if the change may be made.
func (a attempts) change(ctx context.Context, accountID string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	r, err := a.limiter.Allow(ctx, a.key("keys:"+accountID),
		redis_rate.Limit{Rate: changesPerAccount, Burst: changesPerAccount, Period: changesWindow})
	if err != nil {
		return 0, fmt.Errorf("counting a change of keys: %w", err)
	}
	if r.Allowed == 0 {
		return max(r.RetryAfter, time.Second), nil
	}
	return 0, nil
}

// knows reports whether device has signed in to the account before.
func (a attempts) knows(ctx context.Context, device, who string) (bool, error) {
	if !wellFormed(device) {
		return false, nil
	}
	known, err := a.redis.Get(ctx, a.deviceKey(device)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("looking a browser up: %w", err)
	}
	return known == who, nil
}

// remember makes a browser one that has signed in to the account, and returns its cookie's value.
func (a attempts) remember(ctx context.Context, email string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	device := newRandom()
	if err := a.redis.Set(ctx, a.deviceKey(device), accountDigest(email), deviceAge).Err(); err != nil {
		return "", fmt.Errorf("remembering a browser: %w", err)
	}
	return device, nil
}

// forgetDevice is for a browser that gets another cookie.
func (a attempts) forgetDevice(ctx context.Context, device string) error {
	if !wellFormed(device) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	if err := a.redis.Del(ctx, a.deviceKey(device)).Err(); err != nil {
		return fmt.Errorf("forgetting a browser: %w", err)
	}
	return nil
}

func (a attempts) key(name string) string         { return a.prefix + name }
func (a attempts) deviceKey(device string) string { return a.prefix + "device:" + digest(device) }

// accountDigest names an account by what was typed, in Redis and in logs: people type passwords there, too. Spellings that
// an accounts service may take for the same are the same here.
func accountDigest(email string) string {
	return digest(strings.ToLower(strings.TrimSpace(email)))[:32]
}

// addressKey is the sender: one IPv4 address, or the /64 that a customer of a network usually has.
func addressKey(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if !addr.IsValid() {
		return "unknown"
	}
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			return p.String()
		}
	}
	return addr.String()
}

// once lets a form do its work once, so that sending it again by mistake or by reloading the answer does nothing. In
// Redis, {prefix}once:{sha256 of the form's token} says that it was done.
type once struct {
	redis  redis.UniversalClient
	prefix string
	keep   time.Duration // a token's longest life
}

// first reports whether the form with this token is seen for the first time.
func (o once) first(ctx context.Context, token string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	ok, err := o.redis.SetNX(ctx, o.prefix+"once:"+digest(token), 1, o.keep).Result()
	if err != nil {
		return false, fmt.Errorf("remembering a form: %w", err)
	}
	return ok, nil
}
