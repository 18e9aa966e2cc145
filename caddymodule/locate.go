package caddymodule

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

// position is a place in a configuration.
type position struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`    // of a Caddyfile, from 1
	Pointer string `json:"pointer,omitempty"` // a JSON pointer, if there is no line
}

func (p position) String() string {
	switch {
	case p.Line > 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	case p.Pointer != "":
		return p.File + ": " + p.Pointer
	}
	return p.File
}

// loadedConfig is a configuration and, if it came from a Caddyfile, where its directives are.
type loadedConfig struct {
	file   string
	raw    json.RawMessage
	value  any          // raw, decoded
	global *directive   // nil: not a Caddyfile
	sites  []*directive // their arguments are the addresses
}

// loadError is an error with its place in a configuration.
type loadError struct {
	position

	message string
	pointer string // of the value, if it is known
}

func (e *loadError) Error() string { return e.position.String() + ": " + e.message }

var errNoConfig = errors.New("no configuration found: set --config, or add a Caddyfile to the current directory")

// loadConfig reads and adapts a configuration file. If the content is wrong, the error is a [loadError].
func loadConfig(file, adapter string) (*loadedConfig, error) {
	raw, name, used, err := caddycmd.LoadConfig(file, adapter)
	if err != nil {
		return nil, adaptError(cmp.Or(file, "Caddyfile"), err)
	}
	if raw == nil {
		return nil, errNoConfig
	}
	c := &loadedConfig{file: name, raw: caddy.RemoveMetaFields(raw)}
	if err := json.Unmarshal(c.raw, &c.value); err != nil {
		return nil, fmt.Errorf("reading the configuration %s: %w", name, err)
	}
	if used == "caddyfile" && name != "-" { // standard input cannot be read again
		if err := c.readDirectives(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

var (
	adaptedAt  = regexp.MustCompile(`^(.*), at (.+?):(\d+)(?: import chain.*)?$`)
	adaptedIn  = regexp.MustCompile(`^(.+?):(\d+)(?:: | - )(.*)$`)
	adaptSteps = regexp.MustCompile(`^(adapting config using [\w-]+: |parsing caddyfile tokens for '[^']*': |server block \d+, key \d+ \([^)]*\): )+`)
)

// adaptError returns an error of a config adapter as a loadError, if it says that the content is wrong.
func adaptError(file string, err error) error {
	text := err.Error()
	rest := adaptSteps.ReplaceAllString(text, "")
	if rest == text {
		if strings.HasPrefix(text, "config is not valid JSON") {
			return &loadError{position: position{File: file}, message: text}
		}
		return err
	}
	at, message := position{File: file}, rest
	if m := adaptedAt.FindStringSubmatch(rest); m != nil {
		message, at.File = m[1], m[2]
		at.Line, _ = strconv.Atoi(m[3])
	} else if m := adaptedIn.FindStringSubmatch(rest); m != nil {
		at.File, message = m[1], m[3]
		at.Line, _ = strconv.Atoi(m[2])
	} else if _, name, ok := strings.Cut(rest, "unrecognized matcher name: "); ok { // Caddy does not say where
		at = matcherUse(file, name)
	}
	message = adaptSteps.ReplaceAllString(message, "")
	if name, _, ok := strings.Cut(message, " directive returned something other than an HTTP route"); ok { // Caddy prints Go values
		message = name + " cannot be used in a route block: use it directly in a site, or in a handle block"
	} else if strings.HasPrefix(message, "server block without any key") {
		message = "a block after the first has no site address: if the address is an environment variable, such as {$HOST}, set it"
	}
	return &loadError{position: at, message: message}
}

// matcherUse returns the position of the first directive with the matcher, or the file's if there is none.
func matcherUse(file, matcher string) position {
	c := &loadedConfig{file: file}
	if err := c.readDirectives(); err != nil {
		return position{File: file}
	}
	for _, site := range c.sites {
		for d := range site.all() {
			if len(d.args) > 0 && d.args[0] == matcher {
				return position{File: d.file, Line: d.line}
			}
		}
	}
	return position{File: file}
}

// directive is a line of a Caddyfile: a directive or option, its arguments and its block.
type directive struct {
	name     string
	args     []string
	file     string
	line     int
	children []*directive
}

// readDirectives parses the Caddyfile, with its imports and snippets in place.
func (c *loadedConfig) readDirectives() error {
	input, err := os.ReadFile(c.file)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	blocks, err := caddyfile.Parse(c.file, input)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	c.global = new(directive)
	for i, b := range blocks {
		block := &directive{name: "site", file: c.file, line: 1}
		for _, key := range b.Keys {
			if len(block.args) == 0 {
				block.file, block.line = key.File, key.Line
			}
			block.args = append(block.args, strings.TrimSuffix(key.Text, ","))
		}
		for _, s := range b.Segments {
			block.add(s)
		}
		if i == 0 && len(b.Keys) == 0 {
			c.global = block
		} else {
			c.sites = append(c.sites, block)
		}
	}
	return nil
}

// add adds the lines of a segment.
func (d *directive) add(tokens caddyfile.Segment) {
	var (
		open    = []*directive{d}
		current *directive // the line that tokens are added to
		end     int        // the last line of the token before
	)
	for _, t := range tokens {
		switch {
		case t.Text == "{" && current != nil:
			open, current = append(open, current), nil
		case t.Text == "}" && len(open) > 1 && (current == nil || t.Line != end):
			open, current = open[:len(open)-1], nil
		case current == nil || t.Line != end || t.File != current.file:
			current = &directive{name: t.Text, file: t.File, line: t.Line}
			parent := open[len(open)-1]
			parent.children = append(parent.children, current)
		default:
			current.args = append(current.args, t.Text)
		}
		end = t.Line + strings.Count(t.Text, "\n")
	}
}

// find returns the nth directive of one of the names, in any depth, or the last one if there are fewer. It returns nil if there
// is none.
func (d *directive) find(names []string, nth int) *directive {
	var found *directive
	for sub := range d.all() {
		if slices.Contains(names, sub.name) {
			found = sub
			if nth--; nth < 0 {
				break
			}
		}
	}
	return found
}

// all iterates over the directives of a block in their order, in any depth.
func (d *directive) all() func(yield func(*directive) bool) {
	return func(yield func(*directive) bool) { d.visit(yield) }
}

func (d *directive) visit(yield func(*directive) bool) bool {
	for _, sub := range d.children {
		if !yield(sub) || !sub.visit(yield) {
			return false
		}
	}
	return true
}

// serves reports whether an address of a site has the host.
func (d *directive) serves(host string) bool {
	return slices.ContainsFunc(d.args, func(key string) bool {
		a, err := httpcaddyfile.ParseAddress(key)
		return err == nil && strings.EqualFold(a.Host, host)
	})
}

// directivesOf returns the names in a Caddyfile of a member or handler of the JSON configuration.
func directivesOf(name string) []string {
	names, ok := map[string][]string{
		"authentication":         {"basic_auth"},
		"automation":             {"acme_ca"},
		"dial":                   nil, // an argument
		"errors":                 {"handle_errors"},
		"health_checks":          {"health_interval", "health_timeout", "health_status", "health_body", "health_port"},
		"headers":                {"request_header", "header"},
		"idle_timeout":           {"idle"},
		"insecure_skip_verify":   {"tls_insecure_skip_verify"},
		"logging":                {"log"},
		"logs":                   {"log"},
		"read_header_timeout":    {"read_header"},
		"read_timeout":           {"read_body"},
		"rewrite":                {"rewrite", "method", "uri", "try_files", "handle_path"},
		"secret_id":              {"auth"},
		"selection_policy":       {"lb_policy"},
		"sentinel_master":        {"sentinel"},
		"sentinel_password":      {"sentinel"},
		"sentinel_username":      {"sentinel"},
		"set":                    {"header_up"},
		"should_log_credentials": {"log_credentials"},
		"static_response":        {"respond", "redir", "abort"},
		"token":                  {"auth"},
		"try_duration":           {"lb_try_duration"},
		"upstreams":              {"upstream", "reverse_proxy", "to"},
		"uri":                    {"health_uri"},
		"write_timeout":          {"write"},
	}[name]
	if !ok {
		return []string{name}
	}
	return names
}

// position returns the place of a value of the configuration: in a Caddyfile, the line of the directive that set it, or a line of
// its block if the message about the value quotes an argument or a name on that line.
func (c *loadedConfig) position(pointer, message string) position {
	if c.global == nil {
		return position{File: c.file, Pointer: pointer}
	}
	type word struct {
		names []string
		nth   int
	}
	var (
		words   []word
		hosts   []string
		handler string
		value   = c.value
		steps   = strings.Split(strings.TrimPrefix(pointer, "/"), "/")
		isSite  bool
	)
	for i, step := range steps {
		value = member(value, step)
		n, err := strconv.Atoi(step)
		switch {
		case err == nil && len(words) > 0 && (i == 0 || steps[i-1] != "handle" && steps[i-1] != "routes"):
			words[len(words)-1].nth = n
		case err != nil && step != "apps" && step != "http" && step != "handle" && step != "routes" && step != "handler":
			words = append(words, word{names: directivesOf(step)})
		}
		switch {
		case step == "routes":
			isSite = true
		case i > 0 && steps[i-1] == "logger_names":
			isSite, hosts = true, []string{step}
		case i > 0 && steps[i-1] == "tls_connection_policies":
			isSite = true
			names, _ := member(member(value, "match"), "sni").([]any)
			for _, name := range names {
				hosts = append(hosts, fmt.Sprint(name))
			}
		}
		if found := hostsOf(value); found != nil {
			hosts = found
		}
		if name, _ := member(value, "handler").(string); name != "" && name != "subroute" && handler == "" {
			handler = name
			words = append(words, word{directivesOf(name), c.nth(strings.Join(steps[:i+1], "/"), name, hosts)})
		}
	}
	in := []*directive{c.global}
	if isSite {
		in = c.sites
		served := func(site *directive) bool { return slices.ContainsFunc(hosts, site.serves) }
		if i := slices.IndexFunc(c.sites, served); i >= 0 {
			in = c.sites[i : i+1]
		} else if j := slices.IndexFunc(c.sites, func(site *directive) bool {
			return site.find(directivesOf(handler), 0) != nil
		}); j >= 0 && len(hosts) == 0 {
			in = c.sites[j : j+1]
		}
	}
	if len(in) == 0 {
		return position{File: c.file, Line: 1}
	}
	at, blocks := in[0], in[:1]
	for _, w := range words {
		if found := at.find(w.names, w.nth); found != nil {
			at, blocks = found, append(slices.Clip(blocks), found)
		}
	}
	switch {
	case strings.HasPrefix(message, at.name+" "):
		blocks = nil // it is about the line itself
	case strings.HasPrefix(pointer, "/apps/tls/"):
		blocks = c.sites
	}
quoted:
	for _, block := range slices.Backward(blocks) {
		for sub := range block.all() {
			if sub.quoted(message) {
				at = sub
				break quoted
			}
		}
	}
	if at == c.global && len(c.sites) > 0 && strings.HasPrefix(pointer, "/apps/http") {
		at = c.sites[0]
	}
	return position{File: at.file, Line: at.line}
}

// quoted reports whether a message quotes an argument, such as a path or a placeholder.
func (d *directive) quoted(message string) bool {
	return slices.ContainsFunc(d.args, func(arg string) bool {
		return len(arg) > 3 && strings.ContainsAny(arg, "/.:{") && strings.Contains(message, arg)
	})
}

// nth returns the number of handlers with the same name that precede a handler in its site.
func (c *loadedConfig) nth(path, name string, hosts []string) int {
	n := 0
	for _, h := range c.handlers() {
		if h.name == name && slices.Equal(h.hosts, hosts) {
			if strings.TrimPrefix(h.pointer, "/") == path {
				return n
			}
			n++
		}
	}
	return 0
}

// member returns a member of a JSON object or array, or nil.
func member(value any, step string) any {
	switch v := value.(type) {
	case map[string]any:
		return v[step]
	case []any:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(v) {
			return v[i]
		}
	}
	return nil
}

// hostsOf returns the hosts of a route's matchers.
func hostsOf(route any) (hosts []string) {
	sets, _ := member(route, "match").([]any)
	for _, set := range sets {
		names, _ := member(set, "host").([]any)
		for _, name := range names {
			if s, ok := name.(string); ok {
				hosts = append(hosts, s)
			}
		}
	}
	return hosts
}

// placedHandler is a handler of the configuration.
type placedHandler struct {
	name    string // of the module
	pointer string
	server  string
	hosts   []string // of the site; nil: all
	isError bool     // it handles errors
	value   map[string]any
	site    any    // the server's route that leads to it
	siteAt  string // the pointer of site
}

// handlers returns the handlers of all servers in the order in which they run, without subroutes.
func (c *loadedConfig) handlers() []placedHandler {
	var all []placedHandler
	servers, _ := member(member(member(c.value, "apps"), "http"), "servers").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		h := placedHandler{server: name, pointer: "/apps/http/servers/" + name}
		walkRoutes(member(servers[name], "routes"), h, "/routes", &all)
		h.isError = true
		walkRoutes(member(member(servers[name], "errors"), "routes"), h, "/errors/routes", &all)
	}
	return all
}

func walkRoutes(list any, in placedHandler, suffix string, all *[]placedHandler) {
	routes, _ := list.([]any)
	for i, route := range routes {
		steps, _ := member(route, "handle").([]any)
		for j, step := range steps {
			h := in
			h.pointer = fmt.Sprintf("%s%s/%d/handle/%d", in.pointer, suffix, i, j)
			if h.site == nil {
				h.site, h.siteAt = route, fmt.Sprintf("%s%s/%d", in.pointer, suffix, i)
			}
			if hosts := hostsOf(route); hosts != nil {
				h.hosts = hosts
			}
			h.value, _ = step.(map[string]any)
			h.name, _ = h.value["handler"].(string)
			if h.name != "subroute" {
				*all = append(*all, h)
				continue
			}
			walkRoutes(h.value["routes"], h, "/routes", all)
			h.isError = true
			walkRoutes(member(h.value["errors"], "routes"), h, "/errors/routes", all)
		}
	}
}

// loaderSteps are the prefixes that Caddy's loader and our modules' Provision add to an error, and where they lead in the
// configuration.
func loaderSteps() [][2]string {
	return [][2]string{
		{`loading (?:initial |new )?config: `, ""},
		{`loading the app "\w+": `, ""},
		{`getting \w+ app: `, ""},
		{`loading (\w+) app module: `, "/apps/$1"}, // from the root again, since apps load each other
		{`server (\w+): `, "/servers/$1"},
		{`setting up route handlers: `, "/routes"},
		{`setting up error handling routes: `, "/errors/routes"},
		{`setting up subroutes: `, "/routes"},
		{`setting up error subroutes: `, "/errors/routes"},
		{`loading handler modules: `, "/handle"},
		{`loading matcher modules: `, "/match"},
		{`loading trusted proxies modules: `, "/trusted_proxies"},
		{`loading listener wrapper modules: `, "/listener_wrappers"},
		{`(?:route|position) (\d+): `, "/$1"},
		{`module name '([\w.-]+)': `, "/$1"},
		{`loading module '[\w.-]+': `, ""},
		{`provision [\w.]+: `, ""},
		{`[\w.]+: invalid configuration: `, ""},
		{`decoding module config: [\w.]+: `, ""},
		{`loading certificates: `, "/certificates"},
		{`loading credential source: `, "/credentials"},
		{`loading the upstream: `, "/upstreams"},
	}
}

// innerModule matches the prefixes that remain of an error after an inner module has added text of its own.
var innerModule = regexp.MustCompile(`^.*loading module '[\w.-]+': (?:provision [\w.]+: |[\w.]+: invalid configuration: |decoding module config: [\w.]+: )?`)

// nextStep cuts one of the prefixes off an error, and returns where it leads.
func nextStep(message string) (to, rest string, ok bool) {
	for _, step := range loaderSteps() {
		prefix := regexp.MustCompile(`^` + step[0])
		if match := prefix.FindStringSubmatchIndex(message); match != nil {
			return string(prefix.ExpandString(nil, step[1], message, match)), message[match[1]:], true
		}
	}
	return "", message, false
}

// loadFailure returns an error of Caddy's loader with its place, and without the loader's prefixes.
func (c *loadedConfig) loadFailure(err error) *loadError {
	pointer, message := "", err.Error()
	for {
		to, rest, ok := nextStep(message)
		if !ok {
			break
		}
		if strings.HasPrefix(to, "/apps/") {
			pointer = ""
		}
		pointer, message = pointer+to, rest
	}
	message = innerModule.ReplaceAllString(message, "")
	if pointer == "/apps/"+appName { // our app names the option that it was setting up
		for prefix, option := range map[string]string{
			"setting up redis: ": "/redis", "setting up limits: ": "/limits", "setting up credentials: ": "/credentials",
			"setting up the hop assertion: ": "/assertion", "invalid limits: ": "/limits", "invalid cache: ": "/cache",
		} {
			if strings.HasPrefix(message, prefix) {
				pointer += option
			}
		}
	}
	return &loadError{c.position(pointer, message), message, pointer}
}

func (c *loadedConfig) decodeError(err error) error {
	return &loadError{position: position{File: c.file}, message: fmt.Sprintf("decoding the configuration: %v", err)}
}

// provision builds everything that the configuration describes, without starting it, and removes it again.
func (c *loadedConfig) provision() error {
	var cfg *caddy.Config
	if err := caddy.StrictUnmarshalJSON(c.raw, &cfg); err != nil {
		return c.decodeError(err)
	}
	if err := caddy.Validate(cfg); err != nil {
		return c.loadFailure(err)
	}
	return nil
}
