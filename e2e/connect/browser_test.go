package connect_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// screenshotsIn names the variable with a folder for screenshots of every page.
const screenshotsIn = "GATEHOUSE_SCREENSHOTS"

// The browser connects and disconnects an assistant and rotates a key. With scripts, axe-core checks every page, in the sizes of a phone and
// a desktop, light and dark.
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
			for fact, value := range drive(t, newEnvironment(t), "browser.mjs", append(env, "CHROMIUM="+chromium)...).Facts {
				t.Logf("%s: %v", fact, value)
			}
		})
	}
}
