package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/processtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// authorized adds a token to requests.
type authorized string

func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(a))
	return http.DefaultTransport.RoundTrip(r)
}

// The example of orders has ten tools without any Go of the gateway's, which a real client uses as docs/your-own-api.md says.
func TestAssistantsUseTheToolsOfAnotherPlatform(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.Options{})
	addr := gatewaytest.FreeAddr(t)
	cmd := exec.CommandContext(context.Background(), gatewaytest.Program(t, "./examples/orders"), "-listen", addr, "-gateway", g.URL) // ended below
	service, err := processtest.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(service.Kill)
	require.Eventually(t, func() bool {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", addr)
		return err == nil && conn.Close() == nil
	}, time.Minute, 10*time.Millisecond)

	out, err := exec.CommandContext(t.Context(), "openssl", "genpkey", "-algorithm", "ed25519", "-out", filepath.Join(g.Dir, "hop.pem")).CombinedOutput()
	require.NoError(t, err, string(out))
	store, err := file.Open(filepath.Join(g.Dir, "keys.json"), file.Options{Create: true})
	require.NoError(t, err)
	require.NoError(t, store.Close())
	examples, err := filepath.Abs("../examples/orders")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(examples, "assistants.Caddyfile"))
	require.NoError(t, err)
	caddyfile := strings.NewReplacer("{\n\tgatehouse {", "{\n\tadmin "+strings.TrimPrefix(g.AdminURL, "http://")+"\n\tgatehouse {",
		"localhost:6379", redistest.Start(t).Addr, "http://localhost:8080", g.URL, "http://localhost:8081", "http://"+addr,
		"issuer ", longConnectTimeout+"\n\t\tissuer ").Replace(string(text))
	caddyfile = regexp.MustCompile(`\b(keys\.json|hop\.pem)`).ReplaceAllString(caddyfile, g.Dir+"/$1")
	g.Write(t, regexp.MustCompile(`\borders\.\w+\.yaml`).ReplaceAllString(caddyfile, `"`+examples+`/$0"`))
	g.Run(t)
	t.Cleanup(func() { g.Stop(t) })

	owner := newBrowser(t, g.URL)
	owner.signIn(demo.Account{Email: "ines@example.com", Password: "correct horse battery staple"})
	a := approved(t, owner, "mcp:use", "customers:write", "orders:write", "shipments:write")
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: g.URL + "/mcp", HTTPClient: &http.Client{Transport: authorized(a.Access)}, DisableStandaloneSSE: true,
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	assert.Contains(t, session.InitializeResult().Instructions, "customers, orders, the shipments of orders")
	assert.Contains(t, session.InitializeResult().Instructions, "in euros")
	assert.NotContains(t, session.InitializeResult().Instructions, "at most 100", "what is said of the embedded tools")

	listed, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, listed.Tools, 10)
	call := func(name string, arguments map[string]any) (content map[string]any, text string, failed bool) {
		res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
		require.NoError(t, err, name)
		require.NotEmpty(t, res.Content, name)
		encoded, err := json.Marshal(res.StructuredContent)
		require.NoError(t, err)
		_ = json.Unmarshal(encoded, &content)
		shown, ok := res.Content[0].(*sdk.TextContent)
		require.True(t, ok)
		return content, shown.Text, res.IsError
	}
	done := func(name string, arguments map[string]any) map[string]any {
		t.Helper()
		content, text, failed := call(name, arguments)
		require.False(t, failed, "%s: %s", name, text)
		assert.NotContains(t, text, `"account"`, "nobody sees whose it is")
		assert.NotContains(t, text, "margin", "nor what is internal")
		return content
	}

	customers, _ := done("customers_list", nil)["customers"].([]any)
	require.Len(t, customers, 2, "those of another business are not there")
	customer := done("customers_create", map[string]any{"name": "Zoe", "email": "zoe@example.com"})
	again := done("customers_create", map[string]any{"name": "Zoe", "email": "zoe@example.com"})
	assert.Equal(t, customer["id"], again["id"])
	assert.Equal(t, true, again["repeated"])
	assert.Equal(t, "Zoe", done("customers_get", map[string]any{"customer_id": customer["id"]})["name"])
	lines := []any{map[string]any{"sku": "A-1", "quantity": "2"}} // in quotes
	assert.Equal(t, "39.80", done("quotes_get", map[string]any{"lines": lines})["total"])
	order := done("orders_create", map[string]any{"customer_id": customer["id"], "lines": lines, "note": "Ring twice"})
	assert.Equal(t, "39.80", order["total"])

	id := order["id"]
	_, text2, failed := call("orders_update", map[string]any{"order_id": id, "status": "paid"})
	require.True(t, failed, "a status needs a confirmation")
	require.Contains(t, text2, fmt.Sprintf(`Change the order %q of %q: status "paid"?`, id, customer["id"]))
	token := regexp.MustCompile(`"confirm": "(\w+)"`).FindStringSubmatch(text2)
	require.NotNil(t, token, text2)
	changed := done("orders_update", map[string]any{"order_id": id, "status": "paid", "confirm": token[1]})
	assert.Equal(t, "paid", changed["status"])
	assert.Equal(t, "Ring twice", changed["note"], "what is not mentioned is kept")
	assert.Equal(t, "paid", done("orders_get", map[string]any{"order_id": id})["status"])
	orders, _ := done("orders_list", map[string]any{"status": "paid", "fields": []any{"note"}, "limit": 1})["orders"].([]any)
	require.Equal(t, []any{map[string]any{"id": id, "note": "Ring twice"}}, orders)
	done("shipments_create", map[string]any{"order_id": id, "carrier": "post", "tracking_number": "RR1234"})
	shipments, _ := done("shipments_list", map[string]any{"order_id": id})["shipments"].([]any)
	require.Len(t, shipments, 1)
	_, missing, failed := call("orders_get", map[string]any{"order_id": "o-2"})
	require.True(t, failed, "another business's")
	assert.Contains(t, missing, "NOT_FOUND")

	activity := owner.open("/settings/activity")
	for _, sentence := range []string{">Added the customer Zoe<", ">Changed the order", ">Added the shipment RR1234<", "through <bdi>Test Assistant<"} {
		assert.Contains(t, activity.Text, sentence)
	}
}
