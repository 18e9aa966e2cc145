package mcp

import (
	"net/http"
	"slices"
	"sync"
	"time"

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

	most int
	idle time.Duration // unused for so long, a session ends

	mu     sync.Mutex
	closed bool
	open   map[string]*session // by id
	grants map[string]int      // how many a connection has
	ended  []string            // the last that their clients ended, the oldest first
}

// session is one that is kept.
type session struct {
	grantID string
	busy    int  // requests under way
	ended   bool // by its client
	unused  *time.Timer
}

// maxEnded is how many sessions are remembered that their clients ended.
const maxEnded = 4096

func (s *sessions) init(most int, idle time.Duration) {
	s.most, s.idle = most, max(idle, time.Second)
	s.open, s.grants = map[string]*session{}, map[string]int{}
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
	kept, ok := s.open[id]
	return ok && kept.grantID == grantID && !kept.ended
}

// use says that a request of a session begins, if the connection has it here, and returns what says that it is over.
func (s *sessions) use(grantID, id string) (over func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, ok := s.open[id]
	if !ok || kept.grantID != grantID {
		return func() {}
	}
	kept.busy++
	kept.unused.Stop()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if kept.busy--; kept.busy == 0 && s.open[id] == kept {
			kept.unused.Reset(s.idle)
		}
	}
}

// end remembers that a client ends its session: what still names it is told so, as the transport wants it (404).
func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ended) >= maxEnded {
		s.ended = slices.Clone(s.ended[maxEnded/2:])
	}
	s.ended = append(s.ended, id)
	if kept, ok := s.open[id]; ok {
		kept.ended = true // it leaves open a moment later, when its client may have its answer already
	}
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
func (s *sessions) add(grantID string, opened *sdk.ServerSession) bool {
	id := opened.ID()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.open) >= s.most || s.grants[grantID] >= maxSessionsOfGrant {
		return false
	}
	kept := &session{grantID: grantID, unused: time.AfterFunc(s.idle, func() { _ = opened.Close() })}
	s.open[id] = kept
	s.grants[grantID]++
	go func() {
		_ = opened.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		kept.unused.Stop()
		delete(s.open, id)
		if s.grants[grantID]--; s.grants[grantID] <= 0 {
			delete(s.grants, grantID)
		}
	}()
	return true
}

// route chooses the SDK's handler of a request. id is the session's that the request names, "" if it names none.
func (s *Server) route(r *http.Request, g oauth.Grant, messages []message, id string) http.Handler {
	if r.Header.Get(headerProtocol) >= revisionStateless {
		return s.sessions.stateless
	}
	if id != "" {
		if !s.sessions.has(g.ID, id) {
			return s.sessions.stateless
		}
		if r.Method == http.MethodDelete {
			s.sessions.end(id)
		}
		return s.sessions.stateful
	}
	for _, m := range messages {
		asks := m.Params.Capabilities.Elicitation != nil || s.extension != nil && s.extension.Sessions
		if m.Method == "initialize" && asks && s.sessions.room(g.ID) {
			return s.sessions.stateful
		}
	}
	return s.sessions.stateless
}
