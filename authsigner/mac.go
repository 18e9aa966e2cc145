package authsigner

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"sync"
	"sync/atomic"
)

// mac is a ready HMAC-SHA256 state of one secret. crypto/hmac keeps the two padded blocks after the first Reset, so
// that a further message costs neither the key schedule nor an allocation.
type mac struct {
	secret Secret
	hash   hash.Hash
}

func newMAC(secret Secret) *mac {
	m := &mac{secret: secret, hash: hmac.New(sha256.New, []byte(secret))}
	m.hash.Reset()
	return m
}

// sum appends the HMAC of head followed by body to dst.
func (m *mac) sum(dst, head, body []byte) []byte {
	m.hash.Reset()
	// A hash never returns an error.
	_, _ = m.hash.Write(head)
	_, _ = m.hash.Write(body)
	return m.hash.Sum(dst)
}

// macs lends the states of one secret to concurrent requests. One state stays resident, so that a key which is
// seldom used answers no slower than a busy one (a sync.Pool alone is emptied by the collector, and that would make
// a known key that nobody uses slower than an unknown one); what concurrency asks for beyond it comes from the pool.
// The zero value is ready.
type macs struct {
	resident atomic.Pointer[mac]
	spare    sync.Pool
}

// take returns a state of secret that nobody else uses until it is given back.
func (p *macs) take(secret Secret) *mac {
	m := p.resident.Swap(nil)
	if m == nil {
		m, _ = p.spare.Get().(*mac)
	}
	// The comparison is of two pointers to the same bytes, unless somebody changed a credential after its first
	// use: then the state of the old secret must not live on.
	if m == nil || m.secret != secret {
		m = newMAC(secret)
	}
	return m
}

func (p *macs) giveBack(m *mac) {
	if !p.resident.CompareAndSwap(nil, m) {
		p.spare.Put(m)
	}
}

// warm builds the states of the credential's secrets ahead of its first request.
func (c *Credential) warm() {
	c.current.giveBack(c.current.take(c.PrivateKey))
	if c.PreviousPrivateKey.usable() {
		c.previous.giveBack(c.previous.take(c.PreviousPrivateKey))
	}
}
