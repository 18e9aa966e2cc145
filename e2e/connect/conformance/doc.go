// Package conformance holds what the MCP conformance suite (npm: @modelcontextprotocol/conformance) calls in a server:
// tools named test_*, prompts and resources that do nothing but show that the protocol's messages travel as they should.
// They belong to no business and read nothing. Only builds with the tag conformance import this package.
package conformance
