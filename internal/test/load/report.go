package load

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The contract's limit for a key.
const (
	KeyLimit = 60
	Window   = time.Minute
)

// Report contains the results of a load.
type Report struct {
	Phases  []PhaseReport
	samples []*Sample
}

// PhaseReport summarizes the requests that were due in one phase.
type PhaseReport struct {
	Name          string
	Requests      int
	By            map[string]int // by Sample.Outcome
	Wrong         int
	P50, P99, Max time.Duration
}

// Report returns the results so far.
func (l *Load) Report() *Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &Report{samples: slices.Clone(l.samples)}
	for _, name := range l.phases {
		p := PhaseReport{Name: name, By: map[string]int{}, Wrong: l.wrongs[name]}
		var took []time.Duration
		for _, s := range r.samples {
			if s.Phase == name {
				p.By[s.Outcome()]++
				took = append(took, s.Done.Sub(s.Due))
			}
		}
		p.Requests = len(took)
		if len(took) > 0 {
			slices.Sort(took)
			p.P50, p.P99, p.Max = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
		}
		r.Phases = append(r.Phases, p)
	}
	return r
}

// Phase returns the report on a phase, which is zero for an unknown phase.
func (r *Report) Phase(name string) PhaseReport {
	for _, p := range r.Phases {
		if p.Name == name {
			return p
		}
	}
	return PhaseReport{Name: name}
}

func (r *Report) wrong() (n int) {
	for _, p := range r.Phases {
		n += p.Wrong
	}
	return n
}

// Some returns the wanted samples.
func (r *Report) Some(wanted func(*Sample) bool) (list []*Sample) {
	for _, s := range r.samples {
		if wanted(s) {
			list = append(list, s)
		}
	}
	return list
}

// Allowed returns the highest number of the wanted samples (nil: all) that one caller was served within one window of the limit.
// callerOf, ByGateway or ByFleet, identifies the caller.
func (r *Report) Allowed(callerOf func(*Sample) string, wanted func(*Sample) bool) (worst int) {
	sent, done := map[string][]time.Time{}, map[string][]time.Time{}
	for _, s := range r.samples {
		if s.Status == http.StatusOK && (wanted == nil || wanted(s)) {
			caller := callerOf(s)
			sent[caller], done[caller] = append(sent[caller], s.Sent), append(done[caller], s.Done)
		}
	}
	for caller := range sent {
		sent, done := sent[caller], done[caller]
		slices.SortFunc(sent, time.Time.Compare)
		slices.SortFunc(done, time.Time.Compare)
		within := 0
		for before, first := range sent {
			// A request is allowed at some time between Sent and Done, which are less than a window apart. Certainly within the
			// window are those that were done when it ended, less those that were sent before it began.
			for within < len(done) && done[within].Sub(first) < Window {
				within++
			}
			worst = max(worst, within-before)
		}
	}
	return worst
}

// ByGateway identifies callers separately for each gateway.
func ByGateway(s *Sample) string { return strconv.Itoa(s.Gateway) + " " + s.Key }

// ByFleet identifies callers across the fleet.
func ByFleet(s *Sample) string { return s.Key }

// OverLimit returns by how many requests any gateway has exceeded the limit of any key in any window.
func (r *Report) OverLimit() int { return max(0, r.Allowed(ByGateway, nil)-KeyLimit) }

// String returns the report in a few lines.
func (r *Report) String() string {
	var b strings.Builder
	for _, p := range r.Phases {
		fmt.Fprintf(&b, "%-8s %5d requests, wrong %d, p50 %s, p99 %s, max %s:", p.Name, p.Requests, p.Wrong, MS(p.P50), MS(p.P99), MS(p.Max))
		for _, outcome := range slices.Sorted(maps.Keys(p.By)) {
			fmt.Fprintf(&b, " %s: %d", outcome, p.By[outcome])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Figure logs the line that docs/reliability.md cites; more are further figures, name=value.
func (r *Report) Figure(t *testing.T, more ...string) {
	t.Helper()
	var p50, p99 []string
	for _, p := range r.Phases {
		p50, p99 = append(p50, p.Name+":"+MS(p.P50)), append(p99, p.Name+":"+MS(p.P99))
	}
	t.Logf("figure: %s requests=%d wrong=%d over_limit=%d p50=%s p99=%s %s\n%s", t.Name(), len(r.samples), r.wrong(), r.OverLimit(),
		strings.Join(p50, ","), strings.Join(p99, ","), strings.Join(more, " "), r)
}

// MS formats a duration in milliseconds.
func MS(d time.Duration) string {
	return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 1, 64) + "ms"
}
