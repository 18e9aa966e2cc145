package oauth

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

const maxState = 2048 // bytes of the state parameter

// serveAuthorize stores an authorization request and redirects the user to the approval page. It responds to errors that are not
// redirected with a page, or with JSON if the request does not accept HTML.
func (s *Server) serveAuthorize(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Referrer-Policy", "no-referrer")
	target, err := s.authorize(w, r)
	if err == nil {
		w.Header().Set("Location", target)
		w.WriteHeader(http.StatusSeeOther)
		return nil
	}
	if s.errorPage == nil || !WantsPage(r) {
		return err
	}
	p := s.newProblem(r.Context(), err)
	if p.retry > 0 {
		w.Header().Set("Retry-After", seconds(p.retry))
	}
	title, detail := "This app cannot be connected", strings.ToUpper(p.description[:1])+p.description[1:]+"."
	switch {
	case p.status >= http.StatusInternalServerError:
		title = "Connecting is temporarily unavailable"
	case p.status == http.StatusTooManyRequests:
		title = "Too many attempts"
	case p.code != codeInvalidClient:
		detail = "The app sent an invalid request: " + p.description + ". Nothing was connected."
	}
	if p.status < http.StatusInternalServerError && p.code != codeInvalidClient {
		detail += " Go back to the app and try again. If it happens again, tell the maker of the app."
	}
	s.errorPage(w, r, p.status, title, detail)
	return nil
}

// WantsPage reports whether a request to AuthorizePath accepts HTML, so that errors are shown as pages.
func WantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// response returns the redirect URI of an authorization response, with iss (RFC 9207) and state added to parameters.
func (s *Server) response(request *pending, parameters url.Values) string {
	parameters.Set("iss", s.o.Issuer)
	if request.State != "" {
		parameters.Set("state", request.State)
	}
	return withParameters(request.RedirectURI, parameters)
}

// authorize checks and stores a request. It returns the URL of the approval page, or the redirect URI with an error.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) (target string, err error) {
	ctx := r.Context()
	// Browsers say what they load. A page that loads this as an image, or has it fetched in advance, would use up the limits with its
	// visitors' client IPs.
	dest, purpose := r.Header.Get("Sec-Fetch-Dest"), r.Header.Get("Sec-Purpose")+r.Header.Get("Purpose")
	if dest != "" && dest != "document" || strings.Contains(purpose, "prefetch") {
		return "", badRequest(codeInvalidRequest, "this address must be opened as a page")
	}
	if err := s.allowIP(ctx, r, "authorize", s.o.limits.Authorizations); err != nil {
		return "", err
	}
	values, err := authorizationParameters(w, r)
	if err != nil {
		return "", err
	}
	request, err := s.newRequest(r, values)
	if err != nil {
		return "", err
	}
	if err := s.readParameters(request, values); err != nil {
		// Anyone can register a client and abuse error redirects to send users to any site or open applications (RFC 9700,
		// section 4.11.2). Loopback addresses are safe.
		if !request.loopback {
			return "", err
		}
		p := s.newProblem(ctx, err)
		return s.response(request, url.Values{"error": {p.code}, "error_description": {p.text()}}), nil
	}
	// Only valid requests count against the total, so that invalid ones cannot exhaust it.
	if err := s.allow(ctx, "authorize", allIPs, s.o.limits.AllAuthorizations); err != nil {
		return "", err
	}
	requestID, err := s.storeRequest(ctx, request)
	if err != nil {
		return "", err
	}
	return ApprovePath + "?" + url.Values{"request": {requestID}}.Encode(), nil
}

func authorizationParameters(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	if r.Method == http.MethodPost {
		return readValues(w, r)
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(r.URL.RawQuery) > MaxBody {
		return nil, badRequest(codeInvalidRequest, "the query is malformed or too long")
	}
	return values, nil
}

// newRequest looks up the client and checks the redirect URI. Its errors must not be redirected.
func (s *Server) newRequest(r *http.Request, values url.Values) (*pending, error) {
	for _, name := range []string{"client_id", "redirect_uri"} {
		if len(values[name]) > 1 {
			return nil, badRequest(codeInvalidRequest, "duplicate parameter '"+name+"'")
		}
	}
	id, redirect := values.Get("client_id"), values.Get("redirect_uri")
	if id == "" {
		return nil, badRequest(codeInvalidRequest, "client_id is missing")
	}
	client, err := s.client(r, id)
	if _, explained := errors.AsType[*problem](err); errors.Is(err, errUnknownClient) && !explained {
		return nil, badRequest(codeInvalidClient,
			"the app is not registered here, or its registration has expired. Remove the connection in the app and connect again")
	}
	if err != nil {
		return nil, err
	}
	logClient(r.Context(), client.ID, client.Name)
	request := &pending{Named: redirect != ""}
	switch {
	case redirect == "" && len(client.RedirectURIs) == 1:
		redirect = client.RedirectURIs[0]
	case redirect == "":
		return nil, badRequest(codeInvalidRequest, "redirect_uri is missing")
	case !matchRedirect(client.RedirectURIs, redirect):
		return nil, badRequest(codeInvalidRequest, "redirect_uri is not registered for this client")
	}
	u, err := s.redirectURI(redirect)
	if err != nil { // its scheme may no longer be allowed
		return nil, badRequest(codeInvalidRequest, "invalid redirect_uri: "+err.Error())
	}
	request.setRedirectURI(redirect, u)
	request.Client = client
	request.Client.RedirectURIs = nil
	return request, nil
}

// readParameters checks the other parameters and adds them to request. It sets state first, for the redirect of an error.
func (s *Server) readParameters(request *pending, values url.Values) error {
	if state := values["state"]; len(state) == 1 && len(state[0]) <= maxState {
		request.State = state[0]
	}
	f, err := newForm(values)
	if err != nil {
		return err
	}
	switch responseType := f.Get("response_type"); {
	case len(f.Get("state")) > maxState:
		return badRequest(codeInvalidRequest, fmt.Sprintf("state must be at most %d bytes", maxState))
	case f.Get("request") != "":
		return badRequest(codeNoRequestObject, "request objects are not supported")
	case f.Get("request_uri") != "":
		return badRequest(codeNoRequestURI, "request_uri is not supported")
	case responseType == "":
		return badRequest(codeInvalidRequest, "response_type is missing")
	case responseType != "code":
		return badRequest(codeUnsupportedType, "response_type must be code")
	case f.Get("response_mode") != "" && f.Get("response_mode") != "query":
		return badRequest(codeInvalidRequest, "response_mode must be query")
	case f.Get("code_challenge") == "":
		return badRequest(codeInvalidRequest, "code_challenge is missing: PKCE is required")
	case f.Get("code_challenge_method") != "S256":
		return badRequest(codeInvalidRequest, "code_challenge_method must be S256")
	case !validChallenge(f.Get("code_challenge")):
		return badRequest(codeInvalidRequest, "code_challenge must be a SHA-256 hash in base64url without padding")
	}
	request.Challenge = f.Get("code_challenge")
	scopes, err := s.requestedScopes(f.Get("scope"), s.o.Areas.Default(), "")
	if err != nil {
		return err
	}
	request.Scopes, request.Requested = scopes, scopes.String()
	request.Resource = s.resource
	return s.checkResource(f)
}

// requestedScopes parses the scope parameter, or returns fallback if it names no scope. It ignores the scopes of OpenID Connect,
// which some clients add to every request (as RFC 6749, section 3.3 allows), and unknown ones that are in granted: their area has
// been switched off since.
func (s *Server) requestedScopes(parameter string, fallback scope.Set, granted string) (scope.Set, error) {
	names := slices.DeleteFunc(strings.Split(parameter, " "), func(name string) bool {
		return slices.Contains([]string{"", "openid", "profile", "email", "address", "phone", "offline_access"}, name)
	})
	set := fallback
	if len(names) > 0 {
		before := strings.Fields(granted)
		names = slices.DeleteFunc(names, func(name string) bool {
			_, err := s.o.Areas.Parse(name)
			return err != nil && slices.Contains(before, name)
		})
		var err error
		set, err = s.o.Areas.Parse(strings.Join(names, " "))
		if unknown, ok := errors.AsType[*scope.UnknownError](err); ok {
			return scope.Set{}, &problem{status: http.StatusBadRequest, code: codeInvalidScope, description: "unknown scope", about: unknown.Name}
		}
	}
	if set.IsZero() {
		return scope.Set{}, errNoScopeLeft()
	}
	return set, nil
}

// errNoScopeLeft returns the error of a token request if all areas of the connection are switched off. invalid_grant would make
// the client discard its tokens, which work again when an area is switched on.
func errNoScopeLeft() error {
	return badRequest(codeInvalidScope, "the granted scopes are not available on this server")
}

// checkResource rejects resource parameters (RFC 8707) other than the server's own resource. The case of scheme and host and a trailing
// slash do not matter.
func (s *Server) checkResource(f url.Values) error {
	n := len(s.o.Issuer)
	for _, resource := range f["resource"] {
		resource = strings.TrimSuffix(resource, "/")
		if len(resource) != len(s.resource) || !strings.EqualFold(resource[:n], s.o.Issuer) || resource[n:] != s.resource[n:] {
			return badRequest(codeInvalidTarget, "resource must be "+cleantext.Description(s.resource, maxQuoted))
		}
	}
	return nil
}

// validChallenge checks the form of a code_challenge (RFC 7636, section 4.2).
func validChallenge(challenge string) bool {
	sum, err := encoding().DecodeString(challenge)
	return err == nil && len(sum) == sha256.Size
}

// validVerifier checks the form of a code_verifier (RFC 7636, section 4.1).
func validVerifier(verifier string) bool {
	const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	return len(verifier) >= 43 && len(verifier) <= 128 && strings.Trim(verifier, unreserved) == ""
}
