package oauth

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// maxState bounds the state that a client wants back, in bytes.
const maxState = 2048

// pending is an authorization request as it is stored. Of the client there is what the pages show.
type pending struct {
	Client      Client `json:"client"`
	RedirectURI string `json:"redirect_uri"`
	Named       bool   `json:"named"` // the request named the redirect URI, and so has the token request to
	State       string `json:"-"`     // stored beside the JSON, which would need up to six bytes for one
	Scopes      string `json:"scopes"`
	Resource    string `json:"resource"`
	Challenge   string `json:"challenge"`
}

// serveAuthorize takes an authorization request and sends the person to the approval page.
func (s *Server) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	noStore(w)
	w.Header().Set("Referrer-Policy", "no-referrer")
	target, err := s.authorize(w, r)
	if err != nil {
		s.refuseAuthorization(w, r, err)
		return
	}
	w.Header().Set("Location", target)
	w.WriteHeader(http.StatusSeeOther)
}

// toldClientError is a problem that the client is told, by sending the person there.
type toldClientError struct {
	problem  *problem
	location string
}

func (t *toldClientError) Error() string { return t.problem.Error() }

// Unwrap returns the problem.
func (t *toldClientError) Unwrap() error { return t.problem }

// refuseAuthorization tells whom it concerns: the client where that cannot be abused, else the person, or the program
// that plays one.
func (s *Server) refuseAuthorization(w http.ResponseWriter, r *http.Request, err error) {
	p := s.problemOf("authorization request refused", err)
	if told, ok := errors.AsType[*toldClientError](err); ok {
		w.Header().Set("Location", told.location)
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		writeProblem(w, p)
		return
	}
	if p.retry > 0 {
		w.Header().Set("Retry-After", seconds(p.retry))
	}
	title, detail := "This app cannot be connected", strings.ToUpper(p.description[:1])+p.description[1:]+"."
	switch {
	case p.status >= http.StatusInternalServerError:
		title = "Connecting is not possible at the moment"
	case p.status == http.StatusTooManyRequests:
		title = "Too many attempts"
	case p.code != codeInvalidClient:
		detail = "What the app has sent is not in order: " + p.description + ". Nothing was connected."
	}
	s.o.ErrorPage(w, r, p.status, title, detail)
}

// response is where a person is sent with an authorization response: with iss (RFC 9207), and with the state if the
// request had one.
func (s *Server) response(request *pending, parameters url.Values) string {
	parameters.Set("iss", s.o.Issuer)
	if request.State != "" {
		parameters.Set("state", request.State)
	}
	return withParameters(request.RedirectURI, parameters)
}

// authorize checks a request and stores it. It returns the address of the approval page.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) (target string, err error) {
	ctx := r.Context()
	if err := s.charge(ctx, "authorize", s.o.ClientAddress(r), s.o.Limits.Authorizations); err != nil {
		return "", err
	}
	values, err := authorizationParameters(w, r)
	if err != nil {
		return "", err
	}
	request, err := s.requestOf(r, values)
	if err != nil {
		return "", err
	}
	if err := s.complete(request, values); err != nil {
		// Everybody can register a client and have it misuse this endpoint to send people from here to anywhere, or to
		// have their browser open any application (RFC 9700, section 4.11.2). A loopback address leads to neither.
		var p *problem
		uri, bad := parseRedirectURI(request.RedirectURI)
		if errors.As(err, &p) && bad == nil && uri.loopback != "" {
			return "", &toldClientError{problem: p, location: s.response(request, url.Values{
				"error": {p.code}, "error_description": {p.description},
			})}
		}
		return "", err
	}
	// What is in order is counted for everybody, so that those who send nonsense do not use that up.
	if err := s.charge(ctx, "authorize", everybody, s.o.Limits.AllAuthorizations); err != nil {
		return "", err
	}
	requestID, err := s.hold(ctx, request)
	if err != nil {
		return "", err
	}
	return s.o.ApprovePath + "?" + url.Values{"request": {requestID}}.Encode(), nil
}

func authorizationParameters(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	if r.Method == http.MethodPost {
		return readValues(w, r)
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(r.URL.RawQuery) > maxForm {
		return nil, refuse(codeInvalidRequest, "the request cannot be read")
	}
	return values, nil
}

// requestOf finds out who asks and where the answer goes. Until both are known to belong together nobody is sent
// anywhere.
func (s *Server) requestOf(r *http.Request, values url.Values) (*pending, error) {
	for _, name := range []string{"client_id", "redirect_uri"} {
		if len(values[name]) > 1 {
			return nil, refuse(codeInvalidRequest, name+" is given more than once")
		}
	}
	id, redirect := values.Get("client_id"), values.Get("redirect_uri")
	if id == "" {
		return nil, refuse(codeInvalidRequest, "client_id is missing")
	}
	client, err := s.client(r, id)
	var p *problem
	if errors.Is(err, errUnknownClient) && !errors.As(err, &p) {
		return nil, refuse(codeInvalidClient,
			"the app is not registered here any more, which happens after a day if it was never connected and after 90 days "+
				"without use: remove the connection there and connect it again")
	}
	if err != nil {
		return nil, err
	}
	request := &pending{Client: client, RedirectURI: redirect, Named: redirect != ""}
	request.Client.URI, request.Client.LogoURI, request.Client.RedirectURIs = "", "", nil
	switch {
	case redirect == "" && len(client.RedirectURIs) == 1:
		request.RedirectURI = client.RedirectURIs[0]
	case redirect == "":
		return nil, refuse(codeInvalidRequest, "redirect_uri is missing")
	case !matchRedirect(client.RedirectURIs, redirect):
		return nil, refuse(codeInvalidRequest, "the redirect_uri is not one that the app has registered")
	}
	if _, err := s.redirectURI(request.RedirectURI); err != nil { // of a scheme that was allowed before
		return nil, refuse(codeInvalidRequest, "the redirect_uri cannot be used: "+err.Error())
	}
	return request, nil
}

// complete checks the other parameters.
func (s *Server) complete(request *pending, values url.Values) error {
	if state := values["state"]; len(state) == 1 && len(state[0]) <= maxState {
		request.State = state[0]
	}
	f, err := newForm(values)
	if err != nil {
		return err
	}
	switch responseType := f.get("response_type"); {
	case len(f.get("state")) > maxState:
		return refuse(codeInvalidRequest, "state is too long")
	case f.get("request") != "":
		return refuse(codeNoRequestObject, "request objects are not supported")
	case f.get("request_uri") != "":
		return refuse(codeNoRequestURI, "request_uri is not supported")
	case responseType == "":
		return refuse(codeInvalidRequest, "response_type is missing")
	case responseType != "code":
		return refuse(codeUnsupportedType, "response_type has to be code")
	case f.get("response_mode") != "" && f.get("response_mode") != "query":
		return refuse(codeInvalidRequest, "response_mode has to be query")
	case f.get("code_challenge") == "":
		return refuse(codeInvalidRequest, "code_challenge is missing: PKCE is required")
	case f.get("code_challenge_method") != "S256":
		return refuse(codeInvalidRequest, "code_challenge_method has to be S256")
	case !validChallenge(f.get("code_challenge")):
		return refuse(codeInvalidRequest, "code_challenge is not a SHA-256 in base64url without padding")
	}
	request.Challenge = f.get("code_challenge")
	scopes, err := requestedScopes(f.get("scope"), scope.Default())
	if err != nil {
		return err
	}
	request.Scopes = scopes.String()
	request.Resource = s.resource
	return s.checkResource(f)
}

// requestedScopes reads the scope parameter; fallback is for one that names nothing. What OpenID Connect clients add by
// themselves is passed over (RFC 6749, section 3.3, allows to ignore scopes, and the answer names what was granted).
func requestedScopes(parameter string, fallback scope.Set) (scope.Set, error) {
	var names []string
	for name := range strings.SplitSeq(parameter, " ") {
		switch name {
		case "", "openid", "profile", "email", "address", "phone", "offline_access":
		default:
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return fallback, nil
	}
	set, err := scope.Parse(strings.Join(names, " "))
	if err != nil {
		return scope.Set{}, refuse(codeInvalidScope, err.Error())
	}
	return set, nil
}

// checkResource refuses every resource but ours (RFC 8707). Absent means ours.
func (s *Server) checkResource(f form) error {
	for _, resource := range f.values["resource"] {
		if !s.isResource(resource) {
			return refuse(codeInvalidTarget, "resource has to be "+printable(s.resource))
		}
	}
	return nil
}

// isResource compares a resource to ours as URIs are compared: scheme and host in either case. A slash at the end is
// forgiven.
func (s *Server) isResource(resource string) bool {
	resource = strings.TrimSuffix(resource, "/")
	n := len(s.o.Issuer)
	return len(resource) == len(s.resource) && strings.EqualFold(resource[:n], s.o.Issuer) && resource[n:] == s.resource[n:]
}

// validChallenge reports whether a challenge can be a SHA-256 (RFC 7636, section 4.2).
func validChallenge(challenge string) bool {
	sum, err := encoding().DecodeString(challenge)
	return err == nil && len(sum) == sha256.Size
}

// validVerifier checks the form of a verifier (RFC 7636, section 4.1).
func validVerifier(verifier string) bool {
	const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	return len(verifier) >= 43 && len(verifier) <= 128 && strings.Trim(verifier, unreserved) == ""
}
