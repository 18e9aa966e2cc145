// Package deploy_test tests the examples of this directory.
package deploy_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
	"github.com/gatehouse-gateway/gatehouse/internal/test/recordtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// patience limits each wait. It is long because the machine may be busy.
const patience = time.Minute

// Both ways of building, and the images, use the versions of go.mod.
func TestPluginListAndImagesAgreeWithGoMod(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		data, err := os.ReadFile(filepath.Join("..", path))
		require.NoError(t, err)
		return string(data)
	}
	module := read("go.mod")
	var list struct {
		CaddyVersion string `json:"caddy_version"`
		Plugins      []struct {
			ModulePath string `json:"module_path"`
			Version    string `json:"version"`
		} `json:"plugins"`
	}
	require.NoError(t, json.Unmarshal([]byte(read("xcaddy.json")), &list))
	require.NotEmpty(t, list.Plugins)
	assert.Contains(t, module, "\tgithub.com/caddyserver/caddy/v2 "+list.CaddyVersion+"\n")
	for _, plugin := range list.Plugins {
		if strings.Contains(module, "\t"+plugin.ModulePath+" ") {
			assert.Contains(t, module, "\t"+plugin.ModulePath+" "+plugin.Version)
		}
	}
	for _, file := range []string{"Dockerfile", "deploy/dataservice/Dockerfile"} {
		image := regexp.MustCompile(`(?m)^FROM .*golang:(\d+\.\d+)`).FindStringSubmatch(read(file))
		require.Len(t, image, 2, file)
		assert.Contains(t, module, "\ngo "+image[1]+".", file)
	}
	// What is tested, and searched for vulnerabilities, is what a release has.
	for _, workflow := range []string{"release", "vuln", "test", "nightly"} {
		versions := regexp.MustCompile(`(?m)^ +(?:go-version: |image: golang:)([0-9.]*)`).FindAllStringSubmatch(read(".github/workflows/"+workflow+".yml"), -1)
		require.NotEmpty(t, versions, workflow)
		for _, version := range versions {
			assert.Contains(t, read("Dockerfile"), "golang:"+version[1]+"-", workflow)
		}
	}
}

// The image of a release keeps its digest: what comes after the build can be repeated without building.
func TestReleaseIsNotBuiltAgainIfAttestingFails(t *testing.T) {
	t.Parallel()
	var workflow struct {
		Jobs map[string]struct {
			Needs string `yaml:"needs"`
			Steps []struct {
				Uses string `yaml:"uses"`
				Run  string `yaml:"run"`
			} `yaml:"steps"`
		} `yaml:"jobs"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "../.github/workflows/release.yml")), &workflow))
	where := map[string][]string{}
	for name, job := range workflow.Jobs {
		for _, step := range job.Steps {
			for _, text := range []string{"make release", "actions/attest@", "helm push"} {
				if strings.Contains(step.Uses+step.Run, text) {
					where[text] = append(where[text], name)
				}
			}
		}
	}
	assert.Equal(t, map[string][]string{"make release": {"release"}, "actions/attest@": {"attest", "attest"}, "helm push": {"attest"}}, where)
	assert.Equal(t, "release", workflow.Jobs["attest"].Needs)
	assert.Contains(t, read(t, "../.goreleaser.yaml"), "\n  replace_existing_draft: true\n")
}

// A tag may name another image tomorrow. Images without a tag are built here.
func TestImagesOfOthersArePinnedByDigest(t *testing.T) {
	t.Parallel()
	images := 0
	for _, file := range []string{"../Dockerfile", "dataservice/Dockerfile", "compose.yaml", "../.github/workflows/test.yml", "../.github/workflows/nightly.yml", "../.github/workflows/release.yml"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, line := range regexp.MustCompile(`(?m)^(FROM .*| +(?:image: |driver-opts: image=)\S+:.*)$`).FindAllString(string(text), -1) {
			if line == "FROM scratch AS release" || line == "FROM $BINARY AS binary" {
				continue // empty, or another stage
			}
			images++
			assert.Regexp(t, `@sha256:[0-9a-f]{64}( AS \w+)?$`, line, file)
		}
	}
	assert.Equal(t, 10, images)
	assert.Contains(t, read(t, "../.goreleaser.yaml"), `sbom: "false"`, "it would pull another image")
}

// It runs the setup of the composition twice on a new Vault, and uses the logins of the gateway and of the operator.
func TestLoginsHaveLeastPrivilege(t *testing.T) {
	t.Parallel()
	server := vaulttest.Start(t, vaulttest.Options{})
	root := server.Client(t)
	// As in a new Vault.
	require.NoError(t, root.Sys().UnmountWithContext(t.Context(), "kv"))
	require.NoError(t, root.Sys().DisableAuthWithContext(t.Context(), "approle"))

	logins := t.TempDir()
	setup := func(env ...string) {
		cmd := exec.CommandContext(t.Context(), "sh", "./setup.sh")
		cmd.Env = append(os.Environ(), append([]string{"VAULT_ADDR=" + server.Addr, "VAULT_TOKEN=" + server.RootToken, "LOGIN=" + logins}, env...)...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, "Vault is ready for the gateway\n", string(out), "no secret is printed")
	}
	read := func(party, name string) string {
		path := filepath.Join(logins, party, name)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NotEmpty(t, data)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, "%s must be readable by its owner only", name)
		return string(data)
	}
	setup()
	password := read("redis", "redis-password")
	setup()
	require.Equal(t, password, read("redis", "redis-password"), "a second setup keeps the password of Redis")
	require.Equal(t, password, read("gateway", "redis-password"))
	require.NotEqual(t, read("operator", "vault-role-id"), read("gateway", "vault-role-id"))

	open := func(party, path string) *vault.Source {
		read(party, "vault-secret-id")
		source, err := vault.New(t.Context(), vault.Options{Address: server.Addr, Path: path, Timeout: patience, Auth: vault.Auth{AppRole: &vault.AppRole{
			RoleID: read(party, "vault-role-id"), SecretIDFile: filepath.Join(logins, party, "vault-secret-id"),
		}}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, source.Close()) })
		require.Eventually(t, func() bool { return source.Ready() == nil }, patience, 20*time.Millisecond)
		return source
	}
	operator, gateway := open("operator", ""), open("gateway", "")

	issued, err := authsigner.Issue(t.Context(), operator, authsigner.IssueOptions{
		BusinessID: "b-1", BusinessName: "Harbour Bakery", BusinessSlug: "harbour-bakery",
	})
	require.NoError(t, err)
	found, err := gateway.Lookup(t.Context(), issued.PublicKey)
	require.NoError(t, err)
	require.Equal(t, issued.PrivateKey.Reveal(), found.PrivateKey.Reveal())
	_, err = gateway.Lookup(t.Context(), "pk_live_nobody_has_it")
	require.ErrorIs(t, err, authsigner.ErrUnknownKey)

	// Another environment in the same Vault reads neither this one's keys nor changes its logins.
	production := logins
	logins = t.TempDir()
	setup("SUFFIX=-staging")
	for _, party := range []string{"gateway", "operator"} {
		_, err = open(party, "").Lookup(t.Context(), issued.PublicKey)
		require.ErrorContains(t, err, "permission denied", party)
		_, err = open(party, "gateway-staging/keys").Lookup(t.Context(), issued.PublicKey)
		require.ErrorIs(t, err, authsigner.ErrUnknownKey, party)
	}
	logins = production
	gateway = open("gateway", "")
	_, err = gateway.Lookup(t.Context(), issued.PublicKey)
	require.NoError(t, err)

	_, err = gateway.List(t.Context())
	require.Error(t, err, "a gateway cannot list keys")
	_, err = authsigner.Rotate(t.Context(), gateway, issued.PublicKey, time.Hour, time.Now())
	require.Error(t, err, "a gateway cannot change a key")
	require.Error(t, authsigner.Revoke(t.Context(), gateway, issued.PublicKey), "a gateway cannot delete a key")

	rotated, err := authsigner.Rotate(t.Context(), operator, issued.PublicKey, time.Hour, time.Now())
	require.NoError(t, err)
	require.NotEqual(t, issued.PrivateKey.Reveal(), rotated.PrivateKey.Reveal())
	keys, err := operator.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{issued.PublicKey}, keys)
	require.NoError(t, authsigner.Revoke(t.Context(), operator, issued.PublicKey))
	_, err = gateway.Lookup(t.Context(), issued.PublicKey)
	require.ErrorIs(t, err, authsigner.ErrUnknownKey)
}

// The policies of the logins are those of version 2, so a login would be refused every key.
func TestVaultSetupRequiresVersion2(t *testing.T) {
	t.Parallel()
	server := vaulttest.Start(t, vaulttest.Options{})
	root := server.Client(t)
	require.NoError(t, root.Sys().UnmountWithContext(t.Context(), "kv"))
	require.NoError(t, root.Sys().MountWithContext(t.Context(), "kv", &api.MountInput{Type: "kv", Options: map[string]string{"version": "1"}}))
	logins := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "./vault-setup.sh")
	cmd.Env = append(os.Environ(), "VAULT_ADDR="+server.Addr, "VAULT_TOKEN="+server.RootToken, "LOGIN="+logins)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "vault-setup.sh: kv/ is not KV version 2. For version 1, create policies and roles yourself, "+
		"with the rules in the comments of ./vault-policy*.hcl\n", string(out))
	entries, err := os.ReadDir(logins)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestVaultSetupUsesPrivateCAAndNamespace(t *testing.T) {
	t.Parallel()
	// Vault's open source version has no namespaces.
	var namespaces recordtest.Output
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(&namespaces, r.Header.Get("X-Vault-Namespace"))
		_, _ = io.WriteString(w, `{"kv/":{},"approle/":{},"version":"2","role_id":"r","secret_id":"s"}`)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // that a client does not trust it
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca dir.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	setup := func(env ...string) error {
		cmd := exec.CommandContext(t.Context(), "sh", "./vault-setup.sh")
		cmd.Env = append(os.Environ(), append(env, "VAULT_ADDR="+server.URL, "VAULT_TOKEN=t", "LOGIN="+t.TempDir())...)
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	require.Error(t, setup())
	require.Empty(t, namespaces.String())
	require.NoError(t, setup("VAULT_CACERT="+ca, "VAULT_NAMESPACE=platform/eu"))
	for line := range strings.Lines(namespaces.String()) {
		require.Equal(t, "platform/eu\n", line)
	}
	require.NotEmpty(t, namespaces.String())
}

// `gatehouse check` writes to a temporary directory.
func TestContainersWithAReadOnlyFileSystemHaveATemporaryDirectory(t *testing.T) {
	t.Parallel()
	var composition struct {
		Services map[string]struct {
			ReadOnly bool     `yaml:"read_only"`
			Tmpfs    []string `yaml:"tmpfs"`
		} `yaml:"services"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "compose.yaml")), &composition))
	for _, name := range []string{"gateway", "operator"} {
		service := composition.Services[name]
		assert.True(t, service.ReadOnly, name)
		assert.Contains(t, service.Tmpfs, "/tmp", name)
	}
	page := read(t, "../docs/install.md")
	assert.Contains(t, page, "--read-only")
	assert.Contains(t, page, "--tmpfs /tmp")
}

// Kubernetes cannot verify by a name that runAsNonRoot holds.
func TestImagesRunAsAUserWithANumber(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"../Dockerfile", "dataservice/Dockerfile"} {
		assert.Equal(t, []string{"USER 65532:65532"}, regexp.MustCompile("(?m)^USER .*").FindAllString(read(t, file), -1), file)
	}
}

func TestFilesNamedInTheCompositionExist(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("compose.yaml")
	require.NoError(t, err)
	mounts := regexp.MustCompile(`(?m)^ +- \./([^:]+):`).FindAllSubmatch(data, -1)
	require.NotEmpty(t, mounts)
	for _, mount := range mounts {
		assert.FileExists(t, string(mount[1]))
	}
	for _, dockerfile := range regexp.MustCompile(`dockerfile: (\S+)`).FindAllSubmatch(data, -1) {
		assert.FileExists(t, filepath.Join("..", string(dockerfile[1])))
	}
}
