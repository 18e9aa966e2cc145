package oauth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// callDataService stands for the function that makes calls to data services.
func callDataService(context.Context, upstream.Call) (*upstream.Response, error) {
	return nil, errors.New("there is no data service")
}

// The endpoints beside what they protect.
func Example() {
	store := miniredis.NewMiniRedis()
	if err := store.Start(); err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	client := redis.NewClient(&redis.Options{Addr: store.Addr()})
	defer func() { _ = client.Close() }()

	log, err := audit.New(audit.Options{Redis: client, Log: zap.NewNop()})
	if err != nil {
		fmt.Println(err)
		return
	}
	accounts, err := account.NewClient(data.Options{
		Host: "data.internal:8080", Do: callDataService, Timeout: 15 * time.Second,
		Log: zap.NewNop(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	server, err := oauth.New(oauth.Options{
		Issuer: "https://api.example.com", Redis: client, Accounts: accounts, Audit: log,
		Areas: scope.New([]definition.Area{{Name: "contacts", Title: "Contacts", Read: "See contacts", Write: "Change contacts"}}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	for _, path := range server.Paths() {
		mux.Handle(path, server.Handler())
	}
	mux.Handle("/mcp", server.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		grant, _ := oauth.GrantFrom(r.Context())
		if !grant.Scopes.Allows("contacts:read") {
			server.InsufficientScope(w.Header(), "contacts:read")
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = fmt.Fprintln(w, "hello,", grant.ClientName)
	})))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody))
	fmt.Println(w.Code, w.Header().Get("WWW-Authenticate"))
	// Output: 401 Bearer resource_metadata="https://api.example.com/.well-known/oauth-protected-resource/mcp", scope="mcp:write"
}
