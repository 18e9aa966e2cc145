package netfault_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/netfault"
)

func TestRequestOfALostResponseIsServed(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	h := netfault.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Test", "yes")
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprint(w, served.Add(1))
	}))
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	post := func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
		require.NoError(t, err)
		resp, err := server.Client().Do(req)
		if err != nil {
			return err
		}
		require.Equal(t, http.StatusTeapot, resp.StatusCode)
		require.Equal(t, "yes", resp.Header.Get("X-Test"))
		return resp.Body.Close()
	}
	require.NoError(t, post())
	h.Lose(2)
	require.NoError(t, post())
	require.Error(t, post(), "the second response since Lose")
	require.NoError(t, post())
	assert.Equal(t, 3, h.Replies())
	assert.Equal(t, int64(4), served.Load())
}
