package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// Drain is a listener wrapper that keeps a reload, or a stop, from dropping connections that have just been made.
// net/http sends away without an answer whoever has been accepted by a server that is shut down before it has read the
// request (http.Server's Shutdown). So the listeners are closed first, which leaves new connections to those of the new
// configuration; those that were accepted before are given time for their first request; and then the server is shut
// down, as ever.
//
// What nobody has accepted is the kernel's: it goes over to the new listener if net.ipv4.tcp_migrate_req is 1, or stays
// where it is if the socket is one that Caddy was given (bind fd/3).
type Drain struct {
	// Wait bounds for how long a reload waits for the first requests. Default: 1s. Zero means the default.
	Wait caddy.Duration `json:"wait,omitempty"`

	logger *zap.Logger

	mu        sync.Mutex
	listeners []*drainListener
	// waiting counts connections that were accepted and of whose first request nothing is known yet.
	waiting atomic.Int64
	fresh   sync.Map // those of them, by net.Conn, that net/http knows
}

const (
	defaultDrainWait = time.Second

	// drainPoll is how often it is seen whether all first requests have come. net/http asks whether the server is shut
	// down a moment after it has said that a request has come: one poll more is that moment.
	drainPoll = 5 * time.Millisecond
)

// CaddyModule returns the Caddy module information.
func (*Drain) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "caddy.listeners.gatehouse_drain",
		New: func() caddy.Module { return new(Drain) },
	}
}

// Provision has the server tell of its connections, and Caddy of the end of the configuration.
func (h *Drain) Provision(ctx caddy.Context) error {
	if h.Wait == 0 {
		h.Wait = caddy.Duration(defaultDrainWait)
	}
	h.logger = ctx.Logger()
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok {
		return errors.New("gatehouse_drain is a listener wrapper of HTTP servers")
	}
	module, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("loading the events: %w", err)
	}
	events, ok := module.(*caddyevents.App)
	if !ok {
		return fmt.Errorf("loading the events: unexpected %T", module)
	}
	server.RegisterConnState(h.observe)
	if err := events.On("stopping", h); err != nil {
		return fmt.Errorf("subscribing to the end of the configuration: %w", err)
	}
	return nil
}

// Validate checks the bound.
func (h *Drain) Validate() error {
	if h.Wait < 0 {
		return errors.New("wait must not be negative")
	}
	return nil
}

// WrapListener implements caddy.ListenerWrapper.
func (h *Drain) WrapListener(inner net.Listener) net.Listener {
	l := &drainListener{
		Listener: inner, waiting: &h.waiting,
		retired: make(chan struct{}), drained: make(chan struct{}), closed: make(chan struct{}),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listeners = append(h.listeners, l)
	return l
}

// observe implements http.Server's ConnState.
func (h *Drain) observe(conn net.Conn, state http.ConnState) {
	if state == http.StateNew {
		h.fresh.Store(conn, struct{}{}) // it is among those waiting since it was accepted
		return
	}
	if _, was := h.fresh.LoadAndDelete(conn); was {
		h.waiting.Add(-1)
	}
}

// Handle implements caddyevents.Handler: the configuration ends, and what is to follow it is in force already. Its server
// is shut down after this.
func (h *Drain) Handle(ctx context.Context, _ caddy.Event) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(h.Wait))
	defer cancel()
	h.mu.Lock()
	listeners := h.listeners
	h.mu.Unlock()
	for _, l := range listeners {
		l.retire()
	}
	for _, l := range listeners {
		select {
		case <-l.drained:
		case <-ctx.Done():
		}
	}
	poll := time.NewTicker(drainPoll)
	defer poll.Stop()
	for quiet := false; ; {
		was := quiet
		if quiet = h.waiting.Load() <= 0; quiet && was {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			h.logger.Info("connections without a request are closed", zap.Int64("connections", h.waiting.Load()))
			return nil
		}
	}
}

// UnmarshalCaddyfile reads the listener wrapper. Syntax:
//
//	gatehouse_drain {
//	    wait <duration>
//	}
func (h *Drain) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the wrapper's name
	if d.CountRemainingArgs() > 0 {
		return d.Err("gatehouse_drain takes a block, and no argument")
	}
	return parseBlock(d, "gatehouse_drain", map[string]option{"wait": durationOption("wait", &h.Wait)}, []string{"wait"})
}

// drainListener can be closed for new connections before its server knows: Accept then waits for Close.
type drainListener struct {
	net.Listener
	waiting *atomic.Int64

	once     sync.Once
	closeErr error
	retired  chan struct{}
	drained  chan struct{} // no Accept can return a connection any more
	drain    sync.Once
	closed   chan struct{}
	end      sync.Once
}

// Accept implements net.Listener.
func (l *drainListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.waiting.Add(1)
		return conn, nil
	}
	select {
	case <-l.retired:
		l.drain.Do(func() { close(l.drained) })
		<-l.closed
	default:
	}
	return nil, err
}

// retire closes the listener for new connections.
func (l *drainListener) retire() {
	l.once.Do(func() {
		close(l.retired)
		l.closeErr = l.Listener.Close()
	})
}

// Close implements net.Listener.
func (l *drainListener) Close() error {
	l.end.Do(func() { close(l.closed) })
	l.retire()
	l.drain.Do(func() { close(l.drained) }) // nobody may be accepting
	return l.closeErr
}

// Interface guards
var (
	_ caddy.Provisioner     = (*Drain)(nil)
	_ caddy.Validator       = (*Drain)(nil)
	_ caddy.ListenerWrapper = (*Drain)(nil)
	_ caddyevents.Handler   = (*Drain)(nil)
	_ caddyfile.Unmarshaler = (*Drain)(nil)
)
