package caddymodule

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/configfile"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// The severities of rules, which are the levels of SARIF.
const (
	severityError   = "error"
	severityWarning = "warning"
)

// rule is something that `gatehouse check` looks for. IDs are never used again for something else.
type rule struct {
	id, severity string
	title        string // what is wrong, without the place
	fix          string
}

// finding is something wrong in a configuration.
type finding struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	configfile.Position

	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// sentences returns what is wrong and how to correct it.
func (f finding) sentences() string {
	message := strings.TrimSuffix(f.Message, ".")
	if !strings.HasSuffix(message, "?") {
		message += "."
	}
	return message + " " + f.Fix + "."
}

// newFinding returns a finding of a rule.
func newFinding(id string, at configfile.Position, message string) finding {
	all := rules()
	r := all[slices.IndexFunc(all, func(r rule) bool { return r.id == id })]
	return finding{r.id, r.severity, at, message, r.fix}
}

// checkedConfig is a configuration with the parts that rules look at.
type checkedConfig struct {
	*configfile.Config

	admin             caddy.AdminConfig
	logs              map[string]*caddy.CustomLog
	http              *caddyhttp.App
	servers           map[string]*checkedServer
	app               *App         // nil: not configured
	vault             *VaultSource // nil: the credential source is another
	placed            []configfile.Handler
	gatehouseHandlers []*checkedHandler // those of placed that serve callers

	found []finding
}

// checkedServer is an HTTP server.
type checkedServer struct {
	*caddyhttp.Server

	pointer  string
	wrappers []listenerWrapper
}

type listenerWrapper struct {
	Wrapper string   `json:"wrapper"`
	Allow   []string `json:"allow"` // of proxy_protocol
}

// checkedHandler is a gatehouse_api or a gatehouse_connect.
type checkedHandler struct {
	configfile.Handler

	api       *API     // nil: it is a gatehouse_connect
	connect   *Connect // nil: it is a gatehouse_api
	timeout   time.Duration
	upstreams []*checkedUpstream
}

// checkedUpstream is a reverse_proxy handler or an upstream. Optional parts are never nil, except for active health checks.
type checkedUpstream struct {
	*reverseproxy.Handler

	pointer   string
	transport reverseproxy.HTTPTransport
}

// newCheckedConfig decodes the configuration. Loading the configuration would fail with the same errors.
func newCheckedConfig(c *configfile.Config) (*checkedConfig, error) {
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
	checked := &checkedConfig{
		Config: c, admin: cfg.Admin, logs: cfg.Logging.Logs, http: &cfg.Apps.HTTP, placed: c.Handlers(), servers: map[string]*checkedServer{},
	}
	for name, server := range cfg.Apps.HTTP.Servers {
		s := &checkedServer{Server: server, pointer: "/apps/http/servers/" + name}
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
		checked.app = new(App)
		if err := decodeModule(c, "/apps/"+appName, cfg.Apps.Gatehouse, checked.app); err != nil {
			return nil, err
		}
		var source struct {
			Source string `json:"source"`
		}
		if err := json.Unmarshal(checked.app.CredentialsRaw, &source); err == nil && source.Source == "vault" {
			checked.vault = new(VaultSource)
			if err := json.Unmarshal(checked.app.CredentialsRaw, checked.vault); err != nil {
				return nil, c.ErrorAt("/apps/"+appName+"/credentials", err)
			}
		}
	}
	for _, placed := range checked.placed {
		h := &checkedHandler{Handler: placed}
		switch h.Name {
		case apiName:
			h.api = new(API)
			if err := h.decode(c, h.api); err != nil {
				return nil, err
			}
			h.timeout = cmp.Or(time.Duration(h.api.Timeout), defaultUpstreamTimeout)
			for i, u := range h.api.Upstreams {
				h.upstreams = append(h.upstreams, upstreamOf(fmt.Sprintf("%s/upstreams/%d/handler", h.Pointer, i), u.HandlerRaw))
			}
		case connectName:
			h.connect = new(Connect)
			if err := h.decode(c, h.connect); err != nil {
				return nil, err
			}
			h.timeout = cmp.Or(time.Duration(h.connect.Timeout), data.DefaultTimeout)
			h.upstreams = []*checkedUpstream{upstreamOf(h.Pointer+"/upstream", h.connect.UpstreamRaw)}
		default:
			continue
		}
		checked.gatehouseHandlers = append(checked.gatehouseHandlers, h)
	}
	return checked, nil
}

// decode decodes and validates the settings of a handler.
func (h *checkedHandler) decode(c *configfile.Config, module any) error {
	value := maps.Clone(h.Value)
	delete(value, "handler")
	settings, err := json.Marshal(value)
	if err != nil {
		return c.ErrorAt(h.Pointer, err)
	}
	return decodeModule(c, h.Pointer, settings, module)
}

func decodeModule(c *configfile.Config, pointer string, settings json.RawMessage, module any) error {
	if err := caddy.StrictUnmarshalJSON(settings, module); err != nil {
		return c.ErrorAt(pointer, err)
	}
	if v, ok := module.(caddy.Validator); ok {
		if err := v.Validate(); err != nil {
			return c.ErrorAt(pointer, err)
		}
	}
	return nil
}

// upstreamOf decodes what the rules look at. Other errors of the handler are found when it is loaded.
func upstreamOf(pointer string, raw json.RawMessage) *checkedUpstream {
	u := &checkedUpstream{pointer: pointer, Handler: new(reverseproxy.Handler)}
	_ = json.Unmarshal(raw, u.Handler)
	_ = json.Unmarshal(u.TransportRaw, &u.transport)
	u.Headers = cmp.Or(u.Headers, new(headers.Handler))
	u.Headers.Request = cmp.Or(u.Headers.Request, new(headers.HeaderOps))
	u.LoadBalancing = cmp.Or(u.LoadBalancing, new(reverseproxy.LoadBalancing))
	u.HealthChecks = cmp.Or(u.HealthChecks, new(reverseproxy.HealthChecks))
	u.HealthChecks.Passive = cmp.Or(u.HealthChecks.Passive, new(reverseproxy.PassiveHealthChecks))
	return u
}

// upstreams returns all data services.
func (c *checkedConfig) upstreams() []*checkedUpstream {
	var all []*checkedUpstream
	for _, h := range c.gatehouseHandlers {
		all = append(all, h.upstreams...)
	}
	return all
}

// report adds a finding. The pointer is the JSON pointer of the value that the message is about. Messages contain no secrets.
func (c *checkedConfig) report(id, pointer, message string, args ...any) {
	text := fmt.Sprintf(message, args...)
	c.found = append(c.found, newFinding(id, c.Position(pointer, text), text))
}

// loadFindings returns the finding of a configuration that cannot be loaded, or the error if it could not even be read.
func loadFindings(err error) ([]finding, error) {
	failure := new(configfile.Error)
	if !errors.As(err, &failure) {
		return nil, err
	}
	return []finding{newFinding("GH001", failure.Position, failure.Message)}, nil
}

// sortFindings sorts by place and removes duplicates.
func sortFindings(found []finding) []finding {
	slices.SortStableFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(found)
}

// count returns the number of findings of a severity.
func count(found []finding, severity string) int {
	n := 0
	for _, f := range found {
		if f.Severity == severity {
			n++
		}
	}
	return n
}

// printFindings prints findings for people.
func printFindings(w io.Writer, found []finding) error {
	for _, f := range found {
		if _, err := fmt.Fprintf(w, "%s: %s %s: %s\n", f.Position, f.Severity, f.Rule, f.sentences()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s, %s\n", plural(count(found, severityError), "error"), plural(count(found, severityWarning), "warning"))
	return err
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// encodeFindings prints findings as JSON.
func encodeFindings(w io.Writer, found []finding) error {
	if found == nil {
		found = []finding{}
	}
	return json.NewEncoder(w).Encode(map[string]any{"findings": found})
}

// encodeSARIF prints findings in the Static Analysis Results Interchange Format, version 2.1.0.
func encodeSARIF(w io.Writer, found []finding) error {
	type (
		object = map[string]any
		text   struct {
			Text string `json:"text"`
		}
	)
	all, results := []object{}, []object{}
	for _, r := range rules() {
		all = append(all, object{
			"id": r.id, "shortDescription": text{r.title}, "help": text{r.fix}, "defaultConfiguration": object{"level": r.severity},
		})
	}
	for _, f := range found {
		physical := object{"artifactLocation": object{"uri": (&url.URL{Path: f.File}).String()}}
		if f.Line > 0 {
			physical["region"] = object{"startLine": f.Line}
		}
		location := object{"physicalLocation": physical}
		if f.Pointer != "" {
			location["logicalLocations"] = []object{{"fullyQualifiedName": f.Pointer}}
		}
		results = append(results, object{
			"ruleId": f.Rule, "level": f.Severity, "message": text{f.sentences()}, "locations": []object{location},
		})
	}
	return json.NewEncoder(w).Encode(object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json",
		"version": "2.1.0",
		"runs": []object{{
			"tool":    object{"driver": object{"name": "gatehouse check", "rules": all}},
			"results": results,
		}},
	})
}
