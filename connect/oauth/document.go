package oauth

import (
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
	"github.com/redis/go-redis/v9"
)

// How long a metadata document is cached.
const (
	minDocumentTTL = time.Minute
	maxDocumentTTL = time.Hour // also if its headers say nothing
)

// validDocumentURL returns an error if the URL cannot be a client ID (Client ID Metadata Document draft, section 3).
func validDocumentURL(id string) error {
	if len(id) > maxURI {
		return errors.New("it is too long")
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			return errors.New("it contains a character that is not allowed in a URL")
		}
	}
	u, err := url.Parse(id)
	if err != nil {
		return errors.New("it cannot be parsed")
	}
	authority, _, _ := strings.Cut(strings.TrimPrefix(id, "https://"), "/")
	switch {
	case !strings.HasPrefix(id, "https://") || u.Host == "":
		return errors.New("it is not an https URL")
	case u.User != nil || u.Host != authority:
		return errors.New("its authority must be a host, optionally with a port")
	case u.Path == "" || u.Path == "/":
		return errors.New("it has no path")
	case strings.Contains(id, "#"):
		return errors.New("it has a fragment")
	}
	if _, err := checkAuthority(authority); err != nil {
		return err
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return errors.New("its path has dot segments")
		}
	}
	return nil
}

// documentClient returns the client whose ID is the URL of its metadata document, from the cache or the URL. Concurrent
// requests for one document share a fetch.
func (s *Server) documentClient(ctx context.Context, id, ip string) (Client, error) {
	if err := validDocumentURL(id); err != nil {
		return Client{}, documentProblem("the client_id is not the URL of a metadata document: "+err.Error(), nil)
	}
	sum := sha256.Sum256([]byte(id))
	key := s.store.documentKey(encoding().EncodeToString(sum[:]))
	if c, err := s.cachedDocument(ctx, id, key); !errors.Is(err, errUnknownClient) {
		return c, err
	}
	if err := s.allow(ctx, "fetch", ip, s.o.Limits.Fetches); err != nil {
		return Client{}, err
	}
	if err := s.allow(ctx, "fetch", allIPs, s.o.Limits.AllFetches); err != nil {
		return Client{}, err
	}
	// The fetch must not be cancelled with the request that started it, because others may wait for it.
	fetched := s.fetches.DoChan(id, func() (any, error) { return s.fetchClient(context.WithoutCancel(ctx), id, key) })
	select {
	case result := <-fetched:
		if result.Err != nil {
			return Client{}, result.Err
		}
		c, _ := result.Val.(Client)
		return c, nil
	case <-ctx.Done():
		return Client{}, unavailable("waiting for a metadata document", ctx.Err())
	}
}

// cachedDocument reads the client from Redis. It returns errUnknownClient if the document has to be fetched.
func (s *Server) cachedDocument(ctx context.Context, id, key string) (Client, error) {
	var data string
	err := s.store.command(ctx, "reading a metadata document", func(ctx context.Context) (err error) {
		data, err = s.o.Redis.Get(ctx, key).Result()
		return err
	})
	c, err := decodeClient(data, err)
	if err == nil && c.ID != id {
		return Client{}, errUnknownClient
	}
	return c, err
}

func (s *Server) fetchClient(ctx context.Context, id, key string) (Client, error) {
	// Another request may have fetched it meanwhile.
	if c, err := s.cachedDocument(ctx, id, key); !errors.Is(err, errUnknownClient) {
		return c, err
	}
	body, header, err := s.fetcher.fetch(ctx, id)
	if err != nil {
		return Client{}, documentProblem("the client's metadata document could not be fetched",
			fmt.Errorf("fetching the metadata document %s: %w", loggedClientID(id), err))
	}
	c, data, err := s.readDocument(id, body)
	if err != nil {
		return Client{}, documentProblem("the client's metadata document cannot be used: "+err.Error(),
			fmt.Errorf("the metadata document %s: %w", loggedClientID(id), err))
	}
	err = s.store.command(ctx, "storing a metadata document", func(ctx context.Context) error {
		return s.o.Redis.Set(ctx, key, data, freshness(header)).Err()
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return Client{}, err
	}
	return c, nil
}

// readDocument parses a document. Its errors contain nothing from the document.
func (s *Server) readDocument(id string, body []byte) (c Client, data []byte, err error) {
	var m clientMetadata
	if err := json.Unmarshal(body, &m); err != nil {
		return Client{}, nil, errors.New("it is not valid client metadata in JSON")
	}
	switch {
	case m.ClientID != id:
		return Client{}, nil, errors.New("its client_id is not its URL")
	case m.ClientSecret != nil || strings.HasPrefix(m.AuthMethod, "client_secret"):
		return Client{}, nil, errors.New("it uses a client secret, which a public document cannot")
	case len(m.RedirectURIs) > maxRedirectURIs:
		return Client{}, nil, fmt.Errorf("it has more than %d redirect_uris", maxRedirectURIs)
	}
	// Unsupported ones, such as other schemes of the same application, are ignored.
	usable := slices.DeleteFunc(slices.Clone(m.RedirectURIs), func(raw string) bool {
		_, err := s.redirectURI(raw)
		return err != nil
	})
	if len(usable) == 0 {
		return Client{}, nil, errors.New("it has no redirect_uris that are allowed")
	}
	c, data, err = s.newClient(&m, id, KindMetadata, usable)
	if p, ok := errors.AsType[*problem](err); ok {
		return Client{}, nil, errors.New(p.description)
	}
	return c, data, err
}

func documentProblem(description string, cause error) error {
	p := &problem{status: http.StatusBadRequest, code: codeInvalidClient, description: description, cause: cause}
	return fmt.Errorf("%w: %w", errUnknownClient, p)
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	return kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
}

// freshness returns the freshness lifetime of a response (RFC 9111, section 4.2), clamped to the bounds. Expires counts only
// together with Date.
func freshness(header http.Header) time.Duration {
	lifetime := maxDocumentTTL
	var shared, private time.Duration = -1, -1
	for directive := range strings.SplitSeq(strings.Join(header.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		switch strings.ToLower(name) {
		case "no-store", "no-cache", "private":
			return minDocumentTTL
		case "s-maxage":
			shared = deltaSeconds(value)
		case "max-age":
			private = deltaSeconds(value)
		}
	}
	switch {
	case shared >= 0:
		lifetime = shared
	case private >= 0:
		lifetime = private
	case header.Get("Expires") != "":
		lifetime = 0
		if at, err := http.ParseTime(header.Get("Expires")); err == nil {
			if date, err := http.ParseTime(header.Get("Date")); err == nil {
				lifetime = at.Sub(date)
			}
		}
	}
	if age := deltaSeconds(header.Get("Age")); age > 0 {
		lifetime -= age
	}
	return min(max(lifetime, minDocumentTTL), maxDocumentTTL)
}

// deltaSeconds parses delta-seconds (RFC 9111, section 1.2.2). Invalid values are 0, which is stale.
func deltaSeconds(value string) time.Duration {
	n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}
