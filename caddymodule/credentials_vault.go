package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
)

// VaultSource keeps credentials in the KV engine of HashiCorp Vault or OpenBao, one entry for each public key. All
// strings may hold placeholders such as {env.VAULT_ROLE_ID} or {file./run/secrets/vault-token}. None of Vault's own
// environment variables is read.
type VaultSource struct {
	// Address is Vault's URL. Required.
	Address string `json:"address"`

	// Namespace is the Vault Enterprise or OpenBao namespace. Default: none.
	Namespace string `json:"namespace,omitempty"`

	// Mount is where the KV engine is mounted. Default: kv.
	Mount string `json:"mount,omitempty"`

	// Path is the folder of the entries under the mount. Default: gateway/keys.
	Path string `json:"path,omitempty"`

	// Version of the KV engine, 1 or 2. Default: 0, which asks Vault.
	Version int `json:"version,omitempty"`

	// Timeout bounds one call to Vault. Default: 2s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// TLS settings for an https address. Default: the system's authorities.
	TLS *TLSConfig `json:"tls,omitempty"`

	// Auth says how the gateway logs in. Required.
	Auth *VaultAuth `json:"auth"`
}

// VaultAuth is one way to log in to Vault.
type VaultAuth struct {
	// Method is "token", "token_file", "approle", "kubernetes" or "cert".
	Method string `json:"method"`

	// Mount is where the auth method is mounted. Default: the method's name.
	Mount string `json:"mount,omitempty"`

	// Token is for "token": best a placeholder.
	Token string `json:"token,omitempty"`

	// TokenFile is for "token_file": a file that something else keeps current, such as Vault Agent.
	TokenFile string `json:"token_file,omitempty"`

	// RoleID and SecretID are for "approle". A SecretID of the form {file.<path>} is read anew at each login.
	RoleID   string `json:"role_id,omitempty"`
	SecretID string `json:"secret_id,omitempty"`

	// Role is for "kubernetes" and, optionally, "cert".
	Role string `json:"role,omitempty"`

	// JWTFile is for "kubernetes". Default: the pod's service account token.
	JWTFile string `json:"jwt_file,omitempty"`

	secretIDFile string
}

// CaddyModule returns the Caddy module information.
func (VaultSource) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  credentialsNamespace + ".vault",
		New: func() caddy.Module { return new(VaultSource) },
	}
}

// Provision resolves placeholders.
func (s *VaultSource) Provision(caddy.Context) error {
	repl := caddy.NewReplacer()
	fields := []*string{&s.Address, &s.Namespace, &s.Mount, &s.Path}
	if a := s.Auth; a != nil {
		if path, ok := strings.CutPrefix(a.SecretID, "{file."); ok && strings.HasSuffix(path, "}") {
			// secret ids expire and are replaced: the file is read at each login, not once
			a.secretIDFile, a.SecretID = strings.TrimSuffix(path, "}"), ""
		}
		fields = append(fields, &a.Mount, &a.Token, &a.TokenFile, &a.RoleID, &a.SecretID, &a.Role, &a.JWTFile)
	}
	return resolve(repl, fields...)
}

// Validate checks that there is an address and a known way to log in; Open refuses what else can never work.
func (s *VaultSource) Validate() error {
	if s.Address == "" {
		return errors.New("credentials vault: there is no address")
	}
	if s.Auth == nil || !slices.Contains(vaultMethods(), s.Auth.Method) {
		return fmt.Errorf("credentials vault: no way to log in: must be one of auth %s", strings.Join(vaultMethods(), ", auth "))
	}
	return nil
}

// Settings implements SecretsSource.
func (s *VaultSource) Settings() any {
	file := ""
	if s.Auth != nil {
		file = s.Auth.secretIDFile
	}
	return []any{"vault", s, file}
}

// Open implements SecretsSource.
func (s *VaultSource) Open(ctx context.Context, report func(SourceEvent)) (CredentialStore, error) {
	store, err := vault.New(ctx, s.options(report))
	if err != nil {
		return nil, err
	}
	return store, nil
}

func (s *VaultSource) options(report func(SourceEvent)) vault.Options {
	o := vault.Options{
		Address: s.Address, Namespace: s.Namespace, Mount: s.Mount, Path: s.Path, KVVersion: s.Version,
		Timeout: time.Duration(s.Timeout),
	}
	if report != nil {
		o.OnEvent = func(e vault.Event) { report(SourceEvent{Kind: string(e.Kind), Err: e.Err}) }
	}
	if s.TLS != nil {
		o.TLS = vault.TLS{CA: s.TLS.CA, Cert: s.TLS.Cert, Key: s.TLS.Key, ServerName: s.TLS.ServerName}
	}
	if a := s.Auth; a != nil {
		switch a.Method {
		case "token":
			o.Auth.Token = authsigner.Secret(a.Token)
		case "token_file":
			o.Auth.TokenFile = a.TokenFile
		case "approle":
			o.Auth.AppRole = &vault.AppRole{RoleID: a.RoleID, SecretID: authsigner.Secret(a.SecretID), SecretIDFile: a.secretIDFile, Mount: a.Mount}
		case "kubernetes":
			o.Auth.Kubernetes = &vault.Kubernetes{Role: a.Role, JWTPath: a.JWTFile, Mount: a.Mount}
		case "cert":
			o.Auth.Cert = &vault.Cert{Name: a.Role, Mount: a.Mount}
		}
	}
	return o
}

// UnmarshalCaddyfile reads the source. Syntax:
//
//	credentials vault <address> {
//	    auth token      <token>
//	    auth token_file <path>
//	    auth approle    <role id> <secret id> [<mount>]
//	    auth kubernetes <role> [<jwt file>] [<mount>]
//	    auth cert       [<role>] [<mount>]
//	    namespace <name>
//	    mount     <name>
//	    path      <path>
//	    version   1|2
//	    timeout   <duration>
//	    tls {
//	        ca          <file>
//	        cert        <file>
//	        key         <file>
//	        server_name <name>
//	    }
//	}
func (s *VaultSource) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the source's name
	address, err := oneArg(d, "credentials vault")
	if err != nil {
		return err
	}
	s.Address = address
	var version string
	err = parseBlock(d, "credentials vault", map[string]option{
		"auth":      s.parseAuth,
		"namespace": stringOption("namespace", &s.Namespace),
		"mount":     stringOption("mount", &s.Mount),
		"path":      stringOption("path", &s.Path),
		"version":   choiceOption("version", &version, "1", "2"),
		"timeout":   durationOption("timeout", &s.Timeout),
		"tls":       tlsOption("tls", &s.TLS),
	}, []string{"auth", "namespace", "mount", "path", "version", "timeout", "tls"})
	if err != nil {
		return err
	}
	if version != "" {
		s.Version = int(version[0] - '0')
	}
	if s.Auth == nil {
		return d.Errf("credentials vault needs a way to log in: auth %s", strings.Join(vaultMethods(), ", auth "))
	}
	return nil
}

func vaultMethods() []string { return []string{"token", "token_file", "approle", "kubernetes", "cert"} }

func (s *VaultSource) parseAuth(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) == 0 {
		return d.Errf("auth needs a method: must be one of %s", strings.Join(vaultMethods(), ", "))
	}
	a := &VaultAuth{Method: args[0]}
	var (
		targets  []*string
		required int
	)
	switch a.Method {
	case "token":
		targets, required = []*string{&a.Token}, 1
	case "token_file":
		targets, required = []*string{&a.TokenFile}, 1
	case "approle":
		targets, required = []*string{&a.RoleID, &a.SecretID, &a.Mount}, 2
	case "kubernetes":
		targets, required = []*string{&a.Role, &a.JWTFile, &a.Mount}, 1
	case "cert":
		targets = []*string{&a.Role, &a.Mount}
	default:
		// it is not quoted: who forgets the method has written the token in its place
		return d.Errf("auth: the first argument is not a method: must be one of %s", strings.Join(vaultMethods(), ", "))
	}
	args = args[1:]
	if len(args) < required || len(args) > len(targets) {
		return d.Errf("auth %s takes %d to %d arguments, not %d", a.Method, required, len(targets), len(args))
	}
	for i, arg := range args {
		if arg == "" {
			return d.Errf("auth %s: an argument is empty", a.Method)
		}
		*targets[i] = arg
	}
	s.Auth = a
	return nil
}

// Interface guards
var (
	_ caddy.Provisioner     = (*VaultSource)(nil)
	_ caddy.Validator       = (*VaultSource)(nil)
	_ caddyfile.Unmarshaler = (*VaultSource)(nil)
	_ SecretsSource         = (*VaultSource)(nil)
)
