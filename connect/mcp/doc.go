// Package mcp is an MCP server whose tools let an assistant work in a business's account. It serves revision 2026-07-28 and
// the older revisions that clients still use on one Streamable HTTP endpoint, without sessions.
//
// Tool calls are served by this package and all other methods by the official SDK; docs/design/0002-tool-calls.md says why. A
// tool call passes the origin check, the connection's scopes and rate limit, the account check and the input schema before it
// reaches the data service. The result must match the output schema before it reaches the assistant.
package mcp
