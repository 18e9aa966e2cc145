package mcp

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/flate"

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

// toolList is the member "tools" of the result of tools/list.
type toolList struct {
	plain    []byte
	deflated []byte // plain as DEFLATE blocks, none of which is marked as the last
}

// maxLists is how many lists are cached, one for each listKey.
const maxLists = 64

type listKey struct {
	scopes     scope.Set
	structured bool // with output schemas: some clients reject results without structured content for tools that have one
}

// toolList returns the tools that the scopes allow, in the order of the definition.
func (s *Server) toolList(key listKey) toolList {
	list, _ := s.lists.ComputeIfAbsent(key, func() (list toolList, cancel bool) {
		var allowed [][]byte
		for _, says := range s.o.Definition.Tools {
			if t := s.tools[says.Name]; t != nil && key.scopes.Allows(t.scope) {
				allowed = append(allowed, t.declared[key.structured])
			}
		}
		list.plain = slices.Concat([]byte(`"tools":[`), bytes.Join(allowed, []byte(",")), []byte("]"))
		var out bytes.Buffer
		w, _ := flate.NewWriter(&out, flate.BestCompression) // a valid level
		_, _ = w.Write(list.plain)                           // to memory
		_ = w.Flush()
		list.deflated = out.Bytes()
		return list, false
	})
	return list
}

// gzipped returns a response with the list in gzip format (RFC 1952). What is around the list differs each time.
func (l toolList) gzipped(before, after []byte) []byte {
	out := bytes.NewBufferString("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff")
	_ = flate.StatelessDeflate(out, before, false, nil) // to memory
	_, _ = out.Write(l.deflated)
	_ = flate.StatelessDeflate(out, after, true, nil)
	whole := slices.Concat(before, l.plain, after)
	sum := binary.LittleEndian.AppendUint32(out.Bytes(), crc32.ChecksumIEEE(whole))
	return binary.LittleEndian.AppendUint32(sum, uint32(len(whole))) //nolint:gosec // far less than 4 GiB
}
