package ratelimit

import (
	"context"
	crand "crypto/rand"
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

	memory  sync.Mutex // held to look at the marker
	mark    string
	looked  atomic.Int64 // when, by the Fleet's clock; 0: never
	looking atomic.Bool
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
	if looked := l.looked.Load(); looked == 0 || f.clock()-looked > f.o.ProbeInterval.Microseconds() {
		l.lookAround()
	}
	ctx, cancel := context.WithTimeout(f.ctx, f.o.Timeout)
	defer cancel()
	if f.cluster {
		l.askEach(ctx, batch)
		return args
	}
	args = append(args[:0], "evalsha", f.sha, nil)
	args = appendCalls(args, batch)
	cmd := redis.NewIntSliceCmd(ctx, args...)
	err := f.client.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		l.lookAround()
		args[0], args[1] = "eval", exactScript
		cmd = redis.NewIntSliceCmd(ctx, args...)
		err = f.client.Process(ctx, cmd)
	}
	reply := cmd.Val()
	for _, c := range batch {
		reply, c.err = c.read(reply, err)
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
				cmds[i] = redis.NewIntSliceCmd(ctx, appendCalls([]any{name, script, nil}, []*call{c})...)
				_ = pipe.Process(ctx, cmds[i]) // it only queues
			}
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
	}
	send("evalsha", f.sha, func(*redis.IntSliceCmd) bool { return true })
	missing := func(cmd *redis.IntSliceCmd) bool { return redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") }
	if slices.ContainsFunc(cmds, missing) {
		l.lookAround() //nolint:contextcheck // it goes on in the background
		send("eval", exactScript, missing)
	}
	for i, c := range batch {
		_, c.err = c.read(cmds[i].Val(), cmds[i].Err())
	}
}

// appendCalls appends the number of keys (in the place of the last argument),
// the keys and the arguments of the script.
func appendCalls(args []any, batch []*call) []any {
	count := len(args) - 1
	for _, c := range batch {
		for i := range c.n {
			args = append(args, c.keys[i])
		}
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
		lost, err := l.lookInTime()
		if err == nil {
			// Before anyone asks again Redis learns what it has missed.
			var n int
			n, err = l.settle(lost)
			if err == nil {
				done(nil)
				// What was admitted between the two.
				more, _ := l.settle(0)
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
// had no answer in time have left to enter. It is called about once in
// ProbeInterval while there is traffic, and at once when Redis does not know the
// script any more: then it was restarted, or a replica took over.
func (l *lane) lookAround() {
	if !l.looking.CompareAndSwap(false, true) {
		return
	}
	l.fleet.spawn(func() {
		defer l.looking.Store(false)
		lost, err := l.lookInTime()
		if err == nil && (lost != 0 || l.owing.Load()) {
			_, _ = l.settle(lost) // what is left over stays noted
		}
	})
}

// lookInTime is look within the time that a request would wait: a Redis that is
// slower than that is of no use.
func (l *lane) lookInTime() (lost int64, err error) {
	ctx, cancel := context.WithTimeout(l.fleet.ctx, l.fleet.o.Timeout)
	defer cancel()
	return l.look(ctx)
}

// look compares Redis's memory with what it was: a marker that the first gateway
// sets has gone, or is another, if Redis has come back empty. It tells when that
// was noticed, 0 if it was not. It also finds out all that can keep a take from
// succeeding: a replica, memory that is full, a missing permission.
func (l *lane) look(ctx context.Context) (lost int64, err error) {
	f := l.fleet
	l.memory.Lock()
	defer l.memory.Unlock()
	now := f.clock()

	pipe := f.client.Pipeline()
	set := pipe.SetNX(ctx, l.marker, crand.Text(), 0)
	get := pipe.Get(ctx, l.marker)
	run := pipe.EvalSha(ctx, f.sha, []string{l.marker})
	_, _ = pipe.Exec(ctx) // each command has its own error
	if err := run.Err(); redis.HasErrorPrefix(err, "NOSCRIPT") {
		if err := f.client.Eval(ctx, exactScript, []string{l.marker}).Err(); err != nil {
			return 0, fmt.Errorf("loading the script: %w", err)
		}
	} else if err != nil {
		return 0, fmt.Errorf("running the script: %w", err)
	}
	if err := set.Err(); err != nil {
		return 0, fmt.Errorf("setting the marker: %w", err)
	}
	mark, err := get.Result()
	if err != nil {
		return 0, fmt.Errorf("reading the marker: %w", err)
	}
	if l.mark != "" && l.mark != mark {
		lost = now
		f.stats.losses.Add(1)
	}
	l.mark = mark
	l.looked.Store(max(1, now))
	return lost, nil
}
