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
	"net/url"
	"time"

	"code.dny.dev/ssrf"
)

// Limits of fetching a metadata document.
const (
	fetchTimeout         = 5 * time.Second // including the wait for other fetches
	maxDocumentSize      = 32 << 10        // bytes
	maxConcurrentFetches = 64
	maxHeaderSize        = 32 << 10 // bytes
)

// publicTransport returns a transport that connects to public addresses only. dialer checks each address when it connects, to prevent
// DNS rebinding. The transport uses no proxy, which would resolve names itself.
func publicTransport(dialer *net.Dialer) http.RoundTripper {
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    fetchTimeout,
		ResponseHeaderTimeout:  fetchTimeout,
		MaxResponseHeaderBytes: maxHeaderSize,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
	}
}

// publicDialer returns a dialer that rejects private, loopback, link-local, shared and reserved addresses, also IPv4 addresses
// embedded in IPv6, and the metadata services of clouds.
func publicDialer() *net.Dialer {
	guard := ssrf.New(
		ssrf.WithAnyPort(),
		ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")), // Azure's metadata service, a public address
	)
	return &net.Dialer{Timeout: fetchTimeout, Control: guard.Safe}
}

// fetch returns the document and the response's headers. Its errors may contain IP addresses and are for the log only.
func (s *Server) fetch(ctx context.Context, address string) (body []byte, header http.Header, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if err := s.fetchSem.Acquire(ctx, 1); err != nil {
		return nil, nil, fmt.Errorf("waiting for other fetches: %w", err)
	}
	defer s.fetchSem.Release(1)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody) //nolint:gosec // G704: the transport connects to public addresses only
	if err != nil {
		return nil, nil, fmt.Errorf("making the request: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "Gatehouse")
	response, err := s.documents.Do(request) //nolint:gosec // G704: as above
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL, which may have a query
		}
		return nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case response.StatusCode != http.StatusOK:
		return nil, nil, fmt.Errorf("status %d", response.StatusCode)
	case !isJSON(response.Header.Get("Content-Type")):
		return nil, nil, errors.New("Content-Type must be application/json")
	}
	body, err = io.ReadAll(io.LimitReader(response.Body, maxDocumentSize+1))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("reading: %w", err)
	case len(body) > maxDocumentSize:
		return nil, nil, fmt.Errorf("document must be at most %d bytes", maxDocumentSize)
	}
	return body, response.Header, nil
}
