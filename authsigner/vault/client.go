package vault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/hashicorp/vault/api"
)

// TLS says how to speak TLS with Vault. Each field may be empty. The files are PEM.
type TLS struct {
	CA         string // path of the authorities to trust, and no others; default: the system's
	Cert, Key  string // paths of our certificate and its key, read anew for each connection; both or none
	ServerName string // the name to expect in Vault's certificate, instead of the address's host
}

// newTransport speaks HTTP/1.1 only. A look-up that was given up takes its connection with it, so that the next one
// gets a new one; a connection of HTTP/2 whose peer has silently gone would be shared by all for minutes.
func newTransport(o Options) (*http.Transport, error) {
	config, err := o.TLS.config()
	if err != nil {
		return nil, err
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: o.Timeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:       config,
		TLSHandshakeTimeout:   o.Timeout,
		TLSNextProto:          map[string]func(string, *tls.Conn) http.RoundTripper{},
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
	}, nil
}

func (t TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("reading the authorities to trust: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("reading the authorities to trust: no PEM certificate in %s", t.CA)
		}
	}
	switch {
	case (t.Cert == "") != (t.Key == ""):
		return nil, errors.New("of the TLS certificate and its key only one is given")
	case t.Cert != "":
		if _, err := tls.LoadX509KeyPair(t.Cert, t.Key); err != nil {
			return nil, fmt.Errorf("loading the TLS certificate: %w", err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			if err != nil {
				return nil, fmt.Errorf("loading the TLS certificate: %w", err)
			}
			return &pair, nil
		}
	}
	return config, nil
}

// newClient returns a client without a token, and undoes what api.NewClient has taken from the environment.
func newClient(o Options, transport *http.Transport) (*api.Client, error) {
	client, err := api.NewClient(&api.Config{
		Address: o.Address,
		HttpClient: &http.Client{
			Transport: transport,
			// The client follows Vault's redirects itself, once, and keeps the token with it.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		// Deadlines are the contexts'.
		Timeout:      0,
		MaxRetries:   1,
		MinRetryWait: 50 * time.Millisecond,
		MaxRetryWait: 250 * time.Millisecond,
		CheckRetry:   retryReads,
	})
	if err != nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	client.SetHeaders(http.Header{api.RequestHeaderName: {"true"}})
	client.ClearToken()
	client.SetWrappingLookupFunc(func(string, string) string { return "" })
	return client.WithNamespace(o.Namespace), nil
}

// retryReads repeats what changes nothing, if Vault or what is before it failed; that helps when another node takes
// over. Refusals, 429 among them, are not repeated: the caller has a deadline, and whoever is overloaded is left alone.
func retryReads(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		failed := (*url.Error)(nil)
		return errors.As(err, &failed) && failed.Op == "Get", nil
	}
	return resp.Request.Method == http.MethodGet &&
		(resp.StatusCode == http.StatusPreconditionFailed || resp.StatusCode == http.StatusInternalServerError ||
			resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusGatewayTimeout), nil
}
