package pages

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

// Maximum lengths of fields in bytes.
const (
	maxEmail    = 254 // RFC 5321
	maxPassword = 1024
)

// Purposes of form tokens.
const (
	formSignIn      = "sign-in"
	formSignOut     = "sign-out"
	formApprove     = "approve" // followed by the request's id
	formConnections = "connections"
	formChange      = "change" // followed by the connection's id
	formKeys        = "keys"
)

// Form fields.
const (
	tokenField   = "csrf"
	returnField  = "return"
	allowField   = "allow"
	unaskedField = "unasked"
)

// signInView is the sign-in page.
type signInView struct {
	Token, Return, Email   string
	EmailProblem, Password string // errors of the fields
	Problem                string // error of the form
	For                    string // host that vouches for the client that waits for approval, or "an app"; "": none waits
}

func (p *Pages) showSignIn(w http.ResponseWriter, r *http.Request) error {
	back := ownPage(r.URL.Query().Get(returnField))
	s, err := p.session(r)
	if err != nil {
		return err
	}
	if s != nil {
		return &redirectError{to: back}
	}
	p.renderSignIn(w, r, http.StatusOK, signInView{Return: back})
	return nil
}

// renderSignIn shows the form, with a new token.
func (p *Pages) renderSignIn(w http.ResponseWriter, r *http.Request, status int, v signInView) {
	visit := p.cookies.get(r, visitCookie)
	if !wellFormed(visit) {
		visit = newRandom()
		p.cookies.set(w, visitCookie, visit, 0)
	}
	v.Token = newToken(visit, formSignIn)
	if id, ok := strings.CutPrefix(v.Return, ApprovePath+"?request="); ok {
		if req, err := p.o.OAuth.Pending(r.Context(), id); err == nil {
			v.For = cmp.Or(cleantext.Line(req.Client.Host, maxHost), "an app")
		}
	}
	title := titled("Sign in", v.Problem+v.EmailProblem+v.Password)
	p.render(w, r, status, "sign-in", frame{Title: title, Notice: p.notice(w, r)}, v)
}

func (p *Pages) signIn(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	v := signInView{Return: ownPage(r.PostForm.Get(returnField))}
	if !checkToken(p.cookies.get(r, visitCookie), formSignIn, r.PostForm.Get(tokenField)) {
		v.Problem = "This page was open for too long, or your browser blocks cookies. Please sign in again."
		return p.rejectSignIn(w, r, http.StatusForbidden, v, requestlog.SignInInvalidForm, codeFormExpired, errors.New("the form has no valid token"))
	}
	email, password := strings.TrimSpace(r.PostForm.Get("email")), r.PostForm.Get("password")
	if len(email) <= maxEmail {
		v.Email = email
	}
	switch {
	case email == "":
		v.EmailProblem = "Enter your email address."
	case len(email) > maxEmail || !strings.Contains(email, "@"):
		v.EmailProblem = "Enter a full email address, such as name@example.com."
	}
	switch {
	case password == "":
		v.Password = "Enter your password."
	case len(password) > maxPassword:
		v.Password = "This password is too long."
	}
	if v.EmailProblem != "" || v.Password != "" {
		return p.rejectSignIn(w, r, http.StatusUnprocessableEntity, v, requestlog.SignInInvalidForm, codeInvalidForm,
			errors.New("the email address or the password is missing or malformed"))
	}

	device := p.cookies.get(r, deviceCookie)
	counted, wait, err := p.store.countSignIn(ctx, email, p.o.ClientAddr(r), device)
	if err != nil {
		return p.signInUnavailable(w, r, v, err)
	}
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
		v.Problem = "Too many sign-in attempts. Please try again " + fromNow(wait) + "."
		return p.rejectSignIn(w, r, http.StatusTooManyRequests, v, requestlog.SignInRateLimited, "", errors.New("too many attempts to sign in"))
	}
	a, err := p.o.Accounts.SignIn(ctx, email, password)
	switch {
	case errors.Is(err, account.ErrWrongCredentials), errors.Is(err, account.ErrUnknown):
		p.recordDenied(r, email)
		v.Problem = "The email address or password is incorrect. If you forgot your password, reset it where you usually sign in to " + p.o.Name + "."
		return p.rejectSignIn(w, r, http.StatusForbidden, v, requestlog.SignInWrongCredentials, codeWrongCredentials, err)
	case err != nil:
		// A disconnected browser gets no refund, nor does a response about another account: the password may have been a guess.
		if ctx.Err() == nil && !errors.Is(err, account.ErrWrongAccount) {
			p.refund(ctx, counted)
		}
		return p.signInUnavailable(w, r, v, err)
	}
	p.refund(ctx, counted)
	if err := p.startSession(w, r, a, email, device); err != nil {
		return p.signInUnavailable(w, r, v, err)
	}
	requestlog.From(ctx).Add(func(f *requestlog.Fields) { f.SignIn, f.BusinessID = requestlog.SignInOK, a.BusinessID })
	return &redirectError{to: v.Return}
}

// rejectSignIn shows the form again and adds the failure to the request's log entry. A code of "" stands for that of the status.
func (p *Pages) rejectSignIn(w http.ResponseWriter, r *http.Request, status int, v signInView, outcome, code string, cause error) error {
	requestlog.From(r.Context()).Add(func(f *requestlog.Fields) { f.SignIn = outcome })
	fail(r, code, cause)
	p.renderSignIn(w, r, status, v)
	return nil
}

// refund removes an attempt from the limit of the account. It still counts against the client IP, so that an attacker cannot reset
// that count by signing in to an account of their own.
func (p *Pages) refund(ctx context.Context, counted attempt) {
	if err := p.store.refund(ctx, counted); err != nil {
		p.o.Log.Warn("removing a sign-in attempt from the limit failed", zap.String("request_id", requestlog.ID(ctx)), zap.Error(err))
	}
}

func (p *Pages) signInUnavailable(w http.ResponseWriter, r *http.Request, v signInView, cause error) error {
	w.Header().Set("Retry-After", strconv.Itoa(int(oauth.RetryAfter/time.Second)))
	v.Problem = "Signing in is temporarily unavailable. Please try again in a moment."
	return p.rejectSignIn(w, r, http.StatusServiceUnavailable, v, requestlog.SignInUnavailable, "", cause)
}

// startSession replaces the browser's session with a new one.
func (p *Pages) startSession(w http.ResponseWriter, r *http.Request, a account.Account, email, device string) error {
	ctx := r.Context()
	change, err := p.beginChange(ctx, a, audit.Entry{Action: audit.SessionStarted, Target: p.clientIP(r)})
	if err != nil {
		return err
	}
	err = p.store.endSession(ctx, p.cookies.get(r, sessionCookie))
	var id string
	if err == nil {
		id, err = p.store.startSession(ctx, a, email)
	}
	if err != nil { // a session may exist, but no browser has its ID
		change.Resolve(ctx, audit.OutcomeFailed)
		return err
	}
	change.Resolve(ctx, audit.OutcomeOK)
	p.cookies.set(w, sessionCookie, id, 0)
	value, err := p.store.addDevice(ctx, email, device)
	if err != nil {
		p.o.Log.Warn("storing the device failed", zap.String("request_id", requestlog.ID(ctx)), zap.Error(err))
		return nil
	}
	p.cookies.set(w, deviceCookie, value, deviceAge)
	return nil
}

func (p *Pages) showSignOut(w http.ResponseWriter, r *http.Request) error {
	id := p.cookies.get(r, sessionCookie)
	_, ok, err := p.store.findSession(r.Context(), id)
	if err != nil {
		return unavailable(err)
	}
	if !ok {
		return &redirectError{to: SignInPath}
	}
	// Signing out has to work during an outage of the accounts service.
	s, err := p.session(r)
	if _, page := errors.AsType[*pageError](err); err != nil && !page {
		return err
	}
	f := frame{Title: "Sign out", Wide: true}
	if s != nil {
		f = p.settings(w, r, s, "Sign out", "")
	}
	p.render(w, r, http.StatusOK, "sign-out", f, newToken(id, formSignOut))
	return nil
}

func (p *Pages) signOut(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	back := r.PostForm.Get(returnField)
	if back != "" {
		back = ownPage(back)
	}
	id := p.cookies.get(r, sessionCookie)
	rec, ok, err := p.store.findSession(ctx, id)
	if err != nil {
		return unavailable(err)
	}
	if !ok {
		p.cookies.clear(w, sessionCookie)
		return &redirectError{to: signInURL(back)}
	}
	if !checkToken(id, formSignOut, r.PostForm.Get(tokenField)) {
		return forged(nil)
	}
	notice := noticeSignedOut
	entry := audit.Entry{Action: audit.SessionEnded}
	end := func() error { return p.store.endSession(ctx, id) }
	if r.PostForm.Get("where") == "everywhere" {
		notice, entry.Detail = noticeSignedOutEverywhere, "Signed out everywhere"
		end = func() error { return p.store.endSessions(ctx, rec) } // this one, too
	}
	change, err := p.beginChange(ctx, account.Account{ID: rec.AccountID, Business: account.Business{BusinessID: rec.BusinessID}}, entry)
	if err != nil {
		return err
	}
	if err := end(); err != nil {
		change.Resolve(ctx, audit.OutcomeUnknown)
		return outcomeUnknown("Sign out again in a moment.", err).withLink(SignOutPath, "Sign out")
	}
	if a, err := p.o.Accounts.Account(ctx, rec.AccountID); err == nil && a.BusinessID == rec.BusinessID {
		change.AccountName = a.Name
	}
	change.Resolve(ctx, audit.OutcomeOK)
	p.cookies.clear(w, sessionCookie)
	return p.done(w, notice, signInURL(back))
}

// beginChange begins the audit entry of a change by an account. Its error is a *pageError.
func (p *Pages) beginChange(ctx context.Context, a account.Account, e audit.Entry) (*audit.Change, error) {
	change, err := p.o.Audit.Begin(ctx, p.entryOf(ctx, a, e))
	if err != nil {
		return nil, unavailable(err)
	}
	return change, nil
}

// entryOf adds the account and the request's ID to an audit entry.
func (p *Pages) entryOf(ctx context.Context, a account.Account, e audit.Entry) audit.Entry {
	e.BusinessID, e.AccountID, e.AccountName, e.RequestID = a.BusinessID, a.ID, a.Name, requestlog.ID(ctx)
	return e
}

// recordDenied records wrong credentials. It logs a digest of the address, because users also type passwords into that field.
func (p *Pages) recordDenied(r *http.Request, email string) {
	_ = p.o.Audit.Record(r.Context(), audit.Entry{ // logs its own failures
		Action: audit.SessionDenied, Outcome: audit.OutcomeDenied, Target: p.clientIP(r),
		Detail: "wrong credentials, account " + accountDigest(email)[:12], RequestID: requestlog.ID(r.Context()),
	})
}

// clientIP returns the client's address for the audit log.
func (p *Pages) clientIP(r *http.Request) string {
	if addr := p.o.ClientAddr(r); addr.IsValid() {
		return addr.Unmap().String()
	}
	return ""
}

// fromNow returns when a waiting time ends, in minutes rounded up, such as "5 minutes from now".
func fromNow(wait time.Duration) string {
	var now time.Time
	return humanize.RelTime(now, now.Add((wait + time.Minute - 1).Truncate(time.Minute)), "from now", "")
}
