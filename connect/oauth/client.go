package oauth

import (
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

// errUnknownClient says that there is no such client.
var errUnknownClient = errors.New("unknown client")

// kindClient begins the ids of registered clients.
const kindClient = "gcl_"

// Bounds of what clients say of themselves.
const (
	maxName = 80   // characters
	maxURI  = 1024 // bytes

	// maxClient is how large a client may be as it is stored, in bytes of JSON: what Redis keeps in 4 KiB.
	maxClient = 4000
)

// Grant types of the token endpoint.
const (
	grantCode    = "authorization_code"
	grantRefresh = "refresh_token"
)

func grantTypes() []string { return []string{grantCode, grantRefresh} }

// clientMetadata is what a client says of itself (RFC 7591, section 2), in a registration or in its document. What is
// not here is ignored: all else that it names there, such as keys, contacts and grant types that nobody knows.
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

// newClient makes a client of what it says of itself, and encodes it as it is stored.
func (s *Server) newClient(m *clientMetadata, id string, kind ClientKind, redirects []string) (c Client, data []byte, err error) {
	if m.GrantTypes != nil && !slices.Contains(m.GrantTypes, grantCode) {
		return Client{}, nil, refuse(codeInvalidMetadata, "grant_types has to include authorization_code")
	}
	if m.ResponseTypes != nil && !slices.Contains(m.ResponseTypes, "code") {
		return Client{}, nil, refuse(codeInvalidMetadata, "response_types has to include code")
	}
	c = Client{
		ID:           id,
		Kind:         kind,
		Name:         cleanName(m.ClientName),
		URI:          cleanURI(m.ClientURI),
		LogoURI:      cleanURI(m.LogoURI),
		RedirectURIs: redirects,
		LocalOnly:    true,
		// Who does not say what it uses is taken to use what there is.
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
	if c.Name == "" {
		c.Name = shown
	}
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

// client finds a client. A problem says why there is none that could be trusted; ErrUnavailable that it is not known
// whether there is.
func (s *Server) client(r *http.Request, id string) (Client, error) {
	ctx := r.Context()
	switch {
	case strings.HasPrefix(id, "https://"):
		return s.documentClient(ctx, id, s.o.ClientAddress(r))
	case strings.HasPrefix(id, kindClient):
		return s.registeredClient(ctx, id)
	}
	return Client{}, errUnknownClient
}

// registeredClient reads a registration.
func (s *Server) registeredClient(ctx context.Context, id string) (Client, error) {
	if !validID(strings.TrimPrefix(id, kindClient)) {
		return Client{}, errUnknownClient
	}
	var data string
	err := s.store.ask(ctx, "reading a client", func(ctx context.Context) (err error) {
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
		return Client{}, errUnknownClient // of a version that wrote it in another way
	}
	return c, nil
}

// knows reports whether a client id may be somebody's, for clients that have to be told that their registration is gone.
// Documents are not fetched for that.
func (s *Server) knows(ctx context.Context, id string) (bool, error) {
	if strings.HasPrefix(id, "https://") {
		return validDocumentURL(id) == nil, nil
	}
	_, err := s.registeredClient(ctx, id)
	if errors.Is(err, errUnknownClient) {
		return false, nil
	}
	return err == nil, err
}

// useClient prolongs a registration after a successful token request. It is no harm if that fails.
func (s *Server) useClient(ctx context.Context, id string) {
	if !strings.HasPrefix(id, kindClient) {
		return
	}
	_ = s.store.ask(ctx, "prolonging a registration", func(ctx context.Context) error {
		return s.o.Redis.Expire(ctx, s.store.clientKey(id), RegistrationLifetime).Err()
	})
}
