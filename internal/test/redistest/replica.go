package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// AwaitReplica waits until a replica has all that its master has taken so far, whoever wrote it. (Redis's own WAIT tells
// only of what was written over the connection that asks.)
func AwaitReplica(tb testing.TB, master, replica *Server) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	from, to := redis.NewClient(master.Options().Simple()), redis.NewClient(replica.Options().Simple())
	defer func() { _, _ = from.Close(), to.Close() }()
	want, err := replicationOffset(ctx, from, "master_repl_offset")
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	if err := await(ctx, func() (bool, error) {
		got, err := replicationOffset(ctx, to, "slave_repl_offset")
		return err == nil && got >= want, err
	}); err != nil {
		tb.Fatalf("redistest: waiting for the replica %s: %v", replica.Addr, err)
	}
}

// replicationOffset reads how far a server is in the stream of changes.
func replicationOffset(ctx context.Context, c *redis.Client, field string) (int64, error) {
	info, err := c.Info(ctx, "replication").Result()
	if err != nil {
		return 0, fmt.Errorf("asking for the replication offset: %w", err)
	}
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("no %s in INFO replication", field)
}
