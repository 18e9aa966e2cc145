package caddymodule

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

const (
	// maxDriftEntries is the maximum number of ways to deviate that are listed of one operation, and maxDriftTotal of all operations of a
	// definition: less than 10 MB.
	maxDriftEntries, maxDriftTotal = 200, 20_000

	// maxDriftPointer is the maximum length in bytes of a pointer that is listed, with where the data service has the member.
	maxDriftPointer = 256
)

// Drift is the response of the admin API: how responses of data services have deviated from their definitions. It contains no values.
type Drift struct {
	// Operations are those of which not everything is enforced, in the order of their definitions.
	Operations []OperationDrift `json:"operations"`
}

// OperationDrift is how the responses for an operation have deviated. The counts are those of one gateway.
type OperationDrift struct {
	API       string               `json:"api,omitempty"` // its name, if it has one
	Operation string               `json:"operation"`
	Enforce   upstream.Enforcement `json:"enforce"`
	Since     time.Time            `json:"since"`     // the gateway started, or loaded this document with this option enforce
	Responses int64                `json:"responses"` // that passed since
	Others    int64                `json:"others"`    // deviations that are not in the list, because it is full or the pointer is too long
	Entries   []DriftEntry         `json:"entries"`   // the most frequent first
}

// DriftEntry is a way in which responses have deviated.
type DriftEntry struct {
	Pointer   string    `json:"pointer"`
	Rule      string    `json:"rule"`
	Count     int64     `json:"count"`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`

	From string `json:"from,omitempty"` // where the data service has the member or what it is in, if that is another place
}

// Label returns the name of the operation in logs and metrics.
func (o OperationDrift) Label() string {
	if o.API == "" {
		return o.Operation
	}
	return o.API + "/" + o.Operation
}

// pooledDrift is the drift of a definition. It survives reloads that change neither the definition nor how much of it is enforced.
type pooledDrift struct {
	since time.Time
	total atomic.Int64 // entries of all operations

	mu         sync.Mutex
	operations map[string]*operationDrift // by ID
}

// Destruct implements caddy.Destructor: no configuration serves the definition any more.
func (*pooledDrift) Destruct() error { return nil }

// operation returns the drift of an operation.
func (p *pooledDrift) operation(id string) *operationDrift {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.operations[id]
	if o == nil {
		o = &operationDrift{of: p, entries: map[deviation]*DriftEntry{}}
		p.operations[id] = o
	}
	return o
}

// deviation is a way to deviate.
type deviation struct{ pointer, rule string }

// operationDrift is the drift of an operation.
type operationDrift struct {
	of        *pooledDrift
	responses atomic.Int64

	mu      sync.Mutex
	entries map[deviation]*DriftEntry
	others  int64
}

// add adds the deviations of a response.
func (o *operationDrift) add(deviations []upstream.Deviation, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range deviations {
		key := deviation{d.Pointer, d.Rule}
		e := o.entries[key]
		if e == nil {
			if len(o.entries) >= maxDriftEntries || len(d.Pointer)+len(d.From) > maxDriftPointer || !o.of.reserve() {
				o.others += int64(d.Count)
				continue
			}
			key.pointer = strings.Clone(d.Pointer)
			e = &DriftEntry{Pointer: key.pointer, Rule: key.rule, FirstSeen: now, From: d.From}
			o.entries[key] = e
		}
		e.Count += int64(d.Count)
		e.LastSeen = now
	}
}

// reserve reports whether the definition may have one more entry.
func (p *pooledDrift) reserve() bool {
	if p.total.Add(1) <= maxDriftTotal {
		return true
	}
	p.total.Add(-1)
	return false
}

// list returns the entries, the most frequent first, and the number of deviations that are not in them.
func (o *operationDrift) list() (entries []DriftEntry, others int64) {
	o.mu.Lock()
	entries, others = make([]DriftEntry, 0, len(o.entries)), o.others
	for _, e := range o.entries {
		entries = append(entries, *e)
	}
	o.mu.Unlock()
	slices.SortFunc(entries, func(a, b DriftEntry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Pointer, b.Pointer), strings.Compare(a.Rule, b.Rule))
	})
	return entries, others
}

// seconds returns an instant as it is listed.
func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// observed is an operation of which not everything is enforced.
type observed struct {
	api        string
	op         *upstream.Operation
	drift      *operationDrift
	deviations *prometheus.CounterVec // by rule
}

// observe prepares the operations of which not everything is enforced, and logs their names.
func (h *API) observe() (map[*upstream.Operation]*observed, error) {
	whole := func(op *upstream.Operation) bool { return op.Enforce == upstream.EnforceAll }
	operations := slices.DeleteFunc(h.api.Operations(), whole)
	if len(operations) == 0 {
		return nil, nil
	}
	var of Definition
	if h.Definition != nil {
		of = *h.Definition
	}
	drift, err := acquire(h.app, func() (*pooledDrift, error) {
		return &pooledDrift{since: seconds(time.Now()), operations: map[string]*operationDrift{}}, nil
	}, of.Name, of.Sum, of.Enforce)
	if err != nil {
		return nil, err
	}
	all, names := map[*upstream.Operation]*observed{}, map[upstream.Enforcement][]string{}
	for _, op := range operations {
		name := label(h.api, op)
		o := &observed{h.api.Name(), op, drift.operation(op.ID), h.app.metrics.deviationsOf(name)}
		all[op], names[op.Enforce] = o, append(names[op.Enforce], name)
		if !slices.ContainsFunc(h.app.observed, func(other *observed) bool { return other.drift == o.drift }) { // on another site
			h.app.observed = append(h.app.observed, o)
		}
	}
	h.logger.Warn("responses may deviate from the definition: gatehouse api drift lists how",
		zap.Strings("enforce_tenant", names[upstream.EnforceTenant]), zap.Strings("enforce_members", names[upstream.EnforceMembers]))
	return all, nil
}

// passed records a response that passed, and its deviations. o is nil if there can be none.
func (o *observed) passed(deviations []upstream.Deviation) {
	if o == nil {
		return
	}
	o.drift.responses.Add(1)
	if len(deviations) == 0 {
		return
	}
	o.drift.add(deviations, seconds(time.Now()))
	for _, d := range deviations {
		o.deviations.WithLabelValues(d.Rule).Add(float64(d.Count))
	}
}

// drift returns the drift of the definitions that are served.
func (a *App) drift() Drift {
	out := Drift{Operations: []OperationDrift{}}
	for _, o := range a.observed {
		entries, others := o.drift.list()
		out.Operations = append(out.Operations, OperationDrift{
			API: o.api, Operation: o.op.ID, Enforce: o.op.Enforce, Since: o.drift.of.since, Responses: o.drift.responses.Load(),
			Others: others, Entries: entries,
		})
	}
	return out
}
