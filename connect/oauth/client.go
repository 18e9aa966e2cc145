package oauth

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
)

var errUnknownClient = errors.New("unknown client")

// kindClient is the prefix of registered clients' IDs.
const kindClient = "gcl_"

// Limits of client metadata.
const (
	maxName   = 80   // characters
	maxURI    = 1024 // characters, also of redirect URIs
	maxClient = 4000 // bytes of JSON, which Redis stores in 4 KiB
)

// Grant types of the token endpoint.
const (
	grantCode    = "authorization_code"
	grantRefresh = "refresh_token"
)

func grantTypes() []string { return []string{grantCode, grantRefresh} }

// clientMetadata is the metadata of a client (RFC 7591, section 2), in a registration, its response or a document. Other members
// are ignored.
type clientMetadata struct {
	ClientID      string   `json:"client_id,omitzero"`
	IssuedAt      int64    `json:"client_id_issued_at,omitzero"` // only in a response
	ClientSecret  any      `json:"client_secret,omitzero"`
	ClientName    string   `json:"client_name,omitzero"`
	ClientURI     string   `json:"client_uri,omitzero"`
	LogoURI       string   `json:"logo_uri,omitzero"`
	RedirectURIs  []string `json:"redirect_uris,omitzero"`
	GrantTypes    []string `json:"grant_types,omitzero"`
	ResponseTypes []string `json:"response_types,omitzero"`
	AuthMethod    string   `json:"token_endpoint_auth_method,omitzero"`
}

// newClient returns the client that the metadata describe.
func (s *Server) newClient(m *clientMetadata, id string, redirects []string) (Client, error) {
	if m.GrantTypes != nil && !slices.Contains(m.GrantTypes, grantCode) {
		return Client{}, refuse(codeInvalidMetadata, "grant_types must include authorization_code")
	}
	if m.ResponseTypes != nil && !slices.Contains(m.ResponseTypes, "code") {
		return Client{}, refuse(codeInvalidMetadata, "response_types must include code")
	}
	c := Client{
		ID:           id,
		Name:         cleanName(m.ClientName),
		URI:          cleanURI(m.ClientURI),
		LogoURI:      cleanURI(m.LogoURI),
		RedirectURIs: redirects,
		LocalOnly:    true,
		// RFC 7591 defaults to authorization_code alone, but clients that omit grant_types commonly use refresh tokens.
		Refreshes: m.GrantTypes == nil || slices.Contains(m.GrantTypes, grantRefresh),
	}
	if u, err := url.Parse(id); err == nil {
		c.Host = u.Host
	}
	shown := c.Host
	for _, raw := range redirects {
		u, err := s.redirectURI(raw)
		if err != nil {
			return Client{}, refuse(codeInvalidRedirectURI, "a redirect URI cannot be used: "+err.Error())
		}
		c.LocalOnly = c.LocalOnly && u.local()
		if shown == "" {
			shown = u.display()
		}
	}
	c.Name = cmp.Or(c.Name, shown)
	if data, err := json.Marshal(c); err != nil || len(data) > maxClient {
		return Client{}, refuse(codeInvalidMetadata, "the metadata is too long: use fewer or shorter redirect_uris")
	}
	return c, nil
}

// cleanName returns the name that a client gives itself as one line of at most maxName characters, without invisible ones.
func cleanName(name string) string { return cleantext.Line(name, maxName) }

// cleanURI keeps https addresses and drops everything else.
func cleanURI(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || len(raw) > maxURI || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return ""
	}
	return u.String()
}

// client looks up a client. Its errors are errUnknownClient, with a problem if there is a reason, and ErrUnavailable.
func (s *Server) client(r *http.Request, id string) (Client, error) {
	ctx := r.Context()
	switch {
	case strings.HasPrefix(id, "https://"):
		return s.documentClient(ctx, id, s.clientIPKey(r))
	case strings.HasPrefix(id, kindClient):
		return s.registeredClient(ctx, id)
	}
	return Client{}, errUnknownClient
}

func (s *Server) registeredClient(ctx context.Context, id string) (Client, error) {
	if !validID(strings.TrimPrefix(id, kindClient)) {
		return Client{}, errUnknownClient
	}
	return s.loadClient(ctx, s.clientKey(id))
}

// storeClient stores a client under the key of its registration or document.
func (s *Server) storeClient(ctx context.Context, key string, c Client, lifetime time.Duration) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return s.command(ctx, "storing a client", func(ctx context.Context) error {
		return s.o.Redis.Set(ctx, key, data, lifetime).Err()
	})
}

// loadClient reads a client. Its errors are errUnknownClient, also if another version has stored it, and ErrUnavailable.
func (s *Server) loadClient(ctx context.Context, key string) (c Client, err error) {
	err = s.command(ctx, "reading a client", func(ctx context.Context) error {
		data, err := s.o.Redis.Get(ctx, key).Bytes()
		if err == nil && json.Unmarshal(data, &c) != nil {
			return redis.Nil
		}
		return err
	})
	if errors.Is(err, redis.Nil) {
		return Client{}, errUnknownClient
	}
	return c, err
}

// clientExists reports whether a client is registered. It assumes that metadata documents exist and does not fetch them.
func (s *Server) clientExists(ctx context.Context, id string) (bool, error) {
	if strings.HasPrefix(id, "https://") {
		return validDocumentURL(id) == nil, nil
	}
	_, err := s.registeredClient(ctx, id)
	if errors.Is(err, errUnknownClient) {
		return false, nil
	}
	return err == nil, err
}

// extendRegistration extends a registration after a successful token request. Failures are ignored.
func (s *Server) extendRegistration(ctx context.Context, id string) {
	if !strings.HasPrefix(id, kindClient) {
		return
	}
	_ = s.command(ctx, "extending a registration", func(ctx context.Context) error {
		return s.o.Redis.Expire(ctx, s.clientKey(id), RegistrationLifetime).Err()
	})
}
