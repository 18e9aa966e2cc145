package caddymodule

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

// resources are clients and caches that survive a reload, by a hash of all their resolved settings.
//
//nolint:gochecknoglobals // a caddy.UsagePool must be global to be shared by configurations
var resources = caddy.NewUsagePool()

// acquire returns the resource with the given settings, which may contain secrets. It opens the resource unless another
// configuration uses it. Cleanup releases it.
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

// activeLogger returns the logger for events of resources. They outlive configurations, so they log to the active one's, or to
// Caddy's default logger until the first one is active.
func activeLogger() *zap.Logger {
	if a := activeApp(); a != nil {
		return a.logger
	}
	return caddy.Log()
}
