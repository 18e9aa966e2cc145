package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// served returns the upstreams by the names of their resources; "" is the upstream without resources. Each may occur once.
func (h *API) served() (map[string]*APIUpstream, error) {
	served := map[string]*APIUpstream{}
	for _, u := range h.Upstreams {
		if len(u.Resources) == 0 {
			if served[""] != nil {
				return nil, errors.New("upstream: more than one upstream without resources: only one may omit them")
			}
			served[""] = u
		}
		for _, name := range u.Resources {
			if err := checkResource("upstream", name, ProxiedNames()); err != nil {
				return nil, err
			}
			if served[name] != nil {
				return nil, fmt.Errorf("upstream: more than one upstream serves %q: each resource must have exactly one", name)
			}
			served[name] = u
		}
	}
	return served, nil
}

func checkResource(option, name string, names []string) error {
	if slices.Contains(names, name) {
		return nil
	}
	return fmt.Errorf("%s: unknown resource %q: must be one of %s", option, name, strings.Join(names, ", "))
}

func resourceNames() []string {
	var names []string
	for _, res := range definition.Public().Resources() {
		names = append(names, res.Name)
	}
	return names
}

// ProxiedNames returns the names of the resources that data services serve.
func ProxiedNames() []string {
	return slices.DeleteFunc(resourceNames(), func(name string) bool { return definition.Public().ByName(name).ByGateway })
}

func (d Deprecation) headers() http.Header {
	if d.Since.IsZero() {
		return nil
	}
	h := http.Header{"Deprecation": {fmt.Sprintf("@%d", d.Since.Unix())}}
	if !d.Sunset.IsZero() {
		h["Sunset"] = []string{d.Sunset.UTC().Format(http.TimeFormat)}
	}
	if d.Link != "" {
		h["Link"] = []string{"<" + d.Link + `>; rel="deprecation"; type="text/html"`}
	}
	return h
}
