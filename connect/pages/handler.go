package pages

import (
	"errors"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
)

// MaxBody is the maximum size of a request body in bytes.
const MaxBody = 16 << 10

const maxQuery = 4 << 10 // bytes

// Content security policies. Pages load only the style sheet and the icon.
const (
	policyBase = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'"

	// policyRedirecting is for pages whose form redirects to the client. It has no form-action, because browsers also apply it
	// to redirects of forms.
	policyRedirecting = policyBase
	policy            = policyBase + "; form-action 'self'"
)

// page has the handlers of a path; post may be nil. Errors other than *redirectError and *pageError are internal errors.
type page struct{ get, post handler }

type handler func(http.ResponseWriter, *http.Request) error

// redirectError responds with 303 See Other.
type redirectError struct{ to string }

func (r *redirectError) Error() string { return "see " + r.to }

// Paths returns the paths of the pages, sorted, without the assets.
func (p *Pages) Paths() []string { return slices.Sorted(maps.Keys(p.pages)) }

// Handler returns a handler for the pages and their assets. It responds to other paths with a 404 page.
func (p *Pages) Handler() http.Handler { return http.HandlerFunc(p.serve) }

func (p *Pages) serve(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, AssetsPrefix) {
		p.asset(w, r)
		return
	}
	p.secure(w.Header())
	if strings.HasPrefix(r.URL.Path, SettingsPath) {
		// Not on the pages of the authorization flow: a client may have opened them in a popup, and need its reference to it.
		w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
	}
	err := p.handle(w, r)
	var to *redirectError
	var e *pageError
	switch {
	case err == nil:
	case errors.As(err, &to):
		http.Redirect(w, r, to.to, http.StatusSeeOther)
	case errors.As(err, &e):
		p.renderError(w, r, e)
	default:
		p.renderError(w, r, fault(http.StatusInternalServerError, err))
	}
}

func (p *Pages) handle(w http.ResponseWriter, r *http.Request) error {
	pg, ok := p.pages[r.URL.Path]
	if !ok {
		return notFound()
	}
	requestlog.From(r.Context()).Add(func(f *requestlog.Fields) { f.Page = r.URL.Path })
	if len(r.URL.RawQuery) > maxQuery {
		return badRequest("The address of this page is too long.", nil)
	}
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return pg.get(w, r)
	case r.Method == http.MethodPost && pg.post != nil:
		if err := p.checkForm(w, r); err != nil {
			return err
		}
		return pg.post(w, r)
	default:
		allowed := "GET, HEAD"
		if pg.post != nil {
			allowed += ", POST"
		}
		w.Header().Set("Allow", allowed)
		return newError(http.StatusMethodNotAllowed, "Request not supported",
			"Your browser sent a kind of request that this page does not support.", nil)
	}
}

// checkForm parses a form and rejects one of another origin. It does not check the form's token.
func (p *Pages) checkForm(w http.ResponseWriter, r *http.Request) error {
	if err := p.crossOrigin.Check(r); err != nil { // a second defence, besides the form tokens
		return forged(err)
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return newError(http.StatusUnsupportedMediaType, "Request not supported", "This page accepts only its own form.", err)
	}
	r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
	if err := r.ParseForm(); err != nil {
		if _, malformed := errors.AsType[url.EscapeError](err); malformed {
			err = errors.New("the form has an invalid escape") // err quotes it
		}
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return newError(http.StatusRequestEntityTooLarge, "Form too large", "Go back and shorten what you entered.", err)
		}
		return badRequest("The form could not be read. Go back and send it again.", err)
	}
	for name, values := range r.PostForm {
		if len(values) > 1 && name != allowField {
			return badRequest("The form contains a field twice. Go back and send it again.", nil)
		}
		if !utf8.ValidString(values[0]) { // JSON cannot have it
			return badRequest("The form contains text that is not valid UTF-8. Go back and correct it.", nil)
		}
	}
	return nil
}

// secure sets the security headers of a page.
func (p *Pages) secure(h http.Header) {
	if p.cookies.secure {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	// With no-referrer, browsers would send "Origin: null" with the pages' forms.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Robots-Tag", "noindex, nofollow")
}

// ownPage returns back, rebuilt from its parts, if it is a page that sign-in may redirect to, or else ConnectionsPath.
func ownPage(back string) string {
	u, err := url.Parse(back)
	if err != nil || !strings.HasPrefix(back, u.Path) { // with a scheme or host, or escapes in the path
		return ConnectionsPath
	}
	switch u.Path {
	case ConnectionsPath, KeysPath, ActivityPath:
		return u.Path
	case ApprovePath:
		if id := u.Query().Get("request"); plausibleID(id) {
			return approveURL(id)
		}
	}
	return ConnectionsPath
}

// plausibleID reports whether s has only characters of an ID of a request or connection.
func plausibleID(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.~"
	return s != "" && len(s) <= 200 && strings.Trim(s, allowed) == ""
}

func approveURL(id string) string { return ApprovePath + "?" + url.Values{"request": {id}}.Encode() }

func signInURL(back string) string {
	if back == "" || back == ConnectionsPath {
		return SignInPath
	}
	return SignInPath + "?" + url.Values{"return": {back}}.Encode()
}
