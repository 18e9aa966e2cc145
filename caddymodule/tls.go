package caddymodule

import "os"

// TLSConfig is the TLS configuration of a connection to a store.
type TLSConfig struct {
	// CA is the path of a PEM file with the trusted certificate authorities. Default: the system's.
	CA string `json:"ca,omitempty"`

	// Cert and Key are the paths of PEM files with a client certificate and its key. Default: no client certificate.
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`

	// ServerName is the expected name in the server's certificate. Default: the host of the address.
	ServerName string `json:"server_name,omitempty"`
}

// authorities returns the content of the CA file, which is part of the settings of a shared client: a replaced file counts as a
// changed setting. If it cannot be read, opening the client fails.
func (c *TLSConfig) authorities() []byte {
	if c == nil || c.CA == "" {
		return nil
	}
	content, _ := os.ReadFile(c.CA)
	return content
}
