package pages

import (
	"context"
	_ "embed"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"golang.org/x/text/cases"
	"golang.org/x/text/collate"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"
)

// How many attempts there may be in any window of that length. What is over is refused before any password is looked at.
const (
	attemptsWindow     = 15 * time.Minute
	attemptsPerAccount = 10 // by whomever, whether the account exists or not
	attemptsPerDevice  = 10 // for an account, from a browser that has signed in to it before
	attemptsPerAddress = 30 // for whatever account

	changesWindow     = time.Hour
	changesPerAccount = 20 // keys issued and rotated, and attempts of members

	deviceAge  = 180 * 24 * time.Hour // since the last time that anybody signed in to the account
	maxDevices = 20                   // browsers remembered for an account
)

//go:embed attempt.lua
var attemptScript string

// attempts limits attempts to sign in, and changes of keys. In Redis:
//
//	{prefix}sign-in:…, {prefix}keys:…  the attempts within the window: a sorted set of their ids by time
//	{prefix}devices:{account digest}   the digests of the browsers that have signed in to the account, newest first
//
// Anybody who knows an account's address can use up its attempts. So that this does not lock its owner out, a browser
// that has signed in to the account before has attempts of its own there.
type attempts struct {
	redis  redis.UniversalClient
	prefix string
	script *redis.Script
}

// attempt is one that was taken, and may be given back.
type attempt struct{ key, id string }

// take takes one of most attempts in the window. It returns how long to wait, 0 if the attempt may be made.
func (a attempts) take(ctx context.Context, name string, most int, window time.Duration) (taken attempt, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	taken = attempt{key: a.prefix + name, id: newRandom()}
	ms, err := a.script.Run(ctx, a.redis, []string{taken.key}, window.Milliseconds(), most, taken.id).Int64()
	if err != nil {
		return attempt{}, 0, fmt.Errorf("counting an attempt: %w", err)
	}
	return taken, time.Duration(ms) * time.Millisecond, nil
}

// giveBack makes an attempt one that was never made.
func (a attempts) giveBack(ctx context.Context, taken attempt) error {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	if err := a.redis.ZRem(ctx, taken.key, taken.id).Err(); err != nil {
		return fmt.Errorf("giving an attempt back: %w", err)
	}
	return nil
}

// signIn counts an attempt. It returns how long to wait, 0 if the attempt may be made, and what of it counts against the
// account.
func (a attempts) signIn(ctx context.Context, email string, addr netip.Addr, device string) (
	taken attempt, wait time.Duration, err error,
) {
	known, err := a.knows(ctx, email, device)
	if err != nil {
		return attempt{}, 0, err
	}
	// The sender first: what it is refused for its own sake costs the account nothing.
	if _, wait, err = a.take(ctx, "sign-in:address:"+addressKey(addr), attemptsPerAddress, attemptsWindow); err != nil || wait > 0 {
		return attempt{}, wait, err
	}
	if known {
		return a.take(ctx, "sign-in:device:"+digest(device), attemptsPerDevice, attemptsWindow)
	}
	return a.take(ctx, "sign-in:account:"+accountDigest(email), attemptsPerAccount, attemptsWindow)
}

// change counts a change of keys by an account. It returns how long to wait, 0 if the change may be made.
func (a attempts) change(ctx context.Context, accountID string) (time.Duration, error) {
	_, wait, err := a.take(ctx, "keys:"+accountID, changesPerAccount, changesWindow)
	return wait, err
}

// knows reports whether device has signed in to the account before.
func (a attempts) knows(ctx context.Context, email, device string) (bool, error) {
	if !wellFormed(device) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	devices, err := a.redis.LRange(ctx, devicesKey(a.prefix, accountDigest(email)), 0, -1).Result()
	if err != nil {
		return false, fmt.Errorf("looking a browser up: %w", err)
	}
	return slices.Contains(devices, deviceDigest(email, device)), nil
}

// remember makes a browser one that has signed in to the account, in place of old, and returns its cookie's value.
func (a attempts) remember(ctx context.Context, email, old string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	device := newRandom()
	key := devicesKey(a.prefix, accountDigest(email))
	_, err := a.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.LRem(ctx, key, 0, deviceDigest(email, old))
		p.LPush(ctx, key, deviceDigest(email, device))
		p.LTrim(ctx, key, 0, maxDevices-1)
		p.PExpire(ctx, key, deviceAge)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("remembering a browser: %w", err)
	}
	return device, nil
}

func devicesKey(prefix, account string) string { return prefix + "devices:" + account }

// deviceDigest is a browser's for an address exactly as typed: whoever has an account whose address is spelt similarly gets
// no attempts at this one by it.
func deviceDigest(email, device string) string {
	return digest(device + " " + strings.TrimSpace(email))
}

// accountDigest names an account by what was typed, in Redis and in logs: people type passwords there, too. Spellings that
// an accounts service may take for the same are the same here: whatever differs in case, width, accents, compatibility
// forms, spaces or invisible characters only, and whatever collations of databases compare equal, such as ø and o.
func accountDigest(email string) string {
	folded := cases.Fold().String(norm.NFKD.String(strings.ToUpper(email))) // dotless i is I in upper case only
	folded = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.M, unicode.Z, unicode.C, unicode.Other_Default_Ignorable_Code_Point) {
			return -1
		}
		return r
	}, norm.NFKD.String(folded))
	var b collate.Buffer
	return digest(string(collate.New(language.Und, collate.Loose).KeyFromString(&b, folded)))[:32]
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
