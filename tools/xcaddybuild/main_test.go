package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/xcaddy"
	"golang.org/x/mod/modfile"
)

// root is the root of the repository.
const root = "../.."

func TestPluginListAgreesWithGoModAndDockerfile(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	module, err := modfile.Parse("go.mod", data, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := load(filepath.Join(root, "xcaddy.json"))
	if err != nil {
		t.Fatal(err)
	}
	if l.GoVersion != module.Go.Version {
		t.Errorf("go_version is %s, but go.mod has %s", l.GoVersion, module.Go.Version)
	}
	for _, require := range module.Require {
		if require.Mod.Path == "github.com/caddyserver/caddy/v2" && require.Mod.Version != l.CaddyVersion {
			t.Errorf("caddy_version is %s, but go.mod has %s", l.CaddyVersion, require.Mod.Version)
		}
		for _, plugin := range l.Plugins {
			if plugin.PackagePath == require.Mod.Path && plugin.Version != require.Mod.Version {
				t.Errorf("plugin %s is at %s, but go.mod has %s", plugin.PackagePath, plugin.Version, require.Mod.Version)
			}
		}
	}

	dockerfile, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	image := regexp.MustCompile(`(?m)^FROM .*golang:(\d+\.\d+)`).FindSubmatch(dockerfile)
	if len(image) != 2 || !strings.HasPrefix(l.GoVersion, string(image[1])) {
		t.Errorf("the Dockerfile builds with %q, and go_version is %s", image, l.GoVersion)
	}
}

func TestIncompleteListIsRejected(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"a member that xcaddy does not know": {
			`{"go_version":"1.26.0","caddy_version":"v2.11.9","plugin":[]}`, "unknown field",
		},
		"no Caddy version": {
			`{"go_version":"1.26.0","plugins":[{"module_path":"example.org/p","version":"v1.0.0"}]}`, "caddy_version is missing",
		},
		"no Go version": {`{"caddy_version":"v2.11.9"}`, "invalid go_version"},
		"no plugins":    {`{"go_version":"1.26.0","caddy_version":"v2.11.9"}`, "no plugins"},
		"a plugin without a version": {
			`{"go_version":"1.26.0","caddy_version":"v2.11.9","plugins":[{"module_path":"example.org/p"}]}`,
			"neither a version nor a replacement",
		},
		"a replacement of a module with a similar name": {
			`{"go_version":"1.26.0","caddy_version":"v2.11.9","plugins":[{"module_path":"example.org/plug"}],
			  "replacements":[{"old":"example.org/p","new":"."}]}`,
			"neither a version nor a replacement",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "xcaddy.json")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := load(path); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestLocalReplacementIsRelativeToTheList(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "xcaddy.json")
	text := `{"go_version":"1.26.0","caddy_version":"v2.11.9","plugins":[{"module_path":"example.org/p/sub"}],
		"replacements":[{"old":"example.org/p","new":"./here"},{"old":"example.org/q","new":"example.org/r@v1.0.0"}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(l.Replacements[0].New); got != filepath.Join(dir, "here") {
		t.Errorf("got %s", got)
	}
	if got := l.Replacements[1].New; got != xcaddy.ReplacementPath("example.org/r@v1.0.0") {
		t.Errorf("got %s", got)
	}
}

func TestPluginOfALocalReplacementIsNotDownloaded(t *testing.T) {
	t.Setenv("GOPROXY", "https://proxy.example.org,direct")
	l := &list{Builder: xcaddy.Builder{
		Plugins:      []xcaddy.Dependency{{PackagePath: "example.org/Mod/a/b"}, {PackagePath: "example.org/else", Version: "v1.0.0"}},
		Replacements: []xcaddy.Replace{{Old: "example.org/Mod", New: "/somewhere"}},
	}}
	cleanup, err := l.replacementsFirst(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir, rest, _ := strings.Cut(strings.TrimPrefix(os.Getenv("GOPROXY"), "file://"), ",")
	if rest != "https://proxy.example.org,direct" {
		t.Errorf("the other proxies are %q", rest)
	}
	var lists []string
	for _, name := range []string{"example.org/!mod/a/b", "example.org/!mod/a", "example.org/!mod", "example.org/else"} {
		if _, err := os.Stat(filepath.Join(dir, name, "@v", "list")); err == nil {
			lists = append(lists, name)
		}
	}
	if !slices.Equal(lists, []string{"example.org/!mod/a/b", "example.org/!mod/a"}) {
		t.Errorf("listed in the directory: %q", lists)
	}
	cleanup()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory still exists: %v", err)
	}
}

func TestBinaryIsTheSameAsItself(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := same(self, self, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "the same Go") {
		t.Errorf("got %q", out.String())
	}
}
