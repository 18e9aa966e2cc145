// Package mcp is an MCP server whose tools let AI assistants read and change a business's data. One Streamable HTTP endpoint
// serves revision 2026-07-28 and the older revisions that clients still use. It is stateless.
//
// [Server.Handler] gets requests that [Server.Guard] and then oauth.Server.Protect have let pass.
//
// # Tool calls
//
// The package serves tools/call itself and all other methods with the official SDK; docs/design/0002-tool-calls.md says why.
// The message of a call is parsed once, strictly, and every later step uses the arguments that were found then. Before a call is
// sent to the data service, it is counted against the rate limit of its connection, and its scope, arguments and account are
// checked. A change is in the audit log before it is made. Before the result is sent to the assistant, the data service's
// response is checked against the definition, as are responses of the API.
package mcp
