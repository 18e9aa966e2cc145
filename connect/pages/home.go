package pages

import (
	"net/http"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
)

// Explain returns a handler for the MCP endpoint that responds with a page if a browser opens it, and calls next otherwise.
func (p *Pages) Explain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !opens(r) {
			next.ServeHTTP(w, r)
			return
		}
		requestlog.From(r.Context()).Add(func(f *requestlog.Fields) { f.Page = r.URL.Path })
		w.Header().Add("Vary", "Accept, Authorization")
		p.secure(w.Header())
		_ = p.showHome(w, r)
	})
}

// opens reports whether a browser opens the MCP endpoint as a page. MCP clients accept JSON or server-sent events.
func opens(r *http.Request) bool {
	accept := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Authorization") == "" &&
		strings.Contains(accept, "text/html") && !strings.Contains(accept, "text/event-stream") && !strings.Contains(accept, "json")
}

func (p *Pages) showHome(w http.ResponseWriter, r *http.Request) error {
	p.render(w, r, http.StatusOK, "home", frame{Title: "Connect an assistant"}, p.issuer+oauth.ResourcePath)
	return nil
}
