package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// AwaitReplica waits until a replica has all data of its master. (Redis's WAIT only covers writes of its own connection.)
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

// replicationOffset returns a server's replication offset.
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
