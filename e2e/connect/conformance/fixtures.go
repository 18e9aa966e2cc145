//nolint:staticcheck // sampling, roots and logging are deprecated, and what the suite asks for
package conformance

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	_ "embed" // for the fixtures
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"text/template"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// fixtures are what the suite calls, with the protocol's own JSON of results, messages and questions.
//
//go:embed fixtures.json
var fixtures []byte

type result = sdk.CallToolResult

// Options changes the options of a server that gets the fixtures.
func Options(o *sdk.ServerOptions) {
	o.Capabilities = &sdk.ServerCapabilities{Logging: &sdk.LoggingCapabilities{}}
	o.CompletionHandler = func(context.Context, *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
		return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{}}}, nil
	}
	o.SubscribeHandler = func(context.Context, *sdk.SubscribeRequest) error { return nil }
	o.UnsubscribeHandler = func(context.Context, *sdk.UnsubscribeRequest) error { return nil }
}

// Handler returns the handler of a server with the fixtures. It keeps a session for every client of a revision before
// 2026-07-28, because the fixtures ask these clients for samples and responses.
func Handler(s *sdk.Server) http.Handler {
	get := func(*http.Request) *sdk.Server { return s }
	sessions := sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{DisableLocalhostProtection: true})
	stateless := sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, DisableLocalhostProtection: true,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= "2026-07-28" {
			stateless.ServeHTTP(w, r)
			return
		}
		sessions.ServeHTTP(w, r)
	})
}

// Register adds the fixtures to a server.
func Register(s *sdk.Server) {
	var all struct {
		Tools []struct {
			sdk.Tool
			Result *result // of every call; nil: it has rounds, or is one of the handlers
			Rounds rounds
		}
		Prompts []struct {
			sdk.Prompt
			Messages json.RawMessage // with the arguments
			Rounds   rounds
		}
		Resources []struct {
			sdk.Resource
			Contents sdk.ResourceContents
		}
	}
	if err := json.Unmarshal(fixtures, &all); err != nil {
		panic(err) // the file is a part of the program
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	own := handlers(s)
	for _, t := range all.Tools {
		h := own[t.Name]
		switch {
		case t.Result != nil:
			h = func(context.Context, *sdk.CallToolRequest) (*result, error) { return new(*t.Result), nil }
		case t.Rounds != nil:
			h = func(_ context.Context, r *sdk.CallToolRequest) (*result, error) {
				var arguments map[string]string
				if err := json.Unmarshal(r.Params.Arguments, &arguments); err != nil && len(r.Params.Arguments) > 0 {
					return nil, err
				}
				asks, text, err := t.Rounds.next(secret, arguments, r.ClientCapabilities(), r.Params.RequestState, r.Params.InputResponses)
				if asks == nil {
					return says(text), err
				}
				return &result{InputRequests: asks, RequestState: text}, err
			}
		}
		add(s, &t.Tool, h)
	}
	for _, p := range all.Prompts {
		s.AddPrompt(&p.Prompt, func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			res := &sdk.GetPromptResult{}
			if p.Rounds == nil {
				return res, fillJSON(p.Messages, r.Params.Arguments, &res.Messages)
			}
			asks, text, err := p.Rounds.next(secret, r.Params.Arguments, r.ClientCapabilities(), r.Params.RequestState, r.Params.InputResponses)
			if res.InputRequests = asks; asks == nil {
				res.Messages = []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: text}}}
			} else {
				res.RequestState = text
			}
			return res, err
		})
	}
	for _, r := range all.Resources {
		s.AddResource(&r.Resource, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{new(r.Contents)}}, nil
		})
	}
	s.AddResourceTemplate(
		&sdk.ResourceTemplate{
			URITemplate: "test://template/{id}/data", Name: "template", MIMEType: "application/json", Description: "Fixture.",
		},
		func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(r.Params.URI, "test://template/"), "/data")
			text, err := json.Marshal(map[string]any{"id": id, "templateTest": true, "data": "Data for ID: " + id})
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{
				{URI: r.Params.URI, MIMEType: "application/json", Text: string(text)},
			}}, err
		})
}

// add adds a tool. Without a schema, it takes no arguments.
func add(s *sdk.Server, t *sdk.Tool, h sdk.ToolHandler) {
	if t.InputSchema == nil {
		t.InputSchema = map[string]any{"type": "object"}
	}
	s.AddTool(t, h)
}

func says(text string) *result {
	return &result{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// handlers are those of the tools that do more than to answer or to ask.
func handlers(s *sdk.Server) map[string]sdk.ToolHandler {
	echo := func(_ context.Context, r *sdk.CallToolRequest) (*result, error) {
		return says(string(r.Params.Arguments)), nil
	}
	return map[string]sdk.ToolHandler{
		"json_schema_2020_12_tool": echo,
		"test_x_mcp_header":        echo,
		"test_tool_with_logging":   logging("Tool execution started", "Tool processing data", "Tool execution completed"),
		"test_logging_tool":        logging("Tool execution started"),
		"test_tool_with_progress": func(ctx context.Context, r *sdk.CallToolRequest) (*result, error) {
			token := r.Params.GetProgressToken()
			for _, progress := range []float64{0, 50, 100} {
				if err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
					ProgressToken: token, Progress: progress, Total: 100, Message: fmt.Sprintf("%.0f of 100", progress),
				}); err != nil {
					return nil, err
				}
				pause(ctx)
			}
			return says(fmt.Sprint(token)), nil
		},
		"test_missing_capability": func(_ context.Context, r *sdk.CallToolRequest) (*result, error) {
			if c := r.ClientCapabilities(); c != nil && c.Sampling != nil {
				return says("The client can sample."), nil
			}
			return nil, &jsonrpc.Error{
				Code: sdk.CodeMissingRequiredClientCapabilities, Message: "the client has not declared sampling",
				Data: json.RawMessage(`{"requiredCapabilities":{"sampling":{}}}`),
			}
		},
		"test_trigger_tool_change": func(context.Context, *sdk.CallToolRequest) (*result, error) {
			add(s, &sdk.Tool{Name: "test_transient", Description: "Fixture: comes with a change."}, echo)
			return says("The list of tools has changed."), nil
		},
		"test_trigger_prompt_change": func(context.Context, *sdk.CallToolRequest) (*result, error) {
			s.AddPrompt(&sdk.Prompt{Name: "test_transient", Description: "Fixture: comes with a change."},
				func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
					return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{}}, nil
				})
			return says("The list of prompts has changed."), nil
		},
	}
}

func logging(texts ...string) sdk.ToolHandler {
	return func(ctx context.Context, r *sdk.CallToolRequest) (*result, error) {
		for _, text := range texts {
			if err := r.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: text}); err != nil {
				return nil, err
			}
			pause(ctx)
		}
		return says("Tool with logging executed successfully"), nil
	}
}

// pause waits a moment between messages.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

// rounds are the questions to the client before there is a result. Clients of a revision before 2026-07-28 get them from the
// SDK, in the middle of the call.
type rounds []struct {
	Asks json.RawMessage // an [sdk.InputRequestMap] with the call's arguments
	Then string          // a text with the responses, and as "before" that of the round before; the last is the result
}

// next returns the questions of the next round and its state, or the text of the result.
func (all rounds) next(
	secret []byte, arguments map[string]string, can *sdk.ClientCapabilities, state string, responses sdk.InputResponseMap,
) (asks sdk.InputRequestMap, text string, err error) {
	at := 0
	if state != "" {
		opened, ok := unseal(secret, state)
		if !ok {
			return nil, "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "requestState was not made here"}
		}
		at, text = int(opened[0]-'0'), opened[1:]
	}
	for ; at < len(all); at, state = at+1, "" {
		asks = nil
		if err := fillJSON(all[at].Asks, arguments, &asks); err != nil {
			return nil, "", err
		}
		maps.DeleteFunc(asks, func(_ string, q sdk.InputRequest) bool { return !canAnswer(can, q) })
		data := map[string]any{"before": text}
		for id := range asks {
			if responses[id] == nil || state == "" {
				return asks, seal(secret, fmt.Sprint(at, text)), nil
			}
			data[id] = responses[id]
		}
		if text, err = fill(all[at].Then, data); err != nil {
			return nil, "", err
		}
	}
	return nil, text, nil
}

func canAnswer(can *sdk.ClientCapabilities, question sdk.InputRequest) bool {
	switch question.(type) {
	case *sdk.ElicitParams:
		return can != nil && can.Elicitation != nil
	case *sdk.ListRootsParams:
		return can != nil && can.RootsV2 != nil
	}
	return can != nil && can.Sampling != nil
}

// seal makes a state that nobody else can make.
func seal(secret []byte, state string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(state))
	return base64.RawURLEncoding.EncodeToString(append([]byte(state), mac.Sum(nil)...))
}

// unseal returns the state, and whether it is one of seal's.
func unseal(secret []byte, sealed string) (string, bool) {
	b, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(b) <= sha256.Size {
		return "", false
	}
	state := string(b[:len(b)-sha256.Size])
	return state, hmac.Equal([]byte(sealed), []byte(seal(secret, state)))
}

// fill returns a template with its data.
func fill(text string, data any) (string, error) {
	t, err := template.New("").Option("missingkey=zero").Funcs(template.FuncMap{"json": func(v any) (string, error) {
		b, err := json.Marshal(v)
		return string(b), err
	}}).Parse(text)
	var b strings.Builder
	if err == nil {
		err = t.Execute(&b, data)
	}
	return b.String(), err
}

// fillJSON decodes JSON whose texts have arguments.
func fillJSON(raw json.RawMessage, arguments map[string]string, into any) error {
	quoted := map[string]string{}
	for name, value := range arguments {
		b, err := json.Marshal(value)
		if err != nil {
			return err
		}
		quoted[name] = string(b[1 : len(b)-1])
	}
	text, err := fill(string(raw), quoted)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), into)
}
