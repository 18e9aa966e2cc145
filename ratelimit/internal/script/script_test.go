package script

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/embeddedredis"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// server is a server on which the script uses the test's clock: the list "clock" replaces TIME.
type server struct {
	t      testing.TB
	client *redis.Client
	runner *Runner
	number uint64
}

func newServer(t testing.TB, client *redis.Client) *server {
	t.Helper()
	source := strings.Replace(Source, "call('TIME')", "call('LRANGE', 'clock', 0, 1)", 1)
	require.NotEqual(t, Source, source)
	r := NewRunner(client, false)
	r.source, r.sha = source, redis.NewScript(source).Hash()
	return &server{t: t, client: client, runner: r}
}

// at sets the clock, in microseconds.
func (s *server) at(us int64) {
	s.t.Helper()
	ctx := context.Background()
	_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, "clock")
		p.RPush(ctx, "clock", us/1_000_000, us%1_000_000)
		return nil
	})
	require.NoError(s.t, err)
}

// run assigns increasing numbers to calls and runs them. Only the script's own errors are expected.
func (s *server) run(calls ...*Call) {
	s.t.Helper()
	for _, c := range calls {
		s.number += 2
		c.Number = s.number
	}
	s.again(calls...)
}

func (s *server) again(calls ...*Call) {
	s.t.Helper()
	s.runner.Run(context.Background(), calls)
	for _, c := range calls {
		if !errors.Is(c.Err, ErrLost) && !errors.Is(c.Err, ErrStale) {
			require.NoError(s.t, c.Err)
		}
	}
}

func realAndEmbedded(t testing.TB) map[string]*server {
	t.Helper()
	m, err := embeddedredis.Start()
	require.NoError(t, err)
	t.Cleanup(m.Close)
	all := make(map[string]*server)
	for name, addr := range map[string]string{"redis": redistest.Start(t).Addr, "embedded": m.Addr()} {
		client := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Minute, MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		all[name] = newServer(t, client)
	}
	return all
}

const sec = int64(1_000_000)

// noon is a realistic time of Redis's clock.
const noon = int64(1_795_000_000) * sec

// model keeps every request with its exact time.
type model struct{ at []int64 }

func (m *model) inside(now, span int64) []int64 {
	i := slices.IndexFunc(m.at, func(at int64) bool { return at+span > now })
	if i < 0 {
		return nil
	}
	return m.at[i:]
}

func (m *model) add(at int64) {
	i, _ := slices.BinarySearch(m.at, at+1)
	m.at = slices.Insert(m.at, i, at)
}

// reply returns the expected reply for a bucket.
func (m *model) reply(now, span int64, limit int) (r Reply) {
	inside := m.inside(now, span)
	r.Remaining, r.Reset = max(0, limit-len(inside)), span
	if len(inside) > 0 {
		r.Reset = inside[0] + span - now
	}
	return r
}

func (m *model) retry(now, span int64, limit int) int64 {
	inside := m.inside(now, span)
	if excess := len(inside) - limit; excess >= 0 {
		return inside[excess] + span - now
	}
	return 0
}

// TestScriptMatchesModel runs random calls of several writers on shared buckets, with changing limits, unsynced requests and
// repeated calls, and requires the model's replies to the microsecond.
func TestScriptMatchesModel(t *testing.T) {
	t.Parallel()
	for name, s := range realAndEmbedded(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.t = t
			seeds := uint64(12)
			if name == "embedded" {
				seeds = 3 // which is much slower
			}
			for seed := range seeds {
				checkAgainstModel(t, s, rand.New(rand.NewPCG(seed, 7)), fmt.Sprintf("s%d", seed))
			}
		})
	}
}

// writer is a gateway's local window: the times of its requests, of which the first ones are stored.
type writer struct {
	id     uint64
	at     []int64
	stored int
}

func (w *writer) bucket(key string, limit int, span, now int64) Bucket {
	b := Bucket{Key: key, Limit: limit, Window: span, Writer: w.id, Base: uint64(w.stored), Seq: uint64(len(w.at))}
	if w.stored == 0 || w.at[w.stored-1]+span <= now {
		b.Base = 0 // the script has removed a writer whose last request has expired
	}
	for _, at := range w.at[w.stored:] {
		if now-at < span {
			b.Unsynced = append(b.Unsynced, Unsynced{Count: 1, Age: now - at})
		}
	}
	return b
}

func checkAgainstModel(t *testing.T, s *server, r *rand.Rand, prefix string) {
	t.Helper()
	const span = 1200 * sec // keys expire by Redis's own clock, which must be after the test
	now := noon
	models := make([]model, 3)
	limits := []int{1 + r.IntN(3), 2 + r.IntN(10), 1 + r.IntN(256)}
	writers := make([][3]writer, 2)
	for i := range writers {
		for j := range writers[i] {
			writers[i][j].id = r.Uint64N(1 << 40)
		}
	}
	for step := range 300 {
		switch r.IntN(10) {
		case 0:
			now += r.Int64N(span + span/2)
		case 1:
		case 2:
			if m := models[r.IntN(3)]; len(m.at) > 0 {
				now = max(now, m.at[r.IntN(len(m.at))]+span-r.Int64N(2))
			}
		default:
			now += r.Int64N(span / 8)
		}
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
		c := &Call{Charge: r.IntN(5) > 0, N: len(which)}
		allowed := true
		for i, b := range which {
			w := &who[b]
			c.Buckets[i] = w.bucket(fmt.Sprint(prefix, b), limits[b], span, now)
			for _, at := range w.at[w.stored:] {
				models[b].add(at)
			}
			w.stored = len(w.at)
			allowed = allowed && models[b].retry(now, span, limits[b]) == 0
		}
		s.run(c)
		require.NoError(t, c.Err)
		check := func(again bool) {
			for i, b := range which {
				w := &who[b]
				want := models[b].reply(now, span, limits[b])
				if !again || !allowed || !c.Charge {
					if !allowed || !c.Charge {
						want.Retry = models[b].retry(now, span, limits[b])
					}
				}
				want.Stored = uint64(len(w.at))
				require.Equal(t, want, c.Replies[i], "step %d bucket %d again %v", step, b, again)
			}
		}
		if c.Charge && allowed {
			for _, b := range which {
				models[b].add(now)
				who[b].at = append(who[b].at, now)
				who[b].stored++
			}
		}
		check(false)
		if r.IntN(4) == 0 { // a retry
			s.again(c)
			require.NoError(t, c.Err)
			check(true)
		}
	}
}

// TestLateCallChangesNothing: a frozen Redis runs a call after the gateway has synced its request.
func TestLateCallChangesNothing(t *testing.T) {
	t.Parallel()
	for name, s := range realAndEmbedded(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.t = t
			s.at(noon)
			bucket := func(base, seq uint64, unsynced ...Unsynced) [MaxBuckets]Bucket {
				return [MaxBuckets]Bucket{{Key: "k", Limit: 10, Window: 60 * sec, Writer: 7, Base: base, Seq: seq, Unsynced: unsynced}}
			}
			late := &Call{Charge: true, N: 1, Buckets: bucket(0, 0), Number: 2}
			// The gateway assumed that the call was lost, and allowed the request locally.
			s.number = 2
			next := &Call{Charge: true, N: 1, Buckets: bucket(0, 1, Unsynced{1, 5})}
			s.run(next)
			require.NoError(t, next.Err)
			require.Equal(t, Reply{Remaining: 8, Reset: 60*sec - 5, Stored: 2}, next.Replies[0])
			s.again(late)
			require.ErrorIs(t, late.Err, ErrStale)
			require.Equal(t, 8, late.Replies[0].Remaining)

			// The call was not lost, and the next one syncs the request.
			early := &Call{Charge: true, N: 1, Buckets: bucket(2, 2)}
			s.run(early)
			next = &Call{N: 1, Buckets: bucket(2, 3, Unsynced{1, 5})}
			s.run(next)
			require.Equal(t, Reply{Remaining: 7, Reset: 60*sec - 5, Stored: 3}, next.Replies[0], "must be added once")
		})
	}
}

// TestDataLossIsDetectedAndResyncedOnce restores an older snapshot, or an empty database.
func TestDataLossIsDetectedAndResyncedOnce(t *testing.T) {
	t.Parallel()
	for name, s := range realAndEmbedded(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.t = t
			ctx := context.Background()
			s.at(noon)
			call := func(base, seq uint64, unsynced ...Unsynced) *Call {
				c := &Call{Charge: true, N: 1}
				c.Buckets[0] = Bucket{Key: "k", Limit: 10, Window: 60 * sec, Writer: 7, Base: base, Seq: seq, Unsynced: unsynced}
				s.run(c)
				return c
			}
			for i := range uint64(3) {
				require.NoError(t, call(i, i).Err)
			}
			snapshot, err := s.client.Get(ctx, "k").Result()
			require.NoError(t, err)
			for i := range uint64(3) {
				s.at(noon + (1+int64(i))*sec)
				require.NoError(t, call(3+i, 3+i).Err)
			}
			for have, value := range map[uint64]string{3: snapshot, 0: ""} {
				if have > 0 {
					require.NoError(t, s.client.Set(ctx, "k", value, time.Minute).Err())
				} else {
					require.NoError(t, s.client.Del(ctx, "k").Err())
				}
				s.at(noon + 4*sec)
				c := call(6, 6)
				require.ErrorIs(t, c.Err, ErrLost)
				require.Equal(t, have, c.Replies[0].Stored)
				n, err := s.client.Exists(ctx, "k").Result()
				require.NoError(t, err)
				require.EqualValues(t, min(have, 1), n, "the bucket must not change")
				all := []Unsynced{{3, 4 * sec}, {1, 3 * sec}, {1, 2 * sec}, {1, sec}}
				c = call(0, 6, all...)
				require.NoError(t, c.Err)
				require.Equal(t, Reply{Remaining: 3, Reset: 56 * sec, Stored: 7}, c.Replies[0])
				// for the other case
				require.NoError(t, s.client.Set(ctx, "k", snapshot, time.Minute).Err())
			}
		})
	}
}

// TestLowerLimitKeepsOtherWritersRequests: gateways may disagree on a key's limit.
func TestLowerLimitKeepsOtherWritersRequests(t *testing.T) {
	t.Parallel()
	for name, s := range realAndEmbedded(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.t = t
			s.at(noon)
			call := func(writer uint64, limit int, charge bool, seq uint64, unsynced ...Unsynced) *Call {
				c := &Call{Charge: charge, N: 1}
				c.Buckets[0] = Bucket{Key: "k", Limit: limit, Window: 60 * sec, Writer: writer, Seq: seq, Unsynced: unsynced}
				s.run(c)
				require.NoError(t, c.Err)
				return c
			}
			for i := range uint64(40) {
				require.Zero(t, call(1, 60, true, i).Replies[0].Retry)
			}
			require.Positive(t, call(2, 5, true, 4, Unsynced{4, sec}).Replies[0].Retry)
			require.Equal(t, 60-44, call(1, 60, false, 40).Replies[0].Remaining)
		})
	}
}

// TestMalformedBucketIsTreatedAsAbsent, and does not affect other calls of the script run.
func TestMalformedBucketIsTreatedAsAbsent(t *testing.T) {
	t.Parallel()
	for name, s := range realAndEmbedded(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.t = t
			ctx := context.Background()
			s.at(noon)
			r := rand.New(rand.NewPCG(1, 2))
			good := &Call{Charge: true, N: 1}
			good.Buckets[0] = Bucket{Key: "good", Limit: 100, Window: 60 * sec, Writer: 1}
			s.run(good)
			value, err := s.client.Get(ctx, "good").Result()
			require.NoError(t, err)
			values := []string{"", "x", value[:len(value)-1], value[1:], value + "x", value + value, strings.Repeat("\xff", 200), strings.Repeat("\x00", 60)}
			for range 300 {
				b := []byte(value)
				for range 1 + r.IntN(4) {
					b[r.IntN(len(b))] = byte(r.Uint32())
				}
				values = append(values, string(b))
			}
			for i, v := range append(values, "a list") {
				require.NoError(t, s.client.Del(ctx, "bad").Err())
				if i < len(values) {
					require.NoError(t, s.client.Set(ctx, "bad", v, time.Minute).Err())
				} else {
					require.NoError(t, s.client.RPush(ctx, "bad", v).Err())
				}
				bad, again := &Call{Charge: true, N: 1}, &Call{Charge: true, N: 1}
				bad.Buckets[0] = Bucket{Key: "bad", Limit: 3, Window: 60 * sec, Writer: 1}
				again.Buckets[0] = Bucket{Key: "good", Limit: 1000, Window: 60 * sec, Writer: 1, Seq: uint64(i) + 1}
				s.run(bad, again)
				require.NoError(t, again.Err)
				require.EqualValues(t, i+2, again.Replies[0].Stored)
				if i < 8 || i == len(values) {
					require.NoError(t, bad.Err)
					require.Equal(t, Reply{Remaining: 2, Reset: 60 * sec, Stored: 1}, bad.Replies[0], "%q", v)
				}
				require.LessOrEqual(t, bad.Replies[0].Retry, 60*sec)
			}
		})
	}
}

// TestClockSteps: after a step back a bucket's time continues from its newest request; after a step forward its requests
// have expired.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	for name, s := range realAndEmbedded(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.t = t
			const span = 600 * sec
			stored := uint64(0)
			charge := func(at int64) Reply {
				s.at(at)
				c := &Call{Charge: true, N: 1}
				c.Buckets[0] = Bucket{Key: "k", Limit: 2, Window: span, Writer: 1, Seq: stored}
				s.run(c)
				require.NoError(t, c.Err)
				stored = c.Replies[0].Stored
				return c.Replies[0]
			}
			require.Zero(t, charge(noon).Retry)
			require.Zero(t, charge(noon-1000*sec).Retry)
			require.Equal(t, span, charge(noon-1000*sec).Retry)
			require.Equal(t, span-5*sec, charge(noon-995*sec).Retry)
			require.Equal(t, span, charge(noon-1995*sec).Retry, "back again: a denial must not last longer than a window")
			require.Equal(t, int64(1), charge(noon-1995*sec+span-1).Retry)
			require.Zero(t, charge(noon-1995*sec+span).Retry)
			require.Zero(t, charge(noon+2000*sec).Retry, "ahead")
		})
	}
}

// TestBucketSizeIsBounded: high limits, many writers, and more requests than the limit after an outage.
func TestBucketSizeIsBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t, redistest.Start(t).Client(t))
	ctx := context.Background()
	r := rand.New(rand.NewPCG(3, 4))
	now := noon
	const span = 60 * sec
	charge := func(key string, limit int, seq, writer uint64, unsynced ...Unsynced) Reply {
		c := &Call{Charge: true, N: 1}
		c.Buckets[0] = Bucket{Key: key, Limit: limit, Window: span, Writer: writer, Seq: seq, Unsynced: unsynced}
		s.run(c)
		require.NoError(t, c.Err)
		return c.Replies[0]
	}
	seq := uint64(0)
	for range 5000 {
		now += r.Int64N(span / 500)
		s.at(now)
		if charge("high", 10_000, seq, 1).Retry == 0 {
			seq++
		}
	}
	size, err := s.client.StrLen(ctx, "high").Result()
	require.NoError(t, err)
	require.LessOrEqual(t, size, int64(29+24+260*7))

	for gateway := range uint64(20) {
		var list []Unsynced
		for i := range int64(100) {
			list = append(list, Unsynced{1, (100-i)*sec/2 + r.Int64N(sec/4)})
		}
		require.Positive(t, charge("outage", 100, 100, gateway+1, list...).Retry)
	}
	size, err = s.client.StrLen(ctx, "outage").Result()
	require.NoError(t, err)
	require.LessOrEqual(t, size, int64(29+20*24+520*7))

	// Writers are removed a window after their last request.
	for writer := range uint64(200) {
		now += span / 4
		s.at(now)
		require.Zero(t, charge("writers", 10, 0, writer+1).Retry)
	}
	size, err = s.client.StrLen(ctx, "writers").Result()
	require.NoError(t, err)
	require.LessOrEqual(t, size, int64(29+5*24+5*7))
	ttl, err := s.client.PTTL(ctx, "writers").Result()
	require.NoError(t, err)
	require.Positive(t, ttl)
	require.LessOrEqual(t, ttl, time.Minute+time.Millisecond)
}
