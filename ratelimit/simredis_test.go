package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/script"
)

// simRedis is a simulated Redis in virtual time, which runs the real script. Callers hold mu. No two events happen at the
// same time, so that a run depends only on its seed.
type simRedis struct {
	mu     sync.Mutex
	state  *lua.LState
	script *lua.LFunction
	data   map[string]simValue
	seed   uint64

	step   time.Duration       // of its clock
	down   bool                // refuses connections
	frozen chan struct{}       // closed on resume; nil while running
	saved  map[string]simValue // a snapshot
	slow   time.Duration       // average delay of replies
	lose   float64             // share of replies that are lost
	links  map[int]*simLink    // by gateway
	began  time.Time           // start of virtual time
}

// simLink is the network between a gateway and Redis.
type simLink struct {
	cut   bool // nothing arrives
	slow  time.Duration
	stall time.Duration // maximum delay between a reply and its processing
}

type simValue struct {
	value   string
	expires time.Time
}

// simClock is the start of Redis's clock, in microseconds since 1970.
const simClock = int64(1_795_000_000_000_000)

func newSimRedis(seed uint64) *simRedis {
	r := &simRedis{
		state: lua.NewState(lua.Options{SkipOpenLibs: true, RegistrySize: 1024, CallStackSize: 16}), seed: seed, began: time.Now(),
		data: make(map[string]simValue), saved: make(map[string]simValue), links: make(map[int]*simLink),
	}
	l := r.state
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenString, lua.OpenMath, lua.OpenTable} {
		l.Push(l.NewFunction(open))
		l.Call(0, 0)
	}
	l.SetGlobal("redis", l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{"call": r.command, "pcall": r.command}))
	l.SetGlobal("struct", l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{"pack": simPack, "unpack": simUnpack}))
	r.script = l.NewFunctionFromProto(compiled())
	return r
}

// compiled returns the script, which is compiled only once.
var compiled = sync.OnceValue(func() *lua.FunctionProto {
	chunk, err := parse.Parse(strings.NewReader(script.Source), "exact.lua")
	if err == nil {
		var proto *lua.FunctionProto
		if proto, err = lua.Compile(chunk, "exact.lua"); err == nil {
			return proto
		}
	}
	panic(err)
})

// now returns the time of Redis's clock.
func (r *simRedis) now() int64 { return simClock + (time.Since(r.began) + r.step).Microseconds() }

// command implements redis.call for the commands that the script uses.
func (r *simRedis) command(l *lua.LState) int {
	key := ""
	if l.GetTop() > 1 {
		key = l.CheckString(2)
	}
	switch name := l.CheckString(1); name {
	case "TIME":
		t := l.NewTable()
		us := r.now()
		t.Append(lua.LString(fmt.Sprint(us / 1_000_000)))
		t.Append(lua.LString(fmt.Sprint(us % 1_000_000)))
		l.Push(t)
	case "GET":
		v, ok := r.data[key]
		if !ok || time.Now().Add(r.step).After(v.expires) {
			delete(r.data, key)
			l.Push(lua.LFalse)
			break
		}
		l.Push(lua.LString(v.value))
	case "SET":
		value := l.CheckString(3)
		if v, ok := r.data[key]; ok && l.GetTop() > 5 && !time.Now().Add(r.step).After(v.expires) { // NX
			l.Push(lua.LFalse)
			break
		}
		r.data[key] = simValue{value, time.Now().Add(r.step + time.Duration(l.CheckInt64(5))*time.Millisecond)}
		l.Push(lua.LTrue)
	default:
		l.RaiseError("unknown command %s", name)
	}
	return 1
}

// simSizes returns the field sizes of a struct format.
func simSizes(format string, buf []int) []int {
	for _, part := range strings.Split(format, "I")[1:] {
		buf = append(buf, int(part[0]-'0'))
	}
	return buf
}

// simUint decodes a big-endian integer.
func simUint(s string) (v uint64) {
	for _, b := range []byte(s) {
		v = v<<8 | uint64(b)
	}
	return v
}

func simUnpack(l *lua.LState) int {
	var stack [8]int
	data, pos := l.CheckString(2), l.OptInt(3, 1)-1
	n := 0
	for _, size := range simSizes(l.CheckString(1), stack[:0]) {
		l.Push(lua.LNumber(simUint(data[pos : pos+size])))
		pos += size
		n++
	}
	l.Push(lua.LNumber(pos + 1))
	return n + 1
}

func simPack(l *lua.LState) int {
	var stack [8]int
	var out []byte
	for i, size := range simSizes(l.CheckString(1), stack[:0]) {
		v := uint64(l.CheckNumber(2 + i))
		for s := size - 1; s >= 0; s-- {
			out = append(out, byte(v>>(8*s)))
		}
	}
	l.Push(lua.LString(out))
	return 1
}

// run runs the script.
func (r *simRedis) run(calls []*script.Call) (reply string) {
	l := r.state
	keys, argv := l.NewTable(), l.NewTable()
	var input []byte
	for _, c := range calls {
		for i := range c.N {
			keys.Append(lua.LString(c.Counters[i].Key))
		}
		if c.Mark != "" {
			keys.Append(lua.LString(c.Mark))
		}
		input = c.Append(input)
	}
	argv.Append(lua.LString(input))
	l.SetGlobal("KEYS", keys)
	l.SetGlobal("ARGV", argv)
	l.Push(r.script)
	if err := l.PCall(0, 1, nil); err != nil {
		panic(err) // a bug in the script
	}
	reply = lua.LVAsString(l.Get(-1))
	l.Pop(1)
	return reply
}

// stored returns how many requests of a writer the counter contains.
func (r *simRedis) stored(key string, writer uint64) (n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.data[key]
	if time.Now().Add(r.step).After(v.expires) {
		return 0
	}
	const header, size = 29, 24
	for i := range int(simUint(v.value[header-2 : header])) {
		if w := v.value[header+i*size:]; simUint(w[:5]) == writer {
			return simUint(w[5:11])
		}
	}
	return 0
}

// simRunner is a gateway's connection to a simRedis, or to several that share the keys.
type simRunner struct {
	gateway int
	node    func(key string) *simRedis
	one     bool // all keys are on one node
}

var errCut = errors.New("no route to Redis")

// Run implements runner.
func (c *simRunner) Run(ctx context.Context, calls []*script.Call) {
	if c.one {
		c.node("").serve(ctx, c.gateway, calls)
		return
	}
	byNode := make(map[*simRedis][]*script.Call)
	for _, call := range calls {
		node := c.node(call.Counters[0].Key)
		byNode[node] = append(byNode[node], call)
	}
	var work sync.WaitGroup
	for node, some := range byNode {
		work.Go(func() { node.serve(ctx, c.gateway, some) })
	}
	work.Wait()
}

// serve handles one round trip.
func (r *simRedis) serve(ctx context.Context, gateway int, calls []*script.Call) {
	// Delays depend on the calls and the time, but not on the order of simultaneous events.
	hash := fnv.New64a()
	first := slices.MinFunc(calls, func(a, b *script.Call) int { return cmp.Compare(a.Counters[0].Key, b.Counters[0].Key) })
	fmt.Fprint(hash, gateway, first.Count, first.Counters[0].Key, time.Since(r.began))
	random := rand.New(rand.NewPCG(r.seed, hash.Sum64()))
	delay := func(d time.Duration) time.Duration {
		return 20*time.Microsecond + time.Duration(random.Int64N(int64(time.Millisecond))) + time.Duration(random.ExpFloat64()*float64(d))
	}
	r.mu.Lock()
	link := *r.links[gateway]
	there, back, down := delay(link.slow/2), delay(r.slow+link.slow/2), r.down
	thaw := time.Duration(random.Int64N(int64(time.Millisecond)))
	lost, again := random.Float64() < r.lose, random.IntN(2) == 0
	r.mu.Unlock()
	if link.stall > 0 {
		pause := time.Duration(random.Int64N(int64(link.stall)))
		defer func() { <-time.After(pause) }()
	}
	if down {
		for _, c := range calls {
			c.Err, c.NotRun = &net.OpError{Op: "dial", Err: errCut}, true
		}
		return
	}
	if link.cut || ctx.Err() != nil {
		<-ctx.Done()
		script.Read(calls, "", ctx.Err())
		return
	}
	// Redis runs the calls even if the caller gives up, so it needs copies: the caller may reuse its own.
	copies := make([]*script.Call, len(calls))
	for i, call := range calls {
		c := *call
		for j := range c.N {
			c.Counters[j].Unsynced = append([]script.Unsynced(nil), c.Counters[j].Unsynced...)
		}
		copies[i] = &c
	}
	replies := make(chan string, 1)
	go func() {
		<-time.After(there)
		r.mu.Lock()
		defer r.mu.Unlock()
		for r.frozen != nil {
			frozen := r.frozen
			r.mu.Unlock()
			<-frozen
			<-time.After(thaw) // in random order
			r.mu.Lock()
		}
		if r.down {
			return
		}
		reply := r.run(copies)
		if lost {
			if !again {
				return
			}
			r.mu.Unlock()
			<-time.After(back)
			r.mu.Lock()
			if r.down {
				return
			}
			reply = r.run(copies)
		}
		time.AfterFunc(back, func() { replies <- reply })
	}()
	select {
	case reply := <-replies:
		script.Read(calls, reply, nil)
	case <-ctx.Done():
		script.Read(calls, "", ctx.Err())
	}
}
