package mcp

import (
	"bytes"
	"slices"

	"github.com/klauspost/compress/gzip"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// declaration is a tool in tools/list (MCP, server/tools).
type declaration struct {
	Name         string          `json:"name"`
	Title        string          `json:"title"`
	Description  string          `json:"description"`
	InputSchema  map[string]any  `json:"inputSchema"`
	OutputSchema map[string]any  `json:"outputSchema,omitzero"`
	Annotations  map[string]bool `json:"annotations"`
}

// maxLists is how many lists are cached, one for each listKey.
const maxLists = 64

type listKey struct {
	scopes     scope.Set
	structured bool // with output schemas: some clients reject results without structured content for tools that have one
}

// toolList returns the member "tools" of the result of tools/list: the tools that the scopes allow, in the order of the definition.
func (s *Server) toolList(key listKey) []byte {
	list, _ := s.lists.ComputeIfAbsent(key, func() (list []byte, cancel bool) {
		var allowed [][]byte
		for _, says := range s.o.Definition.Tools {
			if t := s.tools[says.Name]; t != nil && key.scopes.Allows(t.scope) {
				allowed = append(allowed, t.declared[key.structured])
			}
		}
		return slices.Concat([]byte(`"tools":[`), bytes.Join(allowed, []byte(",")), []byte("]")), false
	})
	return list
}

// gzipped returns data in gzip format (RFC 1952).
func gzipped(data []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.StatelessCompression) // a valid level, which allocates little
	_, _ = w.Write(data)                                         // to memory
	_ = w.Close()
	return out.Bytes()
}
