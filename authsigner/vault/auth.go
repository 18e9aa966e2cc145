package vault

import (
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

// DefaultJWTPath is where Kubernetes puts a pod's service account token.
const DefaultJWTPath = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// Auth is how to sign in: exactly one method.
type Auth struct {
	// Token is used as it is, and renewed as long as Vault allows.
	Token authsigner.Secret

	// TokenFile holds a token, as Vault Agent's file sink writes it. It is read at each sign-in, so that a new one is
	// found when the old one is over.
	TokenFile string

	AppRole    *AppRole
	Kubernetes *Kubernetes
	Cert       *Cert
}

// AppRole signs in with a role id and a secret id, one of SecretID and SecretIDFile.
type AppRole struct {
	RoleID       string
	SecretID     authsigner.Secret
	SecretIDFile string // read at each sign-in
	Mount        string // default "approle"
}

// Kubernetes signs in with the pod's service account token.
type Kubernetes struct {
	Role    string
	JWTPath string // read at each sign-in; default DefaultJWTPath
	Mount   string // default "kubernetes"
}

// Cert signs in with the TLS certificate of Options.TLS.
type Cert struct {
	Name  string // of the role in Vault; empty: whichever role the certificate matches
	Mount string // default "cert"
}

// grant is what a sign-in has brought.
type grant struct {
	token     string
	ttl       time.Duration // 0: for ever
	renewable bool
	ours      bool // made by this sign-in, so that it may be revoked when it is no longer needed
}

// loginFunc signs in; the client has no token, and is the caller's own.
type loginFunc func(ctx context.Context, client *api.Client) (grant, error)

// method checks the settings and returns the one method.
func (a Auth) method() (loginFunc, error) {
	var methods []loginFunc
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
			return nil, errors.New("sign-in by AppRole needs a role id")
		}
		if (a.AppRole.SecretID == "") == (a.AppRole.SecretIDFile == "") {
			return nil, errors.New("sign-in by AppRole needs a secret id, or a file that holds it, and not both")
		}
		methods = append(methods, (&appRoleLogin{AppRole: *a.AppRole}).login)
	}
	if a.Kubernetes != nil {
		if a.Kubernetes.Role == "" {
			return nil, errors.New("sign-in by Kubernetes service account needs a role")
		}
		methods = append(methods, a.Kubernetes.login)
	}
	if a.Cert != nil {
		methods = append(methods, a.Cert.login)
	}
	if err := a.checkMounts(); err != nil {
		return nil, err
	}
	switch len(methods) {
	case 0:
		return nil, errors.New("no sign-in method is given: token, token file, AppRole, Kubernetes or certificate")
	case 1:
		return methods[0], nil
	default:
		return nil, errors.New("more than one sign-in method is given")
	}
}

func (a Auth) checkMounts() error {
	var mounts []string
	if a.AppRole != nil {
		mounts = append(mounts, a.AppRole.Mount)
	}
	if a.Kubernetes != nil {
		mounts = append(mounts, a.Kubernetes.Mount)
	}
	if a.Cert != nil {
		mounts = append(mounts, a.Cert.Mount)
	}
	for _, mount := range mounts {
		if mount != "" && !validPath(mount) {
			return fmt.Errorf("the mount %q of the sign-in method is not segments of letters, digits, '.', '_' and '-'", mount)
		}
	}
	return nil
}

// overInterval is how often a secret id that is over is tried all the same.
const overInterval = time.Hour

// appRoleLogin signs in by AppRole, one call at a time. Vault locks a role out for 15 minutes, whatever the secret id,
// once five sign-ins in 15 minutes were refused. So a secret id that was good and is refused now is over: it is not sent
// again (but once in a long while, should Vault have been restored from a copy), and the next one, when it is in the file,
// finds the role open.
type appRoleLogin struct {
	AppRole

	good   [sha256.Size]byte // the sum of the secret id that Vault has taken last
	over   error             // how Vault has refused it since; nil: it has not
	overAt time.Time
}

func (a *appRoleLogin) login(ctx context.Context, client *api.Client) (grant, error) {
	secretID := a.SecretID.Reveal()
	if a.SecretIDFile != "" {
		var err error
		if secretID, err = readSecretFile(a.SecretIDFile); err != nil {
			return grant{}, fmt.Errorf("reading the secret id: %w", err)
		}
	}
	sum := sha256.Sum256([]byte(secretID))
	if a.over != nil && sum == a.good && time.Since(a.overAt) < overInterval {
		return grant{}, fmt.Errorf("the secret id is over, and waits to be replaced: %w", a.over)
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
	switch {
	case err == nil:
		a.good, a.over = sum, nil
	case sum == a.good && refusesSecretID(err):
		a.over, a.overAt = readable(err), time.Now()
	}
	return g, err
}

// refusesSecretID says whether an error is Vault's answer that a secret id is not, or no longer, one of the role's: 400,
// or, of Vault 1.13, 500 with "invalid secret id".
func refusesSecretID(err error) bool {
	answer, ok := errors.AsType[*api.ResponseError](err)
	return ok && (answer.StatusCode == http.StatusBadRequest || slices.ContainsFunc(answer.Errors, func(e string) bool {
		return strings.Contains(strings.ToLower(e), "invalid secret id")
	}))
}

func (k *Kubernetes) login(ctx context.Context, client *api.Client) (grant, error) {
	path := k.JWTPath
	if path == "" {
		path = DefaultJWTPath
	}
	jwt, err := readSecretFile(path)
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
	mount := c.Mount
	if mount == "" {
		mount = "cert"
	}
	return granted(client.Logical().WriteWithContext(ctx, "auth/"+mount+"/login", map[string]any{"name": c.Name}))
}

func granted(secret *api.Secret, err error) (grant, error) {
	switch {
	case err != nil:
		return grant{}, err
	case secret == nil || secret.Auth == nil || secret.Auth.ClientToken == "":
		return grant{}, errors.New("the answer holds no token (is a second factor asked for?)")
	}
	return grant{
		token:     secret.Auth.ClientToken,
		ttl:       time.Duration(secret.Auth.LeaseDuration) * time.Second,
		renewable: secret.Auth.Renewable,
		ours:      true,
	}, nil
}

// adoptToken asks Vault what the token is good for. One that may not look itself up is taken as it is: that it is
// accepted at all is seen when the engine's version is asked for, or at the first look-up.
func adoptToken(ctx context.Context, client *api.Client, token string) (grant, error) {
	client.SetToken(token)
	secret, err := client.Auth().Token().LookupSelfWithContext(ctx)
	if statusOf(err) == 403 {
		return grant{token: token}, nil
	}
	if err != nil {
		return grant{}, err
	}
	ttl, err := secret.TokenTTL()
	if err != nil {
		return grant{}, fmt.Errorf("reading the token's time to live: %w", err)
	}
	if ttl <= 0 && secret.Data["expire_time"] != nil {
		ttl = time.Second // it counts whole seconds, and 0 stands for ever
	}
	renewable, err := secret.TokenIsRenewable()
	if err != nil {
		return grant{}, fmt.Errorf("reading whether the token can be renewed: %w", err)
	}
	return grant{token: token, ttl: ttl, renewable: renewable}, nil
}

// readSecretFile drops the white space around, which editors and echo leave behind.
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

// engineVersion asks Vault which version the KV engine at the mount has.
func engineVersion(ctx context.Context, client *api.Client, mount string, configured int) (int, error) {
	secret, err := client.Logical().ReadWithContext(ctx, "sys/internal/ui/mounts/"+mount)
	if statusOf(err) == 403 && configured != 0 {
		return configured, nil
	}
	if err != nil {
		return 0, fmt.Errorf("asking for the version of the KV engine at %s/: %w", mount, err)
	}
	if secret == nil {
		return 0, fmt.Errorf("there is no engine at %s/", mount)
	}
	if at, _ := secret.Data["path"].(string); at != mount+"/" {
		return 0, fmt.Errorf("there is no engine at %s/, but one at %s", mount, at)
	}
	version := 1
	switch kind, _ := secret.Data["type"].(string); kind {
	case "kv", "generic":
		options, _ := secret.Data["options"].(map[string]any)
		if options["version"] == "2" || options["version"] == json.Number("2") {
			version = 2
		}
	default:
		return 0, fmt.Errorf("the engine at %s/ is not KV but %s", mount, kind)
	}
	if configured != 0 && configured != version {
		return 0, fmt.Errorf("the KV engine at %s/ has version %d, and version %d is configured", mount, version, configured)
	}
	return version, nil
}
