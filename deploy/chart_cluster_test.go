package deploy_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An upgrade that gives values keeps none of the last one's. Without the document, the release would serve the built-in API.
func TestUpgradeWithoutAFileOfTheReleaseFails(t *testing.T) {
	t.Parallel()
	document := []string{"--set", "definition.document=x"}
	for name, test := range map[string]struct {
		has  map[string]string
		args []string
		want string
	}{
		"document":                      {map[string]string{"openapi.yaml": "x"}, nil, "has openapi.yaml"},
		"overlay":                       {map[string]string{"openapi.yaml": "x", "overlay.yaml": "x"}, document, "has overlay.yaml"},
		"overlay of assistants":         {map[string]string{"openapi.yaml": "x", "assistants.yaml": "x"}, document, "has assistants.yaml"},
		"own Caddyfile":                 {map[string]string{"Caddyfile": ":8080\n"}, nil, "has a Caddyfile of your own"},
		"given again":                   {map[string]string{"openapi.yaml": "x"}, document, ""},
		"own Caddyfile given again":     {map[string]string{"Caddyfile": ":8080\n", "openapi.yaml": "x"}, []string{"--set", "caddyfile=:8080"}, ""},
		"meant":                         {map[string]string{"Caddyfile": ":8080\n", "openapi.yaml": "x"}, []string{"--set", "removeFiles=true"}, ""},
		"rendered Caddyfile with edits": {map[string]string{"Caddyfile": "# Made by the Helm chart; see docs/kubernetes.md.\n{\n\torder error first\n}\n"}, nil, ""},
		"installation":                  {nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := map[string]any{}
			if test.has != nil {
				cluster["/api/v1/namespaces/shop/configmaps/gatehouse"] = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": test.has}
			}
			out, err := upgrade(t, cluster, test.args...)
			if test.want == "" {
				require.NoError(t, err, out)
				return
			}
			require.Error(t, err)
			assert.Contains(t, out, test.want)
		})
	}
}

// upgrade renders an upgrade of the release "gatehouse" in the namespace "shop" of a cluster with these objects.
func upgrade(t *testing.T, cluster map[string]any, args ...string) (string, error) {
	t.Helper()
	groups := []map[string]any{}
	answers := map[string]any{
		"/version": map[string]string{"major": "1", "minor": "30", "gitVersion": "v1.30.0"},
		"/api":     map[string]any{"kind": "APIVersions", "versions": []string{"v1"}},
	}
	for version, kinds := range map[string][]string{
		"v1": {"ConfigMap", "Service", "ServiceAccount"}, "apps/v1": {"Deployment"}, "autoscaling/v2": {"HorizontalPodAutoscaler"},
		"networking.k8s.io/v1": {"NetworkPolicy"}, "policy/v1": {"PodDisruptionBudget"},
	} {
		path := "/api/v1"
		if group, v, ok := strings.Cut(version, "/"); ok {
			path = "/apis/" + version
			named := map[string]string{"groupVersion": version, "version": v}
			groups = append(groups, map[string]any{"name": group, "versions": []any{named}, "preferredVersion": named})
		}
		resources := []map[string]any{}
		for _, kind := range kinds {
			plural := strings.Replace(strings.ToLower(kind)+"s", "ys", "ies", 1)
			resources = append(resources, map[string]any{"name": plural, "kind": kind, "namespaced": true, "verbs": []string{"get"}})
		}
		answers[path] = map[string]any{"kind": "APIResourceList", "groupVersion": version, "resources": resources}
	}
	answers["/apis"] = map[string]any{"kind": "APIGroupList", "groups": groups}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			answer, ok = cluster[r.URL.Path]
		}
		w.Header().Set("Content-Type", "application/json")
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound}
		}
		assert.NoError(t, json.NewEncoder(w).Encode(answer))
	}))
	t.Cleanup(server.Close)
	return helm(t, append([]string{
		"template", "gatehouse", "chart", "--is-upgrade", "--namespace", "shop",
		"--dry-run=server", "--disable-openapi-validation", "--kube-apiserver", server.URL,
	}, args...)...)
}
