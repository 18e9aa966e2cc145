//go:build conformance

package mcp

import (
	"github.com/go-redis/redis_rate/v10"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gatehouse-gateway/gatehouse/e2e/connect/conformance"
)

// addFixtures replaces the tools with the fixtures that the MCP conformance suite calls.
func (s *Server) addFixtures(o sdk.ServerOptions) {
	conformance.Options(&o)
	server := s.newSDKServer(o)
	conformance.Register(server)
	s.handler, s.allMethods = conformance.Handler(server), true
	s.rate = redis_rate.PerMinute(1000) // the suite sends more than a connection may
}
