package demo

import (
	"context"
	"fmt"
	"net/http"
)

// conversation is a conversation of the AI receptionist.
type conversation struct {
	ID            string  `db:"id"`
	BusinessID    string  `db:"business_id"`
	Channel       string  `db:"channel"`    // "call", "sms", "chat" or "email"
	ContactID     *int64  `db:"contact_id"` // nil for strangers
	CallerName    *string `db:"caller_name"`
	CallerAddress *string `db:"caller_address"` // E.164 or an e-mail address
	StartedAt     string  `db:"started_at"`
	EndedAt       *string `db:"ended_at"`
	Outcome       string  `db:"outcome"`
	Summary       *string `db:"summary"`
	MessageCount  int64   `db:"message_count"` // by the view
}

func conversationKind() *kindOf[conversation] {
	return &kindOf[conversation]{
		one: "conversation", many: "conversations", what: "conversation", table: "connect_conversations",
		fields: fieldsOf[conversation](),
		key:    "started_at", id: "id", newest: true,
		search: "coalesce(caller_name, '') || ' ' || coalesce(caller_address, '') || ' ' || coalesce(summary, '') || ' ' || " +
			"coalesce((SELECT group_concat(m.text, ' ') FROM messages m WHERE m.conversation_id = connect_conversations.id), '')",
	}
}

// message is one message of a conversation.
type message struct {
	ConversationID string `db:"conversation_id" json:"-"`
	Position       int64  `db:"position" json:"-"`
	ID             string `db:"id"`
	At             string `db:"at"`
	From           string `db:"sender" json:"from"` // "caller", "receptionist" or "staff"
	Text           string `db:"text"`
}

// maxMessages limits the messages in a response.
const maxMessages = 500

func conversationRoutes() []route {
	k := conversationKind()
	return []route{
		{method: http.MethodGet, path: "conversations", query: true, serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			q := c.parameters()
			filters := equal("channel", q.word("channel", "call", "sms", "chat", "email"))
			filters = append(filters, between(q, "started_at", "since", "until")...)
			return k.page(ctx, c, q, filters...)
		}},
		{method: http.MethodGet, path: "conversations/{id}", serve: getConversation},
	}
}

// between returns the filters for a half-open interval [from, before).
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
	k, fields := conversationKind(), fieldsOf[message]()
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
