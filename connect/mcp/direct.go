package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	fast "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"
)

// A call that reads, adds or changes is answered here, past the SDK's transport, if it is ordinary: there is nothing about it
// that a rule of the protocol could object to, and nothing to be told or asked before the answer. Every other request is the
// SDK's, and with it every refusal. A session of an older revision does not learn of these calls; that a client cancels one of
// them by a message has no effect.
//
// The SDK reads a request a dozen times, with 32 KiB for each, makes a session for it, and goes over its answer several times:
// for a list of 25 contacts the gateway takes 1.3 to 1.8 ms and 0.8 to 0.9 MB so, and 0.5 to 0.9 ms and 0.4 MB here
// (go test -run '^$' -bench ToolCall ./connect/mcp). A call may take 2 ms.

// directCall is an ordinary call.
type directCall struct {
	id      jsontext.Value
	tool    *tool
	request *sdk.CallToolRequest
	modern  bool // of a revision without sessions
}

// directMessage is all that an ordinary call may have in it.
type directMessage struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id"`
	Method  string         `json:"method"`
	Params  struct {
		Name      string                    `json:"name"`
		Arguments jsontext.Value            `json:"arguments"`
		Meta      map[string]jsontext.Value `json:"_meta"`
	} `json:"params"`
}

// direct returns the call that a request makes, or nil if the request is not an ordinary call.
func (s *Server) direct(r *http.Request, body []byte) *directCall {
	revision := only(r.Header, headerProtocol)
	if r.Method != http.MethodPost || !slices.Contains([]string{"2025-06-18", "2025-11-25", revisionStateless}, revision) ||
		!onlyJSON(r.Header) || len(r.Header.Values("Last-Event-Id")) > 0 || !flat(body) {
		return nil
	}
	var m directMessage
	// names twice, in another case, or unknown ones are not ordinary
	if fast.Unmarshal(body, &m, fast.RejectUnknownMembers(true)) != nil || m.Version != "2.0" || m.Method != methodCall ||
		!plainID(m.ID) || m.Params.Arguments != nil && m.Params.Arguments.Kind() != jsontext.KindBeginObject {
		return nil
	}
	d := &directCall{id: m.ID, tool: s.tools[m.Params.Name], modern: revision == revisionStateless}
	if d.tool == nil || d.tool.kind == deletes || d.tool.kind == runs || !plainMeta(m.Params.Meta, d.modern) {
		return nil
	}
	if d.modern && (only(r.Header, headerMethod) != methodCall || only(r.Header, headerName) != m.Params.Name) {
		return nil
	}
	d.request = &sdk.CallToolRequest{Params: &sdk.CallToolParamsRaw{Name: m.Params.Name}}
	if m.Params.Arguments != nil {
		d.request.Params.Arguments = []byte(m.Params.Arguments)
	}
	return d
}

// only returns the value of a header that is there once.
func only(h http.Header, name string) string {
	if values := h.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}

// onlyJSON reports whether the content is JSON, and an answer in JSON is wanted as well as events.
func onlyJSON(h http.Header) bool {
	media, _, err := mime.ParseMediaType(only(h, "Content-Type"))
	var accepted []string
	for name := range strings.SplitSeq(only(h, "Accept"), ",") {
		accepted = append(accepted, strings.TrimSpace(name))
	}
	return err == nil && media == "application/json" && slices.Contains(accepted, "application/json") &&
		slices.Contains(accepted, "text/event-stream")
}

// flat reports whether a body cannot be nested deeper than the SDK reads it, which is 1,000 levels.
func flat(body []byte) bool {
	return bytes.Count(body, []byte("{"))+bytes.Count(body, []byte("[")) < 1000
}

// plainID reports whether an id is a string or a whole number.
func plainID(id jsontext.Value) bool {
	return len(id) > 0 && len(id) <= 256 && (id.Kind() == jsontext.KindString ||
		id.Kind() == jsontext.KindNumber && len(id) <= 15 && !strings.ContainsAny(string(id), "-.eE"))
}

// Members of _meta that say something to a server.
const (
	metaOwn          = "io.modelcontextprotocol/"
	metaVersion      = metaOwn + "protocolVersion"
	metaClient       = metaOwn + "clientInfo"
	metaCapabilities = metaOwn + "clientCapabilities"
	metaServer       = metaOwn + "serverInfo"
	metaProgress     = "progressToken"
)

// plainMeta reports whether a call's _meta asks for nothing, and says what the revision wants it to say.
func plainMeta(meta map[string]jsontext.Value, modern bool) bool {
	for name, v := range meta {
		var known bool
		switch {
		case name == metaProgress:
		case !strings.HasPrefix(name, metaOwn):
			known = fast.Unmarshal(v, new(any)) == nil // a number may be too large
		case !modern:
		case name == metaVersion:
			known = string(v) == `"`+revisionStateless+`"`
		case name == metaClient:
			known = v.Kind() == jsontext.KindBeginObject && fast.Unmarshal(v, new(sdk.Implementation)) == nil
		case name == metaCapabilities:
			known = v.Kind() == jsontext.KindBeginObject && fast.Unmarshal(v, new(sdk.ClientCapabilities)) == nil
		}
		if !known {
			return false
		}
	}
	return !modern || meta[metaVersion] != nil && meta[metaCapabilities] != nil
}

// directAnswer is the answer to an ordinary call, as the SDK writes it.
type directAnswer struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id"`
	Result  directResult   `json:"result"`
}

type directResult struct {
	Meta       map[string]any `json:"_meta,omitzero"`
	Content    []directText   `json:"content"`
	Structured jsontext.Value `json:"structuredContent,omitzero"`
	IsError    bool           `json:"isError,omitzero"`
	Type       string         `json:"resultType,omitzero"`
}

type directText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// answer makes the call and answers it.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, g grantOf, d *directCall) {
	ctx := r.Context()
	if !d.modern {
		ctx = context.WithoutCancel(ctx) // a client that has gone away has not cancelled (2025-11-25, transports)
	}
	text, structured, failed, ok := s.carryOut(ctx, g, d)
	if !ok {
		writeError(w, http.StatusOK, []byte(d.id), -32603, "internal error")
		return
	}
	a := directAnswer{Version: "2.0", ID: d.id, Result: directResult{
		Content: []directText{{"text", text}}, Structured: structured, IsError: failed,
	}}
	if d.modern {
		a.Result.Type, a.Result.Meta = "complete", map[string]any{metaServer: s.about}
	}
	// What was hidden in two names of a record may have been all that told them apart.
	written, err := fast.Marshal(a, jsontext.AllowDuplicateNames(true))
	if err != nil {
		s.log.Error("an answer cannot be written", zap.String("tool", d.tool.name), zap.String("request_id", g.requestID),
			zap.Error(err))
		writeError(w, http.StatusInternalServerError, []byte(d.id), -32603, "internal error")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store, no-transform")
	w.Header().Set("Content-Length", strconv.Itoa(len(written)))
	_, _ = w.Write(written)
}

// carryOut makes the call, and is not ok if that panicked.
func (s *Server) carryOut(ctx context.Context, g grantOf, d *directCall) (
	text string, structured jsontext.Value, failed, ok bool,
) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("panic while serving a request", zap.String("method", methodCall), zap.String("tool", d.tool.name),
				zap.String("request_id", g.requestID), zap.Any("panic", v), zap.Stack("stack"))
			ok = false
		}
	}()
	result := s.callTool(ctx, d.tool, g, d.request)
	if content, is := result.Content[0].(*sdk.TextContent); is {
		text = content.Text
	}
	if raw, is := result.StructuredContent.(json.RawMessage); is {
		structured = jsontext.Value(raw)
	}
	return text, structured, result.IsError, true
}
