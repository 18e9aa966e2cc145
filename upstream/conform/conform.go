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
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
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

	// Header are headers of every request, such as a service's password; those that the gateway sets stay as they are. Default: none.
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
	wrong      []wrongAssertion
	asserter   *upstream.Asserter
	random     *rand.Rand
	examples   map[*upstream.Operation]reference.Request
	exchanges  map[string]*exchange            // exchanges of fetch, by business, operation, path parameters and query
	cursors    map[*upstream.Operation]request // A's request with a cursor
	created    []created
	common     []sharedRecord
	scoped     map[*upstream.Operation]bool // lists in which B did not get what A created
	writes     bool                         // the definition has operations that write
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
			r.writes = r.writes || !op.Read
		}
	}
	slices.SortStableFunc(r.operations, func(a, b *upstream.Operation) int { return cmp.Compare(probeOrder(a), probeOrder(b)) })
	r.report.Operations = len(r.operations)
	if r.B == "" {
		r.report.Skipped = append(r.report.Skipped, "isolation: it needs a second business, --business B=ID")
	}
	if err := r.prepareAssertions(); err != nil {
		return err
	}
	published, err := r.Definition.Published(definition.PublishOptions{})
	if err != nil {
		return fmt.Errorf("publishing the definition: %w", err)
	}
	requests, err := reference.Requests(published)
	if err != nil {
		return fmt.Errorf("making examples of requests: %w", err)
	}
	for _, request := range requests {
		if m, ok := r.api.Match(request.Target); ok {
			r.examples[m.Path.Operation(request.Method)] = request
		}
	}
	return nil
}

// probeOrder returns when an operation has its turn: reads first, then operations that create, change and delete records.
func probeOrder(op *upstream.Operation) int {
	if op.Read {
		return -1
	}
	return slices.Index([]string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, op.Method)
}

// wrongAssertion is an assertion that a service must reject.
type wrongAssertion struct {
	what string
	make func(op *upstream.Operation, business, requestID string) (string, error) // nil: there is no assertion
}

// prepareAssertions prepares what makes right and wrong assertions.
func (r *run) prepareAssertions() (err error) {
	if len(r.Asserter.Keys) == 0 {
		r.report.Skipped = append(r.report.Skipped, "assertions: they need a key, --assertion-key")
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
	_, unknownKey, err := ed25519.GenerateKey(nil)
	if err != nil {
		return fmt.Errorf("generating a key: %w", err)
	}
	r.asserter = newAsserter(func(*upstream.AsserterOptions) {})
	assertionBy := func(what string, change func(*upstream.AsserterOptions)) wrongAssertion {
		a := newAsserter(change)
		return wrongAssertion{what, func(op *upstream.Operation, business, id string) (string, error) {
			return a.Assert(op.Resource, op.ID, business, id)
		}}
	}
	r.wrong = []wrongAssertion{
		{"that is missing", nil},
		{"with a forged signature", func(op *upstream.Operation, business, id string) (string, error) {
			token, err := r.asserter.Assert(op.Resource, op.ID, business, id)
			return forge(token), err
		}},
		{"with the algorithm none", func(op *upstream.Operation, business, id string) (string, error) {
			token, err := r.asserter.Assert(op.Resource, op.ID, business, id)
			_, rest, _ := strings.Cut(token, ".")
			claims, _, _ := strings.Cut(rest, ".")
			return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"gatehouse-assertion+jwt"}`)) + "." + claims + ".", err
		}},
		assertionBy("of an unknown key", func(o *upstream.AsserterOptions) { o.Keys = []ed25519.PrivateKey{unknownKey} }),
		assertionBy("that has expired", func(o *upstream.AsserterOptions) {
			o.Now = func() time.Time { return time.Now().Add(-70 * time.Second) } // it ended 40 seconds ago
		}),
		assertionBy("that is not valid yet", func(o *upstream.AsserterOptions) {
			o.Now = func() time.Time { return time.Now().Add(40 * time.Second) }
		}),
		assertionBy("of another issuer", func(o *upstream.AsserterOptions) { o.Issuer = other }),
		{"for another audience", func(op *upstream.Operation, business, id string) (string, error) {
			audience := other
			for _, resource := range r.api.Resources(true) {
				if resource != op.Resource {
					audience = resource // of the same service, perhaps
				}
			}
			return r.asserter.Assert(audience, op.ID, business, id)
		}},
		{"for another business", func(op *upstream.Operation, _, id string) (string, error) {
			return r.asserter.Assert(op.Resource, op.ID, other, id)
		}},
		{"for another request", func(op *upstream.Operation, business, _ string) (string, error) {
			return r.asserter.Assert(op.Resource, op.ID, business, other)
		}},
		{noOperation, func(op *upstream.Operation, business, id string) (string, error) {
			return r.asserter.Assert(op.Resource, "", business, id)
		}},
		{otherOperation, func(op *upstream.Operation, business, id string) (string, error) {
			return r.asserter.Assert(op.Resource, other, business, id)
		}},
	}
	if err != nil {
		return fmt.Errorf("preparing assertions: %w", err)
	}
	return nil
}

const noOperation, otherOperation = "for no operation", "for another operation"

// forge changes the signature of an assertion.
func forge(token string) string {
	if i := strings.LastIndexByte(token, '.') + 1; i > 0 && i < len(token) {
		first := byte('A')
		if token[i] == first {
			first = 'B'
		}
		token = token[:i] + string(first) + token[i+1:]
	}
	return token
}

const noRequest = "no request could be made: give the document a valid example of its parameters and its body"

// skip reports what could not be tested.
func (r *run) skip(op *upstream.Operation, why string) {
	if text := op.ID + ": " + why; !slices.Contains(r.report.Skipped, text) {
		r.report.Skipped = append(r.report.Skipped, text)
	}
}
