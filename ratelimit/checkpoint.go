package ratelimit

import (
	"slices"
	"sync"
)

// checkpoint is a local window of which Redis has stored something. A Redis that loses data (by a restart from an older
// snapshot or without one, or by a failover to a replica that lags) loses the newest writes of a node first. As long as a
// checkpoint is intact, so is everything that was stored before it.
type checkpoint struct {
	stripe *stripe
	policy string
	id     counterID
	until  int64 // when its last known request expires
	resent bool  // Redis may have stored all of it before older checkpoints
}

// maxCheckpoints bounds each of the two lists of a node's checkpoints. A full list is halved by dropping, of each two
// neighbours, the one that expires first.
const maxCheckpoints = 32

// checkpoints holds the checkpoints of a shard, by node.
type checkpoints struct {
	mu     sync.Mutex
	byNode map[string]*nodeCheckpoints
}

type nodeCheckpoints struct {
	// recent holds the checkpoints since the last check, oldest first. More than the newest one is needed, because one that
	// was stored after the data loss would hide it.
	recent []checkpoint
	// checked holds checkpoints that a check found intact. An older one is only needed if it expires later than all newer
	// ones, or if these were resent.
	checked []checkpoint
}

// add adds the newest checkpoint of a node.
func (c *checkpoints) add(node string, newest checkpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byNode == nil {
		c.byNode = make(map[string]*nodeCheckpoints)
	}
	n := c.byNode[node]
	if n == nil {
		n = new(nodeCheckpoints)
		c.byNode[node] = n
	}
	if last := len(n.recent) - 1; last >= 0 && n.recent[last].id == newest.id {
		newest.until = max(n.recent[last].until, newest.until)
		n.recent[last] = newest
		return
	}
	n.recent = append(halve(n.recent), newest)
}

// halve makes room in a full list.
func halve(list []checkpoint) []checkpoint {
	if len(list) < maxCheckpoints {
		return list
	}
	for i := range maxCheckpoints / 2 {
		a, b := list[2*i], list[2*i+1]
		if list[i] = b; a.until > b.until {
			list[i] = a
		}
	}
	return list[:maxCheckpoints/2]
}

// empty reports whether there is no checkpoint.
func (c *checkpoints) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byNode) == 0
}

// visit calls alive for every checkpoint, and removes those for which it returns false because their window is empty.
func (c *checkpoints) visit(alive func(checkpoint) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dead := func(one checkpoint) bool { return !alive(one) }
	for node, n := range c.byNode {
		n.checked, n.recent = slices.DeleteFunc(n.checked, dead), slices.DeleteFunc(n.recent, dead)
		if len(n.checked)+len(n.recent) == 0 {
			delete(c.byNode, node)
		}
	}
}

// markChecked records which checkpoints a check found intact.
func (c *checkpoints) markChecked(intact map[counterID]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.byNode {
		for len(n.recent) > 0 && intact[n.recent[0].id] {
			newest := n.recent[0]
			n.recent = n.recent[1:]
			for len(n.checked) > 0 && n.checked[len(n.checked)-1].until <= newest.until && !newest.resent {
				n.checked = n.checked[:len(n.checked)-1]
			}
			n.checked = append(halve(n.checked), newest)
		}
	}
}
