package caddymodule

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
