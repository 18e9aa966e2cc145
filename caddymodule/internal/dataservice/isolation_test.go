package dataservice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/gatehouse-gateway/gatehouse/internal/test/dnstest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// patience limits waiting for a condition on a slow machine.
const patience = time.Minute

// services starts data services with one handler, over TLS if it is secure, and returns the upstream of them.
func services(t *testing.T, n int, secure bool, handler http.HandlerFunc, options string) string {
	t.Helper()
	var upstreams []string
	for range n {
		srv := httptest.NewUnstartedServer(handler)
		if secure {
			srv.StartTLS()
		} else {
			srv.Start()
		}
		t.Cleanup(srv.Close)
		upstreams = append(upstreams, `{"dial":"`+srv.Listener.Addr().String()+`"}`)
	}
	transport := `"transport":{"protocol":"http"}`
	if secure {
		transport = `"transport":{"protocol":"http","tls":{"insecure_skip_verify":true}}`
	}
	return `{"handler":"reverse_proxy","upstreams":[` + strings.Join(upstreams, ",") + `],` + transport + options + `}`
}

// wires runs a test over cleartext and over TLS. Caddy can provision one configuration at a time, so they are not parallel.
func wires(t *testing.T, test func(t *testing.T, secure bool)) {
	t.Helper()
	t.Run("plain", func(t *testing.T) { test(t, false) })
	t.Run("TLS", func(t *testing.T) { test(t, true) })
}

// callOf returns a call of a business.
func callOf(business, path string, timeout time.Duration) upstream.Call {
	c := call()
	c.BusinessID, c.Share, c.Path, c.Deadline = business, business, path, time.Now().Add(timeout)
	return c
}

func do(t *testing.T, s *Service, c upstream.Call) error {
	t.Helper()
	res, err := s.Do(t.Context(), c)
	if err == nil {
		res.Release()
	}
	return err
}

// A business whose requests are slow must not make the addresses fail for all others.
func TestSlowRequestsOfOneBusinessFailNoAddress(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		ch := make(chan struct{})
		t.Cleanup(func() { close(ch) })
		s := loaded(t, services(t, 2, secure, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				select {
				case <-ch:
				case <-r.Context().Done():
				}
			}
		}, `,"load_balancing":{"selection_policy":{"policy":"round_robin"},"retries":0}`))
		t.Run("while others succeed", func(t *testing.T) {
			var slow sync.WaitGroup
			for range 4 {
				slow.Go(func() { assert.Error(t, do(t, s, callOf("slow", "/slow", 5*time.Second))) }) // all at once, also on a busy machine
			}
			require.Eventually(t, func() bool { _, inUse := s.Connections(); return inUse == 4 }, patience, time.Millisecond)
			for range 4 {
				require.NoError(t, do(t, s, callOf("other", "/fast", patience)))
			}
			slow.Wait()
			for _, b := range s.static {
				assert.Zero(t, b.fails.Load())
			}
		})
		t.Run("alone", func(t *testing.T) {
			for range 2 {
				require.Error(t, do(t, s, callOf("slow", "/slow", 50*time.Millisecond)))
			}
			for _, b := range s.static {
				require.Positive(t, b.fails.Load(), "a dead address would look the same")
			}
			for range 4 {
				require.NoError(t, do(t, s, callOf("other", "/fast", patience)), "the least bad address is used")
			}
		})
	})
}

func TestDeadAddressIsAvoided(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0") // accepts nothing
	require.NoError(t, err)
	t.Cleanup(func() { _ = dead.Close() })
	handler := services(t, 1, false, func(http.ResponseWriter, *http.Request) {}, `,"load_balancing":{"selection_policy":{"policy":"first"},"retries":0},
		"health_checks":{"passive":{"fail_duration":"1h"}}`)
	s := loaded(t, strings.Replace(handler, `[{`, `[{"dial":"`+dead.Addr().String()+`"},{`, 1))
	core, logged := observer.New(zap.WarnLevel)
	s.logger = zap.New(core)
	require.Error(t, do(t, s, callOf("b", "/", 50*time.Millisecond)))
	for range 3 {
		require.NoError(t, do(t, s, callOf("b", "/", patience)))
	}
	require.Equal(t, 1, logged.Len())
	require.Equal(t, dead.Addr().String(), logged.All()[0].ContextMap()["upstream_address"])
	available, avoided := s.Availability()
	require.Equal(t, []int{1, 1}, []int{available, avoided})
}

// Requests that fail at one address must not make all go to another one that is down.
func TestDeadAddressIsNotTriedTwiceBecauseAnotherHasMoreFailures(t *testing.T) {
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, dead.Close())
	handler := services(t, 1, false, func(http.ResponseWriter, *http.Request) {}, `,"load_balancing":{"selection_policy":{"policy":"first"},"retries":1},
		"health_checks":{"passive":{"fail_duration":"1h"}}`)
	s := loaded(t, strings.Replace(handler, `[{`, `[{"dial":"`+dead.Addr().String()+`"},{`, 1))
	s.static[1].fails.Store(9)
	for range 3 {
		require.NoError(t, do(t, s, callOf("b", "/", patience)))
	}
}

// nameServer is a DNS server that has the address 127.0.0.1 for all names.
type nameServer struct {
	address string
	silent  atomic.Bool   // it does not respond
	rcode   atomic.Uint32 // an error, which it returns instead of the address
	queries atomic.Int64
}

func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	s := new(nameServer)
	s.address = dnstest.Start(t, func(m *dnsmessage.Message) bool {
		s.queries.Add(1)
		if m.RCode = dnsmessage.RCode(s.rcode.Load()); m.RCode == dnsmessage.RCodeSuccess {
			dnstest.Answer(m, [4]byte{127, 0, 0, 1})
		}
		return !s.silent.Load()
	})
	return s
}

// lookedUp starts a data service, and returns it with a name that dns looks up.
func lookedUp(t *testing.T, dns *nameServer, name string) (*Service, *observer.ObservedLogs) {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(service.Close)
	_, port, err := net.SplitHostPort(service.Listener.Addr().String())
	require.NoError(t, err)
	s := loaded(t, `{"handler":"reverse_proxy","dynamic_upstreams":{"source":"a","name":"`+name+`.","port":"`+port+`","versions":{"ipv4":true},
		"refresh":"1ms","resolver":{"addresses":["`+dns.address+`"]}}}`)
	core, logged := observer.New(zap.InfoLevel)
	s.logger, s.lookupTimeout = zap.New(core), 2*time.Second // otherwise, it depends on this machine's resolv.conf
	return s, logged
}

// Caddy looks up the addresses of all services one after the other, and knows no deadline.
func TestSilentDNSHoldsNoCallsAndTakesAwayNoAddresses(t *testing.T) {
	dns := newNameServer(t)
	known, logged := lookedUp(t, dns, "known.test")
	unknown, _ := lookedUp(t, dns, "unknown.test")
	require.NoError(t, do(t, known, callOf("b", "/", patience)))
	dns.silent.Store(true)
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() { assert.NoError(t, do(t, known, callOf("b", "/", 5*time.Second))) })
		calls.Go(func() {
			start := time.Now()
			err := do(t, unknown, callOf("b", "/", 500*time.Millisecond))
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.True(t, Unsent(err))
			assert.Less(t, time.Since(start), 4*time.Second)
		})
	}
	calls.Wait()
	ctx, leave := context.WithCancel(t.Context())
	leave()
	_, err := unknown.Do(ctx, callOf("b", "/", patience))
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, Unsent(err))
	require.Eventually(t, func() bool { return logged.Len() == 1 }, patience, time.Millisecond)
	start := time.Now()
	for range 20 {
		require.NoError(t, do(t, known, callOf("b", "/", patience)))
	}
	require.Less(t, time.Since(start), 5*time.Second, "calls do not wait for lookups after one that failed")
	dns.silent.Store(false)
	require.Eventually(t, func() bool { return do(t, unknown, callOf("b", "/", patience)) == nil }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return do(t, known, callOf("b", "/", patience)) == nil && logged.Len() == 2 }, patience, time.Millisecond)
}

// Another service may have the addresses of one that was removed.
func TestAddressesOfANameThatNoLongerExistsAreNotUsed(t *testing.T) {
	dns := newNameServer(t)
	s, logged := lookedUp(t, dns, "removed.test")
	require.NoError(t, do(t, s, callOf("b", "/", patience)))
	dns.rcode.Store(uint32(dnsmessage.RCodeNameError))
	require.Eventually(t, func() bool { return errors.Is(do(t, s, callOf("b", "/", patience)), ErrUnreachable) }, patience, time.Millisecond)
	require.ErrorIs(t, do(t, s, callOf("b", "/", patience)), ErrUnreachable)
	require.Equal(t, 1, logged.Len())
	dns.rcode.Store(uint32(dnsmessage.RCodeSuccess))
	require.NoError(t, do(t, s, callOf("b", "/", patience)))
}

func TestDNSThatRefusesIsNotAskedForEachCall(t *testing.T) {
	dns := newNameServer(t)
	s, logged := lookedUp(t, dns, "refused.test")
	require.NoError(t, do(t, s, callOf("b", "/", patience)))
	dns.rcode.Store(uint32(dnsmessage.RCodeRefused))
	before := dns.queries.Load()
	require.Eventually(t, func() bool { return do(t, s, callOf("b", "/", patience)) == nil && logged.Len() == 1 }, patience, time.Millisecond)
	queries, start := dns.queries.Load()-before, time.Now() // of one lookup: it depends on this machine's resolv.conf
	for range 1000 {
		require.NoError(t, do(t, s, callOf("b", "/", patience)))
	}
	lookups := 1 + int64(time.Since(start)/slowLookup)
	require.LessOrEqual(t, dns.queries.Load()-before, queries*(1+lookups))
}

func TestClientThatLeavesFailsNoAddress(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		arrived := make(chan struct{}, 1)
		s := loaded(t, services(t, 2, secure, func(_ http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			<-r.Context().Done()
		}, ""))
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := s.Do(ctx, callOf("b", "/", patience))
			failed <- err
		}()
		<-arrived
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		for _, b := range s.static {
			assert.Zero(t, b.fails.Load())
		}
	})
}

func TestWaitingForAConnectionFailsNoAddress(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		stop, arrived := make(chan struct{}), make(chan struct{}, 2)
		s := loaded(t, strings.Replace(services(t, 2, secure, func(http.ResponseWriter, *http.Request) {
			arrived <- struct{}{}
			<-stop
		}, `,"load_balancing":{"selection_policy":{"policy":"round_robin"},"retries":0}`),
			`"protocol":"http"`, `"protocol":"http","max_conns_per_host":1`, 1))
		var slow sync.WaitGroup
		for range 2 {
			slow.Go(func() { assert.NoError(t, do(t, s, callOf("slow", "/", patience))) })
			<-arrived
		}
		for range 2 {
			require.ErrorIs(t, do(t, s, callOf("other", "/", 50*time.Millisecond)), upstream.ErrMaxConns)
		}
		for _, b := range s.static {
			assert.Zero(t, b.fails.Load())
		}
		close(stop)
		slow.Wait()
	})
}

// A call whose time is used up by waiting says nothing about the address.
func TestCallWithoutTimeFailsNoAddress(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		stop := make(chan struct{})
		s := loaded(t, services(t, 2, secure, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				select {
				case <-stop:
				case <-r.Context().Done():
				}
			}
		}, `,"load_balancing":{"selection_policy":{"policy":"round_robin"},"retries":0}`), func(o *Options) { o.Shares = NewShares(1) })
		t.Cleanup(func() { close(stop) })
		for range 2 {
			require.NoError(t, do(t, s, callOf("b", "/", patience)))
		}
		idle, _ := s.Connections()
		require.Equal(t, 2, idle)
		require.NotErrorIs(t, do(t, s, callOf("b", "/", -time.Millisecond)), ErrUnreachable)

		require.NoError(t, s.shares.Begin(t.Context(), "b", time.Time{}))
		require.ErrorIs(t, do(t, s, callOf("b", "/", 10*time.Millisecond)), upstream.ErrTooManyCalls, "the key's maximum lasts until the deadline")
		late := make(chan error)
		deadline := 2 * time.Second
		go func() { late <- do(t, s, callOf("b", "/slow", deadline)) }()
		time.AfterFunc(deadline*3/4, func() { s.shares.End("b") })
		require.Error(t, <-late)
		for _, b := range s.static {
			assert.Zero(t, b.fails.Load())
		}
		idle, _ = s.Connections()
		require.GreaterOrEqual(t, idle, 1)
	})
}

// The time that a body takes, or that it waits for memory in the gateway, is not the address's latency.
func TestLatencyOfAnAddressIsThatOfItsHeader(t *testing.T) {
	body := make(chan struct{})
	s := loaded(t, services(t, 1, false, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-body
	}, `,"health_checks":{"passive":{"fail_duration":"1h","unhealthy_latency":"5s"}}`))
	time.AfterFunc(6*time.Second, func() { close(body) })
	require.NoError(t, do(t, s, callOf("b", "/", patience)))
	assert.Zero(t, s.static[0].fails.Load())
}

// The service responds before it has read the body. Otherwise, one caller could make an address fail for all.
func TestRefusedBodyFailsNoAddress(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		s := loaded(t, services(t, 2, secure, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.Header().Set("Connection", "close")
				w.WriteHeader(http.StatusRequestEntityTooLarge)
				return
			}
			w.Header().Set("Content-Encoding", "br")
		}, ""))
		post := callOf("b", "/", patience)
		post.Method, post.Body, post.BodyType = http.MethodPost, make([]byte, 32<<20), "application/json"
		res, err := s.Do(t.Context(), post)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestEntityTooLarge, res.Status)
		res.Release()
		require.ErrorIs(t, do(t, s, callOf("b", "/", patience)), upstream.ErrContentEncoding)
		for _, b := range s.static {
			assert.Zero(t, b.fails.Load())
		}
	})
}

// A caller can choose what makes a request invalid, if an operator forwards it in a header.
func TestRequestThatCannotBeSentFailsNoAddress(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		var received atomic.Int64
		s := loaded(t, services(t, 2, secure, func(http.ResponseWriter, *http.Request) { received.Add(1) }, ""))
		require.NoError(t, do(t, s, callOf("b", "/", patience)))
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			c := callOf("b", "/", patience)
			c.Method, c.Header = method, http.Header{"X-Own": {"a\r\nb"}}
			err := do(t, s, c)
			require.ErrorIs(t, err, upstream.ErrInvalidRequest)
			require.NotErrorIs(t, err, ErrExchange)
			require.True(t, Unsent(err), "a change cannot have been made")
		}
		for _, b := range s.static {
			assert.Zero(t, b.fails.Load())
		}
		require.EqualValues(t, 1, received.Load())
	})
}

// HTTP/1.0 and HTTP/2 let a caller leave out the host.
func TestCallWithoutAHostNamesTheAddress(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		hosts := make(chan string, 1)
		s := loaded(t, services(t, 1, secure, func(_ http.ResponseWriter, r *http.Request) { hosts <- r.Host }, ""))
		c := callOf("b", "/", patience)
		c.Host = ""
		require.NoError(t, do(t, s, c))
		require.Equal(t, s.static[0].dial.Address, <-hosts)
	})
	t.Run("socket", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		ln, err := net.Listen("unix", path)
		require.NoError(t, err)
		hosts := make(chan string, 1)
		srv := &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hosts <- r.Host })}}
		srv.Start()
		t.Cleanup(srv.Close)
		c := callOf("b", "/", patience)
		c.Host = ""
		require.NoError(t, do(t, loaded(t, `{"handler":"reverse_proxy","upstreams":[{"dial":"unix/`+path+`"}]}`), c))
		require.Equal(t, "localhost", <-hosts)
	})
}

// Caddy counts the failures of an address for all handlers together.
func TestFailuresOfAnotherHandlerFailNoAddress(t *testing.T) {
	handler := services(t, 2, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, `,"load_balancing":{"selection_policy":{"policy":"round_robin"}},"health_checks":{"passive":{"fail_duration":"1h","unhealthy_status":[5]}}`)
	s := loaded(t, handler)
	mod, err := s.ctx.LoadModuleByID("http.handlers.reverse_proxy", json.RawMessage(strings.Replace(handler, `"handler":"reverse_proxy",`, "", 1)))
	require.NoError(t, err)
	other, ok := mod.(*reverseproxy.Handler)
	require.True(t, ok)
	for range 2 {
		req := httptest.NewRequest(http.MethodGet, "/bad", http.NoBody)
		_ = other.ServeHTTP(httptest.NewRecorder(), caddyhttp.PrepareRequest(req, caddy.NewReplacer(), httptest.NewRecorder(), new(caddyhttp.Server)), nil)
	}
	for _, u := range other.Upstreams {
		require.False(t, u.Healthy(), "the other handler avoids the address")
	}
	for range 4 {
		require.NoError(t, do(t, s, callOf("b", "/", patience)))
	}
	for range 2 {
		require.NoError(t, do(t, s, callOf("b", "/bad", patience)))
	}
	for _, b := range s.static {
		require.Positive(t, b.fails.Load(), "failures of the own calls count")
	}
}

func TestOneKeyHasAMaximumOfCallsInProgress(t *testing.T) {
	const most = 3
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		stop := make(chan struct{})
		s := loaded(t, services(t, 1, secure, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				<-stop
			}
		}, ""), func(o *Options) { o.Shares = NewShares(most) })
		s.shares.wait = 50 * time.Millisecond
		var slow sync.WaitGroup
		for range most {
			slow.Go(func() { assert.NoError(t, do(t, s, callOf("slow", "/slow", patience))) })
		}
		require.Eventually(t, func() bool { _, inUse := s.Connections(); return inUse == most }, patience, time.Millisecond)
		require.ErrorIs(t, do(t, s, callOf("slow", "/fast", patience)), upstream.ErrTooManyCalls)
		require.NoError(t, do(t, s, callOf("other", "/fast", patience)), "another key")
		s.shares.wait = patience
		ctx, leave := context.WithCancel(t.Context())
		leave()
		_, err := s.Do(ctx, callOf("slow", "/fast", patience))
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, Unsent(err), "a change cannot have been made")
		waiting := make(chan error)
		go func() { waiting <- do(t, s, callOf("slow", "/fast", patience)) }()
		close(stop)
		require.NoError(t, <-waiting, "one more that waits is served when another ends")
		slow.Wait()
		require.Empty(t, s.shares.keys)
	})
}

// large is a handler with responses of 8 MiB. For the business "stalled…", it sends no more than 1 MiB.
func large(stop <-chan struct{}, begun *atomic.Int64) http.HandlerFunc {
	const size = 8 << 20
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		stalled := strings.HasPrefix(r.Header.Get("X-Business-Id"), "stalled")
		send := size
		if stalled {
			send = 1 << 20
		}
		_, _ = io.Copy(w, io.LimitReader(zeros{}, int64(send)))
		if stalled {
			_ = http.NewResponseController(w).Flush()
			begun.Add(1)
			select {
			case <-stop:
			case <-r.Context().Done():
			}
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A data service that stalls one business's large responses must not make all others wait.
func TestOneBusinessCannotHoldAllMemoryForLargeResponses(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		stop := make(chan struct{})
		t.Cleanup(func() { close(stop) })
		var begun atomic.Int64
		s := loaded(t, services(t, 1, secure, large(stop, &begun), ""))
		ctx, cancel := context.WithCancel(t.Context())
		var stalled sync.WaitGroup
		t.Cleanup(stalled.Wait)
		t.Cleanup(cancel)
		held := func(business string) int64 {
			s.shares.mu.Lock()
			defer s.shares.mu.Unlock()
			return s.shares.held[business]
		}
		median := func() time.Duration {
			var took []time.Duration
			for range 21 {
				start := time.Now()
				require.NoError(t, do(t, s, callOf("other", "/", patience)))
				took = append(took, time.Since(start))
				require.LessOrEqual(t, held("stalled"), int64(largeResponsesBytes/largeShares))
			}
			slices.Sort(took)
			return took[len(took)/2].Round(100 * time.Microsecond)
		}
		alone := median()
		for range 8 {
			stalled.Go(func() { _, _ = s.Do(ctx, callOf("stalled", "/", patience)) })
		}
		require.Eventually(t, func() bool { return begun.Load() == 8 && held("stalled") > 0 }, patience, time.Millisecond)
		t.Logf("figure: responses of 8 MiB to another business, median: %s alone, %s beside 8 stalled ones", alone, median())
	})
}

// Callers of public operations may have many keys and addresses.
func TestPublicCallersLeaveMemoryForBusinesses(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		var begun atomic.Int64
		s := loaded(t, services(t, 1, secure, large(nil, &begun), ""))
		call := func(business, share string, deadline time.Time) (*upstream.Response, error) {
			c := callOf(business, "/", patience)
			c.Share = share
			if !deadline.IsZero() {
				c.Deadline = deadline
			}
			return s.Do(t.Context(), c)
		}
		for i := range 4 { // they read nothing of their 8 MiB
			res, err := call("-", "pk_"+strconv.Itoa(i), time.Time{})
			require.NoError(t, err)
			t.Cleanup(res.Release)
		}
		_, err := call("-", "pk_4", time.Now().Add(500*time.Millisecond))
		require.Error(t, err)
		for _, business := range []string{"17", "-18"} {
			res, err := call(business, business, time.Time{})
			require.NoError(t, err)
			res.Release()
		}
	})
}

// A service need not say how large its response is. Those that callers have not read yet must not fill the memory with what they do not have.
func TestResponseHoldsNoMoreMemoryThanItNeeds(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		const size, larger, many = largeResponse + 50<<10, largeResponsesBytes - 1<<20, 12
		s := loaded(t, services(t, 1, secure, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush() // chunked
			n := size
			if r.URL.Path == "/larger" {
				n = larger
			}
			_, _ = io.Copy(w, io.LimitReader(zeros{}, int64(n)))
		}, ""))
		read := func(business, path string, size int, maxSize int64) *upstream.Response {
			c := callOf(business, path, patience)
			c.MaxResponse = maxSize
			res, err := s.Do(t.Context(), c)
			if assert.NoError(t, err) {
				assert.Len(t, res.Body, size)
				assert.LessOrEqual(t, int64(cap(res.Body)), maxSize+1+bytes.MinRead)
			}
			return res
		}
		var unread []*upstream.Response
		for i := range many {
			unread = append(unread, read("business"+strconv.Itoa(i), "/", size, largeResponsesBytes/8))
		}
		require.EqualValues(t, largeResponsesBytes-many*size, s.shares.free)
		unread = append(unread, read("unlimited", "/", size, largeResponsesBytes))
		done := make(chan *upstream.Response)
		go func() { done <- read("larger", "/larger", larger, largeResponsesBytes) }()
		require.Eventually(t, s.shares.isContended, patience, time.Millisecond)
		for _, res := range unread {
			res.Release()
		}
		(<-done).Release()
		require.EqualValues(t, largeResponsesBytes, s.shares.free)
	})
}

// Anyone may call a public operation, so the business is "-" for all of them.
func TestCallersThatAreNotKnownShareMemoryByTheirClientIP(t *testing.T) {
	var begun atomic.Int64
	s := loaded(t, services(t, 1, false, large(nil, &begun), ""))
	for _, ip := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.2"} {
		c := callOf("-", "/", patience)
		c.Share = ip
		res, err := s.Do(t.Context(), c)
		require.NoError(t, err)
		t.Cleanup(res.Release)
	}
	require.Len(t, s.shares.held, 3, "two, and what they hold together")
}

func TestStalledResponseGivesItsMemoryBack(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		stop := make(chan struct{})
		t.Cleanup(func() { close(stop) })
		var begun atomic.Int64
		s := loaded(t, services(t, 1, secure, large(stop, &begun), ""))
		failed := make(chan error, 8)
		for i := range 8 { // all of the memory
			go func() {
				_, err := s.Do(t.Context(), callOf("stalled"+strconv.Itoa(i), "/", patience))
				failed <- err
			}()
		}
		require.Eventually(t, func() bool {
			s.shares.mu.Lock()
			defer s.shares.mu.Unlock()
			return s.shares.free == 0
		}, patience, time.Millisecond)
		began := time.Now()
		require.NoError(t, do(t, s, callOf("other", "/", patience)))
		require.Less(t, time.Since(began), patience/2, "it does not wait until the deadline of the others")
		err := <-failed
		var network net.Error
		require.ErrorAs(t, err, &network)
		require.True(t, network.Timeout())
	})
}

// A data service that sends large responses a byte at a time must not make the callers of another one wait.
func TestOneDataServiceCannotHoldAllMemoryForLargeResponses(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		shares := NewShares(0)
		with := func(o *Options) { o.Shares = shares }
		hostile := loaded(t, services(t, 1, secure, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(8<<20))
			_, _ = io.Copy(w, io.LimitReader(zeros{}, 1<<20))
			ticks := time.NewTicker(stallTimeout / 10)
			defer ticks.Stop()
			for _, err := w.Write([]byte{0}); err == nil; _, err = w.Write([]byte{0}) {
				_ = http.NewResponseController(w).Flush()
				select {
				case <-ticks.C:
				case <-r.Context().Done():
					return
				}
			}
		}, ""), with)
		honest := loaded(t, services(t, 1, secure, large(nil, nil), ""), with)
		ctx, cancel := context.WithCancel(t.Context())
		var slow sync.WaitGroup
		t.Cleanup(slow.Wait)
		t.Cleanup(cancel)
		var ended atomic.Int64
		for i := range 16 { // twice the memory
			slow.Go(func() {
				_, _ = hostile.Do(ctx, callOf("business-"+strconv.Itoa(i), "/", patience))
				ended.Add(1)
			})
		}
		require.Eventually(t, func() bool {
			shares.mu.Lock()
			defer shares.mu.Unlock()
			return shares.claimed == largeResponsesBytes/2 && len(shares.waiting) == 12
		}, patience, time.Millisecond)
		require.NoError(t, do(t, honest, callOf("business-0", "/", patience)))
		require.Zero(t, ended.Load(), "it was served while the others are in progress")
	})
}

func TestMemoryIsSharedOut(t *testing.T) {
	t.Parallel()
	const share = largeResponsesBytes / largeShares
	s := NewShares(0)
	ctx := t.Context()
	a, b, more := &memory{business: "a"}, &memory{business: "b"}, map[string]*memory{}
	require.NoError(t, s.acquireMemory(ctx, a, share))
	done, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, s.acquireMemory(done, &memory{business: "a"}, 1), context.Canceled, "a has its share")
	require.NoError(t, s.acquireMemory(ctx, b, largeResponsesBytes-share), "one response may be larger than a share")

	order := make(chan string, 2)
	wait := func(business string, bytes int64) {
		m := &memory{business: business}
		more[business] = m
		go func() {
			assert.NoError(t, s.acquireMemory(ctx, m, bytes))
			order <- business
		}()
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.waiting) > 0 && s.waiting[len(s.waiting)-1].business == business
		}, patience, time.Millisecond)
	}
	wait("a", 1)
	require.False(t, s.isContended(), "no other response could help one that waits for its own business's share")
	wait("c", share+1)
	require.True(t, s.isContended())
	wait("d", 1)
	s.releaseMemory(a, 0)
	require.Equal(t, "a", <-order)
	s.releaseMemory(more["a"], 0)
	require.True(t, s.isContended())
	require.Empty(t, order, "d does not overtake c, which needs more than is free")
	s.releaseMemory(b, 0)
	require.ElementsMatch(t, []string{"c", "d"}, []string{<-order, <-order})
	s.releaseMemory(more["c"], 0)
	s.releaseMemory(more["d"], 0)
	require.EqualValues(t, largeResponsesBytes, s.free)
	require.Zero(t, s.claimed)
	require.Empty(t, s.held)
}

// What callers have not read yet is taken into account when responses need it, not before.
func TestUnreadResponsesDelayOnlyThoseThatNeedTheirMemory(t *testing.T) {
	t.Parallel()
	s := NewShares(0)
	ctx := t.Context()
	unread, all, next := &memory{business: "unread"}, &memory{business: "all"}, &memory{business: "next"}
	require.NoError(t, s.acquireMemory(ctx, unread, largeResponsesBytes))
	s.releaseMemory(unread, 1)
	require.NoError(t, s.acquireMemory(ctx, all, largeResponsesBytes))
	require.EqualValues(t, largeResponsesBytes-1, all.held)
	granted := make(chan *memory, 2)
	for _, m := range []*memory{next, all} {
		go func() {
			assert.NoError(t, s.acquireMemory(ctx, m, max(1, m.claim)))
			granted <- m
		}()
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.waiting) > 0 && s.waiting[0].memory == m
		}, patience, time.Millisecond)
	}
	s.releaseMemory(unread, 0)
	require.Same(t, all, <-granted, "a response that is being read goes before new ones")
	require.EqualValues(t, largeResponsesBytes, all.held)
	s.releaseMemory(all, 0)
	require.Same(t, next, <-granted)
	s.releaseMemory(next, 0)
	require.EqualValues(t, largeResponsesBytes, s.free)
	require.Zero(t, s.claimed)
	require.Empty(t, s.held)
}

func TestOptionsThatAreNotHTTP11AreRejected(t *testing.T) {
	for name, c := range map[string]struct{ transport, want string }{
		"HTTP/2":            {`"versions":["1.1","2"]`, "versions 2 is not supported: data services are called over HTTP/1.1 only"},
		"h2c":               {`"versions":["h2c"]`, "versions h2c is not supported"},
		"HTTP/3":            {`"tls":{},"versions":["3"]`, "versions 3 is not supported"},
		"a forward proxy":   {`"network_proxy":{"from":"url","url":"http://proxy.internal:3128"}`, "a forward proxy is not supported: data services are called directly"},
		"forward_proxy_url": {`"forward_proxy_url":"http://proxy.internal:3128"`, "a forward proxy is not supported"},
		"PROXY protocol":    {`"proxy_protocol":"v2"`, "proxy_protocol is not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tryLoad(t, `{"handler":"reverse_proxy","upstreams":[{"dial":"localhost:1"}],"transport":{"protocol":"http",`+c.transport+`}}`)
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("HTTP/1.1", func(t *testing.T) {
		loaded(t, `{"handler":"reverse_proxy","upstreams":[{"dial":"localhost:1"}],"transport":{"protocol":"http","versions":["1.1"]}}`)
	})
}

// What a service sends may hold customers' records.
func TestErrorsDoNotQuoteTheService(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		s := loaded(t, services(t, 1, secure, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if assert.NoError(t, err) {
				_, _ = io.WriteString(conn, "ada@saltbush.example 9471.88\r\n\r\n")
				_ = conn.Close()
			}
		}, ""))
		err := do(t, s, callOf("b", "/", patience))
		require.ErrorIs(t, err, ErrExchange)
		require.NotContains(t, err.Error(), "9471")
		failed, ok := errors.AsType[*upstream.CallError](err)
		require.True(t, ok)
		require.NotEmpty(t, failed.Address)
	})
}

func TestIdleConnectionsOfAllAddressesAreLimited(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		s := loaded(t, strings.Replace(services(t, 3, secure, func(http.ResponseWriter, *http.Request) {},
			`,"load_balancing":{"selection_policy":{"policy":"round_robin"},"retries":0}`),
			`"protocol":"http"`, `"protocol":"http","keep_alive":{"max_idle_conns":1}`, 1))
		for range 9 {
			require.NoError(t, do(t, s, callOf("b", "/", patience)))
			idle, _ := s.Connections()
			require.LessOrEqual(t, idle, 1)
		}
	})
}

func TestReadTimeoutEndsASilentExchange(t *testing.T) {
	wires(t, func(t *testing.T, secure bool) {
		t.Helper()
		s := loaded(t, strings.Replace(services(t, 1, secure, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, ""),
			`"protocol":"http"`, `"protocol":"http","read_timeout":"50ms","write_timeout":"1m"`, 1))
		err := do(t, s, callOf("b", "/", time.Hour))
		var network net.Error
		require.ErrorAs(t, err, &network)
		require.True(t, network.Timeout())
	})
}
