// Package script runs the exact limiter's Lua script in Redis: many calls in one script run, each charging all of its buckets
// or none. The script's own comment has the format of a bucket and of the messages.
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

// Source is the script's text.
//
//go:embed exact.lua
var Source string

// MaxBuckets is how many buckets one Call may charge.
const MaxBuckets = 8

var (
	// ErrStale is the error of a call that came after a later one of the same writer. It has not charged anything, unless
	// it came earlier as well.
	ErrStale = errors.New("the call was overtaken by a later one")

	// ErrLost is the error of a call on a bucket of which Redis has lost what the writer knows to have been stored. Stored
	// has what is left. It has not charged anything.
	ErrLost = errors.New("redis has lost data")

	// errReply is a reply that the script cannot have written.
	errReply = errors.New("malformed reply of the rate limit script")
)

// Unsynced is requests of a writer that Redis may not have.
type Unsynced struct {
	Count int   // 1 to 65,535
	Age   int64 // microseconds
}

// Bucket is a bucket of a Call.
type Bucket struct {
	Key    string
	Limit  int
	Window int64 // microseconds

	// Writer is the gateway's window for this bucket, a random number of 40 bits.
	Writer uint64
	// Seq is the number of the writer's last request, Base one up to which Redis has all for certain. Unsynced are those
	// after Base that are still in the window, oldest first; at most 65,535 entries, and a window.Window has far fewer.
	Base, Seq uint64
	Unsynced  []Unsynced
}

// Reply is a bucket after the call.
type Reply struct {
	Remaining int
	Reset     int64  // microseconds until the oldest request leaves the window; the window if there is none
	Retry     int64  // microseconds until one more request fits; 0 if it does, or did
	Stored    uint64 // how many requests of the writer have been entered
}

// Call is a question to the script and its answer.
type Call struct {
	// Number is even, and higher than that of every earlier call on the same buckets.
	Number uint64
	// Charge enters one request into every bucket if it fits into all. Otherwise only unsynced requests are entered.
	Charge  bool
	N       int // buckets
	Buckets [MaxBuckets]Bucket

	Replies [MaxBuckets]Reply
	Err     error // ErrStale, ErrLost, or why there is no reply
	// NotRun says that the script has certainly not run. Otherwise a call with an error may have been charged.
	NotRun bool
}

// Weight estimates how much work a call is for the script, in requests.
func (c *Call) Weight() int {
	weight := 1
	for i := range c.N {
		weight += len(c.Buckets[i].Unsynced) / 4
	}
	return weight
}

// Runner runs the script. It may be used by one goroutine at a time.
type Runner struct {
	client  redis.UniversalClient
	each    bool // a Cluster's script has keys of one slot only
	source  string
	sha     string
	args    []any
	input   []byte
	batches [1]*Call
}

// NewRunner returns a Runner for a single server (also behind Sentinel) or, with each, for a Cluster.
func NewRunner(client redis.UniversalClient, each bool) *Runner {
	return &Runner{client: client, each: each, source: Source, sha: redis.NewScript(Source).Hash()}
}

// Run has the calls answered, in their order, in one round trip: by one run of the script, or, in a Cluster, by a pipeline of
// one run for each. Each call has a reply or an error afterwards.
func (r *Runner) Run(ctx context.Context, calls []*Call) {
	if r.each {
		r.runEach(ctx, calls)
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

// notRun reports whether an error means that a command has not been run: there was no connection, or Redis has refused it.
func notRun(err error) bool {
	var dial *net.OpError
	return err != nil && (errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || redis.HasErrorPrefix(err, ""))
}

// runEach is Run for a Cluster.
func (r *Runner) runEach(ctx context.Context, calls []*Call) {
	cmds := make([]*command, len(calls))
	send := func(name, script string, wanted func(*command) bool) {
		pipe := r.client.Pipeline()
		for i, c := range calls {
			if wanted(cmds[i]) {
				r.batches[0] = c
				r.args, r.input = nil, nil // the pipeline keeps them
				cmds[i] = r.command(ctx, name, script, r.batches[:])
				_ = pipe.Process(ctx, cmds[i]) // it only queues
			}
		}
		if pipe.Len() > 0 {
			_, _ = pipe.Exec(ctx) // each command has its own error
		}
	}
	send("evalsha", r.sha, func(*command) bool { return true })
	// A node was restarted, or another one has taken over.
	send("eval", r.source, func(cmd *command) bool { return redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") })
	for i, cmd := range cmds {
		r.batches[0] = calls[i]
		Read(r.batches[:], cmd.Val(), cmd.Err())
	}
	r.batches[0] = nil
}

// A command is one that the client does not send again when its fate is unknown, or when that takes long.
type command struct{ *redis.StringCmd }

// NoRetry implements redis.Cmder.
func (*command) NoRetry() bool { return true }

func (r *Runner) command(ctx context.Context, name, script string, calls []*Call) *command {
	r.args = append(r.args[:0], name, script, 0)
	r.input = r.input[:0]
	for _, c := range calls {
		for i := range c.N {
			r.args = append(r.args, c.Buckets[i].Key)
		}
		r.input = c.Append(r.input)
	}
	r.args[2] = len(r.args) - 3
	r.args = append(r.args, r.input)
	return &command{redis.NewStringCmd(ctx, r.args...)}
}

// Append appends the call in the script's format.
func (c *Call) Append(out []byte) []byte {
	charge := byte(0)
	if c.Charge {
		charge = 1
	}
	out = append(out, charge, byte(c.N)) //nolint:gosec // at most MaxBuckets
	out = appendUint(out, 6, c.Number)
	for i := range c.N {
		b := &c.Buckets[i]
		out = appendUint(out, 3, uint64(b.Limit))  //nolint:gosec // not negative
		out = appendUint(out, 5, uint64(b.Window)) //nolint:gosec // not negative
		out = appendUint(out, 5, b.Writer)
		out = appendUint(out, 6, b.Base)
		out = appendUint(out, 6, b.Seq)
		out = appendUint(out, 2, uint64(len(b.Unsynced)))
		for _, u := range b.Unsynced {
			out = appendUint(out, 2, uint64(u.Count)) //nolint:gosec // not negative
			out = appendUint(out, 5, uint64(u.Age))   //nolint:gosec // not negative
		}
	}
	return out
}

// appendUint appends the low bytes of v, big-endian.
func appendUint(out []byte, bytes int, v uint64) []byte {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], v)
	return append(out, raw[8-bytes:]...)
}

// replySize is the length of a bucket's reply.
const replySize = 1 + 3 + 5 + 5 + 6

// Read sets the replies and errors of calls from what the script returned, or from the error of the command.
func Read(calls []*Call, reply string, err error) {
	notRun := notRun(err)
	for _, c := range calls {
		c.Err, c.NotRun = err, notRun
		if err != nil {
			continue
		}
		size := c.N * replySize
		if len(reply) < size {
			c.Err = fmt.Errorf("%w: %d bytes missing", errReply, size-len(reply))
			continue
		}
		for i := range c.N {
			c.Err = errors.Join(c.Err, c.Replies[i].read(reply[i*replySize:]))
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
