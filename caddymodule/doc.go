// Package caddymodule is Gatehouse as Caddy sees it: the app "gatehouse", the HTTP handlers, the Caddyfile directives, the
// admin routes, the metrics and the sub-commands. It is the only package of the project that imports Caddy; what it adapts
// lives in authsigner, ratelimit, upstream and connect.
//
// Every handler embeds frontDoor, which is its ServeHTTP, and provides a route: which requests are for it, and for each
// endpoint how it is served, which body it reads and how its errors look. What protects one route so protects all.
//
// API is the signed API. Its serve method reads as the steps of one request. Data services are called by dataService, which
// takes its options from Caddy's reverse_proxy.
package caddymodule
