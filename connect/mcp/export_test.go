package mcp

import "github.com/go-redis/redis_rate/v10"

type Store = store

var NewStore = newStore

// SetRate sets how many requests a minute a connection may make.
func (s *Server) SetRate(perMinute int) { s.rate = redis_rate.PerMinute(perMinute) }
