package caddymodule

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// A data service that asks to come back later keeps the contract, and must not set off the alert on invalid responses.
func TestUnavailableDataServiceIsNotAnInvalidResponse(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	resource := m.resource("events")
	for _, err := range []error{upstream.ErrUpstreamUnavailable, data.ErrUnavailable, data.ErrTimeout} {
		resource.checked(upstream.Report{}, err)
	}
	require.InDelta(t, 3, testutil.ToFloat64(m.responses.WithLabelValues("events", "unavailable")), 0)
	require.Zero(t, testutil.ToFloat64(m.responses.WithLabelValues("events", "invalid_response")))
}
