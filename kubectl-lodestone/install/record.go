package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// recordName is the ConfigMap, in the namespace of the programs, in which a run leaves for the next one what it has installed.
const recordName = "lodestone-installation"

// record is what an earlier run has left.
type record struct {
	// found says that there was one.
	found   bool
	values  Values
	objects []reference
}

// reference names an object of any kind.
type reference struct {
	kind            schema.GroupVersionKind
	namespace, name string
}

func referenceTo(object *unstructured.Unstructured) reference {
	return reference{kind: object.GroupVersionKind(), namespace: object.GetNamespace(), name: object.GetName()}
}

// same says that both name one object, whatever the version.
func (r reference) same(other reference) bool {
	return r.kind.GroupKind() == other.kind.GroupKind() && r.namespace == other.namespace && r.name == other.name
}

// String names the object in messages.
func (r reference) String() string {
	if r.namespace == "" {
		return r.kind.Kind + " " + r.name
	}
	return r.kind.Kind + " " + r.namespace + "/" + r.name
}

// line is a reference in the record. An empty namespace is written as -.
func (r reference) line() string {
	group, namespace := r.kind.GroupVersion().String(), r.namespace
	if namespace == "" {
		namespace = "-"
	}
	return strings.Join([]string{group, r.kind.Kind, namespace, r.name}, " ")
}

func parseLine(line string) (reference, error) {
	words := strings.Fields(line)
	if len(words) != 4 {
		return reference{}, fmt.Errorf("the line %q has not four words", line)
	}
	group, err := schema.ParseGroupVersion(words[0])
	if err != nil {
		return reference{}, err
	}
	r := reference{kind: group.WithKind(words[1]), namespace: words[2], name: words[3]}
	if r.namespace == "-" {
		r.namespace = ""
	}
	return r, nil
}

// union returns the references of both, each object once.
func union(a, b []reference) []reference {
	all := slices.Clone(a)
	for _, r := range b {
		if !slices.ContainsFunc(all, r.same) {
			all = append(all, r)
		}
	}
	return all
}

func without(a, b []reference) []reference {
	return slices.DeleteFunc(slices.Clone(a), func(r reference) bool { return slices.ContainsFunc(b, r.same) })
}

// readRecord reads what an earlier run has left in a namespace.
func readRecord(ctx context.Context, cluster *cli.Cluster, namespace string) (record, error) {
	kept, err := cluster.Client.CoreV1().ConfigMaps(namespace).Get(ctx, recordName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return record{}, nil
	case err != nil:
		return record{}, cluster.Explain("get configmap "+recordName+" -n "+namespace, err)
	}
	return parseRecord(kept)
}

// parseRecord overlooks values that it does not know: those of a newer plugin, which an older one goes back from.
func parseRecord(kept *corev1.ConfigMap) (record, error) {
	r := record{found: true}
	broken := func(err error) error {
		return fmt.Errorf("what an earlier run has left in ConfigMap %s/%s cannot be read: %w; correct it, or delete it to install "+
			"anew over what is there", kept.Namespace, kept.Name, err)
	}
	if err := yaml.Unmarshal([]byte(kept.Data["values.yaml"]), &r.values); err != nil {
		return record{}, broken(err)
	}
	for line := range strings.Lines(kept.Data["objects"]) {
		object, err := parseLine(line)
		if err != nil {
			return record{}, broken(err)
		}
		r.objects = append(r.objects, object)
	}
	return r, nil
}

// writeRecord leaves for the next run what is installed.
func writeRecord(ctx context.Context, cluster *cli.Cluster, namespace string, r record) error {
	values, err := yaml.Marshal(r.values)
	if err != nil {
		return fmt.Errorf("write the values: %w", err)
	}
	var lines strings.Builder
	for _, object := range r.objects {
		lines.WriteString(object.line() + "\n")
	}
	kept := corev1apply.ConfigMap(recordName, namespace).
		WithLabels(map[string]string{"app.kubernetes.io/part-of": "lodestone"}).
		WithData(map[string]string{"values.yaml": string(values), "objects": lines.String()})
	_, err = cluster.Client.CoreV1().ConfigMaps(namespace).Apply(ctx, kept, metav1.ApplyOptions{FieldManager: manager, Force: true})
	return cluster.Explain("apply configmap "+recordName+" -n "+namespace, err)
}

// Compare returns which objects of the installation in a home cluster are missing, and which are not as this plugin would make them
// with the choices that were made; managed says whether install has made it. It changes nothing.
func Compare(ctx context.Context, cluster *cli.Cluster) (managed bool, missing, differing []string, err error) {
	last, err := readRecord(ctx, cluster, homeNamespace)
	if err != nil || !last.found {
		return false, nil, nil, err
	}
	objects, err := Build(last.values, false)
	if err != nil {
		return true, nil, nil, err
	}
	t, err := newTarget(cluster, cli.Reporter{})
	if err != nil {
		return true, nil, nil, err
	}
	for _, object := range objects {
		r := referenceTo(object)
		client, err := t.resource(r)
		switch {
		case notServed(err):
			missing = append(missing, r.String())
			continue
		case err != nil:
			return true, nil, nil, err
		}
		before, err := client.Get(ctx, r.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && r.kind.Kind == "Job":
			continue // a Job that has ended is removed
		case apierrors.IsNotFound(err):
			missing = append(missing, r.String())
			continue
		case err != nil:
			return true, nil, nil, err //nolint:wrapcheck // the caller explains it
		}
		after, err := client.Apply(ctx, r.name, object, metav1.ApplyOptions{FieldManager: manager, Force: true,
			DryRun: []string{metav1.DryRunAll}})
		switch {
		case apierrors.IsInvalid(err) && r.kind.Kind == "Job":
			continue // install makes it anew
		case err != nil:
			return true, nil, nil, err //nolint:wrapcheck // the caller explains it
		case !sameContent(before, after):
			differing = append(differing, r.String())
		}
	}
	return true, missing, differing, nil
}
