package oauth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

// Limits of client metadata.
const (
	maxName   = 80   // characters
	maxURI    = 1024 // characters, also of redirect URIs
	maxClient = 4000 // bytes of JSON, which Redis stores in 4 KiB
)

// How long a metadata document is cached.
const (
	minDocumentTTL = time.Minute
	maxDocumentTTL = time.Hour // also if its headers say nothing
)

// clientMetadata is the metadata of a client (RFC 7591, section 2) in a registration request or response, or in a metadata
// document. Other members are ignored.
type clientMetadata struct {
	ClientID      string   `json:"client_id,omitzero"`
	IssuedAt      int64    `json:"client_id_issued_at,omitzero"` // only in a response
	ClientSecret  any      `json:"client_secret,omitzero"`
	ClientName    string   `json:"client_name,omitzero"`
	RedirectURIs  []string `json:"redirect_uris,omitzero"`
	GrantTypes    []string `json:"grant_types,omitzero"`
	ResponseTypes []string `json:"response_types,omitzero"`
	AuthMethod    string   `json:"token_endpoint_auth_method,omitzero"`
}

// newClient checks metadata and returns the client. Its error is a problem.
func (s *Server) newClient(m *clientMetadata, id string, redirects []string) (Client, error) {
	if m.GrantTypes != nil && !slices.Contains(m.GrantTypes, grantCode) {
		return Client{}, badRequest(codeInvalidMetadata, "grant_types must include authorization_code")
	}
	if m.ResponseTypes != nil && !slices.Contains(m.ResponseTypes, "code") {
		return Client{}, badRequest(codeInvalidMetadata, "response_types must include code")
	}
	c := Client{
		ID:           id,
		Name:         cleantext.Line(m.ClientName, maxName),
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
			return Client{}, badRequest(codeInvalidRedirectURI, "invalid redirect URI: "+err.Error())
		}
		c.LocalOnly = c.LocalOnly && u.local()
		shown = cmp.Or(shown, u.display())
	}
	c.Name = cmp.Or(c.Name, shown)
	if data, err := json.Marshal(c); err != nil || len(data) > maxClient {
		return Client{}, badRequest(codeInvalidMetadata, "the metadata is too large: use fewer or shorter redirect_uris")
	}
	return c, nil
}

// validDocumentURL returns an error unless the URL is valid as a client ID (Client ID Metadata Document draft, section 3).
func validDocumentURL(id string) error {
	u, err := parseURI(id)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https":
		return errors.New("must be an https URL")
	case u.Path == "" || u.Path == "/":
		return errors.New("must have a path")
	case slices.ContainsFunc(strings.Split(u.Path, "/"), func(segment string) bool { return segment == "." || segment == ".." }):
		return errors.New("path must not contain dot segments")
	}
	_, _, err = cutHost(id, u)
	return err
}

// documentClient returns the client whose ID is the URL of its metadata document, from the cache or the URL. Concurrent
// requests for one document share a fetch.
func (s *Server) documentClient(r *http.Request, id string) (Client, error) {
	ctx := r.Context()
	if err := validDocumentURL(id); err != nil {
		return Client{}, documentProblem("client_id is not a valid metadata document URL: "+err.Error(), nil)
	}
	sum := sha256.Sum256([]byte(id))
	key := s.documentKey(encoding().EncodeToString(sum[:]))
	if c, err := s.loadClient(ctx, key); !errors.Is(err, errUnknownClient) {
		return c, err
	}
	if err := s.allowIP(ctx, r, "fetch", s.o.limits.Fetches); err != nil {
		return Client{}, err
	}
	if err := s.allow(ctx, "fetch", allIPs, s.o.limits.AllFetches); err != nil {
		return Client{}, err
	}
	// The fetch must not be cancelled with the request that started it, because others may wait for it.
	fetched, err, _ := s.fetches.Do(id, func() (any, error) { return s.fetchClient(context.WithoutCancel(ctx), id, key) })
	c, _ := fetched.(Client)
	return c, err
}

func (s *Server) fetchClient(ctx context.Context, id, key string) (Client, error) {
	// Another request may have stored it since.
	if c, err := s.loadClient(ctx, key); !errors.Is(err, errUnknownClient) {
		return c, err
	}
	body, header, err := s.fetch(ctx, id)
	if err != nil {
		return Client{}, documentProblem("the client's metadata document could not be fetched",
			fmt.Errorf("fetching the metadata document %s: %w", loggedClientID(id), err))
	}
	c, err := s.readDocument(id, body)
	if err != nil {
		return Client{}, documentProblem("invalid client metadata document: "+err.Error(),
			fmt.Errorf("the metadata document %s: %w", loggedClientID(id), err))
	}
	return c, s.storeClient(ctx, key, c, freshness(header))
}

// readDocument parses a document. Its errors contain nothing from the document.
func (s *Server) readDocument(id string, body []byte) (Client, error) {
	var m clientMetadata
	if err := json.Unmarshal(body, &m); err != nil {
		return Client{}, errors.New("must be client metadata in JSON")
	}
	switch {
	case m.ClientID != id:
		return Client{}, errors.New("client_id must equal the document URL")
	case m.ClientSecret != nil || strings.HasPrefix(m.AuthMethod, "client_secret"):
		return Client{}, errors.New("must not use a client secret")
	case len(m.RedirectURIs) > maxRedirectURIs:
		return Client{}, fmt.Errorf("must have at most %d redirect_uris", maxRedirectURIs)
	}
	// Unsupported URIs, such as those with other schemes of the same application, are ignored.
	usable := slices.DeleteFunc(slices.Clone(m.RedirectURIs), func(raw string) bool {
		_, err := s.redirectURI(raw)
		return err != nil
	})
	if len(usable) == 0 {
		return Client{}, errors.New("redirect_uris must contain an https, loopback or allowed private-use URI")
	}
	c, err := s.newClient(&m, id, usable)
	if p, ok := errors.AsType[*problem](err); ok {
		return Client{}, errors.New(p.description)
	}
	return c, err
}

func documentProblem(description string, cause error) error {
	p := &problem{status: http.StatusBadRequest, code: codeInvalidClient, description: description, cause: cause}
	return fmt.Errorf("%w: %w", errUnknownClient, p)
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"))
}

// freshness returns the freshness lifetime of a response (RFC 9111, section 4.2), clamped to minDocumentTTL and maxDocumentTTL.
// Expires needs Date.
func freshness(header http.Header) time.Duration {
	lifetime := maxDocumentTTL
	var sMaxAge, maxAge time.Duration = -1, -1
	for directive := range strings.SplitSeq(strings.Join(header.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		switch strings.ToLower(name) {
		case "no-store", "no-cache", "private":
			return minDocumentTTL
		case "s-maxage":
			sMaxAge = deltaSeconds(value)
		case "max-age":
			maxAge = deltaSeconds(value)
		}
	}
	switch {
	case sMaxAge >= 0:
		lifetime = sMaxAge
	case maxAge >= 0:
		lifetime = maxAge
	case header.Get("Expires") != "":
		at, invalid := http.ParseTime(header.Get("Expires"))
		date, unknown := http.ParseTime(header.Get("Date"))
		if lifetime = at.Sub(date); invalid != nil || unknown != nil {
			lifetime = 0
		}
	}
	lifetime -= deltaSeconds(header.Get("Age"))
	return min(max(lifetime, minDocumentTTL), maxDocumentTTL)
}

// deltaSeconds parses delta-seconds (RFC 9111, section 1.2.2). Values of 2^31 or more are 2^31-1; invalid ones are 0, which is stale.
func deltaSeconds(value string) time.Duration {
	n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return time.Duration(n) * time.Second
}
