// Package redisclient creates the gateway's Redis client, for which requests wait.
package redisclient

import (
	"cmp"
	"time"

	"github.com/redis/go-redis/v9"
)

// New returns a client that respects context deadlines, and that follows a Cluster's failovers. It changes the options: unless
// they say otherwise, failed commands are not retried (a Cluster client repeats a command up to three times if its reply was lost),
// dialing, reading, writing and waiting for a connection time out after a second, and all commands share one connection pool, so that the first
// request can use a connection that a ping opened.
func New(o *redis.UniversalOptions) redis.UniversalClient {
	o.ContextTimeoutEnabled = true
	o.MaxRetries = cmp.Or(o.MaxRetries, -1)
	o.DialerRetries = cmp.Or(o.DialerRetries, 1)
	o.PipelinePoolSize = cmp.Or(o.PipelinePoolSize, -1)
	for _, timeout := range []*time.Duration{&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout} {
		*timeout = cmp.Or(*timeout, time.Second)
	}
	client := redis.NewUniversalClient(o)
	if cluster, ok := client.(*redis.ClusterClient); ok {
		followFailovers(cluster)
	}
	return client
}
