package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// The headers of /connect/v1, see "What the connection server asks" in docs/data-services.md.
const (
	HeaderAccountID      = "X-Account-Id"
	HeaderIdempotencyKey = "Idempotency-Key"

	// HeaderReplayed marks a stored response to a repeated request.
	HeaderReplayed = "Idempotency-Replayed"
)

// NoBusiness is the X-Business-Id of calls that belong to no business yet.
const NoBusiness = "-"

// The limits of /connect/v1.
const (
	maxConnectBody  = 64 << 10
	maxDepth        = 32
	idempotencyLife = 24 * time.Hour
	maxHeaderText   = 255
)

const connectPrefix = "/connect/v1/"

// connectCall is a request to /connect/v1 on behalf of an account.
type connectCall struct {
	tx       *sql.Tx
	now      time.Time
	business connectBusiness
	account  accountRow
	path     []string // what stands for the braces of the route's path, decoded
	query    url.Values
	body     []byte // one JSON object, where the route has a body
	ifMatch  int64  // 0: whatever the version is

	problems problems
}

// route is an operation of /connect/v1.
type route struct {
	method string
	path   string // below the prefix, with braces for what varies
	owner  bool   // only an owner may
	query  bool   // a GET with parameters, which serve reads
	serve  func(context.Context, *connectCall) (status int, body []byte, err error)
	after  func() // called when what it wrote is kept
}

func (rt *route) writes() bool  { return rt.method != http.MethodGet }
func (rt *route) hasBody() bool { return rt.writes() && rt.method != http.MethodDelete }

// connectAPI serves /connect/v1.
type connectAPI struct {
	service *Service
	st      *store
	routes  []route
}

func newConnectAPI(s *Service) *connectAPI {
	a := &connectAPI{service: s, st: s.store}
	a.routes = slices.Concat(
		businessRoutes(), contactRoutes(), conversationRoutes(), appointmentRoutes(), receptionistRoutes(),
		saleRoutes(), automationRoutes(s.runner.wakeUp), objectRoutes(),
	)
	return a
}

// ServeHTTP implements http.Handler.
func (a *connectAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := w.Header()
	status, body, err := a.answer(out, r)
	if err != nil {
		problem := a.service.problem(r, err)
		status, body = problem.Status, appendError(nil, problem)
		if problem.Status == http.StatusServiceUnavailable && problem.RetryAfter == 0 {
			problem.RetryAfter = 1
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
	out.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// A write fails only if the client is gone.
	_, _ = w.Write(body)
}

func (a *connectAPI) answer(out http.Header, r *http.Request) (int, []byte, error) {
	if err := a.service.authorize(r); err != nil {
		a.service.logRequest(r, slog.LevelWarn, "request refused", err)
		return 0, nil, newError(http.StatusUnauthorized, "UNAUTHORIZED", "The request is not shown to come from the gateway.")
	}
	segments, ok := splitPath(r.URL.EscapedPath())
	if ok && (segments[0] == "sign-in" || segments[0] == "accounts") {
		return a.answerAboutAccounts(r, segments)
	}
	businessID, err := headerText(r, HeaderBusinessID)
	if err != nil {
		return 0, nil, err
	}
	accountID, err := headerText(r, HeaderAccountID)
	if err != nil {
		return 0, nil, err
	}
	c := &connectCall{now: a.service.now().UTC()}
	rt, routeErr := a.find(r.Method, segments, c)
	var req writeID
	var requestErr error
	if routeErr == nil {
		// Before the transaction begins, so that a slow client does not hold it open.
		req, requestErr = readRequest(r, rt, c)
	}
	ctx := r.Context()
	admit := func(tx *sql.Tx) error {
		c.tx = tx
		if err := c.identify(ctx, businessID, accountID); err != nil {
			return err
		}
		if routeErr != nil {
			return routeErr
		}
		if rt.owner && c.account.Role != RoleOwner {
			return newError(http.StatusForbidden, "FORBIDDEN", "Only an owner of the business may do this; the account behind this connection is a member.")
		}
		return requestErr
	}
	if routeErr == nil && rt.writes() {
		return a.write(ctx, out, rt, c, &req, admit)
	}
	var status int
	var body []byte
	err = a.st.read(ctx, func(tx *sql.Tx) (err error) {
		if err := admit(tx); err != nil {
			return err
		}
		if !rt.query {
			if c.parameters().end(); len(c.problems.all) > 0 {
				return c.problems.err()
			}
		}
		status, body, err = rt.serve(ctx, c)
		return err
	})
	return status, body, err
}

// write executes a write once per idempotency key. The response is stored in the same transaction. Stored responses are
// returned only to callers that are still allowed to make the call.
func (a *connectAPI) write(
	ctx context.Context, out http.Header, rt *route, c *connectCall, req *writeID, admit func(*sql.Tx) error,
) (status int, body []byte, err error) {
	replayed := false
	err = a.st.write(ctx, func(tx *sql.Tx) (err error) {
		if err := admit(tx); err != nil {
			return err
		}
		if status, body, err = keptAnswer(ctx, c, req); err != nil || status != 0 {
			replayed = status != 0
			return err
		}
		if status, body, err = rt.serve(ctx, c); err != nil {
			return err
		}
		return keepAnswer(ctx, c, req, status, body)
	})
	switch {
	case err != nil:
		return 0, nil, err
	case replayed:
		out.Set(HeaderReplayed, "true")
	case rt.after != nil:
		rt.after()
	}
	return status, body, nil
}

// find returns the route of a request and stores its path parameters in c.
func (a *connectAPI) find(method string, segments []string, c *connectCall) (*route, error) {
	var allowed []string
	for i := range a.routes {
		rt := &a.routes[i]
		values, ok := matchPath(rt.path, segments)
		switch {
		case !ok:
		case rt.method == method:
			c.path = values
			return rt, nil
		default:
			allowed = append(allowed, rt.method)
		}
	}
	if len(allowed) == 0 {
		return nil, newError(http.StatusNotFound, "NOT_FOUND", "There is nothing at this path.")
	}
	return nil, notAllowed(allowed...)
}

func notAllowed(methods ...string) error {
	allow := strings.Join(methods, ", ")
	return &httpError{
		Status: http.StatusMethodNotAllowed, Code: "METHOD_NOT_ALLOWED", Message: "Only " + allow + " is answered here.", Allow: allow,
	}
}

// splitPath returns the decoded segments of an escaped path below the prefix.
func splitPath(escaped string) ([]string, bool) {
	rest, ok := strings.CutPrefix(escaped, connectPrefix)
	segments := strings.Split(rest, "/")
	for i, s := range segments {
		plain, err := url.PathUnescape(s)
		if err != nil {
			return []string{""}, false
		}
		segments[i] = plain
	}
	return segments, ok
}

// matchPath matches segments against a path such as "contacts/{id}" and returns the parameters.
func matchPath(path string, segments []string) ([]string, bool) {
	parts := strings.Split(path, "/")
	if len(parts) != len(segments) {
		return nil, false
	}
	var values []string
	for i, part := range parts {
		switch {
		case part[0] == '{' && segments[i] != "":
			values = append(values, segments[i])
		case part != segments[i]:
			return nil, false
		}
	}
	return values, true
}

// headerText returns a header that must be present once and be visible ASCII.
func headerText(r *http.Request, name string) (string, error) {
	values := r.Header.Values(name)
	if len(values) == 1 && isVisible(values[0]) {
		return values[0], nil
	}
	return "", invalidRequest(detail{name, "has to be there, once", "1 to 255 visible ASCII characters"})
}

func isVisible(s string) bool {
	return s != "" && len(s) <= maxHeaderText && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func invalidRequest(d detail) error {
	return &httpError{
		Status: http.StatusBadRequest, Code: "INVALID_REQUEST", Message: "The request is not formed as it has to be.", Details: []detail{d},
	}
}

// identify loads the business and the account, which must belong to it.
func (c *connectCall) identify(ctx context.Context, businessID, accountID string) error {
	var err error
	switch c.business, err = findBusiness(ctx, c.tx, businessID); {
	case errors.Is(err, sql.ErrNoRows):
		return errUnknownBusiness
	case err != nil:
		return err
	case c.business.AccountStatus != AccountActive:
		return newError(http.StatusForbidden, "ACCOUNT_INACTIVE", "The account of the business is not active.")
	}
	c.account, err = accountWhere(ctx, c.tx, "id", accountID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err != nil || c.account.BusinessID != c.business.ID || c.account.Status != accountEnabled {
		return newError(http.StatusForbidden, "UNKNOWN_ACCOUNT", "The business has no such account.")
	}
	return nil
}

// writeID identifies a write. Requests with the same key and hash are repetitions.
type writeID struct {
	key  string
	hash [sha256.Size]byte
}

// readRequest reads the query, the headers of a write and the body into c.
func readRequest(r *http.Request, rt *route, c *connectCall) (req writeID, err error) {
	if c.query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return req, invalidRequest(detail{"query", "cannot be read", "percent-encoded UTF-8"})
	}
	if !rt.hasBody() {
		// An unexpected body is more likely a mistake than intended.
		if n, err := io.ReadFull(r.Body, make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
			return req, invalidRequest(detail{"body", "is not expected here", ""})
		}
	} else if c.body, err = readBody(r); err != nil {
		return req, err
	}
	if !rt.writes() {
		return req, nil
	}
	if len(c.query) > 0 {
		return req, invalidRequest(detail{shorten(slices.Sorted(maps.Keys(c.query))[0], maxField), "is not expected in the query of a write", ""})
	}
	if req.key, err = headerText(r, HeaderIdempotencyKey); err != nil {
		return req, err
	}
	if c.ifMatch, err = ifMatch(r, rt); err != nil {
		return req, err
	}
	hash := sha256.New()
	for _, part := range []string{r.Method, r.URL.EscapedPath(), strconv.FormatInt(c.ifMatch, 10), string(canonical(c.body))} {
		hash.Write([]byte(part))
		hash.Write([]byte{0})
	}
	hash.Sum(req.hash[:0])
	return req, nil
}

// readBody reads a body that must be a JSON object.
func readBody(r *http.Request) ([]byte, error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, newError(http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "The body has to be application/json.")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxConnectBody+1))
	if err != nil {
		return nil, invalidRequest(detail{"body", "ended too early", ""})
	}
	if len(body) > maxConnectBody {
		return nil, newError(http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE", "The body is larger than 64 KiB.")
	}
	if v := jsontext.Value(body); v.Kind() != '{' || !v.IsValid() {
		return nil, invalidRequest(detail{"body", "is not one JSON object", "one JSON object in UTF-8, no member twice"})
	}
	if isDeep(body) {
		return nil, invalidRequest(detail{"body", "is nested too deep", "objects and arrays at most 32 deep"})
	}
	return body, nil
}

// isDeep reports whether valid JSON is nested deeper than maxDepth.
func isDeep(body []byte) bool {
	d := jsontext.NewDecoder(bytes.NewReader(body))
	for {
		if _, err := d.ReadToken(); err != nil {
			return false
		}
		if d.StackDepth() > maxDepth {
			return true
		}
	}
}

// canonical writes equal JSON as equal bytes. Numbers keep their text, as two different numbers may be the same float.
func canonical(body []byte) []byte {
	v := jsontext.Value(bytes.Clone(body))
	// Invalid JSON was rejected before.
	_ = v.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	return v
}

// ifMatch reads the version that a write requires.
func ifMatch(r *http.Request, rt *route) (int64, error) {
	values := r.Header.Values("If-Match")
	if len(values) == 0 {
		return 0, nil
	}
	quoted, ok := strings.CutPrefix(values[0], `"`)
	number, closed := strings.CutSuffix(quoted, `"`)
	version, err := strconv.ParseInt(number, 10, 64)
	if len(values) > 1 || !ok || !closed || err != nil || version < 1 || rt.method == http.MethodPost {
		return 0, invalidRequest(detail{"If-Match", "cannot be used", `one version in double quotes, with PUT, PATCH and DELETE`})
	}
	return version, nil
}

// matches compares the version of a record with If-Match.
func (c *connectCall) matches(version int64) error {
	if c.ifMatch == 0 || c.ifMatch == version {
		return nil
	}
	return &httpError{
		Status: http.StatusPreconditionFailed, Code: "VERSION_MISMATCH",
		Message: "The record has been changed since: read it again and decide anew.",
		Details: []detail{{"If-Match", "is not the present version", `"` + strconv.FormatInt(version, 10) + `"`}},
	}
}

// keptAnswer returns the stored response to an earlier request with the same key, or status 0.
func keptAnswer(ctx context.Context, c *connectCall, req *writeID) (status int, body []byte, err error) {
	var hash []byte
	err = c.tx.QueryRowContext(ctx, "SELECT hash, status, body FROM idempotency_keys"+
		" WHERE business_id = ? AND account_id = ? AND key = ? AND created_at > ?",
		c.business.ID, c.account.ID, req.key, instant(c.now.Add(-idempotencyLife))).Scan(&hash, &status, &body)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, nil, nil
	case err != nil:
		return 0, nil, err
	case !bytes.Equal(hash, req.hash[:]):
		return 0, nil, newError(http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED", "The idempotency key belongs to another request. Use a new one for a new request.")
	}
	return status, body, nil
}

// keepAnswer stores a response and deletes expired ones.
func keepAnswer(ctx context.Context, c *connectCall, req *writeID, status int, body []byte) error {
	if _, err := c.tx.ExecContext(ctx, "DELETE FROM idempotency_keys WHERE created_at <= ?",
		instant(c.now.Add(-idempotencyLife))); err != nil {
		return err
	}
	_, err := c.tx.ExecContext(ctx, "INSERT INTO idempotency_keys (business_id, account_id, key, hash, status, body, created_at)"+
		" VALUES (?, ?, ?, ?, ?, ?, ?)", c.business.ID, c.account.ID, req.key, req.hash[:], status, body, instant(c.now))
	return err
}
