//nolint:staticcheck // sampling, roots and logging are deprecated, and what the suite asks for
package conformance

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

type fixtures struct{ secret []byte }

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

// Register adds the fixtures to a server.
func Register(s *sdk.Server) {
	f := &fixtures{secret: make([]byte, 32)}
	_, _ = rand.Read(f.secret) // never fails
	f.contents(s)
	f.streams(s)
	f.questions(s)
	f.rounds(s)
	f.changes(s)
	f.prompts(s)
	f.resources(s)
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

// tool adds a tool. A nil schema takes no arguments.
func tool(s *sdk.Server, name, description string, schema any, h sdk.ToolHandler) {
	if schema == nil {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	s.AddTool(&sdk.Tool{Name: name, Description: description, InputSchema: schema}, h)
}

func says(text string) *result {
	return &result{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

func fails(err error) *result {
	r := &result{}
	r.SetError(err)
	return r
}

// picture is a PNG of one red point.
func picture() []byte {
	m := image.NewRGBA(image.Rect(0, 0, 1, 1))
	m.Set(0, 0, color.RGBA{R: 255, A: 255})
	var b bytes.Buffer
	if png.Encode(&b, m) != nil {
		return nil
	}
	return b.Bytes()
}

// sound is a WAV file of one silent sample.
func sound() []byte {
	var b bytes.Buffer
	little := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&b, binary.LittleEndian, v) // a buffer takes everything
		}
	}
	b.WriteString("RIFF")
	little(uint32(38))
	b.WriteString("WAVEfmt ")
	little(uint32(16), uint16(1), uint16(1), uint32(8000), uint32(16000), uint16(2), uint16(16))
	b.WriteString("data")
	little(uint32(2), int16(0))
	return b.Bytes()
}

func embedded(uri, text string) *sdk.EmbeddedResource {
	return &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: uri, MIMEType: "text/plain", Text: text}}
}

func (f *fixtures) contents(s *sdk.Server) {
	for _, t := range []struct {
		name    string
		content []sdk.Content
	}{
		{"test_simple_text", []sdk.Content{&sdk.TextContent{Text: "This is a simple text response for testing."}}},
		{"test_image_content", []sdk.Content{&sdk.ImageContent{Data: picture(), MIMEType: "image/png"}}},
		{"test_audio_content", []sdk.Content{&sdk.AudioContent{Data: sound(), MIMEType: "audio/wav"}}},
		{"test_embedded_resource", []sdk.Content{
			embedded("test://embedded-resource", "This is an embedded resource content."),
		}},
		{"test_multiple_content_types", []sdk.Content{
			&sdk.TextContent{Text: "Multiple content types test:"},
			&sdk.ImageContent{Data: picture(), MIMEType: "image/png"},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{
				URI: "test://mixed-content-resource", MIMEType: "application/json", Text: `{"test":"data","value":123}`,
			}},
		}},
		{"test_streaming_elicitation", []sdk.Content{&sdk.TextContent{Text: "Nothing but this stands on the stream."}}},
	} {
		tool(s, t.name, "Fixture: fixed content.", nil, func(context.Context, *sdk.CallToolRequest) (*result, error) {
			return &result{Content: t.content}, nil
		})
	}
	tool(s, "test_error_handling", "Fixture: fails.", nil, func(context.Context, *sdk.CallToolRequest) (*result, error) {
		return fails(errors.New("This tool intentionally returns an error for testing")), nil
	})
	tool(s, "json_schema_2020_12_tool", "Fixture: a schema of many keywords.", json.RawMessage(`{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"type": "object",
		"$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {
			"street": {"type": "string"}, "city": {"type": "string"}}}},
		"properties": {
			"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
			"contactMethod": {"type": "string", "enum": ["phone", "email"]},
			"phone": {"type": "string"}, "email": {"type": "string"}},
		"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
		"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
		"then": {"required": ["phone"]}, "else": {"required": ["email"]},
		"additionalProperties": false}`),
		func(_ context.Context, r *sdk.CallToolRequest) (*result, error) {
			return says(string(r.Params.Arguments)), nil
		})
	tool(s, "test_x_mcp_header", "Fixture: an argument that stands in a header as well.", json.RawMessage(`{
		"type": "object", "properties": {
			"region": {"type": "string", "x-mcp-header": "Region"}, "level": {"type": "integer"}}}`),
		func(_ context.Context, r *sdk.CallToolRequest) (*result, error) {
			return says(string(r.Params.Arguments)), nil
		})
}

// pause waits a moment between messages.
func pause(ctx context.Context) error {
	t := time.NewTimer(50 * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (f *fixtures) streams(s *sdk.Server) {
	logging := func(texts ...string) sdk.ToolHandler {
		return func(ctx context.Context, r *sdk.CallToolRequest) (*result, error) {
			for i, text := range texts {
				if i > 0 && pause(ctx) != nil {
					return nil, ctx.Err()
				}
				if err := r.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: text}); err != nil {
					return fails(err), nil
				}
			}
			return says("Tool with logging executed successfully"), nil
		}
	}
	tool(s, "test_tool_with_logging", "Fixture: logs.", nil,
		logging("Tool execution started", "Tool processing data", "Tool execution completed"))
	tool(s, "test_logging_tool", "Fixture: logs once.", nil, logging("Tool execution started"))
	tool(s, "test_tool_with_progress", "Fixture: reports progress.", nil,
		func(ctx context.Context, r *sdk.CallToolRequest) (*result, error) {
			token := r.Params.GetProgressToken()
			for i, progress := range []float64{0, 50, 100} {
				if i > 0 && pause(ctx) != nil {
					return nil, ctx.Err()
				}
				err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
					ProgressToken: token, Progress: progress, Total: 100, Message: fmt.Sprintf("%.0f of 100", progress),
				})
				if err != nil {
					return fails(err), nil
				}
			}
			return says(fmt.Sprint(token)), nil
		})
}

// form is the schema of an elicitation.
func form(properties string, required ...string) json.RawMessage {
	names, err := json.Marshal(append([]string{}, required...))
	if err != nil {
		names = []byte("[]")
	}
	return json.RawMessage(`{"type":"object","properties":` + properties + `,"required":` + string(names) + `}`)
}

func nameForm() json.RawMessage { return form(`{"name":{"type":"string"}}`, "name") }

// questions are the tools that ask in the middle of a call, as revisions before 2026-07-28 do.
func (f *fixtures) questions(s *sdk.Server) {
	tool(s, "test_sampling", "Fixture: asks the client's model.", form(`{"prompt":{"type":"string"}}`, "prompt"),
		func(ctx context.Context, r *sdk.CallToolRequest) (*result, error) {
			var arguments struct{ Prompt string }
			if err := json.Unmarshal(r.Params.Arguments, &arguments); err != nil {
				return fails(err), nil
			}
			response, err := r.Session.CreateMessage(ctx, &sdk.CreateMessageParams{
				MaxTokens: 100,
				Messages:  []*sdk.SamplingMessage{{Role: "user", Content: &sdk.TextContent{Text: arguments.Prompt}}},
			})
			if err != nil {
				return fails(fmt.Errorf("sampling: %w", err)), nil
			}
			text, _ := response.Content.(*sdk.TextContent)
			if text == nil {
				text = &sdk.TextContent{}
			}
			return says("LLM response: " + text.Text), nil
		})
	elicit := func(name string, schema, requested json.RawMessage, lead string) {
		tool(s, name, "Fixture: asks the person.", schema, func(ctx context.Context, r *sdk.CallToolRequest) (*result, error) {
			var arguments struct{ Message string }
			if len(r.Params.Arguments) > 0 {
				if err := json.Unmarshal(r.Params.Arguments, &arguments); err != nil {
					return fails(err), nil
				}
			}
			if arguments.Message == "" {
				arguments.Message = "Please review and update the form fields"
			}
			response, err := r.Session.Elicit(ctx, &sdk.ElicitParams{
				Mode: "form", Message: arguments.Message, RequestedSchema: requested,
			})
			if err != nil {
				return fails(fmt.Errorf("asking: %w", err)), nil
			}
			content, err := json.Marshal(response.Content)
			if err != nil {
				return fails(err), nil
			}
			return says(fmt.Sprintf("%s: action=%s, content=%s", lead, response.Action, content)), nil
		})
	}
	none := json.RawMessage(`{"type":"object"}`)
	elicit("test_elicitation", form(`{"message":{"type":"string"}}`, "message"), form(
		`{"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}}`,
		"username", "email"), "User response")
	elicit("test_elicitation_sep1034_defaults", none, form(`{
		"name": {"type": "string", "description": "User name", "default": "John Doe"},
		"age": {"type": "integer", "description": "User age", "default": 30},
		"score": {"type": "number", "description": "User score", "default": 95.5},
		"status": {"type": "string", "description": "User status", "enum": ["active", "inactive", "pending"], "default": "active"},
		"verified": {"type": "boolean", "description": "Verification status", "default": true}}`), "Elicitation completed")
	elicit("test_elicitation_sep1330_enums", none, form(`{
		"untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
		"titledSingle": {"type": "string", "oneOf": [{"const": "value1", "title": "First Option"},
			{"const": "value2", "title": "Second Option"}, {"const": "value3", "title": "Third Option"}]},
		"legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"],
			"enumNames": ["Option One", "Option Two", "Option Three"]},
		"untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
		"titledMulti": {"type": "array", "items": {"anyOf": [{"const": "value1", "title": "First Choice"},
			{"const": "value2", "title": "Second Choice"}, {"const": "value3", "title": "Third Choice"}]}}}`),
		"Elicitation completed")
	tool(s, "test_missing_capability", "Fixture: needs sampling.", nil,
		func(_ context.Context, r *sdk.CallToolRequest) (*result, error) {
			if c := r.ClientCapabilities(); c != nil && c.Sampling != nil {
				return says("The client can sample."), nil
			}
			return nil, &jsonrpc.Error{
				Code: sdk.CodeMissingRequiredClientCapabilities, Message: "the client has not declared sampling",
				Data: json.RawMessage(`{"requiredCapabilities":{"sampling":{}}}`),
			}
		})
}

// seal makes a state that nobody else can make.
func (f *fixtures) seal(state string) string {
	mac := hmac.New(sha256.New, f.secret)
	mac.Write([]byte(state))
	return base64.RawURLEncoding.EncodeToString(append([]byte(state), mac.Sum(nil)...))
}

// unseal returns the state, and whether it is one of seal's.
func (f *fixtures) unseal(sealed string) (string, bool) {
	b, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(b) < sha256.Size {
		return "", false
	}
	state := string(b[:len(b)-sha256.Size])
	return state, hmac.Equal([]byte(sealed), []byte(f.seal(state)))
}

func errState() error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "requestState was not made here"}
}

// accepted is what the person filled in, nil if they did not.
func accepted(responses sdk.InputResponseMap, id string) map[string]any {
	if r, ok := responses[id].(*sdk.ElicitResult); ok && r != nil && r.Action == "accept" {
		return r.Content
	}
	return nil
}

// sampled is what the client's model said.
func sampled(responses sdk.InputResponseMap, id string) (string, bool) {
	r, ok := responses[id].(*sdk.CreateMessageWithToolsResult)
	if !ok || r == nil {
		return "", false
	}
	for _, c := range r.Content {
		if text, ok := c.(*sdk.TextContent); ok {
			return text.Text, true
		}
	}
	return "", true
}

func sampling(prompt string, tokens int64) *sdk.CreateMessageParams {
	return &sdk.CreateMessageParams{
		MaxTokens: tokens, Messages: []*sdk.SamplingMessage{{Role: "user", Content: &sdk.TextContent{Text: prompt}}},
	}
}

func asks(state string, questions sdk.InputRequestMap) *result {
	return &result{InputRequests: questions, RequestState: state}
}

func askName(message string) *sdk.ElicitParams {
	return &sdk.ElicitParams{Mode: "form", Message: message, RequestedSchema: nameForm()}
}

// rounds are the tools that ask by their response, as revision 2026-07-28 does.
func (f *fixtures) rounds(s *sdk.Server) {
	add := func(name string, h func(r *sdk.CallToolRequest, responses sdk.InputResponseMap) (*result, error)) {
		tool(s, "test_input_required_result_"+name, "Fixture: asks by its response.", nil,
			func(_ context.Context, r *sdk.CallToolRequest) (*result, error) { return h(r, r.Params.InputResponses) })
	}
	add("elicitation", func(_ *sdk.CallToolRequest, responses sdk.InputResponseMap) (*result, error) {
		if name, _ := accepted(responses, "user_name")["name"].(string); name != "" {
			return says("Hello, " + name + "!"), nil
		}
		return asks("", sdk.InputRequestMap{"user_name": askName("What is your name?")}), nil
	})
	add("sampling", func(_ *sdk.CallToolRequest, responses sdk.InputResponseMap) (*result, error) {
		if text, ok := sampled(responses, "capital_question"); ok {
			return says("Sampled: " + text), nil
		}
		return asks("", sdk.InputRequestMap{"capital_question": sampling("What is the capital of France?", 100)}), nil
	})
	add("list_roots", func(_ *sdk.CallToolRequest, responses sdk.InputResponseMap) (*result, error) {
		if r, ok := responses["client_roots"].(*sdk.ListRootsResult); ok && r != nil {
			uris := make([]string, 0, len(r.Roots))
			for _, root := range r.Roots {
				uris = append(uris, root.URI)
			}
			return says("Roots: " + strings.Join(uris, " ")), nil
		}
		return asks("", sdk.InputRequestMap{"client_roots": &sdk.ListRootsParams{}}), nil
	})
	confirm := func(r *sdk.CallToolRequest, responses sdk.InputResponseMap) (*result, error) {
		if r.Params.RequestState != "" {
			if _, ok := f.unseal(r.Params.RequestState); !ok {
				return nil, errState()
			}
			if accepted(responses, "confirm") != nil {
				return says("state-ok: the response belongs to the question"), nil
			}
		}
		return asks(f.seal(rand.Text()), sdk.InputRequestMap{"confirm": &sdk.ElicitParams{
			Mode: "form", Message: "Please confirm", RequestedSchema: form(`{"ok":{"type":"boolean"}}`, "ok"),
		}}), nil
	}
	add("request_state", confirm)
	add("tampered_state", confirm)
	add("multiple_inputs", func(r *sdk.CallToolRequest, responses sdk.InputResponseMap) (*result, error) {
		name, _ := accepted(responses, "user_name")["name"].(string)
		greeting, greeted := sampled(responses, "greeting")
		roots, _ := responses["client_roots"].(*sdk.ListRootsResult)
		if name != "" && greeted && roots != nil {
			if _, ok := f.unseal(r.Params.RequestState); !ok {
				return nil, errState()
			}
			return says(fmt.Sprintf("%s, %s! %d roots.", greeting, name, len(roots.Roots))), nil
		}
		return asks(f.seal("multiple"), sdk.InputRequestMap{
			"user_name": askName("What is your name?"), "greeting": sampling("Generate a greeting", 50),
			"client_roots": &sdk.ListRootsParams{},
		}), nil
	})
	add("multi_round", f.twoRounds)
	add("capabilities", func(r *sdk.CallToolRequest, responses sdk.InputResponseMap) (*result, error) {
		if len(responses) > 0 {
			return says("Answered."), nil
		}
		questions := sdk.InputRequestMap{}
		c := r.ClientCapabilities()
		if c != nil && c.Elicitation != nil {
			questions["user_name"] = askName("What is your name?")
		}
		if c != nil && c.Sampling != nil {
			questions["greeting"] = sampling("Generate a greeting", 50)
		}
		if c != nil && c.RootsV2 != nil {
			questions["client_roots"] = &sdk.ListRootsParams{}
		}
		if len(questions) == 0 {
			return says("There is nothing that this client can be asked."), nil
		}
		return asks("", questions), nil
	})
}

func (f *fixtures) twoRounds(r *sdk.CallToolRequest, responses sdk.InputResponseMap) (*result, error) {
	first := asks(f.seal("1"), sdk.InputRequestMap{"step1": askName("Step 1: What is your name?")})
	if r.Params.RequestState == "" {
		return first, nil
	}
	state, ok := f.unseal(r.Params.RequestState)
	if !ok {
		return nil, errState()
	}
	second := func(name string) *result {
		return asks(f.seal("2"+name), sdk.InputRequestMap{"step2": &sdk.ElicitParams{
			Mode: "form", Message: "Step 2: What is your favorite color?",
			RequestedSchema: form(`{"color":{"type":"string"}}`, "color"),
		}})
	}
	if state == "1" {
		name, _ := accepted(responses, "step1")["name"].(string)
		if name == "" {
			return first, nil
		}
		return second(name), nil
	}
	color, _ := accepted(responses, "step2")["color"].(string)
	if color == "" {
		return second(state[1:]), nil
	}
	return says(state[1:] + " likes " + color + "."), nil
}

// changes are the tools that change what is listed.
func (f *fixtures) changes(s *sdk.Server) {
	tool(s, "test_trigger_tool_change", "Fixture: changes the list of tools.", nil,
		func(context.Context, *sdk.CallToolRequest) (*result, error) {
			tool(s, "test_transient", "Fixture: comes with a change.", nil,
				func(context.Context, *sdk.CallToolRequest) (*result, error) { return says(""), nil })
			return says("The list of tools has changed."), nil
		})
	tool(s, "test_trigger_prompt_change", "Fixture: changes the list of prompts.", nil,
		func(context.Context, *sdk.CallToolRequest) (*result, error) {
			s.AddPrompt(&sdk.Prompt{Name: "test_transient", Description: "Fixture: comes with a change."},
				func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
					return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{}}, nil
				})
			return says("The list of prompts has changed."), nil
		})
}

func message(c sdk.Content) *sdk.PromptMessage { return &sdk.PromptMessage{Role: "user", Content: c} }

func (f *fixtures) prompts(s *sdk.Server) {
	add := func(name string, arguments []string, h func(arguments map[string]string) []*sdk.PromptMessage) {
		p := &sdk.Prompt{Name: name, Description: "Fixture."}
		for _, a := range arguments {
			p.Arguments = append(p.Arguments, &sdk.PromptArgument{Name: a, Description: "Fixture.", Required: true})
		}
		s.AddPrompt(p, func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return &sdk.GetPromptResult{Messages: h(r.Params.Arguments)}, nil
		})
	}
	add("test_simple_prompt", nil, func(map[string]string) []*sdk.PromptMessage {
		return []*sdk.PromptMessage{message(&sdk.TextContent{Text: "This is a simple prompt for testing."})}
	})
	add("test_prompt_with_arguments", []string{"arg1", "arg2"}, func(a map[string]string) []*sdk.PromptMessage {
		return []*sdk.PromptMessage{message(&sdk.TextContent{
			Text: fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", a["arg1"], a["arg2"]),
		})}
	})
	add("test_prompt_with_embedded_resource", []string{"resourceUri"}, func(a map[string]string) []*sdk.PromptMessage {
		return []*sdk.PromptMessage{
			message(embedded(a["resourceUri"], "Embedded resource content for testing.")),
			message(&sdk.TextContent{Text: "Please process the embedded resource above."}),
		}
	})
	add("test_prompt_with_image", nil, func(map[string]string) []*sdk.PromptMessage {
		return []*sdk.PromptMessage{
			message(&sdk.ImageContent{Data: picture(), MIMEType: "image/png"}),
			message(&sdk.TextContent{Text: "Please analyze the image above."}),
		}
	})
	s.AddPrompt(&sdk.Prompt{Name: "test_input_required_result_prompt", Description: "Fixture: asks by its response."},
		func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			if content := accepted(r.Params.InputResponses, "user_context"); content != nil {
				return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{
					message(&sdk.TextContent{Text: fmt.Sprint("Context: ", content["context"])}),
				}}, nil
			}
			return &sdk.GetPromptResult{InputRequests: sdk.InputRequestMap{"user_context": &sdk.ElicitParams{
				Mode: "form", Message: "What context should the prompt use?",
				RequestedSchema: form(`{"context":{"type":"string"}}`, "context"),
			}}}, nil
		})
}

func (f *fixtures) resources(s *sdk.Server) {
	add := func(uri, name, media string, contents sdk.ResourceContents) {
		s.AddResource(&sdk.Resource{URI: uri, Name: name, MIMEType: media, Description: "Fixture."},
			func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
				c := contents
				c.URI, c.MIMEType = uri, media
				return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{&c}}, nil
			})
	}
	add("test://static-text", "static-text", "text/plain",
		sdk.ResourceContents{Text: "This is the content of the static text resource."})
	add("test://static-binary", "static-binary", "image/png", sdk.ResourceContents{Blob: picture()})
	add("test://watched-resource", "watched-resource", "text/plain", sdk.ResourceContents{Text: "Watched."})
	s.AddResourceTemplate(
		&sdk.ResourceTemplate{
			URITemplate: "test://template/{id}/data", Name: "template", MIMEType: "application/json", Description: "Fixture.",
		},
		func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(r.Params.URI, "test://template/"), "/data")
			text, err := json.Marshal(map[string]any{"id": id, "templateTest": true, "data": "Data for ID: " + id})
			if err != nil {
				return nil, err
			}
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{
				{URI: r.Params.URI, MIMEType: "application/json", Text: string(text)},
			}}, nil
		})
}
