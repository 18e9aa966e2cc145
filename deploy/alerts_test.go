package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// unitTests are promtool's unit tests of the rules.
var unitTests = []string{"prometheus-rules.test.yaml", "prometheus-rules.slow.test.yaml"}

// rule is a rule of prometheus-rules.yaml.
type rule struct {
	Alert, Record, Expr string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	content, err := os.ReadFile("prometheus-rules.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(content, &file))
	var all []rule
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	require.NoError(t, err, "install Debian's package prometheus (make test does)")
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestAlertsFireOnTheFirstEvent(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "--lint-fatal", "prometheus-rules.yaml")
	promtool(t, append([]string{"test", "rules"}, unitTests...)...)
}

func TestEveryAlertHasAUnitTestAndARunbook(t *testing.T) {
	t.Parallel()
	var fired strings.Builder
	for _, name := range unitTests {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		fired.Write(content)
	}
	runbooks, err := os.ReadFile(filepath.Join("..", "docs", "runbooks.md"))
	require.NoError(t, err)
	alerts := map[string]bool{}
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		alerts[r.Alert] = true
		assert.Contains(t, fired.String(), `alertname="`+r.Alert+`", alertstate="firing", severity="`+r.Labels["severity"]+`"`)
		assert.Contains(t, []string{"critical", "warning"}, r.Labels["severity"], r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.NotEmpty(t, r.Annotations["description"], r.Alert)
		assert.Equal(t, "https://github.com/gatehouse-gateway/gatehouse/blob/main/docs/runbooks.md#"+strings.ToLower(r.Alert),
			r.Annotations["runbook_url"])
		assert.Regexp(t, `(?s)\n## `+r.Alert+"\n\n\\*\\*Meaning\\.\\*\\* .*?\n\\*\\*Confirm\\.\\*\\* .*?\n\\*\\*Do\\.\\*\\*.*?\n\\*\\*Ends\\*\\*", string(runbooks))
	}
	for _, section := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(runbooks), -1) {
		assert.True(t, alerts[section[1]], "no alert %s", section[1])
	}
}
