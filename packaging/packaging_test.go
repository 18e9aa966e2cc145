// Package packaging_test builds what a release has from the commit that is checked out, and installs its packages into a clean Debian.
package packaging_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/processtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/recordtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// patience is how long a test waits for a condition, because the machine may be busy.
const patience = 2 * time.Minute

// buildRelease builds the host's part of a release in a clone of the project, and returns the folder with the results.
func buildRelease(t *testing.T, clone, umask string) string {
	t.Helper()
	root, err := processtest.Root()
	require.NoError(t, err)
	run(t, "git", "clone", "--quiet", root, clone)
	config, err := os.ReadFile(filepath.Join(clone, ".goreleaser.yaml"))
	require.NoError(t, err)
	text := string(config)
	for _, change := range [][2]string{
		{"goos: [linux, darwin]", "goos: [" + runtime.GOOS + "]"},
		{"goarch: [amd64, arm64]", "goarch: [" + runtime.GOARCH + "]"},
	} {
		require.Contains(t, text, change[0])
		text = strings.Replace(text, change[0], change[1], 1)
	}
	limited := filepath.Join(t.TempDir(), "goreleaser.yaml")
	require.NoError(t, os.WriteFile(limited, []byte(text), 0o600))
	// The tools of the project, and the clone's everything else.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `umask "$1"; exec make -C "$2" snapshot TOOL="$3" SNAPSHOT_FLAGS="--config $4"`, "sh",
		umask, clone, filepath.Join(root, "scripts", "tool.sh"), limited)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "MAKE") || strings.HasPrefix(s, "MFLAGS") })
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(clone, "dist")
}

// run runs a command and returns its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, "%s %q: %s", name, args, out)
	return string(out)
}

// hashes returns the SHA-256 of each file that a release publishes, by name.
func hashes(t *testing.T, dist string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(dist, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dist, path)
		if err != nil || entry.IsDir() || slices.Contains([]string{"artifacts.json", "config.yaml", "metadata.json"}, name) {
			return err // what GoReleaser notes about its run is not published
		}
		data, err := os.ReadFile(path)
		sum := sha256.Sum256(data)
		found[name] = hex.EncodeToString(sum[:])
		return err
	}))
	return found
}

func TestRelease(t *testing.T) { //nolint:tparallel // the parts follow each other
	t.Parallel()
	dir := t.TempDir()
	dist := buildRelease(t, filepath.Join(dir, "clone"), "022")

	t.Run("two builds of one commit in different folders are the same", func(t *testing.T) {
		again := buildRelease(t, filepath.Join(dir, "another-folder"), "077")
		first := hashes(t, dist)
		require.Equal(t, first, hashes(t, again))
		var kinds []string
		for name := range first {
			kinds = append(kinds, regexp.MustCompile(`[-_~]?\d+\.\d+\.\d+[-~]snapshot\.[0-9a-f]+(-1)?`).ReplaceAllString(name, ""))
		}
		platform := runtime.GOOS + "_" + runtime.GOARCH
		for _, want := range []string{
			"checksums.txt", "gatehouse_" + platform + ".tar.gz", "gatehouse-demo_" + platform + ".tar.gz",
			"gatehouse_" + platform + ".cdx.json", "gatehouse-demo_" + platform + ".cdx.json", "gatehouse_" + runtime.GOARCH + ".deb",
		} {
			assert.Contains(t, kinds, want)
		}
		rpm, err := filepath.Glob(filepath.Join(dist, "*.rpm"))
		require.NoError(t, err)
		assert.Len(t, rpm, 1)
	})
	debs, err := filepath.Glob(filepath.Join(dist, "*.deb"))
	require.NoError(t, err)
	require.Len(t, debs, 1)
	rpms, err := filepath.Glob(filepath.Join(dist, "*.rpm"))
	require.NoError(t, err)
	require.Len(t, rpms, 1)
	m := newMachine(t)
	t.Run("deb", func(t *testing.T) { testDeb(t, m, debs[0]) })
	t.Run("rpm", func(t *testing.T) { testRPM(t, m, rpms[0]) })
	archives, err := filepath.Glob(filepath.Join(dist, "gatehouse_*.tar.gz"))
	require.NoError(t, err)
	require.Len(t, archives, 1)
	t.Run("archive", func(t *testing.T) { testArchive(t, m, archives[0]) })
}

func TestReleaseStartsInAFreshClone(t *testing.T) {
	t.Parallel()
	root, err := processtest.Root()
	require.NoError(t, err)
	clone := filepath.Join(t.TempDir(), "clone")
	run(t, "git", "clone", "--quiet", root, clone)
	run(t, "git", "-C", clone, "tag", "v0.1.0")
	run(t, "make", "-C", clone, "release", "TOOL=true") // true stands in for GoReleaser
	notes, err := os.ReadFile(filepath.Join(clone, "bin", "notes.md"))
	require.NoError(t, err)
	require.Contains(t, string(notes), "(https://github.com/gatehouse-gateway/gatehouse/blob/v0.1.0/docs/install.md)")
	require.NotContains(t, string(notes), "## [")
}

// machine is a clean Debian below a folder, which is used with chroot: its processes see the network of the test, and no service
// manager.
type machine struct{ root string }

// newMachine makes a Debian with nothing but its essential packages, systemd's programs and rpm.
func newMachine(t *testing.T) *machine {
	t.Helper()
	require.Zero(t, os.Getuid(), "installing packages below a folder needs root")
	project, err := processtest.Root()
	require.NoError(t, err)
	m := &machine{root: filepath.Join(t.TempDir(), "debian")}
	run(t, filepath.Join(project, "scripts", "retry.sh"), "sh", "-c", `rm -rf "$1" && exec mmdebstrap --quiet --mode=root --variant=minbase \
		--include=curl,systemd,rpm --aptopt='APT::Sandbox::User "root"' bookworm "$1"`, "sh", m.root)
	require.NoError(t, os.Chmod(m.root, 0o755))
	m.write(t, "etc/hosts", "127.0.0.1 localhost\n", 0o644)
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.root, name) }

func (m *machine) read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(m.path(name))
	require.NoError(t, err)
	return string(data)
}

func (m *machine) write(t *testing.T, name, content string, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(m.path(name)), 0o755))
	require.NoError(t, os.WriteFile(m.path(name), []byte(content), mode))
	require.NoError(t, os.Chmod(m.path(name), mode))
}

// command returns a command of a root shell in the machine.
func (m *machine) command(ctx context.Context, script string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "chroot", m.root, "sh", "-euc", script)
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "DEBIAN_FRONTEND=noninteractive"}, env...)
	return cmd
}

// sh runs a script as root and returns its output.
func (m *machine) sh(t *testing.T, script string, env ...string) string {
	t.Helper()
	out, err := m.command(t.Context(), script, env...).CombinedOutput()
	require.NoError(t, err, "%s\n%s", script, out)
	return string(out)
}

// state returns owner, mode and name of files.
func (m *machine) state(t *testing.T, names string) string {
	t.Helper()
	return m.sh(t, "stat -c '%U:%G %a %n' "+names)
}

// unit is the installed gatehouse.service.
type unit struct{ lines map[string][]string }

func (m *machine) unit(t *testing.T) unit {
	t.Helper()
	u := unit{map[string][]string{}}
	for line := range strings.Lines(m.read(t, "usr/lib/systemd/system/gatehouse.service")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			u.lines[name] = append(u.lines[name], value)
		}
	}
	return u
}

// script returns what starts a command as systemd would: as the unit's user, with its capabilities, folders and environment.
func (u unit) script(t *testing.T, command string) string {
	t.Helper()
	one := func(name string) string {
		require.Len(t, u.lines[name], 1, name)
		return u.lines[name][0]
	}
	var b strings.Builder
	for directory, parent := range map[string]string{"State": "/var/lib", "Logs": "/var/log", "Runtime": "/run"} {
		fmt.Fprintf(&b, "install -d -o %s -g %s -m %s %s/%s\n", one("User"), one("Group"), one(directory+"DirectoryMode"), parent, one(directory+"Directory"))
	}
	fmt.Fprintf(&b, "set -a; . %s; export %s; set +a\n", strings.TrimPrefix(one("EnvironmentFile"), "-"), one("Environment"))
	fmt.Fprintf(&b, "umask %s; cd %s\n", one("UMask"), one("WorkingDirectory"))
	capability := "+" + strings.ToLower(strings.TrimPrefix(one("AmbientCapabilities"), "CAP_"))
	fmt.Fprintf(&b, "exec setpriv --pdeathsig=KILL --reuid=%s --regid=%s --init-groups --no-new-privs --inh-caps=-all,%[3]s --ambient-caps=-all,%[3]s --bounding-set=-all,%[3]s %[4]s\n",
		one("User"), one("Group"), capability, command)
	return b.String()
}

func testDeb(t *testing.T, m *machine, deb string) {
	t.Helper()
	copyFile(t, deb, m.path("root/gatehouse.deb"))

	t.Run("install", func(t *testing.T) {
		m.sh(t, "dpkg --install /root/gatehouse.deb")
		require.Regexp(t, `^gatehouse:x:\d+:\d+:[^:]*:/var/lib/gatehouse:/usr/sbin/nologin\n$`, m.sh(t, "getent passwd gatehouse"))
		require.Equal(t, "root:root 755 /etc/gatehouse\nroot:gatehouse 750 /etc/gatehouse/secrets\nroot:root 644 /etc/gatehouse/Caddyfile\n"+
			"root:root 644 /etc/gatehouse/gatehouse.env\nroot:root 755 /usr/bin/gatehouse\n",
			m.state(t, "/etc/gatehouse /etc/gatehouse/secrets /etc/gatehouse/Caddyfile /etc/gatehouse/gatehouse.env /usr/bin/gatehouse"))
		require.Equal(t, " /etc/gatehouse/Caddyfile\n /etc/gatehouse/gatehouse.env\n",
			regexp.MustCompile(`(?m) [0-9a-f]{32}$`).ReplaceAllString(m.sh(t, "dpkg-query --show --showformat='${Conffiles}\n' gatehouse"), ""))
		require.Contains(t, m.sh(t, "gatehouse version"), "snapshot")
		require.Empty(t, m.sh(t, "dpkg --verify gatehouse"))
		require.FileExists(t, m.path("usr/share/zsh/vendor-completions/_gatehouse"))
		require.NoDirExists(t, m.path("usr/share/zsh/site-functions"))
	})

	t.Run("the unit is hardened", func(t *testing.T) {
		out := m.sh(t, "systemd-analyze security --offline=true --threshold=20 gatehouse.service")
		require.Regexp(t, `Overall exposure level for gatehouse.service: [01]\.\d OK`, out)
		require.Empty(t, m.sh(t, "systemd-analyze verify --man=no --recursive-errors=no gatehouse.service"))
	})

	var g packaged
	served := t.Run("the steps of docs/install.md lead to a signed 200", func(t *testing.T) { followPage(t, m, deb, &g) })
	if g.process != nil {
		t.Cleanup(g.process.Kill)
	}
	require.True(t, served)

	reload := func(t *testing.T) (string, error) {
		t.Helper()
		var all string
		for _, line := range g.unit.lines["ExecReload"] {
			out, err := m.command(t.Context(), g.unit.script(t, line)).CombinedOutput()
			all += string(out)
			if err != nil {
				return all, err
			}
		}
		return all, nil
	}
	loaded := func(t *testing.T) string {
		t.Helper()
		return m.sh(t, "curl --silent --show-error --fail --unix-socket /run/gatehouse/admin.sock http://localhost/config/")
	}
	const before, after, broken = "max_header_size 16KiB", "max_header_size 24KiB", "max_header_size 24KiB\n\t\tno_such_option"
	caddyfile := m.read(t, "etc/gatehouse/Caddyfile")
	require.Contains(t, caddyfile, before)
	m.change(t, before, after)
	t.Run("a reload loads the changed configuration", func(t *testing.T) {
		require.NotContains(t, loaded(t), "24576")
		out, err := reload(t)
		require.NoError(t, err, out)
		require.Contains(t, loaded(t), "24576")
		g.requireServed(t, m)
	})
	t.Run("a bad record of a key stops neither a start nor a reload", func(t *testing.T) {
		now := m.read(t, "etc/gatehouse/Caddyfile")
		m.write(t, "etc/gatehouse/Caddyfile", regexp.MustCompile(`(?s)\t\tcredentials vault .*?\n\t\t}\n`).
			ReplaceAllLiteralString(now, "\t\tcredentials file /etc/gatehouse/secrets/keys.json\n"), 0o644)
		m.write(t, "etc/gatehouse/secrets/keys.json", `{"keys": {"pk_live_0123456789": {"ressources": ["jobs"]}}}`, 0o600)
		m.sh(t, "chown gatehouse /etc/gatehouse/secrets/keys.json")
		for _, line := range []string{g.unit.lines["ExecStartPre"][0], g.unit.lines["ExecReload"][0]} {
			require.Contains(t, m.sh(t, g.unit.script(t, line)), "warning GH045")
		}
		require.NoError(t, os.Remove(m.path("etc/gatehouse/secrets/keys.json")))
		m.write(t, "etc/gatehouse/Caddyfile", now, 0o644)
	})
	t.Run("a start without a file of the configuration fails before systemd takes the gateway for started", func(t *testing.T) {
		m.sh(t, "mv /etc/gatehouse/secrets/vault-role-id /root")
		defer m.sh(t, "mv /root/vault-role-id /etc/gatehouse/secrets")
		var failed []string
		for _, line := range g.unit.lines["ExecStartPre"] {
			if out, err := m.command(t.Context(), g.unit.script(t, line)).CombinedOutput(); err != nil {
				failed = append(failed, string(out))
			}
		}
		require.Len(t, failed, 1)
		require.Contains(t, failed[0], "vault-role-id: no such file or directory")
	})
	t.Run("a reload with an error changes nothing", func(t *testing.T) {
		m.change(t, after, broken)
		out, err := reload(t)
		require.Error(t, err)
		require.Contains(t, out, "no_such_option")
		require.Contains(t, out, "/etc/gatehouse/Caddyfile:")
		require.Contains(t, loaded(t), "24576")
		g.requireServed(t, m)
	})

	t.Run("what the page says to run before a restart", func(t *testing.T) {
		m.change(t, broken, after)
		require.Contains(t, m.sh(t, commands(t, "cd /etc/gatehouse\n")), "Valid configuration")
		m.change(t, after, broken)
	})

	newer := func(t *testing.T, version string) {
		t.Helper()
		m.sh(t, "cd /root && rm -rf newer && dpkg-deb --raw-extract gatehouse.deb newer && "+
			"sed -i 's/^Version: .*/Version: "+version+"/' newer/DEBIAN/control && echo '# new' >>newer/etc/gatehouse/Caddyfile && "+
			"dpkg-deb -Znone --build newer newer.deb >/dev/null")
	}
	upgrade := func(t *testing.T) (out, calls string) {
		t.Helper()
		require.NoError(t, os.Truncate(m.path(systemctlLog), 0))
		out = m.sh(t, "dpkg --install --force-confdef --force-confold /root/newer.deb")
		return out, m.read(t, systemctlLog)
	}
	t.Run("an upgrade does not restart the gateway if the new version rejects its configuration", func(t *testing.T) {
		newer(t, "9.0.0")
		m.write(t, "root/active", "", 0o600)
		out, calls := upgrade(t)
		require.Contains(t, out, "NOT restarted")
		require.Contains(t, out, "no_such_option")
		require.NotContains(t, calls, "restart")
		g.requireServed(t, m)
	})
	m.change(t, broken, after)
	// The check as root finds neither: it tolerates what is missing, and root may read everything.
	m.write(t, "etc/gatehouse/hop.pem", signingKey(t), 0o600)
	for name, file := range map[string]string{"is missing": "/etc/gatehouse/missing.pem", "can be read by root only": "/etc/gatehouse/hop.pem"} {
		t.Run("an upgrade does not restart the gateway if a file "+name, func(t *testing.T) {
			const before = "\tgatehouse {\n"
			withKey := before + "\t\tassertion " + file + "\n"
			m.change(t, before, withKey)
			newer(t, "9.0.0")
			out, calls := upgrade(t)
			require.Contains(t, out, "NOT restarted")
			require.Contains(t, out, file)
			require.NotContains(t, calls, "restart")
			g.requireServed(t, m)
			m.change(t, withKey, before)
		})
	}
	require.NoError(t, os.Remove(m.path("etc/gatehouse/hop.pem")))
	t.Run("an upgrade restarts the gateway and keeps what was edited", func(t *testing.T) {
		newer(t, "9.0.1")
		edited := m.read(t, "etc/gatehouse/Caddyfile") + m.read(t, "etc/gatehouse/gatehouse.env")
		secrets := m.state(t, "/etc/gatehouse/secrets/*")
		const other = "usr/local/bin/gatehouse" // which the unit does not run
		m.write(t, other, "#!/bin/sh\nexit 1\n", 0o755)
		_, calls := upgrade(t)
		require.NoError(t, os.Remove(m.path(other)))
		require.Contains(t, calls, "restart gatehouse.service\n")
		require.NotContains(t, calls, "disable")
		require.Equal(t, edited, m.read(t, "etc/gatehouse/Caddyfile")+m.read(t, "etc/gatehouse/gatehouse.env"))
		require.Equal(t, secrets, m.state(t, "/etc/gatehouse/secrets/*"))
	})
	t.Run("an upgrade does not start a gateway that was stopped", func(t *testing.T) {
		newer(t, "9.0.2")
		require.NoError(t, os.Remove(m.path("root/active")))
		_, calls := upgrade(t)
		require.Contains(t, calls, "daemon-reload")
		require.NotContains(t, calls, "start")
	})
	t.Run("SIGTERM ends it", func(t *testing.T) {
		require.NoError(t, g.process.End(syscall.SIGTERM))
		require.Zero(t, g.process.State().ExitCode())
	})
	t.Run("remove keeps configuration, secrets and certificates", func(t *testing.T) {
		m.sh(t, "dpkg --remove gatehouse")
		require.Contains(t, m.read(t, systemctlLog), "disable --now gatehouse.service\n")
		require.NoFileExists(t, m.path("usr/bin/gatehouse"))
		m.state(t, "/etc/gatehouse/Caddyfile /etc/gatehouse/gatehouse.env /etc/gatehouse/secrets/vault-secret-id /var/lib/gatehouse/caddy/pki")
	})
	t.Run("purge leaves nothing but the user", func(t *testing.T) {
		m.sh(t, "dpkg --purge gatehouse")
		require.Empty(t, m.sh(t, "find / -xdev -name '*gatehouse*' -not -path '/root/*' -not -path '/run/*' -not -path '/proc/*'"))
		m.sh(t, "getent passwd gatehouse")
	})
	t.Run("it can be installed again", func(t *testing.T) {
		m.sh(t, "dpkg --install /root/gatehouse.deb && dpkg --purge gatehouse")
	})
	t.Run("it can be installed where only the group exists", func(t *testing.T) {
		m.sh(t, "userdel gatehouse; groupadd --force gatehouse; dpkg --install /root/gatehouse.deb")
		require.Equal(t, "root:gatehouse 750 /etc/gatehouse/secrets\n", m.state(t, "/etc/gatehouse/secrets"))
		require.Equal(t, "gatehouse\n", m.sh(t, "id --group --name gatehouse; dpkg --purge gatehouse >/dev/null"))
	})
}

// packaged is the gateway of an installed package.
type packaged struct {
	unit    unit
	process *processtest.Process
	request string // shell commands that send a signed request
	output  *recordtest.Output
}

func (g packaged) requireServed(t *testing.T, m *machine) {
	t.Helper()
	require.False(t, g.process.Ended(), "the gateway has ended")
	require.Contains(t, m.sh(t, g.request), `"slug":"fernhollow"`)
}

// systemctlLog has the calls of the systemctl that stands in for systemd's.
const systemctlLog = "root/systemctl.log"

// followPage runs the commands of docs/install.md with real stores, and starts the gateway as the unit says.
func followPage(t *testing.T, m *machine, deb string, g *packaged) {
	t.Helper()
	page, err := os.ReadFile("../docs/install.md")
	require.NoError(t, err)
	_, steps, found := strings.Cut(string(page), "\n## A Debian or Ubuntu machine\n")
	require.True(t, found)
	steps, _, found = strings.Cut(steps, "\n### What is where\n")
	require.True(t, found)
	var blocks []string
	for _, block := range regexp.MustCompile("(?s)\n```sh\n(.*?)```\n").FindAllStringSubmatch(steps, -1) {
		blocks = append(blocks, block[1])
	}
	require.Len(t, blocks, 6)

	redis, vault := redistest.Start(t), vaulttest.Start(t, vaulttest.Options{})
	client := vault.Client(t)
	require.NoError(t, client.Sys().UnmountWithContext(t.Context(), "kv")) // as in a new Vault
	require.NoError(t, client.Sys().DisableAuthWithContext(t.Context(), "approle"))
	data := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(data.Close)
	port := func() string {
		_, port, err := net.SplitHostPort(gatewaytest.FreeAddr(t))
		require.NoError(t, err)
		return port
	}
	httpPort, httpsPort := port(), port()
	copyFile(t, deb, m.path("root/gatehouse_0.1.0_amd64.deb"))
	// The page's names are this test's servers.
	names := strings.NewReplacer(
		"./gatehouse_0.1.0_amd64.deb", "/root/gatehouse_0.1.0_amd64.deb",
		"https://vault.internal:8200", vault.Addr, "hvs.example", vault.RootToken,
		"rediss://redis.internal:6379", redis.URL(), "https://data.internal:8443", data.URL,
		"GATEHOUSE_DOMAIN=api.example.com\n", "GATEHOUSE_DOMAIN=localhost\n",
		"https://api.example.com", "https://localhost:"+httpsPort,
	)
	step := func(i int) string { return names.Replace(blocks[i]) }

	m.sh(t, step(0))
	m.change(t, "\tservers {\n", "\thttp_port "+httpPort+"\n\thttps_port "+httpsPort+"\n\tskip_install_trust\n\tservers {\n")
	// Besides other tests, Vault may take longer than by default.
	m.change(t, "\t\t\tmount kv\n", "\t\t\tmount kv\n\t\t\ttimeout 10s\n")
	m.change(t, "\t\tcache {\n", "\t\tcache {\n\t\t\tlookup_timeout 10s\n")
	m.sh(t, step(1))
	require.Equal(t, "gatehouse:gatehouse 400 /etc/gatehouse/secrets/vault-role-id\ngatehouse:gatehouse 400 /etc/gatehouse/secrets/vault-secret-id\n",
		m.state(t, "/etc/gatehouse/secrets/*"))
	require.Contains(t, m.sh(t, step(2)), "0 errors")

	// From here on the machine seems to be run by systemd: the package's scripts call systemctl.
	m.write(t, "usr/bin/systemctl", "#!/bin/sh\necho \"$*\" >>/"+systemctlLog+"\ncase \"$*\" in *is-active*) [ -e /root/active ];; esac\n", 0o755)
	m.write(t, systemctlLog, "", 0o600)
	require.NoError(t, os.MkdirAll(m.path("run/systemd/system"), 0o755))
	start, ready, found := strings.Cut(step(3), "\n")
	require.True(t, found)
	require.Equal(t, "systemctl enable --now gatehouse", start)
	*g = packaged{unit: m.unit(t), output: new(recordtest.Output)}
	require.Equal(t, []string{"notify"}, g.unit.lines["Type"])
	require.NotEmpty(t, g.unit.lines["ExecStartPre"])
	require.Len(t, g.unit.lines["ExecStart"], 1)
	for _, line := range g.unit.lines["ExecStartPre"] {
		m.sh(t, g.unit.script(t, line))
	}
	notified, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path("run/notify"), Net: "unixgram"})
	require.NoError(t, err)
	defer func() { _ = notified.Close() }()
	require.NoError(t, os.Chmod(m.path("run/notify"), 0o777))
	cmd := m.command(context.WithoutCancel(t.Context()), g.unit.script(t, g.unit.lines["ExecStart"][0]), "NOTIFY_SOCKET=/run/notify")
	cmd.Stdout, cmd.Stderr = g.output, g.output
	g.process, err = processtest.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what the gateway printed:\n%s", g.output)
		}
	})
	require.NoError(t, notified.SetReadDeadline(time.Now().Add(patience)))
	for message := make([]byte, 1024); ; { // Caddy says RELOADING=1 before
		n, err := notified.Read(message)
		require.NoError(t, err, "%s", g.output)
		if strings.Contains(string(message[:n]), "READY=1") {
			break
		}
	}
	require.Eventually(t, func() bool { // the login to Vault need not have ended
		out, err := m.command(t.Context(), ready).CombinedOutput()
		return err == nil && strings.Contains(string(out), "credentials: ok")
	}, patience, 100*time.Millisecond)

	keys := regexp.MustCompile(`(?s)public key: +(\S+)\nprivate key: +(\S+)\n`).FindStringSubmatch(m.sh(t, step(4)))
	require.Len(t, keys, 3)
	g.request = "export SSL_CERT_FILE=/var/lib/gatehouse/caddy/pki/authorities/local/root.crt\n" +
		strings.NewReplacer("pk_live_example", keys[1], "sk_live_example", keys[2]).Replace(step(5))
	g.requireServed(t, m)
}

// change replaces a text of the machine's Caddyfile.
func (m *machine) change(t *testing.T, from, to string) {
	t.Helper()
	text := m.read(t, "etc/gatehouse/Caddyfile")
	require.Contains(t, text, from)
	m.write(t, "etc/gatehouse/Caddyfile", strings.Replace(text, from, to, 1), 0o644)
}

func testRPM(t *testing.T, m *machine, rpm string) {
	t.Helper()
	copyFile(t, rpm, m.path("root/gatehouse.rpm"))
	// rpm of Debian knows none of Debian's packages, and asks whether one means it.
	const install = "rpm --nodeps --force-debian "
	m.sh(t, install+"--install /root/gatehouse.rpm")
	require.Empty(t, m.sh(t, "rpm --verify --nodeps gatehouse"))
	require.FileExists(t, m.path("usr/share/zsh/site-functions/_gatehouse"))
	requireLicenses(t, m, "usr/bin/gatehouse", "usr/share/doc/gatehouse/THIRD-PARTY-LICENSES.txt")
	require.Equal(t, "root:gatehouse 750 /etc/gatehouse/secrets\nroot:root 755 /usr/bin/gatehouse\n", m.state(t, "/etc/gatehouse/secrets /usr/bin/gatehouse"))
	m.sh(t, "gatehouse check --offline --config /etc/gatehouse/Caddyfile")
	m.change(t, "max_header_size 16KiB", "max_header_size 24KiB")

	m.write(t, "root/active", "", 0o600)
	// What a gateway that runs has. Its Redis and Vault need not be available.
	m.sh(t, "install -d -o gatehouse -g gatehouse -m 0700 /var/lib/gatehouse; cd /etc/gatehouse/secrets; "+
		"echo role >vault-role-id; echo secret >vault-secret-id; chgrp gatehouse *; chmod 0640 *")
	require.NoError(t, os.Truncate(m.path(systemctlLog), 0))
	m.sh(t, install+"--upgrade --replacepkgs --replacefiles /root/gatehouse.rpm")
	require.Contains(t, m.read(t, "etc/gatehouse/Caddyfile"), "max_header_size 24KiB")
	require.Contains(t, m.read(t, systemctlLog), "restart gatehouse.service\n")
	require.NotContains(t, m.read(t, systemctlLog), "disable")

	m.sh(t, "rpm --erase --nodeps --force-debian gatehouse")
	require.Contains(t, m.read(t, systemctlLog), "disable --now gatehouse.service\n")
	require.NoFileExists(t, m.path("usr/bin/gatehouse"))
	require.Contains(t, m.read(t, "etc/gatehouse/Caddyfile.rpmsave"), "max_header_size 24KiB")
}

// testArchive installs an archive as docs/install.md says.
func testArchive(t *testing.T, m *machine, archive string) {
	t.Helper()
	copyFile(t, archive, m.path("root/gatehouse.tar.gz"))
	m.sh(t, "userdel gatehouse; groupdel gatehouse || true; rm -rf /etc/gatehouse; mkdir /root/archive; tar -C /root/archive --strip-components=1 -xf /root/gatehouse.tar.gz")
	m.sh(t, "cd /root/archive\n"+commands(t, "useradd "))
	require.Equal(t, "root:root 755 /etc/gatehouse\nroot:gatehouse 750 /etc/gatehouse/secrets\nroot:root 644 /etc/gatehouse/Caddyfile\n"+
		"root:root 644 /etc/gatehouse/gatehouse.env\nroot:root 755 /usr/bin/gatehouse\n",
		m.state(t, "/etc/gatehouse /etc/gatehouse/secrets /etc/gatehouse/Caddyfile /etc/gatehouse/gatehouse.env /usr/bin/gatehouse"))
	require.Empty(t, m.sh(t, "systemd-analyze verify --man=no --recursive-errors=no gatehouse.service"))
	m.sh(t, "gatehouse check --offline --config /etc/gatehouse/Caddyfile --envfile /etc/gatehouse/gatehouse.env")
	require.FileExists(t, m.path("root/archive/deploy/vault-setup.sh"))
	requireLicenses(t, m, "usr/bin/gatehouse", "root/archive/THIRD-PARTY-LICENSES.txt")
}

// requireLicenses requires a text to name all modules in a binary, with their licences.
func requireLicenses(t *testing.T, m *machine, binary, text string) {
	t.Helper()
	info, err := buildinfo.ReadFile(m.path(binary))
	require.NoError(t, err)
	require.NotEmpty(t, info.Deps)
	licenses := m.read(t, text)
	for _, module := range info.Deps {
		_, license, ok := strings.Cut(licenses, "\n======== "+module.Path+" "+module.Version+" ========\n")
		require.True(t, ok, module.Path)
		license, _, _ = strings.Cut(license, "\n======== ")
		require.Greater(t, len(license), 300, module.Path)
	}
}

// commands returns the block in a list of docs/install.md that begins with a text.
func commands(t *testing.T, begin string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/install.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)\n  ```sh\n(  " + begin + ".*?)  ```\n").FindSubmatch(page)
	require.NotNil(t, block)
	return string(block[1])
}

// signingKey returns a new key for assertions.
func signingKey(t *testing.T) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, data, 0o600))
}
