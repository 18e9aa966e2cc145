package ratelimit

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
)

// counterID is the hash of a counter. As a truncated SHA-256 it can neither be chosen by a caller nor collide with another's.
type counterID [16]byte

// groupTag is the hash of a group. It becomes the hash tag that determines the Cluster slot, so that no text controlled by a
// caller does.
type groupTag uint64

// hashCounters validates the counters of a request, hashes its group, and sets ids to the counters' hashes.
func hashCounters(a Algorithm, group string, counters []Counter, ids *[MaxCounters]counterID) (groupTag, error) {
	if len(counters) == 0 || len(counters) > MaxCounters {
		return 0, fmt.Errorf("%w: invalid number of counters %d: must be from 1 to %d", ErrInvalid, len(counters), MaxCounters)
	}
	t := hashGroup(group)
	for i := range counters {
		c := &counters[i]
		if err := c.Limit.validate(); err != nil {
			return 0, err
		}
		ids[i] = hashCounter(a, t, c)
		if slices.Contains(ids[:i], ids[i]) {
			return 0, fmt.Errorf("%w %q: duplicate counter", ErrInvalid, c.Limit.Name)
		}
	}
	return t, nil
}

func hashGroup(group string) groupTag {
	var stack [128]byte
	sum := sha256.Sum256(append(stack[:0], group...))
	return groupTag(binary.BigEndian.Uint64(sum[:]))
}

// hashCounter includes the algorithm and the format of the exact one's values, because values of different algorithms or
// formats must not share a key.
func hashCounter(a Algorithm, t groupTag, c *Counter) counterID {
	const format = 2
	var stack [192]byte
	buf := append(stack[:0], format)
	buf = append(buf, a...)
	buf = binary.BigEndian.AppendUint64(append(buf, 0), uint64(t))
	buf = strconv.AppendInt(buf, int64(c.Limit.Window), 10)
	// The length separates the name from the key.
	buf = strconv.AppendInt(append(buf, 0), int64(len(c.Limit.Name)), 10)
	buf = append(append(buf, 0), c.Limit.Name...)
	buf = append(buf, c.Key...)
	sum := sha256.Sum256(buf)
	return counterID(sum[:len(counterID{})])
}

// redisKey returns a counter's key in Redis: prefix{tag}policy:id.
func redisKey(prefix string, t groupTag, policy string, i *counterID) string {
	var stack [160]byte
	buf := append(stack[:0], prefix...)
	buf = append(buf, '{')
	buf = t.append(buf)
	buf = append(buf, '}')
	buf = append(buf, policy...)
	buf = append(buf, ':')
	buf = base64.RawURLEncoding.AppendEncode(buf, i[:])
	return string(buf)
}

// markKey returns the key of the mark of an accepted request: prefix{tag}:MAC. Policies have names, so counters have other keys.
func markKey(prefix string, t groupTag, mac *[16]byte) string {
	return redisKey(prefix, t, "", (*counterID)(mac))
}

func (t groupTag) append(buf []byte) []byte {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], uint64(t))
	return base64.RawURLEncoding.AppendEncode(buf, raw[:])
}

// slots is the number of slots of a Redis Cluster.
const slots = 16384

// slot returns the Cluster slot of a tag: CRC16 (XMODEM) of its text.
func (t groupTag) slot() int {
	var stack [16]byte
	var crc uint16
	for _, c := range t.append(stack[:0]) {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % slots)
}
