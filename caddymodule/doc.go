// Package caddymodule provides Gatehouse's Caddy modules: the app "gatehouse", HTTP handlers, Caddyfile directives, admin
// routes and metrics. It configures the libraries authsigner, ratelimit, upstream and connect, which do not know Caddy. Package cli
// below it has the commands.
//
// Every handler embeds frontDoor, which implements ServeHTTP and applies the same protections to all routes. The handler
// itself implements route: it matches requests to operations, and each operation declares its body limit and error format.
//
// [API] serves the signed API; its handle method lists the steps of a request. Package dataservice is the one way to
// data services; they are configured with the options of Caddy's reverse_proxy.
package caddymodule
