package caddymodule

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

// resources are clients and caches that survive a reload, by a hash of all their resolved settings.
//
//nolint:gochecknoglobals // a caddy.UsagePool must be global to be shared by configurations
var resources = caddy.NewUsagePool()

// acquire returns the resource with the given settings, which may contain secrets. It opens the resource unless another
// configuration uses it. Until the app releases it, another one can acquire it.
func acquire[T caddy.Destructor](a *App, open func() (T, error), settings ...any) (resource T, err error) {
	encoded, err := json.Marshal(settings)
	if err != nil {
		return resource, fmt.Errorf("encoding settings: %w", err)
	}
	key := fmt.Sprintf("%T %x", resource, sha256.Sum256(encoded))
	v, _, err := resources.LoadOrNew(key, func() (caddy.Destructor, error) { return open() })
	if err != nil {
		return resource, err
	}
	a.acquired = append(a.acquired, key)
	resource, _ = v.(T)
	return resource, nil
}

// release releases what the app has acquired. A resource is closed when no configuration uses it.
func (a *App) release() error {
	var errs []error
	for _, key := range slices.Backward(a.acquired) {
		_, err := resources.Delete(key)
		errs = append(errs, err)
	}
	a.acquired = nil
	return errors.Join(errs...)
}

// sink is the logger and the metrics of a configuration. Resources outlive configurations, so they report to the sink of the
// active one through a sinkRef.
type sink struct {
	logger  *zap.Logger
	metrics *metrics
	stopped atomic.Bool // the configuration was stopped
}

// sinkRef points to the sink of the active configuration. It is nil before the first one starts.
type sinkRef struct{ atomic.Pointer[sink] }

// restore replaces the sink current by old, unless current has been replaced already or old's configuration was stopped.
func (s *sinkRef) restore(current, old *sink) {
	if old != nil && !old.stopped.Load() {
		s.CompareAndSwap(current, old)
	}
}
