package pages

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize/english"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

//go:embed templates
var files embed.FS

// frame is the layout of a page.
type frame struct {
	Title  string
	Notice string
	Wide   bool // for pages without navigation

	// For the pages under Settings only:
	Nav     []navItem
	Who     *account.Account
	SignOut string // the token of the form that signs out
}

type navItem struct {
	Text, URL string
	Current   bool
}

// settings returns the frame of a page under Settings, with the pending notice, which it clears.
func (p *Pages) settings(w http.ResponseWriter, r *http.Request, s *session, title, current string) frame {
	f := frame{Title: title, Notice: p.notice(w, r), Who: &s.account, SignOut: s.token(formSignOut)}
	add := func(text, url string) {
		f.Nav = append(f.Nav, navItem{Text: text, URL: url, Current: url == current})
	}
	add("Connected apps", ConnectionsPath)
	if s.account.IsOwner() {
		if p.o.Keys != nil {
			add("API and integrations", KeysPath)
		}
		add("Activity", ActivityPath)
	}
	return f
}

// parseViews parses the templates, and adds the assets.
func (p *Pages) parseViews() error {
	platform, err := newBrand(p.o.Name, p.o.Brand, p.addAsset)
	if err != nil {
		return err
	}
	base := template.New("base").Option("missingkey=error").Funcs(template.FuncMap{
		"brand": func() *brand { return platform },
		"paths": func() map[string]string {
			return map[string]string{
				"signIn": SignInPath, "signOut": SignOutPath, "approve": ApprovePath, "connections": ConnectionsPath,
				"keys": KeysPath, "activity": ActivityPath,
			}
		},
		"when": dateTime,
		"iso":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"list": func(items []string) string { return english.WordSeries(items, "and") },
	})
	template.Must(base.ParseFS(files, "templates/base/*.html")) // the templates are part of the program
	names, _ := fs.Glob(files, "templates/*.html")
	for _, name := range names {
		p.templates[strings.TrimSuffix(path.Base(name), ".html")] = template.Must(template.Must(base.Clone()).ParseFS(files, name))
	}
	return nil
}

// addAsset adds an asset and returns its path, which contains its hash so that browsers can cache it forever.
func (p *Pages) addAsset(name, text string) string {
	content := []byte(text)
	sum := sha256.Sum256(content)
	base, ext, _ := strings.Cut(name, ".")
	hashed := AssetsPrefix + base + "-" + hex.EncodeToString(sum[:8]) + "." + ext
	p.assets[hashed], p.assets[AssetsPrefix+base+"-*."+ext] = content, content
	return hashed
}

// asset serves the style sheet, the logo and the icon.
func (p *Pages) asset(w http.ResponseWriter, r *http.Request) {
	content, ok := p.assets[r.URL.Path]
	caching := "public, max-age=31536000, immutable"
	if !ok { // during a rolling update, the page may be another gateway's
		base, _, _ := strings.Cut(r.URL.Path, "-")
		content, ok = p.assets[base+"-*"+path.Ext(r.URL.Path)]
		caching = "no-store"
	}
	if !ok {
		p.secure(w.Header())
		p.renderError(w, r, notFound())
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
		return
	}
	h.Set("Cache-Control", caching)
	http.ServeContent(w, r, r.URL.Path, time.Time{}, bytes.NewReader(content))
}

// titles returns the titles of the areas in which a set has the right of a verb, also of those that are switched off.
func titles(set scope.Set, verb string) (list []string) {
	for _, a := range set.Areas().All().List() {
		if set.Includes(a, verb) {
			list = append(list, a.Title)
		}
	}
	return list
}

// grantedInWords describes the scopes in an audit entry, also in areas that are switched off. If they are invalid, it returns otherwise.
func grantedInWords(all scope.Areas, scopes, otherwise string) string {
	scopes, unasked := strings.CutSuffix(scopes, " "+oauth.RecordedUnasked)
	set, err := all.Parse(scopes)
	if err != nil || set.IsZero() {
		return otherwise
	}
	text := "May see everything"
	if see := titles(set, scope.VerbRead); len(see) < len(all.List()) {
		text = "May see " + english.WordSeries(see, "and")
	}
	if change := titles(set, scope.VerbWrite); change != nil {
		text += "; may change " + english.WordSeries(change, "and")
	}
	if run := titles(set, scope.VerbRun); run != nil {
		text += "; may run " + english.WordSeries(run, "and")
	}
	if unasked {
		text += "; may write to people even if it cannot ask"
	}
	return text
}

// Maximum lengths in characters of texts from clients and other services, which pages show after cleantext.Line.
const (
	maxLabel = 64
	maxText  = 500
	maxHost  = 2000 // longer than any: truncation would hide the registered domain
)

// initial returns the character for a name's badge: the first letter or digit, in upper case.
func initial(name string) string {
	for _, r := range name {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return string(unicode.ToTitle(r))
		}
	}
	if r, _ := utf8.DecodeRuneInString(name); r != utf8.RuneError {
		return string(r)
	}
	return "?"
}
