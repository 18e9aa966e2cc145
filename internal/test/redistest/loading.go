package redistest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// RestartLoading kills the server and starts it again over all that it held and
// some more, which it takes about d to load. Until then it replies to all
// commands with the error LOADING; RestartLoading returns once it does so.
func (s *Server) RestartLoading(d time.Duration) error {
	const fillers = 500
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	client := redis.NewClient(s.Options().Simple())
	defer func() { _ = client.Close() }()
	if _, err := client.Pipelined(ctx, func(all redis.Pipeliner) error {
		for range fillers {
			filler := make([]byte, 1024) // so large that Redis handles commands after each
			_, _ = rand.Read(filler)
			all.Set(ctx, "filler:"+rand.Text(), filler, time.Hour)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("writing what takes long to load: %w", err)
	}
	if err := client.Save(ctx).Err(); err != nil {
		return fmt.Errorf("saving what is to be loaded: %w", err)
	}
	if err := s.Kill(); err != nil {
		return err
	}
	directives := s.settings.directives
	s.settings.directives = append(slices.Clone(directives), "loading-process-events-interval-bytes 1024",
		"key-load-delay "+strconv.FormatInt(d.Microseconds()/fillers, 10))
	s.settings.loading = true
	defer func() { s.settings.directives, s.settings.loading = directives, false }()
	return s.run()
}
