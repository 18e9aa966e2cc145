// Package vaulttest runs a real HashiCorp Vault server for tests, as a process of its own on loopback that can
// be stopped, killed, paused, sealed and restarted.
//
// The server is the module in the folder server, built once into the repository's .cache/bin (minutes, when cold;
// `go run ./internal/test/vaulttest/ensure` does it beforehand). It starts in well under a second, with KV version 2 at
// kv/, KV version 1 at kv1/, transit/, and the sign-in methods approle, userpass, cert and kubernetes.
//
// No server outlives its test: the test's cleanup kills it, and the kernel does when the test's process is gone.
package vaulttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/certtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/porttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/processtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/recordtest"
)

// patience limits each wait for a server.
const patience = time.Minute

// The policies of docs/directives/gatehouse.md, for both versions of the KV engine.
const (
	// ReadPolicy is a gateway's.
	ReadPolicy = `
path "kv/data/gateway/keys/*" { capabilities = ["read"] }
path "kv1/gateway/keys/*"     { capabilities = ["read"] }`

	// ManagePolicy is that of operators, and of gateways with manage_keys.
	ManagePolicy = `
path "kv/data/gateway/keys/*"     { capabilities = ["create", "read", "update"] }
path "kv/metadata/gateway/keys/*" { capabilities = ["delete"] }
path "kv/metadata/gateway/keys"   { capabilities = ["list"] }
path "kv1/gateway/keys/*"         { capabilities = ["create", "read", "update", "delete"] }
path "kv1/gateway/keys"           { capabilities = ["list"] }`
)

// Options say which Vault to start. The zero value is one in memory, without TLS.
type Options struct {
	// Persistent keeps the storage in files, so that Restart finds it again.
	Persistent bool

	// DefaultLeaseTTL and MaxLeaseTTL limit the lifetime of tokens. Default 1 h and 24 h; Vault counts whole seconds.
	DefaultLeaseTTL, MaxLeaseTTL time.Duration

	// TLS serves https with a certificate for 127.0.0.1 and localhost out of the server's own CA (Server.CA).
	// Needed for sign-in by certificate.
	TLS bool

	// Standby starts a second node on the same storage, at Server.StandbyAddr. It redirects to the active one,
	// as a standby does that cannot forward. Not with Persistent.
	Standby bool
}

// Server is a running Vault.
type Server struct {
	Addr        string // http(s)://127.0.0.1:port; the same after a restart
	StandbyAddr string // of the standby; empty without one
	RootToken   string
	UnsealKeys  []string     // hex; all of them are needed
	CA          *certtest.CA // nil without TLS

	options Options
	binary  string
	args    []string

	process atomic.Pointer[processtest.Process] // the last run
	stderr  *recordtest.Output                  // of it
}

// Start starts a Vault, initialised and unsealed, and stops it when the test ends.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	binary, err := Binary(tb.Context())
	require.NoError(tb, err, "building the Vault server")

	s := &Server{options: o, binary: binary}
	if o.DefaultLeaseTTL > 0 {
		s.args = append(s.args, "-default-lease-ttl", o.DefaultLeaseTTL.String())
	}
	if o.MaxLeaseTTL > 0 {
		s.args = append(s.args, "-max-lease-ttl", o.MaxLeaseTTL.String())
	}
	if o.Persistent {
		s.args = append(s.args, "-dir", tb.TempDir())
	}
	if o.Standby {
		s.args = append(s.args, "-standby")
	}
	if o.TLS {
		s.CA = certtest.NewCA(tb)
		cert, key := s.CA.ServerCert(tb)
		s.args = append(s.args, "-tls-cert", cert, "-tls-key", key)
	}

	// The port stays reserved while the server is down.
	port, held, err := porttest.Reserve()
	require.NoError(tb, err)
	line, err := s.start(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), "")
	require.NoError(tb, err)
	tb.Cleanup(func() {
		defer held.Close()
		if p := s.process.Load(); p != nil {
			p.Kill()
			if tb.Failed() {
				tb.Logf("what Vault logged:\n%s", s.stderr.String())
			}
		}
	})
	s.Addr, s.StandbyAddr = line.Address, line.StandbyAddress
	s.RootToken, s.UnsealKeys = line.RootToken, line.UnsealKeys
	return s
}

// Client returns a client with the root token. It does not read the environment's VAULT_ variables.
func (s *Server) Client(tb testing.TB) *api.Client {
	tb.Helper()
	return s.ClientWithToken(tb, s.RootToken)
}

// ClientWithToken returns a client with that token, which may be empty.
func (s *Server) ClientWithToken(tb testing.TB, token string) *api.Client {
	tb.Helper()
	transport := &http.Transport{DisableKeepAlives: true} // would be found by leak detectors
	if s.CA != nil {
		transport.TLSClientConfig = s.CA.ClientTLS()
	}
	client, err := api.NewClient(&api.Config{
		Address:    s.Addr,
		HttpClient: &http.Client{Transport: transport},
		Timeout:    patience,
	})
	require.NoError(tb, err)
	client.SetHeaders(http.Header{api.RequestHeaderName: {"true"}})
	client.SetWrappingLookupFunc(func(string, string) string { return "" })
	client.SetToken(token)
	return client
}

// AppRole creates a policy with those rules (HCL) and an AppRole of the same name. params are further parameters of the role,
// for example token_ttl.
func (s *Server) AppRole(tb testing.TB, name, rules string, params map[string]any) (roleID, secretID string) {
	tb.Helper()
	client := s.Client(tb)
	require.NoError(tb, client.Sys().PutPolicyWithContext(tb.Context(), name, rules))
	role := map[string]any{"token_policies": name}
	maps.Copy(role, params)
	_, err := client.Logical().WriteWithContext(tb.Context(), "auth/approle/role/"+name, role)
	require.NoError(tb, err)
	secret, err := client.Logical().ReadWithContext(tb.Context(), "auth/approle/role/"+name+"/role-id")
	require.NoError(tb, err)
	roleID, _ = secret.Data["role_id"].(string)
	require.NotEmpty(tb, roleID)
	return roleID, s.SecretID(tb, name)
}

// SecretID creates another secret id of the AppRole.
func (s *Server) SecretID(tb testing.TB, role string) string {
	tb.Helper()
	secret, err := s.Client(tb).Logical().WriteWithContext(tb.Context(), "auth/approle/role/"+role+"/secret-id", nil)
	require.NoError(tb, err)
	secretID, _ := secret.Data["secret_id"].(string)
	require.NotEmpty(tb, secretID)
	return secretID
}

// Seal seals the server, which then responds with 503.
func (s *Server) Seal(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, s.Client(tb).Sys().SealWithContext(tb.Context()))
}

// Unseal unseals it again and waits until it is active.
func (s *Server) Unseal(tb testing.TB) {
	tb.Helper()
	client := s.ClientWithToken(tb, "")
	for _, key := range s.UnsealKeys {
		_, err := client.Sys().UnsealWithContext(tb.Context(), key)
		require.NoError(tb, err)
	}
	require.Eventually(tb, func() bool {
		health, err := client.Sys().HealthWithContext(tb.Context())
		return err == nil && !health.Sealed && !health.Standby
	}, patience, 20*time.Millisecond)
}

// Stop shuts the server down.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, s.running(tb).End(syscall.SIGTERM))
}

// Kill ends the server at once, as kill -9 does.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	s.running(tb).Kill()
}

// Pause stops the process with SIGSTOP: the kernel accepts connections, but the server does not respond.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	p := s.running(tb)
	require.NoError(tb, p.Signal(syscall.SIGSTOP))
	require.Eventually(tb, func() bool { return stopped(p) }, patience, time.Millisecond)
}

// Resume continues a paused process.
func (s *Server) Resume(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, s.running(tb).Signal(syscall.SIGCONT))
}

// Restart starts the server again at the same address, over the same storage, and unseals it. A running one is
// stopped first. It needs Options.Persistent.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.restart(tb, strings.Join(s.UnsealKeys, ""))
}

// RestartSealed is Restart without the unsealing.
func (s *Server) RestartSealed(tb testing.TB) {
	tb.Helper()
	s.restart(tb, "")
}

func (s *Server) restart(tb testing.TB, unsealKey string) {
	tb.Helper()
	require.True(tb, s.options.Persistent, "only a persistent server can be restarted")
	if p := s.process.Load(); !p.Ended() {
		require.NoError(tb, p.End(syscall.SIGTERM))
	}
	_, address, _ := strings.Cut(s.Addr, "://")
	line, err := s.start(address, unsealKey)
	require.NoError(tb, err)
	require.Equal(tb, unsealKey == "", line.Sealed)
}

func (s *Server) running(tb testing.TB) *processtest.Process {
	tb.Helper()
	p := s.process.Load()
	require.False(tb, p.Ended(), "the server is not running")
	return p
}

// readyLine is what the server prints once it can be called.
type readyLine struct {
	Address        string   `json:"address"`
	StandbyAddress string   `json:"standby_address"`
	RootToken      string   `json:"root_token"`
	UnsealKeys     []string `json:"unseal_keys"`
	Sealed         bool     `json:"sealed"`
}

func (s *Server) start(listen, unsealKey string) (line readyLine, err error) {
	cmd := exec.Command(s.binary, append([]string{"-listen", listen}, s.args...)...)
	cmd.Env = []string{
		"VAULTTEST_UNSEAL_KEY=" + unsealKey,
		"HOME=" + os.TempDir(),
		"GOMAXPROCS=1", // several run at the same time
	}
	var out recordtest.Output
	s.stderr = new(recordtest.Output)
	cmd.Stdout, cmd.Stderr = &out, s.stderr
	if _, err := cmd.StdinPipe(); err != nil { // held open: the server ends when it is closed
		return line, err
	}
	p, err := processtest.Start(cmd)
	if err != nil {
		return line, err
	}
	s.process.Store(p)
	for deadline := time.After(patience); ; {
		if first, _, ok := strings.Cut(out.String(), "\n"); ok {
			return line, json.Unmarshal([]byte(first), &line)
		}
		select {
		case <-time.After(time.Millisecond):
			continue
		case <-p.Done():
		case <-deadline:
			p.Kill()
		}
		return line, fmt.Errorf("the Vault server did not get ready:\n%s", s.stderr.String())
	}
}

// stopped reports whether Pause has stopped a process.
func stopped(p *processtest.Process) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	_, state, _ := bytes.Cut(stat, []byte(") ")) // as ps shows it
	return bytes.HasPrefix(state, []byte("T"))
}
