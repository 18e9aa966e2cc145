package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

var errNullUpstream = errors.New("upstream: must not be null")

// served returns the upstreams by the names of their resources; "" is the upstream without resources. Each may occur once.
func (h *API) served() (map[string]*APIUpstream, error) {
	served := map[string]*APIUpstream{}
	for _, u := range h.Upstreams {
		if u == nil {
			return nil, errNullUpstream
		}
		if len(u.Resources) == 0 {
			if served[""] != nil {
				return nil, errors.New("upstream: more than one upstream without resources: only one may omit them")
			}
			served[""] = u
		}
		for _, name := range u.Resources {
			if err := checkResource("upstream", name, resourcesOf(h.api)); err != nil {
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

func (d Deprecation) headers() http.Header {
	return upstream.DeprecationHeaders(d.Since, d.Sunset, d.Link)
}
