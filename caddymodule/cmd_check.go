package caddymodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/spf13/cobra"

	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/check"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/dataservice"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// The exit statuses of `gatehouse check`.
const (
	checkClean    = 0 // or only warnings
	checkErrors   = 1
	checkBadInput = 3
)

// checkCommand holds the flags of `gatehouse check`.
type checkCommand struct {
	config, adapter      string
	offline, json, sarif bool
}

func registerCheck() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "check",
		Usage: "[--config <path>] [--adapter <name>] [--envfile <path>] [--offline] [--json|--sarif]",
		Short: "Finds mistakes in a configuration, and in the stores and services that it uses",
		Long: `
Applies the rules of docs/check.md to a configuration and prints what is wrong,
where, and how to correct it. The default configuration is the Caddyfile in the
current directory. Nothing is changed or started.

First builds everything, as validate does, then asks Redis, Vault and the data
services. With --offline, connects to nothing, and files and environment
variables that the configuration names may be missing.

Exit status: 0 no errors (there may be warnings), 1 errors, 3 the configuration
cannot be read.`,
		CobraFunc: configureCheck,
	})
}

func configureCheck(cmd *cobra.Command) {
	c := new(checkCommand)
	cmd.SilenceUsage = true
	f := cmd.Flags()
	f.StringVarP(&c.config, "config", "c", "", "configuration file (default: the Caddyfile in the current directory)")
	f.StringVarP(&c.adapter, "adapter", "a", "", "name of the config adapter to use")
	f.StringSlice("envfile", nil, "environment files to load")
	f.BoolVar(&c.offline, "offline", false, "look at the configuration only")
	f.BoolVar(&c.json, "json", false, "print JSON")
	f.BoolVar(&c.sarif, "sarif", false, "print SARIF 2.1.0, for code scanning")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return exit(cmd, checkBadInput, err) })
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return exit(cmd, checkBadInput, errors.New("check takes no arguments: name the configuration with --config"))
		case c.json && c.sarif:
			return exit(cmd, checkBadInput, errors.New("--json and --sarif cannot be combined"))
		}
		if err := loadEnvFiles(cmd); err != nil {
			return exit(cmd, checkBadInput, err)
		}
		status, err := c.run(cmd)
		return exit(cmd, status, err)
	}
}

func (c *checkCommand) run(cmd *cobra.Command) (status int, err error) {
	found, err := c.check(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return checkBadInput, err
	}
	out := cmd.OutOrStdout()
	switch {
	case c.json:
		err = check.EncodeJSON(out, found)
	case c.sarif:
		err = check.EncodeSARIF(out, found)
	default:
		err = check.Print(out, found)
	}
	if err != nil {
		return checkBadInput, fmt.Errorf("printing the findings: %w", err)
	}
	if check.Count(found, check.SeverityError) > 0 {
		return checkErrors, nil
	}
	return checkClean, nil
}

// check returns the findings. It discards what Caddy and the modules log meanwhile.
func (c *checkCommand) check(ctx context.Context, progress io.Writer) ([]check.Finding, error) {
	defer muteLogs()()
	return check.Run(ctx, c.config, c.adapter, check.Options{
		Defaults: check.Defaults{Timeout: defaultUpstreamTimeout, BodyTimeout: defaultBodyTimeout, JWKSPath: JWKSPath},
		Offline:  c.offline, Live: live, Progress: progress,
	})
}

// live returns what live checks use of the modules of a configuration.
func live(mod caddy.App, handlers []caddyhttp.MiddlewareHandler) check.Live {
	l := check.Live{Channel: invalidationChannel}
	app, _ := mod.(*App)
	if app == nil {
		return l
	}
	if app.redis != nil {
		l.Redis = app.redis.client
	}
	if app.credentials != nil {
		l.Vault, _ = app.credentials.store.(*vault.Source)
	}
	for _, handler := range handlers {
		var services []check.Service
		switch m := handler.(type) {
		case *API:
			served, _ := m.served() // it was valid when it was built
			for _, u := range m.Upstreams {
				name := proxiedNames()[0]
				for _, other := range proxiedNames() {
					if cmp.Or(served[other], served[""]) == u {
						name = other
					}
				}
				services = append(services, liveService(app, u.service, name, upstream.ByName(name).Path))
			}
		case *Connect:
			services = []check.Service{liveService(app, m.service, upstream.ConnectAudience, "/connect/v1/check")}
		}
		l.Services = append(l.Services, services)
	}
	return l
}

func liveService(app *App, service *dataservice.Service, resource, path string) check.Service {
	s := check.Service{Path: path, Backends: func(r *http.Request) ([]check.Backend, error) {
		addresses, err := service.Addresses(r.Context())
		var backends []check.Backend
		for _, address := range addresses {
			backends = append(backends, check.Backend{
				Address: address,
				Send: func(r *http.Request, deadline time.Time) (int, error) {
					res, err := service.DoAt(r.Context(), address, upstream.Call{
						BusinessID: r.Header.Get(upstream.HeaderBusinessID), RequestID: r.Header.Get(upstream.HeaderRequestID),
						Resource: resource, Method: r.Method, Path: r.URL.EscapedPath(), Host: r.Host,
						Deadline: deadline, MaxResponse: upstream.DefaultMaxResponseSize,
					}, r.Header.Get(upstream.HeaderAssertion) != "")
					if err != nil {
						return 0, err
					}
					defer res.Release()
					return res.Status, nil
				},
			})
		}
		return backends, err
	}}
	if app.asserter != nil {
		s.Assert = func(businessID, requestID string) (string, error) {
			return app.asserter.Assert(resource, businessID, requestID)
		}
	}
	return s
}
