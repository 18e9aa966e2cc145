package data

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Request and response headers, besides those of package upstream.
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
	maxDepth   = 64  // of JSON that is passed on unchanged
)

// Options of a [Client].
type Options struct {
	// Host is the Host header of the calls. Required.
	Host string

	// Do makes a call to the data service. Required.
	Do func(context.Context, upstream.Call) (*upstream.Response, error)

	// Timeout is the timeout of one call, including retries. Default: DefaultTimeout.
	Timeout time.Duration

	// OnResponse is called with the result of checking each response: nil if it is valid, which the documented errors of a
	// caller are too, or else one of this package's errors. Default: none.
	OnResponse func(error)

	// Log gets an error for every response with records of another business. Required.
	Log *zap.Logger
}

// Client makes the calls of /connect/v1. It is safe for concurrent use.
//
// If the service is unavailable, it retries a write with an idempotency key once. Do retries reads.
type Client struct {
	o Options
}

// New returns a client.
func New(o Options) (*Client, error) {
	if o.Host == "" || o.Do == nil || o.Log == nil {
		return nil, errors.New("data service client: Host, Do and Log are required")
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	if o.OnResponse == nil {
		o.OnResponse = func(error) {}
	}
	return &Client{o}, nil
}

// Caller identifies on whose behalf a call is made.
type Caller struct {
	BusinessID string // visible ASCII; required
	AccountID  string // visible ASCII; required
	RequestID  string // visible ASCII; for the service's log
}

// Key is an idempotency key: 1 to 255 visible ASCII characters. Services keep it for a day.
type Key string

// Write is the options of a call that changes something.
type Write struct {
	Key     Key   // required
	Version int64 // If-Match: change the record only if it has this version; 0: any

	// Replayed is set to whether the response is that of an earlier call with the same key. It may be nil.
	Replayed *bool
}

// request is one call.
type request struct {
	method string
	path   []string // escaped and joined
	query  url.Values
	body   Patch // nil for none
	write  Write
}

// do makes a call and decodes the response with read.
func do[T any](ctx context.Context, c *Client, by Caller, r request, read func(response []byte) (T, error)) (T, error) {
	var none T
	if by.BusinessID == "" || by.AccountID == "" {
		return none, errors.New("calling the data service: business or account ID is missing")
	}
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return none, fmt.Errorf("encoding a call to the data service: %w", err)
		}
	}
	res, err := c.deliver(ctx, by, r, body)
	if err != nil {
		return none, err
	}
	defer res.Release()
	response := res.Body
	value, err := read(response)
	if cleaned := cleantext.JSON(response); err == nil && !bytes.Equal(cleaned, response) {
		// IDs were checked before cleaning, because "7" and "7\u200b" are different records.
		value, err = read(cleaned)
	}
	c.o.OnResponse(err)
	if err == nil {
		return value, nil
	}
	crossTenant := errors.Is(err, upstream.ErrCrossTenantRecord)
	if crossTenant || errors.Is(err, ErrWrongRecord) {
		event := "wrong_record"
		if crossTenant {
			event = "cross_tenant"
		}
		c.o.Log.Error("rejected a data service's response", zap.String("event", event), zap.NamedError("cause", err),
			zap.String("business", by.BusinessID), zap.String("request_id", by.RequestID),
			zap.String("method", r.method), zap.Strings("path", r.path))
	}
	return none, &Error{Kind: err, Status: res.Status, Uncertain: r.method != http.MethodGet}
}

// deliver makes the call and returns a response with a status of success and JSON. It retries a write with an idempotency key
// once; reads are retried by Do.
func (c *Client) deliver(ctx context.Context, by Caller, r request, body []byte) (*upstream.Response, error) {
	deadline := time.Now().Add(c.o.Timeout)
	res, err := c.send(ctx, by, r, body, deadline)
	first, ok := errors.AsType[*Error](err)
	if !ok || r.write.Key == "" || first.RetryAfter > 0 || ctx.Err() != nil || !time.Now().Before(deadline) ||
		!errors.Is(err, ErrUnavailable) || errors.Is(err, ErrTimeout) {
		return res, err
	}
	res, err = c.send(ctx, by, r, body, deadline)
	// These errors imply that the service does not know the key, so that the first attempt changed nothing.
	known := errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrConflict)
	if second, ok := errors.AsType[*Error](err); ok && first.Uncertain && !known {
		second.Uncertain = true
	}
	return res, err
}

func (c *Client) send(ctx context.Context, by Caller, r request, body []byte, deadline time.Time) (*upstream.Response, error) {
	path := make([]string, 0, 8)
	path = append(path, "/connect/v1")
	for _, p := range r.path {
		// Proxies would remove dot segments, which would result in another path.
		if p == "" || p == "." || p == ".." {
			return nil, &Error{Kind: ErrNotFound}
		}
		path = append(path, url.PathEscape(p))
	}
	header := http.Header{HeaderAccountID: {by.AccountID}}
	if r.write.Key != "" {
		header.Set(HeaderIdempotencyKey, string(r.write.Key))
	}
	if r.write.Version > 0 {
		header.Set(HeaderIfMatch, strconv.Quote(strconv.FormatInt(r.write.Version, 10)))
	}
	write := r.method != http.MethodGet
	res, err := c.o.Do(ctx, upstream.Call{
		BusinessID: by.BusinessID, RequestID: by.RequestID, Share: by.BusinessID, Resource: upstream.ConnectAudience,
		Method: r.method, Path: strings.Join(path, "/"), Query: r.query.Encode(), Host: c.o.Host, Header: header, Body: body,
		Deadline: deadline, MaxResponse: MaxResponseSize,
	})
	if err != nil {
		return nil, c.failed(err, write)
	}
	if res.Status < 200 || res.Status > 299 {
		defer res.Release()
		return nil, c.failure(res, r)
	}
	if r.write.Replayed != nil {
		*r.write.Replayed = res.Header.Get(HeaderReplayed) == "true"
	}
	if media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err != nil || media != "application/json" {
		defer res.Release()
		c.o.OnResponse(upstream.ErrContractViolation)
		return nil, &Error{Kind: upstream.ErrContractViolation, Status: res.Status, Uncertain: write}
	}
	return res, nil
}

// failed converts the error of a call without a response.
func (c *Client) failed(err error, write bool) error {
	if errors.Is(err, upstream.ErrTooManyCalls) { // nothing was sent
		return &Error{Kind: ErrBusy, RetryAfter: time.Second, cause: err}
	}
	if errors.Is(err, upstream.ErrContractViolation) {
		c.o.OnResponse(upstream.ErrContractViolation)
		return &Error{Kind: upstream.ErrContractViolation, Uncertain: write, cause: err}
	}
	kind := ErrUnavailable
	if t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && t.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		kind = ErrTimeout
	}
	return &Error{Kind: kind, Uncertain: write, cause: err}
}

// failure converts an error response.
func (c *Client) failure(res *upstream.Response, r request) error {
	var body []byte
	if len(res.Body) <= maxError {
		body = res.Body
	}
	var said struct {
		Error   string   `json:"error"`
		Code    string   `json:"code"`
		Details []Detail `json:"details"`
	}
	if json.Unmarshal(body, &said) != nil {
		said.Error, said.Code, said.Details = "", "", nil
	}
	e := &Error{Status: res.Status, Code: cleanCode(said.Code)}
	e.RetryAfter, _ = upstream.RetryAfter(res.Header, time.Now())
	if e.Code != "" {
		e.Message = cleanText(said.Error)
	}
	write := r.method != http.MethodGet
	switch status := res.Status; {
	case status < http.StatusBadRequest:
		e.Kind, e.Uncertain = upstream.ErrContractViolation, write
	case status == http.StatusUnauthorized, status == http.StatusForbidden && e.Code == "":
		e.Kind = ErrGatewayRejected
	case status == http.StatusForbidden:
		e.Kind = ErrForbidden
		switch e.Code {
		case "UNKNOWN_ACCOUNT", "UNKNOWN_BUSINESS", "ACCOUNT_INACTIVE":
			e.Kind = ErrNoAccount
		}
	case status == http.StatusTooManyRequests:
		e.Kind = ErrBusy
	case status == http.StatusGatewayTimeout:
		e.Kind, e.Uncertain = ErrTimeout, write
	case status >= http.StatusInternalServerError:
		e.Kind, e.Uncertain = ErrUnavailable, write
	case e.Code == "NOT_FOUND":
		e.Kind = ErrNotFound
	case e.Code == "CONFLICT":
		e.Kind = ErrConflict
	case e.Code == "VERSION_MISMATCH":
		e.Kind = ErrVersion
	case e.Code == "IDEMPOTENCY_KEY_REUSED":
		e.Kind = ErrKeyReused
	case e.Code == "INVALID", e.Code == "INVALID_REQUEST", e.Code == "BODY_TOO_LARGE":
		e.Kind = ErrInvalid
	default:
		e.Kind = upstream.ErrContractViolation
	}
	e.Details = clean(said.Details)
	if slices.Contains([]error{ErrGatewayRejected, upstream.ErrContractViolation, ErrUnavailable, ErrTimeout}, e.Kind) {
		c.o.OnResponse(e.Kind)
	} else {
		c.o.OnResponse(nil)
	}
	return e
}

func cleanCode(code string) string {
	if len(code) > 64 || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		return ""
	}
	return code
}

// clean limits and cleans details, which are shown to an assistant.
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
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return cleantext.Line(s, maxText)
}
