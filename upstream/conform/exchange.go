package conform

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// request is a request to the service.
type request struct {
	op           *upstream.Operation
	label        string   // the business: A, B or another text
	values       []string // of the path's parameters that do not name the business
	query        string   // as a caller would send it
	ofRecords    bool     // the target has values of the service's records
	namesRecord  bool     // the body has the ID of a record that only this business has
	recordParam  string   // the parameter of the query that has such a value
	param        string   // the parameter of the query that is tried
	mayBeRefused bool     // the service may refuse a value of the query
	header       http.Header
	body         []byte
	sent         map[string]any      // the members of the body, by the names of the definition
	wrong        *wrongAssertion     // instead of the right assertion
	change       func(*http.Request) // changes the request just before it is sent
	repeats      int                 // how often it was repeated because the service limits requests
}

// exchange is a request and its response.
type exchange struct {
	request

	target     string
	clean      upstream.Query
	status     int
	header     http.Header
	body       []byte
	err        error // why there is no response
	res        *upstream.DocumentedResponse
	refused    error // by CheckHeader
	took       time.Duration
	compressed bool // the body was compressed, and has been decoded

	value   any    // the decoded body
	in      string // its member with the records, if it has one
	records []any  // the records in it
	list    bool
}

// business returns the business ID in a request.
func (r *run) business(op *upstream.Operation, label string) string {
	switch {
	case op.Public:
		return "-" // as the gateway sends for callers that it does not know
	case label == "A":
		return r.A
	case label == "B":
		return r.B
	}
	return r.unknown
}

// fetch returns the exchange for a request that changes nothing. Equal requests are sent and judged once.
func (r *run) fetch(ctx context.Context, q request, asRule string) *exchange {
	key := q.label + " " + q.op.ID + " " + strings.Join(q.values, "/") + "?" + q.query
	if x := r.exchanges[key]; x != nil {
		return x
	}
	x := r.sendAndCheck(ctx, q, asRule)
	if x != nil && x.status != http.StatusTooManyRequests {
		r.exchanges[key] = x
	}
	return x
}

// sendAndCheck sends a request and judges the response.
func (r *run) sendAndCheck(ctx context.Context, q request, asRule string) *exchange {
	x := r.send(ctx, q)
	if x != nil {
		r.checkResponse(ctx, x, asRule)
	}
	return x
}

// mustNotSucceed sends a request that the service must refuse, and adds a finding if it succeeds.
func (r *run) mustNotSucceed(ctx context.Context, q request, rule, expected string) {
	if x := r.sendAndCheck(ctx, q, rule); x.ok() {
		r.addFinding(rule, x, Finding{Expected: expected, Got: fmt.Sprintf("status %d", x.status)})
	}
}

// wait waits until the next request may be sent, and counts it.
func (r *run) wait(ctx context.Context, op *upstream.Operation) {
	if r.limiter.Wait(ctx) != nil {
		<-ctx.Done() // ctx ends before the next request may be sent
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Progress != nil {
		r.Progress(r.report.Requests, op.ID)
	}
	r.report.Requests++
}

// idParams returns the parameters of an operation's path that do not name the business.
func idParams(op *upstream.Operation) []upstream.Param {
	return slices.DeleteFunc(slices.Clone(op.PathParams), func(p upstream.Param) bool { return p.Business })
}

// target returns the request target: parameters that name a business name that of the request, as the gateway requires.
func (r *run) target(q request) string {
	path, query, business := q.op.Path, q.query, r.business(q.op, q.label)
	for _, p := range q.op.PathParams {
		if p.Business {
			path = strings.Replace(path, "{"+p.Name+"}", url.PathEscape(business), 1)
		}
	}
	for i, p := range idParams(q.op)[:len(q.values)] {
		path = strings.Replace(path, "{"+p.Name+"}", q.values[i], 1)
	}
	for _, p := range q.op.Params {
		if values, _ := url.ParseQuery(query); p.Business && values.Has(p.Name) {
			query = withParam(query, p.Name, business)
		}
	}
	if query != "" {
		path += "?" + query
	}
	return path
}

// accept returns an exchange with the target to be sent, or nil if the gateway would refuse the request.
func (r *run) accept(q request) *exchange {
	x := &exchange{request: q, target: r.target(q)}
	m, ok := r.api.Match(x.target)
	if !ok || m.Path.Operation(q.op.Method) != q.op {
		return nil
	}
	for _, h := range q.op.Headers {
		if value := q.header.Get(h.Name); value != "" && h.Schema.InvalidReason(value) != "" {
			return nil
		}
	}
	var err error
	if x.clean, err = q.op.CleanQuery(m); err != nil || q.op.CheckBusiness(x.clean, r.business(q.op, q.label)) != nil {
		return nil
	}
	return x
}

// send sends a request as the gateway would. It returns nil if the gateway would refuse it.
func (r *run) send(ctx context.Context, q request) *exchange {
	x := r.accept(q)
	if x == nil {
		return nil
	}
	r.wait(ctx, q.op)
	return r.sendNow(ctx, x)
}

// sendNow sends a request without waiting for the next one's time.
func (r *run) sendNow(ctx context.Context, x *exchange) *exchange {
	q, start := x.request, time.Now()
	x.err = r.exchange(ctx, x)
	if x.status == http.StatusUnauthorized && x.wrong == nil && r.awaitKeys(ctx) {
		return r.send(ctx, q)
	}
	after, stated := upstream.RetryAfter(x.header, time.Now())
	limits := x.status == http.StatusTooManyRequests
	if (limits || stated && x.status == http.StatusServiceUnavailable) && q.repeats < 3 && after <= time.Minute && pause(ctx, max(after, time.Second)) {
		q.repeats++
		return r.send(ctx, q)
	}
	if limits && ctx.Err() == nil {
		r.skip(q.op, "the service limits requests: lower --rate")
	}
	if x.err == nil {
		x.res, x.refused = q.op.CheckHeader(x.status, x.header, q.header.Get("If-None-Match") != "")
		x.read(r.published(x))
	}
	x.took = time.Since(start)
	return x
}

// pause waits, and reports whether it did until the end.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}

// awaitKeys waits until the service must know the keys. It reports whether it waited: it does so only once.
func (r *run) awaitKeys(ctx context.Context) bool {
	r.mu.Lock()
	after := r.KeysAfter
	r.KeysAfter = 0
	r.mu.Unlock()
	return after > 0 && pause(ctx, after)
}

// exchange sends a request and reads the response.
func (r *run) exchange(ctx context.Context, x *exchange) error {
	id, business := uuid.NewString(), r.business(x.op, x.label)
	call := upstream.NewCall(&http.Request{Host: r.host, Header: x.request.header}, x.op, x.clean, business, id)
	if x.request.body != nil {
		call.Body, call.BodyType = x.request.body, x.op.Body.Kinds[0].Media
	}
	token, asserter, c := "", r.asserter, claims{x.op.Resource, x.op.ID, business, id}
	if x.wrong != nil {
		if asserter = cmp.Or(x.wrong.by, asserter); x.wrong.claims != nil {
			x.wrong.claims(&c)
		}
	}
	if asserter != nil {
		var err error
		if token, err = asserter.Assert(c.audience, c.operation, c.business, c.request); err != nil {
			return fmt.Errorf("making an assertion: %w", err)
		}
	}
	if x.wrong != nil && x.wrong.token != nil {
		token = x.wrong.token(token)
	}
	req, err := call.NewRequest(ctx, token)
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	for name, values := range r.Header {
		if req.Header[name] == nil || name == "Content-Type" {
			req.Header[name] = values
		}
	}
	if x.change != nil {
		x.change(req)
	}
	response, err := r.client.Exchange(req, time.Now().Add(r.Timeout))
	if err != nil {
		return err //nolint:wrapcheck // failure describes it
	}
	defer response.Body.Close()
	x.status, x.header = response.StatusCode, response.Header
	decode, err := upstream.Decode(response)
	if err != nil {
		return err //nolint:wrapcheck // failure describes it
	}
	x.compressed = response.Uncompressed
	x.body, err = io.ReadAll(io.LimitReader(response.Body, upstream.DefaultMaxResponseSize+1))
	if err == nil && int64(len(x.body)) > upstream.DefaultMaxResponseSize {
		err = upstream.ErrResponseTooLarge
	}
	if err == nil && decode != nil {
		x.body, err = decode(x.body, upstream.DefaultMaxResponseSize)
	}
	return err
}

// published returns the body with the names of the definition. It is nil if the service has other names and the body cannot be brought into its form.
func (r *run) published(x *exchange) []byte {
	if x.res == nil || !x.res.Mapped {
		return x.body
	}
	_, body := r.contract.Violations(x.op, x.res, x.clean, r.business(x.op, x.label), x.body) // checkResponse reports them
	return body
}

// read decodes the body, and finds the records.
func (x *exchange) read(body []byte) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if x.res == nil || x.res.Body == nil || d.Decode(&x.value) != nil || x.status/100 != 2 {
		return
	}
	found := x.value
	if x.in = recordsIn(x.op, x.res); x.op.Method != http.MethodGet && x.res.Records == nil || x.in == "" {
		x.in = envelope(x.op, x.res)
	}
	if x.in != "" {
		found, _ = at(x.value, x.in)
	}
	switch v := found.(type) {
	case []any:
		x.records, x.list = v, true
	case map[string]any:
		x.records = []any{v}
	}
}

// recordsIn returns the member of a response that has the records: the documented one, or else the only array of objects. It returns "" if there
// is none, and if the response has an id or the last parameter of the path, so that it is a record itself.
func recordsIn(op *upstream.Operation, res *upstream.DocumentedResponse) (in string) {
	if res.Records != nil {
		return res.Records.In
	}
	if hasID(op, res.Body) {
		return ""
	}
	for _, p := range res.Body.Properties {
		if p.Schema.Types&upstream.TypeArray != 0 && p.Schema.Items != nil && p.Schema.Items.Types&upstream.TypeObject != 0 {
			if in != "" {
				return ""
			}
			in = p.Name
		}
	}
	return in
}

// envelope returns the member with the record that a path identifies or that a POST returns, if it is an object with an id and the only member, or
// data, as in Laravel's resources. Other responses may have an object that belongs to nobody, such as a plan.
func envelope(op *upstream.Operation, res *upstream.DocumentedResponse) string {
	if res.Records != nil || hasID(op, res.Body) || !isRecord(op) && op.Method != http.MethodPost {
		return ""
	}
	for _, p := range res.Body.Properties {
		if p.Schema.Property("id") != nil && (p.Name == "data" || len(res.Body.Properties) == 1) {
			return p.Name
		}
	}
	return ""
}

// hasID reports whether a response has an id or the last parameter of the path, so that it is a record itself.
func hasID(op *upstream.Operation, body *upstream.Schema) bool {
	return body.Property("id") != nil || isRecord(op) && body.Property(op.PathParams[len(op.PathParams)-1].Name) != nil
}

// ok reports whether the response is a success with a documented status and media type.
func (x *exchange) ok() bool {
	return x != nil && x.err == nil && x.refused == nil && x.status/100 == 2
}

// isRefused reports whether the service refuses the request itself, and not its assertion or the number of requests.
func (x *exchange) isRefused() bool {
	return x != nil && x.status/100 == 4 && x.status != http.StatusUnauthorized && x.status != http.StatusTooManyRequests
}

// record returns the record in a response of success, or nil.
func (x *exchange) record() (record map[string]any) {
	if x.ok() && !x.list && len(x.records) == 1 {
		record, _ = x.records[0].(map[string]any)
	}
	return record
}

// failure returns the rule that an exchange without a response breaks, and what was received.
func (r *run) failure(x *exchange) (rule, got string) {
	err := x.err
	var network *net.OpError
	var timeout net.Error
	switch {
	case errors.Is(err, upstream.ErrOtherResponse):
		return "request-id", "the X-Request-Id of another request, or of the service's own"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "connection", "no complete response within " + r.Timeout.String()
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "connection", "a response that ends before its end"
	case errors.Is(err, upstream.ErrResponseTooLarge):
		return "connection", fmt.Sprintf("a body of more than %d bytes", upstream.DefaultMaxResponseSize)
	case errors.Is(err, upstream.ErrContentEncoding):
		return "media-type", "a Content-Encoding that is repeated, or not gzip, zstd or identity"
	case errors.As(err, &network):
		return "connection", "no connection, or one that was reset"
	case x.compressed:
		return "media-type", "a body that its Content-Encoding does not decode"
	default:
		return "connection", "what is not an HTTP/1.1 response"
	}
}

// checkResponse adds findings about a response. asRule is the rule that an undocumented status breaks instead of the rule status, except for
// isolation, which another business's record breaks instead of the rule tenant.
func (r *run) checkResponse(ctx context.Context, x *exchange, asRule string) {
	if ctx.Err() != nil {
		return // the request was interrupted
	}
	if x.err != nil {
		rule, got := r.failure(x)
		expected := map[string]string{"request-id": "the X-Request-Id of the request, or none", "media-type": "a body as its Content-Encoding says"}[rule]
		r.addFinding(rule, x, Finding{Expected: cmp.Or(expected, "a complete response"), Got: got, Value: excerpt(x.err.Error())})
		return
	}
	if r.addHints(x); x.ok() {
		r.report.Succeeded++
	}
	got := fmt.Sprintf("status %d", x.status)
	var contract *upstream.ContractError
	_, passed := errors.AsType[*upstream.StatusError](x.refused)
	if asRule == "parameter" && x.isRefused() && (passed || x.refused == nil) && !x.mayBeRefused {
		r.addFinding("parameter", x, Finding{Expected: "success, because the definition allows this value of " + x.param, Got: got})
	}
	switch {
	case passed:
		return
	case errors.As(x.refused, &contract):
		r.addRefusal(x, asRule, contract.Expected, got)
		return
	case x.res.Body == nil && x.res.Unchecked == nil && len(x.body) > 0 && x.status < 400:
		r.addFinding("media-type", x, Finding{Expected: "no body", Got: fmt.Sprintf("%s with a body of %d bytes", got, len(x.body))})
	case x.res.Body != nil:
		r.checkBody(x, asRule)
	}
	removed := func(isRemoved bool, name, expected string) {
		if values := x.header[name]; isRemoved && len(values) > 0 {
			r.addFinding("header", x, Finding{Expected: expected, Got: "another one, which the gateway removes", Value: excerpt(values[0])})
		}
	}
	etag, location := x.res.Headers(r.api, "", r.business(x.op, x.label), x.header, r.host)
	removed(x.res.ETag && etag == "", "Etag", "an ETag in double quotes, of visible ASCII")
	removed(x.res.Location && location == "", "Location", "as Location the path of an operation")
}

// addRefusal adds the finding about a status or media type.
func (r *run) addRefusal(x *exchange, asRule, expected, got string) {
	rule := cmp.Or(asRule, "status")
	switch {
	case x.status == http.StatusUnauthorized:
		rule, expected = "assertion", "a response to a right assertion"
		if r.asserter == nil {
			expected = "a response to a request without an assertion: if the service requires one, give a key with --assertion-key"
		}
	case x.status/100 == 3 && x.status != http.StatusNotModified:
		rule = "redirect"
	case !strings.HasPrefix(expected, "status "):
		got = fmt.Sprintf("%s with Content-Type %s", got, mediaType(x.header))
		rule = "media-type"
	case asRule == "isolation": // what has left decides, and not the status
		rule = "status"
	}
	r.addFinding(rule, x, Finding{Expected: expected, Got: got, Value: excerpt(string(x.body))})
}

// mediaType returns the Content-Type if it consists of ordinary characters.
func mediaType(h http.Header) string {
	value := h.Get("Content-Type")
	if strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/+-.;= ") != "" || len(value) > 64 {
		return "that is not an ordinary one"
	}
	return cmp.Or(value, "absent")
}

// checkBody adds what the gateway's check of the body finds.
func (r *run) checkBody(x *exchange, asRule string) {
	business := r.business(x.op, x.label)
	if _, err := r.contract.Check(new(bytes.Buffer), x.op, x.res, x.clean, business, x.body); errors.Is(err, upstream.ErrNotVisible) {
		return
	}
	isJSON := jsontext.Value(x.body).IsValid()
	violations, _ := r.contract.Violations(x.op, x.res, x.clean, business, x.body)
	for _, v := range violations {
		value, exists := at(x.value, namesIn(v.Pointer)...)
		kind, text := describe(value, exists)
		if x.res.Mapped && (!exists || x.value == nil) || strings.Contains(v.Pointer+"/", "/*/") { // it has another name, perhaps in another form
			kind = "another value, or none"
		}
		rule := "schema"
		switch {
		case !isJSON:
			rule, kind, text = "json", fmt.Sprintf("a body of %d bytes that is not", len(x.body)), excerpt(string(x.body))
		case v.Reason == upstream.OtherBusiness || v.Reason == upstream.NoBusiness:
			rule = "tenant"
			if asRule == "isolation" {
				rule = asRule
			}
		case v.Reason == "expected the record that was asked for":
			rule = "record"
		case strings.HasPrefix(v.Reason, "expected the requested "):
			rule = "page-echo"
		case strings.HasPrefix(v.Reason, "expected at most ") && strings.Contains(v.Reason, " records, "):
			rule = "at-most"
		case strings.HasPrefix(v.Reason, "expected newest first "):
			rule, kind, text = "order", "another order", ""
		}
		expected := strings.TrimPrefix(v.Reason, "expected ")
		switch {
		case rule == "tenant", rule == "isolation":
			expected = "the business that asked"
		case strings.HasPrefix(expected, "is "), strings.HasPrefix(expected, "does "):
			expected = "a value that " + strings.NewReplacer("is not ", "is ", "is ", "is not ", "does not have ", "has ").Replace(expected)
		}
		if v.From != "" {
			expected += ", from " + v.From
		}
		r.addFinding(rule, x, Finding{Pointer: v.Pointer, Expected: expected, Got: kind, Value: text, Times: v.Times})
	}
	for _, v := range r.contract.Removed(x.op, x.res, x.clean, business, x.body) {
		expected := map[string]string{"is removed: it is not documented": "a documented member", "is removed: the alternatives with it do not fit": "an object that fits one of the alternatives with this member", "is removed: it is writeOnly": "no member that is writeOnly"}[v.Reason]
		if isJSON && expected != "" {
			r.addFinding("undocumented", x, Finding{Pointer: v.Pointer, Expected: expected, Got: "one that the gateway removes", Times: v.Times})
		}
	}
}

// slow is the time above which a response is reported as slow.
const slow = 5 * time.Second

// addHints adds hints about a response.
func (r *run) addHints(x *exchange) {
	if x.compressed && len(x.body) > 0 {
		r.addFinding("compressed", x, Finding{Expected: "a body as it is", Got: "one that is compressed"})
	}
	if x.took > slow {
		r.addFinding("slow", x, Finding{Expected: "a response in less than " + slow.String(), Got: "one after " + x.took.Round(time.Second).String()})
	}
	if x.header.Get(upstream.HeaderRequestID) == "" {
		r.addFinding("no-request-id", x, Finding{Expected: "the X-Request-Id of the request", Got: "none"})
	}
}
