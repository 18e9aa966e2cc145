// Package ratelimit enforces limits such as "60 requests a minute for each key" over a fleet of gateways that share a Redis.
//
//	limiter, err := ratelimit.New(client, ratelimit.Options{})
//	...
//	group, bucket := ratelimit.ForKey(publicKey, ratelimit.KeyLimit(0))
//	result, err := limiter.Allow(ctx, group, bucket)
//	result.SetHeaders(w.Header(), time.Now())
//
// # What is promised
//
// With the exact algorithm, which is the default, no span of a limit's window ever holds more requests than the limit allows,
// wherever the span begins: counted by Redis's clock, by one script that charges all of a request's buckets or none. A denied
// request is not counted. Limits above 256 count requests in groups of up to a 256th of the window, which leave with their last
// request: they can deny up to a 256th of the window longer than they must, never shorter.
//
// A bucket takes 7 bytes of Redis for each request (or group), 24 for each gateway and some 200 besides, and expires with its
// last request. If Redis's clock is set back, a bucket's time goes on from its newest request. If it is set forward, what is in
// Redis leaves early, and each gateway still enforces the limit by its own clock.
//
// # Local windows
//
// Each gateway keeps its own requests in memory too, under the same rule, and until when Redis has denied a bucket: a caller
// that is known to be over the limit costs no round trip. A gateway by itself never allows more than the limit, whatever
// happens to Redis. Both are bounded (Options.MaxEntries).
//
// # When Redis fails
//
// A request waits for Redis as long as Options.Timeout says. Any failure of Redis counts: a refused connection, silence, or an
// error such as LOADING, READONLY, OOM, CLUSTERDOWN and NOAUTH. A caller that goes away does not. After Options.MaxFailures
// failed round trips in a row Redis is unavailable: no request waits any more, Options.OnOutage decides, and Redis is probed in
// the background every Options.ProbeInterval. The 16ths of a Cluster's slots become unavailable each by itself.
//
// With OnOutage Local a fleet of N gateways may allow N times the limit meanwhile, and no gateway more than the limit in any
// window. When Redis is back, each gateway tells it of the requests that it has allowed, before it asks again. From then on
// the limit is the fleet's: a bucket that holds the limit or more admits nothing until enough has left.
//
// Requests are numbered, so that each of them enters Redis once, whatever is sent twice or runs late; and so that a gateway
// knows which of its requests Redis has lost, be it after an empty restart, with an older snapshot or after a failover. It
// notices with the next request for the bucket, and within Options.ProbeInterval without one. It follows that emptying Redis
// does not reset limits: wait for a window, or restart the gateways too. Redis should not evict (maxmemory-policy noeviction).
//
// docs/design/0001-rate-limits.md has the reasons for this design and the layers that it is made of.
package ratelimit
