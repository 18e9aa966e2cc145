package mcp

import (
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

func TestASessionEndsWhenItIsNotUsedForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		var s sessions
		s.init(10, idle)
		opened, err := sdk.NewServer(&sdk.Implementation{Name: "test"}, nil).
			Connect(t.Context(), &sdk.StreamableServerTransport{SessionID: "s"}, nil)
		require.NoError(t, err)
		require.True(t, s.add("g", opened))
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}

		pass(idle - 1)
		s.use("another connection", "s")()
		s.use("g", "another session")()
		over, too := s.use("g", "s"), s.use("g", "s")
		pass(10 * idle)
		over()
		pass(10 * idle)
		require.True(t, s.has("g", "s"), "a request is under way")
		require.False(t, s.has("another connection", "s"))
		too()
		pass(idle - 1)
		require.True(t, s.has("g", "s"))
		late := s.use("g", "s")
		late()
		pass(idle - 1)
		require.True(t, s.has("g", "s"))
		pass(1)
		require.False(t, s.has("g", "s"))
		require.Empty(t, s.grants)
		require.NoError(t, opened.Wait())

		opened, err = sdk.NewServer(&sdk.Implementation{Name: "test"}, nil).
			Connect(t.Context(), &sdk.StreamableServerTransport{SessionID: "s"}, nil)
		require.NoError(t, err)
		require.True(t, s.add("g", opened))
		over = s.use("g", "s")
		require.NoError(t, opened.Close()) // by its client, while a request of it is under way
		synctest.Wait()
		require.False(t, s.has("g", "s"))
		over()
	})
}
