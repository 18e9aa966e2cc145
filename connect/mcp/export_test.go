package mcp

import (
	"encoding/json"

	"github.com/go-redis/redis_rate/v10"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

const AnnounceTime = announceTime

type Store = store

var NewStore = newStore

// SetRate sets how many requests a minute a connection may make.
func (s *Server) SetRate(perMinute int) { s.rate = redis_rate.PerMinute(perMinute) }

// OutputSchemas returns the output schemas of the tools of a definition, by the tools' names.
func OutputSchemas(d *definition.Definition) (map[string]any, error) {
	tools, err := newTools(d, scope.New(d.Areas))
	schemas := map[string]any{}
	for name, t := range tools {
		var d struct {
			OutputSchema any `json:"outputSchema"`
		}
		if err == nil {
			err = json.Unmarshal(t.declared[true], &d)
		}
		schemas[name] = d.OutputSchema
	}
	return schemas, err
}
