package caddymodule_test

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A configuration in JSON does not pass the Caddyfile's parser.
func TestExceptAreasInJSONAreChecked(t *testing.T) {
	const config = `{"admin":{"disabled":true},"apps":{"gatehouse":{"redis":{"urls":["redis://127.0.0.1:1"]}},"http":{"servers":{"s":{` +
		`"listen":["127.0.0.1:0"],"routes":[{"handle":[{"handler":"gatehouse_connect","issuer":"http://localhost","except_areas":AREAS,` +
		`"upstream":{"handler":"reverse_proxy","upstreams":[{"dial":"127.0.0.1:1"}]}}]}]}}}}}`
	for areas, want := range map[string]string{
		`null`:                    "",
		`[]`:                      "",
		`["sales","automations"]`: "",
		`["inbox"]`:               `except_areas: unknown area "inbox": must be one of business, contacts, conversations`,
		`["sales","Automations"]`: `except_areas: unknown area "Automations": must be one of business`,
		`["sales","sales:read"]`:  `except_areas: unknown area "sales:read"`,
		`["business","contacts","conversations","appointments","receptionist","sales","automations","objects"]`: "at least one must remain",
	} {
		t.Run(areas, func(t *testing.T) {
			var cfg *caddy.Config
			require.NoError(t, caddy.StrictUnmarshalJSON([]byte(strings.Replace(config, "AREAS", areas, 1)), &cfg))
			err := caddy.Validate(cfg)
			if want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, want)
		})
	}
}
