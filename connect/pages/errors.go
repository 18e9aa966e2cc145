package pages

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

// pageError is an error that is shown as a page. The cause is only logged.
type pageError struct {
	Status      int
	Detail      string
	Link, Label string // of the link below; default: to Settings
	RequestID   string // set by renderError

	code  string // for the log; default: that of the status
	title string // also logged
	cause error
	retry time.Duration // Retry-After; 0: none
	final bool          // there is no link
}

func (e *pageError) Error() string {
	if e.cause != nil {
		return e.title + ": " + e.cause.Error()
	}
	return e.title
}

func (e *pageError) Unwrap() error { return e.cause }

func (e *pageError) withLink(url, label string) *pageError {
	e.Link, e.Label = url, label
	return e
}

// Error codes in the log, besides those of statuses.
const (
	codeConflict         = "CONFLICT"
	codeFormExpired      = "FORM_EXPIRED"
	codeInvalidForm      = "INVALID_FORM"
	codeNotOwner         = "NOT_OWNER"
	codeWrongCredentials = "WRONG_CREDENTIALS" //nolint:gosec // an error code
)

// fail adds an error to the request's log entry.
func fail(r *http.Request, code string, cause error) { requestlog.From(r.Context()).Fail(code, cause) }

func newError(status int, title, detail string, cause error) *pageError {
	return &pageError{Status: status, title: title, Detail: detail, cause: cause}
}

func conflict(title, detail string) *pageError {
	return &pageError{Status: http.StatusConflict, code: codeConflict, title: title, Detail: detail}
}

func badRequest(detail string, cause error) *pageError {
	return newError(http.StatusBadRequest, "Invalid request", detail, cause)
}

func notFound() *pageError {
	return newError(http.StatusNotFound, "Page not found", "The address may be mistyped, or the page has moved.", nil)
}

// forged returns the error for a form of another origin or without a valid token.
func forged(cause error) *pageError {
	e := newError(http.StatusForbidden, "This form is out of date", "It was not sent from the page that is open in this browser, "+
		"so nothing was changed. Open the page again and repeat what you wanted to do.", cause)
	e.code = codeFormExpired
	return e
}

func unavailable(cause error) *pageError {
	return outage("This page is temporarily unavailable",
		"A service that this page depends on is unavailable. Nothing was changed. Please try again in a moment.", cause)
}

// outcomeUnknown returns the error for a change whose outcome is unknown. toDo tells the user what to do.
func outcomeUnknown(toDo string, cause error) *pageError {
	return outage("This change could not be confirmed",
		"A service did not respond in time, so the change may or may not have been saved. "+toDo, cause)
}

func outage(title, detail string, cause error) *pageError {
	e := newError(http.StatusServiceUnavailable, title, detail, cause)
	e.retry = oauth.RetryAfter
	return e
}

func fault(status int, cause error) *pageError {
	return newError(status, "Something went wrong", "Please try again in a moment.", cause)
}

// Fail responds with an error page. detail is a sentence for the user, shown for 4xx statuses other than 421.
func (p *Pages) Fail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	p.secure(w.Header())
	e := newError(status, "Invalid request", detail, nil)
	switch {
	case status == http.StatusMisdirectedRequest:
		w.Header().Del("Strict-Transport-Security") // another host's
		e = newError(status, "Wrong address", "These pages are only available at "+p.issuer+".", nil).
			withLink(p.issuer+ConnectionsPath, "Go to "+p.issuer)
	case status >= http.StatusInternalServerError:
		e = fault(status, nil)
	}
	p.renderError(w, r, e)
}

// Error responds with an error page; it is for oauth.Server.SetErrorPage. title is a short sentence without a full stop,
// detail a few sentences. Both may contain text from the client.
func (p *Pages) Error(w http.ResponseWriter, r *http.Request, status int, title, detail string) {
	p.secure(w.Header())
	p.renderError(w, r, &pageError{Status: status, title: cleantext.Line(title, maxText), Detail: cleantext.Line(detail, maxText), final: true})
}

func (p *Pages) renderError(w http.ResponseWriter, r *http.Request, e *pageError) {
	fail(r, e.code, e)
	if e.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.retry+time.Second-1)/time.Second)))
	}
	e.RequestID = requestlog.ID(r.Context())
	_, known := p.pages[r.URL.Path]
	switch {
	case e.final:
	case e.Link == "" && known && e.Status >= http.StatusInternalServerError && r.Method == http.MethodGet:
		e.Link, e.Label = r.URL.RequestURI(), "Try again"
	case e.Link == "":
		e.Link, e.Label = ConnectionsPath, "Go to Settings"
	}
	p.render(w, r, e.Status, "error", frame{Title: e.title}, e)
}

// render responds with a page.
func (p *Pages) render(w http.ResponseWriter, r *http.Request, status int, name string, f frame, content any) {
	var page bytes.Buffer
	err := p.templates[name].ExecuteTemplate(&page, "page", struct {
		frame
		Page string
		It   any
	}{f, name, content})
	if err != nil {
		fail(r, "", fmt.Errorf("rendering the page %s: %w", name, err))
		http.Error(w, "Something went wrong. Please try again in a moment.", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(page.Len()))
	w.WriteHeader(status)
	if _, err := page.WriteTo(w); err != nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		p.o.Log.Debug("sending a page failed", zap.Error(err))
	}
}
