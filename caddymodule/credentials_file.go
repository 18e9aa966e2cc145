package caddymodule

import (
	"context"
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
)

// FileSource reads credentials from a local JSON file, for development and small installations. It reloads a changed file
// within about a second.
type FileSource struct {
	// Path is the path of the file. Placeholders are resolved. Required.
	Path string `json:"path"`

	// Create creates the file if there is none. For commands.
	Create bool `json:"-"`
}

// eventFileChanged is the credential event of a changed file, besides those of package file.
const eventFileChanged = "file_changed"

// CaddyModule returns the Caddy module information.
func (*FileSource) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  credentialsNamespace + ".file",
		New: func() caddy.Module { return new(FileSource) },
	}
}

// Provision resolves placeholders.
func (s *FileSource) Provision(caddy.Context) error { return resolve(caddy.NewReplacer(), &s.Path) }

// Validate implements caddy.Validator.
func (s *FileSource) Validate() error {
	if s.Path == "" {
		return errors.New("credentials file: path must not be empty")
	}
	return nil
}

// Settings implements CredentialSourceModule.
func (s *FileSource) Settings() any { return []string{"file", s.Path} }

// Open implements CredentialSourceModule.
func (s *FileSource) Open(_ context.Context, report func(SourceEvent)) (CredentialStore, error) {
	store, err := file.Open(s.Path, file.Options{ //nolint:contextcheck // the store outlives the context
		Create:  s.Create,
		OnEvent: func(e file.Event) { report(SourceEvent{Kind: string(e.Kind), Err: e.Err}) },
	})
	if err != nil {
		return nil, err
	}
	store.OnChange(func(keys []string) { report(SourceEvent{Kind: eventFileChanged, Changed: keys}) })
	return store, nil
}

// UnmarshalCaddyfile parses the source. Syntax:
//
//	credentials file <path>
func (s *FileSource) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the source's name
	path, err := oneArg(d, "credentials file")
	if err != nil {
		return err
	}
	s.Path = path
	return noBlock(d, "credentials file")
}

// Interface guards
var (
	_ caddy.Provisioner      = (*FileSource)(nil)
	_ caddy.Validator        = (*FileSource)(nil)
	_ caddyfile.Unmarshaler  = (*FileSource)(nil)
	_ CredentialSourceModule = (*FileSource)(nil)
)
