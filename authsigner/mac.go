package authsigner

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"sync"
	"sync/atomic"
)

// mac is a reusable HMAC-SHA256 state of one private key. After the first Reset, crypto/hmac reuses the key schedule and does not
// allocate.
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
	// hash.Hash never returns an error
	_, _ = m.hash.Write(head)
	_, _ = m.hash.Write(body)
	return m.hash.Sum(dst)
}

// macs is a pool of the states of one private key. It always keeps one state: a sync.Pool is emptied by the garbage collector,
// which would make rarely used keys measurably slower than unknown ones. The zero value is ready to use.
type macs struct {
	resident atomic.Pointer[mac]
	spare    sync.Pool
}

// get returns a state of secret for exclusive use until put.
func (p *macs) get(secret Secret) *mac {
	m := p.resident.Swap(nil)
	if m == nil {
		m, _ = p.spare.Get().(*mac)
	}
	// The strings usually share their bytes, so comparing them is cheap. They differ only if the credential was modified.
	if m == nil || m.secret != secret {
		m = newMAC(secret)
	}
	return m
}

func (p *macs) put(m *mac) {
	if !p.resident.CompareAndSwap(nil, m) {
		p.spare.Put(m)
	}
}

// warm creates the HMAC states before the first request.
func (c *Credential) warm() {
	c.current.put(c.current.get(c.PrivateKey))
	if c.PreviousPrivateKey.usable() {
		c.previous.put(c.previous.get(c.PreviousPrivateKey))
	}
}
