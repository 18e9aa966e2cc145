package resync_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/resync"
)

var errDown = errors.New("down")

func TestTheMachineFollowsItsDiagram(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	m := resync.NewMachine(3)
	require.Equal(t, resync.Shared, m.State())
	require.NoError(t, m.Cause())
	for range 5 { // what does not belong to the state changes nothing
		m.Probed(nil)
		m.Synced(errDown)
		require.False(t, m.Ran(now, errDown))
		require.True(t, m.Failing())
		require.False(t, m.Ran(now, errDown))
		require.False(t, m.Ran(now, nil), "two failures in a row are not three")
		require.False(t, m.Failing())
	}
	require.False(t, m.Ran(now, errDown))
	require.False(t, m.Ran(now, errDown))
	require.True(t, m.Ran(now, errDown))
	require.Equal(t, resync.Unavailable, m.State())
	require.ErrorIs(t, m.Cause(), errDown)
	require.False(t, m.Ran(now, errDown), "of a run that began before")
	require.False(t, m.Ran(now, nil))
	require.Equal(t, resync.Unavailable, m.State())

	errLoading := errors.New("loading")
	m.Probed(errLoading)
	require.Equal(t, resync.Unavailable, m.State())
	require.ErrorIs(t, m.Cause(), errLoading)
	m.Synced(nil)
	require.Equal(t, resync.Unavailable, m.State())
	m.Probed(nil)
	require.Equal(t, resync.Resyncing, m.State())
	require.Error(t, m.Cause(), "it is not asked before it has been told")
	m.Synced(errDown)
	require.Equal(t, resync.Unavailable, m.State())
	m.Probed(nil)
	m.Synced(nil)
	require.Equal(t, resync.Shared, m.State())
	require.False(t, m.Failing())
	require.False(t, m.Ran(now, errDown), "failures are counted from the beginning")
}

func TestHalfOfTheRunsFailing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		every int           // so many runs succeed after each failure
		pause time.Duration // between runs
		want  bool
	}{
		"every other one":         {1, time.Millisecond, true},
		"one of three":            {2, time.Millisecond, false},
		"every other one, slowly": {1, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, m, unavailable := time.Unix(1, 0), resync.NewMachine(3), false
			for i := range 60 {
				now = now.Add(c.pause)
				err := errDown
				if i%(c.every+1) > 0 {
					err = nil
				}
				unavailable = m.Ran(now, err) || unavailable
			}
			require.Equal(t, c.want, unavailable)
		})
	}
}

func TestRecordsKnowWhatRedisHas(t *testing.T) {
	t.Parallel()
	var losses resync.Losses
	var r resync.Record
	for range 5 {
		r.Allowed()
	}
	require.EqualValues(t, 5, r.Unsynced(losses.Count()))
	r.Confirm(3, losses.Count())
	require.EqualValues(t, 2, r.Unsynced(losses.Count()))
	r.Allowed()
	require.EqualValues(t, 3, r.Unsynced(losses.Count()))
	r.Confirm(9, losses.Count())
	require.Zero(t, r.Unsynced(losses.Count()), "Redis may have run a call whose answer was lost")

	known := losses.Count()
	require.True(t, losses.Found(known))
	require.False(t, losses.Found(known), "several calls notice the same loss")
	require.EqualValues(t, 6, r.Unsynced(losses.Count()), "any of them may be lost")
	r.Confirm(6, known)
	require.EqualValues(t, 6, r.Unsynced(losses.Count()), "by a reply from before")
	r.Confirm(2, losses.Count())
	require.EqualValues(t, 4, r.Unsynced(losses.Count()))
}
