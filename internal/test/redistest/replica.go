package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// AwaitReplica waits until a replica has all that its master has taken so far, whoever wrote it. (Redis's own WAIT tells
// only of what was written over the connection that asks.)
func AwaitReplica(tb testing.TB, master, replica *Server) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	want, err := replicationOffset(ctx, master, "master_repl_offset")
	require.NoError(tb, err)
	err = await(ctx, func() (bool, error) {
		got, err := replicationOffset(ctx, replica, "slave_repl_offset")
		return err == nil && got >= want, err
	})
	require.NoError(tb, err, "waiting for the replica %s", replica.Addr)
}

// replicationOffset reads how far a server is in the stream of changes.
func replicationOffset(ctx context.Context, s *Server, field string) (int64, error) {
	info, err := s.command(ctx, "INFO", "replication")
	if err != nil {
		return 0, err
	}
	_, after, found := strings.Cut(info, field+":")
	if !found {
		return 0, fmt.Errorf("no %s in INFO replication", field)
	}
	value, _, _ := strings.Cut(after, "\r\n")
	return strconv.ParseInt(value, 10, 64)
}
