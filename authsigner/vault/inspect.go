package vault

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Inspection is what [Source.Inspect] finds.
type Inspection struct {
	// Missing and Surplus are capabilities, such as "list of kv/metadata/gateway/keys/", that the login needs and lacks, or has
	// and does not need.
	Missing, Surplus []string

	// Hidden means that the login may not ask for its capabilities (sys/capabilities-self). Missing and Surplus are then nil.
	Hidden bool

	// Root means that the login may do everything.
	Root bool

	// ClockAhead is how far Vault's clock is ahead of this machine's, to within a second.
	ClockAhead time.Duration

	// Took is how long Vault took to respond.
	Took time.Duration
}

// Inspect logs in, if that has not happened yet, and compares the login's permissions to those that a gateway needs; a manager of
// keys (manage) needs more. It changes nothing.
func (s *Source) Inspect(ctx context.Context, manage bool) (Inspection, error) {
	var found Inspection
	current, err := s.acquire(ctx)
	if err != nil {
		return found, err
	}
	began := time.Now()
	health, err := s.base.WithNamespace("").Sys().HealthWithContext(ctx) // a namespace has no sys/health
	if err != nil {
		return found, unavailable(readable(err))
	}
	found.Took = time.Since(began)
	if health.ServerTimeUTC > 0 {
		found.ClockAhead = time.Unix(health.ServerTimeUTC, 0).Sub(began.Add(found.Took / 2)).Truncate(time.Second)
	}
	const entry = "pk_live_check"
	folder := s.path(current, "metadata", "") + "/"
	needs := map[string][]string{s.path(current, "data", entry): {"read"}, folder: nil}
	switch {
	case current.version == 2 && manage:
		needs[s.path(current, "data", entry)] = []string{"create", "read", "update"}
		needs[s.path(current, "metadata", entry)] = []string{"delete"}
		needs[folder] = []string{"list"}
	case current.version == 2:
		needs[s.path(current, "metadata", entry)] = nil
	case manage:
		needs[s.path(current, "data", entry)] = []string{"create", "read", "update", "delete"}
		needs[folder] = []string{"list"}
	}
	for path, needed := range needs {
		has, err := current.client.Sys().CapabilitiesSelfWithContext(ctx, path)
		if statusOf(err) == http.StatusForbidden {
			return Inspection{Hidden: true, ClockAhead: found.ClockAhead, Took: found.Took}, nil
		}
		if err != nil {
			return found, unavailable(readable(err))
		}
		if slices.Contains(has, "root") {
			found.Root = true
			continue
		}
		for _, c := range needed {
			if !slices.Contains(has, c) {
				found.Missing = append(found.Missing, fmt.Sprintf("%s of %s", c, path))
			}
		}
		for _, c := range has {
			if c != "deny" && !slices.Contains(needed, c) && !(c == "read" && path != s.path(current, "data", entry)) {
				found.Surplus = append(found.Surplus, fmt.Sprintf("%s of %s", c, path))
			}
		}
	}
	slices.Sort(found.Missing)
	slices.Sort(found.Surplus)
	return found, nil
}
