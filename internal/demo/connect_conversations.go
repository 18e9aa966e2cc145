package demo

import (
	"context"
	"fmt"
	"net/http"
)

// conversation is one that the receptionist has had.
type conversation struct {
	ID            string
	BusinessID    string
	Channel       string // "call", "sms", "chat" or "email"
	ContactID     *int64 // nil for strangers
	CallerName    *string
	CallerAddress *string // E.164 or an e-mail address
	StartedAt     string
	EndedAt       *string
	Outcome       string
	Summary       *string
	MessageCount  int64 // by the view
}

func conversationFields() []field[conversation] {
	type r = conversation
	return []field[r]{
		text("id", func(r *r) *string { return &r.ID }),
		text("business_id", func(r *r) *string { return &r.BusinessID }),
		text("channel", func(r *r) *string { return &r.Channel }),
		optInteger("contact_id", func(r *r) **int64 { return &r.ContactID }),
		optText("caller_name", func(r *r) **string { return &r.CallerName }),
		optText("caller_address", func(r *r) **string { return &r.CallerAddress }),
		text("started_at", func(r *r) *string { return &r.StartedAt }),
		optText("ended_at", func(r *r) **string { return &r.EndedAt }),
		text("outcome", func(r *r) *string { return &r.Outcome }),
		optText("summary", func(r *r) **string { return &r.Summary }),
	}
}

func conversationKind() *kindOf[conversation] {
	type r = conversation
	return &kindOf[r]{
		one: "conversation", many: "conversations", what: "conversation", table: "connect_conversations",
		fields: append(conversationFields(), integer("message_count", func(r *r) *int64 { return &r.MessageCount })),
		key:    "started_at", id: "id", newest: true,
		search: "coalesce(caller_name, '') || ' ' || coalesce(caller_address, '') || ' ' || coalesce(summary, '') || ' ' || " +
			"coalesce((SELECT group_concat(m.text, ' ') FROM messages m WHERE m.conversation_id = connect_conversations.id), '')",
	}
}

// message is what somebody said in a conversation.
type message struct {
	ConversationID string
	Position       int64
	ID             string
	At             string
	From           string // "caller", "receptionist" or "staff"
	Text           string
}

func messageFields() []field[message] {
	type r = message
	from := text("sender", func(r *r) *string { return &r.From })
	from.member = "from"
	return []field[r]{
		internal(text("conversation_id", func(r *r) *string { return &r.ConversationID })),
		internal(integer("position", func(r *r) *int64 { return &r.Position })),
		text("id", func(r *r) *string { return &r.ID }),
		text("at", func(r *r) *string { return &r.At }),
		from,
		text("text", func(r *r) *string { return &r.Text }),
	}
}

// maxMessages is how many messages of a conversation are sent.
const maxMessages = 500

func conversationRoutes() []route {
	k := conversationKind()
	return []route{
		{method: http.MethodGet, path: "conversations", serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			q := c.parameters()
			filters := equal("channel", q.word("channel", "call", "sms", "chat", "email"))
			filters = append(filters, between(q, "started_at", "since", "until")...)
			return k.page(ctx, c, q, filters...)
		}},
		{method: http.MethodGet, path: "conversations/{id}", serve: getConversation},
	}
}

// between gives the filters for an instant from one parameter on and before another.
func between(q *parameters, column, from, before string) (filters []filter) {
	begin, end := q.instant(from), q.instant(before)
	if begin != "" {
		filters = append(filters, filter{column + " >= ?", begin})
	}
	if end != "" {
		filters = append(filters, filter{column + " < ?", end})
	}
	if begin != "" && end != "" && begin >= end {
		q.p.add(before, "is not after "+from, "an instant after "+from)
	}
	return filters
}

func getConversation(ctx context.Context, c *connectCall) (int, []byte, error) {
	c.parameters().end()
	if err := c.problems.err(); err != nil {
		return 0, nil, err
	}
	k, fields := conversationKind(), messageFields()
	row, err := k.find(ctx, c, c.path[0])
	if err != nil {
		return 0, nil, err
	}
	rows, err := c.tx.QueryContext(ctx, "SELECT "+columns(fields)+" FROM messages WHERE conversation_id = ? ORDER BY position LIMIT ?",
		row.ID, maxMessages)
	if err != nil {
		return 0, nil, fmt.Errorf("reading messages: %w", err)
	}
	messages, err := collect(rows, fields, min(row.MessageCount, maxMessages))
	if err != nil {
		return 0, nil, fmt.Errorf("reading messages: %w", err)
	}
	b := k.answer(row)
	b = append(b[:len(b)-2], `,"messages":`...)
	return http.StatusOK, append(appendList(b, fields, messages), "}}"...), nil
}
