package mcp

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/internal/similar"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Maximum numbers of records in a suggestion.
const (
	maxSuggested = 3  // from a search
	maxListed    = 10 // from a list without a search
)

// suggest returns advice after NOT_FOUND: records that a search for the ID that was sent finds, such as by their number, or one with a
// similar ID. It returns "" if there are none, or if the connection may not list them.
func (c *toolCall) suggest(ctx context.Context) string {
	op := c.tool.changes()
	for i, p := range slices.Backward(op.PathParams) {
		for _, says := range c.server.o.Definition.Tools {
			of := c.server.tools[says.Name]
			if of == nil || !c.grant.Scopes.Allows(of.scope) || !says.Operation.Success().IsList() || len(says.Operation.PathParams) > i {
				continue
			}
			if id := c.server.identifies(says.Operation, p.Name, op); id != "" {
				if near := c.similar(ctx, of, id, c.args.path[i], c.args.path[:len(says.Operation.PathParams)]); near != "" {
					return near
				}
			}
		}
	}
	return ""
}

// identifies returns the property of a list's records whose value the parameter of op's path takes, or "".
func (s *Server) identifies(list *upstream.Operation, parameter string, op *upstream.Operation) string {
	of := path.Join(list.Path, "{"+parameter+"}")
	if parameter == argID && of != op.Path && !strings.HasPrefix(op.Path, of+"/") {
		return ""
	}
	for _, one := range s.o.Definition.API.Operations() {
		if res := one.Success(); path.Clean(one.Path) == of && one.Method == http.MethodGet && res.Records != nil {
			if i := slices.IndexFunc(res.Records.Is, func(is upstream.Is) bool { return is.Param == parameter }); i >= 0 {
				return res.Records.Is[i].Property
			}
		}
	}
	return ""
}

// similar returns advice with the records of a list that match the ID that was sent, or "". id is the property with the ID.
func (c *toolCall) similar(ctx context.Context, list *tool, id, asked string, path []string) string {
	r := data.Request{Operation: list.Operation, Path: path}
	searches := slices.ContainsFunc(list.Operation.Params, func(p upstream.Param) bool { return p.Name == "query" })
	if searches {
		r.Query = url.Values{"query": {asked}}.Encode()
	}
	response, err := c.call(ctx, r)
	var records []map[string]jsontext.Value
	if err != nil || json.Unmarshal(inner(list.Operation, response), &records) != nil {
		return ""
	}
	most := maxSuggested
	if !searches {
		var ids []string
		for _, record := range records {
			ids = append(ids, plain(record[id]))
		}
		most = maxListed
		if near := slices.Index(ids, similar.Nearest(asked, ids)); near >= 0 {
			records = records[near : near+1]
		}
	}
	var found []string
	for _, record := range records[:min(len(records), most)] {
		named := slices.IndexFunc(list.Fields, func(field string) bool {
			_, kinds := enumOf(list.Operation.Record().Property(field).Schema)
			return field != id && !list.untrusted && record[field].Kind() == jsontext.KindString && !slices.Contains(kinds, plain(record[field]))
		})
		if found = append(found, quoted(plain(record[id]))); named >= 0 {
			found[len(found)-1] += " (" + quoted(plain(record[list.Fields[named]])) + ")"
		}
	}
	if found == nil {
		return ""
	}
	return "Did you mean the one with the id " + strings.Join(found, ", or ") + "?"
}
