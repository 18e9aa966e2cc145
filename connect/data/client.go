package data

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Headers of requests and responses, besides those of package upstream.
const (
	HeaderAccountID      = "X-Account-Id"
	HeaderIdempotencyKey = "Idempotency-Key"
	HeaderIfMatch        = "If-Match"
	HeaderReplayed       = "Idempotency-Replayed"
)

// Defaults and limits.
const (
	DefaultTimeout  = 15 * time.Second
	MaxResponseSize = 1 << 20 // bytes

	maxError   = 64 << 10 // bytes of an error's body
	maxDetails = 32
	maxText    = 500 // bytes of one text in an error
)

// Options of a [Client].
type Options struct {
	Host    string                                                           // the Host header of the calls; required
	Do      func(context.Context, upstream.Call) (*upstream.Response, error) // makes a call to the data service; required
	Timeout time.Duration                                                    // of one call, including retries; default: DefaultTimeout
	API     *upstream.API                                                    // of the operations; required for Write.Location only

	// OnResponse is called with the result of checking each response: nil if it is valid or reports an error of the caller, or
	// else one of the errors in Error.Kind. Default: none.
	OnResponse func(error)

	Log *zap.Logger // gets an error for each response with another tenant's or the wrong record, or without the tenant; required
}

// Client makes the calls of a definition. It is safe for concurrent use.
//
// If the service is unavailable, Client retries a write with an idempotency key once. Reads are retried by Options.Do.
type Client struct {
	o        Options
	contract *upstream.Contract
}

// New returns a client. It returns an error if a required option is missing.
func New(o Options) (*Client, error) {
	if o.Host == "" || o.Do == nil || o.Log == nil {
		return nil, errors.New("data service client: Host, Do and Log are required")
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	if o.OnResponse == nil {
		o.OnResponse = func(error) {}
	}
	return &Client{o, new(upstream.Contract)}, nil
}

// Caller identifies the business and account on whose behalf a call is made.
type Caller struct {
	BusinessID string // visible ASCII; required
	AccountID  string // visible ASCII; required
	RequestID  string // visible ASCII; for the logs of the gateway and the service
}

// Write has the options of a call that changes something.
type Write struct {
	Key      string // an idempotency key, 1 to 255 visible ASCII characters, for a day; default: none, and the call is not retried
	IfMatch  string // change the record only if it has this entity tag; default: whatever its version is
	Replayed *bool  // set to whether the response is that of an earlier call with the same key. Default: nil, not set

	// Location is set to the operation's path in the documented Location header of a successful response, or "". Default: nil, not set.
	Location *string
}

// Request is a call of an operation.
type Request struct {
	Operation *upstream.Operation
	Path      []string // the values of the path parameters, unescaped, in the order of the path
	Query     string   // encoded, without "?"
	Body      []byte   // default: none
	Media     string   // media type of the body
	Write     Write
	ETag      *string // set to the ETag of a successful response. Default: nil, not set
	Unchanged bool    // keep hidden characters in the result, for writing it back. Default: remove them

	query upstream.Query
	by    Caller
}

// Body checks a body for an operation, and returns what to send and its media type. See upstream.Contract.CheckBody.
func (c *Client) Body(op *upstream.Operation, businessID string, body []byte) (sent []byte, media string, err error) {
	h := http.Header{}
	if kinds := op.Body.All(); len(kinds) > 0 && body != nil {
		h.Set("Content-Type", kinds[0].Media)
	}
	var out bytes.Buffer
	media, err = c.contract.CheckBody(&out, op, h, businessID, body)
	return out.Bytes(), media, err
}

// Call makes a call and returns the documented part of the response's body, without hidden characters, or nil if there is none. Most
// errors are an [*Error]; a *upstream.ParameterError means that a parameter is invalid, and that nothing was sent.
func (c *Client) Call(ctx context.Context, by Caller, r Request) (jsontext.Value, error) {
	if by.BusinessID == "" || by.AccountID == "" {
		return nil, errors.New("calling the data service: business or account ID is missing")
	}
	if !r.Operation.Forwards(HeaderIdempotencyKey) {
		r.Write.Key = "" // without the header, a retry is not safe
	}
	var err error
	if r.query, err = r.Operation.Fill(r.Path, r.Query, by.BusinessID); err != nil {
		return nil, err
	}
	r.by = by
	res, err := c.deliver(ctx, r)
	if err != nil {
		return nil, err
	}
	defer res.Release()
	checked, err := c.check(res, r)
	var content jsontext.Value
	if err == nil {
		// Not before the check, for which "7" and "7\u200b" must be different records.
		content, err = readable(checked, r.Unchanged)
	}
	if errors.Is(err, upstream.ErrNotVisible) {
		c.o.OnResponse(nil)
		return nil, &Error{Kind: ErrNotFound, Status: res.Status, Uncertain: !r.Operation.Read}
	}
	if c.o.OnResponse(err); err != nil {
		return nil, c.rejected(err, res, r)
	}
	return content, nil
}

// rejected returns the error for a response that the definition does not allow, and logs wrong tenants and wrong records.
func (c *Client) rejected(err error, res *upstream.Response, r Request) error {
	for of, event := range map[error]string{
		upstream.ErrCrossTenantRecord: "cross_tenant", upstream.ErrMissingTenant: "missing_tenant", upstream.ErrWrongRecord: "wrong_record",
	} {
		if errors.Is(err, of) {
			c.o.Log.Error("rejected a data service's response", zap.String("event", event), zap.NamedError("cause", err),
				zap.String("business", r.by.BusinessID), zap.String("request_id", r.by.RequestID), zap.String("operation", r.Operation.ID))
		}
	}
	return &Error{Kind: err, Status: res.Status, Uncertain: !r.Operation.Read}
}

// deliver makes the call and returns a response with a 2xx status. It retries a write with an idempotency key once; reads are
// retried by Do.
func (c *Client) deliver(ctx context.Context, r Request) (*upstream.Response, error) {
	deadline := time.Now().Add(c.o.Timeout)
	res, err := c.send(ctx, r, deadline)
	first, ok := errors.AsType[*Error](err)
	if !ok || r.Write.Key == "" || first.RetryAfter > 0 || ctx.Err() != nil || !time.Now().Before(deadline) ||
		!errors.Is(err, ErrUnavailable) || errors.Is(err, ErrTimeout) {
		return res, err
	}
	res, err = c.send(ctx, r, deadline)
	// These errors imply that the service does not know the key, so the first attempt changed nothing. ErrVersion does not: a service
	// that checks If-Match before the key returns it if the first attempt succeeded.
	known := errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrConflict) && !errors.Is(err, ErrVersion)
	if second, ok := errors.AsType[*Error](err); ok && first.Uncertain && !known {
		second.Uncertain = true
	}
	return res, err
}

func (c *Client) send(ctx context.Context, r Request, deadline time.Time) (*upstream.Response, error) {
	h := http.Header{}
	if r.Write.Key != "" {
		h.Set(HeaderIdempotencyKey, r.Write.Key)
	}
	if r.Write.IfMatch != "" {
		h.Set(HeaderIfMatch, r.Write.IfMatch)
	}
	call := upstream.NewCall(&http.Request{Host: c.o.Host, Header: h}, r.Operation, r.query, r.by.BusinessID, r.by.RequestID)
	call.Resource, call.Share = upstream.ConnectAudience, r.by.BusinessID
	call.Body, call.BodyType, call.Deadline, call.MaxResponse = r.Body, r.Media, deadline, MaxResponseSize
	call.Header.Set(HeaderAccountID, r.by.AccountID)
	res, err := c.o.Do(ctx, call)
	if err != nil {
		return nil, c.transportError(err, !r.Operation.Read)
	}
	if res.Status < 200 || res.Status > 299 {
		defer res.Release()
		return nil, c.responseError(res, r)
	}
	if r.ETag != nil {
		*r.ETag = res.Header.Get("ETag")
	}
	if r.Write.Replayed != nil {
		*r.Write.Replayed = res.Header.Get(HeaderReplayed) == "true"
	}
	return res, nil
}

// check checks a response, and returns the documented part of its body.
func (c *Client) check(res *upstream.Response, r Request) ([]byte, error) {
	documented, err := r.Operation.CheckHeader(res.Status, res.Header, false)
	var out bytes.Buffer
	if err == nil && r.Write.Location != nil {
		_, *r.Write.Location = documented.Headers(c.o.API, "", r.by.BusinessID, res.Header, res.Hosts[:]...)
	}
	if err == nil && documented.Body != nil {
		_, err = c.contract.Check(&out, r.Operation, documented, r.query, r.by.BusinessID, res.Body)
	}
	return out.Bytes(), err
}

// transportError converts an error of Do, which returned no response.
func (c *Client) transportError(err error, write bool) error {
	if errors.Is(err, upstream.ErrTooManyCalls) { // nothing was sent
		return &Error{Kind: ErrBusy, RetryAfter: time.Second, cause: err}
	}
	if errors.Is(err, upstream.ErrContractViolation) {
		c.o.OnResponse(upstream.ErrContractViolation)
		return &Error{Kind: upstream.ErrContractViolation, Uncertain: write, cause: err}
	}
	kind := ErrUnavailable
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		kind = ErrTimeout
	}
	return &Error{Kind: kind, Uncertain: write, cause: err}
}

// responseError converts a response whose status is not 2xx.
func (c *Client) responseError(res *upstream.Response, r Request) error {
	var said struct {
		Error   string   `json:"error"`
		Detail  string   `json:"detail"` // like title, a member of problem details (RFC 9457)
		Title   string   `json:"title"`
		Details []Detail `json:"details"`
	}
	body, undocumented := c.check(res, r)
	if errors.Is(undocumented, upstream.ErrCrossTenantRecord) || errors.Is(undocumented, upstream.ErrMissingTenant) {
		c.o.OnResponse(undocumented)
		return c.rejected(undocumented, res, r)
	}
	if undocumented != nil || len(body) > maxError || json.Unmarshal(body, &said) != nil {
		said.Error, said.Detail, said.Title, said.Details = "", "", "", nil
	}
	e := &Error{Status: res.Status, Code: CodeOf(res.Body), Message: cleanText(cmp.Or(said.Error, said.Detail, said.Title)), Details: clean(said.Details)}
	e.RetryAfter, _ = upstream.RetryAfter(res.Header, time.Now())
	write := !r.Operation.Read
	switch status := res.Status; {
	case status < http.StatusBadRequest:
		e.Kind, e.Uncertain = upstream.ErrContractViolation, write
	case status == http.StatusUnauthorized, status == http.StatusForbidden && e.Code == "" && undocumented != nil:
		e.Kind = ErrGatewayRejected
	case status == http.StatusForbidden:
		e.Kind = ErrForbidden
		if slices.Contains([]string{"UNKNOWN_ACCOUNT", "UNKNOWN_BUSINESS", "ACCOUNT_INACTIVE"}, e.Code) {
			e.Kind = ErrNoAccount
		}
	case status == http.StatusTooManyRequests:
		e.Kind = ErrBusy
	case status == http.StatusGatewayTimeout:
		e.Kind, e.Uncertain = ErrTimeout, write
	case status >= http.StatusInternalServerError:
		e.Kind, e.Uncertain = ErrUnavailable, write
	case undocumented != nil: // perhaps from a proxy in between
		e.Kind = upstream.ErrContractViolation
	case e.Code == "IDEMPOTENCY_KEY_REUSED":
		e.Kind = ErrKeyReused
	default:
		e.Kind = cmp.Or(map[int]error{
			http.StatusNotFound: ErrNotFound, http.StatusGone: ErrNotFound, http.StatusConflict: ErrConflict,
			http.StatusPreconditionFailed: ErrVersion, http.StatusPreconditionRequired: ErrVersion,
			http.StatusBadRequest: ErrInvalid, http.StatusUnprocessableEntity: ErrInvalid, http.StatusRequestEntityTooLarge: ErrInvalid,
		}[status], upstream.ErrContractViolation)
	}
	var fault error // else the caller's
	if slices.Contains([]error{ErrGatewayRejected, upstream.ErrContractViolation, ErrUnavailable, ErrTimeout}, e.Kind) {
		fault = e.Kind
	}
	c.o.OnResponse(fault)
	return e
}

// CodeOf returns the code of an error response, documented or not: it is compared and logged, but not shown. It is "" if invalid.
func CodeOf(body []byte) string {
	var said struct {
		Code string `json:"code"`
	}
	if len(body) > maxError || json.Unmarshal(body, &said) != nil ||
		len(said.Code) > 64 || strings.Trim(said.Code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		return ""
	}
	return said.Code
}

// clean limits the number of details and cleans their texts, which are shown to an assistant.
func clean(details []Detail) []Detail {
	details = details[:min(len(details), maxDetails)]
	for i := range details {
		for _, s := range []*string{&details[i].Field, &details[i].Problem, &details[i].Allowed} {
			*s = cleanText(*s)
		}
	}
	return details
}

// cleanText returns s as one line of at most maxText bytes.
func cleanText(s string) string {
	return cleantext.Line(strings.ToValidUTF8(s[:min(len(s), maxText)], ""), maxText)
}
