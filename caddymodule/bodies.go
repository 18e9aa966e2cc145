package caddymodule

import (
	"errors"
	"sync"
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
// before: one takes nothing from the others, and 64 of them leave room for a small body of another.
type bodies struct {
	// maxBody is the largest body, in bytes, that one client IP must be able to send.
	maxBody int64

	mu    sync.Mutex
	held  map[string]int64 // by the key of a client IP
	total int64
}

// add counts n further bytes. They are counted even if it returns an error, until remove is called.
func (b *bodies) add(client string, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held == nil {
		b.held = map[string]int64{}
	}
	b.held[client] += n
	b.total += n
	share := max(clientBodies, b.maxBody)
	switch held := b.held[client]; {
	case held > share:
		return errClientBodies
	case held > ((freeShares+1)*share-b.total)/freeShares:
		return errAllBodies
	}
	return nil
}

// remove ends the count of n bytes.
func (b *bodies) remove(client string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total -= n
	if b.held[client] -= n; b.held[client] == 0 {
		delete(b.held, client)
	}
}
