package mcp

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/net/http/httpguts"

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
	maxDepth  = 1000 // nesting levels, as in the SDK
	maxID     = 256  // bytes of a JSON-RPC id
	maxQuoted = 40   // bytes of the client's text in an error
)

// readMessage parses a message. It rejects what parsers could read differently (duplicate members, members in another case,
// invalid UTF-8) and batches, which MCP no longer has since 2025-06-18. Its error is a *protocolError.
func readMessage(body []byte) (message, error) {
	var m message
	if tooDeep(body, maxDepth) {
		return m, badRequest(jsonrpc.CodeInvalidRequest, "the message exceeds the maximum depth of 1000 levels")
	}
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		return m, badRequest(jsonrpc.CodeInvalidRequest, "batches are not supported: send each message in a request of its own")
	}
	if err := json.Unmarshal(body, &m, json.RejectUnknownMembers(true)); err != nil {
		return message{}, unreadable("the message", jsonrpc.CodeInvalidRequest, err)
	}
	switch kind := m.ID.Kind(); {
	case m.ID != nil && kind != jsontext.KindString && kind != jsontext.KindNumber || len(m.ID) > maxID:
		return message{}, badRequest(jsonrpc.CodeInvalidRequest, "id must be a string or a number of at most 256 bytes")
	case m.Version != "2.0":
		return m, badRequest(jsonrpc.CodeInvalidRequest, "jsonrpc must be \"2.0\"")
	case m.Method != "" && (m.Result != nil || m.Error != nil):
		return m, badRequest(jsonrpc.CodeInvalidRequest, "the message is both a request and a response")
	}
	return m, nil
}

// unreadable converts an error of decoding what into a struct. The result names the member at fault.
func unreadable(what string, code int, err error) error {
	e := &protocolError{status: http.StatusBadRequest, code: code}
	syntax, badSyntax := errors.AsType[*jsontext.SyntacticError](err)
	semantics, badMember := errors.AsType[*json.SemanticError](err)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		e.name, e.reason = syntax.JSONPointer.LastToken(), "the member {name} is given more than once"
	case badSyntax:
		e.code, e.reason = jsonrpc.CodeParseError, "the body must be one JSON value in UTF-8"
	case errors.Is(err, json.ErrUnknownName):
		e.name = semantics.JSONPointer.LastToken()
		e.reason = "the member {name} is unknown: must be one of jsonrpc, id, method, params, result, error"
	case badMember && semantics.JSONPointer != "":
		e.name, e.reason = semantics.JSONPointer.LastToken(), "the member {name} has the wrong type"
	default:
		e.reason = what + " must be a JSON object"
	}
	return e
}

// tooDeep reports whether JSON has more than the given number of nesting levels. It reads up to the first syntax error.
func tooDeep(body []byte, levels int) bool {
	d := jsontext.NewDecoder(bytes.NewReader(body))
	for {
		if _, err := d.ReadToken(); err != nil {
			return false
		}
		if d.StackDepth() > levels {
			return true
		}
	}
}

// callParams are the parameters of tools/call.
type callParams struct {
	Name         string                    `json:"name"`
	Arguments    jsontext.Value            `json:"arguments"`
	Meta         map[string]jsontext.Value `json:"_meta"`
	Responses    map[string]jsontext.Value `json:"inputResponses"`
	RequestState string                    `json:"requestState"`
	Others       map[string]jsontext.Value `json:",embed"` //nolint:revive // an option of this library's
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
	name   string // the client's text for {name} in reason
}

// Error implements error. The text is for the log, without the client's text.
func (e *protocolError) Error() string { return strings.Replace(e.reason, " {name}", "", 1) }

// message returns the error's text for the client.
func (e *protocolError) message() string {
	return strings.Replace(e.reason, "{name}", strconv.QuoteToASCII(e.name[:min(len(e.name), maxQuoted)]), 1)
}

func badRequest(code int, reason string) error {
	return &protocolError{status: http.StatusBadRequest, code: code, reason: reason}
}

// errNotToolCall is the error of [Server.readCall] for messages that the SDK serves or rejects: methods other than tools/call, unknown
// tools and invalid headers.
var errNotToolCall = errors.New("not a call of one of this server's tools")

// readCall parses a call of one of this server's tools. Its error is errNotToolCall or a *protocolError.
func (s *Server) readCall(r *http.Request, m message) (*toolCall, error) {
	switch {
	case !validTransport(r.Header):
		requestlog.From(r.Context()).Fail(codeName(jsonrpc.CodeInvalidRequest), errTransport)
		return nil, errNotToolCall
	case m.ID != nil && m.Method != "" && !offers(m.Method) && !s.allMethods:
		return nil, &protocolError{http.StatusNotFound, jsonrpc.CodeMethodNotFound, "this server does not offer the method {name}", m.Method}
	case m.Method != methodToolsCall:
		return nil, errNotToolCall
	case m.Params == nil:
		return nil, badRequest(jsonrpc.CodeInvalidParams, "params must be a JSON object")
	}
	var p callParams
	if err := json.Unmarshal(m.Params, &p); err != nil {
		return nil, unreadable("params", jsonrpc.CodeInvalidParams, err)
	}
	for name := range p.Others {
		if slices.ContainsFunc([]string{"name", "arguments", "_meta", "inputResponses", "requestState"}, func(known string) bool {
			return strings.EqualFold(name, known)
		}) {
			return nil, &protocolError{http.StatusBadRequest, jsonrpc.CodeInvalidParams, "the parameter {name} of tools/call has the wrong case", name}
		}
	}
	t, ok := s.tools[p.Name]
	if !ok {
		return nil, errNotToolCall
	}
	c := &toolCall{
		server: s, tool: t, requestID: requestlog.ID(r.Context()), entry: requestlog.From(r.Context()),
		id: m.ID, modern: r.Header.Get(headerProtocolVersion) == revisionModern, revision: r.Header.Get(headerProtocolVersion),
		arguments: jsontext.Value("{}"),
	}
	c.grant, _ = oauth.GrantFrom(r.Context())
	switch kind := p.Arguments.Kind(); {
	case m.ID == nil:
		return nil, badRequest(jsonrpc.CodeInvalidRequest, "tools/call is a request and requires an id")
	case kind == jsontext.KindBeginObject:
		c.arguments = p.Arguments
	case p.Arguments != nil && kind != jsontext.KindNull:
		return nil, badRequest(jsonrpc.CodeInvalidParams, "arguments must be an object")
	}
	if token, ok := p.Meta[metaProgress]; ok && token.Kind() != jsontext.KindNull {
		if kind := token.Kind(); kind != jsontext.KindString && kind != jsontext.KindNumber || len(token) > maxID {
			return nil, badRequest(jsonrpc.CodeInvalidParams, "progressToken must be a string or a number")
		}
		c.progressToken = token
	}
	if s.acceptsTraces {
		_ = json.Unmarshal(p.Meta[tracing.Traceparent], &c.traceparent) // ignored if it is not a string
	}
	if !c.modern {
		if _, ok := p.Meta[metaVersion]; ok {
			return nil, badRequest(sdk.CodeHeaderMismatch, headerProtocolVersion+" does not match "+metaVersion)
		}
		return c, nil
	}
	return c, c.readModern(r.Header, p)
}

// readModern checks the headers and parameters that revision 2026-07-28 adds, and sets the fields that depend on them.
func (c *toolCall) readModern(h http.Header, p callParams) error {
	var version string
	var capabilities sdk.ClientCapabilities
	switch {
	case json.Unmarshal(p.Meta[metaVersion], &version) != nil || version == "":
		return badRequest(jsonrpc.CodeInvalidParams, "missing or invalid _meta member "+metaVersion)
	case version != revisionModern:
		return badRequest(sdk.CodeHeaderMismatch, headerProtocolVersion+" does not match "+metaVersion)
	case h.Get(headerMethod) != methodToolsCall:
		return badRequest(sdk.CodeHeaderMismatch, headerMethod+" does not match the message's method")
	case decodeName(h.Get(headerName)) != p.Name:
		return badRequest(sdk.CodeHeaderMismatch, headerName+" does not match the tool's name")
	case p.Meta[metaCapabilities].Kind() != jsontext.KindBeginObject || json.Unmarshal(p.Meta[metaCapabilities], &capabilities) != nil:
		return badRequest(jsonrpc.CodeInvalidParams, "missing or invalid _meta member "+metaCapabilities)
	}
	if about, ok := p.Meta[metaClient]; ok &&
		(about.Kind() != jsontext.KindBeginObject || json.Unmarshal(about, new(sdk.Implementation)) != nil) {
		return badRequest(jsonrpc.CodeInvalidParams, "invalid _meta member "+metaClient)
	}
	if e := capabilities.Elicitation; e != nil {
		c.canElicit = e.Form != nil || e.URL == nil
	}
	if response, ok := p.Responses[questionID]; ok { // others, which were not asked for, are ignored
		c.requestState = p.RequestState
		if err := json.Unmarshal(response, &c.elicitResult); err != nil {
			return unreadable("inputResponses", jsonrpc.CodeInvalidParams, err)
		}
	}
	return nil
}

// decodeName returns the value of an Mcp-Name header, which may be in base64 (MCP 2026-07-28, value encoding).
func decodeName(value string) string {
	encoded, hasPrefix := strings.CutPrefix(value, "=?base64?")
	encoded, hasSuffix := strings.CutSuffix(encoded, "?=")
	if name, err := base64.StdEncoding.DecodeString(encoded); hasPrefix && hasSuffix && err == nil {
		return string(name)
	}
	return value
}

// validTransport reports whether the headers of a POST meet the rules of Streamable HTTP. The server resumes no streams.
func validTransport(h http.Header) bool {
	revision := h.Get(headerProtocolVersion)
	if revision != "" && !slices.Contains(sdk.SupportedProtocolVersions(), revision) || h["Last-Event-Id"] != nil {
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
	begun bool
}

// notify sends a notification as a server-sent event.
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
	_, err := e.w.Write(slices.Concat([]byte("event: message\ndata: "), encode(v), []byte("\n\n")))
	return err
}

// respond sends the last message, the response.
func (e *eventStream) respond(v any) {
	if e.begun {
		_ = e.event(v) // fails only if the client has disconnected
		return
	}
	body := encode(v)
	h := e.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = e.w.Write(body)
}

// serveWithSDK passes a message to the SDK, with a random id that is replaced with the client's in the response: the SDK would round
// large numbers. It also adds the list of tools.
func (s *Server) serveWithSDK(w http.ResponseWriter, r *http.Request, m message) {
	if name := r.Header.Get(headerName); name != decodeName(name) { // the SDK does not decode it
		r = r.Clone(r.Context())
		r.Header.Set(headerName, decodeName(name))
	}
	if m.ID == nil || m.Method == "" || s.allMethods { // no response has the id
		s.handler.ServeHTTP(w, r)
		return
	}
	id := m.ID
	m.ID = encode(rand.Text())
	body := encode(m)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	kept := &bufferedResponse{header: w.Header(), status: http.StatusOK}
	s.handler.ServeHTTP(kept, r)
	kept.header.Del("Content-Length")
	body = bytes.ReplaceAll(kept.Bytes(), m.ID, id)
	if before, after, ok := bytes.Cut(body, []byte(`"tools":[]`)); ok && m.Method == methodToolsList {
		g, _ := oauth.GrantFrom(r.Context())
		kept.header.Add("Vary", "Accept-Encoding")
		key := listKey{g.Scopes, r.Header.Get(headerProtocolVersion) >= revisionStructured}
		body = slices.Concat(before, s.toolList(key), after)
		if httpguts.HeaderValuesContainsToken(r.Header.Values("Accept-Encoding"), "gzip") {
			body = gzipped(body)
			kept.header.Set("Content-Encoding", "gzip")
		}
	}
	w.WriteHeader(kept.status)
	_, _ = w.Write(body)
}

// bufferedResponse is an [http.ResponseWriter] that keeps the response in memory.
type bufferedResponse struct {
	bytes.Buffer

	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (r *bufferedResponse) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *bufferedResponse) WriteHeader(status int) { r.status = status }

// Flush implements http.Flusher, which the SDK needs for events.
func (r *bufferedResponse) Flush() {}
