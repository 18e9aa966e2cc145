package oauth

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

// Error codes.
const (
	codeInvalidRequest     = "invalid_request"           // RFC 6749
	codeInvalidClient      = "invalid_client"            // RFC 6749
	codeInvalidGrant       = "invalid_grant"             // RFC 6749
	codeInvalidScope       = "invalid_scope"             // RFC 6749
	codeUnsupportedGrant   = "unsupported_grant_type"    // RFC 6749
	codeUnsupportedType    = "unsupported_response_type" // RFC 6749
	codeAccessDenied       = "access_denied"             // RFC 6749
	codeUnavailable        = "temporarily_unavailable"   // RFC 6749
	codeServerError        = "server_error"              // RFC 6749
	codeInvalidTarget      = "invalid_target"            // RFC 8707
	codeInvalidRedirectURI = "invalid_redirect_uri"      // RFC 7591
	codeInvalidMetadata    = "invalid_client_metadata"   // RFC 7591
	codeInvalidToken       = "invalid_token"             // RFC 6750
	codeInsufficientScope  = "insufficient_scope"        // RFC 6750
	codeNoRequestObject    = "request_not_supported"     // OpenID Connect Core
	codeNoRequestURI       = "request_uri_not_supported" // OpenID Connect Core
	codeTooManyRequests    = "too_many_requests"         // no RFC; known to the MCP SDKs
)

// MaxBody is the maximum size of a request body in bytes.
const MaxBody = 64 << 10

// maxQuoted is the maximum length in characters of text from a caller in an error_description. cleantext.Description replaces
// characters that are invalid there.
const maxQuoted = 80

// RetryAfter is the value of Retry-After in responses during an outage, those of the pages included.
const RetryAfter = 5 * time.Second

// problem is an error response.
type problem struct {
	status      int
	code        string
	description string        // visible ASCII and spaces without quotes and backslashes (RFC 6749, section 5.2)
	retry       time.Duration // Retry-After; 0: none
	challenge   string        // WWW-Authenticate; "": none
	cause       error         // logged instead of the description
	about       string        // the client's text that it is about; not for logs and pages
}

// text returns the description for the client.
func (p *problem) text() string {
	if p.about == "" {
		return p.description
	}
	return p.description + " '" + cleantext.Description(p.about, maxQuoted) + "'"
}

func (p *problem) Error() string { return p.code + ": " + p.description }

// Unwrap returns the cause.
func (p *problem) Unwrap() error { return p.cause }

func badRequest(code, description string) *problem {
	return &problem{status: http.StatusBadRequest, code: code, description: description}
}

// handlerFunc serves a request, or returns an error without having written a response.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// endpoint serves a path of the server.
type endpoint struct {
	methods []string // without OPTIONS
	cors    bool     // scripts of any origin may call it
	serve   handlerFunc
}

// Handler returns a handler for the metadata under /.well-known/, /oauth/authorize, /oauth/token, /oauth/revoke and
// /oauth/register. It matches paths as sent, without normalisation, and responds with 404 to all others.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.serve(w, r); err != nil {
			writeProblem(w, s.newProblem(r.Context(), err))
		}
	})
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	e, ok := s.endpoints[r.URL.EscapedPath()]
	if !ok {
		return &problem{status: http.StatusNotFound, code: codeInvalidRequest, description: "not found"}
	}
	noStore(w)
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if e.cors {
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Expose-Headers", "WWW-Authenticate, Retry-After")
	}
	if slices.Contains(e.methods, r.Method) {
		return e.serve(w, r)
	}
	allow := strings.Join(append(slices.Clone(e.methods), http.MethodOptions), ", ")
	h.Set("Allow", allow)
	if r.Method != http.MethodOptions {
		return &problem{status: http.StatusMethodNotAllowed, code: codeInvalidRequest, description: "method not allowed"}
	}
	if e.cors {
		h.Set("Access-Control-Allow-Methods", allow)
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, MCP-Protocol-Version")
		h.Set("Access-Control-Max-Age", "86400")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Paths returns the paths that Handler serves, sorted.
func (s *Server) Paths() []string { return slices.Sorted(maps.Keys(s.endpoints)) }

func writeJSON(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body, json.Deterministic(true))
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":"`+codeServerError+`"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(data)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}

// noStore prevents caching of a response (RFC 6749, section 5.1).
func noStore(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
}

func writeProblem(w http.ResponseWriter, p *problem) {
	noStore(w)
	if p.retry > 0 {
		w.Header().Set("Retry-After", seconds(p.retry))
	}
	if p.challenge != "" {
		w.Header().Set("WWW-Authenticate", p.challenge)
	}
	writeJSON(w, p.status, map[string]string{"error": p.code, "error_description": p.text()})
}

// Fail responds with an error in the JSON of RFC 6749, section 5.2.
func Fail(w http.ResponseWriter, _ *http.Request, status int, detail string) {
	p := &problem{status: status, code: codeInvalidRequest, description: cleantext.Description(detail, maxQuoted)}
	switch {
	case status == http.StatusServiceUnavailable:
		p.code = codeUnavailable
	case status >= http.StatusInternalServerError:
		p.code = codeServerError
	}
	writeProblem(w, p)
}

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// newProblem converts an error to an error response and adds it to the request's log entry.
func (s *Server) newProblem(ctx context.Context, err error) *problem {
	p, ok := errors.AsType[*problem](err)
	switch {
	case ok:
	case errors.Is(err, ErrUnavailable), errors.Is(err, account.ErrUnavailable):
		p = &problem{
			status: http.StatusServiceUnavailable, code: codeUnavailable, retry: RetryAfter, cause: err,
			description: "the service is temporarily unavailable, try again later",
		}
	default:
		p = &problem{status: http.StatusInternalServerError, code: codeServerError, cause: err, description: "internal error"}
	}
	requestlog.From(ctx).Fail(p.code, cmp.Or(p.cause, errors.New(p.description)))
	return p
}

// newForm returns the parameters of a request. Those without a value are treated as absent, and only resource (RFC 8707) may be
// repeated (RFC 6749, section 3.1).
func newForm(values url.Values) (url.Values, error) {
	f := make(url.Values, len(values))
	for name, list := range values {
		if len(list) > 1 && name != "resource" {
			return nil, &problem{status: http.StatusBadRequest, code: codeInvalidRequest, description: "duplicate parameter", about: name}
		}
		for _, value := range list {
			if value != "" {
				f.Add(name, value)
			}
		}
	}
	return f, nil
}

// readForm parses the body of a POST and ignores the URL's query. Public clients have no secret, so it rejects one.
func readForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	values, err := readValues(w, r)
	if err != nil {
		return nil, err
	}
	f, err := newForm(values)
	if err != nil {
		return nil, err
	}
	if header := r.Header.Get("Authorization"); header != "" || f.Has("client_secret") {
		p := badRequest(codeInvalidClient, "only public clients are supported: send client_id without a client secret")
		if header != "" {
			p.status, p.challenge = http.StatusUnauthorized, `Basic realm="public clients have no secret"` // RFC 6749, section 5.2
		}
		return nil, p
	}
	return f, nil
}

func readValues(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	body, err := readBody(w, r, "application/x-www-form-urlencoded", codeInvalidRequest)
	if err != nil {
		return nil, err
	}
	values, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, badRequest(codeInvalidRequest, "the body is not a valid form")
	}
	return values, nil
}

// readBody reads a body. code is that of the error for another media type.
func readBody(w http.ResponseWriter, r *http.Request, media, code string) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != media {
		return nil, badRequest(code, "the body must be "+media)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, &problem{status: http.StatusRequestEntityTooLarge, code: codeInvalidRequest, description: "the body is too large"}
	}
	if err != nil {
		return nil, &problem{status: http.StatusBadRequest, code: codeInvalidRequest, description: "the body is incomplete", cause: err}
	}
	return body, nil
}
