package script

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/embeddedredis"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/windowtest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const sec = int64(1_000_000)

// noon is a realistic time of Redis's clock.
const noon = int64(1_795_000_000) * sec

// server is a server on which the script uses the test's clock: the list "clock" replaces TIME.
type server struct {
	*redis.Client
	t      *testing.T
	runner *Runner
	number uint64
}

// forEachServer runs a test on a real Redis and on the embedded one, in parallel.
func forEachServer(t *testing.T, test func(s *server)) {
	t.Helper()
	t.Parallel()
	embedded, err := embeddedredis.Start()
	require.NoError(t, err)
	t.Cleanup(embedded.Close)
	source := strings.Replace(Source, "call('TIME')", "call('LRANGE', 'clock', 0, 1)", 1)
	require.NotEqual(t, Source, source)
	for name, addr := range map[string]string{"redis": redistest.Start(t).Addr, "embedded": embedded.Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Minute, MaxRetries: -1})
			t.Cleanup(func() { _ = client.Close() })
			r := NewRunner(client, false)
			r.source, r.sha = source, redis.NewScript(source).Hash()
			s := &server{Client: client, t: t, runner: r}
			s.at(noon)
			test(s)
		})
	}
}

// at sets the clock, in microseconds.
func (s *server) at(us int64) {
	s.t.Helper()
	_, err := s.TxPipelined(s.t.Context(), func(p redis.Pipeliner) error {
		p.Del(s.t.Context(), "clock")
		p.RPush(s.t.Context(), "clock", us/sec, us%sec)
		return nil
	})
	require.NoError(s.t, err)
}

// run assigns increasing numbers to calls and runs them.
func (s *server) run(calls ...*Call) {
	s.t.Helper()
	for _, c := range calls {
		s.number += 2
		c.Number = s.number
	}
	s.again(calls...)
}

// again runs calls with the numbers that they have. Only errors of the script are expected.
func (s *server) again(calls ...*Call) {
	s.t.Helper()
	s.runner.Run(s.t.Context(), calls)
	for _, c := range calls {
		if !errors.Is(c.Err, ErrLost) && !errors.Is(c.Err, ErrStale) {
			require.NoError(s.t, c.Err)
		}
	}
}

// count runs a call on one counter.
func (s *server) count(b Counter) *Call {
	s.t.Helper()
	c := callFor(b)
	s.run(c)
	return c
}

// callFor returns a call on one counter, by default of a minute.
func callFor(b Counter) *Call {
	if b.Window == 0 {
		b.Window = 60 * sec
	}
	return &Call{Count: true, N: 1, Counters: [MaxCounters]Counter{b}}
}

// TestScriptMatchesModel runs random calls of several writers on shared counters, with changing limits, unsynced requests and
// repeated calls, and requires the model's replies to the microsecond.
func TestScriptMatchesModel(t *testing.T) {
	seeds := map[string]uint64{"redis": 12, "embedded": 3} // which is much slower
	forEachServer(t, func(s *server) {
		t := s.t
		for seed := range seeds[t.Name()[strings.LastIndex(t.Name(), "/")+1:]] {
			checkAgainstModel(t, s, rand.New(rand.NewPCG(seed, 7)), fmt.Sprintf("s%d", seed))
		}
	})
}

// writer is a gateway's local window: the times of its requests, of which the first ones are stored.
type writer struct {
	id     uint64
	at     []int64
	stored int
}

func (w *writer) counter(key string, limit int, length, now int64) Counter {
	b := Counter{Key: key, Limit: limit, Window: length, Writer: w.id, Confirmed: uint64(w.stored), Seq: uint64(len(w.at))}
	if w.stored == 0 || w.at[w.stored-1]+length <= now {
		b.Confirmed = 0 // the script has removed a writer whose last request has expired
	}
	for _, at := range w.at[w.stored:] {
		if now-at < length {
			b.Unsynced = append(b.Unsynced, Unsynced{Count: 1, Age: now - at})
		}
	}
	return b
}

func checkAgainstModel(t *testing.T, s *server, r *rand.Rand, prefix string) {
	t.Helper()
	const length = 1200 * sec // keys expire by Redis's own clock, which must be after the test
	now := noon
	models := make([]windowtest.Model, 3)
	limits := []int{1 + r.IntN(3), 2 + r.IntN(10), 1 + r.IntN(256)}
	writers := make([][3]writer, 2)
	for i := range writers {
		for j := range writers[i] {
			writers[i][j].id = r.Uint64N(1 << 40)
		}
	}
	for step := range 300 {
		now = windowtest.NextTime(r, now, length, models)
		if r.IntN(20) == 0 {
			limits[r.IntN(3)] = 1 + r.IntN(20)
		}
		s.at(now)
		who := &writers[r.IntN(2)]
		which := r.Perm(3)[:1+r.IntN(3)]
		if r.IntN(8) == 0 { // allowed without Redis
			w := &who[which[0]]
			w.at = append(w.at, now)
			continue
		}
		c := &Call{Count: r.IntN(5) > 0, N: len(which)}
		allowed := true
		for i, b := range which {
			w := &who[b]
			c.Counters[i] = w.counter(fmt.Sprint(prefix, b), limits[b], length, now)
			for _, at := range w.at[w.stored:] {
				models[b].Add(at)
			}
			w.stored = len(w.at)
			allowed = allowed && models[b].State(now, length, limits[b]).Retry == 0
		}
		s.run(c)
		counted := c.Count && allowed
		if counted {
			for _, b := range which {
				models[b].Add(now)
				who[b].at = append(who[b].at, now)
				who[b].stored++
			}
		}
		check := func(when string) {
			require.NoError(t, c.Err)
			for i, b := range which {
				state := models[b].State(now, length, limits[b])
				want := Reply{Remaining: state.Remaining, Reset: state.Reset, Stored: uint64(len(who[b].at))}
				if !counted {
					want.Retry = state.Retry
				}
				require.Equal(t, want, c.Replies[i], "step %d, counter %d, %s", step, b, when)
			}
		}
		check("first run")
		if r.IntN(4) == 0 {
			s.again(c)
			check("repeated")
		}
	}
}

// TestLateCallChangesNothing: a frozen Redis runs a call after the gateway has synced its request.
func TestLateCallChangesNothing(t *testing.T) {
	forEachServer(t, func(s *server) {
		t := s.t
		counter := func(confirmed, seq uint64, unsynced ...Unsynced) Counter {
			return Counter{Key: "k", Limit: 10, Writer: 7, Confirmed: confirmed, Seq: seq, Unsynced: unsynced}
		}
		late := callFor(counter(0, 0))
		late.Number, s.number = 2, 2
		// The gateway assumed that the call was lost, and allowed the request locally.
		next := s.count(counter(0, 1, Unsynced{1, 5}))
		require.NoError(t, next.Err)
		require.Equal(t, Reply{Remaining: 8, Reset: 60*sec - 5, Stored: 2}, next.Replies[0])
		s.again(late)
		require.ErrorIs(t, late.Err, ErrStale)
		require.Equal(t, 8, late.Replies[0].Remaining)

		// A call was not lost, and the next one syncs its request.
		s.count(counter(2, 2))
		next = callFor(counter(2, 3, Unsynced{1, 5}))
		next.Count = false
		s.run(next)
		require.Equal(t, Reply{Remaining: 7, Reset: 60*sec - 5, Stored: 3}, next.Replies[0], "must be added once")
	})
}

// TestDataLossIsDetectedAndResyncedOnce restores an older snapshot, or an empty database.
func TestDataLossIsDetectedAndResyncedOnce(t *testing.T) {
	forEachServer(t, func(s *server) {
		t := s.t
		count := func(confirmed, seq uint64, unsynced ...Unsynced) *Call {
			return s.count(Counter{Key: "k", Limit: 10, Writer: 7, Confirmed: confirmed, Seq: seq, Unsynced: unsynced})
		}
		for i := range uint64(3) {
			require.NoError(t, count(i, i).Err)
		}
		snapshot, err := s.Get(t.Context(), "k").Result()
		require.NoError(t, err)
		for i := range uint64(3) {
			s.at(noon + (1+int64(i))*sec)
			require.NoError(t, count(3+i, 3+i).Err)
		}
		s.at(noon + 4*sec)
		for _, stored := range []uint64{3, 0} {
			if stored > 0 {
				require.NoError(t, s.Set(t.Context(), "k", snapshot, time.Minute).Err())
			} else {
				require.NoError(t, s.Del(t.Context(), "k").Err())
			}
			c := count(6, 6)
			require.ErrorIs(t, c.Err, ErrLost)
			require.Equal(t, stored, c.Replies[0].Stored)
			n, err := s.Exists(t.Context(), "k").Result()
			require.NoError(t, err)
			require.EqualValues(t, min(stored, 1), n, "the counter must not change")
			c = count(0, 6, Unsynced{3, 4 * sec}, Unsynced{1, 3 * sec}, Unsynced{1, 2 * sec}, Unsynced{1, sec})
			require.NoError(t, c.Err)
			assert.Equal(t, Reply{Remaining: 3, Reset: 56 * sec, Stored: 7}, c.Replies[0])
		}
	})
}

// TestMalformedCounterIsTreatedAsAbsent, and does not affect other calls of the script run.
func TestMalformedCounterIsTreatedAsAbsent(t *testing.T) {
	forEachServer(t, func(s *server) {
		t := s.t
		s.count(Counter{Key: "good", Limit: 100, Writer: 1})
		value, err := s.Get(t.Context(), "good").Result()
		require.NoError(t, err)
		values := []string{"", "x", value[:len(value)-1], value[1:], value + "x", value + value, strings.Repeat("\xff", 200), strings.Repeat("\x00", 60)}
		malformed := len(values) // the others may be valid
		r := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			b := []byte(value)
			for range 1 + r.IntN(4) {
				b[r.IntN(len(b))] = byte(r.Uint32())
			}
			values = append(values, string(b))
		}
		for i, v := range append(values, "a list") {
			require.NoError(t, s.Del(t.Context(), "bad").Err())
			if i < len(values) {
				require.NoError(t, s.Set(t.Context(), "bad", v, time.Minute).Err())
			} else {
				require.NoError(t, s.RPush(t.Context(), "bad", v).Err())
			}
			bad := callFor(Counter{Key: "bad", Limit: 3, Writer: 1})
			good := callFor(Counter{Key: "good", Limit: 1000, Writer: 1, Seq: uint64(i) + 1})
			s.run(bad, good)
			require.NoError(t, good.Err)
			require.EqualValues(t, i+2, good.Replies[0].Stored)
			if i < malformed || i == len(values) {
				require.NoError(t, bad.Err)
				require.Equal(t, Reply{Remaining: 2, Reset: 60 * sec, Stored: 1}, bad.Replies[0], "%q", v)
			}
			assert.LessOrEqual(t, bad.Replies[0].Retry, 60*sec)
		}
	})
}

// TestClockSteps: after a step back a counter's time continues from its newest request; after a step forward its requests
// have expired.
func TestClockSteps(t *testing.T) {
	forEachServer(t, func(s *server) {
		t := s.t
		const length = 600 * sec
		stored := uint64(0)
		for _, step := range []struct {
			at, retry int64
			why       string
		}{
			{at: 0},
			{at: -1000 * sec},
			{at: -1000 * sec, retry: length},
			{at: -995 * sec, retry: length - 5*sec},
			{at: -1995 * sec, retry: length, why: "back again: a denial must not last longer than a window"},
			{at: -1995*sec + length - 1, retry: 1},
			{at: -1995*sec + length},
			{at: 2000 * sec},
		} {
			s.at(noon + step.at)
			c := s.count(Counter{Key: "k", Limit: 2, Window: length, Writer: 1, Seq: stored})
			require.NoError(t, c.Err)
			require.Equal(t, step.retry, c.Replies[0].Retry, "at %d: %s", step.at, step.why)
			stored = c.Replies[0].Stored
		}
	})
}

// TestNothingIsAcceptedWhenItsMarkExpires, so that the clock cannot make a repetition new.
func TestNothingIsAcceptedWhenItsMarkExpires(t *testing.T) {
	forEachServer(t, func(s *server) {
		t := s.t
		accept := func(mark string, id byte) byte {
			c := callFor(Counter{Key: "k", Limit: 1000, Writer: 1})
			c.Mark, c.ID, c.Until = mark, [IDSize]byte{id}, noon/sec+660
			s.run(c)
			require.NoError(t, c.Err)
			return c.Accepted[0]
		}
		require.EqualValues(t, 1, accept("first", 1))
		require.InDelta(t, 660, s.PTTL(t.Context(), "first").Val().Seconds(), 60)
		s.at(noon + 659*sec)
		require.EqualValues(t, 1, accept("first", 2))
		require.EqualValues(t, 3, accept("last", 3))
		s.at(noon + 659*sec + 1000)
		for _, mark := range []string{"first", "last", "late"} {
			require.Zero(t, accept(mark, 4), mark)
		}
		require.Zero(t, s.Exists(t.Context(), "late").Val())
	})
}

// TestCounterSizeIsBounded: high limits, many writers, and more requests than the limit after an outage.
func TestCounterSizeIsBounded(t *testing.T) {
	forEachServer(t, func(s *server) {
		t := s.t
		const header, writer, entry = 29, 24, 7
		r := rand.New(rand.NewPCG(3, 4))
		now := noon
		count := func(b Counter) Reply {
			c := s.count(b)
			require.NoError(t, c.Err)
			return c.Replies[0]
		}
		size := func(key string) int64 {
			n, err := s.StrLen(t.Context(), key).Result()
			require.NoError(t, err)
			return n
		}
		seq := uint64(0)
		for range 700 {
			now += r.Int64N(60 * sec / 200)
			s.at(now)
			if count(Counter{Key: "high", Limit: 10_000, Writer: 1, Seq: seq}).Retry == 0 {
				seq++
			}
		}
		require.LessOrEqual(t, size("high"), int64(header+writer+260*entry))

		for gateway := range uint64(20) {
			var list []Unsynced
			for i := range int64(100) {
				list = append(list, Unsynced{1, (100-i)*sec/2 + r.Int64N(sec/4)})
			}
			assert.Positive(t, count(Counter{Key: "outage", Limit: 100, Writer: gateway + 1, Seq: 100, Unsynced: list}).Retry)
		}
		require.LessOrEqual(t, size("outage"), int64(header+20*writer+520*entry))

		for w := range uint64(200) {
			now += 60 * sec / 4
			s.at(now)
			assert.Zero(t, count(Counter{Key: "writers", Limit: 10, Writer: w + 1}).Retry)
		}
		require.LessOrEqual(t, size("writers"), int64(header+5*(writer+entry)), "writers are removed a window after their last request")
		ttl := s.PTTL(t.Context(), "writers").Val()
		require.Positive(t, ttl)
		require.LessOrEqual(t, ttl, time.Minute+time.Millisecond)
	})
}
