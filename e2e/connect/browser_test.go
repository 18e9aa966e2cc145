package connect_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// screenshotsIn is the variable that names a folder for pictures of every page; without it there are none.
const screenshotsIn = "GATEHOUSE_SCREENSHOTS"

func browse(t *testing.T, env ...string) {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	require.NoError(t, err, "scripts/packages.sh chromium installs it")
	done := drive(t, newWorld(t), "browser.mjs", append(env, "CHROMIUM="+chromium)...)
	for name, value := range done.Facts {
		t.Logf("%s: %v", name, value)
	}
}

// Every page on the way is looked at by axe-core, on a phone and a desk, light and dark.
func TestInABrowserAnOwnerConnectsAndEndsAnAssistantAndRotatesAKeyOnPagesThatKeepNobodyOut(t *testing.T) {
	t.Parallel()
	browse(t, "LOOK=on", "SCREENSHOTS="+os.Getenv(screenshotsIn))
}

func TestInABrowserWithoutScriptsEverythingWorksAsWell(t *testing.T) {
	t.Parallel()
	browse(t, "JAVASCRIPT=off")
}
