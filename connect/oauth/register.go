package oauth

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
)

func (s *Server) serveRegister(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	// A page that makes its visitors register must not exhaust the limits of programs, neither of all nor of those on its visitors' machines.
	kind, all := "register", s.o.limits.AllRegistrations
	if r.Header.Get("Origin") != "" {
		kind, all = "register-page", s.o.limits.PageRegistrations
	}
	if err := s.allowIP(ctx, r, kind, s.o.limits.Registrations); err != nil {
		return err
	}
	body, err := readBody(w, r, "application/json", codeInvalidMetadata)
	if err != nil {
		return err
	}
	var m clientMetadata
	if err := json.Unmarshal(body, &m); err != nil {
		return badRequest(codeInvalidMetadata, "the body must be client metadata in JSON")
	}
	switch {
	case len(m.RedirectURIs) == 0:
		return badRequest(codeInvalidRedirectURI, "redirect_uris is missing or empty")
	case len(m.RedirectURIs) > maxRedirectURIs:
		return badRequest(codeInvalidRedirectURI, fmt.Sprintf("redirect_uris must have at most %d entries", maxRedirectURIs))
	}
	c, err := s.newClient(&m, kindClient+newID(), m.RedirectURIs)
	if err != nil {
		return err
	}
	// Only valid requests count against the total, so that invalid ones cannot exhaust it.
	if err := s.allow(ctx, kind, allIPs, all); err != nil {
		return err
	}
	if err := s.storeClient(ctx, s.clientKey(c.ID), c, unusedLifetime); err != nil {
		return err
	}
	logClient(ctx, c.ID, c.Name)
	grants := grantTypes()
	if !c.Refreshes {
		grants = grants[:1]
	}
	writeJSON(w, http.StatusCreated, clientMetadata{
		ClientID: c.ID, IssuedAt: time.Now().Unix(), ClientName: c.Name, RedirectURIs: c.RedirectURIs, GrantTypes: grants,
		ResponseTypes: []string{"code"}, AuthMethod: "none",
	})
	return nil
}
