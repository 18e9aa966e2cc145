// Package embeddedredis is a Redis within the process, for the demo and for tests: miniredis, with keys that expire and the
// library struct that a real Redis gives to Lua scripts.
package embeddedredis

import (
	_ "embed" // for the prelude
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// prelude comes before scripts that use struct.
//
//go:embed struct.lua
var prelude string

// Start returns a running server on a free port of 127.0.0.1. The caller closes it.
func Start() (*miniredis.Miniredis, error) {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("starting the embedded Redis: %w", err)
	}
	var scripts sync.Map // SHA1 of scripts that need struct, to that with the prelude
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if len(args) == 0 {
			return false
		}
		switch cmd {
		case "EVAL":
			if strings.HasPrefix(args[0], prelude) || !strings.Contains(args[0], "struct.") {
				return false
			}
			complete := prelude + args[0]
			m.Server().Dispatch(c, append([]string{cmd, complete}, args[1:]...))
			scripts.Store(redis.NewScript(args[0]).Hash(), redis.NewScript(complete).Hash())
			return true
		case "EVALSHA":
			v, _ := scripts.Load(args[0])
			complete, ok := v.(string)
			if ok {
				m.Server().Dispatch(c, append([]string{cmd, complete}, args[1:]...))
			}
			return ok
		}
		return false
	})
	go expire(m)
	return m, nil
}

// expire lets keys expire as time goes by, which miniredis leaves to its caller, until the server is closed.
func expire(m *miniredis.Miniredis) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-m.Ctx.Done():
			return
		case now := <-ticker.C:
			m.FastForward(now.Sub(last))
			last = now
		}
	}
}
