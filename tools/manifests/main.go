// Command manifests reads Kubernetes manifests from standard input and decodes each strictly into its Go type: an unknown,
// repeated or misplaced field is an error, as it is for an API server with --validate=strict. It prints the kind and the
// name of each object.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	if err := decode(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

// decode decodes every document of in. Its errors are those of all documents.
func decode(in io.Reader, out io.Writer) error {
	if err := monitoringv1.AddToScheme(scheme.Scheme); err != nil {
		return fmt.Errorf("adding the Prometheus operator's types: %w", err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(in))
	var faults []error
	for i := 1; ; i++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return errors.Join(faults...)
		}
		if err != nil {
			return fmt.Errorf("reading document %d: %w", i, err)
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err == nil && content == nil {
			continue // comments only
		}
		object, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			faults = append(faults, fmt.Errorf("document %d: %w", i, err))
			continue
		}
		named, err := meta.Accessor(object)
		if err != nil {
			return fmt.Errorf("document %d: %w", i, err)
		}
		if _, err := fmt.Fprintf(out, "%s %s\n", kind.Kind, named.GetName()); err != nil {
			return err
		}
	}
}
