package redisclient

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// reloadInterval is the minimum time between reloads of a Cluster's slot table, so that failing commands cause little load.
const reloadInterval = 500 * time.Millisecond

// followFailovers makes a Cluster client reload the slot table when a node cannot be reached. By itself, it does so when a node
// redirects a command, but otherwise once a minute: a node that is gone redirects nothing, so commands for its slots would fail
// for a minute after a replica has taken over.
func followFailovers(client *redis.ClusterClient) {
	r := &reloader{began: time.Now(), reload: client.ReloadState}
	// Hooks of nodes see all connections, those of subscriptions too.
	client.OnNewNode(func(node *redis.Client) { node.AddHook(r) })
}

// reloader is a hook of a Cluster's nodes.
type reloader struct {
	began  time.Time
	last   atomic.Int64          // when reload was called last, since began; 0: never
	reload func(context.Context) // in the background, one at a time; it ignores the context
}

// observe calls reload if err means that a node cannot be reached.
func (r *reloader) observe(ctx context.Context, err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	if _, replied := errors.AsType[redis.Error](err); replied {
		return
	}
	last, now := r.last.Load(), int64(time.Since(r.began))
	if (last == 0 || now-last >= int64(reloadInterval)) && r.last.CompareAndSwap(last, now) {
		r.reload(ctx)
	}
}

// DialHook implements redis.Hook.
func (r *reloader) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		r.observe(ctx, err)
		return conn, err
	}
}

// ProcessHook implements redis.Hook.
func (r *reloader) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		r.observe(ctx, err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (r *reloader) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		r.observe(ctx, err)
		return err
	}
}
