// Package configfile reads configurations for commands, and finds the place in a configuration, such as a line of a Caddyfile,
// that an error or a finding is about. Caddy's configuration and errors have no places, so they are found by the names of
// modules, directives and arguments; where that fails, the place is the file.
package configfile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

// ErrNotFound is returned if there is no configuration file.
var ErrNotFound = errors.New("no configuration found: set --config, or add a Caddyfile to the current directory")

// Config is a configuration and, if it came from a Caddyfile, where its directives are.
type Config struct {
	File  string
	Raw   json.RawMessage
	Value any // Raw, decoded

	global *directive   // nil: not a Caddyfile
	sites  []*directive // their arguments are the addresses
}

// Load reads and adapts a configuration file. If the content is wrong, the error is an [Error].
func Load(file, adapter string) (*Config, error) {
	raw, name, used, err := caddycmd.LoadConfig(file, adapter)
	if err != nil {
		return nil, adaptError(cmp.Or(file, "Caddyfile"), err)
	}
	if raw == nil {
		return nil, ErrNotFound
	}
	c := &Config{File: name, Raw: caddy.RemoveMetaFields(raw)}
	if err := json.Unmarshal(c.Raw, &c.Value); err != nil {
		return nil, fmt.Errorf("reading the configuration %s: %w", name, err)
	}
	if used == "caddyfile" && name != "-" { // standard input cannot be read again
		if err := c.readDirectives(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// GlobalOptions returns the arguments of each global option with the name, or nil if the configuration is not a Caddyfile.
func (c *Config) GlobalOptions(name string) [][]string {
	if c.global == nil {
		return nil
	}
	var all [][]string
	for _, option := range c.global.children {
		if option.name == name {
			all = append(all, option.args)
		}
	}
	return all
}
