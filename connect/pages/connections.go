package pages

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// connectionsView is the list of connected apps.
type connectionsView struct {
	Connections []connection
	Owner       bool
	Endpoint    string // the MCP endpoint's URL, to paste into an assistant
}

// connection is a connected app as the pages show it.
type connection struct {
	ID, Name, Initial, Host string
	Since, Used, Ends       time.Time
	UsedAgo                 string // "" if it was never used
	By                      string // who has connected it
	See, Change             []string
	RevokeURL               string
}

// disconnectView asks whether to end a connection.
type disconnectView struct {
	Token      string
	Connection connection
}

func (p *Pages) showConnections(w http.ResponseWriter, r *http.Request) error {
	s, err := p.signedIn(r, ConnectionsPath)
	if err != nil {
		return err
	}
	grants, err := p.oauth.Grants(r.Context(), s.account.BusinessID)
	if err != nil {
		return unavailable(err)
	}
	if q := r.URL.Query(); q.Has("revoke") {
		return p.askToDisconnect(w, r, s, grants, q.Get("revoke"))
	}
	v := connectionsView{Owner: s.account.IsOwner(), Endpoint: p.issuer + "/mcp"}
	approvers := p.approvers(r, s.account, grants)
	for _, g := range grants {
		v.Connections = append(v.Connections, p.connection(g, approvers))
	}
	p.render(w, r, http.StatusOK, "connected-apps", p.settings(w, r, s, "Connected apps", ConnectionsPath), v)
	return nil
}

func (p *Pages) askToDisconnect(w http.ResponseWriter, r *http.Request, s *session, grants []oauth.Grant, id string) error {
	if err := ownerOnly(s.account, "disconnect apps"); err != nil {
		return err
	}
	i := slices.IndexFunc(grants, func(g oauth.Grant) bool { return g.ID == id })
	if i < 0 {
		return p.done(w, noticeNoConnection, ConnectionsPath)
	}
	p.render(w, r, http.StatusOK, "disconnect", p.settings(w, r, s, "Disconnect an app", ConnectionsPath), disconnectView{
		Token: s.token(formConnections), Connection: p.connection(grants[i], p.approvers(r, s.account, grants[i:i+1])),
	})
	return nil
}

func (p *Pages) changeConnections(w http.ResponseWriter, r *http.Request) error {
	s, err := p.signedIn(r, ConnectionsPath)
	if err != nil {
		return err
	}
	if err := ownerOnly(s.account, "disconnect apps"); err != nil {
		return err
	}
	if !checkToken(s.id, formConnections, r.PostForm.Get(tokenField)) {
		return forged().withLink(ConnectionsPath, "Open the page again")
	}
	switch err := p.oauth.Revoke(r.Context(), r.PostForm.Get("connection"), s.account); {
	case errors.Is(err, oauth.ErrNoGrant): // also after a double click
		return p.done(w, noticeNoConnection, ConnectionsPath)
	case errors.Is(err, oauth.ErrOutcomeUnknown):
		return outcomeUnknown("Check Connected apps in a moment.", err).withLink(ConnectionsPath, "See connected apps")
	case err != nil:
		return unavailable(err)
	}
	return p.done(w, noticeDisconnected, ConnectionsPath)
}

func (p *Pages) connection(g oauth.Grant, approvers map[string]string) connection {
	name := cmp.Or(cleantext.Line(g.ClientName, maxLabel), cleantext.Line(g.ClientHost, maxLabel))
	c := connection{
		ID: g.ID, Name: name, Initial: initial(name), Host: strings.TrimSuffix(cleantext.Line(g.ClientHost, 2*maxLabel), ":"),
		Since: g.CreatedAt, Used: g.LastUsedAt, Ends: g.ExpiresAt, By: approvers[g.AccountID],
		RevokeURL: ConnectionsPath + "?" + url.Values{"revoke": {g.ID}}.Encode(),
	}
	if g.LastUsedAt.After(g.CreatedAt) {
		c.UsedAgo = humanize.RelTime(g.LastUsedAt, p.now(), "ago", "from now")
	}
	for _, a := range scope.All().List() {
		if g.Scopes.Includes(a, scope.VerbRead) {
			c.See = append(c.See, a.Title)
		}
		for _, verb := range []string{scope.VerbWrite, scope.VerbRun} {
			if g.Scopes.Includes(a, verb) {
				c.Change = append(c.Change, a.Text(verb))
			}
		}
	}
	return c
}

// maxApprovers is the maximum number of accounts that are looked up for one page.
const maxApprovers = 10

// approvers returns the names of the accounts that approved connections, without those whose lookup failed.
func (p *Pages) approvers(r *http.Request, you account.Account, grants []oauth.Grant) map[string]string {
	names := map[string]string{you.ID: you.DisplayName()}
	for _, g := range grants {
		if _, ok := names[g.AccountID]; ok || len(names) > maxApprovers {
			continue
		}
		a, err := p.accounts.Account(r.Context(), g.AccountID)
		if errors.Is(err, account.ErrUnavailable) {
			break
		}
		if err == nil && a.BusinessID == you.BusinessID {
			names[g.AccountID] = a.DisplayName()
		} else {
			names[g.AccountID] = ""
		}
	}
	return names
}
