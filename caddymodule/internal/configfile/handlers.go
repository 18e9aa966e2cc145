package configfile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	Site    any    // the server's route that leads to it
	SiteAt  string // the pointer of site
}

// Handlers returns the handlers of all servers in the order in which they run, without subroutes.
func (c *Config) Handlers() []Handler {
	var all []Handler
	servers, _ := Member(c.Value, "apps", "http", "servers").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		h := Handler{Server: name, Pointer: "/apps/http/servers/" + name}
		walkRoutes(Member(servers[name], "routes"), h, "/routes", &all)
		h.IsError = true
		walkRoutes(Member(servers[name], "errors", "routes"), h, "/errors/routes", &all)
	}
	return all
}

func walkRoutes(list any, in Handler, suffix string, all *[]Handler) {
	routes, _ := list.([]any)
	for i, route := range routes {
		steps, _ := Member(route, "handle").([]any)
		for j, step := range steps {
			h := in
			h.Pointer = fmt.Sprintf("%s%s/%d/handle/%d", in.Pointer, suffix, i, j)
			if h.Site == nil {
				h.Site, h.SiteAt = route, fmt.Sprintf("%s%s/%d", in.Pointer, suffix, i)
			}
			if hosts := HostsOf(route); hosts != nil {
				h.Hosts = hosts
			}
			h.Value, _ = step.(map[string]any)
			h.Name, _ = h.Value["handler"].(string)
			if h.Name != "subroute" {
				*all = append(*all, h)
				continue
			}
			walkRoutes(h.Value["routes"], h, "/routes", all)
			h.IsError = true
			walkRoutes(Member(h.Value["errors"], "routes"), h, "/errors/routes", all)
		}
	}
}
