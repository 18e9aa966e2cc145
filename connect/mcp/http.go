package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
)

// The revision from which on there are no sessions.
const revisionStateless = "2026-07-28"

// methodCall is the method of a tool's call.
const methodCall = "tools/call"

// Headers of the transport.
const (
	headerProtocol = "Mcp-Protocol-Version"
	headerSession  = "Mcp-Session-Id"
	headerMethod   = "Mcp-Method"
	headerName     = "Mcp-Name"
)

// What scripts of an origin that may call can send and read.
const (
	corsMethods = "POST, GET, DELETE, OPTIONS"
	corsHeaders = "Authorization, Content-Type, Accept, Last-Event-Id, Mcp-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name"
	corsExposed = "WWW-Authenticate, Mcp-Session-Id, Mcp-Protocol-Version, X-Request-Id, Retry-After"
)

// Guard lets only pages of the resource's own origin and of those in Options.Origins through to next; for the latter it
// answers preflights and says what they may read. A page of any other origin is refused, preflight or not: a browser's
// user must not be led here by somebody else's page. Whoever serves it lets only requests for the resource's host through
// (DNS rebinding).
func (s *Server) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origins := r.Header.Values("Origin")
		w.Header().Add("Vary", "Origin")
		if len(origins) > 0 {
			if len(origins) > 1 || !slices.Contains(s.origins, origins[0]) {
				writeError(w, http.StatusForbidden, nil, -32600, "pages of this origin may not call")
				return
			}
			w.Header().Set("Access-Control-Allow-Origin", origins[0])
			w.Header().Set("Access-Control-Expose-Headers", corsExposed)
		}
		if r.Method == http.MethodOptions {
			w.Header().Set("Access-Control-Allow-Methods", corsMethods)
			w.Header().Set("Access-Control-Allow-Headers", corsHeaders)
			w.Header().Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Fail responds with a JSON-RPC error to a request that was refused before its message was read.
func Fail(w http.ResponseWriter, _ *http.Request, status int, detail string) {
	code := -32600 // invalid request
	if status >= http.StatusInternalServerError {
		code = -32603 // internal error
	}
	w.Header().Set("Cache-Control", "no-store")
	writeError(w, status, nil, code, detail)
}

// writeError answers with a JSON-RPC error.
func writeError(w http.ResponseWriter, status int, id json.RawMessage, code int, message string) {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	body, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": message},
	})
	if err != nil {
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// message is what has to be known of a JSON-RPC message before it is served. Who serves it reads it anew, and the scopes are
// checked again then: nothing depends on both reading the same.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name         string `json:"name"`
		Capabilities struct {
			Elicitation *json.RawMessage `json:"elicitation"`
		} `json:"capabilities"`
	} `json:"params"`
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	grant, ok := oauth.GrantFrom(r.Context())
	if !ok || grant.ID == "" || grant.BusinessID == "" || grant.AccountID == "" {
		s.log.Error("a request without a connection reached the MCP server")
		writeError(w, http.StatusInternalServerError, nil, -32603, "internal error")
		return
	}
	requestID := s.o.RequestID(r)
	w.Header().Set("Cache-Control", "no-store")
	var messages []message
	var body []byte
	if r.Method == http.MethodPost {
		if body, ok = s.readBody(w, r); !ok {
			return
		}
		messages = parse(body)
	}
	modern := r.Header.Get(headerProtocol) >= revisionStateless
	for _, m := range messages {
		if t, ok := s.tools[m.Params.Name]; ok && m.Method == methodCall && !grant.Scopes.Allows(t.scope) {
			s.o.Challenge.InsufficientScope(w, t.needs(grant)...)
			return
		}
		if modern && !s.offers(m.Method) {
			writeError(w, http.StatusNotFound, m.ID, -32601, "this server does not offer "+m.Method)
			return
		}
	}
	caller := grantOf{Grant: grant, requestID: requestID}
	id := r.Header.Get(headerSession)
	if modern {
		id = "" // of no meaning
	}
	if id != "" && !s.sessions.has(grant.ID, id) && s.sessions.hasEnded(id) {
		writeError(w, http.StatusNotFound, nil, -32001, "this session has ended")
		return
	}
	if r.Method == http.MethodPost {
		defer s.sessions.use(grant.ID, id)()
	}
	if d := s.direct(r, body); d != nil {
		s.answer(w, r, caller, d)
		return
	}
	s.route(r, grant, messages, id).ServeHTTP(w, s.identify(r, caller))
}

// readBody reads a request's body into memory, so that it can be read again.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.o.MaxBody))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		s.log.Debug("body too large", zap.Int64("limit", tooLarge.Limit))
		writeError(w, http.StatusRequestEntityTooLarge, nil, -32600, "the body is too large")
		return nil, false
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, nil, -32700, "the body cannot be read")
		return nil, false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, true
}

// parse reads a message or a batch of them. What is neither is left to the SDK to refuse.
func parse(body []byte) []message {
	var batch []json.RawMessage
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		if json.Unmarshal(body, &batch) != nil {
			return nil
		}
	} else {
		batch = []json.RawMessage{body}
	}
	messages := make([]message, 0, len(batch))
	for _, b := range batch {
		var m message
		// A member of another type than expected leaves the others readable.
		if err := json.Unmarshal(b, &m); err != nil {
			if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
				continue
			}
		}
		messages = append(messages, m)
	}
	return messages
}

// identify puts the connection where the SDK's handlers find it for each request.
func (s *Server) identify(r *http.Request, g grantOf) *http.Request {
	info := &auth.TokenInfo{UserID: g.ID, Extra: map[string]any{extraGrant: g}}
	return r.WithContext(context.WithValue(r.Context(), infoKey{}, info))
}

type infoKey struct{}

// known is the SDK's middleware for bearer tokens with a verifier that repeats what is known already.
func known(next http.Handler) http.Handler {
	verify := func(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
		info, ok := ctx.Value(infoKey{}).(*auth.TokenInfo)
		if !ok {
			return nil, auth.ErrInvalidToken
		}
		return info, nil
	}
	return auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
}

// offers reports whether the server has a method of the protocol.
func (s *Server) offers(method string) bool {
	if s.extension != nil {
		return true
	}
	switch {
	case strings.HasPrefix(method, "prompts/"), strings.HasPrefix(method, "resources/"),
		strings.HasPrefix(method, "completion/"), strings.HasPrefix(method, "logging/"),
		strings.HasPrefix(method, "subscriptions/"):
		return false
	}
	return true
}

// transports makes the SDK's two handlers: one that knows no sessions, and one for clients of older revisions that can be
// asked questions, which need one.
func (s *Server) transports() (stateless, stateful http.Handler) {
	get := func(*http.Request) *sdk.Server { return s.sdk }
	// Whoever serves this checks the host, by name.
	common := sdk.StreamableHTTPOptions{DisableLocalhostProtection: true, MaxRequestBodyBytes: s.o.MaxBody}
	without, with := common, common // the sessions' own ends are in sessions.go
	without.Stateless = true
	without.PropagateRequestCancellation = true
	return known(sdk.NewStreamableHTTPHandler(get, &without)), known(sdk.NewStreamableHTTPHandler(get, &with))
}
