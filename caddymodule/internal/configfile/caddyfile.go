package configfile

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// directive is a line of a Caddyfile: a directive or option, its arguments and its block.
type directive struct {
	name     string
	args     []string
	file     string
	line     int
	children []*directive
}

// readDirectives parses the Caddyfile, with its imports and snippets in place.
func (c *Config) readDirectives() error {
	input, err := os.ReadFile(c.File)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	blocks, err := caddyfile.Parse(c.File, input)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	c.global = new(directive)
	for i, b := range blocks {
		block := &directive{name: "site", file: c.File, line: 1}
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
