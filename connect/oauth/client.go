package oauth

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/versioned"
)

var errUnknownClient = errors.New("unknown client")

// kindClient is the prefix of registered clients' IDs.
const kindClient = "gcl_"

// Grant types of the token endpoint.
const (
	grantCode    = "authorization_code"
	grantRefresh = "refresh_token"
)

func grantTypes() []string { return []string{grantCode, grantRefresh} }

// client looks up a client. Its errors are errUnknownClient, with a problem if there is a reason, a 429 problem and ErrUnavailable.
func (s *Server) client(r *http.Request, id string) (Client, error) {
	switch {
	case strings.HasPrefix(id, "https://"):
		return s.documentClient(r, id)
	case strings.HasPrefix(id, kindClient):
		return s.registeredClient(r.Context(), id)
	}
	return Client{}, errUnknownClient
}

func (s *Server) registeredClient(ctx context.Context, id string) (Client, error) {
	if !validID(strings.TrimPrefix(id, kindClient)) {
		return Client{}, errUnknownClient
	}
	return s.loadClient(ctx, s.clientKey(id))
}

// storeClient stores a client under the key of its registration or metadata document.
func (s *Server) storeClient(ctx context.Context, key string, c Client, lifetime time.Duration) error {
	data, err := versioned.Encode(c)
	if err != nil {
		return err
	}
	return s.command(ctx, "storing a client", func(ctx context.Context) error {
		return s.o.Redis.Set(ctx, key, data, lifetime).Err()
	})
}

// loadClient reads a client. Its errors are errUnknownClient, also if the stored value is malformed, and ErrUnavailable.
func (s *Server) loadClient(ctx context.Context, key string) (c Client, err error) {
	err = s.command(ctx, "reading a client", func(ctx context.Context) error {
		data, err := s.o.Redis.Get(ctx, key).Bytes()
		if err != nil {
			return err
		}
		if err = versioned.Decode(data, &c); err != nil && !errors.Is(err, versioned.ErrLater) {
			return redis.Nil
		}
		return err
	})
	if errors.Is(err, redis.Nil) {
		return Client{}, errUnknownClient
	}
	return c, err
}

// clientExists reports whether a client is registered. It does not fetch metadata documents and assumes that they exist.
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

// extendRegistration restarts the lifetime of a registration after a successful token request. Failures are ignored.
func (s *Server) extendRegistration(ctx context.Context, id string) {
	if !strings.HasPrefix(id, kindClient) {
		return
	}
	_ = s.command(ctx, "extending a registration", func(ctx context.Context) error {
		return s.o.Redis.Expire(ctx, s.clientKey(id), registrationLifetime).Err()
	})
}
