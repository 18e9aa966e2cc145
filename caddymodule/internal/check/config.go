package check

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/configfile"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Names of modules.
const (
	appName     = "gatehouse"
	apiName     = "gatehouse_api"
	authName    = "gatehouse_auth"
	connectName = "gatehouse_connect"
	healthName  = "gatehouse_health"
	jwksName    = "gatehouse_jwks"
	errorsName  = "gatehouse_errors"
	drainName   = "gatehouse_drain"
	proxyName   = "reverse_proxy"
	metricsName = "metrics"
)

// The settings that rules look at. The modules have more.
type (
	appSettings struct {
		Redis *struct {
			URLs             []string        `json:"urls"`
			Cluster          bool            `json:"cluster"`
			Password         string          `json:"password"`
			SentinelPassword string          `json:"sentinel_password"`
			TLS              json.RawMessage `json:"tls"`
		} `json:"redis"`
		CredentialsRaw json.RawMessage `json:"credentials"`
		Cache          struct {
			TTL          caddy.Duration `json:"ttl"`
			StaleIfError caddy.Duration `json:"stale_if_error"`
		} `json:"cache"`
		Limits struct {
			Algorithm           string `json:"algorithm"`
			OnOutage            string `json:"on_outage"`
			Shadow              bool   `json:"shadow"`
			InFlight            int    `json:"in_flight"`
			AllowReplayedWrites bool   `json:"allow_replayed_writes"`
		} `json:"limits"`
		Assertion json.RawMessage `json:"assertion"`
	}
	vaultSettings struct {
		Address string `json:"address"`
		Auth    struct {
			Token    string `json:"token"`
			SecretID string `json:"secret_id"`
		} `json:"auth"`
	}
	apiSettings struct {
		Timeout            caddy.Duration `json:"timeout"`
		BodyTimeout        caddy.Duration `json:"body_timeout"`
		AllowMissingTenant bool           `json:"allow_missing_tenant"`
		Definition         struct {
			Name string `json:"name"`
			File string `json:"file"` // empty: the public contract's
		} `json:"definition"`
		Upstreams []struct {
			HandlerRaw json.RawMessage `json:"handler"`
		} `json:"upstreams"`
	}
	connectSettings struct {
		Issuer      string          `json:"issuer"`
		Timeout     caddy.Duration  `json:"timeout"`
		ManageKeys  bool            `json:"manage_keys"`
		ExceptAreas []string        `json:"except_areas"`
		UpstreamRaw json.RawMessage `json:"upstream"`
	}
)

// checker is a configuration with the parts that rules look at.
type checker struct {
	*configfile.Config

	admin    caddy.AdminConfig
	logs     map[string]*caddy.CustomLog
	http     *caddyhttp.App
	servers  map[string]*serverConfig
	app      *appSettings   // nil: not configured
	vault    *vaultSettings // nil: the credential source is another
	placed   []configfile.Handler
	handlers []*handlerConfig          // those of placed that serve callers
	proxies  map[string]*serviceConfig // the reverse_proxy handlers of placed, by their pointers

	defaults Defaults
	business string // of a key in the credential file; "" if there is none
	found    []Finding
	skipped  []Skip
}

// serverConfig is an HTTP server.
type serverConfig struct {
	*caddyhttp.Server

	pointer  string
	wrappers []listenerWrapper
}

type listenerWrapper struct {
	Wrapper  string   `json:"wrapper"`
	Allow    []string `json:"allow"`           // of proxy_protocol
	Fallback string   `json:"fallback_policy"` // of proxy_protocol: for addresses that are not in Allow
}

// handlerConfig is a gatehouse_api, a gatehouse_connect or a gatehouse_auth.
type handlerConfig struct {
	configfile.Handler

	api       *apiSettings     // nil: it is another
	connect   *connectSettings // nil: it is another
	timeout   time.Duration    // zero: it has none
	upstreams []*serviceConfig
}

// serviceConfig is a reverse_proxy handler or an upstream. Optional parts are never nil, except for active health checks.
type serviceConfig struct {
	*reverseproxy.Handler

	pointer   string
	transport reverseproxy.HTTPTransport
}

// dereferenced matches the pointers of values at whose null Caddy panics, and so would the rules.
var dereferenced = regexp.MustCompile(`/(servers/[^/]+(/named_routes/[^/]+)?|upstreams/\d+|(tls_connection_)?policies/\d+)$|^/logging/logs/[^/]+$`)

// newChecker decodes the configuration. Loading the configuration would fail with the same errors.
func newChecker(c *configfile.Config, defaults Defaults) (*checker, error) {
	var cfg struct {
		Admin   caddy.AdminConfig `json:"admin"`
		Logging caddy.Logging     `json:"logging"`
		Apps    struct {
			Gatehouse json.RawMessage `json:"gatehouse"`
			HTTP      caddyhttp.App   `json:"http"`
		} `json:"apps"`
	}
	if err := json.Unmarshal(c.Raw, &cfg); err != nil {
		return nil, c.DecodeError(err)
	}
	if c.Value == nil {
		return nil, c.DecodeError(errors.New("it is null"))
	}
	var null error
	each(c.Value, "", func(pointer string, value any) {
		if value == nil && null == nil && dereferenced.MatchString(pointer) {
			null = c.ErrorAt(pointer, errors.New("must not be null"))
		}
	})
	if null != nil {
		return nil, null
	}
	defaults.API = once(defaults.API)
	checked := &checker{
		Config: c, defaults: defaults, admin: cfg.Admin, logs: cfg.Logging.Logs, http: &cfg.Apps.HTTP, placed: c.Handlers(), servers: map[string]*serverConfig{}, proxies: map[string]*serviceConfig{},
	}
	for name, server := range cfg.Apps.HTTP.Servers {
		s := &serverConfig{Server: server, pointer: "/apps/http/servers/" + name}
		for _, raw := range server.ListenerWrappersRaw {
			var w listenerWrapper
			if err := json.Unmarshal(raw, &w); err != nil {
				return nil, c.ErrorAt(s.pointer+"/listener_wrappers", err)
			}
			s.wrappers = append(s.wrappers, w)
		}
		s.AutoHTTPS = cmp.Or(s.AutoHTTPS, new(caddyhttp.AutoHTTPSConfig))
		checked.servers[name] = s
	}
	if cfg.Apps.Gatehouse != nil {
		checked.app = new(appSettings)
		if err := decode(c, "/apps/"+appName, appName, cfg.Apps.Gatehouse, checked.app); err != nil {
			return nil, err
		}
		var source struct {
			Source string `json:"source"`
		}
		if err := json.Unmarshal(checked.app.CredentialsRaw, &source); err == nil && source.Source == "vault" {
			checked.vault = new(vaultSettings)
			if err := json.Unmarshal(checked.app.CredentialsRaw, checked.vault); err != nil {
				return nil, c.ErrorAt("/apps/"+appName+"/credentials", err)
			}
		}
	}
	for _, placed := range checked.placed {
		if i := slices.IndexFunc(checked.handlers, func(h *handlerConfig) bool { return h.Pointer == placed.Pointer }); i >= 0 {
			first := checked.handlers[i] // of a named route, which another site invokes, too
			if first.Hosts == nil || placed.Hosts == nil {
				first.Hosts = nil
			} else {
				first.Hosts = append(slices.Clip(first.Hosts), placed.Hosts...)
			}
			continue
		}
		h := &handlerConfig{Handler: placed}
		switch h.Name {
		case apiName:
			h.api = new(apiSettings)
			if err := h.decode(c, h.api); err != nil {
				return nil, err
			}
			h.timeout = cmp.Or(time.Duration(h.api.Timeout), defaults.Timeout)
			for i, u := range h.api.Upstreams {
				h.upstreams = append(h.upstreams, newServiceConfig(fmt.Sprintf("%s/upstreams/%d/handler", h.Pointer, i), u.HandlerRaw))
			}
		case connectName:
			h.connect = new(connectSettings)
			if err := h.decode(c, h.connect); err != nil {
				return nil, err
			}
			h.timeout = cmp.Or(time.Duration(h.connect.Timeout), data.DefaultTimeout)
			h.upstreams = []*serviceConfig{newServiceConfig(h.Pointer+"/upstream", h.connect.UpstreamRaw)}
		case authName: // its services are found by checkRoutes
		case proxyName:
			raw, _ := json.Marshal(h.Value) //nolint:errchkjson // it was decoded from JSON
			checked.proxies[h.Pointer] = newServiceConfig(h.Pointer, raw)
			continue
		default:
			continue
		}
		checked.handlers = append(checked.handlers, h)
	}
	return checked, nil
}

// once returns a function that loads each definition once, although each sample request asks for the API.
func once(load func(handler any) *upstream.API) func(handler any) *upstream.API {
	apis := map[string]*upstream.API{}
	return func(handler any) *upstream.API {
		key := fmt.Sprint(configfile.Member(handler, "definition"))
		if _, ok := apis[key]; !ok {
			apis[key] = load(handler)
		}
		return apis[key]
	}
}

// decode decodes the settings of a handler.
func (h *handlerConfig) decode(c *configfile.Config, into any) error {
	value := maps.Clone(h.Value)
	delete(value, "handler")
	settings, err := json.Marshal(value)
	if err != nil {
		return c.ErrorAt(h.Pointer, err)
	}
	return decode(c, h.Pointer, "http.handlers."+caddy.ModuleID(h.Name), settings, into)
}

// decode decodes the settings of a module that the rules look at, if the module accepts them.
func decode(c *configfile.Config, pointer string, id caddy.ModuleID, settings json.RawMessage, into any) error {
	info, err := caddy.GetModule(string(id))
	if err != nil {
		return c.ErrorAt(pointer, err)
	}
	module := info.New()
	if err := caddy.StrictUnmarshalJSON(settings, module); err != nil {
		return c.ErrorAt(pointer, err)
	}
	if v, ok := module.(caddy.Validator); ok {
		if err := v.Validate(); err != nil {
			return c.ErrorAt(pointer, err)
		}
	}
	if err := json.Unmarshal(settings, into); err != nil {
		return c.ErrorAt(pointer, err)
	}
	return nil
}

// newServiceConfig decodes what the rules look at. Other errors of the handler are found when it is loaded.
func newServiceConfig(pointer string, raw json.RawMessage) *serviceConfig {
	u := &serviceConfig{pointer: pointer, Handler: new(reverseproxy.Handler)}
	_ = json.Unmarshal(raw, u.Handler)
	_ = json.Unmarshal(u.TransportRaw, &u.transport)
	u.Headers = cmp.Or(u.Headers, new(headers.Handler))
	u.Headers.Request = cmp.Or(u.Headers.Request, new(headers.HeaderOps))
	u.LoadBalancing = cmp.Or(u.LoadBalancing, new(reverseproxy.LoadBalancing))
	u.HealthChecks = cmp.Or(u.HealthChecks, new(reverseproxy.HealthChecks))
	u.HealthChecks.Passive = cmp.Or(u.HealthChecks.Passive, new(reverseproxy.PassiveHealthChecks))
	return u
}

// upstreams returns all data services, and those that a gatehouse_auth protects.
func (c *checker) upstreams() []*serviceConfig {
	var all []*serviceConfig
	for _, h := range c.handlers {
		all = append(all, h.upstreams...)
	}
	return all
}

// report adds a finding. The pointer is the JSON pointer of the value that the message is about. Messages contain no secrets.
func (c *checker) report(id, pointer, message string, args ...any) {
	text := fmt.Sprintf(message, args...)
	c.found = append(c.found, newFinding(id, c.Position(pointer, text), text))
}

// skip adds something that could not be checked.
func (c *checker) skip(what, why string, args ...any) {
	c.skipped = append(c.skipped, Skip{what, fmt.Sprintf(why, args...)})
}
