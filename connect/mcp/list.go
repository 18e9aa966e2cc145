package mcp

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"slices"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
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

// toolList returns the member "tools" of the result of tools/list: what a connection may use, in the order of the definition.
func (s *Server) toolList(g oauth.Grant) []byte {
	var allowed [][]byte
	for _, says := range s.o.Definition.Tools {
		if t := s.tools[says.Name]; t != nil && g.Scopes.Allows(t.scope) {
			allowed = append(allowed, t.declared)
		}
	}
	return slices.Concat([]byte(`"tools":[`), bytes.Join(allowed, []byte(",")), []byte("]"))
}

// acceptsGzip reports whether a response may be compressed with gzip (RFC 9110, section 12.5.3).
func acceptsGzip(h http.Header) bool {
	for accepted := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(accepted, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			return strings.Trim(strings.ToLower(strings.TrimSpace(weight)), "q=0.") != "" || strings.TrimSpace(weight) == ""
		}
	}
	return false
}

// compressed returns a body with gzip.
func (s *Server) compressed(body []byte) []byte {
	var out bytes.Buffer
	w, ok := s.writers.Get().(*gzip.Writer)
	if !ok {
		w, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // a valid level
	}
	w.Reset(&out)
	_, _ = w.Write(body) // to memory
	_ = w.Close()
	s.writers.Put(w)
	return out.Bytes()
}
