package e2e_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// countdown is what differs between the responses to two requests over a limit: ID, clock and remaining time, of two digits or one.
var countdown = regexp.MustCompile(`(?i)(x-request-id: |"request_id":"|date: |content-length: |retry-after: |ratelimit-reset: )[^"\r\n]+|(;t=|"retry_after":|again in )[0-9]+`)

// A client IP that has exhausted its limit for unverified requests cannot find out which keys exist. A wrong signature for a key that is
// cached, an invented key and a private key get the same bytes at the same stage, and none is looked up. The owner of the key is served.
func TestLimitedClientIPCannotTellKeysApart(t *testing.T) {
	t.Parallel()
	for name, cache := range map[string]string{"fresh credential": "", "credential past its TTL": "cache {\n\t\t\tttl 1ms\n\t\t}"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attack := newAttack(t, trustLoopback, cache, "body_timeout 1s")
			attack.requireListening(t, 1)
			lookups := func() (n float64) {
				for _, event := range []string{"found", "unknown"} {
					n += attack.g.Metric(t, "gatehouse_credential_events_total", `event="`+event+`"`)
				}
				return n
			}
			withinWindow(t, func(attempt int) func() {
				address := "203.0.113." + strconv.Itoa(attempt)
				requireServed(t, attack.g, attack.acme, 1)
				counts := statuses(130, func(i int) gatewaytest.Response {
					return send(t, attack.g, eventsPath, withClientIP(address, invalidSignature(fmt.Sprintf("pk_live_invented_%d_%d", attempt, i))))
				})
				before := lookups()
				others := []string{fmt.Sprintf("pk_test_%024d", attempt), fmt.Sprintf("sk_test_%043d", attempt)}
				transcripts := map[string][]string{}
				for form, exchange := range attack.limitedExchanges(t) {
					for _, key := range append([]string{attack.acme.PublicKey}, others...) {
						fields := withSignature(key, strconv.FormatInt(time.Now().Unix(), 10), strings.Repeat("ab", 32))
						one := exchange(append(fields, field{"X-Forwarded-For", address}))
						transcripts[form] = append(transcripts[form], countdown.ReplaceAllString(one, "$1$2…"))
					}
				}
				after := lookups()
				owner := send(t, attack.g, eventsPath, headerOf(append(signedFields(attack.acme, http.MethodGet, eventsPath, ""), field{"X-Forwarded-For", address})))
				return func() {
					require.Equal(t, map[int]int{http.StatusUnauthorized: 120, http.StatusTooManyRequests: 10}, counts)
					for form, all := range transcripts {
						require.Contains(t, all[0], "429", form)
						require.Equal(t, strings.HasPrefix(form, "100"), strings.HasPrefix(all[0], "100"), "%s: %s", form, all[0])
						for i, key := range others {
							assert.Equal(t, all[0], all[i+1], "%s: %s", form, key)
						}
					}
					assert.InDelta(t, before, after, 0, "lookups")
					require.Equal(t, http.StatusOK, owner.Status, owner.Body)
				}
			})
		})
	}
}

// limitedExchanges are ways to send one request with the signing headers. They return all that the gateway sends; those that expect
// 100 Continue have it in their name.
func (s *attack) limitedExchanges(t *testing.T) map[string]func(fields []field) string {
	t.Helper()
	const (
		head    = "GET " + eventsPath + " HTTP/1.1\r\nHost: x\r\n"
		next    = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" // pipelined, and not counted
		chunked = "Transfer-Encoding: chunked\r\n"
		chunks  = "6\r\na body\r\n0\r\n\r\n"
	)
	http1 := func(rest string) func(fields []field) string {
		return func(fields []field) string {
			conn := dial(t, s.g.Addr, "")
			go func() { _, _ = io.WriteString(conn, head+linesOf(fields)+rest) }()
			all, err := io.ReadAll(conn.r)
			require.NoError(t, err)
			return string(all)
		}
	}
	http1Continue := func(lines, body string) func(fields []field) string {
		return func(fields []field) string {
			conn := dial(t, s.g.Addr, head+"Connection: close\r\nExpect: 100-continue\r\n"+linesOf(fields)+lines+"\r\n")
			first, err := readResponse(conn.r, http.MethodGet)
			require.NoError(t, err)
			if first.Status != http.StatusContinue {
				return responseText(first)
			}
			_, err = io.WriteString(conn, body)
			require.NoError(t, err)
			rest, err := io.ReadAll(conn.r)
			require.NoError(t, err)
			return responseText(first) + string(rest)
		}
	}
	h2 := func(fields []field) []field {
		return append(h2Request(http.MethodGet, eventsPath), lowerCase(fields)...)
	}
	h3 := func(fields []field) []field {
		return append(h3Request(http.MethodGet, eventsPath), lowerCase(fields)...)
	}
	tooLarge := "Content-Length: " + strconv.FormatInt(authsigner.DefaultMaxBody+1, 10) + "\r\n"
	return map[string]func(fields []field) string{
		"100, then the body":          http1Continue("Content-Length: 6\r\n", "a body"),
		"100, then a chunked body":    http1Continue(chunked, chunks),
		"100, then half a body":       http1Continue("Content-Length: 6\r\n", "a b"),
		"100, then a malformed chunk": http1Continue(chunked, "x\r\n"),
		"Expect, declared too large":  http1Continue(tooLarge, ""),
		"no body":                     http1("\r\n" + next),
		"body":                        http1("Content-Length: 6\r\n\r\na body" + next),
		"chunked body":                http1(chunked + "\r\n" + chunks + next),
		"chunked body, too large":     http1(chunked + "\r\n200000\r\n" + strings.Repeat("b", 0x200000) + "\r\n0\r\n\r\n"),
		"body that does not arrive":   http1("Content-Length: 6\r\n\r\n"),
		"HTTP/2":                      func(fields []field) string { return responseText(dialH2(t, s.g.Addr).do("", h2(fields)...)) },
		"HTTP/2, body":                func(fields []field) string { return responseText(dialH2(t, s.g.Addr).do("a body", h2(fields)...)) },
		"HTTP/3":                      func(fields []field) string { return responseText(s.h3.do("", h3(fields)...)) },
		"HTTP/3, body":                func(fields []field) string { return responseText(s.h3.do("a body", h3(fields)...)) },
		"HTTP/3, body that does not arrive": func(fields []field) string {
			a, err := s.h3.exchange(h3Headers(append(h3(fields), field{"content-length", "6"})...), false)
			require.NoError(t, err)
			return responseText(a)
		},
		"100, then the body over HTTP/2": func(fields []field) string {
			conn := dialH2(t, s.g.Addr)
			id, err := conn.open(false, append(h2(fields), field{"expect", "100-continue"})...)
			require.NoError(t, err)
			for {
				f, err := conn.framer.ReadFrame()
				require.NoError(t, err)
				if f, ok := f.(*http2.MetaHeadersFrame); ok {
					require.NoError(t, conn.framer.WriteData(id, true, []byte("a body")))
					return f.PseudoValue("status") + responseText(conn.read(id))
				}
			}
		},
	}
}

// responseText returns a response as text.
func responseText(a gatewaytest.Response) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\r\n", a.Status)
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		fmt.Fprintf(&b, "%s: %s\r\n", name, strings.Join(a.Header[name], ", "))
	}
	return b.String() + "\r\n" + a.Body
}

// A client IP that has exhausted its limit causes no lookup by resetting its requests while the limit is being checked.
func TestResetRequestsOfALimitedClientIPCauseNoLookups(t *testing.T) {
	t.Parallel()
	for name, cached := range map[string]bool{"invented keys": false, "a key past its TTL": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testResetRequestsCauseNoLookups(t, cached)
		})
	}
}

func testResetRequestsCauseNoLookups(t *testing.T, cached bool) {
	t.Helper()
	w := newEnvironment(t, nil)
	o := w.options("cache {\n\t\t\tttl 1ms\n\t\t}", "")
	o.Global = strings.Replace(o.Global, longRedisTimeout, "timeout 1m", 1)
	g := gatewaytest.Start(t, o)
	requireReady(t, g)
	w.requireListening(t, 1)
	denied := func() float64 {
		return g.Metric(t, "gatehouse_limit_decisions_total", `limit="unverified-ip"`, `outcome="denied"`)
	}
	lookups := func() float64 {
		return g.Metric(t, "gatehouse_credential_events_total", `event="found"`) + g.Metric(t, "gatehouse_credential_events_total", `event="unknown"`)
	}
	withinWindow(t, func(attempt int) func() {
		unserved := lookups()
		looked := unserved
		requireServed(t, g, w.acme, 1)
		require.Eventually(t, func() bool {
			looked = lookups()
			return looked > unserved
		}, patience, 10*time.Millisecond)
		// another gateway has counted the requests, so that this one has to ask Redis
		fleet := limitsIn(t, w.redis.Options())
		for i := range 120 {
			group, counters := ratelimit.ForUnverified(strconv.Itoa(i), netip.MustParseAddr("127.0.0.1"))
			_, err := fleet.Allow(t.Context(), group, counters...)
			require.NoError(t, err)
		}
		before := denied()
		require.NoError(t, w.redis.Pause())
		defer func() { require.NoError(t, w.redis.Resume()) }()
		conn := dialH2(t, g.Addr)
		var streams []uint32
		for len(streams) < 20 || g.Metric(t, "gatehouse_limiter_queue_length") == 0 {
			require.Less(t, len(streams), 200, "no request waits for Redis")
			key := fmt.Sprintf("pk_live_invented_%d_%d", attempt, len(streams))
			if cached {
				key = w.acme.PublicKey
			}
			signature := withSignature(key, strconv.FormatInt(time.Now().Unix(), 10), strings.Repeat("ab", 32))
			id, err := conn.open(true, append(h2Request(http.MethodGet, eventsPath), lowerCase(signature)...)...)
			require.NoError(t, err)
			streams = append(streams, id)
		}
		for _, id := range streams {
			require.NoError(t, conn.framer.WriteRSTStream(id, http2.ErrCodeCancel))
		}
		pinged := [8]byte{1}
		require.NoError(t, conn.framer.WritePing(false, pinged))
		for { // until the gateway has read the resets
			f, err := conn.framer.ReadFrame()
			require.NoError(t, err)
			if f, ok := f.(*http2.PingFrame); ok && f.IsAck() {
				break
			}
		}
		require.NoError(t, w.redis.Resume())
		require.Eventually(t, func() bool { return denied() >= before+float64(len(streams)) }, patience, 10*time.Millisecond)
		return func() {
			require.InDelta(t, looked, lookups(), 0)
		}
	})
}
