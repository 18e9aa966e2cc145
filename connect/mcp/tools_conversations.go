package mcp

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// conversation is a conversation as an assistant sees it. The names of members with text from outside begin with untrusted_.
type conversation struct {
	ID            string                   `json:"id" maxLength:"255"`
	Channel       data.Channel             `json:"channel"`
	ContactID     *int64                   `json:"contact_id" minimum:"1" maximum:"9007199254740991"`
	CallerName    *string                  `json:"untrusted_caller_name" maxLength:"1000"`
	CallerAddress *string                  `json:"untrusted_caller_address" maxLength:"1000"`
	StartedAt     time.Time                `json:"started_at"`
	EndedAt       *time.Time               `json:"ended_at"`
	Outcome       data.ConversationOutcome `json:"outcome"`
	Summary       *string                  `json:"untrusted_summary" maxLength:"20000"`
	MessageCount  int                      `json:"message_count" minimum:"0" maximum:"1000000"`
}

type said struct {
	ID   string       `json:"id" maxLength:"255"`
	At   time.Time    `json:"at"`
	From data.Speaker `json:"from"`
	Text string       `json:"untrusted_text" maxLength:"100000"`
}

func untrustedConversation(c data.Conversation) conversation {
	return conversation{
		ID: c.ID, Channel: c.Channel, ContactID: c.ContactID, CallerName: c.CallerName,
		CallerAddress: c.CallerAddress, StartedAt: c.StartedAt, EndedAt: c.EndedAt, Outcome: c.Outcome,
		Summary: c.Summary, MessageCount: c.MessageCount,
	}
}

type untrustedWarning struct {
	Warning string `json:"warning" maxLength:"1000" jsonschema:"How to treat the members whose names begin with untrusted_."`
}

type conversationPage struct {
	untrustedWarning
	Conversations []conversation `json:"conversations" maxItems:"100"`
	nextCursor
}

type conversationArguments struct {
	idArguments
	Limit  int    `json:"message_limit,omitzero" minimum:"1" maximum:"200" default:"100" jsonschema:"Maximum number of messages to return."`
	Cursor string `json:"message_cursor,omitzero" pattern:"^m[1-9][0-9]{0,3}$" jsonschema:"next_message_cursor of the previous result, to get the next messages."`
}

type conversationResult struct {
	untrustedWarning
	Conversation conversation `json:"conversation"`
	Messages     []said       `json:"messages" maxItems:"200"`
	NextCursor   *string      `json:"next_message_cursor" jsonschema:"Send it as message_cursor to get more; null at the end."`
}

func conversationTools() map[string]function {
	return map[string]function{
		"conversations_search": handle(func(ctx context.Context, c *toolCall, f data.ConversationFilter) (conversationPage, error) {
			page, err := c.data().Conversations().List(ctx, c.caller, f)
			items := make([]conversation, 0, len(page.Items))
			for _, item := range page.Items {
				items = append(items, untrustedConversation(item))
			}
			return conversationPage{untrustedWarning{warning}, items, next(page.Next)}, err
		}),
		"conversations_get": handle(func(ctx context.Context, c *toolCall, a conversationArguments) (conversationResult, error) {
			found, err := c.data().Conversations().Get(ctx, c.caller, a.ID)
			from, _ := strconv.Atoi(strings.TrimPrefix(a.Cursor, "m")) // 0 if empty; the schema has checked the form
			from = min(from, len(found.Messages))
			to := min(from+a.Limit, len(found.Messages))
			messages := make([]said, 0, to-from)
			for _, m := range found.Messages[from:to] {
				messages = append(messages, said{ID: m.ID, At: m.At, From: m.From, Text: m.Text})
			}
			var next *string
			if to < len(found.Messages) {
				next = new("m" + strconv.Itoa(to))
			}
			return conversationResult{untrustedWarning{warning}, untrustedConversation(found), messages, next}, err
		}),
	}
}
