package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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
				writeError(w, http.StatusForbidden, nil, codeInvalidRequest, "pages of this origin may not call")
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
	code := codeInvalidRequest
	if status >= http.StatusInternalServerError {
		code = codeRPCInternal
	}
	w.Header().Set("Cache-Control", "no-store")
	writeError(w, status, nil, code, detail)
}

// writeError responds with a JSON-RPC error.
func writeError(w http.ResponseWriter, status int, id jsontext.Value, code int, message string) {
	body, err := json.Marshal(errorMessage(id, code, message))
	if err != nil {
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func errorMessage(id jsontext.Value, code int, text string) any {
	type rpcError struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	if len(id) == 0 {
		id = jsontext.Value("null")
	}
	return struct {
		Version string         `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Error   rpcError       `json:"error"`
	}{"2.0", id, rpcError{code, text}}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	grant, ok := oauth.GrantFrom(r.Context())
	if !ok || grant.ID == "" || grant.BusinessID == "" || grant.AccountID == "" {
		s.log.Error("a request without a connection reached the MCP server")
		writeError(w, http.StatusInternalServerError, nil, codeRPCInternal, "internal error")
		return
	}
	g := grantOf{Grant: grant, requestID: s.o.RequestID(r)}
	w.Header().Set("Cache-Control", "no-store")
	for _, name := range []string{headerProtocol, headerMethod, headerName, headerSession, "Content-Type", "Last-Event-Id"} {
		if len(r.Header.Values(name)) > 1 {
			writeError(w, http.StatusBadRequest, nil, sdk.CodeHeaderMismatch, name+" is given more than once")
			return
		}
	}
	if r.Method != http.MethodPost {
		s.handler.ServeHTTP(w, s.identify(r, g))
		return
	}
	body, ok := s.readBody(w, r)
	if !ok {
		return
	}
	m, err := readMessage(body)
	if err != nil {
		writeError(w, http.StatusBadRequest, nil, codeParse, err.Error())
		return
	}
	if r.Header.Get(headerProtocol) >= revisionStateless && !s.offers(m.Method) {
		writeError(w, http.StatusNotFound, m.ID, codeMethodNotFound, "this server does not offer "+m.Method)
		return
	}
	c, err := s.readCall(r, m)
	var refused *protocolError
	switch {
	case !supported(r.Header): // as the SDK says
	case errors.As(err, &refused):
		writeError(w, refused.status, m.ID, refused.code, refused.reason)
		return
	case c != nil:
		c.grant = g
		if !grant.Scopes.Allows(c.tool.scope) {
			s.refuseScope(r.Context(), w, c)
			return
		}
		s.serveCall(w, r, c)
		return
	}
	r = s.identify(r, g)
	if m.ID != nil && !plainID(m.ID) {
		withID(s.handler, w, r, m)
		return
	}
	s.handler.ServeHTTP(w, r)
}

// readBody reads a request's body into memory, so that it can be read again.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.o.MaxBody))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		s.log.Debug("body too large", zap.Int64("limit", tooLarge.Limit))
		writeError(w, http.StatusRequestEntityTooLarge, nil, codeInvalidRequest, "the body is too large")
		return nil, false
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, nil, codeParse, "the body cannot be read")
		return nil, false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, true
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

// transport makes the SDK's handler. It keeps no sessions: gateways of a fleet share nothing but Redis.
func (s *Server) transport() http.Handler {
	get := func(*http.Request) *sdk.Server { return s.sdk }
	o := sdk.StreamableHTTPOptions{
		DisableLocalhostProtection: true, // whoever serves this checks the host, by name
		MaxRequestBodyBytes:        s.o.MaxBody,
	}
	with := o
	o.Stateless, o.PropagateRequestCancellation = true, true
	stateless := known(sdk.NewStreamableHTTPHandler(get, &o))
	if s.extension == nil || !s.extension.Sessions {
		return stateless
	}
	stateful := known(sdk.NewStreamableHTTPHandler(get, &with))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerProtocol) >= revisionStateless {
			stateless.ServeHTTP(w, r)
			return
		}
		stateful.ServeHTTP(w, r)
	})
}
