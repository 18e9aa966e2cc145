package caddymodule

import (
	"context"
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
)

// FileSource keeps credentials in one local JSON file, for development and small installs. A change to the file is
// noticed within about a second.
type FileSource struct {
	// Path of the file. Placeholders are resolved. Required.
	Path string `json:"path"`

	create bool // the file, if there is none
}

// CaddyModule returns the Caddy module information.
func (FileSource) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  credentialsNamespace + ".file",
		New: func() caddy.Module { return new(FileSource) },
	}
}

// Provision resolves placeholders.
func (s *FileSource) Provision(caddy.Context) error { return resolve(caddy.NewReplacer(), &s.Path) }

// Validate checks that there is a path.
func (s *FileSource) Validate() error {
	if s.Path == "" {
		return errors.New("the credential file has no path")
	}
	return nil
}

// Settings implements SecretsSource.
func (s *FileSource) Settings() any { return []string{"file", s.Path} }

// Open implements SecretsSource.
func (s *FileSource) Open(_ context.Context, report func(SourceEvent)) (CredentialStore, error) {
	store, err := file.Open(s.Path, file.Options{ //nolint:contextcheck // it watches for longer than the context lives
		Create:  s.create,
		OnEvent: func(e file.Event) { report(SourceEvent{Kind: string(e.Kind), Err: e.Err}) },
	})
	if err != nil {
		return nil, err
	}
	store.OnChange(func(keys []string) { report(SourceEvent{Kind: "file_changed", Changed: keys}) })
	return store, nil
}

// UnmarshalCaddyfile reads the source. Syntax:
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
	_ caddy.Provisioner     = (*FileSource)(nil)
	_ caddy.Validator       = (*FileSource)(nil)
	_ caddyfile.Unmarshaler = (*FileSource)(nil)
	_ SecretsSource         = (*FileSource)(nil)
)
