package file

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// documentFormat is the last format of the file that this version reads. It writes none, which means 1, because earlier versions
// reject the member. The entries have their own.
const documentFormat = 1

// document is the content of the file, with raw entries.
type document struct {
	Format int                       `json:"format,omitzero"`
	Keys   map[string]jsontext.Value `json:"keys"`
}

// parseDocument parses the file. Duplicate names, and top-level names other than "format" and "keys", are errors. Errors contain the line
// number, but quote nothing, because it could be a secret.
func parseDocument(data []byte) (document, error) {
	var d document
	err := json.Unmarshal(data, &d, json.RejectUnknownMembers(true))
	if d.Format > documentFormat { // its other members may be different
		return document{}, errors.New("the file is of a later version of Gatehouse")
	}
	if err != nil {
		return document{}, located(data, err)
	}
	if d.Keys == nil {
		return document{}, errors.New(`missing member "keys"`)
	}
	return d, nil
}

// record decodes an entry.
func (d document) record(publicKey string) (map[string]any, error) {
	var fields map[string]any
	entry := d.Keys[publicKey]
	if entry.Kind() != '{' || json.Unmarshal(entry, &fields) != nil {
		return nil, fmt.Errorf("%w: not a JSON object", authsigner.ErrMalformedCredential)
	}
	return fields, nil
}

func (d document) credential(publicKey string) (*authsigner.Credential, error) {
	fields, err := d.record(publicKey)
	if err == nil {
		var cred *authsigner.Credential
		if cred, err = authsigner.DecodeCredential(publicKey, fields); err == nil {
			return cred, nil
		}
	}
	return nil, fmt.Errorf("entry %.140q: %w", authsigner.PrintableKey(publicKey), err)
}

// put sets an entry.
func (d document) put(publicKey string, fields map[string]any) error {
	entry, err := json.Marshal(fields, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encoding the entry of %s: %w", publicKey, err)
	}
	d.Keys[publicKey] = entry
	return nil
}

// bytes encodes the document, sorted and indented.
func (d document) bytes() ([]byte, error) {
	data, err := json.Marshal(d, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return nil, fmt.Errorf("encoding the keys: %w", err)
	}
	return append(data, '\n'), nil
}

// set is the decoded content of a file.
type set struct {
	hash      [sha256.Size]byte
	creds     map[string]*authsigner.Credential
	malformed map[string]error // the errors of malformed entries
}

func parseSet(data []byte) (*set, error) {
	d, err := parseDocument(data)
	if err != nil {
		return nil, err
	}
	s := &set{
		hash:      sha256.Sum256(data),
		creds:     make(map[string]*authsigner.Credential, len(d.Keys)),
		malformed: map[string]error{},
	}
	for publicKey := range d.Keys {
		if cred, err := d.credential(publicKey); err == nil {
			s.creds[publicKey] = cred
		} else {
			s.malformed[publicKey] = err
		}
	}
	return s, nil
}

// reuse replaces unchanged credentials by those of last, which have their HMAC states already. It returns the sorted keys whose
// entries differ from last.
func (s *set) reuse(last *set) (changed []string) {
	for key, cred := range s.creds {
		if old := last.creds[key]; old != nil && reflect.DeepEqual(old.Record(), cred.Record()) {
			s.creds[key] = old
		} else {
			changed = append(changed, key)
		}
	}
	for key := range s.malformed {
		if last.malformed[key] == nil {
			changed = append(changed, key)
		}
	}
	for _, key := range slices.Concat(slices.Collect(maps.Keys(last.creds)), slices.Collect(maps.Keys(last.malformed))) {
		if s.creds[key] == nil && s.malformed[key] == nil {
			changed = append(changed, key)
		}
	}
	slices.Sort(changed)
	return changed
}

// located returns an error with the line number of err. It does not use the JSON package's messages, which may quote the data.
func located(data []byte, err error) error {
	what, offset := "unexpected JSON", int64(0)
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		what, offset = "invalid JSON", syntactic.ByteOffset
	} else if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		offset = semantic.ByteOffset
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		what = "duplicate name in an object"
	case errors.Is(err, json.ErrUnknownName):
		what = `unknown member: must be "keys"`
	}
	line := 1 + strings.Count(string(data[:min(max(offset, 0), int64(len(data)))]), "\n")
	return fmt.Errorf("line %d: %s", line, what)
}
