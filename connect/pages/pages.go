package pages

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/clientip"
)

// Paths of the pages.
const (
	HomePath        = "/"
	SignInPath      = "/sign-in"
	SignOutPath     = "/sign-out"
	ApprovePath     = oauth.ApprovePath
	SettingsPath    = "/settings"
	ConnectionsPath = "/settings/connected-apps"
	KeysPath        = "/settings/api"
	ActivityPath    = "/settings/activity"
	AssetsPrefix    = "/assets/"
)

// Defaults of [Options].
const (
	DefaultSessionIdle = time.Hour
	DefaultSessionMax  = 12 * time.Hour
)

// OAuth is the authorization server. [oauth.Server] implements it.
type OAuth interface {
	Issuer() string
	Areas() scope.Areas
	Pending(ctx context.Context, id string) (oauth.Request, error)
	Approve(ctx context.Context, id string, by account.Account, granted scope.Set) (redirect string, err error)
	Deny(ctx context.Context, id string, by account.Account) (redirect string, err error)
	Grants(ctx context.Context, businessID string) ([]oauth.Grant, error)
	Change(ctx context.Context, grantID, version string, by account.Account, granted scope.Set, unasked bool) error
	Revoke(ctx context.Context, grantID string, by account.Account) error
}

// Options of the pages.
type Options struct {
	OAuth    OAuth                 // its issuer is the public origin of the pages; required
	Accounts account.Service       // checks passwords and looks up accounts; required
	Audit    *audit.Log            // records sign-ins, sign-outs and changes of keys; if it is unavailable, these fail; required
	Redis    redis.UniversalClient // holds sessions, sign-in attempts and known devices; the caller closes it; required
	Keys     Keys                  // manages the keys of the public API; default: no page for them

	Name     string // the platform's; required
	Brand    Brand  // logo, colours and links of the platform; default: see Brand
	HomePage bool   // adds a page at HomePath that explains how to connect an assistant
	Prefix   string // of all keys in Redis; default: audit.DefaultPrefix

	SessionIdle time.Duration // the idle timeout of a session; default: DefaultSessionIdle
	SessionMax  time.Duration // the maximum age of a session; default: DefaultSessionMax

	// ClientAddr returns the client's IP address, or the zero Addr if it is unknown. Default: the peer's address.
	ClientAddr func(*http.Request) netip.Addr

	Log *zap.Logger      // gets errors that no user sees; default: no log
	Now func() time.Time // the clock; default: time.Now
}

// Pages serves the pages. It is safe for concurrent use.
type Pages struct {
	o         Options
	issuer    string
	store     *store
	cookies   cookies
	templates map[string]*template.Template
	assets    map[string][]byte // by path, with their hash and with * for any
	pages     map[string]page

	crossOrigin http.CrossOriginProtection
}

// New returns the pages. It reads the logo, and does not contact Redis. Its errors are missing or invalid options.
func New(o Options) (*Pages, error) {
	if o.OAuth == nil || o.Accounts == nil || o.Audit == nil || o.Redis == nil {
		return nil, errors.New("pages: OAuth, Accounts, Audit and Redis are required")
	}
	o.Prefix = cmp.Or(o.Prefix, audit.DefaultPrefix)
	o.SessionIdle, o.SessionMax = cmp.Or(o.SessionIdle, DefaultSessionIdle), cmp.Or(o.SessionMax, DefaultSessionMax)
	if o.ClientAddr == nil {
		o.ClientAddr = clientip.Peer
	}
	o.Log = cmp.Or(o.Log, zap.NewNop())
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Pages{
		o: o, issuer: o.OAuth.Issuer(), templates: map[string]*template.Template{}, assets: map[string][]byte{},
		store:   &store{o: o, attempt: redis.NewScript(attemptScript)},
		cookies: cookies{secure: strings.HasPrefix(o.OAuth.Issuer(), "https://")},
	}
	if err := p.parseViews(); err != nil {
		return nil, err
	}
	p.pages = map[string]page{
		SignInPath:      {get: p.showSignIn, post: p.signIn},
		SignOutPath:     {get: p.showSignOut, post: p.signOut},
		ApprovePath:     {get: p.showApprove, post: p.approve},
		SettingsPath:    {get: func(http.ResponseWriter, *http.Request) error { return &redirectError{to: ConnectionsPath} }},
		ConnectionsPath: {get: p.forAccount("", p.showConnections), post: p.forAccount("", p.changeConnections)},
		ActivityPath:    {get: p.forAccount("view the activity", p.showActivity)},
	}
	if o.HomePage {
		p.pages[HomePath] = page{get: p.showHome}
	}
	if p.o.Keys != nil {
		p.pages[KeysPath] = page{get: p.forAccount("manage keys", p.showKeys), post: p.forAccount("", p.changeKeys)}
	}
	return p, nil
}
