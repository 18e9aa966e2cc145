//nolint:staticcheck // sampling and roots are deprecated, and what the fixtures ask for
package conformance_test

import (
	"context"
	"net/http/httptest"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/e2e/connect/conformance"
)

// connect starts a server with the fixtures and returns a client of an era that can be asked everything.
func connect(t *testing.T, era string) *sdk.ClientSession {
	t.Helper()
	o := &sdk.ServerOptions{}
	conformance.Options(o)
	server := sdk.NewServer(&sdk.Implementation{Name: "fixtures", Version: "1"}, o)
	conformance.Register(server)
	front := httptest.NewServer(conformance.Handler(server))
	t.Cleanup(front.Close)
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{
				"name": "Ada", "color": "teal", "ok": true, "username": "ada", "email": "ada@example.com", "context": "all of it",
			}}, nil
		},
		CreateMessageHandler: func(context.Context, *sdk.CreateMessageRequest) (*sdk.CreateMessageResult, error) {
			return &sdk.CreateMessageResult{Model: "m", Role: "assistant", Content: &sdk.TextContent{Text: "Paris"}}, nil
		},
	})
	c.AddRoots(&sdk.Root{URI: "file:///root", Name: "root"})
	session, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: front.URL + "/mcp", MaxRetries: -1},
		&sdk.ClientSessionOptions{ProtocolVersion: era})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = session.Close()
		for s := range server.Sessions() {
			_ = s.Close()
		}
	})
	return session
}

func says(t *testing.T, c *sdk.ClientSession, name string, arguments map[string]any) string {
	t.Helper()
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	require.NoError(t, err)
	require.NotEmpty(t, res.Content)
	text, ok := res.Content[0].(*sdk.TextContent)
	require.True(t, ok)
	return text.Text
}

func TestFixturesAnswerBothEras(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			c := connect(t, era)
			require.Contains(t, says(t, c, "test_simple_text", nil), "simple text")
			require.Contains(t, says(t, c, "test_tool_with_logging", nil), "successfully")
			require.Contains(t, says(t, c, "test_error_handling", nil), "intentionally")
			require.Equal(t, "Hello, Ada!", says(t, c, "test_input_required_result_elicitation", nil))
			prompts, err := c.ListPrompts(t.Context(), nil)
			require.NoError(t, err)
			require.Len(t, prompts.Prompts, 5)
			res, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "test://template/9/data"})
			require.NoError(t, err)
			assert.Contains(t, res.Contents[0].Text, `"id":"9"`)
		})
	}
}

func TestFixturesAskInRounds(t *testing.T) {
	t.Parallel()
	c := connect(t, "2026-07-28")
	require.Equal(t, "Ada likes teal.", says(t, c, "test_input_required_result_multi_round", nil))
	require.Equal(t, "Paris, Ada! 1 roots.", says(t, c, "test_input_required_result_multiple_inputs", nil))
	require.Contains(t, says(t, c, "test_input_required_result_request_state", nil), "state-ok")
	_, err := c.CallTool(t.Context(), &sdk.CallToolParams{
		Name: "test_input_required_result_tampered_state", RequestState: "made up",
	})
	require.Error(t, err)
}

func TestFixturesAskInTheMiddleOfACall(t *testing.T) {
	t.Parallel()
	c := connect(t, "2025-11-25")
	assert.Equal(t, "LLM response: Paris", says(t, c, "test_sampling", map[string]any{"prompt": "Capital?"}))
	assert.Contains(t, says(t, c, "test_elicitation", map[string]any{"message": "Who?"}), "action=accept")
}
