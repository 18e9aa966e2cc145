package caddymodule

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// Definition names the OpenAPI document of an API.
type Definition struct {
	// Name is the API's: it precedes the names of its resources, as in shop/orders, and keys need an entry for it in their resources.
	// Default: the API has no name. Only one API of a configuration may have none.
	Name string `json:"name,omitempty"`

	// File is the document, OpenAPI 3.1 or 3.0 in YAML or JSON. It is read when the configuration is loaded. Default: the public
	// contract's, which is built in; only Only, Except and Enforce are possible for it.
	File string `json:"file,omitempty"`

	// Overlays are the files of OpenAPI Overlays, which are applied to the document in their order. Default: none.
	Overlays []string `json:"overlays,omitempty"`

	// Only are the IDs and tags of the operations that are served. Default: all.
	Only []string `json:"only,omitempty"`

	// Except are the IDs and tags of operations that are not served. Default: none.
	Except []string `json:"except,omitempty"`

	// MaxItems is the maximum number of items of an array for which the document has no maximum. Default: 1000. Zero means the
	// default.
	MaxItems int `json:"max_items,omitempty"`

	// Enforce says which deviations of data services' responses pass: "tenant" (all, undocumented members too), "members" (possible
	// values, formats, patterns, lengths, bounds and numbers of items) or "all" (none). What always holds is in docs/observe.md. An
	// operation may say it itself. Default: all.
	Enforce upstream.Enforcement `json:"enforce,omitempty"`

	// Sum is a hash of the files, which the Caddyfile adapter adds so that a reload of the same Caddyfile notices that a file has
	// changed. Default: none.
	Sum string `json:"sum,omitempty"`

	tools bool // it is gatehouse_connect's
}

// maxDefinitionFile is the size in bytes from which on a file is not read: package definition refuses it.
const maxDefinitionFile = 5 << 20

// Load reads the files and compiles them.
func (d *Definition) Load() (*definition.Definition, error) {
	if err := checkAPIName(d.Name); err != nil {
		return nil, err
	}
	if d.File == "" {
		if d.Name != "" || len(d.Overlays) > 0 || d.MaxItems != 0 {
			return nil, errors.New("a name, overlays and max_items need a file: for the public contract, only the options only, except and enforce are possible")
		}
		return definition.PublicPart(d.Only, d.Except, d.Enforce) //nolint:wrapcheck // it says what was wrong
	}
	if d.MaxItems < 0 {
		return nil, fmt.Errorf("invalid max_items %d: must not be negative", d.MaxItems)
	}
	repl := caddy.NewReplacer()
	files := make([]definition.File, 0, 1+len(d.Overlays))
	for _, name := range append([]string{d.File}, d.Overlays...) {
		if err := resolve(repl, &name); err != nil {
			return nil, err
		}
		if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("reading a definition: %s is not a regular file: save the document to one", name)
		} else if err == nil && info.Size() > maxDefinitionFile {
			return nil, fmt.Errorf("reading a definition: %s has %d bytes, and 4 MiB are possible: remove what is not served, with a tool such as redocly bundle --remove-unused-components", name, info.Size())
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading a definition: %w", err)
		}
		files = append(files, definition.File{Name: name, Text: text})
	}
	sum := sha256.New()
	for _, f := range files {
		_, _ = sum.Write(f.Text)
	}
	d.Sum = hex.EncodeToString(sum.Sum(nil)[:8])
	return definition.Load(files[0], definition.Options{ //nolint:wrapcheck // it names file, line and pointer
		Name: d.Name, Overlays: files[1:], Only: d.Only, Except: d.Except, MaxItems: d.MaxItems, Enforce: d.Enforce, Tools: d.tools,
	})
}

// LoadTools is Load as gatehouse_connect needs it: it compiles the tools, too.
func (d *Definition) LoadTools() (*definition.Definition, error) {
	own := *d
	own.tools = true
	return own.Load()
}

// loadDefinition returns a definition, or that of the public contract if there is none.
func loadDefinition(d *Definition) (*definition.Definition, error) {
	if d == nil {
		return definition.PublicDefinition(), nil
	}
	loaded, err := d.Load()
	if _, faults := errors.AsType[*definition.LoadError](err); faults { // a line for each
		return nil, fmt.Errorf("definition:\n%w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("definition: %w", err)
	}
	return loaded, nil
}

// apiOf returns the API of a definition, or the public contract if there is none.
func apiOf(d *Definition) (*upstream.API, error) {
	loaded, err := loadDefinition(d)
	if err != nil {
		return nil, err
	}
	return loaded.API, nil
}

// parseDefinition parses the option. Syntax:
//
//	definition [[<name>] <file>] {
//	    overlay   <file>
//	    only      <operations and tags...>
//	    except    <operations and tags...>
//	    max_items <n>
//	    enforce   tenant|members|all
//	}
//
// "overlay" may be repeated. Without a file, it is the public contract, for which only "only", "except" and "enforce" are possible.
func parseDefinition(d *caddyfile.Dispenser) (*Definition, error) {
	args := d.RemainingArgs()
	def := new(Definition)
	if slices.Contains(args, "") { // an API without a name is for other keys
		return nil, d.Err("definition: the name or the file is empty")
	}
	switch len(args) {
	case 0:
	case 1:
		def.File = args[0]
	case 2:
		def.Name, def.File = args[0], args[1]
	default:
		return nil, d.Err("definition takes a file, such as shop.openapi.yaml, preceded by a name if the API has one")
	}
	enforced := false // "all" is the zero value
	err := parseBlock(d, "definition",
		option{name: "overlay", repeatable: true, parse: func(d *caddyfile.Dispenser) error {
			name, err := oneArg(d, "overlay")
			def.Overlays = append(def.Overlays, name)
			return err
		}},
		texts("only", &def.Only),
		texts("except", &def.Except),
		number("max_items", &def.MaxItems),
		value("enforce", "one of "+strings.Join(upstream.Enforcements(), ", "), &def.Enforce, func(v string) (e upstream.Enforcement, ok bool) {
			enforced = true
			err := e.UnmarshalText([]byte(v))
			return e, err == nil
		}),
	)
	if err == nil && def.File == "" && len(def.Only)+len(def.Except) == 0 && !enforced {
		return nil, d.Err("definition needs a file, such as shop.openapi.yaml, or only, except or enforce, for the public contract")
	}
	return def, err
}

// skip passes over an option and its block.
func skip(d *caddyfile.Dispenser) error {
	for nesting, more := d.Nesting(), true; more; more = d.NextBlock(nesting) {
		d.RemainingArgs()
	}
	return nil
}

// checkAPIName returns an error if a name could be confused with a resource of the built-in API, in the resources of a key, or with
// another route, in logs and metrics.
func checkAPIName(name string) error {
	if name == "" {
		return nil
	}
	if !regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`).MatchString(name) {
		return fmt.Errorf("invalid name %q of an API: must be 1 to 63 of a-z, 0-9, _ and -, and begin with a letter", name)
	}
	if slices.Contains(definition.Public().Resources(false), name) ||
		slices.Contains([]string{"api", routeOfAuth, upstream.ConnectAudience, "errors", "health", "jwks", "all"}, name) {
		return fmt.Errorf("invalid name %q of an API: it already means something else in keys, logs or metrics", name)
	}
	return nil
}

// claimNames returns an error if a key's resources could mean an API and something else: two APIs have one name, or a resource of the API
// without a name is called as another API.
func (a *App) claimNames(api *upstream.API, d *Definition) error {
	what := "the public contract"
	if d != nil && d.File != "" {
		what = d.File + sumOf + d.Sum
	}
	if api.Name() != "" {
		return a.claim(api.Name(), what)
	}
	if err := a.claim("", what); err != nil {
		return err
	}
	for _, resource := range api.Resources(false) {
		if err := a.claim(resource, resourceOf+what); err != nil {
			return err
		}
	}
	return nil
}

const (
	resourceOf = "a resource of " // precedes the API in the meaning of a resource's name
	sumOf      = " with the sum " // precedes the sum of a definition's files
)

// withoutSum returns the meaning of a name for people.
func withoutSum(what string) string {
	what, _, _ = strings.Cut(what, sumOf)
	return what
}

// namesAPI reports whether a name in the resources of keys means an API of its own.
func (a *App) namesAPI(name string) bool {
	what, ok := a.claimed[name]
	return ok && name != routeOfAuth && name != upstream.ConnectAudience && !strings.HasPrefix(what, resourceOf)
}

func (a *App) claim(name, what string) error {
	other, ok := a.claimed[name]
	switch {
	case ok && other != what && name == "":
		return fmt.Errorf("only one API may have no name, but %s and %s have none: name one of them, as in \"definition shop shop.yaml\"", withoutSum(other), withoutSum(what))
	case ok && other != what:
		return fmt.Errorf("the name %q is used for %s and for %s: give one another name", name, withoutSum(other), withoutSum(what))
	case a.claimed == nil:
		a.claimed = map[string]string{}
	}
	a.claimed[name] = what
	return nil
}

// claimPaths returns an error if the paths of an API are those of another definition in the same list of routes, such as a site's, or below
// them: the first one would get the requests of both.
func (a *App) claimPaths(ctx caddy.Context, h *API) error {
	var routes any = ctx.Value(caddyhttp.ServerCtxKey)
	for _, m := range ctx.Modules() {
		if list, ok := m.(*caddyhttp.Subroute); ok {
			routes = list
		}
	}
	if a.paths == nil {
		a.paths = map[any]map[string]string{}
	}
	if a.paths[routes] == nil {
		a.paths[routes] = map[string]string{}
	}
	file, found, paths := "", a.paths[routes], []string{h.BasePath + h.api.Base() + "/"}
	if h.Definition != nil {
		file = h.Definition.File
	}
	if h.DocsPath != "" {
		paths = append(paths, h.DocsPath+"/")
	}
	for _, path := range paths {
		for other, definition := range found {
			if definition != file && (strings.HasPrefix(other, path) || strings.HasPrefix(path, other)) {
				return fmt.Errorf("two APIs of one site have the base paths or docs_path %s and %s: none may be equal to or below another, unless each is in a handle block of its own", other, path)
			}
		}
	}
	for _, path := range paths {
		found[path] = file
	}
	return nil
}

// KeyNames returns what the resources of a key may name, by a configuration: the resources of the API without a name, which is the public
// contract unless the configuration has another one, and the names of the other APIs.
func KeyNames(config any) (resources, apis []string, err error) {
	var unnamed *upstream.API
	if err := eachHandler(config, func(handler map[string]any) error {
		name, _ := handler["name"].(string)
		switch handler["handler"] {
		case authName:
			apis = append(apis, name)
		case apiName:
			api, err := apiOf(definitionOf(handler))
			if err != nil {
				return err
			}
			if apis = append(apis, api.Name()); api.Name() == "" {
				unnamed = api
			}
		}
		return nil
	}); err != nil {
		return nil, nil, err
	}
	if unnamed == nil {
		unnamed = definition.Public()
	}
	slices.Sort(apis)
	return unnamed.Resources(true), slices.DeleteFunc(slices.Compact(apis), func(name string) bool { return name == "" }), nil
}

// BasePaths returns the base paths of the APIs in a configuration.
func BasePaths(config any) (bases []string, err error) {
	err = eachHandler(config, func(handler map[string]any) error {
		if handler["handler"] != apiName {
			return nil
		}
		api, err := apiOf(definitionOf(handler))
		if err == nil {
			bases = append(bases, api.Base())
		}
		return err
	})
	return bases, err
}

// definitionOf returns the definition in the configuration of a gatehouse_api, or nil.
func definitionOf(handler any) *Definition {
	config, _ := handler.(map[string]any)
	text, err := json.Marshal(config["definition"])
	d := new(Definition)
	if err != nil || config["definition"] == nil || json.Unmarshal(text, d) != nil {
		return nil
	}
	return d
}

// eachHandler calls f for every handler in a configuration.
func eachHandler(config any, f func(map[string]any) error) error {
	var below []any
	switch v := config.(type) {
	case []any:
		below = v
	case map[string]any:
		if _, ok := v["handler"].(string); ok {
			if err := f(v); err != nil {
				return err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			below = append(below, v[name])
		}
	}
	for _, value := range below {
		if err := eachHandler(value, f); err != nil {
			return err
		}
	}
	return nil
}

// label returns the name of an operation in logs and metrics.
func label(api *upstream.API, op *upstream.Operation) string {
	if api.Name() == "" {
		return op.ID
	}
	return api.Name() + "/" + op.ID
}

// resourcesOf returns the names of the resources that data services serve, without the API's name.
func resourcesOf(api *upstream.API) []string {
	names := api.Resources(true)
	for i := range names {
		names[i] = bare(api, names[i])
	}
	return names
}

// bare returns the name of a resource without that of its API.
func bare(api *upstream.API, resource string) string {
	if api.Name() == "" {
		return resource
	}
	return resource[len(api.Name())+1:]
}
