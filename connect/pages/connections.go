package pages

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

// connectionsView is the list of connected apps.
type connectionsView struct {
	Connections []connection
	Owner       bool
	Endpoint    string // the MCP endpoint's URL, to paste into an assistant
}

// connection is a connected app as the pages show it.
type connection struct {
	oauth.Grant
	Name, Initial, Host string
	UsedAgo             string // "" if it was never used
	By                  string // who approved it; "" if unknown
	See, Change         []string
	OnItsOwn            string // what Grant.Unasked allows, "" if nothing
}

// connectionView is the page with the form that changes or ends a connection.
type connectionView struct {
	Token      string
	Connection connection
	Unasked    []permission // the check box for Grant.Unasked, if the connection may run something
	permissions
}

func (p *Pages) showConnections(w http.ResponseWriter, r *http.Request, s *session) error {
	q := r.URL.Query()
	if q.Has("revoke") || q.Has("change") {
		return p.askAboutConnection(w, r, s, q.Get("revoke"), q.Get("change"))
	}
	grants, err := p.o.OAuth.Grants(r.Context(), s.account.BusinessID)
	if err != nil {
		return unavailable(err)
	}
	v := connectionsView{Owner: s.account.IsOwner(), Endpoint: p.issuer + oauth.ResourcePath}
	var ids []string
	for _, g := range grants {
		ids = append(ids, g.AccountID)
	}
	approvers := p.names(r, s.account, ids...)
	for _, g := range grants {
		v.Connections = append(v.Connections, p.connection(s, g, approvers))
	}
	p.render(w, r, http.StatusOK, "connected-apps", p.settings(w, r, s, "Connected apps", ConnectionsPath), v)
	return nil
}

// grant returns a connection of the business. Its errors are those of Grants and oauth.ErrNoGrant.
func (p *Pages) grant(r *http.Request, s *session, id string) (oauth.Grant, error) {
	grants, err := p.o.OAuth.Grants(r.Context(), s.account.BusinessID)
	i := slices.IndexFunc(grants, func(g oauth.Grant) bool { return g.ID == id })
	if err != nil || i < 0 {
		return oauth.Grant{}, cmp.Or(err, oauth.ErrNoGrant)
	}
	return grants[i], nil
}

// askAboutConnection shows the form that ends or changes a connection.
func (p *Pages) askAboutConnection(w http.ResponseWriter, r *http.Request, s *session, revoke, change string) error {
	if err := ownerOnly(s.account, "change and disconnect apps"); err != nil {
		return err
	}
	g, err := p.grant(r, s, cmp.Or(revoke, change))
	if err != nil {
		return p.connectionProblem(w, s, err)
	}
	if revoke == "" {
		return p.renderChange(w, r, http.StatusOK, s, g, g.Scopes, "")
	}
	p.render(w, r, http.StatusOK, "disconnect", p.settings(w, r, s, "Disconnect an app", ConnectionsPath), connectionView{
		Token: s.token(formConnections), Connection: p.connection(s, g, p.names(r, s.account, g.AccountID)),
	})
	return nil
}

// connectionProblem returns the page for an error of the authorization server.
func (p *Pages) connectionProblem(w http.ResponseWriter, s *session, err error) error {
	switch {
	case errors.Is(err, oauth.ErrNotOwner):
		return ownerOnly(s.account, "change and disconnect apps")
	case errors.Is(err, oauth.ErrNoGrant): // also after a double click
		return p.done(w, noticeNoConnection, ConnectionsPath)
	case errors.Is(err, oauth.ErrOutcomeUnknown):
		return outcomeUnknown("Check Connected apps in a moment.", err).withLink(ConnectionsPath, "See connected apps")
	}
	return unavailable(err)
}

func (p *Pages) changeConnections(w http.ResponseWriter, r *http.Request, s *session) error {
	id, purpose, change := r.PostForm.Get("connection"), formConnections, r.PostForm.Has("version")
	if change {
		purpose = formChange + " " + id
	}
	if err := s.check(r, purpose, ConnectionsPath); err != nil {
		return err
	}
	if change {
		return p.changeConnection(w, r, s, id)
	}
	if err := p.o.OAuth.Revoke(r.Context(), id, s.account); err != nil {
		return p.connectionProblem(w, s, err)
	}
	return p.done(w, noticeDisconnected, ConnectionsPath)
}

func (p *Pages) connection(s *session, g oauth.Grant, approvers map[string]string) connection {
	host := cleantext.Line(g.ClientHost, maxHost)
	name := cmp.Or(cleantext.Line(g.ClientName, maxLabel), host)
	g.CreatedAt, g.LastUsedAt = g.CreatedAt.In(s.account.Location()), g.LastUsedAt.In(s.account.Location()) // as in Activity
	c := connection{
		Grant: g, Name: name, Initial: initial(name), Host: strings.TrimSuffix(host, ":"),
		By: approvers[g.AccountID], See: titles(g.Scopes, scope.VerbRead),
	}
	if g.LastUsedAt.After(g.CreatedAt) {
		c.UsedAgo = humanize.RelTime(g.LastUsedAt, p.o.Now(), "ago", "from now")
	}
	for _, a := range g.Scopes.Areas().All().List() {
		for _, verb := range []string{scope.VerbWrite, scope.VerbRun} {
			if g.Scopes.Includes(a, verb) {
				c.Change = append(c.Change, a.Text(verb))
			}
		}
	}
	if runs := titles(g.Scopes, scope.VerbRun); runs != nil {
		c.OnItsOwn = "Start what writes to people (" + english.WordSeries(runs, "and") + ") even if the app cannot ask you"
		if g.Unasked {
			c.Change = append(c.Change, c.OnItsOwn)
		}
	}
	return c
}

// maxNames is the maximum number of accounts that one page looks up.
const maxNames = 10

// names returns the names of accounts of a business, by ID. It leaves out those whose lookup failed.
func (p *Pages) names(r *http.Request, you account.Account, ids ...string) map[string]string {
	names := map[string]string{you.ID: you.DisplayName()}
	for _, id := range ids {
		if _, ok := names[id]; ok || len(names) > maxNames {
			continue
		}
		a, err := p.o.Accounts.Account(r.Context(), id)
		if errors.Is(err, account.ErrUnavailable) {
			break
		}
		names[id] = ""
		if err == nil && a.BusinessID == you.BusinessID {
			names[id] = a.DisplayName()
		}
	}
	return names
}
