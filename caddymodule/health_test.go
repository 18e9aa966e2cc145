package caddymodule

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// faultyStore is a credential source with a fault.
type faultyStore struct {
	CredentialStore

	fault error
}

func (s *faultyStore) Ready() error { return s.fault }

// If assistants or public operations need no credentials, an outage of their source must not take the fleet out of service. A gateway
// that has never reached it, such as with a wrong role, stops a rollout nevertheless.
func TestReadinessWhileTheCredentialSourceIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		app     *App
		reached bool
		want    string
	}{
		"signed requests only":             {new(App), true, stateUnavailable},
		"assistants":                       {&App{connectUpstream: []byte(`{}`)}, true, stateDegraded},
		"public operations":                {&App{public: true}, true, stateDegraded},
		"assistants, never reached":        {&App{connectUpstream: []byte(`{}`)}, false, stateUnavailable},
		"public operations, never reached": {&App{public: true}, false, stateUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := new(faultyStore)
			cache, err := authsigner.NewCache(store, authsigner.CacheOptions{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, cache.Close()) })
			app := test.app
			app.credentials = &pooledCredentials{store: store, cache: cache}
			if test.reached {
				assert.Equal(t, stateOK, app.readiness().Status)
			}
			store.fault = fmt.Errorf("%w: made-up", authsigner.ErrUnavailable)
			state := app.readiness()
			assert.Equal(t, test.want, state.Status)
			assert.Equal(t, test.want, state.Checks["credentials"])
			assert.NotEmpty(t, state.causes["credentials"])
		})
	}
}
