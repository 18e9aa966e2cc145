package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Hook is a redis.Hook that is called instead of each command, which next sends. It leaves connections and pipelines alone.
type Hook func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

// DialHook implements redis.Hook.
func (Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

// ProcessPipelineHook implements redis.Hook.
func (Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
