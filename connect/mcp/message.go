package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"
)

// A message is read once, strictly: see message. Calls of tools are served here, every form of them, and all other messages by
// the SDK, which serves no call of a tool. docs/design/0002-tool-calls.md says why.

// message is a JSON-RPC message (JSON-RPC 2.0, sections 4 and 5).
type message struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitzero"`
	Method  string         `json:"method,omitzero"`
	Params  jsontext.Value `json:"params,omitzero"`
	Result  jsontext.Value `json:"result,omitzero"`
	Error   jsontext.Value `json:"error,omitzero"`
}

// Bounds of a message.
const (
	maxDepth = 1000 // levels of nesting, the SDK's own bound
	maxID    = 256  // bytes of a JSON-RPC id
)

// JSON-RPC errors (JSON-RPC 2.0, section 5.1, and MCP 2026-07-28, transports).
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeRPCInternal    = -32603
)

// readMessage reads a message. It refuses whatever two readers could read in two ways: members given twice or spelled in
// another case, invalid UTF-8, and batches, which the protocol has given up.
func readMessage(body []byte) (message, error) {
	var m message
	if depth(body) >= maxDepth {
		return m, errors.New("the message exceeds the maximum depth of 1000 levels")
	}
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		return m, errors.New("batches are not supported: send each message by itself")
	}
	if err := json.Unmarshal(body, &m, json.RejectUnknownMembers(true)); err != nil {
		return m, errors.New("the body is not one JSON-RPC message: members may be given once, and text has to be UTF-8")
	}
	switch kind := m.ID.Kind(); {
	case m.Version != "2.0":
		return m, errors.New("jsonrpc has to be \"2.0\"")
	case m.Method != "" && (m.Result != nil || m.Error != nil):
		return m, errors.New("the message is both a request and a response")
	case m.ID != nil && kind != jsontext.KindString && kind != jsontext.KindNumber || len(m.ID) > maxID:
		return m, errors.New("id has to be a string or a number")
	}
	return m, nil
}

// depth is how deep JSON is nested.
func depth(body []byte) int {
	most, now, text := 0, 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case c == '"':
			text = !text
		case text && c == '\\':
			i++
		case text:
		case c == '{', c == '[':
			now++
			most = max(most, now)
		case c == '}', c == ']':
			now--
		}
	}
	return most
}

// callParams are the parameters of tools/call.
type callParams struct {
	Name         string                    `json:"name"`
	Arguments    jsontext.Value            `json:"arguments"`
	Meta         map[string]jsontext.Value `json:"_meta"`
	Responses    map[string]elicited       `json:"inputResponses"`
	RequestState string                    `json:"requestState"`
	Others       map[string]jsontext.Value `json:",embed"` //nolint:revive // an option of this library's
}

// elicited is a person's response to a question (MCP 2026-07-28, elicitation).
type elicited struct {
	Action  string         `json:"action"`
	Content map[string]any `json:"content"`
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

// protocolError is a message that is refused as the protocol wants it.
type protocolError struct {
	status int
	code   int
	reason string
}

func (e *protocolError) Error() string { return e.reason }

func invalidParams(reason string) error {
	return &protocolError{http.StatusBadRequest, codeInvalidParams, reason}
}

func headerMismatch(reason string) error {
	return &protocolError{http.StatusBadRequest, sdk.CodeHeaderMismatch, reason}
}

// readCall reads the call of a tool; nil if the message is none, or is of a tool that this server does not have.
func (s *Server) readCall(r *http.Request, m message) (*toolCall, error) {
	if m.Method != methodCall {
		return nil, nil // not a call
	}
	var p callParams
	if err := json.Unmarshal(m.Params, &p); err != nil {
		return nil, invalidParams("the parameters of tools/call cannot be read")
	}
	for name := range p.Others {
		if slices.ContainsFunc([]string{"name", "arguments", "_meta", "inputResponses", "requestState"}, func(known string) bool {
			return strings.EqualFold(name, known)
		}) {
			return nil, invalidParams("a parameter of tools/call is spelled in another case: " + printable(name))
		}
	}
	t, ok := s.tools[p.Name]
	if !ok {
		return nil, nil // the SDK says so
	}
	revision := r.Header.Get(headerProtocol)
	c := &toolCall{server: s, tool: t, id: m.ID, modern: revision == revisionStateless, arguments: jsontext.Value("{}")}
	switch kind := p.Arguments.Kind(); {
	case m.ID == nil:
		return nil, &protocolError{http.StatusBadRequest, codeInvalidRequest, "tools/call is a request, and needs an id"}
	case kind == jsontext.KindBeginObject:
		c.arguments = wholeNumbers(p.Arguments)
	case p.Arguments != nil && kind != jsontext.KindNull:
		return nil, invalidParams("arguments has to be an object")
	}
	if token, ok := p.Meta[metaProgress]; ok {
		if kind := token.Kind(); kind != jsontext.KindString && kind != jsontext.KindNumber || len(token) > maxID {
			return nil, invalidParams("progressToken has to be a string or a number")
		}
		c.progressToken = token
	}
	if !c.modern {
		if _, ok := p.Meta[metaVersion]; ok {
			return nil, headerMismatch(headerProtocol + " does not match " + metaVersion)
		}
		return c, nil
	}
	return c, c.readModern(r.Header, p)
}

// readModern reads what revision 2026-07-28 adds to a call.
func (c *toolCall) readModern(h http.Header, p callParams) error {
	var version string
	var capabilities sdk.ClientCapabilities
	switch {
	case json.Unmarshal(p.Meta[metaVersion], &version) != nil:
		return invalidParams("missing or invalid _meta member " + metaVersion)
	case version != revisionStateless:
		return headerMismatch(headerProtocol + " does not match " + metaVersion)
	case h.Get(headerMethod) != methodCall:
		return headerMismatch(headerMethod + " does not match the message's method")
	case h.Get(headerName) != p.Name:
		return headerMismatch(headerName + " does not match the tool's name")
	case p.Meta[metaCapabilities].Kind() != jsontext.KindBeginObject ||
		json.Unmarshal(p.Meta[metaCapabilities], &capabilities) != nil:
		return invalidParams("missing or invalid _meta member " + metaCapabilities)
	}
	if about, ok := p.Meta[metaClient]; ok &&
		(about.Kind() != jsontext.KindBeginObject || json.Unmarshal(about, new(sdk.Implementation)) != nil) {
		return invalidParams("invalid _meta member " + metaClient)
	}
	if e := capabilities.Elicitation; e != nil {
		c.asks = e.Form != nil || e.URL == nil
	}
	if response, ok := p.Responses[questionID]; ok {
		c.response, c.state = &response, p.RequestState
	}
	return nil
}

// wholeNumbers writes whole numbers of JSON as such: 10403.0 and 1.0403e4 as 10403. They are the same number, and integers
// to a schema, and would not be read into one.
func wholeNumbers(v jsontext.Value) jsontext.Value {
	if !bytes.ContainsAny(v, ".eE") {
		return v
	}
	var out bytes.Buffer
	d, e := jsontext.NewDecoder(bytes.NewReader(v)), jsontext.NewEncoder(&out)
	for {
		var err error
		switch d.PeekKind() {
		case jsontext.KindNumber:
			var number jsontext.Value
			if number, err = d.ReadValue(); err == nil {
				if f, bad := strconv.ParseFloat(string(number), 64); bad == nil && f == float64(int64(f)) && f > -1<<53 && f < 1<<53 {
					number = strconv.AppendInt(nil, int64(f), 10)
				}
				err = e.WriteValue(number)
			}
		default:
			var token jsontext.Token
			if token, err = d.ReadToken(); err == nil {
				err = e.WriteToken(token)
			}
		}
		if errors.Is(err, io.EOF) {
			return bytes.TrimSpace(out.Bytes())
		}
		if err != nil { // it was valid JSON before
			return v
		}
	}
}

// supported reports whether the request is of the transport's form. What is not is the SDK's to refuse.
func supported(h http.Header) bool {
	revision := h.Get(headerProtocol)
	if revision != "" && !slices.Contains(sdk.SupportedProtocolVersions(), revision) || h.Get("Last-Event-Id") != "" {
		return false
	}
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	var inJSON, inEvents bool
	for accepted := range strings.SplitSeq(strings.Join(h.Values("Accept"), ","), ",") {
		accepted, _, _ = strings.Cut(accepted, ";")
		switch strings.ToLower(strings.TrimSpace(accepted)) {
		case "application/json", "application/*":
			inJSON = true
		case "text/event-stream", "text/*":
			inEvents = true
		case "*/*":
			inJSON, inEvents = true, true
		}
	}
	return err == nil && media == "application/json" && inJSON && inEvents
}

// callResult is the result of a call.
type callResult struct {
	Meta          map[string]any          `json:"_meta,omitzero"`
	Content       []textContent           `json:"content"`
	Structured    jsontext.Value          `json:"structuredContent,omitzero"`
	IsError       bool                    `json:"isError,omitzero"`
	Type          string                  `json:"resultType,omitzero"`
	InputRequests map[string]inputRequest `json:"inputRequests,omitzero"`
	RequestState  string                  `json:"requestState,omitzero"`
}

type textContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func textResult(text string) *callResult { return &callResult{Content: []textContent{{"text", text}}} }

// inputRequest is a question to the person.
type inputRequest struct {
	Method string            `json:"method"`
	Params *sdk.ElicitParams `json:"params"`
}

// serveCall makes the call and responds.
func (s *Server) serveCall(w http.ResponseWriter, r *http.Request, c *toolCall) {
	ctx := r.Context()
	if !c.modern {
		ctx = context.WithoutCancel(ctx) // a client that has gone away has not cancelled (2025-11-25, transports)
	}
	c.stream = &eventStream{w: w}
	result := s.carryOut(ctx, c)
	if result == nil {
		c.stream.respond(s.log, errorMessage(c.id, codeRPCInternal, "internal error"))
		return
	}
	if c.modern {
		result.Meta = map[string]any{metaServer: s.about}
		result.Type = "complete"
		if result.InputRequests != nil {
			result.Type = "input_required"
		}
	}
	c.stream.respond(s.log, struct {
		Version string         `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Result  *callResult    `json:"result"`
	}{"2.0", c.id, result})
}

// carryOut makes the call. It returns nil if that panicked.
func (s *Server) carryOut(ctx context.Context, c *toolCall) (result *callResult) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("panic while serving a request", zap.String("method", methodCall), zap.String("tool", c.tool.name),
				zap.String("request_id", c.grant.requestID), zap.Any("panic", v), zap.Stack("stack"))
			result = nil
		}
	}()
	return c.do(ctx)
}

// eventStream is the response to a call: one JSON message, or, if there are notifications before it, server-sent events.
type eventStream struct {
	w     http.ResponseWriter
	begun bool
}

// notify sends a notification.
func (e *eventStream) notify(v any) error {
	h := e.w.Header()
	if !e.begun {
		e.begun = true
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store, no-transform")
		h.Set("X-Accel-Buffering", "no") // a proxy that keeps events back defeats them
	}
	if err := e.event(v); err != nil {
		return err
	}
	return http.NewResponseController(e.w).Flush()
}

func (e *eventStream) event(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = e.w.Write(slices.Concat([]byte("event: message\ndata: "), body, []byte("\n\n"))) //nolint:gosec // not HTML
	return err
}

// open keeps the response open for so long and some time to write it, whatever write timeout the server has.
func (e *eventStream) open(d time.Duration) {
	_ = http.NewResponseController(e.w).SetWriteDeadline(time.Now().Add(d + 30*time.Second)) // a wire without has no timeout
}

// respond sends the last message.
func (e *eventStream) respond(log *zap.Logger, v any) {
	if e.begun {
		_ = e.event(v) // the client is gone
		return
	}
	body, err := json.Marshal(v)
	if err != nil {
		log.Error("a response cannot be encoded", zap.Error(err))
		writeError(e.w, http.StatusInternalServerError, nil, codeRPCInternal, "internal error")
		return
	}
	h := e.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = e.w.Write(body) //nolint:gosec // not HTML
}

// plainID reports whether the SDK gives an id back as it was sent: it reads numbers as floating point, and writes integers.
func plainID(id jsontext.Value) bool {
	return id.Kind() != jsontext.KindNumber || len(id) <= 15 && !bytes.ContainsAny(id, ".eE") && string(id) != "-0"
}

// withID serves a message with an id that the SDK would change, under another, and gives the client's own back.
func withID(next http.Handler, w http.ResponseWriter, r *http.Request, m message) {
	id := m.ID
	m.ID = jsontext.Value(strconv.Quote(rand.Text()))
	body, err := json.Marshal(m)
	if err != nil {
		writeError(w, http.StatusInternalServerError, id, codeRPCInternal, "internal error")
		return
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	kept := &keptResponse{header: w.Header(), status: http.StatusOK}
	next.ServeHTTP(kept, r)
	kept.header.Del("Content-Length")
	w.WriteHeader(kept.status)
	_, _ = w.Write(bytes.ReplaceAll(kept.body.Bytes(), m.ID, id))
}

// keptResponse is a response that is not sent yet.
type keptResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (k *keptResponse) Header() http.Header { return k.header }

// WriteHeader implements http.ResponseWriter.
func (k *keptResponse) WriteHeader(status int) { k.status = status }

// Write implements http.ResponseWriter.
func (k *keptResponse) Write(b []byte) (int, error) { return k.body.Write(b) }

// Flush implements http.Flusher, which the SDK wants for events.
func (k *keptResponse) Flush() {}

// printable is a text of the client's for an error: short, and ASCII.
func printable(s string) string {
	return strconv.QuoteToASCII(s[:min(len(s), 40)])
}
