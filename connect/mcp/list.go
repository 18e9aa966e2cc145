package mcp

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// declaration is a tool in tools/list (MCP, server/tools).
type declaration struct {
	Name         string          `json:"name"`
	Title        string          `json:"title"`
	Description  string          `json:"description"`
	InputSchema  map[string]any  `json:"inputSchema"`
	OutputSchema map[string]any  `json:"outputSchema"`
	Annotations  map[string]bool `json:"annotations"`
}

// toolList is the member "tools" of the result of tools/list.
type toolList struct {
	plain    []byte
	deflated []byte // plain as DEFLATE blocks, none of which is marked as the last
}

// maxLists is how many lists are cached, one for each set of scopes.
const maxLists = 64

// toolList returns the tools that the scopes allow, in the order of the definition.
func (s *Server) toolList(scopes scope.Set) toolList {
	list, _ := s.lists.ComputeIfAbsent(scopes, func() (list toolList, cancel bool) {
		var allowed [][]byte
		for _, says := range s.o.Definition.Tools {
			if t := s.tools[says.Name]; t != nil && scopes.Allows(t.scope) {
				allowed = append(allowed, t.declared)
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

// gzipped returns a response with the list in gzip format (RFC 1952). What is around the list differs each time and is stored, because
// it is too short to be worth compressing.
func (l toolList) gzipped(before, after []byte) []byte {
	out := slices.Concat([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"), stored(before, false), l.deflated, stored(after, true))
	sum := crc32.NewIEEE()
	for _, part := range [][]byte{before, l.plain, after} {
		_, _ = sum.Write(part)
	}
	out = binary.LittleEndian.AppendUint32(out, sum.Sum32())
	return binary.LittleEndian.AppendUint32(out, uint32(len(before)+len(l.plain)+len(after))) //nolint:gosec // far less than 4 GiB
}

// stored returns a DEFLATE block without compression (RFC 1951, section 3.2.4). text must be shorter than 64 KiB.
func stored(text []byte, last bool) []byte {
	block := []byte{0}
	if last {
		block[0] = 1
	}
	n := uint16(len(text)) //nolint:gosec // as above
	block = binary.LittleEndian.AppendUint16(block, n)
	return append(binary.LittleEndian.AppendUint16(block, ^n), text...)
}
