package oauth

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

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
	maxURI    = 1024 // bytes
	maxClient = 4000 // bytes of JSON, which Redis stores in 4 KiB
)

// Grant types of the token endpoint.
const (
	grantCode    = "authorization_code"
	grantRefresh = "refresh_token"
)

func grantTypes() []string { return []string{grantCode, grantRefresh} }

// clientMetadata is the metadata of a client (RFC 7591, section 2), in a registration or a document. Other members are ignored.
type clientMetadata struct {
	ClientID      string   `json:"client_id,omitzero"`
	ClientSecret  any      `json:"client_secret,omitzero"`
	ClientName    string   `json:"client_name,omitzero"`
	ClientURI     string   `json:"client_uri,omitzero"`
	LogoURI       string   `json:"logo_uri,omitzero"`
	RedirectURIs  []string `json:"redirect_uris,omitzero"`
	GrantTypes    []string `json:"grant_types,omitzero"`
	ResponseTypes []string `json:"response_types,omitzero"`
	AuthMethod    string   `json:"token_endpoint_auth_method,omitzero"`
}

// newClient returns the client that the metadata describe, and its encoding for storage.
func (s *Server) newClient(m *clientMetadata, id string, kind ClientKind, redirects []string) (c Client, data []byte, err error) {
	if m.GrantTypes != nil && !slices.Contains(m.GrantTypes, grantCode) {
		return Client{}, nil, refuse(codeInvalidMetadata, "grant_types must include authorization_code")
	}
	if m.ResponseTypes != nil && !slices.Contains(m.ResponseTypes, "code") {
		return Client{}, nil, refuse(codeInvalidMetadata, "response_types must include code")
	}
	c = Client{
		ID:           id,
		Kind:         kind,
		Name:         cleanName(m.ClientName),
		URI:          cleanURI(m.ClientURI),
		LogoURI:      cleanURI(m.LogoURI),
		RedirectURIs: redirects,
		LocalOnly:    true,
		// RFC 7591 defaults to authorization_code alone, but clients that omit grant_types commonly use refresh tokens.
		Refreshes: m.GrantTypes == nil || slices.Contains(m.GrantTypes, grantRefresh),
	}
	if u, err := url.Parse(id); kind == KindMetadata && err == nil {
		c.Host = u.Host
	}
	shown := c.Host
	for _, raw := range redirects {
		u, err := s.redirectURI(raw)
		if err != nil {
			return Client{}, nil, refuse(codeInvalidRedirectURI, "a redirect URI cannot be used: "+err.Error())
		}
		c.LocalOnly = c.LocalOnly && u.local()
		if shown == "" {
			shown = u.display()
		}
	}
	c.Name = cmp.Or(c.Name, shown)
	if data, err = json.Marshal(c); err != nil {
		return Client{}, nil, err
	}
	if len(data) > maxClient {
		return Client{}, nil, refuse(codeInvalidMetadata, "the metadata is too long: use fewer or shorter redirect_uris")
	}
	return c, data, nil
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
		return s.documentClient(ctx, id, s.o.ClientIPKey(r))
	case strings.HasPrefix(id, kindClient):
		return s.registeredClient(ctx, id)
	}
	return Client{}, errUnknownClient
}

func (s *Server) registeredClient(ctx context.Context, id string) (Client, error) {
	if !validID(strings.TrimPrefix(id, kindClient)) {
		return Client{}, errUnknownClient
	}
	var data string
	err := s.store.command(ctx, "reading a client", func(ctx context.Context) (err error) {
		data, err = s.o.Redis.Get(ctx, s.store.clientKey(id)).Result()
		return err
	})
	return decodeClient(data, err)
}

func decodeClient(data string, err error) (Client, error) {
	if errors.Is(err, redis.Nil) {
		return Client{}, errUnknownClient
	}
	if err != nil {
		return Client{}, err
	}
	var c Client
	if err := json.Unmarshal([]byte(data), &c); err != nil {
		return Client{}, errUnknownClient // stored by another version
	}
	return c, nil
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
	_ = s.store.command(ctx, "extending a registration", func(ctx context.Context) error {
		return s.o.Redis.Expire(ctx, s.store.clientKey(id), RegistrationLifetime).Err()
	})
}
