package ratelimit

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
)

// An id is a bucket's hash. A caller can neither choose nor meet another's: it is
// cut from SHA-256, over the group, the policy and the key.
type id [16]byte

// tag is a group's hash. It becomes the hash tag that decides the Cluster slot,
// so that no text of a caller's does.
type tag uint64

func hashGroup(group string) tag {
	var stack [128]byte
	sum := sha256.Sum256(append(stack[:0], group...))
	return tag(binary.BigEndian.Uint64(sum[:]))
}

// hashBucket also covers the algorithm, whose values in Redis are not alike, and
// the format of the exact one's: another format is another bucket.
func hashBucket(a Algorithm, t tag, b *Bucket) id {
	const format = 2
	var stack [192]byte
	buf := append(stack[:0], format)
	buf = append(buf, a...)
	buf = binary.BigEndian.AppendUint64(append(buf, 0), uint64(t))
	buf = strconv.AppendInt(buf, int64(b.Limit.Window), 10)
	// The name's length keeps it apart from the key.
	buf = strconv.AppendInt(append(buf, 0), int64(len(b.Limit.Name)), 10)
	buf = append(append(buf, 0), b.Limit.Name...)
	buf = append(buf, b.Key...)
	sum := sha256.Sum256(buf)
	return id(sum[:len(id{})])
}

// redisKey is the bucket's key, prefix{tag}policy:id.
func redisKey(prefix string, t tag, policy string, i *id) string {
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

func (t tag) append(buf []byte) []byte {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], uint64(t))
	return base64.RawURLEncoding.AppendEncode(buf, raw[:])
}

// slots is the number of slots of a Redis Cluster.
const slots = 16384

// slot is the Cluster slot of a tag: CRC16 (XMODEM) of its text.
func (t tag) slot() int {
	var stack [16]byte
	var crc uint16
	for _, b := range t.append(stack[:0]) {
		crc ^= uint16(b) << 8
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
