package connect_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// screenshotsIn is the variable that names a folder for pictures of every page; without it there are none.
const screenshotsIn = "GATEHOUSE_SCREENSHOTS"

// TestPagesInABrowser connects and ends an assistant and rotates a key. With scripts, axe-core looks at every page on the way, on a
// phone and a desk, light and dark.
func TestPagesInABrowser(t *testing.T) {
	t.Parallel()
	chromium, err := exec.LookPath("chromium")
	require.NoError(t, err, "scripts/packages.sh chromium installs it")
	for name, env := range map[string][]string{
		"with scripts":    {"LOOK=on", "SCREENSHOTS=" + os.Getenv(screenshotsIn)},
		"without scripts": {"JAVASCRIPT=off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for fact, value := range drive(t, newWorld(t), "browser.mjs", append(env, "CHROMIUM="+chromium)...).Facts {
				t.Logf("%s: %v", fact, value)
			}
		})
	}
}
