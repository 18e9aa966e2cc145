package mcp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
)

// revisionModern is the first revision of MCP without initialization and sessions.
const revisionModern = "2026-07-28"

const methodToolsCall = "tools/call"

// Headers of the transport.
const (
	headerProtocolVersion = "Mcp-Protocol-Version"
	headerSession         = "Mcp-Session-Id"
	headerMethod          = "Mcp-Method"
	headerName            = "Mcp-Name"
)

// CORS response headers for allowed origins.
const (
	corsMethods = "POST, GET, DELETE, OPTIONS"
	corsHeaders = "Authorization, Content-Type, Accept, Last-Event-Id, Mcp-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name"
	corsExposed = "WWW-Authenticate, Mcp-Session-Id, Mcp-Protocol-Version, X-Request-Id, Retry-After"
)

// Guard rejects requests with an Origin other than Options.Origin, sets the CORS headers and responds to preflight
// requests. The caller has to check the Host header, against DNS rebinding.
func (s *Server) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origins := r.Header.Values("Origin")
		w.Header().Add("Vary", "Origin")
		if len(origins) > 0 {
			if len(origins) > 1 || origins[0] != s.o.Origin {
				writeError(w, r, http.StatusForbidden, nil, codeInvalidRequest, "origin not allowed")
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

// Fail responds with a JSON-RPC error to a request whose message was not read.
func Fail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	code := codeInvalidRequest
	if status >= http.StatusInternalServerError {
		code = codeInternalError
	}
	w.Header().Set("Cache-Control", "no-store")
	writeError(w, r, status, nil, code, detail)
}

// writeError responds with a JSON-RPC error, and adds it to the request's log entry.
func writeError(w http.ResponseWriter, r *http.Request, status int, id jsontext.Value, code int, message string) {
	requestlog.From(r.Context()).Fail(codeName(code), errors.New(message))
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
	ctx := r.Context()
	entry := requestlog.From(ctx)
	if g, ok := oauth.GrantFrom(ctx); !ok || g.ID == "" || g.BusinessID == "" || g.AccountID == "" {
		entry.Fail(codeName(codeInternalError), errors.New("request without a grant reached the MCP server"))
		writeError(w, r, http.StatusInternalServerError, nil, codeInternalError, "internal error")
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	for _, name := range []string{headerProtocolVersion, headerMethod, headerName, headerSession, "Content-Type", "Last-Event-Id"} {
		if len(r.Header.Values(name)) > 1 {
			writeError(w, r, http.StatusBadRequest, nil, sdk.CodeHeaderMismatch, name+" is given more than once")
			return
		}
	}
	if r.Method != http.MethodPost {
		s.handler.ServeHTTP(w, r)
		return
	}
	body, ok := s.readBody(w, r)
	if !ok {
		return
	}
	m, err := readMessage(body)
	if err != nil {
		writeError(w, r, http.StatusBadRequest, nil, codeParse, err.Error())
		return
	}
	logMessage(ctx, m)
	if r.Header.Get(headerProtocolVersion) >= revisionModern && !s.supportsMethod(m.Method) {
		entry.Fail(codeName(codeMethodNotFound), errUnknownMethod)
		writeError(w, r, http.StatusNotFound, m.ID, codeMethodNotFound, "this server does not offer "+m.Method)
		return
	}
	if !validTransport(r.Header) {
		entry.Fail(codeName(codeInvalidRequest), errTransport)
		s.serveWithSDK(w, r, m) // rejects it
		return
	}
	c, err := s.readCall(r, m)
	if rejected, ok := errors.AsType[*protocolError](err); ok {
		writeError(w, r, rejected.status, m.ID, rejected.code, rejected.reason)
		return
	}
	if err != nil { // errNotToolCall
		s.serveWithSDK(w, r, m)
		return
	}
	s.serveCall(w, r, c)
}

// readBody reads the request body and replaces it with a copy for the SDK.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		writeError(w, r, http.StatusRequestEntityTooLarge, nil, codeInvalidRequest, "the body is too large")
		return nil, false
	}
	if err != nil {
		writeError(w, r, http.StatusBadRequest, nil, codeParse, "the body cannot be read")
		return nil, false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, true
}

// supportsMethod reports whether the server offers a method of the protocol.
func (s *Server) supportsMethod(method string) bool {
	area, _, _ := strings.Cut(method, "/")
	return !slices.Contains(s.unsupported, area)
}
