package check_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/caddymodule"
	_ "github.com/gatehouse-gateway/gatehouse/caddymodule/cli"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/check"
	"github.com/gatehouse-gateway/gatehouse/docs"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// soundCaddyfile has no findings without probes. DIR has the credential file.
const soundCaddyfile = `{
	admin localhost:2019
	servers {
		trusted_proxies static 10.0.0.0/8
		trusted_proxies_strict
		listener_wrappers {
			gatehouse_drain
		}
		timeouts {
			read_header 5s
			read_body 15s
			write 30s
			idle 2m
		}
	}
	gatehouse {
		redis redis://localhost:1
		credentials file DIR/keys.json
	}
}

https://api.example.com {
	tls internal
	gatehouse_connect {
		issuer https://api.example.com
		upstream http://localhost:2
	}
	gatehouse_api {
		upstream http://localhost:3
	}
}

http://, https:// {
	gatehouse_errors
}
`

// filteredLog is the global option that GH072 asks for, in front of those of soundCaddyfile.
const filteredLog = "{\n\tlog {\n\t\tformat filter {\n\t\t\trequest>uri regexp [?].* \"\"\n\t\t\trequest>headers delete\n\t\t\terror delete\n\t\t}\n\t}\n\tadmin"

// runCheck runs `gatehouse check` and returns what it prints and its exit status.
func runCheck(t *testing.T, args ...string) (stdout, stderr, status string) {
	t.Helper()
	cmd := &cobra.Command{Use: "check"}
	caddycmd.Commands()["check"].CobraFunc(cmd)
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	status = "0"
	if err := cmd.Execute(); err != nil {
		status = strings.TrimPrefix(err.Error(), "exiting with status ")
	}
	return out.String(), errs.String(), status
}

// ruleIDs returns the rules that docs/check.md describes.
func ruleIDs() (ids []string) {
	for _, m := range regexp.MustCompile(`(?m)^\| (GH\d{3}) `).FindAllStringSubmatch(docs.Check, -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// checkFile checks a Caddyfile in a directory with a credential file, in which DIR stands for the directory.
func checkFile(t *testing.T, caddyfile string, args ...string) (found []check.Finding, status string) {
	t.Helper()
	dir := t.TempDir()
	const record = `"private_key":"s3cret-0123456789abcdef0123456789abcdef","business_id":"b","business_name":"B","business_slug":"b","status":"active"`
	for name, content := range map[string]string{
		"keys.json":      `{"keys":{"pk_live_0123456789":{` + record + `,"resources":["shop","orders/5"]}}}`,
		"malformed.json": `{"keys":{"pk_live_0123456789":{"status":"active"}}}`,
		"unknown.json":   `{"keys":{"pk_live_0123456789":{` + record + `,"ressources":["jobs"]}}}`,
		"newer.json":     `{"keys":{"pk_live_0123456789":{` + record + `,"format":1,"team":"billing"}}}`,
		"refunds.json": `{"openapi":"3.1.0","info":{"title":"x","version":"1"},"servers":[{"url":"/v1"}],"x-gatehouse-tenant":"request","paths":{"/all":{"get":{
			"operationId":"listAll","responses":{"200":{"description":"","content":{"application/json":{"schema":{"type":"object","properties":{"n":{"type":"integer"}}}}}}}}}}}`,
		"public.json": `{"openapi":"3.1.0","info":{"title":"x","version":"1"},"servers":[{"url":"/api/v1"}],"x-gatehouse-tenant":"none","paths":{"/hours":{"get":{
			"operationId":"getHours","x-gatehouse-public":true,"responses":{"200":{"description":"","content":{"application/json":{"schema":{"type":"object","properties":{"n":{"type":"integer"}}}}}}}}}}}`,
		"mapped.json": `{"openapi":"3.1.0","info":{"title":"x","version":"1"},"servers":[{"url":"/api/v1"}],"x-gatehouse-tenant":"request","x-gatehouse-upstream":{"headers":{"X-Account":"{business}"}},
			"paths":{"/all":{"get":{"operationId":"listAll","responses":{"200":{"description":"","content":{"application/json":{"schema":{"type":"object","properties":{"n":{"type":"integer"}}}}}}}}}}}`,
		"tagged.json": `{"openapi":"3.1.0","info":{"title":"x","version":"1"},"servers":[{"url":"/v1"}],"x-gatehouse-tenant":"request","paths":{"/all/{id}":{"delete":{
			"operationId":"deleteOne","parameters":[{"name":"id","in":"path","required":true,"schema":{"type":"string"}},{"name":"If-Match","in":"header","schema":{"type":"string"}}],
			"responses":{"204":{"description":""}}}}}}`,
		"expired.json": `{"keys":{"pk_live_0123456789":{` + record + `,"expires_at":"2020-01-01T00:00:00Z"}}}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	writeCertificate(t, filepath.Join(dir, "other"), "other.example.com", time.Hour)
	writeCertificate(t, filepath.Join(dir, "expired"), "api.example.com", -time.Hour)
	writeCertificate(t, filepath.Join(dir, "readable"), "other.example.com", time.Hour)
	require.NoError(t, os.Chmod(filepath.Join(dir, "readable.key"), 0o644))
	path := filepath.Join(dir, "Caddyfile")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(caddyfile, "DIR", dir)), 0o600))
	stdout, stderr, status := runCheck(t, append([]string{"--json", "--config", path}, args...)...)
	require.Empty(t, stderr)
	var result struct {
		Findings []check.Finding `json:"findings"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &result), stdout)
	for _, f := range result.Findings {
		require.NotContains(t, f.Message, "s3cret")
	}
	return result.Findings, status
}

// writeCertificate writes a certificate and its key, which is also one for assertions. It names OCSP responders, if there are any.
func writeCertificate(t *testing.T, path, host string, lifetime time.Duration, ocsp ...string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotAfter: time.Now().Add(lifetime), OCSPServer: ocsp, IssuingCertificateURL: ocsp}
	cert, err := x509.CreateCertificate(nil, template, template, public, private)
	require.NoError(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	require.NoError(t, os.WriteFile(path+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
}

// mistakes are changes to soundCaddyfile: the rule that finds each, the text that it replaces, and the new text, in which HERE
// marks the line of the finding.
func mistakes() [][3]string {
	const (
		site    = "https://api.example.com {\n\ttls internal\n"
		shop    = "https://shop.example.com {\n\ttls internal\n"
		redis   = "redis redis://localhost:1\n"
		keys    = "credentials file DIR/keys.json\n"
		api     = "\tgatehouse_api {\n\t\tupstream http://localhost:3\n"
		issuer  = "issuer https://api.example.com\n"
		options = "upstream http://localhost:3\n"
		global  = "\tadmin localhost:2019\n"
	)
	return [][3]string{
		// found by adapting the Caddyfile; testdata/adapt/errors.txt has all of these errors
		{"GH001", options, options + "timeout never # HERE\n"},
		{"GH001", "gatehouse_connect {\n\t\t" + issuer, "gatehouse_connect { # HERE\n"},
		{"GH001", site, site + "gatehouse_health /healthz/* now # HERE\n"},
		{"GH001", site, site + "gatehouse_apis # HERE\n"},
		{"GH001", global, global + "gatehause { # HERE\n}\n"},
		// found by building the modules
		{"GH001", redis, "redis http://localhost:1 # HERE\n"},
		{"GH001", redis, "redis redis://localhost:1 redis://localhost:2 # HERE\n"},
		{"GH001", redis, ""},
		{"GH001 online", redis, "redis redis://localhost:1 {\npassword {file.DIR/missing} # HERE\n}\n"},
		{"GH001 online", keys, "credentials file DIR/missing.json # HERE\n"},
		{"GH001", keys, "credentials vault localhost:4 { # HERE\nauth token {env.HOME}\n}\n"},
		{"GH001 online", keys, keys + "assertion DIR/missing.pem # HERE\n"},
		{"GH001", keys, keys + "assertion DIR/Caddyfile # HERE\n"},
		{"GH001", issuer, "issuer http://api.example.com # HERE\n"},
		{"GH001", site, site + "gatehouse_jwks # HERE\n"},
		{"GH001", api + "\t}\n", "route {\n" + api + "}\n} # HERE\n"},
		{"GH001", options, "upstream http://localhost:3 { # HERE\nhealth_uri /healthz\nhealth_body (\n}\n"},

		{"GH002", issuer, "issuer https://auth.example.com # HERE\n"},
		{"GH002", issuer, "issuer https://api.example.com:8443 # HERE\n"},
		{"GH003", api, "handle /gw/* { # HERE\ngatehouse_api {\n" + options + "}\n}\nhandle {\nrespond /x x\n"},
		{"GH003", api, "gatehouse_api /gw/* { # HERE\n" + options},
		{"GH003", api, "gatehouse_api /api/v1/* { # HERE\nbase_path /gw\n" + options},
		{"GH003", api, "gatehouse_api /api/v1/ { # HERE\n" + options},
		{"GH003", api, "handle /api/v1/ { # HERE\ngatehouse_api {\n" + options + "}\n"},
		{"GH003", api, "handle /api/v1/events* { # HERE\ngatehouse_api {\n" + options + "}\n"},
		{"GH003", api, "@m path_regexp ^/api/v2/ # HERE\ngatehouse_api @m {\n" + options},
		{"GH003", api, "@m not path /api/* # HERE\ngatehouse_api @m {\n" + options},
		{"GH003", api, "@m host typo.example # HERE\ngatehouse_api @m {\n" + options},
		{"GH003", api, "@m method POST\ngatehouse_api @m { # HERE\n" + options},
		{"GH003", site, "https://api.example.com/api/v2/* {\ntls internal\n"},
		{"GH003", site, site + "handle /api/* { # HERE\ngatehouse_health\n}\n"},
		{"GH003", site, site + "gatehouse_health /health # HERE\n"},
		{"GH003", "gatehouse_connect {", "gatehouse_connect /mcp* { # HERE"},
		{"GH003", "gatehouse_connect {\n\t\tissuer https://api.example.com\n\t\tupstream http://localhost:2\n\t}", "handle_path /assistant/* { # HERE\ngatehouse_connect {\nissuer https://api.example.com\nupstream http://localhost:2\n}\n}"},
		{"GH004", site, site + "gatehouse_health\nhandle {\nrespond no # HERE\n}\n"},
		{"GH004", site, site + "redir /sign-in https://www.example.com/ # HERE\n"},
		{"GH004", site, site + "handle /mcp {\nrespond 404 # HERE\n}\n"},
		{"GH004", api, "handle /api/* { # HERE\nheader X-Seen yes\n}\nhandle /api* {\ngatehouse_api {\n" + options + "}\n"},
		{"GH004", global, global + "order gatehouse_api first\n"},
		{"GH004", site, site + "respond \"Hello\" # HERE\n"},
		{"GH004", site, site + "file_server # HERE\n"},
		{"GH004", site, site + "reverse_proxy /api/* localhost:5 { # HERE\nheader_up -X-*\n}\n"},
		{"GH004", site, site + "redir https://www.example.com{uri} # HERE\n"},
		{"GH004", site, site + "reverse_proxy /api/* localhost:5 { # HERE\nheader_up -X-*\n@down status 500\nhandle_response @down {\nrespond down 503\n}\n}\n"},
		{"GH004", site, shop + "route {\nreverse_proxy localhost:5 {\nheader_up -X-*\n@down status 500\nhandle_response @down {\nrespond down 503\n}\n}\ngatehouse_auth shop # HERE\nreverse_proxy localhost:5\n}\n}\n" + site},
		// handlers for responses
		{"GH003", site, shop + "reverse_proxy /a/* localhost:9 {\nmethod GET\nrewrite /check\n@ok status 2xx\nhandle_response @ok {\ngatehouse_auth shop { # HERE\nbase_path /b\n}\nreverse_proxy localhost:5\n}\n}\n}\n" + site},
		{"GH004", site, site + "handle /api/v1/events {\nrespond no # HERE\n}\n"},
		// a host that is known when the gateway starts
		{"GH004", site, "https://{env.CHECK_HOST} {\ntls internal\nrespond hello # HERE\ngatehouse_api {\nupstream http://localhost:3\n}\n}\n" + site},
		// two handlers for the same paths of one site
		{"GH004", api, api + "}\ngatehouse_api { # HERE\nupstream http://localhost:4\n"},
		{"GH004", api, "handle /api/* {\n" + api + "}\n}\nhandle /api/* {\ngatehouse_api { # HERE\nupstream http://localhost:4\n}\n"},
		{"GH004", api, "handle /api/* {\n" + api + "}\n}\nhandle /api* {\ngatehouse_api { # HERE\nupstream http://localhost:4\n}\n"},
		{"GH004", site, site + "gatehouse_health /healthz\ngatehouse_health /health* # HERE\n"},
		{"GH005", "write 30s", "write 12s # HERE"},
		{"GH005", options, options + "timeout 40s\n"},
		// handlers of named routes
		{"GH001", soundCaddyfile, strings.NewReplacer(api+"\t}\n", "invoke /api/* api\n").Replace(soundCaddyfile) + "&(api) {\n" + strings.Replace(api, "localhost:3", "localhost:3 { # HERE\nhealth_uri /healthz\nhealth_body (\n}", 1) + "}\n}\n"},
		{"GH003", soundCaddyfile, strings.NewReplacer(api+"\t}\n", "handle /gw/* {\ninvoke api\n}\n").Replace(soundCaddyfile) + "&(api) {\ngatehouse_api { # HERE\n" + options + "}\n}\n"},
		{"GH005", soundCaddyfile, strings.NewReplacer(api+"\t}\n", "invoke /api/* api\n", "write 30s", "write 15s # HERE", "issuer https://api.example.com\n", "issuer https://api.example.com\ntimeout 9s\n").Replace(soundCaddyfile) + "&(api) {\n" + api + "timeout 20s\n}\n}\n"},
		{"GH015", soundCaddyfile, strings.NewReplacer(api+"\t}\n", "invoke /api/* a\n").Replace(soundCaddyfile) + "&(a) {\ninvoke b\n}\n&(b) {\ngatehouse_api {\nupstream https://localhost:3 {\ntransport http {\ntls_insecure_skip_verify # HERE\n}\n}\n}\n}\n"},
		{"GH062", soundCaddyfile, strings.NewReplacer(api, "invoke /old/* old\n"+api).Replace(soundCaddyfile) + "&(old) {\nreverse_proxy localhost:5 # HERE\n}\n"},
		{"GH010", global, global + "grace_period 12s # HERE\n"},
		{"GH006", "read_body 15s", "read_body 3s # HERE"},
		{"GH006", soundCaddyfile, strings.NewReplacer("trusted_proxies static 10.0.0.0/8", "client_ip_headers X-Real-IP # HERE", "trusted_proxies_strict", "").Replace(soundCaddyfile)},
		{"GH006", "gatehouse_drain\n", "proxy_protocol # HERE\ntls\ngatehouse_drain\n"},
		{"GH006", global, global + "servers :8443 { # HERE\n}\n"},
		{"GH006", options, "upstream http://localhost:3 {\nlb_try_duration 1m # HERE\n}\n"},
		{"GH006", options, "upstream http://localhost:3 {\ntransport http {\ndial_timeout 1m # HERE\n}\n}\n"},
		{"GH006", options, "upstream http://localhost:3 {\nhealth_interval 5s # HERE\n}\n"},
		{"GH007", "static 10.0.0.0/8", "static 0.0.0.0/0 # HERE"},
		{"GH007", "static 10.0.0.0/8", "static 10.0.0.0/8 ::/0 # HERE"},
		{"GH007", "static 10.0.0.0/8", "static 10.0.0.0/1 # HERE"},
		{"GH007", "gatehouse_drain\n", "proxy_protocol {\nallow 0.0.0.0/0 # HERE\n}\ntls\ngatehouse_drain\n"},
		{"GH007", "gatehouse_drain\n", "proxy_protocol {\nfallback_policy use # HERE\n}\ntls\ngatehouse_drain\n"},
		{"GH007", "gatehouse_drain\n", "proxy_protocol {\nallow 10.0.0.0/8\nfallback_policy require # HERE\n}\ntls\ngatehouse_drain\n"},
		{"GH070", "gatehouse_drain\n", "proxy_protocol { # HERE\nallow 10.0.0.0/8\n}\ngatehouse_drain\n"},
		{"GH008", "static 10.0.0.0/8\n\t\ttrusted_proxies_strict", "static 10.0.0.0/8 # HERE"},
		{"GH008", "trusted_proxies static 10.0.0.0/8\n\t\ttrusted_proxies_strict", "trusted_proxies_unix # HERE\nclient_ip_headers X-Real-IP"},
		{"GH009", "http://, https:// {\n\tgatehouse_errors", "http:// {\n\tgatehouse_errors"},
		{"GH010", "listener_wrappers {\n\t\t\tgatehouse_drain\n\t\t}\n", ""},
		{"GH011", "admin localhost:2019", "admin 0.0.0.0:2019 # HERE"},
		{"GH011", "admin localhost:2019", "admin :2019 # HERE"},
		{"GH011", "admin localhost:2019", "admin unix//tmp/admin.sock|0777 # HERE"},
		{"GH011", "admin localhost:2019", "admin unix//tmp/admin.sock|0602 # HERE"},
		{"GH011", "upstream http://localhost:3", "upstream http://localhost:2019 # HERE"},
		{"GH011", "upstream http://localhost:2", "upstream http://localhost:2019 # HERE"},
		{"GH011", soundCaddyfile, strings.NewReplacer("localhost:2019", "unix//tmp/admin.sock|0660", "upstream http://localhost:3", "upstream unix//tmp/admin.sock # HERE").Replace(soundCaddyfile)},
		{"GH011", site, site + "reverse_proxy /config/* localhost:2019 { # HERE\nheader_up -X-*\n}\n"},
		{"GH012", redis, "redis redis://localhost:1 {\npassword s3cret # HERE\n}\n"},
		{"GH012", redis, "redis redis://localhost:1 {\npassword s3cret{0 # HERE\n}\n"},
		{"GH012", redis, "redis redis://localhost:1 {\npassword s3cret\\{0} # HERE\n}\n"},
		{"GH012", redis, "redis redis://:s3cret@localhost:1 # HERE\n"},
		{"GH012", redis, "redis redis://localhost:1 {\nsentinel gatehouse gateway s3cret # HERE\n}\n"},
		{"GH012", keys, "credentials vault https://localhost:4 {\nauth token s3cret # HERE\n}\n"},
		{"GH012", keys, "credentials vault https://localhost:4 {\nauth approle role s3cret # HERE\n}\n"},
		{"GH012", options, "upstream http://localhost:3 {\nheader_up Authorization s3cret # HERE\n}\n"},
		{"GH012", options, "upstream http://localhost:3 {\nheader_up Cookie session=s3cret # HERE\n}\n"},
		{"GH012", options, "upstream http://localhost:3 {\nheader_up X-Api-Key s3cret # HERE\n}\n"},
		{"GH013", redis, "redis redis://redis.internal # HERE\n"},
		{"GH013", keys, "credentials vault http://10.0.0.7:8200 { # HERE\nauth token {env.T}\n}\n"},
		{"GH014", redis, "redis redis://203.0.113.7:6379 # HERE\n"},
		{"GH015", options, "upstream https://localhost:3 {\ntransport http {\ntls_insecure_skip_verify # HERE\n}\n}\n"},
		{"GH016", options, "upstream https://data.internal:3 # HERE\n"},
		{"GH017", site, site + "handle_errors {\nrespond \"Sorry\" 200 # HERE\n}\n"},
		{"GH018", site, site + "log # HERE\n"},
		{"GH018", site, site + "log { # HERE\noutput file DIR/access.log\n}\n"},
		{"GH018", soundCaddyfile, strings.NewReplacer(site, site+"log {\noutput discard\n}\n", "servers {", "servers {\nlog_credentials # HERE").Replace(soundCaddyfile)},
		{"GH018", "http://, https:// {\n\tgatehouse_errors", "http:// {\ngatehouse_errors\n}\nhttps://other.example.com {\ntls internal\nlog {\noutput discard\n}\nrespond 404\n}\nhttps:// {\ntls internal\nlog {\noutput file DIR/access.log\n}\ngatehouse_auth shop\nreverse_proxy localhost:9\ngatehouse_errors"},
		{"GH018", site, site + "log { # HERE\noutput file DIR/access.log\nformat filter {\nrequest>uri query {\ndelete token\n}\nrequest>headers>X-Signature delete\n}\n}\n"},
		{"GH018", site, site + "log_append sig {header.X-Signature} # HERE\n"},
		{"GH018", "tls internal", "tls internal {\ninsecure_secrets_log DIR/keys.log # HERE\n}"},
		{"GH019", redis, redis + "limits {\non_outage allow # HERE\n}\n"},
		{"GH020", redis, redis + "limits {\nshadow # HERE\n}\n"},
		{"GH021", options, options + "allow_missing_tenant # HERE\n"},
		{"GH065", options, options + "definition {\nenforce tenant # HERE\n}\n"},
		{"GH065", options, options + "definition {\nexcept listJobs\nenforce members # HERE\n}\n"},
		{"GH022", site, site + "templates # HERE\n"},
		{"GH022", site, site + "request_header -X-* # HERE\n"},
		{"GH022", site, site + "request_header Authorization \"Bearer s3cret\" # HERE\n"},
		{"GH022", site, site + "method POST # HERE\n"},
		{"GH022", site, site + "rewrite /mcp /mcp/v1 # HERE\n"},
		{"GH022", site, site + "basic_auth { # HERE\nfern $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\n"},
		// the business behind gatehouse_auth
		{"GH022", site, shop + "gatehouse_auth /a/* shop\nrequest_header -X-Business-Id\nrequest_header -X-Account-Id\nreverse_proxy localhost:5 # HERE\n}\n" + site},
		{"GH022", site, shop + "gatehouse_auth /a/* shop\nrequest_header -X-*\nreverse_proxy localhost:5 # HERE\n}\n" + site},
		{"GH022", site, shop + "gatehouse_auth shop\nrequest_header X-Business-Id {query.business}\nreverse_proxy localhost:5 # HERE\n}\n" + site},
		{"GH022", site, shop + "gatehouse_auth shop\ntemplates # HERE\nreverse_proxy localhost:5\n}\n" + site},
		{"GH022", site, site + "intercept { # HERE\n@e status 4xx\nhandle_response @e {\nrespond sorry 200\n}\n}\n"},
		{"GH022", site, site + "intercept { # HERE\nreplace_status 200\n}\n"},
		{"GH075", soundCaddyfile, strings.NewReplacer(keys, keys+"assertion DIR/other.key\n", site, shop+"handle /a/* {\ngatehouse_auth\nreverse_proxy localhost:5\n}\nhandle /b/* {\ngatehouse_auth # HERE\nreverse_proxy localhost:6\n}\n}\n"+site).Replace(soundCaddyfile)},
		// headers of responses that are changed when they are written
		{"GH022", site, site + "header { # HERE\n-Server\nCache-Control \"public, max-age=600\"\n}\n"},
		{"GH022", site, site + "header /api/* >Cache-Control \"max-age=600\" # HERE\n"},
		{"GH022", site, site + "header /api/* { # HERE\n-Server\nVary Origin\n}\n"},
		{"GH022", site, site + "header -C* # HERE\n"},
		{"GH022", site, site + "header /api/* >Content-Type text/plain # HERE\n"},
		{"GH022", site, site + "header /api/* { # HERE\ndefer\nCache-Control private public\n}\n"},
		{"GH022", site, site + "header { # HERE\n-Server\nContent-Security-Policy \"default-src *\"\n}\n"},
		{"GH022", site, site + "header { # HERE\n-Server\nReferrer-Policy no-referrer\n}\n"},
		{"GH022", site, site + "header { # HERE\ndefer\nX-Frame-Options ALLOWALL\n}\n"},
		{"GH022", site, site + "header { # HERE\ndefer\nSet-Cookie a=b\n}\n"},
		{"GH022", site, shop + "header Cache-Control \"public, max-age=600\" # HERE\ngatehouse_auth shop\nreverse_proxy localhost:5\n}\n" + site},
		{"GH022", site, shop + "header -Cache-Control # HERE\ngatehouse_auth shop\nreverse_proxy localhost:5\n}\n" + site},
		// a prefix that is removed before signatures are verified
		{"GH022", site, site + "uri strip_prefix /gw # HERE\n"},
		{"GH022", site, site + "uri /gw/* strip_prefix gw # HERE\n"},
		{"GH003", api, "handle_path /gw/* { # HERE\n" + api + "}\n"},
		{"GH023", site, site + "metrics /metrics # HERE\n"},
		{"GH023", site, "metrics.example.com {\nmetrics # HERE\n}\n" + site},
		{"GH023", site, site + "@blocked client_ip 203.0.113.0/24\nerror @blocked 403\nmetrics /metrics # HERE\n"},
		{"GH023", site, site + "@m not remote_ip 203.0.113.0/24\nmetrics @m # HERE\n"},
		{"GH023", site, site + "@own remote_ip 10.0.0.0/8\nheader @own X-Seen yes\n@m path_regexp ^/m\nmetrics @m # HERE\n"},
		{"GH023", site, site + "basic_auth /docs/* {\nfern $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\nmetrics /metrics # HERE\n"},
		// an address of a site is only compared with the Host header
		{"GH023", site, "http://10.0.0.5:9180 {\nmetrics # HERE\n}\n" + site},
		{"GH023", site, "http://localhost:9180 {\nbind 0.0.0.0\nmetrics /metrics # HERE\n}\n" + site},
		{"GH024", soundCaddyfile, strings.NewReplacer(site, "http://api.example.com {\n", "trusted_proxies static 10.0.0.0/8", "", "trusted_proxies_strict", "").Replace(soundCaddyfile)},
		{"GH025", "tls internal", "tls DIR/other.pem DIR/other.key # HERE"},
		{"GH068", "tls internal", "tls DIR/expired.pem DIR/expired.key # HERE"},
		{"GH025", soundCaddyfile, strings.NewReplacer("tls internal", "", global, global+"auto_https off # HERE\n").Replace(soundCaddyfile)},
		{"GH025", soundCaddyfile, strings.NewReplacer("tls internal", "", global, global+"acme_ca https://acme-staging-v02.api.letsencrypt.org/directory # HERE\n").Replace(soundCaddyfile)},
		{"GH071", soundCaddyfile, strings.NewReplacer(site, site+"handle_path /files/* {\nroot DIR\nfile_server\n}\n", "DIR/keys.json", "DIR/keys.json # HERE").Replace(soundCaddyfile)},
		{"GH026", keys, keys + "assertion DIR/readable.key # HERE\n"},
		{"GH026", redis, "redis redis://localhost:1 {\npassword {file.DIR/readable.key} # HERE\n}\n"},
		{"GH026", redis, "redis rediss://localhost:1 {\ntls {\ncert DIR/readable.pem\nkey DIR/readable.key # HERE\n}\n}\n"},
		{"GH026", keys, "credentials vault https://localhost:4 {\nauth token_file DIR/readable.key # HERE\n}\n"},
		{"GH026", keys, "credentials vault https://localhost:4 {\nauth kubernetes role DIR/readable.key # HERE\n}\n"},
		{"GH026", keys, "credentials vault https://localhost:4 {\nauth token {env.HOME}\ntls {\ncert DIR/readable.pem\nkey DIR/readable.key # HERE\n}\n}\n"},
		{"GH026", options, "upstream https://localhost:3 {\ntransport http {\ntls_client_auth DIR/readable.pem DIR/readable.key # HERE\n}\n}\n"},
		{"GH027", soundCaddyfile, strings.NewReplacer(options, "upstream https://api.example.com # HERE\n", keys, keys+"assertion DIR/other.key\n").Replace(soundCaddyfile)},
		{"GH028", options, "upstream http://localhost:3 {\nunhealthy_status 5xx 4xx # HERE\n}\n"},
		{"GH028", options, "upstream http://localhost:3 {\nhealth_uri http://localhost:3/healthz # HERE\n}\n"},
		{"GH028", soundCaddyfile, strings.NewReplacer(options, "upstream http://localhost:3 {\nhealth_uri /api/v1/events # HERE\n}\n", keys, keys+"assertion DIR/other.key\n").Replace(soundCaddyfile)},
		{"GH029", global, global + "log { # HERE\noutput discard\n}\n"},
		{"GH029", global, global + "log { # HERE\nlevel ERROR\n}\n"},
		{"GH045", "DIR/keys.json", "DIR/malformed.json # HERE"},
		{"GH046", "DIR/keys.json", "DIR/expired.json # HERE"},
		{"GH048", "DIR/keys.json", "DIR/unknown.json # HERE"},
		{"GH074", "DIR/keys.json", "DIR/newer.json # HERE"},
		{"GH003", site, shop + "gatehouse_auth /a/* shop { # HERE\nbase_path /b\n}\nreverse_proxy /a/* localhost:5\n}\n" + site},
		{"GH004", site, shop + "handle /a/* {\ngatehouse_auth shop\nreverse_proxy localhost:5\n}\nhandle /a/* {\ngatehouse_auth orders # HERE\nreverse_proxy localhost:6\n}\n}\n" + site},
		{"GH004", site, shop + "route {\nrespond hello\ngatehouse_auth shop # HERE\nreverse_proxy localhost:5\n}\n}\n" + site},
		{"GH022", site, shop + "gatehouse_auth /a/* shop # HERE\ngatehouse_auth orders\nreverse_proxy localhost:5\n}\n" + site},
		{"GH022", site, site + "gatehouse_auth shop # HERE\n"},
		{"GH022", site, shop + "method POST # HERE\ngatehouse_auth shop\nreverse_proxy localhost:5\n}\n" + site},
		{"GH022", site, shop + "route {\nrequest_header -X-* # HERE\ngatehouse_auth shop\nreverse_proxy localhost:5\n}\n}\n" + site},
		{"GH063", site, shop + "handle_path /a/* {\ngatehouse_auth shop # HERE\nreverse_proxy localhost:5\n}\n}\n" + site},
		{"GH063", site, shop + "rewrite /a/* /orders # HERE\ngatehouse_auth shop\nreverse_proxy localhost:5\n}\n" + site},
		{"GH064", site, shop + "gatehouse_auth refunds # HERE\nreverse_proxy localhost:5\n}\n" + site},
		{"GH064", options, options + "definition refunds DIR/refunds.json # HERE\n"},
		{"GH062", site, shop + "gatehouse_auth /a/* shop\nreverse_proxy /a/* localhost:5\nreverse_proxy /b/* localhost:6 # HERE\n}\n" + site},
		// the service behind a gatehouse_auth
		{"GH006", site, shop + "gatehouse_auth shop\nreverse_proxy localhost:5 {\nhealth_interval 5s # HERE\n}\n}\n" + site},
		{"GH011", site, shop + "gatehouse_auth shop\nreverse_proxy localhost:2019 # HERE\n}\n" + site},
		{"GH012", site, shop + "gatehouse_auth shop\nreverse_proxy localhost:5 {\nheader_up Authorization \"Bearer s3cret\" # HERE\n}\n}\n" + site},
		{"GH013", soundCaddyfile, strings.NewReplacer(site, shop+"gatehouse_auth shop\nreverse_proxy http://shop.internal:3000 # HERE\n}\n"+site, keys, keys+"assertion DIR/other.key\n").Replace(soundCaddyfile)},
		{"GH014", soundCaddyfile, strings.NewReplacer(site, shop+"gatehouse_auth /a/* shop\nreverse_proxy /a/* 203.0.113.7:80 # HERE\n}\n"+site, keys, keys+"assertion DIR/other.key\n").Replace(soundCaddyfile)},
		{"GH015", site, shop + "handle /a/* {\ngatehouse_auth shop\nreverse_proxy https://localhost:5 {\ntransport http {\ntls_insecure_skip_verify # HERE\n}\n}\n}\n}\n" + site},
		{"GH016", site, shop + "gatehouse_auth shop\nreverse_proxy https://203.0.113.7 # HERE\n}\n" + site},
		{"GH027", soundCaddyfile, strings.NewReplacer(site, shop+"gatehouse_auth shop\nreverse_proxy https://api.example.com # HERE\n}\n"+site, keys, keys+"assertion DIR/other.key\n").Replace(soundCaddyfile)},
		{"GH028", site, shop + "gatehouse_auth shop\nreverse_proxy localhost:5 {\nunhealthy_status 4xx # HERE\n}\n}\n" + site},
		{"GH069", site, shop + "gatehouse_auth shop\nreverse_proxy localhost:5 {\ntransport http {\nmax_conns_per_host 32 # HERE\n}\n}\n}\n" + site},
		{"GH062", site, shop + "gatehouse_auth shop\nreverse_proxy localhost:5\n}\nother.example.com {\nreverse_proxy localhost:5 # HERE\n}\n" + site},
		{"GH047", keys, keys + "cache {\nttl 24h # HERE\n}\n"},
		{"GH061", "read_header 5s\n", ""},
		{"GH061", "read_body 15s\n", ""},
		{"GH061", "write 30s\n", ""},
		{"GH061", "idle 2m\n", ""},
		{"GH062", site, site + "reverse_proxy /old/* localhost:5 # HERE\n"},
		{"GH062", site, site + "handle /old/* {\nreverse_proxy localhost:5 # HERE\n}\n"},
		{"GH062", site, site + "handle_path /old/* {\nreverse_proxy localhost:5 # HERE\n}\n"},
		{"GH062", site, site + "@old path_regexp ^/old\nreverse_proxy @old localhost:5 # HERE\n"},
		{"GH062", site, site + "@old {\nmethod POST\nheader Old yes\n}\nreverse_proxy @old localhost:5 # HERE\n"},
		{"GH062", site, site + "@old not path /api/*\nreverse_proxy /old/* localhost:5 # HERE\n"},
		{"GH062", site, site + "request_header /old/a* -X-*\nreverse_proxy /old/* localhost:5 # HERE\n"},
		{"GH062", site, site + "@old path /a/* /b/*\nrequest_header /a/* -X-*\nreverse_proxy @old localhost:5 # HERE\n"},
		{"GH062", site, site + "@own remote_ip 10.0.0.0/8\nrequest_header @own -X-*\nreverse_proxy /old/* localhost:5 # HERE\n"},
		{"GH062", site, site + "request_header -X-Business-Id\nreverse_proxy /old/* localhost:5 # HERE\n"},
		{"GH062", site, site + "reverse_proxy /old/* localhost:5 { # HERE\nheader_up X-Business-Id {header.X-Business-Id}\nheader_up -X-Account-Id\n}\n"},
		{"GH062", site, site + "reverse_proxy /old/* localhost:5 { # HERE\n@down status 500\nhandle_response @down {\nrespond down\n}\n}\n"},
		{"GH062", site, site + "reverse_proxy /old/* localhost:5 { # HERE\n@ok status 2xx\nhandle_response @ok {\ncopy_response\n}\n}\n"},
		{"GH062", site, site + "reverse_proxy /old/* localhost:5 { # HERE\nmethod GET\n@ok status 2xx\nhandle_response @ok {\nheader -Server\ncopy_response\n}\n}\n"},
		{"GH062", site, site + "reverse_proxy /old/* localhost:5 {\nheader_up -X-*\n@down status 5xx\nhandle_response @down {\nreverse_proxy localhost:6 # HERE\n}\n}\n"},
		{"GH062", site, site + "reverse_proxy /old/* localhost:5 {\nmethod GET\n@ok status 2xx\nhandle_response @ok {\nrequest_header X-Seen yes\n}\n@no status 401\nhandle_response @no {\nreverse_proxy localhost:6 # HERE\n}\n}\n"},
		{"GH062", site, site + "intercept /old/* {\n@down status 5xx\nhandle_response @down {\nreverse_proxy localhost:6 # HERE\n}\n}\nreverse_proxy /old/* localhost:5 {\nheader_up -X-*\n}\n"},
		{"GH022", site, site + "forward_auth localhost:9 {\nuri /check\ncopy_headers X-User X-Group\n}\nrequest_header X-Seen yes\nrequest_header -X-* # HERE\n"},
		{"GH062", site, site + "php_fastcgi /old/* localhost:9000 # HERE\n"},
		{"GH062", site, site + "handle_errors {\nreverse_proxy localhost:5 # HERE\n}\n"},
		{"GH062", site, site + "basic_auth /old/a* {\nfern $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\nreverse_proxy /old/* localhost:5 # HERE\n"},
		{"GH062", site, site + "@old path *.php\nreverse_proxy @old localhost:5 # HERE\n"},
		{"GH062", site, site + "reverse_proxy /old/* localhost:5 { # HERE\nheader_up X-Business-Id \"as {header.X-Business-Id}\"\nheader_up -X-Account-Id\n}\n"},
		{"GH062", "https://api.example.com {\n\ttls internal\n", "https://b.example.com, https://api.example.com {\ntls internal\n@b host b.example.com\nrequest_header @b -X-Business-Id\nrequest_header @b -X-Account-Id\nreverse_proxy /old/* localhost:5 # HERE\n"},
		{"GH062", site, "http://api.example.com {\nreverse_proxy localhost:5 # HERE\n}\n" + site},
		{"GH062", site, "https://{env.CHECK_HOST} {\ntls internal\nreverse_proxy localhost:3 # HERE\n}\n" + site},
		{"GH062", site, "other.example.com {\nreverse_proxy localhost:3 # HERE\n}\n" + site},
		// the header that a definition has for the business
		{"GH062", options, options + "definition DIR/mapped.json\n}\nhandle /old/* {\nrequest_header -X-Business-Id\nrequest_header -X-Account-Id\nreverse_proxy localhost:3 # HERE\n"},
		{"GH062", soundCaddyfile, strings.NewReplacer(options, options+"definition DIR/mapped.json\n", site, shop+"gatehouse_auth shop\nreverse_proxy localhost:3 # HERE\n}\n"+site).Replace(soundCaddyfile)},
		{"GH066", api, "@blocked client_ip 203.0.113.0/24\nerror @blocked 403 # HERE\nhandle /api/* {\n" + api + "}\n"},
		{"GH066", soundCaddyfile, strings.NewReplacer(site, "&(auth) {\nforward_auth localhost:9 { # HERE\nuri /check\n}\n}\n"+site, api, "handle /api/* {\ninvoke auth\n"+api+"}\n").Replace(soundCaddyfile)},
		{"GH066", api, "handle /api/* {\nforward_auth localhost:9 { # HERE\nuri /check\n}\n" + api + "}\n"},
		{"GH067", redis, redis + "limits {\nallow_replayed_writes # HERE\n}\n"},
		{"GH069", options, "upstream http://localhost:3 {\ntransport http {\nmax_conns_per_host 32 # HERE\n}\n}\n"},
		{"GH069", soundCaddyfile, strings.NewReplacer(redis, redis+"limits {\nin_flight 40\n}\n", options, "upstream http://localhost:3 http://localhost:5 {\ntransport http {\nmax_conns_per_host 20 # HERE\n}\n}\n").Replace(soundCaddyfile)},
		{"GH067", soundCaddyfile, strings.NewReplacer(redis, redis+"limits {\nalgorithm gcra # HERE\n}\n", site, shop+"gatehouse_auth shop\nreverse_proxy localhost:5\n}\n"+site).Replace(soundCaddyfile)},
		{"GH047", keys, keys + "cache {\nstale_if_error 30d # HERE\n}\n"},
		{"GH073", soundCaddyfile, strings.NewReplacer(site, site+"encode # HERE\n", options, options+"definition DIR/tagged.json\n").Replace(soundCaddyfile)},
		{"GH072", site, shop + "gatehouse_auth shop # HERE\nreverse_proxy localhost:5\n}\n" + site},
		{"GH072", soundCaddyfile, strings.NewReplacer(site, shop+"handle /a/* {\ngatehouse_auth shop # HERE\nphp_fastcgi localhost:5\n}\n}\n"+site, "{\n\tadmin", strings.Replace(filteredLog, "request>headers", "request>headers>X-Signature", 1)).Replace(soundCaddyfile)},
		{"GH072", soundCaddyfile, strings.NewReplacer(site, shop+"gatehouse_auth shop # HERE\nreverse_proxy localhost:5\n}\n"+site, "{\n\tadmin", strings.Replace(filteredLog, "error delete", "", 1)).Replace(soundCaddyfile)},
	}
}

func TestCheckFindsNothingInSoundConfiguration(t *testing.T) {
	found, status := checkFile(t, soundCaddyfile, "--offline")
	assert.Empty(t, found)
	assert.Equal(t, "0", status)
}

// The remedy that docs/definition.md gives.
func TestCheckAcceptsEncodeWithIfMatchRestored(t *testing.T) {
	found, _ := checkFile(t, strings.NewReplacer("tls internal\n", "tls internal\nencode\nrequest_header If-Match `-(gzip|zstd|br)\"` `\"`\n",
		"upstream http://localhost:3\n", "upstream http://localhost:3\ndefinition DIR/tagged.json\n").Replace(soundCaddyfile), "--offline")
	assert.Empty(t, found)
}

// What gatehouse_auth protects gets no headers of callers.
func TestCheckFindsNothingBehindAuth(t *testing.T) {
	found, status := checkFile(t, strings.Replace(soundCaddyfile, "{\n\tadmin", filteredLog, 1)+"http://shop.example.com {\n\tgatehouse_auth /a/* shop\n\treverse_proxy /a/* localhost:5 {\nlb_try_duration 1m\n}\n}\n", "--offline")
	assert.Empty(t, found)
	assert.Equal(t, "0", status)
}

// With two addresses and a timeout of 3s, the default of lb_try_duration has no effect, but the operator has not set it.
func TestCheckReportsNoDefaults(t *testing.T) {
	const addresses = "upstream http://localhost:3"
	require.Contains(t, soundCaddyfile, addresses)
	found, status := checkFile(t, strings.Replace(soundCaddyfile, addresses, addresses+" http://localhost:4\ntimeout 3s", 1), "--offline")
	assert.Empty(t, found)
	assert.Equal(t, "0", status)
}

// Each address has connections of its own, and how many addresses there are is not known.
func TestCheckCountsNoConnectionsToDynamicAddresses(t *testing.T) {
	const address = "upstream http://localhost:3"
	require.Contains(t, soundCaddyfile, address)
	found, _ := checkFile(t, strings.Replace(soundCaddyfile, address, "upstream {\ndynamic srv _data._tcp.internal.\ntransport http {\nmax_conns_per_host 10\n}\n}", 1), "--offline")
	assert.False(t, slices.ContainsFunc(found, func(f check.Finding) bool { return f.Rule == "GH069" }), found)
}

// A file server without root serves the working directory, except for what it hides. A root alone serves nothing.
func TestCheckFindsSecretsInTheWorkingDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("keys.json", []byte(`{"keys":{}}`), 0o600))
	elsewhere := "root " + t.TempDir() + "\nfile_server"
	for served, published := range map[string]bool{
		"file_server": true, "root .\nfile_server": true, "root .\nfile_server {\nhide keys *.html\n}": true,
		"file_server\n}\n}\nhttps://other.example.com {\ntls internal\nhandle {\n" + elsewhere: true,
		elsewhere: false, "root .": false, "file_server {\nhide *.json\n}": false, "file_server {\nhide ./keys.json\n}": false, "file_server {\nhide ./*.json\n}": false,
	} {
		found, _ := checkFile(t, strings.NewReplacer("DIR/keys.json", "keys.json", "https://api.example.com {\n\ttls internal", "https://api.example.com {\n\ttls internal\nhandle_path /files/* {\n"+served+"\n}\n").Replace(soundCaddyfile), "--offline")
		assert.Equal(t, published, slices.ContainsFunc(found, func(f check.Finding) bool { return f.Rule == "GH071" }), "%s %v", served, found)
	}
}

// Each mistake is found by its rule, on its line, and by no other.
func TestCheckFindsMistakes(t *testing.T) {
	t.Setenv("CHECK_HOST", "other.example.com")
	seen := map[string]bool{}
	for i, m := range mistakes() {
		id, online := strings.CutSuffix(m[0], " online")
		seen[id] = true
		t.Run(fmt.Sprintf("%s/%d", id, i), func(t *testing.T) {
			require.Contains(t, soundCaddyfile, m[1])
			caddyfile := strings.Replace(soundCaddyfile, m[1], m[2], 1)
			if strings.Contains(caddyfile, "gatehouse_auth") && id != "GH072" {
				caddyfile = strings.Replace(caddyfile, "{\n\tadmin", filteredLog, 1)
			}
			args := []string{"--offline"}
			if online {
				args = nil
			}
			found, status := checkFile(t, caddyfile, args...)
			require.Len(t, found, 1, "%s\n%s", caddyfile, asJSON(t, found))
			require.Equal(t, id, found[0].Rule, asJSON(t, found))
			require.Positive(t, found[0].Line)
			if before, _, ok := strings.Cut(caddyfile, "HERE"); ok {
				require.Equal(t, 1+strings.Count(before, "\n"), found[0].Line, "%s\n%v", caddyfile, found)
			}
			require.Equal(t, map[string]string{check.SeverityError: "1", check.SeverityWarning: "0"}[found[0].Severity], strings.TrimPrefix(status, "exiting with status "))
		})
	}
	var live []byte
	for _, file := range []string{"live.go", "services.go"} { // which live_test.go and services_test.go test
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		live = append(live, text...)
	}
	for _, id := range ruleIDs() {
		assert.True(t, seen[id] || bytes.Contains(live, []byte(id)), "no mistake for %s", id)
	}
}

// Packages check before each start and reload. What goes wrong without a change of the configuration, and for one key or site only, must
// neither keep a gateway down nor stop a reload that blocks a caller.
func TestOneBadRecordOrCertificateIsNoError(t *testing.T) {
	for _, change := range [][2]string{
		{"keys.json", "malformed.json"},
		{"keys.json", "expired.json"},
		{"keys.json", "newer.json"},
		{"tls internal", "tls DIR/expired.pem DIR/expired.key"},
	} {
		found, status := checkFile(t, strings.Replace(soundCaddyfile, change[0], change[1], 1), "--offline")
		require.Len(t, found, 1, change[1])
		require.Equal(t, check.SeverityWarning, found[0].Severity, change[1])
		require.Equal(t, "0", status, change[1])
	}
}

// A definition is loaded once, however many operations, rules and handlers ask for its API.
func TestCheckLoadsEachDefinitionOnce(t *testing.T) {
	const api = "\tgatehouse_api {\n\t\tupstream http://localhost:3\n\t}\n"
	path := filepath.Join(t.TempDir(), "Caddyfile")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(soundCaddyfile, api,
		api+"gatehouse_api {\nupstream http://localhost:3\n}\ngatehouse_api /gw/* {\nbase_path /gw\nupstream http://localhost:3\ndefinition {\nonly listJobs\n}\n}\n", 1)), 0o600))
	o := caddymodule.CheckOptions()
	o.Offline = true
	load, loads := o.API, 0
	o.API = func(handler any) *upstream.API {
		loads++
		return load(handler)
	}
	report, err := check.Run(t.Context(), path, "", o)
	require.NoError(t, err)
	require.Equal(t, 2, loads, asJSON(t, report.Findings))
}

// asJSON returns findings with all of their members; they print as their places.
func asJSON(t *testing.T, found []check.Finding) string {
	t.Helper()
	text, err := json.Marshal(found)
	require.NoError(t, err)
	return string(text)
}

func TestCheckPrintsForPeopleAndTools(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "Caddyfile")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(soundCaddyfile, "admin localhost:2019", "admin :2019", 1)), 0o600))

	stdout, stderr, status := runCheck(t, "--offline", "--config", path)
	require.Equal(t, path+":2: error GH011: the admin API listens on :2019. "+
		"Use a loopback address or a Unix socket for admin, and do not proxy to it.\n1 error, 0 warnings\n", stdout)
	require.Empty(t, stderr)
	require.Equal(t, "1", status)

	stdout, _, status = runCheck(t, "--offline", "--sarif", "--config", path)
	require.Equal(t, "1", status)
	var sarif struct {
		Runs []struct {
			Tool struct {
				Driver struct{ Rules []any }
			}
			Results []any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &sarif))
	require.Len(t, sarif.Runs, 1)
	require.Len(t, sarif.Runs[0].Tool.Driver.Rules, len(ruleIDs()))
	results, err := json.Marshal(sarif.Runs[0].Results)
	require.NoError(t, err)
	assert.JSONEq(t, fmt.Sprintf(`[{"ruleId": "GH011", "level": "error", "message": {"text":
		"the admin API listens on :2019. Use a loopback address or a Unix socket for admin, and do not proxy to it."},
		"locations": [{"physicalLocation": {"artifactLocation": {"uri": %q}, "region": {"startLine": 2}}}]}]`, path), string(results))
}

// What cannot be checked is not a finding.
func TestCheckBadInput(t *testing.T) {
	for name, args := range map[string][]string{
		"a missing file":    {"--offline", "--config", filepath.Join(t.TempDir(), "Caddyfile")},
		"an unknown flag":   {"--strict"},
		"an argument":       {"--offline", "Caddyfile"},
		"two formats":       {"--json", "--sarif"},
		"a missing adapter": {"--adapter", "toml", "--config", "check.go"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, status := runCheck(t, args...)
			assert.Equal(t, "3", status, stdout)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, "Error: ")
		})
	}
}

// Environment files are loaded as Caddy does, and their errors are printed once.
func TestCheckLoadsEnvFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "Caddyfile")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(soundCaddyfile, "localhost:2019", "{$CHECK_TEST_ADMIN}", 1)), 0o600))
	env := filepath.Join(dir, "env")
	require.NoError(t, os.WriteFile(env, []byte("export CHECK_TEST_ADMIN=\"192.0.2.1:2019\" # reachable\n"), 0o600))
	t.Setenv("CHECK_TEST_ADMIN", "") // restored after the test
	require.NoError(t, os.Unsetenv("CHECK_TEST_ADMIN"))
	stdout, stderr, status := runCheck(t, "--offline", "--envfile", env, "--config", path)
	require.Equal(t, "1", status, stdout+stderr)
	require.Contains(t, stdout, "the admin API listens on 192.0.2.1:2019")

	stdout, stderr, status = runCheck(t, "--offline", "--envfile", filepath.Join(dir, "missing"), "--config", path)
	assert.Equal(t, "3", status, stdout)
	assert.Equal(t, 1, strings.Count(stderr, "missing: no such file"), stderr)
}

// The configurations of the repository have no errors.
func TestRepositoryHasNoErrors(t *testing.T) {
	paths, err := filepath.Glob("../../../examples/*.Caddyfile")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range append(paths, "../../../Caddyfile", "../../../deploy/Caddyfile") {
		stdout, stderr, status := runCheck(t, "--offline", "--config", path)
		assert.Equal(t, "0", status, stdout+stderr)
	}
}

// A JSON configuration is checked like a Caddyfile; findings have JSON pointers.
func TestCheckJSONConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "caddy.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"admin":{"listen":"0.0.0.0:2019"},"apps":{"gatehouse":{"redis":{"urls":["redis://redis:6379"]}}}}`), 0o600))
	stdout, stderr, status := runCheck(t, "--offline", "--config", path)
	assert.Equal(t, "1", status, stdout+stderr)
	assert.Contains(t, stdout, path+": /admin/listen: error GH011: ")
	assert.Contains(t, stdout, path+": /apps/gatehouse/redis: warning GH013: ")
}

// What the gateway refuses is a finding, and neither ends the command nor keeps it waiting.
func TestCheckSurvivesInvalidInput(t *testing.T) {
	for name, text := range map[string]string{
		"no configuration":      `null`,
		"no server":             `{"apps":{"http":{"servers":{"a":null}}}}`,
		"no upstream":           `{"apps":{"http":{"servers":{"a":{"routes":[{"handle":[{"handler":"reverse_proxy","upstreams":[null]}]}]}}}}}`,
		"no address of an API":  `{"apps":{"http":{"servers":{"a":{"routes":[{"handle":[{"handler":"gatehouse_api","upstreams":[{"handler":{"handler":"reverse_proxy","upstreams":[null]}}]}]}]}}}}}`,
		"no policy for TLS":     `{"apps":{"http":{"servers":{"a":{"tls_connection_policies":[null],"routes":[{"handle":[{"handler":"gatehouse_auth"}]}]}}}}}`,
		"no log":                `{"logging":{"logs":{"x":null}}}`,
		"no routes":             `{"apps":{"http":{"servers":{"a":{"routes":[null,{"handle":[null]}],"errors":null,"named_routes":{"a":null}}}}}}`,
		"credentials in a pipe": `{"apps":{"gatehouse":{"credentials":{"source":"file","path":"DIR/pipe"}}}}`,
		"endless credentials":   `{"apps":{"gatehouse":{"credentials":{"source":"file","path":"/dev/zero"}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
			path := filepath.Join(dir, "caddy.json")
			require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600))
			stdout, stderr, status := runCheck(t, "--offline", "--config", path)
			assert.Equal(t, "1", status, stdout+stderr)
			assert.Contains(t, stdout, "GH001")
		})
	}
}

// Each fault of a definition has its place in the document, and the fix is not about the Caddyfile.
func TestCheckFindsEachFaultOfADefinition(t *testing.T) {
	for name, c := range map[string]struct{ adapter, config string }{
		"a Caddyfile": {"caddyfile", strings.Replace(soundCaddyfile, "upstream http://localhost:3\n", "upstream http://localhost:3\n\t\tdefinition DIR/faulty.yaml\n", 1)},
		"JSON": {"", `{"apps":{"gatehouse":{"redis":{"urls":["redis://localhost:1"]},"credentials":{"source":"file","path":"DIR/keys.json"}},"http":{"servers":{"a":{"listen":[":8443"],"routes":[{"handle":[
			{"handler":"gatehouse_api","definition":{"file":"DIR/faulty.yaml"},"upstreams":[{"handler":{"handler":"reverse_proxy","upstreams":[{"dial":"localhost:3"}]}}]}]}]}}}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{
				"keys.json": `{"keys":{}}`, "config": c.config,
				"faulty.yaml": "openapi: 3.1.0\ninfo: {title: x, version: '1'}\nx-gatehouse-tenant: none\npaths:\n  /a: {get: {responses: {}}}\n  /b:\n    get: {responses: {}, x-gatehouse-records: 1}\n",
			} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600))
			}
			stdout, stderr, status := runCheck(t, "--json", "--config", filepath.Join(dir, "config"), "--adapter", c.adapter)
			require.Equal(t, "1", status, stdout+stderr)
			var result struct {
				Findings []check.Finding `json:"findings"`
			}
			require.NoError(t, json.Unmarshal([]byte(stdout), &result), stdout)
			var lines []int
			for _, f := range result.Findings {
				if f.Rule == "GH001" {
					assert.Equal(t, filepath.Join(dir, "faulty.yaml"), f.File)
					assert.Contains(t, f.Fix, "gatehouse api check")
					assert.Regexp(t, "^/paths/", f.Message)
					lines = append(lines, f.Line)
				}
			}
			assert.Equal(t, []int{5, 7, 7}, lines, stdout)
		})
	}
}

// Requests that may reach their handler are not findings.
func TestCheckSkipsUnknownMatchers(t *testing.T) {
	const (
		site = "https://api.example.com {\n\ttls internal\n"
		api  = "\tgatehouse_api {\n\t\tupstream http://localhost:3\n\t}\n"

		shop    = "https://shop.example.com {\n\ttls internal\n"
		options = "upstream http://localhost:3\n"
		connect = "\tgatehouse_connect {\n\t\tissuer https://api.example.com\n\t\tupstream http://localhost:2\n\t}\n"
	)
	t.Setenv("CHECK_HOST", "other.example.com")
	for name, lines := range map[string][2]string{
		"an unknown matcher":                      {api, "@m remote_ip 10.0.0.0/8\ngatehouse_api @m {\nupstream http://localhost:3\n}\n"},
		"a handler for some clients":              {site, site + "@m remote_ip 10.0.0.0/8\nrespond @m 403\n"},
		"a socket for admin":                      {"admin localhost:2019", "admin unix//tmp/admin.sock"},
		"a socket of a group for admin":           {"admin localhost:2019", "admin unix//tmp/admin.sock|0660"},
		"gcra without writes":                     {"redis redis://localhost:1\n", "redis redis://localhost:1\nlimits {\nalgorithm gcra\n}\n"},
		"an error on the API's site":              {api, "@blocked client_ip 203.0.113.0/24\nerror @blocked 403\n" + api},
		"forward_auth with handled errors":        {api, "handle /api/* {\nforward_auth localhost:9 {\nuri /check\n}\n" + api + "}\nhandle_errors {\ngatehouse_errors\n}\n"},
		"forward_auth of other paths":             {api, "forward_auth /admin/* localhost:9 {\nuri /check\n}\nhandle /api/* {\n" + api + "}\n"},
		"forward_auth of another block":           {api, "handle /old/* {\nforward_auth localhost:9 {\nuri /check\n}\nrespond old\n}\nhandle /api/* {\n" + api + "}\n"},
		"an error that is handled":                {api, "@blocked client_ip 203.0.113.0/24\nerror @blocked 403\nhandle /api/* {\n" + api + "}\nhandle_errors {\ngatehouse_errors\n}\n"},
		"a named route":                           {soundCaddyfile, strings.Replace(soundCaddyfile, api, "@m remote_ip 10.0.0.0/8\ninvoke @m api\n", 1) + "&(api) {\n" + api + "}\n"},
		"a named route of two sites":              {soundCaddyfile, strings.NewReplacer("https://api.example.com {", "https://www.example.com {\ninvoke both\n}\nhttps://api.example.com {", connect, "invoke both\n").Replace(soundCaddyfile) + "&(both) {\n" + connect + "}\n"},
		"a named route that has no end":           {site, "&(a) {\ninvoke a\n}\n" + site + "invoke a\n"},
		"an error of another site":                {site, "www.example.com {\nerror 403\n}\n" + site},
		"a handler of another path":               {site, site + "handle_path /static/* {\nfile_server\n}\nredir / https://www.example.com\n"},
		"a log with filters":                      {site, site + "log {\noutput file DIR/access.log\nformat filter {\nrequest>uri regexp [?].* \"\"\nrequest>headers>X-Signature delete\n}\n}\n"},
		"a log without requests":                  {site, site + "log {\noutput file DIR/access.log\nformat filter {\nrequest delete\n}\n}\n"},
		"a log of another site":                   {site, "www.example.com {\nlog\n}\n" + site},
		"metrics for some clients":                {site, site + "@m remote_ip 10.0.0.0/8\nmetrics @m\n"},
		"metrics for some addresses":              {site, site + "@m {\npath_regexp ^/m\nclient_ip 10.0.0.0/8\n}\nhandle @m {\nmetrics\n}\n"},
		"metrics that others do not reach":        {site, site + "@others {\npath /metrics\nnot remote_ip 10.0.0.0/8\n}\nrespond @others 403\nmetrics /metrics\n"},
		"metrics with a password":                 {site, site + "basic_auth /metrics {\nfern $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\nmetrics /metrics\n"},
		"metrics on another port":                 {site, ":9100 {\nmetrics\n}\n" + site},
		"metrics on another address":              {site, "http://10.0.0.5:9100 {\nbind 10.0.0.5\nmetrics\n}\n" + site},
		"metrics for this machine":                {site, "http://localhost:9100 {\nbind 127.0.0.1 ::1\nmetrics\n}\n" + site},
		"metrics for one client":                  {site, "http://10.0.0.5:9100 {\n@m remote_ip 10.0.0.9\nmetrics @m\n}\n" + site},
		"a site for this machine":                 {site, "http://localhost:8080 {\ngatehouse_api {\nupstream http://localhost:3\n}\n}\n" + site},
		"changes of other headers":                {site, site + "request_header -X-Debug\nrequest_header X-Forwarded-Host example.com\n"},
		"a password for another path":             {site, site + "basic_auth /docs/* {\nfern $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\n"},
		"templates of another site":               {site, "www.example.com {\ntemplates\n}\n" + site},
		"http behind a load balancer":             {"https://api.example.com {\n\ttls internal", "http://api.example.com {"},
		"health checks":                           {api, "gatehouse_api {\nupstream http://localhost:3 {\nhealth_uri /healthz\nunhealthy_status 5xx\n}\n}\n"},
		"forward_auth":                            {site, site + "forward_auth localhost:9 {\nuri /check\n}\n"},
		"headers of responses":                    {site, site + "header {\n-Server\nStrict-Transport-Security max-age=31536000\nX-Frame-Options DENY\nReferrer-Policy strict-origin-when-cross-origin\n+Vary Origin\n+Set-Cookie a=b\n}\n"},
		"headers that handlers replace":           {site, site + "header {\nCache-Control \"public, max-age=600\"\nContent-Security-Policy \"default-src *\"\n}\n"},
		"default headers":                         {site, site + "header ?Cache-Control \"public, max-age=600\"\n"},
		"no storing":                              {site, site + "header {\n-Server\nCache-Control no-store\n}\n"},
		"headers of another path":                 {site, site + "header /static/* {\n-Server\nCache-Control \"public, max-age=600\"\n}\n"},
		"headers of metadata":                     {site, site + "header /.well-known/* {\n-Server\nCache-Control \"public, max-age=600\"\n}\n"},
		"headers of public operations":            {soundCaddyfile, strings.NewReplacer(api, "header /api/v1/hours {\n-Server\nCache-Control \"public, max-age=600\"\nVary Origin\n}\ngatehouse_api {\nupstream http://localhost:3\ndefinition DIR/public.json\n}\n").Replace(soundCaddyfile)},
		"headers of a service":                    {site, shop + "header {\n-Server\nContent-Security-Policy \"default-src 'self'\"\nCache-Control private\n}\ngatehouse_auth shop\nreverse_proxy localhost:5\n}\n" + site},
		"another name for the business":           {site, shop + "gatehouse_auth shop\nreverse_proxy localhost:5 {\nheader_up X-Consumer {header.X-Business-Id}\nheader_up -X-Business-Id\n}\n}\n" + site},
		"one business":                            {site, shop + "gatehouse_auth shop\nreverse_proxy localhost:5 {\nheader_up X-Business-Id mine\n}\n}\n" + site},
		"the business of the assertion":           {soundCaddyfile, strings.NewReplacer(site, shop+"gatehouse_auth shop\nreverse_proxy localhost:5 {\nheader_up -X-Business-Id\n}\n}\n"+site, "keys.json\n", "keys.json\nassertion DIR/other.key\n").Replace(soundCaddyfile)},
		"some paths without keys":                 {site, shop + "handle /a/* {\ngatehouse_auth shop\nreverse_proxy localhost:5\n}\nhandle {\nrequest_header -X-Business-Id\nrequest_header -X-Account-Id\nreverse_proxy localhost:5\n}\n}\n" + site},
		"a definition's header removed":           {options, options + "definition DIR/mapped.json\n}\nhandle /old/* {\nrequest_header -X-Business-Id\nrequest_header -X-Account-Id\nreverse_proxy localhost:3 {\nheader_up -X-Account\n}\n"},
		"a definition's header set":               {soundCaddyfile, strings.NewReplacer(options, options+"definition DIR/mapped.json\n", site, shop+"gatehouse_auth shop\nreverse_proxy localhost:3 {\nheader_up X-Account {header.X-Business-Id}\n}\n}\n"+site).Replace(soundCaddyfile)},
		"a definition's header elsewhere":         {soundCaddyfile, strings.NewReplacer(options, options+"definition DIR/mapped.json\n", site, shop+"gatehouse_auth shop\nreverse_proxy localhost:5\n}\n"+site).Replace(soundCaddyfile)},
		"services with audiences":                 {soundCaddyfile, strings.NewReplacer("keys.json\n", "keys.json\nassertion DIR/other.key\n", site, shop+"handle /a/* {\ngatehouse_auth\nreverse_proxy localhost:5\n}\nhandle /b/* {\ngatehouse_auth {\naudience b\n}\nreverse_proxy localhost:6\n}\nhandle /c/* {\ngatehouse_auth\nreverse_proxy localhost:5\n}\n}\n"+site).Replace(soundCaddyfile)},
		"a lifetime for a service":                {site, shop + "header Cache-Control max-age=600\ngatehouse_auth shop\nreverse_proxy localhost:5\n}\n" + site},
		"the PROXY protocol":                      {"gatehouse_drain\n", "proxy_protocol {\nallow 10.0.0.0/8\nfallback_policy reject\n}\ntls\ngatehouse_drain\n"},
		"proxies on a Unix socket":                {"trusted_proxies static 10.0.0.0/8\n", "trusted_proxies_unix\nclient_ip_headers X-Real-IP\n"},
		"handle_path":                             {api, "handle_path /api/* {\n" + api + "}\n"},
		"a rewrite":                               {site, site + "rewrite /api/* /v2{uri}\n"},
		"a base path that is also removed":        {api, "handle_path /gw/* {\ngatehouse_api {\nbase_path /gw\nupstream http://localhost:3\n}\n}\n"},
		"a proxy with removed headers":            {site, site + "request_header -X-Business-Id\nrequest_header -X-Account-Id\nreverse_proxy /old/* localhost:5\n"},
		"a proxy that removes headers":            {site, site + "reverse_proxy /old/* localhost:5 {\nheader_up -X-Business-Id\nheader_up -X-Account-Id\n}\n"},
		"a proxy with fixed headers":              {site, site + "reverse_proxy /old/* localhost:5 {\nheader_up X-Business-Id mine\nheader_up -X-Account-Id\n}\n"},
		"headers removed for the matcher":         {site, site + "@old {\npath_regexp ^/old\nremote_ip 10.0.0.0/8\n}\nrequest_header @old -X-*\nreverse_proxy @old localhost:5\n"},
		"headers removed in a handle":             {site, site + "handle /old/* {\nrequest_header -X-*\nreverse_proxy localhost:5\n}\n"},
		"a proxy with a password":                 {site, site + "basic_auth /old/* {\nfern $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\nreverse_proxy /old/* localhost:5\n"},
		"a proxy with forward_auth":               {site, site + "forward_auth /old/* localhost:9 {\nuri /check\n}\nreverse_proxy /old/* localhost:5\n"},
		"a fallback for errors":                   {site, site + "reverse_proxy /old/* localhost:5 {\nheader_up -X-*\n@down status 5xx\nhandle_response @down {\nreverse_proxy localhost:6 {\nheader_up -X-*\n}\n}\n}\n"},
		"a fallback behind a header":              {site, site + "request_header -X-Business-Id\nrequest_header -X-Account-Id\nreverse_proxy /old/* localhost:5 {\n@down status 5xx\nhandle_response @down {\nreverse_proxy localhost:6\n}\n}\n"},
		"a forward_auth written out":              {site, site + "reverse_proxy /old/* localhost:9 {\nmethod GET\nrewrite /check\n@ok status 2xx\nhandle_response @ok {\nrequest_header X-User {rp.header.X-User}\nreverse_proxy localhost:5\n}\n}\n"},
		"services that are looked up":             {soundCaddyfile, strings.NewReplacer("credentials file DIR/keys.json\n", "credentials file DIR/keys.json\nassertion DIR/other.key\n", site, shop+"handle /a/* {\ngatehouse_auth\nreverse_proxy localhost:5\n}\nhandle /b/* {\ngatehouse_auth\nreverse_proxy {\ndynamic a svc.internal. 443\ntransport http {\ntls\n}\n}\n}\n}\n"+site).Replace(soundCaddyfile)},
		"one for status 200 only":                 {site, site + "reverse_proxy /old/* localhost:9 {\nmethod GET\nrewrite /check\n@ok status 200\nhandle_response @ok {\nrequest_header X-User {rp.header.X-User}\nreverse_proxy localhost:5\n}\n}\n"},
		"files that services name":                {site, site + "intercept {\n@file header X-Accel-Redirect *\nhandle_response @file {\nrespond file\n}\n}\n"},
		"a business that a service must not know": {site, shop + "gatehouse_auth shop\nreverse_proxy localhost:5 {\nheader_up -X-Business-Id\n}\n}\n" + site},
		"one for status 204":                      {site, site + "reverse_proxy /old/* localhost:9 {\nmethod GET\nrewrite /check\n@ok status 204\nhandle_response @ok {\nrequest_header X-User {rp.header.X-User}\nreverse_proxy localhost:5\n}\n}\n"},
		"the business in the path":                {site, shop + "route {\ngatehouse_auth shop\nrewrite /b/{header.X-Business-Id}{uri}\nreverse_proxy localhost:5 {\nheader_up -X-Business-Id\n}\n}\n}\n" + site},
		"the business in the proxy's path":        {site, shop + "gatehouse_auth shop\nreverse_proxy localhost:5 {\nrewrite /b/{header.X-Business-Id}{uri}\nheader_up -X-Business-Id\n}\n}\n" + site},
		"copied headers":                          {site, site + "forward_auth localhost:9 {\nuri /check\ncopy_headers X-User\n}\n"},
		"a header for some responses":             {site, site + "intercept {\n@ok status 2xx\nhandle_response @ok {\nheader X-Seen yes\nrequest_header X-Seen yes\n}\n}\n"},
		"templates of files":                      {site, shop + "gatehouse_auth /a/* shop\nreverse_proxy /a/* localhost:5\ntemplates /pages/*\nroot /pages/* /srv\nfile_server /pages/*\n}\n" + site},
		"a page for errors of a proxy":            {site, site + "intercept /old/* {\n@down status 5xx\nhandle_response @down {\nrespond down\n}\n}\nreverse_proxy /old/* localhost:5 {\nheader_up -X-*\n}\n"},
		"a proxy of another site":                 {site, "www.example.com {\nreverse_proxy localhost:5\n}\n" + site},
		"two kinds of keys":                       {api, "handle /gw/* {\ngatehouse_api {\nbase_path /gw\nupstream http://localhost:3\n}\n}\n" + api},
		"a base path":                             {api, "handle /gw/* {\ngatehouse_api {\nbase_path /gw\nupstream http://localhost:3\n}\n}\n"},
		"two instances":                           {api, "handle /api/v1/events* {\n" + api + "}\n" + api},
		"a private readiness check":               {site, site + "gatehouse_health /healthz\n"},
		"a host of the environment":               {site, "https://{env.CHECK_HOST} {\ntls internal\ngatehouse_health\ngatehouse_api {\nupstream http://localhost:3\n}\n}\n" + site},
		"one host of a site":                      {"https://api.example.com {", "https://*.example.com {"},
		"a matcher for that host":                 {site + "\tgatehouse_connect", "https://*.example.com {\ntls internal\n@a host api.example.com\nhandle @a {\ngatehouse_health\n}\n\tgatehouse_connect"},
		"several paths":                           {api, "@m path /x /api/*\nhandle @m {\n" + api + "}\n"},
		"a negated path":                          {api, "@m not path /x /y/*\ngatehouse_api @m {\nupstream http://localhost:3\n}\n"},
		"a method matcher for the calls":          {api, "@m method GET HEAD\ngatehouse_api @m {\nupstream http://localhost:3\n}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, soundCaddyfile, lines[0])
			caddyfile := strings.Replace(soundCaddyfile, lines[0], lines[1], 1)
			if strings.Contains(caddyfile, "gatehouse_auth") {
				caddyfile = strings.Replace(caddyfile, "{\n\tadmin", filteredLog, 1)
			}
			found, _ := checkFile(t, caddyfile, "--offline")
			require.Empty(t, found, asJSON(t, found))
		})
	}
}

// What CI lacks is not a finding, and does not hide other mistakes. Nothing is contacted.
func TestCheckOfflineNeedsNothing(t *testing.T) {
	contacted := make(chan struct{}, 100)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			contacted <- struct{}{}
			_ = c.Close()
		}
	}()
	data := t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	lacking := strings.NewReplacer(
		"redis://localhost:1", "redis://ADDRESS {\npassword {file.DIR/missing}\n}",
		"credentials file DIR/keys.json", "credentials vault http://ADDRESS {\nauth approle role {env.NO_SUCH_SECRET}\n}\nassertion DIR/missing.pem",
		"tls internal", "tls DIR/missing.pem DIR/missing.key",
		"http://localhost:2", "http://ADDRESS {\nhealth_uri /healthz\n}",
		"http://localhost:3", "https://ADDRESS {\ntransport http {\ntls_trust_pool file DIR/missing.pem\n}\n}",
	).Replace(soundCaddyfile)
	lacking = strings.ReplaceAll(lacking, "ADDRESS", l.Addr().String())
	found, status := checkFile(t, lacking, "--offline")
	require.Empty(t, found)
	require.Equal(t, "0", status)
	found, _ = checkFile(t, strings.Replace(lacking, "issuer https", "issuer http", 1), "--offline")
	require.Len(t, found, 1)
	require.Equal(t, "GH001", found[0].Rule)

	present := strings.ReplaceAll(strings.ReplaceAll(soundCaddyfile, "localhost:1", l.Addr().String()), "http://localhost:2", "http://"+l.Addr().String()+" {\nhealth_uri /healthz\n}")
	t.Setenv("CHECK_TOKEN", "s3cret")
	for _, credentials := range []string{"credentials file DIR/keys.json", "credentials vault http://" + l.Addr().String() + " {\nauth token {env.CHECK_TOKEN}\n}"} {
		found, _ = checkFile(t, strings.Replace(present, "credentials file DIR/keys.json", credentials, 1), "--offline")
		assert.Empty(t, found)
	}
	dir := t.TempDir()
	writeCertificate(t, filepath.Join(dir, "stapled"), "api.example.com", time.Hour, "http://"+l.Addr().String())
	found, _ = checkFile(t, strings.Replace(soundCaddyfile, "tls internal", "tls "+dir+"/stapled.pem "+dir+"/stapled.key", 1), "--offline")
	assert.Empty(t, found)
	require.Empty(t, contacted)
	written, err := os.ReadDir(data)
	require.NoError(t, err)
	assert.Empty(t, written)
}
