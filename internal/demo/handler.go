package demo

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// HeaderBusinessID names the business. The gateway sets it after it has authenticated the caller.
const HeaderBusinessID = "X-Business-Id"

// The contract's limits.
const (
	defaultPerPage = 25
	maxPerPage     = 100
	defaultCount   = 10
	maxCount       = 100
)

// allEvents as the status of /events selects events of every status.
const allEvents = "all"

// httpError is an error response.
type httpError struct {
	Status    int
	Code      string
	Message   string
	Parameter string // the query parameter at fault, if any

	// Of /connect/v1 only.
	Details    []detail
	RetryAfter int    // seconds; 0: none
	Allow      string // the methods that there are
}

func newError(status int, code, message string) *httpError {
	return &httpError{Status: status, Code: code, Message: message}
}

func (e *httpError) Error() string { return e.Message }

// endpoint serves one path: it appends the JSON of a business to b.
type endpoint func(ctx context.Context, b []byte, businessID string, q query) ([]byte, error)

// handler serves the API. Paths are matched as they are: http.ServeMux would redirect to cleaned ones and respond in
// plain text.
type handler struct {
	service   *Service
	endpoints map[string]endpoint
	connect   *connectAPI
	buffers   sync.Pool // of *[]byte
}

// Handler returns the service's HTTP handler.
func (s *Service) Handler() http.Handler {
	st := s.store
	h := &handler{service: s, endpoints: map[string]endpoint{
		"/api/v1/business":  businessEndpoint(st),
		"/api/v1/contacts":  listEndpoint(st, "contacts", st.contacts, "status", "type"),
		"/api/v1/equipment": listEndpoint(st, "equipment", st.equipment, "status", "category"),
		"/api/v1/estimates": listEndpoint(st, "estimates", st.estimates, "status", "payment_status"),
		"/api/v1/invoices":  listEndpoint(st, "invoices", st.invoices, "status"),
		"/api/v1/jobs":      listEndpoint(st, "jobs", st.jobs, "status"),
		"/api/v1/offerings": listEndpoint(st, "offerings", st.offerings, "status"),
		"/api/v1/events":    eventsEndpoint(st),
	}}
	h.connect = newConnectAPI(s)
	h.buffers.New = func() any { return new([]byte) }
	return h
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, connectPrefix) {
		h.connect.ServeHTTP(w, r)
		return
	}
	buffer, _ := h.buffers.Get().(*[]byte)
	defer h.buffers.Put(buffer)

	body, err := h.answer((*buffer)[:0], w.Header(), r)
	status := http.StatusOK
	if err != nil {
		problem := h.service.problem(r, err)
		status, body = problem.Status, appendError((*buffer)[:0], problem)
	}
	*buffer = body

	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// A write fails only if the client is gone.
	_, _ = w.Write(body)
}

func (h *handler) answer(b []byte, header http.Header, r *http.Request) ([]byte, error) {
	serve, ok := h.endpoints[r.URL.Path]
	if !ok && r.URL.Path != "/healthz" {
		return nil, newError(http.StatusNotFound, "NOT_FOUND", "There is nothing at this path.")
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		return nil, newError(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "Only GET and HEAD are answered here.")
	}
	if serve == nil {
		return h.health(r.Context(), b)
	}

	if err := h.service.authorize(r); err != nil {
		h.service.logRequest(r, slog.LevelWarn, "request refused", err)
		return nil, newError(http.StatusUnauthorized, "UNAUTHORIZED", "The request is not shown to come from the gateway.")
	}
	ids := r.Header[HeaderBusinessID]
	if len(ids) != 1 || ids[0] == "" {
		return nil, newError(http.StatusBadRequest, "MISSING_BUSINESS", "The header "+HeaderBusinessID+" must be there, once.")
	}
	q, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	return serve(r.Context(), b, ids[0], q)
}

func (h *handler) health(ctx context.Context, b []byte) ([]byte, error) {
	if err := h.service.store.ping(ctx); err != nil {
		return nil, err
	}
	return append(b, `{"status":"ok"}`...), nil
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
		return newError(http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE", "The service is shutting down.")
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

func appendError(b []byte, e *httpError) []byte {
	b = append(b, `{"error":`...)
	b = appendString(b, e.Message)
	b = append(b, `,"code":`...)
	b = appendString(b, e.Code)
	if e.Parameter != "" {
		b = append(b, `,"parameter":`...)
		b = appendString(b, e.Parameter)
	}
	if len(e.Details) > 0 {
		b = append(b, `,"details":`...)
		b = appendList(b, fieldsOf[detail](), e.Details)
	}
	return append(b, '}')
}

func businessEndpoint(st *store) endpoint {
	return func(ctx context.Context, b []byte, businessID string, _ query) ([]byte, error) {
		row, err := st.business(ctx, businessID)
		if err != nil {
			return nil, err
		}
		b = append(b, `{"business":`...)
		b = appendRecord(b, st.businessFields, row)
		b = append(b[:len(b)-1], `,"business_id":`...)
		b = appendString(b, row.ID)
		return append(b, "}}"...), nil
	}
}

// listEndpoint serves a list in pages. The parameters filter by the columns that the list was prepared with, in their
// order.
func listEndpoint[T any](st *store, name string, l *list[T], parameters ...string) endpoint {
	return func(ctx context.Context, b []byte, businessID string, q query) ([]byte, error) {
		number, err := q.integer("page", 1)
		if err != nil {
			return nil, err
		}
		size, err := q.integer("per_page", defaultPerPage)
		if err != nil {
			return nil, err
		}
		p := page{Number: max(number, 1), Size: min(max(size, 1), maxPerPage)}
		filters := make([]string, len(parameters))
		for i, parameter := range parameters {
			if filters[i], err = q.text(parameter); err != nil {
				return nil, err
			}
		}

		var records []T
		var total int64
		if err := st.read(ctx, func(tx *sql.Tx) (err error) {
			records, total, err = l.page(ctx, tx, businessID, p, filters...)
			return err
		}); err != nil {
			return nil, err
		}

		b = append(b, '{', '"')
		b = append(b, name...)
		b = append(b, '"', ':')
		b = appendList(b, l.fields, records)
		b = append(b, `,"pagination":{"current_page":`...)
		b = strconv.AppendInt(b, p.Number, 10)
		b = append(b, `,"per_page":`...)
		b = strconv.AppendInt(b, p.Size, 10)
		b = append(b, `,"total_items":`...)
		b = strconv.AppendInt(b, total, 10)
		b = append(b, `,"total_pages":`...)
		b = strconv.AppendInt(b, (total+p.Size-1)/p.Size, 10)
		return append(b, "}}"...), nil
	}
}

// eventsEndpoint serves published events, or those with the status that the parameter names: draft, archived, or all.
// The gateway never forwards that parameter, as the public API does not define it.
func eventsEndpoint(st *store) endpoint {
	shape := eventJSON{event: st.events.fields, session: st.sessions.fields, medium: st.media.fields}
	return func(ctx context.Context, b []byte, businessID string, q query) ([]byte, error) {
		count, err := q.integer("count", defaultCount)
		if err != nil {
			return nil, err
		}
		status, err := q.text("status")
		if err != nil {
			return nil, err
		}
		switch status {
		case "":
			status = eventPublished
		case allEvents:
			status = ""
		}
		events, err := st.eventPage(ctx, businessID, status, min(max(count, 1), maxCount))
		if err != nil {
			return nil, err
		}
		b = append(b, `{"events":[`...)
		for i := range events {
			if i > 0 {
				b = append(b, ',')
			}
			b = shape.append(b, &events[i])
		}
		return append(b, "]}"...), nil
	}
}

// query is a request's query string. Unknown parameters are ignored.
type query url.Values

func parseQuery(raw string) (query, error) {
	if raw == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, newError(http.StatusBadRequest, "INVALID_PARAMETER", "The query string cannot be read.")
	}
	return query(values), nil
}

// text returns a parameter's value, "" if it is missing.
func (q query) text(name string) (string, error) {
	switch values := q[name]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	default:
		return "", invalidParameter(name, "The parameter "+name+" is given more than once.")
	}
}

// integer returns a parameter's value, absent if it is missing. Numbers out of range are clamped.
func (q query) integer(name string, absent int64) (int64, error) {
	if _, ok := q[name]; !ok {
		return absent, nil
	}
	s, err := q.text(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, invalidParameter(name, "The parameter "+name+" must be an integer.")
	}
	return n, nil
}

func invalidParameter(name, message string) error {
	return &httpError{Status: http.StatusBadRequest, Code: "INVALID_PARAMETER", Message: message, Parameter: name}
}
