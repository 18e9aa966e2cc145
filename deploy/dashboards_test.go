package deploy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dashboard contains the checked parts of a dashboard.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Type, Name, Query string }
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Datasource               struct{ Type, UID string }
	FieldConfig              struct {
		Defaults struct{ Unit string }
	}
	Targets []struct{ RefID, Expr string }
}

// dashboards returns the dashboards by file name.
func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("grafana/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	all := map[string]dashboard{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(content, &d), file)
		all[filepath.Base(file)] = d
	}
	return all
}

// Grafana reports no error for a panel without a data source or a position.
func TestDashboardsAreComplete(t *testing.T) {
	t.Parallel()
	uids := map[string]bool{}
	for file, d := range dashboards(t) {
		require.NotEmpty(t, d.UID, file)
		require.False(t, uids[d.UID], "%s: another dashboard has this uid", file)
		uids[d.UID] = true
		require.NotEmpty(t, d.Title)
		require.Equal(t, 39, d.SchemaVersion, file)
		require.GreaterOrEqual(t, len(d.Templating.List), 2)
		require.Equal(t, "datasource", d.Templating.List[0].Name)
		require.Equal(t, "prometheus", d.Templating.List[0].Query)
		require.Equal(t, "instance", d.Templating.List[1].Name)
		type cell struct{ x, y int }
		used := map[cell]string{}
		for i, p := range d.Panels {
			require.Equal(t, i+1, p.ID, p.Title)
			require.NotEmpty(t, p.Title)
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				require.Less(t, x, 24, p.Title)
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					require.Empty(t, used[cell{x, y}], "%s overlaps", p.Title)
					used[cell{x, y}] = p.Title
				}
			}
			if p.Type == "row" {
				continue
			}
			require.NotEmpty(t, p.Description, p.Title)
			require.Equal(t, "prometheus", p.Datasource.Type, p.Title)
			require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
			require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
			require.NotEmpty(t, p.Targets, p.Title)
			for j, target := range p.Targets {
				assert.Equal(t, string(rune('A'+j)), target.RefID, p.Title)
				assert.NotEmpty(t, target.Expr, p.Title)
			}
		}
	}
}
