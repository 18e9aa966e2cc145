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
	// OAuth is the authorization server. Its issuer is the public origin of the pages. Required.
	OAuth OAuth

	// Accounts checks passwords and looks up accounts. Required.
	Accounts account.Service

	// Audit records sign-ins, sign-outs and changes of keys; if it is unavailable, these fail. Required.
	Audit *audit.Log

	// Redis holds sessions, sign-in attempts and known devices. The caller closes it. Required.
	Redis redis.UniversalClient

	// Keys manages the keys of the public API. Default: none, and no page for them.
	Keys Keys

	// Name is the platform's name. Required.
	Name string

	// Brand is what the pages show of the platform, besides its name. Default: a letter for the logo, and no links.
	Brand Brand

	// HomePage adds a page at HomePath that explains how to connect an assistant. Default: false.
	HomePage bool

	// Prefix begins the names of all keys in Redis. Default: audit.DefaultPrefix.
	Prefix string

	// SessionIdle is the idle timeout of a session. Default: DefaultSessionIdle.
	SessionIdle time.Duration

	// SessionMax is the maximum age of a session. Default: DefaultSessionMax.
	SessionMax time.Duration

	// ClientAddr returns the client's IP address, or the zero Addr if it has none. Default: the peer's address.
	ClientAddr func(*http.Request) netip.Addr

	// Log gets failures that no user sees. Default: no log.
	Log *zap.Logger

	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// Pages serves the pages. It is safe for concurrent use.
type Pages struct {
	o         Options
	issuer    string
	store     *store
	cookies   cookies
	templates map[string]*template.Template
	assets    map[string][]byte // by path
	pages     map[string]page

	crossOrigin http.CrossOriginProtection
}

// New returns the pages.
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
