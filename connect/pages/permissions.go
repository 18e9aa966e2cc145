package pages

import (
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// permissions are the check boxes of a form that says what an app may do.
type permissions struct {
	See, Change []permission
	Asked       bool   // the app asked for them: on the approval page
	Problem     string // why the form was not accepted
}

type permission struct {
	ID, Name, Value, Area, Text string
	Checked                     bool
}

// newPermissions returns a check box for each right of a set.
func newPermissions(offered, checked scope.Set) (p permissions) {
	for _, a := range offered.Areas().All().List() {
		for _, verb := range scope.Verbs() {
			if !offered.Includes(a, verb) {
				continue
			}
			list := &p.Change
			if verb == scope.VerbRead {
				list = &p.See
			}
			*list = append(*list, permission{
				ID: "allow-" + a.Name + "-" + verb, Name: allowField, Value: a.Scope(verb), Area: a.Title, Text: a.Text(verb),
				Checked: checked.Includes(a, verb),
			})
		}
	}
	return p
}

// titled returns the title of a page with a form, which may have a problem.
func titled(title, problem string) string {
	if problem != "" {
		return "Error: " + title // screen readers read the title first
	}
	return title
}

// chosen returns the rights of a set whose check boxes are checked. Write and run include read, also if it is unchecked. problem is the
// text for a form that is not accepted because of that, or because no box is checked; otherwise completes it.
func chosen(r *http.Request, offered scope.Set, otherwise string) (granted scope.Set, problem string) {
	given := func(a scope.Area, verb string) bool {
		return slices.Contains(r.PostForm[allowField], a.Scope(verb)) && offered.Includes(a, verb)
	}
	granted = offered.Narrow(func(a scope.Area, verb string) bool {
		implied := verb == scope.VerbRead && !given(a, verb) && (given(a, scope.VerbWrite) || given(a, scope.VerbRun))
		if implied {
			problem = "An app can change or run only what it may see, so that box is ticked again under “What it may see”. Leave it ticked, or untick both."
		}
		return implied || given(a, verb)
	})
	if granted.IsZero() {
		problem = "Choose at least one thing that the app may do, or " + otherwise
	}
	return granted, problem
}

func changeURL(id string) string { return ConnectionsPath + "?" + url.Values{"change": {id}}.Encode() }

// renderChange shows the form that changes a connection.
func (p *Pages) renderChange(w http.ResponseWriter, r *http.Request, status int, s *session, g oauth.Grant, checked scope.Set, problem string) error {
	v := connectionView{
		Token: s.token(formChange + " " + g.ID), Connection: p.connection(s, g, nil),
		permissions: newPermissions(p.o.OAuth.Areas().Everything(), checked),
	}
	v.Problem = problem
	if text := v.Connection.OnItsOwn; text != "" {
		v.Unasked = []permission{{ID: unaskedField, Name: unaskedField, Value: "yes", Area: "Without asking", Text: text, Checked: g.Unasked}}
	}
	p.render(w, r, status, "change", p.settings(w, r, s, titled("Change what "+v.Connection.Name+" may do", v.Problem), ConnectionsPath), v)
	return nil
}

// changeConnection stores what a connection may do.
func (p *Pages) changeConnection(w http.ResponseWriter, r *http.Request, s *session, id string) error {
	granted, problem := chosen(r, p.o.OAuth.Areas().Everything(), "disconnect it.")
	accepted, unasked := granted, r.PostForm.Has(unaskedField)
	if problem != "" {
		accepted = scope.Set{} // the error is ErrScopes, or one with precedence
	}
	err := p.o.OAuth.Change(r.Context(), id, r.PostForm.Get("version"), s.account, accepted, unasked)
	switch {
	case err == nil:
		return p.done(w, noticeChanged, changeURL(id))
	case !errors.Is(err, oauth.ErrScopes) && !errors.Is(err, oauth.ErrChanged):
		return p.connectionProblem(w, s, err)
	}
	g, err := p.grant(r, s, id)
	switch {
	case err != nil:
		return p.connectionProblem(w, s, err)
	case problem != "":
		fail(r, codeInvalidForm, errors.New("no scope was chosen, or only a part of one"))
		g.Unasked, g.Version = unasked, r.PostForm.Get("version") // as in the form
		return p.renderChange(w, r, http.StatusUnprocessableEntity, s, g, granted, problem)
	}
	fail(r, codeConflict, oauth.ErrChanged)
	return p.renderChange(w, r, http.StatusConflict, s, g, g.Scopes,
		"Nothing was saved, because what this app may do was changed after you opened this page. It is shown as it is now.")
}
