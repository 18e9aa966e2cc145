package ratelimit

// Debts are admissions that Redis does not know of, because a gateway decided by
// itself or because Redis has lost its memory. They are entered into Redis when
// it is back, before it is asked again; others go along with the bucket's next
// take, or when the gateway next looks around. So the limits are the fleet's again
// at once, with what was admitted meanwhile counted in.

// owed makes calls that settle the debts of a shard's entries on this lane. If
// Redis has lost its memory, all that was admitted before then is a debt (lost by
// the Fleet's clock, 0 if it has not).
func (l *lane) owed(t *table, s *shard, lost int64) []*call {
	f := l.fleet
	s.mu.Lock()
	defer s.mu.Unlock()
	now := f.clock()
	var calls []*call
	for i, e := range s.entries {
		if f.laneOf(e.tag) != l.index {
			continue
		}
		e.prune(now, e.span)
		e.debt = min(e.debt, e.total)
		debts := e.takeDebts(now, lost)
		if len(debts) == 0 {
			continue
		}
		c := f.getCall()
		c.n, c.flags, c.id = 1, chargeNothing|withDebts, i
		c.keys[0] = redisKey(f.o.Prefix, e.tag, t.policy, &i)
		c.limits[0], c.spans[0] = int64(e.limit), e.span
		c.debts = &[MaxBuckets][]debt{debts}
		calls = append(calls, c)
	}
	return calls
}

// settled ends a batch of owed's calls: it gives back the debts of those that
// have failed, and returns how many admissions the others entered.
func (l *lane) settled(s *shard, batch []*call) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range batch {
		if c.err != nil {
			err = c.err
			l.owing.Store(true)
			if e := s.entries[c.id]; e != nil {
				e.giveBack(c.debts[0])
			}
		} else {
			for _, d := range c.debts[0] {
				n += d.count
			}
		}
		l.fleet.putCall(c)
	}
	return n, err
}

// settle enters into Redis what it does not know and returns how many admissions
// that were.
func (l *lane) settle() (int, error) {
	f := l.fleet
	if !f.strict() {
		return 0, nil
	}
	l.owing.Store(false)
	lost := l.takeLoss()
	var args []any
	total := 0
	var failed error
	for _, t := range *f.ledger.tables.Load() {
		for i := range t.shards {
			s := &t.shards[i]
			calls := l.owed(t, s, lost)
			for len(calls) > 0 {
				batch := calls[:min(len(calls), maxFlightTakes)]
				calls = calls[len(batch):]
				if failed == nil {
					args = l.ask(batch, args)
				} else {
					// What is lost has been noted; Redis is not troubled further.
					for _, c := range batch {
						c.err = failed
					}
				}
				n, err := l.settled(s, batch)
				total += n
				if failed == nil {
					failed = err
				}
			}
		}
	}
	return total, failed
}
