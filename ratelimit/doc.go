// Package ratelimit holds limits such as "60 requests a minute for each key" over
// a fleet of gateways that share a Redis.
//
//	f, err := ratelimit.New(client, ratelimit.Options{})
//	...
//	group, bucket := ratelimit.ForKey(publicKey, ratelimit.KeyLimit(0))
//	verdict, err := f.Take(ctx, group, bucket)
//	verdict.SetHeaders(w.Header(), time.Now())
//
// # What is promised
//
// With the exact algorithm, which is the default, no span of a limit's window
// ever holds more admitted requests than the limit allows, wherever the span
// begins: counted by Redis's clock, by one script that charges all of a request's
// buckets or none. A refused request is not counted. Limits above 256 count
// requests in groups of up to a 256th of the window and let a group's budget
// return when its last request has left: they can refuse up to a 256th of the
// window longer than they must, never shorter. A bucket takes 7 bytes of Redis
// for each request (or group) and some 200 besides, and goes with its last one.
//
// If Redis's clock is set back, budgets neither return early nor late: a bucket's
// time goes on from its newest request. If it is set forward, what is in Redis
// expires early, and each gateway still holds the limit by its own clock.
//
// # What a gateway knows by itself
//
// Each admission is recorded in memory too, under the same rule, and is looked at
// first: a gateway never admits more than the limit by itself, whatever happens
// to Redis. So is each refusal of Redis's, until the moment to which it applies:
// whoever is known to be over the limit costs no round trip. Both are bounded
// (Options.MaxEntries).
//
// # When Redis fails
//
// A request waits for Redis as long as Options.Timeout says. Any failure of Redis counts, be it
// a refused connection, silence or an error such as LOADING, READONLY, OOM,
// CLUSTERDOWN and NOAUTH; a caller that goes away does not. After
// Options.MaxFailures failed round trips in a row a breaker opens: no request
// waits any more, Options.OnOutage decides, and Redis is tried in the background
// once in Options.ProbeInterval. A Cluster has a breaker for each 16th of its
// slots.
//
// With OnOutage Local a fleet of N gateways may admit N times the limit while it
// lasts, and no gateway more than the limit in any window. When Redis is back,
// before it is asked again, each gateway enters what it has admitted meanwhile,
// and if Redis has come back empty, all that it knows. From then on the limit is
// the fleet's again: a bucket that holds the limit or more admits nothing until
// enough has left. What a replica that takes over had not received yet is lost.
//
// That Redis has come back empty is seen by a marker, one key that does not
// expire (in a Cluster 16). It holds the time from when on Redis remembers, so
// that just what came before is entered again. Every round trip looks at it (in a
// Cluster none does), and each gateway once in ProbeInterval: for that long what
// another one has admitted may be missing. In a Cluster what came between the
// loss and the first look at it is entered although it has been counted.
// It follows that who empties Redis to set limits back has to wait for a window, or
// to restart the gateways. Redis should not evict (maxmemory-policy noeviction):
// a full Redis is an outage, an evicted bucket a limit forgotten.
package ratelimit
