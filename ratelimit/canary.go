package ratelimit

import (
	"slices"
	"sync"
)

// A canary is a window in which something was stored at some time. A Redis that loses data (an older snapshot, a replica that
// had not received everything, an empty restart) loses the newest of a node first: as long as a canary is there, so is all
// that was stored before it.
type canary struct {
	stripe *stripe
	policy string
	id     id
	until  int64 // when its last request leaves the window, as far as is known
}

// maxCanaries bounds the canaries of a node, of each kind. Above it, of two that follow each other the one that lasts longer
// stays.
const maxCanaries = 32

// canaries are the canaries of a shard, by node.
type canaries struct {
	mu     sync.Mutex
	byNode map[string]*nodeCanaries
}

type nodeCanaries struct {
	// recent are from several moments since the last look, oldest first: what is stored after a loss must not hide it.
	recent []canary
	// found are from before. Of those, an older one is needed only if it lasts longer than all that are newer.
	found []canary
}

// add adds a node's newest canary.
func (c *canaries) add(node string, newest canary) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byNode == nil {
		c.byNode = make(map[string]*nodeCanaries)
	}
	n := c.byNode[node]
	if n == nil {
		n = new(nodeCanaries)
		c.byNode[node] = n
	}
	if last := len(n.recent) - 1; last >= 0 && n.recent[last].id == newest.id {
		n.recent[last].until = max(n.recent[last].until, newest.until)
		return
	}
	n.recent = append(halve(n.recent), newest)
}

// halve makes room in a full list.
func halve(list []canary) []canary {
	if len(list) < maxCanaries {
		return list
	}
	for i := range maxCanaries / 2 {
		a, b := list[2*i], list[2*i+1]
		if list[i] = b; a.until > b.until {
			list[i] = a
		}
	}
	return list[:maxCanaries/2]
}

// none reports whether there is nothing to look at.
func (c *canaries) none() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byNode) == 0
}

// visit calls alive for every canary, and forgets those for which it is false: those without requests in their window.
func (c *canaries) visit(alive func(canary) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dead := func(one canary) bool { return !alive(one) }
	for node, n := range c.byNode {
		n.found, n.recent = slices.DeleteFunc(n.found, dead), slices.DeleteFunc(n.recent, dead)
		if len(n.found)+len(n.recent) == 0 {
			delete(c.byNode, node)
		}
	}
}

// seen records that a look has found canaries.
func (c *canaries) seen(found map[id]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.byNode {
		for len(n.recent) > 0 && found[n.recent[0].id] {
			newest := n.recent[0]
			n.recent = n.recent[1:]
			for len(n.found) > 0 && n.found[len(n.found)-1].until <= newest.until {
				n.found = n.found[:len(n.found)-1]
			}
			n.found = append(halve(n.found), newest)
		}
	}
}
