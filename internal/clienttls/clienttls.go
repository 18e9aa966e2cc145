// Package clienttls makes the TLS configuration of a connection to a store from files.
package clienttls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Config returns a TLS configuration that trusts the certificate authorities in the PEM file ca (default: the system's),
// expects serverName in the server's certificate (default: the host of the address), and presents the certificate in the PEM
// files cert and key (default: none). These are read for each connection, because certificates expire and are replaced.
func Config(ca, cert, key, serverName string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate authorities: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("reading the certificate authorities: no PEM certificate in %s", ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("a TLS client certificate needs both cert and key")
	}
	if cert == "" {
		return config, nil
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("loading the TLS certificate: %w", err)
		}
		return &pair, nil
	}
	_, err := config.GetClientCertificate(nil)
	return config, err
}
