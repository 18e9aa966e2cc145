package check

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Service is a data service.
type Service struct {
	// Operations are those that it serves and that need no parameters: of an API, or of the tools of gatehouse_connect.
	Operations []*upstream.Operation

	// Contract checks the responses for Operations.
	Contract *upstream.Contract

	// Asserted reports whether calls have a hop assertion.
	Asserted bool

	// Sample is a path of an API that it serves, for a service without Operations: each requires a parameter, or writes.
	Sample string

	// MaxResponse is the maximum size of a response in bytes.
	MaxResponse int64

	// Addresses returns the addresses of the service: host and port, or the path of a socket.
	Addresses func(context.Context) ([]string, error)

	// Do makes a call to one address, with or without a hop assertion.
	Do func(ctx context.Context, address string, call upstream.Call, asserted bool) (*upstream.Response, error)
}

const (
	// checkAccount is the account for which the data service of gatehouse_connect is asked. It does not exist.
	checkAccount = "gatehouse-check"

	// noBusiness is the business of operations that anyone may call.
	noBusiness = "-"

	// maxProbes is the number of requests to data services at a time.
	maxProbes = 16
)

// call is a request that the gateway sends to a data service, and its check of the response.
type call struct {
	path    string
	public  bool          // callers are not known, so it is for no business
	timeout time.Duration // zero: that of the handler
	send    func(context.Context, *probe) error
}

// operationCall returns the request for an operation: the first page of a list. A 4xx is an error, documented or not.
func operationCall(op *upstream.Operation, contract *upstream.Contract) call {
	return call{path: op.Path, public: op.Public, send: func(ctx context.Context, p *probe) error {
		query, err := op.CleanQuery(upstream.Match{})
		if err != nil {
			return fmt.Errorf("preparing the query: %w", err)
		}
		response, err := p.do(ctx, upstream.NewCall(&http.Request{Host: p.host}, op, query, p.business, uuid.NewString()))
		if err != nil {
			return err
		}
		defer response.Release()
		documented, err := op.CheckHeader(response.Status, response.Header, false)
		if err == nil && response.Status/100 == 4 {
			err = &upstream.StatusError{Status: response.Status}
		}
		if err != nil || documented.Body == nil {
			return err
		}
		report, err := contract.Check(new(bytes.Buffer), op, documented, query, p.business, response.Body)
		if err == nil && report.CrossTenant > 0 { // removed from a list in which not all records may be seen
			err = &upstream.ContractError{Kind: upstream.ErrCrossTenantRecord, Resource: op.Resource, Record: -1}
		}
		return err
	}}
}

// connectCalls returns the calls of gatehouse_connect: that for an account, and those of its tools that read and need no arguments. An
// error that says that the account does not exist is a valid response.
func connectCalls(operations []*upstream.Operation) []call {
	calls := []call{{path: "/connect/v1/accounts/" + checkAccount, send: func(ctx context.Context, p *probe) error {
		client, err := account.NewClient(data.Options{Host: p.host, Do: p.do, Timeout: probeTimeout, Log: zap.NewNop()})
		if err != nil {
			return fmt.Errorf("creating a client: %w", err)
		}
		ctx, _ = requestlog.With(ctx, uuid.NewString())
		if _, err = client.Account(ctx, checkAccount); errors.Is(err, account.ErrUnknown) {
			return nil
		}
		return err
	}}}
	for _, op := range operations {
		calls = append(calls, call{path: op.Path, send: func(ctx context.Context, p *probe) error {
			client, err := data.New(data.Options{Host: p.host, Do: p.do, Timeout: probeTimeout, Log: zap.NewNop()})
			if err != nil {
				return fmt.Errorf("creating a client: %w", err)
			}
			by := data.Caller{BusinessID: p.business, AccountID: checkAccount, RequestID: uuid.NewString()}
			unknown := data.ErrForbidden
			if p.service.Asserted && !p.asserted {
				unknown = data.ErrNoAccount // other codes may be about the assertion
			}
			if _, err = client.Call(ctx, by, data.Request{Operation: op}); errors.Is(err, unknown) {
				return nil
			}
			return err
		}})
	}
	return calls
}

// connection is for a data service of which no operation can be called: whether it responds, whatever it responds to this GET.
func connection(path string) call {
	return call{path: path, public: true, send: func(ctx context.Context, p *probe) error {
		response, err := p.do(ctx, upstream.Call{BusinessID: noBusiness, RequestID: uuid.NewString(), Method: http.MethodGet, Host: p.host, Path: path})
		if err != nil {
			return err
		}
		response.Release()
		return nil
	}}
}

// healthCall returns the request of an active health check. Every response is returned as an error, except for those that it expects.
func healthCall(active *reverseproxy.ActiveHealthChecks) call {
	const defaultTimeout = 5 * time.Second // of Caddy
	return call{path: active.URI, timeout: cmp.Or(time.Duration(active.Timeout), defaultTimeout), send: func(ctx context.Context, p *probe) error {
		repl := caddy.NewReplacer()
		repl.Set("http.reverse_proxy.active.target_upstream", p.address)
		header := http.Header{"Host": {p.address}}
		if strings.HasPrefix(p.address, "/") {
			header.Set("Host", "localhost")
		}
		for name, values := range active.Headers {
			header.Del(name)
			for _, value := range values {
				header.Add(name, repl.ReplaceKnown(value, ""))
			}
		}
		c := upstream.Call{
			BusinessID: noBusiness, RequestID: uuid.NewString(), Method: cmp.Or(active.Method, http.MethodGet), Host: header.Get("Host"),
			Header: header, BodyType: header.Get("Content-Type"),
		}
		header.Del("Host")
		c.Path, c.Query, _ = strings.Cut(active.URI, "?")
		if active.Body != "" {
			c.Body = []byte(repl.ReplaceKnown(active.Body, ""))
		}
		response, err := p.do(ctx, c)
		if err != nil {
			return err
		}
		defer response.Release()
		if !caddyhttp.StatusCodeMatches(response.Status, cmp.Or(active.ExpectStatus, 2)) {
			return fmt.Errorf("status %d", response.Status)
		}
		if matches, err := regexp.Match(active.ExpectBody, response.Body); err == nil && !matches {
			return errors.New("the body does not match health_body")
		}
		return nil
	}}
}

// probe sends a call to one address of a data service, as the gateway does.
type probe struct {
	call

	service  Service
	address  string
	host     string
	business string
	asserted bool // with a hop assertion

	sent    bool
	status  int   // of the response; 0: there was none
	failure error // why there was none
	err     error // the failure, or what the gateway rejects about the response
}

// run makes the call. One that fails because all probes must end has not been sent, unless it has had most of the time for them.
func (p *probe) run(all context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(all, timeout)
	defer cancel()
	began := time.Now()
	p.err = p.send(ctx, p)
	if p.sent = p.err == nil || all.Err() == nil || time.Since(began) >= min(timeout, probeTimeout/2); !p.sent {
		p.status, p.failure, p.err = 0, nil, nil
	} else if p.err != nil && p.status == 0 {
		p.failure = cmp.Or(p.failure, p.err)
	}
}

// do makes a call to the address.
func (p *probe) do(ctx context.Context, c upstream.Call) (*upstream.Response, error) {
	c.Deadline, _ = ctx.Deadline()
	c.MaxResponse = p.service.MaxResponse
	response, err := p.service.Do(ctx, p.address, c, p.asserted)
	if err != nil {
		p.failure = err
		return nil, err
	}
	p.status = response.Status
	return response, nil
}

// address is one address of a data service, and what is sent to it.
type address struct {
	*serviceConfig

	at         string // the pointer
	name       string
	asserts    bool // an assertion is configured
	own        bool // the definition is not that of the public contract
	calls      []*probe
	unasserted []*probe // the calls without an assertion, if one is configured
	health     *probe   // nil: no health_uri
}

// probes returns all that is sent.
func (a *address) probes() []*probe {
	all := slices.Concat(a.calls, a.unasserted)
	if a.health != nil {
		all = append(all, a.health)
	}
	return all
}

// probeDataServices makes all calls to each address of each data service: with a hop assertion if one is configured, and then
// without. It also asks for the health_uri.
func (l *liveChecker) probeDataServices(ctx context.Context) {
	var (
		addresses []*address
		running   sync.WaitGroup
		slots     = make(chan struct{}, maxProbes)
	)
	for i, services := range l.Services {
		h := l.handlers[i]
		for j, service := range services {
			for _, a := range l.addresses(ctx, h, h.upstreams[j], service) {
				addresses = append(addresses, a)
				for _, p := range a.probes() {
					running.Go(func() {
						select {
						case slots <- struct{}{}:
							defer func() { <-slots }()
							p.run(ctx, cmp.Or(p.timeout, h.timeout))
						case <-ctx.Done():
						}
					})
				}
			}
		}
	}
	running.Wait()
	for _, a := range addresses {
		l.reportCalls(a)
	}
}

// addresses returns the addresses of a data service.
func (l *liveChecker) addresses(ctx context.Context, h *handlerConfig, u *serviceConfig, service Service) (all []*address) {
	var calls []call
	if h.connect != nil {
		calls = connectCalls(service.Operations)
	} else {
		for _, op := range service.Operations {
			calls = append(calls, operationCall(op, service.Contract))
		}
	}
	asserts := service.Asserted && calls != nil
	uncalled := calls == nil && service.Sample != ""
	if uncalled {
		calls = []call{connection(service.Sample)}
	}
	common := probe{service: service, host: h.probeHost(), business: cmp.Or(l.business, DefaultBusiness)}
	addresses, err := service.Addresses(ctx)
	if err != nil {
		l.report("GH050", u.pointer, "the addresses of the data service are not known: %v", err)
		return nil
	}
	for i, name := range addresses {
		a := &address{serviceConfig: u, at: fmt.Sprintf("%s/upstreams/%d", u.pointer, i), name: name, asserts: asserts, own: h.api != nil && h.api.Definition.File != ""}
		common.address = name
		if uncalled {
			l.skip("responses of the data service at "+name, "each operation, such as %s, requires a parameter, or writes", service.Sample)
		}
		for _, c := range calls {
			p := common
			p.call = c
			if c.public {
				p.business = noBusiness
			}
			if a.asserts {
				without := p
				a.unasserted = append(a.unasserted, &without)
				p.asserted = true
			}
			a.calls = append(a.calls, &p)
		}
		switch active := u.HealthChecks.Active; {
		case active == nil, !strings.HasPrefix(active.URI, "/"): // without a path, other rules have findings
		case active.Port != 0 || active.Upstream != "" || active.FollowRedirects:
			l.skip("health_uri "+active.URI+" of the data service at "+a.name, "it is on another port or address, or may be a redirect to one")
		default:
			p := common
			p.call = healthCall(active)
			a.health = &p
		}
		all = append(all, a)
	}
	return all
}

// reportCalls reports what is wrong with the responses from an address. Paths with the same mistake are one finding.
func (l *liveChecker) reportCalls(a *address) {
	if unsent := pathsOf(a.probes(), func(p *probe) bool { return !p.sent }); unsent != "" {
		l.skip(unsent+" of the data service at "+a.name, "the probes before took too long")
	}
	failed := func(p *probe) bool { return p.failure != nil }
	if i := slices.IndexFunc(a.calls, failed); i >= 0 {
		paths := ""
		if slices.ContainsFunc(a.calls, func(p *probe) bool { return !failed(p) }) {
			paths = " for " + pathsOf(a.calls, failed)
		}
		l.report("GH050", a.at, "requests to the data service at %s%s fail: %v", a.name, paths, a.calls[i].failure)
	}
	if l.business == "" {
		l.acceptUnknownBusiness(a)
	}
	l.acceptDocumented(a)
	for _, p := range a.calls {
		if p.err != nil && p.status/100 == 2 && p.failure == nil {
			l.report("GH053", a.at, "the response of the data service at %s to %s is invalid: %v", a.name, p.path, p.err)
		}
	}
	rejected := func(p *probe) bool { return p.err != nil && p.failure == nil && p.status/100 != 2 }
	for status, business := range rejections(a.calls, rejected) {
		paths := pathsOf(a.calls, func(p *probe) bool { return rejected(p) && p.status == status && p.business == business })
		switch {
		case status == http.StatusUnauthorized && a.asserts:
			l.report("GH052", a.at, "the data service at %s rejects the assertion: it responds with 401 to %s", a.name, paths)
		case status == http.StatusUnauthorized:
			l.report("GH052", a.at, "the data service at %s responds with 401 to %s, and no assertion is configured", a.name, paths)
		case status >= http.StatusInternalServerError:
			l.report("GH050", a.at, "the data service at %s responds with %d to %s for the business %s", a.name, status, paths, business)
		default:
			l.report("GH053", a.at, "the data service at %s responds with %d to %s for the business %s", a.name, status, paths, business)
		}
	}
	served := func(p *probe) bool { return p.sent && (p.err == nil || p.status/100 == 2) }
	if paths := pathsOf(a.unasserted, served); paths != "" {
		l.report("GH051", a.at, "the data service at %s responds to requests without an assertion: %s", a.name, paths)
	}
	if paths := pathsOf(a.unasserted, failed); paths != "" && !slices.ContainsFunc(a.calls, failed) {
		l.skip("whether the data service at "+a.name+" requires an assertion for "+paths, "it does not respond without one")
	}
	if h := a.health; h != nil && h.err != nil {
		l.report("GH050", a.pointer+"/health_checks/active/uri", "the data service at %s, asked for health_uri %s: %v", a.name, h.path, h.err)
	}
}

// acceptUnknownBusiness accepts responses of a data service that does not know the business. Of the public contract, it responds with empty
// lists, so only 404 or 403 for the business itself are accepted, unless it responds to other paths like this, too. For another API, a data
// service may reject every call.
func (l *liveChecker) acceptUnknownBusiness(a *address) {
	const why = "it responds with %d to the business %s, which it need not know: name one that it knows with --business"
	if a.own {
		l.leaveOut(a, func(p *probe) bool {
			return !p.public && p.err != nil && p.status/100 == 4 && p.status != http.StatusUnauthorized && p.status != http.StatusProxyAuthRequired
		}, why)
		return
	}
	if len(a.calls) == 0 {
		return
	}
	var single []string // operations whose response is one record
	for _, op := range a.calls[0].service.Operations {
		if !slices.ContainsFunc(op.Responses, func(r upstream.DocumentedResponse) bool { return r.Records == nil || r.IsList() }) {
			single = append(single, op.Path)
		}
	}
	absent := func(p *probe) bool {
		return p.err != nil && (p.status == http.StatusNotFound || p.status == http.StatusForbidden)
	}
	if single != nil && pathsOf(a.calls, absent) == strings.Join(single, ", ") {
		l.leaveOut(a, absent, why)
	}
}

// acceptDocumented accepts a 4xx that the definition documents, such as 403 for what the business has not booked, if the data service serves
// anything. One that serves nothing is another service.
func (l *liveChecker) acceptDocumented(a *address) {
	if slices.ContainsFunc(a.calls, func(p *probe) bool { return p.status/100 == 2 }) {
		l.leaveOut(a, func(p *probe) bool {
			_, documented := errors.AsType[*upstream.StatusError](p.err)
			return documented
		}, "it responds with %d to the business %s, which the definition documents")
	}
}

// leaveOut lists calls as not checked. why has a verb for the status, and one for the business.
func (l *liveChecker) leaveOut(a *address, match func(*probe) bool, why string) {
	for status, business := range rejections(a.calls, match) {
		l.skip(pathsOf(a.calls, func(p *probe) bool { return match(p) && p.status == status && p.business == business })+" of the data service at "+a.name, why, status, business)
	}
	a.calls = slices.DeleteFunc(slices.Clone(a.calls), match)
}

// rejections returns the statuses of probes that match, and for which business.
func rejections(probes []*probe, match func(*probe) bool) iter.Seq2[int, string] {
	type rejection struct {
		status   int
		business string
	}
	return func(yield func(int, string) bool) {
		var seen []rejection
		for _, p := range probes {
			if r := (rejection{p.status, p.business}); match(p) && !slices.Contains(seen, r) {
				seen = append(seen, r)
				if !yield(r.status, r.business) {
					return
				}
			}
		}
	}
}

// pathsOf returns the paths of the probes that match.
func pathsOf(probes []*probe, match func(*probe) bool) string {
	var paths []string
	for _, p := range probes {
		if match(p) && !slices.Contains(paths, p.path) {
			paths = append(paths, p.path)
		}
	}
	return strings.Join(paths, ", ")
}

// probeHost returns the host that clients of a handler name.
func (h *handlerConfig) probeHost() string {
	if h.connect != nil {
		if issuer, err := url.Parse(caddy.NewReplacer().ReplaceAll(h.connect.Issuer, "")); err == nil && issuer.Host != "" {
			return issuer.Host
		}
	}
	for _, host := range h.Hosts {
		if host != "" && !strings.Contains(host, "{") {
			return strings.ReplaceAll(host, "*", "gatehouse")
		}
	}
	return "gatehouse.invalid"
}
