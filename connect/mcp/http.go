package mcp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
)

const (
	revisionModern     = "2026-07-28" // the first revision of MCP without initialization and sessions
	revisionStructured = "2025-06-18" // the first one with structured content

	methodToolsCall = "tools/call"
	methodToolsList = "tools/list"
)

// offers reports whether the server serves requests with the method, in the protocol revisions that have it.
func offers(method string) bool {
	return slices.Contains([]string{"initialize", "ping", "server/discover", methodToolsList, methodToolsCall}, method)
}

// Headers of the transport.
const (
	headerProtocolVersion = "Mcp-Protocol-Version"
	headerSession         = "Mcp-Session-Id"
	headerMethod          = "Mcp-Method"
	headerName            = "Mcp-Name"
)

// Guard rejects requests with an Origin other than Options.Origin, whose scripts need no CORS headers. The caller must check the Host
// header, to prevent DNS rebinding.
func (s *Server) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		if origins := r.Header.Values("Origin"); len(origins) > 1 || len(origins) > 0 && origins[0] != s.o.Origin {
			writeError(w, r, http.StatusForbidden, nil, jsonrpc.CodeInvalidRequest, "origin not allowed", nil)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Fail responds with a JSON-RPC error to a request whose message was not read. Its id is null.
func Fail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	code := jsonrpc.CodeInvalidRequest
	if status >= http.StatusInternalServerError {
		code = jsonrpc.CodeInternalError
	}
	w.Header().Set("Cache-Control", "no-store")
	writeError(w, r, status, nil, code, detail, nil)
}

// writeError responds with a JSON-RPC error, and adds it to the request's log entry. data may be nil.
func writeError(w http.ResponseWriter, r *http.Request, status int, id jsontext.Value, code int, text string, data jsontext.Value) {
	requestlog.From(r.Context()).Fail(codeName(code), errors.New(text))
	failed := encode(jsonrpc.Error{Code: int64(code), Message: text, Data: []byte(data)})
	if id == nil {
		id = jsontext.Value("null")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(message{Version: "2.0", ID: id, Error: failed}))
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	entry := requestlog.From(ctx)
	g, ok := oauth.GrantFrom(ctx)
	if !ok || g.ID == "" || g.BusinessID == "" || g.AccountID == "" {
		entry.Fail(codeName(jsonrpc.CodeInternalError), errors.New("request without a grant reached the MCP server"))
		writeError(w, r, http.StatusInternalServerError, nil, jsonrpc.CodeInternalError, "internal error", nil)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	for _, name := range []string{headerProtocolVersion, headerMethod, headerName, headerSession, "Content-Type", "Last-Event-Id"} {
		if len(r.Header.Values(name)) > 1 {
			writeError(w, r, http.StatusBadRequest, nil, sdk.CodeHeaderMismatch, name+" is given more than once", nil)
			return
		}
	}
	var m message
	var c *toolCall
	err := errNotToolCall
	if r.Method == http.MethodPost {
		var body []byte
		if body, err = readBody(w, r); err == nil {
			m, err = readMessage(body)
		}
		if err == nil {
			logMessage(ctx, m)
			c, err = s.readCall(r, m)
		}
	}
	if err == nil {
		s.serveCall(w, r, c) // which checks the rate limit
		return
	}
	rejected, ok := errors.AsType[*protocolError](err)
	// Notifications are counted but not rejected, because clients do not repeat them.
	isNotification := !ok && m.ID == nil && r.Method == http.MethodPost
	if wait := s.limit(ctx, w.Header(), g.ID); wait > 0 && !isNotification {
		entry.Fail(codeRate, errTooManyCalls)
		writeError(w, r, http.StatusTooManyRequests, m.ID, jsonrpc.CodeInternalError, "rate limit exceeded. "+retryIn(wait), nil)
		return
	}
	if ok {
		if r.Header.Get(headerProtocolVersion) < revisionModern && (rejected.code == jsonrpc.CodeMethodNotFound || rejected.code == jsonrpc.CodeInvalidParams) {
			rejected.status = http.StatusOK // older clients do not read JSON-RPC errors with another status
		}
		entry.Fail(codeName(rejected.code), rejected)
		writeError(w, r, rejected.status, m.ID, rejected.code, rejected.message(), nil)
		return
	}
	s.serveWithSDK(w, r, m)
}

// readBody reads the request's body and replaces it with a copy for the SDK. Its error is a *protocolError.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &protocolError{status: http.StatusRequestEntityTooLarge, code: jsonrpc.CodeInvalidRequest, reason: "the body is too large"}
	}
	if err != nil {
		return nil, badRequest(jsonrpc.CodeParseError, "the body cannot be read")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}
