// Package check finds mistakes in a configuration, and in the stores and services that it uses. The rules are described in
// docs/check.md, from which their texts come.
package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/configfile"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Options are the options of [Run].
type Options struct {
	Defaults

	// Offline connects to nothing, and needs no files and environment variables that the configuration names.
	Offline bool

	// Business is the ID of the business for which data services are asked. Default: that of the first key in the credential
	// file that can be used, or else DefaultBusiness.
	Business string

	// Live returns what live checks use. app is nil if it is not configured. The handlers are the gatehouse_api and
	// gatehouse_connect of the configuration.
	Live func(app caddy.App, handlers []caddyhttp.MiddlewareHandler) Live

	// Progress is where it says what it is waiting for.
	Progress io.Writer
}

// Defaults are values of options that a configuration leaves out.
type Defaults struct {
	Timeout     time.Duration // of gatehouse_api
	BodyTimeout time.Duration // of gatehouse_api
	JWKSPath    string
	InFlight    int // of limits

	// API returns the API that a gatehouse_api serves, by its configuration; nil if its definition cannot be read.
	API func(handler any) *upstream.API
}

// DefaultBusiness is the business for which data services are asked if no other is known. It has no records.
const DefaultBusiness = "gatehouse-check"

var validBusiness = regexp.MustCompile(`^[[:graph:]]{1,256}$`) // as upstream.PrepareRequest

// Run checks a configuration. The error is about what prevented the check.
func Run(ctx context.Context, file, adapter string, o Options) (report Report, err error) {
	if o.Business != "" && !validBusiness.MatchString(o.Business) {
		return Report{}, fmt.Errorf("invalid business ID %q: must be 1 to 256 visible ASCII characters", o.Business)
	}
	config, err := configfile.Load(file, adapter)
	if err != nil {
		report.Findings, err = loadFindings(err)
		return report, err
	}
	c, err := newChecker(config, o.Defaults)
	if err != nil {
		report.Findings, err = loadFindings(err)
		return report, err
	}
	c.checkStatic(ctx)
	dir, err := os.MkdirTemp("", "gatehouse-check-")
	if err != nil {
		return Report{}, fmt.Errorf("creating a directory for files that modules write: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.Offline {
		err = c.buildOffline(dir)
	} else {
		err = c.checkLive(ctx, dir, o)
	}
	var failed []Finding
	if err != nil {
		failed, err = loadFindings(err)
	}
	return Report{Findings: sortFindings(append(c.found, failed...)), Skipped: c.skipped}, err
}
