package demo

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The headers of /connect/v1, see "What the connection server requests" in docs/data-services.md.
const (
	HeaderAccountID      = "X-Account-Id"
	HeaderIdempotencyKey = "Idempotency-Key"
	HeaderReplayed       = "Idempotency-Replayed" // marks a stored response to a repeated request
)

// The limits of /connect/v1, and its path.
const (
	maxConnectBody  = 64 << 10
	maxDepth        = 32
	idempotencyLife = 24 * time.Hour
	maxHeaderText   = 255
	connectPrefix   = "/connect/v1/"
)

// connectCall is a request to /connect/v1 on behalf of an account.
type connectCall struct {
	tx       *sql.Tx
	now      time.Time
	business struct{ id, zone string }
	account  struct{ id, role string }
	path     []string       // what stands for the braces of the route's path, decoded
	query    jsontext.Value // as an object
	body     []byte         // one JSON object, where the route has a body

	// Of a write. Requests with the same key and hash are repetitions.
	key     string
	hash    [sha256.Size]byte
	ifMatch int64 // 0: whatever the version is

	problems problems
}

// handler serves a call in its transaction.
type handler func(context.Context, *connectCall) (status int, body []byte, err error)

// route is an operation of /connect/v1.
type route struct {
	method string
	path   string // below the prefix, with braces for what varies
	owner  bool   // only an owner may
	query  bool   // a GET with parameters, which serve reads
	nobody bool   // belongs to no business yet: serve gets no transaction
	serve  handler
	after  func() // called when what it wrote is kept
	match  *regexp.Regexp
}

func (rt *route) writes() bool  { return rt.method != http.MethodGet }
func (rt *route) hasBody() bool { return rt.writes() && rt.method != http.MethodDelete }

// connectAPI serves /connect/v1.
type connectAPI struct {
	service *Service
	routes  []route
}

func newConnectAPI(s *Service) *connectAPI {
	a := &connectAPI{service: s, routes: slices.Concat(
		accountRoutes(s), businessRoutes(), documentRoutes(), contactRoutes(), recordRoutes(), receptionistRoutes(),
		automationRoutes(s.runner.wakeUp), objectRoutes(),
	)}
	parameter := regexp.MustCompile(`\{[a-z]+\}`)
	for i := range a.routes {
		a.routes[i].match = regexp.MustCompile("^" + parameter.ReplaceAllString(a.routes[i].path, "([^/]+)") + "$")
	}
	return a
}

// answer serves a call in a transaction. A write is executed once per idempotency key, and its response is stored in the
// same transaction. Stored responses are returned only to callers that are still allowed to make the call.
func (a *connectAPI) answer(out http.Header, r *http.Request) (status int, body []byte, err error) {
	if err := a.service.authenticate(r); err != nil {
		return 0, nil, err
	}
	ctx, c := r.Context(), &connectCall{now: a.service.now().UTC()}
	rt, routeErr := a.find(r, c)
	if rt != nil && rt.nobody {
		if routeErr == nil && rt.hasBody() {
			c.body, routeErr = readBody(r)
		}
		if routeErr != nil {
			return 0, nil, routeErr
		}
		return rt.serve(ctx, c)
	}
	businessID, businessErr := headerText(r, HeaderBusinessID)
	accountID, accountErr := headerText(r, HeaderAccountID)
	if err := cmp.Or(businessErr, accountErr); err != nil {
		return 0, nil, err
	}
	run, writes, replayed := a.service.store.read, false, false
	if routeErr == nil {
		// Before the transaction begins, so that a slow client does not hold it open.
		err = c.readRequest(r, rt)
		if writes = rt.writes(); writes {
			run = a.service.store.write
		}
	}
	requestErr := cmp.Or(routeErr, err)
	err = run(ctx, func(tx *sql.Tx) (err error) {
		c.tx = tx
		switch err := c.identify(ctx, businessID, accountID); {
		case err != nil:
			return err
		case routeErr == nil && rt.owner && c.account.role != RoleOwner:
			return newError(http.StatusForbidden, "FORBIDDEN", "Only an owner of the business may do this; the account behind this connection is a member.")
		case requestErr != nil:
			return requestErr
		}
		if !writes {
			status, body, err = rt.serve(ctx, c)
			return err
		}
		if status, body, err = c.keptAnswer(ctx); err != nil || status != 0 {
			replayed = true
			return err
		}
		if status, body, err = rt.serve(ctx, c); err != nil {
			return err
		}
		return c.keepAnswer(ctx, status, body)
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

// find returns the route of a request, or one with the same path and the error, and stores the path's parameters in c.
func (a *connectAPI) find(r *http.Request, c *connectCall) (found *route, err error) {
	var allowed []string
	for i := range a.routes {
		rt := &a.routes[i]
		values := rt.match.FindStringSubmatch(strings.TrimPrefix(r.URL.EscapedPath(), connectPrefix))
		if values == nil {
			continue
		}
		if found = rt; rt.method != r.Method {
			allowed = append(allowed, rt.method)
			continue
		}
		for _, v := range values[1:] {
			v, err := url.PathUnescape(v)
			if err != nil {
				return nil, newError(http.StatusNotFound, "NOT_FOUND", "There is nothing at this path.")
			}
			c.path = append(c.path, v)
		}
		return rt, nil
	}
	if found == nil {
		return nil, newError(http.StatusNotFound, "NOT_FOUND", "There is nothing at this path.")
	}
	return found, notAllowed(allowed...)
}

// headerText returns a header that must be present once and be visible ASCII.
func headerText(r *http.Request, name string) (string, error) {
	values := r.Header.Values(name)
	hidden := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(values) == 1 && values[0] != "" && len(values[0]) <= maxHeaderText && !strings.ContainsFunc(values[0], hidden) {
		return values[0], nil
	}
	return "", invalidRequest(name, "has to be there, once", "1 to 255 visible ASCII characters")
}

func invalidRequest(field, problem, allowed string) error {
	return newError(http.StatusBadRequest, "INVALID_REQUEST", "The request is not formed as it has to be.", newDetail(field, problem, allowed))
}

// identify loads the business and the account, which must belong to it.
func (c *connectCall) identify(ctx context.Context, businessID, accountID string) error {
	var active bool
	err := c.tx.QueryRowContext(ctx, "SELECT b.id, time_zone, account_status = 'active', coalesce(a.id, ''), coalesce(role, '')"+
		" FROM businesses b LEFT JOIN accounts a ON a.business_id = b.id AND a.id = ? AND status = 'active' WHERE b.id = ?", accountID, businessID).
		Scan(&c.business.id, &c.business.zone, &active, &c.account.id, &c.account.role)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return errUnknownBusiness
	case err != nil:
		return fmt.Errorf("reading a business and an account: %w", err)
	case !active:
		return newError(http.StatusForbidden, "ACCOUNT_INACTIVE", "The account of the business is not active.")
	case c.account.id == "":
		return newError(http.StatusForbidden, "UNKNOWN_ACCOUNT", "The business has no such account.")
	}
	return nil
}

// readRequest reads the query, the headers of a write and the body.
func (c *connectCall) readRequest(r *http.Request, rt *route) (err error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err == nil {
		c.query, err = queryObject(query)
	}
	if err != nil {
		return invalidRequest("query", "cannot be read", "percent-encoded UTF-8")
	}
	if !rt.hasBody() {
		// An unexpected body is more likely a mistake than intended.
		if n, err := io.ReadFull(r.Body, make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
			return invalidRequest("body", "is not expected here", "")
		}
	} else if c.body, err = readBody(r); err != nil {
		return err
	}
	if !rt.writes() {
		if !rt.query {
			schema{}.read(&c.problems, "", c.query, false)
		}
		return c.problems.err()
	}
	if len(query) > 0 {
		return invalidRequest(shorten(slices.Sorted(maps.Keys(query))[0], maxField), "is not expected in the query of a write", "")
	}
	if c.key, err = headerText(r, HeaderIdempotencyKey); err != nil {
		return err
	}
	if c.ifMatch, err = ifMatch(r); err != nil {
		return err
	}
	// Equal JSON is made equal bytes, but numbers keep their text: two different ones may be the same float.
	canonical := jsontext.Value(bytes.Clone(c.body))
	_ = canonical.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	c.hash = sha256.Sum256(fmt.Appendf(nil, "%q %q %d %s", r.Method, r.URL.EscapedPath(), c.ifMatch, canonical))
	return nil
}

// queryObject returns a query string as a JSON object of texts; a repeated parameter is a list. It fails if the query is not
// UTF-8.
func queryObject(query url.Values) (jsontext.Value, error) {
	members := map[string]any{}
	for name, values := range query {
		if members[name] = values; len(values) == 1 {
			members[name] = values[0]
		}
	}
	return json.Marshal(members)
}

// readBody reads a body that must be a JSON object.
func readBody(r *http.Request) ([]byte, error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, newError(http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "The body has to be application/json.")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxConnectBody+1))
	if err != nil {
		return nil, invalidRequest("body", "ended too early", "")
	}
	if len(body) > maxConnectBody {
		return nil, newError(http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE", "The body is larger than 64 KiB.")
	}
	if v := jsontext.Value(body); v.Kind() != '{' || !v.IsValid() {
		return nil, invalidRequest("body", "is not one JSON object", "one JSON object in UTF-8, no member twice")
	}
	if isDeep(body) {
		return nil, invalidRequest("body", "is nested too deep", "objects and arrays at most 32 deep")
	}
	return body, nil
}

// isDeep reports whether valid JSON is nested deeper than maxDepth.
func isDeep(body []byte) bool {
	d := jsontext.NewDecoder(bytes.NewReader(body))
	for d.StackDepth() <= maxDepth {
		if _, err := d.ReadToken(); err != nil {
			return false
		}
	}
	return true
}

// ifMatch reads the version that a write requires, 0 if there is none.
func ifMatch(r *http.Request) (int64, error) {
	values := r.Header.Values("If-Match")
	if len(values) == 0 {
		return 0, nil
	}
	number := strings.TrimSuffix(strings.TrimPrefix(values[0], `"`), `"`)
	version, err := strconv.ParseInt(number, 10, 64)
	if len(values) > 1 || values[0] != `"`+number+`"` || err != nil || version < 1 || r.Method == http.MethodPost {
		return 0, invalidRequest("If-Match", "cannot be used", `one version in double quotes, with PUT, PATCH and DELETE`)
	}
	return version, nil
}

// matches compares the version of a record with If-Match.
func (c *connectCall) matches(version int64) error {
	if c.ifMatch == 0 || c.ifMatch == version {
		return nil
	}
	return newError(http.StatusPreconditionFailed, "VERSION_MISMATCH", "The record has been changed since: read it again and decide anew.",
		newDetail("If-Match", "is not the present version", fmt.Sprintf(`"%d"`, version)))
}

// keptAnswer returns the stored response to an earlier request with the same key, or status 0.
func (c *connectCall) keptAnswer(ctx context.Context) (status int, body []byte, err error) {
	var same bool
	err = c.tx.QueryRowContext(ctx, "SELECT hash = ?, status, body FROM idempotency_keys"+
		" WHERE business_id = ? AND account_id = ? AND key = ? AND created_at > ?",
		c.hash[:], c.business.id, c.account.id, c.key, instant(c.now.Add(-idempotencyLife))).Scan(&same, &status, &body)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, nil, nil
	case err == nil && !same:
		err = newError(http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED",
			"The idempotency key belongs to another request. Use a new one for a new request.")
	}
	return status, body, err
}

// keepAnswer stores a response and deletes expired ones.
func (c *connectCall) keepAnswer(ctx context.Context, status int, body []byte) error {
	if _, err := c.tx.ExecContext(ctx, "DELETE FROM idempotency_keys WHERE created_at <= ?", instant(c.now.Add(-idempotencyLife))); err != nil {
		return err
	}
	_, err := c.tx.ExecContext(ctx, "INSERT INTO idempotency_keys (business_id, account_id, key, hash, status, body, created_at)"+
		" VALUES (?, ?, ?, ?, ?, ?, ?)", c.business.id, c.account.id, c.key, c.hash[:], status, body, instant(c.now))
	return err
}
