package vault

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"
	"github.com/hashicorp/vault/api/auth/approle"
	"github.com/hashicorp/vault/api/auth/kubernetes"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// defaultJWTPath is the path of a pod's service account token.
const defaultJWTPath = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// Auth is the auth method. Exactly one field must be set.
type Auth struct {
	// Token is a token. It is renewed as long as Vault allows.
	Token authsigner.Secret

	// TokenFile is the path of a file with a token, such as one from Vault Agent's file sink. It is read at each login.
	TokenFile string

	AppRole    *AppRole
	Kubernetes *Kubernetes
	Cert       *Cert
}

// AppRole logs in with a role ID, and with either SecretID or SecretIDFile.
type AppRole struct {
	RoleID       string
	SecretID     authsigner.Secret
	SecretIDFile string // read at each login
	Mount        string // default "approle"
}

// Kubernetes logs in with the pod's service account token.
type Kubernetes struct {
	Role    string
	JWTPath string // read at each login; default: where Kubernetes mounts it
	Mount   string // default "kubernetes"
}

// Cert logs in with the TLS certificate of Options.TLS.
type Cert struct {
	Name  string // the role; if empty, Vault tries all roles
	Mount string // default "cert"
}

// grant is the token of a login.
type grant struct {
	token     string
	ttl       time.Duration // 0 means no expiry
	renewable bool
	ours      bool // created by the login, so it should be revoked when it is no longer needed
	unknown   bool // whether the token is valid
}

// loginFunc logs in. client has no token and is not shared.
type loginFunc func(ctx context.Context, client *api.Client) (grant, error)

// method validates the settings and returns the login function.
func (a Auth) method() (loginFunc, error) {
	var methods []loginFunc
	var mounts []string
	if a.Token != "" {
		methods = append(methods, func(ctx context.Context, client *api.Client) (grant, error) {
			return adoptToken(ctx, client, a.Token.Reveal())
		})
	}
	if a.TokenFile != "" {
		methods = append(methods, func(ctx context.Context, client *api.Client) (grant, error) {
			token, err := readSecretFile(a.TokenFile)
			if err != nil {
				return grant{}, fmt.Errorf("reading the token: %w", err)
			}
			return adoptToken(ctx, client, token)
		})
	}
	if a.AppRole != nil {
		if a.AppRole.RoleID == "" {
			return nil, errors.New("auth method approle needs a role ID")
		}
		if (a.AppRole.SecretID == "") == (a.AppRole.SecretIDFile == "") {
			return nil, errors.New("auth method approle needs either a secret ID or a secret ID file")
		}
		methods, mounts = append(methods, (&appRoleLogin{AppRole: *a.AppRole}).login), append(mounts, a.AppRole.Mount)
	}
	if a.Kubernetes != nil {
		if a.Kubernetes.Role == "" {
			return nil, errors.New("auth method kubernetes needs a role")
		}
		methods, mounts = append(methods, a.Kubernetes.login), append(mounts, a.Kubernetes.Mount)
	}
	if a.Cert != nil {
		methods, mounts = append(methods, a.Cert.login), append(mounts, a.Cert.Mount)
	}
	for _, mount := range mounts {
		if err := checkPath("mount of the auth method", mount); err != nil && mount != "" {
			return nil, err
		}
	}
	switch len(methods) {
	case 0:
		return nil, errors.New("missing auth method: must be one of token, token file, approle, kubernetes, cert")
	case 1:
		return methods[0], nil
	default:
		return nil, errors.New("more than one auth method")
	}
}

// rejectedRetry is the interval of attempts with a rejected secret ID. It is longer than the 15 minutes after which Vault forgets
// failed logins, so that a few gateways with an expired secret ID do not add up to five.
const rejectedRetry = time.Hour

// appRoleLogin logs in with AppRole, one call at a time. Vault locks a role for 15 minutes after five failed logins, whatever the
// secret ID. So a rejected secret ID is retried only after rejectedRetry, in case Vault was restored from a backup. The role then
// is not locked when the file has a new secret ID.
type appRoleLogin struct {
	AppRole

	rejected   [sha256.Size]byte // hash of the secret ID that Vault rejected last
	rejection  error             // Vault's error for it; nil if there was none
	rejectedAt time.Time
}

func (a *appRoleLogin) login(ctx context.Context, client *api.Client) (grant, error) {
	secretID := a.SecretID.Reveal()
	if a.SecretIDFile != "" {
		var err error
		if secretID, err = readSecretFile(a.SecretIDFile); err != nil {
			return grant{}, fmt.Errorf("reading the secret ID: %w", err)
		}
	}
	sum := sha256.Sum256([]byte(secretID))
	if a.rejection != nil && sum == a.rejected && time.Since(a.rejectedAt) < rejectedRetry {
		return grant{}, fmt.Errorf("the secret ID was rejected and must be replaced: %w", a.rejection)
	}
	var options []approle.LoginOption
	if a.Mount != "" {
		options = append(options, approle.WithMountPath(a.Mount))
	}
	method, err := approle.NewAppRoleAuth(a.RoleID, &approle.SecretID{FromString: secretID}, options...)
	if err != nil {
		return grant{}, err
	}
	g, err := granted(client.Auth().Login(ctx, method))
	if rejectsSecretID(err) {
		a.rejected, a.rejection, a.rejectedAt = sum, readable(err), time.Now()
	}
	return g, err
}

// rejectsSecretID reports whether Vault rejected a secret ID: it responds in JSON with 400, or Vault 1.13 with 500 and "invalid secret id".
func rejectsSecretID(err error) bool {
	response, ok := errors.AsType[*api.ResponseError](err)
	return ok && !response.RawError && (response.StatusCode == http.StatusBadRequest || slices.ContainsFunc(response.Errors, func(e string) bool {
		return strings.Contains(strings.ToLower(e), "invalid secret id")
	}))
}

func (k *Kubernetes) login(ctx context.Context, client *api.Client) (grant, error) {
	jwt, err := readSecretFile(cmp.Or(k.JWTPath, defaultJWTPath))
	if err != nil {
		return grant{}, fmt.Errorf("reading the service account token: %w", err)
	}
	options := []kubernetes.LoginOption{kubernetes.WithServiceAccountToken(jwt)}
	if k.Mount != "" {
		options = append(options, kubernetes.WithMountPath(k.Mount))
	}
	method, err := kubernetes.NewKubernetesAuth(k.Role, options...)
	if err != nil {
		return grant{}, err
	}
	return granted(client.Auth().Login(ctx, method))
}

func (c *Cert) login(ctx context.Context, client *api.Client) (grant, error) {
	path := "auth/" + cmp.Or(c.Mount, "cert") + "/login"
	return granted(client.Logical().WriteWithContext(ctx, path, map[string]any{"name": c.Name}))
}

func granted(secret *api.Secret, err error) (grant, error) {
	switch {
	case err != nil:
		return grant{}, err
	case secret == nil || secret.Auth == nil || secret.Auth.ClientToken == "":
		return grant{}, errors.New("the response has no token (does the login require multi-factor authentication?)")
	}
	return grant{
		token:     secret.Auth.ClientToken,
		ttl:       time.Duration(secret.Auth.LeaseDuration) * time.Second,
		renewable: secret.Auth.Renewable,
		ours:      true,
	}, nil
}

// adoptToken returns the grant of an existing token. If it may not look itself up, its TTL is unknown, and so is whether it is valid.
func adoptToken(ctx context.Context, client *api.Client, token string) (grant, error) {
	client.SetToken(token)
	secret, err := client.Auth().Token().LookupSelfWithContext(ctx)
	if statusOf(err) == http.StatusForbidden {
		return grant{token: token, unknown: true}, nil
	}
	if err != nil {
		return grant{}, err
	}
	ttl, err := secret.TokenTTL()
	if err != nil {
		return grant{}, fmt.Errorf("reading the token's TTL: %w", err)
	}
	if ttl <= 0 && secret.Data["expire_time"] != nil {
		ttl = time.Second // less than a second; 0 would mean no expiry
	}
	renewable, err := secret.TokenIsRenewable()
	if err != nil {
		return grant{}, fmt.Errorf("reading whether the token can be renewed: %w", err)
	}
	return grant{token: token, ttl: ttl, renewable: renewable}, nil
}

// readSecretFile reads a file and trims white space, such as a final line feed.
func readSecretFile(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(content))
	if secret == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return secret, nil
}

// engineVersion returns the version of the KV engine at the mount.
func engineVersion(ctx context.Context, client *api.Client, mount string, configured int) (int, error) {
	secret, err := client.Logical().ReadWithContext(ctx, "sys/internal/ui/mounts/"+mount)
	if statusOf(err) == http.StatusForbidden && configured != 0 {
		return configured, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the version of the KV engine at %s/: %w", mount, err)
	}
	if secret == nil {
		return 0, fmt.Errorf("no secrets engine at %s/", mount)
	}
	if at, _ := secret.Data["path"].(string); at != mount+"/" {
		return 0, fmt.Errorf("no secrets engine at %s/, but at %s", mount, at)
	}
	version := 1
	switch kind, _ := secret.Data["type"].(string); kind {
	case "kv", "generic":
		options, _ := secret.Data["options"].(map[string]any)
		if options["version"] == "2" || options["version"] == json.Number("2") {
			version = 2
		}
	default:
		return 0, fmt.Errorf("the secrets engine at %s/ is %s: must be kv", mount, kind)
	}
	if configured != 0 && configured != version {
		return 0, fmt.Errorf("the KV engine at %s/ has version %d, but version %d is configured", mount, version, configured)
	}
	return version, nil
}
