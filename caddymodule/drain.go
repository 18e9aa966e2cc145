package caddymodule

import (
	"cmp"
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

// Drain is a listener wrapper that keeps a reload or a stop from dropping new connections. http.Server.Shutdown closes
// accepted connections whose first request has not been read. So Drain first closes the listeners, which leaves new
// connections to the listeners of the new configuration; then waits for the first request on each accepted connection; and
// then lets Caddy shut the server down.
//
// Connections that were not accepted yet move to the new listener if the sysctl net.ipv4.tcp_migrate_req is 1, or stay in the
// queue if Caddy inherited the socket (bind fd/3).
type Drain struct {
	// Wait limits how long a reload waits for first requests. Default: 1s. Zero means the default.
	Wait caddy.Duration `json:"wait,omitempty"`

	logger *zap.Logger

	mu        sync.Mutex
	listeners []*drainListener
	// waiting counts accepted connections whose first request has not begun.
	waiting  atomic.Int64
	newConns sync.Map // the connections in http.StateNew, by net.Conn
}

const (
	drainName = "gatehouse_drain"

	defaultDrainWait = time.Second

	// drainPoll is the interval of the checks whether connections are waiting. Two checks in a row must find none, because
	// net/http reports that a request has begun shortly before it checks whether the server is shut down.
	drainPoll = 5 * time.Millisecond
)

// CaddyModule returns the Caddy module information.
func (*Drain) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "caddy.listeners." + drainName,
		New: func() caddy.Module { return new(Drain) },
	}
}

// Provision subscribes to the server's connection states and to the event that the configuration stops.
func (w *Drain) Provision(ctx caddy.Context) error {
	w.Wait = cmp.Or(w.Wait, caddy.Duration(defaultDrainWait))
	w.logger = ctx.Logger()
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok {
		return errors.New("gatehouse_drain must be a listener wrapper of an HTTP server")
	}
	module, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("loading the events app: %w", err)
	}
	events, ok := module.(*caddyevents.App)
	if !ok {
		return fmt.Errorf("loading the events app: unexpected type %T", module)
	}
	server.RegisterConnState(w.observe)
	if err := events.On("stopping", w); err != nil {
		return fmt.Errorf("subscribing to the event stopping: %w", err)
	}
	return nil
}

// Validate implements caddy.Validator.
func (w *Drain) Validate() error {
	if w.Wait < 0 {
		return errors.New("wait must not be negative")
	}
	return nil
}

// WrapListener implements caddy.ListenerWrapper.
func (w *Drain) WrapListener(inner net.Listener) net.Listener {
	l := &drainListener{Listener: inner, waiting: &w.waiting, acceptDone: make(chan struct{}), closed: make(chan struct{})}
	l.endAccept = sync.OnceFunc(func() { close(l.acceptDone) })
	l.stopAccepting = sync.OnceValue(func() error {
		l.stopped.Store(true)
		return inner.Close()
	})
	l.close = sync.OnceValue(func() error {
		close(l.closed)
		defer l.endAccept() // there may be no call of Accept to do it
		return l.stopAccepting()
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listeners = append(w.listeners, l)
	return l
}

// observe implements http.Server's ConnState.
func (w *Drain) observe(conn net.Conn, state http.ConnState) {
	if state == http.StateNew {
		w.newConns.Store(conn, struct{}{}) // Accept has counted it
		return
	}
	if _, ok := w.newConns.LoadAndDelete(conn); ok {
		w.waiting.Add(-1)
	}
}

// Handle implements caddyevents.Handler. The new configuration is running already; Caddy shuts the old server down after this.
// With the option shutdown_delay, Caddy accepts connections for some time after this if it closes a listener for good, and so does Drain.
func (w *Drain) Handle(ctx context.Context, _ caddy.Event) error {
	if app := httpApp(ctx); app != nil && app.ShutdownDelay > 0 {
		if closesListener(app) {
			return nil
		}
		app.ShutdownDelay = 0 // otherwise, Caddy would wait: it takes listeners that Drain has closed for those that are removed
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(w.Wait))
	defer cancel()
	w.mu.Lock()
	listeners := w.listeners
	w.mu.Unlock()
	for _, l := range listeners {
		_ = l.stopAccepting() // Close returns the error
	}
	for _, l := range listeners {
		select {
		case <-l.acceptDone:
		case <-ctx.Done():
		}
	}
	poll := time.NewTicker(drainPoll)
	defer poll.Stop()
	for idle := false; ; {
		wasIdle := idle
		if idle = w.waiting.Load() <= 0; idle && wasIdle {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			w.logger.Info("closing connections without a request", zap.Int64("connections", w.waiting.Load()))
			return nil
		}
	}
}

// httpApp returns Caddy's HTTP app, or nil. ctx is the context of an event.
func httpApp(ctx context.Context) *caddyhttp.App {
	c, ok := ctx.(caddy.Context)
	if !ok {
		return nil
	}
	mod, err := c.AppIfConfigured("http")
	if app, ok := mod.(*caddyhttp.App); err == nil && ok {
		return app
	}
	return nil
}

// closesListener reports whether the process ends, or the new configuration lacks an address of the app.
func closesListener(app *caddyhttp.App) bool {
	for _, server := range app.Servers {
		for _, listen := range server.Listen {
			addresses, err := caddy.ParseNetworkAddress(listen)
			if err != nil {
				return true // cannot happen: the server has been started
			}
			for _, address := range addresses.Expand() {
				if caddy.ListenerUsage(address.Network, address.JoinHostPort(0)) < 2 {
					return true
				}
			}
		}
	}
	return caddy.Exiting()
}

// UnmarshalCaddyfile parses the listener wrapper. Syntax:
//
//	gatehouse_drain {
//	    wait <duration>
//	}
func (w *Drain) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the wrapper's name
	return block(drainName, duration("wait", &w.Wait)).parse(d)
}

// drainListener can stop accepting connections before its server is shut down: Accept then blocks until Close.
type drainListener struct {
	net.Listener
	waiting    *atomic.Int64
	stopped    atomic.Bool   // stopAccepting has been called
	acceptDone chan struct{} // closed when Accept cannot return a connection any more
	closed     chan struct{} // closed by Close

	endAccept            func() // closes acceptDone
	stopAccepting, close func() error
}

// Accept implements net.Listener.
func (l *drainListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.waiting.Add(1)
		return conn, nil
	}
	if l.stopped.Load() {
		l.endAccept()
		<-l.closed
	}
	return nil, err
}

// Close implements net.Listener.
func (l *drainListener) Close() error { return l.close() }

// Interface guards
var (
	_ caddy.Provisioner     = (*Drain)(nil)
	_ caddy.Validator       = (*Drain)(nil)
	_ caddy.ListenerWrapper = (*Drain)(nil)
	_ caddyevents.Handler   = (*Drain)(nil)
	_ caddyfile.Unmarshaler = (*Drain)(nil)
)
