package configfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Position is a place in a configuration.
type Position struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`    // of a Caddyfile, from 1
	Pointer string `json:"pointer,omitempty"` // a JSON pointer, if there is no line
}

func (p Position) String() string {
	switch {
	case p.Line > 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	case p.Pointer != "":
		return p.File + ": " + p.Pointer
	}
	return p.File
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
		"reverse_proxy":          {"reverse_proxy", "php_fastcgi", "forward_auth"},
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

// Position returns the place of a value of the configuration: in a Caddyfile, the line of the directive that set it, or a line of
// its block if the message about the value quotes an argument or a name on that line.
func (c *Config) Position(pointer, message string) Position {
	if c.global == nil {
		return Position{File: c.File, Pointer: pointer}
	}
	type word struct {
		names []string
		nth   int
	}
	var (
		words   []word
		hosts   []string
		handler string
		value   = c.Value
		steps   = strings.Split(strings.TrimPrefix(pointer, "/"), "/")
		isSite  bool
	)
	for i, step := range steps {
		value = Member(value, step)
		n, err := strconv.Atoi(step)
		switch {
		case err == nil && len(words) > 0 && (i == 0 || steps[i-1] != "handle" && steps[i-1] != "routes"):
			words[len(words)-1].nth = n
		case err != nil && step != "apps" && step != "http" && step != "handle" && step != "routes" && step != "handler":
			words = append(words, word{names: directivesOf(step)})
		}
		switch {
		case step == "routes", step == "named_routes":
			isSite = true
		case i > 0 && steps[i-1] == "logger_names":
			isSite, hosts = true, []string{step}
		case i > 0 && steps[i-1] == "tls_connection_policies":
			isSite = true
			names, _ := Member(value, "match", "sni").([]any)
			for _, name := range names {
				hosts = append(hosts, fmt.Sprint(name))
			}
		}
		if found := HostsOf(value); found != nil {
			hosts = found
		}
		isStep := i > 0 && steps[i-1] == "handle" // and not a part of another handler
		if name, _ := Member(value, "handler").(string); name != "" && name != "subroute" && (handler == "" || isStep) {
			handler = name
			words = []word{{directivesOf(name), c.nth(strings.Join(steps[:i+1], "/"), name, hosts)}}
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
		return Position{File: c.File, Line: 1}
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
	return Position{File: at.file, Line: at.line}
}

// quoted reports whether a message quotes an argument, such as a path or a placeholder.
func (d *directive) quoted(message string) bool {
	return slices.ContainsFunc(d.args, func(arg string) bool {
		return len(arg) > 3 && strings.ContainsAny(arg, "/.:{") && strings.Contains(message, arg)
	})
}

// nth returns the number of handlers with the same name that precede a handler in its site.
func (c *Config) nth(path, name string, hosts []string) int {
	n := 0
	for _, h := range c.Handlers() {
		isCopied := name == "headers" && strings.Contains(h.Pointer, "/handle_response/") // by forward_auth, which has no line for each
		if h.Name == name && slices.Equal(h.Hosts, hosts) && !isCopied {
			if strings.TrimPrefix(h.Pointer, "/") == path {
				return n
			}
			n++
		}
	}
	return 0
}
