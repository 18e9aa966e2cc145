package oauth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"code.dny.dev/ssrf"
)

// Bounds of fetching a metadata document.
const (
	fetchTime    = 5 * time.Second
	fetchSize    = 32 << 10 // bytes
	fetchAtOnce  = 64
	fetchHeaders = 32 << 10 // bytes
)

// publicClient reaches public addresses only. The address is checked when it is dialled, after all names were resolved,
// so that a name cannot mean one address to the check and another to the connection. There is no proxy: it would
// resolve names by itself.
func publicClient(dialer *net.Dialer) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    fetchTime,
		ResponseHeaderTimeout:  fetchTime,
		MaxResponseHeaderBytes: fetchHeaders,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
	}}
}

// publicDialer refuses addresses outside the public Internet: private, loopback, link-local, shared and reserved ones,
// IPv4 in IPv6 in all its forms, and the metadata services of clouds, which are at such addresses but for one.
func publicDialer() *net.Dialer {
	guard := ssrf.New(
		ssrf.WithAnyPort(),
		ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")), // Azure's, public by its form
	)
	return &net.Dialer{Timeout: fetchTime, Control: guard.Safe}
}

// fetcher fetches metadata documents.
type fetcher struct {
	client *http.Client
	slots  chan struct{}
}

func newFetcher(client *http.Client) *fetcher {
	own := *client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	own.Jar = nil
	return &fetcher{client: &own, slots: make(chan struct{}, fetchAtOnce)}
}

// fetch gets the document with the headers that say how long it may be kept. Errors may name addresses: they are for
// the log.
func (f *fetcher) fetch(ctx context.Context, address string) (body []byte, header http.Header, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("waiting for other fetches: %w", ctx.Err())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, nil, fmt.Errorf("making the request: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "Gatehouse")
	response, err := f.client.Do(request)
	if err != nil {
		return nil, nil, fmt.Errorf("fetching: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case response.StatusCode != http.StatusOK:
		return nil, nil, fmt.Errorf("status %d", response.StatusCode)
	case !isJSON(response.Header.Get("Content-Type")):
		return nil, nil, errors.New("it is not JSON by its Content-Type")
	}
	body, err = io.ReadAll(io.LimitReader(response.Body, fetchSize+1))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("reading: %w", err)
	case len(body) > fetchSize:
		return nil, nil, fmt.Errorf("it is larger than %d bytes", fetchSize)
	}
	return body, response.Header, nil
}
