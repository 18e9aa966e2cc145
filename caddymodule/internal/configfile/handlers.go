package configfile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Member returns the member of a JSON value to which names and indexes lead, or nil.
func Member(value any, steps ...string) any {
	for _, step := range steps {
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}

// HostsOf returns the hosts of a route's matchers.
func HostsOf(route any) (hosts []string) {
	sets, _ := Member(route, "match").([]any)
	for _, set := range sets {
		names, _ := Member(set, "host").([]any)
		for _, name := range names {
			if s, ok := name.(string); ok {
				hosts = append(hosts, s)
			}
		}
	}
	return hosts
}

// Handler is a handler of the configuration.
type Handler struct {
	Name    string // of the module
	Pointer string
	Server  string
	Hosts   []string // of the site; nil: all
	IsError bool     // it handles errors
	Value   map[string]any
	Way     []Route // the routes that lead to it; the first is that of the site
}

// Route is a route of the configuration.
type Route struct {
	Pointer string
	Value   any
}

// Handlers returns the handlers of all servers in the order in which they run, without subroutes. Those of a named route follow each
// handler that invokes it, and those for the responses of a handler follow that handler.
func (c *Config) Handlers() []Handler {
	var all []Handler
	servers, _ := Member(c.Value, "apps", "http", "servers").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		h := Handler{Server: name}
		at := "/apps/http/servers/" + name
		c.walkRoutes(at+"/routes", Member(servers[name], "routes"), h, &all)
		h.IsError = true
		c.walkRoutes(at+"/errors/routes", Member(servers[name], "errors", "routes"), h, &all)
	}
	return all
}

// ResponseRoutes returns the lists of routes that a reverse_proxy or an intercept has for responses.
func ResponseRoutes(pointer string, handler any) (lists []Route) {
	responses, _ := Member(handler, "handle_response").([]any)
	for i, response := range responses {
		lists = append(lists, Route{fmt.Sprintf("%s/handle_response/%d/routes", pointer, i), Member(response, "routes")})
	}
	return lists
}

// NamedRoute returns a route that handlers of a server invoke by its name.
func (c *Config) NamedRoute(server, name string) Route {
	at := []string{"apps", "http", "servers", server, "named_routes", name}
	return Route{"/" + strings.Join(at, "/"), Member(c.Value, at...)}
}

func (c *Config) walkRoutes(pointer string, list any, in Handler, all *[]Handler) {
	routes, _ := list.([]any)
	for i, route := range routes {
		c.walkRoute(Route{fmt.Sprintf("%s/%d", pointer, i), route}, in, all)
	}
}

func (c *Config) walkRoute(route Route, in Handler, all *[]Handler) {
	steps, _ := Member(route.Value, "handle").([]any)
	for j, step := range steps {
		h := in
		h.Pointer = fmt.Sprintf("%s/handle/%d", route.Pointer, j)
		h.Way = append(slices.Clip(in.Way), route)
		if hosts := HostsOf(route.Value); hosts != nil {
			h.Hosts = hosts
		}
		h.Value, _ = step.(map[string]any)
		h.Name, _ = h.Value["handler"].(string)
		if h.Name == "subroute" {
			c.walkRoutes(h.Pointer+"/routes", h.Value["routes"], h, all)
			h.IsError = true
			c.walkRoutes(h.Pointer+"/errors/routes", Member(h.Value["errors"], "routes"), h, all)
			continue
		}
		*all = append(*all, h)
		for _, list := range ResponseRoutes(h.Pointer, step) {
			c.walkRoutes(list.Pointer, list.Value, h, all)
		}
		if name, _ := h.Value["name"].(string); h.Name == "invoke" {
			named := c.NamedRoute(h.Server, name)
			if !slices.ContainsFunc(h.Way, func(r Route) bool { return r.Pointer == named.Pointer }) { // it invokes itself
				c.walkRoute(named, h, all)
			}
		}
	}
}
