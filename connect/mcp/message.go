package mcp

import (
	"bytes"
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

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/internal/tracing"
)

// message is a JSON-RPC message (JSON-RPC 2.0, sections 4 and 5).
type message struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitzero"`
	Method  string         `json:"method,omitzero"`
	Params  jsontext.Value `json:"params,omitzero"`
	Result  jsontext.Value `json:"result,omitzero"`
	Error   jsontext.Value `json:"error,omitzero"`
}

const (
	maxDepth = 1000 // levels of nesting, as in the SDK
	maxID    = 256  // bytes of a JSON-RPC id
)

// JSON-RPC errors (JSON-RPC 2.0, section 5.1, and MCP 2026-07-28, transports).
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternalError  = -32603
)

// readMessage parses a message. It rejects what two parsers could read differently (duplicate members, members in another
// case, invalid UTF-8) and batches, which the protocol has dropped.
func readMessage(body []byte) (message, error) {
	var m message
	if depth(body) >= maxDepth {
		return m, errors.New("the message exceeds the maximum depth of 1000 levels")
	}
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		return m, errors.New("batches are not supported: send each message in a request of its own")
	}
	if err := json.Unmarshal(body, &m, json.RejectUnknownMembers(true)); err != nil {
		return m, errors.New("the body is not one JSON-RPC message: members must be unique and text must be UTF-8")
	}
	switch kind := m.ID.Kind(); {
	case m.Version != "2.0":
		return m, errors.New("jsonrpc must be \"2.0\"")
	case m.Method != "" && (m.Result != nil || m.Error != nil):
		return m, errors.New("the message is both a request and a response")
	case m.ID != nil && kind != jsontext.KindString && kind != jsontext.KindNumber || len(m.ID) > maxID:
		return m, errors.New("id must be a string or a number")
	}
	return m, nil
}

// depth returns how deep JSON is nested.
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
	Responses    map[string]elicitResult   `json:"inputResponses"`
	RequestState string                    `json:"requestState"`
	Others       map[string]jsontext.Value `json:",embed"` //nolint:revive // an option of this library's
}

// elicitResult is the user's response to an elicitation (MCP 2026-07-28, elicitation).
type elicitResult struct {
	Action  string         `json:"action"`
	Content map[string]any `json:"content"`
}

// Members of _meta.
const (
	metaOwn          = "io.modelcontextprotocol/"
	metaVersion      = metaOwn + "protocolVersion"
	metaClient       = metaOwn + "clientInfo"
	metaCapabilities = metaOwn + "clientCapabilities"
	metaServer       = metaOwn + "serverInfo"
	metaProgress     = "progressToken"
)

// protocolError is a JSON-RPC error with its HTTP status.
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

// errNotToolCall is the error of [Server.readCall] for other methods than tools/call and for unknown tools.
var errNotToolCall = errors.New("not a call of one of this server's tools")

// readCall parses a call of one of this server's tools. Its error is errNotToolCall or a *protocolError.
func (s *Server) readCall(r *http.Request, m message) (*toolCall, error) {
	if m.Method != methodToolsCall {
		return nil, errNotToolCall
	}
	var p callParams
	if err := json.Unmarshal(m.Params, &p); err != nil {
		return nil, invalidParams("the parameters of tools/call cannot be read")
	}
	for name := range p.Others {
		if slices.ContainsFunc([]string{"name", "arguments", "_meta", "inputResponses", "requestState"}, func(known string) bool {
			return strings.EqualFold(name, known)
		}) {
			return nil, invalidParams("a parameter of tools/call has the wrong case: " + strconv.QuoteToASCII(name[:min(len(name), 40)]))
		}
	}
	t, ok := s.tools[p.Name]
	if !ok {
		return nil, errNotToolCall
	}
	revision := r.Header.Get(headerProtocolVersion)
	c := &toolCall{
		server: s, tool: t, requestID: requestlog.ID(r.Context()), entry: requestlog.From(r.Context()),
		id: m.ID, modern: revision == revisionModern, arguments: jsontext.Value("{}"),
	}
	c.grant, _ = oauth.GrantFrom(r.Context())
	switch kind := p.Arguments.Kind(); {
	case m.ID == nil:
		return nil, &protocolError{http.StatusBadRequest, codeInvalidRequest, "tools/call is a request and requires an id"}
	case kind == jsontext.KindBeginObject:
		c.arguments = wholeNumbers(p.Arguments)
	case p.Arguments != nil && kind != jsontext.KindNull:
		return nil, invalidParams("arguments must be an object")
	}
	if token, ok := p.Meta[metaProgress]; ok {
		if kind := token.Kind(); kind != jsontext.KindString && kind != jsontext.KindNumber || len(token) > maxID {
			return nil, invalidParams("progressToken must be a string or a number")
		}
		c.progressToken = token
	}
	if s.acceptsTraces {
		_ = json.Unmarshal(p.Meta[tracing.Traceparent], &c.traceparent) // ignored if it is not a string
	}
	if !c.modern {
		if _, ok := p.Meta[metaVersion]; ok {
			return nil, headerMismatch(headerProtocolVersion + " does not match " + metaVersion)
		}
		return c, nil
	}
	return c, c.readModern(r.Header, p)
}

// readModern checks and reads the headers and parameters that revision 2026-07-28 adds.
func (c *toolCall) readModern(h http.Header, p callParams) error {
	var version string
	var capabilities sdk.ClientCapabilities
	switch {
	case json.Unmarshal(p.Meta[metaVersion], &version) != nil:
		return invalidParams("missing or invalid _meta member " + metaVersion)
	case version != revisionModern:
		return headerMismatch(headerProtocolVersion + " does not match " + metaVersion)
	case h.Get(headerMethod) != methodToolsCall:
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
		c.canElicit = e.Form != nil || e.URL == nil
	}
	if response, ok := p.Responses[questionID]; ok {
		c.elicitResult, c.requestState = &response, p.RequestState
	}
	return nil
}

// wholeNumbers rewrites whole numbers without fraction and exponent: 10403.0 and 1.0403e4 become 10403. JSON Schema takes
// them for integers, but encoding/json does not decode them into one.
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
		if err != nil {
			return v
		}
	}
}

// validTransport reports whether the headers meet the rules of Streamable HTTP.
func validTransport(h http.Header) bool {
	revision := h.Get(headerProtocolVersion)
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

// callResult is the result of tools/call.
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

type inputRequest struct {
	Method string            `json:"method"`
	Params *sdk.ElicitParams `json:"params"`
}

// eventStream writes the response to a call: one JSON message, or server-sent events if notifications precede it.
type eventStream struct {
	w     http.ResponseWriter
	r     *http.Request
	begun bool
}

// notify sends a notification.
func (e *eventStream) notify(v any) error {
	h := e.w.Header()
	if !e.begun {
		e.begun = true
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store, no-transform")
		h.Set("X-Accel-Buffering", "no") // tells proxies such as nginx not to buffer
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
	_, err = e.w.Write(slices.Concat([]byte("event: message\ndata: "), body, []byte("\n\n")))
	return err
}

// extendDeadline lets the response take d, and some time to write it, whatever the server's write timeout.
func (e *eventStream) extendDeadline(d time.Duration) {
	_ = http.NewResponseController(e.w).SetWriteDeadline(time.Now().Add(d + 30*time.Second)) // not all writers support it
}

// respond sends the last message.
func (e *eventStream) respond(log *zap.Logger, v any) {
	if e.begun {
		_ = e.event(v) // fails only if the client has disconnected
		return
	}
	body, err := json.Marshal(v)
	if err != nil {
		log.Error("encoding a response failed", zap.Error(err))
		writeError(e.w, e.r, http.StatusInternalServerError, nil, codeInternalError, "internal error")
		return
	}
	h := e.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = e.w.Write(body)
}

// sdkPreservesID reports whether the SDK returns an id as it was sent. It reads numbers as floating point and writes integers.
func sdkPreservesID(id jsontext.Value) bool {
	return id.Kind() != jsontext.KindNumber || len(id) <= 15 && !bytes.ContainsAny(id, ".eE") && string(id) != "-0"
}

// serveWithSDK has the SDK serve a message. If the SDK would change the id, it gets a random one, which is replaced with the
// client's in the response.
func (s *Server) serveWithSDK(w http.ResponseWriter, r *http.Request, m message) {
	id := m.ID
	if id == nil || sdkPreservesID(id) {
		s.handler.ServeHTTP(w, r)
		return
	}
	m.ID = jsontext.Value(strconv.Quote(rand.Text()))
	body, err := json.Marshal(m)
	if err != nil {
		writeError(w, r, http.StatusInternalServerError, id, codeInternalError, "internal error")
		return
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	kept := &bufferedResponse{header: w.Header(), status: http.StatusOK}
	s.handler.ServeHTTP(kept, r)
	kept.header.Del("Content-Length")
	w.WriteHeader(kept.status)
	_, _ = w.Write(bytes.ReplaceAll(kept.body.Bytes(), m.ID, id))
}

// bufferedResponse is an [http.ResponseWriter] that keeps the response in memory.
type bufferedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *bufferedResponse) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *bufferedResponse) WriteHeader(status int) { r.status = status }

// Write implements http.ResponseWriter.
func (r *bufferedResponse) Write(b []byte) (int, error) { return r.body.Write(b) }

// Flush implements http.Flusher, which the SDK needs for events.
func (r *bufferedResponse) Flush() {}
