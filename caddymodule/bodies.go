package caddymodule

import (
	"errors"
	"net/netip"
	"sync"

	"github.com/gatehouse-gateway/gatehouse/internal/clientip"
)

const (
	// clientBodies is how many bytes of request bodies a client IP may have in progress. It is max_body if that is more.
	clientBodies = 8 << 20

	// freeShares is how many times what a client IP has must be free for it to have more. So all client IPs together may have freeShares+1
	// times what one may have.
	freeShares = 8
)

// The errors of bodies.
var (
	errClientBodies = errors.New("the client IP has too many bytes of request bodies in progress")
	errAllBodies    = errors.New("too many bytes of request bodies are in progress")
)

// bodies counts the bytes of request bodies that have arrived and that the gateway holds, for each client IP and in all. Bodies arrive
// before a request can be authenticated and counted, so rate limits do not bound them.
//
// A client IP may hold at most an eighth of what is free in all. So each that holds all it can leaves eight ninths of what was free
// before: one takes nothing from the others, and 64 of them leave room for a small body of another. The client IPs of an IPv6 /48, which
// may be one customer's, have together four times as much.
type bodies struct {
	// maxBody is the largest body, in bytes, that one client IP must be able to send.
	maxBody int64

	mu    sync.Mutex
	held  map[string]int64 // by the keys of a client IP
	total int64
}

// bodyKeys are the keys of a client IP (see clientip.Keys): its own, and that of its /48, which may be empty.
type bodyKeys [2]string

func keysOf(a netip.Addr) (keys bodyKeys) {
	i := 0
	for key := range clientip.Keys(a) {
		keys[i] = key
		i++
	}
	return keys
}

// add counts n further bytes. They are counted even if it returns an error, until remove is called.
func (b *bodies) add(client bodyKeys, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held == nil {
		b.held = map[string]int64{}
	}
	b.total += n
	share := max(clientBodies, b.maxBody)
	var err error
	for i, times := range []int64{1, clientip.NetworkTimes} {
		if client[i] == "" {
			break
		}
		b.held[client[i]] += n
		switch held := b.held[client[i]]; {
		case err != nil:
		case held > times*share:
			err = errClientBodies
		case held > times*((freeShares+1)*share-b.total)/freeShares:
			err = errAllBodies
		}
	}
	return err
}

// remove ends the count of n bytes.
func (b *bodies) remove(client bodyKeys, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total -= n
	for _, key := range client {
		if b.held[key] -= n; b.held[key] == 0 || key == "" {
			delete(b.held, key)
		}
	}
}
