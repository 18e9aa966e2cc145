package caddymodule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Names of parameters are case-sensitive.
func TestErrorsDoNotChangeNamesOfParameters(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"count": "Count is required.", "per_page": "The parameter per_page is required.", "businessId": "The parameter businessId is required.",
		"état": "The parameter état is required.", "If-Match": "If-Match is required.",
	} {
		p := problemOf(&upstream.ParameterError{Parameter: name, Reason: name + " is required"}, time.Time{})
		assert.Equal(t, want, p.Error)
		assert.Equal(t, name, p.Parameter)
	}
}

func TestErrorOfAMethodIsASentence(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "Only POST is allowed on this path.", problemOf(&methodNotAllowedError{"POST"}, time.Time{}).Error)
	assert.Equal(t, "Only GET and HEAD are allowed on this path.", problemOf(errMethodNotAllowed, time.Time{}).Error)
}

// A caller without an Idempotency-Key is not told to repeat it.
func TestErrorOfAnUnknownWriteNamesTheIdempotencyKeyIfThereIsOne(t *testing.T) {
	t.Parallel()
	assert.Contains(t, problemOf(&replayUnknownError{repeatable: true}, time.Time{}).Detail, "with a new timestamp and the same Idempotency-Key.")
	assert.NotContains(t, problemOf(&replayUnknownError{}, time.Time{}).Detail, "Idempotency-Key")
}
