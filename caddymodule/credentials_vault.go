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

// VaultSource reads credentials from the KV secrets engine of HashiCorp Vault or OpenBao, one secret for each public key. All
// strings except those in TLS may contain placeholders such as {env.VAULT_ROLE_ID} or {file./run/secrets/vault-token}. Vault's own
// environment variables, such as VAULT_ADDR, are ignored.
type VaultSource struct {
	// Address is the URL of Vault. Required.
	Address string `json:"address"`

	// Namespace is the Vault Enterprise or OpenBao namespace. Default: no namespace.
	Namespace string `json:"namespace,omitempty"`

	// Mount is the mount path of the KV engine. Default: kv.
	Mount string `json:"mount,omitempty"`

	// Path is the path of the secrets below the mount. Default: gateway/keys.
	Path string `json:"path,omitempty"`

	// Version is the version of the KV engine, 1 or 2. Default: 0, which detects it.
	Version int `json:"version,omitempty"`

	// Timeout limits one call to Vault. Default: 2s. Zero means the default.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// TLS has the TLS settings for an https address. Default: the system's certificate authorities.
	TLS *TLSConfig `json:"tls,omitempty"`

	// Auth is how the gateway logs in. Required.
	Auth *VaultAuth `json:"auth"`
}

// VaultAuth is an auth method of Vault.
type VaultAuth struct {
	// Method is "token", "token_file", "approle", "kubernetes" or "cert". Required.
	Method string `json:"method"`

	// Mount is the mount path of the auth method. Default: the method's name.
	Mount string `json:"mount,omitempty"`

	// Token is the token for the method token. Use a placeholder to keep it out of the configuration.
	Token string `json:"token,omitempty"`

	// TokenFile is the path of a file with a token for the method token_file, such as one that Vault Agent renews.
	TokenFile string `json:"token_file,omitempty"`

	// RoleID and SecretID are for the method approle. If SecretID has the form {file.<path>}, the file is read at each login.
	RoleID   string `json:"role_id,omitempty"`
	SecretID string `json:"secret_id,omitempty"`

	// Role is the role for the method kubernetes and, optionally, cert.
	Role string `json:"role,omitempty"`

	// JWTFile is the path of the service account token for the method kubernetes. Default: the pod's.
	JWTFile string `json:"jwt_file,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*VaultSource) CaddyModule() caddy.ModuleInfo {
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
		fields = append(fields, &a.Mount, &a.Token, &a.TokenFile, &a.RoleID, &a.Role, &a.JWTFile)
		if a.secretIDFile() == "" {
			fields = append(fields, &a.SecretID)
		}
	}
	return resolve(repl, fields...)
}

// Validate implements caddy.Validator. Open checks the remaining settings.
func (s *VaultSource) Validate() error {
	if s.Address == "" {
		return errors.New("credentials vault: address must not be empty")
	}
	if s.Auth == nil || !slices.Contains(vaultMethods(), s.Auth.Method) {
		return fmt.Errorf("credentials vault: invalid auth method: must be one of %s", strings.Join(vaultMethods(), ", "))
	}
	return nil
}

// Settings implements CredentialSourceModule.
func (s *VaultSource) Settings() any { return []any{"vault", s, s.TLS.authorities()} }

// Open implements CredentialSourceModule.
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
		OnEvent: func(e vault.Event) { report(SourceEvent{Kind: string(e.Kind), Err: e.Err}) },
	}
	if s.TLS != nil {
		o.TLS = vault.TLS(*s.TLS)
	}
	switch a := s.Auth; a.Method {
	case "token":
		o.Auth.Token = authsigner.Secret(a.Token)
	case "token_file":
		o.Auth.TokenFile = a.TokenFile
	case "approle":
		o.Auth.AppRole = &vault.AppRole{RoleID: a.RoleID, SecretIDFile: a.secretIDFile(), Mount: a.Mount}
		if o.Auth.AppRole.SecretIDFile == "" {
			o.Auth.AppRole.SecretID = authsigner.Secret(a.SecretID)
		}
	case "kubernetes":
		o.Auth.Kubernetes = &vault.Kubernetes{Role: a.Role, JWTPath: a.JWTFile, Mount: a.Mount}
	case "cert":
		o.Auth.Cert = &vault.Cert{Name: a.Role, Mount: a.Mount}
	}
	return o
}

// secretIDFile returns the file that SecretID names, which is read at each login, because secret IDs expire and are replaced.
func (a *VaultAuth) secretIDFile() string {
	path, isFile := strings.CutPrefix(a.SecretID, "{file.")
	if path, ends := strings.CutSuffix(path, "}"); isFile && ends {
		return path
	}
	return ""
}

// UnmarshalCaddyfile parses the source. Syntax:
//
//	credentials vault <address> {
//	    auth token      <token>
//	    auth token_file <path>
//	    auth approle    <role_id> <secret_id> [<mount>]
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
	err = parseBlock(d, "credentials vault",
		option{name: "auth", parse: s.parseAuth},
		text("namespace", &s.Namespace),
		text("mount", &s.Mount),
		text("path", &s.Path),
		value("version", "one of 1, 2", &s.Version, func(v string) (int, bool) {
			version, ok := map[string]int{"1": 1, "2": 2}[v]
			return version, ok
		}),
		duration("timeout", &s.Timeout),
		tlsFiles(&s.TLS),
	)
	if err != nil {
		return err
	}
	if s.Auth == nil {
		return d.Errf("credentials vault needs the option auth: its method must be one of %s", strings.Join(vaultMethods(), ", "))
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
		// not quoted, because it may be a token without the method before it
		return d.Errf("auth: invalid method: must be one of %s", strings.Join(vaultMethods(), ", "))
	}
	args = args[1:]
	if len(args) < required || len(args) > len(targets) {
		return d.Errf("auth %s takes %d to %d arguments, got %d", a.Method, required, len(targets), len(args))
	}
	for i, arg := range args {
		if arg == "" {
			return d.Errf("auth %s: arguments must not be empty", a.Method)
		}
		*targets[i] = arg
	}
	s.Auth = a
	return nil
}

// Interface guards
var (
	_ caddy.Provisioner      = (*VaultSource)(nil)
	_ caddy.Validator        = (*VaultSource)(nil)
	_ caddyfile.Unmarshaler  = (*VaultSource)(nil)
	_ CredentialSourceModule = (*VaultSource)(nil)
)
