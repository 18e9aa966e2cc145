//go:build !conformance

package mcp

import sdk "github.com/modelcontextprotocol/go-sdk/mcp"

// addFixtures does nothing. Builds with the tag conformance add the fixtures that the MCP conformance suite calls.
func (*Server) addFixtures(sdk.ServerOptions) {}
