//go:build conformance

package mcp

import (
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gatehouse-gateway/gatehouse/e2e/connect/conformance"
)

// addFixtures replaces the tools by what the MCP conformance suite calls.
func (s *Server) addFixtures(o sdk.ServerOptions) {
	conformance.Options(&o)
	server := s.newSDKServer(o)
	conformance.Register(server)
	s.handler, s.unsupported = conformance.Handler(server), nil
}
