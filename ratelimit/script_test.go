package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/redistest"
)

// withClock is the script with a clock that the test sets, in microseconds: the
// list "clock" takes the place of TIME.
func withClock(t testing.TB) string {
	t.Helper()
	s := strings.Replace(exactScript, "call('TIME')", "call('LRANGE', 'clock', 0, 1)", 1)
	require.NotEqual(t, exactScript, s)
	return s
}

// A scripted is a server on which the script runs under the test's clock.
type scripted struct {
	t      testing.TB
	client *redis.Client
	script *redis.Script
}

func newScripted(t testing.TB, client *redis.Client) *scripted {
	t.Helper()
	return &scripted{t, client, redis.NewScript(withClock(t))}
}

func (s *scripted) at(us int64) {
	s.t.Helper()
	ctx := context.Background()
	_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, "clock")
		p.RPush(ctx, "clock", us/1_000_000, us%1_000_000)
		return nil
	})
	require.NoError(s.t, err)
}

func (s *scripted) run(keys []string, args ...any) []int64 {
	s.t.Helper()
	v, err := s.script.Run(context.Background(), s.client, keys, args...).Int64Slice()
	require.NoError(s.t, err)
	return v
}

func realAndEmbedded(t testing.TB) map[string]*scripted {
	t.Helper()
	all := make(map[string]*scripted)
	for name, addr := range map[string]string{"redis": redistest.Start(t).Addr, "miniredis": miniredis.RunT(t).Addr()} {
		// However long an answer takes: who asked again would charge twice.
		client := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Minute, MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		all[name] = newScripted(t, client)
	}
	return all
}

const sec = int64(1_000_000)

// epoch is a time of day like Redis's.
const epoch = int64(1_795_000_000) * sec

// A model is the rule by itself: all admissions, each at its time.
type model struct{ at []int64 }

func (m *model) used(now, span int64) (n int, oldest int64) {
	for _, at := range m.at {
		if at+span > now {
			if n == 0 {
				oldest = at
			}
			n++
		}
	}
	return n, oldest
}

// state is what the script should reply for a bucket that was not charged.
func (m *model) state(now, span int64, limit int) (remaining, reset, retry int64) {
	n, oldest := m.used(now, span)
	remaining, reset = int64(max(0, limit-n)), span
	if n > 0 {
		reset = oldest + span - now
	}
	if n >= limit {
		excess := n - limit
		for _, at := range m.at {
			if at+span <= now {
				continue
			}
			if excess == 0 {
				retry = at + span - now
				break
			}
			excess--
		}
	}
	return remaining, reset, retry
}

// TestScriptGivesTheVerdictsOfTheRule runs random takes over shared buckets, with
// changing limits, on Redis and on the embedded stand-in, and wants the replies
// of the model to the microsecond.
func TestScriptGivesTheVerdictsOfTheRule(t *testing.T) {
	t.Parallel()
	for name, s := range realAndEmbedded(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.t = t
			seeds := uint64(12)
			if name == "miniredis" {
				seeds = 3 // it takes 50 times as long
			}
			for seed := range seeds {
				checkAgainstModel(t, s, rand.New(rand.NewPCG(seed, 7)), fmt.Sprintf("s%d", seed))
			}
		})
	}
}

func checkAgainstModel(t *testing.T, s *scripted, r *rand.Rand, prefix string) {
	t.Helper()
	const span = 1200 * sec // the keys' end is by Redis's own clock, and comes after the test's
	now := epoch
	models := make([]model, 3)
	limits := []int{1 + r.IntN(3), 2 + r.IntN(10), 1 + r.IntN(256)}
	for step := range 150 {
		switch r.IntN(10) {
		case 0:
			now += r.Int64N(span + span/2)
		case 1:
			// The same microsecond again.
		case 2:
			// Exactly when something leaves.
			if m := models[r.IntN(3)]; len(m.at) > 0 {
				now = max(now, m.at[r.IntN(len(m.at))]+span-r.Int64N(2))
			}
		default:
			now += r.Int64N(span / 8)
		}
		if r.IntN(20) == 0 {
			limits[r.IntN(3)] = 1 + r.IntN(20) // an override
		}
		s.at(now)

		// A batch of takes and peeks over random buckets.
		keys, args := make([]string, 0, 9), make([]any, 0, 21)
		type take struct {
			which []int
			peek  bool
		}
		takes := make([]take, 0, 3)
		for range 1 + r.IntN(3) {
			tk := take{which: r.Perm(3)[:1+r.IntN(3)], peek: r.IntN(4) == 0}
			takes = append(takes, tk)
			code := 4 * len(tk.which)
			if tk.peek {
				code |= chargeNothing
			}
			args = append(args, code)
			for _, b := range tk.which {
				keys = append(keys, fmt.Sprintf("%s:{x}%d", prefix, b))
				args = append(args, limits[b], span)
			}
		}
		reply := s.run(keys, args...)
		for _, tk := range takes {
			allowed := int64(1)
			for _, b := range tk.which {
				if n, _ := models[b].used(now, span); n >= limits[b] {
					allowed = 0
				}
			}
			if allowed == 1 && !tk.peek {
				for _, b := range tk.which {
					models[b].at = append(models[b].at, now)
				}
			}
			want := []int64{allowed}
			for _, b := range tk.which {
				remaining, reset, retry := models[b].state(now, span, limits[b])
				if allowed == 1 {
					retry = 0 // it was admitted, even if it was the last
				}
				want = append(want, remaining, reset, retry)
			}
			require.Equal(t, want, reply[:len(want)], "step %d of %s, take %+v, limits %v", step, prefix, tk, limits)
			reply = reply[len(want):]
		}
		require.Empty(t, reply)
	}
}

// TestLargeLimitsStayStrictAndSmall holds a limit whose log has fewer entries
// than requests to the rule: never more than the limit in a window, never less
// than the limit in a window and a 256th, never more than some 260 entries.
func TestLargeLimitsStayStrictAndSmall(t *testing.T) {
	t.Parallel()
	const span, limit = 1200 * sec, 1000 // as above
	for name, s := range realAndEmbedded(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.t = t
			r := rand.New(rand.NewPCG(3, 4))
			ctx := context.Background()
			now := epoch
			m := &model{}
			var w window
			refused := 0
			args := make([]any, 0, 60)
			keys := make([]string, 0, 20)
			for range 20 {
				args, keys = append(args, 4, limit, span), append(keys, "big")
			}
			rounds := 300
			if name == "miniredis" {
				rounds = 75
			}
			for range rounds {
				now += r.Int64N(span / 66)
				s.at(now)
				reply := s.run(keys, args...)
				for i := 0; i < len(reply); i += 4 {
					n, _ := m.used(now, span)
					strict, _ := m.used(now, span+span/256+1)
					w.prune(now-epoch, span)
					require.Equal(t, reply[i] == 1, w.retry(now-epoch, limit, span) == 0, "the memory's twin differs")
					if reply[i] == 1 {
						require.Less(t, n, limit)
						m.at = append(m.at, now)
						w.add(now-epoch, limit, span)
					} else {
						require.GreaterOrEqual(t, strict, limit)
						require.Equal(t, reply[i+3], w.retry(now-epoch, limit, span))
						refused++
					}
					require.EqualValues(t, limit-w.total, reply[i+1])
				}
				size, err := s.client.StrLen(ctx, "big").Result()
				require.NoError(t, err)
				require.LessOrEqual(t, size, int64(27+7*258))
				require.LessOrEqual(t, len(w.entries)-w.head, 258)
			}
			require.NotZero(t, refused)
		})
	}
}

// TestClockSteps: a clock set back neither gives budget back early nor keeps a
// caller waiting for as long as the step.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	const span, limit = 60 * sec, 5
	for name, s := range realAndEmbedded(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.t = t
			ctx := context.Background()
			take := func() []int64 { return s.run([]string{"stepped"}, 4, limit, span) }
			now := epoch
			for i := range limit {
				s.at(now + int64(i)*sec)
				require.EqualValues(t, 1, take()[0])
			}
			// Ten minutes back, just after the last admission.
			now += 4*sec - 600*sec
			s.at(now)
			refusal := take()
			require.Equal(t, []int64{0, 0, 56 * sec, 56 * sec}, refusal)
			require.Positive(t, s.client.PTTL(ctx, "stepped").Val())
			// Time goes on although nothing is admitted meanwhile.
			s.at(now + 55*sec)
			require.Equal(t, []int64{0, 0, sec, sec}, take())
			s.at(now + 56*sec)
			require.Equal(t, []int64{1, 0, sec, 0}, take())
			// Back again, and again.
			s.at(now - 1000*sec)
			require.Equal(t, []int64{0, 0, sec, sec}, take())
			s.at(now - 999*sec)
			require.Equal(t, []int64{1, 0, sec, 0}, take())
			s.at(now - 998*sec)
			began := time.Now()
			require.Equal(t, []int64{1, 0, sec, 0}, take())
			ttl := s.client.PTTL(ctx, "stepped").Val()
			require.LessOrEqual(t, ttl, time.Minute+10*time.Millisecond)
			require.GreaterOrEqual(t, ttl, time.Minute-time.Since(began)-100*time.Millisecond, "it has to last until its newest has left")
			// When all has left the bucket is on the clock again.
			s.at(now)
			require.Equal(t, []int64{1, 4, span, 0}, take())
		})
	}
}

// TestDebtsAreEnteredWhereTheyBelong settles what a gateway admitted by itself.
func TestDebtsAreEnteredWhereTheyBelong(t *testing.T) {
	t.Parallel()
	const span, limit = 60 * sec, 5
	for name, s := range realAndEmbedded(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.t = t
			s.at(epoch)
			const settle = 4 | chargeNothing | withDebts
			require.Equal(t, []int64{1, 4, span, 0}, s.run([]string{"owed"}, 4, limit, span))

			s.at(epoch + 30*sec)
			// 2 of 20 s ago, 1 of now, and one that has left the window.
			require.Equal(t, []int64{1, 1, 30 * sec, 0},
				s.run([]string{"owed"}, settle, limit, span, 3, 7, 90*sec, 2, 20*sec, 1, 0))
			// Another gateway's, between them, along with a take: of 13 the newest 5
			// are kept.
			require.Equal(t, []int64{0, 0, 50 * sec, 50 * sec},
				s.run([]string{"owed"}, 4|withDebts, limit, span, 1, 9, 10*sec))
			s.at(epoch + 80*sec)
			require.Equal(t, []int64{1, 4, 10 * sec, 0}, s.run([]string{"owed"}, 4|chargeNothing, limit, span))
			s.at(epoch + 90*sec)
			require.Equal(t, []int64{1, 5, span, 0}, s.run([]string{"owed"}, 4|chargeNothing, limit, span))

			// A peek takes debts into account without entering them.
			require.Equal(t, []int64{1, 4, span, 0},
				s.run([]string{"fresh"}, 4|withDebts, limit, span, 0))
			// Debts of two buckets in one take, one of them full by its debt: nothing
			// is charged, the debts are entered.
			require.Equal(t, []int64{0, 2, 50 * sec, 0, 0, 59 * sec, 59 * sec},
				s.run([]string{"{a}1", "{a}2"}, 8|withDebts, limit, span, 1, 3, 10*sec, limit, span, 1, 5, sec))
			require.Equal(t, []int64{1, 2, 50 * sec, 0}, s.run([]string{"{a}1"}, 4|chargeNothing, limit, span))

			// Many debts of a large limit share entries.
			args := make([]any, 0, 2004)
			args = append(args, settle, 100_000, span, 1000)
			for i := range int64(1000) {
				args = append(args, 60, (1000-i)*span/1001)
			}
			require.Equal(t, []int64{1, 40_000}, s.run([]string{"many"}, args...)[:2])
			size := s.client.StrLen(context.Background(), "many").Val()
			require.LessOrEqual(t, size, int64(27+7*260))
			require.Equal(t, []int64{1, 39_999}, s.run([]string{"many"}, 4, 100_000, span)[:2])
		})
	}
}

// TestCountsBeyondAnEntry: an entry's count has 16 bits, the limit may have 24.
func TestCountsBeyondAnEntry(t *testing.T) {
	t.Parallel()
	for name, s := range realAndEmbedded(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.t = t
			const span, limit = 60 * sec, 200_000
			s.at(epoch)
			require.Equal(t, []int64{1, limit - 2*maxCount}, s.run([]string{"c"},
				4|chargeNothing|withDebts, limit, span, 2, maxCount, 0, maxCount, 0)[:2])
			require.Equal(t, []int64{1, limit - 2*maxCount - 1}, s.run([]string{"c"}, 4, limit, span)[:2])
			require.Equal(t, int64(27+3*7), s.client.StrLen(context.Background(), "c").Val())
			// Lowered far below what is used: it waits for enough to leave.
			require.Equal(t, []int64{0, 0, span, span}, s.run([]string{"c"}, 4, 1, span))
		})
	}
}
