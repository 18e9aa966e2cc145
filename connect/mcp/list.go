package mcp

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
)

// maxLists is the maximum number of lists that are kept: there are as many as combinations of scopes.
const maxLists = 256

// toolLists are the encoded lists of tools, by the names of the tools.
type toolLists struct {
	sync.Mutex
	byNames map[string][]byte
	writers sync.Pool // of *gzip.Writer, which take most of the time to make
}

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
	var names []byte
	var allowed [][]byte
	for _, says := range s.o.Definition.Tools {
		if t := s.tools[says.Name]; t != nil && g.Scopes.Allows(t.scope) {
			names, allowed = append(append(names, t.Name...), ' '), append(allowed, t.declared)
		}
	}
	s.lists.Lock()
	defer s.lists.Unlock()
	if list := s.lists.byNames[string(names)]; list != nil {
		return list
	}
	if len(s.lists.byNames) >= maxLists || s.lists.byNames == nil {
		s.lists.byNames = map[string][]byte{}
	}
	list := slices.Concat([]byte(`"tools":[`), bytes.Join(allowed, []byte(",")), []byte("]"))
	s.lists.byNames[string(names)] = list
	return list
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

func (l *toolLists) compressed(body []byte) []byte {
	var out bytes.Buffer
	w, ok := l.writers.Get().(*gzip.Writer)
	if !ok {
		w, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // a valid level
	}
	w.Reset(&out)
	_, _ = w.Write(body) // to memory
	_ = w.Close()
	l.writers.Put(w)
	return out.Bytes()
}
