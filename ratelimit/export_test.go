package ratelimit

// KeyName returns the name of a counter's key in a Redis with the default prefix.
func KeyName(a Algorithm, group string, b Counter) string {
	t := hashGroup(group)
	i := hashCounter(a, t, &b)
	name := redisKey(DefaultPrefix, t, b.Limit.Name, &i)
	if a == GCRA {
		name = "rate:" + name // redis_rate's own prefix
	}
	return name
}

// LocalWindows returns the number of a limiter's local windows.
func LocalWindows(l Limiter) int {
	if g, ok := l.(*gcra); ok {
		return g.local.EstimatedSize()
	}
	return l.(*exact).windows.size()
}

// size returns the number of windows.
func (l *localWindows) size() int {
	n := 0
	for _, t := range *l.byPolicy.Load() {
		for i := range t.stripes {
			s := &t.stripes[i]
			s.mu.Lock()
			n += len(s.windows)
			s.mu.Unlock()
		}
	}
	return n
}
