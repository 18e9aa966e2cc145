package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// fetchers are Caddy's commands that replace the binary by another one.
func fetchers() []string { return []string{"upgrade", "add-package", "remove-package"} }

func TestHelpIsOurOwn(t *testing.T) {
	t.Parallel()
	help := cli(t, nil, "help").requireOK(t).stdout
	require.Equal(t, help, cli(t, nil).requireOK(t).stdout)
	require.Equal(t, help, cli(t, nil, "-h").requireOK(t).stdout)
	for _, part := range []string{
		"Gatehouse is an API gateway", "Run the gateway:\n", "Check and convert configurations:\n", "Keys and signatures:\n  explain ", "\n  keys ", "\n  sign ",
		"gatehouse-gateway/gatehouse/blob/main/docs/operating.md",
	} {
		assert.Contains(t, help, part)
	}
	require.NotContains(t, help, "caddyserver.com")
	require.NotContains(t, help, "Additional Commands")
	for _, name := range fetchers() {
		assert.NotContains(t, help, name)
	}
}

func TestCommandsThatFetchAnotherBinaryAreGone(t *testing.T) {
	t.Parallel()
	for _, name := range fetchers() {
		cli(t, nil, name, "github.com/example/module").requireError(t, "unknown command", name)
		assert.NotContains(t, cli(t, nil, "__complete", name[:4]).requireOK(t).stdout, name)
	}
}

func TestAMissingOrUnknownSubCommandIsAnError(t *testing.T) {
	t.Parallel()
	for args, words := range map[string][]string{
		"keys":                 {"missing sub-command: must be one of", "keys --help"},
		"keys --json":          {"missing sub-command: must be one of", "keys --help"},
		"completion":           {"missing sub-command: must be one of", "completion --help"},
		"storage":              {"missing sub-command: must be one of", "storage --help"},
		"keys foo":             {`unknown command "foo"`},
		"completion foo":       {`unknown command "foo"`},
		"storage foo":          {`unknown command "foo"`},
		"help foo":             {"unknown command", "foo"},
		"help keys foo":        {"unknown command", "foo"},
		"help keys update foo": {"unknown command", "foo"},
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			cli(t, nil, strings.Fields(args)...).requireError(t, words...)
		})
	}
	require.Contains(t, cli(t, nil, "help", "keys", "update").requireOK(t).stdout, "--expires")
}

func TestManualPagesDescribeEveryCommand(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man")
	cli(t, nil, "manpage", "--directory", dir).requireOK(t)
	pages, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, p := range pages {
		names = append(names, p.Name())
		text, err := os.ReadFile(filepath.Join(dir, p.Name()))
		require.NoError(t, err)
		require.Contains(t, string(text), `.TH "`+strings.ToUpper(strings.TrimSuffix(p.Name(), ".8"))+`" "8"`)
		for _, name := range fetchers() {
			assert.NotContains(t, string(text), "gatehouse-"+name)
		}
	}
	require.Subset(t, names, []string{
		"gatehouse.8", "gatehouse-run.8", "gatehouse-sign.8", "gatehouse-explain.8", "gatehouse-keys.8", "gatehouse-keys-update.8", "gatehouse-completion-bash.8",
	})
	for _, name := range fetchers() {
		assert.NotContains(t, names, "gatehouse-"+name+".8")
	}
	text, err := os.ReadFile(filepath.Join(dir, "gatehouse-keys-update.8"))
	require.NoError(t, err)
	require.Contains(t, string(text), "<public key>")
	cli(t, nil, "manpage").requireError(t, "directory")
}

// The script is run by bash, as when somebody presses Tab after the last word.
func TestBashCompletesCommandsFlagsAndTheirValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Symlink(gatewaytest.Binary(t), filepath.Join(dir, "gatehouse")))
	// What the package bash-completion has; not every machine does.
	const script = `
_get_comp_words_by_ref() { cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD; }
compopt() { :; }
source <(gatehouse completion bash)
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_TYPE=9
__start_gatehouse
printf '%s\n' "${COMPREPLY[@]}"`
	for typed, want := range map[string]string{
		"gatehouse key":                              "keys",
		"gatehouse upg":                              "",
		"gatehouse keys up":                          "update",
		"gatehouse keys update pk_live_x --exp":      "--expires",
		"gatehouse keys update pk_live_x --status i": "inactive",
		"gatehouse keys update pk_live_x --limit d":  "default",
		"gatehouse keys issue --resources jobs,cont": "jobs,contacts",
		"gatehouse keys issue --resources ev":        "events",
		"gatehouse sign OPT":                         "OPTIONS",
		"gatehouse keys list --adapter c":            "caddyfile",
	} {
		t.Run(typed, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "bash", append([]string{"-c", script, "bash"}, strings.Fields(typed)...)...)
			cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			word, _, _ := strings.Cut(strings.TrimSpace(string(out)), " ")       // a description may follow
			require.Equal(t, want, strings.ReplaceAll(word, `\`, ""), "%s", out) // bash may quote
		})
	}
	require.Equal(t, ":0\n", cli(t, nil, "__complete", "keys", "list", "--config", "").requireOK(t).stdout, "the shell completes files")
	for _, shell := range []string{"zsh", "fish", "powershell"} {
		assert.Contains(t, cli(t, nil, "completion", shell).requireOK(t).stdout, "gatehouse", shell)
	}
}
