// Package caddymodule is Gatehouse as Caddy sees it: the app "gateway", the HTTP handlers of the signed API, the
// Caddyfile directives, the admin routes, the metrics and the sub-commands. It is the only package of the project
// that imports Caddy; what it adapts lives in authsigner, ratelimit and upstream.
//
// A request to the API passes four handlers in this order, and the directive gateway_api is the only way to write
// them in a Caddyfile, so that an unsafe order cannot be written by accident:
//
//	gateway_edge      gives the request its id, turns every error into the contract's JSON, logs and counts
//	gateway_caller    says who is calling and charges whose budget
//	gateway_resource  decides what is asked for, rewrites it, and holds the answer to the contract
//	reverse_proxy     Caddy's own, towards the data service
package caddymodule
