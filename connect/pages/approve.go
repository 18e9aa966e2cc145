package pages

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

// approveView is the approval page, and that for members, who can only deny.
type approveView struct {
	Request, Token  string // fields of the form
	SignOut         string // token of the form "Use another account"
	Return          string // URL of this page, for that form
	Client, Initial string
	Host            string // of the redirect URI, or its scheme if App
	App             bool   // the redirect URI has a private-use scheme
	Vouched         string // the host that vouches for the client's name, or ""
	Local           bool   // a program on the user's machine may impersonate the client
	By              account.Account
	Minutes         int  // until the request expires, rounded up
	Partial         bool // more could be allowed than what is asked for
	permissions
}

func (p *Pages) showApprove(w http.ResponseWriter, r *http.Request) error {
	id := r.URL.Query().Get("request")
	req, err := p.o.OAuth.Pending(r.Context(), id)
	if err != nil {
		return decisionProblem(err, id)
	}
	s, err := p.signedIn(w, r, approveURL(id))
	if err != nil {
		return err
	}
	if !s.account.IsOwner() {
		p.renderNotOwner(w, r, s, req)
		return nil
	}
	readOnly := req.Scopes.Narrow(func(_ scope.Area, verb string) bool { return verb == scope.VerbRead })
	p.renderApprove(w, r, http.StatusOK, s, req, newPermissions(req.Scopes, readOnly))
	return nil
}

func requestOver() *pageError {
	return newError(http.StatusNotFound, "This request is over", "It has expired, or a decision was made and the app has been told. "+
		"If you chose Connect and the app is listed under Connected apps, it is connected. Otherwise, go back to the app and "+
		"start again from there.", nil).withLink(ConnectionsPath, "See connected apps")
}

// renderApprove shows the form.
func (p *Pages) renderApprove(w http.ResponseWriter, r *http.Request, status int, s *session, req oauth.Request, boxes permissions) {
	v := p.approveView(s, req)
	v.permissions, v.Asked = boxes, true
	w.Header().Set("Content-Security-Policy", policyRedirecting)
	p.render(w, r, status, "approve", frame{Title: titled("Connect "+v.Client, boxes.Problem), Wide: true}, v)
}

func (p *Pages) approveView(s *session, req oauth.Request) approveView {
	host := cleantext.Line(req.RedirectHost, maxHost)
	name := cmp.Or(cleantext.Line(req.Client.Name, maxLabel), host)
	v := approveView{
		Request: req.ID, Token: s.token(formApprove + " " + req.ID), SignOut: s.token(formSignOut), Return: approveURL(req.ID),
		Client: name, Initial: initial(name), Vouched: cleantext.Line(req.Client.Host, maxHost),
		Local:   req.RedirectLocal || req.Client.LocalOnly,
		By:      s.account,
		Minutes: max(int((req.ExpiresIn+time.Minute-1)/time.Minute), 1), Partial: !req.Scopes.Contains(p.o.OAuth.Areas().Everything()),
	}
	v.Host, v.App = strings.CutSuffix(host, ":")
	return v
}

// renderNotOwner tells a member that only owners can approve, and lets them deny the request.
func (p *Pages) renderNotOwner(w http.ResponseWriter, r *http.Request, s *session, req oauth.Request) {
	fail(r, codeNotOwner, errors.New("only an owner can connect apps"))
	w.Header().Set("Content-Security-Policy", policyRedirecting)
	p.render(w, r, http.StatusForbidden, "not-owner", frame{Title: "Only an owner can connect apps", Wide: true}, p.approveView(s, req))
}

func (p *Pages) approve(w http.ResponseWriter, r *http.Request) error {
	id := r.PostForm.Get("request")
	if !plausibleID(id) {
		return requestOver()
	}
	s, err := p.signedIn(w, r, approveURL(id))
	if err != nil {
		return err
	}
	if err := s.check(r, formApprove+" "+id, approveURL(id)); err != nil {
		return err
	}
	switch r.PostForm.Get("decision") {
	case "approve":
		return p.approveChosen(w, r, s, id)
	case "deny":
		to, err := p.o.OAuth.Deny(r.Context(), id, s.account)
		if err != nil {
			return decisionProblem(err, id)
		}
		return &redirectError{to: to}
	}
	return badRequest("Your decision is missing from the form. Go back and choose again.", nil)
}

func (p *Pages) approveChosen(w http.ResponseWriter, r *http.Request, s *session, id string) error {
	req, err := p.o.OAuth.Pending(r.Context(), id)
	if err != nil {
		return decisionProblem(err, id)
	}
	granted, problem := chosen(r, req.Scopes, "choose “Don’t connect”.")
	if problem != "" && s.account.IsOwner() {
		fail(r, codeInvalidForm, errors.New("no scope was chosen, or only a part of one"))
		boxes := newPermissions(req.Scopes, granted)
		boxes.Problem = problem
		p.renderApprove(w, r, http.StatusUnprocessableEntity, s, req, boxes)
		return nil
	}
	to, err := p.o.OAuth.Approve(r.Context(), id, s.account, granted)
	if errors.Is(err, oauth.ErrNotOwner) {
		p.renderNotOwner(w, r, s, req)
		return nil
	}
	if err != nil {
		return decisionProblem(err, id)
	}
	return &redirectError{to: to}
}

func decisionProblem(err error, id string) error {
	switch {
	case errors.Is(err, oauth.ErrNoRequest):
		return requestOver()
	case errors.Is(err, oauth.ErrTooManyGrants):
		return conflict("Too many connected apps", "Your business has reached the maximum number of connected apps. "+
			"Disconnect one that you no longer use first.").withLink(ConnectionsPath, "See connected apps")
	case errors.Is(err, oauth.ErrOutcomeUnknown):
		return outcomeUnknown("Open the request again in a moment and repeat your decision.", err).
			withLink(approveURL(id), "Open the request again")
	case errors.Is(err, oauth.ErrUnavailable):
		return unavailable(err)
	}
	return err
}

// ownerOnly returns an error page unless the account is an owner. what completes "Only an owner can".
func ownerOnly(a account.Account, what string) error {
	if a.IsOwner() {
		return nil
	}
	return &pageError{
		Status: http.StatusForbidden, code: codeNotOwner, title: "Only an owner can " + what,
		Detail: "You are signed in as " + a.DisplayName() + ", a member of " + a.BusinessName +
			". Ask an owner of the business, or sign in with an owner’s account.",
	}
}
