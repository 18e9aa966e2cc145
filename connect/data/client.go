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
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
)

// Headers of the calls.
const (
	HeaderBusinessID     = "X-Business-Id"
	HeaderAccountID      = "X-Account-Id"
	HeaderRequestID      = "X-Request-Id"
	HeaderIdempotencyKey = "Idempotency-Key"
	HeaderIfMatch        = "If-Match"
	HeaderReplayed       = "Idempotency-Replayed"
)

// Defaults and bounds.
const (
	DefaultTimeout         = 15 * time.Second
	DefaultMaxResponseSize = 1 << 20 // bytes; a service is asked not to send more

	maxError      = 64 << 10 // bytes of an error's body that are read
	maxDetails    = 32
	maxText       = 500 // bytes of one text in an error
	maxDepth      = 64  // of JSON that is passed on as it is
	maxRetryAfter = time.Hour
)

// Options say how to reach a data service.
type Options struct {
	// BaseURL is the service's origin, without the path of the calls: "http://data.internal:8080". Required.
	BaseURL string

	// Transport carries the calls; it is where the gateway's own identity (the hop assertion) is put on. It finds the
	// business and the request in the headers X-Business-Id and X-Request-Id. Default: http.DefaultTransport.
	Transport http.RoundTripper

	// Timeout bounds one call with everything in it, the second attempt included. Default: DefaultTimeout.
	Timeout time.Duration

	// MaxResponseSize is how many bytes of an answer are read; a longer one is ErrUnexpected. Default: DefaultMaxResponseSize.
	MaxResponseSize int64

	// Log receives the alarms. Required.
	Log *zap.Logger
}

// Client makes the calls of /connect/v1. It is safe for concurrent use, follows no redirects and keeps no cookies.
//
// A call that could not be delivered is made once more if that is safe: reads, and writes under their idempotency key.
type Client struct {
	base            string
	http            *http.Client
	timeout         time.Duration
	maxResponseSize int64
	log             *zap.Logger
}

// New makes a client. It fails if BaseURL is not an absolute http or https URL without query and fragment.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("reading the data service's address: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the data service's address %q is not an absolute http or https URL", u.Redacted())
	}
	if o.Log == nil {
		return nil, errors.New("the data service's client needs a log")
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxResponseSize <= 0 {
		o.MaxResponseSize = DefaultMaxResponseSize
	}
	return &Client{
		base: strings.TrimSuffix(u.String(), "/") + "/connect/v1",
		http: &http.Client{
			Transport:     o.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		timeout:         o.Timeout,
		maxResponseSize: o.MaxResponseSize,
		log:             o.Log,
	}, nil
}

// Caller is whom a call is made for.
type Caller struct {
	BusinessID string // visible ASCII; required
	AccountID  string // visible ASCII; required
	RequestID  string // visible ASCII; for the service's log
}

// Key is an idempotency key: 1 to 255 visible ASCII characters. The same write under the same key is done once, for a day.
type Key string

// Write says how to do a call that changes something.
type Write struct {
	Key     Key   // required
	Version int64 // do it only if the record still has this version; 0: whatever its version is

	// Replayed is set to whether the answer is that of an earlier call under the same key. It may be nil.
	Replayed *bool
}

// request is one call.
type request struct {
	method string
	path   []string // escaped and joined
	query  url.Values
	body   any // nil for none
	write  Write
}

// reply is what a response's JSON is decoded into, more than once if need be.
type reply interface {
	// check returns ErrForeign, ErrWrongRecord or ErrUnexpected for a record that the call cannot have asked for.
	check(business string) error
}

func (c *Client) do(ctx context.Context, by Caller, r request, into reply) error {
	if by.BusinessID == "" || by.AccountID == "" {
		return errors.New("a call to the data service for nobody")
	}
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return fmt.Errorf("encoding a call to the data service: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	status, response, err := c.deliver(ctx, by, r, body)
	if err != nil {
		return err
	}
	err = read(response, by.BusinessID, into)
	if cleaned := cleantext.JSON(response); err == nil && !bytes.Equal(cleaned, response) {
		// The ids were compared before the text is cleaned: "7" and "7\u200b" are two records.
		err = read(cleaned, by.BusinessID, into)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrForeign) || errors.Is(err, ErrWrongRecord) {
		c.log.Error("ALARM: "+err.Error(),
			zap.String("business_id", by.BusinessID), zap.String("request_id", by.RequestID),
			zap.String("method", r.method), zap.Strings("path", r.path))
	}
	return &Error{Kind: err, Status: status, Uncertain: r.method != http.MethodGet}
}

// read decodes and checks a response. A member name that an object has twice is ErrUnexpected.
func read(response []byte, business string, into reply) error {
	if json.Unmarshal(response, into) != nil {
		return ErrUnexpected
	}
	return into.check(business)
}

// deliver makes the call, twice if the first time was in vain and that is safe.
func (c *Client) deliver(ctx context.Context, by Caller, r request, body []byte) (int, []byte, error) {
	uncertain := false
	for attempt := 1; ; attempt++ {
		status, response, err := c.send(ctx, by, r, body)
		if err == nil {
			return status, response, nil
		}
		again := attempt == 1 && ctx.Err() == nil && (r.method == http.MethodGet || r.write.Key != "") &&
			errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrTimeout)
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return 0, nil, err
		}
		// These responses say that the key is unknown, and so that the first attempt changed nothing.
		e.Uncertain = e.Uncertain ||
			uncertain && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrConflict)
		if !again || e.RetryAfter > 0 {
			return 0, nil, e
		}
		uncertain = e.Uncertain
	}
}

func (c *Client) send(ctx context.Context, by Caller, r request, body []byte) (int, []byte, error) {
	escaped := make([]string, 0, len(r.path))
	for _, p := range r.path {
		// A dot segment would be cleaned away on the way, and be another path.
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
		return 0, nil, fmt.Errorf("making a call to the data service: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set(HeaderBusinessID, by.BusinessID)
	req.Header.Set(HeaderAccountID, by.AccountID)
	req.Header.Set(HeaderRequestID, by.RequestID)
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
		return 0, nil, c.failure(res, by, r)
	}
	if r.write.Replayed != nil {
		*r.write.Replayed = res.Header.Get(HeaderReplayed) == "true"
	}
	answer, err := io.ReadAll(io.LimitReader(res.Body, c.maxResponseSize+1))
	if err != nil {
		return 0, nil, unreachable(err, write)
	}
	if media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err != nil || media != "application/json" ||
		int64(len(answer)) > c.maxResponseSize {
		return 0, nil, &Error{Kind: ErrUnexpected, Status: res.StatusCode, Uncertain: write}
	}
	return res.StatusCode, answer, nil
}

func unreachable(err error, write bool) error {
	kind := ErrUnavailable
	if t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && t.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		kind = ErrTimeout
	}
	return &Error{Kind: kind, Uncertain: write, cause: err}
}

// failure makes an error of an answer that is not a success.
func (c *Client) failure(res *http.Response, by Caller, r request) error {
	var body []byte
	if res.StatusCode >= 200 { // 101 is followed by another protocol, which need not end
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
	e := &Error{
		Status: res.StatusCode, Code: cleanCode(said.Code), RetryAfter: retryAfter(res.Header.Get("Retry-After")),
	}
	if e.Code != "" {
		e.Message = cleanText(said.Error)
	}
	write := r.method != http.MethodGet
	switch status := res.StatusCode; {
	case status < http.StatusBadRequest:
		e.Kind, e.Uncertain = ErrUnexpected, write
	case status == http.StatusUnauthorized, status == http.StatusForbidden && e.Code == "":
		e.Kind = ErrRefused
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
		e.Kind = ErrUnexpected
	}
	e.Details = clean(said.Details)
	if e.Kind == ErrRefused || e.Kind == ErrUnexpected { //nolint:errorlint // set just above
		c.log.Error("the data service's answer cannot be used", zap.Int("status", e.Status), zap.String("code", e.Code),
			zap.String("method", r.method), zap.Strings("path", r.path), zap.String("business_id", by.BusinessID),
			zap.String("request_id", by.RequestID))
	}
	return e
}

func retryAfter(h string) time.Duration {
	seconds, err := strconv.Atoi(h)
	if err != nil || seconds <= 0 {
		return 0
	}
	return time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
}

func cleanCode(code string) string {
	if len(code) > 64 {
		return ""
	}
	for _, r := range code {
		if (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' {
			return ""
		}
	}
	return code
}

// clean bounds what a service says about fields: it is shown to an assistant.
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
