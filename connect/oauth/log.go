package oauth

import (
	"context"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

// logClient adds a known client to the request's log entry.
func logClient(ctx context.Context, id, name string) {
	requestlog.From(ctx).Add(func(f *requestlog.Fields) { f.ClientID, f.ClientName = loggedClientID(id), name })
}

// loggedClientID returns a client ID for the log, without the query that the URL of a metadata document may have.
func loggedClientID(id string) string {
	id, _, _ = strings.Cut(id, "?")
	return cleantext.Description(id, maxQuoted)
}

// logGrant adds the connection of a presented token or code to the request's log entry.
func logGrant(ctx context.Context, g Grant) {
	logClient(ctx, g.ClientID, g.ClientName)
	requestlog.From(ctx).Add(func(f *requestlog.Fields) { f.GrantID, f.BusinessID = g.ID, g.BusinessID })
}
