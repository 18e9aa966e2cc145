package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTestsNamedOnPagesExist(t *testing.T) {
	t.Parallel()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	exists := map[string]bool{}
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			exists[string(m[1])] = true
		}
		return err
	}))
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`")
	for _, page := range []string{"../SECURITY.md", "../CONTRIBUTING.md", "reliability.md", "threat-model.md", "upgrading.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		found := named.FindAllSubmatch(text, -1)
		if page != "threat-model.md" && page != "upgrading.md" {
			require.Greater(t, len(found), 10, "%s names the tests of its promises", page)
		}
		for _, m := range found {
			assert.True(t, exists[string(m[1])], "%s names the test %s, which does not exist", page, m[1])
		}
	}
}

// A page of a release does not install the one before.
func TestPagesNameTheVersionOfTheChart(t *testing.T) {
	t.Parallel()
	read := func(name, pattern string) (versions []string) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			versions = append(versions, string(m[1]))
		}
		return versions
	}
	const named = `(?:gatehouse[:-]|_|--version |tags/v)(\d+\.\d+\.\d+)`
	chart := read("../deploy/chart/Chart.yaml", `(?m)^(?:version|appVersion): (.*)$`)
	require.Equal(t, []string{chart[0], chart[0]}, chart)
	for _, page := range []string{"install.md", "kubernetes.md"} {
		versions := slices.Compact(read(page, named))
		require.Equal(t, chart[:1], versions, page)
	}
	require.Contains(t, read("upgrading.md", named), chart[0], "it is upgraded to, or from")
}

func TestContributingNamesFilesThatExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../CONTRIBUTING.md")
	require.NoError(t, err)
	_, where, _ := strings.Cut(string(page), "## Where is it?")
	files := regexp.MustCompile("`([a-z_]+/[a-z_/]+\\.[a-z]+)`").FindAllStringSubmatch(where, -1)
	require.Greater(t, len(files), 20)
	for _, m := range files {
		assert.FileExists(t, filepath.Join("..", filepath.FromSlash(m[1])))
	}
}

func TestContributingNamesEveryPackage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../CONTRIBUTING.md")
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "node_modules" || d.Name() == "testdata" {
			return filepath.SkipDir
		}
		if sources, err := filepath.Glob(filepath.Join(path, "*.go")); err != nil || len(sources) == 0 {
			return err
		}
		if !strings.Contains(string(page), d.Name()+"/") {
			t.Errorf("CONTRIBUTING.md does not name the package %s", path)
		}
		return nil
	}))
}
