// Package conform tests whether a data service conforms to the definition of its API. No gateway is needed: conform sends the requests that
// the gateway would send, and judges the responses with the gateway's own checks.
//
// It only reads, unless [Options.Write] is set. Findings have types and names of the definition, and no values of the service's records,
// unless [Options.ShowValues] is set.
package conform

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition/reference"
)

// DefaultTimeout is the default of Options.Timeout.
const DefaultTimeout = 10 * time.Second

// Options configure a [Run].
type Options struct {
	// Definition is the definition of the API. Required.
	Definition *definition.Definition

	// URL is the service's scheme, host and port. Its path must be empty, because the definition has the path of requests. Required.
	URL string

	// A and B are businesses of which the service has records. A is required. Default of B: none, and businesses are not compared.
	A, B string

	// Asserter configures the assertions of requests. Default: it has no keys, and requests have no assertion.
	Asserter upstream.AsserterOptions

	// KeysAfter is how long it may take until the service knows the keys. If the service rejects a right assertion, Run waits for this time, once,
	// and sends the request again. Default: 0, which means that the service knows them.
	KeysAfter time.Duration

	// Header are headers of every request, such as a service's password; those that the gateway sets, except Content-Type,
	// stay as they are. Default: none.
	Header http.Header

	// Write lets requests create, change and delete records. Only records that were created are changed and deleted. Operations with which tools
	// write to people are never called.
	Write bool

	// ShowValues adds excerpts of wrong values to the findings.
	ShowValues bool

	// Rate is the maximum number of requests a second. Default: 0, which means no limit.
	Rate float64

	// Timeout is the timeout of a request. Default: 10s. Zero means the default.
	Timeout time.Duration

	// Seed chooses among records, pages and values. The same seed makes the same requests of the same records.
	Seed uint64

	// TLS is the configuration of connections to an https URL. Default: that of crypto/tls.
	TLS *tls.Config

	// Progress is called before each request with the number of requests before it and the ID of the operation. Default: none.
	Progress func(requests int, operation string)
}

// run is the state of one Run.
type run struct {
	Options

	api        *upstream.API
	contract   upstream.Contract
	client     *upstream.Client
	host       string
	unknown    string // the ID of a business that does not exist
	wrong      []wrongAssertion
	asserter   *upstream.Asserter
	random     *rand.Rand
	examples   map[*upstream.Operation]reference.Request
	exchanges  map[string]*exchange            // exchanges of fetch, by business, operation, path parameters and query
	cursors    map[*upstream.Operation]request // A's request with a cursor
	created    []created
	common     []sharedRecord
	scoped     map[*upstream.Operation]bool // lists in which B did not get what A created
	raced      bool                         // requests of A and B were sent at once
	report     Report
	positions  map[string]int // of findings in the report
	mu         sync.Mutex
	limiter    *rate.Limiter // of requests
	operations []*upstream.Operation
}

// Run tests the service, and returns a report. An error means that no request could be made. When ctx is done, the report has what was found
// until then, and Interrupted is set.
func Run(ctx context.Context, o Options) (Report, error) {
	r := &run{
		Options: o, api: o.Definition.API, random: rand.New(rand.NewPCG(o.Seed, 0)), //nolint:gosec // G404: it chooses samples
		examples: map[*upstream.Operation]reference.Request{}, exchanges: map[string]*exchange{}, positions: map[string]int{},
		cursors: map[*upstream.Operation]request{}, scoped: map[*upstream.Operation]bool{},
		report: Report{Faults: []Finding{}, Hints: []Finding{}, Skipped: []string{}},
	}
	r.Timeout = cmp.Or(r.Timeout, DefaultTimeout)
	if r.limiter = rate.NewLimiter(rate.Inf, 1); r.Rate > 0 {
		r.limiter.SetLimit(rate.Limit(r.Rate))
	}
	if err := r.prepare(ctx); err != nil {
		return r.report, err
	}
	defer r.client.Close()
	for _, op := range r.operations {
		switch {
		case ctx.Err() != nil:
		case o.Definition.Marks[op.ID].People:
			r.skip(op, "it writes to people")
		case op.Read:
			r.probeRead(ctx, op)
		case !o.Write:
			r.skip(op, "it writes, and --write is not given")
		case op.Method == http.MethodPost:
			r.probeCreate(ctx, op)
		default:
			r.probeChange(ctx, op)
		}
	}
	r.reportCommon()
	r.report.Interrupted = ctx.Err() != nil
	return r.report, nil
}

// prepare checks the options and connects to the service once.
func (r *run) prepare(ctx context.Context) error {
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return fmt.Errorf("invalid URL of the service: must be http:// or https://, a host and a port; the path of requests, %s/…, is that of the definition", r.api.Base())
	}
	if r.A == "" || r.A == r.B {
		return errors.New("invalid businesses: A is required, and B must be another one")
	}
	r.host = u.Host
	r.unknown, _ = r.invent(r.A, func(id string) bool { return id != r.B })
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	r.client = &upstream.Client{Dial: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{Timeout: r.Timeout}).DialContext(ctx, "tcp", address)
	}}
	if u.Scheme == "https" {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if r.TLS != nil {
			config = r.TLS.Clone()
		}
		config.ServerName = cmp.Or(config.ServerName, u.Hostname())
		r.client.TLS = func(context.Context) *tls.Config { return config }
	}
	conn, err := r.client.Dial(ctx)
	if err != nil {
		return fmt.Errorf("connecting to the service: %w", err)
	}
	_ = conn.Close()
	for _, op := range r.api.Operations() {
		if !op.ByGateway {
			r.operations = append(r.operations, op)
		}
	}
	slices.SortStableFunc(r.operations, func(a, b *upstream.Operation) int { return cmp.Compare(r.probeOrder(a), r.probeOrder(b)) })
	r.report.Operations = len(r.operations)
	if r.B == "" {
		r.report.Skipped = append(r.report.Skipped, "isolation: it needs a second business, --business B=ID")
	}
	if err := r.prepareAssertions(); err != nil {
		return err
	}
	published, err := r.Definition.PublishedDocument(definition.PublishOptions{})
	if err != nil {
		return fmt.Errorf("publishing the definition: %w", err)
	}
	for _, request := range reference.Requests(published) {
		if m, ok := r.api.Match(request.Target); ok {
			op := m.Path.Operation(request.Method)
			r.examples[op] = request
			for _, label := range []string{"A", "B"} { // the ID of a business may not be possible in the service's path, for instance
				q, err := op.CleanQuery(m)
				call := upstream.NewCall(&http.Request{Host: r.host}, op, q, r.business(op, label), "conform")
				if _, failed := call.NewRequest(ctx, ""); failed != nil && err == nil && (label == "A" || r.B != "") {
					return fmt.Errorf("invalid business %s: %w", label, failed)
				}
			}
		}
	}
	return nil
}

// probeOrder returns when an operation has its turn: reads first, then what creates and changes records, actions, which may end changes, and deletions.
func (r *run) probeOrder(op *upstream.Operation) int {
	switch {
	case op.Read:
		return -1
	case r.isAction(op):
		return 3
	}
	return slices.Index([]string{http.MethodPost, http.MethodPut, http.MethodPatch, "", http.MethodDelete}, op.Method)
}

// isAction reports whether an operation is a POST below a record that adds nothing to a list, and so may change the record.
func (r *run) isAction(op *upstream.Operation) bool {
	list := r.listAt(op.Path)
	return op.Method == http.MethodPost && !op.Read && len(idParams(op)) > 0 && (list == nil || !isList(list))
}

// claims are those of an assertion, besides its issuer and times.
type claims struct{ audience, operation, business, request string }

// wrongAssertion is an assertion that a service must reject.
type wrongAssertion struct {
	what   string
	by     *upstream.Asserter        // default: that of right assertions
	claims func(*claims)             // changes them
	token  func(token string) string // changes it
}

// prepareAssertions prepares what makes right and wrong assertions.
func (r *run) prepareAssertions() (err error) {
	if len(r.Asserter.Keys) == 0 {
		r.report.Skipped = append(r.report.Skipped, "assertions: they need a key, --serve-keys or --assertion-key")
		return nil
	}
	const other = "gatehouse-conform"
	o := r.Asserter
	o.Audiences = append(r.api.Resources(true), other)
	newAsserter := func(change func(*upstream.AsserterOptions)) *upstream.Asserter {
		own := o
		change(&own)
		a, failed := upstream.NewAsserter(own)
		err = cmp.Or(err, failed)
		return a
	}
	at := func(offset time.Duration) *upstream.Asserter {
		return newAsserter(func(o *upstream.AsserterOptions) { o.Now = func() time.Time { return time.Now().Add(offset) } })
	}
	_, unknownKey, err := ed25519.GenerateKey(nil)
	der, _ := x509.MarshalPKIXPublicKey(o.Keys[0].Public()) // it cannot fail for a key of this type
	public := der[len(der)-ed25519.PublicKeySize:]
	secrets := [][]byte{public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), []byte(base64.RawURLEncoding.EncodeToString(public))}
	sign := func(signed string) []byte { return ed25519.Sign(o.Keys[0], []byte(signed)) }
	var operations []string
	for _, op := range r.operations {
		operations = append(operations, op.ID)
	}
	another := func(all []string, own string) string { // of the same service, if possible
		return slices.DeleteFunc(append(slices.Clone(all), other), func(one string) bool { return one == own })[0]
	}
	n := 0 // forms of one mistake take turns, from the second one, the most likely
	r.asserter = newAsserter(func(*upstream.AsserterOptions) {})
	r.wrong = []wrongAssertion{
		{what: "that is missing", token: func(string) string { return "" }},
		{what: "with a forged signature", token: forge},
		{what: "without a signature", token: func(token string) string { return token[:strings.LastIndexByte(token, '.')+1] }},
		{what: "with the algorithm none", token: func(token string) string {
			n++
			return rewrite(token, "EdDSA", []string{"nOnE", "none", "None"}[n%3], func(string) []byte { return nil })
		}},
		{what: "with the algorithm HS256 and the public key", token: func(token string) string {
			return rewrite(token, "EdDSA", "HS256", func(signed string) []byte {
				mac := hmac.New(sha256.New, secrets[n%3])
				_, _ = mac.Write([]byte(signed))
				return mac.Sum(nil)
			})
		}},
		{what: "of another type", token: func(token string) string { return rewrite(token, `"typ":"[^"]+"`, `"typ":"JWT"`, sign) }},
		{what: "that is valid for more than 60 seconds", token: func(token string) string { return rewrite(token, `"iat":[0-9]+`, `"iat":1000000000`, sign) }},
		{what: "of an unknown key", by: newAsserter(func(o *upstream.AsserterOptions) { o.Keys = []ed25519.PrivateKey{unknownKey} })},
		{what: "that has expired", by: at(-70 * time.Second)}, // it ended 40 seconds ago
		{what: "that is not valid yet", by: at(40 * time.Second)},
		{what: "of another issuer", by: newAsserter(func(o *upstream.AsserterOptions) { o.Issuer = other })},
		{what: "for another audience", claims: func(c *claims) { c.audience = another(r.api.Resources(true), c.audience) }},
		{what: "for another business", claims: func(c *claims) { c.business = other }},
		{what: "for another request", claims: func(c *claims) { c.request = other }},
	}
	if slices.ContainsFunc(r.operations, func(op *upstream.Operation) bool { return !op.Read }) { // otherwise, the operation does not matter
		r.wrong = append(r.wrong,
			wrongAssertion{what: "for no operation", claims: func(c *claims) { c.operation = "" }},
			wrongAssertion{what: "for another operation", claims: func(c *claims) { c.operation = another(operations, c.operation) }})
	}
	if err != nil {
		return fmt.Errorf("preparing assertions: %w", err)
	}
	return nil
}

// forge changes the signature of an assertion.
func forge(token string) string {
	i := strings.LastIndexByte(token, '.') + 1
	return token[:i] + map[bool]string{true: "B", false: "A"}[token[i] == 'A'] + token[i+1:]
}

// rewrite returns an assertion with another text in its header and claims, and another signature.
func rewrite(token, pattern, text string, sign func(signed string) []byte) string {
	b64, parts := base64.RawURLEncoding, strings.Split(token, ".")
	for i := range 2 {
		part, _ := b64.DecodeString(parts[i])
		parts[i] = b64.EncodeToString(regexp.MustCompile(pattern).ReplaceAll(part, []byte(text)))
	}
	signed := parts[0] + "." + parts[1]
	return signed + "." + b64.EncodeToString(sign(signed))
}

const noRequest = "no request could be made: give the document a valid example of its parameters and its body"

// skip reports what could not be tested.
func (r *run) skip(op *upstream.Operation, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text := op.ID + ": " + why; !slices.Contains(r.report.Skipped, text) {
		r.report.Skipped = append(r.report.Skipped, text)
	}
}
