package pages

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

// activityView is one page of the audit log.
type activityView struct {
	Days  []activityDay
	Kinds []kind
	Show  string // name of a kind
	Next  string // cursor of the next page, "" at the end
	Paged bool   // not the first page
	Zone  string // of the times
}

type activityDay struct {
	Day     string // such as 2006-01-02
	Entries []activityEntry
}

// activityEntry is an audit entry in words for users.
type activityEntry struct {
	audit.Entry        // Outcome is for users, "" if it was successful
	What        string // instead of Action
	Code        bool   // show Target as code: a key or a tool
}

const activityPage = 50 // entries

// kind is a filter of the audit log.
type kind struct {
	Name, Text string
	actions    []string // nil: all
}

func kinds() []kind {
	return []kind{
		{Text: "Everything"},
		{"connections", "Connections", []string{
			audit.ConnectionApproved, audit.ConnectionDenied, audit.ConnectionStarted, audit.ConnectionChanged,
			audit.ConnectionRevoked,
		}},
		{"changes", "Changes by apps", []string{audit.ToolCalled}},
		{"keys", "Keys", []string{audit.KeyIssued, audit.KeyRotated, audit.KeyRevoked}},
		{"sign-ins", "Sign-ins", []string{audit.SessionStarted, audit.SessionDenied, audit.SessionEnded}},
	}
}

func (p *Pages) showActivity(w http.ResponseWriter, r *http.Request, s *session) error {
	q := r.URL.Query()
	all, cursor := kinds(), q.Get("before")
	i := slices.IndexFunc(all, func(k kind) bool { return k.Name == q.Get("show") })
	if i < 0 {
		return &redirectError{to: ActivityPath}
	}
	entries, next, err := p.o.Audit.List(r.Context(), s.account.BusinessID, cursor, activityPage, all[i].actions...)
	switch {
	case errors.Is(err, audit.ErrBadCursor):
		return &redirectError{to: ActivityPath + "?" + url.Values{"show": {all[i].Name}}.Encode()}
	case err != nil:
		return unavailable(err)
	}
	at := s.account.Location()
	v := activityView{Kinds: all, Show: all[i].Name, Next: next, Paged: cursor != "", Zone: at.String()}
	var ids []string
	for _, e := range entries {
		if e.AccountName == "" && e.AccountID != "" {
			ids = append(ids, e.AccountID)
		}
	}
	names := p.names(r, s.account, ids...)
	for _, e := range entries {
		e.AccountName = cmp.Or(e.AccountName, names[e.AccountID])
		e.Time = e.Time.In(at)
		day := e.Time.Format(time.DateOnly)
		if n := len(v.Days); n == 0 || v.Days[n-1].Day != day {
			v.Days = append(v.Days, activityDay{Day: day})
		}
		last := &v.Days[len(v.Days)-1]
		last.Entries = append(last.Entries, inPlainWords(p.o.OAuth.Areas().All(), e))
	}
	p.render(w, r, http.StatusOK, "activity", p.settings(w, r, s, "Activity", ActivityPath), v)
	return nil
}

func inPlainWords(areas scope.Areas, e audit.Entry) activityEntry {
	out := activityEntry{Entry: e}
	out.AccountName, out.ClientName = cleantext.Line(cmp.Or(e.AccountName, e.AccountID), maxLabel), cleantext.Line(e.ClientName, maxLabel)
	out.Target, out.Detail = cleantext.Line(e.Target, maxHost), cleantext.Line(e.Detail, maxText)
	out.Outcome = map[string]string{
		audit.OutcomeDenied: "Denied", audit.OutcomeFailed: "Failed", audit.OutcomeUnknown: "Outcome unknown",
	}[e.Outcome]
	words := map[string]string{
		audit.ConnectionApproved: "Connected an app",
		audit.ConnectionDenied:   "Declined to connect an app",
		audit.ConnectionStarted:  "The app started using its connection",
		audit.ConnectionChanged:  "Changed what an app may do",
		audit.ConnectionRevoked:  "Disconnected an app",
		audit.KeyIssued:          "Issued a key",
		audit.KeyRotated:         "Rotated a key",
		audit.KeyRevoked:         "Revoked a key",
		audit.SessionStarted:     "Signed in",
		audit.SessionDenied:      "Could not sign in",
		audit.SessionEnded:       "Signed out",
		audit.ToolCalled:         "Made a change through an app",

		audit.ConnectionApproved + audit.OutcomeDenied: "Tried to connect an app",
		audit.ConnectionChanged + audit.OutcomeDenied:  "Tried to change what an app may do",
		audit.ConnectionRevoked + audit.OutcomeDenied:  "Tried to disconnect an app",
		audit.ToolCalled + audit.OutcomeDenied:         "An app tried to make a change",
		audit.ToolCalled + audit.OutcomeFailed:         "An app tried to make a change",
	}
	out.What = cmp.Or(words[e.Action+e.Outcome], words[e.Action], cleantext.Line(e.Action, maxLabel)) // of a later version
	switch e.Action {
	case audit.ConnectionApproved, audit.ConnectionStarted, audit.ConnectionChanged:
		out.Detail = grantedInWords(areas, e.Detail, out.Detail)
	case audit.ConnectionRevoked:
		if e.AccountID == "" && e.AccountName == "" && out.Outcome == "" {
			out.What = "A connection ended"
		}
	case audit.ConnectionDenied:
		if e.Outcome == audit.OutcomeDenied {
			out.Outcome = "" // by the user
		}
	case audit.ToolCalled:
		out.Detail = strings.ReplaceAll(out.Detail, "INSUFFICIENT_SCOPE", "It may not do this")
		if out.Code = e.Sentence == ""; !out.Code {
			out.What, out.Target, out.Detail = cleantext.Line(e.Sentence, maxText), "", ""
		}
	case audit.KeyIssued, audit.KeyRotated, audit.KeyRevoked:
		out.Code = true
	}
	return out
}
