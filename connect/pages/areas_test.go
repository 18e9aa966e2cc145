package pages_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
)

// withoutAutomations returns the areas except automations.
func withoutAutomations(t *testing.T) scope.Areas {
	t.Helper()
	areas, err := connecttest.Areas(t).Without("automations")
	require.NoError(t, err)
	return areas
}

func TestApprovalLeavesOutSwitchedOffAreas(t *testing.T) {
	t.Parallel()
	set, err := withoutAutomations(t).Parse("mcp:use")
	require.NoError(t, err)
	use := func(r *oauth.Request) { r.Scopes = set }
	all := []string{
		"business:read", "contacts:read", "conversations:read", "appointments:read", "receptionist:read", "sales:read", "objects:read",
		"business:write", "contacts:write", "receptionist:write", "objects:write",
	}
	for name, c := range map[string]struct {
		allow []string // nil: the default
		want  string
	}{
		"the default":                 {nil, "mcp:read"},
		"all that is shown":           {all, "mcp:use"},
		"a form from before a reload": {append(all, "automations:read", "automations:run"), "mcp:use"},
		"a forged form":               {[]string{"contacts:read", "automations:run", "automations:read", "mcp:use"}, "contacts:read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.request("grq_1", "mcp:read", use)
			b := w.signIn(ownerEmail)
			p := b.get(pages.ApprovePath+"?request=grq_1").requires(http.StatusOK, "What it may see", "What it may change")
			p.lacks("utomations")
			b.post(pages.ApprovePath, b.decision("grq_1", "approve", c.allow...)).requires(http.StatusSeeOther)
			granted := w.oauth.approved["grq_1"]
			assert.Equal(t, c.want, granted.String())
			assert.NotContains(t, granted.Pin(), "automations")
		})
	}
	t.Run("nothing else", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.request("grq_1", "mcp:read", use)
		b := w.signIn(ownerEmail)
		b.post(pages.ApprovePath, b.decision("grq_1", "approve", "automations:run", "automations:read")).
			requires(http.StatusUnprocessableEntity, "Choose at least one thing").lacks("utomations")
		assert.NotContains(t, w.oauth.approved, "grq_1")
	})
}

// Connected apps shows what an app may do now, and Activity what was approved.
func TestPagesShowConnectionsFromBeforeAnAreaWasSwitchedOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	areas, now := withoutAutomations(t), w.clock.now()
	for id, scopes := range map[string]string{"gr_1": "automations:run contacts:read", "gr_2": "automations:run"} {
		g := grant(t, id, owner, id, scopes, now.Add(-time.Hour), now)
		g.Scopes = areas.Unpin(g.Scopes.Pin())
		w.oauth.grants = append(w.oauth.grants, g)
		require.NoError(t, w.audit.Record(t.Context(), audit.Entry{
			Action: audit.ConnectionApproved, BusinessID: owner.BusinessID, ClientName: id, Detail: scopes,
		}))
	}
	b := w.signIn(ownerEmail)
	b.get(pages.ConnectionsPath).requires(http.StatusOK, "Can see Contacts Can change Nothing", "Can see Nothing Can change Nothing").
		lacks("utomations")
	b.get(pages.ConnectionsPath+"?revoke=gr_2").requires(http.StatusOK, "Can see Nothing Can change Nothing")
	b.get(pages.ActivityPath).requires(http.StatusOK, "May see Contacts and Automations; may run Automations", "May see Automations; may run Automations")
}
