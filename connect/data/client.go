package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
	// Host is the Host header of the requests, which have URLs such as "http://api.example.com/connect/v1/contacts". Required.
	Host string

	// Transport sends the requests to the service, at whatever address, and adds the hop assertion, for the business and
	// request ID in X-Business-Id and X-Request-Id. Required.
	Transport http.RoundTripper

	// Timeout is the timeout of one call, including the retry. Default: DefaultTimeout.
	Timeout time.Duration

	// OnResponse is called with the result of checking each response: nil if it is valid, which the documented errors of a
	// caller are too, or else one of this package's errors. Default: none.
	OnResponse func(error)

	// Log gets an error for every response with records of another business. Required.
	Log *zap.Logger
}

// Client makes the calls of /connect/v1. It is safe for concurrent use.
//
// If the service is unavailable, it retries a write with an idempotency key once. The transport retries reads. It follows no
// redirects.
type Client struct {
	base       string
	http       *http.Client
	timeout    time.Duration
	onResponse func(error)
	log        *zap.Logger
}

// New returns a client.
func New(o Options) (*Client, error) {
	if o.Host == "" || o.Transport == nil || o.Log == nil {
		return nil, errors.New("data service client: Host, Transport and Log are required")
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.OnResponse == nil {
		o.OnResponse = func(error) {}
	}
	return &Client{
		base: "http://" + o.Host + "/connect/v1",
		http: &http.Client{
			Transport:     o.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		timeout:    o.Timeout,
		onResponse: o.OnResponse,
		log:        o.Log,
	}, nil
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
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	status, response, err := c.deliver(ctx, by, r, body)
	if err != nil {
		return none, err
	}
	value, err := read(response)
	if cleaned := cleantext.JSON(response); err == nil && !bytes.Equal(cleaned, response) {
		// IDs were checked before cleaning, because "7" and "7\u200b" are different records.
		value, err = read(cleaned)
	}
	c.onResponse(err)
	if err == nil {
		return value, nil
	}
	crossTenant := errors.Is(err, upstream.ErrCrossTenantRecord)
	if crossTenant || errors.Is(err, ErrWrongRecord) {
		event := "wrong_record"
		if crossTenant {
			event = "cross_tenant"
		}
		c.log.Error("rejected a data service's response", zap.String("event", event), zap.NamedError("cause", err),
			zap.String("business", by.BusinessID), zap.String("request_id", by.RequestID),
			zap.String("method", r.method), zap.Strings("path", r.path))
	}
	return none, &Error{Kind: err, Status: status, Uncertain: r.method != http.MethodGet}
}

// deliver makes the call. It retries a write with an idempotency key once; reads are retried by the transport.
func (c *Client) deliver(ctx context.Context, by Caller, r request, body []byte) (int, []byte, error) {
	status, response, err := c.send(ctx, by, r, body)
	first, ok := errors.AsType[*Error](err)
	if !ok || r.write.Key == "" || first.RetryAfter > 0 || ctx.Err() != nil ||
		!errors.Is(err, ErrUnavailable) || errors.Is(err, ErrTimeout) {
		return status, response, err
	}
	status, response, err = c.send(ctx, by, r, body)
	// These errors imply that the service does not know the key, so that the first attempt changed nothing.
	known := errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrConflict)
	if second, ok := errors.AsType[*Error](err); ok && first.Uncertain && !known {
		second.Uncertain = true
	}
	return status, response, err
}

func (c *Client) send(ctx context.Context, by Caller, r request, body []byte) (int, []byte, error) {
	escaped := make([]string, 0, len(r.path))
	for _, p := range r.path {
		// Proxies would remove dot segments, which would result in another path.
		if p == "" || p == "." || p == ".." {
			return 0, nil, &Error{Kind: ErrNotFound}
		}
		escaped = append(escaped, url.PathEscape(p))
	}
	target := c.base + "/" + strings.Join(escaped, "/")
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, content)
	if err != nil {
		return 0, nil, fmt.Errorf("creating a request to the data service: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set(upstream.HeaderBusinessID, by.BusinessID)
	req.Header.Set(HeaderAccountID, by.AccountID)
	req.Header.Set(upstream.HeaderRequestID, by.RequestID)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.write.Key != "" {
		req.Header.Set(HeaderIdempotencyKey, string(r.write.Key))
	}
	if r.write.Version > 0 {
		req.Header.Set(HeaderIfMatch, strconv.Quote(strconv.FormatInt(r.write.Version, 10)))
	}
	write := r.method != http.MethodGet
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, unreachable(err, write)
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return 0, nil, c.failure(res, r)
	}
	if r.write.Replayed != nil {
		*r.write.Replayed = res.Header.Get(HeaderReplayed) == "true"
	}
	response, err := io.ReadAll(io.LimitReader(res.Body, MaxResponseSize+1))
	if err != nil {
		return 0, nil, unreachable(err, write)
	}
	if media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err != nil || media != "application/json" ||
		int64(len(response)) > MaxResponseSize {
		c.onResponse(upstream.ErrContractViolation)
		return 0, nil, &Error{Kind: upstream.ErrContractViolation, Status: res.StatusCode, Uncertain: write}
	}
	return res.StatusCode, response, nil
}

func unreachable(err error, write bool) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, whose query has arguments of the tool
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
func (c *Client) failure(res *http.Response, r request) error {
	var body []byte
	if res.StatusCode >= 200 { // the body of a 101 response may never end
		body, _ = io.ReadAll(io.LimitReader(res.Body, maxError))
	}
	var said struct {
		Error   string   `json:"error"`
		Code    string   `json:"code"`
		Details []Detail `json:"details"`
	}
	if json.Unmarshal(body, &said) != nil {
		said.Error, said.Code, said.Details = "", "", nil
	}
	e := &Error{Status: res.StatusCode, Code: cleanCode(said.Code)}
	e.RetryAfter, _ = upstream.RetryAfter(res.Header, time.Now())
	if e.Code != "" {
		e.Message = cleanText(said.Error)
	}
	write := r.method != http.MethodGet
	switch status := res.StatusCode; {
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
		c.onResponse(e.Kind)
	} else {
		c.onResponse(nil)
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
