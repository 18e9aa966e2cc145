// Package script runs the exact limiter's Lua script in Redis. One script run handles many calls, each of which is counted
// in all of its counters or in none. The comment in exact.lua describes the format of counters and messages.
package script

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"
)

// Source is the text of the script.
//
//go:embed exact.lua
var Source string

const (
	// MaxCounters is the maximum number of counters of a Call.
	MaxCounters = 8

	// IDSize is the length of the ID of a request, in bytes.
	IDSize = 16
)

var (
	// ErrStale is returned for a call that Redis ran after a later call of the same writer. It was not counted, unless Redis
	// ran it earlier as well.
	ErrStale = errors.New("rate limit call was run after a later one")

	// ErrLost is returned for a call on a counter that lacks requests which the writer knows were stored. It was not counted.
	// Reply.Stored says what is left.
	ErrLost = errors.New("redis has lost data")

	// errReply is returned for a reply that the script cannot have written.
	errReply = errors.New("malformed reply from the rate limit script")
)

// Unsynced is a number of requests of a writer that Redis may not have.
type Unsynced struct {
	Count int   // 1 to 65,535
	Age   int64 // microseconds
}

// Counter is one counter of a Call.
type Counter struct {
	Key    string
	Limit  int
	Window int64 // microseconds

	// Writer identifies the gateway's local window for this counter: a random number of 40 bits.
	Writer uint64
	// Seq is the number of the writer's last request. All requests up to number Confirmed are known to be stored. Unsynced are
	// the later ones that are still in the window, oldest first: at most 65,535 entries; a window.Window has far fewer.
	Confirmed, Seq uint64
	Unsynced       []Unsynced
}

// Reply is the state of a counter after a call.
type Reply struct {
	Remaining int
	Reset     int64  // microseconds until the oldest request expires; the window if there is none
	Retry     int64  // microseconds until another request fits; 0 if this one was counted or would fit
	Stored    uint64 // number of the writer's last stored request
}

// Call is a request to the script and its reply.
type Call struct {
	// Number is even and greater than that of every earlier call on the same counters.
	Number uint64
	// Count counts one request in every counter if it fits into all of them. Without it, only unsynced requests are added.
	Count    bool
	N        int // number of counters
	Counters [MaxCounters]Counter

	// Mark is the key that is set to ID when the request is accepted, so that no other request with this Mark is. It expires at Until, a
	// Unix time in seconds, by Redis's clock, and from a second before, no request is accepted.
	// Default: the request may be accepted again and again.
	Mark  string
	ID    [IDSize]byte
	Until int64

	Replies [MaxCounters]Reply
	// Accepted is the ID of the request that was accepted with Mark: this one's, or that of an earlier one; zero after Until. It is
	// meaningful only if Err is nil and the request was allowed.
	Accepted [IDSize]byte
	Err      error // ErrStale, ErrLost, or the reason for the missing reply
	// NotRun is true if the script certainly did not run. Otherwise a call with an error may have been counted.
	NotRun bool
}

// Weight estimates the script's work for the call, in units of one request.
func (c *Call) Weight() int {
	weight := 1
	for i := range c.N {
		weight += len(c.Counters[i].Unsynced) / 4
	}
	return weight
}

// Runner runs the script. It is not safe for concurrent use.
type Runner struct {
	client  redis.UniversalClient
	perCall bool // in a Cluster, the keys of a script must be in one slot
	source  string
	sha     string
	args    []any
	input   []byte
	single  [1]*Call
}

// NewRunner returns a Runner. With perCall, which a Cluster needs, each call is a script run of its own.
func NewRunner(client redis.UniversalClient, perCall bool) *Runner {
	return &Runner{client: client, perCall: perCall, source: Source, sha: redis.NewScript(Source).Hash()}
}

// Run sends calls to Redis in one round trip and sets their Replies or Err. Redis handles them in order: in one script run,
// or with perCall in a pipeline.
func (r *Runner) Run(ctx context.Context, calls []*Call) {
	if r.perCall {
		r.runPerCall(ctx, calls)
		return
	}
	cmd := r.command(ctx, "evalsha", r.sha, calls)
	err := r.client.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = r.command(ctx, "eval", r.source, calls)
		err = r.client.Process(ctx, cmd)
	}
	clear(r.args)
	Read(calls, cmd.Val(), err)
}

// notRun reports whether err means that Redis did not run the command: there was no connection, or Redis replied with an
// error.
func notRun(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || err != nil && redis.HasErrorPrefix(err, "")
}

// runPerCall is Run for a Cluster.
func (r *Runner) runPerCall(ctx context.Context, calls []*Call) {
	cmds := make([]*command, len(calls))
	send := func(name, script string, wanted func(*command) bool) {
		pipe := r.client.Pipeline()
		for i, c := range calls {
			if wanted(cmds[i]) {
				r.single[0] = c
				r.args, r.input = nil, nil // the pipeline retains them
				cmds[i] = r.command(ctx, name, script, r.single[:])
				_ = pipe.Process(ctx, cmds[i]) // only queues the command
			}
		}
		if pipe.Len() > 0 {
			_, _ = pipe.Exec(ctx) // every command has its own error
		}
	}
	send("evalsha", r.sha, func(*command) bool { return true })
	// A node was restarted or replaced.
	send("eval", r.source, func(cmd *command) bool { return redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") })
	for i, cmd := range cmds {
		r.single[0] = calls[i]
		Read(r.single[:], cmd.Val(), cmd.Err())
	}
	r.single[0] = nil
}

// command is a Redis command that the client never retries: it may have been run already, and the request cannot wait.
type command struct{ *redis.StringCmd }

// NoRetry implements redis.Cmder.
func (*command) NoRetry() bool { return true }

func (r *Runner) command(ctx context.Context, name, script string, calls []*Call) *command {
	r.args = append(r.args[:0], name, script, 0)
	r.input = r.input[:0]
	for _, c := range calls {
		for i := range c.N {
			r.args = append(r.args, c.Counters[i].Key)
		}
		if c.Mark != "" {
			r.args = append(r.args, c.Mark)
		}
		r.input = c.Append(r.input)
	}
	r.args[2] = len(r.args) - 3
	r.args = append(r.args, r.input)
	return &command{redis.NewStringCmd(ctx, r.args...)}
}

// Append appends the call in the script's format to out.
func (c *Call) Append(out []byte) []byte {
	flags := byte(0)
	if c.Count {
		flags |= 1
	}
	if c.Mark != "" {
		flags |= 2
	}
	out = append(out, flags, byte(c.N)) //nolint:gosec // at most MaxCounters
	out = appendUint(out, 6, c.Number)
	if c.Mark != "" {
		out = append(out, c.ID[:]...)
		out = appendUint(out, 5, uint64(max(c.Until, 0)))
	}
	for i := range c.N {
		b := &c.Counters[i]
		out = appendUint(out, 3, uint64(b.Limit))  //nolint:gosec // not negative
		out = appendUint(out, 5, uint64(b.Window)) //nolint:gosec // not negative
		out = appendUint(out, 5, b.Writer)
		out = appendUint(out, 6, b.Confirmed)
		out = appendUint(out, 6, b.Seq)
		out = appendUint(out, 2, uint64(len(b.Unsynced)))
		for _, u := range b.Unsynced {
			out = appendUint(out, 2, uint64(u.Count)) //nolint:gosec // not negative
			out = appendUint(out, 5, uint64(u.Age))   //nolint:gosec // not negative
		}
	}
	return out
}

// appendUint appends the low n bytes of v in big-endian order.
func appendUint(out []byte, n int, v uint64) []byte {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], v)
	return append(out, raw[8-n:]...)
}

// replySize is the length of one counter's reply.
const replySize = 1 + 3 + 5 + 5 + 6

// Read sets the Replies and Err of calls from the script's reply, or from the command's error.
func Read(calls []*Call, reply string, err error) {
	notRun := notRun(err)
	for _, c := range calls {
		c.Err, c.NotRun = err, notRun
		if err != nil {
			continue
		}
		size := c.N * replySize
		if c.Mark != "" {
			size += IDSize
		}
		if len(reply) < size {
			c.Err = fmt.Errorf("%w: %d bytes missing", errReply, size-len(reply))
			continue
		}
		for i := range c.N {
			c.Err = errors.Join(c.Err, c.Replies[i].read(reply[i*replySize:]))
		}
		if c.Mark != "" {
			copy(c.Accepted[:], reply[size-IDSize:])
		}
		reply = reply[size:]
	}
}

func (r *Reply) read(s string) error {
	r.Remaining = int(readUint(s[1:4])) //nolint:gosec // 3 bytes
	r.Reset = int64(readUint(s[4:9]))   //nolint:gosec // 5 bytes
	r.Retry = int64(readUint(s[9:14]))  //nolint:gosec // 5 bytes
	r.Stored = readUint(s[14:20])
	switch s[0] {
	case 0:
		return nil
	case 1:
		return ErrLost
	case 2:
		return ErrStale
	default:
		return fmt.Errorf("%w: status %d", errReply, s[0])
	}
}

func readUint(s string) (v uint64) {
	for i := range len(s) {
		v = v<<8 | uint64(s[i])
	}
	return v
}
