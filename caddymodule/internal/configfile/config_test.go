package configfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	_ "github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/configfile"
)

// caddyfileWith returns a Caddyfile that is valid without its stores, with lines added to its parts.
func caddyfileWith(global, app, site, api string) string {
	return strings.NewReplacer("GLOBAL", global, "APP", app, "SITE", site, "API", api).Replace(`{
	admin off
	GLOBAL
	gatehouse {
		redis redis://127.0.0.1:1
		APP
	}
}

http://api.example.com:8099 {
	SITE
	gatehouse_api {
		upstream http://127.0.0.1:2
		API
	}
}
`)
}

const vaultLines = "credentials vault http://127.0.0.1:3 {\n\t\t\tauth token {env.NO_SUCH_TOKEN}\n\t\t}"

// provision builds everything that a configuration describes, without starting it, and removes it again.
func provision(c *configfile.Config) error {
	var cfg *caddy.Config
	if err := caddy.StrictUnmarshalJSON(c.Raw, &cfg); err != nil {
		return c.DecodeError(err)
	}
	if err := caddy.Validate(cfg); err != nil {
		return c.LoadError(err)
	}
	return nil
}

// An error names the file, the line and what is wrong, but no module of Caddy's loader, wherever it occurs.
func TestLoadErrorsNameFileAndLine(t *testing.T) {
	dir := t.TempDir()
	credentials := filepath.Join(dir, "keys.json")
	require.NoError(t, os.WriteFile(credentials, []byte(`{"keys":{}}`), 0o600))
	public := filepath.Join(dir, "public.json")
	require.NoError(t, os.WriteFile(public, []byte(`{"keys":{}}`), 0o600))
	require.NoError(t, os.Chmod(public, 0o644)) // whatever the umask is
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	source := "credentials file " + credentials
	imported := filepath.Join(dir, "jwks.conf")
	require.NoError(t, os.WriteFile(imported, []byte("gatehouse_health\n\ngatehouse_jwks\n"), 0o600))
	faulty := filepath.Join(dir, "faulty.json")
	require.NoError(t, os.WriteFile(faulty, []byte(`{"openapi":"2","info":{"title":"x","version":"1"},"paths":{}}`), 0o600))
	orders, err := filepath.Abs("../../../examples/orders/orders")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		caddyfile string
		want      string // after the directory
	}{
		"a matcher without a definition": {
			caddyfileWith("", source, "respond @nobody 404", ""),
			"Caddyfile:11: unrecognized matcher name: @nobody",
		},
		"a missing credential file": {
			caddyfileWith("", "credentials file /nonexistent/keys.json", "", ""),
			"Caddyfile:6: setting up credentials: reading credential file /nonexistent/keys.json: open: no such file or directory",
		},
		"a credential file that everybody reads": {
			caddyfileWith("", "credentials file "+public, "", ""),
			"Caddyfile:6: setting up credentials:",
		},
		"no credentials": {
			caddyfileWith("", "", "", ""),
			`Caddyfile:12: signed requests need credentials: set "credentials" in the global option "gatehouse"`,
		},
		"a placeholder without a value": {
			caddyfileWith("", vaultLines, "", ""),
			"Caddyfile:7: resolving {env.NO_SUCH_TOKEN}: the environment variable is not set, or is empty",
		},
		"a placeholder for a missing file": {
			caddyfileWith("", strings.Replace(vaultLines, "{env.NO_SUCH_TOKEN}", "{file./nonexistent/token}", 1), "", ""),
			"Caddyfile:7: resolving {file./nonexistent/token}: open /nonexistent/token: no such file or directory",
		},
		"a placeholder for an empty file": {
			strings.Replace(caddyfileWith("", source, "", ""), "redis://127.0.0.1:1", "redis://127.0.0.1:1 {\n\t\t\tpassword {file."+empty+"}\n\t\t}", 1),
			"Caddyfile:6: setting up redis: resolving {file." + empty + "}: the file is empty",
		},
		"an assertion key that is missing": {
			caddyfileWith("", source+"\n\t\tassertion /nonexistent/hop.pem", "", ""),
			"Caddyfile:7: setting up the hop assertion: reading a signing key: open /nonexistent/hop.pem: no such file or directory",
		},
		"signed writes with gcra": {
			caddyfileWith("", source+"\n\t\tlimits {\n\t\t\talgorithm gcra\n\t\t}", "", "definition orders "+orders+".openapi.yaml {\noverlay "+orders+".gatehouse.yaml\n}"),
			"Caddyfile:15: createCustomer would always respond with 503, because the algorithm gcra does not know which signed writes were received before",
		},
		"a definition that cannot be enforced": {
			caddyfileWith("", source, "", "definition "+faulty+" {\nmax_items 5\n}"),
			"Caddyfile:12: definition:\n" + faulty + ":1: /openapi: \"2\" is not",
		},
		"a redis URL that is wrong": {
			strings.Replace(caddyfileWith("", source, "", ""), "redis://127.0.0.1:1", "http://127.0.0.1:1", 1),
			"Caddyfile:5: setting up redis: invalid redis URL 1: must be of the form redis://[user:password@]host:port[/db]",
		},
		"the same in an imported file": {
			caddyfileWith("", source, "import "+imported, ""),
			`jwks.conf:3: gatehouse_jwks has no keys to publish: set "assertion" in the global option "gatehouse"`,
		},
		"the same in a snippet": {
			strings.Replace(caddyfileWith("", source, "import jwks", ""), "\nhttp://", "(jwks) {\n\tgatehouse_jwks\n}\nhttp://", 1),
			`Caddyfile:10: gatehouse_jwks has no keys to publish: set "assertion" in the global option "gatehouse"`,
		},
		"the second site": {
			caddyfileWith("", source, "", "") + "\nhttp://other.example.com:8099 {\n\thandle /keys {\n\t\tgatehouse_jwks\n\t}\n}\n",
			`Caddyfile:20: gatehouse_jwks has no keys to publish: set "assertion" in the global option "gatehouse"`,
		},
		"an option of a transport": {
			caddyfileWith("", source, "", "upstream events https://127.0.0.1:2 {\n\t\t\ttransport http {\n\t\t\t\ttls_trust_pool file {\n"+
				"\t\t\t\t\tpem_file /nonexistent.pem\n\t\t\t\t}\n\t\t\t}\n\t\t}"),
			"Caddyfile:17: reading /nonexistent.pem: open /nonexistent.pem: no such file or directory",
		},
		"a certificate that is missing": {
			strings.Replace(caddyfileWith("", source, "tls /nonexistent.pem /nonexistent.key", ""), "http://api", "https://api", 1),
			"Caddyfile:11: open /nonexistent.pem: no such file or directory",
		},
		"Caddy's own modules": {
			caddyfileWith("", source, "reverse_proxy /x https://127.0.0.1:2 {\n\t\ttransport http {\n\t\t\ttls_client_auth /nonexistent.crt /nonexistent.key\n\t\t}\n\t}", ""),
			"Caddyfile:13: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "Caddyfile")
			require.NoError(t, os.WriteFile(path, []byte(c.caddyfile), 0o600))
			cfg, err := configfile.Load(path, "")
			if err == nil {
				err = provision(cfg)
			}
			require.Error(t, err)
			require.Contains(t, err.Error(), "/"+c.want)
			for _, prefix := range []string{"loading module", "provision ", "route 0", "position ", "adapting config"} {
				assert.NotContains(t, err.Error(), prefix)
			}
		})
	}
}

// What is wrong with a configuration is known before it is used.
func TestInvalidConfigurationsDoNotLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(content), mode))
		require.NoError(t, os.Chmod(name, mode)) // whatever the umask is
		return name
	}
	empty := write("keys.json", `{"keys":{}}`, 0o600)
	noPEM := write("no.pem", "canary: not a key", 0o600)
	const redis = "redis redis://127.0.0.1:1\n\t\t"
	keys := "credentials file " + empty
	const api = "gatehouse_api {\n\t\tupstream http://127.0.0.1:1\n\t}"
	vault := func(address, block string) string {
		return redis + "credentials vault " + address + " {\n\t\t\t" + block + "\n\t\t}"
	}
	for name, c := range map[string]struct {
		app, site string
		words     []string
	}{
		"no auth method":                              {vault("http://127.0.0.1:1", "mount kv"), api, []string{":", "auth", "approle"}},
		"no URL of Vault":                             {vault("vault.internal", "auth token x"), api, []string{"Vault", "address"}},
		"another scheme for Vault":                    {vault("ftp://127.0.0.1", "auth token x"), api, []string{"address", "http"}},
		"a missing secret file":                       {vault("http://127.0.0.1:1", "auth token {file."+dir+"/none}"), api, []string{"no such file", "/none"}},
		"Vault's CA file is missing":                  {vault("https://127.0.0.1:1", "auth token x\n\t\t\ttls {\n\t\t\t\tca "+dir+"/none.pem\n\t\t\t}"), api, []string{"none.pem"}},
		"Vault's CA file is not PEM":                  {vault("https://127.0.0.1:1", "auth token x\n\t\t\ttls {\n\t\t\t\tca "+noPEM+"\n\t\t\t}"), api, []string{"no.pem"}},
		"TLS settings without https":                  {vault("http://127.0.0.1:1", "auth token x\n\t\t\ttls {\n\t\t\t\tserver_name x\n\t\t\t}"), api, []string{"https"}},
		"a mount that leaves its path":                {vault("http://127.0.0.1:1", "auth token x\n\t\t\tmount ../sys"), api, []string{"mount"}},
		"Redis's CA file is missing":                  {"redis rediss://127.0.0.1:1 {\n\t\t\ttls {\n\t\t\t\tca " + dir + "/none.pem\n\t\t\t}\n\t\t}\n\t\t" + keys, api, []string{"redis", "none.pem"}},
		"a mount with the API's /data":                {vault("http://127.0.0.1:1", "auth token x\n\t\t\tmount kv/data"), api, []string{"mount", "without /data"}},
		"an address with the API's /v1":               {vault("http://127.0.0.1:1/v1/", "auth token x"), api, []string{"address", "/v1"}},
		"options of Redis in its URL":                 {"redis rediss://127.0.0.1:1?skip_verify=true\n\t\t" + keys, api, []string{"redis URL 1", "only db"}},
		"no URL of Redis":                             {"redis canary-host:6379\n\t\t" + keys, api, []string{"redis", "redis://"}},
		"several Redis without a topology":            {"redis redis://127.0.0.1:1 redis://127.0.0.1:2\n\t\t" + keys, api, []string{"cluster", "sentinel"}},
		"a Redis URL with a password":                 {"redis redis://u:canary-password@[::1\n\t\t" + keys, api, []string{"redis"}},
		"a missing assertion key":                     {redis + keys + "\n\t\tassertion " + dir + "/none.pem", api, []string{"signing key", "none.pem"}},
		"an invalid assertion key":                    {redis + keys + "\n\t\tassertion " + noPEM, api, []string{"signing key", "no.pem"}},
		"no credential file":                          {redis + "credentials file " + dir + "/none.json", api, []string{"none.json"}},
		"a credential file readable by others":        {redis + "credentials file " + write("open.json", `{"keys":{}}`, 0o644), api, []string{"open.json", "must be 0600"}},
		"a credential file that is a folder":          {redis + "credentials file " + dir, api, []string{"credential file"}},
		"no credentials":                              {redis, api, []string{"credentials"}},
		"no store for the limits":                     {keys, api, []string{"redis"}},
		"a limit out of range":                        {redis + keys + "\n\t\tlimits {\n\t\t\tper_key 99999999999\n\t\t}", api, []string{"limit"}},
		"refresh_before above ttl":                    {redis + keys + "\n\t\tcache {\n\t\t\tttl 1s\n\t\t\trefresh_before 1m\n\t\t}", api, []string{"refresh"}},
		"the gateway twice":                           {redis + keys + "\n\t}\n\tgatehouse {\n\t\t" + redis + keys, api, []string{"duplicate"}},
		"an upstream without an address":              {redis + keys, "gatehouse_api {\n\t\tupstream\n\t}", []string{"Caddyfile:", "address"}},
		"an unknown resource":                         {redis + keys, "gatehouse_api {\n\t\tupstream http://127.0.0.1:1\n\t\tdeprecated evnts 2027-01-01\n\t}", []string{"evnts", "events"}},
		"an upstream that sets the caller's identity": {redis + keys, "gatehouse_api {\n\t\tupstream http://127.0.0.1:1 {\n\t\t\theader_up X-Business-Id 1\n\t\t}\n\t}", []string{"X-Business-Id"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "Caddyfile")
			caddyfile := "{\n\tadmin off\n\tgatehouse {\n\t\t" + c.app + "\n\t}\n}\n\nhttp://api.example.com:8099 {\n\t" + c.site + "\n}\n"
			require.NoError(t, os.WriteFile(path, []byte(caddyfile), 0o600))
			cfg, err := configfile.Load(path, "")
			if err == nil {
				err = provision(cfg)
			}
			require.Error(t, err)
			for _, word := range c.words {
				assert.Contains(t, err.Error(), word)
			}
			assert.NotContains(t, err.Error(), "canary")
		})
	}
}

// An error in a JSON configuration has a JSON pointer.
func TestLoadErrorInJSONHasPointer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "caddy.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"apps":{"http":{"servers":{"api":{"listen":["127.0.0.1:0"],"routes":[{},{"handle":[
		{"handler":"vars"},{"handler":"gatehouse_jwks"}]}]}}}}}`), 0o600))
	cfg, err := configfile.Load(path, "")
	require.NoError(t, err)
	err = provision(cfg)
	require.Error(t, err)
	assert.Equal(t, path+`: /apps/http/servers/api/routes/1/handle/1: gatehouse_jwks has no keys to publish: set "assertion" in the global option "gatehouse"`, err.Error())
}
