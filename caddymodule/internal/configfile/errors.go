package configfile

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Error is an error with its place in a configuration.
type Error struct {
	Position

	Message string
	Value   string // the JSON pointer of the value, if it is known
}

func (e *Error) Error() string { return e.Position.String() + ": " + e.Message }

// ErrorAt returns an error about the value with a JSON pointer.
func (c *Config) ErrorAt(pointer string, err error) error {
	return &Error{c.Position(pointer, err.Error()), err.Error(), pointer}
}

// DecodeError returns an error that occurred while the whole configuration was decoded.
func (c *Config) DecodeError(err error) error {
	return &Error{Position: Position{File: c.File}, Message: fmt.Sprintf("decoding the configuration: %v", err)}
}

var (
	adaptedAt  = regexp.MustCompile(`(?s)^(.*), at (.+?):(\d+)(?: import chain.*)?$`)
	adaptedIn  = regexp.MustCompile(`^(.+?):(\d+)(?:: | - )(.*)$`)
	adaptSteps = regexp.MustCompile(`^(adapting config using [\w-]+: |parsing caddyfile tokens for '[^']*': |server block \d+, key \d+ \([^)]*\): )+`)
)

// adaptError returns an error of a config adapter as an [Error], if it says that the content is wrong.
func adaptError(file string, err error) error {
	text := err.Error()
	rest := adaptSteps.ReplaceAllString(text, "")
	if rest == text {
		if strings.HasPrefix(text, "config is not valid JSON") {
			return &Error{Position: Position{File: file}, Message: text}
		}
		return err
	}
	at, message := Position{File: file}, rest
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
	return &Error{Position: at, Message: message}
}

// matcherUse returns the position of the first directive with the matcher, or the file's if there is none.
func matcherUse(file, matcher string) Position {
	c := &Config{File: file}
	if err := c.readDirectives(); err != nil {
		return Position{File: file}
	}
	for _, site := range c.sites {
		for d := range site.all() {
			if len(d.args) > 0 && d.args[0] == matcher {
				return Position{File: d.file, Line: d.line}
			}
		}
	}
	return Position{File: file}
}

// loaderSteps are the prefixes that Caddy's loader and our modules' Provision add to an error, and where they lead in the
// configuration.
func loaderSteps() [][2]string {
	return [][2]string{
		{`loading (?:initial |new )?config: `, ""},
		{`loading the app "\w+": `, ""},
		{`getting \w+ app: `, ""},
		{`loading (\w+) app module: `, "/apps/$1"}, // from the root again, since apps load each other
		{`server (\w+): setting up named route '(\w+)' handlers: `, "/servers/$2/named_routes/$1"}, // Caddy has their names in this order
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

// LoadError returns an error of Caddy's loader with its place, and without the loader's prefixes.
func (c *Config) LoadError(err error) *Error {
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
	if pointer == "/apps/gatehouse" { // our app names the option that it was setting up
		for prefix, option := range map[string]string{
			"setting up redis: ": "/redis", "setting up limits: ": "/limits", "setting up credentials: ": "/credentials",
			"setting up the hop assertion: ": "/assertion", "invalid limits: ": "/limits", "invalid cache: ": "/cache",
		} {
			if strings.HasPrefix(message, prefix) {
				pointer += option
			}
		}
	}
	return &Error{c.Position(pointer, message), message, pointer}
}
