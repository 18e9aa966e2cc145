package check

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/configfile"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

// The severities of rules, which are the levels of SARIF.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// rule is something that `gatehouse check` looks for. IDs are never used again for something else.
type rule struct {
	id, severity string
	title        string // what is wrong, without the place
	fix          string
}

// Finding is something wrong in a configuration.
type Finding struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	configfile.Position

	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// Skip is something that could not be checked.
type Skip struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

func (s Skip) String() string { return s.What + ": " + s.Why }

// Report is the result of a check.
type Report struct {
	Findings []Finding `json:"findings"` // in the order of their places
	Skipped  []Skip    `json:"skipped"`
}

// sentences returns what is wrong and how to correct it.
func (f Finding) sentences() string {
	message := strings.TrimSuffix(f.Message, ".")
	if !strings.HasSuffix(message, "?") {
		message += "."
	}
	return message + " " + f.Fix + "."
}

// newFinding returns a finding of a rule.
func newFinding(id string, at configfile.Position, message string) Finding {
	all := rules()
	r := all[slices.IndexFunc(all, func(r rule) bool { return r.id == id })]
	return Finding{r.id, r.severity, at, message, r.fix}
}

// faultLine matches a fault of a definition.
var faultLine = regexp.MustCompile(`^(.+?):(\d+): (?:: )?(.+)$`)

// loadFindings returns what prevents a configuration from being loaded, or the error if it could not even be read. Of a definition, these
// are its faults.
func loadFindings(err error) ([]Finding, error) {
	failure := new(configfile.Error)
	if !errors.As(err, &failure) {
		return nil, err
	}
	whole := newFinding("GH001", failure.Position, failure.Message)
	faults, ok := strings.CutPrefix(failure.Message, "definition:\n")
	if !ok {
		return []Finding{whole}, nil
	}
	var all []Finding
	for line := range strings.SplitSeq(faults, "\n") {
		m := faultLine.FindStringSubmatch(line)
		if m == nil { // the name of something in the document
			return []Finding{whole}, nil
		}
		n, _ := strconv.Atoi(m[2])
		f := newFinding("GH001", configfile.Position{File: m[1], Line: n}, m[3])
		f.Fix = "Correct the document, or leave the operation out: see gatehouse api check"
		all = append(all, f)
	}
	return all, nil
}

// sortFindings sorts by place and removes duplicates.
func sortFindings(found []Finding) []Finding {
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(found)
}

// Count returns the number of findings of a severity.
func (r Report) Count(severity string) int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == severity {
			n++
		}
	}
	return n
}

// Print prints a report for people. It escapes what a terminal might obey: messages contain text from stores and services.
func (r Report) Print(w io.Writer) error {
	for _, f := range r.Findings {
		if _, err := fmt.Fprintf(w, "%s: %s %s: %s\n", cleantext.Escape(f.Position.String()), f.Severity, f.Rule, cleantext.Escape(f.sentences())); err != nil {
			return err
		}
	}
	for _, s := range r.Skipped {
		if _, err := fmt.Fprintf(w, "Not checked: %s\n", cleantext.Escape(s.String())); err != nil {
			return err
		}
	}
	summary := plural(r.Count(SeverityError), "error") + ", " + plural(r.Count(SeverityWarning), "warning")
	if n := len(r.Skipped); n > 0 {
		summary += fmt.Sprintf(", %d not checked", n)
	}
	_, err := fmt.Fprintln(w, summary)
	return err
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// EncodeJSON prints a report as JSON.
func (r Report) EncodeJSON(w io.Writer) error {
	r.Findings, r.Skipped = append([]Finding{}, r.Findings...), append([]Skip{}, r.Skipped...) // not null
	return json.NewEncoder(w).Encode(r)
}

// EncodeSARIF prints a report in the Static Analysis Results Interchange Format, version 2.1.0.
func (r Report) EncodeSARIF(w io.Writer) error {
	type (
		object = map[string]any
		text   struct {
			Text string `json:"text"`
		}
	)
	all, results, skipped := []object{}, []object{}, []object{}
	for _, r := range rules() {
		all = append(all, object{
			"id": r.id, "shortDescription": text{r.title}, "help": text{r.fix}, "defaultConfiguration": object{"level": r.severity},
		})
	}
	for _, f := range r.Findings {
		physical := object{"artifactLocation": object{"uri": (&url.URL{Path: f.File}).String()}}
		if f.Line > 0 {
			physical["region"] = object{"startLine": f.Line}
		}
		location := object{"physicalLocation": physical}
		if f.Pointer != "" {
			location["logicalLocations"] = []object{{"fullyQualifiedName": f.Pointer}}
		}
		results = append(results, object{
			"ruleId": f.Rule, "level": f.Severity, "message": text{f.sentences()}, "locations": []object{location},
		})
	}
	for _, s := range r.Skipped {
		skipped = append(skipped, object{"level": SeverityWarning, "message": text{"Not checked: " + s.String()}})
	}
	return json.NewEncoder(w).Encode(object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json",
		"version": "2.1.0",
		"runs": []object{{
			"tool":        object{"driver": object{"name": "gatehouse check", "rules": all}},
			"invocations": []object{{"executionSuccessful": true, "toolExecutionNotifications": skipped}},
			"results":     results,
		}},
	})
}
