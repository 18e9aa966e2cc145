package caddymodule

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
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
	example      string // a line of a Caddyfile, or a state that a probe finds
	fix          string
	static       func(*checkedConfig, report) // nil: check_probes.go or the loader finds it
}

// report adds a finding. The pointer is the JSON pointer of the value that the message is about. Messages contain no secrets.
type report func(pointer, message string, args ...any)

// finding is something wrong in a configuration.
type finding struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	position

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

// checkedConfig is a configuration with the parts that rules look at.
type checkedConfig struct {
	*loadedConfig

	admin   caddy.AdminConfig
	app     *App         // nil: not configured
	vault   *VaultSource // nil: the credential source is another
	servers map[string]*checkedServer
	placed  []placedHandler
	apis    []checkedHandler[API]
	connect []checkedHandler[Connect]
	logs    map[string]*caddy.CustomLog

	httpPort, httpsPort int
	gracePeriod         time.Duration // 0: unlimited

	obstacles func() []*obstacle
}

// checkedServer has the settings of an HTTP server that rules look at.
type checkedServer struct {
	pointer string

	Listen                []string          `json:"listen"`
	ReadTimeout           caddy.Duration    `json:"read_timeout"`
	WriteTimeout          caddy.Duration    `json:"write_timeout"`
	TrustedProxies        json.RawMessage   `json:"trusted_proxies"`
	TrustedProxiesStrict  int               `json:"trusted_proxies_strict"`
	ClientIPHeaders       []string          `json:"client_ip_headers"`
	ListenerWrappers      []listenerWrapper `json:"listener_wrappers"`
	TLSConnectionPolicies []struct {
		InsecureSecretsLog string `json:"insecure_secrets_log"`
	} `json:"tls_connection_policies"`
	AutomaticHTTPS struct {
		Disable      bool     `json:"disable"`
		DisableCerts bool     `json:"disable_certificates"`
		Skip         []string `json:"skip"`
	} `json:"automatic_https"`
	Logs *struct {
		DefaultLoggerName    string              `json:"default_logger_name"`
		LoggerNames          map[string][]string `json:"logger_names"`
		ShouldLogCredentials bool                `json:"should_log_credentials"`
	} `json:"logs"`
}

type listenerWrapper struct {
	Wrapper string   `json:"wrapper"`
	Allow   []string `json:"allow"` // of proxy_protocol
}

// checkedHandler is a Gatehouse handler.
type checkedHandler[T any] struct {
	placedHandler

	module    *T
	upstreams []checkedUpstream
}

// checkedUpstream has the settings of a reverse_proxy handler or an upstream that rules look at.
type checkedUpstream struct {
	pointer string

	Upstreams []struct {
		Dial string `json:"dial"`
	} `json:"upstreams"`
	DynamicUpstreams json.RawMessage `json:"dynamic_upstreams"`
	Headers          struct {
		Request struct {
			Set http.Header `json:"set"`
		} `json:"request"`
	} `json:"headers"`
	HealthChecks struct {
		Active *struct {
			URI          string `json:"uri"`
			Path         string `json:"path"`
			Port         int    `json:"port"`
			Upstream     string `json:"upstream"`
			ExpectStatus int    `json:"expect_status"`
		} `json:"active"`
		Passive struct {
			UnhealthyStatus []int `json:"unhealthy_status"`
		} `json:"passive"`
	} `json:"health_checks"`
	LoadBalancing struct {
		TryDuration caddy.Duration `json:"try_duration"`
	} `json:"load_balancing"`
	Transport struct {
		DialTimeout caddy.Duration `json:"dial_timeout"`
		TLS         *struct {
			InsecureSkipVerify bool `json:"insecure_skip_verify"`
		} `json:"tls"`
	} `json:"transport"`
}

// newCheckedConfig decodes the configuration. Loading the configuration would fail with the same errors.
func newCheckedConfig(c *loadedConfig) (*checkedConfig, error) {
	var cfg struct {
		Admin   caddy.AdminConfig `json:"admin"`
		Logging struct {
			Logs map[string]*caddy.CustomLog `json:"logs"`
		} `json:"logging"`
		Apps struct {
			Gatehouse json.RawMessage `json:"gatehouse"`
			HTTP      struct {
				HTTPPort    int                       `json:"http_port"`
				HTTPSPort   int                       `json:"https_port"`
				GracePeriod caddy.Duration            `json:"grace_period"`
				Servers     map[string]*checkedServer `json:"servers"`
			} `json:"http"`
		} `json:"apps"`
	}
	if err := json.Unmarshal(c.raw, &cfg); err != nil {
		return nil, &loadError{position: position{File: c.file}, message: fmt.Sprintf("decoding the configuration: %v", err)}
	}
	checked := &checkedConfig{
		loadedConfig: c, admin: cfg.Admin, servers: cfg.Apps.HTTP.Servers, logs: cfg.Logging.Logs, placed: c.handlers(),
		httpPort: cmp.Or(cfg.Apps.HTTP.HTTPPort, caddyhttp.DefaultHTTPPort), httpsPort: cmp.Or(cfg.Apps.HTTP.HTTPSPort, caddyhttp.DefaultHTTPSPort),
		gracePeriod: time.Duration(cfg.Apps.HTTP.GracePeriod),
	}
	if cfg.Apps.Gatehouse != nil {
		checked.app = new(App)
		if err := c.decode("/apps/"+appName, cfg.Apps.Gatehouse, checked.app); err != nil {
			return nil, err
		}
		var source struct {
			Source string `json:"source"`
		}
		if err := json.Unmarshal(checked.app.CredentialsRaw, &source); err == nil && source.Source == "vault" {
			checked.vault = new(VaultSource)
			if err := json.Unmarshal(checked.app.CredentialsRaw, checked.vault); err != nil {
				return nil, c.failure("/apps/"+appName+"/credentials", err)
			}
		}
	}
	checked.obstacles = sync.OnceValue(checked.findObstacles) // for several rules
	for name, s := range checked.servers {
		s.pointer = "/apps/http/servers/" + name
	}
	for _, h := range checked.placed {
		switch h.name {
		case apiName:
			api := checkedHandler[API]{placedHandler: h, module: new(API)}
			if err := api.decode(c); err != nil {
				return nil, err
			}
			for i, u := range api.module.Upstreams {
				api.upstreams = append(api.upstreams, upstreamOf(fmt.Sprintf("%s/upstreams/%d/handler", h.pointer, i), u.HandlerRaw))
			}
			checked.apis = append(checked.apis, api)
		case "gatehouse_connect":
			connect := checkedHandler[Connect]{placedHandler: h, module: new(Connect)}
			if err := connect.decode(c); err != nil {
				return nil, err
			}
			connect.upstreams = []checkedUpstream{upstreamOf(h.pointer+"/upstream", connect.module.UpstreamRaw)}
			checked.connect = append(checked.connect, connect)
		}
	}
	return checked, nil
}

// decode decodes and validates the settings of a handler.
func (h *checkedHandler[T]) decode(c *loadedConfig) error {
	value := maps.Clone(h.value)
	delete(value, "handler")
	settings, err := json.Marshal(value)
	if err != nil {
		return c.failure(h.pointer, err)
	}
	return c.decode(h.pointer, settings, h.module)
}

func (c *loadedConfig) decode(pointer string, settings json.RawMessage, module any) error {
	if err := caddy.StrictUnmarshalJSON(settings, module); err != nil {
		return c.failure(pointer, err)
	}
	if v, ok := module.(caddy.Validator); ok {
		if err := v.Validate(); err != nil {
			return c.failure(pointer, err)
		}
	}
	return nil
}

// failure returns an error about a value as a loadError.
func (c *loadedConfig) failure(pointer string, err error) error {
	return &loadError{c.position(pointer, err.Error()), err.Error(), pointer}
}

// upstreamOf decodes what the rules look at. Other errors of the handler are found when it is loaded.
func upstreamOf(pointer string, raw json.RawMessage) checkedUpstream {
	u := checkedUpstream{pointer: pointer}
	_ = json.Unmarshal(raw, &u)
	return u
}

// upstreams returns all data services.
func (c *checkedConfig) upstreams() []checkedUpstream {
	var all []checkedUpstream
	for _, h := range c.apis {
		all = append(all, h.upstreams...)
	}
	for _, h := range c.connect {
		all = append(all, h.upstreams...)
	}
	return all
}

// checkStatic applies the rules that need only the configuration.
func (c *checkedConfig) checkStatic() []finding {
	var found []finding
	for _, r := range rules() {
		if r.static != nil {
			r.static(c, c.reportTo(&found, r))
		}
	}
	return found
}

// reportTo returns a function that adds findings of a rule.
func (c *loadedConfig) reportTo(found *[]finding, r rule) report {
	return func(pointer, message string, args ...any) {
		text := fmt.Sprintf(message, args...)
		*found = append(*found, finding{r.id, r.severity, c.position(pointer, text), text, r.fix})
	}
}

// loadFindings returns the finding of a configuration that cannot be loaded, or the error if it could not even be read.
func loadFindings(err error) ([]finding, error) {
	failure := new(loadError)
	if !errors.As(err, &failure) {
		return nil, err
	}
	r := rules()[0]
	return []finding{{r.id, r.severity, failure.position, failure.message, r.fix}}, nil
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
		if _, err := fmt.Fprintf(w, "%s: %s %s: %s\n", f.position, f.Severity, f.Rule, f.sentences()); err != nil {
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
