package definition_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// Nothing of the public contract stands in Go: no path, operation, resource, parameter or member. The connection server has Go types of its
// own for now, and the demo has data.
func TestContractIsNowhereInGo(t *testing.T) {
	t.Parallel()
	names := map[string]bool{definition.Public().Base() + "/": true}
	var members func(*upstream.Schema)
	members = func(s *upstream.Schema) {
		if s == nil {
			return
		}
		for _, p := range s.Properties {
			names[p.Name] = true
			members(p.Schema)
		}
		members(s.Items)
	}
	for _, op := range definition.Public().Operations() {
		names[op.ID], names[op.Resource], names[op.Path] = true, true, true
		for _, p := range op.Params {
			names[p.Name] = true
		}
		for _, r := range op.Responses {
			members(r.Body)
		}
	}
	// Words that mean something else in Go's code too: headers, labels and keys of logs, configuration and credentials.
	for _, word := range []string{
		"id", "name", "slug", "status", "type", "description", "business", "business_id", "url", "title", "date", "page", "address", "count",
		"created_at", "expires_at", "events", "category", "notes", "email", "media",
	} {
		delete(names, word)
	}
	require.Greater(t, len(names), 60)
	for _, dir := range []string{"authsigner", "ratelimit", "upstream", "caddymodule", "cmd/gatehouse"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if strings.HasSuffix(path, "check/services.go") { // it asks the connection server's data service
				return nil
			}
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(literal.Value)
				require.NoError(t, err)
				words := strings.FieldsFunc(text, func(r rune) bool {
					return r != '_' && r != '/' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
				})
				for name := range names {
					alone := text == name || strings.HasPrefix(name, "/") && slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, name) })
					assert.False(t, alone, "%s: %q is of the public contract", set.Position(n.Pos()), name)
				}
				return true
			})
			return nil
		}))
	}
}
