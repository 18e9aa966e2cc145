package check

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/caddyserver/caddy/v2"

	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/configfile"
)

// unreachableAddr is an address to which nothing can connect.
const unreachableAddr = "127.0.0.1:0"

// buildOffline builds the configuration without connecting to anything. Each part that needs a file or an environment variable
// that is missing is replaced, and other errors are returned as a [configfile.Error].
func (c *checker) buildOffline(dir string) error {
	var value any
	if err := json.Unmarshal(c.Raw, &value); err != nil {
		return c.ErrorAt("", err)
	}
	disconnect(value)
	for {
		raw, err := json.Marshal(value)
		if err != nil {
			return c.ErrorAt("", err)
		}
		built, err := c.build(raw, dir)
		if err == nil {
			return built.close()
		}
		failure := new(configfile.Error)
		if !errors.As(err, &failure) || !isMissing(failure.Message) {
			return err
		}
		if replaced, err := replaceMissing(value, failure.Value, dir); !replaced {
			return err
		}
	}
}

// disconnect replaces the addresses of what is contacted while a configuration is built, and those of active health checks. It
// also turns off OCSP stapling, for which Caddy asks when it loads a certificate.
func disconnect(value any) {
	app := configfile.Member(value, "apps", appName)
	unreachable := func(text any) string {
		s, _ := text.(string)
		if resolved, err := caddy.NewReplacer().ReplaceOrErr(s, true, true); err == nil {
			if u, err := url.Parse(resolved); err == nil && u.Scheme == "unix" {
				return "redis://" + unreachableAddr
			} else if err == nil && u.Hostname() != "" {
				u.Host = unreachableAddr
				return u.String()
			}
		}
		return s
	}
	if urls, ok := configfile.Member(app, "redis", "urls").([]any); ok {
		for i := range urls {
			urls[i] = unreachable(urls[i])
		}
	}
	if source, ok := configfile.Member(app, "credentials").(map[string]any); ok && source["address"] != nil {
		source["address"] = unreachable(source["address"])
	}
	if tls, ok := configfile.Member(value, "apps", "tls").(map[string]any); ok {
		tls["disable_ocsp_stapling"] = true
	}
	disconnectHealthChecks(value)
}

func disconnectHealthChecks(value any) {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			disconnectHealthChecks(one)
		}
	case map[string]any:
		if active, ok := configfile.Member(v["health_checks"], "active").(map[string]any); ok {
			active["upstream"] = unreachableAddr
		}
		for _, one := range v {
			disconnectHealthChecks(one)
		}
	}
}

// isMissing reports whether an error is about a file or an environment variable that is missing. Caddy's loader does not wrap
// errors.
func isMissing(message string) bool {
	return strings.Contains(message, syscall.ENOENT.Error()) || strings.Contains(message, "the environment variable is not set")
}

var innermostHandler = regexp.MustCompile(`^(/.+/handle)/(\d+)`)

// replaceMissing replaces the part of a configuration that an error is about by one that needs nothing. It reports whether there
// was such a part.
func replaceMissing(value any, pointer, dir string) (bool, error) {
	app, _ := configfile.Member(value, "apps", appName).(map[string]any)
	inApp, isApp := strings.CutPrefix(pointer, "/apps/"+appName+"/")
	part, _, _ := strings.Cut(inApp, "/")
	file := filepath.Join(dir, part)
	var content []byte
	switch {
	case !isApp:
		if m := innermostHandler.FindStringSubmatch(pointer); m != nil {
			handlers := value
			for step := range strings.SplitSeq(m[1][1:], "/") {
				handlers = configfile.Member(handlers, step)
			}
			handler, _ := configfile.Member(handlers, m[2]).(map[string]any)
			if was := handler["handler"]; was == nil || was == "vars" {
				return false, nil
			}
			clear(handler)
			handler["handler"] = "vars"
			return true, nil
		}
		tls, _ := configfile.Member(value, "apps", "tls").(map[string]any)
		if !strings.HasPrefix(pointer, "/apps/tls") || tls["certificates"] == nil {
			return false, nil // other findings are possible, but not certain
		}
		delete(tls, "certificates")
		return true, nil
	case part == "redis":
		app[part] = map[string]any{"urls": []any{"redis://" + unreachableAddr}}
		return true, nil
	case part == "credentials":
		app[part], content = map[string]any{"source": "file", "path": file}, []byte(`{"keys":{}}`)
	case part == "assertion":
		der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
		if err != nil {
			return false, fmt.Errorf("encoding a key: %w", err)
		}
		app[part], content = map[string]any{"key_files": []any{file}}, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	default:
		return false, nil
	}
	if _, err := os.Stat(file); err == nil {
		return false, nil // it has been replaced
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return false, fmt.Errorf("writing an example of a missing file: %w", err)
	}
	return true, nil
}
