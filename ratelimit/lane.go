package ratelimit

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

//go:embed exact.lua
var exactScript string

const (
	// clusterLanes is into how many ranges of slots a Cluster is divided.
	clusterLanes = 16
	// maxFlights is how many round trips a lane has under way at once. More would
	// carry fewer takes each.
	maxFlights = 2
	// maxFlightTakes bounds for how long one script keeps Redis from others: some
	// 7 microseconds a take.
	maxFlightTakes = 64
)

// A lane is the way to one part of Redis: all of it, or a range of a Cluster's
// slots. Concurrent takes share round trips: while one is under way the others
// queue, and the next carries them all. Each lane has a breaker of its own, so
// that the loss of a Cluster node is felt by its slots only.
type lane struct {
	fleet  *Fleet
	index  int
	marker string // the key by which a loss of Redis's memory is noticed

	owing   atomic.Bool // there may be debts to settle
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	down    atomic.Bool // mirrors the breaker, without its lock
	failing atomic.Bool // the last round trip failed
	cause   atomic.Pointer[error]

	mu      sync.Mutex
	queue   []*call
	flights int

	memory  remembrance
	looking atomic.Bool
}

// A remembrance is what is known of Redis's memory. Times are the Fleet's.
type remembrance struct {
	mu    sync.Mutex
	mark  int64 // what the marker holds; 0: not known yet
	since int64 // when that was first seen
	sure  int64 // when it was last certain that Redis remembers all since then
	lost  int64 // before when Redis has forgotten all, until that is settled; 0: it has not
}

// A call is a take on its way.
type call struct {
	n      int
	flags  int
	keys   [MaxBuckets]string
	limits [MaxBuckets]int64
	spans  [MaxBuckets]int64
	debts  *[MaxBuckets][]debt
	id     id // of the entry whose debts it settles, if that is all

	reply [1 + 3*MaxBuckets]int64
	err   error
	done  chan struct{} // buffered, for one
	state atomic.Int32
	// boarded says that it is on a round trip, which has a deadline of its own.
	boarded atomic.Bool
	timer   *time.Timer
}

// The states of a call.
const (
	waiting int32 = iota
	answered
	abandoned // the caller has gone; whoever answers puts the call away
)

// Flags of the script's protocol.
const (
	chargeNothing = 1
	withDebts     = 2
)

func newLane(f *Fleet, index int) *lane {
	l := &lane{fleet: f, index: index}
	t := tag(0)
	for f.cluster && f.laneOf(t) != index {
		t++
	}
	l.marker = f.o.Prefix + "{" + string(t.append(nil)) + "}memory"
	l.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Interval:     10 * time.Second,
		BucketPeriod: time.Second,
		// The prober comes later than that and finds it half open.
		Timeout: f.o.ProbeInterval / 2,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return int64(c.ConsecutiveFailures) >= int64(f.o.MaxFailures) || c.Requests >= 20 && 2*c.TotalFailures >= c.Requests
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errGone) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch {
			case to == gobreaker.StateClosed:
				l.down.Store(false)
			case from == gobreaker.StateClosed:
				l.down.Store(true)
				f.spawn(l.probe)
			}
		},
	})
	return l
}

// errDown is the cause of the outage that the lane is in, or nil.
func (l *lane) errDown() error {
	if !l.down.Load() {
		return nil
	}
	if cause := l.cause.Load(); cause != nil {
		return *cause
	}
	return gobreaker.ErrOpenState
}

// do has the call answered. An error is an outage, unless it is ctx's own. After
// it the call belongs to the lane.
//
// Whoever comes while no round trip is under way makes one itself, and takes
// along who waits; the client obeys its deadline. The others wait by a timer.
func (l *lane) do(ctx context.Context, c *call) error {
	if err := l.errDown(); err != nil {
		l.fleet.putCall(c)
		return err
	}
	l.mu.Lock()
	if l.flights == 0 || l.flights < maxFlights && len(l.queue) >= maxFlightTakes/4 {
		l.flights++
		l.mu.Unlock()
		return l.lead(c) //nolint:contextcheck // the round trip is for others too
	}
	l.queue = append(l.queue, c)
	l.mu.Unlock()

	done, err := l.await(ctx, c)
	if done {
		if err = c.err; err != nil {
			l.fleet.putCall(c)
		}
		return err
	}
	if !c.state.CompareAndSwap(waiting, abandoned) {
		// The answer came at the same moment: it is the better one.
		<-c.done
		if c.err == nil {
			return nil
		}
		l.fleet.putCall(c)
	}
	return err
}

// await waits for the answer, or says why it does not come in time. The time of a call that is on a round trip counts
// from when that left, as Redis can only be late for what it was sent: on a machine that is short of time itself a call
// may have waited long for its turn, and a gateway that then decided by itself would admit what the others have
// admitted already. Once round trips fail nobody waits longer than the timeout in all.
func (l *lane) await(ctx context.Context, c *call) (done bool, err error) {
	timeout := l.fleet.o.Timeout
	c.timer.Reset(timeout)
	defer c.timer.Stop() // while the call is certain to be this caller's
	for extended := false; ; extended = true {
		select {
		case <-c.done:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-c.timer.C:
			if extended || !c.boarded.Load() || l.failing.Load() {
				return false, fmt.Errorf("no answer within %v: %w", timeout, context.DeadlineExceeded)
			}
			c.timer.Reset(timeout)
		}
	}
}

// board takes from the queue who flies next, after those in batch.
func (l *lane) board(batch []*call) []*call {
	// On a busy machine there are more who are about to queue: they get the
	// processor first. On an idle one this costs nothing.
	runtime.Gosched()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.queue), maxFlightTakes-len(batch))
	batch = append(batch, l.queue[:n]...)
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	for _, c := range batch {
		c.boarded.Store(true)
	}
	return batch
}

// lead makes a round trip with the caller's own call and whoever waits.
func (l *lane) lead(own *call) error {
	batch := l.board(append(make([]*call, 0, 8), own))
	landed := false
	defer func() {
		// Nobody waits for ever if a hook of the client's has panicked, and those
		// who have come meanwhile do not need this caller.
		for _, c := range batch {
			if !landed {
				c.err = errPanicked
			}
			if c != own {
				l.fleet.answer(c)
			}
		}
		l.mu.Lock()
		more := len(l.queue) > 0
		if !more {
			l.flights--
		}
		l.mu.Unlock()
		if more {
			l.fleet.spawn(l.fly)
		}
	}()
	l.flight(batch, nil)
	landed = true
	err := own.err
	if err != nil {
		l.fleet.putCall(own)
	}
	return err
}

// fly makes round trips until nobody waits.
func (l *lane) fly() {
	var args []any
	var batch []*call
	for {
		batch = l.board(batch[:0])
		if len(batch) == 0 {
			l.mu.Lock()
			over := len(l.queue) == 0
			if over {
				l.flights--
			}
			l.mu.Unlock()
			if over {
				return
			}
			continue
		}
		args = l.flight(batch, args)
		for _, c := range batch {
			l.fleet.answer(c)
		}
	}
}

// flight makes a round trip if the breaker allows. Every call of the batch has a
// reply or an error afterwards.
func (l *lane) flight(batch []*call, args []any) []any {
	done, err := l.breaker.Allow()
	if err != nil {
		if cause := l.errDown(); cause != nil {
			err = cause
		}
		for _, c := range batch {
			c.err = err
		}
		return args
	}
	args = l.ask(batch, args)
	err = l.outcome(batch)
	l.failing.Store(err != nil)
	done(err)
	return args
}

// outcome is what the breaker learns of a flight: it failed if most of its calls
// did. Only a Cluster's can differ.
func (l *lane) outcome(batch []*call) error {
	failed := 0
	var err error
	for _, c := range batch {
		if c.err != nil {
			failed, err = failed+1, c.err
		}
	}
	if 2*failed < len(batch) || failed == 0 {
		return nil
	}
	l.cause.Store(&err)
	return err
}

// ask makes one round trip. Every call of the batch has a reply or an error
// afterwards.
func (l *lane) ask(batch []*call, args []any) []any {
	f := l.fleet
	f.stats.flights.Add(1)
	f.stats.asked.Add(uint64(len(batch)))
	ctx, cancel := context.WithTimeout(f.ctx, f.o.Timeout)
	defer cancel()
	if f.cluster {
		l.askEach(ctx, batch)
		return args
	}
	sent := f.clock()
	args = append(args[:0], "evalsha", f.sha, nil)
	args = appendCalls(args, batch, l.marker)
	cmd := redis.NewIntSliceCmd(ctx, args...)
	err := f.client.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", exactScript
		cmd = redis.NewIntSliceCmd(ctx, args...)
		err = f.client.Process(ctx, cmd)
	}
	reply := cmd.Val()
	for _, c := range batch {
		reply, c.err = c.read(reply, err)
	}
	if err == nil && l.compare(reply, sent) {
		l.lookAround()
	}
	return args
}

// askEach is ask for a Cluster, where a script has one slot.
func (l *lane) askEach(ctx context.Context, batch []*call) {
	f := l.fleet
	cmds := make([]*redis.IntSliceCmd, len(batch))
	send := func(name, script string, wanted func(*redis.IntSliceCmd) bool) {
		pipe := f.client.Pipeline()
		for i, c := range batch {
			if wanted(cmds[i]) {
				cmds[i] = redis.NewIntSliceCmd(ctx, appendCalls([]any{name, script, nil}, []*call{c}, "")...)
				_ = pipe.Process(ctx, cmds[i]) // it only queues
			}
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
	}
	send("evalsha", f.sha, func(*redis.IntSliceCmd) bool { return true })
	missing := func(cmd *redis.IntSliceCmd) bool { return redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") }
	if slices.ContainsFunc(cmds, missing) {
		// A node was restarted, or another has taken over.
		l.lookAround() //nolint:contextcheck // it goes on in the background
		send("eval", exactScript, missing)
	}
	for i, c := range batch {
		_, c.err = c.read(cmds[i].Val(), cmds[i].Err())
	}
}

// appendCalls appends the number of keys (in the place of the last argument),
// the keys and the arguments of the script. The marker has no key if it is "".
func appendCalls(args []any, batch []*call, marker string) []any {
	count := len(args) - 1
	for _, c := range batch {
		for i := range c.n {
			args = append(args, c.keys[i])
		}
	}
	if marker != "" {
		args = append(args, marker)
	}
	args[count] = len(args) - 1 - count
	for _, c := range batch {
		args = append(args, 4*c.n+c.flags)
		for i := range c.n {
			args = append(args, c.limits[i], c.spans[i])
			if c.flags&withDebts == 0 {
				continue
			}
			args = append(args, len(c.debts[i]))
			for _, d := range c.debts[i] {
				args = append(args, d.count, d.age)
			}
		}
	}
	return args
}

// errGone says that a caller did not wait for Redis: no failure of it.
var errGone = errors.New("the caller has gone")

var errPanicked = errors.New("the round trip was cut off")

var errShortReply = errors.New("the script's reply is too short")

// read takes the call's part off the reply.
func (c *call) read(reply []int64, err error) ([]int64, error) {
	if err != nil {
		return nil, err
	}
	n := 1 + 3*c.n
	if len(reply) < n {
		return nil, errShortReply
	}
	copy(c.reply[:], reply[:n])
	return reply[n:], nil
}

// probe tries whether Redis is back, until it is.
func (l *lane) probe() {
	f := l.fleet
	began := time.Now()
	cause := l.errDown()
	f.stats.outages.Add(1)
	l.tell(Event{Down: true, Cause: cause})
	for {
		// Gateways that lost Redis together do not come back to it together.
		wait := f.o.ProbeInterval * time.Duration(90+rand.IntN(20)) / 100 //nolint:gosec // it spreads, it need not surprise
		if c, ok := f.client.(*redis.ClusterClient); ok {
			// A node that refuses connections does not have the client look for the
			// one that took over. It looks in the background: ask early.
			early := wait / 5
			if !f.sleep(wait - early) {
				return
			}
			c.ReloadState(f.ctx)
			wait = early
		}
		if !f.sleep(wait) {
			return
		}
		done, err := l.breaker.Allow()
		if err != nil {
			continue
		}
		if err = l.lookInTime(); err == nil {
			// Before anyone asks again Redis learns what it has missed.
			var n int
			n, err = l.settle()
			if err == nil {
				done(nil)
				// What was admitted between the two.
				more, _ := l.settle()
				n += more
				l.tell(Event{Cause: cause, Lasted: time.Since(began), Settled: n})
				return
			}
		}
		l.cause.Store(&err)
		done(err)
	}
}

func (l *lane) tell(e Event) {
	e.Part, e.Parts = l.index, len(l.fleet.lanes)
	if l.fleet.o.OnEvent != nil {
		l.fleet.o.OnEvent(e)
	}
}

// lookAround looks in the background whether Redis has lost its memory, and
// enters into it again what this gateway knows; also what single requests that
// had no answer in time have left to enter. Once a lane is given up, that is the
// prober's, which tells how much it has entered.
func (l *lane) lookAround() {
	if !l.looking.CompareAndSwap(false, true) {
		return
	}
	l.fleet.spawn(func() {
		defer l.looking.Store(false)
		if l.lookInTime() == nil && !l.down.Load() && (l.forgotten() || l.owing.Load()) {
			_, _ = l.settle() // what is left over stays noted
		}
	})
}

// lookInTime is look within the time that a request would wait: a Redis that is
// slower than that is of no use.
func (l *lane) lookInTime() error {
	ctx, cancel := context.WithTimeout(l.fleet.ctx, l.fleet.o.Timeout)
	defer cancel()
	return l.look(ctx)
}

// look compares Redis's memory with what it was. It also finds out all that can
// keep a take from succeeding: a replica, memory that is full, a missing
// permission.
func (l *lane) look(ctx context.Context) error {
	f := l.fleet
	sent := f.clock()
	reply, err := f.client.EvalSha(ctx, f.sha, []string{l.marker}).Int64Slice()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = f.client.Eval(ctx, exactScript, []string{l.marker}).Int64Slice()
	}
	if err != nil {
		return fmt.Errorf("running the script: %w", err)
	}
	l.compare(reply, sent)
	return nil
}

// compare holds the marker, which is what the script's reply ends with, against
// what it was when last seen. It reports whether Redis has lost its memory since.
func (l *lane) compare(reply []int64, sent int64) (lost bool) {
	if len(reply) != 2 {
		return false
	}
	mark, age := reply[0], reply[1]
	now := l.fleet.clock()
	m := &l.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mark == mark {
		m.sure = max(m.sure, sent)
		return false
	}
	if sent < m.since {
		return false // it was asked before what is known
	}
	if lost = m.mark != 0; lost {
		// By the marker Redis remembers all from then on. Where its clock was
		// stepped meanwhile that is wrong, but never before it was last sure.
		m.lost = min(max(now-age, m.sure, 1), now+1)
		l.fleet.stats.losses.Add(1)
	}
	m.mark, m.since, m.sure = mark, now, sent
	return lost
}

// forgotten says whether there is a loss to settle.
func (l *lane) forgotten() bool {
	l.memory.mu.Lock()
	defer l.memory.mu.Unlock()
	return l.memory.lost != 0
}

// takeLoss takes over the settling of a loss: it tells when it was, 0 if there
// was none.
func (l *lane) takeLoss() (lost int64) {
	l.memory.mu.Lock()
	defer l.memory.mu.Unlock()
	lost, l.memory.lost = l.memory.lost, 0
	return lost
}
