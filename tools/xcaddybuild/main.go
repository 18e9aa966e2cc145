// Command xcaddybuild builds the gateway with xcaddy from a plugin list, xcaddy.json.
//
// The list is an xcaddy.Builder in JSON (caddy_version, plugins, replacements) with the minimum version of Go (go_version).
// Local replacements are relative to the list. Without replacements, it builds the published modules at the versions that it
// names.
package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/version"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/caddyserver/xcaddy"
	"golang.org/x/mod/module"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "xcaddybuild:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("xcaddybuild", flag.ContinueOnError)
	flags.SetOutput(stderr)
	config := flags.String("config", "xcaddy.json", "the plugin list")
	output := flags.String("output", "gatehouse", "where to write the binary")
	ldflags := flags.String("ldflags", "-s -w", "-ldflags of go build")
	tags := flags.String("tags", "", "-tags of go build")
	goos := flags.String("os", "", "the target's GOOS (default: this machine's)")
	goarch := flags.String("arch", "", "the target's GOARCH (default: this machine's)")
	sameAs := flags.String("same-as", "", "fail unless this `binary` was built from the same modules with the same Go")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}

	list, err := load(*config)
	if err != nil {
		return err
	}
	if err := list.checkGo(ctx); err != nil {
		return err
	}
	builder := list.Builder
	builder.OS, builder.Arch = *goos, *goarch
	builder.BuildFlags = fmt.Sprintf("-trimpath -tags '%s' -ldflags '%s'", *tags, *ldflags)
	cleanup, err := list.replacementsFirst(ctx)
	if err != nil {
		return err
	}
	defer cleanup()
	if err := builder.Build(ctx, *output); err != nil {
		return fmt.Errorf("building with xcaddy: %w", err)
	}
	if *sameAs == "" {
		return nil
	}
	return same(*sameAs, *output, stdout)
}

// list is the content of xcaddy.json.
type list struct {
	GoVersion string `json:"go_version"`
	xcaddy.Builder
}

// load reads and validates a list, and makes the paths of its local replacements absolute.
func load(path string) (*list, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the plugin list: %w", err)
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("finding the plugin list's directory: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	l := new(list)
	if err := dec.Decode(l); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	switch {
	case !version.IsValid("go" + l.GoVersion):
		return nil, fmt.Errorf("reading %s: invalid go_version %q: must be a Go version such as 1.26", path, l.GoVersion)
	case l.CaddyVersion == "":
		return nil, fmt.Errorf("reading %s: caddy_version is missing", path)
	case len(l.Plugins) == 0:
		return nil, fmt.Errorf("reading %s: no plugins", path)
	}
	for i, r := range l.Replacements {
		if to := string(r.New); to == "." || strings.HasPrefix(to, "./") || strings.HasPrefix(to, "../") {
			l.Replacements[i].New = xcaddy.ReplacementPath(filepath.Join(dir, to))
		}
	}
	for _, p := range l.Plugins {
		replaced := slices.ContainsFunc(l.Replacements, func(r xcaddy.Replace) bool {
			return p.PackagePath == string(r.Old) || strings.HasPrefix(p.PackagePath, string(r.Old)+"/")
		})
		if p.Version == "" && !replaced {
			return nil, fmt.Errorf("reading %s: plugin %s has neither a version nor a replacement", path, p.PackagePath)
		}
	}
	return l, nil
}

func (l *list) checkGo(ctx context.Context) error {
	have, err := goEnv(ctx, "GOVERSION")
	if err != nil {
		return err
	}
	have, _, _ = strings.Cut(have, " ")
	if version.Compare(have, "go"+l.GoVersion) < 0 {
		return fmt.Errorf("the plugin list requires go%s or later, this is %s", l.GoVersion, have)
	}
	return nil
}

// replacementsFirst keeps Go from looking up plugins of a local replacement in a registry. Go searches for a package in every
// module whose path is a prefix of the package's, longest first, and a registry that responds with "forbidden" instead of "not
// found" ends the search before it reaches the replacement. A proxy on the file system therefore lists no versions for the
// longer paths. cleanup removes its directory.
func (l *list) replacementsFirst(ctx context.Context) (cleanup func(), err error) {
	dir, err := os.MkdirTemp("", "xcaddybuild-")
	if err != nil {
		return nil, fmt.Errorf("creating a directory: %w", err)
	}
	cleanup = func() { _ = os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			cleanup()
		}
	}()
	for _, p := range l.Plugins {
		for _, r := range l.Replacements {
			for longer := p.PackagePath; strings.HasPrefix(longer, string(r.Old)+"/"); longer = path.Dir(longer) {
				escaped, err := module.EscapePath(longer)
				if err != nil {
					return nil, fmt.Errorf("plugin %s: %w", p.PackagePath, err)
				}
				versions := filepath.Join(dir, filepath.FromSlash(escaped), "@v")
				if err := os.MkdirAll(versions, 0o750); err != nil {
					return nil, fmt.Errorf("creating a directory: %w", err)
				}
				if err := os.WriteFile(filepath.Join(versions, "list"), nil, 0o600); err != nil {
					return nil, fmt.Errorf("writing an empty list of versions: %w", err)
				}
			}
		}
	}
	proxies, err := goEnv(ctx, "GOPROXY")
	if err != nil {
		return nil, err
	}
	if err := os.Setenv("GOPROXY", "file://"+filepath.ToSlash(dir)+","+proxies); err != nil {
		return nil, fmt.Errorf("setting GOPROXY: %w", err)
	}
	return cleanup, nil
}

func goEnv(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", name).Output()
	if err != nil {
		return "", fmt.Errorf("reading go env %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// same returns an error that lists the differences if a and b were built with different versions of Go or of any module. It
// ignores the main modules: a's is a dependency of b.
func same(a, b string, stdout io.Writer) error {
	infoA, err := buildinfo.ReadFile(a)
	if err != nil {
		return fmt.Errorf("reading how %s was built: %w", a, err)
	}
	infoB, err := buildinfo.ReadFile(b)
	if err != nil {
		return fmt.Errorf("reading how %s was built: %w", b, err)
	}
	modulesA, modulesB := modules(infoA), modules(infoB)
	delete(modulesA, infoB.Main.Path)
	delete(modulesB, infoA.Main.Path)

	var differences []string
	if infoA.GoVersion != infoB.GoVersion {
		differences = append(differences, fmt.Sprintf("Go: %s and %s", infoA.GoVersion, infoB.GoVersion))
	}
	all := maps.Clone(modulesA)
	maps.Copy(all, modulesB)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if va, vb := modulesA[path], modulesB[path]; va != vb {
			differences = append(differences, fmt.Sprintf("%s: %s and %s", path, orNone(va), orNone(vb)))
		}
	}
	if len(differences) > 0 {
		return fmt.Errorf("%s and %s differ:\n  %s", a, b, strings.Join(differences, "\n  "))
	}
	fmt.Fprintf(stdout, "%s and %s: the same Go and the same %d modules\n", a, b, len(modulesA))
	return nil
}

func modules(info *debug.BuildInfo) map[string]string {
	versions := make(map[string]string, len(info.Deps))
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			versions[dep.Path] = dep.Replace.Path + " " + dep.Replace.Version
		} else {
			versions[dep.Path] = dep.Version
		}
	}
	return versions
}

func orNone(version string) string {
	if version == "" {
		return "none"
	}
	return version
}
