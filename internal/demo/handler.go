package demo

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// HeaderBusinessID names the business. The gateway sets it after it has authenticated the caller.
const HeaderBusinessID = "X-Business-Id"

// resource is a list of the public API. Its parameters filter by the columns of the same index.
type resource struct {
	list
	parameters, columns []string
}

func resources() map[string]*resource {
	newest := []string{"created_at", "id"}
	all := map[string]*resource{}
	for _, r := range []*resource{
		{list{order: []string{"date_created", "id"}, name: "contacts"}, []string{"status", "type"}, []string{"contact_status", "contact_type"}},
		{list{order: newest, name: "equipment"}, []string{"status", "category"}, []string{"status", "category"}},
		{list{order: newest, name: "estimates"}, []string{"status", "payment_status"}, []string{"status", "payment_status"}},
		{list{order: newest, name: "invoices"}, []string{"status"}, []string{"status"}},
		{list{order: newest, name: "jobs"}, []string{"status"}, []string{"work_status"}},
		{list{order: newest, name: "offerings"}, []string{"status"}, []string{"status"}},
		// Unpublished events come last: SQLite sorts NULL below everything.
		{list{order: []string{"published_at", "created_at", "id"}, name: "events"}, []string{"status"}, []string{"status"}},
	} {
		r.from, r.record, r.newest = r.name, "json", true
		all["/api/v1/"+r.name] = r
	}
	return all
}

// Handler returns the service's HTTP handler. Paths are matched as they are: http.ServeMux would redirect to cleaned ones
// and respond in plain text.
func (s *Service) Handler() http.Handler {
	lists, connect := resources(), newConnectAPI(s)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := r.Header.Get("X-Request-Id"); id != "" {
			w.Header().Set("X-Request-Id", id) // says to which request the response belongs
		}
		if strings.HasPrefix(r.URL.Path, connectPrefix) {
			w.Header().Set("Cache-Control", "no-store")
			status, body, err := connect.answer(w.Header(), r)
			s.respond(w, r, status, body, err)
			return
		}
		body, err := s.answer(r, lists)
		s.respond(w, r, http.StatusOK, body, err)
	})
}

// answer serves the public API and the health check.
func (s *Service) answer(r *http.Request, lists map[string]*resource) ([]byte, error) {
	const health, business = "/healthz", "/api/v1/business"
	ctx := r.Context()
	path, l := r.URL.Path, lists[r.URL.Path]
	if l == nil && path != health && path != business {
		return nil, newError(http.StatusNotFound, "NOT_FOUND", "There is nothing at this path.")
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, notAllowed("GET", "HEAD")
	}
	if path == health {
		return []byte(`{"status":"ok"}`), s.store.use(func() error { return s.store.readers.PingContext(ctx) })
	}
	if err := s.authenticate(r); err != nil {
		return nil, err
	}
	ids := r.Header[HeaderBusinessID]
	if len(ids) != 1 || ids[0] == "" {
		return nil, newError(http.StatusBadRequest, "MISSING_BUSINESS", "The header "+HeaderBusinessID+" must be there, once.")
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, newError(http.StatusBadRequest, "INVALID_PARAMETER", "The query string cannot be read.")
	}
	var body []byte
	err = s.store.use(func() error { // one statement each, so it needs no transaction
		if path == business {
			body, err = answerBusiness(ctx, s.store.readers, ids[0])
		} else {
			body, err = l.answerList(ctx, s.store.readers, ids[0], query(values))
		}
		return err
	})
	return body, err
}

func answerBusiness(ctx context.Context, db *sql.DB, id string) ([]byte, error) {
	var record string
	err := db.QueryRowContext(ctx, "SELECT json FROM businesses WHERE id = ?", id).Scan(&record)
	if errors.Is(err, sql.ErrNoRows) {
		err = errUnknownBusiness
	}
	return []byte(`{"business":` + record + "}"), err
}

// answerList serves a page with the number of all records or, of events, the newest. A caller gets published events only:
// the gateway never forwards their parameter status, which is also draft, archived or all.
func (l *resource) answerList(ctx context.Context, db *sql.DB, businessID string, q query) ([]byte, error) {
	isEvents := l.name == "events"
	number, err := q.integer("page", 1, 1, math.MaxInt64)
	size, sizeErr := q.integer("per_page", 25, 1, 100)
	if isEvents {
		number, err = 1, nil
		size, sizeErr = q.integer("count", 10, 1, 100)
	}
	if err := cmp.Or(err, sizeErr); err != nil {
		return nil, err
	}
	w := ofBusiness(businessID)
	for i, parameter := range l.parameters {
		value, err := q.text(parameter)
		switch {
		case err != nil:
			return nil, err
		case isEvents && value == "":
			w.and("status = 'published'")
		case value != "" && !(isEvents && value == "all"):
			w.and(l.columns[i]+" = ?", value)
		}
	}
	offset := int64(math.MaxInt64)
	if number-1 <= offset/size {
		offset = (number - 1) * size
	}
	records, total, err := l.page(ctx, db, businessID, w, size, offset)
	if err != nil {
		return nil, err
	}
	if isEvents {
		return []byte(`{"events":` + records + "}"), nil
	}
	return fmt.Appendf(nil, `{"%s":%s,"pagination":{"current_page":%d,"per_page":%d,"total_items":%d,"total_pages":%d}}`,
		l.name, records, number, size, total, (total+size-1)/size), nil
}

// query is a request's query string. Unknown parameters are ignored.
type query url.Values

// text returns a parameter's value, "" if it is missing.
func (q query) text(name string) (string, error) {
	values := q[name]
	if len(values) > 1 {
		return "", invalidParameter(name, "The parameter "+name+" is given more than once.")
	}
	return strings.Join(values, ""), nil
}

// integer returns a parameter's value, clamped, or absent if it is missing.
func (q query) integer(name string, absent, from, until int64) (int64, error) {
	s, err := q.text(name)
	if _, ok := q[name]; !ok || err != nil {
		return absent, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, invalidParameter(name, "The parameter "+name+" must be an integer.")
	}
	return min(max(n, from), until), nil
}

// httpError is an error response.
type httpError struct {
	Status     int      `json:"-"`
	Message    string   `json:"error"`
	Code       string   `json:"code"`
	Parameter  string   `json:"parameter,omitzero"` // the query parameter at fault, if any
	Details    []detail `json:"details,omitzero"`   // of /connect/v1 only
	RetryAfter int      `json:"-"`                  // seconds; 0: none
	Allow      string   `json:"-"`                  // the methods that there are
}

func newError(status int, code, message string, details ...detail) *httpError {
	return &httpError{Status: status, Code: code, Message: message, Details: details}
}

func invalidParameter(name, message string) error {
	e := newError(http.StatusBadRequest, "INVALID_PARAMETER", message)
	e.Parameter = name
	return e
}

func notAllowed(methods ...string) *httpError {
	e := newError(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "The methods of this path are: "+strings.Join(methods, ", ")+".")
	e.Allow = strings.Join(methods, ", ")
	return e
}

func (e *httpError) Error() string { return e.Message }

// authenticate checks that a request comes from the gateway.
func (s *Service) authenticate(r *http.Request) error {
	if err := s.authorize(r); err != nil {
		s.logRequest(r, slog.LevelWarn, "request rejected", err)
		return newError(http.StatusUnauthorized, "UNAUTHORIZED", "The request is not shown to come from the gateway.")
	}
	return nil
}

// problem maps an error to a response.
func (s *Service) problem(r *http.Request, err error) *httpError {
	var known *httpError
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, errUnknownBusiness):
		return newError(http.StatusForbidden, "UNKNOWN_BUSINESS", "There is no such business.")
	case errors.Is(err, errClosed), r.Context().Err() != nil:
		closed := newError(http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE", "The service is shutting down.")
		closed.RetryAfter = 1
		return closed
	}
	s.logRequest(r, slog.LevelError, "request failed", err)
	return newError(http.StatusInternalServerError, "INTERNAL", "Something went wrong in the data service.")
}

func (s *Service) logRequest(r *http.Request, level slog.Level, message string, err error) {
	s.log.LogAttrs(r.Context(), level, message,
		slog.String("path", r.URL.Path),
		slog.String("request_id", r.Header.Get("X-Request-Id")),
		slog.Any("error", err))
}

func (s *Service) respond(w http.ResponseWriter, r *http.Request, status int, body []byte, err error) {
	out := w.Header()
	if err != nil {
		problem := s.problem(r, err)
		status = problem.Status
		if body, err = json.Marshal(problem, jsontext.AllowInvalidUTF8(true)); err != nil { // never for texts
			body = []byte("{}")
		}
		if problem.RetryAfter > 0 {
			out.Set("Retry-After", strconv.Itoa(problem.RetryAfter))
		}
		if problem.Allow != "" {
			out.Set("Allow", problem.Allow)
		}
	}
	out.Set("Content-Type", "application/json")
	out.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // JSON; fails only if the client is gone
}
