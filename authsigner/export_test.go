package authsigner

// DummySecret is known to every reader of the source.
const DummySecret = dummySecret

// RetryAfterFailure is the minimum time between a failed lookup and the next one.
const RetryAfterFailure = retryAfterFailure
