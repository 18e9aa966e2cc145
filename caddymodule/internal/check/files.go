package check

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/configfile"
	"github.com/gatehouse-gateway/gatehouse/internal/similar"
)

// checkRecords decodes each record of the credential file.
func (c *checker) checkRecords() {
	const pointer = "/apps/gatehouse/credentials"
	if c.app == nil || c.vault != nil {
		return
	}
	var source struct {
		Path string `json:"path"`
	}
	_ = json.Unmarshal(c.app.CredentialsRaw, &source)
	content := readFile(caddy.NewReplacer().ReplaceAll(source.Path, ""))
	var file struct {
		Keys map[string]map[string]any `json:"keys"`
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	if d.Decode(&file) != nil {
		return // the loader reports it
	}
	callable := map[string]bool{} // the APIs that a key may call
	for _, key := range slices.Sorted(maps.Keys(file.Keys)) {
		cred, err := authsigner.DecodeCredential(key, file.Keys[key])
		if err != nil {
			c.report("GH045", pointer, "the key %s cannot be used: %v", authsigner.PrintableKey(key), err)
			continue
		}
		unknown := slices.DeleteFunc(slices.Sorted(maps.Keys(file.Keys[key])), func(name string) bool { return slices.Contains(authsigner.RecordFields(), name) })
		for _, name := range unknown {
			if known := similar.Nearest(name, authsigner.RecordFields()); known != "" {
				c.report("GH048", pointer, "the record of the key %s has the member %s: is it meant to be %s?", key, name, known)
			} else {
				c.report("GH074", pointer, "the record of the key %s has the member %s, which this version does not know", key, name)
			}
		}
		switch {
		case !cred.ExpiresAt.IsZero() && cred.ExpiresAt.Before(time.Now()):
			c.report("GH046", pointer, "the key %s expired at %s", key, cred.ExpiresAt.Format(time.RFC3339))
		case cred.Status == authsigner.StatusActive:
			c.business = cmp.Or(c.business, cred.BusinessID)
			for _, resource := range cred.Resources {
				api, _, _ := strings.Cut(resource, "/")
				callable[api] = true
			}
		}
	}
	for _, h := range c.handlers {
		name, _ := h.Value["name"].(string) // of a gatehouse_auth
		pointer := h.Pointer
		if h.api != nil {
			name, pointer = h.api.Definition.Name, h.Pointer+"/definition/name"
		}
		if h.connect == nil && name != "" && !callable[name] {
			c.report("GH064", pointer, "no active key of %s has %s in its resources", source.Path, name)
		}
	}
}

// maxFile is the size of the files that are read.
const maxFile = 64 << 20

// readFile returns the content of a file, or nil if there is none. It does not wait for named pipes or read devices without an end, which
// the gateway refuses.
func readFile(path string) []byte {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return content
}

// each calls f with each value of a configuration.
func each(value any, pointer string, f func(pointer string, value any)) {
	f(pointer, value)
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			each(v[name], pointer+"/"+name, f)
		}
	case []any:
		for i, one := range v {
			each(one, pointer+"/"+strconv.Itoa(i), f)
		}
	}
}

var (
	filePlaceholder = regexp.MustCompile(`\{file\.([^{}]+)\}`)

	// secretFile matches the pointers of paths of private keys and tokens.
	secretFile = regexp.MustCompile(`/key_files/|/tls/client_certificate_key_file$|` +
		`^/apps/(tls/certificates/load_files/.+/key|gatehouse/(.+/tls/key|credentials/auth/(token|jwt)_file))$`)
)

// checkSecretFiles looks at the credential file, private keys, tokens and the files of placeholders. Secrets of container orchestrators have
// the permissions that these choose.
func (c *checker) checkSecretFiles() {
	var roots []string
	var hide [][]string // of each file server
	for _, h := range c.placed {
		if h.Name == "file_server" {
			patterns, _ := h.Value["hide"].([]any)
			hide = append(hide, nil)
			for _, p := range patterns {
				pattern, _ := p.(string)
				hide[len(hide)-1] = append(hide[len(hide)-1], pattern)
			}
		}
		if root, _ := h.Value["root"].(string); root != "" && (h.Name == "vars" || h.Name == "file_server") {
			roots = append(roots, root)
		}
	}
	for _, h := range c.placed {
		setsRoot := func(o configfile.Handler) bool {
			return o.Value["root"] != nil && (o.Name == "vars" || o.Pointer == h.Pointer) && o.Server == h.Server && slices.Equal(o.Hosts, h.Hosts)
		}
		if h.Name == "file_server" && !slices.ContainsFunc(c.placed, setsRoot) {
			roots = append(roots, ".") // Caddy's default
		}
	}
	each(c.Value, "", func(pointer string, value any) {
		path, _ := value.(string)
		isCredentials := pointer == "/apps/gatehouse/credentials/path" && c.vault == nil
		if m := filePlaceholder.FindStringSubmatch(path); m != nil {
			path = m[1]
		} else if !isCredentials && !secretFile.MatchString(pointer) {
			return
		}
		info, err := os.Stat(path)
		if err == nil && !isCredentials && info.Mode().IsRegular() && info.Mode().Perm()&0o026 != 0 && !strings.HasPrefix(strings.TrimPrefix(path, "/var"), "/run/secrets/") {
			c.report("GH026", pointer, "the permissions of %s are %04o", path, info.Mode().Perm())
		}
		to, _ := filepath.Abs(path)
		if !slices.ContainsFunc(hide, func(patterns []string) bool { return !hidden(to, patterns) }) {
			return
		}
		for _, root := range roots {
			from, _ := filepath.Abs(root)
			if inside, err := filepath.Rel(from, to); err == nil && filepath.IsLocal(inside) {
				c.report("GH071", pointer, "%s is below %s, whose files a file server publishes", path, root)
				break
			}
		}
	})
}

// hidden reports whether a file server hides a file by its name or a directory's, or by the path of either, as Caddy does.
func hidden(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if strings.Contains(pattern, "/") {
			full, _ := filepath.Abs(pattern)
			matches, _ := filepath.Match(full, path)
			return matches || strings.HasPrefix(path+"/", full+"/")
		}
		return slices.ContainsFunc(strings.Split(path, string(filepath.Separator)), func(name string) bool {
			matches, _ := filepath.Match(pattern, name)
			return matches
		})
	})
}

// checkCertificates compares certificate files with the hosts of sites.
func (c *checker) checkCertificates() {
	for _, s := range c.gatehouseServers() {
		if auto := s.AutoHTTPS; s.TLSConnPolicies != nil && (auto.Disabled || auto.DisableCerts) && configfile.Member(c.Value, "apps", "tls") == nil {
			c.report("GH025", "/auto_https", "auto_https leaves the server on %s without a certificate", strings.Join(s.Listen, ", "))
		}
	}
	var hosts []string
	for _, h := range c.placed {
		hosts = append(hosts, h.Hosts...)
	}
	each(c.Value, "", func(pointer string, value any) {
		path, _ := value.(string)
		if strings.HasSuffix(pointer, "/ca") && strings.Contains(path, "acme-staging") {
			c.report("GH025", pointer, "%s is for tests: clients do not trust its certificates", path)
		}
		if !strings.HasPrefix(pointer, "/apps/tls/certificates/load_files/") || !strings.HasSuffix(pointer, "/certificate") {
			return
		}
		block, _ := pem.Decode(readFile(path))
		if block == nil {
			return
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return
		}
		if time.Now().After(cert.NotAfter) {
			c.report("GH068", pointer, "the certificate %s expired at %s", path, cert.NotAfter.Format(time.RFC3339))
		} else if len(hosts) > 0 && !slices.ContainsFunc(hosts, func(host string) bool {
			return strings.Contains(host, "{") || cert.VerifyHostname(strings.Replace(host, "*", "gatehouse", 1)) == nil
		}) {
			c.report("GH025", pointer, "the certificate %s is for %s, which no site serves", path, strings.Join(cert.DNSNames, ", "))
		}
	})
}
