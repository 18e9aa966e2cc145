// Package mcp is an MCP server whose tools let AI assistants read and change a business's data. One Streamable HTTP endpoint
// serves revision 2026-07-28 and the older revisions that clients still use. It is stateless.
//
// The package serves tools/call itself and all other methods with the official SDK; docs/design/0002-tool-calls.md says why.
// Before a call is sent to the data service, the server checks its origin, scopes, rate limit, account and arguments. Before
// the result is sent to the assistant, it is checked against the output schema.
package mcp
