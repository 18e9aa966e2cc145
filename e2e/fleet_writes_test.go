package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// writeFleet is three gateways in front of a service that counts its writes, which come by gatehouse_auth and gatehouse_api in turn.
type writeFleet struct {
	gateways [3]*gatewaytest.Gateway
	caller   gatewaytest.Caller
	carried  []atomic.Int32 // how often the service got each write
}

// send sends a write, signed before, to a gateway, and returns the status: 0 if there was no response.
func (f *writeFleet) send(ctx context.Context, gateway, write int, signed []field) int {
	header := headerOf(signed)
	a, err := f.caller.Send(ctx, http.MethodPost, f.gateways[gateway%len(f.gateways)].URL, writeTarget(write), header, nil)
	if err != nil {
		return 0
	}
	return a.Status
}

func (f *writeFleet) sign(write int) []field {
	return signedFields(f.caller, http.MethodPost, writeTarget(write), "")
}

func writeTarget(write int) string {
	if write%2 == 0 {
		return fmt.Sprint("/orders/o-", write)
	}
	return fmt.Sprintf("/v1/orders/o-%d/shipments", write)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Writes are raced, replayed and repeated over three gateways, while Redis and the gateways are killed. No write is carried out twice
// while Redis keeps its data. When it loses them, the writes of the five minutes before can be repeated once.
func TestFleetAcceptsASignedWriteOnce(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	writes, between, workers := 1000, 200*time.Millisecond, 8
	if c.long {
		writes, between = 100_000, 3*time.Second
	}
	const lost = 200 // writes before Redis loses its data
	f := &writeFleet{carried: make([]atomic.Int32, writes+lost)}
	w := newEnvironment(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, number, _ := strings.Cut(strings.TrimSuffix(r.URL.Path, "/shipments"), "/o-")
		if i, err := strconv.Atoi(number); assert.NoError(t, err) {
			f.carried[i].Add(1)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	f.caller = w.issue(t, authsigner.IssueOptions{BusinessID: "17", Write: true, Resources: []string{"shop", "store"}})
	f.caller.Client = protocolClient(t, false, workers)
	redis := redistest.Start(t, redistest.WithConfig("appendonly", "yes"), redistest.WithConfig("appendfsync", "always"))
	for i := range f.gateways {
		o := w.options(highLimits, "")
		o.Global = "log {\n\t\tlevel ERROR\n\t}\n\t" + strings.Replace(o.Global, w.redisLine(), c.redis(redis.URL()), 1)
		o.Site = "gatehouse_api /v1/* {\n\t\tdefinition store " + shopDefinition + "\n\t\tupstream " + w.dataURL + "\n\t}\n\tgatehouse_auth shop\n\treverse_proxy " + strings.TrimPrefix(w.dataURL, "http://")
		f.gateways[i] = gatewaytest.Start(t, o)
	}

	var (
		next, sent  atomic.Int64
		byStatus    [600]atomic.Int64
		done        sync.WaitGroup
		twice, none int
	)
	for range workers {
		done.Go(func() {
			for i := int(next.Add(1)) - 1; i < writes && t.Context().Err() == nil; i = int(next.Add(1)) - 1 {
				signed := f.sign(i)
				attempt := func(gateway int) bool {
					status := f.send(t.Context(), gateway, i, signed)
					sent.Add(1)
					byStatus[status].Add(1)
					return status == http.StatusNoContent || status == http.StatusConflict
				}
				var raced sync.WaitGroup
				if i%2 == 1 {
					raced.Go(func() { attempt(i + 1) })
				}
				gateway := i
				for deadline := time.Now().Add(patience); !attempt(gateway) && time.Now().Before(deadline); gateway++ {
					pause(t.Context(), 10*time.Millisecond) // Redis or a gateway is down
				}
				raced.Wait()
				attempt(gateway + 1)
				attempt(gateway + 2)
			}
		})
	}
	kills := 0
	for ; next.Load() < int64(writes); kills++ {
		pause(t.Context(), between)
		if kills%2 == 0 {
			require.NoError(t, redis.Kill())
			require.NoError(t, redis.Restart())
		} else {
			g := f.gateways[kills/2%len(f.gateways)]
			g.Kill(t)
			g.Run(t)
		}
	}
	done.Wait()
	for i := range writes {
		switch f.carried[i].Load() {
		case 0:
			none++ // it was accepted, and the gateway or the reply of Redis got lost
		case 1:
		default:
			twice++
		}
	}
	require.Zero(t, twice)
	require.Positive(t, kills)
	require.LessOrEqual(t, none, kills*workers, "a kill ends one write of each worker at most")
	require.Less(t, none, writes/2, "what is refused does not prove anything")
	t.Logf("figure: %s writes=%d sent=%d kills=%d accepted=%d replayed=%d unavailable=%d without_response=%d carried_out_twice=%d not_carried_out=%d", t.Name(), writes, sent.Load(), kills,
		byStatus[http.StatusNoContent].Load(), byStatus[http.StatusConflict].Load(), byStatus[http.StatusServiceUnavailable].Load(), byStatus[0].Load(), twice, none)

	for _, g := range f.gateways {
		requireCheck(t, g, "limits", true)
	}
	signed := make([][]field, lost)
	for i := range signed {
		signed[i] = f.sign(writes + i)
		require.Equal(t, http.StatusNoContent, f.send(t.Context(), i, writes+i, signed[i]))
	}
	require.NoError(t, redis.Client(t).FlushAll(t.Context()).Err())
	for i := range signed {
		require.Equal(t, http.StatusNoContent, f.send(t.Context(), i+1, writes+i, signed[i]), "Redis knows nothing of it any more")
		for gateway := range f.gateways {
			require.Equal(t, http.StatusConflict, f.send(t.Context(), gateway, writes+i, signed[i]))
		}
		require.Equal(t, int32(2), f.carried[writes+i].Load(), "once more, and no more")
	}
}
