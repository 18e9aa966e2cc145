package caddymodule

import (
	"fmt"
	"os"
	"regexp"

	"github.com/caddyserver/caddy/v2"
)

// resolve replaces the placeholders in each field. A placeholder without a value is an error.
func resolve(repl *caddy.Replacer, fields ...*string) error {
	for _, f := range fields {
		v, err := repl.ReplaceOrErr(*f, true, true)
		if err != nil {
			return placeholderError(*f, err)
		}
		*f = v
	}
	return nil
}

// placeholderError says why a placeholder in a field has no value. Caddy says only that it is empty.
func placeholderError(field string, err error) error {
	for _, m := range regexp.MustCompile(`\{(file|env)\.([^{}]+)\}`).FindAllStringSubmatch(field, -1) {
		placeholder, kind, name := m[0], m[1], m[2]
		if kind == "env" {
			if os.Getenv(name) == "" {
				return fmt.Errorf("resolving %s: the environment variable is not set, or is empty", placeholder)
			}
			continue
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("resolving %s: %w", placeholder, err)
		}
		if len(content) == 0 {
			return fmt.Errorf("resolving %s: the file is empty", placeholder)
		}
	}
	return fmt.Errorf("resolving a placeholder: %w", err)
}
