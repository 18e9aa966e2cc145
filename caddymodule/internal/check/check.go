// Package check finds mistakes in a configuration, and in the stores and services that it uses. The rules are described in
// docs/check.md, from which their texts come.
package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/configfile"
)

// Options are the options of [Run].
type Options struct {
	Defaults

	// Offline connects to nothing, and needs no files and environment variables that the configuration names.
	Offline bool

	// Live returns what live checks use. app is nil if it is not configured. The handlers are the gatehouse_api and
	// gatehouse_connect of the configuration.
	Live func(app caddy.App, handlers []caddyhttp.MiddlewareHandler) Live

	// Progress is where it says what it is waiting for, and what could not be checked.
	Progress io.Writer
}

// Defaults are values of options that a configuration leaves out.
type Defaults struct {
	Timeout     time.Duration // of gatehouse_api
	BodyTimeout time.Duration // of gatehouse_api
	JWKSPath    string
}

// Run returns the findings, in the order of their places. The error is about what prevented the check.
func Run(ctx context.Context, file, adapter string, o Options) (found []Finding, err error) {
	config, err := configfile.Load(file, adapter)
	if err != nil {
		return loadFindings(err)
	}
	c, err := newChecker(config, o.Defaults)
	if err != nil {
		return loadFindings(err)
	}
	c.checkStatic(ctx)
	dir, err := os.MkdirTemp("", "gatehouse-check-")
	if err != nil {
		return nil, fmt.Errorf("creating a directory for files that modules write: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.Offline {
		err = c.buildOffline(dir)
	} else {
		err = c.checkLive(ctx, dir, o)
	}
	if err != nil {
		found, err = loadFindings(err)
	}
	return sortFindings(append(c.found, found...)), err
}
