// Package ratelimit enforces limits such as "60 requests per minute per key" for a fleet of gateways that share a Redis.
//
//	limiter, err := ratelimit.New(client, ratelimit.Options{})
//	...
//	group, counters := ratelimit.ForKey(publicKey, ratelimit.KeyLimit(0))
//	result, err := limiter.Allow(ctx, group, counters...)
//	result.SetHeaders(w.Header(), time.Now())
//
// A [Limiter] answers one question: may this request pass? Allow counts the request in one or more counters and returns the
// decision with the values for the RateLimit response headers. A request is counted in all of its counters or in none. Denied
// requests are not counted.
//
// # Exactness
//
// Limits use a sliding window. No interval of the window's length ever contains more allowed requests than the limit, no
// matter where the interval starts or which gateway received the requests. Redis keeps the window, and its clock decides.
//
// For limits above 256, the window is divided into 256 parts, and all requests of a part expire with its last one. Such a limit
// can deny requests for up to a 256th of the window longer than necessary, but never allows more than the limit.
//
// A counter takes about 200 bytes of Redis memory, plus 24 for each gateway and 7 for each request or part. It expires with its
// last request. If Redis's clock is set back, the counter's time continues from its newest request. If the clock is set forward,
// requests in Redis expire early, but each gateway still enforces the limit by its own clock.
//
// [GCRA] is an alternative algorithm without this guarantee.
//
// # Local windows
//
// Each gateway also keeps a local window of the requests that it allowed, and remembers for how long Redis denied a counter.
// Requests that are known to be over the limit are denied without a round trip. Whatever happens to Redis, a single gateway
// never allows more than the limit. [Options.MaxEntries] bounds the memory.
//
// # Outages
//
// While round trips fail, a request waits for Redis no longer than [Options.Timeout]. Refused connections, timeouts and error
// replies (LOADING, READONLY, OOM, CLUSTERDOWN, NOAUTH and others) are failures; a request cancelled by its caller is not.
// After [Options.MaxFailures] consecutive failures Redis is unavailable: [Options.OnOutage] decides without waiting, and a
// background probe runs every [Options.ProbeInterval]. A Cluster is divided into 16 shards by slot, which become unavailable
// independently.
//
// With [OnOutageLocal], a fleet of N gateways can then allow up to N times the limit; a single gateway never exceeds it. When
// Redis returns, each gateway syncs what it allowed in the meantime before shared decisions resume. The few requests that it
// allowed during the last sync are synced right after.
//
// # Data loss
//
// Each gateway numbers the requests that it allows. Redis therefore counts each of them once, even if it is sent twice or
// arrives late, and a gateway notices when Redis lost some of them in a restart or failover: with the next request for the
// counter, or within Options.ProbeInterval without one. It then sends them again. Hence emptying Redis does not reset limits:
// wait for one window, or restart the gateways too. Redis should not evict keys (maxmemory-policy noeviction).
//
// docs/design/0001-rate-limits.md explains the design.
package ratelimit
