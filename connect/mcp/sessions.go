package mcp

import (
	"net/http"
	"slices"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
)

// sessions are those of clients of revisions before 2026-07-28 that can be asked questions (elicitation): there, the
// server asks in the middle of a call, and the answer comes with another request.
//
// A session is a gateway's own. A request that names one which is not here (another gateway has it, it has ended, the
// gateway was restarted) is served without: every tool works, only the person cannot be asked, and the tools that would
// have asked want an explicit confirmation instead. So no client has to begin anew, and gateways need not share anything.
type sessions struct {
	stateless, stateful http.Handler

	mu     sync.Mutex
	most   int
	closed bool
	open   map[string]string // by id: the connection
	grants map[string]int    // how many a connection has
	ended  []string          // the last that their clients ended, the oldest first
}

// maxEnded is how many sessions are remembered that their clients ended.
const maxEnded = 4096

func (s *sessions) init(most int) {
	s.most = most
	s.open, s.grants = map[string]string{}, map[string]int{}
}

// close keeps new ones from being opened.
func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// has reports whether the connection has the session here.
func (s *sessions) has(grantID, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner, ok := s.open[id]
	return ok && owner == grantID
}

// end remembers that a client ends its session: what still names it is told so, as the transport wants it (404).
func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ended) >= maxEnded {
		s.ended = slices.Clone(s.ended[maxEnded/2:])
	}
	s.ended = append(s.ended, id)
}

// hasEnded reports whether a client has ended the session.
func (s *sessions) hasEnded(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.ended, id)
}

// room reports whether the connection may have another one.
func (s *sessions) room(grantID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && len(s.open) < s.most && s.grants[grantID] < maxSessionsOfGrant
}

// add remembers a session until it ends. One that there is no room for any more is refused.
func (s *sessions) add(grantID string, session *sdk.ServerSession) bool {
	id := session.ID()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.open) >= s.most || s.grants[grantID] >= maxSessionsOfGrant {
		return false
	}
	s.open[id] = grantID
	s.grants[grantID]++
	go func() {
		_ = session.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, id)
		if s.grants[grantID]--; s.grants[grantID] <= 0 {
			delete(s.grants, grantID)
		}
	}()
	return true
}

// route chooses the handler of a request that has or wants a session; nil for one that has not and does not.
func (s *Server) route(r *http.Request, g oauth.Grant, messages []message, modern bool) http.Handler {
	if modern {
		return nil
	}
	if id := r.Header.Get(headerSession); id != "" {
		switch {
		case s.sessions.has(g.ID, id):
			if r.Method == http.MethodDelete {
				s.sessions.end(id)
			}
			return s.sessions.stateful
		case s.sessions.hasEnded(id):
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				writeError(w, http.StatusNotFound, nil, -32001, "this session has ended")
			})
		}
		return nil
	}
	for _, m := range messages {
		asks := m.Params.Capabilities.Elicitation != nil || s.extension != nil && s.extension.Sessions
		if m.Method == "initialize" && asks && s.sessions.room(g.ID) {
			return s.sessions.stateful
		}
	}
	return nil
}
