package pages

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
)

// pageError is an error with its page. The cause is only logged.
type pageError struct {
	status        int
	code          string // for the log; "": that of the status
	title, detail string // the title is for the log too
	cause         error
	retry         time.Duration // 0: none
	link, label   string        // the page's link; "": Settings
	final         bool          // no link
}

func (e *pageError) Error() string {
	if e.cause != nil {
		return e.title + ": " + e.cause.Error()
	}
	return e.title
}

func (e *pageError) Unwrap() error { return e.cause }

func (e *pageError) withLink(url, label string) *pageError {
	e.link, e.label = url, label
	return e
}

// Codes in the log, besides those of statuses.
const (
	codeConflict         = "CONFLICT"
	codeFormExpired      = "FORM_EXPIRED"
	codeInvalidForm      = "INVALID_FORM"
	codeNotOwner         = "NOT_OWNER"
	codeWrongCredentials = "WRONG_CREDENTIALS" //nolint:gosec // an error code
)

// fail adds an error to the request's log entry.
func fail(r *http.Request, code string, cause error) { requestlog.From(r.Context()).Fail(code, cause) }

func badRequest(detail string, cause error) *pageError {
	return &pageError{status: http.StatusBadRequest, title: "That did not work", detail: detail, cause: cause}
}

func notFound() *pageError {
	return &pageError{
		status: http.StatusNotFound, title: "Page not found",
		detail: "The address may be mistyped, or the page has moved.",
	}
}

func wrongMethod() *pageError {
	return &pageError{
		status: http.StatusMethodNotAllowed, title: "Request not supported",
		detail: "Your browser sent a kind of request that this page does not support.",
	}
}

// forged returns the error of a form without a valid token.
func forged() *pageError {
	return &pageError{
		status: http.StatusForbidden, code: codeFormExpired, title: "This form is out of date",
		detail: "It was not sent from the page that is open in this browser, so nothing was changed. " +
			"Open the page again and repeat what you wanted to do.",
	}
}

func unavailable(cause error) *pageError {
	return &pageError{
		status: http.StatusServiceUnavailable, title: "This page is temporarily unavailable",
		detail: "A service that this page depends on is unavailable. Nothing was changed. Please try again in a moment.",
		cause:  cause, retry: oauth.RetryAfter,
	}
}

// outcomeUnknown returns the error of a change whose outcome is unknown. toDo tells the user what to do.
func outcomeUnknown(toDo string, cause error) *pageError {
	return &pageError{
		status: http.StatusServiceUnavailable, title: "This change could not be confirmed",
		detail: "A service did not respond in time, so the change may or may not have been saved. " + toDo,
		cause:  cause, retry: oauth.RetryAfter,
	}
}

func fault(cause error) *pageError {
	return &pageError{
		status: http.StatusInternalServerError, title: "Something went wrong",
		detail: "Please try again in a moment.", cause: cause,
	}
}

// Fail responds with an error page. detail is a sentence.
func (p *Pages) Fail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	secure(w.Header())
	e := &pageError{status: status, title: "That did not work", detail: detail}
	switch {
	case status == http.StatusMisdirectedRequest:
		e = &pageError{
			status: status, title: "Wrong address",
			detail: "These pages are only available at " + p.issuer + ".", link: p.issuer + ConnectionsPath,
			label: "Go to " + p.issuer,
		}
	case status >= http.StatusInternalServerError:
		e = fault(nil)
		e.status = status
	}
	p.renderError(w, r, e)
}

// Error responds with an error page; it is for oauth.Server.SetErrorPage. title is a short sentence without a full stop,
// detail a few sentences. Both may contain text from the client.
func (p *Pages) Error(w http.ResponseWriter, r *http.Request, status int, title, detail string) {
	secure(w.Header())
	p.renderError(w, r, &pageError{status: status, title: cleantext.Line(title, maxText), detail: cleantext.Line(detail, maxText), final: true})
}

func (p *Pages) renderError(w http.ResponseWriter, r *http.Request, e *pageError) {
	fail(r, e.code, e)
	if e.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.retry+time.Second-1)/time.Second)))
	}
	view := errorView{Status: e.status, Detail: e.detail, RequestID: requestlog.ID(r.Context()), Link: e.link, Label: e.label}
	_, known := p.pages[r.URL.Path]
	switch {
	case e.final:
	case view.Link == "" && known && e.status >= http.StatusInternalServerError && r.Method == http.MethodGet:
		view.Link, view.Label = r.URL.RequestURI(), "Try again"
	case view.Link == "":
		view.Link, view.Label = ConnectionsPath, "Go to Settings"
	}
	p.render(w, r, e.status, "error", frame{Title: e.title}, view)
}

// render responds with a page.
func (p *Pages) render(w http.ResponseWriter, r *http.Request, status int, name string, f frame, content any) {
	page, err := p.views.page(name, f, content)
	if err != nil {
		fail(r, "", fmt.Errorf("rendering the page %s: %w", name, err))
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte("Something went wrong. Please try again in a moment.\n"))
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(page)))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	if _, err := w.Write(page); err != nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		p.log.Debug("sending a page failed", zap.Error(err))
	}
}
