package authsigner

// DummySecret is known to every reader of the source.
const DummySecret = dummySecret

// RetryAfterFailure is the minimum time between a failed lookup and the next one.
const RetryAfterFailure = retryAfterFailure

// KeyErrors returns the approximate number of keys that are cached without a credential.
func KeyErrors(c *Cache) int { return c.keyErrors.EstimatedSize() }

// SourceUnavailable returns whether the cache considers its source unavailable.
func SourceUnavailable(c *Cache) bool {
	c.breaker.mu.Lock()
	defer c.breaker.mu.Unlock()
	return c.breaker.stateAt(c.now()) == sourceUnavailable
}
