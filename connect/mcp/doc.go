// Package mcp is the connection server's Model Context Protocol side: the tools with which an assistant works in a
// business's account, over streamable HTTP, for the revisions 2026-07-28 and 2025-11-25 (and the ones before it that
// clients still speak) on one endpoint.
//
// The protocol is the official SDK's, but for ordinary calls of tools, which are answered without it (for their speed, see
// direct.go). Beside that, what is here is what a call has to pass before it reaches the data service (host and
// origin, the connection's scopes, its rate, the account behind it, the arguments' schema), what an answer has to meet before
// it reaches an assistant, and the tools themselves.
package mcp
