package oauth

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
)

// registration is the client information response (RFC 7591, section 3.2.1).
type registration struct {
	ClientID      string   `json:"client_id"`
	IssuedAt      int64    `json:"client_id_issued_at"`
	ClientName    string   `json:"client_name"`
	ClientURI     string   `json:"client_uri,omitempty"`
	LogoURI       string   `json:"logo_uri,omitempty"`
	RedirectURIs  []string `json:"redirect_uris"`
	GrantTypes    []string `json:"grant_types"`
	ResponseTypes []string `json:"response_types"`
	AuthMethod    string   `json:"token_endpoint_auth_method"`
}

func (s *Server) serveRegister(w http.ResponseWriter, r *http.Request) {
	noStore(w)
	response, err := s.register(w, r)
	if err != nil {
		writeProblem(w, s.newProblem(r.Context(), err))
		return
	}
	writeJSON(w, http.StatusCreated, response)
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) (registration, error) {
	ctx := r.Context()
	ip := s.o.ClientIPKey(r)
	if err := s.allow(ctx, "register", ip, s.o.Limits.Registrations); err != nil {
		return registration{}, err
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return registration{}, refuse(codeInvalidMetadata, "the body must be application/json")
	}
	body, err := readBody(w, r, MaxBody)
	if err != nil {
		return registration{}, err
	}
	var m clientMetadata
	if err := json.Unmarshal(body, &m); err != nil {
		return registration{}, refuse(codeInvalidMetadata, "the body is not valid client metadata in JSON")
	}
	switch {
	case len(m.RedirectURIs) == 0:
		return registration{}, refuse(codeInvalidRedirectURI, "redirect_uris is missing or empty")
	case len(m.RedirectURIs) > maxRedirectURIs:
		return registration{}, refuse(codeInvalidRedirectURI, fmt.Sprintf("redirect_uris must have at most %d entries", maxRedirectURIs))
	}
	c, data, err := s.newClient(&m, kindClient+newID(), KindRegistered, m.RedirectURIs)
	if err != nil {
		return registration{}, err
	}
	// Only valid requests count against the total, so that invalid ones cannot exhaust it.
	if err := s.allow(ctx, "register", allIPs, s.o.Limits.AllRegistrations); err != nil {
		return registration{}, err
	}
	err = s.store.command(ctx, "storing a client", func(ctx context.Context) error {
		return s.o.Redis.Set(ctx, s.store.clientKey(c.ID), data, UnusedLifetime).Err()
	})
	if err != nil {
		return registration{}, err
	}
	logClient(ctx, c.ID, c.Name)
	grants := grantTypes()
	if !c.Refreshes {
		grants = grants[:1]
	}
	return registration{
		ClientID:      c.ID,
		IssuedAt:      time.Now().Unix(),
		ClientName:    c.Name,
		ClientURI:     c.URI,
		LogoURI:       c.LogoURI,
		RedirectURIs:  c.RedirectURIs,
		GrantTypes:    grants,
		ResponseTypes: []string{"code"},
		AuthMethod:    "none",
	}, nil
}
