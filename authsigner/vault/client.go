package vault

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/gatehouse-gateway/gatehouse/internal/clienttls"
)

// TLS is the TLS configuration. All fields are optional.
type TLS struct {
	CA         string // path of a PEM file with the trusted certificate authorities; default: the system's
	Cert, Key  string // paths of PEM files with a client certificate and its key, read for each connection
	ServerName string // expected name in Vault's certificate; default: the host of the address
}

// newTransport returns a transport for HTTP/1.1 only. With HTTP/2, all requests would share a dead connection for minutes; with
// HTTP/1.1, a canceled request closes its connection.
func newTransport(o Options) (*http.Transport, error) {
	config, err := clienttls.Config(o.TLS.CA, o.TLS.Cert, o.TLS.Key, o.TLS.ServerName)
	if err != nil {
		return nil, err
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: o.Timeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:       config,
		TLSHandshakeTimeout:   o.Timeout,
		TLSNextProto:          map[string]func(string, *tls.Conn) http.RoundTripper{},
		MaxIdleConnsPerHost:   1024, // the caller limits concurrent requests
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
	}, nil
}

// Limits of responses. By default, Vault stores at most 1 MiB in an entry. A list of a million keys has about 40 MB.
const (
	maxResponse = 1 << 20
	maxList     = 64 << 20
)

// limitedTransport cuts off large responses, because the client buffers them whole. Their JSON is then incomplete.
type limitedTransport struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (t limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	limit := int64(maxResponse)
	if resp.StatusCode == http.StatusOK && r.URL.Query().Has("list") {
		limit = maxList
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, limit), resp.Body}
	return resp, nil
}

// newClient returns a client without a token. It resets the settings that api.NewClient takes from the environment.
func newClient(o Options, transport *http.Transport) (*api.Client, error) {
	client, err := api.NewClient(&api.Config{
		Address: o.Address,
		HttpClient: &http.Client{
			Transport: limitedTransport{transport},
			// api.Client itself follows one redirect, with the token.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		// deadlines are set by contexts
		Timeout:      0,
		MaxRetries:   1,
		MinRetryWait: 50 * time.Millisecond,
		MaxRetryWait: 250 * time.Millisecond,
		CheckRetry:   retryReads,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the client: %w", err)
	}
	client.SetHeaders(http.Header{api.RequestHeaderName: {"true"}})
	client.ClearToken()
	client.SetWrappingLookupFunc(func(string, string) string { return "" })
	return client.WithNamespace(o.Namespace), nil
}

// retryReads retries GET requests after network and server errors, which helps during a failover. It does not retry 429 and other
// client errors.
func retryReads(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		failed, ok := errors.AsType[*url.Error](err)
		return ok && failed.Op == "Get", nil
	}
	return resp.Request.Method == http.MethodGet &&
		(resp.StatusCode == http.StatusPreconditionFailed || resp.StatusCode == http.StatusInternalServerError ||
			resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusGatewayTimeout), nil
}
