package caddymodule_test

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// validateConnect provisions a gatehouse_connect with further members.
func validateConnect(t *testing.T, members string) error {
	t.Helper()
	const config = `{"admin":{"disabled":true},"apps":{"gatehouse":{"redis":{"urls":["redis://127.0.0.1:1"]}},"http":{"servers":{"s":{` +
		`"listen":["127.0.0.1:0"],"routes":[{"handle":[{"handler":"gatehouse_connect","issuer":"http://localhost",MEMBERS,` +
		`"upstream":{"handler":"reverse_proxy","upstreams":[{"dial":"127.0.0.1:1"}]}}]}]}}}}}`
	var cfg *caddy.Config
	require.NoError(t, caddy.StrictUnmarshalJSON([]byte(strings.Replace(config, "MEMBERS", members, 1)), &cfg))
	return caddy.Validate(cfg)
}

// A configuration in JSON does not pass the Caddyfile's parser.
func TestExceptAreasInJSONAreChecked(t *testing.T) {
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
			err := validateConnect(t, `"except_areas":`+areas)
			if want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, want)
		})
	}
}

// Two platforms number their businesses alike.
func TestConnectionServersWithDifferentUpstreamsDoNotLoad(t *testing.T) {
	const other = `"home_page":true,"upstream":{"handler":"reverse_proxy","upstreams":[{"dial":"127.0.0.1:PORT"}]}},{"handler":"gatehouse_connect","issuer":"http://127.0.0.1"`
	assert.NoError(t, validateConnect(t, strings.Replace(other, "PORT", "1", 1)))
	assert.ErrorContains(t, validateConnect(t, strings.Replace(other, "PORT", "2", 1)), "all gatehouse_connect must have the same upstream")
}

func TestBrandIsCheckedWhenTheConfigurationLoads(t *testing.T) {
	for members, want := range map[string]string{
		`"name":"Harbour","accent_color":"#7a1fa2","accent_color_dark":"#d7a6f0","support_url":"mailto:help@harbour.example","home_page":true`: "",
		`"accent_color":"#d7a6f0"`:                             `gatehouse_connect: invalid accent_color "#d7a6f0": its contrast with the background #f3f5f6 is 1.`,
		`"accent_color_dark":"#7a1fa2"`:                        `invalid accent_color_dark "#7a1fa2": its contrast with the background #172027 is 2.`,
		`"logo":"nowhere.png"`:                                 "gatehouse_connect: invalid logo: stat nowhere.png: no such file or directory",
		`"terms_url":"javascript:x"`:                           `gatehouse_connect: invalid terms_url "javascript:x": must be an https URL`,
		`"name":"a long name ` + strings.Repeat("x", 64) + `"`: "gatehouse_connect: invalid name",
	} {
		t.Run(members, func(t *testing.T) {
			err := validateConnect(t, members)
			if want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, want)
		})
	}
}
