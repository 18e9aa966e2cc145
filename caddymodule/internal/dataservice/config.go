package dataservice

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Defaults of reverse_proxy's options that are not Caddy's.
const (
	// With several addresses, a failed GET is retried at another one, and a failed address is avoided for a while.
	defaultRetries      = 2
	defaultTryDuration  = 5 * time.Second
	defaultFailDuration = 10 * time.Second
)

// Parse parses the tokens of an upstream as a reverse_proxy handler and returns its JSON.
func Parse(h httpcaddyfile.Helper, tokens caddyfile.Segment) (json.RawMessage, error) {
	d := caddyfile.NewDispenser(tokens)
	proxy := new(reverseproxy.Handler)
	if err := proxy.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	if err := proxy.FinalizeUnmarshalCaddyfile(h.WithDispenser(d)); err != nil {
		return nil, err
	}
	if len(proxy.Upstreams) == 0 && proxy.DynamicUpstreamsRaw == nil {
		return nil, h.Err("upstream needs at least one address, such as http://data.internal:8080")
	}
	if err := checkOptions(proxy); err != nil {
		return nil, h.Errf("upstream: %v", err)
	}
	return caddyconfig.JSONModuleObject(proxy, "handler", "reverse_proxy", nil), nil
}

// checkOptions returns an error if the configuration of a reverse_proxy has an option that is not supported. Such options do not fit, because
// responses are buffered and checked before they are sent, data services are called directly and over HTTP/1.1, the gateway sets some
// headers itself, and a request that may have reached a data service is retried only if it is a GET. proxy need not be provisioned.
func checkOptions(proxy *reverseproxy.Handler) error {
	var (
		lb        reverseproxy.LoadBalancing
		protocol  struct{ Protocol string }
		transport reverseproxy.HTTPTransport
		policy    struct {
			Policy   string `json:"policy"`
			Fallback struct {
				Policy string `json:"policy"`
			} `json:"fallback"`
		}
	)
	if proxy.LoadBalancing != nil {
		lb = *proxy.LoadBalancing
	}
	if proxy.TransportRaw != nil {
		if err := json.Unmarshal(proxy.TransportRaw, &protocol); err != nil {
			return fmt.Errorf("reading the transport: %w", err)
		}
		if protocol.Protocol == "" || protocol.Protocol == "http" {
			if err := json.Unmarshal(proxy.TransportRaw, &transport); err != nil {
				return fmt.Errorf("reading the transport: %w", err)
			}
		}
	}
	if lb.SelectionPolicyRaw != nil {
		if err := json.Unmarshal(lb.SelectionPolicyRaw, &policy); err != nil {
			return fmt.Errorf("reading lb_policy: %w", err)
		}
	}
	fallback := policy.Fallback.Policy
	for _, o := range []struct {
		name  string
		isSet bool
	}{
		{"circuit_breaker", proxy.CBRaw != nil},
		{"flush_interval", proxy.FlushInterval != 0},
		{"request_buffers", proxy.RequestBuffers != 0},
		{"response_buffers", proxy.ResponseBuffers != 0},
		{"stream_timeout", proxy.StreamTimeout != 0},
		{"stream_close_delay", proxy.StreamCloseDelay != 0},
		{"stream_buffer_size", proxy.StreamBufferSize != 0},
		{"trusted_proxies", len(proxy.TrustedProxies) > 0},
		{"proxy_status_name", proxy.ProxyStatusName != ""},
		{"verbose_logs", proxy.VerboseLogs},
		{"method or rewrite", proxy.Rewrite != nil},
		{"handle_response or replace_status", len(proxy.HandleResponse) > 0},
		{"header_down", proxy.Headers != nil && proxy.Headers.Response != nil},
		{"lb_retry_match", len(lb.RetryMatchRaw) > 0},
		{"lb_policy cookie", policy.Policy == "cookie" || fallback == "cookie"}, // cookies are not passed on
		{"the fallback " + fallback + " of lb_policy", fallback == "least_conn" || fallback == "random_choose" || fallback == "weighted_round_robin"},
		{"transport " + protocol.Protocol, protocol.Protocol != "" && protocol.Protocol != "http"},
		{"proxy_protocol", transport.ProxyProtocol != ""},
	} {
		if o.isSet {
			return fmt.Errorf("%s is not supported: %w", o.name, errUpstreamOption)
		}
	}
	for _, version := range transport.Versions {
		if version != "1.1" {
			return fmt.Errorf("versions %s is not supported: data services are called over HTTP/1.1 only", version)
		}
	}
	if transport.NetworkProxyRaw != nil || transport.ForwardProxyURL != "" {
		return errors.New("a forward proxy is not supported: data services are called directly")
	}
	if name := protectedHeaderOp(proxy); name != "" {
		return fmt.Errorf("header_up %s is not allowed: only the gateway may set identity headers, and signatures are not forwarded", name)
	}
	if ops, err := json.Marshal(proxy.Headers); err != nil || strings.Contains(string(ops), "{http.request.body") {
		return errors.New("header_up must not have {http.request.body}: the gateway reads the body itself, and concurrent calls would replace it")
	}
	if transport.TLS != nil && transport.TLS.ServerName != upstreamHost { // which is the default
		if err := checkPlaceholders("tls_server_name", transport.TLS.ServerName); err != nil {
			return err
		}
	}
	return checkAddresses(proxy)
}

const upstreamHost = "{http.reverse_proxy.upstream.host}"

var placeholder = regexp.MustCompile(`\{([^{}"\s]+)\}`) // but no JSON

// checkAddresses rejects addresses with placeholders that may depend on the request: a caller could choose where the request and its assertion are
// sent.
func checkAddresses(proxy *reverseproxy.Handler) error {
	for _, u := range proxy.Upstreams {
		if u == nil {
			return errNull
		}
		if err := checkPlaceholders("address", u.Dial); err != nil {
			return err
		}
	}
	return checkPlaceholders("address", string(proxy.DynamicUpstreamsRaw))
}

// checkPlaceholders rejects placeholders other than those of the process: they can have values of the request under any name, by map and vars.
func checkPlaceholders(what, value string) error {
	for _, found := range placeholder.FindAllStringSubmatch(value, -1) {
		kind, _, _ := strings.Cut(found[1], ".")
		if kind != "env" && kind != "file" && kind != "system" {
			return fmt.Errorf("invalid %s %s: placeholders must be {env.*}, {file.*} or {system.*}, because a caller could choose the value of others", what, value)
		}
	}
	return nil
}

var errNull = errors.New("a handler or an upstream of it must not be null")

var errUpstreamOption = errors.New("must be one of reverse_proxy's options for addresses, lb_policy, retries, " +
	"health checks, header_up or transport http")

// protectedHeaderOp returns the name of a header that header_up changes and only the gateway may set, or "".
func protectedHeaderOp(proxy *reverseproxy.Handler) string {
	if proxy.Headers == nil || proxy.Headers.Request == nil {
		return ""
	}
	gatewayOnly := []string{
		upstream.HeaderBusinessID, upstream.HeaderRequestID, upstream.HeaderAssertion,
		authsigner.HeaderPublicKey, authsigner.HeaderTimestamp, authsigner.HeaderSignature,
		data.HeaderAccountID, data.HeaderIdempotencyKey, data.HeaderIfMatch,
	}
	ops := proxy.Headers.Request
	touched := slices.Concat(ops.Delete, slices.Collect(maps.Keys(ops.Set)), slices.Collect(maps.Keys(ops.Add)),
		slices.Collect(maps.Keys(ops.Replace)))
	for _, name := range touched {
		if slices.Contains(gatewayOnly, http.CanonicalHeaderKey(name)) || strings.ContainsAny(name, "*{") {
			return name
		}
	}
	return ""
}

// connectionSettings are settings of the transport and of passive checks that hold for calls only. withDefaults takes them away from
// Caddy, whose transport dials the connections of calls and makes active health checks: net/http logs what it finds on idle
// connections, and Caddy's read and write timeouts would extend a call's deadline with each read and write.
type connectionSettings struct {
	maxFails                  int64 // of the calls to an address, at which passive health checks rule it out
	reuse                     bool
	readTimeout, writeTimeout time.Duration
}

// settingsOf returns the connection settings in a handler's configuration.
func settingsOf(proxy *reverseproxy.Handler) (connectionSettings, error) {
	var transport reverseproxy.HTTPTransport
	if proxy.TransportRaw != nil {
		if err := json.Unmarshal(proxy.TransportRaw, &transport); err != nil {
			return connectionSettings{}, fmt.Errorf("reading the transport: %w", err)
		}
	}
	k, maxFails := transport.KeepAlive, int64(1) // Caddy's default
	if checks := proxy.HealthChecks; checks != nil && checks.Passive != nil && checks.Passive.MaxFails != 0 {
		maxFails = int64(checks.Passive.MaxFails)
	}
	return connectionSettings{
		maxFails:    maxFails,
		reuse:       k == nil || k.Enabled == nil || *k.Enabled,
		readTimeout: time.Duration(transport.ReadTimeout), writeTimeout: time.Duration(transport.WriteTimeout),
	}, nil
}

// withDefaults returns the configuration of a reverse_proxy handler with defaults for what it does not set, and without
// connectionSettings. Once the handler is loaded, health checks use its transport, and it must not be changed any more.
func withDefaults(raw json.RawMessage) (json.RawMessage, error) {
	var handler map[string]any
	if err := json.Unmarshal(raw, &handler); err != nil {
		return nil, fmt.Errorf("decoding the handler: %w", err)
	}
	if handler == nil {
		return nil, errNull
	}
	transport := objectIn(handler, "transport")
	setDefault(transport, "protocol", "http") // Caddy's default
	if transport["protocol"] == "http" {      // others are rejected
		// Active health checks use the transport, and must reach the addresses as calls do.
		setDefault(transport, "versions", []string{"1.1"})
		setDefault(transport, "network_proxy", map[string]any{"from": "none"}) // not even from the environment
		setDefault(transport, "max_response_header_size", upstream.DefaultMaxResponseHeader)
		keepAlive := objectIn(transport, "keep_alive")
		setDefault(keepAlive, "max_idle_conns_per_host", upstream.DefaultMaxIdleConns)
		keepAlive[spelling(keepAlive, "enabled")] = false
		delete(transport, spelling(transport, "read_timeout"))
		delete(transport, spelling(transport, "write_timeout"))
	}
	if addresses, _ := handler[spelling(handler, "upstreams")].([]any); len(addresses) > 1 || handler[spelling(handler, "dynamic_upstreams")] != nil {
		lb := objectIn(handler, "load_balancing")
		if lb[spelling(lb, "retries")] == nil && lb[spelling(lb, "try_duration")] == nil {
			setDefault(lb, "retries", defaultRetries)
			setDefault(lb, "try_duration", defaultTryDuration)
		}
		setDefault(objectIn(handler, "health_checks"), "passive", map[string]any{"fail_duration": defaultFailDuration})
	}
	if checks, ok := handler[spelling(handler, "health_checks")].(map[string]any); ok {
		if passive, ok := checks[spelling(checks, "passive")].(map[string]any); ok {
			passive[spelling(passive, "max_fails")] = math.MaxInt32 // Caddy counts the failures of an address for all handlers together
		}
	}
	encoded, err := json.Marshal(handler)
	if err != nil {
		return nil, fmt.Errorf("encoding the handler: %w", err)
	}
	return encoded, nil
}

// spelling returns the name of a member as the object spells it. Like encoding/json, it ignores case.
func spelling(object map[string]any, name string) string {
	for given := range object {
		if strings.EqualFold(given, name) {
			return given
		}
	}
	return name
}

// setDefault sets a member that an object does not have, or that is null.
func setDefault(object map[string]any, name string, value any) {
	if name = spelling(object, name); object[name] == nil {
		object[name] = value
	}
}

// objectIn returns a member that is an object, and adds it if necessary. If it is something else, loading the handler fails.
func objectIn(object map[string]any, name string) map[string]any {
	setDefault(object, name, map[string]any{})
	member, ok := object[spelling(object, name)].(map[string]any)
	if !ok {
		return map[string]any{}
	}
	return member
}
